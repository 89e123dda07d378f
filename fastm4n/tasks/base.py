"""Tasks: how problems are made of data, one class for each kind of output."""

from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.solvers.choice import as_solver
from fastm4n.surrogates import as_surrogate
from fastm4n.tasks.places import places

# what a surrogate needs of outputs, by their flag
_NEEDED = {
    "has_marginals": "marginals of a distribution over the outputs",
    "has_tangent": "derivatives of the marginals",
}


@dataclass
class Census:
    """Properties that pieces of the data share, and sums over pieces.

    Attributes
    ----------
    n_examples : int or None
        Number of examples that count: not empty, and of non-zero weight. None to count them in the
        piece.
    labels : ndarray, set or None
        All labels of those examples, or None if labels have no names.
    same : dict of str to object
        Properties that all pieces share, by their names in errors.
    sums : dict of str to object
        Arrays and numbers that are added up.
    mass : ndarray or None
        The weight of each of `labels`.
    n_types, n_edge_types : int
        Types of nodes and edges of graphs.
    typed : set
        The pairs of a type and a label that occur.
    size : int
        Size of the largest example.
    vectorizer : SequenceVectorizer or None
        The vectorizer that made the features.
    name : str
        Name of the piece in errors.
    """

    n_examples: int = None
    labels: object = None
    same: dict = field(default_factory=dict)
    sums: dict = field(default_factory=dict)
    mass: np.ndarray = None
    n_types: int = 1
    n_edge_types: int = 1
    typed: set = field(default_factory=set)
    size: int = 0
    vectorizer: object = None
    name: str = "partition 0"

    def merge(self, other):
        """Add the census of another piece. Errors name properties that differ."""
        for what, value in self.same.items():
            _check_equal(what, self, value, other, other.same.get(what))
        for key, value in other.sums.items():
            self.sums[key] = self.sums[key] + value
        self.n_examples += other.n_examples
        self.n_types = max(self.n_types, other.n_types)
        self.n_edge_types = max(self.n_edge_types, other.n_edge_types)
        self.size = max(self.size, other.size)
        self.typed = self.typed | other.typed
        if isinstance(self.labels, np.ndarray):
            both = [part for part in (self.labels, other.labels) if part.size]
            labels = np.unique(np.concatenate(both)) if both else self.labels
            mass = np.zeros(labels.size)
            for part in (self, other):
                mass[places(part.labels, labels)] += part.mass
            self.labels, self.mass = labels, mass
        elif self.labels is not None:
            _check_types(self, other)
            self.labels = self.labels | other.labels
        return self

    def checked(self):
        """This census of all pieces. No examples, or only one label, are an error."""
        if not all(np.isfinite(total).all() for total in self.sums.values()):
            raise ValueError(
                "sample_weight is too large: its sum over all partitions overflows. Only ratios of "
                "weights matter, divide them by a number.")
        if self.n_examples == 0:
            raise ValueError(
                "No partition has an example of non-zero weight that is not empty.")
        levels = self.same.get("levels")
        if levels is not None:
            mass = np.zeros(levels.size)
            mass[places(self.labels, levels)] = self.mass
            self.labels, self.mass = levels, mass
        labels = self.labels if self.mass is None else self.labels[self.mass > 0]
        if labels is not None and len(labels) < 2:
            raise ValueError(
                f"y has one label only, {next(iter(labels))!r}, in all partitions; at least two "
                "are needed.")
        return self


def _check_equal(what, one, value, other, its):
    same = its is value if its is None or value is None else np.array_equal(its, value)
    if not same:
        raise ValueError(
            f"{other.name} has {what} {its!s:.80}, but {one.name} has {value!s:.80}: all must "
            "have the same.")


def _check_types(one, other):
    """Refuse pieces that have all labels of one type each, of two types."""
    found = [{type(label).__name__ for label in part.labels} for part in (one, other)]
    if all(len(types) == 1 for types in found) and found[0] != found[1]:
        raise ValueError(
            f"{other.name} has labels of type {found[1].pop()}, but {one.name} of type "
            f"{found[0].pop()}: labels of all must be of one type.")


