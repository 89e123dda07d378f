"""Matcher of rectangles, unmatched rows and forbidden pairs, by listing all matchings."""

import itertools
import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from comparisons import assert_same_fit
from covering import covering
from estimator_cases import CASES, SURROGATES
from killed_fits import Killed
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from table import Explicit, matchings

from fastm4n import (
    CuttingPlanes,
    Matcher,
    RegularizationPath,
    checkpointing,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.features._pairs import PairFeatures
from fastm4n.outputs import Layout, MatchingOutputs, PermutationOutputs
from fastm4n.penalties import ElasticNet
from fastm4n.solvers.monitor import FitCheckpoint
from fastm4n.tasks.base import Memory
from fastm4n.tasks.matchings import MatchingTask

SHAPES = ((2, 3), (3, 2), (1, 2), (2, 2), (3, 3), (2, 1))
# `unmatched`, and whether pairs are forbidden
FORMS = {
    "rectangular": (None, False), "learnt": ("learn", False), "given": (-0.75, False),
    "rewarded": (0.5, False), "forbidden": (None, True), "learnt, forbidden": ("learn", True)}


def examples(unmatched, with_forbidden=False, shapes=SHAPES, seed=0, d=2):
    """Pairs that are near if they belong together, their matchings, and the pairs that may be."""
    rng = np.random.default_rng(seed)
    X, y, allowed = [], [], []
    for n, m in shapes:
        before, columns = rng.normal(size=(n, d)), np.full(n, -1)
        after = rng.normal(size=(m, d))
        rows = rng.permutation(n)[: min(n, m)]
        if unmatched is not None:
            rows = rows[rng.random(rows.size) < 0.7]
        columns[rows] = rng.permutation(m)[: rows.size]
        after[columns[rows]] = before[rows] + 0.5 * rng.normal(size=(rows.size, d))
        X.append(np.round(4 * (before[:, np.newaxis] - after) ** 2) / 4)
        y.append(columns)
        mask = rng.random((n, m)) < 0.6
        mask[rows, columns[rows]] = True
        allowed.append(mask)
    return X, y, allowed if with_forbidden else None


def fit(form, surrogate="max_margin", seed=0, shapes=SHAPES, **parameters):
    unmatched, with_forbidden = FORMS[form]
    X, y, allowed = examples(unmatched, with_forbidden, shapes, seed)
    weights = np.random.default_rng(seed).choice([0.5, 1.0, 2.0], size=len(X))
    parameters = {"alpha": 0.1, "tol": 1e-3, "max_iter": 3000, "random_state": 0, **parameters}
    matcher = Matcher(surrogate, unmatched=unmatched, **parameters)
    matcher.fit(X, y, weights, allowed=allowed)
    return matcher, SimpleNamespace(X=X, y=y, weights=weights, allowed=allowed)


def assert_same_parts(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)


def listed(matcher, x, mask=None):
    """All matchings of an example and their scores; columns after the last one are unmatched."""
    n, m = np.shape(x)[:2]
    table = np.zeros((n, m + 1))
    table[:, :m] = matcher.decision_function([x])[0]
    if matcher.unmatched is not None:
        table[:, m] = (
            matcher.unmatched_coef_ if matcher.unmatched == "learn" else matcher.unmatched)
    outputs = np.array(matchings(n, m, matcher.unmatched is None)).reshape(-1, n)
    if mask is not None:
        padded = np.concatenate([mask, np.ones((n, 1), dtype=bool)], axis=1)
        outputs = outputs[padded[np.arange(n), outputs].all(axis=1)]
    return outputs, table[np.arange(n), outputs].sum(axis=1)


# certificates


@pytest.mark.parametrize(("form", "surrogate", "kernel", "scale"), covering(
    itertools.product(FORMS, SURROGATES, ("linear", "rbf"), ("sum", "mean"))))
def test_certificates(form, surrogate, kernel, scale):
    """The objective at the weights, and its minimum by a generic solver."""
    matcher, data = fit(form, surrogate, kernel=kernel, gamma=0.5, cost_scale=scale)
    explicit = Explicit(None, matcher, data)
    value = explicit.value(explicit.weights_of(matcher))
    gap, least = matcher.duality_gap_, explicit.minimum()
    assert -1e-8 <= matcher.primal_objective_ - value <= 0.05 * gap + 1e-8
    assert matcher.dual_objective_ <= least + 1e-8
    assert value - least <= gap + 1e-8
    assert matcher.relative_gap_ <= 1e-3


@pytest.mark.parametrize("penalty", ["l1", "elasticnet", ElasticNet(
    0.5, weights={"coef": 1.0, "unmatched_coef": 0.0}), ElasticNet(
    0.5, bounds={"coef": (None, 0), "unmatched_coef": (-0.1, None)})])
@pytest.mark.parametrize("form", ["learnt", "given"])
def test_penalties(form, penalty):
    if form == "given" and not isinstance(penalty, str):
        with pytest.raises(ValueError, match="unmatched_coef.*: see unmatched"):
            fit(form, penalty=penalty)
        return
    tol = 0.05 if penalty == "l1" else 1e-3
    matcher, data = fit(form, penalty=penalty, tol=tol)
    explicit = Explicit(None, matcher, data)
    value = explicit.value(explicit.weights_of(matcher))
    assert value - explicit.minimum() <= matcher.duality_gap_ + 1e-7
    assert_allclose(matcher.primal_objective_, value, rtol=1e-6)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("form", "kernel"), [
    ("learnt", "linear"), ("given", "linear"), ("given", "rbf"), ("learnt", "rbf"),
    ("rectangular", "linear")])
