"""Graph labelling: outputs that are labels of the nodes of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice, check_number
from fastm4n.data._sequences import Sequences
from fastm4n.estimators._base import CertifiedEstimator, PackedWeights, needs_log
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.outputs.graph_oracles import INFERENCES
from fastm4n.penalties._penalties import as_penalty
from fastm4n.tasks.chain_input import distinct
from fastm4n.tasks.graph_input import (
    as_graphs,
    as_node_labels,
    check_grid,
    declared_labels,
    is_unlabelled,
)
from fastm4n.tasks.graph_model import PAIRWISE
from fastm4n.tasks.graph_states import check_hidden_states
from fastm4n.tasks.graph_weights import WeightShapes, explained
from fastm4n.tasks.graphs import GraphTask
from fastm4n.tasks.parameters import LABEL_KINDS, as_weights, summable, warn_of_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.data._types import GraphData, Labellings, Masks
    from fastm4n.estimators._types import (
        Alpha,
        CostScale,
        Decoding,
        Inference,
        PenaltyLike,
        SolverLike,
        SurrogateLike,
        Tol,
    )
    from fastm4n.tasks.graph_predictions import GraphScores
    from fastm4n.tasks.graph_weights import GraphExplanation


class GraphTagger(PackedWeights, PartialFitOfWeights, CertifiedEstimator):
    """Labelling of the nodes of graphs by M4N, structural SVM or CRF, with a certified gap.

    Minimises mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2 by block-coordinate Frank-Wolfe on
    the dual. S is the surrogate of the costs of the nodes. The score of a labelling y is the sum
    over nodes of ``coef_[y_t] @ x_t + intercept_[y_t]``, plus the sum over edges of scores of the
    labels of their two nodes, see `pairwise`.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, \
default="max_margin"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of all weights is added to the mean loss of
        a graph. "auto" is 1 / n, n being the sum of the weights of graphs with labelled or hidden
        nodes. The margins divide it by the mean cost of different labels.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_labels, n_labels), \
