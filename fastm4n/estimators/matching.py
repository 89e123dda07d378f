"""Matching: outputs that are permutations, with scores from features of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice
from fastm4n.base.label_costs import as_kept
from fastm4n.data._sequences import Sequences
from fastm4n.estimators._base import CertifiedEstimator, needs_log
from fastm4n.estimators._docs import documented
from fastm4n.features._pairs import PairFeatures, PairKernelFeatures
from fastm4n.outputs._base import COST_SCALES
from fastm4n.penalties._penalties import Group, as_penalty, resolve_penalty
from fastm4n.tasks.kernels import (
    add_expansion,
    check_kernel,
    checked_diagonal,
    gram_matrix,
    kernel_parameters,
    named_kernel,
)
from fastm4n.tasks.merge import merge_sequences
from fastm4n.tasks.parameters import as_weights, cost_matrix, summable
from fastm4n.tasks.parts import Census
from fastm4n.tasks.permutations import (
    best_permutations,
    distribution,
    least_risk,
    permutation_loss,
)
from fastm4n.tasks.problem import Blocks, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.estimators._types import Solvers
    from fastm4n.penalties._penalties import Penalties


class PairProblem(Problem):
    """The problem of a `Matcher`."""

    def fitted(self, mu: FloatArray, alpha: float) -> dict[str, FloatArray]:
        if "X_fit_" not in self.common:
            return {"coef_": self.features.coef()}
        outputs = self.loss.outputs
        p = np.repeat(self.weights / alpha, outputs.layout.sizes())
        return {"dual_coef_": p * (outputs.truth() - mu)}


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
    _noun = "example"
    _replaced = ("coef_", "dual_coef_", "X_fit_", "_kernel_parameters")

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
        return self._fit_or_restore(X, y, sample_weight)

    def _census(self, X, y, sample_weight=None):
        """The `Census` of examples with a matching each."""
        if y is None:
            raise ValueError("y is missing: each example needs a matching.")
        values, sizes = _as_pairs(X)
        _as_matchings(y, sizes)
        weights = as_weights(sample_weight, sizes.size, "example")
        kept = weights > 0
        same = {"columns": values.shape[1]}
        if not isinstance(self.cost, str):
            same["sizes"] = np.unique(sizes)
        return Census(
            int(kept.sum()), None, same, {"weight": weights.sum()},
            size=int(sizes[kept].max(initial=0)))

    def _problem(self, X, y, sample_weight):
        self._check_parameters()
        values, sizes = _as_pairs(X)
        places = _as_matchings(y, sizes)
        weights = as_weights(sample_weight, sizes.size, "example")
        kept = np.flatnonzero(weights)
        starts = np.concatenate([[0], np.cumsum(sizes**2)])
        # the pairs of an example are a sequence, labelled by the columns of their rows
        pairs = Sequences(values, starts)
        columns = np.concatenate([np.repeat(places[b], sizes[b]) for b in kept])
        weights = summable(weights[kept])
        blocks = Blocks.of(
            sizes.size, kept, weights, *merge_sequences(pairs, columns, weights, kept))
        if not isinstance(self.cost, str) and (sizes != sizes[0]).any():
            raise ValueError(
                "cost is a matrix, which needs examples of one size, but X has examples of "
                f"{sizes.min()} to {sizes.max()} rows; use a name."
            )
        block_sizes = sizes[blocks.examples]
        cost = cost_matrix(self.cost, int(block_sizes.max()), "columns")
        loss = permutation_loss(
            self, np.concatenate([places[b] for b in blocks.examples]), block_sizes, cost)
        features, points, parameters = self._features(pairs, blocks, loss.outputs.layout)
        if self._whole is not None and self._whole.size > len(cost):
            cost = cost_matrix(self.cost, self._whole.size, "columns")
        common = {"n_features_in_": values.shape[1], "_cost_held": as_kept(cost)}
        if self.kernel != "linear":
            common.update(X_fit_=points, _kernel_parameters=parameters)

        task = {"surrogate": self.surrogate, "cost_scale": self.cost_scale, "sizes": sizes}
        return PairProblem(loss, features, blocks, common, task)

    def _naming(self, problem):
        return named_kernel(self.kernel)

    def _features(self, pairs, blocks, layout):
        """Feature map over the blocks; for kernels also the rows that it has, and parameters."""
        values = pairs.values
        if self.kernel == "linear":
            with np.errstate(over="ignore"):
                norms = np.einsum("ij,ij->i", values, values) / self.alpha
            large = np.flatnonzero(~np.isfinite(norms))
            if large.size:
                raise ValueError(
                    "X has values too large for float64: the squared norm of row "
                    f"{large[0]} of all pairs divided by alpha={self.alpha:g} overflows. "
                    "Scale the features."
                )
            features = PairFeatures(values, pairs.offsets[blocks.examples], layout)
            resolved = resolve_penalty(self.penalty, {"coef": (values.shape[1],)})
            if resolved is not None:
                features.set_penalty(
                    resolved.of_rows((1, values.shape[1]), 0, lambda packed: {"coef": packed[0]}))
            return features, None, None
        points, counts = pairs[blocks.examples].values, layout.sizes()
        needed = 8.0 * len(points)**2 / 2.0**20
        if needed > self.cache_size:
            raise ValueError(
                f"kernel={self.kernel!r} needs {needed:.3g} MiB for "
                f"{len(points)} pairs, and cache_size is {self.cache_size:g}; raise it, or use "
                "kernel='linear' on features of sklearn.kernel_approximation.Nystroem."
            )
        parameters = kernel_parameters(
            self.kernel, points, np.repeat(blocks.weights / counts, counts), gamma=self.gamma,
            kernel_params=self.kernel_params,
        )
        gram = gram_matrix(self.kernel, parameters, points)
        checked_diagonal(self.kernel, np.diagonal(gram), self.alpha)
        return PairKernelFeatures(gram, layout), points, parameters

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
        values, sizes = _as_pairs(X)
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
        truth = _as_matchings(y, np.array([len(columns) for columns in predicted], dtype=np.intp))
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


def _as_pairs(X):
    """Features of all pairs, (n_pairs, n_features) in float64, and the examples' sizes."""
    if isinstance(X, np.ndarray) and X.dtype != object:
        parts = [X]
        if X.ndim != 4:
            raise ValueError(
                "X must have shape (n_examples, M, M, n_features), or be a list of arrays of "
                f"shape (M_i, M_i, n_features); got shape {X.shape}."
            )
        if X.shape[0] == 0:
            raise ValueError("X has no examples.")
        shapes = [X.shape[1:]] * X.shape[0]
    else:
        if isinstance(X, (str, bytes, dict)) or not hasattr(X, "__len__") or sparse.issparse(X):
            raise ValueError("X must be an array, or a list with an array for each example.")
        if len(X) == 0:
            raise ValueError("X has no examples.")
        parts = []
        for b, part in enumerate(X):
            try:
                parts.append(np.asarray(part))
            except ValueError as error:
                raise ValueError(f"X[{b}] is not an array: {error}") from error
        shapes = [part.shape for part in parts]
    for b, shape in enumerate(shapes):
        if len(shape) != 3 or shape[0] != shape[1]:
            raise ValueError(
                f"X[{b}] has shape {shape}; it must be (M, M, n_features): as many rows as columns."
            )
        if shape[0] == 0 or shape[2] == 0:
            raise ValueError(f"X[{b}] has shape {shape}: it has no pairs or no features.")
        if shape[2] != shapes[0][2]:
            raise ValueError(f"X[{b}] has {shape[2]} features, but X[0] has {shapes[0][2]}.")
    for b, part in enumerate(parts):
        if part.dtype.kind not in "biuf":
            raise ValueError(f"X must hold real numbers, got {part.dtype} in X[{b}].")
    sizes = np.array([shape[0] for shape in shapes], dtype=np.intp)
    flat = [part.reshape(-1, shapes[0][2]) for part in parts]
    values = flat[0] if len(flat) == 1 else np.concatenate(flat)
    values = np.ascontiguousarray(values, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        suspect = not np.isfinite(np.sum(values))  # a sum is cheap, but may overflow
    if suspect and not np.isfinite(values).all():
        row, feature = np.argwhere(~np.isfinite(values))[0]
        ends = np.cumsum(sizes**2)
        b = int(np.searchsorted(ends, row, side="right"))
        i, j = divmod(int(row - (ends[b] - sizes[b] ** 2)), int(sizes[b]))
        raise ValueError(
            f"X[{b}] has {values[row, feature]} at pair ({i}, {j}), feature {feature}: features "
            "must be finite."
        )
    return values, sizes


def _as_matchings(y, sizes):
    """A list of the examples' permutations, as intp arrays."""
    if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
        raise ValueError("y must be a list with a permutation for each example.")
    if hasattr(y, "__array__"):
        y = np.asarray(y)  # data frames are iterated over by their columns
    if len(y) != sizes.size:
        raise ValueError(f"y has {len(y)} matchings, but X has {sizes.size} examples.")
    places = []
    for b, given in enumerate(y):
        try:
            part = np.asarray(given)
        except ValueError as error:
            raise ValueError(f"y[{b}] is not a permutation: {error}") from error
        size = int(sizes[b])
        if part.shape != (size,):
            raise ValueError(
                f"y[{b}] has shape {part.shape}, but X[{b}] has {size} rows: give the column "
                "of each."
            )
        whole = part.dtype.kind in "iu" or (
            part.dtype.kind == "f" and np.isfinite(part).all() and (part == part.round()).all()
        )
        if not whole or part.min() < 0 or part.max() >= size or np.unique(part).size != size:
            raise ValueError(
                f"y[{b}] is {part.tolist()}, which is not a permutation of 0 ... {size - 1}: every "
                "row needs a column of its own."
            )
        places.append(part.astype(np.intp))
    return places
