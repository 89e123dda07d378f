"""Graphs with counts that are too wide for tables: the Lagrangian dual of the counts.

Count f of a labelling y is the sum over the nodes i of its factor of s_fi [y_i = l_f], s_fi being
-1 where the factor is negated, and otherwise 1. It is to be in least_f ... most_f, both less the
number of negated nodes. With a Lagrange multiplier x_f for each count,

    bound(x) = max_y (score(y) + sum_f x_f count_f(y)) + sum_f max(-x_f least_f, -x_f most_f)

is at least the score of any labelling that keeps to the limits, whatever the multipliers. Its first
part is at least score(y) + sum_f x_f count_f(y), and its second at least -sum_f x_f count_f(y). The
first part is the best labelling of a graph without factors, whose nodes have other scores.

The bound is convex in x. The least bound is that of mixtures of labellings whose mean counts keep
to the limits. Each labelling y gives a plane below the first part. The next multipliers are those
where the maximum of all planes is least, in a box around the best ones so far: the box step method
of Marsten, Hogan and Blankenship (1975). That is a linear program with two variables for each
count. As least_f <= most_f, the second part is -x_f least_f where x_f > 0, and else -x_f most_f.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from itertools import count, cycle, islice
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

# rounding of a sum of n numbers, as a share of n times their sizes, and of these themselves
UNIT = 2.0 ** -52
# steps before it is asked what the last half of them has gained (benchmarks/constants.py)
FIRST_STEPS = 16
# factor of the size of the box after steps that do not lower the bound (benchmarks/constants.py)
SHRINK = 0.7
# labellings within the limits that are kept to be compared (benchmarks/constants.py)
KEPT = 16
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
    # multipliers are at most two spreads, and sums of messages four times those of scores
    if not 16.0 * n_counted * problem.spread < np.inf:
        return "the sum of its scores overflows"
    return refuses_size(problem)


def soon(problem: Any) -> int:
    """Entries of tables whose elimination takes no longer than the linear program may."""
    return LP_ITERATIONS * problem.n_edges * problem.n_labels * problem.stride


class Dual:
    """The search for multipliers of a small bound, and labels within the limits.

    Parameters
    ----------
    problem : GraphProblem
        Its factors are counts.
    search : Search

    Attributes
    ----------
    relaxed : GraphProblem
        The graph without factors, whose nodes have other scores.
    is_rough : bool
        Whether only its linear program could be solved. In the end it then has the scores of the
        best multipliers.
    labels : ndarray of int
        Labels that the linear program then gives.
    kept : dict
        The best labellings within the limits by their score.
    """

    def __init__(self, problem: Any, search: Any) -> None:
        self.problem, self.search = problem, search
        self.factors: Any = as_factors(problem.factors, problem.n_nodes)
        for number, factor in enumerate(self.factors):
            check_counted(factor, number, sizes_of(problem))
        self.signs = [1 - 2 * factor.negated.astype(np.intp) for factor in self.factors]
        self.n_negated = [int(np.sum(signs < 0)) for signs in self.signs]
        # least and most of each count
        self.ends = np.array([
            (factor.least - n, factor.most - n)
            for factor, n in zip(self.factors, self.n_negated, strict=True)],
            dtype=np.intp).reshape(-1, 2)
        self.limits = self._limits()
        self.given = np.array(problem.unary)
        self.relaxed = GraphProblem(
            self.given.copy(), problem.edges, np.asarray(problem.more), problem.places,
            problem.n_labels, problem.pairs, problem.n_choices)
        self.relaxed.spread = problem.spread
        self.rows = np.asarray(self.relaxed.unary)
        more = np.abs(np.asarray(problem.more))
        self.of_edges = problem.repeats * more.sum(where=more < np.inf)
        self.messages: Any = None
        self.ways = self._ways()
        self.kept: dict[float, IntArray] = {}
        self.is_rough, self.labels = False, np.zeros(0, dtype=np.intp)

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
        """Functions for good labels of the relaxed graph and a bound, those to try first first."""
        problem, most = self.relaxed, self.search.max_entries
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
            self.relaxed, 0.0, n_sweeps, n_iterations, self.messages, Search(self.relaxed))
        return labels, bound

    def evaluate(self, multipliers: FloatArray, way: Callable[[], Any]) -> tuple[IntArray, float]:
        """Labels that are best at these multipliers, or nearly so, and the bound."""
        self.rows[...] = self.given
        for multiplier, factor, signs in zip(multipliers, self.factors, self.signs, strict=True):
            self.rows[factor.nodes, factor.label] += multiplier * signs
        labels, bound = way()
        sizes = np.abs(self.rows[:, : self.problem.n_labels])
        size = sizes.max(axis=1, where=sizes < np.inf, initial=0.0).sum() + self.of_edges
        at_ends = -multipliers[:, np.newaxis] * self.ends
        size += np.abs(at_ends).sum()
        n_terms = self.problem.n_nodes + self.problem.n_edges + len(multipliers) + 2
        return labels, float(bound + at_ends.max(axis=1).sum() + UNIT * n_terms * size)

    def offer(self, labels: IntArray, bound: float) -> None:
        """Offer the search labels within the limits that are made of these, and the bound."""
        moves = Moves(self.problem, labels)
        if not moves.keep(self.limits):
            self.search.offer(moves.labels, -np.inf, bound)
            return
        self.search.offer(moves.labels, moves.value, bound)
        self.kept[moves.value] = moves.labels
        if len(self.kept) > KEPT:
            del self.kept[min(self.kept)]

    # ------------------------------------------------------------------------- multipliers

    def minimise(self) -> Iterator[None]:
        """Steps to the least bound. The first is soon done."""
        problem, search = self.problem, self.search
        slack, unit = problem.slack(problem.height), self._unit()
        lowest = problem.height - problem.spread - slack
        planes: dict[tuple[float, ...], None] = {}
        multipliers = center = np.zeros(len(self.factors))
        best = last = np.inf
        expected, radius = np.inf, unit
        labels, bound = self.evaluate(
            multipliers, self.solved if len(self.ways) == 1 else partial(self.swept, 1))
        for step in count(1):
            # no labelling has a smaller finite score
            self.offer(labels, bound if bound >= lowest else -np.inf)
            yield
            gain, n_planes = best - bound, len(planes)
            score = problem.score(labels)
            if score > -np.inf:
                planes[score, *self.counts(labels)] = None
            if gain > 0.0:
                best, center = bound, multipliers
            if step > 1:
                if len(planes) == n_planes and not gain > slack:
                    break
                # larger if the planes predict the bound, smaller if it does not fall
                radius *= 2.0 if gain > 0.5 * expected else 1.0 if gain > 0.0 else SHRINK
            distance = search.bound - search.value
            if step >= FIRST_STEPS and step & (step - 1) == 0:
                if last - best < LP_GAIN * distance < np.inf:
                    break
                last = best
            if planes:
                multipliers, expected = self._lowest(
                    np.array([*planes]), center, best, radius, unit)
                if not expected > slack:
                    break
            with search.following():
                labels, bound = self.evaluate(multipliers, self.solved)
        self.is_rough = self.ways[0] == self.swept
        if self.is_rough:
            with search.following():
                self.labels, bound = self.evaluate(center, partial(self.swept, 10, LP_ITERATIONS))
            self.offer(self.labels, bound)
            yield

    def counts(self, labels: IntArray) -> list[int]:
        return [
            int(factor.counts(labels[factor.nodes])) - n
            for factor, n in zip(self.factors, self.n_negated, strict=True)]

    def _unit(self) -> float:
        """What the scores of a node's labels differ by: a unit of multipliers."""
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
        """Multipliers in the box where the planes are lowest, and how far below `best` that is."""
        # its import takes longer than most searches
        from scipy.optimize import linprog

        # multipliers above and below zero, and the maximum of all planes minus `best`, in units
        rows = np.column_stack([planes[:, 1:], -planes[:, 1:], -np.ones(len(planes))])
        least, most = self.ends.T
        # at larger multipliers nothing but the counts matters
        largest = 2.0 * self.problem.spread + unit
        low, high = (
            np.clip(center + step, -largest, largest) / unit for step in (-radius, radius))
        found = linprog(
            np.concatenate([-least, most, [1.0]]), rows, (best - planes[:, 0]) / unit,
            bounds=[
                *np.column_stack([np.append(low, -high), np.append(high, -low)]).clip(0.0),
                (None, None)],
            method="highs-ds")
        if found.x is None:
            return center, np.inf
        above, below = found.x[:-1].reshape(2, -1)
        return unit * (above - below), -unit * found.fun


