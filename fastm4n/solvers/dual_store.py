"""Files of fits by chunks: dual points, and arrays made of the data.

In a `work_folder` each chunk has two files of dual points. One is written over only if
no committed state refers to it: a process that is killed at any moment, or a disk that is full,
leaves all that the last committed state is made of. All else is in files without a name, which the
system removes however the process ends.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import numpy as np

from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays
from fastm4n.base.atomic import check_no_loop
from fastm4n.solvers.monitor import FIT, FitCheckpoint

try:
    import fcntl
except ImportError:  # Windows: nothing tells two fits in one folder apart
    fcntl = None

STATE, LOCK = "fastm4n-fit.fm4n", "fastm4n-fit.lock"
# what the last call of `partial_fit` has ended with
ENDED = "fastm4n-ended.fm4n"
_CHUNKS = "fastm4n-dual-*.bin"
_CALL = "call of partial_fit"
# bytes that are written by one call
AT_ONCE = 1 << 24
# where arrays begin in files without a name, and where groups of them do
ALIGNED, PAGE = 64, 4096


def _write(file, part):
    """Write all of a contiguous array, or of bytes, to an unbuffered file."""
    view = memoryview(part)
    view = view.cast("B") if view.nbytes else b""
    while view:
        view = view[file.write(view[:AT_ONCE]) :]


class Scratch:
    """A file without a name, deleted with the process. Threads may share it.

    Parameters
    ----------
    folder : path
        The folder of its disk space.
    """

    def __init__(self, folder):
        self._file = tempfile.TemporaryFile(prefix="fastm4n-", dir=folder, buffering=0)
        self._lock = Lock()
        # of each key where its arrays begin and how much room they have, and what they are
        self._places, self._end = {}, 0

    def write_at(self, at, array):
        """Have the bytes of a contiguous array from there on."""
        with self._lock:
            self._file.seek(at)
            _write(self._file, array)

    def read_at(self, at, array):
        """Fill a contiguous array from this position."""
        view = memoryview(array).cast("B") if array.size else b""
        with self._lock:
            self._file.seek(at)
            while view:
                n = self._file.readinto(view)
                if not n:
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                view = view[n:]
        return array

    def write(self, key, arrays):
        """Store these arrays by name under a key, replacing its former arrays."""
        head, n_bytes = [], 0
        for name, array in arrays.items():
            head.append((name, array.dtype, array.shape, n_bytes))
            n_bytes += -(-array.nbytes // ALIGNED) * ALIGNED
        with self._lock:
            at, room, _ = self._places.get(key, (0, -1, None))
            if n_bytes > room:
                # twice what grows: what is left behind is then no more than what is kept
                at, room = self._end, -(-max(n_bytes, 2 * room) // PAGE) * PAGE
                self._end += room
                # what no array fills can be read all the same
                self._file.truncate(self._end)
        for (_, _, _, begin), array in zip(head, arrays.values(), strict=True):
            self.write_at(at + begin, np.ascontiguousarray(array))
        self._places[key] = at, room, head

    def read(self, key):
        """The arrays of `write` in one new buffer, or None."""
        at, _, head = self._places.get(key, (0, 0, None))
        if head is None:
            return None
        last = head[-1]
        n_bytes = last[3] + last[1].itemsize * int(np.prod(last[2], dtype=np.int64))
        buffer = self.read_at(at, np.empty(n_bytes, dtype=np.uint8))
        return {
            name: np.ndarray(shape, dtype, buffer, begin) for name, dtype, shape, begin in head}

    def keys(self):
        return self._places.keys()

    def forget(self, key):
        """Remove the arrays of this key. Others may take their place."""
        if key in self._places:
            self._places[key] = *self._places[key][:2], None

    def close(self):
        self._file.close()

    def __del__(self):
        # of an estimator that goes, with what its calls of `partial_fit` have left
        if "_file" in vars(self):
            self.close()


class DualStore:
    """Storage of chunks between visits.

    Parameters
    ----------
    folder : str or path, default=None
        Made if it is not there. By default all is in files without a name, where the system has
        those.

    Attributes
    ----------
    folder : path
    is_lasting : bool
        Whether the folder is a `work_folder`, from which a later process can continue.
    slots : ndarray of int8 of shape (n_chunks,)
        The current one of the two files of each chunk, -1 before the first write.
    checks : ndarray of uint32 of shape (n_chunks,)
        CRC-32 of that file.
    ended : tuple (dict, dict) or None
        Header and arrays of what the last call of `partial_fit` in this folder has ended with.
    n_calls : int
        Calls that have ended with this store, by which copies of an estimator tell whose it is.
    """

    def __init__(self, folder=None):
        self.is_lasting = folder is not None
        self.folder = Path(folder if self.is_lasting else tempfile.gettempdir())
        self._lock = None
        self.n_calls = 0
        self.enter()
        self._scratch = []
        self._arrays = self.scratch()
        self.slots = self.checks = np.zeros(0)

    def scratch(self):
        """A temporary file, closed with the store."""
        self._scratch.append(Scratch(self.folder))
        return self._scratch[-1]

    def _take(self):
        """Lock the folder. One that another process uses is an error."""
        check_no_loop(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise type(error)(
                f"work_folder={str(self.folder)!r} is, or is in, a file: give a folder."
            ) from error
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

    def _read_ended(self):
        if (self.folder / ENDED).exists():
            try:
                self.ended = read_arrays(self.folder / ENDED, _CALL, finite=False)
                if (self.folder / STATE).exists():
                    header, _ = read_arrays(self.folder / STATE, FIT, finite=False)
                    if header.get("fingerprint") == self.ended[0].get("fingerprint"):
                        # killed between the two lines of `end`
                        (self.folder / STATE).unlink()
            except BaseException:
                self.leave()
                raise

    def end(self, header, arrays):
        """Keep what a call of `partial_fit` has ended with, and all that it refers to."""
        self.flush()
        with self.explained():
            write_arrays(self.folder / ENDED, _CALL, header, arrays, finite=False)
        self.commit()
        (self.folder / STATE).unlink(missing_ok=True)

    def leave(self):
        """Let others into the folder until `enter`."""
        self.ended = None
        if self._lock is not None:
            self._lock.close()

    def detach(self):
        """Leave the folder for good: nothing lasts from now on."""
        self.leave()
        self.is_lasting = False

    def enter(self):
        """Lock the folder, and read the end of the last call."""
        self.ended = None
        if self.is_lasting:
            self._take()
            self._read_ended()

    def begin(self, n_chunks):
        """Have this many chunks, none of them written.

        The files of the last call of `partial_fit` are overwritten only after a later state is on
        disk.
        """
        self.slots = np.full(n_chunks, -1, dtype=np.int8)
        self.checks = np.zeros(n_chunks, dtype=np.uint32)
        self._committed = self.slots.copy()
        if self.ended is not None:
            slots = self.ended[1]["left/slots"][:n_chunks]
            self._committed[: slots.size] = slots
            self.ended = None

    def go_on(self, slots, checks):
        """Have the first chunks where an earlier call has left them."""
        self.slots[: slots.size], self.checks[: slots.size] = slots, checks

    def path(self, c, slot):
        return self.folder / f"fastm4n-dual-{c:06d}-{slot}.bin"

    @contextmanager
    def explained(self):
        """Errors of the system name the remaining state."""
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
        if not self.is_lasting:
            with self.explained():
                self._arrays.write(("dual", c), arrays)
            self.slots[c] = 0
            return
        slot = 1 - self._committed[c] if self._committed[c] >= 0 else 0
        head = json.dumps([
            [name, array.dtype.str, array.shape] for name, array in arrays.items()]).encode()
        parts = [len(head).to_bytes(8, "little"), head]
        parts += [memoryview(array).cast("B") for array in arrays.values() if array.size]
        check = 0
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)
        with self.explained(), open(
            # not emptied first: blocks that the file has are written over
            os.open(self.path(c, slot), flags, 0o666), "wb", buffering=0,
        ) as file:
            for part in parts:
                check = zlib.crc32(part, check)
                _write(file, part)
            file.truncate()
        self.slots[c], self.checks[c] = slot, check

    def read(self, c):
        """The arrays of `write`, or None if there are none.

        Raises
        ------
        ModelFileError
            If the file is damaged.
        """
        if self.slots[c] < 0:
            return None
        if not self.is_lasting:
            return self._arrays.read(("dual", c))
        path = self.path(c, self.slots[c])
        damaged = ModelFileError(
            f"{path} is missing, cut short or damaged. Remove the files of {self.folder} (not its "
            "folders, if there are), and the fit begins anew.")
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

    def keep(self, c, arrays):
        """Store arrays made of the data of chunk c, for this process."""
        with self.explained():
            self._arrays.write(("data", c), arrays)

    def kept(self, c):
        """The arrays of `keep`, or None."""
        return self._arrays.read(("data", c))

    def forget(self, first):
        """Keep nothing of the data of that chunk and later ones."""
        for kind, c in list(self._arrays.keys()):
            if kind == "data" and c >= first:
                self._arrays.forget((kind, c))

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
        for file in self._scratch:
            file.close()
        if not self.is_lasting:
            return
        if done:
            # the state first: it refers to the others
            for path in [self.folder / STATE, *self.folder.glob(_CHUNKS)]:
                path.unlink(missing_ok=True)
        self._lock.close()
        if done:
            (self.folder / LOCK).unlink(missing_ok=True)


# in the fingerprint of the state of a fit that has returned
_RETURNED = "has returned"


class ChunkCheckpoint(FitCheckpoint):
    """The state of a fit whose dual points are in a `DualStore`: all but these, in one file.

    The state of another fit is replaced if that has returned.

    Parameters
    ----------
    store : DualStore
        With a folder that lasts.
    wanted : dict
        Fingerprint of the fit.
    keeps_end : bool
        Whether a fit that ends before `tol` can be continued.
    """

    def __init__(self, store, wanted, keeps_end):
        file = store.folder / STATE
        if file.exists():
            found = read_arrays(file, FIT, finite=False)[0].get("fingerprint")
            if type(found) is dict and _RETURNED in found and found != {**wanted, _RETURNED: "yes"}:
                file.unlink()
        super().__init__(file, wanted)
        self.store, self.keeps_end = store, keeps_end

    def end(self, driver, history, tol):
        """Write the state of a fit that returns with a larger gap than tol."""
        certificate = driver.certificate
        if self.keeps_end and certificate is not None and certificate.gap > tol:
            self.fingerprint = {**self.fingerprint, _RETURNED: "yes"}
            self.pace.due = -np.inf
            self.keep(driver, history)

    def keep(self, driver, history):
        """Write the state, if it is time."""
        if not self.pace.is_due():
            return
        self.store.flush()
        super().keep(driver, history)
        self.store.commit()

    def saving(self):
        """Errors end the fit: without its work folder it has no dual point."""
        return self.store.explained()
