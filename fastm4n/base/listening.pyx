"""Who listens to compiled loops: see `interrupts`."""

from threading import get_ident

from fastm4n.base.interrupts import listeners


cdef class Listening:
    """Within a `with` statement, compiled loops of this thread call a function.

    A class of C, as Ctrl-C comes between instructions of Python: at the first one of an `__exit__`
    in Python it would leave the listener of a search or fit that is over to all later ones.

    Parameters
    ----------
    listen : callable
    ended : callable, default=None
        Called at the end, when the listener from before is back, with the type of the exception,
        or None. The exception goes no further where it returns true.
    """

    cdef object listen, ended, thread, before

    def __init__(self, listen, ended=None):
        self.listen, self.ended = listen, ended

    def __enter__(self):
        self.thread = get_ident()
        self.before = listeners.get(self.thread)
        listeners[self.thread] = self.listen
        return self

    def __exit__(self, error, *_):
        if self.before is None:
            listeners.pop(self.thread, None)
        else:
            listeners[self.thread] = self.before
        return self.ended is not None and bool(self.ended(error))
