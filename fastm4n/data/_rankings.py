"""Forms of rankings of items.

All functions compute with places: ``places[b, i]`` is the position of item i in ranking b, 0 for
the best. A row is a permutation. Its permutation matrix in the M4N paper (Nowak-Vila, Bach and Rudi
2020, Example 2.2) has ones at ``[i, places[b, i]]``.

`document_pairs` and `preference_pairs` convert rankings of documents of queries, which do not share
one set of items.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.data._documents import document_pairs, preference_pairs

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import Array

__all__ = [
    "as_places", "document_pairs", "places_to_orderings", "places_to_strings", "preference_pairs",
]

FORMS = ("auto", "ranks", "ordering", "string")

_PARTIAL = (
    "Partial rankings are for as_preferences and LabelRanker: place every item, or remove the "
    "ranking.")
_TIES = (
    "Ties are for as_preferences and LabelRanker: break them, or remove the ranking.")
NAMES = "Names must be all strings or all integers, without ties or missing items."


def as_places(
    y: ArrayLike, form: Literal["auto", "ranks", "ordering", "string"] = "auto",
    items: ArrayLike | None = None, *, input_name: str = "y",
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Read complete rankings of one set of items, without ties.

    Parameters
    ----------
    y : array-like
        n rankings of the same M items, in a form listed below.
    form : {"auto", "ranks", "ordering", "string"}, default="auto"
        The form of the rankings:

        - ``"ranks"``: array of shape (n, M), where ``y[b, i]`` is the rank of item i. Ranks are
          1 ... M or 0 ... M-1, best first, in all rows alike. Floats must be whole.
        - ``"ordering"``: array of shape (n, M) or list of lists of the items' names, best first.
          Names are strings or integers.
        - ``"string"``: strings such as ``"b>a>c"``, best first, of shape (n,). Spaces around
          names are ignored. A name contains no ``>`` and no ``=``.
        - ``"auto"``: the first ranking decides. A string is ``"string"``, strings are
          ``"ordering"``, numbers are ``"ranks"``. Orderings of integers look like ranks and need
          ``form="ordering"``.
    items : array-like of shape (M,), default=None
        Names of the items, in the order of the columns of `places`. By default the names in `y`,
        sorted, or 0 ... M-1 for ranks.
    input_name : str, default="y"
        Name of `y` in errors.

    Returns
    -------
    places : ndarray of intp, shape (n, M)
        Position of each item, 0 for the best.
    items : ndarray of shape (M,)
        Their names.

    Raises
    ------
    ValueError
        If a ranking has ties, repeated, missing or unknown items, a gap in its ranks or a missing
        value, or if there are no rankings.
    TypeError
        If `y` has no such form.

    See Also
    --------
    places_to_orderings, places_to_strings : The way back.
    as_preferences : Rankings with ties or missing items.

    Notes
    -----
    The cost is linear in n M, and arrays of ranks are checked without a loop over rankings.

    Examples
    --------
    >>> from fastm4n.data import as_places
    >>> places, items = as_places(["b>a>c", "c>b>a"])
    >>> places
    array([[1, 0, 2],
           [2, 1, 0]])
    >>> items.tolist()
    ['a', 'b', 'c']
    >>> as_places([["b", "a", "c"]])[0]
    array([[1, 0, 2]])
    >>> as_places([[2, 1, 3]])[0]
    array([[1, 0, 2]])
    >>> as_places([[2, 3, 1]], form="ordering")[0]
    array([[2, 0, 1]])
    """
    y, items = listed(y, form, FORMS, items, input_name)
    if form == "auto":
        form = guess(y)
    if form == "ranks":
        return _from_ranks(y, items, input_name)
    if form == "string":
        return _from_strings(y, items, input_name)
    names, lengths = flatten(y, input_name)
    return _from_names(names, lengths, range(len(y)), items, input_name)


