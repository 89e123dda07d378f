"""Members in processes of their own, on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from multiprocessing import connection
from multiprocessing.shared_memory import SharedMemory
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.distributed.fleets._base import Fleet, Lost, NoMember

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

# bytes from which on arrays go to members through shared memory: what a pipe holds
LARGE = 1 << 16
# seconds for a member to end by itself when the fleet is closed
PATIENCE = 1.0


class _Shared:
    """Place of an array in shared memory, sent through the pipe instead of the array."""

    def __init__(self, start, shape, dtype):
        self.start, self.shape, self.dtype = start, shape, dtype

    def of(self, memory):
        array = np.ndarray(self.shape, self.dtype, memory.buf, self.start)
        array.flags.writeable = False
        return array


@contextlib.contextmanager
def _unbroken():
    """Delay Ctrl-C to the end of the block, as half a message would break the pipe."""
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if ours else None
    if not callable(before):  # it interrupts nothing here
        yield
        return
    put_off = []
    signal.signal(signal.SIGINT, lambda *args: put_off.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if put_off:
        before(*put_off[0])


def _end_with(parent):
    """End this process when its parent ends, killed or not."""
    connection.wait([parent.sentinel])
    os._exit(1)


def _serve(pipe, flag, factory):
    """Make a member, and answer calls until the pipe closes."""
    # Ctrl-C reaches all processes of a terminal, and the driver handles it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    memory = None
    try:
        member = pickle.loads(factory)()
        if hasattr(member, "stopping"):
            member.stopping = lambda: bool(flag.value)
        answer = None
    except BaseException as error:
        member, answer = None, error
    _send(pipe, 0, answer)
    with contextlib.suppress(EOFError, OSError):
        while member is not None:
            number, name, method, args = pickle.loads(pipe.recv_bytes())
            try:
                if name is not None and (memory is None or memory.name != name):
                    if memory is not None:
                        memory.close()
                    memory = SharedMemory(name)
                args = [arg.of(memory) if type(arg) is _Shared else arg for arg in args]
                answer = getattr(member, method)(*args)
            except Exception as error:
                answer = error
            args = None
            _send(pipe, number, answer)
            answer = None  # it may be a view of the memory, which then could not be closed


def _send(pipe, number, answer):
    """Send an answer, or an exception with its traceback."""
    failed = isinstance(answer, BaseException)
    if failed:
        where = "".join(traceback.format_exception(answer))
        answer.add_note(f"in a member of the fleet:\n{where}")
    try:
        data = pickle.dumps((number, failed, answer), protocol=5)
        pickle.loads(data)  # exceptions may pickle, and not come back
    except Exception as error:
        wrong = RuntimeError(f"the answer of a member cannot be sent ({error}): {answer!r}")
        data = pickle.dumps((number, True, wrong))
    pipe.send_bytes(data)


class ProcessFleet(Fleet):
    """Members in processes of their own; large arrays reach all of them through shared memory.

    Processes are spawned: scripts must make fleets under ``if __name__ == "__main__":``. Factories
    must be picklable: functions of a module, their `functools.partial`, or objects with `__call__`.
    All processes end when the fleet is closed or the process that made it ends.

    Parameters
    ----------
    factories : sequence of callables
        One for each member, called without arguments in its process.
    timeout : float, default=None
        Seconds after which a member without an answer to a call counts as lost and is killed.
        Making a member may take longer. By default a call waits while the process lives.
    """

    context: Any
    flag: Any
    memory: SharedMemory | None
    processes: list[Any]
    pipes: list[Any]
    numbers: Any
    waiting: list[Any]

    def __init__(
        self, factories: Sequence[Callable[..., Any]], *, timeout: float | None = None,
    ) -> None:
        super().__init__(factories)
        self.timeout = timeout
        self.context = multiprocessing.get_context("spawn")
        self.flag = self.context.RawValue("b", 0)
        self.memory = None
        self.processes = [None] * self.n_members
        self.pipes = [None] * self.n_members
        # number of the last call of each member, and whether it still waits for the answer
        self.numbers, self.waiting = [0] * self.n_members, [False] * self.n_members
        try:
            for k in range(self.n_members):
                self._begin(k)
            self._made(range(self.n_members))
        except BaseException:
            self.close()
            raise

    # -------------------------------------------------------------------------- members

    def _begin(self, k):
        """Start the process of member k."""
        here, there = self.context.Pipe()
        process = self.context.Process(
            target=_serve, args=(there, self.flag, pickle.dumps(self.factories[k])), daemon=True,
            name=f"member {k}")
        process.start()
        there.close()
        self.processes[k], self.pipes[k] = process, here
        self.numbers[k], self.waiting[k] = 0, True

    def _made(self, members):
        """Wait until these members are made."""
        for answer in self._collect(list(members)):
            if isinstance(answer, Lost):
                raise NoMember(f"member {answer.member} could not be made: {answer.reason}")

    def _end(self, k):
        """End the process of member k, if there is one."""
        process, pipe = self.processes[k], self.pipes[k]
        self.processes[k] = self.pipes[k] = None
        self.waiting[k] = False
        if pipe is not None:
            pipe.close()
        if process is not None:
            process.kill()
            process.join()
            process.close()

    def alive(self) -> list[bool]:
        return [process is not None and process.is_alive() for process in self.processes]

    def replace(self, k: int) -> None:
        if self.is_closed:
            raise NoMember("the fleet is closed.")
        self._end(k)
        self._begin(k)
        self._made([k])

    def stop(self, is_on: bool = True) -> None:
        self.flag.value = is_on

    # -------------------------------------------------------------------------- calls

    def _call(self, method, members, args, each):
        # answers to an interrupted call
        self._collect([k for k in members if self.waiting[k]], True, self.timeout)
        args = self._shared(args)
        name = None if self.memory is None else self.memory.name
        for k, more in zip(members, each, strict=True):
            self.numbers[k] += 1
            data = pickle.dumps((self.numbers[k], name, method, (*args, *more)), protocol=5)
            if self.pipes[k] is not None:
                with _unbroken():
                    self.waiting[k] = True
                    with contextlib.suppress(OSError):  # it has gone, as `_collect` finds out
                        self.pipes[k].send_bytes(data)
        return self._collect(members, timeout=self.timeout)

    def _shared(self, args):
        """The arguments, with large arrays in shared memory, which must not be in use."""
        large = [
            type(arg) is np.ndarray and arg.nbytes >= LARGE and not arg.dtype.hasobject
            for arg in args]
        size = sum(arg.nbytes + 64 for arg, is_large in zip(args, large, strict=True) if is_large)
        if size == 0:
            return args
        if self.memory is None or self.memory.size < size:
            self._free()
            self.memory = SharedMemory(create=True, size=size)
        start, put = 0, []
        for arg, is_large in zip(args, large, strict=True):
            if is_large:
                place = _Shared(start, arg.shape, arg.dtype)
                np.ndarray(arg.shape, arg.dtype, self.memory.buf, start)[...] = arg
                start += -(-arg.nbytes // 64) * 64
                arg = place
            put.append(arg)
        return put

    def _collect(self, members, dropped=False, timeout=None):
        """The answers of these members, or `Lost`."""
        answers, errors = {}, {}
        until = None if timeout is None else time.monotonic() + timeout
        waiting = set(members)
        while waiting:
            for k in list(waiting):
                if self.pipes[k] is None:
                    answers[k] = Lost(k, "its process has ended")
                    waiting.discard(k)
            owners = {self.pipes[k]: k for k in waiting}
            owners.update({self.processes[k].sentinel: k for k in waiting})
            left = None if until is None else max(0.0, until - time.monotonic())
            ready = connection.wait(list(owners), left) if owners else []
            if not ready and owners:
                for k in list(waiting):
                    self._end(k)
                    answers[k] = Lost(k, f"it gave no answer in {timeout:g} seconds")
                break
            for k in {owners[one] for one in ready}:
                answer = self._received(k)
                if answer is None:
                    continue
                waiting.discard(k)
                failed, value = answer
                (errors if failed else answers)[k] = value
        if errors and not dropped:
            raise errors[min(errors)]
        return [answers.get(k) for k in members]

    def _received(self, k):
        """(is an exception, answer) of member k, or None for an answer to an earlier call."""
        try:
            with _unbroken():
                number, failed, value = pickle.loads(self.pipes[k].recv_bytes())
                if number != self.numbers[k]:
                    return None
                self.waiting[k] = False
        except (EOFError, OSError):
            code = self._code(k)
            self._end(k)
            return False, Lost(k, f"its process has ended ({code})")
        return failed, value

    def _code(self, k):
        """Exit of the process of member k, as a phrase."""
        self.processes[k].join(PATIENCE)
        code = self.processes[k].exitcode
        if code is None:
            return "its pipe is closed"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    # -------------------------------------------------------------------------- the end

    def _free(self):
        if self.memory is not None:
            self.memory.close()
            self.memory.unlink()
            self.memory = None

    def _close(self):
        for k in range(self.n_members):
            self._end(k)
        self._free()
