"""Label sets: costs of each label, labels that are not known, F-measures, calls, explanations."""

import itertools

import numpy as np
import pytest
from covering import covering
from estimator_cases import SURROGATES
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.metrics import accuracy_score
from test_multilabel import GRAPHS, every_set, fit, totals

from fastm4n import CountFactor, MultiLabelClassifier, load_model, save_model
from fastm4n.surrogates import Log
from fastm4n.tasks.label_sets import best_f1, chow_liu

ROADS = [*itertools.product(GRAPHS, ["auto"]), ("complete", "lp")]
SCALES = np.array([1.0, 0.25, 3.0, 0.0])
EACH = np.array([[[0, 1.0], [2.0, 0]], [[0, 0.5], [0.5, 0]], [[0, 3.0], [0.25, 0]], [[0, 1.0], [1, 0]]])


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(24, 5, n_classes=4, n_labels=2, random_state=1)
    return X / X.std(), Y


def objective(clf, X, Y, cost):
    """By enumeration of the sets of known labels."""
    scores, losses = X @ clf.coef_.T + clf.intercept_, []
    for v, y in zip(scores, Y, strict=True):
        known = np.flatnonzero(y != 2)
        if not known.size:
            continue
        place = {label: i for i, label in enumerate(known.tolist())}
        sets = every_set(known.size)
        total = sets @ v[known]
        for (a, b), w in zip(clf.edges_.tolist(), clf.edge_coef_, strict=True):
            if a in place and b in place:
                total = total + w * sets[:, place[a]] * sets[:, place[b]]
        own = total[(sets == y[known]).all(axis=1)][0]
        costs = cost[known, y[known, ], sets].sum(axis=1)
        if clf.surrogate == "log":
            losses.append(np.logaddexp.reduce(total) - own)
        elif clf.surrogate == "max_margin":
            losses.append((total + costs).max() - own)
        else:
            losses.append(_game(total, known, cost) - own)
    norm = sum(np.sum(w**2) for w in (clf.coef_, clf.intercept_, clf.edge_coef_))
    return np.mean(losses) + 0.5 * clf.alpha * norm


def _game(total, known, cost):
    """As `loss_of`, of costs of each label."""
    from scipy.optimize import linprog

    sets = every_set(known.size)
    table = sum(
        cost[label][np.ix_(sets[:, i], sets[:, i])] for i, label in enumerate(known.tolist()))
    n = len(sets)
    found = linprog(
        np.append(-total, -1.0), A_ub=np.column_stack([-table.T, np.ones(n)]), b_ub=np.zeros(n),
        A_eq=np.append(np.ones(n), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)])
    return -found.fun


def unknown(Y, rng, share=0.25):
    """Y with labels that are not known, and one row of them alone."""
    Y = np.where(rng.random(Y.shape) < share, 2, Y)
    Y[3] = 2
    return Y


@pytest.mark.parametrize(("surrogate", "road", "kind"), covering(
    itertools.product(SURROGATES, ROADS, ["costs", "each", "unknown", "both"])))
def test_objective(data, surrogate, road, kind):
    X, Y = data
    graph, inference = road
    cost, matrices = "zero_one", np.tile(1.0 - np.eye(2), (4, 1, 1))
    if kind in ("costs", "both"):
        cost, matrices = SCALES, SCALES[:, np.newaxis, np.newaxis] * matrices
    elif kind == "each" and surrogate != "max_min":
        cost = matrices = EACH
    if kind in ("unknown", "both"):
        Y = unknown(Y, np.random.default_rng(0))
    given = np.where(Y == 2, np.nan, Y) if kind == "both" else np.where(Y == 2, -1, Y)
    clf = fit(X, given, surrogate, graph, cost=cost, inference=inference)
    assert clf.relative_gap_ <= clf.tol_
    exact = objective(clf, X, Y, matrices)
    assert exact <= clf.primal_objective_ + 1e-9
    if clf.exact_:
        assert_allclose(clf.primal_objective_, exact, rtol=2e-3)
    # no other weights are much better
    other = fit(X, given, surrogate, graph, cost=cost, inference=inference, tol=1e-5)
    assert clf.dual_objective_ <= other.primal_objective_ + 1e-9
    assert other.dual_objective_ <= clf.primal_objective_ + 1e-9


