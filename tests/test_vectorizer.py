"""Features from dicts and attribute strings."""

import enum
import itertools
import pickle
import random

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from token_cases import features

from fastm4n.data._sequences import Sequences
from fastm4n.data._tokens import Names, names_of
from fastm4n.data._vectorizer import SequenceVectorizer
from fastm4n.datasets import chunking_attributes, load_conll

X = [
    [["w=the", "bos"], ["w=cat"], ["w=sat", "w=sat", "eos"]],
    [],
    [[], ["w=the"]],
]
NAMES = ["bos", "eos", "w=cat", "w=sat", "w=the"]
ROWS = np.array([
    [1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 1, 0, 2, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1],
])


def weights(token, **parameters):
    """The attributes of one token and their weights."""
    vectorizer = SequenceVectorizer(**parameters)
    row = vectorizer.fit_transform([[token]]).values.toarray()[0]
    return dict(zip(vectorizer.get_feature_names_out(), row.tolist()))


def test_attribute_strings():
    vectorizer = SequenceVectorizer()
    sequences = vectorizer.fit_transform(X)
    assert isinstance(sequences, Sequences)
    assert_array_equal(sequences.values.toarray(), ROWS)
    assert_array_equal(sequences.lengths, [3, 0, 2])
    assert vectorizer.feature_names_ == NAMES
    assert vectorizer.vocabulary_ == {name: column for column, name in enumerate(NAMES)}
    names = vectorizer.get_feature_names_out()
    assert names.dtype == object and names.tolist() == NAMES
    assert vectorizer.fit(X).transform(X).equals(sequences)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ({"w": "the"}, {"w:the": 1}),
        ({"w": ""}, {"w:": 1}),
        ({"w": np.str_("the")}, {"w:the": 1}),
        ({"a": True, "b": False}, {"a": 1, "b": 0}),
        ({"a": np.True_, "b": np.False_, "c": 1}, {"a": 1, "b": 0, "c": 1}),
        ({"a": 1.5, "b": -2, "c": np.float32(0.25), "d": np.int8(3)},
         {"a": 1.5, "b": -2, "c": 0.25, "d": 3}),
        ({"a": 0, "b": -0.0, "c": 2}, {"a": 0, "b": 0, "c": 2}),
        ({"s": ["ing", "ng", "ng"]}, {"s:ing": 1, "s:ng": 2}),
        ({"s": ("x",), "t": {"y"}, "u": frozenset("z"), "v": []}, {"s:x": 1, "t:y": 1, "u:z": 1}),
        ({"p": {"q": 2.5, "r": "s", "t": {"u": ["v"]}}}, {"p:q": 2.5, "p:r:s": 1, "p:t:u:v": 1}),
        ({"w": "the", "w:the": 2}, {"w:the": 3}),
        (["a", "b", "a"], {"a": 2, "b": 1}),
        (("a", "b"), {"a": 1, "b": 1}),
        ({"a", "b"}, {"a": 1, "b": 1}),
        (np.array(["a", "b"]), {"a": 1, "b": 1}),
        ((name for name in "ab"), {"a": 1, "b": 1}),
        (["ä\t:", "日本"], {"ä\t:": 1, "日本": 1}),
    ],
)
def test_tokens(token, expected):
    assert weights(token) == expected


def test_separator():
    assert weights({"w": "the", "s": ["x"]}, separator="=") == {"w=the": 1, "s=x": 1}


def test_weights_of_many_tokens_stay_where_they_belong():
    rng = np.random.default_rng(0)
    tokens = rng.integers(-2, 3, (40, 7)).astype(float)
    for used in (7, 4):  # the rest of the columns is unknown to transform
        vectorizer = SequenceVectorizer().fit([[{f"a{j}": 1.0 for j in range(used)}]])
        dicts = [[{f"a{j}": value for j, value in enumerate(row)} for row in tokens]]
        assert_array_equal(vectorizer.transform(dicts).values.toarray(), tokens[:, :used])
    assert_array_equal(SequenceVectorizer().fit_transform(dicts).values.toarray(), tokens)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, "float32"])
def test_format(dtype):
    vectorizer = SequenceVectorizer(dtype=dtype)
    for rows in (vectorizer.fit_transform(X).values, vectorizer.transform(X).values):
        assert rows.format == "csr" and rows.dtype == np.dtype(dtype)
        assert rows.indices.dtype == rows.indptr.dtype == np.int32
        assert rows.has_canonical_format
        for start, stop in zip(rows.indptr[:-1], rows.indptr[1:]):
            assert (np.diff(rows.indices[start:stop]) > 0).all()