def listed(y, form, forms, items, input_name):
    """Rankings as a list or an array, and items as an array or None; the form is one of `forms`."""
    if form not in forms:
        raise ValueError(f"form must be one of {forms}, got {form!r}.")
    if isinstance(y, (str, bytes)):
        raise TypeError(
            f"{input_name} must be rankings, not the string {y!r}. {_alone(input_name)}")
    if hasattr(y, "__array__"):
        y = np.asarray(y)
        if y.ndim == 0:
            raise ValueError(f"{input_name} has no dimensions. {_alone(input_name)}")
    elif isinstance(y, (dict, set, frozenset)) or not hasattr(y, "__len__"):
        raise TypeError(f"{input_name} must be a list or an array, not {type(y).__name__}.")
    if len(y) == 0:
        raise ValueError(f"{input_name} has no rankings.")
    return y, None if items is None else as_items(items, "items")


def places_to_orderings(places: ArrayLike, items: ArrayLike | None) -> Array:
    """Write rankings as their items, best first.

    Parameters
    ----------
    places : array-like of int, shape (n, M)
        Position of each item, 0 for the best, from :func:`as_places`. n may be 0.
    items : array-like of shape (M,)
        Names of the items, all strings or all integers.

    Returns
    -------
    orderings : ndarray of shape (n, M)
        ``orderings[b, k]`` is the item at position k.

    Raises
    ------
    ValueError
        If a row of `places` is not a permutation of 0 ... M-1, or if `items` has repetitions.

    Examples
    --------
    >>> from fastm4n.data import places_to_orderings
    >>> places_to_orderings([[1, 0, 2]], ["a", "b", "c"]).tolist()
    [['b', 'a', 'c']]
    """
    items = as_items(items, "items")
    places = np.asarray(places)
    if places.ndim != 2 or places.dtype.kind not in "iu" or places.shape[1] != len(items):
        raise ValueError(
            f"places must be integers of shape (n, {len(items)}), a column for each item, got "
            f"{places.dtype} of shape {places.shape}.")
    return items[_permutations(places, 0, "places", "place")[1]]


def places_to_strings(places: ArrayLike, items: ArrayLike | None) -> Array:
    """Write rankings as strings such as ``"b>a>c"``, best first.

    Parameters
    ----------
    places : array-like of int, shape (n, M)
        Position of each item, 0 for the best, from :func:`as_places`. n may be 0.
    items : array-like of shape (M,)
        Names of the items, all strings or all integers. They must not contain ``>`` or ``=``, be
        empty, or begin or end with a space.

    Returns
    -------
    strings : ndarray of str, shape (n,)

    Raises
    ------
    ValueError
        If a row of `places` is not a permutation of 0 ... M-1, or if `items` has repetitions or
        names that cannot be read again.

    Examples
    --------
    >>> from fastm4n.data import places_to_strings
    >>> places_to_strings([[1, 0, 2], [0, 1, 2]], ["a", "b", "c"]).tolist()
    ['b>a>c', 'a>b>c']
    """
    names = as_items(items, "items").astype(str)
    for i, name in enumerate(names.tolist()):
        if not name or name != name.strip() or ">" in name or "=" in name:
            raise ValueError(
                f"items[{i}] is {name!r}: names must not contain '>' or '=', be empty, or begin or "
                "end with a space. Rename it, or use places_to_orderings.")
    orderings = places_to_orderings(places, names)
    return np.array([">".join(ordering) for ordering in orderings.tolist()], dtype=str)


def _alone(input_name):
    return f"Put a single ranking into a list, [{input_name}]."


def guess(y):
    """The form of rankings, from the first one."""
    first = y[0]
    if isinstance(first, str):
        return "string"
    if hasattr(first, "__len__"):
        return "ordering" if any(isinstance(value, str) for value in first) else "ranks"
    # the first value may be missing
    return "string" if any(isinstance(value, str) for value in y) else "ranks"


def as_items(items, where):
    """Distinct names as an array."""
    values = items.tolist() if hasattr(items, "tolist") else items
    if isinstance(values, (str, bytes, dict, set)) or not hasattr(values, "__len__"):
        raise TypeError(f"{where} must be a list of names, not {items!r}.")
    values = list(values)
    if not values:
        raise ValueError(f"{where} has no items.")
    kind = str if isinstance(values[0], str) else Integral
    seen = set()
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{where} has {value!r}. {NAMES}")
        if value in seen:
            raise ValueError(f"{where} has {value!r} twice: each item must occur once.")
        seen.add(value)
    return np.array(values)


