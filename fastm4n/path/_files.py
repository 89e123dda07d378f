"""Paths as files: that of an estimator, with a table of breakpoints and the weights of each."""

import numpy as np
from sklearn.base import clone

from fastm4n.base.array_files import read_arrays, understood, write_arrays
from fastm4n.base.arrays import part
from fastm4n.base.checks import check_choice, check_number
from fastm4n.models._state import estimator_from_state, estimator_state
from fastm4n.path._path import METHODS, RegularizationPath
from fastm4n.solvers.history import HISTORY_KEYS
from fastm4n.solvers.path import N_NUMBERS, Breakpoint


def save(of, path):
    """`RegularizationPath.save` of the path `of`."""
    model = of.estimator(of.alphas[0])
    # no more than what all breakpoints have in common is of use here
    for name in ("duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_"):
        setattr(model, name, 0.0)
    model.history_ = {key: np.zeros(0) for key in HISTORY_KEYS}
    state, arrays = estimator_state(model)
    header = {
        "estimator": state, "eps": of.eps, "method": of.method, "complete": of.complete,
        "certified": of._certified, "at_rest": [of._loss_at_rest, of._gap_at_rest],
        "weights": sorted(of._weights[0]), "policy": of._policy,
    }
    arrays = {f"estimator/{name}": array for name, array in arrays.items()}
    arrays["points"] = np.array([point.numbers() for point in of._points])
    arrays["seconds"] = of.seconds
    for j, weights in enumerate(of._weights):
        arrays.update({f"{j}/{name}": weights[name] for name in sorted(weights)})
    write_arrays(path, "regularization path", header, arrays)


def load(path):
    """`RegularizationPath.load`."""
    header, arrays = read_arrays(path, "regularization path")
    with understood(path, "path"):
        return _from_file(header, arrays)


def _from_file(header, arrays):
    model = estimator_from_state(header["estimator"], part("estimator", arrays))
    numbers, seconds = arrays["points"], arrays["seconds"]
    n = numbers.shape[0]
    if numbers.dtype != np.float64 or numbers.shape != (n, N_NUMBERS) or n == 0:
        raise ValueError("points is no table of breakpoints")
    if seconds.dtype != np.float64 or seconds.shape != (n,):
        raise ValueError("seconds does not fit the breakpoints")
    if (numbers[:, 0] <= 0).any() or (np.diff(numbers[:, 0]) >= 0).any():
        raise ValueError("the alphas do not decrease, or are not positive")
    names = header["weights"]
    if type(names) is not list or not set(names) <= set(vars(model)):
        raise ValueError("its weights are not those of the estimator")
    weights = []
    for j in range(n):
        of_point = {name: arrays[f"{j}/{name}"] for name in names}
        for name, array in of_point.items():
            if array.dtype.kind != "f" or array.shape != getattr(model, name).shape:
                raise ValueError(f"{name} of breakpoint {j} does not fit the estimator")
        weights.append(of_point)
    parameters = model.get_params(deep=False)
    own = (
        "alpha_", "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_",
        "n_iter_", "history_",
    )
    common = {
        name: value for name, value in vars(model).items()
        if name not in parameters and name not in own and name not in names
        and name not in ("_packed", "_packed_edges")
    }
    points = [Breakpoint.of_numbers(row) for row in numbers.tolist()]
    eps, at_rest = header["eps"], header["at_rest"]
    check_number("eps", eps, low=0)
    if type(at_rest) is not list or len(at_rest) != 2:
        raise ValueError("at_rest is no pair")
    for value in at_rest:
        check_number("at_rest", value, low=0, strict=False)
    check_choice("method", header["method"], METHODS)
    if type(header["policy"]) is not str:
        raise ValueError(f"policy is {header['policy']!r:.80}")
    for name in ("complete", "certified"):
        if type(header[name]) is not bool:
            raise ValueError(f"{name} is {header[name]!r:.80}")
    return RegularizationPath(
        clone(model), common, points, weights, seconds, eps=eps, method=header["method"],
        complete=header["complete"], certified=header["certified"], at_rest=at_rest,
        policy=header["policy"],
    )