def test_paths(form, kernel, surrogate, tmp_path):
    """Each breakpoint, and the objective at zero weights, with scores of unmatched rows."""
    unmatched, _ = FORMS[form]
    X, y, _ = examples(unmatched)
    template = Matcher(surrogate, unmatched=unmatched, kernel=kernel, gamma=0.5, random_state=0)
    path = regularization_path(template, X, y, eps=0.05, alpha_min=0.05)
    data = SimpleNamespace(X=X, y=y, weights=np.ones(len(X)))
    for alpha in (*path.alphas[[0, -1]], 2 * path.alphas[0], 0.07):
        model = path.estimator(alpha)
        explicit = Explicit(None, model, data)
        value = explicit.value(explicit.weights_of(model))
        assert value - explicit.minimum() <= path.gap(alpha) + 1e-7
        assert path.relative_gap(alpha) <= 0.05 + 1e-9
    assert_allclose(path.objective_at_zero, explicit.at_rest(), rtol=1e-6)
    path.save(tmp_path / "path")
    again = RegularizationPath.load(tmp_path / "path")
    for alpha in (path.alphas[-1], 2 * path.alphas[0]):
        one, other = path.estimator(alpha), again.estimator(alpha)
        assert_same_parts(one.decision_function(X), other.decision_function(X))
        assert_same_parts(one.predict(X), other.predict(X))
        if form == "learnt":
            assert isinstance(other.unmatched_coef_, float)
            assert one.unmatched_coef_ == other.unmatched_coef_


def test_heuristic_paths():
    X, y, _ = examples(-0.75)
    template = Matcher("max_margin", unmatched=-0.75, random_state=0)
    path = regularization_path(template, X, y, eps=0.05, alpha_min=0.05, method="heuristic")
    data = SimpleNamespace(X=X, y=y, weights=np.ones(len(X)))
    model = path.estimator(path.alphas[-1])
    explicit = Explicit(None, model, data)
    assert explicit.value(explicit.weights_of(model)) - explicit.minimum() <= (
        path.gap(path.alphas[-1]) + 1e-7)


