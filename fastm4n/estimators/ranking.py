"""Label ranking: outputs that are rankings of a fixed set of items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.checks import check_choice
from fastm4n.data._rankings import FORMS, as_places
from fastm4n.estimators._base import needs_log
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.metrics import hamming_ranking_loss
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
    is the surrogate of the costs of the items.

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
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        How rankings are written, see `fastm4n.data.as_places`: the ranks of the items, the
        items best first, or strings such as "b>a>c". Predictions are of the same form.
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
    coef_ : ndarray of shape (n_items, n_items, n_features)
        Weights of each item at each position, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_items, n_items)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for kernels other than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_items, n_items)
        Intercepts.
    items_ : ndarray of shape (n_items,)
        The items: the sorted names in y, or 0 ... n_items - 1 if y has ranks.
    form_ : str
        The form of y: "ranks", "ordering" or "string".
    cost_matrix_ : ndarray of shape (n_items, n_items)
        Matrix of the costs.
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

    For linear models a pass takes O(n_samples (n_features n_items^2 + n_items^3)) time, and memory
    is O(n_samples n_items^2 + n_features n_items^2). For kernels a pass takes O(n_samples^2
    n_items^2) time, and memory holds the Gram matrix or `kernel_cache_size` of the solver.

    Exact marginals of "log" take 2^M steps for each example, for M of at most 20.

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
    _has_auto_tol = True
    _task_class = RankingTask

    def __init__(
        self, surrogate: SurrogateLike = "max_min", *, alpha: Alpha = "auto",
        cost: Cost = "squared", cost_scale: CostScale = "sum", kernel: Kernel = "linear",
        gamma: Gamma = "scale",
        kernel_params: dict[str, Any] | None = None, fit_intercept: bool | float = True,
        form: Literal["auto", "ranks", "ordering", "string"] = "auto", penalty: PenaltyLike = "l2",
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

    def _check_fitted(self, attributes):
        form, base = attributes["form_"], attributes["_base"]
        check_choice("form_", form, FORMS[1:])
        if base is not None and type(base) is not int or (base is None) == (form == "ranks"):
            raise ValueError("the lowest rank does not fit form_")

    def fit(
        self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None,
        item_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training examples, or their Gram matrix (n_samples, n_samples) for
            ``kernel="precomputed"``. Linear models do not copy C-ordered float32 or float64 arrays
            and CSR matrices.
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            Complete rankings of the same items, without ties. See `form`.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. 2 counts the example twice, 0 leaves it out.
        item_weight : array-like of shape (n_items,) or (n_samples, n_items), default=None
            Factors of the costs of mistakes at each item, on top of `cost`, in the order of
            `items_`. Finite and not negative. Not for "log", which has no costs in the fit unless
            it is cost-augmented. Predictions do not use them, with ``decode="min_risk"`` neither.

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
        return self._fit(X, y, sample_weight, None, None, item_weight)

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
        return self._decoder(X).decision()

    def predict(self, X: Matrix, decode: Decoding | None = None) -> Array:
        """Predict rankings.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_items)
            Rankings in the form of y in `fit`.
        """
        return self._fitted_task().predict(X, decode)

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
            Exact doubly stochastic matrices.
        """
        return self._decoder(X).marginals()

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Mean share of the items that `predict` puts where they are in y.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            True rankings of the same items, in the form of `fit`.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        share : float
            1 minus the Hamming loss. `fastm4n.metrics` has Kendall's tau and Spearman's rho.
        """
        task = self._fitted_task()
        truth, _ = as_places(y, self.form_, items=self.items_)
        predicted = task.decoded(X)[1]
        if truth.shape[0] != predicted.shape[0]:
            raise ValueError(
                f"y has {truth.shape[0]} rankings, but X has {predicted.shape[0]} samples."
            )
        return 1.0 - hamming_ranking_loss(
            truth, predicted, form="ranks", sample_weight=sample_weight
        )
