"""Model files that are damaged or hostile are refused; a failed write leaves what was there."""

import copy
import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from processes import ENVIRONMENT, run_code
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    load_model,
    save_model,
)
from fastm4n.base import array_files
from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays

PREAMBLE = struct.Struct("<8sIQ32s")


def forge(path, change):
    """Change the header's document, and give it a right checksum."""
    content = path.read_bytes()
    magic, version, length, _ = PREAMBLE.unpack(content[: PREAMBLE.size])
    document = json.loads(content[PREAMBLE.size : PREAMBLE.size + length])
    document = change(document) or document
    header = json.dumps(document).encode()
    start = PREAMBLE.pack(magic, version, len(header), hashlib.sha256(header).digest())
    path.write_bytes(start + header + content[PREAMBLE.size + length :])


def entry(document, name):
    return next(entry for entry in document["arrays"] if entry["name"] == name)


def forge_array(path, name, array):
    """Replace the bytes of an array by those of another of the same size, with its checksum."""
    start = PREAMBLE.size

    def change(document):
        nonlocal start
        part = entry(document, name)
        for step in name_path:
            part = part[step]
        part["crc32"] = zlib.crc32(array.tobytes())
        assert part["size"] == array.nbytes
        start = part["offset"]

    name, *name_path = name.split(".") if "." in name else (name, "values")
    forge(path, change)
    content = bytearray(path.read_bytes())
    start += PREAMBLE.size + PREAMBLE.unpack(content[: PREAMBLE.size])[2]
    content[start : start + array.nbytes] = array.tobytes()
    path.write_bytes(content)
X, Y = load_iris(return_X_y=True)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def leaves(node, path=()):
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from leaves(value, (*path, key))


HOSTILE = [
    None, True, -1, 0, 3, 10**15, 10**400, 1.5, 1e308, "", "x", "<f8", "|O", "json", "\ud800", [],
    {}, [10**15], [-1], [0, 10**17], [[]], {"array": "x"}, {"array": []}, {"dict": [[[], 1]]},
    {"list": 3}, {"dtype": "object"}, "__import__('os').system('true')", "RandomForestClassifier",
]


@pytest.mark.parametrize("kind", ["linear", "kernel", "sequence"])
def test_forged_headers_are_refused_or_harmless(kind, tmp_path):
    """Every entry of the header replaced, with right checksums: no error but ModelFileError."""
    rng = np.random.default_rng(0)
    if kind == "sequence":
        model = make_pipeline(SequenceVectorizer(), SequenceTagger(transitions=Transitions(features=[0]))).fit(
            [[["a"], ["b"]], [["b"], ["c"]]], [["x", "y"], ["y", "x"]])
    else:
        features = sparse.csr_matrix(X[::10]) if kind == "kernel" else X[::10]
        model = make_pipeline(
            StandardScaler(with_mean=False),
            MulticlassClassifier(kernel="rbf" if kind == "kernel" else "linear", cost=[
                [0, 1, 2], [1, 0, 1], [2, 1, 0]]),
        ).fit(features, Y[::10])
    path = tmp_path / "forged"
    save_model(model, path)
    content = path.read_bytes()
    length = PREAMBLE.unpack(content[: PREAMBLE.size])[2]
    document = json.loads(content[PREAMBLE.size : PREAMBLE.size + length])
    refused = 0
    for where in leaves(document):
        for value in (HOSTILE[rng.integers(len(HOSTILE))], "gone"):
            forged = copy.deepcopy(document)
            node = forged
            for key in where[:-1]:
                node = node[key]
            if value == "gone":
                del node[where[-1]]
            else:
                node[where[-1]] = value
            header = json.dumps(forged).encode()
            start = PREAMBLE.pack(
                b"\x93FASTM4N", 1, len(header), hashlib.sha256(header).digest())
            path.write_bytes(start + header + content[PREAMBLE.size + length :])
            try:
                loaded = load_model(path)
            except ModelFileError as error:
                assert str(error).startswith(str(path))
                refused += 1
            else:
                assert type(loaded) in (Pipeline, type(model[-1]))
    assert refused > 200


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is empty"),
        (b"\x93FAST", "is cut off: it has 5 bytes"),
        (b"\x93FASTM4N\x01\0\0\0", "is cut off: it has 12 bytes"),
        (b"a,b\n1,2\n", "is not a file of fastm4n: it begins with b'a,b"),
        (pickle.dumps({"a": 1}), "is not a file of fastm4n"),
        (PREAMBLE.pack(b"\x93FASTM4N", 1, 2**60, b""), "claims a header of 1152921504606846976"),
        (PREAMBLE.pack(b"\x93FASTM4N", 1, 100, b"") + b"{}", "2 bytes of the header are there"),
        (PREAMBLE.pack(b"\x93FASTM4N", 1, 2, b"") + b"{}", "the header does not have its checksum"),
    ],
)
def test_what_is_no_model_is_refused(content, said, tmp_path):
    path = tmp_path / "a.fm4n"
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match=said) as caught:
        load_model(path)
    assert str(caught.value).startswith(f"{path} ")


