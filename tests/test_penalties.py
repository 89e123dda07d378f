"""Penalties: prox and its values, the engine, zero bounds, screening, and what is refused."""

import pickle

import numpy as np
import pytest
from listed import CASES
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import fastm4n.reference as ref
from fastm4n import (
    BlockFrankWolfe,
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    Transitions,
)
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._base import Penalty
from fastm4n.features._pairs import PairFeatures
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, Layout, SimplexOutputs
from fastm4n.penalties import L2, ElasticNet, Group, safe_zeros
from fastm4n.penalties._penalties import resolve_penalty
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.solvers.certificates import certify
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
        for scale in (0.3, 2.0):
            value, slope = compiled.along(z, scale)
            (right,) = expected.prox((scale * z,))
            assert_allclose(value, expected.conjugate((scale * z,)), rtol=1e-12, atol=1e-14)
            assert_allclose(slope, np.sum(z * right), rtol=1e-12)


@pytest.mark.parametrize("given", [
    None, dict(thresholds=0.5, modulus=0.3), dict(thresholds=2.0, modulus=0.1, by_rows=True),
    dict(thresholds=0.2, lower=-0.1, upper=0.4), dict(lower=0.3, upper=0.4)])
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e12])
def test_the_best_scale(given, size):
    """Of u height - Omega*(u z), against many u."""
    features = LinearFeatures(np.ones((1, 4)), np.array([0]), np.ones(1), 3, 0.0)
    z = np.zeros((5, features.stride))
    z[:4, :3] = size * np.random.default_rng(0).normal(size=(4, 3))
    if given is not None:
        features.set_penalty(Penalty(z.shape, 4, **given))
    features.restore({"weights": z})
    best = np.sum(z**2) / size
    for height in (0.01 * best, best):
        for most in (0.5 / size, np.inf):
            u = features.best_scale(height, most)
            assert 0.0 <= u <= most
            if np.isinf(u):  # bounds end what is to be gained
                assert features.along(1e15)[1] < height and "upper" in given
                continue
            tried = np.append(0.0, np.geomspace(1e-6, 1e3, 400) / size)
            values = [v * height - features.along(v)[0] for v in tried if v <= most]
            found = u * height - features.along(u)[0]
            assert found >= max(values) - 1e-3 * abs(max(values))
    assert features.best_scale(0.0) == 0.0


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
        X, y, k, surrogate, 0.05, p, penalty=ref.Penalty(thresholds=(t,), modulus=0.6))
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    found = certify(engine, engine.mu)
    assert_allclose(found.primal - found.dual, found.gap, rtol=1e-9)
    if surrogate != "log":
        expected = ref.block_coordinate_frank_wolfe(
            blocks, sampling="permutation", n_passes=4, random_state=7)
        (w,) = expected.w
        assert_allclose(features.coef().T, w, atol=1e-8)
        assert_allclose((found.primal, found.dual, found.gap), expected.history[-1, 1:], rtol=1e-7)
        assert 0 < np.count_nonzero(w) < w.size
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


