"""The search for a best labelling: what is known so far, whom to tell, and when to stop."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any

import numpy as np

from fastm4n.base.interrupts import listeners
from fastm4n.base.listening import Listening

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


class Stop(Exception):
    """The time is over, or the callback says so."""


class Search:
    """The best labelling and the least bound so far.

    Parameters
    ----------
    problem : GraphProblem
    tol : float
        The search ends when the bound is at most so much above the labelling.
    time_limit : float, default=None
        Seconds.
    report : callable, default=None
        Called with the search when it has news. It ends where that is true.
    max_entries : int, default=0
        Entries of all tables of an elimination, at most.

    Attributes
    ----------
    labels : ndarray or None
    value, bound : float
        Without the constant of the problem.
    method : str or None
        The method that runs, or ran last.
    n_moves : int
        Rounds of moves so far.
    too_few : int
        Entries that an elimination is known to need more of.
    is_exact, is_done : bool
        Whether that is an exact one, and whether it came to its end.
    """

    def __init__(
        self, problem: Any, tol: float = 0.0, time_limit: float | None = None,
        report: Callable[[Search], Any] | None = None, max_entries: int = 0,
    ) -> None:
        self.problem, self.tol, self.report, self.max_entries = problem, tol, report, max_entries
        self.ends = np.inf if time_limit is None else time.monotonic() + time_limit
        self.labels: Any = None
        self.value = -np.inf
        # factors may score any number
        self.bound = problem.height if problem.factors is None else np.inf
        self.has_news = self.is_exact = self.is_done = False
        self.method: str | None = None
        self.n_moves = self.too_few = 0
        if problem.n_nodes == 0 and problem.factors is None:
            self.offer(np.zeros(0, dtype=np.intp), 0.0, 0.0)

    def offer(self, labels: Any, value: float, bound: float = np.inf) -> None:
        """Take a labelling if it is better than the best one, and a bound likewise."""
        if value > self.value or self.labels is None:
            self.labels, self.value, self.has_news = labels, value, True
        if bound < self.bound:
            self.bound, self.has_news = bound, True
        # by rounding
        self.bound = max(self.bound, self.value)

    @property
    def closed(self) -> bool:
        """Whether bound and value are near enough."""
        near = max(self.tol, self.problem.slack(self.value)) if self.value > -np.inf else 0.0
        return self.bound - self.value <= near or self.bound == -np.inf

    def check(self) -> None:
        """Report news. Raise `Stop` where the search is to end."""
        if self.has_news and self.report is not None and self.value > -np.inf:
            self.has_news = False
            if self.report(self):
                raise Stop
        if time.monotonic() >= self.ends:
            raise Stop

    def following(self, read: Callable[[], tuple[Any, ...]] | None = None) -> Any:
        """A context within which kernels end with the search.

        `read` gives arguments of `offer`. It is called now and then, and at the end.
        """
        before = listeners.get(get_ident())

        def listen() -> None:
            if before is not None:
                before()
            if read is not None and self.report is not None:
                self.offer(*read())
            self.check()

        return Listening(listen, None if read is None else lambda _: self.offer(*read()))

    def run(self, steps: Generator[Any]) -> None:
        """Take steps until there are no more, or the search ends."""
        # closed here: Ctrl-C is lost in a generator that ends as garbage
        with suppress(Stop), closing(steps):
            for _ in steps:
                self.check()
                if self.closed:
                    break
            self.is_done = True
