# cython: binding=False
"""Names and tokens of attribute data.

One module: readers of files and of objects fill the same scratch, one token at a time.
"""

import math
import sys
from array import array
from numbers import Real

import numpy as np
import scipy.sparse as sp

cimport cython
from cpython cimport array as arrays
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memmove, memset

from fastm4n.base.interrupts cimport look

from fastm4n.data._sequences import Sequences


# Distinct strings and their numbers: a hash table of UTF-8, without an object for each string.
#
# A string and what is to be found are records of the same form, so that neither hashing nor
# comparing asks where characters came from: Python's strings, pieces of them, or bytes of a file.
# All records lie in one buffer, in the order in which they came; those that come often come early,
# and so lie together. A slot has 32 bits of the hash and the place of the record: what a search
# reads are the slot's cache line and the record's, and those of many searches are asked for ahead.

cdef extern from "Python.h":
    ctypedef struct PyObject
    int PyUnicode_IS_ASCII(PyObject*) nogil
    int PyUnicode_KIND(PyObject*) nogil
    void* PyUnicode_DATA(PyObject*) nogil
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*) nogil


cdef extern from "loops.h":
    void fastm4n_prefetch(const void*) nogil


cdef struct Record:
    # a name: this, its UTF-8, and zeros up to a multiple of 8 bytes
    int number
    uint32_t length


cdef struct Entry:
    size_t at       # its record, in words
    uint32_t tag
    int number      # -1 if it has none
    double weight


cdef enum:
    # slots, as a power of 2, of a table without names
    FIRST_SLOTS = 6
    # words, and entries, of a scratch
    FIRST_WORDS = 2048
    FIRST_ENTRIES = 512
    # so few strings are sorted one by one
    FEW = 12
    # attributes, or tokens, that are searched for at once: what they take stays in a cache
    AT_ONCE = 256

# places of records in slots have 32 bits
cdef uint64_t MOST_WORDS = 0xFFFFFFFE
cdef size_t MOST_BYTES = 0x7FFFFFF0
# odd, with bits everywhere: 2^64 over the golden ratio
cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15
# a bit of each byte, the lowest and the highest
cdef uint64_t ONES = 0x0101010101010101, HIGHS = 0x8080808080808080
cdef bint NOT_LITTLE = sys.byteorder != "little"
# differs from process to process, as Python's own: nobody can make strings that meet in one slot
cdef uint64_t SEED = (<uint64_t> <Py_ssize_t> hash("fastm4n")) | 1


cdef inline uint32_t tag_of(const uint64_t* record) noexcept nogil:
    """32 bits of the hash of a record, whose upper bits are the home slot."""
    cdef uint32_t length = (<const Record*> record).length
    cdef uint64_t h = SEED ^ length
    cdef size_t i
    for i in range(1, n_words(length)):
        h = mixed(h, record[i])
    return tag_of_mixed(h)


cdef inline uint64_t mixed(uint64_t h, uint64_t word) noexcept nogil:
    h = (h ^ word) * MULTIPLIER
    return h ^ (h >> 32)


cdef inline uint32_t tag_of_mixed(uint64_t h) noexcept nogil:
    return <uint32_t> ((h * MULTIPLIER) >> 32)


cdef inline bint is_same(const uint64_t* a, const uint64_t* b) noexcept nogil:
    cdef uint32_t length = (<const Record*> a).length
    cdef size_t i
    if length != (<const Record*> b).length:
        return False
    for i in range(1, n_words(length)):
        if a[i] != b[i]:
            return False
    return True


cdef inline size_t n_words(size_t length) noexcept nogil:
    """Words of a record whose UTF-8 has so many bytes."""
    return 1 + (length + 7) // 8


cdef void* grown(void* memory, size_t n_bytes) except NULL:
    cdef void* more = PyMem_Realloc(memory, n_bytes)
    if more == NULL:
        raise MemoryError(f"no memory for {n_bytes} bytes of attributes")
    return more


@cython.final
cdef class Scratch:
    """Records that are searched for together, each with a weight.

    ``begin``, any number of ``put`` and ``finish`` make one. Nothing refers to the strings
    afterwards.
    """

    cdef uint64_t* words
    cdef size_t room        # words there are
    cdef size_t used        # words of the records that are complete
    cdef size_t end         # bytes, up to the end of the record that is being made
    cdef Entry* entries
    cdef size_t n_entries, entries_room

    def __cinit__(self):
        # what a sentence needs, at once
        self.room, self.entries_room = FIRST_WORDS, FIRST_ENTRIES
        self.words = <uint64_t*> grown(NULL, self.room * sizeof(uint64_t))
        self.entries = <Entry*> grown(NULL, self.entries_room * sizeof(Entry))

    def __dealloc__(self):
        PyMem_Free(self.words)
        PyMem_Free(self.entries)

    cdef void clear(self) noexcept:
        self.used = self.n_entries = 0

    cdef int reserve(self, size_t n_bytes) except -1:
        """Have room for so many more bytes of the record, and its end."""
        cdef size_t needed = (self.end + n_bytes) // 8 + 2
        if n_bytes > MOST_BYTES or self.end - 8 * self.used > MOST_BYTES - n_bytes:
            raise ValueError(f"an attribute is longer than {MOST_BYTES} bytes")
        if needed > self.room:
            needed += needed // 2
            self.words = <uint64_t*> grown(self.words, 8 * needed)
            self.room = needed
        return 0

    cdef int begin(self) except -1:
        self.end = 8 * (self.used + 1)
        self.reserve(0)
        return 0

    cdef int put(self, PyObject* text) except -1:
        """Append a str, or what a subclass of it holds."""
        if not PyUnicode_IS_ASCII(text):
            return self.put_other(text)
        return self.put_bytes(
            <const char*> PyUnicode_DATA(text), <size_t> PyUnicode_GET_LENGTH(text))

    cdef int put_bytes(self, const char* text, size_t length) except -1:
        self.reserve(length)
        memcpy((<char*> self.words) + self.end, text, length)
        self.end += length
        return 0

    cdef int put_other(self, PyObject* text) except -1:
        """UTF-8 of characters beyond ASCII.

        Surrogates, which UTF-8 lacks, are encoded like other characters.
        """
        cdef int kind = PyUnicode_KIND(text)
        cdef const void* data = PyUnicode_DATA(text)
        cdef size_t i, length = <size_t> PyUnicode_GET_LENGTH(text)
        cdef uint32_t c
        cdef uint8_t* out
        if length > MOST_BYTES // 4:
            raise ValueError(f"an attribute is longer than {MOST_BYTES // 4} characters")
        self.reserve(4 * length)
        out = (<uint8_t*> self.words) + self.end
        for i in range(length):
            if kind == 1:
                c = (<const uint8_t*> data)[i]
            elif kind == 2:
                c = (<const uint16_t*> data)[i]
            else:
                c = (<const uint32_t*> data)[i]
            if c < 0x80:
                out[0] = <uint8_t> c
                out += 1
            elif c < 0x800:
                out[0] = <uint8_t> (0xC0 | (c >> 6))
                out[1] = <uint8_t> (0x80 | (c & 0x3F))
                out += 2
            elif c < 0x10000:
                out[0] = <uint8_t> (0xE0 | (c >> 12))
                out[1] = <uint8_t> (0x80 | ((c >> 6) & 0x3F))
                out[2] = <uint8_t> (0x80 | (c & 0x3F))
                out += 3
            else:
                out[0] = <uint8_t> (0xF0 | (c >> 18))
                out[1] = <uint8_t> (0x80 | ((c >> 12) & 0x3F))
                out[2] = <uint8_t> (0x80 | ((c >> 6) & 0x3F))
                out[3] = <uint8_t> (0x80 | (c & 0x3F))
                out += 4
        self.end = <size_t> (out - <uint8_t*> self.words)
        return 0

    cdef int finish(self, double weight) except -1:
        cdef uint64_t* record = self.words + self.used
        cdef size_t length = self.end - 8 * (self.used + 1)
        cdef Entry* entry
        if self.n_entries == self.entries_room:
            self.entries_room += self.entries_room // 2
            self.entries = <Entry*> grown(self.entries, self.entries_room * sizeof(Entry))
        # the room that is there at the end of every record
        memset((<char*> self.words) + self.end, 0, 8)
        (<Record*> record).number = -1
        (<Record*> record).length = <uint32_t> length
        entry = self.entries + self.n_entries
        entry.at = self.used
        entry.tag = tag_of(record)
        entry.weight = weight
        self.used += n_words(length)
        self.n_entries += 1
        return 0


