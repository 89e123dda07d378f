"""Quasi-Newton steps: smoothed chains against all labellings, certificates against optima."""

import itertools

import numpy as np
import pytest
from estimator_cases import CASES
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp
from test_tempering import iris, words

from fastm4n import (
    BlockFrankWolfe,
    Graphs,
    GraphTagger,
    MulticlassClassifier,
    QuasiNewton,
    Sequences,
    SequenceTagger,
    Transitions,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.features._positions import ChainFeatures
from fastm4n.losses import chain_losses
from fastm4n.outputs import ChainOutputs
from fastm4n.research import Boost
from fastm4n.solvers.blocks._sweeps import TemperedBatch
from fastm4n.solvers.limited_memory import Planes, largest
from fastm4n.surrogates import make_surrogate

N_LABELS = 3


class Chains:
    """Chains that are small enough for all labellings to be listed."""

    def __init__(self, surrogate, scale, cost_scale="sum", lengths=(1, 2, 5)):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(sum(lengths), 2))
        self.y, self.starts = rng.integers(N_LABELS, size=len(X)), np.cumsum([0, *lengths])
        self.lengths, self.X = lengths, X
        outputs = ChainOutputs(
            self.y, np.array(lengths), 1.0 - np.eye(N_LABELS), cost_scale=cost_scale)
        self.layout = outputs.layout
        self.features = ChainFeatures(X, self.starts[:-1], outputs.layout, 1.0, True, True)
        state = self.features.state()
        state["weights"][:, :N_LABELS] = scale * rng.normal(size=state["weights"][:, :3].shape)
        self.features.restore(state)
        self.w = self.features.state()["weights"][:, :N_LABELS]
        n = len(lengths)
        self.batch = TemperedBatch(
            make_surrogate(surrogate, outputs), self.features, np.full(n, 1.0 / n))
        self.shares = 1.0 / np.array(lengths) if cost_scale == "mean" else np.ones(n)

    def scores(self, b):
        """Of all labellings of a block, which come with them."""
        rows, T = slice(self.starts[b], self.starts[b + 1]), self.lengths[b]
        unary = self.X[rows] @ self.w[:2] + self.w[2]
        unary[0] += self.w[3]
        unary[-1] += self.w[4]
        listed = np.array(list(itertools.product(range(N_LABELS), repeat=T)))
        scores = unary[np.arange(T), listed].sum(axis=1)
        return scores + self.w[5:][listed[:, :-1], listed[:, 1:]].sum(axis=1), listed

    def exact(self, cost_scale):
        """Max-min losses, from below."""
        found = []
        for b, T in enumerate(self.lengths):
            rows = slice(self.starts[b], self.starts[b + 1])
            unary = self.X[rows] @ self.w[:2] + self.w[2]
            unary[0] += self.w[3]
            unary[-1] += self.w[4]
            found.append(chain_losses(
                unary, self.w[5:], self.truth(b), [T], cost_scale=cost_scale).value[0])
        return found

    def truth(self, b):
        return self.y[self.starts[b] : self.starts[b + 1]]

    def nodes(self, b):
        """Marginals and nu of the labels at each position."""
        T, stride = self.lengths[b], self.layout.stride
        first = int(np.sum(self.layout.sizes()[:b]))
        mu = np.asarray(self.batch.mu)[first : first + T * stride].reshape(T, stride)
        nu = np.asarray(self.batch.nu)
        if nu.size:
            nu = nu.reshape(-1, stride)[self.starts[b] : self.starts[b + 1], :N_LABELS]
        return mu[:, :N_LABELS], nu


