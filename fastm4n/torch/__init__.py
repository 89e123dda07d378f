"""Structured losses as PyTorch layers: ``pip install "fastm4n[torch]"``.

Max-margin, max-min and log losses of single labels, sequences, permutations, trees and graphs,
from the compiled kernels of `fastm4n.losses` and `fastm4n.inference`. ``import fastm4n`` does not
import PyTorch, but this module does.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise ImportError(
        f"fastm4n.torch needs PyTorch: pip install \"fastm4n[torch]\". ({_error})") from _error

from fastm4n.torch._chains import (
    ChainLoss,
    Decoded,
    chain_loss,
    chain_marginals,
    chain_viterbi,
)
from fastm4n.torch._crf import CRF
from fastm4n.torch._distributions import ChainDistribution
from fastm4n.torch._graphs import GraphLoss, TreeLoss, graph_loss, tree_loss
from fastm4n.torch._onnx import onnx_translations
from fastm4n.torch._permutations import PermutationLoss, assignment, permutation_loss, sinkhorn
from fastm4n.torch._simplex import SimplexLoss, simplex_loss
from fastm4n.torch._taggers import from_tagger, to_tagger

__all__ = [
    "CRF", "ChainDistribution", "ChainLoss", "Decoded", "GraphLoss", "PermutationLoss",
    "SimplexLoss", "TreeLoss", "assignment", "chain_loss", "chain_marginals", "chain_viterbi",
    "from_tagger", "graph_loss", "onnx_translations", "permutation_loss", "simplex_loss",
    "sinkhorn", "to_tagger", "tree_loss",
]
