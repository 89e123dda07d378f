"""Tangent sum-product of chains with dual numbers, as in textbooks.

Every message of the forward and backward recursions, in log space, is a pair: its value and its
derivative along a direction of scores. The derivative of a log-sum-exp is the mean of the
derivatives of its terms under the softmax of their values. The derivative of a marginal is the
marginal times the derivative of its logarithm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.chain import _as_chain

if TYPE_CHECKING:
    from fastm4n.base.types import FloatArray


def _log_sum_exp(x, dx, axis):
    top = np.max(x, axis=axis, keepdims=True)
    e = np.exp(x - np.where(top == -np.inf, 0.0, top))
    total = e.sum(axis=axis, keepdims=True)
    with np.errstate(divide="ignore"):
        value = (top + np.log(total)).squeeze(axis)
    slope = (e * dx).sum(axis=axis) / np.maximum(total, 1e-300).squeeze(axis)
    return value, slope


def chain_tangent(
    unary: FloatArray, pairwise: FloatArray, d_unary: FloatArray, d_pairwise: FloatArray,
) -> tuple[FloatArray]:
    """Marginals of a chain and log-partition, and their derivatives along a direction.

    Parameters
    ----------
    unary, d_unary : array of shape (T, R)
    pairwise, d_pairwise : array of shape (R, R) or (T-1, R, R)

    Returns
    -------
    nodes, edges, log_partition : array of shape (T, R), of shape (T-1, R, R), float
    d_nodes, d_edges, d_log_partition
        Of the same shapes.

    Examples
    --------
    >>> import numpy as np
    >>> found = chain_tangent(np.zeros((1, 2)), np.zeros((2, 2)), np.eye(2)[:1], np.zeros((2, 2)))
    >>> found[0].tolist(), found[3].tolist(), found[5]
    ([[0.5, 0.5]], [[0.25, -0.25]], 0.5)
    """
    unary, pairwise = _as_chain(unary, pairwise)
    d_unary, d_pairwise = _as_chain(d_unary, d_pairwise)
    T = len(unary)
    f, df = unary.copy(), d_unary.copy()
    b, db = np.zeros_like(unary), np.zeros_like(unary)
    for t in range(T - 1):
        value, slope = _log_sum_exp(
            f[t][:, None] + pairwise[t], df[t][:, None] + d_pairwise[t], axis=0)
        f[t + 1] += value
        df[t + 1] += slope
    for t in range(T - 2, -1, -1):
        b[t], db[t] = _log_sum_exp(
            pairwise[t] + unary[t + 1] + b[t + 1], d_pairwise[t] + d_unary[t + 1] + db[t + 1],
            axis=1)
    log_z, d_log_z = _log_sum_exp(f[-1], df[-1], axis=0)
    nodes = np.exp(f + b - log_z)
    d_nodes = nodes * (df + db - d_log_z)
    joint = f[:-1, :, None] + pairwise + (unary + b)[1:, None, :]
    d_joint = df[:-1, :, None] + d_pairwise + (d_unary + db)[1:, None, :]
    edges = np.exp(joint - log_z)
    return nodes, edges, float(log_z), d_nodes, edges * (d_joint - d_log_z), float(d_log_z)
