"""Structured SVMs with soft constraints: Meshi, Srebro, Hazan (2015), by the block solver.

Soft agreement of factors and nodes is a private feature of each example (see
`fastm4n.research.SoftFeatures`). Passes, acceleration and the certificate are those of every other
fit. This file adds bounds of the problem with strict agreement, the two ways to it (a decreasing
rho and the augmented Lagrangian), smoothed maxima, and the estimators.
"""

from __future__ import annotations

import time
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
from fastm4n.research._soft_kernels import FactorBlocks, SmoothMargin, SoftEngine, SoftFeatures
from fastm4n.solvers.base import Solution, State
from fastm4n.solvers.blocks._engine import EngineState
from fastm4n.solvers.blocks.driver import Driver
from fastm4n.solvers.certificates import Certificate, certify
from fastm4n.solvers.history import HISTORY_KEYS, Progress
from fastm4n.surrogates import MaxMarginLoss
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
from fastm4n.tasks.label_sets import LabelSetTask
from fastm4n.tasks.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import CSR, Array

__all__ = ["SoftGraphTagger", "SoftMultiLabelClassifier", "solve_soft"]

# tables of pairs by the `pairwise` of graph taggers
PAIRS = {"full": "tables", "symmetric": "symmetric", "potts": "equal"}
SAMPLINGS = ("gap", "uniform", "permutation")


@dataclass
class SoftSolution:
    """Solution of `solve_soft`.

    Attributes
    ----------
    node_weights, factor_weights : ndarray
        Rows of weights, as numbered in the tables of the factor graphs. With a kernel,
        `node_weights` are coefficients of the kernel values: ``node_weights @ X`` are the scores.
    messages : ndarray, flat
        delta, a number for each label of each slot.
    mu : ndarray, flat
        The dual point: probabilities of the labels of each block.
    primal, dual, gap : float
        g_rho, f_rho and their difference, an upper bound of the suboptimality of g_rho. With
        smoothing, those of the smoothed problem.
    objective : float
        g(w, delta) without smoothing, an upper bound of the relaxed and exact objectives at w.
    bound : float
        Dual value of a point rounded to agreement, a lower bound of the relaxed objective.
    relaxed_gap : float
        objective - bound, an upper bound of the suboptimality under strict agreement.
    history : dict of ndarray
        One entry for each certificate.
    n_iter : int
    converged, interrupted : bool
    """

    node_weights: np.ndarray
    factor_weights: np.ndarray
    messages: np.ndarray
    mu: np.ndarray
    history: dict[str, Any]
    n_iter: int
    converged: bool
    interrupted: bool
    primal: float
    dual: float
    gap: float
    objective: float
    bound: float
    relaxed_gap: float


