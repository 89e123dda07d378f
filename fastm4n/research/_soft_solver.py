"""Structured SVMs with soft constraints: Meshi, Srebro, Hazan (2015), by the block solver.

Soft agreement of factors and nodes is a private feature of each example (see
`fastm4n.research.SoftFeatures`), so that the passes, their acceleration and the certificate are
those of every other fit. What is added here: bounds of the problem whose agreement is strict,
the two ways to it, a rho that decreases and the augmented Lagrangian, and smoothed maxima.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_choice
from fastm4n.research._soft_kernels import FactorBlocks, SmoothMargin, SoftEngine, SoftFeatures
from fastm4n.solvers.blocks._engine import EngineState
from fastm4n.solvers.blocks.driver import Driver
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import MaxMargin

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import CSR, Array
    from fastm4n.research._factor_graphs import FactorGraphs

COLUMNS = (
    "n_iter", "seconds", "rho", "primal", "dual", "gap", "objective", "bound", "relaxed_gap",
    "disagreement", "oracle_calls",
)


@dataclass
class SoftSolution:
    """What `solve_soft` returns.

    Attributes
    ----------
    node_weights, factor_weights : ndarray
        Rows of weights, as the tables of the factor graphs count them. Of a kernel those of nodes
        are coefficients of the kernel values: ``node_weights @ X`` are the scores.
    messages : ndarray, flat
        delta, a number for each label of each slot.
    mu : ndarray, flat
        The dual point: probabilities of the labels of each block.
    primal, dual, gap : float
        g_rho, f_rho and their difference, which bounds what is left to gain in g_rho; with
        smoothing, of the smoothed problem.
    objective : float
        g(w, delta), its maxima as they are whatever the smoothing: it bounds the relaxed and the
        exact objective at w from above.
    bound : float
        A dual value of a point that was rounded to agreement: no w has a smaller relaxed objective.
    relaxed_gap : float
        objective - bound: what is left to gain in the objective whose agreement is strict.
    history : dict of ndarray
        One entry for each certificate, by the names of `COLUMNS`.
    n_iter : int
    converged, interrupted : bool
    """

    node_weights: np.ndarray
    factor_weights: np.ndarray
    messages: np.ndarray
    mu: np.ndarray
    primal: float
    dual: float
    gap: float
    objective: float
    bound: float
    relaxed_gap: float
    history: dict[str, Any]
    n_iter: int
    converged: bool
    interrupted: bool


class _Fit:
    """One fit: its engine, what is known of it, and the stages of rho and multipliers."""

    def __init__(
        self, graphs, X, y, heights, shares, alpha, rho, factor_X, kernel, smoothing, seed, callback
    ):
        self.outputs = FactorBlocks(graphs, y, heights)
        self.features = SoftFeatures(
            graphs, X, shares, alpha, rho, factor_X, kernel == "precomputed")
        self.multipliers, self.callback, self.alpha = None, callback, alpha
        self.shares = np.asarray(shares)[graphs.examples]
        strict = MaxMargin(self.outputs)
        surrogate = SmoothMargin(self.outputs, smoothing) if smoothing else strict
        self.engine = SoftEngine(surrogate, self.features, self.shares, alpha, seed)
        # of maxima as they are, where passes smooth them: it makes none, and shares the dual point
        self.unsmoothed = None
        if smoothing:
            self.unsmoothed = EngineState(
                strict, self.features, self.shares, alpha, seed, mu=self.engine.mu)
        # costs alone, whatever the multipliers: what the relaxed dual is made of
        costs = self.outputs.all_heights() * np.repeat(self.shares, graphs.sizes)
        self.places = np.flatnonzero(costs)
        self.costs = costs[self.places]
        self.bound, self.rows, self.n_iter = -np.inf, [], 0
        self.stopped, self.start = False, time.perf_counter()
        # of the last certificate
        self.weights = self.noted = None

    def left(self, max_iter):
        """Passes that may still be made."""
        return 0 if self.stopped else max_iter - self.n_iter

    def relaxed_dual(self, mu):
        """The largest f between the true labels, where it is zero, and the rounded dual point."""
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
        """g(w, delta) at the weights that were certified."""
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
        """A row of the history; whether the callback has had enough."""
        features = self.features
        if driver.acceleration is None:
            self.weights = features.state()
        else:
            self.weights = driver.acceleration.average()
        self.noted = self.multipliers
        mu = self.engine.mu
        self.bound = max(self.bound, self.relaxed_dual(mu))
        objective = self.objective(certificate, driver.certifier.n_jobs)
        distance = self.outputs.disagreement(mu)
        self.rows.append((
            self.n_iter + driver.n_passes, time.perf_counter() - self.start, features.rho,
            certificate.primal, certificate.dual, certificate.gap, objective, self.bound,
            objective - self.bound, float(np.mean(np.abs(distance))) if distance.size else 0.0,
            self.engine.oracle_calls,
        ))
        self.stopped = self.callback is not None and bool(
            self.callback(dict(zip(COLUMNS, self.rows[-1], strict=True))))
        return self.stopped

    def run(self, rho, tol, max_iter, accelerate, *, sampling, n_jobs):
        """Passes under one rho and the present multipliers; the last certificate's row."""
        features, engine = self.features, self.engine
        if rho != features.rho:
            features.set_rho(self.alpha, rho)
            engine.set_mu(np.array(engine.mu))
        driver = Driver(
            engine, sampling=sampling, accelerate=accelerate, n_jobs=n_jobs,
            on_check=lambda driver, certificate, _: self.note(driver, certificate))
        try:
            driver.run(tol, max_iter, sweep_first=True)
        finally:
            engine.settle()
            if driver.acceleration is not None:
                driver.acceleration.finish()
                engine.rebuild_weights(engine.mu)
        self.n_iter += driver.n_passes
        return dict(zip(COLUMNS, self.rows[-1], strict=True))

    def renew_multipliers(self):
        """What the messages are becomes what they are counted from."""
        messages = self.features.messages()
        self.multipliers = messages if self.multipliers is None else messages + self.multipliers
        self.outputs.set_multipliers(self.multipliers)
        self.engine.set_mu(np.array(self.engine.mu))

    def solution(self, rho, tol, augmented, interrupted):
        """What `solve_soft` returns."""
        features, row = self.features, dict(zip(COLUMNS, self.rows[-1], strict=True))
        features.restore(self.weights)
        messages = features.messages()
        return SoftSolution(
            features.node_weights(), features.factor_weights(),
            messages if self.noted is None else messages + self.noted, np.array(self.engine.mu),
            *(row[name] for name in (
                "primal", "dual", "gap", "objective", "bound", "relaxed_gap")),
            history=dict(zip(COLUMNS, (np.array(c) for c in zip(*self.rows, strict=True)),
                             strict=True)),
            n_iter=self.n_iter,
            converged=bool(
                row["rho"] == rho and row["relaxed_gap" if augmented else "gap"] <= tol),
            interrupted=interrupted)


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
    this becomes the structural SVM over the local polytope (the linear programming relaxation);
    with `augmented` it becomes that for any rho.

    Parameters
    ----------
    graphs : FactorGraphs
    X : ndarray or CSR
        Features of nodes; of ``kernel="precomputed"`` their kernel values.
    y : array-like of int of shape (n_nodes,)
        True labels of all nodes.
    heights : array-like, flat
        Costs of the labels of all nodes: see `FactorGraphs.heights_of_costs`.
    alpha : float
        Regularisation.
    rho : float
        Softness. The paper's is rho over the number of examples.
    shares : array-like of shape (n_examples,), default=None
        p_m, positive; one over their number by default.
    factor_X : ndarray or CSR, default=None
        Features of factors; by default the number 1.
    kernel : {"linear", "precomputed"}
        Whether X holds features, or kernel values of all rows that nodes have, positive
        semidefinite, those of constant features included. The weights of nodes are then of the
        kernel; those of factors are linear.
    start_rho : float, default=None
        A rho to begin with, halved every `inner_iter` passes until it is `rho`.
    augmented : bool, default=False
        Whether multipliers are renewed every `inner_iter` passes: the augmented Lagrangian. The
        fit then stops by `relaxed_gap`, and by `gap` otherwise.
    inner_iter : int, default=10
    smoothing : float, default=0.0
        Of the maxima: each becomes that of <theta, mu> + smoothing / 2 (1 - ||mu||^2) over the
        simplex, and the fit converges linearly. It lies above the maximum itself by less than
        smoothing / 2, of which an example has one for each node and factor.
    sampling : {"gap", "uniform", "permutation"}
        How examples are drawn; all blocks of one are visited.
    accelerate : bool, default=True
        Whether passes are accelerated by momentum; of `augmented` they are not.
    tol : float
        Absolute gap to stop at.
    max_iter : int
        Passes, each of as many visits as there are examples.
    seed, n_jobs : int
    callback : callable, default=None
        Called with each row of the history as a dict; a true result stops the fit.
    keep_on_interrupt : bool
        Whether KeyboardInterrupt ends the fit with what was last certified, or is passed on.

    Returns
    -------
    SoftSolution
        Of the weights of the last certificate.

    References
    ----------
    .. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
       constraints. AISTATS.
    .. [2] S. Shalev-Shwartz, T. Zhang (2014). Accelerated proximal stochastic dual coordinate
       ascent for regularized loss minimization. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.research import FactorGraphs
    >>> from fastm4n.research._soft_solver import solve_soft
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
                row = fit.run(rho, 0.0, min(inner_iter, fit.left(max_iter)), False, **options)
                if row["relaxed_gap"] <= tol:
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
