from numpy.typing import ArrayLike

from fastm4n.base.types import FloatArray, IntArray
from fastm4n.inference._label_automaton import LabelAutomaton

def maximise(
    unary: ArrayLike, automaton: LabelAutomaton, scores: ArrayLike | None = None, *,
    allowed: ArrayLike | None = None,
) -> tuple[IntArray, float]: ...
def marginals(
    unary: ArrayLike, automaton: LabelAutomaton, scores: ArrayLike | None = None, *,
    allowed: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray, float]: ...
def k_best(
    unary: ArrayLike, automaton: LabelAutomaton, k: int, scores: ArrayLike | None = None, *,
    allowed: ArrayLike | None = None,
) -> tuple[IntArray, FloatArray]: ...
