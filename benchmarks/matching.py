"""Matching columns of scans and points of photographs: Matcher and matchings that learn less.

    python benchmarks/matching.py [--quick] [--splits 5]

writes docs/results/matching.md, docs/results/images/matching_columns.png and docs/results/images/matching_points.png. The
points are those of _keypoints.py. The scans are scikit-learn's digits, 8 x 8 pixels. Two scans a
and b of the same class make a pair; the columns of b are shuffled, and the truth is where the
column of b that has the place of column i of a went. The images are divided into training and
test before pairs are made, and an image is in one pair at most.

An entry (i, j) of X describes column i of a, which keeps its place, and the shuffled column j of
b. With p, q columns of 8 pixels in [0, 1], "compared" means p * q, |p - q| and (p - q)^2, pixel by
pixel: column i of a and column j of b, compared; their sums of pixels, compared; columns i - 1 and
i + 1 of a (zeros at the border) and column j of b, compared; the pixels of column j of b, at
places of their own for each i. No place of column j in b is in them. A constant is not among them:
all perfect matchings have the same number of pairs, so that its weight would stay zero.

--quick takes one split, a third of the training problems and a shorter grid, and says so on the
page.
"""

import argparse
import warnings

import _keypoints
import numpy as np
from _peers import ROOT, cpu, describe, environment, table
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from fastm4n import Matcher

IMAGES = ROOT / "docs" / "results" / "images"
M = 8
TRAIN = 0.6
SURROGATES = {"max_margin": "M3N", "log": "CRF", "max_min": "M4N"}
ALPHAS, QUICK_ALPHAS = (1.0, 10**-0.5, 1e-1, 10**-1.5, 1e-2, 1e-3), (1e-1, 1e-2)
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TOL, MAX_ITER = 1e-2, 200
N_TRAIN, N_TEST = 400, 200  # of points
EUCLIDEAN, ROWS = "Euclidean distances, not learned", "logistic regression of single pairs"
DRAWN = {"not learned": EUCLIDEAN, "learned, M4N": SURROGATES["max_min"]}
RIGHT = dict(color="#0072b2", linestyle="-", linewidth=1.8)
LIKE = dict(color="#999999", linestyle="-", linewidth=1.2)
WRONG = dict(color="#d55e00", linestyle="--", linewidth=1.8)

INTRODUCTION = """# Matching

Made by `python benchmarks/matching.py{options}`: CPU seconds of one thread.
{run}

Each task has three ways of matching. The first one sees Euclidean distances and learns nothing. The
second one asks of each pair by itself whether it is right, by logistic regression, and then takes
the best assignment of the log-odds. `Matcher` learns from whole matchings. A fit ends
at a gap of {tol:g} or after {passes} passes. Alpha, and C of the logistic regression, are chosen on a
fifth of the training problems, and the fit is made anew on all of them; seconds are of that fit. ± is the standard error of the mean over the
splits, a guide only: they share images.
"""

COLUMNS = """## Columns of scans

Two scans of the same digit, 8 x 8 pixels, from scikit-learn; the columns of the second one are
shuffled, and each column of the first is to be matched with the one that had its place. Every
split has {train} pairs for training and {test} for testing, and no image is in two pairs. A pair
of columns has {features} features, from their pixels, sums, the neighbours in the first scan, and
the place in it; `benchmarks/matching.py` says which. Distances are those of columns.

Some columns cannot be told apart: the margins of a scan are often blank. So "columns right" is at
most {ceiling:.1f} % on average for anyone, and "right, or the same to look at" also counts a column
that has the same pixels as the right one. Chance is 12.5 %.
"""

POINTS = """## Points of photographs

{points} corners of a window of a photograph are to be found in a copy that is turned by up to 60
degrees, scaled, sheared, of other brightness, and noisy. The {train} training windows are of one
photograph that comes with scikit-learn, a temple, and the {test} test windows of the other, a
flower; a split is a new draw of windows and distortions. A pair of points has {features} features,
from patches of 7 x 7 samples around them, sample by sample, and from their means and standard
deviations in rings, which stay when a patch is turned; positions are not used
(`benchmarks/_keypoints.py`). Distances are those of patches. Chance is {chance:.1f} %.
"""


