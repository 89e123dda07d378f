"""Checks of parameters, and errors of unknown ones."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import os
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from typing import Any, Self


@cache
def one_of(make):
    """What make() gives, one and the same object at each call."""
    return make()


def check_choice(name, value, choices):
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {tuple(choices)}, got {value!r}.")


def is_number(value, *, low, strict=True, integer=False):
    kind = numbers.Integral if integer else numbers.Real
    return (
        isinstance(value, kind) and not isinstance(value, (bool, np.bool_))
        and (integer or _is_finite(value)) and (value > low if strict else value >= low))


def _is_finite(value):
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def check_number(name, value, *, low, strict=True, integer=False):
    if not is_number(value, low=low, strict=strict, integer=integer):
        what = "an integer" if integer else "a finite number"
        bound = "" if low == -np.inf else f" {'>' if strict else '>='} {low}"
        raise ValueError(f"{name} must be {what}{bound}, got {value!r}.")


def check_relative_gap(name, value, *, low=0, strict=True):
    """Refuse a relative gap that certifies nothing.

    The dual objective is 0 at the true outputs: zero weights have a relative gap of at most 1.
    """
    check_number(name, value, low=low, strict=strict)
    if value >= 1:
        raise ValueError(
            f"{name} must be below 1, got {value!r}. Zero weights have a relative gap of at most "
            "1; 1e-3 is a usual value.")


def is_flag(value):
    return isinstance(value, (bool, np.bool_))


def check_flag(name, value):
    if not is_flag(value):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def as_real(name, values):
    """Real numbers in float64."""
    try:
        if np.iscomplexobj(values):
            raise TypeError("got complex ones.")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from error


def refuse_where(bad, name, values, why, batch=True):
    """Raise a ValueError for the first of `values` that is bad, if there is one.

    Without `batch` the message omits the first axis, which was added to the caller's array.
    """
    if bad.any():
        where = np.argwhere(bad)[0].tolist()
        raise ValueError(
            f"{name}{(where if batch else where[1:]) or ''} is {values[tuple(where)]:g}: {why}")


class ScoreError(ValueError):
    """Scores that no loss has: NaN, infinite, or -inf for the truth."""


class NoFiniteScore(ValueError):
    """No output has a finite score: nothing is allowed, or sums of scores overflow."""


def check_scores(name, values, batch=True):
    """Refuse NaN and +inf, as `refuse_where` does."""
    refuse_where(
        np.isnan(values) | (values == np.inf), name, values,
        "scores are finite, or -inf for what is forbidden.", batch)


def check_costs(matrix):
    for bad, why in (
        (~np.isfinite(matrix), "costs must be finite."),
        (matrix < 0, "costs must not be negative."),
        ((matrix != 0) & np.eye(len(matrix), dtype=bool), "the diagonal must be zero."),
    ):
        refuse_where(bad, "cost", matrix, why)


def not_finite(values):
    """Row, column and value of the first entry that is not finite, or None."""
    data = values.data if sparse.issparse(values) else values
    with np.errstate(over="ignore", invalid="ignore"):
        # a sum is cheap, but may overflow
        if np.isfinite(np.sum(data, dtype=np.float64)) or np.isfinite(data).all():
            return None
    bad = np.argwhere(~np.isfinite(data))[0]
    if sparse.issparse(values):
        row = int(np.searchsorted(values.indptr, bad[0], side="right")) - 1
        return row, int(values.indices[bad[0]]), data[bad[0]]
    return int(bad[0]), int(bad[1]), data[tuple(bad)]


def check_verbose(verbose):
    if not is_flag(verbose):
        check_number("verbose", verbose, low=0, strict=False, integer=True)


def check_file(name, value):
    """Refuse a value that is no path."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path, as a str or os.PathLike, got {value!r}.")


def check_callback(callback):
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be callable or None, got {callback!r}.")


