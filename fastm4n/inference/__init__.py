"""Inference kernels: the oracles of the solvers, usable on their own.

Every function takes one vector of scores or a batch of them.
"""

from fastm4n.inference.simplex import (
    max_min_absolute,
    max_min_game,
    max_min_mirror_prox,
    max_min_zero_one,
    max_oracle,
    project_simplex,
    softmax,
)

__all__ = [
    "max_min_absolute",
    "max_min_game",
    "max_min_mirror_prox",
    "max_min_zero_one",
    "max_oracle",
    "project_simplex",
    "softmax",
]
