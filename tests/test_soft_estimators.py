"""Estimators of graphs fitted with soft constraints: against a generic solver, and `solve_soft`."""

import copy
import pickle

import numpy as np
import pytest
from graph_cases import node_scores, objective, pair_scores, random_graphs
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import LinearConstraint, minimize
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels

from fastm4n import (
    CountFactor,
    Graphs,
    GraphTagger,
    MultiLabelClassifier,
    checkpointing,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.research import (
    FactorGraphs,
    SoftGraphTagger,
    SoftMultiLabelClassifier,
    solve_soft,
)

ALPHA, RHO = 0.2, 0.3
KINDS = {
    "plain": {},
    "features of edges": {"n_edge_features": 2},
    "types": {"n_types": 2, "n_edge_types": 2},
    "types and features": {"n_types": 2, "n_edge_types": 2, "n_edge_features": 1},
    "weights": {"weights": True},
    "types of edges": {"n_edge_types": 3},
}


def fitted(X, y, **parameters):
    return SoftGraphTagger(**{
        "alpha": ALPHA, "rho": RHO, "random_state": 0, "max_iter": 5000, **parameters}).fit(X, y)


def assert_same_optimum(a, b):
    assert max(a.dual_objective_, b.dual_objective_) <= min(
        a.primal_objective_, b.primal_objective_)
    near = sum(np.sqrt(2.0 * clf.duality_gap_ / clf.alpha) for clf in (a, b))
    assert np.linalg.norm(a.coef_ - b.coef_) <= near


def columns_of(tagger):
    """An orthonormal basis of the weights: taggers whose weights are its elements."""
    names = ["coef_", "intercept_", "edge_coef_", "edge_intercept_"]
    if not tagger.fit_intercept:
        names.remove("intercept_")
    zero = copy.copy(tagger)
    for name in ("coef_", "intercept_", "edge_coef_", "edge_intercept_"):
        setattr(zero, name, np.zeros_like(getattr(tagger, name)))
    for name in names:
        for place in np.ndindex(getattr(tagger, name).shape):
            values = np.zeros_like(getattr(tagger, name))
            values[place] = 1.0
            if tagger.pairwise == "symmetric" and "edge" in name:
                values[(*place[:-2], place[-1], place[-2])] = 1.0
                values /= np.linalg.norm(values)
                if place[-2] < place[-1]:
                    continue
            one = copy.copy(zero)
            setattr(one, name, values)
            yield one


def soft_optimum(tagger, X, y):
    """The largest f_rho by a generic solver, from the scores that graph_cases computes."""
    basis = list(columns_of(tagger))
    kept = np.flatnonzero(X.lengths)
    phi, costs, starts, agreements, at = [], [], [], [], 0
    for i in kept:
        graph, truth = X[i], np.searchsorted(tagger.classes_, y[i])
        scores = np.stack([node_scores(one, X, i) for one in basis], axis=-1)
        weights = np.ones(len(truth)) if graph.node_weights is None else graph.node_weights
        if tagger.cost_scale == "mean":
            weights = weights / len(truth)
        allowed, begin = [], []
        for t, label in enumerate(truth):
            allowed.append(np.flatnonzero(~np.isnan(scores[t, :, 0])))
            phi.append((scores[t, label] - scores[t, allowed[t]]) / len(kept))
            costs.append(weights[t] * tagger.cost_matrix_[label, allowed[t]] / len(kept))
            begin.append(at)
            starts.append(at)
            at += allowed[t].size
        for e, ends in enumerate(graph.edges):
            table = np.stack([pair_scores(one, graph, e) for one in basis], axis=-1)
            inner = table[np.ix_(*(allowed[t] for t in ends))]
            phi.append((table[tuple(truth[ends])] - inner).reshape(-1, len(basis)) / len(kept))
            costs.append(np.zeros(inner[..., 0].size))
            starts.append(at)
            labels = np.indices(inner.shape[:2]).reshape(2, -1)
            for side, t in enumerate(ends):
                for label in range(allowed[t].size):
                    agreements.append((
                        begin[t] + label, at + np.flatnonzero(labels[side] == label)))
            at += labels.shape[1]
    phi, costs = np.concatenate(phi), np.concatenate(costs)
    distances = np.zeros((len(agreements), at))
    for row, (one, many) in zip(distances, agreements, strict=True):
        row[one] = -1.0
        row[many] = 1.0
    square = phi @ phi.T / tagger.alpha + distances.T @ distances / (len(kept) * tagger.rho)
    sums = np.zeros((len(starts), at))
    for row, first, last in zip(sums, starts, [*starts[1:], at], strict=True):
        row[first:last] = 1.0
    middle = sums.T @ (1.0 / sums.sum(axis=1))
    found = minimize(
        lambda mu: 0.5 * mu @ square @ mu - costs @ mu, middle, jac=lambda mu: square @ mu - costs,
        bounds=[(0, 1)] * at, constraints=LinearConstraint(sums, 1.0, 1.0), method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-12})
    assert found.success
    return -found.fun


