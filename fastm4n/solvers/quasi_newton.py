"""Quasi-Newton steps on smoothed maxima: a certified batch solver for few and long outputs.

With maxima smoothed at temperatures tau_b,

    F(w) = sum_b p_b [tau_b log sum_y exp((<v_b, phi(y)> + c_b(y)) / tau_b) - <v_b, phi(y_b)>]
           + alpha / 2 ||w||^2

has the gradient alpha (w - w(mu)), mu being the marginals, and lies above P by no more than
sum_b p_b tau_b H(mu_b).  Costs c_b are those of the true labels under the max-margin surrogate.
Under max-min they are those of distributions nu of an adversary, which sweeps of exact steps
make smallest: F is convex in w and nu together.  The log surrogate is smooth as it is.

L-BFGS minimises F, and the temperature is halved as it gets on.  Viterbi gives P(w) with each
evaluation, and mixtures of the dual points that were met bound the optimum from below (`Planes`),
so that the certificate is of the problem as posed, whatever the temperature.

References
----------
.. [1] Y. Nesterov (2005). Smooth minimization of non-smooth functions. Mathematical
   Programming 103.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, sparse
from sklearn.base import BaseEstimator

from fastm4n._parameters import NamesParameters, check_number
from fastm4n.features import LinearFeatures
from fastm4n.solvers._batch import Batch, TemperedBatch
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine
from fastm4n.solvers.block_coordinate import Solution
from fastm4n.solvers.certificates import Certificate
from fastm4n.solvers.history import History, Progress
from fastm4n.solvers.limited_memory import direction, inner, keep_pair, plus, times
from fastm4n.solvers.planes import Planes
from fastm4n.solvers.semismooth import LONGEST
from fastm4n.solvers.threads import one_blas_thread
from fastm4n.surrogates import Log, MaxMargin, MaxMin

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n._typing import CSR, FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

# of the line search: the share of the slope that a step must gain, most cuts of a step, and the
# shares that are left of it
SUFFICIENT, MOST_CUTS, SMALLEST_CUT, LARGEST_CUT = 1e-4, 20, 1e-3, 0.5
# steps between two halvings of the temperature, at least, and its first and least value, beside
# what the costs of a part count
STEPS, FIRST, LEAST = 5, 1.0, 1e-9
# the temperature is halved where F - P is above this share of the gap
SMOOTHED = 0.5
# sweeps of steps in nu an evaluation, at first; twice as many where a line search is long, at most
SWEEPS, MOST_SWEEPS, LONG_SEARCH = 1, 16, 4
# columns of features whose second moments the first Hessian is made of, rows for each of
# them, and what is added to the diagonal beside its mean
MOST_COLUMNS, ROWS, RIDGE = 1000, 20, 0.01
# numbers that pairs of L-BFGS and planes hold, at most, but for so many of each
MOST_NUMBERS, FEWEST = 1 << 26, 10
# outputs of so many parts on average are long, and few where they are no more than this share of
# that: under the log surrogate, whose steps of whole blocks are good ones, and else
LONG, FEW_SMOOTH, FEW = 50, 0.1, 1.0
# under mean costs so few parts for each weight can be told apart almost without mistakes, which
# steps of whole blocks find sooner
SEPARABLE = 1.0 / 3.0
# features are out of scale where alpha n is less than this share of the mean over outputs of the
# sum of squares of their parts' features
OUT_OF_SCALE = 1e-6
# multiply-adds of a pair or plane for each weight, in a pass
PAIR_COST = 8.0


class QuasiNewton(NamesParameters, BaseEstimator):
    """L-BFGS on smoothed maxima, for few and long outputs under the plain L2 penalty.

    A `solver` of `SequenceTagger`, and of the other estimators whose outputs have marginals, with
    linear features: under "max_margin" and "log"; under "max_min" of sequences with the 0-1 cost.
    Every pass looks at all examples, and makes one sweep of sum-product and one of Viterbi along
    each. Where examples are many, `BlockFrankWolfe` gets on much faster; where they are few and
    long, its steps of a whole example at a time are too coarse, and this one takes its place under
    ``solver="auto"``. The gap is certified for the loss as it is, without smoothing.

    Parameters
    ----------
    memory : int, default=60
        Most steps that the Hessian is estimated by, and most dual points that certificates are
        made of; fewer are kept where weights are very many.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import QuasiNewton, SequenceTagger
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(500, 4))]
    >>> y = [(x @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int) for x in X]
    >>> tagger = SequenceTagger("max_margin", alpha=0.1, solver=QuasiNewton(), tol=1e-2).fit(X, y)
    >>> bool(tagger.relative_gap_ <= 1e-2)
    True
    """

    oracle: str
    oracle_iter: int | None
    step: str

    # what estimators ask of a solver beside
    oracle, oracle_iter, step = "exact", None, "quasi_newton"

    def __init__(self, memory: int = 60) -> None:
        self.memory = memory

    def check(self, surrogate: Surrogate) -> None:
        """Refuse options that make no sense, by themselves or with the surrogate."""
        check_number("memory", self.memory, low=0, integer=True)
        if surrogate == "boost":
            raise ValueError(
                "QuasiNewton smooths maxima, and surrogate='boost' has none: use 'max_min', "
                "'max_margin' or 'log', or solver='auto'.")

    def options(self) -> dict[str, Any]:
        raise ValueError(
            "solver=QuasiNewton() fits one alpha: for paths, intercepts without penalty and "
            "inference='soft' use solver='auto'.")

    @staticmethod
    def misses(surrogate: Surrogate, features: FeatureMap) -> str | None:
        """What there is to be said against a fit of these, in words; None where there is nothing.

        Parameters
        ----------
        surrogate : Surrogate
        features : FeatureMap
        """
        outputs, name = surrogate.outputs, type(surrogate.outputs).__name__
        if type(surrogate) not in (Log, MaxMargin, MaxMin):
            return f"QuasiNewton does not smooth {type(surrogate).__name__}"
        if not outputs.has_marginals:
            return f"QuasiNewton needs marginals of outputs, and {name} has none"
        if isinstance(surrogate, MaxMin) and not outputs.has_tempered_game:
            return (
                f"QuasiNewton has no steps of the adversary for surrogate='max_min' over {name} "
                "with these costs: sequences under the 0-1 cost have them")
        if features.weight_norm() is None or not features.has_plain_state():
            return (
                "QuasiNewton needs weights under the plain L2 penalty: kernel='linear' and "
                "penalty='l2', and features without shared parts")
        return None

    @classmethod
    def pays(cls, surrogate: Surrogate, features: FeatureMap, alpha: float) -> bool:
        """Whether steps of whole blocks are too coarse: outputs few and long, or out of scale.

        And weights are not so many that steps take longer than evaluations.
        """
        if cls.misses(surrogate, features) is not None:
            return False
        layout = surrogate.outputs.layout
        if layout.max_parts > 1 and are_out_of_scale(features, alpha, layout.n_blocks):
            return True
        length = layout.n_parts_of_all / max(1, layout.n_blocks)
        few = FEW_SMOOTH if isinstance(surrogate, Log) else FEW
        if length < LONG or layout.n_blocks > few * length:
            return False
        size, is_mean = n_weights(features), surrogate.outputs.mean_cost
        if is_mean and not isinstance(surrogate, Log) and (
                layout.n_parts_of_all < SEPARABLE * size):
            return False
        work = layout.n_blocks * (features.visit_cost + surrogate.outputs.oracle_cost)
        return PAIR_COST * FEWEST * size <= work

    def solve(
        self, surrogate: Surrogate, features: FeatureMap, weights: FloatArray, alpha: float, *,
        mu: FloatArray | None = None, concave: FloatArray | None = None, shrink: float = 1.0,
        average: tuple[Any, ...] | None = None, tol: float = 1e-3, max_iter: int = 1000,
        verbose: int = 0, callback: Callable[..., Any] | None = None,
    ) -> Solution:
        """Minimise until the gap is at most tol; arguments and result as of `solvers.solve`.

        max_iter counts passes over all blocks, which are evaluations.
        """
        missed = self.misses(surrogate, features)
        if missed is not None:
            raise ValueError(f"{missed}; use solver='auto'.")
        if mu is not None:
            # w of an earlier dual point
            engine = BlockCoordinateEngine(surrogate, features, weights, alpha, 0)
            engine.set_mu(mu, concave, shrink)
        most = MOST_NUMBERS // (3 * max(1, n_weights(features)))
        memory = min(self.memory, max(FEWEST, most))
        run = _Run(memory, surrogate, features, weights, alpha, tol, max_iter, verbose, callback)
        with one_blas_thread():
            return run.solve()


@dataclass
class _Point:
    """An evaluation: w, F and P there, and sums over blocks of h_b, and of entropies, at mu."""

    w: dict
    value: float
    primal: float
    height: float
    entropy: float
    losses: np.ndarray
    heights: np.ndarray
    gradient: dict = None


class _Run:
    """One fit."""

    def __init__(self, memory, surrogate, features, weights, alpha, tol, max_iter, verbose,
                 callback):
        self.surrogate, self.features = surrogate, features
        self.p, self.alpha, self.tol, self.max_iter = np.asarray(weights), alpha, tol, max_iter
        self.callback, self.history = callback, History()
        self.progress = Progress(verbose, max_iter, tol)
        self.is_smooth = isinstance(surrogate, Log)
        batch = Batch if self.is_smooth else TemperedBatch
        self.batch = batch(surrogate, features, weights)
        self.pairs, self.planes = deque(maxlen=memory), Planes(alpha, memory)
        self.first = first_hessian(features)
        self.tau, self.n_passes, self.n_steps, self.sweeps = FIRST, 0, 0, SWEEPS
        self.best, self.certificate = None, None

    def evaluate(self, w):
        """The point w."""
        self.features.restore(w)
        self.n_passes += 1
        if self.is_smooth:
            soft, heights = self.batch.evaluate()
            hard, entropy = soft, 0.0
        else:
            soft, hard, heights, entropies = self.batch.evaluate(self.tau, self.sweeps)
            entropy = float(np.sum(self.p * entropies))
        half = 0.5 * self.alpha * inner(w, w)
        point = _Point(
            w, float(np.sum(self.p * soft)) + half, float(np.sum(self.p * hard)) + half,
            float(np.sum(self.p * heights)), entropy, hard, heights)
        if self.best is None or point.primal < self.best.primal:
            self.best = point
        return point

    def certify(self, point):
        """The gradient at the point that was evaluated last, and the certificate of the best."""
        z = self.batch.gradient()
        point.gradient = plus(z, self.alpha, point.w)
        self.planes.add(
            point.height, times(-1.0 / self.alpha, z), inner, point.entropy / self.tau)
        dual, best = self.planes.bound(), self.best
        primal, gap = best.primal, max(0.0, best.primal - dual)
        if not np.isfinite(primal + gap):
            primal, gap = np.inf, np.inf
        self.certificate = Certificate(
            primal=primal, dual=primal - gap if gap < np.inf else -np.inf, gap=gap,
            block_gaps=np.zeros(self.p.size), concave=point.heights, block_losses=best.losses,
            norm=inner(best.w, best.w), bound=dual, height=point.height)
        row = self.history.add(
            self.n_passes, self.certificate, self.n_passes, 0.0, 0, "quasi_newton")
        self.progress.update(row)
        stop = self.callback is not None and bool(self.callback(row))
        return stop or gap <= self.tol or self.n_passes >= self.max_iter

    def solve(self):
        try:
            point = self.evaluate(self.features.state())
            while not self.certify(point):
                if self.is_too_smooth(point):
                    point = self.cooled(point)
                    if self.n_passes >= self.max_iter:
                        self.certify(point)
                        break
                    point.gradient = plus(self.batch.gradient(), self.alpha, point.w)
                moved = self.search(point)
                if moved is None and self.n_passes >= self.max_iter:
                    break
                if moved is None and not self.pairs:
                    if self.is_smooth or self.tau <= LEAST:
                        break
                    moved = self.cooled(point)
                elif moved is None:
                    # what the pairs tell is wrong: begin anew, by the gradient
                    self.pairs.clear()
                    moved = self.evaluate(point.w)
                point = moved
        finally:
            self.progress.close()
        found = self.certificate
        self.features.restore(self.best.w)
        self.keep()
        return Solution(
            mu=np.array(self.batch.mu), certificate=found, n_iter=self.n_passes,
            history=self.history.arrays(), converged=found.gap <= self.tol, interrupted=False)

    def is_too_smooth(self, point):
        """Whether what smoothing adds is as much as what is left to gain at this temperature."""
        self.n_steps += 1
        if self.is_smooth or self.n_steps < STEPS or self.tau <= LEAST:
            return False
        return (
            point.value - self.planes.bound(self.tau) <= point.entropy
            or point.value - point.primal > SMOOTHED * self.certificate.gap)

    def cooled(self, point):
        """The same point at half the temperature."""
        self.tau, self.n_steps = 0.5 * self.tau, 0
        return self.evaluate(point.w)

    def search(self, point):
        """The next point, with its pair; None where none gains enough."""
        self.features.restore(direction(point.gradient, self.pairs, self.first))
        # without what is no weight of this map
        step = self.features.state()
        slope, size = inner(point.gradient, step), 1.0
        if not slope < 0.0:
            return None
        for cuts in range(MOST_CUTS):
            if cuts == LONG_SEARCH and self.pairs:
                self.sweeps = min(MOST_SWEEPS, 2 * self.sweeps)
            found = self.evaluate(plus(point.w, size, step))
            if found.value < point.value and (
                    found.value <= point.value + SUFFICIENT * size * slope):
                turned = plus(self.batch.gradient(), self.alpha, found.w)
                keep_pair(self.pairs, times(size, step), plus(turned, -1.0, point.gradient))
                return found
            if self.n_passes >= self.max_iter:
                break
            # the least point of the parabola through what is known, within bounds
            excess = found.value - point.value - size * slope
            least = -0.5 * size * slope / excess if 0.0 < excess < np.inf else 0.0
            size *= min(LARGEST_CUT, max(SMALLEST_CUT, least))
        return None

    def keep(self):
        """Leave in the surrogate what a later fit may start from."""
        if self.surrogate.has_natural_step:
            self.surrogate.restore({
                **self.surrogate.state(), "theta": np.array(self.batch.scores),
                "is_first": np.zeros(self.surrogate.n_blocks, dtype=np.uint8)})


def rows_in_use(features: FeatureMap) -> CSR | FloatArray | None:
    """The rows of X that blocks have, in its order; None for maps without X."""
    X = getattr(features, "X", None)
    if X is None:
        return None
    if type(features) is LinearFeatures:
        rows = features.arguments()[1]
    else:
        starts, lengths = features.rows_of_blocks()
        before = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        rows = before + np.arange(before.size)
    return X if rows.size == X.shape[0] else X[np.sort(rows)]


def are_out_of_scale(features: FeatureMap, alpha: float, n_blocks: int) -> bool:
    """Whether features are so large beside alpha that blocks undo each other's steps."""
    X = rows_in_use(features)
    if X is None or not 0 < X.shape[1] <= MOST_COLUMNS or n_blocks == 0:
        return False
    values = X.data if sparse.issparse(X) else X
    with np.errstate(over="ignore"):
        squares = float(np.vdot(values, values)) / n_blocks
    return alpha * n_blocks < OUT_OF_SCALE * squares and squares < LONGEST


