"""Fits of opened folders: out of core by themselves, under a limit of the address space."""

import sys

import numpy as np
import pytest
from folder_cases import assert_fits_by_chunks_alone
from numpy.testing import assert_array_equal
from roads import assert_same_optimum
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from test_chunks import rows, sequences

from fastm4n import (
    Graphs,
    GraphTagger,
    MulticlassClassifier,
    OutOfCore,
    Sequences,
    SequenceTagger,
)
from fastm4n.datasets import rows_from_batches
from fastm4n.tasks import scale as _scale


def test_folders_go_out_of_core_by_themselves(tmp_path, monkeypatch):
    """From the default of `memory` on; the result is that of the solver given."""
    X, y = sequences()
    stored, labels = Sequences.from_batches([(X[:25], y[:25]), (X[25:], y[25:])], tmp_path / "a")
    table, classes = rows(n=400)
    opened, truth = rows_from_batches([(sparse.csr_matrix(table), classes)], tmp_path / "b")
    ran, solve = [], OutOfCore.solve

    def noted(self, *args, **options):
        ran.append(self.memory)
        return solve(self, *args, **options)

    monkeypatch.setattr(OutOfCore, "solve", noted)
    whole = SequenceTagger("log", tol=0.05, random_state=0).fit(stored, labels)
    assert not ran
    init = OutOfCore.__init__
    monkeypatch.setattr(OutOfCore, "__init__", lambda self, *, memory=0.005, **options: init(
        self, memory=memory, **options))
    parts = SequenceTagger("log", tol=0.05, random_state=0).fit(stored, labels)
    given = SequenceTagger("log", tol=0.05, random_state=0, solver=OutOfCore(memory=0.005)).fit(X, y)
    assert ran == [0.005, 0.005]
    assert_same_optimum(whole, parts)
    assert_array_equal(parts.coef_, given.coef_)
    MulticlassClassifier("log", tol=0.05, random_state=0).fit(opened, truth)
    assert ran == [0.005] * 3
    # what chunks do not have is fitted in memory, and what is in memory stays there
    MulticlassClassifier("log", fit_intercept="free", tol=0.05, random_state=0).fit(opened, truth)
    SequenceTagger("log", penalty="l1", tol=0.1, random_state=0).fit(stored, labels)
    SequenceTagger("log", tol=0.05, random_state=0).fit(X, y)
    assert len(ran) == 3


def test_a_column_out_of_scale_is_found_piece_by_piece(tmp_path, monkeypatch):
    """All of a container may be more than a process can map."""
    monkeypatch.setattr(_scale, "PIECE", 1000)
    table, classes = rows(n=400)
    table[:, 2] *= 1e6
    opened, truth = rows_from_batches([(sparse.csr_matrix(table), classes)], tmp_path / "a")
    at = np.arange(401)
    graphs = Graphs(table, np.zeros((0, 2), dtype=int), at, 0 * at)
    stored, labels = Graphs.from_batches(
        [(graphs, Sequences(classes, at))], tmp_path / "b")
    options = dict(solver=OutOfCore(), max_iter=1, tol=0.0, random_state=0)
    for model, data in (
        (MulticlassClassifier("log", **options), (opened, truth)),
        (GraphTagger("log", **options), (stored, labels)),
        (GraphTagger("log", **options), (graphs, labels)),
    ):
        with pytest.warns(ConvergenceWarning, match="Column 2 of X is about"):
            model.fit(*data)


def test_damage_is_found_before_the_first_step(tmp_path):
    X, y = sequences()
    X[50] = np.array([[1.0, 2.0, np.nan, 4.0, 5.0]])
    y[50] = ["label 0"]
    row = sum(map(len, X[:50]))
    stored, labels = Sequences.from_batches([(X, y)], tmp_path / "a")
    with pytest.raises(ValueError, match=rf"values.npy has nan in row {row}, column 2"):
        SequenceTagger(solver=OutOfCore(memory=0.02)).fit(stored, labels)
    table, classes = rows()
    opened, truth = rows_from_batches([(sparse.csr_matrix(table), classes)], tmp_path / "b")
    file = tmp_path / "b" / "values.indices.npy"
    content = bytearray(file.read_bytes())
    content[-4:] = (77).to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ValueError, match="row 119 has an entry in column 77"):
        MulticlassClassifier(solver=OutOfCore(memory=0.01)).fit(opened, truth)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the address space are Linux's")
def test_data_larger_than_the_address_space(tmp_path):
    """Sequences and graphs, which are stars."""
    rng = np.random.default_rng(0)
    offsets, star = 10 * np.arange(41), [[0, j] for j in range(1, 10)]

    def batches(container, *more):
        for _ in range(9):
            values = rng.standard_normal((400, 3000), dtype=np.float32)
            y = Sequences(values[:, :3].argmax(axis=1), offsets)
            yield container(values, *more, offsets, *([9 * np.arange(41)] if more else [])), y

    Sequences.from_batches(batches(Sequences), tmp_path / "a")
    Graphs.from_batches(batches(Graphs, np.tile(star, (40, 1))), tmp_path / "b")
    assert_fits_by_chunks_alone(tmp_path / "a", tmp_path / "b")
