"""The driver of a fit over several workers: rounds, line search, mixing of points, one certificate.

Workers k = 1 ... K have the blocks of the parts, and share only z(mu) = sum_k z_k.  In a round each
worker improves its own dual points with the others fixed, under a curvature sigma times its own.
The driver adds up the changes of z, goes the best share g of that way along the dual, and
certifies.

References
----------
.. [1] C. Ma et al. (2015). Adding vs. averaging in distributed primal-dual optimization. ICML.
.. [2] C.-P. Lee, K.-W. Chang (2019). Distributed block-diagonal approximation methods for
   regularized empirical risk minimization. Machine Learning 109.
.. [3] H. Lin, J. Mairal, Z. Harchaoui (2015). A universal catalyst for first-order optimization.
   NeurIPS.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.arrays import checked, flat, part
from fastm4n.base.checks import check_number
from fastm4n.base.threads import by_pieces
from fastm4n.distributed._mixing import Mixing
from fastm4n.distributed._shares import Omega, best_share, searched_share
from fastm4n.distributed._worker import Vectors, n_bytes
from fastm4n.distributed.fleets import Lost, NoMember
from fastm4n.solvers.blocks.momentum import MOST_RATIO, best_kappa
from fastm4n.solvers.certificates import OF_SCORES, ROUNDING, Certificate, checked_gap

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.distributed.fleets._base import Fleet

ROUND_KEYS = (
    "round", "primal", "dual", "gap", "seconds", "bytes", "visits", "sigma", "kappa", "step",
    "lost",
)

# sigma of K workers, as a share of K; the line search handles the rest. It decreases, down to one,
# while steps could be longer than whole (benchmarks/rounds.py)
SIGMA = 0.9
# factor by which sigma grows after steps below SHORT, and falls without acceleration after
# LONG_ROUNDS rounds whose best steps are above LONG (benchmarks/rounds.py)
SIGMA_FACTOR, SHORT, LONG, LONG_ROUNDS = 1.5, 0.6, 3.0, 3
# share of the newest point in the mean that is certified (benchmarks/rounds.py)
AVERAGED = 0.65
# kappa grows with the number of workers by this power. Mixing of points needs rounds that solve the
# problem with kappa well, and a kappa larger by the factor (benchmarks/rounds.py)
KAPPA_POWER, KAPPA_MIXED = 0.2, 1.25
# tolerated rise of the dual by rounding, relative to what counts as none
SLACK = OF_SCORES / ROUNDING
# rounds after which z is recomputed, against rounding
FRESH_ROUNDS = 50
# losses in a row before giving up
ATTEMPTS = 5


class _MemberLost(Exception):
    def __init__(self, lost):
        super().__init__(lost)
        self.lost = lost


def rounds_kappa(alpha, curvature, n_workers, is_smooth):
    """kappa for blocks of this mean curvature over `n_workers`; see `best_kappa`.

    Workers are slow because they do not communicate within a round, so that momentum pays at any
    alpha from two workers on.
    """
    if n_workers == 1 or curvature <= 0.0:
        return best_kappa(alpha, curvature, is_smooth)
    ratio = float(np.sqrt(curvature / alpha)) * n_workers**KAPPA_POWER
    if is_smooth:
        ratio *= KAPPA_MIXED
    return alpha * min(MOST_RATIO, ratio)


@dataclass
class RoundsSolution:
    """Solution of `solve_rounds`.

    Attributes
    ----------
    z : dict of str to ndarray
        The weights before prox, as a state of the feature map.
    certificate : Certificate
        For the whole problem at w = prox(z), without gaps of blocks.
    n_rounds : int
    history : dict of str to ndarray
        A row for each certificate: `ROUND_KEYS`, and "member_seconds" of shape (rounds, K), the
        times of the workers' local passes.
    converged, interrupted : bool
    """

    z: dict[str, Any]
    certificate: Certificate
    n_rounds: int
    history: dict[str, Any]
    converged: bool
    interrupted: bool


class Rounds:
    """State and rounds of a fit; see `solve_rounds`.

    Attributes
    ----------
    z : ndarray
        z(mu), the sum over workers.
    centre : ndarray
        y, the result of `mixing`.
    mean : ndarray
        Weighted mean of the latest points, which is certified.
    bundle : tuple of (float, ndarray)
        Averages of sum p h and of z over the dual points so far. h is concave, so that they give a
        lower bound like a dual point.
    primal, dual : float
        The best certified values, and `best` the weights of the primal.
    """

    def __init__(self, fleet, alpha, *, local_passes, seconds, sigma, accelerate, seed):
        self.fleet, self.alpha, self.seed = fleet, float(alpha), seed
        self.local_passes, self.seconds = local_passes, seconds
        K = fleet.n_members
        self.described = [None] * K
        self.generation = [0] * K
        self._describe(range(K))
        first = self.described[0]
        self.vectors = Vectors(first["shapes"])
        self.omega = Omega(self.vectors, first["penalties"])
        self.is_searched = first["is_searched"]
        self.mass = sum(one["mass"] for one in self.described)
        self.sigma = max(1.0, SIGMA * K) if sigma is None else float(sigma)
        self.is_adapting = sigma is None
        self.z = np.zeros(self.vectors.size)
        self.centre, self.mean = self.z.copy(), self.z.copy()
        self.mixing = Mixing(self.z.size, first["is_smooth"])
        self.best, self._spare, self.primal, self.first_gap = None, None, np.inf, np.inf
        self.bundle = 0.0, self.z.copy()
        # vectors of a round, as new pages in each round would take longer than the work
        self._work = [np.empty_like(self.z) for _ in range(3)]
        self.dual = -self.alpha * self.omega.conjugate(self.z)
        self.n_rounds, self.n_lost, self.since_fresh, self.n_long = 0, 0, 0, 0
        self.n_bytes, self.rounding = 0, 0.0
        curvatures = self._started(range(K))
        self.kappa = 0.0
        if accelerate:
            n = [one["n_blocks"] for one in self.described]
            curvature = float(np.dot(curvatures, n) / np.sum(n))
            self.kappa = rounds_kappa(self.alpha, curvature, K, first["is_smooth"])
        self.rows = {key: [] for key in (*ROUND_KEYS, "member_seconds")}
        self.begun = time.perf_counter()

    # -------------------------------------------------------------------------- members

    def _describe(self, members):
        """Get the descriptions of members, and check that their parts fit together."""
        members = list(members)
        answers = self._all("describe", members=members)
        for k, answer in zip(members, answers, strict=True):
            before, first = self.described[k], self.described[0] or answer
            if before is not None and (
                    before["common"] != answer["common"] or before["mass"] != answer["mass"]
                    or before["n_blocks"] != answer["n_blocks"]):
                raise ValueError(
                    f"partition {k} differs from the one before its worker was lost: "
                    f"{answer['n_blocks']} blocks of weight {answer['mass']:g} instead of "
                    f"{before['n_blocks']} of {before['mass']:g}. Its source must return the same "
                    "data again.")
            other = sorted(
                name for name in first["common"].keys() | answer["common"].keys()
                if first["common"].get(name) != answer["common"].get(name))
            if other:
                raise ValueError(
                    f"partitions 0 and {k} do not fit together: their {', '.join(other)} "
                    f"{'differs' if len(other) == 1 else 'differ'} (shapes of weights: "
                    f"{first['common']['shapes']} and {answer['common']['shapes']}). Give all "
                    "partitions the same columns and labels.")
            self.described[k] = answer

    def _started(self, members):
        """Begin at phi(y) in these members."""
        each = [((self.seed, k, self.generation[k]),) for k in members]
        return self._all("start", self.alpha, self.mass, each=each, members=list(members))

    def _all(self, method, *args, each=None, members=None):
        """`call_all` that raises an exception for lost members."""
        answers = self.fleet.call_all(method, *args, each=each, members=members)
        lost = [answer for answer in answers if isinstance(answer, Lost)]
        if lost:
            raise _MemberLost(lost)
        return answers

    def _all_at(self, method, z, *args):
        """`_all` of a method with the first argument z, of which members get the rows they need."""
        wanted = [one["rows"] for one in self.described]
        if all(rows is None for rows in wanted):
            self.n_bytes += z.nbytes * len(wanted)
            return self._all(method, z, *args)
        whole = z.reshape(-1, self.vectors.width)
        each = [(z if rows is None else whole[rows], *args) for rows in wanted]
        self.n_bytes += sum(sent.nbytes for sent, *_ in each)
        return self._all(method, each=each)

    def recover(self, lost):
        """Replace lost members, whose blocks begin at phi(y) again."""
        for attempt in range(ATTEMPTS):
            try:
                for member, reason in lost:
                    warnings.warn(
                        f"worker {member} was lost ({reason}); its blocks begin anew",
                        RuntimeWarning, stacklevel=4)
                    self.fleet.replace(member)
                    self.generation[member] += 1
                    self.n_lost += 1
                members = [one.member for one in lost]
                self._describe(members)
                self._started(members)
                self._all("rollback")
                self.freshen()
                self.mixing.forget()
                return
            except _MemberLost as more:
                still = {one.member: one for one in lost}
                still.update({one.member: one for one in more.lost})
                lost = [still[k] for k in sorted(still)]
                if attempt == ATTEMPTS - 1:
                    raise _given_up("while others were replaced", more) from more

    def freshen(self):
        """Recompute z(mu), the sum of the parts, without the rounding of earlier rounds."""
        parts = self._all("part")
        self.z[:] = 0.0
        for one in parts:
            self.vectors.add(self.z, one)
            self.n_bytes += n_bytes(one)
        self.since_fresh = 0

    # -------------------------------------------------------------------------- rounds

    def run(self):
        """Make a round and certify it."""
        if self.best is None:
            self._look_at_rest()
        if self.since_fresh >= FRESH_ROUNDS:
            self.freshen()
        alpha, kappa, omega = self.alpha, self.kappa, self.omega
        total = alpha + kappa
        start, change, direction = self._work

        def mix(out, z, centre):
            out[:] = (alpha * z + kappa * centre) / total

        by_pieces(mix, 1, [start], [self.z], [self.centre])
        answers = self._all_at(
            "local", start, self.sigma, kappa, self.local_passes, self.seconds)
        change[:] = 0.0
        for answer in answers:
            self.vectors.add(change, answer["change"])
            self.n_bytes += n_bytes(answer["change"])
        by_pieces(partial(np.multiply, alpha / total), 1, [change], [direction])
        before, after = (sum(one["heights"][i] for one in answers) for i in (0, 1))
        if self.is_searched:
            share = longest = searched_share(
                lambda s: sum(self._all("slope", s)), omega, start, direction, total, before)
        else:
            longest = best_share(after - before, omega, start, direction, total, LONG)
            share = min(1.0, longest)
        newest = max(1.0 / (self.n_rounds + 1), AVERAGED) if kappa > 0.0 else 1.0

        def average(x, to, mean):
            # the point overwrites the start, the mean overwrites the direction
            x += share * to
            to[:] = mean + newest * (x - mean)

        by_pieces(average, 1, [start], [direction], [self.mean])
        point, mean = start, direction
        # up to here an error changes nothing
        numbers = self._all_at("certify", mean, share)
        self.mean[:] = mean

        def move(z, by):
            z += share * by

        by_pieces(move, 1, [self.z], [change])
        self.n_rounds += 1
        self.since_fresh += 1
        if kappa > 0.0:
            root = np.sqrt(alpha / total)
            self.mixing.next(self.centre, point, (1.0 - root) / (1.0 + root))
        self._certified(numbers)
        self._note(answers, share)
        self._adapt(share, longest)

    def _look_at_rest(self):
        """Begin with the weights nearest to zero as the best ones."""
        rest = np.zeros_like(self.z)
        loss = sum(one[0] for one in self._all_at("certify", rest)).item()
        self.primal, self.best = loss + self.alpha * self.omega.value(rest), rest
        self.first_gap = self.primal - self.dual

    def _certified(self, numbers):
        """Update the certified values by the workers' numbers for `mean` and their dual points."""
        alpha, omega = self.alpha, self.omega
        loss, height, size = (sum(one[i] for one in numbers).item() for i in range(3))
        penalty, pull = alpha * omega.value(self.mean), alpha * omega.conjugate(self.z)
        primal, dual = loss + penalty, height - pull
        if not np.isfinite(primal + dual + size):
            return
        self.rounding = ROUNDING * (abs(penalty) + abs(pull) + size)
        if primal < self.primal:
            # an interrupt leaves one of the two intact
            better = np.empty_like(self.mean) if self._spare is None else self._spare
            better[:] = self.mean
            self.primal, self.best, self._spare = primal, better, self.best
        # the best average of the new dual point and earlier ones
        held, point = self.bundle
        away = self._work[0]
        by_pieces(np.subtract, 1, [self.z], [point], [away])
        s = best_share(height - held, omega, point, away, alpha)

        def move(x, by):
            x += s * by

        by_pieces(move, 1, [point], [away])
        held += s * (height - held)
        average = held - alpha * omega.conjugate(point)
        if average < dual:
            held, point[:] = height, self.z
        self.bundle = held, point
        self.dual = max(self.dual, dual, average)
        # stop momentum that leads further away than the start: without it the dual rises
        if self.kappa > 0.0 and not primal - self.dual <= self.first_gap:
            self.kappa = 0.0
            self.mixing.forget()

    @property
    def gap(self):
        """Upper bound of P(best) - P*."""
        return checked_gap(self.primal, self.dual, SLACK * self.rounding) + self.rounding

    def _adapt(self, share, longest):
        """Choose the next sigma: a trust region by the length of the best step."""
        if not self.is_adapting:
            return
        K = self.fleet.n_members
        self.n_long = self.n_long + 1 if longest >= LONG else 0
        if share < SHORT:
            self.sigma = min(float(K), SIGMA_FACTOR * self.sigma)
        elif self.kappa == 0.0 and self.n_long >= LONG_ROUNDS:
            # under momentum long steps do not depend on sigma
            self.sigma, self.n_long = max(1.0, self.sigma / SIGMA_FACTOR), 0

    # -------------------------------------------------------------------------- history

    def _note(self, answers, share):
        """Add a row to the history."""
        values = (
            self.n_rounds, self.primal, self.dual, self.gap, time.perf_counter() - self.begun,
            self.n_bytes, sum(one["visits"] for one in answers), self.sigma, self.kappa, share,
            self.n_lost, [one["seconds"] for one in answers],
        )
        for key, value in zip(self.rows, values, strict=True):
            self.rows[key].append(value)

    def row(self):
        """The last row, as a dict."""
        return {key: values[-1] for key, values in self.rows.items()}

    # -------------------------------------------------------------------------- state

    def state(self):
        """Copy the state that later rounds depend on, with those of members, as flat arrays."""
        members = self._all("state")
        numbers = (
            self.alpha, self.sigma, self.kappa, self.primal, self.dual, self.bundle[0],
            self.rounding, self.mass, self.first_gap, time.perf_counter() - self.begun)
        counts = (self.n_rounds, self.n_lost, self.since_fresh, self.n_long, self.n_bytes)
        return {
            "numbers": np.array(numbers), "counts": np.array(counts, dtype=np.int64),
            "generation": np.array(self.generation, dtype=np.int64),
            "z": self.z.copy(), "centre": self.centre.copy(), "mean": self.mean.copy(),
            "bundle": self.bundle[1].copy(), **flat("mixing", self.mixing.state()),
            "best": self.z[:0] if self.best is None else self.best.copy(),
            **flat("history", self.history()),
            **flat("member", {str(k): one for k, one in enumerate(members)}),
        }

    def restore(self, state):
        """Restore a result of `state` for the same problem over the same parts.

        Raises
        ------
        KeyError, ValueError
            If it is of another problem; nothing of it is taken then.
        """
        numbers, counts = state["numbers"].tolist(), state["counts"].tolist()
        if (numbers[0], numbers[7]) != (self.alpha, self.mass):
            raise ValueError(
                f"the state is of alpha={numbers[0]:g} and weights that add up to {numbers[7]:g}, "
                f"not of {self.alpha:g} and {self.mass:g}.")
        K = self.fleet.n_members
        generation = checked(np.array(self.generation), "generation", state)
        names = ("z", "centre", "mean", "bundle")
        vectors = {name: checked(self.z, name, state).copy() for name in names}
        best = checked(self.z, "best", state).copy() if state["best"].size else None
        mixing = self.mixing.checked(part("mixing", state))
        self._all("restore", each=[(part(f"member/{k}", state),) for k in range(K)])
        self.generation = generation.tolist()
        self.z, self.centre, self.mean = (vectors[name] for name in names[:3])
        self.mixing.restore(mixing)
        (
            _, self.sigma, self.kappa, self.primal, self.dual, held, self.rounding, _,
            self.first_gap, seconds,
        ) = numbers
        self.n_rounds, self.n_lost, self.since_fresh, self.n_long, self.n_bytes = counts
        self.bundle, self.best = (held, vectors["bundle"]), best
        self.rows = {key: state[f"history/{key}"].tolist() for key in self.rows}
        self.begun = time.perf_counter() - seconds

    def history(self):
        return {key: np.asarray(values) for key, values in self.rows.items()}

    def certificate(self):
        """The certificate of the best weights and the best dual value."""
        return Certificate(
            primal=self.primal, dual=self.dual, gap=self.gap, block_gaps=None,
            norm=2.0 * self.omega.value(self.best), rounding=self.rounding, bound=self.dual)


