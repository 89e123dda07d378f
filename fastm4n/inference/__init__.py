"""Inference kernels: the oracles of the solvers, usable on their own.

Those of the simplex take one vector of scores or a batch of them, those of chains one sequence
or a batch, and `linear_assignment` and those of permutations one problem or a batch.
"""

from fastm4n.inference._chain_batches import max_marginals, span_marginals
from fastm4n.inference.assignment import linear_assignment
from fastm4n.inference.chain import (
    chain_entropy,
    max_min_chain,
    sum_product,
    viterbi,
    viterbi_kbest,
)
from fastm4n.inference.cut import grid_edges, min_cut
from fastm4n.inference.matching import best_matching, matching_marginals
from fastm4n.inference.orders import best_linear_extension, linear_extension_marginals
from fastm4n.inference.permutation import (
    max_min_permutation,
    permanent,
    permutation_marginals,
    sinkhorn,
)
from fastm4n.inference.simplex import (
    max_min_absolute,
    max_min_game,
    max_min_mirror_prox,
    max_min_zero_one,
    max_oracle,
    project_simplex,
    softmax,
)
from fastm4n.inference.tangent import Tangent, chain_tangent, graph_tangent, simplex_tangent

__all__ = [
    "Tangent", "best_linear_extension", "best_matching", "chain_entropy", "chain_tangent",
    "graph_tangent", "grid_edges", "linear_assignment", "linear_extension_marginals",
    "matching_marginals", "max_marginals", "max_min_absolute", "max_min_chain", "max_min_game",
    "max_min_mirror_prox", "max_min_permutation", "max_min_zero_one", "max_oracle", "min_cut",
    "permanent", "permutation_marginals", "project_simplex", "simplex_tangent", "sinkhorn",
    "softmax", "span_marginals", "sum_product", "viterbi", "viterbi_kbest",
]
