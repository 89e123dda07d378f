"""Interface between a driver and its members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self


class Lost(NamedTuple):
    """Result of a member that was lost with its state.

    Attributes
    ----------
    member : int
    reason : str
        A phrase for warnings.
    """

    member: int
    reason: str


class NoMember(RuntimeError):
    """A member was lost and could not be replaced."""


class Fleet(ABC):
    """Members side by side, each made by its own factory from its own source of data.

    A member is any object. Its factory is called without arguments in the process of the member,
    and again for each replacement. It must be picklable for members in other processes.

    Members are numbered 0 ... n_members - 1, and results come in this order. A call raises the
    error of the first member, in order, that raised one, after all have answered. Such a member is
    not lost.

    An attribute `stopping` of a member is set to a callable without arguments, which returns
    whether the driver has called `stop`. Long calls should check it several times a second and
    return early.

    Leaving the fleet as a context manager closes it.

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
        """Call a method of all members at once and wait for the answers.

        Parameters
        ----------
        method : str
        *args
            Arguments for every member. Large arrays may arrive as read-only views.
        each : sequence of tuples, default=None
            Further arguments for each of these members, after those for all.
        members : sequence of int, default=None
            Numbers of the members, all by default.

        Returns
        -------
        results : list
            In the order of `members`: what the method returned, or a `Lost`.

        Raises
        ------
        ValueError
            If the fleet is closed.
        KeyboardInterrupt
            Some members may still be in the call, and `stop` makes them end it soon. The next call
            waits for their answers and drops them.
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
        """`call_all` with checked arguments."""

    @abstractmethod
    def alive(self) -> list[bool]:
        """Whether each member exists; a member that hangs counts."""

    @abstractmethod
    def replace(self, k: int) -> None:
        """Make a new member k by its factory and end the old one.

        Raises
        ------
        NoMember
            If no new member can be made.
        """

    @abstractmethod
    def stop(self, is_on: bool = True) -> None:
        """Request that members end their present calls soon; is_on=False withdraws it."""

    def close(self) -> None:
        """End all members. A second call has no effect."""
        if not self.is_closed:
            self.is_closed = True
            self._close()

    @abstractmethod
    def _close(self):
        """The first `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()
