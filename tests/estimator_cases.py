"""Every estimator, with a small data set: what the contract of estimators is tested on."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from making import made
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    Transitions,
)
from fastm4n.data._rankings import places_to_strings
from fastm4n.surrogates import surrogate_name

SURROGATES = ("max_min", "max_margin", "log")
ASYMMETRIC = np.array([[0.0, 1.0, 4.0], [3.0, 0.0, 0.5], [0.5, 2.0, 0.0]])


@dataclass
class Case:
    """An estimator and data for it.

    X and y are arrays, or lists of one array for each example; `equal` are examples of one size,
    which matrices of costs need. `smaller` gives X of fewer features; `probabilities` is the
    method that only the log surrogate has; `other(y, rng)` gives outputs that differ here and
    there, `cold` makes data that dual points do not fit; `bits` are parameters whose fits are
    compared bit by bit, beside the usual ones; `bad` are values that parameters refuse, beside
    `BAD`; `more_calls` need a fitted estimator; `mirror_prox` is whether the max-min oracle may be
    that.
    """

    cls: type
    X: object
    y: object
    probabilities: str
    other: Callable
    cold: tuple
    tol: float = 0.02
    equal: tuple | None = None
    bits: list = field(default_factory=list)
    bad: dict = field(default_factory=dict)
    bad_outputs: object = None
    more_calls: tuple = ()
    mirror_prox: bool = True

    def fit(self, *args, X=..., y=..., sample_weight=None, **parameters):
        parameters = {"random_state": 0, "alpha": 0.05, "tol": self.tol, **parameters}
        if not args:
            parameters.setdefault("surrogate", "max_min")
        if self.cls is LabelRanker:
            parameters.setdefault("cost", "zero_one")
        if self.cls is OrdinalClassifier:
            parameters.setdefault("fit_intercept", True)
        X, y = self.X if X is ... else X, self.y if y is ... else y
        return made(self.cls, *args, **parameters).fit(X, y, sample_weight)

    def rows(self, rows):
        return {"X": take(self.X, rows), "y": take(self.y, rows)}

    def features(self, example):
        """The array of features of an example of X."""
        return example

    def changed(self, change):
        """X, the features of each example (or of all, where it is one array) changed."""
        return [*map(change, self.X)] if isinstance(self.X, list) else change(self.X)

    def smaller(self):
        return self.changed(lambda x: x[..., :2])

    def answers(self, estimator, X):
        """What the estimator says of X, by every method."""
        methods = ["predict", "decision_function"]
        if surrogate_name(estimator.surrogate) == "log":
            methods.append(self.probabilities)
        answers = {method: list(getattr(estimator, method)(X)) for method in methods}
        if surrogate_name(estimator.surrogate) != "max_margin":
            answers["predict min_risk"] = list(estimator.predict(X, decode="min_risk"))
        return answers

    @property
    def by_class(self):
        """Parameters by which each label has weights of its own."""
        return {"form": "classes"} if self.cls is OrdinalClassifier else {}

    def least_score(self, accuracy):
        """The score where so large a share is right, costs of other parts being one."""
        return accuracy - (self.cls is OrdinalClassifier)

    @property
    def is_single(self):
        """Whether an output is one label."""
        return self.cls in (MulticlassClassifier, OrdinalClassifier)

    @property
    def n(self):
        return len(self.X)

    @property
    def dims(self):
        """Dimensions of the array of features of an example."""
        return self.features(self.X[0]).ndim

    @property
    def n_features(self):
        return self.features(self.X[0]).shape[-1]

    @property
    def kernels(self):
        return ("linear", "rbf") if "kernel" in self.cls().get_params() else ("linear",)


@dataclass
class GraphCase(Case):
    """Examples that are tuples of features of nodes, edges, and features of those."""

    def features(self, example):
        return example[0]

    def changed(self, change):
        return [(change(x), *rest) for x, *rest in self.X]


def take(values, rows):
    return [values[i] for i in rows] if isinstance(values, list) else values[rows]


def labels():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X)[::5], y[::5]


def sequences(n=16, d=4, R=3, seed=0):
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(d, R))
    X = [np.round(4 * rng.normal(size=(T, d))) / 4 for T in rng.integers(1, 9, n)]
    y = [["abc"[label] for label in np.argmax(x @ truth, axis=1)] for x in X]
    return X, y


def rankings(n=24, d=4, M=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(4 * rng.normal(size=(n, d))) / 4
    scores = X @ rng.normal(size=(d, M)) + 0.7 * rng.normal(size=(n, M))
    return X, np.argsort(np.argsort(-scores, axis=1), axis=1)


def pairs(sizes=(1, 2, 3, 4) * 5, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for M in sizes:
        before, places = rng.normal(size=(M, d)), rng.permutation(M)
        after = np.empty_like(before)
        after[places] = before + 0.7 * rng.normal(size=(M, d))
        X.append(np.round(4 * (before[:, np.newaxis] - after) ** 2) / 4)
        y.append(places)
    return X, y


def graphs(n=16, d=4, R=3, seed=0):
    """Trees: one oracle, whichever of them a call is of."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(d, R))
    X, y = [], []
    for _ in range(n):
        T = rng.integers(1, 6)
        x = np.round(4 * rng.normal(size=(T, d))) / 4
        edges = [(int(rng.integers(t)), t)[:: rng.choice([-1, 1])] for t in range(1, T)]
        X.append((
            x, np.array(edges, dtype=int).reshape(-1, 2), rng.integers(0, 5, (T - 1, 2)) / 4))
        y.append(["abc"[label] for label in np.argmax(x @ truth, axis=1)])
    return X, y


