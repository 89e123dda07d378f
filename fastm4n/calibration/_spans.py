"""Spans that labels mark, as rules of labels and of transitions."""

from dataclasses import dataclass

import numpy as np

from fastm4n.metrics import _spans, _split, _step


@dataclass
class SpanRules:
    """Where spans start and go on, for the labels of a tagger, by the rules of conlleval.

    Attributes
    ----------
    types : list of str
        Types of spans, sorted; their places are the kinds of `span_marginals`.
    kinds : ndarray of shape (n_labels,)
    starts : ndarray of bool of shape (n_labels + 1, n_labels)
    continues : ndarray of bool of shape (n_labels, n_labels)
    """

    types: list
    kinds: np.ndarray
    starts: np.ndarray
    continues: np.ndarray

    @classmethod
    def of(cls, labels):
        """The rules of these labels; ValueError where one is no tag of a span."""
        outside = "O", ""
        tags = [_split(label, f"classes_[{j}]") for j, label in enumerate(labels)]
        inside = [tag not in ("O", ".") for tag, _ in tags]
        types = sorted({kind for (_, kind), within in zip(tags, inside, strict=True) if within})
        if not types:
            raise ValueError("no label of classes_ marks a span: all are 'O'.")
        kinds = np.array([
            types.index(kind) if within else -1
            for (_, kind), within in zip(tags, inside, strict=True)])
        steps = np.array([[_step(before, tag) for tag in tags] for before in [*tags, outside]])
        ends, starts = steps[:, :, 0].astype(bool), steps[:, :, 1].astype(bool)
        within = np.array(inside)
        continues = within[:, np.newaxis] & within & ~ends[:-1] & ~starts[:-1]
        return cls(types, kinds, starts, continues)

    def find(self, labels, where="y"):
        """The spans that a list of labels marks: (type, start, stop) each."""
        return _spans(labels, {}, {}, where)
