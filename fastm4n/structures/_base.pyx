"""What the solver asks of one kind of output.

A structure owns the true outputs and the loss, and knows the concave function h_b of the
surrogate on the marginal polytope of each block b.  It never sees features: it is given
the scores v of a block.  A new kind of output is one subclass of `Structure`; which of
the optional parts it has is declared by `has_line_search`, `has_block_step`,
`has_natural_step` and `has_labellings`.
"""

import numpy as np

from libc.math cimport INFINITY


cdef class Workspace:
    """Scratch arrays of one thread, so that no kernel allocates.

    `current` is the block's value h_b(mu_b) + <v, mu_b> when an oracle is asked: one that is
    inexact can stop when its error is small beside what is left to gain.  `tolerance` is an error
    that does no harm in a certificate.

    Parameters
    ----------
    size : int
        Length of the vectors: the largest block, padded as the feature map pads it.
    n_rows, n_columns : int
        Shape of the two-dimensional scratch that a structure asks for.
    """

    def __init__(self, Py_ssize_t size, Py_ssize_t n_rows=1, Py_ssize_t n_columns=1):
        self.current = INFINITY
        self.scores = np.zeros(size)
        self.atom = np.zeros(size)
        self.step = np.zeros(size)
        self.scratch = np.zeros(size)
        self.table = np.zeros((n_rows, n_columns))
        self.index = np.zeros(2 * size + 1, dtype=np.intp)


cdef class Structure:
    """One kind of output under one surrogate.

    Attributes
    ----------
    n_blocks : int
        Number of training outputs.
    max_size : int
        Largest dimension of a block's scores.
    has_line_search : bool
        Whether `line_search` is there: a one-dimensional search on h itself.  Without it
        the solver takes the closed-form step of the lifted polytope.
    has_block_step : bool
        Whether `block_step` is there: the exact maximiser over a whole block, for
        features whose curvature is the same in every direction.
    has_natural_step : bool
        Whether dual points are the oracle's answers to scores theta that the structure keeps,
        and steps move those: `natural_size`, `propose`, `accept` and `rest` are there.
    has_labellings : bool
        Whether the oracle's answers are outputs themselves, to be told as one small number for
        each part: `best_labelling` and the methods behind it are there.
    max_parts : int
        Most parts of a block, where it has labellings.
    """

    def workspace(self, Py_ssize_t size):
        """Scratch for one thread, with vectors of `size` doubles."""
        return Workspace(size)

    cdef Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        """Where block b begins in the flat array of dual variables."""
        return 0

    cdef Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        """Dimension k_b of the scores of block b."""
        return 0

    cdef int truth(self, Py_ssize_t b, double[::1] mu, Py_ssize_t offset) except -1 nogil:
        """mu[offset:offset + k_b] = phi(y_b)."""
        return 0

    cdef int truth_score(self, Py_ssize_t b, const double[::1] v, double* value) except -1 nogil:
        """value = <v, phi(y_b)>."""
        return 0

    def state(self):
        """Copies of what is kept between visits beside the dual point: a tuple of arrays.

        With natural steps it begins with theta and is_first of `NaturalScores`.
        """
        return ()

    def restore(self, state):
        """Bring back what `state` gave."""

    def rest(self):
        """Note that the dual points are the oracle's answers to scores of zero."""

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        """value = h_b(mu), for mu in the polytope.

        Where h_b cannot be had from mu alone, value is left: it is a lower bound already.
        """
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """work.atom = argmax_mu h_b(mu) + <work.scores, mu>, exactly or nearly.

        lower is the value at the atom, upper a bound on the maximum; both hold always.
        """
        return 0

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        """The best upper bound on the maximum that can be had; may use work.atom.

        The certificate is made of it.  By default the oracle's own.
        """
        cdef double lower
        return self.oracle(b, work, &lower, upper)

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        """Best step from mu along work.step: max over [0, 1] of the block's dual."""
        return 0

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """work.atom = argmax_m h_b(m) + <work.scores, m> - curvature/2 ||m - mu||^2."""
        return 0

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        """Best step, to second order, from theta towards work.scores.

        work.step is the oracle's atom less mu; curvature is that of the penalty along it.
        """
        return 0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """work.atom = the dual point of (1 - step) theta + step work.scores, and its h."""
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        """Make the last proposal theta."""
        return 0

    cdef Py_ssize_t n_parts(self, Py_ssize_t b) noexcept nogil:
        """Numbers that tell an output of block b."""
        return 0

    cdef void true_labelling(self, Py_ssize_t b, unsigned short* labels) noexcept nogil:
        """labels = y_b."""

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, unsigned short* labels, double* value) except -1 nogil:
        """labels = the output y of largest h_b(phi(y)) + <work.scores, phi(y)>, and that value."""
        return 0

    cdef double labelling_score(
        self, Py_ssize_t b, const unsigned short* labels, const double* v) noexcept nogil:
        """<v, phi(labels)>."""
        return 0.0

    cdef double labelling_concave(self, Py_ssize_t b, const unsigned short* labels) noexcept nogil:
        """h_b(phi(labels))."""
        return 0.0

    cdef void add_labelling(
        self, Py_ssize_t b, const unsigned short* labels, double weight, double* mu) noexcept nogil:
        """mu += weight phi(labels)."""