class _Fit:
    """State of one fit: the engine, and the stages of rho and multipliers."""

    def __init__(
        self, graphs, X, y, heights, shares, alpha, rho, factor_X, kernel, smoothing, seed, callback
    ):
        self.outputs = FactorBlocks(graphs, y, heights)
        self.features = SoftFeatures(
            graphs, X, shares, alpha, rho, factor_X, kernel == "precomputed")
        self.multipliers, self.callback, self.alpha = None, callback, alpha
        self.shares = np.asarray(shares)[graphs.examples]
        strict = MaxMarginLoss(self.outputs)
        surrogate = SmoothMargin(self.outputs, smoothing) if smoothing else strict
        self.engine = SoftEngine(surrogate, self.features, self.shares, alpha, seed)
        # certifies the maxima without smoothing; makes no passes and shares the dual point
        self.unsmoothed = None
        if smoothing:
            self.unsmoothed = EngineState(
                strict, self.features, self.shares, alpha, seed, mu=self.engine.mu)
        # costs without multipliers, of which the relaxed dual is made
        costs = self.outputs.all_heights() * np.repeat(self.shares, graphs.sizes)
        self.places = np.flatnonzero(costs)
        self.costs = costs[self.places]
        self.bound, self.rows, self.n_iter = -np.inf, [], 0
        self.stopped, self.start = False, time.perf_counter()
        # at the last certificate
        self.weights = self.noted = None

    def left(self, max_iter):
        """Number of passes left."""
        return 0 if self.stopped else max_iter - self.n_iter

    def relaxed_dual(self, mu):
        """The largest f on the segment from the true labels, where f = 0, to the rounded mu."""
        rounded, before = self.outputs.rounded(mu), self.features.state()
        try:
            self.engine.rebuild_weights(rounded)
            norm = self.features.shared_norm()
        finally:
            self.features.restore(before)
        height, pull = float(self.costs @ rounded[self.places]), 0.5 * self.alpha * norm
        if height < 2.0 * pull:
            # s height - s^2 pull is largest at an s below one
            return 0.25 * max(height, 0.0) ** 2 / pull
        return height - pull

    def objective(self, certificate, n_jobs):
        """g(w, delta) at the certified weights."""
        private = self.weights["messages"]
        primal = certificate.primal
        if self.unsmoothed is not None:
            before = self.features.state()
            try:
                self.features.restore(self.weights)
                primal = certify(
                    self.unsmoothed, self.engine.mu, n_jobs, only_primal=True).primal
            finally:
                self.features.restore(before)
        return primal - 0.5 * self.alpha * float(private @ private)

    def note(self, driver, certificate):
        """Add a row to the history; return whether the callback stops the fit."""
        features, mu = self.features, self.engine.mu
        if driver.acceleration is None:
            self.weights = features.state()
        else:
            self.weights = driver.acceleration.average()
        self.noted = self.multipliers
        self.bound = max(self.bound, self.relaxed_dual(mu))
        objective = self.objective(certificate, driver.certifier.n_jobs)
        distance = self.outputs.disagreement(mu)
        self.rows.append({
            "n_iter": self.n_iter + driver.n_passes, "seconds": time.perf_counter() - self.start,
            "rho": features.rho, "primal": certificate.primal, "dual": certificate.dual,
            "gap": certificate.gap, "objective": objective, "bound": self.bound,
            "relaxed_gap": objective - self.bound,
            "disagreement": float(np.mean(np.abs(distance))) if distance.size else 0.0,
            "oracle_calls": self.engine.oracle_calls,
        })
        self.stopped = self.callback is not None and bool(self.callback(dict(self.rows[-1])))
        return self.stopped

    def run(self, rho, tol, max_iter, accelerate, **options):
        """Make passes under one rho and the present multipliers."""
        features, engine = self.features, self.engine
        if rho != features.rho:
            features.set_rho(self.alpha, rho)
            engine.set_mu(np.array(engine.mu))
        driver = Driver(
            engine, accelerate=accelerate,
            on_check=lambda driver, certificate, _: self.note(driver, certificate), **options)
        try:
            driver.run(tol, max_iter, sweep_first=True)
        finally:
            engine.settle()
            if driver.acceleration is not None:
                driver.acceleration.finish()
                engine.rebuild_weights(engine.mu)
        self.n_iter += driver.n_passes

    def renew_multipliers(self):
        """Take the messages for the new multipliers."""
        messages = self.features.messages()
        self.multipliers = messages if self.multipliers is None else messages + self.multipliers
        self.outputs.set_multipliers(self.multipliers)
        self.engine.set_mu(np.array(self.engine.mu))

    def solution(self, rho, tol, augmented, interrupted):
        features, row = self.features, self.rows[-1]
        features.restore(self.weights)
        messages = features.messages()
        return SoftSolution(
            features.node_weights(), features.factor_weights(),
            messages if self.noted is None else messages + self.noted, np.array(self.engine.mu),
            {name: np.array([each[name] for each in self.rows]) for name in row}, self.n_iter,
            row["rho"] == rho and row["relaxed_gap" if augmented else "gap"] <= tol, interrupted,
            *(row[name] for name in (
                "primal", "dual", "gap", "objective", "bound", "relaxed_gap")))


