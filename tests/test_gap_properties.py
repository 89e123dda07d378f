"""Certified gaps: no other weights have an objective that is lower by more, all outputs listed."""

import copy
import itertools

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from draws import examples
from graph_cases import objective as graph_objective
from graph_cases import random_graphs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog
from scipy.special import logsumexp

from fastm4n import (
    GraphTagger,
    LabelRanker,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
)

SURROGATES = ("max_min", "max_margin", "log")
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -3.0])
N, K = 5, 3


class Single:
    """One of K classes or levels, whose names are their numbers."""

    outputs = np.arange(K)[:, np.newaxis]

    def draw(self, rng):
        return np.append(rng.integers(K, size=N - K), range(K))

    def totals(self, scores, edges, weights):
        return scores

    def costs(self, cost, scale):
        return cost  # of one part: its mean is its sum

    def rows(self, y):
        return y.reshape(len(y), -1)


class Thresholds(Single):
    """Sets of the thresholds between K levels."""

    outputs = np.array(list(itertools.product([0, 1], repeat=K - 1)))

    def totals(self, scores, edges, weights):
        return scores @ self.outputs.T

    def costs(self, cost, scale):
        return np.abs(self.outputs[:, np.newaxis] - self.outputs).sum(axis=2)

    def rows(self, y):
        return (y[:, np.newaxis] > np.arange(K - 1)).astype(int)


class Places(Single):
    """Places of K items."""

    outputs = np.array(list(itertools.permutations(range(K))))

    def draw(self, rng):
        return np.array([rng.permutation(K) for _ in range(N)])

    def totals(self, scores, edges, weights):
        return scores[:, range(K), self.outputs].sum(axis=2)

    def costs(self, cost, scale):
        parts = cost[self.outputs[:, np.newaxis], self.outputs]
        return parts.mean(axis=2) if scale == "mean" else parts.sum(axis=2)


class Sets(Places):
    """Sets of K labels."""

    outputs = np.array(list(itertools.product([0, 1], repeat=K)))

    def draw(self, rng):
        return rng.integers(2, size=(N, K))

    def totals(self, scores, edges, weights):
        both = self.outputs[:, edges[:, 0]] * self.outputs[:, edges[:, 1]]
        return scores @ self.outputs.T + both @ weights


CASES = {
    MulticlassClassifier: Single(), OrdinalClassifier: Single(), LabelRanker: Places(),
    MultiLabelClassifier: Sets()}


def loss(surrogate, total, truth, costs):
    """Of one example, from the scores of all outputs and what they cost each other."""
    if surrogate == "log":
        return logsumexp(total) - total[truth]
    if surrogate == "max_margin":
        return (total + costs[truth]).max() - total[truth]
    # a distribution p over outputs, and z, no more than any answer costs on average
    m = len(total)
    found = linprog(
        -np.append(total, 1.0), A_ub=np.hstack([-costs.T, np.ones((m, 1))]), b_ub=np.zeros(m),
        A_eq=np.append(np.ones(m), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)], method="highs")
    return -found.fun - total[truth]


def weights_of(model):
    return [getattr(model, name) for name in ("coef_", "intercept_", "edge_coef_")
            if hasattr(model, name)]


def objective(case, model, X, y, weights):
    """mean loss + alpha / 2 ||w||^2 of these weights."""
    coef, intercept, *edge_coef = weights
    scores = np.tensordot(X, coef, axes=(1, coef.ndim - 1)) + intercept
    total = case.totals(scores, getattr(model, "edges_", None), *edge_coef or [None])
    costs = case.costs(model.cost_matrix_, getattr(model, "cost_scale", "sum"))
    truth = [np.flatnonzero((case.outputs == row).all(axis=1))[0] for row in case.rows(y)]
    losses = [loss(model.surrogate, *of, costs) for of in zip(total, truth, strict=True)]
    return np.mean(losses) + 0.5 * model.alpha * sum(np.sum(np.square(w)) for w in weights)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("cls", CASES)
