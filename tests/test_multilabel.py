"""Multi-label classification: sets of labels, each label on or off, with weights of pairs."""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from estimator_cases import SURROGATES
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog
from sklearn import __version__ as sklearn_version
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    label_ranking_average_precision_score,
    log_loss,
    mutual_info_score,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.multioutput import ClassifierChain
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from sklearn_checks import check_failures, check_list

from fastm4n import (
    BlockFrankWolfe,
    MultiLabelClassifier,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._pairs import LabelSetFeatures
from fastm4n.outputs._simplex import LabelOutputs
from fastm4n.penalties import L2, ElasticNet, Group
from fastm4n.solvers import solve
from fastm4n.surrogates import make_surrogate
from fastm4n.tasks.label_sets import chow_liu, label_edges, mutual_information

GRAPHS = ("none", "tree", "complete")
UNEVEN = np.array([[0.0, 0.5], [2.0, 0.0]])


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(60, 5, n_classes=4, n_labels=2, random_state=1)
    return X / X.std(), Y


def fit(X, Y, surrogate="max_min", graph="tree", **parameters):
    parameters = {
        "alpha": 0.05, "fit_intercept": True, "decode": "map", "tol": 1e-3, "random_state": 0,
        **parameters}
    return MultiLabelClassifier(surrogate, graph=graph, **parameters).fit(X, Y)


def every_set(n_labels):
    return np.array(list(itertools.product([0, 1], repeat=n_labels)))


def totals(clf, scores):
    """Scores of every set, (n_samples, 2^n_labels)."""
    sets = every_set(clf.classes_.size)
    both = sets[:, clf.edges_[:, 0]] * sets[:, clf.edges_[:, 1]]
    return scores @ sets.T + both @ clf.edge_coef_


def loss_of(surrogate, total, truth, cost):
    """The surrogate of one example by enumeration, total being the scores of all sets."""
    sets = every_set(truth.size)
    own = total[(sets == truth).all(axis=1)][0]
    if surrogate == "log":
        return np.logaddexp.reduce(total) - own
    costs = cost[truth, sets].sum(axis=1)
    if surrogate == "max_margin":
        return (total + costs).max() - own
    # max_p min_y' E cost(y, y') + <total, p>: a linear program
    table = cost[sets[:, np.newaxis], sets].sum(axis=2)
    n = len(sets)
    found = linprog(
        np.append(-total, -1.0), A_ub=np.column_stack([-table.T, np.ones(n)]), b_ub=np.zeros(n),
        A_eq=np.append(np.ones(n), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)])
    return -found.fun - own


# scikit-learn's contract

# whether checks make targets binary by the least label, and not by the first, which may be a 1
BINARY_FROM_ZERO = parse_version(sklearn_version) >= parse_version("1.7")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_common_checks(surrogate):
    results = check_failures(MultiLabelClassifier(surrogate, tol=0.05, random_state=0))
    assert {"check_classifiers_multilabel_output_format_predict", "check_classifier_multioutput",
            "check_classifiers_regression_target", "check_supervised_y_no_nan"} <= {
        result["check_name"] for result in results if result["status"] == "passed"}


@pytest.mark.filterwarnings("ignore")
def test_every_listed_check_fails():
    pytest.importorskip("pandas", reason="a check is of pandas")
    check_list(MultiLabelClassifier())


