"""Unlabelled nodes as hidden ones and hidden states of labels, against all labellings."""

import itertools
import json
import pickle

import matplotlib
import numpy as np
import pytest
from comparisons import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp
from table import quadratic_program

from fastm4n import (
    CountFactor,
    CuttingPlanes,
    Graphs,
    GraphTagger,
    OutOfCore,
    Sequences,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.cli import main
from fastm4n.plotting import EdgeWeightDisplay
from fastm4n.research import SoftGraphTagger
from fastm4n.solvers.base import Options
from fastm4n.solvers.monitor import checkpointing
from fastm4n.tasks.base import Memory, Partition
from fastm4n.tasks.completions import complete
from fastm4n.tasks.graphs import GraphTask

SURROGATES = ("log", "max_margin", "max_min")
EDGES = {
    "forest": [[(0, 1), (1, 2)], [(0, 1)], [(2, 0), (2, 1)], [(0, 1)], []],
    "exact": [[(0, 1), (1, 2), (2, 0)], [(0, 1)], [(0, 1), (1, 2), (0, 2)], [(0, 1)], []],
}
EDGES["lp"] = EDGES["exact"]
# parameters, and which nodes of y are hidden
KINDS = {
    "nodes": ({"unlabelled": "hidden"}, "some"),
    "states": ({"hidden_states": {1: 2}}, None),
    "both": ({"unlabelled": "hidden", "hidden_states": 2}, "some"),
    "type": ({"unlabelled": "hidden", "classes": {0: [0, 1], 1: [7, 8]}}, "type"),
}
TOL = 1e-3


def graphs(edges="forest", hidden="some", seed=0, weights=False):
    """Five small graphs of two features, and labels 0 and 1 of which some are -1."""
    rng = np.random.default_rng(seed)
    edges = EDGES[edges]
    sizes = [3, 2, 3, 2, 1]
    n = sum(sizes)
    y = np.arange(n) % 2
    features = rng.normal(size=(n, 2)) + 2.0 * y[:, np.newaxis] * rng.choice([-1, 1], (n, 1))
    types = np.array([0, 1, 0, 0, 1, 0, 1, 0, 0, 1, 0])
    if hidden == "some":
        y[[1, 4, 6]] = -1
    elif hidden == "type":
        y[types == 1] = -1
    offsets = np.append(0, np.cumsum(sizes))
    X = Graphs(
        features, np.array(sum(edges, [])), offsets, np.append(0, np.cumsum([*map(len, edges)])),
        node_types=types if hidden == "type" else None,
        node_weights=rng.uniform(0.5, 2.0, n) if weights else None)
    return X, np.split(y, offsets[1:-1])


class Written:
    """The problem of a fit without features of edges, all labellings written out."""

    def __init__(self, tagger, X, y):
        self.tagger, self.surrogate, self.alpha = tagger, tagger.surrogate, tagger.alpha_
        row = tagger.node_classes_
        T, R = row.shape
        types = np.zeros(X.n_nodes, dtype=int) if X.node_types is None else X.node_types
        costs = np.asarray(tagger.cost_matrix_)
        names = tagger.classes_.tolist()
        self.R, self.p = R, np.full(len(X), 1.0 / len(X))
        self.phis, self.may, self.costs, self.answers, self.outputs = [], [], [], [], []
        for i, graph in enumerate(X):
            start = X.node_offsets[i]
            own = row[types[start : start + len(graph.node_features)]]
            outputs = np.array(list(itertools.product(*(np.flatnonzero(r >= 0) for r in own))))
            known = np.array([names.index(label) if label != -1 else -1 for label in y[i]])
            labels = own[np.arange(len(own)), outputs]
            counts = np.where(known >= 0, 1.0 if graph.node_weights is None else graph.node_weights, 0)
            phi = []
            for output in outputs:
                rows = np.eye(R)[output]
                spread = np.zeros((len(own), T * 2))
                kind = np.zeros((T, R))
                for node, t in enumerate(types[start : start + len(own)]):
                    spread[node, 2 * t : 2 * t + 2] = graph.node_features[node]
                    kind[t] += rows[node]
                table = np.zeros((R, R))
                for a, b in graph.edges:
                    table[output[a], output[b]] += 1.0
                if tagger.pairwise == "attractive":
                    table = np.trace(table)
                phi.append(np.concatenate([(rows.T @ spread).ravel(), kind.ravel(), np.ravel(table)]))
            self.phis.append(np.array(phi))
            self.outputs.append(outputs)
            self.may.append(((known < 0) | (labels == known)).all(axis=1))
            self.costs.append(costs[np.maximum(known, 0), labels] @ counts)
            answers = np.array(list(itertools.product(*(
                range(len(names)) if t < 0 or T == 1 else np.unique(r[r >= 0])
                for r, t in zip(own, known, strict=True)))))
            self.answers.append(np.array([
                costs[label[np.newaxis], answers] @ counts for label in labels]))

    def weights_of(self, fitted):
        return np.concatenate([np.ravel(fitted[name]) for name in (
            "coef_", "intercept_", "edge_intercept_")])

    def upper(self, i, v):
        """max_mu h(mu) + <v, mu>, v being the scores of all labellings."""
        if self.surrogate == "log":
            return logsumexp(v)
        if self.surrogate == "max_margin":
            return np.max(v + self.costs[i])
        answers, n = self.answers[i], len(v)
        found = linprog(
            np.append(-v, -1.0), A_ub=np.column_stack([-answers.T, np.ones(answers.shape[1])]),
            b_ub=np.zeros(answers.shape[1]), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)])
        return -found.fun

    def objective(self, w):
        """F, of hidden labels and states."""
        lower = logsumexp if self.surrogate == "log" else np.max
        return 0.5 * self.alpha * w @ w + sum(
            p * (self.upper(i, phi @ w) - lower((phi @ w)[may]))
            for i, (p, phi, may) in enumerate(zip(self.p, self.phis, self.may, strict=True)))

    def primal(self, w, means):
        """The convex objective of a round, whose targets have these means of phi."""
        return 0.5 * self.alpha * w @ w + sum(
            p * (self.upper(i, phi @ w) - mean @ w)
            for i, (p, phi, mean) in enumerate(zip(self.p, self.phis, means, strict=True)))

    def minimum(self, means):
        """The least primal, by a generic solver."""
        n, m = self.phis[0].shape[1], len(self.phis)
        linear = sum(p * mean for p, mean in zip(self.p, means, strict=True))
        if self.surrogate == "log":
            def value(w):
                found, slope = 0.5 * self.alpha * w @ w - linear @ w, self.alpha * w - linear
                for p, phi in zip(self.p, self.phis, strict=True):
                    v = phi @ w
                    found += p * logsumexp(v)
                    slope = slope + p * phi.T @ np.exp(v - logsumexp(v))
                return found, slope

            return self.primal(minimize(
                value, np.zeros(n), jac=True, method="L-BFGS-B",
                options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9}).x, means)
        # w, t of each graph, and the adversary's mixture
        is_game = self.surrogate == "max_min"
        counts = [a.shape[1] if is_game else 0 for a in self.answers]
        starts = n + m + np.cumsum([0, *counts])
        rows, sides, equal = [], [], np.zeros((m if is_game else 0, starts[-1]))
        for i, phi in enumerate(self.phis):
            row = np.zeros((len(phi), starts[-1]))
            row[:, :n], row[:, n + i] = phi, -1.0
            if is_game:
                row[:, starts[i] : starts[i + 1]] = self.answers[i]
                equal[i, starts[i] : starts[i + 1]] = 1.0
            rows.append(row)
            sides.append(np.zeros(len(phi)) if is_game else -self.costs[i])
        rows.append(-np.eye(starts[-1])[n + m :])
        sides.append(np.zeros(starts[-1] - n - m))
        moduli = np.zeros(starts[-1])
        moduli[:n] = self.alpha
        x = quadratic_program(
            moduli, np.concatenate([-linear, self.p, np.zeros(starts[-1] - n - m)]),
            np.concatenate(rows), np.concatenate(sides), equal, np.ones(len(equal)))
        return self.primal(x[:n], means)


