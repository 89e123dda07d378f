"""Paths of data without anything to learn, or where terms cancel: they end, and say the truth."""

import numpy as np
import pytest

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    regularization_path,
)
from fastm4n.penalties import ElasticNet
from fastm4n.solvers.path import PathFollower

# more runs than any of these paths may need
MOST_RUNS = 300


def kinds(shape):
    X = np.random.default_rng(0).normal(size=shape)
    twice = X.copy()
    twice[..., -1] = twice[..., 0]
    one = np.zeros(shape)
    one[0] = X[0]
    return {
        "ones": np.ones(shape), "tenths": np.full(shape, 0.1), "zeros": np.zeros(shape),
        "large": np.full(shape, 1e8 / 3), "tiny": np.full(shape, 1e-8 / 3),
        "equal": np.broadcast_to(X[:1], shape).copy(), "columns": twice, "one": one,
    }


def places(n, m):
    rng = np.random.default_rng(1)
    return np.array([rng.permutation(m) for _ in range(n)])


def graphs(X):
    return [(x, np.array([[0, 1], [1, 2]])) for x in X]


CHAINS = [np.array(y) for y in ([0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 1])]
BALANCED = np.array([0, 1, 2] * 2)
OPTIONS = {"eps": 0.1}, {"eps": 1e-3}, {"eps": 0.01, "method": "heuristic"}
SURROGATES = "max_margin", "max_min", "log"
# estimator, shape of X, what is made of X, y
TASKS = {
    "labels": (MulticlassClassifier, {}, (6, 3), None, BALANCED),
    "one class more": (MulticlassClassifier, {}, (6, 3), None, np.array([0, 0, 0, 0, 1, 2])),
    "without an intercept": (
        MulticlassClassifier, {"fit_intercept": False}, (6, 3), None, BALANCED),
    "kernel": (MulticlassClassifier, {"kernel": "linear"}, (6, 3), None, BALANCED),
    "gaussian": (MulticlassClassifier, {"kernel": "rbf"}, (6, 3), None, BALANCED),
    "sparse weights": (
        MulticlassClassifier, {"penalty": ElasticNet(0.9)}, (6, 3), None, BALANCED),
    "levels": (OrdinalClassifier, {}, (6, 3), None, BALANCED),
    "label sets": (MultiLabelClassifier, {}, (6, 3), None, np.array([[0, 1], [1, 0]] * 3)),
    "rankings": (LabelRanker, {"cost_scale": "mean"}, (5, 3), None, places(5, 3)),
    "matchings": (
        Matcher, {"cost": "squared", "cost_scale": "mean"}, (5, 4, 4, 1), None, places(5, 4)),
    "chains": (SequenceTagger, {}, (4, 3, 2), list, CHAINS),
    "one chain": (SequenceTagger, {}, (1, 3, 2), list, CHAINS[:1]),
    "graphs": (GraphTagger, {}, (4, 3, 2), graphs, CHAINS),
}


@pytest.fixture
def counted(monkeypatch):
    """Fail, and do not hang, where a path makes too many runs."""
    runs, run = [], PathFollower._run

    def count(self, tol, **options):
        runs.append(tol)
        assert len(runs) <= MOST_RUNS, "the path does not end"
        return run(self, tol, **options)

    monkeypatch.setattr(PathFollower, "_run", count)
    return runs


@pytest.mark.filterwarnings("ignore:max_iter")
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("task", TASKS)
def test_paths_of_degenerate_data_end(task, surrogate, counted):
    kind, options, shape, form, y = TASKS[task]
    first = [*TASKS].index(task) + SURROGATES.index(surrogate)
    # each task and kind of data meet all options
    for number, (name, X) in enumerate(kinds(shape).items()):
        more = OPTIONS[(first + number) % len(OPTIONS)]
        counted.clear()
        model = kind(surrogate, max_iter=100, random_state=0, **options)
        path = regularization_path(model, X if form is None else form(X), y, **more)
        where = f"{name}, {more}: {path.alphas}"
        # rounding is no alpha of the problem's order
        smallest = 1e-24 if name == "tiny" else 1e-12
        assert path.alphas[-1] > smallest, where
        if path.complete:
            assert path.relative_gaps.max() <= more["eps"] or more.get("method"), where


@pytest.mark.filterwarnings("error")
def test_constant_features_of_all_pairs_are_one_look(counted):
    """Every matching has the same score: w = 0 is best under every alpha."""
    model = Matcher("max_min", cost="squared", cost_scale="mean")
    path = regularization_path(model, np.ones((5, 4, 4, 1)), places(5, 4), eps=1e-3)
    assert path.complete and len(path) < 10 and path.relative_gaps.max() < 1e-6
    np.testing.assert_allclose(path.alphas[[0, -1]], [1.0, 1e-3])


@pytest.mark.filterwarnings("ignore:max_iter")
def test_an_alpha_at_which_rounding_is_all_there_is(counted):
    model = Matcher("max_min", cost="squared", cost_scale="mean", max_iter=20)
    path = regularization_path(
        model, np.ones((5, 4, 4, 1)), places(5, 4), eps=1e-3, alpha_max=1e-25, alpha_min=1e-35)
    assert len(path) >= 1
