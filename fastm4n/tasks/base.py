"""Tasks: how problems are made of data, and fitted attributes and predictions of solutions.

One file, as a task is read next to the census, blocks and memory that its methods exchange.
"""

import reprlib
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import flat
from fastm4n.base.checks import check_choice
from fastm4n.base.label_costs import as_costs, dearest_of, mean_of, name_of
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.penalties._penalties import as_penalty, is_pure_l1, resolve_penalty
from fastm4n.solvers.base import State
from fastm4n.solvers.certificates import objective_at_zero
from fastm4n.solvers.choice import as_solver
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.surrogates import as_surrogate
from fastm4n.tasks.parameters import DECODINGS, declared_classes, places, unknown_label
from fastm4n.tasks.prior import Prior

# for single labels alpha="auto" is this times the total variance of the features over n, and at
# most 1 / n (benchmarks/defaults.py)
SHARE_OF_VARIANCE = 0.02
# least alpha="auto", for weights and costs near the ends of float64
LEAST_ALPHA = 1e-290
# why a model has no weights of some name
MISSING = "weights that this model has not: see {}"
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
        Number of examples that count: not empty, and of non-zero weight. None if the labels are
        all that is known.
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
    moments : dict of label to Moments
        Moments of the rows of each label, or of all rows at None. Empty if alpha needs none.
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
    moments: dict = field(default_factory=dict)

    def merge(self, other):
        """Add the census of another piece. Errors name properties that differ."""
        for what, value in self.same.items():
            _check_equal(what, self, value, other, other.same.get(what))
        for key, value in other.sums.items():
            self.sums[key] = self.sums[key] + value
        for label, moments in other.moments.items():
            known = self.moments.get(label)
            self.moments[label] = moments if known is None else known + moments
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

    def of_classes(self, classes):
        """This census with these labels, which are all that there may be."""
        own, every = (
            set(part.tolist() if isinstance(part, np.ndarray) else part)
            for part in (self.labels, classes))
        if not own <= every:
            raise unknown_label(min(own - every, key=repr), every)
        mass = self.mass
        if mass is not None:
            mass = np.zeros(len(classes))
            mass[places(self.labels, classes)] = self.mass
        return replace(self, labels=classes, mass=mass)

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


def _same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items())


@dataclass
class Blocks:
    """Which examples make up the blocks of a problem.

    Attributes
    ----------
    n_examples : int
    kept : ndarray of shape (n_kept,)
        Examples of non-zero weight.
    block_of, shares : ndarray of shape (n_kept,)
        The block of each of those, and what part of the block's weight is theirs.
    first : ndarray of shape (n_blocks,)
        An example of each block, as its place in `kept`.
    weights : ndarray of shape (n_blocks,)
        p_b > 0, summing to one.
    total : float
        The sum of the weights before they were divided by it.
    """

    n_examples: int
    kept: np.ndarray
    block_of: np.ndarray
    shares: np.ndarray
    first: np.ndarray
    weights: np.ndarray
    total: float

    @classmethod
    def of(cls, n_examples, kept, weights, first, block_weights, block_of):
        """Blocks of examples with these weights, the last three being what merging gives."""
        total = block_weights.sum()
        if first.size == kept.size:
            shares = np.broadcast_to(1.0, kept.shape)  # nothing is merged
        else:
            shares = weights / block_weights[block_of]
        if n_examples < 2**31:
            kept, block_of, first = (
                array.astype(np.int32) for array in (kept, block_of, first))
        return cls(
            n_examples, kept, block_of, shares, first, block_weights / total, float(total))

    @property
    def examples(self):
        """An example of each block."""
        return self.kept[self.first]

    def spread(self, rows):
        """A row for each example: the row of its block times its share of the weight."""
        of_examples = np.zeros((self.n_examples, rows.shape[1]))
        of_examples[self.kept] = self.shares[:, np.newaxis] * rows[self.block_of]
        return of_examples


