"""A CRF in the manner of pytorch-crf."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from fastm4n.base.checks import check_choice, check_number
from fastm4n.torch import _base as base
from fastm4n.torch._chains import ChainLoss

__all__ = ["CRF"]


class CRF(ChainLoss):
    """Linear-chain CRF with the names, parameters and signs of pytorch-crf's ``torchcrf.CRF``.

    Its ``forward`` returns log-likelihoods, to be maximized. State dicts are interchangeable with
    ``torchcrf.CRF``.

    Parameters
    ----------
    num_tags : int
    batch_first : bool, default=False
    **options
        Further parameters of `ChainLoss`, except `reduction`, `surrogate` and `start_end`.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import CRF
    >>> model = CRF(5, batch_first=True)
    >>> emissions, tags = torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)
    >>> model(emissions, tags).shape, [len(labels) for labels in model.decode(emissions)]
    (torch.Size([]), [3, 3])
    """

    def __init__(self, num_tags: int, batch_first: bool = False, **options: Any) -> None:
        for name in ("reduction", "surrogate", "start_end"):
            if name in options:
                raise TypeError(f"CRF has no parameter {name!r}: use ChainLoss.")
        check_number("num_tags", num_tags, low=0, integer=True)
        super().__init__(num_tags, "log", batch_first=batch_first, reduction="sum", **options)

    @property
    def num_tags(self) -> int:
        return self.n_labels

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}"

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None,
        reduction: Literal["sum", "mean", "token_mean", "none"] = "sum", *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> Tensor:
        """Log-likelihood of the true labels.

        Parameters
        ----------
        emissions : Tensor of shape (T, B, num_tags), or (B, T, num_tags) with `batch_first`
        tags : LongTensor of shape (T, B), or (B, T)
            Or probabilities of the labels, of the shape of emissions.
        mask : bool or uint8 Tensor of the shape of tags, default=None
        reduction : {"sum", "mean", "token_mean", "none"}, default="sum"
        lengths, transitions, allowed_labels
            As in `ChainLoss.forward`.

        Returns
        -------
        log_likelihood : Tensor of shape () or (B,)
        """
        if reduction not in base.REDUCTIONS:
            check_choice("reduction", reduction, base.REDUCTIONS)
        return self._loss(
            emissions, tags, mask, lengths, transitions, allowed_labels, reduction, -1.0)

    def decode(
        self, emissions: Tensor, mask: Tensor | None = None, **options: Any,
    ) -> Any:
        """Most likely labels of the positions that are not left out.

        Parameters
        ----------
        emissions, mask
            As in `forward`.
        **options
            Further parameters of `ChainLoss.decode`: `lengths`, `transitions`, `k`, `allowed`,
            `allowed_start`, `allowed_end`.

        Returns
        -------
        labels : list of list of int
            With k > 1 a list of at most k such lists for each sequence, best first. While a graph
            is traced (``torch.compile``, ``torch.export``), there are no numbers yet: the result
            is a `Decoded`, whose ``tolist`` makes these lists later.
        """
        found = self._decode(emissions, mask, **options, as_lists=True)
        return found if torch.compiler.is_compiling() or type(found) is list else found.tolist()
