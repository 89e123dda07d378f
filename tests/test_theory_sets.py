"""Complexities and margins of label sets, against enumeration."""

from itertools import product

import numpy as np
import pytest
from theory_cases import as_matrix, exact

from fastm4n import MultiLabelClassifier
from fastm4n.research.theory import factor_graph_complexity, margins
from fastm4n.research.theory._models import ReadModel

SETS = {
    "tree": dict(graph="tree"), "none": dict(graph="none"), "pairs": dict(graph=[[0, 2], [1, 2]]),
    "no intercept": dict(graph="tree", fit_intercept=False),
    "constant": dict(graph="none", fit_intercept=2.0),
    "costs": dict(graph="complete", cost=[[0, 1.0], [2.5, 0]]),
    "costs alone": dict(graph="none", cost=[[0, 1.0], [2.5, 0]]),
}


def set_features(x, labels, model):
    out = {}
    for label in range(len(labels)):
        for j, value in enumerate(x):
            out["coef", j, label] = value * labels[label]
        if model.fit_intercept:
            out["intercept", 0, label] = float(model.fit_intercept) * labels[label]
    for a, b in model.edges_:
        out["edge", a, b] = float(labels[a] * labels[b])
    return out


@pytest.mark.parametrize("case", SETS)
def test_label_sets(case):
    rng = np.random.default_rng(14)
    k, m = 3, 2
    X = rng.normal(size=(30, 2)).round(2)
    Y = ((X @ rng.normal(size=(2, k)) + 0.5 * rng.normal(size=(30, k))) > 0).astype(int)
    model = MultiLabelClassifier(max_iter=50, tol=1e-2, random_state=0, **SETS[case]).fit(X, Y)
    few = X[:m]
    found = factor_graph_complexity(model, few, n_draws=400, random_state=0)["parts"]
    # the off value of a factor has no features
    n_factors = k + len(model.edges_)
    listed = []
    for x in few:
        full = set_features(x, np.ones(k), model)
        for label in range(k):
            listed.append((n_factors, {
                name: value for name, value in full.items()
                if name[0] != "edge" and name[2] == label}))
        listed += [(n_factors, {name: 1.0}) for name in full if name[0] == "edge"]
    truth = exact(listed, m)
    for norm, value in truth.items():
        estimate = found.norms[norm]
        assert estimate.closed_form >= value * (1 - 1e-12), norm
        assert abs(estimate.monte_carlo - value) < 4.5 * estimate.standard_error + 1e-12, norm
    rows, names = as_matrix(listed)
    assert found.n_weights == len(names) and found.mean_factors == n_factors
    assert found.norms["l2"].closed_form == pytest.approx(np.sqrt((rows**2).sum()) / m)
    assert found.r_2 == pytest.approx(max(
        np.sqrt(sum(value**2 for value in psi.values())) for _, psi in listed))

    read = ReadModel(model, X)
    W, sets = read.weights(), np.array(list(product(range(2), repeat=k)))
    scores = model._decoder(X).scores @ sets.T
    for edge, weight in zip(model.edges_, model.edge_coef_, strict=True):
        scores = scores + weight * sets[:, edge[0]] * sets[:, edge[1]]
    of_truth = scores[np.arange(30), (Y @ [4, 2, 1])]
    assert (W * read.factors.truth_sums(Y.ravel())).sum() == pytest.approx(of_truth.sum())
    psis = [set_features(X[0], labels, model) for labels in sets]
    table = np.array([list(psi.values()) for psi in psis])
    distances = np.linalg.norm(table[:, np.newaxis] - table, axis=2)
    assert distances.max() <= read.factors.reach()[0] * (1 + 1e-12)

    C = model.cost_matrix_
    for loss in ("mean", "sum", "zero_one"):
        at = margins(model, X, Y, loss=loss)
        for i in range(30):
            other = (sets != Y[i]).any(axis=1)
            gaps = of_truth[i] - scores[i, other]
            costs = C[Y[i], sets[other]].sum(axis=1) / (k if loss == "mean" else 1)
            costs = np.ones(len(costs)) if loss == "zero_one" else costs
            assert at.margin[i] == pytest.approx(gaps.min())
            assert at.additive(0.7)[i] == pytest.approx((costs - gaps / 0.7).max())
            assert at.multiplicative(0.7)[i] == pytest.approx((costs * (1 - gaps / 0.7)).max())
        assert at.max_loss == (1.0 if loss == "zero_one" else C.max() * (k if loss == "sum" else 1))


def test_label_sets_that_are_too_large_are_refused():
    rng = np.random.default_rng(15)
    X, Y = rng.normal(size=(20, 2)), rng.integers(0, 2, (20, 13))
    options = dict(max_iter=2, tol=0.9, random_state=0)
    with pytest.raises(NotImplementedError, match="sets of 13 labels with pairs"):
        margins(MultiLabelClassifier(**options).fit(X, Y), X, Y)
    alone = MultiLabelClassifier(graph="none", **options).fit(X, Y)
    assert margins(alone, X, Y).margin.shape == (20,)
    with pytest.raises(ValueError, match="y has 5 rows, but X has 20"):
        margins(alone, X, Y[:5])
