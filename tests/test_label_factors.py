"""Constraints and factors of `MultiLabelClassifier`, against enumeration of the sets they allow."""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import GridSearchCV, cross_val_predict

from fastm4n import (
    CountFactor,
    FactorTables,
    MultiLabelClassifier,
    load_model,
    regularization_path,
    save_model,
)

SURROGATES = ("max_margin", "max_min", "log")
GRAPHS = ("none", "tree", "complete")
# label 1 only with label 0
IMPLIED = FactorTables([1, 0], [0, 2], [[[0.0, 0.0], [-np.inf, 0.0]]])
CONSTRAINTS = {
    "budget": CountFactor.budget(range(4), 2),
    "implied": IMPLIED,
    "several": [IMPLIED, CountFactor.at_least_one([1, 2, 3]),
                ([0, 2, 3], np.where(np.indices((2, 2, 2)).sum(axis=0) == 3, -np.inf, 0.0))],
}
SCORES = [CountFactor.budget([1, 2, 3], 2),
          ([0, 1, 2], np.random.default_rng(0).normal(size=(2, 2, 2)))]
EVERY = np.array(list(itertools.product([0, 1], repeat=4)))


def as_list(factors):
    factors = factors if isinstance(factors, list) else [factors]
    return [FactorTables.from_list([f]) if isinstance(f, tuple) else f for f in factors]


def factor_scores(factors):
    """What each set scores in factors."""
    return np.array([sum(f.score(row) for f in as_list(factors)) for row in EVERY])


def totals(clf, X, factors=()):
    """Scores of all sets, -inf for those that are forbidden."""
    both = EVERY[:, clf.edges_[:, 0]] * EVERY[:, clf.edges_[:, 1]]
    found = (X @ clf.coef_.T + clf.intercept_) @ EVERY.T + both @ clf.edge_coef_
    return found + factor_scores(as_list(factors)) if factors else found


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(80, 5, n_classes=4, n_labels=2, random_state=1)
    return X / X.std(), Y


def allowed_data(data, name):
    X, Y = data
    allowed = EVERY[factor_scores(CONSTRAINTS[name]) == 0.0]
    kept = (Y[:, np.newaxis] == allowed).all(axis=2).any(axis=1)
    assert 20 < kept.sum() < 80
    return X[kept], Y[kept]


def fit(X, Y, surrogate="max_margin", graph="tree", **parameters):
    parameters = {
        "alpha": 0.05, "fit_intercept": True, "decode": "map", "tol": 1e-3, "random_state": 0,
        **parameters}
    return MultiLabelClassifier(surrogate, graph=graph, **parameters).fit(X, Y)


def loss_of(surrogate, total, truth, cost, adversary=EVERY):
    own = total[(EVERY == truth).all(axis=1)][0]
    if surrogate == "log":
        return np.logaddexp.reduce(total) - own
    kept = total > -np.inf
    total, sets = total[kept], EVERY[kept]
    if surrogate == "max_margin":
        return (total + cost[truth, sets].sum(axis=1)).max() - own
    table = cost[sets[:, np.newaxis], adversary].sum(axis=2)
    n = len(sets)
    found = linprog(
        np.append(-total, -1.0), A_ub=np.column_stack([-table.T, np.ones(len(adversary))]),
        b_ub=np.zeros(len(adversary)), A_eq=np.append(np.ones(n), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)])
    return -found.fun - own


@pytest.mark.parametrize(
    ("surrogate", "graph", "name"), covering(itertools.product(SURROGATES, GRAPHS, CONSTRAINTS)))
