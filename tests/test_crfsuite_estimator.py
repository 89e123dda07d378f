"""`fastm4n.crfsuite.CRF`: the names, the weights and the results of sklearn-crfsuite."""

import inspect
import pickle
import warnings
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score

from fastm4n import (
    CalibratedTagger,
    ConformalTagger,
    MulticlassClassifier,
    OutOfCore,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    load_model,
    save_model,
)
from fastm4n.crfsuite import CRF
from fastm4n.crfsuite import load_model as load_crfsuite_model

CRFSUITE = "python-crfsuite is not installed: weights are not compared with CRFsuite's."
SKLEARN_CRFSUITE = "sklearn-crfsuite is not installed: nothing is compared with it."


def data(n, seed):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = [str(label) for label in rng.choice(list("ABCD"), rng.integers(1, 8))]
        X.append([{
            "w": f"s{label}" if rng.random() < 0.5 else f"w{rng.integers(30)}",
            "v": float(abs(rng.normal())), "b": bool(rng.random() < 0.3),
            "n": [f"p{rng.integers(5)}", "q"], "o": {"k": 2, "z": "é"},
        } for label in labels])
        y.append(labels)
    return X, y


X, Y = data(60, 1)
X_NEW, Y_NEW = data(20, 2)


def distances(ours, theirs):
    return max(abs(ours.get(key, 0.0) - theirs.get(key, 0.0)) for key in {*ours, *theirs})


# ----------------------------------------------------------------- against the original

SETTINGS = [
    {},
    {"c1": 0.3, "c2": 0.2},
    {"c1": 0.05, "c2": 0.02},
    {"c2": 0.05, "all_possible_states": True},
    {"c2": 0.05, "all_possible_transitions": True},
    {"c1": 0.1, "c2": 0.1, "all_possible_states": True, "all_possible_transitions": True},
    {"min_freq": 2.0},
    {"min_freq": 5.5, "all_possible_states": True},
    {"min_freq": 10.0, "all_possible_transitions": True, "c1": 0.1},
]


def trained(tmp_path, X, y, **parameters):
    """python-crfsuite's model at its optimum: weights, and a tagger."""
    pycrfsuite = pytest.importorskip("pycrfsuite", reason=CRFSUITE)
    names = {
        "min_freq": "feature.minfreq", "all_possible_states": "feature.possible_states",
        "all_possible_transitions": "feature.possible_transitions"}
    trainer = pycrfsuite.Trainer("lbfgs", {
        names.get(key, key): value for key, value in parameters.items()}, verbose=False)
    trainer.set_params({"epsilon": 1e-9, "delta": 0.0, "period": 100, "max_iterations": 20000})
    for tokens, labels in zip(X, y):
        trainer.append(tokens, labels)
    trainer.train(str(tmp_path / "model.crfsuite"))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(tmp_path / "model.crfsuite"))
    return trainer.logparser.last_iteration["loss"], tagger


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_weights_are_those_of_crfsuite(parameters, tmp_path):
    loss, theirs = trained(tmp_path, X, Y, **parameters)
    ours = CRF(epsilon=1e-9, **parameters).fit(X, Y)
    assert ours.objective_ <= loss + ours.duality_gap_ + 1e-6
    assert ours.objective_ - ours.duality_gap_ <= loss + 1e-6
    found = theirs.info()
    assert distances(ours.state_features_, found.state_features) < 1e-3
    assert distances(ours.transition_features_, found.transitions) < 1e-3
    assert set(ours.classes_) == set(theirs.labels())
    for tokens, labels, marginals in zip(
            X_NEW, ours.predict(X_NEW), ours.predict_marginals(X_NEW)):
        assert theirs.tag(tokens) == labels
        for t, row in enumerate(marginals):
            for label, p in row.items():
                assert abs(theirs.marginal(label, t) - p) < 1e-4


def test_values_below_zero(tmp_path):
    """CRFsuite leaves out pairs whose values add up to less than zero."""
    tokens = [[{**token, "v": -token["v"]} for token in own] for own in X]
    _, theirs = trained(tmp_path, tokens, Y)
    ours = CRF(epsilon=1e-9, min_freq=0).fit(tokens, Y)
    assert distances(ours.state_features_, theirs.info().state_features) < 1e-3
    assert ("v", "A") not in ours.state_features_
    assert ("v", "A") in CRF().fit(tokens, Y).state_features_


