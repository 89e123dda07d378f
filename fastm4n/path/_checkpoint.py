"""Checkpoints of regularisation paths: a folder with the finished breakpoints and the state."""

from pathlib import Path

import numpy as np

from fastm4n.base.array_files import ModelFileError, read_arrays, understood, write_arrays
from fastm4n.base.atomic import check_no_loop
from fastm4n.base.checks import check_file
from fastm4n.solvers.monitor import Pace, check_fingerprint
from fastm4n.solvers.path import Breakpoint

_PROBLEM, _BREAKPOINT, _STATE = "path problem", "path breakpoint", "path state"


class Checkpoint:
    """A folder with one file for the problem, one for the state, and one for each breakpoint.

    The file of the state has the solver's state and the number of breakpoints finished before.

    Parameters
    ----------
    folder : str or path
    fingerprint : dict of str
        A short text for each thing that the breakpoints depend on.

    Raises
    ------
    ValueError
        If the folder is a file, contains other files, or the path of another problem.
    ModelFileError
        If a file is damaged.
    """

    def __init__(self, folder, fingerprint):
        check_file("checkpoint", folder)
        check_no_loop(folder)
        self.folder, self.pace = Path(folder), Pace()
        self._unwritten = {}  # breakpoints to be written before the next state
        self.problem_file = self.folder / "problem.fm4n"
        self.state_file = self.folder / "state.fm4n"
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint={str(folder)!r} is a file. Name a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in self.folder.glob(".fastm4n-*.tmp"):
            file.unlink()  # left by a killed process
        if self.problem_file.exists():
            header, _ = read_arrays(self.problem_file, _PROBLEM)
            check_fingerprint(self.folder, header, fingerprint, "problem")
        elif any(self.folder.iterdir()):
            raise ValueError(
                f"checkpoint={str(folder)!r} contains files, but no path. Name an empty folder.")
        else:
            write_arrays(self.problem_file, _PROBLEM, {"fingerprint": fingerprint}, {})

    def read(self, restore):
        """Points, weights, seconds, and seconds since the last point, or None without a state.

        `restore` is called with the arrays of the state.
        """
        if not self.state_file.exists():
            return None
        header, arrays = read_arrays(self.state_file, _STATE, finite=False)
        points, weights, seconds = [], [], []
        try:
            with understood(self.state_file, "checkpoint"):
                for j in range(header["n_breakpoints"]):
                    _, found = read_arrays(self._file(j), _BREAKPOINT)
                    points.append(Breakpoint.of_numbers(found.pop("numbers").tolist()))
                    seconds.append(float(found.pop("seconds")))
                    weights.append(found)
                restore(arrays)
                return points, weights, seconds, float(header["seconds"])
        except FileNotFoundError as error:
            raise ModelFileError(f"{error.filename} is missing from the checkpoint.") from error

    def add(self, j, point, weights, seconds):
        """Queue breakpoint j, to be written just before the next state."""
        self._unwritten[j] = {"numbers": point.numbers(), "seconds": np.float64(seconds), **weights}

    def write_state(self, n_breakpoints, state, seconds=0.0):
        """Write ``state()``, taken `seconds` after the last of `n_breakpoints`."""
        with self.pace.writing():
            header, arrays = {"n_breakpoints": n_breakpoints, "seconds": seconds}, state()
            with self.pace.sparing(self.folder):
                for j in list(self._unwritten):
                    write_arrays(self._file(j), _BREAKPOINT, {}, self._unwritten[j])
                    del self._unwritten[j]
                write_arrays(self.state_file, _STATE, header, arrays, finite=False)

    def _file(self, j):
        return self.folder / f"breakpoint-{j:05d}.fm4n"