@pytest.mark.parametrize("pairwise, kind", [
    (pairwise, kind) for pairwise in ("full", "symmetric", "potts") for kind in KINDS
    # rows of tables are other labels where types of nodes have labels of their own
    if pairwise == "full" or "n_types" not in KINDS[kind]])
def test_certificates_hold_the_optimum_of_a_generic_solver(pairwise, kind):
    X, y = random_graphs(1, n=6, most=3, n_features=2, density=0.9, **KINDS[kind])
    more = {"cost_scale": "mean"} if kind == "weights" else {}
    tagger = fitted(X, y, pairwise=pairwise, fit_intercept=kind != "plain", **more)
    assert tagger.oracle_ == "soft" and not tagger.exact_ and tagger.integrality_gap_ is None
    assert 0.0 <= tagger.relative_gap_ <= tagger.tol_
    optimum = soft_optimum(tagger, X, y)
    assert tagger.dual_objective_ - 1e-7 <= optimum <= tagger.primal_objective_ + 1e-7
    # of the strict problem
    history = tagger.history_
    assert objective(tagger, X, y) <= history["objective"][-1] <= tagger.primal_objective_
    relaxed = GraphTagger(
        "max_margin", alpha=ALPHA, inference="lp", pairwise=pairwise, random_state=0, tol=1e-3,
        fit_intercept=tagger.fit_intercept, cost_scale=tagger.cost_scale).fit(X, y)
    assert (history["bound"] <= relaxed.primal_objective_ + 1e-9).all()
    assert relaxed.dual_objective_ <= history["objective"].min() + 1e-9
    assert_allclose(history["relaxed_gap"], history["objective"] - history["bound"])
    assert (history["rho"] == RHO).all()
    assert history["gap"][-1] == tagger.duality_gap_ and history["pass"][-1] == tagger.n_iter_


def test_the_fit_is_that_of_solve_soft():
    X, y = random_graphs(2, n_edge_features=2)
    tagger = fitted(X, y, tol=1e-4)
    kept = X[np.flatnonzero(X.lengths)]
    graphs = FactorGraphs.of_edges(kept.lengths, kept.edges, kept.edge_lengths, 3)
    heights = graphs.heights_of_costs(y.values, 1.0 - np.eye(3))
    found = solve_soft(
        graphs, np.c_[kept.node_features, np.ones(kept.n_nodes)], y.values, heights, alpha=ALPHA,
        rho=RHO, factor_X=np.c_[kept.edge_features, np.ones(kept.n_edges)], max_iter=5000,
        tol=tagger.duality_gap_)
    # either is so near the only optimum
    near = np.sqrt(2.0 * tagger.duality_gap_ / ALPHA) + np.sqrt(2.0 * found.gap / ALPHA)
    weights = np.c_[tagger.coef_, tagger.intercept_[0]]
    pairs = np.concatenate([tagger.edge_coef_, tagger.edge_intercept_]).reshape(3, -1).T
    away = np.sum((weights - found.node_weights) ** 2) + np.sum((pairs - found.factor_weights) ** 2)
    assert np.sqrt(away) <= near < 0.5 * np.linalg.norm(weights)
    assert max(found.dual, tagger.dual_objective_) <= min(found.primal, tagger.primal_objective_)


