"""Tuned constants of the kernels at half, once and twice their values.

    python benchmarks/constants.py [--only TEXT ...] [--repeats 3]

prints a table: milliseconds of processor time, and ratios at half and at twice each value. All data
are random. One thread, medians of runs that take turns. On a quiet machine, ratios within 5 % of
one are noise. Thresholds of sizes are timed with one size below and one above. Half or twice the
value moves one of these to the other branch.

Modules export the addresses of their constants in C. Other constants are attributes.
"""

import argparse
import ctypes
import importlib
import time
import warnings
from functools import cache, partial

import numpy as np
from _peers import describe, environment, table
from counts import chains, rankings
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fastm4n import (
    BlockFrankWolfe,
    CountFactor,
    Graphs,
    GraphTagger,
    LabelRanker,
    MulticlassClassifier,
    SequenceTagger,
)
from fastm4n.features._kernel import gaussian
from fastm4n.features._rows import row_norms
from fastm4n.inference import (
    grid_edges,
    max_min_chain,
    max_min_permutation,
    min_cut,
    permanent,
    sinkhorn,
)
from fastm4n.inference.graph import marginals, maximise
from fastm4n.inference.roof import roof_duality
from fastm4n.losses import block_losses, chain_losses
from fastm4n.outputs import ChainOutputs, Layout
from fastm4n.penalties import ElasticNet
from fastm4n.solvers.base import Options
from fastm4n.surrogates import make_surrogate
from fastm4n.tasks import kernels
from fastm4n.tasks.completions import complete

# of each turn, about
LEAST_SECONDS = 0.05
TYPES = {b"double": ctypes.c_double, b"Py_ssize_t": ctypes.c_ssize_t}


def exchange(module, name, value=None):
    """Return the constant, and set it to `value` if one is given."""
    exported = getattr(module, "__pyx_capi__", {})
    if name not in exported:
        before = getattr(module, name)
        if value is not None:
            setattr(module, name, value)
        return before
    get_name, get = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    kind = get_name(exported[name])
    place = TYPES[kind].from_address(get(exported[name], kind))
    before = place.value
    if value is not None:
        place.value = value
    return before


# ------------------------------------------------------------------ what is timed


