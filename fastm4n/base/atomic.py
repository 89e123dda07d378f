"""Files, and folders of files, that are written whole or not at all."""

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
    """Raise the OSError that names `path` where its links go in a circle."""
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise


def resolved(path):
    """The absolute path without links, which must not go in a circle."""
    check_no_loop(path)
    return Path(os.path.realpath(path))


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
    target = resolved(path)
    prefix = _prefix(target)
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


def probe(path):
    """Raise at once the error of `replacing` where no file can be made at `path`."""
    with suppress(_Probed), replacing(path):
        raise _Probed


class _Probed(Exception):
    """A file could be made."""


@contextmanager
def replacing_folder(path, overwrite, check_replaceable):
    """Give an empty folder beside `path` that takes its name when the block ends well.

    As `replacing`, of a folder: until then, and for good if the block fails, what was at `path`
    stays as it was. The files in it are to be on disk (fsync) when the block ends.

    Parameters
    ----------
    path : str or path
    overwrite : bool
        Whether a folder that is there is replaced. An empty one always is.
    check_replaceable : callable
        Takes the path of a folder that is to be replaced, and raises an error if it must not be.
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
            # the old one keeps its contents under another name until the new one is in its place
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
    """What a folder at `path` held before a replacement that was killed half way, or None."""
    target = resolved(path)
    aside = target.parent / f"{_prefix(target)}replaced"
    return aside if aside.exists() else None


def _prefix(target):
    """How the names of temporary files of one target begin, however long its name is."""
    return f".fastm4n-{hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]}-"


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
    """Remove the files of `_locked_file`, and their folders, whose processes are dead."""
    if fcntl is None:
        return
    for path in folder.glob(f"{prefix}*.tmp"):
        with suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)
            path.unlink()


def _sync_folder(folder):
    """Have the new name on disk too, where the system lets folders be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