class Memory:
    """Data in memory, one piece: the arguments of `fit`.

    Attributes
    ----------
    X, y, sample_weight, lengths, allowed
        As of `fit`.
    part_weight
        The `token_weight`, `label_weight`, `item_weight` or `row_weight` of `fit`.
    road : str
        Where data come from: "memory", "folder", "calls" of `partial_fit` or "partitions".
    is_whole : bool
        Whether these are all data of the fit, and in memory.
    solver : Solver or None
        The only solver of the problem, if there is one.
    prior : Prior or None
        Earlier weights that the fit goes on from, without their data.
    may_be_partial : bool
        Whether y may leave something open, which `complete` fills in.
    item_features
        As of `fit`.
    """

    road = "memory"
    is_whole = True
    solver = prior = None
    may_be_partial = False
    item_features = None

    def __init__(self, X=None, y=None, sample_weight=None, lengths=None, allowed=None,
                 part_weight=None, item_features=None):
        self.X, self.y, self.sample_weight = X, y, sample_weight
        self.item_features = item_features
        self.lengths, self.allowed, self.part_weight = lengths, allowed, part_weight

    def start(self, problem, alpha, state):
        """The `State` to start from, by `_warm_state` of the estimator, or None."""
        is_there = isinstance(state, dict) and problem.task.warm_start
        return problem.start(state, alpha) if is_there else None

    def attributes(self, problem, solution, alpha, keep_dual):
        """Fitted attributes from which a later fit goes on."""
        return {"_warm_state": self.warm(problem, solution, alpha)} if keep_dual else {}

    def warm(self, problem, solution, alpha):
        """The state from which a later fit to these pieces goes on."""
        return problem.warm(solution, alpha)


class Partition(Memory):
    """Data of one of several members of a fit, in its memory until the problem is made."""

    road = "partitions"
    is_whole = False


class Call(Memory):
    """Data of a call of `partial_fit` and of the calls before it, in memory.

    Attributes
    ----------
    seen : PartialFitData
        The data of all calls, this one included.
    before : PartialFitData or None
        The data of earlier calls.
    state : dict, PartialFitState or None
        State after the last call.
    feature_names : ndarray or None
        Names of the columns of X, which are lost where calls are put together.
    """

    road = "calls"

    def __init__(self, X, y, seen, before, state, feature_names=None):
        super().__init__(X, y, seen.weights)
        self.seen, self.before, self.state, self.prior = seen, before, state, seen.prior
        self.feature_names = feature_names

    def start(self, problem, alpha, state):
        """The state of the last call, as of a share of the weights of this one."""
        before, seen, state = self.before, self.seen, self.state
        if before is None or not isinstance(state, dict):
            return None
        n = before.weights.size
        if state["owner"].size != n:
            return None  # of a fit to other data since
        share = float(before.weights.sum() / seen.weights.sum())
        state = dict(
            state, state=state["state"].scaled(share),
            owner=np.concatenate([state["owner"], np.full(seen.weights.size - n, -1)]))
        # new examples add to what a warm start compares of each
        of_examples = {name: problem.same[name] for name in problem.task.of_examples}
        state["same"] = {**state["same"], **of_examples}
        return problem.start(state, alpha)

    def attributes(self, problem, solution, alpha, keep_dual):
        """Fitted attributes of the next call, which goes on from the last one that ended."""
        names = self.feature_names
        noted = {} if names is None else {"feature_names_in_": names}
        if solution.interrupted:
            return {
                **noted, "_seen": self.before, "_warm_state": self.state, "_prior": self.prior}
        return {
            **noted, "_seen": self.seen,
            "_warm_state": problem.pieces.warm(problem, solution, alpha)}


