"""The table of cells: which parts of fits can meet, listed from the code itself.

A cell names an estimator, a kind of outputs, a surrogate, the form of the features, a penalty, a
solver, the road that the data take, and whether the fit is a whole regularisation path.  Surrogates
come from the estimators, penalties and solvers from their classes, roads from what the estimators
have; kinds of outputs and features are in `KINDS`, with a small random example of each.  A new
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
from scipy import sparse
from sklearn.base import clone

from fastm4n.data._graphs import Graphs
from fastm4n.data._sequences import Sequences
from fastm4n.datasets import rows_from_batches
from fastm4n.estimators._table import PREDICTORS
from fastm4n.factors import CountFactor
from fastm4n.penalties._penalties import L2, NAMES, _Penalty
from fastm4n.solvers import choice  # noqa: F401 (solvers register when they are imported)
from fastm4n.solvers.base import Solver
from fastm4n.surrogates import SURROGATES
from fastm4n.surrogates._parameters import _Surrogate
from fastm4n.tasks.places import n_examples
from fastm4n.tasks.transitions import Transitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
        Parameters by the name of a variant. Keys that begin with an underscore are told to `make`.
    make : callable
        ``make(rng, outputs, features)`` gives X and y.
    stored : callable or None
        ``stored(X, y, folder)`` gives them as they are opened from a folder; None where there are
        no folders of such data.
    penalties : tuple
        Penalties beside those of all estimators.
    """

    outputs: dict[str, dict[str, Any]]
    features: dict[str, dict[str, Any]]
    make: Callable[..., tuple[Any, Any]]
    stored: Callable[..., tuple[Any, Any]] | None = None
    penalties: tuple[Any, ...] = field(default=())


# --------------------------------------------------------------------- data of each kind


def quarters(rng, *shape):
    """Numbers that float32 holds as well, some of them zero."""
    values = np.round(4.0 * rng.normal(size=shape)) / 4.0
    values[rng.random(shape) < 0.2] = 0.0
    return values


def _as_given(X, features):
    """Rows in the form of a variant of the features."""
    if features.get("_csr"):
        return sparse.csr_array(X)
    if features.get("kernel") == "precomputed":
        return X @ X.T + np.eye(len(X))
    return X


def _labels(rng, outputs, features):
    X = quarters(rng, 6, 2)
    y = np.array([0, 1, 2, *rng.integers(3, size=3)])
    return _as_given(X, features), y


def _label_sets(rng, outputs, features):
    X, y = quarters(rng, 5, 2), rng.integers(2, size=(5, outputs.get("_labels", 3)))
    y[0], y[1] = 0, 1
    if "constraints" in outputs:
        y = np.eye(y.shape[1], dtype=int)[rng.integers(y.shape[1], size=len(y))]
    return _as_given(X, features), y


def _rankings(rng, outputs, features):
    return _as_given(quarters(rng, 5, 2), features), np.array(
        [rng.permutation(3) for _ in range(5)])


def _matchings(rng, outputs, features):
    sizes = (3, 2, 1, 3) if outputs.get("_sizes_differ") else (3, 3, 3)
    X = [quarters(rng, size, size, 2) for size in sizes]
    y = [rng.permutation(size) for size in sizes]
    return (X, y) if outputs.get("_sizes_differ") else (np.array(X), np.array(y))


def _sequences(rng, outputs, features):
    lengths = (3, 1, 2, 3)
    X = [quarters(rng, length, 2) for length in lengths]
    y = [rng.integers(2, size=length) for length in lengths]
    y[0][:2] = 0, 1
    if "constraints" in outputs:
        y = [np.sort(labels) for labels in y]
    if features.get("_csr"):
        X = [sparse.csr_array(x) for x in X]
    if features.get("_attributes"):
        X = [[{f"x{j}": float(v) for j, v in enumerate(row)} for row in x] for x in X]
    return X, y


_SHAPES = {
    "nodes": ([], [], []), "forest": ([(0, 1), (2, 1)], [(1, 0)], [(0, 2)]),
    "triangles": ([(0, 1), (1, 2), (2, 0)], [(0, 1)], [(1, 0), (2, 1), (0, 2)]),
}


