"""Best labellings of graphs: against PyMaxflow, thinqpbo, toulbar2 and HiGHS.

    python benchmarks/graph_inference.py [--repeats 3] [--quick] [--sections "Trees" ...]

prints each section as a Markdown table. After each it writes docs/results/graph_inference.md, and
the figures to benchmarks/results/graph_inference.json, where it finds the sections that are left
out; without titles behind --sections it writes the page anew. With --quick (small graphs alone) it
prints.
Peers that are not installed are left out. PyMaxflow and thinqpbo (GPL) stand beside fastm4n here,
and are no part of it.
"""

import argparse
import json
import multiprocessing
import resource
import time
from functools import partial

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, has_package, table, wrapped
from graph_kernels import linear_program, toulbar2, tree
from threadpoolctl import threadpool_limits

from fastm4n import CountFactor
from fastm4n.inference import grid_edges
from fastm4n.inference.graph import maximise

INTRODUCTION = """# Best labellings of graphs

{conclusions}

`python benchmarks/graph_inference.py` made this page: CPU time of one thread, medians of {repeats},
all contestants of an instance in turn.
{run}

*Value* is the score of the labelling, larger being better. *Bound* is a number that no labelling
exceeds, if the contestant has one. *Seconds* include the time to hand over a problem. Node scores
are normal deviates, times *size* if it is given. Edges have one of these scores:

- *weight*: minus the weight times the distance of the labels, up to 1 (Potts) or the given distance.
- *mixed signs*: a normal deviate if both labels are the same.
- *tables*: normal deviates for all pairs of labels, times *size* of tables.

"auto" is `maximise` with its defaults, and "auto, 2 s" has `time_limit=2.0` on the clock. QPBO-I
starts from labels 0. Its seconds are those of `solve` and `improve`, without the hand-over. Calls
of `improve` end when ten in a row gain nothing, or after {improving:g} seconds. toulbar2 minimises
integers, the scores times 10^4. HiGHS solves the linear program over the local polytope. If the
solution is integral, its labelling gives the value. toulbar2 and HiGHS run in a process of their
own. A dash marks runs of more than {limit} seconds or {memory} GiB, on this graph or on a smaller
one in the section.

*Counts of a label* say how many nodes have the last label, with a weight of 0.5 at edges. "dual"
and "exact" are methods of `maximise`, "exact" with tables of up to 10^10 entries.
"""

# of QPBO-I
IMPROVING = 5.0
# CPU seconds and GiB of toulbar2, of HiGHS and of large tables, and the entries of these
LIMIT, MEMORY, ENTRIES = 30, 8, 10**10


# ------------------------------------------------------------------------- contestants


def ours(nodes, edges, scores, *factors, **options):
    found = maximise(nodes, edges, scores, *factors, **options)
    return found.labels, found.bound


def cut_of_graph(nodes, edges, weights):
    """PyMaxflow's minimum cut, with a number for each edge."""
    import maxflow

    graph = maxflow.GraphFloat(len(nodes), len(edges))
    places = graph.add_nodes(len(nodes))
    capacities = np.broadcast_to(weights, len(edges))
    graph.add_edges(edges[:, 0], edges[:, 1], capacities, capacities)
    gain = nodes[:, 0] - nodes[:, 1]
    graph.add_grid_tedges(places, np.maximum(gain, 0.0), np.maximum(-gain, 0.0))
    flow = graph.maxflow()
    bound = nodes.max(axis=1).sum() + capacities.sum() - flow
    return graph.get_grid_segments(places).astype(int), float(bound)


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
    while failed < 10 and time.process_time() - start < IMPROVING:
        graph.improve()
        energy = graph.compute_twice_energy()
        failed, best = (0, energy) if energy < best else (failed + 1, best)
    seconds = time.process_time() - start
    return np.array([graph.get_label(i) for i in range(len(nodes))]), bound, seconds


