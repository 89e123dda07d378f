"""Fitted arrays that are views of packed weights, as long as nobody has set others."""

import numpy as np


def is_same_view(array, view):
    """Whether both are the same numbers at the same place."""
    return (
        isinstance(array, np.ndarray) and array.dtype == view.dtype
        and array.__array_interface__["data"] == view.__array_interface__["data"]
        and array.shape == view.shape and array.strides == view.strides
    )
