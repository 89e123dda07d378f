"""The surrogate losses, each written once over outputs of any kind."""

from __future__ import annotations

from fastm4n.surrogates._base import Surrogate
from fastm4n.surrogates._parameters import (  # noqa: F401 (what is not public is used within)
    SURROGATES,
    Log,
    LogLoss,
    MaxMargin,
    MaxMarginLoss,
    MaxMin,
    MaxMinLoss,
    MirrorProxLoss,
    as_surrogate,
    make_surrogate,
    surrogate_name,
    with_options,
)

__all__ = [
    "Log", "LogLoss", "MaxMargin", "MaxMarginLoss", "MaxMin", "MaxMinLoss", "MirrorProxLoss",
    "Surrogate", "make_surrogate",
]
