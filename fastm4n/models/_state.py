"""Fitted estimators as JSON and arrays, the contents of model files, and back."""

from functools import cache
from numbers import Integral, Real

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import KERNEL_PARAMS
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from fastm4n.automata import Automaton
from fastm4n.base.array_files import is_small
from fastm4n.base.claims import check_claim
from fastm4n.base.label_costs import COSTS, as_kept, is_windows, named_costs
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.data._vectorizer import NAMES, SequenceScaler, SequenceVectorizer
from fastm4n.estimators._base import CertifiedEstimator
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.estimators._table import PREDICTORS
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.factors import CountFactor, FactorTables
from fastm4n.penalties._penalties import _Penalty
from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
from fastm4n.solvers.cutting_planes import CuttingPlanes
from fastm4n.solvers.interior_point import InteriorPoint
from fastm4n.solvers.newton import LabelNewton
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.solvers.quasi_newton import QuasiNewton
from fastm4n.surrogates._parameters import _Surrogate
from fastm4n.tasks.chain_input import MOST_OF_PAIRS
from fastm4n.tasks.chain_weights import Transitions, WeightsOfPairs

# The classes that files may name, next to PREDICTORS. What else an estimator needs it declares: see
# `CertifiedEstimator`.
TRANSFORMERS = {cls.__name__: cls for cls in (SequenceScaler, SequenceVectorizer, StandardScaler)}
# objects of parameters, by their kinds and names in files; further surrogates join when imported
OBJECTS = {
    "penalty": _Penalty.known,
    "surrogate": _Surrogate.known,
    "transitions": {"Transitions": Transitions},
}
_IMPORTS = {"surrogate": "; import fastm4n.research before, if it is from there"}

# factors in parameters: the class and its arguments, which are attributes
FACTORS = {
    "CountFactor": (CountFactor, ("nodes", "least", "most", "negated", "label")),
    "FactorTables": (FactorTables, ("scopes", "offsets", "tables", "parameter")),
}

# arguments of Automaton, which are attributes
AUTOMATON = ("labels", "transitions", "accepting")

# arrays of transformers, which do not declare them
_SCALERS = ("SequenceScaler", "StandardScaler")
_SCALER_ARRAYS = {"mean_": (("d",), "f"), "var_": (("d",), "f"), "scale_": (("d",), "f")}
_CERTIFIED = {
    "n_features_in_": int, "n_iter_": int, "alpha_": float, "duality_gap_": float,
    "relative_gap_": float, "primal_objective_": float, "dual_objective_": float,
    "interrupted_": bool,
}
# attributes of fitted weights, all or none: other weights have no certificate
_OF_FIT = (
    "n_iter_", "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_")
_SCALARS = {
    **dict.fromkeys(_SCALERS, {"n_features_in_": int, "n_samples_seen_": int}),
    "SequenceVectorizer": {},
    **{name: {**_CERTIFIED, "_n_seen": float, "_n_before": float}
       for name, cls in PREDICTORS.items() if issubclass(cls, PartialFitOfWeights)},
}
# solvers by their names in files
_SOLVERS = {
    "solver": BlockFrankWolfe, "label_newton": LabelNewton,
    "quasi_newton": QuasiNewton, "cutting_planes": CuttingPlanes,
    "interior_point": InteriorPoint, "out_of_core": OutOfCore}
# arrays of weights by pairs, instead of coef_, with their dimensions and the kinds of their dtypes
_PAIRS = {
    "pair_counts_": (("d",), "u"), "pair_labels_": (("p",), "u"), "pair_weights_": (("p",), "f")}
_SCALAR_DTYPES = (
    "bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64",
)


def model_state(estimator):
    """Header and arrays of a fitted estimator, or of a pipeline of such."""
    steps = estimator.steps if type(estimator) is Pipeline else [("", estimator)]
    header, arrays = {"pipeline": type(estimator) is Pipeline, "steps": []}, {}
    for number, (name, step) in enumerate(steps):
        last = number == len(steps) - 1
        table = PREDICTORS if last else TRANSFORMERS
        if table.get(type(step).__name__) is not type(step):
            which = "as the last step" if last else "before the last step"
            raise TypeError(
                f"{type(step).__name__} cannot be saved"
                + (f" {which} of a pipeline" if header["pipeline"] else "")
                + f". Classes that can: {', '.join(table)}.")
        state, of_step = estimator_state(step)
        header["steps"].append({"name": name, **state})
        arrays.update({f"{number}/{key}": array for key, array in of_step.items()})
    return header, arrays


