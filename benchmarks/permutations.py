"""Permutations: cost of a visit, max-min oracles, and how both grow.

    FASTM4N_DATA=... python benchmarks/permutations.py [--quick] [--only NAME ...] [--repeats 5]

prints each section as a Markdown table and writes docs/results/permutations.md,
docs/results/images/permutation_oracles.png and benchmarks/results/permutations.json; with --only it
leaves them alone. The five sets of label ranking and their Gaussian kernels are those of
table1.py, the training part of its first split; alpha is 0.01. Times are CPU seconds of one
thread, medians over the repeats. --quick does less of everything, and says so on the page.
"""

import argparse
import json
import time
import tracemalloc
import warnings
from dataclasses import dataclass

import numpy as np
from _data import RANKING, load_ranking
from _making import made
from _peers import RESULTS, ROOT, cpu, describe, environment, table
from _pictures import in_order, two_labels
from matplotlib.figure import Figure
from ocr import TITLES, stopwatch
from sklearn.exceptions import ConvergenceWarning
from table1 import split_kernels
from threadpoolctl import threadpool_limits

from fastm4n import LabelRanker
from fastm4n.inference import max_min_permutation

ALPHA = 0.01
# milliseconds a block visit that the code published with the M4N paper takes on glass, with 20
# iterations of mirror prox; on another machine
PUBLISHED = {"max_margin": 0.07, "max_min": 13.6}
VISITS_PASSES = 50

PASSES = (1, 20)
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4)
ITERATIONS = tuple(10 * 2**i for i in range(9))
ORACLE_GAP = 1e-3
FLOOR = 1e-6
# the colours of ocr.py, by the number of passes
COLOURS = {1: "#0072b2", 20: "#e69f00"}  # one dark, one light
STYLES = {
    "column_generation": dict(marker="o", linestyle="-"),
    "mirror_prox": dict(marker="s", linestyle="--"),
}

ITEMS = (3, 5, 7, 10, 15, 20, 30, 40)
# the tables of the exact CRF have 2^M entries
CRF_ITEMS = 15
FEATURES = (10, 100, 1000, 10_000)
SYNTHETIC, SYNTHETIC_PASSES = 50, 3


@dataclass
class Size:
    """How much of everything is done."""

    repeats: int
    n_blocks: int  # of the oracles
    most_iterations: int  # of mirror prox
    level_seconds: float  # of one number of iterations of mirror prox
    most_items: int


FULL = Size(5, 50, 2560, 1.0, 40)
QUICK = Size(1, 10, 160, 0.3, 20)