@pytest.mark.parametrize(
    "text",
    [
        b"[]", b"{}", b"null", b"{" * 100000, b"[" * 100000, b'{"kind": NaN}', b"\xff",
        b"1" * 5000,
    ],
)
def test_headers_that_make_no_sense_are_refused(text, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(
        PREAMBLE.pack(b"\x93FASTM4N", 1, len(text), hashlib.sha256(text).digest()) + text)
    with pytest.raises(ModelFileError, match="its header makes no sense"):
        load_model(path)


def test_a_newer_version_names_both(model):
    content = bytearray(model.read_bytes())
    content[8] = array_files.FORMAT_VERSION + 1
    model.write_bytes(content)
    said = "has format version 3, but fastm4n .* reads versions up to 2. Install a newer fastm4n"
    with pytest.raises(ModelFileError, match=said):
        load_model(model)


def test_files_of_version_1_are_read(model):
    """They have SHA-256 of arrays."""
    def change(document):
        for array in document["arrays"]:
            part = array["values"]
            del part["crc32"]
            first = start + part["offset"]
            part["sha256"] = hashlib.sha256(content[first : first + part["size"]]).hexdigest()

    expected, content = load_model(model), model.read_bytes()
    start = PREAMBLE.size + PREAMBLE.unpack(content[: PREAMBLE.size])[2]
    forge(model, change)
    changed = bytearray(model.read_bytes())
    changed[8] = 1
    model.write_bytes(changed)
    assert (load_model(model).coef_ == expected.coef_).all()
    changed[-1] ^= 1
    model.write_bytes(changed)
    with pytest.raises(ModelFileError, match="does not have its checksum"):
        load_model(model)


def test_another_kind_is_refused(tmp_path):
    write_arrays(tmp_path / "a", "path", {}, {})
    with pytest.raises(ModelFileError, match="holds a 'path', not a 'model'"):
        load_model(tmp_path / "a")


def test_cut_off_and_longer_files_are_told(model):
    content = model.read_bytes()
    model.write_bytes(content[:-10])
    with pytest.raises(ModelFileError, match="is cut off: .* bytes of arrays are there, of "):
        load_model(model)
    model.write_bytes(content + b"x")
    with pytest.raises(ModelFileError, match="1 bytes follow after its end"):
        load_model(model)


def claim(shape, **changes):
    def change(document):
        values = entry(document, "0/coef_")
        values["shape"] = values["values"]["shape"] = shape
        values["values"].update(changes)
    return change


@pytest.mark.parametrize(
    "change",
    [
        claim([10**15, 1]), claim([10**15], size=8 * 10**15), claim([2**47, 2**47]),
        claim([1e15]), claim([3, 4], dtype="|O"), claim([3, 4], dtype="<c16"),
        claim([3, 4], dtype="V8"), claim([3, 4], dtype="<U2147483647"), claim([3, 4], offset=0),
        claim([3, 4], dtype="json"), claim([-3, -4]),
    ],
)
def test_hostile_claims_take_no_memory(model, change):
    resource = pytest.importorskip("resource")
    forge(model, change)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ModelFileError, match="iris.fm4n"):
        load_model(model)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def step(document):
    return document["header"]["steps"][0]


def set_in(getter, **values):
    return lambda document: getter(document).update(values)


