"""Classification and ordinal regression: outputs that are one of k labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fastm4n.base.checks import check_choice, extended
from fastm4n.base.label_costs import dearest_of, name_of
from fastm4n.estimators._base import needs_log
from fastm4n.estimators._partial import PartialFit
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.tasks.labels import LabelTask, LevelTask, has_thresholds
from fastm4n.tasks.parameters import (
    LABEL_KINDS,
    check_lengths,
    check_present,
    levels_of,
    places,
    warn_of_unknown,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, RandomState
    from fastm4n.data._types import Matrix
    from fastm4n.estimators._types import (
        Alpha,
        Decoding,
        Gamma,
        Kernel,
        PenaltyLike,
        SolverLike,
        SurrogateLike,
    )


FORMS = ("auto", "thresholds", "classes")


class _SimplexClassifier(ClassifierMixin, PartialFit, VectorEstimator):
    """Base of both classifiers, without the default cost and the reading of labels."""

    coef_: Any
    intercept_: FloatArray
    classes_: Array

    _fitted_arrays = {
        "classes_": (("k",), LABEL_KINDS), "cost_matrix_": (("k", "k"), "f"),
        "intercept_": (("k",), "f"),
    }
    _free_intercepts = True

    def __init__(
        self, surrogate: SurrogateLike = "log", *, alpha: Alpha = "auto",
        cost: Cost = "zero_one", kernel: Kernel = "linear", gamma: Gamma = "scale",
        kernel_params: dict[str, Any] | None = None,
        fit_intercept: bool | Literal["free"] | float = True, penalty: PenaltyLike = "l2",
        solver: SolverLike = "auto", tol: float = 1e-3, max_iter: int = 1000,
        decode: Decoding = "auto",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        warm_start: bool = False, n_jobs: int | None = None, random_state: RandomState = None,
        verbose: int = 0, callback: Callable[..., Any] | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
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
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback
        self.classes = classes

    # ------------------------------------------------------------------- validation

    def _check_parameters(self):
        self._check_solver_parameters()
        self._check_vector_parameters()

    # -------------------------------------------------------------------------- fit

    def fit(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training examples, or their Gram matrix (n_samples, n_samples) for
            ``kernel="precomputed"``. Linear models do not copy C-ordered float32 or float64 arrays
            and CSR matrices.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. 2 counts the example twice, 0 leaves it out.

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
            ``X @ coef_.T + intercept_`` or ``K(X, X_fit_) @ dual_coef_ + intercept_``. For
            thresholds of levels, sums of these over the thresholds below each level. For two
            classes an array of shape (n_samples,), the score of ``classes_[1]`` minus the score of
            ``classes_[0]``.
        """
        return self._decoder(X).decision()

    def predict(self, X: Matrix, decode: Decoding | None = None) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            One of `classes_` each.
        """
        return self._fitted_task().predict(X, decode)

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
            Softmax of the scores over the temperature, columns as in `classes_`. For thresholds
            of levels, differences of the probabilities of being above each. If those are not in
            order, the smallest so far replaces each. `predict` is then the median of the levels,
            which need not be the most probable one.
        """
        return self._decoder(X).marginals()

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy of `predict`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
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


