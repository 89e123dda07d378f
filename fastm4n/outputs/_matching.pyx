"""Outputs that are matchings of rows and columns, in which rows may stay unmatched.

phi(y) is a matrix of n rows and m + 1 columns with a one in each row: at the row's column, or at
the last one, if the row is unmatched. No other column has more than a single one. The polytope are
the matrices whose rows sum to one and whose columns but the last sum to at most one; if matchings
are complete, entries of pairs sum to min(n, m).
"""

import numpy as np
from scipy import special

from libc.string cimport memset

from fastm4n.inference._games cimport MatrixMaxMin
from fastm4n.inference.matching cimport MatchingScratch
from fastm4n.outputs._base cimport SEED_AFTER, Layout, Outputs, Workspace, label_t

from fastm4n.base.label_costs import as_costs, name_of
from fastm4n.inference.matching import too_large_for_sums


cdef class MatchingWorkspace(Workspace):
    """Scratch of one thread for the solver and assignments."""

    cdef MatchingScratch matchings
    cdef int[::1] columns

    def __init__(self, Py_ssize_t size, MatchingOutputs outputs, bint with_marginals):
        super().__init__(size, outputs.layout.max_parts)
        self.matchings = outputs.scratch(with_marginals)
        self.columns = np.zeros(outputs.layout.max_parts, dtype=np.intc)


