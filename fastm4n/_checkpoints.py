"""Checkpoints of regularisation paths: a folder that holds what was finished."""

from pathlib import Path

import numpy as np

from fastm4n.model_files import ModelFileError, read_arrays, write_arrays
from fastm4n.solvers.path import Breakpoint

_PROBLEM, _BREAKPOINT, _STATE = "path problem", "path breakpoint", "path state"


class Checkpoint:
    """A folder with a file for the problem, one for each breakpoint, and one for the state.

    The state is that of the solver; it names the number of breakpoints, and is written after the
    last of them.

    Parameters
    ----------
    folder : str or path
    fingerprint : dict of str
        A short text for each thing that the breakpoints depend on.

    Raises
    ------
    ValueError
        If the folder is none, holds other files, or the path of another problem.
    ModelFileError
        If a file is damaged.
    """

    def __init__(self, folder, fingerprint):
        self.folder = Path(folder)
        self.problem_file = self.folder / "problem.fm4n"
        self.state_file = self.folder / "state.fm4n"
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"checkpoint={str(folder)!r} is a file; give a folder.")
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.problem_file.exists():
            header, _ = read_arrays(self.problem_file, _PROBLEM)
            found = header.get("fingerprint")
            if type(found) is not dict:
                raise ModelFileError(f"{self.problem_file} holds no fingerprint.")
            other = [name for name in fingerprint if found.get(name) != fingerprint[name]]
            if other:
                verb = "is" if len(other) == 1 else "are"
                raise ValueError(
                    f"checkpoint={str(folder)!r} is of another problem: {', '.join(other)} {verb} "
                    "not what it was begun with. Give another folder, or delete this one."
                )
        elif any(self.folder.iterdir()):
            raise ValueError(
                f"checkpoint={str(folder)!r} has files in it, but none of a path; give an empty "
                "folder, or a new one."
            )
        else:
            write_arrays(self.problem_file, _PROBLEM, {"fingerprint": fingerprint}, {})

    def read(self, form):
        """State, points, weights and seconds, or None where nothing was finished.

        form is a state of the same problem.
        """
        if not self.state_file.exists():
            return None
        header, arrays = read_arrays(self.state_file, _STATE, finite=False)
        points, weights, seconds = [], [], []
        try:
            for j in range(header["n_breakpoints"]):
                _, found = read_arrays(self._file(j), _BREAKPOINT)
                *numbers, passes, calls = found.pop("numbers").tolist()
                points.append(Breakpoint(*numbers, int(passes), int(calls)))
                seconds.append(float(found.pop("seconds")))
                weights.append(found)
            return _nested(form, "state", arrays), points, weights, seconds
        except FileNotFoundError as error:
            raise ModelFileError(f"{error.filename} is missing from the checkpoint.") from error
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"{self.state_file} makes no sense: {error}.") from error

    def write(self, j, point, weights, seconds):
        write_arrays(self._file(j), _BREAKPOINT, {}, {
            "numbers": point.numbers(), "seconds": np.float64(seconds), **weights,
        })

    def write_state(self, n_breakpoints, state):
        write_arrays(
            self.state_file, _STATE, {"n_breakpoints": n_breakpoints}, _flat(state, "state"),
            finite=False,
        )

    def _file(self, j):
        return self.folder / f"breakpoint-{j:05d}.fm4n"


def _flat(state, name):
    """Arrays by name, of nested dicts and tuples of arrays; None is left out."""
    if state is None:
        return {}
    if isinstance(state, dict):
        parts = state.items()
    elif isinstance(state, (tuple, list)):
        parts = enumerate(state)
    else:
        return {name: state.view(np.uint8) if state.dtype.names else state}
    return {
        key: array for part, inner in parts for key, array in _flat(inner, f"{name}/{part}").items()
    }


def _nested(form, name, arrays):
    """The state of that form from arrays by name."""
    if form is None:
        return None
    if isinstance(form, dict):
        return {part: _nested(inner, f"{name}/{part}", arrays) for part, inner in form.items()}
    if isinstance(form, (tuple, list)):
        return tuple(_nested(inner, f"{name}/{part}", arrays) for part, inner in enumerate(form))
    array = arrays[name]
    if form.dtype.names:
        return array.view(form.dtype)
    if array.dtype != form.dtype or array.ndim != form.ndim:
        raise ValueError(f"{name} has dtype {array.dtype} and {array.ndim} dimensions")
    return array
