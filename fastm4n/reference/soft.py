r"""Structured SVMs with soft agreement of factors and nodes (Meshi, Srebro and Hazan, 2015).

Example m has nodes i and factors c over tuples of nodes.  Every node and every factor has a block
of probabilities mu_i, mu_c of its labels, and with theta = loss + <w, phi(y) - phi(truth)>

    g(w, delta) = alpha/2 |w|^2
                  + sum_m p_m [ sum_i max_y (theta_i(y) + sum_{c at i} delta_ci(y))
                                + sum_c max_y (theta_c(y) - sum_{i in c} delta_ci(y_i)) ]
    g_rho       = g + rho/2 sum_m p_m |delta_m|^2
    f_rho(mu)   = sum_m p_m <loss, mu> - alpha/2 |w(mu)|^2
                  - 1/(2 rho) sum_m p_m sum_ci |A_ci mu_c - mu_i|^2
    w(mu)       = 1/alpha sum_m p_m sum_blocks (phi(truth) - phi(mu)),
    delta(mu)   = (A_ci mu_c - mu_i) / rho,

where A_ci are marginals, p_m = 1/n by default, and phi(mu) is an expectation. Messages of the true
labels cancel within an example. Then f_rho <= min g_rho, and g* = min g <= min g_rho, but f_rho is
*no* lower bound of g*. A dual point that is rounded to agreement gives one (`rounded`).

Differences from the paper [1]_:

- rho is the paper's rho over n. Penalties of one example do not depend on n, and Theorem 4.1 holds
  with h = (8 Ymax q (B R + L))^2, without the factor n.
- Steps of lines 7 and 12: gradients have a factor p, which their denominators miss, and the second
  term of line 12 has a plus.  With d = s - mu, s the label of largest score,

      node    gamma = <theta, d> / ( p |Phi d|^2 / alpha + N_i |d|^2 / rho ),
      factor  gamma = <theta, d> / ( p |Phi d|^2 / alpha + sum_i |A_ci d|^2 / rho ),

  clipped to [0, 1], with the number N_i of factors at i.
- Appendix E: a node's messages have curvature N_i. The constant is the larger of max_i N_i and
  max_c |c| instead of 1 + max |Y_c| / |Y_i|.

The extensions of section 7 are a decreasing rho (`annealed`), multipliers, which are additional
messages delta0 (`augmented`), and smoothed maxima (`smoothing`). With smoothing max_y theta(y)
becomes the maximum of <theta, mu> + smoothing/2 (1 - |mu|^2) over the simplex [3]_, and steps go to
its maximiser: steps to single labels would not converge faster. From section 5 there are factors
over all nodes, with marginals and expected features only (`GlobalFactor`), and kernels
(`features_of_gram`).

References
----------
.. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
   constraints. AISTATS.
.. [2] J. Altschuler, J. Weed, P. Rigollet (2017). Near-linear time approximation algorithms for
   optimal transport via Sinkhorn iteration. NeurIPS.
.. [3] S. Shalev-Shwartz, T. Zhang (2014). Accelerated proximal stochastic dual coordinate ascent
   for regularized loss minimization. ICML.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.reference.block_coordinate import SplitMix64, _shuffle
from fastm4n.reference.simplex import project_simplex

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray, RandomState


class Node(NamedTuple):
    """phi of shape (k, d), the loss of each label, zero for the true one, and that label."""

    phi: np.ndarray
    loss: np.ndarray
    truth: int


class Factor(NamedTuple):
    """The same for a tuple of nodes, `scope`. The labels of the last node run fastest."""

    scope: tuple[Any, ...]
    phi: np.ndarray
    loss: np.ndarray
    truth: int


class GlobalFactor(NamedTuple):
    """A factor whose labels are too many for a table.

    `best(w, unary)` is the tuple of labels of its nodes of largest loss + <w, phi> + unary, a list
    of arrays; `phi` and `loss` are functions of such a tuple, and `truth` is one.
    """

    scope: tuple[Any, ...]
    best: object
    phi: object
    loss: object
    truth: tuple[Any, ...]


class Point(NamedTuple):
    """Differences, expected phi and loss, and probabilities of one block.

    ``differences`` are what the block adds to A_ci mu_c - mu_i, for all messages of its example. A
    global factor has no table of probabilities.
    """

    differences: np.ndarray
    phi: np.ndarray
    loss: float
    table: np.ndarray | None


def features_of_gram(gram: FloatArray) -> FloatArray:
    """Rows of features with these inner products: a kernel's Gram matrix of all labels' phi.

    Examples
    --------
    >>> import numpy as np
    >>> gram = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> rows = features_of_gram(gram)
    >>> bool(np.allclose(rows @ rows.T, gram))
    True
    """
    values, vectors = np.linalg.eigh(gram)
    return vectors * np.sqrt(np.maximum(values, 0.0))


class SoftProblem:
    """g_rho and f_rho of some examples, and the steps of Algorithm 1.

    Parameters
    ----------
    examples : list of (list of Node, list of Factor or GlobalFactor)
    alpha, rho : float
    p : array-like, default=None
        Shares of the examples, all alike by default.
    smoothing : float, default=0.0
        Smoothing of the maxima, except for global factors.

    Attributes
    ----------
    points : list of list of Point
        The dual point: of each example its nodes, and then its factors.
    w : ndarray
    delta : list of ndarray
        The messages of each example, of each factor to the nodes of its scope, end to end.
    multipliers : list of ndarray
        delta0, initially zero, added to (A mu_c - mu_i) / rho.
    slots : list of list of list of slice
        slots[m][c][slot]: the place of a message in delta[m].

    Examples
    --------
    Two nodes, whose edge says that their labels differ:

    >>> import numpy as np
    >>> nodes = [Node(np.eye(2, 3), np.array([0.0, 1.0]), 0),
    ...          Node(np.eye(2, 3), np.array([1.0, 0.0]), 1)]
    >>> phi = np.zeros((4, 3))
    >>> phi[1:3, 2] = 1.0
    >>> edge = Factor((0, 1), phi, np.zeros(4), 1)
    >>> problem = SoftProblem([(nodes, [edge])], alpha=0.1, rho=0.1)
    >>> for _ in range(200):
    ...     problem.run_pass(SplitMix64(0))
    >>> bool(problem.soft_primal() - problem.soft_dual() < 1e-2)
    True
    """

    examples: Any
    alpha: float
    rho: float
    p: Array | None
    slots: list[Any]
    points: list[Any]
    truths: list[Any]
    multipliers: list[FloatArray]
    w: FloatArray
    delta: list[FloatArray]

    def __init__(
        self, examples: list[tuple[list[Any], list[Any]]], alpha: float, rho: float, *,
        p: ArrayLike | None = None, smoothing: float = 0.0,
    ) -> None:
        self.examples, self.alpha, self.rho = examples, alpha, rho
        self.p = np.full(len(examples), 1.0 / len(examples)) if p is None else np.asarray(p)
        self.smoothing = smoothing
        self.slots, self.multipliers = [], []
        for nodes, factors in examples:
            end, slots = 0, []
            for factor in factors:
                sizes = [len(nodes[i].loss) for i in factor.scope]
                ends = end + np.cumsum(sizes)
                slots.append([slice(e - k, e) for e, k in zip(ends, sizes, strict=True)])
                end = ends[-1]
            self.slots.append(slots)
            self.multipliers.append(np.zeros(end))
        blocks = [[*nodes, *factors] for nodes, factors in examples]
        self._differences = [
            [None if isinstance(block, GlobalFactor) else self._of_labels(
                m, b, np.unravel_index(np.arange(len(block.loss)), self.shape(m, b)))
             for b, block in enumerate(of_example)]
            for m, of_example in enumerate(blocks)]
        self.points = [
            [self.corner(m, b, block.truth) for b, block in enumerate(of_example)]
            for m, of_example in enumerate(blocks)]
        self.truths = [list(points) for points in self.points]
        self.follow()

    # ------------------------------------------------------------------------- points

    def block(self, m: int, b: int) -> Any:
        """Block b of example m: a node or a factor."""
        nodes, factors = self.examples[m]
        return nodes[b] if b < len(nodes) else factors[b - len(nodes)]

    def shape(self, m: int, b: int) -> tuple[int, ...]:
        """The numbers of labels of the nodes of a block."""
        nodes, factors = self.examples[m]
        scope = (b,) if b < len(nodes) else factors[b - len(nodes)].scope
        return tuple(len(nodes[i].loss) for i in scope)

    def _of_labels(self, m, b, labels):
        """Differences for labels of a block: arrays of labels, for each node of its scope."""
        nodes, factors = self.examples[m]
        rows = np.zeros((len(labels[0]), self.multipliers[m].size))
        for c, (factor, places) in enumerate(zip(factors, self.slots[m], strict=True)):
            for slot, (i, at) in enumerate(zip(factor.scope, places, strict=True)):
                unit = np.eye(at.stop - at.start)
                if i == b:
                    rows[:, at] -= unit[labels[0]]
                if c == b - len(nodes):
                    rows[:, at] += unit[labels[slot]]
        return rows

    def corner(self, m: int, b: int, label: Any) -> Point:
        """The point of block b of example m that is one label."""
        block = self.block(m, b)
        if isinstance(block, GlobalFactor):
            row, = self._of_labels(m, b, np.reshape(label, (-1, 1)))
            return Point(row, block.phi(label), block.loss(label), None)
        return self.of_table(m, b, np.eye(len(block.loss))[label])

    def of_table(self, m: int, b: int, table: FloatArray) -> Point:
        """The point of these probabilities of the labels of block b of example m."""
        block = self.block(m, b)
        return Point(
            table @ self._differences[m][b], table @ block.phi, table @ block.loss, table)

    def follow(self) -> None:
        """w and delta of the dual point, afresh."""
        self.w = self.weights(self.points)
        self.delta = self.messages(self.points)

    def weights(self, points: list[list[Point]]) -> FloatArray:
        """w(mu)."""
        return sum(
            p * (true.phi - point.phi)
            for p, of_example, truths in zip(self.p, points, self.truths, strict=True)
            for point, true in zip(of_example, truths, strict=True)) / self.alpha

    def messages(self, points: list[list[Point]]) -> list[FloatArray]:
        """delta(mu): multipliers plus (A mu_c - mu_i) / rho."""
        return [
            first + sum(point.differences for point in of_example) / self.rho
            for first, of_example in zip(self.multipliers, points, strict=True)]

    # --------------------------------------------------------------------- objectives

    def scores(self, m: int, b: int, w: FloatArray, delta: list[FloatArray]) -> FloatArray:
        """theta of the labels of block b, reparametrised: gradients of f_rho over p.

        Without what the true labels' messages add, which cancels within an example.
        """
        block = self.block(m, b)
        return block.loss + (
            block.phi - block.phi[block.truth]) @ w - self._differences[m][b] @ delta[m]

    def answer(self, m: int, b: int, w: FloatArray, delta: list[FloatArray]) -> Point:
        """The point of block b of largest (smoothed) score."""
        block = self.block(m, b)
        if isinstance(block, GlobalFactor):
            places = self.slots[m][b - len(self.examples[m][0])]
            return self.corner(m, b, block.best(w, [-delta[m][at] for at in places]))
        theta = self.scores(m, b, w, delta)
        if self.smoothing == 0.0:
            return self.corner(m, b, int(np.argmax(theta)))
        return self.of_table(m, b, project_simplex(theta / self.smoothing))

    def height(self, point: Point) -> float:
        """The loss of a point, with what smoothing adds."""
        if point.table is None or self.smoothing == 0.0:
            return point.loss
        return point.loss + 0.5 * self.smoothing * (1.0 - point.table @ point.table)

    def relaxed_primal(self, w: Any = None, delta: Any = None) -> float:
        """g(w, delta): an upper bound of g*, and of the exact objective at w, for any messages."""
        w = self.w if w is None else w
        delta = self.delta if delta is None else delta
        total = 0.5 * self.alpha * w @ w
        for m, truths in enumerate(self.truths):
            for b, true in enumerate(truths):
                best = self.answer(m, b, w, delta)
                total += self.p[m] * (
                    self.height(best) + w @ (best.phi - true.phi) - delta[m] @ best.differences)
        return total

    def soft_primal(self) -> float:
        """g_rho at the present w and delta, for messages beyond the multipliers."""
        squares = [
            np.sum((d - first) ** 2)
            for d, first in zip(self.delta, self.multipliers, strict=True)]
        return self.relaxed_primal() + 0.5 * self.rho * float(np.dot(self.p, squares))

    def soft_dual(self, points: Any = None) -> float:
        """f_rho(mu), less <delta0, A mu_c - mu_i> of the multipliers, with what smoothing adds."""
        points = self.points if points is None else points
        w, total = self.weights(points), 0.0
        for p, of_example, first, d in zip(
                self.p, points, self.multipliers, self.messages(points), strict=True):
            total += p * (
                sum(map(self.height, of_example)) - first @ (self.rho * (d - first))
                - 0.5 * self.rho * np.sum((d - first) ** 2))
        return total - 0.5 * self.alpha * w @ w

    # -------------------------------------------------------------------------- steps

    def step(self, m: int, b: int) -> tuple[float, float]:
        """Make the step of Algorithm 1 in block b of example m, and return its slope and gamma."""
        point, p = self.points[m][b], self.p[m]
        to = self.answer(m, b, self.w, self.delta)
        moved, apart = to.phi - point.phi, to.differences - point.differences
        slope = to.loss - point.loss + self.w @ moved - self.delta[m] @ apart
        curvature = p * moved @ moved / self.alpha + apart @ apart / self.rho
        if self.smoothing and point.table is not None:
            slope -= self.smoothing * point.table @ (to.table - point.table)
            curvature += self.smoothing * np.sum((to.table - point.table) ** 2)
        gamma = 0.0 if slope <= 0.0 else 1.0 if slope >= curvature else slope / curvature
        self.points[m][b] = Point(*(
            None if old is None else old + gamma * (new - old)
            for old, new in zip(point, to, strict=True)))
        self.w = self.w - p / self.alpha * gamma * moved
        self.delta[m] = self.delta[m] + gamma * apart / self.rho
        return slope, gamma

    def run_pass(self, rng: SplitMix64, order: Any = None) -> None:
        """All examples in the shuffled `order`, of each its nodes and then its factors."""
        order = list(range(len(self.examples))) if order is None else order
        _shuffle(order, rng)
        for m in order:
            for b in range(len(self.points[m])):
                self.step(m, b)

    # ------------------------------------------------------------------- certificates

    def rounded(self) -> Any:
        """A nearby dual point with agreement of factors and nodes, as points [2]_.

        Node probabilities are means over a node and the factors at it. Tables are scaled down to
        them, one axis at a time, and a product of the missing marginals is added. For tables alone.
        """
        result = []
        for m, (nodes, factors) in enumerate(self.examples):
            points = self.points[m]
            said = [[point.table] for point in points[:len(nodes)]]
            for factor, point, places in zip(
                    factors, points[len(nodes):], self.slots[m], strict=True):
                for i, at in zip(factor.scope, places, strict=True):
                    said[i].append(point.differences[at])
            means = [np.mean(of_node, axis=0) for of_node in said]
            means = [mean / mean.sum() for mean in means]
            new = [self.of_table(m, i, mean) for i, mean in enumerate(means)]
            for c, factor in enumerate(factors):
                b = len(nodes) + c
                table = points[b].table.reshape(self.shape(m, b))
                for slot, i in enumerate(factor.scope):
                    now = self.of_table(m, b, table.ravel()).differences[self.slots[m][c][slot]]
                    ratio = np.divide(means[i], now, out=np.ones_like(now), where=now > means[i])
                    shape = [-1 if axis == slot else 1 for axis in range(table.ndim)]
                    table = table * ratio.reshape(shape)
                now = self.of_table(m, b, table.ravel()).differences
                left = [
                    np.maximum(means[i] - now[at], 0.0)
                    for i, at in zip(factor.scope, self.slots[m][c], strict=True)]
                mass = left[-1].sum()
                if mass > 0.0:
                    product = np.array(mass)
                    for lack in left:
                        product = np.multiply.outer(product, lack / mass)
                    table = table + product
                new.append(self.of_table(m, b, table.ravel()))
            result.append(new)
        return result

    def relaxed_dual(self, points: Any) -> Any:
        """f(mu) of a point whose factors and nodes agree: a lower bound of g*."""
        w = self.weights(points)
        losses = [sum(point.loss for point in of_example) for of_example in points]
        return float(np.dot(self.p, losses)) - 0.5 * self.alpha * w @ w

    def exact_primal(self, w: Any = None) -> Any:
        """The structural SVM's objective, by enumeration of all labellings."""
        w = self.w if w is None else w
        none = [np.zeros_like(first) for first in self.multipliers]
        total = 0.5 * self.alpha * w @ w
        for m, (nodes, factors) in enumerate(self.examples):
            tables = [
                self.scores(m, b, w, none).reshape(self.shape(m, b))
                for b in range(len(self.points[m]))]
            scopes = [(i,) for i in range(len(nodes))] + [factor.scope for factor in factors]
            total += self.p[m] * max(
                sum(table[tuple(labels[i] for i in scope)]
                    for table, scope in zip(tables, scopes, strict=True))
                for labels in itertools.product(*(range(len(node.loss)) for node in nodes)))
        return total

    # --------------------------------------------------------------------- extensions

    def set_rho(self, rho: float) -> None:
        """Set another softness. Messages follow."""
        self.rho = rho
        self.follow()

    def renew_multipliers(self) -> None:
        """delta0 = delta: the outer step of the augmented Lagrangian."""
        self.multipliers = self.delta
        self.follow()


def annealed(problem: Any, rhos: Any, random_state: RandomState = 0) -> None:
    """A pass under each rho, from loose to strict: the first extension of section 7."""
    rng, order = SplitMix64(random_state), list(range(len(problem.examples)))
    for rho in rhos:
        problem.set_rho(rho)
        problem.run_pass(rng, order)


def augmented(problem: Any, n_rounds: int, n_passes: int, random_state: RandomState = 0) -> Any:
    """Multipliers renewed after every n_passes passes: the second extension of section 7.

    Returns
    -------
    bounds : list of (float, float)
        For each round g(w, delta) and the relaxed dual after rounding: they enclose g*.
    """
    rng, order, bounds = SplitMix64(random_state), list(range(len(problem.examples))), []
    for _ in range(n_rounds):
        for _ in range(n_passes):
            problem.run_pass(rng, order)
        bounds.append((problem.relaxed_primal(), problem.relaxed_dual(problem.rounded())))
        problem.renew_multipliers()
    return bounds
