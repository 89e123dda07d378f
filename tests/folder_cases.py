"""Sequences for tests of folders, and ways to damage a folder."""

import json
import os

import numpy as np
import scipy.sparse as sp
from processes import run_code

from fastm4n import Sequences

LENGTHS = [3, 1, 0, 4, 2, 5, 1, 0]
N = len(LENGTHS)
KINDS = ("dense", "float32", "labels", "strings", "csr_matrix", "csr_array")


def sequences(kind):
    rng = np.random.default_rng(0)
    n = sum(LENGTHS)
    if kind == "labels":
        values = rng.integers(0, 5, n)
    elif kind == "strings":
        values = rng.choice(["B-NP", "I", "O"], n)
    else:
        values = rng.integers(0, 3, (n, 6)).astype("f4" if kind == "float32" else float)
        values = values if kind in ("dense", "float32") else getattr(sp, kind)(values)
    return Sequences.from_lengths(values, LENGTHS)


def dense(rows):
    return rows.toarray() if sp.issparse(rows) else rows


def contents(folder):
    """Names and contents of the files below a folder."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def hole(path, dtype, n, at):
    """An npy file of n numbers, zeros but for those of the dict `at`, that takes no disk."""
    dtype = np.dtype(dtype)
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": dtype.str, "fortran_order": False, "shape": (n,)})
        begin = file.tell()
        for i, value in at.items():
            file.seek(begin + i * dtype.itemsize)
            file.write(dtype.type(value).tobytes())
        file.truncate(begin + n * dtype.itemsize)
    return {"dtype": dtype.str, "shape": [n], "crc32": 0}


def edit(folder, change):
    meta = json.loads((folder / "meta.json").read_text())
    change(meta)
    (folder / "meta.json").write_text(json.dumps(meta))


def cut(folder, name, n_bytes):
    with open(folder / name, "r+b") as file:
        file.truncate(os.path.getsize(folder / name) + n_bytes)


def rewrite(folder, name, i, value):
    np.load(folder / f"{name}.npy", mmap_mode="r+")[i] = value


LIMITED = """
import json, re, resource, sys
from pathlib import Path
import fastm4n
import scipy.sparse.csgraph
kinds = [(fastm4n.Sequences, fastm4n.SequenceTagger), (fastm4n.Graphs, fastm4n.GraphTagger)]
out_of_core = fastm4n.OutOfCore(memory=5)
base = int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (base + int(sys.argv[1]),) * 2)
for folder, (container, tagger) in zip(sys.argv[2:], kinds, strict=True):
    X, y = container.open(folder, return_y=True)
    try:
        tagger("log").fit(X, y)
        found = "fits"
    except MemoryError:
        found = "MemoryError"
    fitted = tagger("log", solver=out_of_core, tol=0.1, random_state=0).fit(X, y)
    print(json.dumps([found, fitted.relative_gap_, X.n_bytes_on_disk]))
"""


def assert_fits_by_chunks_alone(sequences, graphs):
    """In a process that may take 40 MB beyond the package, with a thread's stack."""
    run = run_code(
        LIMITED, 40_000_000, sequences, graphs, OMP_NUM_THREADS="1", MALLOC_ARENA_MAX="1")
    assert run.returncode == 0, run.stderr
    for line in run.stdout.splitlines():
        found, gap, size = json.loads(line)
        assert found == "MemoryError" and gap <= 0.1 and size > 40_000_000
