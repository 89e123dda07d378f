"""Fits of graphs by chunks: optimum, oracle and certificate as in memory, state that lasts."""

import itertools

import numpy as np
import pytest
from covering import covering
from graph_cases import random_graphs, with_random_factors
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from scipy import sparse
from test_chunks import n_chunks as n_chunks  # a fixture
from test_chunks import not_canonical, same
from test_graph_tagger import grid_of_places

from fastm4n import Graphs, GraphTagger, OutOfCore, Sequences
from fastm4n.penalties import L2
from fastm4n.tasks.base import Memory

SURROGATES = ("max_margin", "max_min", "log")
DATA = {
    "plain": {}, "types and features": {"n_types": 2, "n_edge_types": 3, "n_edge_features": 1}}


def both(X, y, surrogate, memory=0.025, sample_weight=None, **options):
    """A fit in memory and one by chunks, which have the same optimum and the same oracle."""
    options = {"alpha": 0.05, "tol": 0.02, "random_state": 0, **options}
    whole = GraphTagger(surrogate, **options).fit(X, y, sample_weight)
    parts = GraphTagger(surrogate, solver=OutOfCore(memory=memory), **options)
    parts.fit(X, y, sample_weight)
    assert parts.relative_gap_ <= options["tol"]
    assert_same_optimum(whole, parts)
    assert parts.oracle_ == whole.oracle_
    for name in ("classes_", "node_classes_", "cost_matrix_"):
        assert_array_equal(getattr(parts, name), getattr(whole, name))
    for name in ("coef_", "intercept_", "edge_coef_", "edge_intercept_"):
        assert getattr(parts, name).shape == getattr(whole, name).shape
    assert parts.n_edge_features_in_ == whole.n_edge_features_in_
    return whole, parts


@pytest.mark.parametrize(("surrogate", "pairwise", "inference", "n_edge_features"), covering(
    itertools.product(
        SURROGATES, ("symmetric", "potts", "attractive"), ("auto", "lp"), (0, 2))))
def test_pairs_and_oracles(surrogate, pairwise, inference, n_edge_features, n_chunks):
    X, y = random_graphs(1, n=25, n_edge_features=n_edge_features, labels=2, most=6)
    _, parts = both(X, y, surrogate, 0.015, pairwise=pairwise, inference=inference)
    assert n_chunks[0] > 2
    few = "min_cut" if pairwise == "attractive" and surrogate != "log" else "few_states"
    linear = "decomposition" if surrogate == "log" else "roof"
    assert parts.oracle_ == (few if inference == "auto" else linear)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_linear_programs_have_their_certificate(surrogate, n_chunks):
    """Of more than two labels: the gap is of the larger polytope, and the rest of it is bounded."""
    X, y = random_graphs(2, n=30, most=5, density=0.9)
    options = {"inference": "lp", "alpha": 0.02, "tol": 0.05}
    whole, parts = both(X, y, surrogate, **options)
    assert parts.oracle_ == "decomposition" and n_chunks[0] > 2
    exact, _ = both(X, y, surrogate, **{**options, "inference": "exact"})
    if surrogate == "log":
        assert parts.integrality_gap_ is None and not parts.exact_
        return
    # the weights are others, within the tolerance
    assert parts.exact_ == (parts.integrality_gap_ <= 1e-9)
    assert parts.integrality_gap_ >= 0.0
    assert_allclose(parts.integrality_gap_, whole.integrality_gap_, atol=0.1)
    assert exact.dual_objective_ <= parts.primal_objective_


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_displacements(surrogate, n_chunks):
    X, y = grid_of_places()
    options = dict(pairwise="displacement", grid_shape=(3, 5), alpha=0.01)
    for per_label in (True, False):
        # graphs that are given twice count twice in mean displacements
        weights = np.arange(len(X)) % 3
        whole, parts = both(X, y, surrogate, 0.05, weights, label_features=per_label, **options)
        often = np.repeat(np.arange(len(X)), weights)
        twice = GraphTagger(
            surrogate, label_features=per_label, random_state=0, **options).fit(X[often], y[often])
        assert n_chunks[-1] > 2
        assert_allclose(parts.shifts_, whole.shifts_, atol=1e-12)
        assert_allclose(twice.shifts_, whole.shifts_, atol=1e-12)
        assert_same_optimum(twice, parts)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("labels", [2, 3])
def test_factors(surrogate, labels, n_chunks):
    X, y = random_graphs(3, n=40, labels=labels)
    X = with_random_factors(X, y, 3, labels)
    _, parts = both(X, y, surrogate, 0.04)
    assert parts.oracle_ == "few_states" and n_chunks[0] > 2
    # those that count have none
    weights = [float(factors is None) for factors in X.factors]
    _, parts = both(X, y, surrogate, sample_weight=weights, inference="lp")


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", ["plain", "types and features"])
def test_what_does_not_count_leaves_its_chunks(surrogate, kind, n_chunks):
    """Nodes without a label, graphs of weight zero, a whole chunk of them, and empty graphs."""
    X, y = random_graphs(5, n=45, **DATA[kind])
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(X.n_nodes) < 0.3, -1, y.values)
    labels[X.node_offsets[15] : X.node_offsets[20]] = -1
    weights = rng.integers(0, 3, len(X)) * (np.arange(len(X)) < 35)
    both(X, Sequences(labels, X.node_offsets), surrogate, sample_weight=weights)
    assert n_chunks[0] > 2
    names = np.array(["a", "b", "c", "d", -1], dtype=object)
    named = list(Sequences(names[labels], X.node_offsets))
    one, other = (
        GraphTagger(surrogate, tol=0.05, solver=OutOfCore(memory=0.03), random_state=0).fit(
            X, y, weights) for y in (Sequences(labels, X.node_offsets), named))
    assert_array_equal(one.coef_, other.coef_)


