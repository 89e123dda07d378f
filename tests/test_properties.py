"""Contracts that hold for all small problems, with ties, infinities and extreme numbers."""

import itertools

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from draws import examples, forbidding, scores
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from making import made

from fastm4n import LabelRanker, MulticlassClassifier, OrdinalClassifier, SequenceTagger
from fastm4n.data._rankings import as_places, places_to_strings
from fastm4n.inference import (
    linear_assignment,
    project_simplex,
    sum_product,
    viterbi,
    viterbi_kbest,
)

few = examples(30)
many = examples(150)
SURROGATES = ("max_min", "max_margin", "log")



@st.composite
def chains(draw):
    """Scores of a chain of up to four positions and three labels, some of them forbidden."""
    T, R = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    return (draw(arrays(float, (T, R), elements=forbidding)),
            draw(arrays(float, (R, R), elements=forbidding)))


def listed(unary, pairwise):
    T, R = unary.shape
    paths = list(itertools.product(range(R), repeat=T))
    return paths, np.array([
        sum(unary[range(T), path]) + sum(pairwise[path[:-1], path[1:]]) for path in map(
            np.array, paths)])


@many
@given(chains())
def test_paths_of_chains_are_those_of_a_list(chain):
    paths, values = listed(*chain)
    if values.max() == -np.inf:
        with pytest.raises(ValueError, match="finite"):
            viterbi(*chain)
        return
    path, score = viterbi(*chain)
    np.testing.assert_allclose(score, values.max(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(values[paths.index(tuple(path.tolist()))], score, rtol=1e-12, atol=1e-12)

    found, best = viterbi_kbest(*chain, 5)
    found = [tuple(one) for one in np.asarray(found).tolist()]
    assert len(set(found)) == len(found) == min(5, np.sum(values > -np.inf))
    assert (np.diff(best) <= 1e-12 * (1 + np.abs(best[:-1]))).all()
    np.testing.assert_allclose(best, np.sort(values)[::-1][: len(best)], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(
        best, [values[paths.index(one)] for one in found], rtol=1e-12, atol=1e-9)


@many
@given(chains())
def test_marginals_of_chains_are_distributions(chain):
    _, values = listed(*chain)
    if values.max() == -np.inf:
        return
    nodes, edges, log_partition = sum_product(*chain)
    assert (nodes >= 0).all() and (edges >= 0).all()
    np.testing.assert_allclose(nodes.sum(axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose(edges.sum(axis=2), nodes[:-1], atol=1e-9)
    np.testing.assert_allclose(edges.sum(axis=1), nodes[1:], atol=1e-9)
    top = values.max()
    np.testing.assert_allclose(
        log_partition, top + np.log(np.sum(np.exp(values - top))), rtol=1e-10, atol=1e-9)


@many
@given(st.integers(1, 4), st.integers(1, 4), st.data())
def test_assignments_are_certified_by_their_potentials(M, N, data):
    costs = st.one_of(scores, st.just(np.inf))
    cost = data.draw(arrays(float, (M, N), elements=costs))
    flat = cost if M <= N else cost.T
    totals = [
        flat[range(len(flat)), list(columns)].sum()
        for columns in itertools.permutations(range(flat.shape[1]), len(flat))]
    if min(totals) == np.inf:
        with pytest.raises(ValueError, match="assignment"):
            linear_assignment(cost)
        return
    rows, columns, u, v = linear_assignment(cost, return_potentials=True)
    assert len(set(columns.tolist())) == len(columns) == min(M, N)
    scale = 1e-9 * (1 + np.abs(cost[np.isfinite(cost)]).max())
    np.testing.assert_allclose(cost[rows, columns].sum(), min(totals), atol=scale)
    assert (u[:, np.newaxis] + v <= cost + scale).all()
    np.testing.assert_allclose((u[rows] + v[columns]), cost[rows, columns], atol=scale)


@many
@given(arrays(float, st.integers(1, 6), elements=scores))
def test_projections_on_the_simplex_are_the_nearest_points(v):
    p = project_simplex(v)
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-9)
    # the nearest point: no other corner is in the direction of v - p
    slope = v - p
    assert (slope <= slope @ p + 1e-9 * (1 + np.abs(v).max())).all()


@many
@given(st.permutations(list("abcde")), st.integers(1, 5), st.data())
def test_rankings_are_read_as_they_are_written(items, size, data):
    items = items[:size]
    places = np.array([data.draw(st.permutations(range(size))) for _ in range(3)])
    again, names = as_places(places_to_strings(places, items))
    assert names.tolist() == sorted(items)
    np.testing.assert_array_equal(again, places[:, np.argsort(items)])


# ---------------------------------------------------------------------------- estimators

numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, -3.0])


def problem(cls, seed, X):
    """Features and outputs of an estimator, of an array of small numbers."""
    rng = np.random.default_rng(seed)
    if cls is SequenceTagger:
        y = rng.integers(2, size=len(X)).tolist()
        return [X[:2], X[2:3], X[3:]], [y[:2], y[2:3], y[3:]]
    if cls is LabelRanker:
        return X, np.array([rng.permutation(3) for _ in X])
    return X, np.append(rng.integers(3, size=len(X) - 3), [0, 1, 2])


def fitted(cls, surrogate, X, y, **options):
    options = {"alpha": 0.1, "tol": 1e-3, "random_state": 0, **options}
    weights = options.pop("sample_weight", None)
    return made(cls, surrogate, **options).fit(X, y, weights)


def assert_same_optimum(one, other):
    """Certified intervals of one optimum meet."""
    rounding = 1e-9 * (1 + abs(one.primal_objective_))
    assert one.dual_objective_ <= other.primal_objective_ + rounding
    assert other.dual_objective_ <= one.primal_objective_ + rounding


ESTIMATORS = (MulticlassClassifier, OrdinalClassifier, SequenceTagger, LabelRanker)
cases = pytest.mark.parametrize("cls", ESTIMATORS), pytest.mark.parametrize("surrogate", SURROGATES)


@cases[0]
@cases[1]
@examples(3)
@given(X=arrays(float, (6, 2), elements=numbers), seed=st.integers(0, 9))
def test_optima_do_not_depend_on_how_a_problem_is_written(cls, surrogate, X, seed):
    X, y = problem(cls, seed, X)
    one = fitted(cls, surrogate, X, y)
    assert one.dual_objective_ <= one.primal_objective_ + 1e-12
    assert 0 <= one.duality_gap_ <= one.primal_objective_ - one.dual_objective_ + 1e-12
    n = len(X)
    order = np.random.default_rng(seed).permutation(n)

    def take(values, at):
        return [values[i] for i in at] if isinstance(values, list) else values[at]

    # in another order
    assert_same_optimum(one, fitted(cls, surrogate, take(X, order), take(y, order)))
    # an example twice is an example of weight 2
    twice = np.append(np.arange(n), 0)
    assert_same_optimum(
        fitted(cls, surrogate, take(X, twice), take(y, twice)),
        fitted(cls, surrogate, X, y, sample_weight=np.append(2.0, np.ones(n - 1))))
    # features and weights to scale: without the intercept, which is not scaled
    if cls is not SequenceTagger:  # nor are transitions
        assert_same_optimum(
            fitted(cls, surrogate, X, y, fit_intercept=False),
            fitted(cls, surrogate, 4.0 * X, y, alpha=16 * 0.1, fit_intercept=False))
    # in threads, to the bit
    threads = fitted(cls, surrogate, X, y, n_jobs=2)
    assert threads.primal_objective_ == one.primal_objective_
    np.testing.assert_array_equal(threads.coef_, one.coef_)


@cases[1]
@examples(5)
@given(X=arrays(float, (6, 2), elements=numbers), seed=st.integers(0, 9))
def test_names_of_classes_do_not_matter(surrogate, X, seed):
    X, y = problem(MulticlassClassifier, seed, X)
    names = np.array(["x", "y", "z"])
    one, other = (fitted(MulticlassClassifier, surrogate, X, labels) for labels in (y, names[y]))
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(names[one.predict(X)], other.predict(X))