def check_rounds(alpha, tol, max_rounds, local_passes, seconds, sigma):
    check_number("alpha", alpha, low=0)
    check_number("tol", tol, low=0, strict=False)
    check_number("max_rounds", max_rounds, low=1, strict=False, integer=True)
    check_number("local_passes", local_passes, low=0)
    if seconds is not None:
        check_number("seconds", seconds, low=0)
    if sigma is not None:
        check_number("sigma", sigma, low=1, strict=False)


def solve_rounds(
    fleet: Fleet, alpha: float, *, tol: float = 1e-3, max_rounds: int = 100,
    local_passes: float = 3, seconds: float | None = None, sigma: float | None = None,
    accelerate: bool = True, seed: int = 0, callback: Callable[..., Any] | None = None,
    checkpoint: Callable[..., Any] | None = None,
) -> RoundsSolution:
    r"""Minimise the objective over all parts of a fleet of workers to a certified gap.

    Solves

    .. math::

        \min_w \sum_b p_b \big[\max_{\mu} h_b(\mu) + \langle v_b, \mu - \varphi(y_b)\rangle\big]
        + \alpha \Omega(w), \qquad v_b = w^\top \Phi(x_b),

    over the blocks b of all members of the fleet, each a `Worker`.

    In a round all members visit their own blocks with the others fixed, under `sigma` times the
    curvature. The driver adds up the changes and goes the share of the way with the largest dual
    gain, so that the dual never falls. Accelerated rounds add kappa / 2 ||w - y||^2 to the
    objective, and move the centre y after each round. A mean of the latest points and an average of
    the dual points are certified: the gap bounds P(w) - P* of the whole problem, even after losses
    of members. Results depend neither on the order of answers nor on the kind of fleet, unless
    `seconds` is given.

    A lost member is replaced, and its blocks begin at phi(y) again.

    Parameters
    ----------
    fleet : Fleet
        With members of type `Worker`. It stays open.
    alpha : float
        Regularisation.
    tol : float
        Absolute duality gap at which to stop.
    max_rounds : int
    local_passes : float
        Visits of a member in a round, divided by the number of its blocks.
    seconds : float, default=None
        Time limit of a member's visits in a round, so that no member delays the others.
    sigma : float, default=None
        By default 0.9 times the number of members at first, adapted to the length of steps.
    accelerate : bool
    seed : int
    callback : callable, default=None
        Called with the last row of the history, a dict, after each round. A true result stops.
    checkpoint : callable, default=None
        Called as checkpoint(rounds) with a `Rounds` before the first round, to `restore` a state,
        and after each round, to save its `state`: such as a `RoundsFile`.

    Returns
    -------
    solution : RoundsSolution
        The best certified weights. After Ctrl-C `interrupted` is true. Before the first certificate
        KeyboardInterrupt is raised.

    Raises
    ------
    ValueError
        If parts do not fit together, or the fleet is closed.
    NoMember
        If a lost member cannot be replaced, or members are lost again and again.

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from fastm4n.features import LinearFeatures, row_norms
    >>> from fastm4n.distributed.fleets import InProcessFleet
    >>> from fastm4n.outputs import SimplexOutputs
    >>> from fastm4n.distributed import Worker, solve_rounds
    >>> from fastm4n.surrogates import make_surrogate
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]]), np.array([0, 1, 0, 1])
    >>> def make(rows):
    ...     outputs = SimplexOutputs(y[rows], 1.0 - np.eye(2))
    ...     features = LinearFeatures(
    ...         X, np.asarray(rows), row_norms(X, 0.0)[rows], n_labels=2, intercept=0.0)
    ...     return Worker(make_surrogate("log", outputs), features, np.ones(len(rows)))
    >>> with InProcessFleet([partial(make, [0, 1]), partial(make, [2, 3])]) as fleet:
    ...     solution = solve_rounds(fleet, alpha=0.1, tol=1e-6)
    >>> solution.converged, solution.z["weights"][:2, :2].round(2).tolist()
    (True, [[0.82, -0.82], [-0.82, 0.82]])
    """
    check_rounds(alpha, tol, max_rounds, local_passes, seconds, sigma)
    rounds, interrupted, n_losses = None, False, 0
    try:
        rounds = _begun(
            fleet, alpha, local_passes=local_passes, seconds=seconds, sigma=sigma,
            accelerate=accelerate, seed=seed)
        if checkpoint is not None:
            checkpoint(rounds)
        while rounds.gap > tol and rounds.n_rounds < max_rounds:
            try:
                rounds.run()
            except _MemberLost as error:
                n_losses += 1
                if n_losses == ATTEMPTS:
                    raise _given_up("in the same round", error) from error
                rounds.recover(error.lost)
                continue
            n_losses = 0
            if checkpoint is not None:
                checkpoint(rounds)
            if callback is not None and callback(rounds.row()):
                break
    except KeyboardInterrupt:
        interrupted = True
        fleet.stop()
        if rounds is None or rounds.n_rounds == 0:
            raise
    finally:
        if interrupted:
            _settle(fleet)
    if rounds.rounding == 0.0 and rounds.primal > rounds.dual:
        raise ValueError(
            "no certificate was finite, as scores overflow: scale the features, or increase alpha.")
    return RoundsSolution(
        z=rounds.vectors.views(rounds.best), certificate=rounds.certificate(),
        n_rounds=rounds.n_rounds, history=rounds.history(), converged=rounds.gap <= tol,
        interrupted=interrupted)


def _given_up(when, error):
    member, reason = error.lost[-1]
    return NoMember(
        f"workers were lost {ATTEMPTS} times {when}; the last was {member}: {reason}")


def _begun(fleet, alpha, **options):
    """Make `Rounds`, replacing members that are lost before the first round."""
    for attempt in range(ATTEMPTS):
        try:
            return Rounds(fleet, alpha, **options)
        except _MemberLost as error:
            if attempt == ATTEMPTS - 1:
                raise _given_up("before the first round", error) from error
            for member, _ in error.lost:
                fleet.replace(member)


def _settle(fleet):
    """Wait until members have ended their calls, and allow further calls."""
    try:
        fleet.call_all("rollback")
    finally:
        fleet.stop(False)