def test_squares_stay_permutations():
    """Complete squares take permutations, also if all pairs are named as allowed."""
    X, y = CASES["Matcher"].X, CASES["Matcher"].y
    matcher = Matcher(alpha=0.05, random_state=0)
    problem = matcher._problem(X, y)
    assert type(problem.loss.outputs) is PermutationOutputs
    plain = clone(matcher).fit(X, y)
    every = [np.ones(x.shape[:2], dtype=bool) for x in X]
    assert_same_fit(clone(matcher).fit(X, y, allowed=every), plain)
    assert_array_equal(plain.predict(X[3:4], allowed=every[3:4])[0], plain.predict(X[3:4])[0])
    # an example of weight zero does not count, whatever its shape
    wide = [*X, X[3][:2]]
    forbidden = np.ones((2, 4), dtype=bool)
    forbidden[0, 3] = False
    assert_same_fit(clone(matcher).fit(
        wide, [*y, [0, 1]], [*np.ones(20), 0.0], allowed=[*every, forbidden]), plain)
    assert type(matcher._problem(wide, [*y, [0, 1]]).loss.outputs) is MatchingOutputs


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_both_roads_agree(surrogate):
    """Permutations as matchings of rectangles have the same optimum."""
    X, y, _ = examples(None, shapes=((3, 3), (2, 2), (3, 3), (2, 2)))
    square = Matcher(surrogate, alpha=0.1, tol=1e-4, random_state=0).fit(X, y)
    # one more example, whose rows have one column only, changes nothing but the mean
    other = Matcher(surrogate, alpha=0.1 * 4 / 5, tol=1e-4, random_state=0).fit(
        [*X, np.zeros((1, 2, 2))], [*y, [0]])
    assert_allclose(other.coef_, square.coef_, atol=0.02 * np.abs(square.coef_).max())