def rounds(tagger, X, y, n):
    """The problem after n rounds, the solution, and the tagger with their weights."""
    tagger._check_parameters()
    task, pieces = tagger._task_class(tagger), Memory(X, y)
    pieces.may_be_partial = True
    problem = task.problem(pieces, one_alpha=True)
    options = Options(
        alpha=problem.alpha, tol=TOL, scale=problem.scale(), max_iter=2000, seed=0, n_jobs=1,
        verbose=0, callback=None, solver="auto", keep_dual=True)
    solution = complete(
        problem, problem.known, options, tol=1e-5, max_rounds=n, targets=problem.first)
    vars(tagger).update(problem.common, alpha_=problem.alpha)
    vars(tagger).update(task.fitted(problem, problem.alpha, solution.mu))
    return problem, solution


def means_of(problem, X, R, T, equal):
    """Means of phi of the targets, of each example."""
    outputs, blocks = problem.loss.outputs, problem.blocks
    layout = outputs.layout
    found = [None] * blocks.n_examples
    for i, b in zip(blocks.kept, blocks.block_of, strict=True):
        numbers = np.split(outputs.target, np.cumsum(layout.sizes())[:-1])[b]
        n = X.lengths[i]
        nodes = slice(X.node_offsets[i], X.node_offsets[i] + n)
        rows, table = np.split(numbers, [n * layout.stride])
        rows = rows.reshape(n, -1)[:, :R]
        kinds = np.zeros((n, T))
        kinds[np.arange(n), 0 if X.node_types is None else X.node_types[nodes]] = 1.0
        spread = (kinds[:, :, np.newaxis] * X.node_features[nodes, np.newaxis]).reshape(n, -1)
        table = table[0] if equal else table.reshape(R, -1)[:, :R]
        found[i] = np.concatenate([
            (rows.T @ spread).ravel(), (kinds.T @ rows).ravel(), np.ravel(table)])
    return found


