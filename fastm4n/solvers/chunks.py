"""Fits of data that do not fit in memory: the block solver, one chunk of blocks at a time.

A chunk is loaded, visited and written back while the next one is loaded. Each visit starts from the
weights of the last, which makes this block-coordinate ascent as in memory, without damping, in
another order of blocks. The weights, two chunks and a few doubles for each block are in memory.
Data and dual points are on disk.

References
----------
.. [1] H.-F. Yu, C.-J. Hsieh, K.-W. Chang, C.-J. Lin (2010). Large linear classification when data
   cannot fit in memory. KDD.
.. [2] K.-W. Chang, D. Roth (2011). Selective block minimization for faster convergence of limited
   memory large-scale linear models. KDD.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastm4n.base.arrays import checked, flat, formed, part
from fastm4n.base.threads import in_threads
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling

# the dual point of a chunked engine: it is on disk, and handed to no one
ON_DISK = np.zeros(0)

# multiply-adds that a byte takes to be read, checked and written, about
BYTE_COST = 4.0
# a chunk is visited twice each time it is loaded where loading costs this share of a pass over it,
# and gaps met in the second visit of the first chunk are at least this share of those in the first.
# Sentences of CoNLL-2000 under "log", where they are 0.35, then take a third of the loads and 0.7
# times the visits; of rows that share their features they are 0.07, and visits are twice as many
LOADING_SHARE, SECOND_VISIT_SHARE = 0.15, 0.25

# what is taken for the curvature of Frank-Wolfe steps is so many times that of blocks, in chunks of
# so many blocks, and less of smaller ones: blocks of a chunk, which come one after another, act
# like one block of a larger curvature. Visits of all until the gap, "max_margin", the factor being
# 1, 5 and 10: rows, 3000 in a chunk, over 150, 101 and 77 (in memory 67); sequences, 157 in a
# chunk, 461, over 520 and over 520 (in memory 440)
CHUNK_CURVATURE, LARGE_CHUNK = 10.0, 3000

# weights that accelerated passes have left are not gone on from under an alpha so many times theirs
MAX_ALPHA_RATIO = 2.0

# gap sampling leaves out chunks whose share of all gaps is less than this part of a fair one
NEGLIGIBLE = 0.05
# and less than this part where chunks were added to others that were solved for: a fifth more data
# then take 22.7, 4.9 and 5.0 visits of an example under "log", and not 27.4, 9.9 and 5.3
# (benchmarks/partial_fit.py)
NEGLIGIBLE_BESIDE_NEW = 0.4


@dataclass
class SurrogateTraits:
    """Traits that the surrogates of all chunks share."""

    outputs: Any
    n_blocks: int
    max_size: int
    has_block_step: bool
    has_natural_step: bool
    is_smooth: bool
    oracle_cost: float
    largest: Any

    @classmethod
    def from_chunk(cls, surrogate, n_blocks, max_size, largest):
        """The traits of all blocks, by the surrogate of one chunk and `largest` of all."""
        return cls(
            surrogate.outputs, n_blocks, max_size, surrogate.has_block_step,
            surrogate.has_natural_step, surrogate.is_smooth, surrogate.oracle_cost, largest)


class ChunkedEngine:
    """The interface of `BlockCoordinateEngine`, for blocks that come in chunks.

    Parameters
    ----------
    problem : Problem
        Its `loss` are the traits of all surrogates, its `features` have w, and its `pieces` have
        `edges`: chunk c is the blocks edges[c] ... edges[c + 1] - 1. ``open(c)`` is called in
        another thread.
    alpha : float
    seed : int
    store : DualStore or None
        Store of dual points. None for an engine that stays at phi(y).
    local_sampling : Sampling
        Sampling in the second and later visits of a loaded chunk.
    visits : int or None
        Visits of a chunk each time it is loaded, without acceleration. By counts of work if None.
    n_jobs : int
        Threads of a certificate.
    """

    averaging = False
    sets = None
    cache_hits = 0

    def __init__(
        self, problem, alpha, seed, store,
        local_sampling=Sampling.GAP, visits=None, n_jobs=1,
    ):
        n = problem.loss.n_blocks
        self.problem, self.surrogate, self.features = problem, problem.loss, problem.features
        self.weights, self.alpha, self.kappa = problem.weights, alpha, 0.0
        self.seed, self.store, self.n_jobs = int(seed), store, n_jobs
        self.local_sampling, self.visits, self.negligible = local_sampling, visits, NEGLIGIBLE
        self.edges = problem.pieces.edges
        self.concave, self.gaps, self.losses = np.zeros(n), np.zeros(n), np.zeros(n)
        self.curvature, self._curvatures = 0.0, []
        self.n_visits = self.oracle_calls = self.n_loads = 0
        self.oracle_error = 0.0
        self.holds_average = False
        self._pool = None
        # in `go_on`: the last chunk of before and its sizes, and chunks that are not on disk as
        # they are
        self._last, self._resized = (-1, {}), None
        if store is not None:
            store.begin(self.n_chunks)

    @property
    def n_chunks(self):
        return self.edges.size - 1

    @property
    def mu(self):
        """Nothing: the dual point is on disk, and all that takes it here means that one."""
        return ON_DISK

    def close(self):
        """End the thread that reads ahead."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def at_truth(self):
        """An engine of the same problem at phi(y), with the same feature map."""
        return ChunkedEngine(self.problem, self.alpha, 0, None, n_jobs=self.n_jobs)

    # -------------------------------------------------------------------------- chunks

    def _load(self, c, seed):
        """The engine of chunk c in its last state, and the cost of loading it."""
        blocks = slice(self.edges[c], self.edges[c + 1])
        surrogate, features, n_bytes = self.problem.open(c)
        engine = BlockCoordinateEngine(
            surrogate, features, self.weights[blocks], self.alpha, seed)
        kept = None if self.store is None else self.store.read(c)
        if kept is not None:
            if self._resized is not None:
                kept = self._own(c, kept, engine)
            engine.mu[:] = checked(engine.mu, "mu", kept)
            n_bytes += 2 * sum(array.nbytes for array in kept.values())
            surrogate.restore(formed(surrogate.state(), "surrogate", kept))
        engine.concave[:] = self.concave[blocks]
        engine.set_gaps(self.gaps[blocks], self.losses[blocks])
        engine.set_kappa(self.kappa)
        return engine, BYTE_COST * n_bytes

    def for_each(self, order, visit):
        """Call visit(c, engine, cost) for each chunk of the order, the next one being loaded.

        Loaded data do not depend on visits of other chunks, except w.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="fastm4n-read")
        # mixed: SplitMix64 counts, and seeds in a row would be draws in a row
        sequences = (
            np.random.SeedSequence([self.seed, self.n_loads + i]) for i in range(len(order)))
        seeds = [int(sequence.generate_state(1, np.uint64)[0]) for sequence in sequences]
        waiting = list(zip(order, seeds, strict=True))
        ahead = self._pool.submit(self._load, *waiting[0]) if waiting else None
        try:
            for i, (c, _) in enumerate(waiting):
                loaded = ahead.result()
                ahead = None
                if i + 1 < len(waiting):
                    ahead = self._pool.submit(self._load, *waiting[i + 1])
                visit(c, *loaded)
                # before the chunk after the next one is loaded
                loaded = None
        finally:
            if ahead is not None and not ahead.cancel():
                ahead.exception()

    def _order(self, sampling):
        """The chunks of a pass, in random order.

        In the order of their gaps, or always in the same one, momentum takes more passes: of rows
        under "max_margin" 91, or over 150, and not 76.
        """
        rng = np.random.default_rng([self.seed, self.n_loads, self.n_chunks])
        order = rng.permutation(self.n_chunks)
        if sampling == Sampling.GAP:
            of_chunks = np.add.reduceat(self.weights * self.gaps, self.edges[:-1])
            order = order[of_chunks[order] > self.negligible * of_chunks.sum() / self.n_chunks]
        return order.tolist()

    # -------------------------------------------------------------------------- passes

    def run_pass(self, sampling, step):
        """Visits of all chunks, each of as many blocks as it has and twice where it pays.

        Gap sampling skips chunks of negligible gap. An interrupted pass
        leaves all consistent.
        """
        self.oracle_error = 0.0
        order = self._order(sampling)

        def visit(c, engine, cost):
            # momentum goes astray where chunks are solved for one by one
            visits, met = 1 if self.kappa > 0.0 else self.visits or 2, []
            try:
                for time in range(visits):
                    engine.run_pass(self.local_sampling if time else sampling, step)
                    self.oracle_error += engine.oracle_error
                    met.append(engine.stale_gap())
            finally:
                self._put_aside(c, engine)
            if self.visits is None and visits > 1:
                surrogate, features = engine.surrogate, engine.features
                of_pass = engine.concave.size * (features.visit_cost + surrogate.oracle_cost)
                pays = cost >= LOADING_SHARE * of_pass and met[1] >= SECOND_VISIT_SHARE * met[0]
                self.visits = 1 + pays

        self.for_each(order, visit)
        self.n_loads += len(order)

    def _put_aside(self, c, engine):
        """Store the changes of a visit of a chunk."""
        blocks = slice(self.edges[c], self.edges[c + 1])
        self.concave[blocks] = engine.concave
        self.gaps[blocks] = engine.block_gaps
        self.losses[blocks] = engine.block_losses
        self.n_visits += engine.n_visits
        self.oracle_calls += engine.oracle_calls
        if self.curvature == 0.0:
            engine.measure_curvature()
            if engine.curvature > 0.0:
                self._curvatures.append((engine.curvature, engine.n_visits))
        self.store.write(c, _engine_arrays(engine))

    def measure_curvature(self):
        """Set `curvature`, unless it was set before: the mean over chunks visited so far."""
        if self.curvature == 0.0 and self._curvatures:
            values, visits = np.array(self._curvatures).T
            kind = self.surrogate
            self.curvature = float(np.sum(values * visits) / np.sum(visits))
            if not kind.is_smooth and self.n_chunks > 1:
                of_chunk = kind.n_blocks / self.n_chunks
                self.curvature *= max(1.0, CHUNK_CURVATURE * min(1.0, of_chunk / LARGE_CHUNK))
            self._curvatures = []

    def set_kappa(self, kappa):
        """As of `BlockCoordinateEngine`."""
        self.kappa = kappa

    # ------------------------------------------------------------------- certificates

    def settle(self, n_jobs=1):
        """Nothing is put off here."""

    def certify_range(self, start, stop, mu, loss, gap, concave, inner, shift):
        """As of `BlockCoordinateEngine`, for all blocks at once."""
        terms, largest = (loss, gap, concave, inner, shift), [0.0]

        def visit(c, engine, cost):
            first, last = self.edges[c], self.edges[c + 1]
            parts = [term[first:last] for term in terms]
            cost = (last - first) * (50 * engine.surrogate.max_size + engine.features.visit_cost)
            largest.extend(in_threads(
                engine.certify_range, last - first, cost, self.n_jobs, engine.mu, *parts))

        self.for_each(range(self.n_chunks), visit)
        return max(largest)

    def set_gaps(self, gap, loss):
        """Replace the stale gaps and losses, after a full pass over them."""
        self.gaps[:], self.losses[:] = gap, loss

    def stale_gap(self):
        """sum_b p_b g_b with each g_b as it was when its block was last looked at."""
        return float(np.sum(self.weights * self.gaps))

    def rebuild_weights(self, mu, n_jobs=1):
        """Recompute w = w(mu). After an interrupt w is unchanged."""
        before = self.features.state()
        self.features.clear()
        try:
            self.for_each(
                range(self.n_chunks), lambda c, engine, cost: engine.add_weights(engine.mu))
        except BaseException:
            self.features.restore(before)
            raise

    # ------------------------------------------------------------------- further blocks

    def left(self):
        """Arrays from which a later engine continues, with further blocks at the end.

        Dual points and lower bounds of h stay in the store. They contain sizes of the arrays of the
        last chunk, which may grow.
        """
        last = self.store.read(self.n_chunks - 1) or {}
        left = {
            "edges": self.edges, "slots": self.store.slots, "checks": self.store.checks,
            "numbers": np.array([self.alpha, self.curvature]),
            **flat("last", {name: np.array(array.size) for name, array in last.items()}),
        }
        if self.holds_average:
            left.update(flat("features", self.features.state()))
        return left

    def go_on(self, left, share):
        """Continue from an engine of the first of these blocks. The others begin at phi(y).

        As in memory, dual points stay, or move to phi(y) with equal w if alpha fell by more than
        the share. Under a larger alpha w shrinks.

        Parameters
        ----------
        left : dict
            The result of `left`.
        share : float
            The weight of those blocks as a share of all.
        """
        alpha, curvature = left["numbers"].tolist()
        ratio, now, average = self.alpha / (alpha * share), self.alpha, part("features", left)
        averages = bool(average) and ratio <= MAX_ALPHA_RATIO
        self.store.go_on(left["slots"], left["checks"])
        looked_at = range(left["edges"].size - 1)
        self._last = looked_at[-1], part("last", left)
        if averages and ratio >= 1.0:
            # w is not made of dual points
            looked_at = [c for c in looked_at if not self._stays(c)]

        def visit(c, engine, cost):
            engine.set_alpha(now)
            self.concave[self.edges[c] : self.edges[c + 1]] = engine.concave
            if c in self._resized or ratio < 1.0:
                self._put_aside(c, engine)
            engine.add_weights(engine.mu)

        self.features.clear()
        # where w stays it is that of the old alpha; elsewhere it is made under the new one
        self.alpha, self._resized = alpha * share if ratio < 1.0 else now, set()
        self.for_each(looked_at, visit)
        self.alpha, self._resized = now, None
        if averages:
            self.features.restore(average)
            self.features.scale(min(1.0, 1.0 / ratio))
            self.curvature, self.holds_average = curvature, True

    def _stays(self, c):
        """Whether a chunk is on disk with exactly these blocks. Reads lower bounds of h if so."""
        blocks = slice(self.edges[c], self.edges[c + 1])
        kept = self.store.read(c)
        if kept is None:
            return True  # at phi(y)
        stays = kept["concave"].size == self._in_common(c, "concave", kept) == (
            blocks.stop - blocks.start)
        if stays:
            self.concave[blocks] = kept["concave"]
        return stays

    def _in_common(self, c, name, kept):
        """How much of an array is of blocks that were there before.

        Further entries may come from a failed call with other data.
        """
        last, sizes = self._last
        return int(sizes[name]) if c == last else kept[name].size

    def _own(self, c, kept, engine):
        """Stored arrays of a chunk, extended to further blocks at its end.

        Arrays go block by block. New blocks are at phi(y).
        """
        own = _engine_arrays(engine)
        if not kept["concave"].size == self._in_common(c, "concave", kept) == own["concave"].size:
            self._resized.add(c)
        for name, array in own.items():
            n = self._in_common(c, name, kept)
            array[:n] = kept[name][:n]
        self.concave[self.edges[c] : self.edges[c + 1]] = own["concave"]
        return own

    # --------------------------------------------------------------------------- state

    def state(self):
        """Copies of all state of later passes, for `restore`. Dual points are in files."""
        numbers = self.alpha, self.kappa, self.curvature
        counts = (
            self.n_visits, self.oracle_calls, self.n_loads, self.holds_average, self.visits or 0,
            self.seed)
        return {
            "concave": self.concave.copy(), "gaps": self.gaps.copy(),
            "losses": self.losses.copy(), "slots": self.store.slots.copy(),
            "checks": self.store.checks.copy(),
            "curvatures": np.array(self._curvatures, dtype=np.float64).reshape(-1, 2),
            "numbers": np.array(numbers, dtype=np.float64),
            "counts": np.array(counts, dtype=np.int64),
            **flat("features", self.features.state()),
        }

    def restore(self, state):
        """Bring back what `state` gave, to an engine of the same problem and folder."""
        of_blocks = {name: checked(self.concave, name, state) for name in (
            "concave", "gaps", "losses")}
        features = formed(self.features.state(), "features", state)
        self.store.restore(
            checked(self.store.slots, "slots", state), checked(self.store.checks, "checks", state))
        for name, array in of_blocks.items():
            getattr(self, name)[:] = array
        self.alpha, self.kappa, self.curvature = state["numbers"].tolist()
        (
            self.n_visits, self.oracle_calls, self.n_loads, average, visits, self.seed,
        ) = state["counts"].tolist()
        self.holds_average, self.visits = bool(average), visits or None
        self._curvatures = [tuple(pair) for pair in state["curvatures"].tolist()]
        self.features.restore(features)


def _engine_arrays(engine):
    """Arrays of the engine of a chunk, from which it can be restored."""
    return {
        "mu": engine.mu, "concave": engine.concave,
        **flat("surrogate", engine.surrogate.state())}