def test_costs_are_written_in_several_ways(data):
    X, Y = data
    for surrogate in SURROGATES:
        one = fit(X, Y, surrogate, cost=[1.0, 1.0, 1.0, 1.0])
        assert one.cost_matrix_.shape == (4, 2, 2)
        assert_array_equal(one.coef_, fit(X, Y, surrogate).coef_)
        same = fit(X, Y, surrogate, cost=[[[0, 0.5], [2.0, 0]]] * 4)
        assert_array_equal(same.coef_, fit(X, Y, surrogate, cost=[[0, 0.5], [2.0, 0]]).coef_)
    augmented = fit(X, Y, Log(cost_augmented=True), cost=EACH)
    assert augmented.relative_gap_ <= augmented.tol_
    with pytest.raises(ValueError, match="'max_min' needs costs of labels that are multiples of"):
        fit(X, Y, "max_min", cost=EACH)
    with pytest.raises(ValueError, match=r"cost has shape \(3,\), but y has 4 labels"):
        fit(X, Y, cost=[1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="costs must not be negative.* It is that of label 1"):
        fit(X, Y, cost=[1.0, -1.0, 1.0, 1.0])


@pytest.mark.parametrize("graph", GRAPHS)
def test_least_risk_by_the_costs_of_each_label(data, graph):
    X, Y = data
    clf = fit(X, Y, "log", graph, cost=EACH, decode="auto")
    p = clf.predict_proba(X)
    off, on = EACH[:, 1, 0] * p, EACH[:, 0, 1] * (1.0 - p)
    assert_array_equal(clf.predict(X), (on < off).astype(int))
    assert_array_equal(clf.predict(X, decode="map"), every_set(4)[
        totals(clf, X @ clf.coef_.T + clf.intercept_).argmax(axis=1)])


def test_files_keep_costs_and_decode(data, tmp_path):
    X, Y = data
    for cost in (SCALES, EACH):
        clf = fit(X, Y, "log", cost=cost, decode="f1")
        save_model(clf, tmp_path / "model")
        found = load_model(tmp_path / "model")
        assert_array_equal(found.cost_matrix_, clf.cost_matrix_)
        assert_array_equal(found.predict(X), clf.predict(X))


# labels that are not known


@pytest.mark.parametrize("make", [
    lambda Y: np.where(Y == 2, np.nan, Y), lambda Y: np.where(Y == 2, -1, Y),
    lambda Y: np.where(Y == 2, -1, Y).astype(np.int8), lambda Y: np.where(Y == 2, None, Y),
    lambda Y: sparse.csr_matrix(np.where(Y == 2, -1, Y)),
    lambda Y: sparse.csr_array(np.where(Y == 2, np.nan, Y))])
def test_marks_of_unknown_labels(data, make):
    X, Y = data
    Y = unknown(Y, np.random.default_rng(0))
    plain, other = fit(X, np.where(Y == 2, -1, Y)), fit(X, make(Y))
    assert_array_equal(other.coef_, plain.coef_)
    predicted = other.predict(X)
    predicted = predicted.toarray() if sparse.issparse(predicted) else predicted
    assert_array_equal(predicted, plain.predict(X))
    counts = (Y != 2).any(axis=1)
    right = ((predicted == Y) | (Y == 2)).all(axis=1)[counts]
    assert other.score(X, make(Y)) == pytest.approx(right.mean())
    weights = np.arange(len(Y))
    assert other.score(X, make(Y), weights) == pytest.approx(
        np.average(right, weights=weights[counts]))


def test_tables_with_missing_values(data):
    pandas = pytest.importorskip("pandas")
    X, Y = data
    Y = unknown(Y, np.random.default_rng(0))
    plain = fit(X, np.where(Y == 2, -1, Y))
    for kind in ("Int64", "Float64"):
        table = pandas.DataFrame(np.where(Y == 2, np.nan, Y), columns=list("abcd")).astype(kind)
        found = fit(X, table)
        assert_array_equal(found.coef_, plain.coef_)
        assert found.classes_.tolist() == list("abcd")


def test_the_tree_is_of_labels_known_together():
    rng = np.random.default_rng(0)
    a = rng.integers(2, size=200)
    Y = np.column_stack([a, rng.integers(2, size=200), a])
    Y[::2, 1] = 2
    Y[1::5, 0] = 2
    assert [0, 2] in chow_liu(Y, np.ones(200)).tolist()
    # never together
    Y[:, 1] = np.where(Y[:, 0] == 2, Y[:, 1], 2)
    assert [0, 1] not in chow_liu(Y, np.ones(200)).tolist()


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_kernels(data, surrogate):
    """A linear kernel gives the fit without one."""
    X, Y = data
    Y = np.where(unknown(Y, np.random.default_rng(1)) == 2, -1, Y)
    one, other = (fit(X, Y, surrogate, tol=1e-5, **more) for more in ({}, {
        "kernel": "polynomial", "gamma": 1.0, "kernel_params": {"degree": 1, "coef0": 0.0}}))
    assert one.dual_objective_ <= other.primal_objective_ + 1e-9
    assert other.dual_objective_ <= one.primal_objective_ + 1e-9
    assert_allclose(other.decision_function(X), one.decision_function(X), atol=0.05)
    with pytest.raises(ValueError, match="'free' does not support labels that are not known"):
        fit(X, Y, surrogate, fit_intercept="free")


def test_constraints_are_of_known_sets(data):
    X, Y = data
    Y = Y * (Y.cumsum(axis=1) <= 1)
    Y[5, 2] = -1
    with pytest.raises(ValueError, match="the labels of sample 5 are not all known, and constrai"):
        fit(X, Y, constraints=CountFactor.at_most_one([0, 1, 2, 3]))


def test_warm_starts_are_of_the_same_known_labels(data):
    X, Y = data
    first = np.where(unknown(Y, np.random.default_rng(0)) == 2, -1, Y)
    clf = MultiLabelClassifier(
        "max_margin", alpha=0.05, tol=1e-3, warm_start=True, random_state=0).fit(X, Y)
    clf.fit(X, first)
    assert clf.relative_gap_ <= clf.tol_
    one = fit(X, first, "max_margin", fit_intercept=10.0)
    assert clf.dual_objective_ <= one.primal_objective_ + 1e-9
    assert one.dual_objective_ <= clf.primal_objective_ + 1e-9
    assert clf.fit(X, first).n_iter_ <= 1


# F-measures


def expected_f1(p):
    """Expected F-measures of all sets, (n_samples, n_sets)."""
    sets = every_set(p.shape[1])
    sizes = sets.sum(axis=1)
    both = sizes[:, np.newaxis] + sizes
    measure = np.where(both == 0, 1.0, 2.0 * (sets @ sets.T) / np.maximum(both, 1))
    chances = np.prod(np.where(sets, p[:, np.newaxis], 1.0 - p[:, np.newaxis]), axis=2)
    return chances @ measure


@pytest.mark.parametrize("n_labels", [1, 2, 4, 7])
def test_best_f1_is_that_of_enumeration(n_labels):
    rng = np.random.default_rng(n_labels)
    p = rng.random((40, n_labels))
    p[0], p[1], p[2], p[3], p[4, 0] = 1.0, 0.0, 0.5, 1e-12, 1.0
    p[5:20] **= 4
    values = expected_f1(p)
    number = best_f1(p) @ (2 ** np.arange(n_labels)[::-1])
    assert_allclose(values[np.arange(40), number], values.max(axis=1), atol=1e-9)


def test_many_labels_stay_accurate():
    """Divisions of distributions of sums do not lose what they divide."""
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.random((5, 300)), np.full((1, 300), 1 - 1e-9), np.zeros((1, 300))])
    found = best_f1(p)
    assert found[5].all() and not found[6].any()
    # the same by sums over the sizes of the others, one label after another
    for q, chosen in zip(p[:2], found[:2], strict=True):
        order = np.argsort(-q)
        terms = np.zeros((300, 301))
        for i in range(300):
            sizes = np.ones(1)
            for other in np.delete(q, i):
                sizes = np.convolve(sizes, [1.0 - other, other])
            terms[i, 1:] = [
                q[i] * (sizes * 2.0 / (np.arange(300) + 1 + k)).sum() for k in range(1, 301)]
        values = [terms[order[:k], k].sum() for k in range(301)]
        assert values[int(chosen.sum())] >= max(values) - 1e-9
        assert chosen[order[: int(chosen.sum())]].all()


