"""Boxes of one frame and boxes of the next: Matcher, and assignments of scores of single pairs.

    python benchmarks/frames.py [--seeds 5] [--sizes 25 200]

writes benchmarks/results/frames.json and docs/results/frames.md. --page makes the page of the
results that are there.

Frames are made. Objects stand in groups of similar look, and move between two frames. The camera
shakes. Some objects leave and others come, a detector misses some and sees others that are not
there. A detection is a box, a confidence and an appearance vector. A pair of boxes has the features
of `features`.
"""

import argparse
import json
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np
from _peers import RESULTS, ROOT, cpu, describe, environment, rows_of, wrapped
from scipy.optimize import linear_sum_assignment
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import Matcher
from fastm4n.metrics import matching_f1_score

FILE, PAGE = RESULTS / "frames.json", ROOT / "docs" / "results" / "frames.md"
N_TEST, SIZES, SEEDS = 300, (25, 200), 5
MISSED, FALSE, LEAVE, LOOKS = 0.15, 1.5, 0.1, 4
MOST = 14  # boxes: the log surrogate takes 2^boxes steps
MAX_ITER = 200


@dataclass
class Detections:
    """Detections of one frame."""

    boxes: np.ndarray  # (n, 4): centre, width, height
    looks: np.ndarray  # (n, LOOKS)
    confidence: np.ndarray  # (n,)
    owner: np.ndarray  # (n,): the object, or -1 of a false alarm


def detected(boxes, looks, rng):
    """Detections of objects, in random order."""
    seen = np.flatnonzero(rng.uniform(size=len(boxes)) >= MISSED)
    n_false = rng.poisson(FALSE)
    wrong = np.column_stack([
        rng.uniform(0, 10, (n_false, 2)), rng.lognormal(0, 0.3, (n_false, 2))])
    noise = rng.normal(size=(len(seen), 4)) * 0.08
    found = np.column_stack([
        boxes[seen, :2] + noise[:, :2] * boxes[seen, 2:], boxes[seen, 2:] * np.exp(noise[:, 2:])])
    # small boxes show little of an object
    blur = 0.6 / np.sqrt(boxes[seen, 2:].prod(axis=1, keepdims=True))
    found_looks = looks[seen] + blur * rng.normal(size=(len(seen), LOOKS))
    order = rng.permutation(len(seen) + n_false)
    return Detections(
        np.concatenate([found, wrong])[order],
        np.concatenate([found_looks, rng.normal(size=(n_false, LOOKS))])[order],
        np.concatenate([
            rng.normal(1.0, 0.5, len(seen)), rng.normal(0.0, 0.5, n_false)])[order],
        np.concatenate([seen, np.full(n_false, -1)])[order],
    )


def frames(rng):
    """Two frames: detections of the first and of the second."""
    n_groups = 2 + rng.poisson(0.5)
    sizes = 2 + rng.poisson(1.5, n_groups)
    group = np.repeat(np.arange(n_groups), sizes)
    n = len(group)
    centres = rng.uniform(1, 9, (n_groups, 2))[group] + 0.7 * rng.normal(size=(n, 2))
    boxes = np.column_stack([centres, rng.lognormal(0, 0.3, (n, 2))])
    looks = rng.normal(size=(n_groups, LOOKS))[group] + 0.4 * rng.normal(size=(n, LOOKS))
    first = detected(boxes, looks, rng)
    # a few objects move much further than the others
    step = 0.4 * rng.standard_t(3, size=(n, 2)) + 0.25 * rng.normal(size=(n_groups, 2))[group]
    boxes[:, :2] += step + 0.3 * rng.normal(size=2)
    left = rng.uniform(size=n) < LEAVE
    boxes[left, :2] = rng.uniform(1, 9, (left.sum(), 2))
    looks[left] = rng.normal(size=(left.sum(), LOOKS))
    second = detected(boxes, looks, rng)
    # who comes in the place of an object is another one
    second.owner[np.isin(second.owner, np.flatnonzero(left))] += n
    return first, second


def overlap(a, b):
    """Intersection over union of each two boxes, (n, m)."""
    low = np.maximum(
        (a[:, :2] - a[:, 2:] / 2)[:, None], (b[:, :2] - b[:, 2:] / 2)[None])
    high = np.minimum(
        (a[:, :2] + a[:, 2:] / 2)[:, None], (b[:, :2] + b[:, 2:] / 2)[None])
    common = np.maximum(high - low, 0).prod(axis=2)
    areas = a[:, 2:].prod(axis=1)[:, None] + b[:, 2:].prod(axis=1)
    return common / (areas - common)


