"""Roof duality of graphs of two labels: against thinqpbo and HiGHS.

    python benchmarks/roof.py [--repeats 7] [--quick]

prints the table and writes it to docs/results/roof.md, and the figures to benchmarks/results/roof.json;
with --quick (one repeat) it prints alone. Every bound is compared before the clock is started, and
the number of nodes that are left. thinqpbo (GPL) stands beside fastm4n here, and is no part of it;
without it its columns are empty.
"""

import argparse
import itertools
import json
import time

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, has_package, medians, table
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.spatial import Delaunay
from threadpoolctl import threadpool_limits

from fastm4n.inference import grid_edges
from fastm4n.inference.graph import make_problem
from fastm4n.inference.roof import roof_best, roof_duality

INTRODUCTION = """# Roof duality

Made by `python benchmarks/roof.py`: CPU time of one thread in microseconds, medians of {repeats},
contestants in turn in one run. {run}

Scores are normal deviates, those of nodes times *scale*: edges of both signs, cycles that cannot
please them all. *Left* are the nodes of which the relaxation leaves the label open. *Solve* is a
call on a graph that the solver holds, to the bound and the labels that are proven, as many as ties
allow. fastm4n takes its scores as they are and builds its network in that time; thinqpbo has built
it before, anew for each call, and is timed for `solve` alone, and with
`compute_weak_persistencies`, which sees to ties. *In all* is from NumPy arrays to the bound and
these labels, by `roof_duality` with `decode=False`, and by thinqpbo's methods, called for each node
and edge. *Decoded* is `roof_duality` with labels of the nodes that are left as well. HiGHS has the
linear program over the local polytope. Bounds, and numbers of nodes left, agree. Ratios are of
fastm4n's time to that of thinqpbo, `solve` alone or in all.
"""

TOLERANCE = 1e-9
# calls of a solve between two looks at the clock
SECONDS = 0.05


def complete(n):
    return np.array(list(itertools.combinations(range(n), 2)))


def planar(n):
    """Delaunay's triangulation of random points."""
    triangles = Delaunay(np.random.default_rng(0).random((n, 2))).simplices
    pairs = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])
    return np.unique(np.sort(pairs, axis=1), axis=0)


GRAPHS = {
    "complete, 14 nodes": complete(14),
    "complete, 30 nodes": complete(30),
    "grid 10 x 10": grid_edges((10, 10)),
    "grid 50 x 50": grid_edges((50, 50)),
    "planar, 500 nodes": planar(500),
}
SCALES = (1.0, 4.0)


def build_thinqpbo(nodes, edges, tables):
    import thinqpbo

    graph = thinqpbo.QPBODouble(len(nodes), len(edges))
    graph.add_node(len(nodes))
    for i, (s0, s1) in enumerate((-nodes).tolist()):
        graph.add_unary_term(i, s0, s1)
    scores = (-tables.reshape(-1, 4)).tolist()
    for (i, j), numbers in zip(edges.tolist(), scores, strict=True):
        graph.add_pairwise_term(i, j, *numbers)
    return graph


def thinqpbo_in_all(nodes, edges, tables):
    graph = build_thinqpbo(nodes, edges, tables)
    graph.solve()
    graph.compute_weak_persistencies()
    labels = [graph.get_label(i) for i in range(len(nodes))]
    return -0.5 * graph.compute_twice_lower_bound(), labels


def thinqpbo_solve(nodes, edges, tables):
    """Median CPU seconds of `solve`, and with ties seen to: each call needs a graph of its own."""
    times = []
    end = time.process_time() + SECONDS
    while len(times) < 3 or time.process_time() < end:
        graph = build_thinqpbo(nodes, edges, tables)
        start = time.process_time()
        graph.solve()
        solved = time.process_time()
        graph.compute_weak_persistencies()
        # what looking at the clock takes is no part of it
        ended, again = time.process_time(), time.process_time()
        clock = again - ended
        times.append((solved - start - clock, ended - start - 2.0 * clock))
    return dict(zip(("thinqpbo_solve", "thinqpbo_ties"), np.median(times, axis=0), strict=True))


