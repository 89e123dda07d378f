"""Minimum cuts: against PyMaxflow and scipy, and from the flow of nearly the same capacities.

    python benchmarks/min_cut.py [--quick] [--repeats 5]

prints the tables and writes them to docs/results/min_cut.md, and the figures to
benchmarks/results/min_cut.json; with --quick (no large grid, one repeat) it prints alone.
PyMaxflow (GPL) takes part where it is installed. Values of cuts are compared before the clock is
started. Times are CPU seconds of one thread, medians, the contestants taking turns.
"""

import argparse
import json
import tracemalloc
from functools import partial

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, medians, table
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.spatial import Delaunay

from fastm4n.inference import grid_edges, min_cut

try:
    import maxflow
except ImportError:
    maxflow = None

# most of a coupling's uniform capacities; scores of nodes are standard normal
COUPLINGS = (0.3, 1.0)
GRAPHS = {"planar, 500 nodes": None, "grid 50 x 50": 50, "grid 500 x 500": 500}
MOVE = 0.01
# scipy's capacities are integers: this many for one
UNITS = 10**4
TOLERANCE = 1e-9
LARGE = 10**5

INTRODUCTION = """# Minimum cuts

Made by `python benchmarks/min_cut.py`: CPU time of one thread in microseconds, medians of
{repeats}, contestants in turn in one run. {run}

`fastm4n.inference.min_cut` is called with arrays and gives sides, value and bound: its time has the
check of the arguments in it, and the certificate. The network of a small graph stays in memory from
one call to the next; where it is *new*, as calls take turns between two orders of the last two
edges, they build it each time. PyMaxflow is called with arrays, too
(`GraphFloat`, `add_edges`, `add_grid_tedges`, `get_grid_segments`): all of it, and `maxflow()`
alone. scipy's `maximum_flow` takes integers: {units} for one, the time of the network in CSR form
left out, and no grid of 500 x 500. Scores of nodes are standard normal, capacities of edges
uniform, the same both ways, up to the coupling. *Warm* is the same graph after the scores of all nodes have moved by a normal
number of {move}: from the flow of the last call, or on PyMaxflow's graph as it is, with the moves
added to it. The clock of a shared machine is not the same for all rows: compare within a row. Values
of cuts agree with PyMaxflow's: the largest relative difference was
{difference:.1g}.
"""


def problem(name, coupling, seed=0):
    """Number of nodes, edges, their capacities, and two vectors of scores of the nodes."""
    rng = np.random.default_rng(seed)
    width = GRAPHS[name]
    if width is None:
        n = 500
        corners = Delaunay(rng.random((n, 2))).simplices
        pairs = np.concatenate([corners[:, :2], corners[:, 1:], corners[:, ::2]])
        edges = np.unique(np.sort(pairs, axis=1), axis=0).astype(np.intc)
    else:
        n, edges = width * width, grid_edges((width, width))
    scores = rng.normal(size=n)
    moved = scores + MOVE * rng.normal(size=n)
    return n, edges, coupling * rng.random(len(edges)), (scores, moved)


def terminals(scores):
    return np.maximum(scores, 0.0), np.maximum(-scores, 0.0)


class Ours:
    """Calls from the flow of the other of two problems."""

    def __init__(self, edges, capacities, scores):
        self.edges, self.capacities = edges, capacities
        self.terminals = [terminals(one) for one in scores]
        self.flow, self.turn = None, 0

    def __call__(self):
        found = min_cut(
            *self.terminals[self.turn], self.edges, self.capacities, flow=self.flow,
            return_flow=True)
        self.flow = found[3]
        self.turn = 1 - self.turn
        return found


class Turns:
    """Calls for the edges and for the edges with the last two exchanged, in turn."""

    def __init__(self, source, sink, edges, capacities):
        self.terminals = source, sink
        order = np.arange(len(edges))
        order[-2:] = order[-2:][::-1].copy()
        self.graphs = [(edges, capacities), (edges[order], capacities[order])]

    def __call__(self):
        self.graphs.reverse()
        return min_cut(*self.terminals, *self.graphs[0])


