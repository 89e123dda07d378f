"""Best labellings and marginals of single graphs: against linear programs and toulbar2.

    python benchmarks/graph_kernels.py [--repeats 5] [--problems "tree, 20 x 20" ...]

prints each section as a Markdown table; if nothing is left out it writes them to
docs/results/graph_kernels.md, and the figures to benchmarks/results/graph_kernels.json. Peers that are not
installed are left out. Every contestant of a row has the same scores, and values are compared
before the clock is started. Times are CPU seconds of one thread, medians, the contestants taking
turns. "kernel" is a call from compiled code, as the solvers make them, with its scratch in place;
"maximise" is the function for Python, checks included; times of peers include what they need to be
told of a problem.
"""

import argparse
import json

import numpy as np
from _peers import RESULTS, ROOT, cpu, describe, environment, has_package, medians, table
from scipy import sparse
from scipy.optimize import linprog
from threadpoolctl import threadpool_limits

from fastm4n.inference._elimination import ExactGraph
from fastm4n.inference._forest import GraphProblem, forest_best, forest_marginals, row_length
from fastm4n.inference.graph import make_problem, maximise

# labels beyond which a linear program of pairs of labels takes minutes
MOST_OF_PROGRAM = 64

INTRODUCTION = """# Kernels on graphs

Made by `python benchmarks/graph_kernels.py`: CPU time of one thread, medians of {repeats},
contestants in turn in one run. {run}

A kernel is called from compiled code with its scratch in place, as solvers do; `maximise` is the
function for Python, which checks its arguments. The linear program is that over the local polytope,
by HiGHS; toulbar2 gets tables of integers that are the scores times 10^4. Their times include what
they need to be told of a problem.
"""


# ------------------------------------------------------------------------- problems


def random_tree(rng, n):
    """Edges from each node to an earlier one, in random directions."""
    edges = np.array([(i, rng.integers(i)) for i in range(1, n)])
    turned = rng.random(n - 1) < 0.5
    edges[turned] = edges[turned, ::-1]
    return edges


def tree(n, k, seed=0):
    """A random tree with a table for each edge."""
    rng = np.random.default_rng(seed)
    edges = random_tree(rng, n)
    return rng.normal(size=(n, k)), edges, rng.normal(size=(n - 1, k, k))


def stars(seed=0):
    """31 coarse nodes with two or three fine ones each, 96 in all, of 21 labels."""
    rng = np.random.default_rng(seed)
    edges = np.array([(i % 31, i) for i in range(31, 96)])
    return rng.normal(size=(96, 21)), edges, rng.normal(size=(65, 21, 21))


def places(width, height, seed=0):
    """14 nodes at places of a grid, edges that draw them together by quadratic scores.

    Displacements as they are, and the tables that they make.
    """
    rng = np.random.default_rng(seed)
    k, n = width * height, 14
    nodes, edges = rng.normal(size=(n, k)), random_tree(rng, n).astype(np.intc)
    weights = rng.normal(size=(n - 1, 4))
    weights[:, [1, 3]] = -np.abs(weights[:, [1, 3]])
    shifts = rng.normal(size=(n - 1, 2))
    rows = np.zeros((n, row_length(k)))
    rows[:, :k] = nodes
    problem = GraphProblem(
        rows, edges, weights.ravel(), 4 * np.arange(n - 1, dtype=np.intp), k, "displaced", None,
        None, shifts, width, 4.0)
    x, y = np.arange(k) % width, np.arange(k) // width
    dx = (np.subtract.outer(x, x) - shifts[:, 0, np.newaxis, np.newaxis]) / 4.0
    dy = (np.subtract.outer(y, y) - shifts[:, 1, np.newaxis, np.newaxis]) / 4.0
    parts = np.stack([dx, dx**2, dy, dy**2])
    tables = np.einsum("ej,jeab->eab", weights, parts)
    return {"tables": make_problem(nodes, edges, tables), "displacements": problem}


def complete(n, seed=0):
    """All pairs of n nodes of two labels, which score where both have label 1."""
    rng = np.random.default_rng(seed)
    edges = np.array([(i, j) for j in range(n) for i in range(j)])
    tables = np.zeros((len(edges), 2, 2))
    tables[:, 1, 1] = rng.normal(size=len(edges))
    return rng.normal(size=(n, 2)), edges, tables


