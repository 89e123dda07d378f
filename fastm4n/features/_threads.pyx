"""The number of a thread among those of a pass: which row of scratch is its own.

Zero for all threads that were not given one.
"""

cdef extern from *:
    """
    #if defined(_MSC_VER) && !defined(__clang__)
    static __declspec(thread) Py_ssize_t fastm4n_thread_number = 0;
    #else
    static _Thread_local Py_ssize_t fastm4n_thread_number = 0;
    #endif
    """
    Py_ssize_t fastm4n_thread_number


cdef Py_ssize_t thread_number() noexcept nogil:
    return fastm4n_thread_number


cdef void set_thread_number(Py_ssize_t number) noexcept nogil:
    global fastm4n_thread_number
    fastm4n_thread_number = number
