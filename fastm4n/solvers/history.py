"""What is told of a fit while it runs: the history of its certificates, and a bar of progress."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import Array
    from fastm4n.solvers.certificates import Certificate

logger: logging.Logger = logging.getLogger("fastm4n")

HISTORY_KEYS = (
    "pass", "primal", "dual", "gap", "seconds", "oracle_calls", "oracle_error", "cache_hits",
    "policy",
)


class History:
    """Rows of certificates, timed from its creation."""

    start: float
    columns: dict[str, Any]

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.columns = {key: [] for key in HISTORY_KEYS}

    def add(
        self, n_passes: int, certificate: Certificate, oracle_calls: int, oracle_error: float,
        cache_hits: int, policy: str,
    ) -> dict[str, int]:
        """Append a row; returns it as a dict."""
        values = (
            n_passes, certificate.primal, certificate.dual, certificate.gap,
            self.seconds, oracle_calls, oracle_error, cache_hits, policy,
        )
        row = dict(zip(HISTORY_KEYS, values, strict=True))
        for key, value in row.items():
            self.columns[key].append(value)
        return row

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def arrays(self) -> dict[str, Any]:
        return {key: np.asarray(values) for key, values in self.columns.items()}

    def restore(self, arrays: dict[str, Array], seconds: float) -> None:
        """Take up the rows of `arrays`, so many seconds after the beginning."""
        self.columns = {key: arrays[key].tolist() for key in HISTORY_KEYS}
        self.start = time.perf_counter() - seconds


def tqdm_bar(verbose: int, **options: Any) -> None:
    """A bar of tqdm's, or None where none is wanted or tqdm is not there."""
    if not verbose:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        logger.info("install tqdm to see a progress bar")
        return None
    return tqdm(leave=verbose > 1, **options)


class Progress:
    """A tqdm bar where tqdm is installed, lines in the log where it is not.

    The bar goes from the first certified gap to tol on a logarithmic scale: gaps of linearly
    convergent solvers fill it evenly, so that what remains can be told. It never goes back. Where
    tol is zero, it counts passes.
    """

    verbose: int
    max_iter: int
    tol: float
    first: float | None
    bar: Any

    _FORMAT = "{desc}{percentage:3.0f}%|{bar}|{postfix} [{elapsed}<{remaining}]"

    def __init__(self, verbose: int, max_iter: int, tol: float) -> None:
        self.verbose, self.max_iter, self.tol = verbose, max_iter, tol
        self.first = None
        # smoothing=0: what remains is told from all that was done, as gaps jump
        self.bar = tqdm_bar(verbose, total=1.0, bar_format=self._FORMAT, smoothing=0)

    def share(self, row: dict[str, Any]) -> float:
        """How far the fit has come, from 0 to 1."""
        if self.tol <= 0.0:
            return min(1.0, row["pass"] / self.max_iter)
        gap = row["gap"]
        if gap <= self.tol:
            return 1.0
        if not math.isfinite(gap):
            return 0.0
        if self.first is None:
            self.first = gap
        # at least 0: gaps may rise above the first one
        return max(0.0, math.log(self.first / gap) / math.log(self.first / self.tol))

    def update(self, row: dict[str, Any]) -> None:
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(
                f"pass {row['pass']}, gap {row['gap']:.1e}, tol {self.tol:.0e}", refresh=False
            )
            self.bar.update(max(0.0, self.share(row) - self.bar.n))
        logger.info(
            "pass %d: primal %.6g, dual %.6g, gap %.3e",
            row["pass"], row["primal"], row["dual"], row["gap"],
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