@dataclass
class Problem:
    """The objective of a fit: plain data, which another process can solve.

    Attributes
    ----------
    loss, features
        As `solve` takes them, and ``blocks.weights``.
    blocks : Blocks
    common : dict
        Fitted attributes that do not depend on alpha.
    same : dict
        Data that an earlier fit must share for a warm start.
    free_intercept : float, default=None
        The value of the constant feature if the intercept is not penalised.
    centre : ndarray of shape (n_features,), default=None
        The mean subtracted from all rows of X.
    shapes : WeightShapes, default=None
        Where the weights of graphs lie.
    alpha : float
        The estimator's, "auto" as a number.
    task : Task
        By whose parameters refusals say what is wrong.
    pieces : Memory, Partition, Call or Chunked
        Where the data are.
    modulus, has_groups
        The share of the quadratic term in the penalty, and whether there are norms of groups.
    prior : Prior or None
        The weights that those of `features` are added to.
    known : Sequences, callable or None
        For `complete`, the labels that may be at each part of each example, or what makes a `Clamp`
        of the outputs.
    first : ndarray or None
        The first completions for it.
    """

    loss: Any
    features: Any
    blocks: Blocks
    common: dict[str, Any]
    same: dict[str, Any]
    free_intercept: float = None
    centre: np.ndarray = None
    shapes: Any = None
    alpha: ClassVar[float] = None
    task: ClassVar[Any] = None
    pieces: ClassVar[Any] = Memory()
    modulus: ClassVar[float] = 1.0
    prior: ClassVar[Any] = None
    known: ClassVar[Any] = None
    first: ClassVar[Any] = None
    has_groups: ClassVar[bool] = False

    @property
    def weights(self):
        return self.blocks.weights

    @property
    def solver(self):
        """The only solver of this problem, None if there are several."""
        return self.pieces.solver

    @property
    def taker(self):
        """The class of the estimator, for errors."""
        return self.task.taker

    def open(self, k):
        """Surrogate and features of the blocks of piece k, made when asked for, and their bytes."""
        return self.pieces.open(k) if self.pieces.solver else (self.loss, self.features, 0)

    def said(self, *names):
        """These parameters as in the constructor, "surrogate='log', cost='zero_one'"."""
        given = self.task.estimator.get_params()
        return ", ".join(
            f"{name}={reprlib.repr(given[name])}" for name in names if name in given)

    def outputs_in_words(self):
        """The outputs, with the oracle where there are several."""
        oracle = self.common.get("oracle_")
        return f"outputs of {self.taker}" + ("" if oracle is None else f" by oracle_={oracle!r}")

    def features_in_words(self):
        """The form of X."""
        kernel = self.task.kernel
        X = getattr(self.features, "X", None)
        return (
            f"kernel={reprlib.repr(kernel)}" if kernel != "linear" else
            "a sparse X" if sparse.issparse(X) else f"the features of {self.taker}")

    def scale(self):
        """An upper bound of the objective at zero weights, to which tolerances are relative."""
        return objective_at_zero(self.loss, self.features, self.weights)

    def warm(self, solution, alpha):
        """Plain data from which a later fit with `warm_start` starts."""
        owner = np.full(self.blocks.n_examples, -1)
        owner[self.blocks.kept] = self.blocks.block_of
        return dict(
            same=self.same, owner=owner, layout=self.loss.outputs.layout,
            state=State(solution.state, **flat(
                "surrogate", self.loss.state() if self.loss.has_natural_step else None)),
            kept_under=self.loss.kept_under(),
        )

    def start(self, state, alpha):
        """The `State` to start from, by what `warm` gave, or None where it does not fit.

        For a smaller alpha the dual point moves towards phi(y), and w stays equal. For a larger
        alpha it stays, and w shrinks. Examples without a weight start from phi(y).
        """
        loss, found = self.loss, state["state"]
        fits = (
            state["owner"].size == self.blocks.n_examples
            and _same(state["same"], self.same)
            and not (loss.has_natural_step and (
                "surrogate/theta" not in found
                or not _same(state["kept_under"], loss.kept_under())))
        )
        if not fits:
            return None
        owners = state["owner"][self.blocks.examples]
        known = owners >= 0
        to = loss.outputs.layout.numbers(known)
        source = state["layout"].numbers(owners[known])
        mu = loss.outputs.truth()
        mu[to] = found["mu"][source]
        start = State(found.without("surrogate").without("concave"), mu=mu)
        if loss.has_natural_step:
            # the dual point goes with scores that are kept block by block
            natural = loss.state()
            natural["theta"][to] = found["surrogate/theta"][source]
            natural["is_first"][known] = found["surrogate/is_first"][owners[known]]
            loss.restore(natural)
            start["concave"] = np.where(known, found["concave"][owners], 0.0)
        return start


