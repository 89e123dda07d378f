"""Factors in `Graphs` and `GraphTagger`: constraints of fits, scores of predictions.

Everything against enumeration of the labellings that the factors allow.
"""

import copy
import itertools
import json
import pickle
import re

import numpy as np
import pytest
from graph_cases import (
    check_objectives,
    fitted,
    labellings,
    objective,
    random_graphs,
    scores_of,
    with_random_factors,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.model_selection import cross_val_predict

from fastm4n import (
    CountFactor,
    FactorTables,
    Graphs,
    GraphTagger,
    Sequences,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.factors import _most_open, _ranks
from fastm4n.inference.graph import maximise

SURROGATES = ("max_margin", "max_min", "log")
KINDS = {
    "tables": {},
    "features of edges": {"n_edge_features": 2},
    "types": {"n_types": 2, "n_edge_types": 2},
    "forests": {"forest": True, "weights": True},
    "two labels": {"labels": 2, "weights": True, "most": 5},
    "no edges": {"density": 0.0},
}


def data(seed, kind, finite=False, **more):
    given = {**KINDS[kind], **more}
    X, y = random_graphs(seed, **given)
    while len(set(y.values.tolist())) < given.get("labels", 3):
        # tables are of the labels that occur
        seed += 100
        X, y = random_graphs(seed, **given)
    return with_random_factors(X, y, seed, given.get("labels", 3), finite=finite), y


def numbers(tagger, labels):
    return np.searchsorted(tagger.classes_, labels)[np.newaxis]


# ----------------------------------------------------------------------------- fits


@pytest.mark.repeats(5)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_is_that_of_enumeration(surrogate, kind):
    X, y = data(0, kind)
    tagger = fitted(X, y, surrogate)
    close = fitted(X, y, surrogate, tol=1e-4, max_iter=5000)
    assert tagger.oracle_ == "few_states"
    check_objectives(tagger, close, lambda model: objective(model, X, y))
    # constraints leave less to lose: the objective without them lies above at any weights
    free = Graphs(*X.__reduce__()[1][:-1])
    assert free.factors is None
    assert objective(close, free, y) > objective(close, X, y)


def linear_scores(tagger, X, i, every):
    """Scores of labellings as a matrix times the weights, and how to give a tagger weights."""
    names = ("coef_", "intercept_", "edge_coef_", "edge_intercept_")
    shapes = [getattr(tagger, name).shape for name in names]
    sizes = [int(np.prod(shape)) for shape in shapes]
    other, columns = copy.copy(tagger), []
    for unit in np.eye(sum(sizes)):
        for name, part, shape in zip(
            names, np.split(unit, np.cumsum(sizes)[:-1]), shapes, strict=True,
        ):
            setattr(other, name, part.reshape(shape))
        columns.append(scores_of(other, X, i, every))
    return np.stack(columns, axis=1)


def optimum(tagger, X, y):
    """The minimum of the objective by a generic solver over all labellings."""
    kept, cost, alpha = np.flatnonzero(X.lengths), tagger.cost_matrix_, tagger.alpha_
    truth = [np.searchsorted(tagger.classes_, y[i]) for i in kept]
    every = [labellings(tagger, X, i) for i in kept]
    Phi = [linear_scores(tagger, X, i, rows) - linear_scores(tagger, X, i, true[np.newaxis])
           for i, rows, true in zip(kept, every, truth, strict=True)]
    p, n, k = Phi[0].shape[1], len(kept), len(cost)
    if tagger.surrogate == "log":
        def value(w):
            losses = [logsumexp(rows @ w) for rows in Phi]
            slopes = [np.exp(rows @ w - loss) @ rows
                      for rows, loss in zip(Phi, losses, strict=True)]
            return np.mean(losses) + 0.5 * alpha * w @ w, np.mean(slopes, axis=0) + alpha * w
        return minimize(value, np.zeros(p), jac=True, method="L-BFGS-B", tol=1e-12).fun
    # xi_i >= scores + costs for all labellings; for max_min costs are those of the adversary's
    # mixtures q_t at each node, of which there is the best
    lengths = [len(true) for true in truth] if tagger.surrogate == "max_min" else [0] * n
    size, at = p + n + k * sum(lengths), p + n
    A, b, E = [], [], []
    for i in range(n):
        rows = np.zeros((len(every[i]), size))
        rows[:, :p], rows[:, p + i] = -Phi[i], 1.0
        om = np.ones(len(truth[i])) if X.node_weights is None else X[kept[i]].node_weights
        offset = cost[truth[i], every[i]] @ om if tagger.surrogate == "max_margin" else 0.0
        for t in range(lengths[i]):
            rows[:, at : at + k] = -om[t] * cost[every[i][:, t]]
            E.append(np.isin(np.arange(size), np.arange(at, at + k)))
            at += k
        A.append(rows)
        b.append(np.zeros(len(rows)) + offset)
    A, b, E = np.concatenate(A), np.concatenate(b), np.array(E, dtype=float).reshape(-1, size)
    start = np.zeros(size)
    start[p : p + n] = 100.0
    start[p + n :] = 1.0 / k
    constraints = [{"type": "ineq", "fun": lambda z: A @ z - b, "jac": lambda z: A}]
    if len(E):
        constraints.append({"type": "eq", "fun": lambda z: E @ z - 1.0, "jac": lambda z: E})

    def value(z):
        slope = np.zeros(size)
        slope[:p], slope[p : p + n] = alpha * z[:p], 1.0 / n
        return np.mean(z[p : p + n]) + 0.5 * alpha * z[:p] @ z[:p], slope
    found = minimize(
        value, start, jac=True, method="SLSQP", constraints=constraints,
        bounds=[(None, None)] * (p + n) + [(0.0, 1.0)] * (size - p - n),
        options={"maxiter": 500, "ftol": 1e-12})
    assert found.success
    return found.fun


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", ["two labels", "tables", "forests"])
def test_the_certificate_holds_against_a_generic_solver(surrogate, kind):
    for seed in range(2):
        X, y = data(seed, kind, n=6, most=3, n_features=2)
        tagger = fitted(X, y, surrogate, tol=0.03)
        best = optimum(tagger, X, y)
        value = objective(tagger, X, y)
        assert best - 1e-6 <= value <= tagger.primal_objective_ + 1e-8
        assert value - best <= tagger.duality_gap_ + 1e-6
        assert tagger.dual_objective_ <= best + 1e-6
        close = fitted(X, y, surrogate, tol=1e-5, max_iter=5000)
        assert_allclose(close.primal_objective_, best, atol=1e-4)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_fits_over_one_labelling_have_no_loss(surrogate):
    """Where factors leave nothing but the truth there is nothing to learn."""
    X, y = random_graphs(1, labels=2)
    X = X.with_factors([
        [([t], np.where(np.arange(2) == label, 0.0, -np.inf)) for t, label in enumerate(labels)]
        for labels in y])
    tagger = fitted(X, y, surrogate)
    assert_allclose(tagger.primal_objective_, 0.0, atol=1e-9)
    assert_allclose(tagger.coef_, 0.0)
    assert (tagger.predict(X).values == y.values).all()


def test_a_weight_is_a_repetition():
    X, y = data(2, "two labels")
    once = fitted(X, y, tol=1e-6, alpha=0.1, max_iter=5000)
    weights = np.where(np.arange(len(X)) % 2, 2.0, 1.0)
    twice = np.append(np.arange(len(X)), np.flatnonzero(weights == 2.0))
    weighted = GraphTagger("max_margin", alpha=0.1, tol=1e-6, max_iter=5000, random_state=0).fit(
        X, y, sample_weight=weights)
    repeated = fitted(X[twice], [y[i] for i in twice], tol=1e-6, max_iter=5000)
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-12, atol=1e-14)
    assert not np.allclose(weighted.coef_, once.coef_, atol=1e-3)
    # graphs that differ in their factors alone are not one graph
    X, y = random_graphs(2, labels=2, forest=True, n=5)
    both = np.concatenate([X, X.with_factors([
        CountFactor(np.arange(n), int(sum(part)), int(sum(part))) if n else None
        for n, part in zip(X.lengths, y, strict=True)])])
    tagger = fitted(both, [*y, *y])
    assert_allclose(objective(tagger, both, [*y, *y]), tagger.primal_objective_, atol=1e-8)


def test_warm_starts_paths_files_and_folds(tmp_path):
    X, y = data(3, "two labels")
    tagger = fitted(X, y, warm_start=True)
    passes = tagger.n_iter_
    assert tagger.fit(X, y).n_iter_ < passes
    other = X.with_factors([CountFactor([0], 0, 1) if n else None for n in X.lengths])
    assert tagger.fit(other, y).n_iter_ == fitted(other, y).n_iter_
    save_model(tagger, tmp_path / "model.fastm4n")
    again = load_model(tmp_path / "model.fastm4n")
    assert (again.predict(X).values == tagger.predict(X).values).all()
    path = regularization_path(GraphTagger("max_margin", random_state=0), X, y, eps=0.2)
    model, gap = path.estimator(0.1), path.gap(0.1)
    close = fitted(X, y, tol=1e-6, max_iter=5000)
    assert model.alpha_ == 0.1 and gap <= 0.2 * path.objective_at_zero
    assert -1e-8 <= objective(model, X, y) - close.dual_objective_ <= gap + 1e-4
    predicted = cross_val_predict(GraphTagger("max_margin", random_state=0), X, y, cv=3)
    for i, labels in enumerate(predicted):
        for factor in X[i].factors or ():
            assert factor.score(np.asarray(labels)) > -np.inf


def test_nodes_without_a_label():
    """Factors of nodes that are left out forbid what no label of theirs allows."""
    X, y = data(4, "two labels", most=4)
    hidden = np.random.default_rng(0).random(X.n_nodes) < 0.3
    values = np.where(hidden, -1, y.values)
    tagger = fitted(X, Sequences(values, X.node_offsets))
    smaller, nodes = X.drop_nodes(hidden)
    left = Sequences(y.values[nodes], smaller.node_offsets)
    assert_allclose(
        objective(tagger, smaller, left), tagger.primal_objective_, atol=1e-8)
    for i in np.flatnonzero(X.lengths):
        out = hidden[X.node_offsets[i] : X.node_offsets[i + 1]]
        if len(X[i].factors or ()) != 1:
            continue
        # of one factor this is the projection of what it allows
        every = {tuple(row[~out]) for row in labellings(tagger, X, i)}
        assert every == {tuple(row) for row in labellings(tagger, smaller, i)}


@pytest.mark.parametrize(("factors", "labels", "message"), [
    (CountFactor.exactly_one([0, 1]), [1, 1], r"graph 1: its true labels are forbidden by "
     r"factors\[0\], CountFactor\(nodes=\[0, 1\]"),
    (([0, 1], np.eye(2)), [1, 0], r"graph 1: table 0 of FactorTables\(1 factors, 1 tables\) has a "
     "score of 1. In fits, factors are constraints"),
    (CountFactor.exactly_one([0, 2]), [1, 1], r"factors\[1\]\[0\] has node 2, but there are 2"),
    (([0, 1], np.zeros((2, 3))), [1, 0], r"graph 1: factors\[0\]: factor 0 has a table of shape"),
    (([0], [-np.inf, -np.inf]), [1, 0], "the factors of graph 1 allow no labelling"),
    (([0], [-1e301, 0.0]), [1, 0], "the scores of the factors of graph 1 are too large"),
    ("budget", [1, 0], r"factors\[1\] must be a FactorTables"),
])
def test_factors_that_cannot_be(factors, labels, message):
    graph = [[1.0], [2.0]], [[0, 1]]
    with pytest.raises((ValueError, TypeError), match=message):
        fitted(Graphs.from_list([graph, graph]).with_factors([None, factors]), [[0, 1], labels])


def test_inference():
    X, y = data(5, "two labels")
    for inference in ("forest", "min_cut", "lp"):
        with pytest.raises(ValueError, match=f"inference='{inference}' finds .* factors"):
            fitted(X, y, inference=inference)
    exact, auto = (fitted(X, y, inference=inference) for inference in ("exact", "auto"))
    assert (exact.coef_ == auto.coef_).all()


def test_graphs_too_large():
    n = 60
    large = np.ones((n, 1)), [(i, i + d) for i in range(n) for d in range(1, 26) if i + d < n]
    factor = FactorTables([0, 1, 2], [0, 3], [np.zeros((2, 2, 2))])
    X = Graphs.from_list([([[1.0]], []), large]).with_factors([None, factor])
    y = [[0], np.arange(n) % 2]
    message = "graph 1 has too many states.*give it factors of fewer nodes, or fewer edges"
    with pytest.raises(ValueError, match=message):
        fitted(X, y)
    tagger = fitted([([[1.0], [2.0]], [[0, 1]])], [[0, 1]], pairwise="attractive")
    with pytest.raises(ValueError, match=message):
        tagger.predict(X)
    # without factors it is a matter of cuts
    labels, bound = tagger.predict(Graphs.from_list([large]), return_bound=True)
    assert labels.lengths.tolist() == [n] and bound[0] <= 1e-9


# ---------------------------------------------------------------------- predictions


def without(X):
    """The graphs without their factors."""
    return Graphs(*X.__reduce__()[1][:-1])


@pytest.mark.parametrize("inference", ["auto", "lp"])
@pytest.mark.parametrize("finite", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_best(kind, finite, inference):
    X, y = data(6, kind, finite=finite)
    tagger = fitted(without(X), y, inference=inference)
    given = [graph.factors for graph in X]
    predicted, bound = tagger.predict(without(X), factors=given, return_bound=True)
    assert (predicted.values == tagger.predict(X).values).all()
    changed = tagger.predict(without(X)).values != predicted.values
    assert changed.any()
    for i in range(len(X)):
        every = scores_of(tagger, X, i, labellings(tagger, X, i))
        found = scores_of(tagger, X, i, numbers(tagger, predicted[i]))[0]
        assert_allclose(found, every.max() - bound[i], atol=1e-9)
        if given[i] is not None:
            assert bound[i] <= 1e-9
        else:
            alone = tagger.predict(without(X)[i : i + 1])[0]
            assert (predicted[i] == alone).all()


@pytest.mark.parametrize("kind", KINDS)
def test_marginals(kind):
    X, y = data(7, kind, finite=True)
    tagger = fitted(without(X), y, "log")
    found = tagger.predict_marginals(X)
    allowed = [np.random.default_rng(0).random((n, tagger.classes_.size)) < 0.8 for n in X.lengths]
    some = 0
    for i, marginals in enumerate(found):
        every = labellings(tagger, X, i)
        for only in (False, True):
            rows = every
            if only:
                allowed[i][np.arange(every.shape[1]), every[0]] = True
                rows = every[allowed[i][np.arange(every.shape[1]), every].all(axis=1)]
                some += len(every) - len(rows)
                marginals = tagger.predict_marginals(X, allowed=[
                    allowed[j] if j == i else np.ones_like(allowed[j]) for j in range(len(X))])[i]
            scores = scores_of(tagger, X, i, rows)
            p = np.exp(scores - scores.max())
            expected = np.zeros(marginals.shape)
            for labels, share in zip(rows, p / p.sum(), strict=True):
                expected[np.arange(labels.size), labels] += share
            assert_allclose(marginals, expected, atol=1e-9)
    assert some


@pytest.mark.parametrize("kind", ["tables", "types", "two labels"])
def test_allowed_labels_too(kind):
    X, y = data(8, kind, finite=True)
    tagger = fitted(without(X), y)
    rng = np.random.default_rng(0)
    allowed = [rng.random((n, tagger.classes_.size)) < 0.6 for n in X.lengths]
    for i, labels in enumerate(y):
        # so that something is left
        allowed[i][np.arange(X.lengths[i]), numbers(tagger, labels)[0]] = True
    predicted, bound = tagger.predict(X, allowed=allowed, return_bound=True)
    assert_allclose(bound, 0.0, atol=1e-9)
    for i in range(len(X)):
        every = labellings(tagger, X, i)
        every = every[allowed[i][np.arange(every.shape[1]), every].all(axis=1)]
        best = scores_of(tagger, X, i, every).max()
        found = numbers(tagger, predicted[i])
        assert allowed[i][np.arange(every.shape[1]), found].all()
        assert_allclose(scores_of(tagger, X, i, found)[0], best, atol=1e-9)
    X = Graphs.from_list([X[3], X[4]]).with_factors([None, ([0], [0.0] + [-np.inf] * 2)])
    tagger = fitted([([[1.0, 0.0, 0.0]], [])] * 3, [[0], [1], [2]])
    nothing = [np.ones((n, 3), dtype=bool) for n in X.lengths]
    nothing[1][0, 0] = False
    if kind == "tables":
        with pytest.raises(ValueError, match="the factors of graph 1 allow no labelling"):
            tagger.predict(X, allowed=nothing)


@pytest.mark.parametrize("surrogate", ["max_min", "log"])
@pytest.mark.parametrize("kind", ["tables", "types", "two labels"])
def test_least_risk(kind, surrogate):
    X, y = data(9, kind, finite=True)
    tagger = fitted(without(X), y, surrogate)
    predicted = tagger.predict(X, "min_risk")
    best = tagger.predict(X, "map")
    if surrogate == "log":
        points = tagger.predict_marginals(X)
        assert (predicted.values != best.values).any()
    for i in np.flatnonzero(X.lengths):
        every = labellings(tagger, X, i)
        found = numbers(tagger, predicted[i])
        assert (every == found).all(axis=1).any()
        if surrogate == "log":
            risks = points[i] @ tagger.cost_matrix_
            weights = 1.0 if X.node_weights is None else X[i].node_weights
            totals = (risks[np.arange(len(risks)), every] * weights).sum(axis=1)
            mine = (risks[np.arange(len(risks)), found[0]] * weights).sum()
            assert_allclose(mine, totals.min(), atol=1e-9)


def test_lists_of_factors():
    X, y = data(10, "two labels")
    tagger = fitted(X, y)
    with pytest.raises(TypeError, match="factors must be a list with the factors of each graph"):
        tagger.predict(X, factors=CountFactor([0], 0, 1))
    with pytest.raises(ValueError, match="factors has 1 entries for 12 graphs"):
        tagger.predict(X, factors=[None])
    with pytest.raises(ValueError, match=re.escape("factors[2][1] has node 9")):
        tagger.predict(X, factors=[None] * 2 + [[([0], [0, 0]), CountFactor([9], 0, 1)]]
                       + [None] * 9)
    many = FactorTables([0, 0, 7], [0, 1, 2, 3], [[0.0, 0.0]], [0, 0, 0])
    with pytest.raises(ValueError, match=re.escape("factor 2 of factors[2][0] has node 7")):
        X.with_factors([None] * 2 + [many] + [None] * 9)
    empty = [[] if n == 0 else None for n in X.lengths]
    assert (tagger.predict(X, factors=empty).values == tagger.predict(X).values).all()


# --------------------------------------------------------------------------- graphs


def listed(X):
    return [[repr(factor) for factor in graph.factors or ()] for graph in X]


def test_graphs_keep_their_factors(tmp_path):
    X, y = data(11, "two labels", finite=True)
    every = listed(X)
    assert listed(X[2:9]) == every[2:9] and listed(X[::-1]) == every[::-1]
    assert listed(X[[3, 3, 0]]) == [every[3], every[3], every[0]]
    assert listed(np.concatenate([X[:2], without(X), X])) == (
        every[:2] + [[]] * len(X) + every)
    assert listed(Graphs.from_list(list(X))) == every
    assert "factors" in repr(X) and "factors" not in repr(without(X))
    X.save(tmp_path / "graphs.npz", y)
    for again in (
        pickle.loads(pickle.dumps(X)), copy.deepcopy(X), Graphs.load(tmp_path / "graphs.npz"),
        Graphs.from_list(list(X)), without(X).with_factors([graph.factors for graph in X]),
    ):
        assert again.equals(X) and not again.equals(without(X)) and not again.equals(X[::-1])
        for i in range(len(X)):
            labels = np.asarray(y[i])
            assert_allclose(
                sum(factor.score(labels) for factor in again[i].factors or ()),
                sum(factor.score(labels) for factor in X[i].factors or ()))
    without(X).save(tmp_path / "none.npz")
    assert Graphs.load(tmp_path / "none.npz").factors is None


def test_damaged_files(tmp_path):
    X, _ = data(11, "two labels", finite=True)
    X.save(tmp_path / "graphs.npz")
    with np.load(tmp_path / "graphs.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    names = [name for name in arrays if name.startswith("factors.")]
    assert len(names) == 8
    for name in names:
        damaged = [
            {key: array for key, array in arrays.items() if key != name},
            {**arrays, name: np.array(3)}, {**arrays, name: np.array(["a", "b"])},
            {**arrays, name: arrays[name][:-1]}]
        if name == "factors.label":  # older files have none
            del damaged[0]
        elif name not in ("factors.values", "factors.most"):
            damaged.append({**arrays, name: arrays[name] + 10**6})
        for parts in damaged:
            np.savez(tmp_path / "damaged.npz", **parts)
            with pytest.raises(ValueError, match="is no file of graphs"):
                Graphs.load(tmp_path / "damaged.npz")


@pytest.mark.parametrize("finite", [True, False])
def test_factors_of_dropped_nodes_take_the_best_label(finite):
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = np.where(rng.random((2, 3, 2)) < 0.5, -np.inf, rng.normal(size=(2, 3, 2)) * finite)
        X = Graphs(np.ones((4, 1)), [], [0, 4], [0, 0], factors=[[([2, 0, 3], table)]])
        smaller, _ = X.drop_nodes([True, False, False, False])
        (factor,), = smaller.factors
        assert factor.scope(0).tolist() == [1, 2]
        assert (factor.table(0) == table.max(axis=1)).all()
        assert X.drop_nodes([True, False, True, True])[0].factors is None
    for factor in (CountFactor(range(4), 1, 2), CountFactor(
            range(4), 2, 4, np.array([True, False, True, False]))):
        X = Graphs(np.ones((4, 1)), [], [0, 4], [0, 0], factors=[factor])
        (left,), = X.drop_nodes([True, True, False, False])[0].factors
        allowed = np.argwhere(factor.table().max(axis=(0, 1)) == 0.0)
        assert (np.argwhere(left.table() == 0.0) == allowed).all()


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_counts_of_one_of_three_labels(surrogate, tmp_path):
    """In fits, predictions, files of graphs, folders and partial labels."""
    rng = np.random.default_rng(0)
    graphs, y = [], []
    for _ in range(8):
        labels = rng.integers(2, size=4)
        labels[rng.integers(4)] = 2
        graphs.append((np.eye(3)[labels] + rng.normal(0, 0.6, (4, 3)), [[0, 1], [1, 2], [2, 3]]))
        y.append(labels)
    one = CountFactor.exactly_one(range(4), label=2)
    X = Graphs.from_list(graphs).with_factors([one] * 8)
    tagger = GraphTagger(surrogate, alpha=0.05, tol=1e-3, random_state=0).fit(X, y)
    assert tagger.relative_gap_ <= 1e-3 and tagger.oracle_ == "few_states"
    for decode in ("map", *(["min_risk"] if surrogate != "max_margin" else [])):
        predicted = tagger.predict(X, decode=decode)
        assert all(np.sum(labels == 2) == 1 for labels in predicted)
    X.save(tmp_path / "graphs.npz")
    found = Graphs.load(tmp_path / "graphs.npz")
    assert repr(found.factors) == repr(X.factors) and "label=2" in repr(found.factors[0])
    folder = Graphs.from_batches([X[:3], X[3:]], tmp_path / "folder")
    for found in (found, folder, Graphs.open(tmp_path / "folder")[:]):
        assert repr(found.factors) == repr(X.factors)
        again = GraphTagger(surrogate, alpha=0.05, tol=1e-3, random_state=0).fit(found, y)
        assert_array_equal(again.coef_, tagger.coef_)
    # the count of label 1 is another constraint
    other = X.with_factors([CountFactor.budget(range(4), 4)] * 8)
    assert other.factors[0][0].label == 2 and other.factors[0][1].label == 1
    y[0] = [-1, *y[0][1:]]
    assert GraphTagger(surrogate, alpha=0.05, tol=0.05, random_state=0).fit(X, y).n_iter_ > 0
    y[1] = [0, 1, 0, 1]
    with pytest.raises(ValueError, match="graph 1: its true labels are forbidden by factors"):
        GraphTagger(surrogate).fit(X, y)


def test_files_of_older_releases_count_the_second_label(tmp_path):
    X = Graphs.from_list([(np.eye(2), [[0, 1]])] * 2).with_factors(
        [CountFactor.at_most_one([0, 1]), None])
    X.save(tmp_path / "graphs.npz")
    with np.load(tmp_path / "graphs.npz") as file:
        arrays = {name: file[name] for name in file.files if name != "factors.label"}
    np.savez(tmp_path / "older.npz", **arrays)
    assert Graphs.load(tmp_path / "older.npz").factors[0][0].label == 1
    Graphs.from_batches([X], tmp_path / "older")
    meta = json.loads((tmp_path / "older" / "meta.json").read_text())
    del meta["files"]["factors.label"]
    (tmp_path / "older" / "meta.json").write_text(json.dumps(meta))
    assert Graphs.open(tmp_path / "older").factors[0][0].label == 1


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("shape", ["grid", "ladder and tail"])
def test_counts_over_cycles(label, shape):
    """The count goes along an order of few open nodes, and is the count whatever that is."""
    rng = np.random.default_rng(0)
    edges = Graphs.from_grid([np.zeros((3, 4))])[0].edges.tolist()
    if shape != "grid":
        edges = [(i, i + 1) for i in range(11)] + [(0, 5), (1, 4)]
    scores, tables = rng.normal(size=(12, 2)), rng.normal(size=(len(edges), 2, 2))
    every = np.array(list(itertools.product([0, 1], repeat=12)))
    total = scores[np.arange(12), every].sum(axis=1) + sum(
        table[every[:, a], every[:, b]] for table, (a, b) in zip(tables, edges, strict=True))
    for least, most in ((0, 1), (4, 5), (11, 12)):
        factor = CountFactor(range(12), least, most, rng.random(12) < 0.2, label)
        allowed = np.array([factor.is_satisfied(row) for row in every])
        found = maximise(scores, edges, tables, factor)
        assert_allclose([found.value, found.bound], total[allowed].max())


def test_counts_over_large_grids():
    rng = np.random.default_rng(0)
    edges = Graphs.from_grid([np.zeros((9, 20))])[0].edges
    scores = rng.normal(size=(180, 2))
    plain = maximise(scores, edges, 0.3, method="exact")
    found = maximise(scores, edges, 0.3, CountFactor.budget(range(180), 2))
    assert found.value == found.bound < plain.value and np.sum(found.labels == 1) == 2
    free = maximise(scores, edges, 0.3, CountFactor(range(180), 0, 180))
    assert_allclose(free.value, plain.value)


def test_orders_of_few_open_nodes():
    tree = np.array([((i - 1) // 2, i) for i in range(1, 255)])
    grid = Graphs.from_grid([np.zeros((6, 30))])[0].edges
    for n, edges, most in ((255, tree, 8), (255, np.vstack([tree, [200, 254]]), 9), (180, grid, 7)):
        places = _ranks(n, edges)
        assert sorted(places) == list(range(n)) and _most_open(places, edges) <= most
