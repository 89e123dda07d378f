"""Short sentences, one by one: the same labels and errors as by the road of all sequences."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fastm4n import CountFactor, Sequences, SequenceTagger, SequenceVectorizer, Transitions
from fastm4n.crfsuite import CRF
from fastm4n.surrogates import Log
from fastm4n.tasks.chain_predictions import READY

WORDS = [
    ["the", "old", "man", "sleeps"], ["a", "dog", "barks"], ["old", "dogs", "sleep"],
    ["the", "man", "sleeps"], ["dogs", "bark"],
] * 3
TAGS = [["D", "A", "N", "V"], ["D", "N", "V"], ["A", "N", "V"], ["D", "N", "V"], ["N", "V"]] * 3
X = [
    [{"word": word, "ends": [word[-1], word[-2:]], "length": len(word) / 3, "first": t == 0,
      "more": {"a": {"é" + word[0]: 0.5}, "word": word}}
     for t, word in enumerate(words)] for words in WORDS]
STRINGS = [[[f"word={word}", f"end={word[-1]}"] for word in words] for words in WORDS]
GIVEN = {
    "one": X[:1], "all": X * 30, "tuples": tuple(map(tuple, X[1:3])), "strings": [STRINGS[0]],
    "empty sequences": [[], X[0], []], "empty tokens": [[{}, X[0][0], []]],
    "unknown": [[{"word": "cat", "x": 1e300}, {"word": "man"}]],
    "zeros": [[{"length": 0, "first": True}, {"length": -0.0}]],
    "twice": [[["word:the", "word:the", "word:man"], {"length": 2.0, "more": {"a": {"éo": 3}}}]],
    "many": [[{f"x{i}": 1.0 for i in range(9000)}, *X[0]]],
    "subclasses": [[{np.str_("word"): np.str_("the")}, X[0][1]]],
}
MODELS = {
    "log": {}, "margins": {"surrogate": "max_margin"}, "M4N": {"surrogate": "max_min"},
    "pairs": {"states": "observed"}, "l1": {"penalty": "l1", "alpha": 0.01},
    "free intercepts": {"fit_intercept": False, "transitions": Transitions(start_end=False)},
    "no transitions": {"transitions": False}, "bio": {"allowed_transitions": "bio"},
    # these take the long road
    "order": {"transitions": Transitions(order=2)}, "costs": {"cost": "absolute"},
    "constraints": {"constraints": "(D|A|N|V)*"}, "object": {"surrogate": Log()},
    "features": {"transitions": Transitions(features=[0, 1])},
    "array": {"allowed_transitions": np.ones((4, 4), dtype=bool)},
}


def fitted(data=X, **parameters):
    codes = [[("A", "D", "N", "V").index(tag) for tag in tags] for tags in TAGS]
    tags = codes if isinstance(parameters.get("cost"), str) else TAGS
    if isinstance(parameters.get("allowed_transitions"), str):
        names = {"D": "O", "A": "B-x", "N": "I-x", "V": "O"}
        tags = [[names[tag] for tag in own] for own in TAGS]
    return SequenceTagger(random_state=0, **parameters).fit(data, tags)


def by_the_long_road(tagger, given):
    return tagger._fitted_task().predict(given)


def check(tagger, given):
    found, expected = tagger.predict(given), by_the_long_road(tagger, given)
    assert isinstance(found, Sequences)
    assert found.values.dtype == expected.values.dtype
    assert found.values.tolist() == expected.values.tolist()
    assert found.offsets.tolist() == expected.offsets.tolist()
    assert found.offsets.dtype == expected.offsets.dtype and not found.offsets.flags.writeable
    return found


@pytest.mark.parametrize("model", MODELS)
def test_labels_are_the_same(model):
    tagger = fitted(STRINGS if model == "no transitions" else X, **MODELS[model])
    for given in GIVEN.values():
        check(tagger, given)
    takes_it = vars(tagger)[READY].spare is not None
    assert takes_it == (list(MODELS).index(model) < list(MODELS).index("order"))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("separator", "min_count"), [("=", 1), ("::", 2)])
def test_vectorizers(dtype, separator, min_count):
    vectorizer = SequenceVectorizer(dtype=dtype, separator=separator, min_count=min_count)
    tagger = fitted(vectorizer.fit_transform(X))
    tagger.vectorizer_ = vectorizer
    rng = np.random.default_rng(0)
    tagger.coef_[...] = rng.normal(size=tagger.coef_.shape)
    for given in GIVEN.values():
        check(tagger, given)
    scored = [[{**token, "length": float(rng.normal())} for token in tokens] for tokens in X]
    for tokens in scored:
        check(tagger, [tokens])
    assert vars(tagger)[READY].spare
    vectorizer.separator = ":"
    check(tagger, X[:1])
    vectorizer.dtype = int
    with pytest.raises(ValueError, match="dtype must be"):
        tagger.predict(X[:1])


@pytest.mark.parametrize("states", ["all", "observed"])
def test_new_weights_and_parameters_are_seen(states):
    tagger, rng = fitted(states=states), np.random.default_rng(1)

    def is_seen():
        labels = check(tagger, X[:2]).values.tolist()
        check(tagger, X[2:3])
        return labels

    before = is_seen()
    assert READY in vars(tagger)
    tagger.coef_[...] = rng.normal(size=tagger.coef_.shape)
    assert is_seen() != before
    for name in ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"):
        given = rng.normal(size=getattr(tagger, name).shape)
        setattr(tagger, name, given)
        is_seen()
        given *= -10.0  # weights that are copied at each call
        is_seen()
    tagger.classes_ = np.array(["p", "q", "r", "s"])
    assert set(is_seen()) <= {"p", "q", "r", "s"}
    tagger.set_params(allowed_transitions="bio")
    tagger.classes_ = np.array(["O", "B-x", "I-x", "I-y"])
    assert "I-y" not in is_seen()
    tagger.set_params(allowed_transitions=None, constraints="O*")
    assert set(is_seen()) == {"O"}
    tagger.set_params(constraints=None)
    for name, value in {
            "n_jobs": 0, "decode": "all", "surrogate": "hinge", "allowed_transitions": "bios",
            "constraints": 3}.items():
        kept = getattr(tagger, name)
        with pytest.raises(ValueError, match=name.split("_")[0]):
            tagger.set_params(**{name: value}).predict(X[:1])
        tagger.set_params(**{name: kept})
    is_seen()
    tagger.fit(STRINGS, TAGS)
    check(tagger, STRINGS[:1])


def test_costs_that_change():
    tagger = fitted(cost=np.array([[0.0, 9, 1, 1], [1, 0, 1, 1], [1, 1, 0, 9], [1, 1, 1, 0]]))
    check(tagger, X[:1])
    tagger.cost_matrix_ = 1.0 - np.eye(4)
    check(tagger, X[:1])
    tagger.set_params(decode="min_risk")
    check(tagger, X[:1])


BAD = {
    "a number": [[{"word": "the"}, 3]], "None": [[{"word": None}]], "bytes": [[{"word": b"the"}]],
    "a list of numbers": [[["word:the"], ["a", 3]]], "infinite": [[{"length": np.inf}]],
    "sums": [[{"word": "a"}], [{"more": {"a": {"éo": 1e308}}, "x": 1}, ["more:a:éo"] * 2,
                              {"more": {"a": {"éo": 1.7e308}}, "more:a": {"éo": 1.7e308}}]],
    "a string": [[{"word": "the"}, "man"]], "mixed": [[{"word": "the"}, [1.0, 2.0]]],
    "a key": [[{3: "the"}]],
}


@pytest.mark.parametrize("what", BAD)
def test_errors_are_the_same(what):
    tagger, given = fitted(), BAD[what]
    with pytest.raises((TypeError, ValueError)) as expected:
        by_the_long_road(tagger, given)
    for _ in range(2):
        with pytest.raises(expected.type) as found:
            tagger.predict(given)
        assert str(found.value) == str(expected.value)
        check(tagger, X[:1])


def test_weights_that_float32_cannot_hold():
    vectorizer = SequenceVectorizer(dtype=np.float32)
    tagger = fitted(vectorizer.fit_transform(X))
    tagger.vectorizer_ = vectorizer
    for _ in range(2):
        with pytest.raises(ValueError, match=r"Token 1 of sequence 1 of X.*'length' is too large"):
            tagger.predict([X[0], [X[0][0], {"length": 1e39}]])
        check(tagger, X[:1])


def test_no_labelling():
    tagger = fitted()
    tagger.start_coef_[...] = -np.inf
    for given in ([[], X[0]], X):
        with pytest.raises(ValueError, match=r"X\[[01]\] has values at position 0 whose"):
            tagger.predict(given)


def test_sequences_that_take_the_long_road():
    tagger = fitted()
    long = [tokens * 100 for tokens in X[:1]]
    check(tagger, long)
    check(tagger, [X[0], *long])
    tagger.predict([iter(X[0])])
    tagger.predict(X[0], lengths=[4])
    check(tagger, [[]])
    for given in (None, "the", [], [3], [[3]], X[0]):
        with pytest.raises((TypeError, ValueError)) as expected:
            by_the_long_road(tagger, given)
        with pytest.raises(expected.type) as found:
            tagger.predict(given)
        assert str(found.value) == str(expected.value)
    numbers = SequenceTagger(random_state=0).fit([np.eye(2)], [[0, 1]])
    with pytest.raises(ValueError, match="took numbers"):
        numbers.predict(X[:1])
    assert READY not in vars(numbers)


def test_crf():
    crf = CRF(c1=0.01, c2=0.01).fit(X, TAGS)
    expected = by_the_long_road(crf.tagger_, X)
    for i, tokens in enumerate(X):
        assert crf.predict_single(tokens) == expected[i].tolist()
        assert crf.predict([tokens]).tolist() == [expected[i].tolist()]
    assert crf.predict_single([]) == [] and crf.predict_single(()) == []


def test_threads():
    taggers = [fitted(), fitted(states="observed")]
    expected = [by_the_long_road(tagger, X) for tagger in taggers]

    def labels(number):
        i = number % len(X)
        return i, [tagger.predict([X[i]])[0].tolist() for tagger in taggers]

    with ThreadPoolExecutor(8) as pool:
        for i, found in pool.map(labels, range(2000)):
            assert found == [every[i].tolist() for every in expected]


def test_a_call_within_a_call():
    tagger = fitted()
    inner = []

    class Asks(dict):
        def items(self):
            inner.append(tagger.predict([X[1]])[0].tolist())
            return super().items()

    given = [[X[0][0], Asks(X[0][1]), *X[0][2:]]]
    found = tagger.predict(given)
    assert found[0].tolist() == by_the_long_road(tagger, X[:1])[0].tolist()
    assert inner[0] == by_the_long_road(tagger, X[1:2])[0].tolist()


def test_what_is_kept_is_no_part_of_the_model():
    tagger = fitted(states="observed")
    before = pickle.dumps(tagger)
    check(tagger, X[:1])
    assert READY in vars(tagger) and pickle.dumps(tagger) == before
    for other in (copy.copy(tagger), copy.deepcopy(tagger), pickle.loads(before)):
        assert READY not in vars(other)
        check(other, X[:1])


def test_what_has_no_factors():
    # an object of another kind of model is refused as before
    with pytest.raises(ValueError, match="constraints must be"):
        fitted().set_params(constraints=CountFactor([0], 0, 1)).predict(X[:1])
