"""The interior-point method of rankings: Newton's equations, certificates against optima."""

import itertools
import re

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import (
    BlockFrankWolfe,
    InteriorPoint,
    LabelRanker,
    MulticlassClassifier,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.inference._permutation_games import PermutationGames
from fastm4n.losses import permutation_losses
from fastm4n.penalties import ElasticNet
from fastm4n.solvers import interior_point

COSTS = {
    "zero_one": 1.0 - np.eye(4),
    "absolute": np.abs(np.arange(4.0)[:, None] - np.arange(4.0)),
    "squared": (np.arange(4.0)[:, None] - np.arange(4.0)) ** 2 / 9.0,
    "skewed": np.random.default_rng(3).uniform(0.0, 1.0, (4, 4)) * (1.0 - np.eye(4)),
}
# costs of a game, which may be above zero for the true position
GAMES = {
    **COSTS,
    "rank_one": (
        np.outer([0.1, 0.4, 0.0, 0.3], [0.9, 0.2, 0.0, 0.5])
        + np.array([0.0, 0.1, 0.3, 0.2])[:, None] + np.array([0.2, 0.0, 0.1, 0.1])),
}


def rankings(n=60, M=4, d=3, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, M)) + noise * rng.normal(size=(n, M))
    return X, (-scores).argsort(axis=1).argsort(axis=1)


class Written:
    """The state of one game written out, and Newton's equations as one dense system."""

    def __init__(self, games, cost, game):
        M, size = games.M, games.M**2
        state = games.numbers()[0][game]
        self.s, self.z, self.mu, self.nu = state[: 4 * size].reshape(4, M, M)
        self.cost, self.M = cost, M

    def moves(self, v, a, b):
        """dmu, dnu, ds and dz by elimination of nothing."""
        M, size = self.M, self.M**2
        eye = np.eye(M)
        coupling = np.kron(eye, self.cost)
        rows, columns = np.kron(eye, np.ones((1, M))), np.kron(np.ones((1, M)), eye)
        sums = np.vstack([rows, columns])
        zero, none = np.zeros((size, size)), np.zeros((2 * M, size))
        s, z, mu, nu = (np.diag(part.ravel()) for part in (self.s, self.z, self.mu, self.nu))
        one, wide = np.eye(size), np.zeros((size, 2 * M))
        system = np.block([
            [s, zero, mu, zero, wide, wide],
            [zero, z, zero, nu, wide, wide],
            [zero, coupling, one, zero, -sums.T, wide],
            [-coupling.T, zero, zero, one, wide, -sums.T],
            [sums, none, none, none, np.zeros((2 * M, 4 * M))],
            [none, sums, none, none, np.zeros((2 * M, 4 * M))],
        ])
        right = np.concatenate([
            a.ravel(), b.ravel(), -v.ravel(), np.zeros(size), np.zeros(4 * M)])
        return np.linalg.lstsq(system, right, rcond=None)[0][: 4 * size].reshape(4, M, M)