def tables_of(nodes, edges, scores):
    """A table for each edge."""
    n_labels = nodes.shape[1]
    if np.ndim(scores) < 2:
        scores = np.multiply.outer(scores, np.eye(n_labels))
    return np.broadcast_to(scores, (len(edges), n_labels, n_labels))


def optimum(nodes, edges, scores):
    value = toulbar2(nodes, edges, tables_of(nodes, edges, scores))
    return value, value


def relaxed(nodes, edges, scores):
    bound, labels = linear_program(nodes, edges, tables_of(nodes, edges, scores))
    return labels, bound


def timed(solve, *given):
    """Labels or value, bound, and seconds."""
    start = time.process_time()
    found, bound, *own = solve(*given)
    return found, bound, own[0] if own else time.process_time() - start


def limited(solve, given):
    """`timed` in a process of its own; None where it needs more than a limit."""
    def answer(sender):
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY * 2**30, MEMORY * 2**30))
        try:
            sender.send(timed(solve, *given))
        except (MemoryError, ValueError):
            sender.send(None)

    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=answer, args=(sender,))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return None
    finally:
        process.join()


# --------------------------------------------------------------------------- instances


def attracted(side, weight, k=5, most=1):
    """A table for all edges: minus the distance of labels, which counts as `most` at most."""
    rng = np.random.default_rng(0)
    distances = np.minimum(np.abs(np.subtract.outer(range(k), range(k))), most)
    table = weight * (most - distances).astype(float)
    return rng.normal(size=(side * side, k)), grid_edges((side, side)), table


def attracted_pairs(side, weight):
    """Two labels, and a number for each edge."""
    rng = np.random.default_rng(side)
    edges = grid_edges((side, side))
    return rng.normal(size=(side * side, 2)), edges, weight * rng.random(len(edges))


def mixed(side, size):
    rng = np.random.default_rng(side)
    edges = grid_edges((side, side))
    return size * rng.normal(size=(side * side, 2)), edges, rng.normal(size=len(edges))


def sparse(n, degree, size):
    rng = np.random.default_rng(n)
    edges = np.column_stack(np.triu_indices(n, 1))
    edges = edges[rng.random(len(edges)) < degree / n]
    return size * rng.normal(size=(n, 2)), edges, rng.normal(size=len(edges))


def tabled(rows, columns, k, size):
    rng = np.random.default_rng(rows)
    edges = grid_edges((rows, columns))
    return rng.normal(size=(rows * columns, k)), edges, size * rng.normal(size=(len(edges), k, k))


def counted(rows, columns, k, least, most):
    """With a number of nodes of the last label."""
    rng = np.random.default_rng(rows)
    factor = CountFactor(range(rows * columns), least, most, label=k - 1)
    return rng.normal(size=(rows * columns, k)), grid_edges((rows, columns)), 0.5, factor


AUTO = {"auto": ours}
SOON = {"auto, 2 s": partial(ours, time_limit=2.0)}
CUT = {"PyMaxflow, maxflow": cut_of_graph}
EXPANSION = {"expansion": partial(ours, method="expansion")}
THEIRS = {"PyMaxflow, expansion": expansion_of_grid}
QPBO = {"QPBO-I": qpbo_improved}
DUAL = {"dual": partial(ours, method="dual")}
TABLES = {"exact": partial(ours, method="exact", max_entries=ENTRIES)}
LIMITED = {"toulbar2": optimum, "linear program": relaxed}
# what contestants are made of
PACKAGES = {
    "PyMaxflow, maxflow": "PyMaxflow", "PyMaxflow, expansion": "PyMaxflow", "QPBO-I": "thinqpbo",
    "toulbar2": "pytoulbar2"}


def weighted(side, weight, k=5, most=1):
    name = f"grid {side} x {side}, {k} labels, weight {weight}"
    return name + (f", distances up to {most}" if most > 1 else ""), (side, weight, k, most)


