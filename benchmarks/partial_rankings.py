"""Rankings with missing parts: LabelRanker, and regressions and classifiers that come in parts.

    FASTM4N_DATA=... python benchmarks/partial_rankings.py [--kinds items pairs top] [--sets wine]

writes benchmarks/results/partial_rankings.json, docs/results/partial_rankings.md and
docs/results/images/partial_rankings.png. --page makes the page of the results in the file. Runs of
some kinds or sets keep the results of the others.

Training rankings lose a share of their parts at random. "items": each item of each ranking is
deleted with this probability. "pairs": the order of each pair of items is deleted with this
probability. "top": this share of the items, the last ones, becomes one tie. Test rankings are
complete. All methods get the same deletions and folds. Each method chooses its parameters by
Kendall's tau on a quarter of the training rankings. The final fit is to all of them.
"""

import argparse
import json
import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
from _data import RANKING, load_ranking
from _peers import RESULTS, ROOT, cpu, describe, environment, rows_of, wrapped
from matplotlib.figure import Figure
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import LabelRanker
from fastm4n.data import as_places
from fastm4n.plotting._axes import COLORS, GREY

FILE, PAGE = RESULTS / "partial_rankings.json", ROOT / "docs" / "results" / "partial_rankings.md"
PICTURE = PAGE.parent / "images" / "partial_rankings.png"
KINDS = {"items": (0.0, 0.2, 0.4, 0.6), "pairs": (0.6,), "top": (0.6,)}
FOLDS = 3
TOL, MAX_ITER = 1e-2, 100


@dataclass
class Rankings:
    """Partial rankings of n examples and M items, in the forms that methods need.

    Attributes
    ----------
    better : bool array (n, M, M)
        Whether item i is known to come before item j.
    places : array (n, M)
        Expected places, NaN for items that are compared with no other one.
    y : array (n, M) or list of lists of pairs
        The rankings for a LabelRanker.
    form : {"ranks", "pairs"}
        The form of y.
    """

    better: np.ndarray
    places: np.ndarray
    y: object
    form: str

    def take(self, rows):
        y = [self.y[row] for row in rows] if self.form == "pairs" else self.y[rows]
        return Rankings(self.better[rows], self.places[rows], y, self.form)


def deleted(complete, kind, share, rng):
    """Partial rankings, of complete ones (n, M) of places from 0."""
    n, n_items = complete.shape
    better = complete[:, :, None] < complete[:, None]
    if kind == "items":
        known = rng.uniform(size=(n, n_items)) >= share
        better &= known[:, :, None] & known[:, None]
        y = np.where(known, complete, np.nan)
        # the mean over all places where the missing items may be
        n_known = known.sum(axis=1, keepdims=True)
        places = (better.sum(axis=1) + 1) * (n_items + 1) / (n_known + 1) - 1
        places[~known | (n_known < 2)] = np.nan
    elif kind == "top":
        n_first = max(1, round((1 - share) * n_items))
        first = complete < n_first
        better &= first[:, :, None] | first[:, None]
        y = np.where(first, complete, n_first)
        places = np.where(first, complete, (n_first + n_items - 1) / 2)
    else:
        kept = np.triu(rng.uniform(size=better.shape) >= share, 1)
        better &= kept | kept.transpose(0, 2, 1)
        y = [[(int(i), int(j)) for i, j in np.argwhere(one)] for one in better]
        # what follows from two known pairs is known
        for k in range(n_items):
            better |= better[:, :, k, None] & better[:, None, k]
        ahead, behind = better.sum(axis=1), better.sum(axis=2)
        places = (ahead + 1) * (n_items + 1) / (ahead + behind + 2) - 1
        places[ahead + behind == 0] = np.nan
    rankings = Rankings(better, places, y, "pairs" if kind == "pairs" else "ranks")
    return rankings, np.flatnonzero(better.any(axis=(1, 2)))


def ranked(scores):
    """Places of the items of each row, the lowest score first."""
    return scores.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")


