"""What estimators of one vector x an example share: linear weights or a kernel, and the fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted, validate_data

from fastm4n.base.checks import is_flag, is_number
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.data._sequences import check_compressed
from fastm4n.data.disk._rows import Rows
from fastm4n.estimators._base import CertifiedEstimator
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.penalties._penalties import resolve_penalty
from fastm4n.tasks.kernels import (
    add_expansion,
    check_kernel,
    kernel_features,
    kernel_parameters,
    named_kernel,
)
from fastm4n.tasks.merge import merge_examples
from fastm4n.tasks.parameters import canonical, frozen_copy, is_frozen
from fastm4n.tasks.places import check_listed, placed
from fastm4n.tasks.problem import Blocks, Problem

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import CSR, Array, FloatArray
    from fastm4n.solvers.base import Solution

# examples for each that has coefficients, from which on columns of a kernel are worth copying
MANY_ZEROS = 8


@dataclass
class VectorProblem(Problem):
    """The problem of an estimator of vectors.

    Attributes
    ----------
    free_intercept : float, default=None
        The value of the constant feature where the intercept is not penalised.
    centre : ndarray of shape (n_features,), default=None
        What has been taken from all rows of X.
    """

    free_intercept: float = None
    centre: np.ndarray = None

    def fitted(
        self, mu: FloatArray, alpha: float, intercepts: FloatArray | None = None,
    ) -> dict[str, FloatArray]:
        if intercepts is None:
            intercepts = self.features.constant_scores()
        if "_kernel_parameters" not in self.common:
            coef = self.features.coef()
            if self.centre is not None:
                intercepts = intercepts - coef @ self.centre
            return {"intercept_": intercepts, "coef_": coef}
        blocks = self.blocks
        beta = self._scored(self.loss.outputs.truth() - mu)
        beta = beta * (blocks.weights / alpha)[:, np.newaxis]
        return {"intercept_": intercepts, "dual_coef_": blocks.spread(beta)}

    def fitted_by(self, solution: Solution, alpha: float) -> dict[str, FloatArray]:
        if solution.intercepts is None:
            return self.fitted(solution.mu, alpha)
        return self.fitted(solution.mu, alpha, solution.intercepts)

    def _scored(self, numbers):
        """Of the numbers of all blocks those whose scores depend on x, a row for each block."""
        return numbers.reshape(self.weights.size, -1)


class VectorEstimator(CertifiedEstimator):
    """Base of the estimators whose outputs have a fixed number of scores, linear in Phi(x)."""

    dual_coef_: FloatArray
    X_fit_: Array | CSR
    feature_names_in_: Array

    _problem_class = VectorProblem
    # whether the intercept may be without a penalty
    _free_intercepts = False

    _replaced = ("coef_", "dual_coef_", "X_fit_", "_kernel_parameters")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    # ------------------------------------------------------------------- validation

    def _check_vector_parameters(self):
        check_kernel(self)
        self._check_penalty_kernel()
        given, free = self.fit_intercept, self._free_intercepts
        known = is_flag(given) or isinstance(given, str) and given == "free" and free
        if not known and not is_number(given, low=0):
            free = "'free' " if free else ""
            raise ValueError(
                f"fit_intercept must be True, False, {free}or a number > 0, "
                f"the value of the constant feature; got {given!r}."
            )
        # in float arithmetic, which overflows to inf where ** raises
        value = self._constant()
        if value * value / self.alpha == np.inf:
            raise ValueError(
                f"fit_intercept={value:g} is too large: its square divided by "
                f"alpha={self.alpha:g} overflows."
            )

    def _constant(self):
        """Value of the constant feature whose weight is the intercept; 0 where there is none."""
        return 1.0 if self._has_free_intercept() else float(self.fit_intercept)

    def _validated(self, X, *y, reset=True):
        """X, canonical, and y where it is given, as `validate_data` makes them for the kernel."""
        X = X.values if isinstance(X, Rows) else X
        check_compressed("X", X)
        if y:
            check_listed(*y)
        try:
            found = validate_data(
                self, X, *y, accept_sparse="csr" if self.kernel != "precomputed" else False,
                dtype=[np.float64, np.float32], order="C", reset=reset,
            )
        except ValueError as error:
            raise placed(error, self, X, *y) from None
        # kernels of scikit-learn take entries in parts for entries of their own
        rows = canonical(found[0] if y else found, long_indices=self.kernel == "linear")
        return (rows, *found[1:]) if y else rows

    def _shared(self, X):
        X = self._validated(X)
        if self.kernel in ("linear", "precomputed"):
            return X
        return frozen_copy(X)  # the one that the fitted estimators keep

    def _check_square(self, X):
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' needs a square X, one row and column per sample, got "
                f"shape {X.shape}."
            )

    # -------------------------------------------------------------------------- fit

    def _has_free_intercept(self):
        """Whether the intercept is not penalised."""
        return isinstance(self.fit_intercept, str)

    def _coef_shape(self, n_scores, n_features):
        """Shape of coef_."""
        return n_scores, n_features

    def _penalise(self, features):
        """Give a linear map the penalty of its weights."""
        R, d = features.n_labels, features.n_features
        families = {"coef": self._coef_shape(R, d)}
        missing = {}
        if self._has_free_intercept():
            missing["intercept"] = "which fit_intercept='free' leaves out of the penalty"
        elif self.fit_intercept:
            families["intercept"] = (R,)
        else:
            missing["intercept"] = "weights that this model has not: see fit_intercept"
        resolved = resolve_penalty(self.penalty, families, missing)
        if resolved is not None:
            features.set_penalty(resolved.of_rows(
                (d + 1, features.stride), d,
                lambda packed: {"coef": packed[:d, :R].T, "intercept": packed[d, :R]}))

    def _n_scores(self, layout):
        """Scores of a block that depend on x."""
        return layout.max_size

    def _arranged(self, features, layout, common):
        """A map of those scores, as one of all that the layout has."""
        return features

    def _features(self, X, samples, p, n_labels):
        """Feature map over X[samples], the kernel's arguments, the constant feature's value."""
        intercept = self._constant()
        if self.kernel == "linear":
            norms = row_norms(X, 0.0)[samples]
        elif self.kernel == "precomputed":
            norms = np.diagonal(X)[samples]
        else:
            norms = np.ones(samples.size)  # most kernels are normed
        if self._has_free_intercept():
            # proximal steps as long as the features are
            with np.errstate(over="ignore", invalid="ignore"):
                intercept *= np.sqrt(np.maximum(1.0, np.sum(p * norms)))
        if self.kernel == "linear":
            norms = norms + intercept**2
            with np.errstate(over="ignore"):
                large = samples[~np.isfinite(norms / self.alpha)]
            if large.size:
                row = int(large.min())
                raise ValueError(
                    f"X has values too large for float64: the squared norm of row {row} divided "
                    f"by alpha={self.alpha:g} overflows. Scale the features, for example with "
                    "StandardScaler."
                )
            return LinearFeatures(X, samples, norms, n_labels, intercept), {}, intercept
        if self.kernel == "precomputed":
            whole = np.array_equal(samples, np.arange(X.shape[0]))
            points, parameters = X if whole else X[np.ix_(samples, samples)], {}
        else:
            points = X[samples]
            parameters = kernel_parameters(
                self.kernel, points, p, gamma=self.gamma,
                kernel_params=self.kernel_params,
            )
        features = kernel_features(
            self.kernel, parameters, points, n_labels, intercept, self.alpha, self.cache_size,
            self.tol)
        return features, parameters, intercept

    def _blocks(self, X, kept, keys, weights):
        """Blocks of the samples kept, merged where X and keys are equal.

        A Gram matrix tells nothing of which samples are.
        """
        if self.kernel == "precomputed":
            every = np.arange(kept.size)
            merged = every, weights, every
        else:
            merged = merge_examples(X, keys, weights, None if kept.size == X.shape[0] else kept)
        return Blocks.of(X.shape[0], kept, weights, *merged)

    def _vector_problem(self, X, blocks, loss, common, task):
        """The problem of a fit.

        Parameters
        ----------
        X : canonical features of all samples, or their Gram matrix
        blocks : Blocks
        loss : Surrogate
            Over the outputs of the blocks.
        common, task : dict
            As in `Problem`, of the outputs.
        """
        samples, p = blocks.examples, blocks.weights
        centre = None
        if self._has_free_intercept() and self.kernel == "linear" and not sparse.issparse(X):
            # a free intercept takes up any shift of the features, and the solver has an
            # easier time without one
            centre = np.sum(p[:, np.newaxis] * X[samples], axis=0)
        features, parameters, intercept = self._features(
            X if centre is None else X - centre, samples, p, self._n_scores(loss.outputs.layout))
        features = self._arranged(features, loss.outputs.layout, common)
        if self.kernel == "linear":
            self._penalise(features)
        else:
            common = {**common, "_kernel_parameters": parameters}
            if self.kernel != "precomputed":
                # the caller may go on to change what is theirs
                common["X_fit_"] = X if is_frozen(X) else X.copy()
        free = intercept if self._has_free_intercept() else None
        return self._problem_class(loss, features, blocks, common, task, free, centre)

    def _naming(self, problem):
        return named_kernel(self.kernel)

    # ---------------------------------------------------------------------- predict

    def _scores(self, X):
        """All scores, (n_samples, n_scores)."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        intercept = np.ravel(self.intercept_)
        refuse_beyond_memory(
            f"the scores of {X.shape[0]} samples, {intercept.size} each,",
            8 * X.shape[0] * intercept.size, "predict fewer samples at a time")
        if hasattr(self, "coef_"):
            scores = X @ self.coef_.reshape(intercept.size, -1).T
            return np.asarray(scores, dtype=np.float64) + intercept
        beta = self.dual_coef_.reshape(-1, intercept.size)
        support = np.flatnonzero(beta.any(axis=1))
        if self.kernel == "precomputed":
            # a copy of columns takes longer than products with zeros, unless nearly all are zero
            is_sparse = MANY_ZEROS * support.size < beta.shape[0]
            return (X[:, support] @ beta[support] if is_sparse else X @ beta) + intercept
        beta = beta[support]
        scores = np.tile(intercept, (X.shape[0], 1))
        return add_expansion(self, X, self.X_fit_[support], beta, scores)
