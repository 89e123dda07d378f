"""What all outputs of graphs share, whatever their oracle."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fastm4n.losses import block_losses
from fastm4n.outputs.graph_oracles import ORACLES
from fastm4n.surrogates import make_surrogate

N_BLOCKS, N_NODES = 5, 4
TREE = [[0, 1], [1, 2], [3, 1]]
CYCLE = [[0, 1], [1, 2], [2, 3], [3, 0]]
# oracle: its edges, pairs and surrogates
CASES = {
    "forest": (TREE, ["both", "equal", "tables", "displaced"], ["max_margin", "max_min", "log"]),
    "min_cut": (CYCLE, ["both", "equal"], ["max_margin", "max_min"]),
    "few_states": (CYCLE, ["both", "equal", "tables"], ["max_margin", "max_min", "log"]),
    "roof": (CYCLE, ["both", "equal", "tables"], ["max_margin", "max_min"]),
    "decomposition": (CYCLE, ["equal", "tables"], ["max_margin", "max_min"]),
}


def outputs_of(oracle, pairs, edges, n_edges, shared=False, seed=0, **more):
    rng = np.random.default_rng(seed)
    times = max(1, len(edges) // n_edges[0])
    types = np.tile([0, 1, 0, 1][:n_edges[0]], times) if shared else None
    shifts = np.tile([[0.5, 0.0], [0.0, 1.0], [0.0, 0.0]], (times, 1)) if (
        pairs == "displaced") else None
    return ORACLES[oracle](
        rng.integers(2, size=N_BLOCKS * N_NODES), np.full(N_BLOCKS, N_NODES), edges, n_edges,
        1.0 - np.eye(2), pairs=pairs, edge_types=types, n_types=2, shifts=shifts, **more)


@pytest.mark.parametrize("oracle", CASES)
@pytest.mark.parametrize("shared", [False, True])
def test_edges_of_one_block_are_those_of_all(oracle, shared):
    edges, kinds, surrogates = CASES[oracle]
    n_edges = np.full(N_BLOCKS, len(edges))
    for pairs in kinds:
        for surrogate in surrogates:
            once = outputs_of(oracle, pairs, edges, n_edges, shared)
            often = outputs_of(oracle, pairs, np.tile(edges, (N_BLOCKS, 1)), n_edges, shared)
            assert once.same_edges and not often.same_edges
            assert once.oracle_cost == often.oracle_cost
            scores = np.abs(np.random.default_rng(1).normal(size=once.layout.n_numbers))
            found = [
                block_losses(make_surrogate(surrogate, outputs), scores)
                for outputs in (once, often, pickle.loads(pickle.dumps(once)))]
            assert np.max(found[0].value) > 0.0
            for other in found[1:]:
                assert_array_equal(found[0].value, other.value)
                assert_array_equal(found[0].upper, other.upper)
                assert_array_equal(found[0].gradient, other.gradient)


@pytest.mark.parametrize(
    ("edges", "n_edges", "message"),
    [
        (TREE, [3, 3, 3, 3, 2], "edges has 3 rows, but n_edges adds up to 14"),
        (TREE[:2], [3] * 5, "edges has 2 rows, but n_edges adds up to 15"),
        ([[0, 4]], [1] * 5, "between nodes of their block"),
        ([[0, -1]] * 5, [1] * 5, "between nodes of their block"),
    ],
)
def test_edges_that_do_not_fit(edges, n_edges, message):
    with pytest.raises((ValueError, IndexError), match=message):
        outputs_of("forest", "both", edges, n_edges)