def check_rounds(tagger, X, y, counts=(1, 3), slack=1e-7):
    """F is that of enumeration and falls, and the gap of each round bounds P - P*."""
    for n in counts:
        problem, solution = rounds(tagger, X, y, n)
        written = Written(tagger, X, y)
        w = written.weights_of(vars(tagger))
        found, history = solution.certificate, solution.history
        loose = slack + 5e-3 * found.gap * (tagger.surrogate == "max_min")
        assert abs(history["objective"].min() - written.objective(w)) <= loose
        assert (np.diff(history["objective"]) <= history["gap"][1:] + slack).all()
        T, R = tagger.node_classes_.shape
        means = means_of(problem, X, R, T, tagger.pairwise == "attractive")
        primal, least = written.primal(w, means), written.minimum(means)
        assert abs(found.primal - primal) <= loose
        assert found.dual <= least + slack and primal - least <= found.gap + slack
        assert found.gap <= TOL * problem.scale() * (1.0 + 1e-9)
    return history["objective"]


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("inference", ["forest", "exact"])
@pytest.mark.parametrize("kind", KINDS)
def test_rounds_against_enumeration(kind, inference, surrogate):
    parameters, hidden = KINDS[kind]
    X, y = graphs(inference, hidden, weights=kind == "both")
    check_rounds(GraphTagger(
        surrogate, alpha=0.05, inference=inference, random_state=0, **parameters), X, y)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_attractive_pairs(surrogate):
    """Cuts of hidden nodes are exact, and those of states are linear programs."""
    X, y = graphs("exact")
    tagger = GraphTagger(
        surrogate, alpha=0.05, pairwise="attractive", inference="min_cut", unlabelled="hidden",
        random_state=0)
    problem, solution = rounds(tagger, X, y, 3)
    written = Written(tagger, X, y)
    w = written.weights_of(vars(tagger))
    assert tagger.oracle_ == "min_cut" and tagger.edge_intercept_ >= 0.0
    assert_allclose(
        solution.history["objective"].min(), written.objective(w),
        atol=1e-7 + 5e-3 * solution.certificate.gap)
    with pytest.raises(ValueError, match="there are 4 labels, and cuts are for two"):
        tagger.set_params(hidden_states=2).fit(X, y)
    tagger.set_params(inference="lp", unlabelled="ignore").fit(X, y)
    assert tagger.oracle_ == "decomposition" and tagger.edge_intercept_.shape == (1,)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_relaxations(kind, surrogate):
    parameters, hidden = KINDS[kind]
    X, y = graphs("lp", hidden)
    tagger = GraphTagger(
        surrogate, alpha=0.05, inference="lp", tol=TOL, random_state=0, **parameters)
    _, solution = rounds(tagger, X, y, 4)
    objective, gap = solution.history["objective"], solution.history["gap"]
    assert (np.diff(objective) <= gap[1:] + 1e-6).all()
    written = Written(tagger, X, y)
    exact = written.objective(written.weights_of(vars(tagger)))
    if surrogate != "log":
        assert exact <= objective.min() + 1e-7
    tagger.fit(X, y)
    assert tagger.certified_for_ == "completions" and tagger.duality_gap_ >= 0.0


