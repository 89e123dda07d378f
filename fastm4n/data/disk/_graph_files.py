"""Files of graphs: npz archives of arrays, dense or sparse; and what folders of them are opened by.

`InFiles` is what `Graphs` has of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.base.atomic import replacing
from fastm4n.base.checks import check_flag
from fastm4n.base.npz import read_npz
from fastm4n.data._graph_arrays import as_node_labels
from fastm4n.data._graph_factors import packed_factors, unpacked_factors
from fastm4n.data._sequences import Sequences

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.types import StrPath

# arguments of `Graphs` that are arrays
ARRAYS = (
    "node_features", "node_types", "node_weights", "edges", "edge_features", "edge_types",
    "node_offsets", "edge_offsets")


def write_arrays(path, arrays):
    """Write arrays by name, sparse ones as their parts; what is None is left out."""
    parts = {}
    for name, array in arrays.items():
        if sp.issparse(array):
            for part in ("data", "indices", "indptr"):
                parts[f"{name}.{part}"] = getattr(array, part)
            parts[f"{name}.shape"] = np.array(array.shape)
        elif array is not None:
            parts[name] = array
    with replacing(path) as file:
        np.savez(file, **parts)


def read_arrays(path):
    """The arrays of an npz file."""
    try:
        return read_npz(path)
    except ValueError as error:
        raise ValueError(f"{path} is no file of graphs: {error}") from error


def unpacked(arrays, name):
    """An array of a file, dense or sparse; None if it has none."""
    if f"{name}.data" not in arrays:
        return arrays.get(name)
    parts = []
    for part in ("data", "indices", "indptr", "shape"):
        if f"{name}.{part}" not in arrays:
            raise ValueError(f"it has no array '{name}.{part}'")
        parts.append(arrays[f"{name}.{part}"])
    data, indices, indptr, shape = parts
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not (
            0 <= min(shape.tolist()) <= max(shape.tolist()) < 2**63):
        raise ValueError(f"{name}.shape is {shape!r:.80}, and no pair of counts")
    return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))


def graph_arrays(arrays):
    """Arguments of `Graphs` that a file's arrays are."""
    given = {name: unpacked(arrays, name) for name in ARRAYS}
    for name in ("node_features", "edges", "node_offsets", "edge_offsets"):
        if given[name] is None:
            raise ValueError(f"it has no array {name!r}")
    return {**given, "factors": unpacked_factors(arrays)}


class InFiles:
    """The methods of `Graphs` that write and read files and folders."""

    def save(self, path: StrPath, y: Sequences | ArrayLike | None = None, **arrays: Any) -> None:
        """Write the graphs, and labels of their nodes, to an npz file.

        The file has the arrays of the constructor by their names, a sparse one as its `data`,
        `indices`, `indptr` and `shape` ("node_features.data", ...), factors as such parts, too, and
        the labels of all nodes as "y". It is written whole or not at all.

        Parameters
        ----------
        path : str or path
        y : Sequences, list of arrays, or array of shape (n_nodes,), default=None
            Numbers or strings.
        **arrays : ndarray
            Whatever else the file is to hold, by name: which graphs are for tests, say.

        Examples
        --------
        >>> import os, tempfile
        >>> from fastm4n import Graphs
        >>> graphs = Graphs.from_list([([[1.0], [2.0]], [[0, 1]])])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "graphs.npz")
        ...     graphs.save(path, [["cat", "dog"]])
        ...     again, y = Graphs.load(path, return_y=True)
        >>> again.equals(graphs), y.values
        (True, array(['cat', 'dog'], dtype='<U3'))
        """
        own = {
            **{name: getattr(self, name) for name in ARRAYS},
            "y": None if y is None else as_node_labels(y, self),
            **packed_factors(self.factors, len(self)),
        }
        for name in arrays:
            if name.split(".")[0] in (*own, "factors"):
                raise ValueError(f"The array {name!r} is one of the graphs: give it another name.")
        write_arrays(path, {**own, **arrays})

    @classmethod
    def load(cls, path: StrPath, return_y: bool = False) -> Any:
        """Read graphs from an npz file that has the arrays of :meth:`save`.

        Parameters
        ----------
        path : str or path
        return_y : bool, default=False

        Returns
        -------
        graphs : Graphs
        y : Sequences
            Only if return_y.
        """
        check_flag("return_y", return_y)
        arrays = read_arrays(path)
        try:
            graphs = cls(**graph_arrays(arrays))
            if not return_y:
                return graphs
            if "y" not in arrays:
                raise ValueError("it has no labels, the array 'y'")
            return graphs, Sequences(as_node_labels(arrays["y"], graphs), graphs.node_offsets)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is no file of graphs: {error}") from error

    @classmethod
    def from_batches(
        cls, batches: Iterable[Any], folder: StrPath, *, overwrite: bool = False,
    ) -> Any:
        """Write graphs to a folder, batch by batch, and open it: :meth:`Sequences.from_batches`.

        Parameters
        ----------
        batches : iterable
            Each batch is `Graphs` or a list of graphs as of :meth:`from_list`; or a tuple (X, y) of
            that and the labels of its nodes.
        folder : str or path
        overwrite : bool, default=False

        Returns
        -------
        graphs : Graphs, or a tuple (X, y) of them and `Sequences` if batches are pairs

        Examples
        --------
        >>> import os, tempfile
        >>> from fastm4n import Graphs
        >>> batches = ([([[float(i)], [2.0]], [[0, 1]])] * 3 for i in range(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     graphs = Graphs.from_batches(batches, os.path.join(folder, "train"))
        ...     len(graphs), graphs.n_edges, graphs[4].node_features.tolist()
        (6, 6, [[1.0], [2.0]])
        """
        from fastm4n.data.disk._graphs import write

        return write(batches, folder, overwrite)

    @classmethod
    def open(cls, folder: StrPath, *, return_y: bool = False) -> Any:
        """Open a folder that :meth:`from_batches` has written: as :meth:`Sequences.open`.

        Parameters
        ----------
        folder : str or path
        return_y : bool, default=False
            Whether to return the labels of the nodes that the folder has, too.

        Returns
        -------
        graphs : Graphs
        y : Sequences
            Only if return_y.
        """
        from fastm4n.data.disk._graphs import opened

        check_flag("return_y", return_y)
        return opened(folder, return_y)
