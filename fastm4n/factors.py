"""Factors: scores or constraints of more than two nodes of a graph at once.

Tables, counts and their container stand in one file, as each is made of the others.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias, Union

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import Array, BoolArray, FloatArray, IntArray

    Factors: TypeAlias = Union[
        "FactorTables", "CountFactor", tuple[Any, Any],
        Sequence[Union["FactorTables", "CountFactor", tuple[Any, Any]]],
    ]

# most entries of a single table for a count; longer counts become chains of tables
_DIRECT = 64
# most entries of the tables of such a chain
_MOST_COUNTED = 20_000_000


class TooLarge(ValueError):
    """Tables of an elimination with too many entries."""


def _as_nodes(name, nodes):
    nodes = np.asarray(nodes)
    if nodes.ndim != 1 or nodes.dtype.kind not in "iu" and nodes.size:
        raise ValueError(f"{name} must be a one-dimensional array of integers.")
    nodes = nodes.astype(np.intp)
    if nodes.size and nodes.min() < 0:
        raise ValueError(f"{name} has node {nodes.min()}: nodes are counted from 0.")
    values, counts = np.unique(nodes, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"{name} has node {values[counts > 1][0]} twice.")
    return nodes


def _as_scores(name, scores, shape):
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if scores.ndim != 2 or scores.shape[0] != shape[0] or scores.shape[1] < shape[1]:
        raise ValueError(
            f"{name} must have shape ({shape[0]}, {shape[1]}), a row for each node, got "
            f"{scores.shape}.")
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise ValueError(f"{name} must be finite or -inf.")
    return scores


class FactorTables:
    """Scores of the labels of several nodes together, as tables.

    Parameters
    ----------
    scopes : array-like of int of shape (n_nodes_of_all_factors,)
        The distinct nodes of each factor, one factor after another.
    offsets : array-like of int of shape (n_factors + 1,)
        The nodes of factor f are ``scopes[offsets[f]:offsets[f + 1]]``.
    tables : list of ndarray
        Scores, finite or -inf: ``table[a, b, c]`` is the score of labels a, b and c of the
        factor's first, second and third node.
    parameter : array-like of int of shape (n_factors,), default=None
        Number of each factor's table, which factors may share. By default factor f has table f.

    Examples
    --------
    Three nodes should have the same label:

    >>> import numpy as np
    >>> from fastm4n import FactorTables
    >>> same = np.zeros((2, 2, 2))
    >>> same[0, 0, 0] = same[1, 1, 1] = 1.5
    >>> factors = FactorTables([0, 1, 2, 2, 3, 4], [0, 3, 6], [same], parameter=[0, 0])
    >>> len(factors), factors.scope(1).tolist()
    (2, [2, 3, 4])
    >>> value, labels = factors.maximise(1, [[0.0, 1.0], [0.0, 0.0], [0.5, 0.0]])
    >>> value, labels.tolist()
    (2.5, [1, 1, 1])
    """

    offsets: IntArray
    scopes: IntArray
    tables: list[Array]
    parameter: IntArray | None

    def __init__(
        self, scopes: ArrayLike, offsets: ArrayLike, tables: list[Array],
        parameter: ArrayLike | None = None,
    ) -> None:
        scopes, offsets = np.asarray(scopes), np.asarray(offsets)
        if offsets.ndim != 1 or offsets.size == 0 or offsets.dtype.kind not in "iu":
            raise ValueError("offsets must be an array of n_factors + 1 integers.")
        n_factors = offsets.size - 1
        if offsets[0] != 0 or (np.diff(offsets.astype(np.intp)) < 0).any() or (
                scopes.ndim != 1 or offsets[-1] != scopes.size):
            raise ValueError(
                "offsets must begin with 0, not decrease, and end with the length of scopes, "
                f"{scopes.size}.")
        self.offsets = offsets.astype(np.intp)
        parts = np.split(scopes, self.offsets[1:-1]) if n_factors else []
        self.scopes = np.concatenate(
            [_as_nodes(f"the scope of factor {f}", part) for f, part in enumerate(parts)]
            or [np.zeros(0, dtype=np.intp)])
        self.tables = [_as_table(t, table) for t, table in enumerate(tables)]
        if parameter is None:
            if len(self.tables) != n_factors:
                raise ValueError(
                    f"there are {len(self.tables)} tables for {n_factors} factors: pass parameter, "
                    "the number of each factor's table.")
            parameter = np.arange(n_factors)
        parameter = np.asarray(parameter)
        if parameter.shape != (n_factors,) or parameter.dtype.kind not in "iu" and n_factors:
            raise ValueError(f"parameter must be an array of {n_factors} integers.")
        self.parameter = parameter.astype(np.intp)
        for f, t in enumerate(self.parameter):
            if not 0 <= t < len(self.tables):
                raise ValueError(
                    f"factor {f} has table {t}, but there are {len(self.tables)} tables.")
            order = self.offsets[f + 1] - self.offsets[f]
            if order == 0:
                raise ValueError(f"factor {f} has no nodes.")
            if self.tables[t].ndim != order:
                raise ValueError(
                    f"factor {f} has {order} nodes, but its table {t} has {self.tables[t].ndim} "
                    "dimensions.")

    @classmethod
    def from_list(cls, factors: Factors) -> FactorTables:
        """Make factors from pairs of nodes and their table.

        Parameters
        ----------
        factors : list of (nodes, table)

        Examples
        --------
        >>> from fastm4n import FactorTables
        >>> len(FactorTables.from_list([([0, 2], [[0, 1], [1, 0]])]))
        1
        """
        factors = list(factors)
        nodes = [np.asarray(nodes) for nodes, _ in factors]
        return cls(
            np.concatenate(nodes) if nodes else np.zeros(0, dtype=np.intp),
            np.concatenate([[0], np.cumsum([part.size for part in nodes])]).astype(np.intp),
            [table for _, table in factors])

    def __len__(self) -> int:
        return len(self.parameter)

    def __repr__(self) -> str:
        return f"FactorTables({len(self)} factors, {len(self.tables)} tables)"

    def scope(self, f: int) -> IntArray:
        """Nodes of a factor.

        Parameters
        ----------
        f : int
            Number of the factor.
        """
        return self.scopes[self.offsets[f]:self.offsets[f + 1]]

    def table(self, f: int) -> FloatArray:
        """Scores of a factor.

        Parameters
        ----------
        f : int
            Number of the factor.
        """
        return self.tables[self.parameter[f]]

    def maximise(self, f: int, scores: ArrayLike) -> tuple[float, IntArray]:
        """Maximise the score of factor f and its nodes.

        Parameters
        ----------
        f : int
        scores : array-like of shape (n_nodes, n_labels)
            Scores of the labels of the factor's nodes.

        Returns
        -------
        value : float
        labels : ndarray of int of shape (n_nodes,)
        """
        table = self.table(f)
        scores = _as_scores("scores", scores, (table.ndim, max(table.shape, default=0)))
        total = table.copy()
        for axis, size in enumerate(table.shape):
            shape = np.ones(table.ndim, dtype=int)
            shape[axis] = size
            total += scores[axis, :size].reshape(shape)
        best = int(np.argmax(total))
        return float(total.flat[best]), np.array(
            np.unravel_index(best, table.shape), dtype=np.intp)

    def score(self, labels: ArrayLike) -> float:
        """Compute the score of a labelling of the graph in all factors.

        Parameters
        ----------
        labels : array-like of int
            Labels of all nodes of the graph.
        """
        labels = np.asarray(labels)
        return float(sum(
            self.table(f)[tuple(labels[self.scope(f)])] for f in range(len(self))))

    def _functions(self, sizes):
        """(nodes, table) of each factor, checked against numbers of labels of all nodes."""
        for f in range(len(self)):
            scope, table = self.scope(f), self.table(f)
            expected = tuple(int(size) for size in sizes[scope])
            if table.shape != expected:
                raise ValueError(
                    f"factor {f} has a table of shape {table.shape}, but its nodes "
                    f"{scope.tolist()} have {expected} labels, counted in y.")
            yield scope, table


def _as_table(t, table):
    try:
        table = np.ascontiguousarray(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"table {t} must be an array of real numbers: {error}") from error
    if table.size == 0:
        raise ValueError(f"table {t} has shape {table.shape}, without labels.")
    if np.isnan(table).any() or (table == np.inf).any():
        raise ValueError(f"table {t} must be finite numbers or -inf.")
    return table


class CountFactor:
    """A constraint on the number of nodes that have a label.

    Use `exactly_one`, `at_most_one`, `at_least_one` and `budget` for common cases.

    Parameters
    ----------
    nodes : array-like of int of shape (n_nodes,)
        Distinct nodes, which may have any number of labels.
    least, most : int
        Fewest and most nodes of the label.
    negated : array-like of bool of shape (n_nodes,), default=None
        Nodes that count if they have another label instead. None by default.
    label : int, default=1
        Number of the counted label. Of two labels, 1 is the one that is on.

    Examples
    --------
    >>> from fastm4n import CountFactor
    >>> factor = CountFactor.budget([4, 7, 8], 2)
    >>> value, labels = factor.maximise([[0.0, 1.0], [0.0, 0.5], [0.0, 3.0]])
    >>> value, labels.tolist()
    (4.0, [1, 0, 1])
    >>> CountFactor.exactly_one([4, 7]).is_satisfied([1, 1])
    False

    At most one of three nodes has label 2, of three labels:

    >>> factor = CountFactor.at_most_one([0, 1, 2], label=2)
    >>> value, labels = factor.maximise([[0.0, 0.5, 2.0], [0.0, 0.5, 1.0], [0.25, 0.0, 1.0]])
    >>> value, labels.tolist()
    (2.75, [2, 1, 0])
    """

    nodes: IntArray
    least: int
    most: int
    negated: BoolArray
    # of older pickles, too
    label: int = 1

    def __init__(
        self, nodes: ArrayLike, least: int, most: int, negated: ArrayLike | None = None,
        label: int = 1,
    ) -> None:
        self.nodes = _as_nodes("nodes", nodes)
        check_number("label", label, low=0, strict=False, integer=True)
        self.label = int(label)
        check_number("least", least, low=0, strict=False, integer=True)
        check_number("most", most, low=0, strict=False, integer=True)
        n = self.nodes.size
        self.least, self.most = int(least), min(int(most), n)
        if self.least > self.most:
            raise ValueError(
                f"a factor of {n} nodes cannot have at least {least} and at most {most} nodes of "
                f"label {label}.")
        negated = np.zeros(n, dtype=bool) if negated is None else np.asarray(negated)
        if negated.shape != (n,) or negated.dtype != bool:
            raise ValueError(f"negated must be a boolean array of shape ({n},).")
        self.negated = negated.astype(np.uint8)

    @classmethod
    def exactly_one(
        cls, nodes: ArrayLike, negated: ArrayLike | None = None, label: int = 1,
    ) -> CountFactor:
        """XOR: one node, and no other, has the label.

        Parameters
        ----------
        nodes : array-like of int
        negated : array-like of bool, default=None
            Nodes that count if they have another label.
        label : int, default=1
        """
        return cls(nodes, 1, 1, negated, label)

    @classmethod
    def at_most_one(
        cls, nodes: ArrayLike, negated: ArrayLike | None = None, label: int = 1,
    ) -> CountFactor:
        """One node or none has the label.

        Parameters
        ----------
        nodes : array-like of int
        negated : array-like of bool, default=None
            Nodes that count if they have another label.
        label : int, default=1
        """
        return cls(nodes, 0, 1, negated, label)

    @classmethod
    def at_least_one(
        cls, nodes: ArrayLike, negated: ArrayLike | None = None, label: int = 1,
    ) -> CountFactor:
        """OR: some node has the label.

        Parameters
        ----------
        nodes : array-like of int
        negated : array-like of bool, default=None
            Nodes that count if they have another label.
        label : int, default=1
        """
        return cls(nodes, 1, len(nodes), negated, label)

    @classmethod
    def budget(
        cls, nodes: ArrayLike, most: int, negated: ArrayLike | None = None, label: int = 1,
    ) -> CountFactor:
        """At most `most` nodes have the label.

        Parameters
        ----------
        nodes : array-like of int
        most : int
        negated : array-like of bool, default=None
            Nodes that count if they have another label.
        label : int, default=1
        """
        return cls(nodes, 0, most, negated, label)

    def __repr__(self) -> str:
        return (
            f"CountFactor(nodes={self.nodes.tolist()}, least={self.least}, most={self.most}"
            + (f", negated={self.negated.astype(bool).tolist()}" if self.negated.any() else "")
            + (f", label={self.label})" if self.label != 1 else ")"))

    def counts(self, labels: ArrayLike) -> Any:
        """Count the nodes that count in labellings of the factor's nodes.

        Parameters
        ----------
        labels : array-like of int of shape (..., n_nodes)
            Labels of the nodes in their order.

        Returns
        -------
        counts : int or ndarray of int of shape (...)
        """
        return ((np.asarray(labels) == self.label) != self.negated.astype(bool)).sum(axis=-1)

    def is_satisfied(self, labels: ArrayLike) -> bool:
        """Whether a labelling of the factor's nodes is allowed.

        Parameters
        ----------
        labels : array-like of int of shape (n_nodes,)
            Labels of the nodes in their order.
        """
        return bool(self.least <= self.counts(labels) <= self.most)

    def maximise(self, scores: ArrayLike) -> tuple[float, IntArray]:
        """Find the best allowed labels in closed form, in O(n_nodes log n_nodes).

        Parameters
        ----------
        scores : array-like of shape (n_nodes, n_labels)
            Scores of the labels of the factor's nodes.

        Returns
        -------
        value : float
        labels : ndarray of int of shape (n_nodes,)
        """
        scores = _as_scores("scores", scores, (self.nodes.size, max(2, self.label + 1)))
        # the package of inference imports this module
        from fastm4n.inference._simplex import maximise_count

        # the best of the other labels stands for all of them
        others = scores.copy()
        others[:, self.label] = -np.inf
        best = np.argmax(others, axis=1) if self.nodes.size else np.zeros(0, dtype=np.intp)
        if self.label == 0:
            # where all others are -inf
            best = np.maximum(best, 1)
        pair = np.column_stack([others[np.arange(best.size), best], scores[:, self.label]])
        value, on = maximise_count(
            np.ascontiguousarray(pair), self.negated, self.least, self.most)
        return value, np.where(on == 1, self.label, best)

    def score(self, labels: ArrayLike) -> float:
        """Compute 0 if a labelling of the graph is allowed, otherwise -inf.

        Parameters
        ----------
        labels : array-like of int
            Labels of all nodes of the graph.
        """
        return 0.0 if self.is_satisfied(np.asarray(labels)[self.nodes]) else -np.inf

    def table(self, sizes: ArrayLike | None = None) -> FloatArray:
        """The factor as a table: 0 for allowed labels, otherwise -inf.

        Parameters
        ----------
        sizes : array-like of int of shape (n_nodes,), default=None
            Number of labels of each node. By default as many as `label` needs, at least two.
        """
        n = self.nodes.size
        shape = (max(2, self.label + 1),) * n if sizes is None else tuple(
            np.asarray(sizes).tolist())
        counts = self.counts(np.moveaxis(np.indices(shape), 0, -1))
        allowed = (counts >= self.least) & (counts <= self.most)
        return np.where(allowed, 0.0, -np.inf)


def as_factors(factors: Factors, n_nodes: int, name: str = "factors") -> tuple[CountFactor]:
    """Factors of one graph in a tuple, checked except for the labels of their nodes.

    Parameters
    ----------
    factors : FactorTables, CountFactor, pair (nodes, table), or a list of these
    n_nodes : int
    name : str
        Name of the argument in errors.
    """
    kinds = FactorTables, CountFactor
    is_pair = isinstance(factors, tuple) and len(factors) == 2 and not isinstance(
        factors[1], (*kinds, tuple))
    if is_pair or isinstance(factors, kinds):
        factors = [factors]
    if isinstance(factors, (str, dict)) or not hasattr(factors, "__iter__"):
        raise TypeError(
            f"{name} must be a FactorTables, a CountFactor or a list of them, got "
            f"{type(factors).__name__}.")
    found = []
    for number, factor in enumerate(factors):
        if isinstance(factor, tuple) and len(factor) == 2:
            try:
                factor = FactorTables.from_list([factor])
            except ValueError as error:
                raise ValueError(f"{name}[{number}]: {error}") from None
        if not isinstance(factor, kinds):
            raise TypeError(
                f"{name}[{number}] must be a FactorTables, a CountFactor or a pair (nodes, "
                f"table), got {type(factor).__name__}.")
        nodes = factor.scopes if isinstance(factor, FactorTables) else factor.nodes
        if nodes.size and nodes.max() >= n_nodes:
            which = f"{name}[{number}]"
            if isinstance(factor, FactorTables) and len(factor) > 1:
                f = int(np.searchsorted(factor.offsets, np.argmax(nodes), side="right")) - 1
                which = f"factor {f} of {which}"
            raise ValueError(
                f"{which} has node {nodes.max()}, but there are {n_nodes} nodes, counted from 0.")
        found.append(factor)
    return tuple(found)


def check_counted(factor: CountFactor, number: int, sizes: IntArray) -> None:
    """Refuse a count of a label that one of its nodes does not have."""
    wrong = np.flatnonzero(sizes[factor.nodes] <= factor.label)
    if wrong.size:
        node = factor.nodes[wrong[0]]
        raise ValueError(
            f"factors[{number}] counts label {factor.label} of node {node}, which has the labels "
            f"0 ... {sizes[node] - 1}: leave the node out.")


def graph_factors(
    factors: Factors, sizes: IntArray, edges: ArrayLike = (),
) -> tuple[list[int], list[NDArray[np.int64]], list[FloatArray], list[Any]]:
    """Factors of one graph as tables over few variables each.

    A count over many nodes becomes a chain of tables. Additional variables contain the number of
    counted nodes up to each node, clipped to the range that matters. The chain follows the edges:
    few of them join nodes that are far apart in it.

    Parameters
    ----------
    factors : FactorTables, CountFactor, or a list of these and of pairs (nodes, table)
    sizes : ndarray of int of shape (n_nodes,)
        Number of labels of each node.
    edges : sequence of pairs of int, default=()

    Returns
    -------
    sizes : list of int
        Numbers of labels, including the added variables.
    scopes, tables : list of ndarray
    n_given : list of int
        Places in `scopes` of the factors from tables.
    """
    sizes = np.asarray(sizes)
    all_sizes, scopes, tables, given = [int(size) for size in sizes], [], [], []
    rank = cache(lambda: _ranks(len(sizes), edges))
    for number, factor in enumerate(as_factors(factors, len(sizes))):
        if isinstance(factor, FactorTables):
            try:
                for scope, table in factor._functions(sizes):
                    given.append(len(scopes))
                    scopes.append(scope)
                    tables.append(table)
            except ValueError as error:
                raise ValueError(f"factors[{number}]: {error}") from None
            continue
        check_counted(factor, number, sizes)
        for scope, table in _count_functions(factor, sizes, len(all_sizes), rank):
            for variable, size in zip(scope, table.shape, strict=True):
                if variable == len(all_sizes):
                    all_sizes.append(size)
            scopes.append(scope)
            tables.append(table)
    return all_sizes, scopes, tables, given


def factor_scores(factors: Factors, labels: ArrayLike) -> FloatArray:
    """Scores of labellings of one graph in all its factors, -inf if forbidden.

    Parameters
    ----------
    factors : sequence of FactorTables and CountFactor
    labels : ndarray of int of shape (n_labellings, n_nodes)

    Returns
    -------
    scores : ndarray of shape (n_labellings,)
    """
    total = np.zeros(len(labels))
    for factor in factors:
        if isinstance(factor, CountFactor):
            counts = factor.counts(labels[:, factor.nodes])
            total[(counts < factor.least) | (counts > factor.most)] = -np.inf
            continue
        for f in range(len(factor)):
            total += factor.table(f)[tuple(labels[:, factor.scope(f)].T)]
    return total


def constraints_of(factors: Factors) -> Any:
    """The factors as constraints: finite scores become zero."""
    return tuple(
        factor if isinstance(factor, CountFactor) else FactorTables(
            factor.scopes, factor.offsets,
            [np.where(table > -np.inf, 0.0, -np.inf) for table in factor.tables],
            factor.parameter)
        for factor in factors)


def check_constraints(factors: Factors, where: str) -> None:
    """Refuse factors with scores other than 0 and -inf. `where` is their name in errors."""
    for factor in factors:
        if isinstance(factor, CountFactor):
            continue
        for t, table in enumerate(factor.tables):
            wrong = table[(table != 0.0) & (table > -np.inf)]
            if wrong.size:
                raise ValueError(
                    f"{where}: table {t} of {factor!r} has a score of {wrong[0]:g}. In fits, "
                    "factors are constraints, 0 or -inf. Pass other scores to predict.")


def _ranks(n_nodes, edges):
    """Places of the nodes in an order with few nodes before a place that have edges across it.

    Depth-first with smaller branches first, or for graphs with cycles by reverse Cuthill-McKee, if
    that has fewer.
    """
    edges = np.asarray(edges, dtype=np.intp).reshape(-1, 2)
    rank = _depth_first(n_nodes, edges)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

    ends = np.concatenate([edges, edges[:, ::-1]]).T
    near = csr_array((np.ones(2 * len(edges)), ends), shape=(n_nodes, n_nodes))
    if len(edges) == n_nodes - connected_components(near, directed=False)[0]:
        return rank
    other = np.empty(n_nodes, dtype=np.intp)
    other[reverse_cuthill_mckee(near, symmetric_mode=True)] = np.arange(n_nodes)
    return min(rank, other, key=lambda places: _most_open(places, edges))


def _most_open(places, edges):
    """The most nodes at or before a place that have a neighbour behind it."""
    first, last = np.sort(places[edges], axis=1).T
    end = np.arange(len(places))
    np.maximum.at(end, first, last)
    opened = np.arange(1, len(places) + 1) - np.cumsum(np.bincount(end, minlength=len(places)))
    return int(opened.max())


def _depth_first(n_nodes, edges):
    """Places of the nodes in depth-first order, with smaller branches first.

    In that order no place of a tree has more than about log2(n_nodes) edges across it.
    """
    near = [[] for _ in range(n_nodes)]
    for a, b in edges.tolist():
        near[a].append(b)
        near[b].append(a)
    parent, order = [None] * n_nodes, []
    for root in range(n_nodes):
        if parent[root] is not None:
            continue
        stack = [(root, root)]
        while stack:
            v, u = stack.pop()
            if parent[v] is None:
                parent[v] = u
                order.append(v)
                stack += [(child, v) for child in near[v] if parent[child] is None]
    size = [1] * n_nodes
    for v in reversed(order):
        if parent[v] != v:
            size[parent[v]] += size[v]
    children = [[] for _ in range(n_nodes)]
    for v in order:
        if parent[v] != v:
            children[parent[v]].append(v)
    rank = np.zeros(n_nodes, dtype=np.intp)
    stack = [v for v in reversed(order) if parent[v] == v]
    for place in range(n_nodes):
        v = stack.pop()
        rank[v] = place
        stack += sorted(children[v], key=lambda u: -size[u])
    return rank


def _count_functions(factor, sizes, next_variable, rank):
    """Pairs (variables, table) that are equivalent to a `CountFactor`, in the order of `rank()`.

    New variables are counted from next_variable. `sizes` are the numbers of labels of all nodes.
    """
    n, sizes = factor.nodes.size, sizes[factor.nodes]
    with np.errstate(over="ignore"):
        n_entries = np.prod(sizes, dtype=np.float64)
    if n_entries <= _DIRECT:
        return [(factor.nodes, factor.table(sizes))] if n else []
    # larger counts are equivalent
    top = factor.most + 1 if factor.most < n else factor.least
    if float(sizes.sum()) * top * top > _MOST_COUNTED:
        raise TooLarge(
            f"a CountFactor of {n} nodes that counts to {top} needs tables of more than "
            f"{_MOST_COUNTED} entries. Use fewer nodes or a smaller count.")
    functions, before, states = [], None, 1
    order = np.argsort(rank()[factor.nodes])
    for t, node in enumerate(factor.nodes[order]):
        counted = (np.arange(sizes[order[t]]) == factor.label) != bool(factor.negated[order[t]])
        counts = np.add.outer(np.arange(states), counted)
        counts = np.minimum(counts, top)
        if t == n - 1:
            allowed = (counts >= factor.least) & (counts <= factor.most)
            functions.append(([before, node], np.where(allowed, 0.0, -np.inf)))
            break
        new = min(t + 1, top) + 1
        table = np.where(counts[..., np.newaxis] == np.arange(new), 0.0, -np.inf)
        if before is None:
            functions.append(([node, next_variable], np.ascontiguousarray(table[0])))
        else:
            functions.append(([before, node, next_variable], table))
        before, states = next_variable, new
        next_variable += 1
    return functions
