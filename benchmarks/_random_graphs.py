"""Random small graphs with scores, their values by enumeration of all labellings and by HiGHS.

Written from the definitions, apart from the code that it checks.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.special import logsumexp

from fastm4n.outputs import row_stride

MOST_NODES = {2: 7, 3: 6, 4: 5}


class Graph(NamedTuple):
    """A graph with scores: `tables` of the edges are (k, k), `places` where they lie in `more`."""

    pairs: str
    choices: tuple
    edges: np.ndarray
    y: np.ndarray
    cost: np.ndarray
    om: np.ndarray
    nodes: np.ndarray
    tables: np.ndarray
    places: np.ndarray
    basis: np.ndarray
    stride: int
    more: np.ndarray

    @property
    def size(self):
        """Largest sum of scores and costs there can be, of any sign."""
        return float(
            np.abs(self.nodes).max(axis=1).sum() + np.abs(self.tables).max(axis=(1, 2)).sum()
            + (self.om * self.cost.max()).sum())


@functools.lru_cache(maxsize=None)
def all_labels(choices):
    """All labellings of nodes with so many labels each, as rows."""
    return np.array(list(itertools.product(*map(range, choices))), dtype=np.intp)


def random_edges(rng, n, forest):
    if forest:
        # a random labelling of a random recursive forest
        names = rng.permutation(n)
        pairs = [(names[rng.integers(j)], names[j]) for j in range(1, n) if rng.random() < 0.8]
    else:
        density = rng.choice([0.3, 0.6, 1.0])
        pairs = [p for p in itertools.combinations(range(n), 2) if rng.random() < density]
        pairs = [pairs[i] for i in rng.permutation(len(pairs))]
    pairs = [pair[:: rng.choice([-1, 1])] for pair in pairs]
    return np.array(pairs, dtype=np.intc).reshape(-1, 2)


def numbers_of(pairs, k):
    """What the numbers of an edge multiply: (n_numbers, k, k), of the numbers that are used."""
    if pairs == "tables":
        return np.eye(k * k).reshape(k * k, k, k)
    if pairs == "equal":
        return np.eye(k)[np.newaxis]
    return np.array([[[0.0, 0.0], [0.0, 1.0]]])


def displacements(k, width, unit, shift):
    place = np.arange(k)
    dx = (np.subtract.outer(place % width, place % width) - shift[0]) / unit
    dy = (np.subtract.outer(place // width, place // width) - shift[1]) / unit
    return np.array([dx, dx**2, dy, dy**2])


class Batch:
    """Some random graphs of one kind: what `GraphOutputs` takes, and random scores.

    Parameters
    ----------
    rng : Generator
    n_graphs : int
    forest, binary, attractive, full : bool
        Restrictions: no cycles, two labels, attractive edges, a table for each edge.
    """

    def __init__(self, rng, n_graphs, forest=False, binary=False, attractive=False, full=False):
        self.attractive = attractive
        self.k = k = 2 if binary else int(rng.integers(2, 5))
        kinds = ["tables", "equal"] + ["both"] * (k == 2) + ["displaced"] * (not attractive)
        self.pairs = "tables" if full else str(rng.choice(kinds))
        self.per_edge = full or bool(rng.random() < 0.5)
        self.n_types = int(rng.integers(1, 4))
        self.n_nodes = rng.integers(1, MOST_NODES[k] + 1, n_graphs)
        self.edges = [random_edges(rng, n, forest) for n in self.n_nodes]
        self.n_edges = np.array([len(edges) for edges in self.edges])
        total, total_edges = int(self.n_nodes.sum()), int(self.n_edges.sum())
        self.types = rng.integers(0, self.n_types, total_edges)
        self.choices = np.full(total, k)
        if not binary and rng.random() < 0.3:
            self.choices = rng.integers(1, k + 1, total)
        self.y = rng.integers(0, self.choices)
        self.cost = 1.0 - np.eye(k)
        if rng.random() < 0.5:
            self.cost *= rng.exponential(size=(k, k))
        self.weights = None
        if rng.random() < 0.4:
            self.weights = rng.uniform(0.0, 2.0, total) * (rng.random(total) < 0.9)
        self.mean = bool(rng.random() < 0.5)
        self.width = int(rng.choice([w for w in range(1, k + 1) if k % w == 0]))
        self.unit = float(rng.choice([1.0, self.width, 3.0]))
        self.shifts = rng.normal(size=(total_edges, 2)) * (rng.random() < 0.5)
        self.numbers = k * row_stride(k) if self.pairs == "tables" else row_stride(
            4 if self.pairs == "displaced" else 1)
        self.n_more = self.n_edges * self.numbers
        if not self.per_edge:
            self.n_more = np.full(n_graphs, self.n_types * self.numbers)

    def arguments(self):
        """Of `GraphOutputs`."""
        return dict(
            y=self.y, n_nodes=self.n_nodes, edges=np.concatenate(self.edges),
            n_edges=self.n_edges, cost=self.cost, pairs=self.pairs,
            edge_types=None if self.per_edge else self.types, n_types=self.n_types,
            n_choices=None if (self.choices == self.k).all() else self.choices,
            part_weights=self.weights, shifts=self.shifts, width=self.width, unit=self.unit,
            cost_scale="mean" if self.mean else "sum")

    def numbers_in(self, rng, scale, whole, shape):
        found = rng.integers(-3, 4, shape).astype(float) if whole else rng.normal(size=shape)
        return scale * found

    def edge_numbers(self, rng, scale, whole, count):
        """Random scores of `count` places, (count, numbers)."""
        k, stride = self.k, row_stride(self.k)
        out = np.zeros((count, self.numbers))
        if self.pairs == "tables":
            tables = self.numbers_in(rng, scale, whole, (count, k, k))
            if self.attractive:
                wrong = (tables[:, 0, 0] + tables[:, 1, 1]) < (tables[:, 0, 1] + tables[:, 1, 0])
                tables[wrong] = tables[wrong][:, :, ::-1]
            out.reshape(count, k, stride)[:, :, :k] = tables
        elif self.pairs == "displaced":
            out[:, :4] = self.numbers_in(rng, scale, whole, (count, 4))
            if rng.random() < 0.5:
                out[:, [1, 3]] = -np.abs(out[:, [1, 3]])
        else:
            out[:, 0] = self.numbers_in(rng, scale, whole, count)
            if self.attractive:
                out[:, 0] = np.abs(out[:, 0])
        return out

    def scores(self, rng):
        """Random flat scores, and the graphs with them."""
        k, stride = self.k, row_stride(self.k)
        flat, graphs, node, edge = [], [], 0, 0
        for n, m, edges, n_more in zip(
                self.n_nodes, self.n_edges, self.edges, self.n_more, strict=True):
            scale, whole = 10.0 ** rng.uniform(-3.0, 6.0), rng.random() < 0.3
            if whole and rng.random() < 0.7:
                scale = 1.0
            coupling = rng.choice([0.1, 1.0, 3.0])
            nodes = self.numbers_in(rng, scale, whole, (n, k))
            more = self.edge_numbers(
                rng, scale if whole else coupling * scale, whole, n_more // self.numbers)
            rows = np.zeros((n, stride))
            rows[:, :k] = nodes
            flat += [rows.ravel(), more.ravel()]
            at = np.arange(m) if self.per_edge else self.types[edge : edge + m]
            if self.pairs == "displaced":
                basis = np.array([
                    displacements(k, self.width, self.unit, shift)
                    for shift in self.shifts[edge : edge + m]]).reshape(m, 4, k, k)
                inside = np.arange(4)
            else:
                basis = np.broadcast_to(numbers_of(self.pairs, k), (
                    m, *numbers_of(self.pairs, k).shape))
                inside = np.arange(1)
                if self.pairs == "tables":
                    inside = (np.arange(k)[:, np.newaxis] * stride + np.arange(k)).ravel()
            places = (at * self.numbers)[:, np.newaxis] + inside
            tables = np.einsum("en,enab->eab", more.ravel()[places], basis)
            om = np.ones(n) if self.weights is None else self.weights[node : node + n]
            graphs.append(Graph(
                self.pairs, tuple(self.choices[node : node + n].tolist()), edges, self.y[node : node + n],
                self.cost, om / n if self.mean else om, nodes, tables, places, basis, stride,
                more.ravel()))
            node += n
            edge += m
        return np.concatenate(flat), graphs


# --------------------------------------------------------------- by enumeration


def scores_of(graph, labels):
    """Scores of labellings, rows."""
    total = np.zeros(len(labels))
    for t, row in enumerate(graph.nodes):
        total += row[labels[:, t]]
    for (i, j), table in zip(graph.edges, graph.tables, strict=True):
        total += table[labels[:, i], labels[:, j]]
    return total


def costs_of(graph, labels):
    return sum(
        w * graph.cost[true, labels[:, t]]
        for t, (w, true) in enumerate(zip(graph.om, graph.y, strict=True)))


def node_marginals(graph, labels, p):
    k = graph.nodes.shape[1]
    return np.array([np.bincount(column, p, minlength=k) for column in labels.T])


def phi(graph, labels, p):
    """sum_y p_y phi(y) in the form of scores, (n_numbers,); and edges' pairs of labels."""
    n, k = graph.nodes.shape
    rows, more = np.zeros((n, graph.stride)), np.zeros(graph.more.size)
    rows[:, :k] = node_marginals(graph, labels, p)
    tables = np.zeros((len(graph.edges), k, k))
    for e, (i, j) in enumerate(graph.edges):
        tables[e] = np.bincount(labels[:, i] * k + labels[:, j], p, minlength=k * k).reshape(k, k)
    np.add.at(more, graph.places, np.einsum("enab,eab->en", graph.basis, tables))
    return np.concatenate([rows.ravel(), more]), tables


