"""Warm starts of estimators whose examples differ in size: dual points go with their examples."""

import numpy as np


def ranges(starts, counts):
    """The numbers start ... start + count - 1 of all ranges, one range after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


def warm_state(solution, loss, blocks, kept, block_of, n_examples, **task):
    """What `warm_start` needs of a fit.

    Parameters
    ----------
    solution : Solution
    loss : Surrogate
    blocks : ndarray of shape (n_blocks,)
        An example of each block.
    kept, block_of : ndarray of shape (n_kept,)
        Examples of non-zero weight, and the block of each.
    n_examples : int
    **task
        What a later fit must have in common, and alpha.
    """
    owner = np.full(n_examples, -1)
    owner[kept] = block_of
    return dict(
        owner=owner, blocks=blocks, block_sizes=loss.outputs.layout.sizes(), mu=solution.mu,
        concave=solution.certificate.concave, average=solution.average,
        natural=loss.state() if loss.has_natural_step else None, **task,
    )


def start_from(state, loss, blocks, alpha):
    """Arguments of `solve` that start from the dual point of an earlier fit.

    For a smaller alpha it is drawn towards phi(y) so that w stays what it was; for a larger one it
    is kept, and w shrinks. An example that had no weight starts from phi(y).

    Parameters
    ----------
    state : dict
        Of `warm_state`.
    loss : Surrogate
        Of this fit; where it keeps scores beside the dual point, they are restored.
    blocks : ndarray of shape (n_blocks,)
        An example of each block of this fit.
    alpha : float
    """
    owners = state["owner"][blocks]
    known = owners >= 0
    # where the numbers of each block are, now and in the earlier fit
    sizes = loss.outputs.layout.sizes()
    now = np.cumsum(sizes) - sizes
    then = np.cumsum(state["block_sizes"]) - state["block_sizes"]
    counts = sizes[known]
    to, source = ranges(now[known], counts), ranges(then[owners[known]], counts)
    mu = np.zeros(sizes.sum())
    mu[to] = state["mu"][source]
    for b in np.flatnonzero(~known):
        mu[now[b] : now[b] + sizes[b]] = loss.outputs.truth_of(b)
    start = dict(mu=mu, shrink=min(1.0, alpha / state["alpha"]), average=state["average"])
    if loss.has_natural_step:
        natural = loss.state()
        natural["theta"][to] = state["natural"]["theta"][source]
        natural["is_first"][known] = state["natural"]["is_first"][owners[known]]
        loss.restore(natural)
        start["concave"] = np.where(known, state["concave"][owners], 0.0)
    return start
