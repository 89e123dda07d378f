"""Graphs with counts that are too wide for tables: the Lagrangian dual of the counts.

Count f of a labelling y is the sum over the nodes i of its factor of s_fi [y_i = l_f], s_fi being
-1 where the factor is negated, and otherwise 1. It is to be in least_f ... most_f, both less the
number of negated nodes. With a price x_f for each count,

    bound(x) = max_y (score(y) + sum_f x_f count_f(y)) + sum_f max(-x_f least_f, -x_f most_f)

is at least the score of any labelling that keeps to the limits, whatever the prices: of its two
parts the first is at least score(y) + sum_f x_f count_f(y), and the second at least the rest. The
first is the best labelling of a graph without factors, whose nodes have other scores. The bound is
convex in x. The least one is that of mixtures of labellings whose mean counts keep to the limits.

Each labelling y gives a plane below the first part. The next prices are those where the maximum of
all planes is least, in a box around the best prices so far (the box step method of Marsten, Hogan
and Blankenship 1975). That is a linear program with two variables for each count.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from fastm4n.factors import CountFactor, TooLarge, as_factors, check_counted
from fastm4n.inference._elimination import MOST_ENTRIES, ExactGraph, solve_large
from fastm4n.inference._forest import GraphProblem, forest_best
from fastm4n.inference._moves import Limits, Moves
from fastm4n.inference._relaxations import LP_GAIN, LP_ITERATIONS, refuses_size, relax
from fastm4n.inference._search import Search
from fastm4n.inference.cut import cut_best, refuses_cut
from fastm4n.inference.roof import refuses_roof, roof_best

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastm4n.base.types import FloatArray, IntArray

# above what a number's rounding and that of one addition are, as a share of it
UNIT = 2.0 ** -52
# prices that are tried before it is asked what they have gained (benchmarks/constants.py)
FIRST_STEPS = 16
# of the box, where its best prices are no better (benchmarks/constants.py)
SHRINK = 0.7
# nodes that get their best labels at once, the others keeping theirs (benchmarks/constants.py)
PART = 32


def refuses_dual(problem: Any) -> str | None:
    if problem.factors is None:
        return "there are no factors"
    n_counted = 0
    for number, factor in enumerate(as_factors(problem.factors, problem.n_nodes)):
        if not isinstance(factor, CountFactor):
            return f"factors[{number}] is {factor!r}, and it is for CountFactor alone"
        n_counted += factor.nodes.size
    if not 16.0 * n_counted * problem.spread < np.inf:
        return "the sum of its scores overflows"
    return refuses_size(problem)


def soon(problem: Any) -> int:
    """Entries of tables that take no longer than the linear program may."""
    return LP_ITERATIONS * problem.n_edges * problem.n_labels * problem.stride


class Dual:
    """The search for prices of a small bound, and labels within the limits.

    Parameters
    ----------
    problem : GraphProblem
        Its factors are counts.
    search : Search
    """

    def __init__(self, problem: Any, search: Any) -> None:
        self.problem, self.search = problem, search
        self.factors: Any = as_factors(problem.factors, problem.n_nodes)
        for number, factor in enumerate(self.factors):
            check_counted(factor, number, sizes_of(problem))
        self.signs = [1 - 2 * factor.negated.astype(np.intp) for factor in self.factors]
        # least and most of each count
        self.ends = np.array([
            np.array([factor.least, factor.most]) - np.sum(signs < 0)
            for factor, signs in zip(self.factors, self.signs, strict=True)],
            dtype=np.intp).reshape(-1, 2)
        self.limits = self._limits()
        self.given = np.array(problem.unary)
        self.priced = GraphProblem(
            self.given.copy(), problem.edges, np.asarray(problem.more), problem.places,
            problem.n_labels, problem.pairs, problem.n_choices)
        self.rows = np.asarray(self.priced.unary)
        more = np.abs(np.asarray(problem.more))
        self.of_edges = problem.repeats * more.sum(where=more < np.inf)
        self.messages: Any = None
        self.ways = self._ways()

    def _limits(self):
        def joined(parts):
            return np.concatenate([np.zeros(0, dtype=np.intp), *parts])

        sizes = [factor.nodes.size for factor in self.factors]
        return Limits(
            self.problem.n_nodes, joined(factor.nodes for factor in self.factors),
            np.repeat(np.arange(len(sizes)), sizes),
            joined(np.full(factor.nodes.size, factor.label) for factor in self.factors),
            joined(self.signs), *np.ascontiguousarray(self.ends.T))

    # ----------------------------------------------------------------- one evaluation

    def _ways(self) -> list[Any]:
        """Functions for labels at the present prices, best or good ones, and a bound.

        The first one that can be used is the best one.
        """
        problem, most = self.priced, self.search.max_entries
        if problem.forest_plan()[2] is None:
            return [lambda: forest_best(problem)]
        if refuses_cut(problem) is None:
            return [lambda: cut_best(problem)[::2]]
        tables = cache(lambda: ExactGraph(problem, min(MOST_ENTRIES, most)))
        ways = [lambda: tables().maximise()]
        if refuses_roof(problem) is None:
            return [*ways, lambda: roof_best(problem)[::2]]
        most = min(soon(problem), most)
        return [*ways, lambda: solve_large(problem, most)[:2], self.swept]

    def solved(self) -> tuple[IntArray, float]:
        while True:
            try:
                return self.ways[0]()
            except TooLarge:
                del self.ways[0]

    def swept(self, n_sweeps: int = 100, n_iterations: int = 0) -> tuple[IntArray, float]:
        """Labels by the linear program and its bound, from the messages of the last time."""
        labels, _, _, bound, *_, self.messages = relax(
            self.priced, 0.0, n_sweeps, n_iterations, self.messages, Search(self.priced))
        return labels, bound

    def evaluate(self, prices: FloatArray, way: Callable[[], Any]) -> tuple[IntArray, float]:
        """Labels that are best at these prices, or nearly so, and the bound."""
        self.rows[...] = self.given
        for price, factor, signs in zip(prices, self.factors, self.signs, strict=True):
            self.rows[factor.nodes, factor.label] += price * signs
        labels, bound = way()
        sizes = np.abs(self.rows[:, : self.problem.n_labels])
        size = sizes.max(axis=1, where=sizes < np.inf, initial=0.0).sum() + self.of_edges
        at_ends = -prices[:, np.newaxis] * self.ends
        size += np.abs(at_ends).sum()
        n_terms = self.problem.n_nodes + self.problem.n_edges + len(prices) + 2
        return labels, float(bound + at_ends.max(axis=1).sum() + UNIT * n_terms * size)

    def offer(self, labels: IntArray, bound: float) -> None:
        """Offer the search labels within the limits that are made of these, and the bound."""
        moves = Moves(self.problem, labels)
        kept = moves.keep(self.limits)
        self.search.offer(moves.labels, moves.value if kept else -np.inf, bound)

    # ------------------------------------------------------------------------- prices

    def minimise(self) -> Iterator[None]:
        """Steps to the least bound. The first is soon done."""
        problem, search = self.problem, self.search
        slack, unit = problem.slack(problem.height), self._unit()
        lowest = problem.height - problem.spread - slack
        planes: dict[tuple[float, ...], None] = {}
        prices = center = np.zeros(len(self.factors))
        best = last = np.inf
        expected, radius = np.inf, unit
        labels, bound = self.evaluate(
            prices, self.solved if len(self.ways) == 1 else partial(self.swept, 1))
        for step in count(1):
            # scores that are finite add up to no less
            self.offer(labels, bound if bound >= lowest else -np.inf)
            yield
            gain, n_planes = best - bound, len(planes)
            score = problem.score(labels)
            if score > -np.inf:
                planes[score, *self.counts(labels)] = None
            if gain > 0.0:
                best, center = bound, prices
            if step > 1:
                if len(planes) == n_planes and not gain > slack:
                    break
                # the planes are right far away, or not even here
                radius *= 2.0 if gain > 0.5 * expected else 1.0 if gain > 0.0 else SHRINK
            distance = search.bound - search.value
            if step >= FIRST_STEPS and step & (step - 1) == 0:
                if last - best < LP_GAIN * distance < np.inf:
                    break
                last = best
            if planes:
                prices, expected = self._lowest(np.array([*planes]), center, best, radius, unit)
                if not expected > slack:
                    break
            with search.following():
                labels, bound = self.evaluate(prices, self.solved)
        if self.ways[0] == self.swept:
            with search.following():
                self.offer(*self.evaluate(center, partial(self.swept, 10, LP_ITERATIONS)))
            yield

    def counts(self, labels: IntArray) -> list[int]:
        return [
            int(np.sum(signs[labels[factor.nodes] == factor.label]))
            for factor, signs in zip(self.factors, self.signs, strict=True)]

    def _unit(self) -> float:
        """A unit of prices: what the scores of a node's labels differ by."""
        rows = self.given[:, : self.problem.n_labels]
        finite = rows > -np.inf
        most = rows.max(axis=1, where=finite, initial=-np.inf)
        ranges = most - rows.min(axis=1, where=finite, initial=np.inf)
        ranges = ranges[ranges > 0.0]
        if ranges.size:
            return float(np.median(ranges))
        return self.problem.spread / max(1, self.problem.n_edges) or 1.0

    def _lowest(
        self, planes: FloatArray, center: FloatArray, best: float, radius: float, unit: float,
    ) -> tuple[FloatArray, float]:
        """Prices in the box where the planes are lowest, and how far below `best` that is."""
        # it takes longer to import than most searches do
        from scipy.optimize import linprog

        n, m = len(center), len(planes)
        # prices, the maximum of all planes less `best`, and the second parts, in units
        rows = np.zeros((m + 2 * n, 2 * n + 1))
        rows[:m, :n], rows[:m, n] = planes[:, 1:], -1.0
        for start, ends in zip((m, m + n), self.ends.T, strict=True):
            rows[start : start + n, :n] = np.diag(-ends)
            rows[start : start + n, n + 1 :] = -np.eye(n)
        right = np.zeros(m + 2 * n)
        right[:m] = (best - planes[:, 0]) / unit
        # within prices at which counts are all that matters
        largest = 2.0 * self.problem.spread + unit
        box = np.clip(np.column_stack([center - radius, center + radius]), -largest, largest)
        found = linprog(
            np.repeat([0.0, 1.0], [n, n + 1]), rows, right, method="highs-ds",
            bounds=[*(box / unit), *[(None, None)] * (n + 1)])
        if found.x is None:
            return center, 0.0
        return unit * found.x[:n], -unit * found.fun