# titles, contestants and instances: names, functions, arguments
SECTIONS = {
    "Two labels that attract": ({**AUTO, **CUT, **LIMITED}, {
        f"grid {side} x {side}, weight {weight}": (attracted_pairs, side, weight)
        for side, weight in [(50, 0.5), (50, 1.0), (100, 0.5), (100, 1.0), (200, 0.5), (200, 1.0)]
    }),
    "Trees": ({**AUTO, **LIMITED}, {
        f"random tree of {n:,} nodes, {k} labels, tables": (tree, n, k)
        for n, k in [(100, 5), (1000, 5), (1000, 20)]}),
    "Edges that favour near labels": ({**EXPANSION, **THEIRS, **SOON, **AUTO, **LIMITED}, {
        name: (attracted, *arguments) for name, arguments in [
            weighted(20, 0.5), weighted(50, 0.3), weighted(50, 0.5), weighted(50, 0.8),
            weighted(100, 0.5), weighted(200, 0.5), weighted(200, 0.8), weighted(100, 0.4, 8, 2),
            weighted(100, 0.2, 16, 4)]}),
    "Two labels, mixed signs": ({**AUTO, **QPBO, **LIMITED}, {
        **{f"grid {side} x {side}, size {size}": (mixed, side, size)
           for side, size in [(16, 0.5), (20, 0.5), (20, 0.1), (100, 1.0), (100, 0.5)]},
        "random, 1,000 nodes of degree 8, size 0.5": (sparse, 1000, 8, 0.5)}),
    "Many labels, any tables": ({**AUTO, **LIMITED}, {
        f"grid {rows} x {columns}, {k} labels, tables of size {size}": (
            tabled, rows, columns, k, size)
        for rows, columns, k, size in [
            (6, 20, 4, 1.0), (10, 10, 4, 1.0), (20, 20, 4, 0.3), (40, 40, 4, 0.3)]}),
    "Counts of a label": ({**DUAL, **TABLES}, {
        f"grid {rows} x {columns}, {k} labels, {least} to {most}": (
            counted, rows, columns, k, least, most)
        for rows, columns, k, least, most in [
            (1, 500, 3, 80, 90), (5, 40, 3, 8, 10), (6, 20, 3, 8, 10), (8, 12, 2, 8, 10),
            (8, 12, 3, 8, 10), (8, 40, 3, 8, 10), (50, 50, 2, 700, 720), (40, 40, 3, 100, 110)]}),
}
# nodes of --quick
FEW = 2500
FIGURES = RESULTS / "graph_inference.json"


def run(instance, contestants, repeats, missed):
    """Value, bound and seconds of each contestant, or None; `missed` has the names of these."""
    nodes, edges, scores = instance[:3]
    rows = {name: [] for name in contestants}
    for turn in range(repeats):
        for name, solve in contestants.items():
            if name in missed or (turn and rows[name][0][2] > 1.0):
                continue
            answer = (
                limited(solve, instance) if name in LIMITED or name in TABLES else timed(solve, *instance))
            if answer is None:
                missed.add(name)
                continue
            value, bound, seconds = answer
            if np.ndim(value):
                ends = value[edges].T
                value = float(
                    nodes[np.arange(len(nodes)), value].sum()
                    + tables_of(nodes, edges, scores)[np.arange(len(edges)), ends[0], ends[1]].sum())
            rows[name].append((value, bound, seconds))
    return {
        name: (*of[0][:2], float(np.median([row[2] for row in of]))) if of else None
        for name, of in rows.items()}


def number(x, digits):
    return "" if x is None else f"{x:,.{digits}f}"


def section(title, results):
    return table(title, ["instance", "contestant", "value", "bound", "seconds"], [
        [name if first else "", contestant, *(
            ["—"] * 3 if found is None else map(number, found, (2, 2, 3)))]
        for name, rows in results.items()
        for first, (contestant, found) in zip(
            [True] + [False] * len(rows), rows.items(), strict=False)])


# ------------------------------------------------------------------------- conclusions


