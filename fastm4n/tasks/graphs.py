"""The task of labels of the nodes of graphs.

Graphs in memory and graphs read in chunks stand in one file, as both make the same problem.
"""

from contextlib import nullcontext
from functools import cached_property
from itertools import compress
from types import SimpleNamespace

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from fastm4n.base.arrays import flat, part
from fastm4n.base.label_costs import as_costs
from fastm4n.data._graph_factors import all_contents
from fastm4n.data._graphs import Graphs
from fastm4n.data._sequences import Sequences
from fastm4n.data.disk._graph_files import ARRAYS
from fastm4n.outputs import row_stride
from fastm4n.outputs._graph import numbers_of_edge
from fastm4n.outputs.graph_oracles import (
    Traits,
    asks_for_cycles,
    graph_with_cycle,
    oracles_of,
    outputs_by,
)
from fastm4n.tasks.base import MISSING, Blocks, Census, Problem, Task, quarters, rows_in_common
from fastm4n.tasks.chain_input import distinct, encode
from fastm4n.tasks.graph_input import (
    Displacements,
    Rows,
    as_graphs,
    as_node_labels,
    as_places,
    check_costs,
    check_labels_of_graphs,
    check_marks,
    check_not_negative,
    check_sizes,
    declared_labels,
    encoded,
    is_unlabelled,
    labels_of_types,
    number_of,
    step_norms,
    sums_of_weights,
)
from fastm4n.tasks.graph_model import (
    COMPARING,
    arguments_of_outputs,
    attributes_of_oracle,
    check_same_labels,
    check_truth,
    graph_features,
    graph_model,
    integrality,
    integrality_gaps,
    named,
    rows_of_edges,
    rows_of_nodes,
    shapes_and_attributes,
)
from fastm4n.tasks.graph_predictions import GraphDecoder
from fastm4n.tasks.graph_states import (
    check_factors,
    first_columns,
    first_targets,
    has_unseen,
    hidden_nodes,
    may_be,
    with_states,
)
from fastm4n.tasks.graph_weights import bounded, check_symmetric
from fastm4n.tasks.merge import merge_graphs
from fastm4n.tasks.parameters import as_weights, summable, unknown_label
from fastm4n.tasks.pieces import (
    DUAL_COPIES,
    Chunked,
    LabelFile,
    as_arrays,
    entries_of,
    from_arrays,
    in_memory,
    n_bytes,
    position_bytes,
    rows_again,
)

# pairs of a type of node and a label that was met, as one number
TYPE = 1 << 32
# bytes of outputs for a node and for an edge next to their dual points, about: for the check of
# memory
OF_NODE, OF_EDGE = 48.0, 64.0
# bytes of the plan of exact inference of a graph, about: for the check of memory
OF_PLAN = 2048.0
MATRICES = ("node_features", "edge_features")
# edges of the graphs of examples, of three nodes each
EXAMPLES = {
    "nodes": ([], [], []), "forest": ([(0, 1), (2, 1)], [(1, 0)], [(0, 2)]),
    "triangles": ([(0, 1), (1, 2), (2, 0)], [(0, 1)], [(1, 0), (2, 1), (0, 2)]),
}



