"""The file of a fit in rounds, from which it goes on when it was killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from joblib import hash as content_hash

from fastm4n.base.array_files import read_arrays, understood, write_arrays
from fastm4n.base.atomic import probe
from fastm4n.solvers.checkpoints import Pace, check_fingerprint

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import StrPath
    from fastm4n.distributed.rounds import Rounds

_KIND = "rounds checkpoint"


class RoundsFile:
    """Keep the state of `solve_rounds` in a file, for its argument `checkpoint`.

    A fit that was killed goes on from there, when it is run again over the same parts, with the
    same result to the bit. A file is written whole or not at all, for a few per cent of the time;
    who runs the fit deletes it at the end. Where it cannot be written there is a warning, and the
    fit goes on and tries again later.

    Parameters
    ----------
    file : str or path
        It is not there yet, or is of the same fit.

    Raises
    ------
    ValueError
        If the file is of another fit, or a folder.
    ModelFileError
        If it is damaged.
    OSError
        If no file can be made there.
    """

    file: StrPath
    pace: Any
    wanted: Any

    def __init__(self, file: StrPath) -> None:
        self.file, self.pace, self.wanted = Path(file), Pace(), None
        if self.file.is_dir():
            raise ValueError(f"checkpoint={str(file)!r} is a folder; give the name of a file.")
        probe(self.file)

    def __call__(self, rounds: Rounds) -> Any:
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


def fingerprint(rounds: Rounds) -> str:
    """A short text for each thing that the numbers of a fit in rounds depend on."""
    described = rounds.described
    return {
        "alpha": repr(rounds.alpha), "n_members": str(len(described)),
        "masses": content_hash([one["mass"] for one in described]),
        "blocks": content_hash([one["n_blocks"] for one in described]),
        "local_passes": repr(float(rounds.local_passes)), "seed": str(rounds.seed),
        "is_adapting": str(rounds.is_adapting), **described[0]["common"],
    }
