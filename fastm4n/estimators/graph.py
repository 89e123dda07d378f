"""Graph labelling: outputs that are labels of the nodes of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice, check_number
from fastm4n.data._sequences import Sequences
from fastm4n.estimators._base import CertifiedEstimator, needs_log
from fastm4n.estimators._docs import BOOSTING, documented
from fastm4n.outputs._base import COST_SCALES
from fastm4n.outputs.choice import INFERENCES
from fastm4n.penalties._penalties import as_penalty
from fastm4n.tasks.chain_input import distinct
from fastm4n.tasks.graph_input import as_graphs, as_node_labels, check_grid, is_unlabelled
from fastm4n.tasks.graph_model import PAIRWISE
from fastm4n.tasks.graph_predictions import GraphDecoder
from fastm4n.tasks.graph_weights import WeightShapes, explained
from fastm4n.tasks.graphs import GraphTask
from fastm4n.tasks.parameters import BOOSTED, LABEL_KINDS, as_weights, summable, warn_of_unknown
from fastm4n.tasks.views import PackedWeights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.data._types import GraphData, Labellings, Masks
    from fastm4n.estimators._types import Solvers
    from fastm4n.penalties._penalties import Penalties
    from fastm4n.tasks.graph_weights import GraphExplanation


@documented(
    **BOOSTING,
    surrogates='"max_margin" the structural SVM (M3N); "log" the CRF, over forests where graphs '
    "have cycles (tree-reweighted).",
    penalties="",
    examples="graphs",
    Examples="Graphs",
    threads=" and of predictions",
    whole="graph",
    elements="nodes",
)
class GraphTagger(PackedWeights, CertifiedEstimator):
    """Labelling of the nodes of graphs by M4N, structural SVM or CRF, with a certified gap.

    Minimises mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2, S being the surrogate of the
    costs of the nodes, by block-coordinate Frank-Wolfe on the dual. A labelling y of a graph
    scores the sum over nodes of ``coef_[y_t] @ x_t + intercept_[y_t]``, and over edges of what
    `pairwise` says of the labels of their two nodes.

    Parameters
    ----------
    [surrogate]
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of all weights is added to the
        mean loss of a graph. "auto" is 1 / n for n graphs, those of weight zero or without a
        labelled node not counted.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_labels, n_labels), \
            default="zero_one"
        What a mistake at one node costs: cost[i, j] for predicting ``classes_[j]`` where
        the truth is ``classes_[i]``. It is multiplied by the node's weight, where the graphs have
        `node_weights`.
    [cost_scale]
    [tempering]
    pairwise : {"full", "symmetric", "potts", "attractive", "displacement"}, default="full"
        What an edge scores: "full" any number for each pair of labels of its first and second
        node; "symmetric" the same either way round; "potts" a number where both have the same
        label; "attractive" such a number that is not negative, as its weights are held at zero
        or more: for features of edges that are not negative, and two labels, the best
        labelling is then a minimum cut. "displacement" is for labels that are places of a grid of
        `grid_shape`, place (row, column) being label row * n_columns + column: weights of dx,
        dx^2, dy, dy^2, those of squares at most zero, d being the displacement from the second
        node's place to the first's, less its mean over the training edges of that type, each of its
        graph's weight, over the number of columns. Where the graphs have features of edges, these
        numbers are linear in them; types of edges have weights of their own.
    grid_shape : tuple of int, default=None
        Rows and columns of the grid of places; for ``pairwise="displacement"`` alone, which needs
        it.
    inference : {"auto", "forest", "min_cut", "exact", "lp"}, default="auto"
        How best labellings are found. "auto" is exact for forests, for attractive pairs of two
        labels (not for "log") and for graphs of few states, and else solves the linear program
        over the local polytope: its optimum is no labelling always, and the certified gap is of
        the objective with this larger polytope. "exact" makes that an error where a graph is too
        large.
    label_features : bool, default=False
        Whether the features of a node are features for each label, label after label, as scores
        of several detectors at each place are: n_labels * n_channels columns. All labels share
        the weights of the channels, so that ``coef_`` is of shape (n_node_types, n_channels) and
        there is no intercept.
    fit_intercept : bool, default=True
        Whether each label has a constant score.
    [penalty]
    [solver]
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score, or at each node of the least expected cost under the
        marginals ("log") or the oracle's distribution ("max_min").
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many graphs of
        the same sizes, the same labels, surrogate, cost_scale and oracle; alpha may change.
    [running]

    Attributes
    ----------
    coef_ : ndarray of shape (n_labels, n_node_types * n_features)
        Weights of the features; those of node type t from column t * n_features on.
    intercept_ : ndarray of shape (n_node_types, n_labels)
    edge_coef_ : ndarray of shape (n_edge_types * n_edge_features, ...)
        Weights of the features of edges, type after type: (n_labels, n_labels) each, the first
        node's label first, for "full" and "symmetric"; one number for "potts" and "attractive";
        four for "displacement".
    edge_intercept_ : ndarray of shape (n_edge_types, ...)
        What edges score whatever their features.
    classes_ : ndarray
        The labels.
    node_classes_ : ndarray of int of shape (n_node_types, n_labels)
        The labels of each type of node, those that occur, as numbers in `classes_`; -1 behind the
        last. Rows of `coef_` are numbered by it.
    cost_matrix_ : ndarray of shape (n_classes, n_classes)
        The costs of `cost`.
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
        weights; None where it is not known ("log" over linear programs).
    [certificate]

    See Also
    --------
    Graphs : The container of graphs.
    MultiLabelClassifier : Labels that are on or off, of one vector of features.
    SequenceTagger : Chains, with weights of their ends.

    Notes
    -----
    [bound] With a linear program the gap is that to the minimum of the objective over the larger
    polytope, which is nowhere below the exact objective: `primal_objective_` bounds both. Of more
    than two labels the dual points of "max_min" are mixtures of labellings then, so that the
    integrality gap stays in `duality_gap_`, and a small `tol` may not be reached.

    Nodes without a label, those of label -1, and their edges are left out of the fit.

    Factors of X, see `Graphs`, restrict the labellings that a graph can have, in the fit and in the
    predictions: counts, and tables of 0 and -inf, whose labels are counted as in `node_classes_`.
    Such graphs need exact inference (`oracle_` "few_states"). Under "max_min" the adversary answers
    node by node, whether factors allow that labelling or not: its game is bounded from below.

    References
    ----------
    [references]

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
    _part = "node"
    _fitted_arrays = {
        "classes_": (("k",), LABEL_KINDS), "cost_matrix_": (("k", "k"), "f"),
        "node_classes_": (("t", "r"), "i"),
        "intercept_": (("t", "r"), "f"),
    }
    _coef_dims = ("r",)
    _surrogates = BOOSTED
    _fitted_values = ("oracle_", "exact_", "integrality_gap_", "n_edge_features_in_")
    _replaced = ("_packed", "shifts_")
    _task_class = GraphTask

    def __init__(
        self, surrogate: Literal["max_min", "max_margin", "log", "boost"] = "max_min", *,
        alpha: float | Literal["auto"] = "auto", cost: Cost = "zero_one",
        cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
        temperature: float = 1.0,
        pairwise: Literal["full", "symmetric", "potts", "attractive", "displacement"] = "full",
        grid_shape: tuple[int, ...] | None = None,
        inference: Literal["auto", "forest", "min_cut", "exact", "lp"] = "auto",
        label_features: bool = False, fit_intercept: bool | float = True,
        penalty: Literal["l2", "elasticnet", "l1"] | Penalties = "l2",
        solver: Literal["auto"] | Solvers = "auto", tol: float = 1e-3, max_iter: int = 1000,
        decode: Literal["map", "min_risk"] = "map", warm_start: bool = False,
        n_jobs: int | None = None, random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.cost_augmented = cost_augmented
        self.temperature = temperature
        self.pairwise = pairwise
        self.grid_shape = grid_shape
        self.inference = inference
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
        tags.target_tags.required = True
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
        check_choice("cost_scale", self.cost_scale, COST_SCALES)
        check_choice("pairwise", self.pairwise, tuple(PAIRWISE))
        self._check_flags("fit_intercept", "label_features")
        check_choice("inference", self.inference, INFERENCES)
        if self.pairwise == "displacement":
            check_grid(self.grid_shape)
        elif self.grid_shape is not None:
            raise ValueError(
                f"grid_shape is for pairwise='displacement': with pairwise={self.pairwise!r} it "
                f"must be None, got {self.grid_shape!r:.80}.")
        as_penalty(self.penalty)

    # -------------------------------------------------------------------------- fit

    def fit(self, X: GraphData, y: Labellings, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            Features of nodes, of shape (n_nodes, n_features), edges as pairs of nodes, features of
            edges. Factors of `Graphs` are constraints: their tables hold 0 and -inf alone.
        y : Sequences, or list of sequences of labels
            A label for each node of each graph, of any hashable type; -1 for nodes without one.
        sample_weight : array-like of shape (n_graphs,), default=None
            Non-negative weights; 2 is the graph given twice, 0 the graph left out.

        [fit_outcome]
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

    def _decoder(self, X, allowed=None, factors=None):
        check_is_fitted(self)
        return GraphDecoder(self, X, self._shapes(), allowed, factors)

    @overload
    def predict(
        self, X: GraphData, decode: Literal["map", "min_risk"] | None = None, *,
        allowed: Masks | None = None, factors: Sequence[Any] | None = None,
        return_bound: Literal[False] = False,
    ) -> Sequences: ...
    @overload
    def predict(
        self, X: GraphData, decode: Literal["map", "min_risk"] | None = None, *,
        allowed: Masks | None = None, factors: Sequence[Any] | None = None,
        return_bound: Literal[True],
    ) -> tuple[Sequences, FloatArray]: ...
    @overload
    def predict(
        self, X: GraphData, decode: Literal["map", "min_risk"] | None = None, *,
        allowed: Masks | None = None, factors: Sequence[Any] | None = None,
        return_bound: bool,
    ) -> Any: ...
    def predict(
        self, X: GraphData, decode: Literal["map", "min_risk"] | None = None, *,
        allowed: Masks | None = None, factors: Sequence[Any] | None = None,
        return_bound: bool = False,
    ) -> Any:
        """Predicted labels.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`.
        [decode]
        allowed : Sequences, or list of bool arrays of shape (n_nodes, n_classes), default=None
            Which labels each node of each graph may have, columns as in `classes_`; all by
            default.
        factors : list with an entry for each graph, default=None
            Scores and constraints of several nodes, beside those that X has: `FactorTables`, a
            `CountFactor`, or a list of these and of pairs (nodes, table) for each graph; None for
            a graph without any. Tables are of the labels of the nodes' types, in the order of
            `node_classes_`, and counts of the second of two labels. What they score is added to
            the score of a labelling, and -inf forbids it. Graphs with factors are searched
            exactly, whatever `inference` is, and it is an error where they are too large.
        return_bound : bool, default=False
            Whether to return a certificate as well.

        Returns
        -------
        y : Sequences
            A label for each node of each graph; it is indexed and iterated over like a list.
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
        decode = self._decoding(decode)
        if decode == "min_risk" and return_bound:
            raise ValueError(
                "return_bound is of scores, and decode='min_risk' does not maximise them: use "
                "decode='map'.")
        decoder = self._decoder(X, allowed, factors)
        if decode == "min_risk":
            return decoder.names(decoder.least_risk())
        codes, bound = decoder.best()
        y = decoder.names(codes)
        return (y, bound) if return_bound else y

    @needs_log
    def predict_marginals(
        self, X: GraphData, *, allowed: Masks | None = None, factors: Sequence[Any] | None = None,
    ) -> Sequences:
        """Probabilities of the labels at each node, for ``surrogate="log"`` only.

        Where the oracle is a linear program they are tree-reweighted pseudo-marginals. Those of
        graphs with factors are exact.

        Parameters
        ----------
        X, allowed, factors
            As in `predict`.

        Returns
        -------
        marginals : Sequences
            An array of shape (n_nodes, n_classes) for each graph, columns as in `classes_`.
        """
        decoder = self._decoder(X, allowed, factors)
        return decoder.by_class(decoder.points(), 0.0)

    def decision_function(self, X: GraphData) -> Sequences:
        """Scores of the labels at each node, without those of edges.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`.

        Returns
        -------
        scores : Sequences
            An array of shape (n_nodes, n_classes) for each graph; -inf for labels that the type of
            the node has not.
        """
        decoder = self._decoder(X)
        return decoder.by_class(decoder.scores(), -np.inf)

    def score(self, X: GraphData, y: Labellings, sample_weight: ArrayLike | None = None) -> float:
        """Share of the labelled nodes that `predict` labels correctly, each with its weight.

        Parameters
        ----------
        X : Graphs, or list of tuples (node_features, edges[, edge_features])
            As in `fit`.
        y : Sequences, or list of sequences of labels
            True labels. Nodes of label -1 do not count; a label that is not in `classes_` counts
            as an error, with a warning.
        sample_weight : array-like of shape (n_graphs,), default=None
            Weights of the graphs, for each of their nodes.

        Returns
        -------
        accuracy : float
        """
        X = as_graphs(X)
        truth = as_node_labels(y, X)
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
            Names of the features of nodes; their numbers by default.
        edge_feature_names : array-like of str of shape (n_edge_features,), default=None
        n_strongest : int, default=20
            How many of each sign, of nodes and of edges.

        Returns
        -------
        explanation : GraphExplanation
            With `nodes` and `edges`, strongest first; a table when printed.

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
