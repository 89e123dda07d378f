r"""L1 penalties, and elastic nets of CRFs, by proximal points around the block solver.

With Omega(w) = sum_j t_j |w_j| the dual is not smooth, and dual points give no weights.  So the
problem is solved with a quadratic term around a centre,

    w^{k+1} = argmin_w  P(w) + alpha a / 2 ||w - c_k||^2,

with one or a few passes for each centre, which then moves to w^{k+1} and a step beyond, by
Nesterov's momentum [1]_.  Under that term the weights of a dual point are w = soft(z + a c, t) / a.
The engine runs as for any other penalty, with z shifted.

Weights of t_j = 0 have Omega_j = w_j^2 / 2. Without it the dual would have a constraint for
each of them that no point meets exactly. An intercept without a penalty is the exception: the
centre's term is all that it has, and `balance` finds a dual point that meets its constraint.

The dual of the problem itself requires |z_j(mu)| <= t_j for t_j > 0.  Mixing mu with the truth,
s mu + (1 - s) phi(y), scales z by s, and as h_b is concave and >= 0 at phi(y_b)

    D >= s sum_b p_b h_b(mu_b) - alpha / 2 sum_{t_j = 0} (s z_j)^2,   s <= min_j t_j / |z_j|,

for any mu.  This is the reported bound.  The weight with the most violated constraint
sets s, and the bound is loose in the first passes. Weights are mostly much better than it.

With a quadratic term, m / 2 ||w||^2, the centre's has a - m, and momentum is limited to the best
value for an objective of that convexity.  The dual is then smooth, and its bound sharp in the end.

References
----------
.. [1] O. Gueler (1992). New proximal point algorithms for convex minimization. SIAM Journal on
   Optimization 2.
"""

from __future__ import annotations

import numpy as np

from fastm4n.base.arrays import checked, flat, formed, part
from fastm4n.solvers.base import Solution, Solver, State, packed, unpack
from fastm4n.solvers.blocks.block_coordinate import Driver, begin
from fastm4n.solvers.certificates import Certificate, certify, checked_gap, weights_restored
from fastm4n.solvers.free_intercept import Balance
from fastm4n.surrogates import LogLoss

# largest quadratic share of a penalty for proximal points over single labels
# (benchmarks/elastic_net.py)
SMALL_MODULUS = 0.05
# a, in units of the mean curvature p_b ||Phi_b d||^2 / ||d||^2 of a first pass over alpha
# (benchmarks/elastic_net.py, benchmarks/crfsuite_tutorial.py)
SHARE = 0.03
# largest factor of a from one centre to the next (benchmarks/elastic_net.py)
FASTEST = 4.0
# passes between two certificates (benchmarks/elastic_net.py)
EVERY = 5
# a fit is settled if the objective falls by less than this share of tol in so many passes
# (benchmarks/elastic_net.py)
SETTLED_PASSES, SETTLED = 20, 0.1
TINY = np.finfo(float).tiny
# most further evaluations of the dual along the scale, beyond that at one
SEARCH = 8
# shares of the largest feasible scale of z that are tried for the dual with bounds
SCALES = (1.0, 0.99, 0.97, 0.93, 0.85, 0.7, 0.5, 0.25)