# --------------------------------------------------------------------------- moves of parts


def sizes_of(problem: Any) -> IntArray:
    """Numbers of labels of the nodes."""
    return np.full(problem.n_nodes, problem.n_labels) if problem.n_choices is None else np.asarray(
        problem.n_choices)


class Parts:
    """Parts of a graph with counts: some nodes, the others having labels.

    Parameters
    ----------
    problem : GraphProblem
    labels : ndarray of int of shape (n_nodes,)
        Labels within the limits.
    """

    def __init__(self, problem: Any, labels: IntArray) -> None:
        self.problem, self.labels = problem, labels.copy()
        n, m = problem.n_nodes, problem.n_edges
        self.factors = as_factors(problem.factors, n)
        self.edges, self.places, self.more, self.unary = (
            np.asarray(x) for x in (problem.edges, problem.places, problem.more, problem.unary))
        ends = self.edges.T.ravel()
        order = np.argsort(ends, kind="stable")
        self.starts = np.searchsorted(ends[order], np.arange(n + 1)).tolist()
        # edges of each node, and the nodes at their other ends
        self.edges_of = order % max(1, m)
        self.near = self.edges[:, ::-1].T.ravel()[order].tolist()
        self.numbers = np.full(n, -1, dtype=np.intc)
        # which node of a factor each node is
        self.places_in = []
        for factor in self.factors:
            places = np.full(n, -1)
            places[factor.nodes] = np.arange(factor.nodes.size)
            self.places_in.append(places)
        self.relabel([], [])

    def grown(self, first: int, size: int, nodes: list[int]) -> list[int]:
        """So many nodes at most: those given, and the nearest ones to the first."""
        found, line, seen = dict.fromkeys(nodes), [first], {first}
        for i in line:
            if len(found) == size:
                break
            found[i] = None
            for j in self.near[self.starts[i] : self.starts[i + 1]]:
                if j not in seen:
                    seen.add(j)
                    line.append(j)
        return list(found)

    def part(self, nodes: IntArray) -> Any:
        """The problem of these nodes, numbered in this order."""
        problem = self.problem
        k, stride = problem.n_labels, problem.stride
        self.numbers[nodes] = np.arange(len(nodes))
        rows, of = self.unary[nodes], np.unique(np.concatenate(
            [self.edges_of[self.starts[i] : self.starts[i + 1]] for i in nodes]))
        edges, places = self.edges[of], self.places[of]
        ends = self.numbers[edges]
        self.numbers[nodes] = -1
        for side in (0, 1):
            alone = np.flatnonzero(ends[:, 1 - side] < 0)
            here, there, at = ends[alone, side], self.labels[edges[alone, 1 - side]], places[alone]
            if problem.pairs == "equal":
                np.add.at(rows, (here, there), self.more[at])
            else:
                step, other = (stride, 1) if side == 0 else (1, stride)
                at = (at + other * there)[:, np.newaxis] + step * np.arange(k)
                np.add.at(rows[:, :k], here, self.more[at])
        within = (ends >= 0).all(axis=1)
        factors = []
        for factor, places_in, n_counted in zip(
                self.factors, self.places_in, self.counts, strict=True):
            at = places_in[nodes]
            inside, at = np.flatnonzero(at >= 0), at[at >= 0]
            negated = factor.negated[at].astype(bool)
            n_beyond = n_counted - int(np.sum(
                (self.labels[nodes[inside]] == factor.label) != negated))
            least, most = max(0, factor.least - n_beyond), factor.most - n_beyond
            if least > 0 or most < inside.size:
                factors.append(CountFactor(inside, least, most, negated, factor.label))
        return GraphProblem(
            rows, np.ascontiguousarray(ends[within]), self.more, places[within], k, problem.pairs,
            None if problem.n_choices is None else problem.n_choices[nodes], factors or None)

    def relabel(self, nodes: IntArray, labels: IntArray) -> None:
        self.labels[nodes] = labels
        self.counts = [int(factor.counts(self.labels[factor.nodes])) for factor in self.factors]

    def improve(self, nodes: IntArray, search: Any) -> None:
        """Give these nodes their best labels, and offer them. Raises `TooLarge`."""
        part = self.part(nodes)
        with search.following():
            labels, value = ExactGraph(part).maximise()
        if value > part.score(self.labels[nodes]):
            self.relabel(nodes, labels)
            search.offer(self.labels.copy(), self.problem.score(self.labels))


