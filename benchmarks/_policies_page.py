"""The page and the pictures of policies.py: curves, comparisons, tables."""

import itertools
import textwrap

import numpy as np
from _peers import ROOT, describe, table
from _pictures import two_labels
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from ocr import ALPHA, PYSTRUCT, PYSTRUCT_GAP

from fastm4n.solvers.blocks.schedule import GAP_EVERY

IMAGES = ROOT / "docs" / "results" / "images"

CACHE = 50
SAMPLINGS = ("uniform", "gap")
STEPS = ("line_search", "pairwise")
CACHES = (None, CACHE)
VARIANTS = tuple(itertools.product(SAMPLINGS, STEPS, CACHES))
SETS = ("OCR-small", "OCR-large")
HORSE_GRAPHS = 200
# the surrogate of each model
HORSES = {"horses, M3N": "max_margin", "horses, M4N": "max_min"}
ALPHAS = (0.1, 1.0, 10.0)  # times 1 / n
GAPS = (0.1, 0.01, 0.001)
# runs end here: nothing below is asked for
LOWEST = 1e-4
# what is asked of M3N: a 300th of pystruct's seconds; and of pairwise steps for M4N
SHARE_OF_PYSTRUCT = 300
MAX_MIN_RATIO = 10
MAX_MIN_SECONDS = (0.25, 0.5, 1.0, 2.0, 4.0)

# as in the paper's figure 5
COLOURS = {None: "#d55e00", CACHE: "#0072b2"}
LINES = {None: "-", CACHE: "--"}
MARKERS = {"line_search": "s", "pairwise": "o"}
STEP_TITLES = {"line_search": "Frank-Wolfe", "pairwise": "pairwise"}


# Curves


def crossing(run, gap, key):
    """Where a run first has that gap, on a line between points on logarithmic scales, or inf."""
    gaps, at = run["gaps"], run[key]
    for i, value in enumerate(gaps):
        if value <= gap:
            if i == 0:
                return at[0]
            share = np.log(gaps[i - 1] / gap) / np.log(gaps[i - 1] / value)
            return float(at[i - 1] * (at[i] / at[i - 1]) ** share)
    return np.inf


def gap_at(run, place, key):
    """The gap there, on the same lines."""
    return np.exp(np.interp(np.log(place), np.log(run[key]), np.log(run["gaps"])))


def chosen(runs, **values):
    return [run for run in runs if all(run[key] == value for key, value in values.items())]


def values_of(runs, key):
    """The values of all runs, as they come first."""
    return list(dict.fromkeys(run[key] for run in runs))


def median_crossing(runs, gap, key="calls"):
    return float(np.median([crossing(run, gap, key) for run in runs]))


def median_gap(runs, place, key):
    return float(np.median([gap_at(run, place, key) for run in runs]))


def last_common(runs, key):
    """How far all of the runs went."""
    return min(run[key][-1] for run in runs)


def curve(runs, key):
    """Places and median gaps, as far as all runs went."""
    first = max(run[key][0] for run in runs)
    places = np.geomspace(first, max(first, last_common(runs, key)), 60)
    return places, np.array([median_gap(runs, place, key) for place in places])


# Pictures


