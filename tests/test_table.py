"""A sample of the table of cells (`fastm4n.estimators._cells`).

`benchmarks/table.py` walks all of it.
"""

import os

import numpy as np
import pytest
from sklearn.base import clone
from table import check_fit, look, model_of, sample_of, wrong_refusal

import fastm4n
from fastm4n.estimators import _cells
from fastm4n.estimators._table import PREDICTORS
from fastm4n.penalties._penalties import _Penalty
from fastm4n.solvers.base import Solver
from fastm4n.surrogates import SURROGATES

SEED = 39


@pytest.fixture(scope="module")
def cluster():
    """A cluster for data in partitions, where there is Dask."""
    pytest.importorskip("distributed")
    from dask_cases import cluster_of

    with cluster_of() as client:
        yield client


def looked_at(cells, folder):
    """What came of cells: counts by outcome, and the violations in words."""
    counts, violations = dict.fromkeys(("fit", "refusal", "violation"), 0), []
    for cell in cells:
        found = look(cell, folder)
        counts[found.outcome] += 1
        if found.outcome == "violation":
            violations.append(f"{cell}: {found.words}")
    return counts, "\n".join(violations)


@pytest.fixture(autouse=True)
def no_fsync(monkeypatch):
    """No power fails."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.mark.parametrize("name", PREDICTORS)
def test_cells(name, tmp_path):
    cells = [cell for cell in sample_of(name, SEED) if cell.road != "partitions"]
    counts, violations = looked_at(cells, tmp_path)
    assert not violations, violations
    assert counts["fit"] >= 5 and counts["refusal"] >= 5


@pytest.mark.parametrize("name", PREDICTORS)
def test_cells_of_partitions(name, cluster, tmp_path):
    # of each estimator some: clusters take their time
    cells = [cell for cell in sample_of(name, SEED) if cell.road == "partitions"][1::3]
    counts, violations = looked_at(cells, tmp_path)
    assert not violations, violations
    assert counts["refusal"]


# that walks of all cells found, and their seed
FOUND = (20261126, (
    _cells.Cell("GraphTagger", "potts, lp", "log", "label features", "l2", "auto", "memory", False),
    _cells.Cell("GraphTagger", "3 labels, lp", "max_margin", "dense", "l2", "auto", "partitions",
                False),
    _cells.Cell("GraphTagger", "nodes", "Boost()", "edges", "ElasticNet(l1_ratio=0.97)", "auto",
                "partitions", False),
    _cells.Cell("SequenceTagger", "chain", "Log(cost_augmented=True, temperature=0.5)", "dense", "ElasticNet(l1_ratio=0.97)",
                "BlockFrankWolfe()", "partitions", False),
    _cells.Cell("SequenceTagger", "chain", "max_min", "no constants",
                "ElasticNet(bounds=(-0.2, 0.3), l1_ratio=1.0)", "auto", "calls", False),
))


def test_cells_that_were_found(cluster, tmp_path):
    seed, cells = FOUND
    found = {cell: look(cell, tmp_path, seed) for cell in cells}
    assert [one.words for one in found.values() if one.outcome == "violation"] == []


# ---------------------------------------------------------------------- what the table has


def test_the_table_has_every_part():
    """Estimators, surrogates, penalties and solvers are in it by existing."""
    seen = {axis: set() for axis in _cells.Cell._fields}
    for name in PREDICTORS:
        for cell in sample_of(name, SEED):
            for axis, value in zip(cell._fields, cell, strict=True):
                seen[axis].add(value)
        surrogates = {cell.surrogate for cell in sample_of(name, SEED)}
        assert surrogates >= {*SURROGATES, "Log(cost_augmented=True, temperature=0.5)", "Boost()"}
    public = {
        name for name in fastm4n.__all__
        if isinstance(getattr(fastm4n, name), type) and hasattr(getattr(fastm4n, name), "_task")}
    assert seen["estimator"] == set(PREDICTORS) == public
    assert {name.partition("(")[0] for name in seen["solver"]} == {"auto", *Solver.known}
    classes = {cls.__name__ for cls in _Penalty.__subclasses__()}
    assert {name.partition("(")[0] for name in seen["penalty"]} == classes | {
        "l1", "l2", "elasticnet"}
    assert seen["road"] == set(_cells.ROADS) and seen["path"] == {False, True}


def test_a_new_solver_is_in_the_table(monkeypatch):
    monkeypatch.setattr(Solver, "known", dict(Solver.known))
    _cells.solvers.cache_clear()
    try:
        class Another(Solver):
            variants = ({}, {"quick": True})

            def __init__(self, quick=False):
                self.quick = quick

        assert {"Another()", "Another(quick=True)"} < set(_cells.solvers())
    finally:
        _cells.solvers.cache_clear()


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_sample_covers_pairs(name):
    cells = sample_of(name, SEED)
    assert len(set(cells)) == len(cells)
    assert cells == sample_of(name, SEED) and cells != sample_of(name, SEED + 1)
    kind = _cells.kind_of(name)
    pairs = {(cell.outputs, cell.features) for cell in cells}
    assert pairs == {(one, other) for one in kind.outputs for other in kind.features}


# ------------------------------------------------------------- whether the check can fail


def fitted(name, **parts):
    cell = next(
        cell for cell in _cells.cells([name])
        if all(getattr(cell, axis) == value for axis, value in parts.items()))
    example = _cells.example(cell)
    return cell, model_of(cell).fit(*example), example


@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min", "Boost()"])
@pytest.mark.parametrize("name", ["MulticlassClassifier", "SequenceTagger", "GraphTagger"])
def test_wrong_certificates_are_violations(name, surrogate):
    cell, model, example = fitted(
        name, surrogate=surrogate, features="dense", penalty="elasticnet", solver="auto")
    assert check_fit(cell, model, example, 0, False) is None
    scale = model.duality_gap_ / model.relative_gap_

    def wrong(**attributes):
        other = clone(model)
        vars(other).update({**vars(model), **attributes})
        return check_fit(cell, other, example, 0, False)

    off = 0.01 * scale
    primal, dual, gap = model.primal_objective_, model.dual_objective_, model.duality_gap_
    assert "above primal" in wrong(dual_objective_=primal + off)
    assert "is less than" in wrong(primal_objective_=primal + off)
    assert "but the objective is" in wrong(primal_objective_=primal + off, duality_gap_=gap + off)
    assert "above tol" in wrong(relative_gap_=0.01)
    assert "above tol" in wrong(relative_gap_=2e-3, duality_gap_=2e-3 * scale)
    assert "but the objective is" in wrong(coef_=1.2 * np.asarray(model.coef_) + 0.3)
    assert wrong(dual_objective_=np.nan) and wrong(duality_gap_=-gap)
    if primal - dual > 1e-5 * scale:
        # no bound, with all else as if it were one
        assert wrong(dual_objective_=primal, duality_gap_=0.0, relative_gap_=0.0)


def test_refusals_of_other_cells_are_violations():
    cell = next(
        cell for cell in _cells.cells(["GraphTagger"])
        if cell.surrogate == "max_margin" and cell.solver == "QuasiNewton()")
    for words, rows, wrong in (
        ("solver=QuasiNewton() has no surrogate='max_margin'; use surrogate='log'.", [], None),
        ("solver=QuasiNewton() has no surrogate='log'.", [], "surrogate='log'"),
        ("solver=InteriorPoint() has no surrogate='max_margin'.", [], "solver=InteriorPoint()"),
        ("solver=QuasiNewton(): implement `tangent`.", [], "developers"),
        ("This is not possible.", [], "without naming"),
        ("solver=QuasiNewton() has no surrogate='max_margin'.", [{}], "after 1 certificates"),
    ):
        found = wrong_refusal(cell, words, rows)
        assert found is None if wrong is None else wrong in found, (words, found)
