"""The interface of solvers: `Solver`, its `Options`, and the `State` and `Solution` it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from fastm4n.base.arrays import flat, part
from fastm4n.base.checks import NamesParameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastm4n.base.types import FloatArray
    from fastm4n.solvers.certificates import Certificate
    from fastm4n.solvers.monitor import Monitor


class State(dict[str, Any]):
    """A flat dict of named arrays from which a later solve starts.

    Solvers return it in their `Solution` and take it as `start`. Every entry may be missing:

    - ``mu``: the dual point, flat, in the layout of the outputs.
    - ``alpha``: the regularisation of `mu`, an array without dimensions.
    - ``concave``: lower bounds of h_b(mu_b), for surrogates that cannot compute them from `mu`.
    - ``average/NAME``: weights other than w(mu), by the names of the feature map's state.
    - ``curvature``: the mean curvature of the blocks that goes with these weights. If
      ``is_proximal`` is true, it is the strength of the centre of proximal points.
    - ``intercepts``: those without a penalty, if they are not among the weights.
    - ``surrogate/NAME``: arrays of the oracles, opaque to solvers.

    Checkpoints store an unfinished run in the same form, under names of the solver's
    own: see `FitCheckpoint`.
    """

    @classmethod
    def of(
        cls, alpha: float, mu: FloatArray | None = None, *, concave: FloatArray | None = None,
        average: dict[str, FloatArray] | None = None, curvature: float = 0.0,
        is_proximal: bool = False, intercepts: FloatArray | None = None,
    ) -> State:
        """The state with these entries, without those that are None."""
        state = cls(alpha=np.asarray(float(alpha)))
        if average is not None:
            state.update(
                flat("average", average), curvature=np.asarray(float(curvature)),
                is_proximal=np.asarray(is_proximal))
        given = {"mu": mu, "concave": concave, "intercepts": intercepts}
        state.update({name: array for name, array in given.items() if array is not None})
        return state

    @property
    def average(self) -> dict[str, FloatArray] | None:
        """The weights under ``average/``, or None."""
        return part("average", self) or None

    def shrink(self, alpha: float) -> float:
        """Factor of mu - phi(y) under another alpha. For a smaller alpha, w does not change."""
        return min(1.0, alpha / float(self["alpha"]))

    def scaled(self, factor: float) -> State:
        """The same state as of another alpha."""
        return State(self, alpha=np.asarray(float(self["alpha"]) * factor))

    def without(self, name: str) -> State:
        """The same state without an entry, or without those under ``name/``."""
        return State({key: array for key, array in self.items() if key.partition("/")[0] != name})


@dataclass
class Solution:
    """The result of a solver: a feasible dual point and a certificate of the weights.

    The features of the problem have the weights. `state` starts a later solve. It has no `mu` if
    the dual point was not stored. `intercepts` are given for problems that do not penalise them,
    and are not among the weights.
    """

    state: State
    certificate: Certificate
    n_iter: int
    history: dict[str, Any]
    converged: bool
    interrupted: bool
    intercepts: FloatArray | None = None

    @property
    def mu(self) -> FloatArray:
        """The dual point, empty if it was not stored."""
        return self.state.get("mu", np.zeros(0))


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
    solver : "auto" or Solver
        As the estimator has it.
    keep_dual : bool
        Whether a later fit goes on from the dual point, which must then be returned.
    is_warm : bool, default=False
        Whether the fit starts from the state of an earlier one.
    share : float, default=0
        Share of the objective reached that ends the fit as well, as a gap.
    """

    alpha: float
    tol: float
    scale: float
    max_iter: int
    seed: int
    n_jobs: int
    verbose: int
    callback: Callable[..., Any] | None
    solver: Any
    keep_dual: bool
    is_warm: bool = False
    share: float = 0.0

    @property
    def auto(self) -> bool:
        """Whether ``solver="auto"``."""
        return isinstance(self.solver, str)

    @property
    def gap(self) -> float:
        """The absolute gap to reach."""
        return self.tol * self.scale


def packed(run: Any, names: tuple[str, ...]) -> FloatArray:
    """The attributes of these names, numbers each, as an array."""
    return np.array([getattr(run, name) for name in names], dtype=np.float64)


def unpack(run: Any, names: tuple[str, ...], numbers: FloatArray) -> None:
    """Set the attributes of `packed`, with the types of their present values."""
    for name, number in zip(names, numbers.tolist(), strict=True):
        setattr(run, name, type(getattr(run, name))(number))


