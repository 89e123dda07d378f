"""What the functions of chains take: kinds of input, bad ones and threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from chain_cases import CONSTRAINED, FUNCTIONS, NONE, as_tuple, random_chain, single
from numpy.testing import assert_allclose, assert_array_equal
from processes import run_code

from fastm4n.inference import chain_entropy, max_min_chain, sum_product, viterbi, viterbi_kbest


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_inputs_that_are_read_only(name):
    rng = np.random.default_rng(0)
    unary, pairwise = single(rng.normal(size=(6, 5)), rng.normal(size=(5, 5)))
    expected = as_tuple(FUNCTIONS[name](unary, pairwise))
    unary.flags.writeable = pairwise.flags.writeable = False
    for value, right in zip(as_tuple(FUNCTIONS[name](unary, pairwise)), expected):
        assert_array_equal(value, right)


# bad input


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("unary", "pairwise", "message"), [
    ([[0.0, 1.0], [np.nan, 0.0]], np.zeros((2, 2)), r"unary\[1, 0\] is nan"),
    ([[0.0, 1.0], [0.0, np.inf]], np.zeros((2, 2)), r"unary\[1, 1\] is inf"),
    (np.zeros((3, 2)), [[0.0, np.nan], [0.0, 0.0]], r"pairwise\[0, 1\] is nan"),
    (np.zeros((3, 2)), [[0.0, 0.0], [np.inf, 0.0]], r"pairwise\[1, 0\] is inf"),
    (np.zeros((2, 2)), [[[0.0, 0.0], [np.inf, 0.0]]], r"pairwise\[0, 1, 0\] is inf"),
    (np.float32([[0.0, np.nan]]), np.zeros((2, 2), np.float32), r"unary\[0, 1\] is nan"),
    (np.zeros(2), np.zeros((2, 2)), r"unary must have shape .*got \(2,\)"),
    (np.zeros((2, 2, 2)), np.zeros((2, 2)), r"unary must have shape .*got \(2, 2, 2\)"),
    (np.zeros((2, 0)), np.zeros((0, 0)), r"unary must have shape .*got \(2, 0\)"),
    (np.zeros((3, 2)), np.zeros((3, 3)), r"pairwise must have shape \(2, 2\) or \(2, 2, 2\), got"),
    (np.zeros((3, 2)), np.zeros((3, 2, 2)), r"pairwise must have shape \(2, 2\) or \(2, 2, 2\)"),
    (np.zeros((3, 2)), np.zeros(4), r"pairwise must have shape .*got \(4,\)"),
    ([["a", "b"]], np.zeros((2, 2)), "unary must hold numbers"),
    (np.zeros((2, 2)), np.zeros((2, 2), dtype=complex), "pairwise must hold numbers"),
    (np.zeros((2, 2), dtype=object), np.zeros((2, 2)), "unary must hold numbers"),
])
def test_bad_scores(name, unary, pairwise, message):
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name](unary, pairwise)


BATCHED = {"viterbi": viterbi, "sum_product": sum_product, "chain_entropy": chain_entropy}


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize(("lengths", "message"), [
    ([2, 2], "lengths add up to 4, but unary has 3 positions"),
    ([4, -1], "lengths must be a one-dimensional array of integers >= 0"),
    ([[1, 2]], "lengths must be a one-dimensional array"),
    ([1.0, 2.0], "lengths must be a one-dimensional array of integers"),
    (3, "lengths must be a one-dimensional array"),
    ([True, True, True], "lengths must be a one-dimensional array of integers"),
])
def test_bad_lengths(name, lengths, message):
    with pytest.raises(ValueError, match=message):
        BATCHED[name](np.zeros((3, 2)), np.zeros((2, 2)), lengths=lengths)


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_shares_its_transitions(name):
    with pytest.raises(ValueError, match=r"pairwise must have shape \(2, 2\), got \(2, 2, 2\)"):
        BATCHED[name](np.zeros((3, 2)), np.zeros((2, 2, 2)), lengths=[2, 1])


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize(("options", "message"), [
    ({"allowed": np.ones((2, 2))}, r"allowed must be a boolean array of shape \(2, 2\)"),
    ({"allowed": np.ones((3, 3), dtype=bool)}, "allowed must be a boolean array of shape"),
    ({"fixed": [0, 1]}, r"fixed must be an integer array of shape \(3,\)"),
    ({"fixed": [0.0, 1.0, 1.0]}, r"fixed must be an integer array of shape \(3,\)"),
    ({"fixed": [0, 2, 0]}, r"fixed\[1\] is 2: not a label, nor -1"),
    ({"fixed": [0, 0, -2]}, r"fixed\[2\] is -2: not a label, nor -1"),
])
def test_bad_constraints(name, options, message):
    with pytest.raises(ValueError, match=message):
        CONSTRAINED[name](np.zeros((3, 2)), np.zeros((2, 2)), **options)


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_path(name, dtype):
    function, message = CONSTRAINED[name], "no labelling has a finite score.*leave no path"
    unary, pairwise = np.zeros((3, 2), dtype), np.zeros((2, 2), dtype)
    closed = np.array([[NONE, 0.0], [NONE, NONE]], dtype)
    with pytest.raises(ValueError, match=message):
        function(unary, closed)
    with pytest.raises(ValueError, match=message):
        function(unary, np.array([pairwise, np.full((2, 2), NONE)], dtype))
    with pytest.raises(ValueError, match=message):
        function(unary, pairwise, allowed=np.zeros((2, 2), dtype=bool))
    with pytest.raises(ValueError, match=message):
        function(unary, pairwise, allowed=np.eye(2, dtype=bool), fixed=[0, -1, 1])
    blocked = unary.copy()
    blocked[1] = NONE
    with pytest.raises(ValueError, match=message):
        function(blocked, pairwise)
    with pytest.raises(ValueError, match=message):
        function(blocked[1:2], pairwise)
    # one position makes no transition
    function(unary[:1], np.full((2, 2), NONE, dtype))


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_path_names_the_sequence(name, dtype):
    unary, pairwise = np.zeros((9, 2), dtype), np.zeros((2, 2), dtype)
    unary[5] = NONE
    with pytest.raises(ValueError, match="no labelling of sequence 3 has a finite score"):
        BATCHED[name](unary, pairwise, lengths=[2, 0, 1, 4, 2])
    closed = np.eye(2, dtype=bool)
    with pytest.raises(ValueError, match="no labelling of sequence 1 has a finite score"):
        BATCHED[name](
            np.zeros((5, 2), dtype), pairwise, lengths=[2, 3], allowed=closed,
            fixed=[0, 0, 0, -1, 1])


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None, True])
def test_bad_k(k):
    with pytest.raises(ValueError, match="k must be an integer > 0, got"):
        viterbi_kbest(np.zeros((3, 2)), np.zeros((2, 2)), k)


@pytest.mark.parametrize("edges", ["all", None, True])
def test_bad_edges(edges):
    with pytest.raises(ValueError, match="edges must be 'full' or 'sum', got"):
        sum_product(np.zeros((3, 2)), np.zeros((2, 2)), edges=edges)


def test_sums_are_of_one_matrix():
    with pytest.raises(ValueError, match="edges='sum' needs one pairwise matrix"):
        sum_product(np.zeros((3, 2)), np.zeros((2, 2, 2)), edges="sum")


@pytest.mark.parametrize("oracle", ["column_generation", "mirror_prox"])
@pytest.mark.parametrize(("unary", "options", "message"), [
    ([[0.0, NONE]], {}, r"unary\[0, 1\] is -inf: scores must be finite"),
    (np.zeros((0, 2)), {}, "unary has no positions"),
    (np.zeros((2, 2)), {"cost": np.zeros((3, 3))}, r"cost must be a \(2, 2\) matrix"),
    (np.zeros((2, 2)), {"cost": [[0.0, -1.0], [1.0, 0.0]]}, r"cost must be a \(2, 2\) matrix of"),
    (np.zeros((2, 2)), {"cost": [[0.0, np.nan], [1.0, 0.0]]}, r"cost must be a \(2, 2\) matrix of"),
    (np.zeros((2, 2)), {"n_iter": 0}, "n_iter must be > 0"),
])
def test_bad_max_min(oracle, unary, options, message):
    with pytest.raises(ValueError, match=message):
        max_min_chain(unary, np.zeros((2, 2)), oracle=oracle, **options)
    with pytest.raises(ValueError, match=r"pairwise\[1, 0\] is -inf: scores must be finite"):
        max_min_chain(np.zeros((3, 2)), [[0.0, 0.0], [NONE, 0.0]], oracle=oracle)


@pytest.mark.parametrize("oracle", ["simplex", None])
def test_bad_oracles(oracle):
    with pytest.raises(ValueError, match="oracle must be 'column_generation' or 'mirror_prox'"):
        max_min_chain(np.zeros((2, 2)), np.zeros((2, 2)), oracle=oracle)


# the same bits, again and in threads


def test_bits_repeat_in_threads():
    rng = np.random.default_rng(0)
    problems = [
        random_chain(rng, T, R, kind, False)
        for T in (3, 60) for R in (2, 9, 26) for kind in ("plain", "ties")]

    def solve_all(_):
        results = []
        for scores in problems:
            for dtype in (np.float64, np.float32):
                given = [a.astype(dtype) for a in scores]
                results += [*viterbi(*given), *sum_product(*given), chain_entropy(*given)]
            results += [*viterbi_kbest(*scores, 4), *max_min_chain(*scores, tol=1e-3)]
        return results

    first = solve_all(None)
    with ThreadPoolExecutor(4) as pool:
        for again in pool.map(solve_all, range(8)):
            for one, other in zip(first, again, strict=True):
                assert_array_equal(one, other)


# scores that end where the memory does: another byte may not be read
GUARDED = """
import ctypes, mmap, os
import numpy as np
from fastm4n.inference import sum_product, viterbi