def search_differences(
    problem: Any, search: Any, others: list[IntArray], most: int,
) -> Iterator[None]:
    """The best labels where others differ from the best ones, at so many nodes at most."""
    parts = Parts(problem, search.labels)
    for labels in others:
        nodes = np.flatnonzero(labels != parts.labels)
        if 0 < nodes.size <= most:
            with suppress(TooLarge):
                parts.improve(nodes, search)
        yield


def search_parts(problem: Any, search: Any) -> Iterator[None]:
    """A round of moves: the best labels of some nodes at a time, the others keeping theirs."""
    search.n_moves += 1
    rng = np.random.default_rng(search.n_moves)
    parts, n = Parts(problem, search.labels), problem.n_nodes
    others = cycle(rng.permutation(n).tolist())
    is_done, size = np.zeros(n, dtype=bool), PART
    for first in rng.permutation(n).tolist():
        if is_done[first]:
            continue
        # from two places, so that counts can go from one to the other
        nodes = parts.grown(first, (size + 1) // 2, [])
        for other in islice(others, n):
            if len(nodes) == size:
                break
            nodes = parts.grown(other, size, nodes)
        try:
            parts.improve(np.array(nodes), search)
        except TooLarge:
            size = max(1, size // 2)
        else:
            is_done[nodes] = True
        yield
