"""Alpha by cross-validation: `RegularizationPathCV` beside LogisticRegressionCV and GridSearchCV.

    FASTM4N_DATA=... python benchmarks/path_cv.py [SET ...] [--seeds 3] [--l1 | --precision]

writes benchmarks/results/path_cv.json and docs/results/path_cv.md. With SET it replaces the results
of those sets and leaves the others. Each of 12 sets is split three times; about a third is held
out, and at most 1,500 examples are for training. All searches have the same five folds and the same
score: accuracy, or log loss. LogisticRegressionCV has its own ten values of C, and GridSearchCV the
alphas that are equal to them. CPU seconds of one thread.

With --l1 it runs only sparse binary logistic regression beside celer, which must be installed: 19
alphas from 0.79 to 0.01 of the largest one, no intercept. Each has the loosest tolerance that comes
to within 1e-4 of the objective at zero of the best one found, at all alphas.

With --precision it prints, for several `eps` and `kappa`, by how much the cross-validated score at
the chosen alpha is below the best one of a grid of 25, of fits to the default `tol`, and seconds.
"""

import argparse
import json
import time
import warnings

import numpy as np
from _data import MULTICLASS, load_multiclass, load_ordinal
from _peers import RESULTS, ROOT, cpu, describe, environment, table, wrapped
from multilabel import load as load_label_sets
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import MulticlassClassifier, RegularizationPathCV

FILE, PAGE = RESULTS / "path_cv.json", ROOT / "docs" / "results" / "path_cv.md"
HELD_OUT, MOST = 2000, 1500
LEVELS, TEXTS = ("stocks", "wisconsin"), ("rcv1", "bibtex")
SETS = (*MULTICLASS, "breast_cancer", "digits", *LEVELS, *TEXTS)
WITHIN = 1e-4
SCORES = {"accuracy": "errors, %", "neg_log_loss": "log loss"}
PEER, GRID = "LogisticRegressionCV", "GridSearchCV, log"
OURS, MARGINS = "RegularizationPathCV, log", "RegularizationPathCV, max_min"


def load(name):
    """X and y; of label sets whether they have their second most frequent label."""
    if name in TEXTS:
        X, Y, Z, T = load_label_sets(name)
        Y = np.vstack([Y, T])
        return sparse.vstack([X, Z]).tocsr(), Y[:, Y.sum(axis=0).argsort()[-2]]
    if name in LEVELS:
        return load_ordinal(name)
    if name in MULTICLASS:
        return load_multiclass(name)
    return {"breast_cancer": load_breast_cancer, "digits": load_digits}[name](return_X_y=True)


def split(X, y, seed):
    """Standardised training and test parts."""
    n = X.shape[0]
    test, train = np.split(np.random.default_rng(seed).permutation(n), [min(HELD_OUT, n // 3)])
    train = train[:MOST]
    scaler = StandardScaler(with_mean=not sparse.issparse(X)).fit(X[train])
    return scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]


def searches(scoring, n):
    log = MulticlassClassifier("log", random_state=0)
    found = {
        OURS: RegularizationPathCV(log, scoring=scoring),
        PEER: LogisticRegressionCV(scoring=scoring),
        GRID: GridSearchCV(log, {"alpha": 1 / (np.logspace(-4, 4, 10) * n)}, scoring=scoring),
    }
    if scoring == "accuracy":
        found[MARGINS] = RegularizationPathCV(MulticlassClassifier("max_min", random_state=0))
    return found


def losses(search, scoring, X, y):
    """Of each held-out example the error in percent, or the log loss."""
    if scoring == "accuracy":
        return 100.0 * (search.predict(X) != y)
    chances = search.predict_proba(X)
    known = np.isin(y, search.classes_)
    rows = np.flatnonzero(known)
    return -np.log(np.maximum(
        chances[rows, np.searchsorted(search.classes_, y[known])], np.finfo(float).tiny))


def measured(name, seeds):
    """By score and search the mean loss, its standard error and seconds, of each seed."""
    X, y = load(name)
    found = {scoring: {} for scoring in SCORES}
    for seed in range(seeds):
        A, a, B, b = split(X, y, seed)
        for scoring in SCORES:
            for key, search in searches(scoring, len(a)).items():
                start = time.process_time()
                search.fit(A, a)
                seconds = time.process_time() - start
                each = losses(search, scoring, B, b)
                found[scoring].setdefault(key, []).append(
                    [each.mean(), each.std() / np.sqrt(each.size), seconds])
    return found


def sparse_problems():
    """Names, X and y of -1 and 1."""
    for name in ("breast_cancer", *TEXTS):
        X, y = load(name)
        scaler = StandardScaler(with_mean=not sparse.issparse(X))
        yield name, scaler.fit_transform(X), np.where(y == 1, 1, -1)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2000))
    yield "200 x 2,000, normal", X, np.sign(X[:, :20].sum(axis=1) + rng.normal(size=200)).astype(int)


