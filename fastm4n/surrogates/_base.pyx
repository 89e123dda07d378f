"""What the solver asks of a surrogate.

A surrogate knows the concave function h_b of its loss on the marginal polytope of each block b,
and makes its oracle of what the outputs offer.  It never sees features: it is given the scores v
of a block.  It is written once, over any outputs; which of the optional parts it has is declared
by `has_line_search`, `has_block_step`, `has_natural_step`, `has_points` and `has_labellings`.
"""

import numpy as np

from fastm4n.base.interrupts cimport look

# error of an oracle's value, relative to it, that rounding excuses
cdef double CHECKED = 1e-9


cdef class Surrogate:
    """One loss over outputs of any kind.

    Parameters
    ----------
    outputs : Outputs

    Attributes
    ----------
    n_blocks, max_size : int
        Number of outputs, and the largest number of scores of one.
    has_line_search : bool
        Whether `line_search` is there: a one-dimensional search on h itself.  Without it
        the solver takes the closed-form step of the lifted polytope.
    has_block_step : bool
        Whether `block_step` is there: the exact maximiser over a whole block, for
        features whose curvature is the same in every direction.
    has_natural_step : bool
        Whether dual points are the oracle's answers to scores theta that are kept here, and steps
        move those: `natural_size`, `propose`, `accept` and `rest` are there.
    has_points : bool
        Whether theta says what the dual point is, to the bit: `point` is there, and who asks for it
        need not hold dual points.
    has_labellings : bool
        Whether the oracle's answers are outputs: `best_labelling` and `labelling_height` are
        there.
    """

    def __init__(self, Outputs outputs):
        self.outputs = outputs
        self.n_blocks = outputs.layout.n_blocks
        self.max_size = outputs.layout.max_size

    @property
    def is_smooth(self):
        """Whether the loss is smooth: every step of a block then goes the way of its oracle."""
        return self.has_natural_step or self.has_line_search

    def __reduce__(self):
        return type(self), self.arguments(), self.state()

    def __setstate__(self, state):
        self.restore(state)

    def arguments(self):
        """Arguments of the constructor, for pickle."""
        return (self.outputs,)

    def workspace(self, Py_ssize_t size):
        """Scratch for one thread, with vectors of `size` doubles."""
        return self.outputs.workspace(size)

    @property
    def oracle_cost(self):
        """Multiply-adds of a call of the oracle, about."""
        return self.outputs.oracle_cost

    def largest(self, Py_ssize_t size):
        """max_mu h_b(mu) of each block, or an upper bound of it: the losses at w = 0.

        By the outputs' closed form; without one by `bound` at scores of zero, with vectors of
        `size` doubles: as much work as a certificate's oracles.

        Parameters
        ----------
        size : int
            As in `workspace`.

        Returns
        -------
        largest : ndarray of shape (n_blocks,)
        """
        found = self.closed_largest()
        if found is not None:
            return found
        cdef Workspace work = self.workspace(size)
        cdef Py_ssize_t b
        found = np.zeros(self.n_blocks)
        cdef double[::1] upper = found
        kept = self.state()
        with nogil:
            for b in range(self.n_blocks):
                look()
                work.scores[:] = 0.0
                work.current = 0.0
                self.bound(b, work, &upper[b])
        self.restore(kept)
        return found

    def closed_largest(self):
        """`largest` by a closed form of the outputs, or None."""

    def check(self):
        """Ask once for what visits will ask for: a missing piece is an error before the first."""
        cdef Workspace work
        cdef double lower, upper, value, h
        if self.n_blocks == 0:
            return
        work = self.workspace(self.max_size)
        # scores that favour the true output: what has no score yet then shows in the value
        self.truth(0, &work.scores[0])
        self.oracle(0, work, &lower, &upper)
        if self.has_labellings:
            h = self.labelling_height(0, &work.labels[0])
            value = h + self.outputs.score(0, &work.labels[0], &work.scores[0])
            lower = max(lower, value - CHECKED * (1.0 + abs(value)))
            upper = min(upper, value + CHECKED * (1.0 + abs(value)))
        if not lower <= upper:
            raise ValueError(
                f"{type(self.outputs).__name__} under {type(self).__name__}: the value that `best` "
                "gives is not the score of the output that it gives, costs included. Do `best`, "
                "`more_score` and `add_more` agree?")

    def kept_under(self):
        """What `state` depends on beside outputs and truth: another fit may start from it if equal.

        Returns
        -------
        kept : dict of str to number, array or None
        """
        return {}

    def state(self):
        """Copies of what is kept between visits beside the dual point: arrays by name."""
        return self.outputs.state()

    def restore(self, state):
        """Bring back what `state` gave."""
        self.outputs.restore(state)

    def rest(self):
        """Note that the dual points are the oracle's answers to scores of zero."""

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        """value = h_b(mu), for mu in the polytope.

        Where h_b cannot be had from mu alone, value is left: it is a lower bound already.
        """
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """work.atom = argmax_mu h_b(mu) + <work.scores, mu>, exactly or nearly.

        lower is the value at the atom, upper a bound on the maximum; both hold always.
        """
        with gil:
            raise NotImplementedError(
                f"{type(self).__name__} has no method `oracle`: implement the maximiser of "
                "h(mu) + <v, mu>.")

    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """`oracle`, as exactly as work.tolerance asks for.  By default the oracle itself."""
        return self.oracle(b, work, lower, upper)

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        """The best upper bound on the maximum that can be had; may use work.atom.

        Certificates are made of it.  By default that of `certified`.
        """
        cdef double lower
        return self.certified(b, work, &lower, upper)

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        """Best step from mu along work.step: max over [0, 1] of the block's dual."""
        return missing(self, b"line_search", b"has_line_search")

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """work.atom = argmax_m h_b(m) + <work.scores, m> - curvature/2 ||m - mu||^2."""
        return missing(self, b"block_step", b"has_block_step")

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        """Best step, to second order, from theta towards work.scores.

        work.step is the oracle's atom less mu; curvature is that of the penalty along it.
        """
        return missing(self, b"natural_size", b"has_natural_step")

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """work.atom = the dual point of (1 - step) theta + step work.scores, and its h."""
        return missing(self, b"propose", b"has_natural_step")

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        """Make the last proposal theta."""
        return missing(self, b"accept", b"has_natural_step")

    cdef int point(self, Py_ssize_t b, Workspace work, double* mu) except -1 nogil:
        """mu = the dual point of block b, whose steps were all made by `accept`.

        It may use work.scratch, and mu may be work.point.
        """
        return missing(self, b"point", b"has_points")

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, label_t* labels, double* value) except -1 nogil:
        """labels = the output y of largest h_b(phi(y)) + <work.scores, phi(y)>, and that value."""
        return missing(self, b"best_labelling", b"has_labellings")

    cdef double labelling_height(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        """h_b(phi(labels))."""
        return 0.0


cdef int missing(Surrogate surrogate, const char* name, const char* flag) except -1 nogil:
    with gil:
        raise NotImplementedError(
            f"{type(surrogate).__name__} declares {flag.decode()} but has no method "
            f"`{name.decode()}`: implement it, or leave {flag.decode()} False.")
