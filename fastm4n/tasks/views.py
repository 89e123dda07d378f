"""Fitted arrays that are views of packed weights, as long as nobody has set others."""

from __future__ import annotations

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
        # coef_ and its like hold the same numbers; a new dict, as the state may be the object's own
        return {
            name: value for name, value in super().__getstate__().items() if name not in PACKED}

    def __setstate__(self, state):
        super().__setstate__(state)
        if hasattr(self, "coef_"):
            self.__dict__.update(self._repacked() or {})
