"""Matching of rows and columns, with scores from features of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from fastm4n.base.checks import is_number
from fastm4n.estimators._base import CertifiedEstimator, needs_log
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.penalties._penalties import as_penalty
from fastm4n.tasks.kernels import check_kernel
from fastm4n.tasks.matchings import MatchingTask, as_matchings
from fastm4n.tasks.parameters import as_weights, summable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.estimators._types import (
        Alpha,
        CostScale,
        Decoding,
        Gamma,
        Kernel,
        PenaltyLike,
        SolverLike,
        SurrogateLike,
        Tol,
        Unmatched,
    )


class Matcher(PartialFitOfWeights, CertifiedEstimator):
    """Matching of two sets by M4N, structural SVM or CRF, with a certified gap.

    Learns to match n rows with m columns from features x_ij of each pair, for example the nodes of
    two graphs, or detections in two frames. Each row and each column is in one pair at most. The
    score of a pair is ``coef_ @ x[i, j]``, or a kernel expansion. The score of a matching is the
    sum over its pairs, and over the rows that are left unmatched if these have a score. Minimises
    mean_i S(scores of X_i, y_i) + alpha / 2 ||w||^2 by block-coordinate Frank-Wolfe on the dual. S
    is the surrogate of the costs of the rows.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, default="max_min"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of the weights is added to the mean loss.
        "auto" is 10 / n, n being the sum of the sample weights. The margins divide it by the mean
        cost of different columns.
    cost : {"zero_one", "absolute", "squared"} or array of shape (m, m) or (m + 1, m + 1), \
default="zero_one"
        Costs of mistakes: cost[j, k] for matching a row with column k instead of j. "zero_one"
        counts an unmatched row as a column of its own. "absolute" and "squared" use the order of
        the columns, and no row may be unmatched. A matrix needs examples of m columns each. If rows
        may be unmatched, its last row and column are for those. "log" uses costs for
        ``decode="min_risk"``, and in the fit if it is cost-augmented.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the M parts of an example are added or averaged. With "mean", as in the
        papers, mistakes in large examples need small margins only. If all examples have M parts,
        "sum" with alpha is "mean" with M alpha, and the weights are M times as large. "log" uses
        costs only if it is cost-augmented. ``decode="min_risk"`` under "max_min" has the same
        scale.
    unmatched : None, "learn" or float, default=None
        The score of a row that is left unmatched. With "learn" it is a weight, `unmatched_coef_`,
        penalised like the others. A number is a given score: a price p for each unmatched row is
        the score -p. An unmatched column scores nothing, so a price of columns is to be added to
        that of rows. None makes as many pairs as possible: min(n, m), at whatever scores.
    kernel : str or callable, default="linear"
        "linear" fits weights. Other kernels of `sklearn.metrics.pairwise.pairwise_kernels` and
        callables, between the features of pairs, fit dual coefficients, and take ``penalty="l2"``
        only. The matrix of the kernel must fit in `kernel_cache_size` of the solver.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Kernel coefficient, as in `sklearn.svm.SVC`. None is the kernel's own default.
    kernel_params : dict, default=None
        Other arguments of the kernel, for example ``{"degree": 3, "coef0": 1.0}``, the defaults of
        the polynomial kernel.
    penalty : {"l2", "elasticnet", "l1"} or object of fastm4n.penalties, default="l2"
        The penalty that alpha multiplies. "l2" is ||w||^2 / 2. "l1" is the sum of absolute values,
        which makes weights exactly zero, and "elasticnet" is the mean of both. The objects of
        `fastm4n.penalties` have options, such as bounds and groups of weights. The gap is certified
        for the problem with this penalty.
    solver : "auto", BlockFrankWolfe, LabelNewton, QuasiNewton, CuttingPlanes, InteriorPoint or \
