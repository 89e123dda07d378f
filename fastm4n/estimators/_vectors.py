"""Base of estimators with one vector x an example: linear weights or a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.checks import is_flag, is_number
from fastm4n.estimators._base import CertifiedEstimator
from fastm4n.tasks.kernels import check_kernel

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import CSR, Array, FloatArray


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
