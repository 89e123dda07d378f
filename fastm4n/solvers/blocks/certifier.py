"""`Certifier`: certificates during a run, and the best weights and dual values among them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastm4n.base.arrays import checked, flat, formed, items_of, listed
from fastm4n.solvers.certificates import (
    ROUNDING,
    certify,
    certify_average,
    certify_cleared,
    certify_elsewhere,
    certify_zero,
    checked_gap,
    rests_at_zero,
)

# passes whose updates leave as much rounding in w as computing it from mu
FRESH_PASSES = 20


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
        return self.engine.averaging or self.engine.features.weight_norm() is None

    def _certified(self):
        return certify(self.engine, self.engine.mu, self.n_jobs)

    def certify(self):
        """Current point and its certificate. Gaps of all blocks are refreshed."""
        engine = self.engine
        self.certificate, self.certified_at = None, -1  # its numbers of blocks take memory
        if self.acceleration is None:
            certificate = self._certified()
        else:
            certificate = self.acceleration.certified(
                lambda apart: certify(engine, engine.mu, self.n_jobs, apart))
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
        has_rounding = engine.features.weight_norm() is None or engine.sets is not None
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
            of_dual, weights = self.acceleration.certified_dual(self._certified)
            self.acceleration.compared(of_dual.primal < certificate.primal)
            best.offer(of_dual, weights)
        return best.improved(certificate)

    def _fresh(self, point):
        """Build w afresh, without the rounding that updates leave: the point, its certificate."""
        engine, best = self.engine, self.best
        engine.settle()
        if best is not None and not self.by_dual:
            self.keep()
        if self.acceleration is None:
            engine.rebuild_weights(point)
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
            point, certificate = engine.mu, self.acceleration.certified_afresh(self._certified)
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
            best.mu = np.array(engine.mu)
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
        elif best.primal <= certificate.height and rests_at_zero(features):
            # h at the dual point is no more than the objective at w = 0
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


# most steps of the quadratic program, and relative slope of an optimum (rounding)
MOST_STEPS, FLAT = 200, 1e-12
# ridge relative to the diagonal: planes may be combinations of others (rounding)
RIDGE = 1e-12
# numbers of each point
_COLUMNS = "heights", "entropies", "shares", "unused"


class Planes:
    """Lower bounds of the optimum by mixtures of the last dual points.

    With h_k <= sum_b p_b h_b(mu_k) and z_k = w(mu_k), as h is concave and zero at phi(y),

        D(sum_k c_k mu_k) >= sum_k c_k h_k - alpha / 2 ||sum_k c_k z_k||^2

    for c >= 0 with sum_k c_k <= 1.

    Any c gives a bound, and the quadratic program need not be solved exactly. A single dual point
    is scaled towards phi(y). No bound is negative.

    Parameters
    ----------
    alpha : float
    size : int
        Maximum number of points. The point that has been unused for longest is dropped.

    Attributes
    ----------
    shares : ndarray
        c of the last bound.
    """


    def __init__(self, alpha, size):
        self.alpha, self.size = alpha, size
        self.points = []
        self.heights, self.entropies = np.zeros(0), np.zeros(0)
        self.products = np.zeros((0, 0))
        self.shares = np.zeros(0)
        self.unused = np.zeros(0)

    def add(self, height, z, inner, entropy=0.0):
        """Store a dual point.

        Parameters
        ----------
        height : float
        z : object
            Passed to inner(z, other), and not used otherwise.
        entropy : float
            Excess of a smoothed height; see `bound`.
        """
        if len(self.points) == self.size:
            self._drop(int(np.argmax(self.unused)))
        row = np.array([inner(z, other) for other in [*self.points, z]])
        n = len(self.points)
        products = np.empty((n + 1, n + 1))
        products[:n, :n] = self.products
        products[n], products[:, n] = row, row
        self.products = products
        self.points.append(z)
        self.heights = np.append(self.heights, height)
        self.entropies = np.append(self.entropies, entropy)
        self.shares, self.unused = np.append(self.shares, 0.0), np.append(self.unused, 0.0)

    def state(self):
        """Arrays for `restore`."""
        return {
            **flat("points", listed(self.points)), "products": self.products,
            **{name: getattr(self, name) for name in _COLUMNS}}

    def restore(self, form, state):
        """Restore the arrays of `state`; `form` has the shapes of points."""
        found = [formed(form, "", {f"/{k}": a for k, a in one.items()})
                 for one in items_of("points", state)]
        n = len(found)
        products = checked(np.zeros((n, n)), "products", state)
        columns = [checked(np.zeros(n), name, state) for name in _COLUMNS]
        self.points, self.products = found, products
        for name, column in zip(_COLUMNS, columns, strict=True):
            setattr(self, name, column)

    def _drop(self, k):
        del self.points[k]
        self.products = np.delete(np.delete(self.products, k, 0), k, 1)
        for name in _COLUMNS:
            setattr(self, name, np.delete(getattr(self, name), k))

    def bound(self, tau=0.0):
        """The largest bound, of the smoothed problem with entropies counting tau."""
        heights = self.heights + tau * self.entropies
        shares = largest(heights, self.alpha * self.products, self.shares)
        if tau == 0.0:
            self.shares = shares
            self.unused = np.where(shares > 0.0, 0.0, self.unused + 1.0)
        pull = 0.5 * self.alpha * (shares @ self.products @ shares)
        # what rounding of products may come to where points cancel each other
        terms = np.abs(heights) @ shares + self.alpha * (
            np.sqrt(np.diag(self.products)) @ shares) ** 2
        return max(0.0, float(heights @ shares - pull - ROUNDING * terms))


def largest(heights, matrix, start):
    """c >= 0 with sum c <= 1 that makes heights' c - c' matrix c / 2 large, from a feasible start.

    An active-set method. Each step is Newton's among the positive entries of c, cut off at the
    boundary. Then one more entry becomes positive. `matrix` is positive semidefinite.
    """
    n = heights.size
    # the last is phi(y), which makes the sum one
    slope_of = np.append(heights, 0.0)
    full = np.zeros((n + 1, n + 1))
    full[:n, :n] = matrix
    full[np.arange(n), np.arange(n)] += RIDGE * np.diag(matrix)
    c = np.append(start, max(0.0, 1.0 - start.sum()))
    c /= c.sum()
    active = list(np.flatnonzero(c > 0.0))
    for _ in range(MOST_STEPS):
        # Newton's step with a constant sum
        k = len(active)
        system = np.zeros((k + 1, k + 1))
        system[:k, :k] = full[np.ix_(active, active)]
        system[:k, k] = system[k, :k] = 1.0
        try:
            to = np.linalg.solve(system, np.append(slope_of[active], 1.0))[:k]
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(to).all():
            break
        now = c[active]
        going = to < now
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(going & (to < 0.0), now / (now - to), np.inf)
        share = min(1.0, float(room.min()))
        c[active] = np.maximum(0.0, now + share * (to - now))
        if share < 1.0:
            gone = int(np.argmin(room))
            c[active[gone]] = 0.0
            del active[gone]
            continue
        slopes = slope_of - full @ c
        level = float(slopes @ c)
        slopes[active] = -np.inf
        best = int(np.argmax(slopes))
        if not slopes[best] > level + FLAT * (1.0 + np.abs(slope_of).max()):
            break
        active.append(best)
    return c[:n] / c.sum()
