"""Losses of blocks at given scores, with bounds and gradients; see `fastm4n.losses`."""

from libc.math cimport INFINITY
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace
from fastm4n.surrogates._base cimport Surrogate


def losses_of(Surrogate surrogate, Py_ssize_t start, Py_ssize_t stop, const double[::1] scores,
              double tol, double[::1] value, double[::1] upper, double[::1] gradient=None):
    """Losses of the blocks start ... stop - 1 at flat scores of all blocks.

    value[b] <= max_mu h_b(mu) + <v_b, mu> - <v_b, phi(y_b)> <= upper[b], both of them attained
    where the oracle is exact, and upper - value at most about tol where it is not;
    gradient, of the form of scores, is mu_b - phi(y_b) at the mu_b of value[b].  Safe from several
    threads at once for disjoint ranges.  One oracle call a block.
    """
    cdef Workspace work
    cdef Py_ssize_t b, offset, size
    cdef double low, high, truth
    if (scores.shape[0] != surrogate.outputs.layout.n_numbers or value.shape[0] != upper.shape[0]
            or value.shape[0] != surrogate.n_blocks or start < 0 or stop > surrogate.n_blocks
            or (gradient is not None and gradient.shape[0] != scores.shape[0])):
        raise ValueError("scores, value, upper or gradient do not fit the surrogate's outputs.")
    work = surrogate.workspace(surrogate.max_size)
    work.current = INFINITY
    work.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            offset, size = surrogate.offset(b), surrogate.size(b)
            memcpy(&work.scores[0], &scores[offset], size * sizeof(double))
            truth = surrogate.true_score(b, &work.scores[0])
            surrogate.certified(b, work, &low, &high)
            # no loss is negative: phi(y_b) is a point of the polytope, and h_b is zero at it; what
            # is NaN, as sums have overflowed, stays so
            value[b] = 0.0 if low < truth else low - truth
            upper[b] = 0.0 if high < truth else high - truth
            if gradient is not None:
                memcpy(&gradient[offset], &work.atom[0], size * sizeof(double))
                surrogate.outputs.add(b, surrogate.outputs.true_labels(b), -1.0, &gradient[offset])


def losses_at(Surrogate surrogate, FeatureMap features, double[::1] upper):
    """Losses of all blocks at the weights that the features hold, in `upper`.

    They are bounded from above, as exactly as the oracle can. One oracle call a block.
    """
    cdef Workspace work = surrogate.workspace(features.size)
    cdef Py_ssize_t b
    cdef double high, truth
    if upper.shape[0] != surrogate.n_blocks:
        raise ValueError("upper is of other outputs.")
    work.current = INFINITY
    work.tolerance = 0.0
    with nogil:
        features.settle()
        for b in range(surrogate.n_blocks):
            look()
            features.scores(b, work.scores)
            truth = surrogate.true_score(b, &work.scores[0])
            surrogate.bound(b, work, &high)
            upper[b] = 0.0 if high < truth else high - truth
