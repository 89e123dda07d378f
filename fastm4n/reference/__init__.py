"""The papers in plain NumPy, written to be read beside them.

Nothing here is fast, and nothing here is imported by the compiled code: these functions
are what the tests and the benchmarks compare it with.

- `simplex`: the oracles, projections and line searches of one block whose marginal
  polytope is the probability simplex.
- `block_coordinate`: block-coordinate Frank-Wolfe over such blocks, and its certificate.
- `chain`: inference and oracles of a block whose output is a sequence of labels.
- `permutation`: inference and oracles of a block whose output is a permutation.
- `structured`: block-coordinate Frank-Wolfe over blocks of any structure, and its certificate;
  `chain_solver` and `permutation_solver` are those of sequences and of permutations.
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
from .chain import (
    chain_concave_part,
    chain_entropy,
    chain_indicator,
    chain_oracle,
    max_min_chain_bounds,
    max_min_column_generation,
    max_min_mirror_prox_chain,
    score_labelling,
    sum_product,
    viterbi,
    viterbi_kbest,
)
from .chain_solver import (
    ChainPoint,
    ChainResult,
    ChainWeights,
    chain_block_coordinate_frank_wolfe,
    chain_certificate,
    chain_features,
    chain_point,
    chain_primal_weights,
    chain_scores,
)
from .permutation import (
    best_permutation,
    max_min_permutation,
    max_min_permutation_bounds,
    max_min_permutation_mirror_prox,
    permanent,
    permutation_concave_part,
    permutation_entropy,
    permutation_indicator,
    permutation_marginals,
    permutation_oracle,
    round_to_birkhoff,
    sinkhorn,
)
from .permutation_solver import (
    PermutationPoint,
    PermutationResult,
    permutation_block_coordinate_frank_wolfe,
    permutation_certificate,
    permutation_point,
    permutation_primal_weights,
    vector_pairs,
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
    "ChainPoint",
    "ChainResult",
    "ChainWeights",
    "PermutationPoint",
    "PermutationResult",
    "Result",
    "SplitMix64",
    "best_permutation",
    "block_coordinate_frank_wolfe",
    "block_gaps",
    "block_oracle",
    "certificate",
    "chain_block_coordinate_frank_wolfe",
    "chain_certificate",
    "chain_concave_part",
    "chain_entropy",
    "chain_features",
    "chain_indicator",
    "chain_oracle",
    "chain_point",
    "chain_primal_weights",
    "chain_scores",
    "concave_part",
    "log_line_search",
    "max_min_absolute",
    "max_min_chain_bounds",
    "max_min_column_generation",
    "max_min_game",
    "max_min_mirror_prox",
    "max_min_mirror_prox_chain",
    "max_min_objective",
    "max_min_oracle",
    "max_min_permutation",
    "max_min_permutation_bounds",
    "max_min_permutation_mirror_prox",
    "max_min_zero_one",
    "max_oracle",
    "maximize_block",
    "permanent",
    "permutation_block_coordinate_frank_wolfe",
    "permutation_certificate",
    "permutation_concave_part",
    "permutation_entropy",
    "permutation_indicator",
    "permutation_marginals",
    "permutation_oracle",
    "permutation_point",
    "permutation_primal_weights",
    "primal_weights",
    "project_simplex",
    "round_to_birkhoff",
    "score_labelling",
    "simplex_threshold",
    "sinkhorn",
    "softmax",
    "sum_product",
    "vector_pairs",
    "viterbi",
    "viterbi_kbest",
]