def model_from_state(header, arrays):
    """The estimator or pipeline of `model_state`. ValueError, TypeError or KeyError if invalid."""
    steps, by_step = [], {}
    for key, array in arrays.items():
        number, slash, name = key.partition("/")
        by_step.setdefault(number + slash, {})[name] = array
    given = header["steps"]
    if type(given) is not list or not given or len(given) > 1 and header["pipeline"] is not True:
        raise ValueError("it has no steps")
    for number, state in enumerate(given):
        if type(state) is not dict:
            raise ValueError(f"step {number} is {state!r:.80}")
        table = PREDICTORS if number == len(given) - 1 else TRANSFORMERS
        name = state["class"]
        if type(name) is not str or name not in table:
            raise ValueError(f"there is no class {name!r:.80} in step {number}")
        if type(state["name"]) is not str:
            raise ValueError(f"the name of step {number} is no string")
        step = estimator_from_state(state, by_step.pop(f"{number}/", {}))
        if steps and _n_features(step) != _n_features(steps[-1][1]):
            raise ValueError(f"step {number} takes other features than those before it give")
        steps.append((state["name"], step))
    if by_step:
        raise ValueError(f"{next(iter(by_step))!r:.80} belongs to no step")
    if header["pipeline"] is not True:
        return steps[0][1]
    names = [name for name, _ in steps]
    if len(set(names)) < len(names) or any("__" in name for name in names):
        raise ValueError("the names of its steps are not distinct, or hold '__'")
    return Pipeline(steps)


def _n_features(step):
    if isinstance(step, SequenceVectorizer):
        return step._n_features_out
    return step.n_features_in_


def estimator_state(estimator):
    """Header and arrays of one fitted estimator of the table."""
    check_is_fitted(estimator)
    name, arrays = type(estimator).__name__, {}
    parameters = {}
    for key, value in estimator.get_params(deep=False).items():
        parameters[key] = _encoded(key, None if key == "callback" else value, arrays)
    attributes = {}
    for key, kind in _SCALARS.get(name, _CERTIFIED).items():
        if _is_left_out(key, lambda name: getattr(estimator, name, None) is not None):
            continue
        value = getattr(estimator, key)
        if key == "n_samples_seen_":  # one for each feature where some were missing
            value = np.max(value)
        attributes[key] = kind(value)
    wanted, optional = _arrays(estimator)
    # weights by pairs are saved by pairs, and so are those of which few are not zero
    by_pairs = getattr(estimator, "_weights_by_pairs", dict)()
    if by_pairs:
        attributes["is_spread"] = "_of_pairs" not in vars(estimator)
        wanted = {**{key: of for key, of in wanted.items() if key != "coef_"}, **_PAIRS}
    for key in {**wanted, **optional}:
        if key == "cost_matrix_" and isinstance(estimator._cost_held, tuple):
            attributes[key] = list(estimator._cost_held)
            continue
        value = by_pairs[key] if key in by_pairs else getattr(estimator, key, None)
        if value is not None:
            arrays[key] = value
    if name == "SequenceVectorizer":
        arrays.update(zip(NAMES, estimator._names.packed(), strict=True))
    for key, values in getattr(estimator, "history_", {}).items():
        arrays[f"history_/{key}"] = values
    if hasattr(estimator, "_kernel_parameters"):
        attributes["_kernel_parameters"] = {
            key: _encoded(f"kernel_params[{key!r}]", value, None)
            for key, value in estimator._kernel_parameters.items()
        }
    for key in getattr(estimator, "_fitted_values", ()):
        attributes[key] = getattr(estimator, key)
    state = {"class": name, "parameters": parameters, "attributes": attributes}
    vectorizer = vars(estimator).get("vectorizer_")
    if vectorizer is not None:
        if type(vectorizer) is not SequenceVectorizer:
            raise TypeError(
                f"vectorizer_ must be a SequenceVectorizer, got {type(vectorizer).__name__}.")
        state["vectorizer"], names = estimator_state(vectorizer)
        arrays.update({f"vectorizer_/{key}": array for key, array in names.items()})
    estimator_from_state(state, arrays)  # raises an error if it could not be loaded
    return state, arrays