@pytest.mark.parametrize("parameters", [
    {}, {"c1": 0.05, "c2": 0.02}, {"min_freq": 0}, {"min_freq": 0.5},
    {"min_freq": 0, "all_possible_states": True}], ids=str)
def test_values_of_zero(parameters, tmp_path):
    """An attribute of value zero occurs with its label, and has a weight where others are not."""
    rng = np.random.default_rng(3)
    values = [False, np.False_, 0, 0.0, -0.0, True, 1.5, 0.25] + [-1.5] * (
        parameters.get("min_freq") == 0)  # these add up to zero, too
    tokens = [[{"a": values[rng.integers(len(values))], "n": {"b": values[rng.integers(len(values))]}}
               for _ in range(4)] for _ in range(8)]
    labels = [[str(label) for label in rng.choice(list("ABC"), 4)] for _ in range(8)]
    tokens[0][0], labels[0][0] = {"a": 0, "never": False}, "D"  # with no other value
    loss, theirs = trained(tmp_path, tokens, labels, **parameters)
    ours = CRF(epsilon=1e-9, **parameters).fit(tokens, labels)
    assert_allclose(ours.objective_, loss, rtol=1e-6)
    wanted = theirs.info()
    assert distances(ours.state_features_, wanted.state_features) < 1e-3
    assert distances(ours.transition_features_, wanted.transitions) < 1e-3
    assert (("a", "D") in ours.state_features_) == (parameters.get("min_freq") != 0.5)
    for tagger in (ours.tagger_, load_crfsuite_model(tmp_path / "model.crfsuite")):
        for own, marginals in zip(tokens, tagger.predict_marginals(tokens)):
            assert theirs.tag(own) == tagger.predict([own])[0].tolist()
            assert_allclose(marginals, [[theirs.marginal(label, t) for label in tagger.classes_]
                                        for t in range(4)], atol=1e-4)
    # the same from rows, whole, in batches and with features of transitions
    states = ours.tagger_.states
    rows = ours.tagger_.vectorizer_.transform(tokens)
    for given, more in ((rows, {}), (list(rows), {}), (rows, {"solver": OutOfCore(memory=1)})):
        if "solver" not in more or "min_freq" not in states:
            again = SequenceTagger(
                "log", alpha=ours.tagger_.alpha, penalty=ours.tagger_.penalty, fit_intercept=False,
                transitions=Transitions(start_end=False), states=states, tol=1e-8, random_state=0, **more)
            assert_allclose(
                again.fit(given, labels).coef_, ours.tagger_.coef_, atol=1e-3)


def test_l1_alone(tmp_path):
    loss, _ = trained(tmp_path, X, Y, c1=0.5, c2=0.0)
    with pytest.warns(ConvergenceWarning, match="loose bound.*c2=1e-3 for a sharp bound"):
        ours = CRF(c1=0.5, c2=0.0, epsilon=1e-6).fit(X, Y)
    assert_allclose(ours.objective_, loss, rtol=1e-4)
    assert ours.objective_ - ours.duality_gap_ <= loss


def test_stochastic_gradients_have_the_same_optimum(tmp_path):
    loss, theirs = trained(tmp_path, X, Y, c2=0.3)
    ours = CRF("l2sgd", c2=0.3, epsilon=1e-9).fit(X, Y)
    assert_allclose(ours.objective_, loss, rtol=1e-6)
    assert distances(ours.state_features_, theirs.info().state_features) < 1e-3


def test_attributes_and_dicts_are_read_as_by_crfsuite(tmp_path):
    pycrfsuite = pytest.importorskip("pycrfsuite", reason=CRFSUITE)
    crf = CRF().fit([*X, [["w:x", "w:x", "b"]]], [*Y, ["A"]])
    columns = {name: j for j, name in enumerate(crf.tagger_.vectorizer_.feature_names_)}
    rows = crf.tagger_.vectorizer_.transform(X)
    for tokens, own in zip(X, rows):
        for items, row in zip(pycrfsuite.ItemSequence(tokens).items(), own.toarray()):
            wanted = {columns[name]: value for name, value in items.items() if value != 0.0}
            assert {int(j): row[j] for j in row.nonzero()[0]} == wanted


