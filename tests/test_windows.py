"""Passes in windows: the same bits for any number of threads, and the optimum of other passes."""

import signal
import threading

import numpy as np
import pytest
from automaton_cases import KINDS
from covering import covering
from engine_cases import PENALTIES, SURROGATES
from numpy.testing import assert_array_equal
from scipy import sparse

from fastm4n.base import threads
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.blocks import block_coordinate as driver_module
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks._windows import Windows
from fastm4n.solvers.blocks.block_coordinate import Driver, solve
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import make_surrogate

LINEAR = [kind for kind in KINDS if "kernel" not in kind]
SAMPLINGS = (Sampling.PERMUTATION, Sampling.GAP, Sampling.UNIFORM)


def cases():
    for kind in LINEAR:
        for name in SURROGATES:
            for penalty in PENALTIES:
                if name == "log" and kind in ("levels", "costs"):
                    continue  # it sees no cost
                if penalty == "groups" and kind in ("pairs", "matchings"):
                    continue
                if penalty == "l2" or kind not in ("levels", "costs"):
                    yield kind, name, penalty


def equal(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items())


# steps, and whether there is a cache, of dual points that are combinations of atoms
ATOMS = {"pairwise": (Step.PAIRWISE, False), "away": (Step.AWAY, False), "cache": (
    Step.PAIRWISE, True)}


def with_atoms():
    for kind, name, penalty in cases():
        yield kind, name, penalty, None
        if name != "log":
            yield from ((kind, name, penalty, atoms) for atoms in ATOMS)


def begun(kind, seed, name, penalty, atoms):
    """An engine, and the step of its passes."""
    engine = KINDS[kind](seed, penalty=penalty).engine(name)
    if atoms is None:
        return engine, Step.LINE_SEARCH
    step, has_cache = ATOMS[atoms]
    engine.use_active_sets(5, has_cache)
    return engine, step


@pytest.mark.parametrize(("kind", "name", "penalty", "atoms"), list(with_atoms()))
def test_threads_change_no_bit(kind, name, penalty, atoms):
    states, engines = [], []
    for n_threads in (1, 2, 3):
        engine, step = begun(kind, 1, name, penalty, atoms)
        windows = Windows(engine, n_threads, 0.0)
        for i, sampling in enumerate((Sampling.PERMUTATION, *SAMPLINGS)):
            if i == 2:
                engine.set_kappa(engine.alpha)
            windows.run_pass(sampling, step)
        states.append({**engine.state(), **windows.state()})
        engines.append(engine)
    assert equal(states[0], states[1]) and equal(states[0], states[2])
    assert engines[0].n_visits > 0


@pytest.mark.repeats(5)
@pytest.mark.parametrize(("kind", "name", "penalty", "atoms"), covering(with_atoms()))
def test_optimum(kind, name, penalty, atoms):
    problem = KINDS[kind](2, penalty=penalty)
    solution, _ = problem.solve(name, tol=1e-4, max_iter=1000)
    serial = solution.certificate
    engine, step = begun(kind, 2, name, penalty, atoms)
    windows, tol = Windows(engine, 1, 0.0), 1e-2 * max(1.0, serial.primal)
    for i in range(1000):
        windows.run_pass(Sampling.GAP if i % 5 else Sampling.PERMUTATION, step)
        if i % 20 == 19:
            found = certify(engine, engine.mu)
            assert found.dual <= serial.primal + 1e-9
            assert found.primal >= serial.dual - 1e-9
            assert found.gap >= found.primal - serial.primal - 1e-9
            if found.gap <= tol:
                return
    pytest.fail(f"the gap is {found.gap}")


def test_weights_are_rebuilt_by_parts(monkeypatch):
    monkeypatch.setattr(threads, "PARALLEL_COST", 0.0)
    engine = KINDS["chains"](1).engine("max_margin")
    Windows(engine, 1, 0.0).run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    states = []
    for n_threads in (1, 3):
        engine.features.make_room(n_threads)
        engine.rebuild_weights(engine.mu, n_threads)
        states.append(engine.features.state())
    assert equal(*states) and any(array.any() for array in states[0].values())


def labelled(X, y, k=3, name="max_margin"):
    outputs = SimplexOutputs(y, 1.0 - np.eye(k))
    rows = np.arange(X.shape[0])
    features = LinearFeatures(X, rows, row_norms(X, 0.0), k, 0.0)
    n = X.shape[0]
    return make_surrogate(name, outputs), features, np.full(n, 1.0 / n)


@pytest.mark.parametrize("name", SURROGATES)
def test_width_follows_conflicts(name):
    n = 600
    y = np.random.default_rng(0).integers(3, size=n)
    apart = sparse.identity(n, format="csr")
    engine = BlockCoordinateEngine(*labelled(apart, y, name=name), 1e-4, 0)
    windows = Windows(engine, 1, 0.0)
    for _ in range(6):
        windows.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    # nothing is shared: every step is as good as alone
    assert windows.width >= 64
    alike = np.ones((n, 2))
    engine = BlockCoordinateEngine(*labelled(alike, y, name=name), 1e-4, 0)
    windows = Windows(engine, 1, 0.0)
    for _ in range(6):
        windows.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert windows.width == 2