def _is_left_out(key, is_there):
    """Whether a number of a fit may be missing, for weights that were not fitted.

    Files of older releases have no `interrupted_`, and no number of sequences.
    """
    if key in ("interrupted_", "_n_seen", "_n_before"):
        return not is_there(key)
    if key == "alpha_":
        return not any(map(is_there, ("alpha_", *_OF_FIT)))
    return key in _OF_FIT and not any(map(is_there, _OF_FIT))


def estimator_from_state(state, arrays):
    """The estimator of `estimator_state`. ValueError, TypeError or KeyError if invalid."""
    name, arrays = state["class"], dict(arrays)
    cls = {**PREDICTORS, **TRANSFORMERS}[name]
    for key in ("parameters", "attributes"):
        if type(state[key]) is not dict:
            raise ValueError(f"its {key} are {state[key]!r:.80}")
    known = _parameters_of(cls)
    parameters = dict(cls._absent_in_files) if name in PREDICTORS else {}
    for key, value in state["parameters"].items():
        if key not in known:
            raise ValueError(f"{name} has no parameter {key!r:.80}")
        parameters[key] = _decoded(key, value, arrays)
    estimator = cls(**parameters)
    if name in PREDICTORS:
        _check_parameters(estimator)
    elif name == "SequenceVectorizer":
        estimator._check_parameters()

    attributes, given = {}, state["attributes"]
    for key, kind in _SCALARS.get(name, _CERTIFIED).items():
        if _is_left_out(key, given.__contains__):
            continue
        attributes[key] = _scalar(key, given[key], kind)
    history = {
        key.removeprefix("history_/"): arrays.pop(key)
        for key in list(arrays) if key.startswith("history_/")
    }
    if name in PREDICTORS:
        vectors = all(
            type(values) is np.ndarray and values.dtype.kind in "iufbU" and values.ndim == 1
            for values in history.values()
        )
        if not vectors or len({values.shape for values in history.values()}) > 1:
            raise ValueError("history_ is not of vectors of one length")
        if history:
            attributes["history_"] = history
    if name == "SequenceTagger":
        attributes["vectorizer_"] = _vectorizer(state, arrays, attributes["n_features_in_"])
    _add_arrays(estimator, attributes, arrays, given)
    if name in _SCALERS:
        vars(estimator).update(attributes)
    else:
        estimator.__setstate__({**estimator.__getstate__(), **attributes})
    return estimator


@cache
def _parameters_of(cls):
    """Names of the parameters of a class: to look them up takes as long as to read a small file."""
    return frozenset(cls().get_params(deep=False))


def _vectorizer(state, arrays, n_features):
    """The vectorizer of a tagger, or None. Its arrays are removed from `arrays`."""
    if "vectorizer" not in state:
        return None
    given = state["vectorizer"]
    if type(given) is not dict or given["class"] != "SequenceVectorizer":
        raise ValueError(f"its vectorizer is {given!r:.80}")
    prefix = "vectorizer_/"
    of_names = {
        key.removeprefix(prefix): arrays.pop(key)
        for key in list(arrays) if key.startswith(prefix)
    }
    vectorizer = estimator_from_state(given, of_names)
    if vectorizer._n_features_out != n_features:
        raise ValueError("its vectorizer has another number of columns than it takes")
    return vectorizer


def _arrays(estimator):
    """Required and optional arrays of an estimator with its parameters.

    Both are dicts from names to dimensions and kinds of dtypes, see `CertifiedEstimator`.
    """
    optional = {"feature_names_in_": (("d",), "O")}
    if isinstance(estimator, SequenceVectorizer):
        return {}, {}
    if not isinstance(estimator, CertifiedEstimator):
        return {}, {**optional, **_SCALER_ARRAYS}
    optional.update(estimator._optional_arrays)
    wanted, dims = estimator._arrays_of_fit(), estimator._coef_dims
    kernel = getattr(estimator, "kernel", "linear")
    if kernel == "linear":
        wanted.setdefault("coef_", ((*dims, "d"), "f"))
    elif kernel == "precomputed":
        wanted["dual_coef_"] = (("d", *dims), "f")
    else:
        wanted.update(dual_coef_=(("n", *dims), "f"), X_fit_=(("n", "d"), "f"))
    return wanted, optional