def adversary(graph, rows):
    """min over answers of the expected cost, of marginals of nodes (n, k)."""
    return sum(
        w * (row @ graph.cost)[:c].min()
        for w, row, c in zip(graph.om, rows, graph.choices, strict=True))


def log_partition(graph):
    """Log-partition, marginals and entropy."""
    labels = all_labels(graph.choices)
    scores = scores_of(graph, labels)
    total = logsumexp(scores)
    p = np.exp(scores - total)
    p /= p.sum()
    found = p[p > 0]
    return total, p, labels, -np.sum(found * np.log(found))


def tree_entropy(graph, mu, tables, shares):
    """sum_i H_i - sum_e share_e I_e, of marginals of nodes (n, k) and of edges (E, k, k)."""

    def entropy(q):
        q = q[q > 0.0]
        return -np.sum(q * np.log(q))

    total = sum(map(entropy, mu))
    for (i, j), table, share in zip(graph.edges, tables, shares, strict=True):
        total -= share * (entropy(mu[i]) + entropy(mu[j]) - entropy(table))
    return total


def outside_local(graph, atom):
    """How far the atom is from the local polytope, by its necessary conditions, in units of 1."""
    n, k = graph.nodes.shape
    rows, more = atom[: n * graph.stride].reshape(n, graph.stride), atom[n * graph.stride :]
    outside = max(0.0, -rows.min(), np.abs(rows.sum(axis=1) - 1.0).max(), np.abs(
        rows[:, k:]).max(initial=0.0))
    for row, c in zip(rows, graph.choices, strict=True):
        outside = max(outside, np.abs(row[c:]).max(initial=0.0))
    rows = rows[:, :k]
    sums, boxes = {}, {}
    for (i, j), places, basis in zip(graph.edges, graph.places, graph.basis, strict=True):
        # bounds of the sums of edges that share their places
        if graph.pairs == "tables":
            first, second = sums.get(places[0], (0.0, 0.0))
            sums[places[0]] = first + rows[i], second + rows[j]
            p, q = np.repeat(rows[i], k), np.tile(rows[j], k)
            least, most = np.maximum(0.0, p + q - 1.0), np.minimum(p, q)
        elif graph.pairs == "displaced":
            dx, dy = (
                (rows[i] @ table @ rows[j]) for table in (basis[0], basis[2]))
            least = np.array([dx, dx**2, dy, dy**2])
            most = basis.max(axis=(1, 2))
            most[0], most[2] = dx, dy
        elif graph.pairs == "equal":
            least = max(0.0, (rows[i] + rows[j] - 1.0).max())
            most = np.minimum(rows[i], rows[j]).sum()
        else:
            least, most = max(0.0, rows[i, 1] + rows[j, 1] - 1.0), min(rows[i, 1], rows[j, 1])
        before = boxes.get(places[0], (places, 0.0, 0.0))
        boxes[places[0]] = places, before[1] + least, before[2] + most
    for places, least, most in boxes.values():
        outside = max(outside, np.max(least - more[places]), np.max(more[places] - most))
        if graph.pairs == "tables":
            table, (first, second) = more[places].reshape(k, k), sums[places[0]]
            outside = max(outside, np.abs(table.sum(axis=1) - first).max(), np.abs(
                table.sum(axis=0) - second).max())
    return outside


