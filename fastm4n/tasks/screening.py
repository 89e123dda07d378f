"""Features whose weights an L1 term keeps at zero whatever the labels' probabilities are."""

import numpy as np
from scipy import sparse

from fastm4n.features._rows import AT_ONCE

# what a bound is above its threshold by rounding, as a share: where the two are equal, as for
# features that occur once and c1 = 1, the weight is zero.  The dual changes by its square
ROUNDING = 1e-12
# columns are left out where so many of them are, which is what it takes to pay
SHARE = 0.1


def reachable_columns(values, weights, thresholds, lower, upper, alpha):
    r"""Columns that may have weights other than zero, or None where all are kept.

    z_j = (1 / alpha) sum_b p_b sum_t x_tj (phi(y) - mu)_t is at most
    (1 / alpha) sum_b p_b sum_t |x_tj|, for each label, and weights are zero where |z_j| <= t_j.

    Parameters
    ----------
    values : CSR matrix of shape (n_positions, n_features)
    weights : ndarray of shape (n_positions,)
        p_b of each position's block.
    thresholds, lower, upper : ndarray of shape (n_labels, n_features)
        Of the penalty.
    alpha : float
    """
    if not sparse.issparse(values) or not np.any(thresholds):
        return None
    reach = np.zeros(values.shape[1])
    # some rows at a time: the entries are as many as X has
    step = max(1, int(max(AT_ONCE, reach.size) * values.shape[0] / max(1, values.nnz)))
    for start in range(0, values.shape[0], step):
        ends = values.indptr[start : start + step + 1]
        entries = np.abs(values.data[ends[0] : ends[-1]]) * np.repeat(
            weights[start : start + step], np.diff(ends))
        reach += np.bincount(
            values.indices[ends[0] : ends[-1]], weights=entries, minlength=reach.size)
    reach /= alpha
    held = ((lower > 0.0) | (upper < 0.0)).any(axis=0)
    kept = np.flatnonzero((reach > thresholds.min(axis=0) * (1.0 + ROUNDING)) | held)
    return kept if kept.size <= (1.0 - SHARE) * values.shape[1] else None


def without_columns(values, kept):
    """The kept columns of a canonical CSR matrix with int32 indices, in the same form."""
    new = np.full(values.shape[1], -1, dtype=np.int32)
    new[kept] = np.arange(kept.size, dtype=np.int32)
    indices = new[values.indices]
    stays = indices >= 0
    ends = np.concatenate([[0], np.cumsum(stays)])[values.indptr]
    return sparse.csr_matrix(
        (values.data[stays], indices[stays], ends.astype(values.indptr.dtype)),
        shape=(values.shape[0], kept.size))


def screen(values, weights, resolved, alpha, only_look=False):
    """The matrix without the columns that the penalty keeps at zero, and which columns it has left.

    Of `resolved`, a `ResolvedPenalty` or None, "coef" loses them as well; None where none are left
    out. With only_look nothing loses them: it only is to be known which are left. The other
    arguments are those of `reachable_columns`.
    """
    if resolved is None or resolved.by_rows:
        return values, None
    lower, upper, thresholds = resolved.families["coef"]
    kept = reachable_columns(values, weights, thresholds, lower, upper, alpha)
    if kept is None or only_look:
        return values, kept
    resolved.families["coef"] = tuple(array[:, kept] for array in resolved.families["coef"])
    return without_columns(values, kept), kept