def features(first, second):
    """(n, m, 9): what the boxes, looks and confidences of each pair have in common."""
    a, b = first.boxes, second.boxes
    scale = np.sqrt((a[:, 2:].prod(axis=1)[:, None] + b[:, 2:].prod(axis=1)) / 2)
    distance = np.linalg.norm(a[:, None, :2] - b[:, :2], axis=2) / scale
    sizes = np.abs(np.log(a[:, None, 2:] / b[:, 2:]))
    looks = np.linalg.norm(first.looks[:, None] - second.looks, axis=2)
    shape = distance.shape
    return np.stack([
        overlap(a, b), distance, np.minimum(distance, 3) ** 2, sizes[..., 0], sizes[..., 1], looks,
        looks**2, np.broadcast_to(first.confidence[:, None], shape),
        np.broadcast_to(second.confidence, shape),
    ], axis=2)


def problems(n, seed):
    """Features and true columns of n pairs of frames."""
    rng = np.random.RandomState(seed)
    X, y = [], []
    while len(y) < n:
        first, second = frames(rng)
        same = (first.owner[:, None] == second.owner) & (first.owner[:, None] >= 0)
        if 0 < min(same.shape) <= MOST:
            X.append(features(first, second))
            y.append(np.where(same.any(axis=1), same.argmax(axis=1), -1))
    return X, y