def precision(names):
    """Excess of the cross-validated loss, and seconds, by surrogate, score, `eps` and `kappa`."""
    alphas, numbers = np.geomspace(1e-6, 1, 25), {}
    tried = {
        "log": [(0.1, 0.9), (0.1, 0.1), (0.05, 0.9), (0.05, 0.2), (0.05, 0.1), (0.03, 0.9),
                (0.01, 0.9)],
        "max_margin": [(0.1, 0.9), (0.05, 0.9), (0.05, 0.2), (0.03, 0.9), (0.01, 0.9)]}
    for name in names:
        X, y, _, _ = split(*load(name), 0)
        for surrogate, scoring in (*(("log", scoring) for scoring in SCORES),
                                   ("max_margin", "accuracy")):
            model = MulticlassClassifier(surrogate, max_iter=300, random_state=0)
            grid = GridSearchCV(model, {"alpha": alphas}, scoring=scoring, refit=False).fit(X, y)
            exact = grid.cv_results_["mean_test_score"]
            for eps, kappa in tried[surrogate]:
                search = RegularizationPathCV(model, eps=eps, kappa=kappa, scoring=scoring)
                seconds, _ = cpu(lambda search=search, X=X, y=y: search.fit(X, y))
                there = np.interp(np.log(search.alpha_), np.log(alphas), exact)
                numbers.setdefault((surrogate, scoring, eps, kappa), []).append(
                    [exact.max() - there, seconds])
    print("surrogate, score, eps, kappa: mean excess, largest excess, seconds")
    for key, of_sets in numbers.items():
        excess, seconds = np.transpose(of_sets)
        print(*key, f": {excess.mean():.4f} {excess.max():.4f} {seconds.sum():.2f}")


def by_celer(X, y, alphas, tol):
    from celer import celer_path

    X = sparse.csc_matrix(X) if sparse.issparse(X) else np.asfortranarray(X)
    return celer_path(X, y.astype(float), pb="logreg", alphas=alphas, tol=tol)[1].T


def by_warm_starts(X, y, alphas, tol):
    model = MulticlassClassifier(
        "log", penalty="l1", fit_intercept=False, warm_start=True, tol=tol, max_iter=2000,
        random_state=0)
    weights = []
    for alpha in alphas / len(y):
        model.set_params(alpha=alpha).fit(X, y)
        weights.append(model.coef_[1] - model.coef_[0])
    return weights


def sparse_paths():
    """Of each problem the tolerance, the seconds and the excess of celer and of fastm4n."""
    found = {}
    for name, X, y in sparse_problems():
        alphas = 0.5 * np.abs(X.T @ y).max() * np.geomspace(1, 0.01, 20)[1:]
        runs = {}
        for key, solve in (("celer", by_celer), ("fastm4n", by_warm_starts)):
            for tol in (1e-2, 1e-3, 1e-4, 1e-5):
                start = time.process_time()
                weights = solve(X, y, alphas, tol)
                seconds = time.process_time() - start
                objectives = np.array([
                    np.logaddexp(0, -y * (X @ w)).mean() + alpha / len(y) * np.abs(w).sum()
                    for alpha, w in zip(alphas, weights, strict=True)])
                runs[key, tol] = seconds, objectives
        best = np.min([objectives for _, objectives in runs.values()], axis=0)
        found[name] = {}
        for (key, tol), (seconds, objectives) in runs.items():
            excess = (objectives - best).max() / np.log(2)
            if excess <= WITHIN:
                found[name].setdefault(key, [tol, seconds, excess])
        print(name, found[name], flush=True)
    return found


