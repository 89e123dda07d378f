"""Fits of a LabelRanker under the max-min surrogate, by cost and alpha.

    python benchmarks/label_ranker.py [--examples 1000] [--costs zero_one absolute squared]

prints a Markdown table: CPU seconds of one thread of fits to the default tolerance, their passes
and microseconds a visit, certificates included. The rankings are of the first ten letters of
`letter`, by the class probabilities of Gaussian naive Bayes: 16 features, ten items, no noise.
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


def rankings(n_examples):
    """X and the ranks of the items, best first."""
    X, letters = load_multiclass("letter")
    kept = letters < np.unique(letters)[ITEMS]
    X, letters = X[kept], letters[kept]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    chances = GaussianNB().fit(X, letters).predict_joint_log_proba(X)
    chosen = np.random.RandomState(0).permutation(len(X))[:n_examples]
    return X[chosen], (-chances[chosen]).argsort(axis=1).argsort(axis=1)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--costs", nargs="+", default=["zero_one", "absolute", "squared"])
    parser.add_argument("--alphas", nargs="+", type=float, default=ALPHAS)
    args = parser.parse_args()
    X, y = rankings(args.examples)
    rows = []
    with threadpool_limits(1):
        for cost in args.costs:
            for alpha in args.alphas:
                start = time.process_time()
                model = LabelRanker(alpha=alpha, cost=cost, tol=1e-3, random_state=0).fit(X, y)
                seconds = time.process_time() - start
                visit = 1e6 * seconds / (len(X) * model.n_iter_)
                rows.append([
                    cost, f"{alpha:g}", f"{seconds:.2f}", model.n_iter_, f"{visit:.0f}",
                    f"{model.relative_gap_:.1e}",
                ])
    head = ["cost", "alpha", "seconds", "passes", "us a visit", "relative gap"]
    print(table(f"{len(X)} rankings of {ITEMS} items", head, rows))


if __name__ == "__main__":
    main()
