from enum import IntFlag
from typing import Any

from fastm4n.base.types import IntArray
from fastm4n.solvers.blocks._engine_state import EngineState

class Sampling(IntFlag):
    UNIFORM = 0
    PERMUTATION = 1
    GAP = 2

class Step(IntFlag):
    LINE_SEARCH = 0
    FIXED = 1
    BLOCK = 2
    PAIRWISE = 3
    AWAY = 4

class BlockCoordinateEngine(EngineState):
    def fetch(self, b: int) -> Any: ...
    def run_blocks(self, blocks: IntArray, step: Step) -> None: ...
    def run_pass(self, sampling: Sampling, step: Step) -> None: ...