def _graphs(rng, outputs, features):
    labels, graphs, y = outputs.get("_labels", 2), [], []
    for edges in _SHAPES[outputs["_shape"]]:
        columns = 2 * labels if features.get("label_features") else 2
        nodes = quarters(rng, 3, columns)
        y.append(rng.integers(labels, size=3))
        of_edges = np.array(edges, dtype=int).reshape(-1, 2)
        graphs.append([nodes, of_edges])
        if features.get("_edge_features"):
            graphs[-1].append(np.abs(quarters(rng, len(of_edges), 2)))
    y[0][:labels] = np.arange(labels)
    X = Graphs.from_list([tuple(graph) for graph in graphs])
    more = {}
    if outputs.get("_types"):
        more["node_types"] = np.arange(X.n_nodes) % 2
    if outputs.get("_weights"):
        more["node_weights"] = rng.uniform(0.5, 2.0, X.n_nodes)
    if "_factor" in outputs:
        more["factors"] = [outputs["_factor"]] * len(X)
        y = [np.array([1, 0, 1])] * len(X)
    if features.get("_csr"):
        more["node_features"] = sparse.csr_array(X.node_features)
    if more:
        given = dict(
            node_features=X.node_features, edges=X.edges, node_offsets=X.node_offsets,
            edge_offsets=X.edge_offsets, edge_features=X.edge_features)
        X = Graphs(**{**given, **more})
    if outputs.get("_types"):
        # every label of each type
        y = [np.arange(3) // 2 % labels if i == 0 else labels_ for i, labels_ in enumerate(y)]
        y[1] = 1 - y[0]
    return X, y


def _stored_rows(X, y, folder):
    stored = rows_from_batches([X], folder)
    return stored, y


def _stored_sequences(X, y, folder):
    Sequences.from_list(X).save(folder)
    return Sequences.open(folder), y


def _stored_graphs(X, y, folder):
    return Graphs.from_batches([X], folder), y


# ------------------------------------------------------------------------------- kinds

_MATRIX = [[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 0.75, 0.0]]
_VECTORS = {
    "dense": {}, "csr": {"_csr": True}, "no intercept": {"fit_intercept": False},
    "rbf": {"kernel": "rbf", "gamma": 0.5}, "precomputed": {"kernel": "precomputed"},
}
_SINGLE = Kind(
    {"zero_one": {"cost": "zero_one"}, "absolute": {"cost": "absolute"},
     "matrix": {"cost": _MATRIX}},
    {**_VECTORS, "free": {"fit_intercept": "free"},
     "csr, free": {"fit_intercept": "free", "_csr": True},
     "rbf, free": {"fit_intercept": "free", "kernel": "rbf", "gamma": 0.5}},
    _labels, _stored_rows)
KINDS = {
    "classes": _SINGLE,
    "ordered": _SINGLE,
    "multilabel": Kind(
        {"none": {"graph": "none"}, "one label": {"_labels": 1}, "tree": {"graph": "tree"},
         "complete": {"graph": "complete"},
         "exact": {"graph": "complete", "inference": "exact"},
         "lp": {"graph": "complete", "inference": "lp"},
         "min_cut": {"graph": "tree", "inference": "min_cut"},
         "constraints": {"graph": "complete", "constraints": CountFactor.at_most_one([0, 1, 2])}},
        _VECTORS, _label_sets, penalties=(L2(bounds={"edge_coef": (0, None)}),)),
    "rankings": Kind(
        {"zero_one": {"cost": "zero_one"}, "squared": {"cost": "squared", "cost_scale": "mean"},
         "matrix": {"cost": _MATRIX}}, _VECTORS, _rankings),
    "matchings": Kind(
        {"equal": {}, "sizes differ": {"_sizes_differ": True},
         "absolute": {"cost": "absolute", "cost_scale": "mean"}},
        {"dense": {}, "rbf": {"kernel": "rbf", "gamma": 0.5}}, _matchings),
    "sequences": Kind(
        {"chain": {}, "squared": {"cost": "squared", "cost_scale": "mean"},
         "order 2": {"transitions": Transitions(order=2)},
         "constraints": {"constraints": "0* 1*"},
         "no transitions": {"transitions": Transitions(pairs=False)}},
        {"dense": {}, "csr": {"_csr": True}, "attributes": {"_attributes": True},
         "edges": {"transitions": Transitions(features="all")},
         "observed": {"states": "observed", "_csr": True},
         "no constants": {"fit_intercept": False, "transitions": False}},
        _sequences, _stored_sequences),
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
         "displacement": {
             "_shape": "forest", "pairwise": "displacement", "grid_shape": (1, 2)},
         "types": {"_shape": "forest", "_types": True},
         "factors": {"_shape": "triangles", "_factor": CountFactor.budget([0, 1, 2], 2)}},
        {"dense": {}, "csr": {"_csr": True}, "edges": {"_edge_features": True},
         "label features": {"label_features": True}},
        _graphs, _stored_graphs),
}

# ------------------------------------------------------------------------------- table


def kind_of(estimator: str) -> Kind:
    """What the estimator of this name is tried with."""
    task = PREDICTORS[estimator]._task
    if task not in KINDS:
        raise LookupError(
            f"{estimator} is not in the table of cells: give KINDS of "
            f"fastm4n.estimators._cells the kind {task!r}, with an example.")
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
        "memory": True, "folder": kind_of(estimator).stored is not None,
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


def parameters(cell: Cell) -> dict[str, Any]:
    """Parameters of the estimator of a cell."""
    kind = kind_of(cell.estimator)
    given = {
        **kind.outputs[cell.outputs], **kind.features[cell.features],
        "surrogate": clone(surrogates()[cell.surrogate], safe=False),
        "penalty": clone(penalties(cell.estimator)[cell.penalty], safe=False),
        "solver": clone(solvers()[cell.solver], safe=False),
    }
    return {name: value for name, value in given.items() if not name.startswith("_")}


def example(cell: Cell, seed: int = 0) -> Example:
    """The data of a cell; the same for all cells that differ in solver, penalty or road alone."""
    kind = kind_of(cell.estimator)
    key = zlib.crc32("|".join(cell[:4]).encode())
    rng = np.random.default_rng([seed, key])
    X, y = kind.make(rng, kind.outputs[cell.outputs], kind.features[cell.features])
    n = n_examples(X)
    return Example(X, y, rng.choice([0.5, 1.0, 2.0], size=n))