# ------------------------------------------------------------------- against plain Python


VALUES = (True, False, np.True_, 0, 1, 2, -0.5, 1e-3, 0.1, 0.3, np.float32(0.7), np.int8(3))
WORDS = ("a", "b", "c", "w=the", "", "é", "\u0440\u0443", "\u4e2d", "\U0001f600", "a\0", "\ud800")


def random_token(rng, depth=0):
    kind = rng.randrange(4) if depth == 0 else 3
    if kind < 2:
        names = [rng.choice(WORDS) + rng.choice("xyz") for _ in range(rng.randrange(8))]
        return (names, tuple(names))[kind]
    token = {}
    for _ in range(rng.randrange(7) if rng.random() < 0.95 else 150):
        key = rng.choice(WORDS) + str(rng.randrange(3 if rng.random() < 0.9 else 1000))
        token[key] = rng.choice((
            rng.choice(VALUES), rng.choice(WORDS), np.str_(rng.choice(WORDS)),
            rng.choices(WORDS, k=3), tuple(rng.choices(WORDS, k=2)), {rng.choice(WORDS)},
            random_token(rng, depth + 1) if depth < 2 else 2.5))
    return token


def random_data(seed, n):
    rng = random.Random(seed)
    return [[random_token(rng) for _ in range(rng.randrange(9))] for _ in range(n)]


def assert_same_rows(sequences, X, rows, n_columns, dtype):
    values = sequences.values
    assert values.dtype == dtype and values.indices.dtype == values.indptr.dtype == np.int32
    assert values.shape == (len(rows), n_columns)
    assert_array_equal(sequences.lengths, [len(sequence) for sequence in X])
    assert_array_equal(np.diff(values.indptr), [len(row) for row in rows])
    assert values.indices.tolist() == [column for row in rows for column in sorted(row)]
    wanted = np.array([row[column] for row in rows for column in sorted(row)], dtype=dtype)
    assert_array_equal(values.data.view(np.uint8), wanted.view(np.uint8))
    assert values.has_canonical_format


@pytest.mark.parametrize(("seed", "min_count", "dtype"), covering(
    itertools.product(range(2), [1, 3], [np.float64, np.float32])))
def test_all_is_as_plain_python_has_it(seed, min_count, dtype):
    X = random_data(seed, 6)
    vectorizer = SequenceVectorizer(min_count=min_count, dtype=dtype, separator="::")
    sequences = vectorizer.fit_transform(X)
    names, rows = features(X, None, min_count, "::", dtype)
    assert vectorizer.feature_names_ == names
    assert_same_rows(sequences, X, rows, len(names), dtype)
    for again in (vectorizer, pickle.loads(pickle.dumps(vectorizer))):
        assert again.transform(X).equals(sequences)
    other = random_data(seed + 100, 3)
    _, rows = features(other, names, separator="::", dtype=dtype)
    assert_same_rows(vectorizer.transform(other), other, rows, len(names), dtype)


def test_long_tokens_and_many_of_them():
    # more than are searched for at once, and than have their order remembered
    rng = random.Random(0)
    names = [f"a{i}" for i in range(2000)]
    X = [[rng.choices(names, k=n) for n in (1000, 0, 95, 96, 97, 98, 300)], [[]] * 600,
         [rng.sample(names[:30], 19) for _ in range(100)]]
    vectorizer = SequenceVectorizer()
    sequences = vectorizer.fit_transform(X)
    names, rows = features(X)
    assert_same_rows(sequences, X, rows, len(names), np.float64)
    assert vectorizer.transform(X).equals(sequences)


def test_strings_of_subclasses():
    class Tag(str, enum.Enum):
        NOUN = "noun"

    class Shouting(str):
        def __str__(self):
            return self.upper()

        def __format__(self, spec):
            return self.upper()

    # by themselves they are what they hold, and in a formatted string what they say
    X = [[[Tag.NOUN, Shouting("x")], ["noun"], {"t": ["noun", Shouting("x")]}, {"t": Shouting("x")}]]
    vectorizer = SequenceVectorizer().fit(X)
    assert vectorizer.feature_names_ == ["noun", "t:X", "t:noun", "t:x", "x"]
    assert all(type(name) is str for name in vectorizer.feature_names_)
    assert_array_equal(vectorizer.transform(X).values.sum(axis=0), [[2, 1, 1, 1, 1]])