def _from_ranks(y, items, input_name):
    ranks = rank_array(y, input_name)
    size = ranks.shape[1]
    if items is None:
        items = np.arange(size)
    elif len(items) != size:
        raise ValueError(f"{input_name}[0] has {size} items, but items has {len(items)}.")
    base = int(ranks[0].min() >= 1)
    return _permutations(ranks, base, input_name, "rank")[0], items


def rank_array(y, input_name, remedy=_PARTIAL):
    """Ranks as an array of numbers, of shape (n, M), NaN where they are missing.

    `remedy` is for rows of different lengths.
    """
    if not isinstance(y, np.ndarray) or (y.dtype == object and y.ndim == 1):
        values, lengths = flatten(y, input_name)
        _check_lengths(lengths, range(len(y)), None, input_name, remedy)
        y = np.fromiter(values, object, len(values)).reshape(len(y), -1)
    if y.ndim != 2:
        raise ValueError(
            f"{input_name} must have the shape (n, M), got {y.shape}. {_alone(input_name)}")
    if not y.shape[1]:
        raise ValueError(f"{input_name}[0] has no items.")
    if y.dtype == object:
        # pandas.NA is no number
        values = [None if type(value).__name__ == "NAType" else value for value in y.ravel()]
        wrong = [kind for kind in set(map(type, values)) if not _holds_ranks(kind)]
        if wrong:
            t = next(t for t, value in enumerate(values) if type(value) in wrong)
            b, i = divmod(t, y.shape[1])
            raise TypeError(f"{input_name}[{b}][{i}] is {values[t]!r}: ranks are numbers.")
        y = np.array(values, dtype=object).reshape(y.shape).astype(float)  # None becomes NaN
    if y.dtype.kind not in "iuf":
        raise TypeError(
            f"{input_name} has dtype {y.dtype}, but ranks are numbers. For names of items pass "
            "form='ordering'.")
    return y


def _holds_ranks(kind):
    return kind is type(None) or (issubclass(kind, Real) and kind is not bool)


def _permutations(ranks, base, input_name, noun):
    """Rows counted from 0, and their inverses. Every row must be a permutation."""
    size = ranks.shape[1]
    good = (ranks >= base) & (ranks <= base + size - 1)
    if ranks.dtype.kind == "f":
        good &= ranks == np.trunc(ranks)
    places = np.where(good, ranks, base).astype(np.intp, order="C") - base
    order = inverse(places)
    bad = np.flatnonzero(~good.all(axis=1) | (order < 0).any(axis=1))
    if len(bad):
        b = bad[0]
        raise ValueError(f"{input_name}[{b}] {_fault(ranks[b], base, input_name, noun)}")
    return places, order


def inverse(rows):
    """The position of each number in its row, or -1."""
    found = np.full(rows.shape, -1, dtype=np.intp)
    np.put_along_axis(found, rows, np.arange(rows.shape[1])[np.newaxis], axis=1)
    return found


def _fault(row, base, input_name, noun):
    """The reason why a row is no permutation."""
    size = len(row)
    row = row.tolist()
    seen = {}
    for i, value in enumerate(row):
        if value != value:
            return f"has no {noun} in column {i}, but NaN. {_PARTIAL}"
        whole = value not in (np.inf, -np.inf) and value == int(value)
        value = int(value) if whole else value
        if value < 0 or value == np.inf:
            return f"has the {noun} {value} in column {i}: {noun}s are finite and not negative."
        if not whole:
            return f"has the {noun} {value} in column {i}: {noun}s are whole numbers. {_TIES}"
        if value in seen:
            return f"has the {noun} {value} in columns {seen[value]} and {i}. {_TIES}"
        seen[value] = i
    if noun == "rank" and sorted(row) == list(range(1 - base, size + 1 - base)):
        return (
            f"counts ranks from {1 - base}, but {input_name}[0] from {base}. Count all from the "
            "same number.")
    missing = next(value for value in range(base, base + size) if value not in seen)
    return (
        f"has no {noun} {missing}: it must have each of {base} ... {base + size - 1} once. "
        f"{_PARTIAL}")