@pytest.mark.parametrize("cost", GAMES)
def test_moves_solve_newtons_equations(cost):
    rng = np.random.default_rng(0)
    costs, n, M, d = GAMES[cost], 11, 4, 3
    X, p = rng.normal(size=(n, d)), rng.uniform(0.1, 1.0, n)
    games = PermutationGames(X, p, costs, 0.05)
    weights = rng.normal(size=(d, M * M))
    for _ in range(2):  # from the centre, and off it
        written = [Written(games, costs, b) for b in range(n)]
        games.factor()
        games.spread(weights)
        games.move(0.01, False, True)
        moves = games.numbers()[1]
        for b in (0, 6, n - 1):
            at = written[b]
            v = (X[b] @ weights).reshape(M, M)
            a, c = 0.01 - at.mu * at.s, 0.01 - at.nu * at.z
            dmu, dnu, ds, dz = at.moves(v, a, c)
            expected = np.concatenate([part.ravel() for part in (ds, dz, dmu, dnu)])
            assert_allclose(moves[b, : 4 * M * M], expected, atol=1e-9)
            # the corrector takes products off
        games.move(0.01, True, False)
        first = games.gathered()
        total = np.zeros((d, M * M))
        for b, at in enumerate(written):
            ds, dz, dmu, dnu = moves[b, : 4 * M * M].reshape(4, M, M)
            found = at.moves(
                np.zeros((M, M)), 0.01 - at.mu * at.s - dmu * ds, 0.01 - at.nu * at.z - dnu * dz)
            total += p[b] * np.outer(X[b], found[0])
        assert_allclose(first, total, atol=1e-9)
        # what mu moves by with the scores alone
        total = sum(
            p[b] * np.outer(X[b], at.moves((X[b] @ weights).reshape(M, M), 0 * a, 0 * a)[0])
            for b, at in enumerate(written))
        assert_allclose(games.responded(weights), total, atol=1e-9)
        # the same by the derivatives of each game
        rows, of_games = games.rows_of(0, games.n_groups)
        responses = games.responses(0, games.n_groups).reshape(9, 9, -1)
        total = sum(
            of_games[b] * np.outer(rows[b], games.whole_response(responses[:, :, b]) @ scores)
            for b, scores in enumerate(rows @ weights))
        assert_allclose(games.responded(weights), total, atol=1e-9)
        games.spread(weights)
        lengths = np.minimum(0.5, 0.5 * games.boundaries())
        games.advance(lengths, float(lengths.min()), 0.02)
        weights = rng.normal(size=(d, M * M))
        state = games.numbers()[0][:, : 4 * M * M]
        assert np.all(state > 0.0)
        for part in state.reshape(n, 4, M, M)[:, 2:].transpose(1, 0, 2, 3):
            assert_allclose(part.sum(axis=2), 1.0)
            assert_allclose(part.sum(axis=1), 1.0)


@pytest.mark.parametrize("cost", GAMES)
def test_bounds_hold_values_of_games_between_them(cost):
    rng = np.random.default_rng(1)
    costs, n, M = GAMES[cost], 9, 4
    X = rng.normal(size=(n, 2))
    games = PermutationGames(X, np.full(n, 1.0 / n), costs, 0.05)
    weights = rng.normal(size=(2, M * M))
    games.spread(weights)
    upper, lower = games.bounds()
    scores = (X @ weights).reshape(n, M, M)
    losses = permutation_losses(scores, np.tile(np.arange(M), (n, 1)), cost=costs)
    assert np.all(upper >= losses.value + np.trace(scores, axis1=1, axis2=2) - 1e-9)
    # uniform mixtures leave the adversary the permutation of the cheapest columns: all cost alike
    assert np.all(lower <= costs.mean() * M + 1e-9)
    games.factor()
    games.make_feasible()
    assert_allclose(games.points(), 1.0 / M)


def optimum(ranker, X, y, **fit):
    """The same fit by blocks, to a small gap."""
    params = dict(ranker.get_params(deep=False), solver=BlockFrankWolfe(step="pairwise"), tol=1e-6)
    return LabelRanker(**params).fit(X, y, **fit)


@pytest.mark.parametrize(("cost", "alpha", "cost_scale"), covering(
    itertools.product(COSTS, [1.0, 1e-2, 1e-3], ["sum", "mean"])))
