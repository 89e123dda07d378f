"""The block solver: passes, certificates, stopping, history, and what is built on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

__all__ = ["RoundsFile", "Worker", "solve", "solve_path", "solve_rounds"]


def __getattr__(name: str) -> Any:
    # late: `import fastm4n` looks for the compiled parts here, and imports nothing slow
    if name == "solve":
        from fastm4n.solvers.block_coordinate import solve

        return solve
    if name == "solve_path":
        from fastm4n.solvers.paths import solve_path

        return solve_path
    if name == "solve_rounds":
        from fastm4n.solvers.rounds import solve_rounds

        return solve_rounds
    if name == "Worker":
        from fastm4n.solvers.worker import Worker

        return Worker
    if name == "RoundsFile":
        from fastm4n.solvers.rounds_file import RoundsFile

        return RoundsFile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
