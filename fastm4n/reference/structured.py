"""Block-coordinate Frank-Wolfe over the blocks of any structure, and its certificate.

The problem is that of `fastm4n.reference.block_coordinate`, with outputs of any kind.  Block i
has features Phi(x_i), an output y_i and a weight p_i > 0, sum_i p_i = 1; v_i = w' Phi(x_i) are its
scores and mu_i, a point of the marginal polytope, its dual point.  With the concave functions
h_i of the surrogate,

    primal  P(w)  = sum_i p_i [ max_mu h_i(mu) + <v_i, mu> - <v_i, phi(y_i)> ] + (alpha / 2) ||w||^2
    dual    D(mu) = sum_i p_i h_i(mu_i) - (alpha / 2) ||w(mu)||^2
            w(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i)
    gap     P(w(mu)) - D(mu) = sum_i p_i g_i,
            g_i = [ max_mu h_i(mu) + <v_i, mu> ] - [ h_i(mu_i) + <v_i, mu_i> ] >= 0.

The state of a block is mu_i; that of the log surrogate the natural parameters whose marginals
mu_i is, as the entropy of mu_i does not follow from mu_i alone.

Scores, points, features and w are tuples of arrays here, the parts of each; a block's point
ends with its h.  What a structure is made of is said by a class derived from `Blocks`.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
.. [3] R. Le Priol, A. Piche and S. Lacoste-Julien, "Adaptive stochastic dual coordinate
   ascent for conditional random fields", UAI 2018.
"""

import numpy as np

from .block_coordinate import Certificate, SplitMix64, _block_weights, _clipped_ratio, _visits


def _inner(one, other):
    """<one, other>, of tuples of arrays."""
    return float(sum(np.sum(a * b) for a, b in zip(one, other, strict=True)))


def _minus(one, other):
    return tuple(a - b for a, b in zip(one, other, strict=True))


def _plus(one, other):
    return tuple(a + b for a, b in zip(one, other, strict=True))


