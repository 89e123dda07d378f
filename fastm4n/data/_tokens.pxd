""""""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

cdef extern from "Python.h":
    ctypedef struct PyObject


cdef struct Record:
    # a name: this, its UTF-8, and zeros up to a multiple of 8 bytes
    int number
    uint32_t length


cdef struct Entry:
    size_t at       # its record, in words
    uint32_t tag
    int number      # -1 if it has none
    double weight


cdef void* grown(void* memory, size_t n_bytes) except NULL


cdef inline size_t n_words(size_t length) noexcept nogil:
    """Words of a record whose UTF-8 has so many bytes."""
    return 1 + (length + 7) // 8


cdef class Scratch:
    cdef uint64_t* words
    cdef size_t room        # words there are
    cdef size_t used        # words of the records that are complete
    cdef size_t end         # bytes, up to the end of the record that is being made
    cdef Entry* entries
    cdef size_t n_entries, entries_room

    cdef int begin(self) except -1
    cdef int put(self, PyObject* text) except -1
    cdef int put_bytes(self, const char* text, size_t length) except -1
    cdef int finish(self, double weight) except -1
    cdef int reserve(self, size_t n_bytes) except -1
    cdef int put_other(self, PyObject* text) except -1
    cdef void clear(self) noexcept


cdef class Names:
    cdef uint64_t* text
    cdef size_t n_words, room
    cdef uint64_t* slots    # tag, and one more than where the record is; 0 is free
    cdef int log_slots
    cdef readonly Py_ssize_t n_names

    cdef void find_all(self, Scratch scratch) noexcept nogil
    cdef int add_all(self, Scratch scratch) except -1
    cdef Py_ssize_t place(self, const uint64_t* record, uint32_t tag) noexcept nogil
    cdef int add(self, const uint64_t* record, uint32_t tag) except -1
    cdef int rehash(self, int log_slots) except -1
    cdef void fetch(self, Scratch scratch) noexcept nogil
    cdef int refill(self) except -1
    cdef int trim(self) except -1