@examples(5)
@given(
    X=arrays(float, (N, 2), elements=numbers), seed=st.integers(0, 99),
    alpha=st.sampled_from([0.01, 0.1, 1.0, 30.0]), max_iter=st.sampled_from([1, 2, 5, 200]),
    shift=arrays(float, 4, elements=numbers), size=st.sampled_from([1e-3, 0.1, 1.0]),
    data=st.data())
def test_no_weights_are_better_by_more_than_the_gap(
        cls, surrogate, X, seed, alpha, max_iter, shift, size, data):
    rng, case = np.random.default_rng(seed), CASES[cls]
    y = case.draw(rng)
    options = {"alpha": alpha, "random_state": 0}
    if cls is LabelRanker:
        options["cost_scale"] = data.draw(st.sampled_from(["sum", "mean"]))
    if cls is OrdinalClassifier:
        options["fit_intercept"] = True
    if cls is MultiLabelClassifier:
        options["graph"] = data.draw(st.sampled_from(["none", "tree", "complete"]))
        options["fit_intercept"] = True
    else:
        options["cost"] = data.draw(st.sampled_from(["zero_one", "absolute", "squared"]))
    if cls is OrdinalClassifier and options["cost"] == "absolute":
        case = Thresholds()
    model = cls(surrogate, tol=1e-3, max_iter=max_iter, **options).fit(X, y)
    closest = cls(surrogate, tol=1e-5, **options).fit(X, y)
    weights = weights_of(model)
    P = objective(case, model, X, y, weights)
    rounding = 1e-8 * (1.0 + abs(P))
    # oracles of max-min end with bounds, which are above what they bound by a share of the gap
    slack = model.duality_gap_ if surrogate == "max_min" else 0.0
    assert P - rounding <= model.primal_objective_ <= P + slack + rounding
    assert 0.0 <= model.duality_gap_
    others = [
        weights_of(closest), [np.zeros_like(w) for w in weights],
        [w + size * rng.choice(shift, size=w.shape) for w in weights],
        [w * (1.0 + size) for w in weights]]
    for other in others:
        found = objective(case, model, X, y, other)
        assert P - model.duality_gap_ <= found + rounding
        assert model.dual_objective_ <= found + rounding
    # the intervals of one optimum meet
    assert model.dual_objective_ <= closest.primal_objective_ + rounding
    assert closest.dual_objective_ <= model.primal_objective_ + rounding


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
@examples(10)
@given(
    seed=st.integers(0, 99), labels=st.integers(2, 3),
    pairwise=st.sampled_from(["full", "potts", "attractive"]),
    inference=st.sampled_from(["auto", "lp"]), max_iter=st.sampled_from([1, 3, 300]),
    size=st.sampled_from([0.01, 0.3]))
def test_gaps_of_relaxations_bound_the_exact_objective(
        surrogate, seed, labels, pairwise, inference, max_iter, size):
    """A relaxed objective is nowhere below the exact one, and above it by what is certified."""
    X, y = random_graphs(seed, n=5, labels=labels, most=3, density=1.0)
    tagger = GraphTagger(
        surrogate, alpha=0.1, pairwise=pairwise, inference=inference, random_state=0,
        max_iter=max_iter).fit(X, y)
    P = graph_objective(tagger, X, y)
    rounding = 1e-6 * (1.0 + abs(P))
    assert P <= tagger.primal_objective_ + rounding
    if tagger.integrality_gap_ is not None:
        slack = tagger.duality_gap_ if surrogate == "max_min" else 0.0
        assert tagger.primal_objective_ - tagger.integrality_gap_ - slack <= P + rounding
    if not tagger.exact_ or pairwise == "attractive":
        return  # the dual is of the relaxed objective; weights of edges are not negative
    rng = np.random.default_rng(seed)
    other = copy.deepcopy(tagger)
    for name in ("coef_", "intercept_", "edge_coef_", "edge_intercept_"):
        weights = getattr(tagger, name)
        setattr(other, name, weights + size * rng.choice([-1.0, 0.0, 1.0], size=weights.shape))
    assert tagger.dual_objective_ <= graph_objective(other, X, y) + rounding
