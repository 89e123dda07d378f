"""Readers of rows: svmlight, tables of numbers and rankings."""

import io

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reader_cases import RANKINGS, SVMLIGHT, text
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from fastm4n.data._rankings import as_places
from fastm4n.data._sequences import Sequences
from fastm4n.datasets import load_csv, load_label_ranking, load_svmlight, load_svmlight_sequences

# -------------------------------------------------------------------------------- svmlight


def test_svmlight():
    data = load_svmlight_sequences(text(SVMLIGHT))
    assert_array_equal(data.X.values.toarray(), [[0.5, 0, 1], [0, -0.1, 0], [1, 0, 0]])
    assert_array_equal(data.X.lengths, [2, 1])
    assert_array_equal(data.y.lengths, [2, 1])
    assert data.y.dtype == np.int64 and data.y.values.tolist() == [1, 2, 1]
    assert data.qid.tolist() == [3, 1]
    assert data.X.values.indices.dtype == np.int32


def test_svmlight_parameters():
    lines = "1.5 qid:0 2:1\n-1 qid:0\n"
    data = load_svmlight_sequences(text(lines))
    assert data.X.values.toarray().tolist() == [[0, 1], [0, 0]]
    assert data.y.values.tolist() == [1.5, -1.0]
    data = load_svmlight_sequences(text(lines), zero_based=True)
    assert data.X.values.toarray().tolist() == [[0, 0, 1], [0, 0, 0]]
    data = load_svmlight_sequences(text("1 qid:0 0:1 2:1\n"))
    assert data.X.values.toarray().tolist() == [[1, 0, 1]]
    data = load_svmlight_sequences(text(lines), n_features=5, dtype=np.float32)
    assert data.X.values.shape == (2, 5) and data.X.dtype == np.float32
    data = load_svmlight_sequences(text("1 qid:0\n"), n_features=2)
    assert data.X.values.shape == (1, 2)


@pytest.mark.parametrize("zero_based", [True, False])
def test_svmlight_as_scikit_learn_reads_it(zero_based):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 8)) * (rng.random((50, 8)) < 0.3)
    rows[0, 0] = 1.0
    qid = np.repeat([7, 3, 12], [20, 25, 5])
    file = io.BytesIO()
    dump_svmlight_file(rows, rng.integers(0, 4, 50), file, zero_based=zero_based, query_id=qid,
                       comment="a comment")
    file.seek(0)
    X, y, _ = load_svmlight_file(file, query_id=True, zero_based=zero_based, n_features=8)
    file.seek(0)
    data = load_svmlight_sequences(file, n_features=8)
    assert_array_equal(data.X.values.toarray(), X.toarray())
    assert_array_equal(data.y.values, y)
    assert_array_equal(data.X.lengths, [20, 25, 5])
    assert_array_equal(data.qid, [7, 3, 12])


