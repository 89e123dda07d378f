"""Base of all estimators: fit, fitted state and checks of shared parameters."""

from __future__ import annotations

import reprlib
import warnings
from dataclasses import replace
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import (
    NamesParameters,
    check_callback,
    check_choice,
    check_flag,
    check_number,
    check_relative_gap,
    check_verbose,
    is_number,
)
from fastm4n.base.label_costs import as_costs, as_kept
from fastm4n.base.pickles import Versioned
from fastm4n.base.threads import n_threads
from fastm4n.estimators._callbacks import CallbackSupportMixin, fit_tasks
from fastm4n.outputs._base import COST_SCALES
from fastm4n.penalties._penalties import is_pure_l1, needs_weights
from fastm4n.solvers.base import Options
from fastm4n.solvers.choice import as_solver, choose
from fastm4n.solvers.monitor import Monitor, keeping
from fastm4n.surrogates import as_surrogate, surrogate_name
from fastm4n.tasks import completions
from fastm4n.tasks.base import Memory
from fastm4n.tasks.chain_weights import PACKED
from fastm4n.tasks.scale import scale_advice

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray

# relative gaps of tol="auto" (benchmarks/defaults.py)
TOL_OF_LOG, TOL_OF_MARGINS = 1e-3, 1e-2
# what a warning says of the gap without a quadratic term
LOOSE = (
    " With l1_ratio=1 the gap is a loose bound, and the objective still came down: see "
    "history_['primal']; l1_ratio=0.99 has a sharp one."
)


@lru_cache(64)
def _seed_of(number):
    """The seed of a solver for an integer `random_state`: a RandomState takes long to make."""
    return int(np.random.RandomState(number).randint(2**31))