def fit(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(X, y)


@cache
def sequences(n, length, n_features, n_labels):
    return chains(n, length, n_features, n_labels)


def chain_fit(surrogate, n, length, n_labels=8, *, alpha, n_features=12, **options):
    X, y = sequences(n, length, n_features, n_labels)
    return partial(fit, SequenceTagger(
        surrogate, alpha=alpha, tol=1e-3, max_iter=60, random_state=0, **options), X, y)


def few_transitions(surrogate, n_labels, every):
    """Losses of chains of 20 positions, one of `every` transitions having a score."""
    rng = np.random.default_rng(0)
    stride = Layout.of_chains([1], n_labels).stride
    table = rng.random((n_labels, stride)) < 1.0 / every
    table[:, n_labels:] = False
    y = rng.integers(n_labels, size=600)
    outputs = ChainOutputs(
        y, np.full(30, 20), 1.0 - np.eye(n_labels), False, "sum", np.flatnonzero(table))
    scores = rng.normal(size=outputs.layout.n_numbers)
    loss = make_surrogate(surrogate, outputs)
    return lambda: block_losses(loss, scores, n_jobs=1)


def chain_games(length, n_labels, scale):
    rng = np.random.default_rng(0)
    unary = scale * rng.normal(size=(20, length, n_labels)) / length
    pair = scale * rng.normal(size=(n_labels, n_labels)) / length
    return lambda: [max_min_chain(scores, pair, tol=1e-6) for scores in unary]


def untrained_chains(n, length, n_labels, rtol, scale=1.0):
    rng = np.random.default_rng(0)
    scores = scale * rng.normal(size=(n * length, n_labels))
    y, pair = rng.integers(n_labels, size=n * length), 0.1 * rng.normal(size=(n_labels, n_labels))
    return partial(
        chain_losses, scores, pair, y, np.full(n, length), tol=1e-6, rtol=rtol, n_jobs=1)


def ranker_fit(n, n_items, alpha, **options):
    X, y = rankings(n, n_items)
    options = {"cost": "zero_one", "tol": 1e-3, "max_iter": 30, "random_state": 0, **options}
    return partial(fit, LabelRanker(alpha=alpha, **options), X, y)


def permutation_games(n, n_items, scale, cost=None, **options):
    scores = scale * np.random.default_rng(0).normal(size=(n, n_items, n_items)) / n_items
    if cost is not None:
        cost = np.random.default_rng(1).random((n_items, n_items))
        np.fill_diagonal(cost, 0.0)
    return lambda: [max_min_permutation(one, cost, tol=1e-6, **options) for one in scores]


def sinkhorns(n, n_items, scale):
    scores = scale * np.random.default_rng(0).normal(size=(n, n_items, n_items))
    return partial(sinkhorn, scores)


def grid_scores(rows, columns, n_labels, strength, seed=0):
    rng = np.random.default_rng(seed)
    edges = grid_edges((rows, columns))
    return (
        rng.normal(size=(rows * columns, n_labels)), edges,
        strength * rng.normal(size=(len(edges), n_labels, n_labels)))


def labellings(method, n, *shape):
    given = [grid_scores(*shape, seed=seed) for seed in range(n)]
    return lambda: [maximise(*one, method=method) for one in given]


def counted(n_counts, rows, columns, n_labels, strength):
    """Best labellings with so many counts of a label, together of a tenth of the nodes."""
    n, given = rows * columns, grid_scores(rows, columns, n_labels, strength)
    least = n // (10 * n_counts)
    factors = [CountFactor(range(f, n, n_counts), least, least) for f in range(n_counts)]
    return lambda: maximise(*given, factors=factors, method="dual")


def sum_products(method, n, *shape):
    given = [grid_scores(*shape, seed=seed) for seed in range(n)]
    return lambda: [marginals(*one, method=method) for one in given]


def all_pairs(n_nodes, n_labels):
    rng = np.random.default_rng(0)
    edges = np.array([(i, j) for i in range(n_nodes) for j in range(i)])
    nodes = rng.normal(size=(n_nodes, n_labels))
    tables = rng.normal(size=(len(edges), n_labels, n_labels))
    return lambda: marginals(nodes, edges, tables, method="trw")


def roofs(n, *shape):
    given = [grid_scores(*shape, seed=seed) for seed in range(n)]
    return lambda: [roof_duality(*one) for one in given]


def displaced(places):
    """Fits of a star whose leaves are displaced along an axis of so many places."""
    rng = np.random.default_rng(0)
    n = 20
    X = Graphs(
        rng.normal(size=(n, 3)), [(0, i) for i in range(1, n)], [0, n], [0, n - 1])
    model = GraphTagger(
        pairwise="displacement", grid_shape=(1, places), max_iter=3, tol=1e-9, random_state=0)
    y = np.arange(n) % places
    y[0] = places - 1
    return lambda: fit(model, X, [y])


@cache
def graphs(n, shape, n_labels, n_features=4):
    rng = np.random.default_rng(0)
    edges = grid_edges(shape)
    size, centres = shape[0] * shape[1], rng.normal(size=(n_labels, n_features))
    labels = rng.integers(0, n_labels, (n, shape[0] // 2 + 1, shape[1] // 2 + 1))
    labels = labels.repeat(2, 1).repeat(2, 2)[:, : shape[0], : shape[1]].reshape(n, size)
    X = centres[labels.reshape(-1)] + 1.5 * rng.normal(size=(n * size, n_features))
    return Graphs(
        X, np.tile(edges, (n, 1)), size * np.arange(n + 1), len(edges) * np.arange(n + 1)
    ), list(labels)


def graph_fit(surrogate, n, shape, n_labels, alpha=0.1, **options):
    X, y = graphs(n, shape, n_labels)
    return partial(fit, GraphTagger(
        surrogate, alpha=alpha, tol=3e-3, max_iter=30, random_state=0, **options), X, y)


def sparse_fit(n, length, n_features=20000, values=20):
    """Sequences of sparse rows, such as words."""
    rng = np.random.default_rng(0)
    X = [sparse.csr_array((
        np.ones(length * values), rng.zipf(1.3, length * values) % n_features,
        values * np.arange(length + 1)), shape=(length, n_features)) for _ in range(n)]
    y = [rng.integers(0, 9, length) for _ in range(n)]
    return partial(fit, SequenceTagger(
        "max_margin", alpha=1.0 / n, max_iter=5, tol=1e-9, random_state=0,
        solver=BlockFrankWolfe()), X, y)


def kernel_fit(n, n_features, cache=2048, **options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_features))
    y = np.argmax(X[:, :5] + 0.7 * rng.normal(size=(n, 5)), axis=1)
    return partial(fit, MulticlassClassifier(
        "max_margin", kernel="rbf", alpha=1e-2 / n, tol=1e-2, max_iter=100, random_state=0,
        solver=BlockFrankWolfe(kernel_cache_size=cache), **options), X, y)


def gaussians(m, n, n_features):
    A = np.random.default_rng(0).normal(size=(n, n_features))
    return partial(gaussian, A[:m], A, 0.1)


def norms(n_rows, values):
    X = sparse.random_array((n_rows, 5000), density=values / 5000, rng=0, format="csr")
    return lambda: row_norms(X, 1.0)


def kernel_predictions(n):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20))
    beta, scores = rng.normal(size=(n, 5)), np.zeros((n, 5))
    estimator = MulticlassClassifier("max_min", kernel="rbf").fit(X[:50], X[:50, 0] > 0)
    return lambda: kernels.add_expansion(estimator, X, X, beta, scores)