class Decoder:
    """A fitted estimator at new data, which it has read and scored.

    Each kind of output has `best`, the best outputs as numbers and bounds on what others score
    more, or None for these. `least_risk` has the outputs of least expected cost, as numbers.
    `named` gives the numbers the form of y. `decision` has the results of `decision_function`, and
    `marginals` those of `predict_marginals`.

    Parameters
    ----------
    task : Task
    """

    def __init__(self, task):
        self.task, self.fitted = task, task.estimator


class Task:
    """A kind of output: how problems are made of its data, and how fitted estimators predict.

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
    auto_alpha : float
        ``alpha="auto"`` is this number over the sum of the weights: see `alpha_of`.
    """

    noun = "sample"
    auto_alpha = 1.0
    # what probabilities are of, in errors
    of_what = "the labels"
    # whether mirror prox starts from its result of the last visit
    oracle_warm_start = False
    # the class of the pieces of data that are read chunk by chunk, None if none are
    chunks = None
    # whether fitted attributes depend on the dual point
    needs_dual = True
    # values of `decode`
    decodings = DECODINGS
    # whether later calls of `partial_fit` may have more labels, and may be read in chunks
    takes_more_labels, calls_by_chunks = False, True
    # whether `partial_fit` goes on from weights whose data are not there, their names, and those of
    # fitted arrays that must stay then
    goes_on, own_weights, own_fixed = False, (), ()
    # parts of `Problem.same` that are of each example
    of_examples = ()
    # parameters of estimators that have none of these
    penalty, kernel, fit_intercept, warm_start = "l2", "linear", False, False
    classes = None

    def __init__(self, estimator):
        self.estimator, self.taker = estimator, type(estimator).__name__
        vars(self).update(parameters_of(estimator))
        self.surrogate = as_surrogate(self.surrogate)

    def read(self, X, lengths, census=None):
        """X of `fit` as `problem` takes it."""
        return X

    def problem(self, pieces, census=None, one_alpha=False, solver=None):
        """The `Problem` of these data.

        Parameters
        ----------
        pieces : Memory, Partition or Call
        census : Census, default=None
            The census of all pieces, if the data are one of several.
        one_alpha : bool, default=False
            Whether the problem is solved for this alpha only: columns may be left out.
        solver : OutOfCore, default=None
            The solver of data that are read chunk by chunk, if they are.
        """
        census = self.with_classes(census)
        if solver is not None:
            pieces = self.chunks(self, pieces, census, solver)
            problem = pieces.made()
        else:
            piece = self.piece(pieces)
            piece.prior = pieces.prior
            problem = self.in_memory(piece, census, one_alpha)
        penalty = as_penalty(self.penalty)
        problem.task, problem.pieces, problem.modulus = self, pieces, 1.0 - penalty._ratio()
        problem.has_groups = penalty._by_rows
        if problem.alpha is None:
            problem.alpha = self._alpha(
                problem.blocks, census, as_costs(problem.common["_cost_held"]))
        if self.goes_on:
            self.begin_at(problem, pieces.prior, self.total_of(problem.blocks, census))
        return problem

    def begin_at(self, problem, prior, total):
        """Make a problem one of the change of earlier weights, if it is not yet, and count.

        Parameters
        ----------
        problem : Problem
        prior : Prior or None
        total : float
            The sum of the weights of the examples.
        """
        before = 0.0
        if prior is not None:
            if problem.prior is None:
                prior.check(self, problem)
                prior.give(self, problem)
            before = prior.n_seen
        problem.common.update(_n_seen=total + before, _n_before=before)

    def with_classes(self, census):
        """The census, with the labels of the parameter `classes` if it declares any."""
        classes = self.all_classes()
        if classes is None:
            return census
        if census is None:
            return Census(labels=classes)
        if census.labels is None:
            return replace(census, labels=classes)
        return census.of_classes(classes)

    def all_classes(self):
        """The labels that the parameter `classes` declares, or None."""
        declared = declared_classes(self.classes)
        if declared is not None and len(declared) < 2:
            raise ValueError(f"classes must be at least two labels, got {self.classes!r:.80}.")
        return declared

    def fitted(self, problem, alpha, mu, intercepts=None, is_last=False):
        """Fitted attributes that depend on alpha, the features of the problem having w.

        w is w(mu) if they do not have weights. They are arrays, some of which may be views of
        what the features have.

        Parameters
        ----------
        problem : Problem
        alpha : float
        mu : ndarray
            The dual point.
        intercepts : ndarray, default=None
            Intercepts without a penalty.
        is_last : bool, default=False
            Whether no other fit starts from this one.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `fitted`.")

    def decoder(self, X, **given):
        """The `Decoder` of the fitted estimator at new data."""
        raise NotImplementedError(f"{type(self).__name__} has no method `decoder`.")

    def decoding(self, decode=None, **given):
        """`decode`, or the estimator's own: "map" or "min_risk". `given` is as for `decoder`."""
        decode = self.decode if decode is None else decode
        check_choice("decode", decode, self.decodings)
        if decode != "auto":
            return decode
        surrogate = self.surrogate
        has_chances = surrogate.name == "log" and not surrogate.cost_augmented
        return "min_risk" if has_chances and not self.takes_best(**given) else "map"

    def takes_best(self, **given):
        """Whether "auto" takes the output of highest score under "log".

        It costs least, or is what users of CRFs expect if costs are 0-1.
        """
        return name_of(self.estimator._cost_table) == "zero_one"

    def decoded(self, X, decode=None, return_bound=False, **given):
        """Outputs of new data by the fitted estimator.

        Parameters
        ----------
        X : data
        decode : {"auto", "map", "min_risk"}, default=None
            Instead of the estimator's own.
        return_bound : bool, default=False
            Whether bounds are needed.
        **given
            Further arguments of `decoder`.

        Returns
        -------
        decoder : Decoder
        codes : ndarray
            The outputs as numbers.
        bound : ndarray or None
            How much more other outputs may score.
        """
        decode = self.decoding(decode, **given)
        if decode == "map":
            decoder = self.decoder(X, **given)
            return decoder, *decoder.best()
        if return_bound:
            raise ValueError(
                f"return_bound is of scores, and decode={decode!r} does not maximise them: use "
                "decode='map'.")
        if not self.surrogate.has_distribution:
            raise ValueError(
                f"decode={decode!r} weighs {'F-measures' if decode == 'f1' else 'the costs'} by a "
                f"distribution over {self.of_what}, and "
                f"surrogate={self.estimator.surrogate!r} has none; use 'log' or 'max_min'.")
        decoder = self.decoder(X, **given)
        return decoder, decoder.best_f1() if decode == "f1" else decoder.least_risk(), None

    def predict(self, X, decode=None, return_bound=False, **given):
        """The outputs that `decoded` finds, in the form of y, and bounds if asked for."""
        decoder, codes, bound = self.decoded(X, decode, return_bound, **given)
        y = decoder.named(codes)
        return (y, bound) if return_bound else y

    def check_n_features(self, values):
        """Refuse rows of other features than those of the fit."""
        wanted = self.estimator.n_features_in_
        if values.shape[1] != wanted:
            raise ValueError(
                f"X has {values.shape[1]} features, but {self.taker} is expecting {wanted} "
                "features as input.")

    def values(self, problem, tol, scale):
        """Fitted attributes that are no arrays and depend on w, which the features have.

        tol is the gap of the fit, and scale the objective at zero weights.
        """
        return {}

    def unsupported(self):
        """The first parameter that fits by chunks do not support, or None."""
        for name, plain in (("constraints", None), ("kernel", "linear"), ("warm_start", False)):
            value = getattr(self, name, plain)
            if value is not plain and value != plain:
                return f"{name}={value!r:.80}"
        if isinstance(self.fit_intercept, str):
            return f"fit_intercept={self.fit_intercept!r}"
        return f"penalty={self.penalty!r:.80}" if is_pure_l1(self.penalty) else None

    def out_of_core(self, X, allowed=None, part_weight=None):
        """The `OutOfCore` that solves the task on X, or None for a fit in memory."""
        if self.chunks is None:
            return None
        found = "allowed" if allowed is not None else (
            "token_weight" if part_weight is not None else None)
        if isinstance(self.solver, OutOfCore):
            found = found or self.unsupported()
            if found is not None:
                raise ValueError(
                    f"{found} is not supported by fits that read the data in chunks: leave it as "
                    "it is by default, or use solver=BlockFrankWolfe(), in memory.")
            return self.solver
        size = getattr(X, "n_bytes_on_disk", None)
        if size is None or not isinstance(self.solver, str):
            return None
        default = OutOfCore()
        is_large = size > default.memory * 2**20 and found is None and not self.unsupported()
        return default if is_large else None

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

    def piece(self, pieces):
        """Data in memory, read and checked, and which examples count."""
        raise NotImplementedError(f"{type(self).__name__} has no method `piece`.")

    def census(self, piece):
        """The `Census` of what `piece` has read."""
        raise NotImplementedError(f"{type(self).__name__} has no method `census`.")

    def census_of_all(self, census, piece):
        """The `Census` of all data: of this piece, unless there are more.

        Calls of `partial_fit` bring a census with labels only.
        """
        if census is not None and census.n_examples is not None:
            return census
        own = self.census(piece)
        return own if census is None or census.labels is None else own.of_classes(census.labels)

    def alpha_of(self, total, costs=None, variance=None):
        """alpha as a number.

        "auto" is ``auto_alpha / total``. Given a variance, it is `SHARE_OF_VARIANCE` times the
        variance of that, or all of it if the product is above 1. For the margins it is divided by
        the mean cost of different labels: if costs change by a factor, so do the weights.

        Parameters
        ----------
        total : float
            The sum of the weights of all examples that count.
        costs : ndarray, default=None
            The cost matrix.
        variance : callable, default=None
            The total variance of the features, computed when called.
        """
        if not isinstance(self.alpha, str):
            return float(self.alpha)
        unit = self.auto_alpha / total
        if variance is not None:
            # to six digits, so that the form of the data and the order of sums do not matter
            variance = float(f"{variance():.6g}")
            # features that do not vary leave nothing to learn, at any alpha
            unit *= min(1.0, SHARE_OF_VARIANCE * variance) if variance > 0.0 else 1.0
        if costs is not None and self.surrogate.name != "log":
            unit /= mean_of(costs)
        return min(max(unit, LEAST_ALPHA), 1.0 / LEAST_ALPHA)

    def _alpha(self, blocks, census, costs, variance=None):
        """alpha as a number, for a problem of these blocks.

        variance() computes the total variance of features in memory.
        """
        return self.alpha_of(self.total_of(blocks, census), costs)

    def total_of(self, blocks, census):
        """The sum of the weights of all examples, of which these blocks may be a part."""
        is_whole = census is None or census.n_examples is None
        return blocks.total if is_whole else float(census.sums["weight"])

    def read_more(self, X, before, prior=None):
        """X of a call, and `PartialFitData` of those before with the same columns; a vectorizer."""
        return X, before, None

    def prior(self):
        """Weights of the fitted estimator from which `partial_fit` goes on without their data."""
        if self.goes_on and hasattr(self.estimator, "coef_"):
            return Prior(self.estimator, self.own_weights, self.own_fixed)
        raise ValueError(
            f"partial_fit goes on from earlier calls of partial_fit, and this {self.taker} was "
            "fitted by fit or comes from a file, without its data: all that it has learnt would be "
            "forgotten. Fit to all data together, call partial_fit from the first data on, or "
            "begin anew with a clone.")

    def unchangeable(self, problem, prior):
        """Why a fit of this problem cannot change earlier weights, or None."""
        if self.kernel != "linear":
            return f"kernel={self.kernel!r:.80}, which has no weights to change"
        if isinstance(self.fit_intercept, str):
            return f"fit_intercept={self.fit_intercept!r}, an intercept without a penalty"
        if not self.fit_intercept and np.any(prior.weights.get("intercept_", 0.0)):
            return "fit_intercept=False, as those weights have intercepts"
        if getattr(as_penalty(self.penalty), "bounds", None) is not None:
            return f"penalty={self.penalty!r:.80}, whose bounds would be those of the change"
        return None

    def put_weights(self, problem, rows, weights):
        """Put fitted weights into the rows of the features, for tasks that go on from them.

        Parameters
        ----------
        problem : Problem
        rows : dict of str to ndarray
            The rows by name, as in `FeatureMap.live`.
        weights : dict of str to ndarray
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `put_weights`.")

    def classes_of_call(self, y, classes):
        """All classes, by the arguments of a call of `partial_fit`, or None."""
        return None if classes is None else np.unique(classes)

    def check_classes(self, classes, known):
        """Refuse classes of a call that are not those of the first."""
        if not np.array_equal(classes, known):
            raise ValueError(
                f"classes are {classes.tolist()}, but the first call of partial_fit had "
                f"{known.tolist()}.")

    def penalty_of(self, families, penalty=None, sample=None):
        """The penalty of the weights, None for alpha / 2 ||w||^2 alone.

        Parameters
        ----------
        families : dict of str to (tuple of int or str)
            Shapes of the weights by name, or why this model has none.
        penalty : penalty, default=None
            Instead of the estimator's.
        sample : Sample, default=None
            For weights by complexities.
        """
        shapes = {name: given for name, given in families.items() if type(given) is tuple}
        missing = {name: given for name, given in families.items() if type(given) is str}
        return resolve_penalty(
            self.penalty if penalty is None else penalty, shapes, missing, sample)

    def example(self, rng, **form):
        """X and y of a small random problem in some form, for the table of cells."""
        raise NotImplementedError(f"{type(self).__name__} has no method `example`.")

    @staticmethod
    def stored(X, y, folder):
        """X and y as they are opened from a new folder, for tasks with `chunks`."""
        raise NotImplementedError("This task has no method `stored`.")

    def loss(self, outputs):
        """The surrogate over the true outputs of all blocks."""
        self._refuse_large(outputs)
        _check_part_weights(outputs)
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
        if layout.may_list:
            return  # the fit holds combinations of outputs
        n_bytes = 8 * layout.n_numbers
        behind = int((layout.sizes() - layout.counts() * layout.rows()).sum())
        if self.surrogate.name == "log" and not outputs.has_entropy:
            # scores in single precision stand for them
            n_bytes = 4 * layout.n_numbers
        refuse_beyond_memory(
            f"the dual points of {layout.n_blocks} different {self.noun}s, {layout.n_numbers} "
            f"numbers in all ({layout.n_parts_of_all} parts x {layout.n_labels} labels"
            + (f", and {behind} for pairs of labels" if behind else "") + "),",
            n_bytes, self._remedy(outputs))

    def _remedy(self, outputs):
        """Remedy if dual points are too large."""
        by_chunks = f", or {self.noun}s by chunks, with solver=OutOfCore()"
        return f"fit fewer {self.noun}s or labels" + by_chunks * (self.chunks is not None)


def _check_part_weights(outputs):
    """Refuse weights of parts whose costs, added up over a block, overflow."""
    weights, layout = outputs.part_weights, outputs.layout
    if weights is None or not weights.size:
        return
    with np.errstate(over="ignore"):
        most = weights.max() * dearest_of(outputs.cost_matrix).max() * layout.counts().max()
    if not most < np.inf:
        raise ValueError(
            f"weights of up to {weights.max():g} make costs overflow: divide them by a number, and "
            "alpha with them.")


def parameters_of(estimator):
    """The parameters of an estimator by name, without fitted attributes."""
    return {
        name: value for name, value in vars(estimator).items()
        if name[0] != "_" and name[-1] != "_"}


def quarters(rng, *shape):
    """Random numbers that float32 holds as well, some of them zero."""
    values = np.round(4.0 * rng.normal(size=shape)) / 4.0
    values[rng.random(shape) < 0.2] = 0.0
    return values


def rows_in_common(X):
    """Properties that rows of all pieces share."""
    return {"columns": X.shape[1], "rows that are": "sparse" if sparse.issparse(X) else "dense"}
