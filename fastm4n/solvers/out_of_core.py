"""The solver of data that do not fit in memory, as an object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.checks import check_choice, check_file, check_flag, check_number
from fastm4n.solvers.base import PASSES, Solver
from fastm4n.solvers.blocks.block_coordinate import solve_engine
from fastm4n.solvers.blocks.schedule import SAMPLINGS
from fastm4n.solvers.chunks import NEGLIGIBLE_BESIDE_NEW, ChunkedEngine
from fastm4n.solvers.dual_store import ChunkCheckpoint

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.base.types import StrPath
    from fastm4n.solvers.base import Options, Solution, State
    from fastm4n.solvers.monitor import Monitor

STEPS = ("line_search", "exact")


class OutOfCore(Solver):
    """Fits by chunks, for data that do not fit in memory, with the same certified gap.

    A `solver` of `SequenceTagger`, `GraphTagger`, `MulticlassClassifier` and `OrdinalClassifier`
    with linear features. Data are read chunk by chunk: one chunk is visited while the next one is
    read. Dual points are on disk. Memory holds the weights, about four numbers for each example,
    and `memory`. The optimum is the same as in memory, and the gap is certified for all the data.

    Parameters
    ----------
    memory : float, default=256
        MiB for chunks: data, dual points, and features made of the data.
    work_folder : str or path, default=None
        Folder of the dual points and of the state of the fit, which is written every few seconds. A
        fit that was killed continues from there when it is called again, with the same result to
        the bit. A fit that `max_iter` or a callback has ended before `tol` continues with a larger
        `max_iter` or another `tol`. Otherwise the folder is emptied at the end, except for the
        state of the next call of `partial_fit`. By default dual points are in temporary files
        without a name in `tempfile.gettempdir()`, which the system deletes after the process, even
        after a kill. Disk space is 8 bytes for each number of the dual point, twice for "log" on
        sequences and forests, and twice again with a `work_folder`. Arrays made of the data once
        take 4 T (T + 1) bytes for T <= 64 positions of a sequence or nodes of a graph, 16 bytes for
        each non-zero feature of longer ones, and a copy of all features if their form changes.
    visits : int, default=None
        Average number of visits of an example each time its chunk is read, until passes are
        accelerated. By default 1 or 2, by the work of reading and visiting, and by the progress of
        the second visit of the first chunk.
    step : {"line_search", "exact"}, default="line_search"
        As in `BlockFrankWolfe`.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Order of the examples of a chunk, as in `BlockFrankWolfe`. "gap" also skips chunks of
        negligible gap.
    accelerate : bool, default=True
        As in `BlockFrankWolfe`.

    See Also
    --------
    BlockFrankWolfe : The solver in memory.
    fastm4n.Sequences.open : Sequences on disk.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, OutOfCore
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier("log", solver=OutOfCore(memory=0.01), random_state=0)
    >>> bool(clf.fit(X, y).relative_gap_ <= 1e-3)
    True
    """

    variants: tuple[dict[str, Any], ...] = (
        {"memory": 0.002}, {"memory": 0.002, "step": "exact", "accelerate": False})
    solves_parts = True

    def __init__(
        self, *, memory: float = 256, work_folder: StrPath | None = None, visits: int | None = None,
        step: Literal["line_search", "exact"] = "line_search",
        sampling: Literal["gap", "uniform", "permutation"] = "gap", accelerate: bool = True,
    ) -> None:
        self.memory = memory
        self.work_folder = work_folder
        self.visits = visits
        self.step = step
        self.sampling = sampling
        self.accelerate = accelerate

    def check(self) -> None:
        """As in `Solver`."""
        check_number("memory", self.memory, low=0)
        check_choice("step", self.step, STEPS)
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_flag("accelerate", self.accelerate)
        if self.work_folder is not None:
            check_file("work_folder", self.work_folder)
        if self.visits is not None:
            check_number("visits", self.visits, low=0, integer=True)

    def reason(self, problem: Any) -> str | None:
        """As in `Solver`."""
        if problem.pieces.road == "partitions":  # members hold theirs in memory
            return None if self.work_folder is None else (
                "solver=OutOfCore(work_folder=...) is not supported for data in partitions: use "
                "checkpointing.")
        if problem.solver is None:
            return self.refused(
                "is for SequenceTagger, GraphTagger, MulticlassClassifier and OrdinalClassifier, "
                f"got {problem.taker}")
        if self.step == "exact" and not problem.loss.has_block_step:
            return (
                "solver=OutOfCore(step='exact') needs a closed-form maximiser of the dual over a "
                f"whole example, which {problem.said('surrogate', 'cost')} of {problem.taker} does "
                "not have; use step='line_search'.")
        return None

    def cost(self, problem: Any, options: Options) -> float:
        """As in `Solver`: that of steps of blocks in memory."""
        return PASSES * problem.weights.size * problem.features.visit_cost

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As of `Solver`."""
        chunks, done = problem.pieces, False
        try:
            found = chunks.ended_solution(monitor.tol)
        except BaseException:
            chunks.close(True)
            raise
        if found is not None:
            chunks.close(True)
            return found
        store, (left, share) = chunks.store, chunks.left_before
        engine = ChunkedEngine(
            problem, options.alpha, options.seed, store, SAMPLINGS[self.sampling],
            self.visits, options.n_jobs)
        try:
            if store.is_lasting:
                monitor.checkpoint = ChunkCheckpoint(
                    store, chunks.fingerprint, not chunks.goes_on)
            checkpoint = monitor.checkpoint
            if left is not None:
                engine.negligible = NEGLIGIBLE_BESIDE_NEW
            if left is not None and (checkpoint is None or checkpoint.found is None):
                engine.go_on(left, share)
            solution = solve_engine(
                engine, monitor, is_warm=left is not None, sampling=self.sampling, step=self.step,
                accelerate=bool(self.accelerate), keep_best=True)
            chunks.ended(engine)
            if not solution.interrupted:
                chunks.keep_end(engine, solution)
                done = solution.converged or chunks.goes_on
        finally:
            engine.close()
            chunks.close(done)
        return solution

    @property
    def chunk_bytes(self) -> float:
        """Bytes of a chunk: one is visited, the next one read, and of either parts are copied."""
        return self.memory * 2**20 / 3
