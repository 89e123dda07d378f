"""Penalties of the weights, for the parameter `penalty` of the linear estimators.

A fit minimises the mean loss plus alpha Omega(w). Features and constants such as the intercept have
weights. Each fitted array of weights is a *family*, named as its attribute without the underscore
at the end: "coef", "intercept", "transition_coef" and so on.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator

from fastm4n.base.checks import NamesParameters, is_number, one_of, refuse_where
from fastm4n.features._base import Penalty
from fastm4n.penalties._complexities import COMPLEXITIES, check_families, complexity_weights

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import BoolArray, FloatArray

__all__ = ["ElasticNet", "Group", "L2", "safe_zeros"]

# families of constant features without an L1 term or norm of a group by default
UNPENALISED = ("intercept",)


def as_bounds(name, bounds, shape, coef="coef_"):
    """(lower, upper), float64 arrays of `shape`, -inf and inf without a bound.

    Parameters
    ----------
    name : str
        Name of the bounds in errors.
    bounds : pair of float, array-like or None
        Numbers, or arrays that broadcast to `shape`. None is no bound.
    shape : tuple of int
    coef : str
        Name of the fitted weights in errors.
    """
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(
            f"{name} must be a pair (lower, upper) of numbers, arrays or None, got "
            f"{reprlib.repr(bounds)}.")
    both = []
    for side, bound, none in zip(("lower", "upper"), bounds, (-np.inf, np.inf), strict=True):
        given = _as_floats(f"{name}: {side}", none if bound is None else bound, " or None")
        refuse_where(
            np.isnan(given) | (given == -none), f"{name}: {side}", given,
            f"for no {side} bound pass {none:g} or None.")
        both.append(_broadcast(f"{name}: {side}", given, shape, coef))
    lower, upper = both
    crossed = np.argwhere(lower > upper)
    if crossed.size:
        place = tuple(map(int, crossed[0]))
        raise ValueError(
            f"{name}: lower {lower[place]:g} exceeds upper {upper[place]:g} for "
            f"{coef}{list(place)}.")
    with np.errstate(over="ignore"):
        least = np.clip(0.0, lower, upper) ** 2
        if not np.isfinite(least.sum()):
            place = tuple(map(int, np.unravel_index(np.argmax(least), shape)))
            raise ValueError(
                f"{name} are too large for float64: the squared norm of the weights overflows, "
                f"with lower {lower[place]:g} and upper {upper[place]:g} for {coef}{list(place)}.")
    return lower, upper


def _as_floats(name, value, more=""):
    try:
        given = np.asarray(value)
        if given.dtype.kind not in "iufO":
            raise TypeError(f"an array of {given.dtype}")
        return given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a number, an array of numbers{more} ({error}).") from error


def _broadcast(name, given, shape, coef):
    if given.shape == shape:
        return given
    try:
        return np.broadcast_to(given, shape)
    except ValueError as error:
        raise ValueError(
            f"{name} has shape {given.shape}, which does not broadcast to {shape} of {coef}."
        ) from error


@dataclass
class ResolvedPenalty:
    """A penalty of the weights of one fit: arrays of the families' shapes.

    Attributes
    ----------
    modulus : float
        m in Omega(w) = m / 2 ||w||^2 + ...
    by_rows : bool
        Whether the weights of a feature are a group.
    families : dict
        Name of a family to (lower, upper, thresholds).
    """

    modulus: float
    by_rows: bool
    families: dict[str, Any]

    def of_rows(self, shape, n_shared, views_of, pairs=None):
        """The compiled penalty of rows of weights.

        Parameters
        ----------
        shape : tuple of int
            Shape of the rows, padding included.
        n_shared : int
            The number of rows of features, which are the first.
        views_of : callable
            Maps an array of that shape to a dict from families to views of their weights.
        pairs : tuple (name, numbers), default=None
            The family with weights of pairs, in the first rows, and a callable that maps an array
            of its shape to numbers of the pairs.
        """
        packed = []
        for none, *arrays in zip((-np.inf, np.inf, 0.0), *self.families.values(), strict=True):
            given = {
                name: array for name, array in zip(self.families, arrays, strict=True)
                if np.any(array != none)}
            # whole rows take as much memory as the weights
            array = np.full(shape, none) if given else none
            views = views_of(array) if given else {}
            for name, values in given.items():
                if name in views:
                    views[name][...] = values.reshape(views[name].shape)
                elif pairs is not None and name == pairs[0]:
                    # behind the last pair there are no weights: this makes rows alike
                    of_pairs, to = pairs[1](values), array[:n_shared].reshape(-1)
                    to[: of_pairs.size] = of_pairs
                    to[of_pairs.size :] = of_pairs[-1] if of_pairs.size else none
            packed.append(array)
        lower, upper, thresholds = packed
        if self.by_rows:
            thresholds = np.broadcast_to(thresholds, shape)[:, :1]
        # without a quadratic term, the solver adds the term of proximal points
        modulus = self.modulus if self.modulus > 0.0 else 1.0
        return Penalty(shape, n_shared, lower, upper, thresholds, modulus, self.by_rows)


class _Penalty(NamesParameters, BaseEstimator):
    """Base of the penalties. ``docs/extending.md`` says how to add one.

    Attributes
    ----------
    known : dict of str to type
        All penalties by name. A class joins when it is defined.
    _variants : tuple of dict
        Options in the table of cells, see `fastm4n.estimators._cells`.
    _by_rows : bool
        Whether thresholds are of whole rows of weights, the weights of a feature for all labels.
    """

    known: dict[str, Any] = {}
    _variants = ({},)
    _by_rows = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _Penalty.known[cls.__name__] = cls

    def _resolved(self, families, missing, sample=None):
        """The result of `resolve_penalty` for this penalty."""
        ratio = self._ratio()
        thresholds = self._thresholds(ratio, families, missing, sample)
        given = self._named("bounds", families, missing, pairs=True)
        out = {}
        for name, shape in families.items():
            lower, upper = np.broadcast_to(-np.inf, shape), np.broadcast_to(np.inf, shape)
            if name in given:
                of = "penalty: bounds"
                if isinstance(self.bounds, dict):
                    of += f"[{name!r}]"
                lower, upper = as_bounds(of, given[name], shape, name + "_")
            out[name] = lower, upper, thresholds.get(name, np.broadcast_to(0.0, shape))
        return ResolvedPenalty(1.0 - ratio, self._by_rows, out)

    def _ratio(self):
        ratio = getattr(self, "l1_ratio", 0.0)
        if not is_number(ratio, low=0.0, strict=False) or ratio > 1.0:
            raise ValueError(f"penalty: l1_ratio must be a number from 0 to 1, got {ratio!r}.")
        if ratio == 1.0 and self._by_rows:
            raise ValueError(
                f"penalty: l1_ratio=1 leaves no quadratic term, which {type(self).__name__} needs. "
                "Use 0.99.")
        return float(ratio)

    def _named(self, parameter, families, missing, pairs=False):
        """The values of a parameter by family. A single value belongs to "coef"."""
        value = getattr(self, parameter, None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            return {"coef": value}
        for name in value:
            if name in missing:
                raise ValueError(f"penalty: {parameter} names {name!r}, {missing[name]}.")
            if name not in families or (pairs and name in UNPENALISED):
                known = tuple(f for f in families if not (pairs and f in UNPENALISED))
                raise ValueError(
                    f"penalty: {parameter} must name families of weights among {known}, got "
                    f"{name!r}.")
        return value

    def _thresholds(self, ratio, families, missing, sample=None):
        """l1_ratio times the weights of the L1 term, by family."""
        given = self._named("weights", families, missing)
        out = {}
        for name, shape in families.items():
            value = given.get(name, 0.0 if name in UNPENALISED else 1.0)
            of = "penalty: weights"
            if isinstance(getattr(self, "weights", None), dict):
                of += f"[{name!r}]"
            array = _as_floats(of, value, " or a dict of them")
            refuse_where(
                ~np.isfinite(array) | (array < 0.0), of, array, "weights must be finite and >= 0.")
            out[name] = self._spread(of, ratio * array, name, shape)
        return out

    def _spread(self, of, array, name, shape):
        return _broadcast(of, array, shape, name + "_")


class L2(_Penalty):
    """Squared norm, alpha / 2 ||w||^2, with optional bounds.

    Parameters
    ----------
    bounds : pair (lower, upper) or dict, default=None
        Bounds of `coef_`: numbers, arrays that broadcast to `coef_`, or None for no bound. A dict
        maps families of weights to pairs. Intercepts have no bounds.

    Examples
    --------
    >>> from fastm4n.penalties import L2
    >>> L2(bounds=(0, None))
    L2(bounds=(0, None))
    """

    _variants = {"bounds": (-0.2, 0.3)}, {"bounds": (0.1, None)}

    def __init__(
        self, bounds: tuple[float | None, float | None] | dict[str, Any] | None = None,
    ) -> None:
        self.bounds = bounds


class ElasticNet(_Penalty):
    """Elastic net for sparse weights.

    It is ``alpha ((1 - l1_ratio) / 2 ||w||^2 + l1_ratio sum_j weights_j |w_j|)``.

    Parameters
    ----------
    l1_ratio : float, default=0.5
        From 0, which is `L2`, to 1. At 1, only weights with weights_j = 0 have a quadratic term,
        w_j^2 / 2. The duality gap is then a loose bound, and a fit may also end when the objective
        stops decreasing.
    weights : float, array-like, dict or "complexity", default=None
        weights_j for `coef_`: a number, or an array that broadcasts to `coef_`. A dict maps
        families of weights, or names in `families`, to numbers or arrays. The default of families
        is 1, the intercept's 0. "complexity" (for `SequenceTagger`) is lam r_k + beta for features
        of the family k, as in VCRF [2]_, and 0 for the intercept.
    bounds : pair (lower, upper) or dict, default=None
        See `L2`. (0, None) makes the weights non-negative and sparse.
    families : array-like of shape (n_features, 3) or (n_features,), default=None
        For "complexity" k1, k2 and k3 of each feature, ``feature_families_`` of
        `SequenceVectorizer`. Otherwise the family of each feature, a key of `weights`, such as
        ``attribute_names_``.
    sizes : tuple (n_words, n_characters), default=None
        For "complexity": ``family_sizes_`` of `SequenceVectorizer`.
    complexity : {"paper", "theory"}, default="paper"
        Kind of r_k, see `fastm4n.penalties.complexity`.
    lam, beta : float, default=1.0
        Factor of r_k, and summand.

    References
    ----------
    .. [1] H. Zou, T. Hastie (2005). Regularization and variable selection via the elastic net.
       Journal of the Royal Statistical Society B 67.
    .. [2] C. Cortes, V. Kuznetsov, M. Mohri, S. Yang (2016). Structured prediction theory based on
       factor graph complexity. NeurIPS.

    Examples
    --------
    >>> from fastm4n.penalties import ElasticNet
    >>> ElasticNet(l1_ratio=0.9, weights={"start_coef": 0.0})
    ElasticNet(l1_ratio=0.9, weights={'start_coef': 0.0})
    """

    _variants = (
        {"l1_ratio": 0.97}, {"weights": {"coef": 2.0}}, {"l1_ratio": 1.0, "bounds": (-0.2, 0.3)})

    def __init__(
        self, l1_ratio: float = 0.5,
        weights: float | ArrayLike | dict[str, Any] | Literal["complexity"] | None = None,
        bounds: tuple[float | None, float | None] | dict[str, Any] | None = None,
        families: ArrayLike | None = None, sizes: tuple[int, ...] | None = None,
        complexity: Literal["paper", "theory"] = "paper", lam: float = 1.0, beta: float = 1.0,
    ) -> None:
        self.l1_ratio = l1_ratio
        self.weights = weights
        self.bounds = bounds
        self.families = families
        self.sizes = sizes
        self.complexity = complexity
        self.lam = lam
        self.beta = beta

    def _thresholds(self, ratio, families, missing, sample=None):
        if isinstance(self.weights, str):
            return self._by_complexity(ratio, families, sample)
        if self.families is None or not isinstance(self.weights, dict):
            return super()._thresholds(ratio, families, missing)
        names = np.asarray(self.families)
        d = families["coef"][-1]
        if names.shape != (d,):
            raise ValueError(
                f"penalty: weights by name need families of shape ({d},), got {names.shape}.")
        known = set(names.tolist())
        of_features = {
            name: value for name, value in self.weights.items()
            if name in known and name not in families and name not in missing}
        for name in self.weights:
            if name not in families and name not in missing and name not in known:
                raise ValueError(
                    f"penalty: weights names {name!r}, neither one of the families "
                    f"{reprlib.repr(sorted(known, key=str))} nor of {tuple(families)}.")
        rest = {name: v for name, v in self.weights.items() if name not in of_features}
        plain = type(self)(l1_ratio=self.l1_ratio, weights=rest)
        out = plain._thresholds(ratio, families, missing)
        of_coef = np.array(out["coef"])
        for name, value in of_features.items():
            if not is_number(value, low=0.0, strict=False):
                raise ValueError(
                    f"penalty: weights[{name!r}] must be a finite number >= 0, got "
                    f"{reprlib.repr(value)}.")
            of_coef[..., names == name] = ratio * float(value)
        out["coef"] = of_coef
        return out

    def _by_complexity(self, ratio, families, sample):
        """l1_ratio (lam r_k + beta), by family of weights."""
        if self.weights != "complexity":
            raise ValueError(
                "penalty: weights must be a number, an array of numbers, a dict of them or "
                f"'complexity', got {self.weights!r}.")
        if self.complexity not in COMPLEXITIES:
            raise ValueError(
                f"penalty: complexity must be one of {COMPLEXITIES}, got {self.complexity!r}.")
        for name in ("lam", "beta"):
            if not is_number(getattr(self, name), low=0.0, strict=False):
                raise ValueError(
                    f"penalty: {name} must be a finite number >= 0, got {getattr(self, name)!r}.")
        for name in ("families", "sizes"):
            if getattr(self, name) is None:
                attribute = {"families": "feature_families_", "sizes": "family_sizes_"}[name]
                raise ValueError(
                    f"penalty: weights='complexity' needs {name}. Pass {attribute} of the "
                    "SequenceVectorizer.")
        sizes = self.sizes
        if len(np.shape(sizes)) != 1 or len(sizes) != 2 or not all(
                is_number(size, low=1, strict=False, integer=True) for size in sizes):
            raise ValueError(
                f"penalty: sizes must be the numbers of words and of characters, got {sizes!r}.")
        of_features = check_families(self.families, families["coef"][-1])
        r = complexity_weights(of_features, sizes, sample, self.complexity, families)
        out = {}
        for name, shape in families.items():
            weight = 0.0 if name in UNPENALISED else self.lam * r[name] + self.beta
            out[name] = np.broadcast_to(ratio * np.asarray(weight), shape)
        return out


class Group(_Penalty):
    """Group lasso, which removes features.

    It is ``alpha ((1 - l1_ratio) / 2 ||w||^2 + l1_ratio sum_g weights_g ||w_g||)``. A group is the
    weights of one feature for all labels: all labels use a feature, or none does. Starts,
    ends, and the transitions out of each label are further groups. If transitions depend on
    features, they are one group.

    Parameters
    ----------
    l1_ratio : float, default=0.5
        From 0, which is `L2`, to less than 1.
    weights : float, array-like of shape (n_features,) or dict, default=None
        weights_g, as in `ElasticNet`: a number, or a number for each feature.

    References
    ----------
    .. [1] M. Yuan, Y. Lin (2006). Model selection and estimation in regression with grouped
       variables. Journal of the Royal Statistical Society B 68.

    Examples
    --------
    >>> from fastm4n.penalties import Group
    >>> Group(l1_ratio=0.8)
    Group(l1_ratio=0.8)
    """

    _by_rows = True

    def __init__(
        self, l1_ratio: float = 0.5, weights: float | ArrayLike | dict[str, Any] | None = None,
    ) -> None:
        self.l1_ratio = l1_ratio
        self.weights = weights

    def _spread(self, of, array, name, shape):
        """The number of each feature, repeated for all labels."""
        if array.ndim and name == "coef":
            return np.broadcast_to(_broadcast(of, array, shape[1:], "the features"), shape)
        if array.ndim and name == "transition_feature_coef":
            whole = _broadcast(of, array, shape[:1], "the features of transitions")
            return np.broadcast_to(whole[:, np.newaxis, np.newaxis], shape)
        if array.ndim:
            raise ValueError(f"{of} must be a number for {name}_.")
        return np.broadcast_to(array, shape)


NAMES = {"l2": L2, "elasticnet": ElasticNet, "l1": lambda: ElasticNet(l1_ratio=1.0)}


def as_penalty(penalty):
    """The penalty object of the parameter `penalty`, one and the same for a name."""
    if isinstance(penalty, str) and penalty in NAMES:
        return one_of(NAMES[penalty])
    if not isinstance(penalty, _Penalty):
        raise ValueError(
            "penalty must be 'l2', 'elasticnet', 'l1' or an object of fastm4n.penalties, got "
            f"{reprlib.repr(penalty)}.")
    return penalty


def is_plain(penalty):
    """Whether a penalty is alpha / 2 ||w||^2 alone."""
    penalty = as_penalty(penalty)
    return getattr(penalty, "bounds", None) is None and penalty._ratio() == 0.0


def is_pure_l1(penalty):
    """Whether only weights without L1 term have a quadratic term."""
    return as_penalty(penalty)._ratio() == 1.0


def needs_weights(penalty):
    """Whether a penalty depends on single weights, which kernels do not have."""
    return not is_plain(penalty) or getattr(as_penalty(penalty), "weights", None) is not None


def resolve_penalty(penalty, families, missing=(), sample=None):
    """The penalty of the weights of a fit, or None for alpha / 2 ||w||^2 alone.

    Parameters
    ----------
    penalty : str or object of this module
    families : dict of str to tuple of int
        Shapes of the fitted weights, by their names without the underscore at the end.
    missing : dict of str to str, default=()
        Families of other models of this kind, and the reason why this one has no such weights.
    sample : Sample, default=None
        Statistics for `weights="complexity"`.

    Returns
    -------
    resolved : ResolvedPenalty or None
    """
    penalty = as_penalty(penalty)
    # errors are raised even if the penalty has no effect
    resolved = penalty._resolved(families, dict(missing), sample)
    return None if is_plain(penalty) else resolved


def safe_zeros(
    z: FloatArray, ranges: Any, thresholds: FloatArray, alpha: float, gap: float,
) -> BoolArray:
    r"""Find weights that are zero at the optimum of the log surrogate, from a certified gap.

    At dual points mu_b, the dual is below its maximum by at least sum_b p_b KL(mu_b, mu*_b). By
    Pinsker's inequality, the expectations of a feature under mu and mu* therefore differ by at most
    its range times the root of half the gap, in the root mean square over blocks:

    .. math:: |z_j| + \frac{1}{\alpha} \sqrt{\tfrac{\text{gap}}{2} \sum_b p_b r_{bj}^2} < t_j
        \implies w^*_j = 0.

    Parameters
    ----------
    z : ndarray
        z(mu), before the threshold: (1 / alpha) sum_b p_b Phi(x_b) (phi(y_b) - mu_b)'.
    ranges : ndarray that broadcasts to z
        The root of sum_b p_b r_bj^2. The range r_bj is the difference between the largest and the
        least value of feature j of block b over all outputs, summed over positions: ``|x_bj|`` for
        a single label and for rankings, ``sum_t |x_tj|`` for sequences. For matchings, the sum over
        rows of the largest minus the least value is an upper bound.
    thresholds : ndarray that broadcasts to z
        t_j.
    alpha : float
    gap : float
        Bound of the distance of D(mu) to the maximum, divided by the temperature.

    Returns
    -------
    zero : ndarray of bool, of the shape of z
        True only where the weight is zero at the optimum.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.penalties import safe_zeros
    >>> safe_zeros(np.array([0.2, 0.9]), np.ones(2), 1.0, alpha=0.1, gap=1e-3)
    array([ True, False])
    """
    return np.abs(z) + np.asarray(ranges) * np.sqrt(0.5 * gap) / alpha < thresholds
