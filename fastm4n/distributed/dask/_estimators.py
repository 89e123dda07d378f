"""Estimators whose data are partitions on the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import warnings
from functools import partial, reduce
from inspect import signature
from typing import TYPE_CHECKING

import numpy as np
from distributed import default_client
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_number, extended, is_number
from fastm4n.base.docstrings import documented
from fastm4n.distributed._rounds import RoundsSolution, solve_rounds
from fastm4n.distributed._rounds import _MemberLost as MemberLost
from fastm4n.distributed._rounds_file import RoundsFile
from fastm4n.distributed.dask._fleet import ClusterGone, DaskFleet, Input
from fastm4n.distributed.dask._inputs import Pieces, is_lazy
from fastm4n.distributed.dask._predictions import lazy
from fastm4n.distributed.fleets import NoMember
from fastm4n.distributed.partitions import FitMember, asked, check_divisible
from fastm4n.estimators import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
)
from fastm4n.solvers.monitor import Progress, claim_file
from fastm4n.tasks.base import Census
from fastm4n.tasks.graph_model import integrality

if TYPE_CHECKING:
    from typing import Any, Literal, Self

    from distributed import Client

    from fastm4n.base.types import Array

# default passes of a round (benchmarks/rounds.py); limit of their time, relative to the median of
# the round before, and at least so many seconds
PASSES, PATIENCE, LEAST_SECONDS = 3.0, 2.0, 1.0

_NEW = ("client", "local_passes", "timeout")
# further parameters, and the default of max_iter
_DEFAULTS = {"max_iter": 200, "client": None, "local_passes": "auto", "timeout": 60.0}


def _constructor(local):
    """The constructor of the Dask estimator of a local one."""
    default = signature(local.__init__).parameters["surrogate"].default

    def __init__(
        self, surrogate=default, *, max_iter=200, client=None, local_passes="auto", timeout=60.0,
        **parameters,
    ):
        local.__init__(self, surrogate, max_iter=max_iter, **parameters)
        self.client = client
        self.local_passes = local_passes
        self.timeout = timeout

    __init__.__signature__ = extended(local.__init__, **_DEFAULTS)
    return __init__


def usable(client):
    """This client, or the default one."""
    if client is None:
        try:
            client = default_client()
        except ValueError as error:
            raise ValueError(
                "there is no Dask client: make one by distributed.Client(...), or pass "
                "`client`.") from error
    for name in ("submit", "scheduler", "status", "asynchronous"):
        if not hasattr(client, name):
            raise ValueError(
                f"client must be a distributed.Client or None, got {type(client).__name__}.")
    if client.asynchronous:
        raise ValueError("client must not be asynchronous: the fit waits for its workers.")
    if client.status != "running":
        raise ClusterGone(f"the Dask client is {client.status}: make a new one.")
    return client


class DaskEstimator:
    """Mixin with `fit` on partitions of the workers of a Dask cluster."""

    alpha_: float
    n_iter_: int
    duality_gap_: float
    interrupted_: bool
    relative_gap_: float
    primal_objective_: float
    dual_objective_: float
    history_: dict[str, Array]

    _local_class = None

    if TYPE_CHECKING:
        def __init__(
            self, surrogate: str = ..., *, max_iter: int = 200,
            client: Client | None = None, local_passes: float | Literal["auto"] = "auto",
            timeout: float = 60.0, **parameters: Any,
        ) -> None: ...

    # ------------------------------------------------------------------- parameters

    def _new_local(self):
        """The unfitted local estimator with these parameters."""
        return self._local_class(**{
            name: clone(value, safe=False)
            for name, value in self.get_params(deep=False).items() if name not in _NEW})

    def __sklearn_clone__(self) -> Self:
        # a client is a connection and cannot be copied
        return type(self)(**{
            name: value if name == "client" else clone(value, safe=False)
            for name, value in self.get_params(deep=False).items()})

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "client": None}

    @property
    def set_callbacks(self) -> Any:
        raise AttributeError(
            f"{type(self).__name__} has no set_callbacks: its parameter `callback` gets each "
            "certificate.")

    @property
    def client_(self) -> Client:
        """The Dask client: the parameter, or the default client."""
        return usable(self.client)

    def _checked(self):
        """The local estimator, after a check of the parameters."""
        local = self._new_local()
        check_divisible(local)
        passes = self.local_passes
        if not (isinstance(passes, str) and passes == "auto") and not is_number(passes, low=0):
            raise ValueError(
                f"local_passes must be 'auto' or a number > 0, got {passes!r}.")
        check_number("timeout", self.timeout, low=0)
        local.callback = None  # it is called here
        return local

    # -------------------------------------------------------------------------- fit

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, lengths: Any = None,
        group: Any = None,
    ) -> Self:
        """Fit the model on all partitions until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : list of delayed objects or futures, dask bag, dask array or dask data frame
            A list of pairs (X, y) of partitions or a bag of pairs of examples, without y. Rows of a
            dask array or data frame are examples, or positions of sequences with `lengths` or
            `group`.
        y : like X, or str, default=None
            Labels that are not in X; the name of a column for data frames.
        sample_weight : like y, default=None
            Weights of the examples of each partition.
        lengths : array-like of int, or list of them, default=None
            Lengths of the sequences of all rows of a dask array, or of each partition. Partitions
            of arrays are changed to end between sequences.
        group : like y, default=None
            A value of each row, equal for all rows of a sequence, such as its number. These rows
            must be consecutive and in one partition.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data, with the partition.
        ClusterGone
            If no worker is left. The last certified model is kept, if there is one.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` rounds, or those until an interrupt, did not reach `tol`.
        """
        local, client = self._checked(), self.client_
        pieces = Pieces(self._task, X, y, sample_weight, lengths, group)
        sources = pieces.assembled()
        with contextlib.ExitStack() as stack:
            fleet, numbers, found = self._fleet(client, local, sources, stack)
            alpha, template = self._begun(fleet, local, numbers, found)
            parts = asked(fleet, "describe")
            largest, mass = (sum(part[name] for part in parts) for name in ("largest", "mass"))
            scale = largest / mass if largest > 0.0 else 1.0
            solution, ended = self._solved_rounds(fleet, alpha, scale)
            template.features.restore(solution.z)
            fitted = template.task.fitted(template, alpha, None)
            if ended is None:
                fitted.update(self._values(fleet, solution, template, scale))
        self._taken(template.common, fitted, solution, alpha, scale)
        if ended is not None:
            raise type(ended)(
                f"{ended} The model of the last certified round is kept: its gap is "
                f"{self.relative_gap_:.3g} of the objective at zero weights.") from ended
        if not solution.converged:
            after = "Interrupted after" if solution.interrupted else "After"
            warnings.warn(
                f"{after} {self.n_iter_} rounds the certified duality gap is "
                f"{self.relative_gap_:.3g} of the objective at zero weights (relative_gap_), above "
                f"tol={self.tol_:g}.", ConvergenceWarning, stacklevel=2)
        return self

    def _fleet(self, client, local, sources, stack):
        """A fleet whose members all have examples, their partitions, and results of `census`.

        The stack closes the fleet.
        """
        left = list(range(len(sources)))
        while True:
            n_members = max(1, min(len(left), _n_workers(client)))
            numbers = [part.tolist() for part in np.array_split(left, n_members)]
            inputs = [[Input(sources[i], f"partition {i}") for i in part] for part in numbers]
            factories = [partial(FitMember, local, part, None) for part in numbers]
            fleet = stack.enter_context(
                DaskFleet(client, factories, inputs, timeout=self.timeout))
            found = asked(fleet, "census")
            filled = [
                [number for number, census, _ in member if census.n_examples] for member in found]
            # errors of the summaries explain why there are no examples at all
            if all(filled) or (not any(filled) and any(found)):
                return fleet, numbers, [part for member in found for part in member]
            fleet.close()
            left = [number for member in filled for number in member]
            if not left:
                raise ValueError(
                    "X has no examples: all of its partitions are empty. Check the filters.")

    def _begun(self, fleet, local, numbers, found):
        """alpha, and a problem for fitted attributes."""
        own, censuses, ends = zip(*found, strict=True)
        for i in range(1, len(ends)):
            if ends[i] is not None and ends[i - 1] is not None and ends[i][0] == ends[i - 1][1]:
                raise ValueError(
                    f"group {ends[i][0]!r} is in the partitions {own[i - 1]} and {own[i]}: "
                    "repartition the data so that each sequence is in one partition, for example "
                    "with set_index(group).")
        census = reduce(Census.merge, censuses).checked()
        for k, part in enumerate(numbers):
            fleet.factories[k] = partial(FitMember, local, part, census)
        oracles = asked(fleet, "begin", census)
        if len(set(oracles)) > 1:
            other = next(k for k, oracle in enumerate(oracles) if oracle != oracles[0])
            raise ValueError(
                f"inference={local.inference!r} is {oracles[0]!r} for the graphs of partition "
                f"{numbers[0][0]} and {oracles[other]!r} for those of partition "
                f"{numbers[other][0]}: use inference='lp'.")
        task = local._task_class(local)
        if census.mass is not None:  # for its warnings
            task._encode(census.labels, np.arange(census.labels.size), census)
        template = asked(fleet, "template", members=[0])[0]
        return template.alpha, template

    def _solved_rounds(self, fleet, alpha, scale):
        """The solution, and None or the exception that ended the rounds."""
        seed = int(check_random_state(self.random_state).randint(2**31))
        progress = Progress(self.verbose, self.max_iter, self.tol_ * scale)
        by_clock = isinstance(self.local_passes, str)
        kept, file = None, claim_file(RoundsFile)

        def begun(rounds):
            nonlocal kept
            try:
                if file is not None:
                    file(rounds)
            except MemberLost as error:  # the next round replaces it
                if kept is None:
                    raise NoMember(f"a worker was lost before the first round: {error}") from error
            kept = rounds

        def told(row):
            progress.update({**row, "pass": row["round"]})
            if by_clock:
                kept.seconds = max(LEAST_SECONDS, PATIENCE * np.median(row["member_seconds"]))
            return self.callback is not None and bool(self.callback(row))

        try:
            return solve_rounds(
                fleet, alpha, tol=self.tol_ * scale, max_rounds=self.max_iter, seed=seed,
                local_passes=PASSES if by_clock else self.local_passes, callback=told,
                checkpoint=begun), None
        except NoMember as error:
            if kept is None or kept.best is None:
                raise
            return RoundsSolution(
                kept.vectors.views(kept.best), kept.certificate(), kept.n_rounds, kept.history(),
                False, False), error
        finally:
            progress.close()

    def _values(self, fleet, solution, template, scale):
        """`Task.values` of all parts at the weights of the solution."""
        if template.common.get("exact_", True):
            return {}
        try:
            parts = asked(fleet, "values", solution.z, self.tol_ * scale, scale)
        except NoMember:
            return {}
        if not all(values for _, values in parts):
            return {}
        totals, gaps = np.array([
            (total, values["integrality_gap_"]) for total, values in parts]).T
        return integrality(gaps, totals / totals.sum(), scale)

    def _taken(self, common, fitted, solution, alpha, scale):
        """Replace the fitted state."""
        self._keep(common, fitted)
        certificate = solution.certificate
        self.alpha_, self.n_iter_ = alpha, solution.n_rounds
        self.duality_gap_ = certificate.gap
        self.relative_gap_ = certificate.gap / scale
        self.primal_objective_, self.dual_objective_ = certificate.primal, certificate.dual
        self.history_ = solution.history
        self.interrupted_ = solution.interrupted

    # ---------------------------------------------------------------------- predict

    def to_local(self) -> Any:
        """Convert to the fitted local estimator, which predicts, pickles and saves without Dask.

        Returns
        -------
        local : estimator
        """
        check_is_fitted(self)
        local, parameters = self._new_local(), self.get_params(deep=False)
        local.__dict__.update({
            name: value for name, value in self.__dict__.items() if name not in parameters})
        # files and displays need one number for each certificate
        local.history_ = {"pass": self.history_["round"], **self.history_}
        del local.history_["member_seconds"]
        return local

    def predict(
        self, X: Any, *args: Any, lengths: Any = None, group: Any = None, **options: Any,
    ) -> Any:
        """Predict in the form of X, lazily for partitions.

        Parameters
        ----------
        X : list of delayed objects or futures, dask bag, array or data frame, or local data
            Examples without labels: X of a partition for delayed objects and futures.
        lengths, group
            As in `fit`.
        **options
            Arguments of the local estimator's `predict`.

        Returns
        -------
        y : like X
            Delayed objects or futures of predictions, a bag, array or data frame with one for each
            example or row, or a local prediction.
        """
        if not is_lazy(X):
            if lengths is not None:
                options["lengths"] = lengths
            return super().predict(X, *args, **options)
        check_is_fitted(self)
        if args:
            options["decode"] = args[0]
        return lazy(self.to_local(), X, lengths, group, **options)


def _n_workers(client):
    return len(client.scheduler_info(n_workers=-1)["workers"])


# shared parts of docstrings
_PARTS = {
    "parameters": """
surrogate, alpha, cost, ...
    As of `{local}`. Not supported are {refused}``warm_start=True``, ``penalty="l1"``,
    and the fixed step.
max_iter : int, default=200
    Largest number of rounds.
client : distributed.Client, default=None
    The client of the cluster, by default the default client.
local_passes : float or "auto", default="auto"
    Passes of each worker over its own examples in a round. "auto" is 3, with a time limit: after
    one second and twice the median time in the round before, a worker ends its passes. The result
    then depends on the clock, within the certified gap.
timeout : float, default=60.0
    Seconds of silence after which a worker counts as lost and is removed from the cluster.
""",
    "attributes": """
client_ : distributed.Client
    The client.
relative_gap_, duality_gap_, primal_objective_, dual_objective_ : float
    The certificate of the whole problem, as of `{local}`, even after losses of workers.
n_iter_ : int
    Number of rounds.
interrupted_ : bool
    Whether Ctrl-C ended the fit.
history_ : dict of ndarray
    At each certificate "round", "primal", "dual", "gap", "seconds", "bytes" (between the
    driver and the workers), "visits", "sigma", "kappa", "step", "lost" (workers), and
    "member_seconds" of shape (n_rounds, n_workers), the times of the workers.
coef_, ...
    As of `{local}`.
""",
    "notes": """
Each worker keeps its partitions and their dual point; in a round it improves it, the others being
held, and the driver goes the best share of that way. Between driver and workers go the weights
alone. The gap is a sum of a number from each worker, and bounds what is left to gain in the
objective of all partitions. Where a worker is lost, its partitions are computed anew on another
one, and their dual point begins anew: the gap is of the whole problem at any time. Ctrl-C leaves
the last certified round, with a warning that states its gap.
""",
}
_KERNELS = "kernels, ``fit_intercept=\"free\"``, "
_DOC = """`{local}` fitted on partitions on a Dask cluster, with one certified gap.

    Parameters
    ----------
    [parameters]

    Attributes
    ----------
    [attributes]

    See Also
    --------
    fastm4n.{local} : The local estimator, which `to_local` gives.

    Notes
    -----
    [notes]
    """


def _of(local, refused):
    """The Dask estimator of a local one."""
    name = f"Dask{local.__name__}"
    made = type(name, (DaskEstimator, local), {
        "_local_class": local, "__init__": _constructor(local),
        "__module__": "fastm4n.distributed.dask",
        "__doc__": _DOC.format(local=local.__name__)})
    return documented(_PARTS, local=local.__name__, refused=refused)(made)


if TYPE_CHECKING:
    class DaskGraphTagger(DaskEstimator, GraphTagger): ...
    class DaskLabelRanker(DaskEstimator, LabelRanker): ...
    class DaskMatcher(DaskEstimator, Matcher): ...
    class DaskMulticlassClassifier(DaskEstimator, MulticlassClassifier): ...
    class DaskMultiLabelClassifier(DaskEstimator, MultiLabelClassifier): ...
    class DaskOrdinalClassifier(DaskEstimator, OrdinalClassifier): ...
    class DaskSequenceTagger(DaskEstimator, SequenceTagger): ...
else:
    DaskGraphTagger = _of(
        GraphTagger,
        '``pairwise="displacement"``, ``unlabelled="hidden"``, `hidden_states`, ')
    DaskLabelRanker = _of(LabelRanker, _KERNELS)
    DaskMatcher = _of(Matcher, _KERNELS)
    DaskMulticlassClassifier = _of(MulticlassClassifier, _KERNELS)
    DaskMultiLabelClassifier = _of(MultiLabelClassifier, _KERNELS)
    DaskOrdinalClassifier = _of(OrdinalClassifier, _KERNELS)
    DaskSequenceTagger = _of(SequenceTagger, '``states="observed"``, `order` of 2 or more, ')
    from typing import Any, Literal, Self

    from distributed import Client