def test_rounds_take_the_solver_of_a_fit(monkeypatch):
    """Cutting planes for graphs of few weights, and steps of blocks if a fit is to be gone on from."""
    truth = np.zeros((6, 7, 7), dtype=int)
    truth[:, 2:5, 1:6] = 1
    X = Graphs.from_grid(truth + np.random.default_rng(0).normal(size=truth.shape), contrast=False)
    y = list(truth.reshape(6, -1))
    solved, solve = [], CuttingPlanes.solve
    monkeypatch.setattr(CuttingPlanes, "solve", lambda *args: solved.append(0) or solve(*args))
    tagger = GraphTagger(inference="lp", hidden_states={1: 2}, random_state=0)
    tagger.fit(X, y)
    n = len(tagger.history_["objective"])
    assert len(solved) == n >= 1 and tagger.n_iter_ == tagger.history_["pass"][-1]
    tagger.set_params(warm_start=True).fit(X, y)
    assert len(solved) == n and tagger.relative_gap_ <= 1e-2


def test_costs_of_labels():
    """A matrix is of labels, and the states of a label cost the same."""
    X, y = graphs("forest", "some", weights=True)
    y = [np.where(part >= 0, part + (np.arange(part.size) % 2) * part, -1) for part in y]
    cost = [[0.0, 1.0, 3.0], [0.5, 0.0, 2.0], [1.0, 0.25, 0.0]]
    for surrogate in ("max_margin", "max_min"):
        tagger = GraphTagger(
            surrogate, alpha=0.05, cost=cost, unlabelled="hidden", hidden_states={0: 2, 2: 2},
            random_state=0)
        check_rounds(tagger, X, y, (2,))


# ------------------------------------------------------------------------- public fits


def blobs(n=30, seed=0, share=0.0):
    """Chains of which label "a" is at two opposite places, with "b" between; some hidden."""
    rng = np.random.default_rng(seed)
    X, y, states = [], [], []
    for _ in range(n):
        codes = np.repeat(rng.integers(3, size=4), 3)
        X.append((
            np.array([[-3.0, 1.0], [0.0, 0.0], [3.0, 1.0]])[codes] + rng.normal(size=(12, 2)),
            np.column_stack([np.arange(11), np.arange(1, 12)])))
        y.append(["aba"[k] if rng.random() >= share else -1 for k in codes])
        states.append(codes)
    return X, y, states


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_states_that_help(surrogate):
    X, y, states = blobs()
    X = [(x[:, :1], edges) for x, edges in X]
    plain = GraphTagger(surrogate, pairwise="potts", random_state=0).fit(X[:20], y[:20])
    tagger = GraphTagger(
        surrogate, pairwise="potts", hidden_states={"a": 2}, random_state=0).fit(X[:20], y[:20])
    assert plain.certified_for_ == "data" and tagger.certified_for_ == "completions"
    assert tagger.score(X[20:], y[20:]) >= 0.95 > plain.score(X[20:], y[20:]) + 0.1
    found = tagger.predict_states(X[20:])
    assert_array_equal(
        tagger.classes_[tagger.node_classes_[0]][found.values], tagger.predict(X[20:]).values)
    # the states are the places
    agree = np.zeros((3, 3))
    np.add.at(agree, (found.values, np.concatenate(states[20:])), 1.0)
    assert agree.max(axis=0).sum() >= 0.9 * agree.sum()


