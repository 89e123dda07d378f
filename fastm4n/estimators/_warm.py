"""Warm starts of estimators whose examples differ in size: dual points go with their examples."""

import numpy as np


def ranges(starts, counts):
    """The numbers start ... start + count - 1 of all ranges, one range after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - (ends - counts), counts)


def warm_state(solution, structure, blocks, kept, block_of, n_examples, **task):
    """What `warm_start` needs of a fit.

    Parameters
    ----------
    solution : Solution
    structure : Structure
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
        owner=owner, blocks=blocks, mu=solution.mu, concave=solution.certificate.concave,
        average=solution.average,
        natural=structure.state() if structure.has_natural_step else None, **task,
    )


def start_from(state, structure, blocks, sizes, alpha, truth):
    """Arguments of `solve` that start from the dual point of an earlier fit.

    For a smaller alpha it is drawn towards phi(y) so that w stays what it was; for a larger one it
    is kept, and w shrinks. An example that had no weight starts from phi(y).

    Parameters
    ----------
    state : dict
        Of `warm_state`.
    structure : Structure
        Of this fit; where it keeps scores beside the dual point, they are restored.
    blocks : ndarray of shape (n_blocks,)
        An example of each block of this fit.
    sizes : ndarray of shape (n_examples,)
        Numbers of the dual point of each example.
    alpha : float
    truth : callable
        truth(b) is phi(y) of block b, flat.
    """
    owners = state["owner"][blocks]
    known = owners >= 0
    # where the numbers of each block are, now and in the earlier fit
    now = np.cumsum(sizes[blocks]) - sizes[blocks]
    then = np.cumsum(sizes[state["blocks"]]) - sizes[state["blocks"]]
    counts = sizes[blocks][known]
    to, source = ranges(now[known], counts), ranges(then[owners[known]], counts)
    mu = np.zeros(sizes[blocks].sum())
    mu[to] = state["mu"][source]
    for b in np.flatnonzero(~known):
        mu[now[b] : now[b] + sizes[blocks[b]]] = truth(b)
    start = dict(mu=mu, shrink=min(1.0, alpha / state["alpha"]), average=state["average"])
    if structure.has_natural_step:
        natural = structure.state()
        natural["theta"][to] = state["natural"]["theta"][source]
        natural["is_first"][known] = state["natural"]["is_first"][owners[known]]
        structure.restore(natural)
        start["concave"] = np.where(known, state["concave"][owners], 0.0)
    return start
