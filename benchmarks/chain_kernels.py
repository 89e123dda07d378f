"""Viterbi and forward-backward on chains: against hmmlearn, NumPy and the processor's limit.

    python benchmarks/chain_kernels.py [--labels 5 26 64] [--lengths 10 100 1000 100000]

prints each section as a Markdown table; if nothing is left out it writes them to
docs/results/chain_kernels.md, and the figures to benchmarks/results/chain_kernels.json. A call has
about 100,000 positions in sequences of equal length. fastm4n takes them as one batch; hmmlearn's
loops, C++ behind pybind11, take one sequence, and are called for one after another; the NumPy
reference gets as many as fill half a second. All have the same scores, and their results are
compared before the clock is started. Times are CPU seconds of one thread, medians, the
contestants taking turns.
"""

import argparse
import json
import time

import numpy as np
from _peers import (
    RESULTS,
    ROOT,
    HMMLearn,
    cpu,
    describe,
    environment,
    has_package,
    medians,
    processor_peak,
    table,
)
from threadpoolctl import threadpool_limits

from fastm4n import reference
from fastm4n.inference import sum_product, viterbi

LABELS, LENGTHS = (5, 26, 64), (10, 100, 1000, 100_000)
POSITIONS = 100_000
REFERENCE_SECONDS = 0.5
# of the three products of R x R numbers that each step of forward-backward takes: forward,
# backward, and the sum of the edge marginals
PRODUCTS = {"viterbi": 1, "sum_product": 3}

INTRODUCTION = """# Kernels on chains

Made by `python benchmarks/chain_kernels.py`: CPU seconds of one thread, medians of {repeats},
contestants in turn in one run. {run}

A call has about 100,000 positions, in sequences of length T that fastm4n takes as one batch and the
others one by one. hmmlearn's scaled loops are given exp(unary); the time of these exponentials is
part of ours and none of theirs. hmmlearn and the reference have float64 only. A share of the peak
counts R^2 additions with a maximum for each step of Viterbi, and 3 R^2 multiply-adds for each of
forward-backward (forward, backward, edges), and nothing else: no exponentials, scaling, tracing
back. The peak is that of a C loop over registers, compiled by the script for this processor.
"""


