"""The local polytope: bounds and points against linear programs, and fits over it."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.optimize import linprog
from scipy.sparse import block_diag, coo_array
from scipy.special import logsumexp, softmax

from fastm4n import Graphs, GraphTagger, MultiLabelClassifier
from fastm4n.features._positions import GraphFeatures
from fastm4n.inference._relaxations import spanning_forests
from fastm4n.inference.decomposition import maximise_relaxation, reweighted_marginals
from fastm4n.inference.graph import marginals, maximise
from fastm4n.losses import block_losses
from fastm4n.outputs._graph import DecompositionOutputs
from fastm4n.solvers import solve
from fastm4n.solvers.blocks._sweeps import Batch
from fastm4n.surrogates import make_surrogate


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def complete(n):
    return np.array(list(itertools.combinations(range(n), 2)))


def grid(rows, columns):
    number = np.arange(rows * columns).reshape(rows, columns)
    return np.vstack([
        np.c_[number[:, :-1].ravel(), number[:, 1:].ravel()],
        np.c_[number[1:].ravel(), number[:-1].ravel()]])


SHAPES = {
    "triangle": (3, complete(3), 3), "complete": (5, complete(5), 2), "grid": (6, grid(2, 3), 3),
    "cycle": (5, np.array([[0, 1], [2, 1], [2, 3], [4, 3], [0, 4]]), 2),
    "tree": (5, np.array([[0, 1], [2, 1], [1, 3]]), 3),
}


def polytope(n_nodes, edges, n_labels):
    """A and b of the local polytope {x >= 0: A x = b}, x = nodes and then edges."""
    n, k, E = n_nodes, n_labels, len(edges)
    rows, columns, signs = [], [], []
    for i in range(n):
        rows += [i] * k
        columns += range(i * k, i * k + k)
        signs += [1.0] * k
    count = n
    for e, ends in enumerate(edges):
        table = n * k + e * k * k + np.arange(k * k).reshape(k, k)
        for i, of_end in zip(ends, (table, table.T), strict=True):
            for a in range(k):
                rows += [count] * (k + 1)
                columns += [*of_end[a], i * k + a]
                signs += [1.0] * k + [-1.0]
                count += 1
    b = np.zeros(count)
    b[:n] = 1.0
    return coo_array((signs, (rows, columns)), shape=(count, n * k + E * k * k)).tocsr(), b


def relaxed(n_nodes, edges, n_labels, all_scores):
    """max_L of several graphs of one shape, by HiGHS: (n_graphs, n_numbers) to (n_graphs,)."""
    A, b = polytope(n_nodes, edges, n_labels)
    count = len(all_scores)
    found = linprog(
        -all_scores.ravel(), A_eq=block_diag([A] * count, format="csr"), b_eq=np.tile(b, count))
    return np.sum(found.x.reshape(count, -1) * all_scores, axis=1)


def labellings(n_nodes, edges, n_labels):
    """phi of every labelling."""
    every = np.array(list(itertools.product(range(n_labels), repeat=n_nodes)))
    eye = np.eye(n_labels)
    pairs = eye[every[:, edges[:, 0]], :, None] * eye[every[:, edges[:, 1]], None, :]
    return every, np.hstack([eye[every].reshape(len(every), -1), pairs.reshape(len(every), -1)])


def check_point(point, edges, atol=1e-12):
    nodes, tables = point.nodes, point.edges
    assert nodes.min() >= 0 and tables.min(initial=0) >= 0
    np.testing.assert_allclose(nodes.sum(axis=1), 1.0, atol=atol)
    np.testing.assert_allclose(tables.sum(axis=2), nodes[edges[:, 0]], atol=atol)
    np.testing.assert_allclose(tables.sum(axis=1), nodes[edges[:, 1]], atol=atol)


@pytest.mark.parametrize("strength", [0.3, 3.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_meet_at_the_optimum_of_the_linear_program(shape, strength, rng):
    n, edges, k = SHAPES[shape]
    every, phi = labellings(n, edges, k)
    count = 50
    scores = rng.normal(size=(count, phi.shape[1])) * np.where(
        np.arange(phi.shape[1]) < n * k, 1.0, strength)
    exact = (scores @ phi.T).max(axis=1)
    optima = relaxed(n, edges, k, scores)
    assert np.all(optima >= exact - 1e-9)
    for score, best, optimum in zip(scores, exact, optima, strict=True):
        nodes, tables = score[:n * k].reshape(n, k), score[n * k:].reshape(-1, k, k)
        tol = 1e-4 * strength
        found = maximise_relaxation(nodes, edges, tables, tol=tol)
        assert found.value <= best + 1e-9
        assert found.lower <= optimum + 1e-9
        assert found.upper >= optimum - 1e-9
        assert found.upper - found.lower <= tol
        check_point(found, edges)
        value = np.sum(nodes * found.nodes) + np.sum(tables * found.edges)
        assert value == pytest.approx(found.lower, abs=1e-9)
        of_labels = nodes[np.arange(n), found.labels].sum() + tables[
            np.arange(len(edges)), found.labels[edges[:, 0]], found.labels[edges[:, 1]]].sum()
        assert of_labels == pytest.approx(found.value, abs=1e-9)
        # sweeps alone, from any messages, have a bound, too
        start = rng.normal(size=found.messages.shape)
        rough = maximise_relaxation(
            nodes, edges, tables, max_sweeps=1, max_iterations=0, messages=start)
        assert rough.upper >= optimum - 1e-9
        assert rough.value <= best + 1e-9
        # and where it ended it goes on
        again = maximise_relaxation(
            nodes, edges, tables, max_sweeps=1, max_iterations=0, messages=found.messages)
        assert optimum - 1e-9 <= again.upper <= found.upper + 1e-9


@pytest.mark.parametrize(("find", "options", "said"), [
    # without a sweep there would be no bounds
    (maximise_relaxation, {"max_sweeps": 0}, "max_sweeps must be an integer >= 1, got 0"),
    (reweighted_marginals, {"max_sweeps": 0}, "max_sweeps must be an integer >= 1, got 0"),
    (maximise_relaxation, {"max_iterations": -1}, "max_iterations must be an integer >= 0"),
    (maximise_relaxation, {"tol": np.nan}, "tol must be a finite number >= 0"),
    (maximise_relaxation, {"messages": np.zeros((1, 2))}, r"messages .* shape \(2, 2\).*\(1, 2\)"),
    (maximise_relaxation, {"messages": np.full((2, 2), np.nan)}, "messages must be finite"),
])
def test_options_that_make_no_sense(find, options, said):
    with pytest.raises(ValueError, match=said):
        find(np.zeros((2, 2)), [[0, 1]], [1.0], **options)


@pytest.mark.parametrize("sign", ["attractive", "any"])
def test_one_number_an_edge_is_its_table(sign, rng):
    n, edges, k = 6, complete(6), 4
    for _ in range(50):
        nodes, numbers = rng.normal(size=(n, k)), rng.normal(size=len(edges))
        if sign == "attractive":
            numbers = np.abs(numbers)
        tables = numbers[:, None, None] * np.eye(k)
        one = maximise_relaxation(nodes, edges, numbers, tol=1e-5)
        other = maximise_relaxation(nodes, edges, tables, tol=1e-5)
        assert one.lower <= other.upper and other.lower <= one.upper
        assert max(one.upper - one.lower, other.upper - other.lower) <= 1e-5


def test_a_frustrated_triangle():
    found = maximise_relaxation(np.zeros((3, 2)), complete(3), -np.ones(3), tol=1e-6)
    assert found.value == -1.0
    assert -1e-6 <= found.lower <= 0.0 <= found.upper <= 1e-6
    np.testing.assert_allclose(found.nodes, 0.5, atol=1e-3)


def test_nodes_may_have_fewer_labels(rng):
    n, edges, k = 4, complete(4), 3
    limits = np.array([1, 3, 2, 3])
    every, phi = labellings(n, edges, k)
    kept = np.all(every < limits, axis=1)
    for _ in range(100):
        score = rng.normal(size=phi.shape[1])
        nodes, tables = score[:n * k].reshape(n, k), score[n * k:].reshape(-1, k, k)
        found = maximise_relaxation(
            [row[:limit] for row, limit in zip(nodes, limits, strict=True)], edges,
            [table[:limits[i], :limits[j]] for table, (i, j) in zip(tables, edges, strict=True)],
            tol=1e-5)
        assert np.all(found.labels < limits)
        best = (phi[kept] @ score).max()
        assert found.value <= best + 1e-9 and found.upper >= best - 1e-9
        assert np.all(found.nodes[np.arange(k) >= limits[:, None]] == 0)
        # the same with labels that cannot be
        barred = np.where(np.arange(k) < limits[:, None], nodes, -np.inf)
        other = maximise_relaxation(barred, edges, tables, tol=1e-5)
        assert other.lower <= found.upper and found.lower <= other.upper
        assert np.all(other.labels < limits)


def test_what_cannot_be():
    apart = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)
    # two nodes that may not be alike, of which one has one label only
    found = maximise_relaxation([[0.0, -np.inf], [5.0, 1.0]], [[0, 1]], [apart])
    assert found.labels.tolist() == [0, 1] and found.value == 1.0
    assert found.upper == pytest.approx(1.0)
    nothing = maximise_relaxation(np.full((2, 2), -np.inf), [[0, 1]], [apart])
    assert nothing.upper == -np.inf
    # three nodes that may not be alike: no labelling, but a point of the polytope
    odd = maximise_relaxation(np.zeros((3, 2)), complete(3), [apart] * 3)
    assert odd.value == -np.inf and odd.upper >= 0.0


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_scores_of_any_size(scale, rng):
    n, edges, k = 5, complete(5), 2
    nodes, tables = scale * rng.normal(size=(n, k)), 2 * scale * rng.normal(size=(10, k, k))
    found = maximise_relaxation(nodes, edges, tables, tol=1e-4 * scale)
    assert found.upper - found.lower <= 1e-4 * scale
    assert found.upper >= relaxed(
        n, edges, k, np.concatenate([nodes.ravel(), tables.ravel()])[None] / scale)[0] * scale * (
            1 - 1e-12)


@pytest.mark.parametrize("method, largest", [("lp", 1e300), ("trw", 1e300), ("lp", 1e154)])
@pytest.mark.filterwarnings("error")
def test_bounds_of_huge_scores(method, largest, rng):
    edges = complete(4)
    for _ in range(20):
        nodes = largest * rng.normal(size=(4, 3))
        tables = largest * rng.normal(size=(len(edges), 3, 3))
        best = maximise(nodes, edges, tables, method="exact").value
        if method == "trw":
            assert marginals(nodes, edges, tables, method="trw").log_partition >= best
            continue
        found = maximise(nodes, edges, tables, method="lp")
        assert found.value <= best * (1 + 1e-12) <= found.bound * (1 + 1e-9)
        assert found.exact <= (found.value >= best * (1 - 1e-9))


@pytest.mark.parametrize("solve", [
    lambda *given: maximise(*given, method="lp"), lambda *given: marginals(*given, method="trw"),
    maximise_relaxation, reweighted_marginals])
@pytest.mark.filterwarnings("error")
def test_scores_whose_sum_overflows(solve):
    with pytest.raises(ValueError, match="the sum of its scores overflows"):
        solve([[1.7e308, -1.7e308]] * 3, complete(3), np.full((3, 2, 2), 1.7e308))


def test_small_graphs():
    alone = maximise_relaxation([[1.0, 3.0, 2.0]], np.zeros((0, 2)), np.zeros((0, 3, 3)))
    assert alone.labels.tolist() == [1] and alone.value == 3.0
    assert alone.upper == pytest.approx(3.0)
    apart = maximise_relaxation(np.eye(3), np.zeros((0, 2)), np.zeros(0))
    assert apart.labels.tolist() == [0, 1, 2] and apart.upper == pytest.approx(3.0)
    none = maximise_relaxation(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0))
    assert none.labels.size == 0 and none.upper == 0.0


def test_public_functions(rng):
    n, edges, k = SHAPES["complete"]
    every, phi = labellings(n, edges, k)
    n_exact = 0
    for _ in range(100):
        score = rng.normal(size=phi.shape[1])
        nodes, tables = score[:n * k].reshape(n, k), score[n * k:].reshape(-1, k, k)
        found = maximise(nodes, edges, tables, method="lp")
        best = (phi @ score).max()
        assert found.method == "lp"
        assert found.value <= best + 1e-9 and best <= found.bound + 1e-12
        if found.exact:
            n_exact += 1
            assert found.value == pytest.approx(best)
            np.testing.assert_array_equal(found.labels, every[(phi @ score).argmax()])
        soft = marginals(nodes, edges, tables, method="trw")
        assert not soft.exact and soft.log_partition >= logsumexp(phi @ score)
        np.testing.assert_allclose(soft.edges.sum(axis=2), soft.nodes[edges[:, 0]], atol=1e-12)
    assert 20 < n_exact < 100
    numbers = rng.normal(size=len(edges))
    same = marginals(np.zeros((n, k)), edges, numbers, method="trw")
    table = marginals(np.zeros((n, k)), edges, numbers[:, None, None] * np.eye(k), method="trw")
    np.testing.assert_allclose(same.edges, np.trace(table.edges, axis1=1, axis2=2), atol=1e-9)
    with pytest.raises(ValueError, match="scores of -inf"):
        marginals([[0.0, -np.inf], [0.0, 0.0]], [[0, 1]], [1.0], method="trw")


# ------------------------------------------------------------------ reweighted sum-product


@pytest.mark.parametrize("shape", SHAPES)
def test_forests_span_and_cover(shape):
    n, edges, _ = SHAPES[shape]
    forests, shares = spanning_forests(n, edges)
    counts = np.zeros(len(edges))
    sizes = set()
    for forest in forests:
        reached = set(range(n)) - {int(edges[end // 2][end % 2]) for end in forest}
        for end in forest:
            # parents come first
            assert int(edges[end // 2][1 - end % 2]) in reached
            child = int(edges[end // 2][end % 2])
            assert child not in reached
            reached.add(child)
            counts[end // 2] += 1
        assert reached == set(range(n))
        sizes.add(len(forest))
    assert len(sizes) == 1
    np.testing.assert_allclose(counts / len(forests), shares)
    assert shares.min() > 0


def mean_entropy(x, n, edges, shares, k):
    def entropy(p):
        return -np.sum(p * np.log(np.maximum(p, 1e-300)))
    nodes, tables = x[:n * k].reshape(n, k), x[n * k:].reshape(-1, k, k)
    of_node = np.array([entropy(p) for p in nodes])
    return of_node.sum() + sum(
        r * (entropy(q) - of_node[i] - of_node[j])
        for r, q, (i, j) in zip(shares, tables, edges, strict=True))


@pytest.mark.parametrize("shape", SHAPES)
def test_reweighted_bounds_the_log_partition(shape, rng):
    n, edges, k = SHAPES[shape]
    _, phi = labellings(n, edges, k)
    for strength in (0.5, 3.0) * 20:
        score = rng.normal(size=phi.shape[1])
        score[n * k:] *= strength
        nodes, tables = score[:n * k].reshape(n, k), score[n * k:].reshape(-1, k, k)
        found = reweighted_marginals(nodes, edges, tables, tol=1e-6)
        log_partition = logsumexp(phi @ score)
        assert found.upper >= log_partition - 1e-12
        check_point(found, edges)
        x = np.concatenate([found.nodes.ravel(), found.edges.ravel()])
        value = x @ score + mean_entropy(x, n, edges, found.edge_shares, k)
        assert found.lower == pytest.approx(value, abs=1e-9)
        assert found.upper - found.lower <= 0.02 * (1 + strength)
        if shape == "tree":
            assert found.upper == pytest.approx(log_partition, abs=1e-9)
            np.testing.assert_allclose(x, softmax(phi @ score) @ phi, atol=1e-9)


@pytest.mark.parametrize("shape", ["triangle", "cycle"])
def test_reweighted_is_the_maximum_over_the_polytope(shape, rng):
    n, edges, k = SHAPES[shape]
    A, b = polytope(n, edges, k)
    score = rng.normal(size=A.shape[1])
    found = reweighted_marginals(
        score[:n * k].reshape(n, k), edges, score[n * k:].reshape(-1, k, k), tol=1e-9)
    # Newton's method within the polytope's affine hull, each step cut to stay inside
    hull = null_space(A.toarray())
    x = np.concatenate([np.full(n * k, 1 / k), np.full(len(edges) * k * k, 1 / k**2)])
    factors = np.concatenate([
        1 - np.bincount(edges.ravel(), np.repeat(found.edge_shares, 2), minlength=n).repeat(k),
        found.edge_shares.repeat(k * k)])
    for _ in range(60):
        slope = hull.T @ (score - factors * (np.log(x) + 1))
        step = hull @ np.linalg.solve(hull.T @ (hull * (factors / x)[:, None]), slope)
        x = x + min(1.0, 0.5 / np.max(-step / x)) * step
    best = x @ score + mean_entropy(x, n, edges, found.edge_shares, k)
    assert np.abs(slope).max() <= 1e-8
    assert found.lower - 1e-9 <= best <= found.upper + 1e-9
    assert found.upper - found.lower <= 1e-7


# --------------------------------------------------------------------------------- fits


class Problem:
    """Graphs of one shape, with a feature vector for each node and each edge."""

    def __init__(self, rng, shape="triangle", n_graphs=6, pairs="tables", by_type=False):
        self.n, self.links, self.k = SHAPES[shape]
        self.m, self.E, self.pairs = n_graphs, len(self.links), pairs
        self.y = rng.integers(self.k, size=(self.m, self.n))
        self.X = rng.normal(size=(self.m, self.n, 3))
        self.X[:, :, 0] += self.y
        self.Z = rng.normal(size=(self.m, self.E, 2))
        self.by_type = by_type
        if by_type:
            self.Z = np.ones((self.m, self.E, 1))

    def outputs(self, cls=DecompositionOutputs):
        return cls(
            self.y.ravel(), np.full(self.m, self.n), np.tile(self.links, (self.m, 1)),
            np.full(self.m, self.E), 1.0 - np.eye(self.k), pairs=self.pairs,
            edge_types=np.zeros(self.m * self.E, dtype=int) if self.by_type else None)

    def features(self, outputs):
        counts = np.full(self.m, 1 if self.by_type else self.E)
        Z = np.ones((self.m, 1)) if self.by_type else self.Z.reshape(-1, 2)
        return GraphFeatures(
            np.ascontiguousarray(self.X.reshape(-1, 3)), np.arange(self.m) * self.n,
            outputs.layout, 0.0, np.ascontiguousarray(Z),
            np.arange(self.m) * counts[0], counts, 0.0, self.pairs)

    def fit(self, surrogate, alpha=0.05, tol=1e-3, cls=DecompositionOutputs, **more):
        outputs = self.outputs(cls)
        features = self.features(outputs)
        loss = make_surrogate(surrogate, outputs)
        solution = solve(
            loss, features, np.full(self.m, 1 / self.m), alpha=alpha, tol=tol, max_iter=2000,
            seed=0, keep_best=False, **more)
        return solution, outputs

    def points(self, solution, outputs):
        """Dual points as (nodes, tables or numbers), of each graph."""
        stride, k = outputs.layout.stride, self.k
        blocks = np.asarray(solution.mu).reshape(self.m, -1)
        nodes = blocks[:, :self.n * stride].reshape(self.m, self.n, stride)[:, :, :k]
        more = blocks[:, self.n * stride:]
        if self.pairs == "equal":
            return nodes, more.reshape(self.m, 1 if self.by_type else self.E, -1)[:, :, 0]
        return nodes, more.reshape(self.m, -1, k, stride)[..., :k]

    def truth(self):
        eye = np.eye(self.k)
        nodes = eye[self.y]
        tables = (eye[self.y[:, self.links[:, 0]]][..., :, None]
                  * eye[self.y[:, self.links[:, 1]]][..., None, :])
        return nodes, tables

    def weights(self, nodes, tables, alpha):
        """w of a dual point with tables for each edge."""
        true_nodes, true_tables = self.truth()
        W = np.einsum("mnk,mnd->kd", true_nodes - nodes, self.X) / (alpha * self.m)
        V = np.einsum("mekl,med->kld", true_tables - tables, self.Z) / (alpha * self.m)
        return W, V

    def scores(self, W, V):
        return self.X @ W.T, np.einsum("kld,med->mekl", V, self.Z)

    def relaxed_loss(self, W, V, alpha):
        """P_L(w) of max-margin, by linear programs."""
        nodes, tables = self.scores(W, V)
        true_nodes, true_tables = self.truth()
        flat = np.hstack([(nodes + 1 - true_nodes).reshape(self.m, -1),
                          tables.reshape(self.m, -1)])
        of_truth = np.sum(nodes * true_nodes) + np.sum(tables * true_tables)
        return (relaxed(self.n, self.links, self.k, flat).sum() - of_truth) / self.m + (
            alpha / 2 * (np.sum(W**2) + np.sum(V**2)))


@pytest.mark.parametrize("alpha", [0.5, 0.1])
@pytest.mark.parametrize("shape", ["triangle", "complete"])
def test_max_margin_is_certified_over_the_polytope(shape, alpha, rng):
    problem = Problem(rng, shape)
    solution, outputs = problem.fit("max_margin", alpha, tol=5e-3)
    assert solution.converged
    nodes, tables = problem.points(solution, outputs)
    np.testing.assert_allclose(tables.sum(axis=3), nodes[:, problem.links[:, 0]], atol=1e-9)
    np.testing.assert_allclose(tables.sum(axis=2), nodes[:, problem.links[:, 1]], atol=1e-9)
    assert nodes.min() >= 0 and tables.min() >= -1e-15
    W, V = problem.weights(nodes, tables, alpha)
    dual = np.sum(nodes * (1 - problem.truth()[0])) / problem.m - (
        alpha / 2 * (np.sum(W**2) + np.sum(V**2)))
    primal = problem.relaxed_loss(W, V, alpha)
    assert dual <= primal + 1e-9
    assert primal - dual <= solution.certificate.gap + 1e-9
    assert solution.certificate.gap <= 5e-3


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_threads_and_states_change_nothing(surrogate, rng):
    problem = Problem(rng, "grid", n_graphs=8)
    tol = 1e-3 if surrogate == "max_margin" else 0.3
    one, outputs = problem.fit(surrogate, tol=tol)
    two, _ = problem.fit(surrogate, tol=tol, n_jobs=2)
    np.testing.assert_array_equal(one.mu, two.mu)
    kept = outputs.state()
    assert np.any(kept["messages"] != 0)
    fresh = problem.outputs()
    fresh.restore(kept)
    np.testing.assert_array_equal(fresh.state()["messages"], kept["messages"])


@pytest.mark.parametrize("pairs", ["tables", "equal"])
def test_edges_that_share_scores(pairs, rng):
    problem = Problem(rng, "grid", pairs=pairs, by_type=True)
    alpha = 0.1
    solution, outputs = problem.fit("max_margin", alpha, tol=5e-3)
    assert solution.converged
    nodes, more = problem.points(solution, outputs)
    true_nodes, true_tables = problem.truth()
    if pairs == "equal":
        of_truth = np.trace(true_tables, axis1=2, axis2=3).sum(axis=1)
        number = (of_truth - more[:, 0]).sum() / (alpha * problem.m)
        V, square = (number * np.eye(problem.k))[..., None], number**2
    else:
        V = (true_tables.sum(axis=1) - more[:, 0]).sum(axis=0)[..., None] / (alpha * problem.m)
        square = np.sum(V**2)
    W = problem.weights(nodes, true_tables, alpha)[0]
    dual = np.sum(nodes * (1 - true_nodes)) / problem.m - (
        alpha / 2 * (np.sum(W**2) + square))
    primal = problem.relaxed_loss(W, V, alpha) + alpha / 2 * (square - np.sum(V**2))
    assert -1e-9 <= primal - dual <= solution.certificate.gap + 1e-9 <= 5e-3 + 1e-8


@pytest.mark.parametrize("shape", ["tree", "triangle"])
def test_log_bounds_the_likelihood(shape, rng):
    problem = Problem(rng, shape)
    alpha = 0.1
    solution, outputs = problem.fit("log", alpha, tol=1e-4)
    assert solution.converged
    nodes, tables = problem.points(solution, outputs)
    np.testing.assert_allclose(tables.sum(axis=3), nodes[:, problem.links[:, 0]], atol=1e-9)
    W, V = problem.weights(nodes, tables, alpha)
    _, phi = labellings(problem.n, problem.links, problem.k)
    shares = spanning_forests(problem.n, problem.links)[1]
    squares = alpha / 2 * (np.sum(W**2) + np.sum(V**2))
    node_scores, edge_scores = problem.scores(W, V)
    flat = np.hstack(
        [node_scores.reshape(problem.m, -1), edge_scores.reshape(problem.m, -1)])
    true_nodes, true_tables = problem.truth()
    of_truth = np.sum(node_scores * true_nodes) + np.sum(edge_scores * true_tables)
    likelihood = (logsumexp(flat @ phi.T, axis=1).sum() - of_truth) / problem.m + squares
    points = np.hstack([nodes.reshape(problem.m, -1), tables.reshape(problem.m, -1)])
    dual = sum(mean_entropy(x, problem.n, problem.links, shares, problem.k) for x in points)
    dual = dual / problem.m - squares
    if shape == "tree":
        # the exact CRF
        assert -1e-9 <= likelihood - dual <= 1e-4 + 1e-9
    else:
        assert likelihood <= dual + solution.certificate.gap + 1e-9
    bounds = [reweighted_marginals(s, problem.links, t, tol=1e-9).upper
              for s, t in zip(node_scores, edge_scores, strict=True)]
    primal = (sum(bounds) - of_truth) / problem.m + squares
    assert -1e-7 <= primal - dual <= solution.certificate.gap + 1e-7


def test_heights_of_marginals_that_are_inexact(rng):
    """A dual value is that of the marginals, however far they are from the optimum."""
    problem = Problem(rng, "grid")
    outputs = problem.outputs()
    features, loss = problem.features(outputs), make_surrogate("log", outputs)
    features.restore({
        name: 3.0 * rng.normal(size=array.shape) for name, array in features.state().items()})
    batch = Batch(loss, features, np.full(problem.m, 1 / problem.m))
    shares = spanning_forests(problem.n, problem.links)[1]
    exact, _ = batch.evaluate()
    fresh = problem.outputs()
    batch = Batch(make_surrogate("log", fresh), features, np.full(problem.m, 1 / problem.m))
    losses, heights = batch.evaluate(1e6)
    nodes, tables = problem.points(SimpleNamespace(mu=batch.mu), fresh)
    for b, height in enumerate(heights):
        point = np.concatenate([nodes[b].ravel(), tables[b].ravel()])
        entropy = mean_entropy(point, problem.n, problem.links, shares, problem.k)
        assert height == pytest.approx(entropy, abs=1e-9)
    # they were inexact
    assert np.max(losses - exact) > 1e-3 and np.all(losses >= exact - 1e-9)


def test_log_from_messages_of_larger_scores(rng):
    """Their rounding is not in the bound."""
    edges = complete(4)
    outputs = DecompositionOutputs(
        np.zeros(400, dtype=int), np.full(100, 4), np.tile(edges, (100, 1)), np.full(100, 6),
        1.0 - np.eye(2))
    loss = make_surrogate("log", outputs)
    scores = rng.normal(size=(2, outputs.layout.n_numbers))
    block_losses(loss, 1e9 * scores[0])
    upper = block_losses(loss, 1e-3 * scores[1]).upper
    _, phi = labellings(4, edges, 2)
    of_graph = 1e-3 * scores[1].reshape(100, -1)
    exact = logsumexp(of_graph @ phi.T, axis=1) - of_graph @ phi[0]
    assert np.all(upper >= exact - 1e-14)


def test_log_needs_tables_of_edges(rng):
    problem = Problem(rng, pairs="equal")
    with pytest.raises(ValueError, match="pairs='tables' and edge_types=None, not pairs='equal'"):
        problem.fit("log")
    with pytest.raises(ValueError, match="share scores by type"):
        Problem(rng, by_type=True).fit("log")


def max_min_optima(n, edges, k, all_scores, costs, weights):
    """max_L <scores, mu> + sum_i weights_i min_j (costs' p_i)_j of several graphs, by HiGHS."""
    A, b = polytope(n, edges, k)
    # one more number for each node, below the expected costs of all answers
    below = np.zeros((n * k, A.shape[1] + n))
    for i in range(n):
        below[i * k : (i + 1) * k, i * k : (i + 1) * k] = -costs.T
        below[i * k : (i + 1) * k, A.shape[1] + i] = 1.0
    A = np.hstack([A.toarray(), np.zeros((A.shape[0], n))])
    bounds = [(0, None)] * (A.shape[1] - n) + [(None, None)] * n
    return np.array([
        -linprog(
            -np.append(scores, weights), A_ub=below, b_ub=np.zeros(n * k), A_eq=A, b_eq=b,
            bounds=bounds).fun
        for scores in all_scores])


@pytest.mark.parametrize("shape", ["triangle", "complete", "grid", "cycle"])
@pytest.mark.parametrize("cost", ["zero_one", "absolute", "any"])
@pytest.mark.parametrize("strength", [0.1, 1.0, 10.0])
def test_max_min_bounds_meet_at_the_optimum(shape, cost, strength, rng):
    n, edges, k = SHAPES[shape]
    count, E = 12, len(edges)
    costs = {
        "zero_one": 1.0 - np.eye(k),
        "absolute": np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float),
        "any": rng.uniform(size=(k, k)) * (1.0 - np.eye(k))}[cost]
    y = rng.integers(k, size=(count, n))
    weights = rng.uniform(0.5, 2.0, size=(count, n)) * (rng.uniform(size=(count, n)) < 0.8)
    outputs = DecompositionOutputs(
        y.ravel(), np.full(count, n), np.tile(edges, (count, 1)), np.full(count, E), costs,
        part_weights=weights.ravel())
    loss = make_surrogate("max_min", outputs)
    nodes = strength * rng.normal(size=(count, n, k))
    tables = strength * rng.normal(size=(count, E, k, k))
    stride = outputs.layout.stride
    flat = np.concatenate([
        np.pad(nodes, ((0, 0), (0, 0), (0, stride - k))).reshape(count, -1),
        np.pad(tables, ((0, 0), (0, 0), (0, 0), (0, stride - k))).reshape(count, -1)], axis=1)
    found = block_losses(loss, flat.ravel(), tol=1e-6 * strength)
    optima = [
        max_min_optima(n, edges, k, [np.append(a, b)], costs, w)[0]
        for a, b, w in zip(nodes, tables, weights, strict=True)]
    of_truth = nodes[np.arange(count)[:, None], np.arange(n), y].sum(axis=1) + tables[
        np.arange(count)[:, None], np.arange(E), y[:, edges[:, 0]], y[:, edges[:, 1]]].sum(axis=1)
    losses = np.array(optima) - of_truth
    slack = 1e-9 * (1.0 + np.abs(optima))
    assert np.all(found.value <= losses + slack) and np.all(found.upper >= losses - slack)
    np.testing.assert_allclose(found.upper, losses, atol=1e-4 * (1.0 + strength))


