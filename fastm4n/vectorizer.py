"""Sequences of CSR rows from dicts or attribute strings, and features of variance 1."""

import math
from array import array
from itertools import repeat
from numbers import Real

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from fastm4n._parameters import check_number
from fastm4n.complexities import attribute_name, family_sizes, feature_families
from fastm4n.sequences import Sequences

__all__ = ["SequenceScaler", "SequenceVectorizer"]


# no set_output: sequences of rows are no data frame
class SequenceVectorizer(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """Turn the attributes of tokens into sparse features, a column for each attribute.

    A sequence is a list of tokens, and a token is either

    - a list of strings, its attributes, each of weight 1 (repeated ones add up); or
    - a dict, as python-crfsuite and sklearn-crfsuite take it. A number is the weight of the
      attribute named by its key, True is 1, and False is as good as no entry, as is 0. A
      string is part of the name: ``{"word": "the"}`` has the attribute ``"word:the"``. A
      list, tuple, set or dict has the attributes of what it holds, with the key before
      their names: ``{"suffix": ["ing", "ng"]}`` has ``"suffix:ing"`` and ``"suffix:ng"``.

    Parameters
    ----------
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.
    min_count : int, default=1
        Attributes that fewer tokens of the training data have are left out.
    separator : str, default=":"
        What joins a key and a string. The default is CRFsuite's.
    families : dict or callable, default=None
        Complexities of families of attributes, for penalties that go by them. A dict from names of
        attributes, what is before the first "=" or separator, to (k1, k2, k3): words in a row,
        labels in a row, and characters of affixes. A callable is given a whole attribute. Names
        that a dict does not have are counted by `fastm4n.complexities.complexity_of_name`.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Column of each attribute. Columns are in the order of the sorted attributes.
    feature_names_ : list of str
        Attribute of each column.
    attribute_names_ : ndarray of str of shape (n_features,)
        Name of each column's attribute: names are families, for
        ``ElasticNet(weights={name: weight}, families=attribute_names_)``.
    feature_families_ : int array of shape (n_features, 3)
        k1, k2 and k3 of each column, for ``ElasticNet(weights="complexity",
        families=feature_families_, sizes=family_sizes_)``.
    family_sizes_ : tuple of int
        Number of distinct words and of distinct characters: of the values of the name of one word
        that has most of them, and in those of affixes, or in all.

    See Also
    --------
    Sequences : The container of the rows.
    fastm4n.datasets.load_crfsuite : Reads attributes from CRFsuite's files.

    Notes
    -----
    Attributes that were not seen in :meth:`fit` have no column: :meth:`transform` ignores them.

    Examples
    --------
    >>> from fastm4n import SequenceVectorizer
    >>> vectorizer = SequenceVectorizer()
    >>> X = vectorizer.fit_transform([
    ...     [{"word": "the", "capital": False}, {"word": "cat", "length": 3}],
    ...     [["word:cat", "capital"]],
    ... ])
    >>> X
    <Sequences: 2 sequences, 3 rows, 4 columns, CSR of float64>
    >>> vectorizer.get_feature_names_out()
    array(['capital', 'length', 'word:cat', 'word:the'], dtype=object)
    >>> X[0].toarray()
    array([[0., 0., 0., 1.],
           [0., 3., 1., 0.]])
    >>> vectorizer.transform([[{"word": "dog", "length": 2}]])[0].toarray()
    array([[0., 2., 0., 0.]])
    """

    def __init__(self, *, dtype=np.float64, min_count=1, separator=":", families=None):
        self.dtype = dtype
        self.min_count = min_count
        self.separator = separator
        self.families = families

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.dict = True
        return tags

    def fit(self, X, y=None):
        """Learn the attributes.

        Parameters
        ----------
        X : iterable of sequences
            Each an iterable of tokens; a token is a dict or a list of strings.
        y : None
            Ignored.

        Returns
        -------
        self : SequenceVectorizer
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X, y=None):
        """Learn the attributes and make their features, in one pass.

        Parameters
        ----------
        X : iterable of sequences
            Each an iterable of tokens; a token is a dict or a list of strings.
        y : None
            Ignored.

        Returns
        -------
        X : Sequences
            CSR rows, of one column for each attribute; indices are sorted and unique.
        """
        dtype = self._check_parameters()
        columns = _Growing()
        entries = _Entries(self.separator, lambda names: map(columns.__getitem__, names))
        entries.read(X)
        if not columns:
            raise ValueError("X holds no attributes: there is nothing to learn.")
        names = sorted(columns)
        # columns are numbered as first seen until all names are known
        rank = np.empty(len(names), dtype=np.int32)
        rank[np.fromiter(map(columns.get, names), np.int32, len(names))] = np.arange(len(names))
        columns.clear()  # before the memory for rows and for another vocabulary is taken
        rows = entries.rows(rank, len(names), dtype)
        if self.min_count > 1:
            count = np.bincount(rows.indices, minlength=len(names))
            kept = np.flatnonzero(count >= self.min_count)
            if not len(kept):
                raise ValueError(
                    f"No attribute occurs in min_count={self.min_count} tokens: the most frequent "
                    f"one occurs in {count.max()}."
                )
            names = [names[column] for column in kept]
            rows = _select_columns(rows, kept)
        sequences = entries.sequences(rows, names)
        self.feature_names_ = names
        self.vocabulary_ = dict(zip(names, range(len(names)), strict=True))
        return sequences

    def transform(self, X):
        """Make the features of the attributes that :meth:`fit` has seen.

        Parameters
        ----------
        X : iterable of sequences
            Each an iterable of tokens; a token is a dict or a list of strings.

        Returns
        -------
        X : Sequences
            CSR rows, of one column for each attribute; indices are sorted and unique.
        """
        check_is_fitted(self, "vocabulary_")
        dtype = self._check_parameters()
        get = self.vocabulary_.get
        entries = _Entries(self.separator, lambda names: map(get, names, repeat(-1)))
        entries.read(X)
        rows = entries.rows(None, len(self.feature_names_), dtype)
        return entries.sequences(rows, self.feature_names_)

    @property
    def attribute_names_(self):
        check_is_fitted(self, "feature_names_")
        return np.array([attribute_name(n, self.separator)[0] for n in self.feature_names_])

    @property
    def feature_families_(self):
        check_is_fitted(self, "feature_names_")
        return feature_families(self.feature_names_, self.families, self.separator)

    @property
    def family_sizes_(self):
        check_is_fitted(self, "feature_names_")
        return family_sizes(self.feature_names_, self.feature_families_, self.separator)

    def get_feature_names_out(self, input_features=None):
        """Attribute of each column.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str objects
        """
        check_is_fitted(self, "feature_names_")
        return np.array(self.feature_names_, dtype=object)

    def _check_parameters(self):
        try:
            dtype = np.dtype(self.dtype)
        except TypeError:
            dtype = None
        if dtype not in (np.float64, np.float32):
            raise ValueError(f"dtype must be numpy.float64 or numpy.float32, got {self.dtype!r}.")
        check_number("min_count", self.min_count, low=1, strict=False, integer=True)
        if not isinstance(self.separator, str):
            raise ValueError(f"separator must be a string, got {self.separator!r}.")
        if self.families is not None and not (
                isinstance(self.families, dict) or callable(self.families)):
            raise ValueError(
                "families must be a dict from names of attributes to (k1, k2, k3), a callable or "
                f"None, got {self.families!r:.80}.")
        return dtype


# no set_output: sequences of rows are no data frame
class SequenceScaler(StandardScaler, auto_wrap_output_keys=None):
    """Standardise the features of all tokens, as scikit-learn's `StandardScaler` those of rows.

    Parameters
    ----------
    copy : bool, default=True
        Whether the given rows must stay as they are.
    with_mean : bool, default=True
        Whether to subtract the means; of CSR rows that is refused, as none would be sparse.
    with_std : bool, default=True
        Whether to divide by the standard deviations.

    Attributes
    ----------
    mean_, var_, scale_ : ndarray of shape (n_features,), or None
        As of `StandardScaler`.
    n_features_in_ : int
    n_samples_seen_ : int
        Number of tokens.

    See Also
    --------
    SequenceVectorizer : Makes features of dicts and attribute strings.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import SequenceScaler
    >>> X = [np.array([[1.0, 500.0], [3.0, 100.0]]), np.array([[5.0, 300.0]])]
    >>> scaled = SequenceScaler().fit_transform(X)
    >>> scaled
    <Sequences: 2 sequences, 3 rows, 2 columns, float64>
    >>> scaled.values.std(axis=0).round(12)
    array([1., 1.])
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, X, y=None, sample_weight=None):
        """Learn means and variances of the features.

        Parameters
        ----------
        X : Sequences, or list of matrices
        y : None
            Ignored.
        sample_weight : array-like of shape (n_tokens,), default=None
            Weights of the tokens.

        Returns
        -------
        self : SequenceScaler
        """
        return super().fit(_sequences(X).values, sample_weight=sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None):
        """Go on learning means and variances of the features.

        Parameters
        ----------
        X : Sequences, or list of matrices
        y : None
            Ignored.
        sample_weight : array-like of shape (n_tokens,), default=None
            Weights of the tokens.

        Returns
        -------
        self : SequenceScaler
        """
        # called by `fit` with its rows
        rows = X if sp.issparse(X) or isinstance(X, np.ndarray) else _sequences(X).values
        return super().partial_fit(rows, sample_weight=sample_weight)

    def transform(self, X):
        """Standardise.

        Parameters
        ----------
        X : Sequences, or list of matrices

        Returns
        -------
        X : Sequences
        """
        X = _sequences(X)
        with config_context(transform_output="default"):
            return Sequences(super().transform(X.values), X.offsets)

    def inverse_transform(self, X):
        """Undo `transform`.

        Parameters
        ----------
        X : Sequences, or list of matrices

        Returns
        -------
        X : Sequences
        """
        X = _sequences(X)
        return Sequences(super().inverse_transform(X.values), X.offsets)


