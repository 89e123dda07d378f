"""One table of the regimes in which other packages, or our own earlier steps, were the faster ones.

    FASTM4N_DATA=... python benchmarks/regimes.py [--only NAME ...] [--quick] [--page]

runs the benchmark of each regime in a process of its own, one after another, keeps what they print
in benchmarks/results/regimes.json, writes their tables to docs/results/regimes.md and one line of each into
docs/results/speed.md. --only makes some of them again, --quick runs smaller ones, --page none.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, table, wrapped

FILE = RESULTS / "regimes.json"
BEGIN, END = "<!-- regimes -->", "<!-- end of regimes -->"


def tables(text):
    """The Markdown tables of a text: lists of rows, which are dicts by the head."""
    found, head = [], None
    for line in text.splitlines():
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            continue
        if head is None:
            head = cells
            found.append([])
        else:
            found[-1].append(dict(zip(head, cells, strict=True)))
    return found


def ratios(column):
    """Of a table with such a column: least, median, and how many there are."""
    def summary(text):
        found = [
            float(row[column]) for rows in tables(text) for row in rows
            if row.get(column, "-") not in ("-", "")]
        if len(found) == 1:
            return f"{found[0]:.2f}"
        return (f"{np.median(found):.2f} in the median of {len(found)}, least {min(found):.2f}, "
                f"largest {max(found):.2f}")
    return summary


def share_of_gaps(text):
    """Of `long_sequences.py`: cells that end at 1e-3 after 150 passes."""
    ends = []
    for rows in tables(text):
        for row in rows:
            last = row["auto: gap after 50 / 100 / 150 passes"].split("/")[-1].strip()
            ends.append(np.inf if last == "-" else float(last))
    ends = np.array(ends)
    return (f"{np.sum(ends <= 1e-3)} of {ends.size} at 1e-3 after 150 passes, median "
            f"{np.median(ends):.0e}, largest {ends.max():.0e}")


def share_of_scales(text):
    """Of `scales.py`: cells that come to 1e-3 within 300 passes."""
    cells = [
        row[name] for rows in tables(text) for row in rows
        for name in ("log", "max_margin", "max_min")]
    missed = [cell for cell in cells if cell.startswith("gap")]
    return f"{len(cells) - len(missed)} of {len(cells)} at 1e-3 within 300 passes" + (
        f", the others {', '.join(missed)}" if missed else "")


def seconds_of_ranker(text):
    """Of `label_ranker.py`: CPU seconds of all alphas, by the cost."""
    of = {}
    for rows in tables(text):
        for row in rows:
            of[row["cost"]] = of.get(row["cost"], 0.0) + float(row["seconds"])
    return ", ".join(f"{cost} {seconds:.1f} s" for cost, seconds in of.items())


def tokens(text):
    """Of `tagging.py`: tokens a second of strings in one call, and the ratio to CRFsuite."""
    rows = [row for row in tables(text)[0] if row["calls"] == "one call"]
    return ", ".join(
        f"{row['given']}: {row['fastm4n']} tokens/s, {row['ratio']} times CRFsuite's"
        for row in rows)


def kernels(text):
    """Of `kernel_machines.py`: the ratios to SVC of margins, by C and by what the cache holds."""
    of = {}
    for row in tables(text)[0]:
        if row["machine"] in ("max_margin", "max_min"):
            cache = "whole" if float(row["cache_size MiB"]) > 256 else "256 MiB"
            of.setdefault(f"C = {row['C']}, {cache}", []).append(float(row["CPU s / SVC's"]))
    return ", ".join(f"{name}: {min(found):.1f} to {max(found):.1f}" for name, found in of.items())


def small_alphas(text):
    """Of `ocr.py --only small`: how many came to 1e-4, in what time, and the other gaps."""
    rows = tables(text)[0]
    gaps = np.array([float(row["relative gap then"]) for row in rows])
    there = [float(row["CPU s"]) for row, gap in zip(rows, gaps, strict=True) if gap <= 1e-4]
    left = gaps[gaps > 1e-4]
    return f"{len(there)} of {len(rows)} at 1e-4" + (
        f" in {max(there):.1f} s at most" if there else "") + (
        f", the others at {left.min():.0e} to {left.max():.0e}" if left.size else "")


def paths(text):
    """Of `path.py --surrogates`: seconds by surrogate and method."""
    return ", ".join(f"{row['surrogate']} {row['method']}: {row['CPU s']} s"
                     for row in tables(text)[0])


def last_line(text):
    return text.strip().splitlines()[-1].rstrip(".")


# name: (regime, peer, what is told, script and arguments, more of them with --quick, summary)
REGIMES = {
    "dense": (
        "Crammer-Singer, dense", "LinearSVC", "peer / ours",
        ["speed.py", "--only", "linear_svc"], ["--repeats", "3"], ratios("LinearSVC / ours")),
    "logistic": (
        "multinomial logistic, dense", "the best of scikit-learn's solvers", "peer / ours",
        ["logistic.py"], ["--repeats", "3"], last_line),
    "sparse": (
        "Crammer-Singer, sparse", "LinearSVC", "peer / ours",
        ["crammer_singer.py", "--data", "unit", "--rows", "100000", "--columns", "50000",
         "--repeats", "1"],
        ["--rows", "20000", "--columns", "10000"], ratios("LinearSVC / ours")),
    "kernels": (
        "Gaussian kernel, one joint machine", "SVC, one-vs-one", "ours / SVC",
        ["kernel_machines.py", "--surrogates", "max_margin", "max_min"], ["--repeats", "1"],
        kernels),
    "small": (
        "sequences under small alphas", "gap asked for", "CPU s to 1e-4",
        ["ocr.py", "--only", "small", "--repeats", "1"], ["--quick"], small_alphas),
    "path": (
        "path of max-min sequences", "that of the CRF", "CPU s",
        ["path.py", "--surrogates"], [], paths),
    "long": (
        "few, long sequences", "gap asked for", "gaps", ["long_sequences.py"], ["--quick"],
        share_of_gaps),
    "scales": (
        "features out of scale", "gap asked for", "passes", ["scales.py"], [], share_of_scales),
    "ranker": (
        "max-min label ranker, five alphas", "time asked for", "CPU s",
        ["label_ranker.py", "--examples", "5000"], ["--examples", "500"], seconds_of_ranker),
    "momentum": (
        "sparse sequences, millions of weights", "the same without momentum", "without / auto",
        ["momentum.py"], ["--repeats", "1", "--every", "9"], ratios("without / auto")),
    "tagging": (
        "tags from strings", "python-crfsuite", "tokens a second", ["tagging.py"],
        ["--sentences", "1000"], tokens),
}


def run(name, quick):
    """What a benchmark prints, and how long it took."""
    _, _, _, command, more, _ = REGIMES[name]
    script = Path(__file__).with_name(command[0])
    start = time.time()
    done = subprocess.run(
        [sys.executable, script, *command[1:], *(more if quick else [])], capture_output=True,
        text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return {
        "text": done.stdout, "minutes": (time.time() - start) / 60,
        "command": " ".join([*command, *(more if quick else [])]),
        "run": environment("scipy", "scikit-learn")}


def write_pages(results):
    rows, pages = [], [
        "# Regimes where others were faster: all figures\n",
        "Made by `python benchmarks/regimes.py`. A summary, and what was tried and lost, is in",
        "[speed.md](speed.md#regimes).\n"]
    for name, (regime, peer, told, _, _, summary) in REGIMES.items():
        if name not in results:
            continue
        found = results[name]
        rows.append((
            f"[{regime}](regimes.md#{re.sub(r'[^a-z- ]', '', regime.lower()).replace(' ', '-')})",
            peer, told, summary(found["text"])))
        text = re.sub(r"^#+ ", "### ", found["text"].strip(), flags=re.MULTILINE)
        pages += [
            f"## {regime[0].upper()}{regime[1:]}\n", wrapped(
                f"`python benchmarks/{found['command']}`, {found['minutes']:.1f} minutes. "
                f"{describe(found['run'])}") + "\n", text + "\n"]
    (ROOT / "docs" / "results" / "regimes.md").write_text("\n".join(pages))
    text = table("Regimes", ("regime", "beside", "figure", "measured"), rows)
    page = ROOT / "docs" / "results" / "speed.md"
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    # the section has its heading before the mark
    text = text.partition("\n\n")[2]
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--only", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in [] if args.page else args.only:
        results[name] = run(name, args.quick)
        print(f"{name}, {results[name]['minutes']:.1f} minutes: "
              f"{REGIMES[name][-1](results[name]['text'])}", flush=True)
        FILE.write_text(json.dumps(results, indent=1) + "\n")
    write_pages(results)


if __name__ == "__main__":
    main()
