"""`GraphTagger.partial_fit`: the fit to the graphs of all calls, begun where the last one ended."""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from graph_cases import objective, random_graphs, with_random_factors
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import Graphs, GraphTagger, OutOfCore, Sequences

SURROGATES = ("max_margin", "max_min", "log")
CUTS = (slice(0, 5), slice(5, 6), slice(6, 14))
FORMS = {
    "plain": {}, "types": {"n_types": 2, "n_edge_types": 2}, "edges": {"n_edge_features": 2},
    "weights": {"weights": True}, "csr": {}, "float32": {}, "factors": {"labels": 2}, "void": {},
    "declared": {}, "of types": {"n_types": 2}, "tuples": {},
}


def tagger(surrogate="max_margin", **parameters):
    return GraphTagger(surrogate, **{"alpha": 0.05, "tol": 1e-3, "random_state": 0, **parameters})


def given(form):
    """Graphs, their labels in a list, and parameters of the tagger."""
    X, y = random_graphs(3, n=14, **FORMS[form])
    parameters, rng = {}, np.random.default_rng(0)
    if form in ("csr", "float32"):
        values = X.node_features
        values = sparse.csr_array(values) if form == "csr" else values.astype(np.float32)
        X = Graphs(values, X.edges, X.node_offsets, X.edge_offsets)
    if form == "factors":
        X = with_random_factors(X, y, 0, 2)
    if form == "declared":
        parameters["classes"] = [0, 1, 2, 9]
    if form == "of types":
        parameters["classes"] = {0: [0, 1, 2, 9], 1: [1, 2, 3]}
    y = [np.asarray(part) for part in y]
    if form == "void":
        parameters["ignore_label"] = 255
        y = [np.where(rng.random(len(p)) < 0.3, rng.choice([255, -1]), p) for p in y]
    if form == "tuples":
        y = [["x" if label == 1 else (int(label), "y") for label in part] for part in y]
    return X, y, parameters


@pytest.mark.parametrize(("surrogate", "form"), covering(itertools.product(SURROGATES, FORMS)))
def test_the_fit_is_that_to_all_graphs(surrogate, form):
    X, y, parameters = given(form)
    weights = np.linspace(0.5, 2.0, len(X))
    calls = tagger(surrogate, **parameters)
    for cut in CUTS:
        calls.partial_fit(X[cut], y[cut], sample_weight=weights[cut])
        assert calls.relative_gap_ <= 1e-3
    whole = tagger(surrogate, **parameters).fit(X, y, weights)
    assert_same_optimum(calls, whole)
    assert calls.oracle_ == whole.oracle_
    assert_array_equal(calls.node_classes_, whole.node_classes_)
    if form == "plain":
        calls = tagger(surrogate).partial_fit(X[:6], y[:6]).partial_fit(X[6:], y[6:])
        slack = calls.duality_gap_ if surrogate == "max_min" else 0.0
        assert_allclose(objective(calls, X, y), calls.primal_objective_, atol=slack + 1e-8)