class Ordered(dict):
    def items(self):
        return [("a", 1.0), ("b", 2.0)]


def test_dicts_of_subclasses_are_asked_for_their_items():
    assert weights(Ordered(c=1)) == {"a": 1, "b": 2}


def test_a_dict_in_itself():
    token = {"a": 1}
    token["b"] = token
    with pytest.raises(RecursionError):
        SequenceVectorizer().fit([[token]])


def test_names_are_made_when_asked_for():
    vectorizer = SequenceVectorizer().fit(X)
    vectorizer.transform(X)
    assert not {"feature_names_", "vocabulary_"} & vars(vectorizer).keys()
    assert vectorizer.feature_names_ is vectorizer.feature_names_
    vectorizer.fit([[["other"]]])
    assert vectorizer.feature_names_ == ["other"] and vectorizer.vocabulary_ == {"other": 0}


def test_state_is_plain():
    vectorizer = SequenceVectorizer().fit(X)
    vectorizer.vocabulary_
    state = vectorizer.__getstate__()
    assert bytes(state.pop("names_text_")).decode() == "".join(NAMES)
    assert state.pop("names_lengths_").tolist() == [3, 3, 5, 5, 5]
    assert not {"vocabulary_", "feature_names_", "_names"} & state.keys()
    # of releases that held strings, and the vocabulary besides
    for vocabulary in ({}, {"vocabulary_": dict(zip(NAMES, range(5)))}):
        older = SequenceVectorizer()
        older.__setstate__({**state, "feature_names_": NAMES, **vocabulary})
        assert older.transform(X).equals(vectorizer.transform(X))


# characters of one to four bytes, and lone surrogates; words of 8 bytes are full or not
ODD = ["", "a", "w\0", "w", "w\0\0", "é", "\u4e2d", "\U0001f600", "\ud800", "x" * 300, "é" * 4,
       "12345678", "12345678\0", "123456789", *map(str, range(3000))]


def test_names_are_packed():
    names = Names(ODD)
    text, lengths = names.packed()
    assert bytes(text) == "".join(ODD).encode("utf-8", "surrogatepass")
    assert lengths.tolist() == [len(name.encode("utf-8", "surrogatepass")) for name in ODD]
    again = names_of(text, lengths)
    assert again.strings() == names.strings() == ODD and len(again) == len(ODD)
    one, other = SequenceVectorizer(), SequenceVectorizer()
    one._learn(names)
    other._learn(again)
    given = [[ODD[:7], ["other"]], [ODD[9:40], [ODD[-1]]]]
    assert one.transform(given).equals(other.transform(given))
    kept = np.array([0, 2, 8, 9, 40, len(ODD) - 1])
    assert names.only(kept).strings() == [ODD[i] for i in kept]
    assert names_of(np.zeros(0, np.uint8), np.zeros(0, np.uint8)).strings() == []
    assert Names().packed()[0].size == 0


@pytest.mark.parametrize(("text", "lengths", "message"), [
    (b"aab", [1, 1, 1], "'a' is there twice"), (b"ab", [1, 1, 1], "do not fit"),
    (b"ab", [0, 0, 2, 0], "'' is there twice"), ("é".encode(), [1, 1], "within a character"),
    (b"a\xff", [1, 1], "can't decode"), (b"ab\xc3", [1, 2], "can't decode"),
    (b"abc", [[3]], "bytes and their lengths"), (b"abc", [-3], "bytes and their lengths"),
    (b"abc", [3.0], "bytes and their lengths"),
])
def test_names_that_are_none(text, lengths, message):
    lengths = np.array(lengths)
    if lengths.dtype == np.int64 and lengths.min() >= 0:
        lengths = lengths.astype(np.uint8)
    with pytest.raises(ValueError, match=message):
        names_of(np.frombuffer(text, np.uint8), lengths)
    many = [*map(str, range(1000)), "7"]
    with pytest.raises(ValueError, match="'7' is there twice"):
        names_of(np.frombuffer("".join(many).encode(), np.uint8),
                 np.array([len(name) for name in many], dtype=np.uint32))


def test_unknown_attributes_are_ignored():
    vectorizer = SequenceVectorizer().fit(X)
    sequences = vectorizer.transform([
        [["new", "bos", "newer"], {"w": "dog", "eos": 0.5, "other": 3.0}, ["new"]],
    ])
    assert_array_equal(
        sequences.values.toarray(), [[1, 0, 0, 0, 0], [0, 0.5, 0, 0, 0], [0, 0, 0, 0, 0]]
    )
    assert vectorizer.feature_names_ == NAMES


