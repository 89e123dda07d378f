"""Certificates: objective values at feasible points, and the best of those of a fit.

`certify` is for the block solver, whose `Certifier` has the best so far. The others make a
`Certificate` of their own points and set `is_done`, at which `Monitor.follow` stops.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from fastm4n.base.arrays import formed
from fastm4n.base.threads import in_threads
from fastm4n.features._base import NotPositiveSemidefinite
from fastm4n.surrogates._batches import losses_at

# relative difference of two equal values of the objective (rounding)
ROUNDING = 1e-14

# largest excess of the dual over the primal value: relative to both, to the largest score, and
# absolute (rounding)
INCONSISTENT, OF_SCORES, OF_ONE = 1e-9, 1e-12, 1e-15

# a negative ||w||^2 relative to its largest value at mu (rounding)
NEGATIVE = 1e-9
# passes whose updates leave as much rounding in w as computing it from mu
FRESH_PASSES = 20
# rounding of undone updates in scores, as a share of the largest norm of w at any dual point
UNDONE = 1e-5


class CertificateError(ArithmeticError):
    """A lower bound of the objective came out above the objective itself."""


def checked_gap(primal, dual, slack=0.0):
    """primal - dual, not below zero.

    Raises
    ------
    CertificateError
        If the dual value is above the primal one by more than `slack` and 1e-9 of their sizes.
    """
    if dual - primal > INCONSISTENT * (abs(primal) + abs(dual)) + slack + OF_ONE:
        raise CertificateError(
            f"the certificate is wrong: the dual objective {dual:.12g} is above the primal "
            f"objective {primal:.12g}. If X holds values of a kernel, check that it is positive "
            "semidefinite; otherwise this is a bug of fastm4n: please report it with the "
            "parameters of the estimator and, if you can, the data.")
    return max(0.0, primal - dual)


def oracle_error(share, certificate, tol, at_zero):
    """How far inexact oracles may be off: a share of the last gap, if there is a certificate.

    The gap counts as at least `tol`, and at most the objective at zero weights.
    """
    gap = at_zero if certificate is None else min(at_zero, certificate.gap)
    return share * max(tol, gap)


@dataclass
class Certificate:
    """Objective values at one dual point: primal - dual = gap >= primal - optimum.

    The gap is summed from block gaps, each of which is rounded to be non-negative. (Sums
    are NumPy's, not BLAS dot products, whose bits depend on the number of threads.)
    """

    primal: float
    dual: float
    gap: float
    block_gaps: np.ndarray
    concave: np.ndarray = None  # h_b(mu_b) of each block, or a lower bound of it
    block_losses: np.ndarray = None  # bounds of the blocks' losses, from above
    norm: float = None  # 2 Omega(w): ||w||^2 without a further penalty
    l1: float = 0.0  # of Omega(w) what is proportional to w: the L1 term, the norms of groups
    rounding: float = 0.0  # differences of primal or dual that are none
    slack: float = 0.0  # how far rounding of scores may lift the dual above the primal
    bound: float = 0.0  # the best dual value between phi(y) and mu, at least `dual`
    height: float = 0.0  # sum_b p_b h_b(mu_b), which the objective at w = 0 is no less than


def certificate_terms(engine, mu, n_jobs=1, concave=None, only_needed=False):
    """Results of `EngineState.certify_range` for all blocks: five arrays, and the largest term.

    With only_needed, arrays that `certify` does not use are empty, which saves memory.

    Raises
    ------
    CertificateError
        If the gap of a block is negative by more than rounding.
    """
    n, features = engine.surrogate.n_blocks, engine.features
    sizes = [n] * 5
    if only_needed:
        sizes[3] = n if not features.holds_weights() else 0
        sizes[4] = n if features.has_offset else 0
    terms = [np.empty(size) for size in sizes]
    engine.settle(n_jobs)
    terms[2][:] = engine.concave if concave is None else concave
    cost = n * (50 * engine.surrogate.max_size + features.visit_cost)
    largest = in_threads(engine.certify_range, n, cost, n_jobs, mu, *terms)
    gap = terms[1]
    if gap.min(initial=0.0) < 0.0:
        b = int(np.argmin(gap))
        raise CertificateError(
            f"the certificate is wrong: the dual value of block {b} is {-gap[b]:.3g} above the "
            "largest there can be. This is a bug of fastm4n, or of outputs that were added to it: "
            "please report it with the parameters of the estimator and, if you can, the data.")
    return *terms, max(0.0, *largest)


def scaled_dual(height, pull):
    """The best dual value between phi(y) and a dual point with sum_b p_b h_b = height.

    Its w has alpha / 2 ||w||^2 = pull. As h is concave and >= 0 at phi(y), this is the largest
    s height - s^2 pull with s in [0, 1].
    """
    if height >= 2.0 * pull or not pull > 0.0:
        return height - pull
    return 0.25 * max(height, 0.0) ** 2 / pull


def certify(engine, mu, n_jobs=1, apart=None, concave=None, only_primal=False):
    """Certificate at the dual point mu, the feature map holding w(mu).

    For any other w, `apart` has Omega(w) + Omega*(z) - <w, z> and Omega*(z) for the z of mu. The
    first, times alpha, is the excess of P(w) - D(mu) over the sum of the block gaps. See `Penalty`.

    Every block is scored and its oracle value bounded from above, so the gap bounds
    P(w) - P* whatever the solver did.  Threads do not change the sums.

    `bound` is the best known dual value between phi(y) and mu. As h_b is concave and >= 0 at
    phi(y_b), D(phi(y) + s (mu - phi(y))) is at least s H - alpha Omega*(s z(mu)) with H = sum_b p_b
    h_b(mu_b). For ||w||^2 / 2 it is largest at s = H / (alpha ||w(mu)||^2).

    Parameters
    ----------
    engine : BlockCoordinateEngine
    mu : ndarray
    n_jobs : int
    apart : tuple of float, default=None
    concave : ndarray, default=None
        Lower bounds of h_b(mu_b). By default those of the engine's own dual point.
    only_primal : bool, default=False
        Whether w is unrelated to mu. There is no dual value then.
    """
    loss, gap, heights, inner, shift, largest = certificate_terms(engine, mu, n_jobs, concave, True)
    features, alpha = engine.features, engine.alpha
    norm = features.weight_norm()
    p = np.asarray(engine.weights)
    shift = shift if features.has_offset else 0.0
    if norm is None:
        norm = float(np.sum(p * (inner - shift))) / alpha
        if norm < 0.0 and _is_indefinite(engine, mu, norm):
            raise NotPositiveSemidefinite(f"the squared norm of w came out negative ({norm:.3g})")
    norm = max(norm, 0.0)
    penalty = conjugate = 0.5 * norm
    l1 = 0.0
    if features.has_penalty():
        penalty, conjugate = features.penalty_value(), features.conjugate_value()
        l1 = max(0.0, penalty - 0.5 * features.modulus() * norm)
    excess = 0.0
    if apart is not None:
        excess, conjugate = apart
    product = p * loss
    primal = float(np.sum(product)) + alpha * penalty
    np.subtract(heights, shift, out=product)
    product *= p
    height, pull = float(np.sum(product)), alpha * conjugate
    dual = height - pull
    bound = dual
    if features.has_penalty():
        bound = max(dual, 0.0)  # Omega*(0) is not positive
        if apart is None and height < alpha * (penalty + conjugate):
            scale = features.best_scale(height / alpha, 1.0)
            bound = max(bound, scale * height - alpha * features.along(scale)[0])
    else:
        bound = max(dual, scaled_dual(height, pull))
    np.multiply(p, gap, out=product)
    total, rounding = float(np.sum(product)), ROUNDING * (abs(primal) + abs(height) + abs(pull))
    slack = OF_SCORES * largest
    if np.isfinite(rounding) and np.isfinite(slack):
        if only_primal:
            dual = bound = -np.inf
        checked_gap(primal, max(dual, bound), slack)
    else:  # w or its scores overflowed, and nothing is known of them
        primal, dual, bound, total, rounding, slack = np.inf, -np.inf, -np.inf, np.inf, 0.0, 0.0
    return Certificate(
        primal=primal, dual=dual, gap=total + alpha * excess, block_gaps=gap,
        concave=heights, block_losses=loss, norm=2.0 * penalty, l1=l1,
        rounding=rounding, bound=bound, height=height, slack=slack,
    )


def _is_indefinite(engine, mu, norm):
    """Whether a negative ||w||^2, of scores and mu, is more than rounding."""
    other = 1.0 + engine.surrogate.outputs.truth()  # no dual point is farther in any entry
    return norm < -NEGATIVE * max(engine.norm_bound(mu), UNDONE * engine.norm_bound(other)) ** 2


def with_exact_primal(found, surrogate, features, weights, alpha):
    """The certificate with the exact primal value of the features' w instead of an upper bound.

    For the penalty ||w||^2 / 2, with the norm in `found`.
    """
    losses = np.empty(surrogate.n_blocks)
    losses_at(surrogate, features, losses)
    primal = float(np.sum(weights * losses)) + 0.5 * alpha * found.norm
    if not primal < found.primal < np.inf:
        return found
    rounding = ROUNDING * (abs(primal) + abs(found.dual))
    gap = rounding + checked_gap(primal, found.dual, rounding)
    return replace(found, primal=primal, gap=min(found.gap, gap), block_losses=losses)


def certify_average(engine, n_jobs=1):
    """The averaged dual point of the fixed step and its certificate. w does not change."""
    mu = engine.averaged_mu()
    return mu, certify_elsewhere(engine, mu, n_jobs)


@contextmanager
def weights_restored(features):
    """Context after which the features have the weights of before: a copy, which it gives."""
    state = features.state()
    try:
        yield state
    finally:
        features.restore(state)


def certify_elsewhere(engine, mu, n_jobs=1, concave=None):
    """Certificate of another dual point and its w. The engine's w does not change."""
    with weights_restored(engine.features):
        engine.rebuild_weights(mu)
        return certify(engine, mu, n_jobs, concave=concave)


def objective_at_zero(surrogate, features, weights):
    """P(0) = sum_b p_b max_mu h_b(mu), bounded from above: the unit of tolerances.

    It is one without costs, to divide by it.
    """
    value = sum_at_zero(surrogate, features, weights)
    return value if value > 0.0 else 1.0


def sum_at_zero(surrogate, features, weights):
    """sum_b p_b max_mu h_b(mu), which is zero without costs."""
    return float(np.sum(weights * surrogate.largest(features.size)))


def certify_zero(engine, n_jobs=1):
    """phi(y) and the certificate of w = 0 (within its bounds). w does not change.

    Its `primal` is an upper bound of the objective. It equals `objective_at_zero` if w has neither
    bounds nor an offset, and costs are not all zero.
    """
    with weights_restored(engine.features):
        engine.features.clear()
        origin = engine.at_truth()
        return origin.mu, certify(origin, origin.mu, n_jobs)


def rests_at_zero(features):
    """Whether w = 0 is within the bounds."""
    return all(
        np.all(np.asarray(penalty.lower_rows()) <= 0.0)
        and np.all(np.asarray(penalty.upper_rows()) >= 0.0)
        for penalty in features.penalties().values())


def certify_cleared(engine, n_jobs=1):
    """The weights of `certify_zero`, as a state, and a certificate of their objective.

    It uses the engine's own dual point, to save memory: the objective does not
    depend on it. w does not change.
    """
    with weights_restored(engine.features) as state:
        engine.features.clear()
        found = certify(engine, engine.mu, n_jobs, only_primal=True)
        # z = 0: unlike copies, zeros take no memory before they are written to
        return {name: np.zeros(array.shape) for name, array in state.items()}, found


class Best:
    """Best certified weights and best dual value of one problem.

    They belong to different points, and primal - dual still bounds the error of the weights. The
    point of the engine is copied only when the engine moves on.

    Parameters
    ----------
    keeps_heights : bool, default=True
        Whether h_b is stored with dual points.

    Attributes
    ----------
    primal, dual : float
    slack : float
        Largest `slack` of the certificates.
    kept : dict, ndarray or None
        Weights of `primal`, as a state of the feature map, or their dual point for a kernel. None
        if the engine is at them.
    concave : ndarray
        Lower bounds of h_b if `kept` is a dual point.
    mu, heights : ndarray or None
        Copy of the dual point of `dual` and h_b there. `mu` is None if the engine is at it.
    """

    def __init__(self, keeps_heights=True):
        self.keeps_heights = keeps_heights
        self.forget()

    def forget(self):
        """Start again from the dual point phi(y)."""
        self.primal, self.dual, self.slack = np.inf, 0.0, 0.0
        self.kept = self.concave = self.mu = self.heights = None

    def state(self):
        """Arrays for `restore`. None of them is changed in place."""
        return {
            "values": np.array([self.primal, self.dual, self.slack]),
            "kept": self.kept, "concave": self.concave, "mu": self.mu, "heights": self.heights,
        }

    def restore(self, state, kept, mu, heights):
        """Restore the arrays of `state`. The other arguments give shapes and dtypes."""
        self.primal, self.dual, self.slack = state["values"].tolist()
        forms = {"kept": kept, "concave": heights, "mu": mu, "heights": heights}
        there = {name.partition("/")[0] for name in state}
        for name, form in forms.items():
            setattr(self, name, formed(form, name, state) if name in there else None)

    def offer(self, certificate, kept=None):
        """Compare a certificate of the engine's point, or of `kept`, with the best."""
        concave = certificate.concave if self.keeps_heights else None
        self.slack = max(self.slack, certificate.slack)
        if certificate.bound >= self.dual:
            self.dual, self.mu, self.heights = certificate.bound, None, concave
        margin = certificate.rounding if kept is None else -certificate.rounding
        if certificate.primal <= self.primal + margin:
            self.primal, self.kept = certificate.primal, kept
            self.concave = concave

    def improved(self, certificate):
        """The certificate with the best primal and dual values."""
        primal, dual = certificate.primal, certificate.dual
        is_better = self.primal < primal or self.dual > dual + certificate.rounding
        if not is_better:
            return certificate
        primal, dual = min(primal, self.primal), max(dual, self.dual)
        gap = checked_gap(primal, dual, self.slack)
        return replace(certificate, primal=primal, dual=dual, gap=gap, slack=self.slack)


class Certifier:
    """Certificates of the current point of an engine, and the solution that a run returns.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    n_jobs : int
    keep_best : bool
        Whether to return the best certified weights, w = 0 included, instead of the last ones. For
        runs under one alpha.
    keep_dual : bool
        With keep_best, whether to return the dual point of the best dual value. Accelerated passes
        keep a copy of it.

    Attributes
    ----------
    acceleration : Acceleration, SemismoothNewton or None
        Momentum or Newton steps of the passes.
    best : Best or None
    certificate : Certificate or None
        The last one.
    updated_passes : int
        Passes since w was last computed from mu.
    certified_at : int
        Visits made until the last certificate, -1 without one.
    """

    def __init__(self, engine, n_jobs, keep_best, keep_dual):
        self.engine, self.n_jobs, self.keep_dual = engine, n_jobs, keep_dual
        self.best = Best(keep_dual or self.by_dual) if keep_best else None
        self.acceleration = self.certificate = self.point = None
        self.zero_known, self.updated_passes, self.certified_at = False, 0, -1

    @property
    def by_dual(self):
        """Whether the result is a dual point and its w(mu)."""
        return self.engine.averaging or not self.engine.features.holds_weights()

    def certify(self):
        """Current point and its certificate. Gaps of all blocks are refreshed."""
        engine = self.engine
        self.certificate, self.certified_at = None, -1  # its numbers of blocks take memory
        at = nullcontext() if self.acceleration is None else self.acceleration.at_result()
        with at as apart:
            certificate = certify(engine, engine.mu, self.n_jobs, apart)
        engine.set_gaps(certificate.block_gaps, certificate.block_losses)
        if engine.averaging:
            return certify_average(engine, self.n_jobs)
        return engine.mu, certificate

    def look(self, tol, is_last):
        """Certify the result; returns the first and the last certificate of the engine's point.

        They differ if w had to be computed from mu in between.
        """
        engine = self.engine
        point, raw = self.certify()
        first, certificate = raw, self._offered(point, raw, tol)
        # the returned w is certified without the rounding of updates: of kernels dual points are
        # returned, and atoms are scaled
        has_rounding = not engine.features.holds_weights() or engine.sets is not None
        allowed = 0 if has_rounding else FRESH_PASSES
        done = certificate.gap <= tol
        if (done or is_last) and self.updated_passes > allowed and not engine.averaging:
            point, raw = self._fresh(point)
            certificate = self._offered(point, raw, tol)
            done = certificate.gap <= tol
        if done or is_last:
            certificate = self._with_zero(certificate, done)
        self.point, self.certificate, self.certified_at = point, certificate, engine.n_visits
        return first, raw

    def _offered(self, point, certificate, done_at):
        """The certificate of what would be returned, this one being of where the passes stand."""
        best = self.best
        if best is None:
            return certificate
        best.offer(certificate, point if self.engine.averaging else None)
        if (
            self.acceleration is not None
            and not self.by_dual
            and best.improved(certificate).gap > done_at
            and self.acceleration.is_dual_ahead(certificate)
        ):
            with self.acceleration.at_dual() as weights:
                of_dual = certify(self.engine, self.engine.mu, self.n_jobs)
            self.acceleration.compared(of_dual.primal < certificate.primal)
            best.offer(of_dual, weights)
        return best.improved(certificate)

    def _fresh(self, point):
        """Build w afresh, without the rounding that updates leave: the point, its certificate."""
        engine, best = self.engine, self.best
        engine.settle(self.n_jobs)
        if best is not None and not self.by_dual:
            self.keep()
        if self.acceleration is None:
            engine.rebuild_weights(point, self.n_jobs)
        elif not self.by_dual:
            self.acceleration.rebuild()
        self.updated_passes = 0
        kept = None
        if best is not None and self.by_dual:
            # certificates differ from those of dual points: restart
            if best.kept is not None:
                kept = best.kept, best.concave
            best.forget()
        if self.by_dual and self.acceleration is not None:
            with self.acceleration.at_result(afresh=True):
                point, certificate = engine.mu, certify(engine, engine.mu, self.n_jobs)
        else:
            point, certificate = self.certify()
        if kept is not None:
            mu, concave = kept
            best.offer(certify_elsewhere(engine, mu, self.n_jobs, concave), mu)
        return point, certificate

    def keep(self):
        """Copy the best weights, and the best dual point, where the passes stand at them."""
        best, engine = self.best, self.engine
        if best is None:
            return
        # the dual may fall where passes are accelerated
        is_ahead = best.mu is None and self.acceleration is not None and not self.by_dual
        if self.keep_dual and is_ahead:
            # the last certificate need not have been the best one: heights go with the point
            best.mu, best.heights = np.array(engine.mu), np.array(engine.concave)
        if best.kept is not None:
            return
        if self.by_dual:
            best.kept = np.array(engine.mu)
        elif self.acceleration is None:
            best.kept = engine.features.state()
        else:
            best.kept = self.acceleration.average()

    def _with_zero(self, certificate, done):
        """The certificate, after w = 0 has been looked at if it may be better."""
        best, engine = self.best, self.engine
        if best is None or self.zero_known:
            return certificate
        features = engine.features
        if features.has_offset:
            if done:  # of the first offset, zero, w = 0 was looked at
                return certificate
        elif rests_at_zero(features):
            # h at the dual point is no more than the objective at w = 0
            if best.primal <= certificate.height:
                return certificate
            self.zero_known = True
            if best.primal <= sum_at_zero(engine.surrogate, features, engine.weights):
                return certificate
        self.zero_known = True
        if self.by_dual:
            point, zero = certify_zero(engine, self.n_jobs)
        else:
            point, zero = certify_cleared(engine, self.n_jobs)
        if zero.primal < best.primal:
            best.offer(replace(zero, bound=-np.inf), point)
        return best.improved(certificate)

    def settled(self):
        """The returned point and its certificate. The features are left with its weights."""
        engine, best = self.engine, self.best
        if self.acceleration is not None and self.certified_at != engine.n_visits:
            self.acceleration.mend()
        # steps over kernels may have gone by scores of single precision
        is_rounded = best is not None and getattr(engine.features, "in_float", False)
        if self.certified_at != engine.n_visits or (is_rounded and self.updated_passes > 0):
            if best is not None:
                self.point, raw = self._fresh(engine.mu) if self.by_dual else self.certify()
                self.certificate = self._with_zero(self._offered(self.point, raw, 0.0), False)
            else:
                self.point, self.certificate = self.certify()
            self.certified_at = engine.n_visits
        self.certificate = self._with_zero(self.certificate, engine.features.has_offset)
        if self.acceleration is not None:
            self.acceleration.finish()
            engine.holds_average = not self.by_dual
            self.acceleration = None
        if best is None or best.kept is None:
            if engine.averaging:
                engine.rebuild_weights(self.point)
        elif self.by_dual:
            engine.rebuild_weights(best.kept)
            self.point = best.kept
            self.certificate = replace(self.certificate, concave=best.concave)
        else:
            engine.features.restore(best.kept)
            engine.holds_average = True
        if best is not None and best.mu is not None and not self.by_dual:
            self.point = best.mu
            self.certificate = replace(self.certificate, concave=best.heights)
        return self.point, self.certificate

    def state(self):
        """Arrays of best weights and momentum, for `restore`. The certifier is not changed."""
        best, state = self.best, {}
        kept = None if best is None else (best.kept, best.mu)
        if best is not None and self.certified_at == self.engine.n_visits:
            # the last certificate of a run leaves them to the engine, which a longer run moves on
            self.keep()
        for name in ("acceleration", "best"):
            of = getattr(self, name)
            if of is not None:
                state[name] = of.state()
        if best is not None:
            best.kept, best.mu = kept
        return state

    def restore(self, state):
        """Restore the best of a `state`, without a certificate."""
        engine = self.engine
        if self.best is not None:
            mu = np.array(engine.mu)
            kept = mu if self.by_dual else engine.features.state()
            self.best.restore(state, kept, mu, np.array(engine.concave))
        self.certificate, self.certified_at = None, -1
