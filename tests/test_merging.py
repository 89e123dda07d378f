"""Repeated examples: hashes of rows, and the blocks that they make."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fastm4n.tasks import merge as _merge
from fastm4n.tasks.merge import hash_rows, merge_examples


def random_rows(seed, n=60, d=3):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, (n, d)).astype(float)
    return X, rng.integers(2, size=n), rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("d", [1, 3, 40])
def test_hashes(d):
    X = random_rows(0, d=d)[0]
    hashes = hash_rows(X)
    assert hashes.dtype == np.uint64
    for other in (
        sparse.csr_matrix(X), sparse.csr_array(X), X.astype(np.float32), np.asfortranarray(X),
        sparse.csr_matrix(X.astype(np.float32)), np.where(X == 0, -0.0, X),
    ):
        assert_array_equal(hash_rows(other), hashes)
    # explicit zeros are zeros
    kept = sparse.csr_matrix(np.where(X == 0, 7.0, X))
    kept.data[kept.data == 7.0] = 0.0
    assert_array_equal(hash_rows(kept), hashes)
    # equal hashes where rows are equal, and (here) nowhere else
    assert len(np.unique(hashes)) == len(np.unique(X, axis=0))
    if d > 1:
        assert np.any(hash_rows(X[:, ::-1]) != hashes)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_hashes_are_those_of_the_formula(dtype):
    X = np.random.default_rng(1).normal(size=(7, 5)).astype(dtype)
    X[2, 1], X[3, 4] = 0.0, -0.0
    odd = 2 * np.random.default_rng(0).integers(0, 2**63, size=5, dtype=np.uint64) + np.uint64(1)
    bits = (X.astype(np.float64) + 0.0).view(np.uint64)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    expected = ((bits ^ (bits >> np.uint64(29))) * odd).sum(axis=1, dtype=np.uint64)
    assert_array_equal(hash_rows(X), expected)
    assert_array_equal(hash_rows(sparse.csr_matrix(X)), expected)
    some = np.array([5, 2])
    assert_array_equal(hash_rows(X, some), expected[some])
    assert_array_equal(hash_rows(sparse.csr_matrix(X), some), expected[some])


@pytest.mark.parametrize("name, value", [("indices", 3), ("indices", -1), ("indptr", 10)])
def test_hashes_of_csr_that_points_outside(name, value):
    X = sparse.csr_matrix(np.ones((3, 3)))
    getattr(X, name)[1] = value
    with pytest.raises(IndexError, match="outside its shape"):
        hash_rows(X)
    X = sparse.csr_matrix(np.ones((3, 3)))
    getattr(X, name)[1] = 10**6
    with pytest.raises(IndexError, match="outside its shape"):
        hash_rows(X)


def test_hashes_of_many_rows():
    """In blocks of rows, for the sake of memory."""
    X = np.random.default_rng(0).normal(size=(3000, 1000))
    assert_array_equal(hash_rows(X)[[0, 1500, 2999]], hash_rows(X[[0, 1500, 2999]]))
    assert_array_equal(hash_rows(np.zeros((4, 2))), 0)
    assert_array_equal(hash_rows(sparse.csr_matrix((4, 2))), 0)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("seed", range(3))
def test_merging(kind, seed):
    X, y, weights = random_rows(seed)
    rows, block_weights, block_of = merge_examples(kind(X), y, weights)
    examples = list(zip(map(tuple, X), y))
    assert len(rows) == len(block_weights) == len(set(examples)) < 60
    assert len({examples[row] for row in rows}) == len(rows)
    for i, example in enumerate(examples):
        assert examples[rows[block_of[i]]] == example
    expected = {}
    for example, weight in zip(examples, weights):
        expected[example] = expected.get(example, 0.0) + weight
    assert_allclose(block_weights, [expected[examples[row]] for row in rows])
    # the order of the blocks is that of the contents
    order = np.random.default_rng(9).permutation(60)
    again, _, _ = merge_examples(kind(X[order]), y[order], weights[order])
    assert [examples[order[row]] for row in again] == [examples[row] for row in rows]


def test_merging_of_nothing():
    X, y = np.arange(6.0).reshape(3, 2), np.array([1, 0, 1])
    rows, weights, block_of = merge_examples(X, y, np.array([1.0, 2.0, 3.0]))
    assert_array_equal(np.sort(rows), [0, 1, 2])
    assert_array_equal(weights, np.array([1.0, 2.0, 3.0])[rows])
    assert_array_equal(rows[block_of], [0, 1, 2])


def test_merging_of_hashes_that_collide(monkeypatch):
    """Rows are compared, not only their hashes."""
    X, y, weights = random_rows(4)
    monkeypatch.setattr(_merge, "hash_rows", lambda X: np.zeros(X.shape[0], dtype=np.uint64))
    rows, block_weights, block_of = merge_examples(X, y, weights)
    for i in range(60):
        assert_array_equal(X[rows[block_of[i]]], X[i])
        assert y[rows[block_of[i]]] == y[i]
    assert_allclose(block_weights.sum(), weights.sum())
