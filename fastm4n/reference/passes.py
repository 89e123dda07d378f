"""Passes over blocks: steps along atoms, with a cache, and acceleration.

Two further kinds of passes, next to plain visits (`fastm4n.reference.block_coordinate`), for the
same problem and outputs of any kind.

*Atoms.* With the heights of points the problem is quadratic over a polytope. An atom of block i is
a point s with a number l <= h_i(s), and the block is

    mu_i = sum_a weight_a s_a,    t_i = sum_a weight_a l_a <= h_i(mu_i),

as h_i is concave. Steps raise the dual with t_i in place of h_i(mu_i). Pairwise and away steps move
weight between atoms ([1]_, Algorithms 3 and 4), and atoms without weight are a cache of the
oracle's answers ([1]_, Algorithm 5).

*Acceleration.* Passes solve the problem with the additional penalty kappa / 2 ||w - y||^2, whose
minimiser over the dual points so far is

    w = (alpha z(mu) + kappa y) / (alpha + kappa),

followed by prox if Omega(w) is not ||w||^2 / 2. After some passes y moves to w and beyond, by
Nesterov's momentum for strong convexity alpha ([2]_, Algorithm 1). The result is an average w of
the latest weights, with the gap P(w) - D(mu), both without kappa.

References
----------
.. [1] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
.. [2] H. Lin, J. Mairal and Z. Harchaoui, "A universal catalyst for first-order optimization",
   NeurIPS 2015.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.block_coordinate import BlockPasses
from fastm4n.reference.blocks import Certificate, _inner, _minus, _plus, _times, _total

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.base.types import FloatArray, Parts
    from fastm4n.reference.blocks import Blocks

# gaps and gains that are smaller than this share of what they are differences of are none
ROUNDING = 4e-16
# visits of a block between two calls of its oracle, with a cache
MOST_HITS = 10


@dataclass
class Atom:
    """A point s of a block's polytope, as a tuple of parts, and a height l <= h_i(s)."""

    point: Parts
    height: float
    weight: float = 0.0
    used: int = 0


