"""Multi-label classification: outputs that are sets of labels, with weights of pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice, check_number
from fastm4n.estimators._base import needs_log
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.estimators._vectors import VectorEstimator
from fastm4n.factors import as_factors, check_constraints
from fastm4n.outputs.graph_oracles import INFERENCES
from fastm4n.tasks.label_sets import (
    AN_INDICATOR,
    KINDS,
    UNKNOWN,
    LabelSetTask,
    check_graph,
    explained,
    read_indicator,
)
from fastm4n.tasks.parameters import check_lengths

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import CSR, Array, FloatArray, IntArray, RandomState
    from fastm4n.data._types import Matrix
    from fastm4n.estimators._types import (
        Alpha,
        Decoding,
        Gamma,
        Inference,
        Kernel,
        PenaltyLike,
        SolverLike,
        SurrogateLike,
    )
    from fastm4n.factors import Factors
    from fastm4n.tasks.label_sets import LabelSetExplanation


class MultiLabelClassifier(PartialFitOfWeights, ClassifierMixin, VectorEstimator):
    """Multi-label classification by M4N, structural SVM or CRF, with a certified gap.

    In a set of labels, y_l is 1 for labels that are on and 0 for the others. Its score is
    sum_l y_l (``coef_[l] @ x + intercept_[l]``) + sum_e ``edge_coef_[e]`` y_l y_m, over the labels
    l and the edges e = {l, m} of a graph of labels, or a kernel expansion. Minimises
    mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2 by block-coordinate Frank-Wolfe on the dual. S
    is the surrogate of the costs of the labels.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, default="log"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    graph : {"tree", "complete", "none"} or array-like of shape (n_edges, 2), default="tree"
        Pairs of labels that have a weight: the tree of largest mutual information between the
        labels of the training examples (Chow and Liu), all pairs, none, or the given pairs of
        columns of y.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of the weights is added to the mean loss.
        "auto" is 2 / n, n being the sum of the sample weights. The margins divide it by the mean
        cost of a mistake.
    cost : "zero_one" or array of shape (2, 2), (n_labels,) or (n_labels, 2, 2), \
