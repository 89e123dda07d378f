"""Sequences of CSR rows from dicts or attribute strings, and features of variance 1."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_number
from fastm4n.base.pickles import Versioned
from fastm4n.data._sequences import Sequences
from fastm4n.data._tokens import Names, Rows, names_of, weight_too_large
from fastm4n.penalties._complexities import attribute_name, family_sizes, feature_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array
    from fastm4n.data._types import SequenceData

__all__ = ["SequenceScaler", "SequenceVectorizer"]

# attributes of a `SequenceVectorizer` that are made on first use
_MADE_OF_NAMES = ("feature_names_", "vocabulary_")
# names in pickles and files: their bytes, and how many each has
NAMES = ("names_text_", "names_lengths_")


# no set_output: sequences of rows are no data frame
class SequenceVectorizer(TransformerMixin, Versioned, BaseEstimator, auto_wrap_output_keys=None):
    """Turn the attributes of tokens into sparse features, a column for each attribute.

    A sequence is a list of tokens, and a token is either

    - a list of strings, its attributes, each of weight 1 (repeated ones add up), or
    - a dict, as in python-crfsuite and sklearn-crfsuite. A number is the weight of the attribute
      named by its key. True is 1 and False is 0. As in CRFsuite, an attribute of weight 0 is
      stored: with ``states="observed"`` a tagger has a weight for it and the token's label. A
      string is part of the name: ``{"word": "the"}`` has the attribute ``"word:the"``. A list,
      tuple, set or dict contributes its own attributes, with the key before their names:
      ``{"suffix": ["ing", "ng"]}`` has ``"suffix:ing"`` and ``"suffix:ng"``.

    Parameters
    ----------
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Type of the features.
    min_count : int, default=1
        Attributes with nonzero weights in fewer tokens of the training data are removed.
    separator : str, default=":"
        Separator of a key and a string. The default is CRFsuite's.
    families : dict or callable, default=None
        Complexities of families of attributes, for penalties by complexity. A dict maps names of
        attributes, the text before the first "=" or separator, to (k1, k2, k3): consecutive words,
        consecutive labels, and characters of affixes. A callable maps whole attributes. Names
        missing in a dict are rated by `fastm4n.penalties.complexity_of_name`.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        Column of each attribute. Columns are in the order of the sorted attributes.
    feature_names_ : list of str
        Attribute of each column.
    attribute_names_ : ndarray of str of shape (n_features,)
        Name of each column's attribute. Names are families, as in
        ``ElasticNet(weights={name: weight}, families=attribute_names_)``.
    feature_families_ : int array of shape (n_features, 3)
        k1, k2 and k3 of each column, as in ``ElasticNet(weights="complexity",
        families=feature_families_, sizes=family_sizes_)``.
    family_sizes_ : tuple of int
        Numbers of distinct words and of distinct characters. Words are the values of a name with
        one word, the largest such number. Characters are counted in affixes, or in all values.

    See Also
    --------
    Sequences : The container of the rows.
    fastm4n.datasets.load_crfsuite : Attributes from CRFsuite's files.

    Notes
    -----
    :meth:`transform` ignores attributes that are missing in the training data.

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

    def __init__(
        self, *, dtype: type[np.floating[Any]] = np.float64, min_count: int = 1,
        separator: str = ":", families: dict[str, Any] | Callable[..., Any] | None = None,
    ) -> None:
        self.dtype = dtype
        self.min_count = min_count
        self.separator = separator
        self.families = families

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.dict = True
        return tags

    def fit(self, X: Iterable[Any], y: None = None) -> Self:
        """Learn the attributes.

        Parameters
        ----------
        X : iterable of sequences
            Iterables of tokens, which are dicts or lists of strings.
        y : None
            Ignored.

        Returns
        -------
        self : SequenceVectorizer
        """
        names, rows, _ = self._rows()
        rows.read(X, forgets=True)
        self._sort(names, rows)
        self._learn(names)
        return self

    def fit_transform(self, X: Iterable[Any], y: None = None) -> Sequences:
        """Learn the attributes and make their features, in one pass.

        Parameters
        ----------
        X : iterable of sequences
            Iterables of tokens, which are dicts or lists of strings.
        y : None
            Ignored.

        Returns
        -------
        X : Sequences
            CSR rows with a column for each attribute. Indices are sorted and unique.
        """
        names, rows, dtype = self._rows()
        rows.read(X)
        rows.renumber(self._sort(names, rows))
        sequences = _as_sequences(rows, names, dtype)
        self._learn(names)
        return sequences

    def _rows(self):
        """Names to be learnt, rows that learn them, and the type of features."""
        dtype, names = self._check_parameters(), Names()
        return names, Rows(names, self.separator, True, dtype == np.float32), dtype

    def _sort(self, names, rows):
        """Sort the names that are frequent enough: the new number of each, or -1."""
        if not len(names):
            raise ValueError("X has no attributes.")
        if self.min_count == 1:
            return names.sort()
        counts = rows.counts()
        if counts.max() < self.min_count:
            raise ValueError(
                f"No attribute occurs in min_count={self.min_count} tokens: the most frequent "
                f"one occurs in {counts.max()}.")
        return names.sort(counts, self.min_count)

    def transform(self, X: Iterable[Any]) -> Sequences:
        """Make the features of known attributes.

        Parameters
        ----------
        X : iterable of sequences
            Iterables of tokens, which are dicts or lists of strings.

        Returns
        -------
        X : Sequences
            CSR rows with a column for each attribute. Indices are sorted and unique.
        """
        names = vars(self).get("_names")
        if names is None:
            check_is_fitted(self)
        dtype = self._check_parameters()
        rows = Rows(names, self.separator, False, dtype == np.float32)
        rows.read(X)
        return _as_sequences(rows, names, dtype)

    def _learn(self, names):
        for name in _MADE_OF_NAMES:
            self.__dict__.pop(name, None)
        self._names = names

    def _with_names(self, names):
        """A vectorizer with further names, as columns behind the present ones."""
        new = sorted(set(names).difference(self.feature_names_))
        if not new:
            return self
        more = clone(self)
        more._learn(Names([*self.feature_names_, *new]))
        return more

    def _with_columns(self, kept):
        """A vectorizer with these columns, in ascending order."""
        fewer = clone(self)
        fewer._learn(self._names.only(kept))
        return fewer

    def __sklearn_is_fitted__(self) -> bool:
        return "_names" in self.__dict__

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        state = {key: value for key, value in state.items() if key not in _MADE_OF_NAMES}
        if "_names" in state:
            state.update(zip(NAMES, state.pop("_names").packed(), strict=True))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        names, older = [state.get(name) for name in NAMES], state.get("feature_names_")
        left_out = *_MADE_OF_NAMES, *NAMES
        super().__setstate__({key: value for key, value in state.items() if key not in left_out})
        if names[0] is not None:
            self._learn(names_of(*names))
        elif older is not None:  # of older releases
            self._learn(Names(older))

    @property
    def _n_features_out(self):
        if "_names" not in vars(self):
            check_is_fitted(self)
        return len(self._names)

    # names are stored as one table of bytes, and become strings on first use

    @cached_property
    def feature_names_(self) -> list[str]:
        check_is_fitted(self)
        return self._names.strings()

    @cached_property
    def vocabulary_(self) -> Any:
        names = self.feature_names_
        return dict(zip(names, range(len(names)), strict=True))

    @property
    def attribute_names_(self) -> list[str]:
        return np.array([attribute_name(n, self.separator)[0] for n in self.feature_names_])

    @property
    def feature_families_(self) -> Array:
        return feature_families(self.feature_names_, self.families, self.separator)

    @property
    def family_sizes_(self) -> Any:
        return family_sizes(self.feature_names_, self.feature_families_, self.separator)

    def get_feature_names_out(self, input_features: None = None) -> Array:
        """Attribute of each column.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str objects
        """
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
class SequenceScaler(Versioned, StandardScaler, auto_wrap_output_keys=None):
    """Standardise the features of all tokens with scikit-learn's `StandardScaler`.

    Parameters
    ----------
    copy : bool, default=True
        Whether the given rows must not change.
    with_mean : bool, default=True
        Whether to subtract the means. CSR rows must not be centred: none would be sparse.
    with_std : bool, default=True
        Whether to divide by the standard deviations.

    Attributes
    ----------
    mean_, var_, scale_ : ndarray of shape (n_features,), or None
        See `StandardScaler`.
    n_features_in_ : int
    n_samples_seen_ : int
        Number of tokens.

    See Also
    --------
    SequenceVectorizer : Features from dicts and attribute strings.

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def fit(self, X: SequenceData, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
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

    def partial_fit(
        self, X: SequenceData, y: None = None, sample_weight: ArrayLike | None = None,
    ) -> Self:
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

    def transform(self, X: SequenceData) -> Sequences:
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

    def inverse_transform(self, X: SequenceData) -> Sequences:
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


def _as_sequences(rows, names, dtype):
    """The rows of `Rows` with their columns' names, as `Sequences` of a canonical CSR matrix."""
    columns, row_ends, offsets, places, weights = rows.taken()
    data = np.ones(len(columns), dtype=dtype)
    if len(places):
        with np.errstate(over="ignore"):
            data[places] = weights
        infinite = places[~np.isfinite(data[places])]
        if len(infinite):
            entry = infinite[0]
            row = np.searchsorted(row_ends, entry, side="right") - 1
            i = np.searchsorted(offsets, row, side="right") - 1
            raise ValueError(
                weight_too_large(row - offsets[i], i, names, columns[entry], dtype))
    index_dtype = np.int32 if len(columns) < 2**31 else np.int64
    values = sp.csr_matrix(
        (data, columns.astype(index_dtype, copy=False), row_ends.astype(index_dtype)),
        shape=(len(row_ends) - 1, len(names)))
    values.has_canonical_format = True
    return Sequences._of_checked(values, offsets)
