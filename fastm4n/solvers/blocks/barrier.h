/* Threads of one pass that wait for each other, without the interpreter lock. */

#ifndef FASTM4N_BARRIER_H
#define FASTM4N_BARRIER_H

#if defined(_WIN32)
#include <windows.h>
#define fastm4n_yield() SwitchToThread()
#else
#include <sched.h>
#define fastm4n_yield() sched_yield()
#endif
#include <time.h>

static inline double fastm4n_seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#if defined(__x86_64__) || defined(__i386__)
#define fastm4n_pause() __builtin_ia32_pause()
#else
#define fastm4n_pause() ((void)0)
#endif

/* looks at what is waited for, before other threads are let run in between */
#define FASTM4N_SPINS 2000

static inline long fastm4n_load(const long *at)
{
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static inline void fastm4n_store(long *at, long value)
{
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
}

/* The number at `at` before `more` was added to it. */
static inline long fastm4n_take(long *at, long more)
{
    return __atomic_fetch_add(at, more, __ATOMIC_ACQ_REL);
}

/* Wait until the number at `at` is other than `old`, or that at `failed` other than 0. */
static inline void fastm4n_await_change(const long *at, long old, const long *failed)
{
    int spins = 0;
    while (fastm4n_load(at) == old && !fastm4n_load(failed)) {
        if (++spins < FASTM4N_SPINS)
            fastm4n_pause();
        else
            fastm4n_yield();
    }
}

/* Wait for the others of n threads; 0 when all were there, even if one has failed since, and -1 when
   one has failed before. */
static inline int fastm4n_meet(long *arrived, long *round, long n, const long *failed)
{
    long now = fastm4n_load(round);
    if (fastm4n_take(arrived, 1) == n - 1) {
        fastm4n_store(arrived, 0);
        fastm4n_store(round, now + 1);
        return 0;
    }
    fastm4n_await_change(round, now, failed);
    return fastm4n_load(round) == now ? -1 : 0;
}

#endif