def test_transform_of_nothing():
    sequences = SequenceVectorizer().fit(X).transform([])
    assert len(sequences) == 0 and sequences.values.shape == (0, 5)


def test_generators_are_read_once():
    generator = ((token for token in sequence) for sequence in X)
    vectorizer = SequenceVectorizer()
    assert_array_equal(vectorizer.fit_transform(generator).values.toarray(), ROWS)
    generator = ((token for token in sequence) for sequence in X)
    assert_array_equal(vectorizer.transform(generator).values.toarray(), ROWS)


def test_min_count_counts_tokens():
    # w=sat is there twice, but in one token
    vectorizer = SequenceVectorizer(min_count=2)
    sequences = vectorizer.fit_transform(X)
    assert vectorizer.feature_names_ == ["w=the"]
    assert vectorizer.vocabulary_ == {"w=the": 0}
    assert_array_equal(sequences.values.toarray(), ROWS[:, 4:])
    assert sequences.values.has_canonical_format
    assert vectorizer.transform(X).equals(sequences)
    with pytest.raises(ValueError, match="min_count=3 tokens.*occurs in 2"):
        SequenceVectorizer(min_count=3).fit(X)


def test_order_of_sequences_does_not_matter_to_the_columns():
    forth, back = SequenceVectorizer().fit(X), SequenceVectorizer().fit(X[::-1])
    assert forth.vocabulary_ == back.vocabulary_


@pytest.mark.parametrize(
    ("token", "error", "message"),
    [
        ({"a": np.nan}, ValueError, "weight of 'a' is nan"),
        ({"a": np.inf}, ValueError, "weight of 'a' is inf"),
        ({"a": 10**400}, ValueError, "weight of 'a' is 1000"),
        ({"p": {"a": np.nan}}, ValueError, "weight of 'p:a' is nan"),
        ({"a": None}, TypeError, "value of 'a' must be a number.*not None"),
        ({"a": 1j}, TypeError, "value of 'a'"),
        ({"a": b"x"}, TypeError, "value of 'a'"),
        ({"a": ["x", 1]}, TypeError, "not 1 of type int in the list of 'a'"),
        ({1: "x"}, TypeError, "attributes must be strings, not 1 of type int"),
        (["w=the", 7], TypeError, "attributes must be strings, not 7 of type int"),
        (["w=the", b"x"], TypeError, "attributes must be strings, not b'x'"),
        (["w=the", ["x"]], TypeError, r"attributes must be strings, not \['x'\]"),
        ("w=the", TypeError, "not 'w=the'; one attribute alone goes into a list"),
        (3.0, TypeError, "not float"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_errors_name_the_token(token, error, message):
    data = [[["w=the"]], [["w=the"], ["w=cat"], token]]
    vectorizer = SequenceVectorizer()
    with pytest.raises(error, match=f"Token 2 of sequence 1 of X: .*{message}"):
        vectorizer.fit(data)
    assert not hasattr(vectorizer, "vocabulary_")
    vectorizer.fit(X)
    with pytest.raises(error, match=f"Token 2 of sequence 1 of X: .*{message}"):
        vectorizer.transform(data)
    assert vectorizer.feature_names_ == NAMES


@pytest.mark.parametrize("min_count", [1, 2])
def test_weights_that_the_dtype_cannot_hold(min_count):
    data = [[["b", "a"]], [["b"], {"c": 1, "a": 1e300, "b": 2}]]
    assert SequenceVectorizer().fit_transform(data).values.max() == 1e300
    with pytest.raises(ValueError, match="Token 1 of sequence 1 .* 'a' is too large for float32"):
        SequenceVectorizer(dtype=np.float32, min_count=min_count).fit_transform(data)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([{"w": "the"}], TypeError, "Sequence 0 of X must be a list of tokens; it is of type dict"),
        ([[["a"]], "abc"], TypeError, "Sequence 1 of X .* of type str"),
        ([3], TypeError, "Sequence 0 of X .* of type int"),
        ([["w=the", "w=cat"]], TypeError, "Token 0 of sequence 0 of X: .* not 'w=the'"),
        ("abc", TypeError, "list of sequences, each a list of tokens; got str"),
        (None, TypeError, "got NoneType"),
        (Sequences(np.zeros((2, 2)), [0, 2]), TypeError, "got Sequences"),
        ([], ValueError, "X has no attributes"),
        ([[[], {}, {"a": []}]], ValueError, "X has no attributes"),
    ],
)
def test_what_is_no_list_of_sequences(data, error, message):
    with pytest.raises(error, match=message):
        SequenceVectorizer().fit(data)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"dtype": np.int64}, "dtype must be numpy.float64 or numpy.float32"),
        ({"dtype": "number"}, "dtype must be"),
        ({"min_count": 0}, "min_count must be an integer >= 1, got 0"),
        ({"min_count": True}, "min_count must be an integer"),
        ({"min_count": 1.5}, "min_count must be an integer"),
        ({"separator": None}, "separator must be a string"),
    ],
)
def test_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        SequenceVectorizer(**parameters).fit(X)