def test_parameters_are_those_of_sklearn_crfsuite():
    theirs = pytest.importorskip("sklearn_crfsuite", reason=SKLEARN_CRFSUITE).CRF
    wanted, found = (inspect.signature(cls.__init__).parameters for cls in (theirs, CRF))
    assert {name: p.default for name, p in wanted.items()} == {
        name: p.default for name, p in found.items()}
    assert list(wanted) == list(found)
    public = {name for name in dir(theirs) if not name.startswith("_")}
    assert public - {"size_"} <= {*dir(CRF), "modelfile", "training_log_"}


def test_results_have_the_forms_of_sklearn_crfsuite():
    sklearn_crfsuite = pytest.importorskip("sklearn_crfsuite", reason=SKLEARN_CRFSUITE)
    theirs = sklearn_crfsuite.CRF().fit(X, Y)
    ours = CRF(epsilon=1e-7).fit(X, Y)
    for name in ("predict", "predict_marginals"):
        found, wanted = (getattr(crf, name)(X_NEW) for crf in (ours, theirs))
        assert type(found) is type(wanted) and found.dtype == wanted.dtype
        assert type(found[0]) is type(wanted[0]) and type(found[0][0]) is type(wanted[0][0])
    for name in ("classes_", "attributes_", "num_attributes_", "state_features_",
                 "transition_features_"):
        assert type(getattr(ours, name)) is type(getattr(theirs, name))
    assert ours.num_attributes_ == theirs.num_attributes_
    assert set(ours.attributes_) == set(theirs.attributes_)
    assert ours.state_features_.keys() == theirs.state_features_.keys()
    assert ours.score(X_NEW, Y_NEW) == theirs.score(X_NEW, Y_NEW)
    metrics = pytest.importorskip("sklearn_crfsuite.metrics")
    assert metrics.flat_accuracy_score(Y_NEW, ours.predict(X_NEW)) == ours.score(X_NEW, Y_NEW)
    scorer = pytest.importorskip("sklearn_crfsuite.scorers").flat_accuracy
    search = GridSearchCV(CRF(), {"c2": [0.1, 1.0]}, cv=3, scoring=scorer).fit(X, Y)
    assert search.best_score_ > 0.5


# ------------------------------------------------------------------------------ on its own


def test_it_is_a_tagger():
    crf = CRF(c1=0.2, c2=0.1).fit(X, Y)
    tagger = crf.tagger_
    assert type(tagger) is SequenceTagger and tagger.surrogate == "log"
    assert_allclose(crf.duality_gap_, tagger.duality_gap_ * len(X))
    assert_allclose(crf.objective_, tagger.primal_objective_ * len(X))
    assert crf.relative_gap_ <= 1e-3 and crf.n_features_in_ == tagger.n_features_in_
    assert_allclose(crf.relative_gap_, crf.duality_gap_ / crf.objective_)
    assert not tagger.intercept_.any() and not tagger.start_coef_.any()
    assert crf.predict_single(X[0]) == crf.predict(X)[0] == tagger.predict(X)[0].tolist()
    assert crf.predict_marginals_single(X[0]) == crf.predict_marginals(X)[0]
    assert_allclose(sum(crf.predict_marginals_single(X[0])[0].values()), 1)
    assert crf.score(X_NEW, Y_NEW) == tagger.score(X_NEW, Y_NEW)
    assert crf.transition_features_["A", "B"] == tagger.transition_coef_[0, 1]
    log = crf.training_log_
    assert log.last_iteration is log.iterations[-1]
    assert_allclose(log.last_iteration["loss"], crf.objective_)
    assert log.last_iteration["bound"] <= crf.objective_
    assert log.featgen_num_features == len(crf.state_features_) + len(crf.transition_features_)


def test_objective():
    """From the weights, by all labellings of a short sequence."""
    crf = CRF(c1=0.3, c2=0.2).fit(X, Y)
    state, transition, total = crf.state_features_, crf.transition_features_, 0.0
    for tokens, truth in zip(X, Y):
        scores = np.array([[
            sum(value * state.get((name, label), 0.0) for name, value in {
                f"w:{t['w']}": 1, "v": t["v"], "b": t["b"], f"n:{t['n'][0]}": 1, "n:q": 1,
                "o:k": 2, "o:z:é": 1}.items()) for label in crf.classes_] for t in tokens])
        pairs = np.array([[transition.get((a, b), 0.0) for b in crf.classes_]
                          for a in crf.classes_])
        forward = scores[0]
        for row in scores[1:]:
            forward = np.log(np.exp(forward[:, None] + pairs).sum(axis=0)) + row
        codes = [crf.classes_.index(label) for label in truth]
        total += np.log(np.exp(forward).sum()) - scores[np.arange(len(codes)), codes].sum()
        total -= sum(pairs[a, b] for a, b in zip(codes, codes[1:]))
    weights = np.array([*state.values(), *transition.values()])
    assert_allclose(crf.objective_, total + 0.3 * np.abs(weights).sum() + 0.2 * weights @ weights)