@pytest.mark.parametrize("form", ["plain", "types", "edges", "factors", "void"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_calls_go_on(surrogate, form):
    """With alpha = 1 / n the first certificate is at the weights of the last call."""
    X, y, parameters = given(form)
    parameters.update(inference="exact", alpha="auto")
    calls = tagger(surrogate, **parameters).partial_fit(X[:13], y[:13])
    calls, seen = pickle.loads(pickle.dumps(calls)), []
    coef, edge_coef = calls.coef_.copy(), calls.edge_intercept_.copy()

    def stop(row):
        seen.append(row["pass"])
        return True

    calls.set_params(callback=stop, tol=0.0)
    with pytest.warns(ConvergenceWarning):
        calls.partial_fit(X[13:], y[13:])
    assert seen[0] == 0
    # "log" may scale all of them
    scale = np.vdot(calls.coef_, coef) / np.vdot(coef, coef)
    assert 0.9 <= scale <= 1.0 if surrogate == "log" else scale == pytest.approx(1.0)
    assert_allclose(calls.coef_, scale * coef, atol=1e-9)
    assert_allclose(calls.edge_intercept_, scale * edge_coef, atol=1e-9)


def test_new_labels_types_and_cycles():
    X, y, _ = given("types")
    two = [np.minimum(part, 1) for part in y]
    calls = tagger().partial_fit(X[:6], two[:6])
    assert calls.classes_.tolist() == [0, 1]
    calls.partial_fit(X[6:], y[6:])
    assert_same_optimum(calls, tagger().fit(X, [*two[:6], *y[6:]]))
    # a node of a type that there was not, and the first cycle
    first = ([[1.0], [0.0]], [[0, 1]], None, [0, 0], [0])
    second = ([[1.0], [0.0], [2.0]], [[0, 1], [1, 2], [2, 0]], None, [0, 1, 1], [0, 1, 1])
    one, both = (Graphs.from_list(graphs) for graphs in ([first], [first, second]))
    calls = tagger("log").partial_fit(one, [[0, 1]])
    assert calls.oracle_ == "forest"
    calls.partial_fit(both[1:], [[1, 0, 2]])
    whole = tagger("log").fit(both, [[0, 1], [1, 0, 2]])
    assert calls.oracle_ == whole.oracle_ != "forest"
    assert_same_optimum(calls, whole)


def test_classes_of_calls():
    X, y, _ = given("plain")
    two = [np.minimum(part, 1) for part in y]
    calls = tagger().partial_fit(X[:6], two[:6], classes=[0, 1, 2])
    assert calls.classes_.tolist() == [0, 1, 2]
    calls.partial_fit(X[6:], y[6:])
    assert_same_optimum(calls, tagger(classes=[0, 1, 2]).fit(X, [*two[:6], *y[6:]]))
    with pytest.raises(ValueError, match=r"classes are \[0, 1\], but the first call of partial_fit"):
        calls.partial_fit(X[6:], y[6:], classes=[0, 1])
    with pytest.raises(ValueError, match="y has the label 2, which is not among the classes, 0, 1"):
        tagger().partial_fit(X, y, classes=[0, 1])
    declared = tagger(classes=[0, 1, 2]).partial_fit(X, two, classes=[0, 1])
    assert declared.classes_.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="y has the label 7, which is not among the classes"):
        tagger(classes=[0, 1, 2]).partial_fit(X, two, classes=[0, 7])
    with pytest.raises(ValueError, match=r"y\[1\] has 2 at node 0, which is not in classes: \[0, 1\]"):
        tagger(classes=[0, 1]).partial_fit(X, [np.full(len(part), 2) for part in y])


def test_places_and_folders(tmp_path):
    X, y = random_graphs(0, n=14, labels=4, forest=True)
    options = dict(pairwise="displacement", grid_shape=(2, 2))
    calls = tagger(**options).partial_fit(X[:6], y[:6], classes=[0, 1]).partial_fit(X[6:], y[6:])
    assert_same_optimum(calls, tagger(**options).fit(X, y))
    for k, cut in enumerate(CUTS):
        Graphs.from_batches([X[cut]], tmp_path / str(k))
    calls = tagger()
    for k, cut in enumerate(CUTS):
        calls = pickle.loads(pickle.dumps(calls)).partial_fit(
            Graphs.open(tmp_path / str(k)), y[cut])
    assert_same_optimum(calls, tagger().fit(X, y))
    X, y = random_graphs(1, n=8)
    lists = [tuple(part for part in (one.node_features, one.edges)) for one in X]
    calls = tagger().partial_fit(lists[:4], y[:4]).partial_fit(lists[4:], Sequences.from_list(y[4:]))
    assert_same_optimum(calls, tagger().fit(X, y))


def test_interrupted_calls_do_not_count():
    X, y, _ = given("plain")

    def press(row):
        raise KeyboardInterrupt

    calls = tagger().partial_fit(X[:6], y[:6])
    with pytest.raises(KeyboardInterrupt):
        calls.set_params(callback=press).partial_fit(X[6:], y[6:])
    assert calls.interrupted_
    calls.set_params(callback=None).partial_fit(X[6:], y[6:])
    assert_same_optimum(calls, tagger().fit(X, y))


def test_refusals():
    X, y, _ = given("plain")
    with pytest.raises(ValueError, match="partial_fit of GraphTagger takes data in memory, not by"):
        tagger(solver=OutOfCore()).partial_fit(X, y)
    calls = tagger().partial_fit(X, y)
    coef = calls.coef_.copy()
    typed = Graphs(X.node_features, X.edges, X.node_offsets, X.edge_offsets,
                   node_types=np.zeros(X.n_nodes, dtype=int))
    narrow = Graphs(X.node_features[:, :2], X.edges, X.node_offsets, X.edge_offsets)
    rows = Graphs(sparse.csr_array(X.node_features), X.edges, X.node_offsets, X.edge_offsets)
    for more, labels, message in (
        (narrow, y, "X has 2 features, but GraphTagger is expecting 3 features as input, as in e"),
        (rows, y, "X is sparse, and was not in earlier calls of partial_fit; give one kind"),
        (typed, y, "node_types"),
        (X, y[1:], "y has the labels of 13 graphs, but X has 14"),
    ):
        with pytest.raises(ValueError, match=message):
            calls.partial_fit(more, labels)
        assert_array_equal(calls.coef_, coef)
    calls.partial_fit(X[:2], y[:2])
