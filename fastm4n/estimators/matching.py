"""Matching: outputs that are permutations, with scores from features of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice
from fastm4n.estimators._base import CertifiedEstimator, needs_log
from fastm4n.estimators._docs import documented
from fastm4n.outputs._base import COST_SCALES
from fastm4n.penalties._penalties import Group, as_penalty
from fastm4n.tasks.kernels import add_expansion, check_kernel
from fastm4n.tasks.parameters import as_weights, cost_matrix, summable
from fastm4n.tasks.permutations import (
    MatchingTask,
    as_matchings,
    as_pairs,
    best_permutations,
    distribution,
    least_risk,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.estimators._types import Solvers
    from fastm4n.penalties._penalties import Penalties


@documented(
    surrogates=(
        '"max_margin" the structural SVM (M3N); "log" the CRF, whose exact marginals take\n'
        "    2^M steps an example, for M of at most 20."
    ),
    kernels=" or a callable, between the features of\n    pairs,",
    examples="examples",
    Examples="Examples",
    of_what=" of a pair",
    whole="matching",
    elements="pairs",
    more=" Example 2.2 and appendix G.3.",
)
class Matcher(CertifiedEstimator):
    """Matching of two sets by M4N, structural SVM or CRF on permutations, with a certified gap.

    Learns to match M things with M others, from features x_ij of each pair: the nodes of two
    graphs, or points in two frames. A matching p scores sum_i ``coef_ @ x[i, p_i]``, or the same
    with a kernel. Minimises mean_i S(scores of X_i, y_i) + alpha / 2 ||w||^2, S being the
    surrogate of the costs of the things matched, by block-coordinate Frank-Wolfe on the dual.

    Parameters
    ----------
    [surrogate]
    alpha : float, default=0.1
        Regularisation: alpha / 2 times the squared norm of the weights is added to the
        mean loss.
    cost : {"zero_one", "absolute", "squared"} or array of shape (M, M), default="zero_one"
        What a mistake costs: cost[j, k] for matching with k what belongs to j. "absolute" and
        "squared" take columns as ordered. A matrix needs examples of one size. The "log"
        surrogate uses it for ``decode="min_risk"``, and with `cost_augmented`.
    [cost_scale]
    [tempering]
    [kernel]
    [penalty]
    [solver]
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score, or of the least expected cost under the marginals
        ("log") or the oracle's distribution ("max_min").
    cache_size : float, default=2048
        Most memory for kernel values in MiB: 8 bytes for each two pairs of things.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many
        examples of the same sizes and the same surrogate and cost_scale; alpha may change.
    [running]

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_pairs,)
        Coefficients of the training examples' pairs, for other kernels.
    X_fit_ : ndarray of shape (n_pairs, n_features)
        Those pairs' features, example after example and row after row.
    cost_matrix_ : ndarray of shape (M, M)
        The costs of `cost`, M being the largest size; of smaller examples the first rows and
        columns count.
    [certificate]

    See Also
    --------
    LabelRanker : Rankings of a fixed set of items, from one vector of features.
    fastm4n.data.document_pairs : Documents of queries, to be matched with ranks.

    Notes
    -----
    A feature that is the same for all pairs of a row, or of a column, adds the same to the score of
    every matching and learns nothing; so there is no intercept.

    [bound]

    A pass costs O(n_pairs n_features + n_examples M^3) and memory is that of the features and
    O(n_pairs + n_features); for kernels O(n_pairs^2) both.

    References
    ----------
    [references]

    Examples
    --------
    Points in two frames; the features of a pair are squared differences of the coordinates.

    >>> import numpy as np
    >>> from fastm4n import Matcher
    >>> rng = np.random.default_rng(0)
    >>> before = rng.normal(size=(30, 5, 2))
    >>> y = rng.permuted(np.tile(np.arange(5), (30, 1)), axis=1)
    >>> after = np.empty_like(before)
    >>> np.put_along_axis(after, y[:, :, None], before + 0.01 * rng.normal(size=(30, 5, 2)), 1)
    >>> X = (before[:, :, None] - after[:, None]) ** 2
    >>> matcher = Matcher(alpha=1e-3, random_state=0).fit(X[:20], y[:20])
    >>> float(matcher.score(X[20:], y[20:]))
    1.0
    """

    coef_: FloatArray
    dual_coef_: FloatArray
    X_fit_: FloatArray

    _task = "matchings"
    _part = "row"
    _fitted_arrays = {"cost_matrix_": (("k", "k"), "f")}
    _coef_dims = ()
    _fitted_marker = "n_features_in_"
    _replaced = ("coef_", "dual_coef_", "X_fit_", "_kernel_parameters")
    _task_class = MatchingTask

    def __init__(
        self, surrogate: Literal["max_min", "max_margin", "log"] = "max_min", *, alpha: float = 0.1,
        cost: Cost = "zero_one", cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        kernel: str | Callable[..., Any] = "linear",
        gamma: Literal["scale", "auto"] | float | None = "scale",
        kernel_params: dict[str, Any] | None = None,
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
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = False
        tags.target_tags.required = True
        return tags

    # -------------------------------------------------------------------------- fit

    def _check_parameters(self):
        self._check_solver_parameters()
        check_choice("cost_scale", self.cost_scale, COST_SCALES)
        check_kernel(self)
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' is not supported for pairs; give a name or a callable."
            )
        self._check_penalty_kernel()
        if isinstance(as_penalty(self.penalty), Group):
            raise ValueError(
                f"penalty={self.penalty!r} needs several labels, and a feature of a Matcher has "
                "one weight; use ElasticNet.")

    def fit(
        self, X: ArrayLike | Sequence[ArrayLike], y: ArrayLike | Sequence[ArrayLike],
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : array-like of shape (n_examples, M, M, n_features), or list of array-like of shape \
                (M_i, M_i, n_features)
            Features of each pair.
        y : array-like of int of shape (n_examples, M), or list of array-like of shape (M_i,)
            y[b][i] is the column that belongs to row i: a permutation of 0 ... M_i - 1.
        sample_weight : array-like of shape (n_examples,), default=None
            Non-negative weights; 2 is the example given twice, 0 the example left out.

        [fit_outcome]
        """
        return self._fit(X, y, sample_weight)

    # ---------------------------------------------------------------------- predict

    @overload
    def decision_function(self, X: Array) -> FloatArray: ...
    @overload
    def decision_function(self, X: Sequence[ArrayLike]) -> list[FloatArray]: ...
    def decision_function(self, X: ArrayLike | Sequence[ArrayLike]) -> Any:
        """Scores of all pairs.

        Parameters
        ----------
        X : as in `fit`
            Features of each pair.

        Returns
        -------
        scores : ndarray of shape (n_examples, M, M), or list of ndarray of shape (M_i, M_i)
            A list where X is a list.
        """
        return _shaped(X, self._scores(X))

    def _scores(self, X):
        """A list with a matrix of scores for each example."""
        check_is_fitted(self)
        values, sizes = as_pairs(X)
        self._check_n_features(values)
        if hasattr(self, "coef_"):
            scores = values @ self.coef_
        else:
            support = np.flatnonzero(self.dual_coef_)
            scores = add_expansion(
                self, values, self.X_fit_[support], self.dual_coef_[support],
                np.zeros(values.shape[0]))
        ends = np.cumsum(sizes**2)
        return [
            scores[end - size**2 : end].reshape(size, size)
            for end, size in zip(ends, sizes, strict=True)
        ]

    @overload
    def predict(self, X: Array, decode: Literal["map", "min_risk"] | None = None) -> IntArray: ...
    @overload
    def predict(
        self, X: Sequence[ArrayLike], decode: Literal["map", "min_risk"] | None = None,
    ) -> list[IntArray]: ...
    def predict(
        self, X: ArrayLike | Sequence[ArrayLike], decode: Literal["map", "min_risk"] | None = None,
    ) -> Any:
        """Predicted matchings.

        Parameters
        ----------
        X : as in `fit`
            Features of each pair.
        [decode]

        Returns
        -------
        y : ndarray of shape (n_examples, M), or list of ndarray of shape (M_i,)
            The column matched to each row. A list where X is a list.
        """
        decode = self._decoding(decode)
        scores = self._scores(X)
        if decode == "map":
            return _shaped(X, _by_size(best_permutations, scores))
        return _shaped(X, _by_size(
            lambda batch: least_risk(self._distribution(batch), batch, self._cost_of(batch)),
            scores,
        ))

    def _cost_of(self, batch):
        """The costs of examples of one size, which may be larger than those of the fit."""
        size = batch.shape[1]
        if size <= self._cost_table.shape[0]:
            return np.ascontiguousarray(self._cost_table[:size, :size])
        if not isinstance(self.cost, str):
            raise ValueError(
                f"X has an example of {size} rows, but cost is a matrix for "
                f"{self._cost_table.shape[0]}; predict with decode='map'."
            )
        return np.ascontiguousarray(cost_matrix(self.cost, size, "columns"))

    def _distribution(self, batch):
        return distribution(self, batch, self._cost_of(batch))

    @needs_log
    def predict_marginals(self, X: ArrayLike | Sequence[ArrayLike]) -> Any:
        """Probabilities of each pair being matched, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : as in `fit`
            Features of each pair.

        Returns
        -------
        marginals : ndarray of shape (n_examples, M, M), or list of ndarray of shape (M_i, M_i)
            Doubly stochastic matrices, exact. A list where X is a list.
        """
        return _shaped(X, _by_size(self._distribution, self._scores(X)))

    def score(
        self, X: ArrayLike | Sequence[ArrayLike], y: ArrayLike | Sequence[ArrayLike],
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Mean share of the rows that `predict` matches as in y.

        Parameters
        ----------
        X, y : as in `fit`
            Features of each pair, and true matchings.
        sample_weight : array-like of shape (n_examples,), default=None
            Weights.

        Returns
        -------
        share : float
            One less the mean Hamming loss.
        """
        predicted = self.predict(X)
        truth = as_matchings(y, np.array([len(columns) for columns in predicted], dtype=np.intp))
        right = [np.mean(a == b) for a, b in zip(truth, predicted, strict=True)]
        weights = None
        if sample_weight is not None:
            weights = summable(as_weights(sample_weight, len(right), "example"))
        return float(np.average(right, weights=weights))


def _shaped(X, parts):
    """One array where X is one, or the list."""
    return np.stack(parts) if isinstance(X, np.ndarray) and X.dtype != object else parts


def _by_size(function, matrices):
    """function(batch) for the matrices of each size at once; a list in their order."""
    sizes = np.array([len(matrix) for matrix in matrices])
    results = [None] * len(matrices)
    for size in np.unique(sizes):
        chosen = np.flatnonzero(sizes == size)
        batch = np.stack([matrices[b] for b in chosen])
        for b, result in zip(chosen, function(batch), strict=True):
            results[b] = result
    return results
