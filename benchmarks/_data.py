"""Data sets of the benchmarks, read from the folder that FASTM4N_DATA names.

What scikit-learn ships needs no folder; a benchmark whose data is missing says so and
goes on with what is there.
"""

import csv
import os
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris, load_svmlight_file, load_wine

from fastm4n.datasets import load_label_ranking

# name: (number of features, rows used) of the svmlight files
_SVMLIGHT = {"segment": (19, None), "vehicle": (18, None), "satimage": (36, None), "letter": (16, 15000)}
_SHIPPED = {"iris": load_iris, "wine": load_wine}
_ORDINAL = {
    "wisconsin": "wisconsin_breast",
    "stocks": "stock",
    "machine": "machine",
    "abalone": "abalone",
    "auto": "auto",
}

MULTICLASS = ("segment", "iris", "wine", "vehicle", "satimage", "letter")
ORDINAL = tuple(_ORDINAL)
RANKING = ("glass", "bodyfat", "wine", "vowel", "vehicle")


def folder():
    """The data folder, or None."""
    path = os.environ.get("FASTM4N_DATA")
    return Path(path) if path and Path(path).is_dir() else None


def load_multiclass(name):
    """X (float64) and labels 0 ... k - 1, or None where the file is not there."""
    if name in _SHIPPED:
        return _SHIPPED[name](return_X_y=True)
    root = folder()
    file = root / "multiclass" / f"{name}.svm.gz" if root else None
    if file is None or not file.exists():
        return None
    n_features, n_rows = _SVMLIGHT[name]
    X, y = load_svmlight_file(str(file), n_features=n_features, zero_based=False)
    X, y = X.toarray()[:n_rows], y[:n_rows].astype(int) - 1
    # letter comes as the integers 0 ... 15, the others in [-1, 1]
    return (X / 7.5 - 1, y) if name == "letter" else (X, y)


def load_ordinal(name):
    """X (float64) and levels 1 ... k, or None where the file is not there."""
    root = folder()
    file = root / "ordinal" / f"{_ORDINAL[name]}_ord.csv" if root else None
    if file is None or not file.exists():
        return None
    with open(file, newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    table = np.array(rows, dtype=float)
    return table[:, 1:], table[:, 0].astype(int)


def load_ranking(name):
    """X (float64) and rankings such as "b>a>c", or None where the file is not there."""
    root = folder()
    file = root / "label_ranking" / f"{name}.csv" if root else None
    return load_label_ranking(file) if file is not None and file.exists() else None
