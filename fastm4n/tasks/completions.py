"""Fits to incomplete outputs: rounds of completions within the outputs that are allowed.

The parts of a block have allowed labels instead of a true one. C_b are the outputs with allowed
labels, and h_b stays the same in all rounds. The objective is

    F(w) = sum_b p_b [max_mu h_b(mu) + <v_b, mu> - m_b(v_b)] + alpha Omega(w),

with m_b(v) the largest score in C_b or, for the log surrogate, tau log sum_{y in C_b}
exp(<v, phi(y)> / tau). m_b is convex, and its slope at v is the completion t_b: the best output in
C_b, or the marginals within C_b. So m_b is at least its tangent at t_b, and the problem with the
targets t_b, which is convex, bounds F from above up to a constant. A round solves it. F falls in
each round, as the bound is exact at the weights that the completions were made with [1]_.

Costs must not depend on the completion for this. The cost of a label is the least for a truth among
the allowed labels of the part. So costs are zero in C_b, and a part of which nothing is known costs
nothing under max-margin. The costs of max-min do not depend on the truth.

Of a partial ranking, C_b are the rankings that keep its order of items. Each item may have any
position from the number of items above it to M - 1 minus the number of items below it. A table of
these is all of C_b for top-k rankings and ties, and larger than C_b for other orders. Then the best
assignment in the table is the completion if it keeps the order. Otherwise `Extensions` takes the
best ranking that does, exactly up to 20 items. For more items it may be a good one only: F is then
bounded from above, and the completion is kept where no better one is found. So F still falls.

References
----------
.. [1] A. L. Yuille, A. Rangarajan (2003). The concave-convex procedure. Neural Computation 15.
"""

from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from fastm4n.base.arrays import sums_of
from fastm4n.base.threads import in_threads
from fastm4n.inference.orders import (
    MAX_ORDER_ITEMS,
    allowed_places,
    best_extensions_of,
    extension_marginals_of,
)
from fastm4n.solvers.base import Solution
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.choice import choose
from fastm4n.solvers.cutting_planes import CuttingPlanes
from fastm4n.solvers.monitor import Monitor
from fastm4n.surrogates import LogLoss
from fastm4n.surrogates._batches import (
    best_outputs_of,
    clamp,
    indicators_of,
    scores_of,
    sum_products_of,
)

# largest marginal of a label that is not allowed (rounding)
OUTSIDE = 1e-9
# relative gap and rounds of the log surrogate before margins, and most items of square blocks,
# whose marginals are sums over subsets (benchmarks/constants.py)
FIRST_TOL, FIRST_ROUNDS, MOST_ITEMS = 1e-2, 5, 8


class NoOutput(ValueError):
    """Parts that cannot have allowed labels all at once, of the block `block`."""

    def __init__(self, block):
        super().__init__(
            f"allowed leaves no output for block {block}: its parts cannot have allowed labels all "
            "at once.")
        self.block = block


