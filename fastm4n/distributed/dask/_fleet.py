"""Members of a `Fleet` that are actors on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import time
import uuid
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

from dask.delayed import Delayed
from distributed import Future
from distributed.client import FutureCancelledError
from distributed.protocol import to_serialize

from fastm4n.distributed.fleets import Fleet, Lost, NoMember

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from distributed import Client

# seconds between two checks of the workers, and limit for answers of the scheduler
LOOK_EVERY, ANSWER_WITHIN = 1.0, 5.0
# seconds between two requests of the scheduler's list of workers
LIST_EVERY = 2.0
# seconds for a worker to answer the driver, after which calls go through the scheduler
DIRECT_WITHIN = 3.0
# attempts to make a member whose worker goes meanwhile
ATTEMPTS = 5
# errors of calls of an actor whose worker has gone or has lost it
GONE = (OSError, RuntimeError, KeyError, CancelledError, FutureCancelledError)


class ClusterGone(NoMember):
    """The client, the scheduler or all workers are gone."""


class Member:
    """Actor: an object on a worker whose methods the driver calls.

    Parameters
    ----------
    factory : callable
        Called with the inputs, makes the object.
    inputs : list
    """

    def __init__(self, factory, inputs):
        self.is_stopping = False
        # tells apart an actor that the scheduler has made again
        self.identity = uuid.uuid4().hex
        self.member = factory(*inputs)
        if hasattr(self.member, "stopping"):
            self.member.stopping = lambda: self.is_stopping

    def hello(self):
        """The identity of this member."""
        return self.identity

    def call(self, identity, method, args):
        """(True, answer) or (False, exception), or None for another member."""
        if identity != self.identity:
            return None
        try:
            return True, getattr(self.member, method)(*args)
        except Exception as error:
            try:
                pickle.loads(pickle.dumps(error))
            except Exception:  # it may pickle, and not come back
                error = RuntimeError(f"{type(error).__name__}: {error}")
            return False, error

    async def stop(self, is_on):
        """Request the end of the present call. The worker's loop answers at once."""
        self.is_stopping = is_on


class Input:
    """Data of a member that a worker gets from other workers instead of the driver.

    Parameters
    ----------
    source : Delayed or Future
        Computed again for each use.
    name : str
        Name for errors.
    """

    def __init__(self, source, name):
        self.source, self.name = source, name

    def future(self, client, address):
        """A future of the data, preferably computed at this address."""
        if isinstance(self.source, Delayed):
            return client.compute(self.source, workers=[address], allow_other_workers=True)
        return self.source

    def check(self, future):
        """Raise the error that kept the data from being computed."""
        if future.status in ("cancelled", "lost"):
            raise NoMember(
                f"{self.name} is lost: it was held by a worker that has gone, and cannot be "
                "computed anew. Give delayed objects or persisted collections, which can, and not "
                "scattered data.")
        if future.status == "error":
            error = future.exception(timeout=ANSWER_WITHIN)
            if isinstance(error, FutureCancelledError):
                raise NoMember(f"{self.name} is lost, and cannot be computed anew.") from error
            raise ValueError(f"{self.name} cannot be computed: {error}") from error