class MulticlassClassifier(_SimplexClassifier):
    """Multi-class classification by M4N, structural SVM or CRF, with a certified gap.

    Minimises mean_i S(w' x_i, y_i) + alpha / 2 ||w||^2 over the weights w of a linear model or a
    kernel, by block-coordinate Frank-Wolfe on the dual. S is the surrogate of the cost.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, default="log"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of the weights is added to the mean loss.
        "auto" is min(1, 0.02 V) / n. V is the total variance of the features, or of the kernel's
        features, and n the sum of the sample weights. The margins divide it by the mean cost of
        different classes.
        For n examples ``LinearSVC(multi_class="crammer_singer", C=C)`` is "max_margin" with alpha =
        1 / (C n). ``LogisticRegression(C=C)`` is "log" with ``fit_intercept="free"`` and the same
        alpha, or 2 / (C n) for two classes.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_classes, n_classes), \
default="zero_one"
        Costs of mistakes: cost[i, j] if ``classes_[j]`` is predicted and ``classes_[i]`` is
        true. "absolute" and "squared" use the positions in `classes_`. "log" uses costs
        for ``decode="min_risk"``, and in the fit if it is cost-augmented.
    kernel : str or callable, default="linear"
        "linear" fits weights. Other kernels of `sklearn.metrics.pairwise.pairwise_kernels`,
        callables and "precomputed" fit dual coefficients, and take ``penalty="l2"`` only.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Kernel coefficient, as in `sklearn.svm.SVC`. None is the kernel's own default.
    kernel_params : dict, default=None
        Other arguments of the kernel, for example ``{"degree": 3, "coef0": 1.0}``, the defaults of
        the polynomial kernel.
    fit_intercept : bool, "free" or float, default=True
        Whether to add a constant feature. Its weight is the intercept, which is penalised like
        other weights. A number is the value of the constant feature instead of 1: the larger it is,
        the weaker is the penalty, as with `intercept_scaling` of ``LinearSVC``. "free" fits an
        intercept without a penalty by a few warm-started fits (the proximal-point method), and the
        gap is certified for that problem. Linear models centre a copy of dense features for it, and
        take sparse ones as they are.
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
    tol : float, default=1e-3
        Relative gap (`relative_gap_`) at which the fit ends: the certified duality gap, divided by
        the objective at zero weights. At least 0 and below 1.
    max_iter : int, default=1000
        Maximum number of passes over the examples.
    decode : {"auto", "map", "min_risk"}, default="auto"
        Prediction of the highest score ("map"), or of the least expected cost under the
        probabilities ("log") or the oracle's distribution ("max_min"). "auto" is "min_risk" for
        "log", which learns no costs, if they are not 0-1, and "map" otherwise.
    class_weight : dict or "balanced", default=None
        Factors of the sample weights by class. "balanced" gives every class the same sum.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if it had as many samples and the same
        classes. alpha may change. Keeps n_samples x n_classes numbers.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits. An int gives the same bits on the same machine.
    verbose : int, default=0
        Whether to show a progress bar (with tqdm) and to write to the log "fastm4n".
    callback : callable, default=None
        Function that is called after each certificate with its row of `history_`, a dict. If it
        returns something true, the fit ends.
    classes : array-like, default=None
        All labels, of which y may lack some, as in folds of a cross-validation. Others are an
        error. By default the labels of y.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Weights, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_classes)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for kernels other than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        Sorted labels. If y is an ordered categorical and costs are not "zero_one", all its
        categories in their order.
    cost_matrix_ : ndarray of shape (n_classes, n_classes)
        Matrix of the costs.
    alpha_ : float
        The alpha of the fit.
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
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X had string names.

    See Also
    --------
    OrdinalClassifier : The same for ordered levels.

    Notes
    -----
    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    For linear models a pass takes O(n_samples n_features n_classes) time, and memory is O(n_samples
    n_classes + n_features n_classes). For kernels a pass takes O(n_samples^2 n_classes) time, and
    memory holds the Gram matrix or `kernel_cache_size` of the solver.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

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


class OrdinalClassifier(_SimplexClassifier):
    """Classification into ordered levels, with a certified gap.

    The default is the all-threshold model of [3]_. It minimises mean_i sum_t S(w' x_i + b_t,
    [y_i > t]) + alpha / 2 (||w||^2 + ||b / c||^2) over one vector w of weights and a threshold b_t
    between each two levels. S is the surrogate of a binary label, and c is `fit_intercept`. The
    absolute error of a level is the number of thresholds on whose other side it lies. Other costs
    have weights for each level, as `MulticlassClassifier`.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, default="log"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of the weights is added to the mean loss.
        "auto" is 0.1 / n for thresholds, n being the sum of the sample weights. For classes it is
        as in `MulticlassClassifier`. For n examples ``mord.LogisticAT(alpha=a)`` is "log" with
        ``fit_intercept="free"`` and alpha = a / n.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_classes, n_classes), \
