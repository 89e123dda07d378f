"""Blocks whose output is a sequence of labels: oracles, with the conventions of `chain`.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] A. Nemirovski, "Prox-method with rate of convergence O(1/t) for variational inequalities
   with Lipschitz continuous monotone operators and smooth convex-concave saddle point
   problems", SIAM Journal on Optimization 2004.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.reference.blocks import Blocks
from fastm4n.reference.chain import (
    _as_chain,
    chain_entropy,
    chain_indicator,
    score_labelling,
    sum_product,
    viterbi,
)
from fastm4n.reference.outputs import Outputs
from fastm4n.reference.simplex import _log_normalize

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import Array, Cost, FloatArray, Parts, SurrogateName


class ChainOutputs(Outputs):
    """Sequences of labels: v is (unary, pairwise).

    A point is (nodes, transitions), where transitions (R, R) are the sum over t of the edges. The
    entropy depends on the edges.
    """

    @classmethod
    def best(cls, v: Parts) -> tuple[Parts, float]:
        path, value = viterbi(*v)
        return _summed(*chain_indicator(path, v[0].shape[1])), value

    @classmethod
    def gibbs(cls, v: Parts) -> Any:
        nodes, edges, log_partition = sum_product(*v)
        return *_summed(nodes, edges), chain_entropy(nodes, edges), log_partition

    @classmethod
    def game(cls, v: Parts, cost: Cost, tol: float) -> tuple[Parts, float]:
        nodes, transitions, _, _, upper, _ = max_min_column_generation(*v, cost, tol)
        return (nodes, transitions), upper

    @classmethod
    def entropy(cls, nodes: FloatArray, edges: ArrayLike) -> float:
        return chain_entropy(nodes, edges)


def _summed(nodes, edges):
    return nodes, edges.sum(axis=0)


# Max-min oracles: max_mu min_nu (1 / T) sum_t mu_t' cost nu_t + <v, mu>


def max_min_mirror_prox_chain(
    unary: FloatArray, pairwise: FloatArray, cost: FloatArray, n_iter: int | None = None,
    start: int | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray, float, float]:
    """Max-min oracle by saddle-point mirror prox ([1]_, Algorithm 2 and appendix G.2).

    mu is kept by its natural parameters theta, mu = sum_product(theta), since a projection
    in the entropy of the chain adds to them.  With g(nu)_t = cost nu_t / T + unary_t on the
    nodes and g = pairwise on the edges, each iteration takes a half step from (theta, nu),
    and then the full step from the same (theta, nu) with the gradients at the half step,

        theta_half = theta + eta g(nu),        nu_half_t ∝ nu_t exp(-eta cost' mu_t / T),
        theta     += eta g(nu_half),           nu_t      ∝ nu_t exp(-eta cost' mu_half_t / T).

    The result is the average of the half-step points (Theorem G.1 of [1]_, where the printed
    Algorithm 2 averages the full steps).

    Parameters
    ----------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)
    cost : array of shape (R, R)
    n_iter : int, optional
        At least 1, by default 10 T as in section 6 of [1]_.
    start : tuple of arrays (nodes, edges, nu), optional
        Results of another call, by default the uniform distributions on the allowed labellings and
        on the predictions. Entries are raised to at least 1e-30, as a label of probability zero
        would never return.

    Returns
    -------
    nodes : array of shape (T, R)
    edges : array of shape (T-1, R, R)
    nu : array of shape (T, R)
    lower, upper : float
        Bounds on the value, as in `Outputs.bounds`, at the returned point.

    Notes
    -----
    The step size.  Write c = max(cost), and D_mu, D_nu for the Bregman divergences of the
    entropies: of the chain's, which is the divergence KL(q, q') of the distributions over
    labellings, and of sum_t H(nu_t).  Two lower bounds, both by Pinsker's inequality, and the
    first because taking marginals does not increase the l1 distance:

        D_mu(mu, mu') >= (1/2) N_mu(mu - mu')^2,   N_mu(m)^2 = max_t ||m_t||_1^2,
        D_nu(nu, nu') >= (1/2) N_nu(nu - nu')^2,   N_nu(n)^2 = sum_t ||n_t||_1^2.

    The maximum over t cannot be made a sum: the labels of a chain may all be tied together.
    Differences m of mu and n of nu sum to zero in each position, hence cost may be replaced
    by cost - c/2, whose entries are at most c/2 in size, and the coupling is at most::

        (1 / T) sum_t |m_t' cost n_t|  <=  (c / 2T) sum_t ||m_t||_1 ||n_t||_1
                                       <=  K N_mu(m) N_nu(n),   K = c / (2 sqrt(T)).

    Mirror prox needs of its steps that, for the gradients G = (-g(nu), cost' mu / T) at the
    points z, z_half and z_next of an iteration ([2]_),

        eta <G(z_half) - G(z), z_half - z_next>  <=  D(z_half, z) + D(z_next, z_half).

    The left side is eta times two couplings, of nu_half - nu with mu_half - mu_next and of
    mu_half - mu with nu_half - nu_next. Since eta K a b <= (a^2 + b^2) / 2 for eta K <= 1, the
    inequality holds for

        eta = 1 / K = 2 sqrt(T) / c.

    Summing over the iterations leaves D_mu + D_nu between the start and any point, at most
    T log R each from the uniform start, and so

        upper - lower  <=  2 T log R / (eta n_iter)  =  c sqrt(T) log(R) / n_iter.

    For T = 1 this eta is four times that of `max_min_mirror_prox`: a factor 2 from centring
    the cost, and another because Theorem G.1 with its eta = 1 / (2 L) leaves room for the
    gradients in a variable to depend on it, which here they do not.  Appendix G.2 of [1]_,
    with l2 norms and the cost divided by T, comes to
    4 L / n_iter = 4 ||cost||_2 diam(M)^2 log(R) / n_iter, where diam(M)^2 = 4 T - 2.

    Examples
    --------
    >>> import numpy as np
    >>> unary, pairwise, cost = np.zeros((3, 2)), np.eye(2), 1 - np.eye(2)
    >>> nodes, edges, nu, lower, upper = max_min_mirror_prox_chain(unary, pairwise, cost)
    >>> lower <= 2.5 <= upper, upper - lower < float(np.log(2)) * 3**0.5 / 30
    (True, True)
    """
    unary, pairwise = _as_chain(unary, pairwise)
    cost = np.asarray(cost, dtype=float)
    T, R = unary.shape
    n_iter = 10 * T if n_iter is None else n_iter
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}")
    if start is None:
        theta = np.zeros((T, R)), np.zeros((T - 1, R, R))
        log_nu = np.zeros((T, R))
    else:
        nodes, edges, nu = (np.log(np.maximum(m, 1e-30)) for m in start)
        # q(y) is the product of the edges, and of each node to the power one minus its degree
        degree = np.zeros((T, 1))
        degree[:-1] += 1
        degree[1:] += 1
        theta = (1 - degree) * nodes, edges
        log_nu = nu
    theta = tuple(
        np.where(v == -np.inf, v, part)
        for v, part in zip((unary, pairwise), theta, strict=True))
    log_nu = np.array([_log_normalize(row) for row in log_nu])

    eta = 2.0 * np.sqrt(T) / cost.max() if cost.max() > 0 else 1.0

    def ascend(nu):
        return theta[0] + eta * (nu @ cost.T / T + unary), theta[1] + eta * pairwise

    def descend(mu):
        return np.array([_log_normalize(row) for row in log_nu - eta * (mu @ cost) / T])

    mu, nu = sum_product(*theta)[0], np.exp(log_nu)
    sum_nodes, sum_edges, sum_nu = np.zeros((T, R)), np.zeros((T - 1, R, R)), np.zeros((T, R))
    for _ in range(n_iter):
        half_nodes, half_edges, _ = sum_product(*ascend(nu))
        half_nu = np.exp(descend(mu))
        theta, log_nu = ascend(half_nu), descend(half_nodes)
        mu, nu = sum_product(*theta)[0], np.exp(log_nu)
        sum_nodes += half_nodes
        sum_edges += half_edges
        sum_nu += half_nu
    nodes, edges, nu = sum_nodes / n_iter, sum_edges / n_iter, sum_nu / n_iter
    return (
        nodes, edges, nu,
        *ChainOutputs.bounds((unary, pairwise), cost, (nodes, edges), nu))


def max_min_column_generation(
    unary: FloatArray, pairwise: FloatArray, cost: FloatArray, tol: float = 1e-9,
) -> tuple[Any, ...]:
    """Max-min oracle by column generation: exact, and asking for nothing but Viterbi.

    Some labellings y_c are kept, the columns.  The game over their mixtures p,

        max_{p, z}  sum_c p_c s(y_c) + (1 / T) sum_t z_t
        s.t.        z_t <= sum_c p_c cost[y_c(t), j]  for all t and j,   p in the simplex,

    is a small linear program. Its value is a lower bound. The multipliers of its inequalities,
    times T, are nu, and the labelling that maximises s(y) + (1 / T) sum_t (cost nu_t)[y_t] gives an
    upper bound. It is the next column, until the bounds meet. A column is worth its score only if
    it exceeds max_y s(y) - max(cost): the program is well scaled for scores of any size.

    Parameters
    ----------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)
    cost : array of shape (R, R)
    tol : float
        Wanted upper - lower.  The search ends also where Viterbi finds no new labelling:
        then the bounds are as near as the linear program is exact.

    Returns
    -------
    nodes : array of shape (T, R)
    transitions : array of shape (R, R)
        The sum over t of the edges.
    nu : array of shape (T, R)
    lower, upper : float
    n_viterbi : int
        Number of calls of Viterbi.

    Examples
    --------
    >>> import numpy as np
    >>> nodes, transitions, nu, lower, upper, n_viterbi = max_min_column_generation(
    ...     np.zeros((3, 2)), np.eye(2), 1 - np.eye(2))
    >>> nodes.round(9).tolist(), round(lower, 9), round(upper, 9), n_viterbi
    ([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]], 2.5, 2.5, 3)
    """
    from scipy.optimize import linprog

    unary, pairwise = _as_chain(unary, pairwise)
    cost = np.asarray(cost, dtype=float)
    T, R = unary.shape
    path, top = viterbi(unary, pairwise)
    n_viterbi = 1
    columns, scores = [path], [0.0]  # scores relative to the best
    upper = np.inf
    while True:
        n = len(columns)
        # row t * R + j of the inequalities:  z_t - sum_c p_c cost[y_c(t), j] <= 0
        game = np.column_stack([cost[y].ravel() for y in columns])
        solution = linprog(
            -np.append(scores, np.full(T, 1.0 / T)),
            A_ub=np.column_stack([-game, np.repeat(np.eye(T), R, axis=0)]), b_ub=np.zeros(T * R),
            A_eq=np.append(np.ones(n), np.zeros(T))[None], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)] * T,
            method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if not solution.success:
            raise RuntimeError(f"the linear program of the game failed: {solution.message}")
        p = np.maximum(solution.x[:n], 0.0)
        p /= p.sum()
        lower = top + p @ scores + np.mean(np.min((game @ p).reshape(T, R), axis=1))
        tentative = np.maximum(-solution.ineqlin.marginals.reshape(T, R), 0.0)
        tentative /= tentative.sum(axis=1, keepdims=True)
        path, value = viterbi(unary + tentative @ cost.T / T, pairwise)
        n_viterbi += 1
        if value < upper:
            upper, nu = value, tentative
        if upper - lower <= tol or any(np.array_equal(path, y) for y in columns):
            break
        columns.append(path)
        scores.append(score_labelling(path, unary, pairwise) - top)
    points = [chain_indicator(y, R) for y in columns]
    nodes = sum(weight * point[0] for weight, point in zip(p, points, strict=True))
    transitions = sum(
        weight * point[1].sum(axis=0) for weight, point in zip(p, points, strict=True))
    return nodes, transitions, nu, float(lower), float(upper), n_viterbi


class ChainWeights(NamedTuple):
    """w: emissions (R, d), intercept, start and end (R,), transitions (R, R)."""

    emissions: np.ndarray
    intercept: np.ndarray
    start: np.ndarray
    end: np.ndarray
    transitions: np.ndarray


def _fitted(parts, fit):
    """`ChainWeights` of the parts that are fitted, and zeros for the others."""
    return ChainWeights(*(
        part if name in fit else np.zeros_like(part)
        for name, part in zip(ChainWeights._fields, parts, strict=True)
    ))


def chain_scores(x: FloatArray, w: ChainWeights) -> Parts:
    """The scores v of one sequence.

    Parameters
    ----------
    x : array of shape (T, d)
    w : ChainWeights

    Returns
    -------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R)

    Examples
    --------
    >>> import numpy as np
    >>> w = ChainWeights(np.eye(2), np.zeros(2), np.array([5.0, 0.0]), np.zeros(2), np.eye(2))
    >>> unary, pairwise = chain_scores(np.array([[1.0, 2.0], [3.0, 4.0]]), w)
    >>> unary.tolist()
    [[6.0, 2.0], [3.0, 4.0]]
    """
    unary = x @ w.emissions.T + w.intercept
    unary[0] += w.start
    unary[-1] += w.end
    return unary, w.transitions


def chain_features(
    x: FloatArray, nodes: FloatArray, transitions: FloatArray,
    fit: tuple[str, ...] = ChainWeights._fields,
) -> ChainWeights:
    """Phi(x) phi, for a point phi or a difference of two points.

    Parameters
    ----------
    x : array of shape (T, d)
    nodes : array of shape (T, R)
    transitions : array of shape (R, R)
    fit : tuple of str
        The parts of w that are fitted. The others are zero.

    Returns
    -------
    ChainWeights
        With <w, Phi(x) phi> = <v, phi> for the scores v of `chain_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> x, transitions = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    >>> features = chain_features(x, np.eye(2), transitions, ("emissions", "start"))
    >>> features.emissions.tolist(), features.start.tolist(), features.end.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0], [0.0, 0.0])
    """
    return _fitted(
        (nodes.T @ x, nodes.sum(axis=0), nodes[0], nodes[-1], transitions), fit)


class ChainBlocks(Blocks):
    """Sequences of labels.

    A block is a sequence x (T, d) with labels y (T,), whose scores are linear in w, in the form of
    `ChainWeights`:

        unary[t] = emissions x_t + intercept (+ start if t = 0) (+ end if t = T - 1),
        pairwise = transitions.

    The state of a block is mu_i, its nodes and summed edges, which are enough for w(mu) and h. For
    the log surrogate it is the natural parameters (unary, pairwise), as the entropy of mu_i depends
    on each edge.

    Parameters
    ----------
    X : list of arrays of shape (T_i, d)
    y : list of arrays of int of shape (T_i,)
        Labels in 0, ..., n_labels - 1.
    n_labels : int
    surrogate : {"max_margin", "max_min", "log"}
    alpha : float
    weights : array of shape (n,), optional
        Positive, divided by their sum, equal by default.
    cost : array of shape (n_labels, n_labels), optional
        Cost of a position, 0-1 by default, unused by "log".
    fit : tuple of str
        The fitted parts of w among those of `ChainWeights`. The others are zero.
    oracle_tol : float
        Accuracy of the "max_min" oracle in visits and certificates, which are honest at any.
    penalty : Penalty or pair (lower, upper), optional
        As in `Blocks`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import block_coordinate_frank_wolfe, viterbi
    >>> X = [np.array([[1.0], [-1.0], [0.0]]), np.array([[-1.0], [1.0]])]
    >>> y = [np.array([1, 0, 0]), np.array([0, 1])]
    >>> blocks = ChainBlocks(X, y, 2, "max_min", alpha=0.5)
    >>> w = block_coordinate_frank_wolfe(blocks, n_passes=20).w
    >>> [viterbi(*blocks.scores(i, w))[0].tolist() for i in range(2)]
    [[1, 0, 0], [0, 1]]
    """

    y: list[NDArray[np.int64]]
    n_labels: int
    cost: FloatArray | None
    fit: tuple[str, ...]
    oracle_tol: float

    outputs = ChainOutputs

    def __init__(
        self, X: list[Array], y: list[NDArray[np.int64]], n_labels: int, surrogate: SurrogateName,
        alpha: float, weights: FloatArray | None = None, cost: FloatArray | None = None,
        fit: tuple[str, ...] = ChainWeights._fields, oracle_tol: float = 1e-9, penalty: Any = None,
    ) -> None:
        super().__init__(len(y), surrogate, alpha, weights, penalty)
        unknown = set(fit) - set(ChainWeights._fields)
        if unknown:
            raise ValueError(f"fit names unknown parts {sorted(unknown)} of {ChainWeights._fields}")
        self.X, self.y, self.n_labels = [np.asarray(x, dtype=float) for x in X], y, n_labels
        self.cost = 1.0 - np.eye(n_labels) if cost is None else np.asarray(cost, dtype=float)
        self.fit, self.oracle_tol = fit, oracle_tol

    def scores(self, i: int, w: Parts) -> Parts:
        return chain_scores(self.X[i], ChainWeights(*w))

    def features(self, i: int, parts: Parts) -> ChainWeights:
        return chain_features(self.X[i], *parts, self.fit)

    def fitted(self, w: Parts) -> ChainWeights:
        return _fitted(w, self.fit)

    def truth(self, i: int) -> Parts:
        return _summed(*chain_indicator(self.y[i], self.n_labels))
