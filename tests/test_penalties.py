"""Penalties: prox and its values, the engine, zero bounds, screening, and what is refused."""

import pickle

import numpy as np
import pytest
from fastm4n.features._chain import ChainFeatures
from fastm4n.features._linear import LinearFeatures, row_norms
from fastm4n.features._pairs import PairFeatures
from fastm4n.features._penalty import Penalty
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine, Sampling, Step
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import fastm4n.reference as ref
from fastm4n import BlockFrankWolfe, LabelRanker, Matcher, MulticlassClassifier, SequenceTagger
from fastm4n.outputs import ChainOutputs, Layout, PermutationOutputs, SimplexOutputs
from fastm4n.penalties import L2, ElasticNet, Group, resolve_penalty, safe_zeros
from fastm4n.solvers.block_coordinate import certify, solve
from fastm4n.surrogates import make_surrogate

SURROGATES = ("max_margin", "max_min", "log")


# prox, Omega and Omega*


def penalties(shape, rng):
    t = rng.uniform(0.0, 1.0, shape) * (rng.random(shape) < 0.8)
    lower, upper = -rng.uniform(0.0, 1.0, shape), rng.uniform(0.0, 1.0, shape)
    yield dict(thresholds=t)
    yield dict(thresholds=t, modulus=0.3, lower=lower, upper=upper)
    yield dict(thresholds=0.4, modulus=0.7, lower=0.0)
    yield dict(thresholds=0.5, modulus=0.5, by_rows=True)
    yield dict(thresholds=t[:, :1], modulus=0.6, by_rows=True)


@pytest.mark.parametrize("n_shared", [0, 1, 5, 7])
@pytest.mark.parametrize("stride", [1, 3, 8, 16, 19])
def test_prox_and_its_values(n_shared, stride):
    rng = np.random.default_rng(stride)
    shape = 7, stride
    for given in penalties(shape, rng):
        compiled = Penalty(shape, n_shared, **given)
        bounds = given.get("lower", -np.inf), given.get("upper", np.inf)
        expected = ref.Penalty(
            bounds, given["thresholds"], given.get("modulus", 1.0),
            1 if "by_rows" in given else None)
        z, other = 1.5 * rng.normal(size=(2, *shape))
        w = np.full(shape, np.nan)
        compiled.prox(z, w)
        (right,) = expected.prox((z,))
        assert_allclose(w, right, rtol=1e-14, atol=1e-15)
        assert_allclose(compiled.value(w), expected.value((w,)), rtol=1e-13)
        conjugate = compiled.conjugate(z, w)
        assert_allclose(conjugate, expected.conjugate((z,)), rtol=1e-12, atol=1e-14)
        # w is best: no other point has <u, z> - Omega(u) as large
        best = np.empty(shape)
        compiled.prox(other, best)
        for share in (1e-3, 0.1, 1.0):
            u = w + share * (best - w)
            assert np.sum(u * z) - compiled.value(u) <= conjugate + 1e-12
        apart = compiled.value(best) + conjugate - np.sum(best * z)
        assert apart > 0.01
        assert_allclose(compiled.divergence(best, z, w), apart, rtol=1e-10)
        assert compiled.divergence(w, z, w) == 0.0
        assert compiled.has_thresholds()


def test_compiled_penalties_refuse():
    with pytest.raises(ValueError, match="do not fit"):
        Penalty((3, 8), 2, np.zeros((3, 5)))
    with pytest.raises(ValueError, match="groups of weights have no bounds"):
        Penalty((3, 8), 2, lower=0.0, by_rows=True)
    for wrong in (dict(thresholds=-1.0), dict(thresholds=np.nan), dict(modulus=0.0)):
        with pytest.raises(ValueError, match="thresholds must be >= 0, and modulus > 0"):
            Penalty((3, 8), 2, **wrong)