class GraphTask(Task):
    """Labels of the nodes of graphs."""

    noun = "graph"
    takes_more_labels, calls_by_chunks = True, False
    goes_on, own_fixed = True, ("classes_", "node_classes_")
    own_weights = "coef_", "intercept_", "edge_coef_", "edge_intercept_"
    of_examples = (
        "lengths", "edge_lengths", "edges", "node_types", "edge_types", "factors")

    ignore_label = hidden_states = None
    unlabelled = "ignore"

    def all_classes(self):
        # types of nodes have their own: see `census`
        return None

    @cached_property
    def declared(self):
        """The result of `declared_labels`."""
        return declared_labels(self.classes, self.ignore_label)

    def labels_of(self, y, X, first=0):
        """The labels of all nodes in one list, as `as_node_labels` has them."""
        labels = as_node_labels(y, X, first, self.ignore_label, self.declared)
        if self.declared is None:
            check_marks(y, self.ignore_label, first)
        return labels

    def typed_labels(self, n_types):
        """The declared labels as pairs of a type of node and a label."""
        every = self.declared.get(None)
        return {(of_type, label) for of_type, labels in (
            self.declared.items() if every is None else ((t, every) for t in range(n_types)))
            for label in labels}

    def classes_of_call(self, y, classes):
        if self.pairwise == "displacement" or classes is None:
            return None
        if self.declared is None:
            return super().classes_of_call(y, classes)
        every = set().union(*self.declared.values())
        for label in classes:
            if label not in every:
                raise unknown_label(label, every)
        return None

    def as_examples(self, X, y):
        """X and y as calls of `partial_fit` put them together."""
        X = as_graphs(X)
        labels = self.labels_of(y, X)
        return X, Sequences(np.fromiter(labels, object, len(labels)), X.node_offsets)

    def decoder(self, X, allowed=None, factors=None):
        return GraphDecoder(self, X, allowed, factors)

    def fitted(self, problem, alpha, mu, intercepts=None, is_last=False):
        """Weights, as views of the rows that the compiled loops read."""
        features, prior = problem.features, problem.prior
        rows = {"weights": features.all_weights(), "edges": features.edges.all_weights()}
        if prior is not None:
            before = {name: np.zeros_like(part) for name, part in rows.items()}
            self.put_weights(problem, before, prior.weights)
            rows = {name: part + before[name] for name, part in rows.items()}
        return problem.shapes.fitted(rows["weights"], rows["edges"])

    def put_weights(self, problem, rows, weights):
        problem.shapes.put(
            rows["weights"], rows["edges"], {name[:-1]: array for name, array in weights.items()})

    def unchangeable(self, problem, prior):
        if self.pairwise in ("attractive", "displacement"):
            return f"pairwise={self.pairwise!r}, whose bounds would be those of the change"
        for name, shape in problem.shapes.families().items():
            had = prior.weights[f"{name}_"].shape
            if had != shape:
                return (
                    f"graphs and parameters that make {name}_ of the shape {shape}, as it has "
                    f"{had}: types, features of edges, pairwise={self.pairwise!r} and "
                    f"label_features={self.label_features!r} must stay")
        return super().unchangeable(problem, prior)

    def values(self, problem, tol, scale):
        """Attributes that say how exact the fit is, at the weights of the features."""
        if problem.common["exact_"]:
            return {}
        if problem.solver is not None:
            gaps = problem.pieces.integrality_gaps
        else:
            gaps = integrality_gaps(problem.loss, problem.features, tol)
        return integrality(gaps, problem.weights, scale)

    def piece(self, pieces):
        X = as_graphs(pieces.X)
        labels = self.labels_of(pieces.y, X)
        weights = as_weights(pieces.sample_weight, len(X), "graph")
        if self.pairwise == "attractive":
            check_not_negative(X)
        # a node without a label says nothing, and neither does a graph without nodes
        unlabelled = np.fromiter(map(is_unlabelled, labels), bool, len(labels))
        hidden = hidden_nodes(self, pieces.y, X)
        unlabelled &= ~hidden
        if not pieces.may_be_partial and (hidden.any() or self.hidden_states is not None):
            raise ValueError(
                f"{self.latent()} needs rounds of fits, which `fit` makes in memory. Paths, "
                "partitions and chunks are of one fit: leave it as it is by default.")
        check_factors(self.hidden_states, X)
        labelled = inner = X
        if unlabelled.any():
            labelled, nodes = X.drop_nodes(unlabelled)
            inner, labels, hidden = labelled, [labels[t] for t in nodes], hidden[nodes]
        kept = np.flatnonzero((weights > 0) & (inner.lengths > 0))
        if kept.size < len(X):
            chosen = Sequences(np.arange(len(labels)), inner.node_offsets)[kept].values
            inner, labels, hidden = inner[kept], [labels[t] for t in chosen], hidden[chosen]
        if hidden.any():
            # mistakes at hidden nodes cost nothing
            of_nodes = 1.0 if inner.node_weights is None else inner.node_weights
            arrays = {name: getattr(inner, name) for name in (*ARRAYS, "factors")}
            arrays["node_weights"] = np.where(hidden, 0.0, of_nodes)
            inner = Graphs._of(**arrays)
        return SimpleNamespace(
            X=X, labelled=labelled, inner=inner, labels=labels, hidden=hidden,
            weights=weights[kept], kept=kept)

    def latent(self):
        """The parameter that leaves labels or states of nodes open, in words, or None."""
        if self.hidden_states is not None:
            return f"hidden_states={self.hidden_states!r:.80}"
        return "unlabelled='hidden'" if self.unlabelled == "hidden" else None

    def unsupported(self):
        return self.latent() or super().unsupported()

    def census(self, piece):
        X, types = piece.X, piece.inner.node_types
        known = ~piece.hidden
        of_known = list(compress(piece.labels, known))
        labels = distinct(of_known)
        n_types = number_of(X.node_types)
        if self.declared is None:
            pairs = {(0, label) for label in labels} if types is None else set(
                zip(types[known].tolist(), of_known, strict=True))
        else:
            labels = set().union(*self.declared.values())
            n_types = max(n_types, *(1 + (t or 0) for t in self.declared))
            pairs = self.typed_labels(n_types)
        same = rows_in_common(X.node_features)
        same["columns of edges"] = None if X.edge_features is None else X.edge_features.shape[1]
        same["types of nodes"] = "none" if X.node_types is None else "given"
        same["types of edges"] = "none" if X.edge_types is None else "given"
        return Census(
            piece.kept.size, labels, same, {"weight": piece.weights.sum()}, None,
            n_types, number_of(X.edge_types), pairs)

    def penalise(self, features, shapes):
        """Give the maps of nodes and of edges the penalty of their weights."""
        families = shapes.families()
        if not self.fit_intercept or self.label_features:
            families["intercept"] = MISSING.format("fit_intercept")
        resolved = self.penalty_of(families, bounded(self.penalty, self.pairwise))
        if resolved is None:
            return
        if self.pairwise == "symmetric":
            check_symmetric(resolved)
        for rows, views_of in (
            (features, shapes.node_views), (features.edges, shapes.edge_views),
        ):
            shape = rows.all_weights().shape
            rows.set_penalty(resolved.of_rows(shape, rows.n_features, views_of))

    def naming(self, problem):
        return named(problem.blocks.examples) if problem.solver is None else nullcontext()

    def example(self, rng, shape="triangles", labels=2, types=False, weights=False, factor=None,
                csr=False, edge_features=False):
        n_classes = labels if self.classes is None else len(self.classes)
        columns = 2 * n_classes if self.label_features else 2
        graphs, y = [], []
        for edges in EXAMPLES[shape]:
            graphs.append([quarters(rng, 3, columns), np.array(edges, dtype=int).reshape(-1, 2)])
            y.append(rng.integers(labels, size=3))
            if edge_features:
                graphs[-1].append(np.abs(quarters(rng, len(edges), 2)))
        y[0][:labels] = np.arange(labels)
        X = Graphs.from_list([tuple(graph) for graph in graphs])
        given = {name: getattr(X, name) for name in (
            "node_features", "edges", "node_offsets", "edge_offsets", "edge_features")}
        if types:
            given["node_types"] = np.arange(X.n_nodes) % 2
            # every label of each type
            y[0] = np.arange(3) // 2 % labels
            y[1] = 1 - y[0]
        if weights:
            given["node_weights"] = rng.uniform(0.5, 2.0, X.n_nodes)
        if factor is not None:
            given["factors"] = [factor] * len(X)
            y = [np.array([1, 0, 1])] * len(X)
        if csr:
            given["node_features"] = sparse.csr_array(X.node_features)
        return Graphs(**given), y

    @staticmethod
    def stored(X, y, folder):
        return Graphs.from_batches([X], folder), y

    def container(self, X):
        return as_graphs(X)

    def columns(self, X):
        return as_graphs(X, check=False)

    def in_memory(self, piece, census, one_alpha):
        X, inner, kept = piece.X, piece.inner, piece.kept
        if piece.hidden.all():
            raise ValueError("X has no labelled nodes in graphs of non-zero weight.")
        weights, known = summable(piece.weights), self.census_of_all(census, piece)
        if self.declared is not None:
            known.typed = self.typed_labels(known.n_types)
        if piece.prior is not None:
            self.add_known(known, piece.prior)
        n_edge_types = known.n_edge_types
        if self.pairwise == "displacement":
            classes, codes = as_places(piece.labels, self.grid_shape)
            node_classes = np.arange(classes.size)[np.newaxis].repeat(known.n_types, axis=0)
        else:
            some, labels = next(iter(known.labels)), piece.labels
            if piece.hidden.any():
                labels = [
                    some if is_hidden else label
                    for label, is_hidden in zip(labels, piece.hidden, strict=True)]
            classes, node_classes, codes = encoded(labels, inner.node_types, known)
            node_classes, codes = with_states(self.hidden_states, classes, node_classes, codes)
            codes = np.where(piece.hidden, -1, codes)
        shapes, common = shapes_and_attributes(
            self, classes, node_classes, X.node_features.shape[1], n_edge_types,
            0 if X.edge_features is None else X.edge_features.shape[1])
        costs = as_costs(common["_cost_held"])
        blocks = Blocks.of(len(X), kept, weights, *merge_graphs(inner, codes, weights))
        check_sizes(step_norms(inner), self._alpha(blocks, census, costs), kept)
        check_costs(sums_of_weights(inner), costs, kept)
        may, offsets = None, inner.node_offsets
        if piece.hidden.any() or node_classes.shape[1] > classes.size:
            with named(kept):
                may = may_be(inner, codes, node_classes)
        codes = Sequences(codes, offsets)[blocks.first].values
        inner = inner[blocks.first]
        if self.pairwise == "displacement":
            moves = Displacements(n_edge_types, self.grid_shape[1])
            moves.add(inner, codes, blocks.weights)
            common["shifts_"] = moves.means()
        # a dual point is one of these graphs and labels alone: edges agree with their nodes
        task = {
            "surrogate": self.surrogate.name, "cost_scale": self.cost_scale,
            "pairwise": self.pairwise,
            "classes": classes, "node_classes": node_classes, "grid_shape": self.grid_shape,
            "shifts": common.get("shifts_"), "edge_features": shapes.n_edge_features > 0,
            **{name: getattr(piece.labelled, name) for name in self.of_examples[:-1]},
            "factors": all_contents(piece.labelled.factors, len(X)),
        }
        with named(blocks.examples):
            problem = self.problem_of_blocks(inner, codes, blocks, shapes, common, task)
            if may is not None and may.sum(axis=1).max() > 1:
                self.leave_open(problem, inner, codes, may, offsets)
        return problem

    def add_known(self, census, prior):
        """Add the labels and types that earlier weights have."""
        classes, node_classes = prior.fixed["classes_"].tolist(), prior.fixed["node_classes_"]
        census.labels = {*census.labels, *classes}
        census.typed = census.typed | {
            (of_type, classes[code])
            for of_type, codes in enumerate(node_classes) for code in codes if code >= 0}
        census.n_types = max(census.n_types, len(node_classes))
        census.n_edge_types = max(census.n_edge_types, len(prior.weights["edge_intercept_"]))

    def leave_open(self, problem, X, codes, may, offsets):
        """Set what rounds of completions begin with, X being the graphs of the blocks."""
        blocks, node_classes = problem.blocks, problem.common["node_classes_"]
        lengths = np.zeros(blocks.n_examples, dtype=np.intp)
        lengths[blocks.kept] = np.diff(offsets)
        problem.known = Sequences(may, np.append(0, np.cumsum(lengths)))
        columns = None
        if has_unseen(X, codes, node_classes):
            columns = first_columns(
                X, codes, node_classes, blocks.weights, check_random_state(self.random_state))
        if columns is not None or X.factors is not None:
            targets = first_targets(
                problem.loss.outputs, Sequences(may, offsets)[blocks.first].values, columns)
            problem.first = None if columns is None else targets

    def problem_of_blocks(self, X, codes, blocks, shapes, common, task):
        """The problem of one graph for each block, and the numbers of its labels."""
        model = graph_model(self, X, shapes, common, codes)
        common.update(attributes_of_oracle(model.oracle))
        self.penalise(model.features, shapes)
        loss = self.loss(model.outputs)
        task["oracle"] = model.oracle
        return Problem(loss, model.features, blocks, common, task, shapes=shapes)


