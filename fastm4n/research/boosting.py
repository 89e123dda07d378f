"""Further objectives: boosting as printed, and minimum risk.

`Boost` minimises the mean of log(1 + F_i), F_i = sum_{y != y_i} L(y_i, y)
exp(s(y) - s(y_i)). `fit_exponential` minimises the mean of F_i, equation 20 of [1]_.
`exponential_losses` evaluates it and equation 19 at the weights of a tagger. `refine_risk`
continues a fit of a tagger by minimum-risk training: it decreases the expected cost, which is not
convex.

References
----------
.. [1] C. Cortes, V. Kuznetsov, M. Mohri, S. Yang (2016). Structured prediction theory based on
   factor graph complexity. NIPS.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice, check_number
from fastm4n.estimators import SequenceTagger
from fastm4n.research._boost import BoostLabelLoss, BoostLoss
from fastm4n.research.costs import LogCost, MarkovCost, of_sequences
from fastm4n.solvers.blocks._sweeps import Batch
from fastm4n.solvers.limited_memory import inner, minimise, plus
from fastm4n.surrogates import surrogate_name
from fastm4n.surrogates._parameters import _Surrogate
from fastm4n.tasks.chain_predictions import path_score
from fastm4n.tasks.chain_weights import packed_weights

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray
    from fastm4n.data._types import Labellings, SequenceData
    from fastm4n.outputs._base import Outputs
    from fastm4n.research.costs import EditDistance

__all__ = ["Boost", "exponential_losses", "fit_exponential", "refine_risk"]

FORMS = ("sum", "max")

# exp of more overflows, or nearly
MOST_LOG = 700.0


class Boost(_Surrogate):
    """The boosting surrogate of VStructBoost, as a logarithm: log(1 + F).

    F = sum over the wrong outputs y of L(y_i, y) exp(s(y) - s(y_i)), so that costs are factors of
    the scores' exponentials. It needs outputs with tangents of their marginals: single labels,
    chains, and graphs without cycles. The costs of different labels are positive.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import OrdinalClassifier
    >>> from fastm4n.research import Boost
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(OrdinalClassifier(Boost(), random_state=0).fit(X, y).score(X, y) > -0.2)
    True
    """

    name = "boost"
    needs: str | None = "has_tangent"

    def over(self, outputs: Outputs, *oracle: Any) -> BoostLoss | BoostLabelLoss:
        """Make the compiled surrogate over `outputs`, whatever the `oracle` of max-min games."""
        kind = BoostLabelLoss if outputs.has_entropy and outputs.has_tangent else BoostLoss
        return kind(outputs)


def fit_exponential(
    estimator: SequenceTagger, X: SequenceData, y: Labellings,
    sample_weight: ArrayLike | None = None,
) -> Any:
    """Fit an estimator to the exponential loss by L-BFGS, with a certified gap.

    Minimises mean_i F_i + alpha / 2 ||w||^2, F_i = sum over outputs y other than y_i of
    L(y_i, y) exp(s(y) - s(y_i)). At w = 0 it is the sum of the costs of all outputs, R^T / R for
    each mistake of a sequence of T positions and R labels. The longest sequence dominates the
    objective, which overflows from a few hundred positions on. ``estimator.fit`` minimises
    log(1 + F_i), whose gradient is that of F_i over 1 + F_i.

    Parameters
    ----------
    estimator : estimator
        With ``surrogate=Boost()``, linear features and ``penalty="l2"``. The fit uses its `alpha`,
        `cost`, `tol` and `max_iter` (evaluations), and does not change it.
    X, y, sample_weight
        As in its `fit`.

    Returns
    -------
    fitted : estimator
        A fitted copy. With the gradients u_i of F_i as dual points the gap is alpha / 2
        ||w - w(u)||^2, the squared gradient of the objective over 2 alpha. `relative_gap_` is
        relative to the objective at zero weights.

    Raises
    ------
    ValueError
        If log F_i of an example is above 700 at zero weights.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.research.boosting import Boost, fit_exponential
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = fit_exponential(MulticlassClassifier(Boost(), alpha=0.1), X, y)
    >>> bool(clf.relative_gap_ <= clf.tol), bool(clf.score(X, y) > 0.9)
    (True, True)
    """
    if not isinstance(getattr(estimator, "surrogate", None), Boost):
        raise ValueError(f"fit_exponential needs surrogate=Boost(), got {estimator!r:.200}.")
    fitted = clone(estimator)
    problem = fitted._problem(X, y, sample_weight)
    batch, alpha, p = _batch(fitted, problem)
    first = []

    def objective(w):
        problem.features.restore(w)
        logs, _ = batch.evaluate()
        if not first:
            worst = int(np.argmax(logs))
            if logs[worst] > MOST_LOG:
                raise ValueError(
                    f"{fitted._task_class.noun} {problem.blocks.examples[worst]}: log F is "
                    f"{logs[worst]:.4g} at zero weights, and exp of more than {MOST_LOG:g} "
                    "overflows. Use fit, which minimises log(1 + F).")
        if not logs.max() <= MOST_LOG:
            return np.inf, None
        value = float(np.sum(p * np.expm1(logs))) + 0.5 * alpha * inner(w, w)
        if not first:
            first.append(value if value > 0.0 else 1.0)
        return value, lambda: plus(batch.gradient(np.exp(logs)), alpha, w)

    rows = []

    def on_iterate(n, w, value, gradient):
        gap = inner(gradient, gradient) / (2.0 * alpha)
        dual = max([value - gap, *(row[2] for row in rows[-1:])])
        rows.append((n, value, dual, min(gap, max(0.0, value - dual))))
        return rows[-1][-1] <= fitted.tol_ * first[0]

    w = minimise(objective, problem.features.state(), fitted.max_iter, on_iterate)
    return _finished(fitted, problem, w, alpha, rows, first[0])


def exponential_losses(
    tagger: SequenceTagger, X: SequenceData, y: Labellings, *, form: Literal["sum", "max"] = "sum",
    cost: MarkovCost | EditDistance | None = None,
) -> FloatArray:
    """Compute the printed losses of VStructBoost for each sequence under a fitted tagger.

    The sum over y of L(y_i, y) exp(s(y) - s(y_i)), equation 20 of [1]_, or the largest of these
    terms, equation 19. Both are exact, by a chain of labels and costs so far.

    Parameters
    ----------
    tagger : SequenceTagger
        Fitted, with any surrogate.
    X, y
        As in its `fit`.
    form : {"sum", "max"}, default="sum"
    cost : MarkovCost or EditDistance, default=None
        By default the sum of the tagger's costs of positions.

    Returns
    -------
    losses : ndarray of shape (n_sequences,)
        Zero for empty sequences.

    Raises
    ------
    ValueError
        If the logarithm of the loss of a sequence is above 700.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.research.boosting import exponential_losses
    >>> X, y = [np.eye(2)[[0, 1, 0]], np.eye(2)[[1, 0]]], [["a", "b", "a"], ["b", "a"]]
    >>> tagger = SequenceTagger(Boost(), alpha=0.1, random_state=0).fit(X, y)
    >>> total, largest = (exponential_losses(tagger, X, y, form=form) for form in ("sum", "max"))
    >>> bool((largest <= total).all())
    True
    """
    check_is_fitted(tagger)
    check_choice("form", form, FORMS)
    logs = LogCost(MarkovCost(tagger.cost_matrix_) if cost is None else cost)

    def loss(unary, pairwise, labels):
        if unary.shape[1] == 1:
            return 0.0  # there is no other labelling
        if form == "sum":
            value = logs.log_partition(unary, pairwise, labels)
        else:
            value = logs.best(unary, pairwise, labels)[1]
        value -= path_score(unary, pairwise, labels)
        if value > MOST_LOG:
            raise ValueError(
                f"log F is {value:.4g}, and exp of more than {MOST_LOG:g} overflows. "
                "surrogate=Boost() takes log(1 + F).")
        return np.exp(value)

    return of_sequences(loss, tagger, X, y)


def refine_risk(
    tagger: SequenceTagger, X: SequenceData, y: Labellings, sample_weight: ArrayLike | None = None,
    *, alpha: float | None = None, max_iter: int = 100,
) -> SequenceTagger:
    """Continue the fit of a tagger by minimum-risk training.

    Decreases mean_i E L(y_i, Y) + alpha / 2 ||w||^2 by L-BFGS from the tagger's weights, where the
    labellings Y have the tagger's distribution. Gradients are covariances by tangent sum-product.
    The objective is not convex: the result depends on the start, and there is no gap. The objective
    never increases.

    Parameters
    ----------
    tagger : SequenceTagger
        Fitted, with ``surrogate="log"``, unchanged.
    X, y, sample_weight
        As in its `fit`.
    alpha : float, default=None
        Regularisation, by default that of the fit.
    max_iter : int, default=100
        Largest number of evaluations.

    Returns
    -------
    refined : SequenceTagger
        A copy with new weights and the objective as `primal_objective_`. Nothing is certified:
        `dual_objective_` is -inf, and both gaps are inf. `history_` has the objective ("primal")
        after each step.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.research.boosting import refine_risk
    >>> X, y = [np.eye(2)[[0, 1, 0]], np.eye(2)[[1, 0]]], [["a", "b", "a"], ["b", "b"]]
    >>> tagger = SequenceTagger("log", alpha=0.1, random_state=0).fit(X, y)
    >>> refined = refine_risk(tagger, X, y)
    >>> objective = refined.history_["primal"]
    >>> bool(objective[-1] < objective[0])
    True
    """
    if not isinstance(tagger, SequenceTagger) or surrogate_name(tagger.surrogate) != "log":
        raise ValueError(
            f"refine_risk needs a fitted SequenceTagger with surrogate='log', got {tagger!r:.200}.")
    check_is_fitted(tagger)
    check_number("max_iter", max_iter, low=0, integer=True)
    if alpha is not None:
        check_number("alpha", alpha, low=0)
    alpha = tagger.alpha_ if alpha is None else float(alpha)
    plain = clone(tagger).set_params(penalty="l2", alpha=alpha, solver="auto", warm_start=False)
    problem = plain._problem(tagger._fitted_task().features_of(X), y, sample_weight)
    if not np.array_equal(problem.common["classes_"], tagger.classes_):
        raise ValueError("y has other labels than the tagger's classes_.")
    d = problem.common["n_features_in_"]
    if d != tagger.n_features_in_:
        raise ValueError(
            f"X has {d} features, but the tagger was fitted to {tagger.n_features_in_}.")
    batch, alpha, p = _batch(plain, problem, alpha)

    def objective(w):
        problem.features.restore(w)
        value = float(np.sum(p * batch.risks())) + 0.5 * alpha * inner(w, w)
        return value, lambda: plus(batch.along_change(), alpha, w)

    weights, edge_weights = packed_weights(tagger)
    start = {"weights": np.array(weights)}
    if edge_weights is not None:
        start["edges"] = np.array(edge_weights)
    rows = []

    def on_iterate(n, w, value, gradient):
        rows.append((n, value, -np.inf, np.inf))
        return inner(gradient, gradient) <= (1e-6 * alpha) ** 2 * inner(w, w)

    w = minimise(objective, start, max_iter, on_iterate)
    problem.common.pop("vectorizer_", None)  # the features were made by the tagger's
    refined = _finished(copy.copy(tagger), problem, w, alpha, rows, 1.0)
    refined.__dict__.pop("_warm_state", None)
    return refined


def _batch(estimator, problem, alpha=None):
    """The `Batch` of a problem with the plain L2 penalty, alpha, and the weights of blocks."""
    features = problem.features
    if not problem.loss.outputs.has_tangent:
        raise ValueError(
            f"{type(problem.loss.outputs).__name__} has no tangents of marginals: use single "
            "labels, chains of order 1 without constraints or graphs without cycles.")
    if not features.holds_weights() or not features.has_plain_state():
        raise ValueError(
            "the plain L2 penalty is needed: kernel='linear' and penalty='l2'.")
    if getattr(problem, "free_intercept", None) is not None:
        raise ValueError("fit_intercept='free' is for fit: use True or a number.")
    if alpha is None:
        alpha = problem.alpha
    return Batch(problem.loss, features, problem.weights), alpha, problem.weights


def _finished(estimator, problem, w, alpha, rows, scale):
    """The estimator with the weights w and its fitted attributes.

    rows are (pass, primal, dual, gap) of each iterate.
    """
    problem.features.restore(w)
    estimator._keep(problem.common, problem.task.fitted(problem, alpha, None))
    columns = zip(("pass", "primal", "dual", "gap"), zip(*rows, strict=True), strict=True)
    history = {name: np.array(column) for name, column in columns}
    estimator.alpha_ = alpha
    estimator.n_iter_ = int(history["pass"][-1])
    estimator.primal_objective_ = float(history["primal"][-1])
    estimator.dual_objective_ = float(history["dual"][-1])
    estimator.duality_gap_ = float(history["gap"][-1])
    estimator.relative_gap_ = estimator.duality_gap_ / scale
    estimator.history_ = history
    return estimator
