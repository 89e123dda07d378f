"""Liu's example: structural SVMs have no preference if no label has probability above 1/2."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.base.checks import check_number
from fastm4n.estimators import MulticlassClassifier, SequenceTagger
from fastm4n.research.theory.consistency import prices
from fastm4n.tasks.chain_weights import Transitions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike


class LiuFit(NamedTuple):
    """Fit of one surrogate to random labels.

    Attributes
    ----------
    surrogate : str
    predicted : int
        Number of the predicted label, at the first position of sequences.
    scores : ndarray of shape (n_labels,)
        Scores of the labels there, minus their mean.
    risk, least_risk : float
        Expected 0-1 loss of a position for the prediction and for the best label.
    prices : ndarray of shape (n_labels,)
        Prices of the labels: see `fastm4n.research.theory.prices`.
    gap : float
        Certified duality gap of the fit.
    """

    surrogate: str
    predicted: int
    scores: np.ndarray
    risk: float
    least_risk: float
    prices: np.ndarray
    gap: float


def liu_example(
    p: ArrayLike = (0.3, 0.3, 0.4), *, n_positions: int = 1, alpha: float = 1e-4,
    surrogates: Sequence[str] = ("max_margin", "max_min", "log"),
) -> list[LiuFit]:
    """Fit labels that are drawn from p independently of features, with 0-1 costs.

    The data are all labellings with their probabilities as weights, without sampling, with one
    constant feature and no intercept.

    Parameters
    ----------
    p : array-like of shape (k,), default=(0.3, 0.3, 0.4)
        Probabilities of the labels. Ties are predicted as the first label.
    n_positions : int, default=1
        Above 1, a `SequenceTagger` fits sequences of this many independent labels.
    alpha : float, default=1e-4
    surrogates : sequence of str, default=("max_margin", "max_min", "log")

    Returns
    -------
    fits : list of LiuFit

    Notes
    -----
    If no label has probability above 1/2, the max-margin surrogate is least at zero scores (Liu,
    2007), and does not find the most probable label. The max-min surrogate and the log-loss do.

    Examples
    --------
    >>> from fastm4n.research.theory import liu_example
    >>> for fit in liu_example():
    ...     print(fit.surrogate, fit.predicted, round(fit.risk, 3))
    max_margin 0 0.7
    max_min 2 0.6
    log 2 0.6
    """
    p = np.asarray(p, dtype=np.float64)
    check_number("n_positions", n_positions, low=0, integer=True)
    of_price = {surrogate: prices(p, surrogate) for surrogate in surrogates}
    labellings = np.array(list(product(range(p.size), repeat=n_positions)))
    weights = p[labellings].prod(axis=1)
    options = dict(alpha=alpha, tol=1e-7, max_iter=20000, random_state=0)
    fits = []
    for surrogate in surrogates:
        if n_positions == 1:
            model = MulticlassClassifier(surrogate, fit_intercept=False, **options)
            model.fit(np.ones((len(weights), 1)), labellings[:, 0], weights)
            predicted = int(model.predict([[1.0]])[0])
            scores = model.coef_[:, 0]
        else:
            model = SequenceTagger(
                surrogate, fit_intercept=False, transitions=Transitions(start_end=False), **options)
            ones = np.ones((n_positions, 1))
            model.fit([ones] * len(weights), list(labellings), weights)
            predicted = int(model.predict([ones])[0][0])
            scores = model.coef_[:, 0]
        risk = 1.0 - p
        fits.append(LiuFit(
            surrogate, predicted, scores - scores.mean(), float(risk[predicted]),
            float(risk.min()), of_price[surrogate], float(model.duality_gap_)))
    return fits