class DaskFleet(Fleet):
    """Actors on the workers of a Dask cluster; only the driver speaks to them.

    A member whose worker has gone is `Lost`, as is one whose worker has been silent to the
    scheduler for `timeout` seconds; such a worker is taken off the cluster. A member that computes
    for long is neither, as its worker goes on telling the scheduler that it is there.

    Nothing is waited for without looking every second at whether there is still somebody who
    could answer.

    Parameters
    ----------
    client : distributed.Client
    factories : sequence of callables
        Called with the inputs of the member, on a worker.
    inputs : sequence of sequences of Input, default=None
        For each member.
    timeout : float, default=60.0
        Seconds of silence after which a worker counts as lost.
    """

    client: Client
    timeout: float
    inputs: list[Any]
    futures: list[Any]
    addresses: list[Any]
    identities: list[Any]
    is_direct: bool
    pending: list[Any]
    seen: list[Any]
    silent_from: dict[str, Any]
    paused: bool
    listed_at: float
    has_list: bool
    answered_at: list[Any]
    some_at: list[Any]

    def __init__(
        self, client: Client, factories: Sequence[Callable[..., Any]], inputs: Any = None, *,
        timeout: float = 60.0,
    ) -> None:
        super().__init__(factories)
        self.client, self.timeout = client, timeout
        self.inputs = [()] * self.n_members if inputs is None else [list(part) for part in inputs]
        self.futures = [None] * self.n_members
        self.addresses = [None] * self.n_members
        self.identities = [None] * self.n_members
        self.is_direct = [False] * self.n_members
        # interrupted calls without an answer yet
        self.pending = [None] * self.n_members
        # the scheduler's last report of each worker, and when it was new
        self.seen, self.silent_from, self.paused = {}, {}, set()
        self.listed_at, self.has_list = -float("inf"), False
        # times of the scheduler's last answer and of the last worker
        self.answered_at = self.some_at = time.monotonic()
        try:
            self._make(range(self.n_members))
        except BaseException:
            self.close()
            raise

    # ---------------------------------------------------------------------- the cluster

    def _look(self, wanted=False):
        """Update the list of workers, and raise `ClusterGone` if none is left.

        Parameters
        ----------
        wanted : bool
            Whether to raise an error if no worker takes tasks for `timeout` seconds.

        Returns
        -------
        workers : list of str
            Addresses of workers that take tasks and answer.
        """
        if self.client.status not in ("running", "connecting"):
            raise ClusterGone(
                f"the Dask client is {self.client.status}: the cluster, or the connection to it, "
                "has gone.")
        now = time.monotonic()
        if now - self.listed_at >= min(LIST_EVERY, self.timeout / 4):
            self.listed_at = now
            try:
                found = self.client.sync(
                    self.client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_WITHIN)
            except (OSError, TimeoutError) as error:
                if now - self.answered_at > self.timeout:
                    raise ClusterGone("the Dask scheduler does not answer.") from error
            else:
                self.answered_at, self.has_list = time.monotonic(), True
                self._note(found["workers"], self.answered_at)
        workers = [
            address for address in self.seen
            if self._silence(address) <= self.timeout and address not in self.paused]
        if workers:
            self.some_at = time.monotonic()
        elif wanted and time.monotonic() - self.some_at > self.timeout:
            full = " that takes tasks: their memory is nearly full" if self.paused else ""
            raise ClusterGone(f"the Dask cluster has had no worker for {self.timeout:g} s{full}.")
        return workers

    def _silence(self, address):
        """Seconds since the scheduler last heard from the worker."""
        return self.answered_at - self.silent_from.get(address, float("inf"))

    def _note(self, workers, now):
        seen = {address: worker["last_seen"] for address, worker in workers.items()}
        self.silent_from = {
            address: self.silent_from[address] if self.seen.get(address) == last else now
            for address, last in seen.items()}
        self.seen = seen
        self.paused = {
            address for address, worker in workers.items() if worker["status"] != "running"}

    def _dismiss(self, address):
        """Remove a silent worker from the cluster, so that others compute its data."""
        self.seen.pop(address, None)

        async def remove(dask_scheduler):
            await dask_scheduler.remove_worker(
                address, stimulus_id=f"fastm4n-silent-{time.time()}", close=True)

        with contextlib.suppress(OSError, TimeoutError, ValueError):
            self.client.sync(
                self.client._run_on_scheduler, remove, callback_timeout=ANSWER_WITHIN)

    def _places(self, members):
        """A worker for each of these members: the ones with the fewest members first.
        """
        self.some_at = time.monotonic()
        while not (workers := self._look(wanted=True)):
            time.sleep(0.1)
        crowd = dict.fromkeys(workers, 0)
        for k in range(self.n_members):
            if k not in members and self.addresses[k] in crowd:
                crowd[self.addresses[k]] += 1
        places = {}
        for k in members:
            places[k] = min(crowd, key=lambda address: (crowd[address], address))
            crowd[places[k]] += 1
        return places

    # -------------------------------------------------------------------------- members

    def _make(self, members):
        """Make these members, and raise errors of their data.

        If a worker goes meanwhile, for example when a cluster is scaled down, others make its
        members.
        """
        left = list(members)
        for _ in range(ATTEMPTS):
            lost = self._made(left)
            left = [answer.member for answer in lost]
            if not left:
                return
        raise NoMember(
            f"member {left[0]} was lost {ATTEMPTS} times as soon as it was made: {lost[0].reason}")

    def _made(self, members):
        """Make these members at once, and return the `Lost` ones."""
        for k in members:
            self._forget(k)
        places = self._places(members)
        sources = {
            k: [part.future(self.client, places[k]) for part in self.inputs[k]] for k in members}
        for k in members:
            # only preferred: a task that is bound to a worker that goes would wait forever
            self.futures[k] = self.client.submit(
                Member, self.factories[k], sources[k], actor=True, pure=False,
                workers=[places[k]], allow_other_workers=True,
                key=f"fastm4n-member-{k}-{uuid.uuid4().hex}")
        waiting, silent = set(members), set()
        while waiting:
            self._look(wanted=True)
            for k in sorted(waiting):
                future = self.futures[k]
                if future.status == "finished":
                    waiting.remove(k)
                    with contextlib.suppress(*GONE, TimeoutError):
                        self.addresses[k] = future.result(timeout=ANSWER_WITHIN)._address
                elif future.status in ("error", "cancelled", "lost"):
                    self._failed(k, sources[k])
            if waiting:
                self._dismiss_silent(silent)
                time.sleep(0.02)
        there = [k for k in members if self.addresses[k] is not None]
        self._find_ways(there)
        calls = dict.fromkeys(members)
        calls.update((k, self._asked(k, "hello")) for k in there)
        answers = self._collect(members, calls)
        for k, answer in zip(members, answers, strict=True):
            if not isinstance(answer, Lost):
                self.identities[k] = answer
        self.listed_at = -float("inf")  # its worker may be new
        self._look()
        return [answer for answer in answers if isinstance(answer, Lost)]

    def _find_ways(self, members):
        """Find out which of these members answer the driver directly."""
        for k in members:
            self.is_direct[k] = True
        calls = {k: self._asked(k, "hello") for k in members}
        end = time.monotonic() + DIRECT_WITHIN
        for k, call in calls.items():
            try:
                call.result(timeout=max(0.0, end - time.monotonic()))
            except (*GONE, TimeoutError):
                call.cancel()
                self.is_direct[k] = False

    def _dismiss_silent(self, silent):
        """Dismiss workers that are silent while members are made."""
        for address in [*self.seen]:
            if self._silence(address) > self.timeout and address not in silent:
                silent.add(address)
                self._dismiss(address)

    def _failed(self, k, futures):
        """Raise the error that prevents member k."""
        for part, future in zip(self.inputs[k], futures, strict=True):
            part.check(future)
        future = self.futures[k]
        if future.status == "error":
            error = future.exception(timeout=ANSWER_WITHIN)
            if isinstance(error, FutureCancelledError):
                names = ", ".join(part.name for part in self.inputs[k]) or "its data"
                raise NoMember(
                    f"member {k} cannot be made: data of {names} are lost with their worker and "
                    "cannot be computed again. Use delayed objects or persisted collections, not "
                    "scattered data.") from error
            raise error
        raise NoMember(f"member {k} cannot be made: it is {future.status}.")

    def _forget(self, k):
        if self.pending[k] is not None:
            self.pending[k].cancel()
        self.futures[k] = self.addresses[k] = self.identities[k] = self.pending[k] = None

    def alive(self) -> list[bool]:
        with contextlib.suppress(ClusterGone):
            self._look()
        return [self._reason(k) is None for k in range(self.n_members)]

    def _reason(self, k):
        """Why member k is lost, None if it is not."""
        address = self.addresses[k]
        if address is None:
            return "it could not be made"
        if self.futures[k].status != "finished":
            return f"its worker {address} has gone"
        if self.has_list and address not in self.seen:
            return f"its worker {address} has gone"
        if self._silence(address) > self.timeout:
            self._dismiss(address)
            return f"its worker {address} has been silent for {self.timeout:g} s"
        return None

    def replace(self, k: int) -> None:
        if self.is_closed:
            raise NoMember("the fleet is closed.")
        self._make([k])

    def stop(self, is_on: bool = True) -> None:
        told = [
            self._asked(k, "stop", is_on) for k in range(self.n_members)
            if self._reason(k) is None]
        for call in told:
            with contextlib.suppress(*GONE, TimeoutError):
                call.result(timeout=ANSWER_WITHIN)

    # -------------------------------------------------------------------------- calls

    def _asked(self, k, function, *args):
        """Call an actor, and return a future of its answer.

        The `Actor` of distributed would repeat calls without end in the client's loop if a worker
        goes at the wrong moment, and loses some errors.
        """
        message = {
            "function": function, "actor": self.futures[k].key,
            "args": [to_serialize(arg) for arg in args], "kwargs": {}}
        address, client, is_direct = self.addresses[k], self.client, self.is_direct[k]

        async def ask():
            if is_direct:
                answer = await client.rpc(address).actor_execute(**message)
            else:
                answer = await client.scheduler.proxy(
                    worker=address, msg={"op": "actor_execute", **message})
            if answer["status"] != "OK":
                raise answer["exception"]
            return answer["result"]

        return asyncio.run_coroutine_threadsafe(ask(), client.loop.asyncio_loop)

    def _call(self, method, members, args, each):
        late = [k for k in members if self.pending[k] is not None]
        self._collect(late, {k: self.pending[k] for k in late})
        self._look()
        for k, more in zip(members, each, strict=True):
            self.pending[k] = None
            if self._reason(k) is None:
                self.pending[k] = self._asked(
                    k, "call", self.identities[k], method, (*args, *more))
        answers = self._collect(members, {k: self.pending[k] for k in members})
        results = []
        for k, answer in zip(members, answers, strict=True):
            if answer is None:
                answer = Lost(k, "the scheduler has made another one in its place")
                self._forget(k)
            results.append(answer if isinstance(answer, Lost) else answer[1])
        for answer in answers:
            if not isinstance(answer, Lost) and answer is not None and not answer[0]:
                raise answer[1]
        return results

    def _collect(self, members, calls):
        """The answers to these calls, `Lost` for members without one."""
        answers = {}
        for k in itertools.cycle(members):
            if len(answers) == len(members):
                break
            if k in answers:
                continue
            call = calls[k]
            if call is None:
                answers[k] = Lost(k, self._reason(k) or "its worker has gone")
            else:
                try:
                    answers[k] = call.result(timeout=LOOK_EVERY)
                except TimeoutError:
                    if call.done():  # just now, or by an error of the connection
                        reason = _timed_out(call)
                    else:
                        self._look()
                        reason = self._reason(k)
                    if reason is None:
                        continue
                    answers[k] = Lost(k, reason)
                except GONE as error:
                    self.listed_at = -float("inf")  # check the workers at once
                    answers[k] = Lost(k, f"its worker does not answer ({error})")
            self.pending[k] = None
            if isinstance(answers[k], Lost):
                self._forget(k)
        return [answers[k] for k in members]

    def _close(self):
        for k in range(self.n_members):
            self._forget(k)


def _timed_out(call):
    """A reason if a finished call timed out, else None."""
    late = not call.cancelled() and isinstance(call.exception(), TimeoutError)
    return "the connection to its worker timed out" if late else None


def is_source(value):
    """Whether a value is computed on the cluster."""
    return isinstance(value, (Delayed, Future))
