"""Losses of single labels over dense rows, smoothed by a temperature, with two derivatives.

The loss of a row with scores v and label y is max over the simplex of h(mu) + <v, mu - phi(y)>.
With tau times an entropy added it is smooth, no less, and no more than tau log k above:

    log         logZ(v) - v_y; tau is 1, and h the entropy itself
    max-margin  tau logZ((v + c_y) / tau) - v_y, c_y the costs where y is true
    max-min     0-1 cost: 1 + tau logZ(min(v, t) / tau) - v_y with sum_j (v_j - t)_+ = 1: the
                adversary's best mixture under the entropy is (v - t)_+ for every tau
                absolute cost: half of tau logZ((v - i) / tau) + tau logZ((v + i) / tau), less v_y,
                i = 0 ... k - 1: the mean of two softmaxes, tilted to lower and to higher levels

The gradient by v is mu - phi(y), mu being a point of the simplex. So every evaluation gives a dual
point with h(mu), that of the problem without smoothing, beside the losses that are not smoothed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.outputs import SimplexOutputs
from fastm4n.outputs._simplex import closed_form
from fastm4n.surrogates import Log, MaxMargin, MaxMin

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from numpy.typing import NDArray

    from fastm4n.base.types import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

# numbers of scores that are worked on at a time, about, and least rows
AT_ONCE, LEAST_ROWS = 1 << 14, 64
# numbers of rows that are copied once, at most
GATHERED = 1 << 21
# numbers of rows multiplied by their scores at a time, about
SPREAD = 1 << 18
# a row whose second derivatives are less than this has none
INTEGRAL = 1e-12


def kind_of(surrogate: Surrogate) -> str | None:
    """Which of the losses above a surrogate is; None for others."""
    outputs = surrogate.outputs
    if type(outputs) is not SimplexOutputs:
        return None
    if type(surrogate) is Log:
        return "log" if surrogate.arguments()[1:] == (False, 1.0) else None
    if type(surrogate) is MaxMargin:
        return "max_margin"
    return closed_form(outputs.cost_matrix) if type(surrogate) is MaxMin else None


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

    The last column is of the constant feature, and is there even where that is zero.

    Parameters
    ----------
    surrogate : Log, MaxMargin or MaxMin
        With a `kind_of`.
    features : LinearFeatures
        Over dense X.
    weights : ndarray of shape (n_blocks,)
        p_b.
    """

    rows: NDArray[np.int64]
    norms: FloatArray
    k: int
    constant: float
    kind: str
    p: FloatArray
    n: int
    d: int
    y: NDArray[np.int64]
    cost: FloatArray
    levels: FloatArray
    step: int
    gathered: FloatArray | None

    def __init__(self, surrogate: Surrogate, features: FeatureMap, weights: FloatArray) -> None:
        X, self.rows, self.norms, self.k, self.constant = features.arguments()
        self.kind = kind_of(surrogate)
        self.X, self.p, self.n, self.d = X, np.asarray(weights), self.rows.size, X.shape[1]
        self.y = surrogate.outputs.truth().reshape(self.n, self.k).argmax(axis=1)
        self.cost = np.asarray(surrogate.outputs.cost_matrix)
        if self.kind == "absolute":  # of products with it
            self.cost = np.ascontiguousarray(self.cost)
        self.levels = np.arange(self.k, dtype=np.float64)[:, np.newaxis]
        self.step = max(LEAST_ROWS, AT_ONCE // self.k)
        # copies of the rows in the order of the blocks where they are not many
        self.gathered = None
        if self.n * self.d <= GATHERED:
            self.gathered = self._rows(slice(None))

    def chunks(self) -> Iterator[Any]:
        """Ranges of blocks, with their rows in double precision."""
        for start in range(0, self.n, self.step):
            stop = min(self.n, start + self.step)
            if self.gathered is not None:
                yield start, stop, self.gathered[start:stop]
            else:
                yield start, stop, self._rows(slice(start, stop))

    def _rows(self, some):
        return np.asarray(self.X[self.rows[some]], dtype=np.float64)

    def _some(self, most_rows, at_once):
        """Rows, weights and labels of every so many blocks, of all by default, some at a time."""
        every = 1 if most_rows is None else -(-self.n // most_rows)
        for start in range(0, self.n, at_once * every):
            some = slice(start, start + at_once * every, every)
            rows = self._rows(some) if self.gathered is None else self.gathered[some]
            yield rows, self.p[some], self.y[some]

    def scores(self, weights: FloatArray, rows: Any) -> FloatArray:
        """One column for each row."""
        scores = weights[:, : self.d] @ rows.T
        scores += self.constant * weights[:, self.d :]
        return scores

    def moments(self, most_rows: int | None) -> FloatArray:
        """The mean of x_b x_b', with the constant feature, of every so many blocks as below."""
        total, mass = np.zeros((self.d + 1, self.d + 1)), 0.0
        for rows, p, _ in self._some(most_rows, self.step):
            total[: self.d, : self.d] += (rows.T * p) @ rows
            total[self.d, : self.d] += self.constant * (p @ rows)
            mass += float(p.sum())
        total[self.d, self.d] = self.constant**2 * mass
        total[: self.d, self.d] = total[self.d, : self.d]
        return total / mass

    def concave(self, point: FloatArray) -> float:
        """sum_b p_b h_b(point), one point of the simplex for all blocks."""
        if self.kind == "log":
            inside = point[point > 0.0]
            return -float(np.sum(inside * np.log(inside)))
        if self.kind == "zero_one":
            return 1.0 - float(point.max())
        if self.kind == "absolute":
            return float((self.cost.T @ point).min())
        return float(self.share() @ (np.ascontiguousarray(self.cost) @ point))

    def share(self) -> FloatArray:
        """sum_b p_b phi(y_b)."""
        return np.bincount(self.y, weights=self.p, minlength=self.k)

    def pull_of(self, point: FloatArray) -> FloatArray:
        """sum_b p_b (point - phi(y_b)) x_b', one point for all blocks, but for the constant."""
        total = np.zeros((self.k, self.d))
        for start, stop, rows in self.chunks():
            apart = np.repeat(point[:, np.newaxis], stop - start, axis=1)
            apart[self.y[start:stop], np.arange(stop - start)] -= 1.0
            total += (apart * self.p[start:stop]) @ rows
        return total

    def evaluate(
        self, weights: FloatArray, tau: float = 1.0, mu: FloatArray | None = None,
    ) -> tuple[float, float, float, FloatArray]:
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
            Of smoothed losses, those that are not, and h(mu).
        gradient : ndarray of the shape of weights
            Of `smooth`.
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
            gradient[:, : self.d] += point @ rows
            gradient[:, self.d] += point.sum(axis=1)
        gradient[:, self.d] *= self.constant
        if self.kind == "log":
            # h_b = logZ_b - <v_b, mu_b>, and sum_b p_b <v_b, mu_b - phi_b> = <w, gradient>
            loss, height = smooth, smooth - float(np.sum(gradient * weights))
        return smooth, loss, height, gradient

    def _losses(self, scores, y, tau):
        """Losses without the true score, smoothed, h(mu) and mu; of log the second and last."""
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

    def hessian(
        self, weights: FloatArray, tau: float = 1.0, damping: float = 0.0,
        most_rows: int | None = None,
    ) -> FloatArray:
        """Second derivatives of `smooth`: (n_labels, n_features + 1, n_labels, n_features + 1).

        Of max-min with the 0-1 cost, which has kinks, it is that of the piece that weights lie on,
        mixed with a share `damping` of what bounds that of all pieces from above. With most_rows it
        is the mean of every so many blocks where all are more.
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

    def label_hessian(self, weights: FloatArray, most_rows: int | None) -> FloatArray:
        """Of log, the part of `hessian` that is of one label: (n_labels, d + 1, d + 1)."""
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
