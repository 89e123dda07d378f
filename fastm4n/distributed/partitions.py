"""Partitions of the data of a fit, held by the members of a fleet."""

from contextlib import contextmanager

import numpy as np
from scipy import sparse
from sklearn.base import clone

from fastm4n.distributed._worker import Worker
from fastm4n.distributed.fleets import Lost, NoMember
from fastm4n.solvers.choice import as_solver
from fastm4n.tasks.base import Partition
from fastm4n.tasks.parameters import n_examples

# attempts to make a member before the problem begins
ATTEMPTS = 5


@contextmanager
def partition(*numbers):
    """Name these partitions in errors."""
    names = "partition" + "s" * (len(numbers) > 1) + " " + ", ".join(map(str, numbers[:10]))
    names += ", ..." * (len(numbers) > 10)
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{names}: {error}") from error


class FitMember:
    """Some partitions of the data of a fit. After `begin` it has all methods of a `Worker`.

    Parameters
    ----------
    estimator : CertifiedEstimator
        With the parameters of the fit.
    numbers : sequence of int
        Numbers of the partitions.
    census : Census or None
        The census of all partitions, once it is known.
    *parts : tuples (X, y, sample_weight, ends)
        The partitions, None for empty ones. `ends` are the first and last group of rows, or None.
    """

    stopping = None

    def __init__(self, estimator, numbers, census, *parts):
        self.estimator = estimator
        self.numbers, self.parts = [
            [one[i] for one in zip(numbers, parts, strict=True) if one[1] is not None]
            for i in range(2)]
        self.worker = None
        if census is not None:
            self.begin(census)

    def census(self):
        """Number, `Census`, and first and last group of rows of each partition."""
        found = []
        for number, (*data, ends) in zip(self.numbers, self.parts, strict=True):
            with partition(number):
                task = self._task()
                census = task.census(task.piece(Partition(*data)))
                census.name = f"partition {number}"
                found.append((number, census, ends))
        return found

    def _task(self):
        estimator = clone(self.estimator)
        return estimator._task_class(estimator)

    def begin(self, census):
        """Make the problem of these partitions and drop the data.

        Returns
        -------
        oracle : str or None
            The oracle, if it depends on the data.
        """
        if self.worker is None:
            with partition(*self.numbers):
                X, y, weights = joined(self._task(), self.parts)
                self.problem = self._problem(X, y, weights, census)
                reason = as_solver(self.estimator.solver).refusal(self.problem)
                if reason is not None:
                    raise ValueError(reason)
            self.least = self._template(X, y, census)
            self.worker = Worker.of(self.problem, self.problem.blocks.total)
            self.worker.stopping = lambda: self.stopping is not None and self.stopping()
            self.parts = None
        return self.problem.common.get("oracle_")

    def _problem(self, X, y, weights, census):
        """The problem of these data, which are not kept."""
        task, pieces = self._task(), Partition(X, y, weights)
        pieces.X = task.read(X, None, census)
        problem = task.problem(pieces, census)
        problem.pieces = Partition()
        return problem

    def _template(self, X, y, census):
        """The problem of one example, if it can make the fitted attributes of all."""
        examples = self.problem.blocks.examples
        sizes = getattr(X, "lengths", None)
        chosen = examples[0] if sizes is None else examples[np.argmax(sizes[examples])]
        one = slice(int(chosen), int(chosen) + 1)
        least = self._problem(_cut(X, one), _cut(y, one), None, census)
        oracles = [problem.common.get("oracle_") for problem in (least, self.problem)]
        shapes = [
            {name: array.shape for name, array in problem.features.state().items()}
            for problem in (least, self.problem)]
        # fitted arrays depend on the features' state and constant attributes
        return least if shapes[0] == shapes[1] and oracles[0] == oracles[1] else self.problem

    def template(self):
        """A problem that makes fitted attributes."""
        return self.least

    def values(self, state, gap, scale):
        """The weight of this part, and its `Task.values` at these weights, of a fit to this gap."""
        self.problem.features.restore(state)
        return self.problem.blocks.total, self.problem.task.values(self.problem, gap, scale)

    def __getattr__(self, name):
        worker = self.__dict__.get("worker")
        if worker is None:
            raise AttributeError(f"a member has no {name!r} before `begin`.")
        return getattr(worker, name)


