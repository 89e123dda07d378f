"""Rows of a CSR matrix from the attributes of tokens.

Attributes are copied to a scratch until there are some hundred of them. Then the table of names is
searched for all of them at once, so that their cache lines come together. Nothing is made for an
attribute but its column; weights other than 1 are few, and are held by their positions.
"""

import math
from array import array
from numbers import Real

import numpy as np

from cpython cimport array as arrays
from cpython.mem cimport PyMem_Free
from libc.stdint cimport int64_t
from libc.stdlib cimport qsort

from fastm4n.data._sequences import Sequences

from fastm4n.base.interrupts cimport look
from fastm4n.data._names cimport Entry, Names, PyObject, Scratch, grown


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
    # attributes, or tokens, that are searched for at once: what they take stays in a cache
    AT_ONCE = 256
    # attributes of a token whose order is remembered for the next one of as many
    REMEMBERED = 96
    # strings between asking for one and reading it
    AHEAD = 4

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
        The columns of names, which are those of the rows.
    separator : str
        What joins a key and a string.
    is_learning : bool
        Whether new names get columns. These are numbered as they come until `renumber`.
    is_single : bool
        Whether weights are added in float32.
    """

    cdef Names names
    cdef object separator
    cdef bint is_learning, is_single
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
        self.scratch = Scratch()
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

    # ------------------------------------------------------------------------------ reading

    def read(self, X):
        """Read sequences of tokens; errors name the token."""
        cdef Py_ssize_t i = 0, t, n_tokens = 0
        if isinstance(X, (str, bytes, dict, Sequences)) or not hasattr(X, "__iter__"):
            raise TypeError(
                f"X must be a list of sequences, each a list of tokens; got {type(X).__name__}.")
        for sequence in X:
            if isinstance(sequence, (str, bytes, dict)) or not hasattr(sequence, "__iter__"):
                raise TypeError(
                    f"Sequence {i} of X must be a list of tokens; it is of type "
                    f"{type(sequence).__name__}. One sequence alone goes into a list: [sequence].")
            t = 0
            for token in sequence:
                try:
                    self.add_token(token)
                except (TypeError, ValueError) as error:
                    kind = TypeError if isinstance(error, TypeError) else ValueError
                    raise kind(f"Token {t} of sequence {i} of X: {error}.") from None
                t += 1
                look()
            n_tokens += t
            self.note(self.offsets, n_tokens)
            i += 1
        self.flush()

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

        Tokens come from one template, whose attributes are in one order: that of the last row of as
        many is tried first.
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

    # ------------------------------------------------------------------- when all is learnt

    def counts(self):
        """Number of tokens that have each name, with a weight that is not zero."""
        cdef Py_ssize_t t, e, w = 0, n = self.names.n_names
        found = np.zeros(n, dtype=np.int32)
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
        """Rows of the columns rank[c], without those of which it is -1, in place."""
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


cdef str not_a_string(name, where=""):
    remedy = "; decode bytes" if isinstance(name, bytes) else (
        "; a number is the value of a key, in a dict" if isinstance(name, Real) else "")
    return (
        f"attributes must be strings, not {name!r:.40} of type {type(name).__name__}{where}"
        f"{remedy}")