@pytest.mark.filterwarnings("ignore:After 20 rounds of completions")
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_hidden_nodes_help(surrogate):
    """Few labels and many hidden nodes are better than few labels."""
    X, y, _ = blobs(60, seed=4)
    X = [(x + [2.0, 0.0], edges) for x, edges in X]
    y = [["a" if x > 3.5 else "b" for x in features[:, 0]] for features, _ in X]
    rng = np.random.default_rng(0)
    few = [[label if rng.random() < 0.1 else -1 for label in part] for part in y[:30]]
    options = {"tol": 1e-3, "max_iter": 3000, "random_state": 0}
    plain = GraphTagger(surrogate, **options).fit(X[:30], few)
    tagger = GraphTagger(surrogate, unlabelled="hidden", **options).fit(X[:30], few)
    assert tagger.classes_.tolist() == ["a", "b"] and tagger.certified_for_ == "completions"
    assert tagger.score(X[30:], y[30:]) >= plain.score(X[30:], y[30:]) + 0.03
    assert 0.0 <= tagger.score(X[:30], few) <= 1.0


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_type_of_hidden_nodes(surrogate):
    """Each graph has a node of no features that joins the others, whose labels it makes alike."""
    rng = np.random.default_rng(1)
    graphs, y = [], []
    for _ in range(60):
        kind = rng.integers(3)
        codes = np.where(rng.random(8) < 0.85, kind, rng.integers(3, size=8))
        x = np.vstack([np.eye(3)[codes] + 0.9 * rng.normal(size=(8, 3)), np.zeros((1, 3))])
        graphs.append((x, [(i, 8) for i in range(8)]))
        y.append(np.append(codes, -1))
    X = Graphs.from_list(graphs)
    X = Graphs(X.node_features, X.edges, X.node_offsets, X.edge_offsets,
               node_types=np.tile(np.append(np.zeros(8, dtype=int), 1), 60))
    alone = GraphTagger(surrogate, classes=[0, 1, 2], random_state=0).fit(X[:40], y[:40])
    tagger = GraphTagger(
        surrogate, unlabelled="hidden", classes={0: [0, 1, 2], 1: ["x", "y", "z"]},
        random_state=0).fit(X[:40], y[:40])
    assert tagger.score(X[40:], y[40:]) >= alone.score(X[40:], y[40:]) + 0.03
    assert set(tagger.predict(X)[0][8:]) <= {"x", "y", "z"}
    assert len({part[8] for part in tagger.predict(X)}) == 3


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_marginals_and_scores_are_of_labels(surrogate):
    X, y = graphs()
    tagger = GraphTagger(
        surrogate, unlabelled="hidden", hidden_states={0: 3}, random_state=0).fit(X, y)
    written = Written(tagger, X, y)
    w, row = written.weights_of(vars(tagger)), tagger.node_classes_[0]
    scores = [phi @ w for phi in written.phis]
    assert tagger.coef_.shape == (4, 2) and row.tolist() == [0, 0, 0, 1]
    states, bound = tagger.predict_states(X), tagger.predict(X, return_bound=True)[1]
    for i, (v, outputs) in enumerate(zip(scores, written.outputs, strict=True)):
        assert_array_equal(states[i], outputs[np.argmax(v)])
        assert bound[i] <= 1e-9
        if surrogate == "log":
            q = np.exp(v - logsumexp(v))
            labels = row[outputs]
            expected = np.stack([(labels == k).T @ q for k in range(2)], axis=1)
            assert_allclose(tagger.predict_marginals(X)[i], expected, atol=1e-9)
            # of the least expected cost is the most probable label
            assert_array_equal(
                tagger.predict(X, decode="min_risk")[i], expected.argmax(axis=1))
    single = X.node_features @ tagger.coef_.T + tagger.intercept_[0]
    assert_allclose(
        tagger.decision_function(X).values,
        np.column_stack([single[:, :3].max(axis=1), single[:, 3]]))
    allowed = [np.tile([True, False], (n, 1)) for n in X.lengths]
    assert (tagger.predict(X, allowed=allowed).values == 0).all()
    assert (tagger.predict_states(X, allowed=allowed).values < 3).all()
    truth = [np.maximum(part, 0) for part in y]
    worst, bound = tagger.loss_augmented(X, truth, return_bound=True)
    assert set(worst.values.tolist()) <= {0, 1} and (bound <= 1e-6).all()
    assert str(tagger.explain(n_strongest=3)).count(", state ") > 0


