"""Atomic writes of files and folders: complete or not at all."""

import errno
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


def check_no_loop(path):
    """Raise the OSError of a circle of links at `path`."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise


def resolved(path):
    """The absolute path without links. A circle of links is an error."""
    check_no_loop(path)
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path):
    """Open a temporary binary file that replaces `path` when the block ends without an error.

    If the block fails, `path` does not change. The data are on disk before the name changes. Links
    are followed, and an existing file keeps its mode. Temporary files of killed processes for the
    same target are removed.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    OSError
        With `path` as its file name, instead of the temporary file.
    """
    target = resolved(path)
    prefix = _prefix(target)
    temporary = file = None
    try:
        if target.exists() and not target.is_file():
            # renaming would remove a device such as /dev/null
            raise OSError(0, "not a regular file", str(path))
        _remove_abandoned(target.parent, prefix)
        temporary, file = _locked_file(target.parent, prefix)
        yield file
        file.flush()
        os.fsync(file.fileno())
        if fcntl is None:
            file.close()  # Windows renames no open file; elsewhere it stays locked until the end
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
            with suppress(OSError):  # another error is on its way
                file.close()
            temporary.unlink(missing_ok=True)


def probe(path):
    """Raise the error of `replacing` in advance if no file can be made at `path`."""
    with suppress(_Probed), replacing(path):
        raise _Probed


class _Probed(Exception):
    """A file could be made."""


@contextmanager
def replacing_folder(path, overwrite, check_replaceable):
    """Make an empty folder that replaces `path` when the block ends without an error.

    If the block fails, `path` does not change. The block must flush its files to disk (fsync).

    Parameters
    ----------
    path : str or path
    overwrite : bool
        Whether to replace an existing folder. Empty folders are always replaced.
    check_replaceable : callable
        Called with the path of a folder to replace. It raises an error to prevent this.
    """
    target = resolved(path)
    prefix = _prefix(target)
    aside = target.parent / f"{prefix}replaced"

    def occupied():
        if not os.path.lexists(target) or (target.is_dir() and not any(target.iterdir())):
            return False
        if not overwrite:
            raise FileExistsError(
                f"{path} is there already: give another name, or overwrite=True.")
        check_replaceable(target)
        return True

    occupied()
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {str(target.parent)!r} to put it in.")
    _remove_abandoned(target.parent, prefix)
    temporary, file = _locked_file(target.parent, prefix)
    folder = temporary.with_suffix("")
    try:
        folder.mkdir()
        yield folder
        _sync_folder(folder)
        if occupied():
            # the old folder has another name until the new one is in its place
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(target, aside)
        elif target.is_dir():
            target.rmdir()
        try:
            os.rename(folder, target)
        except OSError:
            if aside.exists() and not target.exists():
                os.rename(aside, target)
            raise
        _sync_folder(target.parent)
        if overwrite:
            shutil.rmtree(aside, ignore_errors=True)
    finally:
        file.close()
        shutil.rmtree(folder, ignore_errors=True)
        temporary.unlink(missing_ok=True)


def left_aside(path):
    """The former folder at `path` after an interrupted replacement, or None."""
    target = resolved(path)
    aside = target.parent / f"{_prefix(target)}replaced"
    return aside if aside.exists() else None


def _prefix(target):
    """The prefix of temporary files of one target, of bounded length."""
    return f".fastm4n-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


def _locked_file(folder, prefix):
    """The path and file object of a new file, locked until it is closed or this process ends."""
    while True:
        path = folder / f"{prefix}{secrets.token_hex(8)}.tmp"
        file = open(path, "xb")
        if fcntl is not None:
            with suppress(OSError):  # without locks in the file system, nothing is removed either
                fcntl.flock(file, fcntl.LOCK_EX)
        if path.exists():
            return path, file
        file.close()  # another process removed it before it was locked


def _remove_abandoned(folder, prefix):
    """Remove files of `_locked_file`, and their folders, of processes that have ended."""
    if fcntl is None:
        return
    for path in folder.glob(f"{prefix}*.tmp"):
        with suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()


def _sync_folder(folder):
    """Flush a new name to disk, if the system can open folders."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
