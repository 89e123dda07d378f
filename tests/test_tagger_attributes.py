"""Dicts and lists of strings straight into `SequenceTagger`: the vectorizer inside."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline

from fastm4n import (
    CalibratedTagger,
    ConformalTagger,
    OutOfCore,
    RegularizationPath,
    RegularizationPathCV,
    Sequences,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    checkpointing,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays
from fastm4n.cli import main
from fastm4n.models._files import read_model
from fastm4n.research.boosting import refine_risk
from fastm4n.research.theory import complexity_report

WORDS = [
    ["the", "old", "man", "sleeps"], ["a", "dog", "barks"], ["old", "dogs", "sleep"],
    ["the", "man", "sleeps"], ["dogs", "bark"],
] * 3
TAGS = [["D", "A", "N", "V"], ["D", "N", "V"], ["A", "N", "V"], ["D", "N", "V"], ["N", "V"]] * 3
X = [
    [{"word": word, "ends": [word[-1], word[-2:]], "length": len(word), "first": t == 0}
     for t, word in enumerate(words)] for words in WORDS]
STRINGS = [[[f"word={word}", f"end={word[-1]}"] for word in words] for words in WORDS]
ROWS = SequenceVectorizer().fit_transform(X)
FLAT, LENGTHS = [token for tokens in X for token in tokens], [len(tokens) for tokens in X]


def tagger(surrogate="log", **parameters):
    return SequenceTagger(surrogate, random_state=0, **parameters)


def objects():
    found = np.empty(len(X), dtype=object)
    found[:] = X
    return found


FORMS = {
    "list": lambda: X,
    "tuples": lambda: tuple(map(tuple, X)),
    "a generator of generators": lambda: ((token for token in tokens) for tokens in X),
    "object array": objects,
    "object arrays in a list": lambda: [np.array(tokens, dtype=object) for tokens in X],
    "Sequences of dicts": lambda: Sequences.from_list(X),
}


@pytest.mark.parametrize("form", FORMS)
def test_fits_and_predictions_are_those_by_hand(form):
    given, by_hand = tagger().fit(FORMS[form](), TAGS), tagger().fit(ROWS, TAGS)
    assert_array_equal(given.coef_, by_hand.coef_)
    assert by_hand.vectorizer_ is None and type(given.vectorizer_) is SequenceVectorizer
    assert given.n_features_in_ == len(given.vectorizer_.feature_names_) == ROWS.values.shape[1]
    for name, *more in (
            ("predict",), ("predict_marginals",), ("decision_function",), ("predict_kbest", 2)):
        found = getattr(given, name)(FORMS[form](), *more)
        wanted = getattr(by_hand, name)(ROWS, *more)
        if name == "predict_kbest":
            assert_array_equal(np.concatenate(found[1]), np.concatenate(wanted[1]))
        else:
            assert found.equals(wanted)
    assert given.score(FORMS[form](), TAGS) == by_hand.score(ROWS, TAGS)
    # what its own vectorizer makes of them is taken as well
    assert given.predict(given.vectorizer_.transform(X)).equals(given.predict(X))


def test_lists_of_strings_and_arrays_of_them():
    given = tagger().fit(STRINGS, TAGS)
    assert "end=g" in given.vectorizer_.feature_names_
    arrays = [np.array(tokens) for tokens in STRINGS]
    assert_array_equal(given.coef_, tagger().fit(arrays, TAGS).coef_)
    assert given.predict(arrays).equals(given.predict(STRINGS))


def test_lengths():
    labels = [tag for tags in TAGS for tag in tags]
    given = tagger().fit(FLAT, labels, lengths=LENGTHS)
    assert_array_equal(given.coef_, tagger().fit(X, TAGS).coef_)
    assert given.predict(FLAT, lengths=LENGTHS).equals(given.predict(X))
    assert given.score(iter(FLAT), labels, lengths=LENGTHS) == given.score(X, TAGS)
    with pytest.raises(ValueError, match="X is a list of sequences: leave it out"):
        tagger().fit(X, TAGS, lengths=LENGTHS)


def test_explain_has_names():
    given = tagger().fit(X, TAGS)
    assert given.explain(n_strongest=2) == given.explain(given.vectorizer_.feature_names_, 2)
    assert "word:the" in str(given.explain())
    assert "word:the" not in str(tagger().fit(ROWS, TAGS).explain())


def test_warnings_have_names():
    given = [[{**token, "size": 1e6 * token["length"]} for token in tokens] for tokens in X]
    with pytest.warns(ConvergenceWarning, match="Column 'size' of X is about"):
        tagger("max_min", max_iter=1, tol=0.0).fit(given, TAGS)


def test_empty_sequences_tokens_and_unknown_attributes():
    given = tagger().fit([[], *X, []], [[], *TAGS, []])
    assert_array_equal(given.coef_, tagger().fit(X, TAGS).coef_)
    found = given.predict([[], [{}, [], {"never": "seen"}, ["no", "more"]], []])
    assert found.lengths.tolist() == [0, 4, 0]
    assert_array_equal(given.decision_function([[{}, {"word": "?"}]])[0][0][1:],
                       given.decision_function([[[], []]])[0][0][1:])
    assert given.predict([[]]).n_tokens == 0
    tokens = [[[], {"word": "a"}], [{}, {"word": "b"}]]  # the first token tells nothing
    assert tagger().fit(tokens, [["x", "y"], ["x", "z"]]).n_features_in_ == 2


# --------------------------------------------------------------------------- scikit-learn


def test_model_selection():
    scores = cross_val_score(tagger(), X, TAGS, cv=3)
    by_hand = cross_val_score(tagger(), ROWS, TAGS, cv=3)
    assert_allclose(scores, by_hand)
    assert len(cross_val_predict(tagger(), X, Sequences.from_list(TAGS), cv=3)) == len(X)
    search = GridSearchCV(tagger(), {"alpha": [0.01, 1.0]}, cv=3).fit(X, TAGS)
    assert search.best_estimator_.vectorizer_ is not None
    assert search.predict(X).equals(search.best_estimator_.predict(X))
    assert "vectorizer_" not in vars(clone(search.best_estimator_))


def test_pickles():
    given = pickle.loads(pickle.dumps(tagger().fit(X, TAGS)))
    assert given.predict(X).equals(tagger().fit(X, TAGS).predict(X))


def test_a_fit_that_fails_leaves_the_model_as_it_was():
    given = tagger().fit(X, TAGS)
    before, names = given.predict(X), given.vectorizer_
    for rows, labels in ((ROWS, TAGS[:-1]), (STRINGS, [["D"] * len(tags) for tags in TAGS])):
        with pytest.raises(ValueError):
            given.fit(rows, labels)
        assert given.vectorizer_ is names and given.predict(X).equals(before)
    assert given.fit(ROWS, TAGS).vectorizer_ is None
    unfitted = tagger()
    with pytest.raises(ValueError):
        unfitted.fit(X, TAGS[:-1])
    assert not hasattr(unfitted, "vectorizer_")


# ------------------------------------------------------------------- what goes on from fits


@pytest.mark.parametrize("states", ["all", "observed"])
@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_partial_fit_takes_new_attributes(states, surrogate):
    given = tagger(surrogate, states=states, tol=1e-6)
    whole = tagger(surrogate, states=states, tol=1e-6).fit(X, TAGS)
    given.partial_fit(X[:2], TAGS[:2], classes=list("ADNV"))
    first = given.vectorizer_.feature_names_
    given.partial_fit(X[2:], TAGS[2:])
    names = given.vectorizer_.feature_names_
    assert names[:len(first)] == first and sorted(names) == whole.vectorizer_.feature_names_
    assert len(names) == given.n_features_in_ > len(first)
    assert_allclose(given.primal_objective_, whole.primal_objective_, rtol=1e-4)
    order = [names.index(name) for name in whole.vectorizer_.feature_names_]
    assert_allclose(given.coef_[:, order], whole.coef_, atol=2e-2)
    before = given.n_features_in_
    assert given.partial_fit(X[:1], TAGS[:1]).n_features_in_ == before
    with pytest.raises(ValueError, match=r"earlier calls of partial_fit took attributes"):
        given.partial_fit([np.zeros((1, 2))], [["D"]])
    given = tagger().partial_fit(ROWS[:2], TAGS[:2], classes=list("ADNV"))
    with pytest.raises(ValueError, match=r"X\[0\] has a dict at position 0, but earlier calls"):
        given.partial_fit(X, TAGS)


def test_out_of_core():
    given = tagger(solver=OutOfCore()).fit(X, TAGS)
    assert given.predict(X).equals(tagger().fit(X, TAGS).predict(X))
    given = tagger(solver=OutOfCore()).partial_fit(X[:5], TAGS[:5])
    given.partial_fit(X[:2], TAGS[:2])
    with pytest.raises(ValueError, match="fit a SequenceVectorizer to all attributes"):
        given.partial_fit([[{"word": "new"}]], [["D"]])


def test_warm_starts():
    given = tagger(warm_start=True).fit(X, TAGS)
    again = given.set_params(tol=1e-6).fit(X, TAGS)
    assert_allclose(again.primal_objective_, tagger(tol=1e-6).fit(X, TAGS).primal_objective_,
                    rtol=1e-5)
    # other columns, and more of them, of sequences of the same lengths and labels
    other = tagger(tol=1e-6).fit(STRINGS, TAGS)
    again.fit(STRINGS, TAGS)
    assert_allclose(again.primal_objective_, other.primal_objective_, rtol=1e-5)
    again.fit(X, TAGS)
    assert again.n_features_in_ == ROWS.values.shape[1]


def test_checkpoints(tmp_path):
    file = tmp_path / "fit.fm4n"
    with checkpointing(file):
        given = tagger("max_margin").fit(X, TAGS)
    assert_array_equal(given.coef_, tagger("max_margin").fit(X, TAGS).coef_)
    folder = tmp_path / "path"
    paths = [
        regularization_path(tagger(), [[dict(token) for token in tokens] for tokens in X], TAGS,
                            checkpoint=folder) for _ in range(2)]
    assert_array_equal(paths[0].alphas, paths[1].alphas)


def test_paths(tmp_path):
    path = regularization_path(tagger(), X, TAGS)
    by_hand = regularization_path(tagger(), ROWS, TAGS)
    assert_array_equal(path.coef(0.1), by_hand.coef(0.1))
    assert_array_equal(path.score(X, TAGS), by_hand.score(ROWS, TAGS))
    assert path.predict(X, alpha=0.1).equals(by_hand.predict(ROWS, alpha=0.1))
    path.save(tmp_path / "path.fm4n")
    loaded = RegularizationPath.load(tmp_path / "path.fm4n")
    assert loaded.predict(X, alpha=0.1).equals(path.predict(X, alpha=0.1))
    assert loaded.estimator(0.1).vectorizer_.feature_names_ == (
        path.estimator(0.1).vectorizer_.feature_names_)


def test_choice_of_alpha():
    search = RegularizationPathCV(tagger(), cv=3).fit(X, TAGS)
    by_hand = RegularizationPathCV(tagger(), cv=3).fit(ROWS, TAGS)
    assert search.alpha_ == by_hand.alpha_
    assert_array_equal(search.scores_, by_hand.scores_)
    assert search.predict(X).equals(by_hand.predict(ROWS))
    # a scorer of one's own is given what is given to `fit`
    given = []
    search = RegularizationPathCV(
        tagger(), cv=3, scoring=lambda model, X, y: given.append(X) or model.score(X, y))
    search.fit(X, TAGS)
    assert all(type(tokens[0][0]) is dict for tokens in given)


def test_calibration():
    noisy = [tags if i % 4 else tags[::-1] for i, tags in enumerate(TAGS)]
    calibrated = CalibratedTagger(
        tagger("max_margin"), calibration_size=0.5, random_state=0).fit(X, noisy)
    assert_allclose(calibrated.predict_marginals(X).values.sum(axis=1), 1)
    assert calibrated.calibrate(X, noisy).log_loss(X, noisy) > 0
    sets = ConformalTagger(tagger(), confidence=0.5, random_state=0).fit(X, TAGS).predict_sets(X)
    assert sets.lengths.tolist() == LENGTHS


def test_other_readers_of_models():
    given = tagger().fit(X, TAGS)
    report = complexity_report(given, X, TAGS, n_draws=2, random_state=0)
    by_hand = complexity_report(
        tagger().fit(ROWS, TAGS), ROWS, TAGS, n_draws=2, random_state=0)
    assert str(report) == str(by_hand)
    refined = refine_risk(given, X, TAGS, max_iter=3)
    assert refined.vectorizer_ is given.vectorizer_ and len(refined.predict(X)) == len(X)


# ------------------------------------------------------------------- attributes without weights

SPARSE = [{"penalty": "elasticnet"}, {"penalty": "l1"}, {"penalty": "elasticnet", "states": "observed"},
          {"penalty": "elasticnet", "transitions": Transitions(order=2), "states": "observed"}]


@pytest.mark.parametrize("parameters", SPARSE)
@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_l1_terms_drop_attributes_without_weights(surrogate, parameters, tmp_path):
    rare = [[{**token, f"id{i}-{t}": 1.0} for t, token in enumerate(tokens)]
            for i, tokens in enumerate(X)]
    given = tagger(surrogate, alpha=0.05, tol=1e-4, **parameters).fit(rare, TAGS)
    vectorizer = SequenceVectorizer()
    rows = vectorizer.fit_transform(rare)
    by_rows = tagger(surrogate, alpha=0.05, tol=1e-4, **parameters).fit(rows, TAGS)
    used = by_rows.coef_.any(axis=0)
    assert 0 < used.sum() < used.size - 40
    names = vectorizer.get_feature_names_out()[used].tolist()
    assert given.vectorizer_.feature_names_ == names and given.n_features_in_ == len(names)
    assert given.predict(rare).equals(by_rows.predict(rows))
    expected = given.decision_function(rare)
    assert_allclose(expected.values, by_rows.decision_function(rows).values, rtol=1e-9, atol=1e-12)
    state = pickle.dumps(given)
    save_model(given, tmp_path / "model")
    for other in (pickle.loads(state), load_model(tmp_path / "model")):
        assert other.decision_function(rare).equals(expected)
        assert other.vectorizer_.feature_names_ == names and other.predict(X).equals(given.predict(X))
    assert_array_equal(given.coef_, by_rows.coef_[:, used])
    assert given.primal_objective_ == by_rows.primal_objective_
    assert len(state) < 8 * by_rows.coef_.size + 12000


def test_data_to_come_keep_all_attributes():
    for fitted in (
            tagger(penalty="l1", alpha=0.05, warm_start=True).fit(X, TAGS),
            tagger(penalty="l1", alpha=0.05).partial_fit(X, TAGS)):
        assert fitted.vectorizer_.feature_names_ == tagger().fit(X, TAGS).vectorizer_.feature_names_
        assert not fitted.coef_.any(axis=0).all()
        assert fitted.coef_.shape[1] == fitted.n_features_in_
    rows = tagger(penalty="l1", alpha=0.05).fit(ROWS, TAGS)
    assert rows.n_features_in_ == rows.coef_.shape[1] == ROWS.values.shape[1]


def test_no_weights_at_all(tmp_path):
    given = tagger(penalty="l1", alpha=100.0, fit_intercept=False).fit(X, TAGS)
    assert given.n_nonzero_ == 0 and len(given.vectorizer_.feature_names_) == 1
    save_model(given, tmp_path / "model")
    for one in (given, load_model(tmp_path / "model"), pickle.loads(pickle.dumps(given))):
        assert not one.coef_.any() and one.coef_.shape == (4, 1)
        assert one.predict(X).equals(given.predict(X))


def test_warnings_name_attributes_that_are_dropped():
    scaled = [[{**token, "zz": 1e4 * token["length"]} for token in tokens] for tokens in X]
    with pytest.warns(ConvergenceWarning, match="Column 'zz' of X is about"):
        given = tagger(penalty="elasticnet", alpha=3.0, max_iter=1, tol=1e-9).fit(scaled, TAGS)
    assert len(given.vectorizer_.feature_names_) < given.vectorizer_.fit(scaled)._n_features_out


# ------------------------------------------------------------------------------ model files

ODD = ["w\0", "line\nend", "tab\t:", "\ud800", "é\u4e2d\U0001f600", "", ":", "=", "w", "w\0\0"]


def test_model_files(tmp_path):
    tokens = [[{"word": word, "n": 2.5} for word in ODD], [ODD, [ODD[0]]]]
    labels = [list("abababcabc"), ["a", "b"]]
    for states in ("all", "observed"):
        given = tagger(states=states).fit(tokens, labels)
        save_model(given, tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert loaded.vectorizer_.feature_names_ == given.vectorizer_.feature_names_
        assert loaded.predict_marginals(tokens).equals(given.predict_marginals(tokens))
        assert loaded.explain() == given.explain()
    save_model(tagger().fit(ROWS, TAGS), tmp_path / "model")
    assert load_model(tmp_path / "model").vectorizer_ is None
    given.vectorizer_ = "other"
    with pytest.raises(TypeError, match="vectorizer_ must be a SequenceVectorizer, got str"):
        save_model(given, tmp_path / "other")


def test_models_of_the_command_line(tmp_path, capsys):
    """Those of now are taggers; those of before, pipelines, are read as well."""
    file, model, old = (str(tmp_path / name) for name in ("a.crfsuite", "model", "old"))
    lines = ["\n".join(f"{tag}\tw={word}\tend={word[-1]}" for tag, word in zip(*pair)) + "\n"
             for pair in zip(TAGS, WORDS)]
    Path(file).write_text("\n".join(lines))
    assert main(["fit", file, "--surrogate", "log", "--model", model]) == 0
    assert "18 features of attributes" in capsys.readouterr().out
    fitted, metadata = read_model(model)
    assert type(fitted) is SequenceTagger and len(fitted.vectorizer_.feature_names_) == 18
    assert metadata["reading"] == {"format": "crfsuite", "attributes": "crfsuite"}
    pipeline = make_pipeline(SequenceVectorizer(), tagger())
    pipeline.fit([[[f"w={w}", f"end={w[-1]}"] for w in words] for words in WORDS], TAGS)
    save_model(pipeline, old, metadata=metadata)
    printed = []
    for name in (model, old):
        assert main(["predict", name, file]) == 0
        printed.append(capsys.readouterr().out)
        assert main(["evaluate", name, file, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["scores"]["token_accuracy"] == 1
    assert printed[0] == printed[1]
    for arguments in ([], ["--cv", "3"]):
        assert main(["path", file, "--no-plot", "--model", model, *arguments]) == 0
        assert len(load_model(model).vectorizer_.feature_names_) <= 18
    capsys.readouterr()


def of_names(arrays, text, lengths):
    lengths = np.array(lengths)
    arrays["0/vectorizer_/names_text_"] = np.frombuffer(text.encode(), dtype=np.uint8)
    arrays["0/vectorizer_/names_lengths_"] = (
        lengths.astype(np.uint8) if lengths.dtype.kind == "i" else lengths)


def of_old_names(arrays, names):
    for name in ("text", "lengths"):
        arrays.pop(f"0/vectorizer_/names_{name}_")
    arrays["0/vectorizer_/feature_names_"] = names


def test_names_of_older_files(tmp_path):
    file, model = tmp_path / "model", tagger().fit(X, TAGS)
    save_model(model, file)
    header, arrays = read_arrays(file, "model", finite=False)
    of_old_names(arrays, model.vectorizer_.get_feature_names_out())
    write_arrays(file, "model", header, arrays, finite=False)
    loaded = load_model(file)
    assert loaded.vectorizer_.feature_names_ == model.vectorizer_.feature_names_
    assert loaded.predict_marginals(X).equals(model.predict_marginals(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(60))
def test_forged_names_and_pairs_are_refused_or_harmless(seed, tmp_path):
    """With right checksums: no error but ModelFileError, and predictions within bounds."""
    rng, file = np.random.default_rng(seed), tmp_path / "model"
    save_model(tagger(penalty="l1", alpha=0.02, max_iter=5).fit(X, TAGS), file)
    header, arrays = read_arrays(file, "model", finite=False)
    if rng.random() < 0.3:
        header["steps"][0]["attributes"]["is_spread"] = bool(rng.integers(2))
    for name in arrays:
        kind = name.rpartition("/")[2]
        if kind.startswith(("pair_", "names_")) and rng.random() < 0.4:
            values = arrays[name].copy()
            for _ in range(rng.integers(1, 4)):
                if values.size:
                    values[rng.integers(values.size)] = rng.choice([0, 1, 2, 3, 127, 128, 255])
            if rng.random() < 0.3:
                values = values[: rng.integers(values.size + 1)]
            if rng.random() < 0.2:
                values = values.astype(rng.choice(["u1", "u2", "u4", "u8", "i4", "f8"]))
            arrays[name] = values
    write_arrays(file, "model", header, arrays, finite=False)
    try:
        loaded = load_model(file)
    except ModelFileError as error:
        assert str(error).startswith(f"{file} holds no valid model")
        return
    assert set(loaded.predict(X).values) <= set(loaded.classes_)
    assert loaded.predict_marginals(X).values.shape == (ROWS.n_tokens, 4)
    assert len(set(loaded.vectorizer_.feature_names_)) == loaded.n_features_in_


@pytest.mark.parametrize("spoil", [
    lambda header, arrays: header["steps"][0].update(vectorizer=3),
    lambda header, arrays: header["steps"][0]["vectorizer"].update({"class": "SequenceTagger"}),
    lambda header, arrays: header["steps"][0]["vectorizer"].update(parameters={"dtype": 5}),
    lambda header, arrays: header["steps"][0].pop("vectorizer"),
    lambda header, arrays: arrays.pop("0/vectorizer_/names_text_"),
    lambda header, arrays: arrays.pop("0/vectorizer_/names_lengths_"),
    lambda header, arrays: arrays.update({"0/vectorizer_/other": np.zeros(2)}),
    lambda header, arrays: of_names(arrays, "a" * 5 + "b" * 7, [5, 7]),
    lambda header, arrays: of_names(arrays, "aa", [1, 1]),
    lambda header, arrays: of_names(arrays, "abc", [1, 1]),
    lambda header, arrays: of_names(arrays, "é", [1, 1]),
    lambda header, arrays: of_names(arrays, "aa", [1.0, 1.0]),
    *(lambda header, arrays, names=names: of_old_names(arrays, names) for names in (
        np.array(["a", "a"], dtype=object), np.array(["a", "b"], dtype=object), np.zeros(2))),
])
def test_forged_vectorizers(spoil, tmp_path):
    file = tmp_path / "model"
    save_model(tagger().fit(X, TAGS), file)
    header, arrays = read_arrays(file, "model", finite=False)
    spoil(header, arrays)
    write_arrays(file, "model", header, arrays, finite=False)
    with pytest.raises(ModelFileError, match="holds no valid model"):
        load_model(file)


# ------------------------------------------------------------------------------- bad input

GOOD = X[:2]
BAD = {
    "None for a value": ([GOOD[0], [{"w": "a"}, {"w": None}]],
                         "Token 1 of sequence 1 .*'w'.*not None; leave the key out"),
    "nan": ([[{"w": 1.0}, {"w": float("nan")}]], "Token 1 of sequence 0 .* is nan; .*leave"),
    "inf": ([[{"w": -np.inf}]], "Token 0 of sequence 0 .*'w' is -inf"),
    "an integer beyond floats": ([[{"w": 10**400}]], "Token 0 of sequence 0 .*must be finite"),
    "bytes": ([[{"w": b"a"}]], "Token 0 of sequence 0 .*decode bytes"),
    "a list of bytes": ([[[b"a"]]], "Token 0 of sequence 0 .*decode bytes"),
    "an object": ([[{"w": object()}]], "Token 0 of sequence 0 .*must be a number, string"),
    "an array": ([[{"w": np.zeros(2)}]], "Token 0 of sequence 0 .*must be a number, string"),
    "a key that is a number": ([[{1: "a"}]], "Token 0 of sequence 0 .*must be strings, not 1"),
    "a number in a list": ([[["a", 3]]], "Token 0 of sequence 0 .*a number is the value of a key"),
    "None for a token": ([[{"w": "a"}, None]], "Token 1 of sequence 0 .*not NoneType"),
    "a string for a token": ([["the", "cat"]],
                             "Token 0 of sequence 0 .*goes into a list, and so does one sequence"),
    "numbers behind dicts": ([GOOD[0], [[1.0, 2.0]]], "Token 0 of sequence 1 .*number is the val"),
    "a matrix behind dicts": ([GOOD[0], np.ones((2, 2))], "Token 0 of sequence 1 "),
    "dicts behind a matrix": ([np.ones((2, 2)), GOOD[0]],
                              r"X\[1\] has a dict at position 0, and the first token is numbers"),
    "a dict behind numbers": ([[[1.0], {"w": "a"}]],
                              r"X\[0\] has a dict at position 1, and the first token is numbers"),
    "strings behind numbers": ([[[1.0]], [["w"]]], r"X\[1\] has strings at position 0"),
    "one sequence": (X[0], "Sequence 0 of X .* of type dict. One sequence alone goes into a list"),
    "one string": (["abc"], "Sequence 0 of X .* of type str"),
    "nothing": ([[], []], "nothing to learn from"),
    "empty tokens": ([[[], []]], "nothing to learn from"),
    "empty dicts": ([[{}, {}]], "has no attributes"),
    "no sequences": ([], "X has no sequences"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    tokens, message = BAD[what]
    labels = [["a", "b"] * 9 for _ in tokens]
    with pytest.raises((TypeError, ValueError), match=message):
        tagger().fit(tokens, [own[:len(each)] for own, each in zip(labels, tokens)])


def test_a_dict_that_holds_itself():
    token = {}
    token["w"] = token
    with pytest.raises((RecursionError, ValueError)):
        tagger().fit([[token]], [["a"]])


def test_lengths_of_labels():
    with pytest.raises(ValueError, match="y has 14 sequences, but X has 15"):
        tagger().fit(X, TAGS[:-1])
    with pytest.raises(ValueError, match=r"y\[14\] has 1 labels, but X\[14\] has 2 positions"):
        tagger().fit(X, [*TAGS[:-1], ["N"]])


def test_numbers_and_attributes_are_not_confused():
    given, by_hand = tagger().fit(X, TAGS), tagger().fit(ROWS, TAGS)
    matrices = [rows.toarray() for rows in ROWS]
    for rows in (matrices, list(ROWS), [rows.tolist() for rows in matrices]):
        with pytest.raises(ValueError, match=r"X\[0\] has numbers at position 0, but .*took attr"):
            given.predict(rows)
    with pytest.raises(ValueError, match="X holds numbers in 3 columns, but .*took attributes"):
        given.predict(Sequences(ROWS.values[:, :3], ROWS.offsets))
    for tokens, what in ((X, "a dict"), (STRINGS, "strings")):
        message = rf"X\[0\] has {what} at position 0, but this SequenceTagger took numbers: .*Vect"
        with pytest.raises(ValueError, match=message):
            by_hand.predict(tokens)
    with pytest.raises(TypeError, match="Token 0 of sequence 1"):
        given.predict([X[0], matrices[1]])
    for one in (X[0], STRINGS[0]):
        with pytest.raises(TypeError, match="alone goes into a list|one sequence alone"):
            given.predict(one)
    with pytest.raises(ValueError, match="X is of type int"):
        given.predict(3)


def test_taggers_of_older_pickles_have_no_vectorizer():
    by_hand = tagger().fit(ROWS, TAGS)
    del by_hand.vectorizer_
    again = pickle.loads(pickle.dumps(by_hand))
    assert again.predict(ROWS).equals(by_hand.predict(ROWS)) and again.explain().emissions

