"""The driver of a fit over several workers: rounds, line search, mixing of points, one certificate.

Workers k = 1 ... K hold the blocks of the parts; z(mu) = sum_k z_k is all that they share.  In a
round each worker improves its own dual points, the others being held, under a curvature sigma times
its own; the driver adds up what z changes by, goes the best share g of that way along the dual, and
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
from fastm4n.distributed.fleets import Lost, NoMember
from fastm4n.distributed.mixing import Mixing
from fastm4n.distributed.shares import Omega, best_share, searched_share
from fastm4n.distributed.worker import Vectors, n_bytes
from fastm4n.solvers.blocks.momentum import MOST_RATIO, best_kappa
from fastm4n.solvers.certificates import OF_SCORES, ROUNDING, Certificate, checked_gap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from fastm4n.base.types import Array, FloatArray
    from fastm4n.distributed.fleets._base import Fleet

ROUND_KEYS = (
    "round", "primal", "dual", "gap", "seconds", "bytes", "visits", "sigma", "kappa", "step",
    "lost",
)

# sigma of K workers, as a share of K: what they change adds up, and the line search takes care of
# the rest; smaller where steps are whole although they could be longer, down to one
SIGMA = 0.9
# sigma is multiplied by it where steps are shorter than the first share, and divided where without
# acceleration they could be so much longer than whole for several rounds
SIGMA_FACTOR, SHORT, LONG, LONG_ROUNDS = 1.5, 0.6, 3.0, 3
# share of the newest point in the mean that is certified
AVERAGED = 0.65
# kappa grows with the number of workers by this power, and is larger by the factor where points are
# mixed, which needs rounds that solve the problem with kappa well
KAPPA_POWER, KAPPA_MIXED = 0.2, 1.25
# what rounding may lift the dual by, as a multiple of what is counted as none
SLACK = OF_SCORES / ROUNDING
# rounds after which z is built afresh
FRESH_ROUNDS = 50
# losses in a row while others are replaced
ATTEMPTS = 5


class _MemberLost(Exception):
    def __init__(self, lost):
        super().__init__(lost)
        self.lost = lost


def rounds_kappa(alpha: float, curvature: float, n_workers: int, is_smooth: bool) -> float:
    """kappa for blocks of that mean curvature over so many workers; see `best_kappa`.

    Workers that do not hear of each other within a round are what makes the problem slow, and so
    momentum pays at any alpha from two workers on.
    """
    if n_workers == 1 or curvature <= 0.0:
        return best_kappa(alpha, curvature, is_smooth)
    ratio = float(np.sqrt(curvature / alpha)) * n_workers**KAPPA_POWER
    if is_smooth:
        ratio *= KAPPA_MIXED
    return alpha * min(MOST_RATIO, ratio)


@dataclass
class RoundsSolution:
    """What `solve_rounds` returns.

    Attributes
    ----------
    z : dict of str to ndarray
        A state of the feature map, for its `restore`: the weights before prox.
    certificate : Certificate
        Of the whole problem, w = prox(z); without the blocks' own numbers.
    n_rounds : int
    history : dict of str to ndarray
        A row for each certificate: `ROUND_KEYS`, and "member_seconds" of shape (rounds, K), what
        each worker took for its local passes.
    converged, interrupted : bool
    """

    z: dict[str, Any]
    certificate: Certificate
    n_rounds: int
    history: dict[str, Any]
    converged: bool
    interrupted: bool


class Rounds:
    """The state of a fit in rounds, and one round after another; see `solve_rounds`.

    Attributes
    ----------
    z : ndarray
        z(mu), the sum over workers.
    centre : ndarray
        y, where `mixing` of the points so far has led.
    mean : ndarray
        Of the latest points, newest most: what is certified.
    bundle : tuple of (float, ndarray)
        sum p h and z of an average of the dual points so far: by concavity of h it is at least
        that of the average, so that D of it is a lower bound like that of any dual point.
    primal, dual : float
        The best that were certified, and `best` the weights of the primal.
    """

    fleet: Fleet
    alpha: float
    seed: int
    local_passes: float
    seconds: float | None
    described: Any
    generation: Any
    vectors: Vectors
    omega: Omega
    is_searched: bool
    mass: float
    sigma: float | None
    is_adapting: bool
    z: FloatArray
    centre: FloatArray
    mean: FloatArray
    mixing: Mixing
    best: Any
    primal: float
    bundle: Any
    dual: float
    n_rounds: int
    n_lost: int
    since_fresh: int
    n_long: int
    n_bytes: int
    rounding: Any
    kappa: float
    rows: dict[str, Any]
    begun: float
    first_gap: float

    def __init__(
        self, fleet: Fleet, alpha: float, *, local_passes: float, seconds: float | None,
        sigma: float | None, accelerate: bool, seed: int,
    ) -> None:
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
        # vectors of a round: anew each time, their pages would take longer than what is done
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
        """Ask members what they have, and check that their parts are of one problem."""
        members = list(members)
        answers = self._all("describe", members=members)
        for k, answer in zip(members, answers, strict=True):
            before, first = self.described[k], self.described[0] or answer
            if before is not None and (
                    before["common"] != answer["common"] or before["mass"] != answer["mass"]
                    or before["n_blocks"] != answer["n_blocks"]):
                raise ValueError(
                    f"partition {k} is not what it was before its worker was lost: "
                    f"{answer['n_blocks']} blocks of weight {answer['mass']:g}, and "
                    f"{before['n_blocks']} of {before['mass']:g} before. Its source of data must "
                    "give the same data again.")
            other = sorted(
                name for name in first["common"].keys() | answer["common"].keys()
                if first["common"].get(name) != answer["common"].get(name))
            if other:
                raise ValueError(
                    f"partitions 0 and {k} do not fit together: their "
                    f"{', '.join(other)} {'is' if len(other) == 1 else 'are'} not the same "
                    f"(shapes of weights: {first['common']['shapes']} and "
                    f"{answer['common']['shapes']}). Give all partitions the same columns and the "
                    "labels of all.")
            self.described[k] = answer

    def _started(self, members):
        """Begin at phi(y) in these members."""
        each = [((self.seed, k, self.generation[k]),) for k in members]
        return self._all("start", self.alpha, self.mass, each=each, members=list(members))

    def _all(self, method, *args, each=None, members=None):
        """`call_all`, a loss being an exception."""
        answers = self.fleet.call_all(method, *args, each=each, members=members)
        lost = [answer for answer in answers if isinstance(answer, Lost)]
        if lost:
            raise _MemberLost(lost)
        return answers

    def _all_at(self, method, z, *args):
        """`_all` of a method whose first argument is z: each member is sent the rows it wants."""
        wanted = [one["rows"] for one in self.described]
        if all(rows is None for rows in wanted):
            self.n_bytes += z.nbytes * len(wanted)
            return self._all(method, z, *args)
        whole = z.reshape(-1, self.vectors.width)
        each = [(z if rows is None else whole[rows], *args) for rows in wanted]
        self.n_bytes += sum(sent.nbytes for sent, *_ in each)
        return self._all(method, each=each)

    def recover(self, lost: Sequence[int]) -> None:
        """Replace members that were lost, their blocks beginning at phi(y) again."""
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

    def freshen(self) -> None:
        """z(mu) afresh: the sum of the parts, without the rounding that rounds leave."""
        parts = self._all("part")
        self.z[:] = 0.0
        for one in parts:
            self.vectors.add(self.z, one)
            self.n_bytes += n_bytes(one)
        self.since_fresh = 0

    # -------------------------------------------------------------------------- rounds

    def run(self) -> None:
        """One round and its certificate."""
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
            # the point in the place of the start, the mean in that of the direction
            x += share * to
            to[:] = mean + newest * (x - mean)

        by_pieces(average, 1, [start], [direction], [self.mean])
        point, mean = start, direction
        # until the workers have moved nothing has
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
        """Take the weights nearest to zero for the best until others are better."""
        rest = np.zeros_like(self.z)
        loss = sum(one[0] for one in self._all_at("certify", rest)).item()
        self.primal, self.best = loss + self.alpha * self.omega.value(rest), rest
        self.first_gap = self.primal - self.dual

    def _certified(self, numbers):
        """Take notice of what workers said of `mean` and their dual points, in their order."""
        alpha, omega = self.alpha, self.omega
        loss, height, size = (sum(one[i] for one in numbers).item() for i in range(3))
        penalty, pull = alpha * omega.value(self.mean), alpha * omega.conjugate(self.z)
        primal, dual = loss + penalty, height - pull
        if not np.isfinite(primal + dual + size):
            return
        self.rounding = ROUNDING * (abs(penalty) + abs(pull) + size)
        if primal < self.primal:
            # an interrupt leaves the one or the other whole
            better = np.empty_like(self.mean) if self._spare is None else self._spare
            better[:] = self.mean
            self.primal, self.best, self._spare = primal, better, self.best
        # of the averages of the new dual point and those before, the best
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
        # momentum that leads further away than where it began is given up: the dual rises without
        if self.kappa > 0.0 and not primal - self.dual <= self.first_gap:
            self.kappa = 0.0
            self.mixing.forget()

    @property
    def gap(self) -> float:
        """At least P(best) - P*."""
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
            # under momentum long steps are its own, and say nothing of sigma
            self.sigma, self.n_long = max(1.0, self.sigma / SIGMA_FACTOR), 0

    # -------------------------------------------------------------------------- history

    def _note(self, answers, share):
        """A row of the history."""
        values = (
            self.n_rounds, self.primal, self.dual, self.gap, time.perf_counter() - self.begun,
            self.n_bytes, sum(one["visits"] for one in answers), self.sigma, self.kappa, share,
            self.n_lost, [one["seconds"] for one in answers],
        )
        for key, value in zip(self.rows, values, strict=True):
            self.rows[key].append(value)

    def row(self) -> dict[str, Any]:
        """The last row, as a dict."""
        return {key: values[-1] for key, values in self.rows.items()}

    # -------------------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """All that later rounds depend on, members' states too: a flat dict of arrays."""
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

    def restore(self, state: dict[str, Any]) -> None:
        """Bring back what `state` gave, for the same problem over the same parts.

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

    def history(self) -> dict[str, Array]:
        return {key: np.asarray(values) for key, values in self.rows.items()}

    def certificate(self) -> Certificate:
        """Of the best weights, and the best dual value, that were certified."""
        return Certificate(
            primal=self.primal, dual=self.dual, gap=self.gap, block_gaps=None,
            norm=2.0 * self.omega.value(self.best), rounding=self.rounding, bound=self.dual)


def check_rounds(
    alpha: float, tol: float, max_rounds: int, local_passes: float, seconds: float | None,
    sigma: float | None,
) -> None:
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
    r"""Minimise the objective over all parts of a fleet of workers, until its gap is certified.

    Solves

    .. math::

        \min_w \sum_b p_b \big[\max_{\mu} h_b(\mu) + \langle v_b, \mu - \varphi(y_b)\rangle\big]
        + \alpha \Omega(w), \qquad v_b = w^\top \Phi(x_b),

    over the blocks b of all members of the fleet, each a `Worker`.

    In a round all members visit their own blocks, the others being held, with `sigma` times the
    curvature.  The driver adds up what they change, and goes the share of that way by which the
    dual gains most, so that it never falls under the objective with kappa; kappa / 2 ||w - y||^2 is
    that of accelerated passes, the centre y moving on after each round.  A certificate is made of
    a mean of the latest points, and of an average of the dual points so far: the gap bounds
    P(w) - P* of the whole problem, also after members were lost. Results do not depend on which
    member answers first, nor on the kind of fleet, unless `seconds` is given.

    A member that is lost is replaced, and its blocks begin at phi(y) again.

    Parameters
    ----------
    fleet : Fleet
        Of `Worker`. It stays open.
    alpha : float
        Regularisation.
    tol : float
        Absolute duality gap to stop at.
    max_rounds : int
    local_passes : float
        Visits of a member in a round, in numbers of its blocks.
    seconds : float, default=None
        A member's visits of a round end after so many, whatever is left of them, so that none has
        to be waited for.
    sigma : float, default=None
        By default it begins at 0.9 of the number of members and follows the length of steps.
    accelerate : bool
    seed : int
    callback : callable, default=None
        Called with the last row of the history, a dict, after each round; a true result stops.
    checkpoint : callable, default=None
        Called as checkpoint(rounds) with a `Rounds` before the first round, whose state it may
        `restore`, and after each, when it may take its `state`: such as a `RoundsFile`.

    Returns
    -------
    solution : RoundsSolution
        Of the best weights that were certified. After Ctrl-C `interrupted` is true: it is of the
        rounds before. Before the first certificate KeyboardInterrupt is raised.

    Raises
    ------
    ValueError
        If parts do not fit together, or the fleet is closed.
    NoMember
        If a member that was lost cannot be replaced, or members are lost again and again.

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
            "no certificate was finite: the scores of the workers overflow. Scale the features, or "
            "take a larger alpha.")
    return RoundsSolution(
        z=rounds.vectors.views(rounds.best), certificate=rounds.certificate(),
        n_rounds=rounds.n_rounds, history=rounds.history(), converged=rounds.gap <= tol,
        interrupted=interrupted)


def _given_up(when, error):
    member, reason = error.lost[-1]
    return NoMember(
        f"workers were lost {ATTEMPTS} times {when}; the last was {member}: {reason}")


def _begun(fleet, alpha, **options):
    """The rounds' beginning; members that are lost before it are replaced."""
    for attempt in range(ATTEMPTS):
        try:
            return Rounds(fleet, alpha, **options)
        except _MemberLost as error:
            if attempt == ATTEMPTS - 1:
                raise _given_up("before the first round", error) from error
            for member, _ in error.lost:
                fleet.replace(member)


def _settle(fleet):
    """Wait until members have ended what they were in, and let them be called again."""
    try:
        fleet.call_all("rollback")
    finally:
        fleet.stop(False)