@pytest.mark.parametrize("surrogate", ["log", "max_min"])
def test_decoding_of_f1(data, surrogate):
    X, Y = data
    clf = fit(X, Y, surrogate, "none", decode="f1")
    p = clf.predict_proba(X) if surrogate == "log" else clf._decoder(X).marginals()[0]
    assert_array_equal(clf.predict(X), best_f1(p))
    assert_array_equal(clf.predict(X), fit(X, Y, surrogate, "none").predict(X, decode="f1"))


def test_refusals_of_f1(data):
    X, Y = data
    with pytest.raises(ValueError, match="decode='f1' weighs F-measures by a distribution over la"):
        fit(X, Y, "max_margin").predict(X, decode="f1")
    with pytest.raises(ValueError, match="decode='f1' is of sets without constraints and factors"):
        fit(X, Y, "log").predict(X, "f1", factors=CountFactor.at_most_one([0, 1]))
    with pytest.raises(ValueError, match="return_bound is of scores, and decode='f1' does not"):
        fit(X, Y, "log").predict(X, "f1", return_bound=True)


# calls and explanations


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_partial_fit(data, surrogate, make):
    X, Y = data
    Y = np.where(unknown(Y, np.random.default_rng(0)) == 2, -1, Y)
    whole = fit(X, Y, surrogate)
    clf = MultiLabelClassifier(
        surrogate, alpha=0.05, fit_intercept=True, decode="map", tol=1e-3, random_state=0)
    for part in (slice(0, 10), slice(10, 24)):
        clf.partial_fit(X[part], make(Y[part]))
        assert clf.relative_gap_ <= clf.tol_
    assert_array_equal(clf.edges_, whole.edges_)
    assert clf.dual_objective_ <= whole.primal_objective_ + 1e-9
    assert whole.dual_objective_ <= clf.primal_objective_ + 1e-9
    with pytest.raises(ValueError, match="y has 3 labels, but MultiLabelClassifier is expecting 4"):
        clf.partial_fit(X, Y[:, :3])


