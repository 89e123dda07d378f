"""Structures and features of sequences, through the engine, against the reference."""

import itertools

import numpy as np
import pytest
from covering import covering
from engine_cases import (
    FORMATS,
    SAMPLINGS,
    SURROGATES,
    Chains,
    assert_certified,
    assert_parts,
    run,
)
from numpy.testing import assert_allclose

import fastm4n.reference as ref
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, Layout, SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Step
from fastm4n.solvers.certificates import certify, certify_average
from fastm4n.surrogates import MaxMarginLoss

PARTS = ref.ChainWeights._fields
# what is fitted beside the emissions
FITS = [
    PARTS,
    ("emissions", "transitions"),
    ("emissions", "intercept"),
    ("emissions", "start", "end"),
]


def chains(seed, lengths=(3, 1, 5, 2, 4, 1, 6), R=3, noise=0.7, **options):
    return Chains(seed, lengths, R=R, noise=noise, **options)


def reference(problem, name, sampling="permutation", n_passes=3, random_state=0):
    """States, weights and history."""
    return ref.block_coordinate_frank_wolfe(
        problem.blocks(name), sampling=sampling, n_passes=n_passes, random_state=random_state,
        gap_every=100)[:3]


def assert_states(found, expected, atol=1e-9):
    for one, other in zip(found, expected, strict=True):
        assert_parts(one, other, atol)


# features


@pytest.mark.parametrize(("kind", "R", "fit"), covering(itertools.product(
    FORMATS, (1, 2, 3, 4, 5, 8, 9, 17, 26, 33, 70), range(len(FITS)))))
def test_scores_and_updates(kind, R, fit):
    problem = chains(
        fit, lengths=(2, 1, 70, 5, 1, 64, 65), d=(1, 6)[(R + fit) % 2], R=R, fit=FITS[fit])
    engine = problem.engine("max_margin", form=kind)
    assert engine.features.stride == engine.surrogate.outputs.layout.stride >= R
    for points in ([problem.truth(i) for i in range(problem.n)], problem.random_states(fit)):
        engine.set_mu(problem.pack(points))
        assert_states(problem.unpack(engine.mu), points)
        found = certify(engine, engine.mu)
        assert_certified(found, problem.blocks("max_margin").certificate(points), 1e-10)
    expected = ref.ChainWeights(*problem.blocks("max_margin").primal_weights(
        [(*point, 0.0) for point in points]))
    assert_parts(problem.w(engine.features), expected, 1e-11)
    norm = sum(np.sum(part**2) for part in expected)
    assert_allclose(engine.features.weight_norm(), norm, rtol=1e-12, atol=1e-14)
    assert_allclose(engine.features.constant_scores(), expected.intercept, atol=1e-11)


def test_the_value_of_the_constant():
    problem = chains(0, fit=("emissions", "start", "end", "transitions"))
    with_column = chains(0, fit=problem.fit)
    with_column.d += 1
    with_column.X = [np.column_stack([x, np.full(len(x), 3.0)]) for x in problem.X]
    starts = np.cumsum(problem.lengths) - problem.lengths
    features = ChainFeatures(
        np.concatenate(problem.X), starts, problem.outputs().layout, 3.0, True, True)
    engine = BlockCoordinateEngine(
        problem.surrogate("max_margin"), features, problem.p, problem.alpha, 0)
    run(engine, "permutation", Step.LINE_SEARCH, 3)
    other = with_column.engine("max_margin")
    run(other, "permutation", Step.LINE_SEARCH, 3)
    assert_allclose(engine.mu, other.mu, atol=1e-12)
    assert_allclose(
        features.constant_scores(), 3.0 * with_column.w(other.features)[0][:, -1],
        atol=1e-12)


@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 130])
def test_norms_of_directions(T):
    """The first steps of one sequence, whose length is the norm's only use.

    Norms come from the Gram matrix of the positions up to 64 of them, from sums over the
    positions beyond.
    """
    steps = []
    for seed, (kind, fit, R) in enumerate(covering(
            itertools.product(FORMATS, FITS, (2, 5, 70)))):
        d = (1, 5)[seed % 2]
        problem = chains(seed, lengths=(T,), d=d, R=R, fit=fit, alpha=0.1 * T)
        engine = problem.engine("max_margin", form=kind)
        for n_passes in (1, 2):
            run(engine, "permutation", Step.LINE_SEARCH)
            states, w, _ = reference(problem, "max_margin", n_passes=n_passes)
            assert_states(problem.unpack(engine.mu), states, 1e-11)
            assert_parts(problem.w(engine.features), w, 1e-11)
            steps.append(1.0 - np.min(states[0][0][np.arange(T), problem.y[0]]))
    # most are neither nothing nor whole, and depend on the norm
    assert np.mean((1e-4 < np.array(steps)) & (np.array(steps) < 1.0)) > 0.7