class Sparse:
    """Omega of the weights of a feature map, whose penalties have the thresholds and bounds.

    Parameters
    ----------
    penalties : dict of str to Penalty
    modulus : float, default=0.0
        m. If it is zero, weights of threshold zero have 1.
    balance : Balance, default=None
        Of intercepts without a penalty: the last row of the weights that it names.
    """


    def __init__(self, penalties, modulus=0.0, balance=None):
        self.penalties, self.modulus, self.balance = penalties, modulus, balance
        self.free_modulus = modulus if modulus > 0.0 else 1.0
        self.has_bounds = any(
            np.isfinite(bound).any() for penalty in penalties.values()
            for bound in (penalty.lower_rows(), penalty.upper_rows()))
        # padding is among them, at zero
        self.has_free = any(
            bool(np.any(np.asarray(penalty.threshold_rows()) == 0.0))
            for penalty in penalties.values())

    def value(self, points):
        """Omega(w), of pairs (z, w) by name."""
        total = 0.0
        for name, penalty in self.penalties.items():
            for m, t, w in self.pieces(name, points[name][1]):
                total += float(np.sum(t * np.abs(w)))
                total += 0.5 * float(np.sum(m * w * w))
        return total

    def pieces(self, name, *arrays):
        """m_j and t_j in Omega_j(w) = m_j / 2 w^2 + t_j |w|, and rows of the arrays, in pieces."""
        pieces = list(self.penalties[name].pieces(*arrays))
        for i, (t, *rows) in enumerate(pieces):
            m = np.where(t == 0.0, self.free_modulus, self.modulus)
            # intercepts are a piece by themselves, the last
            if self.balance is not None and name == self.balance.where and i == len(pieces) - 1:
                is_free = self.balance.is_free
                m[:, : is_free.size][:, is_free] = 0.0
            yield m, t, *rows

    def smooth(self, height, z, alpha, s):
        """The dual at phi(y) + s (mu - phi(y)), from below, for m > 0, and its slope in s."""
        value, slope = s * height, height
        for name, penalty in self.penalties.items():
            omega, omega_slope = penalty.with_modulus(self.modulus).along(z[name], s)
            value -= alpha * omega
            slope -= alpha * omega_slope
        return value, slope

    def best_smooth(self, height, z, alpha):
        """The largest of those duals, nearly, and its s: by the secants of the slope."""
        low, high = 0.0, 1.0
        best, at = self.smooth(height, z, alpha, 1.0)
        found = best, 1.0
        if at >= 0.0:
            return found
        slopes = [height, at]
        for _ in range(SEARCH):
            s = low + (high - low) * slopes[0] / max(slopes[0] - slopes[1], TINY)
            if not low < s < high:
                break
            value, slope = self.smooth(height, z, alpha, s)
            found = max(found, (value, s))
            # the dual is concave in s, so this bounds the remaining gain
            if abs(slope) * (high - low) <= 1e-3 * abs(value):
                break
            # the end that stays counts half at the next, as in the Illinois rule
            if slope > 0.0:
                low, slopes = s, [slope, 0.5 * slopes[1]]
            else:
                high, slopes = s, [0.5 * slopes[0], slope]
        return found

    def largest_scale(self, z):
        """The largest s <= 1 for which Omega*(s z) is finite."""
        worst = 1.0
        for name, penalty in self.penalties.items():
            pieces = penalty.pieces(z[name])
            if self.has_bounds:
                lower, upper, t = penalty.rows()
                pieces = [(t, np.maximum(
                    np.where(np.isinf(upper), z[name], 0.0),
                    np.where(np.isinf(lower), -z[name], 0.0)))]
            for t, u in pieces:
                ratio = np.abs(u) if not self.has_bounds else u
                worst = max(worst, float(np.max(
                    np.divide(ratio, t, out=np.zeros(u.shape), where=t > 0.0), initial=0.0)))
        return 1.0 / worst

    def conjugate(self, z, scale):
        """Omega*(scale z), for a scale that is feasible."""
        total = 0.0
        for name, penalty in self.penalties.items():
            if not self.has_bounds:
                for t, u in penalty.pieces(z[name]):
                    total += 0.5 * float(np.sum((scale * np.where(t == 0.0, u, 0.0)) ** 2))
                continue
            lower, upper, t = penalty.rows()
            u = scale * z[name]
            best = np.full(u.shape, -np.inf)
            for w in (lower, upper, np.clip(0.0, lower, upper)):
                there = np.isfinite(w)
                w = np.where(there, w, 0.0)
                best = np.where(there, np.maximum(best, u * w - t * np.abs(w)), best)
            w = np.clip(u, lower, upper)
            total += float(np.sum(np.where(t == 0.0, u * w - 0.5 * w * w, best)))
        return total

    def dual(self, height, z, alpha):
        """The best lower bound of the optimum that mu gives by scaling, and the scale."""
        if self.modulus > 0.0:
            return self.best_smooth(height, z, alpha)
        largest = self.largest_scale(z)
        if not self.has_bounds:
            pull = 2.0 * alpha * self.conjugate(z, 1.0)  # alpha sum z^2
            # fixed scores may make the height negative, and phi(y) is best then
            scale = 0.0 if height < 0.0 else (
                largest if pull * largest <= height else height / pull)
            return scale * height - 0.5 * scale * scale * pull, scale
        values = [
            (s * largest * height - alpha * self.conjugate(z, s * largest), s * largest)
            for s in SCALES]
        return max(values)