def indicators(listed):
    return (listed[:, :, None] == np.arange(N_LABELS)).astype(float)


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("tau", [2.0, 0.1, 1e-3])
def test_smoothed_margins(tau, scale, cost_scale):
    chains = Chains("max_margin", scale, cost_scale)
    soft, hard, heights, entropies = chains.batch.evaluate(tau)
    for b, share in enumerate(chains.shares):
        scores, listed = chains.scores(b)
        truth = scores[(listed == chains.truth(b)).all(axis=1)][0]
        costs = share * (listed != chains.truth(b)).sum(axis=1)
        own = tau * share
        p = np.exp((scores + costs) / own - logsumexp((scores + costs) / own))
        size = 1.0 + np.abs(scores).max()
        assert_allclose(
            soft[b], own * logsumexp((scores + costs) / own) - truth, atol=1e-11 * size)
        assert_allclose(hard[b], np.max(scores + costs) - truth, atol=1e-12 * size)
        assert_allclose(heights[b], p @ costs, atol=1e-9)
        assert_allclose(entropies[b], -own * p @ np.log(np.maximum(p, 1e-300)), atol=1e-9 * size)
        assert_allclose(chains.nodes(b)[0], np.tensordot(p, indicators(listed), 1), atol=1e-9)


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("tau", [1.0, 0.1])
def test_smoothed_games(tau, scale, cost_scale):
    chains = Chains("max_min", scale, cost_scale)
    before = np.inf
    for n_sweeps in (0, 1, 2, 1, 2, 2000):
        soft, hard, heights, entropies = chains.batch.evaluate(tau, n_sweeps)
        assert np.sum(soft) <= before + 1e-9
        before = np.sum(soft)
    exact = chains.exact(cost_scale)
    for b, share in enumerate(chains.shares):
        scores, listed = chains.scores(b)
        truth = scores[(listed == chains.truth(b)).all(axis=1)][0]
        own, phi = tau * share, indicators(listed)
        mu, nu = chains.nodes(b)
        assert_allclose(nu.sum(axis=1), 1.0, atol=1e-12)
        assert np.all(nu >= 0.0)

        def smoothed(nu, scores=scores, phi=phi, share=share, own=own):
            costs = share * np.sum((1.0 - nu) * phi, axis=(1, 2))
            u = (scores + costs) / own
            total = logsumexp(u)
            return own * total, np.exp(u - total), costs

        value, p, costs = smoothed(nu)
        size = 1.0 + np.abs(scores).max()
        assert_allclose(soft[b], value - truth, atol=1e-11 * size)
        assert_allclose(mu, np.tensordot(p, phi, 1), atol=1e-9)
        # of an adversary: where nu is not zero, mu is largest
        assert np.all(nu * (mu.max(axis=1, keepdims=True) - mu) <= 1e-4)
        assert_allclose(heights[b], share * np.sum(1.0 - mu.max(axis=1)), atol=1e-12)
        # a bound of the max-min loss
        assert hard[b] >= exact[b] - 1e-9 * size
        assert hard[b] <= np.max(scores + costs) - truth + 1e-9 * size
        assert np.max(scores + costs) - truth <= soft[b] + 1e-9 * size
        assert entropies[b] >= -own * p @ np.log(np.maximum(p, 1e-300)) - 1e-9 * size


def test_gradients():
    chains = Chains("max_margin", 0.5)
    at = chains.features.state()["weights"]
    rng = np.random.default_rng(3)
    along = np.zeros_like(at)
    along[:, :N_LABELS] = rng.normal(size=along[:, :N_LABELS].shape)

    def value(step):
        chains.features.restore({"weights": at + step * along})
        return np.mean(chains.batch.evaluate(0.3)[0])

    step = 1e-5
    slope = (value(step) - value(-step)) / (2 * step)
    value(0.0)
    assert_allclose(np.sum(chains.batch.gradient()["weights"] * along), slope, rtol=1e-7)


def test_planes():
    rng = np.random.default_rng(0)
    heights, z, alpha = rng.uniform(0.5, 1.0, 12), rng.normal(size=(12, 5)), 0.3
    planes = Planes(alpha, 12)
    for h, point in zip(heights, z, strict=True):
        planes.add(h, point, np.dot)
        # never negative, and never above what any mixture attains
        assert planes.bound() >= 0.0
    found = minimize(
        lambda c: 0.5 * alpha * np.sum((c @ z) ** 2) - heights @ c, np.full(12, 0.05),
        bounds=[(0.0, 1.0)] * 12, constraints={"type": "ineq", "fun": lambda c: 1.0 - c.sum()},
        tol=1e-12)
    assert_allclose(planes.bound(), -found.fun, rtol=1e-6)
    assert planes.bound() <= -found.fun + 1e-9
    assert planes.shares.sum() <= 1.0 + 1e-15 and planes.shares.min() >= 0.0
    # those that are unused go, so that the bound does not fall
    before, n_used = planes.bound(), np.sum(planes.shares > 0.0)
    for _ in range(12 - n_used):
        planes.add(0.0, 100.0 * rng.normal(size=5), np.dot)
        assert planes.bound() >= before * (1.0 - 1e-9)
    assert len(planes.points) == 12
    # equal points, and one point alone
    alone = Planes(alpha, 3)
    for _ in range(3):
        alone.add(0.01, np.ones(5), np.dot)
    assert_allclose(alone.bound(), 0.01**2 / (2 * alpha * 5), rtol=1e-9)
    assert largest(np.zeros(2), np.eye(2), np.zeros(2)).sum() <= 1.0


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_the_same_optimum(surrogate, cost_scale):
    X, y = words()
    options = dict(alpha=0.05, cost_scale=cost_scale, random_state=0)
    blocks = SequenceTagger(
        surrogate, tol=1e-5, max_iter=20000, solver=BlockFrankWolfe(), **options).fit(X, y)
    newton = SequenceTagger(
        surrogate, tol=2e-3, max_iter=1000, solver=QuasiNewton(), **options).fit(X, y)
    assert newton.relative_gap_ <= 2e-3
    assert blocks.dual_objective_ <= newton.primal_objective_ + 1e-12
    assert newton.dual_objective_ <= blocks.primal_objective_ + 1e-12
    history = newton.history_
    assert np.all(history["gap"] >= history["primal"] - blocks.primal_objective_ - 1e-12)
    # what is returned is the best that was met
    assert np.all(np.diff(history["primal"]) <= 0.0)


