"""What the engine promises, for every outputs, surrogate, penalty and step.

Problems are small, so that their optimum is known by enumeration (`engine_cases`). What holds of
one kind of output, or of one kind of step, is in the files named after it.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import pytest
from automaton_cases import KINDS
from covering import covering
from engine_cases import (
    PENALTIES,
    SAMPLINGS,
    SURROGATES,
    assert_certified,
    assert_certified_above,
    assert_parts,
    assert_same_atoms,
    assert_same_points,
    lifted_dual,
    run,
    zero_one,
)
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.base.threads as threads
import fastm4n.reference as ref
import fastm4n.solvers.blocks.momentum as acceleration
from fastm4n.solvers.blocks._engine import Sampling, Step
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.solvers.blocks.momentum import Acceleration
from fastm4n.solvers.blocks.schedule import STEPS
from fastm4n.solvers.certificates import certify, certify_average
from fastm4n.solvers.monitor import HISTORY_KEYS


class Way(NamedTuple):
    """How passes are made: kappa is `ratio` times alpha."""

    step: str
    limit: int = None
    cache: tuple = None
    ratio: float = None


CACHE = (0.25, 0.01)
WAYS = {
    "line_search": Way("line_search"),
    "exact": Way("exact"),
    "fixed": Way("fixed"),
    "atoms": Way("line_search", 1000),
    "pairwise": Way("pairwise", 1000),
    "away": Way("away", 1000),
    "cache": Way("line_search", 1000, CACHE),
    "pairwise, cache": Way("pairwise", 1000, CACHE),
    "away, cache": Way("away", 5, (0.9, 0.001)),
    "accelerated": Way("line_search", ratio=20.0),
    "accelerated atoms": Way("line_search", 1000, ratio=20.0),
    "accelerated pairwise": Way("pairwise", 1000, ratio=1e3),
    "accelerated away": Way("away", 1000, ratio=0.5),
}
SEED = 3
NAMES = (*SURROGATES, "mirror_prox")


def is_allowed(kind, name, way, penalty="l2"):
    """Whether there is such a fit."""
    step, limit, cache, ratio = WAYS[way]
    if penalty == "groups" and kind in ("pairs", "matchings"):
        return False
    if penalty != "l2" and ("kernel" in kind or kind in ("levels", "costs")):
        return False  # kernels have none, and costs do not meet the penalty
    if penalty != "l2" and limit is not None and (cache is not None or ratio is not None) and (
            step != "pairwise"):
        return False  # atoms do not meet the penalty either, but in the length of steps
    if ratio is not None and "kernel" in kind:
        return False  # the driver alone accelerates them
    if name == "log" and (kind in ("levels", "costs") or limit is not None or step == "fixed"):
        return False  # it sees no cost, and has steps of its own
    if name == "mirror_prox" and kind in ("forests", "ngrams", "accepted", "matchings"):
        return False  # column generation alone
    if name == "mirror_prox" and (penalty != "l2" or step == "exact" or "kernel" in kind):
        return False
    if step == "exact":
        return kind in ("labels", "labels, kernel") and name != "log" or (
            kind in ("levels", "costs") and name == "max_margin")
    return True


def cases(penalties=("l2",), names=SURROGATES, ways=WAYS, kinds=KINDS):
    return [
        case for case in itertools.product(kinds, names, ways, penalties) if is_allowed(*case)]


def few_cases(*args, **options):
    return covering(cases(*args, **options))


# of data whose visits meet no ties, which rounding decides
# where no choice of a pass hangs on rounding: features that differ by 1e-13 go the same way
SEEDS = {
    "labels": 3, "levels": 2, "costs": 3, "chains": 4, "pairs": 2, "rankings": 3,
    "rankings, kernel": 1,
}


def problem_of(kind, penalty="l2", **options):
    return KINDS[kind](SEEDS.get(kind, 0), penalty=penalty, **options)


@functools.cache
def optimum(kind, name, penalty="l2"):
    name = "max_min" if name == "mirror_prox" else name
    found = problem_of(kind, penalty).optimum(name)
    assert -1e-12 <= found.upper - found.lower <= 1e-6
    return found


# the first of each kind have one output only
SMALL = {
    "labels": [{"k": 1}, {"n": 1}, {"k": 2}, {"k": 17}],
    "chains": [{"lengths": (3, 1), "R": 1}, {"lengths": (1,)}, {"lengths": (1, 1, 1)},
               {"lengths": (70, 2)}],
    "edges": [{"lengths": (3, 1), "R": 1}, {"lengths": (1,)}, {"lengths": (66, 2)}],
    "ngrams": [{"lengths": (3, 1), "R": 1}, {"lengths": (1,)}, {"lengths": (7, 2)}],
    "accepted": [{"only": True}, {"lengths": (1,)}, {"lengths": (7, 2)}],
    "pairs": [{"sizes": (1, 1)}, {"sizes": (1,)}, {"sizes": (2,)}, {"sizes": (5,)}],
    "matchings": [{"shapes": ((1, 0), (2, 0))}, {"shapes": ((1, 1),)}, {"shapes": ((4, 1),)},
                  {"shapes": ((2, 3),)}, {"shapes": ((3, 3),), "complete": True}],
    "rankings": [{"M": 1}, {"n": 1}, {"M": 2}],
}


class Passes:
    """Passes of the engine, and what the driver does beside them."""

    def __init__(self, problem, name, way, seed=0, mu=None):
        self.problem, self.way = problem, WAYS[way]
        self.engine = problem.engine(
            name, seed, averaging=self.way.step == "fixed", limit=self.way.limit,
            cache=self.way.cache, mu=mu)
        self.accelerated = None

    def run(self, sampling):
        self.engine.run_pass(SAMPLINGS[sampling], STEPS[self.way.step])
        if self.accelerated is not None:
            self.accelerated.after_pass()
        elif self.way.ratio is not None:
            self.accelerated = Acceleration(self.engine, self.way.ratio * self.problem.alpha)

    def certified(self):
        """The dual point and its certificate; gaps are refreshed."""
        engine = self.engine
        if self.accelerated is None:
            found = certify(engine, engine.mu)
        else:
            with self.accelerated.at_result() as apart:
                found = certify(engine, engine.mu, 1, apart)
        engine.set_gaps(found.block_gaps, found.block_losses)
        return certify_average(engine) if engine.averaging else (engine.mu, found)

    def average(self):
        """The weights that are certified in the place of w(mu); None for those."""
        if self.accelerated is None:
            return None
        now = self.engine.features.state()
        self.engine.features.restore(self.accelerated.average())
        w = self.problem.w(self.engine.features)
        self.engine.features.restore(now)
        return w

    def rising(self, found):
        """What no step lowers: the dual, or, of steps along atoms, the dual of their heights."""
        if self.way.limit is None:
            return found.dual
        return lifted_dual(self.problem, self.engine, found.norm)

    def state(self):
        more = {} if self.accelerated is None else self.accelerated.state()
        return self.engine.state(), more

    def restore(self, state):
        self.engine.restore(state[0])
        if self.way.ratio is not None:
            self.accelerated = Acceleration.restored(self.engine, state[1])


class Twin(ref.AtomPasses):
    """The reference, which knows whether a choice among atoms hung on rounding.

    An exact step ties the atoms of a block, and tied they are still where it is visited before
    another block has moved.
    """

    is_tied = False

    def look(self, i, v):
        values, current, best, worst = super().look(i, v)
        in_use = values[[atom.weight > 0 for atom in self.atoms[i]]]
        for among, chosen in (values, best), (in_use, worst):
            self.is_tied |= np.count_nonzero(np.abs(among - values[chosen]) < 1e-9) > 1
        return values, current, best, worst


def twin_of(problem, kind, name, way):
    """The reference's passes, where they are the same to the last digits."""
    step, limit, cache, _ = WAYS[way]
    inexact = name == "max_min" and kind.split(",")[0] not in ("labels", "levels")
    rounded = name == "mirror_prox" and kind not in ("chains", "edges")
    if name == "log" and problem.blocks(name).is_natural or inexact or rounded:
        return None
    blocks = problem.blocks(name)
    if limit is None:
        return ref.BlockPasses(blocks, SEED, step)
    options = dict(zip(("cache_F", "cache_nu"), cache or (), strict=False))
    return Twin(blocks, step, SEED, limit=limit, cache=cache is not None, **options)


