"""Sentences in columns: CoNLL-2000 to 2003, CRF++, and CoNLL-U."""

from __future__ import annotations

import re
from inspect import signature
from numbers import Integral
from typing import TYPE_CHECKING

from fastm4n.base.checks import check_number, unknown_parameter
from fastm4n.datasets._bunch import bunch
from fastm4n.datasets._lines import SPACE, Lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from sklearn.utils import Bunch

    from fastm4n.base.types import Source

CONLLU_FIELDS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")

# words may contain other white space of Unicode, such as a no-break space
_words = re.compile(r"[^ \t\r\v\f]+").findall

_CONLLU_ID = re.compile(r"([0-9]{1,9})(?:(-|\.)([0-9]{1,9}))?")

# strings and tokens that are shared between sentences, some 20 MB. It bounds memory alone
MOST_SHARED = 200_000


def load_conll(
    path: Source, *, label_column: int | str | None = -1, columns: Sequence[str] | None = None,
    delimiter: str | None = None, comment: str | None = None, skip_docstart: bool = True,
    keep_empty: bool = False,
) -> Bunch:
    """Read sentences in columns: a token on each line, a blank line after each sentence.

    This is the form of the CoNLL shared tasks of 2000 to 2003, and of CRF++.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    label_column : int, str or None, default=-1
        The column of the labels: its position (from the end if negative) or its name. None if
        the file has no labels.
    columns : list of str, default=None
        Names of all columns of the file. By default the first token fixes their number.
    delimiter : str, default=None
        Separator of columns. None is any run of spaces and tabs.
    comment : str, default=None
        Beginning of lines to ignore.
    skip_docstart : bool, default=True
        Whether to ignore lines with ``-DOCSTART-`` in the first column.
    keep_empty : bool, default=False
        Whether a blank line after no token is an empty sentence. Output for the sentences then
        lines up with the file. By default blank lines are only separators.

    Returns
    -------
    data : Bunch
        tokens : list of lists of tuples of str
            The columns of each token without its label.
        labels : list of lists of str, or None
            The label of each token, None without a column of labels.
        columns : list of str or None
            Names of the tuples' columns, if `columns` were given.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_conll
    >>> data = load_conll(io.StringIO("the DT B-NP\\ncat NN I-NP\\n\\nit PRP B-NP\\n"))
    >>> data.tokens
    [[('the', 'DT'), ('cat', 'NN')], [('it', 'PRP')]]
    >>> data.labels
    [['B-NP', 'I-NP'], ['B-NP']]
    """
    data, = _batches(
        path, None, label_column, columns, delimiter, comment, skip_docstart, keep_empty)
    return data


def iter_conll(path: Source, *, batch_size: int = 1000, **options: Any) -> Iterator[Bunch]:
    """Read sentences in columns by batches.

    This is :func:`load_conll` for large files: one batch is in memory.

    Parameters
    ----------
    path : str, path or file object
    batch_size : int, default=1000
        Sentences of a batch.
    **options
        Parameters of :func:`load_conll`.

    Yields
    ------
    data : Bunch
        The result of :func:`load_conll` for one batch.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import iter_conll
    >>> text = io.StringIO("the DT B-NP\\ncat NN I-NP\\n\\nit PRP B-NP\\n")
    >>> [data.labels for data in iter_conll(text, batch_size=1)]
    [[['B-NP', 'I-NP']], [['B-NP']]]
    """
    check_number("batch_size", batch_size, low=1, strict=False, integer=True)
    defaults = {
        name: parameter.default for name, parameter in signature(load_conll).parameters.items()
        if name != "path"}
    for name in options:
        if name not in defaults:
            raise TypeError(unknown_parameter("load_conll", name, list(defaults)))
    return _batches(path, batch_size, **{**defaults, **options})


def batched(sentences, size):
    """Sentences, pairs of lists, by batches, pairs of lists of lists. None makes one batch."""
    tokens, labels = [], []
    for sentence, sentence_labels in sentences:
        tokens.append(sentence)
        labels.append(sentence_labels)
        if size is not None and len(tokens) >= size:
            yield tokens, labels
            tokens, labels = [], []
    if tokens or size is None:
        yield tokens, labels


def _batches(
    path, size, label_column, columns, delimiter, comment, skip_docstart, keep_empty,
):
    """The results of `load_conll` for batches of sentences, or for all if `size` is None."""
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, not the string {columns!r}.")
    names = None if columns is None else list(columns)
    if names is None and isinstance(label_column, str):
        raise ValueError(f"label_column={label_column!r} needs columns, their names.")
    for name, value in (("delimiter", delimiter), ("comment", comment)):
        if value is not None and (not isinstance(value, str) or not value):
            raise ValueError(f"{name} must be None or a string, got {value!r}.")

    def made(batch):
        tokens, labels = batch
        left = names
        if names is not None and label_column is not None:
            left = list(names)
            del left[_column(label_column, len(names), names)]
        return bunch(
            tokens=tokens, labels=None if label_column is None else labels, columns=left)

    return map(made, batched(
        _sentences(Lines(path), names, label_column, delimiter, comment, skip_docstart, keep_empty),
        size))


