"""An interior-point method for max-min fits of rankings: all games and the weights in one.

    min_w sum_b p_b [max_mu min_nu <v_b, mu - phi(y_b)> + <mu, C nu>] + alpha / 2 ||w||^2,

with mu and nu doubly stochastic and v_b = w' x_b. Each game has potentials of rows and columns, and
slacks s and z of its two players (`inference/_permutation_games.pyx`). At the optimum

    mu s = 0,  nu z = 0,  r = alpha w - sum_b p_b x_b (phi(y_b) - mu_b)' = 0.

Newton's method follows mu s = nu z = tau to small tau, with predictor and corrector [1]_. A step
moves mu by R_b dv_b plus a term of the products, with R_b symmetric and positive semidefinite. The
remaining equations of w,

    (alpha + sum_b p_b x_b x_b' (x) R_b) dw = -r - sum_b p_b x_b dmu_b',

are solved by conjugate gradients, preconditioned by the Kronecker product of the second moments of
x and the mean of R_b. A game whose numbers would turn negative makes a shorter step than the
others, and lifts the potentials of its rows for the scores. So no game delays the rest.

Every such point has a gap: the potentials of each game bound its value from above, and
min_nu <mu, C nu> bounds it from below. The gap is at most

    sum_b p_b (mu_b s_b + nu_b z_b) + ||r||^2 / (2 alpha).

References
----------
.. [1] S. Mehrotra (1992). On the implementation of a primal-dual interior point method. SIAM
   Journal on Optimization 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fastm4n.base.arrays import checked
from fastm4n.base.checks import check_number
from fastm4n.base.threads import one_blas_thread
from fastm4n.features import LinearFeatures
from fastm4n.features._rows import MADE_DENSE, dense_rows, may_be_dense
from fastm4n.inference._permutation_games import PermutationGames
from fastm4n.outputs import PermutationOutputs
from fastm4n.solvers.base import PASSES, Solution, Solver, State, block_work, packed, unpack
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.certificates import ROUNDING, Certificate, checked_gap, scaled_dual
from fastm4n.solvers.monitor import Monitor
from fastm4n.surrogates import MaxMinLoss

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.solvers.base import Options

# first sum_b p_b (mu_b s_b + nu_b z_b) in units of the objective at w = 0
# (benchmarks/label_ranker.py)
FIRST = 2.0
# share of the way to the boundary of a step, share of games with shorter steps in predictors and
# in steps, and least factor of slacks (benchmarks/label_ranker.py)
TO_BOUNDARY, SHORT_IN_PREDICTOR, SHORT, LEAST_SLACK = 0.99, 0.02, 0.05, 0.02
# the share of games with shorter steps once systems are expensive (benchmarks/label_ranker.py)
SHORT_IF_EXPENSIVE = 0.003
# conjugate gradients end when residuals fall by this factor in the preconditioner's norm and add
# less than this share of the aim to the gap (benchmarks/label_ranker.py)
FALL, LEFT = 0.3, 0.3
# most products for a system, and directions stored for a second system of the same matrix
# (benchmarks/label_ranker.py)
MOST_PRODUCTS, KEPT = 500, 50
# factor of tau while the equations of w lag behind the products (benchmarks/label_ranker.py)
WAITING = 0.8
# groups of games in the mean of the preconditioner (benchmarks/label_ranker.py)
SAMPLED = 16
# time of a multiply-add in a matrix product, in units of that elsewhere; most unknowns of a
# factored system; numbers of games in a tile (32 MiB) (benchmarks/label_ranker.py)
BLAS, MOST_UNKNOWNS, TILE = 0.15, 1 << 12, 1 << 22
# multiply-adds of a move of a game for each of its scores (benchmarks/label_ranker.py)
MOVE = 30.0
# steps without progress before the run ends, and the shortest step (benchmarks/label_ranker.py)
PATIENCE, SHORTEST = 8, 1e-3
# most items, weights, and numbers in the matrices of all games (256 MiB)
MOST_ITEMS, MOST_WEIGHTS, MOST_NUMBERS = 16, 1 << 18, 1 << 25
# work in units of that of blocks, an upper bound (benchmarks/label_ranker.py)
SHARE = 0.5
# least items, and numbers in the matrices of all games, under "auto" (benchmarks/label_ranker.py)
ITEMS, NUMBERS = 6, 1 << 13
# least tol under "auto", which rounding allows, and least alpha times the largest cost in units
# of the mean square length of rows, at a tolerance of LOOSE_TOL or less. Below, conjugate gradients
# take too many products. It falls with the square of looser tolerances (benchmarks/label_ranker.py)
LEAST_TOL, TINY, LOOSE_TOL = 3e-4, 2e-6, 1e-3


class InteriorPoint(Solver):
    """An interior-point method for rankings under the max-min surrogate.

    A `solver` of `LabelRanker` with ``surrogate="max_min"``, ``kernel="linear"`` and
    ``penalty="l2"``. ``solver="auto"`` takes it for more than a few items and examples. Each pass
    is a step of Newton's method on the weights and on the games of all examples at once, several
    games in each vector of the processor. About 10 to 30 passes reach the tolerance. A fit always
    begins at w = 0. With costs other than 0-1, rounding may end it before gaps below 1e-4 of the
    objective at w = 0.

    Parameters
    ----------
    max_products : int, default=500
        Most products of conjugate gradients for each of the two systems of a pass. If factors of
        the systems are less work, later passes use them.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import InteriorPoint, LabelRanker
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(50, 3))
    >>> y = (X @ rng.normal(size=(3, 5))).argsort(axis=1).argsort(axis=1)
    >>> ranker = LabelRanker(alpha=0.1, solver=InteriorPoint()).fit(X, y)
    >>> bool(ranker.relative_gap_ <= ranker.tol_)
    True
    """

    is_whole: bool = True
    outputs: tuple[Any, str] | None = ((PermutationOutputs,), "LabelRanker")
    least_share: float = SHARE

    def __init__(self, max_products: int = MOST_PRODUCTS) -> None:
        self.max_products = max_products

    def check(self) -> None:
        """As in `Solver`."""
        check_number("max_products", self.max_products, low=0, integer=True)

    def reason(self, problem: Any) -> str | None:
        """As in `Solver`."""
        loss, features, said = problem.loss, problem.features, problem.said
        outputs = loss.outputs
        if type(loss) is not MaxMinLoss:
            return self.refused(
                "is for surrogate='max_min' with exact oracles, got "
                f"{said('surrogate', 'solver__oracle')}")
        if type(features) is not LinearFeatures:
            return self.refused(f"needs kernel='linear', got {problem.features_in_words()}")
        if not may_be_dense(features):
            return self.refused(
                f"makes sparse rows of X dense, at most {MADE_DENSE} numbers, got "
                f"{features.n_blocks} different rows of {features.n_features}")
        if features.has_offset:
            return self.reason_of_offset()
        if not features.has_plain_state():
            return self.refused(f"needs penalty='l2', got {said('penalty')}")
        counts = outputs.layout.counts()
        M = int(counts.max(initial=1))
        if not 1 < M <= MOST_ITEMS:
            return self.refused(f"is for 2 to {MOST_ITEMS} items, and y has {M}")
        if outputs.part_weights is not None:
            return self.refused("needs the same costs for all items, and there is an item_weight")
        if not np.ptp(outputs.cost_matrix) > 0.0:
            return self.refused(f"needs costs that differ, got {said('cost')}")
        if (features.n_features + 1) * M * M > MOST_WEIGHTS:
            return self.refused(
                f"is for at most {MOST_WEIGHTS} weights, and X and y make "
                f"{(features.n_features + 1) * M * M}")
        if counts.size * M * M > MOST_NUMBERS:
            return self.refused(
                f"is for at most {MOST_NUMBERS // (M * M)} different rankings of {M} items, got "
                f"{counts.size}")
        return None

    def cost(self, problem: Any, options: Options) -> float:
        """As in `Solver`: `SHARE` times the work of steps of blocks, in the measured range.

        The range is more than a few items and examples, tolerances that rounding allows, and
        systems that are not too ill-conditioned.
        """
        outputs = problem.loss.outputs
        counts = outputs.layout.counts()
        if options.keep_dual or options.is_warm or options.tol < LEAST_TOL or (
                counts[0] < ITEMS or counts.size * counts[0] ** 2 < NUMBERS):
            return np.inf
        _, _, norms, _, _ = problem.features.arguments()
        unit = float(np.abs(outputs.cost_matrix).max())
        if outputs.mean_cost:
            unit /= counts[0]
        least = TINY * min(1.0, LOOSE_TOL / options.tol) ** 2
        is_ill = not options.alpha * unit >= least * float(np.sum(problem.weights * norms))
        if is_ill:
            return np.inf
        # rows are made dense
        features = problem.features
        more = features.visit_cost_of(features.n_features) - features.visit_cost
        return SHARE * (block_work(problem) + PASSES * problem.weights.size * more)

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As in `Solver`. max_iter counts steps.

        A fit always begins at w = 0. If steps stall, the solution has not
        converged. Under "auto" steps of blocks then start from w = 0.
        """
        features = problem.features
        checkpoint = monitor.checkpoint
        if checkpoint is not None and checkpoint.solver == Driver.writes_as and options.auto:
            return BlockFrankWolfe().solve(problem, options, None, monitor)  # which had taken over
        run = _Run(self.max_products, problem, options, monitor)
        with one_blas_thread():
            with monitor.running(run):
                run.solve()
            if monitor.interrupted:
                run.finish()
        if run.is_stuck and options.auto and not monitor.interrupted:
            features.clear()
            return BlockFrankWolfe().solve(problem, options, None, Monitor.of(options, checkpoint))
        state = features.state()
        found = np.zeros(state["weights"].shape)
        found[: run.best.shape[0], : run.best.shape[1]] = run.scale * run.best
        features.restore({"weights": found})
        certificate = run.certificate
        return Solution(
            State.of(options.alpha, run.games.points().ravel(), concave=certificate.concave),
            certificate, run.n_steps, monitor.arrays(), converged=certificate.gap <= options.gap,
            interrupted=monitor.interrupted)