def test_weights_held_at_zero_for_some_labels_count_for_the_others():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = np.argmax(X @ rng.normal(size=(5, 3)) + rng.normal(size=(60, 3)), axis=1)
    bounds = np.full((3, 6), np.inf)
    bounds[1:, 5] = 0.0
    for given in (np.column_stack([X, np.full(60, 30.0)]), sparse.csr_matrix(
            np.column_stack([X, np.full(60, 30.0)]).astype(np.float32))):
        model = MulticlassClassifier(
            "max_margin", alpha=0.01, penalty=L2((-bounds, bounds)), max_iter=5000,
            solver=BlockFrankWolfe(sampling="permutation"), random_state=0).fit(given, y)
        # 1580 where the column counts for all labels
        assert model.n_iter_ <= 800
        assert not model.coef_[1:, 5].any() and model.coef_[0].all()


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
@pytest.mark.parametrize("where", ["labels", "rankings", "chains", "pairs"])
def test_screening_never_drops_a_weight(where, seed):
    """At no gap on the way, for some gap nearly all that are zero; and within bounds."""
    rng = np.random.default_rng(seed)
    ratio, bounds = (0.7, None) if seed % 2 else (0.8, (-0.1, 0.4))
    options = dict(
        alpha={"labels": 0.05, "rankings": 0.05, "chains": 0.2, "pairs": 0.05}[where],
        penalty=ElasticNet(ratio, bounds=bounds), random_state=0)
    X = rng.normal(size=(36, 16)) * (rng.random((36, 16)) < 0.3)
    y = np.argmax(X[:, :4] @ rng.normal(size=(4, 3)) + 0.3 * rng.normal(size=(36, 3)), axis=1)
    if where == "labels":
        cls, reach = MulticlassClassifier, X**2
    elif where == "rankings":
        cls, reach = LabelRanker, X**2
        y = np.argsort(X[:, :3] @ rng.normal(size=(3, 3)), axis=1)
    elif where == "chains":
        cls, reach = SequenceTagger, np.abs(X).reshape(9, 4, -1).sum(axis=1) ** 2
        X, y, options["cost_scale"] = np.split(X, 9), np.split(y, 9), "mean"
    else:
        cls, X = Matcher, X.reshape(9, 2, 2, -1)
        # of a row the least, and the largest value
        reach = (X.max(axis=2) - X.min(axis=2)).sum(axis=1) ** 2
        y, options["cost_scale"] = np.array([[i % 2, 1 - i % 2] for i in range(9)]), "mean"
    shape = {"labels": (3, 16), "rankings": (3, 3, 16), "chains": (3, 16), "pairs": (16,)}[where]
    ranges = np.sqrt(reach.mean(axis=0))

    def solved(max_iter):
        model = cls("log", **options)
        problem = model._problem(X, y, None)
        found = solve(
            problem.loss, problem.features, problem.weights, model.alpha, tol=1e-12,
            max_iter=max_iter, seed=0)
        # z is w without a penalty
        plain = model.set_params(penalty="l2")._problem(X, y, None)
        plain.features.restore(problem.features.state())
        return found.certificate.gap, plain.task.fitted(
            plain, model.alpha, found.mu)["coef_"]

    best = cls("log", **options, tol=1e-10, max_iter=5000).fit(X, y).coef_
    assert best.shape == shape
    dropped = []
    for max_iter in (1, 3, 10, 30, 100):
        gap, z = solved(max_iter)
        zero = safe_zeros(z, ranges, ratio, options["alpha"], gap)
        assert not best[zero].any()
        dropped.append(zero.sum())
    share = 0.9 if where == "labels" else 0.7
    assert dropped[0] < dropped[-1] and dropped[-1] > share * np.sum(best == 0.0) > 0


# parameters


def test_penalties_are_plain_objects():
    net = ElasticNet(l1_ratio=0.2, weights={"coef": 2.0})
    params = net.get_params()
    assert params["l1_ratio"] == 0.2 and params["weights"] == {"coef": 2.0}
    assert params["bounds"] is None
    assert repr(net) == "ElasticNet(l1_ratio=0.2, weights={'coef': 2.0})"
    assert repr(clone(net)) == repr(net) == repr(pickle.loads(pickle.dumps(net)))
    model = MulticlassClassifier(penalty=ElasticNet())
    assert model.set_params(penalty__l1_ratio=0.9).penalty.l1_ratio == 0.9
    search = GridSearchCV(model, {"penalty__l1_ratio": [0.0, 0.5]}, cv=2)
    X, y = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 2
    assert search.fit(X, y).best_estimator_.penalty.l1_ratio in (0.0, 0.5)


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


# what is refused