def test_fits_end_at_the_optimum(cost, alpha, cost_scale):
    X, y = rankings()
    tol = 1e-4 if cost == "zero_one" and alpha >= 1e-2 else 1e-3
    ranker = LabelRanker(
        alpha=alpha, cost=COSTS[cost], cost_scale=cost_scale, solver=InteriorPoint(), tol=tol)
    weights = np.random.default_rng(1).integers(1, 4, len(X)).astype(float)
    ranker.fit(X, y, sample_weight=weights)
    found = optimum(ranker, X, y, sample_weight=weights)
    scale = ranker.duality_gap_ / ranker.relative_gap_
    assert ranker.relative_gap_ <= tol
    assert ranker.duality_gap_ >= ranker.primal_objective_ - found.primal_objective_ - 1e-12
    assert ranker.primal_objective_ >= found.dual_objective_ - 1e-9 * scale
    assert found.primal_objective_ >= ranker.dual_objective_ - 1e-9 * scale


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("numbers", [1, 1 << 22])
def test_systems_that_are_factored(cost, numbers, monkeypatch):
    X, y = rankings(n=70)
    plain = LabelRanker(tol=1e-3, alpha=1e-2, cost=COSTS[cost], solver=InteriorPoint()).fit(X, y)
    used = []
    matrix = interior_point._Run.matrix

    def noted(run):
        found = matrix(run)
        weights = np.random.default_rng(2).normal(size=run.w.shape)
        assert_allclose(
            found @ weights.ravel(), run.product(weights).ravel(),
            rtol=1e-5, atol=1e-7 * np.abs(found).max())
        used.append(run.n_steps)
        return found

    monkeypatch.setattr(interior_point, "MOVE", 0.0)
    monkeypatch.setattr(interior_point, "BLAS", 0.0)
    monkeypatch.setattr(interior_point, "TILE", numbers)  # one group at a time, or all
    monkeypatch.setattr(interior_point._Run, "matrix", noted)
    ranker = LabelRanker(tol=1e-3, alpha=1e-2, cost=COSTS[cost], solver=InteriorPoint()).fit(X, y)
    # a step that needed no products comes first
    assert used == list(range(1, ranker.n_iter_))
    assert ranker.relative_gap_ <= 1e-3
    both = ranker.duality_gap_ + plain.duality_gap_
    assert abs(ranker.primal_objective_ - plain.primal_objective_) <= both


@pytest.mark.parametrize("fit_intercept", [False, True, 10.0])
def test_weights_are_of_the_problem_as_posed(fit_intercept):
    X, y = rankings(n=17, seed=4)
    ranker = LabelRanker(
        alpha=0.05, cost="absolute", fit_intercept=fit_intercept, solver=InteriorPoint())
    ranker.fit(X, y)
    scores = ranker.decision_function(X)
    places = np.asarray(y)
    losses = permutation_losses(scores, places, cost=ranker.cost_matrix_).value
    square = float(np.sum(ranker.coef_**2))
    if fit_intercept:
        square += float(np.sum(ranker.intercept_**2)) / float(fit_intercept) ** 2
    value = losses.mean() + 0.5 * ranker.alpha * square
    assert value <= ranker.primal_objective_ + 1e-9
    assert_allclose(value, ranker.primal_objective_, rtol=1e-2)


def test_auto_takes_it_for_many_items_and_only_then():
    X, y = rankings(n=300, M=6)
    ranker = LabelRanker(tol=1e-3, alpha=0.01, random_state=0).fit(X, y)
    assert set(ranker.history_["policy"]) == {"interior_point"}
    assert ranker.n_iter_ < 40
    assert ranker.relative_gap_ <= 1e-3
    with pytest.MonkeyPatch.context() as patch:
        # steps that get nowhere are given up for blocks
        patch.setattr(interior_point, "PATIENCE", 0)
        other = LabelRanker(tol=1e-3, alpha=0.01, random_state=0).fit(X, y)
    assert "interior_point" not in other.history_["policy"]
    assert other.relative_gap_ <= 1e-3
    exact = LabelRanker(alpha=1.0, tol=1e-6, random_state=0).fit(X[:50], y[:50])
    assert "interior_point" not in exact.history_["policy"]
    few = LabelRanker(tol=1e-3, alpha=0.01, random_state=0).fit(*rankings())
    assert "interior_point" not in few.history_["policy"]
    # CSR with few zeros as well, not with many: rows are made dense
    same = LabelRanker(tol=1e-3, alpha=0.01, random_state=0).fit(sparse.csr_matrix(X), y)
    assert set(same.history_["policy"]) == {"interior_point"}
    assert_allclose(same.coef_, ranker.coef_, rtol=1e-6, atol=1e-9)
    wide = np.zeros((300, 90))
    wide[:, ::30] = X
    sparse_fit = LabelRanker(tol=1e-3, alpha=0.01, random_state=0).fit(sparse.csr_array(wide), y)
    assert "interior_point" not in sparse_fit.history_["policy"]


