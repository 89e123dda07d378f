"""Work on ranges of blocks and on pieces of arrays, in as many threads as it is worth."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import get_ident
from typing import TYPE_CHECKING

import numpy as np
from joblib import effective_n_jobs
from threadpoolctl import ThreadpoolController

from fastm4n.base.checks import is_number
from fastm4n.base.interrupts import stopped

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.base.types import Cost, FloatArray

# multiply-adds from which a pool of threads takes less time than it saves
# (benchmarks/threads.py); and ranges of each thread, which even out unequal blocks
PARALLEL_COST = 5e6
RANGES_PER_THREAD = 8
# numbers of a piece of arrays, 256 KB in a cache of the second level, and multiply-adds of each
PIECE, COST = 1 << 15, 4


def n_threads(n_jobs: int | None) -> int:
    """The number of threads that n_jobs asks for."""
    if n_jobs == 1 and type(n_jobs) is int:
        return 1
    if n_jobs is not None and (not is_number(n_jobs, low=-np.inf, integer=True) or n_jobs == 0):
        raise ValueError(f"n_jobs must be an integer other than 0, or None, got {n_jobs!r}.")
    return effective_n_jobs(n_jobs)


@cache
def _pools():
    # to look for them takes longer than many a fit
    return ThreadpoolController()


def one_blas_thread() -> Any:
    """A context in which BLAS has one thread: its sums depend on how many there are."""
    return _pools().limit(limits=1, user_api="blas")


def in_threads(
    function: Callable[..., Any], n: int, cost: Cost, n_jobs: int | None, *args: Any,
) -> list[Any]:
    """Call function(start, stop, *args) on ranges of 0 ... n, in at most n_jobs threads.

    In this thread alone if `cost`, in multiply-adds, is not worth another one. Returns all results.
    """
    n_jobs = min(n_jobs if cost > PARALLEL_COST else 1, max(1, n))
    if n_jobs == 1:
        return [function(0, n, *args)]
    # several ranges a thread, as blocks differ in size and often come in its order
    edges = np.linspace(0, n, min(n, RANGES_PER_THREAD * n_jobs) + 1).astype(int).tolist()
    threads, ended = set(), []

    def call(start, stop):
        threads.add(get_ident())
        # a thread that is not yet in `threads` when they are stopped sees this
        return None if ended else function(start, stop, *args)

    try:
        with ThreadPoolExecutor(n_jobs) as pool:
            futures = []
            try:
                for part in zip(edges[:-1], edges[1:], strict=True):
                    futures.append(pool.submit(call, *part))
                return [future.result() for future in futures]
            except BaseException:
                ended.append(True)
                stopped.update(threads)
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        stopped.difference_update(threads)


def by_pieces(function: Any, n_jobs: int | None, *lists: Any) -> list[Any]:
    """Call function on the arrays of all lists side by side, in flat pieces that fit in a cache.

    In at most n_jobs threads. Returns what it returned of each piece, in order.
    """
    found = []
    for arrays in zip(*lists, strict=True):
        flat = [array.reshape(-1) for array in arrays]
        size = flat[0].size
        if size <= PIECE:
            found += [function(*flat)] if size else []
            continue
        of_pieces = [None] * -(-size // PIECE)

        def call(start, stop, flat=flat, of_pieces=of_pieces):
            for i in range(start, stop):
                of_pieces[i] = function(*[a[i * PIECE : (i + 1) * PIECE] for a in flat])

        in_threads(call, len(of_pieces), COST * size, n_jobs)
        found += of_pieces
    return found


def inner_product(one: FloatArray, two: FloatArray) -> float:
    """<one, two> summed in float64: by NumPy, as bits of BLAS depend on its threads."""
    def product(a, b):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sum(a * b, dtype=np.float64)

    return float(sum(by_pieces(product, 1, [one], [two])))


def square_distance(one: FloatArray, two: FloatArray) -> float:
    """||one - two||^2, in the same way."""
    def square(a, b):
        with np.errstate(over="ignore", invalid="ignore"):
            apart = a - b
            return np.sum(apart * apart, dtype=np.float64)

    return float(sum(by_pieces(square, 1, [one], [two])))