def test_the_worst_labelling_has_the_costs_of_the_fit():
    X, y = graphs()
    y[2][0] = 9
    tagger = GraphTagger(
        cost_scale="mean", alpha=0.3, ignore_label=9, unlabelled="hidden", random_state=0).fit(X, y)
    codes = np.concatenate(y)
    for i, scores in enumerate(tagger.scores(X)):
        known, n = np.asarray(y[i]), np.count_nonzero(np.asarray(y[i]) != 9)
        outputs = np.array(list(itertools.product(range(2), repeat=known.size)))
        values = [
            scores.nodes[np.arange(known.size), out].sum()
            + sum(t[out[a], out[b]] for t, (a, b) in zip(
                scores.edge_scores, scores.edges, strict=True))
            + np.sum((out != known) & (known >= 0) & (known != 9)) / n for out in outputs]
        worst, bound = tagger.loss_augmented(X, y, return_bound=True)
        found = next(v for v, out in zip(values, outputs, strict=True) if (out == worst[i]).all())
        assert max(values) - 1e-9 <= found and bound[i] <= 1e-9
    assert codes.min() == -1


def test_nothing_hidden_is_one_fit():
    """To the bit, with states of one each, with no node of -1, and with ignored nodes alone."""
    X, y = graphs("forest", None)
    plain = GraphTagger("log", random_state=0).fit(X, y)
    for more in ({"unlabelled": "hidden"}, {"hidden_states": 1}, {"hidden_states": {1: 1}}):
        tagger = GraphTagger("log", random_state=0, **more).fit(X, y)
        assert_same_fit(plain, tagger)
        assert tagger.certified_for_ == "data"
    y[0][1] = y[2][0] = 9
    ignored = GraphTagger("log", ignore_label=9, random_state=0).fit(X, y)
    tagger = GraphTagger("log", ignore_label=9, unlabelled="hidden", random_state=0).fit(X, y)
    assert_same_fit(ignored, tagger)
    y[2][0] = -1
    both = GraphTagger("log", ignore_label=9, unlabelled="hidden", random_state=0).fit(X, y)
    dropped, kept = X.drop_nodes(np.arange(X.n_nodes) == 1)
    again = GraphTagger("log", unlabelled="hidden", random_state=0).fit(
        dropped, np.split(np.concatenate(y)[kept], dropped.node_offsets[1:-1]))
    assert both.certified_for_ == "completions"
    assert_same_fit(both, again)