def between(numbers, digits):
    """Smallest and largest as text."""
    low, high = (f"{x:.{digits}f}" for x in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def pairs_of(results, one, other):
    """What two contestants found on the instances that both solved."""
    return [
        (rows[one], rows[other]) for rows in results.values()
        if rows.get(one) is not None and rows.get(other) is not None]


def times(found):
    return between([a[2] / b[2] for a, b in found], 2)


def more(found):
    """By how many percent the first contestant's values are larger."""
    return between([100.0 * (a[0] - b[0]) / abs(b[0]) for a, b in found], 2)


def conclusions(results):
    """Sentences of the page's beginning."""
    text = []
    cuts = pairs_of(results["Two labels that attract"], "auto", "PyMaxflow, maxflow")
    if cuts:
        text.append(
            f"Two labels that attract: `maximise` takes {times(cuts)} times as long as PyMaxflow's "
            f"`maxflow`, and values agree to "
            f"{max(1e-15, *(abs(a[0] / b[0] - 1.0) for a, b in cuts)):.0e}, relatively.")
    near = results["Edges that favour near labels"]
    moves, soon = (pairs_of(near, one, "PyMaxflow, expansion") for one in ("expansion", "auto"))
    if moves:
        text.append(
            f"Many labels that attract: `\"expansion\"` takes {times(moves)} times as long as "
            f"PyMaxflow's, and scores {more(moves)} % more. `\"auto\"` scores {more(soon)} % more "
            f"in {between([a[2] for a, _ in soon], 1)} seconds.")
    proofs, rough = [], pairs_of(results["Two labels, mixed signs"], "auto", "QPBO-I")
    for rows in results.values():
        proofs += pairs_of(rows, "auto", "toulbar2")
    if rough and proofs:
        # four digits of each score
        best = sum(a[0] >= b[0] - 1e-5 * abs(b[0]) for a, b in proofs)
        text.append(
            f"Other edges: `\"auto\"` scores {more(rough)} % more than QPBO-I. It finds the optimum "
            f"on {best} of {len(proofs)} graphs that toulbar2 solves, in {times(proofs)} times its "
            "seconds.")
    return "\n".join(wrapped(sentence) for sentence in text)


def write(results, repeats):
    """The page and its figures."""
    made = environment("fastm4n", "scipy", "PyMaxflow", "thinqpbo", "pytoulbar2")
    introduction = INTRODUCTION.format(
        conclusions=conclusions(results), repeats=repeats, run=wrapped(describe(made)),
        improving=IMPROVING, limit=LIMIT, memory=MEMORY)
    (ROOT / "docs" / "results" / "graph_inference.md").write_text("\n".join([
        introduction, *(section(title, results[title]) for title in SECTIONS if results[title])]))
    RESULTS.mkdir(exist_ok=True)
    FIGURES.write_text(json.dumps({"run": made, "results": results}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small graphs; print alone")
    parser.add_argument("--sections", nargs="*", default=list(SECTIONS))
    options = parser.parse_args()
    if not set(options.sections) <= set(SECTIONS):
        parser.error(f"sections are {list(SECTIONS)}.")
    results = dict.fromkeys(SECTIONS, {})
    if len(options.sections) < len(SECTIONS) and FIGURES.exists():
        results |= json.loads(FIGURES.read_text())["results"]
    with threadpool_limits(1):
        for title in options.sections:
            contestants, instances = SECTIONS[title]
            usable = {
                name: solve for name, solve in contestants.items()
                if name not in PACKAGES or has_package(PACKAGES[name])}
            missed, results[title] = set(), {}
            for name, (make, *arguments) in instances.items():
                instance = make(*arguments)
                if len(instance[0]) <= FEW or not options.quick:
                    results[title][name] = run(instance, usable, options.repeats, missed)
            print(section(title, results[title]), flush=True)
            if not options.quick:
                write(results, options.repeats)
    if not options.sections:
        write(results, options.repeats)
    print(conclusions(results))


if __name__ == "__main__":
    main()
