"""What the points of accelerated passes say together: a bound, and an average over the long run.

Momentum makes points swing around the optimum, over more and more passes as alpha gets smaller.
Single dual points are far below the optimum most of the time, and averages of a few passes above
it.  Mixtures of the dual points of many certificates bound it much better (`Planes`), and so does
the objective at the average of the points of about the last quarter of all certificates.
"""

import numpy as np

from fastm4n._plain import checked, flat, part
from fastm4n.solvers.planes import Planes
from fastm4n.solvers.threads import by_pieces

# dual points that bounds are made of, and their numbers at most
MOST_PLANES, MOST_NUMBERS = 30, 1 << 21
# the average is of about the last of this many equal parts of all certificates: that of N points
# gives the k-th a weight of about k^(PARTS - 1)
PARTS = 4.0
# certificates before the first look at the average, and most between two looks
FIRST_LOOK, MOST_WAIT = 5, 8


class Mixtures:
    """Mixtures of the points that were certified of accelerated passes.

    Parameters
    ----------
    alpha : float
    size : int
        Numbers of the weights.
    """

    def __init__(self, alpha, size):
        self.planes = Planes(alpha, max(2, min(MOST_PLANES, MOST_NUMBERS // max(1, size))))
        self.average = None
        self.n_points = 0
        self.wait, self.since_look = FIRST_LOOK, 0

    @staticmethod
    def pays(engine):
        """Whether w is a linear function of dual points that is zero at phi(y), and not long."""
        features, surrogate = engine.features, engine.surrogate
        if surrogate.is_smooth or features.weight_norm() is None or features.has_offset or (
                features.has_penalty() or not features.has_plain_state()):
            return False
        size = sum(array.size for array in features.held().values())
        return FIRST_LOOK * size <= MOST_NUMBERS

    def add(self, height, of_mu, point, n_jobs=1):
        """Take in a dual point, by sum_b p_b h_b and w of it, and a point: lists of arrays."""
        flat_one = np.concatenate([array.ravel() for array in of_mu])
        if np.isfinite(height) and np.all(np.isfinite(flat_one)):
            self.planes.add(height, flat_one, _inner)
        self.n_points += 1
        if self.average is None:
            self.average = [array.copy() for array in point]
            return
        share = PARTS / (self.n_points + PARTS - 1.0)

        def move(mean, w):
            mean += share * (w - mean)

        by_pieces(move, n_jobs, self.average, point)

    def bound(self):
        """A lower bound of the optimum."""
        return self.planes.bound() if self.planes.points else 0.0

    def is_due(self):
        """Whether the average is worth a certificate now."""
        self.since_look += 1
        return self.since_look > self.wait

    def compared(self, was_better):
        """Take notice of whether the average was better than all points so far."""
        self.since_look = 0
        self.wait = 0 if was_better else min(MOST_WAIT, 2 * self.wait + 1)

    def state(self):
        """Copies of all that later bounds and looks depend on, for `restored`."""
        planes = self.planes
        numbers = (planes.alpha, planes.size, self.n_points, self.wait, self.since_look)
        size = planes.points[0].size if planes.points else 0
        return {
            "numbers": np.array(numbers, dtype=np.float64),
            "points": np.array(planes.points, dtype=np.float64).reshape(len(planes.points), size),
            "of_points": np.array([planes.heights, planes.shares, planes.unused]),
            "products": planes.products.copy(),
            **flat("average", {str(i): array.copy() for i, array in enumerate(self.average or ())}),
        }

    @classmethod
    def restored(cls, state, forms):
        """Mixtures as they were when `state` was taken; forms are arrays like the average's."""
        self = cls.__new__(cls)
        alpha, size, n_points, wait, since = state["numbers"].tolist()
        self.planes = planes = Planes(alpha, int(size))
        self.n_points, self.wait, self.since_look = int(n_points), int(wait), int(since)
        planes.points = [np.array(row) for row in state["points"]]
        n = len(planes.points)
        planes.heights, planes.shares, planes.unused = np.array(
            checked(np.zeros((3, n)), "of_points", state))
        planes.entropies = np.zeros(n)
        planes.products = checked(np.zeros((n, n)), "products", state).copy()
        arrays = part("average", state)
        self.average = None
        if arrays:
            self.average = [
                checked(form, str(i), arrays).copy() for i, form in enumerate(forms)]
        return self


def _inner(one, other):
    # no BLAS, whose bits depend on its threads
    return float(np.sum(one * other))
