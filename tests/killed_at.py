"""Programs that are killed before each of their operations on files in turn."""

import gc
import os
import sys

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
# of os.open: a file that is opened without them is as it was
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# what a process ends with when it was killed, and when it failed
KILLED, FAILED = 77, 78


def _is_within(folder, path):
    try:
        return os.fspath(path).startswith(folder)
    except TypeError:  # a number, or no path
        return False


def forked(run, folder, kill_at=sys.maxsize):
    """Call run() in a fork that ends before its operation of that number; whether it was reached.

    Operations that change files in the folder count: a kill before one that reads leaves what a
    kill before the next change leaves. Every fsync is left out, as no power fails.
    """
    gc.freeze()  # the pages of what is there stay shared
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, KILLED), f"operation {kill_at}: the process ended with {status}"
        return status == KILLED
    left, folder = [kill_at], str(folder)

    def heard(event, args):
        if event not in OPERATIONS or not _is_within(folder, args[0]):
            return
        if event != "open" or args[2] & WRITING:
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)

    try:
        sys.addaudithook(heard)
        os.fsync = lambda descriptor: None
        run()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(FAILED)
    os._exit(0)


def once(run, check, folder):
    """Call both in a folder that is left there; `check` may be None."""
    own = folder / "alone"
    own.mkdir()
    for each in filter(None, (run, check)):
        forked(lambda each=each: each(own), own)


def each_operation(run, check, folder, prepare=None, step=1):
    """Kill run() at each operation, and check what is left, every time in a folder of its own.

    run, check, prepare : callables
        Of the path of a folder. `check` is called in a fork, as this process makes no threads.
    step : int
        Kill at each so-manieth operation.
    """
    kill_at, killed = 0, True
    while killed:
        own = folder / f"killed {kill_at}"
        own.mkdir()
        if prepare is not None:
            forked(lambda: prepare(own), own)
        killed = forked(lambda: run(own), own, kill_at)
        forked(lambda: check(own), own)
        kill_at += step
    assert kill_at > 3