def test_forms_of_data():
    crf = CRF().fit(X, Y)
    again = CRF().fit(((t for t in tokens) for tokens in X), (labels for labels in Y))
    assert again.state_features_ == crf.state_features_
    with_empty = CRF().fit([[], *X], [[], *Y])
    assert distances(with_empty.state_features_, crf.state_features_) < 1e-9
    assert crf.predict([[], X[0]]).tolist()[0] == []
    equal = crf.predict([X[0], X[0]])
    assert equal.shape == (2,) and type(equal[0]) is list
    # labels as they are
    for labels in ([1, 2, 1], [1, "a", 1], [True, False, True]):
        found = CRF().fit([X[0][:1] * 3] * 3, [labels] * 3).predict([X[0][:1] * 3])[0]
        assert set(map(type, found)) <= set(map(type, labels))
    strings = CRF(c2=0.1).fit([[["a", "b"], ["c"]]] * 2, [["x", "y"]] * 2)
    assert strings.attributes_ == ["a", "b", "c"]


def test_held_out_sequences():
    crf = CRF().fit(X, Y, X_NEW, Y_NEW)
    last = crf.training_log_.last_iteration
    assert last["item_accuracy_float"] == crf.score(X_NEW, Y_NEW)
    whole = [a == b for a, b in zip(crf.predict(X_NEW), Y_NEW)]
    assert last["instance_accuracy_float"] == np.mean(whole)
    with pytest.raises(ValueError, match="both X_dev and y_dev"):
        CRF().fit(X, Y, X_NEW)
    with pytest.raises(ValueError, match="y_dev has 19 sequences, but X_dev has 20"):
        CRF().fit(X, Y, X_NEW, Y_NEW[:-1])
    with pytest.raises(ValueError, match=r"y_dev\[0\] has 1 labels, but X_dev\[0\] has 2 tokens"):
        CRF().fit(X, Y, [X[0][:1] * 2], [["A"]])


def test_model_selection():
    def flat(truth, predicted):
        return f1_score(list(chain(*truth)), list(chain(*predicted)), average="macro")

    search = GridSearchCV(
        CRF(), {"c1": [0.0, 0.1], "c2": [0.1, 1.0]}, cv=3, scoring=make_scorer(flat)).fit(X, Y)
    assert search.best_score_ > 0.5 and len(search.predict(X_NEW)) == len(X_NEW)
    assert cross_val_score(CRF(), X, Y, cv=3).min() > 0.5
    assert len(cross_val_predict(CRF(), X, Y, cv=3)) == len(X)
    crf = CRF(c1=0.5, verbose=False)
    assert clone(crf).get_params() == crf.get_params()
    with pytest.raises(ValueError, match="c3"):
        crf.set_params(c3=1)


def test_pickles_and_files(tmp_path):
    crf = CRF().fit(X, Y)
    again = pickle.loads(pickle.dumps(crf))
    assert again.state_features_ == crf.state_features_
    assert again.duality_gap_ == crf.duality_gap_
    save_model(crf.tagger_, tmp_path / "tagger.fm4n")
    assert load_model(tmp_path / "tagger.fm4n").predict(X)[0].tolist() == crf.predict(X)[0]
    file = tmp_path / "crf.fm4n"
    CRF(model_filename=file).fit(X, Y)
    opened = CRF(model_filename=file)
    assert list(opened.predict(X)) == list(crf.predict(X))
    assert opened.classes_ == crf.classes_ and not hasattr(opened, "duality_gap_")
    opened.set_params(c2=5.0).fit(X, Y)
    assert CRF(model_filename=file).state_features_ == opened.state_features_
    file.write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not a file of fastm4n"):
        CRF(model_filename=file).fit(X, Y)
    assert file.read_bytes() == b"something else"
    file.write_bytes(b"lCRF and more")
    with pytest.raises(ValueError, match="is a model of CRFsuite, which fit would replace"):
        CRF(model_filename=file).fit(X, Y)
    with pytest.raises(ValueError, match="no regular file"):
        CRF(model_filename=tmp_path).fit(X, Y)
    save_model(MulticlassClassifier(random_state=0).fit(np.eye(2), ["a", "b"]), file)
    with pytest.raises(ValueError, match="must be a model of sequences, got a Multiclass"):
        CRF(model_filename=file).predict(X)


