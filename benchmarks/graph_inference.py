"""Best labellings of graphs of many cycles: against PyMaxflow, thinqpbo, toulbar2 and HiGHS.

    python benchmarks/graph_inference.py [--repeats 3] [--quick]

prints each section as a Markdown table and writes them to docs/results/graph_inference.md, and the
figures to benchmarks/results/graph_inference.json; with --quick (small graphs alone) it prints.
Peers that are not installed are left out. PyMaxflow and thinqpbo (GPL) stand beside fastm4n here,
and are no part of it.
"""

import argparse
import json
import time
from functools import partial

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, has_package, table
from graph_kernels import linear_program, toulbar2
from threadpoolctl import threadpool_limits

from fastm4n.inference import grid_edges
from fastm4n.inference.graph import maximise

INTRODUCTION = """# Best labellings of graphs with cycles

Made by `python benchmarks/graph_inference.py`: CPU time of one thread, medians of {repeats}, all
contestants of an instance in turn. {run}

*Value* is the score of the labelling, larger being better. *Bound* is a number that no labelling
exceeds, if the contestant has one. Node scores are normal deviates, times *size* where that is
given. An edge of the first section loses its weight times the distance of its labels, up to 1
(Potts) or to the distance in the row. *Seconds* include the time to hand over a problem. QPBO-I is the exception: its seconds are
those of `solve` and of `improve` with labels 0 at first. `improve` is called until ten calls in a
row gain nothing, or for {seconds:g} seconds. "auto, 2 s" stops after two seconds on the clock.
toulbar2 minimises integers, the scores times 10^4. The linear program is over the local polytope.
"""

# of QPBO-I
MOST_SECONDS = 5.0


# ------------------------------------------------------------------------- contestants


def ours(nodes, edges, scores, **options):
    found = maximise(nodes, edges, scores, **options)
    return found.labels, found.bound


def expansion_of_grid(nodes, edges, table):
    """PyMaxflow's expansion, of a square grid and one table for all its edges."""
    from maxflow.fastmin import aexpansion_grid

    n, k = nodes.shape
    side = int(round(np.sqrt(n)))
    costs = np.ascontiguousarray(-nodes.reshape(side, side, k))
    labels = aexpansion_grid(costs, table.max() - table, max_cycles=100)
    return labels.ravel().astype(int), None


def qpbo_improved(nodes, edges, weights):
    """QPBO, then QPBO-I until it changes nothing."""
    import thinqpbo

    graph = thinqpbo.QPBODouble(len(nodes), len(edges))
    graph.add_node(len(nodes))
    for i, (first, second) in enumerate((-nodes).tolist()):
        graph.add_unary_term(i, first, second)
    for (i, j), weight in zip(edges.tolist(), weights.tolist(), strict=True):
        graph.add_pairwise_term(i, j, -weight, 0.0, 0.0, -weight)
    start = time.process_time()
    graph.solve()
    graph.compute_weak_persistencies()
    bound = -0.5 * graph.compute_twice_lower_bound()
    for i in range(len(nodes)):
        if graph.get_label(i) < 0:
            graph.set_label(i, 0)
    failed, best = 0, graph.compute_twice_energy()
    while failed < 10 and time.process_time() - start < MOST_SECONDS:
        graph.improve()
        energy = graph.compute_twice_energy()
        failed, best = (0, energy) if energy < best else (failed + 1, best)
    seconds = time.process_time() - start
    return np.array([graph.get_label(i) for i in range(len(nodes))]), bound, seconds


def proven(solve, nodes, edges, weights):
    """A solver that gives the largest score, or a bound of it."""
    value = solve(nodes, edges, weights[:, None, None] * np.eye(nodes.shape[1]))
    return (value, value) if solve is toulbar2 else (None, value)


# --------------------------------------------------------------------------- instances


def attracted(side, weight, k=5, most=1):
    """A table for all edges: minus the distance of labels, which counts as `most` at most."""
    rng = np.random.default_rng(0)
    distances = np.minimum(np.abs(np.subtract.outer(range(k), range(k))), most)
    table = weight * (most - distances).astype(float)
    return rng.normal(size=(side * side, k)), grid_edges((side, side)), table


def mixed(side, size):
    rng = np.random.default_rng(side)
    edges = grid_edges((side, side))
    return size * rng.normal(size=(side * side, 2)), edges, rng.normal(size=len(edges))