def test_fits(data, surrogate, graph, name):
    X, Y = allowed_data(data, name)
    given = CONSTRAINTS[name]
    cost = np.array([[0.0, 0.5], [2.0, 0.0]])
    clf = fit(X, Y, surrogate, graph, constraints=given, cost=cost)
    assert clf.oracle_ == "few_states" and clf.exact_ and clf.integrality_gap_ == 0.0
    scores = totals(clf, X, as_list(given))
    losses = [loss_of(surrogate, *row, cost) for row in zip(scores, Y, strict=True)]
    norm = sum(np.sum(np.square(w)) for w in (clf.coef_, clf.intercept_, clf.edge_coef_))
    value = np.mean(losses) + 0.5 * clf.alpha * norm
    slack = clf.duality_gap_ if surrogate == "max_min" else 0.0
    assert_allclose(value, clf.primal_objective_, atol=slack + 1e-8)
    close = fit(X, Y, surrogate, graph, constraints=given, cost=cost, tol=1e-4, max_iter=5000)
    assert clf.primal_objective_ - clf.duality_gap_ <= close.primal_objective_
    # without constraints there is more to lose
    free = fit(X, Y, surrogate, graph, cost=cost)
    assert free.primal_objective_ > close.dual_objective_ + 1e-4
    predicted = clf.predict(X)
    assert_allclose(scores.max(axis=1), scores[np.arange(len(X)), predicted @ [8, 4, 2, 1]])
    if surrogate == "max_min":
        # an adversary that has to keep to the constraints does no better than one that has not
        allowed = EVERY[factor_scores(given) == 0.0]
        kept = [loss_of(surrogate, *row, cost, allowed) for row in zip(scores, Y, strict=True)]
        assert (np.array(kept) >= np.array(losses) - 1e-9).all()


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("inference", ["auto", "lp"])
def test_predictions(data, surrogate, graph, inference):
    X, Y = data
    if surrogate == "log" and inference == "lp" and graph != "none":
        inference = "forest" if graph == "tree" else "exact"
    clf = fit(X, Y, surrogate, graph, inference=inference)
    scores = totals(clf, X, SCORES)
    predicted, bound = clf.predict(X, return_bound=True, factors=SCORES)
    assert (predicted != clf.predict(X)).any()
    assert_allclose(bound, 0.0, atol=1e-9)
    assert_allclose(scores[np.arange(len(X)), predicted @ [8, 4, 2, 1]], scores.max(axis=1))
    if surrogate == "log":
        labels, pairs = clf.predict_marginals(X, factors=SCORES)
        p = np.exp(scores - np.logaddexp.reduce(scores, axis=1)[:, np.newaxis])
        assert_allclose(labels, p @ EVERY, atol=1e-9)
        a, b = clf.edges_.T
        assert_allclose(pairs, p @ (EVERY[:, a] * EVERY[:, b]), atol=1e-9)
        cost = np.array([[0.0, 0.5], [2.0, 0.0]])
        clf.cost_matrix_ = cost
        chosen = clf.predict(X, "min_risk", factors=SCORES)
        assert (chosen != predicted).any()
        risks = (labels[:, np.newaxis] * cost[1, EVERY] + (1.0 - labels[:, np.newaxis])
                 * cost[0, EVERY]).sum(axis=2)
        risks[:, factor_scores(SCORES) == -np.inf] = np.inf
        assert_allclose(
            risks[np.arange(len(X)), chosen @ [8, 4, 2, 1]], risks.min(axis=1), atol=1e-9)
    elif surrogate == "max_min":
        chosen = clf.predict(X, "min_risk", factors=SCORES)
        assert (factor_scores(SCORES)[chosen @ [8, 4, 2, 1]] > -np.inf).all()


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_decision_function(data, name):
    X, Y = allowed_data(data, name)
    for graph in GRAPHS:
        clf = fit(X, Y, graph=graph, constraints=CONSTRAINTS[name])
        scores = totals(clf, X, as_list(CONSTRAINTS[name]))
        margins = clf.decision_function(X)
        for label in range(4):
            on = EVERY[:, label] == 1
            expected = scores[:, on].max(axis=1) - scores[:, ~on].max(axis=1)
            assert_allclose(margins[:, label], expected, atol=1e-9)
    # a label that is always off
    clf = fit(X, np.where(np.arange(4) == 2, 0, Y), constraints=([2], [0.0, -np.inf]))
    assert (clf.decision_function(X)[:, 2] == -np.inf).all()
    assert np.isfinite(clf.decision_function(X)[:, [0, 1, 3]]).all()