@pytest.mark.parametrize(
    "change, said",
    [
        (set_in(step, **{"class": "Popen"}), "there is no class 'Popen'"),
        (set_in(step, **{"class": "StandardScaler"}), "there is no class 'StandardScaler'"),
        (set_in(step, **{"class": "OrdinalClassifier"}), "no parameter 'classes'"),
        (lambda document: step(document).update({
            "class": "OrdinalClassifier", "parameters": {
                name: value for name, value in step(document)["parameters"].items()
                if name != "classes"}}), None),
        (set_in(step, **{"class": "LabelRanker"}), "no parameter"),
        (set_in(lambda d: step(d)["parameters"], kernel="rbf"), "kernel"),
        (set_in(lambda d: step(d)["parameters"], kernel="exec"), "kernel must be"),
        (set_in(lambda d: step(d)["parameters"], alpha=0), "alpha must be"),
        (set_in(lambda d: step(d)["parameters"], n_jobs=0), "n_jobs is 0"),
        (set_in(lambda d: step(d)["parameters"], callback="print"), "callback must be"),
        (set_in(lambda d: step(d)["parameters"], unheard_of=1), "no parameter 'unheard_of'"),
        (set_in(lambda d: step(d)["attributes"], n_features_in_=5), "coef_ has shape"),
        (set_in(lambda d: d["header"], metadata=3), "metadata"),
        (set_in(lambda d: entry(d, "0/classes_"), name="0/items_"), "is missing"),
        (set_in(lambda d: entry(d, "0/coef_"), name="0/coef"), "coef_ is missing"),
        (lambda d: d["header"]["steps"].append(copy.deepcopy(step(d))), "it has no steps"),
        (set_in(lambda d: entry(d, "0/coef_"), name="0/intercept_"), "a name occurs twice"),
    ],
)
def test_models_that_do_not_fit_together_are_refused(model, change, said):
    forge(model, change)
    if said is None:
        assert type(load_model(model)) is OrdinalClassifier
        return
    with pytest.raises(ModelFileError, match=said):
        load_model(model)


@pytest.mark.parametrize(
    "name, array, said",
    [
        ("0/coef_", np.full((3, 4), np.nan), "coef_ is not finite"),
        ("0/intercept_", np.array([0, np.inf, 0]), "intercept_ is not finite"),
        ("0/classes_", np.array([1, 1, 2]), "classes_ has an entry twice"),
    ],
)
def test_values_are_checked(model, name, array, said):
    forge_array(model, name, array)
    with pytest.raises(ModelFileError, match=said):
        load_model(model)


def test_bytes_that_numpy_would_misread_are_refused(tmp_path):
    path = tmp_path / "a"
    write_arrays(path, "arrays", {}, {"x": np.array([True]), "y": np.array(["a"])})
    content = path.read_bytes()
    forge_array(path, "x", np.array([2], dtype=np.uint8))
    with pytest.raises(ModelFileError, match="a boolean is neither 0 nor 1"):
        read_arrays(path, "arrays")
    path.write_bytes(content)
    forge_array(path, "y", np.array([2**31], dtype=np.uint32))
    with pytest.raises(ModelFileError, match="a character is none of Unicode"):
        read_arrays(path, "arrays")


@pytest.mark.parametrize(
    "part, array",
    [
        ("indices", np.array([0, 1, 4], dtype=np.int32)),
        ("indices", np.array([0, -1, 1], dtype=np.int32)),
        ("indptr", np.array([0, 2, 2], dtype=np.int32)),
        ("indptr", np.array([0, 4, 3], dtype=np.int32)),
        ("indptr", np.array([1, 2, 3], dtype=np.int32)),
    ],
)
def test_csr_matrices_that_would_be_read_out_of_bounds_are_refused(part, array, tmp_path):
    path = tmp_path / "a"
    matrix = sparse.csr_matrix([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]])
    write_arrays(path, "arrays", {}, {"x": matrix})
    forge_array(path, f"x.{part}", array)
    with pytest.raises(ModelFileError, match="x is no CSR matrix"):
        read_arrays(path, "arrays")


