"""Compiled loops in vectors of every width: fits and inference in chains, each in its process."""

import os

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from processes import run_code

RESULTS = """
import numpy as np
from scipy import sparse
from fastm4n._simd._loops import simd_width
from fastm4n.features._kernel import KernelFeatures
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.inference import chain_entropy, max_min_chain, sum_product, viterbi, viterbi_kbest
from fastm4n.outputs import SimplexOutputs
from fastm4n.surrogates import MaxMinLoss
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step

results = {"width": simd_width()}
rng = np.random.default_rng(0)
for R in (1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 70):
    for T in (1, 11):
        for kind in ("plain", "forbidden", "far", "masked"):
            unary, pairwise = rng.normal(size=(T, R)), rng.normal(size=(R, R))
            if kind == "forbidden":
                unary[:, 1:][rng.random((T, R - 1)) < 0.3] = -np.inf
            if kind == "masked":
                unary[:, 1:][rng.random((T, R - 1)) < 0.3] = -1e9
            unary, pairwise = (a * (300.0 if kind == "far" else 1.0) for a in (unary, pairwise))
            for dtype in (np.float64, np.float32):
                scores = unary.astype(dtype), pairwise.astype(dtype)
                name = f"{R} {T} {kind} {np.dtype(dtype).name}"
                results[f"{name} path"], results[f"{name} score"] = viterbi(*scores)
                for edges in ("full", "sum"):
                    nodes, marginals, log_partition = sum_product(*scores, edges=edges)
                    results[f"{name} nodes {edges}"] = nodes
                    results[f"{name} edges {edges}"] = marginals
                    results[f"{name} log {edges}"] = log_partition
            results[f"{name} entropy"] = chain_entropy(unary, pairwise)
            if kind == "plain":
                results[f"{name} kbest"] = viterbi_kbest(unary, pairwise, 3)[1]
                for oracle in ("column_generation", "mirror_prox"):
                    results[f"{name} {oracle}"] = max_min_chain(
                        unary, pairwise, oracle=oracle, n_iter=8)[2:4]

rng = np.random.default_rng(0)
X = np.round(4 * rng.normal(size=(90, 17))) / 4 * (rng.random((90, 17)) < 0.6)
for k in (1, 3, 4, 8, 9, 33):
    y, p = rng.integers(k, size=90), np.full(90, 1 / 90)
    maps = {
        str(kind): LinearFeatures(Z, np.arange(90), row_norms(Z, 1.0), k, 1.0)
        for kind, Z in enumerate((X, X.astype(np.float32), sparse.csr_matrix(X),
                                  sparse.csr_matrix(X.astype(np.float32))))}
    K = X @ X.T
    maps["kernel"] = KernelFeatures(np.diagonal(K).copy(), k, 1.0, gram=K)
    maps["cached"] = KernelFeatures(
        np.diagonal(K).copy(), k, 1.0, n_cached=7,
        compute_rows=lambda rows, out: np.copyto(out, K[rows]))
    for name, features in maps.items():
        outputs = SimplexOutputs(y, 1.0 - np.eye(k))
        engine = BlockCoordinateEngine(MaxMinLoss(outputs), features, p, 0.05, 1)
        for _ in range(3):
            engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        results[f"fit {k} {name}"] = np.array(engine.mu)
"""
ALL = f"""
import sys
{RESULTS}
np.savez(sys.argv[1], **results)

sys.path.insert(0, sys.argv[2])
if simd_width() < 8:
    import test_decomposition, test_pair_weights, test_working_sets
    test_working_sets.test_many_sizes()
    for shape in test_decomposition.SHAPES:
        test_decomposition.test_bounds_meet_at_the_optimum_of_the_linear_program(shape, 1.0, rng)
    for R, dtype in ((3, np.float64), (8, np.float32), (22, np.float64)):
        for penalty in (None, "even", "single"):
            test_pair_weights.test_passes(R, dtype, False, penalty)
"""


def results_of(width, path):
    done = run_code(ALL, path, os.path.dirname(__file__), FASTM4N_SIMD_WIDTH=width)
    assert done.returncode == 0, done.stderr
    with np.load(path) as results:
        return dict(results)


def test_vector_widths(tmp_path):
    if os.environ.get("FASTM4N_SIMD_WIDTH"):
        widest = results_of("", tmp_path / "widest.npz")
    else:  # as in this process
        exec(RESULTS, names := {})
        widest = names["results"]
    assert widest["width"] in (1, 2, 4, 8)
    # all maps hold the same examples
    fits = [name for name in widest if name.startswith("fit ")]
    assert len(fits) == 36
    for name in fits:
        assert_allclose(widest[name], widest[f"fit {name.split()[1]} 0"], atol=1e-10)
    for width in (1, 2, 4):
        results = results_of(str(width), tmp_path / f"{width}.npz")
        assert results.pop("width") == min(width, widest["width"])
        assert len(results) == len(widest) - 1
        for name, value in results.items():
            kind = name.split()[-1]
            if name in fits:
                assert_allclose(value, widest[name], atol=1e-12, err_msg=name)
            elif kind in ("path", "score", "kbest"):  # no sums to be rounded
                assert_array_equal(value, widest[name], err_msg=name)
            elif kind in ("full", "sum", "entropy"):
                loose = "float32" in name and kind != "entropy"
                assert_allclose(
                    value, widest[name], rtol=2e-6 if loose else 1e-11,
                    atol=5e-6 if loose else 1e-9, err_msg=name)
            else:  # of games, the way may differ with the last digit
                assert_allclose(value, widest[name], atol=0.02, err_msg=name)


@pytest.mark.parametrize("width", ["3", "16", "0", "wide", " 4"])
def test_unknown_vector_widths(width):
    done = run_code("import fastm4n._simd._loops", FASTM4N_SIMD_WIDTH=width)
    assert done.returncode != 0
    assert "ValueError: The environment variable FASTM4N_SIMD_WIDTH must be" in done.stderr
    assert f"got {width!r}" in done.stderr
