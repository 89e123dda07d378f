"""LabelRanker and Matcher: certificates, probabilities and decisions, by listing permutations."""


import itertools

import numpy as np
import pytest
from covering import covering
from estimator_cases import ASYMMETRIC, CASES, SURROGATES, pairs, rankings
from numpy.testing import assert_allclose, assert_array_equal
from permutation_cases import all_permutations
from scipy.special import softmax
from sklearn.metrics.pairwise import pairwise_kernels

from fastm4n.inference import max_min_permutation

COSTS = ("zero_one", "absolute", "squared")
RANKER, MATCHER = CASES["LabelRanker"], CASES["Matcher"]


def flat(parts):
    return np.concatenate([np.reshape(part, (-1, np.shape(part)[-1])) for part in parts])


# features of scores, and what a penalty weighs


def ranked(surrogate, M, n, kernel, **parameters):
    """A fit, the Gram matrix of its scores, and the square of the norm of its weights."""
    X, y = rankings(n, d=2, M=M, seed=1)
    ranker = RANKER.fit(
        surrogate, X=X, y=y, kernel=kernel, gamma=0.5, fit_intercept=1.5, **parameters)
    K = pairwise_kernels(X, metric=kernel, filter_params=True, gamma=0.5) + 1.5**2
    gram = np.kron(K, np.eye(M * M))
    if kernel == "linear":
        return ranker, X, y, gram, None, np.sum(ranker.coef_**2) + np.sum(
            (ranker.intercept_ / 1.5) ** 2)
    beta = ranker.dual_coef_.ravel()
    return ranker, X, y, gram, beta, beta @ gram @ beta


def matched(surrogate, sizes, kernel, **parameters):
    X, y = pairs(sizes, d=2, seed=1)
    rng = np.random.default_rng(0)
    X = [x + 1e-6 * rng.normal(size=x.shape) for x in X]  # no two pairs the same
    matcher = MATCHER.fit(surrogate, X=X, y=y, kernel=kernel, gamma=0.2, **parameters)
    gram = pairwise_kernels(flat(X), metric=kernel, filter_params=True, gamma=0.2)
    if kernel == "linear":
        scores = np.concatenate([part.ravel() for part in matcher.decision_function(X)])
        assert_allclose(scores, flat(X) @ matcher.coef_, atol=1e-12)
        return matcher, X, y, gram, None, np.sum(matcher.coef_**2)
    # the blocks have an order of their own
    rows = [np.flatnonzero((matcher.X_fit_ == x).all(axis=1))[0] for x in flat(X)]
    assert_array_equal(np.sort(rows), np.arange(len(rows)))
    beta = matcher.dual_coef_[rows]
    return matcher, X, y, gram, beta, beta @ gram @ beta


SIZES = [
    (ranked, {"M": 2, "n": 8}, 8), (ranked, {"M": 3, "n": 5}, 5), (ranked, {"M": 4, "n": 3}, 3),
    (matched, {"sizes": (2,) * 6}, 6), (matched, {"sizes": (3,) * 4}, 4),
    (matched, {"sizes": (1, 2, 3, 4)}, 4), (matched, {"sizes": (4, 4)}, 2)]


@pytest.mark.parametrize(("number", "surrogate", "cost", "kernel"), covering(
    itertools.product(range(len(SIZES)), SURROGATES, COSTS, ("linear", "rbf"))))
