"""Taggers that go on with more data: new labels and attributes, with and without earlier data."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from scipy.optimize import minimize
from scipy.special import logsumexp

from fastm4n import (
    MulticlassClassifier,
    OutOfCore,
    QuasiNewton,
    SequenceTagger,
    Transitions,
    load_model,
    save_model,
)
from fastm4n.crfsuite import CRF
from fastm4n.estimators import _cells
from fastm4n.penalties import ElasticNet

WORDS = "the old man sings a song to his cat".split()


def sentences(n, seed=0, words=WORDS, labels="ab"):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        chosen = rng.integers(len(words), size=rng.integers(1, 6))
        X.append([{"word": words[k], "first": t == 0} for t, k in enumerate(chosen)])
        y.append([labels[(k + rng.integers(4) // 3) % len(labels)] for k in chosen])
    return X, y


def numbers(n, seed=0, labels="ab"):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 4, size=n)
    return [rng.normal(size=(k, 3)) for k in lengths], [
        rng.choice(list(labels), size=k).tolist() for k in lengths]


def weights_of(tagger):
    return np.concatenate([np.ravel(getattr(tagger, name)) for name in (
        "coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_")])


def padded(tagger, R):
    """Weights of a tagger with zeros for labels behind its own."""
    more = R - tagger.classes_.size
    parts = [np.pad(tagger.coef_, ((0, more), (0, 0)))]
    parts += [np.pad(getattr(tagger, f"{name}_coef_"), (0, more)) for name in ("start", "end")]
    parts.insert(1, np.pad(tagger.intercept_, (0, more)))
    parts.append(np.pad(tagger.transition_coef_, ((0, more), (0, more))))
    return np.concatenate([part.ravel() for part in parts])


def objective(w, X, y, classes, centre, alpha, surrogate):
    R, d = len(classes), X[0].shape[1]
    cuts = np.cumsum([R * d, R, R, R])
    coef, intercept, start, end, pairs = np.split(w, cuts)
    coef, pairs, total = coef.reshape(R, d), pairs.reshape(R, R), 0.0
    for x, labels in zip(X, y, strict=True):
        outs = np.array(list(itertools.product(range(R), repeat=len(x))))
        unary = x @ coef.T + intercept
        unary[0] += start
        unary[-1] += end
        scores = unary[np.arange(len(x)), outs].sum(axis=1)
        scores += pairs[outs[:, :-1], outs[:, 1:]].sum(axis=1)
        truth = np.array([classes.index(label) for label in labels])
        wrong = (outs != truth).sum(axis=1)
        high = logsumexp(scores) if surrogate == "log" else np.max(scores + wrong)
        total += high - scores[wrong == 0][0]
    return total / len(X) + 0.5 * alpha * np.sum((w - centre) ** 2)


@pytest.mark.parametrize("alpha", ["auto", 0.1])
@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
def test_the_change_is_certified(surrogate, alpha):
    """The loss of the new data, and the penalty of the change, with new labels."""
    X, y = numbers(6)
    tagger = SequenceTagger(surrogate, alpha=alpha, tol=1e-6, max_iter=20000, random_state=0)
    tagger.fit(X, y)
    centre, more = padded(tagger, 3), numbers(3, 1, "abc")
    # as often as there are old ones for each new one
    ratio = (6 + 3) / 3
    unit = tagger.alpha_ * 6 / 3 if alpha == "auto" else 0.1 * ratio
    if surrogate == "log":
        assert_allclose(tagger.alpha_, 1 / 6 if alpha == "auto" else 0.1)
    tagger.partial_fit(*more)
    assert tagger.classes_.tolist() == ["a", "b", "c"] and tagger.n_seen_ == 9.0
    assert_allclose(tagger.alpha_, unit * ratio * (1 if surrogate == "log" else 3))
    assert tagger.relative_gap_ <= 1e-6
    if surrogate == "max_min":
        return
    arguments = *more, ["a", "b", "c"], centre, tagger.alpha_, surrogate
    value = objective(weights_of(tagger), *arguments)
    assert_allclose(tagger.primal_objective_, value, rtol=1e-9)
    assert tagger.dual_objective_ <= value
    if surrogate == "log":
        least = minimize(objective, centre, arguments, tol=1e-9).fun
        assert tagger.dual_objective_ <= least + 1e-9
    # a further call goes on from the same weights
    again = tagger.partial_fit(*(part[:1] for part in numbers(3, 2)))
    assert again.n_seen_ == 10.0 and again.relative_gap_ <= 1e-6


FORMS = {
    "plain": {}, "observed": {"states": "observed"}, "ends": {"fit_intercept": False},
    "edges": {"transitions": Transitions(features=[0])},
    "observed edges": {"transitions": Transitions(features=[0]), "states": "observed"},
    "constraints": {"constraints": ".*"}, "sparse": {"penalty": ElasticNet(0.5)},
    "proximal": {"penalty": ElasticNet(1.0)}, "tokens": {"transitions": False},
}


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
@pytest.mark.parametrize("form", FORMS)
def test_a_strong_penalty_leaves_the_weights(form, surrogate):
    """Weights of known labels and columns are where they were, and predictions go by them."""
    X, y = sentences(20)
    tagger = SequenceTagger(surrogate, random_state=0, **FORMS[form]).fit(X, y)
    before = {name: np.array(getattr(tagger, name)) for name in (
        "coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_")}
    edges = getattr(tagger, "transition_feature_coef_", None)
    names = list(tagger.vectorizer_.feature_names_)
    tagger.set_params(alpha=1e9)
    tagger.partial_fit(*sentences(4, 1, [*WORDS, "zebra"], "abc"))
    assert tagger.vectorizer_.feature_names_[: len(names)] == names
    assert "word:zebra" in tagger.vectorizer_.feature_names_
    for name, weights in before.items():
        now = getattr(tagger, name)
        assert_allclose(now[tuple(slice(n) for n in weights.shape)], weights, atol=1e-6)
    if edges is not None:
        assert_allclose(tagger.transition_feature_coef_[:, :2, :2], edges, atol=1e-6)
    assert tagger.relative_gap_ <= tagger.tol_


@pytest.mark.filterwarnings("ignore:After .* passes")
@pytest.mark.parametrize("alpha", [10.0, 0.1, 0.01])
@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
def test_bounds_of_sparse_changes(surrogate, alpha):
    """Also without a quadratic term and constants."""
    tagger = SequenceTagger(
        surrogate, alpha=alpha, penalty="l1", fit_intercept=False, transitions=False,
        max_iter=200, random_state=0)
    tagger.fit(*numbers(6)).partial_fit(*numbers(3, 1, "abc"))
    assert 0.0 <= tagger.dual_objective_ <= tagger.primal_objective_ + 1e-12
    assert tagger.certified_for_ == "change"


def test_a_change_of_zero():
    """The same data again, under weights whose margins hold: rounding alone makes a height."""
    cell = _cells.Cell(
        "SequenceTagger", "class weights", "max_margin", "dense", "l1",
        "BlockFrankWolfe(cache=5, step='pairwise')", "memory", False)
    X, y, weights = _cells.example(cell).X, _cells.example(cell).y, _cells.example(cell).weights
    tagger = SequenceTagger(**_cells.parameters(cell)).set_params(
        alpha=0.1, tol=1e-3, max_iter=300, random_state=0).fit(X, y, weights)
    coef = tagger.coef_
    tagger.partial_fit(X, y, sample_weight=weights)
    assert_allclose(tagger.coef_, coef, atol=1e-12)
    assert tagger.relative_gap_ <= 1e-3


def test_threads_and_pickles():
    X, y = sentences(40)
    tagger = SequenceTagger("log", random_state=0).fit(X, y)
    more = sentences(10, 1, labels="abc")
    first, second, third = (pickle.loads(pickle.dumps(tagger)) for _ in range(3))
    first.partial_fit(*more)
    second.set_params(n_jobs=2).partial_fit(*more)
    assert_array_equal(first.coef_, second.coef_)
    problem = third._problem(*more)
    layout = problem.loss.outputs.layout
    problem.features.set_base(np.arange(layout.n_numbers, dtype=float), layout)
    again = pickle.loads(pickle.dumps(problem.features))
    assert again.has_offset
    # a call after a pickle of one without data
    first = pickle.loads(pickle.dumps(first)).partial_fit(*sentences(5, 3))
    assert first.n_seen_ == 55.0 and first.classes_.size == 3


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_new_labels_where_the_data_are_there(surrogate):
    parts = sentences(30), sentences(10, 1, [*WORDS, "zebra"], "abc"), sentences(5, 2)
    tagger = SequenceTagger(surrogate, random_state=0, tol=1e-5, max_iter=10000)
    for part in parts:
        tagger.partial_fit(*part)
    whole = SequenceTagger(surrogate, random_state=0, tol=1e-5, max_iter=10000)
    whole.fit(*(sum((list(part[k]) for part in parts), []) for k in range(2)))
    assert_same_optimum(tagger, whole)
    assert tagger.n_seen_ == whole.n_seen_ == 45.0


def test_given_classes_stay():
    tagger = SequenceTagger("log").partial_fit(*sentences(10), classes=["a", "b"])
    with pytest.raises(ValueError, match="label 'c', which is not among the classes"):
        tagger.partial_fit(*sentences(10, 1, labels="abc"))
    # of a model without its data, they are those that may be new
    tagger = SequenceTagger("log").fit(*sentences(10))
    tagger.partial_fit(*sentences(10, 1), classes=["a", "b", "z"])
    assert tagger.classes_.tolist() == ["a", "b", "z"]


@pytest.mark.parametrize("states", ["all", "observed"])
def test_model_files(tmp_path, states):
    X, y = sentences(30)
    tagger = SequenceTagger("log", states=states, random_state=0).fit(X, y)
    save_model(tagger, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.n_seen_ == 30.0
    more = sentences(10, 1, [*WORDS, "zebra"], "abc")
    loaded.partial_fit(*more)
    tagger.partial_fit(*more)
    assert_array_equal(loaded.coef_, tagger.coef_)
    save_model(loaded, tmp_path / "model")
    assert load_model(tmp_path / "model").n_seen_ == 40.0
    # of a model of unknown data, so many times the new ones
    tagger = load_model(tmp_path / "model")
    tagger.n_seen_ = None
    save_model(tagger, tmp_path / "model")
    assert load_model(tmp_path / "model").partial_fit(*more).n_seen_ == 210.0
    with pytest.raises(ValueError, match="n_seen_ must be a finite number > 0, got -1"):
        tagger.n_seen_ = -1


@pytest.mark.parametrize("c1", [0.0, 0.01])
def test_crf(tmp_path, c1):
    X, y = sentences(30)
    crf = CRF(c1=c1, c2=0.1, epsilon=1e-4).fit(X, y)
    more = sentences(10, 1, [*WORDS, "zebra"], "abc")
    crf.partial_fit(*more)
    assert crf.classes_ == ["a", "b", "c"] and crf.relative_gap_ <= 1e-4
    assert_allclose(crf.tagger_.alpha_, (c1 + 0.2) / 10 * 4.0)
    assert_allclose(crf.objective_, 10 * crf.tagger_.primal_objective_)
    # with the data there, the fit is that to all of them
    parts = CRF(c1=c1, c2=0.1, epsilon=1e-4).partial_fit(X, y).partial_fit(*more)
    whole = CRF(c1=c1, c2=0.1, epsilon=1e-4).fit(X + more[0], y + more[1])
    least = 1e-4 * 40 * 3 * np.log(3)
    assert_allclose(parts.objective_, whole.objective_, atol=least)
    assert "word:zebra" in parts.attributes_
    name = tmp_path / "model"
    CRF(c1=c1, c2=0.1, model_filename=name).fit(X, y)
    CRF(c1=c1, c2=0.1, model_filename=name).partial_fit(*more)
    assert CRF(model_filename=name).classes_ == ["a", "b", "c"]
    with pytest.raises(TypeError, match="X must be a list of sequences, each a list of dicts"):
        crf.partial_fit([np.zeros((2, 2))], [["a", "b"]])


def test_warm_starts():
    """Of other data it is the fit to these, whatever labels and attributes there were."""
    X, y = sentences(30)
    more = sentences(10, 1, [*WORDS, "zebra"], "abc")
    for surrogate in ("log", "max_margin", "max_min"):
        tagger = SequenceTagger(surrogate, warm_start=True, random_state=0).fit(X, y).fit(*more)
        plain = SequenceTagger(surrogate, random_state=0).fit(*more)
        assert_same_optimum(tagger, plain)
        assert tagger.classes_.tolist() == ["a", "b", "c"] and tagger.n_seen_ == 10.0


def test_interrupted_calls():
    X, y = sentences(30)
    more = sentences(10, 1, labels="abc")
    tagger = SequenceTagger("log", random_state=0, tol=1e-6).fit(X, y)
    plain = pickle.loads(pickle.dumps(tagger)).partial_fit(*more)

    def press(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tagger.set_params(callback=press).partial_fit(*more)
    tagger.set_params(callback=None).partial_fit(*more)
    assert tagger.n_seen_ == 40.0
    assert_same_optimum(tagger, plain)


def test_refusals():
    X, y = sentences(30)
    tagger = SequenceTagger("log", transitions=Transitions(order=2), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="transitions of order 1"):
        tagger.partial_fit(X, y)
    tagger = SequenceTagger("log", random_state=0).fit(X, y)
    for changed, message in (
        ({"solver": OutOfCore()}, "in memory only"),
        ({"solver": QuasiNewton()}, "scores of its own weights alone"),
        ({"transitions": Transitions(features=[0])}, "other features than at the last fit"),
    ):
        with pytest.raises(ValueError, match=message):
            tagger.set_params(**changed).partial_fit(X, y)
        tagger.set_params(solver="auto", transitions=True)
    with pytest.raises(ValueError, match="but earlier calls of partial_fit took attributes"):
        tagger.partial_fit([np.zeros((2, 3))], [["a", "b"]])
    tagger = SequenceTagger("log").fit(*numbers(5))
    with pytest.raises(ValueError, match="X has 4 features, but SequenceTagger is expecting 3"):
        tagger.partial_fit([np.zeros((2, 4))], [["a", "b"]])
    # estimators that go on from earlier calls alone
    model = MulticlassClassifier("log").fit(np.eye(3), [0, 1, 2])
    with pytest.raises(ValueError, match="would be forgotten"):
        model.partial_fit(np.eye(3), [0, 1, 2])
