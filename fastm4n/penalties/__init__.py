"""Penalties of the weights, and their weights by the complexity of features."""

from __future__ import annotations

from fastm4n.penalties._complexities import attribute_name, complexity, complexity_of_name
from fastm4n.penalties._penalties import L2, ElasticNet, Group, safe_zeros

__all__ = [
    "ElasticNet", "Group", "L2", "attribute_name", "complexity", "complexity_of_name",
    "safe_zeros",
]
