"""Classification and ordinal regression: outputs that are one of k labels."""

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d

from fastm4n.estimators._base import (
    DECODINGS,
    canonical,
    check_choice,
    check_number,
    check_weights,
    closed_form_cost,
    cost_matrix,
    summable,
    warn_of_unknown,
)
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.inference import max_min_absolute, max_min_game, max_min_zero_one, softmax
from fastm4n.outputs import SimplexOutputs
from fastm4n.surrogates import make_surrogate


def _has_proba(estimator):
    if estimator.surrogate != "log":
        raise AttributeError(
            f"predict_proba needs surrogate='log', and this one is {estimator.surrogate!r}: "
            "margins are not probabilities."
        )
    return True


class _SimplexClassifier(ClassifierMixin, VectorEstimator):
    """What the two estimators share: everything but the default cost and how labels are read."""

    def __init__(
        self,
        surrogate="max_min",
        *,
        alpha=0.01,
        cost="zero_one",
        kernel="linear",
        gamma="scale",
        degree=3,
        coef0=1.0,
        kernel_params=None,
        fit_intercept=True,
        regularize_intercept=True,
        intercept_scaling=1.0,
        coef_bounds=None,
        sampling="gap",
        step="line_search",
        accelerate=True,
        cache=None,
        cache_F=0.25,
        cache_nu=0.01,
        solver="manual",
        oracle="exact",
        oracle_iter=20,
        oracle_warm_start=True,
        tol=1e-3,
        max_iter=1000,
        decode="map",
        class_weight=None,
        cache_size=2048,
        warm_start=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
        callback=None,
    ):
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.regularize_intercept = regularize_intercept
        self.intercept_scaling = intercept_scaling
        self.coef_bounds = coef_bounds
        self.sampling = sampling
        self.step = step
        self.accelerate = accelerate
        self.cache = cache
        self.cache_F = cache_F
        self.cache_nu = cache_nu
        self.solver = solver
        self.oracle = oracle
        self.oracle_iter = oracle_iter
        self.oracle_warm_start = oracle_warm_start
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
        self._check_flags("regularize_intercept")

    def _encode(self, y, kept):
        """classes_, and the index in it of each label among the samples kept."""
        return np.unique(y[kept], return_inverse=True)

    def _class_weights(self, classes, labels, weights):
        """One factor per class from class_weight."""
        if self.class_weight is None:
            return np.ones(classes.size)
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise ValueError(
                    "class_weight must be a dict, 'balanced' or None, "
                    f"got {self.class_weight!r}."
                )
            mass = np.bincount(labels, weights=weights, minlength=classes.size)
            return mass.sum() / (np.count_nonzero(mass) * np.where(mass > 0, mass, 1.0))
        if not isinstance(self.class_weight, dict):
            raise ValueError(
                f"class_weight must be a dict, 'balanced' or None, got {self.class_weight!r}."
            )
        factors = np.ones(classes.size)
        where = {label: i for i, label in enumerate(classes.tolist())}
        for label, factor in self.class_weight.items():
            if label not in where:
                raise ValueError(
                    f"class_weight names the class {label!r}, which is not in y; its classes "
                    f"are {classes.tolist()}."
                )
            check_number(f"class_weight[{label!r}]", factor, low=0)
            factors[where[label]] = factor
        return factors

    # -------------------------------------------------------------------------- fit

    def _structure(self, labels, cost):
        return make_surrogate(
            self.surrogate, SimplexOutputs(labels, cost), self.oracle, self.oracle_iter,
            self.oracle_warm_start,
        )

    def fit(self, X, y, sample_weight=None):
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training examples, or their Gram matrix (n_samples, n_samples) for
            ``kernel="precomputed"``. C-ordered float32 or float64 arrays and CSR matrices
            are not copied by linear models.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights; 2 is the example given twice, 0 the example left out.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data, naming the argument and what is wrong with it.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` passes did not reach `tol`; the message states the gap.
        """
        return self._fit_or_restore(X, y, sample_weight)

    def _problem(self, X, y, sample_weight):
        self._check_parameters()
        X, y = self._validated(X, y)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        self._check_square(X)
        X = canonical(X)
        weights = check_weights(_check_sample_weight(sample_weight, X, dtype=np.float64))
        kept = np.flatnonzero(weights)
        classes, labels = self._encode(y, kept)
        weights = weights[kept]
        if np.unique(labels).size < 2:
            raise ValueError(
                f"y has one class only, {classes[labels[:1]].tolist()[0]!r} (among the samples of "
                "non-zero weight); a classifier needs at least two."
            )
        occurs = np.bincount(labels, minlength=classes.size) > 0
        if self._has_free_intercept() and not occurs.all():
            absent = classes[~occurs][:1].tolist()[0]
            raise ValueError(
                f"regularize_intercept=False needs every level to occur in y, or the "
                f"intercept of the missing ones has no minimum; {absent!r} does not occur."
            )
        weights = summable(weights)
        weights = summable(weights * self._class_weights(classes, labels, weights)[labels])
        cost = cost_matrix(self.cost, classes.size)
        return self._vector_problem(
            X, kept, labels, weights, classes.size,
            structure=lambda labels: self._structure(labels, cost),
            truth=lambda labels: np.eye(classes.size)[labels],
            same_task=hasattr(self, "classes_") and np.array_equal(classes, self.classes_),
            common={"classes_": classes, "cost_matrix_": cost},
        )

    # ---------------------------------------------------------------------- predict

    def decision_function(self, X):
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

    def predict(self, X, decode=None):
        """Predicted labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        decode : {"map", "min_risk"}, default=None
            Overrides the parameter `decode`.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            One of `classes_` each.
        """
        decode = self.decode if decode is None else decode
        check_choice("decode", decode, DECODINGS)
        check_is_fitted(self)
        if decode == "min_risk" and self.surrogate == "max_margin":
            raise ValueError(
                "decode='min_risk' weighs the costs by a distribution over the classes, and "
                "surrogate='max_margin' has none; use 'log' or 'max_min'."
            )
        scores = self._scores(X)
        if decode == "map":
            return self.classes_[np.argmax(scores, axis=1)]
        if scores.shape[0] == 0:
            return self.classes_[:0]
        return self.classes_[np.argmin(self._distribution(scores) @ self.cost_matrix_, axis=1)]

    def _distribution(self, scores):
        """The maximiser of the surrogate's oracle: a distribution over the classes."""
        if self.surrogate == "log":
            return softmax(scores)[0]
        cost = closed_form_cost(self.cost_matrix_)
        if cost == "zero_one":
            return max_min_zero_one(scores)[0]
        if cost == "absolute":
            return max_min_absolute(scores)[0]
        return max_min_game(scores, self.cost_matrix_)[0]

    @available_if(_has_proba)
    def predict_proba(self, X):
        """Probabilities of the classes, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
            Softmax of the scores, columns as in `classes_`.
        """
        return softmax(self._scores(X))[0]

    def score(self, X, y, sample_weight=None):
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
        if labels.dtype.kind == "f":
            labels = labels[~np.isnan(labels)]  # refused by name below
        warn_of_unknown(np.unique(labels).tolist(), self.classes_)
        return super().score(X, y, sample_weight)


class MulticlassClassifier(_SimplexClassifier):
    """Multi-class classification by M4N, structural SVM or CRF, with a certified gap.

    Minimises mean_i S(w' x_i, y_i) + alpha / 2 ||w||^2 over the weights w of a linear model or
    of a kernel, S being the surrogate of the given cost, by block-coordinate Frank-Wolfe on
    the dual.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"}, default="max_min"
        The loss that is minimised: "max_min" is the M4N of [1]_, consistent for every
        cost; "max_margin" the multi-class SVM of Crammer and Singer (M3N, structural
        SVM); "log" multinomial logistic regression (CRF).
    alpha : float, default=0.01
        Regularisation: alpha / 2 times the squared norm of the weights is added to the
        mean loss, the scale of `SGDClassifier`. ``LinearSVC``'s C is 1 / (alpha n).
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_classes, n_classes), \
            default="zero_one"
        What a mistake costs: cost[i, j] for predicting ``classes_[j]`` where the truth is
        ``classes_[i]``. The names take the classes' positions in `classes_`. The "log"
        surrogate uses it for ``decode="min_risk"`` only.
    kernel : str or callable, default="linear"
        "linear" keeps weights, every other kernel of
        `sklearn.metrics.pairwise.pairwise_kernels`, a callable or "precomputed" keeps
        dual coefficients.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Kernel coefficient, as in `sklearn.svm.SVC`; None is the kernel's own default.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1.0
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, default=None
        Further arguments of the kernel.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is the intercept.
    regularize_intercept : bool, default=True
        Whether the intercept is penalised like the other weights. Without the penalty the
        fit is a few warm-started ones, drawn to the last intercept each time (the
        proximal-point method), and its gap is certified for the problem without it. Linear
        models centre a copy of dense features for it; sparse ones are taken as they are.
    intercept_scaling : float, default=1.0
        Value of the constant feature (its square is added to a kernel): the intercept's
        penalty is alpha / 2 times its square over ``intercept_scaling ** 2``. Without
        the penalty, the larger the longer the proximal steps.
    coef_bounds : pair (lower, upper), default=None
        Bounds that `coef_` keeps to, for ``kernel="linear"``: numbers, or arrays that broadcast
        to (n_classes, n_features), None or infinities where there is no bound. The gap is
        certified for the problem with these constraints [2]_. Intercepts have no bounds.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Which example is next: with probability proportional to its last known gap [2]_,
        uniformly, or all in a new random order each pass.
    step : {"line_search", "pairwise", "away", "exact", "fixed"}, default="line_search"
        "line_search" is the Frank-Wolfe step with the best step size, in closed form (for
        "log" by Newton's method); "exact" maximises the dual over the whole block, where
        that has a closed form ("max_margin", and "max_min" with the 0-1 loss), and takes
        fewer, dearer passes; "fixed" is the step 2n / (t + 2n) of [1]_ with averaging.
        "pairwise" moves weight from the worst of an example's atoms to the oracle's answer, and
        "away" away from it where that gains more [2]_: both reach small gaps in fewer passes, and
        keep each example's atoms. For "max_min" and "max_margin".
    accelerate : bool, default=True
        Whether passes are accelerated by momentum, where alpha is small beside the curvature:
        many times fewer passes there (see the user guide). The weights are then an average
        of the latest ones, and their gap is certified all the same.
    cache : int, default=None
        Most atoms (outputs, or mixtures of them) that are kept of an example, so that the oracle
        need not be asked where the best of them gains enough [2]_; None for no cache.
    cache_F : float, default=0.25
        An atom gains enough if it does `cache_F` of the example's gap when the oracle was last
        asked, and `cache_nu` of the mean gap. In (0, 1].
    cache_nu : float, default=0.01
        The share of the mean gap, when the gaps of all were last looked at, that an atom has to
        gain. In (0, 1].
    solver : {"manual", "auto"}, default="manual"
        "auto" chooses `step` and `cache` by the seconds that they take in the first passes, and
        says in `history_` what it chose. It goes by the clock: fits may differ in their last
        digits from run to run.
    oracle : {"exact", "mirror_prox"}, default="exact"
        How "max_min" oracles are solved: in closed form or as a matrix game, or by the
        saddle-point mirror prox of [1]_, for comparison. The certified gap does not
        depend on it.
    oracle_iter : int, default=20
        Iterations of mirror prox.
    oracle_warm_start : bool, default=True
        Whether mirror prox starts from where it ended at the last visit.
    tol : float, default=1e-3
        Absolute duality gap at which the fit ends.
    max_iter : int, default=1000
        Most passes over the examples.
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score, or of the least expected cost under the
        probabilities ("log") or the oracle's distribution ("max_min").
    class_weight : dict or "balanced", default=None
        Factors on the sample weights by class; "balanced" gives every class the same sum.
    cache_size : float, default=2048
        Memory for kernel values in MiB. The Gram matrix is held whole where it fits (8 n^2
        bytes); where it does not, its rows are computed as needed and this much of them kept.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many samples
        and the same classes; alpha may change. Keeps n_samples x n_classes numbers.
    n_jobs : int, default=None
        Threads of the certificate. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits: an int gives the same bits on the same machine.
    verbose : int, default=0
        A progress bar (with tqdm) and lines in the log "fastm4n".
    callback : callable, default=None
        Called after each certificate with a dict of its row of `history_`; a true result
        ends the fit.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Weights, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_classes)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for other kernels than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    cost_matrix_ : ndarray of shape (n_classes, n_classes)
        The costs of `cost`.
    duality_gap_ : float
        Certified gap: the objective is at most this much above its minimum.
    primal_objective_, dual_objective_ : float
        The two values that differ by the gap.
    n_iter_ : int
        Passes made.
    history_ : dict of ndarray
        At each certificate "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
        "oracle_error" (mean of the oracle's own bounds' difference during the pass),
        "cache_hits" (visits that asked no oracle) and "policy" (the step, and whether there is
        a cache).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

    See Also
    --------
    OrdinalClassifier : The same for ordered levels.

    Notes
    -----
    The duality gap is a bound: it is computed from feasible dual points and exact oracles
    at the end of the fit, with the weights recomputed from the dual point. Examples that
    occur more than once are merged into one of larger weight, and the blocks are ordered
    by content, so that a fit depends neither on the order of the samples nor on whether
    a weight is written as a repetition.

    A pass costs O(n_samples n_features n_classes) and memory is O(n_samples n_classes +
    n_features n_classes) for linear models; O(n_samples^2 n_classes) and the Gram matrix
    or `cache_size` for kernels.

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
    >>> bool(clf.duality_gap_ <= 1e-3)
    True
    >>> clf.predict(X[:2])
    array([0, 0])
    """


class OrdinalClassifier(_SimplexClassifier):
    """Classification into ordered levels, with a certified gap.

    `MulticlassClassifier` with a cost that grows with the distance between levels, |i - j|
    by default, whose max-min oracle has a closed form.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"}, default="max_min"
        The loss that is minimised: "max_min" is the M4N of [1]_, consistent for every
        cost; "max_margin" the multi-class SVM of Crammer and Singer (M3N, structural
        SVM); "log" multinomial logistic regression (CRF).
    alpha : float, default=0.01
        Regularisation: alpha / 2 times the squared norm of the weights is added to the
        mean loss, the scale of `SGDClassifier`. ``LinearSVC``'s C is 1 / (alpha n).
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_classes, n_classes), \
            default="absolute"
        What a mistake costs: cost[i, j] for predicting ``classes_[j]`` where the truth is
        ``classes_[i]``. The names take the classes' positions in `classes_`. The "log"
        surrogate uses it for ``decode="min_risk"`` only.
    kernel : str or callable, default="linear"
        "linear" keeps weights, every other kernel of
        `sklearn.metrics.pairwise.pairwise_kernels`, a callable or "precomputed" keeps
        dual coefficients.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Kernel coefficient, as in `sklearn.svm.SVC`; None is the kernel's own default.
    degree : float, default=3
        Degree of the polynomial kernel.
    coef0 : float, default=1.0
        Constant of the polynomial and sigmoid kernels.
    kernel_params : dict, default=None
        Further arguments of the kernel.
    fit_intercept : bool, default=True
        Whether to add a constant feature, whose weight is the intercept.
    regularize_intercept : bool, default=True
        Whether the intercept is penalised like the other weights. Without the penalty the
        fit is a few warm-started ones, drawn to the last intercept each time (the
        proximal-point method), and its gap is certified for the problem without it. Linear
        models centre a copy of dense features for it; sparse ones are taken as they are.
    intercept_scaling : float, default=1.0
        Value of the constant feature (its square is added to a kernel): the intercept's
        penalty is alpha / 2 times its square over ``intercept_scaling ** 2``. Without
        the penalty, the larger the longer the proximal steps.
    coef_bounds : pair (lower, upper), default=None
        Bounds that `coef_` keeps to, for ``kernel="linear"``: numbers, or arrays that broadcast
        to (n_classes, n_features), None or infinities where there is no bound. The gap is
        certified for the problem with these constraints [2]_. Intercepts have no bounds.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Which example is next: with probability proportional to its last known gap [2]_,
        uniformly, or all in a new random order each pass.
    step : {"line_search", "pairwise", "away", "exact", "fixed"}, default="line_search"
        "line_search" is the Frank-Wolfe step with the best step size, in closed form (for
        "log" by Newton's method); "exact" maximises the dual over the whole block, where
        that has a closed form ("max_margin", and "max_min" with the 0-1 loss), and takes
        fewer, dearer passes; "fixed" is the step 2n / (t + 2n) of [1]_ with averaging.
        "pairwise" moves weight from the worst of an example's atoms to the oracle's answer, and
        "away" away from it where that gains more [2]_: both reach small gaps in fewer passes, and
        keep each example's atoms. For "max_min" and "max_margin".
    accelerate : bool, default=True
        Whether passes are accelerated by momentum, where alpha is small beside the curvature:
        many times fewer passes there (see the user guide). The weights are then an average
        of the latest ones, and their gap is certified all the same.
    cache : int, default=None
        Most atoms (outputs, or mixtures of them) that are kept of an example, so that the oracle
        need not be asked where the best of them gains enough [2]_; None for no cache.
    cache_F : float, default=0.25
        An atom gains enough if it does `cache_F` of the example's gap when the oracle was last
        asked, and `cache_nu` of the mean gap. In (0, 1].
    cache_nu : float, default=0.01
        The share of the mean gap, when the gaps of all were last looked at, that an atom has to
        gain. In (0, 1].
    solver : {"manual", "auto"}, default="manual"
        "auto" chooses `step` and `cache` by the seconds that they take in the first passes, and
        says in `history_` what it chose. It goes by the clock: fits may differ in their last
        digits from run to run.
    oracle : {"exact", "mirror_prox"}, default="exact"
        How "max_min" oracles are solved: in closed form or as a matrix game, or by the
        saddle-point mirror prox of [1]_, for comparison. The certified gap does not
        depend on it.
    oracle_iter : int, default=20
        Iterations of mirror prox.
    oracle_warm_start : bool, default=True
        Whether mirror prox starts from where it ended at the last visit.
    tol : float, default=1e-3
        Absolute duality gap at which the fit ends.
    max_iter : int, default=1000
        Most passes over the examples.
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score, or of the least expected cost under the
        probabilities ("log") or the oracle's distribution ("max_min").
    class_weight : dict or "balanced", default=None
        Factors on the sample weights by class; "balanced" gives every class the same sum.
    cache_size : float, default=2048
        Memory for kernel values in MiB. The Gram matrix is held whole where it fits (8 n^2
        bytes); where it does not, its rows are computed as needed and this much of them kept.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many samples
        and the same classes; alpha may change. Keeps n_samples x n_classes numbers.
    n_jobs : int, default=None
        Threads of the certificate. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits: an int gives the same bits on the same machine.
    verbose : int, default=0
        A progress bar (with tqdm) and lines in the log "fastm4n".
    callback : callable, default=None
        Called after each certificate with a dict of its row of `history_`; a true result
        ends the fit.
    levels : array-like of shape (n_levels,), default=None
        All levels, lowest first; for levels whose order is not that of sorting, or that
        may be missing from y. By default the sorted labels of y.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features)
        Weights, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_classes)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for other kernels than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    cost_matrix_ : ndarray of shape (n_classes, n_classes)
        The costs of `cost`.
    duality_gap_ : float
        Certified gap: the objective is at most this much above its minimum.
    primal_objective_, dual_objective_ : float
        The two values that differ by the gap.
    n_iter_ : int
        Passes made.
    history_ : dict of ndarray
        At each certificate "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
        "oracle_error" (mean of the oracle's own bounds' difference during the pass),
        "cache_hits" (visits that asked no oracle) and "policy" (the step, and whether there is
        a cache).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X had string names.

    See Also
    --------
    MulticlassClassifier : The same for classes without an order.

    Notes
    -----
    The duality gap is a bound: it is computed from feasible dual points and exact oracles
    at the end of the fit, with the weights recomputed from the dual point. Examples that
    occur more than once are merged into one of larger weight, and the blocks are ordered
    by content, so that a fit depends neither on the order of the samples nor on whether
    a weight is written as a repetition.

    A pass costs O(n_samples n_features n_classes) and memory is O(n_samples n_classes +
    n_features n_classes) for linear models; O(n_samples^2 n_classes) and the Gram matrix
    or `cache_size` for kernels.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

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

    def __init__(
        self,
        surrogate="max_min",
        *,
        alpha=0.01,
        cost="absolute",
        kernel="linear",
        gamma="scale",
        degree=3,
        coef0=1.0,
        kernel_params=None,
        fit_intercept=True,
        regularize_intercept=True,
        intercept_scaling=1.0,
        coef_bounds=None,
        sampling="gap",
        step="line_search",
        accelerate=True,
        cache=None,
        cache_F=0.25,
        cache_nu=0.01,
        solver="manual",
        oracle="exact",
        oracle_iter=20,
        oracle_warm_start=True,
        tol=1e-3,
        max_iter=1000,
        decode="map",
        class_weight=None,
        cache_size=2048,
        warm_start=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
        callback=None,
        levels=None,
    ):
        super().__init__(
            surrogate=surrogate,
            alpha=alpha,
            cost=cost,
            kernel=kernel,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            kernel_params=kernel_params,
            fit_intercept=fit_intercept,
            regularize_intercept=regularize_intercept,
            intercept_scaling=intercept_scaling,
            coef_bounds=coef_bounds,
            sampling=sampling,
            step=step,
            accelerate=accelerate,
            cache=cache,
            cache_F=cache_F,
            cache_nu=cache_nu,
            solver=solver,
            oracle=oracle,
            oracle_iter=oracle_iter,
            oracle_warm_start=oracle_warm_start,
            tol=tol,
            max_iter=max_iter,
            decode=decode,
            class_weight=class_weight,
            cache_size=cache_size,
            warm_start=warm_start,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            callback=callback,
        )
        self.levels = levels

    def _encode(self, y, kept):
        if self.levels is None:
            return super()._encode(y, kept)
        levels = np.asarray(self.levels)
        try:
            right = levels.ndim == 1 and levels.size >= 2 and np.unique(levels).size == levels.size
        except TypeError as error:
            raise ValueError(f"levels must be of one type: {error}.") from error
        if not right:
            raise ValueError("levels must be one-dimensional, at least two, and without repeats.")
        order = np.argsort(levels, kind="stable")
        try:
            place = np.searchsorted(levels, y[kept], sorter=order)
        except TypeError as error:
            raise ValueError(f"levels and y must be of one type: {error}.") from error
        found = order[np.minimum(place, levels.size - 1)]
        unknown = kept[levels[found] != y[kept]]
        if unknown.size:
            row = int(unknown[0])
            raise ValueError(f"y[{row}] is {y[[row]].tolist()[0]!r}, which is not in levels.")
        return levels, found