def test_models_of_crfsuite():
    file = Path(__file__).parent / "crfsuite_model" / "model.crfsuite"
    crf, tagger = CRF(model_filename=file), load_crfsuite_model(file)
    tokens = [[{"word": "ada", "capital": True}, {"word": "sleeps"}]]
    assert crf.predict(tokens)[0] == tagger.predict(tokens)[0].tolist()
    assert crf.num_attributes_ == len(crf.attributes_) > 0
    assert not hasattr(crf, "duality_gap_")


def test_unfitted():
    crf = CRF(model_filename="there/is/no/such/file")
    for name in ("tagger_", "classes_", "attributes_", "num_attributes_", "state_features_",
                 "transition_features_"):
        assert getattr(crf, name) is None
    for name in ("duality_gap_", "relative_gap_", "objective_", "n_features_in_"):
        assert not hasattr(crf, name)
    for method in (crf.predict, crf.predict_single, crf.predict_marginals,
                   crf.predict_marginals_single):
        with pytest.raises(NotFittedError, match="not fitted yet.*no file.*there/is/no/such/file"):
            method(X)
    with pytest.raises(AttributeError, match="save_model"):
        crf.modelfile
    assert crf.size_ is None
    for how in (CalibratedTagger, ConformalTagger):
        with pytest.raises(NotFittedError, match="needs a fitted estimator"):
            how(CRF()).calibrate(X, Y)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        save_model(CRF(), "never")


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    crf = CRF().fit(X, Y)
    before = crf.state_features_
    with pytest.raises(ValueError):
        crf.fit(X, Y[:-1])
    assert crf.state_features_ == before


def test_fits_that_end_too_soon_warn():
    with pytest.warns(ConvergenceWarning, match="of the objective, above epsilon=1e-09. Increase"):
        crf = CRF(max_iterations=1, epsilon=1e-9).fit(X, Y)
    assert crf.relative_gap_ > 1e-9
    # rounding ends it: the warning names the column, and no limit that was not reached
    large = [[{**token, "n": 1e8 * t} for t, token in enumerate(tokens, 1)] for tokens in X]
    with pytest.warns(ConvergenceWarning, match="Increase epsilon or c2. Column 'n' of X is about"):
        CRF().fit(large, Y)
    # a limit of scripts that were written for CRFsuite, which does not warn either
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf = CRF(max_iterations=1).fit(X, Y)
    assert crf.relative_gap_ > 1e-3 and crf.tagger_.n_iter_ == 1


@pytest.mark.parametrize("parameters", [
    {}, {"c1": 0.3, "c2": 0.2}, {"c1": 0.05, "c2": 0.02}, {"c1": 0.02, "c2": 0.5}], ids=str)
@pytest.mark.parametrize("epsilon", [None, 0.1, 1e-5])
def test_epsilon_is_a_share_of_the_objective(parameters, epsilon):
    crf = CRF(epsilon=epsilon, **parameters).fit(X, Y)
    least = CRF(epsilon=1e-9, **parameters).fit(X, Y).objective_
    assert crf.relative_gap_ <= (epsilon or 1e-3)
    assert least - 1e-9 <= crf.objective_ <= least + crf.duality_gap_ + 1e-9
    assert_allclose(crf.relative_gap_, crf.duality_gap_ / crf.objective_)
    assert crf.tagger_.callback is None


# --------------------------------------------------------------------- more forms of input


def test_weights_of_sequences():
    """A weight of 2 counts a sequence twice, one of 0 leaves it out."""
    weights = np.arange(len(X)) % 3
    repeated = [i for i, weight in enumerate(weights) for _ in range(weight)]
    for parameters in ({"c2": 0.1}, {"c1": 0.2, "c2": 0.1}):
        ours = CRF(epsilon=1e-8, **parameters).fit(X, Y, sample_weight=weights)
        wanted = CRF(epsilon=1e-8, **parameters).fit(
            [X[i] for i in repeated], [Y[i] for i in repeated])
        assert_allclose(ours.objective_, wanted.objective_, rtol=1e-6)
        assert distances(ours.state_features_, wanted.state_features_) < 1e-3
        assert distances(ours.transition_features_, wanted.transition_features_) < 1e-3
    for weights, message in ((np.ones(3), "sample_weight"), (-np.ones(len(X)), "sample_weight"),
                             (np.full(len(X), np.nan), "sample_weight")):
        with pytest.raises(ValueError, match=message):
            CRF().fit(X, Y, sample_weight=weights)