if os.name == "posix":
    page = mmap.PAGESIZE
    buffer = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 0) == 0
    for dtype in (np.float64, np.float32):
        for R in range(1, 71):
            size = 4 * R * np.dtype(dtype).itemsize
            unary = np.frombuffer(buffer, dtype, 4 * R, page - size).reshape(4, R)
            for lengths in ([4], [3, 1], [1, 3], [2, 1, 1], [4, 0]):
                viterbi(unary, np.zeros((R, R), dtype), lengths=lengths)
                sum_product(unary, np.zeros((R, R), dtype), lengths=lengths)
print("done")
"""


def test_nothing_behind_the_scores_is_read():
    done = run_code(GUARDED)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e10, 1e17, 1e84, 1e200, 1e300])
@pytest.mark.parametrize("edges", ["full", "sum"])
def test_ties_of_large_scores(scale, edges):
    """Two labellings of the same score, each best from its own end: half the weight each."""
    unary = scale * np.array([[1.0, 0.0], [0.0, 1.0]])
    pairwise = -10.0 * scale * (1.0 - np.eye(2))
    nodes, pairs, log_partition = sum_product(unary, pairwise, edges=edges)
    assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-15)
    assert_allclose(pairs.reshape(-1, 4).sum(axis=1), 1.0, atol=1e-15)
    assert_allclose(log_partition, max(scale, scale + np.log(2.0)), rtol=1e-4)
    if scale >= 1e3:
        assert_allclose(nodes, 0.5, atol=1e-15)


def test_scores_whose_sum_overflows():
    with pytest.raises(ValueError, match="scores of sequence 1 are too large: their sum over"):
        sum_product(
            np.full((5, 2), 1.7e308) * np.array([0.0, 1, 1, 1, 1])[:, np.newaxis],
            np.zeros((2, 2)), lengths=[1, 4])