def test_narrow_windows_give_way():
    y = np.random.default_rng(0).integers(3, size=300)
    parts = labelled(np.ones((300, 2)), y)
    ours, plain = (BlockCoordinateEngine(*parts, 1e-2, 0) for _ in range(2))
    windows = Windows(ours, 2)
    windows.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    # a window of such visits is less work than waiting for each other
    before = ours.state()
    windows.run_pass(Sampling.GAP, Step.LINE_SEARCH)
    after = ours.state()
    plain.restore(before)
    plain.run_pass(Sampling.GAP, Step.LINE_SEARCH)
    assert equal(after, plain.state())


def test_where_they_pay():
    y = np.random.default_rng(0).integers(3, size=300)
    parts = labelled(np.ones((300, 2)), y)
    assert not Windows.pay(BlockCoordinateEngine(*parts, 1e-2, 0))  # little work
    many = labelled(sparse.csr_matrix(np.ones((300, 20_000))), y)
    assert Windows.pay(BlockCoordinateEngine(*many, 1e-2, 0))
    assert not Windows.pay(BlockCoordinateEngine(*many, 1e-2, 0, averaging=True))
    assert not Windows.pay(KINDS["labels, kernel"](0).engine("max_margin"))


@pytest.fixture
def always(monkeypatch):
    """Have fits of any size made in windows, by as many threads as are asked for."""

    class Always(Windows):
        @staticmethod
        def pay(engine):
            return Windows.pay(engine) or engine.features.holds_weights()

        def __new__(cls, engine, n_threads):
            return Windows(engine, n_threads, 0.0)

    monkeypatch.setattr(driver_module, "Windows", Always)
    monkeypatch.setattr(driver_module, "cpu_count", lambda: 8)


@pytest.mark.parametrize(("kind", "name", "options"), [
    ("chains", "log", {}), ("chains", "max_min", {"accelerate": True}),
    ("labels", "max_margin", {"auto": True, "accelerate": True}), ("labels", "log", {}),
    ("pairs", "max_margin", {"auto": True}), ("forests", "max_min", {}),
    ("chains", "max_margin", {"auto": True, "accelerate": True}),
    ("forests", "max_margin", {"step": "pairwise", "cache": 10}),
])
def test_fits(always, kind, name, options):
    found = []
    for n_jobs in (1, 2, 3):
        problem = KINDS[kind](4)
        solution, w = problem.solve(name, tol=1e-4, max_iter=25, n_jobs=n_jobs, **options)
        found.append((solution, w))
        assert solution.certificate.gap >= 0.0
    (first, w), *others = found
    for solution, weights in others:
        assert solution.certificate.gap == first.certificate.gap
        assert solution.n_iter == first.n_iter
        assert_array_equal(solution.mu, first.mu)
        for one, other in zip(w, weights, strict=True):
            assert_array_equal(one, other)


def test_a_restored_driver_goes_on_alike(always):
    problem = KINDS["chains"](0)

    def begun():
        return Driver(problem.engine("log"), n_jobs=2, accelerate=True)

    states, whole = [], begun()
    whole.on_pass = lambda driver: states.append(driver.state())
    whole.run(0.0, 14, sweep_first=True)
    for state in (states[0], states[6], states[12]):
        other = begun()
        other.restore(state)
        other.run(0.0, 14)
        assert equal(other.state(), whole.state())


def test_interrupts_leave_weights_of_the_dual_point():
    rng = np.random.default_rng(0)
    X = sparse.random(20_000, 2_000, 0.01, format="csr", random_state=0)
    engine = BlockCoordinateEngine(*labelled(X, rng.integers(3, size=20_000)), 1e-5, 0)
    windows = Windows(engine, 2, 0.0)
    interrupted = 0
    for wait in rng.uniform(0.0, 0.1, 6):
        timer = threading.Timer(wait, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        try:
            while timer.is_alive():
                windows.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
            timer.join()
        except KeyboardInterrupt:
            interrupted += 1
        timer.join()
        w = engine.features.state()["weights"]
        engine.rebuild_weights(engine.mu)
        assert np.abs(w - engine.features.state()["weights"]).max() <= 1e-9 * np.abs(w).max()
    assert interrupted >= 4


def test_a_fit_without_blocks_of_work_is_as_it_was():
    problem = KINDS["chains"](0)
    assert Driver(problem.engine("log"), n_jobs=2).windows is None
    surrogate, features, p = labelled(
        sparse.csr_matrix(np.ones((300, 20_000))), np.arange(300) % 3)
    found = [
        solve(surrogate, features, p, 1.0, n_jobs=n_jobs, max_iter=3).certificate.gap
        for n_jobs in (1, 2) if features.clear() is None]
    assert found[0] == found[1]
