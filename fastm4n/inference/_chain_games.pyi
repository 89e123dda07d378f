from fastm4n.base.types import Array, FloatArray, IntArray

class ChainGames:
    value: FloatArray
    upper: FloatArray
    slope: FloatArray
    edges: FloatArray
    done: Array
    sizes: IntArray
    floats: Array
    lost: Array
    def __init__(
        self, starts: IntArray, scores: FloatArray, pair: FloatArray, y: IntArray,
        cost: FloatArray, mean_cost: bool, tol: float, rtol: float,
    ) -> None: ...
    def begin(self, start: int, stop: int) -> None: ...
    def groups(self) -> list[IntArray]: ...
    def more(self) -> bool: ...
    def solve(self, members: IntArray) -> None: ...
