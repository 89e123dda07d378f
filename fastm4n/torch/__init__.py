"""Structured losses as PyTorch layers: `pip install "fastm4n[torch]"`.

Max-margin, max-min and log losses of single labels, sequences, permutations, trees and graphs,
from the compiled kernels of `fastm4n.losses` and `fastm4n.inference`.  ``import fastm4n`` does not
import PyTorch; this module does.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fastm4n.torch needs PyTorch 2.6 or later: pip install \"fastm4n[torch]\". ({error})"
    ) from error

from fastm4n.torch._chains import (
    CRF,
    ChainLoss,
    Decoded,
    chain_loss,
    chain_marginals,
    chain_viterbi,
)

__all__ = ["CRF", "ChainLoss", "Decoded", "chain_loss", "chain_marginals", "chain_viterbi"]
