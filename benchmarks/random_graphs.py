"""Oracles and fits of labelled graphs against enumeration of all labellings.

    python benchmarks/random_graphs.py [--graphs 20000] [--fits 1000] [--seed 0] [--only forest ...]

Random graphs of up to 7 nodes: for each oracle and surrogate values, marginals, entropies and
certificates of `block_losses`, from `--graphs` graphs, and best labellings of `maximise`; values
that are no enumeration (max-min, the local polytope) against linear programs by HiGHS, on a part
of them. Then `--fits` whole fits of `GraphTagger` on a few tiny graphs, against Clarabel
(`pip install clarabel`) and, for "log", L-BFGS-B. Prints tables as Markdown; exits with 1 where
anything is violated. `--only` takes oracles, "maximise" or "fits"; `--json FILE` adds the rows to
a file, and `--page FILE ...` makes docs/results/random_graphs.md of such files.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from _peers import describe, environment
from _random_fits import SURROGATES as FITS
from _random_fits import run_fit
from _random_graphs import (
    Batch,
    adversary,
    all_labels,
    costs_of,
    game_value,
    local_value,
    log_partition,
    outside_local,
    phi,
    scores_of,
    tree_entropy,
)
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from fastm4n.inference._relaxations import spanning_forests
from fastm4n.inference.graph import maximise
from fastm4n.losses import block_losses
from fastm4n.outputs.graph_oracles import ORACLES
from fastm4n.surrogates import make_surrogate

# rounding, as a share of the largest sum of scores and costs
ROUNDING = 1e-12
# that of roof duality, which says what it adds
FAIR = 5e-12
# gaps above are counted
OPEN = 1e-6
# accuracy of HiGHS, likewise
HIGHS = 1e-8
BATCH = 50
# of all graphs, those that linear programs are solved for
PROGRAMS = {"max_min": 0.15, "max_margin": 0.05}

CLOSED_FORMS = ("min_cut", "roof")
KINDS = {
    "forest": dict(forest=True), "min_cut": dict(binary=True, attractive=True),
    "few_states": {}, "roof": dict(binary=True), "roof, exact": dict(binary=True),
    "decomposition": {},
}
SURROGATES = {
    "forest": ("max_margin", "max_min", "log"), "min_cut": ("max_margin", "max_min"),
    "few_states": ("max_margin", "max_min", "log"), "roof": ("max_margin", "max_min"),
    "roof, exact": ("max_margin", "max_min"), "decomposition": ("max_margin", "max_min", "log"),
}


class Tally:
    """What was found for one oracle and one surrogate."""

    def __init__(self, oracle, surrogate, seed):
        self.oracle, self.surrogate, self.seed = oracle, surrogate, seed
        self.graphs = self.programs = self.open = 0
        self.error = self.gap = 0.0
        self.violations, self.refused = [], {}

    def close(self, what, found, wanted, size, tol=ROUNDING):
        """found equals wanted, to a share of size."""
        error = float(np.max(np.abs(np.subtract(found, wanted)), initial=0.0)) / size
        self.error = max(self.error, error)
        if not error <= tol:
            self.fail(f"{what}: {found} is not {wanted}, error {error:.1e}")

    def at_most(self, what, low, high, size, tol=ROUNDING):
        if not (low - high) / size <= tol:
            self.fail(f"{what}: {low!r} > {high!r}, by {(low - high) / size:.1e}")

    def fail(self, what):
        self.violations.append(f"{self.oracle}, {self.surrogate}, {self.at}: {what}"[:600])

    def row(self):
        return {
            "oracle": self.oracle, "surrogate": self.surrogate, "graphs": self.graphs,
            "programs": self.programs, "error": float(self.error), "gap": float(self.gap),
            "open": int(self.open),
            "violations": self.violations}


def check(tally, graph, value, upper, slope, exact, program):
    """One graph's loss: value <= loss <= upper, the gradient slope."""
    surrogate, size = tally.surrogate, graph.size + 1e-300
    v = flat_scores(graph)
    n, k = graph.nodes.shape
    truth = scores_of(graph, graph.y[np.newaxis])[0]
    atom = slope + phi(graph, graph.y[np.newaxis], np.ones(1))[0]
    rows = atom[: n * graph.stride].reshape(n, -1)[:, :k]
    labels = all_labels(graph.choices)
    low, high = value + truth, upper + truth
    gap = (upper - value) / size
    tally.gap = max(tally.gap, gap)
    tally.open += gap > OPEN
    if tally.oracle in CLOSED_FORMS:
        tally.at_most("gap of a closed form", gap, 0.0, 1.0, FAIR)
    tally.at_most("lower and upper bound", value, upper, size)
    outside = outside_local(graph, atom)
    tally.at_most("atom outside of the local polytope", outside, 0.0, max(1.0, size), 1e-9)
    if surrogate == "log":
        total, p, labels, entropy = log_partition(graph)
        size = max(1.0, size)
        mu, tables = phi(graph, labels, p)
        tally.at_most("log-partition and its bound", total, high, size)
        if exact:
            tally.close("log-partition", [low, high], total, size)
            tally.close("marginals", atom, mu, size)
            # a difference of numbers that may be large
            tally.close("entropy", high - v @ atom, entropy, size, 50 * ROUNDING)
            return
        shares = spanning_forests(n, graph.edges)[1]
        tally.at_most(
            "reweighted value of the marginals and its bound",
            v @ mu + tree_entropy(graph, mu[: n * graph.stride].reshape(n, -1)[:, :k], tables,
                                  shares), high, size)
        found = atom[graph.places + n * graph.stride].reshape(-1, k, k)
        reached = v @ atom + tree_entropy(graph, rows, found, shares)
        tally.gap = max(tally.gap, (high - reached) / size)
        tally.at_most("reweighted value of the atom and its bound", reached, high, size, 1e-9)
        return
    score = scores_of(graph, labels)
    if surrogate == "max_margin":
        everything = score + costs_of(graph, labels)
        best = everything.max()
        tally.close("value at the atom", max(0.0, v @ atom + float(np.sum(
            graph.om[:, np.newaxis] * graph.cost[graph.y] * rows)) - truth), value, size, FAIR)
        if exact:
            tally.close("value", [low, high], best, size, FAIR)
            chosen = rows.argmax(axis=1)
            tally.close("atom", atom, phi(graph, chosen[np.newaxis], np.ones(1))[0],
                        max(1.0, np.abs(atom).max()))
            return
        tally.at_most("best labelling and the bound", best, high, size)
        if np.isin(rows, (0.0, 1.0)).all() and high - low <= ROUNDING * size:
            tally.close("value of a point of labels", high, best, size)
    else:
        tally.close(
            "value at the atom", max(0.0, v @ atom + adversary(graph, rows) - truth), value, size)
        least = sum(
            w * graph.cost[:, :c].min(axis=1)[labels[:, t]]
            for t, (w, c) in enumerate(zip(graph.om, graph.choices, strict=True)))
        tally.at_most("best labelling and the bound", (score + least).max(), high, size)
    if not program:
        return
    tally.programs += 1
    if tally.oracle == "roof" or surrogate == "max_margin":
        least, most = local_value(graph, surrogate == "max_min")
        if surrogate == "max_margin":
            tally.at_most("labelling and linear program", best, most, size)
        else:
            tally.at_most("game and its relaxation", game_value(graph)[0], most, size)
        tally.at_most("linear program and the bound", least, max(high, truth), size, HIGHS)
    else:
        least, most = game_value(graph)
        tally.at_most("game and the bound", least, max(high, truth), size)
        columns = np.array([phi(graph, row[np.newaxis], np.ones(1))[0] for row in labels]).T
        _, left = nnls(columns, atom)
        tally.at_most("distance of the atom from the labellings'", left, 0.0, 1.0, 1e-8)
    tally.at_most("lower bound and linear program", low, max(most, truth), size)
    tally.error = max(tally.error, (low - max(most, truth)) / size, (least - high) / size)


