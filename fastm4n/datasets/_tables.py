"""Tables of separated values: features and a target, or rankings."""

from __future__ import annotations

import csv
import itertools
import re
from array import array
from math import isfinite
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.base.claims import as_texts
from fastm4n.datasets._bunch import bunch
from fastm4n.datasets._lines import SPACE, Lines, integer, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sklearn.utils import Bunch

    from fastm4n.base.types import Array, FloatArray, Source

_DECIMAL_COMMA = re.compile(r"(?<=[0-9]),(?=[0-9])")
_LEADING_ZEROS = re.compile(r"[-+]?0[0-9]")
_MISSING = ("nan", "-nan", "na", "null", "none", "?")
_NO_MISSING = "Missing values are not supported: fill them in, or leave the line or the column out."


def load_label_ranking(path: Source) -> tuple[FloatArray, Array]:
    """Read examples with rankings from comma-separated values.

    The first line names the columns. The last column, ``ranking``, contains strings such as
    ``b>a>c``, best first. They may be partial, see :func:`fastm4n.data.as_preferences`. All others
    contain numbers. The data sets of the label ranking literature have this form.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz. Values may be quoted.

    Returns
    -------
    X : ndarray of float64, shape (n, n_features)
    y : ndarray of str, shape (n,)
        The rankings, for :func:`fastm4n.data.as_places` or :func:`fastm4n.data.as_preferences`.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_label_ranking
    >>> X, y = load_label_ranking(io.StringIO("u,v,ranking\\n0.5,1,b>a>c\\n-2,0,a>b>c\\n"))
    >>> X
    array([[ 0.5,  1. ],
           [-2. ,  0. ]])
    >>> y.tolist()
    ['b>a>c', 'a>b>c']
    """
    lines = Lines(path)
    ranking = _Rankings(lines)
    values, rankings = array("d"), []
    rows = _table(lines, ",")
    columns = next(rows, None)
    if columns is not None and (columns[-1] != "ranking" or len(columns) < 2):
        raise lines.error(
            f"the columns are {columns!r:.80}. The first line must name the columns, separated by "
            "commas, with 'ranking' as the last.")
    for fields in rows:
        rankings.append(ranking(fields.pop()))
        values.extend(_finite(fields, columns[:-1], lines))
    if not rankings:
        raise ValueError(f"{lines.name} has no examples.")
    return np.array(values).reshape(len(rankings), -1), as_texts(rankings, lines.name)


def load_csv(
    path: Source, *, target: int | str | None = -1, columns: Sequence[str | int] | None = None,
    delimiter: str | None = None,
) -> Bunch:
    """Read a table: a line that names the columns, and then an example on each line.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz. Values may be quoted.
    target : str, int or None, default=-1
        The column to predict: its name, or its position, from the end if negative. None if there
        is no such column.
    columns : list of str or int, default=None
        The columns of features, which are numbers, in this order. By default all except the target.
    delimiter : str, default=None
        One character. By default comma, tab or semicolon, the most frequent in the first line.

    Returns
    -------
    data : Bunch
        X : ndarray of float64, shape (n, n_columns)
            The columns of features.
        y : ndarray of shape (n,), or None
            Integers or floats if all values are such numbers and keep their spelling, otherwise
            strings. ``007`` next to ``08``, and ``1`` next to ``1.0``, are strings.
        columns : list of str
            Names of the columns of X.
        target : str or None
            Name of the column of y.

    Raises
    ------
    ValueError
        If a value is missing or is no finite number. The message has its line and column.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_csv
    >>> data = load_csv(io.StringIO("kind,u,v\\na,0.5,1\\nb,-2,0\\n"), target="kind")
    >>> data.X
    array([[ 0.5,  1. ],
           [-2. ,  0. ]])
    >>> data.y.tolist(), data.columns
    (['a', 'b'], ['u', 'v'])
    """
    return bunch(**read_table(path, target, columns, delimiter)._asdict())


class Table(NamedTuple):
    """The result of `load_csv`, without scikit-learn."""

    X: np.ndarray
    y: np.ndarray | None
    columns: list
    target: str | None


