"""The table of cells: which parts of fits can meet, listed from the code itself.

A cell names an estimator, a kind of outputs, a surrogate, the form of the features, a penalty, a
solver, the road that the data take, and whether the fit is a whole regularisation path.  Surrogates
come from the estimators, penalties and solvers from their classes, roads from what the estimators
have, and data from `Task.example`. Kinds of outputs and features are in `KINDS`.  A new
surrogate, penalty or solver is in the table by existing; a new estimator asks for its kind.

`tests/table.py` fits the cells and holds their certificates to enumeration.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from fastm4n.estimators._table import PREDICTORS
from fastm4n.factors import CountFactor
from fastm4n.penalties._penalties import L2, NAMES, _Penalty
from fastm4n.solvers import choice  # noqa: F401 (solvers register when they are imported)
from fastm4n.solvers.base import Solver
from fastm4n.surrogates import SURROGATES
from fastm4n.surrogates._parameters import _Surrogate
from fastm4n.tasks.chain_weights import Transitions
from fastm4n.tasks.parameters import n_examples

if TYPE_CHECKING:
    from collections.abc import Iterator

ROADS = ("memory", "folder", "calls", "partitions")
ROADS_OF_PATHS = ROADS[:2]


class Cell(NamedTuple):
    """One cell; all but `path` are names."""

    estimator: str
    outputs: str
    surrogate: str
    features: str
    penalty: str
    solver: str
    road: str
    path: bool


class Example(NamedTuple):
    """Data of a cell: what `fit` takes, and a weight of each example."""

    X: Any
    y: Any
    weights: np.ndarray


@dataclass
class Kind:
    """What the estimators of one kind of outputs are tried with.

    Attributes
    ----------
    outputs, features : dict of str to dict
        Parameters by the name of a variant. Those that begin with an underscore are arguments of
        `Task.example`.
    penalties : tuple
        Penalties beside those of all estimators.
    """

    outputs: dict[str, dict[str, Any]]
    features: dict[str, dict[str, Any]]
    penalties: tuple[Any, ...] = field(default=())


# ------------------------------------------------------------------------------- kinds

_MATRIX = [[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 0.75, 0.0]]
_VECTORS = {
    "dense": {}, "csr": {"_csr": True}, "no intercept": {"fit_intercept": False},
    "rbf": {"kernel": "rbf", "gamma": 0.5}, "precomputed": {"kernel": "precomputed"},
}
_FREE = {
    "free": {"fit_intercept": "free"}, "csr, free": {"fit_intercept": "free", "_csr": True},
    "rbf, free": {"fit_intercept": "free", "kernel": "rbf", "gamma": 0.5},
}
_SINGLE = Kind(
    {"zero_one": {"cost": "zero_one"}, "absolute": {"cost": "absolute"},
     "matrix": {"cost": _MATRIX}},
    {**_VECTORS, **_FREE})
KINDS = {
    "classes": Kind(
        {**_SINGLE.outputs, "declared": {"classes": [0, 1, 2, 3]}}, _SINGLE.features),
    "ordered": Kind(
        {**_SINGLE.outputs, "absolute, classes": {"cost": "absolute", "form": "classes"},
         "thresholds": {"form": "thresholds"}}, _SINGLE.features),
    "multilabel": Kind(
        {"none": {"graph": "none"}, "one label": {"_labels": 1}, "tree": {"graph": "tree"},
         "complete": {"graph": "complete"},
         "exact": {"graph": "complete", "inference": "exact"},
         "lp": {"graph": "complete", "inference": "lp"},
         "min_cut": {"graph": "tree", "inference": "min_cut"},
         "unknown": {"graph": "tree", "_unknown": True},
         "unknown, complete": {"graph": "complete", "_unknown": True, "cost": [1.0, 0.5, 2.0]},
         "costs": {"graph": "none", "cost": [[[0, 1.0], [0.5, 0]]] * 2 + [[[0, 2.0], [1.0, 0]]]},
         "constraints": {"graph": "complete", "constraints": CountFactor.at_most_one([0, 1, 2])}},
        {**_VECTORS, **_FREE}, penalties=(L2(bounds={"edge_coef": (0, None)}),)),
    "rankings": Kind(
        {"zero_one": {"cost": "zero_one"}, "squared": {"cost": "squared", "cost_scale": "mean"},
         "matrix": {"cost": _MATRIX}, "first positions": {"n_positions": 1},
         "partial": {"cost": "absolute", "_is_partial": True}}, _VECTORS),
    "matchings": Kind(
        {"equal": {}, "sizes differ": {"_sizes_differ": True},
         "absolute": {"cost": "absolute", "cost_scale": "mean"},
         "rectangular": {"_shapes": ((2, 3), (3, 2), (1, 2), (2, 2))},
         "unmatched learnt": {"unmatched": "learn", "_shapes": ((2, 3), (3, 2), (1, 1), (2, 2))},
         "unmatched given": {
             "unmatched": -0.5, "cost_scale": "mean", "_shapes": ((2, 3), (3, 2), (2, 2))},
         "unmatched, matrix": {
             "unmatched": "learn", "cost": _MATRIX, "_shapes": ((2, 2), (3, 2), (1, 2))}},
        {"dense": {}, "rbf": {"kernel": "rbf", "gamma": 0.5}}),
    "sequences": Kind(
        {"chain": {}, "squared": {"cost": "squared", "cost_scale": "mean"},
         "order 2": {"transitions": Transitions(order=2)},
         "constraints": {"constraints": "0* 1*"}, "class weights": {"class_weight": {1: 2.0}},
         "declared": {"classes": [0, 1, 2, 3]},
         "weights, constraints": {"class_weight": {1: 0.5}, "constraints": "0* 1*"},
         "no transitions": {"transitions": Transitions(pairs=False)}},
        {"dense": {}, "csr": {"_csr": True}, "attributes": {"_attributes": True},
         "edges": {"transitions": Transitions(features="all")},
         "observed": {"states": "observed", "_csr": True},
         "no constants": {"fit_intercept": False, "transitions": False}}),
    "graphs": Kind(
        {"nodes": {"_shape": "nodes"}, "forest": {"_shape": "forest", "_weights": True},
         "cycles": {"_shape": "triangles"},
         "3 labels": {"_shape": "triangles", "_labels": 3},
         "3 labels, lp": {"_shape": "triangles", "_labels": 3, "inference": "lp"},
         "2 labels, lp": {"_shape": "triangles", "inference": "lp", "cost_scale": "mean"},
         "attractive": {"_shape": "triangles", "pairwise": "attractive"},
         "exact": {"_shape": "triangles", "inference": "exact"},
         "symmetric": {"_shape": "triangles", "_labels": 3, "pairwise": "symmetric"},
         "potts": {"_shape": "forest", "pairwise": "potts", "cost": "squared"},
         "potts, lp": {
             "_shape": "triangles", "_labels": 3, "pairwise": "potts", "inference": "lp"},
         "displacement": {
             "_shape": "forest", "pairwise": "displacement", "grid_shape": (1, 2)},
         "types": {"_shape": "forest", "_types": True},
         "declared": {"_shape": "forest", "classes": [0, 1, 2]},
         "factors": {"_shape": "triangles", "_factor": CountFactor.budget([0, 1, 2], 2)}},
        {"dense": {}, "csr": {"_csr": True}, "edges": {"_edge_features": True},
         "label features": {"label_features": True}}),
}

# ------------------------------------------------------------------------------- table


def kind_of(estimator: str) -> Kind:
    """What the estimator of this name is tried with."""
    task = PREDICTORS[estimator]._task
    if task not in KINDS:
        raise LookupError(
            f"{estimator} is not in the table of cells: give KINDS of "
            f"fastm4n.estimators._cells the kind {task!r}.")
    return KINDS[task]


@cache
def surrogates() -> dict[str, Any]:
    """The surrogates by name; those of research are among them once it is imported."""
    objects = [
        cls(**more) for cls in _Surrogate.known.values() for more in cls._variants
        if more or cls.name not in SURROGATES]
    return {name: name for name in SURROGATES} | {
        repr(surrogate): surrogate for surrogate in objects}


@cache
def penalties(estimator: str) -> dict[str, Any]:
    """The penalties by name."""
    found = {name: name for name in NAMES}
    objects = [cls(**more) for cls in _Penalty.__subclasses__() for more in cls._variants]
    return found | {repr(penalty): penalty for penalty in (
        *objects, *kind_of(estimator).penalties)}


@cache
def solvers() -> dict[str, Any]:
    """The solvers by name."""
    objects = [cls(**more) for cls in Solver.known.values() for more in cls.variants]
    return {"auto": "auto"} | {repr(solver): solver for solver in objects}


def roads(estimator: str) -> list[str]:
    """The roads that data of this estimator can take."""
    cls = PREDICTORS[estimator]
    has = {
        "memory": True, "folder": cls._task_class.chunks is not None,
        "calls": hasattr(cls, "partial_fit"), "partitions": True,
    }
    return [road for road in ROADS if has[road]]


def cells(estimators: Any = None) -> Iterator[Cell]:
    """All cells, those of one problem one after another."""
    for name in PREDICTORS if estimators is None else estimators:
        kind = kind_of(name)
        for problem in product(
                kind.outputs, surrogates(), kind.features, penalties(name)):
            for solver, road in product(solvers(), roads(name)):
                yield Cell(name, *problem, solver, road, False)
                if road in ROADS_OF_PATHS:
                    yield Cell(name, *problem, solver, road, True)


def variant(estimator: str, outputs: str, features: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of the estimator for a kind of outputs and features, and those of its example."""
    kind = kind_of(estimator)
    given = {**kind.outputs[outputs], **kind.features[features]}
    form = {name[1:]: given.pop(name) for name in list(given) if name.startswith("_")}
    return given, form


def parameters(cell: Cell) -> dict[str, Any]:
    """Parameters of the estimator of a cell."""
    given, _ = variant(cell.estimator, cell.outputs, cell.features)
    return {
        **given,
        "surrogate": clone(surrogates()[cell.surrogate], safe=False),
        "penalty": clone(penalties(cell.estimator)[cell.penalty], safe=False),
        "solver": clone(solvers()[cell.solver], safe=False),
    }


def example(cell: Cell, seed: int = 0) -> Example:
    """The data of a cell; the same for all cells that differ in solver, penalty or road alone."""
    estimator = PREDICTORS[cell.estimator](**parameters(cell))
    _, form = variant(cell.estimator, cell.outputs, cell.features)
    rng = np.random.default_rng([seed, zlib.crc32("|".join(cell[:4]).encode())])
    X, y = estimator._task_class(estimator).example(rng, **form)
    return Example(X, y, rng.choice([0.5, 1.0, 2.0], size=n_examples(X)))