def test_long_and_short_blocks_that_share_rows():
    """Blocks may name any rows, in any order, and overlap."""
    problem = chains(0, lengths=(80, 3))
    values = np.concatenate(problem.X)
    for kind in FORMATS:
        starts, lengths = np.array([5, 0, 81, 13]), np.array([66, 64, 2, 70])
        y = np.random.default_rng(0).integers(3, size=lengths.sum())
        p = np.full(4, 0.25)
        cost = problem.cost
        engine = BlockCoordinateEngine(
            MaxMarginLoss(ChainOutputs(y, lengths, cost, cost_scale="mean")),
            ChainFeatures(
                FORMATS[kind](values), starts, Layout.of_chains(lengths, 3), 1.0, True, True),
            p, 20.0, 3)
        run(engine, "permutation", Step.LINE_SEARCH, 3)
        blocks = ref.ChainBlocks(
            [values[a : a + n] for a, n in zip(starts, lengths)],
            np.split(y, np.cumsum(lengths)[:-1]), 3, "max_margin", 20.0, cost=cost)
        expected = ref.block_coordinate_frank_wolfe(
            blocks, sampling="permutation", n_passes=3, random_state=3)
        cuts = np.cumsum(lengths + 3)[:-1]
        for part, state in zip(
                np.split(engine.mu.reshape(-1, engine.surrogate.outputs.layout.stride), cuts), expected.states):
            assert_allclose(part[:, :3], np.concatenate(state), atol=1e-10)


@pytest.mark.parametrize(("starts", "lengths"), [
    ([0, 3], [2, 3]), ([-1, 3], [2, 2]), ([0, 3], [2, 0])])
def test_blocks_outside_the_features(starts, lengths):
    with pytest.raises(IndexError, match="blocks must (have positions|lie in 0 ... 4)"):
        ChainFeatures(
            np.ones((5, 2)), np.array(starts), Layout.of_chains(lengths, 3), 1.0, True, True)


def test_weights_that_do_not_fit():
    features = ChainFeatures(
        np.ones((5, 2)), np.array([0]), Layout.of_chains([5], 3), 1.0, True, True)
    weights = np.array(features.all_weights())
    for wrong in (weights[1:], np.zeros((len(weights), 2 * weights.shape[1]))):
        with pytest.raises(ValueError, match="weights do not fit"):
            features.use(wrong)


# max-margin, step by step


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("fit", FITS)
def test_max_margin_step_by_step(sampling, kind, fit):
    problem = chains(1, fit=fit)
    engine = problem.engine("max_margin", 7, form=kind)
    run(engine, sampling, Step.LINE_SEARCH, 5)
    states, w, _ = reference(problem, "max_margin", sampling, 5, 7)
    assert_states(problem.unpack(engine.mu), states)
    assert_parts(problem.w(engine.features), w)
    assert engine.n_visits == engine.oracle_calls == 5 * len(problem.y)
    assert_certified(
        certify(engine, engine.mu), problem.blocks("max_margin").certificate(states), 1e-8)


@pytest.mark.parametrize(("lengths", "R", "d"), [
    ((1, 1, 1, 1), 2, 2), ((1, 7), 2, 1), ((2, 2, 2), 9, 4), ((70, 3, 66), 5, 3),
    ((4,) * 30, 17, 5)])
def test_max_margin_of_other_shapes(lengths, R, d):
    for kind in FORMATS:
        problem = chains(2, lengths=lengths, R=R, d=d, alpha=1.0)
        engine = problem.engine("max_margin", 1, form=kind)
        run(engine, "permutation", Step.LINE_SEARCH, 3)
        states = reference(problem, "max_margin", random_state=1)[0]
        assert_states(problem.unpack(engine.mu), states)


