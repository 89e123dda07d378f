"""Files that are written whole or not at all."""

import hashlib
import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: what killed processes leave stays
    fcntl = None


@contextmanager
def replacing(path):
    """Give a binary file beside `path` that takes its place when the block ends well.

    Until then, and for good if the block fails, what was at `path` stays as it was. The data are
    on disk before the name is changed. A link is followed, the mode of an older file is kept. What
    processes that were killed left of the same target is removed.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    OSError
        With `path` as its file name, whatever file the system complained of.
    """
    target = Path(path).resolve()
    # of one target, however long its name is
    prefix = f".fastm4n-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"
    temporary = file = None
    try:
        if target.exists() and not target.is_file():
            # replacing a device such as /dev/null would take it from the system
            raise OSError(0, "not a regular file", str(path))
        _remove_abandoned(target.parent, prefix)
        temporary, file = _locked_file(target.parent, prefix)
        yield file
        file.flush()
        os.fsync(file.fileno())
        if fcntl is None:
            file.close()  # Windows renames no open file; elsewhere it stays locked until it is done
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        if file is not None:
            with suppress(OSError):  # what could not be written before cannot be now
                file.close()
            temporary.unlink(missing_ok=True)


def _locked_file(folder, prefix):
    """A new file that is locked until it is closed or this process dies: its path and itself."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(8)}.tmp"
        file = open(path, "xb")
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks, where nothing is removed either
                fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return path, file
        file.close()  # another process took it for abandoned before it was locked


def _remove_abandoned(folder, prefix):
    """Remove the files of `_locked_file` whose processes are dead."""
    if fcntl is None:
        return
    for path in folder.glob(f"{prefix}*.tmp"):
        with suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _sync_folder(folder):
    """Have the new name on disk too, where the system lets folders be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
