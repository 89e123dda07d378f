"""The regularisation path of an estimator: one fit for all alpha, with a certified gap for each."""

import logging
import time
import warnings
from inspect import signature

import numpy as np
from joblib import Parallel, delayed
from joblib import hash as content_hash
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils.metaestimators import _safe_split, available_if
from sklearn.utils.validation import check_is_fitted

from fastm4n._checkpoints import Checkpoint
from fastm4n._parameters import check_choice, check_number
from fastm4n.estimators._base import CertifiedEstimator
from fastm4n.estimators._kernels import named_kernel
from fastm4n.estimators._state import estimator_from_state, estimator_state
from fastm4n.model_files import ModelFileError, read_arrays, write_arrays
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine
from fastm4n.solvers.block_coordinate import HISTORY_KEYS, Driver
from fastm4n.solvers.block_coordinate import certify as certificate_of
from fastm4n.solvers.block_frank_wolfe import check_solver
from fastm4n.solvers.path import Breakpoint, PathFollower, smallest_alpha

__all__ = ["PathInterrupted", "RegularizationPath", "RegularizationPathCV", "regularization_path"]

logger = logging.getLogger("fastm4n")

METHODS = ("certified", "heuristic", "grid")
KAPPA = {"certified": 0.9, "heuristic": 0.7, "grid": 0.9}
# the grid of Osokin et al. (2016)
GRID = 2.0 ** np.arange(15, -16, -1)

# weights of a breakpoint are kept in float32 where they are more than this many numbers
FLOAT32_ABOVE = 1 << 20

# parameters of an estimator that the breakpoints do not depend on
_IDLE = ("alpha", "tol", "decode", "warm_start", "n_jobs", "verbose", "callback",
         "allowed_transitions")


class PathInterrupted(KeyboardInterrupt):
    """KeyboardInterrupt while a path was computed; `path` is what there is of it.

    Attributes
    ----------
    path : RegularizationPath or None
        With the finished breakpoints; None where there were none.
    """

    def __init__(self, path):
        super().__init__("interrupted while a regularisation path was computed")
        self.path = path


# --------------------------------------------------------------------------- computing it


