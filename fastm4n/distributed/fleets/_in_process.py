"""Members in this process, one after another: deterministic, and easy to lose on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.distributed.fleets._base import Fleet, Lost, NoMember

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


class InProcessFleet(Fleet):
    """Members in this process, called one after another.

    Parameters
    ----------
    factories : sequence of callables
        One for each member, called without arguments.
    order : int, default=None
        Seed of the random order of the members in each call; by default the order of their
        numbers. Results must not depend on it.
    on_call : callable, default=None
        Called as on_call(fleet, method, member) before each call of a member. It may `lose` members
        in simulations.

    Examples
    --------
    >>> from fastm4n.distributed.fleets import InProcessFleet
    >>> with InProcessFleet([lambda: [1, 2, 1], lambda: [1, 1, 1]]) as fleet:
    ...     fleet.call_all("count", 1)
    [2, 3]
    """

    random: Any
    is_stopping: bool
    members: Any

    def __init__(
        self, factories: Sequence[Callable[..., Any]], *, order: int | None = None,
        on_call: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(factories)
        self.random = None if order is None else np.random.default_rng(order)
        self.on_call = on_call
        self.is_stopping = False
        self.members = [None] * self.n_members
        for k in range(self.n_members):
            self.replace(k)

    def _stopping(self):
        return self.is_stopping

    def lose(self, k: int) -> None:
        """Lose member k until it is replaced."""
        self.members[k] = None

    def _call(self, method, members, args, each):
        results = [None] * len(members)
        errors = [None] * len(members)
        order = range(len(members))
        if self.random is not None:
            order = self.random.permutation(len(members)).tolist()
        for i in order:
            k = members[i]
            if self.on_call is not None:
                self.on_call(self, method, k)
            if self.members[k] is None:
                results[i] = Lost(k, "it was lost on purpose")
                continue
            try:
                results[i] = getattr(self.members[k], method)(*args, *each[i])
            except Exception as error:
                errors[i] = error
        for error in errors:
            if error is not None:
                raise error
        return results

    def alive(self) -> list[bool]:
        return [member is not None for member in self.members]

    def replace(self, k: int) -> None:
        if self.is_closed:
            raise NoMember("the fleet is closed.")
        self.members[k] = member = self.factories[k]()
        if hasattr(member, "stopping"):
            member.stopping = self._stopping

    def stop(self, is_on: bool = True) -> None:
        self.is_stopping = is_on

    def _close(self):
        self.members = [None] * self.n_members
