"""Structured SVMs with soft constraints: Meshi, Srebro, Hazan (2015), by the block solver.

Soft agreement of factors and nodes is a private feature of each example (see
`fastm4n.research.SoftFeatures`). Passes, acceleration and the certificate are those of every other
fit. This file adds bounds of the problem with strict agreement, the two ways to it (a decreasing
rho and the augmented Lagrangian) and smoothed maxima.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastm4n.base.checks import check_choice
from fastm4n.research._factor_graphs import FactorGraphs
from fastm4n.research._soft_kernels import FactorBlocks, SmoothMargin, SoftEngine, SoftFeatures
from fastm4n.solvers.blocks._engine import EngineState
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import MaxMarginLoss

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import CSR, Array

__all__ = ["solve_soft"]


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
        self.multipliers, self.callback, self.alpha = 0.0, callback, alpha
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
        self.multipliers = self.features.messages() + self.multipliers
        self.outputs.set_multipliers(self.multipliers)
        self.engine.set_mu(np.array(self.engine.mu))

    def solution(self, rho, tol, augmented, interrupted):
        features, row = self.features, self.rows[-1]
        features.restore(self.weights)
        return SoftSolution(
            features.node_weights(), features.factor_weights(),
            features.messages() + self.noted, np.array(self.engine.mu),
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
        p_m, positive, equal by default.
    factor_X : ndarray or CSR, default=None
        Features of factors, by default the number 1.
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
        Called with each row of the history as a dict. A true result stops the fit.
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