# passes of steps of blocks to a relative gap of 1e-4: the median of benchmarks/counts.py
PASSES = 43.0


def pass_work(problem: Any) -> float:
    """Multiply-adds of one pass of steps of blocks: a visit and an oracle call for each."""
    return problem.weights.size * (problem.features.visit_cost + problem.loss.outputs.oracle_cost)


def block_work(problem: Any) -> float:
    """Multiply-adds of a usual fit by steps of blocks."""
    return PASSES * pass_work(problem)


class Solver(NamesParameters, BaseEstimator):
    """Base of what the parameter `solver` of the estimators takes.

    A subclass has `check`, `reason`, `cost` and `solve`. Subclasses are registered when they are
    defined: `Solver.known` holds them by name. With ``register=False`` they are not: they are made
    around another solver.
    """

    known: dict[str, type[Solver]] = {}

    # options in the table of cells, see `fastm4n.estimators._cells`: in addition to the
    # default ones those that make another method of it
    variants: tuple[dict[str, Any], ...] = ({},)
    # how max-min oracles are solved
    oracle: str = "exact"
    oracle_iter: int | None = None
    # memory for kernel values, in MiB
    kernel_cache_size: float = 2048
    # whether a regularisation path can be made of its passes, and rounds over partitions
    follows_paths: bool = False
    solves_parts: bool = False
    # whether dual points can be combinations of outputs, and nothing else
    has_atoms: bool = False
    # whether it needs all data in memory, and the outputs that it is for: classes, or None for
    # all, and their estimators in words
    is_whole: bool = False
    outputs: tuple[Any, str] | None = None
    # a lower bound of `cost` as a share of `block_work`
    least_share: float = 0.0

    def __init_subclass__(cls, register: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        if register:
            Solver.known[cls.__name__] = cls

    def check(self) -> None:
        """Raise a ValueError for invalid options."""

    def refusal(self, problem: Any) -> str | None:
        """Reason why this solver cannot solve a problem, a sentence, or None.

        Parameters
        ----------
        problem : Problem
        """
        if self.is_whole and not problem.pieces.is_whole:
            return self.refused("needs all data in memory")
        if self.outputs is not None and type(problem.loss.outputs) not in self.outputs[0]:
            return self.refused(f"is for {self.outputs[1]}, got {problem.taker}")
        return self.reason(problem)

    def reason(self, problem: Any) -> str | None:
        """The part of `refusal` that depends on the solver's options or numbers of the problem."""
        return None

    def cost(self, problem: Any, options: Options) -> float:
        """Estimated multiply-adds until the gap is ``options.gap``.

        `choose` compares solvers by it. It is infinite outside the range that the benchmarks of the
        solver cover, where it is not an alternative to others.

        Parameters
        ----------
        problem : Problem
            One that `refusal` does not refuse.
        options : Options
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `cost`.")

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """Minimise until the gap is certified to be at most ``options.gap``.

        Parameters
        ----------
        problem : Problem
            A problem without a `refusal`. The features are left with the weights.
        options : Options
        start : State or None
            The state of an earlier solution, in the layout of this problem.
        monitor : Monitor
            Receives certificates and writes checkpoints.

        Returns
        -------
        solution : Solution
            After Ctrl-C the best certified one, with `interrupted` set.

        Raises
        ------
        KeyboardInterrupt
            If Ctrl-C came before the first certificate.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `solve`.")

    def reason_of_weights(self, problem: Any) -> str | None:
        """Why not, for solvers of vectors of weights under the plain L2 penalty."""
        features, said = problem.features, problem.said
        if problem.free_intercept is not None:
            return self.refused(f"penalises the intercept, got {said('fit_intercept')}")
        if features.has_offset:
            return self.reason_of_offset()
        if not features.holds_weights():
            return self.refused(f"needs weights, and {said('kernel')} has none")
        if not features.has_plain_state():
            return self.refused(
                f"needs the plain L2 penalty on every weight, got {said('penalty', 'pairwise')}")
        return None

    def reason_of_offset(self) -> str:
        """Why not, for solvers of features without fixed scores."""
        return self.refused(
            "needs scores of its own weights alone, and there are others, of an earlier fit or "
            "given to `unmatched`")

    def refused(self, what: str, instead: str = "use solver='auto'") -> str:
        """A refusal: "solver=QuasiNewton() <what>; <instead>."."""
        return f"solver={type(self).__name__}() {what}; {instead}."
