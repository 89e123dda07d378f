from typing import Any

from fastm4n.research._soft_outputs import FactorBlocks
from fastm4n.surrogates._base import Surrogate

class SmoothMargin(Surrogate):
    @property
    def smoothing(self) -> float: ...
    def __init__(self, outputs: FactorBlocks, smoothing: float) -> None: ...
    def arguments(self) -> tuple[Any, ...]: ...