class Task:
    """A kind of output, and how problems are made of its data.

    The parameters of the estimator are attributes of the task, the surrogate as an object.

    Parameters
    ----------
    estimator : estimator

    Attributes
    ----------
    taker : str
        The class of the estimator, for errors.
    noun : str
        Name of an example in errors.
    auto_alpha : float or None
        ``alpha="auto"`` is this number over the number of examples. None if alpha is a number.
    """

    noun = "sample"
    auto_alpha = None
    # whether mirror prox starts from its result of the last visit
    oracle_warm_start = False
    # whether data may be read in chunks
    reads_chunks = False

    def __init__(self, estimator):
        self.taker = type(estimator).__name__
        vars(self).update(parameters_of(estimator))
        self.surrogate = as_surrogate(self.surrogate)

    def read(self, pieces, census=None):
        """The data as `problem` takes them."""
        return pieces

    def container(self, X):
        """X of a partition in a container that can be concatenated."""
        return X

    def shared(self, X):
        """X, validated for several fits at a time, and fitted attributes."""
        return X, {}

    def columns(self, X):
        """The features whose columns may be out of scale: a matrix, or a list of them."""
        return X

    def naming(self, problem):
        """A context in which errors name examples and kernels as the user does."""
        return nullcontext()

    def alpha_of(self, n, census=None):
        """alpha as a number, for n examples of non-zero weight in all the data."""
        if census is not None and census.n_examples is not None:
            n = census.n_examples
        return float(self.auto_alpha / n if isinstance(self.alpha, str) else self.alpha)

    def read_more(self, X, before):
        """X of a call and `Seen` of those before it, in the same columns, and a vectorizer."""
        return X, before, None

    def classes_of_call(self, y, classes):
        """All classes, by the arguments of a call of `partial_fit`, or None."""
        return None if classes is None else np.unique(classes)

    def loss(self, outputs):
        """The surrogate over the true outputs of all blocks."""
        self._refuse_large(outputs)
        solver, needed = as_solver(self.solver), self.surrogate.needs
        if needed is not None and not getattr(outputs, needed):
            raise ValueError(
                f"surrogate={self.surrogate!r} needs {_NEEDED[needed]}, which "
                f"{type(outputs).__name__} of {self.taker} does not have; use 'max_min' or "
                "'max_margin'.")
        if solver.oracle == "mirror_prox" and self.surrogate.name == "max_min" and (
                not outputs.has_mirror_prox):
            raise ValueError(
                f"solver__oracle='mirror_prox' is not for {self.taker}, whose max-min oracle is "
                "exact; leave `oracle` out.")
        return self.surrogate.over(
            outputs, solver.oracle, solver.oracle_iter, self.oracle_warm_start)

    def _refuse_large(self, outputs):
        """Refuse dual points that memory cannot hold, whatever the solver."""
        layout = outputs.layout
        n_bytes, behind = 8 * layout.n_numbers, int((layout.sizes() - layout.counts() * (
            layout.stride or layout.counts())).sum())
        if self.surrogate.name == "log" and not outputs.has_entropy:
            # scores in single precision stand for them, of what has a weight
            unscored = outputs.unscored()
            n_bytes = 4 * (layout.n_numbers - layout.n_blocks * (
                0 if unscored is None else len(unscored)))
        refuse_beyond_memory(
            f"the dual points of {layout.n_blocks} different {self.noun}s, {layout.n_numbers} "
            f"numbers in all ({layout.n_parts_of_all} parts x {layout.n_labels} labels"
            + (f", and {behind} for pairs of labels" if behind else "") + "),",
            n_bytes, self._remedy(layout))

    def _remedy(self, layout):
        """Remedy if dual points are too large."""
        by_chunks = f", or {self.noun}s by chunks, with solver=OutOfCore()"
        return f"fit fewer {self.noun}s or labels" + by_chunks * self.reads_chunks


def parameters_of(estimator):
    """The parameters of an estimator by name, without fitted attributes."""
    return {
        name: value for name, value in vars(estimator).items()
        if name[0] != "_" and name[-1] != "_"}


def rows_in_common(X):
    """Properties that rows of all pieces share."""
    return {"columns": X.shape[1], "rows that are": "sparse" if sparse.issparse(X) else "dense"}
