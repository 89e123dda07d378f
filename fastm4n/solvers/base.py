"""What a solver of one problem is given, what it returns, and how it says that it cannot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from fastm4n.base.checks import NamesParameters

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.base.types import FloatArray
    from fastm4n.solvers.certificates import Certificate


class Average(NamedTuple):
    """Weights that are not w(mu) of the dual point, where a later fit goes on.

    Attributes
    ----------
    weights : dict
        A state of the feature map.
    curvature : float
        The mean curvature of the blocks; the strength of the centre for proximal points.
    alpha : float
        The regularisation that they were fitted under.
    is_proximal : bool
        Whether proximal points left them.
    """

    weights: dict[str, FloatArray]
    curvature: float
    alpha: float
    is_proximal: bool = False


@dataclass
class Solution:
    """What a solver returns: a feasible dual point and a certificate of the weights.

    `mu` is empty if the dual point was not held, see `can_be_told`; `intercepts` are those of a
    problem without a penalty on them, which the features do not hold.
    """

    mu: np.ndarray
    certificate: Certificate
    n_iter: int
    history: dict[str, Any]
    converged: bool
    interrupted: bool
    average: Average | None = None
    intercepts: FloatArray | None = None


@dataclass(frozen=True)
class Options:
    """How one problem is to be solved.

    Attributes
    ----------
    alpha : float
        Regularisation.
    tol : float
        The relative gap to reach.
    scale : float
        The objective at zero weights, which `tol` is a share of.
    max_iter, seed, n_jobs, verbose, callback
        As in the estimators.
    auto : bool
        Whether ``solver="auto"`` was asked for.
    keep_dual : bool
        Whether a later fit goes on from the dual point, which must then be returned.
    """

    alpha: float
    tol: float
    scale: float
    max_iter: int
    seed: int
    n_jobs: int
    verbose: int
    callback: Callable[..., Any] | None
    auto: bool
    keep_dual: bool

    @property
    def gap(self) -> float:
        """The absolute gap to reach."""
        return self.tol * self.scale


class Solver(NamesParameters, BaseEstimator):
    """Base of what the parameter `solver` of the estimators takes.

    A subclass has `check`, `refusal` and `solve`. Subclasses are registered when they are defined:
    `Solver.known` holds them by name.
    """

    known: dict[str, type[Solver]] = {}

    # options by which the table of cells knows it, see `fastm4n.estimators._cells`: beside the
    # default ones those that make another method of it
    variants: tuple[dict[str, Any], ...] = ({},)
    # how max-min oracles are solved
    oracle: str = "exact"
    oracle_iter: int | None = None
    # whether a regularisation path can be made of its passes, and rounds over partitions
    follows_paths: bool = False
    solves_parts: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Solver.known[cls.__name__] = cls

    def check(self) -> None:
        """Raise a ValueError for options that make no sense by themselves."""

    def refusal(self, problem: Any) -> str | None:
        """Why this solver cannot solve a problem, in a sentence; None if it can.

        Parameters
        ----------
        problem : Problem
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `refusal`.")

    def solve(self, problem: Any, options: Options, **start: Any) -> Solution:
        """Minimise until the gap is certified to be at most ``options.gap``.

        Parameters
        ----------
        problem : Problem
            One that `refusal` does not refuse. Its features are left with the weights.
        options : Options
        **start
            What an earlier solution left, as `Problem.start` gives it: `mu`, `concave`, `shrink`
            and `average`.

        Returns
        -------
        solution : Solution
            After Ctrl-C the best that was certified until then, `interrupted` being set.

        Raises
        ------
        KeyboardInterrupt
            If nothing was certified before Ctrl-C.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `solve`.")

    def refused(self, what: str, instead: str = "use solver='auto'") -> str:
        """A refusal: "solver=QuasiNewton() <what>; <instead>."."""
        return f"solver={type(self).__name__}() {what}; {instead}."