def _add_arrays(estimator, attributes, arrays, given):
    """Add all arrays to the attributes, after checking them against each other."""
    name, kernel = type(estimator).__name__, getattr(estimator, "kernel", None)
    wanted, optional = _arrays(estimator)
    if name == "SequenceVectorizer":
        wanted = {name: ((name,), "u") for name in NAMES}
        if "feature_names_" in arrays:  # of older files
            wanted = {"feature_names_": (("d",), "O")}
    if isinstance(estimator, SequenceTagger) and "coef_" not in arrays:
        del wanted["coef_"]
        wanted.update(_PAIRS)
    if "cost_matrix_" in wanted and "cost_matrix_" in given:
        arrays["cost_matrix_"] = _named_costs(given["cost_matrix_"])
    missing = [key for key in wanted if key not in arrays]
    unknown = [key for key in arrays if key not in wanted and key not in optional]
    if missing or unknown:
        what = f"{missing[0]} is missing" if missing else f"{unknown[0]!r:.80} does not belong"
        raise ValueError(f"{what} in a {name}" + (f" of kernel {kernel!r}" if kernel else ""))

    sizes = {"d": attributes["n_features_in_"]} if "n_features_in_" in attributes else {}
    for key, array in arrays.items():
        dims, kinds = wanted[key] if key in wanted else optional[key]
        numbers = array
        if sparse.issparse(array):
            if key != "X_fit_" and not (key == "coef_" and isinstance(estimator, SequenceTagger)):
                raise ValueError(f"{key} is sparse")
            numbers = array.data
        if array.dtype.kind not in kinds:
            raise ValueError(f"{key} is of dtype {array.dtype}")
        shape = tuple(sizes.setdefault(dim, n) for dim, n in zip(dims, array.shape, strict=True))
        if array.ndim != len(dims) or array.shape != shape:
            raise ValueError(f"{key} has shape {array.shape}, which does not fit the others")
        if array.dtype.kind == "f" and not is_windows(numbers) and not np.isfinite(numbers).all():
            raise ValueError(f"{key} is not finite")
        if kinds == "O" and not all(type(value) is str for value in array):
            raise ValueError(f"{key} has an entry that is no string")
        if kinds not in ("f", "u") and key in wanted and array.ndim == 1 and (
            len(set(array.tolist())) < array.size
        ):
            raise ValueError(f"{key} has an entry twice")
        attributes[key] = array
    if sizes.get("k") == 0:
        raise ValueError("it has no labels")
    if name in _SCALERS:
        attributes.update({key: arrays.get(key) for key in _SCALER_ARRAYS})
        for key, flag in (("mean_", estimator.with_mean), ("scale_", estimator.with_std)):
            if flag and attributes[key] is None:
                raise ValueError(f"{key} is missing")
    elif name == "SequenceVectorizer":
        if "feature_names_" in attributes:
            attributes["feature_names_"] = attributes["feature_names_"].tolist()
    else:
        if kernel not in (None, "linear"):
            attributes["_kernel_parameters"] = _kernel_parameters(
                estimator, given.get("_kernel_parameters")
            )
        attributes.update({key: given[key] for key in estimator._fitted_values})
        estimator._check_fitted(attributes)
        if "cost_matrix_" in attributes:
            costs = attributes.pop("cost_matrix_")
            attributes["_cost_held"] = tuple(given["cost_matrix_"]) if (
                "cost_matrix_" in given) else as_kept(costs)
        if sparse.issparse(attributes.get("coef_")) or _PAIRS.keys() <= attributes.keys():
            held = _taken_by_pairs(attributes)
            if given.get("is_spread") is True:
                refuse_beyond_memory(
                    "weights of all features and labels",
                    8 * attributes["n_features_in_"] * held.rows.shape[1], "")
                attributes.update(held.fitted())
            else:
                attributes["_of_pairs"] = held