def read_table(path, target, columns, delimiter, *, rankings=False, head=None, typed=True):
    """The `Table` of `load_csv`.

    Parameters
    ----------
    path, target, columns, delimiter
        See `load_csv`.
    rankings : bool, default=False
        Whether the target holds rankings, to be checked line by line. None: the first one decides.
    head : callable, default=None
        Called with the first two rows (the second may be None) and the `Lines`. It returns the
        names of the columns, whether the first row is an example, the target and the columns.
    typed : bool, default=True
        Whether a target of numbers becomes numbers.
    """
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise ValueError(f"delimiter must be one character or None, got {delimiter!r}.")
    lines = Lines(path)
    ranking = _Rankings(lines)
    rows = ((lines.number, row) for row in _table(lines, delimiter))
    ahead = list(itertools.islice(rows, 1 if head is None else 2))
    if not ahead:
        raise ValueError(f"{lines.name} has no examples.")
    lines.number, names = ahead.pop(0)
    if head is not None:
        first = names
        names, is_example, target, columns = head(first, ahead[0][1] if ahead else None, lines)
        if is_example:
            ahead.insert(0, (lines.number, first))
    place = _place(target, names, lines)
    if columns is None:
        columns = [name for i, name in enumerate(names) if i != place]
    chosen = [_place(column, names, lines) for column in columns]
    columns = [names[i] for i in chosen]
    shown = [names[i] or str(i + 1) for i in chosen]
    twice = {name for name in names if names.count(name) > 1}
    if twice & {*columns, *([] if place is None else [names[place]])}:
        raise lines.error(f"two columns are called {min(twice)!r}. Rename one.")
    if not columns:
        raise lines.error("there are no columns of features.")
    if place in chosen:
        raise lines.error(f"{names[place]!r} is the target, and among the features.")
    values, targets, n_examples = array("d"), [], 0
    known = {}  # one string object for each value
    trimmed = []
    for lines.number, fields in itertools.chain(ahead, rows):
        if place is not None:
            value = fields[place].strip(SPACE)
            if value != fields[place]:
                trimmed.append(lines.number)
            if not value:
                raise lines.error(f"{names[place]} is empty.")
            if rankings is None:
                rankings = is_ranking(value)
            targets.append(ranking(value) if rankings else known.setdefault(value, value))
        values.extend(_finite([fields[i] for i in chosen], shown, lines))
        n_examples += 1
    if not n_examples:
        raise ValueError(f"{lines.name} has no examples.")
    if head is not None and trimmed:
        several = "s" * (len(trimmed) > 1)
        head.notes.append(
            f"spaces around {len(trimmed)} label{several} of column {names[place]} are left out, "
            f"first in line {trimmed[0]}")
    return Table(
        X=np.array(values).reshape(n_examples, len(columns)),
        y=None if place is None else (_typed if typed else as_texts)(targets, lines.name),
        columns=columns,
        target=None if place is None else names[place],
    )


def _place(target, names, lines):
    """Position of a column, or None."""
    if target is None:
        return None
    if isinstance(target, str):
        if target not in names:
            raise lines.error(
                f"there is no column {target!r} in the first line, {names!r:.200}.")
        return names.index(target)
    if not isinstance(target, Integral) or isinstance(target, bool):
        raise TypeError(f"target must be an integer, a name or None, got {target!r}.")
    if not -len(names) <= target < len(names):
        raise lines.error(f"there is no column {target}: there are {len(names)}.")
    return int(target) % len(names)


def _typed(texts, where):
    """Integers, or floats, if all are such numbers and stay distinct."""
    distinct = sorted(set(texts))
    if any(_LEADING_ZEROS.match(text) for text in distinct):
        return as_texts(texts, where)
    for kind, parse in ((np.int64, integer), (np.float64, number)):
        try:
            value_of = {text: parse(text) for text in distinct}
            numbers = np.array([value_of[text] for text in texts], dtype=kind)
        except (ValueError, OverflowError):
            continue
        # integers of more than 64 bits may be rounded to each other as floats
        if np.isfinite(numbers).all() and len(set(value_of.values())) == len(distinct):
            return numbers
    return as_texts(texts, where)


def is_ranking(text):
    """Whether a value is a ranking such as b>a>c, and not a label such as >50."""
    return ">" in text and all(map(str.strip, text.split(">")))


def _table(lines, delimiter):
    """The rows of separated values, the first one's names without the spaces around them."""
    width = None

    def text():
        nonlocal delimiter
        for line in lines:
            if delimiter is None:
                # commas between digits alone may be decimal ones
                plain = _DECIMAL_COMMA.sub(".", line) if ";" in line else line
                delimiter = max(",\t;", key=plain.count)
            yield line + (lines.end or "\n")

    source = text()
    first = next(source, "")
    rows = csv.reader(
        itertools.chain([first], source), delimiter=delimiter, skipinitialspace=True, strict=True)
    while True:
        start = max(1, lines.number + (width is not None))
        try:
            fields = next(rows, None)
        except csv.Error as error:
            begin = f"; the row begins in line {start}" if start < lines.number else ""
            raise lines.error(f"not comma-separated values ({error}{begin}).") from None
        if fields is None:
            return
        if not any(field.strip(SPACE) for field in fields):
            continue
        if width is None:
            width = len(fields)
            fields = [field.strip(SPACE) for field in fields]
        elif len(fields) != width:
            raise lines.error(
                f"{len(fields)} column(s) instead of {width}: {delimiter.join(fields)!r:.80}.")
        yield fields


def _finite(fields, columns, lines):
    """The numbers of a row."""
    values = []
    for column, field in zip(columns, fields, strict=True):
        try:
            value = number(field)
        except ValueError:
            value = np.nan
        if not isfinite(value):
            raise lines.error(_no_number(column, field.strip(SPACE)))
        values.append(value)
    return values


def _no_number(column, field):
    if not column or column.isdecimal():
        column = f"column {column or 'without a name'}"
    if not field:
        return f"{column} is empty. {_NO_MISSING}"
    remedy = ""
    if _DECIMAL_COMMA.search(field):
        remedy = " Write decimals with a point."
    elif field.lower() in _MISSING:
        remedy = f" {_NO_MISSING}"
    return f"{column} is {field!r:.80}, which is not a finite number.{remedy}"


class _Rankings:
    """Checks rankings line by line."""

    def __init__(self, lines):
        self.lines = lines
        self.known = {}  # one string object for each ranking that was checked

    def __call__(self, ranking):
        ranking = ranking.strip(SPACE)
        if ranking not in self.known:
            items = [item.strip() for item in ranking.replace("=", ">").split(">")]
            if "" in items or len(set(items)) < len(items):
                raise self.lines.error(
                    f"the ranking {ranking!r} is not of the form 'b>a>c' or 'b>a=c', with each "
                    "item once.")
            self.known[ranking] = ranking
        return self.known[ranking]
