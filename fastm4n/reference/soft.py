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
*no* lower bound of g*. That needs a dual point that is rounded to agreement (`rounded`).

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
    """The same of a tuple of nodes, `scope`; labels with the last node's running fastest."""

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
    """Of one block: marginals at the nodes of its scope, expected phi and loss, probabilities.

    Of a node, the marginals are its probabilities; a global factor has no table.
    """

    marginals: list[Any]
    phi: np.ndarray
    loss: float
    table: np.ndarray | None


def _moved(point, to, gamma):
    """Point + gamma (to - point)."""
    def between(a, b):
        return a + gamma * (b - a)

    return Point(
        [between(a, b) for a, b in zip(point.marginals, to.marginals, strict=True)],
        between(point.phi, to.phi), between(point.loss, to.loss),
        None if point.table is None else between(point.table, to.table))


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
        Shares of the examples; all alike by default.
    smoothing : float, default=0.0
        Of the maxima; not for global factors.

    Attributes
    ----------
    points : list of list of Point
        The dual point: of each example its nodes, and then its factors.
    w : ndarray
    delta : list of list of list of ndarray
        delta[m][c][slot]: the messages of factor c of example m to the nodes of its scope.
    multipliers : as delta
        delta0, zero at first, added to (A mu_c - mu_i) / rho.

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
    points: list[Any]
    truths: list[Any]
    multipliers: list[Any]
    w: FloatArray
    delta: Any

    def __init__(
        self, examples: list[tuple[list[Any], list[Any]]], alpha: float, rho: float, *,
        p: ArrayLike | None = None, smoothing: float = 0.0,
    ) -> None:
        self.examples, self.alpha, self.rho = examples, alpha, rho
        self.p = np.full(len(examples), 1.0 / len(examples)) if p is None else np.asarray(p)
        self.smoothing = smoothing
        self.points = [
            [self.corner(m, b, block.truth) for b, block in enumerate([*nodes, *factors])]
            for m, (nodes, factors) in enumerate(examples)]
        self.truths = [list(points) for points in self.points]
        self.multipliers = [
            [[np.zeros(len(nodes[i].loss)) for i in factor.scope] for factor in factors]
            for nodes, factors in examples]
        self.follow()

    # ------------------------------------------------------------------------- points

    def corner(self, m: int, b: int, label: int) -> Point:
        """The point of block b of example m that is one label."""
        nodes, factors = self.examples[m]
        if b >= len(nodes) and isinstance(factors[b - len(nodes)], GlobalFactor):
            factor = factors[b - len(nodes)]
            marginals = [
                np.eye(len(nodes[i].loss))[y] for i, y in zip(factor.scope, label, strict=True)]
            return Point(marginals, factor.phi(label), factor.loss(label), None)
        block = nodes[b] if b < len(nodes) else factors[b - len(nodes)]
        return self.of_table(m, b, np.eye(len(block.loss))[label])

    def of_table(self, m: int, b: int, table: FloatArray) -> Point:
        """The point of these probabilities of the labels of block b of example m."""
        nodes, factors = self.examples[m]
        if b < len(nodes):
            return Point([table], table @ nodes[b].phi, table @ nodes[b].loss, table)
        factor = factors[b - len(nodes)]
        shaped = table.reshape([len(nodes[i].loss) for i in factor.scope])
        axes = range(shaped.ndim)
        marginals = [shaped.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes]
        return Point(marginals, table @ factor.phi, table @ factor.loss, table)

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

    def messages(self, points: list[list[Point]]) -> list[list[list[Any]]]:
        """delta(mu): multipliers plus (A mu_c - mu_i) / rho."""
        return [
            [[first + (marginal - of_example[i].marginals[0]) / self.rho
              for i, marginal, first in zip(
                  factor.scope, of_example[len(nodes) + c].marginals, self.multipliers[m][c],
                  strict=True)]
             for c, factor in enumerate(factors)]
            for m, ((nodes, factors), of_example) in enumerate(
                zip(self.examples, points, strict=True))]

    # --------------------------------------------------------------------- objectives

    def received(self, m: int, i: int, delta: float) -> FloatArray:
        """The sum of the messages to node i of example m."""
        nodes, factors = self.examples[m]
        total = np.zeros(len(nodes[i].loss))
        for c, factor in enumerate(factors):
            for slot, node in enumerate(factor.scope):
                if node == i:
                    total = total + delta[m][c][slot]
        return total

    def scores(self, m: int, b: int, w: FloatArray, delta: float) -> FloatArray:
        """theta of the labels of block b, reparametrised: gradients of f_rho over p; see `corner`.

        Without what the true labels' messages add, which cancels within an example.
        """
        nodes, factors = self.examples[m]
        if b < len(nodes):
            node = nodes[b]
            own = node.loss + (node.phi - node.phi[node.truth]) @ w
            return own + self.received(m, b, delta)
        factor = factors[b - len(nodes)]
        total = factor.loss + (factor.phi - factor.phi[factor.truth]) @ w
        shaped = total.reshape([len(nodes[i].loss) for i in factor.scope])
        for slot, message in enumerate(delta[m][b - len(nodes)]):
            shape = [-1 if axis == slot else 1 for axis in range(shaped.ndim)]
            shaped = shaped - message.reshape(shape)
        return shaped.ravel()

    def maximum(self, m: int, b: int, w: FloatArray, delta: float) -> float:
        """The (smoothed) maximum of the scores of block b."""
        nodes, factors = self.examples[m]
        if b >= len(nodes) and isinstance(factors[b - len(nodes)], GlobalFactor):
            factor, messages = factors[b - len(nodes)], delta[m][b - len(nodes)]
            labels = factor.best(w, [-message for message in messages])
            value = factor.loss(labels) + w @ (factor.phi(labels) - factor.phi(factor.truth))
            return value - sum(d[y] for d, y in zip(messages, labels, strict=True))
        theta = self.scores(m, b, w, delta)
        if self.smoothing == 0.0:
            return np.max(theta)
        mu = project_simplex(theta / self.smoothing)
        return theta @ mu + 0.5 * self.smoothing * (1.0 - mu @ mu)

    def relaxed_primal(self, w: Any = None, delta: float | None = None) -> float:
        """g(w, delta): an upper bound of g*, and of the exact objective at w, for any messages."""
        w = self.w if w is None else w
        delta = self.delta if delta is None else delta
        return 0.5 * self.alpha * w @ w + sum(
            p * sum(self.maximum(m, b, w, delta) for b in range(len(self.points[m])))
            for m, p in enumerate(self.p))

    def soft_primal(self) -> float:
        """g_rho at the present w and delta; of messages beyond the multipliers."""
        squares = [
            sum(np.sum((d - first) ** 2) for of_c, firsts in zip(delta, fixed, strict=True)
                for d, first in zip(of_c, firsts, strict=True))
            for delta, fixed in zip(self.delta, self.multipliers, strict=True)]
        return self.relaxed_primal() + 0.5 * self.rho * float(np.dot(self.p, squares))

    def soft_dual(self, points: Any = None) -> float:
        """f_rho(mu), less <delta0, A mu_c - mu_i> of the multipliers, with what smoothing adds."""
        points = self.points if points is None else points
        w, total = self.weights(points), 0.0
        delta = self.messages(points)
        for m, p in enumerate(self.p):
            total += p * sum(
                point.loss + (
                    0.0 if point.table is None or self.smoothing == 0.0
                    else 0.5 * self.smoothing * (1.0 - point.table @ point.table))
                for point in points[m])
            for fixed, of_c in zip(self.multipliers[m], delta[m], strict=True):
                for first, d in zip(fixed, of_c, strict=True):
                    total -= p * (
                        first @ (self.rho * (d - first))
                        + 0.5 * self.rho * np.sum((d - first) ** 2))
        return total - 0.5 * self.alpha * w @ w

    # -------------------------------------------------------------------------- steps

    def step(self, m: int, b: int) -> tuple[float, float]:
        """The step of Algorithm 1 in block b of example m; returns its slope and gamma."""
        nodes, factors = self.examples[m]
        point, p = self.points[m][b], self.p[m]
        is_node = b < len(nodes)
        if not is_node and isinstance(factors[b - len(nodes)], GlobalFactor):
            messages = self.delta[m][b - len(nodes)]
            labels = factors[b - len(nodes)].best(self.w, [-message for message in messages])
            to = self.corner(m, b, labels)
            slope = to.loss - point.loss + self.w @ (to.phi - point.phi) - sum(
                d @ (new - old) for d, new, old in zip(
                    messages, to.marginals, point.marginals, strict=True))
            curvature = 0.0
        else:
            theta = self.scores(m, b, self.w, self.delta)
            if self.smoothing == 0.0:
                to = self.corner(m, b, int(np.argmax(theta)))
            else:
                to = self.of_table(m, b, project_simplex(theta / self.smoothing))
            slope = (theta - self.smoothing * point.table) @ (to.table - point.table)
            curvature = self.smoothing * np.sum((to.table - point.table) ** 2)
        squares = sum(
            np.sum((new - old) ** 2)
            for new, old in zip(to.marginals, point.marginals, strict=True))
        n_messages = sum(factor.scope.count(b) for factor in factors) if is_node else 1
        moved = to.phi - point.phi
        curvature += p * moved @ moved / self.alpha + n_messages * squares / self.rho
        gamma = 0.0 if slope <= 0.0 else 1.0 if slope >= curvature else slope / curvature
        self.points[m][b] = new = _moved(point, to, gamma)
        self.w = self.w - p / self.alpha * (new.phi - point.phi)
        for c, factor in enumerate(factors):
            for slot, i in enumerate(factor.scope):
                change = None
                if is_node and i == b:
                    change = point.marginals[0] - new.marginals[0]
                elif not is_node and c == b - len(nodes):
                    change = new.marginals[slot] - point.marginals[slot]
                if change is not None:
                    self.delta[m][c][slot] = self.delta[m][c][slot] + change / self.rho
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
        """A dual point near the present one whose factors and nodes agree, as points [2]_.

        Node probabilities are means over a node and the factors at it. Tables are scaled down to
        them, one axis at a time, and a product of the missing marginals is added. For tables alone.
        """
        result = []
        for m, (nodes, factors) in enumerate(self.examples):
            points = self.points[m]
            means = []
            for i in range(len(nodes)):
                said = [points[i].marginals[0]] + [
                    points[len(nodes) + c].marginals[slot]
                    for c, factor in enumerate(factors)
                    for slot, node in enumerate(factor.scope) if node == i]
                means.append(np.mean(said, axis=0) / np.mean(said, axis=0).sum())
            new = [self.of_table(m, i, mean) for i, mean in enumerate(means)]
            for c, factor in enumerate(factors):
                b = len(nodes) + c
                table = points[b].table.reshape([len(means[i]) for i in factor.scope])
                for slot, i in enumerate(factor.scope):
                    now = self.of_table(m, b, table.ravel()).marginals[slot]
                    ratio = np.divide(means[i], now, out=np.ones_like(now), where=now > means[i])
                    shape = [-1 if axis == slot else 1 for axis in range(table.ndim)]
                    table = table * ratio.reshape(shape)
                left = [
                    np.maximum(means[i] - now, 0.0) for i, now in zip(
                        factor.scope, self.of_table(m, b, table.ravel()).marginals, strict=True)]
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
        total = 0.5 * self.alpha * w @ w
        for m, (nodes, factors) in enumerate(self.examples):
            sizes = [len(node.loss) for node in nodes]
            own = [node.loss + (node.phi - node.phi[node.truth]) @ w for node in nodes]
            tables = [
                (factor.loss + (factor.phi - factor.phi[factor.truth]) @ w).reshape(
                    [sizes[i] for i in factor.scope]) for factor in factors]
            total += self.p[m] * max(
                sum(theta[y] for theta, y in zip(own, labels, strict=True))
                + sum(table[tuple(labels[i] for i in factor.scope)]
                      for factor, table in zip(factors, tables, strict=True))
                for labels in itertools.product(*(range(k) for k in sizes)))
        return total

    # --------------------------------------------------------------------- extensions

    def set_rho(self, rho: float) -> None:
        """Another softness from here on; messages follow."""
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