def test_small_rho_comes_near_the_linear_program():
    X, y = random_graphs(3, labels=2)
    relaxed = GraphTagger(
        "max_margin", alpha=ALPHA, inference="lp", tol=1e-3, random_state=0).fit(X, y)
    excess = [
        fitted(X, y, rho=rho, tol=2e-3).primal_objective_ - relaxed.primal_objective_
        for rho in (10.0, 1.0, 0.01)]
    assert excess[0] > 1.2 * excess[1] > 0 and abs(excess[2]) < 0.1 * excess[1]


def test_formats_and_threads_agree():
    X, y = random_graphs(4, n_edge_features=1)
    one = fitted(X, y, tol=1e-4)
    for change in (sparse.csr_array, lambda values: values.astype(np.float32)):
        other = Graphs(
            change(X.node_features), X.edges, X.node_offsets, X.edge_offsets,
            edge_features=change(X.edge_features))
        assert_same_optimum(one, fitted(other, y, tol=1e-4))
    threads = fitted(X, y, tol=1e-4, n_jobs=2)
    assert (threads.coef_ == one.coef_).all() and threads.n_iter_ == one.n_iter_
    # weights of graphs, and those that repeat
    double = fitted(X[np.r_[np.arange(len(X)), 3]], [*y, y[3]], tol=1e-4)
    weighted = clone(one).fit(X, y, np.where(np.arange(len(X)) == 3, 2.0, 1.0))
    assert_same_optimum(double, weighted)


def test_what_the_fit_tells(tmp_path):
    X, y = random_graphs(5, n_types=2)
    rows = []
    with pytest.warns(ConvergenceWarning, match="certified duality gap"):
        stopped = fitted(X, y, tol=0.0, callback=lambda row: rows.append(row) or len(rows) == 2)
    assert len(rows) == len(stopped.history_["gap"]) == 2
    assert rows[-1] == {name: column[-1] for name, column in stopped.history_.items()}
    assert rows[-1]["oracle_calls"] > rows[-1]["pass"] and rows[-1]["policy"] == "line_search"
    tagger = fitted(X, y, sampling="permutation", accelerate=False)
    with pytest.raises(TypeError, match="SoftGraphTagger cannot be saved"):
        save_model(tagger, tmp_path / "model")
    save_model(tagger.to_lp(), tmp_path / "model")
    found = load_model(tmp_path / "model"), pickle.loads(pickle.dumps(tagger)), tagger.to_lp()
    for again in found:
        assert again.oracle_ == "soft" and again.integrality_gap_ is None
        assert (again.predict(X).values == tagger.predict(X).values).all()
        assert again.duality_gap_ == tagger.duality_gap_
    assert found[1].get_params().keys() == tagger.get_params().keys() and found[1].rho == RHO
    assert type(found[0]) is GraphTagger and found[0].inference == "lp"
    relaxed = GraphTagger(
        "max_margin", inference="lp", alpha=ALPHA, random_state=0, max_iter=5000).fit(X, y)
    for name in ("coef_", "intercept_", "edge_coef_", "edge_intercept_"):
        setattr(relaxed, name, getattr(tagger, name))
    assert (relaxed.predict(X).values == tagger.predict(X).values).all()


