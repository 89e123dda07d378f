"""Fits over several workers: processes with shared memory, or a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.lazy import attach

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.distributed._rounds import solve_rounds
    from fastm4n.distributed._rounds_file import RoundsFile
    from fastm4n.distributed._worker import Worker

__all__ = ["RoundsFile", "Worker", "solve_rounds"]

__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = attach(__name__, {
    "RoundsFile": "_rounds_file", "Worker": "_worker", "solve_rounds": "_rounds"})
