"""Problems of data that are read chunk by chunk: what is common to rows, sequences and graphs."""

import copy
import hashlib

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import flat, part
from fastm4n.solvers.checkpoints import IDLE, fingerprint
from fastm4n.solvers.chunks import Chunks, Kind
from fastm4n.solvers.dual_store import DualStore
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.tasks.calls import Joined
from fastm4n.tasks.earlier_calls import Calls, Left
from fastm4n.tasks.problem import Blocks

# rows of the first piece that is read, by which the size of the others is told
FIRST_ROWS = 256
# dual points in memory: that of a chunk, and a copy on the way to or from disk; with what the
# surrogate keeps beside, which is copied twice
DUAL_COPIES, WITH_STATE = 2, 5
# blocks of at most so many positions have a Gram matrix: GRAM_LENGTH of the features; of longer
# ones entries are sorted, of so many bytes each
SHORT, SORTED_ENTRY = 64, 16


def in_memory(values):
    """Rows whose buffers are this process's own: what is mapped is read, and copied."""
    if not sparse.issparse(values):
        return np.array(values) if _is_mapped(values) else values
    parts = values.data, values.indices, values.indptr
    if not any(map(_is_mapped, parts)):
        return values
    return csr(*map(np.array, parts), values.shape, type(values))


def _is_mapped(array):
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return not (array is None or isinstance(array, (bytes, bytearray)))


def n_bytes(values):
    """Bytes of rows, dense or CSR; where rows end counts 8 bytes, whatever it has."""
    if sparse.issparse(values):
        return values.data.nbytes + values.indices.nbytes + 8 * values.indptr.size
    return values.nbytes


def looked_at(values, start, stop):
    """These rows as the compiled loops read them; of the matrix it is known that they can be."""
    if sparse.issparse(values):
        indptr = values.indptr[start : stop + 1]
        where = slice(indptr[0], indptr[-1])
        values = in_memory(csr(
            values.data[where], values.indices[where], indptr - indptr[0],
            (stop - start, values.shape[1])))
        values.indices = values.indices.astype(np.int32, copy=False)
        data = values.data
    else:
        values = data = np.ascontiguousarray(in_memory(values[start:stop]))
    if data.dtype in (np.float32, np.float64):
        return values
    return values.astype(np.float64)


def rows_again(X, name, start, stop, offsets):
    """Rows of the items start ... stop - 1 of a container, which were checked before.

    Parameters
    ----------
    X : Sequences or Graphs
    name : str
        Of the attribute that holds the rows.
    start, stop : int
    offsets : ndarray
        Where the rows of each item begin.
    """
    if hasattr(X, "n_bytes_on_disk"):
        whole = getattr(X[start:stop], name)
        return looked_at(whole, 0, whole.shape[0])
    return looked_at(getattr(X, name), *offsets[[start, stop]])


def position_bytes(lengths, entries, values):
    """Bytes of the positions of each block, and of what features keep of them.

    Parameters
    ----------
    lengths : ndarray of shape (n_blocks,)
        Positions of each.
    entries : ndarray of shape (n_blocks,)
        Numbers that they have: non-zeros of CSR rows.
    values : matrix
        Rows like theirs.
    """
    lengths = lengths.astype(np.float64)
    short = lengths <= SHORT
    gram = np.where(short, 4.0 * lengths * (lengths + 1), 0.0)
    if not sparse.issparse(values):
        return entries * values.dtype.itemsize + gram
    # of indices in 64 bits, too, there is a copy in 32
    size = values.data.itemsize + 2 * values.indices.itemsize
    return entries * (size + np.where(short, 0.0, SORTED_ENTRY)) + 16.0 * lengths + gram


def entries_of(values, offsets):
    """How many numbers the rows of each item have: those that CSR holds."""
    if sparse.issparse(values):
        return np.diff(values.indptr[offsets])
    return np.diff(offsets) * values.shape[1]


def as_arrays(name, values):
    """Rows, dense or CSR, as arrays by name; `from_arrays` undoes it."""
    if not sparse.issparse(values):
        return {name: values}
    shape = np.array(values.shape, dtype=np.int64)
    return flat(name, {
        "data": values.data, "indices": values.indices, "indptr": values.indptr, "shape": shape})


def from_arrays(name, arrays):
    """The rows of `as_arrays`; None if there are none of that name."""
    if f"{name}/data" not in arrays:
        return arrays.get(name)
    parts = part(name, arrays)
    return csr(parts["data"], parts["indices"], parts["indptr"], tuple(parts["shape"].tolist()))