def label_sets(n=48, d=4, seed=0):
    """Three labels that mostly go together."""
    rng = np.random.default_rng(seed)
    X = np.round(4 * rng.normal(size=(n, d))) / 4
    truth = rng.normal(size=(d, 1)) * [1.0, 1.0, -1.0] + 0.2 * rng.normal(size=(d, 3))
    return X, (X @ truth > 0.0).astype(int)


def other_label_sets(y, rng):
    return np.where(rng.random(y.shape) < 0.1, 1 - y, y)


def other_labels(y, rng):
    return np.where(rng.random(len(y)) < 0.2, rng.integers(0, 3, len(y)), y)


def other_sequences(y, rng):
    return [part[::-1] if rng.random() < 0.2 else part for part in y]


def other_places(y, rng):
    parts = [rng.permutation(len(part)) if rng.random() < 0.2 else part for part in y]
    return parts if isinstance(y, list) else np.array(parts)


def with_one_shorter(X, y):
    longest = max(range(len(X)), key=lambda i: len(X[i]))
    return [[part[int(i == longest):] for i, part in enumerate(parts)] for parts in (X, y)]


OTHER_CLASSES = (lambda X, y: (X, y + 1), lambda X, y: (X, y % 2))
PERMUTATION_BITS = [{"oracle": "mirror_prox", "tol": 0.1}]
CASES = {
    "MulticlassClassifier": Case(
        MulticlassClassifier, *labels(), "predict_proba", other_labels, OTHER_CLASSES,
        bits=[{"cost": "squared"}, {"kernel": "rbf", "kernel_cache_size": 0.01}],
        bad={"kernel_params": [1, [("gamma", 1)]]},
    ),
    "OrdinalClassifier": Case(
        OrdinalClassifier, *labels(), "predict_proba", other_labels, OTHER_CLASSES,
        bad={"kernel_params": [1, [("gamma", 1)]]},
    ),
    "SequenceTagger": Case(
        SequenceTagger, *sequences(), "predict_marginals", other_sequences, tol=0.05,
        cold=(
            with_one_shorter, lambda X, y: (
                X, [["z" if label == "c" else label for label in part] for part in y]),
        ),
        bits=[
            {"oracle": "mirror_prox", "tol": 0.3}, {"cost": ASYMMETRIC},
            {"transitions": Transitions(features="all"), "surrogate": "log"},
            {"states": "observed", "surrogate": "max_margin"},
            {"transitions": Transitions(order=3), "surrogate": "log"},
            {"transitions": Transitions(order=2), "surrogate": "max_margin", "constraints": ".*"},
        ],
        bad={
            "transitions": [2, "no", []],
            "states": ["some", None], "constraints": [3, ["a"]],
        },
        more_calls=(
            lambda tagger, X: tagger.predict_kbest(X, 2), lambda tagger, X: tagger.explain(),
        ),
    ),
    "GraphTagger": GraphCase(
        GraphTagger, *graphs(), "predict_marginals", other_sequences, tol=0.05,
        cold=(
            lambda X, y: (X[::-1], y[::-1]), lambda X, y: (
                X, [["z" if label == "c" else label for label in part] for part in y]),
        ),
        bits=[
            {"cost": ASYMMETRIC}, {"pairwise": "symmetric", "surrogate": "log"},
            {"pairwise": "attractive", "surrogate": "max_margin"},
        ],
        bad={
            "pairwise": ["tables", None], "inference": ["best", None], "grid_shape": [3, (1, 2)],
            "label_features": [0, None, "yes"],
        },
        more_calls=(
            lambda tagger, X: tagger.predict(X, return_bound=True),
            lambda tagger, X: tagger.explain(),
        ),
        mirror_prox=False,
    ),
    "LabelRanker": Case(
        LabelRanker, *rankings(), "predict_marginals", other_places,
        cold=(
            lambda X, y: (X, places_to_strings(y, ["a", "b", "c"])),
            lambda X, y: (X, np.hstack([y, np.full((len(y), 1), 3)])),
        ),
        bits=PERMUTATION_BITS, bad={"form": ["names", None, ["ranks"]]},
        bad_outputs=rankings()[1][:, :1],
    ),
    "MultiLabelClassifier": Case(
        MultiLabelClassifier, *label_sets(), "predict_proba", other_label_sets,
        cold=(
            lambda X, y: (X, y[:, :2]), lambda X, y: (X, np.hstack([y, y[:, :1]])),
        ),
        bits=[{"cost": np.array([[0.0, 1.0], [3.0, 0.0]])}, {"graph": "none"}],
        bad={"graph": ["star", None, [[0, 1, 2]]], "inference": ["gibbs", None]},
        bad_outputs=np.full((48, 3), 2),
    ),
    "Matcher": Case(
        Matcher, *pairs(), "predict_marginals", other_places, tol=0.01,
        cold=(lambda X, y: (X[::-1], y[::-1]), lambda X, y: pairs([3] * 20)),
        equal=tuple(map(np.array, pairs([3] * 20))),
        bits=[*PERMUTATION_BITS, {"unmatched": "learn", "surrogate": "max_margin"}],
        bad={"unmatched": ["yes", np.nan, np.inf, True, [0.0]]},
    ),
}
