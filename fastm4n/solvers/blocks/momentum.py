"""Accelerated passes: the proximal-point method with extrapolation around the block solver.

`MomentumChoice` in ``schedule.py`` decides whether passes are accelerated, and when. `Driver`
switches it on.

For small alpha the dual is ill-conditioned, and steps of one block undo those of others. Passes
then solve the problem with the penalty

    alpha / 2 ||w||^2 + kappa / 2 ||w - y||^2,

which is better conditioned. Its minimiser over the dual points so far is
w = (alpha w(mu) + kappa y) / (alpha + kappa), and scores use that w.  For another penalty Omega
all points are those before prox: the term with kappa is the Bregman
distance of Omega from prox(y), and w = prox((alpha z(mu) + kappa y) / (alpha + kappa)), with
thresholds and bounds that are the same for every kappa.  Every few passes the
centre y moves to w and a step beyond, by Nesterov's momentum for strong convexity alpha.  The
returned weights are an average of the latest w. Their gap is that of the problem without
kappa: P(w) at the average, and D at the dual point mu.

References
----------
.. [1] H. Lin, J. Mairal, Z. Harchaoui (2015). A universal catalyst for first-order optimization.
   NeurIPS.
.. [2] S. Shalev-Shwartz, T. Zhang (2016). Accelerated proximal stochastic dual coordinate ascent
   for regularized loss minimization. Mathematical Programming 155.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from fastm4n.base.arrays import checked
from fastm4n.base.threads import by_pieces
from fastm4n.solvers.base import packed, unpack

# passes between two moves of the centre, first and most (benchmarks/momentum.py)
INNER_PASSES = 3
MOST_INNER_PASSES = 30
# factor of kappa if more passes than this between moves do not suffice (benchmarks/momentum.py)
LESS, WELL_SOLVED = 0.7, 15
# latest passes in the average (benchmarks/momentum.py)
AVERAGED = 10
# kappa / alpha for exact steps over many weights, and passes in the average where one pass solves
# an inner problem well enough (benchmarks/crammer_singer.py, benchmarks/crfsuite_tutorial.py)
WHOLE_RATIO, QUICK_AVERAGED = 1.5, 2
# factor of the gap between certificates above which there are more passes between moves
ENOUGH = 0.9
# share of the last certified gap at which the inner problem is solved and the centre moves
SOLVED = 0.01
# largest kappa / alpha, which multiplies inner errors in w(mu). On 3 sequences of 1500 letters
# 1e4 does not converge (benchmarks/long_sequences.py)
MOST_RATIO = 1e3
# w(mu) is certified if the dual rose by less than this share of the gap since the last
# certificate. If it is no better, the wait doubles up to so many certificates
RISEN = 0.1
MOST_CHECKS = 8
# alpha is small below this share of the curvature, for Frank-Wolfe steps and for the log
# surrogate, which needs momentum later (benchmarks/momentum.py)
SMALL, SMALL_FOR_SMOOTH = 0.5, 0.05
# passes over the vectors of momentum in a pass, and numbers that fit a cache (512 kB)
# (benchmarks/momentum.py)
SWEEPS, IN_CACHE = 32.0, 1 << 16


def best_kappa(alpha, curvature, is_smooth=False):
    """kappa for a mean curvature p_b ||Phi_b d||^2 of blocks, or 0 if alpha is not small.

    Extrapolation gains by the root of 1 + kappa / alpha, and the loss by inexact points grows with
    kappa / alpha. Their geometric mean works well from alpha = 0.1 to 1e-4 on words, classes and
    rankings.
    """
    if curvature <= 0.0 or alpha >= (SMALL_FOR_SMOOTH if is_smooth else SMALL) * curvature:
        return 0.0
    return alpha * min(MOST_RATIO, float(np.sqrt(curvature / alpha)))


def whole_kappa(alpha):
    """kappa for exact steps of blocks that share few features, with momentum after each pass.

    Their inner problem is equally easy under any kappa, and kappa sets how far the centre moves
    beyond w. Passes are fewest, half of those without, for kappa between alpha and two alpha.
    """
    return WHOLE_RATIO * alpha


def cost_of_vectors(engine):
    """Work of momentum in a pass, as a share of the work of the pass, by counts."""
    features = engine.features
    n_numbers = sum(array.size for array in features.held().values())
    if n_numbers <= IN_CACHE:
        return 0.0
    of_pass = engine.surrogate.n_blocks * (features.visit_cost + engine.surrogate.oracle_cost)
    return SWEEPS * n_numbers / max(1.0, of_pass)


def _swap(one, other):
    was = one.copy()
    one[:] = other
    other[:] = was


# of the state of accelerated passes
NUMBERS = (
    "alpha", "kappa", "momentum", "inner", "n_passes", "last_gap", "is_solved", "since_move",
    "last_dual", "wait", "since_look", "is_quick")


class Acceleration:
    """Centre, momentum and average of accelerated passes over one engine.

    Weights are the arrays of the feature map's state, which is linear in them. For a kernel, which
    has no weights, mu is stored, and w(mu) is returned instead of an average.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        Its feature map has w(mu), and from here on the w of the problem with kappa.
    kappa : float
    centre : dict, default=None
        First y, a state of the feature map; w(mu) by default.
    n_jobs : int
        Threads that work on weights.
    is_quick : bool
        Whether one pass solves an inner problem well, as of exact steps, or of the log surrogate,
        of blocks that share few features. The centre then moves after each pass, and w is soon
        better than an average of many.
    """


    alpha = kappa = momentum = 0.0
    last_gap, last_dual = np.inf, -np.inf
    # wait and since_look count certificates
    inner = n_passes = since_move = wait = since_look = 0
    is_solved = is_moving = is_quick = False

    def __init__(self, engine, kappa, centre=None, n_jobs=1, is_quick=False):
        self.engine = engine
        self.n_jobs = n_jobs
        self.alpha = engine.alpha
        self.is_quick = is_quick
        self.inner = self._first_inner()
        state = engine.features.state()
        self.names, of_mu = list(state), list(state.values())
        self.mean = of_mu if centre is None else list(centre.values())
        self._begin(kappa, of_mu)

    def _first_inner(self):
        return 1 if self.is_quick else INNER_PASSES

    def _begin(self, kappa, of_mu):
        """Make passes under this kappa from here on, with the average as the centre.

        of_mu is w(mu), which may be the average itself.
        """
        self.is_moving, self.kappa = True, kappa
        root = np.sqrt(self.alpha / (self.alpha + kappa))
        self.momentum = (1.0 - root) / (1.0 + root)
        self.centre = [array.copy() for array in self.mean]
        self.moved_to = self._mixed(of_mu, self.centre)
        self.since_move = 0
        self.put(self.moved_to)
        self.engine.set_kappa(kappa)
        self.is_moving = False

    # ------------------------------------------------------------------------- points

    def _mixed(self, of_mu, of_centre):
        """The w of w(mu) and of the centre."""
        a, k = self.alpha, self.kappa

        def mix(out, m, c):
            out[:] = (a * m + k * c) / (a + k)

        return self._made(mix, of_mu, of_centre)

    def _state(self, arrays):
        """The state of the feature map with these arrays."""
        return dict(zip(self.names, arrays, strict=True))

    def _now(self):
        """Copy of the engine's w."""
        return list(self.engine.features.state().values())

    def _held(self):
        """The same, to be changed in place and `put`, where the feature map holds w."""
        return list(self.engine.features.held().values())

    def _of_mu(self, now):
        """w(mu)."""
        a, k = self.alpha, self.kappa

        def take_apart(out, w, c):
            out[:] = ((a + k) * w - k * c) / a

        return self._made(take_apart, now, self.centre)

    def _made(self, function, *lists):
        """New arrays that function(out, *arrays) fills, without others of their size."""
        made = [np.empty_like(array) for array in lists[0]]
        by_pieces(function, self.n_jobs, made, *lists)
        return made

    def put(self, arrays):
        """Make these the weights of the feature map."""
        self.engine.features.restore(self._state(arrays))

    # ------------------------------------------------------------------------- passes

    def after_pass(self):
        """Count a pass, and move the centre when it is time."""
        held = self._held()
        self.n_passes += 1
        self.since_move += 1
        self.is_moving = True
        weight = 1.0 / min(self.n_passes, QUICK_AVERAGED if self.is_quick else AVERAGED)

        def average(mean, w):
            mean += weight * (w - mean)

        by_pieces(average, self.n_jobs, self.mean, held)
        # of the gaps met in the pass, which are those under kappa
        self.is_solved = self.engine.stale_gap() <= SOLVED * self.last_gap < np.inf
        if self.since_move >= self.inner or self.is_solved:
            self.since_move = 0
            share = self.kappa / (self.alpha + self.kappa)

            def move(w, last, centre):
                # the next centre, and the weights that go with it
                last += (1.0 + self.momentum) * (w - last)
                centre *= -share
                centre += w + share * last
                _swap(w, centre)
                _swap(last, centre)

            by_pieces(move, self.n_jobs, held, self.moved_to, self.centre)
            self.put(held)
        self.is_moving = False

    def mend(self):
        """Make everything consistent again after an interrupt."""
        self.rebuild()
        if self.is_moving:
            self.mean = self._now()
            self.is_moving = False

    def told(self, gap):
        """Use a certified gap: solve the inner problems better if it is stuck.

        If it grows and that does not help, kappa becomes smaller. This is not done for Frank-Wolfe
        steps alone: their gaps rise and fall under any kappa.
        """
        if gap > self.last_gap:
            # the restart of O'Donoghue and Candes (2015): momentum has gone too far
            by_pieces(np.copyto, self.n_jobs, self.moved_to, self._held())
        if gap > ENOUGH * self.last_gap and not self.is_solved:
            self.inner = min(MOST_INNER_PASSES, self.inner + 1)
            has_atoms = self.engine.sets is not None
            if has_atoms and gap > self.last_gap and self.inner > WELL_SOLVED:
                self._begin(LESS * self.kappa, self._of_mu(self._held()))
        self.last_gap = gap

    def forget(self):
        """Restart the choices that depend on the step, which has changed."""
        self.inner, self.last_gap = self._first_inner(), np.inf

    def state(self):
        """Copies of all arrays that later passes need, without those of the engine."""
        points = {"mean": self.mean, "centre": self.centre, "moved_to": self.moved_to}
        return {
            "numbers": packed(self, NUMBERS),
            **{
                f"{name}/{i}": array.copy()
                for name, arrays in points.items() for i, array in enumerate(arrays)
            },
        }

    @classmethod
    def restored(cls, engine, state, n_jobs=1):
        """Accelerated passes as they were when `state` was taken, as the engine's state was."""
        self = cls.__new__(cls)
        self.engine, self.n_jobs = engine, n_jobs
        now = engine.features.held()
        self.names = list(now)
        unpack(self, NUMBERS, state["numbers"])
        if not 0.0 < self.alpha < np.inf:
            raise ValueError(f"alpha is {self.alpha}.")
        for name in ("mean", "centre", "moved_to"):
            setattr(self, name, [
                checked(form, f"{name}/{i}", state).copy()
                for i, form in enumerate(now.values())
            ])
        return self

    def rebuild(self):
        """Build w afresh from mu and the centre, without the rounding that updates leave."""
        engine = self.engine
        engine.settle(self.n_jobs)
        engine.rebuild_weights(engine.mu, self.n_jobs)
        self.put(self._mixed(self._held(), self.centre))

    @contextmanager
    def at_result(self, afresh=False):
        """Context in which the feature map has the result, with `apart` of `certify`.

        They are the average, or w(mu) of a kernel, which `afresh` computes from mu. The engine is
        back at its point afterwards.
        """
        engine = self.engine
        if engine.features.holds_weights():
            with self._holding(self.mean):
                yield self._apart()
            return
        now = None if afresh else self._now()
        try:
            if afresh:
                engine.settle()
                engine.rebuild_weights(engine.mu)
            else:
                self.put(self._of_mu(now))
            yield None
        finally:
            self.put(self._mixed(self._now(), self.centre) if afresh else now)

    @contextmanager
    def _holding(self, arrays):
        """Context in which these are the weights of the feature map."""
        self.is_moving = True
        self._change_places(arrays)
        try:
            yield
        finally:
            self._change_places(arrays)
            self.is_moving = False

    def _change_places(self, arrays):
        """Make these the weights of the feature map, and its weights what the arrays hold."""
        held = self._held()
        by_pieces(_swap, self.n_jobs, arrays, held)
        self.put(held)

    def is_dual_ahead(self, certificate):
        """Whether the dual stands while the average falls behind: w(mu) is worth a certificate."""
        if self.is_quick or self.n_passes < AVERAGED:
            # the dual stands as it is nearly solved for, or w(mu) is far away after few passes
            return False
        rise, self.last_dual = certificate.dual - self.last_dual, certificate.dual
        self.since_look += 1
        return rise < RISEN * certificate.gap and self.since_look > self.wait

    def compared(self, was_better):
        """Take notice of whether w(mu) was better than the average."""
        self.since_look = 0
        self.wait = 0 if was_better else min(MOST_CHECKS, 2 * self.wait + 1)

    @contextmanager
    def at_dual(self):
        """Context in which the feature map has w(mu). Gives its state, whole again afterwards."""
        dual = self._of_mu(self._held())
        with self._holding(dual):
            yield self._state(dual)

    def average(self):
        """A copy of the average, as a state of the feature map."""
        return self._state(self._made(np.copyto, self.mean))

    def _apart(self):
        """The numbers `apart` of `certify`, for the average w and z = w(mu) before prox.

        They are Omega(w) + Omega*(z) - <w, z> and Omega*(z). For Omega = ||w||^2 / 2 that is ||w -
        z||^2 / 2 and ||z||^2 / 2. The feature map has the average, and the array of the average has
        the weights of the map.
        """
        features = self.engine.features
        if features.has_plain_state():
            a, k = self.alpha, self.kappa

            def squares(mean, w, centre):
                dual = ((a + k) * w - k * centre) / a
                return np.sum((mean - dual) ** 2), np.sum(dual * dual)

            found = by_pieces(squares, self.n_jobs, self._held(), self.mean, self.centre)
            apart, conjugate = 0.5 * np.sum(found, axis=0)
            return float(apart), float(conjugate)
        dual = self._of_mu(self.mean)
        self._change_places(dual)
        conjugate = features.conjugate_value()
        self._change_places(dual)
        return features.divergence(self._state(dual)), conjugate

    def finish(self):
        """Leave the feature map at the average, or w(mu), and the engine without kappa."""
        if not self.engine.features.holds_weights():
            self.put(self._of_mu(self._now()))
        else:
            self.put(self.mean)
        self.engine.set_kappa(0.0)