def sparse(n, degree, size):
    rng = np.random.default_rng(n)
    edges = np.column_stack(np.triu_indices(n, 1))
    edges = edges[rng.random(len(edges)) < degree / n]
    return size * rng.normal(size=(n, 2)), edges, rng.normal(size=len(edges))


# rows of a grid, weight, labels, and the distance that counts at most
ATTRACTED = [
    (50, 0.3, 5, 1), (50, 0.5, 5, 1), (50, 0.8, 5, 1), (100, 0.5, 5, 1), (200, 0.5, 5, 1),
    (200, 0.8, 5, 1), (100, 0.4, 8, 2), (100, 0.2, 16, 4)]
MIXED = [(16, 0.5), (20, 0.5), (20, 0.1), (100, 1.0), (100, 0.5)]


def expansions(side, weight):
    limits = [2.0, 10.0] if (side, weight) == (200, 0.5) else [2.0]
    found = {"expansion": partial(ours, method="expansion")}
    if has_package("PyMaxflow"):
        found["PyMaxflow, expansion"] = expansion_of_grid
    return {**found, **{f"auto, {limit:g} s": partial(ours, time_limit=limit) for limit in limits}}


def mixed_contestants(side):
    found = {"auto": ours}
    if has_package("thinqpbo"):
        found["QPBO-I"] = qpbo_improved
    # it takes minutes for larger grids
    if side <= 16 and has_package("pytoulbar2"):
        found["toulbar2"] = partial(proven, toulbar2)
    if side <= 20:
        found["linear program"] = partial(proven, linear_program)
    return found


def run(instance, contestants, repeats):
    """Value, bound and seconds of each contestant."""
    nodes, edges, scores = instance
    rows = {name: [] for name in contestants}
    for turn in range(repeats):
        for name, solve in contestants.items():
            if turn and rows[name][0][2] > 1.0:
                continue
            start = time.process_time()
            found, bound, *own = solve(nodes, edges, scores)
            seconds = own[0] if own else time.process_time() - start
            value = found
            if np.ndim(found):
                first, second = found[edges].T
                of_edges = scores * (first == second) if scores.ndim == 1 else scores[first, second]
                value = float(nodes[np.arange(len(nodes)), found].sum() + of_edges.sum())
            rows[name].append((value, bound, seconds))
    return {
        name: (*of[0][:2], float(np.median([row[2] for row in of]))) for name, of in rows.items()}


def number(x, digits):
    return "" if x is None else f"{x:,.{digits}f}"


def section(title, results):
    return table(title, ["instance", "contestant", "value", "bound", "seconds"], [
        [name if first else "", contestant, number(value, 2), number(bound, 2), number(seconds, 3)]
        for name, rows in results.items()
        for first, (contestant, (value, bound, seconds)) in zip(
            [True] + [False] * len(rows), rows.items(), strict=False)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small graphs; print alone")
    options = parser.parse_args()
    results = {"Edges that favour near labels": {}, "Two labels, mixed signs": {}}
    of_attracted, of_mixed = results.values()
    with threadpool_limits(1):
        for side, weight, k, most in ATTRACTED:
            if side <= 50 or not options.quick:
                name = f"grid {side} x {side}, {k} labels, weight {weight}"
                if most > 1:
                    name += f", distances up to {most}"
                of_attracted[name] = run(
                    attracted(side, weight, k, most), expansions(side, weight), options.repeats)
        for side, size in MIXED:
            if side <= 20 or not options.quick:
                of_mixed[f"grid {side} x {side}, size {size}"] = run(
                    mixed(side, size), mixed_contestants(side), options.repeats)
        if not options.quick:
            of_mixed["random, 1,000 nodes of degree 8, size 0.5"] = run(
                sparse(1000, 8, 0.5), mixed_contestants(1000), options.repeats)
    made = environment("fastm4n", "scipy", "PyMaxflow", "thinqpbo", "pytoulbar2")
    text = "\n".join([
        INTRODUCTION.format(repeats=options.repeats, run=describe(made), seconds=MOST_SECONDS),
        *(section(title, rows) for title, rows in results.items())])
    print(text)
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (ROOT / "docs" / "results" / "graph_inference.md").write_text(text)
        (RESULTS / "graph_inference.json").write_text(
            json.dumps({"run": made, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