# -------------------------------------------------------------------------- scikit-learn


def test_not_fitted():
    for method in ("transform", "get_feature_names_out"):
        with pytest.raises(NotFittedError):
            getattr(SequenceVectorizer(), method)(X)


def test_clone_and_pickle():
    vectorizer = SequenceVectorizer(min_count=2, dtype=np.float32, separator="=").fit(X)
    copied = clone(vectorizer)
    assert copied.get_params() == vectorizer.get_params()
    assert not hasattr(copied, "vocabulary_")
    again = pickle.loads(pickle.dumps(vectorizer))
    assert type(again.vocabulary_) is dict
    assert again.transform(X).equals(vectorizer.transform(X))


class HasFirstColumn(BaseEstimator):
    """Scores 1 if the first column of each sequence is there where y says."""

    def fit(self, X, y):
        assert isinstance(X, Sequences)
        self.n_columns_ = X.values.shape[1]
        return self

    def score(self, X, y):
        assert X.values.shape[1] == self.n_columns_
        found = [(rows[:, [0]].toarray() != 0).any() for rows in X]
        return float(np.mean(np.array(found) == y))


def test_in_a_pipeline():
    data = [[["b"], ["a"] if i % 3 else ["c"]] for i in range(12)]
    y = [i % 3 != 0 for i in range(12)]
    pipeline = make_pipeline(SequenceVectorizer(), HasFirstColumn())
    assert pipeline.fit(data, y).score(data, y) == 1.0
    assert_array_equal(cross_val_score(pipeline, data, y, cv=3), 1.0)


def test_rows_are_no_data_frame():
    pytest.importorskip("pandas")
    with config_context(transform_output="pandas"):
        assert isinstance(SequenceVectorizer().fit_transform(X), Sequences)


def test_chunking_attributes_of_conll2000(data_folder):
    sentences = load_conll(data_folder / "conll2000" / "test.txt.gz").tokens[:1000]
    attributes = [chunking_attributes(*map(list, zip(*sentence))) for sentence in sentences]
    vectorizer = SequenceVectorizer()
    sequences = vectorizer.fit_transform(attributes)
    assert len(vectorizer.vocabulary_) == 70_758
    assert vectorizer.feature_names_ == sorted({a for s in attributes for t in s for a in t})
    assert sequences.n_tokens == 23_094
    assert sequences.values.nnz == sum(len(token) for s in attributes for token in s)
    names = vectorizer.get_feature_names_out()
    for i in (0, 400, -1):
        rows = sequences[i]
        assert rows.shape[0] == len(attributes[i])
        for t, token in enumerate(attributes[i]):
            assert sorted(token) == names[rows[[t]].indices].tolist()


@pytest.mark.parametrize("min_count", [1, 3, 55_000])
def test_fit_forgets_rows_and_has_the_names_of_fit_transform(min_count):
    """More tokens than are kept at a time, with names and zeros in the early and the late ones."""
    rng = np.random.default_rng(0)
    often = [f"w{i}" for i in range(20)]
    rare = rng.integers(0, 4000, 3000).tolist()
    X = [[[*often, "twice", "twice"], {"zero": 0, f"r{i}": 1}] for i in rare] + [
        [often] * 25 for _ in range(2200)] + [[{"late": 1, f"r{i}": 2.5}] for i in rare[:50]]
    fitted, made = (SequenceVectorizer(min_count=min_count) for _ in range(2))
    fitted.fit(iter(X))
    made.fit_transform(X)
    assert fitted.feature_names_ == made.feature_names_
    assert ("late" in fitted.feature_names_) == (min_count < 51)