def grid(height, width, k, seed=0):
    """Pixels of k labels and a table for each two neighbours."""
    rng = np.random.default_rng(seed)
    number = np.arange(height * width).reshape(height, width)
    edges = np.concatenate([
        np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()]),
        np.column_stack([number[:-1].ravel(), number[1:].ravel()])])
    return rng.normal(size=(number.size, k)), edges, rng.normal(size=(len(edges), k, k))


PROBLEMS = {
    "tree, 20 nodes x 20 labels": lambda: tree(20, 20),
    "stars, 96 nodes x 21 labels": stars,
    "tree, 14 nodes x 256 labels": lambda: tree(14, 256),
    "tree, 1,000 nodes x 2 labels": lambda: tree(1000, 2),
}
FEW_STATES = {
    "complete, 14 nodes x 2 labels": lambda: complete(14),
    "complete, 16 nodes x 2 labels": lambda: complete(16),
    "grid, 10 x 10 nodes x 2 labels": lambda: grid(10, 10, 2),
    "grid, 4 x 20 nodes x 5 labels": lambda: grid(4, 20, 5),
}
PLACES = {"16 x 16 places": (16, 16), "256 x 1 places": (256, 1)}


# ---------------------------------------------------------------------------- peers


def linear_program(nodes, edges, tables):
    """The maximum over the local polytope, and its labelling where that is integral, or None."""
    (n, k), m = nodes.shape, len(edges)
    eye, ones = sparse.eye_array(k), np.ones((1, k))
    sums = sparse.vstack([sparse.kron(eye, ones), sparse.kron(ones, eye)])
    at = np.arange(m)
    ends = [
        sparse.csr_array((np.ones(m), (at, edges[:, side])), shape=(m, n)) for side in range(2)]
    # of each edge the sums over one label and the other, less what its nodes have
    split = sparse.vstack([
        sparse.kron(np.eye(2)[:, [side]], eye) for side in range(2)]).tocsr()
    marginal = -sum(
        sparse.kron(ends[side], split[2 * k * side:2 * k * (side + 1)]) for side in range(2))
    rows = sparse.block_array([
        [sparse.kron(sparse.eye_array(n), ones), None],
        [marginal, sparse.kron(sparse.eye_array(m), sums)]]).tocsr()
    found = linprog(
        -np.concatenate([nodes.ravel(), tables.ravel()]), A_eq=rows,
        b_eq=np.append(np.ones(n), np.zeros(2 * k * m)), bounds=(0, None), method="highs")
    rows = found.x[:n * k].reshape(n, k)
    return -found.fun, rows.argmax(axis=1) if (rows.max(axis=1) > 1.0 - 1e-6).all() else None


def toulbar2(nodes, edges, tables):
    """The least cost, of costs that are four digits of the scores."""
    import pytoulbar2

    # what no labelling costs
    top = float(np.abs(nodes).sum() + np.abs(tables).max(axis=(1, 2)).sum()) + 1.0
    problem = pytoulbar2.CFN(top, resolution=4)
    k = nodes.shape[1]
    for i, row in enumerate(nodes):
        problem.AddVariable(str(i), range(k))
        problem.AddFunction([str(i)], list(-row))
    for (a, b), scores in zip(edges, tables, strict=True):
        problem.AddFunction([str(a), str(b)], list(-scores.ravel()))
    return -problem.Solve()[1]


def peers_of(nodes, edges, tables):
    """Contestants that can solve a problem: functions that give the largest score."""
    contestants = {}
    if nodes.shape[1] <= MOST_OF_PROGRAM:
        contestants["linear program"] = lambda: linear_program(nodes, edges, tables)[0]
        if has_package("pytoulbar2"):
            contestants["toulbar2"] = lambda: toulbar2(nodes, edges, tables)
    return contestants


# --------------------------------------------------------------------------- timing


