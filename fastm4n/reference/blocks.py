"""The problem, its certificate and one step, for blocks of outputs of any kind.

Block i has features Phi(x_i), an output y_i and a weight p_i > 0, sum_i p_i = 1. Its scores are v_i
= w' Phi(x_i), and its dual point mu_i is in the marginal polytope of its outputs. With the concave
functions h_i of the surrogate, which vanish at phi(y_i),

    primal  P(w)  = sum_i p_i [ max_mu h_i(mu) + <v_i, mu> - <v_i, phi(y_i)> ] + (alpha / 2) ||w||^2
    dual    D(mu) = sum_i p_i h_i(mu_i) - (alpha / 2) ||w(mu)||^2
            w(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i)
    gap     P(w(mu)) - D(mu) = sum_i p_i g_i,
            g_i = [ max_mu h_i(mu) + <v_i, mu> ] - [ h_i(mu_i) + <v_i, mu_i> ] >= 0

(equations D of section 5.1, and appendix E of [1]_, where w(mu) has the other sign and the
gap a factor 1/2: both misprints).

With another penalty, alpha Omega(w), w(mu) is prox of z(mu), the sum above, and the dual has
-alpha Omega*(z(mu)) for its last term: see `Penalty`. With bounds alone,
lower <= w <= upper, w(mu) = clip(z(mu), lower, upper), and the last term is
-(alpha / 2) ||w(mu)||^2 - alpha <w(mu), z(mu) - w(mu)> ([2]_, appendix H).

The state of a block is mu_i. For the log surrogate of sequences and permutations it is the natural
parameters with the marginals mu_i, as mu_i does not determine the entropy.

Scores, points, features and w are tuples of arrays, and a block's point ends with its h. Classes
derived from `Blocks` implement kinds of outputs: `SimplexBlocks` (one of k labels), `ChainBlocks`
(a sequence of labels) and `PermutationBlocks`.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
.. [3] R. Le Priol, A. Piche and S. Lacoste-Julien, "Adaptive stochastic dual coordinate
   ascent for conditional random fields", UAI 2018.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from fastm4n.base.types import FloatArray, Parts, SurrogateName


def _parts(value, n_parts):
    """A number or an array for each part of w."""
    return value if isinstance(value, tuple) else (value,) * n_parts


@dataclass(frozen=True)
class Penalty:
    """Omega of tuples of arrays, the parts of w: bounds, the elastic net or groups.

    P(w) has the term alpha Omega(w), with m > 0, t >= 0, and one of::

        Omega(w) = (m / 2) ||w||^2 + sum_j t_j |w_j|,  lower <= w <= upper,
        Omega(w) = (m / 2) ||w||^2 + sum_g t_g ||w_g||,  g the groups that `axis` says.

    D(mu) has -alpha Omega*(z(mu)), with z(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i),
    and w(mu) = argmax_w <w, z> - Omega(w).  By Omega(w) + Omega*(z) = <w, z> at this w, P - D is
    the sum of the blocks' gaps, as it is for ||w||^2 / 2.  Omega* is (1 / m)-smooth: a lower bound
    of what a step gains has the curvature of ||w||^2 / 2 divided by m.

    Parameters
    ----------
    bounds : pair (lower, upper), optional
        Each a number, or a tuple of a number or an array for each part of w.
    thresholds : float or tuple, default=0.0
        t, in the same way. With `axis` it is t_g, and broadcasts to the norms of the groups.
    modulus : float, default=1.0
        m.
    axis : int, optional
        The axis of the parts along a group. By default each weight is its own group.

    Examples
    --------
    >>> Penalty(thresholds=1.0, modulus=0.5).prox((np.array([-2.0, 0.5, 3.0]),))
    (array([-2.,  0.,  4.]),)
    """

    bounds: Any = None
    thresholds: object = 0.0
    modulus: float = 1.0
    axis: int = None

    def box(self, n_parts: int) -> tuple[Parts, Parts]:
        """The bounds, (lower, upper), each a tuple with a number or an array for each part."""
        lower, upper = (-np.inf, np.inf) if self.bounds is None else self.bounds
        lower, upper = _parts(lower, n_parts), _parts(upper, n_parts)
        for name, bound in ("lower", lower), ("upper", upper):
            if len(bound) != n_parts:
                raise ValueError(
                    f"the {name} bounds have {len(bound)} parts, but w has {n_parts}: "
                    "give a number, or one entry for each part.")
        for k, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if not np.all(np.asarray(low) <= high):
                raise ValueError(
                    f"bounds of part {k} of w have a lower one above the upper, or NaN: "
                    "give lower <= upper.")
        return lower, upper

    def _size(self, part):
        if self.axis is None:
            return np.abs(part)
        return np.sqrt(np.sum(part**2, axis=self.axis, keepdims=True))

    def prox(self, z: Parts) -> Parts:
        """argmax_w <w, z> - Omega(w)."""
        thresholds = _parts(self.thresholds, len(z))
        out = []
        for part, t, low, high in zip(z, thresholds, *self.box(len(z)), strict=True):
            size = self._size(part)
            shrunk = np.where(size > t, part * (1.0 - t / np.maximum(size, 1e-300)), 0.0)
            out.append(np.clip(shrunk / self.modulus, low, high))
        return tuple(out)

    def value(self, w: Parts) -> float:
        """Omega(w), for w within the bounds."""
        return float(sum(
            0.5 * self.modulus * np.sum(part**2) + np.sum(t * self._size(part))
            for part, t in zip(w, _parts(self.thresholds, len(w)), strict=True)))

    def conjugate(self, z: Any) -> float:
        """Omega*(z)."""
        w = self.prox(z)
        return float(sum(np.sum(a * b) for a, b in zip(w, z, strict=True))) - self.value(w)


class Certificate(NamedTuple):
    """Result of `Blocks.certificate`: gap = primal - dual = sum_i p_i block_gaps[i]."""

    primal: float
    dual: float
    gap: float
    block_gaps: np.ndarray


def _inner(one, other):
    """<one, other>, of tuples of arrays."""
    return float(sum(np.sum(a * b) for a, b in zip(one, other, strict=True)))


def _minus(one, other):
    return tuple(a - b for a, b in zip(one, other, strict=True))


def _plus(one, other):
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _times(factor, parts):
    return tuple(factor * part for part in parts)


def _between(one, other, gamma):
    return tuple((1.0 - gamma) * a + gamma * b for a, b in zip(one, other, strict=True))


def _total(tuples):
    return functools.reduce(_plus, tuples)


def _clipped_ratio(ascent, curvature):
    """argmax over gamma in [0, 1] of  gamma ascent - (gamma^2 / 2) curvature."""
    if ascent <= 0:
        return 0.0
    return 1.0 if curvature <= ascent else ascent / curvature


class Blocks:
    """Training examples with outputs of one kind, under one surrogate.

    A derived class has `outputs`, y, cost and the three abstract methods.

    Parameters
    ----------
    n : int
        Number of blocks.
    surrogate : {"max_margin", "max_min", "log"}
    alpha : float
    weights : array of shape (n,) or None
        Positive, divided by their sum. Equal if None.
    penalty : Penalty, pair (lower, upper) or None
        Omega, or a pair of bounds. Parts that are not fitted are zero anyway.
    """

    n: int
    alpha: float
    penalty: Penalty
    is_plain: bool
    is_natural: bool
    p: FloatArray

    outputs = None
    oracle_tol: float = 1e-9
    has_natural_step = True  # of the log surrogate, whose states are natural parameters

    def __init__(
        self, n: int, surrogate: SurrogateName, alpha: float, weights: FloatArray | None = None,
        penalty: Any = None,
    ) -> None:
        self.n, self.surrogate, self.alpha = n, surrogate, alpha
        self.penalty = penalty if isinstance(penalty, Penalty) else Penalty(penalty)
        self.is_plain = penalty is None
        self.is_natural = surrogate == "log" and self.has_natural_step
        p = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
        self.p = p / p.sum()

    def scores(self, i: int, w: Any) -> Any:
        """v_i = w' Phi(x_i)."""
        raise NotImplementedError

    def features(self, i: int, parts: Any) -> Any:
        """Phi(x_i) parts, in the form of w: <w, it> = <v_i, parts>."""
        raise NotImplementedError

    def truth(self, i: int) -> Any:
        """phi(y_i)."""
        raise NotImplementedError

    def cost_of(self, i: int) -> FloatArray:
        """The cost of the block's positions."""
        return self.cost

    def point(self, i: int, state: dict[str, Any]) -> Parts:
        """``(*mu_i, h_i(mu_i))``, from nothing but the block's state."""
        if self.is_natural:
            return self.outputs.gibbs(state)[:-1]
        return *state, self.outputs.concave_part(
            state, self.surrogate, self.y[i], self.cost_of(i))

    def oracle(self, i: int, v: Parts) -> Parts:
        """``(*s, h_i(s), upper)``: a maximiser s of h_i(s) + <v, s> and a bound of the maximum."""
        return self.outputs.oracle(
            v, self.surrogate, self.y[i], self.cost_of(i), self.oracle_tol)

    def oracle_of_visit(self, i: int, v: Parts, starts: dict[str, Any]) -> Parts:
        """The oracle of visits, which may be less exact.

        starts is a dictionary, at first empty, for starts of the next visit of a block.
        """
        return self.oracle(i, v)

    def block_maximizer(self, i: int, v: Parts, mu: Parts) -> Any:
        """The point of block i that maximises the dual, the other blocks being fixed."""
        raise ValueError("only labels have exact steps: use step='line_search'.")

    def inner(self, one: Parts, other: Any) -> float:
        """<one, other>, of two w."""
        return _inner(one, other)

    def change_of_w(self, i: int, old: Parts, new: Parts) -> Parts:
        """The change of w(mu) when mu_i goes from old to new."""
        return _times(self.p[i] / self.alpha, self.features(i, _minus(old, new)))

    def fitted(self, w: Parts) -> Parts:
        """w with zeros in the parts that are not fitted. By default all are fitted."""
        return w

    def primal_weights(self, points: list[Any]) -> Parts:
        """z(mu)  ([1]_, section 5.1, its sign put right), of points ``(*mu_i, h_i)``.

        It is w(mu) for Omega(w) = ||w||^2 / 2. Otherwise w(mu) is its prox.
        """
        return _total(
            self.change_of_w(i, self.truth(i), mu) for i, (*mu, _) in enumerate(points))

    def prox(self, z: Parts) -> Parts:
        """w = prox(z), equal to z if Omega(w) is ||w||^2 / 2."""
        return z if self.is_plain else self.fitted(self.penalty.prox(z))

    def conjugate(self, z: Parts) -> float:
        """Omega*(z), over the parts that are fitted."""
        w = self.prox(z)
        return self.inner(w, z) - self.omega(w)

    def omega(self, w: Parts) -> float:
        """Omega(w)."""
        return self.penalty.value(w)

    def examine(self, w: Parts) -> tuple[list[Parts], list[Parts], float]:
        """Every block's scores and oracle at w, and P(w).

        Returns
        -------
        scores : list of tuples of arrays
        answers : list of tuples of arrays, h_i(s) and upper
            As the oracle's.
        primal : float
            P(w), from above: with the upper bounds of the oracles' values.
        """
        scores = [self.scores(i, w) for i in range(self.n)]
        answers = [self.oracle(i, v) for i, v in enumerate(scores)]
        losses = [
            answer[-1] - _inner(v, self.truth(i))
            for i, (v, answer) in enumerate(zip(scores, answers, strict=True))]
        return scores, answers, float(self.p @ losses) + self.alpha * self.omega(w)

    def gap(self, v: Parts, point: Parts, upper: float) -> float:
        """g_i of a block at its scores v, for an upper bound of its oracle's value."""
        *mu, h = point
        return max(0.0, upper - h - _inner(v, mu))

    def certificate_of(
        self, points: list[Any], z: Parts, scores: list[Any], answers: list[Any], primal: float,
    ) -> Certificate:
        """The certificate at the points, where z = z(mu), and its prox has been examined."""
        gaps = np.array([
            self.gap(v, point, answer[-1])
            for v, point, answer in zip(scores, points, answers, strict=True)])
        dual = float(self.p @ [point[-1] for point in points]) - self.alpha * self.conjugate(z)
        return Certificate(primal, dual, float(self.p @ gaps), gaps)

    def certificate_of_points(self, points: list[Any]) -> Certificate:
        """The certificate at w(mu), of points ``(*mu_i, h_i)``."""
        z = self.primal_weights(points)
        return self.certificate_of(points, z, *self.examine(self.prox(z)))

    def certificate(self, states: list[Any]) -> Certificate:
        """Primal, dual and gap at w(mu), from nothing but the states.

        The gap is at least P(w) - P*: the primal has upper bounds on the oracles' values, and
        the dual is at most P* ([1]_, E.1 and E.2, and [2]_, equation 6).
        """
        return self.certificate_of_points(
            [self.point(i, state) for i, state in enumerate(states)])

    def start(self) -> list[Any]:
        """The blocks' first states: the truth, where w = 0.

        For natural parameters, which are infinite there, it is theta = log(100 k) phi(y) without
        transitions, for k labels or items: the truth of a position has probability 0.99.  The
        uniform start theta = 0 is poor for small alpha, since its w is large, like 1 / alpha, and
        so are the scores to which the first visits move.
        """
        states = [self.truth(i) for i in range(self.n)]
        if not self.is_natural:
            return states
        return [
            (np.log(100.0 * nodes.shape[1]) * nodes, *map(np.zeros_like, others))
            for nodes, *others in states]

    def step(
        self, group: Sequence[int], states: list[Any], points: list[Any], z: Parts,
        scores: list[Any], answers: list[Any],
    ) -> Parts:
        """One step of length gamma of the blocks of a group, from the answers of their oracles.

        Let q = alpha ||sum_i (p_i / alpha) Phi(x_i) (s_i - mu_i)||^2, sums being over the group.

        *max_margin, max_min*: mu_i moves to mu_i + gamma (s_i - mu_i), with the gamma in [0, 1]
        that maximises a lower bound of the dual, h_i being concave (for max_margin the dual
        itself, h_i being linear):

            gamma sum_i p_i [ h_i(s_i) + <v_i, s_i> - h_i(mu_i) - <v_i, mu_i> ] - (gamma^2 / 2) q.

        *log* of labels: the same, with the gamma that maximises the dual (`log_line_search`).

        *log* of others: the natural parameters theta_i move to theta_i + gamma (v_i - theta_i), and
        mu_i with them ([3]_ moves mu_i on the line to s_i, for which the distribution that mu_i
        comes from has to be kept).  The dual rises at first: its gradient in mu_i is
        p_i (v_i - theta_i), and mu_i moves along Cov (v_i - theta_i), Cov being the covariance
        of phi(y) under theta_i.  For the length, look at the line from mu_i to s_i: the slope of
        the dual is S = sum_i p_i <v_i - theta_i, s_i - mu_i> at mu_i, where
        <v_i - theta_i, s_i - mu_i> = KL(s_i, mu_i) + KL(mu_i, s_i), and -q at s_i, where v_i is
        the natural parameter.  Were it linear in between, it would vanish at

            gamma = S / (S + q),

        which is halved until the dual does not fall.

        With another penalty q is divided by its modulus, as prox is (1 / m)-Lipschitz, and the
        scores are those of w = prox(z): the bound holds, and with it the step ([2]_, Algorithm 9,
        for bounds).

        Parameters
        ----------
        group : sequence of int
        states, points : list
            Of all blocks. Those of the group are replaced.
        z : tuple of arrays
        scores, answers : list
            For the group's blocks at w = prox(z), as `examine` returns them.

        Returns
        -------
        z : tuple of arrays
            At the new points.
        """
        old = [points[i] for i in group]

        def change_to(new):
            """The change of w when the group goes to the points new, with their h."""
            return _total(
                self.change_of_w(i, a[:-1], b[:-1])
                for i, a, b in zip(group, old, new, strict=True))

        change = change_to([answer[:-1] for answer in answers])
        smoothness = self.alpha / self.penalty.modulus
        curvature = smoothness * self.inner(change, change)
        if self.surrogate == "log" and not self.is_natural:
            gamma = self.log_step(group, scores, old, answers, curvature)
        else:
            ascent = 0.0
            for i, v, (*s, h_s, _), (*mu, h) in zip(group, scores, answers, old, strict=True):
                move = _minus(s, mu)
                ascent += self.p[i] * (
                    _inner(_minus(v, states[i]), move) if self.is_natural
                    else h_s + _inner(v, move) - h)
            gamma = _clipped_ratio(ascent, ascent + curvature if self.is_natural else curvature)
        targets = scores if self.is_natural else [answer[:-2] for answer in answers]
        while gamma > 1e-12:
            new_states = [
                _between(states[i], target, gamma)
                for i, target in zip(group, targets, strict=True)]
            new = [self.point(i, state) for i, state in zip(group, new_states, strict=True)]
            change = change_to(new)
            if not self.is_natural or 0.5 * smoothness * self.inner(change, change) <= sum(
                    self.p[i] * (b[-1] - a[-1] + _inner(v, _minus(b[:-1], a[:-1])))
                    for i, v, a, b in zip(group, scores, old, new, strict=True)):
                for i, state, point in zip(group, new_states, new, strict=True):
                    states[i], points[i] = state, point
                return _plus(z, change)
            gamma *= 0.5
        return z
