"""Ctrl-C within compiled loops: `look`, which they call now and then.

It reads a clock, and about every 50 ms takes the GIL and has Python look for signals.  That is for
the main thread alone; in others it asks `interrupts.py` whether they are to stop.
"""

cdef extern from * nogil:
    """
    #ifdef _MSC_VER
    #include <windows.h>
    #define FASTM4N_PER_THREAD __declspec(thread)
    static long long fastm4n_milliseconds(void) { return (long long) GetTickCount64(); }
    #else
    #include <time.h>
    #define FASTM4N_PER_THREAD __thread
    static long long fastm4n_milliseconds(void)
    {
        struct timespec now;
    #ifdef CLOCK_MONOTONIC_COARSE
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    #else
        clock_gettime(CLOCK_MONOTONIC, &now);
    #endif
        return 1000LL * now.tv_sec + now.tv_nsec / 1000000;
    }
    #endif

    static FASTM4N_PER_THREAD long long fastm4n_next_look = 0;

    static int fastm4n_ask(void)
    {
        PyGILState_STATE held = PyGILState_Ensure();
        int status = PyErr_Occurred() ? -1 : PyErr_CheckSignals();
        if (!status) {
            PyObject *module = PyImport_ImportModule("fastm4n.base.interrupts");
            PyObject *found = module ? PyObject_CallMethod(module, "ask", NULL) : NULL;
            status = found ? 0 : -1;
            Py_XDECREF(found);
            Py_XDECREF(module);
        }
        PyGILState_Release(held);
        return status;
    }

    /* 0, or -1 where an exception is set that ends the loop */
    static inline int fastm4n_look(void)
    {
        const long long now = fastm4n_milliseconds();
        if (now < fastm4n_next_look)
            return 0;
        fastm4n_next_look = now + 50;
        return fastm4n_ask();
    }

    /* of short turns, which a look would slow down, at one in so many */
    #define FASTM4N_TURNS_BETWEEN_LOOKS 8
    static inline int fastm4n_look_at(Py_ssize_t turn)
    {
        return turn % FASTM4N_TURNS_BETWEEN_LOOKS ? 0 : fastm4n_look();
    }

    static inline int fastm4n_raise_set(void) { return -1; }
    """
    int look "fastm4n_look"() except -1
    # the same at the turns of a loop that are short: at one in eight
    int look_at "fastm4n_look_at"(Py_ssize_t turn) except -1
    # for functions that raise nothing themselves: -1 with the exception set
    int fastm4n_look() noexcept
    int fastm4n_look_at(Py_ssize_t turn) noexcept
    # raise the exception that is set
    int raise_set "fastm4n_raise_set"() except -1