default="absolute"
        Costs of mistakes: cost[i, j] if ``classes_[j]`` is predicted and ``classes_[i]`` is
        true. "absolute" and "squared" use the positions in `classes_`. "log" uses costs
        for ``decode="min_risk"``, and in the fit if it is cost-augmented. Thresholds are for
        "absolute".
    kernel : str or callable, default="linear"
        "linear" fits weights. Other kernels of `sklearn.metrics.pairwise.pairwise_kernels`,
        callables and "precomputed" fit dual coefficients, and take ``penalty="l2"`` only.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Kernel coefficient, as in `sklearn.svm.SVC`. None is the kernel's own default.
    kernel_params : dict, default=None
        Other arguments of the kernel, for example ``{"degree": 3, "coef0": 1.0}``, the defaults of
        the polynomial kernel.
    fit_intercept : bool, "free" or float, default=10.0
        Whether to add a constant feature. Its weight is the intercept, which is penalised like
        other weights. A number is the value of the constant feature instead of 1: the larger it is,
        the weaker is the penalty, as with `intercept_scaling` of ``LinearSVC``. "free" fits an
        intercept without a penalty by a few warm-started fits (the proximal-point method), and the
        gap is certified for that problem. Linear models centre a copy of dense features for it, and
        take sparse ones as they are. Each threshold has a constant feature of its own, and False is
        for classes.
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
    tol : float, default=1e-3
        Relative gap (`relative_gap_`) at which the fit ends: the certified duality gap, divided by
        the objective at zero weights. At least 0 and below 1.
    max_iter : int, default=1000
        Maximum number of passes over the examples.
    decode : {"auto", "map", "min_risk"}, default="auto"
        Prediction of the highest score ("map"), or of the least expected cost under the
        probabilities ("log") or the oracle's distribution ("max_min"). Both are the same for
        thresholds: the median of the levels. For classes, "auto" is "min_risk" for "log" and "map"
        for surrogates that learn costs. Under "max_min", "map" is the better one.
    class_weight : dict or "balanced", default=None
        Factors of the sample weights by class. "balanced" gives every class the same sum.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if it had as many samples and the same
        classes. alpha may change. Keeps n_samples x n_classes numbers.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits. An int gives the same bits on the same machine.
    verbose : int, default=0
        Whether to show a progress bar (with tqdm) and to write to the log "fastm4n".
    callback : callable, default=None
        Function that is called after each certificate with its row of `history_`, a dict. If it
        returns something true, the fit ends.
    levels : array-like of shape (n_levels,), default=None
        All levels, lowest first. Needed if levels are not sorted, or may be missing from y. The
        default is all ordered categories of y in their order (pandas, ``polars.Enum``, ordered
        dictionaries of Arrow), or else the sorted labels of y, with a warning if they are not
        numbers.
    form : {"auto", "thresholds", "classes"}, default="auto"
        "thresholds" is one vector of weights, and a threshold between each two levels. "classes" is
        a vector of weights and an intercept for each level. "auto" is "thresholds" if `cost` is
        "absolute" and `fit_intercept` is not False, else "classes".

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of thresholds or of classes, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, 1) or (n_samples, n_classes)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for kernels other than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_classes - 1,) or (n_classes,)
        The numbers b_t that are added to the score for each threshold, or intercepts of the
        classes.
    classes_ : ndarray of shape (n_classes,)
        Sorted labels. If y is an ordered categorical and costs are not "zero_one", all its
        categories in their order.
    cost_matrix_ : ndarray of shape (n_classes, n_classes)
        Matrix of the costs.
    alpha_ : float
        The alpha of the fit.
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
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X had string names.

    See Also
    --------
    MulticlassClassifier : The same for classes without an order.

    Notes
    -----
    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    For linear models a pass takes O(n_samples n_features n_classes) time, and memory is O(n_samples
    n_classes + n_features n_classes). For kernels a pass takes O(n_samples^2 n_classes) time, and
    memory holds the Gram matrix or `kernel_cache_size` of the solver.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.
    .. [3] J. Rennie, N. Srebro (2005). Loss functions for preference levels: regression with
       discrete ordered labels. IJCAI multidisciplinary workshop on advances in preference handling.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import OrdinalClassifier
    >>> X = np.linspace(0, 3, 40)[:, None]
    >>> y = np.array(["low", "mid", "high"])[np.minimum(X[:, 0].astype(int), 2)]
    >>> clf = OrdinalClassifier(alpha=1e-3, levels=["low", "mid", "high"], random_state=0)
    >>> clf.fit(X, y).predict([[0.2], [1.5], [2.9]]).tolist()
    ['low', 'mid', 'high']
    >>> clf.coef_.shape, clf.intercept_.shape
    ((1, 1), (2,))
    """

    _task = "ordered"
    _task_class = LevelTask

    _absent_in_files = {"form": "classes"}

    def __init__(
        self, surrogate: SurrogateLike = "log", *, cost: Cost = "absolute",
        fit_intercept: bool | Literal["free"] | float = 10.0, levels: ArrayLike | None = None,
        form: Literal["auto", "thresholds", "classes"] = "auto", **parameters: Any,
    ) -> None:
        super().__init__(surrogate, cost=cost, fit_intercept=fit_intercept, **parameters)
        # `levels` declares them
        del self.classes
        self.levels = levels
        self.form = form

    # the parameters of the base, and what is another here: levels declare the labels
    __init__.__signature__ = extended(
        _SimplexClassifier.__init__, without="classes", fit_intercept=10.0, cost="absolute",
        levels=None, form="auto")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # scikit-learn's checks have classes that do not lie along one direction
        tags.classifier_tags.poor_score = has_thresholds(self)
        return tags

    @property
    def _coef_dims(self):
        return ("weights",) if has_thresholds(self) else ("k",)

    def _arrays_of_fit(self):
        found = super()._arrays_of_fit()
        return {**found, "intercept_": (("thresholds",), "f")} if has_thresholds(self) else found

    def _check_parameters(self):
        check_choice("form", self.form, FORMS)
        super()._check_parameters()
        if self.form != "thresholds":
            return
        if not isinstance(self.cost, str) or self.cost != "absolute":
            raise ValueError(
                f"form='thresholds' minimises cost='absolute', got {self.cost!r:.100}: use "
                "form='classes'.")
        if not self.fit_intercept:
            raise ValueError(
                "form='thresholds' has thresholds as its intercepts, got fit_intercept=False: use "
                "fit_intercept=True, or form='classes'.")

    def _check_fitted(self, attributes):
        n_levels, n_rows = attributes["classes_"].size, (
            attributes["coef_"].shape[0] if "coef_" in attributes
            else attributes["dual_coef_"].shape[1])
        if has_thresholds(self) and (attributes["intercept_"].size, n_rows) != (n_levels - 1, 1):
            raise ValueError("intercept_ or the weights are not those of thresholds of classes_")

    def score(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Minus the mean cost of `predict`, or the accuracy if the cost is "zero_one".

        The higher, the better. Under the default cost it is minus the mean absolute error, in
        levels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        y : array-like of shape (n_samples,)
            True levels. One that is not in `classes_` counts as the worst mistake, with a warning.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        if name_of(self._cost_table) == "zero_one":
            return super().score(X, y, sample_weight)
        check_lengths(X, np.asarray(y))
        labels = column_or_1d(y, warn=True)
        check_present(labels)
        warn_of_unknown(labels.tolist(), self.classes_)
        truth, found = (places(each, self.classes_) for each in (labels, self.predict(X)))
        table = self._cost_table
        costs = np.where(truth >= 0, table[truth, found], dearest_of(table).max())
        return 0.0 - float(np.average(costs, weights=sample_weight))
