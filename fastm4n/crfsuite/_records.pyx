"""Weights of a model file of CRFsuite in one pass, where they lie as CRFsuite writes them."""

import sys

import numpy as np

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

cdef bint NOT_LITTLE = sys.byteorder != "little"
cdef enum:
    # bytes of a weight: its kind, source and target in 32 bits each, and a double
    WEIGHT = 20
    # words before the places in a chunk of references
    BEFORE_PLACES = 3


cdef inline uint32_t word_at(const uint8_t* at) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, at, sizeof(word))
    return word


cdef bint are_in_order(
        const uint8_t[::1] chunk, const int32_t[::1] starts, size_t offset,
        uint32_t first) noexcept nogil:
    """Whether items refer to the weights of their own, in order, of which `first` is the first.

    Item i has those from ``starts[i]`` to ``starts[i + 1] - 1``.
    """
    cdef size_t n_words = chunk.shape[0] // 4, n = starts.shape[0] - 1, i, at, end
    cdef uint32_t place, count
    if BEFORE_PLACES + n > n_words:
        return False
    for i in range(n):
        place = word_at(&chunk[4 * (BEFORE_PLACES + i)]) - <uint32_t> offset
        count = <uint32_t> (starts[i + 1] - starts[i])
        at = place // 4
        if place % 4 or at < BEFORE_PLACES or at >= n_words or count > n_words - 1 - at:
            return False
        if word_at(&chunk[4 * at]) != count:
            return False
        end = at + 1 + count
        for at in range(at + 1, end):
            if word_at(&chunk[4 * at]) != first:
                return False
            first += 1
    return True


def weights_of_records(
        const uint8_t[::1] records, references, Py_ssize_t n_attributes, Py_ssize_t n_labels):
    """The weights of a `CRFsuiteModel`, or None unless they are valid and in their usual form.

    Usually those of attributes come first, both kinds are sorted by source and target, and all that
    refers to them is in the same order.

    Parameters
    ----------
    records : uint8 array
        The weights.
    references : list of tuple
        The chunks of references of attributes and of labels, each bytes and their place in the
        file.
    n_attributes, n_labels : int
    """
    cdef Py_ssize_t i, n = records.shape[0] // WEIGHT, n_state = n
    cdef int64_t key, before = -1
    cdef uint32_t[3] head
    cdef uint32_t kind = 0
    cdef size_t place
    cdef double weight
    cdef const uint8_t[::1] chunk
    if NOT_LITTLE:
        return None
    starts_of_attributes = np.zeros(n_attributes + 1, dtype=np.int32)
    starts_of_labels = np.zeros(n_labels + 1, dtype=np.int32)
    all_sources, all_targets = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.uint16)
    all_weights = np.empty(n)
    cdef int32_t[::1] counts = starts_of_attributes, sources = all_sources
    cdef uint16_t[::1] targets = all_targets
    cdef double[::1] weights = all_weights
    for i in range(n):
        memcpy(head, &records[WEIGHT * i], sizeof(head))
        memcpy(&weight, &records[WEIGHT * i + sizeof(head)], sizeof(weight))
        if head[0] != kind:
            if head[0] != 1:
                return None
            counts, kind, n_state, before = starts_of_labels, 1, i, -1
        key = head[1] * <int64_t> n_labels + head[2]
        if head[1] + 1 >= <size_t> counts.shape[0] or head[2] >= <size_t> n_labels or (
                key <= before or not isfinite(weight)):
            return None
        before = key
        counts[head[1] + 1] += 1
        sources[i], targets[i], weights[i] = <int32_t> head[1], <uint16_t> head[2], weight
    for of_items, (of, offset), first in zip(
            (starts_of_attributes, starts_of_labels), references, (0, n_state), strict=True):
        counts, chunk, place = of_items, of, offset
        for i in range(1, counts.shape[0]):
            counts[i] += counts[i - 1]
        if not are_in_order(chunk, counts, place, first):
            return None
    return (
        starts_of_attributes, all_targets[:n_state], all_weights[:n_state],
        all_sources[n_state:], all_targets[n_state:], all_weights[n_state:])