def problem(R, T, seed=0):
    """unary (n T, R), pairwise (R, R), lengths (n,): transitions that are probabilities."""
    rng = np.random.RandomState(seed)
    n = max(1, POSITIONS // T)
    pairwise = rng.randn(R, R)
    pairwise -= np.log(np.exp(pairwise).sum(axis=1, keepdims=True))
    return rng.randn(n * T, R), pairwise, np.full(n, T)


def reference_seconds(function, unary, pairwise, T):
    """CPU seconds a position of the reference, the length of the first sequence, its result."""
    # a long sequence is cut: its cost is linear in the length
    T = min(T, 2000)
    seconds, first = cpu(lambda: function(unary[:T], pairwise))
    end = T
    start = time.process_time()
    while end + T <= len(unary) and time.process_time() - start < REFERENCE_SECONDS:
        function(unary[end : end + T], pairwise)
        end += T
    return (seconds + time.process_time() - start) / end, T, first


def check(ours, peer, name):
    """Stop if two contestants do not solve the same problem."""
    np.testing.assert_allclose(ours, peer, rtol=1e-6, atol=1e-6, err_msg=name)


def run_viterbi(R, T, repeats):
    unary, pairwise, lengths = problem(R, T)
    single = unary.astype(np.float32), pairwise.astype(np.float32)
    paths, scores = viterbi(unary, pairwise, lengths=lengths)
    functions = {
        "float64": lambda: viterbi(unary, pairwise, lengths=lengths),
        "float32": lambda: viterbi(*single, lengths=lengths),
    }
    if has_package("hmmlearn"):
        peer = HMMLearn(pairwise, lengths)
        their_scores, their_paths = zip(*peer.viterbi(unary))
        check(scores, np.array(their_scores) + np.log(R), "hmmlearn's scores")
        check(paths, np.concatenate(their_paths), "hmmlearn's paths")
        functions["hmmlearn"] = lambda: peer.viterbi(unary)
    speeds = {name: len(unary) / value for name, value in medians(functions, repeats).items()}
    seconds, cut, (path, score) = reference_seconds(reference.viterbi, unary, pairwise, T)
    check(viterbi(unary[:cut], pairwise)[1], score, "the reference's score")
    check(viterbi(unary[:cut], pairwise)[0], path, "the reference's path")
    return {**speeds, "numpy": 1 / seconds}


def run_sum_product(R, T, repeats):
    unary, pairwise, lengths = problem(R, T)
    single = unary.astype(np.float32), pairwise.astype(np.float32)
    nodes, edges, log_partition = sum_product(unary, pairwise, lengths=lengths, edges="sum")
    functions = {
        "float64": lambda: sum_product(unary, pairwise, lengths=lengths, edges="sum"),
        "float32": lambda: sum_product(*single, lengths=lengths, edges="sum"),
    }
    if has_package("hmmlearn"):
        peer = HMMLearn(pairwise, lengths)
        # its scaled loops take probabilities: the exponentials, which are part of our time, are
        # none of its
        emissions = np.exp(unary)
        their_log, their_nodes, their_edges = zip(*peer.forward_backward(emissions))
        check(log_partition, np.array(their_log) + np.log(R), "hmmlearn's log-partitions")
        check(nodes, np.concatenate(their_nodes), "hmmlearn's node marginals")
        check(edges, np.array(their_edges), "hmmlearn's edge marginals")
        functions["hmmlearn, forward"] = lambda: peer.forward(emissions)
        functions["hmmlearn"] = lambda: peer.forward_backward(emissions)
    speeds = {name: len(unary) / value for name, value in medians(functions, repeats).items()}
    seconds, cut, (node, edge, log_z) = reference_seconds(reference.sum_product, unary, pairwise, T)
    ours = sum_product(unary[:cut], pairwise, edges="sum")
    check(ours[2], log_z, "the reference's log-partition")
    check(ours[0], node, "the reference's node marginals")
    check(ours[1], edge.sum(axis=0), "the reference's edge marginals")
    return {**speeds, "numpy": 1 / seconds}


def run_single(R, T, repeats):
    """Microseconds of one call with one sequence."""
    unary, pairwise, _ = problem(R, T)
    unary = unary[:T]
    functions = {
        "viterbi": lambda: viterbi(unary, pairwise),
        "sum_product": lambda: sum_product(unary, pairwise, edges="sum"),
    }
    if has_package("hmmlearn"):
        peer, emissions = HMMLearn(pairwise, np.array([T])), np.exp(unary)
        functions |= {
            "hmmlearn viterbi": lambda: peer.viterbi(unary),
            "hmmlearn forward_scaling": lambda: peer.forward(emissions),
            "hmmlearn forward-backward, scaled": lambda: peer.forward_backward(emissions),
            "hmmlearn forward and backward, logarithms": lambda: peer.forward_backward_log(unary),
        }
    return {name: value * 1e6 for name, value in medians(functions, repeats).items()}


def millions(figures, name):
    return f"{figures[name] / 1e6:.3g}" if name in figures else "-"


def ratio(figures, name, ours="float64"):
    return f"{figures[ours] / figures[name]:.1f}" if name in figures else "-"


def share(figures, peak, kind, R, T, bits):
    """Share of the processor's peak, counting the products of R x R numbers alone."""
    if peak is None:
        return "-"
    operation = "add_max" if kind == "viterbi" else "multiply_add"
    steps = figures[f"float{bits}"] * (T - 1) / T
    return f"{100 * PRODUCTS[kind] * R * R * steps / peak[f'{operation}_{bits}']:.0f} %"


def page(results):
    peak = results["peak"]
    texts = {}
    for kind, title in (
        ("viterbi", "Viterbi: paths and scores"),
        ("sum_product", "Forward-backward: node marginals, summed edge marginals, log-partitions"),
    ):
        extra = ("hmmlearn, forward",) if kind == "sum_product" else ()
        rows = []
        for entry in results[kind]:
            R, T, figures = entry["R"], entry["T"], entry["speed"]
            peers = ["hmmlearn", *extra, "numpy"]
            rows.append((
                R, f"{T:,}", millions(figures, "float64"), millions(figures, "float32"),
                *(millions(figures, name) for name in peers),
                *(ratio(figures, name) for name in peers), ratio(figures, "hmmlearn", "float32"),
                *(share(figures, peak, kind, R, T, bits) for bits in (64, 32)),
            ))
        names = ["hmmlearn", *(["hmmlearn, its forward alone"] if extra else []), "NumPy reference"]
        head = ("R", "T", "float64", "float32", *names, *(f"float64 / {name}" for name in names),
                "float32 / hmmlearn", "share of peak, float64", "share of peak, float32")
        texts[kind] = table(title + " (million positions a second)", head, rows)
    rows, head = [], None
    for entry in results["single"]:
        head = ("R", *entry["microseconds"])
        rows.append((entry["R"], *(f"{value:.0f}" for value in entry["microseconds"].values())))
    texts["single"] = table("One sequence of 100 positions a call (microseconds)", head, rows)
    if peak is not None:
        rows = [
            (name, f"{peak[f'{key}_64'] / 1e9:.1f}", f"{peak[f'{key}_32'] / 1e9:.1f}")
            for name, key in (("multiply-add", "multiply_add"), ("add, then max", "add_max"))
        ]
        texts["peak"] = table(
            "The processor's peak (10^9 a second, one core)", ("operation", "float64", "float32"),
            rows,
        )
    intro = INTRODUCTION.format(repeats=results["repeats"], run=describe(results["run"]))
    return [intro, *texts.values()]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", nargs="+", type=int, default=list(LABELS))
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    results = {
        "run": environment("hmmlearn"), "repeats": args.repeats,
        "peak": processor_peak(), "viterbi": [], "sum_product": [], "single": [],
    }
    with threadpool_limits(1):
        for R in args.labels:
            for T in args.lengths:
                for kind, function in (("viterbi", run_viterbi), ("sum_product", run_sum_product)):
                    results[kind].append({"R": R, "T": T, "speed": function(R, T, args.repeats)})
            results["single"].append({"R": R, "microseconds": run_single(R, 100, args.repeats)})
    parts = page(results)
    print("\n".join(parts))
    if tuple(args.labels) == LABELS and tuple(args.lengths) == LENGTHS:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "chain_kernels.json").write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "results" / "chain_kernels.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
