"""Attributes of tokens in the place of features: found among what sequences may be, and vectorised.

A token that is a dict or a list of strings has attributes, any other numbers; the first token that
is not empty tells what all have to have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from fastm4n.data._sequences import Sequences
from fastm4n.solvers.out_of_core import OutOfCore

if TYPE_CHECKING:
    from fastm4n.data._vectorizer import SequenceVectorizer

NUMBERS, ATTRIBUTES, NOTHING = "numbers", "attributes", "nothing"

_PLAIN = {list, tuple, np.ndarray}
_GIVE = "a dict or a list of strings for each position"


class TakesAttributes:
    """What `SequenceTagger` has for attributes in the place of features."""

    vectorizer_: SequenceVectorizer | None

    def _read(self, X, y, sample_weight=None, lengths=None, *args):
        growing = self.__dict__.get("_growing")
        if growing is None:
            X, self.vectorizer_ = _learnt(X, lengths)
        else:
            self.vectorizer_ = growing[0].vectorizer
        return X, y, sample_weight, lengths, *args

    def _noted(self):
        noted = super()._noted()
        if "vectorizer_" in vars(self):
            noted["vectorizer_"] = self.vectorizer_
        return noted

    def _keep(self, common, fitted):
        super()._keep(common, fitted)
        # partitions hold numbers, and read nothing here
        vars(self).setdefault("vectorizer_", None)

    def _features(self, X, lengths=None):
        """X of predictions as features, where it holds attributes."""
        vectorizer = vars(self).get("vectorizer_")
        who = f"this {type(self).__name__}"
        return _made(*looked_at(X, lengths), vectorizer, who)

    def _read_more(self, X, before):
        if before is None:
            X, vectorizer = _learnt(X, None)
            return X, None, vectorizer
        (X, holds), known = looked_at(X, None), before.vectorizer
        if known is None or holds != ATTRIBUTES:
            return _made(X, holds, known, "earlier calls of partial_fit"), before, known
        vectorizer = known._with_names(_new_vectorizer().fit(X).feature_names_)
        if vectorizer is not known:
            if isinstance(self.solver, OutOfCore):
                raise ValueError(
                    "X has attributes that earlier calls of partial_fit do not have, and calls out "
                    "of core keep to the columns of the first: fit a SequenceVectorizer to all "
                    "attributes that there will be, and give what its transform makes of X.")
            before = before.widened(vectorizer)
        return vectorizer.transform(X), before, vectorizer


def _new_vectorizer():
    # it needs scikit-learn's preprocessing, which takes long to import and others do without
    from fastm4n.data._vectorizer import SequenceVectorizer

    return SequenceVectorizer()


def _learnt(X, lengths):
    """Features of a fit, and the `SequenceVectorizer` that made them, or None of numbers."""
    X, holds = looked_at(X, lengths)
    if holds == NUMBERS:
        return X, None
    if holds == NOTHING:
        raise ValueError(
            "X has nothing to learn from: all of its sequences, or of their positions, are empty."
            if len(X) else "X has no sequences.")
    vectorizer = _new_vectorizer()
    return vectorizer.fit_transform(X), vectorizer


def _made(X, holds, vectorizer, who):
    """Features of what comes after a fit: X itself, where it holds numbers as that did."""
    if vectorizer is None:
        if holds == ATTRIBUTES:
            raise ValueError(
                f"{_place(X, True)}, but {who} took numbers: give the same columns, as `transform` "
                "of the SequenceVectorizer that made them does, or fit on attributes.")
        return X
    if holds != NUMBERS:
        return vectorizer.transform(X)
    if not isinstance(X, Sequences) or X._kind()[0] != (vectorizer._n_features_out,):
        raise ValueError(
            f"{_place(X, False)}, but {who} took attributes: give {_GIVE}, or the Sequences that "
            "vectorizer_.transform makes of them.")
    return X


def check_one_kind(X):
    """Refuse attributes beside numbers, X being no sequences of numbers for some reason."""
    if isinstance(X, (list, tuple)) and _token(X, lambda found: found) is not None:
        raise ValueError(
            f"{_place(X, True)}, and the first token is numbers: give {_GIVE}, or numbers for "
            "each.")


def looked_at(X, lengths):
    """X, as a list of sequences where it holds attributes or nothing, and what it holds."""
    if isinstance(X, Sequences):
        # rows on disk are not to be mapped for this
        if hasattr(X, "n_bytes_on_disk") or X.values.ndim == 2 or X.values.dtype.kind in "biufc":
            return X, NUMBERS
        X = list(X)
    if sparse.issparse(X) or isinstance(X, (str, bytes, dict)) or not hasattr(X, "__iter__"):
        return X, NUMBERS
    if getattr(X, "ndim", 1) != 1 and not isinstance(X, np.ndarray):
        return X, NUMBERS  # a data frame, or a tensor
    if isinstance(X, np.ndarray):
        if X.dtype.kind in "biufc":
            return X, NUMBERS
    elif not isinstance(X, (list, tuple)):
        X = list(X)
    sequences = X if lengths is None else [X]
    if not _PLAIN.issuperset(map(type, sequences)):
        # generators can be gone through once
        sequences = [list(each) if _is_once(each) else each for each in sequences]
        X = sequences if lengths is None else sequences[0]
    token = _token(sequences, lambda found: found is not None)
    if token is None:
        return sequences, NOTHING
    if lengths is not None and isinstance(token[2], (list, tuple, np.ndarray)) and (
            _has_attributes(token[2][0])):
        raise ValueError(
            "lengths is for X as one sequence of tokens, and X is a list of sequences: leave it "
            "out.")
    return (sequences, ATTRIBUTES) if _has_attributes(token[2]) else (X, NUMBERS)


def _is_once(sequence):
    return hasattr(sequence, "__iter__") and not hasattr(sequence, "__len__")


def _token(sequences, tells):
    """Sequence, position and value of the first token of which tells(_has_attributes(token))."""
    for i, sequence in enumerate(sequences):
        whole = _has_only_numbers(sequence)
        if whole is not None:
            if tells(not whole):
                return i, None, sequence
            continue
        for t, token in enumerate(sequence):
            if tells(_has_attributes(token)):
                return i, t, token
    return None


def _has_only_numbers(sequence):
    """Whether a sequence holds numbers, and no attributes; None if its tokens have to tell."""
    if isinstance(sequence, (dict, str, bytes)):
        return False  # a token, or an attribute, in the place of a sequence
    if isinstance(sequence, np.ndarray):
        return True if sequence.dtype.kind in "biufc" or not sequence.ndim else None
    is_matrix = sparse.issparse(sequence) or getattr(sequence, "ndim", 1) != 1
    return True if is_matrix or not hasattr(sequence, "__iter__") else None


def _has_attributes(token):
    """Whether a token is a dict, or has strings; None of an empty one, which tells nothing."""
    if isinstance(token, (dict, str, bytes)) or _is_once(token):
        return True
    if isinstance(token, (list, tuple, set, frozenset)) or (
            isinstance(token, np.ndarray) and token.ndim == 1):
        for attribute in token:
            return isinstance(attribute, (str, bytes))
        return None
    return False


def _place(X, attributes):
    """Where the first token with attributes, or with numbers, is."""
    if isinstance(X, Sequences):
        columns, _ = X._kind()
        return "X holds numbers" + (f" in {columns[0]} columns" if columns else "")
    found = None
    if isinstance(X, (list, tuple)) or isinstance(X, np.ndarray) and X.dtype.kind == "O":
        found = _token(X, lambda found: found is attributes)
    if found is None:
        return f"X is of type {type(X).__name__}"
    i, t, token = found
    what = "a dict" if isinstance(token, dict) else "strings" if attributes else "numbers"
    return f"X[{i}] has {what} at position {0 if t is None else t}"