def kernel_seconds(solve, problem, repeats, least=0.05):
    """CPU seconds of one call from compiled code: of many, less what all share."""
    once = cpu(lambda: solve(problem))[0]
    many = max(2, int(least / max(once, 1e-7)))
    while cpu(lambda: solve(problem, many))[0] < least:
        many *= 4
    seconds = []
    for _ in range(repeats):
        total, _ = cpu(lambda: solve(problem, many))
        start, _ = cpu(lambda: solve(problem, 1))
        seconds.append((total - start) / (many - 1))
    return float(np.median(seconds))


def run_problem(make, repeats):
    nodes, edges, tables = make()
    problem = make_problem(nodes, edges, tables)
    best = maximise(nodes, edges, tables)
    functions = {"maximise": lambda: maximise(nodes, edges, tables)}
    for name, solve in peers_of(nodes, edges, tables).items():
        # four digits of each score
        atol = 1e-4 * (len(nodes) + len(edges)) if name == "toulbar2" else 1e-6
        np.testing.assert_allclose(solve(), best.value, rtol=1e-6, atol=atol, err_msg=name)
        functions[name] = solve
    return {
        "kernel": kernel_seconds(forest_best, problem, repeats),
        "marginals": kernel_seconds(forest_marginals, problem, repeats),
        **medians(functions, repeats)}


def run_few_states(make, repeats):
    """As `run_problem`; the linear program is left out, its optimum is none of a labelling."""
    nodes, edges, tables = make()
    problem = make_problem(nodes, edges, tables)
    graph = ExactGraph(problem)
    best = maximise(nodes, edges, tables, method="exact")
    functions = {"maximise": lambda: maximise(nodes, edges, tables, method="exact")}
    if has_package("pytoulbar2"):
        functions["toulbar2"] = lambda: toulbar2(nodes, edges, tables)
        atol = 1e-4 * (len(nodes) + len(edges))
        np.testing.assert_allclose(functions["toulbar2"](), best.value, rtol=1e-6, atol=atol)
    return {
        "kernel": kernel_seconds(lambda _, n_calls=1: graph.maximise(n_calls), problem, repeats),
        "marginals": kernel_seconds(
            lambda _, n_calls=1: graph.marginals(n_calls), problem, repeats),
        **medians(functions, repeats)}


def run_places(size, repeats):
    problems = places(*size)
    values = [forest_best(problem)[1] for problem in problems.values()]
    np.testing.assert_allclose(values, values[0], rtol=1e-9)
    return {
        f"{name}, {form}": kernel_seconds(solve, problem, repeats)
        for form, problem in problems.items()
        for name, solve in (("best", forest_best), ("marginals", forest_marginals))}


def shown(seconds):
    """Seconds in microseconds, three digits."""
    return "-" if seconds is None else f"{1e6 * seconds:,.3g}" if seconds < 1e-3 else (
        f"{1e6 * seconds:,.0f}")


def section(title, figures):
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    return table(title, ["", *names], [
        [row, *(shown(found.get(name)) for name in names)] for row, found in figures.items()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--problems", nargs="*", default=[*PROBLEMS, *FEW_STATES, *PLACES])
    options = parser.parse_args()
    unknown = set(options.problems) - {*PROBLEMS, *FEW_STATES, *PLACES}
    if unknown:
        parser.error(f"no such problems: {sorted(unknown)}")
    with threadpool_limits(1):
        labellings = {
            name: run_problem(PROBLEMS[name], options.repeats)
            for name in PROBLEMS if name in options.problems}
        few_states = {
            name: run_few_states(FEW_STATES[name], options.repeats)
            for name in FEW_STATES if name in options.problems}
        displacements = {
            name: run_places(PLACES[name], options.repeats)
            for name in PLACES if name in options.problems}
    run = environment("fastm4n", "scipy", "pytoulbar2")
    text = "\n".join([
        INTRODUCTION.format(repeats=options.repeats, run=describe(run)),
        section("Forests: microseconds", labellings),
        section("Few states: microseconds", few_states),
        section("Displacements between 14 nodes: microseconds", displacements)])
    print(text)
    if len(options.problems) == len({*PROBLEMS, *FEW_STATES, *PLACES}):
        (ROOT / "docs" / "results" / "graph_kernels.md").write_text(text)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "graph_kernels.json").write_text(json.dumps(
            {"run": run, "forests": labellings, "few_states": few_states, "displacements": displacements}, indent=1) + "\n")


if __name__ == "__main__":
    main()
