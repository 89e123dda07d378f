"""Attribute files of CRFsuite."""

import re

import numpy as np
from sklearn.utils import Bunch

from fastm4n.datasets._lines import SPACE, Lines, number

# an attribute up to its first colon that is not escaped, and what follows it
_ATTRIBUTE = re.compile(r"((?:[^\\:]|\\[\\:]|\\(?![\\:]))*)(?::(.*))?", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\:])")


def load_crfsuite(path, *, keep_empty=False):
    r"""Read the attribute files of CRFsuite.

    A line is a token: its label and its attributes, separated by tabs. An attribute may have a
    weight, after a colon. A blank line ends a sequence. A colon in a name is written
    ``\:``, a backslash ``\\``.

    Parameters
    ----------
    path : str, path or file object
        UTF-8 text, plain or compressed by gzip, bzip2 or xz.
    keep_empty : bool, default=False
        Whether a blank line that follows no token is an empty sentence, so that what is written
        for the sentences lines up with the file; by default blank lines are only separators.

    Returns
    -------
    data : Bunch
        sequences : list of lists of lists of str, or of dicts
            What :class:`~fastm4n.SequenceVectorizer` takes: the attributes of each token; or,
            if any attribute of the file has a weight, a dict from the attributes to their
            weights, where repeated ones add up.
        labels : list of lists of str

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
    lines = Lines(path)
    sequences, labels = [], []
    sequence, sequence_labels = [], []
    any_weights = False
    known = {}  # one string object for each attribute and label, however often it occurs
    for line in lines:
        if not line.strip(SPACE):
            if sequence or keep_empty:
                sequences.append(sequence)
                labels.append(sequence_labels)
                sequence, sequence_labels = [], []
            continue
        label, *fields = line.split("\t")
        # CRFsuite would take the first attribute for the label
        if not label.strip(SPACE):
            raise lines.error("there is no label before the first tab.")
        if ":" in label or "\\" in label:
            label, weight = _attribute(label)
            if weight is not None:
                raise lines.error(
                    f"the label {label!r} has a weight; a colon in a label is written '\\:'."
                )
        fields = [known.setdefault(field, field) for field in fields if field]
        if ":" in line or "\\" in line:
            token, weights = [], []
            for field in fields:
                name, weight = _attribute(field)
                if not name:
                    raise lines.error(f"the attribute {field!r} has no name.")
                if weight is not None:
                    any_weights = True
                    weight = _weight(weight, field, lines)
                token.append(known.setdefault(name, name))
                weights.append(1.0 if weight is None else weight)
            sequence.append((token, weights))
        else:
            sequence.append((fields, None))
        sequence_labels.append(known.setdefault(label, label))
    if sequence:
        sequences.append(sequence)
        labels.append(sequence_labels)
    if not any(sequences):
        raise ValueError(f"{lines.name} holds no tokens.")
    # in place, to hold no second copy of a large file
    for sequence in sequences:
        sequence[:] = [
            _weighted(names, weights) if any_weights else names for names, weights in sequence
        ]
    return Bunch(sequences=sequences, labels=labels)


def _attribute(field):
    """Name, and text of the weight or None."""
    name, weight = _ATTRIBUTE.fullmatch(field).groups()
    return _ESCAPED.sub(r"\1", name), weight


def _weight(text, field, lines):
    if ":" in text:
        raise lines.error(
            f"the attribute {field!r} has two colons; a colon in a name is written '\\:'."
        )
    try:
        # CRFsuite takes a colon without a number for a weight of 1
        weight = number(text) if text else 1.0
    except ValueError:
        weight = None
    if weight is None or not np.isfinite(weight):
        raise lines.error(
            f"the weight {text!r} of the attribute {field!r} is not a finite number; a colon in a "
            "name is written '\\:'."
        )
    return weight


def _weighted(names, weights):
    if weights is None:
        weights = [1.0] * len(names)
    token = {}
    for name, weight in zip(names, weights, strict=True):
        token[name] = token.get(name, 0.0) + weight
    return token
