"""Inputs of fits on Dask: partitions of examples, as objects that workers compute."""

import sys

import numpy as np
from dask import delayed

from fastm4n.data._sequences import Sequences
from fastm4n.distributed.dask._fleet import is_source
from fastm4n.tasks.parameters import n_examples

FORMS = (
    "a list of delayed objects or futures of pairs (X, y), a dask bag of pairs, dask arrays, or "
    "dask data frames")


def is_a(value, module, name):
    """Whether a value is of a class of a module, which is not imported for that."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


# tasks whose examples are no rows of one matrix
NO_ROWS = ("sequences", "graphs", "matchings")


def is_array(value):
    return is_a(value, "dask.array", "Array")


def is_bag(value):
    return is_a(value, "dask.bag", "Bag")


def is_frame(value):
    return is_a(value, "dask.dataframe", "DataFrame") or is_a(value, "dask.dataframe", "Series")


def is_lazy(value):
    """Whether a value has one of the forms of partitions."""
    if is_source(value) or is_array(value) or is_bag(value) or is_frame(value):
        return True
    return isinstance(value, (list, tuple)) and len(value) > 0 and any(map(is_source, value))


class Pieces:
    """The partitions of X and of the arguments that belong to its rows.

    Parameters
    ----------
    task : str
        `_task` of the estimator.
    X, y, sample_weight, lengths, group
        As in `fit`. All except X may be None.

    Attributes
    ----------
    form : {"pairs", "examples", "apart", "rows", "frame"}
        Form of a partition of X: a tuple (X, y), a list of such tuples of examples, a list of
        examples, rows of a matrix, or rows of a table.
    parts : list
        X, y, sample_weight, lengths and group of each partition, as lazy objects or None.
    """

    def __init__(self, task, X, y=None, sample_weight=None, lengths=None, group=None,
                 with_labels=True):
        self.task, self.columns = task, {}
        if is_source(X):
            X = [X]
            y, sample_weight, lengths, group = (
                [value] if is_source(value) else value
                for value in (y, sample_weight, lengths, group))
        if isinstance(X, (list, tuple)):
            self._of_list(X)
        elif is_bag(X):
            self.form, self.X = ("examples" if y is None else "apart"), X
        elif is_array(X):
            lengths = self._of_array(X, lengths)
        elif is_frame(X):
            self._of_frame(X, y, sample_weight, group)
            y, sample_weight, group = (
                None if name in self.columns else value for name, value in
                (("y", y), ("sample_weight", sample_weight), ("group", group)))
        else:
            raise ValueError(
                f"X must be {FORMS}, got {type(X).__name__}. For local data use the estimator "
                "without Dask.")
        if self.form in ("rows", "frame") and task in ("graphs", "matchings"):
            raise ValueError(f"X has rows, but {task} are no rows: give delayed pairs, or a bag.")
        if self.form in ("rows", "frame") and with_labels and y is None and "y" not in self.columns:
            raise ValueError("y is missing: give the labels of the rows of X.")
        has_ends = lengths is not None or group is not None or "group" in self.columns
        if self.form in ("rows", "frame") and task == "sequences" and not has_ends:
            raise ValueError(
                "X has rows without the ends of sequences: give lengths or group.")
        if has_ends and (task != "sequences" or self.form not in ("rows", "frame")):
            raise ValueError(
                "lengths and group are for sequences as rows of a dask array or data frame: leave "
                "them out.")
        if lengths is not None and (group is not None or "group" in self.columns):
            raise ValueError("give lengths or group, not both.")
        own = blocks(self.X, "X", None)
        others = [
            blocks(value, name, self.X, len(own)) for name, value in
            (("y", y), ("sample_weight", sample_weight), ("lengths", lengths), ("group", group))]
        self.parts = list(zip(own, *others, strict=True))
        if not self.parts:
            raise ValueError("X has no partitions.")

    def _of_list(self, X):
        if not X:
            raise ValueError("X has no partitions: it is an empty list.")
        wrong = [i for i, part in enumerate(X) if not is_source(part)]
        if wrong:
            raise ValueError(
                f"X[{wrong[0]}] is of type {type(X[wrong[0]]).__name__}, but partitions in a list "
                "must be delayed objects or futures.")
        self.form, self.X = "pairs", list(X)

    def _of_array(self, X, lengths):
        """Take rows of a dask array, and return the lengths of each partition."""
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {X.ndim}.")
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        self.form = "rows"
        if isinstance(lengths, (list, tuple)) and lengths and np.ndim(lengths[0]) == 0:
            lengths = np.asarray(lengths)
        if isinstance(lengths, np.ndarray):
            X, lengths = cut_between(X, lengths)
        self.X = X
        return lengths

    def _of_frame(self, X, y, sample_weight, group):
        self.form, self.X = "frame", X
        given = (("y", y), ("sample_weight", sample_weight), ("group", group))
        for name, value in given:
            if isinstance(value, str):
                if value not in list(X.columns):
                    raise ValueError(f"{name}={value!r} is no column of X.")
                self.columns[name] = value

    def assembled(self):
        """A delayed (X, y, sample_weight, ends) for each partition."""
        make = delayed(assembled, pure=False)
        return [make(self.task, self.form, self.columns, *pieces) for pieces in self.parts]


def cut_between(X, lengths):
    """A dask array whose partitions end between sequences, and the lengths in each."""
    edges = np.cumsum(X.chunks[0])
    ends = np.cumsum(lengths)
    if np.isnan(edges).any():
        raise ValueError(
            "X has partitions of unknown sizes: give a list with the lengths of each partition, or "
            "call X.compute_chunk_sizes().")
    if (np.asarray(lengths) < 0).any() or ends[-1:].tolist() != edges[-1:].tolist():
        raise ValueError(
            f"lengths must be at least 0 and add up to the {int(edges[-1])} rows of X, got "
            f"{int(ends[-1]) if ends.size else 0}.")
    last = np.searchsorted(ends, edges)  # sequences cut by an edge stay whole
    last = np.unique(np.append(last[:-1] + 1, len(ends)))
    last = last[ends[last - 1] > 0]
    sizes = np.diff(ends[last - 1], prepend=0)
    last, sizes = last[sizes > 0], sizes[sizes > 0]
    if sizes.tolist() != list(X.chunks[0]):
        X = X.rechunk({0: tuple(sizes.tolist())})
    last[-1] = len(ends)
    return X, np.split(np.asarray(lengths), last[:-1])


def blocks(value, name, X, n=None):
    """The partitions of one argument, in the number of those of X."""
    if value is None:
        return [None] * n
    if is_array(value):
        if X is not None and is_array(X) and value.shape[:1] == X.shape[:1] and (
                value.chunks[0] != X.chunks[0]) and not np.isnan(X.shape[0]):
            value = value.rechunk({0: X.chunks[0]})
        if value.ndim == 2 and value.numblocks[1] > 1:
            value = value.rechunk({1: -1})
        found = value.to_delayed().ravel().tolist()
    elif is_bag(value) or is_frame(value):
        found = list(value.to_delayed())
    elif isinstance(value, (list, tuple)):
        found = list(value)
    elif isinstance(value, np.ndarray) and is_array(X) and name != "lengths":
        if len(value) != X.shape[0]:
            raise ValueError(f"{name} has {len(value)} rows, but X has {X.shape[0]}.")
        found = np.split(value, np.cumsum(X.chunks[0])[:-1])
    else:
        raise ValueError(
            f"{name} must have one partition for each of X, got {type(value).__name__}.")
    if n is not None and len(found) != n:
        raise ValueError(f"{name} has {len(found)} partitions, but X has {n}.")
    return found


# ----------------------------------------------------------------------- on a worker


def assembled(task, form, columns, X, y, sample_weight, lengths, group):
    """One partition (X, y, sample_weight, ends) with its first and last group; None if empty.
    """
    ends = None
    if form == "pairs" and y is None:
        if not isinstance(X, (tuple, list)) or len(X) not in (2, 3):
            raise ValueError(
                "it must be a pair (X, y), or (X, y, sample_weight), got "
                f"{type(X).__name__}.")
        X, y, sample_weight = (*X, sample_weight)[:3]
        if y is None:
            raise ValueError("y is missing: got a pair (X, None).")
    elif form == "examples":
        X, y = unzipped(task, list(X))
    if form == "apart":
        X, y = stacked(task, list(X)), None if y is None else listed(task, list(y))
    if form == "frame":
        X, taken = without(X, columns)
        y = taken.get("y", y)
        sample_weight = taken.get("sample_weight", sample_weight)
        group = taken.get("group", group)
    if n_examples(X) == 0:
        if y is not None and n_examples(y) > 0:
            raise ValueError(f"X is empty, but y has {n_examples(y)} rows.")
        return None
    if group is not None:
        lengths, ends = runs(np.asarray(group))
    if lengths is not None:
        X = Sequences.from_lengths(plain(X), lengths)
        y = None if y is None else Sequences.from_lengths(np.asarray(y), lengths)
    elif task not in NO_ROWS:
        X = X if hasattr(X, "iloc") else plain(X)
    return X, y, sample_weight, ends


def without(table, columns):
    """A table without some of its columns, and these columns by their use."""
    taken = {what: table[name] for what, name in columns.items()}
    return table.drop(columns=list(columns.values())), taken


def plain(rows):
    """Rows as an array or a SciPy matrix."""
    if hasattr(rows, "to_scipy_sparse"):
        return rows.to_scipy_sparse().tocsr()
    if hasattr(rows, "iloc"):
        return rows.to_numpy()
    return rows


def runs(groups):
    """Lengths of runs of equal groups, and the first and the last group."""
    if groups.size == 0:
        return np.zeros(0, dtype=np.intp), None
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
    found, counts = np.unique(groups[starts], return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            f"group {found[np.argmax(counts > 1)].item()!r} is in two places: rows of a sequence "
            "must be consecutive.")
    return np.diff(np.append(starts, groups.size)), (groups[0].item(), groups[-1].item())


def unzipped(task, examples):
    """X and y of a list of pairs."""
    for i, example in enumerate(examples):
        if not isinstance(example, (tuple, list)) or len(example) != 2:
            raise ValueError(
                f"element {i} must be a pair (x, y) of one example, got {type(example).__name__}.")
    return stacked(task, [x for x, _ in examples]), listed(task, [y for _, y in examples])


def stacked(task, rows):
    """Examples as rows of one matrix, or as a list if they are no rows."""
    if task in NO_ROWS or not rows:
        return rows
    if hasattr(rows[0], "tocsr"):
        from scipy import sparse

        return sparse.vstack([row.reshape(1, -1) for row in rows], format="csr")
    return np.stack([np.ravel(row) for row in rows])


def listed(task, labels):
    """Labels of vectors as an array."""
    return labels if task in NO_ROWS else np.asarray(labels)
