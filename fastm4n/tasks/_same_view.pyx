"""Whether two arrays are the same numbers at the same place, asked at every prediction."""

import numpy as np

from cpython.buffer cimport (
    PyBUF_RECORDS_RO, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.string cimport strcmp


def is_same_view(array, view):
    """Whether both are the same numbers at the same place, arrays of numbers alone being so."""
    cdef Py_buffer a, b
    cdef int k
    cdef bint same
    if array is view:
        return True
    if not isinstance(array, np.ndarray) or array.dtype != view.dtype:
        return False
    PyObject_GetBuffer(array, &a, PyBUF_RECORDS_RO)
    try:
        PyObject_GetBuffer(view, &b, PyBUF_RECORDS_RO)
        same = a.buf == b.buf and a.ndim == b.ndim and strcmp(a.format, b.format) == 0
        if same:
            for k in range(a.ndim):
                same = same and a.shape[k] == b.shape[k] and a.strides[k] == b.strides[k]
        PyBuffer_Release(&b)
    finally:
        PyBuffer_Release(&a)
    return same
