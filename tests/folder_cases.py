"""Sequences for tests of folders, and ways to damage a folder."""

import json
import os

import numpy as np
import scipy.sparse as sp

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