def _sequences(X):
    return X if isinstance(X, Sequences) else Sequences.from_list(X)


class _Growing(dict):
    """A dict of the columns of names that gives a new name the next column."""

    def __missing__(self, name):
        if not isinstance(name, str):
            raise TypeError(_not_a_string(name))
        column = self[str(name)] = len(self)
        return column


class _Entries:
    """Rows in the making: columns, the few weights that are not 1, and where rows end.

    Parameters
    ----------
    separator : str
    columns_of : callable
        From an iterable of names to an iterable of columns; -1 where a name has none.
    """

    def __init__(self, separator, columns_of):
        self.separator = separator
        self.columns_of = columns_of
        self.columns = array("i")
        self.row_ends = array("q", [0])
        self.offsets = array("q", [0])
        self.weighted = array("q")  # positions in columns
        self.weights = array("d")

    def read(self, X):
        if isinstance(X, (str, bytes, dict, Sequences)) or not hasattr(X, "__iter__"):
            raise TypeError(
                "X must be a list of sequences, each a list of tokens; got "
                f"{type(X).__name__}."
            )
        columns, row_ends = self.columns, self.row_ends
        for i, sequence in enumerate(X):
            if isinstance(sequence, (str, bytes, dict)) or not hasattr(sequence, "__iter__"):
                raise TypeError(
                    f"Sequence {i} of X must be a list of tokens; it is of type "
                    f"{type(sequence).__name__}. One sequence alone goes into a list: [sequence]."
                )
            for t, token in enumerate(sequence):
                try:
                    if isinstance(token, dict):
                        self._add_dict(token)
                    elif isinstance(token, (str, bytes)):
                        raise TypeError(
                            f"a token must be a dict or a list of strings, not {token!r}; one "
                            "attribute alone goes into a list"
                        )
                    else:
                        self._add_names(token)
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(f"Token {t} of sequence {i} of X: {error}.") from None
                row_ends.append(len(columns))
            self.offsets.append(len(row_ends) - 1)

    def _add_names(self, names):
        if not isinstance(names, (list, tuple)):
            if not hasattr(names, "__iter__"):
                raise TypeError(
                    f"a token must be a dict or a list of strings, not {type(names).__name__}"
                )
            names = list(names)
        try:
            columns = list(self.columns_of(names))
        except TypeError:  # unhashable, so no string
            _check_strings(names)
            raise
        if -1 in columns:
            _check_strings(names)
            columns = [column for column in columns if column >= 0]
        self.columns.extend(columns)

    def _add_dict(self, token):
        names, weights = [], []
        weighted = _flatten(token, "", self.separator, names, weights)
        columns = list(self.columns_of(names))
        if weighted:
            base = len(self.columns)
            for column, weight in zip(columns, weights, strict=True):
                if column >= 0:
                    if weight != 1.0:
                        self.weighted.append(base)
                        self.weights.append(weight)
                    base += 1
        if -1 in columns:
            columns = [column for column in columns if column >= 0]
        self.columns.extend(columns)

    def rows(self, rank, n_columns, dtype):
        """The rows as a canonical CSR matrix; column c becomes rank[c], if there are ranks."""
        indices = np.array(self.columns, dtype=np.int32)
        self.columns = None
        if rank is not None:
            indices = rank[indices]
        data = np.ones(len(indices), dtype=dtype)
        with np.errstate(over="ignore"):  # sequences() refuses what is infinite
            data[np.frombuffer(self.weighted, dtype=np.int64)] = np.frombuffer(self.weights)
        index_dtype = np.int32 if len(indices) < 2**31 else np.int64
        indptr = np.array(self.row_ends, dtype=index_dtype)
        rows = sp.csr_matrix(
            (data, indices.astype(index_dtype, copy=False), indptr),
            shape=(len(indptr) - 1, n_columns),
        )
        rows.sum_duplicates()
        return rows

    def sequences(self, rows, names):
        infinite = np.flatnonzero(~np.isfinite(rows.data))
        offsets = np.array(self.offsets)
        if len(infinite):
            entry = infinite[0]
            row = np.searchsorted(rows.indptr, entry, side="right") - 1
            i = np.searchsorted(offsets, row, side="right") - 1
            raise ValueError(
                f"Token {row - offsets[i]} of sequence {i} of X: the weight of "
                f"{names[rows.indices[entry]]!r} is too large for {rows.dtype}."
            )
        return Sequences(rows, offsets)