RATIO = "l1_ratio must be a number from 0 to 1, got "
PAIR = r"penalty: bounds must be a pair \(lower, upper\)"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("penalty", "message"), [
    ("l3", "penalty must be 'l2', 'elasticnet', 'l1' or an object of .*, got 'l3'"),
    (1.0, "penalty must be 'l2'"),
    (None, "penalty must be 'l2'"),
    (ElasticNet, "penalty must be 'l2'"),
    (Penalty((1, 8), 0), "penalty must be 'l2'"),
    ({"l1_ratio": 0.5}, "penalty must be 'l2'"),
    (ElasticNet(-0.1), RATIO + "-0.1"),
    (ElasticNet(1.1), RATIO),
    (ElasticNet(np.nan), RATIO),
    (ElasticNet("0.5"), RATIO),
    (ElasticNet(True), RATIO),
    (ElasticNet(None), RATIO),
    (Group([0.5]), RATIO),
    (Group(1), "l1_ratio=1 leaves no quadratic term"),
    (ElasticNet(weights=-1.0), "weights is -1: weights must be finite and >= 0"),
    (ElasticNet(weights=[1.0, np.inf]), r"weights\[1\] is inf"),
    (ElasticNet(weights=np.ones(5)), r"weights has shape \(5,\), which does not broadcast to"),
    (ElasticNet(weights="much"), "weights must be a number, an array of numbers"),
    (ElasticNet(weights={"words": 1.0}), "must name families of weights among .*got 'words'"),
    (ElasticNet(weights={"coef_": 1.0}), "must name families of weights among .*got 'coef_'"),
    (ElasticNet(0.0, weights={"words": 1.0}), "must name families of weights among"),
    (ElasticNet(weights={"coef": np.nan}), r"weights\['coef'\] is nan"),
    (ElasticNet(weights={"coef": None}), r"weights\['coef'\] "),
    (ElasticNet(bounds=(1.0, 0.0)), "bounds: lower 1 exceeds upper 0"),
    (Group(weights=np.ones((2, 3))), r"weights has shape \(2, 3\)"),
    (Group(weights={"coef": -2.0}), r"weights\['coef'\] is -2"),
    (L2((1.0, 0.0)), r"penalty: bounds: lower 1 exceeds upper 0 for coef_\["),
    (L2(0.0), PAIR),
    (L2((0.0,)), PAIR),
    (L2((0.0, 1.0, 2.0)), PAIR),
    (L2("01"), PAIR),
    (L2({"coef": 1.0}), r"penalty: bounds\['coef'\] must be a pair"),
    (L2({"intercept": (0, 1)}), "bounds must name families .*got 'intercept'"),
    (L2({0: (0, 1)}), "bounds must name families"),
    (L2((np.nan, 1.0)), "penalty: bounds: lower is nan"),
    (L2((0.0, np.nan)), "penalty: bounds: upper is nan"),
    (L2((np.inf, np.inf)), "penalty: bounds: lower is inf: for no lower bound"),
    (L2((None, -np.inf)), "penalty: bounds: upper is -inf: for no upper bound"),
    (L2(("0", 1.0)), "penalty: bounds: lower must be a number"),
    (L2((0.0, True)), "penalty: bounds: upper must be a number"),
    (L2((0.0, 1j)), "penalty: bounds: upper must be a number"),
    (L2((0.0, {})), "penalty: bounds: upper must be a number"),
    (L2(([[0.0], [0.0, 1.0]], None)), "penalty: bounds: lower must be a number"),
    (L2((np.zeros(7), None)), r"penalty: bounds: lower has shape \(7,\), which does not broadcast"),
    (L2((None, np.zeros((5, 1, 1, 1)))), r"penalty: bounds: upper has shape \(5, 1, 1, 1\)"),
    (L2((1e200, None)), "penalty: bounds are too large for float64"),
])
def test_penalties_that_are_refused(case, penalty, message):
    problem = CASES[case]("max_margin")
    estimator = problem.made(penalty=penalty)
    if isinstance(penalty, Group) and case == "matchings":
        # whatever its parameters are
        message = f"{RATIO}|l1_ratio=1 leaves|needs several labels, and a feature of a Matcher"
    with pytest.raises(ValueError, match=message):
        estimator.fit(problem.X, problem.y)
    assert not hasattr(estimator, "coef_")