@pytest.mark.parametrize("kind", KINDS)
def test_orders_weights_and_threads(kind):
    parameters, hidden = KINDS[kind]
    X, y = graphs("exact", hidden)
    options = {"surrogate": "max_margin", "random_state": 0, **parameters}
    first = GraphTagger(**options).fit(X, y)
    order = np.random.default_rng(0).permutation(len(X))
    assert_same_fit(first, GraphTagger(n_jobs=2, **options).fit(X[order], [y[i] for i in order]))
    csr = Graphs(sparse.csr_array(X.node_features), X.edges, X.node_offsets, X.edge_offsets,
                 node_types=X.node_types)
    again = GraphTagger(**options).fit(csr, y)
    assert abs(again.history_["objective"].min() - first.history_["objective"].min()) <= max(
        again.duality_gap_, first.duality_gap_)
    weights = np.array([2, 1, 0, 3, 1])
    numbers = np.repeat(np.arange(5), weights)
    some = GraphTagger(**options).fit(X, y, weights)
    again = GraphTagger(**options).fit(X[numbers], [y[i] for i in numbers])
    assert_allclose(some.coef_, again.coef_, atol=1e-9)
    # a hidden node is not the label that stands for it
    if kind == "nodes":
        pair = Graphs.from_list([([[1.0], [2.0]], [(0, 1)])] * 2)
        tagger = GraphTagger(**options).fit(pair, [[0, 1], [-1, 1]])
        assert tagger.certified_for_ == "completions"


def test_files_pickles_and_warm_starts(tmp_path):
    X, y = graphs()
    tagger = GraphTagger(
        "log", unlabelled="hidden", hidden_states={0: 2}, warm_start=True, random_state=0).fit(X, y)
    save_model(tagger, tmp_path / "model")
    for again in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(tagger))):
        assert again.certified_for_ == "completions"
        assert again.hidden_states == {0: 2} and again.unlabelled == "hidden"
        assert_array_equal(again.predict_states(X).values, tagger.predict_states(X).values)
        assert_array_equal(again.history_["objective"], tagger.history_["objective"])
        assert again.score(X, y) == tagger.score(X, y)
    first = tagger.history_["objective"].min()
    assert tagger.fit(X, y).history_["objective"].min() <= first + 2e-3 * 3.0
    assert tagger.set_params(alpha=0.01).fit(X, y).relative_gap_ <= 1e-3


