"""Data that came in several calls, indexed as one and not put together."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
from scipy import sparse

from fastm4n.data._ragged import cut
from fastm4n.data._sequences import Sequences, pieces
from fastm4n.data.disk._arrays import leaves_room
from fastm4n.data.disk._rows import Rows, rows_from_batches
from fastm4n.tasks.places import n_examples

# rows that are looked at once
AT_ONCE = 1 << 16


class Away:
    """What is in a folder, by the folder's name; a pickle of it does not ask for the folder.

    Parameters
    ----------
    part : StoredSequences or Rows
    """

    def __init__(self, part):
        self.reopen = part.__reduce__()
        self.kind = form_of(part)

    def opened(self):
        make, arguments = self.reopen
        return make(*arguments)


class Joined:
    """Containers of examples, one after another.

    A slice of one of them is its own slice, and reads nothing of what is on disk; one of several is
    put together in memory. A pickle holds the folders of what is on disk, which are opened when
    they are asked for.

    Parameters
    ----------
    parts : list of containers
        `Sequences`, arrays, CSR matrices, `Rows`, or lists.

    Attributes
    ----------
    bounds : ndarray of shape (n_parts + 1,)
        Where each part begins.
    """

    def __init__(self, parts):
        self._parts = list(parts)
        self.bounds = cut([n_examples(part) for part in self._parts])

    def __getstate__(self):
        parts = [Away(part) if hasattr(part, "folder") else part for part in self._parts]
        return {"_parts": parts, "bounds": self.bounds}

    @property
    def parts(self):
        """The containers."""
        for i, part in enumerate(self._parts):
            if isinstance(part, Away):
                with explained(i):
                    self._parts[i] = part.opened()
        return self._parts

    def __len__(self):
        return int(self.bounds[-1])

    def with_more(self, more):
        """These and the examples of another one."""
        joined = Joined([])
        joined._parts = self._parts + more._parts
        joined.bounds = np.concatenate([self.bounds, self.bounds[-1] + more.bounds[1:]])
        return joined

    def together(self):
        """One container of all, in memory where they are several."""
        return self.parts[0] if len(self._parts) == 1 else put_together(self.parts)

    def place(self, start, stop):
        """The part that has examples start ... stop - 1 alone, and their numbers there; or None."""
        i = int(np.searchsorted(self.bounds, start, side="right")) - 1
        if stop > self.bounds[i + 1]:
            return None
        first = int(self.bounds[i])
        return self.parts[i], start - first, stop - first

    def own_number(self, example):
        """The number that an example has in its part."""
        return int(example - self.bounds[np.searchsorted(self.bounds, example, side="right") - 1])

    def __getitem__(self, where):
        """A slice, of step 1."""
        start, stop, _ = where.indices(len(self))
        if start >= stop:
            return self.parts[0][:0]
        found = []
        while start < stop:
            end = min(stop, int(self.bounds[np.searchsorted(self.bounds, start, side="right")]))
            part, first, last = self.place(start, end)
            found.append(part[first:last])
            start = end
        return found[0] if len(found) == 1 else put_together(found)

    def matrices(self):
        """The rows, some at a time."""
        for part in self.parts:
            if isinstance(part, Sequences):
                yield from (piece.values for piece in pieces(part))
            else:
                for start in range(0, n_examples(part), AT_ONCE):
                    rows = part[start : start + AT_ONCE]
                    yield rows.values if isinstance(rows, Rows) else rows

    @property
    def n_bytes_on_disk(self):
        """Bytes of the parts that are on disk; None if none is."""
        sizes = [part.n_bytes_on_disk for part in self.parts if hasattr(part, "n_bytes_on_disk")]
        return sum(sizes) if sizes else None

    @property
    def form(self):
        """Shape of a row, and whether rows are sparse, of the first part."""
        first = self._parts[0]
        return first.kind if isinstance(first, Away) else form_of(first)

    def check_there(self):
        """Refuse folders that have gone, or have other contents than when they were opened.

        They are mapped range by range where all of them take much of the address space.
        """
        is_small = leaves_room(self.n_bytes_on_disk or 0)
        for i, part in enumerate(self.parts):
            if hasattr(part, "folder"):
                with explained(i):
                    part.folder.check_unchanged()
                    for file in () if is_small else part.folder.files.values():
                        file.map_ranges()


@contextmanager
def explained(i):
    """Errors of folders say of which call they are."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(
            f"partial_fit fits the data of all calls, and those of call {i + 1} are not there as "
            f"they were: {error}") from error


def put_away(X, y, folder):
    """Have what is in memory in folders below this one, and refer to these.

    Labels that no folder holds, and those of single rows, stay where they are.

    Parameters
    ----------
    X, y : Joined
    folder : str or path
    """
    for i, part in enumerate(X.parts):
        if hasattr(part, "folder"):
            continue
        path, labels = Path(folder) / f"fastm4n-call-{i + 1:04d}", y.parts[i]
        if not isinstance(part, Sequences):
            X.parts[i] = rows_from_batches([part], path, overwrite=True)
        elif labels.values.dtype.kind in "biufUS":
            X.parts[i], y.parts[i] = Sequences.from_batches([(part, labels)], path, overwrite=True)
        else:
            part.save(path, overwrite=True)
            X.parts[i] = Sequences.open(path)


def form_of(part):
    """Shape of a row, and whether rows are sparse."""
    if isinstance(part, Sequences):
        return part._kind()
    if isinstance(part, Rows):
        return part.shape[1:], sparse.issparse(part[:0].values)
    return np.shape(part)[1:], sparse.issparse(part)


def put_together(parts):
    """One container of several of a kind, in memory."""
    if all(isinstance(part, Sequences) for part in parts):
        return np.concatenate(parts)
    parts = [part.values if isinstance(part, (Rows, Sequences)) else part for part in parts]
    if any(map(sparse.issparse, parts)):
        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)