@pytest.mark.parametrize("with_features", [False, True])
def test_unusual_graphs(with_features):
    def made(n_nodes, edges, counts, **more):
        if with_features:
            more["edge_features"] = np.ones((len(edges), 1))
        offsets = (np.append(0, np.cumsum(n)) for n in (n_nodes, counts))
        return Graphs(
            np.eye(sum(n_nodes)), np.array(edges, int).reshape(-1, 2), *offsets, **more)

    tagger = fitted(made([1, 1], [], [0, 0]), [[0], [1]], rho=0.1)
    assert tagger.edge_intercept_.shape == (1, 2, 2) and not tagger.edge_intercept_.any()
    # a type of nodes with one label, and a type of edges at nodes without a label alone
    graphs = made(
        [3, 3], [[0, 1], [1, 2], [0, 1], [1, 2]], [2, 2], node_types=[0, 1, 0, 0, 1, 0],
        edge_types=[0, 0, 1, 2])
    tagger = fitted(graphs, [["a", "b", "c"], ["c", "b", -1]], rho=0.1)
    assert tagger.predict(graphs).values.tolist()[:5] == ["a", "b", "c", "c", "b"]
    assert tagger.edge_intercept_.shape == (3, 2, 2) and not tagger.edge_intercept_[2].any()
    # nothing costs anything
    graphs = made([2, 2], [[0, 1], [0, 1]], [1, 1], node_weights=np.zeros(4))
    assert fitted(graphs, [[0, 1], [1, 0]]).primal_objective_ == 0.0


X, Y = random_graphs(6)