class Clamp:
    """The outputs of all blocks of which each part has one of its allowed labels.

    Parameters
    ----------
    outputs : Outputs
    allowed : array-like of bool of shape (layout.n_parts_of_all, layout.n_labels)
        Columns after the labels of a block are ignored.
    n_jobs : int, default=1
        Number of threads. Results do not depend on it.
    """

    def __init__(self, outputs, allowed, n_jobs=1):
        layout, n_labels = outputs.layout, outputs.layout.n_labels
        self.outputs, self.layout, self.n_jobs = outputs, layout, n_jobs
        allowed = np.asarray(allowed)
        shape = layout.n_parts_of_all, n_labels
        if allowed.dtype != bool or allowed.shape != shape:
            raise ValueError(
                f"allowed must be bool of shape {shape}, got {allowed.dtype} of shape "
                f"{allowed.shape}.")
        counts, labels = layout.counts(), np.arange(n_labels)
        self.block_of_part = np.repeat(np.arange(layout.n_blocks), counts)
        n_choices = layout.choices()[self.block_of_part][:, np.newaxis]
        is_label = np.broadcast_to(labels < n_choices, shape)
        self.allowed = allowed & is_label
        is_empty = ~self.allowed.any(axis=1)
        if is_empty.any():
            raise ValueError(
                f"allowed has no label for part {np.argmax(is_empty)} of all. Allow all labels if "
                "nothing is known.")
        places, out = layout.places(0)[:, np.newaxis] + labels, is_label & ~allowed
        self.places = places[out]
        self.owners = np.broadcast_to(self.block_of_part[:, np.newaxis], shape)[out]
        # rows of equal shares of the allowed labels, and of all
        self.rows, self.even = np.zeros((2, layout.n_numbers))
        for of, some in ((self.rows, self.allowed), (self.even, is_label)):
            of[places[some]] = (some / some.sum(axis=1, keepdims=True))[some]

    def sums(self, numbers):
        """Sums of flat numbers over blocks."""
        return sums_of(numbers, self.layout.sizes())

    def clamped(self, scores):
        """Scores so low where labels are not allowed that nothing else makes up for it."""
        scores = scores.copy()
        self._in_threads(clamp, self.allowed.view(np.uint8), scores)
        return scores

    def first(self, scores):
        """Scores whose best allowed outputs are the first completions, from scores at weights."""
        return scores

    def best(self, scores):
        """The best allowed outputs: phi of all blocks, flat, and their scores."""
        labels, values = self._best_labels(scores)
        points = np.zeros(self.layout.n_numbers)
        indicators_of(self.outputs, labels, points)
        return points, values

    def _best_labels(self, scores):
        """The labels of all parts in the best allowed outputs, and the scores of these."""
        layout, clamped = self.layout, self.clamped(scores)
        labels, values = np.zeros(layout.n_parts_of_all, dtype=np.uint16), np.zeros(layout.n_blocks)
        self._in_threads(best_outputs_of, clamped, labels, values)
        self._check(~np.take_along_axis(
            self.allowed, labels[:, np.newaxis].astype(np.intp), axis=1)[:, 0], self.block_of_part)
        return labels, values

    def marginals(self, scores):
        """Marginals within the allowed outputs, flat, and log-partitions of all blocks."""
        layout, clamped = self.layout, self.clamped(scores)
        values, points = np.zeros(layout.n_blocks), np.zeros(layout.n_numbers)
        self._in_threads(sum_products_of, clamped, 0.0, values, points)
        self._check(~np.isfinite(values), np.arange(layout.n_blocks))
        self._check(points[self.places] > OUTSIDE, self.owners)
        points[self.places] = 0.0
        return points, values

    def _in_threads(self, function, *arrays):
        # 50 multiply-adds for each number: an exponential and its part of the sums
        in_threads(
            lambda start, stop: function(self.outputs, start, stop, *arrays),
            self.layout.n_blocks, 50.0 * self.layout.n_numbers, self.n_jobs)

    def _check(self, is_outside, owners):
        if is_outside.any():
            raise NoOutput(owners[np.argmax(is_outside)])

    def costs(self):
        """The least cost of each label of each part, the truth being an allowed label."""
        costs = np.full(self.allowed.shape, np.inf)
        for truth, of_truth in enumerate(self.outputs.cost_matrix):
            some = self.allowed[:, truth]
            costs[some] = np.minimum(costs[some], of_truth)
        return costs


class Extensions(Clamp):
    """The rankings of the items of all blocks that keep a partial order of each.

    Parameters
    ----------
    outputs : PermutationOutputs
        All of M items.
    before : ndarray of bool of shape (n_blocks, M, M)
        before[b, i, j] says that item i comes before item j. Strict orders, with all pairs that
        follow from others.
    n_jobs : int, default=1
        As of `Clamp`.
    """

    def __init__(self, outputs, before, n_jobs=1):
        super().__init__(outputs, allowed_places(before).reshape(-1, before.shape[1]), n_jobs)
        self.before = before.view(np.uint8)

    def first(self, scores):
        """Items in the order of their mean positions at x.

        Scores of an item at simple weights are linear in x and add up to zero over the positions.
        Weighted by positions they add up to its mean position, less that of all rankings. The
        scores themselves are equal at positions that no ranking tells apart, such as all below the
        first k. The numbers of the items would decide.
        """
        positions = np.arange(self.before.shape[1])
        means = scores.reshape(*self.before.shape) @ positions
        return np.multiply.outer(means, positions).ravel()

    def _best_labels(self, scores):
        labels, values = super()._best_labels(scores)
        is_best = np.zeros(self.layout.n_blocks, dtype=np.uint8)
        self._of_orders(best_extensions_of, scores, labels, values, is_best)
        return labels, values

    def marginals(self, scores):
        points, values = np.zeros(self.layout.n_numbers), np.zeros(self.layout.n_blocks)
        self._of_orders(extension_marginals_of, scores, points, values)
        self._check(~np.isfinite(values), np.arange(self.layout.n_blocks))
        return points, values

    def _of_orders(self, function, *arrays):
        # as many sets of items as there may be, for the few orders that need them
        M = self.before.shape[1]
        in_threads(
            lambda start, stop: function(self.before, start, stop, *arrays),
            self.layout.n_blocks, float(len(self.before)) * M * 2.0 ** min(M, MAX_ORDER_ITEMS),
            self.n_jobs)