OutOfCore, default="auto"
        The solver, with nested options such as ``solver__step``. "auto" is `BlockFrankWolfe`, with
        steps and a cache chosen by counts of the work, or a solver that is faster: `LabelNewton`
        for single labels, `QuasiNewton` for few and long outputs, `CuttingPlanes` for graphs of few
        weights, `InteriorPoint` for rankings under "max_min". `history_` records the choice.
        `OutOfCore` is for data that do not fit in memory.
    tol : float or "auto", default="auto"
        Relative gap (`relative_gap_`) at which the fit ends: the certified duality gap, divided by
        the objective at zero weights. At least 0 and below 1. "auto" is 1e-3 for "log" and 1e-2 for
        the margins, whose predictions a smaller gap hardly changes.
    max_iter : int, default=1000
        Maximum number of passes over the examples.
    decode : {"auto", "map", "min_risk"}, default="auto"
        Prediction of the highest score ("map"), or of the least expected cost under the marginals
        ("log") or the oracle's distribution ("max_min"). "auto" is "min_risk" for "log" if
        costs are not 0-1, and "map" otherwise.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if it had as many examples of the same
        sizes, and the same surrogate and cost_scale. alpha may change.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits. An int gives the same bits on the same machine.
    verbose : int, default=0
        Whether to show a progress bar (with tqdm) and to write to the log "fastm4n".
    callback : callable, default=None
        Function that is called after each certificate with its row of `history_`, a dict. If it
        returns something true, the fit ends.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights, for ``kernel="linear"``.
    unmatched_coef_ : float
        Score of an unmatched row, for ``unmatched="learn"``.
    dual_coef_ : ndarray of shape (n_pairs,)
        Coefficients of the pairs of the training examples, for other kernels.
    X_fit_ : ndarray of shape (n_pairs, n_features)
        Features of those pairs, example after example and row after row.
    cost_matrix_ : ndarray of shape (m, m) or (m + 1, m + 1)
        Matrix of the costs, m being the largest number of columns, with a last row and column for
        unmatched rows if there may be some. Examples of fewer columns use the first rows and
        columns.
    alpha_ : float
        The alpha of the fit.
    tol_ : float
        The tol of the fit.
    relative_gap_ : float
        Certified duality gap, divided by the objective at zero weights. At most `tol`, unless the
        fit ran out of passes.
    duality_gap_ : float
        The same gap in units of the objective, which is at most this much above its minimum.
    primal_objective_, dual_objective_ : float
        Certified objective values. Their difference is the gap.
    interrupted_ : bool
        Whether Ctrl-C ended the fit. The weights are then the best certified ones.
    n_iter_ : int
        Number of passes.
    history_ : dict of ndarray
        Values at each certificate: "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
        "oracle_error" (mean difference of the oracle's bounds during the pass), "cache_hits"
        (visits without an oracle call) and "policy" (the step, and whether there is a cache).
    certified_for_ : {"data", "change"}
        The objective that the gap is for: that of all data, or that of `partial_fit` for weights
        whose data are not there.
    n_seen_ : float or None
        Sum of the weights of the examples that the weights were fitted to, None if it is not known,
        for files of CRFsuite and of older releases. `partial_fit` goes by it, and it may be set.
    n_features_in_ : int
        Number of features of a pair.

    See Also
    --------
    LabelRanker : Rankings of the same items, from one vector of features.
    fastm4n.data.document_pairs : Documents of queries, to be matched with ranks.

    Notes
    -----
    There is no intercept. If all rows and columns are matched, a feature that is equal for all
    pairs of a row, or of a column, adds the same number to the score of every matching. If rows may
    be unmatched, `unmatched` has the place of an intercept.

    With a kernel, the score of unmatched rows has a kernel of its own: 1 between two unmatched
    rows, and 0 between an unmatched row and a pair.

    Exact marginals of "log" take 2^min(n, m) steps for each example, for min(n, m) of at most 20.

    If `unmatched` is a number, `relative_gap_` is relative to the objective with all scores zero,
    including those of unmatched rows.

    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    A pass takes O(n_pairs (n_features + min(n, m))) time. Memory is that of the features plus
    O(n_pairs + n_features). If rows may be unmatched, or n and m differ, the features are copied.
    For kernels both are O(n_pairs^2).

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Example 2.2 and appendix G.3.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

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

    Three points before and four after. The last point before has vanished:

    >>> pairs, columns = [], []
    >>> for number in range(30):
    ...     before, new = rng.normal(size=(3, 2)), rng.normal(size=(2, 2))
    ...     after = np.concatenate([before[:2] + 0.01 * rng.normal(size=(2, 2)), new])
    ...     pairs.append((before[:, None] - after) ** 2)
    ...     columns.append([0, 1, -1])
    >>> matcher = Matcher(alpha=1e-3, unmatched="learn", random_state=0)
    >>> matcher = matcher.fit(pairs[:20], columns[:20])
    >>> matcher.predict(pairs[20:21])[0].tolist()
    [0, 1, -1]
    >>> bool(np.all(matcher.coef_ < matcher.unmatched_coef_))
    True
    """

    coef_: FloatArray
    unmatched_coef_: float
    dual_coef_: FloatArray
    X_fit_: FloatArray

    _task = "matchings"
    _part = "row"
    _fitted_arrays = {"cost_matrix_": (("k", "k"), "f")}
    _coef_dims = ()
    _fitted_marker = "n_features_in_"
    _replaced = ("coef_", "unmatched_coef_", "dual_coef_", "X_fit_", "_kernel_parameters")
    _has_auto_tol = True
    _task_class = MatchingTask

    def __init__(
        self, surrogate: SurrogateLike = "max_min", *, alpha: Alpha = "auto",
        cost: Cost = "zero_one", cost_scale: CostScale = "sum", unmatched: Unmatched = None,
        kernel: Kernel = "linear", gamma: Gamma = "scale",
        kernel_params: dict[str, Any] | None = None, penalty: PenaltyLike = "l2",
        solver: SolverLike = "auto", tol: Tol = "auto", max_iter: int = 1000,
        decode: Decoding = "auto", warm_start: bool = False, n_jobs: int | None = None,
        random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.unmatched = unmatched
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.penalty = penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = False
        return tags

    def _arrays_of_fit(self):
        arrays = super()._arrays_of_fit()
        if isinstance(self.unmatched, str):
            arrays["unmatched_coef_"] = ((), "f")
        return arrays

    def _check_fitted(self, attributes):
        if "unmatched_coef_" in attributes:  # of a file, where it is an array of one number
            attributes["unmatched_coef_"] = np.float64(attributes["unmatched_coef_"])

    # -------------------------------------------------------------------------- fit

    def _check_parameters(self):
        self._check_solver_parameters()
        unmatched = self.unmatched
        if unmatched is not None and not (
                unmatched == "learn" if isinstance(unmatched, str)
                else is_number(unmatched, low=-np.inf)):
            raise ValueError(
                "unmatched must be None, 'learn' or a finite number, the score of an unmatched "
                f"row, got {unmatched!r}. None makes as many pairs as possible.")
        check_kernel(self)
        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                "kernel='precomputed' is not supported for pairs; give a name or a callable."
            )
        self._check_penalty_kernel()
        if as_penalty(self.penalty)._by_rows:
            raise ValueError(
                f"penalty={self.penalty!r} needs several labels, and a feature of a Matcher has "
                "one weight; use ElasticNet.")

    def fit(
        self, X: ArrayLike | Sequence[ArrayLike], y: ArrayLike | Sequence[ArrayLike],
        sample_weight: ArrayLike | None = None, allowed: Sequence[ArrayLike] | None = None,
        row_weight: Sequence[ArrayLike] | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : array-like of shape (n_examples, n, m, n_features), or list of array-like of shape \
                (n_i, m_i, n_features)
            Features of each pair of a row and a column. Examples without rows or columns have no
            pairs, need `unmatched`, and do not count.
        y : array-like of int of shape (n_examples, n), or list of array-like of shape (n_i,)
            y[b][i] is the column that belongs to row i, or -1 if the row is unmatched. None and NaN
            are taken as -1. No column occurs twice. With ``unmatched=None`` there are min(n_i, m_i)
            pairs: in a square, a permutation.
        sample_weight : array-like of shape (n_examples,), default=None
            Non-negative weights. 2 counts the example twice, 0 leaves it out.
        allowed : list of bool array-like of shape (n_i, m_i), default=None
            False forbids a pair, which no matching then has. True matchings must be allowed.
        row_weight : list of array-like of shape (M_i,), default=None
            Factors of the costs of mistakes at each row of each example, on top of `cost`. Finite
            and not negative. Not for "log", which has no costs in the fit unless it is
            cost-augmented. Predictions do not use them, with ``decode="min_risk"`` neither.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data. The message names the argument and what is wrong with
            it.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` passes did not reach `tol`. The message states the gap.
        """
        return self._fit(X, y, sample_weight, None, allowed, row_weight)

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
        scores : ndarray of shape (n_examples, n, m), or list of ndarray of shape (n_i, m_i)
            A list if X is a list.
        """
        return self._decoder(X).decision()

    @overload
    def predict(
        self, X: Array, decode: Decoding | None = None, *,
        allowed: Sequence[ArrayLike] | None = None,
    ) -> IntArray: ...
    @overload
    def predict(
        self, X: Sequence[ArrayLike], decode: Decoding | None = None, *,
        allowed: Sequence[ArrayLike] | None = None,
    ) -> list[IntArray]: ...
    def predict(
        self, X: ArrayLike | Sequence[ArrayLike], decode: Decoding | None = None, *,
        allowed: Sequence[ArrayLike] | None = None,
    ) -> Any:
        """Predict matchings.

        Parameters
        ----------
        X : as in `fit`
            Features of each pair.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.
        allowed : list of bool array-like of shape (n_i, m_i), default=None
            False forbids a pair.

        Returns
        -------
        y : ndarray of shape (n_examples, n), or list of ndarray of shape (n_i,)
            The column matched to each row, -1 if it is unmatched. A list if X is a list.
        """
        return self._fitted_task().predict(X, decode, allowed=allowed)

    @needs_log
    def predict_marginals(
        self, X: ArrayLike | Sequence[ArrayLike], *, allowed: Sequence[ArrayLike] | None = None,
    ) -> Any:
        """Probabilities of each pair being matched, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : as in `fit`
            Features of each pair.
        allowed : list of bool array-like of shape (n_i, m_i), default=None
            False forbids a pair.

        Returns
        -------
        marginals : ndarray of shape (n_examples, n, m), or list of ndarray of shape (n_i, m_i)
            Exact. Rows and columns sum to at most one, and 1 minus the sum of a row is the
            probability that it is unmatched. A list if X is a list.
        """
        return self._decoder(X, allowed=allowed).marginals()

    def score(
        self, X: ArrayLike | Sequence[ArrayLike], y: ArrayLike | Sequence[ArrayLike],
        sample_weight: ArrayLike | None = None, *, allowed: Sequence[ArrayLike] | None = None,
    ) -> float:
        """Mean share of the rows that `predict` matches, or leaves unmatched, as in y.

        Parameters
        ----------
        X, y : as in `fit`
            Features of each pair, and true matchings.
        sample_weight : array-like of shape (n_examples,), default=None
            Weights.
        allowed : list of bool array-like of shape (n_i, m_i), default=None
            False forbids a pair in predictions.

        Returns
        -------
        share : float
            1 minus the mean Hamming loss. An example without rows counts as right.
        """
        decoder, predicted, _ = self._fitted_task().decoded(X, allowed=allowed)
        truth = as_matchings(y, decoder.pairs.n_rows, decoder.pairs.n_columns, self.unmatched)
        right = [
            np.mean(a == b) if a.size else 1.0 for a, b in zip(truth, predicted, strict=True)]
        weights = None
        if sample_weight is not None:
            weights = summable(as_weights(sample_weight, len(right), "example"))
        return float(np.average(right, weights=weights))
