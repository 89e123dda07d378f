"""Ctrl-C within compiled loops: a signal ends them, and calls after it are as before it."""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import get_ident

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import ENVIRONMENT

from fastm4n import MulticlassClassifier
from fastm4n.base.interrupts import listeners, stopped
from fastm4n.base.threads import in_threads
from fastm4n.inference import grid_edges, min_cut
from fastm4n.inference._elimination import elimination_order, functions_of, level_order, solve_large
from fastm4n.inference._forest import (
    forest_best,
    forest_kbest,
    forest_marginals,
    forest_max_marginals,
    forest_order,
    forest_tangent,
)
from fastm4n.inference._moves import Moves, expand_all
from fastm4n.inference._relaxations import refuses_lp, relax, spanning_forests
from fastm4n.inference.cut import cut_best
from fastm4n.inference.graph import make_problem, maximise
from fastm4n.inference.roof import roof_best

# a call that would take many minutes, and a small one of the same kind
CALLS = {
    "relaxation": (
        "from fastm4n.inference.decomposition import maximise_relaxation as solve",
        "solve(*grid(60, 5), tol=0.0, max_sweeps=10**8, max_iterations=10**8)",
        "solve(*grid(4, 3)).nodes"),
    "reweighted": (
        "from fastm4n.inference.decomposition import reweighted_marginals as solve",
        "solve(*grid(60, 5), tol=0.0, max_sweeps=10**8)", "solve(*grid(4, 3)).nodes"),
    "forest": (
        "from fastm4n.inference._forest import forest_marginals\n"
        "from fastm4n.inference.graph import make_problem\n"
        "def solve(n, k, repeats): return forest_marginals(make_problem("
        "rng.normal(size=(n, k)), [[i, i + 1] for i in range(n - 1)], "
        "rng.normal(size=(n - 1, k, k))), repeats)",
        "solve(50, 400, 10**9)", "solve(5, 3, 1)[0]"),
    "chains": (
        "from fastm4n.inference import max_min_chain as solve\n"
        "def given(n): return rng.normal(size=(n, 5)), rng.normal(size=(5, 5))",
        "solve(*given(50), oracle='mirror_prox', n_iter=10**8)", "solve(*given(4))[0]"),
    # one sequence of many labels
    "viterbi": (
        "from fastm4n.inference import viterbi as solve\n"
        "def given(n): return rng.normal(size=(10 * n, n)), rng.normal(size=(n, n))",
        "solve(*given(2000))", "solve(*given(300))[0]"),
    "sum_product": (
        "from fastm4n.inference import sum_product\n"
        "def solve(n): return sum_product("
        "rng.normal(size=(3 * n, n)), rng.normal(size=(n, n)), edges='sum')",
        "solve(2500)", "solve(300)[0]"),
    "far sum_product": (
        "from fastm4n.inference import sum_product\n"
        "def solve(n): return sum_product("
        "rng.normal(size=(3 * n, n)), 1e3 * rng.normal(size=(n, n)), edges='sum')",
        "solve(1000)", "solve(280)[0]"),
    "permutations": (
        "from fastm4n.inference import max_min_permutation as solve\n"
        "def given(n): return rng.normal(size=(n, n))",
        "solve(given(30), oracle='mirror_prox', n_iter=10**8)", "solve(given(4))[0]"),
    "sinkhorn": (
        "from fastm4n.inference import sinkhorn as solve\n"
        "def given(n): return rng.normal(size=(n, n))",
        "solve(np.repeat(given(12)[None], 10**4, axis=0), tol=0.0, max_iter=10**7)",
        "solve(given(4))[0]"),
    "threads": (
        "from fastm4n.inference import max_min_chain\n"
        "from fastm4n.base.threads import in_threads\n"
        "from fastm4n.base.interrupts import stopped\n"
        "U, P = rng.normal(size=(50, 5)), rng.normal(size=(5, 5))\n"
        "def solve(n_iter, found):\n"
        "    def call(start, stop):\n"
        "        found[start:stop] = max_min_chain(U, P, oracle='mirror_prox', n_iter=n_iter)[2]\n"
        "    in_threads(call, len(found), 1e9, 2)\n"
        "    assert not stopped\n"
        "    return found",
        "solve(10**8, np.zeros(40))", "solve(10, np.zeros(40))"),
}
CODE = """
import re
import signal
import numpy as np
# a test run in the background may have been told to ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)
def grid(n, k):
    at = np.arange(n * n).reshape(n, n)
    edges = np.concatenate([
        np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
        np.stack([at[:-1].ravel(), at[1:].ravel()], 1)])
    return rng.normal(size=(n * n, k)), edges, rng.normal(size=(len(edges), k, k))
rng = np.random.default_rng(0)
{setup}
rng = np.random.default_rng(0)
before = {short}
print("begins", flush=True)
try:
    {call}
    print("ended")
except KeyboardInterrupt:
    rng = np.random.default_rng(0)
    assert np.array_equal({short}, before)
    print("interrupted")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to another process")
@pytest.mark.parametrize("name", CALLS)
def test_a_signal_ends_it(name):
    setup, call, short = CALLS[name]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", CODE.format(setup=setup, call=call, short=short)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begins\n", process.communicate()[1]
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    try:
        # all of it, and far less than the call would take
        said, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (said, process.returncode) == ("interrupted\n", 0), errors


@pytest.mark.parametrize("at", [1, 2, 5, 16])
def test_a_signal_while_threads_begin(at, monkeypatch):
    """Work that has begun is stopped, and the rest of it does not begin."""
    late, submit, submitted = [], ThreadPoolExecutor.submit, []

    def interrupted(self, *args):
        future = submit(self, *args)
        submitted.append(future)
        if len(submitted) == at:
            raise KeyboardInterrupt
        return future

    def work(start, stop):
        until = time.monotonic() + 30
        while get_ident() not in stopped and not late:
            time.sleep(0.001)
            if time.monotonic() > until:
                late.append(start)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_threads(work, 100, 1e9, 2)
    assert not late and not stopped and len(submitted) == at


# --------------------------------------------------------------------- roads of graphs


def graph(kind="tables", n=4, k=3, edges=None):
    """A problem of n x n nodes, or of the nodes of `edges`."""
    rng = np.random.default_rng(0)
    edges = grid_edges((n, n)) if edges is None else np.asarray(edges)
    unary = rng.normal(size=(int(edges.max()) + 1, k))
    scores = rng.normal(size=(len(edges), k, k)) if kind == "tables" else rng.random(len(edges))
    problem = make_problem(unary, edges, scores)
    # once for all calls
    problem.forest_plan()
    return problem


def binary(kind="tables"):
    return graph(kind, k=2)


def forest(kind="tables"):
    return graph(kind, edges=[[i // 2, i] for i in range(1, 20)])


def moved(problem, act):
    """Labels and value after moves from labels 0."""
    moves = Moves(problem, np.zeros(problem.n_nodes, dtype=int))
    act(moves)
    return moves.labels, moves.value


def tangent(problem):
    return forest_tangent(
        problem, np.ones((problem.n_nodes, problem.stride)), np.ones(len(problem.more)))


def cut(problem, **options):
    return min_cut([3.0, 1.0, 0.0], [0.0, 2.0, 0.5], [[0, 1], [1, 2]], 2.0, **options)


# a problem, and a small piece of work in which signals are looked for
ROADS = {
    "plan": (forest, lambda problem: forest_order(problem.edges, 20)),
    "best": (forest, forest_best),
    "best of numbers": (lambda: forest("equal"), forest_best),
    "marginals": (forest, forest_marginals),
    "max-marginals": (forest, forest_max_marginals),
    "k best": (forest, lambda problem: forest_kbest(problem, 3)),
    "tangent": (forest, tangent),
    "expansion": (lambda: graph("equal"), lambda problem: moved(problem, expand_all)),
    "forests": (graph, lambda problem: moved(problem, lambda moves: moves.improve(3))),
    "cut": (binary, cut),
    "cut from a flow": (binary, lambda problem: cut(problem, flow=[1.0, 0.0])),
    "best by a cut": (lambda: binary("equal"), cut_best),
    "roof": (binary, roof_best),
    "sweeps": (graph, lambda problem: relax(problem, 0.0, 2, 0)),
    "size of scores": (graph, refuses_lp),
    "spanning forests": (graph, lambda problem: spanning_forests(16, problem.edges)),
    "functions": (
        graph, lambda problem: [scope for scope, _ in functions_of(problem, None, None)[1]]),
    "order": (graph, lambda problem: elimination_order([2] * 16, problem.edges.tolist())),
    "levels": (graph, lambda problem: level_order([2] * 16, problem.edges.tolist(), 10**6)),
    "elimination": (graph, lambda problem: solve_large(problem, 10**6)),
}
# looks ask every 50 ms: after so many seconds the next one does
DUE = 0.1


@pytest.mark.parametrize("name", ROADS)
def test_every_road_of_graphs_looks(name):
    """A call ends, and the one after it is as the one before it."""
    make, road = ROADS[name]
    problem, thread = make(), get_ident()
    before = str(road(problem))
    time.sleep(DUE)
    stopped.add(thread)
    try:
        with pytest.raises(KeyboardInterrupt):
            road(problem)
    finally:
        stopped.discard(thread)
    assert str(road(problem)) == before


OURS = ("fastm4n.inference", "fastm4n.solvers", "fastm4n.base")


def interrupted_at(turn, call):
    """Whether Ctrl-C came in the call: where searches and solvers begin a function or a line."""
    left = turn

    def is_ours(frame):
        return frame is not None and frame.f_globals["__name__"].startswith(OURS)

    def trace(frame, event, _):
        nonlocal left
        # or what they have called
        left -= is_ours(frame) or is_ours(frame.f_back)
        if left == 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return left <= 0


@pytest.mark.parametrize("call", [
    lambda: maximise(np.eye(4)[:, :3], [[0, 1], [1, 2], [2, 3], [3, 0]], 0.1, method="lp"),
    lambda: MulticlassClassifier(max_iter=1, tol=0.5).fit(np.eye(4), [0, 1, 2, 0]),
], ids=["search", "fit"])
def test_no_listener_is_left(call):
    """Wherever Ctrl-C comes, what follows has nothing to do with a search or fit that is over."""
    call()
    turn = 1
    while interrupted_at(turn, call):
        assert not listeners, turn
        turn += 1 + turn // 50
    assert turn > 100 and not listeners


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_moves_go_on_after_an_interrupt(last):
    """Wherever it came, labels and scratch are whole."""
    rng, asked = np.random.default_rng(0), []
    edges = grid_edges((150, 150))
    problem = make_problem(rng.normal(size=(150 * 150, 4)), edges, rng.random(len(edges)))
    moves = Moves(problem, np.zeros(problem.n_nodes, dtype=int))

    def listen():
        asked.append(True)
        if len(asked) == last:
            raise KeyboardInterrupt

    time.sleep(DUE)
    listeners[get_ident()] = listen
    try:
        with pytest.raises(KeyboardInterrupt):
            while True:
                expand_all(moves)
                moves.improve(3)
    finally:
        del listeners[get_ident()]
    assert_allclose(moves.value, problem.score(moves.labels))
    again = Moves(problem, moves.labels)
    for one in (moves, again):
        expand_all(one)
    assert_array_equal(moves.labels, again.labels)


def test_no_kernel_loses_an_exception():
    """One that is declared to raise nothing would print what it calls raises, and go on."""
    found = sorted((Path(__file__).parents[1] / "build" / "cython").rglob("*.c"))
    if not found:
        pytest.skip("the package was not built in this folder")
    texts = [path.read_text(encoding="utf-8") for path in found]
    if any("RaiseBufferIndexErrorNogil(" in text for text in texts):
        pytest.skip("the build in this folder checks bounds, whose errors are printed")
    for text in texts:
        lost = re.findall(r'__Pyx_WriteUnraisable\("([^"]+)', text)
        assert not lost, f"{', '.join(lost)} must be declared `except`, not `noexcept`"