def fit(X, y, surrogate, **options):
    options = {"alpha": ALPHA, "tol": 0, "sampling": "permutation", "random_state": 0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return made(LabelRanker, surrogate, cost_scale="mean", **options).fit(X, y)


def training_part(name):
    """Gram matrix and rankings."""
    X, y = load_ranking(name)
    train, _, _, K, _, _ = split_kernels(X, y, 0)
    return K, y[train]


def seconds_of_visits(X, y, surrogate, repeats, passes, **options):
    """Median CPU seconds of a visit, and of a block in a certificate; and the last model."""
    seconds, certificates = [], []
    for _ in range(repeats):
        with stopwatch() as times:
            model = fit(X, y, surrogate, max_iter=passes, **options)
        seconds.append(np.mean(times["pass"]) / len(y))
        certificates.append(times["certificate"][-1] / len(y))
    return float(np.median(seconds)), float(np.median(certificates)), model


# Sections: text for the page, and figures


def visits(size):
    K, y = training_part("glass")
    rows, figures = [], {}
    for title, surrogate, options in (
        ("M3N", "max_margin", {}),
        ("CRF, exact", "log", {}),
        ("M4N, column generation", "max_min", {}),
        ("M4N, mirror prox, 20 iterations, warm", "max_min",
         dict(oracle="mirror_prox", oracle_warm_start=True)),
        ("M4N, mirror prox, 20 iterations, cold", "max_min", dict(oracle="mirror_prox")),
    ):
        repeats = 1 if options else size.repeats
        seconds, _, model = seconds_of_visits(
            K, y, surrogate, repeats, VISITS_PASSES, kernel="precomputed", **options
        )
        published = PUBLISHED.get(surrogate)
        figures[title] = dict(
            seconds=seconds, gap=model.duality_gap_,
            oracle_error=float(model.history_["oracle_error"][-1]),
        )
        rows.append((
            title, f"{1e6 * seconds:.1f}", f"{model.duality_gap_:.1e}",
            f"{model.history_['oracle_error'][-1]:.1e}",
            f"{1e3 * published:,.0f}" if published else "",
            f"{1e-3 * published / seconds:.0f}" if published else "",
        ))
    head = ("surrogate and oracle", "µs a visit", "certified gap",
            "mean oracle gap of the last pass", "published code, µs a visit", "published / ours")
    title = f"A visit on glass ({len(y)} rankings of 6 items), {VISITS_PASSES} passes"
    return table(title, head, rows) + (
        "\nMeans over the passes, certificates apart. The figures of the code published with the "
        "M4N paper were\nmeasured on another machine; its max-min oracle is mirror prox with 20 "
        "iterations.\n"
    ), figures


def mean_call(scores, repeats, **options):
    """Means over the problems of a batch: CPU seconds, oracle gap, oracle calls."""
    max_min_permutation(scores[:1], **options)  # the first call pays for what later ones find
    runs = [cpu(lambda: max_min_permutation(scores, **options)) for _ in range(repeats)]
    _, lower, upper, calls = runs[0][1]
    seconds = np.median([seconds for seconds, _ in runs]) / len(scores)
    return float(seconds), float(np.mean(upper - lower)), float(np.mean(calls))


def oracle_curves(size):
    """{(set, passes): {oracle: rows of (seconds, gap, calls)}} at the scores of partial fits."""
    curves = {}
    for name in RANKING:
        K, y = training_part(name)
        for passes in PASSES:
            model = fit(K, y, "max_min", kernel="precomputed", max_iter=passes)
            n = min(size.n_blocks, len(y))
            chosen = np.random.RandomState(0).choice(len(y), n, replace=False)
            scores = model.decision_function(K[chosen])
            generation = [mean_call(scores, size.repeats, tol=tol) for tol in TOLERANCES]
            prox, expected = [], 0.0
            for n_iter in ITERATIONS:
                if n_iter > size.most_iterations:
                    break
                # slow ones get fewer blocks
                blocks = int(np.clip(size.level_seconds / max(expected, 1e-9), 3, n))
                prox.append(mean_call(scores[:blocks], 1, oracle="mirror_prox", n_iter=n_iter))
                expected = 2 * prox[-1][0]
                if prox[-1][1] <= ORACLE_GAP:
                    break
            curves[name, passes] = {"column_generation": generation, "mirror_prox": prox}
    return curves


def draw_oracles(curves, path):
    """One panel a set, one colour for each number of passes.

    A call to a tighter tolerance reaches the looser ones: where it took less, its seconds count.
    """
    figure = Figure(figsize=(9, 5.6), dpi=150, layout="constrained")
    figure.suptitle("Max-min oracle of permutations, mean over blocks", fontsize="medium")
    names = list(dict.fromkeys(name for name, _ in curves))
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for axes, name in zip(panels.flat, names):
        for (other, passes), oracles in curves.items():
            for oracle, rows in oracles.items() if other == name else ():
                seconds, gaps, _ = np.transpose(rows)
                seconds = in_order(seconds)
                axes.plot(
                    seconds, np.maximum(gaps, FLOOR), color=COLOURS[passes], markersize=4.5,
                    linewidth=1.5, **STYLES[oracle],
                )
        axes.set(xscale="log", yscale="log", title=name)
        axes.title.set_fontsize("medium")
        two_labels(axes)
        axes.grid(alpha=0.35, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0, 2].xaxis.set_tick_params(labelbottom=True)
    for axes in panels[:, 0]:
        axes.set_ylabel("oracle gap: upper less lower")
    for axes in (*panels[1, :2], panels[0, 2]):
        axes.set_xlabel("CPU seconds of a problem")
    legend = panels[1, 2]
    legend.set_axis_off()
    for oracle, style in STYLES.items():
        legend.plot([], [], color="0.3", label=oracle.replace("_", " "), **style)
    for passes, colour in COLOURS.items():
        legend.plot([], [], color=colour, label=f"scores of pass {passes}")
    legend.legend(frameon=False, loc="center")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def oracles(size):
    curves = oracle_curves(size)
    draw_oracles(curves, ROOT / "docs" / "results" / "images" / "permutation_oracles.png")
    rows, ratios, figures = [], [], []
    for (name, passes), found in curves.items():
        for oracle, setting, values in (
            *(("column generation", f"tol {tol:g}", v)
              for tol, v in zip(TOLERANCES, found["column_generation"])),
            *(("mirror prox", f"{n} iterations", v)
              for n, v in zip(ITERATIONS, found["mirror_prox"])),
        ):
            seconds, gap, calls = values
            figures.append(dict(
                set=name, passes=passes, oracle=oracle, setting=setting, seconds=seconds, gap=gap,
                calls=calls,
            ))
            rows.append((name, passes, oracle, setting, f"{gap:.1e}", f"{calls:.1f}",
                         f"{1e6 * seconds:.0f}", f"{1e6 * seconds / calls:.1f}"))
        ours = found["column_generation"][TOLERANCES.index(ORACLE_GAP)]
        theirs = found["mirror_prox"][-1]
        more = "" if theirs[1] <= ORACLE_GAP else "> "
        ratios.append((
            name, passes, f"{ours[2]:.1f}", f"{1e6 * ours[0]:.0f}", f"{more}{theirs[2]:g}",
            f"{theirs[1]:.1e}", f"{more}{1e6 * theirs[0]:.0f}", f"{more}{theirs[0] / ours[0]:.0f}",
        ))
    summary = table(
        f"Max-min oracles from a cold start to an oracle gap of {ORACLE_GAP:g}",
        ("set", "passes before", "column generation: assignments", "µs",
         "mirror prox: projections", "its gap", "µs", "ratio of times"), ratios,
    )
    summary += (
        "\n\"> \" stands where mirror prox had not got there after the last number of iterations "
        f"that was tried.\nMeans over {size.n_blocks} problems in one call, and over fewer, at "
        "least three, where a call is slow.\n\n"
        "![Oracle gap against seconds of a problem, of column generation and mirror prox]"
        "(images/permutation_oracles.png)\n\n"
        f"Gaps below {FLOOR:g} are drawn at {FLOOR:g}.\n"
    )
    detail = table(
        "Max-min oracles, means over the problems",
        ("set", "passes before", "oracle", "setting", "oracle gap", "calls", "µs", "µs a call"),
        rows,
    )
    return summary + "\n" + detail, figures


def synthetic(M, d, n=SYNTHETIC, seed=0):
    """Rankings of M items by noisy linear scores of d features."""
    rng = np.random.RandomState(seed)
    X = rng.randn(n, d)
    scores = X @ rng.randn(d, M) / np.sqrt(d) + 0.3 * rng.randn(n, M)
    return X, np.argsort(np.argsort(-scores, axis=1), axis=1)


def against_items(size):
    rows, figures = [], []
    for M in (M for M in ITEMS if M <= size.most_items):
        X, y = synthetic(M, 10)
        found = {}
        for surrogate in TITLES:
            if surrogate == "log" and M > CRF_ITEMS:
                continue
            repeats = 1 if surrogate == "max_min" and M > 10 else size.repeats
            found[surrogate], certificate, _ = seconds_of_visits(
                X, y, surrogate, repeats, SYNTHETIC_PASSES
            )
        figures.append(dict(items=M, max_min_certificate=certificate, **found))
        rows.append((
            M, *(f"{1e6 * found[s]:,.1f}" if s in found else "" for s in TITLES),
            f"{1e6 * certificate:,.0f}",
        ))
    head = ("M", *(f"{t}, µs a visit" for t in TITLES.values()), "M4N, µs a block of a certificate")
    return table(
        f"A visit against M: {SYNTHETIC} synthetic rankings, 10 features, linear, passes 1 to "
        f"{SYNTHETIC_PASSES}", head, rows,
    ) + (
        "\nThe CRF sums over the 2^M subsets of positions. Early passes are the dearest ones of "
        "M4N: while scores\nare small beside 1 / M its oracle mixes many permutations, and up to "
        "M = 32 an interior-point method\nfinds them. A certificate solves it more exactly than "
        "a visit.\n"
    ), figures


def against_features(size):
    rows, figures = [], []
    for d in FEATURES:
        X, y = synthetic(6, d)
        found = {
            surrogate: seconds_of_visits(X, y, surrogate, size.repeats, SYNTHETIC_PASSES)[0]
            for surrogate in TITLES
        }
        figures.append(dict(features=d, **found))
        rows.append((f"{d:,}", *(f"{1e6 * found[s]:,.1f}" for s in TITLES)))
    head = ("features", *(f"{t}, µs a visit" for t in TITLES.values()))
    return table(
        f"A visit against the number of features: {SYNTHETIC} synthetic rankings of 6 items, "
        "linear", head, rows,
    ), figures


def peak_bytes(X, y, surrogate):
    """Most bytes that arrays of a fit take at a time."""
    tracemalloc.start()
    try:
        fit(X, y, surrogate, max_iter=1)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def memory(size):
    rows, figures = [], []
    for M in (5, 10, 20, 40):
        if M > size.most_items:
            break
        cells, found = [], {}
        for surrogate in ("max_margin", "log", "max_min"):
            if surrogate == "log" and M > CRF_ITEMS:
                cells.append("")
                continue
            # oracles of large M take long, and their memory does not depend on the scores
            n = 400 if M <= 10 else 50
            few, many = (
                peak_bytes(*synthetic(M, 1, count), surrogate) for count in (n, 2 * n)
            )
            found[surrogate] = (many - few) / n
            cells.append(f"{found[surrogate]:,.0f} ({found[surrogate] / (8 * M * M):.1f})")
        figures.append(dict(items=M, bytes=found))
        rows.append((M, f"{8 * M * M:,}", *cells))
    head = ("M", "8 M^2", *TITLES.values())
    title = "Bytes an example, one feature, and in brackets as multiples of 8 M^2"
    return table(title, head, rows) + (
        "\nGrowth of the peak of a fit with the number of examples, between n and 2 n, by "
        "tracemalloc. The dual\npoint is 8 M^2, the CRF's scores are as much again, and the "
        "permutations that M4N keeps 64 M. What\nis left does not grow with M^2.\n"
    ), figures


SECTIONS = {
    "visits": visits,
    "oracles": oracles,
    "items": against_items,
    "features": against_features,
    "memory": memory,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    if any(load_ranking(name) is None for name in RANKING):
        parser.exit(1, "set FASTM4N_DATA to the folder that holds label_ranking/\n")
    size = QUICK if args.quick else FULL
    size.repeats = args.repeats or size.repeats
    where = environment("fastm4n")
    parts = [
        "# Permutations\n",
        f"Made by `python benchmarks/permutations.py{' --quick' if args.quick else ''}`: CPU "
        f"seconds of one\nthread, medians of {size.repeats} (fewer for the long ones).\n"
        f"{describe(where)}\n\n"
        "The sets of label ranking and their Gaussian kernels are those of "
        "[table 1](table1_ranking.md), the\ntraining part of its first split; alpha = 0.01, and "
        "blocks in random order.\n",
    ]
    figures = {"environment": where}
    with threadpool_limits(1):
        for name in args.only:
            start = time.perf_counter()
            text, figures[name] = SECTIONS[name](size)
            print(text, flush=True)
            print(f"({name}: {time.perf_counter() - start:.0f} s)\n", flush=True)
            parts.append(text)
    if args.only == list(SECTIONS):
        (ROOT / "docs" / "results" / "permutations.md").write_text("\n".join(parts))
        (RESULTS / "permutations.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