NO_WEIGHTS = "'{}', weights that this model has not: see {}"
FREE = "penalty: {} names 'intercept', which fit_intercept='free' leaves out of the penalty"
KERNEL = "needs kernel='linear', got "


@pytest.mark.parametrize(("case", "penalty", "options", "message"), [
    ("labels", ElasticNet(weights={"intercept": 1.0}), dict(fit_intercept="free"),
     FREE.format("weights")),
    ("labels", Group(weights={"intercept": 0.0}), dict(fit_intercept="free"),
     FREE.format("weights")),
    ("labels", L2({"intercept": (0, 1)}), dict(fit_intercept="free"), FREE.format("bounds")),
    ("labels", ElasticNet(weights={"intercept": 1.0}), dict(fit_intercept=False),
     NO_WEIGHTS.format("intercept", "fit_intercept")),
    ("labels", ElasticNet(weights={"start_coef": 1.0}), {}, "must name families of weights among"),
    ("labels", "elasticnet", dict(kernel="rbf"), KERNEL + "'rbf'"),
    ("labels", Group(), dict(kernel="precomputed"), KERNEL + "'precomputed'"),
    ("labels", ElasticNet(0.0, weights=2.0), dict(kernel="rbf"), KERNEL + "'rbf'"),
    ("labels", L2((0.0, None)), dict(kernel=np.dot), KERNEL + "<function"),
    ("ranks", L2((0.0, None)), dict(kernel=lambda a, b: a @ b), KERNEL + "<function"),
    ("ranks", "elasticnet", dict(kernel="rbf"), KERNEL + "'rbf'"),
    ("matchings", ElasticNet(), dict(kernel=lambda a, b: a @ b), KERNEL + "<function"),
    ("matchings", L2((0.0, None)), dict(kernel="rbf"), KERNEL + "'rbf'"),
    ("matchings", ElasticNet(weights={"intercept": 1.0}), {}, "must name families of weights"),
    ("matchings", Group(), {}, "needs several labels, and a feature of a Matcher has one"),
    ("chains", L2({"transition_coef": (1, 0)}), {},
     r"penalty: bounds\['transition_coef'\]: lower 1 exceeds upper 0 for transition_coef_\[0, 0\]"),
    ("chains", L2({"start_coef": ([0, 0, 0], 1)}), {},
     r"penalty: bounds\['start_coef'\]: lower has shape \(3,\)"),
    ("chains", L2({"transition_coef": (0, 1)}), dict(transitions=Transitions(pairs=False)),
     NO_WEIGHTS.format("transition_coef", "pairs of transitions")),
    ("chains", L2({"start_coef": (0, 1)}), dict(transitions=Transitions(start_end=False)),
     NO_WEIGHTS.format("start_coef", "start_end of transitions")),
    ("chains", ElasticNet(weights={"end_coef": 1}), dict(transitions=Transitions(start_end=False)),
     NO_WEIGHTS.format("end_coef", "start_end of transitions")),
    ("chains", ElasticNet(weights={"intercept": 1}), dict(fit_intercept=False),
     NO_WEIGHTS.format("intercept", "fit_intercept")),
    ("chains", L2({"transition_feature_coef": (0, 1)}), {},
     NO_WEIGHTS.format("transition_feature_coef", "features of transitions")),
    ("chains", Group(weights={"transition_coef": [1, 2]}), {},
     "must be a number for transition_coef_"),
])
def test_penalties_that_models_refuse(case, penalty, options, message):
    problem = CASES[case]("max_margin")
    with pytest.raises(ValueError, match=message):
        problem.made(penalty=penalty, **options).fit(problem.X, problem.y)


