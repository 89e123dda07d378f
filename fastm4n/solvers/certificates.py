"""Certificates: objective values at feasible points, whose difference bounds the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.arrays import formed
from fastm4n.base.threads import in_threads
from fastm4n.features._base import NotPositiveSemidefinite
from fastm4n.surrogates._batches import losses_at

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

# two values of the objective that differ by less than this share of their terms are equal
ROUNDING = 1e-14

# a dual value above the primal one by more than this share of both is wrong, beyond rounding of the
# scores, of which a certificate has this share of the largest, and of costs of one
INCONSISTENT, OF_SCORES, OF_ONE = 1e-9, 1e-12, 1e-15

# ||w||^2 may come out negative by this share of the largest that it could be at mu, by rounding
NEGATIVE = 1e-9
# scores are sums of updates, and keep the rounding of those that were undone since: what they have
# of it is less than that of a w of this share of the largest norm at any dual point
UNDONE = 1e-5


class CertificateError(ArithmeticError):
    """A lower bound of the objective came out above the objective itself."""


def checked_gap(primal: float, dual: float, slack: float = 0.0) -> float:
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


def certificate_terms(
    engine: Any, mu: FloatArray | None, n_jobs: int | None = 1, concave: FloatArray | None = None,
    only_needed: bool = False,
) -> tuple[Any, ...]:
    """What `EngineState.certify_range` tells of all blocks: five arrays, and the largest term.

    With only_needed those that `certify` makes nothing of are empty: numbers of blocks are not few
    beside those of a dual point.

    Raises
    ------
    CertificateError
        If the gap of a block is negative by more than rounding.
    """
    n, features = engine.surrogate.n_blocks, engine.features
    sizes = [n] * 5
    if only_needed:
        sizes[3] = n if features.weight_norm() is None else 0
        sizes[4] = n if features.has_offset else 0
    terms = [np.empty(size) for size in sizes]
    engine.settle()
    terms[2][:] = engine.concave if concave is None else concave
    cost = n * (50 * engine.surrogate.max_size + features.visit_cost)
    largest = [0.0]
    in_threads(
        lambda start, stop: largest.append(engine.certify_range(start, stop, mu, *terms)), n, cost,
        n_jobs)
    gap = terms[1]
    if gap.min(initial=0.0) < 0.0:
        b = int(np.argmin(gap))
        raise CertificateError(
            f"the certificate is wrong: the dual value of block {b} is {-gap[b]:.3g} above the "
            "largest there can be. This is a bug of fastm4n, or of outputs that were added to it: "
            "please report it with the parameters of the estimator and, if you can, the data.")
    return *terms, max(largest)


def scaled_dual(height: float, pull: float) -> float:
    """The best dual value between phi(y) and a dual point of sum_b p_b h_b = height.

    Its w has alpha / 2 ||w||^2 = pull; h is concave and zero at phi(y): the largest
    s height - s^2 pull with s in [0, 1].
    """
    if height >= 2.0 * pull or not pull > 0.0:
        return height - pull
    return 0.25 * max(height, 0.0) ** 2 / pull


def certify(
    engine: Any, mu: FloatArray, n_jobs: int = 1, apart: tuple[float, float] | None = None,
    concave: FloatArray | None = None, only_primal: bool = False,
) -> Certificate:
    """Certificate at the dual point mu, the feature map holding w(mu).

    Or any other w: `apart` then is Omega(w) + Omega*(z) - <w, z>, by which P(w) - D(mu) over alpha
    is more than the sum of the block gaps, and Omega*(z), z being that of mu; see `Penalty`.

    Every block is scored and its oracle value bounded from above, so that the gap bounds
    P(w) - P* whatever the solver did.  With n_jobs > 1, in threads; the sums do not
    depend on their number.

    `bound` is the best dual value between phi(y) and mu, as far as h is known there: h_b is
    concave and zero at phi(y_b), so that D(phi(y) + s (mu - phi(y))) is at least
    s H - alpha Omega*(s z(mu)), H = sum_b p_b h_b(mu_b), which for ||w||^2 / 2 is largest at
    s = H / (alpha ||w(mu)||^2).

    Parameters
    ----------
    engine : BlockCoordinateEngine
    mu : ndarray
    n_jobs : int
    apart : tuple of float, default=None
    concave : ndarray, default=None
        Lower bounds of h_b(mu_b); the engine's, of its own dual point, by default.
    only_primal : bool, default=False
        Whether w has nothing to do with mu: there is no dual value then.
    """
    loss, gap, heights, inner, shift, largest = certificate_terms(
        engine, mu, n_jobs, concave, True)
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
    other = 1.0 - engine.surrogate.outputs.truth()  # no dual point is farther in any entry
    return norm < -NEGATIVE * max(engine.norm_bound(mu), UNDONE * engine.norm_bound(other)) ** 2


def with_exact_primal(
    found: Certificate, surrogate: Surrogate, features: FeatureMap, weights: FloatArray,
    alpha: float,
) -> Certificate:
    """A certificate whose primal value, a bound from above, is made that of the features' w.

    Where the penalty is ||w||^2 / 2, of which `found` has the norm.
    """
    losses = np.empty(surrogate.n_blocks)
    losses_at(surrogate, features, losses)
    primal = float(np.sum(weights * losses)) + 0.5 * alpha * found.norm
    if not primal < found.primal < np.inf:
        return found
    rounding = ROUNDING * (abs(primal) + abs(found.dual))
    gap = rounding + checked_gap(primal, found.dual, rounding)
    return replace(found, primal=primal, gap=min(found.gap, gap), block_losses=losses)


def certify_average(engine: Any, n_jobs: int | None = 1) -> tuple[FloatArray, Certificate]:
    """The averaged dual point of the fixed step and its certificate; w is left as it was."""
    mu = engine.averaged_mu()
    return mu, certify_elsewhere(engine, mu, n_jobs)


def certify_elsewhere(
    engine: Any, mu: FloatArray | None, n_jobs: int | None = 1, concave: FloatArray | None = None,
) -> Certificate:
    """Certificate of another dual point and w of it; the engine's w is left as it was."""
    state = engine.features.state()
    try:
        engine.rebuild_weights(mu)
        return certify(engine, mu, n_jobs, concave=concave)
    finally:
        engine.features.restore(state)


