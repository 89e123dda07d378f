"""Threads of ours that are to stop: signals come to the main thread alone."""

from __future__ import annotations

from threading import get_ident

# identifiers of threads whose compiled loops end with KeyboardInterrupt at their next look
stopped: set[int] = set()


def ask() -> None:
    """Raise KeyboardInterrupt in a thread that is to stop; `_interrupts.pxd` calls it."""
    if get_ident() in stopped:
        raise KeyboardInterrupt
