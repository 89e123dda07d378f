"""Data that are read chunk by chunk, and data of several calls of `partial_fit`.

`Chunked` reads a piece at a time, and stores features and norms after the first time.

Both stand in one file, as a later call of `partial_fit` reads the stored rows of earlier ones in
chunks.
"""

import copy
import hashlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import sparse

from fastm4n.base.array_files import read_arrays, understood
from fastm4n.base.arrays import flat, part
from fastm4n.data._ragged import Ragged, cut
from fastm4n.data._sequences import Sequences
from fastm4n.data._sequences import pieces as pieces_of
from fastm4n.data.disk._arrays import leaves_room
from fastm4n.data.disk._rows import Rows, rows_from_batches
from fastm4n.solvers.base import Solution, State
from fastm4n.solvers.certificates import Certificate
from fastm4n.solvers.chunks import SurrogateTraits
from fastm4n.solvers.dual_store import ENDED, STATE, DualStore
from fastm4n.solvers.monitor import FIT, IDLE, fingerprint
from fastm4n.tasks.base import Blocks, Call
from fastm4n.tasks.parameters import n_examples

# ------------------------------------------------------------------- rows in pieces

# rows of the first piece that is read, which gives the size of the others
FIRST_ROWS = 256
# dual points in memory: that of a chunk, and a copy on the way to or from disk; with what the
# surrogate keeps beside, which is copied twice
DUAL_COPIES, WITH_STATE = 2, 5
# blocks of at most so many positions have a Gram matrix: GRAM_LENGTH of the features; of longer
# ones entries are sorted, of so many bytes each
SHORT, SORTED_ENTRY = 64, 16


def in_memory(values):
    """Rows in buffers of this process. Mapped rows are copied."""
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
    """Bytes of dense or CSR rows. Row pointers count 8 bytes each."""
    if sparse.issparse(values):
        return values.data.nbytes + values.indices.nbytes + 8 * values.indptr.size
    return values.nbytes


def as_kernel_rows(values, start, stop):
    """Rows start ... stop - 1 of a validated matrix, C-ordered or int32 CSR."""
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
        The attribute that holds the rows.
    start, stop : int
    offsets : ndarray
        First row of each item.
    """
    if hasattr(X, "n_bytes_on_disk"):
        whole = getattr(X[start:stop], name)
        return as_kernel_rows(whole, 0, whole.shape[0])
    return as_kernel_rows(getattr(X, name), *offsets[[start, stop]])


def position_bytes(lengths, entries, values):
    """Bytes of the positions of each block, with those of Gram matrices or sorted entries.

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
    """Dense or CSR rows as arrays by name. `from_arrays` undoes it."""
    if not sparse.issparse(values):
        return {name: values}
    shape = np.array(values.shape, dtype=np.int64)
    return flat(name, {
        "data": values.data, "indices": values.indices, "indptr": values.indptr, "shape": shape})


def from_arrays(name, arrays):
    """The rows of `as_arrays`, or None."""
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

    Edges that are known stay, except that the last chunk takes as many more blocks as fit.
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
    """Labels of all positions as numbers, in order of first occurrence.

    Parameters
    ----------
    store : DualStore
        The store of the file.
    """

    def __init__(self, store):
        self._file, self._numbers = store.scratch(), {}

    @property
    def labels(self):
        """The distinct labels in order of first occurrence."""
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
        """A copy that can number more labels."""
        more = copy.copy(self)
        more._numbers = dict(self._numbers)
        return more


