"""Speed, side by side in one run: against the NumPy reference, the published figures,
LinearSVC and SVC; and cost per pass and memory against n.

    FASTM4N_DATA=... python benchmarks/speed.py [--only NAME ...] [--repeats 5]

prints each section as a Markdown table and writes docs/results/speed.md. Times are CPU seconds of
one thread, medians over the repeats, the contestants taking turns; objective values are
recomputed here from the coefficients, the same way for all.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
from _data import load_multiclass
from _making import made
from _peers import cpu, table
from sklearn.datasets import load_digits
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

import fastm4n
from fastm4n import BlockFrankWolfe, MulticlassClassifier, reference

ROOT = Path(__file__).resolve().parent.parent

# of the page, where that begins which is not made here
MARK = "<!-- end of the tables of benchmarks/speed.py -->"

# CPU seconds of the code published with the M4N paper: a pass on segment with 20 iterations
# of mirror prox, and 100 passes on satimage, which end at a true gap of 2.0e-3
PUBLISHED_PASS = 0.25
PUBLISHED_SATIMAGE = 36.0


def median(function, repeats):
    times, result = [], None
    for _ in range(repeats):
        seconds, result = cpu(function)
        times.append(seconds)
    return float(np.median(times)), result


def split(X, y, share, seed=0):
    rows = np.random.RandomState(seed).permutation(len(y))[: int(share * len(y))]
    return X[rows], y[rows]


def kernel_passes(repeats):
    """Passes to a certified gap with an RBF kernel on segment (all 2,310 rows)."""
    X, y = load_multiclass("segment")
    rows = []
    for alpha, tol, limit in ((0.01, 1e-4, 10), (0.001, 1e-3, 20)):
        for sampling in ("gap", "permutation"):
            seconds, model = median(
                lambda: made(
                    MulticlassClassifier, alpha=alpha, kernel="rbf", tol=tol, sampling=sampling,
                    random_state=0,
                ).fit(X, y),
                repeats,
            )
            rows.append(
                (alpha, f"{tol:g}", sampling, model.n_iter_, limit, f"{model.duality_gap_:.1e}",
                 f"{seconds:.3f}")
            )
    head = ("alpha", "tol", "sampling", "passes", "target", "certified gap", "CPU s, Gram included")
    return table("segment, RBF kernel, 0-1 loss, max-min", head, rows)


def against_reference(repeats):
    """One pass of the compiled engine and of the NumPy reference, the same steps."""
    X, y = split(*load_multiclass("segment"), 0.6)
    rows = []
    for surrogate, options in (
        ("max_min", {}), ("max_min", dict(oracle="mirror_prox")), ("max_margin", {}), ("log", {})
    ):
        blocks = reference.SimplexBlocks(
            X, y, 7, surrogate, 0.01, oracle_iter=20 if options else None
        )
        n_slow, n_fast = 1, 50
        slow, result = median(
            lambda: reference.block_coordinate_frank_wolfe(
                blocks, sampling="permutation", n_passes=n_slow, gap_every=10**9
            ),
            max(1, repeats // 2),
        )

        def compiled(n_passes):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return made(
                    MulticlassClassifier, surrogate, alpha=0.01, sampling="permutation", tol=0,
                    max_iter=n_passes,
                    fit_intercept=False, random_state=0, **options,
                ).fit(X, y)

        # what a fit costs besides its passes is in both and cancels
        few, _ = median(lambda: compiled(1), repeats)
        many, _ = median(lambda: compiled(1 + n_fast), repeats)
        fast = (many - few) / n_fast
        rows.append(
            (surrogate, options.get("oracle", "exact"), f"{slow * 1e3:.0f}", f"{fast * 1e3:.3f}",
             f"{slow / fast:.0f}",
             f"{PUBLISHED_PASS / fast:.0f}" if options else "")
        )
    head = ("surrogate", "oracle", "NumPy ms a pass", "compiled ms a pass", "ratio",
            "published code (0.25 s) / compiled")
    return table("Against the NumPy reference: segment, 1,386 rows, linear", head, rows)


def satimage(repeats):
    """Certified gap against CPU seconds on the problem of the published figure."""
    X, y = split(*load_multiclass("satimage"), 0.6)
    rows = []
    for tol in (2e-3, 1e-4, 1e-6):
        seconds, model = median(
            lambda: MulticlassClassifier(
                "max_min", alpha=0.01, tol=tol, random_state=0).fit(X, y), repeats
        )
        rows.append(
            (f"{tol:g}", f"{model.duality_gap_:.1e}", model.n_iter_, f"{seconds:.4f}",
             f"{PUBLISHED_SATIMAGE / seconds:.0f}" if tol == 2e-3 else "")
        )
    head = ("tol", "certified gap", "passes", "CPU s, whole fit", "published code (36 s) / ours")
    return table("satimage, 2,661 rows, linear with bias, max-min, alpha = 0.01", head, rows)


def crammer_singer(X, y, coef, intercept, alpha):
    scores = X @ coef.T + intercept
    n = np.arange(len(y))
    augmented = scores + 1.0
    augmented[n, y] -= 1.0
    penalty = 0.5 * alpha * (np.sum(coef**2) + np.sum(intercept**2))
    return np.mean(augmented.max(axis=1) - scores[n, y]) + penalty


def against_linear_svc(repeats):
    """Max-margin, linear, to 1e-4 of the optimum; each at its loosest tolerance that gets there."""
    rows = []
    pixels, digits = load_digits(return_X_y=True)
    pixels /= 16.0
    for name in ("segment", "satimage", "letter", "vehicle", "digits"):
        X, y = (pixels, digits) if name == "digits" else load_multiclass(name)
        n = len(y)
        for alpha, label in ((0.01, "0.01"), (0.001, "0.001"), (1 / n, "1/n (C = 1)")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exact = MulticlassClassifier(
                    "max_margin", alpha=alpha, tol=1e-6, max_iter=20000, random_state=0
                ).fit(X, y)
            optimum = exact.dual_objective_

            def objective(model):
                return crammer_singer(X, y, model.coef_, model.intercept_, alpha)

            def ours(tol):
                return MulticlassClassifier(
                    "max_margin", alpha=alpha, tol=tol, random_state=0
                ).fit(X, y)

            def theirs(tol):
                return LinearSVC(
                    multi_class="crammer_singer", C=1 / (alpha * n), tol=tol, max_iter=100000,
                    random_state=0,
                ).fit(X, y)

            def loosest(fit, tolerances):
                for tol in tolerances:
                    seconds, model = cpu(lambda: fit(tol))
                    error = objective(model) / optimum - 1
                    if error <= 1e-4 or seconds > 20:
                        return tol, error
                return tol, error

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tol_a, error_a = loosest(ours, optimum * 1e-3 * 10.0 ** -np.arange(0, 2.6, 0.1))
                tol_b, error_b = loosest(theirs, 10.0 ** -np.arange(0.5, 5, 0.1))
                a, b = [], []
                for _ in range(repeats):
                    a.append(cpu(lambda: ours(tol_a))[0])
                    b.append(cpu(lambda: theirs(tol_b))[0])
            rows.append(
                (name, label, f"{np.median(a):.3f}", f"{error_a:.1e}", f"{np.median(b):.3f}",
                 f"{error_b:.1e}", f"{np.median(b) / np.median(a):.2f}")
            )
    head = ("set", "alpha", "ours, CPU s", "above optimum", "LinearSVC, CPU s", "above optimum",
            "LinearSVC / ours")
    return table("Max-margin, 0-1, linear, against LinearSVC(crammer_singer)", head, rows)


def peak_memory():
    """Peak resident memory of this process in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_child(*arguments):
    """Run this file in a new process for one measurement; returns its printed numbers."""
    output = subprocess.run(
        [sys.executable, __file__, "--child", *map(str, arguments)],
        check=True, capture_output=True, text=True,
    ).stdout
    return [float(word) for word in output.split()]