def csr(data, indices, indptr, shape, make=sparse.csr_array):
    """A CSR matrix of these arrays, which are not looked at."""
    made = make(shape, dtype=data.dtype)
    made.data, made.indices, made.indptr = data, indices, indptr
    return made


def cut_by(sizes, most, known=(0,)):
    """Edges of chunks of consecutive blocks of at most `most` bytes, or of one that has more.

    Of the chunks between the known edges the last one takes as many blocks more as it has room for.
    """
    ends, least = np.cumsum(sizes), int(known[-1])
    edges = [int(edge) for edge in known[:-1]] or [0]
    while edges[-1] < sizes.size:
        begun = ends[edges[-1] - 1] if edges[-1] else 0.0
        stop = int(np.searchsorted(ends, begun + most, side="right"))
        edges.append(max(edges[-1] + 1, stop, least))
    return np.array(edges)


class Digest:
    """A fingerprint of data that come in pieces, whichever these are."""

    def __init__(self):
        self.hashes = {}

    def update(self, *arrays):
        """Take in a piece: rows or numbers of several kinds, always in the same order."""
        for i, array in enumerate(arrays):
            if sparse.issparse(array):
                self._add(f"{i} data", array.data)
                self._add(f"{i} indices", array.indices)
                array = np.diff(array.indptr).astype(np.int64)
            self._add(f"{i}", array)

    def _add(self, name, array):
        array = np.ascontiguousarray(array)
        if name not in self.hashes:
            self.hashes[name] = hashlib.blake2b(
                f"{array.dtype.str}{array.shape[1:]}".encode(), digest_size=16)
        if array.size:
            self.hashes[name].update(memoryview(array).cast("B"))

    def text(self):
        parts = [f"{name} {found.hexdigest()}" for name, found in self.hashes.items()]
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()


class LabelFile:
    """Labels of all positions as numbers, in the order in which they were first met.

    Parameters
    ----------
    store : DualStore
        That has the file.
    """

    def __init__(self, store):
        self._file, self._numbers = store.scratch(), {}

    @property
    def labels(self):
        """Those that were met, in order."""
        return list(self._numbers)

    def numbers(self, labels):
        """The number of each label."""
        numbers = self._numbers
        try:
            return np.fromiter(
                (numbers.setdefault(label, len(numbers)) for label in labels), np.int32,
                len(labels))
        except TypeError as error:
            raise ValueError(f"labels must be hashable: {error}.") from error

    def write(self, start, numbers):
        """Put the numbers of the positions from `start` on aside."""
        self._file.write_at(4 * int(start), numbers)

    def read(self, start, stop):
        """The numbers of the positions start ... stop - 1."""
        return self._file.read_at(4 * int(start), np.empty(stop - start, dtype=np.int32))

    def continued(self):
        """This file, for labels behind those that it has; this object knows nothing of them."""
        more = copy.copy(self)
        more._numbers = dict(self._numbers)
        return more