def tau(better, predicted):
    """Mean Kendall's tau of the known pairs of each ranking."""
    agree = better & (predicted[:, :, None] < predicted[:, None])
    return float(np.mean(2 * agree.sum(axis=(1, 2)) / better.sum(axis=(1, 2)) - 1))


class Regressions:
    """Regressions of the places of items. Predictions are sorted.

    Missing places become the item's mean if `filled`, and otherwise each item has a model of the
    examples where its place is known.
    """

    def __init__(self, make, filled):
        self.make, self.filled = make, filled

    def fit(self, X, rankings):
        places, known = rankings.places, np.isfinite(rankings.places)
        if self.filled or known.all():
            self.models = [self.make().fit(X, np.where(known, places, np.nanmean(places, axis=0)))]
        else:
            self.models = [
                self.make().fit(X[rows], place[rows]) for place, rows in zip(places.T, known.T)
            ]
        return self

    def predict(self, X):
        return ranked(np.column_stack([model.predict(X) for model in self.models]))


class Pairs:
    """Logistic regressions of all pairs of items. Items are sorted by sums of probabilities."""

    def __init__(self, C):
        self.C = C

    def fit(self, X, rankings):
        better = rankings.better
        self.n_items = better.shape[1]
        self.models = {}
        for i, j in combinations(range(self.n_items), 2):
            first, second = better[:, i, j], better[:, j, i]
            rows = first | second
            if first.any() and second.any():
                self.models[i, j] = LogisticRegression(C=self.C, max_iter=300, tol=1e-3).fit(
                    X[rows], first[rows])
            else:  # all examples agree, or none has the pair
                self.models[i, j] = 0.5 * (1.0 + first.any() - second.any())
        return self

    def predict(self, X):
        votes = np.zeros((len(X), self.n_items))
        for (i, j), model in self.models.items():
            constant = isinstance(model, float)
            chance = model if constant else model.predict_proba(X)[:, 1]
            votes[:, i] += chance
            votes[:, j] += 1.0 - chance
        return ranked(-votes)


class Ranker:
    """A LabelRanker of the squared differences of places."""

    def __init__(self, surrogate, alpha):
        self.model = LabelRanker(
            surrogate, alpha=alpha, cost="squared", tol=TOL, max_iter=MAX_ITER, random_state=0)

    def fit(self, X, rankings):
        self.model.set_params(form=rankings.form).fit(X, rankings.y)
        return self

    def predict(self, X):
        # the log surrogate learns no costs: they enter when it decodes
        decode = "min_risk" if self.model.surrogate == "log" else "map"
        predicted = self.model.predict(X, decode)
        if self.model.form == "pairs":
            return as_places(predicted, form="ordering")[0]
        return predicted - predicted.min()


def forest(leaf):
    return RandomForestRegressor(
        100, min_samples_leaf=leaf, max_features=1 / 3, n_jobs=1, random_state=0)


PENALTIES, ALPHAS = (1.0, 10.0, 100.0, 1000.0), (10.0, 1.0, 1e-1, 1e-2, 1e-3)
# name: how to make one, values of its parameters, whether it takes squares and products
METHODS = {
    "Ridge": (
        lambda penalty, filled: Regressions(lambda: Ridge(penalty), filled),
        (PENALTIES, (True, False)), True),
    "pairs": (Pairs, ((1e-2, 1e-1, 1.0, 10.0, 100.0),), True),
    "forests": (
        lambda leaf, filled: Regressions(lambda: forest(leaf), filled),
        ((1, 5), (False,)), False),
    **{
        name: (lambda alpha, surrogate=surrogate: Ranker(surrogate, alpha), (ALPHAS,), True)
        for surrogate, name in (("log", "CRF"), ("max_margin", "M3N"), ("max_min", "M4N"))
    },
}


