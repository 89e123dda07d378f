"""Types of the solvers that estimators take, for type checkers."""

from __future__ import annotations

from typing import TypeAlias, Union

from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.interior_point import InteriorPoint
from fastm4n.solvers.newton import LabelNewton
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.solvers.quasi_newton import QuasiNewton

__all__ = ["Solvers"]

Solvers: TypeAlias = Union[BlockFrankWolfe, InteriorPoint, LabelNewton, OutOfCore, QuasiNewton]