cdef struct Item:
    uint64_t key    # the next 8 bytes, the first of them on top
    uint32_t at


cdef inline uint64_t key_of(const uint64_t* record, size_t depth) noexcept nogil:
    """Bytes 8 depth ... 8 depth + 7 as a number that compares as they do."""
    cdef const uint8_t* b
    cdef uint64_t key = 0
    cdef int i
    if depth + 1 >= n_words((<const Record*> record).length):
        return 0
    b = <const uint8_t*> (record + depth + 1)
    for i in range(8):
        key = (key << 8) | b[i]
    return key


cdef inline bint is_before(
        const uint64_t* text, const Item* a, const Item* b, size_t depth) noexcept nogil:
    """Whether a is before b, both being the same up to 8 depth."""
    cdef uint32_t n, m
    cdef size_t skipped = 8 * (depth + 1), common
    cdef int order
    if a.key != b.key:
        return a.key < b.key
    n = (<const Record*> (text + a.at)).length
    m = (<const Record*> (text + b.at)).length
    common = min(n, m)
    if common > skipped:
        order = memcmp(
            <const char*> (text + a.at + 1) + skipped, <const char*> (text + b.at + 1) + skipped,
            common - skipped)
        if order != 0:
            return order < 0
    return n < m


cdef void insertion_sort(
        const uint64_t* text, Item* items, size_t n, size_t depth) noexcept nogil:
    cdef size_t i, j
    cdef Item item
    for i in range(1, n):
        item = items[i]
        j = i
        while j > 0 and is_before(text, &item, &items[j - 1], depth):
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


cdef void sort(
        const uint64_t* text, Item* items, size_t n, size_t depth, uint64_t* random) noexcept nogil:
    """Sort strings that agree up to byte 8 depth by their keys at this depth.

    Three-way quicksort, whose middle part goes on with the next 8 bytes (Bentley and Sedgewick
    1997, Fast algorithms for sorting and searching strings). O(n log n + distinguishing bytes) on
    average. Strings are in the order of their code points. The two smaller parts are sorted first,
    which bounds the depth of calls by log2(n).
    """
    cdef size_t low, high, i, ended
    cdef size_t sizes[3]
    cdef Item* parts[3]
    cdef size_t depths[3]
    cdef uint64_t pivot
    cdef uint64_t picked[3]
    cdef Item item
    cdef int k, largest
    while n > FEW:
        for k in range(3):
            random[0] = random[0] * MULTIPLIER + 1
            picked[k] = items[(random[0] >> 33) % n].key
        pivot = max(min(picked[0], picked[1]), min(max(picked[0], picked[1]), picked[2]))
        low, high, i = 0, n, 0
        while i < high:
            item = items[i]
            if item.key < pivot:
                items[i] = items[low]
                items[low] = item
                low += 1
                i += 1
            elif item.key > pivot:
                high -= 1
                items[i] = items[high]
                items[high] = item
            else:
                i += 1
        # strings that end here differ by how many zero bytes they end with: at most 9
        ended = low
        for i in range(low, high):
            item = items[i]
            if n_words((<const Record*> (text + item.at)).length) <= depth + 2:
                items[i] = items[ended]
                items[ended] = item
                ended += 1
        insertion_sort(text, items + low, ended - low, depth)
        for i in range(ended, high):
            items[i].key = key_of(text + items[i].at, depth + 1)
        parts[0], sizes[0], depths[0] = items, low, depth
        parts[1], sizes[1], depths[1] = items + ended, high - ended, depth + 1
        parts[2], sizes[2], depths[2] = items + high, n - high, depth
        largest = 0
        for k in range(1, 3):
            if sizes[k] > sizes[largest]:
                largest = k
        for k in range(3):
            if k != largest:
                sort(text, parts[k], sizes[k], depths[k], random)
        items, n, depth = parts[largest], sizes[largest], depths[largest]
    insertion_sort(text, items, n, depth)