# of the state of a run
NUMBERS_OF_RUN = (
    "n_steps", "n_products", "is_expensive", "least", "at_least", "best_primal", "best_dual")


class _Run:
    """One fit. Costs are scaled to a mean of one, and w with them."""

    writes_as = "interior_point"

    def __init__(self, max_products, problem, options, monitor):
        surrogate, features, weights = problem.loss, problem.features, problem.weights
        alpha, tol, max_iter = options.alpha, options.gap, options.max_iter
        outputs = surrogate.outputs
        X, rows, _, k, constant = features.arguments()
        M = int(outputs.layout.counts()[0])
        cost = np.ascontiguousarray(outputs.cost_matrix[:M, :M], dtype=np.float64)
        is_zero_one = cost[0, 1] > 0.0 and np.array_equal(cost, cost[0, 1] * (1.0 - np.eye(M)))
        unit = cost[0, 1] if is_zero_one else np.abs(cost).max()
        self.scale = unit / M if outputs.mean_cost else unit
        self.alpha, self.tol = alpha * self.scale, tol / self.scale
        self.p, self.max_iter = np.asarray(weights), max_iter
        self.max_products, self.monitor = max_products, monitor
        table = np.column_stack([
            dense_rows(X, rows), np.full(len(rows), float(constant))])
        self.cost = cost / unit
        self.at_zero = float(np.sum(self.p) * self.cost.mean() * M)
        products = FIRST * max(self.at_zero, 1.0)
        self.games = PermutationGames(table, self.p, self.cost, products / (2 * M * M))
        self.size = M * M
        truth = surrogate.outputs.truth().reshape(len(rows), self.size)
        self.truth = (table.T * self.p) @ truth
        self.moments = np.linalg.eigh((table.T * self.p) @ table)
        self.w, self.n_steps = np.zeros(self.truth.shape), 0
        # of the last step, and whether one has had too many: systems become ever harder
        self.n_products, self.is_expensive = 0, False
        self.certificate, self.is_stuck = None, False
        # the best weights that were certified, w = 0 among them, and the best dual value
        self.best, self.best_primal, self.best_dual = self.w.copy(), self.at_zero, 0.0
        self.least, self.at_least = np.inf, 0

    # ------------------------------------------------------------------------- certificates

    def look(self):
        """Compute the objective and the dual value; returns the residual of the equations of w."""
        games = self.games
        games.spread(self.w)
        self.upper, self.lower = games.bounds()
        games.hold()
        pull = self.truth - games.gathered()
        square = float(np.sum(self.w * self.w))
        height, gain = float(np.sum(self.p * self.lower)), float(np.sum(pull * pull))
        self.primal = float(np.sum(self.p * self.upper)) - float(
            np.sum(self.w * self.truth)) + 0.5 * self.alpha * square
        self.height = height
        rounding = ROUNDING * (abs(self.primal) + abs(height) + gain / self.alpha)
        if self.primal < self.best_primal:
            self.best, self.best_primal = self.w.copy(), self.primal
        self.best_dual = max(self.best_dual, scaled_dual(height, gain / (2.0 * self.alpha)))
        if np.isfinite(rounding):
            self.gap = rounding + checked_gap(self.best_primal, self.best_dual, rounding)
        else:
            self.gap = np.inf
        return self.alpha * self.w - pull

    def certify(self):
        """Certify; returns the residual of the equations of w, and whether the run ends."""
        left = self.look()
        ends = not np.isfinite(self.gap) or self.gap <= self.tol or self.n_steps >= self.max_iter
        if ends:
            # steps change sums of rows and columns by rounding only
            self.games.make_feasible()
            left = self.look()
        return left, self.told()

    def told(self):
        """Report the certificate, and return whether the run ends."""
        s = self.scale
        primal, dual, gap = self.best_primal, self.best_dual, self.gap
        if not np.isfinite(gap):
            primal, dual, gap = np.inf, -np.inf, np.inf
        self.certificate = Certificate(
            primal=s * primal, dual=s * dual, gap=s * gap, block_gaps=np.zeros(self.p.size),
            concave=s * self.lower, norm=s * s * float(np.sum(self.best * self.best)),
            bound=s * dual, height=s * self.height)
        stop = self.monitor.report(
            self.n_steps, self.certificate, "interior_point", self.n_steps * self.p.size)
        return stop or not self.gap > self.tol or self.n_steps >= self.max_iter

    # ------------------------------------------------------------------------- steps

    def solve(self):
        if self.monitor.resume(self):
            left, ends = self.look(), False
        else:
            left, ends = self.certify()
        while not ends and self.step(left):
            left, ends = self.certify()
            if not ends:
                self.monitor.keep(self)
        if not ends:
            self.is_stuck = True
            self.finish()

    def state(self):
        """A flat dict of arrays for `restore`."""
        return {
            "numbers": packed(self, NUMBERS_OF_RUN), "games": self.games.state_of_games(),
            "w": self.w, "best": self.best}

    def restore(self, state):
        """Bring back what `state` gave."""
        unpack(self, NUMBERS_OF_RUN, state["numbers"])
        self.games.restore(checked(self.games.state_of_games(), "games", state))
        self.w, self.best = (checked(self.w, name, state) for name in ("w", "best"))

    def finish(self):
        """The last certificate, where steps get no further or were interrupted."""
        self.games.make_feasible()
        self.look()
        self.told()

    def step(self, left):
        """One step; returns whether it made progress."""
        games, p = self.games, self.p
        products, mass = games.products(), float(p.sum())
        behind = float(np.sum(left * left)) / (2.0 * self.alpha)
        if products + behind < self.least:
            self.least, self.at_least = products + behind, self.n_steps
        if self.n_steps >= self.at_least + PATIENCE or not 0.0 < products < np.inf:
            return False
        tau = products / (2 * self.size * mass)
        games.factor()
        if not self.precondition():
            return False
        self.n_steps += 1
        self.n_products = 0
        games.move(0.0, False, False)
        dw, pairs = self.conjugate_gradients(-left - games.gathered(), None, np.inf)
        games.spread(dw)
        games.move(0.0, False, True)
        size = min(1.0, float(np.quantile(games.boundaries(), SHORT_IN_PREDICTOR)))
        target = tau * (games.products(size) / products) ** 3
        # where the equations of w lag behind, products wait for them
        if behind > products:
            target = max(target, WAITING * tau)
        games.move(target, True, False)
        aim = max(target / tau * products, 0.5 * self.tol)
        dw, _ = self.conjugate_gradients(-left - games.gathered(), pairs, aim)
        games.spread(dw)
        games.move(target, True, True)
        lengths = np.minimum(1.0, TO_BOUNDARY * games.boundaries())
        size = float(np.quantile(lengths, SHORT_IF_EXPENSIVE if self.is_expensive else SHORT))
        if not (size > SHORTEST and np.all(np.isfinite(dw))):
            return False
        games.advance(np.minimum(lengths, size), size, LEAST_SLACK)
        self.w += size * dw
        return True

    def precondition(self):
        """Compute the preconditioner of this step; returns whether there is one."""
        self.is_expensive = self.is_expensive or self.n_products > self.products_of_matrix()
        self.factor = None
        if self.is_expensive:
            matrix = self.matrix()
            if np.all(np.isfinite(matrix)):
                try:
                    self.factor = cho_factor(matrix, lower=True, overwrite_a=True)
                    return True
                except np.linalg.LinAlgError:  # for rounding
                    pass
        response = self.games.mean_response(SAMPLED)
        if not np.all(np.isfinite(response)):
            return False
        values, self.right = np.linalg.eigh(response)
        of_rows, self.left = self.moments
        self.divisor = self.alpha + np.outer(np.maximum(of_rows, 0.0), np.maximum(values, 0.0))
        return True

    def products_of_matrix(self):
        """The number of products that cost as much as the matrix and its factors."""
        n, d, size = self.p.size, self.w.shape[0], self.size
        if d * size > MOST_UNKNOWNS:
            return np.inf
        of_product = n * (2.0 * d * size + MOVE * size)
        of_matrix = 0.5 * n * (d * size) ** 2 + (d * size) ** 3 / 3.0
        return (BLAS * of_matrix + n * MOVE * size**2) / of_product

    def matrix(self):
        """The matrix of the equations of w: alpha I + sum_b p_b x_b x_b' kron R_b."""
        games, d, size = self.games, self.w.shape[0], self.size
        one, other = np.triu_indices(d)
        inner = (games.M - 1) ** 2
        total = np.zeros((inner * inner, one.size))
        groups = max(1, TILE // (games.width * size * size))
        for start in range(0, games.n_groups, groups):
            stop = min(start + groups, games.n_groups)
            rows, p = games.rows_of(start, stop)
            of_pairs = p[:, np.newaxis] * rows[:, one] * rows[:, other]
            total += games.responses(start, stop) @ of_pairs
        found = np.empty((d, size, d, size))
        for a, (i, j) in enumerate(zip(one, other, strict=True)):
            block = games.whole_response(total[:, a].reshape(inner, inner))
            found[i, :, j] = found[j, :, i] = block
        found = found.reshape(d * size, d * size)
        found.flat[:: d * size + 1] += self.alpha
        return found

    def conditioned(self, found):
        """The preconditioner times `found`."""
        if self.factor is not None:
            return cho_solve(self.factor, found.ravel()).reshape(found.shape)
        return self.left @ ((self.left.T @ found @ self.right) / self.divisor) @ self.right.T

    def product(self, found):
        """The matrix of the equations of w times `found`."""
        self.n_products += 1
        return self.alpha * found + self.games.responded(found)

    def conjugate_gradients(self, right, pairs, aim):
        """The solution dw and pairs. The residual adds little to the gap compared with `aim`.

        Pairs are conjugate directions, as rows, their products with the matrix, and the inverses
        of their energies. Pairs of an earlier call with the same matrix give a start, and correct
        the preconditioner: it becomes exact along them (the block form of BFGS).
        """
        found, rest, shape = np.zeros(right.shape), right.copy(), right.shape
        start, kept = float(np.sum(right * self.conditioned(right))), []
        if pairs is not None:
            moved, turned, inverse = pairs
            share = inverse * (moved @ right.ravel())
            found, rest = (share @ moved).reshape(shape), right - (share @ turned).reshape(shape)
        better = self.corrected(rest, pairs)
        along, energy = better, float(np.sum(rest * better))
        for _ in range(self.max_products):
            is_done = energy <= FALL * FALL * start
            if is_done and np.sum(rest * rest) <= 2.0 * self.alpha * LEFT * aim:
                break
            turned = self.product(along)
            bend = float(np.sum(along * turned))
            if not bend > 0.0:
                break
            kept.append((along.ravel(), turned.ravel(), 1.0 / bend))
            found = found + energy / bend * along
            rest -= energy / bend * turned
            better = self.corrected(rest, pairs)
            before, energy = energy, float(np.sum(rest * better))
            along = better + energy / before * along
        if not kept:
            return found, None
        return found, tuple(np.array(part) for part in zip(*kept[-KEPT:], strict=True))

    def corrected(self, found, pairs):
        """The preconditioner, exact along the pairs, times `found`."""
        if pairs is None:
            return self.conditioned(found)
        moved, turned, inverse = pairs
        share = inverse * (moved @ found.ravel())
        better = self.conditioned(found - (share @ turned).reshape(found.shape))
        share -= inverse * (turned @ better.ravel())
        return better + (share @ moved).reshape(found.shape)
