"""Labels of tokens from spans, spans from labels, and labels from one scheme to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.schemes import RULES, Tags, labelled, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.schemes import Reading, Rules
    from fastm4n.data._types import Labellings


def labels_to_spans(y: Labellings, scheme: Reading = "bio") -> list[list[tuple[str, int, int]]]:
    """Find the typed spans of label sequences that keep to a scheme.

    :func:`fastm4n.metrics.spans` also reads labels that do not.

    Parameters
    ----------
    y : list of label sequences, or Sequences
        Labels: ``O``, or a letter, a hyphen and a type.
    scheme : {"bio", "bioes", "bilou", "iob1", "conlleval"}, default="bio"
        What the letters mean, see :func:`fastm4n.metrics.spans`. With "conlleval" no order of
        letters is wrong.

    Returns
    -------
    spans : list of list of tuple (type, start, stop)
        In order. The tokens of a span are start ... stop - 1.

    Raises
    ------
    ValueError
        If a label is not of the scheme, or cannot follow the label before it, be the first or the
        last. The message has the sequence and the position.

    Examples
    --------
    >>> from fastm4n.data import labels_to_spans
    >>> labels_to_spans([["I-PER", "I-PER", "B-PER", "O"]], "iob1")
    [[('PER', 0, 2), ('PER', 2, 3)]]
    """
    reads = Tags(scheme)
    return [
        reads.spans(own.tolist() if hasattr(own, "tolist") else list(own), f"y[{b}]", whole=True)
        for b, own in enumerate(y)]


def spans_to_labels(
    spans: Iterable[Sequence[tuple[Any, ...]]], lengths: ArrayLike, scheme: Rules = "bio",
) -> list[list[str]]:
    """Labels of the tokens of sequences, from their typed spans.

    Parameters
    ----------
    spans : list of list of tuple (type, start, stop)
        The spans of each sequence, in any order. They must not overlap. Further entries of a tuple
        do not count.
    lengths : array-like of int of shape (n_sequences,)
        Numbers of tokens.
    scheme : {"bio", "bioes", "bilou", "iob1"}, default="bio"
        The letters of the labels.

    Returns
    -------
    y : list of list of str

    Examples
    --------
    >>> from fastm4n.data import spans_to_labels
    >>> spans_to_labels([[("PER", 0, 2), ("LOC", 3, 4)]], [5], "bioes")
    [['B-PER', 'E-PER', 'O', 'S-LOC', 'O']]
    """
    scheme_of(scheme, RULES)
    spans, lengths = list(spans), [int(n) for n in lengths]
    if len(spans) != len(lengths):
        raise ValueError(f"spans has {len(spans)} sequences, but lengths has {len(lengths)}.")
    return [
        labelled(own, n, scheme, f"spans[{b}]")
        for b, (own, n) in enumerate(zip(spans, lengths, strict=True))]


def convert_scheme(y: Labellings, source: Reading, target: Rules) -> list[list[str]]:
    """Write the labels of sequences in another scheme.

    Parameters
    ----------
    y : list of label sequences, or Sequences
        Labels: ``O``, or a letter, a hyphen and a type.
    source : {"bio", "bioes", "bilou", "iob1", "conlleval"}
        The scheme of y. "conlleval" reads letters in any order, and so mends labels, see
        :func:`fastm4n.metrics.spans`.
    target : {"bio", "bioes", "bilou", "iob1"}
        The scheme of the result.

    Returns
    -------
    y : list of list of str

    Raises
    ------
    ValueError
        If labels are not of the scheme, as of :func:`labels_to_spans`.

    Examples
    --------
    >>> from fastm4n.data import convert_scheme
    >>> convert_scheme([["I-PER", "I-PER", "B-PER", "O"]], "iob1", "bioes")
    [['B-PER', 'E-PER', 'S-PER', 'O']]
    """
    scheme_of(target, RULES, "target")
    scheme_of(source, argument="source")
    return spans_to_labels(labels_to_spans(y, source), [len(own) for own in y], target)