def _named_costs(given):
    """The costs for a name and a number of labels."""
    if type(given) is not list or len(given) != 2 or given[0] not in COSTS or (
            type(given[1]) is not int or not 0 < given[1] < 2**16):
        raise ValueError(f"cost_matrix_ is {given!r:.80}")
    return named_costs(*given)


def _taken_by_pairs(attributes):
    """The weights of a tagger, removed from its fitted attributes."""
    if "coef_" in attributes:  # of older files
        coef = attributes.pop("coef_")
        if max(coef.nnz, coef.shape[1]) >= 2**31:
            raise ValueError("coef_ is sparse")
        check_claim(
            f"coef_ claims {coef.shape[1]} columns, of which {coef.nnz} weights are stored",
            4 * coef.shape[1], coef.data.nbytes + coef.indices.nbytes)
        # of a column without weights 4 bytes are taken, whatever integers the matrix has
        coef = sparse.csr_array(
            (coef.data, coef.indices.astype(np.int32, copy=False),
             coef.indptr.astype(np.int32, copy=False)), shape=coef.shape).tocsc()
        pairs = np.diff(coef.indptr), coef.indices, coef.data
    else:
        pairs = [attributes.pop(key) for key in _PAIRS]
    if attributes["classes_"].size > MOST_OF_PAIRS or "transition_feature_coef_" in attributes:
        raise ValueError("coef_ is sparse")
    ends = [attributes.pop(key) for key in ("intercept_", "start_coef_", "end_coef_")]
    behind = [attributes.pop("transition_coef_")]
    if "ngram_coef_" in attributes:
        behind.append(attributes.pop("ngram_coef_"))
    return WeightsOfPairs.of_arrays(*pairs, ends, behind)


def _kernel_parameters(estimator, given):
    """Arguments of the kernel function: numbers and None, by known names."""
    if type(given) is not dict:
        raise ValueError(f"the arguments of its kernel are {given!r:.80}")
    known = {*KERNEL_PARAMS.get(estimator.kernel, ()), *(estimator.kernel_params or ())}
    for key in given:
        if key not in known:
            raise ValueError(f"kernel {estimator.kernel!r} has no parameter {key!r:.80}")
    found = {key: _decoded(key, value, None) for key, value in given.items()}
    for key, value in found.items():
        if value is not None and not (isinstance(value, Real) and np.isfinite(value)):
            raise ValueError(f"kernel parameter {key} is {value!r:.80}")
    return found


def _check_parameters(estimator):
    """The checks of parameters in `fit` that need no data."""
    estimator._check_parameters()
    for key in ("n_jobs", "random_state", "verbose"):
        value = getattr(estimator, key)
        if not isinstance(value, (Integral, np.bool_, type(None))):
            raise ValueError(f"{key} is {value!r:.80}")
    if estimator.n_jobs is not None and not estimator.n_jobs:
        raise ValueError("n_jobs is 0")


def _scalar(key, value, kind):
    if type(value) is not kind or not abs(value) < np.inf:
        raise ValueError(f"{key} is {value!r:.80}")
    if kind is int and not 0 <= value < 2**48:
        raise ValueError(f"{key} is {value}")
    return value


