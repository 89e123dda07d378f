"""Estimators of arguments, and descriptions of fitted ones."""

import math
import os
import stat

from fastm4n.cli._labels import value_of
from fastm4n.cli._output import CommandError

# by the task of the data
ESTIMATORS = {
    "classes": "MulticlassClassifier", "ordered": "OrdinalClassifier",
    "sequences": "SequenceTagger", "graphs": "GraphTagger", "rankings": "LabelRanker",
    "matchings": "Matcher", "multilabel": "MultiLabelClassifier",
}
KERNELS_WITH_GAMMA = ("rbf", "laplacian", "poly")
# the variance of larger features may overflow
LARGEST = 1e150


def build(args, data, **options):
    """The estimator of the arguments, in a pipeline if features are made or scaled first."""
    from sklearn.pipeline import make_pipeline

    from fastm4n import estimators
    from fastm4n.base.checks import unknown_parameter
    from fastm4n.penalties._penalties import L2, ElasticNet
    from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
    from fastm4n.surrogates import Log
    from fastm4n.tasks.chain_weights import Transitions

    if args.l1_ratio is not None and args.penalty != "elasticnet":
        raise CommandError(f"--l1-ratio {args.l1_ratio:g} needs --penalty elasticnet", 2)
    if args.penalty is not None and any(name == "penalty" for name, _ in args.settings):
        raise CommandError(f"--set penalty and --penalty {args.penalty} exclude one another", 2)
    if args.gamma is not None and args.kernel not in KERNELS_WITH_GAMMA:
        raise CommandError(
            f"--gamma has no meaning for --kernel {args.kernel}, only for "
            f"{', '.join(KERNELS_WITH_GAMMA)}", 2)
    nested = {
        "solver": BlockFrankWolfe(), "surrogate": Log(),
        "penalty": L2() if args.penalty == "l2" else ElasticNet()}
    if data.task == "sequences":
        nested["transitions"] = Transitions()
    cls = getattr(estimators, ESTIMATORS[data.task])
    known = cls(**nested).get_params()
    surrogate = args.surrogate or cls().surrogate
    if surrogate != "log" and (args.cost_augmented or args.temperature != 1.0):
        flag = "--cost-augmented" if args.cost_augmented else f"--temperature {args.temperature:g}"
        raise CommandError(f"{flag} needs --surrogate log, got {surrogate}", 2)
    given = {
        "surrogate": surrogate, "max_iter": args.max_iter, "random_state": args.seed,
        "cost": args.cost, "gamma": args.gamma, "penalty__l1_ratio": args.l1_ratio,
        "penalty": nested["penalty"] if args.penalty == "elasticnet" else None,
        "surrogate__cost_augmented": args.cost_augmented or None,
        "surrogate__temperature": None if args.temperature == 1.0 else args.temperature}
    parameters = {name: value for name, value in given.items() if value is not None} | options
    if "kernel" in known:
        parameters["kernel"] = args.kernel
    elif args.kernel != "linear":
        raise CommandError(f"--kernel {args.kernel}: {data.task} take linear only", 2)
    if args.levels is not None:
        if "levels" not in known:
            raise CommandError(
                f"--levels needs --task ordered, and {data.name} holds {data.task}", 2)
        parameters["levels"] = _levels(args.levels, data.y)
    for name, value in args.settings:
        if name not in known:
            for outer in nested:
                if f"{outer}__{name}" in known:
                    raise CommandError(
                        f"--set {name}: the {outer} has it: --set {outer}__{name}=...", 2)
            text = unknown_parameter(cls.__name__, name, list(known)).rstrip(".")
            raise CommandError(f"--set {name}: {text}", 2)
        parameters[name] = value
    inner = {name: parameters.pop(name) for name in list(parameters) if "__" in name}
    outer = {name.partition("__")[0] for name in inner}
    if surrogate != "log" and "surrogate" in outer:
        raise CommandError(f"--set surrogate__... needs --surrogate log, got {surrogate}", 2)
    estimator = cls(**parameters | {name: nested[name] for name in outer}).set_params(**inner)
    steps = _scalers(args, data)
    return make_pipeline(*steps, estimator) if steps else estimator


def _scalers(args, data):
    """The steps of a pipeline before the estimator."""
    from scipy import sparse
    from sklearn.preprocessing import StandardScaler

    from fastm4n.data import SequenceScaler, SequenceVectorizer

    if data.task in ("graphs", "matchings"):
        if args.scale == "standard":
            raise CommandError(
                f"--scale standard: features of {data.task} are taken as they are", 2)
        return []
    if data.task != "sequences":
        dense = not sparse.issparse(data.X)
        wanted = args.scale == "standard" or args.scale is None and dense
        return [StandardScaler(with_mean=dense)] if wanted else []
    if args.scale != "standard":
        return []
    if data.needs_vectorizer:  # the features that a tagger makes of attributes are not scaled
        return [SequenceVectorizer(), SequenceScaler(with_mean=False)]
    return [SequenceScaler(with_mean=not sparse.issparse(data.X.values))]


