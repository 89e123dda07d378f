"""The atoms that each block's dual point is a convex combination of.

An atom of block b is a point s of its polytope with a height l <= h_b(s): the lifted polytope's
corners are such pairs.  A set holds mu_b = sum_a weight_a s_a and t_b = sum_a weight_a l_a, which
h_b, being concave, is no less than.  Atoms of weight zero are a cache of the oracle's answers.
"""

import numpy as np

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from fastm4n.outputs._base cimport label_t
from fastm4n.surrogates._base cimport Surrogate

cdef enum:
    FIRST_ROOM = 4
    # bytes of a vector's entry: its value and its place
    ENTRY = 12

cdef class ActiveSets:
    """One set of atoms for each block.

    Content is kept in bytes: the labels of an output in 16 bits each, or the values and the
    places of a vector's non-zeros.

    Parameters
    ----------
    n_blocks : int
    max_parts, max_size : int
        Most parts of a block, and its largest number of dual variables.
    limit : int
        Most atoms of a set.  Where there would be more, atoms without weight go, those not used
        for longest first; and then the two of least weight are merged into their combination,
        which is an atom as well.
    keeps_unused : bool
        Whether atoms of weight zero are kept, up to the limit.
    """

    def __cinit__(self, Py_ssize_t n_blocks, Py_ssize_t max_parts, Py_ssize_t max_size, int limit,
                  bint keeps_unused):
        self.n_blocks = n_blocks
        self.limit = limit
        self.keeps_unused = keeps_unused
        self.dense = np.zeros(max_size)
        self.sets = <AtomSet*> calloc(max(1, n_blocks), sizeof(AtomSet))
        self.candidate = <char*> malloc(max(8, 2 * max_parts, ENTRY * max_size))
        if self.sets == NULL or self.candidate == NULL:
            raise MemoryError("no memory for active sets")

    def __dealloc__(self):
        cdef Py_ssize_t b
        if self.sets != NULL:
            for b in range(self.n_blocks):
                free(self.sets[b].atoms)
                free(self.sets[b].content)
        free(self.sets)
        free(self.candidate)

    # ------------------------------------------------------------------------- content

    cdef label_t* labels(self) noexcept nogil:
        """Room for the labels of an output to be offered."""
        return <label_t*> self.candidate

    cdef void offer_labelling(self, Py_ssize_t n_parts) noexcept nogil:
        """The output in `labels` is what `find_or_add` is to find."""
        self.candidate_length = <int> (2 * n_parts)
        self.candidate_is_labelling = True

    cdef void offer_vector(self, const double* vector, Py_ssize_t k) noexcept nogil:
        """The point `vector` of k numbers is what `find_or_add` is to find."""
        cdef Py_ssize_t j, n = 0
        cdef double* values = <double*> self.candidate
        cdef int* places
        for j in range(k):
            if vector[j] != 0.0:
                values[n] = vector[j]
                n += 1
        places = <int*> (self.candidate + 8 * n)
        n = 0
        for j in range(k):
            if vector[j] != 0.0:
                places[n] = <int> j
                n += 1
        self.candidate_length = <int> (ENTRY * n)
        self.candidate_is_labelling = False

    cdef int offer_truth(self, Surrogate surrogate, Py_ssize_t b) except -1 nogil:
        """phi(y_b) is what `find_or_add` is to find."""
        cdef Py_ssize_t T
        if surrogate.has_labellings:
            T = surrogate.outputs.layout.n_parts(b)
            memcpy(self.labels(), surrogate.outputs.true_labels(b), T * sizeof(label_t))
            self.offer_labelling(T)
        else:
            surrogate.truth(b, &self.dense[0])
            self.offer_vector(&self.dense[0], surrogate.size(b))
        return 0

    cdef int find_or_add(self, Surrogate surrogate, Py_ssize_t b, double height) except -1 nogil:
        """Number of the atom that was offered; it is added with weight zero where it is new.

        Of two heights of one point the larger is kept: `pruned` then tells, as where atoms have
        gone, that scores are not those of before.
        """
        cdef AtomSet* held = &self.sets[b]
        cdef Atom* atom
        cdef int i, length = self.candidate_length
        cdef uint64_t hash = hash_of(self.candidate, length)
        cdef Py_ssize_t padded = (length + 7) & ~7, room
        cdef void* grown
        self.pruned = False
        for i in range(held.count):
            atom = &held.atoms[i]
            if (atom.hash == hash and atom.length == length
                    and atom.is_labelling == self.candidate_is_labelling
                    and memcmp(held.content + atom.start, self.candidate, length) == 0):
                if height > atom.height:
                    atom.height = height
                    self.pruned = True
                return i
        if held.count >= self.limit:
            self.prune(surrogate, b, self.limit - 1)
            self.pruned = True
        if held.count == held.room:
            room = max(FIRST_ROOM, 2 * held.room)
            grown = realloc(held.atoms, room * sizeof(Atom))
            if grown == NULL:
                with gil:
                    raise MemoryError("no memory for active sets")
            held.atoms = <Atom*> grown
            held.room = <int> room
        if held.content_size + padded > held.content_room:
            room = max(FIRST_ROOM * padded, 2 * held.content_room)
            grown = realloc(held.content, room)
            if grown == NULL:
                with gil:
                    raise MemoryError("no memory for active sets")
            held.content = <char*> grown
            held.content_room = room
        atom = &held.atoms[held.count]
        atom.weight = 0.0
        atom.height = height
        atom.score = 0.0
        atom.hash = hash
        atom.used = self.clock
        atom.start = held.content_size
        atom.length = length
        atom.is_labelling = self.candidate_is_labelling
        if padded > 0:
            memset(held.content + held.content_size + padded - 8, 0, 8)
        memcpy(held.content + held.content_size, self.candidate, length)
        held.content_size += padded
        held.count += 1
        return held.count - 1

    cdef void remove(self, Py_ssize_t b, int which) noexcept nogil:
        cdef AtomSet* held = &self.sets[b]
        cdef Py_ssize_t start = held.atoms[which].start
        cdef Py_ssize_t padded = (held.atoms[which].length + 7) & ~7
        cdef int i
        memmove(held.content + start, held.content + start + padded,
                held.content_size - start - padded)
        held.content_size -= padded
        for i in range(which + 1, held.count):
            held.atoms[i - 1] = held.atoms[i]
            held.atoms[i - 1].start -= padded
        held.count -= 1

    cdef void remove_unused(self, Py_ssize_t b) noexcept nogil:
        """Remove the atoms without weight."""
        cdef int i
        for i in range(self.sets[b].count - 1, -1, -1):
            if self.sets[b].atoms[i].weight == 0.0:
                self.remove(b, i)

    cdef int prune(self, Surrogate surrogate, Py_ssize_t b, int keep) except -1 nogil:
        """Leave at most `keep` atoms, one at least: mu_b stays what it is."""
        cdef AtomSet* held = &self.sets[b]
        cdef int i, oldest, first, second
        while held.count > max(1, keep):
            oldest = first = second = -1
            for i in range(held.count):
                if held.atoms[i].weight == 0.0:
                    if oldest < 0 or held.atoms[i].used < held.atoms[oldest].used:
                        oldest = i
                elif first < 0 or held.atoms[i].weight < held.atoms[first].weight:
                    second, first = first, i
                elif second < 0 or held.atoms[i].weight < held.atoms[second].weight:
                    second = i
            if oldest >= 0:
                self.remove(b, oldest)
                continue
            self.merge(surrogate, b, min(first, second), max(first, second))
        return 0

    cdef int merge(self, Surrogate surrogate, Py_ssize_t b, int first, int second) except -1 nogil:
        """Put the combination of two atoms, first < second, in their place."""
        cdef AtomSet* held = &self.sets[b]
        cdef double weight = held.atoms[first].weight + held.atoms[second].weight
        cdef double share = held.atoms[first].weight / weight, height
        cdef int length = self.candidate_length
        cdef bint is_labelling = self.candidate_is_labelling
        cdef Py_ssize_t k = surrogate.size(b)
        cdef char* offered = self.candidate
        cdef char* other = <char*> malloc(max(8, ENTRY * k))
        if other == NULL:
            with gil:
                raise MemoryError("no memory for active sets")
        height = share * held.atoms[first].height + (1.0 - share) * held.atoms[second].height
        memset(&self.dense[0], 0, k * sizeof(double))
        self.add_atom(surrogate, b, first, share, &self.dense[0])
        self.add_atom(surrogate, b, second, 1.0 - share, &self.dense[0])
        self.remove(b, second)
        self.remove(b, first)
        self.candidate = other
        self.offer_vector(&self.dense[0], k)
        # two atoms have gone: there is room, and no atom like it
        held.atoms[self.find_or_add(surrogate, b, height)].weight += weight
        self.candidate = offered
        self.candidate_length = length
        self.candidate_is_labelling = is_labelling
        free(other)
        return 0

    # -------------------------------------------------------------------------- points

    cdef void score(self, Surrogate surrogate, Py_ssize_t b, const double* v) noexcept nogil:
        """Score the atoms of b.

        current = t_b + <v, mu_b>; best = the atom of highest score, worst = that of the
        lowest score among those with weight.
        """
        cdef AtomSet* held = &self.sets[b]
        cdef Atom* atom
        cdef const double* values
        cdef const int* places
        cdef int i, j, n
        cdef double total
        self.current = 0.0
        self.best = self.worst = -1
        for i in range(held.count):
            atom = &held.atoms[i]
            if atom.is_labelling:
                total = surrogate.outputs.score(b, <const label_t*> (held.content + atom.start), v)
            else:
                n = atom.length // ENTRY
                values = <const double*> (held.content + atom.start)
                places = <const int*> (held.content + atom.start + 8 * n)
                total = 0.0
                for j in range(n):
                    total += values[j] * v[places[j]]
            atom.score = total + atom.height
            self.current += atom.weight * atom.score
            if self.best < 0 or atom.score > held.atoms[self.best].score:
                self.best = i
            if atom.weight > 0.0 and (self.worst < 0 or atom.score < held.atoms[self.worst].score):
                self.worst = i

    cdef void add_atom(
            self, Surrogate surrogate, Py_ssize_t b, int which, double weight,
            double* to) noexcept nogil:
        """to += weight times the atom."""
        cdef AtomSet* held = &self.sets[b]
        cdef Atom* atom = &held.atoms[which]
        cdef const double* values
        cdef const int* places
        cdef int j, n
        if atom.is_labelling:
            surrogate.outputs.add(b, <const label_t*> (held.content + atom.start), weight, to)
        else:
            n = atom.length // ENTRY
            values = <const double*> (held.content + atom.start)
            places = <const int*> (held.content + atom.start + 8 * n)
            for j in range(n):
                to[places[j]] += weight * values[j]

    cdef void combine(self, Surrogate surrogate, Py_ssize_t b, double* to) noexcept nogil:
        """to = mu_b."""
        cdef int i
        memset(to, 0, surrogate.size(b) * sizeof(double))
        for i in range(self.sets[b].count):
            if self.sets[b].atoms[i].weight > 0.0:
                self.add_atom(surrogate, b, i, self.sets[b].atoms[i].weight, to)

    cdef double height(self, Py_ssize_t b) noexcept nogil:
        """t_b."""
        cdef int i
        cdef double total = 0.0
        for i in range(self.sets[b].count):
            total += self.sets[b].atoms[i].weight * self.sets[b].atoms[i].height
        return total

    cdef void scale(self, Py_ssize_t b, double factor) noexcept nogil:
        """Multiply all weights."""
        cdef int i
        for i in range(self.sets[b].count):
            self.sets[b].atoms[i].weight *= factor

    # --------------------------------------------------------------------------- whole

    def start(self, Surrogate surrogate, const double[::1] mu, const double[::1] heights):
        """Begin at the dual point mu, of which heights[b] <= h_b(mu_b).

        phi(y_b) is the first atom of each set.  Another point is an atom itself; where an output
        is a single label, its labels are.
        """
        cdef Py_ssize_t b, j, k, offset
        cdef label_t* labels = self.labels()
        cdef int i
        cdef bint at_truth, one_part
        with nogil:
            for b in range(self.n_blocks):
                offset, k = surrogate.offset(b), surrogate.size(b)
                self.sets[b].count = 0
                self.sets[b].content_size = 0
                surrogate.truth(b, &self.dense[0])
                at_truth = memcmp(&self.dense[0], &mu[offset], k * sizeof(double)) == 0
                one_part = surrogate.outputs.layout.max_parts == 1
                if surrogate.has_labellings and one_part and not at_truth:
                    for j in range(k):
                        if mu[offset + j] > 0.0:
                            labels[0] = <label_t> j
                            self.offer_labelling(1)
                            i = self.find_or_add(
                                surrogate, b, surrogate.labelling_height(b, labels))
                            self.sets[b].atoms[i].weight = mu[offset + j]
                    continue
                self.offer_truth(surrogate, b)
                i = self.find_or_add(surrogate, b, 0.0)
                self.sets[b].atoms[i].weight = 1.0 if at_truth else 0.0
                if not at_truth:
                    self.offer_vector(&mu[offset], k)
                    i = self.find_or_add(surrogate, b, heights[b])
                    self.sets[b].atoms[i].weight = 1.0

    def shrink(self, Surrogate surrogate, double factor):
        """Move each mu_b to phi(y_b) + factor (mu_b - phi(y_b))."""
        cdef Py_ssize_t b
        cdef int i
        with nogil:
            for b in range(self.n_blocks):
                self.scale(b, factor)
                self.offer_truth(surrogate, b)
                i = self.find_or_add(surrogate, b, 0.0)
                self.sets[b].atoms[i].weight += 1.0 - factor

    def normalise(self):
        """Make the weights of each set sum to one again, after many roundings."""
        cdef Py_ssize_t b
        cdef int i
        cdef double total
        with nogil:
            for b in range(self.n_blocks):
                total = 0.0
                for i in range(self.sets[b].count):
                    total += self.sets[b].atoms[i].weight
                if total > 0.0:
                    self.scale(b, 1.0 / total)

    def counts(self):
        """Numbers of atoms with weight, and without, of each block."""
        cdef Py_ssize_t b
        cdef int i
        cdef Py_ssize_t[:, ::1] out = np.zeros((self.n_blocks, 2), dtype=np.intp)
        for b in range(self.n_blocks):
            for i in range(self.sets[b].count):
                out[b, 0 if self.sets[b].atoms[i].weight > 0.0 else 1] += 1
        return np.asarray(out)

    def n_bytes(self):
        """Memory held, in bytes."""
        cdef Py_ssize_t b, total = 0
        for b in range(self.n_blocks):
            total += sizeof(AtomSet) + self.sets[b].room * sizeof(Atom) + self.sets[b].content_room
        return total

    def state(self):
        """All atoms as arrays: their numbers by block, what is known of them, their content."""
        cdef Py_ssize_t b, n = 0, size = 0, at = 0, place = 0
        cdef int i
        cdef AtomSet* held
        cdef Py_ssize_t[::1] counts = np.zeros(self.n_blocks, dtype=np.intp)
        cdef Py_ssize_t[::1] hits = np.zeros(self.n_blocks, dtype=np.intp)
        for b in range(self.n_blocks):
            counts[b], hits[b] = self.sets[b].count, self.sets[b].hits
            n += self.sets[b].count
            size += self.sets[b].content_size
        cdef double[::1] weight = np.zeros(n), height = np.zeros(n)
        cdef long long[::1] used = np.zeros(n, dtype=np.int64)
        cdef int[::1] length = np.zeros(n, dtype=np.intc)
        cdef unsigned char[::1] is_labelling = np.zeros(n, dtype=np.uint8)
        cdef unsigned char[::1] content = np.zeros(size, dtype=np.uint8)
        with nogil:
            for b in range(self.n_blocks):
                held = &self.sets[b]
                for i in range(held.count):
                    weight[at] = held.atoms[i].weight
                    height[at] = held.atoms[i].height
                    used[at] = held.atoms[i].used
                    length[at] = held.atoms[i].length
                    is_labelling[at] = held.atoms[i].is_labelling
                    at += 1
                if held.content_size:
                    memcpy(&content[place], held.content, held.content_size)
                    place += held.content_size
        return {
            "counts": np.asarray(counts), "hits": np.asarray(hits), "weight": np.asarray(weight),
            "height": np.asarray(height), "used": np.asarray(used), "length": np.asarray(length),
            "is_labelling": np.asarray(is_labelling), "content": np.asarray(content),
            "clock": np.array([self.clock]),
            "limits": np.array([self.limit, self.keeps_unused], dtype=np.int64),
        }

    def restore(self, Surrogate surrogate, state):
        """Bring back what `state` gave; a ValueError if it is no state of these blocks."""
        cdef Py_ssize_t b, _j, at = 0, place = 0
        cdef int i, limit = self.limit
        cdef const Py_ssize_t[::1] counts = state["counts"]
        cdef const Py_ssize_t[::1] hits = state["hits"]
        cdef const double[::1] weight = state["weight"]
        cdef const double[::1] height = state["height"]
        cdef const long long[::1] used = state["used"]
        cdef const int[::1] length = state["length"]
        cdef const unsigned char[::1] is_labelling = state["is_labelling"]
        cdef const unsigned char[::1] content = state["content"]
        self.clock = int(state["clock"][0])
        self._check(surrogate, state)
        # a limit that has come down holds for a set from when the next atom is added to it
        self.limit = max(limit, np.max(counts, initial=0))
        with nogil:
            for b in range(self.n_blocks):
                self.sets[b].count = 0
                self.sets[b].content_size = 0
                self.sets[b].hits = <int> hits[b]
                for _j in range(counts[b]):
                    if length[at]:
                        memcpy(self.candidate, &content[place], length[at])
                    self.candidate_length = length[at]
                    self.candidate_is_labelling = is_labelling[at]
                    place += (length[at] + 7) & ~7
                    i = self.find_or_add(surrogate, b, height[at])
                    self.sets[b].atoms[i].weight = weight[at]
                    self.sets[b].atoms[i].used = used[at]
                    at += 1
        self.limit = limit

    def _check(self, Surrogate surrogate, state):
        """Refuse a state whose content cannot be read as atoms of these blocks."""
        cdef Py_ssize_t j, at, place = 0, n, most
        cdef const char* atom
        cdef const int[::1] length = state["length"]
        cdef const unsigned char[::1] is_labelling = state["is_labelling"]
        cdef const unsigned char[::1] content = state["content"]
        cdef const Py_ssize_t[::1] block
        counts, weight, n = state["counts"], state["weight"], length.shape[0]
        of_atoms = ("weight", "height", "used", "is_labelling")
        if (
            counts.size != self.n_blocks or state["hits"].size != self.n_blocks
            or any(state[name].size != n for name in of_atoms)
            or not np.all((counts >= 1) & (counts <= n)) or counts.sum() != n
        ):
            raise ValueError("sets are not of as many atoms as they count.")
        block = blocks = np.repeat(np.arange(self.n_blocks), counts)
        if not (np.all(weight >= 0.0) and np.all(np.isfinite(weight))
                and np.all(np.bincount(blocks, weight) > 0.0)):
            raise ValueError("weights of atoms are not those of a convex combination.")
        if np.isnan(state["height"]).any():
            raise ValueError("the height of an atom is not a number.")
        for at in range(n):
            if is_labelling[at]:
                most = 2 * surrogate.outputs.layout.n_parts(block[at])
                fits = length[at] == most
            else:
                most = ENTRY * surrogate.size(block[at])
                fits = 0 <= length[at] <= most and length[at] % ENTRY == 0
            if not fits or place + ((length[at] + 7) & ~7) > content.shape[0]:
                raise ValueError(f"atom {at} has {length[at]} bytes, which none of its block has.")
            if not length[at]:
                continue
            atom = <const char*> &content[place]
            if is_labelling[at]:
                most = surrogate.outputs.layout.n_choices(block[at])
                for j in range(length[at] // 2):
                    fits = fits and (<const label_t*> atom)[j] < most
            else:
                most = surrogate.size(block[at])
                for j in range(length[at] // ENTRY):
                    fits = fits and 0 <= (<const int*> (atom + 8 * (length[at] // ENTRY)))[j] < most
            if not fits:
                raise ValueError(f"atom {at} is outside of the scores of its block.")
            place += (length[at] + 7) & ~7
        if place != content.shape[0]:
            raise ValueError("sets have content that belongs to no atom.")


cdef uint64_t hash_of(const char* content, int length) noexcept nogil:
    """FNV-1a, eight bytes at a time."""
    cdef uint64_t hash = 14695981039346656037ULL, word
    cdef int at = 0
    while at < length:
        word = 0
        memcpy(&word, content + at, min(8, length - at))
        hash = (hash ^ word) * <uint64_t> 1099511628211ULL
        hash ^= hash >> 29
        at += 8
    return hash