def test_certificates(permutation_problem, number, surrogate, cost, kernel):
    """Both objectives from the fitted attributes, and the optimum, by listing permutations."""
    fit, size, n = SIZES[number]
    weights = np.arange(1.0, n + 1)
    optimum = None  # the same for both tolerances
    for tol in (0.1, 2e-3 if fit is ranked else 0.01):
        estimator, X, y, gram, beta, norm = fit(
            surrogate, **size, cost=cost, kernel=kernel, alpha=0.1, tol=tol, max_iter=5000,
            sample_weight=weights)
        problem = permutation_problem(
            gram, y, weights / weights.sum(), 0.1, surrogate, estimator.cost_matrix_)
        scores = np.concatenate([part.ravel() for part in estimator.decision_function(X)])
        if beta is not None:
            assert_allclose(scores, gram @ beta, atol=1e-10)
            mu = problem.truth - beta / problem.scale
            assert mu.min() > -1e-12
            for part, M in zip(np.split(mu, problem.cuts), map(len, y), strict=True):
                assert_allclose(part.reshape(M, M).sum(axis=0), 1.0, atol=1e-9)
                assert_allclose(part.reshape(M, M).sum(axis=1), 1.0, atol=1e-9)
            # another dual point may have had a better value
            assert estimator.dual_objective_ >= problem.dual(mu) - 1e-6
        primal = problem.primal(scores, norm)
        optimum = problem.optimum() if optimum is None else optimum
        # upper bounds of oracles are within a small share of the gap
        gap = estimator.duality_gap_
        assert -1e-9 <= estimator.primal_objective_ - primal <= 0.05 * gap + 1e-9
        assert estimator.dual_objective_ - 1e-6 <= optimum <= primal + 1e-6
        assert primal - optimum <= gap + 1e-6
        assert 0 <= estimator.relative_gap_ <= tol
        assert_allclose(gap, estimator.primal_objective_ - estimator.dual_objective_, atol=1e-12)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(("case", "data"), [
    (MATCHER, pairs()), *[(RANKER, rankings(M=M)) for M in (2, 3, 4)]])
def test_marginals_by_enumeration(case, data, kernel):
    X, y = data
    estimator = case.fit("log", X=X, y=y, kernel=kernel)
    marginals = estimator.predict_marginals(X)
    for scores, found in zip(estimator.decision_function(X), marginals, strict=True):
        perms, totals = all_permutations(scores)
        assert_allclose(
            found, np.tensordot(softmax(totals), np.eye(len(scores))[perms], 1), atol=1e-12)


@pytest.mark.parametrize("cost", [*COSTS, ASYMMETRIC])
@pytest.mark.parametrize("surrogate", ["max_min", "log"])
@pytest.mark.parametrize("case", [RANKER, MATCHER], ids=["ranker", "matcher"])
def test_careful_decoding(case, surrogate, cost):
    """No permutation has a smaller expected cost, and level ones go to the highest score."""
    X, y = (case.X, case.y) if isinstance(cost, str) or case.equal is None else case.equal
    estimator = case.fit(surrogate, X=X, y=y, cost=cost, alpha=1.0, decode="min_risk")
    careful, plain = estimator.predict(X), estimator.predict(X, decode="map")
    for scores, place, best in zip(estimator.decision_function(X), careful, plain, strict=True):
        M, rows = len(scores), np.arange(len(scores))
        costs = estimator.cost_matrix_[:M, :M]
        perms, totals = all_permutations(scores)
        if surrogate == "log":
            marginals = np.tensordot(softmax(totals), np.eye(M)[perms], 1)
        else:
            # the game of the mean cost, over scores of that scale
            marginals = max_min_permutation(scores / M, costs)[0]
        # expected[i, j]: what item i costs at place j, and the mean over items of every permutation
        expected = marginals @ costs
        least = expected[rows, perms].mean(axis=1).min()
        assert expected[rows, place].mean() <= least + 3e-6
        assert_array_equal(best, perms[totals.argmax()])
        if expected[rows, best].mean() < least + 1e-7:
            assert_array_equal(place, best)
    if surrogate == "log" and case is RANKER and not isinstance(cost, str):
        assert np.any(careful != plain)


def test_too_many_items_for_probabilities():
    X, y = rankings(d=2, M=21)[0], [np.random.default_rng(b).permutation(21) for b in range(24)]
    for case, X, y in ((RANKER, X, np.array(y)), (MATCHER, *pairs([21, 2]))):
        message = "M of at most 20, and y has permutations of 21; use 'max"
        with pytest.raises(ValueError, match=message):
            case.fit("log", X=X, y=y)
        places = case.fit("max_margin", X=X, y=y, alpha=10.0).predict(X)
        assert_array_equal(np.sort(places[0]), np.arange(21))
    matcher = MATCHER.fit("log")
    with pytest.raises(ValueError, match="has 21 items; exact marginals"):
        matcher.predict_marginals(X)
    assert_array_equal(np.sort(matcher.predict(X)[0]), np.arange(21))
