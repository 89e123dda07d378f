"""Fits in rounds: the certificate of each, the optimum for any number of workers, and losses."""

import functools
import warnings

import numpy as np
import pytest
from automaton_cases import KINDS
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from rounds_cases import factories, make_worker, part_of, parts_of
from scipy import sparse
from test_engine_contract import is_allowed

import fastm4n.distributed._worker as worker_module
from fastm4n.base.array_files import ModelFileError
from fastm4n.distributed._mixing import Mixing
from fastm4n.distributed._rounds import solve_rounds
from fastm4n.distributed._rounds_file import RoundsFile
from fastm4n.distributed._shares import Omega, best_share, searched_share
from fastm4n.distributed._worker import Vectors, Worker
from fastm4n.distributed.fleets import InProcessFleet, NoMember
from fastm4n.features._base import Penalty
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs
from fastm4n.solvers.certificates import certify
from fastm4n.solvers.monitor import Pace
from fastm4n.surrogates import make_surrogate

TESTED = ("labels", "costs", "chains", "edges", "forests", "pairs", "rankings")
ROUGH = {"max_margin": 2e-3, "max_min": 2e-3, "log": 1e-4}


@functools.cache
def optimum(kind, name, penalty="l2"):
    return KINDS[kind](penalty=penalty).optimum(name)


def solved(kind, name, K, penalty="l2", order=None, on_call=None, **options):
    with InProcessFleet(
            factories(kind, name, K, penalty=penalty), order=order, on_call=on_call) as fleet:
        return solve_rounds(fleet, KINDS[kind](penalty=penalty).alpha, **options)


def primal(problem, name, vectors, flat):
    """P at prox(z), by the reference."""
    features = problem.features()
    features.restore(vectors.views(flat))
    return problem.blocks(name).examine(problem.w(features))[2]


class Watched:
    """Checks after each round that the gap bounds what is left, and the dual the optimum."""

    def __init__(self, kind, name, penalty="l2"):
        self.problem, self.name = KINDS[kind](penalty=penalty), name
        self.optimum = optimum(kind, name, penalty)
        self.gaps, self.lost = [], []

    def __call__(self, rounds):
        if rounds.best is None:
            return
        value = primal(self.problem, self.name, rounds.vectors, rounds.best)
        assert rounds.gap >= value - self.optimum.upper - 1e-10
        assert rounds.dual <= self.optimum.upper + 1e-10
        assert rounds.primal >= value - 1e-9 * (1 + abs(value))
        self.gaps.append(rounds.gap)
        self.lost.append(rounds.n_lost)


CASES = [
    (kind, name, penalty) for kind in TESTED for name in ("max_margin", "max_min", "log")
    for penalty in ("l2", "bounds", "elastic net", "groups")
    if is_allowed(kind, name, "line_search", penalty) and (
        penalty == "l2" or kind in ("labels", "edges"))]


@pytest.mark.parametrize("kind, name, penalty, K", covering(
    (*case, K) for case in CASES for K in (1, 2, 3)))
def test_certificates_of_each_round_and_the_same_optimum(kind, name, penalty, K):
    watched = Watched(kind, name, penalty)
    solution = solved(kind, name, K, penalty, tol=ROUGH[name], max_rounds=400, checkpoint=watched)
    assert solution.converged and solution.certificate.gap <= ROUGH[name]
    assert len(watched.gaps) == solution.n_rounds > 0
    assert np.all(np.diff(watched.gaps) <= 1e-12)  # of the best so far


EIGHT = {"labels": {"n": 8}, "chains": {"lengths": (3, 1, 2, 3, 2, 1, 2, 3)}}


@pytest.mark.parametrize("kind", EIGHT)
@pytest.mark.parametrize("name", ROUGH)
def test_as_many_workers_as_blocks(kind, name):
    """Each has one block, so that all of a visit is coupling."""
    problem = KINDS[kind](**EIGHT[kind])
    best = problem.optimum(name)
    with InProcessFleet(factories(kind, name, 8, **EIGHT[kind])) as fleet:
        solution = solve_rounds(fleet, problem.alpha, tol=ROUGH[name], max_rounds=500)
    assert solution.converged
    assert solution.history["member_seconds"].shape == (solution.n_rounds, 8)
    assert solution.certificate.dual <= best.upper + 1e-10
    assert best.lower - 1e-9 <= solution.certificate.primal <= best.upper + ROUGH[name]


