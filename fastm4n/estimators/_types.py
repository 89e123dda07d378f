"""Types of parameters that several estimators have, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, Union

from fastm4n.penalties._penalties import L2, ElasticNet, Group
from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.cutting_planes import CuttingPlanes
from fastm4n.solvers.interior_point import InteriorPoint
from fastm4n.solvers.newton import LabelNewton
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.solvers.quasi_newton import QuasiNewton
from fastm4n.surrogates._parameters import SurrogateLike

__all__ = [
    "CostScale", "Decoding", "Gamma", "Inference", "Kernel", "PenaltyLike", "SolverLike",
    "SurrogateLike",
]

SolverLike: TypeAlias = Union[
    Literal["auto"], BlockFrankWolfe, CuttingPlanes, InteriorPoint, LabelNewton, OutOfCore,
    QuasiNewton]
PenaltyLike: TypeAlias = Union[Literal["l2", "elasticnet", "l1"], L2, ElasticNet, Group]
CostScale: TypeAlias = Literal["sum", "mean"]
Alpha: TypeAlias = float | Literal["auto"]
Unmatched: TypeAlias = float | Literal["learn"] | None
Tol: TypeAlias = float | Literal["auto"]
Decoding: TypeAlias = Literal["auto", "map", "min_risk"]
Kernel: TypeAlias = Union[str, Callable[..., Any]]
Gamma: TypeAlias = Union[Literal["scale", "auto"], float, None]
Inference: TypeAlias = Literal["auto", "forest", "min_cut", "exact", "lp"]