default="zero_one"
        Costs of mistakes at one node: cost[i, j] if ``classes_[j]`` is predicted and
        ``classes_[i]`` is true. They are multiplied by `node_weights` of the graphs.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the M parts of an example are added or averaged. With "mean", as in the
        papers, mistakes in large examples need small margins only. If all examples have M parts,
        "sum" with alpha is "mean" with M alpha, and the weights are M times as large. "log" uses
        costs only if it is cost-augmented. ``decode="min_risk"`` under "max_min" has the same
        scale.
    pairwise : {"full", "symmetric", "potts", "attractive", "displacement"}, default="full"
        Scores of an edge. "full" has a number for each pair of labels of its first and second node.
        "symmetric" has the same number for both orders. "potts" has a number for equal labels.
        "attractive" is "potts" with weights of at least zero: if there are two labels and the
        features of edges are not negative, the best labelling is a minimum cut. "displacement" is
        for labels that are places of a grid of `grid_shape`, label row * n_columns + column being
        the place (row, column). It has weights of dx, dx^2, dy and dy^2, at most zero for squares.
        d is the displacement from the place of the second node to that of the first, minus its
        weighted mean over the training edges of that type, divided by the number of columns. If
        graphs have features of edges, these numbers are linear in them. Each type of edge has its
        own weights.
    grid_shape : tuple of int, default=None
        Rows and columns of the grid of places. Required by ``pairwise="displacement"``.
    inference : {"auto", "forest", "min_cut", "exact", "lp"}, default="auto"
        How best labellings are found. "auto" is exact for forests, for attractive pairs of two
        labels (not for "log") and for graphs of few states, and else solves the linear program
        over the local polytope: its optimum is no labelling always, and the certified gap is of
        the objective with this larger polytope. "exact" makes that an error where a graph is too
        large.
    classes : array-like, or dict of node types to array-likes, default=None
        All labels. The fit then has weights for labels that do not occur in y, as in folds of a
        cross-validation, and refuses others. With types of nodes, a dict has the labels of each
        type, and a list those of every type. By default the labels of y.
    ignore_label : label, default=None
        Mark of nodes without a label in y, for example 255 or -100, in addition to -1. They do
        not count in fits and scores.
    unlabelled : {"ignore", "hidden"}, default="ignore"
        Whether the fit leaves out nodes of label -1 and their edges, or fills in their labels in
        rounds of fits. A type of nodes may have hidden nodes only, if `classes` is a dict with its
        labels. Mistakes at hidden nodes cost nothing.
    hidden_states : None, int or dict of label to int, default=None
        Number of states of every label, or of the labels of a dict, while others have one. A state
        has weights of its own, and `pairwise` compares states. The fit fills in the states in
        rounds of fits. Costs and predictions are of labels.
    label_features : bool, default=False
        Whether nodes have separate features for each label, label after label, in n_labels *
        n_channels columns, for example scores of several detectors at each place. All labels then
        share the weights of the channels: ``coef_`` has shape (n_node_types, n_channels), and there
        is no intercept.
    fit_intercept : bool, default=True
        Whether each label has a constant score.
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
        Prediction of the highest score ("map"), or at each node of the least expected cost under
        the marginals ("log") or the oracle's distribution ("max_min"). "auto" is "min_risk" for
        "log" if costs are not 0-1, and "map" otherwise.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if it had as many graphs of the same
        sizes, and the same labels, surrogate, cost_scale and oracle. alpha may change.
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
    coef_ : ndarray of shape (n_labels, n_node_types * n_features)
        Weights of the features. The weights of node type t begin at column t * n_features.
    intercept_ : ndarray of shape (n_node_types, n_labels)
    edge_coef_ : ndarray of shape (n_edge_types * n_edge_features, ...)
        Weights of the features of edges, type after type. "full" and "symmetric" have (n_labels,
        n_labels) for each, with the label of the first node first, "potts" and "attractive" one
        number, and "displacement" four.
    edge_intercept_ : ndarray of shape (n_edge_types, ...)
        Scores of edges that do not depend on features.
    classes_ : ndarray
        The labels.
    node_classes_ : ndarray of int of shape (n_node_types, n_labels)
        Labels that occur at each type of node, as positions in `classes_`, then -1. The rows of
        `coef_` have this order. A label is there once for each of its states.
    cost_matrix_ : ndarray of shape (n_classes, n_classes)
        Matrix of the costs.
    shifts_ : ndarray of shape (n_edge_types, 2)
        Mean displacements (dx, dy), in places. Only for ``pairwise="displacement"``.
    oracle_ : str
        What found best labellings: "nodes" where there are no edges, "forest", "min_cut",
        "few_states", or of linear programs "roof" (two labels, by one cut) and "decomposition".
    exact_ : bool
        Whether the certified gap is that of the exact objective too: always but for linear
        programs, and for those where `integrality_gap_` is zero.
    integrality_gap_ : float or None
        How far, at most, the objective with the larger polytope lies above the exact one at these
        weights. None if it is not known ("log" over linear programs).
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
    certified_for_ : {"data", "completions", "change"}
        The objective that the gap is for. "change" is that of `partial_fit` for weights whose data
        are not there. "completions" is the convex problem of the best round,
        with the labels and states that it filled in. ``history_["objective"]`` then has the
        objective of hidden labels after each round.
    history_ : dict of ndarray
        Values at each certificate: "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
        "oracle_error" (mean difference of the oracle's bounds during the pass), "cache_hits"
        (visits without an oracle call) and "policy" (the step, and whether there is a cache).
    n_seen_ : float or None
        Sum of the weights of the graphs that the weights were fitted to, None for files of older
        releases. `partial_fit` goes by it, and it may be set.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    Graphs : The container of graphs.
    MultiLabelClassifier : Labels that are on or off, of one vector of features.
    SequenceTagger : Chains, with weights of their ends.

    Notes
    -----
    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    For linear programs the gap is certified for the objective over the larger polytope. It is
    nowhere below the exact objective, and `primal_objective_` bounds both. Dual points of "max_min"
    with more than two labels are then mixtures of labellings. The integrality gap stays in
    `duality_gap_`, and a small `tol` may not be reached.

    The fit leaves out nodes without a label (-1 or `ignore_label`) and their edges, unless
    ``unlabelled="hidden"``. With hidden labels or states a round of the fit fills in the best ones
    for the weights ("log": their marginals), and fits the weights to them. The objective falls in
    each round. It is not convex, and ends at a local minimum that depends on the first labels. The
    first states of a label are clusters of its nodes by k-means, of their features and the shares
    of their neighbours' labels. So are the first labels of a type with hidden nodes only.

    Factors of X, see `Graphs`, restrict the labellings that a graph can have, in the fit and in the
    predictions: counts, and tables of 0 and -inf, whose labels are counted as in `node_classes_`.
    Such graphs need exact inference (`oracle_` "few_states"). Under "max_min" the adversary answers
    node by node, whether factors allow that labelling or not: its game is bounded from below.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import Graphs, GraphTagger
    >>> rng = np.random.default_rng(0)
    >>> truth = np.zeros((8, 8), dtype=int)
    >>> truth[2:6, 2:6] = 1
    >>> images = [truth + rng.normal(0, 0.7, truth.shape) for _ in range(4)]
    >>> X = Graphs.from_grid(images)
    >>> y = [truth.ravel()] * 4
    >>> tagger = GraphTagger(pairwise="attractive", random_state=0).fit(X, y)
    >>> tagger.oracle_, tagger.exact_
    ('min_cut', True)
    >>> tagger.predict(X)[0].reshape(8, 8)[3]
    array([0, 0, 1, 1, 1, 1, 0, 0])
    """

    coef_: FloatArray
    intercept_: FloatArray
    edge_coef_: FloatArray
    edge_intercept_: FloatArray
    classes_: Array
    node_classes_: IntArray
    shifts_: IntArray
    oracle_: str
    exact_: bool
    integrality_gap_: float | None

    _task = "graphs"
    _has_auto_tol = True
    _part = "node"
    _fitted_arrays = {
        "classes_": (("k",), LABEL_KINDS), "cost_matrix_": (("k", "k"), "f"),
        "node_classes_": (("t", "r"), "i"),
        "intercept_": (("t", "r"), "f"),
    }
    _coef_dims = ("r",)
    _fitted_values = ("oracle_", "exact_", "integrality_gap_", "n_edge_features_in_")
    _replaced = ("_packed", "shifts_")
    _task_class = GraphTask

    def __init__(
        self, surrogate: SurrogateLike = "max_margin", *, alpha: Alpha = "auto",
        cost: Cost = "zero_one", cost_scale: CostScale = "sum",
        pairwise: Literal["full", "symmetric", "potts", "attractive", "displacement"] = "full",
        grid_shape: tuple[int, ...] | None = None, inference: Inference = "auto",
        classes: ArrayLike | dict[int, ArrayLike] | None = None, ignore_label: Any = None,
        unlabelled: Literal["ignore", "hidden"] = "ignore",
        hidden_states: int | dict[Any, int] | None = None,
        label_features: bool = False, fit_intercept: bool | float = True,
        penalty: PenaltyLike = "l2", solver: SolverLike = "auto", tol: Tol = "auto",
        max_iter: int = 1000, decode: Decoding = "auto", warm_start: bool = False,
        n_jobs: int | None = None, random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.pairwise = pairwise
        self.grid_shape = grid_shape
        self.inference = inference
        self.classes = classes
        self.ignore_label = ignore_label
        self.unlabelled = unlabelled
        self.hidden_states = hidden_states
        self.label_features = label_features
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
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        return tags

    def _arrays_of_fit(self):
        pair = {"tables": ("r", "r"), "equal": (), "displaced": ("four",)}[PAIRWISE[self.pairwise]]
        arrays = {
            **self._fitted_arrays, "edge_coef_": (("E", *pair), "f"),
            "coef_": (("t", "D") if self.label_features else ("r", "D"), "f"),
            "edge_intercept_": (("e", *pair), "f"),
        }
        if self.pairwise == "displacement":
            arrays["shifts_"] = ("e", "two"), "f"
        return arrays

    # ------------------------------------------------------------------- validation

    def _check_parameters(self):
        self._check_solver_parameters()
        check_choice("pairwise", self.pairwise, tuple(PAIRWISE))
        self._check_flags("fit_intercept", "label_features")
        check_choice("inference", self.inference, INFERENCES)
        if self.pairwise == "displacement":
            check_grid(self.grid_shape)
        elif self.grid_shape is not None:
            raise ValueError(
                f"grid_shape is for pairwise='displacement': with pairwise={self.pairwise!r} it "
                f"must be None, got {self.grid_shape!r:.80}.")
        if declared_labels(self.classes, self.ignore_label) and self.pairwise == "displacement":
            raise ValueError(
                "classes must be None with pairwise='displacement', whose labels are all places of "
                "the grid.")
        check_choice("unlabelled", self.unlabelled, ("ignore", "hidden"))
        check_hidden_states(self.hidden_states)
        is_hidden = self.unlabelled == "hidden"
        if is_hidden and is_unlabelled(self.ignore_label):
            raise ValueError(
                "unlabelled='hidden' fills in nodes of label -1, and ignore_label=-1 leaves them "
                "out: leave one of the two out.")
        latent = "unlabelled='hidden'" if is_hidden else "hidden_states"
        if self.pairwise == "displacement" and (is_hidden or self.hidden_states is not None):
            raise ValueError(
                f"{latent} is not for pairwise='displacement', whose means are of known places.")
        if self.label_features and self.hidden_states is not None:
            raise ValueError(
                "hidden_states is not for label_features=True, where states would have no weights "
                "of their own.")
        as_penalty(self.penalty)

    # -------------------------------------------------------------------------- fit

    def fit(self, X: GraphData, y: Labellings, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            Features of nodes, of shape (n_nodes, n_features), edges as pairs of nodes, and features
            of edges. Factors of `Graphs` are constraints: their tables contain 0 and -inf only.
        y : Sequences, or list of sequences of labels
            A hashable label for each node of each graph, -1 or `ignore_label` without a label.
        sample_weight : array-like of shape (n_graphs,), default=None
            Non-negative weights. 2 counts the graph twice, 0 leaves it out.

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

    def _shapes(self):
        """How many weights the fit has."""
        return WeightShapes.of_fit(self, PAIRWISE[self.pairwise])

    def _check_fitted(self, attributes):
        classes, numbers = attributes["classes_"], attributes["node_classes_"]
        if not ((numbers >= -1) & (numbers < classes.size)).all():
            raise ValueError("node_classes_ names classes that there are not")
        T, E = attributes["intercept_"].shape[0], attributes["edge_intercept_"].shape[0]
        R, columns = numbers.shape[1], attributes["coef_"].shape[1]
        wanted = attributes["n_features_in_"]
        if (columns * R if self.label_features else columns) != (
            wanted if self.label_features else T * wanted
        ):
            raise ValueError("coef_ does not fit n_features_in_")
        if attributes["edge_coef_"].shape[0] != E * attributes["n_edge_features_in_"]:
            raise ValueError("edge_coef_ does not fit n_edge_features_in_")
        if E == 0 or T == 0 or (numbers.max(axis=1) < 0).any():
            raise ValueError("it has no types of nodes or edges, or a type without labels")

    def _repacked(self):
        shapes = self._shapes()
        return shapes.fitted(*shapes.packed(self)) if shapes.fits(self) else None

    @overload
    def predict(
        self, X: GraphData, decode: Decoding | None = None, *, allowed: Masks | None = None,
        factors: Sequence[Any] | None = None, return_bound: Literal[False] = False,
    ) -> Sequences: ...
    @overload
    def predict(
        self, X: GraphData, decode: Decoding | None = None, *, allowed: Masks | None = None,
        factors: Sequence[Any] | None = None, return_bound: Literal[True],
    ) -> tuple[Sequences, FloatArray]: ...
    @overload
    def predict(
        self, X: GraphData, decode: Decoding | None = None, *, allowed: Masks | None = None,
        factors: Sequence[Any] | None = None, return_bound: bool,
    ) -> Any: ...
    def predict(
        self, X: GraphData, decode: Decoding | None = None, *, allowed: Masks | None = None,
        factors: Sequence[Any] | None = None, return_bound: bool = False,
    ) -> Any:
        """Predict the labels of nodes.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`. With `hidden_states` a node gets the label of its best state.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.
        allowed : Sequences, or list of bool arrays of shape (n_nodes, n_classes), default=None
            Labels that are allowed at each node, columns as in `classes_`. None allows all.
        factors : list with an entry for each graph, default=None
            Scores and constraints of several nodes, in addition to those of X. For each graph
            `FactorTables`, a `CountFactor`, a list of these and of pairs (nodes, table), or None.
            Tables have the labels of the types of the nodes, in the order of `node_classes_`.
            Counts are of the label of number `label` in it, by default the second. The values are
            added to the score of a labelling, and -inf forbids it. Inference is then exact,
            whatever `inference` is, and graphs that are too large are an error.
        return_bound : bool, default=False
            Whether to return a certificate as well.

        Returns
        -------
        y : Sequences
            A label for each node of each graph, indexed like a list.
        bound : ndarray of shape (n_graphs,)
            Only with `return_bound`: no labelling of the graph scores higher than the one that is
            returned by more than this; 0 says that it is best.

        Examples
        --------
        >>> import numpy as np
        >>> from fastm4n import CountFactor, GraphTagger
        >>> X = [([[1.0], [-1.0], [2.0]], [[0, 1], [1, 2]]), ([[-1.0], [1.0]], [[0, 1]])]
        >>> tagger = GraphTagger(random_state=0).fit(X, [[1, 0, 1], [0, 1]])
        >>> tagger.predict(X)[0].tolist()
        [1, 0, 1]
        >>> one = CountFactor.exactly_one([0, 1, 2])
        >>> tagger.predict(X, factors=[one, None])[0].tolist()
        [0, 0, 1]
        """
        return self._fitted_task().predict(
            X, decode, return_bound, allowed=allowed, factors=factors)

    def predict_states(self, X: GraphData, *, allowed: Masks | None = None) -> Sequences:
        """The states of the labelling of highest score.

        Parameters
        ----------
        X, allowed
            As in `predict`.

        Returns
        -------
        states : Sequences
            A number for each node, counted through all labels: state s of a node of type t has the
            label ``classes_[node_classes_[t, s]]`` and the weights ``coef_[s]``.

        Examples
        --------
        >>> from fastm4n import GraphTagger
        >>> X = [([[value], [value]], [[0, 1]]) for value in (-2.0, 0.0, 2.0)]
        >>> y = [["out", "out"], ["in", "in"], ["out", "out"]]
        >>> tagger = GraphTagger(hidden_states={"out": 2}, random_state=0).fit(X, y)
        >>> tagger.classes_[tagger.node_classes_[0]].tolist()
        ['in', 'out', 'out']
        >>> tagger.predict(X).values.tolist()
        ['out', 'out', 'in', 'in', 'out', 'out']
        >>> len(set(tagger.predict_states(X).values.tolist()))
        3
        """
        decoder = self._decoder(X, allowed=allowed)
        return Sequences(decoder.best()[0], decoder.X.node_offsets)

    @needs_log
    def predict_marginals(
        self, X: GraphData, *, allowed: Masks | None = None, factors: Sequence[Any] | None = None,
    ) -> Sequences:
        """Probabilities of the labels at each node, for ``surrogate="log"`` only.

        With a linear program as oracle they are tree-reweighted pseudo-marginals. With factors they
        are exact.

        Parameters
        ----------
        X, allowed, factors
            As in `predict`.

        Returns
        -------
        marginals : Sequences
            An array of shape (n_nodes, n_classes) for each graph, columns as in `classes_`.
        """
        return self._decoder(X, allowed=allowed, factors=factors).marginals()

    def decision_function(self, X: GraphData) -> Sequences:
        """Scores of the labels at each node, without the scores of edges.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`.

        Returns
        -------
        scores : Sequences
            An array of shape (n_nodes, n_classes) for each graph. Labels that a type of node does
            not have are -inf.
        """
        return self._decoder(X).decision()

    def scores(self, X: GraphData) -> list[GraphScores]:
        """Scores of nodes and of edges, as `fastm4n.inference.graph.maximise` takes them.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`. The scores are those of the weights, without factors.

        Returns
        -------
        scores : list of GraphScores
            `nodes`, `edges` and `edge_scores` of each graph. Labels are in the order of
            `node_classes_`, with one type of nodes that of `classes_`.

        Examples
        --------
        >>> from fastm4n import GraphTagger
        >>> from fastm4n.inference.graph import maximise
        >>> X = [([[1.0], [-1.0], [2.0]], [[0, 1], [1, 2]]), ([[-1.0], [1.0]], [[0, 1]])]
        >>> tagger = GraphTagger(random_state=0).fit(X, [["on", "off", "on"], ["off", "on"]])
        >>> nodes, edges, edge_scores = tagger.scores(X)[0]
        >>> nodes.shape, edges.tolist(), edge_scores.shape
        ((3, 2), [[0, 1], [1, 2]], (2, 2, 2))
        >>> tagger.classes_[maximise(nodes, edges, edge_scores).labels].tolist()
        ['on', 'off', 'on']
        """
        return self._decoder(X).scores()

    def loss_augmented(
        self, X: GraphData, y: Labellings, return_bound: bool = False,
    ) -> Any:
        """Labels of the largest score plus cost: the worst labellings for "max_margin".

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`. Factors restrict the labels.
        y : Sequences, or list of sequences of labels
            True labels, of which `cost` gives the costs. Nodes of label -1 or `ignore_label` cost
            nothing.
        return_bound : bool, default=False
            Whether to return a certificate as well.

        Returns
        -------
        labels : Sequences
            A label for each node of each graph.
        bound : ndarray of shape (n_graphs,)
            Only with `return_bound`: no labelling has a larger score plus cost than the returned
            one by more than this.

        Examples
        --------
        >>> from fastm4n import GraphTagger
        >>> X, y = [([[1.0], [-1.0]], [[0, 1]])], [[1, 0]]
        >>> tagger = GraphTagger(alpha=100.0, random_state=0).fit(X, y)
        >>> tagger.loss_augmented(X, y)[0].tolist()
        [0, 1]
        """
        decoder = self._decoder(X)
        codes, bound = decoder.loss_augmented(y)
        labels = decoder.named(codes)
        return (labels, bound) if return_bound else labels

    def score(self, X: GraphData, y: Labellings, sample_weight: ArrayLike | None = None) -> float:
        """Share of the labelled nodes that `predict` labels correctly, each with its weight.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`.
        y : Sequences, or list of sequences of labels
            True labels. Nodes of label -1 or `ignore_label` do not count. A label that is not in
            `classes_` counts as an error, with a warning.
        sample_weight : array-like of shape (n_graphs,), default=None
            Weights of the graphs, for each of their nodes.

        Returns
        -------
        accuracy : float
        """
        X = as_graphs(X)
        truth = as_node_labels(y, X, ignore_label=self.ignore_label)
        counts = ~np.fromiter(map(is_unlabelled, truth), bool, len(truth))
        if not counts.any():
            raise ValueError("y has no labelled node.")
        predicted = self.predict(X).values.tolist()
        warn_of_unknown(
            distinct([truth[t] for t in np.flatnonzero(counts)]), self.classes_)
        pairs = zip(truth, predicted, strict=True)
        right = np.fromiter((a == b for a, b in pairs), bool, len(truth))
        weights = np.ones(len(truth)) if X.node_weights is None else X.node_weights
        if sample_weight is not None:
            of_graphs = summable(as_weights(sample_weight, len(X), "graph"))
            weights = weights * np.repeat(of_graphs, X.lengths)
        if not weights[counts].any():
            raise ValueError("the weights of all labelled nodes are zero: nothing is to score.")
        return float(np.average(right[counts], weights=weights[counts]))

    def explain(
        self, feature_names: ArrayLike | None = None, edge_feature_names: ArrayLike | None = None,
        n_strongest: int = 20,
    ) -> GraphExplanation:
        """The strongest weights: which features speak for which label, and which edges.

        Parameters
        ----------
        feature_names : array-like of str of shape (n_features,), default=None
            Names of the features of nodes. Numbers by default.
        edge_feature_names : array-like of str of shape (n_edge_features,), default=None
        n_strongest : int, default=20
            How many of each sign, of nodes and of edges.

        Returns
        -------
        explanation : GraphExplanation
            With `nodes` and `edges`, strongest first. Prints as a table.

        Examples
        --------
        >>> from fastm4n import GraphTagger
        >>> X = [([[1.0, 0.0], [0.0, 2.0]], [[0, 1]])] * 2
        >>> tagger = GraphTagger(random_state=0).fit(X, [["a", "b"]] * 2)
        >>> for weight, label, feature in tagger.explain(["one", "two"], n_strongest=1).nodes:
        ...     print(label, feature, weight > 0)
        b two True
        a two False
        """
        check_is_fitted(self)
        check_number("n_strongest", n_strongest, low=0, integer=True)
        return explained(self, self._shapes(), feature_names, edge_feature_names, n_strongest)
