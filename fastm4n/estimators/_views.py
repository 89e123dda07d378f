"""Fitted arrays that are views of packed weights, as long as nobody has set others."""

import numpy as np
from scipy import sparse

# what `coef_` and its like are views of
PACKED = "_packed", "_packed_edges"


class PackedWeights:
    """Base of estimators whose fitted weights are views of the rows that compiled loops read."""

    def _repacked(self):
        """Fitted weights that are views again, and what they are views of.

        None if they cannot be: parameters were set after the fit.
        """
        raise NotImplementedError

    def __getstate__(self):
        state = super().__getstate__()
        for name in PACKED:  # coef_ and its like hold the same numbers
            state.pop(name, None)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if hasattr(self, "coef_"):
            coef = self.coef_
            self.__dict__.update(self._repacked() or {})
            if sparse.issparse(coef):
                self.coef_ = coef


def is_same_view(array, view):
    """Whether both are the same numbers at the same place."""
    return (
        isinstance(array, np.ndarray) and array.dtype == view.dtype
        and array.__array_interface__["data"] == view.__array_interface__["data"]
        and array.shape == view.shape and array.strides == view.strides
    )
