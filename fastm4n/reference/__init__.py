"""The papers in plain NumPy, written to be read with them.

These functions are not fast, and the compiled code does not import them. Tests and benchmarks
compare it with them.

- `blocks`: the problem, its penalty and certificate, and one step, for outputs of any kind.
- `block_coordinate`: block-coordinate Frank-Wolfe over them.
- `passes`: passes over atoms, with pairwise and away steps and a cache, and accelerated passes.
- `baselines`: batch Frank-Wolfe and stochastic subgradient steps, for comparisons.
- `soft`: structured SVMs on factor graphs with soft agreement of nodes and factors.
- `outputs`: the three surrogates of a block, h and the oracle, for outputs of any kind.
- `simplex`, `chain`, `permutation`, `matching`: inference for one of k labels, for a sequence of
  labels, for a permutation and for a matching in which rows may stay unmatched. `simplex_block`,
  `chain_block`: oracles and blocks of the first two.
- `automaton`: sequences of labels with scores of n-grams, accepted by a finite automaton.
- `thresholds`: ordered levels as sets of thresholds that they pass.
- `forest`: labels of the nodes of a graph without cycles, with their oracles.
- `cut`: minimum cuts, and the oracles of attractive graphs of two labels.
"""

from fastm4n.reference.automaton import (
    automaton_marginals,
    automaton_score,
    automaton_viterbi,
    ngram_counts,
)
from fastm4n.reference.baselines import (
    BatchResult,
    SubgradientResult,
    batch_frank_wolfe,
    optimum_radius,
    stochastic_subgradient,
)
from fastm4n.reference.block_coordinate import (
    BlockPasses,
    Result,
    SplitMix64,
    block_coordinate_frank_wolfe,
)
from fastm4n.reference.blocks import Blocks, Certificate, Penalty
from fastm4n.reference.chain import (
    chain_entropy,
    chain_indicator,
    chain_tangent,
    max_marginals,
    score_labelling,
    span_probability,
    sum_product,
    viterbi,
    viterbi_kbest,
)
from fastm4n.reference.chain_block import (
    ChainBlocks,
    ChainOutputs,
    ChainWeights,
    chain_features,
    chain_scores,
    max_min_column_generation,
    max_min_mirror_prox_chain,
)
from fastm4n.reference.cut import best_attractive, max_min_attractive, min_cut
from fastm4n.reference.forest import (
    ForestOutputs,
    displacement_tables,
    forest_best,
    forest_entropy,
    forest_indicator,
    forest_marginals,
    forest_order,
    forest_score,
)
from fastm4n.reference.matching import (
    CompleteMatchingOutputs,
    MatchingBlocks,
    MatchingOutputs,
    best_matching,
    list_matchings,
    matching_indicator,
    matching_marginals,
)
from fastm4n.reference.outputs import Outputs
from fastm4n.reference.passes import AcceleratedPasses, Atom, AtomPasses
from fastm4n.reference.permutation import (
    PermutationBlocks,
    PermutationOutputs,
    best_permutation,
    max_min_permutation,
    max_min_permutation_mirror_prox,
    permanent,
    permutation_entropy,
    permutation_indicator,
    permutation_marginals,
    round_to_birkhoff,
    sinkhorn,
    vector_pairs,
)
from fastm4n.reference.simplex import (
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
from fastm4n.reference.simplex_block import (
    SimplexBlocks,
    SimplexOutputs,
    log_line_search,
    maximize_block,
)
from fastm4n.reference.thresholds import passed, threshold_loss

__all__ = [
    "AcceleratedPasses", "Atom", "AtomPasses", "BatchResult", "BlockPasses", "Blocks",
    "Certificate", "ChainBlocks", "ChainOutputs", "ChainWeights", "CompleteMatchingOutputs",
    "ForestOutputs", "MatchingBlocks", "MatchingOutputs", "Outputs", "Penalty",
    "PermutationBlocks", "PermutationOutputs", "Result", "SimplexBlocks", "SimplexOutputs",
    "SplitMix64", "SubgradientResult", "automaton_marginals", "automaton_score",
    "automaton_viterbi", "batch_frank_wolfe", "best_attractive", "best_matching",
    "best_permutation", "block_coordinate_frank_wolfe", "chain_entropy", "chain_features",
    "chain_indicator", "chain_scores", "chain_tangent", "displacement_tables", "forest_best",
    "forest_entropy", "forest_indicator", "forest_marginals", "forest_order", "forest_score",
    "list_matchings", "log_line_search", "matching_indicator", "matching_marginals",
    "max_marginals", "max_min_absolute", "max_min_attractive", "max_min_column_generation",
    "max_min_game", "max_min_mirror_prox", "max_min_mirror_prox_chain", "max_min_objective",
    "max_min_oracle", "max_min_permutation", "max_min_permutation_mirror_prox",
    "max_min_zero_one", "max_oracle", "maximize_block", "min_cut", "ngram_counts",
    "optimum_radius", "passed", "permanent", "permutation_entropy", "permutation_indicator",
    "permutation_marginals", "project_simplex", "round_to_birkhoff", "score_labelling",
    "simplex_threshold", "sinkhorn", "softmax", "span_probability", "stochastic_subgradient",
    "sum_product", "threshold_loss", "vector_pairs", "viterbi", "viterbi_kbest",
]
