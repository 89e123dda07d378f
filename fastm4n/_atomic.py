"""Files that are written whole or not at all."""

import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path):
    """Give a binary file beside `path` that takes its place when the block ends well.

    Until then, and for good if the block fails, what was at `path` stays as it was. The data are
    on disk before the name is changed. A link is followed, the mode of an older file is kept.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    OSError
        With `path` as its file name, whatever file the system complained of.
    """
    target = Path(path).resolve()
    temporary = target.with_name(f".fastm4n-{secrets.token_hex(8)}.tmp")
    try:
        if target.exists() and not target.is_file():
            # replacing a device such as /dev/null would take it from the system
            raise OSError(0, "not a regular file", str(path))
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        if error.strerror is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def _sync_folder(folder):
    """Have the new name on disk too, where the system lets folders be opened."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
