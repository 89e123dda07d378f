"""Files, pickles and copies of fitted estimators, whatever their labels and attributes are."""

import copy
import os
import pickle
import tempfile

import numpy as np
import pytest
from scipy import sparse

hypothesis = pytest.importorskip("hypothesis")
from comparisons import same, same_state
from draws import examples
from estimator_cases import CASES, SURROGATES, take
from graph_cases import random_graphs, with_random_factors
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from fastm4n import (
    CountFactor,
    Graphs,
    GraphTagger,
    MulticlassClassifier,
    MultiLabelClassifier,
    RegularizationPath,
    Sequences,
    SequenceTagger,
    Transitions,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.penalties import L2, ElasticNet
from fastm4n.tasks.chain_predictions import READY

few = examples(4)
some = examples(8)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# NumPy cuts zero characters off at the end of strings
texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
odd = st.sampled_from(["", " ", "a\nb", "\n", "\r\n", "é", "e\u0301", "😀", "a:b", "__bias__", "nan"])
names = st.one_of(
    st.lists(st.one_of(texts, odd), min_size=3, max_size=3, unique=True).map(np.array),
    st.lists(st.one_of(texts, odd), min_size=3, max_size=3, unique=True).map(
        lambda strings: np.array(strings, dtype=object)),
    st.lists(
        st.integers(-2**63, 2**63 - 1), min_size=3, max_size=3, unique=True).map(np.array),
    st.lists(st.integers(0, 255), min_size=3, max_size=3, unique=True).map(
        lambda numbers: np.array(numbers, dtype=np.uint8)),
    st.lists(st.integers(-2**53, 2**53), min_size=3, max_size=3, unique=True).map(
        lambda numbers: np.array(numbers, dtype=np.float64)),
    st.just(np.array([False, True, True])),
)

ROWS = 12
KERNELS = [{}, {"kernel": "rbf"}, {"kernel": "rbf", "gamma": 0.3}, {
    "kernel": "poly", "kernel_params": {"degree": 2, "coef0": 0.5}}, {"kernel": "precomputed"},
    {"fit_intercept": False}, {"penalty": ElasticNet(0.5)}]
OPTIONS = {
    "MulticlassClassifier": [
        *KERNELS, {"fit_intercept": "free"}, {"class_weight": "balanced"},
        {"cost": 1 - np.eye(3)}, {"penalty": L2((-0.5, None))}],
    "OrdinalClassifier": [*KERNELS, {"cost": "squared"}],
    "SequenceTagger": [
        {}, {"states": "observed"}, {"transitions": Transitions(features="all")}, {"transitions": Transitions(order=2)},
        {"states": "observed", "transitions": Transitions(order=2)}, {"transitions": Transitions(pairs=False)}, {"transitions": Transitions(start_end=False)}],
    "GraphTagger": [{}, {"pairwise": "symmetric"}, {"pairwise": "potts"}],
    "LabelRanker": KERNELS,
    "MultiLabelClassifier": [*KERNELS, {"graph": "none"}, {"graph": "complete"}],
    "Matcher": [{}, {"kernel": "rbf"}, {"penalty": ElasticNet(0.5)}],
}


def renamed(case, name, y, labels):
    """The outputs with other labels, which `labels` are by their places in the order of the old."""
    if name in ("MulticlassClassifier", "OrdinalClassifier"):
        return labels[y]
    if name in ("SequenceTagger", "GraphTagger"):
        return [labels[["abc".index(label) for label in part]] for part in y]
    if name == "LabelRanker" and len(set(labels.tolist())) == 3 and labels.dtype.kind in "UO":
        return labels[np.argsort(y, axis=1)]  # orderings
    if name == "MultiLabelClassifier" and labels.dtype.kind == "U":
        return pytest.importorskip("pandas").DataFrame(y, columns=labels.tolist())
    return y


@st.composite
def fits(draw, name, surrogate):
    """A fitted estimator, and what it was fitted to."""
    case = CASES[name]
    options = dict(draw(st.sampled_from(OPTIONS[name])))
    rows = np.arange(ROWS)
    X, y = take(case.X, rows), renamed(case, name, take(case.y, rows), draw(names))
    if options.get("kernel") == "precomputed":
        X = rbf_kernel(X)
    elif isinstance(X, np.ndarray):
        X = draw(st.sampled_from([np.asarray, np.float32, sparse.csr_matrix, sparse.csr_array]))(X)
    elif name == "SequenceTagger" and ("states" in options or draw(st.booleans())):
        X = [sparse.csr_matrix(x) for x in X]
    if "cost" in options and len(np.unique(y)) != len(options["cost"]):
        options.pop("cost")  # a matrix is of three labels
    return case.fit(
        surrogate, X=X, y=y, max_iter=3, alpha=draw(st.sampled_from([0.01, 1.0])), **options), X, y


def saved(model, folder, name):
    """The file that a model makes, and the model that the file makes."""
    path = os.path.join(folder, name)
    save_model(model, path)
    with open(path, "rb") as file:
        return file.read(), load_model(path)


def same_answers(one, other):
    assert one.keys() == other.keys()
    for method, values in one.items():
        for a, b in zip(values, other[method], strict=True):
            same(a, b)


def check_copies(model, answers):
    """What a file, a pickle and a copy hold is the model, which they leave as it was."""
    before, expected = dict(vars(model)), answers(model)
    with tempfile.TemporaryDirectory() as folder:
        written, loaded = saved(model, folder, "first")
        again, _ = saved(loaded, folder, "second")
    assert written == again
    pickled = pickle.loads(pickle.dumps(model))
    copies = loaded, pickled, pickle.loads(pickle.dumps(pickled)), copy.deepcopy(model)
    # what predictions of short sentences share is no part of it
    assert vars(model).keys() - {READY} == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items() if name != "_of_pairs")
    for one in copies:
        assert type(one) is type(model) and repr(one) == repr(model)
        same_answers(answers(one), expected)
    same_answers(answers(model), expected)
    for one in (model, *copies):
        getattr(one, "coef_", None)  # weights that are held by pairs are spread
    for one in copies:
        same_state(model, one)
    return copies


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("name", CASES)
@few
@given(data=st.data())
def test_models_come_back_from_files_and_pickles(name, surrogate, data):
    model, X, y = data.draw(fits(name, surrogate))
    expected = CASES[name].answers(model, X)
    loaded, pickled, *_ = check_copies(model, lambda one: CASES[name].answers(one, X))
    # and so do parameters: a new fit of a clone is the same
    for one in (loaded, pickled):
        again = clone(one)
        assert not any(attribute.endswith("_") for attribute in vars(again))
        again.fit(X, y)
        for attribute in ("primal_objective_", "dual_objective_", "duality_gap_"):
            assert getattr(again, attribute) == getattr(model, attribute)
        same_answers(CASES[name].answers(again, X), expected)


