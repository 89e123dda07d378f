"""The block solver: passes, certificates, stopping, history, and what is built on them."""

from fastm4n.solvers.block_coordinate import solve

__all__ = ["solve"]