def test_many_labels():
    """A budget over a tree of 60 labels: counts go along its edges."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 8))
    scores = X @ rng.normal(size=(8, 60))
    Y = (scores >= np.sort(scores, axis=1)[:, [-4]]).astype(int)
    clf = fit(X, Y, constraints=CountFactor.budget(range(60), 4), tol=0.05)
    predicted = clf.predict(rng.normal(size=(30, 8)))
    assert predicted.sum(axis=1).max() == 4
    assert clf.oracle_ == "few_states"
    with pytest.raises(ValueError, match="the graph of the labels has too many states"):
        fit(X, Y, graph="complete", constraints=CountFactor.budget(range(60), 4))


def test_the_contract(data, tmp_path):
    X, Y = allowed_data(data, "several")
    given = CONSTRAINTS["several"]
    clf = fit(X, Y, constraints=given, warm_start=True)
    assert clf.get_params()["constraints"] is given
    again = clone(clf).fit(X, Y)
    assert (again.coef_ == clf.coef_).all()
    assert "constraints=[FactorTables" in repr(clf)
    passes = clf.n_iter_
    assert clf.fit(X, Y).n_iter_ < passes
    clf.set_params(constraints=IMPLIED)
    assert clf.fit(X, Y).n_iter_ == fit(X, Y, constraints=IMPLIED).n_iter_
    for constraints in (given, CountFactor([0, 2], 0, 2, np.array([True, False])), (
            [0], [0.0, 0.0])):
        clf = fit(X, Y, constraints=constraints)
        save_model(clf, tmp_path / "model.fastm4n")
        for other in (load_model(tmp_path / "model.fastm4n"), pickle.loads(pickle.dumps(clf))):
            assert (other.predict(X) == clf.predict(X)).all()
            assert_allclose(other.decision_function(X), clf.decision_function(X))
            assert (other.fit(X, Y).coef_ == clf.coef_).all()
    path = regularization_path(clone(clf).set_params(constraints=given), X, Y, eps=0.3)
    found = path.predict(X, 0.05)
    assert (factor_scores(given)[found @ [8, 4, 2, 1]] == 0.0).all()
    found = cross_val_predict(clone(clf).set_params(constraints=given), X, Y, cv=3)
    assert (factor_scores(given)[found @ [8, 4, 2, 1]] == 0.0).all()
    search = GridSearchCV(clone(clf), {"constraints": [None, IMPLIED]}, cv=2).fit(X, Y)
    assert search.best_params_["constraints"] in (None, IMPLIED)
    weights = np.where(np.arange(len(X)) % 2, 2.0, 1.0)
    twice = np.append(np.arange(len(X)), np.flatnonzero(weights == 2.0))
    clf = clone(clf).set_params(constraints=given)
    weighted = clone(clf).fit(X, Y, weights)
    assert_allclose(weighted.coef_, clf.fit(X[twice], Y[twice]).coef_, rtol=1e-12, atol=1e-14)


def test_damaged_files(data, tmp_path):
    import json

    X, Y = allowed_data(data, "budget")
    from fastm4n.models._state import estimator_from_state, estimator_state

    state, arrays = estimator_state(fit(X, Y, constraints=CONSTRAINTS["budget"]))
    assert estimator_from_state(state, arrays).constraints.most == 2
    factor = state["parameters"]["constraints"]
    for change in (
        {"factor": ["Count", factor["factor"][1]]}, {"factor": ["CountFactor", {}]},
        {"factor": "CountFactor"}, {"factor": ["CountFactor", {**factor["factor"][1], "most": 99,
                                                              "least": 50}]},
    ):
        damaged = json.loads(json.dumps(state))
        damaged["parameters"]["constraints"] = change
        with pytest.raises((ValueError, TypeError, KeyError)):
            estimator_from_state(damaged, arrays)


@pytest.mark.parametrize(("constraints", "message"), [
    (CountFactor.budget([0, 4], 1), r"constraints\[0\] has node 4, but there are 4 nodes"),
    (CountFactor.budget([0, 1, 2, 3], 1),
     r"the labels of sample \d+ are forbidden by constraints\[0\], CountFactor\(nodes=\[0, 1"),
    (([0], [0.0, 1.0]), "constraints: table 0 of FactorTables.* has a score of 1. In fits"),
    (([0], [0.0, 0.0, 0.0]), "the graph of the labels: .* has a table of shape"),
    (3, "constraints must be a FactorTables"),
    ([CountFactor([0], 1, 1), CountFactor([0], 0, 0)], "forbidden by"),
])
def test_constraints_that_cannot_be(data, constraints, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(*data, constraints=constraints)


def test_refusals(data):
    X, Y = data
    for inference in ("forest", "min_cut", "lp"):
        with pytest.raises(ValueError, match=f"inference='{inference}' finds best sets without"):
            fit(X, Y, inference=inference, constraints=CountFactor([0, 1], 0, 2))
    clf = fit(X, Y)
    with pytest.raises(ValueError, match=r"factors\[1\] has node 9"):
        clf.predict(X, factors=[CountFactor([0], 0, 1), CountFactor([9], 0, 1)])
    with pytest.raises(ValueError, match="the factors of the graph of the labels allow no"):
        clf.predict(X, factors=[CountFactor([0], 1, 1), CountFactor([0], 0, 0)])
    assert (clf.predict(X, factors=[]) == clf.predict(X)).all()
    none = fit(X, Y, constraints=[])
    assert none.oracle_ == clf.oracle_ and (none.coef_ == clf.coef_).all()
