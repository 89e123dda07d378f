"""The block solver: passes, certificates, stopping, history, and what is built on them."""

__all__ = ["solve", "solve_path"]


def __getattr__(name):
    # late: `import fastm4n` looks for the compiled parts here, and imports nothing slow
    if name == "solve":
        from fastm4n.solvers.block_coordinate import solve

        return solve
    if name == "solve_path":
        from fastm4n.solvers.paths import solve_path

        return solve_path
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
