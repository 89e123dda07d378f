"""Bounds of the expected loss: margin bounds with corrected constants, and of held-out losses.

Each returns a `Bound` with its value, whether it is vacuous (not below the largest loss), and its
terms. `printed` is the value by the printed formula if that differs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

from fastm4n.base.checks import check_choice, check_number

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

KINDS = ("add", "mult")


class Bound(NamedTuple):
    """A bound of an expected loss that holds with probability 1 - delta.

    Attributes
    ----------
    value : float
    vacuous : bool
        Whether `value` is not below the largest loss.
    terms : dict of str to float
        The terms of the value.
    printed : float
        Value with the printed constants, NaN if they are the same.
    """

    value: float
    vacuous: bool
    terms: dict[str, Any]
    printed: float = math.nan


def margin_bound(
    empirical: float, complexity: float, *, rho: float, n_examples: int, delta: float = 0.05,
    max_loss: float = 1.0, kind: Literal["add", "mult"] = "add",
    printed_complexity: float | None = None,
) -> Bound:
    """Bound of the expected loss by an empirical margin loss (Theorem 7 of Cortes et al., 2016).

    R(h) <= R_rho(h) + (4 sqrt(2) / rho) R(H) + 3 M sqrt(log(2 / delta) / (2 m)), with a factor M
    before the complexity for the multiplicative margin loss. It holds for all hypotheses of one
    set H and one rho, both chosen before the data. See `union` for grids of them.

    Parameters
    ----------
    empirical : float
        Empirical margin loss at rho.
    complexity : float
        Empirical factor-graph complexity R(H), or an upper bound of it.
    rho : float
    n_examples : int
        m.
    delta : float, default=0.05
    max_loss : float, default=1.0
        M, the largest possible loss of an example.
    kind : {"add", "mult"}, default="add"
    printed_complexity : float, default=None
        Printed complexity for `printed`, which has log(1 / delta), although the proof uses
        McDiarmid's inequality twice.

    Returns
    -------
    bound : Bound

    Examples
    --------
    >>> from fastm4n.research.theory import margin_bound
    >>> bound = margin_bound(0.05, 0.01, rho=1.0, n_examples=20000)
    >>> round(bound.value, 3), bound.vacuous
    (0.135, False)
    """
    check_choice("kind", kind, KINDS)
    _check(delta, n_examples, max_loss)
    check_number("rho", rho, low=0)
    factor = 4.0 * math.sqrt(2.0) / rho * (max_loss if kind == "mult" else 1.0)
    terms = {
        "empirical": float(empirical),
        "complexity": _product(factor, complexity),
        "concentration": 3.0 * max_loss * math.sqrt(math.log(2.0 / delta) / (2 * n_examples)),
    }
    printed = math.nan
    if printed_complexity is not None:
        printed = terms["empirical"] + _product(factor, printed_complexity) + (
            3.0 * max_loss * math.sqrt(math.log(1.0 / delta) / (2 * n_examples)))
    return _bound(terms, max_loss, printed)


def union(delta: float, n_choices: int, level: int | None = None) -> float:
    """The share of delta of one of several bounds that hold together.

    Parameters
    ----------
    delta : float
    n_choices : int
        Number of equally likely bounds: values of rho, norms.
    level : int, default=None
        Level j of the norm by `norm_level`. Its share is 2 / (3 (1 + |j|) (2 + |j|)), which sums to
        1 over all integers.

    Notes
    -----
    The paper has bounds for all rho in (0, 1] at once "using known techniques", by the next smaller
    rho of a grid. These need margin losses that do not decrease in rho. Structured margin losses
    may decrease: a labelling of a loss below M that scores higher than the truth counts more for
    smaller rho. The bounds here are for the rho of a finite grid.
    """
    share = 1.0 if level is None else 2.0 / (3.0 * (1 + abs(level)) * (2 + abs(level)))
    return delta / n_choices * share


def norm_level(norm: float) -> int:
    """The smallest ball of radius 2^(j / 4) that contains a norm: its radius and j.

    Balls must be chosen before the data, unlike the norm of the model. By `union` the bounds hold
    for all these balls together.
    """
    if norm <= 0.0 or not math.isfinite(norm):
        return (0.0, 0) if norm == 0.0 else (math.inf, 0)
    j = math.ceil(4 * math.log2(norm))
    while 2.0 ** (j / 4) < norm:  # if the logarithm was rounded
        j += 1
    return 2.0 ** (j / 4), j


def ensemble_constant(
    rho: float, *, n_examples: int, n_families: int, log_outputs: float, delta: float = 0.05,
    max_loss: float = 1.0, empirical: bool = True,
) -> tuple[float, float]:
    """C of the bounds of convex combinations of families (Theorems 3 and 14).

    R(f) - R_{rho, 1}(f) <= (4 sqrt(2) / rho) sum_t alpha_t R(H_{k_t}) + C.

    Parameters
    ----------
    rho : float
    n_examples, n_families : int
        m, and p >= 2. Hypotheses must have values in [0, 1].
    log_outputs : float
        Logarithm of the number c of outputs: l log R for sequences of l of R labels.
    delta, max_loss
        As in `margin_bound`.
    empirical : bool, default=True
        Whether complexities are empirical (Theorem 14) or expected (Theorem 3).

    Returns
    -------
    corrected, printed : float
        With M and 3 M before the root by the proofs, and with 3 M and 9 M in print.
    """
    _check(delta, n_examples, max_loss)
    check_number("rho", rho, low=0)
    check_number("n_families", n_families, low=2, strict=False, integer=True)
    check_number("log_outputs", log_outputs, low=0)
    log_p = math.log(n_families)
    inner = 2 * log_outputs + math.log(rho**2 * n_examples / (4 * log_p))
    n = max(1, math.ceil(4 / rho**2 * inner))
    root = math.sqrt(n * log_p / n_examples + math.log(2 / delta) / (2 * n_examples))
    first = 2 * max_loss / rho * math.sqrt(log_p / n_examples)
    factor = (3 if empirical else 1) * max_loss
    return first + factor * root, first + 3 * factor * root


def clopper_pearson(
    n_errors: int, n_examples: int, delta: float = 0.05, side: Literal["upper", "both"] = "upper",
) -> tuple[float, float]:
    """Exact bounds of a probability from independent trials (Clopper and Pearson, 1934).

    Parameters
    ----------
    n_errors, n_examples : int
    delta : float, default=0.05
        Probability that the bounds do not contain the true one.
    side : {"upper", "both"}, default="upper"
        "both" has half of delta on each side, "upper" the lower bound 0.

    Returns
    -------
    lower, upper : float

    Examples
    --------
    >>> from fastm4n.research.theory import clopper_pearson
    >>> lower, upper = clopper_pearson(5, 100)
    >>> lower, round(upper, 4)
    (0.0, 0.1023)
    """
    check_choice("side", side, ("upper", "both"))
    _check(delta, n_examples, 1.0)
    check_number("n_errors", n_errors, low=0, strict=False, integer=True)
    if n_errors > n_examples:
        raise ValueError(f"n_errors is {n_errors}, more than the {n_examples} examples.")
    tail = delta if side == "upper" else delta / 2
    lower = 0.0
    if side == "both" and n_errors:
        lower = float(stats.beta.ppf(tail, n_errors, n_examples - n_errors + 1))
    upper = 1.0
    if n_errors < n_examples:
        upper = float(stats.beta.ppf(1 - tail, n_errors + 1, n_examples - n_errors))
    return lower, upper


def empirical_bernstein(losses: ArrayLike, delta: float = 0.05, max_loss: float = 1.0) -> Bound:
    """Upper bound of an expected loss from held-out losses (Maurer and Pontil, 2009, Theorem 4).

    mean + sqrt(2 V log(2 / delta) / n) + 7 M log(2 / delta) / (3 (n - 1)), V the sample variance.
    It is far below Hoeffding's bound if losses vary little.

    Parameters
    ----------
    losses : array-like of shape (n,)
        At least two independent losses between 0 and `max_loss`.
    delta, max_loss : float

    Returns
    -------
    bound : Bound

    Examples
    --------
    >>> from fastm4n.research.theory import empirical_bernstein
    >>> round(empirical_bernstein([0.0, 0.1] * 500).value, 4)
    0.0629
    """
    losses = np.asarray(losses, dtype=np.float64).ravel()
    if losses.size < 2:
        raise ValueError(f"losses must have at least two examples, got {losses.size}.")
    _check(delta, losses.size, max_loss)
    outside = np.flatnonzero(~((losses >= 0) & (losses <= max_loss * (1 + 1e-12))))
    if outside.size:
        raise ValueError(
            f"losses[{outside[0]}] is {losses[outside[0]]:g}, not between 0 and "
            f"max_loss={max_loss:g}.")
    log = math.log(2.0 / delta)
    n = losses.size
    return _bound({
        "empirical": float(losses.mean()),
        "variance": math.sqrt(2.0 * float(losses.var(ddof=1)) * log / n),
        "range": 7.0 * max_loss * log / (3.0 * (n - 1)),
    }, max_loss)


def excess_risk_bound(
    gap: float, *, alpha: float, n_examples: int, constant: float, lipschitz: float, radius: float,
    optimum_norm: float = 0.0, delta: float = 0.05, max_loss: float = 1.0,
) -> Bound:
    """Bound of the excess risk of a regularised fit of the max-min surrogate.

    constant times 2 gap + 16 L^2 B^2 (32 + log(1 / delta)) / (alpha n) + alpha / 2 ||g*||^2: the
    comparison inequality of Nowak-Vila et al. (2020, Theorem C.8) after their Theorem D.1, which is
    Theorem 1 of Sridharan et al. (2008).

    Parameters
    ----------
    gap : float
        Certified duality gap of the fit.
    alpha : float
        The objective has alpha / 2 ||w||^2, which Theorem D.1 prints as lambda ||g||^2.
    n_examples : int
    constant : float
        C of the comparison inequality: `calibration_constant`.
    lipschitz, radius : float
        L of the surrogate in the scores, and B >= ||x||.
    optimum_norm : float, default=0.0
        ||g*|| of the scores of least surrogate risk, which the model must contain. It is unknown,
        and 0 leaves it out. The printed term has ||g|| of the fit.
    delta, max_loss : float

    Returns
    -------
    bound : Bound
        For the risk minus the least risk.
    """
    _check(delta, n_examples, max_loss)
    for name, value in (("alpha", alpha), ("constant", constant)):
        check_number(name, value, low=0)
    estimation = 16 * (lipschitz * radius) ** 2 * (32 + math.log(1 / delta)) / (alpha * n_examples)
    return _bound({
        "optimisation": constant * 2 * gap, "estimation": constant * estimation,
        "regularisation": constant * alpha / 2 * optimum_norm**2,
    }, max_loss)


def _check(delta, n_examples, max_loss):
    check_number("delta", delta, low=0)
    if delta >= 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}.")
    check_number("n_examples", n_examples, low=0, integer=True)
    check_number("max_loss", max_loss, low=0)


def _product(factor, complexity):
    """Product of a factor, which may be infinite, and a complexity, 0 if that is 0."""
    return 0.0 if complexity == 0.0 else float(factor * complexity)


def _bound(terms, max_loss, printed=math.nan):
    value = sum(terms.values())
    return Bound(value, not value < max_loss, terms, printed)
