"""Ctrl-C within compiled loops: a signal ends them, and calls after it are as before it."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import pytest
from processes import ENVIRONMENT

from fastm4n.base.interrupts import stopped
from fastm4n.base.threads import in_threads

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