class Chunked:
    """The chunks of the data of a task: pieces of a `Problem`.

    A subclass has `problem`, the `Problem` of the blocks of all chunks, `surrogate_of(blocks)`, and
    `open(c)`, the surrogate and features of a chunk and the bytes of its data.

    Parameters
    ----------
    task : Task
    data : Memory or Call
        What `fit` or `partial_fit` was given.
    solver : OutOfCore
    X : container of examples, or ConcatenatedData
        For estimators with `partial_fit`.

    Attributes
    ----------
    solver : OutOfCore
    X : ConcatenatedData
    store : DualStore
    calls : Calls or None
        Earlier calls of `partial_fit`.
    goes_on : bool
        Whether a later call of `partial_fit` continues from this one.
    last : PartialFitState or None
        State of the last call, whose examples are not read again.
    n_known : int
        Number of those examples.
    kept : ndarray of bool of shape (n_examples,)
        Examples that make up blocks: not empty, and of non-zero weight.
    weights : ndarray of shape (n_blocks,)
    fingerprint : dict
        Fingerprint of the fit, if the store lasts.
    is_canonical : bool
        Whether all CSR features read so far are in canonical form.
    """

    road = "folder"
    is_whole = False
    prior = None
    # what those of the next call take over
    _for_next = (
        "store", "work_folder", "digests", "is_canonical", "sizes", "edges", "total", "left")

    def __init__(self, task, data, solver, X=None):
        self.task, self.solver, self.estimator = task, solver, task.estimator
        if X is not None:
            self.X = X if isinstance(X, ConcatenatedData) else ConcatenatedData([X])
        self.calls = Calls(task.estimator, solver, data) if isinstance(data, Call) else None
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
        """Set the examples that count, and their weights.

        given : ndarray of shape (n_examples,), default=None
            Weights of all examples, for `looked`.
        """
        self.kept, self.given = kept, given
        self.total = float(weights.sum())
        self.weights = weights / self.total
        # the number of blocks before each example
        self.before = np.concatenate([[0], np.cumsum(kept)])

    def pieces(self, n_rows_of):
        """Ranges of examples that are read at once.

        n_rows_of[i] is the number of rows before example i.

        Send the bytes of each piece, by which the next one gets the size of a chunk. No piece is
        of two calls.
        """
        n, start, rows = n_rows_of.size - 1, self.n_known, FIRST_ROWS
        bounds = self.X.bounds if isinstance(self.X, ConcatenatedData) else np.array([0, n])
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
        """Add a piece that ends at `stop` to the fingerprint of its call."""
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
        """Cut the blocks into chunks, and set their common traits.

        Parameters
        ----------
        features : FeatureMap
            The map that holds w.
        max_size : int
            Largest number of scores of a block.
        sizes : ndarray of shape (n_blocks,)
            Bytes of each block's data and features.
        layout_numbers : ndarray of shape (n_blocks,)
            Length of each block's dual point.
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
        self.kind = SurrogateTraits.from_chunk(first, self.weights.size, max_size, self.largest)
        if self.last is not None:
            self.store.forget(same_chunks(self.edges, self.last.edges))

    def kept_blocks(self):
        """The `Blocks` of a problem, one for each example that counts."""
        return Blocks(
            self.kept.size, np.flatnonzero(self.kept), None, None, None, self.weights, self.total)

    def labels_met(self):
        """Labels that were read, if digests contain their numbers."""
        return []

    def blocks(self, c):
        """The numbers of the blocks of chunk c."""
        return np.arange(self.edges[c], self.edges[c + 1])

    def made(self):
        """The problem of these chunks. If it fails, the folder is closed."""
        try:
            return self.problem()
        except BaseException:
            self.close(False)
            raise

    def start(self, problem, alpha, state):
        """None: dual points of earlier calls are in the store."""

    @property
    def left_before(self):
        """State of the last call of `partial_fit` or None, and its share of the weights."""
        return (None, 1.0) if self.calls is None else (self.calls.left, self.calls.share)

    def ended_solution(self, tol):
        """The stored solution, if this call of `partial_fit` has ended before, or None."""
        if self.calls is None or self.calls.ended is None:
            return None
        return self.calls.ended_solution(self, tol)

    def ended(self, engine):
        """Compute terms of all blocks at the solution, before chunks are closed."""

    def keep_end(self, engine, solution):
        """Store the state for the next call of `partial_fit`."""
        if self.calls is not None:
            self.calls.end(self, engine, solution)

    def close(self, done):
        """Leave the folder. If done, only a next call needs its contents."""
        if self.calls is not None and (done or self.last is not None):
            self.store.leave()
        else:
            self.store.close(done)

    def warm(self, problem, solution, alpha):
        """The state for the next call of `partial_fit`."""
        self.store.n_calls += 1
        return PartialFitState(
            same=self.calls.same, begins_anew=self.calls.begins_anew, n_examples=self.kept.size,
            n_calls=self.store.n_calls,
            **{name: getattr(self, name) for name in self._for_next})

    def largest(self, size):
        """`Surrogate.largest` of all blocks, chunk by chunk."""
        # the features that it is asked for are of the first block alone
        size = max(size, self.kind.max_size)
        return np.concatenate([
            self.surrogate_of(self.blocks(c)).largest(size) for c in range(self.edges.size - 1)])


def same_chunks(edges, before):
    """Number of leading chunks that are complete and equal."""
    n = min(edges.size, before.size) - 1
    differ = np.flatnonzero(edges[: n + 1] != before[: n + 1])
    return max(0, (int(differ[0]) if differ.size else n) - 1)


def check_readable(X):
    """Check the rows of a container on disk."""
    check = getattr(X, "check", None)
    if callable(check):
        check()


# ------------------------------------------------------------------- several calls

class PartialFitData:
    """The data of all calls of `partial_fit`, and the classes that they are of.

    Attributes
    ----------
    X, y : ConcatenatedData
    weights : ndarray of shape (n_examples,)
    classes : ndarray or None
    vectorizer : SequenceVectorizer or None
        The vectorizer that made X of attributes.
    prior : Prior or None
        Weights before the first call.
    """

    def __init__(self, X, y, weights, classes, vectorizer=None, prior=None):
        self.X, self.y, self.weights, self.classes = X, y, weights, classes
        self.vectorizer, self.prior = vectorizer, prior

    def with_more(self, more, taker):
        """These and other data, for the estimator of that name."""
        for name in ("X", "y"):
            (old, was_sparse), (new, is_sparse) = (
                getattr(data, name).form for data in (self, more))
            if old != new:
                old_width, width = (shape[0] if shape else "no" for shape in (old, new))
                what = "features" if name == "X" else "labels"
                raise ValueError(
                    f"{name} has {width} {what}, but {taker} is expecting {old_width} {what} "
                    "as input, as in earlier calls of partial_fit.")
            if is_sparse != was_sparse and isinstance(more.X.parts[0], Ragged):
                raise ValueError(
                    f"{name} is {'sparse' if is_sparse else 'dense'}, and was not in earlier calls "
                    "of partial_fit; give one kind.")
        return PartialFitData(
            self.X.with_more(more.X), self.y.with_more(more.y),
            np.concatenate([self.weights, more.weights]), self.classes, more.vectorizer,
            self.prior)

    def widened(self, vectorizer):
        """The same data with columns of zeros behind them, for what a vectorizer has more."""
        parts = []
        for given in self.X.parts:
            rows = given.values
            rows = type(rows)(
                (rows.data, rows.indices, rows.indptr),
                shape=(rows.shape[0], vectorizer._n_features_out))
            parts.append(Sequences._of_checked(rows, given.offsets))
        return PartialFitData(
            ConcatenatedData(parts), self.y, self.weights, self.classes, vectorizer, self.prior)

    def together(self):
        """The same data in one given each, in memory where they were several."""
        X, y = (ConcatenatedData([joined.together()]) for joined in (self.X, self.y))
        return PartialFitData(X, y, self.weights, self.classes, self.vectorizer, self.prior)


# rows whose labels are read at a time: a limit of memory
AT_ONCE = 1 << 16


class FolderReference:
    """Reference to a stored container, reopened on first use. Pickles hold the folder's name.

    Parameters
    ----------
    given : StoredSequences or Rows
    """

    def __init__(self, given):
        self.reopen = given.__reduce__()
        self.kind = form_of(given)

    def opened(self):
        make, arguments = self.reopen
        return make(*arguments)


class ConcatenatedData:
    """Containers of examples, one after another.

    A slice within one container is a slice of that, and reads nothing from disk. Other slices are
    copied into memory. Pickles hold the names of folders, which are opened on first use.

    Parameters
    ----------
    parts : list of containers
        `Sequences`, arrays, CSR matrices, `Rows`, or lists.

    Attributes
    ----------
    bounds : ndarray of shape (n_parts + 1,)
        First example of each container.
    """

    def __init__(self, parts):
        self._parts = list(parts)
        self.bounds = cut([n_examples(given) for given in self._parts])

    def __getstate__(self):
        parts = [
            FolderReference(given) if hasattr(given, "folder") else given
            for given in self._parts]
        return {"_parts": parts, "bounds": self.bounds}

    @property
    def parts(self):
        """The containers."""
        for i, given in enumerate(self._parts):
            if isinstance(given, FolderReference):
                with explained(i):
                    self._parts[i] = given.opened()
        return self._parts

    def __len__(self):
        return int(self.bounds[-1])

    def with_more(self, more):
        """These and the examples of another one."""
        joined = ConcatenatedData([])
        joined._parts = self._parts + more._parts
        joined.bounds = np.concatenate([self.bounds, self.bounds[-1] + more.bounds[1:]])
        return joined

    def together(self):
        """One container of all, in memory where they are several."""
        return self.parts[0] if len(self._parts) == 1 else put_together(self.parts)

    def place(self, start, stop):
        """The container of examples start ... stop - 1 and their numbers there; None if several."""
        i = int(np.searchsorted(self.bounds, start, side="right")) - 1
        if stop > self.bounds[i + 1]:
            return None
        first = int(self.bounds[i])
        return self.parts[i], start - first, stop - first

    def own_number(self, example):
        """The number that an example has in its given."""
        return int(example - self.bounds[np.searchsorted(self.bounds, example, side="right") - 1])

    def __getitem__(self, where):
        """A slice, of step 1."""
        start, stop, _ = where.indices(len(self))
        if start >= stop:
            return self.parts[0][:0]
        found = []
        while start < stop:
            end = min(stop, int(self.bounds[np.searchsorted(self.bounds, start, side="right")]))
            given, first, last = self.place(start, end)
            found.append(given[first:last])
            start = end
        return found[0] if len(found) == 1 else put_together(found)

    def matrices(self):
        """The rows, some at a time."""
        for given in self.parts:
            if isinstance(given, Sequences):
                yield from (piece.values for piece in pieces_of(given))
            else:
                for start in range(0, n_examples(given), AT_ONCE):
                    rows = given[start : start + AT_ONCE]
                    yield rows.values if isinstance(rows, Rows) else rows

    @property
    def n_bytes_on_disk(self):
        """Bytes of the containers on disk, or None."""
        sizes = [
            given.n_bytes_on_disk for given in self.parts if hasattr(given, "n_bytes_on_disk")]
        return sum(sizes) if sizes else None

    @property
    def form(self):
        """Shape of a row, and whether rows are sparse, of the first given."""
        first = self._parts[0]
        return first.kind if isinstance(first, FolderReference) else form_of(first)

    def check_there(self):
        """Refuse folders that have gone, or have other contents than when they were opened.

        They are mapped range by range where all of them take much of the address space.
        """
        is_small = leaves_room(self.n_bytes_on_disk or 0)
        for i, given in enumerate(self.parts):
            if hasattr(given, "folder"):
                with explained(i):
                    given.folder.check_unchanged()
                    for file in () if is_small else given.folder.files.values():
                        file.map_ranges()


@contextmanager
def explained(i):
    """Errors of folders name the call."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(
            f"partial_fit fits the data of all calls, and those of call {i + 1} are not there as "
            f"they were: {error}") from error