class Blocks:
    """Training examples with outputs of one kind, under one surrogate.

    A derived class says what the outputs are, by the six methods that have no body here.

    Parameters
    ----------
    n : int
        Number of blocks.
    surrogate : {"max_margin", "max_min", "log"}
    alpha : float
    weights : array of shape (n,) or None
        Positive, divided by their sum; equal if None.
    """

    def __init__(self, n, surrogate, alpha, weights):
        self.n, self.surrogate, self.alpha = n, surrogate, alpha
        self.p = _block_weights(weights, n)

    def scores(self, i, w):
        """v_i = w' Phi(x_i)."""
        raise NotImplementedError

    def features(self, i, parts):
        """Phi(x_i) parts, in the form of w; <w, it> = <v_i, parts>."""
        raise NotImplementedError

    def truth(self, i):
        """phi(y_i)."""
        raise NotImplementedError

    def first_theta(self, i):
        """Natural parameters under which y_i is likely, where the log surrogate starts."""
        raise NotImplementedError

    def point(self, i, state):
        """(*mu_i, h_i(mu_i)), from nothing but the block's state."""
        raise NotImplementedError

    def oracle(self, i, v):
        """(*s, h_i(s), upper): a maximiser s of h_i(s) + <v, s> and a bound of the maximum."""
        raise NotImplementedError

    def change_of_w(self, i, old, new):
        """What w(mu) gains when mu_i goes from old to new."""
        scale = self.p[i] / self.alpha
        return tuple(scale * part for part in self.features(i, _minus(old, new)))

    def primal_weights(self, points):
        """w(mu)  ([1]_, section 5.1, its sign put right), of points (*mu_i, h_i)."""
        w = None
        for i, (*mu, _) in enumerate(points):
            part = self.change_of_w(i, self.truth(i), mu)
            w = part if w is None else _plus(w, part)
        return w

    def certificate(self, states):
        """Primal, dual and gap at w(mu), from nothing but the states.

        The gap is at least P(w) - P*: the primal has upper bounds on the oracles' values, and
        the dual is at most P* ([1]_, E.1 and E.2; [2]_, equation 6).
        """
        points = [self.point(i, state) for i, state in enumerate(states)]
        w = self.primal_weights(points)
        penalty = 0.5 * self.alpha * _inner(w, w)
        losses, gaps = np.zeros(self.n), np.zeros(self.n)
        for i, (*mu, h) in enumerate(points):
            v = self.scores(i, w)
            upper = self.oracle(i, v)[-1]
            losses[i] = upper - _inner(v, self.truth(i))
            gaps[i] = max(0.0, upper - h - _inner(v, mu))
        dual = float(self.p @ [point[-1] for point in points]) - penalty
        return Certificate(float(self.p @ losses) + penalty, dual, float(self.p @ gaps), gaps)

    def rise(self, i, v, old, new, change):
        """Change of the dual, divided by p_i, by a step of block i from the point old to new."""
        scale = self.p[i] / self.alpha
        linear = _inner(v, _minus(new[:-1], old[:-1]))
        return new[-1] - old[-1] + linear - 0.5 * _inner(change, change) / scale

    def frank_wolfe(self, *, sampling, n_passes, random_state, gap_every):
        """Maximise D(mu) block by block ([1]_, Algorithm 1; [2]_, Algorithms 1 and 2).

        A visit of block i calls its oracle at its scores v, for a point s; keeps the block's
        gap; and moves the block towards s.  Let q = (p_i / alpha) ||Phi(x_i) (s - mu_i)||^2.

        *max_margin, max_min*: mu_i moves to mu_i + gamma (s - mu_i), with the gamma in [0, 1]
        that maximises a lower bound of the dual, h_i being concave:

            gamma [ h_i(s) + <v, s> - h_i(mu_i) - <v, mu_i> ] - (gamma^2 / 2) q.

        *log*: the natural parameters theta move to theta + gamma (v - theta), and mu_i with
        them ([3]_ moves mu_i on the line to s, for which the distribution that mu_i comes from
        has to be kept).  The dual rises at first: its gradient in mu_i is p_i (v - theta), and
        mu_i moves along Cov (v - theta), Cov being the covariance of phi(y) under theta.  For
        the length, look at the line from mu_i to s: the slope of the dual, divided by p_i, is
        S = <v - theta, s - mu_i> at mu_i, which is KL(s, mu_i) + KL(mu_i, s), and -q at s,
        where v is the natural parameter.  Were it linear in between, it would vanish at

            gamma = S / (S + q),

        which is halved until the dual does not fall.

        Parameters
        ----------
        sampling : {"gap", "uniform", "permutation"}
            As in `block_coordinate_frank_wolfe`.
        n_passes : int
            A pass is n visits.
        random_state : int
            Seed.
        gap_every : int
            All gaps are recomputed, and the history gets a row, after each gap_every passes
            and after the last.

        Returns
        -------
        states : list
            Of the blocks, at the end.
        w : tuple of arrays
        history : array of shape (n_rows, 4)
            Pass, primal, dual and gap.
        """
        if sampling not in ("gap", "uniform", "permutation"):
            raise ValueError(f"unknown sampling {sampling!r}")
        is_log = self.surrogate == "log"
        states = [self.first_theta(i) if is_log else self.truth(i) for i in range(self.n)]
        points = [self.point(i, state) for i, state in enumerate(states)]
        w = self.primal_weights(points)
        stale_gaps = np.zeros(self.n)
        order = list(range(self.n))
        rng = SplitMix64(random_state)
        history = []
        for pass_number in range(1, n_passes + 1):
            for i in _visits(sampling, pass_number, order, self.p, stale_gaps, rng):
                state, (*mu, h) = states[i], points[i]
                v = self.scores(i, w)
                *s, h_s, upper = self.oracle(i, v)
                stale_gaps[i] = max(0.0, upper - h - _inner(v, mu))

                change = self.change_of_w(i, mu, s)
                curvature = _inner(change, change) * self.alpha / self.p[i]
                move = _minus(s, mu)
                if is_log:
                    target = v
                    slope = _inner(_minus(v, state), move)
                    gamma = _clipped_ratio(slope, slope + curvature)
                else:
                    target = s
                    gamma = _clipped_ratio(h_s + _inner(v, move) - h, curvature)
                while gamma > 1e-12:
                    new_state = tuple(
                        (1.0 - gamma) * a + gamma * b for a, b in zip(state, target, strict=True))
                    new = self.point(i, new_state)
                    change = self.change_of_w(i, mu, new[:-1])
                    if not is_log or self.rise(i, v, points[i], new, change) >= 0:
                        states[i], points[i], w = new_state, new, _plus(w, change)
                        break
                    gamma *= 0.5

            if pass_number % gap_every == 0 or pass_number == n_passes:
                row = self.certificate(states)
                stale_gaps[:] = row.block_gaps
                history.append((pass_number, row.primal, row.dual, row.gap))
        return states, w, np.array(history).reshape(-1, 4)
