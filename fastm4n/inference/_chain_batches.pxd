"""Padded batches of chains: losses with their gradients, best labellings, marginals, in one call.

A batch has unary scores (B, T, R), of which sequence b has the positions first[b] ... first[b] +
length[b] - 1; what stands elsewhere is not read.  Transitions have one matrix for all, (R, R), or
one for each edge, (B, T - 1, R, R), edge t leading from position t to t + 1 of the padded rows.
start and end, (R,), are scores of first and last labels.

Where sequences share their matrix, as many as a vector has lanes go side by side (see
``_simd/chain_lanes_template.h``), longest first.  Where scores lie too far apart for that, where
too few sequences are left, or where edges have matrices of their own, each goes by itself.  Which
way is decided by lengths and scores, never by the number of threads, and sums are added up group by
group: results are the same, to the bit, for any number of threads.
"""

from fastm4n.inference.chain cimport real

cdef enum Kind:
    LOG = 0
    MAX_MARGIN = 1
    BEST = 2
    MARGINALS = 3

# What is asked for, and where it lies.  Pointers are NULL for what is not there or not wanted;
# those to scores point to float or double, as `real` says where the struct is used.  A `_row` is
# the numbers from one sequence to the next, a `_step` those from one position to the next; labels
# are contiguous.
ctypedef struct Task:
    Kind kind
    Py_ssize_t B, T, R
    # sequences side by side, and numbers of a row of labels: `shape_of_vectors`
    Py_ssize_t lanes, stride
    # one matrix for all
    bint shared
    const void* unary
    Py_ssize_t unary_row, unary_step
    # rows of a matrix are pair_line numbers apart
    const void* pair
    Py_ssize_t pair_row, pair_step, pair_line
    const void* start
    const void* end
    const long long* first
    const long long* length
    # true labels, for losses.  LOG takes -1 for an unknown one
    const long long* tags
    Py_ssize_t tags_row, tags_step
    # for LOG: labels that the truth may have
    const unsigned char* allowed
    Py_ssize_t allowed_row, allowed_step
    # (R, R), added to the scores; and whether it is divided by the length of the sequence
    const double* cost
    bint mean_cost
    double temperature
    # factor of the gradients and of the total
    double factor
    # losses, scores of best labellings, or temperature times log-partitions, (B,)
    double* value
    # what is wrong with a sequence, or 0, (B,)
    int* status
    # gradients or marginals, zeros at padding
    void* d_unary
    Py_ssize_t d_unary_row, d_unary_step
    # of the matrix of each sequence, (B, 1, R, R), or of each edge, (B, T - 1, R, R), contiguous
    void* d_pair
    # gradients of a shared matrix (R, R), and of start and end (R,), summed over the batch
    void* summed
    void* d_start
    void* d_end
    # for BEST: labels, -1 at padding; positions are contiguous
    long long* paths
    Py_ssize_t paths_row
    # set by `begin_task` and `end_task`: the place of what is wrong, and factor times all values
    long long place[2]
    double total
    # the work space of `begin_task`
    void* space
    void* matrices
    double* totals
    Py_ssize_t* order
    Py_ssize_t n_groups
    double of_pair[3]

cdef void shape_of_vectors(const real* unary, Task* task) noexcept nogil
cdef int begin_task(const real* unary, Task* task) noexcept nogil
cdef int run_groups(
    const real* unary, Task* task, Py_ssize_t group_from, Py_ssize_t group_to) except -1 nogil
cdef double work_of(Task* task) noexcept nogil
cdef bint end_task(const real* unary, Task* task) noexcept nogil
cdef Py_ssize_t find_bounds(
    const unsigned char* mask, Py_ssize_t row, Py_ssize_t step, Py_ssize_t T, long long* first,
    long long* length) noexcept nogil