@pytest.mark.parametrize("message, call", {
    "pairwise must be one of .*'potts'.*, got 'attractive'": lambda: fitted(
        X, Y, pairwise="attractive"),
    "pairwise must be one of .*, got 'displacement'": lambda: fitted(
        X, Y, pairwise="displacement"),
    "sampling must be one of .*, got 'least'": lambda: fitted(X, Y, sampling="least"),
    "accelerate must be": lambda: fitted(X, Y, accelerate=3),
    "rho must be a finite number > 0, got 0": lambda: fitted(X, Y, rho=0),
    "rho must be a finite number > 0, got nan": lambda: fitted(X, Y, rho=np.nan),
    "inference must be one of .*, got 'soft'": lambda: GraphTagger(
        "max_margin", inference="soft").fit(X, Y),
    "decode='min_risk' weighs the costs": lambda: fitted(X, Y).predict(X, "min_risk"),
    "SoftGraphTagger is not supported by paths": lambda: regularization_path(
        SoftGraphTagger(), X, Y),
}.items())
def test_mistakes(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_soft_fits_have_no_parameters_that_soft_constraints_fix():
    fixed = {
        "surrogate", "inference", "penalty", "warm_start", "solver", "decode", "label_features",
        "grid_shape", "unlabelled", "hidden_states"}
    for soft, plain, more in (
            (SoftGraphTagger, GraphTagger, set()),
            (SoftMultiLabelClassifier, MultiLabelClassifier, {"cache_size"})):
        own = {"rho", "sampling", "accelerate"} | more
        assert soft().get_params().keys() == (plain().get_params().keys() - fixed) | own


def test_pairs_compare_labels_of_one_numbering():
    X = Graphs(np.eye(4), [[0, 1], [0, 1]], [0, 2, 4], [0, 1, 2], node_types=[0, 1, 0, 1])
    y = [[0, 1], [1, 2]]
    assert fitted(X, y).score(X, y) == 1.0
    with pytest.raises(ValueError, match="joins nodes of the types 0 and 1, whose labels differ"):
        fitted(X, y, pairwise="potts")


def test_checkpoints_are_refused(tmp_path):
    with pytest.raises(ValueError, match="keeps no checkpoints"), checkpointing(tmp_path / "fit"):
        fitted(X, Y)


# ------------------------------------------------------------------------------ label sets


@pytest.fixture(scope="module")
def label_sets():
    X, Y = make_multilabel_classification(30, 4, n_classes=4, n_labels=2, random_state=1)
    return X / X.std(), Y


def fitted_sets(X, Y, **parameters):
    return SoftMultiLabelClassifier(**{
        "graph": "complete", "alpha": 0.02, "rho": RHO, "random_state": 0, "max_iter": 5000,
        **parameters}).fit(X, Y)


def exact_objective(clf, X, Y, gram=None):
    """The objective by enumeration of all sets."""
    sets = np.array(list(np.ndindex((2,) * Y.shape[1])))
    both = sets[:, clf.edges_[:, 0]] * sets[:, clf.edges_[:, 1]]
    coef = clf.coef_.T if gram is None else clf.dual_coef_
    scores = (X if gram is None else gram) @ coef
    total = (scores + clf.intercept_) @ sets.T + both @ clf.edge_coef_
    cost = clf.cost_matrix_[Y[:, np.newaxis], sets].sum(axis=2)
    truth = total[np.arange(len(Y)), (Y[:, np.newaxis] == sets).all(axis=2).argmax(axis=1)]
    weights = [clf.edge_coef_]
    if clf.fit_intercept:
        weights.append(clf.intercept_ / clf.fit_intercept)
    squares = np.sum(coef**2) if gram is None else np.sum(coef * scores)
    penalty = 0.5 * clf.alpha * (squares + sum(np.sum(w**2) for w in weights))
    return np.mean((total + cost).max(axis=1) - truth) + penalty


@pytest.mark.parametrize("more", [
    {}, {"fit_intercept": False}, {"fit_intercept": 3.0}, {"alpha": 0.05},
    {"cost": np.array([[0.0, 0.5], [2.0, 0.0]])}, {"graph": "none"}, {"graph": "tree"}])
def test_label_sets(label_sets, more):
    X, Y = label_sets
    clf = fitted_sets(X, Y, **more)
    assert clf.oracle_ == "soft" and not clf.exact_ and clf.integrality_gap_ is None
    history = clf.history_
    assert exact_objective(clf, X, Y) <= history["objective"][-1] <= clf.primal_objective_
    assert 0.0 <= clf.relative_gap_ <= clf.tol_
    relaxed = MultiLabelClassifier(
        "max_margin", inference="lp", tol=1e-4, **{
            name: getattr(clf, name) for name in (
                "graph", "alpha", "fit_intercept", "cost", "random_state")}).fit(X, Y)
    # the smallest relaxed objective lies between these
    assert relaxed.dual_objective_ <= history["objective"].min() + 1e-9
    assert history["bound"].max() <= relaxed.primal_objective_ + 1e-9
    if more.get("graph") == "none":
        assert clf.dual_objective_ <= relaxed.primal_objective_ + 1e-9
        assert relaxed.dual_objective_ <= clf.primal_objective_ + 1e-9
    near = fitted_sets(X, Y, **more, rho=0.01, max_iter=10000)
    assert relaxed.dual_objective_ <= near.primal_objective_
    assert near.dual_objective_ <= clf.primal_objective_
    if not more:
        # min g_rho falls towards it as rho does
        assert near.primal_objective_ - relaxed.dual_objective_ < 0.5 * (
            clf.dual_objective_ - relaxed.primal_objective_)


def test_label_sets_are_fitted_by_solve_soft(label_sets):
    X, Y = label_sets
    clf = fitted_sets(X, Y, tol=1e-4, fit_intercept=2.0, alpha=ALPHA)
    graphs = FactorGraphs.of_pairs(len(X), 4, clf.edges_)
    found = solve_soft(
        graphs, np.c_[X, np.full(len(X), 2.0)], Y.ravel(),
        graphs.heights_of_costs(Y.ravel(), 1.0 - np.eye(2)), alpha=ALPHA, rho=RHO, max_iter=5000,
        tol=clf.duality_gap_)
    near = np.sqrt(2.0 * clf.duality_gap_ / ALPHA) + np.sqrt(2.0 * found.gap / ALPHA)
    weights = np.c_[clf.coef_, clf.intercept_ / 2.0]
    away = np.sum((weights - found.node_weights) ** 2) + np.sum(
        (clf.edge_coef_ - found.factor_weights.ravel()) ** 2)
    assert np.sqrt(away) <= near < 0.5 * np.linalg.norm(weights)
    assert max(found.dual, clf.dual_objective_) <= min(found.primal, clf.primal_objective_)


def test_label_sets_in_other_forms(label_sets, tmp_path):
    X, Y = label_sets
    clf = fitted_sets(X, Y, tol=1e-4)
    other = fitted_sets(sparse.csr_array(X), sparse.csr_array(Y), tol=1e-4)
    assert_same_optimum(clf, other)
    double = fitted_sets(np.r_[X, X[:1]], np.r_[Y, Y[:1]], tol=1e-4)
    weighted = clone(clf).fit(
        X, Y, np.where(np.arange(len(X)) == 0, 2.0, 1.0))
    assert_same_optimum(double, weighted)
    assert double.dual_objective_ > clf.primal_objective_ or (
        double.primal_objective_ < clf.dual_objective_)
    with pytest.raises(TypeError, match="SoftMultiLabelClassifier cannot be saved"):
        save_model(clf, tmp_path / "model")
    save_model(clf.to_lp(), tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.oracle_ == "soft" and (again.predict(X) == clf.predict(X)).all()
    assert clf.score(X, Y) > 0.3 and clf.decision_function(X).shape == Y.shape
    with pytest.raises(ValueError, match="rho must be a finite number > 0, got -1"):
        fitted_sets(X, Y, rho=-1)
    with pytest.raises(ValueError, match="not supported by paths"):
        regularization_path(SoftMultiLabelClassifier(), X, Y)


@pytest.mark.parametrize("more", [
    {}, {"kernel_params": {"gamma": 0.3}, "fit_intercept": 2.0}, {"kernel": "precomputed"},
    {"kernel": "poly", "kernel_params": {"degree": 2}, "fit_intercept": False}])
def test_label_sets_of_kernels(label_sets, more, tmp_path):
    X, Y = label_sets
    parameters = {"kernel": "rbf", **more}
    gram = pairwise_kernels(X, metric="rbf", gamma=0.3)
    X = gram if parameters["kernel"] == "precomputed" else X
    clf = fitted_sets(X, Y, **parameters)
    assert clf.oracle_ == "soft" and clf.dual_coef_.shape == Y.shape
    assert 0.0 <= clf.relative_gap_ <= clf.tol_
    if parameters["kernel"] == "rbf":
        gram = pairwise_kernels(X, metric="rbf", **clf._kernel_parameters)
    elif parameters["kernel"] == "poly":
        gram = pairwise_kernels(X, metric="poly", **clf._kernel_parameters)
    history = clf.history_
    assert exact_objective(clf, X, Y, gram) <= history["objective"][-1] + 1e-12
    assert history["objective"][-1] <= clf.primal_objective_
    # the smallest relaxed objective lies between these
    relaxed = clf.to_lp().fit(X, Y)
    assert relaxed.dual_objective_ <= history["objective"].min() + 1e-9
    assert history["bound"].max() <= relaxed.primal_objective_ + 1e-9
    # predictions are of these weights
    on = clf.predict(X)
    pairs = np.zeros((4, 4))
    pairs[tuple(clf.edges_.T)] = clf.edge_coef_
    np.testing.assert_allclose(
        clf.decision_function(X), gram @ clf.dual_coef_ + clf.intercept_ + on @ (pairs + pairs.T),
        atol=1e-9)
    save_model(clf.to_lp(), tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.predict(X) == on).all()


def test_linear_kernels_are_linear_fits(label_sets):
    X, Y = label_sets
    linear = fitted_sets(X, Y, tol=1e-4)
    kernel = fitted_sets(X @ X.T, Y, tol=1e-4, kernel="precomputed")
    assert max(linear.dual_objective_, kernel.dual_objective_) <= min(
        linear.primal_objective_, kernel.primal_objective_)
    near = sum(np.sqrt(2.0 * clf.duality_gap_ / clf.alpha) for clf in (linear, kernel))
    away = np.linalg.norm(linear.coef_ - kernel.dual_coef_.T @ X)
    assert away <= near


def test_kernels_of_repeated_and_weighted_label_sets(label_sets):
    X, Y = label_sets
    weights = np.where(np.arange(len(X)) == 0, 2.0, np.arange(len(X)) != 3)
    keep = np.flatnonzero(np.arange(len(X)) != 3)
    double = fitted_sets(
        np.r_[X[keep], X[:1]], np.r_[Y[keep], Y[:1]], tol=1e-4, kernel="rbf", gamma=0.5)
    weighted = clone(double).fit(X, Y, weights)
    assert max(double.dual_objective_, weighted.dual_objective_) <= min(
        double.primal_objective_, weighted.primal_objective_)
    assert (weighted.dual_coef_[3] == 0.0).all()
    assert_allclose(double.dual_coef_[0], double.dual_coef_[-1])
    near = sum(np.sqrt(2.0 * clf.duality_gap_ / clf.alpha) for clf in (double, weighted))
    away = np.abs(double.decision_function(X) - weighted.decision_function(X)).max()
    assert away <= 4.0 * near


@pytest.mark.parametrize(("message", "more"), [
    ("Gram matrix of 30 examples takes .*, more than cache_size=0.001: set it",
     {"kernel": "rbf", "cache_size": 0.001}),
    ("X is not symmetric", {"kernel": "precomputed"}),
    ("is not positive semidefinite", {
        "kernel": lambda x, y: float(np.any(x != y)) + 0.1, "fit_intercept": False}),
    ("is not positive semidefinite: K.0, 0. = -1 is a negative", {
        "kernel": lambda x, y: -1.0, "fit_intercept": False}),
])
def test_kernels_that_cannot_be(label_sets, message, more):
    X, Y = label_sets
    if more["kernel"] == "precomputed":
        X = np.triu(np.ones((30, 30)))
    with pytest.raises(ValueError, match=message):
        fitted_sets(X, Y, **more)


@pytest.mark.parametrize("more", [{}, {"kernel": "rbf"}, {"graph": "none"}])
def test_label_sets_under_counts(label_sets, more):
    X, Y = label_sets
    constraints = [CountFactor.budget(range(4), 2), CountFactor.at_least_one([0, 1, 2, 3])]
    kept = np.flatnonzero(Y.any(axis=1) & (Y.sum(axis=1) <= 2))
    X, Y = X[kept], Y[kept]
    clf = fitted_sets(X, Y, constraints=constraints, **more)
    on = clf.predict(X)
    assert on.sum(axis=1).min() >= 1 and on.sum(axis=1).max() <= 2
    exact = clf.to_lp().set_params(inference="exact", tol=1e-4).fit(X, Y)
    # the relaxed objective is no smaller than the exact one
    assert clf.history_["objective"].min() >= exact.dual_objective_ - 1e-9
    if more.get("graph") == "none":
        # the two counts are an integral polytope
        history = fitted_sets(
            X, Y, constraints=constraints, rho=0.01, max_iter=20000, **more).history_
        assert history["bound"].max() <= exact.primal_objective_ + 1e-9
        free = fitted_sets(X, Y, **more)
        assert history["objective"].min() < free.history_["bound"].max()
        assert history["objective"].min() < exact.primal_objective_ + 0.01
    with pytest.raises(ValueError, match="sample 0 are forbidden by constraints.1."):
        fitted_sets(X, np.zeros_like(Y), constraints=constraints)


def test_constraints_of_soft_fits_are_counts(label_sets):
    X, Y = label_sets
    table = ([0, 1], np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"constraints\[1\] is a FactorTables: use CountFactor"):
        fitted_sets(X, Y, constraints=[CountFactor.budget(range(4), 4), table])


@pytest.mark.parametrize("kind", ["plain", "features of edges", "types"])
def test_graphs_under_counts(kind):
    X, y = random_graphs(7, labels=2, **KINDS["plain" if kind == "types" else kind])
    if kind == "types":
        X = Graphs(
            X.node_features, X.edges, X.node_offsets, X.edge_offsets,
            edge_types=np.arange(len(X.edges)) % 2)
    factors = [
        None if labels.size < 2 else [CountFactor(
            range(labels.size), max(0, int(labels.sum()) - 1), int(labels.sum()))]
        for labels in y]
    X = X.with_factors(factors)
    tagger = fitted(X, y, rho=0.1)
    assert tagger.oracle_ == "soft" and 0.0 <= tagger.relative_gap_ <= tagger.tol_
    exact = tagger.to_lp().set_params(inference="exact").fit(X, y)
    # the relaxed objective is no smaller than the exact one
    history = tagger.history_
    assert history["objective"].min() >= exact.dual_objective_ - 1e-9
    assert history["bound"].max() <= history["objective"].min() + 1e-9
    # without counts there are more labellings to be told from the truth
    free = fitted(Graphs(
        X.node_features, X.edges, X.node_offsets, X.edge_offsets, edge_features=X.edge_features,
        edge_types=X.edge_types), y, rho=0.1)
    assert history["objective"].min() < free.history_["objective"].min()
    for labels, of_graph in zip(tagger.predict(X), factors, strict=True):
        if of_graph is not None:
            assert of_graph[0].is_satisfied(labels)


def test_graphs_of_soft_fits_have_counts():
    X, y = random_graphs(7, labels=2)
    b = int(np.argmax(X.lengths))
    table = [([0, 1], np.zeros((2, 2)))]
    with pytest.raises(ValueError, match=f"graph {b}: .* is a FactorTables: use CountFactor"):
        fitted(X.with_factors([table if g == b else None for g in range(len(X))]), y)
    many = [CountFactor([1], 0, 1)]
    with pytest.raises(ValueError, match=rf"graph {b}: factors\[0\] counts node 1, .* 3 labels"):
        fitted(
            X.with_factors([many if g == b else None for g in range(len(X))]),
            [labels + (g == 0) for g, labels in enumerate(y[:-1])] + [y[-1] + 1])
    wrong = [CountFactor([0], 1 - int(y[b][0]), 1 - int(y[b][0]))]
    with pytest.raises(ValueError, match=f"graph {b}: its true labels are forbidden"):
        fitted(X.with_factors([wrong if g == b else None for g in range(len(X))]), y)


def test_calls(label_sets):
    """Each begins anew, with the data of all."""
    options = dict(alpha=ALPHA, random_state=0, tol=1e-2)
    X, y = random_graphs(0, labels=2)
    calls = SoftGraphTagger(**options).partial_fit(X[:6], y[:6], [0, 1]).partial_fit(X[6:], y[6:])
    assert_same_optimum(calls, SoftGraphTagger(**options).fit(X, y))
    X, Y = label_sets
    sets = SoftMultiLabelClassifier(graph="complete", **options)
    calls = clone(sets).partial_fit(X[:6], Y[:6]).partial_fit(X[6:], Y[6:])
    assert_same_optimum(calls, sets.fit(X, Y))
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], Y.shape)
    weighted = clone(sets).fit(X, Y, label_weight=weights)
    assert_same_optimum(weighted, clone(sets).fit(
        np.concatenate([X, X]), np.concatenate([Y, Y]), label_weight=np.tile(weights, (2, 1))))
    assert weighted.primal_objective_ != sets.primal_objective_
    scaled = clone(sets).set_params(cost=[[0, 3.0], [3.0, 0]]).fit(X, Y)
    assert_same_optimum(scaled, clone(sets).fit(X, Y, label_weight=np.full(Y.shape, 3.0)))
