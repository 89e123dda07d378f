"""Hashes of rows, by which repeated examples are found."""

from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look
from fastm4n.features._indices cimport check_within, index_t
from fastm4n.inference._chain cimport real


cdef inline unsigned long long scrambled(double value) noexcept nogil:
    """The bits of a value, each of which depends on all; those of zero, and of -0.0, are zero."""
    cdef unsigned long long bits
    value += 0.0
    memcpy(&bits, &value, sizeof(double))
    bits = (bits ^ (bits >> 32)) * 0xD6E8FEB86659FD93ULL
    return bits ^ (bits >> 29)


def hash_dense(
    const real[:, ::1] X, const unsigned long long[::1] constants, unsigned long long[::1] out
):
    """out[i] = sum_j scrambled(X[i, j]) * constants[j], modulo 2**64.

    Values are hashed as float64, whatever their type. O(n d).

    Parameters
    ----------
    X : C-ordered ndarray of shape (n, d), float32 or float64
    constants : ndarray of uint64 of shape (d,)
        Odd.
    out : ndarray of uint64 of shape (n,)
    """
    cdef Py_ssize_t i, j
    cdef unsigned long long found
    with nogil:
        for i in range(X.shape[0]):
            if i % 256 == 0:
                look()
            found = 0
            for j in range(X.shape[1]):
                found += scrambled(X[i, j]) * constants[j]
            out[i] = found


def hash_csr(
    const real[::1] data, const index_t[::1] indices, const long long[::1] indptr,
    const unsigned long long[::1] constants, unsigned long long[::1] out
):
    """`hash_dense` for the rows of a CSR matrix; explicit zeros do not count. O(nnz).

    Parameters
    ----------
    data : ndarray of float32 or float64
    indices : ndarray of int32 or int64
        Of columns, each below the length of `constants`.
    indptr : ndarray of int64 of shape (n + 1,)
    constants, out : as in `hash_dense`

    Raises
    ------
    IndexError
        A column, or an end of a row, is outside of the matrix.
    """
    cdef Py_ssize_t i, k
    cdef unsigned long long found
    check_within(indices, constants.shape[0])
    check_within(indptr, min(data.shape[0], indices.shape[0]) + 1)
    with nogil:
        for i in range(out.shape[0]):
            if i % 256 == 0:
                look()
            found = 0
            for k in range(indptr[i], indptr[i + 1]):
                found += scrambled(data[k]) * constants[indices[k]]
            out[i] = found