def _encoded(key, value, arrays):
    """A parameter in JSON. Arrays in it go to `arrays`, unless this is None."""
    if isinstance(value, (np.number, np.bool_)):
        # arithmetic in float32 depends on the type of scalars
        return {"scalar": [value.dtype.name, _encoded(key, value.item(), None)]}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # NumPy's strings, too
    if type(value) in (int, float):
        # JSON has no infinities
        return value if abs(value) < np.inf else {"float": str(value)}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encoded(f"{key}[{i}]", part, arrays) for i, part in enumerate(value)]}
    if isinstance(value, dict):
        pairs = [
            [_encoded(f"a key of {key}", name, None), _encoded(f"{key}[{name!r}]", part, arrays)]
            for name, part in value.items()
        ]
        return {"dict": pairs}
    for kind, classes in OBJECTS.items():
        if type(value) in classes.values():
            given = _encoded(key, value.get_params(deep=False), arrays)
            return {kind: [type(value).__name__, given]}
    if type(value) is Automaton and arrays is not None:
        return {"automaton": {
            part: _encoded(f"{key}.{part}", getattr(value, part), arrays)
            for part in AUTOMATON}}
    if type(value).__name__ in FACTORS and arrays is not None:
        name = type(value).__name__
        given = {part: getattr(value, part) for part in FACTORS[name][1]}
        if name == "CountFactor":
            given["negated"] = value.negated.astype(bool)
        return {"factor": [name, {
            part: _encoded(f"{key}.{part}", inner, arrays) for part, inner in given.items()}]}
    if isinstance(value, type) and value in (np.float64, np.float32) or (
        isinstance(value, np.dtype) and value in (np.dtype("f8"), np.dtype("f4"))
    ):
        return {"dtype": np.dtype(value).name}
    if type(value) in _SOLVERS.values():
        options = value.get_params(deep=False)
        kind = next(kind for kind, cls in _SOLVERS.items() if cls is type(value))
        return {kind: {
            name: _encoded(f"{key}__{name}", options[name], None) for name in options
        }}
    if hasattr(value, "__array__") and arrays is not None:
        name = f"parameters/{key}"
        arrays[name] = np.asarray(value)
        return {"array": name}
    if callable(value):
        what = "it is a callable, and model files hold no code"
    else:
        what = f"it is of type {type(value).__name__}"
    remedy = "; set it to an integer or None first" if key == "random_state" else ""
    raise TypeError(f"{key}={value!r:.80} cannot be saved: {what}{remedy}.")


def _decoded(key, value, arrays):
    """The parameter of `_encoded`. Its arrays are removed from `arrays`."""
    if value is None or type(value) in (bool, str, int, float) and is_small(value):
        return value
    if type(value) is not dict or len(value) != 1:
        raise ValueError(f"parameter {key!r:.80} makes no sense")
    (kind, inner), = value.items()
    if kind == "scalar" and type(inner) is list and len(inner) == 2 and inner[0] in _SCALAR_DTYPES:
        return np.dtype(inner[0]).type(_decoded(key, inner[1], None))
    if kind == "float" and inner in ("inf", "-inf", "nan"):
        return float(inner)
    if kind == "dtype" and inner in ("float64", "float32"):
        return np.dtype(inner).type
    if kind in _SOLVERS and type(inner) is dict:
        known = _parameters_of(_SOLVERS[kind])
        for name in inner:
            if name not in known:
                raise ValueError(f"a solver has no parameter {name!r:.80}")
        return _SOLVERS[kind](**{
            name: _decoded(f"{key}__{name}", option, None) for name, option in inner.items()
        })
    if kind == "array" and arrays is not None:
        return arrays.pop(inner)
    if kind in ("list", "tuple") and type(inner) is list:
        return (list if kind == "list" else tuple)([_decoded(key, part, arrays) for part in inner])
    if kind in OBJECTS and type(inner) is list and len(inner) == 2 and type(inner[0]) is str:
        cls, given = OBJECTS[kind].get(inner[0]), _decoded(key, inner[1], arrays)
        if cls is None or type(given) is not dict or not (
                given.keys() <= _parameters_of(cls)):
            raise ValueError(f"there is no {kind} {inner!r:.80}{_IMPORTS.get(kind, '')}")
        return cls(**given)
    if kind == "automaton" and type(inner) is dict and inner.keys() == set(AUTOMATON):
        given = {name: _decoded(key, inner[name], arrays) for name in AUTOMATON}
        if type(given["labels"]) is not list:
            raise ValueError(f"the labels of {key} are no list")
        return Automaton(**given)
    if kind == "factor" and type(inner) is list and len(inner) == 2 and type(inner[0]) is str:
        cls, names = FACTORS.get(inner[0], (None, ()))
        # files of older releases count label 1
        known = {*names}, {*names} - {"label"}
        if cls is None or type(inner[1]) is not dict or set(inner[1]) not in known:
            raise ValueError(f"there is no factor {inner!r:.80}")
        return cls(**{name: _decoded(key, inner[1][name], arrays) for name in inner[1]})
    if kind == "dict" and type(inner) is list:
        pairs = [(_decoded(key, name, None), _decoded(key, part, arrays)) for name, part in inner]
        return dict(pairs)
    raise ValueError(f"parameter {key!r:.80} makes no sense")