def test_fits_do_not_depend_on_threads_and_end_where_they_are_told_to(tmp_path):
    X, y = rankings(n=30)
    fits = [
        LabelRanker(tol=1e-3, alpha=0.1, solver=InteriorPoint(), n_jobs=n).fit(X, y) for n in (1, 2)]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)
    with pytest.warns(ConvergenceWarning):
        stopped = LabelRanker(tol=1e-3, alpha=0.1, solver=InteriorPoint(), max_iter=3).fit(X, y)
    assert stopped.n_iter_ == 3
    assert stopped.duality_gap_ >= stopped.primal_objective_ - fits[0].primal_objective_
    save_model(fits[0], tmp_path / "model.npz")
    assert isinstance(load_model(tmp_path / "model.npz").solver, InteriorPoint)


def test_ties_constants_and_extreme_columns():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(40), 1e3 * rng.normal(size=40), np.zeros(40)])
    y = np.tile(np.arange(5), (40, 1))
    y[20:] = y[20:, ::-1]
    for alpha in (1.0, 1e6):
        ranker = LabelRanker(tol=1e-3, alpha=alpha, solver=InteriorPoint()).fit(X, y)
        assert ranker.relative_gap_ <= 1e-3


def test_what_it_does_not_solve_is_refused(monkeypatch):
    X, y = rankings(n=20)
    with pytest.raises(ValueError, match="InteriorPoint.* is for surrogate='max_min'"):
        LabelRanker("log", solver=InteriorPoint()).fit(X, y)
    monkeypatch.setattr("fastm4n.features._rows.MADE_DENSE", X.size - 1)
    with pytest.raises(ValueError, match=r"InteriorPoint.* makes sparse rows of X dense, .* 20 dif"):
        LabelRanker(tol=1e-3, solver=InteriorPoint()).fit(sparse.csr_matrix(X), y)
    with pytest.raises(ValueError, match="InteriorPoint.* needs kernel='linear', got kernel='rbf'"):
        LabelRanker(tol=1e-3, kernel="rbf", solver=InteriorPoint()).fit(X, y)
    with pytest.raises(ValueError, match="InteriorPoint.* is for LabelRanker, got Multi"):
        MulticlassClassifier(solver=InteriorPoint()).fit(X, y[:, 0])
    with pytest.raises(ValueError, match="fits one alpha"):
        regularization_path(LabelRanker(tol=1e-3, solver=InteriorPoint()), X, y)
    with pytest.raises(ValueError, match="max_products"):
        LabelRanker(tol=1e-3, solver=InteriorPoint(-1)).fit(X, y)


@pytest.mark.parametrize("columns, items, options, message", [
    (3, 17, {}, "is for 2 to 16 items, and y has 17"),
    (3, 3, {"cost": np.zeros((3, 3))}, "needs costs that differ, got cost="),
    (70_000, 2, {}, "is for at most 262144 weights, and X and y make 280004"),
    (3, 3, {"penalty": ElasticNet()}, "needs penalty='l2', got penalty=ElasticNet()"),
])
def test_rankings_that_are_not_for_it(columns, items, options, message):
    ranker = LabelRanker("max_min", solver=InteriorPoint(), **options)
    with pytest.raises(ValueError, match=re.escape(f"solver=InteriorPoint() {message}")):
        ranker.fit(np.ones((3, columns)), [list(range(items))] * 3)


def test_steps_that_get_no_further_end_the_fit(monkeypatch):
    monkeypatch.setattr(interior_point, "SHORTEST", 1.0)
    X, y = rankings()
    with pytest.warns(ConvergenceWarning, match="certified duality gap"):
        ranker = LabelRanker(alpha=0.01, solver=InteriorPoint(), max_iter=30, tol=1e-4).fit(X, y)
    assert ranker.n_iter_ == 1 and 0.5 < ranker.relative_gap_ < 1.0