attributes = st.one_of(
    st.lists(st.one_of(texts, odd), max_size=4),
    st.dictionaries(
        st.one_of(texts, odd), st.one_of(
            texts, odd, st.booleans(), st.sampled_from([0, 1, -2.5, 1e-300, 3]),
            st.lists(texts, max_size=2), st.dictionaries(texts, texts, max_size=2)), max_size=4))


@pytest.mark.parametrize("surrogate", SURROGATES)
@some
@given(
    X=st.lists(st.lists(attributes, min_size=1, max_size=4), min_size=2, max_size=4),
    labels=names, states=st.sampled_from(["all", "observed"]), seed=st.integers(0, 9))
def test_taggers_of_attributes_come_back(surrogate, X, labels, states, seed):
    X = [[["first"], *sequence] for sequence in X]  # one attribute at least
    rng = np.random.default_rng(seed)
    y = [labels[np.append(i % 2, rng.integers(3, size=len(x) - 1))] for i, x in enumerate(X)]
    tagger = SequenceTagger(surrogate, states=states, random_state=0, max_iter=3).fit(X, y)
    new = [[["first", "never seen \n"], {"neither": "é"}], []]

    def answers(one):
        found = {
            "predict": list(one.predict(X)) + list(one.predict(new)),
            "decision_function": list(one.decision_function(X)),
            "names": [np.array(one.vectorizer_.feature_names_)]}
        if surrogate == "log":
            found["predict_marginals"] = list(one.predict_marginals(X))
        return found

    for one in check_copies(tagger, answers):
        assert one.vectorizer_.vocabulary_ == tagger.vectorizer_.vocabulary_


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
@some
@given(
    seed=st.integers(0, 99), labels=st.integers(2, 3), types=st.integers(1, 2),
    of_edges=st.integers(0, 2), weights=st.booleans(), factors=st.booleans(),
    pairwise=st.sampled_from(["full", "potts", "attractive"]))
