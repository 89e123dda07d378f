"""Base of estimators with one vector x an example: linear weights or a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import is_flag, is_number
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.estimators._base import CertifiedEstimator
from fastm4n.tasks.kernels import add_expansion, check_kernel
from fastm4n.tasks.vectors import validated

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import CSR, Array, FloatArray

# examples for each that has coefficients, from which on columns of a kernel are worth copying
MANY_ZEROS = 8


class VectorEstimator(CertifiedEstimator):
    """Base of the estimators whose outputs have a fixed number of scores, linear in Phi(x)."""

    dual_coef_: FloatArray
    X_fit_: Array | CSR
    feature_names_in_: Array

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
        value = 1.0 if isinstance(given, str) else float(given)
        if value * value / self.alpha == np.inf:
            raise ValueError(
                f"fit_intercept={value:g} is too large: its square divided by "
                f"alpha={self.alpha:g} overflows."
            )

    # ---------------------------------------------------------------------- predict

    def _scores(self, X):
        """All scores, (n_samples, n_scores)."""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
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
