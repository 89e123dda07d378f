"""Distinct strings and their numbers: a hash table of UTF-8, without an object for each string.

A string and what is to be found are records of the same form, so that neither hashing nor comparing
asks where characters came from: Python's strings, pieces of them, or bytes of a file. All records
lie in one buffer, in the order in which they came; those that come often come early, and so lie
together. A slot has 32 bits of the hash and the place of the record: what a search reads are the
slot's cache line and the record's, and those of many searches are asked for ahead.
"""

import numpy as np

from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t, uint16_t
from libc.string cimport memcmp, memcpy, memmove, memset


cdef extern from "Python.h":
    int PyUnicode_IS_ASCII(PyObject*) nogil
    int PyUnicode_KIND(PyObject*) nogil
    void* PyUnicode_DATA(PyObject*) nogil
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject*) nogil


cdef extern from "loops.h":
    void fastm4n_prefetch(const void*) nogil


cdef enum:
    # slots, as a power of 2, of a table without names
    FIRST_SLOTS = 6
    # words, and entries, of a scratch
    FIRST_WORDS = 2048
    FIRST_ENTRIES = 512
    # so few strings are sorted one by one
    FEW = 12

# places of records in slots have 32 bits
cdef uint64_t MOST_WORDS = 0xFFFFFFFE
cdef size_t MOST_BYTES = 0x7FFFFFF0
# odd, with bits everywhere: 2^64 over the golden ratio
cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15
# differs from process to process, as Python's own: nobody can make strings that meet in one slot
cdef uint64_t SEED = (<uint64_t> <Py_ssize_t> hash("fastm4n")) | 1


cdef inline uint32_t tag_of(const uint64_t* record) noexcept nogil:
    """32 bits of the hash of a record, whose upper bits are the home slot."""
    cdef uint32_t length = (<const Record*> record).length
    cdef uint64_t h = SEED ^ length
    cdef size_t i
    for i in range(1, n_words(length)):
        h = (h ^ record[i]) * MULTIPLIER
        h ^= h >> 32
    h *= MULTIPLIER
    return <uint32_t> (h >> 32)


cdef inline bint is_same(const uint64_t* a, const uint64_t* b) noexcept nogil:
    cdef uint32_t length = (<const Record*> a).length
    cdef size_t i
    if length != (<const Record*> b).length:
        return False
    for i in range(1, n_words(length)):
        if a[i] != b[i]:
            return False
    return True


cdef void* grown(void* memory, size_t n_bytes) except NULL:
    cdef void* more = PyMem_Realloc(memory, n_bytes)
    if more == NULL:
        raise MemoryError(f"no memory for {n_bytes} bytes of attributes")
    return more


cdef class Scratch:
    """Records that are searched for together, each with a weight.

    ``begin``, any number of ``put`` and ``finish`` make one; nothing refers to the strings then.
    """

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
        """UTF-8 of characters beyond ASCII; surrogates, which it does not have, as others."""
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
    """Sort strings that are the same up to byte 8 depth, whose keys are those of this depth.

    Quicksort of three parts, of which the middle one goes on with the next 8 bytes (Bentley,
    Sedgewick 1997, Fast algorithms for sorting and searching strings), on average
    O(n log n + bytes that tell strings apart). The order is that of code points. The two smaller
    parts are sorted first, so that there are at most log2(n) calls within each other.
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


cdef class Names:
    """Distinct strings, numbered 0, 1, ... as they come, until they are sorted.

    Parameters
    ----------
    names : iterable of str, default=()
        Their numbers are their places.
    """

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
        """Have so many slots; what is in the slots now goes on being in them."""
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
        """Where in `text` the same string is, or -1 - the slot that is free for it."""
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
        """Numbers of the entries of a scratch, new ones for strings that are not there."""
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
        """Number the names by their order, and leave out those of small counts.

        Parameters
        ----------
        counts : int32 array of shape (n_names,), default=None
        least : int
            Names of smaller counts are left out.

        Returns
        -------
        rank : int32 array of shape (n_names,)
            The new number of each old one, -1 for names that are left out.
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

    cdef int refill(self) except -1:
        """Slots for the records there are, and no others."""
        cdef int log_slots = FIRST_SLOTS
        cdef size_t at = 0, place
        cdef uint32_t tag
        while 3 * self.n_names > 2 * (<Py_ssize_t> 1 << log_slots):
            log_slots += 1
        PyMem_Free(self.slots)
        self.slots = NULL
        self.rehash(log_slots)
        while at < self.n_words:
            tag = tag_of(self.text + at)
            place = tag >> (32 - log_slots)
            while self.slots[place]:
                place = (place + 1) & ((<size_t> 1 << log_slots) - 1)
            self.slots[place] = (<uint64_t> tag << 32) | (at + 1)
            at += n_words((<const Record*> (self.text + at)).length)
        return 0

    cdef int trim(self) except -1:
        """Give back the memory that no record is in."""
        if self.room > self.n_words + 1:
            self.text = <uint64_t*> grown(self.text, 8 * (self.n_words + 1))
            self.room = self.n_words + 1
        return 0