class Binary(MultiLabelClassifier):
    """The label of a binary target is one column."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = False
        tags.target_tags.multi_output = tags.target_tags.two_d_labels = False
        tags.target_tags.single_output = tags.target_tags.one_d_labels = True
        return tags

    def fit(self, X, y, sample_weight=None):
        if y is None:
            return super().fit(X, y, sample_weight)
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
        check_classification_targets(y)
        names, places = np.unique(y, return_inverse=True)
        if names.size > 2:
            super().fit(X, y)
        weights = np.ones(y.size) if sample_weight is None else _check_sample_weight(
            sample_weight, X)
        if np.unique(places[weights > 0]).size < 2:
            raise ValueError("y has one class only.")
        super().fit(X, places[:, np.newaxis], sample_weight)
        self.classes_ = names
        return self

    def decision_function(self, X):
        return super().decision_function(X)[:, 0]

    def predict(self, X, decode=None):
        check_is_fitted(self)
        return self.classes_[super().predict(X, decode)[:, 0]]

    def score(self, X, y, sample_weight=None):
        return accuracy_score(y, self.predict(X), sample_weight=sample_weight)

    @property
    def partial_fit(self):
        raise AttributeError("partial_fit is of the columns themselves")


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([
    Binary("max_min", tol=0.05, random_state=0),
    Binary("max_margin", kernel="rbf", tol=0.05, random_state=0)])
def test_common_checks_of_binary_targets(estimator, check):
    if not BINARY_FROM_ZERO and "sample_weight_equivalence" in str(check):
        pytest.skip("this scikit-learn makes the two targets binary by different labels")
    check(estimator)


# what a fit is


@pytest.mark.parametrize(("surrogate", "graph", "name"), covering(
    itertools.product(SURROGATES, GRAPHS, ["zero_one", "uneven"])))
def test_objective(data, surrogate, graph, name):
    """Scores, predictions and the objective, from the weights alone."""
    X, Y = data
    cost = UNEVEN if name == "uneven" else name
    X, Y = X[:25], Y[:25]
    clf = fit(X, Y, surrogate, graph, cost=cost, fit_intercept=2.0)
    assert clf.coef_.shape == (4, 5) and clf.intercept_.shape == (4,)
    assert len(clf.edges_) == len(clf.edge_coef_) == {"none": 0, "tree": 3, "complete": 6}[graph]
    assert clf.exact_ and clf.integrality_gap_ == 0.0
    scores = X @ clf.coef_.T + clf.intercept_
    total = totals(clf, scores)
    assert_array_equal(clf.predict(X), every_set(4)[total.argmax(axis=1)])
    matrix = 1.0 - np.eye(2) if cost is not UNEVEN else UNEVEN
    losses = [loss_of(surrogate, v, y, matrix) for v, y in zip(total, Y, strict=True)]
    norm = np.sum(clf.coef_**2) + np.sum((clf.intercept_ / 2) ** 2) + np.sum(clf.edge_coef_**2)
    objective = np.mean(losses) + 0.5 * clf.alpha * norm
    # bounds of column generation are as tight as the gap needs
    assert objective <= clf.primal_objective_ + 1e-9
    assert_allclose(clf.primal_objective_, objective, rtol=1e-3)
    assert clf.relative_gap_ <= clf.tol_
    other = fit(X, Y, surrogate, graph, cost=cost, fit_intercept=2.0, tol=1e-5)
    assert clf.dual_objective_ <= other.primal_objective_ + 1e-9
    assert other.dual_objective_ <= clf.primal_objective_ + 1e-9


def test_log_without_pairs_is_logistic_regression(data):
    X, Y = data
    clf = fit(X, Y, "log", "none", tol=1e-8, alpha=0.1, fit_intercept=False)
    for label in range(4):
        one = LogisticRegression(
            C=1 / (0.1 * len(X)), fit_intercept=False, tol=1e-8).fit(X, Y[:, label])
        assert_allclose(clf.coef_[label], one.coef_[0], atol=1e-3)
        assert_allclose(clf.predict_proba(X)[:, label], one.predict_proba(X)[:, 1], atol=1e-3)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_steps_find_one_optimum(data, surrogate):
    X, Y = data
    steps = ("line_search", *(() if surrogate == "log" else ("fixed", "exact", "pairwise")))
    fits = [fit(X, Y, surrogate, "none", tol=1e-3, solver=BlockFrankWolfe(step=step))
            for step in steps]
    for one, other in itertools.permutations(fits, 2):
        assert one.dual_objective_ <= other.primal_objective_ + 1e-12


@pytest.mark.parametrize(("surrogate", "graph"), [*zip(SURROGATES, GRAPHS)])
def test_kernels(data, surrogate, graph):
    """A linear kernel by its Gram matrix gives the linear model."""
    X, Y = data
    linear = fit(X, Y, surrogate, graph, tol=1e-4)
    gram = fit(X @ X.T, Y, surrogate, graph, tol=1e-4, kernel="precomputed")
    assert linear.dual_objective_ <= gram.primal_objective_ + 1e-9
    assert gram.dual_objective_ <= linear.primal_objective_ + 1e-9
    assert_allclose(gram.edge_coef_, linear.edge_coef_, atol=0.02)
    scores = X @ (gram.dual_coef_.T @ X).T + gram.intercept_
    assert_allclose(scores, X @ linear.coef_.T + linear.intercept_, atol=0.05)
    assert np.mean(gram.predict(X @ X.T) == linear.predict(X)) > 0.95
    for kernel in ("rbf", lambda a, b: np.exp(-np.sum((a - b) ** 2))):
        clf = fit(X, Y, surrogate, graph, kernel=kernel, tol=1e-2, solver=BlockFrankWolfe(kernel_cache_size=0.01))
        assert clf.dual_coef_.shape == Y.shape and clf.relative_gap_ <= 1e-2
        assert clf.predict(X[:3]).shape == (3, 4)


# predictions


@pytest.mark.parametrize("graph", GRAPHS)
def test_decision_function(data, graph):
    """Differences of the best scores with and without each label."""
    X, Y = data
    clf = fit(X, Y, "max_margin", graph)
    margins, total = clf.decision_function(X), totals(clf, X @ clf.coef_.T + clf.intercept_)
    on = every_set(4).astype(bool)
    expected = np.stack([
        total[:, on[:, label]].max(axis=1) - total[:, ~on[:, label]].max(axis=1)
        for label in range(4)], axis=1)
    assert_allclose(margins, expected, atol=1e-9)
    assert_array_equal(clf.predict(X), margins > 0)
    predicted, bound = clf.predict(X, return_bound=True)
    assert_array_equal(predicted, clf.predict(X))
    assert bound.shape == (60,) and np.all(bound >= 0) and np.all(bound < 1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_probabilities(data, graph):
    X, Y = data
    clf = fit(X, Y, "log", graph)
    total = totals(clf, X @ clf.coef_.T + clf.intercept_)
    p = np.exp(total - np.logaddexp.reduce(total, axis=1)[:, np.newaxis])
    sets = every_set(4)
    labels, edges = clf.predict_marginals(X)
    assert_allclose(labels, p @ sets, atol=1e-9)
    assert_allclose(edges, p @ (sets[:, clf.edges_[:, 0]] * sets[:, clf.edges_[:, 1]]), atol=1e-9)
    assert_array_equal(clf.predict_proba(X), labels)
    assert_array_equal(clf.predict(X, decode="min_risk"), labels > 0.5)
    clf = fit(X, Y, "log", graph, cost=UNEVEN, decode="min_risk")
    labels = clf.predict_proba(X)
    assert_array_equal(clf.predict(X), 2.0 * labels > 0.5 * (1 - labels))


@pytest.mark.parametrize("graph", GRAPHS)
def test_one_order(data, graph):
    """Probabilities, log-odds and predictions of "log" by the cost, at any scale of the scores."""
    X, Y = data
    for cost, threshold in (("zero_one", 0.0), (UNEVEN, np.log(0.25))):
        clf = fit(X, Y, "log", graph, cost=cost, decode="auto")
        for scale in (1.0, 1e3):
            clf.coef_ = scale * clf.coef_
            odds, p = clf.decision_function(X), clf.predict_proba(X)
            assert np.isfinite(odds).all()
            assert_array_equal(clf.predict(X), odds > threshold)
            assert_allclose(p, 1 / (1 + np.exp(np.minimum(-odds, 700.0))), atol=1e-12)
            ranks = np.argsort(odds, axis=0, kind="stable")
            assert (np.diff(np.take_along_axis(p, ranks, axis=0), axis=0) >= -1e-15).all()


def test_metrics_and_searches_of_scikit_learn(data):
    """Columns need no copy: they are the labels, as in ClassifierChain."""
    X, Y = data
    clf = fit(X, Y, "log", decode="auto")
    columns = clf.predict_proba(X)
    for metric in (roc_auc_score, average_precision_score, label_ranking_average_precision_score):
        assert metric(Y, columns) == pytest.approx(metric(Y, clf.decision_function(X)))
        assert metric(Y, columns) > 0.7
    assert log_loss(Y[:, 0], columns[:, 0]) < np.log(2)
    folds = list(KFold(3).split(X))
    for method in ("predict_proba", "decision_function"):
        found = cross_val_predict(clf, X, Y, cv=folds, method=method)
        for train, test in folds:
            other = clone(clf).fit(X[train], Y[train])
            assert_array_equal(found[test], getattr(other, method)(X[test]))
        by_folds = [average_precision_score(Y[test], found[test]) for _, test in folds]
        scores = cross_validate(clf, X, Y, scoring="average_precision", cv=folds)
        assert_allclose(scores["test_score"], by_folds)
    chain = ClassifierChain(LogisticRegression()).fit(X, Y)
    assert chain.predict_proba(X).shape == columns.shape


def test_extreme_scores(data):
    X, Y = data
    for surrogate in SURROGATES:
        clf = fit(X, Y, surrogate, "none")
        clf.coef_ = 1e300 * clf.coef_
        assert np.isfinite(clf.decision_function(X)).all()
        assert_array_equal(clf.predict(X), clf.decision_function(X) > 0)
        if surrogate != "max_margin":
            assert clf.predict(X, decode="min_risk").shape == Y.shape
        if surrogate == "log":
            assert np.isfinite(clf.predict_proba(X)).all()


def test_refusals_of_predictions(data):
    X, Y = data
    clf = fit(X, Y, "max_margin", "none")
    with pytest.raises(ValueError, match="decode='min_risk' weighs.*over label sets"):
        clf.predict(X, decode="min_risk")
    with pytest.raises(ValueError, match="return_bound is of scores"):
        fit(X, Y, "max_min", "none").predict(X, decode="min_risk", return_bound=True)
    with pytest.raises(ValueError, match="y has 3 labels, but the model has 4"):
        clf.score(X, Y[:, :3])


# indicators


@pytest.mark.parametrize("make", [
    lambda Y: Y.tolist(), lambda Y: Y.astype(bool), lambda Y: Y.astype(np.float32),
    lambda Y: Y.astype(object), lambda Y: np.asfortranarray(Y), lambda Y: Y.astype(np.uint8),
    sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix, sparse.csc_array,
    lambda Y: sparse.csr_array(Y.astype(float)),
])
def test_kinds_of_indicators(data, make):
    """What goes in comes out."""
    X, Y = data
    given = make(Y)
    plain, clf = fit(X, Y), fit(X, given)
    assert_array_equal(clf.coef_, plain.coef_)
    predicted = clf.predict(X)
    if sparse.issparse(given):
        assert sparse.issparse(predicted) and predicted.format == "csr"
        assert isinstance(predicted, sparse.sparray) == isinstance(given, sparse.sparray)
        assert predicted.dtype == given.dtype
        assert_array_equal(predicted.toarray(), plain.predict(X))
    else:
        asked = np.asarray(given).dtype
        assert predicted.dtype == (int if asked.kind == "O" else asked)
        assert_array_equal(predicted, plain.predict(X))
    assert clf.score(X, given) == plain.score(X, Y) == accuracy_score(Y, plain.predict(X))


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_tables(data, module):
    frames = pytest.importorskip(module)
    X, Y = data
    clf = fit(X, frames.DataFrame(dict(zip(["a", "b", "c", "d"], Y.T, strict=True))))
    assert clf.classes_.tolist() == ["a", "b", "c", "d"]
    assert_array_equal(clf.predict(X), fit(X, Y).predict(X))


@pytest.mark.parametrize(("change", "message"), [
    (lambda Y: Y[:, 0], r"y has shape \(60,\), and an indicator has two dimensions.*Binarizer"),
    (lambda Y: Y + 1, r"type of the target is multiclass-multioutput\. |y\[0, .\] is 2: a multi"),
    (lambda Y: Y * 0.5, r"y\[0, .\] is 0.5: a multilabel indicator"),
    (lambda Y: 2 * Y - 1, "y has -1 and no 0, and -1 stands for labels that are not known"),
    (lambda Y: np.full(Y.shape, np.nan), "y has no known label"),
    (lambda Y: np.where(Y, np.inf, 0.0), r"Input y contains infinity .*It is at y\["),
    (lambda Y: np.where(Y, "yes", "no"), "y has entries that are no numbers, such as '.*Binar"),
    (lambda Y: np.where(Y, "1", "0"), "y has entries that are no numbers"),
    (lambda Y: [row[: 1 + i % 2].tolist() for i, row in enumerate(Y)], "different lengths"),
    (lambda Y: np.zeros((60, 0)), "y has no columns"),
    (lambda Y: Y[:-1], "X has 60, and y has 59. Give a row of zeros"),
    (lambda Y: sparse.csr_array(3 * Y), r"y\[0, .\] is 3: a multilabel indicator"),
    (lambda Y: Y[:, :, np.newaxis], "an indicator has two dimensions"),
    (lambda Y: Y.astype(complex), "y is of dtype complex128"),
    (lambda Y: None, "requires y to be passed, but the target y is None"),
])
def test_no_indicators(data, change, message):
    X, Y = data
    with pytest.raises(ValueError, match=message):
        fit(X, change(Y))


def test_scores_of_too_few_labels(data):
    X, Y = data
    with pytest.raises(ValueError, match=r"X has 60, and y has 59. Give a row of zeros and ones"):
        fit(X, Y).score(X, Y[:-1])


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("graph", ["none", "tree", "complete"])
def test_constant_labels(data, surrogate, graph):
    """Labels that are always on or off, rows without labels, and one label alone."""
    X, Y = data
    Y = Y.copy()
    Y[:, 1], Y[:, 3], Y[4:9] = 1, 0, [0, 1, 0, 0]
    clf = fit(X, Y, surrogate, graph)
    assert clf.relative_gap_ <= clf.tol_
    predicted = clf.predict(X)
    assert np.all(predicted[:, 1] == 1) and np.all(predicted[:, 3] == 0)
    nothing = fit(X, np.zeros_like(Y), surrogate, graph)
    assert not nothing.predict(X).any() and nothing.relative_gap_ <= nothing.tol
    one = fit(X, Y[:, :1], surrogate, graph)
    assert one.predict(X).shape == (60, 1) and len(one.edges_) == 0
    single = fit(X[:1], Y[:1], surrogate, graph)
    assert_array_equal(single.predict(X[:1]), Y[:1])


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("make", [sparse.csr_matrix, np.float32])
def test_kinds_of_features(data, surrogate, make):
    X, Y = data
    plain, other = fit(X, Y, surrogate), fit(make(X), Y, surrogate)
    assert_allclose(other.coef_, plain.coef_, atol=0.05)
    assert plain.dual_objective_ <= other.primal_objective_ + 1e-6
    assert other.dual_objective_ <= plain.primal_objective_ + 1e-6


# graphs


def test_mutual_information():
    rng = np.random.default_rng(0)
    Y = (rng.random((50, 5)) < 0.4).astype(np.uint8)
    Y[:, 3], Y[:, 4] = 1, Y[:, 0]
    weights = rng.integers(1, 4, 50).astype(float)
    found = mutual_information(Y, weights)
    repeated = np.repeat(Y, weights.astype(int), axis=0)
    for i, j in itertools.combinations(range(5), 2):
        expected = mutual_info_score(repeated[:, i], repeated[:, j])
        assert_allclose(found[i, j], expected, atol=1e-12)
    assert_array_equal(mutual_information(repeated, np.ones(len(repeated))), found)


def test_trees_are_the_best():
    """Against every spanning tree of five labels."""
    pairs = list(itertools.combinations(range(5), 2))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        Y = (rng.normal(size=(40, 5)) + rng.normal(size=(40, 1)) > 0).astype(np.uint8)
        information = mutual_information(Y, np.ones(40))

        def spans(edges):
            groups = [{i} for i in range(5)]
            for i, j in edges:
                a, b = (next(g for g in groups if node in g) for node in (i, j))
                if a is b:
                    return False
                groups.remove(b)
                a |= b
            return True

        best = max(
            sum(information[e] for e in edges) for edges in itertools.combinations(pairs, 4)
            if spans(edges))
        tree = chow_liu(Y, np.ones(40))
        assert tree.shape == (4, 2) and spans(tree.tolist())
        assert_allclose(sum(information[i, j] for i, j in tree), best)


def test_trees_of_ties():
    Y = np.array([[0, 0, 0, 1], [1, 1, 1, 1]] * 3, dtype=np.uint8)
    # equal labels: the first of them are joined; a constant one tells nothing
    assert chow_liu(Y, np.ones(6)).tolist() == [[0, 1], [0, 2]]
    assert chow_liu(np.zeros((3, 4), dtype=np.uint8), np.ones(3)).shape == (0, 2)
    assert label_edges("complete", Y, np.ones(6)).tolist() == [
        [0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]


def test_given_edges(data):
    X, Y = data
    clf = fit(X, Y, graph=[[2, 0], [3, 1]])
    assert clf.edges_.tolist() == [[0, 2], [1, 3]]
    assert_array_equal(fit(X, Y, graph=np.array([[2.0, 0.0], [3.0, 1.0]])).coef_, clf.coef_)
    assert_array_equal(fit(X, Y, graph=[]).coef_, fit(X, Y, graph="none").coef_)
    assert fit(X, Y, graph=np.zeros((0, 2))).oracle_ == "labels"


@pytest.mark.parametrize(("graph", "message"), [
    ([[0, 1], [1, 4]], r"graph: edge 1 is \(1, 4\); labels are numbered 0 \.\.\. 3"),
    ([[-1, 1]], r"graph: edge 0 is \(-1, 1\); labels are numbered"),
    ([[0, 1], [2, 2]], r"graph: edge 1 is \(2, 2\).*joins a label to itself"),
    ([[0, 1], [2, 3], [1, 0]], r"graph: edge 2 is \(1, 0\), which edge 0 is already"),
    ([[0, 1, 2]], "graph must be one of .*got"), ([0, 1], "graph must be one of .*got"),
    ([[0.5, 1]], "graph must be one of .*got"), ([["a", "b"]], "graph must be one of .*got"),
    ([[0, 1], [2]], "graph must be one of .*got"), ("star", "graph must be one of .*got 'star'"),
])
def test_bad_edges(data, graph, message):
    with pytest.raises(ValueError, match=message):
        fit(*data, graph=graph)


def test_bad_inference(data):
    X, Y = data
    with pytest.raises(ValueError, match="inference='forest' needs graphs without cycles"):
        fit(X, Y, graph="complete", inference="forest")
    with pytest.raises(ValueError, match="inference='min_cut' needs weights.*edge_coef"):
        fit(X, Y, inference="min_cut")


# oracles


def many_labels(n=40, d=6, L=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, L)) + rng.normal(size=(n, 1)) + rng.normal(size=(n, L))
    return X, (scores > 0.5).astype(int)


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
@pytest.mark.parametrize("graph", ["tree", "complete"])
def test_one_optimum_by_every_oracle(data, surrogate, graph):
    """Pairs that are held attractive: cuts, tables and trees solve one problem, as does the LP."""
    X, Y = data
    penalty = L2(bounds={"edge_coef": (0, None)})
    names = {"min_cut": "min_cut", "exact": "few_states", "lp": "roof"}
    if graph == "tree":
        names["forest"] = "forest"
    fits = {inference: fit(X, 1 - Y, surrogate, graph, penalty=penalty, inference=inference)
            for inference in names}
    for inference, clf in fits.items():
        assert clf.oracle_ == names[inference] and clf.edge_coef_.min() >= 0.0
        assert clf.relative_gap_ <= clf.tol_
        assert clf.exact_ or surrogate == "max_min"
        assert clf.integrality_gap_ is None or clf.integrality_gap_ <= 1e-9
        assert_array_equal(clf.predict(X), clf.decision_function(X) > 0)
    for one, other in itertools.permutations(fits.values(), 2):
        assert one.dual_objective_ <= other.primal_objective_ + 1e-9
    auto = fit(X, 1 - Y, surrogate, graph, penalty=penalty)
    assert auto.oracle_ == ("forest" if graph == "tree" else "min_cut")


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_linear_programs(surrogate):
    """All pairs of many labels: an objective that bounds the exact one."""
    X, Y = many_labels()
    clf = fit(X, Y, surrogate, "complete", alpha=0.02, tol=1e-2)
    assert clf.oracle_ == "roof" and clf.relative_gap_ <= 1e-2
    assert clf.integrality_gap_ >= 0.0 and clf.exact_ == (clf.integrality_gap_ <= 1e-9)
    predicted, bound = clf.predict(X, return_bound=True)
    assert np.all(bound >= 0)
    # no set that one label tells from the prediction scores more than the bound says
    margins, scores = clf.decision_function(X), X @ clf.coef_.T + clf.intercept_

    def score(sets):
        i, j = clf.edges_.T
        return np.sum(scores * sets, axis=1) + (sets[:, i] * sets[:, j]) @ clf.edge_coef_

    for label in range(20):
        other = predicted.copy()
        other[:, label] = 1 - other[:, label]
        gain = score(other) - score(predicted)
        sign = np.where(predicted[:, label], -1.0, 1.0)
        assert_allclose(gain, sign * margins[:, label], atol=1e-9)
        assert np.all(gain <= bound + 1e-9)
    tree = fit(X, Y, surrogate, "tree", alpha=0.02, tol=1e-2)
    assert tree.oracle_ == "forest" and tree.exact_ and tree.integrality_gap_ == 0.0


@pytest.mark.parametrize("graph", ["tree", "complete"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_tree_reweighted_likelihoods(data, graph, kernel):
    """Over trees they are the likelihoods; with cycles their objective is above the exact one."""
    X, Y = data
    exact, lp = (
        fit(X, Y, "log", graph, kernel=kernel, inference=inference, tol=1e-4)
        for inference in ("exact", "lp"))
    assert lp.oracle_ == "decomposition" and not lp.exact_ and lp.relative_gap_ <= 1e-4
    assert exact.dual_objective_ <= lp.primal_objective_ + 1e-9
    labels, edges = lp.predict_marginals(X)
    i, j = lp.edges_.T
    assert np.all(edges <= np.minimum(labels[:, i], labels[:, j]) + 1e-9)
    assert np.all(edges >= labels[:, i] + labels[:, j] - 1.0 - 1e-9)
    if graph == "complete":
        assert lp.dual_objective_ > exact.primal_objective_
        return
    assert lp.dual_objective_ <= exact.primal_objective_ + 1e-9
    assert_allclose(lp.edge_coef_, exact.edge_coef_, atol=0.02)
    expected = exact.predict_marginals(X)
    assert_allclose(labels, expected[0], atol=0.01)
    assert_allclose(edges, expected[1], atol=0.01)


# costs


@pytest.mark.parametrize(("cost", "message"), [
    ("hinge", "cost must be one of .*or a cost matrix, got 'hinge'"),
    (1 - np.eye(3), "cost is a 3 x 3 matrix, but y has 2 values, 0 and 1"),
    ([[0, -1], [1, 0]], r"cost\[0, 1\] is -1: costs must not be negative"),
    ([[0, 1], [1, 2]], r"cost\[1, 1\] is 2: the diagonal must be zero"),
    ([[0, np.nan], [1, 0]], r"cost\[0, 1\] is nan: costs must be finite"),
])
def test_costs_that_are_none(data, cost, message):
    with pytest.raises(ValueError, match=message):
        fit(*data, cost=cost)


# penalties


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_penalties(data, surrogate):
    X, Y = data
    lower, upper = [-0.01, -np.inf, 0, 0, 0, 0], [-0.01, np.inf, 0, 0, 0, 0]
    pinned = fit(X, Y, surrogate, "complete", alpha=0.01, penalty=L2(
        bounds={"edge_coef": (lower, upper), "coef": (None, 0.25)}))
    assert pinned.edge_coef_[0] == -0.01 and not pinned.edge_coef_[2:].any()
    assert pinned.edge_coef_[1] != 0 and pinned.coef_.max() == 0.25
    sparse_ = fit(X, Y, surrogate, "complete", penalty=ElasticNet(
        0.9, weights={"edge_coef": 10.0}))
    assert not sparse_.edge_coef_.any() and 0 < sparse_.n_nonzero_ < 20
    grouped = fit(X, Y, surrogate, "complete", penalty=Group(
        0.9, weights=[100.0, 1.0, 1.0, 1.0, 1.0]))
    assert not grouped.coef_[:, 0].any() and np.count_nonzero(grouped.coef_) >= 4
    for clf in (pinned, sparse_, grouped):
        assert clf.relative_gap_ <= clf.tol_
    # of the same problem: no pair has a weight
    none = fit(X, Y, surrogate, "none", penalty=ElasticNet(0.9))
    assert none.dual_objective_ <= sparse_.primal_objective_ + 1e-9
    assert sparse_.dual_objective_ <= none.primal_objective_ + 1e-9


def test_bad_penalties(data):
    X, Y = data
    with pytest.raises(ValueError, match="names 'edge_coef', weights that .*has no edges"):
        fit(X, Y, graph="none", penalty=L2(bounds={"edge_coef": (0, None)}))
    with pytest.raises(ValueError, match="penalty=.*needs kernel='linear'"):
        fit(X, Y, kernel="rbf", penalty="elasticnet")


# the parts


def test_features_by_numpy():
    """Scores, updates and norms against matrices."""
    rng = np.random.default_rng(0)
    X, edges = rng.normal(size=(3, 5)), np.array([[0, 1], [1, 2]])
    outputs = LabelOutputs(np.zeros((3, 3), dtype=int), 1 - np.eye(2))
    for n_labels, n_pairs in ((3, 2), (2, 0)):
        labels = LinearFeatures(X, np.arange(3), row_norms(X, 1.0), n_labels, 1.0)
        with pytest.raises(ValueError, match="layout does not fit the labels and their pairs"):
            LabelSetFeatures(labels, outputs.layout, n_pairs)
    clf = fit(X, np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]]), "log", edges, tol=1e-6)
    # w = (1 / alpha) sum_b p_b Phi (phi(y_b) - mu_b)
    p, both = clf.predict_marginals(X)
    Y = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]])
    assert_allclose(clf.coef_, (Y - p).T @ X / (3 * clf.alpha), atol=0.02)
    assert_allclose(clf.intercept_, (Y - p).mean(axis=0) / clf.alpha, atol=0.02)
    pairs = Y[:, edges[:, 0]] * Y[:, edges[:, 1]]
    assert_allclose(clf.edge_coef_, (pairs - both).mean(axis=0) / clf.alpha, atol=0.02)


@pytest.mark.parametrize("cost", [1 - np.eye(2), UNEVEN, np.zeros((2, 2)), [[0, 1], [0, 0]]])
@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_closed_forms_of_labels(cost, scale):
    """Values at w = 0, of a label alone and of two."""
    cost = np.array(cost, dtype=float)
    X, Y = np.ones((2, 1)), np.array([[0, 1], [1, 1]])
    factor = 2 if scale == "mean" else 1
    for surrogate in SURROGATES:
        loss = make_surrogate(surrogate, LabelOutputs(Y, cost, scale))
        expected = [loss_of(surrogate, np.zeros(4), y, cost / factor) for y in Y]
        assert_allclose(loss.largest(loss.max_size), expected, atol=1e-9)
        features = LabelSetFeatures(
            LinearFeatures(X, np.arange(2), row_norms(X, 0.0), 2, 0.0), loss.outputs.layout, 0)
        solution = solve(loss, features, np.full(2, 0.5), alpha=0.1, tol=1e-3, max_iter=5000)
        assert solution.converged
        again = pickle.loads(pickle.dumps((loss, features)))
        assert_array_equal(again[1].coef(), features.coef())


# files, paths, searches


@pytest.mark.parametrize("graph", GRAPHS)
def test_model_files(data, tmp_path, graph):
    X, Y = data
    for kind in (np.asarray, sparse.csr_array):
        clf = fit(X, kind(Y), "log", graph)
        save_model(clf, tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert sparse.issparse(again.predict(X)) == sparse.issparse(clf.predict(X))
        assert_array_equal(again.edges_, clf.edges_)
        assert_array_equal(again.predict_proba(X), clf.predict_proba(X))
        assert again.oracle_ == clf.oracle_ and again.exact_ is True
        assert again.integrality_gap_ == 0.0


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_paths(data, surrogate):
    X, Y = data
    path = regularization_path(
        MultiLabelClassifier(surrogate, random_state=0), X, Y, eps=0.1, alpha_min=0.05)
    assert np.all(path.score(X, Y) >= 0) and np.all(path.relative_gaps <= 0.1)
    clf = path.estimator(0.1)
    assert clf.edge_coef_.shape == (3,) and clf.predict(X).shape == Y.shape


def test_searches(data):
    X, Y = data
    search = GridSearchCV(
        MultiLabelClassifier(random_state=0), {"alpha": [0.01, 1.0], "graph": ["none", "tree"]},
        cv=3, scoring="f1_micro").fit(X, Y)
    assert search.best_score_ > 0.5
    weights = np.random.default_rng(0).integers(0, 3, 60)
    repeated = fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0))
    assert_array_equal(fit(X, Y).set_params().fit(X, Y, weights).coef_, repeated.coef_)