@pytest.mark.parametrize("kind, name", [("chains", "log"), ("labels", "log"), ("pairs", "max_min")])
def test_bits_do_not_depend_on_the_order_of_answers(kind, name):
    one = solved(kind, name, 3, max_rounds=6, tol=0)
    for order in (0, 1):
        other = solved(kind, name, 3, max_rounds=6, tol=0, order=order)
        for key, array in one.z.items():
            assert_array_equal(array, other.z[key])
        for key in ("primal", "dual", "gap", "bytes", "visits", "step"):
            assert_array_equal(one.history[key], other.history[key])
    other = solved(kind, name, 3, max_rounds=6, tol=0, seed=1)
    assert one.certificate.primal != other.certificate.primal


class Loses:
    """Loses a member at the n-th call of a method of it."""

    def __init__(self, method, number, member=1):
        self.method, self.number, self.member, self.count = method, number, member, 0

    def __call__(self, fleet, method, member):
        if (method, member) == (self.method, self.member):
            self.count += 1
            if self.count == self.number:
                fleet.lose(member)


STAGES = [
    ("describe", 1), ("start", 1), ("local", 1), ("local", 4), ("certify", 1), ("certify", 4)]


@pytest.mark.parametrize("kind, name, method, number", [
    *[(*problem, *stage) for stage in STAGES
      for problem in (("chains", "log"), ("labels", "log"), ("edges", "max_margin"))],
    ("labels", "log", "slope", 5)])
