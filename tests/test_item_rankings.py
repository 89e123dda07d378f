"""LabelRanker: items with features of their own, the first positions only, and expected ranks."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from table import Explicit

from fastm4n import BlockFrankWolfe, LabelRanker, regularization_path
from fastm4n.estimators._cells import Example
from fastm4n.models import load_model, save_model
from fastm4n.penalties import L2, ElasticNet
from fastm4n.tasks.permutations import best_permutations

SURROGATES = ("max_min", "max_margin", "log")
STEP = {"max_min": "pairwise", "max_margin": "pairwise", "log": "line_search"}


def made(n=12, M=5, d=2, seed=0):
    """Rows, ranks from 0 and features of items that tell them."""
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(n, d)), rng.normal(size=(d, M))
    noise = 0.3 * rng.normal(size=(n, M))
    return X, np.argsort(np.argsort(-X @ W - noise, axis=1), axis=1), np.c_[W.T, np.ones(M)]


def ranker(surrogate="max_min", **given):
    return LabelRanker(
        surrogate, **{"alpha": 0.05, "tol": 1e-4, "random_state": 0, **given})


def by_blocks(surrogate, **given):
    return ranker(surrogate, solver=BlockFrankWolfe(step=STEP[surrogate]), **given)


def listed(M, n_positions):
    """All outputs: the position of each item, n_positions for those below."""
    return np.array(sorted({
        tuple(min(p, n_positions) for p in ranking)
        for ranking in itertools.permutations(range(M))}))


def scored(tables, outputs):
    """Scores of outputs, items below scoring zero."""
    tables = np.pad(tables, ((0, 0), (0, 0), (0, 1)))
    return tables[:, np.arange(tables.shape[1]), outputs].sum(axis=2)


# ------------------------------------------------------------------------------------- the fit


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_items_of_unit_features_have_weights_of_their_own(surrogate, kernel):
    X, y, _ = made()
    for n_positions in (None, 2):
        given = {"kernel": kernel, "n_positions": n_positions}
        one = by_blocks(surrogate, **given).fit(X, y)
        other = by_blocks(surrogate, **given).fit(X, y, item_features=np.eye(5))
        for name in ("coef_", "dual_coef_", "intercept_", "duality_gap_"):
            assert hasattr(one, name) == hasattr(other, name)
            assert_array_equal(getattr(one, name, 0), getattr(other, name, 0))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_all_positions_are_a_fit_of_complete_rankings(surrogate):
    X, y, Z = made()
    for items in (None, Z):
        one = ranker(surrogate).fit(X, y, item_features=items)
        for n_positions in (5, 9):
            other = ranker(surrogate, n_positions=n_positions).fit(X, y, item_features=items)
            assert_array_equal(one.coef_, other.coef_)
            assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.parametrize(
    "penalty", ["l2", ElasticNet(l1_ratio=0.5), L2(bounds={"coef": (0, None)})])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(
    ("n_positions", "has_features"), [(None, True), (1, True), (2, True), (1, False), (2, False)])
def test_objectives_and_gaps_against_enumeration(surrogate, n_positions, has_features, penalty):
    X, y, Z = made(6, 4, 2)
    cost = [[0, 1, 3], [2, 0, 1], [1, 4, 0]] if n_positions == 2 else "squared"
    model = ranker(surrogate, n_positions=n_positions, cost=cost, penalty=penalty)
    model.fit(X, y, item_features=Z if has_features else None)
    weights = np.ones(len(X))
    explicit = Explicit(None, model, Example(X, y, weights))
    w = explicit.weights_of(model)
    value, zero = explicit.value(w), explicit.at_zero
    assert -1e-9 * zero <= model.primal_objective_ - value <= 1e-4 * zero
    assert model.relative_gap_ <= 1e-4
    assert_allclose(model.relative_gap_ * zero, model.duality_gap_, rtol=1e-3)
    best = explicit.minimum()
    assert model.dual_objective_ <= best + 1e-9 * zero
    assert value - best <= model.duality_gap_ + 1e-9 * zero


def test_more_features_than_items():
    X, y, _ = made()
    Z = np.random.default_rng(3).normal(size=(5, 8)).round()
    for n_positions in (None, 3):
        model = ranker(n_positions=n_positions).fit(X, y, item_features=Z)
        tables = np.einsum("if,fpd,nd->nip", Z, model.coef_, X) + Z @ model.intercept_
        assert_allclose(model.decision_function(X), tables, atol=1e-12)
        again = np.einsum("if,fp->ip", Z, model.intercept_)
        assert_allclose(model.decision_function(np.zeros((1, 2)))[0], again, atol=1e-12)


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_kernels_score_by_their_expansion(kernel):
    X, y, Z = made()
    K = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
    given = K if kernel == "precomputed" else X
    for items, n_positions in ((Z, None), (Z, 2), (None, 2)):
        model = ranker(kernel=kernel, gamma=0.5, n_positions=n_positions)
        model.fit(given, y, item_features=items)
        tables = np.einsum("mn,nfp->mfp", K, model.dual_coef_) + model.intercept_
        tables = tables if items is None else Z @ tables
        assert_allclose(model.decision_function(given), tables, atol=1e-10)
        assert model.relative_gap_ <= 1e-4


def test_sparse_rows():
    X, y, Z = made()
    X = X.round()
    dense = by_blocks("max_min", n_positions=2).fit(X, y, item_features=Z)
    csr = by_blocks("max_min", n_positions=2).fit(sparse.csr_array(X), y, item_features=Z)
    assert_allclose(dense.coef_, csr.coef_, atol=1e-3)


def test_a_fit_does_not_depend_on_threads_and_repetitions():
    X, y, Z = made(20)
    weights = np.r_[2.0, np.ones(19)]
    given = {"n_positions": 2, "alpha": 0.1}
    one = ranker(**given).fit(X, y, weights, item_features=Z)
    many = ranker(**given, n_jobs=2).fit(X, y, weights, item_features=Z)
    twice = ranker(**given).fit(np.r_[X, X[:1]], np.r_[y, y[:1]], item_features=Z)
    assert_array_equal(one.coef_, many.coef_)
    assert_array_equal(one.coef_, twice.coef_)


# --------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("n_positions", [1, 2, 4])
def test_predictions_of_first_positions_by_enumeration(surrogate, n_positions):
    X, y, Z = made()
    model = ranker(surrogate, n_positions=n_positions).fit(X, y, item_features=Z)
    outputs = listed(5, n_positions)
    tables = model.decision_function(X)
    places = model.predict(X, decode="map")
    assert_array_equal(np.sort(places, axis=1), np.tile(np.arange(5), (12, 1)))
    values = scored(tables, outputs)
    assert_allclose(
        scored(tables, np.minimum(places, n_positions)).diagonal(), values.max(axis=1))
    # items below by their largest score
    for table, ranking in zip(tables, places, strict=True):
        below = np.argsort(ranking)[n_positions:]
        assert (np.diff(table.max(axis=1)[below]) <= 0.0).all()
    assert_array_equal(
        model.predict_top(X, 1, decode="map")[:, 0], places.argmin(axis=1))
    right = np.minimum(model.predict(X), n_positions) == np.minimum(y, n_positions)
    assert model.score(X, y) == pytest.approx(right.mean())
    w = np.arange(12.0)
    assert model.score(X, y, w) == pytest.approx(np.average(right.mean(axis=1), weights=w))


def test_equal_items_below_stay_in_order():
    X, y, _ = made()
    model = ranker(n_positions=1).fit(X, y, item_features=np.ones((5, 1)))
    assert_array_equal(model.predict(X), np.tile(np.arange(5), (12, 1)))


@pytest.mark.parametrize("n_positions", [None, 1, 3])
def test_marginals_and_expected_ranks_by_enumeration(n_positions):
    X, y, Z = made()
    model = ranker("log", n_positions=n_positions, cost="absolute").fit(X, y, item_features=Z)
    P = n_positions or 5
    outputs = listed(5, P)
    values = scored(model.decision_function(X), outputs)
    shares = np.exp(values - values.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    width = 5 if n_positions is None else P + 1
    marginals = np.einsum("no,oip->nip", shares, np.eye(P + 1)[outputs])[:, :, :width]
    assert_allclose(model.predict_marginals(X), marginals, atol=1e-9)
    positions = np.r_[np.arange(P), 0.5 * (P + 4)][:width]
    assert_allclose(model.expected_ranks(X), marginals @ positions, atol=1e-9)
    assert_allclose(model.expected_ranks(X).sum(axis=1), 10.0)
    if n_positions is not None:
        # least expected costs
        costs = model.cost_matrix_
        risks = np.array([
            (costs[outputs[:, None], outputs[None]].sum(axis=2) * share[:, None]).sum(axis=0)
            for share in shares])
        found = np.minimum(model.predict(X, decode="min_risk"), P)
        chosen = (outputs[None] == found[:, None]).all(axis=2).argmax(axis=1)
        assert_allclose(risks[np.arange(12), chosen], risks.min(axis=1), atol=1e-6)


def test_expected_ranks_count_as_y_or_from_one():
    X, y, _ = made()
    zero, one = (ranker("log").fit(X, y + base).expected_ranks(X) for base in (0, 1))
    assert_allclose(zero + 1.0, one)
    words = [">".join("abcde"[i] for i in np.argsort(places)) for places in y]
    assert_allclose(ranker("log").fit(X, words).expected_ranks(X), one)


@pytest.mark.parametrize("n_positions", [None, 2])
def test_expected_ranks_of_max_min_are_those_of_the_game(n_positions):
    # scores much larger than costs decide the game
    X, y, _ = made()
    model = ranker(n_positions=n_positions).fit(X, y)
    model.coef_, model.intercept_ = 1e4 * model.coef_, 1e4 * model.intercept_
    places = model.predict(X, decode="map").astype(float)
    if n_positions is not None:
        places[places >= n_positions] = 0.5 * (n_positions + 4)
    assert_allclose(model.expected_ranks(X), places, atol=1e-6)
    assert_array_equal(model.predict(X, decode="min_risk"), model.predict(X, decode="map"))
    # and costs alone, without scores, leave no item ahead
    model.coef_, model.intercept_ = 0.0 * model.coef_, 0.0 * model.intercept_
    assert_allclose(model.expected_ranks(X).sum(axis=1), 10.0)


def test_first_items():
    X, y, _ = made()
    names = np.array(["pear", "fig", "plum", "kiwi", "lime"])
    orderings = names[np.argsort(y, axis=1)]
    model = ranker().fit(X, orderings)
    for k in (1, 3, 5):
        assert_array_equal(model.predict_top(X, k), model.predict(X)[:, :k])
    for k in (0, -1, 1.5, "2", True):
        with pytest.raises(ValueError, match="k must be an integer > 0"):
            model.predict_top(X, k)
    with pytest.raises(ValueError, match="k=6 is more than the 5 positions"):
        model.predict_top(X, 6)
    with pytest.raises(ValueError, match="k=3 is more than the 2 positions"):
        ranker(n_positions=2).fit(X, y).predict_top(X, 3)
    with pytest.raises(ValueError, match="expected_ranks needs a distribution"):
        ranker("max_margin").fit(X, y).expected_ranks(X)


# ----------------------------------------------------------------------------------- new items


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_new_items(surrogate):
    X, y, Z = made()
    model = ranker(surrogate, n_positions=2).fit(X, y, item_features=Z)
    new = np.random.default_rng(5).normal(size=(4, 3))
    tables = np.einsum("if,fpd,nd->nip", new, model.coef_, X) + new @ model.intercept_
    assert_allclose(model.decision_function(X, item_features=new), tables, atol=1e-12)
    places = model.predict(X, decode="map", item_features=new)
    assert_allclose(
        scored(tables, np.minimum(places, 2)).diagonal(),
        scored(tables, listed(4, 2)).max(axis=1))
    assert_array_equal(
        model.predict_top(X, 2, decode="map", item_features=new), np.argsort(places)[:, :2])
    if surrogate != "max_margin":
        assert model.expected_ranks(X, item_features=new).shape == (12, 4)
    # as many as positions: none is below
    places = model.predict(X, decode="map", item_features=new[:2])
    assert_allclose(
        scored(tables[:, :2], places).diagonal(),
        np.maximum(tables[:, 0, 0] + tables[:, 1, 1], tables[:, 0, 1] + tables[:, 1, 0]))
    # those of the fit are the default
    assert_array_equal(model.predict(X), model.predict(X, item_features=Z))
    for wrong, words in (
        (new[:1], "has 1 items, fewer than the n_positions=2"),
        (new[:, :2], "has 2 columns, but those of fit had 3"),
        (new[0], "must have shape"),
        (np.where(new == new[2, 1], np.inf, new), "inf for the item 2, feature 1"),
        (1e200 * new, "too large for float64"),
        (sparse.csr_array(new), "dense array"),
        (new.astype(str).astype(object) + "a", "must be numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            model.predict(X, item_features=wrong)
    whole = ranker(surrogate).fit(X, y, item_features=Z)
    tables = whole.decision_function(X, item_features=2.0 * Z)
    assert_allclose(tables, 2.0 * whole.decision_function(X), atol=1e-9)
    assert_array_equal(
        whole.predict(X, decode="map", item_features=2.0 * Z), best_permutations(tables))
    with pytest.raises(ValueError, match="5 positions of all items of its fit"):
        whole.predict(X, item_features=new)
    with pytest.raises(ValueError, match="fitted with features of the items"):
        ranker(surrogate).fit(X, y).predict(X, item_features=Z)


def test_frames_name_items():
    pd = pytest.importorskip("pandas")
    X, y, Z = made()
    names = np.array(["pear", "fig", "plum", "kiwi", "lime"])
    orderings = names[np.argsort(y, axis=1)]
    frame = pd.DataFrame(Z, index=names)
    model = ranker(n_positions=2).fit(X, orderings, item_features=frame)
    assert_array_equal(model.item_features_, Z[np.argsort(names)])
    by_place = ranker(n_positions=2).fit(X, orderings, item_features=Z[np.argsort(names)])
    assert_array_equal(model.coef_, by_place.coef_)
    new = pd.DataFrame([[1.0, 0.0, 1.0], [0.0, 2.0, 1.0], [1.0, 1.0, 1.0]], index=["x", "z", "y"])
    top = model.predict_top(X, 2, item_features=new)
    assert set(top.ravel()) <= {"x", "y", "z"}
    assert_array_equal(top, np.array(["x", "z", "y"])[
        model.predict_top(X, 2, item_features=new.to_numpy())])
    assert_array_equal(model.predict(X, item_features=new)[:, :2], top)
    words = [">".join(ordering) for ordering in orderings]
    strings = ranker(n_positions=2).fit(X, words, item_features=frame)
    assert strings.predict(X[:1], item_features=new)[0].startswith(">".join(top[0]))
    with pytest.raises(ValueError, match="y ranks the item 'kiwi', which the index"):
        ranker().fit(X, orderings, item_features=frame.drop("kiwi"))
    more = pd.concat([frame, frame.iloc[:1].rename({"pear": "date"})])
    with pytest.raises(ValueError, match="has a row for 'date', but y does not rank it"):
        ranker().fit(X, orderings, item_features=more)
    with pytest.raises(ValueError, match="has an item twice"):
        ranker().fit(X, orderings, item_features=pd.concat([frame, frame]))
    # rows of numbers, and columns of ranks
    assert_array_equal(
        ranker().fit(X, y, item_features=pd.DataFrame(Z[::-1], index=range(4, -1, -1))).coef_,
        ranker().fit(X, y, item_features=Z).coef_)


def test_wrong_features_and_positions():
    X, y, Z = made()
    nan = Z.copy()
    nan[3, 1] = np.nan
    words = [">".join("abcde"[i] for i in np.argsort(places)) for places in y]
    for items, message in (
        (nan, "nan for the item 'd', feature 1"),
        (Z[:4], "has 4 rows, but y ranks 5 items"),
        (Z[:, 0], "must have shape"),
        (Z[:, :0], "must have shape"),
        (Z * 1e160, "item 'a' overflows"),
        (sparse.csr_array(Z), "toarray"),
        ([["a"]] * 5, "must be numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            ranker().fit(X, words, item_features=items)
    with pytest.raises(ValueError, match=r"X and item_features .* overflows"):
        ranker().fit(1e85 * X, y, item_features=1e85 * Z)
    for n_positions in (0, -2, 1.5, "3", True):
        with pytest.raises(ValueError, match="n_positions must be an integer > 0"):
            ranker(n_positions=n_positions).fit(X, y)
    with pytest.raises(ValueError, match="3 positions, with one for all below the first 2"):
        ranker(n_positions=2, cost=1.0 - np.eye(5)).fit(X, y)
    many = np.tile(np.arange(25), (3, 1))
    with pytest.raises(ValueError, match="surrogate='log' at n_positions=22"):
        ranker("log", n_positions=22).fit(X[:3], many)
    assert ranker("log", n_positions=2).fit(X[:3], many).relative_gap_ <= 1e-4


# ------------------------------------------------------------------ files, paths, warm starts


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("has_features", [True, False])
@pytest.mark.parametrize("n_positions", [None, 2])
def test_files_and_pickles(tmp_path, kernel, has_features, n_positions):
    X, y, Z = made()
    model = ranker(kernel=kernel, n_positions=n_positions)
    model.fit(X, y, item_features=Z if has_features else None)
    save_model(model, tmp_path / "model.zip")
    for other in (load_model(tmp_path / "model.zip"), pickle.loads(pickle.dumps(model))):
        assert_array_equal(other.decision_function(X), model.decision_function(X))
        assert_array_equal(other.predict(X), model.predict(X))
        if has_features:
            assert_array_equal(other.item_features_, Z)
    # a later fit without features forgets them
    model.fit(X, y)
    assert not hasattr(model, "item_features_")
    assert len(model.decision_function(X)[0]) == 5
    model.set_params(n_positions=3)
    with pytest.raises(ValueError, match="items and positions do not fit"):
        save_model(model, tmp_path / "other.zip")


def test_warm_starts():
    X, y, Z = made(40)
    given = {"warm_start": True, "n_positions": 2, "solver": BlockFrankWolfe()}
    model = ranker(**given).fit(X, y, item_features=Z)
    n_iter = model.n_iter_
    again = model.fit(X, y, item_features=Z)
    assert again.n_iter_ < n_iter
    # the dual point of other items, or other positions, is no start
    fresh = ranker(**given).fit(X, y, item_features=-Z)
    assert_array_equal(model.fit(X, y, item_features=-Z).coef_, fresh.coef_)
    fresh = ranker(**{**given, "n_positions": 1}).fit(X, y, item_features=-Z)
    model.set_params(n_positions=1).fit(X, y, item_features=-Z)
    assert_array_equal(model.coef_, fresh.coef_)


def test_paths_of_first_positions():
    X, y, _ = made()
    path = regularization_path(ranker("max_margin", n_positions=2), X, y, eps=1e-2, alpha_min=0.05)
    model = path.estimator(0.05)
    fit = ranker("max_margin", n_positions=2, tol=1e-3).fit(X, y)
    assert model.primal_objective_ - fit.primal_objective_ <= path.gap(0.05)
    assert model.coef_.shape == (5, 2, 2)


def test_many_items_of_margins_take_no_tables_of_subsets():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 2)), rng.permuted(np.tile(np.arange(60), (3, 1)), axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LabelRanker("max_margin", max_iter=1, random_state=0).fit(X, y)
    assert model.coef_.shape == (60, 60, 2)


# ---------------------------------------------------------- partial rankings at first positions

def test_tops_of_as_many_items_are_known():
    X, *_ = made(M=5)
    orders = np.argsort(np.random.default_rng(2).normal(size=(len(X), 5)), axis=1)
    names = np.array(list("abcde"))
    given = {"n_positions": 2, "cost": "absolute", "tol": 1e-3, "random_state": 0}
    whole = LabelRanker(form="ordering", **given).fit(X, names[orders])
    tops = LabelRanker(form="top", **given).fit(
        X, [names[row[: 2 + b % 3]].tolist() for b, row in enumerate(orders)])
    assert_array_equal(whole.coef_, tops.coef_)
    assert tops.certified_for_ == "data"


@pytest.mark.parametrize("surrogate", ["max_margin", "log"])
def test_ties_at_first_positions_against_enumeration(surrogate):
    """The objective of the rounds is the loss of all rankings that keep the order."""
    X, *_ = made(n=8, M=4)
    orders = np.argsort(np.random.default_rng(2).normal(size=(len(X), 4)), axis=1)
    names = "abcd"
    y = ["=".join(names[i] for i in row[: 1 + b % 3]) + ">*" for b, row in enumerate(orders)]
    model = LabelRanker(
        surrogate, n_positions=2, cost="absolute", alpha=0.1, tol=1e-6, random_state=0).fit(X, y)
    assert model.certified_for_ == "completions"
    outputs = np.array(list(dict.fromkeys(
        tuple(np.minimum(p, 2)) for p in itertools.permutations(range(4)))))
    total = 0.0
    for b, (x, row) in enumerate(zip(X, orders, strict=True)):
        table = np.pad(model.coef_ @ x + model.intercept_, ((0, 0), (0, 1)))
        tied = 1 + b % 3
        full = np.array(list(itertools.permutations(range(4))))
        keeps = [set(p[row[:tied]]) == set(range(tied)) for p in full]
        inside = {tuple(np.minimum(p, 2)) for p in full[keeps]}
        is_in = np.array([tuple(output) in inside for output in outputs])
        scores = table[np.arange(4), outputs].sum(axis=1)
        if surrogate == "log":
            total += logsumexp(scores) - logsumexp(scores[is_in])
            continue
        costs = np.stack([
            model.cost_matrix_[np.unique(places)].min(axis=0) for places in outputs[is_in].T])
        total += np.max(scores + costs[np.arange(4), outputs].sum(axis=1)) - np.max(scores[is_in])
    penalty = np.sum(model.coef_**2) + np.sum(model.intercept_**2)
    assert_allclose(
        model.history_["objective"].min(), total / len(X) + 0.05 * penalty, rtol=1e-9)


@pytest.mark.parametrize("y", [["a>b", "c>d>*"], [[("a", "b")], [("c", "d")]]])
def test_items_anywhere_are_refused(y):
    with pytest.raises(ValueError, match=r"y\[0\] has items that may be anywhere"):
        LabelRanker(n_positions=2).fit([[0.0], [1.0]], y)