class CertifiedEstimator(NamesParameters, Versioned, CallbackSupportMixin, BaseEstimator):
    """Base of the estimators: a fit validates, solves and then replaces the fitted state.

    A subclass has `_check_parameters`, and declares what model files, the command line and displays
    have to know of it:

    Attributes
    ----------
    _task_class : type
        The `Task` that makes its problems.
    _task : str
        The kind of output, in a word.
    _part : str
        The unit that `score` counts.
    _fitted_arrays : dict of str to (tuple of str, str)
        Fitted arrays that it has whatever its parameters are: their dimensions by name, of which
        those of one name are equal ("d" is n_features_in_, "k" the labels), and the kinds of
        their dtypes. Arrays of other kinds than floats have distinct entries; the first of them
        are the labels.
    _coef_dims : tuple of str
        Dimensions of the weights of one feature. `coef_` has those of features behind them; for a
        kernel `dual_coef_` has those of examples in front.
    _optional_arrays : dict of str to (tuple of str, str)
        The same of fitted arrays that it may have.
    _fitted_values : tuple of str
        Further fitted attributes, each a string, an integer or None.
    _absent_in_files : dict
        Parameters that files of older releases do not have, with their values there.
    _fitted_marker : str
        The attribute that tells whether it is fitted.
    _share : float
        Share of the objective reached that ends fits as well, as a gap.
    """

    n_iter_: int
    duality_gap_: float
    relative_gap_: float
    primal_objective_: float
    dual_objective_: float
    history_: dict[str, Array]
    interrupted_: bool
    coef_: Any
    alpha_: float
    n_features_in_: int

    _task = None
    _part = "example"
    _share = 0.0
    _fitted_arrays = {}
    _coef_dims = ("k",)
    _optional_arrays = {}
    _fitted_values = ()
    _absent_in_files = {}
    _fitted_marker = "classes_"
    # whether tol may be "auto"
    _has_auto_tol = False
    # whether its problems can be solved for all alphas
    _has_paths = True
    # fitted attributes that an earlier fit may have left and a later one does not have
    _replaced = ()
    # a fitted cost matrix, or what names it
    _cost_held = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @classmethod
    def _labels_attribute(cls):
        """Name of the fitted array of labels, None where labels have no names."""
        return next((name for name, (_, kinds) in cls._fitted_arrays.items() if kinds != "f"), None)

    def _arrays_of_fit(self):
        """`_fitted_arrays` of these parameters, a new dict."""
        return dict(self._fitted_arrays)

    def _check_fitted(self, attributes):
        """Raise a ValueError where fitted attributes, of a file, do not fit the parameters."""

    def _check_solver_parameters(self):
        as_surrogate(self.surrogate)
        check_choice("decode", self.decode, self._task_class.decodings)
        if not is_number(self.alpha, low=0) and not (
                isinstance(self.alpha, str) and self.alpha == "auto"):
            raise ValueError(f"alpha must be 'auto' or a finite number > 0, got {self.alpha!r}.")
        if not (self._has_auto_tol and isinstance(self.tol, str) and self.tol == "auto"):
            check_relative_gap("tol", self.tol, strict=False)
        check_number("max_iter", self.max_iter, low=0, integer=True)
        if hasattr(self, "cost_scale"):
            check_choice("cost_scale", self.cost_scale, COST_SCALES)
        self._check_flags("warm_start")
        check_verbose(self.verbose)
        as_solver(self.solver).check()
        check_callback(self.callback)

    def _check_flags(self, *names):
        for name in names:
            check_flag(name, getattr(self, name))

    def _check_penalty_kernel(self):
        if needs_weights(self.penalty) and self.kernel != "linear":
            raise ValueError(
                f"penalty={reprlib.repr(self.penalty)} needs kernel='linear', got {self.kernel!r}: "
                "a kernel has no weights to bound or to draw to zero. Use features of "
                "sklearn.kernel_approximation.Nystroem."
            )

    def _fitted_task(self):
        """The task, which predicts by the fitted attributes."""
        if self._fitted_marker not in vars(self):
            check_is_fitted(self)
        return self._task_class(self)

    def _decoder(self, X, **given):
        """The fitted estimator at new data."""
        return self._fitted_task().decoder(X, **given)

    @property
    def tol_(self) -> float:
        """The relative gap at which a fit ends: `tol` as a number."""
        if not isinstance(self.tol, str):
            return float(self.tol)
        return TOL_OF_LOG if surrogate_name(self.surrogate) == "log" else TOL_OF_MARGINS

    def _seed(self):
        """The seed of a solver, by `random_state`."""
        if type(self.random_state) is int and 0 <= self.random_state < 2**32:
            return _seed_of(self.random_state)
        try:
            random_state = check_random_state(self.random_state)
        except ValueError as error:
            raise ValueError(
                "random_state must be an integer from 0 to 2**32 - 1, a RandomState or None, got "
                f"{self.random_state!r}."
            ) from error
        return int(random_state.randint(2**31))

    def _is_pure_l1(self):
        return is_pure_l1(getattr(self, "penalty", "l2"))

    def _problem(self, X, y, sample_weight=None, one_alpha=False):
        """The problem of data in memory, given as to `fit`."""
        self._check_parameters()
        task = self._task_class(self)
        return task.problem(
            Memory(task.read(X, None), y, sample_weight), one_alpha=one_alpha)

    def _fit(self, *data, call=None, census=None):
        """Validate, solve, and replace the fitted state when nothing can fail any more.

        Parameters
        ----------
        *data
            X, y and further arguments of `fit`.
        call : Call, default=None
            The call of `partial_fit` that has given the data instead.
        census : Census, default=None
            Labels and vectorizer of earlier calls.
        """
        with fit_tasks(self, data) as callback:
            self._fit_with(callback, data, call, census)
        return self

    def _fit_with(self, callback, data, call, census):
        """`_fit`, with the callback of certificates."""
        self._check_parameters()
        task, pieces = self._task_class(self), Memory(*data) if call is None else call
        pieces.may_be_partial = call is None
        pieces.X = task.read(pieces.X, pieces.lengths, census)
        problem = task.problem(
            pieces, census, one_alpha=True, solver=task.out_of_core(
                pieces.X, pieces.allowed, pieces.part_weight))
        alpha = problem.alpha
        start = problem.pieces.start(problem, alpha, vars(self).get("_warm_state"))
        keep_dual = bool(self.warm_start) or call is not None
        options = Options(
            alpha=alpha, tol=self.tol_, scale=problem.scale(), max_iter=self.max_iter,
            seed=self._seed(), n_jobs=n_threads(self.n_jobs), verbose=self.verbose,
            callback=callback, solver=self.solver, keep_dual=keep_dual,
            is_warm=start is not None, share=self._share)
        with keeping(self, pieces) as checkpoint, task.naming(problem):
            monitor = Monitor.of(options, checkpoint)
            if problem.known is None:
                solver = choose(problem, options)
                solution = solver.solve(problem, options, start, monitor)
            else:
                if checkpoint is not None:
                    raise ValueError(
                        "checkpointing keeps no state of rounds of completions, and y leaves some "
                        "of it open: leave checkpointing out.")
                solution = completions.complete(
                    problem, problem.known, options, targets=problem.first, start=start)
                options = replace(options, scale=problem.scale())
            is_told_to_end = monitor.is_told_to_end
            del monitor  # and with it all that the solver has worked with
            if not (keep_dual or task.needs_dual):
                del solution.state["mu"]
                problem.loss = None
            fitted = task.fitted(
                problem, alpha, solution.mu, solution.intercepts, is_last=not keep_dual)
        fitted.update(task.values(problem, options.gap, options.scale))
        fitted.update(pieces.attributes(problem, solution, alpha, keep_dual))
        # from here on nothing fails: the fitted state changes as a whole
        self._keep(problem.common, fitted)
        self.alpha_ = alpha
        self.n_iter_ = solution.n_iter
        self.duality_gap_ = solution.certificate.gap
        self.relative_gap_ = solution.certificate.gap / options.scale
        self.primal_objective_ = solution.certificate.primal
        self.dual_objective_ = solution.certificate.dual
        self.history_ = solution.history
        self.interrupted_ = solution.interrupted
        if solution.interrupted:
            raise KeyboardInterrupt
        if not solution.converged and problem.known is not None and (
                self.relative_gap_ <= options.tol):
            warnings.warn(
                f"After {len(self.history_['objective'])} rounds of completions the objective "
                "still falls by more than 1e-3 of the objective at zero weights: what y leaves "
                "open may be filled in better.", ConvergenceWarning, stacklevel=4)
        elif not solution.converged:
            warnings.warn(
                f"After {self.n_iter_} passes the certified duality gap is "
                f"{self.relative_gap_:.3g} of the objective at zero weights (relative_gap_), above "
                f"tol={options.tol:g}. {self._remedy(problem, is_told_to_end)}"
                f"{LOOSE if self._is_pure_l1() else ''}"
                f"{scale_advice(self, task.columns(pieces.X), getattr(task, 'vectorizer', None))}",
                ConvergenceWarning, stacklevel=4)

    def _remedy(self, problem, is_told_to_end):
        """What a fit that has ended above tol needs, by what has ended it."""
        # some solvers end a pass before one that makes two
        if problem.known is not None or self.n_iter_ + 1 >= self.max_iter:
            return "Increase max_iter or tol, scale the features, or change alpha."
        if is_told_to_end:
            return "The callback has ended the fit."
        return (
            "Rounding, and not max_iter, has ended the fit: scale the features, increase tol, or "
            "change alpha.")

    @property
    def cost_matrix_(self) -> FloatArray:
        """The costs of `cost`: a new array each time where they have a name."""
        if self._cost_held is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'cost_matrix_'")
        return np.ascontiguousarray(self._cost_table)

    @cost_matrix_.setter
    def cost_matrix_(self, costs: ArrayLike) -> None:
        self._cost_held = as_kept(np.asarray(costs, dtype=np.float64))

    @property
    def _cost_table(self):
        """`cost_matrix_`, in no room where costs have a name."""
        return as_costs(self._cost_held)

    def _keep(self, common, fitted):
        """Replace the fitted attributes."""
        for name in ("_warm_state", "_seen", "_prior", "feature_names_in_", *self._replaced):
            self.__dict__.pop(name, None)
        self.__dict__.update(common)
        self.__dict__.update(fitted)

    @property
    def n_nonzero_(self) -> int:
        """Number of weights in `coef_` that are not zero."""
        check_is_fitted(self)
        if not hasattr(self, "coef_"):
            raise AttributeError("n_nonzero_ is of coef_, which kernels do not have.")
        return int(np.count_nonzero(self.coef_))

    @property
    def sparsify(self) -> Any:
        raise AttributeError(
            f"{type(self).__name__} has no sparsify: predictions and files go by a dense coef_, "
            "which is faster. For other uses there is scipy.sparse.csr_array(model.coef_)."
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, self._fitted_marker)

    @property
    def predict_proba(self) -> Any:
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba, as outputs are too many to list: with "
            "surrogate='log' predict_marginals has the probabilities of their parts."
        )