def test_a_lost_member_costs_its_progress_alone(kind, name, method, number):
    watched = Watched(kind, name)
    loses = Loses(method, number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        solution = solved(
            kind, name, 3, tol=ROUGH[name], max_rounds=400, on_call=loses, checkpoint=watched)
    assert solution.converged
    assert loses.count > number  # it was replaced, and went on
    if method not in ("describe", "start"):
        assert watched.lost[-1] == solution.history["lost"][-1] == 1


def test_losses_while_others_are_replaced():
    calls = []

    def on_call(fleet, method, member):
        calls.append((method, member))
        if calls.count(("local", 0)) == 3 and (method, member) == ("local", 0):
            fleet.lose(0)
        if (method, member) == ("part", 2) and calls.count(("part", 2)) < 3:
            fleet.lose(2)

    watched = Watched("chains", "log")
    with pytest.warns(RuntimeWarning, match="worker [02] was lost"):
        solution = solved(
            "chains", "log", 3, tol=1e-5, max_rounds=400, on_call=on_call, checkpoint=watched)
    assert solution.converged and watched.lost[-1] >= 3


def test_members_that_are_lost_for_ever():
    def on_call(fleet, method, member):
        if method == "local" and member == 1:
            fleet.lose(1)
        if method == "part":
            fleet.lose(1)

    with pytest.raises(NoMember, match="lost 5 times"), pytest.warns(RuntimeWarning):
        solved("chains", "log", 2, on_call=on_call)

    def each_round(fleet, method, member):
        if method == "local" and member == 1:
            fleet.lose(1)

    with pytest.raises(NoMember, match="lost 5 times in the same round"), \
            pytest.warns(RuntimeWarning):
        solved("chains", "log", 2, on_call=each_round)

    def always(fleet, method, member):
        fleet.lose(0)

    with pytest.raises(NoMember, match="before the first round"):
        solved("chains", "log", 2, on_call=always)


def test_a_part_without_blocks_changes_nothing_but_what_is_shared():
    makers = factories("labels", "log", 1)
    makers.append(functools.partial(make_worker, "labels", "log", np.array([], dtype=int)))
    with InProcessFleet(makers) as fleet:
        solution = solve_rounds(fleet, KINDS["labels"]().alpha, tol=1e-5, max_rounds=400)
    found = optimum("labels", "log")
    assert solution.converged
    assert found.lower - 1e-9 <= solution.certificate.primal <= found.upper + 1e-5


def test_parts_of_other_data_after_a_loss():
    made = []

    def changing():
        made.append(0)
        return make_worker("labels", "log", [0, 1] if len(made) == 1 else [0, 1, 2])

    def on_call(fleet, method, member):
        if method == "local" and len(made) == 1:
            fleet.lose(0)

    with InProcessFleet([changing], on_call=on_call) as fleet, pytest.warns(RuntimeWarning), \
            pytest.raises(ValueError, match="partition 0 differs from the one before"):
        solve_rounds(fleet, 0.1)


def test_an_interrupt_gives_the_last_certified_round():
    for at in (1, 3):
        rows = []

        def on_call(fleet, method, member, at=at, rows=rows):
            if method == "local" and member == 1 and len(rows) == at and not fleet.is_stopping:
                raise KeyboardInterrupt

        with InProcessFleet(factories("chains", "log", 3), on_call=on_call) as fleet:
            solution = solve_rounds(fleet, 0.1, tol=0, max_rounds=9, callback=rows.append)
            assert solution.interrupted and not solution.converged
            assert solution.certificate.gap == rows[-1]["gap"] and solution.n_rounds == at
            assert not fleet.is_stopping
            problem = KINDS["chains"]()
            vectors = Vectors({name: array.shape for name, array in solution.z.items()})
            value = primal(problem, "log", vectors, vectors.pack(solution.z))
            assert solution.certificate.gap >= value - optimum("chains", "log").upper
            fleet.on_call = None
            again = solve_rounds(fleet, 0.1, tol=1e-5, max_rounds=400)
            assert again.converged

    def at_once(fleet, method, member):
        if method == "local" and not fleet.is_stopping:
            raise KeyboardInterrupt

    with InProcessFleet(factories("chains", "log", 2), on_call=at_once) as fleet:
        with pytest.raises(KeyboardInterrupt):
            solve_rounds(fleet, 0.1)
        assert not fleet.is_stopping


@pytest.mark.parametrize("kind, name, penalty", [
    ("chains", "log", "l2"), ("labels", "log", "elastic net"), ("pairs", "max_min", "l2"),
    ("edges", "max_margin", "l2")])
def test_states_go_on_to_the_same_bits(kind, name, penalty):
    states = []

    def keep(rounds):
        if rounds.n_rounds == 3 and not states:
            states.append(rounds.state())

    options = dict(tol=0.0, max_rounds=7)
    plain = solved(kind, name, 3, penalty, **options)
    whole = solved(kind, name, 3, penalty, checkpoint=keep, **options)

    def resume(rounds):
        if rounds.n_rounds == 0:
            rounds.restore({key: array.copy() for key, array in states[0].items()})

    resumed = solved(kind, name, 3, penalty, checkpoint=resume, **options)
    for other in (whole, resumed):
        for key, array in plain.z.items():
            assert_array_equal(array, other.z[key])
        assert_array_equal(plain.history["gap"], other.history["gap"])
    assert resumed.n_rounds == 7

    def wrong(rounds):
        rounds.restore(states[0])

    with pytest.raises((ValueError, KeyError)):
        solved(kind, name, 2, penalty, checkpoint=wrong)
    with InProcessFleet(factories(kind, name, 3, penalty=penalty)) as fleet, \
            pytest.raises(ValueError, match="the state is of alpha="):
        solve_rounds(fleet, 77.0, checkpoint=wrong)


def test_a_killed_fit_goes_on_from_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(Pace, "is_due", lambda pace: True)
    file = tmp_path / "rounds.fm4n"
    options = dict(tol=0.0, max_rounds=6)

    def killed(row):
        if row["round"] == 4:
            raise SystemExit

    plain = solved("chains", "log", 2, **options)
    with pytest.raises(SystemExit):
        solved("chains", "log", 2, checkpoint=RoundsFile(file), callback=killed, **options)
    with pytest.raises(ValueError, match="another fit: alpha is not what it was begun with"):
        with InProcessFleet(factories("chains", "log", 2)) as fleet:
            solve_rounds(fleet, 0.2, checkpoint=RoundsFile(file))
    with pytest.raises(ValueError, match="n_members, masses, blocks are not"):
        solved("chains", "log", 3, checkpoint=RoundsFile(file))
    rows = []
    resumed = solved(
        "chains", "log", 2, checkpoint=RoundsFile(file), callback=rows.append, **options)
    assert [row["round"] for row in rows] == [5, 6]
    for key, array in plain.z.items():
        assert_array_equal(array, resumed.z[key])
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ModelFileError):
        solved("chains", "log", 2, checkpoint=RoundsFile(file), **options)
    with pytest.raises(ValueError, match="is a folder"):
        RoundsFile(tmp_path)