def flat_scores(graph):
    """Of one graph, those that tables are not made of left zero."""
    n, k = graph.nodes.shape
    rows = np.zeros((n, graph.stride))
    rows[:, :k] = graph.nodes
    return np.concatenate([rows.ravel(), graph.more])


def run(oracle, surrogate, n_graphs, seed):
    """The tally of n_graphs graphs."""
    tally = Tally(oracle, surrogate, seed)
    number = list(SURROGATES).index(oracle), SURROGATES[oracle].index(surrogate)
    batch_number = 0
    full = oracle == "decomposition" and surrogate == "log"
    while tally.graphs < n_graphs:
        rng = np.random.default_rng([seed, *number, batch_number])
        batch = Batch(rng, BATCH, full=full, **KINDS[oracle])
        more = {"exact": True} if oracle == "roof, exact" else {}
        outputs = ORACLES[oracle.split(",")[0]](**batch.arguments(), **more)
        loss = make_surrogate(surrogate, outputs)
        offsets = np.cumsum(np.append(0, outputs.layout.sizes()))
        # the second time from what the oracles have kept of other scores on the same graphs
        for visit in range(2):
            scores, graphs = batch.scores(rng)
            found = block_losses(loss, scores)
            for b, graph in enumerate(graphs):
                tally.at = f"seed {seed}, batch {batch_number}, visit {visit}, graph {b}"
                check(
                    tally, graph, found.value[b], found.upper[b],
                    found.gradient[offsets[b] : offsets[b + 1]],
                    oracle in ("forest", "min_cut", "few_states", "roof, exact")
                    and surrogate != "max_min",
                    rng.random() < PROGRAMS.get(surrogate, 0.0))
            tally.graphs += len(graphs)
        batch_number += 1
    return tally


