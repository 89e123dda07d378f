"""Held-out losses of estimators without tuning, next to peers with their own defaults.

    FASTM4N_DATA=... python benchmarks/defaults.py [TASK ...] [--rules] [--quick] [--only NAME ...]

writes benchmarks/results/defaults.json and docs/results/defaults.md. With TASK it replaces the
results of those tasks and leaves the others. With --only it runs the contestants whose name begins
so, adds them to the results, and leaves the rest. With --quick (the smallest training set, one
split) it prints the page and leaves all files alone. The tasks:

    classes     MulticlassClassifier, linear: sets of the data folder and of scikit-learn, rare
                labels of rcv1, and topics of made texts, as counts and as tf-idf
    kernels     MulticlassClassifier with an RBF kernel
    costs       MulticlassClassifier with costs of mistakes, drawn or squared distances of levels
    levels      OrdinalClassifier: the sets of the folder, and diabetes in 5 and 10 levels
    rankings    LabelRanker
    label_sets  MultiLabelClassifier
    matchings   Matcher: columns of scans, points of photographs
    sequences   SequenceTagger: letters, chunks, parts of speech
    graphs      GraphTagger: snakes, horses

A problem is a set, a number of training examples (100, 1,000, all) and a scaling (standardised or
raw). Each is drawn three times, seeds 0 to 2 (`--first-seed` begins elsewhere). CPU seconds are of
one thread. Warnings of convergence are not heeded, neither ours nor those of peers.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from _data import MULTICLASS, ORDINAL, RANKING, folder, load_multiclass, load_ordinal, load_ranking
from _peers import RESULTS, ROOT, describe, environment, has_package
from scipy import sparse
from scipy.optimize import linear_sum_assignment
from scipy.stats import kendalltau
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import f1_score, log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    SequenceVectorizer,
)
from fastm4n.datasets import chunking_attributes, load_conll, load_conllu, window_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE, PAGE = RESULTS / "defaults.json", ROOT / "docs" / "results" / "defaults.md"
SIZES, SEEDS = (100, 1000, None), 3
# held-out examples of a problem, and training examples where there are more
HELD_OUT, SENTENCES, MOST = 2000, 500, 5000
SURROGATES = ("max_min", "max_margin", "log")


@dataclass
class Problem:
    """A draw of a training set, and examples held out."""

    name: str
    n: int
    scaling: str
    X: object
    y: object
    X_test: object
    y_test: object
    cost: object = None


# ----------------------------------------------------------------------- problems


def draws(name, X, y, seeds, sizes=SIZES, scalings=("standardised", "raw")):
    """Problems of a set that comes without a split: about a third is held out."""
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(n)
        test, rest = np.split(order, [min(HELD_OUT, n // 3)])
        found = sorted({min(size or MOST, rest.size, MOST) for size in sizes})
        for size in found:
            train = rest[:size]
            for scaling in scalings:
                A, B = X[train], X[test]
                if scaling == "standardised":
                    scaler = StandardScaler(with_mean=not sparse.issparse(X)).fit(A)
                    A, B = scaler.transform(A), scaler.transform(B)
                yield Problem(name, size, scaling, A, y[train], B, y[test])


def topics(seed=0, n=4000, n_words=20000, n_classes=20):
    """Counts of words in made texts, and their topics: words by Zipf's law, a tenth by topic."""
    rng = np.random.default_rng(seed)
    common = 1.0 / np.arange(1, n_words + 1)
    y = rng.integers(n_classes, size=n)
    of_topic = [rng.permutation(n_words)[: n_words // 50] for _ in range(n_classes)]
    rows, columns = [], []
    for i, topic in enumerate(y):
        length = rng.poisson(80) + 5
        n_own = rng.binomial(length, 0.1)
        words = np.concatenate([
            rng.choice(n_words, length - n_own, p=common / common.sum()),
            rng.choice(of_topic[topic], n_own)])
        rows.append(np.full(words.size, i))
        columns.append(words)
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    X = sparse.csr_matrix((np.ones(rows.size), (rows, columns)), shape=(n, n_words))
    X.sum_duplicates()
    return X, y


def rare_labels():
    """Rows of rcv1, standing for the rarest of their labels."""
    from multilabel import load

    X, Y, Z, T = load("rcv1")
    X, Y = sparse.vstack([X, Z]).tocsr(), np.vstack([Y, T])
    some = Y.any(axis=1)
    return X[some], np.where(Y[some], Y.sum(axis=0), len(Y) + 1).argmin(axis=1)


def classes(seeds):
    for name in MULTICLASS:
        found = load_multiclass(name)
        if found is not None:
            yield from draws(name, *found, seeds)
    yield from draws("breast_cancer", *load_breast_cancer(return_X_y=True), seeds)
    yield from draws("digits", *load_digits(return_X_y=True), seeds)
    yield from draws("rcv1rare", *rare_labels(), seeds, scalings=("raw",))
    X, y = topics()
    yield from draws("textcounts", X, y, seeds, scalings=("raw",))
    yield from draws("texttfidf", TfidfTransformer().fit_transform(X), y, seeds, scalings=("raw",))


def kernels(seeds):
    for problem in classes(seeds):
        if problem.scaling == "standardised" and problem.n <= 1000:
            yield problem


def levels(seeds):
    for name in ORDINAL:
        found = load_ordinal(name)
        if found is not None:
            yield from draws(name, *found, seeds)
    X, t = load_diabetes(return_X_y=True, scaled=False)
    for k in (5, 10):
        y = np.searchsorted(np.quantile(t, np.arange(1, k) / k), t) + 1
        yield from draws(f"diabetes{k}", X, y, seeds)


def costs(seeds):
    """Classes with costs that are not 0-1: drawn ones, and squared distances of levels."""
    drawn = np.exp(np.random.default_rng(0).normal(size=(100, 100)))
    for problem in classes(seeds):
        if problem.scaling == "standardised" and problem.n <= 1000:
            yield with_cost(problem, drawn)
    for problem in levels(seeds):
        if problem.scaling == "standardised" and problem.n <= 1000:
            numbers = np.arange(100.0)
            yield with_cost(problem, np.square(numbers[:, np.newaxis] - numbers))


def with_cost(problem, cost):
    """The problem with labels 0 ... k - 1, of those that occur in training, and costs of these."""
    known = np.unique(problem.y)
    cost = cost[: known.size, : known.size] * (1.0 - np.eye(known.size))
    some = np.isin(problem.y_test, known)
    return Problem(
        problem.name, problem.n, problem.scaling, problem.X, np.searchsorted(known, problem.y),
        problem.X_test[some], np.searchsorted(known, problem.y_test[some]), cost)


def rankings(seeds):
    from fastm4n.data._rankings import as_places

    for name in RANKING:
        X, y = load_ranking(name)
        places = as_places(y)
        places = places if isinstance(places, np.ndarray) else places[0]
        yield from draws(name, X, places, seeds, sizes=(100, None))


def label_sets(seeds):
    from multilabel import SETS, SPARSE, load

    for name in SETS:
        X, Y, Z, T = load(name)
        stack = sparse.vstack if name in SPARSE else np.vstack
        X, Y = stack([X, Z]), np.vstack([Y, T])
        X = X.tocsr() if name in SPARSE else X
        yield from draws(
            name, X, Y, seeds, sizes=(100,) if name in ("cal500", "bibtex") else (100, 1000),
            scalings=("raw",))


def matchings(seeds):
    from matching import column_problems, point_problems

    for name, make in (("columns", column_problems), ("points", point_problems)):
        for seed in seeds:
            train, test = make(seed)
            for n in (20, 100, 300):
                yield Problem(
                    name, n, "raw", train["X"][:n], train["y"][:n], test["X"], test["y"])


def vectorized(train, test, attributes):
    """X, y and held-out X, y of parts of a treebank."""
    vectorizer = SequenceVectorizer()
    return (
        vectorizer.fit_transform([attributes(tokens) for tokens in train.tokens]), train.labels,
        vectorizer.transform([attributes(tokens) for tokens in test.tokens]), test.labels)


def sequence_sets():
    """(name, X, y, held-out X, held-out y)."""
    from ocr import ocr_part

    pos = folder() / "pos"
    yield "OCR", *ocr_part(0), *(part[:SENTENCES] for part in ocr_part(1))
    train, test = (
        load_conllu(pos / f"ta_ttb-ud-{part}.conllu.gz") for part in ("train", "test"))
    yield "Tamil", *vectorized(train, test, window_attributes)
    train, test = (
        load_conll(pos / f"tweebank_v1-{part}.conll.gz", label_column=3, delimiter="\t")
        for part in ("train", "test"))
    yield "tweets", *vectorized(
        train, test, lambda tokens: window_attributes([columns[1] for columns in tokens]))
    X, y, X_test, y_test = vectorized(
        *(load_conll(folder() / "conll2000" / f"{part}.txt.gz") for part in ("train", "test")),
        lambda tokens: chunking_attributes(*zip(*tokens, strict=True)))
    yield "CoNLL-2000", X, y, X_test[:SENTENCES], y_test[:SENTENCES]


def sequences(seeds):
    for name, X, y, X_test, y_test in sequence_sets():
        for seed in seeds:
            order = np.random.default_rng(seed).permutation(len(X))
            for n in sorted({min(size, len(X)) for size in (100, 1000)}):
                train = order[:n]
                yield Problem(
                    name, n, "raw", X[train], [y[i] for i in train], X_test, y_test)


def graphs(seeds):
    from _graph_data import load_horses, load_snakes

    for name, load in (("horses", load_horses), ("snakes", load_snakes)):
        X, y, is_test = load()[:3]
        test, train = np.flatnonzero(is_test)[:60], np.flatnonzero(~is_test)
        for seed in seeds[:1]:
            some = np.random.default_rng(seed).permutation(train)[:20]
            yield Problem(name, some.size, "raw", X[some], y[some], X[test], y[test])


# ------------------------------------------------------------------------- losses


def error(problem, predict, _):
    return {"error": 100 * np.mean(predict(problem.X_test) != problem.y_test)}


def error_and_log_loss(problem, predict, model):
    found = error(problem, predict, model)
    if hasattr(model, "predict_proba"):
        # labels that do not occur in training have no probability
        known = np.isin(problem.y_test, model.classes_)
        found["log loss"] = log_loss(
            problem.y_test[known], model.predict_proba(problem.X_test)[known],
            labels=model.classes_)
    return found


def absolute(problem, predict, _):
    return {"absolute error": np.mean(np.abs(predict(problem.X_test) - problem.y_test))}


def mean_cost(problem, predict, _):
    # in units of the cost of a mistake, which differs between sets
    unit = problem.cost.sum() / (problem.cost.size - len(problem.cost))
    return {"cost": 100 * np.mean(problem.cost[problem.y_test, predict(problem.X_test)]) / unit}


def of_rankings(problem, predict, _):
    found = predict(problem.X_test)
    taus = [kendalltau(a, b).statistic for a, b in zip(found, problem.y_test, strict=True)]
    return {"1 - tau": 100 * (1 - np.mean(taus)), "items wrong": 100 * np.mean(found != problem.y_test)}


def of_label_sets(problem, predict, _):
    found, truth = predict(problem.X_test), problem.y_test
    return {
        "Hamming": 100 * np.mean(found != truth),
        "1 - micro-F1": 100 * (1 - f1_score(truth, found, average="micro", zero_division=0)),
        "sets wrong": 100 * np.mean((found != truth).any(axis=1)),
    }


def of_positions(problem, predict, _):
    from fastm4n.metrics import span_f1_score, token_accuracy

    found = predict(problem.X_test)
    if problem.name == "CoNLL-2000":
        return {"error": 100 * (1 - span_f1_score(problem.y_test, found))}
    return {"error": 100 * (1 - token_accuracy(problem.y_test, found))}


# ---------------------------------------------------------------------- contestants


class Median:
    """The level in the middle of what probabilities say."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.model.fit(X, y)
        return self

    def predict(self, X):
        chances = self.model.predict_proba(X).cumsum(axis=1)
        return self.model.classes_[(chances >= 0.5 - 1e-12).argmax(axis=1)]


class LeastRisk:
    """The class of least expected cost by what probabilities say."""

    def __init__(self, model, cost):
        self.model, self.cost = model, cost

    def fit(self, X, y):
        self.model.fit(X, y)
        return self

    def predict(self, X):
        return np.argmin(self.model.predict_proba(X) @ self.cost, axis=1)


class Places:
    """Ranks by real numbers of each item: those of `model`, or their mean (Borda)."""

    def __init__(self, model=None):
        self.model = model

    def fit(self, X, y):
        self.mean = y.mean(axis=0)
        if self.model is not None:
            self.model.fit(X, y)
        return self

    def predict(self, X):
        scores = (
            np.tile(self.mean, (X.shape[0], 1)) if self.model is None else self.model.predict(X))
        return scores.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")


class Pairs:
    """Logistic regression of single pairs, and the best assignment of its log-odds."""

    def fit(self, X, y):
        right = np.arange(X.shape[1])[None, None, :] == y[:, :, None]
        self.model = LogisticRegression().fit(X.reshape(-1, X.shape[-1]), right.ravel())
        return self

    def predict(self, X):
        odds = self.model.decision_function(X.reshape(-1, X.shape[-1])).reshape(X.shape[:3])
        return np.array([linear_sum_assignment(-each)[1] for each in odds])


class CRFsuite:
    """sklearn-crfsuite with its defaults (L-BFGS, c2 = 1), fed with attributes."""

    def fit(self, X, y):
        from sklearn_crfsuite import CRF

        self.model = CRF()
        self.model.fit(attributes(X), [list(map(str, each)) for each in y])
        self.labels = {str(label): label for each in y for label in each}
        return self

    def predict(self, X):
        from fastm4n import Sequences

        found = [[self.labels[label] for label in each] for each in self.model.predict(attributes(X))]
        return Sequences(np.concatenate(found), X.offsets)


class Nodes:
    """Logistic regression of single nodes."""

    def fit(self, X, y):
        self.model = LogisticRegression().fit(X.node_features, y.values)
        return self

    def predict(self, X):
        from fastm4n import Sequences

        return Sequences(self.model.predict(X.node_features), X.node_offsets)


def attributes(X):
    """Columns of positions as attributes of CRFsuite."""
    found = []
    for each in X:
        rows = sparse.csr_matrix(each)
        found.append([
            {str(j): v for j, v in zip(
                rows.indices[a:b].tolist(), rows.data[a:b].tolist(), strict=True)}
            for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)])
    return found


def label_set_peer(chain=None, model=None):
    from multilabel import Independent

    if model is None:
        return Independent(1.0, chain)
    peer = Independent(1.0, False)
    peer.model.set_params(estimator=model)
    return peer


class Mord:
    """An estimator of mord, which takes levels 0 ... k - 1 that all occur."""

    def __init__(self, name):
        import mord

        self.model = getattr(mord, name)()

    def fit(self, X, y):
        self.levels, codes = np.unique(y, return_inverse=True)
        self.model.fit(X, codes)
        return self

    def predict(self, X):
        return self.levels[np.clip(self.model.predict(X), 0, self.levels.size - 1).astype(int)]


def variance(X):
    """The total variance of the rows of X."""
    squares = X.multiply(X).sum() if sparse.issparse(X) else np.sum(np.square(X))
    return squares / X.shape[0] - np.sum(np.square(X.mean(axis=0)))


def variance_of_kernel(X):
    """The same in the feature space of the RBF kernel of gamma="scale"."""
    values = X.toarray() if sparse.issparse(X) else X
    return 1.0 - rbf_kernel(X, gamma=1.0 / (X.shape[1] * values.var())).mean()


def capped(factor, of=variance):
    return lambda problem: min(1.0, factor * of(problem.X)) / problem.n


def over_n(c):
    return lambda problem: c / problem.n


def ours(task):
    """The default, and one for each surrogate."""
    cls, parameters = OURS[task]

    def made(problem, *surrogate):
        cost = {} if problem.cost is None else {"cost": problem.cost}
        return cls(*surrogate, random_state=0, **parameters, **cost)

    return {"default": made, **{
        surrogate: lambda problem, surrogate=surrogate: made(problem, surrogate)
        for surrogate in SURROGATES}}


def by_rules(task):
    """One for each surrogate and rule for alpha, and each intercept."""
    cls, parameters = OURS[task]
    rules, others = RULES[task]
    found = {}
    for surrogate in SURROGATES:
        for rule, alpha in rules.items():
            for other, options in others.items():
                found[", ".join(filter(None, (surrogate, rule, other)))] = (
                    lambda problem, surrogate=surrogate, alpha=alpha, options=options: cls(
                        surrogate, random_state=0, alpha=alpha(problem), max_iter=300,
                        **{**parameters, **{
                            name: value(problem) if callable(value) else value
                            for name, value in options.items()}}))
    return found


PEERS: dict[str, dict[str, Callable]] = {
    "classes": {
        "LogisticRegression": LogisticRegression, "LinearSVC": LinearSVC,
        "RidgeClassifier": RidgeClassifier},
    "kernels": {"SVC": SVC},
    "costs": {
        "LogisticRegression, least risk": lambda problem: LeastRisk(
            LogisticRegression(), problem.cost)},
    "levels": {
        "LogisticRegression, median": lambda: Median(LogisticRegression()),
        **({f"mord {name}": lambda name=name: Mord(name)
            for name in ("LogisticAT", "LogisticIT", "OrdinalRidge")} if has_package("mord") else {})},
    "rankings": {"Borda": Places, "Ridge, argsort": lambda: Places(Ridge())},
    "label_sets": {
        "LogisticRegression each": lambda: label_set_peer(False),
        "ClassifierChain": lambda: label_set_peer(True),
        "LinearSVC each": lambda: label_set_peer(model=LinearSVC())},
    "matchings": {"LogisticRegression of pairs": Pairs},
    "sequences": {"CRFsuite": CRFsuite} if has_package("sklearn-crfsuite") else {},
    "graphs": {"LogisticRegression of nodes": Nodes},
}
OURS: dict[str, tuple[type, dict]] = {
    "classes": (MulticlassClassifier, {}),
    "kernels": (MulticlassClassifier, {"kernel": "rbf"}),
    "costs": (MulticlassClassifier, {}),
    "levels": (OrdinalClassifier, {}),
    "rankings": (LabelRanker, {}),
    "label_sets": (MultiLabelClassifier, {}),
    "matchings": (Matcher, {}),
    "sequences": (SequenceTagger, {}),
    "graphs": (GraphTagger, {}),
}
INTERCEPTS = {
    "": {}, "intercept 10": {"fit_intercept": 10.0},
    "intercept sqrt(V)": {"fit_intercept": lambda problem: float(
        max(1.0, np.sqrt(variance(problem.X))))},
    "free": {"fit_intercept": "free"},
}
RULES: dict[str, tuple[dict[str, Callable], dict[str, dict]]] = {
    "classes": (
        {".01": lambda _: 0.01, "1 / n": over_n(1.0), "min(1, .02 V) / n": capped(0.02)},
        INTERCEPTS),
    "kernels": (
        {".01": lambda _: 0.01, "1 / n": over_n(1.0),
         "min(1, .02 V) / n": capped(0.02, variance_of_kernel),
         "min(1, .05 V) / n": capped(0.05, variance_of_kernel)}, {"": {}}),
    "levels": (
        {".01": lambda _: 0.01, "1 / n": over_n(1.0), "min(1, .02 V) / n": capped(0.02)},
        INTERCEPTS),
    "rankings": (
        {"1 / n": over_n(1.0), "3 / (M + 1) n": lambda problem: 3.0 / (
            problem.n * (problem.y.shape[1] + 1))},
        {f"{cost}{decode}": {"cost": cost, "decode": "map" if not decode else "min_risk"}
         for cost in ("zero_one", "absolute", "squared") for decode in ("", ", min_risk")}),
    "label_sets": (
        {".01": lambda _: 0.01, "1 / n": over_n(1.0)},
        {f"{graph}, {intercept:g}": {"graph": graph, "fit_intercept": intercept}
         for graph in ("none", "tree") for intercept in (1.0, 10.0)}),
    "matchings": ({f"{c:g} / n": over_n(c) for c in (1.0, 3.0, 10.0, 30.0)}, {"": {}}),
    "sequences": (
        {"1 / n": over_n(1.0)}, {"": {}, "tol .01": {"tol": 1e-2}}),
    "graphs": ({f"{c:g} / n": over_n(c) for c in (0.1, 1.0, 10.0)}, {"": {}}),
}
LOSSES: dict[str, Callable] = {
    "classes": error_and_log_loss, "kernels": error, "costs": mean_cost, "levels": absolute, "rankings": of_rankings,
    "label_sets": of_label_sets, "matchings": error, "sequences": of_positions,
    "graphs": of_positions,
}
PROBLEMS: dict[str, Callable[..., Iterator[Problem]]] = {
    "classes": classes, "kernels": kernels, "costs": costs, "levels": levels, "rankings": rankings,
    "label_sets": label_sets, "matchings": matchings, "sequences": sequences, "graphs": graphs,
}


def contestants(task, rules):
    """What makes a model for a problem, by name."""
    peers = PEERS[task] if task == "costs" else {
        name: lambda _, make=make: make() for name, make in PEERS[task].items()}
    return {**peers, **ours(task), **(by_rules(task) if rules and task in RULES else {})}


# ------------------------------------------------------------------------ measuring


def measured(task, make, problem):
    """Losses and CPU seconds of one fit, None where the contestant refuses."""
    model = make(problem)
    begun = time.process_time()
    try:
        model.fit(problem.X, problem.y)
        seconds = time.process_time() - begun
        losses = LOSSES[task](problem, model.predict, model)
    except ValueError as refusal:
        print(f"{type(model).__name__} on {problem.name}: {refusal}", flush=True)
        return None
    return {**{name: round(float(loss), 4) for name, loss in losses.items()},
            "seconds": round(seconds, 4)}


def run(task, seeds, only, quick, rules):
    """{problem: {contestant: means over the seeds}}."""
    found = defaultdict(lambda: defaultdict(list))
    for problem in PROBLEMS[task](seeds):
        if quick and problem.n > 100:
            continue
        key = f"{problem.name} {problem.n} {problem.scaling}"
        for name, make in contestants(task, rules).items():
            if only and not name.startswith(tuple(only)):
                continue
            one = measured(task, make, problem)
            if one is not None:
                found[key][name].append(one)
                print(task, key, name, one, flush=True)
    return {
        key: {name: {what: float(np.mean([one[what] for one in many])) for what in many[0]}
              for name, many in by_name.items()}
        for key, by_name in found.items()}


# --------------------------------------------------------------------------- page


def summary(rows):
    """For each contestant (and loss): mean, shares next to the best peer, median of seconds."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    whole = [row for row in rows.values() if len(row) == len(names)]
    losses = [what for what in whole[0][names[0]] if what != "seconds"]
    return names, losses, whole


def best_peer(task, names, whole, loss):
    peers = [name for name in PEERS[task] if name in names and name != "Borda"]
    return min(peers, key=lambda name: np.mean([row[name][loss] for row in whole]), default=None)


def section(task, rows):
    names, losses, whole = summary(rows)
    peer = best_peer(task, names, whole, losses[0])
    head = ["", *(f"{loss}, mean" for loss in losses), "at most 2 % worse", "worst", "seconds"]
    lines = [
        f"## {task.replace('_', ' ').capitalize()}", "",
        f"{len(whole)} problems. The peer of lowest mean {losses[0]} is **{peer}**. \"At most 2 % "
        "worse\" is the share of problems in which a loss is at most 1.02 times the peer's, and "
        "\"worst\" the largest excess over it. Seconds are medians.", "",
        "| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for name in names:
        first = np.array([row[name][losses[0]] for row in whole])
        theirs = np.array([row[peer][losses[0]] for row in whole]) if peer else first
        means = [
            f"{np.mean([row[name][loss] for row in whole]):.3g}"
            if all(loss in row[name] for row in whole) else "" for loss in losses]
        lines.append("| " + " | ".join([
            name, *means, f"{np.mean(first <= 1.02 * theirs + 1e-9):.0%}",
            f"{(first - theirs).max():+.3g}",
            f"{np.median([row[name]['seconds'] for row in whole]):.3f}"]) + " |")
    lines += ["", "| problem | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for key, row in rows.items():
        cells = [f"{row[name][losses[0]]:.3g}" if name in row else "" for name in names]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def overview(results):
    """The default of each task next to the best peer, in one table."""
    lines = [
        "| task | loss | default | best peer | at most 2 % worse | seconds | of the peer |",
        "|---|---|---:|---:|---:|---:|---:|"]
    for task in (task for task in PROBLEMS if task in results):
        names, losses, whole = summary(results[task])
        peer, loss = best_peer(task, names, whole, losses[0]), losses[0]
        own, theirs = (
            {what: np.array([row[name][what] for row in whole]) for what in (loss, "seconds")}
            for name in ("default", peer))
        lines.append(
            f"| {task.replace('_', ' ')} | {loss} | {own[loss].mean():.3g} "
            f"| {theirs[loss].mean():.3g}, {peer} "
            f"| {np.mean(own[loss] <= 1.02 * theirs[loss] + 1e-9):.0%} of {len(whole)} "
            f"| {np.median(own['seconds']):.3f} | {np.median(theirs['seconds']):.3f} |")
    return [*lines, ""]


def page(results):
    lines = [
        "# Defaults", "",
        "Held-out losses of estimators without a parameter, next to those of other packages "
        "without a parameter, by `python benchmarks/defaults.py`. A problem is a set, a number of "
        f"training examples and a scaling of the columns. Its losses are means over {SEEDS} draws. "
        "CPU seconds are of one thread.", "",
        *overview(results)]
    for task in PROBLEMS:
        if task in results:
            lines += section(task, results[task])
    return "\n".join([*lines, describe(results["environment"]), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="*", help=", ".join(PROBLEMS))
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--rules", action="store_true", help="rules for alpha and intercepts, too")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    unknown = set(given.tasks) - set(PROBLEMS)
    if unknown:
        parser.error(f"unknown tasks {sorted(unknown)}; they are {', '.join(PROBLEMS)}")
    seeds = range(given.first_seed, given.first_seed + (1 if given.quick else SEEDS))
    results = json.loads(FILE.read_text()) if FILE.exists() and not given.quick else {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        for task in given.tasks or PROBLEMS:
            found = run(task, seeds, given.only, given.quick, given.rules)
            if given.only and task in results:
                for key, row in found.items():
                    results[task].setdefault(key, {}).update(row)
            else:
                results[task] = found
    results["environment"] = environment("scikit-learn", "mord", "sklearn-crfsuite")
    if given.quick:
        print(page(results))
        return
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