def page(results, about):
    lines = [
        "# Alpha by cross-validation", "", "Made by `python benchmarks/path_cv.py`: CPU seconds of "
        "one thread.", describe(about), "",
        wrapped(
            "`RegularizationPathCV` with its defaults chooses alpha by five folds and fits all data "
            "with it. LogisticRegressionCV and GridSearchCV do the same with ten values, by the "
            "same score and the same folds. A number is the mean of three splits, of which a third "
            f"(at most {HELD_OUT:,} examples) is held out and at most {MOST:,} examples are for "
            "training. Features are standardised. ± is the standard error of the lowest loss for "
            "one split. Bold numbers are within it."), "",
        wrapped(
            "stocks and wisconsin are ordered levels, taken as classes. rcv1 and bibtex are sparse "
            "rows, with their second most frequent label or without it. (The most frequent one of "
            "bibtex is predicted without errors.)"), ""]
    for scoring, title in SCORES.items():
        names = [key for key in (OURS, MARGINS, PEER, GRID)
                 if key in next(iter(results.values()))[scoring]]
        rows, within, ratios = [], dict.fromkeys(names, 0), {key: [] for key in names}
        means = []
        for name in SETS:
            if name not in results:
                continue
            of_set = {key: np.array(results[name][scoring][key]) for key in names}
            mean = {key: numbers[:, 0].mean() for key, numbers in of_set.items()}
            seconds = {key: np.median(numbers[:, 2]) for key, numbers in of_set.items()}
            best = min(mean, key=mean.get)
            error = of_set[best][:, 1].mean()
            means.append([mean[key] for key in names])
            cells = []
            digits = ".1f" if scoring == "accuracy" else ".3f"
            for key in names:
                good = mean[key] <= mean[best] + error
                within[key] += good
                ratios[key].append(seconds[key] / seconds[PEER])
                text = format(mean[key], digits)
                cells += [f"**{text}**" if good else text, f"{seconds[key]:.2f}"]
            rows.append([name, *cells, f"± {error:{digits}}"])
        averages = np.mean(means, axis=0)
        rows.append(["mean", *sum(([f"{average:{digits}}", ""] for average in averages), []), ""])
        rows.append([
            f"within ±, of {len(means)}; seconds / those of {PEER}, median",
            *sum(([str(within[key]), f"{np.median(ratios[key]):.2f}"] for key in names), []), ""])
        head = ["set", *sum(([f"{key}: {title}", "s"] for key in names), []), "±"]
        lines.append(table(f"Chosen and measured by {title.partition(',')[0]}", head, rows))
    return "\n".join(lines)


def sparse_page(found, about):
    rows = [
        [name, *(f"{number:{form}}" for key in ("celer", "fastm4n")
                 for number, form in zip(numbers[key], (".0e", ".2f", ".0e"), strict=True)),
         f"{numbers['fastm4n'][1] / numbers['celer'][1]:.1f}"] for name, numbers in found.items()]
    head = ["set", *(f"{key}{what}" for key in ("celer", "fastm4n")
                     for what in (": tol", ", s", ", excess")), "s, ratio"]
    return table("L1: beside celer", head, rows) + "\n" + wrapped(
        "Sparse binary logistic regression at 19 alphas from 0.79 to 0.01 of the one that makes all "
        "weights zero, each fit starting from the one before: celer_path, and "
        "MulticlassClassifier(\"log\", penalty=\"l1\", warm_start=True). Each has the loosest of "
        f"four tolerances that comes to within {WITHIN:g} of the objective at zero of the best one "
        "found. Paths of fastm4n need a quadratic term, and refuse pure L1.") + (
        f"\n\n{describe(about)}\n")


def keep(stored):
    """Write the numbers and the page."""
    FILE.write_text(json.dumps(stored, indent=1) + "\n")
    text = page(stored["results"], stored["environment"])
    if "l1" in stored:
        text += "\n" + sparse_page(stored["l1"], stored["l1_environment"])
    PAGE.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--l1", action="store_true", help="only L1, beside celer")
    parser.add_argument("--precision", action="store_true", help="only eps and kappa")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.precision:
        return precision(args.sets or SETS)
    stored = json.loads(FILE.read_text()) if FILE.exists() else {"results": {}}
    about = environment("scikit-learn", "scipy", "celer")
    if args.l1:
        keep({**stored, "l1": sparse_paths(), "l1_environment": about})
    else:
        stored["environment"] = about
        for name in args.sets or SETS:
            stored["results"][name] = measured(name, args.seeds)
            keep(stored)
            print(name, {scoring: {key: np.array(numbers).mean(axis=0).round(4).tolist()
                         for key, numbers in of_set.items()}
                         for scoring, of_set in stored["results"][name].items()}, flush=True)
    print(PAGE.read_text())


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