# ---------------------------------------------------------------------- by HiGHS


def solve_lp(objective, A_ub, b_ub, A_eq, b_eq, bounds):
    found = linprog(
        objective, A_ub=A_ub, b_ub=b_ub, A_eq=A_eq, b_eq=b_eq, bounds=bounds, method="highs")
    if found.status != 0:
        raise RuntimeError(f"HiGHS: {found.message}")
    return found


def game_value(graph):
    """max over distributions of labellings of score + adversary: bounds (low, high) that hold."""
    labels = all_labels(graph.choices)
    scores, (m, n) = scores_of(graph, labels), labels.shape
    size = max(graph.size, 1e-300)
    rows, answers = [], []
    for t, c in enumerate(graph.choices):
        for j in range(c):
            z = np.zeros(n)
            z[t] = 1.0
            rows.append(np.concatenate([-graph.cost[labels[:, t], j], z]))
            answers.append((t, j))
    found = solve_lp(
        -np.concatenate([scores, graph.om]) / size, np.array(rows), np.zeros(len(rows)),
        np.concatenate([np.ones(m), np.zeros(n)])[np.newaxis], [1.0],
        [(0, None)] * m + [(None, None)] * n)
    p = np.maximum(found.x[:m], 0.0)
    p /= p.sum()
    low = p @ scores + adversary(graph, node_marginals(graph, labels, p))
    q = np.zeros(graph.nodes.shape)
    for (t, j), dual in zip(answers, found.ineqlin.marginals, strict=True):
        q[t, j] = max(0.0, -dual)
    high = scores.copy()
    for t, (w, c) in enumerate(zip(graph.om, graph.choices, strict=True)):
        q[t] = q[t] / q[t].sum() if q[t].sum() > 0.0 else np.arange(len(q[t])) < 1
        high += w * (graph.cost[:, :c] @ q[t, :c])[labels[:, t]]
    return low, high.max()