def child(kind, *arguments):
    if kind == "touch":
        np.ones(2**28)
        print(0)
    elif kind == "letter":
        contestant, alpha, cache = arguments[0], float(arguments[1]), float(arguments[2])
        X, y = load_multiclass("letter")
        before = resource.getrusage(resource.RUSAGE_SELF)
        if contestant == "SVC":
            model = SVC(kernel="rbf").fit(X, y)
            passes, gap = 0, 0
        else:
            model = MulticlassClassifier(
                contestant, alpha=alpha, kernel="rbf", tol=1e-2,
                solver=BlockFrankWolfe(kernel_cache_size=cache), random_state=0).fit(X, y)
            passes, gap = model.n_iter_, model.duality_gap_
        after = resource.getrusage(resource.RUSAGE_SELF)
        user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
        print(user + system, system, passes, gap, peak_memory())
    else:
        n, d, k = int(arguments[0]), 50, 10
        rng = np.random.RandomState(0)
        X, centers = rng.randn(n, d), rng.randn(k, d)
        y = np.argmax(X @ centers.T + 3 * rng.randn(n, k), axis=1)
        before = peak_memory()
        times = {}
        few, many = 1, 1 + max(5, 10**6 // n)
        for passes in (few, many):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                times[passes], _ = cpu(
                    lambda: made(
                        MulticlassClassifier, alpha=0.01, tol=0, max_iter=passes,
                        sampling="permutation", random_state=0,
                    ).fit(X, y)
                )
        print((times[many] - times[few]) / (many - few), times[few], before, peak_memory())


def letter_kernel(repeats):
    """letter, 15,000 x 26, RBF kernel: one machine for all classes."""
    rows = []
    runs = [("SVC", 0.0, 0)]
    for surrogate in ("max_margin", "max_min", "log"):
        runs += [(surrogate, alpha, 2048) for alpha in (0.01, 0.001, 1 / 15000)]
    small = ("max_margin", 0.001, 256)
    results = {run: [] for run in [*runs, small]}
    for _ in range(max(1, repeats // 2 + 1)):
        for run in runs:
            # a virtual machine may take back memory that is idle, and the next process to use
            # it pays for that with seconds of system time: touch it first
            in_child("touch")
            results[run].append(in_child("letter", *run))
    in_child("touch")
    results[small].append(in_child("letter", *small))
    runs.append(small)
    base = np.median([r[0] for r in results[runs[0]]])
    for run in runs:
        seconds, system, passes, gap, peak = np.median(results[run], axis=0)
        rows.append(
            (run[0] if run[0] != "SVC" else "SVC (C = 1, one-vs-one)",
             f"{run[1]:.2g}" if run[1] else "", run[2] or "", f"{seconds:.2f}", f"{system:.2f}",
             f"{seconds / base:.2f}", f"{passes:.0f}" if passes else "",
             f"{gap:.1e}" if passes else "", f"{peak:.0f}")
        )
    head = ("machine", "alpha", "cache_size MiB", "CPU s", "of it system", "CPU s / SVC's",
            "passes", "certified gap (tol 1e-2)", "peak MiB of the process")
    return table("letter, 15,000 rows, 26 classes, RBF kernel", head, rows)


def scaling(repeats):
    """Cost per pass and memory against n, 50 features, 10 classes, max-min."""
    rows = []
    for n in (10**3, 10**4, 10**5, 10**6):
        runs = [in_child("scaling", n) for _ in range(1 if n >= 10**6 else max(1, repeats // 2))]
        per_pass, first, before, after = np.median(runs, axis=0)
        rows.append(
            (f"{n:,}", f"{per_pass * 1e3:.2f}", f"{per_pass / n * 1e9:.0f}", f"{first:.3f}",
             f"{before:.0f}", f"{after - before:.0f}", f"{(after - before) * 2**20 / (n * 10 * 8):.1f}")
        )
    head = ("n", "ms a pass", "ns a visit", "fit of one pass, CPU s", "MiB before the fit",
            "MiB more at its peak", "the same in units of n k doubles")
    return table("Cost and memory against n (50 features, 10 classes, linear, max-min)", head, rows)


SECTIONS = {
    "kernel": kernel_passes,
    "reference": against_reference,
    "satimage": satimage,
    "linear_svc": against_linear_svc,
    "letter": letter_kernel,
    "scaling": scaling,
}


def main():
    if sys.argv[1:2] == ["--child"]:
        with threadpool_limits(1):
            child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    if load_multiclass("segment") is None:
        parser.exit(1, "set FASTM4N_DATA to the folder that holds multiclass/segment.svm.gz\n")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parts = [
        "# Speed\n",
        "Made by `python benchmarks/speed.py`: CPU seconds of one thread, medians of "
        f"{args.repeats} (fewer for the\nlong ones), contestants in turn in one run. fastm4n "
        f"{fastm4n.__version__}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"vectors of\n{fastm4n._simd._loops.simd_width()} doubles, {platform.machine()}. The "
        "figures of the published code were measured on another day.\n",
    ]
    with threadpool_limits(1):
        for name in args.only:
            text = SECTIONS[name](args.repeats)
            print(text, flush=True)
            parts.append(text)
    if args.only == list(SECTIONS):
        page = ROOT / "docs" / "results" / "speed.md"
        # what other scripts have measured follows
        kept = page.read_text().partition(MARK)[2]
        page.write_text("\n".join([*parts, MARK + kept]))


if __name__ == "__main__":
    main()