@pytest.mark.parametrize("name", ["MulticlassClassifier", "MultiLabelClassifier", "GraphTagger"])
@pytest.mark.parametrize("surrogate", ["max_margin", "log"])
def test_other_outputs(name, surrogate):
    case = CASES[name]
    blocks = case.fit(surrogate=surrogate, tol=1e-5, max_iter=5000)
    newton = case.fit(surrogate=surrogate, tol=1e-2, solver=QuasiNewton(), max_iter=500)
    assert newton.relative_gap_ <= 1e-2
    assert newton.primal_objective_ >= blocks.dual_objective_ - 1e-12
    assert newton.dual_objective_ <= blocks.primal_objective_ + 1e-12


def long(n, length, seed=0):
    """Noisy sequences whose labels stay."""
    rng = np.random.default_rng(seed)
    y = (np.cumsum(rng.random((n, length)) < 0.2, axis=1) % 3).astype(int)
    X = [np.eye(3)[row] + rng.normal(size=(length, 3)) for row in y]
    return X, list(y)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_auto_for_few_and_long_sequences(surrogate):
    X, y = long(2, 400)
    tagger = SequenceTagger(surrogate, alpha=0.01, tol=2e-2, max_iter=150, random_state=0)
    auto = tagger.fit(X, y)
    assert set(auto.history_["policy"]) == {"quasi_newton"}
    assert auto.relative_gap_ <= 2e-2
    weights = auto.coef_.copy()
    assert_allclose(tagger.fit(X, y).coef_, weights, rtol=0.0, atol=0.0)
    # not where there are many, and not for fits that others go on from
    many = SequenceTagger(surrogate, alpha=0.1, tol=0.5).fit(*long(40, 10))
    assert "quasi_newton" not in set(many.history_["policy"])
    warm = SequenceTagger(surrogate, alpha=0.1, tol=0.5, warm_start=True).fit(X, y)
    assert "quasi_newton" not in set(warm.history_["policy"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_auto_for_sequences_whose_features_are_out_of_scale(surrogate):
    X, y = long(40, 10)
    X = [np.column_stack([1e4 * x[:, :1], x[:, 1:], np.zeros(len(x))]) for x in X]
    tagger = SequenceTagger(surrogate, alpha=1e-2, tol=1e-2, max_iter=300, random_state=0)
    auto = tagger.fit(X, y)
    assert set(auto.history_["policy"]) == {"quasi_newton"} and auto.relative_gap_ <= 1e-2
    # what doubles do not reach is left to blocks
    blocks = tagger.set_params(max_iter=3).fit([1e140 * x for x in X], y)
    assert "quasi_newton" not in set(blocks.history_["policy"])
    assert np.isfinite(blocks.coef_).all() and blocks.relative_gap_ <= 1.0 + 1e-9


def test_stopping():
    X, y = words()
    rows = []
    tagger = SequenceTagger(
        alpha=0.01, solver=QuasiNewton(), callback=lambda row: rows.append(row) or True)
    with pytest.warns(Warning, match="relative_gap_"):
        tagger.fit(X, y)
    assert len(rows) == 1 and tagger.n_iter_ == 1
    for max_iter in range(1, 12):
        with pytest.warns(Warning, match="relative_gap_"):
            tagger.set_params(callback=None, max_iter=max_iter, tol=1e-9).fit(X, y)
        assert tagger.n_iter_ <= max_iter and tagger.duality_gap_ > 0


def test_warm_starts():
    X, y = words()
    for surrogate in ("max_margin", "log"):
        tagger = SequenceTagger(
            surrogate, alpha=0.05, solver=QuasiNewton(), tol=1e-2, max_iter=500, warm_start=True)
        tagger.fit(X, y)
        tagger.set_params(alpha=0.02).fit(X, y)
        # and blocks go on from there
        tagger.set_params(solver="auto", random_state=0, tol=1e-4, max_iter=5000).fit(X, y)
        other = SequenceTagger(
            surrogate, alpha=0.02, tol=1e-4, max_iter=5000, random_state=0).fit(X, y)
        assert_allclose(tagger.primal_objective_, other.primal_objective_, rtol=1e-3)


def test_transition_features_and_extreme_scores():
    X, y = words()
    options = dict(alpha=0.05, transitions=Transitions(features="all"), random_state=0, tol=1e-2, max_iter=500)
    newton = SequenceTagger("max_margin", solver=QuasiNewton(), **options).fit(X, y)
    blocks = SequenceTagger("max_margin", **options).fit(X, y)
    assert newton.dual_objective_ <= blocks.primal_objective_
    assert blocks.dual_objective_ <= newton.primal_objective_
    huge = [1e6 * np.asarray(x) for x in X]
    with pytest.warns(Warning, match="relative_gap_"):
        found = SequenceTagger(
            "max_min", solver=QuasiNewton(), max_iter=30, tol=1e-9).fit(huge, y)
    assert 0.0 <= found.relative_gap_ <= 1.0 + 1e-9
    constant = SequenceTagger(solver=QuasiNewton(), max_iter=500, tol=1e-2).fit(
        [np.zeros((30, 2))], [np.arange(30) % 2])
    assert constant.relative_gap_ <= 1e-2


def test_bad_input():
    X, y = iris()
    with pytest.raises(ValueError, match="supports 'max_min' for sequences with the 0-1 cost"):
        MulticlassClassifier("max_min", solver=QuasiNewton()).fit(X, y)
    with pytest.raises(ValueError, match="plain L2 penalty"):
        MulticlassClassifier("log", penalty="elasticnet", solver=QuasiNewton()).fit(X, y)
    with pytest.raises(ValueError, match="needs weights, and kernel='rbf' has none"):
        MulticlassClassifier("log", kernel="rbf", solver=QuasiNewton()).fit(X, y)
    with pytest.raises(ValueError, match=r"Boost\(\) has none"):
        MulticlassClassifier(Boost(), solver=QuasiNewton()).fit(X, y)
    with pytest.raises(ValueError, match="fits one alpha"):
        regularization_path(MulticlassClassifier("log", solver=QuasiNewton()), X, y)
    with pytest.raises(ValueError, match="memory"):
        MulticlassClassifier("log", solver=QuasiNewton(memory=0)).fit(X, y)


def test_model_files(tmp_path):
    X, y = iris()
    clf = MulticlassClassifier("log", alpha=0.1, solver=QuasiNewton(memory=7)).fit(X, y)
    save_model(clf, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.solver.get_params() == clf.solver.get_params()
    assert_allclose(again.predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", ["classes", "sequences", "graphs"])
def test_sparse_rows_with_any_index_type(kind, index):
    """More rows than the first Hessian looks at, all of which SciPy has to take by number."""
    X = sparse.random(2000, 5, 0.4, format="csr", random_state=0)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    y, offsets = np.random.default_rng(0).integers(0, 3, 2000), np.arange(0, 2001, 10)
    estimator, wrap, targets = {
        "classes": (MulticlassClassifier, lambda rows: rows, y),
        "sequences": (
            SequenceTagger, lambda rows: Sequences(rows, offsets), Sequences(y, offsets)),
        "graphs": (
            GraphTagger, lambda rows: Graphs(
                rows, np.array([(i, i + 1) for i in range(9)] * 200), offsets,
                np.arange(0, 1801, 9)), Sequences(y, offsets)),
    }[kind]
    given = {"solver": QuasiNewton(), "alpha": 0.01, "tol": 1e-6, "random_state": 0}
    found = estimator("log", **given).fit(wrap(X), targets)
    expected = estimator("log", **given).fit(wrap(X.toarray()), targets)
    assert_allclose(found.primal_objective_, expected.primal_objective_, rtol=1e-6)
    assert_allclose(found.coef_, expected.coef_, atol=1e-2)