class AtomPasses(BlockPasses):
    """Passes of steps along atoms ([1]_, Algorithms 3 to 5).

    Parameters
    ----------
    blocks : Blocks
        For "max_margin" or "max_min".
    step : {"line_search", "pairwise", "away"}
    random_state : int
        Seed.
    limit : int
        Most atoms that a block has when the oracle's answer joins them.  Of more, atoms without
        weight go, those not used for longest first. Then the two of least weight are merged.
    cache : bool
        Whether atoms without weight are kept, and the oracle is not called where the best atom
        gains at least the larger of cache_F g_i and cache_nu g / (n p_i): g_i is the block's gap
        when its oracle was last called and g = sum_i p_i g_i when all were last computed. After
        ten visits the oracle is called all the same.
    cache_F, cache_nu : float

    Attributes
    ----------
    atoms : list of lists of Atom
    n_visits, oracle_calls, cache_hits : int

    Notes
    -----
    An away step that would drop the worst atom, and a pairwise step that would, give way to a
    Frank-Wolfe step which gains more: many drop steps in a row could gain nothing ([1]_, section
    3.2).

    Examples
    --------
    >>> from fastm4n.reference import SimplexBlocks
    >>> blocks = SimplexBlocks([[1.0], [-1.0]], [0, 1], 2, "max_margin", alpha=0.8)
    >>> passes = AtomPasses(blocks, "pairwise")
    >>> passes.run_pass("permutation")
    >>> [[round(float(atom.weight), 6) for atom in atoms] for atoms in passes.atoms]
    [[0.2, 0.8], [1.0]]
    >>> passes.certificate().gap
    0.0
    """

    limit: int
    cache: bool
    cache_F: float
    cache_nu: float
    refreshed_gap: float
    atoms: list[Any]
    oracle_calls: int
    cache_hits: int
    hits: Any
    z: Any
    n_visits: int

    def __init__(
        self, blocks: Blocks, step: Literal["line_search", "pairwise", "away"],
        random_state: int = 0, *, limit: int = 1000, cache: bool = False, cache_F: float = 0.25,
        cache_nu: float = 0.01,
    ) -> None:
        super().__init__(blocks, random_state)
        if step not in ("line_search", "pairwise", "away"):
            raise ValueError(f"unknown step {step!r}")
        self.step, self.limit, self.cache = step, limit, cache
        self.cache_F, self.cache_nu, self.refreshed_gap = cache_F, cache_nu, np.inf
        self.atoms = [[Atom(tuple(blocks.truth(i)), 0.0, 1.0)] for i in range(blocks.n)]
        self.oracle_calls = self.cache_hits = 0
        self.hits = [0] * blocks.n  # since the oracle was last called

    def mu(self, i: int) -> Parts:
        """sum_a weight_a s_a."""
        return _total(_times(atom.weight, atom.point) for atom in self.atoms[i])

    def height(self, i: int) -> float:
        """t_i = sum_a weight_a l_a."""
        return sum(atom.weight * atom.height for atom in self.atoms[i])

    def points(self) -> list[Any]:
        return [self.blocks.point(i, self.mu(i)) for i in range(self.blocks.n)]

    def refresh(self, gaps: FloatArray) -> None:
        super().refresh(gaps)
        self.refreshed_gap = float(self.blocks.p @ gaps)

    def threshold(self, i: int) -> Any:
        """The least gain of the best known atom that saves an oracle call."""
        p, n = self.blocks.p[i], self.blocks.n
        return max(self.cache_F * self.gaps[i], self.cache_nu * self.refreshed_gap / (n * p))

    def look(self, i: int, v: Parts) -> tuple[FloatArray, float, int, int]:
        """Values l + <v, s> of the atoms, t_i + <v, mu_i>, the best atom and the worst in use."""
        atoms = self.atoms[i]
        values = np.array([atom.height + _inner(v, atom.point) for atom in atoms])
        weights = np.array([atom.weight for atom in atoms])
        worst = np.argmin(np.where(weights > 0, values, np.inf))
        return values, float(weights @ values), int(np.argmax(values)), int(worst)

    def add(self, i: int, point: list[FloatArray], height: float) -> int:
        """Number of the atom, new or known, with the larger of two heights."""
        atoms = self.atoms[i]
        for a, atom in enumerate(atoms):
            if all(map(np.array_equal, atom.point, point)):
                atom.height = max(atom.height, height)
                return a
        if len(atoms) >= self.limit:
            self.prune(i, self.limit - 1)
        atoms.append(Atom(tuple(point), height, used=self.n_visits))
        return len(atoms) - 1

    def prune(self, i: int, keep: Any) -> None:
        """Keep at most `keep` atoms, but at least one. mu_i and t_i stay."""
        atoms = self.atoms[i]
        while len(atoms) > max(1, keep):
            unused = [atom for atom in atoms if atom.weight == 0]
            if unused:
                gone = [min(unused, key=lambda atom: atom.used)]
            else:
                gone = sorted(atoms, key=lambda atom: atom.weight)[:2]
                gone.sort(key=lambda atom: [atom is one for one in atoms].index(True))
            atoms[:] = [atom for atom in atoms if not any(atom is one for one in gone)]
            if not unused:
                weight = gone[0].weight + gone[1].weight
                shares = [atom.weight / weight for atom in gone]
                a = self.add(
                    i,
                    _total(
                        _times(share, atom.point)
                        for share, atom in zip(shares, gone, strict=True)),
                    sum(share * atom.height for share, atom in zip(shares, gone, strict=True)))
                atoms[a].weight += weight

    def visit(self, i: int) -> None:
        """One step of block i, to a known atom if the cache has one that gains enough."""
        atoms, v = self.atoms[i], self.scores(i)
        values, current, chosen, worst = self.look(i, v)
        self.n_visits += 1
        gain = values[chosen] - current
        tiny = ROUNDING * (abs(values[chosen]) + abs(current))
        is_hit = self.cache and self.hits[i] < MOST_HITS
        if is_hit and gain > tiny and gain >= self.threshold(i):
            self.cache_hits += 1
            self.hits[i] += 1
        else:
            self.hits[i] = 0
            *s, h, upper = self.blocks.oracle(i, v)
            self.oracle_calls += 1
            gap = upper - current
            self.gaps[i] = gap if gap > ROUNDING * (abs(upper) + abs(current)) else 0.0
            if self.gaps[i] == 0.0:
                return
            value = h + _inner(v, s)
            if value > values[chosen]:
                chosen = self.add(i, s, h)
                values, current, _, worst = self.look(i, v)
            gain = values[chosen] - current
        if gain <= tiny:
            return
        atoms[chosen].used = self.n_visits
        if chosen != worst:
            self.move(i, chosen, worst, gain, current - values[worst])

    def line(self, i: int, direction: Parts, slope: float, most: float) -> tuple[float, float]:
        """Length of the best step along a direction of mu_i, and by what the dual / p_i rises."""
        change = self.blocks.features(i, direction)
        scale = self.blocks.alpha * self.blocks.penalty.modulus
        curvature = self.blocks.p[i] / scale * self.blocks.inner(change, change)
        gamma = most if most * curvature <= slope else slope / curvature
        return gamma, gamma * (slope - 0.5 * gamma * curvature)

    def move(self, i: int, chosen: int, worst: int, gain: float, regret: float) -> None:
        """The step: what the chosen atom is above mu_i is its gain, the worst below it its regret.

        Parameters
        ----------
        i, chosen, worst : int
        gain, regret : float
        """
        atoms, mu = self.atoms[i], self.mu(i)
        kind, weight = self.step, atoms[worst].weight
        if kind == "away" and (gain >= regret or weight >= 1.0):
            kind = "line_search"
        forward = _minus(atoms[chosen].point, mu)
        rise, dropped = 0.0, kind != "line_search"
        if kind == "pairwise":
            direction, most = _minus(atoms[chosen].point, atoms[worst].point), weight
            gamma, rise = self.line(i, direction, gain + regret, most)
        elif kind == "away":
            direction, most = _minus(mu, atoms[worst].point), weight / (1.0 - weight)
            gamma, rise = self.line(i, direction, regret, most)
        if kind == "line_search" or (gamma == most and rise < gain):
            whole, its_rise = self.line(i, forward, gain, 1.0)
            if its_rise >= rise:
                kind, direction, gamma, most, dropped = "line_search", forward, whole, 1.0, False
        if kind == "pairwise":
            atoms[worst].weight -= gamma
            atoms[chosen].weight += gamma
        else:
            kept = 1.0 - gamma if kind == "line_search" else 1.0 + gamma
            for atom in atoms:
                atom.weight *= kept
            if kind == "line_search":
                atoms[chosen].weight += gamma
            else:
                atoms[worst].weight -= gamma
        if dropped and gamma == most:
            atoms[worst].weight = 0.0
        if not self.cache:
            atoms[:] = [atom for atom in atoms if atom.weight > 0]
        scale = -gamma * self.blocks.p[i] / self.blocks.alpha
        self.z = _plus(self.z, _times(scale, self.blocks.features(i, direction)))