def test_max_min_is_certified(rng):
    # trees: the relaxation is exact
    problem = Problem(rng, "tree", n_graphs=4)
    solution, _ = problem.fit("max_min", 0.1, tol=5e-3)
    assert solution.converged and solution.certificate.gap <= 5e-3


@pytest.mark.parametrize("cost", ["zero_one", "absolute"])
def test_integrality_gaps_of_trees_are_within_tolerance(cost, rng):
    """Mixtures of labellings are as good as the larger polytope, which has no others."""
    images = [np.eye(3)[rng.integers(3, size=(1, 8))] for _ in range(5)]
    X = Graphs.from_grid([image + rng.normal(0, 1.0, image.shape) for image in images])
    y = [image.argmax(axis=2).ravel() for image in images]
    for tol in (1e-2, 1e-4):
        tagger = GraphTagger(
            "max_min", alpha=0.05, inference="lp", cost=cost, tol=tol, random_state=0).fit(X, y)
        assert tagger.oracle_ == "decomposition" and tagger.relative_gap_ <= tol
        error = 0.1 * tagger.duality_gap_ / tagger.relative_gap_ * tol
        assert 0.0 <= tagger.integrality_gap_ <= 2.0 * error


def test_taggers_bound_those_that_are_exact(rng):
    y = [rng.integers(3, size=(3, 3)) for _ in range(6)]
    X = Graphs.from_grid([np.eye(3)[labels] + rng.normal(0, 0.7, (3, 3, 3)) for labels in y])
    truth = [labels.ravel() for labels in y]
    for surrogate in ("max_margin", "log"):
        fits = [
            GraphTagger(surrogate, alpha=0.1, inference=inference, tol=1e-3, random_state=0).fit(
                X, truth) for inference in ("exact", "lp")]
        exact, lp = fits
        assert lp.oracle_ == "decomposition" and lp.relative_gap_ <= 1e-3
        # the objective over the larger polytope is nowhere below the exact one
        assert lp.primal_objective_ >= exact.primal_objective_ - exact.duality_gap_
        if surrogate == "log":
            for nodes in lp.predict_marginals(X):
                np.testing.assert_allclose(nodes.sum(axis=1), 1.0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n, policy", [(60, "quasi_newton"), (400, "line_search")])
def test_solvers_of_conditional_random_fields(n, policy):
    """Passes over few graphs are many, and those over many graphs are few."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    Y = (X @ rng.normal(size=(3, 6)) + rng.normal(size=(n, 6)) > 0).astype(int)
    model = MultiLabelClassifier(
        "log", graph="complete", inference="lp", max_iter=1, random_state=0).fit(X, Y)
    assert set(model.history_["policy"]) == {policy}