default="zero_one"
        Costs of mistakes at one label: cost[0, 1] for predicting a label that is off, and
        cost[1, 0] for missing one that is on. "zero_one" is the Hamming loss. A vector has the
        cost of both mistakes at each label, and n_labels matrices those of each label. Under
        "max_min" they are multiples of one matrix. "log" uses costs for ``decode="min_risk"``,
        and in the fit if it is cost-augmented.
    inference : {"auto", "forest", "min_cut", "exact", "lp"}, default="auto"
        How best sets are found. "auto" is exact where edges make no cycle, where bounds hold the
        weights of pairs at zero or more (``penalty=L2(bounds={"edge_coef": (0, None)})``, by
        minimum cuts), and for few labels (up to 16, or more if few pairs hang together); elsewhere
        it is "lp", a linear program whose objective bounds the exact one from above. The others
        demand one of these, "exact" any that is, and raise an error where it cannot be had.
        `oracle_` is the choice.
    constraints : FactorTables, CountFactor or list of them, default=None
        Which sets of labels there are, in fits and in predictions: factors whose nodes are the
        columns of y, their tables 0 for what is allowed and -inf for what is not;
        ``CountFactor.budget(range(n_labels), 3)`` is at most three labels. Inference is exact then,
        and an error if it is too large. In "max_min" the adversary answers label by label, which
        bounds its game from below.
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
        the weaker is the penalty, as with `intercept_scaling` of ``LinearSVC``. Intercepts of rare
        labels are large, and 10 leaves them nearly free. "free" fits intercepts without a penalty
        by a few warm-started fits, and the gap is certified for that problem. Labels that are in no
        set or in every set keep a penalty. "free" does not support `constraints` and paths.
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
    decode : {"auto", "map", "min_risk", "f1"}, default="auto"
        Prediction of the set of highest score ("map"), or of the least expected cost under the
        probabilities ("log") or the oracle's distribution ("max_min"). "auto" is "min_risk" for
        "log" and "map" for surrogates that learn costs. "f1" is the set of largest expected
        F-measure ``2 |y & h| / (|y| + |h|)``, 1 if the true set y and the prediction h are both
        empty. It takes labels as independent, with their marginals under the same distribution,
        and is exact for ``graph="none"``.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if it had as many samples and the same
        labels and edges. alpha may change. Keeps about n_samples x 2 (n_labels + n_edges) numbers,
        twice as many for "log".
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
    coef_ : ndarray of shape (n_labels, n_features)
        Weights of the labels, for ``kernel="linear"``.
    dual_coef_ : ndarray of shape (n_samples, n_labels)
        Coefficients of the training examples, for other kernels.
    X_fit_ : {ndarray, sparse matrix} of shape (n_samples, n_features)
        The training examples, for kernels other than "linear" and "precomputed".
    intercept_ : ndarray of shape (n_labels,)
        Intercepts.
    edges_ : ndarray of int of shape (n_edges, 2)
        Pairs of labels that have weights, as columns of y.
    edge_coef_ : ndarray of shape (n_edges,)
        Weights of the pairs.
    classes_ : ndarray of shape (n_labels,)
        The labels: the names of the columns of y if they are strings, otherwise
        0 ... n_labels - 1.
    cost_matrix_ : ndarray of shape (2, 2) or (n_labels, 2, 2)
        Matrix of the costs, or one of each label.
    oracle_ : str
        What finds best sets: "labels" (one by one), "forest", "min_cut", "few_states", or of
        linear programs "roof" (roof duality) and "decomposition".
    exact_ : bool
        Whether the objective is the exact one: for all but linear programs, and for those where
        `integrality_gap_` is zero.
    integrality_gap_ : float or None
        How far the objective of the linear program lies at most above the exact one at these
        weights; 0 for exact oracles, None if it is not known ("log" over linear programs).
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
    certified_for_ : {"data", "change", "completions"}
        The objective that the gap is for: that of all data, that of `partial_fit` for weights whose
        data are not there, or that of the best round for labels that are not known.
    n_seen_ : float or None
        Sum of the weights of the samples that the weights were fitted to, None for files of older
        releases. `partial_fit` goes by it, and it may be set.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, if X had string names.

    See Also
    --------
    MulticlassClassifier : One label for each sample.

    Notes
    -----
    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    A pass takes O(n_samples n_features n_labels) time and n_samples calls of the oracle. Memory is
    O(n_samples (n_labels + n_edges) + n_features n_labels) for linear models.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import MultiLabelClassifier
    >>> X = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.2, 0.8]])
    >>> y = np.array([[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]])
    >>> clf = MultiLabelClassifier(alpha=0.01, random_state=0).fit(X, y)
    >>> clf.predict([[0.7, 0.1]]).tolist()
    [[1, 0, 1]]
    >>> clf.edges_.tolist()
    [[0, 1]]
    """

    coef_: FloatArray
    intercept_: FloatArray
    edges_: IntArray
    edge_coef_: FloatArray
    classes_: Array
    oracle_: str
    exact_: bool
    integrality_gap_: float | None

    _task = "multilabel"
    _part = "label"
    _fitted_arrays = {
        "classes_": (("k",), "USiu"), "edges_": (("m", "ends"), "iu"),
        "edge_coef_": (("m",), "f"), "intercept_": (("k",), "f"),
    }
    _fitted_values = ("oracle_", "exact_", "integrality_gap_", "_kind", "_dtype")
    _task_class = LabelSetTask
    _free_intercepts = True

    def __init__(
        self, surrogate: SurrogateLike = "log", *,
        graph: Literal["tree", "complete", "none"] | ArrayLike = "tree", alpha: Alpha = "auto",
        cost: Literal["zero_one"] | ArrayLike = "zero_one", inference: Inference = "auto",
        constraints: Factors | None = None, kernel: Kernel = "linear", gamma: Gamma = "scale",
        kernel_params: dict[str, Any] | None = None,
        fit_intercept: bool | Literal["free"] | float = 10.0,
        penalty: PenaltyLike = "l2", solver: SolverLike = "auto", tol: float = 1e-3,
        max_iter: int = 1000, decode: Decoding | Literal["f1"] = "auto", warm_start: bool = False,
        n_jobs: int | None = None, random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.graph = graph
        self.alpha = alpha
        self.cost = cost
        self.inference = inference
        self.constraints = constraints
        self.kernel = kernel
        self.gamma = gamma
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
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
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = tags.target_tags.two_d_labels = True
        tags.target_tags.single_output = tags.target_tags.one_d_labels = False
        return tags

    def _arrays_of_fit(self):
        of_labels = not isinstance(self.cost, str) and np.ndim(self.cost) != 2
        return {**self._fitted_arrays, "cost_matrix_": (
            ("k", "value", "value") if of_labels else ("value", "value"), "f")}

    # -------------------------------------------------------------------------- fit

    def _check_parameters(self):
        self._check_solver_parameters()
        check_choice("inference", self.inference, INFERENCES)
        check_graph(self.graph)
        if self.constraints is not None:
            constraints = as_factors(self.constraints, 2**62, "constraints")
            check_constraints(constraints, "constraints")
            if constraints and self.inference not in ("auto", "exact"):
                raise ValueError(
                    f"inference={self.inference!r} finds best sets without constraints: use "
                    "inference='auto' or 'exact'.")
        self._check_vector_parameters()

    def _check_fitted(self, attributes):
        edges, labels = attributes["edges_"], attributes["classes_"].size
        if edges.shape[1] != 2 or attributes["cost_matrix_"].shape[-1] != 2:
            raise ValueError("edges_ or cost_matrix_ is not of pairs")
        if edges.size and (edges.min() < 0 or edges.max() >= labels):
            raise ValueError("edges_ names labels that there are not")
        check_choice("_kind", attributes["_kind"], KINDS)
        if np.dtype(attributes["_dtype"]).kind not in "biuf":
            raise ValueError("_dtype is no type of indicators")

    def fit(
        self, X: Matrix, y: Matrix, sample_weight: ArrayLike | None = None, *,
        label_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training examples, or their Gram matrix (n_samples, n_samples) for
            ``kernel="precomputed"``. Linear models do not copy C-ordered float32 or float64 arrays
            and CSR matrices.
        y : {array-like, sparse matrix} of shape (n_samples, n_labels)
            Indicator: 1 for the labels of each sample, 0 for the others, and NaN or -1 for labels
            that are not known. The fit leaves unknown labels and their pairs out. It completes no
            labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. 2 counts the example twice, 0 leaves it out.
        label_weight : array-like of shape (n_samples, n_labels), default=None
            Factors of the costs of mistakes at each label of each sample, on top of `cost`. Not
            for "log", which has no costs in the fit unless it is cost-augmented.

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
        return self._fit(X, y, sample_weight, None, None, label_weight)

    # ---------------------------------------------------------------------- predict

    def decision_function(self, X: Matrix) -> FloatArray:
        """Margins of the labels, positive for the labels that `predict` sets.

        For ``surrogate="log"`` they are the log-odds of `predict_proba`, in the same order. With
        ``decode="map"`` and for the margins they are max-margins: the score of the best set with a
        label minus the score of the best set without it. Without edges both are
        ``X @ coef_.T + intercept_``.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples, or kernel values with the training examples for
            ``kernel="precomputed"``.

        Returns
        -------
        margins : ndarray of shape (n_samples, n_labels)
            Columns as in `classes_`. For asymmetric costs `predict` sets the labels with log-odds
            above ``log(cost_matrix_[0, 1] / cost_matrix_[1, 0])``. With constraints it predicts the
            allowed set of least expected cost, whatever the signs. Log-odds are finite.
            Max-margins are infinite if constraints leave a label no choice. If the oracle is not
            exact, a max-margin is the effect of the label on the score of the predicted set, with
            all other labels fixed.
        """
        return self._decoder(X).decision()

    @overload
    def predict(
        self, X: Matrix, decode: Decoding | Literal["f1"] | None = None,
        return_bound: Literal[False] = False, *, factors: Factors | None = None,
    ) -> Array | CSR: ...
    @overload
    def predict(
        self, X: Matrix, decode: Decoding | Literal["f1"] | None = None, *,
        return_bound: Literal[True], factors: Factors | None = None,
    ) -> tuple[Array | CSR, FloatArray]: ...
    @overload
    def predict(
        self, X: Matrix, decode: Decoding | Literal["f1"] | None, return_bound: bool, *,
        factors: Factors | None = None,
    ) -> Any: ...
    def predict(
        self, X: Matrix, decode: Decoding | Literal["f1"] | None = None,
        return_bound: bool = False, *, factors: Factors | None = None,
    ) -> Any:
        """Predict label sets.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        decode : {"auto", "map", "min_risk", "f1"}, default=None
            Overrides the parameter `decode`.
        return_bound : bool, default=False
            Whether to return bounds, for ``decode="map"``.
        factors : FactorTables, CountFactor or list of them, default=None
            Scores and constraints of several labels, for all samples, in addition to `constraints`.
            Nodes are the columns of y. Values of tables are added to the score of a set, and -inf
            forbids it. Inference is then exact, whatever `inference` is.

        Returns
        -------
        y : {ndarray, sparse matrix} of shape (n_samples, n_labels)
            An indicator of the kind and dtype of y in `fit`.
        bound : ndarray of shape (n_samples,)
            With `return_bound`: the score of the best set is at most so much above that of the
            predicted one. Zero up to rounding if the oracle is exact.

        Examples
        --------
        >>> from fastm4n import CountFactor, MultiLabelClassifier
        >>> X, y = [[1.0, 0.0], [0.0, 1.0]] * 3, [[1, 0, 1], [0, 1, 1]] * 3
        >>> clf = MultiLabelClassifier(random_state=0).fit(X, y)
        >>> clf.predict([[1.0, 0.2]]).tolist()
        [[1, 0, 1]]
        >>> clf.predict([[1.0, 0.2]], factors=CountFactor.at_most_one([0, 2])).tolist()
        [[0, 0, 1]]
        """
        return self._fitted_task().predict(X, decode, return_bound, factors=factors)

    @needs_log
    def predict_proba(self, X: Matrix) -> FloatArray:
        """Probabilities of the labels, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_labels)
            Probabilities of each label being on. For linear programs they are tree-reweighted
            pseudo-marginals.
        """
        return self.predict_marginals(X)[0]

    @needs_log
    def predict_marginals(
        self, X: Matrix, *, factors: Factors | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Probabilities of labels and of pairs, for ``surrogate="log"`` only.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        factors : FactorTables, CountFactor or list of them, default=None
            As in `predict`.

        Returns
        -------
        labels : ndarray of shape (n_samples, n_labels)
            Probability of each label, as in `predict_proba`.
        edges : ndarray of shape (n_samples, n_edges)
            Probability of both labels of each of `edges_`.
        """
        return self._decoder(X, factors=factors).marginals()

    def score(self, X: Matrix, y: Matrix, sample_weight: ArrayLike | None = None) -> float:
        """Subset accuracy: the share of samples whose known labels `predict` gives exactly.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Examples.
        y : {array-like, sparse matrix} of shape (n_samples, n_labels)
            True labels, an indicator. Samples without a known label do not count.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights.

        Returns
        -------
        accuracy : float
        """
        check_is_fitted(self)
        truth, names = read_indicator(y, self.classes_.size)[:2]
        if "U" == names.dtype.kind == self.classes_.dtype.kind and (names != self.classes_).any():
            raise ValueError(
                f"y has the columns {names.tolist()!s:.100}, but the model has the labels "
                f"{self.classes_.tolist()!s:.100}: give the columns in this order.")
        predicted = read_indicator(self.predict(X))[0]
        check_lengths(predicted, truth, AN_INDICATOR)
        unknown = truth == UNKNOWN
        counts = ~unknown.all(axis=1)
        if not counts.all():
            if not counts.any():
                raise ValueError("y has no known label.")
            if sample_weight is not None:
                sample_weight = np.asarray(sample_weight)[counts]
        known = ~unknown[counts]
        return accuracy_score(
            truth[counts] * known, predicted[counts] * known, sample_weight=sample_weight)

    def explain(
        self, feature_names: ArrayLike | None = None, n_strongest: int = 20,
    ) -> LabelSetExplanation:
        """The strongest weights: which features speak for which label, and which pairs.

        Parameters
        ----------
        feature_names : array-like of str of shape (n_features,), default=None
            Names of the features. By default those of `fit`, or numbers.
        n_strongest : int, default=20
            How many of each sign, of labels and of pairs.

        Returns
        -------
        explanation : LabelSetExplanation
            With `labels` and `pairs`, strongest first. Prints as a table.

        Raises
        ------
        ValueError
            For kernels other than "linear", which have no weights of features.

        Examples
        --------
        >>> from fastm4n import MultiLabelClassifier
        >>> X, y = [[1.0, 0.0], [0.0, 1.0]] * 3, [[1, 0, 1], [0, 1, 1]] * 3
        >>> clf = MultiLabelClassifier(random_state=0).fit(X, y)
        >>> found = clf.explain(["one", "two"], n_strongest=1)
        >>> [(label, feature) for _, label, feature in found.labels]
        [(1, 'two'), (0, 'two')]
        >>> [(a, b) for _, a, b in found.pairs]
        [(0, 1)]
        """
        check_is_fitted(self)
        check_number("n_strongest", n_strongest, low=0, integer=True)
        if not hasattr(self, "coef_"):
            raise ValueError(
                f"explain needs kernel='linear', got {self.kernel!r}: a kernel has no weights of "
                "features.")
        return explained(self, feature_names, n_strongest)