def run_maximise(n_graphs, seed):
    """Tallies of `maximise` by each of its methods, on graphs with scores in hand."""
    names = {"forest": "forest", "min_cut": "min_cut", "exact": "few_states", "roof": "roof",
             "lp": "decomposition", "auto": "decomposition"}
    tallies = []
    for number, (method, oracle) in enumerate(names.items()):
        tally = Tally(f"method {method}", "best labelling", seed)
        batch_number = 0
        while tally.graphs < n_graphs:
            rng = np.random.default_rng([seed, 100 + number, batch_number])
            graphs = Batch(rng, BATCH, **KINDS[oracle]).scores(rng)[1]
            for b, graph in enumerate(graphs):
                tally.at = f"seed {seed}, batch {batch_number}, graph {b}"
                nodes = [row[:c] for row, c in zip(graph.nodes, graph.choices, strict=True)]
                tables = [
                    table[: graph.choices[i], : graph.choices[j]]
                    for (i, j), table in zip(graph.edges, graph.tables, strict=True)]
                found = maximise(nodes, graph.edges, tables, method=method)
                score = scores_of(graph, all_labels(graph.choices))
                size = graph.size
                tally.gap = max(tally.gap, (found.bound - found.value) / size)
                tally.close(
                    "score of the labels", found.value,
                    scores_of(graph, found.labels[np.newaxis])[0], size)
                tally.at_most("best labelling and the bound", score.max(), found.bound, size)
                if found.exact:
                    tally.close("value", found.value, score.max(), size, 2e-9)
                elif method != "lp" and found.bound - found.value > ROUNDING * size:
                    # where scores cancel, rounding alone keeps the bound from the value
                    tally.fail("not exact")
            tally.graphs += len(graphs)
            batch_number += 1
        tallies.append(tally)
    return tallies


