"""Certificates: objective values at feasible points, whose difference bounds the rest.

`certify` is for the block solver, which `Driver` stops. The others make a `Certificate` of their
own points and set `is_done`, at which `Monitor.follow` stops.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

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


def scaled_dual(height, pull):
    """The best dual value between phi(y) and a dual point with sum_b p_b h_b = height.

    Its w has alpha / 2 ||w||^2 = pull. As h is concave and zero at phi(y), this is the largest
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

    `bound` is the best known dual value between phi(y) and mu. As h_b is concave and zero at
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
    other = 1.0 - engine.surrogate.outputs.truth()  # no dual point is farther in any entry
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
    value = float(np.sum(weights * surrogate.largest(features.size)))
    return value if value > 0.0 else 1.0


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
