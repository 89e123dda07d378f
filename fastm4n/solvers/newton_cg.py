"""Newton's method with conjugate gradients for the log surrogate: a certified batch solver.

The gradient of P(w) = sum_b p_b l_b(v_b) + alpha / 2 ||w||^2 at w is alpha (w - w(mu)), mu being
the marginals at w and w(mu) the weights of that dual point; so that its duality gap is

    P(w) - D(mu) = alpha / 2 ||w - w(mu)||^2 = ||grad P(w)||^2 / (2 alpha):

every iterate is certified by its gradient. Products with the Hessian are derivatives of marginals
along scores, one tangent sum-product a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator

from fastm4n._parameters import NamesParameters, check_number
from fastm4n.solvers._batch import Batch
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine
from fastm4n.solvers.block_coordinate import Solution
from fastm4n.solvers.certificates import Certificate
from fastm4n.solvers.history import History, Progress
from fastm4n.solvers.limited_memory import inner, plus, times

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n._typing import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

# of the line search: the share of the slope that a step must gain, and most halvings
SUFFICIENT, MOST_HALVINGS = 1e-4, 40


class NewtonCG(NamesParameters, BaseEstimator):
    """Newton steps by conjugate gradients, for ``surrogate="log"`` with the plain L2 penalty.

    A `solver` of `SequenceTagger`, `MulticlassClassifier`, `OrdinalClassifier`,
    `MultiLabelClassifier` and `GraphTagger` over graphs without cycles, with linear features. Every
    pass looks at all examples: it evaluates the objective, or a product with its Hessian.
    `BlockFrankWolfe`, the default, makes more of its first passes; this one gains where high
    precision is asked for, or alpha is small.

    Parameters
    ----------
    cg_tol : float, default=0.5
        Most of what conjugate gradients leave of the gradient's norm in a step: the smaller of it
        and the square root of the gradient's norm relative to the first one.
    max_cg : int, default=200
        Most products with the Hessian in a step.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, NewtonCG
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier("log", solver=NewtonCG(), tol=1e-9).fit(X, y)
    >>> bool(clf.relative_gap_ <= 1e-9)
    True
    """

    oracle: str
    oracle_iter: int | None
    step: str

    # what estimators ask of a solver beside
    oracle, oracle_iter, step = "exact", None, "newton"

    def __init__(self, cg_tol: float = 0.5, max_cg: int = 200) -> None:
        self.cg_tol = cg_tol
        self.max_cg = max_cg

    def check(self, surrogate: Surrogate) -> None:
        """Refuse options that make no sense, by themselves or with the surrogate."""
        check_number("cg_tol", self.cg_tol, low=0)
        if not self.cg_tol < 1:
            raise ValueError(f"cg_tol must lie in (0, 1), got {self.cg_tol!r}.")
        check_number("max_cg", self.max_cg, low=0, integer=True)
        if surrogate != "log":
            raise ValueError(
                f"NewtonCG needs second derivatives, which surrogate={surrogate!r} does not have: "
                "use 'log', or solver='auto'.")

    def options(self) -> dict[str, Any]:
        raise ValueError(
            "solver=NewtonCG() fits one alpha: for paths, intercepts without penalty and "
            "inference='soft' use solver='auto'.")

    def solve(
        self, surrogate: Surrogate, features: FeatureMap, weights: FloatArray, alpha: float, *,
        mu: FloatArray | None = None, concave: FloatArray | None = None, shrink: float = 1.0,
        average: tuple[Any, ...] | None = None, tol: float = 1e-3, max_iter: int = 1000,
        verbose: int = 0, callback: Callable[..., Any] | None = None,
    ) -> Solution:
        """Minimise until the gap is at most tol; arguments and result as of `solvers.solve`.

        max_iter counts passes over all blocks: evaluations and products with the Hessian.
        """
        if not surrogate.outputs.has_tangent:
            raise ValueError(
                f"NewtonCG needs tangents of marginals, and {type(surrogate.outputs).__name__} has "
                "none: single labels, sequences and graphs without cycles have them.")
        if features.weight_norm() is None or not features.has_plain_state():
            raise ValueError(
                "NewtonCG needs weights under the plain L2 penalty: kernel='linear' and "
                "penalty='l2', and features without shared parts.")
        if mu is not None:
            # w of an earlier dual point
            engine = BlockCoordinateEngine(surrogate, features, weights, alpha, 0)
            engine.set_mu(mu, concave, shrink)
        run = _Run(self, surrogate, features, weights, alpha, tol, max_iter, verbose, callback)
        return run.solve()


class _Run:
    """One fit."""

    def __init__(self, solver, surrogate, features, weights, alpha, tol, max_iter, verbose,
                 callback):
        self.solver, self.surrogate, self.features = solver, surrogate, features
        self.p, self.alpha, self.tol, self.max_iter = np.asarray(weights), alpha, tol, max_iter
        self.callback, self.history = callback, History()
        self.progress = Progress(verbose, max_iter, tol)
        self.batch = Batch(surrogate, features, weights)
        self.n_passes = 0

    def evaluate(self, w):
        """P at w, with the losses and heights."""
        self.features.restore(w)
        self.n_passes += 1
        losses, heights = self.batch.evaluate()
        value = float(np.sum(self.p * losses)) + 0.5 * self.alpha * inner(w, w)
        return value, losses, heights

    def gradient(self, w):
        """The gradient of P where it was evaluated last."""
        return plus(self.batch.gradient(np.ones(self.p.size)), self.alpha, w)

    def product(self, d):
        """The Hessian of P there, times d."""
        self.features.restore(d)
        self.n_passes += 1
        return plus(self.batch.product(), self.alpha, d)

    def direction(self, gradient, share):
        """A step s with ||H s + gradient|| at most share times the gradient's norm, or nearly."""
        residual = times(-1.0, gradient)
        s, d, square = times(0.0, gradient), residual, inner(residual, residual)
        goal = share * share * square
        for _ in range(self.solver.max_cg):
            product = self.product(d)
            step = square / inner(d, product)
            s, residual = plus(s, step, d), plus(residual, -step, product)
            before, square = square, inner(residual, residual)
            if square <= goal or self.n_passes >= self.max_iter:
                break
            d = plus(residual, square / before, d)
        return s

    def certificate(self, w, value, losses, heights, gradient):
        gap = inner(gradient, gradient) / (2.0 * self.alpha)
        if not np.isfinite(value + gap):
            value, gap = np.inf, np.inf
        return Certificate(
            primal=value, dual=value - gap, gap=gap, block_gaps=np.zeros(losses.size),
            concave=heights, block_losses=losses, norm=inner(w, w), bound=value - gap,
            height=float(np.sum(self.p * heights)))

    def solve(self):
        w = self.features.state()
        value, losses, heights = self.evaluate(w)
        best_dual, first = -np.inf, None
        try:
            while True:
                gradient = self.gradient(w)
                found = self.certificate(w, value, losses, heights, gradient)
                best_dual = max(best_dual, found.dual)
                found.dual = best_dual
                found.gap = min(found.gap, max(0.0, found.primal - best_dual))
                row = self.history.add(self.n_passes, found, self.n_passes, 0.0, 0, "newton")
                self.progress.update(row)
                stop = self.callback is not None and bool(self.callback(row))
                if stop or found.gap <= self.tol or self.n_passes >= self.max_iter:
                    break
                norm = np.sqrt(inner(gradient, gradient))
                first = norm if first is None else first
                s = self.direction(
                    gradient, min(self.solver.cg_tol, np.sqrt(norm / first)))
                moved = self.search(w, s, value, inner(gradient, s))
                if moved is None:
                    break
                w, (value, losses, heights) = moved
        finally:
            self.progress.close()
        self.features.restore(w)
        self.keep(found)
        return Solution(
            mu=np.array(self.batch.mu), certificate=found, n_iter=self.n_passes,
            history=self.history.arrays(), converged=found.gap <= self.tol, interrupted=False)

    def search(self, w, s, value, slope):
        """w + t s for the first t of 1, 1/2, ... that gains enough; None where rounding is left."""
        step = 1.0
        for _ in range(MOST_HALVINGS):
            to = plus(w, step, s)
            found = self.evaluate(to)
            if found[0] < value and found[0] <= value + SUFFICIENT * step * slope:
                return to, found
            step *= 0.5
        self.evaluate(w)
        return None

    def keep(self, found):
        """Leave in the surrogate what a later fit may start from."""
        if self.surrogate.has_natural_step:
            self.surrogate.restore({
                **self.surrogate.state(), "theta": np.array(self.batch.scores),
                "is_first": np.zeros(self.surrogate.n_blocks, dtype=np.uint8)})

