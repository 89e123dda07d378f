"""One block whose output is one of K ordered levels, as K - 1 indicators of being above thresholds.

Every set of passed thresholds is an output, not only the K sets that are levels. Its cost is the
number of wrong indicators. So each indicator has an oracle of its own.

References
----------
.. [1] F. Pedregosa, F. Bach, A. Gramfort (2017). On the consistency of ordinal regression methods.
   JMLR 18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from fastm4n.base.types import FloatArray


def passed(level: int, n_levels: int) -> FloatArray:
    """The indicators of a level.

    Parameters
    ----------
    level : int
        0 ... n_levels - 1.
    n_levels : int

    Returns
    -------
    y : ndarray of shape (n_levels - 1,)
        One for each threshold below the level, zero for the others.

    Examples
    --------
    >>> from fastm4n.reference import passed
    >>> passed(1, 4)
    array([1., 0., 0.])
    """
    return (level > np.arange(n_levels - 1)).astype(np.float64)


def threshold_loss(
    v: FloatArray, y: FloatArray, surrogate: Literal["max_margin", "max_min", "log"],
) -> tuple[float, FloatArray]:
    """The all-threshold loss ([1]_, section 4) of one example, and its derivative.

    With z = v where y is one and z = -v where it is zero, the loss of a threshold is
    log(1 + exp(-z)) for "log", max(0, 1 - z) for "max_margin" and max(0, (1 - z) / 2, -z) for
    "max_min".

    Parameters
    ----------
    v : ndarray of shape (n_levels - 1,)
        Scores of being above each threshold.
    y : ndarray of shape (n_levels - 1,)
        As `passed` gives it.
    surrogate : {"max_margin", "max_min", "log"}

    Returns
    -------
    loss : float
        The sum over the thresholds.
    slope : ndarray of shape (n_levels - 1,)
        A subgradient by v: p - y for the probabilities p that the oracle gives of being above.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import passed, threshold_loss
    >>> loss, slope = threshold_loss(np.array([2.0, 0.0]), passed(1, 3), "max_min")
    >>> loss, slope
    (0.5, array([0. , 0.5]))
    """
    z = np.where(y == 1.0, v, -v)
    if surrogate == "log":
        return float(np.sum(np.logaddexp(0.0, -z))), np.exp(-np.logaddexp(0.0, -v)) - y
    if surrogate == "max_margin":
        # the costs of mistakes are added to the scores
        return float(np.sum(np.maximum(0.0, 1.0 - z))), (v > np.where(y == 1.0, 1.0, -1.0)) - y
    loss = np.maximum(0.0, np.maximum(0.5 * (1.0 - z), -z))
    return float(np.sum(loss)), 0.5 * (v > -1.0) + 0.5 * (v > 1.0) - y