def n_weights(features: FeatureMap) -> int:
    """Numbers of a state."""
    return sum(array.size for array in features.held().values())


def first_hessian(features: FeatureMap) -> Any:
    """The inverse of a matrix like the Hessian, up to a factor, as a function of states; or None.

    Of rows of weights that meet columns of features: of their second moments, or the diagonal of
    these where features are many; of all others it is the identity.
    """
    X = rows_in_use(features)
    if X is None or X.shape[0] == 0 or X.shape[1] == 0:
        return None
    n, k = X.shape
    weights = features.state().get("weights")
    if weights is None or weights.ndim != 2 or weights.shape[0] < k:
        return None
    if k > MOST_COLUMNS:
        if sparse.issparse(X):
            squares = np.bincount(X.indices, np.square(X.data, dtype=np.float64), minlength=k)
        else:
            squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        return _by_row(squares / n)
    X = X[:: max(1, n // (ROWS * k))]
    X = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
    moments = X.T @ X / X.shape[0]
    scale = np.sqrt(np.diagonal(moments))[:, np.newaxis]
    if not 0.0 < scale.max() < np.inf:
        return None
    # columns that are zero, in the rows that were looked at, have the size of the others
    scale[scale == 0.0] = np.median(scale[scale > 0.0])
    # as if all columns were of one size
    moments = moments / scale / scale.T
    moments[np.diag_indices(k)] += RIDGE
    factor = linalg.cho_factor(moments)

    def first(state):
        out = {name: array.copy() for name, array in state.items()}
        out["weights"][:k] = linalg.cho_solve(factor, out["weights"][:k] / scale) / scale
        return out

    return first


def _by_row(squares):
    mean = squares.mean()
    if not 0.0 < mean < np.inf:
        return None
    factors = 1.0 / (squares + RIDGE * mean)

    def first(state):
        out = {name: array.copy() for name, array in state.items()}
        out["weights"][: factors.size] *= factors[:, None]
        return out

    return first
