"""Complexity, margins, bounds and consistency of a fitted model in one report."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_number
from fastm4n.research.theory._models import ReadModel
from fastm4n.research.theory._tables import report_text
from fastm4n.research.theory.bounds import (
    KINDS,
    clopper_pearson,
    empirical_bernstein,
    excess_risk_bound,
    margin_bound,
    norm_level,
    union,
)
from fastm4n.research.theory.complexity import checked_families, complexities_of, unit_norms
from fastm4n.research.theory.consistency import consistency
from fastm4n.research.theory.margins import margins_of
from fastm4n.surrogates import surrogate_name

if TYPE_CHECKING:
    from typing import Any, Literal

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fastm4n.base.types import RandomState
    from fastm4n.estimators.label_sets import MultiLabelClassifier
    from fastm4n.estimators.labels import MulticlassClassifier, OrdinalClassifier
    from fastm4n.estimators.sequences import SequenceTagger
    from fastm4n.research.displays import MarginDisplay

# margins of scores, chosen before the data
RHO = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# norms of the bounds
BOUND_NORMS = ("l2", "l1")


@dataclass(repr=False)
class ComplexityReport:
    """Theoretical properties of a fit: see `complexity_report`.

    It prints as tables. `to_dict` returns all numbers, and `plot` draws the margins.

    Attributes
    ----------
    summary : dict
        "model", "n_examples", "loss" and "max_loss" (the M of the bounds), "delta", norms of the
        weights.
    complexities : dict of str to Complexity
        By decomposition into factors, per unit of norm.
    families : list of dict
        For each family of weights: number, non-zeros, norms and their shares, complexities, and
        mean part of the true labellings' scores.
    bounds : list of dict
        For each norm, margin loss and rho: the "empirical" margin loss, its bounds "empirical_low"
        and "empirical_high" at the optimum, the terms and the "value" of the bound, the "printed"
        value, a Monte Carlo "estimate", and whether the bound is "vacuous".
    margins : ndarray of shape (n_examples,)
        Score of the truth minus the score of the best other labelling.
    margin_uncertainty : ndarray of shape (n_examples,)
        Bounds of the changes of the margins at the optimum, by the certified gap.
    held_out : dict or None
        Loss of held-out examples with its bounds.
    consistency : Consistency
    excess_risk : dict or None
        For "max_min" a bound of the risk minus the least risk, in units of the cost: that of
        `excess_risk_bound` without the unknown `optimum_norm`.
    """

    summary: dict[str, Any]
    complexities: dict[str, Any]
    families: list[Any]
    bounds: list[Any]
    margins: np.ndarray = field(repr=False)
    margin_uncertainty: np.ndarray = field(repr=False)
    held_out: dict[str, Any] | None
    consistency: tuple[Any, ...]
    excess_risk: dict[str, Any] | None

    def __repr__(self) -> str:
        s = self.summary
        return f"<ComplexityReport: {s['model']}, {s['n_examples']} examples>"

    def __str__(self) -> str:
        return report_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Convert to dicts, lists, strings and numbers for JSON.

        None stands for infinite and missing numbers.
        """
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> MarginDisplay:
        """Plot the margins: `fastm4n.research.MarginDisplay`.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on, by default a new figure.
        **kwargs
            Passed to `MarginDisplay.plot`.

        Returns
        -------
        display : MarginDisplay
        """
        from fastm4n.research.displays import MarginDisplay

        return MarginDisplay.from_report(self, ax=ax, **kwargs)


