"""Empirical factor-graph Rademacher complexity of linear hypotheses (Cortes et al., 2016)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from fastm4n.base.checks import check_number
from fastm4n.research.theory._models import ReadModel

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray, RandomState
    from fastm4n.estimators.label_sets import MultiLabelClassifier
    from fastm4n.estimators.labels import MulticlassClassifier, OrdinalClassifier
    from fastm4n.estimators.sequences import SequenceTagger

NORMS = ("l2", "l1", "linf", "l21_features", "l21_labels")


class Estimate(NamedTuple):
    """Complexity of the hypotheses whose norm is at most 1.

    Attributes
    ----------
    closed_form : float
        Upper bound by the exact second moments of the signed sum.
    theorem : float
        Upper bound by r and s, as in Theorem 2 and Corollary 12, corrected. NaN if there is none.
    printed : float
        The printed bound, which may be below the complexity. NaN if there is none.
    monte_carlo, standard_error : float
        Mean over the draws of signs, and its standard error. NaN without draws.
    """

    closed_form: float
    theorem: float
    printed: float
    monte_carlo: float
    standard_error: float


@dataclass
class Complexity:
    """Complexity of the linear hypotheses of one decomposition into factors.

    Attributes
    ----------
    decomposition : str
        "parts" has a factor for each label and each pair of neighbours, "positions" one for each
        position, over its label and the one before.
    n_examples : int
        m.
    mean_factors, max_factors : float, int
        ``|F_i|``.
    max_values : int
        Largest ``|Y_f|``.
    n_weights : int
        N.
    sparsity, sparsity_row : int, str
        s of Theorem 2, and its row of weights.
    r_2, r_inf : float
        Largest norms of the features of a factor.
    norms : dict of str to Estimate
        By norm: "l2", "l1", "linf" (a box), "l21_features" and "l21_labels" (sums of Euclidean
        norms of the weights of a feature, of a label).
    families : dict of str to dict
        By family of features: "n_weights", "l2" (closed form), "l1" and "l1_monte_carlo".
    """

    decomposition: str
    n_examples: int
    mean_factors: float
    max_factors: int
    max_values: int
    n_weights: int
    sparsity: int
    sparsity_row: str
    r_2: float
    r_inf: float
    norms: dict[str, float] = field(repr=False)
    families: dict[str, Any] = field(repr=False)


def factor_graph_complexity(
    model: SequenceTagger | MulticlassClassifier | OrdinalClassifier | MultiLabelClassifier, X: Any,
    *, n_draws: int = 20, families: ArrayLike | None = None, weights: ArrayLike | None = None,
    feature_names: ArrayLike | None = None, lengths: ArrayLike | None = None,
    random_state: RandomState = None,
) -> dict[str, Complexity]:
    """Compute the empirical factor-graph complexity of a model, per unit of norm.

    R(H) = (1/m) E sup_{h in H} sum_i sum_{f in F_i} sum_{y in Y_f} sqrt|F_i| eps_ify h_f(x_i, y)
    over independent signs eps. For linear h of norm at most Lambda it is Lambda times the mean dual
    norm of Z / m, Z = sum sqrt|F_i| eps_ify Psi_f(x_i, y). Each draw of the signs needs one product
    of the features.

    Parameters
    ----------
    model : SequenceTagger, MulticlassClassifier, OrdinalClassifier or MultiLabelClassifier
        Fitted, with ``kernel="linear"``, or a pipeline that ends with one. Only its features and
        labels matter.
    X : examples as for `model.predict`
    n_draws : int, default=20
        Monte Carlo draws, 0 for closed forms only.
    families : array-like of shape (n_features,), default=None
        Family of each feature, by default "features".
    weights : array-like of shape (n_features,), default=None
        Positive beta_j for the norms ``sum_j beta_j |w_j|`` ("l1") and ``max_j beta_j |w_j|``
        ("linf"). Constants and transitions have weight 1.
    feature_names : array-like of str of shape (n_features,), default=None
        Names for `sparsity_row`.
    lengths : array-like of int, default=None
        Lengths of the sequences if X has rows.
    random_state : int, RandomState or None, default=None

    Returns
    -------
    complexities : dict of str to Complexity
        By decomposition: "parts" and, with transitions, "positions". Both bound the same margin
        losses, so that the smaller one is enough.

    Notes
    -----
    With V_j = ``sum |F_i| Psi_fj^2``, the closed forms are

    - sqrt(sum_j V_j) = sqrt(E ||Z||^2) for "l2",
    - sqrt(2 log(2N) max_j V_j) for "l1",
    - sum_j sqrt(V_j) for "linf",
    - (1 + sqrt(2 log G)) max_g sqrt(V_g) for G groups, as ||Z_g|| has mean at most sqrt(V_g) and
      one sign changes it by at most 2 sqrt|F_i| ||Psi_fg||.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.research.theory import factor_graph_complexity
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MulticlassClassifier(random_state=0).fit(X, y)
    >>> found = factor_graph_complexity(model, X, random_state=0)["parts"].norms["l2"]
    >>> round(found.closed_form, 3), abs(found.monte_carlo / found.closed_form - 1) < 0.2
    (1.137, True)
    """
    check_number("n_draws", n_draws, low=0, strict=False, integer=True)
    read = ReadModel(model, X, lengths)
    return complexities_of(
        read, n_draws=n_draws, families=checked_families(families, read.factors.n_features),
        weights=_checked_weights(weights, read.factors.n_features), feature_names=feature_names,
        random_state=random_state)


def complexities_of(
    read: Any, *, n_draws: int, families: ArrayLike | None, random_state: RandomState,
    weights: ArrayLike | None = None, feature_names: ArrayLike | None = None,
) -> dict[str, Complexity]:
    """`factor_graph_complexity` of a `ReadModel`."""
    rng = np.random.default_rng(check_random_state(random_state).randint(2**31))
    return {
        name: _complexity(read.factors, name, rng, n_draws, families, weights, feature_names)
        for name in read.factors.decompositions
    }


def checked_families(families: ArrayLike | None, n_features: int) -> Any:
    """Names of the families of features, or None."""
    if families is None:
        return None
    if isinstance(families, str) or len(families) != n_features:
        raise ValueError(
            f"families must name one family for each of the {n_features} features, got "
            f"{families!r}." if isinstance(families, str) else
            f"families has {len(families)} names, but there are {n_features} features.")
    return [
        ",".join(map(str, each)) if isinstance(each, (tuple, list, np.ndarray)) else str(each)
        for each in families
    ]


def _checked_weights(weights, n_features):
    if weights is None:
        return None
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != (n_features,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise ValueError(
            f"weights must be {n_features} finite numbers > 0, one for each feature.")
    return weights


def _complexity(factors, decomposition, rng, n_draws, families, weights, feature_names):
    m, R = factors.n_examples, factors.n_labels
    n_factors = factors.n_factors(decomposition)
    n_values, max_values = factors.n_values(decomposition)
    r_2, r_inf = factors.radii(decomposition)
    sums = factors.row_sums(decomposition)
    counts = factors.row_sums(decomposition, count=True)
    of_row = np.array(factors.row_families(families))
    names = list(dict.fromkeys(of_row.tolist()))
    rows = {name: np.flatnonzero(of_row == name) for name in names}
    beta = np.ones(sums.size)
    if weights is not None:
        beta[:factors.n_features] = weights
    draws = {norm: [] for norm in NORMS}
    family_draws = {name: [] for name in names}
    for _ in range(n_draws):
        Z = factors.signed_sum(decomposition, rng)
        for norm, value in _dual_norms(Z, beta).items():
            draws[norm].append(value / m)
        largest = np.abs(Z).max(axis=1) / beta
        for name in names:
            family_draws[name].append(largest[rows[name]].max(initial=0.0) / m)

    mask = np.ones((1, R)) if factors.mask is None else factors.mask
    cells = np.broadcast_to(mask.sum(axis=1), sums.shape)  # weights of each row
    of_label = sums @ np.broadcast_to(mask, (sums.size, R))
    N, s = int(cells.sum()), float(counts.max(initial=0.0))
    weighed = sums / beta**2
    closed = {
        "l2": np.sqrt(cells @ sums),
        "l1": _largest_of(weighed, cells),
        "linf": cells @ np.sqrt(weighed),
        "l21_features": _largest_group(cells * sums),
        "l21_labels": _largest_group(of_label),
    }
    theorem, printed = dict.fromkeys(NORMS, np.nan), dict.fromkeys(NORMS, np.nan)
    theorem["l2"] = printed["l2"] = r_2 * np.sqrt(np.dot(n_factors, n_values.astype(np.float64)))
    if weights is None:
        printed["l1"] = r_inf * np.sqrt(s * np.log(2 * N))
        theorem["l1"] = np.sqrt(2.0) * printed["l1"]
    if max(n_factors, default=0) == 1:  # single labels: Corollary 12
        theorem["l21_labels"] = r_2 * np.sqrt(m) * (1 + np.sqrt(2 * np.log(R)))
        printed["l21_labels"] = 2 * np.sqrt(2) * r_2 * np.sqrt(m) * np.log(R) ** 0.25
    norms = {
        norm: Estimate(float(closed[norm] / m), float(theorem[norm] / m),
                       float(printed[norm] / m), *_mean(draws[norm]))
        for norm in NORMS
    }
    found = {}
    for name in names:
        V, n = sums[rows[name]], cells[rows[name]]
        found[name] = {
            "n_weights": int(n.sum()), "l2": float(np.sqrt(n @ V) / m),
            "l1": float(_largest_of(weighed[rows[name]], n) / m),
            "l1_monte_carlo": _mean(family_draws[name])[0],
        }
    top = int(np.argmax(counts)) if counts.size else 0
    row = str(of_row[top]) if top >= factors.n_features else (
        f"feature {top}" if feature_names is None else str(feature_names[top]))
    return Complexity(
        decomposition, m, float(n_factors.mean()), int(n_factors.max()), int(max_values), N,
        int(s), row, r_2, r_inf, norms, found)


def _dual_norms(Z, beta):
    """Dual norms of Z, by the norm of w."""
    magnitudes = np.abs(Z) / beta[:, np.newaxis]
    return {
        "l2": np.linalg.norm(Z), "l1": magnitudes.max(initial=0.0), "linf": magnitudes.sum(),
        "l21_features": np.linalg.norm(Z, axis=1).max(initial=0.0),
        "l21_labels": np.linalg.norm(Z, axis=0).max(initial=0.0),
    }


def unit_norms(W: FloatArray, beta: float = 1.0) -> FloatArray:
    """Norms of weights (n_rows, n_labels), by name."""
    weighed = np.abs(W) * np.reshape(beta, (-1, 1))
    return {
        "l2": float(np.linalg.norm(W)), "l1": float(weighed.sum()),
        "linf": float(weighed.max(initial=0.0)),
        "l21_features": float(np.linalg.norm(W, axis=1).sum()),
        "l21_labels": float(np.linalg.norm(W, axis=0).sum()),
    }


def _largest_of(V, cells):
    """Bound of E max |Z_j| with the variances V, each of `cells` coordinates."""
    n = cells[V > 0].sum()
    return np.sqrt(2.0 * np.log(2 * n) * V.max()) if n else 0.0


def _largest_group(V):
    n = np.count_nonzero(V)
    return (1.0 + np.sqrt(2.0 * np.log(n))) * np.sqrt(V.max()) if n else 0.0


def _mean(values):
    if not values:
        return np.nan, np.nan
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(error)