@cython.final
cdef class Names:
    """Distinct strings, numbered 0, 1, ... as they come, until they are sorted.

    Parameters
    ----------
    names : iterable of str, default=()
        Their numbers are their places.
    """

    cdef uint64_t* text
    cdef size_t n_words, room
    cdef uint64_t* slots    # tag, and one more than where the record is; 0 is free
    cdef int log_slots
    cdef uint64_t bits, zeros   # upper bits of bytes that are not ASCII, and that are zero
    cdef readonly Py_ssize_t n_names

    def __cinit__(self):
        self.rehash(FIRST_SLOTS)

    def __init__(self, names=()):
        cdef Scratch scratch = Scratch()
        cdef Py_ssize_t place
        for place, name in enumerate(names):
            if not isinstance(name, str):
                raise TypeError(f"names must be strings, not {name!r:.40}")
            scratch.clear()
            scratch.begin()
            scratch.put(<PyObject*> name)
            scratch.finish(1.0)
            if self.add(scratch.words, scratch.entries[0].tag) != place:
                raise ValueError(f"the name {name!r:.80} is there twice")
        self.trim()

    def __dealloc__(self):
        PyMem_Free(self.text)
        PyMem_Free(self.slots)

    def __len__(self):
        return self.n_names

    def __sizeof__(self):
        return object.__sizeof__(self) + 8 * self.room + (<size_t> 8 << self.log_slots)

    cdef int rehash(self, int log_slots) except -1:
        """Grow to this number of slots and keep their contents."""
        cdef size_t i, at, mask = (<size_t> 1 << log_slots) - 1
        cdef size_t n = (<size_t> 1 << self.log_slots) if self.slots != NULL else 0
        cdef uint64_t* slots = <uint64_t*> PyMem_Malloc(8 * (mask + 1))
        if slots == NULL:
            raise MemoryError(f"no memory for a table of {mask + 1} attributes")
        memset(slots, 0, 8 * (mask + 1))
        for i in range(n):
            if self.slots[i]:
                at = <size_t> (self.slots[i] >> (64 - log_slots))
                while slots[at]:
                    at = (at + 1) & mask
                slots[at] = self.slots[i]
        PyMem_Free(self.slots)
        self.slots, self.log_slots = slots, log_slots
        return 0

    cdef Py_ssize_t place(self, const uint64_t* record, uint32_t tag) noexcept nogil:
        """Place of the same string in `text`, or -1 - (the free slot for it)."""
        cdef size_t mask = (<size_t> 1 << self.log_slots) - 1
        cdef size_t at = tag >> (32 - self.log_slots)
        cdef uint64_t slot
        while True:
            slot = self.slots[at]
            if slot == 0:
                return -1 - <Py_ssize_t> at
            if <uint32_t> (slot >> 32) == tag:
                if is_same(self.text + (<uint32_t> slot - 1), record):
                    return <Py_ssize_t> (<uint32_t> slot - 1)
            at = (at + 1) & mask

    cdef int add(self, const uint64_t* record, uint32_t tag) except -1:
        """The number of a string, which is a new one if it is not there yet."""
        cdef Py_ssize_t at = self.place(record, tag)
        cdef size_t length = n_words((<const Record*> record).length), needed
        if at >= 0:
            return (<const Record*> (self.text + at)).number
        needed = self.n_words + length
        if needed > MOST_WORDS or self.n_names == 0x7FFFFFFF:
            raise ValueError("there are more than 2**31 attributes, or 32 GiB of them")
        if needed > self.room:
            needed += needed // 2
            self.text = <uint64_t*> grown(self.text, 8 * needed)
            self.room = needed
        if 3 * (self.n_names + 1) > 2 * (<Py_ssize_t> 1 << self.log_slots):
            self.rehash(self.log_slots + 1)
            at = self.place(record, tag)
        memcpy(self.text + self.n_words, record, 8 * length)
        (<Record*> (self.text + self.n_words)).number = <int> self.n_names
        self.slots[-1 - at] = (<uint64_t> tag << 32) | (self.n_words + 1)
        self.n_words += length
        self.n_names += 1
        return <int> (self.n_names - 1)

    cdef void find_all(self, Scratch scratch) noexcept nogil:
        """Numbers of the entries of a scratch, -1 for strings that are not there."""
        cdef Entry* entries = scratch.entries
        cdef size_t i
        cdef Py_ssize_t at
        self.fetch(scratch)
        for i in range(scratch.n_entries):
            at = self.place(scratch.words + entries[i].at, entries[i].tag)
            entries[i].number = -1 if at < 0 else (<const Record*> (self.text + at)).number

    cdef int add_all(self, Scratch scratch) except -1:
        """Numbers of the entries of a scratch. New strings get new numbers."""
        cdef Entry* entries = scratch.entries
        cdef size_t i
        self.fetch(scratch)
        for i in range(scratch.n_entries):
            entries[i].number = self.add(scratch.words + entries[i].at, entries[i].tag)
        return 0

    cdef void fetch(self, Scratch scratch) noexcept nogil:
        """Ask for the cache lines that the searches for these entries begin with."""
        cdef size_t i
        cdef uint64_t slot
        cdef Entry* entries = scratch.entries
        for i in range(scratch.n_entries):
            fastm4n_prefetch(self.slots + (entries[i].tag >> (32 - self.log_slots)))
        for i in range(scratch.n_entries):
            slot = self.slots[entries[i].tag >> (32 - self.log_slots)]
            if slot != 0:
                fastm4n_prefetch(self.text + (<uint32_t> slot - 1))

    def sort(self, const int[::1] counts=None, int least=0):
        """Number the names by their order, without names of small counts.

        Parameters
        ----------
        counts : int32 array of shape (n_names,), default=None
        least : int
            Names of smaller counts are dropped.

        Returns
        -------
        rank : int32 array of shape (n_names,)
            The new number of each old one, -1 for dropped names.
        """
        cdef Py_ssize_t n = self.n_names, i = 0
        rank = np.empty(n, dtype=np.int32)
        cdef int[::1] new = rank
        cdef size_t at = 0, kept = 0, length
        cdef uint64_t random = 1
        cdef Record* record
        cdef bint all_stay = counts is None
        cdef Item* items = <Item*> PyMem_Malloc(max(<Py_ssize_t> 1, n) * sizeof(Item))
        if items == NULL:
            raise MemoryError(f"no memory to sort {n} attributes")
        self.n_names = 0
        while at < self.n_words:
            record = <Record*> (self.text + at)
            length = n_words(record.length)
            if all_stay or counts[record.number] >= least:
                if kept < at:
                    memmove(self.text + kept, self.text + at, 8 * length)
                items[self.n_names].at = <uint32_t> kept
                items[self.n_names].key = key_of(self.text + kept, 0)
                self.n_names += 1
                kept += length
            else:
                new[record.number] = -1
            at += length
        with nogil:
            sort(self.text, items, self.n_names, 0, &random)
            for i in range(self.n_names):
                record = <Record*> (self.text + items[i].at)
                new[record.number] = <int> i
                record.number = <int> i
        PyMem_Free(items)
        if kept < self.n_words:
            self.n_words = kept
            self.refill()
        self.trim()
        return rank

    def strings(self):
        """The names in the order of their numbers, as a list."""
        cdef list names = [None] * self.n_names
        cdef size_t at = 0
        cdef const Record* record
        while at < self.n_words:
            record = <const Record*> (self.text + at)
            names[record.number] = PyUnicode_DecodeUTF8(
                <const char*> (record + 1), record.length, "surrogatepass")
            at += n_words(record.length)
        return names

    def packed(self):
        """The UTF-8 of all names in the order of their numbers, and the number of bytes of each."""
        cdef size_t at = 0
        cdef Py_ssize_t i, start = 0
        cdef const Record* record
        lengths, places = np.empty((2, self.n_names), dtype=np.uint32)
        cdef uint32_t[::1] length = lengths, place = places
        while at < self.n_words:
            record = <const Record*> (self.text + at)
            length[record.number], place[record.number] = record.length, <uint32_t> at
            at += n_words(record.length)
        text = np.empty(int(lengths.sum(dtype=np.int64)), dtype=np.uint8)
        cdef uint8_t[::1] out = text
        for i in range(self.n_names):
            if length[i]:
                memcpy(&out[start], self.text + place[i] + 1, length[i])
                start += length[i]
        return text, lengths.astype(np.min_scalar_type(lengths.max(initial=0)))

    def only(self, kept):
        """The names of these ascending numbers."""
        text, lengths = self.packed()
        stays = np.zeros(len(lengths), dtype=bool)
        stays[kept] = True
        return names_of(text[np.repeat(stays, lengths)], lengths[kept])

    cdef int have_room(self, size_t n_words) except -1:
        """Room for so many words in all."""
        if n_words > MOST_WORDS:
            raise ValueError("there are more than 32 GiB of attributes")
        self.text, self.room = <uint64_t*> grown(self.text, 8 * (n_words + 1)), n_words + 1
        return 0

    cdef uint32_t append(self, const uint8_t* name, uint32_t length, size_t room) noexcept nogil:
        """One more name, for which there is room: its tag. `settle` makes it one that is found.

        So many bytes can be read from its first one: whole words are copied where they can be.
        """
        cdef uint64_t* record = self.text + self.n_words
        cdef uint32_t i, whole = length // 8, left = length % 8
        cdef uint64_t word = 0, h = SEED ^ length, bits = 0, zeros = 0, padding
        (<Record*> record).number = <int> self.n_names
        (<Record*> record).length = length
        for i in range(whole):
            memcpy(&word, name + 8 * i, 8)
            record[1 + i] = word
            h = mixed(h, word)
            bits |= word
            zeros |= (word - ONES) & ~word
        if left:
            # zeros behind the last byte
            padding = ~<uint64_t> 0 << (8 * left)
            if length - left + 8 <= room and not NOT_LITTLE:
                memcpy(&word, name + 8 * whole, 8)
                word &= ~padding
            else:
                word = 0
                memcpy(&word, name + 8 * whole, left)
            record[1 + whole] = word
            h = mixed(h, word)
            bits |= word
            word |= padding
            zeros |= (word - ONES) & ~word
        self.bits |= bits
        self.zeros |= zeros
        self.n_words += n_words(length)
        self.n_names += 1
        return tag_of_mixed(h)

    cdef int have_slots(self, Py_ssize_t n) except -1:
        """Free slots for so many names, and no others."""
        cdef int log_slots = FIRST_SLOTS
        while 3 * n > 2 * (<Py_ssize_t> 1 << log_slots):
            log_slots += 1
        PyMem_Free(self.slots)
        self.slots = NULL
        self.rehash(log_slots)
        return 0

    cdef int settle(self, size_t* first, const uint32_t* tags, int count) noexcept nogil:
        """Slots for so many records from `first` on: how many there are before one that is there.

        Their slots are asked for together. `first` becomes the place behind the last of them.
        """
        cdef Py_ssize_t place
        cdef int i
        cdef const uint64_t* record
        for i in range(count):
            fastm4n_prefetch(self.slots + (tags[i] >> (32 - self.log_slots)))
        for i in range(count):
            record = self.text + first[0]
            place = self.place(record, tags[i])
            if place >= 0:
                return i
            self.slots[-1 - place] = (<uint64_t> tags[i] << 32) | (first[0] + 1)
            first[0] += n_words((<const Record*> record).length)
        return count

    cdef int refill(self) except -1:
        """Slots for the records there are, which differ."""
        cdef size_t at = 0, first = 0
        cdef int count
        cdef uint32_t[AT_ONCE] tags
        self.have_slots(self.n_names)
        while at < self.n_words:
            count = 0
            while at < self.n_words and count < AT_ONCE:
                tags[count] = tag_of(self.text + at)
                at += n_words((<const Record*> (self.text + at)).length)
                count += 1
            self.settle(&first, tags, count)
        return 0

    cdef int trim(self) except -1:
        """Give back the memory that no record is in."""
        if self.room > self.n_words + 1:
            self.text = <uint64_t*> grown(self.text, 8 * (self.n_words + 1))
            self.room = self.n_words + 1
        return 0