def test_calls_with_the_same_pairs_go_on(data):
    X, Y = data
    Y = np.where(unknown(Y, np.random.default_rng(0)) == 2, -1, Y)
    options = dict(graph="complete", alpha=0.05, random_state=0)
    clf = MultiLabelClassifier("max_margin", **options).partial_fit(X[1:], Y[1:])
    clf.partial_fit(X[:1], Y[:1])
    assert clf.history_["gap"][0] < 0.5 * MultiLabelClassifier(
        "max_margin", **options).fit(X, Y).history_["gap"][0]


def test_calls_whose_tree_changes(data):
    X, Y = data
    Y = Y.copy()
    Y[:12, 3], Y[12:, 3] = Y[:12, 0], Y[12:, 1]
    first = Y[:12]
    clf = MultiLabelClassifier(alpha=0.05, tol=1e-3, random_state=0).partial_fit(X[:12], first)
    edges = clf.edges_.tolist()
    clf.partial_fit(X[12:], Y[12:])
    assert clf.edges_.tolist() != edges
    whole = fit(X, Y, "log", fit_intercept=10.0)
    assert_array_equal(clf.edges_, whole.edges_)
    assert clf.dual_objective_ <= whole.primal_objective_ + 1e-9
    assert whole.dual_objective_ <= clf.primal_objective_ + 1e-9


def test_names_of_calls(data):
    pandas = pytest.importorskip("pandas")
    X, Y = data
    table = pandas.DataFrame(Y, columns=["d", "c", "b", "a"])
    clf = MultiLabelClassifier(random_state=0).partial_fit(X[:12], table[:12])
    clf.partial_fit(X[12:], table[12:])
    assert clf.classes_.tolist() == ["d", "c", "b", "a"]
    with pytest.raises(ValueError, match=r"y has the columns \['a', 'b', 'c', 'd'\], but the model"):
        clf.score(X, table[list("abcd")])
    assert clf.score(X, Y) == clf.score(X, table)
    named = MultiLabelClassifier(random_state=0).partial_fit(X, Y, classes=["d", "c", "b", "a"])
    assert named.classes_.tolist() == ["d", "c", "b", "a"]
    with pytest.raises(ValueError, match="y has 4 labels, but classes has 2"):
        MultiLabelClassifier().partial_fit(X, Y, classes=["a", "b"])


def test_explanations(data):
    X, Y = data
    clf = fit(X, Y, graph="complete")
    found = clf.explain([f"x{i}" for i in range(5)], n_strongest=2)
    assert len(found.labels) == 4 and len(found.pairs) <= 4
    weight, label, feature = found.labels[0]
    assert weight == clf.coef_.max() == clf.coef_[label, int(feature[1:])]
    weight, a, b = found.pairs[0]
    assert weight == clf.edge_coef_.max() and [a, b] in clf.edges_.tolist()
    assert str(found).splitlines()[1].endswith(f"{a} - {b}")
    assert fit(X, Y, graph="none").explain().pairs == []
    with pytest.raises(ValueError, match="feature_names has 1 names, but there are 5 features"):
        clf.explain(["one"])
    with pytest.raises(ValueError, match="explain needs kernel='linear', got 'rbf'"):
        fit(X, Y, kernel="rbf").explain()


def test_accuracy_of_f1_is_not_worse_in_its_own_measure():
    """On data of its own model the set of largest expected F-measure is the better one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    p = 1.0 / (1.0 + np.exp(2.0 - X @ rng.normal(size=(4, 6))))
    Y = (rng.random(p.shape) < p).astype(int)
    clf = MultiLabelClassifier("log", graph="none", alpha=0.01, random_state=0).fit(X, Y)

    def measure(predicted):
        both, sizes = (predicted * Y).sum(axis=1), (predicted + Y).sum(axis=1)
        return np.mean(np.where(sizes == 0, 1.0, 2.0 * both / np.maximum(sizes, 1)))

    assert measure(clf.predict(X, decode="f1")) > measure(clf.predict(X)) + 0.02
    assert accuracy_score(Y, clf.predict(X)) >= accuracy_score(Y, clf.predict(X, decode="f1"))