FIRST = "1 qid:1 1:1 3:1\n"


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        (FIRST + "\n1 qid:2 1:1\n# c\n1 qid:1 1:1\n", {},
         "<StringIO>, line 5: qid:1 comes back after another sequence; it began at line 1"),
        (FIRST + "x qid:1 1:1\n", {}, "line 2: the label 'x' is not a number"),
        (FIRST + "nan qid:1 1:1\n", {}, "line 2: the label is nan"),
        (FIRST + "1 1:1\n", {}, "line 2: there is no qid"),
        (FIRST + "1\n", {}, "line 2: there is no qid"),
        (FIRST + "1 qid:a 1:1\n", {}, "line 2: the sequence 'qid:a'"),
        (FIRST + f"1 qid:{10**19} 1:1\n", {},
         f"<StringIO>, line 2: the sequence 'qid:{10**19}' is not qid: and an integer of 64 bits"),
        (FIRST + f"1 qid:{-(2**63) - 1} 1:1\n", {}, "line 2: the sequence"),
        (FIRST + f"1 qid:{'9' * 5000} 1:1\n", {}, "line 2: the sequence"),
        (FIRST + "1 qid:1 2\n", {}, "line 2: '2' is not a feature, index:value"),
        (FIRST + "1 qid:1 2:x\n", {}, "line 2: '2:x' is not a feature"),
        (FIRST + "1 qid:1 2:1:3\n", {}, "line 2: '2:1:3' is not a feature"),
        (FIRST + "1 qid:1 1:1 2: 3\n", {}, "line 2: '2:' is not a feature"),
        (FIRST + "1 qid:1 a:1\n", {}, "line 2: 'a:1' is not a feature"),
        (FIRST + "1 qid:1 1_0:1\n", {}, "line 2: '1_0:1' is not a feature"),
        (FIRST + f"1 qid:1 {2**64}:1\n", {}, f"line 2: '{2**64}:1' is not a feature"),
        (FIRST + "\n1 qid:1 1:nan\n", {}, "line 3: the value of feature 1 is nan, no finite"),
        (FIRST + "1 qid:1\n1 qid:1 1:1 4:-inf\n", {}, "line 3: the value of feature 4 is -inf"),
        (FIRST + "1 qid:1 1:1e300\n", {"dtype": np.float32}, "line 2: .* 1 is inf, .* float32"),
        (FIRST + "1 qid:1 -2:1\n", {}, "line 2: the index -2 is negative"),
        (f"1 qid:1 0:1 {2**63 - 1}:1\n", {}, "line 1: the index 9223372036854775807 is too large"),
        (FIRST + "1 qid:1 5:1 2:1\n", {}, "line 2: the index 2 does not increase"),
        (FIRST + "1 qid:1 5:1 5:1\n", {}, "line 2: the index 5 does not increase"),
        (FIRST + "1 qid:1 0:1\n", {"zero_based": False}, "line 2: the index 0, but zero_based=F"),
        (FIRST + "1 qid:1 5:1\n", {"n_features": 4}, "line 2: an index needs 5 columns, but n_f"),
        ("1 qid:1\n", {}, "<StringIO> has no features"),
        (FIRST, {"n_features": 0}, "n_features must be an integer >= 1"),
        (FIRST, {"zero_based": "yes"}, "zero_based must be"),
        (FIRST, {"dtype": int}, "dtype must be"),
    ],
)
def test_svmlight_errors(lines, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_svmlight_sequences(text(lines), **arguments)


def test_svmlight_of_handwritten_words(data_folder, tmp_path):
    data = np.load(data_folder / "ocr.npz")
    stop = data["offsets"][200]
    rows, labels = data["X"][:stop].astype(float), data["y"][:stop]
    lengths = np.diff(data["offsets"][:201])
    path = str(tmp_path / "ocr.svm")
    dump_svmlight_file(rows, labels, path, query_id=np.repeat(np.arange(200), lengths),
                       zero_based=False)
    read = load_svmlight_sequences(path, n_features=128)
    assert_array_equal(read.X.values.toarray(), rows)
    assert read.y.equals(Sequences(labels, data["offsets"][:201]))


def test_svmlight_rows_as_scikit_learn_reads_them():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 8)) * (rng.random((50, 8)) < 0.3)
    file = io.BytesIO()
    dump_svmlight_file(rows, rng.normal(size=50), file, zero_based=False)
    file.seek(0)
    expected, labels = load_svmlight_file(file, zero_based=False, n_features=8)
    file.seek(0)
    X, y = load_svmlight(file, n_features=8)
    assert_array_equal(X.toarray(), expected.toarray())
    assert_array_equal(y, labels)
    assert load_svmlight(text("1 2:1\n"), zero_based=True)[0].shape == (1, 3)
    X, y = load_svmlight(text("# c\n\n-1 1:1\n2\n"), dtype=np.float32)
    assert X.dtype == np.float32 and X.shape == (2, 1) and y.tolist() == [-1, 2]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1 1:1\n1 qid:1 1:1\n", "line 2: there is a qid after the label"),
        ("1 qid:1 1:1\n", "line 1: there is a qid after the label"),
        ("1,2 1:1\n", "line 1: the label '1,2' is not a number"),
        ("1 1:1\n2 1 2\n", "line 2: '1' is not a feature, index:value"),
        ("1 3:1 2:1\n", "line 1: the index 2 does not increase"),
        ("# c\n", "<StringIO> has no examples"),
    ],
)
def test_svmlight_rows_errors(lines, message):
    with pytest.raises(ValueError, match=message):
        load_svmlight(text(lines))


