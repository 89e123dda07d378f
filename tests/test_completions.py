"""Soft targets, clamped outputs and rounds of completions, against enumeration of all outputs."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp

from fastm4n import (
    BlockFrankWolfe,
    LabelNewton,
    MulticlassClassifier,
    QuasiNewton,
    SequenceTagger,
)
from fastm4n.estimators import _cells
from fastm4n.estimators._table import PREDICTORS
from fastm4n.losses import block_losses
from fastm4n.outputs._graph import CutOutputs
from fastm4n.penalties import L2, ElasticNet, Group
from fastm4n.research import Boost
from fastm4n.solvers.base import Options
from fastm4n.solvers.choice import choose
from fastm4n.solvers.monitor import Monitor
from fastm4n.solvers.path import solve_path
from fastm4n.surrogates import Log, _base
from fastm4n.surrogates._batches import scores_of
from fastm4n.tasks.completions import Clamp, allowed_of_blocks, complete

SURROGATES = ("max_margin", "max_min", "log")
# estimator, outputs and features of `_cells.KINDS`
KINDS = {
    "classes": ("MulticlassClassifier", "zero_one", "dense"),
    "matrix": ("MulticlassClassifier", "matrix", "rbf"),
    "levels": ("OrdinalClassifier", "absolute", "csr"),
    "label sets": ("MultiLabelClassifier", "none", "dense"),
    "tree": ("MultiLabelClassifier", "tree", "dense"),
    "rankings": ("LabelRanker", "zero_one", "dense"),
    "weighted rankings": ("LabelRanker", "matrix", "rbf"),
    "matchings": ("Matcher", "sizes differ", "dense"),
    "chains": ("SequenceTagger", "chain", "dense"),
    "edges": ("SequenceTagger", "squared", "edges"),
    "order 2": ("SequenceTagger", "order 2", "csr"),
    "constraints": ("SequenceTagger", "constraints", "dense"),
    "forests": ("GraphTagger", "forest", "dense"),
    "cycles": ("GraphTagger", "exact", "edges"),
    "attractive": ("GraphTagger", "attractive", "dense"),
}
# without marginals
HARD = ("attractive",)
CASES = [
    (kind, surrogate) for kind in KINDS for surrogate in SURROGATES
    if not (kind in HARD and surrogate == "log")]


def problem_of(kind, surrogate, seed=0, **parameters):
    """A problem of random data of a kind."""
    name, outputs, features = KINDS[kind]
    given, form = _cells.variant(name, outputs, features)
    if name == "OrdinalClassifier":
        parameters.setdefault("fit_intercept", True)
    model = PREDICTORS[name](**given, surrogate=surrogate, **parameters)
    X, y = model._task_class(model).example(np.random.default_rng(seed), **form)
    return model._problem(X, y)


def options_of(problem, tol=1e-4, alpha=0.1, solver="auto", **more):
    return Options(
        alpha=alpha, tol=tol, scale=problem.scale(), max_iter=2000, seed=0, n_jobs=1, verbose=0,
        callback=None, solver=solver, keep_dual=True, **more)


def solved(problem, options, start=None):
    problem.features.clear()
    return choose(problem, options).solve(problem, options, start, Monitor.of(options))


class Enumerated:
    """All outputs of the blocks of some outputs: labels, phi, and costs between them."""

    def __init__(self, outputs, kind):
        layout = self.layout = outputs.layout
        counts, sizes = layout.counts(), layout.sizes()
        self.cuts, self.parts = np.cumsum(sizes)[:-1], np.cumsum(counts)[:-1]
        cls, (y, *more) = type(outputs), outputs.arguments()
        self.labels = []
        for count in counts:
            if layout.stride == 0:
                all_labels = itertools.permutations(range(count))
            else:
                all_labels = itertools.product(range(layout.n_labels), repeat=count)
            labels = np.array(list(all_labels)).reshape(-1, count)
            if kind == "constraints":
                labels = labels[(np.diff(labels, axis=1) >= 0).all(axis=1)]
            self.labels.append(labels)
        self.phi = [[] for _ in counts]
        for i in range(max(map(len, self.labels))):
            labels = [of[min(i, len(of) - 1)] for of in self.labels]
            points = cls(np.concatenate(labels).reshape(np.shape(y)), *more).truth()
            for phi, of, point in zip(
                    self.phi, self.labels, np.split(points, self.cuts), strict=True):
                if i < len(of):
                    phi.append(point)
        self.phi = [np.array(phi) for phi in self.phi]
        weights = np.ones(layout.n_parts_of_all)
        if outputs.part_weights is not None:
            weights = outputs.part_weights
        if outputs.mean_cost:
            weights = weights / np.repeat(counts, counts)
        self.weights = np.split(weights, self.parts)
        self.cost = outputs.cost_matrix
        self.answers = [
            of if kind != "constraints" else
            np.array(list(itertools.product(range(2), repeat=of.shape[1]))) for of in self.labels]

    def costs(self, b, answers):
        """Of all outputs of the block in rows, of answers in columns."""
        return self.cost[self.labels[b][:, np.newaxis], answers] @ self.weights[b]

    def mixtures(self, rng, n_mixed=3):
        """Random distributions over some outputs of each block."""
        found = []
        for labels in self.labels:
            q = np.zeros(len(labels))
            some = rng.permutation(len(labels))[:n_mixed]
            q[some] = rng.dirichlet(np.ones(len(some)))
            found.append(q)
        return found

    def points(self, mixtures):
        return np.concatenate([q @ phi for q, phi in zip(mixtures, self.phi, strict=True)])

    def maxima(self, surrogate, scores, of_costs, heat=1.0):
        """max_mu h_b + <v, mu> of each block, the costs of all outputs being given."""
        values = []
        for b, v in enumerate(np.split(scores, self.cuts)):
            v = self.phi[b] @ v
            if surrogate == "log":
                values.append(heat * logsumexp((v + of_costs[b]) / heat))
            elif surrogate == "max_margin":
                values.append(np.max(v + of_costs[b]))
            else:
                costs, n = self.costs(b, self.answers[b]), len(v)
                found = linprog(
                    np.append(-v, -1.0),
                    A_ub=np.column_stack([-costs.T, np.ones(costs.shape[1])]),
                    b_ub=np.zeros(costs.shape[1]), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
                    bounds=[(0, None)] * n + [(None, None)])
                values.append(-found.fun)
        return np.array(values)

    def expected_costs(self, mixtures):
        """Costs of all outputs, the truth being drawn from the mixture."""
        return [q @ self.costs(b, self.labels[b]) for b, q in enumerate(mixtures)]

    def part_costs(self, rows):
        """Costs of all outputs by costs of single parts."""
        return [
            np.take_along_axis(of[np.newaxis], labels[..., np.newaxis], axis=2)[..., 0] @ weights
            for of, labels, weights in zip(
                np.split(rows, self.parts), self.labels, self.weights, strict=True)]

    def inside(self, allowed):
        """Which outputs have allowed labels."""
        return [
            of[np.arange(labels.shape[1]), labels].all(axis=1)
            for of, labels in zip(np.split(allowed, self.parts), self.labels, strict=True)]


def scores_for(rng, outputs, size=1.0):
    """Random scores, zero in the padding. Those of attractive edges are not negative."""
    layout = outputs.layout
    scores = size * rng.normal(size=layout.n_numbers)
    if isinstance(outputs, CutOutputs):
        scores = np.abs(scores)
    if layout.stride > layout.n_labels:
        scores.reshape(-1, layout.stride)[:, layout.n_labels :] = 0.0
    return scores


def random_allowed(rng, every):
    """Labels of two outputs of each block, and a free part in each of several."""
    allowed = np.zeros((every.layout.n_parts_of_all, every.layout.n_labels), dtype=bool)
    for labels, rows in zip(every.labels, np.split(allowed, every.parts), strict=True):
        for output in labels[rng.integers(len(labels), size=2)]:
            rows[np.arange(len(output)), output] = True
        if len(rows) > 1:
            rows[rng.integers(len(rows))] = True
    return allowed


def by_example(problem, allowed):
    """A table of blocks as a list of examples."""
    blocks, layout = problem.blocks, problem.loss.outputs.layout
    counts = layout.counts()
    rows = np.split(allowed, np.cumsum(counts)[:-1])
    found = [None] * blocks.n_examples
    for i, b in zip(blocks.kept, blocks.block_of, strict=True):
        found[i] = rows[b] if layout.stride else rows[b][:, : counts[b]]
    return found


# ---------------------------------------------------------------------- soft targets


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_losses_of_soft_targets(kind, surrogate):
    rng = np.random.default_rng(1)
    loss = problem_of(kind, surrogate).loss
    every = Enumerated(loss.outputs, kind)
    mixtures = every.mixtures(rng)
    target = every.points(mixtures)
    loss.outputs.set_target(target)
    loss.check()
    of_costs = every.expected_costs(mixtures)
    if surrogate == "log":
        of_costs = [np.zeros(len(of)) for of in of_costs]

    def expected(scores):
        along = [t @ v for t, v in zip(
            np.split(target, every.cuts), np.split(scores, every.cuts), strict=True)]
        return every.maxima(surrogate, scores, of_costs) - along

    for size in (0.0, 1.0, 20.0):
        scores = scores_for(rng, loss.outputs, size)
        found, exact = block_losses(loss, scores), expected(scores)
        atol = 1e-6 * (1.0 + size)
        assert_allclose(found.upper, exact, atol=atol)
        assert_allclose(found.value, exact, atol=atol)
        # a subgradient, and that of a smooth loss
        step = scores_for(rng, loss.outputs, 0.1)
        rise = [g @ d for g, d in zip(
            np.split(found.gradient, every.cuts), np.split(step, every.cuts), strict=True)]
        assert np.all(expected(scores + step) >= exact + rise - atol)
        if surrogate == "log":
            change = (expected(scores + 1e-5 * step) - expected(scores - 1e-5 * step)) / 2e-5
            assert_allclose(change, rise, atol=1e-6 * (1.0 + size))


@pytest.mark.parametrize("kind", ["classes", "chains", "rankings"])
def test_tempered_and_augmented_losses(kind):
    rng = np.random.default_rng(2)
    loss = problem_of(kind, Log(cost_augmented=True, temperature=0.7)).loss
    every = Enumerated(loss.outputs, kind)
    mixtures = every.mixtures(rng)
    target = every.points(mixtures)
    loss.outputs.set_target(target)
    scores = scores_for(rng, loss.outputs)
    exact = every.maxima("log", scores, every.expected_costs(mixtures), 0.7) - np.array([
        t @ v for t, v in zip(
            np.split(target, every.cuts), np.split(scores, every.cuts), strict=True)])
    assert_allclose(block_losses(loss, scores).value, exact, atol=1e-10)


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_a_vertex_is_a_hard_label(kind, surrogate):
    rng = np.random.default_rng(3)
    problem = problem_of(kind, surrogate)
    loss = problem.loss
    scores, options = scores_for(rng, loss.outputs), options_of(problem)
    hard = block_losses(loss, scores), solved(problem, options).certificate
    problem = problem_of(kind, surrogate)
    problem.loss.outputs.set_target(loss.outputs.truth())
    soft = block_losses(problem.loss, scores), solved(problem, options).certificate
    # true scores are the same terms, added up in another order
    assert_allclose(soft[0].value, hard[0].value, rtol=1e-12, atol=1e-12)
    assert_allclose(soft[0].gradient, hard[0].gradient, rtol=1e-12, atol=1e-12)
    assert soft[1].primal - soft[1].gap <= hard[1].primal + 1e-12
    assert hard[1].primal - hard[1].gap <= soft[1].primal + 1e-12
    problem.loss.outputs.set_target()
    again = block_losses(problem.loss, scores)
    assert_allclose(again.value, hard[0].value, rtol=1e-12, atol=1e-12)


def certified(kind, surrogate, solver="auto", tol=1e-3, seed=4, alpha=0.1, **parameters):
    """Fit to random mixtures; the certificate is held to enumeration."""
    rng = np.random.default_rng(seed)
    problem = problem_of(kind, surrogate, solver=solver, **parameters)
    every = Enumerated(problem.loss.outputs, kind)
    mixtures = every.mixtures(rng)
    target = every.points(mixtures)
    problem.loss.outputs.set_target(target)
    options = options_of(problem, tol, solver=solver, alpha=alpha)
    of_costs = every.expected_costs(mixtures)
    name = surrogate if isinstance(surrogate, str) else surrogate.name
    if name == "log":
        of_costs = [np.zeros(len(of)) for of in of_costs]
    at_zero = float(problem.weights @ every.maxima(name, np.zeros(target.size), of_costs))
    assert options.scale >= at_zero - 1e-9
    solution = solved(problem, options)
    found = solution.certificate
    assert solution.converged
    # the losses at the weights, by enumeration, and what the penalty is
    scores = np.zeros(target.size)
    scores_of(every.layout, problem.features, scores)
    along = np.array([t @ v for t, v in zip(
        np.split(target, every.cuts), np.split(scores, every.cuts), strict=True)])
    losses = every.maxima(name, scores, of_costs) - along
    value = float(problem.weights @ losses)
    if problem.features.has_penalty():
        value += alpha * problem.features.penalty_value()
    elif problem.features.weight_norm() is not None:
        value += 0.5 * alpha * problem.features.weight_norm()
    else:
        inner = problem.loss.outputs.truth() - solution.mu
        value += 0.5 * float(problem.weights @ np.array([v @ d for v, d in zip(
            np.split(scores, every.cuts), np.split(inner, every.cuts), strict=True)]))
    assert_allclose(found.primal, value, atol=2e-3 * found.gap + 1e-7)
    return found, problem


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_certificates_of_soft_targets(kind, surrogate):
    loose, _ = certified(kind, surrogate)
    # the same problem, nearly solved by other steps: no less than the bound
    step = "line_search" if surrogate == "log" else "pairwise"
    tight, _ = certified(kind, surrogate, BlockFrankWolfe(step=step), 2e-4)
    assert tight.primal >= loose.primal - loose.gap - 1e-9
    assert loose.primal >= tight.primal - tight.gap - 1e-9


@pytest.mark.parametrize("penalty", [L2(bounds={"coef": (-0.1, 0.2)}), ElasticNet(0.5), Group()])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", ["classes", "chains"])
def test_penalties(kind, surrogate, penalty):
    certified(kind, surrogate, penalty=penalty)


@pytest.mark.parametrize(("kind", "surrogate", "solver"), [
    ("chains", "log", QuasiNewton()), ("chains", "max_margin", QuasiNewton()),
    ("chains", "max_min", QuasiNewton()), ("classes", "max_margin", BlockFrankWolfe(step="exact")),
    ("classes", "max_min", BlockFrankWolfe(step="fixed")),
    ("chains", "max_min", BlockFrankWolfe(cache=5)),
    ("classes", "max_margin", BlockFrankWolfe(step="away")),
    ("rankings", "max_min", BlockFrankWolfe(oracle="mirror_prox", oracle_iter=200)),
])
def test_solvers(kind, surrogate, solver):
    certified(kind, surrogate, solver)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_sparse_penalty(surrogate):
    problem = problem_of("classes", surrogate, penalty="l1")
    every = Enumerated(problem.loss.outputs, "classes")
    mixtures = every.mixtures(np.random.default_rng(4))
    problem.loss.outputs.set_target(every.points(mixtures))
    solution = solved(problem, options_of(problem, 1e-3))
    scores = np.zeros(every.layout.n_numbers)
    scores_of(every.layout, problem.features, scores)
    of_costs = [0.0 if surrogate == "log" else of for of in every.expected_costs(mixtures)]
    losses = every.maxima(surrogate, scores, of_costs)
    losses -= np.sum(np.array(mixtures) * scores.reshape(-1, 3), axis=1)
    fitted = problem.task.fitted(problem, 0.1, solution.mu)
    omega = np.sum(np.abs(fitted["coef_"])) + 0.5 * np.sum(fitted["intercept_"] ** 2)
    assert solution.converged
    assert_allclose(
        solution.certificate.primal, problem.weights @ losses + 0.1 * omega, rtol=1e-9)


@pytest.mark.parametrize("penalty", ["l2", ElasticNet(0.5)])
@pytest.mark.parametrize(("kind", "surrogate"), [
    (kind, surrogate) for kind in ("classes", "chains", "rankings") for surrogate in SURROGATES])
def test_paths(kind, surrogate, penalty):
    """Between breakpoints as at them: dual values of tight fits are not above the bounds."""
    rng = np.random.default_rng(11)
    problem = problem_of(kind, surrogate, penalty=penalty)
    every = Enumerated(problem.loss.outputs, kind)
    mixtures = every.mixtures(rng)
    problem.loss.outputs.set_target(every.points(mixtures))
    scale, points = problem.scale(), []
    for point in solve_path(problem.loss, problem.features, problem.weights, eps=0.1):
        points.append(point)
        assert point.gap <= 0.1 * scale * (1.0 + 1e-9)
        if len(points) == 4:
            break
    for upper, lower in itertools.pairwise(points):
        alpha = np.sqrt(upper.alpha * lower.alpha)
        again = problem_of(kind, surrogate, penalty=penalty)
        again.loss.outputs.set_target(every.points(mixtures))
        best = solved(again, options_of(again, 1e-3, alpha)).certificate
        assert min(upper.primal(alpha), lower.primal(alpha)) <= best.primal + 0.1 * scale * 1.001
        assert min(upper.primal(alpha), lower.primal(alpha)) >= best.primal - best.gap - 1e-9


def test_dual_points_that_are_not_held(monkeypatch):
    """Scores in single precision tell them, from the first pass on."""
    held, _ = certified("chains", "log", BlockFrankWolfe())
    monkeypatch.setattr(_base, "MANY_SCORES", 1)
    problem = problem_of("chains", "log", solver=BlockFrankWolfe())
    every = Enumerated(problem.loss.outputs, "chains")
    problem.loss.outputs.set_target(every.points(every.mixtures(np.random.default_rng(4))))
    options = replace(options_of(problem, 1e-3, solver=BlockFrankWolfe()), keep_dual=False)
    solution = solved(problem, options)
    assert problem.loss.has_points and solution.converged and solution.mu.size == 0
    found = solution.certificate
    assert max(held.dual, found.dual) <= min(held.primal, found.primal) + 1e-9


def test_refusals():
    problem = problem_of("classes", "log")
    outputs = problem.loss.outputs
    outputs.set_target(outputs.truth())
    with pytest.raises(ValueError, match="needs true labels, and there are soft targets"):
        choose(problem, options_of(problem, solver=LabelNewton()))
    problem = problem_of("chains", Boost())
    problem.loss.outputs.set_target(problem.loss.outputs.truth())
    with pytest.raises(ValueError, match="BoostLoss has no soft targets"):
        problem.loss.check()
    with pytest.raises(ValueError, match="target must be .* finite numbers, got shape"):
        outputs.set_target(np.ones(3))
    for wrong in (2.0 * outputs.truth(), outputs.truth() - 0.5):
        with pytest.raises(ValueError, match="no probabilities that sum to one"):
            outputs.set_target(wrong)
    with pytest.raises(ValueError, match="costs must be of shape"):
        outputs.set_target(outputs.truth(), np.zeros((2, 2)))


def test_targets_pickle():
    problem = problem_of("chains", "max_margin")
    outputs = problem.loss.outputs
    every = Enumerated(outputs, "chains")
    target = every.points(every.mixtures(np.random.default_rng(0)))
    outputs.set_target(target)
    scores = scores_for(np.random.default_rng(1), outputs)
    again = pickle.loads(pickle.dumps(problem.loss))
    assert_array_equal(again.outputs.target, target)
    assert_array_equal(block_losses(again, scores).value, block_losses(problem.loss, scores).value)


def test_a_mixture_is_repetition():
    """Under the log surrogate, of examples with the weights of the mixture."""
    rng = np.random.default_rng(5)
    X, y, z = rng.normal(size=(12, 3)), np.arange(12) % 3, rng.integers(3, size=12)
    share = rng.uniform(size=12)
    model = MulticlassClassifier("log", alpha=0.05, tol=1e-8, max_iter=10000)
    problem = model._problem(X, y)
    target = np.zeros((12, 3))
    of_block = problem.blocks.examples
    np.add.at(target, (np.arange(12), y[of_block]), 1.0 - share[of_block])
    np.add.at(target, (np.arange(12), z[of_block]), share[of_block])
    problem.loss.outputs.set_target(target.ravel())
    solution = solved(problem, options_of(problem, 1e-8, 0.05))
    soft = problem.task.fitted(problem, 0.05, solution.mu)
    model.fit(np.vstack([X, X]), np.append(y, z), sample_weight=np.append(1.0 - share, share))
    assert_allclose(solution.certificate.primal, model.primal_objective_, rtol=1e-7)
    assert_allclose(soft["coef_"], model.coef_, atol=1e-3)


# ------------------------------------------------------------------------- completions


@pytest.mark.parametrize("size", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_clamped_outputs(kind, size):
    rng = np.random.default_rng(6)
    outputs = problem_of(kind, "max_margin" if kind in HARD else "log").loss.outputs
    every = Enumerated(outputs, kind)
    allowed = random_allowed(rng, every)
    clamp, scores = Clamp(outputs, allowed), scores_for(rng, outputs, size)
    inside = every.inside(clamp.allowed)
    values = [
        phi[of] @ v for phi, of, v in zip(
            every.phi, inside, np.split(scores, every.cuts), strict=True)]
    points, best = clamp.best(scores)
    atol = 1e-9 * (1.0 + size)
    assert_allclose(best, [np.max(of) for of in values], atol=atol)
    assert_allclose(
        [p @ v for p, v in zip(
            np.split(points, every.cuts), np.split(scores, every.cuts), strict=True)],
        best, atol=atol)
    if kind not in HARD:
        points, partitions = clamp.marginals(scores)
        assert_allclose(partitions, [logsumexp(of) for of in values], atol=atol)
        expected = np.concatenate([
            np.exp(of - logsumexp(of)) @ phi[some]
            for of, phi, some in zip(values, every.phi, inside, strict=True)])
        assert_allclose(points, expected, atol=atol)
    assert_array_equal(points[clamp.places], 0.0)


def test_what_clamps_refuse():
    outputs = problem_of("rankings", "log").loss.outputs
    with pytest.raises(ValueError, match="allowed must be bool of shape"):
        Clamp(outputs, np.ones((2, 2), dtype=bool))
    allowed = np.ones((outputs.layout.n_parts_of_all, 3), dtype=bool)
    allowed[4] = False
    with pytest.raises(ValueError, match="no label for part 4"):
        Clamp(outputs, allowed)
    allowed[3:5] = [True, False, False]
    clamp = Clamp(outputs, allowed)
    for method in (clamp.best, clamp.marginals):
        with pytest.raises(ValueError, match="no output for block 1"):
            method(np.zeros(outputs.layout.n_numbers))


@pytest.mark.parametrize(("kind", "surrogate"), CASES)
def test_rounds(kind, surrogate):
    """F is what enumeration says, and falls; each fit is within its gap."""
    rng = np.random.default_rng(7)
    problem = problem_of(kind, surrogate)
    every = Enumerated(problem.loss.outputs, kind)
    allowed = random_allowed(rng, every)
    solution = complete(
        problem, by_example(problem, allowed), options_of(problem, 1e-3), tol=1e-6, max_rounds=10)
    history = solution.history
    objective, gap = history["objective"], history["gap"]
    scale = problem.scale()
    assert np.all(gap <= 1e-3 * scale + 1e-12)
    # of the last round, which may not fall, the gap is why
    assert np.all(np.diff(objective)[:-1] < 0.0)
    assert np.all(np.diff(objective) <= gap[1:] + 1e-12)
    scores = np.zeros(every.layout.n_numbers)
    scores_of(every.layout, problem.features, scores)
    clamp = Clamp(problem.loss.outputs, allowed)
    of_costs = every.part_costs(clamp.costs())
    if surrogate == "log":
        of_costs = [np.zeros(len(of)) for of in of_costs]
    high = every.maxima(surrogate, scores, of_costs)
    low = [(logsumexp if surrogate == "log" else np.max)(phi[of] @ v) for phi, of, v in zip(
        every.phi, every.inside(clamp.allowed), np.split(scores, every.cuts), strict=True)]
    value = float(problem.weights @ (high - low))
    norm = problem.features.weight_norm()
    if norm is None:
        targets = problem.loss.outputs.truth()
        norm = float(problem.weights @ clamp.sums(scores * (targets - solution.mu))) / 0.1
    assert_allclose(objective.min(), value + 0.05 * norm, atol=1e-3 * gap.max() + 1e-7)
    # targets are within the clamp
    assert_array_equal(problem.loss.outputs.target[clamp.places], 0.0)


def test_nothing_to_complete():
    """With one allowed label for each part, one fit is all."""
    for surrogate in SURROGATES:
        problem = problem_of("chains", surrogate)
        outputs = problem.loss.outputs
        allowed = np.eye(2, dtype=bool)[outputs.arguments()[0]]
        plain = solved(problem, options_of(problem))
        problem = problem_of("chains", surrogate)
        solution = complete(problem, by_example(problem, allowed), options_of(problem))
        assert solution.converged
        assert abs(solution.certificate.primal - plain.certificate.primal) <= max(
            solution.certificate.gap, plain.certificate.gap)


def test_partial_labels_help():
    """Of examples of which one label is excluded, the model learns as of fully labelled ones."""
    rng = np.random.default_rng(8)
    centres = 2.0 * rng.normal(size=(4, 3))
    y = rng.integers(4, size=200)
    X = centres[y] + 0.5 * rng.normal(size=(200, 3))
    for surrogate in SURROGATES:
        model = MulticlassClassifier(surrogate, alpha=0.01)
        problem = model._problem(X, y)
        allowed = np.eye(4, dtype=bool)[y]
        allowed[np.arange(200), rng.integers(4, size=200)] = True
        solution = complete(problem, allowed, options_of(problem, 1e-3, 0.01))
        fitted = problem.task.fitted(problem, 0.01, solution.mu)
        scores = X @ fitted["coef_"].T + fitted["intercept_"]
        assert np.mean(scores.argmax(axis=1) == y) >= 0.97


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_void_positions_help(surrogate):
    """Of sequences of which two thirds of the labels are not known."""
    rng = np.random.default_rng(10)
    centres, after = rng.normal(size=(3, 8)), rng.dirichlet(0.3 * np.ones(3), size=3)

    def drawn(n):
        X, y = [], []
        for _ in range(n):
            labels = [rng.integers(3)]
            for _ in range(rng.integers(5, 15)):
                labels.append(rng.choice(3, p=after[labels[-1]]))
            y.append(np.array(labels))
            X.append(0.8 * centres[y[-1]] + rng.normal(size=(len(labels), 8)))
        return X, y

    (X, y), (X_new, y_new) = drawn(60), drawn(100)
    model = SequenceTagger(surrogate, alpha=0.01).fit(X, y)
    full = model.score(X_new, y_new)
    problem = model._problem(X, y)
    allowed = [
        np.eye(3, dtype=bool)[labels] | (rng.random((len(labels), 1)) < 2 / 3) for labels in y]
    solution = complete(problem, allowed, options_of(problem, 1e-3, 0.01))
    for name, value in problem.task.fitted(problem, 0.01, solution.mu).items():
        setattr(model, name, value)
    assert model.score(X_new, y_new) >= full - 0.06


def test_latent_states():
    """States that nobody labels are found from first completions that differ."""
    rng = np.random.default_rng(9)
    X = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [0.0, -3.0]])[np.arange(80) % 4]
    X = X + 0.3 * rng.normal(size=X.shape)
    # class 0 is at two opposite places, and so is class 1: states 0 and 1, and 2 and 3
    classes = np.arange(80) % 4 // 2
    states = np.array([[True, True, False, False], [False, False, True, True]])
    for surrogate in SURROGATES:
        model = MulticlassClassifier(surrogate, alpha=0.01)
        problem = model._problem(X, np.arange(80) % 4)
        allowed = states[classes]
        first = allowed[problem.blocks.examples] * rng.uniform(size=allowed.shape)
        first /= first.sum(axis=1, keepdims=True)
        solution = complete(
            problem, allowed, options_of(problem, 1e-3, 0.01), tol=1e-4, max_rounds=50,
            targets=first.ravel())
        fitted = problem.task.fitted(problem, 0.01, solution.mu)
        scores = X @ fitted["coef_"].T + fitted["intercept_"]
        assert np.mean(scores.argmax(axis=1) // 2 == classes) >= 0.95


def test_what_rounds_refuse():
    problem = problem_of("classes", "max_margin", fit_intercept="free")
    allowed = np.ones((problem.blocks.n_examples, 3), dtype=bool)
    with pytest.raises(ValueError, match="need a penalised intercept, got fit_intercept='free'"):
        complete(problem, allowed, options_of(problem))
    X, y = np.array([[0.0], [1.0], [1.0]]), [0, 1, 1]
    problem = MulticlassClassifier("log")._problem(X, y)
    with pytest.raises(ValueError, match="allowed is of 2 examples, but X of 3"):
        allowed_of_blocks(problem, np.ones((2, 2), dtype=bool))
    with pytest.raises(ValueError, match=r"must be bool of shape \(1, 2\), got int64"):
        allowed_of_blocks(problem, np.ones((3, 2), dtype=int))
    allowed = np.array([[True, False], [False, True], [True, True]])
    with pytest.raises(ValueError, match="have equal X and y, but not equal allowed labels"):
        allowed_of_blocks(problem, allowed)
    assert_array_equal(
        allowed_of_blocks(MulticlassClassifier("log")._problem(X, [0, 1, 0]), allowed).sum(), 4)


def test_free_intercepts():
    """The intercept has no penalty, and the optimum is that of a generic solver."""
    problem = problem_of("classes", "log", fit_intercept="free")
    every = Enumerated(problem.loss.outputs, "classes")
    targets = np.array(every.mixtures(np.random.default_rng(4)))
    problem.loss.outputs.set_target(targets.ravel())
    found = solved(problem, options_of(problem)).certificate
    X, rows, *_ = problem.features.arguments()

    def objective(w):
        w = w.reshape(3, 3)
        scores = X[rows] @ w[:, :2].T + w[:, 2]
        losses = logsumexp(scores, axis=1) - np.sum(targets * scores, axis=1)
        return problem.weights @ losses + 0.05 * np.sum(w[:, :2] ** 2)

    least = minimize(objective, np.zeros(9), tol=1e-10).fun
    assert found.dual - 1e-9 <= least <= found.primal + 1e-9