class Peer:
    """PyMaxflow: a graph that is built and solved, or moved and solved again."""

    def __init__(self, n, edges, capacities, scores):
        self.n, self.edges, self.capacities = n, edges, capacities
        self.terminals = terminals(scores[0])
        move = scores[1] - scores[0]
        self.moves = [terminals(move), terminals(-move)]
        self.turn = 0

    def build(self):
        self.graph = maxflow.GraphFloat(self.n, len(self.edges))
        self.nodes = self.graph.add_nodes(self.n)
        self.graph.add_edges(self.edges[:, 0], self.edges[:, 1], self.capacities, self.capacities)
        self.graph.add_grid_tedges(self.nodes, *self.terminals)

    def whole(self):
        self.build()
        self.value = self.graph.maxflow()
        return self.graph.get_grid_segments(self.nodes)

    def move(self):
        self.graph.add_grid_tedges(self.nodes, *self.moves[self.turn])
        self.turn = 1 - self.turn
        self.graph.maxflow()
        return self.graph.get_grid_segments(self.nodes)


def scipy_network(n, edges, capacities, scores):
    """For `maximum_flow`: source n, sink n + 1."""
    nodes = np.arange(n)
    source, sink = terminals(scores)
    values = np.concatenate([source, sink, capacities, capacities])
    rows = np.concatenate([np.full(n, n), nodes, edges[:, 0], edges[:, 1]])
    columns = np.concatenate([nodes, np.full(n, n + 1), edges[:, 1], edges[:, 0]])
    return csr_array(
        (np.round(UNITS * values).astype(np.int32), (rows, columns)), shape=(n + 2, n + 2))


def run(name, coupling, repeats):
    n, edges, capacities, scores = problem(name, coupling)
    source, sink = terminals(scores[0])
    functions = {
        "all": partial(min_cut, source, sink, edges, capacities),
        "new": Turns(source, sink, edges, capacities),
        "warm": Ours(edges, capacities, scores),
    }
    if n <= LARGE:
        network = scipy_network(n, edges, capacities, scores[0])
        functions["scipy"] = partial(maximum_flow, network, n, n + 1)
    value, bound = functions["all"]()[1:3]
    warm = functions["warm"]
    warm()
    entry = {
        "graph": name, "coupling": coupling, "nodes": n, "edges": len(edges),
        "gap": (value - bound) / value, "difference": 0.0}
    assert entry["gap"] <= TOLERANCE
    if "scipy" in functions:
        assert abs(functions["scipy"]().flow_value / UNITS - value) <= 1e-2 * value
    if maxflow is not None:
        # maxflow() cannot be called twice for one graph: it is the whole without the building
        whole, moved, built = (Peer(n, edges, capacities, scores) for _ in range(3))
        whole.whole()
        moved.whole()
        entry["difference"] = abs(whole.value - value) / value
        assert entry["difference"] <= TOLERANCE
        functions |= {"peer": whole.whole, "peer build": built.build, "peer warm": moved.move}
    entry["seconds"] = medians(functions, repeats)
    # small graphs go through memory that is kept between calls
    if n + len(edges) > LARGE:
        tracemalloc.start()
        min_cut(source, sink, edges, capacities)
        entry["bytes"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return entry


def micro(entry, key):
    seconds = entry["seconds"].get(key)
    return "" if seconds is None else f"{1e6 * seconds:.0f}"


def page(results):
    peers = maxflow is not None
    head = ["graph", "coupling", "fastm4n", "new", "warm", "scipy"]
    head += ["PyMaxflow", "its maxflow() alone", "its warm"] if peers else []
    rows = []
    for entry in results["cuts"]:
        row = [entry["graph"], entry["coupling"], *(micro(entry, k) for k in ("all", "new", "warm"))]
        row.append(micro(entry, "scipy"))
        if peers:
            alone = entry["seconds"]["peer"] - entry["seconds"]["peer build"]
            row += [micro(entry, "peer"), f"{1e6 * alone:.0f}", micro(entry, "peer warm")]
        rows.append(row)
    intro = INTRODUCTION.format(
        repeats=results["repeats"], run=describe(results["run"]), units=UNITS, move=MOVE,
        difference=max(entry["difference"] for entry in results["cuts"]))
    intro += "".join(
        f"\nA call for the {entry['graph']} takes {entry['bytes'] / 2**20:.0f} MiB at most, "
        f"{entry['bytes'] / (entry['nodes'] + entry['edges']):.0f} bytes for each node and edge.\n"
        for entry in results["cuts"][-1:] if "bytes" in entry)
    return [intro, table("Microseconds", head, rows)]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no large grid; print alone")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (1 if args.quick else 5)
    graphs = [name for name in GRAPHS if not args.quick or GRAPHS[name] != 500]
    results = {"run": environment("scipy", "PyMaxflow"), "repeats": repeats}
    results["cuts"] = [run(name, coupling, repeats) for name in graphs for coupling in COUPLINGS]
    parts = page(results)
    print("\n".join(parts))
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "min_cut.json").write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "results" / "min_cut.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
