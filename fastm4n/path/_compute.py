"""`regularization_path`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sklearn.exceptions import ConvergenceWarning

from fastm4n.path._checkpoint import Checkpoint
from fastm4n.path._path import RegularizationPath
from fastm4n.path._run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import StrPath


def regularization_path(
    estimator: Any, X: Any, y: Any, *, eps: float = 0.1, kappa: float | None = None,
    alpha_min: float | None = None, alpha_max: float | None = None,
    method: Literal["certified", "heuristic", "grid"] = "certified",
    alphas: ArrayLike | None = None, warm_start: bool = True, certify: bool = True,
    sample_weight: ArrayLike | None = None, lengths: ArrayLike | None = None,
    checkpoint: StrPath | None = None, callback: Callable[..., Any] | None = None, verbose: int = 0,
) -> RegularizationPath:
    """Weights for every alpha, with an objective certified to be within eps of its minimum.

    The path goes from an alpha so large that hardly anything is learned down to `alpha_min`. By
    default it ends at the latest when the loss is at most eps. It consists of a few breakpoints,
    each warm-started from the one before. Between two breakpoints the weights of one of them are
    proven to be good enough.

    Parameters
    ----------
    estimator : estimator
        An unfitted estimator. The path replaces its `alpha` and `tol`. `max_iter` is the maximum
        number of passes of one breakpoint. `callback` is ignored, and ``solver="auto"`` makes
        accelerated line-search steps throughout.
    X, y : as in the estimator's `fit`
    eps : float, default=0.1
        Maximum gap at any alpha, relative to the objective at w = 0 like the `tol` of the
        estimators. It must be below 1, the gap that w = 0 has without any fit. (The objective at
        w = 0 is 1 for max-margin under the 0-1 or the mean Hamming cost.)
    kappa : float in (0, 1), default=None
        Each breakpoint is solved to a relative gap of at most kappa * eps. A smaller kappa makes
        fewer and more expensive breakpoints. By default 0.9, and 0.7 for the heuristic path.
    alpha_min : float, default=None
        End of the path. By default 1e-3 times the alpha at which one step along the slope of the
        loss at w = 0 would remove about all of the loss. The path ends before that if the loss is
        at most eps, as the last weights then have that gap at most for every smaller alpha.
    alpha_max : float, default=None
        The first breakpoint. The default is such that the first weights times alpha_max / alpha
        are good enough for every larger alpha. For your own alpha_max,
        :meth:`RegularizationPath.gap` returns their gap.
    method : {"certified", "heuristic", "grid"}, default="certified"
        "certified" is the method described above. "heuristic" uses the gaps at the last visit of
        each block, which is faster if certificates are expensive but promises nothing. "grid"
        solves for given alphas to eps.
    alphas : array-like, default=None
        The grid, in any order. By default 31 alphas from 2^15 to 2^-15 as in [1]_.
    warm_start : bool, default=True
        Whether an alpha of the grid starts from the one before. Without warm starts each one
        equals a fit of the estimator with that alpha and ``tol=eps``.
    certify : bool, default=True
        Whether to certify the gaps of a heuristic path, for the record. The certificates do not
        change the path, and `seconds` does not count them. Without them `gaps` are NaN.
    sample_weight : array-like, default=None
        As in the estimator's `fit`.
    lengths : array-like of int, default=None
        As in `SequenceTagger.fit`.
    checkpoint : str or path, default=None
        A folder for each finished breakpoint and, every few seconds, the state of the solver. It
        is made if needed. The same call later resumes from there, with the same result to the
        bit. (Up to rounding if kernel values exceed `cache_size` and a breakpoint was interrupted,
        as they are computed again.) If the folder cannot be written, there is a RuntimeWarning,
        and the path goes on and tries again later.
    callback : callable, default=None
        Called after each breakpoint with a dict of "alpha", "gap", "primal", "dual", "loss",
        "passes", "seconds", "oracle_calls" and "n_breakpoints". A true result ends the path.
    verbose : int, default=0
        Whether to show a progress bar (with tqdm) and log to "fastm4n".

    Returns
    -------
    path : RegularizationPath

    Raises
    ------
    ValueError
        For invalid parameters or data, a checkpoint of another problem, or a parameter of the
        estimator that paths do not support (``fit_intercept="free"``, ``step="fixed"``, bounds of
        `penalty` without zero).
    ModelFileError
        If a file of the checkpoint is damaged.
    PathInterrupted
        A KeyboardInterrupt whose `path` has the finished breakpoints.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` passes did not solve a breakpoint. The path ends there, except for a grid.
        Weights worse than zero are replaced by zero.

    Notes
    -----
    A path takes the memory of a fit, plus the weights of each breakpoint. Weights of more than
    2^20 numbers are stored in float32 (in float64 under another `penalty` than "l2"), and the gaps
    are those of the rounded weights. A checkpoint also contains the dual point, and writing it
    takes at most about 3 % of the time.

    The bound rests on two facts, true under every `penalty`: the minimum of the objective is a
    concave function of alpha, and the objective of fixed weights is an affine one [2]_.

    References
    ----------
    .. [1] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML. Section 4
       and appendix K.
    .. [2] J. Giesen, J. K. Mueller, S. Laue, S. Swiercy (2012). Approximating concavely
       parameterized optimization problems. NIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, regularization_path
    >>> X, y = load_iris(return_X_y=True)
    >>> path = regularization_path(MulticlassClassifier(random_state=0), X, y, eps=0.05)
    >>> bool((path.relative_gaps <= 0.05).all()), bool(path.relative_gap(0.0123) <= 0.05)
    (True, True)
    >>> path.predict(X[:2], alpha=0.0123)
    array([0, 0])
    """
    run = Run(
        RegularizationPath, estimator, eps=eps, kappa=kappa, alpha_min=alpha_min,
        alpha_max=alpha_max, method=method, alphas=alphas, warm_start=warm_start, certify=certify,
        callback=callback, verbose=verbose)
    X = run.prepare(X, y, sample_weight, lengths)
    if checkpoint is not None:
        run.use(Checkpoint(checkpoint, run.fingerprint(X, y, sample_weight, lengths)))
    path = run.follow()
    shortfall = run.shortfall(path)
    if shortfall is not None:
        warnings.warn(shortfall, ConvergenceWarning, stacklevel=2)
    return path
