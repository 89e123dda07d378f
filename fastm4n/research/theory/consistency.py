"""Consistency of surrogates: whether their best scores predict labels of least expected cost.

With enough data and arbitrary scores a fit minimises the surrogate's conditional risk s(v, p) =
E_{Y ~ p} S(v, Y) at each x. A surrogate is consistent for a cost if the result predicts a label of
least expected cost for every p. Everything here is exact, by linear programs over distributions,
for few outputs.

By duality the least surrogate risk of scores v that predict y, v_y >= v_z, is a maximum over moves
of mass from p to q with q_z <= p_z for z != y. It is max h(q) for max-min, with h(q) = min_t sum_z
q_z cost[z, t], and for max-margin the largest cost of moving p to q.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path

from fastm4n.base.checks import check_choice
from fastm4n.surrogates import SURROGATES, as_surrogate
from fastm4n.tasks.parameters import DECODINGS, cost_matrix

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Cost, FloatArray
    from fastm4n.surrogates._parameters import SurrogateLike

# number of labels up to which constants are exact, by listing vertices of polytopes
MOST_LISTED = 5
# prices below this count as zero
PRICE_TOL = 1e-9


class Consistency(NamedTuple):
    """Whether a surrogate's best scores predict outputs of least expected loss.

    Attributes
    ----------
    consistent : bool or None
        None if it is not known.
    reason : str
    constant : float
        C of excess risk <= C times excess surrogate risk, for the max-min surrogate. NaN if none is
        known.
    """

    consistent: bool | None
    reason: str
    constant: float = float("nan")


def prices(
    p: ArrayLike, surrogate: Literal["max_min", "max_margin", "log"] = "max_min",
    cost: Cost = "zero_one", *, embedding: ArrayLike | None = None,
) -> FloatArray:
    """Compute the prices of predicting each label at conditional probabilities p.

    Parameters
    ----------
    p : array-like of shape (k,)
        Probabilities of the labels.
    surrogate : {"max_min", "max_margin", "log"}, default="max_min"
    cost : str or array-like of shape (k, k), default="zero_one"
        As in `MulticlassClassifier`: rows are true labels, columns predicted ones.
    embedding : array-like of shape (k, d), default=None
        phi(y) of each output, in which scores are linear. Indicators of the outputs by default. For
        "max_min" only.

    Returns
    -------
    prices : ndarray of shape (k,)
        Least conditional surrogate risk of scores with the label among the highest, minus the least
        risk of all scores. For a consistent surrogate labels with price 0 have the least expected
        cost.

    Examples
    --------
    >>> from fastm4n.research.theory import prices
    >>> prices([0.4, 0.3, 0.3], "max_margin").round(4).tolist()
    [0.0, 0.0, 0.0]
    >>> prices([0.4, 0.3, 0.3], "max_min").round(4).tolist()
    [0.0, 0.05, 0.05]
    """
    check_choice("surrogate", surrogate, SURROGATES)
    p = _distribution(p)
    cost = _costs(cost, p.size)
    if embedding is not None and surrogate != "max_min":
        raise ValueError("embedding is for surrogate='max_min'.")
    if surrogate == "log":
        return np.array([_pooled(p, y) for y in range(p.size)])
    if surrogate == "max_margin":
        least = _transport(p, cost, None)
        return np.array([_transport(p, cost, y) - least for y in range(p.size)])
    least = (p @ cost).min()
    return np.array([_game(p, cost, y, embedding) - least for y in range(p.size)])


def calibration_constant(cost: Cost, *, embedding: ArrayLike | None = None) -> float:
    """The least C of excess risk <= C times excess surrogate risk of the max-min surrogate.

    The calibration function of Nowak-Vila et al. (2020, Definition C.3) is then at least eps / C.
    For a prediction y' instead of the best y, the excess risk is linear in p, and the excess
    surrogate risk is concave. Their ratio is largest at a vertex of the set of p for which y is
    best. The function lists all vertices.

    Parameters
    ----------
    cost : array-like of shape (k, k)
        Above 0 except on the diagonal.
    embedding : array-like of shape (k, d), default=None
        As in `prices`.

    Returns
    -------
    constant : float
        Infinite if some best scores predict a wrong label. This happens if a label of least
        expected cost can have probability 0.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research.theory import calibration_constant
    >>> round(calibration_constant(1 - np.eye(3)), 6)
    3.0
    """
    cost = np.asarray(cost, dtype=np.float64)
    cost = _costs(cost, len(cost))
    k = len(cost)
    worst = 0.0
    for y in range(k):
        for p in _vertices((cost[:, [y]] - np.delete(cost, y, axis=1)).T):
            risks = p @ cost
            least = risks.min()
            for other in np.flatnonzero(risks > least + PRICE_TOL):
                price = _game(p, cost, other, embedding) - least
                worst = max(worst, (risks[other] - least) / price if price > PRICE_TOL else np.inf)
    return float(worst)


def calibration_function(cost: Cost, eps: float, *, embedding: ArrayLike | None = None) -> float:
    """The exact calibration function zeta(eps) of the max-min surrogate.

    It is the least excess surrogate risk of scores whose prediction has an excess risk of at least
    eps, over all distributions and scores. For each pair of outputs it is a concave function over a
    polytope, which is least at a vertex.

    Parameters
    ----------
    cost : array-like of shape (k, k)
    eps : float
    embedding : array-like of shape (k, d), default=None
        As in `prices`.

    Returns
    -------
    zeta : float
        Infinite if no prediction has such an excess risk.
    """
    cost = np.asarray(cost, dtype=np.float64)
    cost = _costs(cost, len(cost))
    k, least = len(cost), np.inf
    for y in range(k):
        optimal = (cost[:, [y]] - np.delete(cost, y, axis=1)).T
        for other in range(k):
            if other == y:
                continue
            # (cost of y - cost of other) p + eps <= 0, as a row over p that sums to 1
            rows = np.vstack([optimal, cost[:, y] - cost[:, other] + eps])
            for p in _vertices(rows):
                least = min(least, _game(p, cost, other, embedding) - (p @ cost).min())
    return float(least)


def printed_constant(cost: Cost) -> float:
    """C of Proposition C.10 of Nowak-Vila et al. (2020), infinite if it does not apply.

    For symmetric costs with ``sum_{t != y, z} |L(t, y) - L(t, z)| <= q L(y, z)``, q < 1, it is
    (k - q) / (1 - q): k for 0-1 costs.

    Parameters
    ----------
    cost : array-like of shape (k, k)
        Cost of each predicted label (column) for each true one (row).
    """
    cost = np.asarray(cost, dtype=np.float64)
    k = len(cost)
    if not np.allclose(cost, cost.T):
        return np.inf
    q = 0.0
    for y, z in combinations(range(k), 2):
        rest = np.abs(cost[:, y] - cost[:, z])
        q = max(q, (rest.sum() - rest[y] - rest[z]) / cost[y, z])
    return (k - q) / (1 - q) if q < 1 else np.inf


def is_tree_distance(cost: Cost) -> bool:
    """Whether costs are lengths of paths in a tree whose nodes are the labels.

    Parameters
    ----------
    cost : array-like of shape (k, k)
        Cost of each predicted label (column) for each true one (row).
    """
    cost = np.asarray(cost, dtype=np.float64)
    if not np.allclose(cost, cost.T):
        return False
    # in a tree metric of its nodes, the least spanning tree is the tree
    tree = minimum_spanning_tree(cost)
    return bool(np.allclose(shortest_path(tree, directed=False), cost))


def consistency(
    surrogate: SurrogateLike, cost: Cost, *, decode: Literal["map", "min_risk"] = "map",
    sequences: bool = False, transitions: bool = True,
    loss: Literal["mean", "sum", "zero_one"] = "mean",
) -> Consistency:
    """Whether a surrogate is consistent for a cost, and why.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"}, object of fastm4n.surrogates or `Boost`
        With ``Log(cost_augmented=True)``, the softmax-margin, the best scores under 0-1 costs have
        the order of the probabilities: the derivatives of the conditional risk are zero if p_y is
        a multiple of u_y (E sum u - (E - 1) u_y), u being the exponentials of the scores over the
        temperature and E that of the cost. Of two labels it is larger for the larger u_y.
    cost : array-like of shape (k, k)
        Cost in the surrogate.
    decode : {"map", "min_risk"}, default="map"
    sequences : bool, default=False
        Whether outputs have several labels, with this cost for each: sequences, or sets.
    transitions : bool, default=True
        Whether pairs of labels of an output have scores.
    loss : {"mean", "sum", "zero_one"}, default="mean"
        Loss of predictions: the cost, or 0-1 loss of whole outputs.

    Returns
    -------
    consistency : Consistency

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research.theory import consistency
    >>> consistency("max_margin", 1 - np.eye(3)).consistent
    False
    >>> consistency("max_min", 1 - np.eye(3)).consistent
    True
    """
    given = as_surrogate(surrogate)
    is_log, augmented = given.name == "log", getattr(given, "cost_augmented", False)
    check_choice("decode", decode, DECODINGS[1:])
    cost = np.asarray(cost, dtype=np.float64)
    cost = _costs(cost, len(cost))
    k = len(cost)
    off = cost[~np.eye(k, dtype=bool)]
    if loss == "zero_one" and not sequences and not np.allclose(off, off[0]):
        if is_log and decode == "map" and not augmented:
            return Consistency(True, "the most probable label is predicted")
        return Consistency(False, "the fit is for its cost, and the loss is another")
    if given.name == "boost":
        return _of_boost(off, sequences)
    whole = sequences and loss == "zero_one"
    if augmented:
        return _of_softmax_margin(cost, decode, whole, sequences and transitions)
    if is_log:
        return _of_log(off, decode, sequences, whole, k, np.allclose(cost, cost.T))
    if whole:
        return Consistency(
            False, "the surrogate is of the cost of single labels, and the whole is judged")
    if given.name == "max_min":
        return _of_max_min(cost, decode)
    return _of_max_margin(cost, sequences and transitions)


def _of_log(off, decode, sequences, whole, k, symmetric):
    if decode == "min_risk":
        return Consistency(
            None if whole else True,
            "probabilities are estimated, and the label of least expected cost is predicted")
    if sequences and not whole:
        return Consistency(
            False, "the most probable labelling need not have the most probable labels; "
            "decode='min_risk' is consistent")
    if whole:
        return Consistency(
            None, "the most probable labelling is predicted, if labels given x are a Markov field "
            "of this graph")
    if np.allclose(off, off[0]) or (k == 2 and symmetric):
        return Consistency(True, "the most probable label is predicted, which costs least")
    return Consistency(
        False, "the most probable label need not cost least; decode='min_risk' is consistent")


def _of_boost(off, sequences):
    if not sequences and np.allclose(off, 1.0):
        return Consistency(True, "at 0-1 costs of one label it is the log surrogate")
    return Consistency(None, "of boosting it is known for 0-1 costs of one label")


def _of_softmax_margin(cost, decode, whole, coupled):
    if decode == "min_risk":
        return Consistency(
            False, "with cost_augmented=True probabilities are not estimated: decode='min_risk' "
            "weighs others")
    if whole:
        return Consistency(
            False, "the surrogate is of the cost of single labels, and the whole is judged")
    if _is_zero_one(cost) and not coupled:
        return Consistency(
            True, "at 0-1 costs the softmax-margin has its scores in the order of the "
            "probabilities")
    return Consistency(
        None, "of the softmax-margin it is known for 0-1 costs without scores of pairs")


def _of_max_min(cost, decode):
    constant = printed_constant(cost)
    if len(cost) <= MOST_LISTED:
        constant = calibration_constant(cost)
    elif not np.isfinite(constant):
        constant = float("nan")
    if decode == "min_risk":
        return Consistency(
            None, "known for decode='map' (Theorem 3.2 of Nowak-Vila et al., 2020)", constant)
    reason = ("max-min surrogates are, for every cost that only the truth has 0 of (Theorem 3.2 of "
              "Nowak-Vila et al., 2020)")
    if not np.isfinite(constant):
        reason += (
            ", where all labels have a positive probability; excess risks are not bounded by a "
            "multiple of the excess surrogate risk" if constant == np.inf else
            ", where all labels have a positive probability")
    return Consistency(True, reason, constant)


def _of_max_margin(cost, coupled):
    if is_tree_distance(cost):
        if coupled:
            return Consistency(
                None, "each position's cost is a distance in a tree, for which max-margin is "
                "consistent; with scores of pairs it is not known")
        return Consistency(
            True, "the cost is a distance in a tree of the labels (Nowak-Vila et al., 2021)")
    p = _counterexample(cost)
    if p is None:
        return Consistency(
            None, "the cost is no distance in a tree of the labels, for which max-margin is known "
            "to be consistent")
    shown = ", ".join(f"{value:.3g}" for value in p)
    reason = (f"at probabilities ({shown}) a label that does not cost least is predicted at the "
              "least surrogate risk")
    if _is_zero_one(cost):
        reason += ", as wherever no label has more than half (Liu, 2007)"
    return Consistency(False, reason)


def _counterexample(cost):
    """Probabilities at which max-margin may predict a wrong label, None if none is found."""
    k = len(cost)
    if k > 2 and _is_zero_one(cost):  # for any number of labels
        p = np.zeros(k)
        p[:3] = 0.4, 0.3, 0.3
        return p
    if k > 2 * MOST_LISTED:
        return None
    tried = [(pair, values) for pair in combinations(range(k), 2)
             for values in ((0.6, 0.4), (0.45, 0.55), (0.55, 0.45), (0.4, 0.6))]
    tried += [(triple, values) for triple in list(combinations(range(k), 3))[:20]
              for values in ((0.4, 0.3, 0.3), (0.3, 0.4, 0.3), (0.3, 0.3, 0.4))]
    for labels, values in tried:
        p = np.full(k, 0.1 / k)  # all labels occur
        p[list(labels)] += 0.9 * np.array(values)
        risks = p @ cost
        wrong = risks > risks.min() + 1e-6
        least = _transport(p, cost, None)
        if any(_transport(p, cost, y) - least < PRICE_TOL for y in np.flatnonzero(wrong)):
            return p
    return None


# ------------------------------------------------------------------------- programs


def _game(p, cost, y, embedding=None):
    """max_q h(q) over moves q of mass of p to y, with equal q by `embedding`."""
    k = p.size
    if embedding is None:
        # variables q, value: value <= sum_z q_z cost[z, t] for all t
        upper = [(0.0, None if z == y else p[z]) for z in range(k)] + [(None, None)]
        A = np.hstack([-cost.T, np.ones((k, 1))])
        equal, right = np.append(np.ones(k), 0.0)[np.newaxis], [1.0]
    else:
        phi = np.asarray(embedding, dtype=np.float64)
        # variables w, value, lambda: phi' w = phi' p + sum_z lambda_z (phi(y) - phi(z))
        upper = [(0.0, None)] * k + [(None, None)] + [(0.0, None)] * k
        A = np.hstack([-cost.T, np.ones((k, 1)), np.zeros((k, k))])
        equal = np.hstack([phi.T, np.zeros((phi.shape[1], 1)), (phi - phi[y]).T])
        equal = np.vstack([equal, [1.0] * k + [0.0] * (k + 1)])
        right = np.append(phi.T @ p, 1.0)
    objective = np.zeros(A.shape[1])
    objective[k] = -1.0
    found = linprog(objective, A, np.zeros(k), equal, right, upper, method="highs")
    return -found.fun


def _transport(p, cost, y):
    """max <Q, cost> over Q >= 0 of row sums p and column sums p, or for y at most p off y."""
    k = p.size
    rows = np.kron(np.eye(k), np.ones(k))
    columns = np.kron(np.ones(k), np.eye(k))
    if y is None:
        bounded = {"A_eq": np.vstack([rows, columns]), "b_eq": np.concatenate([p, p])}
    else:
        bounded = {"A_eq": rows, "b_eq": p, "A_ub": np.delete(columns, y, axis=0),
                   "b_ub": np.delete(p, y)}
    return -linprog(-cost.ravel(), **bounded, method="highs").fun


def _pooled(p, y):
    """KL divergence of p from the nearest distribution in which y is one of the most probable."""
    others = np.sort(np.delete(p, y))[::-1]
    pooled, size = p[y], 1
    for value in others:
        if value <= pooled / size:
            break
        pooled, size = pooled + value, size + 1
    members = np.concatenate([[p[y]], others[:size - 1]])
    members = members[members > 0]
    return float(np.sum(members * np.log(members * size / pooled))) if members.size else 0.0


def _vertices(rows):
    """Vertices of {p >= 0, sum p = 1, rows p <= 0}."""
    k = rows.shape[1]
    constraints = np.vstack([-np.eye(k), rows])
    chosen = np.array(list(combinations(range(len(constraints)), k - 1)))
    systems = np.concatenate([constraints[chosen], np.ones((len(chosen), 1, k))], axis=1)
    systems = systems[np.abs(np.linalg.det(systems)) > 1e-12]
    if not len(systems):
        return np.zeros((0, k))
    right = np.zeros((len(systems), k, 1))
    right[:, -1] = 1.0
    points = np.linalg.solve(systems, right)[:, :, 0]
    points = points[(points @ constraints.T <= 1e-9).all(axis=1)]
    return np.unique(np.round(np.maximum(points, 0.0), 12), axis=0)


def _is_zero_one(cost):
    return np.allclose(cost, (1 - np.eye(len(cost))) * cost.max())


def _distribution(p):
    p = np.asarray(p, dtype=np.float64)
    if p.ndim != 1 or p.size < 2 or not (p >= 0).all() or not np.isclose(p.sum(), 1.0):
        raise ValueError("p must be the probabilities of two labels or more, which sum to 1.")
    return p / p.sum()


def _costs(cost, k):
    cost = np.ascontiguousarray(cost_matrix(cost, k))
    if not (cost[~np.eye(k, dtype=bool)] > 0).all() or np.diagonal(cost).any():
        raise ValueError("cost must be 0 for the truth and above 0 for all other labels.")
    return cost