def objective_at_zero(surrogate: Surrogate, features: FeatureMap, weights: FloatArray) -> float:
    """P(0) = sum_b p_b max_mu h_b(mu), bounded from above: what tolerances are relative to.

    One where there are no costs, so that it can be divided by.
    """
    value = float(np.sum(weights * surrogate.largest(features.size)))
    return value if value > 0.0 else 1.0


def certify_zero(engine: Any, n_jobs: int | None = 1) -> tuple[FloatArray, Certificate]:
    """phi(y) and the certificate of w = 0 (within its bounds); w is left as it was.

    Its `primal` is the objective there, bounded from above: `objective_at_zero` where w has neither
    bounds nor an offset, and costs are not all zero.
    """
    state = engine.features.state()
    try:
        engine.features.clear()
        origin = engine.at_truth()
        return origin.mu, certify(origin, origin.mu, n_jobs)
    finally:
        engine.features.restore(state)


def rests_at_zero(features: FeatureMap) -> bool:
    """Whether w = 0 is within the bounds."""
    return all(
        np.all(np.asarray(penalty.lower_rows()) <= 0.0)
        and np.all(np.asarray(penalty.upper_rows()) >= 0.0)
        for penalty in features.penalties().values())


def certify_cleared(
    engine: Any, n_jobs: int | None = 1,
) -> tuple[dict[str, FloatArray], Certificate]:
    """The weights of `certify_zero`, as a state, and a certificate whose objective is of them.

    The engine's own dual point serves, which takes no memory for another: the objective does not
    depend on it. w is left as it was.
    """
    state = engine.features.state()
    try:
        engine.features.clear()
        found = certify(engine, engine.mu, n_jobs, only_primal=True)
        # z = 0: unlike copies, zeros take no memory before they are written to
        return {name: np.zeros(array.shape) for name, array in state.items()}, found
    finally:
        engine.features.restore(state)


class Best:
    """The best weights and the best dual value that were certified of one problem.

    The two are of different points: primal - dual bounds what is left to gain all the same. What
    the engine stands at is kept only when it moves on.

    Parameters
    ----------
    keeps_heights : bool, default=True
        Whether dual points are asked for, with which h_b go.

    Attributes
    ----------
    primal, dual : float
    slack : float
        The largest of the certificates that were offered.
    kept : dict, ndarray or None
        The weights of `primal`, as a state of the feature map, or their dual point where weights
        are not held; None where the engine stands at them.
    concave : ndarray
        Lower bounds of h_b where `kept` is a dual point.
    mu, heights : ndarray or None
        A copy of the dual point of `dual`, None where the engine stands at it, and h_b there.
    """

    primal: float
    dual: float
    slack: float
    kept: Any
    concave: FloatArray | None
    mu: FloatArray | None
    heights: FloatArray | None

    def __init__(self, keeps_heights: bool = True) -> None:
        self.keeps_heights = keeps_heights
        self.forget()

    def forget(self) -> None:
        """Begin anew, from the dual point phi(y)."""
        self.primal, self.dual, self.slack = np.inf, 0.0, 0.0
        self.kept = self.concave = self.mu = self.heights = None

    def state(self) -> dict[str, Any]:
        """All that later passes depend on, for `restore`; nothing of it is changed in place."""
        return {
            "values": np.array([self.primal, self.dual, self.slack]),
            "kept": self.kept, "concave": self.concave, "mu": self.mu, "heights": self.heights,
        }

    def restore(
        self, state: dict[str, Any], kept: Any, mu: FloatArray | None, heights: FloatArray | None,
    ) -> None:
        """Bring back the arrays of `state`; the others are of the form that its own have."""
        self.primal, self.dual, self.slack = state["values"].tolist()
        forms = {"kept": kept, "concave": heights, "mu": mu, "heights": heights}
        there = {name.partition("/")[0] for name in state}
        for name, form in forms.items():
            setattr(self, name, formed(form, name, state) if name in there else None)

    def offer(self, certificate: Certificate, kept: Any = None) -> None:
        """Take notice of a certificate, of where the engine stands or of what is to be kept."""
        concave = certificate.concave if self.keeps_heights else None
        self.slack = max(self.slack, certificate.slack)
        if certificate.bound >= self.dual:
            self.dual, self.mu, self.heights = certificate.bound, None, concave
        margin = certificate.rounding if kept is None else -certificate.rounding
        if certificate.primal <= self.primal + margin:
            self.primal, self.kept = certificate.primal, kept
            self.concave = concave

    def improved(self, certificate: Certificate) -> Certificate:
        """The certificate with the best values in the place of its own."""
        primal, dual = certificate.primal, certificate.dual
        is_better = self.primal < primal or self.dual > dual + certificate.rounding
        if not is_better:
            return certificate
        primal, dual = min(primal, self.primal), max(dual, self.dual)
        gap = checked_gap(primal, dual, self.slack)
        return replace(certificate, primal=primal, dual=dual, gap=gap, slack=self.slack)