def test_parts_that_do_not_fit_together():
    def worker(d, k, about=None):
        problem = KINDS["labels"](d=d, k=k)
        part = part_of(problem, [0, 1, 2])
        return Worker(part.surrogate("log"), part.features(), part.p, about)

    for first, second, what in (
            ((3, 3), (4, 3), "shapes"), ((3, 3), (3, 4), "costs"),
            ((3, 3, {"classes": ["a", "b", "c"]}), (3, 3, {"classes": ["a", "b", "d"]}), "classes"),
            ((3, 3), (3, 3, {"names": 1}), "names")):
        makers = [lambda of=of: worker(*of) for of in (first, second)]
        with InProcessFleet(makers) as fleet, pytest.raises(
                ValueError, match=f"partitions 0 and 1 do not fit together.*{what}"):
            solve_rounds(fleet, 0.1)


def test_bad_arguments():
    kernel = KINDS["labels, kernel"]()
    with pytest.raises(ValueError, match="rounds need linear features, so kernel='linear'"):
        Worker(kernel.surrogate("log"), kernel.features(), kernel.p)
    labels = KINDS["labels"]()
    with pytest.raises(ValueError, match="6 positive numbers"):
        Worker(labels.surrogate("log"), labels.features(), labels.p[:-1])
    with InProcessFleet(factories("labels", "log", 2)) as fleet:
        for wrong in ({"tol": -1}, {"max_rounds": 0}, {"local_passes": 0}, {"seconds": 0},
                      {"sigma": 0.5}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                solve_rounds(fleet, 0.1, **wrong)
        with pytest.raises(ValueError, match="alpha"):
            solve_rounds(fleet, 0.0)
    with pytest.raises(ValueError, match="the fleet is closed"):
        solve_rounds(fleet, 0.1)


def test_a_budget_of_time_and_callbacks():
    rows = []
    solution = solved(
        "chains", "log", 2, local_passes=1e6, seconds=0.01, max_rounds=3, tol=0,
        callback=lambda row: rows.append(row) or len(rows) == 2)
    assert solution.n_rounds == len(rows) == 2
    n = KINDS["chains"]().n
    assert 0 < rows[0]["visits"] < 1e6 * n  # it is far from what was asked for
    assert rows[1]["bytes"] > rows[0]["bytes"] > 0


@pytest.mark.parametrize("kind, name", [("chains", "log"), ("labels", "max_margin")])
def test_pieces_of_a_local_pass_make_the_same_bits(kind, name, monkeypatch):
    states = []
    for seconds in (0.0, 1e-5, 100.0):
        monkeypatch.setattr(worker_module, "PIECE_SECONDS", seconds)
        worker = make_worker(kind, name, [0, 1, 2, 3])
        worker.start(0.1, 1.0, (0, 0, 0))
        answer = worker.local(np.zeros(worker.vectors.size), 2.0, 0.3, 2.6)
        assert answer["visits"] == 10
        states.append((worker.features.state()["weights"], np.array(worker.engine.mu)))
    for other in states[1:]:
        for one, two in zip(states[0], other, strict=True):
            assert_array_equal(one, two)


def test_a_local_pass_ends_where_the_driver_asks_for_it():
    worker = make_worker("chains", "log", [0, 1, 2, 3])
    worker.start(0.1, 1.0, (0, 0, 0))
    worker.stopping = lambda: True
    z = np.zeros(worker.vectors.size)
    assert worker.local(z, 1.0, 0.0, 1e9)["visits"] <= 4
    worker.rollback()
    assert not worker.vectors.pack(worker.vectors.views(np.array(z))).any()
    assert_array_equal(worker.engine.concave, np.zeros(4))


@pytest.mark.parametrize("kind, name", [("labels", "log"), ("chains", "max_margin")])
def test_a_worker_by_itself_is_the_engine(kind, name):
    """One worker's numbers are those of the certificate, and z_k is w(mu) of its part."""
    problem = KINDS[kind]()
    worker = make_worker(kind, name, range(problem.n))
    worker.start(problem.alpha, 1.0, (0, 0, 0))
    z = np.zeros(worker.vectors.size)
    answer = worker.local(z, 1.0, 0.0, 2)
    Vectors(worker.vectors.shapes).add(z, answer["change"])
    loss, height, _ = worker.certify(z, 1.0)
    engine = problem.engine(name)
    engine.set_mu(worker.engine.mu, worker.engine.concave)
    expected = certify(engine, engine.mu)
    square = 0.5 * problem.alpha * np.sum(z**2)
    assert_allclose(
        [loss + square, height - square], [expected.primal, expected.dual], atol=1e-10)
    back = np.zeros_like(z)
    worker.vectors.add(back, worker.part())
    assert_allclose(back, z, atol=1e-12)


@pytest.mark.parametrize("sigma, kappa", [(1.0, 0.0), (3.0, 0.0), (2.5, 0.7)])
def test_local_changes_and_shares(sigma, kappa):
    """z_k follows the dual point, whatever the curvature; a share of the way is that share."""
    worker = make_worker("labels", "max_margin", range(6))
    worker.start(0.1, 1.0, (0, 0, 0))
    z = np.random.default_rng(0).normal(size=worker.vectors.size)
    z = worker.vectors.pack({
        name: np.pad(np.ones((3, 3)), [(0, array.shape[0] - 3), (0, array.shape[1] - 3)])
        for name, array in worker.vectors.views(z).items()})
    change = np.zeros_like(z)
    worker.vectors.add(change, worker.local(z, sigma, kappa, 2)["change"])
    middle = worker.slope(0.25)
    worker.commit(0.25)
    found = np.zeros_like(z)
    worker.vectors.add(found, worker.part())
    assert_allclose(found, 0.25 * change, atol=1e-12)
    assert_allclose(np.sum(np.asarray(worker.engine.weights) * worker.engine.concave), middle)


def test_vectors_are_sparse_where_most_rows_are_zero():
    vectors = Vectors({"a": (50, 4), "b": (3, 8)})
    assert vectors.size == 224
    dense = np.arange(224.0)
    state = vectors.views(dense)
    assert state["b"].shape == (3, 8)
    assert_array_equal(vectors.pack(state), dense)
    assert vectors.sparse(dense) is dense
    few = np.zeros(224)
    few[[5, 210]] = 1.0, 2.0
    rows, values = vectors.sparse(few)
    assert rows.tolist() == [1, 52] and values.shape == (2, 4)
    to = np.ones(224)
    vectors.add(to, (rows, values), 2.0)
    assert_array_equal(to, 1 + 2 * few)


@pytest.mark.parametrize("penalty", ["l2", "elastic net", "bounds", "groups"])
def test_the_best_share(penalty):
    """Against a fine grid; the direction and the rise are such that it lies inside."""
    rng = np.random.default_rng(1)
    z, direction = rng.normal(size=12), rng.normal(size=12)
    penalties = {}
    if penalty != "l2":
        penalties["w"] = KINDS["labels"](penalty=penalty).penalty_of((4, 3), 4)
    omega = Omega(Vectors({"w": (4, 3)}), penalties)
    assert all(isinstance(one, Penalty) for one in penalties.values())
    grid = np.linspace(0, 1, 401)
    for rise in (-5.0, 0.3 + omega.slope(z + 0.4 * direction, direction), 1e3):
        values = [rise * s - omega.conjugate(z + s * direction) for s in grid]
        best = best_share(rise, omega, z, direction, 1.0)
        found = rise * best - omega.conjugate(z + best * direction)
        assert max(values) - found <= 1e-4 * (1 + abs(max(values)))
        searched = searched_share(lambda s, rise=rise: rise * s, omega, z, direction, 1.0, 0.0)
        found = rise * searched - omega.conjugate(z + searched * direction)
        assert max(values) - found <= 1e-3 * (1 + abs(max(values)))
    assert best_share(1.0, omega, z, 0 * direction, 1.0) == 1.0
    assert omega.divergence(z, z) <= 1e-12 <= omega.divergence(z + 1.0, z) + omega.value(z)
    assert sum(len(part) for part in parts_of(7, 3)) == 7


def test_workers_are_sent_the_rows_that_they_touch():
    """With the bits that whole vectors give, of positions, of edges and of single rows."""
    rng = np.random.default_rng(0)
    y, lengths = rng.integers(0, 3, 60), np.full(20, 3)
    X = sparse.random(60, 200, 0.03, "csr", random_state=0)
    assert X.indices.dtype == np.int32

    def make(blocks, is_told):
        kept = np.concatenate([np.arange(3 * b, 3 * b + 3) for b in blocks])
        outputs = ChainOutputs(y[kept], lengths[blocks], 1.0 - np.eye(3))
        features = ChainFeatures(X, 3 * np.asarray(blocks), outputs.layout, 1.0, True, True)
        worker = Worker(make_surrogate("log", outputs), features, np.ones(len(blocks)))
        touched = features.touched()["weights"]
        assert set(X[kept].indices) <= set(touched)
        assert touched.size == np.unique(X[kept].indices).size + 6  # and those of no feature
        assert_array_equal(worker.rows, touched)
        if not is_told:
            worker.rows = None
        return worker

    found = []
    for told in ([False, False], [True, True], [True, False]):
        makers = [
            functools.partial(make, list(blocks), is_told)
            for blocks, is_told in zip((range(8), range(8, 20)), told, strict=True)]
        with InProcessFleet(makers) as fleet:
            found.append(solve_rounds(fleet, 0.01, tol=0.0, max_rounds=6))
    for other in found[1:]:
        assert_array_equal(found[0].z["weights"], other.z["weights"])
        assert_array_equal(found[0].history["gap"], other.history["gap"])
        assert other.history["bytes"][-1] < found[0].history["bytes"][-1]


def test_rows_of_vectors():
    vectors = Vectors({"a": (50, 4), "b": (30, 8)})
    assert vectors.width == 4
    assert vectors.rows_of({}) is None
    assert vectors.rows_of({"a": np.arange(50), "b": np.arange(29)}) is None
    assert vectors.rows_of({"a": np.array([3]), "b": np.array([0, 2])}).tolist() == [
        3, 50, 51, 54, 55]
    assert vectors.rows_of({"a": np.array([3])}).size == 61


def test_mixing_of_an_affine_map():
    """It has the fixed point after as many steps as the map has eigenvalues, and one more."""
    factors = np.repeat([0.9, 0.5, -0.3], 4)
    fixed = np.arange(12.0)
    for scale in (1.0, 1e-60, 1e60):
        mixing, y = Mixing(12, True), np.zeros(12)
        for _ in range(6):
            y = mixing.next(y, scale * fixed + factors * (y - scale * fixed), 0.0)
        assert_allclose(y, scale * fixed, atol=1e-3 * scale)
        again = Mixing(12, True)
        again.restore(again.checked(mixing.state()))
        x = scale * fixed + factors * (y - scale * fixed)
        assert_array_equal(mixing.next(y, x, 0.0), again.next(y, x, 0.0))
    # infinite differences and standing still are no steps
    mixing = Mixing(2, True)
    for point in (np.ones(2), np.full(2, 1.0), np.full(2, 1e300), np.full(2, 1e300)):
        assert np.isfinite(mixing.next(np.zeros(2), point, 0.0)).all()
    plain = Mixing(2, False)
    plain.next(np.zeros(2), np.ones(2), 0.5)
    assert plain.next(np.zeros(2), np.full(2, 3.0), 0.5).tolist() == [4.0, 4.0]