def assign(scores, threshold):
    """Columns of the best matching with dummy columns, each of which scores the threshold."""
    worth = np.maximum(scores - threshold, 0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    found = np.full(len(scores), -1)
    kept = worth[rows, columns] > 0
    found[rows[kept]] = columns[kept]
    return found


def tuned(scores, y):
    """The threshold with the largest F1."""
    grid = np.quantile(np.concatenate([score.max(axis=1) for score in scores]),
                       np.linspace(0, 0.8, 41))
    values = [
        matching_f1_score(y, [assign(score, threshold) for score in scores]) for threshold in grid
    ]
    return grid[int(np.argmax(values))]


def split(flat, X):
    """Values of all pairs as one matrix for each example."""
    ends = np.cumsum([x.shape[0] * x.shape[1] for x in X])[:-1]
    return [part.reshape(x.shape[:2]) for part, x in zip(np.split(flat, ends), X)]


class Overlaps:
    """Intersection over union. Only the threshold is learned."""

    def fit(self, X, y):
        self.threshold = tuned([x[..., 0] for x in X], y)
        return self

    def predict(self, X):
        return [assign(x[..., 0], self.threshold) for x in X]


class Classifier:
    """Scores of single pairs by a classifier, and a threshold from scores of held-out folds."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        pairs = np.concatenate([x.reshape(-1, x.shape[2]) for x in X])
        right = np.concatenate([
            (column[:, None] == np.arange(x.shape[1])).ravel() for x, column in zip(X, y)])
        example = np.repeat(np.arange(len(X)), [x.shape[0] * x.shape[1] for x in X])
        scores = cross_val_predict(
            self.model, pairs, right, groups=example, cv=GroupKFold(3), method="decision_function")
        self.threshold = tuned(split(scores, X), y)
        self.model.fit(pairs, right)
        return self

    def predict(self, X):
        pairs = np.concatenate([x.reshape(-1, x.shape[2]) for x in X])
        scores = split(self.model.decision_function(pairs), X)
        return [assign(score, self.threshold) for score in scores]


def logistic(C):
    return Classifier(make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000)))


def boosted(leaves, rounds):
    return Classifier(HistGradientBoostingClassifier(
        max_leaf_nodes=leaves, max_iter=rounds, early_stopping=False, random_state=0))


class Standardised:
    """A Matcher of standardised features."""

    def __init__(self, surrogate, alpha):
        self.model = Matcher(
            surrogate, alpha=alpha, unmatched="learn", max_iter=MAX_ITER, random_state=0)

    def fit(self, X, y):
        self.scaler = StandardScaler().fit(np.concatenate([x.reshape(-1, x.shape[2]) for x in X]))
        self.model.fit(self.scaled(X), y)
        return self

    def predict(self, X):
        return self.model.predict(self.scaled(X))

    def scaled(self, X):
        return [(x - self.scaler.mean_) / self.scaler.scale_ for x in X]


ALPHAS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4)
# name: how to make one, and values of its parameters
METHODS = {
    "overlap": (Overlaps, ((),)),
    "logistic regression": (logistic, ((1e-2,), (1e-1,), (1.0,), (10.0,))),
    "boosted trees": (boosted, ((4, 50), (4, 100), (4, 200), (15, 50), (15, 100))),
    **{
        name: (
            lambda alpha, surrogate=surrogate: Standardised(surrogate, alpha),
            tuple((alpha,) for alpha in ALPHAS))
        for surrogate, name in (("log", "CRF"), ("max_margin", "M3N"), ("max_min", "M4N"))
    },
}


def run(size, seed):
    """Results of all methods: F1 of training and test frames, CPU seconds, the parameters."""
    X, y = problems(size, seed)
    X_test, y_test = problems(N_TEST, 1000 + seed)
    cut = 3 * size // 4
    found = {}
    for name, (make, grid) in METHODS.items():
        best = grid[0]
        if len(grid) > 1:
            scores = [
                matching_f1_score(y[cut:], make(*values).fit(X[:cut], y[:cut]).predict(X[cut:]))
                for values in grid
            ]
            best = grid[int(np.argmax(scores))]
        seconds, model = cpu(lambda: make(*best).fit(X, y))
        predicting, predicted = cpu(lambda: model.predict(X_test))
        found[name] = {
            "f1": matching_f1_score(y_test, predicted),
            "train": matching_f1_score(y, model.predict(X)),
            "seconds": seconds, "predicting": predicting, "parameters": " ".join(map(str, best)),
        }
    return found


# the page

INTRODUCTION = """# Boxes of two frames

Made by `python benchmarks/frames.py`. The numbers are in `benchmarks/results/frames.json`.
{run}

Boxes of one frame are matched to boxes of the next. The frames are made: objects in groups of
similar look move, {leave:.0f} % of them leave and others come. The camera shakes. A detector misses
{missed:.0f} % of the objects in each frame and has {false:g} false alarms on average. Frames have
{boxes:.1f} boxes on average, and {unmatched:.0f} % of them have no partner. A pair of boxes has
{features} features: the overlap, distances in units of the boxes' size, differences of sizes,
distances of the appearance, and both confidences of the detector.

| method | what it is | parameters to choose |
|---|---|---|
| overlap | intersection over union, without learning | threshold |
| logistic regression | log-odds of single pairs | `C`, threshold |
| boosted trees | `HistGradientBoostingClassifier` of single pairs | leaves, rounds, threshold |
| CRF, M3N, M4N | `Matcher` with `unmatched="learn"` and `"log"`, `"max_margin"`, `"max_min"` | `alpha` |

The first three end with scipy's `linear_sum_assignment` of the scores minus the threshold, where
negative ones become zero. So a pair below the threshold is not matched. The threshold has the
largest F1 on the training frames, by scores of three folds. All other parameters have the largest
F1 on a quarter of the training frames, and the final fit is to all of them. Fits of `Matcher` have
the default tolerance and at most {passes} passes. Seconds include the search of the threshold.
"""


def write_page(results):
    X, y = problems(N_TEST, 1000)
    pairs = sum(np.sum(columns >= 0) for columns in y)
    boxes = sum(sum(x.shape[:2]) for x in X)
    text = [INTRODUCTION.format(
        run=wrapped(describe(results["run"])), leave=100 * LEAVE, missed=100 * MISSED, false=FALSE,
        boxes=boxes / (2 * len(X)), unmatched=100 * (1 - 2 * pairs / boxes),
        features=X[0].shape[2], passes=MAX_ITER)]
    for size, runs in results["found"].items():
        rows = []
        for name in METHODS:
            column = {key: [run[name][key] for run in runs] for key in runs[0][name]}
            low, middle, high = np.quantile(column["f1"], (0, 0.5, 1))
            rows.append((
                name, f"{middle:.3f} ({low:.3f} to {high:.3f})", f"{np.median(column['train']):.3f}",
                Counter(column["parameters"]).most_common(1)[0][0],
                f"{np.median(column['seconds']):.2f}",
                f"{1000 * np.median(column['predicting']) / N_TEST:.2f}",
            ))
        text.append(f"## {size} training pairs of frames\n")
        text.append(
            f"F1 of the matched pairs in {N_TEST} test pairs of frames: the median of {len(runs)} "
            "seeds, and the\nsmallest and largest.\n")
        text.append(rows_of(
            ("method", "test F1", "training F1", "choice", "CPU s of a fit",
             "CPU ms of a prediction"), rows))
    PAGE.write_text("\n".join(text))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--page", action="store_true", help="make the page and nothing else")
    args = parser.parse_args()
    if not args.page:
        results = {"run": environment("scipy", "scikit-learn"), "found": {}}
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for size in args.sizes:
                results["found"][str(size)] = [run(size, seed) for seed in range(args.seeds)]
        FILE.write_text(json.dumps(results, indent=1) + "\n")
    write_page(json.loads(FILE.read_text()))


if __name__ == "__main__":
    main()