# the compiled engine and the reference


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_engine_takes_the_steps_of_the_reference(surrogate):
    rng = np.random.default_rng(3)
    X, k = rng.normal(size=(15, 4)), 3
    y = np.argmax(X @ rng.normal(size=(4, k)) + rng.normal(size=(15, k)), axis=1)
    p = rng.dirichlet(np.full(15, 5.0))
    features = LinearFeatures(X, np.arange(15), row_norms(X, 0.0), k, 0.0)
    t = rng.uniform(0.0, 0.4, (4, k))
    padded = np.zeros((5, features.stride))
    padded[:4, :k] = t
    features.set_penalty(Penalty(padded.shape, 4, thresholds=padded, modulus=0.6))
    outputs = SimplexOutputs(y, 1.0 - np.eye(k))
    engine = BlockCoordinateEngine(make_surrogate(surrogate, outputs), features, p, 0.05, 7)
    blocks = ref.SimplexBlocks(
        X, y, k, surrogate, 0.05, p, bounds=ref.Penalty(thresholds=(t,), modulus=0.6))
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    found = certify(engine, engine.mu)
    assert_allclose(found.primal - found.dual, found.gap, rtol=1e-9)
    if surrogate != "log":
        _, w, history = blocks.frank_wolfe(
            sampling="permutation", n_passes=4, random_state=7, gap_every=4)
        assert_allclose(features.coef().T, w[0], atol=1e-8)
        assert_allclose((found.primal, found.dual, found.gap), history[-1, 1:], rtol=1e-7)
        assert 0 < np.count_nonzero(w[0]) < w[0].size
    else:
        assert_allclose(found.primal, blocks.examine((features.coef().T,))[-1], rtol=1e-9)


# weights that bounds hold at zero


