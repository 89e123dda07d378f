"""Theory that can be read off a fit: complexities, margin bounds, held-out bounds, consistency."""

from fastm4n.research.theory.bounds import (
    Bound,
    clopper_pearson,
    empirical_bernstein,
    ensemble_constant,
    excess_risk_bound,
    margin_bound,
)
from fastm4n.research.theory.complexity import Complexity, Estimate, factor_graph_complexity
from fastm4n.research.theory.consistency import (
    Consistency,
    calibration_constant,
    calibration_function,
    consistency,
    is_tree_distance,
    prices,
    printed_constant,
)
from fastm4n.research.theory.liu import LiuFit, liu_example
from fastm4n.research.theory.margins import Margins, margins
from fastm4n.research.theory.report import ComplexityReport, complexity_report

__all__ = [
    "Bound", "Complexity", "ComplexityReport", "Consistency", "Estimate", "LiuFit", "Margins",
    "calibration_constant", "calibration_function", "clopper_pearson", "complexity_report",
    "consistency", "empirical_bernstein", "ensemble_constant", "excess_risk_bound",
    "factor_graph_complexity", "is_tree_distance", "liu_example", "margin_bound", "margins",
    "prices", "printed_constant",
]
