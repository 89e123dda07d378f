"""The papers in plain NumPy, written to be read beside them.

Nothing here is fast, and nothing here is imported by the compiled code: these functions
are what the tests and the benchmarks compare it with.

- `simplex`: inference for one of k labels, on the probability simplex: projections, softmax and
  max-min oracles; `simplex_block`: a block's oracles, exact maximisers and line searches.
- `block_coordinate`: block-coordinate Frank-Wolfe over such blocks, and its certificate.
- `chain`: inference for a sequence of labels; `chain_block`: a block's oracles.
- `permutation`: inference and oracles of a block whose output is a permutation.
- `structured`: block-coordinate Frank-Wolfe over blocks of any structure, and its certificate;
  `chain_solver` and `permutation_solver` are those of sequences and of permutations.
- `penalty`: bounds, the elastic net and groups in the place of ||w||^2 / 2.
- `passes`: such passes over atoms, with pairwise and away steps and a cache, and accelerated ones.
- `baselines`: what these are compared with, batch Frank-Wolfe and stochastic subgradient steps.
"""

from .baselines import (
    BatchResult,
    SimplexBlocks,
    SubgradientResult,
    batch_frank_wolfe,
    optimum_radius,
    stochastic_subgradient,
)
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
    chain_entropy,
    chain_indicator,
    score_labelling,
    sum_product,
    viterbi,
    viterbi_kbest,
)
from .chain_block import (
    chain_concave_part,
    chain_oracle,
    max_min_chain_bounds,
    max_min_column_generation,
    max_min_mirror_prox_chain,
)
from .chain_solver import (
    ChainBlocks,
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
from .passes import AcceleratedPasses, Atom, AtomPasses, BlockPasses
from .penalty import Penalty
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
    PermutationBlocks,
    PermutationPoint,
    PermutationResult,
    permutation_block_coordinate_frank_wolfe,
    permutation_certificate,
    permutation_point,
    permutation_primal_weights,
    vector_pairs,
)
from .simplex import (
    max_min_absolute,
    max_min_game,
    max_min_mirror_prox,
    max_min_objective,
    max_min_oracle,
    max_min_zero_one,
    max_oracle,
    project_simplex,
    simplex_threshold,
    softmax,
)
from .simplex_block import block_oracle, concave_part, log_line_search, maximize_block

__all__ = [
    "AcceleratedPasses",
    "Atom",
    "AtomPasses",
    "BatchResult",
    "BlockPasses",
    "Certificate",
    "ChainBlocks",
    "ChainPoint",
    "ChainResult",
    "ChainWeights",
    "Penalty",
    "PermutationBlocks",
    "PermutationPoint",
    "PermutationResult",
    "Result",
    "SimplexBlocks",
    "SplitMix64",
    "SubgradientResult",
    "batch_frank_wolfe",
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
    "optimum_radius",
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
    "stochastic_subgradient",
    "sum_product",
    "vector_pairs",
    "viterbi",
    "viterbi_kbest",
]