def symmetric(n):
    return partial(kernels.checked_gram, np.ones((n, n)))


def dense_fit(share):
    """Chains of dense features with this share of non-zeros."""
    rng = np.random.default_rng(0)
    X = [np.where(rng.random((30, 200)) < share, rng.normal(size=(30, 200)), 0) for _ in range(60)]
    y = [rng.integers(0, 8, 30) for _ in X]
    return partial(fit, SequenceTagger(
        "max_margin", alpha=0.1, tol=1e-9, max_iter=5, random_state=0,
        solver=BlockFrankWolfe()), X, y)


def l1_fit():
    """A fifth of the columns is out of reach of the penalty."""
    rng = np.random.default_rng(0)
    scale = np.where(np.arange(500) < 100, 1e-6, 1.0)
    X = [sparse.csr_array(sparse.random_array((30, 500), density=0.05, rng=rng)) * scale
         for _ in range(60)]
    y = [rng.integers(0, 8, 30) for _ in X]
    return partial(fit, SequenceTagger(
        "max_margin", alpha=0.05, penalty=ElasticNet(0.5), tol=1e-9, max_iter=5, random_state=0,
        solver=BlockFrankWolfe()), X, y)


def missing_labels(surrogate, n, length):
    """Completions of sequences without three labels in ten."""
    X, y = sequences(n, length, 12, 8)
    rng = np.random.default_rng(0)
    allowed = [
        (rng.random(len(labels)) < 0.3)[:, np.newaxis] | (labels[:, np.newaxis] == np.arange(8))
        for labels in y]
    model = SequenceTagger(surrogate, alpha=0.1 / n, tol=1e-3)

    def run():
        problem = model._problem(X, y)
        options = Options(
            alpha=0.1 / n, tol=1e-2, scale=problem.scale(), max_iter=60, seed=0, n_jobs=1,
            verbose=0, callback=None, solver="auto", keep_dual=True)
        complete(problem, allowed, options, tol=1e-2)
    return run


def moved_cuts(n, n_moved):
    """Minimum cuts of a grid in turn, each from the last flow."""
    rng = np.random.default_rng(0)
    edges = grid_edges((n, n))
    source, sink = rng.random((2, n * n))
    capacities, sources = rng.random(len(edges)), []
    for _ in range(20):
        source = source.copy()
        source[rng.integers(0, n * n, n_moved)] *= 1.01
        sources.append(source)

    def run():
        flow = None
        for moved in sources:
            *_, flow = min_cut(moved, sink, edges, capacities, flow=flow, return_flow=True)
    return run