def allowed_of_blocks(problem, allowed):
    """The table of allowed labels for `Clamp`, from the allowed labels of examples."""
    blocks, layout = problem.blocks, problem.loss.outputs.layout
    if len(allowed) != blocks.n_examples:
        raise ValueError(f"allowed is of {len(allowed)} examples, but X of {blocks.n_examples}.")
    firsts = blocks.examples
    for i, first in zip(blocks.kept, firsts[blocks.block_of], strict=True):
        if not np.array_equal(allowed[i], allowed[first]):
            raise ValueError(
                f"examples {first} and {i} have equal X and y, but not equal allowed labels. Give "
                "them different y, of their allowed labels.")
    table = np.zeros((layout.n_parts_of_all, layout.n_labels), dtype=bool)
    counts, choices = layout.counts(), layout.choices().tolist()
    for i, n, k, stop in zip(firsts, counts.tolist(), choices, np.cumsum(counts), strict=True):
        rows, shape = np.atleast_2d(allowed[i]), (n, k)
        if rows.dtype != bool or rows.shape != shape:
            raise ValueError(
                f"allowed[{i}] must be bool of shape {shape}, got {rows.dtype} of shape "
                f"{rows.shape}.")
        table[stop - n : stop, : shape[1]] = rows
    return table


@dataclass
class Round:
    """Result of a round: the objective F, completions, weights and m, and the solver's solution."""

    objective: float
    targets: np.ndarray
    weights: dict
    modulus: float
    solution: Solution


