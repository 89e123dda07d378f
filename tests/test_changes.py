"""Rankings, matchings, label sets and graphs that go on with more data.

With the earlier data the fit is that to all of them, without it is one of the change of the weights.
"""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from scipy.optimize import minimize
from table import Explicit, model_of

from fastm4n import (
    BlockFrankWolfe,
    Graphs,
    InteriorPoint,
    LabelRanker,
    Matcher,
    MultiLabelClassifier,
    load_model,
    save_model,
)
from fastm4n.estimators import _cells
from fastm4n.penalties import L2

pytestmark = pytest.mark.filterwarnings("ignore:After .* passes")

KINDS = [
    ("LabelRanker", "squared", "dense"), ("LabelRanker", "zero_one", "csr"),
    ("LabelRanker", "matrix", "no intercept"),
    ("Matcher", "sizes differ", "dense"), ("Matcher", "absolute", "dense"),
    ("MultiLabelClassifier", "tree", "dense"), ("MultiLabelClassifier", "none", "csr"),
    ("MultiLabelClassifier", "complete", "no intercept"),
    ("MultiLabelClassifier", "unknown", "dense"),
    ("GraphTagger", "forest", "dense"), ("GraphTagger", "types", "edges"),
    ("GraphTagger", "symmetric", "csr"), ("GraphTagger", "exact", "dense"),
    ("GraphTagger", "potts", "label features"), ("GraphTagger", "factors", "dense"),
    ("LabelRanker", "first positions", "dense"),
    ("Matcher", "unmatched learnt", "dense"), ("Matcher", "unmatched given", "dense"),
]
SURROGATES = "max_margin", "max_min", "log"


def cell_of(kind, surrogate, penalty="l2", solver="auto"):
    estimator, outputs, features = kind
    return _cells.Cell(estimator, outputs, surrogate, features, penalty, solver, "calls", False)


def begun(cell, **parameters):
    """A fitted model of the cell, and other examples."""
    model = model_of(cell).set_params(max_iter=3000, tol=1e-5, **parameters)
    X, y, weights = _cells.example(cell)
    return model.fit(X, y, weights), _cells.example(cell, 1)


@pytest.mark.parametrize(("kind", "surrogate"), covering(
    [(kind, surrogate) for kind in KINDS for surrogate in SURROGATES]))
def test_the_change_is_certified(kind, surrogate):
    """The objective is the loss of the new data plus the penalty of the change."""
    cell = cell_of(kind, surrogate)
    model, more = begun(cell)
    m, n = _cells.example(cell).weights.sum(), more.weights.sum()
    explicit = Explicit(cell, model, more)
    centre, seen = explicit.weights_of(model), model.n_seen_
    assert seen == pytest.approx(m) and model.certified_for_ == "data"
    model.partial_fit(more.X, more.y, sample_weight=more.weights)
    assert model.n_seen_ == pytest.approx(m + n) and model.certified_for_ == "change"
    assert_allclose(model.alpha_, 0.1 * ((m + n) / n) ** 2 * (1 if surrogate == "log" else 3))
    assert model.relative_gap_ <= 1e-5

    explicit = Explicit(cell, model, more)

    def objective(w):
        return explicit.value(w) + explicit.alpha * (
            explicit.omega(w - centre) - explicit.omega(w))

    w = explicit.weights_of(model)
    # oracles end at a part of the gap
    assert_allclose(model.primal_objective_, objective(w), rtol=1e-6, atol=model.duality_gap_)
    least = min(map(objective, (w, centre)))
    if surrogate == "log":
        bounds = list(zip(explicit.low, explicit.high, strict=True))
        least = min(least, minimize(objective, w, tol=1e-9, bounds=bounds).fun)
    assert model.dual_objective_ <= least + 1e-9 * abs(least)
    # a further call goes on from the same weights, with the data of the last one
    model.partial_fit(more.X, more.y, sample_weight=more.weights)
    assert model.n_seen_ == pytest.approx(m + 2 * n)
    explicit = Explicit(cell, model, more)
    w = explicit.weights_of(model)
    assert_allclose(model.primal_objective_, objective(w), rtol=1e-6, atol=model.duality_gap_)