@pytest.mark.parametrize("sampling", ["permutation", "uniform"])
@pytest.mark.parametrize("step", [Step.LINE_SEARCH, Step.FIXED])
def test_sequences_of_length_one_are_the_simplex(sampling, step):
    problem = chains(3, lengths=(1,) * 20, R=4, fit=("emissions", "intercept"))
    engine = problem.engine("max_margin", seed=5, averaging=step == Step.FIXED)
    run(engine, sampling, step, 4)
    values, y = np.concatenate(problem.X), np.concatenate(problem.y)
    simplex = BlockCoordinateEngine(
        MaxMarginLoss(SimplexOutputs(y, problem.cost)),
        LinearFeatures(values, np.arange(20), row_norms(values, 1.0), 4, 1.0), problem.p,
        problem.alpha, 5, step == Step.FIXED)
    run(simplex, sampling, step, 4)
    nodes = [nodes[0] for nodes, _ in problem.unpack(engine.mu)]
    assert_allclose(nodes, simplex.mu.reshape(20, 4), atol=1e-12)
    if step == Step.FIXED:
        average, found = certify_average(engine)
        expected, right = certify_average(simplex)
        nodes = [nodes[0] for nodes, _ in problem.unpack(average)]
        assert_allclose(nodes, expected.reshape(20, 4), atol=1e-12)
    else:
        found, right = certify(engine, engine.mu), certify(simplex, simplex.mu)
    assert_certified(found, right)


# all surrogates


@pytest.mark.parametrize(("name", "oracle"), [
    ("max_margin", None), ("max_min", None), ("log", None), ("max_min", (12, True)),
    ("max_min", (0, False))])
@pytest.mark.parametrize("fit", FITS)
def test_parts_that_are_not_fitted_stay_zero(name, oracle, fit):
    problem = chains(6, lengths=(3, 1, 4, 2), R=2, fit=fit, alpha=0.5)
    best = problem.optimum(name)
    solution, w = problem.solve(name, oracle, tol=0.02, max_iter=1000)
    found = solution.certificate
    assert solution.converged and best.lower - 1e-9 <= found.primal <= best.upper + 0.02
    assert found.dual <= best.upper + 1e-9
    assert -1e-8 <= found.primal - problem.blocks(name).examine(w)[2] <= 0.021 * 0.02 + 1e-8
    for of, part in zip(PARTS, w, strict=True):
        assert np.any(part) == (of in fit)


def test_certificates_that_may_err_are_bounds():
    """Of blocks whose mixtures are of many labellings, under a large alpha."""
    problem = chains(
        0, lengths=(7, 9, 5, 8), d=6, R=20, alpha=20.0, cost=lambda R: 1.0 - np.eye(R))
    engine = problem.engine("max_min")
    for _ in range(3):
        engine.run_pass(SAMPLINGS["permutation"], Step.LINE_SEARCH)
    exact = certify(engine, engine.mu)
    error = 1e-3
    engine.certificate_error = error
    for _ in range(2):  # from labellings, and by tempered games at once
        found = certify(engine, engine.mu)
        assert np.all(found.block_losses >= exact.block_losses - 0.02 * exact.block_gaps - 1e-12)
        assert np.all(found.block_losses <= exact.block_losses + error)
    assert np.any(engine.surrogate.kept()["dense"])


def test_mirror_prox_of_ten_iterations_a_position():
    """The default number, visit by visit; `test_engine_contract` has eight."""
    problem = chains(9, lengths=(4,), alpha=0.7)
    engine = problem.engine("max_min", oracle=(0, False))
    passes = ref.BlockPasses(problem.blocks("mirror_prox"))
    passes.blocks.n_iter = 40
    for _ in range(3):
        engine.run_pass(SAMPLINGS["permutation"], Step.LINE_SEARCH)
        passes.run_pass("permutation")
        assert_states(problem.unpack(engine.mu), passes.states, 1e-10)
        assert engine.oracle_error > 0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_log_steps_that_would_fall_are_halved(sampling):
    """Confident scores and small alpha: full steps overshoot."""
    for alpha in (1e-2, 1e-3, 1e-4):
        problem = chains(0, lengths=(6, 5, 4, 1), alpha=alpha)
        problem.X = [5.0 * x for x in problem.X]
        engine = problem.engine("log")
        duals = [0.0]
        for i in range(15):
            run(engine, "permutation" if i == 0 else sampling, Step.LINE_SEARCH)
            duals.append(certify(engine, engine.mu).dual)
        assert np.all(np.diff(duals) >= -1e-12 * max(duals))
        assert duals[1] > 0 and duals[-1] > 1.1 * duals[1]


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_formats_of_the_same_numbers_give_the_same_path(surrogate):
    problem = chains(15, lengths=(3, 70, 5, 1, 2), alpha=0.5)
    points = []
    for kind in FORMATS:
        engine = problem.engine(surrogate, form=kind)
        run(engine, "permutation", Step.LINE_SEARCH, 3)
        points.append(np.array(engine.mu))
    for other in points[1:]:
        assert_allclose(other, points[0], atol=1e-6 if surrogate == "max_min" else 1e-10)
