"""`solve_path`: the regularisation path of any surrogate over any outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.checks import check_relative_gap
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.blocks.driver import Driver
from fastm4n.solvers.path_follower import PathFollower

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fastm4n.base.types import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.solvers.breakpoints import Breakpoint
    from fastm4n.surrogates._base import Surrogate


def solve_path(
    surrogate: Surrogate, features: FeatureMap, weights: FloatArray, *, eps: float = 0.1,
    kappa: float = 0.9, alpha_min: float | None = None, alpha_max: float | None = None,
    max_iter: int = 1000, sampling: Any = "gap", step: Any = "line_search", accelerate: bool = True,
    seed: int = 0, n_jobs: int | None = 1,
) -> Iterator[Breakpoint]:
    """Solve for a sequence of decreasing alpha, certified for every alpha between them.

    The problem is that of `fastm4n.solvers.solve`. Between two neighbouring breakpoints the better
    of their two weights has a gap of at most eps; so has a multiple of the first weights above
    the first breakpoint (:func:`fastm4n.regularization_path` has the details, for estimators).

    Parameters
    ----------
    surrogate, features, weights
        As in `solve`.
    eps : float
        Gap that the path may have anywhere, relative to the objective at w = 0; below 1.
    kappa : float in (0, 1)
        Each breakpoint is solved to a relative gap of at most kappa * eps.
    alpha_min, alpha_max : float, default=None
        The ends of the path; by default it begins where w = 0 is nearly optimal, and ends where the
        loss is at most eps, or before that at 1e-3 times a scale that is measured.
    max_iter : int
        Most passes of a breakpoint. The path ends where they do not suffice: the gap of the
        last breakpoint is then above eps.
    sampling, step, accelerate, seed, n_jobs
        As in `solve`; all but step="fixed".

    Yields
    ------
    point : Breakpoint
        With `alpha`, `loss`, `norm`, `dual` and `gap`; `features` hold its weights until the next
        one is asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.features import LinearFeatures, row_norms
    >>> from fastm4n.outputs import SimplexOutputs
    >>> from fastm4n.surrogates import make_surrogate
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([0, 1])
    >>> features = LinearFeatures(X, np.arange(2), row_norms(X, 0.0), 2, 0.0)
    >>> loss = make_surrogate("max_margin", SimplexOutputs(y, 1.0 - np.eye(2)))
    >>> points = list(solve_path(loss, features, np.full(2, 0.5), eps=0.05))
    >>> bool(max(point.gap for point in points) <= 0.05)
    True
    """
    check_relative_gap("eps", eps)
    if step == "fixed":
        raise ValueError(
            "step='fixed' averages the iterates of one alpha; paths need step='line_search' or "
            "another.")
    if features.has_penalty() and features.weight_norm() > 0.0:
        raise ValueError("the bounds of the penalty must hold zero for a path.")
    engine = BlockCoordinateEngine(surrogate, features, weights, 1.0, seed)
    driver = Driver(engine, sampling=sampling, step=step, accelerate=accelerate, n_jobs=n_jobs)
    follower = PathFollower(driver, eps, kappa, max_iter, alpha_min=alpha_min, alpha_max=alpha_max)
    while (point := follower.advance()) is not None:
        yield point
