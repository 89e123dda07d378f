"""Fits with soft constraints, as estimators of labelled graphs make them: `inference="soft"`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fastm4n.base.checks import check_choice, check_number
from fastm4n.outputs.choice import INFERENCES
from fastm4n.penalties._penalties import is_plain
from fastm4n.research._soft_solver import solve_soft
from fastm4n.solvers.base import Options, Solution, State
from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.certificates import Certificate
from fastm4n.solvers.choice import as_solver
from fastm4n.solvers.history import HISTORY_KEYS, Monitor, Progress
from fastm4n.tasks.problem import Problem

# what `history_` has beside the columns of every fit
COLUMNS = ("rho", "objective", "bound", "relaxed_gap")


def check_inference(estimator):
    """Refuse an `inference` or a `rho` that makes no sense, or what soft constraints have not."""
    check_choice("inference", estimator.inference, (*INFERENCES, "soft"))
    check_number("rho", estimator.rho, low=0)
    if estimator.inference != "soft":
        return
    solver = as_solver(estimator.solver)
    if not isinstance(solver, BlockFrankWolfe):
        raise ValueError(
            "inference='soft' needs solver='auto' or a BlockFrankWolfe, got "
            f"solver={estimator.solver!r:.80}.")
    for is_wrong, what in (
        (estimator.surrogate != "max_margin",
         f"surrogate='max_margin', got {estimator.surrogate!r}"),
        (not is_plain(estimator.penalty),
         f"penalty='l2' without bounds, got {estimator.penalty!r:.80}"),
        (bool(estimator.warm_start), "warm_start=False: a fit starts from zero weights"),
        (solver.step != "line_search",
         f"a solver of step='line_search', got step={solver.step!r}"),
        (solver.cache is not None, f"a solver of cache=None, got cache={solver.cache!r}"),
    ):
        if is_wrong:
            raise ValueError(
                f"inference='soft' needs {what}. For other fits over the local polytope there is "
                "inference='lp'.")


def with_constant(values, constant):
    """A matrix with a last column of this number, none for 0."""
    if not constant:
        return values
    column = np.full((values.shape[0], 1), constant)
    if sparse.issparse(values):
        return sparse.hstack([values, column], format="csr")
    return np.hstack([values, column])


@dataclass
class SoftProblem(Problem):
    """The problem of a fit with soft constraints; `loss` and `features` are made as it is solved.

    A subclass has `weights_of`.

    Attributes
    ----------
    graphs : FactorGraphs
        Of the blocks.
    X, factor_X : matrices
        Features of nodes and of factors, constants included; factor_X may be None.
    y : ndarray of int
        Labels of all nodes.
    heights : ndarray, flat
        Costs of the labels of all nodes.
    kernel : {"linear", "precomputed"}
        Whether X holds kernel values.
    """

    graphs: Any
    X: Any
    factor_X: Any
    y: np.ndarray
    heights: np.ndarray
    kernel: str
    # weights of nodes and of factors, after `solved`
    found = None

    def weights_of(self, node_weights, factor_weights):
        """Fitted arrays."""
        raise NotImplementedError(f"{type(self).__name__} has no method `weights_of`.")

    def scale(self):
        if not self.heights.size:
            return 1.0
        labels = self.graphs.node_labels
        worst = np.maximum.reduceat(self.heights, np.cumsum(labels) - labels)
        nodes = self.graphs.examples[self.graphs.node_blocks]
        return float(np.sum(worst * self.blocks.weights[nodes])) or 1.0

    @property
    def solver(self) -> Any:
        return self

    def refusal(self, problem: Any) -> None:
        """As of `Solver`: parameters were checked with those of the estimator."""

    def solve(
        self, problem: Any, options: Options, start: None, monitor: Monitor,
    ) -> Solution:
        """As of `Solver`; what it found is kept for `fitted`."""
        solver = as_solver(self.owner.solver)
        if monitor.checkpoint is not None:
            raise ValueError(
                "inference='soft' keeps no checkpoints: its fits are made of many stages. Fit it "
                "outside of `checkpointing`.")
        tol, callback = options.gap, options.callback
        progress = Progress(options.verbose, options.max_iter, tol)
        columns = {key: [] for key in (*HISTORY_KEYS, *COLUMNS)}

        def on_row(row):
            row = {
                "pass": row["n_iter"], "oracle_error": 0.0, "cache_hits": 0,
                "policy": "line_search", **row}
            row = {key: row[key] for key in columns}
            for key, value in row.items():
                columns[key].append(value)
            progress.update(row)
            return callback is not None and bool(callback(row))

        try:
            found = solve_soft(
                self.graphs, self.X, self.y, self.heights, alpha=options.alpha,
                rho=float(self.owner.rho), shares=self.blocks.weights, factor_X=self.factor_X,
                kernel=self.kernel, tol=tol, callback=on_row, sampling=solver.sampling,
                accelerate=bool(solver.accelerate), max_iter=options.max_iter, seed=options.seed,
                n_jobs=options.n_jobs, keep_on_interrupt=True)
        finally:
            progress.close()
        self.found = found.node_weights, found.factor_weights
        return Solution(
            State.of(options.alpha, found.mu),
            Certificate(found.primal, found.dual, found.gap, None), found.n_iter,
            {key: np.asarray(values) for key, values in columns.items()}, found.converged,
            found.interrupted)

    def fitted(self, mu, alpha):
        return self.weights_of(*self.found)