def put_away(X, y, folder):
    """Move data from memory to folders below this one.

    Labels of single rows, and those that folders cannot hold, stay in memory.

    Parameters
    ----------
    X, y : ConcatenatedData
    folder : str or path
    """
    for i, given in enumerate(X.parts):
        if hasattr(given, "folder"):
            continue
        path, labels = Path(folder) / f"fastm4n-call-{i + 1:04d}", y.parts[i]
        if not isinstance(given, Sequences):
            X.parts[i] = rows_from_batches([given], path, overwrite=True)
        elif labels.values.dtype.kind in "biufUS":
            X.parts[i], y.parts[i] = Sequences.from_batches([(given, labels)], path, overwrite=True)
        else:
            given.save(path, overwrite=True)
            X.parts[i] = Sequences.open(path)


def form_of(given):
    """Shape of a row, and whether rows are sparse."""
    if isinstance(given, Ragged):
        return given._kind()
    if isinstance(given, Rows):
        return given.shape[1:], sparse.issparse(given[:0].values)
    return np.shape(given)[1:], sparse.issparse(given)


def put_together(parts):
    """One container of several of a kind, in memory."""
    if all(isinstance(given, Ragged) for given in parts):
        return np.concatenate(parts)
    parts = [given.values if isinstance(given, (Rows, Sequences)) else given for given in parts]
    if any(map(sparse.issparse, parts)):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)