def complexity_report(
    model: SequenceTagger | MulticlassClassifier | OrdinalClassifier | MultiLabelClassifier, X: Any,
    y: Any, *, X_test: Any = None, y_test: Any = None,
    loss: Literal["mean", "sum", "zero_one"] = "mean", rho: ArrayLike = RHO, delta: float = 0.05,
    n_draws: int = 20, families: ArrayLike | None = None, feature_names: ArrayLike | None = None,
    lengths: ArrayLike | None = None, lengths_test: ArrayLike | None = None,
    random_state: RandomState = None,
) -> ComplexityReport:
    """Report complexity, margins, bounds and consistency of a fitted model.

    Parameters
    ----------
    model : SequenceTagger, MulticlassClassifier, OrdinalClassifier or MultiLabelClassifier
        Fitted, with ``kernel="linear"``, or a pipeline that ends with one.
    X, y : the training examples
    X_test, y_test : default=None
        Held-out examples, used neither in the fit nor in the choice of its parameters.
    loss : {"mean", "sum", "zero_one"}, default="mean"
        Loss of the bounds: the mean or the sum of the costs of positions of a sequence or labels of
        a set, or 1 for each wrong example. For single labels the first two are the cost. "sum"
        requires that no sequence is longer than those in the data.
    rho : array-like of float, default=(0.1, 0.3, 1, 3, 10, 30, 100)
        Margins, in units of scores. The bounds hold for all of them together. Choose the grid
        before you see the data.
    delta : float, default=0.05
        All margin bounds together, and each held-out bound, hold with probability 1 - delta.
    n_draws : int, default=20
        Draws of signs for Monte Carlo estimates.
    families : array-like of shape (n_features,), or of rows, default=None
        Family of each feature.
    feature_names : array-like of str of shape (n_features,), default=None
    lengths, lengths_test : array-like of int, default=None
        Lengths of the sequences if X and X_test are rows.
    random_state : int, RandomState or None, default=None
        Seed of the signs.

    Returns
    -------
    report : ComplexityReport

    See Also
    --------
    factor_graph_complexity : Complexities for more norms.

    Notes
    -----
    Sample weights are ignored, as if the examples were independent draws. Margin bounds of
    structured models are nearly always vacuous, but complexities still rank families of features.
    Rely on the held-out bound.

    The certified gap bounds ||w - w*|| by sqrt(2 gap / alpha). This also bounds the distance of the
    margins and of the empirical margin losses to those of the optimum.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.research.theory import complexity_report
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MulticlassClassifier("max_min", alpha=0.01, random_state=0).fit(X[::2], y[::2])
    >>> report = complexity_report(
    ...     model, X[::2], y[::2], X_test=X[1::2], y_test=y[1::2], random_state=0)
    >>> all(bound["vacuous"] for bound in report.bounds)
    True
    >>> round(report.held_out["clopper_pearson"][1], 2)
    0.08
    """
    rho = _checked_rho(rho)
    check_number("delta", delta, low=0)
    if delta >= 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}.")
    check_number("n_draws", n_draws, low=0, strict=False, integer=True)
    if (X_test is None) != (y_test is None):
        raise ValueError("X_test and y_test must be given together.")
    read, given = ReadModel(model, X, lengths), model
    model, factors = read.model, read.factors
    families = checked_families(families, factors.n_features)
    if feature_names is not None and len(feature_names) != factors.n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but there are {factors.n_features} "
            "features.")
    codes = read.known_codes(y, lengths)
    found = margins_of(read, codes, loss)
    complexities = complexities_of(
        read, n_draws=n_draws, families=families, random_state=random_state,
        feature_names=feature_names)
    W = read.weights()
    norms = unit_norms(W)
    distance, uncertainty = read.distance_to_optimum(), read.margin_uncertainty()
    summary = {
        "model": repr_of(model), "n_examples": factors.n_examples, "loss": loss,
        "max_loss": found.max_loss, "delta": float(delta), "training_loss": _mean(found.loss),
        "alpha": float(model.alpha_), "relative_gap": float(model.relative_gap_),
        "duality_gap": float(model.duality_gap_),
        "distance_to_optimum": distance, "norms": norms,
    }
    answer = consistency(
        model.surrogate, model.cost_matrix_, decode=model._fitted_task().decoding(),
        sequences=read.kind != "labels", transitions=read.couples, loss=loss)
    return ComplexityReport(
        summary, complexities, _families(read, W, codes, families, complexities),
        _bounds(found, complexities, norms, rho, delta, uncertainty), found.margin, uncertainty,
        None if X_test is None else _held_out(
            given, X_test, y_test, loss, delta, lengths_test),
        answer, _excess_risk(read, answer.constant, delta))


def _checked_rho(rho):
    rho = np.atleast_1d(np.asarray(rho, dtype=np.float64))
    if rho.ndim != 1 or not rho.size or not (np.isfinite(rho) & (rho > 0)).all():
        raise ValueError("rho must be one or more finite numbers > 0.")
    return np.unique(rho)


def repr_of(model: Any) -> str:
    return f"{type(model).__name__}(surrogate={model.surrogate!r}, alpha={model.alpha_:.4g})"


def _mean(values):
    return float(np.mean(values)) if len(values) else 0.0


def _families(read, W, codes, families, complexities):
    """Rows of the properties of each family of weights."""
    of_row = np.array(read.factors.row_families(families))
    scores = (W * read.factors.truth_sums(codes)).sum(axis=1) / max(read.factors.n_examples, 1)
    totals = unit_norms(W)
    rows = []
    for name in dict.fromkeys(of_row.tolist()):
        chosen = of_row == name
        norms = unit_norms(W[chosen])
        row = {
            "family": name, "n_weights": int(W[chosen].size),
            "n_nonzero": int(np.count_nonzero(W[chosen])), "l1": norms["l1"], "l2": norms["l2"],
            "share_l1": norms["l1"] / totals["l1"] if totals["l1"] else 0.0,
            "mean_score": float(scores[chosen].sum()),
        }
        for norm in ("l2", "l1", "l1_monte_carlo"):
            row[f"complexity_{norm}"] = min(
                (each.families[name][norm] for each in complexities.values()), default=np.nan)
        rows.append(row)
    return rows


