"""Solvers, their certificates, histories and paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.lazy import attach

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.solvers.blocks.block_coordinate import solve
    from fastm4n.solvers.path import solve_path

__all__ = ["solve", "solve_path"]

# late: `import fastm4n` looks for the compiled parts here, and imports nothing slow
__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = attach(
    __name__, {"solve": "blocks.block_coordinate", "solve_path": "path"})
