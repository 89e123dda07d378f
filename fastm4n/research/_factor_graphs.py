"""Factor graphs of all examples as arrays: nodes, factors over them, and the weights they meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.factors import CountFactor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, BoolArray, FloatArray, IntArray

# labels of a block are kept in 16 bits
MOST_LABELS = 65535


def _integers(name, values, size=None, low=0):
    """The values as a flat array of intp, checked."""
    array = np.ascontiguousarray(values)
    if array.ndim != 1 or (size is not None and array.size != size):
        what = "a flat array" if size is None else f"{size} numbers"
        raise ValueError(f"{name} must be {what}, got shape {array.shape}.")
    if array.size and (array.dtype.kind not in "iu" or array.min() < low):
        raise ValueError(f"{name} must be integers from {low} on.")
    return array.astype(np.intp)


class FactorGraphs:
    """Nodes and factors of examples, each with a label of its own.

    A *factor* is over a tuple of nodes, its scope, and has a label for each tuple of their labels,
    numbered with the last node's label running fastest. A node or a factor scores its label y by
    ``weights[table[y]] @ x``, x being its row of features and `table` that of its kind. A label
    with the entry -1 scores zero.

    A factor may also be a *count* of the label 1 among its nodes, which have two labels each. It
    has no weights, and instead of a label for each tuple two numbers for each node: see
    `with_counts`.

    Parameters
    ----------
    node_labels : array-like of int of shape (n_nodes,)
        Number of labels of each node, the nodes of one example after those of the other.
    node_counts : array-like of int of shape (n_examples,)
        Number of nodes of each example.
    scopes : array-like of int, flat
        The nodes of each factor, one factor after the other, numbered among the nodes of all
        examples.
    scope_sizes : array-like of int of shape (n_factors,)
    factor_counts : array-like of int of shape (n_examples,)
    node_tables, factor_tables : list of array-like of int
        For each kind of nodes or factors the number of the weights that each label meets, or -1.
        Tables of factors have the shape of their nodes' labels.
    node_kinds, factor_kinds : array-like of int, default=None
        Number of the table, the first by default.
    node_rows, factor_rows : array-like of int, default=None
        Rows of the features: by default the number of the node, and row 0 for factors.
    n_node_weights, n_factor_weights : int, default=None
        Number of rows of weights, by default up to the last one in the tables.
    factor_scales : array-like of shape (n_factor_weights,), default=None
        Positive numbers that multiply each row of the factors' weights in scores, ones by default.
        They divide the penalty of a score by their squares.
    count_bounds : array-like of int of shape (n_factors, 2), default=None
        Bounds of the counts, -1 and -1 for other factors, none by default. Kinds and rows of counts
        have no effect.
    negated : array-like of bool, flat, default=None
        As `scopes`: nodes counted for the label 0, none by default.

    Attributes
    ----------
    n_examples, n_nodes, n_factors, n_blocks : int
    node_blocks, factor_blocks : ndarray of int
        Numbers of nodes and factors among all blocks: an example's nodes, then its factors.
    sizes : ndarray of shape (n_blocks,)
        Numbers of each block: one for each label, or two for each node of a count.
    is_count : ndarray of bool of shape (n_factors,)
    examples : ndarray of shape (n_blocks,)
        The example of each block.
    slots : ndarray of int of shape (n_slots, 4)
        For each node of each scope: begin of its labels among those of all nodes and among those of
        all slots, their number, and the step of the factor's label from one of them to the next (1
        for counts, whose slots have two numbers each).

    Examples
    --------
    Two nodes of two labels and an edge between them, which scores if both labels are 1:

    >>> from fastm4n.research import FactorGraphs
    >>> graphs = FactorGraphs([2, 2], [2], [0, 1], [2], [1], [[-1, 0]], [[[-1, -1], [-1, 0]]])
    >>> graphs.n_blocks, graphs.sizes.tolist()
    (3, [2, 2, 4])
    """

    node_labels: IntArray
    node_counts: IntArray
    scope_sizes: IntArray
    n_examples: int
    n_nodes: int
    n_factors: int
    n_blocks: int
    factor_counts: IntArray
    scopes: IntArray
    node_tables: list[Any]
    factor_tables: list[Any]
    n_node_weights: int
    n_factor_weights: int
    factor_scales: Array | None
    node_kinds: IntArray | None
    factor_kinds: IntArray | None
    node_rows: IntArray | None
    factor_rows: IntArray | None
    count_bounds: IntArray | None
    negated: Array | None
    is_count: BoolArray
    node_blocks: IntArray
    factor_blocks: IntArray
    examples: IntArray
    slots: IntArray
    slot_starts: IntArray
    sizes: IntArray
    n_parts: IntArray
    n_messages: int

    def __init__(
        self, node_labels: ArrayLike, node_counts: ArrayLike, scopes: ArrayLike,
        scope_sizes: ArrayLike, factor_counts: ArrayLike, node_tables: Sequence[ArrayLike] | None,
        factor_tables: Sequence[ArrayLike] | None, *, node_kinds: ArrayLike | None = None,
        factor_kinds: ArrayLike | None = None, node_rows: ArrayLike | None = None,
        factor_rows: ArrayLike | None = None, n_node_weights: int | None = None,
        n_factor_weights: int | None = None, factor_scales: ArrayLike | None = None,
        count_bounds: ArrayLike | None = None, negated: ArrayLike | None = None,
    ) -> None:
        self.node_labels = _integers("node_labels", node_labels, low=1)
        self.node_counts = _integers("node_counts", node_counts)
        self.scope_sizes = _integers("scope_sizes", scope_sizes, low=1)
        self.n_examples, self.n_nodes = self.node_counts.size, self.node_labels.size
        self.n_factors = self.scope_sizes.size
        self.n_blocks = self.n_nodes + self.n_factors
        self.factor_counts = _integers("factor_counts", factor_counts, self.n_examples)
        self.scopes = _integers("scopes", scopes, self.scope_sizes.sum())
        for name, counts, total in (
            ("node_counts", self.node_counts, self.n_nodes),
            ("factor_counts", self.factor_counts, self.n_factors),
        ):
            if counts.sum() != total:
                raise ValueError(f"{name} add up to {counts.sum()}, but there are {total}.")
        self.node_tables = [np.asarray(table, dtype=np.intp) for table in node_tables]
        self.factor_tables = [np.asarray(table, dtype=np.intp) for table in factor_tables]
        self.n_node_weights, self.n_factor_weights = (
            max([least or 0, *(int(table.max(initial=-1)) + 1 for table in tables)])
            for least, tables in (
                (n_node_weights, self.node_tables), (n_factor_weights, self.factor_tables)))
        self.factor_scales = np.ascontiguousarray(
            np.ones(self.n_factor_weights) if factor_scales is None else factor_scales, dtype=float)
        if self.factor_scales.shape != (self.n_factor_weights,) or not np.all(
            (self.factor_scales > 0.0) & (self.factor_scales < np.inf)
        ):
            raise ValueError(f"factor_scales must be {self.n_factor_weights} positive numbers.")
        none = np.zeros(self.n_nodes, np.intp), np.zeros(self.n_factors, np.intp)
        self.node_kinds, self.factor_kinds = (
            _integers(f"{name}_kinds", zeros if kinds is None else kinds, zeros.size)
            for name, kinds, zeros in zip(
                ("node", "factor"), (node_kinds, factor_kinds), none, strict=True))
        self.node_rows = _integers(
            "node_rows", np.arange(self.n_nodes) if node_rows is None else node_rows, self.n_nodes)
        self.factor_rows = _integers(
            "factor_rows", none[1] if factor_rows is None else factor_rows, self.n_factors)
        self._set_counts(count_bounds, negated)
        self._number_blocks()
        self._make_slots()
        self._check_tables()

    @classmethod
    def of_pairs(cls, n_examples: int, n_labels: int, pairs: ArrayLike) -> FactorGraphs:
        """Make the multi-label model of Meshi et al. (2015), section 6.

        Labels of an example are nodes that are off (0) or on (1), and score if they are on, by the
        example's row of features. A pair of labels scores one number if both are on.

        Parameters
        ----------
        n_examples, n_labels : int
        pairs : array-like of int of shape (n_pairs, 2)
        """
        pairs = np.asarray(pairs, dtype=np.intp).reshape(-1, 2)
        if pairs.size and (pairs.min() < 0 or pairs.max() >= n_labels):
            raise ValueError(f"pairs must be of labels 0 ... {n_labels - 1}.")
        first = n_labels * np.arange(n_examples)[:, np.newaxis, np.newaxis]
        edges = np.arange(len(pairs))
        return cls(
            np.full(n_examples * n_labels, 2), np.full(n_examples, n_labels),
            (first + pairs).ravel(), np.full(n_examples * len(pairs), 2),
            np.full(n_examples, len(pairs)), [[-1, label] for label in range(n_labels)],
            [[[-1, -1], [-1, edge]] for edge in edges],
            node_kinds=np.tile(np.arange(n_labels), n_examples),
            factor_kinds=np.tile(edges, n_examples),
            node_rows=np.repeat(np.arange(n_examples), n_labels))

    @classmethod
    def of_edges(
        cls, n_nodes: ArrayLike, edges: ArrayLike, n_edges: ArrayLike, n_labels: int,
        pairs: Literal["tables", "symmetric", "equal", "both"] = "tables",
        edge_types: ArrayLike | None = None, n_choices: ArrayLike | None = None,
    ) -> FactorGraphs:
        """Make graphs whose factors are edges, and whose nodes all share their weights.

        Weights of nodes have a row for each label. Weights of edges have a row for each pair of
        labels ("tables", the second node's label running fastest), for each pair in any order
        ("symmetric": (0, 0), (1, 0), (1, 1), (2, 0) ...), or one, for two nodes of one label
        ("equal") or of label 1 ("both"). The penalty of "symmetric" pairs is that of the whole
        table: pairs of different labels count twice.

        Parameters
        ----------
        n_nodes : array-like of int of shape (n_graphs,)
        edges : array-like of int of shape (n_edges_of_all, 2)
            Counted from 0 within each graph.
        n_edges : array-like of int of shape (n_graphs,)
        n_labels : int
        pairs : {"tables", "symmetric", "equal", "both"}
        edge_types : array-like of int of shape (n_edges_of_all,), default=None
            Edges of one type share rows of weights, type 0 first. None: edges have features, a row
            each, and weights of one type.
        n_choices : array-like of int of shape (n_nodes_of_all,), default=None
            Labels of each node, the first of the n_labels, all of them by default.
        """
        first, second = np.indices((n_labels, n_labels))
        tables = {
            "tables": first * n_labels + second,
            "symmetric": np.maximum(first, second) * (np.maximum(first, second) + 1) // 2
            + np.minimum(first, second),
            "equal": np.where(first == second, 0, -1),
            "both": np.where((first == 1) & (second == 1), 0, -1),
        }
        if pairs not in tables:
            raise ValueError(
                f"pairs must be one of {tuple(tables)}, got {pairs!r}.")
        table, n_nodes = tables[pairs], np.asarray(n_nodes, dtype=np.intp)
        n_edges = np.asarray(n_edges, dtype=np.intp)
        edges = np.asarray(edges, dtype=np.intp).reshape(-1, 2)
        total = int(n_nodes.sum())
        choices = np.full(total, n_labels) if n_choices is None else _integers(
            "n_choices", n_choices, total, 1)
        if np.any(choices > n_labels):
            raise ValueError(f"n_choices must be at most {n_labels}.")
        edges = edges + np.repeat(np.cumsum(n_nodes) - n_nodes, n_edges)[:, np.newaxis]
        if edges.size and (edges.min() < 0 or edges.max() >= total):
            raise ValueError("edges must be between nodes of their graph.")
        types = np.zeros(len(edges), dtype=np.intp) if edge_types is None else _integers(
            "edge_types", edge_types, len(edges))
        sizes, node_kinds = np.unique(choices, return_inverse=True)
        kinds, factor_kinds = np.unique(
            np.column_stack([types, choices[edges]]), axis=0, return_inverse=True)
        step, n_types = table.max(initial=-1) + 1, types.max(initial=0) + 1
        scales = np.ones(step)
        if pairs == "symmetric":
            scales[table[first != second]] = np.sqrt(0.5)
        return cls(
            choices, n_nodes, edges.ravel(), np.full(len(edges), 2), n_edges,
            [np.arange(size) for size in sizes],
            [np.where(table >= 0, table + kind * step, -1)[:a, :b] for kind, a, b in kinds],
            node_kinds=node_kinds.ravel(), factor_kinds=factor_kinds.ravel(),
            factor_rows=np.arange(len(edges)) if edge_types is None else None,
            n_node_weights=n_labels, n_factor_weights=int(step * n_types),
            factor_scales=np.tile(scales, n_types))

    def with_counts(self, counts: list[list[CountFactor]]) -> FactorGraphs:
        """Add constraints on how many nodes have label 1.

        Parameters
        ----------
        counts : list of list of CountFactor
            Additional ones for each example, with nodes counted from 0 within the example.

        Returns
        -------
        graphs : FactorGraphs

        Examples
        --------
        One or two of three labels are on:

        >>> from fastm4n import CountFactor
        >>> from fastm4n.research import FactorGraphs
        >>> graphs = FactorGraphs.of_pairs(1, 3, [[0, 1]])
        >>> graphs.with_counts([[CountFactor([0, 1, 2], 1, 2)]]).sizes.tolist()
        [2, 2, 2, 4, 6]
        """
        if len(counts) != self.n_examples:
            raise ValueError(
                f"counts has {len(counts)} lists, but there are {self.n_examples} examples.")
        example, every = [], []
        for m, of_example in enumerate(counts):
            for factor in of_example:
                if not isinstance(factor, CountFactor):
                    raise TypeError(
                        f"counts[{m}] must be a list of CountFactor, got a "
                        f"{type(factor).__name__} in it.")
                if factor.label != 1:
                    raise ValueError(
                        f"counts[{m}] has {factor!r}: soft constraints count label 1, of two.")
                if not factor.nodes.size:
                    continue
                if factor.nodes.max() >= self.node_counts[m]:
                    raise ValueError(
                        f"counts[{m}] has node {factor.nodes.max()}, but the example has "
                        f"{self.node_counts[m]} nodes.")
                example.append(m)
                every.append(factor)
        if not every:
            return self
        # behind the other factors of the example, and behind their slots
        at = np.cumsum(self.factor_counts)[example]
        sizes = [factor.nodes.size for factor in every]
        slots = np.repeat(self.slot_starts[at], sizes)
        first = np.repeat((np.cumsum(self.node_counts) - self.node_counts)[example], sizes)
        nodes, negated = (
            np.concatenate([getattr(factor, name) for factor in every])
            for name in ("nodes", "negated"))
        return type(self)(
            self.node_labels, self.node_counts, np.insert(self.scopes, slots, first + nodes),
            np.insert(self.scope_sizes, at, sizes),
            self.factor_counts + np.bincount(example, minlength=self.n_examples),
            self.node_tables, self.factor_tables, node_kinds=self.node_kinds,
            factor_kinds=np.insert(self.factor_kinds, at, 0), node_rows=self.node_rows,
            factor_rows=np.insert(self.factor_rows, at, 0), n_node_weights=self.n_node_weights,
            n_factor_weights=self.n_factor_weights, factor_scales=self.factor_scales,
            count_bounds=np.insert(
                self.count_bounds, at, [(factor.least, factor.most) for factor in every], axis=0),
            negated=np.insert(self.negated, slots, negated).astype(bool))

    def _set_counts(self, count_bounds, negated):
        n = self.n_factors
        bounds = np.full((n, 2), -1) if count_bounds is None else np.asarray(count_bounds)
        if bounds.shape != (n, 2) or bounds.size and bounds.dtype.kind not in "iu":
            raise ValueError(f"count_bounds must be integers of shape ({n}, 2).")
        negated = np.zeros(self.scopes.size, dtype=bool) if negated is None else np.asarray(negated)
        if negated.shape != self.scopes.shape or negated.dtype != bool:
            raise ValueError("negated must be boolean and of the shape of scopes.")
        self.count_bounds, self.negated = bounds.astype(np.intp), negated.astype(np.uint8)
        self.is_count = np.any(bounds != -1, axis=1)
        least, most = bounds.T
        wrong = np.flatnonzero(
            self.is_count & ~((0 <= least) & (least <= most) & (most <= self.scope_sizes)))
        if wrong.size:
            f = wrong[0]
            raise ValueError(
                f"factor {f} counts {self.scope_sizes[f]} nodes, and cannot have at least "
                f"{least[f]} and at most {most[f]} of label 1.")

    def _number_blocks(self):
        number = np.arange(self.n_examples)
        of_node = np.repeat(number, self.node_counts)
        of_factor = np.repeat(number, self.factor_counts)
        before = np.cumsum(self.factor_counts) - self.factor_counts
        behind = np.cumsum(self.node_counts)
        self.node_blocks = np.arange(self.n_nodes) + before[of_node]
        self.factor_blocks = np.arange(self.n_factors) + behind[of_factor]
        self.examples = np.empty(self.n_blocks, dtype=np.intp)
        self.examples[self.node_blocks] = of_node
        self.examples[self.factor_blocks] = of_factor
        of_slot = np.repeat(of_factor, self.scope_sizes)
        wrong = np.flatnonzero(self.scopes >= self.n_nodes)
        if not wrong.size:
            wrong = np.flatnonzero(of_node[self.scopes] != of_slot)
        if wrong.size:
            factor = np.searchsorted(np.cumsum(self.scope_sizes), wrong[0], side="right")
            raise ValueError(
                f"factor {factor} is over node {self.scopes[wrong[0]]}, which is none of its "
                f"example, {of_factor[factor]}.")

    def _make_slots(self):
        """Slots, scopes of one length at a time."""
        starts = np.cumsum(self.scope_sizes) - self.scope_sizes
        node_starts = np.cumsum(self.node_labels) - self.node_labels
        labels = self.node_labels[self.scopes]
        of_count = np.repeat(self.is_count, self.scope_sizes)
        wrong = np.flatnonzero(of_count & (labels != 2))
        if wrong.size:
            factor = np.searchsorted(np.cumsum(self.scope_sizes), wrong[0], side="right")
            raise ValueError(
                f"factor {factor} counts node {self.scopes[wrong[0]]}, which has "
                f"{labels[wrong[0]]} labels: counts are for nodes with labels 0 and 1.")
        self.slots = np.zeros((self.scopes.size, 4), dtype=np.intp)
        self.slots[:, 0] = node_starts[self.scopes]
        self.slots[:, 1] = np.cumsum(labels) - labels
        self.slots[:, 2] = labels
        self.slot_starts = np.append(starts, self.scopes.size).astype(np.intp)
        self.sizes = np.empty(self.n_blocks, dtype=np.intp)
        self.sizes[self.node_blocks] = self.node_labels
        for order in np.unique(self.scope_sizes):
            factors = np.flatnonzero(self.scope_sizes == order)
            places = starts[factors][:, np.newaxis] + np.arange(order)
            scopes = np.sort(self.scopes[places], axis=1)
            twice = np.flatnonzero(np.any(scopes[:, 1:] == scopes[:, :-1], axis=1))
            if twice.size:
                raise ValueError(f"factor {factors[twice[0]]} has a node twice.")
            factors, places = (
                rows[~self.is_count[factors]] for rows in (factors, places))
            steps = np.ones_like(places)
            products = np.cumprod(labels[places][:, ::-1].astype(float), axis=1)
            if products.size and products.max() > MOST_LABELS:
                factor = factors[np.argmax(products[:, -1])]
                raise ValueError(
                    f"factor {factor} has more than {MOST_LABELS} labels: use factors of fewer "
                    "nodes.")
            steps[:, :-1] = products[:, :-1][:, ::-1]
            self.slots[places, 3] = steps
            self.sizes[self.factor_blocks[factors]] = products[:, -1]
        self.slots[of_count, 3] = 1
        counts = self.factor_blocks[self.is_count]
        self.sizes[counts] = 2 * self.scope_sizes[self.is_count]
        self.n_parts = np.ones(self.n_blocks, dtype=np.intp)
        self.n_parts[counts] = self.scope_sizes[self.is_count]
        self.n_messages = np.bincount(self.scopes, minlength=self.n_nodes).astype(np.intp)

    def _check_tables(self):
        for name, kinds, tables, sizes, among in (
            ("node", self.node_kinds, self.node_tables, self.node_labels,
             np.arange(self.n_nodes)),
            ("factor", self.factor_kinds, self.factor_tables, self.sizes[self.factor_blocks],
             np.flatnonzero(~self.is_count)),
        ):
            if among.size == 0:
                continue
            if kinds[among].max() >= len(tables):
                raise ValueError(
                    f"{name}_kinds go up to {kinds[among].max()}, but there are {len(tables)} "
                    "tables.")
            entries = np.array([table.size for table in tables])
            wrong = among[entries[kinds[among]] != sizes[among]]
            if wrong.size:
                raise ValueError(
                    f"{name} {wrong[0]} has {sizes[wrong[0]]} labels, but the table of its kind, "
                    f"{kinds[wrong[0]]}, has another number of entries.")

    def labels_of_blocks(self, y: ArrayLike) -> Any:
        """Labels of all blocks, for counts those of their nodes, by the labels `y` of the nodes.
        """
        y = _integers("y", y, self.n_nodes)
        wrong = np.flatnonzero(y >= self.node_labels)
        if wrong.size:
            raise ValueError(
                f"node {wrong[0]} has the label {y[wrong[0]]}, but labels 0 ... "
                f"{self.node_labels[wrong[0]] - 1}.")
        labels = np.zeros(self.n_parts.sum(), dtype=np.intp)
        first = np.cumsum(self.n_parts) - self.n_parts
        labels[first[self.node_blocks]] = y
        # of counts each slot is a part
        within = np.arange(self.scopes.size) - np.repeat(self.slot_starts[:-1], self.scope_sizes)
        part = np.repeat(first[self.factor_blocks], self.scope_sizes)
        part += np.where(np.repeat(self.is_count, self.scope_sizes), within, 0)
        np.add.at(labels, part, y[self.scopes] * self.slots[:, 3])
        return labels

    def heights_of_costs(
        self, y: ArrayLike, cost: FloatArray, node_weights: ArrayLike | None = None,
    ) -> FloatArray:
        """Costs of the labels of all nodes, one node after the other.

        Parameters
        ----------
        y : array-like of int of shape (n_nodes,)
        cost : ndarray of shape (n_labels, n_labels)
            cost[i, j]: cost of the label j if the truth is i.
        node_weights : array-like of shape (n_nodes,), default=None
            Factors of the costs of each node.
        """
        within = np.arange(self.node_labels.sum())
        within -= np.repeat(np.cumsum(self.node_labels) - self.node_labels, self.node_labels)
        heights = np.asarray(cost, dtype=float)[np.repeat(y, self.node_labels), within]
        if node_weights is not None:
            heights = heights * np.repeat(node_weights, self.node_labels)
        return heights