def table(rows):
    lines = [
        "| oracle | surrogate | graphs | linear programs | largest error | largest gap "
        "| open gaps | violations |", "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        programs = row["programs"] or ""
        lines.append(
            f"| {row['oracle']} | {row['surrogate']} | {row['graphs']} | {programs} "
            f"| {row['error']:.0e} | {row['gap']:.0e} | {row['open'] or ''} | {len(row['violations'])} |")
    return "\n".join(lines)


def run_fits(n_fits, seed):
    """Tallies of whole fits, by oracle and surrogate."""
    pairs = [(oracle, name) for oracle, names in FITS.items() for name in names]
    tallies = []
    for number, (oracle, surrogate) in enumerate(pairs):
        tally = Tally(f"fits, {oracle}", surrogate, seed)
        count = n_fits // len(pairs) + (number < n_fits % len(pairs))
        trial = 0
        while tally.graphs < count:
            tally.at = f"seed {seed}, trial {trial}"
            rng = np.random.default_rng([seed, 200 + number, trial])
            try:
                run_fit(tally, oracle, surrogate, rng)
            except ValueError as error:
                tally.refused[str(error)[:200]] = tally.at
            trial += 1
        tallies.append(tally)
    return tallies


def page(rows, run):
    """docs/results/random_graphs.md."""
    counted = sum(row["graphs"] for row in rows if not row["oracle"].startswith("fits"))
    fits = sum(row["graphs"] for row in rows if row["oracle"].startswith("fits"))
    return f"""# Random graphs

Made by `benchmarks/random_graphs.py`, in pieces that `--json` kept and `--page` put together:
{counted} random graphs of up to 7 nodes and 2 to 4 labels, and {fits} fits of `GraphTagger` on a few tiny graphs each. {run}

Graphs have all kinds of pairs, scores of an edge's own or shared by type, weights of nodes and
nodes of fewer labels, 0-1 and asymmetric costs, scores of 1e-3 to 1e6 and whole numbers with ties;
each is asked for twice, with other scores, so that oracles start from what they have kept.
Everything is compared with enumeration of all labellings: values of "max_margin" and
log-partitions, marginals and entropies of "log". Values of "max_min" and those over the local
polytope lie between the bounds that a dual solution of HiGHS gives, on the graphs counted under
*linear programs*; atoms lie in the polytope, and have the value that is said. *Largest error* is a
share of the largest score that a labelling could have, and *largest gap* is that of upper and lower
bound; *open gaps* are above {OPEN:.0e}: column generation that ended at its limit of calls, and
bounds by linear programs; of "log" over "decomposition" the gap is that to the reweighted value of
the marginals. Both bounds hold all the same. "Best labelling" is
`fastm4n.inference.graph.maximise`.

Fits have all kinds of `pairwise`, l2 and elastic net penalties and bounds, and random `alpha`. The optimum is that of
Clarabel, of the program with all labellings, or all of the local polytope; of "log" that of
L-BFGS-B. It lies between `dual_objective_` and `primal_objective_`, and the weights are no further
from it than `duality_gap_`: *largest error* is how far that is missed, a share of the objective.
The tree-reweighted optimum of "log" over "decomposition" has no such solver here: its bounds are
held to the exact objective and to those at the optimum of that. *Largest gap* is that of the fit;
`tol` is 1e-5 to 1e-2, and 2000 passes are made at most.

{table(rows)}

```sh
pip install clarabel
python benchmarks/random_graphs.py --graphs 20000 --fits 1000 --seed 0
```
"""


def rows_of(args):
    """Rows of what is asked for, printing violations as they come."""
    wanted = args.only or [*SURROGATES, "maximise", "fits"]
    rows = []
    for name in wanted:
        if name == "fits":
            tallies = run_fits(args.fits, args.seed)
        elif name == "maximise":
            tallies = run_maximise(args.graphs, args.seed)
        else:
            tallies = [run(name, each, args.graphs, args.seed) for each in SURROGATES[name]]
        for tally in tallies:
            rows.append(tally.row())
            for what in tally.violations:
                print(what, file=sys.stderr)
            for what, where in tally.refused.items():
                print(f"refused, {where}: {what}", file=sys.stderr)
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=20000)
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=[*SURROGATES, "maximise", "fits"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, nargs="+")
    args = parser.parse_args()
    if args.page:
        rows = [row for path in args.page for row in json.loads(path.read_text())]
        run_by = describe(environment("scipy", "clarabel"))
        (Path(__file__).parent.parent / "docs" / "results" / "random_graphs.md").write_text(page(rows, run_by))
    else:
        with threadpool_limits(1):
            rows = rows_of(args)
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return int(any(row["violations"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