def test_sequences_of_features():
    crf = CRF(c1=0.1, c2=0.1).fit(X, Y, X_NEW, Y_NEW)
    vectorizer = SequenceVectorizer()
    rows, new = vectorizer.fit_transform(X), vectorizer.transform(X_NEW)
    names = vectorizer.feature_names_
    for given, test in ((rows, new), (list(rows), list(new))):
        ours = CRF(c1=0.1, c2=0.1).fit(given, Y, test, Y_NEW)
        assert {(names[j], label): weight for (j, label), weight in (
            ours.state_features_.items())} == crf.state_features_
        assert [names[j] for j in ours.attributes_] == crf.attributes_
        assert list(ours.predict(test)) == list(crf.predict(X_NEW))
        assert ours.predict_single(test[0]) == crf.predict_single(X_NEW[0])
        # attributes without weights are not among the sums of the second
        assert ours.predict_marginals_single(test[0]) == [
            pytest.approx(row, rel=1e-12) for row in crf.predict_marginals_single(X_NEW[0])]
        assert ours.score(test, Y_NEW) == crf.score(X_NEW, Y_NEW)
        assert ours.training_log_.last_iteration["item_accuracy_float"] == crf.score(X_NEW, Y_NEW)
    search = GridSearchCV(CRF(), {"c2": [0.1, 1.0]}, cv=3).fit(rows, Y)
    assert_allclose(
        search.best_score_, GridSearchCV(CRF(), {"c2": [0.1, 1.0]}, cv=3).fit(X, Y).best_score_,
        atol=0.01)
    with pytest.raises(ValueError, match="took numbers"):
        ours.predict(X_NEW)


def test_item_sequences():
    pycrfsuite = pytest.importorskip("pycrfsuite", reason=CRFSUITE)
    items, new = ([pycrfsuite.ItemSequence(tokens) for tokens in each] for each in (X, X_NEW))
    crf, ours = CRF().fit(X, Y), CRF().fit(items, Y, new, Y_NEW)
    assert distances(ours.state_features_, crf.state_features_) < 1e-12
    assert list(ours.predict(new)) == list(crf.predict(X_NEW))
    assert ours.predict_single(new[0]) == crf.predict_single(X_NEW[0])
    assert ours.score(new, Y_NEW) == crf.score(X_NEW, Y_NEW)
    assert ours.predict_marginals_single(new[0]) == crf.predict_marginals_single(X_NEW[0])
    assert ours.probability(new[0], Y_NEW[0]) == crf.probability(X_NEW[0], Y_NEW[0])
    # of its tagger, and of what wraps it
    assert np.array_equal(ours.tagger_.entropy(new), crf.tagger_.entropy(X_NEW))
    assert ConformalTagger(CRF(), random_state=0).fit(items, Y).n_calibration_ == 12
    with pytest.raises(ValueError, match="probability is of one sequence, and got a list of 20"):
        crf.probability(X_NEW, Y_NEW)


def test_constraints():
    labels = [["B-x" if label in "AC" else "I-x" if label == "B" else "O" for label in own]
              for own in Y]
    labels = [["B-x" if label == "I-x" and (t == 0 or own[t - 1] == "O") else label
               for t, label in enumerate(own)] for own in labels]
    crf = CRF(c2=0.01).fit(X, labels)
    for own in crf.predict(X_NEW, allowed_transitions="bio"):
        assert not any(b == "I-x" and a == "O" for a, b in zip(["O", *own], own))
    assert all(set(own) <= {"O"} for own in crf.predict(X_NEW, constraints='"O"*'))
    marginals = crf.predict_marginals(X_NEW, allowed_transitions="bio")
    assert all(own[0]["I-x"] == 0.0 for own in marginals)