@pytest.mark.parametrize("case", CASES)
def test_errors_name_the_place(case):
    problem = CASES[case]("max_margin")
    place = tuple(n - 1 for n in problem.shape)
    at = ", ".join(map(str, place))
    lower, upper, weights = np.zeros(problem.shape), np.ones(problem.shape), np.ones(problem.shape)
    lower[place], weights[place] = 2.0, -1.0
    for penalty, message in (
        (L2((lower, upper)), rf"lower 2 exceeds upper 1 for coef_\[{at}\]"),
        (L2((None, np.where(lower > 1.0, np.nan, upper))), rf"bounds: upper\[{at}\] is nan"),
        (ElasticNet(weights=weights), rf"weights\[{at}\] is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            problem.made(penalty=penalty).fit(problem.X, problem.y)


@pytest.mark.parametrize(("change", "error", "message"), [
    (lambda model: model.set_params(penalty__foo=1), ValueError,
     "ElasticNet has no parameter 'foo'; it has l1_ratio, weights, bounds"),
    (lambda model: model.set_params(penalty__l1_ration=1), ValueError, "did you mean 'l1_ratio'"),
    (lambda model: model.set_params(penalty="l2", penalty__l1_ratio=0.9), ValueError,
     r"Set penalty to ElasticNet\(l1_ratio=...\)"),
    (lambda model: ElasticNet(l1_ration=0.5), TypeError, "did you mean 'l1_ratio'"),
    (lambda model: Group(groups=[[0, 1]]), TypeError, "Group has no parameter 'groups'"),
    (lambda model: Group(bounds=(0, 1)), TypeError, "Group has no parameter 'bounds'"),
    (lambda model: L2(l1_ratio=0.5), TypeError, "L2 has no parameter 'l1_ratio'"),
])
def test_parameters_that_do_not_exist(change, error, message):
    with pytest.raises(error, match=message):
        change(MulticlassClassifier(penalty=ElasticNet()))


def test_a_refused_fit_leaves_the_last_one():
    problem = CASES["labels"]("max_min")
    fitted = problem.made(penalty=L2((0.0, None)))
    coef = fitted.fit(problem.X, problem.y).coef_
    with pytest.raises(ValueError, match="penalty: bounds"):
        fitted.set_params(penalty=L2((1.0, 0.0))).fit(problem.X, problem.y)
    assert fitted.coef_ is coef and coef.min() == 0.0
    # what says nothing of single weights is for kernels as well
    for penalty in ("l2", L2(), ElasticNet(0.0)):
        MulticlassClassifier(kernel="rbf", penalty=penalty).fit(problem.X, problem.y)


def test_features_of_pairs_refuse_rows():
    features = PairFeatures(np.ones((4, 2)), np.array([0]), Layout.of_squares([2]))
    with pytest.raises(ValueError, match="do not fit"):
        features.set_penalty(Penalty((2, 2), 0))
    assert features.penalty_value() == features.conjugate_value() == 0.0


# sparse weights


@pytest.mark.parametrize("estimator", [
    MulticlassClassifier, OrdinalClassifier, MultiLabelClassifier, SequenceTagger, GraphTagger,
    LabelRanker, Matcher])
def test_weights_stay_dense(estimator):
    """`sparsify` made predictions slower, or fail, and files fail."""
    assert not hasattr(estimator(), "sparsify")
    with pytest.raises(AttributeError, match=r"has no sparsify: .*scipy.sparse.csr_array\(model.coef_"):
        estimator().sparsify()


def test_zeros_are_counted():
    X, y = np.random.default_rng(0).normal(size=(60, 20)), np.arange(60) % 3
    model = MulticlassClassifier("log", alpha=0.1, penalty=ElasticNet(0.9), random_state=0).fit(X, y)
    assert model.n_nonzero_ == sparse.csr_array(model.coef_).nnz < model.coef_.size