def test_what_is_no_regular_file_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="is not a regular file"):
        load_model(tmp_path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "missing")
    if hasattr(os, "mkfifo"):  # which would block a reader
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ModelFileError, match="is not a regular file"):
            load_model(tmp_path / "pipe")


def test_nothing_is_imported_or_run_by_a_file(model):
    """A model is read in a process where everything that could run code has been taken away."""
    code = (
        "import sys, builtins, os, pickle, subprocess\n"
        "import fastm4n.models._state\n"
        "from fastm4n import load_model\n"
        "before = set(sys.modules)\n"
        "def no(*args, **kwargs): raise SystemExit('something was run')\n"
        "builtins.eval = builtins.exec = os.system = no\n"
        "pickle.loads = pickle.load = pickle.Unpickler = subprocess.Popen = no\n"
        f"print(load_model({str(model)!r}).classes_.tolist())\n"
        "assert not {m for m in sys.modules if 'pickle' in m} - before\n"
    )
    done = run_code(code)
    assert (done.returncode, done.stdout) == (0, "[0, 1, 2]\n"), done.stderr


@pytest.fixture
def model(tmp_path):
    """The file of a small model."""
    save_model(MulticlassClassifier(random_state=0).fit(X, Y), tmp_path / "iris.fm4n")
    return tmp_path / "iris.fm4n"


# --------------------------------------------------------------------------- atomic writes


def test_a_full_disk_leaves_what_was_there(model):
    """A limit on the size of files stops the write half way, as a full disk would."""
    pytest.importorskip("resource")
    before = model.read_bytes()
    code = (
        "import resource, numpy as np\n"
        "from fastm4n.models._files import write_arrays\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "try:\n"
        f"    write_arrays({str(model)!r}, 'model', {{}}, {{'x': np.ones(1_000_000)}})\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    done = run_code(code)
    assert "File too large" in done.stdout and str(model) in done.stdout, done.stderr
    assert model.read_bytes() == before and os.listdir(model.parent) == [model.name]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failures_at_the_end_leave_what_was_there(failing, error, model, monkeypatch):
    before = model.read_bytes()

    def fail(*args):
        raise error

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(type(error)) as caught:
        write_arrays(model, "model", {}, {})
    if isinstance(error, OSError):
        assert caught.value.filename == str(model) and caught.value.errno == 28
    assert model.read_bytes() == before and os.listdir(model.parent) == [model.name]


def test_what_killed_writers_leave_is_removed_by_the_next(tmp_path):
    pytest.importorskip("fcntl")
    code = (
        "import os, sys\n"
        "from fastm4n.base.atomic import replacing\n"
        "with replacing(sys.argv[1]) as file:\n"
        "    print('ready', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    names = "one", "one", "x" * 255
    writers = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(tmp_path / name)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=ENVIRONMENT,
        )
        for name in names
    ]
    for writer in writers:
        assert writer.stdout.readline() == b"ready\n"
    assert len(os.listdir(tmp_path)) == 3
    for writer in writers[1:]:
        writer.kill()
        writer.wait()
    write_arrays(tmp_path / "one", "arrays", {}, {})
    # one is being written still, and one is of another target
    assert len(os.listdir(tmp_path)) == 3
    writers[0].communicate(timeout=30)
    assert writers[0].returncode == 0 and (tmp_path / "one").read_bytes() == b""
    for name in names:
        write_arrays(tmp_path / name, "arrays", {}, {})
    assert sorted(os.listdir(tmp_path)) == sorted(set(names))


def test_links_and_modes_are_kept(model):
    if os.name == "nt":
        pytest.skip("links and modes are otherwise there")
    model.chmod(0o640)
    link = model.with_name("link")
    link.symlink_to(model)
    write_arrays(link, "arrays", {"n": 2}, {})
    assert link.is_symlink() and model.stat().st_mode & 0o777 == 0o640
    assert read_arrays(model, "arrays")[0] == {"n": 2}


def test_devices_and_folders_are_not_replaced(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        write_arrays(tmp_path / "folder", "arrays", {}, {})
    with pytest.raises(FileNotFoundError):
        write_arrays(tmp_path / "missing" / "a", "arrays", {}, {})
    assert os.listdir(tmp_path) == ["folder"]