def solve_soft(
    graphs: FactorGraphs, X: Array | CSR, y: ArrayLike, heights: ArrayLike, *, alpha: float,
    rho: float, shares: ArrayLike | None = None, factor_X: Array | CSR | None = None,
    kernel: Literal["linear", "precomputed"] = "linear", start_rho: float | None = None,
    augmented: bool = False, inner_iter: int = 10, smoothing: float = 0.0,
    sampling: Literal["gap", "uniform", "permutation"] = "gap", accelerate: bool = True,
    tol: float = 1e-3, max_iter: int = 1000, seed: int = 0, n_jobs: int = 1,
    callback: Callable[..., Any] | None = None, keep_on_interrupt: bool = False,
) -> SoftSolution:
    r"""Fit a structured SVM whose factors and nodes agree softly.

    Minimises

    .. math::

        g_\rho(w, \delta) = \frac{\alpha}{2} \|w\|^2 + \sum_m p_m \Big[
        \sum_i \max_y \big(\theta_i(y) + \textstyle\sum_{c \ni i} \delta_{ci}(y)\big)
        + \sum_c \max_y \big(\theta_c(y) - \textstyle\sum_{i \in c} \delta_{ci}(y_i)\big)
        + \frac{\rho}{2} \|\delta_m\|^2 \Big],

    through its dual, whose blocks are the labels of single nodes and factors. As rho goes to zero
    this becomes the structural SVM over the local polytope (the linear programming relaxation).
    With `augmented` it becomes that for any rho.

    Parameters
    ----------
    graphs : FactorGraphs
    X : ndarray or CSR
        Features of nodes, or kernel values for ``kernel="precomputed"``.
    y : array-like of int of shape (n_nodes,)
        True labels of all nodes.
    heights : array-like, flat
        Costs of the labels of all nodes: see `FactorGraphs.heights_of_costs`.
    alpha : float
        Regularisation.
    rho : float
        Softness. The paper's is rho over the number of examples.
    shares : array-like of shape (n_examples,), default=None
        p_m, positive; equal by default.
    factor_X : ndarray or CSR, default=None
        Features of factors; by default the number 1.
    kernel : {"linear", "precomputed"}
        "precomputed" if X has kernel values of all rows of the nodes, positive semidefinite, those
        of constant features included. Weights of factors are linear all the same.
    start_rho : float, default=None
        A first rho, halved every `inner_iter` passes until it is `rho`.
    augmented : bool, default=False
        Whether to renew the multipliers every `inner_iter` passes (augmented Lagrangian), without
        acceleration. The fit then stops by `relaxed_gap` instead of `gap`.
    inner_iter : int, default=10
    smoothing : float, default=0.0
        Strength of the smoothing of maxima: each becomes the maximum of
        <theta, mu> + smoothing / 2 (1 - ||mu||^2) over the simplex, less than smoothing / 2 above
        the maximum itself, and the fit converges linearly.
    sampling : {"gap", "uniform", "permutation"}
        Order of the examples. A visit takes all blocks of an example.
    accelerate : bool, default=True
        Whether to accelerate passes by momentum.
    tol : float
        Absolute gap at which the fit stops.
    max_iter : int
        Largest number of passes, each of as many visits as there are examples.
    seed, n_jobs : int
    callback : callable, default=None
        Called with each row of the history as a dict; a true result stops the fit.
    keep_on_interrupt : bool
        Whether KeyboardInterrupt ends the fit with the last certified weights instead of an error.

    Returns
    -------
    SoftSolution
        With the weights of the last certificate.

    References
    ----------
    .. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
       constraints. AISTATS.
    .. [2] S. Shalev-Shwartz, T. Zhang (2014). Accelerated proximal stochastic dual coordinate
       ascent for regularized loss minimization. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research import FactorGraphs, solve_soft
    >>> X, Y = np.array([[1.0, 1.0], [-1.0, 1.0]]), np.array([[1, 1, 0], [0, 0, 1]])
    >>> graphs = FactorGraphs.of_pairs(2, 3, [[0, 1], [0, 2], [1, 2]])
    >>> costs = graphs.heights_of_costs(Y.ravel(), 1.0 - np.eye(2))
    >>> soft = solve_soft(graphs, X, Y.ravel(), costs, alpha=0.1, rho=0.1)
    >>> soft.converged, soft.node_weights.shape, soft.factor_weights.shape
    (True, (3, 2), (3, 1))
    """
    check_choice("kernel", kernel, ("linear", "precomputed"))
    if shares is None:
        shares = np.full(graphs.n_examples, 1.0 / max(1, graphs.n_examples))
    if inner_iter < 1 or max_iter < 1:
        raise ValueError("inner_iter and max_iter must be at least 1.")
    if augmented and start_rho is not None:
        raise ValueError("augmented=True needs no start_rho: any rho leads to agreement.")
    fit = _Fit(
        graphs, X, y, heights, shares, alpha, start_rho or rho, factor_X, kernel, smoothing, seed,
        callback)
    options = dict(sampling=sampling, n_jobs=n_jobs)
    interrupted = False
    try:
        if augmented:
            while fit.left(max_iter):
                fit.run(rho, 0.0, min(inner_iter, fit.left(max_iter)), False, **options)
                if fit.rows[-1]["relaxed_gap"] <= tol:
                    break
                fit.renew_multipliers()
        else:
            while start_rho is not None and start_rho > rho and fit.left(max_iter):
                fit.run(start_rho, 0.0, min(inner_iter, fit.left(max_iter)), accelerate, **options)
                start_rho *= 0.5
            if fit.left(max_iter):
                fit.run(rho, tol, fit.left(max_iter), accelerate, **options)
    except KeyboardInterrupt:
        if not (keep_on_interrupt and fit.rows):
            raise
        interrupted = True
    return fit.solution(rho, tol, augmented, interrupted)


