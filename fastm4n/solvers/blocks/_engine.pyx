"""The block-coordinate engine: its atoms, its state, its steps.

One module: a step changes atoms and state in one loop without the GIL.
"""

import numpy as np

from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch
from fastm4n.base.interrupts cimport look_at
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace, label_t
from fastm4n.surrogates._base cimport Surrogate, error_of_height

from fastm4n.base.arrays import checked, flat, formed, part
from fastm4n.base.threads import in_threads


# The atoms that each block's dual point is a convex combination of.
#
# An atom of block b is a point s of its polytope with a height l <= h_b(s): the lifted polytope's
# corners are such pairs.  A set holds mu_b = sum_a weight_a s_a and t_b = sum_a weight_a l_a,
# which h_b, being concave, is no less than.  Atoms of weight zero are a cache of the oracle's
# answers.

cdef enum:
    FIRST_ROOM = 4
    # bytes of a vector's entry: its value and its place
    ENTRY = 12

cdef class ActiveSets:
    """One set of atoms for each block.

    Content is stored in bytes: the labels of an output in 16 bits each, or the values and the
    places of a vector's non-zeros.

    Parameters
    ----------
    n_blocks : int
    max_parts, max_size : int
        Most parts of a block, and its largest number of dual variables.
    limit : int
        Most atoms of a set. Beyond the limit, atoms without weight are removed first, the longest
        unused first. Then the two of least weight are merged into their combination, which is an
        atom as well.
    keeps_unused : bool
        Whether atoms of weight zero stay, up to the limit.
    owner : ActiveSets, default=None
        Whose sets these are, with scratch of their own: those of another thread.
    """

    def __cinit__(self, Py_ssize_t n_blocks, Py_ssize_t max_parts, Py_ssize_t max_size, int limit,
                  bint keeps_unused, ActiveSets owner=None):
        self.owner = owner
        self.n_blocks = n_blocks
        self.limit = limit
        self.keeps_unused = keeps_unused
        self.dense = np.zeros(max_size)
        if owner is None:
            self.sets = <AtomSet*> calloc(max(1, n_blocks), sizeof(AtomSet))
        else:
            self.sets = owner.sets
        self.candidate = <char*> malloc(max(8, 2 * max_parts, ENTRY * max_size))
        if self.sets == NULL or self.candidate == NULL:
            raise MemoryError("no memory for active sets")

    def __dealloc__(self):
        cdef Py_ssize_t b
        free(self.candidate)
        if self.sets == NULL or self.owner is not None:
            return
        for b in range(self.n_blocks):
            free(self.sets[b].atoms)
            free(self.sets[b].content)
        free(self.sets)

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
        """The truth, phi(y_b) or the target, is what `find_or_add` is to find."""
        cdef Py_ssize_t T
        if surrogate.has_labellings and surrogate.outputs.soft == NULL:
            T = surrogate.outputs.layout.n_parts(b)
            memcpy(self.labels(), surrogate.outputs.true_labels(b), T * sizeof(label_t))
            self.offer_labelling(T)
        else:
            surrogate.truth(b, &self.dense[0])
            self.offer_vector(&self.dense[0], surrogate.size(b))
        return 0

    cdef int find_or_add(self, Surrogate surrogate, Py_ssize_t b, double height) except -1 nogil:
        """Number of the new or known atom. A new one has weight zero.

        Of two heights of one point the larger stays: `pruned` then signals, as after removals, that
        old scores are invalid.
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
        atom.used = self.now
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
        """Reduce to at most `keep` atoms, at least one. mu_b does not change."""
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

        current = t_b + <v, mu_b>. best = the atom of highest score, worst = the one of lowest score
        with positive weight.
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

        phi(y_b) is the first atom of each set. Another point is an atom itself. If an output is a
        single label, its labels are. An empty mu is phi(y).
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
                # a soft target is a point like others
                at_truth = surrogate.outputs.soft == NULL and (not mu.shape[0] or memcmp(
                    &self.dense[0], &mu[offset], k * sizeof(double)) == 0)
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

    cdef void normalise(self, Py_ssize_t b) noexcept nogil:
        """Make the weights of b sum to one again, after many roundings."""
        cdef int i
        cdef double total = 0.0
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
        """All atoms as arrays: their numbers by block, heights and ages, and content."""
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
            "limits": np.array([self.limit, self.keeps_unused], dtype=np.int64),
        }

    def restore(self, Surrogate surrogate, state):
        """Restore a result of `state`. A ValueError if it does not fit these blocks."""
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


# The state of a fit: the dual point and the weights, and what moves them from outside a pass.
#
# With active sets the dual point is held as combinations of atoms, and gathered where a
# certificate needs it.

cdef enum:
    # most calls of an oracle for the largest h_b
    LARGEST_CALLS = 10

# an average is taken over to an alpha that is at most so much larger
cdef double FAR = 2.0

# a block's dual value that is above its primal one by more than this share of their terms is wrong;
# terms that are less count as much, as closed forms add and subtract costs of one
cdef double INCONSISTENT = 1e-9, LEAST_TERMS = 1e-3

# how exactly the largest h_b is found, relative to it
cdef double LARGEST_ERROR = 1e-4


cdef class EngineState:
    """Dual point, weights and stale gaps of a fit. `BlockCoordinateEngine` has the passes.

    Parameters
    ----------
    surrogate : Surrogate
    features : FeatureMap
        Holding w = 0.
    weights : ndarray of shape (n_blocks,)
        p_b > 0, summing to one.
    alpha : float
        Regularisation.
    seed : int
        Seed of the engine's own generator (SplitMix64), below 2**64.
    averaging : bool
        Whether to keep the weighted average of the iterates that the fixed step needs.
    mu : ndarray of float64, default=None
        Memory for the dual point, flat and writable, such as a memory map. It is set to phi(y). By
        default the engine takes its own.
    is_told : bool
        Whether the dual point is computed on demand instead of stored: by the surrogate, which has
        `has_points`, or of atoms, where outputs are listing. The dual point is then that of the
        passes, and nothing else moves it.

    Attributes
    ----------
    certificate_error : float
        Share of the gap that inexact oracles may add to a certificate. 0 for the least possible.
    """

    def __init__(self, Surrogate surrogate, FeatureMap features, weights, double alpha, seed,
                 bint averaging=False, mu=None, bint is_told=False):
        cdef Py_ssize_t b, n = surrogate.n_blocks, size, n_leaves
        surrogate.check()
        if features.n_blocks != n or features.size < surrogate.max_size:
            raise ValueError(
                f"{type(features).__name__} has {features.n_blocks} blocks of at most "
                f"{features.size} scores, but {type(surrogate.outputs).__name__} has {n} of at "
                f"most {surrogate.max_size}.")
        self.surrogate = surrogate
        self.features = features
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.alpha = alpha
        size = 0 if n == 0 else surrogate.offset(n - 1) + surrogate.size(n - 1)
        if is_told and not (surrogate.has_points or surrogate.outputs.is_listing):
            raise ValueError(f"{type(surrogate).__name__} does not tell dual points.")
        self.is_told = is_told
        if is_told:
            mu = np.zeros(0)
        elif mu is None:
            mu = np.zeros(size)
        elif mu.dtype != np.float64 or mu.shape != (size,) or not (
                mu.flags.c_contiguous and mu.flags.writeable and mu.flags.aligned):
            raise ValueError(
                f"mu must be a flat, writable array of {size} float64 numbers, got shape "
                f"{mu.shape} of {mu.dtype}.")
        self.mu_ = mu
        for b in range(0 if is_told else n):
            surrogate.truth(b, &self.mu_[surrogate.offset(b)])
        self.t = np.zeros(n)
        self.gaps = np.zeros(n)
        self.losses = np.zeros(n)
        self.order = np.arange(n, dtype=np.intp)
        n_leaves, self.first_leaf = 1, 0
        while n_leaves < n:
            self.first_leaf += n_leaves
            n_leaves *= 4
        # whole families of children; no more leaves than that are looked at
        self.tree = np.zeros(self.first_leaf + 4 * max(1, (n + 3) // 4))
        self.random_state = seed
        self.averaging = averaging
        if averaging:
            self.mu_sum = np.zeros(size)
            self.since = np.ones(n, dtype=np.int64)
        self.work = surrogate.workspace(features.size)
        if surrogate.outputs.target is not None and not is_told:
            self.concave_of(self.mu_, self.t)
        self.refreshed_gap = INFINITY

    # -------------------------------------------------------------------- active sets

    def use_active_sets(self, int limit, bint keeps_unused=False, double cache_F=0.25,
                        double cache_nu=0.01):
        """Hold the dual point as combinations of at most `limit` atoms a block from now on.

        With keeps_unused, a visit skips the oracle if the best stored atom gains enough: cache_F of
        the block's last gap, and cache_nu of the mean of all.
        """
        self.drop_active_sets()
        surrogate = self.surrogate
        self.sets = self.room_for_sets(limit, False)
        self.sets.start(surrogate, self.mu_, self.t)
        self.is_active = True
        if keeps_unused:
            self.set_cache(limit, cache_F, cache_nu)

    def room_for_sets(self, int limit, bint keeps_unused, ActiveSets owner=None):
        """`ActiveSets` of the blocks, without atoms, or another's."""
        surrogate = self.surrogate
        return ActiveSets(
            surrogate.n_blocks, surrogate.outputs.layout.max_parts, surrogate.max_size, limit,
            keeps_unused, owner)

    def sets_of_threads(self, Py_ssize_t n_threads):
        """The sets for each of so many threads that visit different blocks. None without sets."""
        sets = self.sets
        if sets is None:
            return [None] * n_threads
        return [sets] + [
            self.room_for_sets(sets.limit, sets.keeps_unused, sets) for _ in range(1, n_threads)]

    def set_cache(self, int limit, double cache_F, double cache_nu):
        """Keep atoms without weight as well from now on, up to `limit` atoms a block."""
        self.sets.limit = limit
        self.sets.keeps_unused = True
        self.cache_F, self.cache_nu = cache_F, cache_nu

    def drop_cache(self, int limit):
        """Ask the oracle at each visit from now on, and keep up to `limit` atoms with weight."""
        self.sets.limit = limit
        self.sets.keeps_unused = False

    def drop_active_sets(self):
        """Hold the dual point itself from now on."""
        if self.is_active:
            self.gather()
            self.is_active = False
            self.sets = None

    # ------------------------------------------------------------------- acceleration

    def set_kappa(self, double kappa):
        """Make steps under the further penalty kappa / 2 ||w - y||^2, the feature map holding

        (alpha w(mu) + kappa y) / (alpha + kappa).
        """
        self.kappa = kappa

    def measure_curvature(self):
        """Set `curvature`, unless it was set before."""
        if self.curvature == 0.0 and self.n_curvatures:
            self.curvature = self.curvatures / self.n_curvatures

    def take_average(self, state, double curvature, double alpha):
        """Begin from mu with the weights of accelerated passes. See `Acceleration`.

        Unless they are of other features, or of an alpha so much smaller that w(mu) is nearer to
        the optimum. For an alpha that has become larger they shrink, as w(mu) does.
        """
        if self.alpha > FAR * alpha:
            return
        now = self.features.state()
        try:
            self.features.restore(state)
        except (KeyError, ValueError):
            self.features.restore(now)
            return
        self.features.scale(min(1.0, alpha / self.alpha))
        self.curvature = curvature
        self.holds_average = True

    cdef int gather(self, n_jobs=1) except -1:
        """mu and t of the combinations of atoms."""
        cdef Py_ssize_t n = self.gaps.shape[0]
        if self.is_active:
            in_threads(self.gather_range, n, 50 * n * self.surrogate.max_size, n_jobs)
        return 0

    def gather_range(self, Py_ssize_t start, Py_ssize_t stop):
        """`gather` of the blocks start ... stop - 1. Safe from several threads at once."""
        cdef Surrogate surrogate = self.surrogate
        cdef ActiveSets sets = self.sets
        cdef Workspace work = surrogate.workspace(self.features.size)
        cdef Py_ssize_t b
        with nogil:
            for b in range(start, stop):
                sets.normalise(b)
                if not self.is_told:
                    sets.combine(surrogate, b, &self.mu_[surrogate.offset(b)])
                self.t[b] = sets.height(b)
                surrogate.concave(
                    b, self.dual(surrogate, work, b, self.mu_), work, &self.t[b])
        return 0

    # --------------------------------------------------------------------- certificate

    def certify_range(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] mu,
                      double[::1] loss, double[::1] gap, double[::1] concave,
                      double[::1] inner, double[::1] shift):
        """Terms of the certificate at w and mu for the blocks start ... stop - 1.

        loss[b] = max_m h_b(m) + <v, m> - <v, phi(y_b)>, bounded from above. gap[b] = that maximum -
        h_b(mu_b) - <v, mu_b>, zero if rounding alone makes it negative. concave[b] = h_b(mu_b), or
        its lower bound on entry if mu_b does not determine h_b. inner[b] = <v, phi(y_b) - mu_b>,
        and shift[b] the offset's part of it. Either may be empty to skip it. Safe from several
        threads at once after `settle`, for disjoint ranges.

        Returns
        -------
        largest : float
            The largest of the terms that are subtracted: what rounding is relative to.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = surrogate.workspace(features.size)
        cdef Py_ssize_t b
        cdef const double* dual
        cdef double upper, truth, score, terms, largest = 0.0
        work.tolerance = self.certificate_error
        with nogil:
            for b in range(start, stop):
                look_at(b)
                features.scores(b, work.scores)
                dual = self.dual(surrogate, work, b, mu)
                surrogate.concave(b, dual, work, &concave[b])
                score = features.loops.dot(&work.scores[0], dual, surrogate.size(b))
                work.current = concave[b] + score
                surrogate.bound(b, work, &upper)
                truth = surrogate.true_score(b, &work.scores[0])
                loss[b] = upper - truth
                if inner.shape[0]:
                    inner[b] = truth - score
                if shift.shape[0]:
                    shift[b] = 0.0
                if shift.shape[0] and features.has_offset:
                    shift[b] = surrogate.true_score(b, features.offset_of(b))
                    shift[b] -= features.loops.dot(
                        features.offset_of(b), dual, surrogate.size(b))
                gap[b] = upper - score - concave[b]
                terms = fabs(upper) + fabs(score) + fabs(concave[b]) + sqrt(features.loops.dot(
                    &work.scores[0], &work.scores[0], surrogate.size(b)))
                if not gap[b] < -INCONSISTENT * (LEAST_TERMS + terms):
                    gap[b] = max(0.0, gap[b])
                largest = max(largest, terms, fabs(truth))
        return largest

    def concave_of(self, const double[::1] mu, double[::1] concave):
        """concave[b] = h_b(mu_b), or its lower bound on entry if h_b is not known

        from mu_b.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef Workspace work = self.work
        cdef Py_ssize_t b
        if mu.shape[0] != self.mu_.shape[0] or concave.shape[0] != self.t.shape[0]:
            raise ValueError("mu or concave is of another problem.")
        with nogil:
            for b in range(self.t.shape[0]):
                look_at(b)
                surrogate.concave(b, &mu[surrogate.offset(b)], work, &concave[b])

    def settle(self, n_jobs=1):
        """Make mu, t and w ready to be looked at: by several threads, if need be."""
        self.gather(n_jobs)
        self.features.settle()

    def set_gaps(self, const double[::1] gap, const double[::1] loss):
        """Replace the stale gaps and losses, after a full pass over them."""
        self.gaps[:] = gap
        self.losses[:] = loss
        self.refreshed_gap = self.stale_gap()

    def stale_gap(self):
        """sum_b p_b g_b with each g_b as it was when its block was last looked at."""
        return float(np.sum(np.multiply(self.weights, self.gaps)))

    # --------------------------------------------------------------------- dual points

    @property
    def mu(self):
        """The dual point, a flat view. With active sets, its state at the last `settle`.

        Empty if the surrogate computes it. Arguments that expect a dual point then use the
        surrogate's.
        """
        return np.asarray(self.mu_)

    def averaged_mu(self):
        """The average of the iterates 1 ... n_visits with weights proportional to those numbers."""
        cdef Py_ssize_t b, j, offset
        cdef double total = 0.5 * (<double> self.n_visits * (self.n_visits + 1)), rest
        if self.n_visits == 0:
            return np.array(self.mu_)
        average = np.array(self.mu_sum)
        cdef double[::1] out = average
        for b in range(self.gaps.shape[0]):
            offset = self.surrogate.offset(b)
            rest = total - 0.5 * <double> self.since[b] * (self.since[b] - 1)
            for j in range(self.surrogate.size(b)):
                out[offset + j] = (out[offset + j] + rest * self.mu_[offset + j]) / total
        return average

    @property
    def concave(self):
        """t_b = h_b(mu_b), or a lower bound of it, for each block: a view."""
        return np.asarray(self.t)

    @property
    def block_gaps(self):
        """The gap of each block when it was last looked at: a view."""
        return np.asarray(self.gaps)

    @property
    def block_losses(self):
        """The loss of each block, bounded from above, when it was last looked at: a view."""
        return np.asarray(self.losses)

    def at_truth(self):
        """An engine of the same problem at the truth with the same feature map."""
        return type(self)(self.surrogate, self.features, self.weights, self.alpha, 0)

    def set_mu(self, const double[::1] mu, const double[::1] concave=None, double shrink=1.0):
        """Move to the dual point phi(y) + shrink (mu - phi(y)): t and w follow.

        concave: lower bounds of h_b at mu, for surrogates that cannot compute it from mu. After
        shrinking they hold at the new point, as h_b is concave and not negative at phi(y).
        """
        self.mu_[:] = mu
        if concave is not None:
            self.t[:] = concave
        self.draw_to_truth(shrink)
        self.rebuild_weights(self.mu_)

    cdef int draw_to_truth(self, double shrink) except -1:
        """Move to phi(y) + shrink (mu - phi(y)). t, of the old point, follows, but w does not."""
        cdef Surrogate surrogate = self.surrogate
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        with nogil:
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                if shrink != 1.0:
                    surrogate.truth(b, &work.step[0])
                    for j in range(surrogate.size(b)):
                        self.mu_[offset + j] = (
                            work.step[j] + shrink * (self.mu_[offset + j] - work.step[j]))
                    self.t[b] *= shrink
                surrogate.concave(b, &self.mu_[offset], work, &self.t[b])
        return 0

    def set_alpha(self, double alpha, shrink=None):
        """Go on under another alpha, from phi(y) + shrink (mu - phi(y)). t and w follow.

        By default shrink is rho = alpha / old alpha, or 1 for a larger alpha. At rho, w does not
        change by a bit. A block's gap is at most rho times its old value + (1 - rho) times its
        loss, which becomes its stale gap.
        """
        cdef Py_ssize_t b
        cdef double rho = alpha / self.alpha
        cdef double by = min(1.0, rho) if shrink is None else shrink
        self.settle()
        if by != rho:
            self.features.scale(by / rho)
        if by != 1.0:
            if self.is_active:
                self.sets.shrink(self.surrogate, by)
            self.draw_to_truth(by)
            for b in range(self.gaps.shape[0]):
                self.gaps[b] = by * self.gaps[b] + (1.0 - by) * self.losses[b]
        self.alpha = alpha

    def set_largest_concave(self):
        """Move to the dual points of largest h_b, best for an infinite alpha. t and w follow.

        Fixed scores of the features count in h_b. Returns upper bounds of the largest h_b, which
        are the losses at w = 0.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset, attempt
        cdef double lower, upper
        cdef bint is_fixed = features.base_layout is not None
        bounds = np.zeros(self.gaps.shape[0])
        cdef double[::1] bound = bounds
        with nogil:
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                self.t[b] = 0.0
                # an inexact oracle stops by what is left to gain: it has to be asked again
                for attempt in range(LARGEST_CALLS):
                    for j in range(work.scores.shape[0]):
                        work.scores[j] = 0.0
                    if is_fixed:
                        memcpy(&work.scores[0], features.offset_of(b),
                               surrogate.size(b) * sizeof(double))
                    work.current = self.t[b]
                    surrogate.oracle(b, work, &lower, &upper)
                    if attempt == 0 or lower > self.t[b]:
                        self.t[b] = lower
                        for j in range(surrogate.size(b)):
                            self.mu_[offset + j] = work.atom[j]
                    bound[b] = upper if attempt == 0 else min(upper, bound[b])
                    if bound[b] - self.t[b] <= LARGEST_ERROR * fabs(bound[b]):
                        break
                surrogate.concave(b, &self.mu_[offset], work, &self.t[b])
                if is_fixed:
                    bound[b] -= surrogate.true_score(b, features.offset_of(b))
        surrogate.rest(features.fixed_scores())
        if is_fixed and surrogate.has_natural_step:
            self.take_points()  # h_b without the fixed scores
            return bounds
        if self.is_active:
            self.sets.start(surrogate, self.mu_, self.t)
        self.rebuild_weights(self.mu_)
        return bounds

    def take_points(self):
        """Move to the dual points of the scores that the surrogate keeps. t and w follow."""
        cdef Surrogate surrogate = self.surrogate
        cdef Workspace work = self.work
        cdef Py_ssize_t b
        with nogil:
            for b in range(self.gaps.shape[0]):
                look_at(b)
                surrogate.propose(b, work, 0.0, &self.t[b])
                if not self.is_told:
                    memcpy(&self.mu_[surrogate.offset(b)], &work.atom[0],
                           surrogate.size(b) * sizeof(double))
        self.rebuild_weights(self.mu_)

    def state(self):
        """Copies of all that later passes depend on, for `restore`: a flat dict of named arrays.

        Nothing of the engine changes, but that kernel maps do the steps that they have put off.
        With active sets `mu` and `concave` are as they were when last gathered.
        `Acceleration.state` contains the further arrays of accelerated passes.
        """
        self.features.settle()
        numbers = (
            self.alpha, self.kappa, self.refreshed_gap, self.curvature, self.curvatures,
            self.gained, self.cache_F, self.cache_nu,
        )
        counts = (
            self.n_visits, self.oracle_calls, self.cache_hits, self.n_curvatures,
            self.holds_average,
        )
        state = {
            "mu": np.array(self.mu_),
            "concave": np.array(self.t),
            "gaps": np.array(self.gaps),
            "losses": np.array(self.losses),
            "order": np.array(self.order),
            "random_state": np.array([self.random_state], dtype=np.uint64),
            "numbers": np.array(numbers, dtype=np.float64),
            "counts": np.array(counts, dtype=np.int64),
            **flat("features", self.features.state()),
            **flat("surrogate", self.surrogate.state()),
        }
        if self.averaging:
            state.update(mu_sum=np.array(self.mu_sum), since=np.array(self.since))
        if self.is_active:
            state.update(flat("sets", self.sets.state()))
        return state

    def restore(self, state):
        """Bring back what `state` gave, to an engine of the same problem."""
        cdef ActiveSets sets
        views = {
            "mu": self.mu, "concave": self.concave, "gaps": np.asarray(self.gaps),
            "losses": np.asarray(self.losses), "order": np.asarray(self.order),
        }
        if self.averaging:
            views.update(mu_sum=np.asarray(self.mu_sum), since=np.asarray(self.since))
        arrays = {name: checked(to, name, state) for name, to in views.items()}
        if not np.array_equal(np.sort(arrays["order"]), np.arange(self.gaps.shape[0])):
            raise ValueError("order is no order of the blocks.")
        features = formed(self.features.state(), "features", state)
        surrogate = formed(self.surrogate.state(), "surrogate", state)
        of_sets = part("sets", state)
        numbers, counts = state["numbers"].tolist(), state["counts"].tolist()
        alpha, kappa = numbers[:2]
        if not (0.0 < alpha < INFINITY and 0.0 <= kappa < INFINITY):
            raise ValueError(f"alpha is {alpha} and kappa {kappa}.")
        for name, to in views.items():
            to[:] = arrays[name]
        self.random_state = int(state["random_state"][0])
        (
            self.alpha, self.kappa, self.refreshed_gap, self.curvature, self.curvatures,
            self.gained, self.cache_F, self.cache_nu,
        ) = numbers
        self.n_visits, self.oracle_calls, self.cache_hits, self.n_curvatures = counts[:4]
        self.holds_average = counts[4]
        self.features.restore(features)
        self.surrogate.restore(surrogate)
        self.sets, self.is_active = None, False
        if of_sets:
            limit, keeps_unused = of_sets["limits"].tolist()
            if limit < 1:
                raise ValueError("sets have no room for an atom.")
            sets = self.room_for_sets(limit, keeps_unused)
            sets.restore(self.surrogate, of_sets)
            self.sets, self.is_active = sets, True

    def rebuild_weights(self, const double[::1] mu, n_jobs=1):
        """w = w(mu), afresh: without the rounding that many updates leave.

        If interrupted, it restores w.
        """
        before = self.features.state()
        try:
            self.build_weights(mu, n_jobs)
        except BaseException:
            self.features.restore(before)
            raise

    def build_weights(self, const double[::1] mu, n_jobs=1):
        """w = w(mu), incomplete if a feature map is interrupted."""
        self.features.clear()
        self.features.collect()
        self.add_weights(mu, n_jobs)
        self.features.settle()

    def add_weights(self, const double[::1] mu, n_jobs=1):
        """w += w(mu): what the blocks of this engine make of it."""
        # each thread goes through all blocks: not where the dual point is computed for that
        cdef Py_ssize_t n_parts = 1 if self.is_told else self.features.n_parts()
        cost = self.gaps.shape[0] * self.features.visit_cost
        in_threads(self.add_parts, n_parts, cost, n_jobs, mu, n_parts > 1)

    def add_parts(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] mu, bint in_parts):
        """`add_weights` in the parts start ... stop - 1 of w, or in all of it."""
        for number in range(start, stop):
            self.add_part(mu, number, in_parts)

    cdef int add_part(
            self, const double[::1] mu, Py_ssize_t number, bint in_parts) except -1:
        cdef Py_ssize_t b, j, k
        cdef bint moved
        cdef const double* dual
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = surrogate.workspace(features.size) if in_parts else self.work
        with nogil:
            for b in range(self.gaps.shape[0]):
                k = surrogate.size(b)
                dual = self.dual(surrogate, work, b, mu)
                surrogate.truth(b, &work.step[0])
                moved = False
                for j in range(k):
                    work.step[j] = (work.step[j] - dual[j]) * (self.weights[b] / self.alpha)
                    moved = moved or work.step[j] != 0.0
                if not moved:
                    continue
                if not features.ready(b):
                    with gil:
                        features.fetch(b, range(b + 1, self.gaps.shape[0]))
                if in_parts:
                    features.update_part(b, work.step, number)
                else:
                    features.update(b, work.step)

    def norm_bound(self, const double[::1] mu):
        """Upper bound of ||w(mu)|| by the triangle inequality over the entries of mu."""
        cdef Py_ssize_t b, j, offset, k
        cdef double total = 0.0
        cdef Workspace work = self.work
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        with nogil:
            for j in range(work.step.shape[0]):
                work.step[j] = 0.0
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                k = surrogate.size(b)
                surrogate.truth(b, &work.atom[0])
                for j in range(k):
                    if work.atom[j] != mu[offset + j]:
                        work.step[j] = self.weights[b] * (work.atom[j] - mu[offset + j])
                        total += sqrt(max(0.0, features.direction_norm(b, work.step, k)))
                        work.step[j] = 0.0
        return total / self.alpha


# Block-coordinate Frank-Wolfe over any surrogate and any feature map.
#
# The engine keeps, for each block b (one training example), its dual point mu_b and t_b =
# h_b(mu_b); w(mu) = (1 / alpha) sum_b p_b Phi(x_b) (phi(y_b) - mu_b)' lives in the feature map.  A
# visit of a block is: scores, oracle, gap, step, update; no Python object is touched in it.

cdef enum:
    FETCH_AHEAD = 64
    MOST_HALVINGS = 20
    # visits of a block between two calls of its oracle: under acceleration atoms at hand gain anew
    # whenever the centre has moved, and the gaps that they are measured by get old
    MOST_HITS = 10

cdef double ROUNDING = 4e-16


cdef class BlockCoordinateEngine(EngineState):
    """The state of a fit, and the passes over it. Parameters as in `EngineState`."""

    # ------------------------------------------------------------------ random numbers

    cdef double uniform(self) noexcept nogil:
        """A double in [0, 1), by SplitMix64."""
        cdef uint64_t z
        self.random_state += <uint64_t> 0x9E3779B97F4A7C15ULL
        z = self.random_state
        z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9ULL
        z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBULL
        z = z ^ (z >> 31)
        return (z >> 11) * (1.0 / 9007199254740992.0)

    cdef void shuffle(self) noexcept nogil:
        cdef Py_ssize_t i, j
        for j in range(self.order.shape[0] - 1, 0, -1):
            i = <Py_ssize_t> (self.uniform() * (j + 1))
            self.order[i], self.order[j] = self.order[j], self.order[i]

    # ------------------------------------------------------------------- gap sampling

    cdef void set_gap(self, Py_ssize_t b, double gap) noexcept nogil:
        cdef Py_ssize_t node = self.first_leaf + b, child
        self.gaps[b] = gap
        self.tree[node] = self.weights[b] * gap
        while node > 0:
            node = (node - 1) >> 2
            child = 4 * node + 1
            self.tree[node] = (
                (self.tree[child] + self.tree[child + 1])
                + (self.tree[child + 2] + self.tree[child + 3]))

    cdef void rebuild_tree(self) noexcept nogil:
        cdef Py_ssize_t b, node, child
        for b in range(self.gaps.shape[0]):
            self.tree[self.first_leaf + b] = self.weights[b] * self.gaps[b]
        # parents of no block stay zero
        for node in range((self.first_leaf + self.gaps.shape[0] - 2) >> 2, -1, -1):
            child = 4 * node + 1
            self.tree[node] = (
                (self.tree[child] + self.tree[child + 1])
                + (self.tree[child + 2] + self.tree[child + 3]))

    cdef Py_ssize_t draw(self) noexcept nogil:
        """A block with probability proportional to p_b g_b. -1 after a rounding error."""
        cdef Py_ssize_t node = 0, child, right
        cdef double rest = self.uniform() * self.tree[0]
        cdef double before[4]
        before[0] = 0.0
        while node < self.first_leaf:
            if self.tree[node] == 0.0:
                return -1  # below it there may be no memory
            # the table keeps the compiler from branches, which would be coin tosses
            child = 4 * node + 1
            before[1] = self.tree[child]
            before[2] = before[1] + self.tree[child + 1]
            before[3] = before[2] + self.tree[child + 2]
            right = (rest >= before[1]) + (rest >= before[2]) + (rest >= before[3])
            rest -= before[right]
            node = child + right
        # sums of sums round: a last child of weight zero may be reached, about once in 1e15
        return node - self.first_leaf if self.tree[node] > 0.0 else -1

    # -------------------------------------------------------------------------- visits

    cdef double met(
            self, Surrogate surrogate, Workspace work, Py_ssize_t b, double lower, double upper,
            double current, Visit* told) except -1.0 nogil:
        """Record the oracle's result of block b at work.scores. Return its gap.

        lower and upper bound the oracle's value, and current is the value at mu_b.
        """
        cdef double gap = upper - current
        self.losses[b] = upper - surrogate.true_score(b, &work.scores[0])
        told.asked = True
        told.error = upper - lower
        if gap <= ROUNDING * (fabs(upper) + fabs(current)):
            # what cannot be told from rounding is not worth a draw, nor a step
            gap = 0.0
        self.gaps[b] = gap
        return gap

    cdef void note(self, const Visit* told, bint sampling_by_gap) noexcept nogil:
        """Count a visit and its results."""
        self.n_visits += 1
        self.gained += told.gained
        self.curvatures += told.curvature
        self.n_curvatures += told.n_curvatures
        self.cache_hits += told.is_hit
        if told.asked:
            self.oracle_calls += 1
            self.oracle_error += told.error
            if sampling_by_gap:
                self.set_gap(told.block, self.gaps[told.block])

    cdef int visit(self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
                   Py_ssize_t b, Step step, bint sampling_by_gap) except -1 nogil:
        """One block: scores, oracle, gap, step, update of w.

        surrogate, features, work and sets are the engine's own: a nogil function may borrow
        objects, but not fetch them.
        """
        cdef Visit told
        self.move(surrogate, features, work, sets, b, step, &told)
        self.note(&told, sampling_by_gap)
        if told.has_moved:
            features.update(b, work.step)
        return 0

    cdef int move(self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
                  Py_ssize_t b, Step step, Visit* told) except -1 nogil:
        """Complete visit of block b except the update of w. work.step contains its coefficients.

        It writes only data of the block and `told`. Different blocks with different workspaces and
        `sets_of_threads` are safe from several threads at once.
        """
        memset(told, 0, sizeof(Visit))
        told.block = b
        features.scores(b, work.scores)
        if self.is_active:
            return self.move_atoms(surrogate, features, work, sets, b, step, told)
        return self.move_point(surrogate, features, work, b, step, told)

    cdef int move_point(
            self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b,
            Step step, Visit* told) except -1 nogil:
        """`move` of a block whose dual point is stored, or told by the surrogate."""
        cdef Py_ssize_t j, rows, k = surrogate.size(b), offset = surrogate.offset(b)
        cdef double lower, upper, current, gap, curvature, gamma, numerator, value, moved
        cdef long long done, since
        cdef const double* mu
        cdef const fastm4n_loops* loops = features.loops
        told.lift = -self.t[b]
        mu = self.dual(surrogate, work, b, self.mu_)
        current = self.t[b] + loops.dot(&work.scores[0], mu, k)
        work.current = current
        surrogate.oracle(b, work, &lower, &upper)
        gap = self.met(surrogate, work, b, lower, upper, current, told)
        curvature = self.weights[b] / (self.alpha + self.kappa)
        gamma = 1.0
        moved = 0.0
        if step == FIXED:
            gamma = 2.0 * self.gaps.shape[0] / (self.n_visits + 2.0 * self.gaps.shape[0])
            moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
        elif gap > 0.0:
            if step == BLOCK and surrogate.has_block_step and features.block_norm(b) > 0.0:
                # of the oracle's direction: the step itself is as short as alpha is small
                moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
                told.curvature += self.weights[b] * moved * features.block_norm(b)
                told.n_curvatures += 1
                surrogate.block_step(b, self.mu_, offset, work, curvature * features.block_norm(b))
            moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
            if surrogate.has_natural_step:
                moved = self.natural_step(surrogate, features, work, b, mu, current, told)
            elif surrogate.has_line_search:
                value = features.block_norm(b)
                if value == 0.0 and moved > 0.0:
                    # of features whose curvature depends on the direction
                    value = features.direction_norm(b, work.step, k) / moved
                told.curvature += self.weights[b] * moved * value
                told.n_curvatures += 1
                surrogate.line_search(b, self.mu_, offset, work, curvature * value, &gamma)
            elif step == LINE_SEARCH:
                numerator = lower - current
                if numerator > 0.0:
                    value = features.direction_norm(b, work.step, k)
                    told.curvature += self.weights[b] * value
                    told.n_curvatures += 1
                    value *= curvature
                    if value > numerator:
                        gamma = numerator / value
                    told.gained += self.weights[b] * gamma * (numerator - 0.5 * gamma * value)
                else:
                    gamma = 0.0
        if self.averaging:
            # until now mu_b has stood for the iterates since[b] ... n_visits
            done = self.n_visits + 1
            since = self.since[b]
            value = 0.5 * (<double> done * (done - 1) - <double> since * (since - 1))
            for j in range(k):
                self.mu_sum[offset + j] += value * self.mu_[offset + j]
            self.since[b] = done
        if gamma == 0.0 or moved == 0.0:
            return 0
        if not features.ready(b):
            with gil:
                self.fetch(b)
        if self.is_told:
            pass  # by what the natural step has accepted
        elif gamma == 1.0:
            for j in range(k):
                self.mu_[offset + j] = work.atom[j]
        else:
            rows = surrogate.outputs.layout.behind(b) if surrogate.outputs.has_signs else k
            loops.advance(&self.mu_[offset], &work.step[0], gamma, rows)
            for j in range(rows, k):
                work.step[j] *= gamma
                self.mu_[offset + j] += work.step[j]
        for j in range(k):
            work.step[j] *= -curvature
        surrogate.concave(b, &work.atom[0] if self.is_told else mu, work, &self.t[b])
        told.lift += self.t[b]
        told.has_moved = True
        return 0

    cdef int move_atoms(
            self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
            Py_ssize_t b, Step step, Visit* told) except -1 nogil:
        """`move` of a block whose dual point is a combination of atoms.

        Algorithms 3 (pairwise steps), 4 (away steps) and 5 (cache) of Osokin et al. (2016) in the
        lifted polytope: corners are atoms with their heights.  A pairwise step that would use up
        the weight of the worst atom gives way to a Frank-Wolfe step that gains more.
        """
        cdef Py_ssize_t j, k = surrogate.size(b)
        cdef AtomSet* held = &sets.sets[b]
        cdef double current, value, lower, upper, height, numerator, norm, gamma, gain
        cdef double low, factor, tiny, most = 1.0
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa)
        cdef double* direction = &work.step[0]
        cdef int chosen, worst
        cdef bint hit = False
        cdef Step taken = step
        cdef const fastm4n_loops* loops = features.loops
        sets.score(surrogate, b, &work.scores[0])
        sets.now = self.n_visits + 1
        current, chosen = sets.current, sets.best
        value = held.atoms[chosen].score
        tiny = ROUNDING * (fabs(value) + fabs(current))
        if sets.keeps_unused and held.hits < MOST_HITS:
            hit = value - current > tiny and value - current >= max(
                self.cache_F * self.gaps[b],
                self.cache_nu * self.refreshed_gap / (self.weights[b] * self.gaps.shape[0]))
        if hit:
            told.is_hit = True
            held.hits += 1
        else:
            held.hits = 0
            work.current = current
            if surrogate.has_labellings:
                surrogate.best_labelling(b, work, sets.labels(), &upper)
                lower = upper
                sets.offer_labelling(surrogate.outputs.layout.n_parts(b))
                height = surrogate.labelling_height(b, sets.labels())
            else:
                surrogate.oracle(b, work, &lower, &upper)
                sets.offer_vector(&work.atom[0], k)
                height = lower - loops.dot(&work.scores[0], &work.atom[0], k)
            numerator = self.met(surrogate, work, b, lower, upper, current, told)
            if numerator == 0.0:
                return 0
            if lower > value:
                chosen = sets.find_or_add(surrogate, b, height)
                if surrogate.outputs.is_listing:
                    # a new atom may have more numbers
                    surrogate.outputs.admit(b, sets.labels())
                    for j in range(k, surrogate.size(b)):
                        work.scores[j] = 0.0
                    k = surrogate.size(b)
                if sets.pruned:
                    sets.score(surrogate, b, &work.scores[0])
                    current = sets.current
                value = lower
            if value - current <= tiny:
                return 0
        held.atoms[chosen].used = sets.now
        worst = sets.worst
        if worst == chosen:
            # mu_b is at the best atom already, up to rounding
            return 0
        low = held.atoms[worst].score

        gamma = gain = 0.0
        if taken == AWAY and (value - current >= current - low or held.atoms[worst].weight >= 1.0):
            taken = LINE_SEARCH
        if taken == PAIRWISE or taken == AWAY:
            memset(direction, 0, k * sizeof(double))
            if taken == PAIRWISE:
                sets.add_atom(surrogate, b, chosen, 1.0, direction)
                numerator = value - low
                most = held.atoms[worst].weight
            else:
                sets.combine(surrogate, b, direction)
                numerator = current - low
                most = held.atoms[worst].weight / (1.0 - held.atoms[worst].weight)
            sets.add_atom(surrogate, b, worst, -1.0, direction)
            norm = features.direction_norm(b, work.step, k)
            told.curvature += self.weights[b] * norm
            told.n_curvatures += 1
            norm *= curvature
            gamma = most if most * norm <= numerator else numerator / norm
            gain = gamma * (numerator - 0.5 * gamma * norm)
        if taken == LINE_SEARCH or (gamma == most and gain < value - current):
            # the gain of a whole step is what a Frank-Wolfe step has at most
            direction = &work.atom[0]
            sets.combine(surrogate, b, direction)
            for j in range(k):
                direction[j] = -direction[j]
            sets.add_atom(surrogate, b, chosen, 1.0, direction)
            numerator = value - current
            norm = features.direction_norm(b, work.atom, k)
            if taken == LINE_SEARCH:
                told.curvature += self.weights[b] * norm
                told.n_curvatures += 1
            norm *= curvature
            factor = 1.0 if norm <= numerator else numerator / norm
            if factor * (numerator - 0.5 * factor * norm) >= gain:
                gamma = factor
                gain = gamma * (numerator - 0.5 * gamma * norm)
                taken = LINE_SEARCH
                most = 1.0
            else:
                direction = &work.step[0]

        if not features.ready(b):
            with gil:
                self.fetch(b)
        told.lift = -sets.height(b)
        if taken == PAIRWISE:
            held.atoms[worst].weight -= gamma
            held.atoms[chosen].weight += gamma
        elif taken == AWAY:
            sets.scale(b, 1.0 + gamma)
            held.atoms[worst].weight -= gamma
        else:
            sets.scale(b, 1.0 - gamma)
            held.atoms[chosen].weight += gamma
        if gamma == most and taken != LINE_SEARCH:
            # a drop step
            held.atoms[worst].weight = 0.0
        told.lift += sets.height(b)
        if not sets.keeps_unused:
            sets.remove_unused(b)
        told.gained = self.weights[b] * gain
        factor = -curvature * gamma
        for j in range(k):
            work.step[j] = factor * direction[j]
        told.has_moved = True
        return 0

    cdef double natural_step(self, Surrogate surrogate, FeatureMap features, Workspace work,
                             Py_ssize_t b, const double* mu, double current,
                             Visit* told) except? -1.0 nogil:
        """work.atom and t_b = the dual point of a step in theta. work.step = atom - mu_b.

        The step is halved until the dual rises by it. If this fails (after a warm start mu_b may be
        no dual point of any theta), a step along the chord to the oracle's atom raises the dual.
        Dual points computed on demand always have a theta, and only rounding makes them fail.
        Returns ||work.step||^2, 0 for no step.
        """
        cdef Py_ssize_t j, k = surrogate.size(b), _attempt
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa)
        cdef double size, concave, gain, moved, upper
        cdef const fastm4n_loops* loops = features.loops
        moved = features.direction_norm(b, work.step, k)
        told.curvature += self.weights[b] * moved
        told.n_curvatures += 1
        surrogate.natural_size(b, work, curvature * moved, &size)
        for _attempt in range(MOST_HALVINGS):
            if size == 0.0:
                break
            surrogate.propose(b, work, size, &concave)
            moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
            gain = (
                concave + loops.dot(&work.scores[0], &work.atom[0], k) - current
                - 0.5 * curvature * features.direction_norm(b, work.step, k))
            if gain > 0.0:
                surrogate.accept(b, work)
                self.t[b] = concave
                return moved
            size *= 0.5
        if self.is_told:
            return 0.0
        surrogate.oracle(b, work, &concave, &upper)
        gain = concave - current
        if gain <= ROUNDING * fabs(current):
            return 0.0
        loops.subtract(&work.atom[0], mu, &work.step[0], k)
        moved = curvature * features.direction_norm(b, work.step, k)
        size = gain / moved if moved > gain else 1.0
        for j in range(k):
            work.atom[j] = mu[j] + size * work.step[j]
        concave -= loops.dot(&work.scores[0], &work.step[0], k) + loops.dot(
            &work.scores[0], mu, k) + error_of_height(loops, &work.scores[0], upper, k)
        self.t[b] += size * (concave - self.t[b])
        return loops.subtract(&work.atom[0], mu, &work.step[0], k)

    def fetch(self, Py_ssize_t b):
        """Make block b ready, and the blocks that are likely to need it next."""
        if self.position >= 0:
            return self.features.fetch(b, self.visiting[self.position + 1:])
        gaps = np.asarray(self.gaps)
        n_ahead = min(4 * FETCH_AHEAD, gaps.size)
        ahead = np.argpartition(-gaps, n_ahead - 1)[:n_ahead]
        ahead = ahead[gaps[ahead] > 0]
        self.features.fetch(b, ahead[np.argsort(-gaps[ahead], kind="stable")])

    cdef Py_ssize_t visits_between_checks(self):
        """Visits of about 20 million multiply-adds, a few hundredths of a second."""
        cdef double cost = self.features.visit_cost + 50 * self.surrogate.max_size
        return max(1, <Py_ssize_t> min(1e9, 2e7 / max(1.0, cost)))

    def run_blocks(self, const Py_ssize_t[::1] blocks, Step step):
        """Visit these blocks in this order, with repetitions.

        Signals are checked as in `run_pass`. An interrupted call leaves mu, t and w consistent.
        """
        if blocks.shape[0] and (
                np.min(blocks) < 0 or np.max(blocks) >= self.gaps.shape[0]):
            raise IndexError(f"blocks must lie in 0 ... {self.gaps.shape[0] - 1}.")
        self.oracle_error = 0.0
        self.work.tolerance = self.certificate_error
        self.visit_in_order(blocks, step)
        self.features.settle()

    cdef int visit_in_order(self, const Py_ssize_t[::1] blocks, Step step) except -1:
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef ActiveSets sets = self.sets
        cdef Py_ssize_t i, b, ahead, n = blocks.shape[0]
        self.visiting = blocks
        with nogil:
            for i in range(n):
                self.position = i
                b = blocks[i]
                if i + PREFETCH < n:
                    ahead = blocks[i + PREFETCH]
                    features.prefetch(ahead)
                    if not self.is_active and not self.is_told:
                        fastm4n_prefetch(&self.mu_[surrogate.offset(ahead)])
                self.visit(surrogate, features, work, sets, b, step, False)
                look_at(i)
        return 0

    def run_pass(self, Sampling sampling, Step step):
        """n_blocks visits, fewer if every stale gap is zero under gap sampling.

        Signals are checked. An interrupted pass leaves mu, t and w consistent.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef ActiveSets sets = self.sets
        cdef Py_ssize_t b, turn, n = self.gaps.shape[0]
        if sampling == PERMUTATION:
            self.shuffle()
            return self.run_blocks(self.order, step)
        self.oracle_error = 0.0
        work.tolerance = self.certificate_error
        self.position = -1
        with nogil:
            if sampling == GAP:
                self.rebuild_tree()
            for turn in range(n):
                if sampling == UNIFORM:
                    b = <Py_ssize_t> (self.uniform() * n)
                elif self.tree[0] > 0.0:
                    b = self.draw()
                    if b < 0:
                        continue
                else:
                    break
                self.visit(surrogate, features, work, sets, b, step, sampling == GAP)
                look_at(turn)
            # steps that are put off end with the pass, so that to look at w there changes nothing
            features.settle()
