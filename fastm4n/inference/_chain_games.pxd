"""Max-min losses of batches of chains."""

# tuned constants, declared here for benchmarks/constants.py
cdef double MARGIN, LEAST, LOOK, FLOATS, SPARE_LABELS, NEARLY_ALL
