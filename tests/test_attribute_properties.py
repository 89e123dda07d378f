"""Attributes of tokens: columns against plain Python and scikit-learn, order, names, parts."""

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import DictVectorizer
from sklearn.preprocessing import StandardScaler
from test_properties import assert_same_optimum
from token_cases import features

from fastm4n import Sequences, SequenceScaler, SequenceTagger, SequenceVectorizer

many = examples(100)
few = examples(8)

strings = st.one_of(
    st.sampled_from(["a", "b", "", "a:b", ":", "\n", "a\0", "é", "e\u0301", "😀", "\ud800"]),
    st.text(max_size=4))
values = st.one_of(
    strings, st.booleans(), st.sampled_from([0, 1, -1, 2.5, 1e-300, -0.0, 1e300]),
    st.integers(-2**31, 2**31))
flat = st.dictionaries(strings, values, max_size=4)
tokens = st.one_of(st.lists(strings, max_size=4), st.dictionaries(strings, st.one_of(
    values, st.lists(strings, max_size=2), flat), max_size=4))


def sequences_of(token, **sizes):
    return st.lists(st.lists(token, max_size=4), min_size=1, max_size=4, **sizes)


def dense(sequences):
    return sequences.values.toarray()


@many
@given(sequences_of(tokens), st.lists(tokens, max_size=3), st.integers(1, 2), strings)
def test_columns_are_those_of_plain_python(X, new, min_count, separator):
    vectorizer = SequenceVectorizer(min_count=min_count, separator=separator)
    names, rows = features(X, None, min_count, separator)
    if not names:
        with pytest.raises(ValueError, match="no attributes|No attribute"):
            vectorizer.fit(X)
        return
    found = vectorizer.fit_transform(X)
    expected = np.zeros((len(rows), len(names)))
    for row, of in zip(expected, rows, strict=True):
        row[list(of)] = list(of.values())
    assert vectorizer.feature_names_ == names and found.lengths.tolist() == [*map(len, X)]
    np.testing.assert_array_equal(dense(found), expected)
    assert vectorizer.transform(X).equals(found)
    # attributes that were not seen have no column, wherever they are
    again = vectorizer.transform([*X, new, [["never seen", *new[0]] if new and isinstance(
        new[0], list) else {"never seen": 1.0}]])
    np.testing.assert_array_equal(dense(again)[: len(rows)], expected)
    _, rows = features([new], names, separator=separator)
    assert dense(again)[len(expected):][: len(new)].tolist() == [
        [row.get(column, 0.0) for column in range(len(names))] for row in rows]


@many
@given(sequences_of(flat))
def test_columns_of_flat_dicts_are_those_of_scikit_learn(X):
    """But for columns of zeros, which are none here."""
    every = [token for sequence in X for token in sequence]
    if not features(X)[0]:
        return
    theirs = DictVectorizer(separator=":")
    # keys and strings that give one name are added up by both
    rows = theirs.fit_transform(every).toarray()
    vectorizer = SequenceVectorizer()
    mine = dict(zip(vectorizer.fit(X).feature_names_, dense(vectorizer.transform(X)).T, strict=True))
    for name, column in zip(theirs.feature_names_, rows.T, strict=True):
        np.testing.assert_array_equal(mine.pop(name, np.zeros(len(every))), column)
    assert not mine


@many
@given(sequences_of(tokens), st.randoms(use_true_random=False))
def test_order_does_not_matter(X, random):
    """Of the items of a dict, of attributes in a list, and of sequences."""
    if not features(X)[0]:
        return

    def shuffled(token):
        if isinstance(token, list):
            return random.sample(token, len(token))
        return dict(random.sample(list(token.items()), len(token)))

    one, other = SequenceVectorizer(), SequenceVectorizer()
    rows = one.fit_transform(X)
    moved = [[shuffled(token) for token in sequence] for sequence in X]
    order = random.sample(range(len(X)), len(X))
    again = other.fit_transform([moved[i] for i in order])
    assert one.feature_names_ == other.feature_names_ == one.get_feature_names_out().tolist()
    # weights of one name are added in their order
    for place, i in enumerate(order):
        np.testing.assert_allclose(again[place].toarray(), rows[i].toarray(), rtol=1e-12)


words = st.lists(st.sampled_from("abcdé"), min_size=1, max_size=2)


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
@few
@given(st.lists(st.lists(words, min_size=1, max_size=4), min_size=3, max_size=6), st.data())
def test_taggers_of_parts_have_the_optimum_of_all(surrogate, X, data):
    """Also where attributes come in later parts, whose columns are behind the others."""
    y = [[data.draw(st.sampled_from("NV")) for _ in sequence] for sequence in X]
    cut = data.draw(st.integers(1, len(X) - 1))
    made = [SequenceTagger(surrogate, alpha=0.1, random_state=0) for _ in range(2)]
    whole = made[0]
    if len({label for labels in y for label in labels}) < 2:
        y[0][0] = "V" if y[0][0] == "N" else "N"
    whole.fit(X, y)
    parts = made[1].partial_fit(X[:cut], y[:cut], classes=["N", "V"])
    parts.partial_fit(X[cut:], y[cut:])
    if set(whole.classes_.tolist()) == {"N", "V"}:
        assert_same_optimum(whole, parts)
    names = [tagger.vectorizer_.feature_names_ for tagger in (whole, parts)]
    assert sorted(names[0]) == sorted(names[1])
    # w* lies within sqrt(gap / alpha) of both
    at = [names[1].index(name) for name in names[0]]
    apart = np.linalg.norm(whole.coef_ - parts.coef_[:, at])
    assert apart <= sum(np.sqrt(max(0.0, one.duality_gap_) / 0.1) for one in made) + 1e-6


@many
@given(st.lists(st.lists(
    st.lists(st.sampled_from([0.0, 1.0, -2.5, 1e3]), min_size=2, max_size=2), min_size=1, max_size=3),
    min_size=2, max_size=4), st.integers(1, 3))
def test_scalers_take_parts(X, cut):
    X = [np.array(rows) for rows in X]
    whole, parts = SequenceScaler().fit(X), SequenceScaler()
    for part in (X[:cut], X[cut:]):
        if part:
            parts.partial_fit(part)
    theirs = StandardScaler().fit(np.vstack(X))
    for scaler in (whole, parts):
        np.testing.assert_allclose(scaler.mean_, theirs.mean_, atol=1e-12)
        np.testing.assert_allclose(scaler.scale_, theirs.scale_, rtol=1e-9)
        assert scaler.n_samples_seen_ == len(np.vstack(X))
    found = whole.transform(X)
    np.testing.assert_array_equal(found.values, theirs.transform(np.vstack(X)))
    np.testing.assert_allclose(
        whole.inverse_transform(found).values, Sequences.from_list(X).values, atol=1e-9)