def draw_pairs(indexes, classes, rng):
    """(n_pairs, 2) indexes of images of the same class, each at most once, in random order."""
    pairs = []
    for digit in np.unique(classes):
        members = rng.permutation(indexes[classes[indexes] == digit])
        pairs.append(members[: len(members) // 2 * 2].reshape(-1, 2))
    return rng.permutation(np.concatenate(pairs))


def columns_of(images, pairs, rng):
    """Columns of a and, shuffled, of b, (n_pairs, M, M) with pixels last; the truth y."""
    a, b = (images[pairs[:, k]].transpose(0, 2, 1) / 16.0 for k in (0, 1))
    places = np.array([rng.permutation(M) for _ in pairs])
    return a, np.take_along_axis(b, places[:, :, None], 1), np.argsort(places, axis=1)


def compare(p, q):
    return [p * q, np.abs(p - q), (p - q) ** 2]


def features(a, b):
    """(n_pairs, M, M, d), as the head of this file says."""
    n = len(a)
    rows, columns = a[:, :, None], b[:, None]
    padded = np.pad(a, ((0, 0), (1, 1), (0, 0)))
    placed = np.zeros((n, M, M, M, M))
    for i in range(M):
        placed[:, i, :, i] = b
    return np.concatenate([
        *compare(rows, columns),
        *compare(rows.sum(axis=3, keepdims=True), columns.sum(axis=3, keepdims=True)),
        *compare(padded[:, :-2, None], columns), *compare(padded[:, 2:, None], columns),
        placed.reshape(n, M, M, M * M),
    ], axis=3)


def column_problems(seed, share=1.0):
    """Training and test problems of one split: dicts with a, b, X, y and digit."""
    digits = load_digits()
    rng = np.random.RandomState(seed)
    order = rng.permutation(len(digits.target))
    cut = int(TRAIN * len(order))
    parts = []
    for indexes, part in ((order[:cut], share), (order[cut:], 1.0)):
        pairs = draw_pairs(indexes, digits.target, rng)
        pairs = pairs[: int(part * len(pairs))]
        a, b, y = columns_of(digits.images, pairs, rng)
        parts.append(
            {"a": a, "b": b, "X": features(a, b), "y": y, "digit": digits.target[pairs[:, 0]]}
        )
    return standardised(*parts)


def point_problems(seed, share=1.0):
    """Training and test problems of points: dicts with a, b, X, y, pictures and positions."""
    rng = np.random.RandomState(seed)
    sizes = int(share * N_TRAIN), N_TEST
    return standardised(*(
        _keypoints.problems(image, n, rng) for image, n in zip(_keypoints.photographs(), sizes)
    ))


def standardised(*parts):
    """Each feature of all parts with the mean and spread of the first taken out."""
    X = parts[0]["X"]
    centre, spread = X.mean(axis=(0, 1, 2)), X.std(axis=(0, 1, 2))
    for part in parts:
        part["X"] = (part["X"] - centre) / np.where(spread > 0, spread, 1)
    return parts


def subset(problem, rows):
    return {name: values[rows] for name, values in problem.items()}


def assign(scores):
    return np.array([linear_sum_assignment(score, maximize=True)[1] for score in scores])


def take(b, y):
    return np.take_along_axis(b, y[:, :, None], 1)


def shares(found, problem):
    """Per cent of the columns that are right, and of those that look like the right one."""
    alike = (take(problem["b"], found) == take(problem["b"], problem["y"])).all(axis=2)
    return 100 * np.array([(found == problem["y"]).mean(), alike.mean()])


def ceiling(problem):
    """The share that is right at best: among columns of the same pixels there is but chance."""
    same = (problem["b"][:, :, None] == problem["b"][:, None]).all(axis=3).sum(axis=2)
    return 100 * (1 / same).mean()


class Rows:
    """Logistic regression of single pairs, then assignment of the log-odds."""

    def __init__(self, C):
        self.model = LogisticRegression(C=C, max_iter=1000)

    def fit(self, X, y):
        matched = y[:, :, None] == np.arange(X.shape[2])
        self.model.fit(X.reshape(-1, X.shape[3]), matched.ravel())
        return self

    def predict(self, X):
        return assign(X @ self.model.coef_[0])


def choose(make, grid, train):
    """The parameter of the best model on a fifth of the training pairs."""
    cut = len(train["y"]) * 4 // 5
    fitting, held_out = (subset(train, rows) for rows in (slice(cut), slice(cut, None)))
    found = [
        shares(make(value).fit(fitting["X"], fitting["y"]).predict(held_out["X"]), held_out)[1]
        for value in grid
    ]
    return grid[int(np.argmax(found))]


def run(train, test, alphas):
    """{name: what came out} of one split."""
    distances = np.linalg.norm(test["a"][:, :, None] - test["b"][:, None], axis=3)
    results = {EUCLIDEAN: {"found": assign(-distances)}}
    contestants = {ROWS: (Rows, PENALTIES)}
    for surrogate, name in SURROGATES.items():
        def make(alpha, surrogate=surrogate):
            return Matcher(
                surrogate=surrogate, alpha=alpha, cost_scale="mean", tol=TOL, max_iter=MAX_ITER,
                random_state=0)
        contestants[name] = make, alphas
    for name, (make, grid) in contestants.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            parameter = choose(make, grid, train)
            seconds, model = cpu(lambda: make(parameter).fit(train["X"], train["y"]))
        results[name] = {
            "found": model.predict(test["X"]), "parameter": parameter, "seconds": seconds,
            "train": shares(model.predict(train["X"]), train)[0],
        }
        if name != ROWS:
            results[name] |= {"gap": model.duality_gap_, "passes": model.n_iter_}
    for result in results.values():
        result["shares"] = shares(result["found"], test)
    return results


def mean_and_error(values):
    values = np.asarray(values, dtype=float)
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{values.mean():.1f} ± {values.std(ddof=1) / np.sqrt(len(values)):.1f}"


def results_table(runs, what, alike_too=False):
    rows = []
    for name in runs[0]:
        column = {key: [run[name][key] for run in runs] for key in runs[0][name]}
        right, alike = np.transpose(column["shares"])
        learned, certified = "parameter" in column, "gap" in column
        letter = "alpha" if certified else "C"
        rows.append((
            name, mean_and_error(right), *([mean_and_error(alike)] if alike_too else []),
            mean_and_error(column["train"]) if learned else "",
            f"{letter} = {np.median(column['parameter']):g}" if learned else "",
            f"{max(column['gap']):.1e}" if certified else "",
            f"{np.median(column['passes']):.0f}" if certified else "",
            f"{np.median(column['seconds']):.2f}" if learned else "",
        ))
    head = ("matching", f"{what} right, %",
            *(["right, or the same to look at, %"] if alike_too else []),
            f"{what} right in training, %", "median choice", "largest certified gap",
            "median passes", "median CPU s of a fit")
    return table(f"Test {what}, {len(runs)} split{'s' * (len(runs) > 1)}", head, rows)


def typical(test, results, names):
    """Test problems in which the named matchings do nearly as on average; these first."""
    alike = [
        (take(test["b"], results[name]["found"]) == take(test["b"], test["y"])).all(axis=2)
        for name in names
    ]
    rates = np.mean(alike, axis=2)
    return np.argsort(np.abs(rates - rates.mean(axis=1, keepdims=True)).sum(axis=0), kind="stable")


def draw_columns(test, results, path):
    """Typical test pairs of different digits: unlearned above, learned below."""
    order = typical(test, results, DRAWN.values())
    _, first = np.unique(test["digit"][order], return_index=True)
    examples = order[np.sort(first)[:3]]
    figure = Figure(figsize=(10, 8), dpi=130)
    outer = figure.add_gridspec(
        len(DRAWN), len(examples), left=0.02, right=0.98, top=0.9, bottom=0.1, hspace=0.36,
        wspace=0.12,
    )
    for r, (title, name) in enumerate(DRAWN.items()):
        for c, k in enumerate(examples):
            one = subset(test, slice(k, k + 1))
            found = results[name]["found"][k : k + 1]
            original, matched = (take(one["b"], y)[0] for y in (one["y"], found))
            grid = outer[r, c].subgridspec(2, 2, hspace=0.35, wspace=0.12).subplots()
            pictures = (one["a"][0], original, one["b"][0], matched)
            for axes, columns in zip(grid.flat, pictures):
                axes.imshow(columns.T, cmap="gray_r", vmin=0, vmax=1)
                axes.set(xticks=[], yticks=[])
            for axes, label in zip(grid[0], ("a", "b")):
                axes.set_title(label, fontsize="small", pad=3)
            for axes, label in zip(grid[1], ("b, shuffled", "b, as matched")):
                axes.set_xlabel(label, fontsize="small", labelpad=3)
            alike = (original == matched).all(axis=1)
            right = (found == one["y"])[0]
            for i, j in enumerate(found[0]):
                style = RIGHT if right[i] else LIKE if alike[i] else WRONG
                figure.add_artist(ConnectionPatch(
                    (i, M - 0.5), (j, -0.5), "data", "data", axesA=grid[0, 0], axesB=grid[1, 0],
                    **style,
                ))
            place = outer[r, c].get_position(figure)
            figure.text(
                (place.x0 + place.x1) / 2, place.y1 + 0.035, f"{title}: {right.sum()} right, "
                f"{(alike & ~right).sum()} alike, {(~alike).sum()} wrong", ha="center",
            )
    legend = {"right": RIGHT, "not the right one, but the same pixels": LIKE, "wrong": WRONG}
    save(figure, legend, path)


def draw_points(test, results, path):
    """Typical test problems, window and copy side by side: unlearned above, learned below."""
    examples = typical(test, results, DRAWN.values())[:2]
    figure = Figure(figsize=(10, 6), dpi=130)
    outer = figure.add_gridspec(
        len(DRAWN), len(examples), left=0.02, right=0.98, top=0.93, bottom=0.07, hspace=0.15,
        wspace=0.06,
    )
    for r, (title, name) in enumerate(DRAWN.items()):
        for c, k in enumerate(examples):
            grid = outer[r, c].subgridspec(1, 2, wspace=0.06).subplots()
            points, copied = test["points"][k], test["found"][k]
            for axes, part, places in zip(grid, ("window", "copy"), (points, copied)):
                axes.imshow(test[part][k], cmap="gray")
                axes.plot(places[:, 1], places[:, 0], "o", color="white", markersize=3.5,
                          markeredgecolor="black")
                axes.set(xticks=[], yticks=[])
            found = results[name]["found"][k]
            right = found == test["y"][k]
            for i, j in enumerate(found):
                figure.add_artist(ConnectionPatch(
                    points[i, ::-1], copied[j, ::-1], "data", "data", axesA=grid[0],
                    axesB=grid[1], **(RIGHT if right[i] else WRONG),
                ))
            place = outer[r, c].get_position(figure)
            figure.text((place.x0 + place.x1) / 2, place.y1 + 0.01,
                        f"{title}: {right.sum()} right, {(~right).sum()} wrong", ha="center")
    save(figure, {"right": RIGHT, "wrong": WRONG}, path)


def save(figure, legend, path):
    """Write a picture with a legend of lines below it."""
    entries = [
        figure.axes[0].plot([], [], label=label, **style)[0] for label, style in legend.items()
    ]
    figure.legend(handles=entries, loc="lower center", ncols=len(entries), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--splits", type=int)
    args = parser.parse_args()
    splits = args.splits or (1 if args.quick else 5)
    share, alphas = (1 / 3, QUICK_ALPHAS) if args.quick else (1.0, ALPHAS)
    found, drawn, ceilings = {"columns": [], "points": []}, {}, []
    tasks = {"columns": (column_problems, draw_columns), "points": (point_problems, draw_points)}
    with threadpool_limits(1):
        for task, (make, draw) in tasks.items():
            for seed in range(splits):
                train, test = make(seed, share)
                found[task].append(run(train, test, alphas))
                if task == "columns":
                    ceilings.append(ceiling(test))
                if seed == 0:
                    draw(test, found[task][0], IMAGES / f"matching_{task}.png")
                    drawn[task] = {
                        "train": len(train["y"]), "test": len(test["y"]),
                        "features": train["X"].shape[3],
                    }
    options = (" --quick" if args.quick else "") + (f" --splits {splits}" if args.splits else "")
    described = describe(environment("scipy", "scikit-learn"))
    picture = (
        "{} of the first split in which both matchings do nearly as on average.\n\n![{}]({})\n"
    )
    parts = [
        INTRODUCTION.format(options=options, run=described, tol=TOL, passes=MAX_ITER),
        COLUMNS.format(ceiling=np.mean(ceilings), **drawn["columns"]),
        results_table(found["columns"], "columns", alike_too=True),
        picture.format(
            "Test pairs of three digits", "Pairs of scans, one above the other, with lines between "
            "matched columns; above by distances, below learned", "images/matching_columns.png",
        ),
        POINTS.format(
            points=_keypoints.N_POINTS, chance=100 / _keypoints.N_POINTS, **drawn["points"]
        ),
        results_table(found["points"], "points"),
        picture.format(
            "Test windows", "Windows and their copies, side by side, with lines between matched "
            "points; above by distances, below learned", "images/matching_points.png",
        ),
    ]
    print("\n".join(parts))
    (ROOT / "docs" / "results" / "matching.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
