"""Label ranking: outputs that are rankings of a fixed set of items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice
from fastm4n.data._rankings import (
    FORMS,
    as_places,
    places_to_orderings,
    places_to_strings,
)
from fastm4n.estimators._base import needs_log
from fastm4n.estimators._docs import documented
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.metrics import hamming_ranking_loss
from fastm4n.outputs._base import COST_SCALES
from fastm4n.tasks.permutations import RankingTask, best_permutations, distribution, least_risk

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, RandomState
    from fastm4n.data._types import Matrix
    from fastm4n.estimators._types import Solvers
    from fastm4n.penalties._penalties import Penalties


@documented(
    surrogates=(
        '"max_margin" the structural SVM (M3N); "log" the CRF, whose exact marginals take\n'
        "    2^M steps an example, for M of at most 20."
    ),
    whole="ranking",
    elements="items",
    more=" Example 2.2 and appendix G.3.",
)
class LabelRanker(VectorEstimator):
    """Label ranking by M4N, structural SVM or CRF on permutations, with a certified gap.

    Learns to rank M items for each x. A ranking that puts item i at position p_i scores
    sum_i (``coef_[i, p_i] @ x + intercept_[i, p_i]``), or the same with a kernel. Minimises
    mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2, S being the surrogate of the costs of the
    items, by block-coordinate Frank-Wolfe on the dual.

    Parameters
    ----------
    [surrogate]
    alpha : float, default=0.01
        Regularisation: alpha / 2 times the squared norm of the weights is added to the
        mean loss.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_items, n_items), \
            default="zero_one"
        What a mistake at one item costs: cost[j, k] for putting it at position k where the truth
        is j. A ranking's costs make up the Hamming loss for "zero_one", Spearman's footrule for
        "absolute", and for "squared" what Spearman's rho counts. The "log" surrogate uses it for
        ``decode="min_risk"``, and with `cost_augmented`.
    [cost_scale]
    [tempering]
    [kernel]
    [fit_intercept]
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        How rankings are written, see `fastm4n.data.as_places`: the ranks of the items, the
        items best first, or strings such as "b>a>c". Predictions are of the same form.
    [penalty]
    [solver]
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score, or of the least expected cost under the marginals
        ("log") or the oracle's distribution ("max_min").
    [cache_size]
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many samples
        and the same items and cost_scale; alpha may change. Keeps n_samples x n_items^2
        numbers, twice as many for "log", which starts from fits of "log" alone.
    [running]

    Attributes
    ----------
    coef_ : ndarray of shape (n_items, n_items, n_features)
        Weights of each item at each position, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_items, n_items)
        Coefficients of the training examples, for other kernels.
    [vector_weights]
    intercept_ : ndarray of shape (n_items, n_items)
        Intercepts.
    items_ : ndarray of shape (n_items,)
        The items: the names in y, sorted; for ranks, which name none, 0 ... n_items - 1.
    form_ : str
        The form of y: "ranks", "ordering" or "string".
    cost_matrix_ : ndarray of shape (n_items, n_items)
        The costs of `cost`.
    [certificate]
    [feature_names]

    See Also
    --------
    Matcher : Permutations whose scores come from features of pairs.
    fastm4n.metrics.kendall_tau_score : Agreement of rankings.

    Notes
    -----
    [bound]

    A pass costs O(n_samples (n_features n_items^2 + n_items^3)) and memory is O(n_samples
    n_items^2 + n_features n_items^2) for linear models; O(n_samples^2 n_items^2) and the Gram
    matrix or `cache_size` for kernels.

    References
    ----------
    [references]

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import LabelRanker
    >>> X = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    >>> y = ["tea>milk>water", "tea>milk>water", "water>tea>milk", "water>tea>milk"]
    >>> ranker = LabelRanker(alpha=0.01, random_state=0).fit(X, y)
    >>> ranker.predict([[0.7, 0.1]]).tolist()
    ['tea>milk>water']
    """

    intercept_: FloatArray
    items_: Array
    form_: str

    _task = "rankings"
    _part = "item"
    _fitted_arrays = {
        "items_": (("k",), "USiu"), "cost_matrix_": (("k", "k"), "f"),
        "intercept_": (("k", "k"), "f"),
    }
    _coef_dims = ("k", "k")
    _fitted_values = ("form_", "_base")
    _fitted_marker = "items_"
    _task_class = RankingTask

    def __init__(
        self, surrogate: Literal["max_min", "max_margin", "log"] = "max_min", *,
        alpha: float = 0.01, cost: Cost = "zero_one", cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        kernel: str | Callable[..., Any] = "linear",
        gamma: Literal["scale", "auto"] | float | None = "scale",
        kernel_params: dict[str, Any] | None = None, fit_intercept: bool | float = True,
        form: Literal["auto", "ranks", "ordering", "string"] = "auto",
        penalty: Literal["l2", "elasticnet", "l1"] | Penalties = "l2",
        solver: Literal["auto"] | Solvers = "auto", tol: float = 1e-3, max_iter: int = 1000,
        decode: Literal["map", "min_risk"] = "map", cache_size: float = 2048,
        warm_start: bool = False, n_jobs: int | None = None, random_state: RandomState = None,
        verbose: int = 0, callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.cost_augmented = cost_augmented
        self.temperature = temperature
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.form = form
        self.penalty = penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.cache_size = cache_size
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # -------------------------------------------------------------------------- fit

    def _check_parameters(self):
        self._check_solver_parameters()
        check_choice("cost_scale", self.cost_scale, COST_SCALES)
        self._check_vector_parameters()
        check_choice("form", self.form, FORMS)

    def _check_fitted(self, attributes):
        form, base = attributes["form_"], attributes["_base"]
        check_choice("form_", form, FORMS[1:])
        if base is not None and type(base) is not int or (base is None) == (form == "ranks"):
            raise ValueError("the lowest rank does not fit form_")

    def fit(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        [fit_X]
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            Complete rankings of the same items, without ties; see `form`.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights; 2 is the example given twice, 0 the example left out.

        [fit_outcome]
        """
        return self._fit(X, y, sample_weight)

    # ---------------------------------------------------------------------- predict

    def decision_function(self, X: Matrix) -> FloatArray:
        """Scores of each item at each position.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples, or kernel values with the training examples for
            ``kernel="precomputed"``.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_items, n_items)
            Items as in `items_`, then positions, best first.
        """
        scores = self._scores(X)
        return scores.reshape(-1, self.items_.size, self.items_.size)

    def predict(self, X: Matrix, decode: Literal["map", "min_risk"] | None = None) -> Array:
        """Predicted rankings.

        Parameters
        ----------
        [X]
        [decode]

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_items)
            In the form of the rankings of `fit`.
        """
        places = self._places(X, decode)
        if self.form_ == "ranks":
            return places + self._base
        if self.form_ == "ordering":
            return places_to_orderings(places, self.items_)
        return places_to_strings(places, self.items_)

    def _places(self, X, decode=None):
        decode = self._decoding(decode)
        check_is_fitted(self)
        scores = self.decision_function(X)
        if decode == "map":
            return best_permutations(scores)
        marginals = distribution(self, scores, self.cost_matrix_)
        return least_risk(marginals, scores, self.cost_matrix_)

    @needs_log
    def predict_marginals(self, X: Matrix) -> FloatArray:
        """Probabilities of each item being at each position, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.

        Returns
        -------
        marginals : ndarray of shape (n_samples, n_items, n_items)
            Doubly stochastic matrices, exact.
        """
        return distribution(self, self.decision_function(X), self.cost_matrix_)

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean share of the items that `predict` puts where they are in y.

        Parameters
        ----------
        [X]
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            True rankings of the same items, in the form of those of `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        share : float
            One less the Hamming loss; `fastm4n.metrics` has Kendall's tau and Spearman's rho.
        """
        check_is_fitted(self)
        truth, _ = as_places(y, self.form_, items=self.items_)
        predicted = self._places(X)
        if truth.shape[0] != predicted.shape[0]:
            raise ValueError(
                f"y has {truth.shape[0]} rankings, but X has {predicted.shape[0]} samples."
            )
        return 1.0 - hamming_ranking_loss(
            truth, predicted, form="ranks", sample_weight=sample_weight
        )