cdef class MatchingOutputs(Outputs):
    """Matchings of rows and columns. The parts of a block are its rows.

    Parameters
    ----------
    labels : ndarray of int of shape (n_rows_of_all_blocks,)
        True column of each row, one block after another, or the number of columns of its block if
        the row is unmatched.
    n_rows, n_columns : ndarray of shape (n_blocks,)
        Numbers of rows, positive, and of columns of each block.
    cost : ndarray of shape (max_columns + 1, max_columns + 1)
        cost[i, j]: cost of the label j for a row whose true one is i. Blocks of several numbers of
        columns need 0-1 costs, or others with a name if no row can stay unmatched. Alternatively
        (name, max_columns + 1).
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the rows are added up, or averaged.
    allowed : array of bool or uint8 of shape (layout.n_numbers,), default=None
        False forbids a label of a row, in the layout. By default all are allowed.
    is_complete : bool, default=False
        Whether exactly min(n_rows, n_columns) pairs are matched.
    part_weights : ndarray of shape (n_rows_of_all_blocks,), default=None
        Factors of the costs of the rows.

    Attributes
    ----------
    allowed, is_complete
        As given.
    """

    cdef readonly object allowed
    cdef readonly bint is_complete
    cdef const unsigned char* mask

    def __init__(self, labels, n_rows, n_columns, cost, cost_scale="sum", allowed=None,
                 bint is_complete=False, part_weights=None):
        cdef const unsigned char[::1] masks
        n_rows = np.ascontiguousarray(n_rows, dtype=np.intp)
        n_columns = np.ascontiguousarray(n_columns, dtype=np.intp)
        if n_rows.ndim != 1 or n_rows.shape != n_columns.shape:
            raise ValueError(
                f"n_rows and n_columns must have a number for each block, got shapes "
                f"{n_rows.shape} and {n_columns.shape}.")
        for name, numbers, least in (("n_rows", n_rows, 1), ("n_columns", n_columns, 0)):
            wrong = np.flatnonzero(numbers < least)
            if wrong.size:
                raise ValueError(
                    f"{name}[{wrong[0]}] is {numbers[wrong[0]]}: it must be at least {least}.")
        cost = as_costs(cost)
        name = name_of(np.asarray(cost))
        all_matched = is_complete and np.all(n_rows <= n_columns)
        if np.unique(n_columns).size > 1 and name != "zero_one" and (
                name is None or not all_matched):
            raise ValueError(
                "blocks have different numbers of columns: their cost must be 'zero_one', as rows "
                "and columns of a matrix would stand for other labels in each of them.")
        super().__init__(
            Layout.of_rectangles(n_rows, n_columns + 1), labels, cost, cost_scale, part_weights)
        self.is_complete = is_complete
        if allowed is not None:
            allowed = np.asarray(allowed)
            if allowed.shape != (self.layout.n_numbers,) or allowed.dtype not in (bool, np.uint8):
                raise ValueError(
                    f"allowed must be an array of bool of shape ({self.layout.n_numbers},), a "
                    f"number for each label of each row, got {allowed.dtype} of shape "
                    f"{allowed.shape}.")
            masks = self.allowed = np.ascontiguousarray(allowed != 0).view(np.uint8)
            self.mask = &masks[0] if masks.shape[0] else NULL
        self.check_labels()
        self.has_marginals = True

    def check_labels(self):
        """Raise a ValueError that names block and row if the true labels are no matching."""
        layout = self.layout
        y, rows, counts = np.asarray(self.y, dtype=np.intp), layout.rows(), layout.counts()
        starts = np.cumsum(counts) - counts
        block = np.repeat(np.arange(layout.n_blocks), counts)
        row, width = np.arange(y.size) - np.repeat(starts, counts), np.repeat(rows, counts)

        def refuse(wrong, why):
            if wrong.size:
                at = wrong[0]
                raise ValueError(f"label {y[at]} of row {row[at]} of block {block[at]}: {why}")

        refuse(np.flatnonzero(y >= width), "its block has fewer columns.")
        matched = np.flatnonzero(y < width - 1)
        places = (np.cumsum(rows) - rows)[block[matched]] + y[matched]
        order = np.argsort(places, kind="stable")
        twice = order[1:][np.diff(places[order]) == 0]
        refuse(np.sort(matched[twice]), "another row has this column, and one row at most may.")
        if self.allowed is not None:
            refuse(np.flatnonzero(self.allowed[layout.places(y)] == 0), "it is not allowed.")
        if self.is_complete:
            n_pairs = np.bincount(block[matched], minlength=layout.n_blocks)
            short = np.flatnonzero(n_pairs < np.minimum(counts, rows - 1))
            if short.size:
                b = short[0]
                raise ValueError(
                    f"the labels of block {b} match {n_pairs[b]} rows, but complete matchings of "
                    f"{counts[b]} rows and {rows[b] - 1} columns match "
                    f"{min(counts[b], rows[b] - 1)}.")

    def arguments(self):
        return (
            np.asarray(self.y), self.layout.counts(), self.layout.rows() - 1, self.kept_cost(),
            "mean" if self.mean_cost else "sum", self.allowed, self.is_complete, self.part_weights)

    @property
    def oracle_cost(self):
        if self.layout.n_blocks == 0:
            return 0.0
        n, m = self.layout.counts(), self.layout.rows() - 1.0
        return float(np.mean(np.minimum(n, m) ** 2 * np.maximum(n, m)))

    @property
    def marginals_cost(self):
        if self.layout.n_blocks == 0:
            return 0.0
        n, m = self.layout.counts(), self.layout.rows() - 1.0
        return float(np.mean(2.0 ** np.minimum(n, m) * n * m))

    def largest_entropy(self):
        """The log of the number of matchings, without a mask."""
        if self.allowed is not None:
            return None
        shapes, of_shape = np.unique(
            np.stack([self.layout.counts(), self.layout.rows() - 1]), axis=1, return_inverse=True)
        found = [log_count(n, m, self.is_complete) for n, m in shapes.T]
        return np.array(found, dtype=np.float64)[of_shape.ravel()]

    def largest_adversary(self):
        """Closed forms, without a mask and weights.

        For 0-1 costs both players are uniform over rows and over columns. Each has a pair with some
        probability, p and q, and rows cost m p + m q - m (m + 1) p q on average. In complete
        matchings p = q = 1 / max(n, m), and otherwise the maximiser has p = 1 / max(n, m + 1). For
        other costs of complete squares both are uniform, as in permutations.
        """
        if self.allowed is not None or self.part_weights is not None or not self.layout.n_blocks:
            return None
        n, m = self.layout.counts(), self.layout.rows() - 1
        if self.is_complete and np.all(n == m):
            means = {size: np.mean(self.cost_matrix[:size, :size]) for size in np.unique(m)}
            return self.scaled(np.array([means[size] for size in m], dtype=np.float64))
        if name_of(self.cost_matrix) != "zero_one":
            return None
        if not self.is_complete:
            return self.scaled(m / np.maximum(n, m + 1.0))
        p = 1.0 / np.maximum(n, m)
        return self.scaled(2.0 * m * p - m * (m + 1.0) * p * p)

    def scratch(self, bint with_tables):
        """What solves the blocks, of one thread."""
        n, m = self.layout.counts(), self.layout.rows() - 1
        if with_tables:
            shapes, first = np.unique(np.stack([n, m]), axis=1, return_index=True)
            for shape, b in zip(shapes.T.tolist(), first, strict=True):
                why = too_large_for_sums(*shape)
                if why is not None:
                    raise ValueError(
                        f"block {b} has {why}. Use the surrogate 'max_min' or 'max_margin'.")
        # masks alone have rows that must not stay unmatched
        with_places = self.allowed is not None and not np.all(
            self.allowed[self.layout.places(np.repeat(m, n))])
        return MatchingScratch(n, m, self.is_complete, with_places, with_tables)

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return MatchingWorkspace(size, self, with_marginals)

    def game(self, bint mirror_prox=False):
        if mirror_prox:
            return super().game(True)
        return MatchingGame(self)

    cdef const unsigned char* mask_of(self, Py_ssize_t b) noexcept nogil:
        """Labels that are allowed in block b, NULL for all."""
        return NULL if self.mask == NULL else self.mask + self.layout.offset(b)

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """A linear assignment of the smaller side to the larger one."""
        cdef Py_ssize_t i, n = self.layout.n_parts(b), row = self.layout.row(b)
        cdef int* columns = &(<MatchingWorkspace> work).columns[0]
        (<MatchingWorkspace> work).matchings.assign(
            unary, n, row - 1, row, -1.0, self.mask_of(b), columns, value)
        for i in range(n):
            labels[i] = <label_t> columns[i]
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        """A recursion over subsets of the smaller side."""
        return (<MatchingWorkspace> work).matchings.sum_product(
            v, self.layout.n_parts(b), self.layout.row(b) - 1, self.mask_of(b), marginals,
            log_partition)


