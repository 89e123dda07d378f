"""Scores of chains, and what all labellings of small ones say of them."""

import itertools

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from fastm4n.inference import chain_entropy, max_min_chain, sum_product, viterbi, viterbi_kbest

SHAPES = [(1, 1), (1, 3), (2, 1), (4, 1), (2, 2), (3, 3), (5, 2), (4, 3)]
NONE = -np.inf


def random_chain(rng, T, R, kind, per_edge):
    """Scores that are ordinary, whole numbers, partly forbidden, or too far apart for exp."""
    unary = rng.normal(size=(T, R))
    pairwise = rng.normal(size=(T - 1, R, R) if per_edge else (R, R))
    if kind == "ties":
        unary, pairwise = np.round(unary), np.round(pairwise)
    elif kind == "far":
        unary, pairwise = 300.0 * unary, 300.0 * pairwise
    elif kind == "forbidden":
        unary[rng.random((T, R)) < 0.3] = NONE
        pairwise[rng.random(pairwise.shape) < 0.3] = NONE
        way = rng.integers(R, size=T)  # one that stays open
        unary[np.arange(T), way] = rng.normal(size=T)
        if per_edge:
            pairwise[np.arange(T - 1), way[:-1], way[1:]] = -1.0
        else:
            pairwise[way[:-1], way[1:]] = -1.0
    return unary, pairwise


def labellings(T, R):
    """All of them, in the order of the reversed labellings."""
    return np.array([y[::-1] for y in itertools.product(range(R), repeat=T)])


def scores_of(unary, pairwise):
    T, R = unary.shape
    pairwise = np.broadcast_to(pairwise, (T - 1, R, R))
    t, Y = np.arange(T), labellings(T, R)
    return unary[t, Y].sum(axis=1) + pairwise[t[:-1], Y[:, :-1], Y[:, 1:]].sum(axis=1)


def gibbs(scores):
    q = np.exp(scores - scores.max())
    return q / q.sum(), scores.max() + np.log(q.sum())


def marginals_of(q, T, R):
    Y = labellings(T, R)
    nodes, edges = np.zeros((T, R)), np.zeros((T - 1, R, R))
    for t in range(T):
        np.add.at(nodes[t], Y[:, t], q)
    for t in range(T - 1):
        np.add.at(edges[t], (Y[:, t], Y[:, t + 1]), q)
    return nodes, edges


def game_value(unary, pairwise, cost):
    """The max-min oracle's value, as a linear program over all allowed labellings."""
    T, R = unary.shape
    scores = scores_of(unary, pairwise)
    allowed = scores > -np.inf
    scores, Y = scores[allowed], labellings(T, R)[allowed]
    n = len(Y)
    rows = [
        np.concatenate([-cost[Y[:, t], j], np.eye(T)[t]]) for t in range(T) for j in range(R)
    ]
    solution = linprog(
        -np.concatenate([scores - scores.max(), np.full(T, 1 / T)]),
        A_ub=np.array(rows), b_ub=np.zeros(T * R),
        A_eq=np.append(np.ones(n), np.zeros(T))[None], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)] * T,
    )
    assert solution.status == 0
    return scores.max() - solution.fun


def entropy_of(q):
    return -sum(x * np.log(x) for x in q if x > 0)


def assert_in_polytope(nodes, edges, atol=1e-12):
    assert np.all(nodes >= 0) and np.all(edges >= 0)
    assert_allclose(nodes.sum(axis=1), 1.0, atol=atol)
    assert_allclose(edges.sum(axis=2), nodes[:-1], atol=atol)
    assert_allclose(edges.sum(axis=1), nodes[1:], atol=atol)


def single(unary, pairwise):
    return unary.astype(np.float32), pairwise.astype(np.float32)


# constraints


CONSTRAINED = {
    "viterbi": viterbi,
    "viterbi_kbest": lambda *args, **options: viterbi_kbest(*args, 5, **options),
    "sum_product": sum_product,
    "chain_entropy": chain_entropy,
}


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


# kinds of input


FUNCTIONS = {
    **CONSTRAINED,
    "max_min_chain": max_min_chain,
    "mirror_prox": lambda *args: max_min_chain(*args, oracle="mirror_prox", n_iter=3),
}