class EstimatorChunks(Chunks):
    """The chunks of an estimator's data; a subclass reads them.

    Parameters
    ----------
    estimator : estimator
    solver : OutOfCore
    X : container of examples, or Joined
        Of estimators with `partial_fit`.

    Attributes
    ----------
    solver : OutOfCore
    X : Joined
    store : DualStore
    calls : Calls or None
        Of `partial_fit`, what its earlier calls have left.
    goes_on : bool
        Whether there are such, and a later call has what this one leaves.
    last : Left or None
        Of the last call, whose examples need not be looked at again.
    n_known : int
        How many these are.
    kept : ndarray of bool of shape (n_examples,)
        Examples that make up blocks: those of non-zero weight that are not empty.
    weights : ndarray of shape (n_blocks,)
    fingerprint : dict
        Of the fit, where the store lasts.
    is_canonical : bool
        Whether all CSR features are in canonical form, as far as they were looked at.
    """

    # what those of the next call take over
    _for_next = (
        "store", "work_folder", "digests", "is_canonical", "sizes", "edges", "total", "left")

    def __init__(self, estimator, solver, X=None):
        self.estimator, self.solver = estimator, solver
        if X is not None:
            self.X = X if isinstance(X, Joined) else Joined([X])
        self.calls = Calls.of(estimator, solver)
        self.goes_on = self.calls is not None
        self.last = self.calls.last if self.goes_on else None
        self.digest, self.digests = Digest(), []
        self.is_canonical, self.n_known = True, 0
        self.work_folder, self.left = solver.work_folder, None
        if self.last is None:
            self.store = DualStore(solver.work_folder)
            if self.calls is None and self.store.ended is not None:
                self.store.close(False)
                raise ValueError(
                    f"work_folder={str(self.store.folder)!r} holds what calls of partial_fit go on "
                    "from: give fit another one, or delete this one.")
        else:
            self.store = self.last.store
            self.store.enter()
            self.digests = list(self.last.digests)
            self.is_canonical, self.n_known = self.last.is_canonical, self.last.n_examples

    def begin(self, kept, weights, given=None):
        """Note which examples count, and how much each of those does.

        given : ndarray of shape (n_examples,), default=None
            Weights as they were given, which `looked` asks for.
        """
        self.kept, self.given = kept, given
        self.total = float(weights.sum())
        self.weights = weights / self.total
        # the number of blocks before each example
        self.before = np.concatenate([[0], np.cumsum(kept)])

    def pieces(self, n_rows_of):
        """Ranges of examples that are read at once; n_rows_of[i] is the rows before example i.

        Send the bytes of a piece after each: the next one is of as many as chunks are. No piece is
        of two calls.
        """
        n, start, rows = n_rows_of.size - 1, self.n_known, FIRST_ROWS
        bounds = self.X.bounds if isinstance(self.X, Joined) else np.array([0, n])
        while start < n:
            most = n_rows_of[start] + rows
            stop = max(start + 1, int(np.searchsorted(n_rows_of, most, side="right")) - 1)
            stop = min(stop, int(bounds[np.searchsorted(bounds, start, side="right")]))
            size = yield start, stop
            read = n_rows_of[stop] - n_rows_of[start]
            if size and read:
                of_chunk = self.solver.chunk_bytes * read / size
                rows = int(max(FIRST_ROWS, min(of_chunk, 8 * rows)))
            start = stop

    def stream(self, n_rows_of, read):
        """Call read(start, stop), which gives the bytes of it, for all new examples in pieces."""
        pieces, size = self.pieces(n_rows_of), None
        try:
            while True:
                size = read(*pieces.send(size))
        except StopIteration:
            return

    def looked(self, stop, *arrays):
        """Take what was read of a piece, which ends there, into the fingerprint of its call."""
        if not self.store.is_lasting:
            return
        self.digest.update(*arrays)
        if stop in self.X.bounds:
            start = int(self.X.bounds[np.searchsorted(self.X.bounds, stop) - 1])
            own = Digest()
            # numbers of labels go by the order in which they are met
            names = "\0".join(map(repr, self.labels_met())).encode()
            own.update(
                self.given[start:stop], self.kept[start:stop], np.frombuffer(names, np.uint8))
            self.digests.append(self.digest.text() + own.text())
            self.digest = Digest()

    def finish(self, features, max_size, sizes, layout_numbers):
        """Cut the blocks into chunks, and note what they have in common.

        Parameters
        ----------
        features : FeatureMap
            That holds w.
        max_size : int
            Largest number of scores of a block.
        sizes : ndarray of shape (n_blocks,)
            Bytes of the data of each, and of what is made of them.
        layout_numbers : ndarray of shape (n_blocks,)
            Numbers of the dual point of each.
        """
        self.features, self.sizes = features, sizes
        first = self.surrogate_of(np.zeros(1, dtype=np.intp))
        if self.store.is_lasting:
            self.fingerprint = fingerprint(
                self.estimator, {}, idle=(*IDLE, "tol", "max_iter", "solver__work_folder"),
                memory=self.solver.memory)
            if not self.digests:  # of what was taken in without `looked`
                self.digest.update(self.weights, self.kept)
                self.digests.append(self.digest.text())
            # in plain text: of which calls it is can be read
            self.fingerprint["data"] = " ".join(self.digests)
        known = (0,)
        if self.calls is not None:
            self.calls.begin(self)
            known = self.calls.edges
        copies = WITH_STATE if first.has_natural_step else DUAL_COPIES
        self.edges = cut_by(sizes + 8.0 * copies * layout_numbers, self.solver.chunk_bytes, known)
        # examples at which the chunks begin
        self.examples = np.searchsorted(self.before, self.edges, side="left")
        self.examples[-1] = self.kept.size
        self.kind = Kind.of(first, self.weights.size, max_size, self.largest)
        if self.last is not None:
            self.store.forget(same_chunks(self.edges, self.last.edges))

    def kept_blocks(self):
        """Each example that counts as a block of its own: `Blocks` of a problem."""
        return Blocks(
            self.kept.size, np.flatnonzero(self.kept), None, None, None, self.weights, self.total)

    def labels_met(self):
        """Labels of all examples that were looked at, where digests have their numbers."""
        return []

    def blocks(self, c):
        """The numbers of the blocks of chunk c."""
        return np.arange(self.edges[c], self.edges[c + 1])

    def made(self):
        """`problem`, of these chunks; where that fails, no folder is left open."""
        try:
            problem = self.problem()
        except BaseException:
            self.close(False)
            raise
        problem.chunks = self
        return problem

    def solve(self, weights, alpha, **options):
        """The solution, by `OutOfCore.solve_chunks`."""
        calls = self.calls
        if calls is None or calls.ended is None:
            left = {} if calls is None else {"left": calls.left, "share": calls.share}
            return self.solver.solve_chunks(self, weights, alpha, **left, **options)
        self.close(True)
        return calls.ended_solution(self, options["monitor"].tol)

    def keep_end(self, engine, solution):
        """Keep what the next call of `partial_fit` goes on from."""
        if self.calls is not None:
            self.calls.end(self, engine, solution)

    def close(self, done):
        """Leave the folder; done: nothing of it is needed any more but for a next call."""
        if self.calls is not None and (done or self.last is not None):
            self.store.leave()
        else:
            self.store.close(done)

    def warm(self, solution, alpha):
        """What the next call of `partial_fit` goes on from."""
        self.store.n_calls += 1
        return Left(
            same=self.calls.same, begins_anew=self.calls.begins_anew, n_examples=self.kept.size,
            n_calls=self.store.n_calls,
            **{name: getattr(self, name) for name in self._for_next})

    def problem(self):
        """A `Problem` of the blocks of all chunks."""
        raise NotImplementedError

    def surrogate_of(self, blocks):
        """The surrogate of some blocks."""
        raise NotImplementedError

    def largest(self, size):
        """`Surrogate.largest` of all blocks, chunk by chunk."""
        # the features that it is asked for are of the first block alone
        size = max(size, self.kind.max_size)
        return np.concatenate([
            self.surrogate_of(self.blocks(c)).largest(size) for c in range(self.edges.size - 1)])