def fold(X, complete, train, test, kind, share, seed):
    """Results of all methods: tau, CPU seconds of the fit, and the parameters."""
    rng = np.random.RandomState(seed)
    # the numbers of the items tell of their places in some of these sets
    complete = complete[:, rng.permutation(complete.shape[1])]
    rankings, rows = deleted(complete[train], kind, share, rng)
    rng.shuffle(rows)
    cut = 3 * len(rows) // 4
    squares = make_pipeline(
        StandardScaler(), PolynomialFeatures(2, include_bias=False), StandardScaler())
    squares.fit(X[train])
    truth = complete[test][:, :, None] < complete[test][:, None]
    found = {}
    for name, (make, grid, is_expanded) in METHODS.items():
        inputs = squares.transform(X) if is_expanded else X
        X_train, X_test = inputs[train], inputs[test]
        fitting, held_out = rankings.take(rows[:cut]), rankings.take(rows[cut:])
        scores = {
            values: tau(
                held_out.better,
                make(*values).fit(X_train[rows[:cut]], fitting).predict(X_train[rows[cut:]]))
            for values in product(*grid)
        }
        best = max(scores, key=scores.get)
        seconds, model = cpu(lambda: make(*best).fit(X_train[rows], rankings.take(rows)))
        found[name] = {
            "tau": tau(truth, model.predict(X_test)), "seconds": seconds, "parameters": best}
    return found


