"""Constants of graphs' outputs."""

# tuned constants, declared here for benchmarks/constants.py
cdef double VISIT_SLACK, SOFT_SLACK
cdef Py_ssize_t MAX_SWEEPS, VISIT_ITERATIONS, BEST_ITERATIONS, BOUND_ITERATIONS, SOFT_SWEEPS