def run_twin(twin, sampling, way, alpha):
    """A pass of the reference; accelerated from the second on."""
    twin.run_pass(sampling)
    ratio = WAYS[way].ratio
    if ratio is None or isinstance(twin, ref.AcceleratedPasses):
        return twin
    return ref.AcceleratedPasses(
        twin, ratio * alpha, acceleration.INNER_PASSES, acceleration.AVERAGED)


def assert_same_passes(passes, twin):
    """mu, h, w, what stands beside them, and atoms one by one, until atoms have been tied."""
    problem, engine = passes.problem, passes.engine
    if getattr(getattr(twin, "passes", twin), "is_tied", False):
        engine.settle()
        return
    if isinstance(twin, ref.AcceleratedPasses):
        for found, expected in (
                (passes.accelerated.centre, twin.centre), (passes.accelerated.mean, twin.mean)):
            state = dict(zip(engine.features.state(), found, strict=True))
            assert_parts(problem.weights(state), expected, 1e-8)
        twin = twin.passes
    if isinstance(twin, ref.AtomPasses):
        assert_same_atoms(problem, engine, twin, 1e-8)
    assert_same_points(problem, engine, twin, 1e-8)
    if twin.average is not None:
        assert_allclose(engine.averaged_mu(), problem.pack(twin.average), atol=1e-8)