def regularization_path(
    estimator,
    X,
    y,
    *,
    eps=0.1,
    kappa=None,
    alpha_min=None,
    alpha_max=None,
    method="certified",
    alphas=None,
    warm_start=True,
    certify=True,
    sample_weight=None,
    lengths=None,
    checkpoint=None,
    callback=None,
    verbose=0,
):
    """Weights for every alpha whose objective is within eps of its minimum, certified.

    The path goes from an alpha so large that hardly anything is learned down to one at which the
    loss is at most eps, or to `alpha_min`. It is made of a few breakpoints, each warm-started from
    the one before; between them one of their weights is good enough, which is proven, and not
    tried.

    Parameters
    ----------
    estimator : estimator
        Unfitted; its parameters but `alpha` and `tol` are those of the path. `max_iter` is the
        most passes of one breakpoint. `callback` is not called, and ``solver="auto"`` makes
        accelerated line-search steps throughout.
    X, y : as the estimator's `fit` takes them
    eps : float, default=0.1
        Gap that the path may have at any alpha.
    kappa : float in (0, 1), default=None
        Each breakpoint is solved to a gap of at most kappa * eps: the smaller, the fewer and the
        dearer they are. By default 0.9, and 0.7 for the heuristic path.
    alpha_min : float, default=None
        Where the path may end if the loss is above eps still. By default 1e-3 times the alpha at
        which a step along the slope of the loss at w = 0 would do away with about all of it.
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
        A folder, made if need be, that holds each finished breakpoint before the next begins.
        Called again in the same way, the function goes on from there, with the same result to
        the bit.
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
        (``fit_intercept="free"``, ``step="fixed"``, `coef_bounds` without zero), or a
        checkpoint of another problem.
    ModelFileError
        If a file of the checkpoint is damaged.
    PathInterrupted
        A KeyboardInterrupt whose `path` has the breakpoints that were finished.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` passes did not solve a breakpoint; the path ends there, but for a grid.

    Notes
    -----
    Memory is that of a fit, and that of the weights times the number of breakpoints. Weights of
    more than 2^20 numbers are kept in float32, and their gaps are those of the rounded weights.
    A checkpoint takes the dual point as well, and writes it anew at each breakpoint.

    The bound rests on two facts: the minimum of the objective is a concave function of alpha, and
    the objective of fixed weights an affine one [2]_.

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
    >>> bool((path.gaps <= 0.05).all()), bool(path.gap(0.0123) <= 0.05)
    (True, True)
    >>> path.predict(X[:2], alpha=0.0123)
    array([0, 0])
    """
    run = _Run(
        estimator, eps=eps, kappa=kappa, alpha_min=alpha_min, alpha_max=alpha_max, method=method,
        alphas=alphas, warm_start=warm_start, certify=certify, callback=callback,
        verbose=verbose,
    )
    run.prepare(X, y, sample_weight, lengths)
    if checkpoint is not None:
        run.use(Checkpoint(checkpoint, run.fingerprint(X, y, sample_weight, lengths)))
    path = run.follow()
    if not run.follower.converged:
        worst = int(np.argmax(path.gaps)) if method == "grid" else -1
        warnings.warn(
            f"max_iter={estimator.max_iter} passes did not solve the breakpoint at alpha = "
            f"{path.alphas[worst]:.4g}: its certified gap is {path.gaps[worst]:.3g}. Increase "
            "max_iter of the estimator or eps, scale the features, or end the path at a larger "
            "alpha_min.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return path


class _Run:
    """The computation of one path."""

    def __init__(
        self, estimator, *, eps, kappa, alpha_min, alpha_max, method, alphas, warm_start,
        certify, callback, verbose,
    ):
        if not isinstance(estimator, CertifiedEstimator):
            raise TypeError(
                "estimator must be one of fastm4n's estimators, got "
                f"{type(estimator).__name__}; of a pipeline take the last step, and give what "
                "the others make of X."
            )
        check_choice("method", method, METHODS)
        check_number("eps", eps, low=0)
        kappa = KAPPA[method] if kappa is None else kappa
        check_number("kappa", kappa, low=0)
        if kappa >= 1:
            raise ValueError(f"kappa must lie in (0, 1), got {kappa!r}.")
        for name, value in (("alpha_min", alpha_min), ("alpha_max", alpha_max)):
            if value is not None:
                check_number(name, value, low=0)
                if method == "grid":
                    raise ValueError(f"{name} is not for method='grid'; give its alphas.")
        if alpha_min is not None and alpha_max is not None and alpha_min > alpha_max:
            raise ValueError(f"alpha_min={alpha_min:g} is above alpha_max={alpha_max:g}.")
        for name, value in (("warm_start", warm_start), ("certify", certify)):
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {value!r}.")
        if method != "grid" and alphas is not None:
            raise ValueError(
                f"alphas is a grid, for method='grid'; method={method!r} chooses breakpoints."
            )
        if method != "grid" and not warm_start:
            raise ValueError(f"warm_start=False is for method='grid', not {method!r}.")
        if callback is not None and not callable(callback):
            raise ValueError(f"callback must be callable or None, got {callback!r}.")
        self.alphas = _as_grid(alphas) if method == "grid" else None
        self.template = clone(estimator)
        self.eps, self.kappa, self.method = float(eps), float(kappa), method
        self.alpha_min = None if alpha_min is None else float(alpha_min)
        self.alpha_max = None if alpha_max is None else float(alpha_max)
        self.warm_start = bool(warm_start)
        self.certifies = method != "heuristic" or bool(certify)
        self.callback, self.verbose = callback, verbose
        self.checkpoint = None
        # of each breakpoint: what is known, the fitted arrays, and the time until then
        self.points, self.weights, self.seconds = [], [], []

    def prepare(self, X, y, sample_weight, lengths):
        """Make the problem of the data, and a follower."""
        template = self.template
        if isinstance(getattr(template, "fit_intercept", False), str):
            raise ValueError(
                "fit_intercept='free' is not supported by paths, whose bounds need every weight to "
                "be penalised; use a large number."
            )
        if check_solver(template.solver).step == "fixed":
            raise ValueError(
                "step='fixed' averages the iterates of one alpha; paths need step='line_search' or "
                "another."
            )
        more = {} if lengths is None else {"lengths": lengths}
        if more and "lengths" not in signature(template._problem).parameters:
            raise ValueError(f"lengths is for SequenceTagger, not for {type(template).__name__}.")
        problem = self.problem = template._problem(X, y, sample_weight, **more)
        bounded = getattr(template, "coef_bounds", None) is not None
        if bounded and problem.features.weight_norm() > 0.0:
            raise ValueError(
                "coef_bounds must hold zero for a path, or weights could not be scaled down as "
                "alpha grows."
            )
        options = template._solver_options()
        if self.method == "heuristic":
            options["accelerate"] = False  # stale gaps would be those of another objective
        engine = BlockCoordinateEngine(
            problem.structure, problem.features, problem.weights, 1.0, options["seed"]
        )
        names = ("sampling", "step", "n_jobs", "accelerate", "cache", "cache_F", "cache_nu")
        driver = Driver(engine, **{name: options[name] for name in names})
        fitted = problem.fitted(engine.mu, 1.0)
        size = sum(array.size for name, array in fitted.items() if name.endswith("_"))
        self.follower = PathFollower(
            driver, self.eps, self.kappa, template.max_iter, alphas=self.alphas,
            alpha_max=self.alpha_max, alpha_min=self.alpha_min,
            certified=self.method != "heuristic", warm_start=self.warm_start,
            rounded=size > FLOAT32_ABOVE, bounded=bounded,
        )

    def fingerprint(self, *data):
        """A short text for each thing that the breakpoints depend on."""
        parts = dict(zip(("X", "y", "sample_weight", "lengths"), data))
        for name, value in self.template.get_params().items():
            if hasattr(value, "get_params"):
                continue  # its parameters are there as well
            if name == "random_state" and not isinstance(value, (int, np.integer)):
                continue  # drawn anew each time; the state of the solver goes on
            if name not in _IDLE:
                named = callable(value)  # no content of code is hashed
                parts[name] = f"{value.__module__}.{value.__qualname__}" if named else value
        for name in ("eps", "kappa", "alpha_min", "alpha_max", "method", "alphas", "warm_start"):
            parts[name] = getattr(self, name)
        parts["certify"] = self.certifies
        return {
            "estimator": type(self.template).__name__,
            **{name: content_hash(value, coerce_mmap=True) for name, value in parts.items()},
        }

    def use(self, checkpoint):
        """Write to a checkpoint, and take up what is in it."""
        self.checkpoint = checkpoint
        found = checkpoint.read(self.follower.state())
        if found is None:
            return
        state, self.points, self.weights, self.seconds = found
        self.follower.restore(state)

    def follow(self):
        """The path, from where it stands."""
        template, bar = self.template, _Bar(self.verbose)
        try:
            with named_kernel(getattr(template, "kernel", None)):
                while self._advance():
                    row = self._row()
                    bar.update(row)
                    if self.callback is not None and self.callback(row):
                        break
        except KeyboardInterrupt:
            raise PathInterrupted(self._path() if self.points else None) from None
        finally:
            bar.close()
        return self._path()

    def _advance(self):
        """Find and keep the next breakpoint; whether there was one."""
        follower, engine = self.follower, self.follower.engine
        if self.checkpoint is not None:
            # kernel values are not in a checkpoint, and others than these would round otherwise
            engine.features.forget()
        before = self.seconds[-1] if self.seconds else 0.0
        start = time.perf_counter()
        point = follower.advance()
        seconds = before + time.perf_counter() - start
        if point is None:
            if self.checkpoint is not None:
                self.checkpoint.write_state(len(self.points), follower.state())
            return False
        if self.method == "heuristic" and self.certifies:
            kept = engine.surrogate.state()
            certificate = certificate_of(engine, engine.mu, follower.driver.n_jobs)
            engine.surrogate.restore(kept)
            loss = float(np.sum(np.multiply(engine.weights, certificate.block_losses)))
            point = Breakpoint(
                point.alpha, loss, certificate.norm, certificate.dual, point.concave, point.passes,
                point.oracle_calls,
            )
        weights = self._fitted()
        if self.checkpoint is not None:
            self.checkpoint.write(len(self.points), point, weights, seconds)
            self.checkpoint.write_state(len(self.points) + 1, follower.state())
        self.points.append(point)
        self.weights.append(weights)
        self.seconds.append(seconds)
        return True

    def _fitted(self):
        """Copies of the fitted arrays; in float32 where that loses nothing of large ones."""
        follower = self.follower
        engine = follower.engine
        with follower.stored_weights():
            fitted = self.problem.fitted(engine.mu, engine.alpha)
            fitted = {
                name: np.array(array) for name, array in fitted.items() if not name.startswith("_")
            }
        if follower.rounded:
            for name, array in fitted.items():
                small = array.astype(np.float32)
                fitted[name] = small if np.array_equal(small, array) else array
        return fitted

    def _row(self):
        point = self.points[-1]
        primal = point.primal(point.alpha)
        return {
            "alpha": point.alpha, "gap": point.gap if self.certifies else np.nan,
            "primal": primal, "dual": point.dual, "loss": point.loss, "passes": point.passes,
            "seconds": self.seconds[-1], "oracle_calls": point.oracle_calls,
            "n_breakpoints": len(self.points),
        }

    def _path(self):
        follower = self.follower
        noted = {
            name: value for name, value in vars(self.template).items()
            if name in ("n_features_in_", "feature_names_in_")
        }
        return RegularizationPath(
            self.template, {**noted, **self.problem.common}, self.points, self.weights,
            self.seconds, eps=self.eps, method=self.method,
            complete=follower.complete and follower.converged, certified=self.certifies,
            at_rest=(follower.at_rest, follower.gap_at_rest(self.points[0])),
        )


def _as_grid(alphas):
    """Positive numbers, decreasing."""
    if alphas is None:
        return GRID
    try:
        grid = np.array(alphas, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"alphas must be numbers: {error}") from error
    if grid.ndim != 1 or grid.size == 0:
        raise ValueError(f"alphas must be one-dimensional, not empty; got shape {grid.shape}.")
    wrong = np.flatnonzero(~((grid > 0) & np.isfinite(grid)))
    if wrong.size:
        raise ValueError(
            f"alphas[{wrong[0]}] is {grid[wrong[0]]:g}; alphas must be finite and > 0."
        )
    grid = np.sort(grid)[::-1]
    if (np.diff(grid) == 0).any():
        raise ValueError("alphas has an alpha more than once.")
    return grid


class _Bar:
    """A tqdm bar over breakpoints where tqdm is installed, and lines in the log."""

    def __init__(self, verbose):
        self.verbose, self.bar = verbose, None
        if verbose:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                logger.info("install tqdm to see a progress bar")
            else:
                self.bar = tqdm(unit="breakpoint", leave=verbose > 1)

    def update(self, row):
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.update()
            self.bar.set_postfix(
                alpha=f"{row['alpha']:.2e}", gap=f"{row['gap']:.2e}", passes=row["passes"]
            )
        logger.info(
            "breakpoint %d: alpha %.4g, loss %.4g, gap %.3e, %d passes",
            row["n_breakpoints"], row["alpha"], row["loss"], row["gap"], row["passes"],
        )

    def close(self):
        if self.bar is not None:
            self.bar.close()


# --------------------------------------------------------------------------------- a path


class RegularizationPath:
    """Weights for every alpha, and how far their objective is from its minimum at most.

    Made by :func:`regularization_path`. Between two breakpoints the weights are those of the one
    whose objective is lower at that alpha; above the first they are those of the first times
    ``alphas[0] / alpha``, below the last those of the last.

    Attributes
    ----------
    alphas : ndarray of shape (n_breakpoints,)
        Decreasing.
    gaps : ndarray of shape (n_breakpoints,)
        Certified gap at each; NaN for a heuristic path without certificates.
    losses, norms : ndarray of shape (n_breakpoints,)
        Mean surrogate loss, bounded from above, and squared norm of the weights: the objective
        at alpha is losses + alpha / 2 * norms.
    duals : ndarray of shape (n_breakpoints,)
        Lower bounds of the minimum at each alpha.
    passes, seconds, oracle_calls : ndarray of shape (n_breakpoints,)
        From the start of the path until each was done.
    eps : float
    method : str
    complete : bool
        Whether the path came to its end, each breakpoint being solved. A certified path then has
        a gap of at most eps from `certified_down_to` to infinity, or to `alpha_max` if that was
        given.
    certified_down_to : float
        The weights of the last breakpoint have a gap of at most eps down to here; often 0.

    See Also
    --------
    RegularizationPathCV : Chooses alpha by cross-validation.
    """

    def __init__(
        self, template, common, points, weights, seconds, *, eps, method, complete, certified,
        at_rest,
    ):
        self._template = template
        self._common = dict(common)
        self._points = list(points)
        self._weights = list(weights)
        # loss and gap of w = 0 under an infinite alpha
        self._loss_at_rest, self._gap_at_rest = map(float, at_rest)
        self._certified = certified
        self.seconds = np.array(seconds, dtype=np.float64)
        self.eps = float(eps)
        self.method = method
        self.complete = bool(complete)
        for name, of in (
            ("alphas", "alpha"), ("losses", "loss"), ("norms", "norm"), ("duals", "dual"),
            ("passes", "passes"), ("oracle_calls", "oracle_calls"),
        ):
            setattr(self, name, np.array([getattr(point, of) for point in self._points]))
        gaps = np.array([point.gap for point in self._points])
        self.gaps = gaps if certified else np.full_like(gaps, np.nan)

    def __repr__(self):
        return (
            f"<RegularizationPath of {type(self._template).__name__}: {len(self)} breakpoints, "
            f"alpha {self.alphas[0]:.3g} ... {self.alphas[-1]:.3g}, eps={self.eps:g}, "
            f"method={self.method!r}{'' if self.complete else ', not complete'}>"
        )

    def __len__(self):
        return len(self._points)

    @property
    def certified_down_to(self):
        return smallest_alpha(self._points[-1], self.eps) if self._certified else np.inf

    # ---------------------------------------------------------------------- one alpha

    def _piece(self, alpha):
        """Number of the breakpoint whose weights are taken, and the factor to take them times."""
        check_number("alpha", alpha, low=0)
        alphas = self.alphas
        if alpha >= alphas[0]:
            return 0, float(alphas[0] / alpha)
        # the last breakpoint that is not below alpha
        j = int(np.searchsorted(-alphas, -alpha, side="right")) - 1
        if alpha < alphas[j] and j + 1 < len(self):
            above, below = self._points[j], self._points[j + 1]
            return j + (below.primal(alpha) < above.primal(alpha)), 1.0
        return j, 1.0

    def gap(self, alpha):
        """Certified gap at alpha: how far the objective is from its minimum there, at most.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        gap : float
            NaN for a heuristic path without certificates.
        """
        j, factor = self._piece(alpha)
        if not self._certified:
            return np.nan
        if alpha >= self.alphas[0]:
            return factor * float(self.gaps[0]) + (1.0 - factor) * self._gap_at_rest
        lower = np.interp(alpha, [0.0, *self.alphas[::-1]], [0.0, *self.duals[::-1]])
        return max(0.0, self._points[j].primal(alpha) - float(lower))

    def _fitted(self, alpha):
        """Fitted arrays at alpha, in float64: new ones."""
        j, factor = self._piece(alpha)
        return {
            name: factor * array.astype(np.float64) for name, array in self._weights[j].items()
        }

    def coef(self, alpha):
        """Weights at alpha: `coef_`, or `dual_coef_` for kernels, of the estimator at alpha.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        coef : ndarray
        """
        fitted = self._fitted(alpha)
        return fitted["coef_" if "coef_" in fitted else "dual_coef_"]

    def estimator(self, alpha):
        """A fitted estimator with the weights at alpha.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        estimator : estimator
            A clone of the one that the path was computed for, with that alpha. Its
            `duality_gap_` is the certified gap at alpha; `n_iter_` and `history_`, of one row,
            count from the start of the path.
        """
        j, factor = self._piece(alpha)
        gap, point = self.gap(alpha), self._points[j]
        model = clone(self._template).set_params(alpha=float(alpha))
        # the objective is convex along the line to w = 0
        primal = point.primal(min(alpha, self.alphas[0]))
        primal = float(factor * primal + (1.0 - factor) * self._loss_at_rest)
        row = (
            point.passes, primal, primal - gap, gap, self.seconds[j], point.oracle_calls, np.nan,
        )
        attributes = {
            **self._common, **self._fitted(alpha), "n_iter_": point.passes, "duality_gap_": gap,
            "relative_gap_": gap / (self._loss_at_rest or 1.0),
            "primal_objective_": primal, "dual_objective_": primal - gap,
            "history_": {key: np.array([value]) for key, value in zip(HISTORY_KEYS, row)},
        }
        model.__setstate__({**vars(model), **attributes})
        return model

    def predict(self, X, alpha, **options):
        """`predict` of the estimator at alpha.

        Parameters
        ----------
        X, **options
            As the estimator's `predict` takes them.
        alpha : float
            Positive.
        """
        return self.estimator(alpha).predict(X, **options)

    # --------------------------------------------------------------------- all of them

    def score(self, X, y, *, alphas=None, scoring=None, **options):
        """Scores along the path.

        Parameters
        ----------
        X, y, **options
            As the estimator's `score` takes them.
        alphas : array-like, default=None
            Where to score; the breakpoints by default.
        scoring : str or callable, default=None
            A scorer of scikit-learn's; the estimator's own `score` by default.

        Returns
        -------
        scores : ndarray of shape (n_alphas,)
        """
        alphas = self.alphas if alphas is None else np.atleast_1d(alphas)
        scorer = _scorer(scoring)
        # many alphas have the same weights
        known, scores = {}, []
        for alpha in alphas.tolist():
            piece = self._piece(alpha)
            if piece not in known:
                known[piece] = float(scorer(self.estimator(alpha), X, y, **options))
            scores.append(known[piece])
        return np.array(scores)

    def best_alpha(self, cv=None, X=None, y=None, **options):
        """The alpha that does best on other data, or in cross-validation.

        Parameters
        ----------
        cv : int, splitter or iterable, default=None
            How X and y, those of the path, are split, as in `RegularizationPathCV`. Without, they
            are data to be scored on that the path has not seen, and the breakpoints are compared.
        X, y
        **options
            Of `score`, or with cv of `RegularizationPathCV`.

        Returns
        -------
        alpha : float
            The largest one, if several do equally well.
        """
        if X is None or y is None:
            raise ValueError(
                "X and y must be given: a path does not keep its data. With cv they are those of "
                "the path, without cv others."
            )
        if cv is None:
            return float(self.alphas[np.argmax(self.score(X, y, **options))])
        options = {"eps": self.eps, "method": self.method, **options}
        search = RegularizationPathCV(self._template, cv=cv, **options).fit(X, y)
        return search.alpha_1se_ if search.one_standard_error else search.alpha_

    # --------------------------------------------------------------------------- files

    def save(self, path):
        """Save the path to one file, without pickle.

        Parameters
        ----------
        path : str or path
            It is replaced at the end, when the new file is on disk; a failure leaves it as it was.

        Raises
        ------
        TypeError
            If a parameter of the estimator cannot be saved, see `fastm4n.save_model`.
        """
        model = self.estimator(self.alphas[0])
        # no more than what all breakpoints have in common is of use here
        for name in ("duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_"):
            setattr(model, name, 0.0)
        model.history_ = {key: np.zeros(0) for key in HISTORY_KEYS}
        state, arrays = estimator_state(model)
        header = {
            "estimator": state, "eps": self.eps, "method": self.method, "complete": self.complete,
            "certified": self._certified, "at_rest": [self._loss_at_rest, self._gap_at_rest],
            "weights": sorted(self._weights[0]),
        }
        arrays = {f"estimator/{name}": array for name, array in arrays.items()}
        arrays["points"] = np.array([point.numbers() for point in self._points])
        arrays["seconds"] = self.seconds
        for j, weights in enumerate(self._weights):
            arrays.update({f"{j}/{name}": array for name, array in weights.items()})
        write_arrays(path, "regularization path", header, arrays)

    @classmethod
    def load(cls, path):
        """Load a path that `save` has saved.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        path : RegularizationPath

        Raises
        ------
        ModelFileError
            If the file is damaged, of a newer format, or no path. Nothing in a file is executed.
        OSError
            If the file cannot be read.
        """
        header, arrays = read_arrays(path, "regularization path")
        try:
            return cls._from_file(header, arrays)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
            raise ModelFileError(f"{path} holds no valid path: {what}.") from error

    @classmethod
    def _from_file(cls, header, arrays):
        prefix = "estimator/"
        model = estimator_from_state(header["estimator"], {
            name.removeprefix(prefix): array for name, array in arrays.items()
            if name.startswith(prefix)
        })
        numbers, seconds = arrays["points"], arrays["seconds"]
        n = numbers.shape[0]
        if numbers.dtype != np.float64 or numbers.shape != (n, 7) or n == 0:
            raise ValueError("points is no table of breakpoints")
        if seconds.dtype != np.float64 or seconds.shape != (n,):
            raise ValueError("seconds does not fit the breakpoints")
        if (numbers[:, 0] <= 0).any() or (np.diff(numbers[:, 0]) >= 0).any():
            raise ValueError("the alphas do not decrease, or are not positive")
        names = header["weights"]
        if type(names) is not list or not set(names) <= set(vars(model)):
            raise ValueError("its weights are not those of the estimator")
        weights = []
        for j in range(n):
            of_point = {name: arrays[f"{j}/{name}"] for name in names}
            for name, array in of_point.items():
                if array.dtype.kind != "f" or array.shape != getattr(model, name).shape:
                    raise ValueError(f"{name} of breakpoint {j} does not fit the estimator")
            weights.append(of_point)
        parameters = model.get_params(deep=False)
        own = (
            "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_", "n_iter_",
            "history_",
        )
        common = {
            name: value for name, value in vars(model).items()
            if name not in parameters and name not in own and name not in names
            and name not in ("_packed", "_packed_edges")
        }
        points = [Breakpoint(*row[:5], *map(int, row[5:])) for row in numbers.tolist()]
        eps, at_rest = header["eps"], header["at_rest"]
        check_number("eps", eps, low=0)
        if type(at_rest) is not list or len(at_rest) != 2:
            raise ValueError("at_rest is no pair")
        for value in at_rest:
            check_number("at_rest", value, low=0, strict=False)
        check_choice("method", header["method"], METHODS)
        for name in ("complete", "certified"):
            if type(header[name]) is not bool:
                raise ValueError(f"{name} is {header[name]!r:.80}")
        return cls(
            clone(model), common, points, weights, seconds, eps=eps, method=header["method"],
            complete=header["complete"], certified=header["certified"], at_rest=at_rest,
        )


def _scorer(scoring):
    """scorer(estimator, X, y, **options)."""
    if scoring is None:
        return lambda estimator, X, y, **options: estimator.score(X, y, **options)
    return get_scorer(scoring) if isinstance(scoring, str) else scoring


# ---------------------------------------------------------------------- cross-validation


def _has(method):
    def check(search):
        getattr(getattr(search, "best_estimator_", search.estimator), method)
        return True

    return check


class RegularizationPathCV(MetaEstimatorMixin, BaseEstimator):
    """The alpha of best cross-validated score, from one path for each fold.

    Each fold's path has weights for every alpha, so that folds are compared at the same alphas, all
    breakpoints of all paths, though each path chose its own.

    Parameters
    ----------
    estimator : estimator
        Unfitted, one of fastm4n's.
    eps, kappa, alpha_min, alpha_max, method, alphas
        As in :func:`regularization_path`.
    cv : int, splitter or iterable, default=None
        How the data are split, as in `sklearn.model_selection.GridSearchCV`: five folds by default,
        stratified for classifiers.
    scoring : str or callable, default=None
        A scorer of scikit-learn's; the estimator's `score` by default.
    one_standard_error : bool, default=False
        Whether `best_estimator_` takes `alpha_1se_`, for the simplest model that is as good as the
        best up to the error of the comparison, or `alpha_`.
    n_jobs : int, default=None
        Paths computed at a time, by joblib. The result does not depend on it.
    verbose : int, default=0
        Passed on to :func:`regularization_path` for the path of all data.

    Attributes
    ----------
    path_ : RegularizationPath
        Of all data.
    alphas_ : ndarray of shape (n_alphas,)
        All breakpoints of all paths, decreasing.
    scores_ : ndarray of shape (n_alphas, n_folds)
        Of each fold's path on the data that it was not given.
    mean_score_, std_score_ : ndarray of shape (n_alphas,)
        Over the folds.
    alpha_ : float
        The one of best mean score, the largest of several.
    alpha_1se_ : float
        The largest alpha whose mean score is no more than one standard error below the best, the
        standard error being that of the best one's mean.
    best_score_ : float
        Mean score at `alpha_`.
    best_estimator_ : estimator
        `path_` at `alpha_`, or at `alpha_1se_`.
    n_splits_ : int

    See Also
    --------
    regularization_path : One path.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, RegularizationPathCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = RegularizationPathCV(MulticlassClassifier(random_state=0), cv=3).fit(X, y)
    >>> bool(search.best_score_ > 0.9), bool(search.alpha_1se_ >= search.alpha_)
    (True, True)
    """

    def __init__(
        self,
        estimator,
        *,
        eps=0.1,
        kappa=None,
        alpha_min=None,
        alpha_max=None,
        method="certified",
        alphas=None,
        cv=None,
        scoring=None,
        one_standard_error=False,
        n_jobs=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.eps = eps
        self.kappa = kappa
        self.alpha_min = alpha_min
        self.alpha_max = alpha_max
        self.method = method
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.input_tags = inner.input_tags
        tags.target_tags = inner.target_tags
        return tags

    def fit(self, X, y, sample_weight=None, *, groups=None):
        """Compute the paths of all data and of all folds, and choose alpha.

        Parameters
        ----------
        X, y : as the estimator's `fit` takes them
            Sequences as a list or as `Sequences`.
        sample_weight : array-like of shape (n_examples,), default=None
            Weights of the examples, in paths and, without `scoring`, in scores.
        groups : array-like of shape (n_examples,), default=None
            For splitters that keep groups together.

        Returns
        -------
        self : object
        """
        if not isinstance(self.one_standard_error, (bool, np.bool_)):
            raise ValueError(
                f"one_standard_error must be True or False, got {self.one_standard_error!r}."
            )
        options = dict(
            eps=self.eps, kappa=self.kappa, alpha_min=self.alpha_min, alpha_max=self.alpha_max,
            method=self.method, alphas=self.alphas,
        )
        splitter = check_cv(
            5 if self.cv is None else self.cv, y, classifier=is_classifier(self.estimator)
        )
        splits = list(splitter.split(X, y, groups))
        weights = None if sample_weight is None else np.asarray(sample_weight)
        parallel = Parallel(n_jobs=self.n_jobs)
        whole, *folds = parallel(
            delayed(_fold_path)(self.estimator, X, y, weights, train, options, verbose)
            for train, verbose in [(None, self.verbose), *((train, 0) for train, _ in splits)]
        )
        alphas = np.unique(np.concatenate([path.alphas for path in (whole, *folds)]))[::-1]
        scores = parallel(
            delayed(_fold_scores)(path, self.estimator, X, y, weights, split, alphas, self.scoring)
            for path, split in zip(folds, splits)
        )
        self.path_ = whole
        self.alphas_ = alphas
        self.scores_ = np.stack(scores, axis=1)
        self.mean_score_ = self.scores_.mean(axis=1)
        self.std_score_ = self.scores_.std(axis=1)
        self.n_splits_ = len(splits)
        best = int(np.argmax(self.mean_score_))
        error = self.scores_[best].std(ddof=1) / np.sqrt(len(splits)) if len(splits) > 1 else 0.0
        enough = np.flatnonzero(self.mean_score_ >= self.mean_score_[best] - error)
        self.alpha_, self.alpha_1se_ = float(alphas[best]), float(alphas[enough[0]])
        self.best_score_ = float(self.mean_score_[best])
        self.best_estimator_ = whole.estimator(
            self.alpha_1se_ if self.one_standard_error else self.alpha_
        )
        if hasattr(self.best_estimator_, "n_features_in_"):
            self.n_features_in_ = self.best_estimator_.n_features_in_
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    @property
    def classes_(self):
        return self.best_estimator_.classes_

    def predict(self, X, **options):
        """`predict` of `best_estimator_`."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X, **options)

    def score(self, X, y, **options):
        """The scorer of `scoring` on `best_estimator_`."""
        check_is_fitted(self)
        return _scorer(self.scoring)(self.best_estimator_, X, y, **options)

    @available_if(_has("decision_function"))
    def decision_function(self, X, **options):
        """`decision_function` of `best_estimator_`."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X, **options)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X, **options):
        """`predict_proba` of `best_estimator_`."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X, **options)

    @available_if(_has("predict_marginals"))
    def predict_marginals(self, X, **options):
        """`predict_marginals` of `best_estimator_`."""
        check_is_fitted(self)
        return self.best_estimator_.predict_marginals(X, **options)


def _fold_path(estimator, X, y, weights, train, options, verbose):
    """The path of a fold's training data, or of all data where train is None."""
    if train is not None:
        X, y = _safe_split(estimator, X, y, train)
        weights = None if weights is None else weights[train]
    return regularization_path(
        estimator, X, y, sample_weight=weights, verbose=verbose, **options
    )


def _fold_scores(path, estimator, X, y, weights, split, alphas, scoring):
    """Scores of a fold's path on the data that are not its own."""
    train, test = split
    X, y = _safe_split(estimator, X, y, test, train)
    options = {}
    if weights is not None and scoring is None:
        options["sample_weight"] = weights[test]
    return path.score(X, y, alphas=alphas, scoring=scoring, **options)