def local_value(graph, game):
    """max over the local polytope of score + cost, or of score + adversary (`game`).

    (low, high): high is a bound that holds, low a value at a point that is feasible to HiGHS.
    """
    n, k = graph.nodes.shape
    E, size = len(graph.edges), max(graph.size, 1e-300)
    gain = graph.nodes + (0.0 if game else graph.om[:, np.newaxis] * graph.cost[graph.y])
    n_x = n * k + E * k * k
    objective = np.concatenate([gain.ravel(), graph.tables.ravel(), graph.om if game else []])
    number = np.arange(n * k).reshape(n, k)
    of_edge = n * k + np.arange(E * k * k).reshape(E, k, k)
    A = np.zeros((n + 2 * E * k, objective.size))
    b = np.zeros(len(A))
    b[:n] = 1.0
    for t in range(n):
        A[t, number[t]] = 1.0
    for e, (i, j) in enumerate(graph.edges):
        for a in range(k):
            row = n + 2 * k * e + a
            A[row, of_edge[e, a]], A[row, number[i, a]] = 1.0, -1.0
            A[row + k, of_edge[e, :, a]], A[row + k, number[j, a]] = 1.0, -1.0
    there = np.arange(k) < np.array(graph.choices)[:, np.newaxis]
    upper = np.concatenate([np.where(there.ravel(), 1.0, 0.0), np.ones(E * k * k)])
    bounds = [(0.0, u) for u in upper] + [(None, None)] * (objective.size - n_x)
    A_ub = b_ub = None
    answers = []
    if game:
        answers = [(t, j) for t, c in enumerate(graph.choices) for j in range(c)]
        A_ub, b_ub = np.zeros((len(answers), objective.size)), np.zeros(len(answers))
        for row, (t, j) in enumerate(answers):
            A_ub[row, number[t]] = -graph.cost[:, j]
            A_ub[row, n_x + t] = 1.0
    found = solve_lp(-objective / size, A_ub, b_ub, A, b, bounds)
    if game:
        q = np.zeros((n, k))
        for (t, j), dual in zip(answers, found.ineqlin.marginals, strict=True):
            q[t, j] = max(0.0, -dual)
        for t in range(n):
            q[t] = q[t] / q[t].sum() if q[t].sum() > 0.0 else np.arange(k) < 1
            gain[t] += graph.om[t] * graph.cost @ q[t]
    messages = size * found.eqlin.marginals[n:]
    left = np.concatenate([gain.ravel(), graph.tables.ravel()]) + messages @ A[n:, :n_x]
    nodes = np.where(there, left[: n * k].reshape(n, k), -np.inf)
    high = nodes.max(axis=1).sum()
    for e, (i, j) in enumerate(graph.edges):
        pairs = left[of_edge[e]][: graph.choices[i], : graph.choices[j]]
        high += pairs.max()
    return float(-found.fun * size), float(high)
