"""Fits by chunks that are killed: while dual points are written, and by signals."""

import os
import signal
import time
from contextlib import contextmanager

import numpy as np
from numpy.testing import assert_array_equal
from processes import started

from fastm4n.solvers import dual_store
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


def assert_sigkill_changes_no_bit(program, folder):
    """A program that was killed ends with the bits of one that was left alone.

    Its arguments are a work folder, the npz file of what it finds, and the folder of the tests.
    """
    def process(work, out):
        return started(
            program, folder / work, folder / out, os.path.dirname(__file__), cwd=folder)

    with process("work", "alone.npz") as alone:
        assert alone.wait(200) == 0, alone.stderr.read()
    killed = False
    with process("killed", "killed.npz") as one:
        state = folder / "killed" / dual_store.STATE
        # importing takes longer than all the rest
        while one.poll() is None and not state.exists():
            time.sleep(0.005)
        time.sleep(0.05)
        if one.poll() is None:
            one.send_signal(signal.SIGKILL)
            killed = True
        one.wait(200)
    with process("killed", "killed.npz") as last:
        assert last.wait(200) == 0, last.stderr.read()
    assert killed
    with np.load(folder / "alone.npz") as a, np.load(folder / "killed.npz") as b:
        assert a.files == b.files and "gap" in a.files
        for name in a.files:
            assert_array_equal(a[name], b[name])