def chains_and_a_ring(k=3, n=40, at=38):
    """Paths, single nodes, empty graphs, and one graph with a cycle."""
    rng = np.random.default_rng(0)
    graphs, labels = [], []
    for i in range(n):
        size = 5 if i == at else int(rng.integers(0, 6)) if i % 3 else 1
        edges = [[t, t + 1] for t in range(size - 1)] + ([[size - 1, 0]] if i == at else [])
        graphs.append((rng.normal(size=(size, 3)), np.array(edges, dtype=int).reshape(-1, 2)))
        labels.append(rng.integers(0, k, size))
    return Graphs.from_list(graphs), labels


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_one_oracle_for_all_chunks(surrogate, n_chunks):
    """Whatever graphs are in each: one graph decides, wherever it is."""
    for at, k, oracle in ((38, 3, "few_states"), (0, 2, "few_states"), (-1, 3, "forest")):
        X, y = chains_and_a_ring(k, at=at)
        _, parts = both(X, y, surrogate)
        assert parts.oracle_ == oracle and n_chunks[0] > 2
    X, y = chains_and_a_ring(3)
    _, parts = both(X, y, surrogate, inference="lp", tol=0.05)
    assert parts.oracle_ == "decomposition"
    alone = Graphs.from_list([(graph.node_features, []) for graph in X])
    _, parts = both(alone, y, surrogate)
    assert parts.oracle_ == "nodes"


def test_one_graph_of_many_states_is_enough():
    """All are then of the linear program, and with inference='exact' it is named."""
    X, y = random_graphs(6, n=40, most=4)
    rng = np.random.default_rng(0)
    many = 30
    edges = [[i, j] for i in range(many) for j in range(i)]
    whole = np.concatenate([X, Graphs.from_list([(rng.normal(size=(many, 3)), edges)])])
    labels = [*y, rng.integers(0, 3, many)]
    options = dict(solver=OutOfCore(memory=0.01), tol=0.999, max_iter=20, random_state=0)
    tagger = GraphTagger("max_margin", **options).fit(whole, labels)
    assert tagger.oracle_ == "decomposition" and tagger.integrality_gap_ >= 0.0
    with pytest.raises(ValueError, match="graph 40 has too many states"):
        GraphTagger("max_margin", inference="exact", **options).fit(whole, labels)


FORMS = {
    "float32": lambda X: X.astype(np.float32), "CSR": sparse.csr_array, "64 bits": not_canonical,
}


KINDS = {
    "plain": {}, "types": {"n_types": 2, "n_edge_types": 2},
    "large": {"n_edge_features": 2, "most": 80, "density": 0.05},
    "types and features": {"n_types": 2, "n_edge_features": 1}}


@pytest.mark.parametrize(
    ("form", "kind", "stored"), covering(itertools.product(FORMS, KINDS, (False, True))))
def test_a_chunk_is_the_same_each_time_it_is_read(form, kind, stored, tmp_path):
    options = KINDS[kind]
    X, y = random_graphs(7, n=24, **options)
    arrays = {name: getattr(X, name) for name in (
        "edges", "node_offsets", "edge_offsets", "node_types", "edge_types")}
    edges = X.edge_features
    X = Graphs(
        FORMS[form](X.node_features),
        edge_features=None if edges is None else FORMS[form](edges + 0.5), **arrays)
    if stored:
        X, y = Graphs.from_batches([(X, y)], tmp_path / "x")
    for labels, weights in (
        (y, None), (y, np.where(np.arange(24) % 7 == 3, 0.0, 1.0)),
        (Sequences(np.where(np.arange(y.n_tokens) % 5 == 0, -1, y.values), y.offsets), None),
    ):
        solver = OutOfCore(memory=0.05 if "most" in options else 0.01)
        tagger = GraphTagger("log", inference="lp", solver=solver, penalty=L2(
            bounds={"coef": (0.0, None)}))
        task = tagger._task_class(tagger)
        data = task.problem(Memory(X, labels, weights), solver=solver).pieces
        for c in range(data.edges.size - 1):
            (_, first, n_bytes), (_, second, same_bytes) = data.open(c), data.open(c)
            assert n_bytes == same_bytes
            # features of nodes and of edges
            for i in (0, 1, 3, 4, 5, 6, 7):
                one, other = (features.arguments()[i] for features in (first, second))
                assert one == other if isinstance(one, (int, float)) else same(one, other)
            norms, others = first.norms(), second.norms()
            assert norms.keys() == others.keys()
            assert all(same(norms[name], others[name]) for name in norms)
        assert data.edges.size > 2
        data.store.close(True)
