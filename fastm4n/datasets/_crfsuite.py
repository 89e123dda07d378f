"""Attribute files of CRFsuite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_number
from fastm4n.datasets._bunch import bunch
from fastm4n.datasets._conll import batched
from fastm4n.datasets._lines import SPACE, Lines, number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sklearn.utils import Bunch

    from fastm4n.base.types import Source

# an attribute up to its first colon that is not escaped, and what follows it
_ATTRIBUTE = re.compile(r"((?:[^\\:]|\\[\\:]|\\(?![\\:]))*)(?::(.*))?", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\:])")


def load_crfsuite(path: Source, *, keep_empty: bool = False) -> Bunch:
    r"""Read the attribute files of CRFsuite.

    A line is a token: a label and attributes, separated by tabs. An attribute may have a weight
    after a colon. A blank line ends a sequence. In names, write a colon as ``\:`` and a backslash
    as ``\\``.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    keep_empty : bool, default=False
        Whether a blank line after no token is an empty sentence. Output for the sentences then
        lines up with the file. By default blank lines are only separators.

    Returns
    -------
    data : Bunch
        sequences : list of lists of lists of str, or of dicts
            The attributes of each token, for :class:`~fastm4n.SequenceVectorizer`. If any
            attribute of the file has a weight, tokens are dicts from attributes to weights, and
            weights of repeated attributes add up.
        labels : list of lists of str
            The label of each token.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import load_crfsuite
    >>> data = load_crfsuite(io.StringIO("B-NP\tw=the\tbos\nI-NP\tw=cat\n\nO\tw=\\:\n"))
    >>> data.sequences
    [[['w=the', 'bos'], ['w=cat']], [['w=:']]]
    >>> data.labels
    [['B-NP', 'I-NP'], ['O']]
    >>> load_crfsuite(io.StringIO("O\tlength:3\tbos\n")).sequences
    [[{'length': 3.0, 'bos': 1.0}]]
    """
    batch, = batched(_sequences(Lines(path), keep_empty), None)
    return _bunch(batch)


def iter_crfsuite(
    path: Source, *, batch_size: int = 1000, keep_empty: bool = False,
) -> Iterator[Bunch]:
    r"""Read the attribute files of CRFsuite by batches.

    This is :func:`load_crfsuite` for large files: one batch is in memory.

    Parameters
    ----------
    path : str, path or file object
    batch_size : int, default=1000
        Sequences of a batch.
    keep_empty : bool, default=False

    Yields
    ------
    data : Bunch
        The result of :func:`load_crfsuite` for one batch. Tokens are dicts if an attribute of the
        batch has a weight. :class:`~fastm4n.SequenceVectorizer` accepts both forms.

    Examples
    --------
    >>> import io
    >>> from fastm4n.datasets import iter_crfsuite
    >>> text = io.StringIO("B-NP\tw=the\nI-NP\tw=cat\n\nO\tw=it\n")
    >>> [data.labels for data in iter_crfsuite(text, batch_size=1)]
    [[['B-NP', 'I-NP']], [['O']]]
    """
    check_number("batch_size", batch_size, low=1, strict=False, integer=True)
    return map(_bunch, batched(_sequences(Lines(path), keep_empty), batch_size))


def _bunch(batch):
    """The result of `load_crfsuite` for some sequences of `_sequences`."""
    sequences, labels = batch
    any_weights = any(explicit for sequence in sequences for _, _, explicit in sequence)
    # in place: a file may be large
    for sequence in sequences:
        sequence[:] = [
            _weighted(names, weights) if any_weights else names for names, weights, _ in sequence]
    return bunch(sequences=sequences, labels=labels)


def _sequences(lines, keep_empty):
    """The sequences of a file, and their labels.

    A token is its attributes, their weights or None, and whether the file has the weights.
    """
    sequence, sequence_labels = [], []
    any_tokens = False
    known = {}  # one string object for each attribute and label
    for line in lines:
        if not line.strip(SPACE):
            if sequence or keep_empty:
                yield sequence, sequence_labels
                sequence, sequence_labels = [], []
            continue
        label, *fields = line.split("\t")
        # CRFsuite would read the first attribute as the label
        if not label.strip(SPACE):
            raise lines.error("there is no label before the first tab.")
        if ":" in label or "\\" in label:
            label, weight = _attribute(label)
            if weight is not None:
                raise lines.error(f"the label {label!r} has a weight. Write a colon as '\\:'.")
        fields = [known.setdefault(field, field) for field in fields if field]
        any_tokens = True
        sequence_labels.append(known.setdefault(label, label))
        if ":" not in line and "\\" not in line:
            sequence.append((fields, None, False))
            continue
        token, weights, explicit = [], [], False
        for field in fields:
            name, weight = _attribute(field)
            if not name:
                raise lines.error(f"the attribute {field!r} has no name.")
            if weight is not None:
                explicit = True
                weight = _weight(weight, field, lines)
            token.append(known.setdefault(name, name))
            weights.append(1.0 if weight is None else weight)
        sequence.append((token, weights, explicit))
    if not any_tokens:
        raise ValueError(f"{lines.name} has no tokens.")
    if sequence:
        yield sequence, sequence_labels


def _attribute(field):
    """The name, and the text of the weight or None."""
    if ":" not in field and "\\" not in field:
        return field, None
    name, weight = _ATTRIBUTE.fullmatch(field).groups()
    return _ESCAPED.sub(r"\1", name), weight


def _weight(text, field, lines):
    if ":" in text:
        raise lines.error(f"the attribute {field!r} has two colons. In a name, write '\\:'.")
    try:
        # in CRFsuite, a colon without a number is a weight of 1
        weight = number(text) if text else 1.0
    except ValueError:
        weight = None
    if weight is None or not np.isfinite(weight):
        raise lines.error(
            f"the weight {text!r} of the attribute {field!r} is not a finite number. Write a colon "
            "in a name as '\\:'.")
    return weight


def _weighted(names, weights):
    if weights is None:
        weights = [1.0] * len(names)
    token = {}
    for name, weight in zip(names, weights, strict=True):
        token[name] = token.get(name, 0.0) + weight
    return token
