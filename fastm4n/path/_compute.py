"""`regularization_path`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sklearn.exceptions import ConvergenceWarning

from fastm4n.path._checkpoint import Checkpoint
from fastm4n.path._run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import StrPath
    from fastm4n.path._path import RegularizationPath


def regularization_path(
    estimator: Any, X: Any, y: Any, *, eps: float = 0.1, kappa: float | None = None,
    alpha_min: float | None = None, alpha_max: float | None = None,
    method: Literal["certified", "heuristic", "grid"] = "certified",
    alphas: ArrayLike | None = None, warm_start: bool = True, certify: bool = True,
    sample_weight: ArrayLike | None = None, lengths: ArrayLike | None = None,
    checkpoint: StrPath | None = None, callback: Callable[..., Any] | None = None, verbose: int = 0,
) -> RegularizationPath:
    """Weights for every alpha whose objective is near its minimum, certified: within eps.

    The path goes from an alpha so large that hardly anything is learned down to `alpha_min`, or,
    where that is not given, at most to one at which the loss is at most eps. It is made of a few
    breakpoints, each warm-started from the one before; between them one of their weights is good
    enough, which is proven, and not tried.

    Parameters
    ----------
    estimator : estimator
        Unfitted; its parameters but `alpha` and `tol` are those of the path. `max_iter` is the
        most passes of one breakpoint. `callback` is not called, and ``solver="auto"`` makes
        accelerated line-search steps throughout.
    X, y : as the estimator's `fit` takes them
    eps : float, default=0.1
        Gap that the path may have at any alpha, relative to the objective at w = 0, as `tol` of
        the estimators is, and below 1: w = 0 has a gap of at most 1 without any fit. (That
        objective is 1 for max-margin under the 0-1 or the mean Hamming cost.)
    kappa : float in (0, 1), default=None
        Each breakpoint is solved to a relative gap of at most kappa * eps: the smaller, the fewer
        and the
        dearer they are. By default 0.9, and 0.7 for the heuristic path.
    alpha_min : float, default=None
        Where the path ends. By default 1e-3 times the alpha at which a step along the slope of the
        loss at w = 0 would do away with about all of it, or before that as soon as the loss is at
        most eps: the last weights then have that gap at most for every smaller alpha.
    alpha_max : float, default=None
        The first breakpoint. By default it is derived, such that the first weights times
        alpha_max / alpha are good enough for every larger alpha; for one that is given,
        :meth:`RegularizationPath.gap` tells whether they are.
    method : {"certified", "heuristic", "grid"}, default="certified"
        "certified" is as said. "heuristic" goes by gaps as they were when blocks were last
        visited: faster where certificates are dear, without any promise. "grid" solves for given
        alphas to eps.
    alphas : array-like, default=None
        The grid, in any order; by default 31 alphas from 2^15 to 2^-15 as in [1]_.
    warm_start : bool, default=True
        Whether an alpha of the grid starts from the one before. If not, each is the fit of the
        estimator with that alpha and ``tol=eps``.
    certify : bool, default=True
        Whether the gaps of a heuristic path are certified, for the record: it goes on as if they
        were not, and the time is not counted in `seconds`. Otherwise they are NaN.
    sample_weight : array-like, default=None
        As in the estimator's `fit`.
    lengths : array-like of int, default=None
        As in `SequenceTagger.fit`.
    checkpoint : str or path, default=None
        A folder, made if need be, that holds each finished breakpoint before the next begins, and
        every few seconds the state of the solver. Called again in the same way, the function goes
        on from there, with the same result to the bit. (Up to rounding where the values of a kernel
        do not fit in `cache_size` and a breakpoint was cut, as they are computed anew.) Where it
        cannot be written any more there is a RuntimeWarning, and the path goes on and tries again
        later.
    callback : callable, default=None
        Called after each breakpoint with a dict of "alpha", "gap", "primal", "dual", "loss",
        "passes", "seconds", "oracle_calls" and "n_breakpoints"; a true result ends the path.
    verbose : int, default=0
        A progress bar (with tqdm) and lines in the log "fastm4n".

    Returns
    -------
    path : RegularizationPath

    Raises
    ------
    ValueError
        For invalid parameters or data, a parameter of the estimator that paths do not know
        (``fit_intercept="free"``, ``step="fixed"``, bounds of `penalty` without zero), or a
        checkpoint of another problem.
    ModelFileError
        If a file of the checkpoint is damaged.
    PathInterrupted
        A KeyboardInterrupt whose `path` has the breakpoints that were finished.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` passes did not solve a breakpoint; the path ends there, but for a grid. Zero
        stands for weights that are worse.

    Notes
    -----
    Memory is that of a fit, and that of the weights times the number of breakpoints. Weights of
    more than 2^20 numbers are kept in float32 (in float64 under another `penalty` than "l2"), and
    their gaps are those of the rounded weights.
    A checkpoint takes the dual point as well; writing takes about 3 % of the time at most.

    The bound rests on two facts: the minimum of the objective is a concave function of alpha, and
    the objective of fixed weights an affine one [2]_, under every `penalty`.

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
        estimator, eps=eps, kappa=kappa, alpha_min=alpha_min, alpha_max=alpha_max, method=method,
        alphas=alphas, warm_start=warm_start, certify=certify, callback=callback,
        verbose=verbose,
    )
    X = run.prepare(X, y, sample_weight, lengths)
    if checkpoint is not None:
        run.use(Checkpoint(checkpoint, run.fingerprint(X, y, sample_weight, lengths)))
    path = run.follow()
    shortfall = run.shortfall(path)
    if shortfall is not None:
        warnings.warn(shortfall, ConvergenceWarning, stacklevel=2)
    return path
