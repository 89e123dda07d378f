r"""Families of features by complexity, and weights of the L1 term from theory.

A feature of the family (k1, k2, k3) is a product of three indicators [1]_: of k1 consecutive words
around a position, of the labels of k2 consecutive positions, and of prefixes and suffixes with k3
characters in all. With V words, D labels and S characters the family has

    N = (k1 + 1) (k3 + 1) V^k1 D^k2 S^k3

members. The first two factors are the ways to place the window around the position and to split k3
into a prefix and a suffix.

References
----------
.. [1] C. Cortes, V. Kuznetsov, M. Mohri, S. Yang (2016). Structured prediction theory based on
   factor graph complexity. NeurIPS. Appendix B.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import refuse_where

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray

__all__ = ["attribute_name", "complexity", "complexity_of_name"]

COMPLEXITIES = ("paper", "theory")

_OFFSET = re.compile(r"\[[+-]?\d+\]")
_AFFIX = re.compile(r"(?:p|s|pre|suf|pref|suff|prefix|suffix|affix)[-_ ]?(\d*)", re.IGNORECASE)


@dataclass
class Sample:
    """Statistics of a training sample for complexities.

    Attributes
    ----------
    n : int
        Examples.
    n_labels : int
    lengths : ndarray of shape (n,)
    selected : ndarray or None
        Columns of the features of transitions.
    ngrams : int array of shape (n_ngrams, order + 1) or None
        The n-grams of labels with weights. Shorter ones begin with -1.
    """

    n: int
    n_labels: int
    lengths: np.ndarray
    selected: np.ndarray = None
    ngrams: np.ndarray = None


def attribute_name(attribute: str, separator: str = ":") -> str:
    """Split an attribute at the first "=" or separator into its name and value.

    Parameters
    ----------
    attribute : str
    separator : str, default=":"

    Returns
    -------
    name : str
    value : str

    Examples
    --------
    >>> from fastm4n.penalties import attribute_name
    >>> attribute_name("w[-1]|w[0]=the|cat"), attribute_name("suffix:ing"), attribute_name("bias")
    (('w[-1]|w[0]', 'the|cat'), ('suffix', 'ing'), ('bias', ''))
    """
    places = [at for at in (attribute.find("="), attribute.find(separator)) if at > 0]
    if not places:
        return attribute, ""
    at = min(places)
    width = 1 if attribute[at] == "=" else len(separator)
    return attribute[:at], attribute[at + width :]


def complexity_of_name(name: str, value: str = "") -> str:
    """Guess (k1, k2, k3) from the name of an attribute.

    The number of words is the number of offsets in brackets, as in CRFsuite's templates. For
    affixes ("p", "s", "prefix", "suffix" and the like), the number of characters follows the name,
    or is the length of the value. Other names have one word.

    Parameters
    ----------
    name : str
    value : str, default=""

    Returns
    -------
    family : tuple of int

    Examples
    --------
    >>> from fastm4n.penalties import complexity_of_name
    >>> complexity_of_name("w[-1]|w[0]"), complexity_of_name("s3"), complexity_of_name("word")
    ((2, 1, 0), (0, 1, 3), (1, 1, 0))
    """
    words = len(_OFFSET.findall(name))
    if words:
        return words, 1, 0
    affix = _AFFIX.fullmatch(name)
    if affix and (affix[1] or len(name) > 1):
        return 0, 1, int(affix[1]) if affix[1] else len(value)
    return 1, 1, 0


def complexity(
    families: ArrayLike, sizes: dict[str, Any] | tuple[int, ...], n: int, n_factors: float = 1.0,
    kind: Literal["paper", "theory"] = "paper",
) -> FloatArray:
    r"""Compute r_k, the complexity of families of features.

    "paper" is (18) of [1]_ as printed,

    .. math:: r_k = \sqrt{2 (k_1 \log V + k_2 \log D + k_3 \log S) / m},

    without the ways to place and split windows and without the number of factors. "theory" is the
    bound for indicators as features: Theorem 2, with the factor 2 of its proof,

    .. math:: r_k = F_k \sqrt{2 \log(2 N_k) / m},

    where F_k is the root mean square of the number of factors of an example.

    Parameters
    ----------
    families : array-like of shape (n, 3)
        k1, k2 and k3.
    sizes : tuple of int
        V, D and S.
    n : int
        m, the number of examples.
    n_factors : float, default=1.0
        F_k.
    kind : {"paper", "theory"}, default="paper"

    Returns
    -------
    r : ndarray of shape (n,)

    Examples
    --------
    >>> from fastm4n.penalties import complexity
    >>> complexity([(1, 1, 0), (0, 1, 3), (0, 2, 0)], (5000, 20, 26), 1000).round(4)
    array([0.1517, 0.1598, 0.1095])
    """
    families = np.asarray(families, dtype=np.float64)
    logs = families @ np.log(np.asarray(sizes, dtype=np.float64))
    if kind == "paper":
        return np.sqrt(2.0 * logs / n)
    ways = np.log((families[:, 0] + 1.0) * (families[:, 2] + 1.0))
    return n_factors * np.sqrt(2.0 * (np.log(2.0) + logs + ways) / n)


def check_families(families, n_features):
    """(k1, k2, k3) of each feature as an array of integers."""
    given = np.asarray(families)
    if given.shape != (n_features, 3):
        raise ValueError(
            f"penalty: weights='complexity' needs families of shape ({n_features}, 3), got "
            f"{given.shape}. Pass feature_families_ of the SequenceVectorizer.")
    if given.dtype.kind not in "iuf":
        raise ValueError(f"penalty: families must be integers, got an array of {given.dtype}.")
    refuse_where(
        (given < 0) | (given != np.floor(given)), "penalty: families", given,
        "families are integers >= 0.")
    return given.astype(np.int64)


def complexity_weights(families, sizes, sample, kind, shapes):
    """r_k for each weight, by family of weights, as arrays that broadcast to its shape.

    Emissions have the families of their features. Ends and the intercept have (0, 1, 0),
    transitions (0, 2, 0), n-grams of labels (0, n, 0). Transitions that depend on features have two
    labels instead of one.
    """
    if sample is None:
        raise ValueError("penalty: weights='complexity' needs a SequenceTagger.")
    n_words, n_characters = sizes
    three = n_words, sample.n_labels, n_characters
    squares = sample.lengths.astype(np.float64)
    tokens = float(np.sqrt(np.mean(squares**2)))
    pairs = float(np.sqrt(np.mean(np.maximum(squares - 1.0, 0.0) ** 2)))

    def r(of, n_factors):
        return complexity(of, three, sample.n, n_factors, kind)

    out = {}
    for name in shapes:
        if name == "coef":
            # families are few, and features many
            distinct, place = np.unique(families, axis=0, return_inverse=True)
            out[name] = r(distinct, tokens)[place.reshape(-1)]
        elif name == "transition_coef":
            out[name] = r([(0, 2, 0)], pairs)[0]
        elif name == "ngram_coef":
            labels = (sample.ngrams >= 0).sum(axis=1)
            out[name] = r(np.column_stack([0 * labels, labels, 0 * labels]), pairs)
        elif name == "transition_feature_coef":
            of = families[sample.selected].copy()
            of[:, 1] = np.maximum(of[:, 1], 2)
            out[name] = r(of, pairs)[:, np.newaxis, np.newaxis]
        else:
            out[name] = r([(0, 1, 0)], tokens if name == "intercept" else 1.0)[0]
    return out


def feature_families(names, families=None, separator=":"):
    """(k1, k2, k3) of each attribute, an int array.

    Parameters
    ----------
    names : list of str
        Attributes.
    families : dict or callable, default=None
        See `SequenceVectorizer`.
    separator : str
    """
    if callable(families):
        found = [_checked(families(name), f"families({name!r})") for name in names]
        return np.array(found, dtype=np.int64).reshape(-1, 3)
    given = {
        name: _checked(value, f"families[{name!r}]") for name, value in (families or {}).items()}
    found, seen = np.empty((len(names), 3), dtype=np.int64), set()
    for f, attribute in enumerate(names):
        name, value = attribute_name(attribute, separator)
        seen.add(name)
        found[f] = given[name] if name in given else complexity_of_name(name, value)
    for name in given:
        if name not in seen:
            raise ValueError(
                f"families names {name!r}, a family without features, not one of "
                f"{sorted(seen)!r:.200}.")
    return found


def _checked(value, of):
    try:
        k = tuple(value)
        if len(k) == 3 and all(
                isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0
                for n in k):
            return k
    except TypeError:
        pass
    raise ValueError(f"{of} must be three integers >= 0, (k1, k2, k3), got {value!r:.80}.")


def family_sizes(names, families, separator=":"):
    """(n_words, n_characters) of the attributes, at least 1 each."""
    of_words, of_affixes, of_all = {}, set(), set()
    for attribute, (k1, _, k3) in zip(names, families.tolist(), strict=True):
        name, value = attribute_name(attribute, separator)
        of_all.update(value)
        if k1 == 1 and k3 == 0:
            of_words[name] = of_words.get(name, 0) + 1
        elif k3 > 0:
            of_affixes.update(value)
    return max(of_words.values(), default=1), max(1, len(of_affixes or of_all))