CHAIN, CUT, DUAL, FOREST, RELAX, PERM, ROOF, EXACT, SEARCH = (
    f"inference.{name}" for name in (
        "chain", "cut", "_dual", "_forest", "_relaxations", "permutation", "roof", "_elimination",
        "graph"))
GAME = "inference._chain_games"
OUTPUTS, GRAPH, LOSS = "outputs._base", "outputs._graph", "surrogates._base"
POSITIONS, KERNEL = "features._positions", "features._kernel"
KERNELS, INPUT, COMPLETIONS = "tasks.kernels", "tasks.chain_input", "tasks.completions"

LARGE_ALPHA = ("10 chains of 20, alpha 0.3", partial(chain_fit, "max_min", 10, 20, alpha=0.3))
SMALL_ALPHA = ("60 chains of 15, alpha 0.003", partial(
    chain_fit, "max_min", 60, 15, alpha=0.003))
LOG = ("60 chains of 15, log", partial(chain_fit, "log", 60, 15, alpha=0.003))
GAMES = ("games of chains of 40", partial(chain_games, 40, 10, 6.0))
UNTRAINED = ("losses of 32 chains of 50, rtol 0.001", partial(untrained_chains, 32, 50, 12, 1e-3))
LOOSELY = ("losses of 32 chains of 50, rtol 0.01", partial(untrained_chains, 32, 50, 12, 1e-2))
ALL_LABELS = ("losses of 32 chains of 50, 26 labels, rtol 0.001", partial(
    untrained_chains, 32, 50, 26, 1e-3, 0.1))
ZERO_ONE = ("games of 12 items", partial(permutation_games, 15, 12, 4.0))
ANY_COST = ("games of 10 items, any cost", partial(permutation_games, 15, 10, 3.0, "any"))
RANKER = ("50 rankings of 10 items, alpha 0.1", partial(ranker_fit, 50, 10, 0.1))
PROX = ("30 rankings of 5 items, mirror prox", partial(
    ranker_fit, 30, 5, 0.1, tol=1e-2, max_iter=10,
    solver=BlockFrankWolfe(oracle="mirror_prox")))
SINKHORN = ("sinkhorn, 30 items, scores of 30", partial(sinkhorns, 20, 30, 30.0))
LP = ("best labellings of 12 x 12, 4 labels", partial(labellings, "lp", 2, 12, 12, 4, 0.7))
TRW = ("marginals of 12 x 12, 3 labels", partial(sum_products, "trw", 2, 12, 12, 3, 1.0))
PAIRS_OF_ALL = ("marginals of all pairs of 60 nodes, 2 labels", partial(
    all_pairs, 60, 2))
ROUGH = ("roof duality and moves of 40 x 40, 2 labels", partial(
    labellings, "roof", 2, 40, 40, 2, 2.0))
COUNTS = ("twenty counts in a chain of 400, 3 labels", partial(counted, 20, 1, 400, 3, 0.5))
TABLES = ("best labellings of 15 x 15, 2 labels", partial(
    labellings, "exact", 2, 15, 15, 2, 1.0))
ROOFS = ("roof duality of 30 x 30", partial(roofs, 10, 30, 30, 2, 0.7))
GRAPH_FIT = ("8 grids 8 x 8, 4 labels, max_margin", partial(
    graph_fit, "max_margin", 8, (8, 8), 4, alpha=0.03, inference="lp"))
GRAPH_LOG = ("8 grids 8 x 8, 4 labels, log", partial(
    graph_fit, "log", 8, (8, 8), 4, alpha=0.03, inference="lp"))
GRAPH_GAMES = ("20 grids 3 x 4, 2 labels, max_min", partial(
    graph_fit, "max_min", 20, (3, 4), 2, inference="exact"))
CUTS = ("10 grids 30 x 30, minimum cuts", partial(
    graph_fit, "max_margin", 10, (30, 30), 2, pairwise="attractive"))
