"""Checkpoint files of fits in rounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from joblib import hash as content_hash

from fastm4n.base.array_files import read_arrays, understood, write_arrays
from fastm4n.base.atomic import probe
from fastm4n.solvers.monitor import Pace, check_fingerprint

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import StrPath

_KIND = "rounds checkpoint"


class RoundsFile:
    """Keep the state of `solve_rounds` in a file, for its argument `checkpoint`.

    A killed fit resumes from the file when it is run again over the same parts, with the same
    result to the bit. A file is written completely or not at all, in a few per cent of the time.
    Delete it after the fit. If the file cannot be written, the fit warns, goes on and tries again
    later.

    Parameters
    ----------
    file : str or path
        A new file, or one of the same fit.

    Raises
    ------
    ValueError
        If the file belongs to another fit, or is a folder.
    ModelFileError
        If it is damaged.
    OSError
        If the file cannot be created.
    """

    file: StrPath
    pace: Any
    wanted: Any

    def __init__(self, file: StrPath) -> None:
        self.file, self.pace, self.wanted = Path(file), Pace(), None
        if self.file.is_dir():
            raise ValueError(f"checkpoint={str(file)!r} is a folder; give the name of a file.")
        probe(self.file)

    def __call__(self, rounds: Any) -> Any:
        if self.wanted is None:
            self.wanted = fingerprint(rounds)
            if self.file.exists():
                self._resume(rounds)
        elif self.pace.is_due():
            with self.pace.writing():
                state = rounds.state()
                with self.pace.sparing(self.file):
                    write_arrays(
                        self.file, _KIND, {"fingerprint": self.wanted}, state, finite=False)

    def _resume(self, rounds):
        header, arrays = read_arrays(self.file, _KIND, finite=False)
        check_fingerprint(self.file, header, self.wanted, "fit")
        with understood(self.file, "checkpoint"):
            rounds.restore(arrays)


def fingerprint(rounds):
    """Short texts of all inputs of a fit in rounds, by name."""
    described = rounds.described
    return {
        "alpha": repr(rounds.alpha), "n_members": str(len(described)),
        "masses": content_hash([one["mass"] for one in described]),
        "blocks": content_hash([one["n_blocks"] for one in described]),
        "local_passes": repr(float(rounds.local_passes)), "seed": str(rounds.seed),
        "is_adapting": str(rounds.is_adapting), **described[0]["common"],
    }
