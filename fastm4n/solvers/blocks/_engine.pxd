"""The block-coordinate engine: its atoms, its state, its steps."""

from libc.stdint cimport uint64_t

from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace, label_t
from fastm4n.surrogates._base cimport Surrogate

cdef struct Atom:
    double weight
    # the atom's height: a lower bound of h_b at it
    double height
    # height + <v, atom> when the set was last scored
    double score
    uint64_t hash
    # when it was last the best of its set
    long long used
    # where its content begins among the bytes of the set, and how long it is
    Py_ssize_t start
    int length
    # labels of an output, or values and places of a sparse vector
    bint is_labelling

cdef struct AtomSet:
    Atom* atoms
    char* content
    int count
    int room
    # visits since the oracle was last asked
    int hits
    Py_ssize_t content_size
    Py_ssize_t content_room


cdef class ActiveSets:
    cdef ActiveSets owner
    cdef AtomSet* sets
    cdef readonly Py_ssize_t n_blocks
    cdef readonly int limit
    cdef readonly bint keeps_unused
    # the time that atoms are noted as used at
    cdef long long now
    cdef char* candidate
    cdef int candidate_length
    cdef bint candidate_is_labelling
    cdef double[::1] dense
    # whether the last `find_or_add` has renumbered atoms, or raised the height of one
    cdef bint pruned
    # what `score` found
    cdef double current
    cdef int best, worst

    cdef label_t* labels(self) noexcept nogil
    cdef void offer_labelling(self, Py_ssize_t n_parts) noexcept nogil
    cdef void offer_vector(self, const double* vector, Py_ssize_t k) noexcept nogil
    cdef int offer_truth(self, Surrogate surrogate, Py_ssize_t b) except -1 nogil
    cdef int find_or_add(self, Surrogate surrogate, Py_ssize_t b, double height) except -1 nogil
    cdef void score(self, Surrogate surrogate, Py_ssize_t b, const double* v) noexcept nogil
    cdef void add_atom(
        self, Surrogate surrogate, Py_ssize_t b, int which, double weight,
        double* to) noexcept nogil
    cdef void combine(self, Surrogate surrogate, Py_ssize_t b, double* to) noexcept nogil
    cdef double height(self, Py_ssize_t b) noexcept nogil
    cdef void normalise(self, Py_ssize_t b) noexcept nogil
    cdef void scale(self, Py_ssize_t b, double factor) noexcept nogil
    cdef void remove(self, Py_ssize_t b, int which) noexcept nogil
    cdef void remove_unused(self, Py_ssize_t b) noexcept nogil
    cdef int merge(self, Surrogate surrogate, Py_ssize_t b, int first, int second) except -1 nogil
    cdef int prune(self, Surrogate surrogate, Py_ssize_t b, int keep) except -1 nogil

cdef class EngineState:
    cdef readonly Surrogate surrogate
    cdef readonly FeatureMap features
    cdef readonly const double[::1] weights
    cdef readonly double alpha
    # of the further penalty kappa / 2 ||w - y||^2 of accelerated passes
    cdef readonly double kappa
    # whether the feature map holds an average of accelerated passes, and not w(mu)
    cdef public bint holds_average
    # mean of p_b ||Phi_b d||^2 over the directions d of the first steps; 0 before it was measured
    cdef readonly double curvature
    # empty where the surrogate tells dual points
    cdef double[::1] mu_, t, gaps
    cdef readonly bint is_told
    # loss of each block, bounded from above, when its gap was last looked at
    cdef double[::1] losses
    cdef readonly long long n_visits, oracle_calls
    cdef readonly double oracle_error
    cdef public double certificate_error
    cdef uint64_t random_state
    cdef Py_ssize_t[::1] order
    # the blocks that are visited one after another, and where among them a pass stands; -1 in
    # passes that draw them
    cdef const Py_ssize_t[::1] visiting
    cdef Py_ssize_t position
    # tree of sums over weighted gaps, four children a node: those of i are 4 i + 1 ... 4 i + 4
    cdef double[::1] tree
    cdef Py_ssize_t first_leaf
    # averaging: the sum of mu_b over visits before since[b], weighted by their numbers
    cdef readonly bint averaging
    cdef double[::1] mu_sum
    cdef long long[::1] since
    cdef Workspace work
    # the dual point as combinations of atoms; None where mu_ is the dual point itself
    cdef readonly ActiveSets sets
    cdef bint is_active
    cdef double cache_F, cache_nu
    # sum_b p_b g_b when all gaps were last looked at
    cdef double refreshed_gap
    cdef readonly long long cache_hits
    # what line searches and steps along atoms have raised the dual by, at least
    cdef readonly double gained
    # sum of p_b ||Phi_b d||^2 over the directions of steps, and how many
    cdef double curvatures
    cdef long long n_curvatures

    cdef inline const double* dual(
            self, Surrogate surrogate, Workspace work, Py_ssize_t b,
            const double[::1] mu) except? NULL nogil:
        """mu_b, in work.point if it is computed on demand."""
        if not self.is_told:
            return &mu[surrogate.offset(b)]
        if self.is_active:
            self.sets.combine(surrogate, b, &work.point[0])
        elif surrogate.has_points:
            surrogate.point(b, work, &work.point[0])
        else:
            surrogate.truth(b, &work.point[0])
        return &work.point[0]

    cdef int gather(self, n_jobs=*) except -1
    cdef int add_part(
        self, const double[::1] mu, Py_ssize_t part, bint in_parts) except -1
    cdef int draw_to_truth(self, double shrink) except -1

cpdef enum Sampling:
    UNIFORM
    PERMUTATION
    GAP

cpdef enum Step:
    LINE_SEARCH
    FIXED
    BLOCK
    PAIRWISE
    AWAY

cdef enum:
    # visits between asking for a block's memory and using it
    PREFETCH = 4


cdef struct Visit:
    Py_ssize_t block
    # whether there are coefficients to update w with
    bint has_moved
    # whether a stored atom was enough; whether the oracle was asked, and how far apart its bounds
    # are
    bint is_hit
    bint asked
    double error
    # p_b ||Phi_b d||^2 of directions that were looked at, and how many
    double curvature
    int n_curvatures
    # what h_b has risen by
    double lift
    # what a line search has raised the dual by
    double gained


cdef class BlockCoordinateEngine(EngineState):
    cdef double uniform(self) noexcept nogil
    cdef void shuffle(self) noexcept nogil
    cdef void set_gap(self, Py_ssize_t b, double gap) noexcept nogil
    cdef void rebuild_tree(self) noexcept nogil
    cdef Py_ssize_t draw(self) noexcept nogil
    cdef double met(
        self, Surrogate surrogate, Workspace work, Py_ssize_t b, double lower, double upper,
        double current, Visit* told) except -1.0 nogil
    cdef void note(self, const Visit* told, bint sampling_by_gap) noexcept nogil
    cdef int visit(
        self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
        Py_ssize_t b, Step step, bint sampling_by_gap) except -1 nogil
    cdef int move(
        self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
        Py_ssize_t b, Step step, Visit* told) except -1 nogil
    cdef int move_point(
        self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b, Step step,
        Visit* told) except -1 nogil
    cdef int move_atoms(
        self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
        Py_ssize_t b, Step step, Visit* told) except -1 nogil
    cdef double natural_step(
        self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b,
        const double* mu, double current, Visit* told) except? -1.0 nogil
    cdef Py_ssize_t visits_between_checks(self)
    cdef int visit_in_order(self, const Py_ssize_t[::1] blocks, Step step) except -1