def complete(problem, allowed, options, *, tol=1e-3, max_rounds=100, targets=None, start=None):
    """Minimise F in rounds, each of which makes completions and fits the weights to them.

    Under the log surrogate the first completions are means over the allowed outputs. Fits to means
    by max-margin can end at once. Max-margin and max-min begin with the best allowed outputs after
    a few coarse rounds of the log surrogate. Where marginals do not exist or are expensive, simple
    weights take their place: mean inputs of each label where it is allowed. Items of partial
    rankings are first put in the order of their mean positions.

    Parameters
    ----------
    problem : Problem
        Its true outputs do not count. Its features are left with the weights of the best round,
        and its outputs with the completions that these were fitted to.
    allowed : sequence of array-like of bool of shape (n_parts, n_labels), Clamp or callable
        For each example, whether a part (a position, a node, an item, a label that is off or on)
        may have a label. Of single labels, the shape may be (n_labels,). Or the `Clamp` of all
        blocks, or allowed(outputs, n_jobs=n_jobs) makes it.
    options : Options
        Of the fit of each round, whose gap is certified. ``scale`` is set here.
    tol : float, default=1e-3
        Rounds end when F falls by at most this share of the objective at zero weights.
    max_rounds : int, default=100
    targets : ndarray of shape (layout.n_numbers,), default=None
        The first completions. Latent states need some that differ from state to state.
    start : State, default=None
        The state from which the first fit starts.

    Returns
    -------
    solution : Solution
        The solution of the best round. `history` has a row for each round: the objective F, and
        primal, dual, gap and passes of its fit, with passes and seconds since the first
        began. `converged` says whether rounds ended before
        `max_rounds`, the last fit within its gap. If the callback ends a fit, it ends the rounds.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C before the first round of this surrogate.
    ValueError
        If a block has no allowed output, or the problem does not support targets.
    """
    began = perf_counter()
    loss, features, p = problem.loss, problem.features, np.asarray(problem.weights)
    outputs, is_log = loss.outputs, isinstance(loss, LogLoss)
    if not problem.pieces.is_whole:
        raise ValueError("completions need all data in memory.")
    if problem.free_intercept is not None:
        raise ValueError(
            f"completions need a penalised intercept, got {problem.said('fit_intercept')}.")
    heat = loss.temperature if is_log else 1.0
    if isinstance(allowed, Clamp):
        within = allowed
    elif callable(allowed):
        within = allowed(outputs, n_jobs=options.n_jobs)
    else:
        within = Clamp(outputs, allowed_of_blocks(problem, allowed), options.n_jobs)
    # m of the penalty. Proximal points leave their own
    modulus = features.modulus() if features.has_penalty() else None

    def go_on(m):
        if modulus is not None:
            features.set_modulus(m)

    costs, scores = within.costs(), np.zeros(outputs.layout.n_numbers)
    # a solver that refuses does so before the first rounds
    outputs.set_target(within.rows, costs)
    choose(problem, options)

    def completed(scores, before=None):
        """Completions at scores, and m_b."""
        if is_log:
            points, values = within.marginals(scores / heat)
            return points, heat * values
        points, values = within.best(scores)
        if before is not None:
            # equal ones stay as they are, and an inexact oracle makes none worse
            held = within.sums(before * scores)
            stays = np.repeat(held >= values, outputs.layout.sizes())
            points, values = np.where(stays, before, points), np.maximum(held, values)
        return points, values

    if targets is None:
        if not is_log:
            layout = outputs.layout
            if outputs.has_marginals and not outputs.has_relaxation and (
                    layout.stride or layout.max_parts <= MOST_ITEMS):
                first = copy(problem)
                first.loss = LogLoss(outputs)
                if complete(
                        first, within, replace(options, tol=FIRST_TOL, solver="auto"),
                        tol=FIRST_TOL, max_rounds=FIRST_ROUNDS).interrupted:
                    raise KeyboardInterrupt
            else:
                engine = BlockCoordinateEngine(loss, features, p, options.alpha, options.seed)
                engine.rebuild_weights(within.even)
            scores_of(layout, features, scores)
        targets = completed(within.first(scores))[0]
    outputs.set_target(targets, costs)
    options, stops = replace(options, scale=problem.scale(), is_warm=start is not None), []
    single = choose(problem, options)
    # planes go on from no dual point, and each round begins anew
    is_cold = isinstance(single, CuttingPlanes)
    options = replace(options, solver=single) if is_cold else replace(options, keep_dual=True)
    if options.callback is not None:
        asked = options.callback

        def callback(row):
            stops.append(asked(row))
            return stops[-1]

        options = replace(options, callback=callback)
    best, rows, converged, n_passes = None, [], False, 0
    while len(rows) < max_rounds and not converged:
        outputs.set_target(targets, costs)
        go_on(modulus)
        features.clear()
        options = replace(options, is_warm=start is not None)
        solution = choose(problem, options).solve(problem, options, start, Monitor.of(options))
        scores_of(outputs.layout, features, scores)
        next_targets, values = completed(scores, targets if rows else None)
        found = solution.certificate
        objective = found.primal + float(np.sum(p * (within.sums(targets * scores) - values)))
        n_passes += solution.n_iter
        rows.append((
            objective, found.primal, found.dual, found.gap, solution.n_iter, n_passes,
            perf_counter() - began))
        fall = np.inf if best is None else best.objective - objective
        if fall >= 0.0:
            best = Round(
                objective, targets, features.state(), modulus and features.modulus(), solution)
        converged = fall <= tol * options.scale or np.array_equal(next_targets, targets)
        if solution.interrupted or any(stops):
            break
        targets, start = next_targets, None if is_cold else solution.state
    outputs.set_target(best.targets, costs)
    features.restore(best.weights)
    go_on(best.modulus)
    names = "objective", "primal", "dual", "gap", "n_iter", "pass", "seconds"
    return replace(
        best.solution, n_iter=n_passes,
        history={name: np.array(column) for name, column in zip(
            names, zip(*rows, strict=True), strict=True)},
        converged=converged and best.solution.converged, interrupted=solution.interrupted)