# --------------------------------------------------------------------------- moves of parts


def sizes_of(problem: Any) -> IntArray:
    """Numbers of labels of the nodes."""
    return np.full(problem.n_nodes, problem.n_labels) if problem.n_choices is None else np.asarray(
        problem.n_choices)


def search_parts(problem: Any, search: Any) -> Iterator[None]:
    """A round of moves: the best labels of some nodes at a time, the others keeping theirs."""
    search.n_moves += 1
    rng = np.random.default_rng(search.n_moves)
    n, edges = problem.n_nodes, np.asarray(problem.edges)
    factors = as_factors(problem.factors, n)
    ends = np.concatenate([edges, edges[:, ::-1]])
    ends = ends[np.argsort(ends[:, 0], kind="stable")]
    near = np.split(ends[:, 1], np.searchsorted(ends[:, 0], np.arange(1, n)))
    is_done, size = np.zeros(n, dtype=bool), PART
    for first in rng.permutation(n).tolist():
        if is_done[first]:
            continue
        # two of them, so that counts can go from one place to another
        nodes = grown(near, first, (size + 1) // 2, [])
        for other in rng.permutation(n).tolist():
            if len(nodes) == size:
                break
            nodes = grown(near, other, size, nodes)
        part, numbers = part_of(problem, factors, np.array(sorted(nodes)), search.labels)
        try:
            with search.following():
                found = ExactGraph(part).maximise()[0]
        except TooLarge:
            size = max(1, size // 2)
        else:
            labels = search.labels.copy()
            labels[numbers >= 0] = found
            search.offer(labels, problem.score(labels))
            is_done[nodes] = True
        yield


def grown(near: list[Any], first: int, size: int, nodes: list[int]) -> list[int]:
    """So many nodes: those given, and the nearest ones to the first."""
    found, line, seen = dict.fromkeys(nodes), [first], {first}
    for i in line:
        if len(found) == size:
            break
        found[i] = None
        ahead = [j for j in near[i].tolist() if j not in seen]
        seen.update(ahead)
        line += ahead
    return list(found)


def part_of(problem: Any, factors: Any, nodes: IntArray, labels: IntArray) -> Any:
    """The problem of some nodes, the others having these labels, and the new numbers of nodes."""
    numbers = np.full(problem.n_nodes, -1, dtype=np.intc)
    numbers[nodes] = np.arange(len(nodes))
    edges, places, more = (np.asarray(x) for x in (problem.edges, problem.places, problem.more))
    k, stride = problem.n_labels, problem.stride
    rows, ends = np.array(problem.unary)[nodes], numbers[edges]
    for side in (0, 1):
        of = np.flatnonzero((ends[:, side] >= 0) & (ends[:, 1 - side] < 0))
        here, there, at = ends[of, side], labels[edges[of, 1 - side]], places[of]
        if problem.pairs == "equal":
            np.add.at(rows, (here, there), more[at])
        else:
            steps = (stride, 1) if side == 0 else (1, stride)
            at = (at + steps[1] * there)[:, np.newaxis] + steps[0] * np.arange(k)
            np.add.at(rows[:, :k], here, more[at])
    within = (ends >= 0).all(axis=1)
    kept = []
    for factor in factors:
        at = numbers[factor.nodes]
        inside = at >= 0
        counted = (labels[factor.nodes] == factor.label) != factor.negated.astype(bool)
        n_beyond = int(counted[~inside].sum())
        least, most = max(0, factor.least - n_beyond), factor.most - n_beyond
        if least > 0 or most < inside.sum():
            kept.append(CountFactor(
                at[inside], least, most, factor.negated[inside].astype(bool), factor.label))
    return GraphProblem(
        rows, np.ascontiguousarray(ends[within]), more, places[within], k, problem.pairs,
        None if problem.n_choices is None else problem.n_choices[nodes], kept or None), numbers
