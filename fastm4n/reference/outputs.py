"""The surrogates of a block, for outputs of any kind: h and the oracle.

Every surrogate loss is a Fenchel-Young loss given by a concave function h on the marginal polytope
that vanishes at the truth phi(y) ([1]_, equations 9 to 11), and an oracle of a block solves
max_mu h(mu) + <v, mu>.  The loss of an output of T positions is the mean of its positions' costs,
L(y, y') = (1 / T) sum_t cost[y_t, y'_t], and with mu_t for the marginals of position t

====================  ==================================  =======================
surrogate             h(mu)                               model
====================  ==================================  =======================
``"max_margin"``      (1 / T) sum_t <cost[y_t], mu_t>     M3N, structural SVM
``"max_min"``         (1 / T) min_y' sum_t (cost' mu_t)   M4N
                      at y'_t
``"log"``             entropy of a distribution over      CRF, logistic regression
                      outputs with the marginals mu
``"softmax_margin"``  tau times that entropy, and what    VCRF [2]_, softmax-margin
                      "max_margin" has
====================  ==================================  =======================

Labels have one position. The labels of y' are chosen independently in sequences, and jointly in
permutations. Classes derived from `Outputs` implement the kinds: `SimplexOutputs`, `ChainOutputs`
and `PermutationOutputs`. Scores v and points mu are tuples of arrays, the marginals of positions
first.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] C. Cortes, V. Kuznetsov, M. Mohri and S. Yang, "Structured prediction theory based on factor
   graph complexity", NIPS 2016, equation 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.simplex import SURROGATES, _dot

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import NDArray

    from fastm4n.base.types import Cost, FloatArray, Parts


class Outputs:
    """The oracles of blocks of one kind of outputs. Derived classes have no instances."""

    @classmethod
    def best(cls, v: Any) -> Any:
        """(phi, value) of max_y <v, phi(y)>, phi being a tuple: inference ([1]_, equation 4)."""
        raise NotImplementedError

    @classmethod
    def gibbs(cls, v: Any) -> Any:
        """``(*mu, entropy, log-partition)`` of q(y) ~ exp <v, phi(y)> over outputs.

        mu maximises entropy + <v, mu>, and the maximum is the log-partition.
        """
        raise NotImplementedError

    @classmethod
    def game(cls, v: Any, cost: Cost, tol: float) -> Any:
        """(mu, upper) of the max-min oracle ([1]_, equation 14), exact or up to about tol."""
        raise NotImplementedError

    @classmethod
    def entropy(cls, *mu: Any) -> Any:
        """The entropy, if mu determines it."""
        raise ValueError("the entropy does not follow from mu: gibbs returns it.")

    @classmethod
    def least_cost(cls, costs: FloatArray) -> float:
        """min_y' (1 / T) sum_t costs[t, y'_t], each position choosing for itself."""
        return np.mean(np.min(costs, axis=1))

    @classmethod
    def concave_part(
        cls, mu: Parts, surrogate: Literal["max_margin", "max_min", "log", "softmax_margin"],
        y: NDArray[np.int64] | int | None = None, cost: FloatArray | None = None,
        temperature: float = 1.0,
    ) -> float:
        """h(mu), the concave function that makes the surrogate.

        Parameters
        ----------
        mu : tuple of arrays
        surrogate : {"max_margin", "max_min", "log", "softmax_margin"}
        y : int, or array of int of shape (T,)
            The truth, used by "max_margin" and "softmax_margin".
        cost : array of shape (k, k)
            Not used by "log".
        temperature : float
            Used by "softmax_margin".

        Returns
        -------
        h : float

        Examples
        --------
        >>> from fastm4n.reference import ChainOutputs, SimplexOutputs
        >>> mu, cost = np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[0.0, 1.0], [3.0, 0.0]])
        >>> ChainOutputs.concave_part((mu,), "max_margin", [1, 0], cost)
        0.75
        >>> SimplexOutputs.concave_part((mu[0],), "max_min", cost=cost)
        0.5
        """
        marginals = np.atleast_2d(mu[0])
        if surrogate == "max_margin":
            return float(np.sum(cost[np.asarray(y)] * marginals) / len(marginals))
        if surrogate == "max_min":
            return float(cls.least_cost(marginals @ cost))
        if surrogate == "log":
            return cls.entropy(*mu)
        if surrogate == "softmax_margin":
            return temperature * cls.entropy(*mu) + cls.concave_part(mu, "max_margin", y, cost)
        raise ValueError(f"surrogate must be one of {SURROGATES}, got {surrogate!r}")

    @classmethod
    def oracle(
        cls, v: Parts, surrogate: Literal["max_margin", "max_min", "log", "softmax_margin"],
        y: NDArray[np.int64] | int | None = None, cost: FloatArray | None = None, tol: float = 1e-9,
        temperature: float = 1.0,
    ) -> Parts:
        """max_mu h(mu) + <v, mu> over the polytope, with what a certificate needs.

        Parameters
        ----------
        v : tuple of arrays
        surrogate : {"max_margin", "max_min", "log", "softmax_margin"}
        y : int, or array of int of shape (T,)
            The truth, used by "max_margin", loss-augmented inference ([1]_, equation 9), and
            "softmax_margin".
        cost : array of shape (k, k)
            Not used by "log".
        tol : float
            Accuracy of "max_min" for sequences.
        temperature : float
            Used by "softmax_margin".

        Returns
        -------
        *s : arrays
            A maximiser.
        h : float
            h(s).
        upper : float
            An upper bound on the maximum.

        Examples
        --------
        >>> from fastm4n.reference import PermutationOutputs, SimplexOutputs
        >>> cost = 1 - np.eye(2)
        >>> s, h, upper = SimplexOutputs.oracle((np.array([1.0, 0.75]),), "max_min", 0, cost)
        >>> s.tolist(), h, upper
        ([0.5, 0.5], 0.5, 1.375)
        >>> v = np.array([[0.0, 0.25], [0.5, 0.0]]),
        >>> s, h, upper = PermutationOutputs.oracle(v, "max_margin", [0, 1], cost)
        >>> s.tolist(), h, upper
        ([[0.0, 1.0], [1.0, 0.0]], 1.0, 1.75)
        """
        if surrogate in ("max_margin", "softmax_margin"):
            costs = cost[np.asarray(y)]
            v = (v[0] + costs / (len(costs) if costs.ndim > 1 else 1), *v[1:])
        if surrogate == "max_margin":
            s, upper = cls.best(v)
        elif surrogate == "softmax_margin":
            *s, h, log_partition = cls.gibbs(tuple(part / temperature for part in v))
            h = temperature * h + cls.concave_part(s, "max_margin", y, cost)
            return *s, h, temperature * log_partition
        elif surrogate == "log":
            return cls.gibbs(v)
        elif surrogate == "max_min":
            s, upper = cls.game(v, cost, tol)
        else:
            raise ValueError(f"surrogate must be one of {SURROGATES}, got {surrogate!r}")
        return *s, cls.concave_part(s, surrogate, y, cost), float(upper)

    @classmethod
    def bounds(cls, v: Parts, cost: FloatArray, mu: Parts, nu: FloatArray) -> tuple[float, float]:
        """Bounds on the value of the max-min problem from any feasible mu and nu.

        For the game  max_mu min_nu (1 / T) sum_t mu_t' cost nu_t + <v, mu>,

            lower = h(mu) + <v, mu>  <=  value
            value <= max_y <v, phi(y)> + (1 / T) sum_t (cost nu_t)[y_t] = upper.

        Parameters
        ----------
        v, mu : tuples of arrays
        cost : array of shape (k, k)
        nu : array of shape (T, k)

        Returns
        -------
        lower, upper : float

        Examples
        --------
        >>> from fastm4n.reference import PermutationOutputs
        >>> half = np.full((2, 2), 0.5)
        >>> PermutationOutputs.bounds((np.zeros((2, 2)),), 1 - np.eye(2), (half,), half)
        (0.5, 0.5)
        """
        lower = cls.concave_part(mu, "max_min", cost=cost)
        for scores, part in zip(v, mu, strict=True):
            lower += _dot(np.broadcast_to(scores, part.shape), part)
        upper = cls.best((v[0] + nu @ cost.T / len(nu), *v[1:]))[1]
        return lower, float(upper)
