"""Graphs whose nodes and edges are in a folder on disk."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.data._graph_arrays import as_node_labels
from fastm4n.data._graph_factors import (
    IN_FILES,
    as_factor_lists,
    functions,
    packed_factors,
    unpacked_factors,
)
from fastm4n.data._graphs import Graph, Graphs
from fastm4n.data.disk._arrays import StoredCSR
from fastm4n.data.disk._folders import Folder, batches_of, writing_folder
from fastm4n.data.disk._sequences import StoredSequences
from fastm4n.factors import CountFactor

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import Array, IntArray

_MATRICES = {
    "node_features": "node", "node_types": "node", "node_weights": "node", "edges": "edge",
    "edge_features": "edge", "edge_types": "edge",
}

# nodes that are written at once
_NODES = 1 << 16


class StoredGraphs(Graphs):
    """Graphs start ... stop - 1 of a folder; slices are of the same folder, and read nothing.

    Parameters
    ----------
    folder : Folder
    offsets : dict of ndarray of int64
        "node" and "edge": where those of each graph of the folder begin.
    start, stop : int
    """

    def __init__(
        self, folder: Any, offsets: dict[str, IntArray], start: int, stop: int,
    ) -> None:
        self.folder = folder
        self._offsets, self._start, self._stop = offsets, start, stop

    def _range(self, noun):
        """The first node, or edge, and the one after the last."""
        offsets = self._offsets[noun]
        return int(offsets[self._start]), int(offsets[self._stop])

    def _own(self, noun):
        offsets = self._offsets[noun][self._start : self._stop + 1]
        if self._start:
            offsets = offsets - offsets[0]
            offsets.flags.writeable = False
        return offsets

    def _matrix(self, name):
        matrix = self.folder.matrices.get(name)
        return None if matrix is None else matrix.rows(*self._range(_MATRICES[name]))

    node_offsets: cached_property[Array] = cached_property(lambda self: self._own("node"))
    edge_offsets: cached_property[Array] = cached_property(lambda self: self._own("edge"))
    node_features: cached_property[Array] = cached_property(
        lambda self: self._matrix("node_features"))
    node_types: cached_property[Array] = cached_property(lambda self: self._matrix("node_types"))
    node_weights: cached_property[Array] = cached_property(
        lambda self: self._matrix("node_weights"))
    edges: cached_property[Array] = cached_property(lambda self: self._matrix("edges"))
    edge_features: cached_property[Array] = cached_property(
        lambda self: self._matrix("edge_features"))
    edge_types: cached_property[Array] = cached_property(lambda self: self._matrix("edge_types"))

    @cached_property
    def factors(self) -> Any:
        if not self._has_factors():
            return None
        files = self.folder.files
        arrays = {}

        def cut(name, start, stop):
            """Offsets of these segments, from 0; the first and the last of the rows they cut."""
            offsets = files[f"factors.{name}"].rows(start, stop + 1)
            arrays[f"factors.{name}"] = offsets - offsets[0]
            return int(offsets[0]), int(offsets[-1])

        of_factors = cut("offsets", self._start, self._stop)
        of_nodes, of_values = (cut(f"{name}_offsets", *of_factors) for name in ("node", "value"))
        for names, rows in (
            (("least", "most"), of_factors), (("nodes", "sizes"), of_nodes),
            (("values",), of_values),
        ):
            for name in names:
                arrays[f"factors.{name}"] = files[f"factors.{name}"].rows(*rows)
        return as_factor_lists(unpacked_factors(arrays), self.lengths)

    def _has_factors(self):
        files = self.folder.files
        return "factors.least" in files and bool(
            files["factors.offsets"].rows(self._start, self._start + 1)
            < files["factors.offsets"].rows(self._stop, self._stop + 1))

    @property
    def n_nodes(self) -> int:
        start, stop = self._range("node")
        return stop - start

    @property
    def n_edges(self) -> int:
        start, stop = self._range("edge")
        return stop - start

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.folder.matrices["node_features"].dtype

    @property
    def n_bytes_on_disk(self) -> int:
        """Bytes of the arrays' numbers, factors apart."""
        return sum(
            matrix.n_bytes(*self._range(_MATRICES[name]))
            for name, matrix in self.folder.matrices.items() if name in _MATRICES)

    @property
    def fingerprint(self) -> str:
        """A text that is the same for the same graphs of folders of the same contents."""
        return f"{self.folder.fingerprint}-{self._start}-{self._stop}"

    def check(self) -> None:
        """Read all arrays, and refuse what the constructor of `Graphs` refuses.

        Opening a folder looks at sizes only. Fits check what they read; use ``X[a:b].check()``
        to look at some of the graphs.

        Raises
        ------
        ValueError
            That names the file and the row, or the folder and the graph, counted in this container.
        """
        for name, noun in _MATRICES.items():
            matrix = self.folder.matrices.get(name)
            if matrix is not None:
                matrix.check(*self._range(noun))
        try:
            Graphs(
                self.node_features, self.edges, self.node_offsets, self.edge_offsets,
                self.edge_features, self.node_types, self.edge_types, self.node_weights,
                self.factors)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.folder.path} is damaged: {error}") from error

    _check_rows = check

    def __len__(self) -> int:
        return self._stop - self._start

    def _one(self, i):
        one = self._slice(i, i + 1)
        for name, noun in _MATRICES.items():
            matrix = self.folder.matrices.get(name)
            if isinstance(matrix, StoredCSR):
                matrix.check(*one._range(noun), finite=False)
        return Graph(
            *(getattr(one, name) for name in Graph._fields[:-1]),
            None if one.factors is None else one.factors[0])

    def _slice(self, start, stop):
        return StoredGraphs(self.folder, self._offsets, self._start + start, self._start + stop)

    @classmethod
    def _of(cls, **arrays):
        return Graphs._of(**arrays)

    @classmethod
    def _concatenate(cls, parts, axis=0):
        return Graphs._concatenate(parts, axis)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; on disk in {str(self.folder.path)!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (
            str(self.folder.path), self._start, self._stop, self.folder.fingerprint)


def _opened(path):
    folder = Folder(path, "graphs")
    for name in ("node_features", "edges"):
        folder.matrix(name)
    offsets = {
        noun: folder.offsets(f"{noun}_offsets", folder.matrix(name).shape[0])
        for noun, name in (("node", "node_features"), ("edge", "edges"))}
    folder.check_same_length("node_offsets", "edge_offsets")
    for name, noun in _MATRICES.items():
        if name in folder.matrices:
            folder.check_n_rows(name, int(offsets[noun][-1]))
    folder.check_n_rows("y", int(offsets["node"][-1]))
    if "factors.offsets" in folder.files and "factors.least" in folder.files:
        folder.check_same_length("node_offsets", "factors.offsets")
        n_factors = folder.file("factors.least").shape[0]
        folder.offsets("factors.offsets", n_factors)
        for name, of in (("node_offsets", "nodes"), ("value_offsets", "values")):
            offsets_of = folder.offsets(f"factors.{name}", folder.file(f"factors.{of}").shape[0])
            if len(offsets_of) != n_factors + 1:
                raise ValueError(f"{path} is damaged: factors.{name} are not of all factors.")
        for name in IN_FILES:
            folder.file(f"factors.{name}")
    return StoredGraphs(folder, offsets, 0, len(offsets["node"]) - 1)


def opened(path, return_y):
    """What `Graphs.open` returns."""
    graphs = _opened(path)
    if not return_y:
        return graphs
    if "y" not in graphs.folder.matrices:
        raise ValueError(f"{path} has no labels: open it with return_y=False.")
    return graphs, StoredSequences(
        graphs.folder, "y", graphs._offsets["node"], 0, len(graphs))


def reopened(path, start, stop, fingerprint):
    """What was pickled, from the same folder."""
    graphs = _opened(path)
    graphs.folder.check_fingerprint(fingerprint)
    return graphs[start:stop]


def write(batches, path, overwrite):
    """Write batches of graphs, or pairs of them and labels of nodes, and open the folder."""
    with writing_folder(path, overwrite) as writer:
        first = None  # the first batch that is not empty, and the arrays that it has
        for k, (graphs, y) in enumerate(batches_of(batches, path)):
            pairs = y is not None
            place = f"batch {k}"
            try:
                graphs = Graphs.from_list(graphs)
                y = as_node_labels(y, graphs) if pairs else None
            except (TypeError, ValueError) as error:
                raise type(error)(f"Batch {k}: {error}") from error
            if len(graphs):
                has = {name for name in _MATRICES if getattr(graphs, name) is not None}
                first = first or (k, has)
                for name in sorted(has ^ first[1]):
                    raise ValueError(
                        f"Batch {k} has {'' if name in has else 'no '}{name}, batch {first[0]} has "
                        f"{'some' if name not in has else 'none'}; give them to all or to none.")
            # in pieces: a batch may be a container on disk
            step = max(1, len(graphs) * _NODES // max(1, graphs.n_nodes))
            for start in range(0, len(graphs), step):
                _append(writer, graphs[start : start + step], place)
            if pairs:
                writer.append("y", y, "y", place)
        writer.append_lengths("node_offsets", [])
        writer.append_lengths("edge_offsets", [])
        # what no batch has had any of
        for name, dtype, width in (
            ("node_features", float, 0), ("edges", np.int32, 2), ("node_types", np.int32, None),
            ("edge_types", np.int32, None), ("node_weights", float, None),
        ):
            if width is not None or (first is not None and name in first[1]):
                writer.append_if_none(name, np.empty(0 if width is None else (0, width), dtype))
        if pairs:
            writer.append_if_none("y", np.empty(0))
        writer.finish("graphs")
    return opened(path, pairs)


def _append(writer, graphs, place):
    for name in _MATRICES:
        array = getattr(graphs, name)
        if array is not None:
            writer.append(name, array, name, place)
    writer.append_lengths("node_offsets", graphs.lengths)
    writer.append_lengths("edge_offsets", graphs.edge_lengths)
    # graphs without factors have none of them, whatever later batches have
    factors = (None,) * len(graphs) if graphs.factors is None else graphs.factors
    packed = packed_factors(factors, len(graphs))
    writer.append_lengths("factors.offsets", np.diff(packed["factors.offsets"]))
    if not len(packed["factors.least"]):
        return
    writer.append_lengths("factors.node_offsets", np.diff(packed["factors.node_offsets"]))
    writer.append_lengths("factors.value_offsets", [
        0 if isinstance(function, CountFactor) else function[1].size
        for part in factors for function in functions(part)])
    for name in ("nodes", "sizes", "least", "most", "values"):
        writer.append_file(f"factors.{name}", packed[f"factors.{name}"])
