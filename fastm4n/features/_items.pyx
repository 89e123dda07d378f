"""Features of items at positions.

A block is one row x. The inner map has scores u = w' Phi(x), a row of P positions for each feature
of the items, and an item with the features z_i scores

    v_ip = sum_f z_if u_fp,    v_iP = 0 for a further position P, where blocks have one,

so that Phi_b d = Phi(x) (Z' d)'. Without features of items u has a row for each item, and v = u.
"""

import numpy as np

from libc.string cimport memcpy, memset

from fastm4n.features._base cimport FeatureMap, thread_number
from fastm4n.features._wrapped cimport WrappedFeatures
from fastm4n.outputs._base cimport Layout


cdef class ItemFeatures(WrappedFeatures):
    """Scores of items by features of their own, or of the first positions only.

    A visit takes O(n_items n_item_features n_positions) time besides that of the inner map.

    Parameters
    ----------
    inner : FeatureMap
        Scores of the items' features at the positions, linear or of a kernel.
    layout : Layout
        A row for each item, of n_positions numbers, or of one more. All blocks are alike.
    n_positions : int
    Z : C-ordered float64 ndarray of shape (n_items, n_item_features) or None
        Features of the items. None: the inner map has the scores of the items themselves.
    """

    cdef Layout layout
    cdef object Z
    cdef const double[:, ::1] features
    # items, features of each, positions, and numbers of an item's row
    cdef Py_ssize_t n_items, n_features_of_items, n_positions, row

    def __init__(self, FeatureMap inner, Layout layout, Py_ssize_t n_positions, Z):
        super().__init__(layout.n_blocks, layout.max_size)
        self.wrap(inner)
        self.layout, self.Z = layout, Z
        self.n_items, self.n_positions = layout.max_parts, n_positions
        self.row = layout.n_labels
        self.n_features_of_items = self.n_items if Z is None else Z.shape[1]
        if (
            inner.n_blocks != layout.n_blocks or not 0 <= self.row - n_positions <= 1
            or np.any(layout.counts() != self.n_items) or np.any(layout.rows() != self.row)
            or inner.n_labels != self.n_features_of_items * n_positions
            or (Z is not None and Z.shape[0] != self.n_items)
        ):
            raise ValueError("layout does not fit the items and positions.")
        if Z is not None:
            self.features = Z
        self.visit_cost = inner.visit_cost + 4.0 * n_positions * self.n_items * (
            1 if Z is None else self.n_features_of_items)

    def arguments(self):
        return self.inner, self.layout, self.n_positions, self.Z

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t i, f, p, P = self.n_positions, number = thread_number()
        cdef Py_ssize_t n_bytes = P * sizeof(double)
        cdef double z
        cdef const double* u = &self.gathered[number, 0]
        cdef double* to = &v[0]
        self.inner.scores(b, self.gathered[number])
        memset(to, 0, self.size * sizeof(double))
        for i in range(self.n_items):
            if self.Z is None:
                memcpy(to, u + i * P, n_bytes)
            else:
                for f in range(self.n_features_of_items):
                    z = self.features[i, f]
                    if z != 0.0:
                        for p in range(P):
                            to[p] += z * u[f * P + p]
            to += self.row
        self.add_base(b, &v[0])
        return 0

    cdef void gather(self, const double* numbers) noexcept nogil:
        cdef Py_ssize_t i, f, p, P = self.n_positions
        cdef Py_ssize_t n_bytes = P * sizeof(double)
        cdef double z
        cdef bint is_zero
        cdef double* to = &self.gathered[thread_number(), 0]
        if self.Z is None:
            for i in range(self.n_items):
                memcpy(to + i * P, numbers + i * self.row, n_bytes)
        else:
            memset(to, 0, self.n_features_of_items * n_bytes)
            for i in range(self.n_items):
                # steps move few items
                is_zero = True
                for p in range(P):
                    is_zero = is_zero and numbers[p] == 0.0
                for f in range(0 if is_zero else self.n_features_of_items):
                    z = self.features[i, f]
                    if z != 0.0:
                        for p in range(P):
                            to[f * P + p] += z * numbers[p]
                numbers += self.row
        for p in range(self.inner.n_labels, self.inner.size):
            to[p] = 0.0

    def held(self):
        return self.inner.held()
