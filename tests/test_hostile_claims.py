"""Files whose numbers claim what nothing stored backs, or are no counts at all: each refused."""

import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from folder_cases import edit
from sklearn.datasets import load_iris
from test_hostile_files import HEADER, npy, npz

from fastm4n import Graphs, GraphTagger, MulticlassClassifier, Sequences, datasets, load_model
from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays
from fastm4n.base.claims import GRANTED, check_claim
from fastm4n.base.npz import read_npz
from fastm4n.cli import main
from fastm4n.datasets import open_rows
from fastm4n.factors import CountFactor
from fastm4n.models._files import save_model
from fastm4n.tasks.graph_input import number_of

INF, NAN = float("inf"), float("nan")
NO_COUNTS = (INF, NAN, 2.0, True, "3", None, -1, 10**400, 2**63, [2], {})


def test_claims_are_granted_a_constant_and_a_multiple_of_what_is_stored():
    check_claim("x", GRANTED, 0)
    check_claim("x", 2**34, 2**30)
    with pytest.raises(ValueError, match="x: that would take 17179869185 bytes, .* 1073741824 stored bytes"):
        check_claim("x", 2**34 + 1, 2**30)


# ----------------------------------------------------------------------------------- npz


def stored(path):
    with np.load(path) as archive:
        return dict(archive)


@pytest.fixture
def graphs(tmp_path):
    """The arrays of a file of graphs with sparse features and factors, and a place for others."""
    factors = [[((0, 1), np.zeros((2, 2))), CountFactor([0, 1], 1, 1)]]
    X = Graphs(sp.csr_array(np.eye(3)), [[0, 1]], [0, 3], [0, 1], factors=factors)
    X.save(tmp_path / "g.npz")
    assert Graphs.load(tmp_path / "g.npz").equals(X)
    return stored(tmp_path / "g.npz"), tmp_path / "forged.npz"


@pytest.mark.parametrize("shape", [
    np.array([INF, 3]), np.array([3, NAN]), np.array([3.0, 3.0]), np.array([-1, 3]),
    np.array([3]), np.array(3), np.array([3, 3, 3]), np.array(["3", "3"]), np.array([True, True]),
    np.array([2**63, 3], dtype=np.uint64), np.array([3, 2**64 - 1], dtype=np.uint64),
    np.array([3, 2]), np.array([2**62, 3]), np.zeros((0, 2), int),
], ids=repr)
def test_shapes_of_graph_files_that_are_none_are_refused(shape, graphs):
    arrays, path = graphs
    np.savez(path, **{**arrays, "node_features.shape": shape})
    with pytest.raises(ValueError, match="forged.npz is no file of graphs: "):
        Graphs.load(path)
    assert main(["info", str(path)]) == 1


@pytest.mark.parametrize("name", ["sizes", "least", "most", "offsets", "node_offsets", "nodes"])
@pytest.mark.parametrize("value", [INF, NAN, 2**62, -(2**63), "3", True], ids=repr)
def test_counts_of_factors_that_are_none_are_refused(name, value, graphs, capsys):
    arrays, path = graphs
    changed = arrays[f"factors.{name}"].astype(np.asarray(value).dtype)
    changed[0] = value
    np.savez(path, **{**arrays, f"factors.{name}": changed})
    if name in ("least", "most") and value == -(2**63) or (name, value) == ("most", 2**62):
        Graphs.load(path)  # of a table there is no count
        return
    with pytest.raises(ValueError, match="forged.npz is no file of graphs: "):
        Graphs.load(path)
    assert main(["info", str(path)]) == 1
    assert "error: " in capsys.readouterr().err


