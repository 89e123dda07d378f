"""Base classes of ragged containers, which are indexed like a vector of their items."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import Array


class Indexed:
    """Items that are indexed like the first axis of an array.

    Subclasses define `_item` and `_items`, the names in messages, and `__len__`. They also define
    `_one(i)`, `_slice(start, stop)` and `_take(numbers)` for existing items 0 ... n - 1.
    """

    _item = "item"
    _items = "items"

    def __getitem__(self, key: Any) -> Any:
        if type(key) is int and -len(self) <= key < len(self):
            return self._one(key if key >= 0 else key + len(self))
        # scikit-learn writes X[key, ...] for objects with a shape
        if isinstance(key, tuple):
            if len(key) != 2 or key[1] is not Ellipsis:
                raise IndexError(f"{type(self).__name__} are indexed along one axis, got {key!r}.")
            key = key[0]
        n = len(self)
        if isinstance(key, slice):
            start, stop, step = key.indices(n)
            if step == 1:
                return self._slice(start, max(start, stop))
            return self._take(np.arange(start, stop, step))
        key = np.asarray(key)
        if key.ndim == 0 and key.dtype.kind in "iu":
            return self._one(int(self._numbers(key[np.newaxis])[0]))
        if key.ndim != 1 or (key.dtype.kind not in "biu" and len(key)):
            raise IndexError(
                f"{type(self).__name__} are indexed by an integer, a slice, a mask or a vector of "
                f"integers, got {key.ndim} dimension(s) of {key.dtype}.")
        if key.dtype.kind == "b":
            if len(key) != n:
                raise IndexError(f"A mask of length {len(key)} does not fit {n} {self._items}.")
            return self._take(np.flatnonzero(key))
        return self._take(self._numbers(key))

    def _numbers(self, key):
        """Numbers of existing items, counted from the first."""
        n, key = len(self), key.astype(np.int64)
        outside = np.flatnonzero((key < -n) | (key >= n))
        if len(outside):
            raise IndexError(f"There is no {self._item} {key[outside[0]]}: there are {n}.")
        return np.where(key < 0, key + n, key)


class Ragged(Indexed):
    """A vector of items that lie end to end in arrays."""

    @property
    def shape(self) -> tuple[int]:
        """The tuple (number of items,)."""
        return (len(self),)

    @property
    def ndim(self) -> Any:
        """1: the container is a vector of its items."""
        return 1

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        # a vector of items, even if equal lengths would make a matrix
        name = type(self).__name__
        if dtype is not None and np.dtype(dtype) != object:
            raise TypeError(f"{name} become an array of objects only, not of {np.dtype(dtype)}.")
        if copy is False:
            raise ValueError(f"{name} cannot become an array of objects without a copy.")
        array = np.empty(len(self), dtype=object)
        for i, item in enumerate(self):
            array[i] = item
        return array

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        # cross_val_predict joins the predictions of its folds by np.concatenate
        if func is not np.concatenate:
            return NotImplemented
        return self._concatenate(*args, **kwargs)

    @classmethod
    def _concatenate(cls, parts, axis=0):
        parts = list(parts)
        if axis != 0 or not all(isinstance(part, cls) for part in parts):
            raise TypeError(f"{cls.__name__} are concatenated with {cls._items}, along axis 0.")
        return cls._joined(parts)


def taken(offsets, numbers):
    """Rows of the segments with these numbers, and the new offsets.

    Segment i is the rows ``offsets[i]:offsets[i + 1]``.
    """
    starts = offsets[:-1][numbers]
    lengths = offsets[1:][numbers] - starts
    new = cut(lengths)
    # row j of the result, in its segment i, is row starts[i] + (j - new[i])
    rows = np.repeat(starts - new[:-1], lengths)
    rows += np.arange(new[-1])
    return rows, new


def cut(lengths):
    """The offsets of segments of these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def as_integers(numbers, name):
    array = np.asarray(numbers)
    if array.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, got {array.ndim}.")
    if array.dtype.kind not in "iu" and len(array):
        raise TypeError(f"{name} must be integers, got {array.dtype}.")
    return array.astype(np.int64, copy=False)


def as_offsets(
    offsets, n_rows, *, name="offsets", item="sequence", row="row", rows="rows of values"
):
    """Offsets that cut `n_rows` rows, checked: a read-only copy."""
    # a copy: the caller may change its own array
    offsets = np.array(as_integers(offsets, name), dtype=np.int64)
    if len(offsets) == 0 or offsets[0] != 0:
        first = f"begin with {offsets[0]}" if len(offsets) else "are empty"
        raise ValueError(f"{name} must begin with 0; they {first}.")
    decrease = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(decrease):
        i = decrease[0]
        raise ValueError(
            f"{name} must not decrease; {item} {i} would begin at {row} {offsets[i]} and end "
            f"at {row} {offsets[i + 1]}.")
    if offsets[-1] != n_rows:
        raise ValueError(
            f"The last of the {name} must be the number of {rows}, {n_rows}, got {offsets[-1]}.")
    offsets.flags.writeable = False
    return offsets
