"""Small problems with soft constraints, compiled and in the reference."""

import itertools

import numpy as np
from scipy import sparse
from scipy.linalg import qr
from scipy.optimize import LinearConstraint, minimize

from fastm4n import CountFactor
from fastm4n.reference.soft import Factor, GlobalFactor, Node, SoftProblem, features_of_gram
from fastm4n.research import FactorBlocks, FactorGraphs, SmoothMargin, SoftFeatures
from fastm4n.research._soft_kernels import SoftEngine
from fastm4n.research.soft import solve_soft
from fastm4n.surrogates import MaxMarginLoss

ALPHA = 0.3


class Case:
    """Small graphs with nodes of 2 and 3 labels, pairs and a triple, shared and own weights."""

    def __init__(self, seed=0, n_examples=3, triple=True, is_sparse=False):
        rng = np.random.default_rng(seed)
        self.node_labels, counts, scopes, sizes, factor_counts, kinds = [], [], [], [], [], []
        for m in range(n_examples):
            labels = [2, 3, 2, 2][: 3 + m % 2]
            first = len(self.node_labels)
            of_example = [(0, 1), (1, 2), (0, 2)][: 2 + m % 2] + ([(2, 0, 1)] if triple else [])
            self.node_labels += labels
            counts.append(len(labels))
            factor_counts.append(len(of_example))
            for scope in of_example:
                scopes += [first + i for i in scope]
                sizes.append(len(scope))
                kinds.append({(0, 1): 0, (1, 2): 1, (0, 2): 2, (2, 0, 1): 3}[scope])
        self.node_labels = np.array(self.node_labels)
        n_nodes, n_factors = len(self.node_labels), len(sizes)
        node_tables = [[0, 1], [2, -1, 3]]
        # of pairs and of three, some weights met by several labels, and some by none
        factor_tables = [
            np.arange(6).reshape(2, 3), [[6, -1], [7, 6], [-1, 7]], [[-1, -1], [-1, 8]],
            np.where(np.arange(12) % 5 == 0, 9, -1).reshape(2, 2, 3)]
        self.graphs = FactorGraphs(
            self.node_labels, counts, scopes, sizes, factor_counts, node_tables, factor_tables,
            node_kinds=(self.node_labels == 3).astype(int), factor_kinds=kinds,
            factor_rows=np.arange(n_factors))
        self.X, self.factor_X = rng.normal(size=(n_nodes, 2)), rng.normal(size=(n_factors, 2))
        self.y = rng.integers(0, self.node_labels)
        self.cost = rng.uniform(0.5, 2.0, (3, 3)) * (1.0 - np.eye(3))
        self.shares = rng.uniform(0.5, 1.0, n_examples)
        self.shares /= self.shares.sum()
        self.heights = self.graphs.heights_of_costs(self.y, self.cost)
        self.kernel = "linear"
        self.given = (
            [sparse.csr_matrix(X) for X in (self.X, self.factor_X)] if is_sparse
            else [self.X, self.factor_X])

    def use_kernel(self):
        """Give the nodes a Gaussian kernel, as features of its Gram matrix in the reference."""
        squares = np.sum((self.X[:, np.newaxis] - self.X) ** 2, axis=2)
        gram = np.exp(-0.3 * squares) + 0.5
        self.X, self.kernel = features_of_gram(gram), "precomputed"
        self.factor_X = np.pad(self.factor_X, ((0, 0), (0, len(gram) - 2)))
        self.given = [gram, self.factor_X]
        return self

    def weights(self, node_weights, factor_weights):
        """All weights, flat, as the reference has them."""
        if self.kernel != "linear":
            node_weights = node_weights @ self.X
        return np.concatenate([node_weights, factor_weights]).ravel()

    def count(self, seed=0):
        """Add counts over the nodes of two labels, as tight as the true labels let them be.

        The second example has two of them, the third none.
        """
        rng = np.random.default_rng(seed)
        counts, first = [], 0
        for m, n_nodes in enumerate(self.graphs.node_counts):
            nodes = np.flatnonzero(self.node_labels[first : first + n_nodes] == 2)
            counts.append([])
            for _ in range((1, 2, 0)[m % 3]):
                rng.shuffle(nodes)
                negated = rng.random(nodes.size) < 0.5
                total = int(np.sum(self.y[first + nodes] != negated))
                counts[m].append(CountFactor(nodes, max(0, total - m % 2), total, negated))
            first += n_nodes
        self.graphs = self.graphs.with_counts(counts)
        return self

    def reference(self, rho, **options):
        """The same problem in the reference: w is node weights and then factor weights, flat."""
        graphs = self.graphs
        n_node_weights, n_weights = 4, 14

        def phi(table, x, first):
            flat = np.ravel(table)
            rows = np.zeros((flat.size, n_weights, x.size))
            for label, weight in enumerate(flat):
                if weight >= 0:
                    rows[label, first + weight] = x
            return rows.reshape(flat.size, -1)

        examples = []
        labels = graphs.labels_of_blocks(self.y)
        parts = np.cumsum(graphs.n_parts) - graphs.n_parts
        starts = np.cumsum(graphs.node_labels) - graphs.node_labels
        node = factor = 0
        for count, n_factors in zip(graphs.node_counts, graphs.factor_counts, strict=True):
            nodes, factors, first = [], [], node
            for _ in range(count):
                loss = self.heights[starts[node] : starts[node] + graphs.node_labels[node]]
                kind = graphs.node_tables[graphs.node_kinds[node]]
                nodes.append(Node(phi(kind, self.X[node], 0), loss, self.y[node]))
                node += 1
            for _ in range(n_factors):
                a, b = graphs.slot_starts[factor], graphs.slot_starts[factor + 1]
                if graphs.is_count[factor]:
                    factors.append(counted(
                        graphs.scopes[a:b] - first, graphs.negated[a:b],
                        *graphs.count_bounds[factor], self.y[graphs.scopes[a:b]],
                        n_weights * self.X.shape[1]))
                    factor += 1
                    continue
                kind = graphs.factor_tables[graphs.factor_kinds[factor]]
                block = graphs.factor_blocks[factor]
                factors.append(Factor(
                    tuple(graphs.scopes[a:b] - first),
                    phi(kind, self.factor_X[graphs.factor_rows[factor]], n_node_weights),
                    np.zeros(graphs.sizes[block]), labels[parts[block]]))
                factor += 1
            examples.append((nodes, factors))
        return SoftProblem(examples, ALPHA, rho, p=self.shares, **options)

    def fitted(self, rho, engine=SoftEngine, seed=3, smoothing=0.0):
        """Compiled outputs, features and engine."""
        outputs = FactorBlocks(self.graphs, self.y, self.heights)
        features = SoftFeatures(
            self.graphs, self.given[0], self.shares, ALPHA, rho, self.given[1],
            self.kernel == "precomputed")
        surrogate = SmoothMargin(outputs, smoothing) if smoothing else MaxMarginLoss(outputs)
        return outputs, features, engine(
            surrogate, features, self.shares[self.graphs.examples], ALPHA, seed)

    def solve(self, **options):
        return solve_soft(
            self.graphs, self.given[0], self.y, self.heights, alpha=ALPHA, shares=self.shares,
            factor_X=self.given[1], kernel=self.kernel, **options)


