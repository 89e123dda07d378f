"""What a kind of output says of itself; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._games cimport MaxMinScratch

# tuned constants, declared here for benchmarks/constants.py
cdef Py_ssize_t SEED_AFTER

ctypedef unsigned short label_t

cdef enum:
    MOST_LABELS = 65535
    # exponentials of scores that are as much lower than others are zero in float64
    ABYSS = 1000


cdef class Layout:
    cdef readonly Py_ssize_t n_blocks, n_labels, stride, pair_step
    cdef readonly Py_ssize_t n_parts_of_all, n_numbers, max_parts, max_size
    cdef readonly object pairs
    # whether a fit may list the transitions that labellings have, as they come
    cdef readonly bint may_list
    # places of the transitions that have scores, how many, and -1 where all have; numbers behind
    # the rows of every block where transitions are listed, and -1 elsewhere
    cdef const int[::1] pair_places
    cdef readonly Py_ssize_t n_pairs
    cdef Py_ssize_t n_listed
    # numbers of every block where all have one part and nothing behind it; 0 otherwise
    cdef Py_ssize_t uniform
    cdef const Py_ssize_t[::1] starts, offsets
    # lengths of the rows of each block, where there is no stride
    cdef const Py_ssize_t[::1] row_lengths

    cdef inline Py_ssize_t first_part(self, Py_ssize_t b) noexcept nogil:
        """Number of the block's first part among the parts of all blocks."""
        return b if self.uniform else self.starts[b]

    cdef inline Py_ssize_t n_parts(self, Py_ssize_t b) noexcept nogil:
        return 1 if self.uniform else self.starts[b + 1] - self.starts[b]

    cdef inline Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        """Where block b begins in a flat array of all scores."""
        return b * self.uniform if self.uniform else self.offsets[b]

    cdef inline Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        """Numbers of block b."""
        if self.n_listed >= 0:
            return self.behind(b) + self.n_listed
        return self.uniform if self.uniform else self.offsets[b + 1] - self.offsets[b]

    cdef inline Py_ssize_t row(self, Py_ssize_t b) noexcept nogil:
        """Numbers from the scores of one part's labels to those of the next."""
        return self.stride if self.stride else self.row_lengths[b]

    cdef inline Py_ssize_t behind(self, Py_ssize_t b) noexcept nogil:
        """Where in block b begins what is behind the rows of its parts."""
        return self.n_parts(b) * self.row(b)

    cdef inline Py_ssize_t n_choices(self, Py_ssize_t b) noexcept nogil:
        """Labels of a part."""
        return self.n_labels if self.stride else self.row_lengths[b]


cdef class Workspace:
    cdef double current, tolerance
    cdef double[::1] scores, atom, step, scratch
    # of dual points that are not held; for surrogates that tell them
    cdef double[::1] point
    # of tangents: a direction of parts, and derivatives; for surrogates that ask for them
    cdef double[::1] direction, change
    cdef double[:, ::1] table
    cdef Py_ssize_t[::1] index
    cdef label_t[::1] labels
    cdef MaxMinScratch game, mirror


cdef class Outputs:
    cdef readonly Layout layout
    cdef readonly object cost_matrix
    cdef readonly bint mean_cost
    # what is there beside the max oracle; see the .pyx
    cdef readonly bint has_marginals, has_steady_marginals, has_tangent
    cdef readonly bint has_entropy, has_projection, has_max_min, has_max_min_step
    cdef readonly bint has_relaxation, has_signs, has_tempered_game
    cdef readonly bint has_mirror_prox, is_free, is_listing
    cdef const label_t[::1] y
    # what the costs of each part are multiplied by, and where that begins; NULL for one
    cdef readonly object part_weights
    cdef const double* weights
    # rows of the cost matrix, padded to whole vectors: where the first begins, and numbers from one
    # to the next, -1 where they are windows of one vector
    cdef const double[::1] cost
    cdef Py_ssize_t first_cost, cost_stride
    cdef const fastm4n_loops* loops
    # soft targets in the layout, and a row of costs for each part; NULL where the truth is y
    cdef readonly object target, target_costs
    cdef const double* soft
    cdef const double* soft_costs

    cdef inline const double* costs_of(self, Py_ssize_t label) noexcept nogil:
        """The costs of all answers where the truth is `label`."""
        return &self.cost[self.first_cost + label * self.cost_stride]

    cdef inline const double* costs_at(self, Py_ssize_t part) noexcept nogil:
        """The costs of all answers at a part, by its number among the parts of all blocks."""
        if self.soft_costs != NULL:
            return self.soft_costs + part * self.layout.n_labels
        return self.costs_of(self.y[part])

    cdef double share(self, Py_ssize_t b) noexcept nogil
    cdef const label_t* true_labels(self, Py_ssize_t b) noexcept nogil
    cdef double true_score(self, Py_ssize_t b, const double* v) noexcept nogil
    cdef void add_truth(self, Py_ssize_t b, double weight, double* mu) noexcept nogil
    cdef const double* weights_of(self, Py_ssize_t b) noexcept nogil
    cdef double score(self, Py_ssize_t b, const label_t* labels, const double* v) noexcept nogil
    cdef void add(
        self, Py_ssize_t b, const label_t* labels, double weight, double* mu) noexcept nogil
    cdef void indicator(self, Py_ssize_t b, const label_t* labels, double* mu) noexcept nogil
    cdef double cost_of(self, Py_ssize_t b, const label_t* labels) noexcept nogil
    cdef void add_costs(self, Py_ssize_t b, const double* v, double* unary) noexcept nogil
    cdef double expected_cost(self, Py_ssize_t b, const double* mu) noexcept nogil
    cdef void clamp(
        self, Py_ssize_t b, const unsigned char[:, ::1] allowed, double height,
        double* v) noexcept nogil

    cdef void admit(self, Py_ssize_t b, const label_t* labels) noexcept nogil
    cdef double repeats(self, Py_ssize_t b) noexcept nogil
    cdef double more_score(
        self, Py_ssize_t b, const label_t* labels, const double* more) noexcept nogil
    cdef void add_more(
        self, Py_ssize_t b, const label_t* labels, double weight, double* more) noexcept nogil
    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil
    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil
    cdef double best_answer(
        self, Py_ssize_t b, const double* expected, Workspace work, label_t* labels) noexcept nogil

    cdef int tempered(
        self, Py_ssize_t b, const double* v, double tau, Workspace work, double* marginals,
        double* soft, double* hard) except -1 nogil
    cdef int tempered_game(
        self, Py_ssize_t b, const double* v, double tau, Py_ssize_t n_sweeps, Workspace work,
        double* nu, double* marginals, double* soft, double* hard) except -1 nogil
    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil
    cdef int relaxed(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil
    cdef double entropy(self, Py_ssize_t b, const double* mu) noexcept nogil
    cdef int entropy_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil
    cdef int project(self, Py_ssize_t b, Workspace work, double total) except -1 nogil
    cdef double adversary(self, Py_ssize_t b, const double* mu, Workspace work) noexcept nogil
    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil
    cdef int max_min_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil


cdef int missing(object of, const char* name, const char* flag) except -1 nogil


cdef class OutputsGame(MaxMinScratch):
    cdef Outputs outputs
    cdef Workspace work
    cdef Py_ssize_t b
    cdef int[::1] path
