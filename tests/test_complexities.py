"""Families of features by complexity or by name, and the weights that an L1 term has for them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from fastm4n import (
    MulticlassClassifier,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    load_model,
    save_model,
)
from fastm4n.penalties import ElasticNet
from fastm4n.penalties._complexities import (
    Sample,
    attribute_name,
    complexity,
    complexity_of_name,
    complexity_weights,
)
from fastm4n.penalties._penalties import resolve_penalty

WORDS = [["the", "old", "man"], ["a", "man", "sings"], ["the", "sea"]] * 3
TAGS = [["D", "A", "N"], ["D", "N", "V"], ["D", "N"]] * 3


def attributes(words):
    out = []
    for t, word in enumerate(words):
        before = words[t - 1] if t else "<s>"
        out.append([
            f"w[0]={word}", f"w[-1]|w[0]={before}|{word}", f"s1={word[-1:]}", f"s2={word[-2:]}",
            "bias"])
    return out


def vectorized(**options):
    vectorizer = SequenceVectorizer(**options)
    return vectorizer.fit_transform([attributes(words) for words in WORDS]), vectorizer


@pytest.mark.parametrize(("attribute", "name", "families"), [
    ("w[0]=the", "w[0]", (1, 1, 0)),
    ("w[-2]|w[-1]|w[0]=a|b|c", "w[-2]|w[-1]|w[0]", (3, 1, 0)),
    ("w[+1]=a=b:c", "w[+1]", (1, 1, 0)),
    ("word:a=b", "word", (1, 1, 0)),
    ("p3=str", "p3", (0, 1, 3)),
    ("Suffix-2:ng", "Suffix-2", (0, 1, 2)),
    ("suffix:ing", "suffix", (0, 1, 3)),
    ("s", "s", (1, 1, 0)),
    ("sea", "sea", (1, 1, 0)),
    ("=", "=", (1, 1, 0)),
    ("", "", (1, 1, 0)),
])
def test_names_of_attributes(attribute, name, families):
    found, value = attribute_name(attribute)
    assert found == name
    assert complexity_of_name(found, value) == families


def test_families_of_a_vectorizer():
    _, vectorizer = vectorized(families={"bias": (0, 1, 0)})
    of = dict(zip(vectorizer.feature_names_, vectorizer.feature_families_.tolist(), strict=True))
    assert of["w[0]=the"] == [1, 1, 0] and of["bias"] == [0, 1, 0]
    assert of["w[-1]|w[0]=old|man"] == [2, 1, 0] and of["s2=ea"] == [0, 1, 2]
    names = dict(zip(vectorizer.feature_names_, vectorizer.attribute_names_, strict=True))
    assert names["w[-1]|w[0]=old|man"] == "w[-1]|w[0]" and names["bias"] == "bias"
    words = {word for sentence in WORDS for word in sentence}
    ends = {c for word in words for c in word[-2:]}
    assert vectorizer.family_sizes_ == (len(words), len(ends))
    _, other = vectorized(families=lambda name: (len(name), 1, 0))
    assert_array_equal(other.feature_families_[:, 0], [len(n) for n in other.feature_names_])
    assert clone(vectorizer).families == {"bias": (0, 1, 0)}


@pytest.mark.parametrize(("families", "message"), [
    ({"w[5]": (1, 1, 0)}, r"families names 'w\[5\]', a family without features"),
    ({"s1": (1, 1)}, r"families\['s1'\] must be three integers >= 0"),
    ({"s1": (0, 1, -1)}, "must be three integers >= 0"),
    ({"s1": (0, 1, 0.5)}, "must be three integers >= 0"),
    ({"s1": 3}, "must be three integers >= 0"),
    (lambda name: None, r"families\('bias'\) must be three integers"),
])
def test_families_that_are_refused(families, message):
    _, vectorizer = vectorized(families=families)
    with pytest.raises(ValueError, match=message):
        _ = vectorizer.feature_families_


def test_families_must_be_a_dict_or_callable():
    with pytest.raises(ValueError, match="families must be a dict from names"):
        vectorized(families=[(1, 1, 0)])


def test_complexity_by_hand():
    families, sizes, m = [(2, 1, 0), (0, 1, 3), (0, 2, 0)], (50, 4, 26), 30
    logs = [2 * np.log(50) + np.log(4), np.log(4) + 3 * np.log(26), 2 * np.log(4)]
    assert_allclose(complexity(families, sizes, m), np.sqrt(2 * np.array(logs) / m))
    counts = np.array([3 * 50.0**2 * 4, 4 * 4.0 * 26**3, 4.0**2])
    assert_allclose(
        complexity(families, sizes, m, 7.0, "theory"), 7.0 * np.sqrt(2 * np.log(2 * counts) / m))


@pytest.mark.parametrize("kind", ["paper", "theory"])
def test_weights_of_all_families(kind):
    lengths = np.array([3, 3, 2, 1])
    ngrams = np.array([[-1, 0, 1, 2], [0, 1, 2, 3]])
    sample = Sample(4, 5, lengths, np.array([1]), ngrams)
    families = np.array([[1, 1, 0], [0, 1, 2]])
    shapes = dict.fromkeys(
        ("coef", "intercept", "start_coef", "transition_coef", "transition_feature_coef",
         "ngram_coef"))
    found = complexity_weights(families, (9, 20), sample, kind, shapes)
    tokens = np.sqrt(np.mean(lengths**2.0))
    pairs = np.sqrt(np.mean((lengths - 1.0) ** 2))

    def r(of, factors):
        return complexity([of], (9, 5, 20), 4, factors, kind)[0]

    assert_allclose(found["coef"], [r((1, 1, 0), tokens), r((0, 1, 2), tokens)])
    assert_allclose(found["transition_coef"], r((0, 2, 0), pairs))
    assert_allclose(found["transition_feature_coef"].ravel(), [r((0, 2, 2), pairs)])
    assert_allclose(found["start_coef"], r((0, 1, 0), 1.0))
    assert_allclose(found["ngram_coef"], [r((0, 3, 0), pairs), r((0, 4, 0), pairs)])


def test_orders_have_complexities():
    X, vectorizer = vectorized()
    penalty = net(l1_ratio=1.0, lam=0.1, beta=0.0)
    tagger = SequenceTagger(
        "log", transitions=Transitions(order=2), penalty=penalty, alpha=0.05, random_state=0).fit(X, TAGS)
    assert tagger.ngram_coef_.size and tagger.score(X, TAGS) > 0.8
    strong = tagger.set_params(alpha=100.0).fit(X, TAGS)
    assert not strong.ngram_coef_.any() and strong.n_nonzero_ == 0


@pytest.mark.parametrize("ratio", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["paper", "theory"])
def test_a_fit_is_that_of_the_same_weights_by_hand(ratio, kind):
    X, vectorizer = vectorized()
    net = ElasticNet(
        ratio, weights="complexity", families=vectorizer.feature_families_,
        sizes=vectorizer.family_sizes_, complexity=kind, lam=0.5, beta=0.1)
    made = dict(surrogate="log", alpha=0.05, tol=1e-4, random_state=0)
    model = SequenceTagger(**made, penalty=net).fit(X, TAGS)
    lengths = np.array([len(words) for words in WORDS])
    tokens = np.sqrt(np.mean(lengths**2.0)) if kind == "theory" else 1.0
    pairs = np.sqrt(np.mean((lengths - 1.0) ** 2)) if kind == "theory" else 1.0
    sizes = vectorizer.family_sizes_[0], 4, vectorizer.family_sizes_[1]

    def weight(of, factors):
        return 0.5 * complexity(of, sizes, len(WORDS), factors, kind) + 0.1

    ends = weight([(0, 1, 0)], 1.0)[0]
    by_hand = {
        "coef": weight(vectorizer.feature_families_, tokens), "start_coef": ends,
        "end_coef": ends, "transition_coef": weight([(0, 2, 0)], pairs)[0]}
    other = SequenceTagger(**made, penalty=ElasticNet(ratio, weights=by_hand)).fit(X, TAGS)
    assert_allclose(model.coef_, other.coef_, atol=1e-8)
    assert_allclose(model.primal_objective_, other.primal_objective_, rtol=1e-10)
    plain = ElasticNet(
        ratio, weights="complexity", families=net.families, sizes=net.sizes, lam=0.0, beta=1.0)
    same = SequenceTagger(**made, penalty=plain).fit(X, TAGS)
    assert_allclose(
        same.coef_, SequenceTagger(**made, penalty=ElasticNet(ratio)).fit(X, TAGS).coef_,
        atol=1e-10)


def test_weights_by_name():
    X, vectorizer = vectorized()
    names = vectorizer.attribute_names_
    net = ElasticNet(weights={"s2": 2.0, "coef": 0.5, "transition_coef": 3.0}, families=names)
    families = {"coef": (4, names.size), "intercept": (4,), "transition_coef": (4, 4)}
    _, _, t = resolve_penalty(net, families).families["coef"]
    assert_array_equal(t, 0.5 * np.broadcast_to(np.where(names == "s2", 2.0, 0.5), t.shape))
    _, _, t = resolve_penalty(net, families).families["transition_coef"]
    assert (t == 1.5).all()
    strong = ElasticNet(weights={"s2": 1e3}, families=names)
    model = SequenceTagger("log", alpha=0.02, penalty=strong, random_state=0).fit(X, TAGS)
    assert not model.coef_[:, names == "s2"].any() and model.coef_[:, names == "s1"].any()


def net(**options):
    _, vectorizer = vectorized()
    given = dict(
        weights="complexity", families=vectorizer.feature_families_,
        sizes=vectorizer.family_sizes_)
    return ElasticNet(**{**given, **options})


@pytest.mark.parametrize(("penalty", "message"), [
    (net(families=None), "needs families. Pass feature_families_"),
    (net(sizes=None), "needs sizes. Pass family_sizes_"),
    (net(sizes=(10,)), "sizes must be the numbers of words and of characters"),
    (net(sizes=(0, 10)), "sizes must be the numbers"),
    (net(sizes=5), "sizes must be the numbers"),
    (net(families=np.ones((3, 3))), r"weights='complexity' needs families of shape \(25, 3\), got \(3, 3\)"),
    (net(families=np.full((25, 3), -1)), "families are integers >= 0"),
    (net(complexity="best"), "complexity must be one of"),
    (net(lam=-1.0), "lam must be a finite number >= 0"),
    (net(beta=np.nan), "beta must be a finite number >= 0"),
    (net(weights="simplicity"), "weights must be a number, an array of numbers, a dict of them or"),
    (net(weights={"s9": 1.0}, families=vectorized()[1].attribute_names_),
     "weights names 's9', neither one of the families"),
    (net(weights={"s1": -1.0}, families=vectorized()[1].attribute_names_),
     r"weights\['s1'\] must be a finite number >= 0"),
    (net(weights={"s1": 1.0}, families=["s1"]), r"weights by name need families of shape .*, got \(1,\)"),
])
def test_penalties_that_are_refused(penalty, message):
    X, _ = vectorized()
    tagger = SequenceTagger("log", penalty=penalty)
    with pytest.raises(ValueError, match=message):
        tagger.fit(X, TAGS)
    assert not hasattr(tagger, "coef_")


def test_negative_families_name_the_place():
    X, vectorizer = vectorized()
    families = vectorizer.feature_families_
    families[4, 2] = -1
    with pytest.raises(ValueError, match=r"families\[4, 2\] is -1: families are integers >= 0"):
        SequenceTagger("log", penalty=net(families=families)).fit(X, TAGS)


def test_complexity_is_for_sequences():
    X, y = np.eye(4), [0, 1, 0, 1]
    penalty = ElasticNet(weights="complexity", families=np.ones((4, 3), dtype=int), sizes=(5, 5))
    with pytest.raises(ValueError, match="weights='complexity' needs a SequenceTagger"):
        MulticlassClassifier("log", penalty=penalty).fit(X, y)


def test_objects_of_scikit_learn(tmp_path):
    X, _ = vectorized()
    tagger = SequenceTagger("log", penalty=net(lam=0.1, beta=0.01), alpha=1.0, random_state=0)
    assert clone(tagger).penalty.lam == 0.1 and "complexity" in repr(tagger)
    search = GridSearchCV(tagger, {"penalty__lam": [0.0, 0.01, 10.0]}, cv=3).fit(list(X), TAGS)
    assert search.best_params_["penalty__lam"] < 10.0
    tagger.fit(X, TAGS)
    save_model(tagger, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert_array_equal(again.coef_, tagger.coef_)
    assert_array_equal(again.penalty.families, tagger.penalty.families)
    whole = make_pipeline(SequenceVectorizer(), SequenceTagger("log", penalty="l1", alpha=0.05))
    assert whole.fit([attributes(words) for words in WORDS], TAGS).score(
        [attributes(words) for words in WORDS], TAGS) > 0.8
