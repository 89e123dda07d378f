"""Parts of the problems of `engine_cases`, as workers."""

import copy
from functools import partial

import numpy as np
from automaton_cases import KINDS

from fastm4n.distributed._worker import Worker

# what belongs to single blocks
OF_BLOCKS = ("X", "y", "lengths", "sizes", "edges", "edge_X", "trees")


def part_of(problem, blocks):
    """The problem of some of its blocks, their weights as they were."""
    part = copy.copy(problem)
    part.n, part.p = len(blocks), problem.p[blocks]
    for name in OF_BLOCKS:
        whole = getattr(problem, name, None)
        if whole is not None:
            is_array = isinstance(whole, np.ndarray)
            setattr(part, name, whole[blocks] if is_array else [whole[b] for b in blocks])
    if hasattr(problem, "sizes"):
        largest = max(part.sizes)
        part.cost = problem.cost[:largest, :largest]
    return part


def parts_of(n, K, seed=0):
    """The blocks of each of K parts, of different sizes; none is empty."""
    order = np.random.default_rng(seed).permutation(n)
    return [np.sort(part) for part in np.array_split(order, K)]


def make_worker(kind, name, blocks, options=()):
    problem = KINDS[kind](**dict(options))
    part = part_of(problem, blocks)
    return Worker(part.surrogate(name), part.features(), part.p, about={"d": 3})


def factories(kind, name, K, **options):
    n = KINDS[kind](**options).n
    return [
        partial(make_worker, kind, name, blocks, tuple(options.items()))
        for blocks in parts_of(n, K)]