def reference_states(problem, name, engine, mu):
    """The states of the reference's blocks at mu; None where not every block has been visited."""
    if name != "log" or not engine.surrogate.has_natural_step:
        return problem.unpack(mu)
    theta, is_first = engine.surrogate.state().values()
    states, blocks = problem.unpack(theta), problem.blocks("log")
    for i, (found, h) in enumerate(zip(problem.unpack(mu), engine.concave, strict=True)):
        if is_first[i]:  # a block of one output
            assert np.size(problem.listed(i), 0) == 1
        *expected, entropy = blocks.point(i, states[i])
        assert_parts(found, expected)
        assert_allclose(h, entropy, atol=1e-9)
    return states


def assert_honest(problem, name, engine, mu, found, w=None):
    """A certificate against P and D of the reference, at w or at w(mu)."""
    states = reference_states(problem, name, engine, mu)
    name = "max_min" if name == "mirror_prox" else name
    blocks = problem.blocks(name)
    points = [blocks.point(i, state) for i, state in enumerate(states)]
    z = blocks.primal_weights(points)
    exact = blocks.certificate_of(
        points, z, *blocks.examine(blocks.prox(z) if w is None else w))
    if w is not None:
        exact = exact._replace(gap=exact.primal - exact.dual)
    if name == "max_min":
        assert_certified_above(found, exact)
    else:
        assert_certified(found, exact, 1e-7)
    return blocks.prox(z)


# passes


ORDER = ("permutation", "gap", "permutation", "uniform", "gap")
# a block that is visited twice in a row has atoms tied after an exact step
ORDER_OF_TIES = ("permutation",) * 5


@pytest.mark.parametrize("kind, name, way, penalty", cases(ways=("line_search",)))
def test_h_of_points_is_that_of_certificates(kind, name, way, penalty):
    problem = problem_of(kind, penalty)
    engine = problem.engine(name)
    run(engine, "permutation", Step.LINE_SEARCH, 2)
    mu, concave = np.array(engine.mu), np.array(engine.concave)
    engine.settle()
    expected = certify(engine, mu).concave
    engine.concave_of(mu, concave)
    assert_allclose(concave, expected, atol=1e-12)
    with pytest.raises(ValueError, match="another problem"):
        engine.concave_of(mu[:-1], concave)


