"""Available memory, and errors in advance if it is too small."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fastm4n.base.types import FloatArray

try:
    import resource
except ImportError:  # Windows
    resource = None

# bytes. Smaller requests are not checked
LITTLE = 1 << 28
_PROC, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available() -> int | None:
    """Bytes that this process can still allocate, or None if unknown."""
    left = [n for n in (_of_machine(), *_of_groups(), _of_limit()) if n is not None]
    return max(0, min(left)) if left else None


def fits(n_bytes: float) -> bool:
    """Whether so many bytes can be allocated, as far as is known."""
    there = None if n_bytes <= LITTLE else available()
    return there is None or n_bytes <= there


def refuse_beyond_memory(what: str, n_bytes: float, remedy: str) -> None:
    """Raise a MemoryError before an allocation of more bytes than are available.

    Parameters
    ----------
    what : str
        Name of the data, in the plural.
    n_bytes : float
    remedy : str
    """
    if n_bytes <= LITTLE:
        return
    there = available()
    if there is not None and n_bytes > there:
        raise MemoryError(
            f"{what} take {n_bytes / 2**30:.3g} GiB of memory, and {there / 2**30:.3g} GiB are "
            f"available: {remedy}.")


def zeros(what: str, shape: tuple[int, int], remedy: str) -> FloatArray:
    """An array of zeros of the shape, after `refuse_beyond_memory`."""
    rows, columns = shape
    refuse_beyond_memory(f"{what}, {rows} x {columns} numbers,", 8 * rows * columns, remedy)
    return np.zeros(shape)


def _of_machine():
    try:
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_groups():
    """Bytes within the limits of control groups, also of containers."""
    try:
        lines = (_PROC / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, name = (line + "::").split(":", 2)
        name = name.removesuffix("::")
        if kinds and "memory" not in kinds.split(","):
            continue
        root, most, now, cache = (_GROUPS, "memory.max", "memory.current", "inactive_file") if (
            not kinds) else (
            _GROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
            "total_inactive_file")
        place = root / name.lstrip("/")
        # in a container the name may be one outside of it
        for folder in (place, *place.parents, root):
            if folder != root and root not in folder.parents:
                continue
            try:
                limit = int((folder / most).read_text())
                used = int((folder / now).read_text())
                stat = dict(map(str.split, (folder / "memory.stat").read_text().splitlines()))
                yield limit - used + int(stat.get(cache, 0))
            except (OSError, ValueError):  # "max", or not there
                continue


def _of_limit():
    """Bytes within RLIMIT_AS."""
    if resource is None:
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        pages = int((_PROC / "self" / "statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return limit
    return limit - pages * resource.getpagesize()
