"""Attributes of the tokens of a sentence, for `SequenceVectorizer`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _runs(field, n, reach):
    """Runs of n neighbouring tokens from -reach to reach: fields and their offsets."""
    return [tuple((field, t + i) for i in range(n)) for t in range(-reach, reach - n + 2)]


# the attributes of CRFsuite's chunking example
_CHUNKING = (
    *_runs("w", 1, 2), *_runs("w", 2, 1),
    *_runs("pos", 1, 2), *_runs("pos", 2, 2), *_runs("pos", 3, 2),
)

# lengths of the beginnings and ends of words
_AFFIXES = (1, 2, 3)


def _shown(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _check_strings(name, values):
    """Refuse a sentence that is one string, and several sentences instead of one."""
    if isinstance(values, str):
        raise TypeError(
            f"{name} must be a list of strings, one for each token, got {_shown(values)}.")
    for t, value in enumerate(values):
        if not isinstance(value, str):
            raise TypeError(
                f"{name}[{t}] must be a string, got {_shown(value)}. Pass one sentence at a time.")


def chunking_attributes(words: Sequence[str], tags: Sequence[str]) -> list[list[str]]:
    """Make the attributes of CRFsuite's chunking example for a sentence.

    The attributes are words and part-of-speech tags in a window of two, pairs of neighbouring words
    and tags, triples of tags, and ``__BOS__`` and ``__EOS__`` at the sentence's ends.

    Parameters
    ----------
    words : list of str
    tags : list of str
        Part-of-speech tag of each word.

    Returns
    -------
    attributes : list of lists of str
        The attributes of each word. A colon stays, while the example's scripts write ``__COLON__``.

    Examples
    --------
    >>> from fastm4n.datasets import chunking_attributes
    >>> chunking_attributes(["it", "is"], ["PRP", "VBZ"])[0]  # doctest: +NORMALIZE_WHITESPACE
    ['w[0]=it', 'w[1]=is', 'w[0]|w[1]=it|is', 'pos[0]=PRP', 'pos[1]=VBZ',
     'pos[0]|pos[1]=PRP|VBZ', '__BOS__']
    """
    for name, field in (("words", words), ("tags", tags)):
        _check_strings(name, field)
    columns = {"w": words, "pos": tags}
    n = len(words)
    if len(tags) != n:
        raise ValueError(f"words and tags differ in length: {n} words and {len(tags)} tags.")
    attributes = [[] for _ in range(n)]
    for parts in _CHUNKING:
        name = "|".join(f"{field}[{offset}]" for field, offset in parts) + "="
        first = max(0, -parts[0][1])
        last = n - max(0, parts[-1][1])
        shifted = [
            columns[field][first + offset : max(0, last + offset)] for field, offset in parts
        ]
        values = shifted[0] if len(parts) == 1 else map("|".join, zip(*shifted, strict=True))
        for token, value in zip(attributes[first:last], values, strict=True):
            token.append(name + value)
    if n:
        attributes[0].append("__BOS__")
        attributes[-1].append("__EOS__")
    return attributes


def window_attributes(tokens: Sequence[Any], *, window: int = 2) -> list[list[str]]:
    """Make attributes of the tokens of a sentence from their neighbours and their spelling.

    The attributes are the values of all columns in a window, and ``__BOS__`` and ``__EOS__`` at the
    sentence's ends. The first column, the word, adds its lower case, its beginnings and ends of up
    to three characters, and marks of capitals, digits and hyphens.

    Parameters
    ----------
    tokens : list of str, or of tuples of str
        Words, or the columns of each token, as returned by the readers.
    window : int, default=2
        Number of tokens on either side.

    Returns
    -------
    attributes : list of lists of str
        The attributes of each token.

    Examples
    --------
    >>> from fastm4n.datasets import window_attributes
    >>> window_attributes(["It", "is"], window=1)[0]  # doctest: +NORMALIZE_WHITESPACE
    ['0[0]=It', '0[1]=is', 'lower=it', 'begin=i', 'begin=it', 'end=t', 'end=it', 'capital',
     '__BOS__']
    """
    if isinstance(tokens, str):
        _check_strings("tokens", tokens)
    rows = [(token,) if isinstance(token, str) else token for token in tokens]
    for t, row in enumerate(rows):
        if not (isinstance(row, (tuple, list)) and row and all(isinstance(v, str) for v in row)):
            raise TypeError(
                f"tokens[{t}] must be a string or a tuple of strings, got {_shown(row)}. Pass one "
                "sentence at a time.")
    attributes = []
    for t, row in enumerate(rows):
        token = [
            f"{column}[{offset}]={value}"
            for offset in range(-window, window + 1) if 0 <= t + offset < len(rows)
            for column, value in enumerate(rows[t + offset])
        ]
        word = row[0]
        lower = word.lower()
        token.append(f"lower={lower}")
        token += [f"begin={lower[:n]}" for n in _AFFIXES if n <= len(lower)]
        token += [f"end={lower[-n:]}" for n in _AFFIXES if n <= len(lower)]
        if word[:1].isupper():
            token.append("capital")
        if len(word) > 1 and word.isupper():
            token.append("capitals")
        if any(character.isdigit() for character in word):
            token.append("digit")
        if "-" in word:
            token.append("hyphen")
        attributes.append(token)
    if attributes:
        attributes[0].append("__BOS__")
        attributes[-1].append("__EOS__")
    return attributes
