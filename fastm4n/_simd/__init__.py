"""Vector loops in C over feature-major weights, chosen at import for the processor at hand."""
