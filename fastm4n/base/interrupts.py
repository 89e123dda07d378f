"""What compiled loops ask Python now and then: whether to stop, and whether there is a word to say.

Signals come to the main thread alone: other threads of ours are told here that they are to stop.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# identifiers of threads whose compiled loops end with KeyboardInterrupt at their next look
stopped: set[int] = set()
# by the thread whose compiled loops call it, about every 50 ms
listeners: dict[int, Callable[[], None]] = {}


def ask() -> None:
    """Raise KeyboardInterrupt in a thread that is to stop; `interrupts.pxd` calls it."""
    thread = get_ident()
    if thread in stopped:
        raise KeyboardInterrupt
    listener = listeners.get(thread)
    if listener is not None:
        listener()
