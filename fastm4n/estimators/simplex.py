"""Classification and ordinal regression: outputs that are one of k labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fastm4n.base.checks import extended
from fastm4n.base.label_costs import name_of
from fastm4n.estimators._base import needs_log
from fastm4n.estimators._docs import BOOSTING, documented
from fastm4n.estimators._partial import PartialFit
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.inference import max_min_absolute, max_min_game, max_min_zero_one, softmax
from fastm4n.outputs._simplex import closed_form
from fastm4n.tasks.labels import LabelTask, LevelTask
from fastm4n.tasks.levels import levels_of, places
from fastm4n.tasks.parameters import BOOSTED, LABEL_KINDS, warn_of_unknown
from fastm4n.tasks.places import check_lengths, check_present

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, RandomState
    from fastm4n.data._types import Matrix
    from fastm4n.estimators._types import Solvers
    from fastm4n.penalties._penalties import Penalties


@documented()
class _SimplexClassifier(ClassifierMixin, PartialFit, VectorEstimator):
    """What the two estimators share: everything but the default cost and how labels are read."""

    coef_: Any
    intercept_: FloatArray
    classes_: Array

    _surrogates = BOOSTED
    _fitted_arrays = {
        "classes_": (("k",), LABEL_KINDS), "cost_matrix_": (("k", "k"), "f"),
        "intercept_": (("k",), "f"),
    }
    _free_intercepts = True

    def __init__(
        self, surrogate: Literal["max_min", "max_margin", "log", "boost"] = "max_min", *,
        alpha: float = 0.01, cost: Cost = "zero_one", cost_augmented: bool = False,
        temperature: float = 1.0, kernel: str | Callable[..., Any] = "linear",
        gamma: Literal["scale", "auto"] | float | None = "scale",
        kernel_params: dict[str, Any] | None = None,
        fit_intercept: bool | Literal["free"] | float = True,
        penalty: Literal["l2", "elasticnet", "l1"] | Penalties = "l2",
        solver: Literal["auto"] | Solvers = "auto", tol: float = 1e-3, max_iter: int = 1000,
        decode: Literal["map", "min_risk"] = "map",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        cache_size: float = 2048, warm_start: bool = False, n_jobs: int | None = None,
        random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_augmented = cost_augmented
        self.temperature = temperature
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.penalty = penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.class_weight = class_weight
        self.cache_size = cache_size
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------- validation

    def _check_parameters(self):
        self._check_solver_parameters()
        self._check_vector_parameters()

    # -------------------------------------------------------------------------- fit

    def fit(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        [fit_X]
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights; 2 is the example given twice, 0 the example left out.

        [fit_outcome]
        """
        return self._fit(X, y, sample_weight)

    # ---------------------------------------------------------------------- predict

    def decision_function(self, X: Matrix) -> FloatArray:
        """Scores of the classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples, or kernel values with the training examples for
            ``kernel="precomputed"``.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes)
            ``X @ coef_.T + intercept_`` or ``K(X, X_fit_) @ dual_coef_ + intercept_``. For two
            classes, of shape (n_samples,): the score of ``classes_[1]`` less that of
            ``classes_[0]``.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Matrix, decode: Literal["map", "min_risk"] | None = None) -> Array:
        """Predicted labels.

        Parameters
        ----------
        [X]
        [decode]

        Returns
        -------
        y : ndarray of shape (n_samples,)
            One of `classes_` each.
        """
        decode = self._decoding(decode)
        check_is_fitted(self)
        if decode == "min_risk":
            self._check_has_distribution("the classes")
        scores = self._scores(X)
        if decode == "map":
            return self.classes_[np.argmax(scores, axis=1)]
        if scores.shape[0] == 0:
            return self.classes_[:0]
        mu = self._distribution(scores)
        if name_of(self._cost_table) == "zero_one":
            return self.classes_[np.argmax(mu, axis=1)]
        return self.classes_[np.argmin(mu @ self.cost_matrix_, axis=1)]

    def _distribution(self, scores):
        """The maximiser of the surrogate's oracle: a distribution over the classes."""
        if self.surrogate == "log":
            return softmax(scores / self.temperature)[0]
        cost = closed_form(self._cost_table)
        if cost == "zero_one":
            return max_min_zero_one(scores)[0]
        if cost == "absolute":
            return max_min_absolute(scores)[0]
        return max_min_game(scores, self.cost_matrix_)[0]

    @needs_log
    def predict_proba(self, X: Matrix) -> FloatArray:
        """Probabilities of the classes, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Softmax of the scores over the temperature, columns as in `classes_`.
        """
        return self._distribution(self._scores(X))

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of `predict`.

        Parameters
        ----------
        [X]
        y : array-like of shape (n_samples,)
            True labels. One that is not in `classes_` counts as an error, with a warning.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        accuracy : float
        """
        check_is_fitted(self)
        labels = np.asarray(y)
        check_lengths(X, labels)
        if levels_of(y) is not None:
            labels = column_or_1d(labels, warn=True)
            check_present(labels)
            warn_of_unknown(labels.tolist(), self.classes_)
            # by numbers: scikit-learn knows labels of few types, and categories are of any
            truth, found = (places(each, self.classes_) for each in (labels, self.predict(X)))
            return float(accuracy_score(truth, found, sample_weight=sample_weight))
        if labels.dtype.kind == "f":
            labels = labels[~np.isnan(labels)]  # refused by name below
        warn_of_unknown(np.unique(labels).tolist(), self.classes_)
        return super().score(X, y, sample_weight)


# parts of the docstrings of both
_PARTS = {
    "scale": """
