"""The inputs: scores of a block, updates of w, norms."""

from fastm4n.features._linear import LinearFeatures
from fastm4n.features._rows import row_norms

__all__ = ["LinearFeatures", "row_norms"]
