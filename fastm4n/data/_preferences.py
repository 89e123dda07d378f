"""Partial rankings: top-k rankings, ties, missing items and pairs, as strict orders of the items.

A row of levels stands for all forms but pairs: item i is above item j if its level is lower. Items
of one level are tied, and NaN is the level of an item that may be anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.data._rankings import (
    NAMES,
    as_items,
    flatten,
    guess,
    inverse,
    listed,
    rank_array,
)
from fastm4n.inference.orders import close_orders

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import Array

FORMS = ("auto", "ranks", "ordering", "string", "top", "pairs")
# stands for all items that a string does not name
OTHERS = "*"
_NAN = "Write NaN for items that may be anywhere."


def as_preferences(
    y: ArrayLike, form: Literal["auto", "ranks", "ordering", "string", "top", "pairs"] = "auto",
    items: ArrayLike | None = None, *, input_name: str = "y",
) -> tuple[NDArray[np.bool_], Array]:
    """Read rankings that need not be complete, as strict partial orders of the items.

    Parameters
    ----------
    y : array-like
        n rankings, in a form listed below. Any of them may be complete.
    form : {"auto", "ranks", "ordering", "string", "top", "pairs"}, default="auto"
        The form of the rankings:

        - ``"ranks"``: array of shape (n, M), where ``y[b, i]`` is the rank of item i, best first.
          Ranks are any numbers from 0 on. Equal ranks are ties: either order is possible. An item
          of rank NaN may be anywhere.
        - ``"ordering"``: lists of names of items, best first. Items that are not in a list may be
          anywhere. Names are strings or integers. None and NaN at the end of a list do not count.
        - ``"top"``: as ``"ordering"``, but the first items of each list are the best of all: items
          that are not in it come after them.
        - ``"string"``: strings such as ``"b>a=c"``, best first, where ``=`` is a tie. Items that a
          string leaves out may be anywhere. ``*`` stands for all items that it does not name:
          ``"b>a>*"`` has the two best items, and ``"*>c"`` the last one.
        - ``"pairs"``: lists of pairs (better, worse) of names of items, or arrays of shape (k, 2).
        - ``"auto"``: the first ranking that is not empty decides. A string is ``"string"``, strings
          are ``"ordering"``, numbers are ``"ranks"``, which are then at most M, and lists or tuples
          are ``"pairs"``. Orderings of integers look like ranks and need ``form="ordering"``.
    items : array-like of shape (M,), default=None
        Names of the items, in the order of rows and columns of `preferences`. By default the names
        in all rankings, sorted, or 0 ... M-1 for ranks.
    input_name : str, default="y"
        Name of `y` in errors.

    Returns
    -------
    preferences : ndarray of bool of shape (n, M, M)
        ``preferences[b, i, j]`` says that ranking b has item i above item j. Pairs that follow from
        others are among them.
    items : ndarray of shape (M,)
        Names of the items.

    Raises
    ------
    ValueError
        If a ranking has an item twice or an unknown item, pairs form a cycle, a rank is negative or
        infinite, or there are no items.
    TypeError
        If `y` has no such form.

    See Also
    --------
    as_places : Positions of items in complete rankings.
    fastm4n.inference.best_linear_extension : The best ranking that keeps a partial order.

    Notes
    -----
    The result takes n M^2 bytes. Ranks are read without a loop over rankings.

    Examples
    --------
    >>> from fastm4n.data import as_preferences
    >>> preferences, items = as_preferences(["b>a=c", "c>*", "a>b"])
    >>> items.tolist()
    ['a', 'b', 'c']
    >>> preferences.astype(int)[0]
    array([[0, 0, 0],
           [1, 0, 1],
           [0, 0, 0]])
    >>> preferences.astype(int)[1]
    array([[0, 0, 0],
           [0, 0, 0],
           [1, 1, 0]])
    >>> preferences, _ = as_preferences([[("a", "b"), ("b", "c")]])
    >>> bool(preferences[0, 0, 2])  # follows from the pairs
    True
    """
    found = read_preferences(y, form, items, input_name)
    return found.orders(), found.items


@dataclass
class Preferences:
    """Partial rankings, as read.

    Attributes
    ----------
    items : ndarray of shape (M,)
    form : str
        Not "auto".
    base : int or None
        For ranks, 0 or 1: what they are counted from.
    levels : ndarray of shape (n, M), or None
        None for pairs.
    closed : ndarray of bool of shape (n, M, M), or None
        The orders of pairs.
    """

    items: np.ndarray
    form: str
    base: int | None = None
    levels: np.ndarray | None = None
    closed: np.ndarray | None = None

    def __len__(self):
        return len(self.closed if self.levels is None else self.levels)

    def orders(self):
        """What `as_preferences` returns."""
        if self.levels is None:
            return self.closed
        _check_room(*self.levels.shape)
        # no comparison with NaN holds
        return self.levels[:, :, np.newaxis] < self.levels[:, np.newaxis, :]

    def is_complete(self):
        """Which rankings are complete, (n,)."""
        M = self.items.size
        if self.levels is None:
            return self.closed.sum(axis=(1, 2)) == M * (M - 1) // 2
        in_order = np.sort(self.levels, axis=1)  # NaN last
        return ~np.isnan(in_order[:, -1]) & (in_order[:, 1:] > in_order[:, :-1]).all(axis=1)

    def places(self):
        """Positions of items, 0 for the best, if all rankings are complete."""
        if self.levels is None:
            return self.closed.sum(axis=1)
        return inverse(np.argsort(self.levels, axis=1))


def _check_room(n, M):
    refuse_beyond_memory(
        f"orders of {M} items in {n} rankings", float(n) * M * M, "read fewer rankings or items")


def read_preferences(y, form="auto", items=None, input_name="y"):
    """The `Preferences` of y, whose arguments are those of `as_preferences`."""
    y, items = listed(y, form, FORMS, items, input_name)
    is_told, form = form != "auto", form_of(y, form)
    if form == "ranks":
        return _from_ranks(y, items, input_name, is_told)
    if form == "string":
        return _from_strings(y, items, input_name)
    if form == "pairs":
        return _from_pairs(y, items, input_name)
    return _from_orderings(y, items, input_name, form)


def form_of(y, form):
    """The form of listed rankings, for "auto" that of the first one that is not empty."""
    if form != "auto":
        return form
    b = next((b for b, row in enumerate(y) if not hasattr(row, "__len__") or len(row)), 0)
    if not isinstance(y[b], str) and hasattr(y[b], "__len__") and len(y[b]):
        first = next(iter(y[b]))
        if hasattr(first, "__len__") and not isinstance(first, (str, bytes)):
            return "pairs"
    return guess(y[b:])


def _from_ranks(y, items, input_name, is_told):
    levels = rank_array(y, input_name, _NAN).astype(np.float64)
    size = levels.shape[1]
    if items is not None and len(items) != size:
        raise ValueError(f"{input_name}[0] has {size} items, but items has {len(items)}.")
    for is_wrong, words in (
        ((levels < 0.0) | np.isinf(levels), f"ranks are finite and not negative. {_NAN}"),
        (levels > (np.inf if is_told else size),
         f"but {size} items have no rank above {size}. For orderings of integers pass "
         "form='ordering', for other numbers form='ranks'."),
    ):
        if is_wrong.any():
            b, i = np.argwhere(is_wrong)[0]
            raise ValueError(
                f"{input_name}[{b}] has the rank {levels[b, i]:g} in column {i}: {words}")
    base = int(levels[~np.isnan(levels)].min(initial=1.0) >= 1.0)
    return Preferences(np.arange(size) if items is None else items, "ranks", base, levels)


def _from_strings(y, items, input_name):
    if isinstance(y, np.ndarray) and y.ndim != 1:
        raise ValueError(
            f"{input_name} must have the shape (n,), got {y.shape}. For names of items pass "
            "form='ordering'.")
    distinct, which = {}, []
    for b, string in enumerate(y):
        if not isinstance(string, str):
            raise TypeError(
                f"{input_name}[{b}] is {string!r}, not a string such as 'b>a=c'. Remove missing "
                "rankings. For lists of names pass form='ordering', for pairs form='pairs'.")
        which.append(distinct.setdefault(string, len(distinct)))
    rows = np.unique(which, return_index=True)[1]
    # rankings repeat: read each one once
    names, owners, levels = [], [], []
    level_of_others = np.full(len(distinct), np.nan)
    for b, string in enumerate(distinct):
        if not string.strip():
            continue
        for level, tied in enumerate(string.split(">")):
            for name in map(str.strip, tied.split("=")):
                if not name:
                    raise ValueError(
                        f"{input_name}[{rows[b]}] is {string!r}, where an item has no name. Write "
                        "items best first, as in 'b>a=c'.")
                if name != OTHERS:
                    names.append(name)
                    owners.append(b)
                    levels.append(level)
                elif np.isnan(level_of_others[b]):
                    level_of_others[b] = level
                else:
                    raise ValueError(
                        f"{input_name}[{rows[b]}] is {string!r}: '*' stands for all other items, "
                        "and may occur once.")
    owners = np.array(owners, dtype=np.intp)
    codes, items = _coded(names, rows[owners], items, input_name)
    found = _leveled(codes, owners, levels, level_of_others, items, rows, input_name)
    return Preferences(items, "string", None, found[which])


def _from_orderings(y, items, input_name, form):
    is_array = isinstance(y, np.ndarray) and y.dtype != object
    names, lengths = flatten(y if is_array else [_without_end(row) for row in y], input_name)
    owners = np.repeat(np.arange(len(y)), lengths)
    levels = np.concatenate([np.arange(length) for length in lengths])
    codes, items = _coded(names, owners, items, input_name)
    others = np.array(lengths, dtype=np.float64) if form == "top" else np.full(len(y), np.nan)
    return Preferences(items, form, None, _leveled(
        codes, owners, levels, others, items, range(len(y)), input_name))


def _without_end(row):
    """An ordering without None and NaN at its end, which fill up the rows of tables."""
    if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
        return row
    names = row.tolist() if hasattr(row, "tolist") else list(row)
    while names and (names[-1] is None or names[-1] != names[-1]):
        names.pop()
    return names


def _leveled(codes, owners, levels, level_of_others, items, rows, input_name):
    """Levels (n, M) of items, of which ranking `owners` has `codes` at `levels`."""
    refuse_beyond_memory(
        f"places of {items.size} items in {len(level_of_others)} rankings",
        8.0 * len(level_of_others) * items.size, "read fewer rankings or items")
    found = np.repeat(level_of_others[:, np.newaxis], items.size, axis=1)
    found[owners, codes] = levels
    places = owners * items.size + codes
    if np.unique(places).size < places.size:
        in_order = np.sort(places)
        b, code = divmod(int(in_order[:-1][in_order[1:] == in_order[:-1]][0]), items.size)
        raise ValueError(
            f"{input_name}[{rows[b]}] has {items[code].item()!r} twice: an item has one place.")
    return found


def _from_pairs(y, items, input_name):
    names, owners = [], []
    for b, pairs in enumerate(y):
        if isinstance(pairs, (str, bytes, dict, set, frozenset)) or not hasattr(pairs, "__len__"):
            raise TypeError(
                f"{input_name}[{b}] must be a list of pairs (better, worse), not {pairs!r}.")
        for t, pair in enumerate(pairs.tolist() if hasattr(pairs, "tolist") else pairs):
            if isinstance(pair, (str, bytes)) or not hasattr(pair, "__len__") or len(pair) != 2:
                raise TypeError(
                    f"{input_name}[{b}][{t}] is {pair!r}, not a pair (better, worse) of items.")
            names.extend(pair)
            owners.append(b)
    owners = np.array(owners, dtype=np.intp)
    codes, items = _coded(names, np.repeat(owners, 2), items, input_name)
    better, worse = codes.reshape(-1, 2).T
    _check_room(len(y), items.size)
    before = np.zeros((len(y), items.size, items.size), dtype=np.uint8)
    before[owners, better, worse] = 1
    b = close_orders(before)
    if b < len(y):
        of_b = owners == b
        names = items[_cycle(better[of_b], worse[of_b])].tolist()
        raise ValueError(f"{input_name}[{b}]: {' > '.join(map(repr, names))} is a cycle.")
    return Preferences(items, "pairs", closed=before.view(bool))


def _cycle(better, worse):
    """A shortest cycle of pairs, whose first item is the last one, too."""
    after = {}
    for i, j in zip(better.tolist(), worse.tolist(), strict=True):
        after.setdefault(i, []).append(j)
    found = None
    for start in after:
        came, reached = {}, [start]
        for i in reached:
            for j in after.get(i, ()):
                if j not in came:
                    came[j] = i
                    reached.append(j)
            if start in came:
                break
        if start in came:
            path = [start, came[start]]
            while path[-1] != start:
                path.append(came[path[-1]])
            if found is None or len(path) < len(found):
                found = path[::-1]
    return found


def _coded(names, owners, items, input_name):
    """Numbers of names, and the items. `owners` are the rankings that the names are of."""
    kinds = set(map(type, names))
    is_of = [all(issubclass(kind, of) and kind is not bool for kind in kinds)
             for of in (str, Integral)]
    if not any(is_of):
        of = str if isinstance(names[0], str) else Integral
        t = next(t for t, name in enumerate(names)
                 if not isinstance(name, of) or isinstance(name, bool))
        raise ValueError(f"{input_name}[{owners[t]}] has {names[t]!r}. {NAMES}")
    if items is None:
        if not names:
            raise ValueError(f"{input_name} names no items: write their names, such as in 'b>a'.")
        items = np.sort(as_items(list(dict.fromkeys(names)), input_name))
    known = {item: i for i, item in enumerate(items.tolist())}
    try:
        return np.fromiter(map(known.__getitem__, names), np.intp, len(names)), items
    except KeyError:
        t = next(t for t, name in enumerate(names) if name not in known)
        raise ValueError(
            f"{input_name}[{owners[t]}] has {names[t]!r}, but items does not.") from None