@pytest.mark.parametrize(("kind", "penalty"), covering(
    [(kind, penalty) for kind in KINDS for penalty in ("l2", "elasticnet", "l1")]))
def test_a_strong_penalty_leaves_the_weights(kind, penalty):
    model, more = begun(cell_of(kind, "max_margin", penalty), alpha=0.01)
    model.set_params(max_iter=100)
    names = [name for name in model._task_class(model).own_weights if hasattr(model, name)]
    before = {name: np.array(getattr(model, name)) for name in names}
    model.set_params(alpha=1e9).partial_fit(more.X, more.y)
    for name in names:
        assert_allclose(getattr(model, name), before[name], atol=1e-6)
    model.predict(more.X)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind[2] in ("dense", "edges")][::2])
def test_files_pickles_and_interrupts(kind, tmp_path):
    model, more = begun(cell_of(kind, "log"))
    save_model(model, tmp_path / "model")
    loaded, again = load_model(tmp_path / "model"), pickle.loads(pickle.dumps(model))
    unknown = load_model(tmp_path / "model")
    unknown.n_seen_ = None

    def press(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again.set_params(callback=press).partial_fit(more.X, more.y)
    again.set_params(callback=None)
    n = _cells.n_examples(more.X)
    for other in (model, loaded, pickle.loads(pickle.dumps(again)), unknown):
        other.partial_fit(more.X, more.y)
    assert_allclose(again.partial_fit(more.X, more.y).primal_objective_, model.primal_objective_)
    assert_array_equal(loaded.coef_, model.coef_)
    assert again.n_seen_ == loaded.n_seen_ == model.n_seen_
    assert unknown.n_seen_ == 21 * n
    assert unknown.fit(more.X, more.y).n_seen_ == n


def rankings(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.array(["a>b>c", "b>a>c", "c>b>a", "b>c>a"])[rng.integers(4, size=n)]


def matchings(n, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, size=n)
    return [rng.normal(size=(m, m, 2)) for m in sizes], [rng.permutation(m) for m in sizes]


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize(("cls", "data"), [(LabelRanker, rankings), (Matcher, matchings)])
def test_calls_are_a_fit_to_all(cls, data, kernel):
    """Also after an interrupted call, from a pickle, with weights, and with equal data in one."""
    X, y = data(24)
    weights = np.random.default_rng(1).choice([0.0, 0.5, 2.0], size=24)
    weights[8] = 1.0
    whole, once = (
        cls(alpha=0.05, kernel=kernel, tol=1e-4, max_iter=5000, random_state=0) for _ in range(2))
    model = cls(**whole.get_params())
    whole.fit(X, y, weights)
    once.partial_fit(X, y, sample_weight=weights)
    assert_same_optimum(once, whole)
    for start, stop in ((0, 8), (8, 9)):
        model.partial_fit(X[start:stop], y[start:stop], sample_weight=weights[start:stop])

    def press(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=press).partial_fit(X[9:], y[9:])
    model = pickle.loads(pickle.dumps(model.set_params(callback=None)))
    model.partial_fit(X[9:], y[9:], sample_weight=weights[9:])
    assert_same_optimum(model, whole)
    assert model.certified_for_ == "data" and model.n_seen_ == whole.n_seen_ == weights.sum()


def test_calls_that_do_not_fit():
    X, y = rankings(6)
    with pytest.raises(ValueError, match="item 'c', which earlier calls or `classes` do not have"):
        LabelRanker().partial_fit(X, y, classes=["a", "b", "x"])
    ranker = LabelRanker(random_state=0).partial_fit(X, y, classes=["c", "b", "a"])
    ranks = np.array([[1, 2, 3]])
    for labels, message in (
        (["a>b>d"], "ranks the item 'd', which"), (["a>b"], "does not rank the item 'c'"),
        ([["a", "b", "c"]], "the form 'ordering', and earlier calls of partial_fit had the form"),
        (ranks, "the form .ranks. from 1, and earlier calls"),
    ):
        with pytest.raises(ValueError, match=message):
            ranker.partial_fit(X[:1], labels)
    ranker = LabelRanker().partial_fit(X[:1], ranks)
    with pytest.raises(ValueError, match="from 0, and earlier calls of partial_fit had .* from 1"):
        ranker.partial_fit(X[:1], ranks - 1)
    X, y = matchings(6)
    matcher = Matcher().partial_fit(X, y)
    for data, message in (
        (([np.zeros((1, 1, 3))], [[0]]), "X has 3 features, but Matcher is expecting 2"),
        (([X[0], np.zeros((2, 2, 2))], [y[0], [1, 1]]), r"y\[1\] matches column 1 with row 0 and with row 1"),
        ((X, y, [0, 1, 2]), "leave `classes` out"),
    ):
        with pytest.raises(ValueError, match=message):
            matcher.partial_fit(*data)
    # costs in a matrix are of one size, and named ones grow with it
    matcher = Matcher(cost=np.ones((2, 2)) - np.eye(2)).partial_fit([np.ones((2, 2, 1))], [[0, 1]])
    with pytest.raises(ValueError, match="cost is a matrix, which needs examples of one size"):
        matcher.partial_fit([np.ones((1, 1, 1))], [[0]])
    matcher = Matcher(cost="absolute").partial_fit([np.ones((2, 2, 1))], [[0, 1]])
    assert matcher.partial_fit([np.ones((4, 4, 1))], [[3, 1, 2, 0]]).cost_matrix_.shape == (4, 4)


def test_the_tree_stays():
    """Weights of pairs are those of the first fit, whatever the tree of the new data is."""
    cell = cell_of(KINDS[5], "log")
    model, more = begun(cell)
    edges = model.edges_.copy()
    rng = np.random.default_rng(0)
    Y = rng.integers(2, size=(30, 3))
    Y[:, 2] = Y[:, 0]
    plain = MultiLabelClassifier("log", graph="tree").fit(np.eye(30)[:, :2], Y)
    assert not np.array_equal(plain.edges_, edges)
    model.partial_fit(np.eye(30)[:, :2], Y)
    assert_array_equal(model.edges_, edges)


def test_refusals():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(8, 2)), ["a>b>c", "b>a>c", "c>b>a", "b>c>a"] * 2
    ranker = LabelRanker(random_state=0).fit(X, y)
    for data, changed, message in (
        ((X, ["a>b>d"] * 8), {}, "ranks the item 'd', which"),
        ((X, ["a>b"] * 8), {}, "does not rank the item 'c'"),
        ((X[:, :1], y), {}, "X has 1 features, but LabelRanker is expecting 2"),
        ((X, y), {"kernel": "rbf"}, "does not support kernel='rbf'"),
        ((X, y), {"fit_intercept": False}, "does not support fit_intercept=False"),
        ((X, y), {"penalty": L2(bounds=(0, None))}, "does not support penalty=L2"),
        ((X, y), {"solver": InteriorPoint()}, "scores of its own weights alone"),
    ):
        coef, before = ranker.coef_.copy(), ranker.get_params()
        with pytest.raises(ValueError, match=message):
            ranker.set_params(**changed).partial_fit(*data)
        assert_array_equal(ranker.coef_, coef)
        ranker.set_params(**{name: before[name] for name in changed})
    ranker.set_params(solver=BlockFrankWolfe()).partial_fit(X, y)
    with pytest.raises(ValueError, match="would be forgotten"):
        LabelRanker(kernel="rbf").fit(X, y).partial_fit(X, y)
    with pytest.raises(ValueError, match="does not support fit_intercept='free'"):
        MultiLabelClassifier().fit(X, X > 0).set_params(fit_intercept="free").partial_fit(X, X > 0)
    with pytest.raises(ValueError, match="edges_ must stay"):
        MultiLabelClassifier().fit(X, X > 0).set_params(graph="none").partial_fit(X, X > 0)
    matcher = Matcher().fit(X[:, :2].reshape(1, 2, 2, 4), [[0, 1]])
    with pytest.raises(ValueError, match="X has 2 features, but Matcher is expecting 4"):
        matcher.partial_fit(X.reshape(4, 2, 2, 1).repeat(2, axis=3), [[0, 1]] * 4)
    cell = cell_of(KINDS[9], "log")
    tagger, more = begun(cell)
    labels = [np.array(part) for part in more.y]
    labels[0][0] = 7
    with pytest.raises(ValueError, match="classes_ must stay"):
        tagger.partial_fit(more.X, labels)
    with pytest.raises(ValueError, match="pairwise='attractive', whose bounds"):
        tagger.fit(*more).set_params(pairwise="attractive").partial_fit(*more[:2])
    with pytest.raises(ValueError, match="make edge_coef_ of the shape .* pairwise='potts'"):
        tagger.set_params(pairwise="potts").partial_fit(*more[:2])
    X = Graphs.from_list([(np.ones((2, 2)), np.array([[0, 1]]))])
    typed = Graphs(X.node_features, X.edges, X.node_offsets, X.edge_offsets, edge_types=[1])
    with pytest.raises(ValueError, match="types, features of edges, pairwise='full'"):
        tagger.set_params(pairwise="full").partial_fit(typed, [[0, 1]])
    X = Graphs.from_list([(np.ones((2, 3)), np.array([[0, 1]]))])
    with pytest.raises(ValueError, match="X has 3 features, but GraphTagger is expecting 2"):
        tagger.partial_fit(X, [[0, 1]])

# ------------------------------------------------------------------ seams of rankings and matchings

@pytest.mark.parametrize("given", [
    {}, {"form": "top"}, {"form": "top", "n_positions": 1}], ids=["pairs", "top", "first of top"])
def test_calls_whose_rankings_are_lists_of_any_length(given):
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = [["a", "b"], ["b", "c", "a"], ["c", "b", "a"]] * 4
    if not given:
        y = [[*itertools.pairwise([*row, "c"][:3]), *[(row[0], row[-1])] * (b % 3)]
             for b, row in enumerate(y)]
    ranker = LabelRanker(
        "max_margin", alpha=0.1, tol=1e-6, max_iter=3000, random_state=0, **given)
    calls = ranker.partial_fit(X[:5], y[:5]).partial_fit(X[5:6], y[5:6]).partial_fit(X[6:], y[6:])
    assert_same_optimum(calls, LabelRanker(**ranker.get_params()).fit(X, y))
    assert calls.form_ == given.get("form", "pairs")


def test_changes_keep_positions_and_unmatched_rows():
    X, y = rankings(12)
    ranker = LabelRanker("log", n_positions=2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="n_positions=1, as those weights are of 2 positions"):
        ranker.set_params(n_positions=1).partial_fit(X, y)
    X, y = matchings(12)
    matcher = Matcher("log", unmatched="learn", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="unmatched=None, which those weights were not fitted"):
        matcher.set_params(unmatched=None).partial_fit(X, y)


def test_changes_keep_the_features_of_items():
    X, y = rankings(12)
    Z = np.random.default_rng(3).normal(size=(3, 2))
    ranker = LabelRanker("log", random_state=0, tol=1e-6).fit(X, y, item_features=Z)
    before = ranker.coef_
    ranker.n_seen_ = 1e9
    ranker.partial_fit(X[:3], y[:3])
    assert_array_equal(ranker.item_features_, Z)
    assert ranker.coef_.shape == before.shape
    assert_allclose(ranker.coef_, before, atol=1e-4)
