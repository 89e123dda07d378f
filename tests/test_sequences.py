"""The ragged container: indexing, joining, cross-validation, and what it refuses."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_predict,
    cross_val_score,
    train_test_split,
)
from sklearn.utils import shuffle

from fastm4n.data._sequences import Sequences

LENGTHS = [3, 1, 0, 4, 2, 5, 1]
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])
N = len(LENGTHS)
KINDS = ("dense", "labels", "strings", "csr_matrix", "csr_array")


def buffer(kind):
    rng = np.random.default_rng(0)
    n_tokens = OFFSETS[-1]
    if kind == "labels":
        return rng.integers(0, 5, n_tokens)
    if kind == "strings":
        return rng.choice(["B-NP", "I", "O"], n_tokens)
    dense = rng.integers(0, 3, (n_tokens, 6)).astype(float)
    return dense if kind == "dense" else getattr(sp, kind)(dense)


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else rows


def parts(kind):
    """What a list of sequences would be."""
    values = dense(buffer(kind))
    return [values[start:stop] for start, stop in zip(OFFSETS[:-1], OFFSETS[1:])]


def check(sequences, expected):
    assert len(sequences) == len(expected)
    assert sequences.lengths.tolist() == [len(rows) for rows in expected]
    for rows, other in zip(sequences, expected):
        assert_array_equal(dense(rows), other)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def sequences(kind):
    return Sequences(buffer(kind), OFFSETS)


def test_attributes(sequences, kind):
    check(sequences, parts(kind))
    assert sequences.shape == (N,) and sequences.ndim == 1
    assert sequences.n_tokens == OFFSETS[-1]
    assert sequences.dtype == buffer(kind).dtype
    assert sequences.offsets.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        sequences.offsets[0] = 1
    text = repr(sequences)
    assert "7 sequences, 16 rows" in text and ("CSR" in text) == kind.startswith("csr")
    assert ("6 columns" in text) == (kind not in ("labels", "strings"))


def test_offsets_are_copied():
    offsets = OFFSETS.copy()
    sequences = Sequences(buffer("dense"), offsets)
    offsets[1] = 2
    assert_array_equal(sequences.offsets, OFFSETS)


@pytest.mark.parametrize("i", [0, 2, N - 1, -1, -N, np.int32(3), np.array(3), np.uint8(1)])
def test_one_sequence(sequences, kind, i):
    rows = sequences[i]
    assert_array_equal(dense(rows), parts(kind)[i])
    assert_array_equal(dense(sequences[i, ...]), dense(rows))
    assert sp.issparse(rows) == kind.startswith("csr")
    if not sp.issparse(rows) and len(rows):
        assert np.shares_memory(rows, sequences.values)
    if sp.issparse(rows):
        assert type(rows) is type(sequences.values)


KEYS = [
    slice(None), slice(1, 4), slice(4, 1), slice(-3, None), slice(None, None, 2),
    slice(None, None, -1), slice(5, 100),
    [3, 1, 1, -1], [], np.array([6, 0], dtype=np.int32), np.array([5], dtype=np.uint64),
    np.arange(N) % 2 == 0, [True, False, False, True, True, False, False], np.zeros(N, dtype=bool),
    range(2, 5),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_several_sequences(sequences, kind, key):
    if isinstance(key, slice):
        expected = parts(kind)[key]
    else:
        array = np.asarray(key)
        chosen = np.arange(N)[array if len(array) else array.astype(int)]
        expected = [parts(kind)[i] for i in chosen]
    for index in (key, (key, ...)):
        result = sequences[index]
        assert isinstance(result, Sequences)
        assert result.dtype == sequences.dtype
        check(result, expected)


@pytest.mark.parametrize("kind", ["dense", "labels", "strings"])
def test_a_slice_of_an_array_is_a_view(sequences):
    assert np.shares_memory(sequences[1:5].values, sequences.values)


def test_changing_rows_of_a_sparse_sequence_in_place_is_harmless():
    values = sp.csr_matrix(([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2))
    sequences = Sequences(values, [0, 1, 2])
    sequences[0].sum_duplicates()
    sequences[:2].values.sum_duplicates()
    assert_array_equal(sequences.values.toarray(), [[0.0, 3.0], [7.0, 0.0]])


@pytest.mark.parametrize("key", [N, -N - 1, np.int64(N), [0, N], [-N - 1], (N, ...)])
def test_there_is_no_such_sequence(sequences, key):
    with pytest.raises(IndexError, match=rf"There is no sequence -?{abs(N)}|There is no .* -8"):
        sequences[key]


@pytest.mark.parametrize(
    "key", [True, 1.0, "a", None, [0.5], [[0, 1]], (0, 1), (0, 1, ...), ..., ["a"], np.array(True)]
)
def test_what_is_no_index(sequences, key):
    with pytest.raises(IndexError, match="index"):
        sequences[key]


def test_mask_of_another_length(sequences):
    with pytest.raises(IndexError, match="mask of length 3 does not fit 7 sequences"):
        sequences[np.array([True, False, True])]


def test_equals(sequences, kind):
    assert sequences.equals(Sequences(buffer(kind), OFFSETS))
    assert not sequences.equals(sequences[:-1])
    assert not sequences.equals(Sequences(buffer(kind), OFFSETS[[0, 2, 1 + N // 2, N]]))
    changed = buffer(kind).copy()
    if kind.startswith("csr"):
        changed.data[3] += 1
    else:
        changed[3] = "x" if kind == "strings" else changed[3] + 1
    assert not sequences.equals(Sequences(changed, OFFSETS))
    assert not sequences.equals(list(sequences))
    other = sp.csr_matrix(dense(buffer("dense"))) if kind == "dense" else np.zeros((16, 6))
    assert not sequences.equals(Sequences(other, OFFSETS))


def test_pickle(sequences):
    again = pickle.loads(pickle.dumps(sequences))
    assert again.equals(sequences)
    assert again.dtype == sequences.dtype and not again.offsets.flags.writeable


# --------------------------------------------------------------------------- construction


@pytest.mark.parametrize(
    ("offsets", "error", "message"),
    [
        ([0, 5, 3, 16], ValueError, "sequence 1 would begin at row 5 and end at row 3"),
        ([1, 16], ValueError, "begin with 0"),
        ([0, 15], ValueError, "number of rows of values, 16, got 15"),
        ([0, 17], ValueError, "number of rows of values, 16, got 17"),
        ([], ValueError, "are empty"),
        ([[0, 16]], ValueError, "1 dimension"),
        (16, ValueError, "1 dimension"),
        ([0.0, 16.0], TypeError, "must be integers, got float64"),
    ],
)
def test_bad_offsets(offsets, error, message):
    with pytest.raises(error, match=message):
        Sequences(buffer("dense"), offsets)


@pytest.mark.parametrize("values", [np.zeros((2, 2, 2)), np.float64(1.0), "abc"])
def test_values_of_other_dimensions(values):
    with pytest.raises(ValueError, match="2 dimensions"):
        Sequences(values, [0, 2])


def test_no_sequences():
    for sequences in (Sequences(np.zeros((0, 3)), [0]), Sequences.from_list([])):
        assert len(sequences) == 0 and list(sequences) == [] and sequences.shape == (0,)


def test_sparse_arrays_that_do_not_fit_together_are_refused():
    values = sp.csc_array(np.eye(3))
    values.indices[1] = 10**6
    with pytest.raises(ValueError, match="values is no valid CSC matrix.*must be < 3"):
        Sequences(values, [0, 3])


def test_other_sparse_formats_become_csr():
    assert Sequences(sp.coo_matrix(np.eye(2)), [0, 2]).values.format == "csr"
    check(Sequences.from_list([sp.csc_array(np.eye(2))]), [np.eye(2)])


def test_from_lengths(kind):
    check(Sequences.from_lengths(buffer(kind), LENGTHS), parts(kind))
    with pytest.raises(ValueError, match="add up to the number of rows of values, 16, got 15"):
        Sequences.from_lengths(buffer(kind), [15])
    with pytest.raises(ValueError, match="sequence 1 has -1"):
        Sequences.from_lengths(buffer(kind), [17, -1])
    with pytest.raises(TypeError, match="lengths must be integers"):
        Sequences.from_lengths(buffer(kind), [16.0])


def test_from_list(kind):
    original = Sequences(buffer(kind), OFFSETS)
    again = Sequences.from_list(list(original))
    assert again.equals(original) and again.dtype == original.dtype
    assert Sequences.from_list(rows for rows in original).equals(original)
    assert Sequences.from_list(original) is original


def test_from_list_promotes():
    ints, floats = np.ones((2, 2), dtype=np.int32), np.full((1, 2), 0.5, dtype=np.float32)
    for convert in (np.asarray, sp.csr_matrix):
        joined = Sequences.from_list([convert(ints), convert(floats)])
        assert joined.dtype == np.float64
        assert dense(joined[1])[0, 0] == 0.5


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ([["B", "I-long"], ["O"]], "<U6"),
        ([[1, 2], [3]], np.int64),
        ([[True], [False, True]], bool),
        ([(1, 2), (3.5,)], np.float64),
        ([["a", 1], ["b"]], object),
        ([["a"], [1]], object),
        ([[None, "a"], ["b"]], object),
        ([[b"a"], ["a"]], object),
        ([[], ["a"], []], "<U1"),
        ([range(2), iter([5])], np.int64),
    ],
)
def test_from_list_of_labels(labels, dtype):
    labels = [list(sequence) for sequence in labels]
    sequences = Sequences.from_list(labels)
    assert sequences.dtype == dtype
    assert [rows.tolist() for rows in sequences] == labels
    assert {type(a) for rows in sequences for a in rows.tolist()} == {
        float if dtype is np.float64 else type(a) for rows in labels for a in rows
    }


def test_empty_sequences_between_features():
    sequences = Sequences.from_list([[], np.ones((2, 3)), np.empty((0, 3)), []])
    assert sequences.lengths.tolist() == [0, 2, 0, 0]
    assert sequences[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("sequences", "error", "message"),
    [
        ([np.ones((1, 2)), np.ones((1, 3))], ValueError, "Sequence 1 has 3 columns.*0 has 2"),
        ([sp.eye(2, format="csr"), sp.eye(3)], ValueError, "Sequence 1 has 3 columns.*0 has 2"),
        ([[1, 2], [[1, 2]]], ValueError, "Sequence 1 has 2 columns, sequence 0 has one label"),
        ([np.ones((1, 2)), np.empty((0, 3))], ValueError, "Sequence 1 has 3 columns"),
        ([[1], [[1, 2], [3]]], ValueError, "Sequence 1 is not an array"),
        ([np.ones((1, 2, 1))], ValueError, "Sequence 0 must have 2 dimensions"),
        ([[1, 2], 3], ValueError, "Sequence 1 must have 2 dimensions.*got 0"),
        ([np.eye(2), sp.eye(2)], TypeError, "Sequence 0 is an array, sequence 1 is not"),
        ([sp.eye(2), np.eye(2)], TypeError, "Sequence 0 is a sparse matrix, sequence 1 is not"),
        ([["a"], "abc"], TypeError, "Sequence 1 is a str"),
        ([["a"], {"a": 1}], TypeError, "Sequence 1 is a dict"),
        ("abc", TypeError, "not a str"),
    ],
)
def test_what_is_no_list_of_sequences(sequences, error, message):
    with pytest.raises(error, match=message):
        Sequences.from_list(sequences)


# --------------------------------------------------------------------------------- numpy


def test_as_an_array_of_sequences():
    # of equal lengths: no matrix
    array = np.asarray(Sequences(np.arange(6), [0, 2, 4, 6]))
    assert array.shape == (3,) and array.dtype == object
    assert_array_equal(array[1], [2, 3])
    with pytest.raises(TypeError, match="array of objects only"):
        np.asarray(Sequences(np.arange(6), [0, 6]), dtype=float)
    with pytest.raises(ValueError, match="without a copy"):
        Sequences(np.arange(6), [0, 6]).__array__(copy=False)


def test_concatenate(sequences, kind):
    joined = np.concatenate([sequences[:2], sequences[2:2], sequences[2:]])
    assert joined.equals(sequences) and joined.dtype == sequences.dtype
    with pytest.raises(TypeError, match="concatenated with sequences"):
        np.concatenate([sequences, np.zeros(3)])
    with pytest.raises(TypeError, match="axis 0"):
        np.concatenate([sequences, sequences], axis=1)
    with pytest.raises(TypeError, match="no implementation found for 'numpy.mean'"):
        np.mean(sequences)


# -------------------------------------------------------------------------- scikit-learn


class FirstColumn(ClassifierMixin, BaseEstimator):
    """Predicts the first column, which is what the labels of these tests are."""

    def __init__(self, factor=1):
        self.factor = factor

    def fit(self, X, y):
        assert isinstance(X, Sequences) and isinstance(y, Sequences)
        assert_array_equal(X.lengths, y.lengths)
        self.n_ = len(X)
        return self

    def predict(self, X):
        return Sequences(self.factor * dense(X.values[:, [0]]).ravel(), X.offsets)

    def score(self, X, y):
        return float(np.mean(self.predict(X).values == y.values))


@pytest.fixture(params=["dense", "csr_matrix", "csr_array", "read-only", "memory map"])
def data(request, tmp_path):
    rng = np.random.default_rng(1)
    values = rng.integers(1, 9, (60, 3)).astype(float)
    offsets = np.concatenate([[0], np.sort(rng.integers(0, 61, 19)), [60]])
    y = Sequences(values[:, 0].copy(), offsets)
    if request.param in ("csr_matrix", "csr_array"):
        values = getattr(sp, request.param)(values)
    elif request.param == "read-only":
        values.flags.writeable = False
    elif request.param == "memory map":
        np.save(tmp_path / "values.npy", values)
        values = np.load(tmp_path / "values.npy", mmap_mode="r")
    return Sequences(values, offsets), y


@pytest.mark.parametrize("cv", [3, KFold(4, shuffle=True, random_state=0)], ids=str)
def test_cross_validation(data, cv):
    X, y = data
    assert_array_equal(cross_val_score(FirstColumn(), X, y, cv=cv), 1.0)
    predicted = cross_val_predict(FirstColumn(), X, y, cv=cv)
    assert isinstance(predicted, Sequences) and predicted.equals(y)


def test_searches_and_splits(data):
    X, y = data
    search = GridSearchCV(FirstColumn(), {"factor": [0, 1, 2]}, cv=3).fit(X, y)
    assert search.best_params_ == {"factor": 1}
    assert_array_equal(search.cv_results_["mean_test_score"], [0, 1, 0])
    assert search.predict(X).equals(y)
    for part_X, part_y in (
        train_test_split(X, y, test_size=0.3, random_state=0)[::2],
        train_test_split(X, y, test_size=0.3, random_state=0)[1::2],
        shuffle(X, y, random_state=0),
    ):
        assert FirstColumn().predict(part_X).equals(part_y)
    folds = list(KFold(3).split(X, y))
    assert sum(len(X[test]) for _, test in folds) == len(X)


def test_a_memory_map_stays_mapped(tmp_path):
    np.save(tmp_path / "values.npy", buffer("dense"))
    mapped = np.load(tmp_path / "values.npy", mmap_mode="r")
    sequences = Sequences(mapped, OFFSETS)
    assert np.shares_memory(sequences.values, mapped)
    assert not isinstance(sequences[[0, 3]].values, np.memmap)
    check(sequences[1:4], parts("dense")[1:4])