@pytest.mark.parametrize("cost", ["absolute", "squared"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_costs_by_the_order_of_columns(surrogate, cost):
    matcher, data = fit(
        "rectangular", surrogate, shapes=((2, 3), (1, 2), (2, 2), (3, 3), (1, 4)), cost=cost)
    explicit = Explicit(None, matcher, data)
    value = explicit.value(explicit.weights_of(matcher))
    assert -1e-8 <= matcher.primal_objective_ - value <= 0.05 * matcher.duality_gap_ + 1e-8
    assert value - explicit.minimum() <= matcher.duality_gap_ + 1e-8
    assert_array_equal(matcher.cost_matrix_.shape, (4, 4))
    if surrogate != "max_margin":
        careful = matcher.predict(data.X, decode="min_risk")
        assert all(np.unique(part).size == len(part) and part.min() >= 0 for part in careful)


# predictions


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_predictions(form, surrogate):
    """No allowed matching scores more; larger examples than in the fit, too."""
    matcher, data = fit(form, surrogate, tol=0.01)
    unmatched, _ = FORMS[form]
    X, _, masks = examples(unmatched, True, (*SHAPES, (4, 3), (3, 4), (2, 3)), seed=1)
    for allowed in (None, masks):
        found = matcher.predict(X, allowed=allowed, decode="map")
        for b, (x, columns) in enumerate(zip(X, found, strict=True)):
            outputs, totals = listed(matcher, x, None if allowed is None else allowed[b])
            place = np.flatnonzero((outputs == columns).all(axis=1))
            assert place.size == 1 and totals[place[0]] >= totals.max() - 1e-9
    truth = [np.mean(a == b) for a, b in zip(
        data.y, matcher.predict(data.X, allowed=data.allowed), strict=True)]
    assert_allclose(matcher.score(data.X, data.y, allowed=data.allowed), np.mean(truth))
    assert_allclose(
        matcher.score(data.X, data.y, data.weights, allowed=data.allowed),
        np.average(truth, weights=data.weights))


@pytest.mark.parametrize("form", FORMS)
def test_marginals(form):
    matcher, _ = fit(form, "log", tol=0.01)
    X, _, masks = examples(FORMS[form][0], True, seed=1)
    for allowed in (None, masks):
        found = matcher.predict_marginals(X, allowed=allowed)
        for b, (x, marginals) in enumerate(zip(X, found, strict=True)):
            outputs, totals = listed(matcher, x, None if allowed is None else allowed[b])
            m = x.shape[1]
            pairs = np.eye(m + 1)[np.where(outputs < 0, m, outputs)][:, :, :m]
            assert_allclose(marginals, np.tensordot(softmax(totals), pairs, 1), atol=1e-10)


COSTS = np.array([[0.0, 1.0, 0.5], [2.0, 0.0, 1.0], [0.25, 3.0, 0.0]])


@pytest.mark.parametrize("cost", ["zero_one", COSTS])
@pytest.mark.parametrize("form", FORMS)
def test_least_risk(form, cost):
    """No allowed matching has a smaller expected cost under the CRF's marginals."""
    shapes = ((2, 2), (3, 2), (1, 2)) * 2  # of which the second leaves a row unmatched
    matcher, data = fit(form, "log", shapes=shapes, cost=cost, tol=0.01)
    found = matcher.predict(data.X, decode="min_risk", allowed=data.allowed)
    for b, (x, columns) in enumerate(zip(data.X, found, strict=True)):
        outputs, totals = listed(matcher, x, None if data.allowed is None else data.allowed[b])
        outputs = np.where(outputs < 0, 2, outputs)
        costs = (1 - np.eye(3) if isinstance(cost, str) else cost)[
            outputs[:, np.newaxis], outputs].sum(axis=2)
        risks = softmax(totals) @ costs
        place = np.flatnonzero((outputs == np.where(columns < 0, 2, columns)).all(axis=1))
        assert risks[place[0]] <= risks.min() + 1e-5


@pytest.mark.parametrize("form", FORMS)
def test_least_risk_of_games(form):
    """Under "max_min" the oracle's distribution is best, and its own answer one of the outputs."""
    matcher, data = fit(form, "max_min", tol=0.01)
    careful = matcher.predict(data.X, decode="min_risk", allowed=data.allowed)
    for b, (x, columns) in enumerate(zip(data.X, careful, strict=True)):
        outputs, _ = listed(matcher, x, None if data.allowed is None else data.allowed[b])
        assert (outputs == columns).all(axis=1).any()


@pytest.mark.parametrize("unmatched", [None, "learn"])
def test_examples_the_other_way_round(unmatched):
    """Rows and columns change places: complete matchings have the same pairs."""
    X, y, _ = examples(unmatched, shapes=((2, 4), (4, 2), (3, 3), (3, 4)))
    flipped = [x.swapaxes(0, 1) for x in X]
    inverse = []
    for x, columns in zip(X, y, strict=True):
        rows = np.full(x.shape[1], -1)
        rows[columns[columns >= 0]] = np.flatnonzero(columns >= 0)
        inverse.append(rows)
    matcher = Matcher("log", alpha=0.1, unmatched=unmatched, random_state=0, tol=1e-9)
    one, other = clone(matcher).fit(X, y), clone(matcher).fit(flipped, inverse)
    # the log surrogate has no costs: what is unmatched on either side differs by a constant
    assert_allclose(one.coef_, other.coef_, atol=1e-3)
    for columns, rows in zip(one.predict(X), other.predict(flipped), strict=True):
        pairs = {(i, c) for i, c in enumerate(columns) if c >= 0}
        assert pairs == {(i, c) for c, i in enumerate(rows) if i >= 0}


def test_empty_examples():
    """Examples without pairs do not count in a fit, and have their only matching predicted."""
    X, y, _ = examples("learn")
    more = [np.zeros((3, 0, 2)), np.zeros((0, 2, 2)), np.zeros((0, 0, 2))]
    for surrogate in SURROGATES:
        matcher = Matcher(surrogate, alpha=0.1, unmatched="learn", random_state=0)
        plain = clone(matcher).fit(X, y)
        matcher.fit([*X, *more], [*y, [-1] * 3, [], []])
        assert_same_fit(matcher, plain)
        for decode in ("map", "min_risk")[: 1 + (surrogate != "max_margin")]:
            found = matcher.predict([*more, X[0]], decode=decode)
            assert [part.tolist() for part in found[:3]] == [[-1, -1, -1], [], []]
        assert matcher.score(more, [[-1] * 3, [], []]) == 1.0
    assert [part.shape for part in matcher.predict_marginals(more)] == [(3, 0), (0, 2), (0, 0)]
    with pytest.raises(ValueError, match="X has no pairs: all examples of non-zero weight have no"):
        matcher.fit(more, [[-1] * 3, [], []])
    with pytest.raises(ValueError, match=r"X\[6\] has shape \(3, 0, 2\): it has no pairs or no"):
        Matcher().fit([*X, *more], [*y, [-1] * 3, [], []])
    # every pair forbidden: all rows are unmatched
    nothing = [np.zeros(x.shape[:2], dtype=bool) for x in X]
    assert all((part == -1).all() for part in matcher.predict(X, allowed=nothing))
    lonely = clone(matcher).fit(X, [[-1] * len(x) for x in X], allowed=nothing)
    assert lonely.duality_gap_ <= 1e-9


# data


def test_kinds_of_input():
    X, y, allowed = examples("learn", True, shapes=((2, 3),) * 8)
    matcher = Matcher(alpha=0.1, unmatched="learn", random_state=0)
    plain = clone(matcher).fit(np.array(X), np.array(y), allowed=np.array(allowed))
    missing = np.where(np.array(y) < 0, np.nan, np.array(y))
    nothing = [[None if column < 0 else int(column) for column in part] for part in y]
    for inputs, outputs, masks in (
        (X, y, allowed), ([x.tolist() for x in X], nothing, [mask.tolist() for mask in allowed]),
        (np.array(X, dtype=np.float32), missing, tuple(allowed)), (tuple(X), list(missing), allowed),
    ):
        other = clone(matcher).fit(inputs, outputs, allowed=masks)
        assert_same_fit(other, plain)
        assert other.score(inputs, outputs) == plain.score(X, y)
    assert plain.predict(np.array(X)).shape == (8, 2)
    assert plain.decision_function(np.array(X)).shape == (8, 2, 3)
    frozen = plain.predict(X)
    assert isinstance(frozen, list)


def test_weights_and_repeats():
    """Weight 2 is the example twice; examples that differ in shape or mask alone stay apart."""
    X, y, allowed = examples("learn", True)
    matcher = Matcher("log", alpha=0.1, unmatched="learn", random_state=0)
    twice = clone(matcher).fit([*X, X[0]], [*y, y[0]], allowed=[*allowed, allowed[0]])
    weighted = clone(matcher).fit(X, y, [2, 1, 1, 1, 1, 1], allowed=allowed)
    assert_same_fit(twice, weighted)
    # equal numbers in other shapes, and one more with a mask
    X = [np.ones((2, 3, 1)), np.ones((3, 2, 1)), np.ones((6, 1, 1)), np.ones((2, 3, 1))]
    y, masks = [[-1] * len(x) for x in X], [np.ones(x.shape[:2], dtype=bool) for x in X]
    masks[3][0, 0] = False
    task = MatchingTask(matcher)
    for allowed, n_blocks in ((None, 3), (masks, 4)):
        problem = task.problem(Memory(X, y, allowed=allowed))
        assert problem.loss.outputs.layout.n_blocks == n_blocks


@pytest.mark.parametrize("form", ["rectangular", "learnt", "given", "learnt, forbidden"])
def test_warm_starts(form):
    matcher, data = fit(form, "log", warm_start=True)
    matcher.set_params(tol=1e-4).fit(data.X, data.y, data.weights, allowed=data.allowed)
    cold = clone(matcher).fit(data.X, data.y, data.weights, allowed=data.allowed)
    assert matcher.n_iter_ < cold.n_iter_
    assert_allclose(matcher.coef_, cold.coef_, atol=0.05)
    # other kinds of matchings start anew
    for unmatched in (None, "learn", -1.0):
        if unmatched is None and form != "rectangular":
            continue
        matcher.set_params(unmatched=unmatched)
        matcher.fit(data.X, data.y, data.weights, allowed=data.allowed)
        assert matcher.relative_gap_ <= 1e-4


@pytest.mark.parametrize(("form", "surrogate"), [
    ("learnt, forbidden", "max_margin"), ("given", "max_min"), ("given", "log")])
def test_checkpoints(form, surrogate, always, tmp_path, monkeypatch):
    """A killed fit goes on from where it was. Other masks are another fit."""
    matcher, data = fit(form, surrogate)
    file, keep = tmp_path / "fit.fm4n", FitCheckpoint.keep

    def killed(self, driver, history):
        keep(self, driver, history)
        raise Killed

    def again(allowed):
        with checkpointing(file):
            return clone(matcher).fit(data.X, data.y, data.weights, allowed=allowed)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(FitCheckpoint, "keep", killed)
        again(data.allowed)
    assert file.exists()
    with pytest.raises(ValueError, match="is of another fit: allowed"):
        again([np.ones(x.shape[:2], dtype=bool) for x in data.X])
    assert_same_fit(again(data.allowed), matcher)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("form", ["rectangular", "learnt", "given"])
def test_pickles_and_files(form, kernel, tmp_path):
    matcher, data = fit(form, "log", kernel=kernel, tol=0.01)
    save_model(matcher, tmp_path / "model")
    for other in (pickle.loads(pickle.dumps(matcher)), load_model(tmp_path / "model")):
        assert_same_fit(other, matcher)
        assert_same_parts(
            matcher.predict_marginals(data.X), other.predict_marginals(data.X))
        if form == "learnt":
            assert isinstance(other.unmatched_coef_, float)
            assert other.unmatched_coef_ == matcher.unmatched_coef_
    assert hasattr(matcher, "unmatched_coef_") == (form == "learnt")
    # a later fit without that weight does not keep it
    matcher.set_params(unmatched=-1.0).fit(data.X, data.y)
    assert not hasattr(matcher, "unmatched_coef_")


def test_features_with_fixed_scores():
    layout = Layout.of_rectangles(np.array([2, 1]), np.array([2, 3]))
    features = PairFeatures(np.ones((7, 1)), np.array([0, 4]), layout)
    base = np.arange(7.0)
    features.set_base(base, layout)
    again = pickle.loads(pickle.dumps(features))
    assert again.has_offset
    assert_array_equal(again.fixed_scores(), base)
    with pytest.raises(ValueError, match=r"base has shape \(6,\) and the layout 2 blocks of 7"):
        features.set_base(base[:6], layout)


def test_threads():
    one, data = fit("given", "max_min", tol=0.01)
    two = clone(one).set_params(n_jobs=2).fit(data.X, data.y, data.weights)
    assert_same_fit(one, two)


# bad parameters and data


@pytest.mark.parametrize("unmatched", [
    np.nan, np.inf, -np.inf, "learnt", True, [0.0], {}, 1j, np.array([1.0])])
def test_bad_scores_of_unmatched_rows(unmatched):
    with pytest.raises(ValueError, match="unmatched must be None, 'learn' or a finite number"):
        Matcher(unmatched=unmatched).fit([np.ones((2, 2, 1))], [[0, 1]])


@pytest.mark.parametrize("unmatched", [1e12, -1e12, 1e300])
def test_large_scores_of_unmatched_rows(unmatched):
    """Fits with scores beyond all others end, and predict what these say."""
    X, y, _ = examples("learn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matcher = Matcher(unmatched=unmatched, alpha=0.1, max_iter=20, random_state=0).fit(X, y)
    for x, columns in zip(X, matcher.predict(X), strict=True):
        assert np.sum(columns >= 0) == (0 if unmatched > 0 else min(x.shape[:2]))


def test_scores_that_no_fit_has_learnt():
    X, y, _ = examples(None)
    matcher = Matcher(random_state=0).fit(X, y).set_params(unmatched="learn")
    with pytest.raises(ValueError, match="unmatched='learn' was set after the fit, which has"):
        matcher.predict(X)
    assert len(matcher.set_params(unmatched=-1.0).predict(X)) == 6


def spoilt(y, b, columns):
    return [columns if k == b else part for k, part in enumerate(y)]


@pytest.mark.parametrize(("b", "columns", "message"), [
    (0, [1, 1], r"y\[0\] matches column 1 with row 0 and with row 1: a column may be used once"),
    (0, [0, 3], r"y\[0\]\[1\] is 3, which is no column \(0 \.\.\. 2\), nor -1, for an unmatched"),
    (0, [0, -2], r"y\[0\]\[1\] is -2, which is no column"),
    (0, [0, 0.5], r"y\[0\]\[1\] is 0\.5, which is no column"),
    (0, [0, np.inf], r"y\[0\]\[1\] is inf, which is no column"),
    (0, ["a", "b"], r"y\[0\]\[0\] is 'a', which is no column"),
    (0, [True, False], r"y\[0\]\[0\] is True, which is no column"),
    (0, [0, 2**80], r"y\[0\]\[.\] is .*, which is no column"),
    (0, [0], r"y\[0\] has shape \(1,\), but X\[0\] has 2 rows"),
    (0, [[0], 1], r"y\[0\] is not a list of columns"),
    (0, [0, -1], r"y\[0\] leaves row 1 unmatched while column 1 is free. Match them, or set"),
    (1, [None, np.nan, -1], r"y\[1\] leaves row 0 unmatched while column 0 is free"),
])
def test_bad_matchings(b, columns, message):
    X, y, _ = examples(None)
    matcher = Matcher(random_state=0).fit(X, y)
    for call in (Matcher().fit, matcher.score):
        with pytest.raises(ValueError, match=message):
            call(X, spoilt(y, b, columns))


def test_bad_masks():
    X, y, allowed = examples(None, True)
    matcher = Matcher(random_state=0).fit(X, y)
    for masks, message in (
        (allowed[:-1], "allowed must be a list of 6 boolean arrays"), ("all", "allowed must be a"),
        (True, "allowed must be a list"),
        ([allowed[0].T, *allowed[1:]], r"allowed\[0\] must be boolean and of shape \(2, 3\), as"),
        ([allowed[0].astype(int), *allowed[1:]], r"allowed\[0\] must be boolean.*dtype int64"),
        ([None, *allowed[1:]], r"allowed\[0\] must be boolean"),
        ([[[True], [True, False]], *allowed[1:]], r"allowed\[0\] is not an array"),
    ):
        for call in (lambda masks: Matcher().fit(X, y, allowed=masks),
                     lambda masks: matcher.predict(X, allowed=masks)):
            with pytest.raises(ValueError, match=message):
                call(masks)
    mask = np.ones((2, 3), dtype=bool)
    mask[0, y[0][0]] = False
    with pytest.raises(ValueError, match=(
            rf"y\[0\] matches row 0 with column {y[0][0]}, which allowed\[0\] forbids")):
        Matcher().fit(X, y, allowed=[mask, *allowed[1:]])


def test_no_finite_matching():
    X, y, _ = examples(None)
    matcher = Matcher(random_state=0).fit(X, y)
    every = [np.ones(x.shape[:2], dtype=bool) for x in X]
    for b, change, message in (
        (0, (1, slice(None)), r"allowed\[0\] forbids all pairs of row 1, and unmatched=None needs 2"),
        (1, (slice(None), 0), r"allowed\[1\] forbids all pairs of column 0"),
        (4, (slice(1, None), slice(1, None)), r"allowed\[4\] allows at most 2 pairs at a time, which leave row"),
    ):
        masks = [mask.copy() for mask in every]
        masks[b][change] = False
        for call in (lambda masks: Matcher().fit(X, y, allowed=masks),
                     lambda masks: matcher.predict(X, allowed=masks)):
            with pytest.raises(ValueError, match=message + ".*") as caught:
                call(masks)
            assert "there is no finite matching. Allow more pairs, or set" in str(caught.value)
        free = Matcher(unmatched=0.0, random_state=0).fit(X, y)
        assert len(free.predict(X, allowed=masks)) == 6


def test_costs_of_unmatched_rows():
    X, y, _ = examples(None)
    wide = [(x, part) for x, part in zip(X, y, strict=True) if len(x) <= x.shape[1]]
    fitted = Matcher(cost="absolute", random_state=0).fit(*map(list, zip(*wide, strict=True)))
    assert_array_equal(fitted.cost_matrix_, np.abs(np.subtract.outer(np.arange(3), np.arange(3))))
    with pytest.raises(ValueError, match="cost='absolute' is of the distance of columns, and under "
                       "unmatched=None rows of an example of 3 rows and 2 columns may be unmatched"):
        Matcher(cost="absolute").fit(X, y)
    with pytest.raises(ValueError, match="cost='squared' is of the distance.*unmatched='learn'"):
        Matcher(cost="squared", unmatched="learn").fit(X, y)
    with pytest.raises(ValueError, match="rows of an example of 2 rows and 1 columns"):
        fitted.predict(X, decode="min_risk")
    with pytest.raises(ValueError, match="cost is a matrix.*examples of 1 to 3 columns"):
        Matcher(cost=COSTS).fit(X, y)
    square = [np.ones((2, 2, 1))], [[0, 1]]
    with pytest.raises(ValueError, match="cost is a 3 x 3 matrix, but y has 2 columns; give"):
        Matcher(cost=COSTS).fit(*square)
    with pytest.raises(ValueError, match="cost is a 2 x 2 matrix, but y has 3 columns, with that"):
        Matcher(cost=COSTS[:2, :2], unmatched="learn").fit(*square)
    matcher = Matcher(cost=COSTS, unmatched="learn", random_state=0).fit(*square)
    assert len(matcher.predict([np.ones((2, 3, 1))], decode="map")) == 1
    with pytest.raises(ValueError, match="example of 2 rows and 3 columns, but cost is a matrix"):
        matcher.predict([np.ones((2, 3, 1))], decode="min_risk")


def test_too_large_for_marginals():
    x = np.random.default_rng(0).normal(size=(21, 22, 1))
    with pytest.raises(ValueError, match="surrogate='log' is too large for an example of 21 rows"):
        Matcher("log", unmatched="learn").fit([x], [np.arange(21)])
    wide = np.random.default_rng(0).normal(size=(2, 200, 1))
    Matcher("log", unmatched="learn", random_state=0).fit([wide], [[5, -1]])


def test_solvers_without_fixed_scores():
    X, y, _ = examples("learn")
    with pytest.raises(ValueError, match="needs scores of its own weights alone.*`unmatched`"):
        Matcher("max_margin", unmatched=-1.0, solver=CuttingPlanes()).fit(X, y)
    learnt = Matcher(
        "max_margin", unmatched="learn", alpha=0.1, tol=1e-3, solver=CuttingPlanes()).fit(X, y)
    assert learnt.relative_gap_ <= 1e-3