def _flatten(token, prefix, separator, names, weights):
    """Append the names and weights of a dict; whether there is a weight other than 1."""
    weighted = False
    for key, value in token.items():
        if type(key) is not str and not isinstance(key, str):
            raise TypeError(_not_a_string(key))
        kind = type(value)
        if kind is str or isinstance(value, str):
            names.append(f"{prefix}{key}{separator}{value}")
            weights.append(1.0)
        elif kind is bool or isinstance(value, np.bool_):
            if value:
                names.append(prefix + key)
                weights.append(1.0)
        elif kind is float or kind is int or isinstance(value, Real):
            try:
                weight = float(value)
            except OverflowError:
                weight = math.inf
            if not math.isfinite(weight):
                raise ValueError(
                    f"the weight of {prefix + key!r} is {value!r:.40}; weights must be finite"
                )
            if weight:
                names.append(prefix + key)
                weights.append(weight)
                weighted = weighted or weight != 1.0
        elif isinstance(value, (list, tuple, set, frozenset)):
            _check_strings(value, prefix + key)
            inner = f"{prefix}{key}{separator}"
            names.extend([inner + name for name in value])
            weights.extend(repeat(1.0, len(value)))
        elif isinstance(value, dict):
            inner = f"{prefix}{key}{separator}"
            weighted = _flatten(value, inner, separator, names, weights) or weighted
        else:
            raise TypeError(
                f"the value of {prefix + key!r} must be a number, string, bool or list of strings, "
                f"not {value!r:.40}"
            )
    return weighted


def _check_strings(names, key=None):
    for name in names:
        if not isinstance(name, str):
            where = "" if key is None else f" in the list of {key!r}"
            raise TypeError(_not_a_string(name) + where)


def _not_a_string(name):
    return f"attributes must be strings, not {name!r:.40} of type {type(name).__name__}"


def _select_columns(rows, kept):
    """The kept columns, in their order, of a canonical CSR matrix."""
    new = np.full(rows.shape[1], -1, dtype=rows.indices.dtype)
    new[kept] = np.arange(len(kept))
    indices = new[rows.indices]
    stays = indices >= 0
    ends = np.concatenate([[0], np.cumsum(stays)])[rows.indptr].astype(rows.indptr.dtype)
    selected = sp.csr_matrix(
        (rows.data[stays], indices[stays], ends), shape=(rows.shape[0], len(kept))
    )
    selected.has_canonical_format = True
    return selected