def _cut(data, rows):
    return data.iloc[rows] if hasattr(data, "iloc") else data[rows]


def joined(task, parts):
    """X, y and weights of several partitions, concatenated."""
    Xs, ys, weights = ([part[i] for part in parts] for i in range(3))
    Xs = [task.container(X) for X in Xs]
    counts = [n_examples(X) for X in Xs]
    if all(weight is None for weight in weights):
        weights = None
    else:
        weights = np.concatenate([
            np.ones(count) if weight is None else np.asarray(weight, dtype=np.float64)
            for weight, count in zip(weights, counts, strict=True)])
    if len(parts) == 1:
        return Xs[0], ys[0], weights
    return _concatenated(Xs), _concatenated(ys), weights


def _concatenated(arrays):
    first = arrays[0]
    if sparse.issparse(first):
        return sparse.vstack(arrays, format="csr")
    shapes = {np.shape(array)[1:] for array in arrays if isinstance(array, np.ndarray)}
    if isinstance(first, (list, tuple)) or len({type(array) for array in arrays}) > 1 or (
            len(shapes) > 1):
        return [row for array in arrays for row in array]
    if hasattr(first, "iloc"):
        import pandas

        return pandas.concat(arrays)
    return np.concatenate(arrays)


def asked(fleet, method, *args, members=None):
    """`Fleet.call_all`. Members that are lost are replaced and called again."""
    members = list(range(fleet.n_members)) if members is None else list(members)
    answers = dict.fromkeys(members)
    left, lost = members, None
    for _ in range(ATTEMPTS):
        for k, answer in zip(left, fleet.call_all(method, *args, members=left), strict=True):
            answers[k] = answer
        left = [k for k in left if isinstance(answers[k], Lost)]
        if not left:
            return [answers[k] for k in members]
        lost = answers[left[0]]
        for k in left:
            fleet.replace(k)
    raise NoMember(f"member {lost.member} was lost {ATTEMPTS} times: {lost.reason}")


def check_divisible(estimator):
    """Refuse parameters under which a problem is no sum over parts of the data.

    Parameters
    ----------
    estimator : CertifiedEstimator
    """
    def refuse(what, instead):
        raise ValueError(f"{what} is not supported for data in partitions: {instead}.")

    estimator._check_parameters()
    values = estimator.get_params(deep=False)
    if values.get("kernel", "linear") != "linear":
        refuse(
            f"kernel={values['kernel']!r:.40}",
            "each value of a kernel is of two examples, which may be in two partitions; use "
            "kernel='linear' on features of sklearn.kernel_approximation.Nystroem")
    if values.get("fit_intercept") == "free":
        refuse("fit_intercept='free'", "a large number, such as fit_intercept=100.0, is nearly it")
    if values.get("states", "all") != "all":
        refuse(f"states={values['states']!r}", "use states='all', with an L1 term for few weights")
    scored = getattr(estimator, "_scored", None)
    if scored is not None and scored.order > 1:
        refuse(f"order={scored.order} of transitions", "use order=1")
    if values.get("pairwise") == "displacement":
        refuse("pairwise='displacement'", "use another one, or GraphTagger")
    if values.get("unlabelled") == "hidden" or values.get("hidden_states") is not None:
        refuse(estimator._task_class(estimator).latent(), "use GraphTagger")
    if values["warm_start"]:
        refuse("warm_start=True", "fit anew")
    if estimator._is_pure_l1():
        refuse(
            f"penalty={values['penalty']!r}",
            "use an elastic net of l1_ratio=0.99, which has a certificate")
    solver = as_solver(estimator.solver)
    if not solver.solves_parts:
        refuse(f"solver={type(solver).__name__}()", "use solver='auto'")
    if getattr(solver, "step", None) == "fixed":
        refuse("step='fixed'", "use step='line_search'")
