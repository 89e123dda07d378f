"""Best labellings of chains in ONNX."""

from collections.abc import Callable
from typing import Any

__all__ = ["onnx_translations"]


def onnx_translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translations to ONNX of the operators that `ChainLoss.decode` and `CRF.decode` use.

    For models that decode, in ``torch.onnx.export(dynamo=True)``. It needs onnxscript.

    Returns
    -------
    translations : dict
        The argument `custom_translation_table` of ``torch.onnx.export``.

    Notes
    -----
    The exported graph has operators of ONNX only, with `Scan` over positions. Its labels are those
    of `ChainLoss.decode`: the padding has -1, and ties go to the lower label, from the last
    position back. It checks no values. Where all labellings are forbidden, `decode` raises an
    error, and the graph has a score of -inf. The `k` best labellings, losses and marginals have no
    translation.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import ChainLoss, onnx_translations
    >>> class Tagger(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.network, self.layer = torch.nn.Linear(4, 3), ChainLoss(3)
    ...
    ...     def forward(self, x, mask):
    ...         return self.layer.decode(self.network(x), mask).tags
    >>> def export(path):
    ...     x, mask = torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
    ...     axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    ...     torch.onnx.export(
    ...         Tagger().eval(), (x, mask), path, dynamo=True, dynamic_shapes=(axes, axes),
    ...         custom_translation_table=onnx_translations())
    """
    try:
        from fastm4n.torch._onnx_functions import TABLE
    except ImportError as error:
        raise ImportError(
            f"onnx_translations needs onnxscript: pip install onnx onnxscript. ({error})"
        ) from error
    return dict(TABLE)