def _sentences(lines, names, label_column, delimiter, comment, skip_docstart, keep_empty):
    """The sentences of a file in columns: pairs of tokens and labels."""
    width = None if names is None else len(names)
    column = None if width is None else _column(label_column, width, names)
    sentence, sentence_labels = [], []
    any_tokens = after_docstart = False
    known = {}  # one string object for each label
    shared = {}  # one object for all equal tokens, while they are few
    for line in lines:
        if comment is not None and line.startswith(comment):
            continue
        if delimiter is None:
            fields = _words(line)
        else:
            fields = line.split(delimiter) if line.strip(SPACE) else []
        is_docstart = skip_docstart and fields[:1] == ["-DOCSTART-"]
        if not fields or is_docstart:
            if sentence or (keep_empty and not is_docstart and not after_docstart):
                yield sentence, sentence_labels
                sentence, sentence_labels = [], []
            after_docstart = is_docstart
            continue
        after_docstart = False
        if len(fields) != width:
            if width is not None:
                raise lines.error(
                    f"{len(fields)} column(s) instead of {width}: {line!r:.80}. Check the "
                    "line, delimiter and columns.")
            width = len(fields)
            if width < 2 and label_column is not None:
                raise lines.error(
                    f"1 column instead of tokens and labels: {line!r:.80}. Check the line, or "
                    "pass label_column=None if the file has no labels.")
            column = _column(label_column, width, None)
        if column is not None:
            label = fields.pop(column)
            sentence_labels.append(known.setdefault(label, label))
        if len(shared) > MOST_SHARED:
            shared.clear()  # files may be longer than memory
        token = tuple([shared.setdefault(field, field) for field in fields])
        sentence.append(shared.setdefault(token, token))
        any_tokens = True
    if not any_tokens:
        raise ValueError(f"{lines.name} has no tokens.")
    if sentence:
        yield sentence, sentence_labels


def _column(label_column, width, names):
    """Position of the labels, or None."""
    if label_column is None:
        return None
    if isinstance(label_column, str):
        if label_column not in names:
            raise ValueError(f"label_column={label_column!r} is not among the columns {names}.")
        return names.index(label_column)
    if not isinstance(label_column, Integral) or isinstance(label_column, bool):
        raise TypeError(f"label_column must be an integer, a name or None, got {label_column!r}.")
    if not -width <= label_column < width:
        raise ValueError(f"There is no label_column={label_column}: there are {width} columns.")
    return label_column


def load_conllu(
    path: Source, *, fields: str | Sequence[str] = "FORM", label: str | None = "UPOS",
    keep_empty: bool = False,
) -> Bunch:
    """Read sentences in the CoNLL-U format of Universal Dependencies.

    Multiword tokens (``3-4``), empty nodes (``8.1``) and comments are ignored.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    fields : str or list of str, default="FORM"
        Fields of the tokens: one or several of ID, FORM, LEMMA, UPOS, XPOS, FEATS, HEAD,
        DEPREL, DEPS and MISC.
    label : str or None, default="UPOS"
        The field of the labels, or None.
    keep_empty : bool, default=False
        Whether a blank line after no token is an empty sentence. Output for the sentences then
        lines up with the file. By default blank lines are only separators.

    Returns
    -------
    data : Bunch
        tokens : list of lists of str, or of tuples of str
            One string for each word if `fields` is a string, else a tuple.
        labels : list of lists of str, or None
            The label of each token, None if `label` is None.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_conllu
    >>> text = (
    ...     "1\\tcats\\tcat\\tNOUN\\t_\\t_\\t2\\tnsubj\\t_\\t_\\n"
    ...     "2\\tsleep\\tsleep\\tVERB\\t_\\t_\\t0\\troot\\t_\\t_\\n"
    ... )
    >>> data = load_conllu(io.StringIO(text))
    >>> data.tokens, data.labels
    ([['cats', 'sleep']], [['NOUN', 'VERB']])
    """
    one = isinstance(fields, str)
    chosen = [fields] if one else list(fields)
    for name in chosen if label is None else [*chosen, label]:
        if name not in CONLLU_FIELDS:
            raise ValueError(f"fields and label must be among {CONLLU_FIELDS}, got {name!r}.")
    chosen = [CONLLU_FIELDS.index(name) for name in chosen]
    column = None if label is None else CONLLU_FIELDS.index(label)
    lines = Lines(path)
    tokens, labels = [], []
    sentence, sentence_labels = [], []
    word = cover = 0  # the last word's ID, and the last ID within a multiword token

    def finish(number, blank=False):
        nonlocal sentence, sentence_labels, word, cover
        if cover > word:
            raise lines.error(
                f"the sentence ends at word {word}, but a multiword token goes to {cover}.", number)
        if sentence or blank and keep_empty:
            tokens.append(sentence)
            labels.append(sentence_labels)
            sentence, sentence_labels = [], []
        word = cover = 0

    for line in lines:
        if not line.strip(SPACE):
            finish(lines.number, blank=True)
            continue
        if line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != 10:
            raise lines.error(
                f"{len(cells)} column(s) instead of 10, separated by tabs: {line!r:.80}")
        match = _CONLLU_ID.fullmatch(cells[0])
        if not match:
            raise lines.error(f"the ID {cells[0]!r:.80} is not of the form 3, 3-4 or 3.1.")
        first, mark, second = int(match[1]), match[2], match[3]
        expected = word if mark == "." else word + 1
        if first != expected:
            raise lines.error(
                f"the ID {cells[0]} follows word {word}, but IDs count 1, 2, 3 ... in each "
                "sentence. Check for a missing line or a blank line.")
        if mark == "-":
            if not first <= int(second) or first <= cover:
                raise lines.error(f"the multiword token {cells[0]} is empty or overlaps another.")
            cover = int(second)
        elif mark is None:
            word = first
            sentence.append(
                cells[chosen[0]] if one else tuple(cells[position] for position in chosen))
            if column is not None:
                sentence_labels.append(cells[column])
    finish(lines.number)
    if not any(tokens):
        raise ValueError(f"{lines.name} has no words.")
    return bunch(tokens=tokens, labels=None if column is None else labels)