@pytest.mark.repeats(3)
@pytest.mark.parametrize(("kind", "name", "way", "penalty"), few_cases(PENALTIES, NAMES))
def test_passes(kind, name, way, penalty):
    """Bounds of P*, the reference pass by pass, and a state that the passes go on from."""
    problem, best = problem_of(kind, penalty), optimum(kind, name, penalty)
    passes, twin = Passes(problem, name, way, SEED), twin_of(problem, kind, name, way)
    again, dual = None, 0.0
    start = certify(passes.engine, passes.engine.mu)
    # w = 0, oracles being as exact as certificates ask for
    blocks = problem.blocks("max_min" if name == "mirror_prox" else name)
    points = [(*problem.truth(i), 0.0) for i in range(problem.n)]
    at_zero = blocks.examine(blocks.primal_weights(points))[2]
    assert start.dual == 0.0 and best.lower <= at_zero <= start.primal + 1e-9
    assert_allclose(start.primal, at_zero, rtol=0.021 if "m" in name else 1e-9)
    has_ties = passes.way.step in ("pairwise", "away")
    # exact steps leave gaps of rounding size, whose draws depend on the last digits
    order = ORDER_OF_TIES if has_ties else ORDER[:-1] if passes.way.step == "exact" else ORDER
    for number, sampling in enumerate(order):
        passes.run(sampling)
        mu, found = passes.certified()
        assert found.dual <= best.upper + 1e-9 <= found.primal + 1e-6
        assert found.gap >= found.primal - best.upper - 1e-9
        assert_allclose(found.gap, found.primal - found.dual, atol=1e-9 * (1 + found.primal))
        problem.assert_feasible(mu)
        if passes.way.step != "fixed" and passes.way.ratio is None:
            # no step is one down
            rising = passes.rising(found)
            assert dual - 1e-12 <= rising <= found.dual + 1e-12
            dual = rising
            if passes.way.limit:
                # steps are counted at what they gain, where that is known
                assert passes.engine.gained <= dual + 1e-12
                if penalty == "l2":
                    assert_allclose(passes.engine.gained, dual, atol=1e-12)
        if twin is not None:
            twin = run_twin(twin, sampling, way, problem.alpha)
            assert_same_passes(passes, twin)
            (twin.passes if passes.accelerated else twin).refresh(passes.engine.state()["gaps"])
        if again is not None:
            again.run(sampling)
            again.certified()
            if twin is not None:
                again.engine.settle()  # as above: weights of atoms are made to sum to one
        elif number == 1:
            again = Passes(problem, name, way, SEED + 1, np.full(passes.engine.mu.size, np.nan))
            again.restore(passes.state())
    # to the bit, from the middle
    one, other = (part for part in (passes.state(), again.state()))
    for a, b in zip(one, other, strict=True):
        assert a.keys() == b.keys()
        for key in a:
            assert_array_equal(a[key], b[key], err_msg=key)
    # sampling by gap ends a pass where nothing is left to gain
    assert 3 * problem.n <= passes.engine.n_visits <= 5 * problem.n
    assert passes.engine.oracle_calls + passes.engine.cache_hits == passes.engine.n_visits
    average = passes.average()
    w = assert_honest(problem, name, passes.engine, mu, found, average)
    if problem.w(passes.engine.features) is not None and average is None and (
            passes.way.step != "fixed"):
        assert_parts(problem.w(passes.engine.features), w, 1e-8)
    if passes.way.ratio is None and passes.way.step != "fixed":
        assert found.dual > 0.05 * best.lower


@pytest.mark.repeats(5)
@pytest.mark.parametrize(("kind", "name", "penalty"), covering(
    (kind, name, penalty) for kind, name, _, penalty in cases(PENALTIES, ways=["line_search"])
    if not (name == "log" and "labels" not in kind)))
def test_certificates_at_any_point(kind, name, penalty):
    """Near the optimum or not; h of the log surrogate is known from mu for single labels alone."""
    best = optimum(kind, name, penalty)
    more = SMALL.get(kind, ()) if penalty == "l2" else ()
    problems = [problem_of(kind, penalty, **options) for options in ({}, *more)]
    for problem, seed in itertools.product(problems, (None, 1)):
        states = [problem.truth(i) for i in range(problem.n)]
        engine, mu = problem.engine(name), problem.pack(states)
        assert_array_equal(engine.mu, mu)
        if seed is not None:
            mu = problem.pack(problem.random_states(seed))
            engine.set_mu(mu)
        found = certify(engine, engine.mu)
        w = assert_honest(problem, name, engine, mu, found)
        if problem is problems[0]:
            assert found.dual <= best.upper + 1e-9
            assert found.gap >= found.primal - best.upper - 1e-9
        if problem.w(engine.features) is not None:
            assert_parts(problem.w(engine.features), w)
            norm = sum(np.sum(part**2) for part in w)
            assert_allclose(engine.features.weight_norm(), norm, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("kind", "name", "way", "penalty"), cases(ways=["line_search"]))
