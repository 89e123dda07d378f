"""Attributes of tokens instead of features: recognition and vectorisation.

A token that is a dict or a list of strings has attributes, any other numbers; the first token that
is not empty tells what all have to have.
"""

import numpy as np
from scipy import sparse

from fastm4n.data._sequences import Sequences

NUMBERS, ATTRIBUTES, NOTHING = "numbers", "attributes", "nothing"

_PLAIN = {list, tuple, np.ndarray}
_GIVE = "a dict or a list of strings for each position"


def new_vectorizer():
    # it needs scikit-learn's preprocessing, which takes long to import and others do without
    from fastm4n.data._vectorizer import SequenceVectorizer

    return SequenceVectorizer()


def learnt(X, lengths):
    """Features of a fit, and the `SequenceVectorizer` that made them, or None of numbers."""
    X, holds = tokens_of(X, lengths)
    if holds == NUMBERS:
        return X, None
    if holds == NOTHING:
        raise ValueError(
            "X has nothing to learn from: all of its sequences, or of their positions, are empty."
            if len(X) else "X has no sequences.")
    vectorizer = new_vectorizer()
    return vectorizer.fit_transform(X), vectorizer


def made(X, holds, vectorizer, who):
    """Features of data after a fit: X itself if the fit took numbers."""
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
    """Refuse a mixture of attributes and numbers."""
    if isinstance(X, (list, tuple)) and _token(X, lambda found: found) is not None:
        raise ValueError(
            f"{_place(X, True)}, and the first token is numbers: give {_GIVE}, or numbers for "
            "each.")


def tokens_of(X, lengths):
    """The kind of tokens of X, and X as a list of sequences unless it holds numbers."""
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
    """Whether a sequence holds numbers only. None if that depends on its tokens."""
    if isinstance(sequence, (dict, str, bytes)):
        return False  # a token, or an attribute, in the place of a sequence
    if isinstance(sequence, np.ndarray):
        return True if sequence.dtype.kind in "biufc" or not sequence.ndim else None
    is_matrix = sparse.issparse(sequence) or getattr(sequence, "ndim", 1) != 1
    return True if is_matrix or not hasattr(sequence, "__iter__") else None


def _has_attributes(token):
    """Whether a token is a dict or has strings. None for an empty token."""
    if isinstance(token, (dict, str, bytes)) or _is_once(token):
        return True
    if isinstance(token, (list, tuple, set, frozenset)) or (
            isinstance(token, np.ndarray) and token.ndim == 1):
        for attribute in token:
            return isinstance(attribute, (str, bytes))
        return None
    return False


def _place(X, attributes):
    """The place of the first token with attributes, or with numbers."""
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
