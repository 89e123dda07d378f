"""Block-coordinate Frank-Wolfe, passes of visits to single blocks, for outputs of any kind.

The problem and its notation are in `fastm4n.reference.blocks`.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.reference.blocks import _between, _plus

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.base.types import FloatArray, Parts
    from fastm4n.reference.blocks import Blocks, Certificate

_MASK = 0xFFFFFFFFFFFFFFFF


class SplitMix64:
    """The generator of the solvers: 64 bits of state, the same numbers on every machine.

    Examples
    --------
    >>> rng = SplitMix64(1234567)
    >>> rng.next()
    6457827717110365317
    >>> 0 <= rng.uniform() < 1, rng.below(3) in (0, 1, 2)
    (True, True)
    """

    state: int

    def __init__(self, seed: int) -> None:
        self.state = int(seed) & _MASK

    def next(self) -> int:
        """64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def uniform(self) -> float:
        """A multiple of 2^-53 in [0, 1)."""
        return (self.next() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return int(self.uniform() * n)


def _shuffle(order, rng):
    """Fisher-Yates, in place."""
    for j in range(len(order) - 1, 0, -1):
        i = rng.below(j + 1)
        order[j], order[i] = order[i], order[j]


def _draw(masses, rng):
    """A block with probability proportional to its mass, or None if there is no mass left."""
    cumulative = np.cumsum(masses)
    if cumulative[-1] <= 0:
        return None
    r = rng.uniform() * cumulative[-1]
    # the first block whose cumulative mass exceeds r, which is never one without mass
    b = int(np.searchsorted(cumulative, r, side="right"))
    return b if b < len(masses) else int(np.flatnonzero(masses)[-1])


def _visits(sampling, pass_number, order, p, stale_gaps, rng):
    """The blocks of one pass. Gap sampling reads the gaps as they are at each visit."""
    if sampling == "permutation" or (sampling == "gap" and pass_number == 1):
        _shuffle(order, rng)
        yield from order
        return
    for _ in range(len(order)):
        b = rng.below(len(order)) if sampling == "uniform" else _draw(p * stale_gaps, rng)
        if b is None:
            return
        yield b


class BlockPasses:
    """Passes, visit by visit.

    A visit of block i calls its oracle at its scores v for a point s, stores the block's gap, and
    moves the block towards s.

    Parameters
    ----------
    blocks : Blocks
    random_state : int
        Seed.
    step : {"line_search", "fixed", "exact"}
        As in `block_coordinate_frank_wolfe`.
    states : list, optional
        The start, by default `Blocks.start`.

    Attributes
    ----------
    z : tuple of arrays
        w before prox.
    gaps : array of shape (n,)
        The gap of each block when its oracle was last called.
    average, z_average : list and tuple of arrays
        Averages of the states and of z weighted by their numbers, of fixed steps, else None.

    Examples
    --------
    >>> from fastm4n.reference import SimplexBlocks
    >>> passes = BlockPasses(SimplexBlocks([[1.0], [-1.0]], [0, 1], 2, "max_min", alpha=0.5))
    >>> for _ in range(20):
    ...     passes.run_pass("permutation")
    >>> bool(passes.certificate().gap < 1e-3)
    True
    """

    blocks: Blocks
    rng: SplitMix64
    order: Any
    gaps: FloatArray
    n_passes: int
    n_visits: int
    starts: dict[int, Any]
    states: list[Any] | None
    z: Any
    average: list[Any]
    z_average: Any

    def __init__(
        self, blocks: Blocks, random_state: int = 0,
        step: Literal["line_search", "fixed", "exact"] = "line_search",
        states: list[Any] | None = None,
    ) -> None:
        if step not in ("line_search", "fixed", "exact"):
            raise ValueError(f"unknown step {step!r}")
        if step == "fixed" and blocks.is_natural:
            raise ValueError("steps of natural parameters are not fixed: use step='line_search'.")
        self.blocks, self.step = blocks, step
        self.rng = SplitMix64(random_state)
        self.order = list(range(blocks.n))
        self.gaps = np.zeros(blocks.n)
        self.n_passes = self.n_visits = 0
        self.starts = {}
        self.states = blocks.start() if states is None else list(states)
        self._points = [blocks.point(i, state) for i, state in enumerate(self.states)]
        self.z = blocks.primal_weights(self._points)
        is_fixed = step == "fixed"
        self.average, self.z_average = (list(self.states), self.z) if is_fixed else (None, None)

    def run_pass(self, sampling: str) -> None:
        """Make n visits, in random order in the first pass of sampling by gap."""
        self.n_passes += 1
        for i in _visits(
                sampling, self.n_passes, self.order, self.blocks.p, self.gaps, self.rng):
            self.visit(i)

    def visit(self, i: int) -> None:
        """One step of block i."""
        blocks, v = self.blocks, self.scores(i)
        answer = blocks.oracle_of_visit(i, v, self.starts)
        self.gaps[i] = blocks.gap(v, self._points[i], answer[-1])
        if self.step == "line_search" or (self.step == "exact" and blocks.surrogate == "log"):
            self.z = blocks.step([i], self.states, self._points, self.z, [v], [answer])
        else:
            mu, n, t = self._points[i][:-1], blocks.n, self.n_visits
            new = (
                blocks.block_maximizer(i, v, mu) if self.step == "exact"
                else _between(mu, answer[:-2], 2.0 * n / (t + 2.0 * n)))
            self.z = _plus(self.z, blocks.change_of_w(i, mu, new))
            self.states[i], self._points[i] = new, blocks.point(i, new)
        if self.step == "fixed":
            share = 2.0 / (self.n_visits + 2.0)
            self.average = [
                _between(a, b, share) for a, b in zip(self.average, self.states, strict=True)]
            self.z_average = _between(self.z_average, self.z, share)
        self.n_visits += 1

    def scores(self, i: int) -> Parts:
        """v_i at the present w."""
        return self.blocks.scores(i, self.blocks.prox(self.z))

    def points(self) -> list[Any]:
        """``(*mu_i, h_i(mu_i))`` of each block."""
        return list(self._points)

    def certificate(self) -> Certificate:
        """Primal, dual and gap, from nothing but mu or its average. All gaps are refreshed."""
        found = self.blocks.certificate_of_points(self.points())
        self.refresh(found.block_gaps)
        return found if self.average is None else self.blocks.certificate(self.average)

    def refresh(self, gaps: FloatArray) -> None:
        """Take notice of the gaps of all blocks."""
        self.gaps[:] = gaps


class Result(NamedTuple):
    """Result of `block_coordinate_frank_wolfe`.

    ``states`` are the blocks' last states, and ``w`` is a tuple of arrays, prox(z(mu)). ``history``
    has a row (pass, primal, dual, gap) for each certified pass. ``average`` and ``w_average`` are
    the averaged states of fixed steps and prox of the averaged z, and None for the other steps.
    """

    states: list[Any]
    w: Parts
    history: np.ndarray
    average: list[Any] | None = None
    w_average: Parts | None = None


def block_coordinate_frank_wolfe(
    blocks: Blocks, *, sampling: Literal["gap", "uniform", "permutation"] = "gap",
    step: Literal["line_search", "fixed", "exact"] = "line_search", n_passes: int,
    random_state: int = 0, gap_every: int = 10, states: list[Any] | None = None,
) -> Result | None:
    """Maximise D(mu) block by block ([1]_, Algorithm 1, and [2]_, Algorithms 1, 2).

    Parameters
    ----------
    blocks : Blocks
    sampling : {"gap", "uniform", "permutation"}
        "permutation" visits all blocks in a new order every pass. "uniform" draws each
        visit. "gap" ([2]_, section 3.1) draws with probability proportional to p_i g_i, as
        last met, after a first pass in a random order.
    step : {"line_search", "fixed", "exact"}
        "line_search" is `Blocks.step`. "fixed" is gamma = 2 n / (t + 2 n) after t visits, with
        the average of the iterates weighted by their number. "exact" maximises the dual over
        the block (labels under "max_margin", and under "max_min" with the 0-1 cost, and for "log"
        it is the line search).
    n_passes : int
        A pass is n visits.
    random_state : int
        Seed.
    gap_every : int
        All gaps are recomputed, and the history gets a row, after each gap_every passes
        and after the last.
    states : list, optional
        The start, by default `Blocks.start`.

    Returns
    -------
    Result
        (states, w, history, average, w_average)

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import SimplexBlocks
    >>> X, y = np.array([[2.0, 1.0], [0.0, 1.0], [-2.0, 1.0]]), np.array([0, 1, 2])
    >>> blocks = SimplexBlocks(X, y, 3, "max_min", alpha=0.1)
    >>> result = block_coordinate_frank_wolfe(
    ...     blocks, sampling="permutation", step="exact", n_passes=20)
    >>> np.argmax(X @ result.w[0], axis=1).tolist()
    [0, 1, 2]
    >>> result.history[:, 0].tolist(), bool(result.history[-1, 3] < 1e-3)
    ([10.0, 20.0], True)
    """
    if sampling not in ("gap", "uniform", "permutation"):
        raise ValueError(f"unknown sampling {sampling!r}")
    passes = BlockPasses(blocks, random_state, step, states)
    history = []
    for number in range(1, n_passes + 1):
        passes.run_pass(sampling)
        if number % gap_every == 0 or number == n_passes:
            row = passes.certificate()
            history.append((number, row.primal, row.dual, row.gap))
    z = passes.z_average
    return Result(
        passes.states, blocks.prox(passes.z), np.array(history).reshape(-1, 4), passes.average,
        None if z is None else blocks.prox(z))