def test_nothing_is_left_to_draw(kind, name, way, penalty):
    """Without features a visit solves its block; draws by gap then end a pass at once."""
    problem = problem_of(kind)
    if "labels" not in kind and kind != "levels":
        problem.cost = zero_one(len(problem.cost))
    scale_features(problem, 0.0)
    if hasattr(problem, "fit"):
        problem.fit = () if kind == "chains" else problem.fit
    engine = problem.engine(name)
    for _ in range(40):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        if engine.stale_gap() == 0.0:
            break
    # edges, forests and n-grams have other features, and constants, all the same
    if kind not in ("edges", "forests", "ngrams", "accepted"):
        assert_allclose(certify(engine, engine.mu).gap, 0.0, atol=1e-9)
        n_visits = engine.n_visits
        engine.run_pass(Sampling.GAP, Step.LINE_SEARCH)
        assert engine.n_visits == n_visits


def scale_features(problem, factor):
    problem.X = [factor * x for x in problem.X] if isinstance(problem.X, list) else (
        factor * problem.X)


@pytest.mark.repeats(3)
@pytest.mark.parametrize(("kind", "name", "way", "penalty"), few_cases(
    ("l2", "elastic net"), NAMES, kinds=SMALL))
def test_extremes(kind, name, way, penalty):
    """Single blocks, outputs and positions; features and alpha of any size."""
    problems = [problem_of(kind, penalty, **options) for options in (
        *SMALL[kind], {"alpha": 1e6}, {"alpha": 1e-9})]
    for factor in (0.0, 1e6, 1e-6, 1e-100):
        problem = problem_of(kind, penalty)
        scale_features(problem, factor)
        problems.append(problem)
    for number, problem in enumerate(problems):
        passes, dual = Passes(problem, name, way), 0.0
        for _ in range(3):
            passes.run("permutation")
            mu, found = passes.certified()
            rounding = 1e-9 * (1.0 + found.primal)
            assert np.isfinite([found.primal, found.dual]).all() and found.gap >= 0.0
            assert found.dual <= found.primal + rounding
            if passes.way.step != "fixed" and passes.way.ratio is None:
                rising = passes.rising(found)
                assert dual - rounding <= rising <= found.dual + rounding
                dual = rising
        problem.assert_feasible(mu)
        if number == 0:
            assert_allclose([found.primal, found.dual, found.gap], 0.0, atol=1e-14)
            if passes.way.limit:
                assert_array_equal(passes.engine.sets.counts(), [[1, 0]] * problem.n)


# fits


@pytest.mark.repeats
@pytest.mark.parametrize(("kind", "name", "way", "penalty"), [
    *few_cases(PENALTIES, SURROGATES, [way for way in WAYS if "atoms" not in way]),
    *cases(("l2",), ["mirror_prox"], ["line_search"], ["chains", "edges", "pairs", "rankings"])])
def test_fits(kind, name, way, penalty, monkeypatch):
    """Bounds of P* and of w*, honest histories, and the same bits whatever the threads."""
    problem, best = problem_of(kind, penalty), optimum(kind, name, penalty)
    step, limit, cache, ratio = WAYS[way]
    tol = 0.4 if step == "fixed" else 0.02
    # each in turn, as the cases go
    turn = list(KINDS).index(kind) + list(WAYS).index(way) + PENALTIES.index(penalty)
    options = {
        "sampling": list(SAMPLINGS)[turn % 3], "step": step, "accelerate": ratio is not None,
        "tol": tol, "max_iter": 3000, "seed": 3, "cache": None if cache is None else limit}
    oracle = (12, True) if name == "mirror_prox" else None
    solution, w = problem.solve(name, oracle, **options)
    found, history = solution.certificate, solution.history
    assert solution.converged and not solution.interrupted and found.gap <= tol
    assert found.dual <= best.upper + 1e-9 and best.lower - 1e-9 <= found.primal
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-9)
    problem.assert_feasible(solution.mu)
    blocks = problem.blocks("max_min" if name == "mirror_prox" else name)
    if w is not None:
        above = found.primal - blocks.examine(w)[2]
        assert -1e-8 <= above <= 0.021 * tol * ("m" in name and name != "max_margin") + 1e-8
        apart = sum(np.sum((a - b) ** 2) for a, b in zip(w, best.w, strict=True))
        assert 0.5 * problem.alpha * problem.modulus * apart <= found.gap + 1e-5
    if name != "log":
        exact = blocks.certificate(problem.unpack(solution.mu))
        # weights and dual values of earlier passes may have been better
        assert found.dual >= exact.dual - 1e-9
        assert found.primal <= exact.primal + 0.021 * tol + 1e-8 or solution.state.average is not None
    assert tuple(history) == HISTORY_KEYS and len({len(of) for of in history.values()}) == 1
    assert np.all(np.diff(history["pass"]) > 0) and history["pass"][-1] == solution.n_iter
    for key in ("oracle_calls", "seconds"):
        assert np.all(np.diff(history[key]) >= 0)
    assert np.all(np.diff(np.append(0.0, history["dual"])) >= -1e-12)
    assert history["gap"][-1] == found.gap and np.all(history["gap"][:-1] > tol)
    assert_allclose(history["gap"], history["primal"] - history["dual"], atol=1e-9)

    calls, original = [], threads.ThreadPoolExecutor
    monkeypatch.setattr(threads, "PARALLEL_COST", 0.0)
    monkeypatch.setattr(threads, "ThreadPoolExecutor", lambda n: calls.append(n) or original(n))
    for n_jobs in (1, 50):
        other, weights = problem.solve(name, oracle, n_jobs=n_jobs, **options)
        assert_array_equal(other.mu, solution.mu)
        for one, two in zip(w or (), weights or (), strict=True):
            assert_array_equal(one, two)
        for key in set(HISTORY_KEYS) - {"seconds"}:
            assert_array_equal(other.history[key], history[key])
    assert set(calls) == {problem.n}  # a thread has a block at least