def log_count(n, m, is_complete):
    """Logarithm of the number of matchings of n rows and m columns.

    Parameters
    ----------
    n, m : int
    is_complete : bool
        Whether those of min(n, m) pairs alone count.
    """
    most = min(n, m)
    k = np.arange(most if is_complete else 0.0, most + 1.0)
    log_gamma = special.gammaln
    return float(special.logsumexp(
        log_gamma(n + 1.0) - log_gamma(n - k + 1.0) + log_gamma(m + 1.0) - log_gamma(m - k + 1.0)
        - log_gamma(k + 1.0)))


cdef class MatchingGame(MatrixMaxMin):
    """Workspace of one thread for the max-min oracles of matchings: column generation.

    Scores and points of a block are matrices (n, m + 1).

    Parameters
    ----------
    outputs : MatchingOutputs
    """

    cdef MatchingOutputs outputs
    cdef MatchingScratch matchings
    cdef const unsigned char* mask

    def __init__(self, MatchingOutputs outputs):
        super().__init__(outputs.cost_matrix, outputs.layout.max_parts, False, SEED_AFTER)
        self.outputs = outputs
        self.matchings = outputs.scratch(False)

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        self.mask = self.outputs.mask_of(b)
        self.begin_matrix(v, T, self.outputs.layout.n_choices(b))

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        self.matchings.assign(
            unary, self.T, self.R - 1, self.stride, -1.0, self.mask, &self.best[0], value)
        return &self.best[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef double total
        self.matchings.assign(
            expected, self.T, self.R - 1, self.stride, 1.0, self.mask, answer, &total)
        return total

    cdef int free_mixtures(self) except -1 nogil:
        """Uniform over rows and over columns, or, with a mask, the best matching and its answer.

        For 0-1 costs the uniform ones are optimal for scores much smaller than costs.
        """
        cdef Py_ssize_t i, j, at, m = self.R - 1
        cdef double p
        cdef const int* labels
        cdef Py_ssize_t most = max(self.T, m if self.outputs.is_complete else m + 1)
        memset(&self.free_mu[0], 0, self.T * self.stride * sizeof(double))
        memset(&self.free_nu[0], 0, self.T * self.stride * sizeof(double))
        if self.mask == NULL:
            p = 1.0 / most
            for i in range(self.T):
                at = i * self.stride
                for j in range(m):
                    self.free_mu[at + j] = self.free_nu[at + j] = p
                self.free_mu[at + m] = self.free_nu[at + m] = (most - m) * p
            return 0
        labels = self.best_labelling(self.v, &p)
        for i in range(self.T):
            self.free_mu[i * self.stride + labels[i]] = 1.0
        self.costs_of(&self.free_mu[0], &self.expected[0])
        self.best_answer(&self.expected[0], &self.answer[0])
        for i in range(self.T):
            self.free_nu[i * self.stride + self.answer[i]] = 1.0
        return 0
