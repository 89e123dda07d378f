"""Newton and quasi-Newton steps for linear models of single labels.

Steps of blocks use one example at a time. A column out of scale, or a mean far from
zero, makes their problem as ill-conditioned as a tiny alpha does. Steps on the weights of all
examples use a metric in which columns have no scale: that of the second moments, or the
Hessian itself. Weights and certificates belong to the problem as given.

Losses that are not smooth are smoothed by a falling temperature (`LabelLosses`), and Newton steps
follow the minimiser. With the gradient gl of the mean smoothed loss at mu, a point of the simplex
for each block, the dual value of the problem *without* smoothing at mu is

    D(mu) = sum_b p_b h_b(mu_b) - ||gl||^2 / (2 alpha)

and the objective without smoothing is known at w, so the gap needs no other pass. It is the excess
by smoothing plus ||gl + alpha w||^2 / (2 alpha), which Newton steps bring to zero for any alpha.
Losses, solver and run stand in one file, as they share one temperature and one metric.

References
----------
.. [1] Y. Nesterov (2005). Smooth minimization of non-smooth functions. Mathematical Programming.
.. [2] D. Boehning (1992). Multinomial logistic regression algorithm. Annals of the Institute of
   Statistical Mathematics 44.
.. [3] J. Nocedal, S. Wright (2006). Numerical Optimization, algorithm 7.4.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular
from scipy.special import entr, expit

from fastm4n.base.arrays import checked, flat, items_of, listed, part
from fastm4n.base.checks import check_number
from fastm4n.base.label_costs import dearest_of
from fastm4n.features import LinearFeatures
from fastm4n.features._pairs import ThresholdFeatures
from fastm4n.features._rows import MADE_DENSE, dense_rows
from fastm4n.outputs import SimplexOutputs
from fastm4n.outputs._simplex import LabelOutputs, closed_form
from fastm4n.solvers.base import Solution, Solver, State, block_work, packed, unpack
from fastm4n.solvers.blocks.block_coordinate import begin
from fastm4n.solvers.blocks.schedule import LONGEST
from fastm4n.solvers.certificates import OF_SCORES, ROUNDING, Certificate, checked_gap, scaled_dual
from fastm4n.solvers.free_intercept import balancing
from fastm4n.solvers.limited_memory import direction, keep_pair
from fastm4n.surrogates import LogLoss, MaxMarginLoss, MaxMinLoss

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.solvers.base import Options
    from fastm4n.solvers.monitor import Monitor

# approximate numbers of scores of a chunk, and its least rows: 128 kB fit a cache
AT_ONCE, LEAST_AT_ONCE = 1 << 14, 64
# most numbers of rows that are copied once (16 MiB)
GATHERED = 1 << 21
# approximate numbers of rows times their scores in a chunk (2 MiB)
SPREAD = 1 << 18
# share of numbers that are not zero below which products with CSR are cheaper than those with dense
# rows (benchmarks/scales.py)
SPARSE = 0.2
# rows with smaller second derivatives are left out (rounding)
INTEGRAL = 1e-12


def kind_of(surrogate):
    """Name of the loss of a surrogate in `LabelLosses`; None for others."""
    outputs = surrogate.outputs
    if type(outputs) not in (SimplexOutputs, LabelOutputs):
        return None
    if type(surrogate) is LogLoss:
        return "log" if surrogate.arguments()[1:] == (False, 1.0) else None
    if type(surrogate) is MaxMarginLoss:
        return "max_margin"
    if type(surrogate) is not MaxMinLoss:
        return None
    return "thresholds" if type(outputs) is LabelOutputs else closed_form(outputs.cost_matrix)


def _log_partition(scores, tau):
    """tau logZ(scores / tau) of each column, scores becoming the softmaxes."""
    top = scores.max(axis=0)
    scores -= top
    if tau != 1.0:
        scores /= tau
    np.exp(scores, out=scores)
    total = scores.sum(axis=0)
    scores /= total
    return top + tau * np.log(total)


class LabelLosses:
    """Mean losses of all blocks of a fit as functions of weights (n_labels, n_features + 1).

    The last column belongs to the constant feature, and exists even if that is zero. The loss of a
    row with scores v and label y is the maximum over the simplex of h(mu) + <v, mu - phi(y)>. With
    tau times an entropy added it is smooth, and larger by at most tau log k:

    - log: logZ(v) - v_y, with tau = 1 and h the entropy itself.
    - max-margin: tau logZ((v + c_y) / tau) - v_y, with the costs c_y for the true label y.
    - max-min, 0-1 cost: 1 + tau logZ(min(v, t) / tau) - v_y with sum_j (v_j - t)_+ = 1. The
      adversary's best mixture under the entropy is (v - t)_+ for every tau.
    - max-min, absolute cost: half of tau logZ((v - i) / tau) + tau logZ((v + i) / tau), minus v_y,
      with i = 0 ... k - 1. It is the mean of two softmaxes, tilted to lower and to higher levels.

    The gradient by v is mu - phi(y) with mu in the simplex. So every evaluation gives a dual point
    with its h(mu) without smoothing, and the losses without smoothing.

    Parameters
    ----------
    surrogate : LogLoss, MaxMarginLoss or MaxMinLoss
        With a `kind_of`.
    features : LinearFeatures
    weights : ndarray of shape (n_blocks,)
        p_b.

    Attributes
    ----------
    shape : tuple of int
        The shape of the weights.
    size : int
        Numbers of the dual point of a block.
    """

    def __init__(self, surrogate, features, weights):
        X, self.rows, self.norms, self.k, self.constant = features.arguments()
        self.kind = kind_of(surrogate)
        self.X, self.p, self.n, self.d = X, np.asarray(weights), self.rows.size, X.shape[1]
        self.y = surrogate.outputs.truth().reshape(self.n, self.k).argmax(axis=1)
        self.cost = np.asarray(surrogate.outputs.cost_matrix)
        if self.kind == "absolute":  # of products with it
            self.cost = np.ascontiguousarray(self.cost)
        self.levels = np.arange(self.k, dtype=np.float64)[:, np.newaxis]
        self.shape, self.size = (self.k, self.d + 1), self.k
        self.gather(self.k)

    def gather(self, n_scores):
        """Set how rows are read, and the number of blocks of a chunk by the scores of a block."""
        X = self.X
        self.step = max(LEAST_AT_ONCE, AT_ONCE // n_scores)
        # rows of X with few values stay sparse in products of rows with weights
        self.is_sparse = sparse.issparse(X) and X.nnz < SPARSE * X.shape[0] * self.d
        # copies of the rows in the order of the blocks where they are not many
        self.gathered = None
        if self.n * self.d <= GATHERED and not self.is_sparse:
            self.gathered = dense_rows(X, self.rows)

    def chunks(self):
        """Ranges of blocks, with their rows in double precision, which may be CSR."""
        for start in range(0, self.n, self.step):
            some = slice(start, min(self.n, start + self.step))
            if self.gathered is not None:
                rows = self.gathered[some]
            elif self.is_sparse:
                rows = self.X[self.rows[some]].astype(np.float64, copy=False)
            else:
                rows = dense_rows(self.X, self.rows[some])
            yield start, some.stop, rows

    def _some(self, most_rows, at_once):
        """Rows, weights and labels of every so many blocks, of all by default, some at a time."""
        every = 1 if most_rows is None else -(-self.n // most_rows)
        for start in range(0, self.n, at_once * every):
            some = slice(start, start + at_once * every, every)
            rows = self.gathered[some] if self.gathered is not None else (
                dense_rows(self.X, self.rows[some]))
            yield rows, self.p[some], self.y[some]

    def packed(self, state):
        """The weights of a state of the features."""
        return np.ascontiguousarray(state["weights"][: self.d + 1, : self.k].T)

    def unpacked(self, weights, state):
        """A state of the features with these weights, from one of them."""
        found = np.zeros(state["weights"].shape)
        found[: self.d + 1, : self.k] = weights.T
        return {"weights": found}

    def scores(self, weights, rows):
        """One column for each row."""
        if sparse.issparse(rows):
            scores = np.ascontiguousarray((rows @ weights[:, : self.d].T).T)
        else:
            scores = weights[:, : self.d] @ rows.T
        scores += self.constant * weights[:, self.d :]
        return scores

    def moments(self, most_rows):
        """The mean of x_b x_b', with the constant feature, of every so many blocks as below."""
        total, mass = np.zeros((self.d + 1, self.d + 1)), 0.0
        for rows, p, _ in self._some(most_rows, self.step):
            total[: self.d, : self.d] += (rows.T * p) @ rows
            total[self.d, : self.d] += self.constant * (p @ rows)
            mass += float(p.sum())
        total[self.d, self.d] = self.constant**2 * mass
        total[: self.d, self.d] = total[self.d, : self.d]
        return total / mass

    def balanced(self, height, pull):
        """sum_b p_b h_b and the pull by features of the balanced dual point, by concavity of h.

        On a balanced dual point the intercept has no force.
        """
        theta, q = balancing(*self.means(pull[:, self.d :] / self.constant))
        pull = pull[:, : self.d]
        if q is None:
            return height, pull
        return (1.0 - theta) * height + theta * self.concave(q), (
            (1.0 - theta) * pull + theta * self.pull_of(q))

    def means(self, apart):
        """Means of mu and of phi(y), of which the difference is given."""
        return self.share + apart[:, 0], self.share

    def concave(self, point):
        """sum_b p_b h_b(point), one point of the simplex for all blocks."""
        if self.kind == "log":
            inside = point[point > 0.0]
            return -float(np.sum(inside * np.log(inside)))
        if self.kind == "zero_one":
            return 1.0 - float(point.max())
        if self.kind == "absolute":
            return float((self.cost.T @ point).min())
        return float(self.share @ (np.ascontiguousarray(self.cost) @ point))

    @cached_property
    def share(self):
        """sum_b p_b phi(y_b)."""
        return np.bincount(self.y, weights=self.p, minlength=self.k)

    @cached_property
    def moment(self):
        """sum_b p_b x_b, and sum_b p_b phi(y_b) x_b'."""
        mean, by_label = np.zeros(self.d), np.zeros((self.k, self.d))
        for start, stop, rows in self.chunks():
            p, y = self.p[start:stop], self.y[start:stop]
            mean += self._pulled(p[np.newaxis], rows)[0]
            by_label += self._pulled(self.indicators(y).T * p, rows)
        return mean, by_label

    def indicators(self, y):
        """A row for each label."""
        return y[:, np.newaxis] == np.arange(self.k)

    def pull_of(self, point):
        """sum_b p_b (point - phi(y_b)) x_b' for one point, without the constant feature."""
        mean, by_label = self.moment
        return point[:, np.newaxis] * mean - by_label

    def _pulled(self, coefficients, rows):
        """Sums of rows, by the coefficients of each label."""
        if sparse.issparse(rows):
            return (rows.T @ coefficients.T).T
        return coefficients @ rows

    def evaluate(self, weights, tau=1.0, mu=None):
        """Means over the blocks at weights.

        Parameters
        ----------
        weights : ndarray of shape (n_labels, n_features + 1)
        tau : float
        mu : ndarray of shape (n_blocks, n_labels), default=None
            Set to the points of the simplex.

        Returns
        -------
        smooth, loss, height : float
            Means of the smoothed losses, the losses, and h(mu).
        gradient : ndarray of the shape of weights
            Gradient of `smooth`.
        """
        smooth = loss = height = 0.0
        gradient = np.zeros(weights.shape)
        for start, stop, rows in self.chunks():
            p, y = self.p[start:stop], self.y[start:stop]
            at = y, np.arange(stop - start)
            scores = self.scores(weights, rows)
            true = scores[at]
            above, above_smooth, concave, point = self._losses(scores, y, tau)
            smooth += float(np.sum(p * (above_smooth - true)))
            if above is not None:
                loss += float(np.sum(p * (above - true)))
                height += float(np.sum(p * concave))
            if mu is not None:
                mu[start:stop] = point.T
            point[at] -= 1.0
            point *= p
            gradient[:, : self.d] += self._pulled(point, rows)
            gradient[:, self.d] += point.sum(axis=1)
        gradient[:, self.d] *= self.constant
        if self.kind == "log":
            # h_b = logZ_b - <v_b, mu_b>, and sum_b p_b <v_b, mu_b - phi_b> = <w, gradient>
            loss, height = smooth, smooth - float(np.sum(gradient * weights))
        return smooth, loss, height, gradient

    def _losses(self, scores, y, tau):
        """Losses, smoothed ones (without the true score), h(mu), mu. Log: second and last."""
        kind = self.kind
        if kind == "log":
            return None, _log_partition(scores, 1.0), None, scores
        if kind == "max_margin":
            costs = self.cost[y].T
            scores += costs
            above = scores.max(axis=0)
            smooth = _log_partition(scores, tau)
            return above, smooth, np.sum(costs * scores, axis=0), scores
        if kind == "zero_one":
            threshold = self._threshold(scores)
            np.minimum(scores, threshold, out=scores)
            smooth = _log_partition(scores, tau)
            return threshold + 1.0, smooth + 1.0, 1.0 - scores.max(axis=0), scores
        low, high = scores - self.levels, scores + self.levels
        above = 0.5 * (low.max(axis=0) + high.max(axis=0))
        smooth = 0.5 * (_log_partition(low, tau) + _log_partition(high, tau))
        point = 0.5 * (low + high)
        return above, smooth, (self.cost.T @ point).min(axis=0), point

    def _threshold(self, scores):
        """t of each column with sum_j (v_j - t)_+ = 1."""
        ordered = -np.sort(-scores, axis=0)
        means = (np.cumsum(ordered, axis=0) - 1.0) / (self.levels + 1.0)
        last = np.count_nonzero(ordered > means, axis=0) - 1
        return means[last, np.arange(scores.shape[1])]

    def hessian(self, weights, tau=1.0, damping=0.0, most_rows=None):
        """Second derivatives of `smooth`: (n_labels, n_features + 1, n_labels, n_features + 1).

        Max-min with the 0-1 cost has kinks. The second derivatives of the piece at the weights are
        then mixed with a share `damping` of an upper bound for all pieces. With most_rows they are
        means over a regular sample of so many blocks.
        """
        k, d = self.k, self.d + 1
        total, mass, bent = np.zeros((k * d, k * d)), 0.0, np.zeros((k, d, d))
        # each row becomes k times as long
        for rows, p, y in self._some(most_rows, max(1, SPREAD // (k * d))):
            mass += float(p.sum())
            diagonal, products = self._curvatures(self.scores(weights, rows), y, tau, damping)
            rows = np.column_stack([rows, np.full(p.size, self.constant)])
            is_bent = diagonal.max(axis=0) > INTEGRAL
            rows, p = rows[is_bent], p[is_bent]
            for label in range(k):
                bent[label] += (rows.T * (p * diagonal[label, is_bent])) @ rows
            for sign, factor in products:
                factor = (factor[:, is_bent] * np.sqrt(p)).T
                spread = (factor[:, :, np.newaxis] * rows[:, np.newaxis]).reshape(p.size, k * d)
                total += sign * (spread.T @ spread)
        total = total.reshape(k, d, k, d)
        for label in range(k):
            total[label, :, label, :] += bent[label]
        return total / mass

    def label_hessian(self, weights, most_rows):
        """Diagonal blocks of `hessian` for log, one for each label: (n_labels, d + 1, d + 1)."""
        d = self.d + 1
        total, mass = np.zeros((self.k, d, d)), 0.0
        for rows, p, y in self._some(most_rows, self.step):
            mass += float(p.sum())
            diagonal, _ = self._curvatures(self.scores(weights, rows), y, 1.0, 0.0)
            rows = np.column_stack([rows, np.full(p.size, self.constant)])
            for label in range(self.k):
                factor = p * diagonal[label] * (1.0 - diagonal[label])
                total[label] += (rows.T * factor) @ rows
        return total / mass

    def _curvatures(self, scores, y, tau, damping):
        """Second derivatives by the scores of each row: diagonals, and (sign, factor) of products.

        They are diag(diagonal) + sum sign factor factor', for each column of the arrays.
        """
        if self.kind == "absolute":
            low, high = scores - self.levels, scores + self.levels
            _log_partition(low, tau)
            _log_partition(high, tau)
            root = np.sqrt(0.5 / tau)
            return (0.5 / tau) * (low + high), [(-1.0, root * low), (-1.0, root * high)]
        if self.kind == "zero_one":
            threshold = self._threshold(scores)
            flat = scores > threshold
            np.minimum(scores, threshold, out=scores)
        elif self.kind == "max_margin":
            scores += self.cost[y].T
        _log_partition(scores, tau)
        diagonal, products = scores / tau, [(-1.0, scores / np.sqrt(tau))]
        if self.kind == "zero_one":
            # labels above the threshold have one score, which is their mean
            share = (1.0 - damping) * flat
            products.append((1.0, np.sqrt(share * diagonal / flat.sum(axis=0))))
            diagonal = (1.0 - share) * diagonal
        return diagonal, products


class ThresholdLosses(LabelLosses):
    """The same for levels by thresholds, of weights (1, n_features + n_thresholds).

    An example whose features score s has the score v_t = s + c theta_t of being above threshold t.
    With the logistic function of (v - shift_j) / tau, averaged over j, as the probability p of
    being above, the loss of a threshold is

        mean_j tau log(1 + exp((v - shift_j) / tau)) - y v + a number,    y = 1 above it, else 0,

    and its derivative p - y. Shifts are 0 for log, with tau = 1. They are -1 and 1 for max-min.
    For max-margin the shift is 1 above the threshold and -1 below it.
    """

    def __init__(self, surrogate, features, weights):
        shared, _, self.constant = features.arguments()
        self.X, self.rows, self.norms, _, _ = shared.arguments()
        self.kind = kind_of(surrogate)
        outputs = surrogate.outputs
        self.p, self.n, self.d = np.asarray(weights), self.rows.size, self.X.shape[1]
        self.y = outputs.arguments()[0].astype(np.float64)
        self.cost, self.stride = np.asarray(outputs.cost_matrix), outputs.layout.stride
        self.norms = self.norms + self.constant**2
        self.k = self.y.shape[1]
        self.shape, self.size = (1, self.d + self.k), self.k * self.stride
        self.gather(self.k)

    @cached_property
    def share(self):
        return self.p @ self.y

    def means(self, apart):
        return [np.stack([1.0 - on, on], axis=1) for on in (self.share + apart[0], self.share)]

    def concave(self, point):
        off, on = point.T
        if self.kind == "log":
            return float(np.sum(entr(on) + entr(off)))
        if self.kind == "max_margin":
            return float(self.share @ off + (1.0 - self.share) @ on)
        return float(np.sum(np.minimum(on, off)))

    def indicators(self, y):
        return y

    def pull_of(self, point):
        return super().pull_of(point[:, 1]).sum(axis=0, keepdims=True)

    def packed(self, state):
        return np.concatenate([state["weights"][: self.d, 0], state["pairs"][0]])[np.newaxis]

    def unpacked(self, weights, state):
        found = np.zeros(state["weights"].shape)
        found[: self.d, 0] = weights[0, : self.d]
        return {"weights": found, "pairs": np.array(weights[:, self.d :])}

    def scores(self, weights, rows):
        """One row for each row."""
        return (rows @ weights[0, : self.d])[:, np.newaxis] + self.constant * weights[0, self.d :]

    def _shifted(self, scores, y):
        """The scores less each shift."""
        if self.kind == "log":
            return [scores]
        if self.kind == "max_margin":
            return [scores + (1.0 - 2.0 * y)]
        return [scores - 1.0, scores + 1.0]

    def evaluate(self, weights, tau=1.0, mu=None):
        """As `LabelLosses.evaluate`."""
        smooth = loss = height = 0.0
        gradient, d = np.zeros(self.shape), self.d
        for start, stop, rows in self.chunks():
            p, y = self.p[start:stop], self.y[start:stop]
            scores = self.scores(weights, rows)
            shifted, above = self._shifted(scores, y), np.zeros(scores.shape)
            for v in shifted:
                # by numbers of at most one, whatever the temperature
                small = np.exp(-np.abs(v) / tau)
                hard = np.maximum(v, 0.0)
                above += np.where(v >= 0.0, 1.0, small) / ((1.0 + small) * len(shifted))
                smooth += float(p @ (hard + tau * np.log1p(small)).sum(axis=1)) / len(shifted)
                loss += float(p @ hard.sum(axis=1)) / len(shifted)
            true = float(p @ (y * (scores - (self.kind == "max_margin"))).sum(axis=1))
            smooth, loss = smooth - true, loss - true
            if self.kind == "max_margin":
                height += float(p @ np.abs(y - above).sum(axis=1))
            elif self.kind != "log":
                height += float(p @ np.minimum(above, 1.0 - above).sum(axis=1))
            if mu is not None:
                to = mu[start:stop].reshape(stop - start, self.k, self.stride)
                to[:, :, 0], to[:, :, 1], to[:, :, 2:] = 1.0 - above, above, 0.0
            above -= y
            above *= p[:, np.newaxis]
            gradient[0, :d] += above.sum(axis=1) @ rows
            gradient[0, d:] += self.constant * above.sum(axis=0)
        if self.kind == "log":
            loss, height = smooth, smooth - float(np.sum(gradient * weights))
        return smooth, loss, height, gradient

    def keep(self, surrogate, weights, point):
        """Leave the scores of the dual point in the surrogate, and return its entropies by block.

        They are as an evaluation at these weights gives them.
        """
        theta = np.zeros((self.n, self.k, self.stride))
        for start, stop, rows in self.chunks():
            theta[start:stop, :, 1] = self.scores(weights, rows)
        surrogate.restore({
            **surrogate.state(), "theta": theta.ravel(),
            "is_first": np.zeros(self.n, dtype=np.uint8)})
        return entr(point.reshape(self.n, -1)).sum(axis=1)

    def _second(self, most_rows, bends):
        """The mean of second derivatives by the scores of each row, `bends(rows, y)`."""
        total, mass, d = np.zeros((self.shape[1],) * 2), 0.0, self.d
        for rows, p, y in self._some(most_rows, self.step):
            bent = p[:, np.newaxis] * bends(rows, y)
            mass += float(p.sum())
            total[:d, :d] += (rows.T * bent.sum(axis=1)) @ rows
            total[:d, d:] += self.constant * (rows.T @ bent)
            total[d:, d:] += np.diag(self.constant**2 * bent.sum(axis=0))
        total[d:, :d] = total[:d, d:].T
        return total / mass

    def moments(self, most_rows):
        """As `LabelLosses.moments`, of every threshold."""
        return self._second(most_rows, lambda rows, y: np.ones(y.shape))

    def hessian(self, weights, tau=1.0, damping=0.0, most_rows=None):
        """As `LabelLosses.hessian`."""
        def bends(rows, y):
            shifted = self._shifted(self.scores(weights, rows), y)
            above = [expit(v / tau) for v in shifted]
            return sum(q * (1.0 - q) for q in above) / (tau * len(shifted))

        return self._second(most_rows, bends)[np.newaxis, :, np.newaxis]

    def label_hessian(self, weights, most_rows):
        """As `LabelLosses.label_hessian`."""
        return self.hessian(weights, most_rows=most_rows)[:, :, 0]


# line search: share of the slope that a step must gain, most shorter steps, least and largest
# factor between them (Nocedal and Wright, Numerical Optimization, chapter 3)
SUFFICIENT, MOST_TRIES, LEAST_SHARE, MOST_SHARE = 1e-4, 40, 0.2, 0.5
# pairs of differences of quasi-Newton steps (benchmarks/logistic.py)
MEMORY = 20
# second derivatives of the log loss by one label, in units of the second moments: half of the
# upper bound 1 / 2
CURVATURE = 0.25
# most rows for each column in the second moments (benchmarks/logistic.py)
ROWS_A_COLUMN = 16
# quasi-Newton steps before second derivatives replace the metric: of all weights if they cost at
# most so many evaluations, else of each label. Only if the gap exceeds the tolerance by the last
# factor (benchmarks/logistic.py)
LOOK_AGAIN, LOOK_LATER, MOST_EVALUATIONS, FAR = 3, 8, 40, 10.0
# first ridge of a matrix of unit diagonal that is singular by rounding, and its growth
RIDGE, MORE_RIDGE = 1e-13, 100.0
# rows for each column in these derivatives: least, most, and in between the work of so many
# evaluations (benchmarks/logistic.py)
LEAST_ROWS, MOST_ROWS, WORTH = 8, 32, 2.5
# factor of the temperature if a Newton step gains less than this share of the excess by
# smoothing. It stays if smoothing makes up less than the last share of tol (benchmarks/scales.py)
COOLER, SETTLED, SMOOTH_ENOUGH = 0.3, 0.1, 0.5
# damping of Newton steps across kinks: first, and least and most after steps of less than a
# quarter. The factors are those of full and of short steps (benchmarks/scales.py)
DAMPING, LEAST_DAMPING, MOST_DAMPING = 0.03, 1e-3, 0.3
LESS_DAMPING, MORE_DAMPING = 0.3, 10.0
# most weights of Newton steps, most columns under "auto", and most columns for which a row of a
# matrix product is many times cheaper than a visit of a block (benchmarks/logistic.py)
MOST_WEIGHTS, MOST_COLUMNS, FEW_COLUMNS = 2000, 500, 40
# most weights of Newton steps under "auto" if there are fewer blocks (benchmarks/scales.py)
MANY_WEIGHTS = 500
# work in units of that of blocks over columns of one scale: of "log" over few columns
# (benchmarks/logistic.py), and else (benchmarks/scales.py)
LITTLE, MUCH = 0.5, 3.0
# how much longer fits of margins by thresholds take than those of "log" (benchmarks/thresholds.py)
MORE_STEPS = 8.0


class LabelNewton(Solver):
    """Newton and quasi-Newton steps for linear models of single labels.

    A `solver` of `MulticlassClassifier` and `OrdinalClassifier` with ``kernel="linear"`` and
    ``penalty="l2"``. Levels by thresholds may have sparse features. ``solver="auto"`` takes it when
    it is faster: under ``surrogate="log"``, and for features out of scale or with means far from
    zero. Steps depend neither on the scale of columns nor on their correlation. Every pass
    evaluates the objective, or its second derivatives, on all examples. "log" begins with
    quasi-Newton steps (L-BFGS in the metric of second moments). "max_margin" and "max_min" are
    smoothed, less and less, and the gap is certified for the problem without smoothing.

    Parameters
    ----------
    quasi_steps : int, default=80
        Most quasi-Newton steps of "log" before Newton steps, if there are at most 2,000 weights.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from fastm4n import LabelNewton, OrdinalClassifier
    >>> X, y = load_wine(return_X_y=True)  # not scaled: from 0.1 to 1700
    >>> clf = OrdinalClassifier("max_margin", alpha=1e-3, solver=LabelNewton()).fit(X, y)
    >>> bool(clf.relative_gap_ <= 1e-3)
    True
    """

    is_whole: bool = True
    outputs: tuple[Any, str] | None = (
        (SimplexOutputs, LabelOutputs), "MulticlassClassifier and OrdinalClassifier")
    least_share: float = LITTLE

    def __init__(self, quasi_steps: int = 80) -> None:
        self.quasi_steps = quasi_steps

    def check(self) -> None:
        """As in `Solver`."""
        check_number("quasi_steps", self.quasi_steps, low=0, strict=False, integer=True)

    def reason(self, problem: Any) -> str | None:
        """As in `Solver`."""
        loss, features, said = problem.loss, problem.features, problem.said
        if loss.outputs.target is not None:
            return self.refused("needs true labels, and there are soft targets")
        kind = kind_of(loss)
        if kind is None:
            return self.refused(
                "is for surrogate='log' without cost_augmented and temperature, 'max_margin', and "
                "exact oracles of 'max_min' with the costs 'zero_one' or 'absolute', got "
                f"{said('surrogate', 'cost', 'solver__oracle')}")
        by_thresholds = type(features) is ThresholdFeatures
        if type(loss.outputs) is LabelOutputs and not by_thresholds:
            return self.refused(f"is for {self.outputs[1]}, got {problem.taker}")
        rows = features.labels if by_thresholds else features
        if type(rows) is not LinearFeatures:
            return self.refused(f"needs kernel='linear', got {problem.features_in_words()}")
        if not features.has_plain_state():
            return self.refused(f"needs penalty='l2', got {said('penalty')}")
        n_weights = _n_weights(features)
        if n_weights > MOST_WEIGHTS and kind != "log":
            return self.refused(
                f"is for at most {MOST_WEIGHTS} weights under {said('surrogate')}, got {n_weights}")
        if sparse.issparse(rows.X) and (rows.n_features + 1) ** 2 > MADE_DENSE:
            return self.refused(
                f"is for at most {int(MADE_DENSE**0.5) - 1} columns of a sparse X, got "
                f"{rows.n_features}")
        if rows.arguments()[2].max(initial=0.0) > LONGEST:
            return self.refused(
                f"is for rows of X of length at most {LONGEST**0.5:g}", "scale the features")
        return None

    def cost(self, problem: Any, options: Options) -> float:
        """As in `Solver`: `LITTLE` times the work of steps of blocks for "log" over few columns.

        Otherwise it is `MUCH` times that work, less than blocks need for columns out of scale or
        means far from zero. For thresholds it counts a few second derivatives, factors and
        evaluations. Later calls of `partial_fit` continue with steps of blocks.
        """
        features, is_log = problem.features, kind_of(problem.loss) == "log"
        if options.is_warm and problem.pieces.road == "calls":
            return np.inf
        n, n_weights = problem.weights.size, _n_weights(features)
        work = block_work(problem)
        if type(features) is ThresholdFeatures:
            once = n * n_weights**2 / 9 + n_weights**3 / 5 + 180.0 * n * features.pairs.n_pairs
            return once if is_log else max(MUCH * work, MORE_STEPS * once)
        if is_log and features.n_features <= FEW_COLUMNS:
            return LITTLE * work
        is_large = not is_log and n_weights > max(MANY_WEIGHTS, n)
        return np.inf if is_large or features.n_features > MOST_COLUMNS else MUCH * work

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As in `Solver`. max_iter counts passes over all blocks.

        If the problem has no penalty on the intercept, neither has the certificate.
        """
        surrogate, features = problem.loss, problem.features
        weights, alpha, tol = problem.weights, options.alpha, options.gap
        if start is not None:
            # w of an earlier dual point, or what an earlier fit has left
            begin(surrogate, features, weights, alpha, start)
        by_thresholds = type(features) is ThresholdFeatures
        losses = (ThresholdLosses if by_thresholds else LabelLosses)(surrogate, features, weights)
        run = _Run(losses, options, self.quasi_steps, problem.free_intercept is not None, monitor)
        if start is not None:
            run.n_passes = -1  # to look where a fit begins is no pass of it
        begun = losses.packed(features.state())
        if start is not None and "intercepts" in start:
            constants = begun[:, losses.d :]
            constants[...] = start["intercepts"].reshape(constants.shape) / problem.free_intercept
        monitor.follow(run, begun)
        features.restore(losses.unpacked(run.best.weights, features.state()))
        point = None
        if options.keep_dual:
            point = np.empty((losses.n, losses.size))
            losses.evaluate(run.best.weights, run.best.tau, point)
            point = point.ravel()
        certificate, concave = run.certificate, None
        if point is not None and surrogate.has_natural_step:
            # the dual point goes with scores, and its entropy is kept
            concave = losses.keep(surrogate, run.best.weights, point)
        return Solution(
            State.of(alpha, point, concave=concave, average=features.state()),
            certificate, run.n_passes, monitor.arrays(), converged=certificate.gap <= tol,
            interrupted=monitor.interrupted)


def _n_weights(features):
    """The number of weights of a linear map of classes or of thresholds."""
    if type(features) is ThresholdFeatures:
        return features.labels.n_features + features.pairs.n_pairs
    return features.n_labels * (features.n_features + 1)


def _scaled_factor(matrix):
    """L and s with matrix = diag(s) L L' diag(s), up to a ridge if it is indefinite."""
    scale = np.sqrt(np.diagonal(matrix))
    scale[scale == 0.0] = 1.0
    matrix = matrix / scale / scale[:, np.newaxis]
    ridge = 0.0
    while True:
        try:
            return cholesky(matrix, lower=True), scale
        except LinAlgError:
            ridge = max(RIDGE, MORE_RIDGE * ridge)
            matrix[np.diag_indices(len(matrix))] += ridge


class _Point:
    """Weights with their objective, dual point and gradient."""

    def __init__(self, run, weights, tau):
        self.weights, self.tau = weights, tau
        smooth, loss, self.height, self.pull = run.losses.evaluate(weights, tau)
        held = run.penalised * weights
        self.square = float(np.sum(held * weights))
        self.smooth = smooth + 0.5 * run.alpha * self.square
        self.primal = loss + 0.5 * run.alpha * self.square
        self.gradient = self.pull + run.alpha * held


# of the state of a run
NUMBERS = ("n_passes", "number", "damping", "best_primal", "best_dual", "slack", "smoothing")


class _Run:
    """One fit.

    Parameters
    ----------
    losses : LabelLosses
    options : Options
    quasi_steps : int
    free : bool
        Whether the intercept has no penalty.
    """

    writes_as = "label_newton"

    def __init__(self, losses, options, quasi_steps, free, monitor):
        self.losses, self.quasi_steps, self.free = losses, quasi_steps, free
        self.alpha, self.tol, self.max_iter = options.alpha, options.gap, options.max_iter
        self.monitor = monitor
        self.penalised = np.ones(losses.shape[1])
        self.penalised[losses.d :] = not free
        self.n_passes, self.name = 0, "quasi_newton" if losses.kind == "log" else "newton"
        # phi(y) is a dual point of value zero
        self.best_primal, self.best_dual, self.best, self.certificate = np.inf, 0.0, None, None
        # at w = 0, from above; the longest row; see `Certificate.slack`
        self.at_zero, self.slack = options.scale, 0.0
        self.longest = float(np.sqrt(losses.norms.max(initial=0.0)))
        self.damping = DAMPING if losses.kind == "zero_one" else 0.0
        # where steps stand; of quasi-Newton steps how many there were, their pairs, and the metric
        self.at, self.is_done, self.number, self.smoothing = None, False, 0, 0.0
        self.pairs = deque(maxlen=MEMORY)
        self.multiplied = self.metric_at = self.metric_is_whole = None

    def point(self, weights, tau):
        self.n_passes += 1
        return _Point(self, weights, tau)

    # ------------------------------------------------------------------------- certificates

    def dual_point(self, point):
        """sum_b p_b h_b and the sum of squares of alpha w(mu) at the dual point of `point`.

        Without a penalty on the intercept they belong to the balanced point, by concavity of h.
        """
        height, pull = point.height, point.pull
        if self.free:
            height, pull = self.losses.balanced(height, pull)
        return float(height), float(np.sum(pull * pull))

    def told(self, point):
        """Certify a point, and return whether the run ends."""
        scores = self.longest * float(np.sqrt(np.sum(point.weights * point.weights)))
        self.slack = max(self.slack, OF_SCORES * scores)
        if self.best is None or point.primal < self.best_primal:
            self.best_primal, self.best = point.primal, point
        height, square = self.dual_point(point)
        if self.losses.kind != "log":
            self.smoothing = self.share_of_smoothing(point)
        self.best_dual = max(self.best_dual, scaled_dual(height, square / (2.0 * self.alpha)))
        self.certify(height)
        stop = self.monitor.report(
            self.n_passes, self.certificate, self.name, self.n_passes * self.losses.n)
        return stop or self.certificate.gap <= self.tol or self.n_passes >= self.max_iter

    def certify(self, height):
        """The certificate of the best weights and the best dual value."""
        primal, dual = self.best_primal, self.best_dual
        if not np.isfinite(primal):
            primal, dual = np.inf, 0.0
        self.certificate = Certificate(
            primal=primal, dual=dual, gap=checked_gap(primal, dual, self.slack),
            block_gaps=np.zeros(self.losses.n), norm=self.best.square, bound=dual, height=height)

    def share_of_smoothing(self, point):
        """The gap at this point if the gradient were zero."""
        # of the gap of the smoothed problem, <w, pull> and the two penalties make up a square
        pull, free = self.penalised * point.pull, (1.0 - self.penalised) * point.pull
        held = self.penalised * point.gradient
        squares = float(np.sum(held * held)) - float(np.sum(pull * pull))
        return point.primal - point.height - squares / (2.0 * self.alpha) - float(
            np.sum(free * point.weights))

    # ------------------------------------------------------------------------- steps

    def begin(self, weights):
        """Look at the weights that the passes begin at."""
        is_log = self.losses.kind == "log"
        tau = 1.0 if is_log else float(dearest_of(self.losses.cost).max()) or 1.0
        self.at = self.point(weights, tau)
        self.is_done = self.told(self.at)
        if np.any(weights) and self.at.primal > self.at_zero:
            # where an earlier fit has ended is no place to begin
            self.at = self.point(np.zeros(weights.shape), tau)
            self.is_done = self.told(self.at)
        if not is_log or self.quasi_steps == 0:
            self.go_over()

    def go_over(self):
        """Newton steps from here on, if there are not too many weights."""
        self.name = "newton"
        self.is_done = self.is_done or self.at.weights.size > MOST_WEIGHTS

    def step(self):
        if self.name == "newton":
            self.newton()
        else:
            self.quasi_newton()

    def state(self):
        """A flat dict of arrays for `restore`."""
        best, c = self.best, self.certificate
        numbers = self.name == "newton", self.at.tau, best.tau, c.height
        return {
            "run": packed(self, NUMBERS), "numbers": np.array(numbers), "at": self.at.weights,
            "best": best.weights,
            **flat("metric", {} if self.metric_at is None else {
                "at": self.metric_at, "is_whole": np.array(self.metric_is_whole)}),
            **flat("pairs", listed(
                {"moved": moved["w"], "turned": turned["w"]} for moved, turned, _ in self.pairs)),
        }

    def restore(self, state):
        """Bring back what `state` gave."""
        shape = np.zeros(self.losses.shape)
        is_newton, tau, best_tau, height = state["numbers"].tolist()
        self.at = _Point(self, checked(shape, "at", state), tau)
        self.best = _Point(self, checked(shape, "best", state), best_tau)
        unpack(self, NUMBERS, state["run"])
        self.is_done = False
        metric = part("metric", state)
        if metric:
            self.use_second(checked(shape, "at", metric), bool(metric["is_whole"]))
        for pair in items_of("pairs", state):
            keep_pair(
                self.pairs, *({"w": checked(shape, name, pair)} for name in ("moved", "turned")))
        self.certify(height)
        self.name = "newton" if is_newton else "quasi_newton"

    def search(self, at, step):
        """`at` moved by step, or by a share of it. None if only rounding remains."""
        slope, size = float(np.sum(at.gradient * step)), 1.0
        if -slope <= ROUNDING * abs(at.smooth):
            # objectives do not tell the points apart, and gradients, of which dual values are, do
            to = self.point(at.weights + step, at.tau)
            return to if np.sum(to.gradient**2) < np.sum(at.gradient**2) else None
        for tries in range(MOST_TRIES):
            to = self.point(at.weights + size * step, at.tau)
            if to.smooth < at.smooth and to.smooth <= at.smooth + SUFFICIENT * size * slope:
                if tries == 0:
                    self.damping *= LESS_DAMPING
                elif size < 0.25 and self.damping > 0.0:
                    self.damping = min(
                        MOST_DAMPING, MORE_DAMPING * max(LEAST_DAMPING, self.damping))
                return to
            if self.n_passes >= self.max_iter:
                break
            # where a parabola through both values has its least
            bend = to.smooth - at.smooth - size * slope
            least = -0.5 * slope * size / bend if 0.0 < bend < np.inf else 0.0
            size *= min(MOST_SHARE, max(LEAST_SHARE, least))
        return None

    def _inverse(self, matrix):
        factor, scale = _scaled_factor(matrix)
        root = solve_triangular(factor, np.diag(1.0 / scale), lower=True)
        return root.T @ root

    def look_for_second(self):
        """Take second derivatives for the metric where it is time and they pay."""
        losses, (k, d) = self.losses, self.at.weights.shape
        rows = self.rows_of_second()
        work = rows * (k * d) ** 2 + (k * d) ** 3 / 3
        is_whole = work <= MOST_EVALUATIONS * 2 * losses.n * k * d
        if self.number != (LOOK_AGAIN if is_whole else LOOK_LATER):
            return
        if self.certificate.gap > FAR * self.tol:
            self.use_second(self.at.weights, is_whole)
            self.pairs.clear()

    def rows_of_second(self):
        k, d = self.losses.shape
        rows = int(WORTH * 4 * self.losses.n / (k * d))
        return min(self.losses.n, MOST_ROWS * d, max(LEAST_ROWS * d, rows))

    def use_second(self, weights, is_whole):
        """Use second derivatives at these weights as the metric, for all weights or by label."""
        losses, rows = self.losses, self.rows_of_second()
        self.metric_at, self.metric_is_whole = weights, is_whole
        if is_whole:
            factor = self.factor(losses.hessian(weights, most_rows=rows))
            self.multiplied = lambda found: {"w": self.solved(factor, found["w"])}
            return
        blocks = losses.label_hessian(weights, rows) + np.diag(self.alpha * self.penalised)
        inverses = np.stack([self._inverse(block) for block in blocks])
        self.multiplied = lambda found: {"w": (found["w"][:, np.newaxis] @ inverses)[:, 0]}

    def quasi_newton(self):
        """A step of L-BFGS in the metric of second moments, and later of second derivatives."""
        if self.number == self.quasi_steps and self.at.weights.size <= MOST_WEIGHTS:
            return self.go_over()
        if self.multiplied is None:
            # the first approximation of the Hessian, of each label
            bound = CURVATURE * self.losses.moments(ROWS_A_COLUMN * self.losses.shape[1])
            inverse = self._inverse(bound + np.diag(self.alpha * self.penalised))
            self.multiplied = lambda found: {"w": found["w"] @ inverse}
        self.look_for_second()
        at = self.at
        step = direction({"w": at.gradient}, self.pairs, self.multiplied, cautious=False)["w"]
        to = self.search(at, step)
        self.number += 1
        if to is None:
            self.is_done = self.n_passes >= self.max_iter
            return self.go_over()
        self.at, self.is_done = to, self.told(to)
        keep_pair(self.pairs, {"w": to.weights - at.weights}, {"w": to.gradient - at.gradient})

    def newton(self):
        """A Newton step. The temperature falls if the step gains little compared with smoothing."""
        if self.n_passes + 2 > self.max_iter:
            self.is_done = True
            return
        self.n_passes += 1
        hessian = self.losses.hessian(self.at.weights, self.at.tau, self.damping)
        step = -self.solved(self.factor(hessian), self.at.gradient)
        gain = -0.5 * float(np.sum(step * self.at.gradient))
        to = self.search(self.at, step)
        if to is not None:
            self.at = to
            if self.told(to):
                self.is_done = True
                return
        if self.losses.kind != "log" and self.smoothing > SMOOTH_ENOUGH * self.tol:
            if to is None or gain <= SETTLED * max(0.0, self.at.smooth - self.at.primal):
                self.at = self.point(self.at.weights, COOLER * self.at.tau)
                self.is_done = self.told(self.at)
        elif to is None:
            self.is_done = True

    def factor(self, hessian):
        """The factor of second derivatives of the mean loss and the penalty."""
        k, d = hessian.shape[:2]
        if k > 1:
            # losses do not change if all labels move alike: steps have no such part, and this term
            # keeps the matrix regular
            hessian += np.einsum("jajb->ab", hessian)[:, np.newaxis] / k**2
        hessian = hessian.reshape(k * d, k * d)
        hessian[np.diag_indices(k * d)] += np.tile(self.alpha * self.penalised, k)
        return _scaled_factor(hessian)

    def solved(self, factor, found):
        """The inverse of a matrix of all weights, given by its factor, times `found`."""
        factor, scale = factor
        solution = cho_solve((factor, True), found.ravel() / scale, check_finite=False) / scale
        return solution.reshape(found.shape)