# ------------------------------------------------------------------------------------ csv

CSV = "u,kind, v\n1,x,-2e-1\n\n 3 , y,4\n"


@pytest.mark.parametrize("target", ["kind", 1, -2])
def test_csv(target):
    data = load_csv(text(CSV), target=target)
    assert data.X.tolist() == [[1.0, -0.2], [3.0, 4.0]] and data.X.dtype == np.float64
    assert data.y.tolist() == ["x", "y"] and data.y.dtype.kind == "U"
    assert (data.columns, data.target) == (["u", "v"], "kind")


def test_csv_columns_and_delimiters():
    data = load_csv(text(CSV), target=None, columns=["v", 0])
    assert data.X.tolist() == [[-0.2, 1.0], [4.0, 3.0]]
    assert data.y is None and data.target is None and data.columns == ["v", "u"]
    for mark in "\t;":
        again = load_csv(text(CSV.replace(",", mark)), target="kind")
        assert again.X.tolist() == [[1.0, -0.2], [3.0, 4.0]]
    assert load_csv(text("u|k,d\n1|a\n"), delimiter="|").y.tolist() == ["a"]
    assert load_csv(text('u,"a ""b"", c"\n1,"x, y"\n')).y.tolist() == ["x, y"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2"], "i"), (["1", "2.5"], "f"), (["1e3", "2"], "f"), (["1", "x"], "U"),
        (["nan", "1"], "U"), (["1_0", "2"], "U"), ([str(2**70), "1"], "f"),
        ([str(2**70), str(2**70 + 1)], "U"), (["01", "2"], "U"), (["1", "1.0"], "U"),
    ],
)
def test_csv_types_of_targets(values, kind):
    data = load_csv(text("u,y\n" + "".join(f"0,{value}\n" for value in values)))
    assert data.y.dtype.kind == kind
    parse = {"i": int, "f": float, "U": str}[kind]
    assert data.y.tolist() == [parse(value) for value in values]


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        (CSV, {}, "<StringIO>, line 2: kind is 'x', which is not a finite number"),
        (CSV, {"target": "w"}, r"line 1: there is no column 'w' in the first line, \['u', 'kind'"),
        (CSV, {"target": 3}, "line 1: there is no column 3: there are 3"),
        (CSV, {"columns": ["w"]}, "line 1: there is no column 'w'"),
        (CSV, {"columns": ["v"]}, "line 1: 'v' is the target, and among the features"),
        (CSV, {"delimiter": ",,"}, "delimiter must be one character or None"),
        ("u\n1\n", {}, "line 1: there are no columns of features"),
        ("u,y\n", {}, "<StringIO> has no examples"),
        ("u,y\n1,\n", {}, "line 2: y is empty"),
        ("u,u,y\n1,2,3\n", {}, "line 1: two columns are called 'u'"),
        ("u,y\n1,2,3\n", {}, r"line 2: 3 column\(s\) instead of 2: '1,2,3'"),
        ('u,y\n1,2\n"3\n', {}, "line 3: not comma-separated values"),
        ('u,y\n\n"1,2\n3,4\n', {}, "line 4: .*end of data; the row begins in line 3"),
        ('y,u,\na,1,\n', {"target": "y"}, "line 2: column 3 is empty"),
    ],
)
def test_csv_errors(lines, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_csv(text(lines), **arguments)


def test_csv_targets_of_wrong_type():
    with pytest.raises(TypeError, match="target must be an integer, a name or None"):
        load_csv(text(CSV), target=1.5)


# -------------------------------------------------------------------------------- rankings


def test_label_ranking():
    X, y = load_label_ranking(text(RANKINGS))
    assert X.dtype == np.float64 and X.tolist() == [[0.5, 1.0], [-0.2, 0.0]]
    assert y.dtype.kind == "U" and y.tolist() == ["b>ä>c", "ä>b>c"]
    X, y = load_label_ranking(text("u,ranking\n1,a\n"))
    assert X.tolist() == [[1.0]] and y.tolist() == ["a"]
    _, y = load_label_ranking(text("u,ranking\n1,a>b=c\n2,d>*\n3,b>a\n"))
    assert y.tolist() == ["a>b=c", "d>*", "b>a"]


def test_label_ranking_quotes_and_spaces():
    lines = '"u, u", v , ranking\n "1", 2 , b > a \n\n"3", "4","a > b"\n'
    X, y = load_label_ranking(text(lines))
    assert X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert y.tolist() == ["b > a", "a > b"]
    assert as_places(y)[0].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("1,2,b>a\n", r"<StringIO>, line 1: the columns are \['1', '2', 'b>a'\]. The first line .* 'ranking'"),
        ("u,ranking,v\n", "line 1: the columns are"),
        ("ranking\na>b\n", "line 1: the columns are"),
        ("u;ranking\n1;a>b\n", r"line 1: the columns are \['u;ranking'\].* separated by commas"),
        ("u,ranking\n\n1,2,a>b\n", r"line 3: 3 column\(s\) instead of 2: '1,2,a>b'"),
        ("u,ranking\na>b\n", r"line 2: 1 column\(s\) instead of 2"),
        ("u,ranking\n1,a>b\nx,a>b\n", "line 3: u is 'x', which is not a finite number"),
        ("u,v,ranking\n1,,a>b\n", "line 2: v is empty. Missing values are not supported"),
        ("u,ranking\nnan,a>b\n", "line 2: u is 'nan'"),
        ("u,ranking\n1e999,a>b\n", "line 2: u is '1e999'"),
        ("u,ranking\n1_0,a>b\n", "line 2: u is '1_0'"),
        ("u,ranking\n1,\n", "line 2: the ranking '' is not of the form 'b>a>c'"),
        ("u,ranking\n1,a>>b\n", "line 2: the ranking 'a>>b' is not of the form"),
        ("u,ranking\n1,a>b=\n", "line 2: the ranking 'a>b=' is not of the form 'b>a>c' or 'b>a=c'"),
        ("u,ranking\n1,a>b>a\n", "line 2: the ranking 'a>b>a' is not .* each item once"),
        ("u,ranking\n1,a>b\n1,a=b=a\n", "line 3: the ranking 'a=b=a' is not .* each item once"),
        ("u,ranking\n1,*>a>*\n", r"line 2: the ranking '\*>a>\*' is not .* each item once"),
        ('u,ranking\n1,"a>b\n', "line 2: not comma-separated values"),
        ('u,ranking\n1,"a>b"c\n', "line 2: not comma-separated values"),
        ("u,ranking\n", "<StringIO> has no examples"),
    ],
)
def test_label_ranking_errors(lines, message):
    with pytest.raises(ValueError, match=message):
        load_label_ranking(text(lines))


def test_label_ranking_benchmark(data_folder):
    shapes = {"bodyfat": (252, 7, 7), "glass": (214, 9, 6), "vehicle": (846, 18, 4),
              "vowel": (528, 10, 11), "wine": (178, 13, 3)}
    for name, (n, n_features, n_items) in shapes.items():
        path = data_folder / "label_ranking" / f"{name}.csv"
        X, y = load_label_ranking(path)
        assert X.shape == (n, n_features) and y.shape == (n,)
        columns = range(n_features)
        assert_array_equal(X, np.loadtxt(path, delimiter=",", skiprows=1, usecols=columns))
        places, items = as_places(y)
        assert places.shape == (n, n_items)
        assert items.tolist() == list("abcdefghijk"[:n_items])
