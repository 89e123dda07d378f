"""How the marginals of permutations change along a direction of their scores."""

import numpy as np


def permutation_tangents(scores, directions):
    """Derivatives of the marginals of p(Y) proportional to exp(<scores, Y>) along directions.

    With mu = E Y these are E[Y <direction, Y>] - mu <direction, mu>, the covariance of Y times the
    direction.

    Parameters
    ----------
    scores, directions : ndarray of float64 of shape (n_problems, M, M), finite

    Returns
    -------
    tangents : ndarray of the shape of scores

    Notes
    -----
    O(n_problems 2^M M) time. Forward and backward recursions over the sets of columns of the first
    rows, in logarithms: log sums over paths, and their derivatives, which are means over paths.
    """
    B, M = scores.shape[:2]
    masks = np.arange(1 << M)
    sizes = sum((masks >> j) & 1 for j in range(M))
    sets = [masks[sizes == k] for k in range(M + 1)]
    first = np.zeros((B, 1 << M)), np.zeros((B, 1 << M))
    last = np.zeros((B, 1 << M)), np.zeros((B, 1 << M))
    for k, masks in enumerate(sets[1:]):
        # the last of k + 1 rows has one of the columns of a set
        members = _members(masks, M, k + 1)
        before = masks[:, np.newaxis] ^ (1 << members)
        first[0][:, masks], first[1][:, masks] = _sum(
            first[0][:, before] + scores[:, k, members],
            first[1][:, before] + directions[:, k, members])
    for k in range(M - 1, -1, -1):
        masks = sets[k]
        members = _members(~masks, M, M - k)
        after = masks[:, np.newaxis] | (1 << members)
        last[0][:, masks], last[1][:, masks] = _sum(
            last[0][:, after] + scores[:, k, members],
            last[1][:, after] + directions[:, k, members])
    log_z, of_z = first[0][:, -1], first[1][:, -1]
    tangents = np.zeros(scores.shape)
    for k in range(M):
        masks = sets[k]
        members = _members(~masks, M, M - k)
        after = masks[:, np.newaxis] | (1 << members)
        paths = np.exp(
            first[0][:, masks, np.newaxis] + scores[:, k, members] + last[0][:, after]
            - log_z[:, np.newaxis, np.newaxis])
        paths *= (
            first[1][:, masks, np.newaxis] + directions[:, k, members] + last[1][:, after]
            - of_z[:, np.newaxis, np.newaxis])
        columns = members.reshape(-1)
        for b in range(B):
            tangents[b, k] = np.bincount(columns, paths[b].reshape(-1), M)
    return tangents


def _sum(logs, slopes):
    """Log of the sum of exponentials over the last axis, and its derivative."""
    top = logs.max(axis=-1, keepdims=True)
    shares = np.exp(logs - top)
    total = shares.sum(axis=-1)
    return top[..., 0] + np.log(total), (shares * slopes).sum(axis=-1) / total


def _members(masks, M, size):
    """Numbers of the bits of each mask, which has `size` of them, below M."""
    bits = (masks[:, np.newaxis] >> np.arange(M)) & 1
    return np.nonzero(bits)[1].reshape(len(masks), size)