def test_calibrated_and_saved(tmp_path):
    crf = CRF(c2=0.1).fit(X, Y)
    tagger = crf.tagger_
    for how in (CalibratedTagger, ConformalTagger):
        ours = how(crf, random_state=0).calibrate(X_NEW, Y_NEW)
        wanted = how(tagger, random_state=0).calibrate(X_NEW, Y_NEW)
        name = "predict_proba" if how is CalibratedTagger else "predict_sets"
        if not hasattr(ours, name):
            name = "predict_marginals"
        assert getattr(ours, name)(X_NEW).equals(getattr(wanted, name)(X_NEW))
        assert list(ours.predict(X_NEW)) == list(crf.predict(X_NEW))
        fitted = how(CRF(c2=0.1), random_state=0).fit(X, Y)
        assert isinstance(fitted.estimator_, CRF)
    save_model(crf, tmp_path / "crf.fm4n")
    assert list(CRF(model_filename=tmp_path / "crf.fm4n").predict(X)) == list(crf.predict(X))
    assert type(load_model(tmp_path / "crf.fm4n")) is SequenceTagger
    assert crf.size_ == (tmp_path / "crf.fm4n").stat().st_size
    assert CRF(model_filename=tmp_path / "crf.fm4n").size_ == crf.size_


def test_one_sequence_and_several():
    crf = CRF().fit(X, Y)
    for given in (X, X[:1], [[["a"], ["b"]]]):
        with pytest.raises(ValueError, match="got a list of .* sequences: use predict."):
            crf.predict_single(given)
        with pytest.raises(ValueError, match="use predict_marginals."):
            crf.predict_marginals_single(given)


def test_scores_that_overflow():
    crf = CRF(c2=1e-3).fit([[{"a": 1}, {"b": 1}]] * 3, [["A", "B"]] * 3)
    token = {"a": 1.7e308, "b": -1.7e308}
    for predict in (crf.predict, crf.predict_marginals, partial(crf.tagger_.predict_kbest, k=2)):
        with pytest.raises(ValueError, match=r"X\[1\].*position 2.*overflow"):
            predict([[{"a": 1}], [{"a": 1}, {"b": 1}, token]])


@pytest.mark.parametrize(("parameters", "message"), [
    ({"algorithm": "ap"}, "averaged perceptron, without an objective.*max_margin"),
    ({"algorithm": "pa"}, "passive-aggressive.*SequenceTagger"),
    ({"algorithm": "arow"}, "adaptive regularisation.*lbfgs"),
    ({"algorithm": "sgd"}, "algorithm must be in"),
    ({"algorithm": ["lbfgs"]}, "algorithm must be in"),
    ({"algorithm": "l2sgd", "c1": 0.1}, "c1=0.1 needs algorithm='lbfgs'"),
    ({"algorithm": "l2sgd", "linesearch": "Backtracking"}, "linesearch='Backtracking' is not for"),
    ({"calibration_eta": 0.1}, "calibration_eta=0.1 is not for algorithm='lbfgs'"),
    ({"pa_type": 1}, "pa_type=1 is for the algorithms ap, pa, arow"),
    ({"gamma": 1.0}, "gamma=1.0 is for the algorithms"),
    ({"trainer_cls": dict}, "trainer_cls=.* is a trainer of python-crfsuite"),
    ({"c1": -1.0}, "c1 must be a finite number >= 0 or None"),
    ({"c2": float("nan")}, "c2 must be a finite number"),
    ({"c2": "a"}, "c2 must be a finite number"),
    ({"c1": 0, "c2": 0}, "c1 and c2 are both 0.*c2=1e-3"),
    ({"min_freq": -1}, "min_freq must be"),
    ({"epsilon": None, "max_iterations": 0}, "max_iterations must be an integer > 0"),
    ({"max_iterations": 1.5}, "max_iterations must be an integer"),
    ({"all_possible_states": "yes"}, "all_possible_states must be True, False or None"),
])
def test_parameters_that_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        CRF(**parameters).fit(X, Y)


def test_parameters_without_effect_warn():
    plain = CRF().fit(X, Y)
    for parameters in ({"num_memories": 6}, {"delta": 1e-5, "period": 10},
                       {"linesearch": "MoreThuente", "max_linesearch": 20},
                       {"algorithm": "l2sgd", "calibration_samples": 10}):
        with pytest.warns(UserWarning, match="have no effect.*see epsilon"):
            crf = CRF(**parameters).fit(X, Y)
        assert crf.state_features_ == plain.state_features_
    with pytest.warns(UserWarning, match="keep_tempfiles has no effect"):
        CRF(keep_tempfiles=True).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CRF("lbfgs", c1=0.1, c2=0.1, max_iterations=500, all_possible_transitions=True).fit(X, Y)


