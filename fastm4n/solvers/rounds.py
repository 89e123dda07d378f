"""The driver of a fit over several workers: rounds, line search, momentum, one certificate.

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

import time
from dataclasses import dataclass

import numpy as np

from fastm4n.fleets import Lost, NoMember
from fastm4n.solvers.certificates import ROUNDING, Certificate
from fastm4n.solvers.worker import Vectors, n_bytes

ROUND_KEYS = (
    "round", "primal", "dual", "gap", "seconds", "bytes", "visits", "sigma", "kappa", "step",
    "lost",
)


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

    z: dict
    certificate: Certificate
    n_rounds: int
    history: dict
    converged: bool
    interrupted: bool


class Omega:
    """The penalty of a flat vector: Omega, its conjugate, and the divergence of two points."""

    def __init__(self, vectors, penalties):
        self.vectors, self.penalties = vectors, penalties

    def _prox(self, z):
        w = z.copy()
        for name, penalty in self.penalties.items():
            penalty.prox(self.vectors.views(z)[name], self.vectors.views(w)[name])
        return w

    def value(self, z):
        """Omega(prox(z))."""
        if not self.penalties:
            return self.conjugate(z)
        return self._sum(lambda penalty, w: penalty.value(w), self._prox(z))

    def conjugate(self, z):
        """Omega*(z)."""
        if not self.penalties:
            return 0.5 * float(np.sum(z * z))
        return self._sum(lambda penalty, *both: penalty.conjugate(*both), z, self._prox(z))

    def divergence(self, at, z):
        """Omega(w) + Omega*(z) - <w, z> >= 0 for w = prox(at)."""
        if not self.penalties:
            return 0.5 * float(np.sum((at - z) ** 2))
        return self._sum(
            lambda penalty, *three: penalty.divergence(*three), self._prox(at), z, self._prox(z))

    def _sum(self, function, *vectors):
        """The sum over the arrays; one without a penalty has ||w||^2 / 2."""
        total = 0.0
        views = [self.vectors.views(vector) for vector in vectors]
        for name in self.vectors.shapes:
            total += function(self.penalties[name], *(view[name] for view in views))
        return total