def counted(scope, negated, least, most, truth, n_features):
    """A count as a global factor of the reference, by enumeration."""
    labellings = [
        y for y in itertools.product((0, 1), repeat=len(scope))
        if least <= np.sum(np.array(y) != negated) <= most]

    def best(w, unary):
        return max(
            labellings, key=lambda y: sum(u[label] for u, label in zip(unary, y, strict=True)))

    return GlobalFactor(
        tuple(scope), best, lambda y: np.zeros(n_features), lambda y: 0.0, tuple(truth))


def tables_of(problem, points=None):
    """All probabilities, block after block: the form of the compiled dual point."""
    points = problem.points if points is None else points
    tables = []
    for of_example, slots in zip(points, problem.slots, strict=True):
        for point, places in zip(
                of_example, [None] * (len(of_example) - len(slots)) + slots, strict=True):
            tables += [point.table] if point.table is not None else [
                point.differences[at] for at in places]
    return np.concatenate(tables)


def relaxed_optimum(problem, graphs=None):
    """g* by a generic solver: the dual QP over the local polytope, and the counts of `graphs`."""
    blocks = [
        (m, b) for m, points in enumerate(problem.points) for b, point in enumerate(points)
        if point.table is not None]
    sizes = [problem.points[m][b].table.size for m, b in blocks]
    starts = dict(zip(blocks, np.cumsum(sizes) - sizes, strict=True))
    total = sum(sizes)
    phi, loss = np.zeros((total, problem.w.size)), np.zeros(total)
    rows, values = [], []
    for (m, b), k in zip(blocks, sizes, strict=True):
        nodes, factors = problem.examples[m]
        block = nodes[b] if b < len(nodes) else factors[b - len(nodes)]
        at = starts[m, b]
        phi[at : at + k] = problem.p[m] * (block.phi[block.truth] - block.phi) / problem.alpha
        loss[at : at + k] = problem.p[m] * block.loss
        rows.append(np.zeros(total))
        rows[-1][at : at + k] = 1.0
        values.append(1.0)
        if b >= len(nodes):
            shape = [len(nodes[i].loss) for i in block.scope]
            labels = np.indices(shape).reshape(len(shape), -1)
            for slot, i in enumerate(block.scope):
                for label in range(shape[slot]):
                    rows.append(np.zeros(total))
                    rows[-1][at : at + k] = labels[slot] == label
                    rows[-1][starts[m, i] + label] = -1.0
                    values.append(0.0)
    limits = []
    if graphs is not None:
        of_node = np.cumsum(graphs.node_counts) - graphs.node_counts
        example = graphs.examples[graphs.factor_blocks]
        for f in np.flatnonzero(graphs.is_count):
            row, (least, most) = np.zeros(total), graphs.count_bounds[f]
            for s in range(graphs.slot_starts[f], graphs.slot_starts[f + 1]):
                m = example[f]
                row[starts[m, graphs.scopes[s] - of_node[m]] + 1 - graphs.negated[s]] = 1.0
            if least == most:
                rows.append(row)
                values.append(least)
            else:
                limits.append(LinearConstraint(row[np.newaxis], least, most))
    # some follow from the others
    matrix, values = np.array(rows), np.array(values)
    _, triangle, order = qr(matrix.T, mode="economic", pivoting=True)
    kept = order[: np.sum(np.abs(np.diag(triangle)) > 1e-9)]
    limits.append(LinearConstraint(matrix[kept], values[kept], values[kept]))
    start = np.concatenate([problem.points[m][b].table for m, b in blocks])
    found = minimize(
        lambda mu: 0.5 * problem.alpha * np.sum((mu @ phi) ** 2) - mu @ loss, start,
        jac=lambda mu: problem.alpha * phi @ (mu @ phi) - loss, bounds=[(0, 1)] * total,
        constraints=limits, method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12})
    assert found.success
    return -found.fun


def set_multipliers(problem, outputs, engine):
    """The same random multipliers for the reference's problem and the engine."""
    rng = np.random.default_rng(4)
    problem.multipliers = [rng.normal(size=d.shape) for d in problem.delta]
    problem.follow()
    outputs.set_multipliers(np.concatenate(problem.multipliers))
    engine.set_mu(np.array(engine.mu))