class PackedWeights:
    """Base of estimators whose fitted weights are views of the rows that compiled loops read."""

    def _repacked(self):
        """Fitted weights as views, and the rows that they are views of.

        None if they cannot be: parameters were set after the fit.
        """
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        # coef_ and its like hold the same numbers; a new dict, as the state may be the object's own
        return {
            name: value for name, value in super().__getstate__().items() if name not in PACKED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "coef_"):
            self.__dict__.update(self._repacked() or {})


if TYPE_CHECKING:
    Method = TypeVar("Method", bound=Callable[..., Any])

    # what is decorated is called as it is written
    def needs_log(method: Method) -> Method: ...
else:
    class needs_log:  # noqa: N801 (a decorator)
        """Method that is there for surrogate="log" only, and says so where it is not."""

        def __init__(self, method: Callable[..., Any]) -> None:
            self.method, self.__doc__, self.__name__ = method, method.__doc__, method.__name__

        def __get__(self, estimator: Any, owner: type | None = None) -> Any:
            if estimator is None:
                return self.method
            if surrogate_name(estimator.surrogate) != "log":
                raise AttributeError(
                    f"{self.__name__} needs surrogate='log', and this one is "
                    f"{estimator.surrogate!r}: margins are not probabilities."
                )
            return MethodType(self.method, estimator)
