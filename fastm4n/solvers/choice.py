"""The choice of the solver: what `solver=` of an estimator may be, and what "auto" takes."""

from __future__ import annotations

import numpy as np

from fastm4n.solvers.base import block_work
from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.cutting_planes import CuttingPlanes
from fastm4n.solvers.free_intercept import FreeIntercept
from fastm4n.solvers.interior_point import InteriorPoint
from fastm4n.solvers.newton import LabelNewton
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.solvers.proximal import ProximalPoints, small_modulus
from fastm4n.solvers.quasi_newton import QuasiNewton

# what `solver=` takes, in the order of the documentation
SOLVERS = (BlockFrankWolfe, LabelNewton, QuasiNewton, CuttingPlanes, InteriorPoint, OutOfCore)
# what "auto" takes instead of steps of blocks if it is cheaper
INSTEAD = (QuasiNewton(), CuttingPlanes(), InteriorPoint(), LabelNewton())


def as_solver(solver):
    """The solver that an estimator's `solver` asks for: `BlockFrankWolfe` for "auto".

    Raises
    ------
    ValueError
        For anything else than "auto" and an instance of `SOLVERS`.
    """
    if isinstance(solver, SOLVERS):
        return solver
    if isinstance(solver, str) and solver == "auto":
        return BlockFrankWolfe()
    *names, last = [f"{cls.__name__}(...)" for cls in SOLVERS]
    what = solver.__name__ + ", the class" if isinstance(solver, type) else repr(solver)
    raise ValueError(f"solver must be 'auto', {', '.join(names)} or {last}, got {what}.")


def _adapted(solver, problem, options):
    """The solver, inside of another one if the intercept or the penalty needs that."""
    if not isinstance(solver, BlockFrankWolfe):
        return solver
    if problem.modulus != 1.0 and small_modulus(problem, options) is not None:
        return ProximalPoints(solver)
    return solver if problem.free_intercept is None else FreeIntercept(solver)


def choose(problem, options):
    """The solver of a fit: the cheapest that does not refuse, the first of equals.

    Parameters
    ----------
    problem : Problem
    options : Options

    Raises
    ------
    ValueError
        If all refuse, by the reason of the first.
    """
    best = problem.solver or _adapted(as_solver(options.solver), problem, options)
    refusal = best.refusal(problem)
    if problem.solver is None and options.auto:
        work = np.inf if refusal is not None else best.cost(problem, options)
        for solver in INSTEAD:
            # what cannot be cheaper is not asked
            if solver.least_share * block_work(problem) < work and solver.refusal(problem) is None:
                cost = solver.cost(problem, options)
                if cost < work or refusal is not None:
                    best, work, refusal = solver, cost, None
    if refusal is not None:
        raise ValueError(refusal)
    return best