def test_taggers_of_any_graphs_come_back(
        surrogate, seed, labels, types, of_edges, weights, factors, pairwise):
    """Of graphs with cycles, types of nodes and of edges, and factors, by whatever oracle."""
    X, y = random_graphs(
        seed, n=6, labels=labels, n_types=types if pairwise == "full" else 1,
        n_edge_features=of_edges if pairwise == "full" else 0, n_edge_types=types, weights=weights)
    if factors and np.unique(y.values).size == labels and X.node_types is None:
        X = with_random_factors(X, y, seed, labels)
    copied = pickle.loads(pickle.dumps(X))
    assert copied.equals(X) and isinstance(copied, Graphs) and not copied.equals(X[:-1])
    tagger = GraphTagger(surrogate, pairwise=pairwise, random_state=0, max_iter=3).fit(X, y)
    check_copies(tagger, lambda one: {
        "predict": list(one.predict(X)), "decision_function": list(one.decision_function(X)),
        "bound": [np.asarray(part) for part in one.predict(X, return_bound=True)[1:]]})


@some
@given(
    lengths=st.lists(st.integers(0, 3), max_size=4), labels=names,
    most=st.integers(0, 3), negated=st.lists(st.booleans(), min_size=3, max_size=3))
def test_data_and_constraints_come_back(lengths, labels, most, negated):
    y = Sequences.from_lengths(labels[np.arange(sum(lengths)) % 3], lengths)
    copied = pickle.loads(pickle.dumps(y))
    assert copied.equals(y)
    same(copied.values, y.values)
    case = CASES["MultiLabelClassifier"]
    model = MultiLabelClassifier(
        constraints=CountFactor([0, 1, 2], 0, most, negated), random_state=0, max_iter=3)
    allowed = np.flatnonzero((case.y != negated).sum(axis=1) <= most)
    if len(allowed):
        model.fit(case.X[allowed], case.y[allowed])
        check_copies(model, lambda one: case.answers(one, case.X))


@pytest.mark.parametrize("surrogate", SURROGATES)
@examples(3)
@given(labels=names)
def test_paths_come_back(surrogate, labels):
    case = CASES["MulticlassClassifier"]
    X, y = case.X[::2], labels[case.y[::2]]
    path = regularization_path(
        MulticlassClassifier(surrogate, random_state=0), X, y, alpha_min=0.1)
    with tempfile.TemporaryDirectory() as folder:
        written = []
        for number, one in enumerate([path, pickle.loads(pickle.dumps(path))]):
            one.save(os.path.join(folder, str(number)))
            with open(os.path.join(folder, str(number)), "rb") as file:
                written.append(file.read())
        assert written[0] == written[1]
        loaded = RegularizationPath.load(os.path.join(folder, "0"))
        loaded.save(os.path.join(folder, "2"))
        with open(os.path.join(folder, "2"), "rb") as file:
            assert file.read() == written[0]
    for alpha in (path.alphas[0], 0.1, 0.25):
        one, other = (of.estimator(alpha) for of in (path, loaded))
        assert one.duality_gap_ == other.duality_gap_
        same_answers(case.answers(other, X), case.answers(one, X))