# ------------------------------------------------------------------------------ estimators


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

    graphs: Any
    X: Any
    factor_X: Any
    y: np.ndarray
    heights: np.ndarray
    kernel: str
    weights_of: Any
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
                rho=float(self.owner.rho), shares=self.blocks.weights, factor_X=self.factor_X,
                kernel=self.kernel, sampling=self.owner.sampling,
                accelerate=bool(self.owner.accelerate), tol=options.gap,
                max_iter=options.max_iter, seed=options.seed, n_jobs=options.n_jobs,
                callback=on_row, keep_on_interrupt=True)
        finally:
            progress.close()
        return Solution(
            State.of(options.alpha, found.mu),
            Certificate(found.primal, found.dual, found.gap, None), found.n_iter,
            {name: np.asarray([row[name] for row in rows]) for name in names}, found.converged,
            found.interrupted)

    def fitted(self, mu: Any, alpha: float) -> dict[str, Any]:
        return self.weights_of(self.found.node_weights, self.found.factor_weights)


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


class SoftGraphTask(GraphTask):
    """Labels of the nodes of graphs with soft constraints."""

    reads_chunks = False

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
            None, None, blocks, common, task, graphs,
            _with_constant(nodes.values, nodes.intercept), factor_X, codes,
            graphs.heights_of_costs(codes, cost, part_weights), "linear", weights_of)


class SoftLabelSetTask(LabelSetTask):
    """Sets of labels with soft constraints."""

    def problem_of_blocks(self, X, Y, blocks, cost, constraints, common):
        n, n_labels = Y.shape
        graphs = FactorGraphs.of_pairs(n, n_labels, common["edges_"])
        if constraints is not None:
            # refused if predictions cannot be exact
            self.outputs(Y[:1], common["edges_"], cost, False, constraints)
            graphs = graphs.with_counts([constraints] * n)
        samples, is_linear = blocks.examples, self.kernel == "linear"
        if is_linear:
            # refuses features that are too large
            constant = self._features(X, samples, blocks.weights, n_labels)[2]
            nodes = _with_constant(X[samples], constant)
        else:
            constant = self._constant()
            nodes = self._gram(X, samples, blocks.weights, constant, common)
        heights = graphs.heights_of_costs(Y.ravel(), as_costs(common["_cost_held"]))

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
            None, None, blocks, common, {}, graphs, nodes, None, Y.ravel(), heights,
            "linear" if is_linear else "precomputed", weights_of)

    def _gram(self, X, samples, weights, constant, common):
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
        checked_diagonal(kernel, np.diagonal(gram) + constant**2, self.alpha)
        return gram + constant**2 if constant else gram


# parameters of the plain estimators that soft constraints fix
FIXED = {
    "surrogate": "max_margin", "inference": "lp", "penalty": "l2", "solver": "auto",
    "decode": "map", "warm_start": False, "label_features": False, "grid_shape": None}


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
            With ``inference="lp"``, or "exact" under constraints; it predicts the same.
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
    alpha, cost, cost_scale, fit_intercept
        As of `GraphTagger`.
    sampling, accelerate
        As of `BlockFrankWolfe`.
    tol, max_iter, n_jobs, random_state, verbose, callback
        As of `GraphTagger`.

    Attributes
    ----------
    oracle_ : str
        "soft"; `exact_` is False and `integrality_gap_` None.
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
        "soft"; `exact_` is False and `integrality_gap_` None.
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
