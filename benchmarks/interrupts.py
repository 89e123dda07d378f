"""Ctrl-C: seconds until KeyboardInterrupt within long calls of compiled loops.

    python benchmarks/interrupts.py [PART OF A NAME ...]

Each call runs in a process of its own, which gets SIGINT half a second after it began. Calls are
large enough to take several seconds; "ended before" says that one was done sooner. The first number
is until the exception is caught, the second what the call would have taken, at most MOST seconds.
"""

import os
import signal
import subprocess
import sys
import time

WAIT, MOST = 0.5, 60.0
GRID = """
import numpy as np
rng = np.random.default_rng(0)
def grid(n, k):
    at = np.arange(n * n).reshape(n, n)
    edges = np.concatenate([
        np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
        np.stack([at[:-1].ravel(), at[1:].ravel()], 1)])
    return rng.normal(size=(n * n, k)), edges, rng.normal(size=(len(edges), k, k))
"""
# name: what comes before, and the call
CALLS = {
    "maximise, grid, 5 labels": (
        "from fastm4n.inference.graph import maximise\ngiven = grid(200, 5)", "maximise(*given)"),
    "maximise, grid, 2 labels": (
        "from fastm4n.inference.graph import maximise\ngiven = grid(700, 2)", "maximise(*given)"),
    "maximise_relaxation": (
        "from fastm4n.inference.decomposition import maximise_relaxation\ngiven = grid(100, 5)",
        "maximise_relaxation(*given)"),
    "reweighted_marginals": (
        "from fastm4n.inference.decomposition import reweighted_marginals\ngiven = grid(100, 5)",
        "reweighted_marginals(*given, tol=0.0)"),
    "marginals by elimination": (
        "from fastm4n.inference.graph import marginals\ngiven = [[g] * 400 for g in grid(14, 2)]",
        "marginals(*given)"),
    "min_cut": (
        "from fastm4n.inference import grid_edges, min_cut\n"
        "given = 3 * rng.random((1500, 1500)), 3 * rng.random((1500, 1500)), "
        "grid_edges((1500, 1500)), 1.0", "min_cut(*given)"),
    "expansion": (
        "from fastm4n.inference.graph import maximise\n"
        "scores, edges, _ = grid(600, 5)\ngiven = scores, edges, rng.random(len(edges))",
        "maximise(*given, method='expansion')"),
    "best labelling of a tree": (
        "from fastm4n.inference._forest import forest_best\n"
        "from fastm4n.inference.graph import make_problem\n"
        "edges = np.array([(i, int(rng.integers(i))) for i in range(1, 1000000)])\n"
        "given = make_problem(rng.normal(size=(1000000, 5)), edges, 1.0)",
        "forest_best(given, 20)"),
    "marginals of a tree": (
        "from fastm4n.inference._forest import forest_marginals\n"
        "from fastm4n.inference.graph import make_problem\n"
        "edges = np.array([(i, int(rng.integers(i))) for i in range(1, 100000)])\n"
        "given = make_problem(rng.normal(size=(100000, 20)), edges, "
        "rng.normal(size=(99999, 20, 20)))", "forest_marginals(given, 20)"),
    "max_min_chain": (
        "from fastm4n.inference import max_min_chain\n"
        "given = rng.normal(size=(600, 20)), rng.normal(size=(20, 20))",
        "max_min_chain(*given, cost=rng.random((20, 20)) * (1 - np.eye(20)))"),
    "max_min_chain, mirror prox": (
        "from fastm4n.inference import max_min_chain\n"
        "given = rng.normal(size=(600, 20)), rng.normal(size=(20, 20))",
        "max_min_chain(*given, oracle='mirror_prox', n_iter=1000000)"),
    "max_min_permutation": (
        "from fastm4n.inference import max_min_permutation\ngiven = rng.normal(size=(150, 150))",
        "max_min_permutation(given, tol=1e-13)"),
    "max_min_permutation, mirror prox": (
        "from fastm4n.inference import max_min_permutation\ngiven = rng.normal(size=(100, 100))",
        "max_min_permutation(given, oracle='mirror_prox', n_iter=1000000)"),
    "linear_assignment, 3000": (
        "from fastm4n.inference import linear_assignment\n"
        "given = rng.integers(0, 1000, size=(3000, 3000)).astype(float)",
        "linear_assignment(given)"),
    "linear_assignment, batch": (
        "from fastm4n.inference import linear_assignment\ngiven = rng.normal(size=(300, 300, 300))",
        "linear_assignment(given)"),
    "sinkhorn": (
        "from fastm4n.inference import sinkhorn\ngiven = 30 * rng.normal(size=(800, 800))",
        "sinkhorn(given, tol=1e-14, max_iter=100000)"),
    "permutation_marginals": (
        "from fastm4n.inference import permutation_marginals\ngiven = rng.normal(size=(30, 20, 20))",
        "permutation_marginals(given)"),
    "permanent": (
        "from fastm4n.inference import permanent\ngiven = rng.random((30, 30))",
        "permanent(given)"),
    "viterbi, batch": (
        "from fastm4n.inference import viterbi\n"
        "given = rng.normal(size=(400000, 100)), rng.normal(size=(100, 100))",
        "viterbi(*given, lengths=np.full(4000, 100))"),
    "sum_product, batch": (
        "from fastm4n.inference import sum_product\n"
        "given = rng.normal(size=(400000, 100)), rng.normal(size=(100, 100))",
        "sum_product(*given, lengths=np.full(4000, 100), edges='sum')"),
    "viterbi_kbest": (
        "from fastm4n.inference import viterbi_kbest\n"
        "given = rng.normal(size=(500, 50)), rng.normal(size=(50, 50))",
        "viterbi_kbest(*given, 500)"),
    "k_best of a tree": (
        "from fastm4n.inference.graph import k_best\n"
        "edges = np.array([(i, int(rng.integers(i))) for i in range(1, 2000)])\n"
        "given = rng.normal(size=(2000, 20)), edges, rng.normal(size=(1999, 20, 20))",
        "k_best(*given, 500)"),
    "project_simplex": (
        "from fastm4n.inference import project_simplex\ngiven = rng.normal(size=(4000, 20000))",
        "[project_simplex(given) for _ in range(20)]"),
    "max_min_game": (
        "from fastm4n.inference import max_min_game\ngiven = rng.normal(size=(20000, 60))",
        "max_min_game(given, rng.random((60, 60)) * (1 - np.eye(60)))"),
    "Gram matrix": (
        "from fastm4n import MulticlassClassifier\n"
        "given = rng.normal(size=(30000, 50)), rng.integers(0, 5, 30000)",
        "MulticlassClassifier('max_min', kernel='rbf').fit(*given)"),
    "vectorizer": (
        "from fastm4n import SequenceVectorizer\n"
        "given = [[{'w=%d' % i: 1.0 for i in rng.integers(0, 99999, 20)} for _ in range(20)]\n"
        "         for _ in range(5000)] * 20", "SequenceVectorizer().fit_transform(given)"),
    "label sweeps": (
        "import scipy.sparse as sp\nfrom fastm4n import MulticlassClassifier\n"
        "given = sp.random(100000, 50000, 1e-3, 'csr', rng=0), rng.integers(0, 50, 100000)",
        "MulticlassClassifier('max_min', alpha=1e-7, tol=1e-9).fit(*given)"),
    "quasi-Newton": (
        "from fastm4n import MulticlassClassifier\n"
        "given = rng.normal(size=(100000, 100)), rng.integers(0, 50, 100000)",
        "MulticlassClassifier(surrogate='log', alpha=1e-6, tol=1e-10).fit(*given)"),
    "tagger, fit": (
        "from fastm4n import SequenceTagger\n"
        "given = [rng.normal(size=(200, 30)) for _ in range(500)]\n"
        "labels = [rng.integers(0, 30, 200) for _ in range(500)]",
        "SequenceTagger(surrogate='max_min', tol=1e-3).fit(given, labels)"),
    "classifier, predictions": (
        "from fastm4n import MulticlassClassifier\n"
        "given = rng.normal(size=(1000000, 50))\n"
        "model = MulticlassClassifier().fit(given[:500], rng.integers(0, 40, 500))",
        "[model.predict(given) for _ in range(40)]"),
    "tagger, predictions": (
        "from fastm4n import SequenceTagger\n"
        "given = [rng.normal(size=(100, 10)) for _ in range(20000)]\n"
        "labels = [rng.integers(0, 60, 100) for _ in range(50)]\n"
        "model = SequenceTagger('max_min', max_iter=2).fit(given[:50], labels)",
        "[model.predict(given) for _ in range(20)]"),
    "losses of chains": (
        "from fastm4n.losses import chain_losses\n"
        "given = rng.normal(size=(200000, 60)), rng.normal(size=(60, 60))",
        "chain_losses(*given, rng.integers(0, 60, 200000), np.full(2000, 100), "
        "surrogate='max_min')"),
}
CHILD = GRID + """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
{setup}
print("begins", flush=True)
try:
    {call}
    print("ended", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def interrupted(setup, call):
    """What the process said, and seconds from the signal to that."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", CHILD.format(setup=setup, call=call)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if process.stdout.readline() != "begins\n":
        return process.communicate()[1].strip().splitlines()[-1], None
    time.sleep(WAIT)
    start = time.perf_counter()
    process.send_signal(signal.SIGINT)
    said = process.stdout.readline().strip()
    seconds = time.perf_counter() - start
    return said or process.communicate()[1].strip().splitlines()[-1], seconds


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("| call | s until KeyboardInterrupt |\n| --- | --- |")
    for name, (setup, call) in CALLS.items():
        if len(sys.argv) > 1 and not any(part in name for part in sys.argv[1:]):
            continue
        said, seconds = interrupted(setup, call)
        if said == "ended":
            said = f"ended before, or {seconds:.2f} s later" if seconds > 0.01 else "ended before"
        elif said == "interrupted":
            said = f"{seconds:.2f}"
        print(f"| {name} | {said} |", flush=True)


if __name__ == "__main__":
    main()
