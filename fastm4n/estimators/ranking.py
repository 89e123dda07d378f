"""Label ranking: outputs that are rankings of a fixed set of items."""

import math
from dataclasses import replace

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from fastm4n.estimators._base import (
    DECODINGS,
    canonical,
    check_choice,
    check_weights,
    cost_matrix,
    has_marginals,
    summable,
)
from fastm4n.estimators._permutations import (
    best_permutations,
    distribution,
    least_risk,
    permutation_structure,
)
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.metrics import hamming_ranking_loss
from fastm4n.rankings import (
    FORMS,
    as_places,
    places_to_orderings,
    places_to_strings,
    read_rankings,
)


class LabelRanker(VectorEstimator):
    """Label ranking by M4N, structural SVM or CRF on permutations, with a certified gap.

    Learns to rank M items for each x. A ranking that puts item i at position p_i scores
    sum_i (``coef_[i, p_i] @ x + intercept_[i, p_i]``), or the same with a kernel. Minimises
    mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2, S being the surrogate of the mean cost over
    items, by block-coordinate Frank-Wolfe on the dual.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"}, default="max_min"
        The loss that is minimised: "max_min" is the M4N of [1]_, consistent for every
        cost; "max_margin" the structural SVM (M3N); "log" the CRF, whose exact marginals take
        2^M steps an example, for M of at most 20.
    alpha : float, default=0.01
        Regularisation: alpha / 2 times the squared norm of the weights is added to the
        mean loss.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_items, n_items), \
            default="zero_one"
        What a mistake at one item costs: cost[j, k] for putting it at position k where the truth
        is j. The loss of a ranking is the mean over its items: the Hamming loss divided by M for
        "zero_one", Spearman's footrule for "absolute", and for "squared" what Spearman's rho
        counts. The "log" surrogate uses it for ``decode="min_risk"`` only.
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
        Whether to add a constant feature, whose weights are the intercepts; they are penalised
        like the others.
    intercept_scaling : float, default=1.0
        Value of the constant feature (its square is added to a kernel): the intercepts' penalty
        is alpha / 2 times their square over ``intercept_scaling ** 2``.
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        How rankings are written, see `fastm4n.rankings.as_places`: the ranks of the items, the
        items best first, or strings such as "b>a>c". Predictions are of the same form.
    coef_bounds : pair (lower, upper), default=None
        Bounds that `coef_` keeps to, for ``kernel="linear"``: numbers, or arrays that broadcast
        to (n_items, n_items, n_features), None or infinities where there is no bound. The gap is
        certified for the problem with these constraints [2]_. Intercepts have no bounds.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Which example is next: with probability proportional to its last known gap [2]_,
        uniformly, or all in a new random order each pass.
    step : {"line_search", "pairwise", "away", "fixed"}, default="line_search"
        "line_search" is the Frank-Wolfe step with the best step size, in closed form; "fixed" is
        the step 2n / (t + 2n) of [1]_ with averaging. "log" takes steps of its own, in the
        scores whose marginals the dual point is, and knows "line_search" only.
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
    oracle : {"column_generation", "mirror_prox"}, default="column_generation"
        How "max_min" oracles are solved: by assignments and small matrix games, as exactly as the
        gap needs, or by the saddle-point mirror prox of [1]_ with Sinkhorn's projections, for
        comparison. The certified gap does not depend on it.
    oracle_iter : int, default=20
        Iterations of mirror prox.
    oracle_warm_start : bool, default=False
        Whether mirror prox starts from what it gave at the block's last visit.
    tol : float, default=1e-3
        Absolute duality gap at which the fit ends.
    max_iter : int, default=1000
        Most passes over the examples.
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score, or of the least expected cost under the marginals
        ("log") or the oracle's distribution ("max_min").
    cache_size : float, default=2048
        Memory for kernel values in MiB. The Gram matrix is held whole where it fits (8 n^2
        bytes); where it does not, its rows are computed as needed and this much of them kept.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many samples
        and the same items; alpha may change. Keeps n_samples x n_items^2 numbers, twice as
        many for "log", which starts from fits of "log" alone.
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
    coef_ : ndarray of shape (n_items, n_items, n_features)
        Weights of each item at each position, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_items, n_items)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for other kernels than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_items, n_items)
        Intercepts.
    items_ : ndarray of shape (n_items,)
        The items: the names in y, sorted; for ranks, which name none, 0 ... n_items - 1.
    form_ : str
        The form of y: "ranks", "ordering" or "string".
    cost_matrix_ : ndarray of shape (n_items, n_items)
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
    Matcher : Permutations whose scores come from features of pairs.
    fastm4n.metrics.kendall_tau_score : Agreement of rankings.

    Notes
    -----
    The duality gap is a bound: it is computed from feasible dual points and upper bounds of the
    oracles at the end of the fit, with the weights recomputed from the dual point. Examples that
    occur more than once are merged into one of larger weight, and the blocks are ordered
    by content, so that a fit depends neither on the order of the samples nor on whether
    a weight is written as a repetition.

    A pass costs O(n_samples (n_features n_items^2 + n_items^3)) and memory is O(n_samples
    n_items^2 + n_features n_items^2) for linear models; O(n_samples^2 n_items^2) and the Gram
    matrix or `cache_size` for kernels.

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

    _oracles = ("column_generation", "mirror_prox")

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
        intercept_scaling=1.0,
        form="auto",
        coef_bounds=None,
        sampling="gap",
        step="line_search",
        accelerate=True,
        cache=None,
        cache_F=0.25,
        cache_nu=0.01,
        solver="manual",
        oracle="column_generation",
        oracle_iter=20,
        oracle_warm_start=False,
        tol=1e-3,
        max_iter=1000,
        decode="map",
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
        self.intercept_scaling = intercept_scaling
        self.form = form
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
        self.cache_size = cache_size
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    # -------------------------------------------------------------------------- fit

    def _coef_shape(self, n_scores, n_features):
        M = math.isqrt(n_scores)
        return M, M, n_features

    def fit(self, X, y, sample_weight=None):
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training examples, or their Gram matrix (n_samples, n_samples) for
            ``kernel="precomputed"``. C-ordered float32 or float64 arrays and CSR matrices
            are not copied by linear models.
        y : array-like of shape (n_samples,) or (n_samples, n_items)
            Complete rankings of the same items, without ties; see `form`.
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
        self._check_solver_parameters()
        self._check_vector_parameters()
        check_choice("form", self.form, FORMS)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        X = self._validated(X)
        self._check_square(X)
        places, items, form, base = read_rankings(y, self.form)
        if places.shape[0] != X.shape[0]:
            raise ValueError(f"y has {places.shape[0]} rankings, but X has {X.shape[0]} samples.")
        M = items.size
        if M < 2:
            raise ValueError("y ranks one item only; a ranker needs at least two.")
        X = canonical(X)
        weights = check_weights(_check_sample_weight(sample_weight, X, dtype=np.float64))
        kept = np.flatnonzero(weights)
        weights = summable(weights[kept])
        cost = cost_matrix(self.cost, M, "items")
        rankings, outputs = np.unique(places[kept], axis=0, return_inverse=True)

        def structure(outputs):
            sizes = np.full(outputs.size, M)
            return permutation_structure(self, rankings[outputs].ravel(), sizes, cost)

        problem = self._vector_problem(
            X, kept, outputs.ravel(), weights, M * M, structure,
            truth=lambda outputs: np.eye(M)[rankings[outputs]].reshape(-1, M * M),
            same_task=hasattr(self, "items_") and np.array_equal(items, self.items_),
            common={"items_": items, "form_": form, "_base": base, "cost_matrix_": cost},
        )
        flat = problem.fitted

        def fitted(mu, alpha):
            attributes = flat(mu, alpha)
            for name, rows in attributes.items():
                shape = (-1, M, M) if name == "dual_coef_" else (M, M, *rows.shape[1:])
                attributes[name] = rows.reshape(shape)
            return attributes

        return replace(problem, fitted=fitted)

    def __sklearn_is_fitted__(self):
        return hasattr(self, "items_")

    # ---------------------------------------------------------------------- predict

    def decision_function(self, X):
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

    def predict(self, X, decode=None):
        """Predicted rankings.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        decode : {"map", "min_risk"}, default=None
            Overrides the parameter `decode`.

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
        decode = self.decode if decode is None else decode
        check_choice("decode", decode, DECODINGS)
        check_is_fitted(self)
        scores = self.decision_function(X)
        if decode == "map":
            return best_permutations(scores)
        marginals = distribution(self.surrogate, scores, self.cost_matrix_)
        return least_risk(marginals, scores, self.cost_matrix_)

    @available_if(has_marginals)
    def predict_marginals(self, X):
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
        return distribution(self.surrogate, self.decision_function(X), self.cost_matrix_)

    def score(self, X, y, sample_weight=None):
        """Mean share of the items that `predict` puts where they are in y.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
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
