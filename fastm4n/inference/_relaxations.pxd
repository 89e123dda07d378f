"""Relaxations of graphs with cycles: the local polytope and reweighted forests."""

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_polytope, fastm4n_polytope_step
from fastm4n.inference._graph cimport graph_t, label_t

# tuned constants, declared here for benchmarks/constants.py
cdef double STALLED, PRIMAL_STEP, RESTART
cdef Py_ssize_t LOCAL_ROUNDS, CHECK_BOUND_EVERY, DAMPED_AFTER, CHECK_EVERY
cdef Py_ssize_t FIRST_DOUBLING, SIDE_BY_SIDE

cdef class Sweeps:
    cdef readonly Py_ssize_t max_nodes, max_edges, stride
    cdef const graph_t* g
    cdef const double* more
    cdef double* messages
    # edge ends of each node, 2 e + side, those of node i from ends[i] to ends[i + 1]
    cdef Py_ssize_t[::1] ends, end_of
    # labels of each node
    cdef Py_ssize_t[::1] sizes
    # (n_nodes, stride), -infinity for what cannot be; and the same plus all messages
    cdef double[::1] unary, theta
    cdef double[::1] source, target

    cdef int begin(
        self, const graph_t* g, const double* unary, const double* more,
        double* messages) noexcept nogil
    cdef double message(self, Py_ssize_t end, const double* messages) noexcept nogil
    cdef double half_sweep(self, bint forward, double* messages) except? -1.0 nogil
    cdef void add_up(self, const double* messages) noexcept nogil
    cdef double bound(self, const double* messages) noexcept nogil
    cdef double score(self, const label_t* labels) noexcept nogil
    cdef double decode(self, const double* messages, label_t* labels) except? -1.0 nogil

cdef struct forests_t:
    # forests of a graph, each spanning: of the k-th, the ends of edges at children, parents first,
    # from ends[starts[k]] to ends[starts[k + 1]]
    Py_ssize_t n_forests
    const Py_ssize_t* starts
    const int* ends
    # share of the forests that have each edge, and of each node one minus those of its edges
    const double* shares
    const double* weights

cdef class Reweighted:
    cdef Py_ssize_t stride, room
    cdef readonly Py_ssize_t n_sweeps
    cdef const fastm4n_loops* loops
    cdef const graph_t* g
    cdef const forests_t* forests
    cdef const double* more
    cdef double* messages
    cdef Py_ssize_t[::1] starts, end_of, sizes
    cdef double[::1] theta, up, source, target
    # messages that wait to be found, their columns (n_labels, room), and the sums of those
    cdef Py_ssize_t n_waiting, n_columns
    cdef Py_ssize_t[::1] waiting
    cdef double[::1] pair, sums
    cdef unsigned char[::1] state

    cdef void begin(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages) noexcept nogil
    cdef void add_up(self, const double* unary) noexcept nogil
    cdef void put(self, Py_ssize_t end, const double* scores) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    cdef void add(self) noexcept nogil
    cdef void send(self, double keep) noexcept nogil
    cdef int half_sweep(self, bint forward) except -1 nogil
    cdef void carry(self) noexcept nogil
    cdef double bound(self) except? -1.0 nogil
    cdef double beliefs(
        self, const double* unary, double* nodes, double* edges) except? -1.0 nogil
    cdef void slopes(
        self, const graph_t* g, const forests_t* forests, const double* mu, const double* step,
        double gamma, double* slope, double* bend) noexcept nogil
    cdef int sum_product(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages, double current, double slack, double tol, Py_ssize_t max_sweeps,
        double* nodes, double* edges, double* lower, double* upper) except -1 nogil

cdef double mean_entropy(
    const graph_t* g, const forests_t* forests, const double* nodes,
    const double* edges) noexcept nogil

cdef struct game_t:
    # costs of the answer j to label i, costs[i * stride + j], and the largest
    const double* costs
    Py_ssize_t stride
    double largest
    # what a cost at node t counts: share, times weights[t] unless they are NULL
    double share
    const double* weights
    # largest sums over answers, and over labels, of 1 - cost / largest
    double of_label, of_answer

cdef class Decomposition(Sweeps):
    # whether `labels` is where to begin
    cdef bint has_room, has_start
    # of the last `maximise`: whether the best point found is a labelling, or p and q
    cdef readonly bint is_labelling
    cdef readonly Py_ssize_t n_sweeps, n_iterations
    # share of the distance of bound and labelling that a doubling of the iterations of `polish` is
    # to gain, or else is the last
    cdef double least_gain
    # nodes (n_nodes, stride) and edges (n_edges, stride, stride) of that point
    cdef double[::1] p, q
    cdef label_t[::1] labels, trial
    # of `polish`, made when first asked for: the iterate, its start and its image
    cdef double[::1] p_now, p_first, p_next, q_now, q_first, q_next
    cdef double[::1] d_now, d_first, d_next, rows, columns, tables
    # the step of all edges, and what it works on
    cdef fastm4n_polytope_step advance_pairs
    cdef fastm4n_polytope pairs
    cdef double scale
    # of `max_min`: the scores without an adversary, its mixtures of answers at each node, as an
    # iterate, its start and its image, and its costs; see `_Game`
    cdef bint is_game
    cdef double[::1] base, nu_now, nu_first, nu_next
    cdef game_t game
    cdef double* nu

    cdef int make_room(self) except -1
    cdef double stake(self, Py_ssize_t i) noexcept nogil
    cdef void shift(self, const double* nu) noexcept nogil
    cdef double adversary(self, const double* p) noexcept nogil
    cdef double advance_game(self, double keep) noexcept nogil
    cdef int max_min(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double* nu, double* nodes, const game_t* game, double current, double slack, double tol,
        Py_ssize_t max_sweeps, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil
    cdef const double* table(self, Py_ssize_t e) noexcept nogil
    cdef bint begin_polish(self) except -1 nogil
    cdef double advance(self, double keep, bint publish) except? -1.0 nogil
    cdef double round_to_polytope(self) except? -1.0 nogil
    cdef int polish(
        self, double current, double slack, double tol, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil
    cdef int maximise(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double current, double slack, double tol, Py_ssize_t max_sweeps,
        Py_ssize_t max_iterations, double* lower, double* upper) except -1 nogil