def test_archives_that_expand_beyond_what_they_can_hold_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, x=np.zeros(1 << 20), y=np.arange(3))
    assert read_npz(path)["x"].shape == (1 << 20,)

    content = npy(HEADER % b"(125000000000,)", b"")
    npz(path, ("x.npy", content))
    forged = bytearray(path.read_bytes())
    for at in (22, forged.index(b"PK\1\2") + 24):
        forged[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(forged)
    with pytest.raises(ValueError, match="array x: cannot be read .it claims 4294967294 bytes"):
        read_npz(path)

    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", npy(HEADER % b"(2,)"))
    with pytest.raises(ValueError, match="array x: .*its compression is none of NumPy's"):
        read_npz(path)

    # all parts of the directory are the same bytes
    names = [f"{i:02}.npy" for i in range(3)]
    with zipfile.ZipFile(path, "w") as archive:
        for i, name in enumerate(names):
            archive.writestr(name, npy(HEADER % b"(64,)", bytes(512)) if i == 2 else b"")
        parts = archive.infolist()
        for part in parts[:2]:
            part.header_offset, part.CRC = parts[2].header_offset, parts[2].CRC
            part.file_size = part.compress_size = parts[2].file_size
    with pytest.raises(ValueError, match="cannot be read"):
        read_npz(path)


# ------------------------------------------------------------------------------- folders


@pytest.fixture
def folder(tmp_path):
    datasets.rows_from_batches([(sp.csr_array(np.eye(3)), [0, 1, 2])], tmp_path / "rows")
    assert open_rows(tmp_path / "rows").shape == (3, 3)
    return tmp_path / "rows"


def _set(meta, place, value):
    *path, last = place
    for key in path:
        meta = meta[key]
    meta[last] = value


@pytest.mark.parametrize("value", NO_COUNTS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("place", [
    ("matrices", "values", "shape", 1), ("files", "y", "shape", 0),
    ("files", "values.indptr", "shape", 0), ("files", "y", "shape"),
])
def test_numbers_of_folders_that_are_no_counts_are_refused(place, value, folder):
    edit(folder, lambda meta: _set(meta, place, value))
    with pytest.raises(ValueError, match="is damaged: "):
        open_rows(folder)


@pytest.mark.parametrize("value", [
    None, 3, ["<f8"], {}, "O", "<f8,<f8", "(2,)<f8", "<U999999999", "f" * 10**6, NAN],
    ids=lambda value: repr(value)[:20])
def test_dtypes_of_folders_that_are_none_are_refused(value, folder):
    edit(folder, lambda meta: _set(meta, ("files", "y", "dtype"), value))
    with pytest.raises(ValueError, match="is damaged: "):
        open_rows(folder)


@pytest.mark.parametrize("place", [
    ("version",), ("kind",), ("files",), ("matrices",), ("files", "y"), ("files", "y", "crc32"),
    ("files", "y", "dtype"), ("files", "y", "shape"), ("files", "y", "shape", 0),
    ("matrices", "values", "shape", 1),
])
def test_folders_of_lists_in_lists_are_refused(place, folder):
    text = (folder / "meta.json").read_text()
    meta = json.loads(text)
    _set(meta, place, "DEEP")
    for depth in (10**5, 980, 960, 940, 900, 800):
        deep = "[" * depth + "]" * depth
        (folder / "meta.json").write_text(json.dumps(meta).replace('"DEEP"', deep))
        with pytest.raises(ValueError, match="is damaged|has version|holds .* not 'rows'"):
            open_rows(folder)


# ------------------------------------------------------------------------- text and Arrow


@pytest.mark.parametrize("index", ["100000001", "1000000000000", "9223372036854775806"])
def test_indices_of_more_columns_than_weights_fit_in_memory_are_refused(index, tmp_path):
    text = f"1 1:0.5\n2 {index}:1\n".encode()
    wanted = rf"line 2: the index {index} is above 100000000. .* or pass n_features"
    for read in (datasets.load_svmlight, datasets.load_svmlight_multilabel):
        with pytest.raises(ValueError, match=wanted):
            read(io.BytesIO(text))
    with pytest.raises(ValueError, match=wanted):
        datasets.svmlight_to_folder(io.BytesIO(text), tmp_path / "folder")
    with pytest.raises(ValueError, match=wanted):
        datasets.load_svmlight_sequences(io.BytesIO(text.replace(b" ", b" qid:1 ", 2)))
    X, _ = datasets.load_svmlight(io.BytesIO(text), n_features=2**63 - 1, zero_based=True)
    assert X.shape == (2, 2**63 - 1)
    for word in ("1e18", "inf", "nan", "1.0", "9" * 30, "9" * 5000):
        with pytest.raises(ValueError, match="line 1: .* is not a feature, index:value"):
            datasets.load_svmlight(io.BytesIO(f"1 {word}:1\n".encode()))


def test_indices_and_long_texts_of_arrow_are_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    long = "x" * 100_000

    def written(**columns):
        table = pa.table(columns)
        with pa.OSFile(str(tmp_path / "a"), "wb") as sink:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        return tmp_path / "a"

    path = written(s=[[[{"i": 0, "v": 1.0}, {"i": 10**12, "v": 1.0}]]])
    with pytest.raises(ValueError, match="row 0: 's' has the index 1000000000000, above .* n_features"):
        Sequences.from_arrow(path, features="s")
    assert Sequences.from_arrow(path, features="s", n_features=10**13).values.shape == (1, 10**13)
    path = written(x=[[[1.0]] * 1000], y=[["a"] * 999 + [long]])
    with pytest.raises(ValueError, match="a text has 100000 characters, and an array of 1000 has"):
        Sequences.from_arrow(path, features="x", labels="y")
    path = written(x=[[[1.0]] * 10], y=[["a"] * 9 + [long]])
    _, y = Sequences.from_arrow(path, features="x", labels="y")
    assert y.values[-1] == long


def test_offsets_of_arrow_files_are_checked(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({
        "x": [[[1.0]] * 3, [[2.0]] * 5], "s": [[[{"i": 1, "v": 1.0}]] * 3, [[]] * 5]})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content, offsets = sink.getvalue(), np.array([0, 3, 8], dtype="<i4").tobytes()
    assert content.count(offsets) == 2
    path = tmp_path / "a"
    for last in (2**30, 9, -1, 2):
        path.write_bytes(content.replace(offsets, np.array([0, 3, last], dtype="<i4").tobytes()))
        for name in ("x", "s"):
            with pytest.raises(ValueError, match="a is damaged: "):
                Sequences.from_arrow(path, features=name)
    path.write_bytes(content)
    assert Sequences.from_arrow(path, features="x").lengths.tolist() == [3, 5]


def test_indices_of_arrow_may_be_unsigned():
    pa = pytest.importorskip("pyarrow")
    for kind in (pa.uint8(), pa.uint32(), pa.uint64(), pa.int16()):
        table = pa.table({
            "i": pa.array([[[0, 3], []]], pa.list_(pa.list_(kind))), "v": [[[1.0, 2.0], []]]})
        assert Sequences.from_arrow(table, features=("i", "v")).values.shape == (2, 4)


def test_long_labels_of_tables_are_no_reason_for_long_arrays(tmp_path):
    long = "x" * 100_000
    path = tmp_path / "t.csv"
    path.write_text("a,kind\n" + "1,x\n" * 1000 + f"1,{long}\n")
    with pytest.raises(ValueError, match="t.csv: a text has 100000 characters, and an array of 1001"):
        datasets.load_csv(path)
    path.write_text("a,kind\n" + "1,x\n" * 10 + f"1,{long}\n")
    assert datasets.load_csv(path).y[-1] == long


def test_types_of_nodes_that_would_take_the_memory_are_refused():
    with pytest.raises(ValueError, match="type 2147483646, .* 2 occur at most: number them 0, 1"):
        number_of(np.array([0, 2**31 - 2]))
    assert number_of(np.array([0, 1000])) == 1001 and number_of(None) == 1
    X = Graphs(np.eye(2), [[0, 1]], [0, 2], [0, 1], edge_types=[2**31 - 2])
    with pytest.raises(ValueError, match="number them 0, 1"):
        GraphTagger("max_min").fit(X, [[0, 1]])


# --------------------------------------------------------------------------- model files


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_numbers_of_models_that_are_no_counts_are_refused(tmp_path):
    X, y = load_iris(return_X_y=True)
    path, forged = tmp_path / "m.fm4n", tmp_path / "forged.fm4n"
    labels = np.array(["a", "b", "c"], dtype=object)[y]
    save_model(MulticlassClassifier(max_iter=2).fit(X[::10], labels[::10]), path)
    header, arrays = read_arrays(path, "model", finite=False)
    attributes = header["steps"][0]["attributes"]
    for name in ("n_features_in_", "n_iter_"):
        kept = attributes[name]
        for value in (2.5, True, "3", None, -1, 10**400, 2**48, [2], {}, 1e308):
            attributes[name] = value
            write_arrays(forged, "model", header, arrays, finite=False)
            with pytest.raises(ModelFileError, match="forged.fm4n holds no valid model: "):
                load_model(forged)
        attributes[name] = kept
    write_arrays(forged, "model", header, arrays, finite=False)
    load_model(forged)

    # sets of these would take time by the square: they all have the same hash
    alike = [k * (2**61 - 1) for k in range(1, 100)]
    header["steps"][0]["parameters"]["levels"] = header["steps"][0]["parameters"]["cost"] = {
        "list": alike}
    write_arrays(forged, "model", header, arrays, finite=False)
    with pytest.raises(ModelFileError, match="forged.fm4n holds no valid model: "):
        load_model(forged)
    with pytest.raises(ValueError, match="Only str, int of 64 bits, float and bool"):
        write_arrays(forged, "model", {}, {"x": np.array(alike, dtype=object)})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("target", [None, 3, -9, "x", float("1e308"), [1], 10**400])
def test_models_whose_data_make_no_sense_are_told_in_one_line(target, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("EU NNP B\nrejects VBZ O\n\nPeter NNP B\n")
    assert main(["fit", "c.txt", "--model", "m", "--quiet"]) == 0
    header, arrays = read_arrays("m", "model", finite=False)
    header["metadata"]["reading"]["target"] = target
    write_arrays("m", "model", header, arrays, finite=False)
    capsys.readouterr()
    assert main(["evaluate", "m", "c.txt"]) == 1
    assert "error: " in capsys.readouterr().err.splitlines()[-1]
    assert main(["info", "m"]) in (0, 1)
    assert main(["predict", "m", "c.txt"]) in (0, 1)


def test_settings_of_lists_in_lists_are_told_in_one_line(capsys):
    deep = "[" * 10**5
    assert main(["fit", "iris", "--set", f"cost={deep}"]) == 1
    assert "error: " in capsys.readouterr().err.splitlines()[-1]
