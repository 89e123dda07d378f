"""The number of a thread among those of a pass."""

cdef Py_ssize_t thread_number() noexcept nogil
cdef void set_thread_number(Py_ssize_t number) noexcept nogil