alpha : float, default=0.01
    Regularisation: alpha / 2 times the squared norm of the weights is added to the
    mean loss. For n examples ``LinearSVC(multi_class="crammer_singer", C=C)`` is "max_margin"
    with alpha = 1 / (C n). ``LogisticRegression(C=C)`` is "log" with the same alpha, or 2 / (C n)
    for two classes, and ``fit_intercept="free"``.
cost : {{"zero_one", "absolute", "squared"}} or array of shape (n_classes, n_classes), \
        default="{default_cost}"
    What a mistake costs: cost[i, j] for predicting ``classes_[j]`` where the truth is
    ``classes_[i]``. The names take the classes' positions in `classes_`. The "log"
    surrogate uses it for ``decode="min_risk"``, and with `cost_augmented`.
""",
    "choices": """
decode : {{"map", "min_risk"}}, default="map"
    Prediction of the highest score, or of the least expected cost under the
    probabilities ("log") or the oracle's distribution ("max_min").
class_weight : dict or "balanced", default=None
    Factors on the sample weights by class; "balanced" gives every class the same sum.
""",
    "warm_start": """
warm_start : bool, default=False
    Whether to start from the dual point of the last fit, if that had as many samples
    and the same classes; alpha may change. Keeps n_samples x n_classes numbers.
""",
    "labels": """
intercept_ : ndarray of shape (n_classes,)
    Intercepts.
classes_ : ndarray of shape (n_classes,)
    The labels, sorted; of a y of ordered categories all of these in their order, where costs are
    not "zero_one".
cost_matrix_ : ndarray of shape (n_classes, n_classes)
    The costs of `cost`.
""",
    "weights": """
coef_ : ndarray of shape (n_classes, n_features)
    Weights, for ``kernel="linear"``.
dual_coef_ : ndarray of shape (n_samples, n_classes)
    Coefficients of the training examples, for other kernels.
""",
    "work": """
