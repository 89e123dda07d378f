"""What a driver asks of the members that work for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self


class Lost(NamedTuple):
    """In the place of a result: the member has gone, and all that it knew.

    Attributes
    ----------
    member : int
    reason : str
        In words, for warnings.
    """

    member: int
    reason: str


class NoMember(RuntimeError):
    """A member is gone, and no new one could be made in its place."""


class Fleet(ABC):
    """Members side by side, each made by a factory of its own from its own source of data.

    A member is any object; a factory is called without arguments where the member is to live, and
    again for each replacement, so that it must be picklable for members that live elsewhere.

    Members are numbered 0 ... n_members - 1, and results always come in that order, whichever
    member answers first. What a member raises is raised by the call, that of the first member in
    order, after all have answered: it is no loss of the member.

    Where a member has an attribute `stopping` it is set, once it is made, to a callable without
    arguments that tells whether the driver has called `stop`: a long call should look at it every
    fraction of a second, and return early.

    A fleet is a context manager; leaving it closes it.

    Parameters
    ----------
    factories : sequence of callables
    """

    factories: Sequence[Callable[..., Any]]
    is_closed: bool

    def __init__(self, factories: Sequence[Callable[..., Any]]) -> None:
        self.factories = list(factories)
        if not self.factories:
            raise ValueError("a fleet needs at least one member: factories is empty.")
        self.is_closed = False

    @property
    def n_members(self) -> int:
        return len(self.factories)

    def call_all(
        self, method: str, *args: Any, each: Callable[[int], tuple[Any, ...]] | None = None,
        members: Sequence[int] | None = None,
    ) -> list[Any]:
        """Call a method of the members, of all at once, and wait for the answers.

        Parameters
        ----------
        method : str
        *args
            Arguments for every member; large arrays may reach it as read-only views.
        each : sequence of tuples, default=None
            Further arguments for each member that is called, behind those for all.
        members : sequence of int, default=None
            Those to call; all by default.

        Returns
        -------
        results : list
            In the order of `members`: what the method returned, or a `Lost`.

        Raises
        ------
        ValueError
            If the fleet is closed.
        KeyboardInterrupt
            Some members may still be in the call: `stop` makes them end it soon. What they answer
            to it is dropped, and the next call waits until they have.
        """
        if self.is_closed:
            raise ValueError("the fleet is closed: make a new one.")
        members = list(range(self.n_members)) if members is None else list(members)
        each = [()] * len(members) if each is None else list(each)
        if len(each) != len(members):
            raise ValueError(
                f"each must have arguments for {len(members)} members, got {len(each)}.")
        if not members:
            return []
        return self._call(method, members, args, each)

    @abstractmethod
    def _call(self, method, members, args, each):
        """`call_all`, its arguments being checked."""

    @abstractmethod
    def alive(self) -> list[bool]:
        """Whether each member is there, a list of bool; a member that hangs counts as there."""

    @abstractmethod
    def replace(self, k: int) -> None:
        """Make member k anew, by its factory; whatever is left of the old one ends.

        Raises
        ------
        NoMember
            If that is not possible.
        """

    @abstractmethod
    def stop(self, is_on: bool = True) -> None:
        """Ask members to end the calls that they are in soon; off again with is_on=False."""

    def close(self) -> None:
        """End all members; nothing is left behind. A second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._close()

    @abstractmethod
    def _close(self):
        """`close`, the first time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
