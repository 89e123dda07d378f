"""Systems of the papers that the estimators do not choose by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.lazy import attach

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.research import boosting, costs, displays, soft, theory  # noqa: F401
    from fastm4n.research._factor_graphs import FactorGraphs
    from fastm4n.research._soft_estimators import SoftGraphTagger, SoftMultiLabelClassifier
    from fastm4n.research._soft_kernels import FactorBlocks, SmoothMargin, SoftFeatures
    from fastm4n.research.boosting import Boost, BoostLabelLoss, BoostLoss
    from fastm4n.research.displays import ComplexityDisplay, MarginDisplay
    from fastm4n.research.soft import solve_soft

__all__ = [
    "Boost", "BoostLabelLoss", "BoostLoss", "ComplexityDisplay", "FactorBlocks", "FactorGraphs",
    "MarginDisplay", "SmoothMargin", "SoftFeatures", "SoftGraphTagger",
    "SoftMultiLabelClassifier", "solve_soft",
]

__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = attach(
    __name__,
    {
        "Boost": "boosting", "BoostLabelLoss": "boosting", "BoostLoss": "boosting",
        "ComplexityDisplay": "displays",
        "FactorBlocks": "_soft_kernels", "FactorGraphs": "_factor_graphs",
        "MarginDisplay": "displays", "SmoothMargin": "_soft_kernels",
        "SoftFeatures": "_soft_kernels", "SoftGraphTagger": "_soft_estimators",
        "SoftMultiLabelClassifier": "_soft_estimators", "solve_soft": "soft",
    },
    ("boosting", "costs", "displays", "soft", "theory"),
)
