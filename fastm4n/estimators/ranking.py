"""Label ranking: outputs that are rankings of items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_choice, check_number
from fastm4n.data._preferences import FORMS, read_preferences
from fastm4n.estimators._base import needs_log
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.metrics import _average, share_of_pairs
from fastm4n.tasks.rankings import RankingTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, RandomState
    from fastm4n.data._types import Matrix
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
    )


class LabelRanker(PartialFitOfWeights, VectorEstimator):
    """Label ranking by M4N, structural SVM or CRF on permutations, with a certified gap.

    Learns to rank M items for each x. The score of a ranking with item i at position p_i is
    sum_i (``coef_[i, p_i] @ x + intercept_[i, p_i]``), or a kernel expansion. Minimises
    mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2 by block-coordinate Frank-Wolfe on the dual. S
    is the surrogate of the costs of the items. Only the first positions may be scored
    (`n_positions`), and items may have features of their own, by which new ones are ranked
    (`item_features` of `fit`).

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, default="max_min"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of the weights is added to the mean loss.
        "auto" is 1 / n, n being the sum of the sample weights. The margins divide it by the mean
        cost of different positions.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_items, n_items), \
default="squared"
        Costs of mistakes at one item: cost[j, k] if it is put at position k instead of j. The sums
        are the Hamming loss for "zero_one", Spearman's footrule for "absolute", and the squared
        distances in Spearman's rho for "squared". "log" uses costs for ``decode="min_risk"``, and
        in the fit if it is cost-augmented.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the M parts of an example are added or averaged. With "mean", as in the
        papers, mistakes in large examples need small margins only. If all examples have M parts,
        "sum" with alpha is "mean" with M alpha, and the weights are M times as large. "log" uses
        costs only if it is cost-augmented. ``decode="min_risk"`` under "max_min" has the same
        scale.
    kernel : str or callable, default="linear"
        "linear" fits weights. Other kernels of `sklearn.metrics.pairwise.pairwise_kernels`,
        callables and "precomputed" fit dual coefficients, and take ``penalty="l2"`` only.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Kernel coefficient, as in `sklearn.svm.SVC`. None is the kernel's own default.
    kernel_params : dict, default=None
        Other arguments of the kernel, for example ``{"degree": 3, "coef0": 1.0}``, the defaults of
        the polynomial kernel.
    fit_intercept : bool or float, default=True
        Whether to add a constant feature. Its weight is the intercept, which is penalised like
        other weights. A number is the value of the constant feature instead of 1: the larger it is,
        the weaker is the penalty, as with `intercept_scaling` of ``LinearSVC``.
    form : {"auto", "ranks", "ordering", "string", "top", "pairs"}, default="auto"
        How rankings are written, see `fastm4n.data.as_preferences`: the ranks of the items, the
        items best first, strings such as "b>a>c", the best items of each ranking, or pairs of
        items. Predictions are complete rankings of the same form, and orderings for "top" and
        "pairs".
    n_positions : int, default=None
        Score only so many first positions. All items below share one more, where they score zero,
        and are not told apart. Time and memory are then linear in n_items x n_positions. None, or a
        number of n_items or more, scores all positions. `cost` is for n_positions + 1 positions,
        the last one being below. Rankings may have ties, and no items that may be anywhere.
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
        Whether to start from the dual point of the last fit, if it had as many samples and the same
        items and cost_scale. alpha may change. Keeps n_samples x n_items^2 numbers, twice as many
        for "log", which starts from fits of "log" only.
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
    coef_ : ndarray of shape (n_items, n_positions, n_features)
        Weights of each item at each position that is scored, for ``kernel="linear"``. With features
        of items, (n_item_features, n_positions, n_features): weights of each of them.
    dual_coef_ : ndarray of shape (n_samples, n_items, n_positions)
        Coefficients of the training examples, for other kernels. With features of items,
        (n_samples, n_item_features, n_positions).
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for kernels other than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_items, n_positions)
        Intercepts. With features of items, (n_item_features, n_positions).
    items_ : ndarray of shape (n_items,)
        The items: the sorted names in y, or 0 ... n_items - 1 if y has ranks.
    item_features_ : ndarray of shape (n_items, n_item_features)
        Features of the items, if `fit` was given any.
    form_ : str
        The form of y: "ranks", "ordering", "string", "top" or "pairs".
    cost_matrix_ : ndarray of shape (n_items, n_items)
        Matrix of the costs. With fewer positions, (n_positions + 1, n_positions + 1).
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
    certified_for_ : {"data", "change", "completions"}
        The objective that the gap is for: that of all data, that of `partial_fit` for weights whose
        data are not there, or that of the best round for partial rankings. `history_` then has a
        row for each round, "objective" among its values.
    n_seen_ : float or None
        Sum of the weights of the examples that the weights were fitted to, None if it is not known,
        for files of CRFsuite and of older releases. `partial_fit` goes by it, and it may be set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X had string names.

    See Also
    --------
    Matcher : Permutations whose scores come from features of pairs.
    fastm4n.metrics.kendall_tau_score : Agreement of rankings.

    Notes
    -----
    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    A partial ranking stands for all rankings that keep its order of items. Its loss is that of the
    best of them for the margins, and for "log" that of all of them together: minus the log of
    their probability. This is not convex. The fit goes in rounds, each of which completes the
    rankings and fits the weights to them with a certified gap, and the objective falls from round
    to round. With complete rankings alone the fit is convex, as ever.

    For linear models a pass takes O(n_samples (n_features n_items^2 + n_items^3)) time, and memory
    is O(n_samples n_items^2 + n_features n_items^2). For kernels a pass takes O(n_samples^2
    n_items^2) time, and memory holds the Gram matrix or `kernel_cache_size` of the solver. With
    `n_positions` = k, n_items^2 is n_items k everywhere, and n_items^3 is n_items k^2.

    Exact marginals of "log" take 2^M steps for each example, for M of at most 20, or 2^k with
    `n_positions`.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Example 2.2 and appendix G.3.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import LabelRanker
    >>> X = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    >>> y = ["tea>milk>water", "tea>milk>water", "water>tea>milk", "water>tea>milk"]
    >>> ranker = LabelRanker(alpha=0.01, random_state=0).fit(X, y)
    >>> ranker.predict([[0.7, 0.1]]).tolist()
    ['tea>milk>water']

    Items with features of their own, such as warmth and sweetness, and new items:

    >>> Z = [[0.5, 0.6], [1.0, 0.2], [0.0, 0.0]]
    >>> ranker = LabelRanker(alpha=0.01, n_positions=1, random_state=0)
    >>> ranker.fit(X, y, item_features=Z).predict_top([[0.7, 0.1]], 1).tolist()
    [['tea']]
    >>> new = [[0.2, 0.1], [0.9, 0.3], [0.6, 0.9], [0.1, 0.0]]
    >>> ranker.predict_top([[0.7, 0.1]], 1, item_features=new).tolist()
    [[1]]
    """

    intercept_: FloatArray
    items_: Array
    item_features_: FloatArray
    form_: str

    _task = "rankings"
    _part = "item"
    _fitted_arrays = {
        "items_": (("k",), "USiu"), "cost_matrix_": (("c", "c"), "f"),
        "intercept_": (("z", "p"), "f"),
    }
    _coef_dims = ("z", "p")
    _optional_arrays = {"item_features_": (("k", "z"), "f")}
    _absent_in_files = {"n_positions": None}
    _replaced = (*VectorEstimator._replaced, "item_features_")
    _fitted_values = ("form_", "_base")
    _fitted_marker = "items_"
    _has_auto_tol = True
    _task_class = RankingTask

    def __init__(
        self, surrogate: SurrogateLike = "max_min", *, alpha: Alpha = "auto",
        cost: Cost = "squared", cost_scale: CostScale = "sum", kernel: Kernel = "linear",
        gamma: Gamma = "scale",
        kernel_params: dict[str, Any] | None = None, fit_intercept: bool | float = True,
        form: Literal["auto", "ranks", "ordering", "string", "top", "pairs"] = "auto",
        n_positions: int | None = None, penalty: PenaltyLike = "l2",
        solver: SolverLike = "auto", tol: Tol = "auto", max_iter: int = 1000,
        decode: Decoding = "auto", warm_start: bool = False, n_jobs: int | None = None,
        random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.form = form
        self.n_positions = n_positions
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

    # -------------------------------------------------------------------------- fit

    def _check_parameters(self):
        self._check_solver_parameters()
        self._check_vector_parameters()
        check_choice("form", self.form, FORMS)
        if self.n_positions is not None:
            check_number("n_positions", self.n_positions, low=0, integer=True)

    def _check_fitted(self, attributes):
        form, base = attributes["form_"], attributes["_base"]
        check_choice("form_", form, FORMS[1:])
        if base is not None and type(base) is not int or (base is None) == (form == "ranks"):
            raise ValueError("the lowest rank does not fit form_")
        M, (n_rows, n_positions) = attributes["items_"].size, attributes["intercept_"].shape
        is_whole = n_positions == M
        if (
            n_positions != self._task_class(self).n_scored(M)
            or len(attributes["cost_matrix_"]) != n_positions + (not is_whole)
            or ("item_features_" not in attributes and n_rows != M)
        ):
            raise ValueError("the numbers of items and positions do not fit")

    def fit(
        self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None,
        item_weight: ArrayLike | None = None, *, item_features: ArrayLike | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training examples, or their Gram matrix (n_samples, n_samples) for
            ``kernel="precomputed"``. Linear models do not copy C-ordered float32 or float64 arrays
            and CSR matrices.
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            Rankings, see `form`. They may be partial: with ties or missing items, the first items
            only, or pairs. Samples of which no two items are ordered are left out.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. 2 counts the example twice, 0 leaves it out.
        item_weight : array-like of shape (n_items,) or (n_samples, n_items), default=None
            Factors of the costs of mistakes at each item, on top of `cost`, in the order of
            `items_`. Finite and not negative. Not for "log", which has no costs in the fit unless
            it is cost-augmented. Predictions do not use them, with ``decode="min_risk"`` neither.
        item_features : array-like of shape (n_items, n_item_features), default=None
            Features z_i of the items, in the order of `items_`: names of y sorted, or columns of
            ranks. A data frame whose index has the names is put in this order. The score of item i
            at position p is then sum_f z_if (``coef_[f, p] @ x + intercept_[f, p]``). Scale them as
            X. A column of ones gives positions a weight that is the same for all items, which
            matters with `n_positions` only. By default each item has weights of its own.

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
        return self._fit(X, y, sample_weight, None, None, item_weight, item_features)

    # ---------------------------------------------------------------------- predict

    def decision_function(self, X: Matrix, item_features: ArrayLike | None = None) -> FloatArray:
        """Scores of each item at each position.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples, or kernel values with the training examples for
            ``kernel="precomputed"``.
        item_features : array-like of shape (n_new_items, n_item_features), default=None
            As in `predict`.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_items, n_positions)
            Items as in `items_`, then positions that are scored, best first.
        """
        return self._decoder(X, item_features=item_features).decision()

    def predict(
        self, X: Matrix, decode: Decoding | None = None, item_features: ArrayLike | None = None,
    ) -> Array:
        """Predict rankings.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.
        item_features : array-like of shape (n_new_items, n_item_features), default=None
            Features of other items, if the ranker was fitted with features of items. Their names
            are the index of a data frame, or else 0 ... n_new_items - 1. There are at least
            `n_positions`, and without it as many as in the fit.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_items)
            Rankings in the form of y in `fit`. Items below `n_positions` follow by their largest
            score at a position.
        """
        return self._fitted_task().predict(X, decode, item_features=item_features)

    def predict_top(
        self, X: Matrix, k: int, decode: Decoding | None = None,
        item_features: ArrayLike | None = None,
    ) -> Array:
        """Predict the first items of rankings.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        k : int
            The number of items, at most `n_positions`.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.
        item_features : array-like of shape (n_new_items, n_item_features), default=None
            As in `predict`.

        Returns
        -------
        items : ndarray of shape (n_samples, k)
            Names of the first k items of the rankings of `predict`, best first.

        Examples
        --------
        >>> from fastm4n import LabelRanker
        >>> ranker = LabelRanker(alpha=0.01, random_state=0)
        >>> ranker.fit([[0.0], [1.0]], ["a>b>c", "c>b>a"]).predict_top([[0.9]], 2).tolist()
        [['c', 'b']]
        """
        return self._fitted_task().decoded_top(X, k, decode, item_features)

    def expected_ranks(
        self, X: Matrix, item_features: ArrayLike | None = None,
    ) -> FloatArray:
        """Expected rank of each item, for "log" and "max_min".

        The expectation is under the marginals of "log", or under the distribution of the oracle of
        "max_min".

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        item_features : array-like of shape (n_new_items, n_item_features), default=None
            As in `predict`.

        Returns
        -------
        ranks : ndarray of shape (n_samples, n_items)
            1 is the best rank, or the lowest one of y for y of ranks. An item below `n_positions`
            counts with the mean rank there.

        Raises
        ------
        ValueError
            For "max_margin", which has no distribution.

        Examples
        --------
        >>> from fastm4n import LabelRanker
        >>> crf = LabelRanker("log", alpha=0.01, random_state=0)
        >>> crf.fit([[-1.0], [1.0]], ["a>b>c", "c>b>a"]).expected_ranks([[0.0]]).round(2).tolist()
        [[2.0, 2.0, 2.0]]
        """
        return self._fitted_task().expected_ranks(X, item_features)

    @needs_log
    def predict_marginals(self, X: Matrix, item_features: ArrayLike | None = None) -> FloatArray:
        """Probabilities of each item being at each position, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        item_features : array-like of shape (n_new_items, n_item_features), default=None
            As in `predict`.

        Returns
        -------
        marginals : ndarray of shape (n_samples, n_items, n_items)
            Exact doubly stochastic matrices. With `n_positions`, (n_samples, n_items,
            n_positions + 1): the last column has the probabilities of being below.
        """
        return self._decoder(X, item_features=item_features).marginals()

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean share of the items that `predict` puts where they are in y, or of ordered pairs.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            True rankings of the same items, in the form of `fit`, complete or partial.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        share : float
            1 minus the Hamming loss. `fastm4n.metrics` has Kendall's tau and Spearman's rho. With
            `n_positions` all items below are at one position. If any ranking of y is partial,
            `fastm4n.metrics.pairwise_order_score`.
        """
        task = self._fitted_task()
        truth = read_preferences(y, self.form_, self.items_)
        predicted = task.decoded(X)[1]
        task.check_length(truth, predicted)
        n_positions = self.intercept_.shape[1]
        if not truth.is_complete().all():
            orders = predicted[:, :, np.newaxis] < predicted[:, np.newaxis, :]
            return share_of_pairs(truth.orders(), orders, sample_weight, "y")
        # of the positions that are scored, and the one of all items below
        are_wrong = np.minimum(truth.places(), n_positions) != np.minimum(predicted, n_positions)
        return 1.0 - _average(are_wrong.mean(axis=1), sample_weight)