@pytest.mark.parametrize("where", ["labels", "chains", "pairs"])
def test_weights_held_at_zero_do_not_shorten_steps(where):
    """A column of 30s that has bounds (0, 0) leaves the passes of the problem without it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = np.argmax(X @ rng.normal(size=(5, 3)) + rng.normal(size=(60, 3)), axis=1)
    passes = []
    for wide in (False, True):
        Z = np.column_stack([X, np.full(60, 30.0)]) if wide else X
        zero = np.where(np.arange(Z.shape[1]) == 5, 0.0, np.inf)
        penalty = L2(bounds=(-zero, zero))
        options = dict(alpha=0.01, penalty=penalty, tol=1e-3, max_iter=5000, random_state=0,
                       solver=BlockFrankWolfe(accelerate=False, sampling="permutation"))
        if where == "labels":
            model = MulticlassClassifier("log", **options).fit(Z, y)
        elif where == "chains":
            model = SequenceTagger("log", **options).fit(
                np.split(Z, 12), np.split(y, 12))
        else:
            pairs = [Z[4 * i : 4 * i + 4].reshape(2, 2, -1) for i in range(15)]
            model = Matcher("max_margin", **options).fit(
                pairs, [np.array([i % 2, 1 - i % 2]) for i in range(15)])
        passes.append(model.n_iter_)
        if wide:
            assert not model.coef_[..., 5].any() and model.coef_[..., :5].all()
    assert passes[1] <= 1.2 * passes[0] + 10


def test_ends_held_at_zero_do_not_count():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(12, 2))
    lengths = np.array([3, 4, 5])
    starts = np.cumsum(lengths) - lengths

    def engine(bounded):
        features = ChainFeatures(X, starts, Layout.of_chains(lengths, 3), 1.0, False, False)
        if bounded:
            features = ChainFeatures(X, starts, Layout.of_chains(lengths, 3), 1.0, True, True)
            shape = features.all_weights().shape
            free = np.full(shape, np.inf)
            free[3:] = 0.0
            features.set_penalty(Penalty(shape, 2, -free, free))
        structure = make_surrogate("max_margin", ChainOutputs(
            np.arange(12) % 3, lengths, 1.0 - np.eye(3), False, "mean"))
        return BlockCoordinateEngine(structure, features, np.full(3, 1 / 3), 0.1, 0)

    one, other = engine(False), engine(True)
    for _ in range(5):
        for e in (one, other):
            e.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert_allclose(one.features.coef(), other.features.coef(), atol=1e-12)


# screening


@pytest.mark.parametrize("seed", range(4))
def test_screening_never_drops_a_weight(seed):
    rng = np.random.default_rng(seed)
    n, d, k, alpha = 40, 30, 3, 0.05
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.3)
    y = np.argmax(X[:, :4] @ rng.normal(size=(4, k)) + 0.3 * rng.normal(size=(n, k)), axis=1)
    p = np.full(n, 1 / n)

    def solved(max_iter):
        features = LinearFeatures(X, np.arange(n), row_norms(X, 0.0), k, 0.0)
        shape = d + 1, features.stride
        features.set_penalty(Penalty(shape, d, thresholds=0.7, modulus=0.3))
        found = solve(
            make_surrogate("log", SimplexOutputs(y, 1.0 - np.eye(k))),
            features, p, alpha, tol=1e-12, max_iter=max_iter,
            seed=0)
        return found.certificate.gap, features.state()["weights"][:d, :k], features.coef().T

    _, _, best = solved(3000)
    ranges = np.sqrt(p @ X**2)[:, np.newaxis]
    dropped = []
    for max_iter in (1, 3, 10, 30, 100):
        gap, z, _ = solved(max_iter)
        zero = safe_zeros(z, ranges, 0.7, alpha, gap)
        assert not best[zero].any()
        dropped.append(zero.sum())
    assert dropped[0] < dropped[-1] and dropped[-1] > 0.9 * np.sum(best == 0.0)


def test_screening_of_sequences():
    rng = np.random.default_rng(0)
    lengths, d, R, alpha = np.full(10, 6), 12, 3, 0.2
    X = rng.normal(size=(60, d)) * (rng.random((60, d)) < 0.3)
    y = np.argmax(X[:, :3] @ rng.normal(size=(3, R)), axis=1)
    starts, p = 6 * np.arange(10), np.full(10, 0.1)

    def solved(max_iter):
        features = ChainFeatures(X, starts, Layout.of_chains(lengths, R), 1.0, True, True)
        shape = features.all_weights().shape
        features.set_penalty(Penalty(shape, d, thresholds=0.8, modulus=0.2))
        found = solve(
            make_surrogate("log", ChainOutputs(y, lengths, 1.0 - np.eye(R), False, "mean")),
            features, p, alpha, tol=1e-11,
            max_iter=max_iter, seed=0)
        return found.certificate.gap, features.state()["weights"][:d, :R], features.coef().T

    _, _, best = solved(2000)
    ranges = np.sqrt(p @ np.abs(X).reshape(10, 6, d).sum(axis=1) ** 2)[:, np.newaxis]
    gap, z, _ = solved(40)
    zero = safe_zeros(z, ranges, 0.8, alpha, gap)
    assert zero.any() and not best[zero].any()


# parameters


def test_penalties_are_plain_objects():
    net = ElasticNet(l1_ratio=0.2, weights={"coef": 2.0})
    assert net.get_params() == {"l1_ratio": 0.2, "weights": {"coef": 2.0}, "bounds": None}
    assert repr(net) == "ElasticNet(l1_ratio=0.2, weights={'coef': 2.0})"
    assert repr(clone(net)) == repr(net) == repr(pickle.loads(pickle.dumps(net)))
    model = MulticlassClassifier(penalty=ElasticNet())
    assert model.set_params(penalty__l1_ratio=0.9).penalty.l1_ratio == 0.9
    search = GridSearchCV(model, {"penalty__l1_ratio": [0.0, 0.5]}, cv=2)
    X, y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
    assert search.fit(X, y).best_estimator_.penalty.l1_ratio in (0.0, 0.5)
    with pytest.raises(ValueError, match=r"Set penalty to ElasticNet\(l1_ratio=...\)"):
        MulticlassClassifier().set_params(penalty__l1_ratio=0.9)
    with pytest.raises(TypeError, match="did you mean 'l1_ratio'"):
        ElasticNet(l1_ration=0.5)


def test_families_and_their_weights():
    families = {"coef": (2, 3), "intercept": (2,), "start_coef": (2,)}
    resolved = resolve_penalty(ElasticNet(0.5, weights=[1.0, 2.0, 3.0]), families)
    assert resolved.modulus == 0.5 and not resolved.by_rows
    assert_array_equal(resolved.families["coef"][2], [[0.5, 1.0, 1.5]] * 2)
    assert_array_equal(resolved.families["intercept"][2], [0.0, 0.0])
    assert_array_equal(resolved.families["start_coef"][2], [0.5, 0.5])
    resolved = resolve_penalty(
        ElasticNet(0.5, weights={"intercept": 4.0, "start_coef": 0.0}), families)
    assert_array_equal(resolved.families["intercept"][2], [2.0, 2.0])
    assert_array_equal(resolved.families["start_coef"][2], [0.0, 0.0])
    assert resolve_penalty("l2", families) is resolve_penalty(ElasticNet(0.0), families) is None
    assert resolve_penalty("elasticnet", families).modulus == 0.5


@pytest.mark.parametrize(("penalty", "message"), [
    ("l1", "penalty must be 'l2', 'elasticnet' or an object of fastm4n.penalties, got 'l1'"),
    (1.0, "penalty must be 'l2'"),
    (None, "penalty must be 'l2'"),
    (ElasticNet, "penalty must be 'l2'"),
    (ElasticNet(-0.1), "l1_ratio must be a number from 0 to 1, got -0.1"),
    (ElasticNet(1.1), "l1_ratio must be a number from 0 to 1"),
    (ElasticNet(np.nan), "l1_ratio must be a number from 0 to 1"),
    (ElasticNet("0.5"), "l1_ratio must be a number from 0 to 1"),
    (ElasticNet(True), "l1_ratio must be a number from 0 to 1"),
    (ElasticNet(1.0), "l1_ratio=1 leaves no quadratic term"),
    (Group(1), "l1_ratio=1 leaves no quadratic term"),
    (ElasticNet(weights=-1.0), "weights is -1; it must be finite and >= 0"),
    (ElasticNet(weights=[1.0, np.inf]), r"weights\[1\] is inf"),
    (ElasticNet(weights=np.ones(5)), r"weights has shape \(5,\), which does not broadcast to"),
    (ElasticNet(weights="much"), "weights must be a number, an array of numbers"),
    (ElasticNet(weights={"words": 1.0}), "must name families of weights among .*got 'words'"),
    (ElasticNet(weights={"coef": np.nan}), r"weights\['coef'\] is nan"),
    (ElasticNet(bounds=(1.0, 0.0)), "bounds: lower is 1 and upper is 0"),
    (Group(weights=np.ones((2, 3))), r"weights has shape \(2, 3\)"),
])
@pytest.mark.parametrize("estimator", [MulticlassClassifier, SequenceTagger])
def test_penalties_that_are_refused(estimator, penalty, message):
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 3
    if estimator is SequenceTagger:
        X, y = np.split(X, 3), np.split(y, 3)
    with pytest.raises(ValueError, match=message):
        estimator(penalty=penalty).fit(X, y)


def test_kernels_and_single_weights_refuse():
    X, y = np.random.default_rng(0).normal(size=(6, 2)), np.arange(6) % 3
    for penalty in ("elasticnet", L2(bounds=(0, None)), Group()):
        with pytest.raises(ValueError, match="needs kernel='linear', got 'rbf'"):
            MulticlassClassifier(kernel="rbf", penalty=penalty).fit(X, y)
    MulticlassClassifier(kernel="rbf", penalty=L2()).fit(X, y)
    with pytest.raises(ValueError, match="groups of weights need several labels"):
        Matcher(penalty=Group()).fit(X.reshape(1, 2, 3, 2)[:, :, :2], [[0, 1]])
    with pytest.raises(ValueError, match="'start_coef', weights that this model has not"):
        SequenceTagger(fit_start_end=False, penalty=ElasticNet(weights={"start_coef": 1})).fit(
            np.split(X, 3), np.split(y, 3))


def test_features_of_pairs_refuse_rows():
    features = PairFeatures(np.ones((4, 2)), np.array([0]), Layout.of_squares([2]))
    with pytest.raises(ValueError, match="do not fit"):
        features.set_penalty(Penalty((2, 2), 0))
    engine = BlockCoordinateEngine(
        make_surrogate("max_margin", PermutationOutputs(
            np.array([0, 1]), np.array([2]), 1.0 - np.eye(2), "mean")), features,
        np.ones(1), 0.1, 0)
    assert engine.features.penalty_value() == engine.features.conjugate_value() == 0.0


# sparse weights


@pytest.mark.parametrize("make", ["labels", "chains"])
def test_sparsify(make):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 20)), rng.integers(3, size=60)
    y[X[:, 0] > 0] = 1
    if make == "chains":
        X, y = np.split(X, 12), np.split(y, 12)
    estimator = {"labels": MulticlassClassifier, "chains": SequenceTagger}[make]
    model = estimator("log", alpha=0.1, penalty=ElasticNet(0.9), random_state=0).fit(X, y)
    assert 0 < model.n_nonzero_ < model.coef_.size
    predicted, dense = model.predict(X), np.array(model.coef_)
    assert model.sparsify() is model
    assert sparse.isspmatrix_csr(model.coef_) or model.coef_.format == "csr"
    assert model.coef_.nnz == model.n_nonzero_
    assert_array_equal(model.coef_.toarray(), dense)
    for again in (model, pickle.loads(pickle.dumps(model))):
        for a, b in zip(again.predict(X), predicted, strict=True):
            assert_array_equal(a, b)
    ranker = LabelRanker(random_state=0).fit(rng.normal(size=(8, 2)), [[0, 1, 2], [2, 1, 0]] * 4)
    for other in (ranker, Matcher(), MulticlassClassifier(kernel="rbf")):
        assert not hasattr(other, "sparsify")