def names_of(text, lengths):
    """The `Names` of `packed`, after all checks.

    Parameters
    ----------
    text : uint8 array of shape (n_bytes,)
    lengths : array of unsigned integers of shape (n_names,)
    """
    cdef Names names = Names()
    cdef const uint8_t[::1] given
    cdef const uint32_t[::1] sizes
    cdef Py_ssize_t i, start = 0, n
    cdef size_t end, first = 0
    cdef uint32_t[AT_ONCE] tags
    cdef int count = 0, settled
    if lengths.ndim != 1 or lengths.dtype.kind != "u" or lengths.dtype.itemsize > 4 or (
            text.ndim != 1 or text.dtype != np.uint8):
        raise ValueError("names must be bytes and their lengths")
    if lengths.sum(dtype=np.int64) != len(text) or len(lengths) > 0x7FFFFFFF:
        raise ValueError("the lengths of names do not fit their bytes")
    if text.max(initial=0) >= 0x80:
        check_utf8(text, lengths)
    given = np.ascontiguousarray(text)
    sizes = np.ascontiguousarray(lengths, dtype=np.uint32)
    n, end = len(lengths), 0
    for i in range(n):
        end += n_words(sizes[i])
    names.have_room(end)
    names.have_slots(n)
    for i in range(n):
        tags[count] = names.append(
            &given[0] + start if sizes[i] else NULL, sizes[i], <size_t> (given.shape[0] - start))
        start += sizes[i]
        count += 1
        if count == AT_ONCE or i == n - 1:
            settled = names.settle(&first, tags, count)
            if settled < count:
                raise ValueError(
                    f"the name {names.strings()[i + 1 - count + settled]!r:.80} is there twice")
            count = 0
    return names