@pytest.mark.repeats
@pytest.mark.parametrize(("kind", "name", "sampling"), covering(
    (kind, name, sampling) for kind, name, *_ in cases(ways=["line_search"])
    for sampling in SAMPLINGS))
def test_accurate_fits(kind, name, sampling):
    """Every sampling comes to the optimum; the seed says on which way."""
    problem, best = problem_of(kind), optimum(kind, name)
    accurate = 1e-9 if name == "log" else 2e-3
    solution, w = problem.solve(name, sampling=sampling, tol=accurate, max_iter=20000)
    assert solution.converged
    assert_allclose(solution.certificate.primal, best.upper, atol=accurate + 1e-6)
    if name == "log" and w is not None:
        assert_parts(w, best.w, 2e-3)
    first, *others = (
        functools.partial(problem.solve, name, sampling=sampling, tol=0.0, max_iter=3, seed=seed)
        for seed in range(1, 9))
    mu = first()[0].mu
    assert any(not np.array_equal(mu, other()[0].mu) for other in others)


# warm starts


@pytest.mark.repeats
@pytest.mark.parametrize(("kind", "name", "shrink"), covering(
    (kind, name, shrink) for kind, name, *_ in cases(ways=["line_search"])
    for shrink in (1.0, 0.7, 0.05)))
def test_a_shrunk_start_keeps_its_bound(kind, name, shrink):
    """The regularisation path: w stays, and the gap grows by (1 - shrink) Delta at most."""
    problem = problem_of(kind)
    surrogate = problem.surrogate(name)
    first = solve(
        surrogate, problem.features(), problem.p, problem.alpha, tol=0.02, max_iter=5000,
        keep_best=False)
    old, blocks = first.certificate, problem.blocks(name)
    states, truth = problem.unpack(first.mu), [problem.truth(i) for i in range(problem.n)]
    w = blocks.primal_weights([(*state, 0.0) for state in states])
    delta = sum(
        weight * (h + sum(np.sum(a * (b - c)) for a, b, c in zip(
            blocks.scores(i, w), states[i], truth[i], strict=True)))
        for i, (h, weight) in enumerate(zip(old.concave, problem.p, strict=True)))

    problem.alpha *= shrink
    best = problem.optimum(name)
    again, features = problem.surrogate(name), problem.features()
    again.restore(surrogate.state())
    options = {"start": first.state}
    stopped = solve(again, features, problem.p, problem.alpha, max_iter=0, tol=0.0, **options)
    start = stopped.certificate
    expected = [
        tuple((1 - shrink) * a + shrink * b for a, b in zip(*pair, strict=True))
        for pair in zip(truth, states, strict=True)]
    assert_allclose(stopped.mu, problem.pack(expected), atol=1e-12)
    if problem.w(features) is not None:
        assert_parts(problem.w(features), w)
    slack = 0.05 * start.gap if name == "max_min" else 0.0  # of the oracles
    assert start.gap <= old.gap + (1 - shrink) * delta + slack + 1e-9
    assert start.gap >= start.primal - best.upper - 1e-9 and start.dual <= best.upper + 1e-9
    if name == "log":
        for bound, state in zip(start.concave, expected, strict=True):
            # the entropies of the parts, of which the output's is no larger
            rows = np.atleast_2d(state[0])
            assert -1e-12 <= bound <= -np.sum(rows * np.log(np.maximum(rows, 1e-300))) + 1e-9
    else:
        assert start.dual >= problem.blocks(name).certificate(expected).dual - 1e-9
    further = assert_goes_on(problem, again, best, **options)
    assert further[0] == start.dual