def measured(name, kind, share):
    """Results of a set over folds, repeated while there are at most 400 test rankings."""
    X, y = load_ranking(name)
    complete = as_places(y)[0]
    complete = complete - complete.min()
    folds = []
    for repeat in range(max(1, 400 // len(X))):
        splits = KFold(FOLDS, shuffle=True, random_state=repeat).split(X)
        for k, (train, test) in enumerate(splits):
            folds.append(fold(X, complete, train, test, kind, share, FOLDS * repeat + k))
    return {
        method: {
            "tau": [round(found[method]["tau"], 4) for found in folds],
            "seconds": float(np.median([found[method]["seconds"] for found in folds])),
            "parameters": Counter(" ".join(map(str, found[method]["parameters"])) for found in folds),
        }
        for method in METHODS
    }


# the page

INTRODUCTION = """# Partial rankings

Made by `python benchmarks/partial_rankings.py`. The numbers are in
`benchmarks/results/partial_rankings.json`.
{run}

The training rankings of five [label ranking sets](index.md) lose parts at random. The test rankings
are complete. Each cell is the mean Kendall's tau over {folds} folds, twice as many for wine. ± is
the standard error of the mean over folds. Folds share examples, so that it is a guide only. The
best method of a row is bold. `LabelRanker` gets the rankings as they are. In some of the sets the
numbers of items tell of their places, so each fold shuffles them.

| method | what it is | parameters to choose |
|---|---|---|
| Ridge | ridge regression of the places of items, then `argsort` | penalty, and whether missing places become the item's mean or are left out |
| pairs | logistic regression for each pair of items, then the order of the sums of probabilities | `C` |
| forests | random forests of 100 trees for the places of items, then `argsort`; missing places are left out | least size of leaves |
| CRF, M3N, M4N | `LabelRanker` with `"log"`, `"max_margin"` and `"max_min"` and squared costs; CRF predicts with `decode="min_risk"` | `alpha` |

Each method chooses its parameters by Kendall's tau on a quarter of the training rankings, which
are partial as well. The final fit is to all of them. Forests get the features as they are. All
other methods get them standardised, with their squares and products. Ridge and forests get expected
places: the mean over all places where the missing items may be. Fits of `LabelRanker` have a
tolerance of {tol:g} and at most {passes} passes in each round.

Logistic regressions of pairs have the best or second best mean everywhere. The mean of CRF is
within 0.02 of theirs if items or pairs are missing, and 0.04 below if only the top is known. Those
of M3N and M4N are as good on complete rankings and lower if something is missing. Their costs are
zero at all positions that a ranking allows, and with missing items these are nearly all positions.
A `LabelRanker` has a vector of weights for each item at each position, 121 for vowel. Regressions
have one for each pair, 55 for vowel, and the order of a pair is all that they need.
"""
SECTIONS = {
    "items": ("Missing items", "Each item of each training ranking is deleted with the probability "
              "of the second column. Rankings with fewer than two items left are dropped."),
    "pairs": ("Missing pairs", "Each pair of items in each training ranking is deleted with the "
              "probability of the second column. Pairs that follow from others stay known: Ridge, "
              "logistic regressions and forests get them too."),
    "top": ("Top items only", "Only the first items of each training ranking are known. The second "
            "column has the share of the items that are not."),
}


def write_page(results):
    run = wrapped(describe(results["run"]))
    text = [INTRODUCTION.format(run=run, folds=FOLDS, tol=TOL, passes=MAX_ITER)]
    for kind, (title, what) in SECTIONS.items():
        rows, means = [], {}
        for name, share in product(RANKING, KINDS[kind]):
            found = results["found"].get(f"{kind} {name} {share}")
            if found is None:
                continue
            taus = {method: np.asarray(result["tau"]) for method, result in found.items()}
            best = max(taus, key=lambda method: taus[method].mean())
            cells = []
            for method, values in taus.items():
                means.setdefault(share, {}).setdefault(method, []).append(values.mean())
                cell = f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"
                cells.append(f"**{cell}**" if method == best else cell)
            rows.append((name, f"{100 * share:.0f} %", *cells))
        for share, by in means.items():
            best = max(by, key=lambda method: np.mean(by[method]))
            cells = [f"{np.mean(by[method]):.3f}" for method in METHODS]
            rows.append((
                "mean", f"{100 * share:.0f} %",
                *(f"**{cell}**" * (method == best) or cell for method, cell in zip(METHODS, cells)),
            ))
        if rows:
            text.append(f"## {title}\n\n{wrapped(what)}\n")
            text.append(rows_of(("set", "deleted", *METHODS), rows))
        if kind == "items":
            text.append(
                "![Kendall's tau against the share of deleted items, one panel for each set]"
                f"(images/{PICTURE.name})\n")
    seconds = [
        (name, *(
            f"{max(results['found'][key][method]['seconds'] for key in keys):.2f}"
            for method in METHODS))
        for name in RANKING
        if (keys := [key for key in results["found"] if key.split()[1] == name])
    ]
    text.append(
        "## Seconds\n\n" + wrapped(
            "CPU seconds of one fit to two thirds of a set with the chosen parameters. Each cell is the "
            "largest median over folds, of all deletions.") + "\n")
    text.append(rows_of(("set", *METHODS), seconds))
    PAGE.write_text("\n".join(text))


def draw(results):
    """Tau against the share of deleted items: three peers, and the log surrogate for all ours."""
    styles = {
        "Ridge": dict(color=GREY, ls=":", marker="s"), "pairs": dict(color=COLORS[4], ls="--", marker="^"),
        "forests": dict(color=COLORS[3], ls="-.", marker="D"),
        "CRF": dict(color=COLORS[2], ls="-", marker="o"),
    }
    figure = Figure(figsize=(11, 3), dpi=130, layout="constrained")
    for axes, name in zip(figure.subplots(1, len(RANKING)), RANKING):
        for method, style in styles.items():
            taus = {
                share: np.mean(results["found"][key][method]["tau"])
                for share in KINDS["items"] if (key := f"items {name} {share}") in results["found"]
            }
            axes.plot(
                [100 * share for share in taus], list(taus.values()), ms=4, label=method, **style)
        axes.set(title=name, xlabel="deleted items, %")
    figure.axes[0].set_ylabel("Kendall's tau of test rankings")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(styles))
    figure.savefig(PICTURE)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--sets", nargs="+", choices=RANKING, default=RANKING)
    parser.add_argument("--page", action="store_true", help="make the page and nothing else")
    args = parser.parse_args()
    results = json.loads(FILE.read_text()) if FILE.exists() else {"found": {}}
    if not args.page:
        results["run"] = environment("scikit-learn")
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for kind, name in product(args.kinds, args.sets):
                for share in KINDS[kind]:
                    found = measured(name, kind, share)
                    results["found"][f"{kind} {name} {share}"] = found
                    FILE.write_text(json.dumps(results, indent=1) + "\n")
                    print(kind, name, share, {
                        method: round(float(np.mean(result["tau"])), 3)
                        for method, result in found.items()}, flush=True)
    draw(results)
    write_page(results)


if __name__ == "__main__":
    main()
