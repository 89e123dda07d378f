"""Pickles with the version that made them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sklearn.exceptions import InconsistentVersionWarning

from fastm4n.base._version import __version__

if TYPE_CHECKING:
    from typing import Any

_KEY = "_fastm4n_version"


class OtherVersionWarning(InconsistentVersionWarning):
    """A pickle is of another version of fastm4n. Filters of scikit-learn's warning apply to it."""

    def __str__(self) -> str:
        return (
            f"This {self.estimator_name} was pickled by fastm4n {self.original_sklearn_version} "
            f"and is unpickled by fastm4n {self.current_sklearn_version}: predictions may be wrong "
            "or fail. Fit again, or use files of save_model, which later versions read.")


class Versioned:
    """Mixin of classes whose pickles have a version. Others than this one warn."""

    def __getstate__(self) -> dict[str, Any]:
        # a new dict, as the state may be the object's own
        return {**super().__getstate__(), _KEY: __version__}

    def __setstate__(self, state: dict[str, Any]) -> None:
        found = state.get(_KEY, "of unknown version")
        if found != __version__:
            warnings.warn(OtherVersionWarning(
                estimator_name=type(self).__name__, current_sklearn_version=__version__,
                original_sklearn_version=found), stacklevel=2)
        state = {name: value for name, value in state.items() if name != _KEY}
        getattr(super(), "__setstate__", self.__dict__.update)(state)
