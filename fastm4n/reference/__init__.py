"""The papers in plain NumPy, written to be read beside them.

Nothing here is fast, and nothing here is imported by the compiled code: these functions
are what the tests and the benchmarks compare it with.

- `simplex`: the oracles, projections and line searches of one block whose marginal
  polytope is the probability simplex.
- `block_coordinate`: block-coordinate Frank-Wolfe over such blocks, and its certificate.
"""

from .block_coordinate import (
    Certificate,
    Result,
    SplitMix64,
    block_coordinate_frank_wolfe,
    block_gaps,
    certificate,
    primal_weights,
)
from .simplex import (
    block_oracle,
    concave_part,
    log_line_search,
    max_min_absolute,
    max_min_game,
    max_min_mirror_prox,
    max_min_objective,
    max_min_oracle,
    max_min_zero_one,
    max_oracle,
    maximize_block,
    project_simplex,
    simplex_threshold,
    softmax,
)

__all__ = [
    "Certificate",
    "Result",
    "SplitMix64",
    "block_coordinate_frank_wolfe",
    "block_gaps",
    "block_oracle",
    "certificate",
    "concave_part",
    "log_line_search",
    "max_min_absolute",
    "max_min_game",
    "max_min_mirror_prox",
    "max_min_objective",
    "max_min_oracle",
    "max_min_zero_one",
    "max_oracle",
    "maximize_block",
    "primal_weights",
    "project_simplex",
    "simplex_threshold",
    "softmax",
]