MOVED = ("minimum cuts of 70 x 70, 20 scores moved", partial(moved_cuts, 70, 20))
PARTIAL = ("30 chains of 10, labels missing", partial(missing_labels, "max_margin", 30, 10))

# room, constant, unit, what is timed, and how that is made
CONSTANTS = [
    (CHAIN, "SEED_AFTER", "calls", *LARGE_ALPHA),
    (CHAIN, "SEED_AFTER", "calls", *GAMES),
    (CHAIN, "SWEEPS", "sweeps", *GAMES),
    (CHAIN, "LOOKS", "looks", *LARGE_ALPHA),
    (CHAIN, "FIRST", "share of a cost", *GAMES),
    (CHAIN, "COOLED", "factor", *GAMES),
    (GAME, "MARGIN", "slack", *UNTRAINED),
    (GAME, "LEAST", "share", *UNTRAINED),
    (GAME, "LOOK", "tolerances", *LOOSELY),
    (GAME, "FLOATS", "share", *LOOSELY),
    (GAME, "FLOATS", "share", *UNTRAINED),
    (GAME, "SPARE_LABELS", "labels", *UNTRAINED),
    (GAME, "NEARLY_ALL", "share of labels", *ALL_LABELS),
    (CHAIN, "WHOLE_ROW", "share of labels", "losses of 400 labels, log", partial(
        few_transitions, "log", 400, 24)),
    (CHAIN, "WHOLE_ROW", "share of labels", "losses of 400 labels, max_margin", partial(
        few_transitions, "max_margin", 400, 24)),
    (CUT, "SHARE", "edges / push", *MOVED),
    (DUAL, "FIRST_STEPS", "steps", *COUNTS),
    (DUAL, "SHRINK", "share of a box", *COUNTS),
    (DUAL, "KEPT", "labellings", "a count in 6 x 40, 2 labels", partial(counted, 1, 6, 40, 2, 0.9)),
    (DUAL, "PART", "nodes", "a count in 30 x 30, 3 labels", partial(counted, 1, 30, 30, 3, 0.5)),
    (FOREST, "LONG_AXIS", "places", "axis of 90", partial(displaced, 90)),
    (FOREST, "LONG_AXIS", "places", "axis of 180", partial(displaced, 180)),
    (SEARCH, "FORESTS", "moves", "expansions of 50 x 50, 5 labels", partial(
        labellings, "expansion", 2, 50, 50, 5, 0.7)),
    (SEARCH, "ROUNDS", "rounds", *ROUGH),
    (SEARCH, "LEAST_GAIN", "share", *ROUGH),
    (SEARCH, "FEW", "nodes", "best labellings of 24 x 24, 2 labels", partial(
        labellings, "auto", 2, 24, 24, 2, 1.0)),
    (RELAX, "LOCAL_ROUNDS", "rounds", *LP),
    (RELAX, "CHECK_BOUND_EVERY", "sweeps", *TRW),
    (RELAX, "DAMPED_AFTER", "sweeps", *TRW),
    (RELAX, "CHECK_BOUND_EVERY", "sweeps", *GRAPH_LOG),
    (RELAX, "SIDE_BY_SIDE", "numbers", *TRW),
    (RELAX, "SIDE_BY_SIDE", "numbers", *PAIRS_OF_ALL),
    (RELAX, "CHECK_EVERY", "iterations", *LP),
    (RELAX, "STALLED", "share", *GRAPH_FIT),
    (RELAX, "PRIMAL_STEP", "1 / spread", *LP),
    (RELAX, "PRIMAL_STEP", "1 / spread", *GRAPH_FIT),
    (RELAX, "RESTART", "share", *LP),
    (RELAX, "RESTART", "share", *GRAPH_FIT),
    (RELAX, "LP_ITERATIONS", "iterations", *LP),
    (RELAX, "LP_GAIN", "share", *LP),
    (RELAX, "FIRST_DOUBLING", "iterations", *LP),
    (RELAX, "TRW_TOL", "gap", *TRW),
    (RELAX, "TRW_SWEEPS", "sweeps", "marginals, strong pairs", partial(
        sum_products, "trw", 2, 12, 12, 3, 5.0)),
    (PERM, "SHARP", "temperatures", *SINKHORN),
    (PERM, "MAX_HALVINGS", "halvings", *SINKHORN),
    (PERM, "SEED_AFTER", "assignments", *ZERO_ONE),
    (PERM, "SEED_AFTER", "assignments", *RANKER),
    (PERM, "DENSE_SEED_AFTER", "assignments", *ANY_COST),
    (PERM, "INTERIOR_ITEMS", "items", "games of 24 items", partial(permutation_games, 3, 24, 4.0)),
    (PERM, "INTERIOR_ITEMS", "items", "games of 40 items", partial(permutation_games, 1, 40, 4.0)),
    (PERM, "DENSE_ITEMS", "items", *ANY_COST),
    (PERM, "DENSE_ITEMS", "items", "games of 20 items, any cost", partial(
        permutation_games, 1, 20, 3.0, "any")),
    (PERM, "TO_BOUNDARY", "share", *ZERO_ONE),
    (PERM, "PROJECTION_TOL", "probability", *PROX),
    (PERM, "PROJECTION_UPDATES", "updates", *PROX),
    (PERM, "LEAST_START", "probability", *PROX),
    (PERM, "RYSER_FRESH", "terms", "permanents of 15 rows", lambda: partial(
        permanent, np.random.default_rng(0).random((20, 15, 15)))),
    (ROOF, "MOST_ROUNDS", "rounds", *ROOFS),
    (ROOF, "MOST_SWEEPS", "sweeps", *ROOFS),
    (EXACT, "LINE", "entries", *TABLES),
    (EXACT, "FEW_LEFT", "nodes", *TABLES),
    (EXACT, "MOST_SEARCHED", "nodes", *TABLES),
    (EXACT, "STATES_PER_ENTRY", "states", "best labellings of 3 x 5", partial(
        labellings, "exact", 60, 3, 5, 2, 0.7)),
    (OUTPUTS, "SEED_AFTER", "calls", *GRAPH_GAMES),
    (GRAPH, "MAX_SWEEPS", "sweeps", *GRAPH_FIT),
    (GRAPH, "VISIT_ITERATIONS", "iterations", *GRAPH_FIT),
    (GRAPH, "BEST_ITERATIONS", "iterations", "6 grids 4 x 4, max_min", partial(
        graph_fit, "max_min", 6, (4, 4), 3, inference="lp")),
    (GRAPH, "BOUND_ITERATIONS", "iterations", *GRAPH_FIT),
    (GRAPH, "SOFT_SWEEPS", "sweeps", *GRAPH_LOG),
    (GRAPH, "VISIT_SLACK", "share", *GRAPH_FIT),
    (GRAPH, "SOFT_SLACK", "share", *GRAPH_LOG),
    (GRAPH, "WORK", "multiply-adds", *CUTS),
    (GRAPH, "CUT_COST", "multiply-adds", "20 grids 8 x 8, roof duality", partial(
        graph_fit, "max_margin", 20, (8, 8), 2, inference="lp")),
    (LOSS, "MAX_MIN_CALLS", "calls", *SMALL_ALPHA),
    (LOSS, "KEPT", "labellings", *LARGE_ALPHA),
    (LOSS, "KEPT", "labellings", *SMALL_ALPHA),
    (LOSS, "VISIT_CALLS", "calls", *SMALL_ALPHA),
    (LOSS, "BOUND_CALLS", "calls", *LARGE_ALPHA),
    (LOSS, "DENSE_VISITS", "visits", *RANKER),
    (LOSS, "VISIT_SLACK", "share", *SMALL_ALPHA),
    (LOSS, "VISIT_SLACK", "share", *LARGE_ALPHA),
    (LOSS, "BOUND_SLACK", "share", *SMALL_ALPHA),
    (LOSS, "RELAXATION", "share", *LOG),
    (LOSS, "FIRST_PROBABILITY", "odds", *LOG),
    (POSITIONS, "GRAM_LENGTH", "positions", "chains of 48", partial(sparse_fit, 80, 48)),
    (POSITIONS, "GRAM_LENGTH", "positions", "chains of 96", partial(sparse_fit, 40, 96)),
    (POSITIONS, "AHEAD", "positions", "chains of 48", partial(sparse_fit, 80, 48)),
    (POSITIONS, "CACHED", "weights", "chains of 48", partial(sparse_fit, 80, 48, 3000)),
    (POSITIONS, "SORTED_AT_ONCE", "entries", "chains of 96", partial(sparse_fit, 40, 96)),
    ("features._rows", "AT_ONCE", "values", "norms of rows", partial(norms, 20000, 50)),
    (KERNEL, "ROWS", "rows", "kernel of 1,000 x 3,000", partial(gaussians, 1000, 3000, 20)),
    (KERNEL, "COLUMNS", "columns", "kernel of 1,000 x 3,000", partial(gaussians, 1000, 3000, 20)),
    (KERNELS, "MANY_ROWS", "rows", "kernel, 700 rows", partial(kernel_fit, 700, 10)),
    (KERNELS, "MANY_ROWS", "rows", "kernel, 1,500 rows", partial(kernel_fit, 1500, 10)),
    (KERNELS, "FEW_FEATURES", "features", "kernel, 48 features", partial(kernel_fit, 1200, 48, 2)),
    (KERNELS, "FEW_FEATURES", "features", "kernel, 96 features", partial(kernel_fit, 1200, 96, 2)),
    (KERNELS, "CHUNK", "values", "kernel, 2,500 predictions", partial(kernel_predictions, 2500)),
    (KERNELS, "TILE", "rows", "check of 2,000 x 2,000", partial(symmetric, 2000)),
    (INPUT, "MOSTLY_ZERO", "share", "chains, 20 % non-zero", partial(dense_fit, 0.2)),
    (INPUT, "MOSTLY_ZERO", "share", "chains, 45 % non-zero", partial(dense_fit, 0.45)),
    (INPUT, "SHARE", "share", "L1, 20 % of columns out", l1_fit),
    (COMPLETIONS, "FIRST_TOL", "gap", *PARTIAL),
    (COMPLETIONS, "FIRST_ROUNDS", "rounds", *PARTIAL),
]


