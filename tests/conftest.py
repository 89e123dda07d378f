"""What the tests share."""

import collections
import itertools
import os
import signal
from pathlib import Path

# scikit-learn's common checks include one of its array API support, which they skip
# unless SciPy is told at import to dispatch on such arrays
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# matrices are small here: threads of BLAS would only wait for one another
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from estimator_cases import CASES, SURROGATES  # noqa: E402
from scipy.linalg import block_diag, eigh  # noqa: E402
from scipy.optimize import linprog, minimize  # noqa: E402
from scipy.special import logsumexp, softmax  # noqa: E402

from fastm4n.solvers import monitor as _checkpoints  # noqa: E402

# what a shell starts in the background ignores interrupts, and what that starts does too
signal.signal(signal.SIGINT, signal.default_int_handler)


# cases of a test; see below
MANY = 20


def pytest_collection_modifyitems(config, items):
    """With FASTM4N_EVERY=n, every n-th of the cases that repeat one another.

    Those are the seeds of a test under the same other parameters, and the cases of a test that is
    marked `repeats`: it calls in other ways what another test calls with all of them. Of one that
    is marked `repeats(m)`, a product of many things, it is every m-th where n is larger. Of any
    other test that has more than `MANY` cases it is every fifth: few things have five values, so
    that all values of each stay.
    """
    every = int(os.environ.get("FASTM4N_EVERY", "1"))
    numbers, stay, go = collections.Counter(), [], []
    sizes = collections.Counter((item.path, item.originalname) for item in items)
    for item in items:
        group, share = None, every
        parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
        mark = item.get_closest_marker("repeats")
        if mark is not None:
            group, share = (item.path, item.originalname), min((every, *mark.args))
        elif parameters.pop("seed", None) is not None:
            group = item.path, item.originalname, repr(parameters)
        elif every > 1 and sizes[item.path, item.originalname] > MANY:
            group, share = (item.path, item.originalname), min(every, 5)
        (stay if numbers[group] % share == 0 or group is None else go).append(item)
        numbers[group] += 1
    if go:
        items[:] = stay
        config.hook.pytest_deselected(items=go)