def _from_strings(y, items, input_name):
    if isinstance(y, np.ndarray) and y.ndim != 1:
        raise ValueError(
            f"{input_name} must have the shape (n,), got {y.shape}. For names of items pass "
            "form='ordering'.")
    strings = y.tolist() if isinstance(y, np.ndarray) else list(y)
    for b, string in enumerate(strings):
        if not isinstance(string, str):
            raise TypeError(
                f"{input_name}[{b}] is {string!r}, not a string such as 'b>a>c'. Remove missing "
                "rankings. For lists of names pass form='ordering'.")
    # rankings repeat: split each one once
    distinct = {}
    which = np.array([distinct.setdefault(string, len(distinct)) for string in strings])
    rows = np.unique(which, return_index=True)[1]
    lengths = [string.count(">") + 1 for string in distinct]
    names = list(map(str.strip, ">".join(distinct).split(">")))
    if "" in names or "=" in "".join(names):
        for row, string in zip(rows, distinct, strict=True):
            if "=" in string:
                raise ValueError(f"{input_name}[{row}] is {string!r}. {_TIES}")
            if not all(map(str.strip, string.split(">"))):
                raise ValueError(
                    f"{input_name}[{row}] is {string!r}, where an item has no name. Write all "
                    "items, best first, as in 'b>a>c'.")
    places, items = _from_names(names, lengths, rows, items, input_name)
    return places[which], items


def flatten(y, input_name):
    """Names of all orderings end to end, and the lengths of the orderings."""
    if isinstance(y, np.ndarray) and (y.dtype != object or y.ndim != 1):
        if y.ndim != 2:
            raise ValueError(
                f"{input_name} must have the shape (n, M), got {y.shape}. {_alone(input_name)}")
        return y.ravel().tolist(), [y.shape[1]] * len(y)
    names, lengths = [], []
    for b, row in enumerate(y):
        if isinstance(row, (str, bytes, dict, set, frozenset)) or not hasattr(row, "__len__"):
            raise TypeError(
                f"{input_name}[{b}] must be a list or an array, not {row!r}. {_alone(input_name)} "
                "For strings such as 'b>a>c' pass form='string'.")
        names.extend(row.tolist() if hasattr(row, "tolist") else row)
        lengths.append(len(row))
    return names, lengths


def _from_names(names, lengths, rows, items, input_name):
    """Places from the names of all orderings. Ordering b is ``input_name[rows[b]]``."""
    _check_lengths(lengths, rows, items, input_name)
    size = lengths[0]
    known_from = "items" if items is not None else f"{input_name}[0]"
    if items is None:
        items = np.sort(as_items(names[:size], known_from))
    known = {item: i for i, item in enumerate(items.tolist())}
    try:
        codes = np.fromiter(map(known.__getitem__, names), np.intp, len(names))
    except (KeyError, TypeError):  # unknown, or not hashable
        t, name = next(
            (t, name) for t, name in enumerate(names)
            if not isinstance(name, (str, Integral)) or name not in known)
        where = f"{input_name}[{rows[t // size]}]"
        if not isinstance(name, (str, Integral)):
            raise ValueError(f"{where} has {name!r}. {NAMES}") from None
        raise ValueError(
            f"{where} has {name!r}, but {known_from} does not. Rank the same items everywhere."
        ) from None
    codes = codes.reshape(-1, size)
    places = inverse(codes)
    bad = np.flatnonzero((places < 0).any(axis=1))
    if len(bad):
        b = bad[0]
        counts = np.bincount(codes[b], minlength=size)
        twice, missing = items[[counts.argmax(), counts.argmin()]].tolist()
        raise ValueError(
            f"{input_name}[{rows[b]}] has {twice!r} {counts.max()} times and {missing!r} not at "
            "all: each item must occur once.")
    return places, items


def _check_lengths(lengths, rows, items, input_name, remedy=_PARTIAL):
    size = lengths[0] if items is None else len(items)
    for b, length in enumerate(lengths):
        if length != size:
            other = f"{input_name}[0]" if items is None else "items"
            raise ValueError(
                f"{input_name}[{rows[b]}] has {length} items, but {other} has {size}. {remedy}")