def same_chunks(edges, before):
    """The number of the first chunks that are the same, and cannot have had others behind."""
    n = min(edges.size, before.size) - 1
    differ = np.flatnonzero(edges[: n + 1] != before[: n + 1])
    return max(0, (int(differ[0]) if differ.size else n) - 1)


def unsupported(estimator):
    """What of the parameters fits by chunks do not have, or None."""
    given = estimator.get_params(deep=False)
    for name, plain in (
        ("order", 1), ("constraints", None), ("kernel", "linear"), ("warm_start", False),
    ):
        value = given.get(name, plain)
        if value is not plain and value != plain:
            return f"{name}={value!r:.80}"
    if given.get("inference") == "soft":
        return "inference='soft'"
    if isinstance(given["fit_intercept"], str):
        return f"fit_intercept={given['fit_intercept']!r}"
    return f"penalty={given['penalty']!r:.80}" if estimator._is_pure_l1() else None


def check_supported(estimator, allowed=None):
    """Refuse parameters that fits by chunks do not have."""
    found = "allowed" if allowed is not None else unsupported(estimator)
    if found is not None:
        raise ValueError(
            f"{found} is not supported by fits that read the data in chunks: leave it as it is by "
            "default, or use solver=BlockFrankWolfe(), in memory.")


def out_of_core(estimator, X, allowed=None):
    """The `OutOfCore` by which the estimator fits X, or None for a fit in memory."""
    solver = estimator.solver
    if isinstance(solver, OutOfCore):
        return solver
    size, default = getattr(X, "n_bytes_on_disk", None), OutOfCore()
    is_large = size is not None and size > default.memory * 2**20
    if is_large and isinstance(solver, str) and allowed is None and not unsupported(estimator):
        return default
    return None


def check_readable(X):
    """Have a container on disk look at its rows, naming the file and the row."""
    check = getattr(X, "check", None)
    if callable(check):
        check()
