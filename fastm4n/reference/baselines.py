"""Two baselines that block-coordinate Frank-Wolfe is compared with, for outputs of any kind.

Both take `Blocks`, and solve the problem in `fastm4n.reference.blocks`.

`batch_frank_wolfe` steps in all blocks at once.  It works on the dual, so each iterate has a
certificate. `stochastic_subgradient` works on the primal. It has no dual point, and reports its
objective without a bound of the distance to the optimum.

References
----------
.. [1] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
.. [2] S. Lacoste-Julien, M. Jaggi, M. Schmidt and P. Pletscher, "Block-coordinate Frank-Wolfe
   optimization for structural SVMs", ICML 2013.
.. [3] S. Shalev-Shwartz, Y. Singer and N. Srebro, "Pegasos: primal estimated sub-gradient
   solver for SVM", ICML 2007.
.. [4] S. Lacoste-Julien, M. Schmidt and F. Bach, "A simpler approach to obtaining an O(1/t)
   convergence rate for the projected stochastic subgradient method", 2012.
.. [5] A. Rakhlin, O. Shamir and K. Sridharan, "Making gradient descent optimal for strongly
   convex stochastic optimization", ICML 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.reference.block_coordinate import SplitMix64, _visits
from fastm4n.reference.blocks import Penalty, _minus, _plus, _times

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.base.types import Parts
    from fastm4n.reference.blocks import Blocks
    from fastm4n.reference.chain_block import ChainBlocks
    from fastm4n.reference.permutation import PermutationBlocks
    from fastm4n.reference.simplex_block import SimplexBlocks


class BatchResult(NamedTuple):
    """Result of `batch_frank_wolfe`.

    ``states`` are the blocks' last states, and ``w`` is a tuple of arrays. ``history`` has a row
    (iteration, primal, dual, gap) for the start and for each iterate.
    """

    states: list[Any]
    w: Parts
    history: np.ndarray


class SubgradientResult(NamedTuple):
    """Result of `stochastic_subgradient`.

    ``w_average`` and ``w`` are the weighted average and the last iterate, tuples of arrays.
    ``history`` has a row (pass, primal at the average) for each evaluated pass.
    """

    w_average: Parts
    w: Parts
    history: np.ndarray


def _check_not_empty(blocks):
    if blocks.n == 0:
        raise ValueError("blocks has no examples: give it at least one.")


def _zeros(blocks):
    """w = 0, as the features of a difference of no length."""
    truth = blocks.truth(0)
    return blocks.features(0, _minus(truth, truth))


def batch_frank_wolfe(blocks: Blocks, *, n_iter: int) -> BatchResult:
    """Maximise D(mu) by steps in all blocks at once ([2]_, Algorithm 2).

    An iteration calls the oracles of all blocks at w(mu), for points s_i, and moves all blocks
    towards them by one gamma, found by line search (`Blocks.step`, the group being all blocks).
    The gap needs no more than the same calls.  For blocks with bounds it is [1]_, Algorithm 8.

    An iteration costs n oracle calls, as much as a pass of the block-coordinate method, and
    for "max_margin" the least gap so far is O(1 / n_iter) ([2]_).

    Parameters
    ----------
    blocks : Blocks
    n_iter : int
        Steps.

    Returns
    -------
    BatchResult
        (states, w, history), with n_iter + 1 rows of history.  The dual never falls, and each gap
        is at least P(w) - P*, as in `Blocks.certificate`.

    Raises
    ------
    ValueError
        If there are no examples.

    Notes
    -----
    The start is `Blocks.start`.  For "max_min" the line search is on a lower bound of the dual. For
    "log" of sequences and permutations the step is in natural parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import SimplexBlocks
    >>> X, y = np.array([[2.0, 1.0], [0.0, 1.0], [-2.0, 1.0]]), np.array([0, 1, 2])
    >>> blocks = SimplexBlocks(X, y, 3, "max_min", alpha=0.1)
    >>> result = batch_frank_wolfe(blocks, n_iter=200)
    >>> np.argmax(X @ result.w[0], axis=1).tolist()
    [0, 1, 2]
    >>> bool(np.all(np.diff(result.history[:, 2]) >= 0)), bool(result.history[-1, 3] < 0.05)
    (True, True)
    """
    _check_not_empty(blocks)
    states = blocks.start()
    points = [blocks.point(i, state) for i, state in enumerate(states)]
    history = []
    for iteration in range(n_iter + 1):
        # afresh, so that each row of the history follows from nothing but the states
        z = blocks.primal_weights(points)
        w = blocks.prox(z)
        scores, answers, primal = blocks.examine(w)
        row = blocks.certificate_of(points, z, scores, answers, primal)
        history.append((iteration, row.primal, row.dual, row.gap))
        if iteration < n_iter:
            blocks.step(range(blocks.n), states, points, z, scores, answers)
    return BatchResult(states, w, np.array(history))


def optimum_radius(blocks: ChainBlocks | PermutationBlocks | SimplexBlocks) -> float:
    """A radius of a ball that holds the optimum: ||w*||^2 <= P(0) / alpha.

    At the optimum P = D, that is alpha ||w*||^2 = sum_i p_i [ h_i(mu*_i) - l_i(w*) ], where the
    surrogate losses l_i are not negative and h_i is at most its maximum, the loss at w = 0
    ([3]_ has this for the hinge loss, where P(0) = 1).

    Examples
    --------
    >>> from fastm4n.reference import SimplexBlocks
    >>> optimum_radius(SimplexBlocks([[1.0], [-1.0]], [0, 1], 2, "max_margin", alpha=0.25))
    2.0
    """
    _check_not_empty(blocks)
    return float(np.sqrt(blocks.examine(_zeros(blocks))[-1] / blocks.alpha))


def stochastic_subgradient(
    blocks: Blocks, *, n_passes: int, sampling: Literal["uniform", "permutation"] = "uniform",
    random_state: int = 0, bounds: tuple[float, float] | None = None, primal_every: int = 1,
) -> SubgradientResult:
    """Minimise P(w) by projected stochastic subgradient steps [3]_ [4]_, a baseline of [2]_.

    Visit t = 1, 2, ... takes a block i and s_i, a maximiser of its oracle at w.  As l_i(w) is a
    maximum over points of the polytope, s_i gives a subgradient of it, and with the step
    1 / (alpha t)

        w <- Proj[ (1 - 1/t) w + (n p_i / (alpha t)) Phi(x_i) (phi(y_i) - s_i) ],

    with the projection Proj on the ball of `optimum_radius`, or on the bounds. The result is the
    average (2 / (t (t + 1))) sum_k k w_k of the iterates w_k. Under uniform sampling its expected
    distance P - P* is at most 5 B^2 / (alpha (t + 1)), where B bounds the subgradients' norms: by
    the argument of [4]_, which has 2 for steps 2 / (alpha (t + 1)), and E ||w_t - w*||^2 <= 4 B^2 /
    (alpha^2 t) for these ([5]_, Lemma 1).

    Parameters
    ----------
    blocks : Blocks
    n_passes : int
        A pass is n visits, of one oracle call each.
    sampling : {"uniform", "permutation"}
        "uniform" draws each visit; "permutation" visits all blocks in a new order every pass.
    random_state : int
        Seed.
    bounds : pair (lower, upper), optional
        P is minimised over lower <= w <= upper ([1]_, section H.1), instead of over all w: as in
        `Blocks`, whose own bounds are the default.
    primal_every : int
        The history gets a row after each primal_every passes and after the last. A row costs
        n more oracle calls.

    Returns
    -------
    SubgradientResult
        (w_average, w, history).  The history has the primal alone, from above: there is no dual
        point here to make a certificate of.

    Raises
    ------
    ValueError
        If there are no examples, for an unknown sampling, if bounds have not one entry for each
        part of w, and if a lower bound is above the upper.

    Notes
    -----
    An inexact oracle (for "max_min" of chains it ends at its tolerance) makes of s_i an
    epsilon-subgradient, with its error for epsilon, by which the bound above grows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import SimplexBlocks
    >>> X, y = np.array([[2.0, 1.0], [0.0, 1.0], [-2.0, 1.0]]), np.array([0, 1, 2])
    >>> blocks = SimplexBlocks(X, y, 3, "log", alpha=0.1)
    >>> result = stochastic_subgradient(blocks, n_passes=300, primal_every=300)
    >>> best = batch_frank_wolfe(blocks, n_iter=300).history[-1, 2]
    >>> result.history[:, 0].tolist(), bool(result.history[-1, 1] - best < 0.01)
    ([300.0], True)
    >>> result = stochastic_subgradient(blocks, n_passes=10, bounds=(0.0, 0.5))
    >>> bool(result.w[0].min() >= 0.0), bool(result.w_average[0].max() <= 0.5)
    (True, True)
    """
    if sampling not in ("uniform", "permutation"):
        raise ValueError(f"sampling must be 'uniform' or 'permutation', got {sampling!r}.")
    _check_not_empty(blocks)
    zeros = _zeros(blocks)
    if bounds is None:
        bounds = blocks.penalty.bounds
    if bounds is None:
        radius = optimum_radius(blocks)

        def project(w):
            norm = np.sqrt(blocks.inner(w, w))
            return w if norm <= radius else _times(radius / norm, w)
    else:
        box = Penalty(bounds).box(len(zeros))

        def project(w):
            return blocks.fitted(tuple(map(np.clip, w, *box)))

    w = average = project(zeros)
    order = list(range(blocks.n))
    rng = SplitMix64(random_state)
    history = []
    t = 0
    for pass_number in range(1, n_passes + 1):
        for i in _visits(sampling, pass_number, order, blocks.p, None, rng):
            t += 1
            *s, _, _ = blocks.oracle(i, blocks.scores(i, w))
            towards_truth = blocks.change_of_w(i, blocks.truth(i), s)
            w = project(_plus(
                _times(1.0 - 1.0 / t, w), _times(blocks.n / t, towards_truth)))
            average = _plus(
                _times((t - 1.0) / (t + 1.0), average), _times(2.0 / (t + 1.0), w))
        if pass_number % primal_every == 0 or pass_number == n_passes:
            history.append((pass_number, blocks.examine(average)[-1]))
    return SubgradientResult(average, w, np.array(history).reshape(-1, 2))
