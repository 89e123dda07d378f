"""Calls of `partial_fit` out of core: what one leaves, and where the next one goes on from.

In a work folder that is the file of the last call that ended and the dual points that it refers to,
for any process that has the same data; without one it goes with the estimator, in this process.
"""

from fastm4n.base.array_files import read_arrays, understood
from fastm4n.base.arrays import flat, part
from fastm4n.solvers.base import Solution, State
from fastm4n.solvers.certificates import Certificate
from fastm4n.solvers.checkpoints import FIT, IDLE, fingerprint
from fastm4n.solvers.dual_store import ENDED, STATE

# parameters that may change from call to call, for dual points to be gone on from
FREE = (*IDLE, "alpha", "tol", "max_iter", "random_state", "solver")


class Left:
    """What a call leaves in this process, by name; neither a pickle nor a copy has it."""

    n_examples, begins_anew = -1, False

    def __init__(self, **named):
        vars(self).update(named)

    def __getstate__(self):
        return {}


class Calls:
    """What one call of `partial_fit` goes on from.

    Attributes
    ----------
    same : dict
        Fingerprint of the parameters that all calls must have in common.
    last : Left or None
        Of the last call, where the same estimator has made it under the same parameters.
    left, share : dict, float
        As `OutOfCore.solve` takes them; None where all begins at phi(y).
    edges : ndarray
        Of the chunks that there are.
    ended : tuple or None
        The file of this very call, which has ended before.
    begins_anew : bool
        Whether dual points of earlier calls should be there and are not.
    """

    def __init__(self, estimator, solver, n_before):
        options = [f"solver__{name}" for name in solver.get_params()]
        self.same = fingerprint(estimator, {}, idle=(*FREE, *options))
        self.n_before = n_before
        self.last = self.left = self.ended = None
        self.share, self.edges, self.begins_anew = 1.0, (0,), False
        found = vars(estimator).get("_warm_state")
        if n_before and isinstance(found, Left) and found.n_examples == n_before and (
                found.same == self.same and found.work_folder == solver.work_folder
                and found.n_calls == found.store.n_calls):
            self.last = found

    @classmethod
    def of(cls, estimator, solver):
        """Those of the call that is under way; None in `fit`."""
        growing = vars(estimator).get("_growing")
        if growing is None:
            return None
        before = growing[1]
        return cls(estimator, solver, 0 if before is None else before.weights.size)

    def begin(self, chunks):
        """Find where the call goes on from, all data having been looked at."""
        left, total, last = None, None, self.last
        if not chunks.store.is_lasting:
            if last is not None:
                left, total = last.left, last.total
        elif _is_ahead(chunks.store, chunks.digests):
            # a call that is repeated, of which the folder has the later ones
            chunks.store.detach()
            chunks.work_folder = None
            return
        elif chunks.store.ended is not None:
            header, arrays = chunks.store.ended
            with understood(chunks.store.folder / ENDED, "end of a call"):
                digests = header["fingerprint"]["data"].split()
                if header["fingerprint"] == chunks.fingerprint:
                    self.ended = header, arrays
                if header["same"] == self.same:
                    left, total = part("left", arrays), header["total"]
            if digests != chunks.digests[: len(digests)] or (
                    len(digests) == len(chunks.digests) and self.ended is None):
                raise ValueError(
                    f"work_folder={str(chunks.store.folder)!r} is of calls of partial_fit with "
                    "other data or parameters: give another name, or delete this one.")
        if left is None:
            self.begins_anew = self.n_before > 0
            return
        self.left, self.share, self.edges = left, total / chunks.total, left["edges"]

    def end(self, chunks, engine, solution):
        """Keep what the next call goes on from."""
        left = engine.left()
        if not chunks.store.is_lasting:
            chunks.left = left
            return
        certificate = solution.certificate
        header = {
            "fingerprint": chunks.fingerprint, "same": self.same, "total": chunks.total,
            "primal": certificate.primal, "dual": certificate.dual, "gap": certificate.gap,
            "n_iter": solution.n_iter, "converged": solution.converged,
            "asked": _asked(chunks.estimator),
        }
        arrays = {**flat("left", left), **flat("history", solution.history)}
        if not engine.holds_average:
            arrays.update(flat("weights", engine.features.state()))
        chunks.store.end(header, arrays)

    def ended_solution(self, chunks, tol):
        """The solution of a call that has ended before; `features` are left holding its weights."""
        header, arrays = self.ended
        features = chunks.features
        if header["gap"] > tol and header["asked"] != _asked(chunks.estimator):
            raise ValueError(
                f"work_folder={str(chunks.store.folder)!r} has the end of this call of partial_fit "
                f"under tol={header['asked'][0]}, max_iter={header['asked'][1]}: give these, and "
                "others from the next call on, or delete the folder.")
        weights = part("left/features", arrays) or part("weights", arrays)
        features.restore(weights)
        return Solution(
            State(), n_iter=header["n_iter"], history=part("history", arrays),
            certificate=Certificate(header["primal"], header["dual"], header["gap"], None),
            converged=header["converged"], interrupted=False)


def _asked(estimator):
    """What a call ends by, and its fingerprint does not have."""
    return [float(estimator.tol), int(estimator.max_iter)]


def _is_ahead(store, digests):
    """Whether the folder is of these calls and later ones."""
    if store.ended is not None:
        header = store.ended[0]
    elif (store.folder / STATE).exists():
        header, _ = read_arrays(store.folder / STATE, FIT, finite=False)
    else:
        return False
    with understood(store.folder, "state of calls"):
        found = header["fingerprint"]["data"].split()
    return len(found) > len(digests) and found[: len(digests)] == digests
