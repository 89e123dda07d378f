from fastm4n.base.types import FloatArray
from fastm4n.outputs._base import Outputs
from fastm4n.surrogates._base import Surrogate

class MaxMargin(Surrogate):
    def __init__(self, outputs: Outputs) -> None: ...
    def closed_largest(self) -> FloatArray | None: ...
