"""Fits by chunks that are killed while dual points are written."""

from contextlib import contextmanager

import numpy as np

from fastm4n.solvers.dual_store import DualStore


class Killed(BaseException):
    """The end of a process, as far as that goes within one."""


@contextmanager
def writing_kills(monkeypatch, after, leaves_a_part=False):
    """What writes more than so many chunks is killed, and may leave a part of the next one."""
    write, left = DualStore.write, [after]

    def written(self, c, arrays):
        left[0] -= 1
        if left[0] < 0:
            if leaves_a_part:
                write(self, c, {name: array[:1] for name, array in arrays.items()})
            raise Killed
        write(self, c, arrays)

    with monkeypatch.context() as patched:
        patched.setattr(DualStore, "write", written)
        yield


def fit_until_it_ends(model, X, y, monkeypatch):
    """Fits that are killed at random moments, until one is not; how many were."""
    rng, kills = np.random.default_rng(0), 0
    while True:
        with writing_kills(monkeypatch, int(rng.integers(0, 24)), leaves_a_part=True):
            try:
                model.fit(X, y)
                return kills
            except Killed:
                kills += 1