def assert_goes_on(problem, surrogate, best, **options):
    """A fit from a warm start; returns the dual values, which never fall."""
    duals = []
    found = solve(
        surrogate, problem.features(), problem.p, problem.alpha, tol=0.02, max_iter=3000,
        callback=lambda row: duals.append(row["dual"]), **options)
    assert found.converged and np.all(np.diff(duals) >= -1e-12)
    assert max(duals) <= best.upper + 1e-9
    assert 0 <= found.certificate.primal - best.lower <= 0.02 + 1e-6
    return duals


@pytest.mark.parametrize(("kind", "name", "way", "penalty"), cases(ways=["line_search"]))
def test_a_start_from_the_dual_point_of_other_outputs(kind, name, way, penalty):
    """Any point is feasible for any outputs, weights and alpha."""
    problem, other = problem_of(kind), KINDS[kind](5, alpha=0.5, noise=5.0, weighted=False)
    surrogate = problem.surrogate(name)
    first = solve(surrogate, problem.features(), problem.p, problem.alpha, tol=1e-2)
    assert any(not np.array_equal(a, b) for a, b in zip(problem.y, other.y, strict=True))
    again = other.surrogate(name)
    again.restore(surrogate.state())
    assert_goes_on(
        other, again, other.optimum(name), start=first.state)


@pytest.mark.parametrize(("kind", "name", "way", "penalty"), cases(ways=["line_search"]))
def test_going_on(kind, name, way, penalty):
    """A converged fit has nothing to do, and its arrays are copies."""
    problem = problem_of(kind)
    surrogate = problem.surrogate(name)
    before = surrogate.state()
    solution = solve(surrogate, problem.features(), problem.p, problem.alpha, tol=1e-2)
    given, after, again = np.array(solution.mu), surrogate.state(), problem.surrogate(name)
    if surrogate.has_natural_step:
        theta, is_first = after.values()
        assert before["is_first"].all()
        assert all(is_first[i] <= (len(problem.listed(i)) == 1) for i in range(problem.n))
        assert not np.array_equal(before["theta"], theta)
        again.restore(after)
        assert_array_equal(again.state()["theta"], theta)
        theta[:] = 7.0
        assert not np.any(surrogate.state()["theta"] == 7.0)
        assert_array_equal(again.state()["theta"], surrogate.state()["theta"])
    elif name != "max_min":
        assert after == {}
    resumed = solve(
        again, problem.features(), problem.p, problem.alpha, start=solution.state, tol=1.1e-2)
    assert resumed.converged and resumed.history["pass"][0] == 0
    if name == "log" or kind == "labels":  # of others w may be an earlier and better one
        assert resumed.n_iter == 0
    further = solve(
        again, problem.features(), problem.p, problem.alpha, start=solution.state, tol=2e-3,
        max_iter=5000)
    assert_array_equal(solution.mu, given)
    assert further.converged and further.history["pass"][0] == 0
    assert further.certificate.dual >= solution.certificate.dual - 1e-9


# mirror prox


@pytest.mark.parametrize(("kind", "options", "n_iter", "share"), [
    ("chains", {"lengths": (6, 5, 7, 6), "R": 3, "alpha": 0.5, "noise": 0.7}, 5, 0.7),
    *(("pairs", {"sizes": sizes, "alpha": alpha, "noise": 0.7}, n_iter, 0.9)
      for sizes in ((4, 5, 6, 5), (3, 1, 3, 2)) for alpha in (0.5, 2.0, 8.0)
      for n_iter in (5, 20))])
def test_a_warm_start_makes_mirror_prox_better(kind, options, n_iter, share):
    """Of the last visits of a fit, at the same budget."""
    problem, errors = problem_of(kind, **options), []
    for warm_start in (True, False):
        engine = problem.engine("max_min", oracle=(n_iter, warm_start))
        run(engine, "permutation", Step.LINE_SEARCH, 30)
        errors.append(engine.oracle_error)
    assert errors[0] < share * errors[1]