def style(axes):
    two_labels(axes)
    axes.tick_params(labelsize="small")
    axes.grid(alpha=0.35, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def picture(part, name=""):
    """File of the picture of a part, and of one set."""
    return f"policies_{part}{name.lower().replace('ocr-', '_').replace('horses, ', '_')}.png"


def draw_variants(runs, name, title, path, gap="duality gap"):
    """One column an alpha; gap against calls above, against seconds below, for each sampling."""
    alphas = values_of(runs, "times")
    figure = Figure(figsize=(10, 11.5), dpi=150, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(4, len(alphas), sharey=True, sharex="row")
    labels = {"calls": "oracle calls / n", "seconds": "CPU seconds"}
    rows = itertools.product(labels.items(), SAMPLINGS)
    for row, ((key, label), sampling) in zip(panels, rows, strict=True):
        for axes, times in zip(row, alphas, strict=True):
            for i, (step, cache) in enumerate(itertools.product(STEPS, CACHES)):
                found = chosen(
                    runs, set=name, times=times, sampling=sampling, step=step, cache=cache
                )
                places, gaps = curve(found, key)
                axes.plot(
                    places, gaps, color=COLOURS[cache], linestyle=LINES[cache],
                    marker=MARKERS[step], markersize=4.5, markerfacecolor="white",
                    markevery=(2 + i, 12), linewidth=1.3,
                )
            axes.set_xlabel(label, fontsize="small")
            if axes in panels[0]:
                axes.set_title(f"alpha = {times:g} / n", fontsize="medium")
        row[0].set_ylabel(f"{gap}, {sampling} sampling")
    for axes in panels.flat:  # when all that share an axis are drawn
        style(axes)
    handles = [
        Line2D([], [], color=colour, linestyle=LINES[cache], label="cache" if cache else "no cache")
        for cache, colour in COLOURS.items()
    ] + [
        Line2D([], [], color="0.3", linestyle="none", marker=marker, markerfacecolor="white",
               label=f"{STEP_TITLES[step]} steps")
        for step, marker in MARKERS.items()
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False,
        fontsize="small",
    )
    figure.savefig(path)


def draw_max_min(runs, path):
    figure = Figure(figsize=(6, 4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for accelerate, step in itertools.product((False, True), STEPS):
        axes.plot(
            *curve(chosen(runs, step=step, accelerate=accelerate), "seconds"),
            color="#009e73" if accelerate else "0.35", marker=MARKERS[step],
            markerfacecolor="white", markersize=5, markevery=(3, 9), linewidth=1.5,
            label=f"{STEP_TITLES[step]} steps, " + "not " * (not accelerate) + "accelerated",
        )
    style(axes)
    axes.set(xlabel="CPU seconds", ylabel="duality gap")
    axes.set_title(f"M4N, OCR-small, alpha = {ALPHA:g}, gap sampling", fontsize="medium")
    axes.legend(frameon=False, fontsize="small", loc="lower left")
    figure.savefig(path)


def draw(results):
    """All pictures."""
    IMAGES.mkdir(exist_ok=True)
    for part, title in (("paper", "not accelerated"), ("accelerated", "accelerated")):
        for name in SETS:
            draw_variants(
                results[part]["found"], name, f"M3N, {name}, {title}",
                IMAGES / picture(part, name),
            )
    for name in HORSES:
        draw_variants(
            results["horses"]["found"], name, f"{name}, not accelerated",
            IMAGES / picture("horses", name), "relative gap",
        )
    draw_max_min(results["max_min"]["found"], IMAGES / picture("max_min"))


# The page


def wrapped(text):
    return textwrap.fill(text, 99, break_long_words=False, break_on_hyphens=False)


def number(value):
    """Three digits, or - for what was not reached."""
    return f"{value:.3g}" if np.isfinite(value) else "-"


def ratio(above, below):
    return above / below if np.isfinite(above) and np.isfinite(below) else np.nan


# dimension: what the paper finds better, and that against what
FINDINGS = {
    "sampling": ("gap", "uniform"),
    "cache": (CACHE, None),
    "step": ("pairwise", "line_search"),
}
VALUES = {"sampling": SAMPLINGS, "step": STEPS, "cache": CACHES}
FINDING_TITLES = {
    "sampling": "(a) gap sampling against uniform",
    "cache": "(b) cache against none",
    "step": "(c) pairwise against Frank-Wolfe steps",
}
KEY_TITLES = {
    "calls": "oracle calls", "asked": "oracle calls, refreshes apart", "seconds": "CPU s"
}
# ratios below this count as failures: seeds alone move medians by a few per cent
FAILS = 0.95


def title_of(dimension, value):
    if dimension == "step":
        return f"{STEP_TITLES[value]} steps"
    return f"{value} sampling" if dimension == "sampling" else "cache" if value else "no cache"


def with_asked(runs, accelerate):
    """The runs with the calls of visits alone."""
    for run in runs:
        needs_gaps = run["sampling"] == "gap" or bool(run["cache"]) or accelerate
        run["asked"] = [
            calls - needs_gaps * ((passes - 1) // GAP_EVERY)
            for calls, passes in zip(run["calls"], run["passes"])
        ]
    return runs


def comparisons(runs, dimension, key):
    """(setting, ratios to each gap, ratio of gaps at equal key): other / better."""
    better, other = FINDINGS[dimension]
    rest = [name for name in FINDINGS if name != dimension]
    for name, times, first, second in itertools.product(
        values_of(runs, "set"), values_of(runs, "times"), *(VALUES[of] for of in rest)
    ):
        setting = {"set": name, "times": times, rest[0]: first, rest[1]: second}
        good, bad = (chosen(runs, **setting, **{dimension: of}) for of in (better, other))
        to_gaps = {
            gap: ratio(median_crossing(bad, gap, key), median_crossing(good, gap, key))
            for gap in GAPS
        }
        place = last_common(good + bad, key)
        words = f"{name}, alpha = {times:g} / n, " + ", ".join(
            title_of(of, setting[of]) for of in rest
        )
        yield words, to_gaps, ratio(median_gap(bad, place, key), median_gap(good, place, key))


def summary_cell(ratios):
    """How many are above one, and the lowest, the median and the highest."""
    ratios = [r for r in ratios if np.isfinite(r)]
    if not ratios:
        return "-"
    low, middle, high = (number(f(ratios)) for f in (min, np.median, max))
    return f"{sum(r > 1 for r in ratios)} of {len(ratios)}; {low} ... {middle} ... {high}"


def summary_table(runs, title):
    rows = []
    for dimension, finding in FINDING_TITLES.items():
        for key, of in KEY_TITLES.items():
            found = list(comparisons(runs, dimension, key))
            rows.append((
                finding, of,
                *(summary_cell([to_gaps[gap] for _, to_gaps, _ in found]) for gap in GAPS),
                summary_cell([last for *_, last in found]),
            ))
    head = ("finding", "measured by", *(f"to gap {gap:g}" for gap in GAPS), "gaps at equal cost")
    return table(title, head, rows)


def failures(runs, dimension):
    """Where the paper's choice needed more oracle calls, or had the larger gap, as a list."""
    lines = []
    for setting, to_gaps, last in comparisons(runs, dimension, "calls"):
        parts = [f"{number(r)} to gap {gap:g}" for gap, r in to_gaps.items() if r < FAILS]
        parts += [f"{number(last)} at equal calls"] if last < FAILS else []
        if parts:
            lines.append(f"- {setting}: {', '.join(parts)}")
    return lines


def failures_text(runs):
    lines = []
    for dimension, finding in FINDING_TITLES.items():
        found = failures(runs, dimension)
        n = 4 * len(values_of(runs, "set")) * len(values_of(runs, "times"))
        lines += [
            wrapped(
                f"{finding}: ratios of oracle calls, or of gaps at equal calls, below {FAILS:g} in "
                f"{len(found)} of {n} settings" + (":" if found else ".")
            ), "", *found, *([""] if found else []),
        ]
    return "\n".join(lines)


def idle_passes(runs):
    """Passes after which no cache of these runs had answered a visit yet."""
    return min(
        max((p for p, calls in zip(run["passes"], run["asked"]) if calls == p), default=0)
        for run in runs if run["cache"]
    )


def without_effect(paper, accelerated):
    """The (steps, cache) whose runs were the same, gap for gap, with and without acceleration."""
    found = []
    for step, cache in itertools.product(STEPS, CACHES):
        pairs = zip(*(chosen(runs, step=step, cache=cache) for runs in (paper, accelerated)))
        gaps = [(dict(zip(r["passes"], r["gaps"])) for r in pair) for pair in pairs]
        if all(a[p] == b[p] for a, b in gaps for p in a.keys() & b.keys()):
            found.append(f"{STEP_TITLES[step]} steps with {'a' if cache else 'no'} cache")
    return found


def numbers_table(runs, title):
    rows = []
    for name, times, (sampling, step, cache) in itertools.product(
        values_of(runs, "set"), values_of(runs, "times"), VARIANTS
    ):
        found = chosen(runs, set=name, times=times, sampling=sampling, step=step, cache=cache)
        ends = {
            key: np.median([run[key][-1] for run in found]) for key in ("passes", "calls", "gaps")
        }
        rows.append((
            name, f"{times:g} / n", sampling, STEP_TITLES[step], cache or "none",
            *(number(median_crossing(found, gap)) for gap in GAPS),
            *(number(median_crossing(found, gap, "seconds")) for gap in GAPS),
            f"{ends['calls']:.0f}", f"{ends['passes']:.0f}", f"{ends['gaps']:.1e}",
        ))
    head = ("set", "alpha", "sampling", "steps", "cache", *(f"calls / n to {g:g}" for g in GAPS),
            *(f"CPU s to {g:g}" for g in GAPS), "calls / n in all", "visits / n in all",
            "gap at the end")
    return table(title, head, rows)


def max_min_table(runs, size):
    """Gaps at equal seconds, and whether pairwise steps are as much better as is asked."""
    rows = []
    found = {
        (step, accelerate): chosen(runs, step=step, accelerate=accelerate)
        for accelerate in (False, True) for step in STEPS
    }
    end = last_common(runs, "seconds")
    for seconds in [s for s in MAX_MIN_SECONDS if s < end] + [end]:
        gaps = {key: median_gap(of, seconds, "seconds") for key, of in found.items()}
        rows.append((
            f"{seconds:.3g}", *(f"{gap:.1e}" for gap in gaps.values()),
            *(number(gaps["line_search", a] / gaps["pairwise", a]) for a in (False, True)),
            number(gaps["line_search", False] / gaps["pairwise", True]),
        ))
    head = ("CPU s", *(f"{STEP_TITLES[step]}{', accelerated' * a}" for step, a in found),
            "Frank-Wolfe / pairwise", "the same, both accelerated",
            "Frank-Wolfe / pairwise, accelerated")
    text = table(f"M4N on OCR-small, alpha = {ALPHA:g}: gaps at equal seconds", head, rows)
    last = [float(cell) for cell in rows[-1][-3:]]
    verdicts = ["reached" if value >= MAX_MIN_RATIO else "missed" for value in last]
    return text + "\n" + wrapped(
        f"Gap sampling, no cache, medians over {size['max_min_seeds']} seeds; refreshes count, and "
        f"runs end after {size['max_min_seconds']:g} s or at a gap of {LOWEST:g}. What is asked of "
        f"pairwise steps is a gap {MAX_MIN_RATIO} times smaller than that of Frank-Wolfe "
        f"steps at equal seconds. At {rows[-1][0]} s this is {verdicts[0]} without acceleration "
        f"(ratio {last[0]:.3g}), {verdicts[1]} where both are accelerated ({last[1]:.3g}), and "
        f"{verdicts[2]} by accelerated pairwise steps against Frank-Wolfe steps that are not "
        f"({last[2]:.3g})."
    ) + "\n"


def fits_table(rows, size):
    cells = []
    target = PYSTRUCT / SHARE_OF_PYSTRUCT
    for row in rows:
        is_first = row["tol"] == PYSTRUCT_GAP
        cells.append((
            STEP_TITLES[row["step"]], "yes" if row["accelerate"] else "no", f"{row['tol']:g}",
            f"{row['gap']:.1e}", row["passes"],
            ("" if row["reached"] else "> ") + f"{row['cpu']:.3f}",
            f"{min(row['times']):.3f} ... {max(row['times']):.3f}" if row["reached"] else "",
            f"{PYSTRUCT / row['cpu']:.0f}" if is_first else "",
        ))
    head = ("steps", "accelerated", "tol", "certified gap", "passes", "CPU s, whole fit",
            "least ... most", "pystruct (22 s) / ours")
    first = [row for row in rows if row["tol"] == PYSTRUCT_GAP]
    best = min(first, key=lambda row: row["cpu"])
    verdict = "met" if best["cpu"] <= target else "missed"
    text = table(f"M3N on OCR-small, alpha = {ALPHA:g}: whole fits", head, cells)
    return text + "\n" + wrapped(
        f"Gap sampling, no cache; CPU seconds of `SequenceTagger.fit`, preparation included, "
        f"medians of {max(len(row['times']) for row in rows)} seeds. \"> \" stands where "
        f"{size['fit_seconds']:g} s were not enough. pystruct is reported to take {PYSTRUCT:g} CPU "
        f"s for 100 passes, to a gap of {PYSTRUCT_GAP:g}, on another machine. A "
        f"{SHARE_OF_PYSTRUCT}th of that, {target:.3f} s, is {verdict} here: the best is "
        f"{best['cpu']:.3f} s, with {STEP_TITLES[best['step']]} steps, "
        f"{'' if best['accelerate'] else 'not '}accelerated."
    ) + "\n"


INTRO = """\
Made by `python benchmarks/policies.py`, from `benchmarks/results/policies.json`, after figures 3
and 5 of Osokin et al. (2016), *Minding the gaps for block Frank-Wolfe optimization of structured
SVMs*. Each part was measured on one thread of a machine of two cores that others use too:

{made}

OCR-small has 626 words, OCR-large 6,251. The model is M3N with the Hamming loss divided by the
length. There are eight variants: uniform or gap sampling, Frank-Wolfe or pairwise steps, no cache
or one of {cache} atoms a word (F = 0.25 and nu = 0.01, as in the paper).

{limits}

- **Oracle calls / n** (effective passes) are those of the visits, and one pass for each refresh of
  all gaps, every 10 passes of visits, where the method goes by them: gap sampling, a cache,
  acceleration. Visits that the cache answers call no oracle.
- **CPU seconds** (`time.process_time`) begin at w = 0 and are those of the passes and of these
  refreshes. Gaps that are computed for the curves alone are not in them, nor is the preparation
  of the data, which is the same for all. The gaps come from exact oracles.
- A refresh counts after the gap that it finds. Between points values are interpolated on
  logarithmic scales.
"""

HORSES_TEXT = """\
Photographs of the training part of `data/graphs/horses`, {graphs} graphs of superpixels, with two
labels and edges that draw their nodes to the same label: oracles are minimum cuts, one for M3N and
two for M4N, and start from the flow of the visit before. Features, costs and the middle alpha,
{alpha:g}, are those of `benchmarks/graphs.py`. Gaps are relative to the objective at w = 0.
"""

REMARK = """\
Ratios are other / finding, so that above 1 the finding holds. A cell has the number of settings (2
sets, 3 alphas, 4 choices of the rest) with a ratio above 1, out of those where both got to the
gap, and then the lowest, the median and the highest ratio. The last column has ratios of the gaps
after as many calls, or seconds, as all runs of both had. Where the findings fail:
"""


def idle_text(runs):
    return wrapped(
        f"Caches answered nothing in the first {idle_passes(runs)} passes: curves with a cache and "
        "without one part after them."
    ) + "\n"


def horses_texts(runs, size):
    title = "Horses, with minimum cuts"
    return [
        f"## {title}\n",
        HORSES_TEXT.format(graphs=HORSE_GRAPHS, alpha=values_of(runs, "times")[1] / HORSE_GRAPHS),
        wrapped(
            f"Medians over {size['horse_seeds']} seeds; runs end after {size['horse_seconds']:g} s."
        ) + "\n",
        *(
            f"![Relative gap against oracle calls and CPU seconds of eight variants, {name}]"
            f"(images/{picture('horses', name)})\n" for name in HORSES
        ),
        idle_text(runs),
        "#" + summary_table(runs, f"{title}: the paper's findings"),
        REMARK.replace("2\nsets", "2\nmodels"),
        failures_text(runs),
        "#" + numbers_table(runs, f"{title}: numbers"),
    ]


def page(results):
    found = {name: part["found"] for name, part in results.items()}
    size = results["paper"]["size"]
    for name in ("paper", "accelerated", "horses"):
        with_asked(found[name], name == "accelerated")
    made = "\n".join(f"- {name}: {describe(results[name]['run'])}" for name in results)
    limits = " and ".join(
        f"{plain:g} s on {name} ({fast:g} s where passes are accelerated)"
        for name, (plain, fast) in size["seconds"].items()
    )
    texts = ["# Policies: sampling, steps and cache\n", INTRO.format(
        made=made, cache=CACHE, limits=wrapped(
            f"Figures are medians over {size['seeds']} seeds. A run ends at a gap of {LOWEST:g}, "
            f"or at the first refresh after {limits}. That is far less time than the paper's runs "
            "had: \"-\" stands for gaps that the median run did not get to."
        ),
    )]
    for name, title in (
        ("paper", "Without acceleration, as in the paper"),
        ("accelerated", "With acceleration, beyond the paper"),
    ):
        runs = found[name]
        texts.append(f"## {title}\n")
        for of in SETS:
            texts.append(
                f"![Duality gap against oracle calls and CPU seconds of eight variants, {of}]"
                f"(images/{picture(name, of)})\n"
            )
        if name == "paper":
            texts.append(idle_text(runs))
        else:
            texts += [
                wrapped(
                    f"{words} were not accelerated: their runs are those of the section before, "
                    "gap for gap. The comparisons below that they are part of are of one method "
                    "with acceleration and one without."
                ) + "\n"
                for words in without_effect(found["paper"], runs)
            ]
        texts += [
            "#" + summary_table(runs, f"{title}: the paper's findings"), REMARK,
            failures_text(runs),
            "#" + numbers_table(runs, f"{title}: numbers"),
        ]
    texts += horses_texts(found["horses"], results["horses"]["size"])
    texts += [
        max_min_table(found["max_min"], results["max_min"]["size"]),
        "![Certified gap of M4N against CPU seconds, by steps and acceleration]"
        f"(images/{picture('max_min')})\n",
        fits_table(found["fits"], results["fits"]["size"]),
    ]
    return "\n".join(texts)