class GraphChunks(Chunked):
    """The chunks of graphs.

    Parameters
    ----------
    task : GraphTask
    pieces : Memory
    census : None
    solver : OutOfCore

    Attributes
    ----------
    oracle : str
        The oracle of all chunks.
    integrality_gaps : ndarray of shape (n_blocks,), or None
        At the weights of the solution, where the oracle is a linear program.
    """

    integrality_gaps = None

    def __init__(self, task, pieces, census, solver):
        X, y, sample_weight = as_graphs(pieces.X, check=False), pieces.y, pieces.sample_weight
        check_labels_of_graphs(y, X)
        self.given_weights = as_weights(sample_weight, len(X), "graph")
        super().__init__(task, pieces, solver)
        self.X, self.y, self.bare = X, y, X
        if not hasattr(X, "n_bytes_on_disk"):
            # the same arrays, so that slices without features copy none
            self.bare = Graphs._of(**_without_features(X))
        self.node_offsets, self.edge_offsets = X.node_offsets, X.edge_offsets
        # of the graphs that were looked at: see `begin`
        self.kept = np.zeros(len(X), dtype=bool)
        self.is_displaced = task.pairwise == "displacement"

    # ------------------------------------------------------------------- graphs in memory

    def _piece(self, start, stop, with_features=True):
        """The graphs start ... stop - 1 in memory."""
        if with_features:
            source = self.X[start:stop]
            arrays = {name: getattr(source, name) for name in ARRAYS}
            arrays["factors"] = source.factors
        else:
            arrays = _without_features(self.bare[start:stop])
        return Graphs._of(**{
            name: array if array is None or name == "factors" else in_memory(array)
            for name, array in arrays.items()})

    def _inner(self, X, labels, start, stop):
        """The graphs start ... stop - 1 that count, without unlabelled nodes.

        Parameters
        ----------
        X : Graphs
            These, or their slices without features.
        labels : ndarray of int
            A number for each node, negative without a label.

        Returns
        -------
        inner : Graphs
            The graphs in `kept`, with their labelled nodes.
        labels : ndarray of int
            Of these nodes.
        """
        chosen = np.flatnonzero(self.kept[start:stop])
        if chosen.size < len(X):
            labels = Sequences(labels, X.node_offsets)[chosen].values
            X = X[chosen]
        if labels.size and labels.min() < 0:
            X, nodes = X.drop_nodes(labels < 0)
            labels = labels[nodes]
        return X, labels

    def _again(self, start, stop, with_features=False):
        """The same of graphs that were looked at, whose labels are put aside."""
        labels = self.labels.read(*self.node_offsets[[start, stop]])
        return self._inner(self._piece(start, stop, with_features), labels, start, stop)

    def _named(self, start, stop):
        """Errors name the graphs of `_inner` by their numbers."""
        return named(start + np.flatnonzero(self.kept[start:stop]))

    def _codes(self, X, labels):
        """Numbers of labels among the labels of their node's type."""
        if self.is_displaced:
            return labels
        codes = self.rank[labels]
        return codes if self.of_types is None else self.of_types[X.node_types, codes]

    # ------------------------------------------------------------------ the first passes

    def problem(self):
        task = self.task
        self.labels = LabelFile(self.store)
        self.n_types = self.n_edge_types = 1
        if task.declared is not None:
            self.labels.numbers(sorted(set().union(*task.declared.values()), key=repr))
            self.n_types = max(1 + (t or 0) for t in task.declared)
        self.typed, self.n_labelled, self.cyclic, self.has_factors = set(), 0, None, False
        self.forms = None
        # of each graph that counts
        noted = {name: [] for name in (
            "lengths", "edge_lengths", "entries", "edge_entries", "norms", "sums")}
        with self.store.explained():
            self.stream(self.node_offsets, lambda a, b: self._look(a, b, noted))
        if not self.kept.any():
            raise ValueError("X has no labelled nodes in graphs of non-zero weight.")
        noted = {name: np.concatenate(parts) for name, parts in noted.items()}
        self.begin(self.kept, summable(self.given_weights[self.kept]))
        del self.given_weights
        numbers = np.flatnonzero(self.kept)

        classes, node_classes = self._encoded()
        nodes, edges = self.forms
        self.shapes, self.common = shapes_and_attributes(
            task, classes, node_classes, nodes.shape[1], self.n_edge_types,
            0 if edges is None else edges.shape[1])
        alpha = task.alpha_of(self.total, as_costs(self.common["_cost_held"]))
        check_sizes(noted["norms"], alpha, numbers)
        check_costs(noted["sums"], as_costs(self.common["_cost_held"]), numbers)
        self._choose(int(noted["edge_lengths"].sum()))
        self.common.update(attributes_of_oracle(self.oracle))

        first = int(np.argmax(self.kept))
        with self._named(first, first + 1):
            X, labels = self._again(first, first + 1, True)
            surrogate = task.loss(self._outputs(X, labels))
        # of edges that share their scores by type, these are the rows of all chunks
        nodes, edges = self.first_rows = self._rows(X, surrogate.outputs)
        features = graph_features(task, X, self.shapes, surrogate.outputs, nodes, edges)
        task.penalise(features, self.shapes)
        dual = self._numbers(noted, surrogate.outputs)
        self.finish(
            features, int(dual.max()), self._sizes(noted, surrogate, nodes, edges), dual)
        return Problem(
            self.kind, features, self.kept_blocks(), self.common, {}, shapes=self.shapes)

    def _look(self, start, stop, noted):
        """Validate graphs, store their labels, and add to the sums over all graphs."""
        task = self.task
        with named(np.arange(start, stop)):
            as_graphs(self.X[start:stop])
        X = self._piece(start, stop)
        labels = task.labels_of(self.y[start:stop], X, start)
        if task.pairwise == "attractive":
            check_not_negative(X, start)
        if self.forms is None:
            # rows like all others
            self.forms = [
                None if rows is None else rows[:0] for rows in (X.node_features, X.edge_features)]
        self.n_types = max(self.n_types, number_of(X.node_types))
        self.n_edge_types = max(self.n_edge_types, number_of(X.edge_types))
        # a node without a label says nothing, and neither does a graph without nodes
        told = ~np.fromiter(map(is_unlabelled, labels), bool, len(labels))
        told &= np.repeat(self.given_weights[start:stop] > 0, X.lengths)
        self.kept[start:stop] = np.bincount(
            np.repeat(np.arange(stop - start), X.lengths), told, stop - start) > 0
        codes = np.full(told.size, -1, dtype=np.int32)
        if not told.all():
            labels = [labels[t] for t in np.flatnonzero(told)]
        if self.is_displaced:
            codes[told] = as_places(labels, task.grid_shape, self.n_labelled)[1]
        else:
            codes[told] = self.labels.numbers(labels)
        self.n_labelled += len(labels)
        self.labels.write(self.node_offsets[start], codes)
        inner, codes = self._inner(X, codes, start, stop)
        if len(inner):
            self._note(inner, codes, start + np.flatnonzero(self.kept[start:stop]), noted)
        return _bytes(X)

    def _note(self, X, codes, numbers, noted):
        """Record sizes, cycles and types. `numbers` are the numbers of the graphs."""
        if X.node_types is not None and not self.is_displaced:
            self.typed.update(np.unique(X.node_types.astype(np.int64) * TYPE + codes).tolist())
        if self.cyclic is None and asks_for_cycles(self.task.inference) and X.n_edges:
            cyclic = graph_with_cycle(X.lengths, X.edges, X.edge_lengths)
            self.cyclic = None if cyclic is None else int(numbers[cyclic])
        self.has_factors |= X.factors is not None
        edges = X.edge_features
        for name, values in (
            ("lengths", X.lengths), ("edge_lengths", X.edge_lengths), ("norms", step_norms(X)),
            ("sums", sums_of_weights(X)), ("entries", entries_of(X.node_features, X.node_offsets)),
            ("edge_entries", X.edge_lengths * 0 if edges is None else entries_of(
                edges, X.edge_offsets)),
        ):
            noted[name].append(values)
        if self.store.is_lasting:
            for name in ARRAYS:
                array = getattr(X, name)
                if array is not None:
                    self.digest.update(np.frombuffer(name.encode(), dtype=np.uint8), array)
            self.digest.update(codes, all_contents(X.factors, len(X)))

    def _encoded(self):
        """Classes, and the classes of each type of node, as in `encoded`."""
        self.of_types, task = None, self.task
        if self.is_displaced:
            classes, _ = as_places([], task.grid_shape)
            return classes, np.arange(classes.size)[np.newaxis].repeat(self.n_types, axis=0)
        classes, self.rank = encode(self.labels.labels, self.labels.labels, "graphs")
        # labels that were met in the same order may come in another one
        self.digest.update(self.rank)
        if self.n_types == 1:
            return classes, np.arange(classes.size)[np.newaxis]
        if task.declared is not None:
            pairs = list(task.typed_labels(self.n_types))
            numbers = self.labels.numbers([label for _, label in pairs])
            self.typed = {t * TYPE + int(n) for (t, _), n in zip(pairs, numbers, strict=True)}
        of_type, label = np.divmod(np.array(sorted(self.typed)), TYPE)
        node_classes, self.of_types = labels_of_types(
            np.sort(of_type * classes.size + self.rank[label]), self.n_types, classes.size)
        return classes, node_classes

    def _choose(self, n_edges):
        """Choose the oracle, and read the graphs again if that needs it."""
        task, common = self.task, self.common
        counts = (common["node_classes_"] >= 0).sum(axis=1)
        *self.small, self.oracle = oracles_of(
            task.inference, task.surrogate, task.pairwise == "attractive",
            self.shapes.n_labels,
            Traits(n_edges, self.cyclic, bool(counts[counts > 0].min() == 2), self.has_factors))
        compares = task.pairwise in COMPARING and self.n_types > 1 and n_edges > 0
        moves = None
        if self.is_displaced:
            moves = Displacements(self.n_edge_types, task.grid_shape[1])
            common["shifts_"] = moves.means()
        if self.small or self.oracle == "few_states" or compares or self.is_displaced:
            self.stream(self.node_offsets, lambda a, b: self._look_again(a, b, moves))
        if self.small:
            # all graphs are small
            self.oracle = self.small[0]
        if self.is_displaced:
            common["shifts_"] = moves.means()

    def _look_again(self, start, stop, moves):
        """Validate against all classes, add displacements, and check whether graphs are small."""
        task = self.task
        X, labels = self._again(start, stop)
        if not len(X):
            return 0
        codes = self._codes(X, labels)
        with self._named(start, stop):
            if task.pairwise in COMPARING:
                check_same_labels(X, self.common["node_classes_"], task.pairwise)
            if moves is not None:
                moves.add(X, codes, self.weights[slice(*self.before[[start, stop]])])
            if self.small:
                try:
                    self._made(X, codes, self.small[0])
                except ValueError:
                    self.small = []
            elif self.oracle == "few_states":
                self._made(X, codes, self.oracle)
            check_truth(X, codes)
        return _bytes(X) + OF_NODE * X.n_nodes + OF_EDGE * X.n_edges

    def _rows(self, X, outputs):
        """Features of nodes and of edges as the compiled loops read them."""
        return (
            rows_of_nodes(X, self.shapes, float(self.task.fit_intercept)),
            rows_of_edges(X, self.shapes, outputs.per_edge))

    def _numbers(self, noted, outputs):
        """Length of each block's dual point."""
        shapes = self.shapes
        edges = noted["edge_lengths"] if outputs.per_edge else shapes.n_edge_types
        return noted["lengths"] * row_stride(shapes.n_labels) + (
            edges * numbers_of_edge(outputs.pairs, shapes.n_labels))

    def _sizes(self, noted, surrogate, nodes, edges):
        """Bytes of each block's data and features."""
        n_nodes, n_edges, shapes = noted["lengths"], noted["edge_lengths"], self.shapes
        total = OF_NODE * n_nodes + OF_EDGE * n_edges
        families = [(n_nodes, noted["entries"], nodes, self.forms[0])]
        if surrogate.outputs.per_edge:
            families.append((n_edges, noted["edge_entries"], edges, self.forms[1]))
        else:
            total = total + 4.0 * shapes.n_edge_types * (shapes.n_edge_types + 1)
        for lengths, entries, rows, given in families:
            made = entries
            if shapes.per_label and given is self.forms[0]:
                made = lengths * given.shape[1]
            elif rows.intercept == 0.0:
                made = entries + lengths  # constants among the features
            total = total + position_bytes(lengths, made, rows.values)
            if given is not None and sparse.issparse(given) != sparse.issparse(rows.values):
                total = total + 12.0 * entries
        if self.oracle == "few_states":
            total = total + OF_PLAN
        state = surrogate.state()
        kept = sum(state[name].nbytes for name in ("columns", "rows") if name in state)
        total = total + DUAL_COPIES * n_nodes * (kept / int(n_nodes[0]))
        if "messages" in state:
            total = total + DUAL_COPIES * 16.0 * row_stride(shapes.n_labels) * n_edges
        return total

    # -------------------------------------------------------------------------- chunks

    def _made(self, X, codes, oracle, **more):
        task = self.task
        return outputs_by(
            oracle, task.inference, task.surrogate,
            **arguments_of_outputs(task, X, self.shapes, self.common, codes), **more)

    def _outputs(self, X, labels, **more):
        return self._made(X, self._codes(X, labels), self.oracle, **more)

    def surrogate_of(self, blocks):
        start = int(np.searchsorted(self.before, blocks[0], side="right")) - 1
        stop = int(np.searchsorted(self.before, blocks[-1] + 1, side="left"))
        with self._named(start, stop):
            return self.task.loss(self._outputs(*self._again(start, stop)))

    def open(self, c):
        start, stop = map(int, self.examples[[c, c + 1]])
        kept = self.store.kept(c)
        is_planned = self.oracle == "few_states"
        more = {} if kept is None or not is_planned else {"planned": part("planned", kept)}
        with self._named(start, stop):
            X, labels = self._again(start, stop, kept is None)
            outputs = self._outputs(X, labels, **more)
        surrogate, norms = self.task.loss(outputs), None
        if kept is None:
            nodes, edges = self._rows(X, outputs)
        else:
            nodes, edges = self._kept(outputs, kept, start, stop)
            norms = part("norms", kept)
        features = graph_features(
            self.task, X, self.shapes, outputs, nodes, edges, like=self.features,
            norms=norms)
        if kept is None:
            arrays = flat("norms", features.norms())
            if is_planned:
                arrays.update(flat("planned", outputs.planned()))
            for name, rows, given, offsets in (
                ("nodes", nodes.values, X.node_features, self.node_offsets),
                ("edges", edges.values, X.edge_features, self.edge_offsets),
            ):
                is_plain = rows is given and rows.shape[0] == offsets[stop] - offsets[start]
                if not is_plain and (name == "nodes" or outputs.per_edge):
                    arrays.update(as_arrays(name, rows))
            self.store.keep(c, arrays)
        return surrogate, features, n_bytes(nodes.values) + n_bytes(edges.values)

    def _kept(self, outputs, kept, start, stop):
        """As `_rows`, from stored arrays."""
        nodes = from_arrays("nodes", kept)
        if nodes is None:
            nodes = rows_again(self.X, "node_features", start, stop, self.node_offsets)
        nodes = Rows(nodes, self.first_rows[0].intercept)
        if not outputs.per_edge:
            return nodes, self.first_rows[1]
        edges = from_arrays("edges", kept)
        if edges is None:
            edges = rows_again(self.X, "edge_features", start, stop, self.edge_offsets)
        return nodes, Rows(edges, self.first_rows[1].intercept)

    def ended(self, engine):
        if self.common["exact_"] or self.task.surrogate.name == "log":
            return
        self.integrality_gaps = np.zeros(self.weights.size)

        def visit(c, engine, cost):
            self.integrality_gaps[self.edges[c] : self.edges[c + 1]] = integrality_gaps(
                engine.surrogate, engine.features)

        engine.for_each(range(self.edges.size - 1), visit)


def _without_features(X):
    """The arrays of graphs by name, features having no columns."""
    arrays = {name: getattr(X, name) for name in ARRAYS if name not in MATRICES}
    return {**arrays, "node_features": np.empty((X.n_nodes, 0)), "factors": X.factors}


def _bytes(X):
    """Bytes of all arrays of graphs."""
    arrays = (getattr(X, name) for name in ARRAYS)
    return sum(n_bytes(array) for array in arrays if array is not None)


GraphTask.chunks = GraphChunks
