"""The choice of the solver: what `solver=` of an estimator may be, and what "auto" takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.solvers.base import Solver
from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.interior_point import InteriorPoint
from fastm4n.solvers.label_newton import LabelNewton
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.solvers.quasi_newton import QuasiNewton

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.solvers.base import Options

# what `solver=` takes, in the order of the documentation
SOLVERS = (BlockFrankWolfe, LabelNewton, QuasiNewton, InteriorPoint, OutOfCore)
# what "auto" takes instead of steps of blocks, the first that pays
INSTEAD = (QuasiNewton(), InteriorPoint(), LabelNewton())


def as_solver(solver: Any) -> Solver:
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


def choose(solver: Any, problem: Any, options: Options, start: dict[str, Any]) -> Solver:
    """The solver of a fit, after it was asked whether it can.

    Parameters
    ----------
    solver : "auto" or Solver
        As the estimator has it.
    problem : Problem
    options : Options
    start : dict
        What the fit begins from; empty where it begins at zero weights.

    Raises
    ------
    ValueError
        If the solver that was asked for refuses the problem.
    """
    chosen = as_solver(solver)
    if problem.chunks is not None:
        chosen = problem.chunks.solver
    elif problem.loss is None:
        return chosen  # soft constraints, whose parameters were checked with the estimator's
    elif options.auto:
        chosen = next((
            other for other in INSTEAD
            if other.refusal(problem) is None and other.pays(problem, options, start)), chosen)
    reason = chosen.refusal(problem)
    if reason is not None:
        raise ValueError(reason)
    return chosen
