"""A worker of a fit in rounds: the blocks of its part, and an engine over them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from joblib import hash as content_hash

from fastm4n.base.arrays import flat, part
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Step
from fastm4n.solvers.certificates import certificate_terms

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from fastm4n.base.types import Array, FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

# seconds of a piece of a local pass, between two checks of whether to stop: a wait nobody notices
PIECE_SECONDS = 0.2
# share of all rows below which driver and worker exchange single rows: rows and their numbers take
# fewer bytes
FEW = 0.8
# blocks that are visited to measure the curvature (benchmarks/rounds.py)
PROBES = 64


class Vectors:
    """The arrays of a feature map's state as one flat vector, and back.

    Parameters
    ----------
    shapes : dict of str to tuple of int
        In their order within the vector.
    """

    def __init__(self, shapes):
        self.shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.sizes = [int(np.prod(shape)) for shape in self.shapes.values()]
        self.size = sum(self.sizes)

    def pack(self, state):
        """A new vector of the arrays."""
        return np.concatenate([np.ravel(state[name]) for name in self.shapes])

    def views(self, vector):
        """The arrays as views of the vector."""
        edges = np.cumsum([0, *self.sizes])
        return {
            name: vector[start:stop].reshape(shape) for (name, shape), start, stop in zip(
                self.shapes.items(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)}

    @property
    def width(self):
        """Length of rows: the largest common divisor of all last dimensions."""
        return int(np.gcd.reduce([shape[-1] for shape in self.shapes.values()]))

    def rows_of(self, touched):
        """Numbers of the vector's rows with these rows of arrays, None for most or all.

        Parameters
        ----------
        touched : dict of str to ndarray
            Rows of some arrays; all rows of the others.
        """
        width, start, found = self.width, 0, []
        for (name, shape), size in zip(self.shapes.items(), self.sizes, strict=True):
            rows = np.arange(size // width)
            if name in touched:
                rows = rows.reshape(shape[0], -1)[touched[name]].ravel()
            found.append(start + rows)
            start += size // width
        rows = np.concatenate(found)
        return rows if rows.size < FEW * start else None

    def at(self, rows, arrays):
        """These rows, in order, of the vector of all arrays."""
        width, start, place = self.width, 0, 0
        found = np.empty((rows.size, width))
        for name, size in zip(self.shapes, self.sizes, strict=True):
            end = start + size // width
            stop = int(np.searchsorted(rows, end))
            found[place:stop] = arrays[name].reshape(-1, width)[rows[place:stop] - start]
            start, place = end, stop
        return found

    def sparse(self, vector):
        """The vector, or (numbers of rows, rows) if many rows are zero."""
        rows = vector.reshape(-1, self.width)
        filled = np.flatnonzero(rows.any(axis=1))
        return (filled, rows[filled]) if filled.size < FEW * len(rows) else vector

    def add(self, to, change, factor=1.0):
        """to += factor * change, of the form of `sparse`."""
        if isinstance(change, tuple):
            filled, rows = change
            to.reshape(-1, rows.shape[1])[filled] += factor * rows
        else:
            to += factor * change


def n_bytes(change):
    """Bytes of a result of `Vectors.sparse`."""
    return sum(array.nbytes for array in change) if isinstance(change, tuple) else change.nbytes


class Worker:
    """The blocks of one part of a problem, for the rounds of `solve_rounds`.

    All workers share the problem P(w) = sum_b p_b loss_b(w) + alpha Omega(w), and the p_b of the
    blocks of all workers sum to one. Driver and workers exchange flat vectors of the arrays of the
    feature map's `state`: z before prox, where z(mu) = sum_k z_k is the sum over workers.

    The worker's visits maximise the dual of its own blocks with the others fixed, under a curvature
    `sigma` times as large: `BlockCoordinateEngine` with n replaced by n / sigma.

    Parameters
    ----------
    surrogate, features : Surrogate, FeatureMap
        For this part, with features that store their weights.
    weights : ndarray of shape (n_blocks,)
        Weights of the blocks in units common to all workers, such as numbers of examples.
    about : dict, default=None
        Plain data that must be equal in all parts, by name, such as the labels.

    Attributes
    ----------
    stopping : callable or None
        Set by a fleet: whether the present call should end soon.
    """

    surrogate: Surrogate
    features: FeatureMap
    raw_weights: Array
    about: dict[str, Any] | None
    vectors: Any
    engine: Any
    before: Any
    fresh: Any
    rows: Any
    given: Any
    seed: int
    n_orders: int
    per_second: float

    stopping = None

    def __init__(
        self, surrogate: Surrogate, features: FeatureMap, weights: FloatArray,
        about: dict[str, Any] | None = None,
    ) -> None:
        state = features.state()
        if not features.holds_weights():
            raise ValueError(
                f"{type(features).__name__} has no weights, and rounds need linear features, so "
                "kernel='linear', for example with sklearn.kernel_approximation.Nystroem.")
        self.surrogate, self.features = surrogate, features
        self.raw_weights = np.ascontiguousarray(weights, dtype=np.float64)
        if self.raw_weights.shape != (surrogate.n_blocks,) or not np.all(self.raw_weights > 0):
            raise ValueError(
                f"weights must be {surrogate.n_blocks} positive numbers, one for each block.")
        self.about = {} if about is None else about
        self.vectors = Vectors({name: array.shape for name, array in state.items()})
        self.engine = self.before = self.fresh = None
        # groups of a penalty may have rows that this part touches and others
        touched = {} if features.penalties() else features.touched()
        self.rows = self.vectors.rows_of(touched) if touched else None
        self.given = None if self.rows is None else np.zeros(self.vectors.size)

    @classmethod
    def of(cls, problem: Any, mass: float, about: dict[str, Any] | None = None) -> Any:
        """Make a worker of an estimator's `Problem` of one part.

        mass : float
            The sum of the weights of the part's examples, in units common to all workers.
        """
        return cls(problem.loss, problem.features, mass * problem.weights, about)

    def describe(self) -> dict[str, Any]:
        """Describe the part to the driver.

        Returns
        -------
        description : dict
            - n_blocks : int
            - mass : float, the sum of the weights
            - largest : float, an upper bound of the sum of the losses at w = 0
            - shapes : dict, shapes of the arrays of the features' state
            - rows : ndarray or None, the rows of a vector that this part needs
            - penalties : dict, the `Penalty` of each array
            - is_searched : bool, whether h is known between two dual points
            - is_smooth : bool, whether the surrogate is a log one
            - common : dict of short texts that must be equal in all parts
        """
        surrogate, features = self.surrogate, self.features
        used = getattr(features, "which_used", None)
        outputs = surrogate.outputs
        # parts with permutations have costs of as many places as they need
        costs = outputs.kept_cost() if outputs.layout.stride else None
        common = {
            "surrogate": type(surrogate).__name__, "outputs": type(outputs).__name__,
            "features": type(features).__name__, "shapes": str(self.vectors.shapes),
            "costs": content_hash(costs),
            "kept_under": content_hash(surrogate.kept_under()),
            "used": content_hash(None if used is None else used()),
            "penalties": content_hash(
                {name: penalty.__reduce__()[1:] for name, penalty in features.penalties().items()}),
        }
        common.update({name: content_hash(value) for name, value in self.about.items()})
        largest = surrogate.largest(features.size)
        return {
            "n_blocks": surrogate.n_blocks, "mass": float(np.sum(self.raw_weights)),
            "largest": float(np.sum(self.raw_weights * largest)),
            "shapes": self.vectors.shapes, "rows": self.rows, "penalties": features.penalties(),
            "is_searched": surrogate.has_line_search,
            "is_smooth": surrogate.is_smooth, "common": common,
        }

    # ---------------------------------------------------------------------------- state

    def start(self, alpha: float, mass: float, seed: tuple[int, ...]) -> float:
        """Begin at phi(y), where z_k = 0 and h = 0, and return a mean curvature.

        It is that of some first steps, which are undone, and serves the choice of kappa.

        Parameters
        ----------
        alpha : float
        mass : float
            The sum of the weights of all workers.
        seed : tuple of int
            Different for each worker.
        """
        surrogate, features = self.surrogate, self.features
        # the problem may have been begun before, or by the probe
        if self.fresh is None:
            self.fresh = surrogate.state()
        weights, n = self.raw_weights / mass, surrogate.n_blocks
        for probing in (True, False):
            surrogate.restore(self.fresh)
            features.clear()
            self.engine = BlockCoordinateEngine(surrogate, features, weights, alpha, 0)
            if probing:
                probes = np.linspace(0, n, min(n, PROBES), endpoint=False).astype(np.intp)
                self.engine.run_blocks(probes, Step.LINE_SEARCH)
                self.engine.measure_curvature()
                curvature = self.engine.curvature
        self.seed, self.n_orders = tuple(seed), 0
        self.before = None
        self.per_second = 0.0
        return curvature

    def _order(self):
        """The order of the next pass."""
        self.n_orders += 1
        random = np.random.default_rng([*self.seed, self.n_orders])
        return random.permutation(self.surrogate.n_blocks).astype(np.intp)

    def state(self) -> dict[str, Any]:
        """Copy the state that later rounds depend on, a flat dict of arrays for `restore`."""
        self.rollback()
        engine = {
            name: array for name, array in self.engine.state().items()
            if not name.startswith("features/")}  # the driver keeps these
        return {**flat("engine", engine), "orders": np.array([*self.seed, self.n_orders])}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a result of `state` in a worker of the same part, after `start`."""
        engine = part("engine", state)
        self.engine.restore({**engine, **flat("features", self.features.state())})
        *seed, self.n_orders = state["orders"].tolist()
        self.seed = tuple(seed)
        self.before = None

    def _whole(self, z):
        """The whole vector, of a whole one or of the rows that this part needs."""
        if z.size == self.vectors.size:
            return z
        self.given.reshape(-1, self.vectors.width)[self.rows] = z
        return self.given

    def _natural(self):
        return self.surrogate.state() if self.surrogate.has_natural_step else None

    # ---------------------------------------------------------------------------- rounds

    def local(
        self, z: FloatArray, sigma: float, kappa: float, passes: float,
        seconds: float | None = None,
    ) -> dict[str, tuple[NDArray[np.int64], FloatArray]]:
        """Visit this part's blocks, with the others fixed, until `commit` or `rollback`.

        Parameters
        ----------
        z : ndarray
            The common start (alpha z(mu) + kappa y) / (alpha + kappa) for a centre y: the whole
            vector, or the rows named by `describe`.
        sigma : float
            Factor of the curvature.
        kappa : float
            Strength of the additional penalty around y, 0 for none.
        passes : float
            Number of visits, divided by the number of blocks.
        seconds : float, default=None
            Time limit. Results then depend on the clock.

        Returns
        -------
        answer : dict
            - change : the change of z_k, as from `Vectors.sparse`
            - heights : pair of float, sum p h before and after
            - visits, calls : int, visits and oracle calls
            - seconds : float
        """
        started = time.perf_counter()
        engine, n, z = self.engine, self.surrogate.n_blocks, self._whole(z)
        self.before = (np.array(engine.mu), np.array(engine.concave), self._natural())
        self.features.restore(self.vectors.views(z))
        alpha, calls = engine.alpha, engine.oracle_calls
        total = alpha + kappa
        # p_b / ((alpha + kappa) / sigma) is sigma times the curvature
        engine.set_kappa(total / sigma - alpha)
        visits, wanted = 0, max(1, round(passes * n)) if n else 0
        order, place, ended = self._order(), 0, False
        while visits < wanted and not ended:
            if place == n:
                order, place = self._order(), 0
            ahead = max(1, int(self.per_second * PIECE_SECONDS))
            stop = min(n, place + ahead, place + wanted - visits)
            begun = time.perf_counter()
            engine.run_blocks(order[place:stop], Step.LINE_SEARCH)
            taken = max(time.perf_counter() - begun, 1e-6)
            visits, self.per_second, place = visits + stop - place, (stop - place) / taken, stop
            ended = (self.stopping is not None and self.stopping()) or (
                seconds is not None and time.perf_counter() - started >= seconds)
        engine.set_kappa(0.0)
        change = self._change(z, total / (alpha * sigma))
        p = np.asarray(engine.weights)
        return {
            "change": change,
            "heights": (float(np.sum(p * self.before[1])), float(np.sum(p * engine.concave))),
            "visits": visits, "seconds": time.perf_counter() - started,
            "calls": engine.oracle_calls - calls,
        }

    def _change(self, z, factor):
        """The change of the features' z from this one, times factor."""
        live = {name: arrays[0] for name, arrays in self.features.live().items()}
        if self.rows is not None:
            change = self.vectors.at(self.rows, live)
            change -= z.reshape(-1, self.vectors.width)[self.rows]
            filled = np.flatnonzero(change.any(axis=1))
            return self.rows[filled], factor * change[filled]
        change, before = np.empty(self.vectors.size), self.vectors.views(z)
        for name, to in self.vectors.views(change).items():
            np.subtract(live[name], before[name], out=to)
        change = self.vectors.sparse(change)
        if isinstance(change, tuple):
            return change[0], factor * change[1]
        change *= factor
        return change

    def slope(self, g: FloatArray) -> float:
        """sum p h at the dual point a share g of the way that `local` went.

        A lower bound if h is not known from the dual point.
        """
        mu, t = self._between(g)
        self.engine.concave_of(mu, t)
        return float(np.sum(np.asarray(self.engine.weights) * t))

    def _between(self, g):
        mu, t, _ = self.before
        return mu + g * (self.engine.mu - mu), t + g * (self.engine.concave - t)

    def commit(self, g: FloatArray) -> None:
        """Move to the dual point a share g of the way that `local` went."""
        if self.before is None:
            return
        if g != 1.0:
            mu, t = self._between(g)
            natural, before = self._natural(), self.before[2]
            self.engine.concave_of(mu, t)
            self.engine.mu[:], self.engine.concave[:] = mu, t
            if natural is not None:
                if g == 0.0:
                    natural = before
                else:
                    natural["theta"] = (
                        before["theta"] + g * (natural["theta"] - before["theta"]))
                self.surrogate.restore(natural)
        self.before = None

    def rollback(self) -> None:
        """Undo the last `local`, unless it was committed."""
        self.commit(0.0)

    def certify(self, z: FloatArray, g: FloatArray | None = None) -> FloatArray:
        """`commit` g, if given, and sum over this part's blocks for a certificate.

        The sums are those at w = prox(z), which may differ from w(mu), with z as in `local`.

        Returns
        -------
        numbers : ndarray of shape (3,)
            Sums weighted by p_b: upper bounds of the loss, h_b(mu_b) or lower bounds of it with the
            effect of an offset, and their absolute values for rounding.
        """
        if g is not None:
            self.commit(g)
        engine = self.engine
        self.features.restore(self.vectors.views(self._whole(z)))
        loss, _, heights, _, shift, _ = certificate_terms(engine, engine.mu)
        engine.concave[:] = heights
        p = np.asarray(engine.weights)
        rounding = float(np.sum(p * (np.abs(loss) + np.abs(heights))))
        return np.array([
            float(np.sum(p * loss)), float(np.sum(p * (heights - shift))), rounding])

    def part(self) -> FloatArray | tuple[NDArray[np.int64], FloatArray]:
        """z_k, recomputed from the dual point, as from `Vectors.sparse`."""
        self.engine.rebuild_weights(self.engine.mu)
        return self.vectors.sparse(self.vectors.pack(self.features.state()))