class Centre:
    """Centre and momentum. The feature map has z + a c minus the quadratic terms of the penalty.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    penalty : Sparse
    a : float
    centre : dict
    """


    def __init__(self, engine, penalty, a, centre):
        self.engine, self.penalty = engine, penalty
        self.a = max(a, self.least())
        self.centre = {name: np.array(c) for name, c in centre.items()}
        self.last, self.theta = {name: np.array(c) for name, c in centre.items()}, 1.0
        self.room = None
        self.shift(self.a, 1.0)
        engine.features.set_modulus(self.a)

    def least(self):
        """a is no less than the quadratic terms that there are."""
        penalty = self.penalty
        return max(penalty.modulus, penalty.free_modulus if penalty.has_free else 0.0)

    def shift(self, a, sign):
        """Add sign times the term of the centre to z.

        The quadratic term of free weights counts as part of a.
        """
        for name, (raw, _) in self.engine.features.live().items():
            for m, _, z, c in self.penalty.pieces(name, raw, self.centre[name]):
                z += sign * (a - m) * c

    def z(self):
        """z(mu), in arrays that the next call changes."""
        out = self.room = self.room or {name: np.empty_like(c) for name, c in self.centre.items()}
        for name, (raw, _) in self.engine.features.live().items():
            out[name][...] = raw
            for m, _, z, c in self.penalty.pieces(name, out[name], self.centre[name]):
                z -= (self.a - m) * c
        return out

    def move(self, a, restart=False):
        """Move the centre to w and a step beyond, and a towards this one."""
        a = min(max(a, self.a / FASTEST), FASTEST * self.a)
        a = max(a, self.least())
        theta = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self.theta**2))
        beyond = 0.0 if restart else (self.theta - 1.0) / theta
        self.theta = 1.0 if restart else theta
        # as much as is best for an objective that is strongly convex
        root = np.sqrt(self.penalty.modulus / a)
        beyond = min(beyond, (1.0 - root) / (1.0 + root))
        for name, (raw, weights) in self.engine.features.live().items():
            arrays = raw, weights, self.centre[name], self.last[name]
            for m, _, z, w, centre, last in self.penalty.pieces(name, *arrays):
                z -= (self.a - m) * centre
                np.subtract(w, last, out=centre)
                centre *= beyond
                centre += w
                last[...] = w
                z += (a - m) * centre
        self.a = a
        self.engine.features.set_modulus(a)

    def rebuild(self):
        """z afresh from mu, without the rounding that updates leave."""
        engine = self.engine
        engine.settle()
        engine.rebuild_weights(engine.mu)
        self.shift(self.a, 1.0)
        engine.features.set_modulus(self.a)


def small_modulus(problem, options):
    """The quadratic share of the penalty if `ProximalPoints` solve the problem, else None.

    They are the only solver without a quadratic term. For CRFs of many parts they are the faster
    one with any, and for single labels with a small one.
    """
    if problem.modulus == 0.0:
        return 0.0
    is_plain = type(problem.loss) is LogLoss and options.auto and not problem.has_groups
    most = SMALL_MODULUS if problem.loss.outputs.layout.max_parts == 1 else 1.0
    return problem.modulus if is_plain and problem.modulus <= most else None


class ProximalPoints(Solver, register=False):
    """Proximal points around steps of blocks, for penalties with an L1 term.

    Without one, weights of t_j = 0 have w_j^2 / 2. A fit ends at a certified gap of tol, or when it
    is settled: the objective fell by less than a tenth of tol in 20 passes, and the
    proximal problem is solved too. With a quadratic term only the gap counts.

    Parameters
    ----------
    inner : BlockFrankWolfe
    """

    def __init__(self, inner):
        self.inner = inner

    def reason(self, problem):
        """As in `Solver`."""
        if self.inner.step == "fixed" and problem.modulus == 0.0:
            return (
                f"step='fixed' needs a quadratic term, which {problem.said('penalty')} does not "
                "have. Use step='line_search'.")
        return self.inner.refusal(problem)

    def cost(self, problem, options):
        """As in `Solver`: passes are those of `inner`."""
        return self.inner.cost(problem, options)

    def solve(self, problem, options, start, monitor):
        """As in `Solver`, with `converged` for settled fits too. Blocks are sampled by gaps."""
        loss, features, of_inner = problem.loss, problem.features, self.inner.options()
        engine = begin(
            loss, features, problem.weights, options.alpha, start, options.seed,
            step=self.inner.step, cache=self.inner.cache, keep_dual=options.keep_dual,
            with_average=False)
        driver = Driver(engine, n_jobs=options.n_jobs, auto=options.auto, **{
            **of_inner, "sampling": "gap", "accelerate": False})
        balance = None if problem.free_intercept is None else Balance(problem)
        return _Fit(driver, start, small_modulus(problem, options), balance, monitor).run()


