"""Two threads beside one: seconds by the clock, and what the machine has to give.

    FASTM4N_DATA=... python benchmarks/threads.py fits paths [--repeats 5] [--only TEXT]

For each problem one thread and two take turns, and so do two streams of SHA-256, over buffers of
64 MB without the interpreter's lock, one after the other and at a time: what those gain is what
the machine allows. Prints Markdown tables of medians. Run it alone: what others take is missing.
Where a machine is shared with others that cannot be seen, --streams 1.8 takes turns until so many
have been made with streams that gained 1.8 or more before and after, or gives up.
"""

import argparse
import hashlib
import threading
import time

import numpy as np
from _data import folder, load_multiclass
from _peers import describe, environment, table
from conll2000 import vectorized
from ocr import ocr_part
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from fastm4n import MulticlassClassifier, RegularizationPathCV, SequenceTagger

BUFFER = bytes(64 << 20)
# turns for each that is to count, before it is given up
MOST_TURNS = 6


def clock(function):
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def two_streams():
    """How many times as fast two streams of SHA-256 are in two threads as in one."""
    def stream():
        hashlib.sha256(BUFFER).digest()

    def both():
        threads = [threading.Thread(target=stream) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return (clock(stream) + clock(stream)) / clock(both)


def beside(name, of_jobs, repeats, least):
    """A row: seconds of of_jobs(1) and of_jobs(2), medians, their ratio, and that of the streams.

    The ratio is the median of those of turns, which are those whose streams, the worse of before
    and after, gained at least so much.
    """
    of_jobs(1)  # pays for what later calls find in place
    turns, n_made, before = [], 0, two_streams()
    while len(turns) < repeats and n_made < MOST_TURNS * repeats:
        seconds = clock(lambda: of_jobs(1)), clock(lambda: of_jobs(2))
        after = two_streams()
        if min(before, after) >= least:
            turns.append((*seconds, min(before, after)))
        before, n_made = after, n_made + 1
    if not turns:
        return name, "", "", "the streams never gained so much", "", f"0 of {n_made}"
    turns = np.array(turns)
    ratios = turns[:, 0] / turns[:, 1]
    one, two, streams = np.median(turns, axis=0)
    return (
        name, f"{one:.2f}", f"{two:.2f}",
        f"{np.median(ratios):.2f} ({ratios.min():.2f} ... {ratios.max():.2f})", f"{streams:.2f}",
        f"{len(turns)} of {n_made}")


def path_problems():
    """(name, estimator, X, y) of cross-validated paths; a tagger has a third of the sentences."""
    X, y = load_digits(return_X_y=True)
    yield "digits, dense M3N", MulticlassClassifier("max_margin", random_state=0), X / 16, y
    if folder() is None:
        print("FASTM4N_DATA is not set: digits only")
        return
    X, y = load_multiclass("letter")
    for surrogate, title in (("max_margin", "M3N"), ("log", "CRF")):
        estimator = MulticlassClassifier(surrogate, random_state=0)
        yield f"letter, dense {title}", estimator, X, y
    # which of ten ranges each value is in
    ranges = np.digitize(X, np.linspace(-0.8, 0.8, 9)) + 10 * np.arange(X.shape[1])
    rows = np.repeat(np.arange(len(X)), X.shape[1])
    indicators = sparse.csr_matrix((np.ones(rows.size), (rows, ranges.ravel())))
    estimator = MulticlassClassifier("max_margin", random_state=0)
    yield "letter in ranges, CSR M3N", estimator, indicators, y
    estimator = MulticlassClassifier("max_margin", kernel="rbf", random_state=0)
    yield "letter, 1500 rows, RBF M3N", estimator, X[:1500], y[:1500]
    X, y = ocr_part(0)
    for surrogate, title in (("max_margin", "M3N"), ("log", "CRF")):
        estimator = SequenceTagger(surrogate, cost_scale="mean", tol=1e-3, random_state=0)
        yield f"OCR-small {title}", estimator, X, y
    X, y, _ = vectorized("train")
    third = slice(0, len(X), 3)
    yield "CoNLL-2000, a third, CRF", SequenceTagger("log", random_state=0), X[third], y[third]


def paths(only, repeats, least):
    """Cross-validated paths, five folds."""
    rows = []
    for name, estimator, X, y in path_problems():
        if only in name:
            rows.append(beside(
                name, lambda n_jobs: RegularizationPathCV(estimator, n_jobs=n_jobs).fit(X, y),
                repeats, least))
            print(*rows[-1], sep=" | ", flush=True)
    return "Cross-validated paths", rows


def sparse_rows(n, d, nnz, k):
    """n rows of nnz entries each, some columns being frequent, and labels of a noisy linear rule."""
    rng = np.random.default_rng(0)
    shares = 1.0 / np.arange(1, d + 1) ** 0.7
    columns = rng.choice(d, size=n * nnz, p=shares / shares.sum()).astype(np.int32)
    values = np.abs(rng.standard_normal(n * nnz))
    X = sparse.csr_matrix((values, columns, np.arange(0, n * nnz + 1, nnz)), shape=(n, d))
    X.sum_duplicates()
    scores = X @ rng.standard_normal((d, k))
    scores += 0.1 * scores.std() * rng.standard_normal(scores.shape)
    return X, scores.argmax(axis=1)


def fit_problems():
    """(name, estimator, arguments of fit)."""
    n = 1_000_000
    yield "CSR, 1e6 x 50 entries, 5 classes, M3N", MulticlassClassifier(
        "max_margin", alpha=1e-5, tol=1e-2, random_state=0), lambda: sparse_rows(n, 50_000, 50, 5)
    if folder() is None:
        print("FASTM4N_DATA is not set: sparse rows only")
        return
    yield "CoNLL-2000, CRF", SequenceTagger("log", random_state=0), lambda: vectorized("train")[:2]
    yield "CoNLL-2000, observed states, CRF", SequenceTagger(
        "log", states="observed", random_state=0), lambda: vectorized("train")[:2]
    for surrogate, title in (("max_min", "M4N"), ("log", "CRF")):
        yield f"OCR-large, {title}", SequenceTagger(
            surrogate, tol=1e-2, random_state=0), lambda: ocr_part(slice(1, None))


def fits(only, repeats, least):
    """Single fits: as far in both, as threads change no bit."""
    rows = []
    for name, estimator, data in fit_problems():
        if only in name:
            X, y = data()
            rows.append(beside(
                name, lambda n_jobs: clone(estimator).set_params(n_jobs=n_jobs).fit(X, y), repeats,
                least))
            print(*rows[-1], sep=" | ", flush=True)
    return "Fits", rows


SECTIONS = {"fits": fits, "paths": paths}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--streams", type=float, default=0.0, help="least gain of the streams")
    parser.add_argument("--only", default="", help="problems whose name has this in it")
    arguments = parser.parse_args()
    head = ("problem", "one thread, s", "two, s", "times as fast", "two streams of SHA-256", "turns")
    with threadpool_limits(1):
        for section in arguments.sections:
            title, rows = SECTIONS[section](
                arguments.only, arguments.repeats, arguments.streams)
            print("\n" + table(title, head, rows))
    print(describe(environment("fastm4n", "numpy", "scipy", "scikit-learn")))


if __name__ == "__main__":
    main()