@pytest.fixture(scope="session")
def data_folder():
    """The folder of the data sets that the papers report on."""
    folder = os.environ.get("FASTM4N_DATA")
    if not folder:
        pytest.skip("The environment variable FASTM4N_DATA does not name a folder of data sets.")
    if not Path(folder).is_dir():
        pytest.fail(f"FASTM4N_DATA is {folder!r}, which is not a folder.")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def no_power_fails():
    """No test waits until a disk has what was written; what is flushed must be open all the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture
def always(monkeypatch):
    """State of fits is written after every pass."""
    monkeypatch.setattr(_checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(_checkpoints, "TIMES", 0.0)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


@pytest.fixture(params=SURROGATES)
def surrogate(request):
    return request.param


class PermutationProblem:
    """A fit of permutations, listed: every permutation has a probability of its own.

    Parameters
    ----------
    gram : array of shape (n_scores, n_scores)
        Inner products of the features of all scores, example after example, row after row.
    places : list of array of shape (M_b,)
    p : array of shape (n_examples,)
        Shares of the examples.
    """

    def __init__(self, gram, places, p, alpha, surrogate, cost):
        self.gram, self.p, self.alpha, self.surrogate = gram, p, alpha, surrogate
        self.cost = np.asarray(cost)
        self.sizes = [len(place) for place in places]
        self.lists = [np.array(list(itertools.permutations(range(M)))) for M in self.sizes]
        # phi of every permutation, costs of every two, and which is true
        self.phi = [
            np.eye(M)[perms].reshape(-1, M * M) for perms, M in zip(self.lists, self.sizes)]
        self.loss = [
            self.cost[perms[:, np.newaxis], perms].sum(axis=2) for perms in self.lists]
        self.true = [
            int(np.flatnonzero((perms == place).all(axis=1))[0])
            for perms, place in zip(self.lists, places)]
        self.truth = np.concatenate([phi[t] for phi, t in zip(self.phi, self.true)])
        self.cuts = np.cumsum(np.square(self.sizes))[:-1]
        self.scale = np.repeat(p / alpha, np.square(self.sizes))

    def block_loss(self, b, v):
        """Surrogate of example b at the scores v (M_b^2,)."""
        values, t = self.phi[b] @ v, self.true[b]
        if self.surrogate == "log":
            return logsumexp(values) - values[t]
        if self.surrogate == "max_margin":
            return np.max(self.loss[b][t] + values) - values[t]
        # max over q and s of s + <values, q>, s being the least expected cost of an answer
        n = len(values)
        found = linprog(
            np.append(-values, -1.0), A_ub=np.column_stack([-self.loss[b].T, np.ones(n)]),
            b_ub=np.zeros(n), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)])
        return -found.fun - values[t]

    def primal(self, scores, squared_norm):
        losses = [self.block_loss(b, v) for b, v in enumerate(np.split(scores, self.cuts))]
        return self.p @ losses + self.alpha / 2 * squared_norm

    def concave(self, b, mu):
        """h_b at the point mu of the polytope."""
        if self.surrogate == "max_margin":
            place = self.lists[b][self.true[b]]
            return np.sum(self.costs_of(b, mu)[np.arange(len(place)), place])
        if self.surrogate == "max_min":
            rows, costs = np.arange(self.sizes[b]), self.costs_of(b, mu)
            return min(np.sum(costs[rows, place]) for place in self.lists[b])
        # the conjugate of the log-partition
        phi = self.phi[b]
        return minimize(
            lambda v: (logsumexp(phi @ v) - mu @ v, softmax(phi @ v) @ phi - mu),
            np.zeros(len(mu)), jac=True, method="BFGS", options={"gtol": 1e-9}).fun

    def dual(self, mu):
        """The dual at the points mu of all examples, one after the other."""
        c = self.scale * (self.truth - mu)
        values = [self.concave(b, part) for b, part in enumerate(np.split(mu, self.cuts))]
        return self.p @ values - self.alpha / 2 * (c @ self.gram @ c)

    def optimum(self):
        """The least objective, from below up to about 1e-6."""
        if self.surrogate == "log":
            return self._smooth_optimum()
        ends = np.cumsum([len(phi) for phi in self.phi])
        n, n_blocks = ends[-1], len(ends)
        lift = block_diag(*self.phi)
        root = (_root(self.gram) * self.scale) @ lift.T  # from q to (minus) w
        w_true = _root(self.gram) @ (self.scale * self.truth)
        blocks = block_diag(*[np.ones(len(phi)) for phi in self.phi])
        if self.surrogate == "max_margin":
            slope = np.concatenate([
                p * loss[t] for p, loss, t in zip(self.p, self.loss, self.true)])
            bounds, constraints, n_more = [(0, None)] * n, [], 0
        else:
            slope, n_more = np.append(np.zeros(n), self.p), n_blocks
            costs = np.hstack([block_diag(*[loss.T for loss in self.loss]), -blocks.T])
            bounds = [(0, None)] * n + [(None, None)] * n_blocks
            constraints = [{"type": "ineq", "fun": lambda z: costs @ z, "jac": lambda z: costs}]
        sums = np.hstack([blocks, np.zeros((n_blocks, n_more))])
        constraints.append(
            {"type": "eq", "fun": lambda z: sums @ z - 1.0, "jac": lambda z: sums})

        def objective(z):
            w = w_true - root @ z[:n]
            gradient = -slope.copy()
            gradient[:n] -= self.alpha * (root.T @ w)
            return self.alpha / 2 * (w @ w) - slope @ z, gradient

        start = np.append(blocks.T @ (1 / blocks.sum(axis=1)), np.zeros(n_more))
        z = minimize(
            objective, start, jac=True, method="SLSQP", bounds=bounds, constraints=constraints,
            options={"ftol": 1e-13, "maxiter": 500}).x
        # feasible to the bit, so that the value is a lower bound wherever it ended
        q = np.maximum(z[:n], 0.0)
        q /= blocks.T @ (blocks @ q)
        return self.dual(q @ lift)

    def _smooth_optimum(self):
        root = _root(self.gram)

        def objective(w):
            scores, value, slopes = w @ root, self.alpha / 2 * (w @ w), []
            for p, phi, t, v in zip(self.p, self.phi, self.true, np.split(scores, self.cuts)):
                value += p * (logsumexp(phi @ v) - phi[t] @ v)
                slopes.append(p * (softmax(phi @ v) @ phi - phi[t]))
            return value, self.alpha * w + root @ np.concatenate(slopes)

        return minimize(
            objective, np.zeros(len(root)), jac=True, method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}).fun - 1e-9

    def costs_of(self, b, mu):
        """Expected cost of each position of each item."""
        return mu.reshape(self.sizes[b], -1) @ self.cost[: self.sizes[b], : self.sizes[b]]


def _root(gram):
    """R with R' R = gram."""
    values, vectors = eigh(gram)
    kept = values > 1e-12 * values[-1]
    return np.sqrt(values[kept])[:, np.newaxis] * vectors[:, kept].T


@pytest.fixture(scope="session")
def permutation_problem():
    """Fits of permutations by enumeration, to hold those of the estimators to."""
    return PermutationProblem
