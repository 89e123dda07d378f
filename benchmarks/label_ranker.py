"""Fits of a LabelRanker under the max-min surrogate, by cost and alpha.

    python benchmarks/label_ranker.py [--examples 1000] [--costs zero_one absolute squared]

prints a Markdown table: CPU seconds of one thread of fits to a relative gap of 1e-3, their passes
and microseconds a visit, certificates included. The rankings are of the first ten letters of
`letter`, by the class probabilities of Gaussian naive Bayes: 16 features, ten items, no noise.

    python benchmarks/label_ranker.py --made [--features 5 20 50] [--noise 0 1 5]

has rankings by linear utilities with Gumbel noise of a scale instead. It prints the CPU seconds of
fits to the default tolerance for five alphas, and their total. The items have normal weights, and
the features are normal.
"""

import argparse
import time

import numpy as np
from _data import load_multiclass
from _peers import table
from sklearn.naive_bayes import GaussianNB
from threadpoolctl import threadpool_limits

from fastm4n import LabelRanker

ITEMS = 10
ALPHAS = (1.0, 0.1, 0.01, 0.001, 0.0001)
SMALL_ALPHAS = (0.1, 0.01, 0.001, 0.0001, 0.00001)


def rankings(n_examples):
    """X and the ranks of the items, best first."""
    X, letters = load_multiclass("letter")
    kept = letters < np.unique(letters)[ITEMS]
    X, letters = X[kept], letters[kept]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    chances = GaussianNB().fit(X, letters).predict_joint_log_proba(X)
    chosen = np.random.RandomState(0).permutation(len(X))[:n_examples]
    return X[chosen], (-chances[chosen]).argsort(axis=1).argsort(axis=1)


def made(n_examples, n_features, noise):
    """The same by linear utilities with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_examples, n_features))
    utilities = X @ rng.normal(size=(n_features, ITEMS))
    utilities += noise * rng.gumbel(size=utilities.shape)
    return X, (-utilities).argsort(axis=1).argsort(axis=1)


def timed(X, y, **params):
    """CPU seconds of a fit, and the model."""
    start = time.process_time()
    model = LabelRanker(random_state=0, **params).fit(X, y)
    return time.process_time() - start, model


def by_alpha(args):
    """The table of `letter`."""
    X, y = rankings(args.examples)
    rows = []
    for cost in args.costs:
        for alpha in args.alphas or ALPHAS:
            seconds, model = timed(X, y, cost=cost, alpha=alpha, tol=1e-3)
            visit = 1e6 * seconds / (len(X) * model.n_iter_)
            rows.append([
                cost, f"{alpha:g}", f"{seconds:.2f}", model.n_iter_, f"{visit:.0f}",
                f"{model.relative_gap_:.1e}",
            ])
    head = ["cost", "alpha", "seconds", "passes", "us a visit", "relative gap"]
    return table(f"{len(X)} rankings of {ITEMS} items", head, rows)


def by_noise(args):
    """The table of made data."""
    alphas, rows = args.alphas or SMALL_ALPHAS, []
    for cost in args.costs:
        for n_features in args.features:
            for noise in args.noise:
                X, y = made(args.examples, n_features, noise)
                seconds = [timed(X, y, cost=cost, alpha=alpha)[0] for alpha in alphas]
                rows.append([
                    cost, n_features, f"{noise:g}", *(f"{one:.2f}" for one in seconds),
                    f"{sum(seconds):.1f}",
                ])
    head = ["cost", "features", "noise", *(f"{alpha:g}" for alpha in alphas), "all"]
    return table(f"{args.examples} rankings of {ITEMS} items, CPU s by alpha", head, rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--costs", nargs="+", default=["zero_one", "absolute", "squared"])
    parser.add_argument("--alphas", nargs="+", type=float)
    parser.add_argument("--made", action="store_true")
    parser.add_argument("--features", nargs="+", type=int, default=[5, 20, 50])
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 1.0, 5.0])
    args = parser.parse_args()
    with threadpool_limits(1):
        print((by_noise if args.made else by_alpha)(args))


if __name__ == "__main__":
    main()