@pytest.mark.parametrize(("tokens", "labels", "kind", "message"), [
    ([[[1.0, 2.0]]], [["a"]], TypeError, "For numbers use fastm4n.SequenceTagger"),
    ([np.eye(2)], [["a", "b"]], TypeError, "X must be a list of sequences"),
    ([[{"w": None}]], [["a"]], TypeError, "Token 0 of sequence 0.*leave the key out"),
    ([[{"w": float("inf")}]], [["a"]], ValueError, "Token 0 of sequence 0"),
    (X[0], Y[0], TypeError, "One sequence alone goes into a list"),
    (X, Y[:-1], ValueError, "y has 59 sequences, but X has 60"),
    (X[:1], [["A"] * 9], ValueError, r"y\[0\] has 9 labels, but X\[0\] has"),
    (X[:1], [[None] * len(X[0])], ValueError, "y has no label: all of its positions are None"),
    ([], [], ValueError, "X has no sequences"),
])
def test_bad_data(tokens, labels, kind, message):
    with pytest.raises(kind, match=message):
        CRF().fit(tokens, labels)


# ------------------------------------------------------------------- states of the tagger


def test_states_as_a_dict():
    def fitted(states, **parameters):
        return SequenceTagger("log", alpha=0.1, states=states, random_state=0, tol=1e-8,
                              **parameters).fit(X, Y)

    for penalty in ("l2", "elasticnet"):
        assert_allclose(
            fitted({"features": "observed", "transitions": "observed"}, penalty=penalty).coef_,
            fitted("observed", penalty=penalty).coef_, atol=1e-6)
        assert_allclose(fitted({}, penalty=penalty).coef_, fitted("all", penalty=penalty).coef_)
    for dense in (False, True):
        given = [rows.toarray() if dense else rows for rows in fitted("all").vectorizer_.transform(X)]
        codes = np.array([list("ABCD").index(label) for labels in Y for label in labels])
        values = np.vstack([rows if dense else rows.toarray() for rows in given])
        sums = np.eye(4)[codes].T @ values
        for least in (0.0, 3.0):
            tagger = SequenceTagger(
                "max_margin", random_state=0, tol=1e-6,
                states={"features": "observed", "min_freq": least}).fit(given, Y)
            assert (tagger.coef_[sums < least] == 0).all()
            assert (tagger.coef_[sums >= max(least, 1.0)] != 0).mean() > 0.9
        tagger = SequenceTagger(
            "log", random_state=0, states={"transitions": "observed"}).fit(given, Y)
        assert (tagger.coef_ != 0).all()
    # only two of four transitions occur
    few = SequenceTagger("log", random_state=0, states={"features": "observed"}).fit(
        [[["a"], ["b"], ["a"]]], [["A", "B", "A"]])
    assert (few.transition_coef_ != 0).all() and np.count_nonzero(few.coef_) == 2


@pytest.mark.parametrize(("states", "message"), [
    ("seen", "states must be one of"), ({"edges": "all"}, "states must have keys among"),
    ({"features": 1}, r"states\['features'\] must be one of"),
    ({"min_freq": -1}, r"states\['min_freq'\] must be"),
])
def test_states_that_are_refused(states, message):
    with pytest.raises(ValueError, match=message):
        SequenceTagger("log", states=states).fit(X, Y)


def test_states_in_model_files(tmp_path):
    states = {"features": "observed", "transitions": "all", "min_freq": 2}
    tagger = SequenceTagger("log", states=states, random_state=0).fit(X, Y)
    save_model(tagger, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.states == states and loaded.predict(X).equals(tagger.predict(X))


def test_states_out_of_core():
    states = {"features": "observed", "transitions": "all"}
    given = {"alpha": 0.1, "states": states, "tol": 1e-4, "random_state": 0}
    inside, outside = (
        SequenceTagger("max_margin", solver=solver, **given).fit(X, Y)
        for solver in ("auto", OutOfCore(memory=1)))
    assert_allclose(outside.primal_objective_, inside.primal_objective_, rtol=1e-3)
    assert_array_equal(outside.coef_ != 0, inside.coef_ != 0)
    with pytest.raises(ValueError, match="min_freq.*is not supported by fits that read"):
        SequenceTagger("log", solver=OutOfCore(), states={"min_freq": 2}).fit(X, Y)