def names_of_records(const uint8_t[::1] content, const uint32_t[::1] places):
    """The `Names` of a database of CRFsuite, or None unless it is in its usual form.

    A record is the number of the name, its length with a final NUL, both in 32 little-endian bits,
    and the name. Usually records lie in the order of their numbers, and names are ASCII and differ.

    Parameters
    ----------
    content : uint8 array
        The database.
    places : uint32 array
        Where in it the records begin.
    """
    cdef Names names = Names()
    cdef Py_ssize_t i, n = places.shape[0]
    cdef size_t at, end = 0, first = 0, size = content.shape[0], length
    cdef uint32_t[2] head
    cdef uint32_t[AT_ONCE] tags
    cdef int count = 0
    if NOT_LITTLE:
        return None
    names.have_room(size // 8 + n)
    names.have_slots(n)
    for i in range(n):
        at = places[i]
        if at < end or at + sizeof(head) > size:
            return None
        memcpy(head, &content[at], sizeof(head))
        length = head[1]
        at += sizeof(head)
        end = at + length
        if head[0] != i or length == 0 or end > size or length > MOST_BYTES or content[end - 1]:
            return None
        tags[count] = names.append(&content[at], <uint32_t> (length - 1), size - at)
        count += 1
        if count == AT_ONCE or i == n - 1:
            if names.settle(&first, tags, count) < count:
                return None
            count = 0
    if (names.bits | names.zeros) & HIGHS:
        return None
    names.trim()
    return names


def check_utf8(text, lengths):
    """Refuse bytes that are no characters, and names that begin within one."""
    bytes(text).decode("utf-8", "surrogatepass")
    starts = np.cumsum(lengths, dtype=np.int64)[:-1]
    if len(starts) and (text[starts[starts < len(text)]] & 0xC0 == 0x80).any():
        raise ValueError("a name begins within a character")


# Rows of a CSR matrix from the attributes of tokens.
#
# Attributes are copied to a scratch until there are some hundred of them. Then the table of names
# is searched for all of them at once, so that their cache lines come together. Nothing is made for
# an attribute but its column; weights other than 1 are few, and are held by their positions.

cdef extern from "Python.h":
    bint PyUnicode_Check(PyObject*)
    bint PyUnicode_CheckExact(PyObject*)
    bint PyList_CheckExact(PyObject*)
    bint PyTuple_CheckExact(PyObject*)
    Py_ssize_t PyList_GET_SIZE(PyObject*)
    PyObject* PyList_GET_ITEM(PyObject*, Py_ssize_t)
    Py_ssize_t PyTuple_GET_SIZE(PyObject*)
    PyObject* PyTuple_GET_ITEM(PyObject*, Py_ssize_t)
    int Py_EnterRecursiveCall(const char*) except -1
    void Py_LeaveRecursiveCall()


cdef extern from "loops.h":
    void fastm4n_prefetch(const void*) nogil


cdef enum:
    # attributes of a token whose order is remembered for the next one of as many
    REMEMBERED = 96
    # strings between asking for one and reading it
    AHEAD = 4
    # columns of rows that are forgotten together: 4 MiB
    FORGOTTEN_AT_ONCE = 1 << 20

cdef object NUMPY_BOOL = np.bool_


cdef class _Vector:
    """Numbers of one type, more and more of them."""

    cdef arrays.array values
    cdef Py_ssize_t size

    def __cinit__(self, code):
        self.values, self.size = array(code), 0
        # memory there is from the start
        arrays.resize(self.values, 16)

    cdef void* more(self, Py_ssize_t n) except NULL:
        """Room for n more numbers, which are there when `size` says so."""
        if self.size + n > len(self.values):
            arrays.resize(self.values, self.size + n + self.size // 2 + 16)
        return self.values.data.as_chars + self.size * self.values.ob_descr.itemsize

    def taken(self):
        """The numbers as an ndarray, to which the memory belongs from now on."""
        cdef arrays.array values = self.values
        arrays.resize(values, self.size)
        self.values, self.size = None, 0
        return np.frombuffer(values, values.typecode) if len(values) else np.array(values)


cdef int compare(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const int64_t*> a)[0], y = (<const int64_t*> b)[0]
    return (x > y) - (x < y)


cdef class Rows:
    """Rows in the making: columns, the weights that are not 1, and where rows and sequences end.

    Parameters
    ----------
    names : Names
        Names of the columns, shared by the rows.
    separator : str
        Separator between a key and a string.
    is_learning : bool
        Whether new names get columns. These are numbered as they come until `renumber`.
    is_single : bool
        Whether weights are added in float32.
    """

    cdef Names names
    cdef object separator
    cdef bint is_learning, is_single
    cdef object counted     # counts of the rows that were forgotten
    cdef Scratch scratch
    cdef _Vector columns, row_ends, offsets, weighted, weights
    # of the tokens in the scratch: where their entries end
    cdef size_t[AT_ONCE] ends
    cdef Py_ssize_t n_pending
    cdef bint is_weighted   # whether an entry in the scratch has a weight other than 1
    # the row that is being made, and the order in which its columns ascend
    cdef int* row
    cdef int* order
    cdef double* row_weights
    cdef int64_t* keys
    cdef Py_ssize_t room
    # of the last row of each length, where there was one
    cdef unsigned char[REMEMBERED + 1] has_order
    cdef unsigned char[REMEMBERED + 1][REMEMBERED] orders

    def __init__(self, Names names, separator, bint is_learning, bint is_single):
        self.names, self.separator = names, separator
        self.is_learning, self.is_single = is_learning, is_single
        self.counted, self.scratch = np.zeros(0, dtype=np.int32), Scratch()
        self.columns = _Vector("i")
        self.row_ends, self.offsets, self.weighted = _Vector("q"), _Vector("q"), _Vector("q")
        self.weights = _Vector("d")
        self.note(self.row_ends, 0)
        self.note(self.offsets, 0)

    def __dealloc__(self):
        PyMem_Free(self.row)
        PyMem_Free(self.order)
        PyMem_Free(self.row_weights)
        PyMem_Free(self.keys)

    cdef int note(self, _Vector numbers, long long number) except -1:
        (<long long*> numbers.more(1))[0] = number
        numbers.size += 1
        return 0

    cdef void restart(self) noexcept:
        """Forget what was read, and keep the memory."""
        self.columns.size = self.weighted.size = self.weights.size = 0
        self.row_ends.size = self.offsets.size = 1
        self.scratch.clear()
        self.n_pending, self.is_weighted = 0, False

    # ------------------------------------------------------------------------------ reading

    def read(self, X, bint forgets=False):
        """Read sequences of tokens. Errors name the token.

        If the rows are forgotten, `counts` is all that is left of them.
        """
        cdef Py_ssize_t i = 0, n_tokens = 0
        if isinstance(X, (str, bytes, dict, Sequences)) or not hasattr(X, "__iter__"):
            raise TypeError(
                f"X must be a list of sequences, each a list of tokens; got {type(X).__name__}.")
        for sequence in X:
            n_tokens += self.add_sequence(sequence, i)
            i += 1
            if not forgets:
                self.note(self.offsets, n_tokens)
            elif self.columns.size > FORGOTTEN_AT_ONCE:
                self.forget()
        self.flush()

    cdef Py_ssize_t add_sequence(self, sequence, Py_ssize_t i) except -1:
        """Read sequence i, and count its tokens."""
        cdef Py_ssize_t t = 0
        if isinstance(sequence, (str, bytes, dict)) or not hasattr(sequence, "__iter__"):
            raise TypeError(
                f"Sequence {i} of X must be a list of tokens; it is of type "
                f"{type(sequence).__name__}. One sequence alone goes into a list: [sequence].")
        for token in sequence:
            try:
                self.add_token(token)
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"Token {t} of sequence {i} of X: {error}.") from None
            t += 1
            look()
        return t

    cdef int add_token(self, token) except -1:
        cdef PyObject* given = <PyObject*> token
        cdef PyObject* name
        cdef Py_ssize_t j, n
        cdef bint is_list = PyList_CheckExact(given)
        if is_list or PyTuple_CheckExact(given):
            n = PyList_GET_SIZE(given) if is_list else PyTuple_GET_SIZE(given)
            for j in range(n):
                if j + AHEAD < n:
                    name = (PyList_GET_ITEM(given, j + AHEAD) if is_list
                            else PyTuple_GET_ITEM(given, j + AHEAD))
                    fastm4n_prefetch(name)
                name = PyList_GET_ITEM(given, j) if is_list else PyTuple_GET_ITEM(given, j)
                if not PyUnicode_Check(name):
                    raise TypeError(not_a_string(<object> name))
                self.scratch.begin()
                self.scratch.put(name)
                self.scratch.finish(1.0)
        elif isinstance(token, dict):
            self.add_dict(token, "")
        elif isinstance(token, (str, bytes)):
            raise TypeError(
                f"a token must be a dict or a list of strings, not {token!r}; one attribute alone "
                "goes into a list, and so does one sequence alone")
        elif not hasattr(token, "__iter__"):
            raise TypeError(
                f"a token must be a dict or a list of strings, not {type(token).__name__}")
        else:
            for each in token:
                if not isinstance(each, str):
                    raise TypeError(not_a_string(each))
                self.scratch.begin()
                self.scratch.put(<PyObject*> each)
                self.scratch.finish(1.0)
        self.ends[self.n_pending] = self.scratch.n_entries
        self.n_pending += 1
        if self.n_pending == AT_ONCE or self.scratch.n_entries >= AT_ONCE:
            self.flush()
        return 0

    cdef int add_dict(self, token, prefix) except -1:
        """The attributes of a dict, whose keys have something before them."""
        Py_EnterRecursiveCall(" in a dict of attributes")
        try:
            if type(token) is dict:
                for key, value in (<dict> token).items():
                    self.add_item(key, value, prefix)
            else:
                for key, value in token.items():
                    self.add_item(key, value, prefix)
        finally:
            Py_LeaveRecursiveCall()
        return 0

    cdef int add_item(self, key, value, prefix) except -1:
        if not PyUnicode_Check(<PyObject*> key):
            raise TypeError(not_a_string(key))
        if PyUnicode_Check(<PyObject*> value):
            # of subclasses what they are in a formatted string
            if not PyUnicode_CheckExact(<PyObject*> value):
                value = format(value)
            self.add_joined(prefix, key, value)
        elif value is True:
            self.add_name(prefix, key, 1.0)
        elif value is False:
            self.add_name(prefix, key, 0.0)
        elif type(value) is float or type(value) is int:
            self.add_weight(prefix, key, value)
        elif isinstance(value, NUMPY_BOOL):
            self.add_name(prefix, key, 1.0 if value else 0.0)
        elif isinstance(value, Real):
            self.add_weight(prefix, key, value)
        elif isinstance(value, (list, tuple, set, frozenset)):
            for name in value:
                if not PyUnicode_Check(<PyObject*> name):
                    raise TypeError(not_a_string(name, f" in the list of {prefix + key!r}"))
                self.add_joined(prefix, key, name)
        elif isinstance(value, dict):
            self.add_dict(value, f"{prefix}{key}{self.separator}")
        else:
            remedy = "; leave the key out where there is none" if value is None else (
                "; decode bytes" if isinstance(value, bytes) else "")
            raise TypeError(
                f"the value of {prefix + key!r} must be a number, string, bool or list of strings, "
                f"not {value!r:.40}{remedy}")
        return 0

    cdef int add_weight(self, prefix, key, value) except -1:
        cdef double weight
        try:
            weight = float(value)
        except OverflowError:
            weight = math.inf
        if not math.isfinite(weight):
            raise ValueError(
                f"the weight of {prefix + key!r} is {value!r:.40}; weights must be finite: leave "
                "the key out where there is none")
        self.add_name(prefix, key, weight)
        return 0

    cdef int add_name(self, prefix, key, double weight) except -1:
        self.scratch.begin()
        self.scratch.put(<PyObject*> prefix)
        self.scratch.put(<PyObject*> key)
        self.scratch.finish(weight)
        if weight != 1.0:
            self.is_weighted = True
        return 0

    cdef int add_joined(self, prefix, key, name) except -1:
        if not PyUnicode_CheckExact(<PyObject*> key):
            key = format(key)
        self.scratch.begin()
        self.scratch.put(<PyObject*> prefix)
        self.scratch.put(<PyObject*> key)
        self.scratch.put(<PyObject*> self.separator)
        self.scratch.put(<PyObject*> name)
        self.scratch.finish(1.0)
        return 0

    # -------------------------------------------------------------------------------- rows

    cdef int flush(self) except -1:
        """Make rows of the tokens in the scratch."""
        cdef Py_ssize_t i
        cdef size_t e, start = 0, end
        cdef Entry* entries = self.scratch.entries
        cdef int* columns
        if self.is_learning:
            self.names.add_all(self.scratch)
        else:
            self.names.find_all(self.scratch)
        for i in range(self.n_pending):
            end = self.ends[i]
            if self.is_learning:
                columns = <int*> self.columns.more(end - start)
                for e in range(start, end):
                    columns[e - start] = entries[e].number
                    if entries[e].weight != 1.0:
                        self.note_weight(self.columns.size + e - start, entries[e].weight)
                self.columns.size += end - start
                self.note(self.row_ends, self.columns.size)
            else:
                self.make_room(end - start)
                for e in range(start, end):
                    self.row[e - start] = entries[e].number
                if self.is_weighted:
                    for e in range(start, end):
                        self.row_weights[e - start] = entries[e].weight
                self.add_row(end - start, self.is_weighted)
            start = end
        self.scratch.clear()
        self.n_pending, self.is_weighted = 0, False
        return 0

    cdef int note_weight(self, Py_ssize_t place, double weight) except -1:
        self.note(self.weighted, place)
        (<double*> self.weights.more(1))[0] = weight
        self.weights.size += 1
        return 0

    cdef int make_room(self, Py_ssize_t n) except -1:
        if n > self.room:
            self.row = <int*> grown(self.row, n * sizeof(int))
            self.order = <int*> grown(self.order, n * sizeof(int))
            self.row_weights = <double*> grown(self.row_weights, n * sizeof(double))
            self.keys = <int64_t*> grown(self.keys, n * sizeof(int64_t))
            self.room = n
        return 0

    cdef int add_row(self, Py_ssize_t n, bint weighted) except -1:
        """Append a row of n columns, -1 for none, in ascending order and with duplicates added up.

        Tokens often come from one template with attributes in one order, and the last row of the
        same length is tried first.
        """
        cdef int* out = <int*> self.columns.more(n)
        cdef const int* row = self.row
        cdef int* order = self.order
        cdef int column, last = -1
        cdef Py_ssize_t k, p, m = 0, made
        cdef bint ascends = True, remembers = n <= REMEMBERED and self.has_order[n]
        cdef double weight, other
        for k in range(n):
            p = self.orders[n][k] if remembers else k
            column = row[p]
            if column >= 0:
                out[m] = column
                order[m] = <int> p
                ascends = ascends and column > last
                last = column
                m += 1
        made = m
        if not ascends:
            self.sort_row(m)
            if m == n <= REMEMBERED:
                self.has_order[n] = True
                for k in range(n):
                    self.orders[n][k] = <unsigned char> order[k]
        if not ascends or weighted:
            k = made = 0
            while k < m:
                column = row[order[k]]
                weight = self.weight(order[k], weighted)
                k += 1
                while k < m and row[order[k]] == column:
                    other = self.weight(order[k], weighted)
                    weight = <float> weight + <float> other if self.is_single else weight + other
                    k += 1
                out[made] = column
                if weight != 1.0:
                    self.note_weight(self.columns.size + made, weight)
                made += 1
        self.columns.size += made
        self.note(self.row_ends, self.columns.size)
        return 0

    cdef double weight(self, Py_ssize_t place, bint weighted) noexcept:
        if not weighted:
            return 1.0
        return <float> self.row_weights[place] if self.is_single else self.row_weights[place]

    cdef void sort_row(self, Py_ssize_t m) noexcept:
        """Sort `order` by columns, and by places where these are the same."""
        cdef Py_ssize_t j, k
        cdef int* order = self.order
        cdef const int* row = self.row
        cdef int place, column
        if m > REMEMBERED:
            for k in range(m):
                self.keys[k] = (<int64_t> row[order[k]] << 32) | order[k]
            qsort(self.keys, m, sizeof(int64_t), compare)
            for k in range(m):
                order[k] = <int> (self.keys[k] & 0x7FFFFFFF)
            return
        for k in range(1, m):
            place = order[k]
            column = row[place]
            j = k
            while j > 0 and (row[order[j - 1]] > column or (
                    row[order[j - 1]] == column and order[j - 1] > place)):
                order[j] = order[j - 1]
                j -= 1
            order[j] = place

    def forget(self):
        """Count the rows so far, and drop them."""
        self.flush()
        self.counted = self.counts()
        for numbers in (self.columns, self.row_ends, self.weighted, self.weights):
            (<_Vector> numbers).size = 0
        self.note(self.row_ends, 0)

    # ------------------------------------------------------------------- when all is learnt

    def counts(self):
        """Number of tokens that have each name, with a weight that is not zero."""
        cdef Py_ssize_t t, e, w = 0, n = self.names.n_names
        found = np.zeros(n, dtype=np.int32)
        found[:len(self.counted)] = self.counted
        cdef int[::1] count = found
        cdef long long[::1] seen = np.full(n, -1, dtype=np.int64)
        cdef const int* columns = self.columns.values.data.as_ints
        cdef const long long* ends = self.row_ends.values.data.as_longlongs
        cdef const long long* places = self.weighted.values.data.as_longlongs
        cdef const double* weights = self.weights.values.data.as_doubles
        for t in range(1, self.row_ends.size):
            for e in range(ends[t - 1], ends[t]):
                if w < self.weighted.size and places[w] == e:
                    w += 1
                    if weights[w - 1] == 0.0:
                        continue
                if seen[columns[e]] != t:
                    seen[columns[e]] = t
                    count[columns[e]] += 1
        return found

    def renumber(self, const int[::1] rank):
        """Rows of the columns rank[c], in place. Columns of rank -1 are dropped."""
        cdef Py_ssize_t t, e, n, w = 0, start = 0, stop
        cdef _Vector weighted = self.weighted, weights = self.weights
        cdef const long long* places = weighted.values.data.as_longlongs
        cdef const long long* ends
        cdef const int* columns = self.columns.values.data.as_ints
        cdef bint any_weights
        cdef _Vector row_ends = self.row_ends
        ends = row_ends.values.data.as_longlongs
        self.weighted, self.weights, self.row_ends = _Vector("q"), _Vector("d"), _Vector("q")
        self.note(self.row_ends, 0)
        # a row is never longer than it was, and is read before it is written
        self.columns.size = 0
        for t in range(1, row_ends.size):
            stop = ends[t]
            n = stop - start
            self.make_room(n)
            for e in range(n):
                self.row[e] = rank[columns[start + e]]
            any_weights = w < weighted.size and places[w] < stop
            if any_weights:
                for e in range(n):
                    self.row_weights[e] = 1.0
                while w < weighted.size and places[w] < stop:
                    self.row_weights[places[w] - start] = weights.values.data.as_doubles[w]
                    w += 1
            self.add_row(n, any_weights)
            start = stop

    def taken(self):
        """columns, row_ends, offsets, and places and values of the weights that are not 1.

        They are taken out: this is good for nothing any more.
        """
        return (
            self.columns.taken(), self.row_ends.taken(), self.offsets.taken(),
            self.weighted.taken(), self.weights.taken())


# Rows of one sequence after the other in one matrix: services ask for sentences one by one, and to
# make a matrix of each takes several times as long as to read its attributes.

cdef enum:
    # most tokens of such a sequence, and attributes that there is room for at first
    MOST_TOKENS = 256
    FIRST_ATTRIBUTES = 4096


def n_tokens_of_short(X):
    """The number of tokens in X, -1 unless it is a list of short sequences of attributes."""
    cdef Py_ssize_t n = 0
    cdef bint is_known = False
    if type(X) is not list and type(X) is not tuple:
        return -1
    for sequence in X:
        if type(sequence) is not list and type(sequence) is not tuple:
            return -1
        if len(sequence) > MOST_TOKENS:
            return -1
        n += len(sequence)
        if is_known:
            continue
        for token in sequence:
            if type(token) is dict:
                is_known = True
            elif type(token) is not list and type(token) is not tuple:
                return -1
            elif token:
                if type(token[0]) is not str:
                    return -1
                is_known = True
            if is_known:
                break
    return n if is_known else -1


cdef class OneByOne:
    """One matrix for the rows of one sequence after the other, of at most MOST_TOKENS tokens.

    Parameters
    ----------
    names : Names
    separator : str
    dtype : dtype of the matrix

    Attributes
    ----------
    matrix : csr_matrix of shape (MOST_TOKENS, n_names)
        The first rows are those of the last sequence. It is another one where that has more
        attributes than any before.
    """

    cdef Rows rows
    cdef readonly object matrix
    cdef object dtype
    cdef int[::1] indices
    cdef long long[::1] ends
    cdef double[::1] data64
    cdef float[::1] data32

    def __init__(self, Names names, separator, dtype):
        self.dtype = dtype
        self.rows = Rows(names, separator, False, dtype == np.float32)
        self.make(FIRST_ATTRIBUTES)

    cdef int make(self, Py_ssize_t room) except -1:
        data = np.ones(room, dtype=self.dtype)
        matrix = sp.csr_matrix((MOST_TOKENS, self.rows.names.n_names), dtype=self.dtype)
        matrix.data, matrix.indices = data, np.zeros(room, dtype=np.int32)
        matrix.indptr = np.zeros(MOST_TOKENS + 1, dtype=np.int64)
        self.matrix, self.indices, self.ends = matrix, matrix.indices, matrix.indptr
        if self.rows.is_single:
            self.data32 = data
        else:
            self.data64 = data
        return 0

    def read(self, sequence, Py_ssize_t i):
        """Have the rows of sequence i of X in the matrix: how many."""
        cdef Rows rows = self.rows
        cdef Py_ssize_t n, w
        cdef const long long* places
        cdef const double* weights
        rows.restart()
        n = rows.add_sequence(sequence, i)
        rows.flush()
        if n > MOST_TOKENS:
            raise ValueError(f"Sequence {i} of X has changed while it was read.")
        if rows.columns.size > self.indices.shape[0]:
            self.make(2 * rows.columns.size)
        memcpy(&self.indices[0], rows.columns.values.data.as_chars, rows.columns.size * sizeof(int))
        memcpy(&self.ends[0], rows.row_ends.values.data.as_chars, (n + 1) * sizeof(long long))
        places = rows.weighted.values.data.as_longlongs
        weights = rows.weights.values.data.as_doubles
        for w in range(rows.weighted.size):
            if rows.is_single:
                self.data32[places[w]] = <float> weights[w]
            else:
                self.data64[places[w]] = weights[w]
            if not math.isfinite(weights[w] if not rows.is_single else self.data32[places[w]]):
                self.clear()
                raise ValueError(self.too_large(places[w], i))
        return n

    def clear(self):
        """Have ones for the weights that are others, as before `read`."""
        cdef Rows rows = self.rows
        cdef Py_ssize_t w
        cdef const long long* places = rows.weighted.values.data.as_longlongs
        for w in range(rows.weighted.size):
            if rows.is_single:
                self.data32[places[w]] = 1.0
            else:
                self.data64[places[w]] = 1.0

    def too_large(self, Py_ssize_t entry, Py_ssize_t i):
        row = int(np.searchsorted(self.ends[: self.rows.row_ends.size], entry, side="right")) - 1
        return weight_too_large(row, i, self.rows.names, self.indices[entry], self.dtype)


def weight_too_large(token, sequence, names, column, dtype):
    return (
        f"Token {token} of sequence {sequence} of X: the weight of {names.strings()[column]!r} is "
        f"too large for {dtype}.")


cdef str not_a_string(name, where=""):
    remedy = "; decode bytes" if isinstance(name, bytes) else (
        "; a number is the value of a key, in a dict" if isinstance(name, Real) else "")
    return (
        f"attributes must be strings, not {name!r:.40} of type {type(name).__name__}{where}"
        f"{remedy}")