def around(value, unit):
    """Half and twice a value, or a probability with half and twice its odds."""
    if unit == "odds":
        odds = value / (1.0 - value)
        return 0.5 * odds / (1.0 + 0.5 * odds), 2.0 * odds / (1.0 + 2.0 * odds)
    if isinstance(value, int):
        return max(1, value // 2), 2 * value
    # shares end at one
    return 0.5 * value, min(1.0, 2.0 * value) if "share" in unit else 2.0 * value


def seconds(run, calls):
    start = time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - start) / calls


def ratios(room, name, unit, make, repeats):
    """The value, its seconds, and the ratios of seconds at half and at twice the value."""
    module = importlib.import_module(f"fastm4n.{room}")
    value = exchange(module, name)
    run, values = make(), (value, *around(value, unit))
    times = [[] for _ in values]
    calls = max(1, int(LEAST_SECONDS / seconds(run, 1)))
    try:
        for _ in range(repeats):
            for of_value, other in zip(times, values, strict=True):
                exchange(module, name, other)
                of_value.append(seconds(run, calls))
    finally:
        exchange(module, name, value)
    once, half, twice = map(np.median, times)
    return value, once, half / once, twice / once


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of rooms or names")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(describe(environment("scipy")) + "\n")
    rows = []
    with threadpool_limits(1):
        for room, name, unit, timed, make in CONSTANTS:
            if any(text in f"{room} {name}" for text in options.only):
                value, once, half, twice = ratios(room, name, unit, make, options.repeats)
                rows.append((
                    room, name, f"{value:g} {unit}", timed, f"{1000 * once:.0f}", f"{half:.2f}",
                    f"{twice:.2f}"))
                print(*rows[-1], sep=" | ", flush=True)
    print(table("Constants", ("room", "constant", "value", "timed", "ms", "half", "twice"), rows))


if __name__ == "__main__":
    main()
