"""Sequences of Arrow tables, Arrow files and Parquet files."""

import builtins
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from fastm4n import Sequences

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DENSE = [[[0.5, 1.0], [2.0, 3.0]], [], [[4.0, 5.0]], [[6.0, 7.0], [8.0, 9.0], [0.0, 1.0]]]
TAGS = [["B", "I"], [], ["O"], ["B", "B", "long"]]
ENTRIES = [[[(0, 1.0), (3, 2.0)], []], [], [[(1, 3.0)]], [[(2, 4.0)], [], [(0, 5.0), (2, 6.0)]]]
LENGTHS = [len(tags) for tags in TAGS]
SPARSE = np.array([[1, 0, 0, 2], [0] * 4, [0, 3, 0, 0], [0, 0, 4, 0], [0] * 4, [5, 0, 6, 0]])


def nested(value):
    return pa.list_(pa.list_(value))


ENTRY = pa.struct([("index", pa.int32()), ("value", pa.float64())])
STRUCTS = [[[{"index": i, "value": v} for i, v in row] for row in rows] for rows in ENTRIES]
COLUMNS = {
    "dense": pa.array(DENSE, nested(pa.float64())),
    "large": pa.array(DENSE, pa.large_list(pa.large_list(pa.float64()))),
    "fixed": pa.array(DENSE, pa.list_(pa.list_(pa.float64(), 2))),
    "float32": pa.array(DENSE, nested(pa.float32())),
    "structs": pa.array(STRUCTS, nested(ENTRY)),
    "maps": pa.array(ENTRIES, pa.list_(pa.map_(pa.int64(), pa.float64()))),
    "indices": pa.array([[[i for i, _ in row] for row in rows] for rows in ENTRIES],
                        nested(pa.int32())),
    "values": pa.array([[[v for _, v in row] for row in rows] for rows in ENTRIES],
                       nested(pa.float64())),
    "tags": pa.array(TAGS, pa.list_(pa.string())),
    "large_tags": pa.array(TAGS, pa.list_(pa.large_string())),
    "coded": pa.array(TAGS, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "numbers": pa.array([[1, 2], [], [3], [4, 5, 6]], pa.list_(pa.int64())),
    "flags": pa.array([[True, False], [], [True], [False] * 3], pa.list_(pa.bool_())),
}
TABLE = pa.table(COLUMNS)
EXPECTED = {
    **dict.fromkeys(["dense", "large", "fixed", "float32"], np.array(sum(DENSE, []))),
    **dict.fromkeys(["structs", "maps", ("indices", "values")], SPARSE),
    **dict.fromkeys(["tags", "large_tags", "coded"], np.array(sum(TAGS, []))),
    "numbers": np.arange(1, 7), "flags": np.array([True, False, True, False, False, False]),
}


def source_of(form, table, tmp_path):
    """The table, as something that `from_arrow` takes."""
    if form == "table":
        return table
    if form == "batch":
        return table.to_batches()[0]
    if form == "reader":
        return table.to_reader()
    path = tmp_path / form
    writer = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as writing:
        writing.write_table(table, max_chunksize=3 if form == "file" else None)
    return path


@pytest.fixture(params=EXPECTED, ids=str)
def column(request):
    return request.param


def check(found, column, rows=slice(None)):
    expected = Sequences.from_lengths(EXPECTED[column], LENGTHS)[rows]
    assert_array_equal(found.offsets, expected.offsets)
    values = found.values
    if sp.issparse(values):
        assert values.has_canonical_format and values.indices.dtype == np.int32
        values = values.toarray()
    assert_array_equal(values, expected.values)
    assert values.dtype.kind == "U" or values.dtype == (
        np.float32 if column == "float32" else
        np.float64 if np.ndim(values) == 2 else expected.dtype)


@pytest.mark.parametrize("form", ["table", "batch", "reader", "file", "stream"])
def test_columns(column, form, tmp_path):
    X, y = Sequences.from_arrow(source_of(form, TABLE, tmp_path), column, labels="tags")
    check(X, column)
    check(y, "tags")


@pytest.mark.parametrize("in_folder", [False, True])
def test_parts_of_tables(column, in_folder, tmp_path):
    """Slices begin within their buffers, and batches of rows are of any size."""
    for k, rows in enumerate([slice(1, 4), slice(2, 3), slice(0, 2)]):
        folder = tmp_path / str(k) if in_folder else None
        found = Sequences.from_arrow(
            TABLE.slice(rows.start, rows.stop - rows.start), column, folder=folder, n_features=4)
        check(found, column, rows)
        assert ("on disk" in repr(found)) == in_folder
    # each its own batch, the widest of them last
    chunked = pa.concat_tables([TABLE.slice(i, 1) for i in (1, 2, 3, 0)])
    folder = tmp_path / "chunks" if in_folder else None
    found = Sequences.from_arrow(chunked, column, labels="coded", folder=folder)[0]
    check(found[[3, 0, 1, 2]], column)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_parquet(column, batch_size, tmp_path):
    pq.write_table(TABLE, tmp_path / "x.parquet", row_group_size=2)
    for folder in (None, tmp_path / "x"):
        X, y = Sequences.from_parquet(
            tmp_path / "x.parquet", column, labels="numbers", batch_size=batch_size, folder=folder)
        check(X, column)
        check(y, "numbers")
    X, y = Sequences.open(tmp_path / "x", return_y=True)
    check(X, column)


def test_numbers_are_not_copied(tmp_path):
    for column in ("dense", "fixed"):
        X = Sequences.from_arrow(TABLE, column)
        leaves = TABLE.column(column).chunk(0).flatten().flatten().to_numpy()
        assert np.shares_memory(X.values, leaves) and not X.values.flags.writeable
    X = Sequences.from_arrow(TABLE, ("indices", "values"))
    leaves = TABLE.column("values").chunk(0).flatten().flatten().to_numpy()
    assert np.shares_memory(X.values.data, leaves)


def test_more_columns_and_repeated_indices():
    X = Sequences.from_arrow(TABLE, "structs", n_features=9)
    assert X.values.shape == (6, 9)
    table = pa.table({"x": pa.array([[[(2, 1.0), (0, 2.0), (2, 3.0)]]], nested(ENTRY))})
    assert Sequences.from_arrow(table, "x").values.toarray().tolist() == [[2, 0, 4]]


@pytest.mark.parametrize(("column", "options", "message"), [
    (pa.array([[[1.0]], None]), {}, "The table, row 1: the sequence is null in the column 'x'. Fi"),
    (pa.array([[[1.0]], [], [[2.0], None]]), {}, "row 2: a position is null in the column 'x'"),
    (pa.array([[[1.0]], [], [[2.0], [None]]]), {}, "row 2: a value is null in the column 'x'"),
    (pa.array([["a"], [None]]), {}, "row 1: a value is null"),
    (pa.array([["a"], [None]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), {},
     "row 1: a value is null"),
    (pa.array([[[None]]], nested(ENTRY)), {}, "row 0: an entry is null"),
    (pa.array([[], [[(1, None)]]], nested(ENTRY)), {}, "row 1: a value is null"),
    (pa.array([[[1.0]], [[2.0], [1.0, 2.0]]]), {}, "row 1: a position has 2 features .* has 1"),
    (pa.array([1.0]), {}, "'x' must have a list for each sequence, got double"),
    (pa.array([["a"]], pa.list_(pa.binary())), {}, "'x' must have numbers or strings, got binary"),
    (pa.array([[[["a"]]]]), {}, "must have numbers or strings, got list<"),
    (pa.array([[], [[(4, 1.0)]]], nested(ENTRY)), {"n_features": 4},
     "row 1: 'x' has the index 4; indices go from 0 to n_features - 1 = 3"),
    (pa.array([[], [[(-1, 1.0)]]], nested(ENTRY)), {}, "row 1: 'x' has the index -1"),
    (pa.array([[[{"a": 1}]]]), {}, "must have structs of index and value"),
    (pa.array([[[{"a": 1.5, "b": 1.5}]]]), {}, "indices in 'x' must be integers"),
    (pa.array([[[1.0]]]), {"n_features": 0}, "n_features must be"),
    (pa.array([["a"], ["b", "c"]]), {"labels": "y"}, r"row 1: 2 positions in 'x' and 1 labels in"),
    (pa.array([[1], [2]]), {"labels": "z"}, "The table has no column 'z'; its columns are 'x', 'y'"),
    (pa.array([[[1]], [[2]]]), {"features": ("x", "y")}, "must have a list|no lists|lists"),
    (pa.array([], pa.list_(pa.int8())), {}, "The table has no rows"),
])
def test_what_is_refused(column, options, message, tmp_path):
    table = pa.table({"x": column, "y": pa.array([[1]] * len(column), pa.list_(pa.int8()))})
    options = {"features": "x", **options}
    with pytest.raises(ValueError, match=message):
        Sequences.from_arrow(table, **options)
    with pytest.raises(ValueError, match=f"{message}|no batches"):
        Sequences.from_arrow(table, folder=tmp_path / "x", **options)
    assert list(tmp_path.iterdir()) == []


def test_indices_and_values_of_other_lengths():
    table = pa.table({"i": [[[0]], [[0], [1]]], "v": [[[1.0]], [[1.0], []]],
                      "w": [[[1.0]], [[1.0]]]})
    for values in ("v", "w"):
        with pytest.raises(ValueError, match=f"row 1: 'i' and '{values}' differ in len"):
            Sequences.from_arrow(table, ("i", values))


def test_rows_are_counted_over_the_file(tmp_path):
    rows = [[[1.0]]] * 7 + [[[None]]]
    pq.write_table(pa.table({"x": pa.array(rows, nested(pa.float64()))}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="x.parquet, row 7: a value is null"):
        Sequences.from_parquet(tmp_path / "x.parquet", "x", batch_size=3, folder=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_batches_of_other_widths(tmp_path):
    pq.write_table(pa.table({"x": [[[1.0]], [[1.0, 2.0]]]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="x.parquet: batches of rows differ: .* 2 columns"):
        Sequences.from_parquet(tmp_path / "x.parquet", "x", batch_size=1)
    with pytest.raises(ValueError, match="Batch 1: it has 2 columns, but in batch 0"):
        Sequences.from_parquet(tmp_path / "x.parquet", "x", batch_size=1, folder=tmp_path / "x")


def test_files_of_something_else(tmp_path):
    (tmp_path / "x").write_text("text" * 100)
    with pytest.raises(ValueError, match="x is no Arrow file"):
        Sequences.from_arrow(tmp_path / "x", "x")
    with pytest.raises(ValueError, match="x is no Parquet file"):
        Sequences.from_parquet(tmp_path / "x", "x")
    for read in (Sequences.from_arrow, Sequences.from_parquet):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "none", "x")
    with pytest.raises(TypeError, match="source must be a pyarrow Table"):
        Sequences.from_arrow({"x": [[1]]}, "x")
    with pytest.raises(TypeError, match="features must be the name"):
        Sequences.from_arrow(TABLE, ("a", "b", "c"))
    with pytest.raises(TypeError, match="labels must be the name"):
        Sequences.from_arrow(TABLE, "dense", labels=3)


def test_without_pyarrow(monkeypatch):
    imported = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return imported(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r'pip install "fastm4n\[arrow\]"'):
        Sequences.from_arrow(TABLE, "dense")