def by_highs(nodes, edges, tables):
    """The maximum over the local polytope as a linear program in p and q."""
    n, m = len(nodes), len(edges)
    i, j = edges.T
    u = nodes[:, 1] - nodes[:, 0]
    np.add.at(u, i, tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(u, j, tables[:, 0, 1] - tables[:, 0, 0])
    P = tables[:, 1, 1] - tables[:, 1, 0] - tables[:, 0, 1] + tables[:, 0, 0]
    e = np.arange(m)
    rows = np.concatenate([e, e, m + e, m + e, 2 * m + e, 2 * m + e, 2 * m + e])
    columns = np.concatenate([n + e, i, n + e, j, i, j, n + e])
    values = np.repeat([1.0, -1.0, 1.0, -1.0, 1.0, 1.0, -1.0], m)
    A = coo_array((values, (rows, columns)), shape=(3 * m, n + m)).tocsr()
    found = linprog(
        -np.concatenate([u, P]), A_ub=A, b_ub=np.repeat([0.0, 0.0, 1.0], m),
        bounds=[(0.0, 1.0)] * (n + m), method="highs")
    return nodes[:, 0].sum() + tables[:, 0, 0].sum() - found.fun


def run(name, scale, repeats):
    """One row: figures in seconds."""
    rng = np.random.default_rng(1)
    edges = GRAPHS[name]
    nodes = scale * rng.normal(size=(edges.max() + 1, 2))
    tables = rng.normal(size=(len(edges), 2, 2))
    given = nodes, edges, tables
    found = roof_duality(*given)
    close = TOLERANCE * abs(found.bound)
    if abs(by_highs(*given) - found.bound) > close:
        raise RuntimeError(f"{name}: HiGHS has another maximum.")
    problem = make_problem(*given)
    calls = max(2, int(SECONDS / medians({"": lambda: roof_best(problem)}, 1, 0.0)[""]))
    contestants = {
        "all": lambda: roof_duality(*given, decode=False),
        "decoded": lambda: roof_duality(*given),
        "solve": lambda: roof_best(problem, calls, decode=False),
        "highs": lambda: by_highs(*given),
    }
    row = {"graph": name, "scale": scale, "left": found.n_left}
    peer = has_package("thinqpbo")
    if peer:
        bound, labels = thinqpbo_in_all(*given)
        if abs(bound - found.bound) > close or labels.count(-1) != found.n_left:
            raise RuntimeError(f"{name}: thinqpbo has another maximum, or leaves other nodes.")
        contestants["thinqpbo_all"] = lambda: thinqpbo_in_all(*given)
    turns = [
        medians(contestants, 1, SECONDS) | (thinqpbo_solve(*given) if peer else {})
        for _ in range(repeats)]
    row.update({key: float(np.median([turn[key] for turn in turns])) for key in turns[0]})
    row["solve"] /= calls
    return row


def page(results):
    head = [
        "graph", "scale", "left", "solve", "thinqpbo", "with ties", "ratio", "in all", "thinqpbo",
        "ratio", "decoded", "HiGHS"]

    def of(row, name):
        return f"{1e6 * row[name]:.1f}" if name in row else ""

    def ratio(row, name):
        return f"{row[name] / row['thinqpbo_' + name]:.2f}" if "thinqpbo_" + name in row else ""

    rows = [[
        row["graph"], row["scale"], row["left"], of(row, "solve"), of(row, "thinqpbo_solve"),
        of(row, "thinqpbo_ties"), ratio(row, "solve"), of(row, "all"), of(row, "thinqpbo_all"),
        ratio(row, "all"), of(row, "decoded"), of(row, "highs")] for row in results["rows"]]
    intro = INTRODUCTION.format(repeats=results["repeats"], run=describe(results["run"]))
    return intro + "\n" + table("Microseconds", head, rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one repeat; print alone")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (1 if args.quick else 7)
    with threadpool_limits(1):
        rows = [run(name, scale, repeats) for name in GRAPHS for scale in SCALES]
    results = {"run": environment("scipy", "thinqpbo"), "repeats": repeats, "rows": rows}
    text = page(results)
    print(text)
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "roof.json").write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "results" / "roof.md").write_text(text)


if __name__ == "__main__":
    main()