def _bounds(found, complexities, norms, rho, delta, uncertainty):
    """Rows of margin bounds that hold together."""
    rows = []
    kinds = KINDS if found.has_multiplicative else KINDS[:1]
    m = next(iter(complexities.values())).n_examples
    empirical = {
        (kind, each): [found.empirical(each, kind)] + [
            found.empirical(each, kind, change=sign * uncertainty) for sign in (1.0, -1.0)]
        for kind in kinds for each in rho.tolist()
    }
    for norm in BOUND_NORMS:
        radius, level = norm_level(norms[norm])
        estimates = [each.norms[norm] for each in complexities.values()]
        # the smallest of several upper bounds is one
        per_unit = min(each.closed_form for each in estimates)
        monte_carlo = min(each.monte_carlo for each in estimates)
        printed = min(each.printed for each in estimates)
        # a union bound over norms, rho and margin losses, each with its own share of delta
        share = union(delta, rho.size * len(kinds) * len(BOUND_NORMS), level)
        for (kind, each), (loss, low, high) in empirical.items():
            bound = margin_bound(
                loss, radius * per_unit, rho=each, n_examples=m, delta=share,
                max_loss=found.max_loss, kind=kind)
            as_printed = margin_bound(
                loss, 0.0, rho=each, n_examples=m, delta=delta, max_loss=found.max_loss, kind=kind,
                printed_complexity=norms[norm] * printed).printed
            estimate = margin_bound(
                loss, norms[norm] * monte_carlo, rho=each, n_examples=m, delta=delta,
                max_loss=found.max_loss, kind=kind).value
            rows.append({
                "norm": norm, "kind": kind, "rho": each, "empirical": loss, "empirical_low": low,
                "empirical_high": high, "complexity": bound.terms["complexity"],
                "concentration": bound.terms["concentration"], "value": bound.value,
                "vacuous": bound.vacuous, "printed": as_printed, "estimate": estimate,
                "radius": radius, "complexity_per_unit": per_unit,
            })
    return rows


def _excess_risk(read, constant, delta):
    """The bound of the max-min surrogate by the comparison inequality."""
    model, alpha = read.model, read.strong_convexity()
    if surrogate_name(model.surrogate) != "max_min" or not np.isfinite(constant) or alpha == 0.0:
        return None
    largest = float(model.cost_matrix_.max())
    if getattr(model, "cost_scale", "sum") == "sum":
        largest *= max(1, int(read.factors.lengths.max()))
    # derivatives in w are differences of features of (mixtures of) labellings
    bound = excess_risk_bound(
        max(float(model.duality_gap_), 0.0), alpha=alpha, n_examples=read.factors.n_examples,
        constant=constant, lipschitz=1.0, radius=float(read.factors.reach().max()), delta=delta,
        max_loss=largest)
    return {"value": bound.value, "vacuous": bound.vacuous, "max_loss": largest, **bound.terms}


def _held_out(model, X, y, loss, delta, lengths):
    """Loss of held-out examples under `predict`, and its bounds."""
    read = ReadModel(model, X, lengths)
    model, codes = read.model, read.codes(y, lengths)
    guessed = read.codes(model.predict(read.X), lengths)
    cost = model.cost_matrix_
    known = np.where(codes >= 0, cost[codes, guessed], cost.max())
    wrong = np.zeros(read.factors.n_examples)
    np.maximum.at(wrong, read.factors.example, (codes != guessed).astype(np.float64))
    max_loss = 1.0 if loss == "zero_one" else float(cost.max())
    if loss == "zero_one":
        losses = wrong
    else:
        losses = np.bincount(read.factors.example, known, read.factors.n_examples)
        if loss == "mean":
            losses = losses / np.maximum(read.factors.lengths, 1)
        else:
            max_loss *= max(1, int(read.factors.lengths.max()))
    n, n_wrong = losses.size, int(wrong.sum())
    out = {
        "n_examples": n, "n_wrong": n_wrong, "zero_one": n_wrong / n, "loss": float(losses.mean()),
        "clopper_pearson": list(clopper_pearson(n_wrong, n, delta)), "max_loss": max_loss,
        "clopper_pearson_both": list(clopper_pearson(n_wrong, n, delta, "both")),
        "empirical_bernstein": None,
    }
    if n > 1:
        bound = empirical_bernstein(losses, delta, max_loss)
        out["empirical_bernstein"] = {
            "value": bound.value, "vacuous": bound.vacuous, **bound.terms}
    return out


def _plain(value):
    if hasattr(value, "_asdict"):
        value = value._asdict()
    elif hasattr(value, "__dataclass_fields__"):
        value = {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
