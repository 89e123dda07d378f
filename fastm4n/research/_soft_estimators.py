"""Estimators with soft constraints, by `fastm4n.research.solve_soft`."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from fastm4n.base.checks import check_choice, check_number
from fastm4n.base.label_costs import as_costs
from fastm4n.estimators.graphs import GraphTagger
from fastm4n.estimators.label_sets import MultiLabelClassifier
from fastm4n.factors import CountFactor, as_factors
from fastm4n.research._factor_graphs import FactorGraphs
from fastm4n.research.soft import solve_soft
from fastm4n.solvers.base import Solution, State
from fastm4n.solvers.certificates import Certificate
from fastm4n.solvers.monitor import HISTORY_KEYS, Progress
from fastm4n.tasks.base import Problem
from fastm4n.tasks.graph_input import by_type
from fastm4n.tasks.graph_model import (
    check_same_labels,
    check_truth,
    choices_and_costs,
    types_of_edges,
)
from fastm4n.tasks.graphs import GraphTask
from fastm4n.tasks.kernels import (
    as_double,
    checked_diagonal,
    checked_gram,
    gram_matrix,
    kernel_parameters,
)
from fastm4n.tasks.label_sets import UNKNOWN, LabelSetTask

if TYPE_CHECKING:
    from collections.abc import Callable


__all__ = ["SoftGraphTagger", "SoftMultiLabelClassifier"]

# tables of pairs by the `pairwise` of graph taggers
PAIRS = {"full": "tables", "symmetric": "symmetric", "potts": "equal"}
SAMPLINGS = ("gap", "uniform", "permutation")


@dataclass
class SoftProblem(Problem):
    """Problem of an estimator with soft constraints, and its only solver.

    Attributes
    ----------
    graphs, X, factor_X, y, heights, kernel
        As of `solve_soft`.
    weights_of : callable
        Fitted arrays by `node_weights` and `factor_weights`.
    """

    graphs: Any = None
    X: Any = None
    factor_X: Any = None
    y: np.ndarray = None
    heights: np.ndarray = None
    kernel: str = "linear"
    weights_of: Any = None
    found = None

    @property
    def solver(self) -> Any:
        return self

    def scale(self) -> float:
        if not self.heights.size:
            return 1.0
        labels = self.graphs.node_labels
        worst = np.maximum.reduceat(self.heights, np.cumsum(labels) - labels)
        nodes = self.graphs.examples[self.graphs.node_blocks]
        return float(np.sum(worst * self.blocks.weights[nodes])) or 1.0

    def warm(self, solution: Any, alpha: float) -> None:
        """None: a later call of `partial_fit` begins anew."""

    def refusal(self, problem: Any) -> None:
        """As of `Solver`: parameters are checked with those of the estimator."""

    def solve(self, problem: Any, options: Any, start: Any, monitor: Any) -> Solution:
        """As of `Solver`."""
        if monitor.checkpoint is not None:
            raise ValueError(
                f"{self.taker} keeps no checkpoints: fit it outside of `checkpointing`.")
        progress = Progress(options.verbose, options.max_iter, options.gap)
        names = (*HISTORY_KEYS, "rho", "objective", "bound", "relaxed_gap")
        rows = []

        def on_row(row):
            row = {
                "pass": row["n_iter"], "oracle_error": 0.0, "cache_hits": 0,
                "policy": "line_search", **row}
            rows.append({name: row[name] for name in names})
            progress.update(rows[-1])
            return options.callback is not None and bool(options.callback(rows[-1]))

        try:
            found = self.found = solve_soft(
                self.graphs, self.X, self.y, self.heights, alpha=options.alpha,
                rho=float(self.task.rho), shares=self.blocks.weights, factor_X=self.factor_X,
                kernel=self.kernel, sampling=self.task.sampling,
                accelerate=bool(self.task.accelerate), tol=options.gap,
                max_iter=options.max_iter, seed=options.seed, n_jobs=options.n_jobs,
                callback=on_row, keep_on_interrupt=True)
        finally:
            progress.close()
        return Solution(
            State.of(options.alpha, found.mu),
            Certificate(found.primal, found.dual, found.gap, None), found.n_iter,
            {name: np.asarray([row[name] for row in rows]) for name in names}, found.converged,
            found.interrupted)


class _SoftTask:
    """What tasks with soft constraints have in common."""

    chunks = None

    def fitted(self, problem: Any, *args: Any, **options: Any) -> dict[str, Any]:
        return problem.weights_of(problem.found.node_weights, problem.found.factor_weights)

    def values(self, problem: Any, tol: float, scale: float) -> dict[str, Any]:
        return {}


def _with_constant(values, constant):
    """The matrix with a last column of this number, as it is for 0."""
    if not constant:
        return values
    column = np.full((values.shape[0], 1), constant)
    if sparse.issparse(values):
        return sparse.hstack([values, column], format="csr")
    return np.hstack([values, column])


def _check_counts(factors, where, name):
    for number, factor in enumerate(factors):
        if not isinstance(factor, CountFactor):
            raise ValueError(
                f"{where}{name}[{number}] is a {type(factor).__name__}: use CountFactor, the only "
                "factor with soft agreement.")


class SoftGraphTask(_SoftTask, GraphTask):
    """Labels of the nodes of graphs with soft constraints."""

    def problem_of_blocks(self, X, codes, blocks, shapes, common, task):
        n_choices, cost = choices_and_costs(X, common)
        edge_types, factor_X = types_of_edges(X), None
        if self.pairwise != "full":
            check_same_labels(X, common["node_classes_"], self.pairwise)
        if shapes.n_edge_features:
            edges = by_type(X.edge_features, edge_types, shapes.n_edge_types, 1.0)
            factor_X = _with_constant(edges.values, edges.intercept)
        graphs = FactorGraphs.of_edges(
            X.lengths, X.edges, X.edge_lengths, shapes.n_labels, PAIRS[self.pairwise],
            None if shapes.n_edge_features else edge_types, n_choices)
        if X.factors is not None:
            check_truth(X, codes)
            sizes = np.split(graphs.node_labels, X.node_offsets[1:-1])
            for b, factors in enumerate(X.factors):
                _check_counts(factors or (), f"graph {b}: ", "factors")
                for number, factor in enumerate(factors or ()):
                    wrong = factor.nodes[sizes[b][factor.nodes] != 2]
                    if wrong.size:
                        raise ValueError(
                            f"graph {b}: factors[{number}] counts node {wrong[0]}, which has "
                            f"{sizes[b][wrong[0]]} labels instead of 2.")
            graphs = graphs.with_counts([factors or () for factors in X.factors])
        nodes = by_type(
            X.node_features, X.node_types, shapes.n_node_types, float(self.fit_intercept))
        part_weights = np.ones(X.n_nodes) if X.node_weights is None else X.node_weights
        if self.cost_scale == "mean":
            part_weights = part_weights / np.repeat(X.lengths, X.lengths)

        def weights_of(node_weights, factor_weights):
            R, columns = node_weights.shape
            packed, packed_edges = shapes.zeros()
            packed[:columns, :R] = node_weights.T
            # a row of the tables' numbers for each feature, or for each type that has edges
            n_rows = {"full": R * R, "symmetric": R * (R + 1) // 2, "potts": 1}[self.pairwise]
            rows = factor_weights.T if shapes.n_edge_features else (
                factor_weights.reshape(-1, n_rows))
            at = packed_edges[: len(rows)]
            if self.pairwise == "potts":
                at[:, 0] = rows[:, 0]
            else:
                if self.pairwise == "symmetric":
                    high, low = np.maximum(*np.indices((R, R))), np.minimum(*np.indices((R, R)))
                    rows = rows[:, high * (high + 1) // 2 + low]
                at.reshape(len(rows), R, -1)[:, :, :R] = rows.reshape(-1, R, R)
            return shapes.fitted(packed, packed_edges)

        common.update(oracle_="soft", exact_=False, integrality_gap_=None)
        return SoftProblem(
            None, None, blocks, common, task, graphs=graphs,
            X=_with_constant(nodes.values, nodes.intercept), factor_X=factor_X, y=codes,
            heights=graphs.heights_of_costs(codes, cost, part_weights), weights_of=weights_of)


class SoftLabelSetTask(_SoftTask, LabelSetTask):
    """Sets of labels with soft constraints."""

    def problem_of_blocks(self, X, Y, blocks, cost, constraints, common, census, factors=None):
        n, n_labels = Y.shape
        if cost.ndim == 3 or (Y == UNKNOWN).any():
            raise ValueError(
                "soft constraints need labels that are all known, and one 2 x 2 matrix of costs: "
                "use MultiLabelClassifier.")
        alpha = self._alpha(blocks, census, cost)
        graphs = FactorGraphs.of_pairs(n, n_labels, common["edges_"])
        if constraints is not None:
            # refused if predictions cannot be exact
            self.outputs(Y[:1], common["edges_"], cost, False, constraints)
            graphs = graphs.with_counts([constraints] * n)
        samples, is_linear = blocks.examples, self.kernel == "linear"
        if is_linear:
            # refuses features that are too large
            constant = self._features(
                X, samples, blocks.weights, n_labels, lambda variance: alpha)[2]
            nodes = _with_constant(X[samples], constant)
        else:
            constant = self._constant()
            nodes = self._gram(X, samples, blocks.weights, constant, common, alpha)
        heights = graphs.heights_of_costs(
            Y.ravel(), as_costs(common["_cost_held"]), None if factors is None else factors.ravel())

        def weights_of(node_weights, factor_weights):
            pairs = factor_weights.ravel()
            if not is_linear:
                return {
                    "dual_coef_": blocks.spread(node_weights.T), "edge_coef_": pairs,
                    "intercept_": constant**2 * node_weights.sum(axis=1)}
            d = node_weights.shape[1] - bool(constant)
            return {
                "coef_": np.ascontiguousarray(node_weights[:, :d]), "edge_coef_": pairs,
                "intercept_": constant * node_weights[:, d] if constant else np.zeros(n_labels)}

        common.update(oracle_="soft", exact_=False, integrality_gap_=None)
        return SoftProblem(
            None, None, blocks, common, {}, graphs=graphs, X=nodes, y=Y.ravel(), heights=heights,
            kernel="linear" if is_linear else "precomputed", weights_of=weights_of)

    def _gram(self, X, samples, weights, constant, common, alpha):
        """Kernel values of the samples, those of the constant feature added."""
        kernel, parameters = self.kernel, {}
        if kernel == "precomputed":
            gram = checked_gram(X[np.ix_(samples, samples)])
        else:
            points = X[samples]
            needed = 8.0 * len(samples) ** 2 / 2.0**20
            if needed > self.cache_size:
                raise ValueError(
                    f"The Gram matrix of {len(samples)} examples takes {needed:.0f} MiB, more than "
                    f"cache_size={self.cache_size:g}: set it to {int(np.ceil(needed))}.")
            parameters = kernel_parameters(
                kernel, points, weights, gamma=self.gamma, kernel_params=self.kernel_params)
            gram = gram_matrix(kernel, parameters, as_double(points))
            common["X_fit_"] = X.copy()  # the caller may change theirs
        common["_kernel_parameters"] = parameters
        checked_diagonal(kernel, np.diagonal(gram) + constant**2, alpha)
        return gram + constant**2 if constant else gram


# parameters of the plain estimators that soft constraints fix
FIXED = {
    "surrogate": "max_margin", "inference": "lp", "penalty": "l2", "solver": "auto",
    "decode": "map", "warm_start": False, "label_features": False, "grid_shape": None,
    "unlabelled": "ignore", "hidden_states": None}


def _constructor(plain, **own):
    """The constructor of an estimator with own parameters and those of a plain one not fixed."""
    given = signature(plain.__init__).parameters
    names = {"rho": 1.0} | {
        name: each.default for name, each in given.items() if name not in ("self", *FIXED)} | {
        "sampling": "gap", "accelerate": True, **own}
    known = Signature([given["self"], *(
        Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in names.items())])

    def __init__(self, **parameters):
        bound = known.bind(self, **parameters)
        bound.apply_defaults()
        vars(self).update({name: FIXED.get(name) for name in given if name in FIXED})
        vars(self).update({name: bound.arguments[name] for name in names})

    __init__.__signature__ = known
    return __init__


class _SoftEstimator:
    """Checks of parameters of soft constraints, and the plain estimator with the same weights."""

    _has_paths = False

    def _check_parameters(self):
        super()._check_parameters()
        check_number("rho", self.rho, low=0)
        check_choice("sampling", self.sampling, SAMPLINGS)
        self._check_flags("accelerate")

    def to_lp(self) -> Any:
        """Convert to the plain estimator with the same weights, which model files can hold.

        Returns
        -------
        estimator : GraphTagger or MultiLabelClassifier
            With ``inference="lp"``, or "exact" under constraints. It predicts the same.
        """
        cls = self._plain
        plain = cls(**{name: getattr(self, name) for name in cls().get_params(deep=False)})
        own = {"rho", "sampling", "accelerate", "cache_size"}
        vars(plain).update({name: each for name, each in vars(self).items() if name not in own})
        return plain


class SoftGraphTagger(_SoftEstimator, GraphTagger):
    """Structural SVM of labelled graphs with soft constraints, by nodes and edges alone.

    Nodes and edges may disagree at a penalty [1]_. A fit maximises over one label after another,
    without an oracle over labellings. The gap is certified for the soft objective, which is nowhere
    below the exact one. Predictions are those of ``GraphTagger(inference="lp")``. Factors of graphs
    must be counts, each one more factor that agrees softly.

    Parameters
    ----------
    rho : float, default=1.0
        Strength of soft constraints. The smaller it is, the nearer the fit is to the linear
        program. It must be smaller the more nodes and edges a graph has.
    pairwise : {"full", "symmetric", "potts"}, default="full"
        As of `GraphTagger`.
    alpha, cost, cost_scale, classes, ignore_label, fit_intercept
        As of `GraphTagger`.
    sampling, accelerate
        As of `BlockFrankWolfe`.
    tol, max_iter, n_jobs, random_state, verbose, callback
        As of `GraphTagger`.

    Attributes
    ----------
    oracle_ : str
        "soft". `exact_` is False and `integrality_gap_` None.
    history_ : dict of ndarray
        As of `GraphTagger`, with "rho", and for the problem with strict agreement "objective", an
        upper bound, "bound", a lower one, and "relaxed_gap", their difference.

    See Also
    --------
    fastm4n.GraphTagger : The other attributes, and fits by exact inference or linear programs.

    References
    ----------
    .. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
       constraints. AISTATS.

    Examples
    --------
    >>> from fastm4n.research import SoftGraphTagger
    >>> X = [([[1.0], [-1.0], [2.0]], [[0, 1], [1, 2], [2, 0]]), ([[-1.0], [1.0]], [[0, 1]])]
    >>> tagger = SoftGraphTagger(rho=0.1, random_state=0).fit(X, [[1, 0, 1], [0, 1]])
    >>> tagger.oracle_, tagger.predict(X)[0].tolist()
    ('soft', [1, 0, 1])
    """

    _plain, _task_class = GraphTagger, SoftGraphTask
    __init__: Callable[..., None] = _constructor(GraphTagger)

    def _check_parameters(self):
        check_choice("pairwise", self.pairwise, tuple(PAIRS))
        super()._check_parameters()


class SoftMultiLabelClassifier(_SoftEstimator, MultiLabelClassifier):
    """Structural SVM of label sets with soft constraints, by labels and pairs alone.

    Labels and pairs may disagree at a penalty [1]_. A fit maximises over one label after another,
    without an oracle over sets. The gap is certified for the soft objective, which is nowhere below
    the exact one. Predictions are those of ``MultiLabelClassifier(inference="lp")``, or exact under
    constraints.

    Parameters
    ----------
    rho : float, default=1.0
        Strength of soft constraints. The smaller it is, the nearer the fit is to the linear
        program. It must be smaller the more pairs there are.
    graph, alpha, cost
        As of `MultiLabelClassifier`.
    constraints : CountFactor or list of them, default=None
        As of `MultiLabelClassifier`, each one more factor that agrees softly.
    kernel, gamma, kernel_params, fit_intercept
        As of `MultiLabelClassifier`.
    cache_size : float, default=2048
        Largest size in MiB of the Gram matrix of a kernel.
    sampling, accelerate
        As of `BlockFrankWolfe`.
    tol, max_iter, n_jobs, random_state, verbose, callback
        As of `MultiLabelClassifier`.

    Attributes
    ----------
    oracle_ : str
        "soft". `exact_` is False and `integrality_gap_` None.
    history_ : dict of ndarray
        As of `MultiLabelClassifier`, with "rho", and for the problem with strict agreement
        "objective", an upper bound, "bound", a lower one, and "relaxed_gap", their difference.

    See Also
    --------
    fastm4n.MultiLabelClassifier : The other attributes, and exact inference or linear programs.

    References
    ----------
    .. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
       constraints. AISTATS.

    Examples
    --------
    >>> from fastm4n.research import SoftMultiLabelClassifier
    >>> X, y = [[1.0, 0.0], [0.0, 1.0]] * 3, [[1, 0, 1], [0, 1, 1]] * 3
    >>> clf = SoftMultiLabelClassifier(graph="complete", rho=0.1, random_state=0).fit(X, y)
    >>> clf.oracle_, clf.predict([[1.0, 0.2]]).tolist()
    ('soft', [[1, 0, 1]])
    """

    _plain, _task_class = MultiLabelClassifier, SoftLabelSetTask
    __init__: Callable[..., None] = _constructor(MultiLabelClassifier, cache_size=2048)

    def _check_parameters(self):
        self.inference = "lp" if self.constraints is None else "exact"
        super()._check_parameters()
        if self.constraints is not None:
            _check_counts(as_factors(self.constraints, 2**62, "constraints"), "", "constraints")