# of the state of a fit
NUMBERS = ("n_passes", "inner", "last", "primal", "dual", "slack", "next_a", "most", "since")


class _Fit:
    """A fit: passes, centres, and the best that was certified of weights and of the dual."""

    writes_as = "proximal_points"

    def __init__(self, driver, start, modulus, balance, monitor):
        engine, self.driver, self.monitor = driver.engine, driver, monitor
        self.engine, self.tol, self.n_jobs = engine, monitor.tol, driver.certifier.n_jobs
        features = engine.features
        self.balance = balance
        self.penalty = Sparse(features.penalties(), modulus, balance)
        shapes = {name: array.shape for name, array in features.state().items()}
        average = None
        if start is not None and start.average is not None and start["is_proximal"]:
            average = start.average
        centre, a = {name: np.zeros(shape) for name, shape in shapes.items()}, 1.0
        if average is not None and shapes == {n: w.shape for n, w in average.items()}:
            # without weights that there were, and are none of these features
            state = features.state()
            features.restore(average)
            average = features.state()
            features.restore(state)
            centre, a = average, float(start["curvature"]) * float(start["alpha"]) / engine.alpha
        self.points = Centre(engine, self.penalty, a, centre)
        self.is_new = average is None
        self.n_passes, self.inner, self.last = 0, np.inf, np.inf
        self.primals = []
        # a of the next centre, passes that a centre stays, and those that this one has had
        self.next_a, self.most, self.since = self.points.a, 1, 0
        self.primal, self.dual, self.slack = np.inf, 0.0, 0.0
        self.best = self.concave = self.block_gaps = None
        if not self.penalty.has_bounds and not features.has_offset:
            # w = 0, where no other weights are better
            largest = engine.surrogate.largest(features.size)
            self.primal = float(np.sum(np.asarray(engine.weights) * largest))
        else:
            self.look_at_rest()

    def look_at_rest(self):
        """Take the weights nearest to zero for the best until others are better."""
        engine, features = self.engine, self.engine.features
        with weights_restored(features):
            features.clear()
            losses = certify(engine, engine.mu, self.n_jobs, only_primal=True).block_losses
            value = self.penalty.value(features.live())
            self.primal = float(np.sum(np.asarray(engine.weights) * losses))
            self.primal += engine.alpha * value
            self.best = features.state(), self.points.a

    def look(self):
        """Certify the current point; returns whether the objective rose."""
        engine, penalty = self.engine, self.penalty
        # of the problem with the centre's term, whose values differ
        found = certify(engine, engine.mu, self.n_jobs, only_primal=True)
        engine.set_gaps(found.block_gaps, found.block_losses)
        self.inner, self.block_gaps = found.gap, found.block_gaps
        self.slack = max(self.slack, found.slack)
        weights = np.asarray(engine.weights)
        if not np.isfinite(found.rounding) or found.primal == np.inf:
            # scores overflowed, and nothing is known of them
            if self.best is None and self.primal == np.inf:
                self.best, self.concave = (engine.features.state(), self.points.a), found.concave
            return False
        value = penalty.value(engine.features.live())
        primal = float(np.sum(weights * found.block_losses)) + engine.alpha * value
        if self.balance is None:
            height, z = found.height, self.points.z()
        else:
            height, z = self.balanced(found.concave)
        dual, _ = penalty.dual(height, z, engine.alpha)
        # phi(y) itself has a dual value of zero
        self.dual, self.concave = max(self.dual, dual), found.concave
        if primal < self.primal:
            self.primal = primal
            if self.best is None:
                self.best = engine.features.state(), self.points.a
            else:
                for name, (raw, _) in engine.features.live().items():
                    self.best[0][name][...] = raw
                self.best = self.best[0], self.points.a
        rose, self.last = primal > self.last, primal
        self.primals.append((self.n_passes, self.primal))
        return rose

    def balanced(self, concave):
        """sum_b p_b h_b, and z, of a dual point at which no free intercept has a force."""
        engine = self.engine
        mu, theta = self.balance.point(engine.mu)
        with weights_restored(engine.features):
            engine.rebuild_weights(mu)
            # h is concave, and not negative at what is mixed in
            found = certify(engine, mu, self.n_jobs, concave=(1.0 - theta) * concave)
            return found.height, {
                name: np.array(z) for name, (z, _) in engine.features.live().items()}

    def certificate(self):
        return Certificate(
            self.primal, self.dual, checked_gap(self.primal, self.dual, self.slack),
            self.block_gaps, concave=self.concave, slack=self.slack)

    def is_settled(self):
        """Whether the objective came down by little in the last passes, and z belongs to w."""
        if self.penalty.modulus > 0.0 or not self.primals:
            return False  # the gap tells
        n, value = self.primals[-1]
        before = [primal for passes, primal in self.primals if passes <= n - SETTLED_PASSES]
        # the last point may be worse than the best, as momentum goes too far now and then
        return bool(before) and self.inner <= self.tol and (
            max(before[-1], self.last) - value <= SETTLED * self.tol)

    def state(self):
        """A flat dict of arrays for `restore`."""
        points = self.points
        best = {} if self.best is None else flat("best", self.best[0])
        return {
            "numbers": packed(self, NUMBERS), "points": packed(points, ("a", "theta")),
            "best_a": np.array(0.0 if self.best is None else self.best[1]),
            "primals": np.array(self.primals, dtype=np.float64).reshape(-1, 2), **best,
            **flat("centre", points.centre), **flat("last", points.last),
            **flat("concave", self.concave), **flat("block_gaps", self.block_gaps),
            **flat("driver", self.driver.state()),
        }

    def restore(self, state):
        """Bring back what `state` gave."""
        engine, points = self.engine, self.points
        form, of_blocks = engine.features.state(), np.array(engine.concave)
        unpack(self, NUMBERS, state["numbers"])
        unpack(points, ("a", "theta"), state["points"])
        self.primals = [(int(n), value) for n, value in state["primals"].tolist()]
        points.centre, points.last = (formed(form, name, state) for name in ("centre", "last"))
        self.best = None
        if part("best", state):
            self.best = formed(form, "best", state), float(state["best_a"])
        for name in ("concave", "block_gaps"):
            setattr(self, name, checked(of_blocks, name, state) if name in state else None)
        engine.features.set_modulus(points.a)
        self.driver.restore(part("driver", state))

    def check(self):
        """Certify and report. Returns whether the objective rose, and whether the fit ends."""
        rose, found = self.look(), self.certificate()
        schedule, engine = self.driver.schedule, self.engine
        schedule.checked(self.n_passes, found.gap)
        stopped = self.monitor.report(
            self.n_passes, found, schedule.name, engine.oracle_calls,
            cache_hits=engine.cache_hits)
        return rose, stopped or found.gap <= self.tol or self.is_settled()

    def run(self):
        engine, points, monitor = self.engine, self.points, self.monitor
        max_iter, schedule = monitor.max_iter, self.driver.schedule
        schedule.begin_passes(True)
        monitor.resume(self)
        finished = self.n_passes >= max_iter
        with monitor.running():
            if not (finished or self.is_new or self.n_passes):
                # a warm start may be good enough
                finished = self.check()[1]
            while not finished:
                self.driver.run_pass()
                schedule.met(engine.stale_gap())
                self.n_passes += 1
                self.since += 1
                if self.n_passes == 1 and self.is_new:
                    engine.measure_curvature()
                    self.next_a = SHARE * engine.curvature * points.a / engine.alpha
                finished, rose = self.n_passes >= max_iter, False
                if finished or self.n_passes % EVERY == 0:
                    rose, ends = self.check()
                    finished = finished or ends
                if rose:  # momentum begins anew, and a pass more is made for each centre
                    self.most += 1
                if not finished and (rose or self.since >= self.most):
                    points.move(self.next_a, rose)
                    self.since = 0
                if not finished:
                    monitor.keep(self)
        if monitor.interrupted or not self.primals:
            points.rebuild()
            self.look()
        a = self.next_a
        if self.best is None:
            engine.features.clear()
        else:
            state, a = self.best
            engine.features.set_modulus(a)
            engine.features.restore(state)
        certificate = self.certificate()
        return Solution(
            State.of(
                engine.alpha, engine.mu, concave=certificate.concave,
                average=engine.features.present(), curvature=a, is_proximal=True),
            certificate, self.n_passes, monitor.arrays(),
            converged=certificate.gap <= self.tol or self.is_settled(),
            interrupted=monitor.interrupted)