def test_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = graphs()
    X.save("graphs.npz", Sequences.from_list(y))
    options = ["--set", "unlabelled=hidden", "--set", "hidden_states=2", "--set", "random_state=0"]
    assert main(["fit", "graphs.npz", "--model", "m", *options]) == 0
    assert " rounds filled in what y leaves open, objective " in capsys.readouterr().out
    assert main(["evaluate", "m", "graphs.npz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scores"]["node_accuracy"]
    model = load_model("m")
    assert model.hidden_states == 2 and model.unlabelled == "hidden"
    assert (found["value"] if isinstance(found, dict) else found) == model.score(X, y)


def test_maps_of_edges_name_states():
    matplotlib.use("Agg")
    X, y = graphs()
    tagger = GraphTagger(hidden_states={1: 2}, unlabelled="hidden", random_state=0).fit(X, y)
    display = EdgeWeightDisplay.from_estimator(tagger)
    assert list(display.row_labels) == ["0", "1, state 0", "1, state 1"]


def test_factors_bind_hidden_nodes():
    """Of three nodes one is "on", and only the others are labelled."""
    rng = np.random.default_rng(0)
    graphs, y, factors = [], [], []
    for _ in range(20):
        on = rng.permutation(3)
        graphs.append((np.eye(3)[on][:, :1] + 0.2 * rng.normal(size=(3, 1)), [(0, 1), (1, 2)]))
        y.append(np.where(on == 0, -1, 0))
        factors.append(CountFactor.exactly_one([0, 1, 2]))
    X = Graphs.from_list(graphs).with_factors(factors)
    for surrogate in SURROGATES:
        tagger = GraphTagger(
            surrogate, unlabelled="hidden", classes=[0, 1], random_state=0, max_iter=3000).fit(X, y)
        truth = [np.where(part < 0, 1, 0) for part in y]
        assert tagger.score(X, truth) == 1.0
    y[3] = np.array([0, 0, 0])
    y[4] = np.array([1, 1, -1])
    with pytest.raises(ValueError, match="graph 3: its true labels are forbidden by factors"):
        tagger.fit(X, y)
    with pytest.raises(ValueError, match="graph 4: its factors allow no labelling with"):
        tagger.fit(X, [*y[:3], np.where(truth[3] == 1, -1, 0), *y[4:]])
    with pytest.raises(ValueError, match="hidden_states=2 does not go with factors"):
        GraphTagger(hidden_states=2).fit(X, truth)
    X, y = globals()["graphs"]()
    tagger = GraphTagger(hidden_states=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="hidden_states=2 does not go with factors"):
        tagger.predict(X, factors=[CountFactor.at_most_one([0, 1, 2]), *[None] * 4])


def test_refusals(tmp_path):
    X, y = graphs()
    hidden, states = GraphTagger(unlabelled="hidden"), GraphTagger(hidden_states=2)
    for tagger, name in ((hidden, "unlabelled='hidden'"), (states, "hidden_states=2")):
        for fit in (
            lambda X, y, tagger=tagger: regularization_path(tagger, X, y),
            lambda X, y, tagger=tagger: GraphTask(tagger).piece(Partition(X, y)),
        ):
            with pytest.raises(ValueError, match=f"{name} needs rounds of fits, which `fit` makes"):
                fit(X, y)
        with pytest.raises(ValueError, match=f"{name} is not supported by fits .* chunks"):
            GraphTagger(**{**tagger.get_params(deep=False), "solver": OutOfCore()}).fit(X, y)
        with pytest.raises(ValueError, match="is not for pairwise='displacement'"):
            GraphTagger(**{
                **tagger.get_params(deep=False), "pairwise": "displacement", "grid_shape": (1, 2),
            }).fit(X, y)
        with pytest.raises(ValueError, match="rounds of compl"), checkpointing(tmp_path / "file"):
            tagger.fit(X, y)
    # with nothing to fill in, paths are paths
    regularization_path(hidden, X, [np.abs(part) for part in y])
    for given in (0, 1.5, "two", {0: 0}, True):
        with pytest.raises(ValueError, match="hidden_states must be None, an integer > 0, or"):
            GraphTagger(hidden_states=given).fit(X, y)
    with pytest.raises(ValueError, match=r"hidden_states has 'c', which is not among the labels"):
        GraphTagger(hidden_states={"c": 2}).fit(X, y)
    with pytest.raises(ValueError, match="unlabelled must be one of"):
        GraphTagger(unlabelled="latent").fit(X, y)
    with pytest.raises(ValueError, match="ignore_label=-1 leaves them out"):
        GraphTagger(unlabelled="hidden", ignore_label=-1).fit(X, y)
    with pytest.raises(ValueError, match="hidden_states is not for label_features=True"):
        GraphTagger(hidden_states=2, label_features=True).fit(X, y)
    with pytest.raises(ValueError, match="X has no labelled nodes"):
        hidden.fit(X, [np.full(n, -1) for n in X.lengths])
    X, y = graphs(hidden="type")
    with pytest.raises(ValueError, match="all nodes of type 1 hidden, as node 1 of graph 0: give"):
        hidden.fit(X, y)
    with pytest.raises(ValueError, match="hidden_states needs the same labels at all types"):
        GraphTagger(hidden_states=2, unlabelled="hidden", classes={0: [0, 1], 1: [2, 3]}).fit(X, y)
    with pytest.raises(TypeError, match="unlabelled"):
        SoftGraphTagger(unlabelled="hidden")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale, seed, surrogate, states", [
    (1e5, 1443, "log", None), (1e9, 33, "log", 2), (1e9, 183, "log", None),
    (1e9, 307, "max_margin", None), (1e9, 1245, "log", 2)])
def test_features_that_are_out_of_scale(scale, seed, surrogate, states):
    """Heights are those of the dual point, less their rounding."""
    rng = np.random.default_rng(seed)
    assert 10.0 ** rng.integers(2, 10) == scale
    X, y = [], []
    for _ in range(2):
        X.append((scale * rng.normal(size=(4, 2)), [[0, 1]]))
        y.append(rng.integers(0, 2, 4))
        y[-1][rng.integers(4)] = -1
    tagger = GraphTagger(
        surrogate, unlabelled="hidden", hidden_states=states, max_iter=300, random_state=0)
    tagger.fit(X, y)
    assert tagger.dual_objective_ <= tagger.primal_objective_
