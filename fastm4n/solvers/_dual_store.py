"""Dual points on disk, chunk by chunk: two files each, so that what was committed stays.

A file of a chunk is written over only if no committed state refers to it: a process that is killed
at any moment, or a disk that is full, leaves all that the last committed state is made of.
"""

import errno
import json
import os
import shutil
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fastm4n._checkpoints import FitCheckpoint
from fastm4n.model_files import ModelFileError

try:
    import fcntl
except ImportError:  # Windows: nothing tells two fits in one folder apart
    fcntl = None

STATE, LOCK, CODES = "fastm4n-fit.fm4n", "fastm4n-fit.lock", "fastm4n-labels.bin"
_CHUNKS = "fastm4n-dual-*.bin"


class DualStore:
    """What is kept of each chunk between its visits, in a folder.

    Parameters
    ----------
    folder : str or path, default=None
        Made if it is not there; a temporary one by default, which goes when the store is closed.

    Attributes
    ----------
    folder : path
    is_lasting : bool
        Whether the folder was given, so that a later process may go on with what is there.
    slots : ndarray of int8 of shape (n_chunks,)
        Which of its two files a chunk is in; -1 before it is first written.
    checks : ndarray of uint32 of shape (n_chunks,)
        CRC-32 of that file.
    """

    def __init__(self, folder=None):
        self.is_lasting = folder is not None
        self._temporary = self._lock = None
        if folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fastm4n-")
            self.folder = Path(self._temporary.name)
        else:
            self.folder = Path(folder)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take()
        self.slots = self.checks = np.zeros(0)

    def _take(self):
        """Refuse a folder in which another process is at work."""
        self._lock = open(self.folder / LOCK, "ab")
        if fcntl is None:
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ValueError(
                f"work_folder={str(self.folder)!r} is in use by another fit; give each its own."
            ) from None
        except OSError:
            pass  # a file system without locks

    def begin(self, n_chunks):
        """Have this many chunks, none of them written."""
        self.slots = np.full(n_chunks, -1, dtype=np.int8)
        self.checks = np.zeros(n_chunks, dtype=np.uint32)
        self._committed = self.slots.copy()

    def path(self, c, slot):
        return self.folder / f"fastm4n-dual-{c:06d}-{slot}.bin"

    @contextmanager
    def explained(self):
        """Errors of the system say what is still there."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise
            kept = (
                " What was committed before is whole: free some space and fit again, it goes on "
                "from there." if (self.folder / STATE).exists() else " Give another work_folder.")
            raise OSError(
                error.errno, f"{os.strerror(error.errno)} in the work folder.{kept}",
                str(self.folder)) from error

    def write(self, c, arrays):
        """Keep these arrays, by name, of chunk c."""
        slot = 1 - self._committed[c] if self._committed[c] >= 0 else 0
        head = json.dumps([
            [name, array.dtype.str, array.shape] for name, array in arrays.items()]).encode()
        parts = [len(head).to_bytes(8, "little"), head]
        parts += [memoryview(array).cast("B") for array in arrays.values() if array.size]
        check = 0
        with self.explained(), open(self.path(c, slot), "wb", buffering=0) as file:
            for part in parts:
                check = zlib.crc32(part, check)
                view = memoryview(part)
                while view:
                    view = view[file.write(view[: 1 << 24]) :]
        self.slots[c], self.checks[c] = slot, check

    def read(self, c):
        """The arrays of `write`, or None if there are none.

        Raises
        ------
        ModelFileError
            If the file is not what was written.
        """
        if self.slots[c] < 0:
            return None
        path = self.path(c, self.slots[c])
        damaged = ModelFileError(
            f"{path} is missing, cut short or damaged. Remove the files of {self.folder}, and the "
            "fit begins anew.")
        arrays = {}
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                first = file.read(8)
                n_head = int.from_bytes(first, "little")
                if n_head > size:
                    raise damaged
                head = file.read(n_head)
                check = zlib.crc32(head, zlib.crc32(first))
                read = 8 + n_head
                for name, dtype, shape in json.loads(head):
                    dtype = np.dtype(dtype)
                    read += dtype.itemsize * int(np.prod(shape, dtype=np.int64))
                    if read > size:
                        raise damaged
                    arrays[name] = array = np.empty(shape, dtype=dtype)
                    if array.size:
                        file.readinto(memoryview(array).cast("B"))
                        check = zlib.crc32(memoryview(array).cast("B"), check)
        except (FileNotFoundError, ValueError, TypeError) as error:
            raise damaged from error
        if check != self.checks[c] or read != size:
            raise damaged
        return arrays

    def flush(self):
        """Have all files of the present state on disk."""
        for c in np.flatnonzero(self.slots != self._committed):
            descriptor = os.open(self.path(c, self.slots[c]), os.O_RDWR)
            try:
                with self.explained():
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def commit(self):
        """The state that is on disk refers to the files of `slots` from now on."""
        self._committed = self.slots.copy()

    def restore(self, slots, checks):
        """Take up the files that a committed state refers to."""
        if slots.shape != self.slots.shape or not np.isin(slots, (-1, 0, 1)).all():
            raise ValueError("the chunks are others.")
        self.slots, self.checks = slots.astype(np.int8), checks.astype(np.uint32)
        self.commit()

    def close(self, done):
        """Leave the folder; done: nothing of it is needed any more."""
        if self._temporary is not None:
            self._temporary.cleanup()
            return
        if done:
            for path in [*self.folder.glob(_CHUNKS), self.folder / STATE, self.folder / CODES]:
                path.unlink(missing_ok=True)
        self._lock.close()
        if done:
            (self.folder / LOCK).unlink(missing_ok=True)


class ChunkCheckpoint(FitCheckpoint):
    """The state of a fit whose dual points are in a `DualStore`: all but these, in one file.

    Parameters
    ----------
    store : DualStore
        With a folder that lasts.
    wanted : dict
        Fingerprint of the fit.
    """

    def __init__(self, store, wanted):
        super().__init__(store.folder / STATE, wanted)
        self.store = store

    def keep(self, driver, history):
        """Write the state, if it is time."""
        if not self.pace.is_due():
            return
        self.store.flush()
        with self.store.explained():
            super().keep(driver, history)
        self.store.commit()


def free_space(folder):
    """Bytes that are free where the folder is, or will be."""
    folder = Path(folder).absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