# parameters that may change from call to call, for dual points to be gone on from
FREE = (*IDLE, "alpha", "tol", "max_iter", "random_state", "solver")


class PartialFitState:
    """In-process state of a `partial_fit` call. Never pickled or copied."""

    n_examples, begins_anew = -1, False

    def __init__(self, **named):
        vars(self).update(named)

    def __getstate__(self):
        return {}


class Calls:
    """Earlier calls of `partial_fit`, from which one continues.

    Attributes
    ----------
    same : dict
        Fingerprint of the parameters that all calls must have in common.
    last : PartialFitState or None
        State of the last call, if the same estimator made it under the same parameters.
    left, share : dict, float
        State of the last engine, and the share of its blocks. None to begin at phi(y).
    edges : ndarray
        Edges of the chunks of the last call.
    ended : tuple or None
        The file of this very call, which has ended before.
    begins_anew : bool
        Whether dual points of earlier calls are missing.
    """

    def __init__(self, estimator, solver, call):
        n_before, found = 0 if call.before is None else call.before.weights.size, call.state
        options = [f"solver__{name}" for name in solver.get_params()]
        self.same = fingerprint(estimator, {}, idle=(*FREE, *options))
        self.n_before = n_before
        self.last = self.left = self.ended = None
        self.share, self.edges, self.begins_anew = 1.0, (0,), False
        if n_before and isinstance(found, PartialFitState) and found.n_examples == n_before and (
                found.same == self.same and found.work_folder == solver.work_folder
                and found.n_calls == found.store.n_calls):
            self.last = found

    def begin(self, chunks):
        """Find the state to continue from, after all data were read."""
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
        """The stored solution of this call. `features` get its weights."""
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
    """Stopping criteria, which the fingerprint leaves out."""
    return [estimator.tol_, int(estimator.max_iter)]


def _is_ahead(store, digests):
    """Whether the folder contains these calls and later ones."""
    if store.ended is not None:
        header = store.ended[0]
    elif (store.folder / STATE).exists():
        header, _ = read_arrays(store.folder / STATE, FIT, finite=False)
    else:
        return False
    with understood(store.folder, "state of calls"):
        found = header["fingerprint"]["data"].split()
    return len(found) > len(digests) and found[: len(digests)] == digests
