"""Kinds of outputs: where their scores lie, their best output, marginals, costs and adversary."""

from fastm4n._simd._loops import row_stride
from fastm4n.outputs._base import Layout, Outputs
from fastm4n.outputs._chain import AutomatonOutputs, ChainOutputs
from fastm4n.outputs._graph import (
    CutOutputs,
    DecompositionOutputs,
    ExactOutputs,
    ForestOutputs,
    GraphOutputs,
    NodeOutputs,
    RoofOutputs,
)
from fastm4n.outputs._matching import MatchingOutputs
from fastm4n.outputs._permutation import PermutationOutputs
from fastm4n.outputs._simplex import SimplexOutputs

__all__ = [
    "AutomatonOutputs", "ChainOutputs", "CutOutputs", "DecompositionOutputs", "ExactOutputs",
    "ForestOutputs", "GraphOutputs", "Layout", "MatchingOutputs", "NodeOutputs", "Outputs",
    "PermutationOutputs", "RoofOutputs", "SimplexOutputs", "row_stride",
]