class AcceleratedPasses:
    """Passes under a further penalty whose centre moves, and their average.

    Parameters
    ----------
    passes : BlockPasses
        Which makes them, and is at w(mu). From here on its z is the w of the problem with kappa.
    kappa : float
        > 0.
    inner : int
        Passes between two moves of the centre.
    averaged : int
        The average is over about this many of the latest passes.

    Attributes
    ----------
    centre : tuple of arrays
        y.
    mean : tuple of arrays
        The average, before prox.

    Examples
    --------
    >>> from fastm4n.reference import SimplexBlocks
    >>> blocks = SimplexBlocks([[1.0], [-1.0]], [0, 1], 2, "max_margin", alpha=0.01)
    >>> accelerated = AcceleratedPasses(BlockPasses(blocks), kappa=0.1)
    >>> for _ in range(60):
    ...     accelerated.run_pass("permutation")
    >>> bool(accelerated.certificate().gap < 1e-3)
    True
    """

    passes: BlockPasses
    blocks: Any
    kappa: float
    inner: int
    averaged: int
    n_passes: int
    momentum: Any
    centre: Any
    moved_to: Any
    mean: Any

    def __init__(
        self, passes: BlockPasses, kappa: float, inner: int = 3, averaged: int = 10,
    ) -> None:
        self.passes, self.blocks, self.kappa = passes, passes.blocks, kappa
        self.inner, self.averaged, self.n_passes = inner, averaged, 0
        root = np.sqrt(self.blocks.alpha / (self.blocks.alpha + kappa))
        self.momentum = (1.0 - root) / (1.0 + root)
        self.centre = self.moved_to = self.mean = passes.z
        # a step is as long as alpha + kappa lets it be, and moves w by as little
        passes.blocks = copy.copy(self.blocks)
        passes.blocks.alpha = self.blocks.alpha + kappa

    def run_pass(self, sampling: str) -> None:
        """A pass. The average follows, and the centre moves when it is time."""
        self.passes.run_pass(sampling)
        self.n_passes += 1
        w = self.passes.z
        share = max(1.0 / self.n_passes, 1.0 / self.averaged)
        self.mean = _plus(self.mean, _times(share, _minus(w, self.mean)))
        if self.n_passes % self.inner == 0:
            centre = _plus(w, _times(self.momentum, _minus(w, self.moved_to)))
            share = self.kappa / (self.blocks.alpha + self.kappa)
            self.passes.z = _plus(w, _times(share, _minus(centre, self.centre)))
            self.moved_to, self.centre = w, centre

    def certificate(self) -> Certificate:
        """P at the average, D at mu, their difference, and block gaps of both."""
        points = self.passes.points()
        found = self.blocks.certificate_of(
            points, self.blocks.primal_weights(points),
            *self.blocks.examine(self.blocks.prox(self.mean)))
        self.passes.refresh(found.block_gaps)
        return Certificate(found.primal, found.dual, found.primal - found.dual, found.block_gaps)