# parameters of other packages, and their counterparts here
_INSTEAD = {
    "C": "regularisation is alpha = 1 / (C n), n being the number of examples",
    "loss": "what a mistake costs is `cost`",
    **{name: f"it is of surrogate=fastm4n.surrogates.Log({name}=...)"
       for name in ("cost_augmented", "temperature")},
    **{name: f"it is of transitions=fastm4n.Transitions({inner}=...)" for name, inner in (
        ("fit_start_end", "start_end"), ("fit_transitions", "pairs"),
        ("transition_features", "features"), ("order", "order"))},
    "degree": "it goes into kernel_params, as {'degree': 3}",
    "coef0": "it goes into kernel_params, as {'coef0': 1.0}",
    "regularize_intercept": "an intercept without penalty is fit_intercept='free'",
    "intercept_scaling": "fit_intercept takes the value of the constant feature",
    "class_weight": "weights of labels go into a matrix, cost[i, j] being that of label i",
    "cost_scale": "costs of labels are added; their mean is alpha times the number of labels",
    "cache_size": "it is kernel_cache_size of the solver, "
                  "solver=BlockFrankWolfe(kernel_cache_size=...)",
    "inference_cache": "it is cache of the solver, solver=BlockFrankWolfe(cache=...)",
    "negativity_constraint": "bounds of weights go into penalty=L2(bounds=...)",
    **dict.fromkeys(
        ("n_states", "n_labels", "n_classes", "n_components", "n_features", "n_edge_features"),
        "labels and features are counted in the data"),
    **dict.fromkeys(
        ("show_loss_every", "logger"), "callback gets each certificate, and history_ keeps them"),
}
_OF_SOLVER = (
    "sampling", "step", "accelerate", "cache", "cache_F", "cache_nu", "oracle", "oracle_iter",
    "kernel_cache_size",
)


# classes with nested parameters, for values without any
_NESTED = {"solver": "BlockFrankWolfe", "penalty": "ElasticNet", "surrogate": "Log",
           "transitions": "Transitions"}


def unknown_parameter(owner, name, valid):
    """A sentence on an unknown parameter, with a remedy.

    Parameters
    ----------
    owner : str
        The class.
    name : str
        The unknown parameter.
    valid : sequence of str
        The known parameters.
    """
    text = f"{owner} has no parameter {name!r}"
    # an estimator has `alpha` and `solver`
    if "solver" in valid and name in _OF_SOLVER:
        return f"{text}: it is one of the solver, solver=BlockFrankWolfe({name}=...)."
    if name == "C" and "alpha" in valid or "cost" in valid and name in _INSTEAD:
        return f"{text}: {_INSTEAD[name]}."
    near = difflib.get_close_matches(name, valid, n=1)
    if near:
        return f"{text}; did you mean {near[0]!r}?"
    return f"{text}; it has {', '.join(valid)}."


def extended(init, without=None, **defaults):
    """The signature of a constructor with all parameters of another one.

    Parameters
    ----------
    init : function
        The other constructor.
    without : str, default=None
        The name of a parameter to leave out.
    **defaults
        Changed defaults, and defaults of new parameters.
    """
    signature = inspect.signature(init)
    parameters = dict(signature.parameters)
    parameters.pop(without, None)
    for name, default in defaults.items():
        known = parameters.get(name)
        parameters[name] = inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY if known is None else known.kind, default=default)
    return signature.replace(parameters=list(parameters.values()))


class NamesParameters:
    """Mixin that refuses unknown parameters by the name of the public class."""

    __signature__: inspect.Signature
    _takes_any: bool

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # the signature of the constructor, not of __new__ below
        _, *parameters = inspect.signature(cls.__init__).parameters.values()
        cls.__signature__ = inspect.Signature(parameters)
        # a subclass passes them on
        cls._takes_any = any(p.kind == inspect.Parameter.VAR_KEYWORD for p in parameters)

    def __new__(cls, *args: Any, **parameters: Any) -> Self:
        if parameters and not cls._takes_any:
            cls._refuse_unknown(parameters, TypeError)
        return super().__new__(cls)

    @classmethod
    def _refuse_unknown(cls, names, error):
        valid = list(cls.__signature__.parameters)
        for name in names:
            if name not in valid:
                raise error(unknown_parameter(cls.__name__, name, valid))

    def set_params(self, **params: Any) -> Self:
        """Set parameters. Write parameters of nested objects as ``name__parameter``.

        Parameters
        ----------
        **params : dict
            Values by name.

        Returns
        -------
        self : object
        """
        self._refuse_unknown((name.partition("__")[0] for name in params), ValueError)
        for name in params:
            outer, is_nested, inner = name.partition("__")
            value = params.get(outer, getattr(self, outer))
            if is_nested and not hasattr(value, "set_params"):
                known = outer in _NESTED
                remedy = f" Set {outer} to {_NESTED[outer]}({inner}=...)." if known else ""
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}: {outer} is {value!r}, which "
                    f"has no parameters.{remedy}")
        return super().set_params(**params)