def _levels(names, y):
    """Levels in the type of the target."""
    if y.dtype.kind not in "if":
        return names
    values = list(map(value_of, names))
    if None in values:
        word = names[values.index(None)]
        raise CommandError(f"--levels: the target is numbers, and {word!r} is none", 2)
    return values


def split(model):
    """The steps before the estimator or None, and the estimator."""
    if hasattr(model, "steps"):
        return model[:-1], model[-1]
    return None, model


def vectorizer(model):
    """The `SequenceVectorizer` of the model, or None."""
    from fastm4n.data._vectorizer import SequenceVectorizer

    before, estimator = split(model)
    if before is not None and isinstance(before[0], SequenceVectorizer):
        return before[0]
    return getattr(estimator, "vectorizer_", None)


def transformed(before, data, X=None):
    """Fit the steps before an estimator, and transform all examples, or the examples X."""
    X = data.X if X is None else X
    check_scale(before, data, X)
    return before.fit_transform(X)


def check_scale(before, data, X):
    """Refuse columns that steps before an estimator cannot scale."""
    import numpy as np
    from scipy import sparse
    from sklearn.preprocessing import StandardScaler

    if before is not None and isinstance(before[0], StandardScaler):
        largest = abs(getattr(X, "values", X)).max(axis=0)  # of sequences all rows
        largest = np.ravel(largest.toarray() if sparse.issparse(largest) else largest)
        wrong = np.flatnonzero(largest > LARGEST)
        if wrong.size:
            place = wrong[0]
            name = place + 1 if data.feature_names is None else data.feature_names[place]
            raise ValueError(
                f"column {name} has values up to {largest[place]:.2g}, whose variance overflows: "
                "divide the column by a constant, or leave it out.")


def features(model, X):
    """X as the estimator takes it. Features of attributes are made once for several calls."""
    before, _ = split(model)
    found = vectorizer(model) if before is None else before
    return X if found is None else found.transform(X)


def described(estimator, *, alpha=True):
    """One line about an estimator."""
    kernel = getattr(estimator, "kernel", "linear")
    used = getattr(estimator, "alpha_", estimator.alpha)
    used = used if isinstance(used, str) else format(used, "g")
    # imported weights have no alpha
    alpha = alpha and (hasattr(estimator, "alpha_") or not estimator.__sklearn_is_fitted__())
    cost = estimator.cost if isinstance(estimator.cost, str) else "a matrix"
    ratio = getattr(estimator.penalty, "l1_ratio", None)
    return (
        f"{type(estimator).__name__}: surrogate {estimator.surrogate}, cost {cost}, kernel "
        f"{kernel}" + (f", alpha {used}" if alpha else "")
        + (f", pairwise {estimator.pairwise}" if hasattr(estimator, "pairwise") else "")
        + ("" if ratio is None else f", {type(estimator.penalty).__name__} l1_ratio {ratio:g}")
    )


def n_weights(estimator):
    """Numbers of nonzero and of all weights of features. None for kernels."""
    held = vars(estimator).get("_of_pairs")
    if held is not None:  # coef_ would be made for all labels and columns
        return estimator.n_nonzero_, held.n_labels * estimator.n_features_in_
    if not hasattr(estimator, "coef_"):
        return None
    return estimator.n_nonzero_, math.prod(estimator.coef_.shape)


def outcome(estimator):
    """Results of a fit for a document. Weights without a certificate have no gap."""
    certificate = {
        "alpha": "alpha_", "passes": "n_iter_", "relative_gap": "relative_gap_",
        "gap": "duality_gap_", "primal": "primal_objective_", "dual": "dual_objective_",
    }
    return {
        "estimator": type(estimator).__name__, "n_features": estimator.n_features_in_,
        **{key: getattr(estimator, name) for key, name in certificate.items()
           if hasattr(estimator, name)},
        **inference(estimator),
    }


def inference(estimator):
    """The oracle of a graph tagger and its exactness. Empty for other outputs."""
    if not hasattr(estimator, "oracle_"):
        return {}
    return {
        "oracle": estimator.oracle_, "exact": estimator.exact_,
        "integrality_gap": estimator.integrality_gap_,
    }


def parameters_of(estimator, *, without=()):
    """Parameters for a document, including parameters of nested objects."""
    return {
        key: value for key, value in estimator.get_params().items()
        if key not in ("callback", *without) and not hasattr(value, "get_params")
    }


def is_file_of_ours(file):
    """Whether it is a file of a model or a path, perhaps a damaged one."""
    from fastm4n.base.array_files import MAGIC

    start = _start(file)
    return start == MAGIC or start is not None and file.lower().endswith(".fm4n")


def is_file_of_crfsuite(file):
    from fastm4n.base.array_files import MAGIC_OF_CRFSUITE

    return (_start(file) or b"").startswith(MAGIC_OF_CRFSUITE)


def _start(file):
    """The first 8 bytes of a regular file, or None if they cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return None
        with open(file, "rb") as stream:
            return stream.read(8)
    except OSError:  # reported by the reader
        return None
