"""Schemes of tags: how the labels of tokens mark typed spans."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from fastm4n.base.checks import check_choice

# names of the schemes whose rules labellings can be held to
Rules = Literal["bio", "bioes", "bilou", "iob1"]
Reading = Literal["conlleval", "bio", "bioes", "bilou", "iob1"]


class Scheme(NamedTuple):
    """What tags mean. Pairs are of the tags of two neighbouring tokens."""

    tags: str
    # pairs of one type within a span
    joined: frozenset[str]
    # tags that begin a span after another type or outside: of several tokens, then of one
    opens: str
    # pairs of one type between which another span begins
    again: frozenset[str]
    # tags that may end a span, that of several tokens last
    closes: str
    outside: tuple[str, ...] = ("O",)


def _pairs(before, after):
    return frozenset(a + b for a in before for b in after)


def _strict(tags, joined, opens, closes, again=None):
    return Scheme(tags, frozenset(joined.split()), opens, _pairs(tags, again or opens), closes)


SCHEMES = {
    "bio": _strict("BI", "BI II", "B", "BI"),
    "bioes": _strict("BIES", "BI BE II IE", "BS", "SE"),
    "bilou": _strict("BILU", "BI BL II IL", "BU", "UL"),
    # B stands for the I of a span that follows another of its type at once
    "iob1": _strict("BI", "BI II", "I", "BI", "B"),
}
RULES = tuple(SCHEMES)
# conlleval's own table of chunks that end, with the chunks of one token and the beginnings after an
# end of its versions for BIOES, and with L for E and U for S. An I after a bracket is in no span.
SCHEMES["conlleval"] = Scheme(
    "BIESLU[]", _pairs("BI", "IEL"), "BIESLU[]",
    _pairs("BIESLU[]", "[]BSU") - _pairs("[]", "BSU") | _pairs("ELSU", "IEL"), "BIESLU[]",
    ("O", "."))


# before the first label of a sequence
_START = object()


class Span(NamedTuple):
    """A span of a sequence, whose tokens are start ... stop - 1, and its probability."""

    label: str
    start: int
    stop: int
    probability: float


def scheme_of(name, choices=tuple(SCHEMES), argument="scheme"):
    check_choice(argument, name, choices)
    return SCHEMES[name]


class Tags:
    """Reads labels of one scheme, and remembers those that it has seen.

    Errors name labels that are not of the scheme, and by its rules those without a type among
    others.
    """

    def __init__(self, name, choices=tuple(SCHEMES), argument="scheme"):
        self.scheme, self.name = scheme_of(name, choices, argument), name
        self.source = f"({argument}={name!r})"
        self.seen, self.steps, self.typed = {_START: ("", "")}, {}, None

    def split(self, label, where):
        """Tag and type of a label: "" and "" outside all spans."""
        if label in self.seen:
            return self.seen[label]
        tag, _, kind = label.partition("-") if isinstance(label, str) else ("", "", "")
        if isinstance(label, str) and label in self.scheme.outside:
            tag = ""
        elif len(tag) != 1 or tag not in self.scheme.tags:
            *others, last = self.scheme.tags.strip("[]")
            raise ValueError(
                f"{where} is {label!r}: labels must be 'O', or {', '.join(others)} or {last}, a "
                f"hyphen and a type, as in 'B-NP' {self.source}.")
        elif self.name in RULES:
            if self.typed not in (None, bool(kind)):
                has = "no type, and another label has one" if self.typed else (
                    "a type, and another label has none")
                raise ValueError(f"{where} is {label!r}: it has {has} {self.source}.")
            self.typed = bool(kind)
        self.seen[label] = tag, kind
        return tag, kind

    def spans(self, labels, where, whole=False):
        """The spans of a list of labels: (type, start, stop) each.

        `whole` refuses labels that break the rules of the scheme, which otherwise are in no span.
        """
        found, before, start, steps = [], _START, None, self.steps
        for t, label in enumerate(labels):
            step = steps.get((before, label))
            if step is None:
                step = steps[before, label] = self._step(before, label, f"{where}[{t}]")
            goes_on, starts, is_right = step
            if whole and not is_right:
                after = f"follow {before!r}" if t else "be first"
                raise ValueError(
                    f"{where}[{t}] is {label!r}, which cannot {after} {self.source}.")
            if start is not None and not goes_on:
                if self._closes(before):
                    found.append((self.seen[before][1], start, t))
                start = None
            if starts:
                start = t
            before = label
        if start is not None and self._closes(before):
            found.append((self.seen[before][1], start, len(labels)))
        elif whole and not self._closes(before):
            raise ValueError(
                f"{where}[{len(labels) - 1}] is {before!r}, which cannot be last {self.source}.")
        return found

    def _closes(self, label):
        """Whether a sequence, or a span with this label, may end after the label."""
        return self.seen[label][0] in self.scheme.closes

    def _step(self, before, label, where):
        """Whether a span goes on at a label, whether one starts, and whether rules are kept."""
        self.split(label, where)
        rules = SpanRules([before, label], self)
        is_right = self.name not in RULES or bool(rules.after[0, 1])
        return bool(rules.continues[0, 1]), bool(rules.starts[0, 1]), is_right


class SpanRules:
    """Where spans start, continue and end, for a set of labels.

    Parameters
    ----------
    labels : list
    scheme : str or Tags, default="conlleval"
    name : str, default="classes_"
        Name of the labels in errors.

    Attributes
    ----------
    types : list of str
        Types of spans, sorted. Their indices are the kinds of `span_marginals`.
    kinds : ndarray of int of shape (n_labels,)
        -1 for labels outside all spans.
    starts : ndarray of bool of shape (n_labels + 1, n_labels)
        Whether a span starts between two labels, and in the last row at the first position.
    continues : ndarray of bool of shape (n_labels, n_labels)
    closes : ndarray of bool of shape (n_labels,)
        Whether a span may end with a label.
    after, first, last : ndarray of bool
        By the rules of the scheme: whether a label may follow another, be the first, be the last.
    """

    def __init__(self, labels, scheme="conlleval", name="classes_"):
        self.tags = scheme if isinstance(scheme, Tags) else Tags(scheme)
        pairs = [self.tags.split(label, f"{name}[{j}]") for j, label in enumerate(labels)]
        self.types = sorted({kind for tag, kind in pairs if tag})
        self.kinds = np.array([self.types.index(kind) if tag else -1 for tag, kind in pairs])
        scheme, tags, outside = self.tags.scheme, [tag for tag, _ in pairs], self.kinds < 0
        same = (self.kinds[:, np.newaxis] == self.kinds) & ~outside
        self.continues, again = (
            same & _table(tags, pairs) for pairs in (scheme.joined, scheme.again))
        opens, self.closes = (
            np.array([tag != "" and tag in few for tag in tags])
            for few in (scheme.opens, scheme.closes))
        self.starts = np.vstack([np.where(same, again, opens), opens])
        self.first, self.last = outside | opens, outside | self.closes
        self.after = self.continues | self.last[:, np.newaxis] & (outside | self.starts[:-1])


def _table(tags, pairs):
    """Whether two of the tags are a pair, for all of them."""
    names = sorted(set(tags))
    table = np.array([[a + b in pairs for b in names] for a in names])
    codes = np.searchsorted(names, tags)
    return table[codes[:, np.newaxis], codes]


def labelled(spans, length, name, where):
    """The labels of a sequence with these spans, (type, start, stop) each in any order."""
    scheme = scheme_of(name, RULES)
    labels, ends = ["O"] * length, {}
    for kind, start, stop, *_ in sorted(spans, key=lambda span: span[1:3]):
        if not 0 <= start < stop <= length:
            raise ValueError(
                f"{where} has a span from {start} to {stop}, and the sequence has {length} "
                "positions.")
        if labels[start] != "O":
            raise ValueError(f"{where} has spans that overlap at position {start}.")
        opens = scheme.opens
        if ends.get(start) == kind:
            opens = "".join(tag for tag in scheme.tags if scheme.tags[0] + tag in scheme.again)
        tags = ["I"] * (stop - start)
        tags[-1] = scheme.closes[-1]
        tags[0] = opens[-1] if stop - start == 1 else opens[0]
        labels[start:stop] = [f"{tag}-{kind}" if kind else tag for tag in tags]
        ends[stop] = kind
    return labels