A pass costs O(n_samples n_features n_classes) and memory is O(n_samples n_classes +
n_features n_classes) for linear models; O(n_samples^2 n_classes) and the Gram matrix
or `cache_size` for kernels.
""",
}
_WORDS = dict(
    **BOOSTING,
    parts=_PARTS,
    surrogates=(
        '"max_margin" the multi-class SVM of Crammer and Singer (M3N, structural\n'
        '    SVM); "log" multinomial logistic regression (CRF).'
    ),
    free=', "free"',
    unpenalised=(
        ' With "free" there is no penalty: the\n'
        "    fit is a few warm-started ones, drawn to the last intercept each time (the\n"
        "    proximal-point method), and its gap is certified for the problem without it. Linear\n"
        "    models centre a copy of dense features for it; sparse ones are taken as they are."
    ),
    oracles="exact oracles",
)


@documented(**_WORDS, default_cost="zero_one")
class MulticlassClassifier(_SimplexClassifier):
    """Multi-class classification by M4N, structural SVM or CRF, with a certified gap.

    Minimises mean_i S(w' x_i, y_i) + alpha / 2 ||w||^2 over the weights w of a linear model or
    of a kernel, S being the surrogate of the given cost, by block-coordinate Frank-Wolfe on
    the dual.

    Parameters
    ----------
    [surrogate]
    [scale]
    [tempering]
    [kernel]
    [fit_intercept]
    [penalty]
    [solver]
    [choices]
    [cache_size]
    [warm_start]
    [running]

    Attributes
    ----------
    [weights]
    [vector_weights]
    [labels]
    [certificate]
    [feature_names]

    See Also
    --------
    OrdinalClassifier : The same for ordered levels.

    Notes
    -----
    [bound]

    [work]

    References
    ----------
    [references]

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier(alpha=0.01, random_state=0).fit(X, y)
    >>> bool(clf.relative_gap_ <= 1e-3)
    True
    >>> clf.predict(X[:2])
    array([0, 0])
    """

    _task = "classes"
    _task_class = LabelTask


@documented(**_WORDS, default_cost="absolute")
class OrdinalClassifier(_SimplexClassifier):
    """Classification into ordered levels, with a certified gap.

    `MulticlassClassifier` with a cost that grows with the distance between levels, ``|i - j|``
    by default, whose max-min oracle has a closed form.

    Parameters
    ----------
    [surrogate]
    [scale]
    [tempering]
    [kernel]
    [fit_intercept]
    [penalty]
    [solver]
    [choices]
    [cache_size]
    [warm_start]
    [running]
    levels : array-like of shape (n_levels,), default=None
        All levels, lowest first; for levels whose order is not that of sorting, or that
        may be missing from y. By default those of y where it has ordered categories (pandas,
        ``polars.Enum``, ordered dictionaries of Arrow), all of them and in their order; else the
        sorted labels of y, with a warning where these are no numbers.

    Attributes
    ----------
    [weights]
    [vector_weights]
    [labels]
    [certificate]
    [feature_names]

    See Also
    --------
    MulticlassClassifier : The same for classes without an order.

    Notes
    -----
    [bound]

    [work]

    References
    ----------
    [references]

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import OrdinalClassifier
    >>> X = np.linspace(0, 3, 40)[:, None]
    >>> y = np.array(["low", "mid", "high"])[np.minimum(X[:, 0].astype(int), 2)]
    >>> clf = OrdinalClassifier(alpha=1e-3, levels=["low", "mid", "high"], random_state=0)
    >>> clf.fit(X, y).predict([[0.2], [1.5], [2.9]]).tolist()
    ['low', 'mid', 'high']
    """

    _task = "ordered"
    _task_class = LevelTask

    def __init__(
        self, surrogate: Literal["max_min", "max_margin", "log", "boost"] = "max_min", *,
        cost: Cost = "absolute", levels: ArrayLike | None = None, **parameters: Any,
    ) -> None:
        super().__init__(surrogate, cost=cost, **parameters)
        self.levels = levels

    # the parameters of the base, and what is another here
    __init__.__signature__ = extended(_SimplexClassifier.__init__, cost="absolute", levels=None)
