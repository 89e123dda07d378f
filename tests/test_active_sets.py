"""Steps along atoms and the cache, compiled, held to `fastm4n.reference.passes`."""

import functools
import itertools

import numpy as np
import pytest
from covering import covering
from engine_cases import (
    Chains,
    Labels,
    Permutations,
    absolute,
    assert_same_atoms,
    assert_same_points,
    lifted_dual,
)
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.reference as ref
from fastm4n.solvers.blocks._engine import ActiveSets, Sampling, Step
from fastm4n.solvers.certificates import certify

STEPS = {"line_search": Step.LINE_SEARCH, "pairwise": Step.PAIRWISE, "away": Step.AWAY}
SURROGATES = ("max_margin", "max_min")

labels = functools.partial(Labels, n=12, d=4, k=4)
KINDS = {
    "labels": labels, "levels": functools.partial(labels, cost=absolute),
    "chains": functools.partial(Chains, lengths=(3, 1, 4, 2, 1, 3), R=3, alpha=0.2, noise=1.0),
    "permutations": functools.partial(Permutations, sizes=(3, 1, 2, 4, 3, 2), d=4, noise=1.0),
}
# whose oracle is the reference's to the last digits: projections of permutations' mirror prox are
# not, see `test_visits_with_the_answers_of_column_generation`
COMBINATIONS = [
    *((kind, "max_margin") for kind in KINDS), ("labels", "max_min"), ("levels", "max_min"),
    ("chains", "mirror_prox")]
# no block is visited twice in a row: exact steps leave atoms tied
SEED = 3


def engine_of(problem, name, seed=0, limit=1000, cache=None):
    return problem.engine(name, seed, limit=limit, cache=cache)


def passes_of(problem, name, step, seed=0, limit=1000, cache=None):
    """The reference's."""
    options = dict(zip(("cache_F", "cache_nu"), cache or (), strict=False))
    return ref.AtomPasses(
        problem.blocks(name), step, seed, limit=limit, cache=cache is not None, **options)


def assert_same(problem, engine, passes):
    assert_same_atoms(problem, engine, passes)
    assert_same_points(problem, engine, passes)


def assert_consistent(problem, engine, caches=False):
    """What holds of all sets after all visits."""
    held = problem.held(engine.sets)
    heights = []
    for atoms in held:
        weights = np.array([weight for weight, _, _ in atoms])
        assert np.all(weights >= 0) and (caches or np.all(weights > 0))
        assert_allclose(weights.sum(), 1.0, atol=1e-12)
        heights.append(sum(weight * height for weight, height, _ in atoms))
    running = [np.array(part) for part in problem.w(engine.features)]
    engine.settle()
    mu = [sum(weight * point for weight, _, point in atoms) for atoms in held]
    assert_allclose(engine.mu, np.concatenate(mu), atol=1e-12)
    assert np.all(engine.concave >= np.array(heights) - 1e-9 * (1.0 + np.abs(heights)))
    engine.rebuild_weights(engine.mu)
    for found, part in zip(running, problem.w(engine.features)):
        # w is a difference of points that is divided by alpha
        atol = 1e-9 * (1.0 + np.abs(part).max(initial=0.0)) + 1e-15 / problem.alpha * (
            1.0 + np.abs(np.concatenate([np.ravel(x) for x in problem.X])).max())
        assert_allclose(found, part, atol=atol)


def refresh(engine, passes=None):
    """Certify, and tell engine and reference alike."""
    found = certify(engine, engine.mu)
    engine.set_gaps(found.block_gaps, found.block_losses)
    if passes is not None:
        passes.refresh(found.block_gaps)
    return found


# visits against the reference


@pytest.mark.parametrize(("of", "step", "limited"), covering(itertools.product(
    COMBINATIONS, STEPS, [(1, (0.25, 0.01)), (2, None), (3, (0.25, 0.01))])), ids=str)
def test_limits(of, step, limited):
    """Sets that are full forget what has no weight, and merge: the dual point stays what it was."""
    (kind, surrogate), (limit, cache) = of, limited
    problem = KINDS[kind](seed=2)
    engine = engine_of(problem, surrogate, seed=SEED, limit=limit, cache=cache)
    passes = passes_of(problem, surrogate, step, seed=SEED, limit=limit, cache=cache)
    dual, most = 0.0, 0
    for _ in range(5):
        engine.run_pass(Sampling.PERMUTATION, STEPS[step])
        passes.run_pass("permutation")
        assert_same(problem, engine, passes)
        assert_consistent(problem, engine, cache is not None)
        most = max(most, engine.sets.counts().sum(axis=1).max())
        lifted = lifted_dual(problem, engine)
        assert dual - 1e-12 <= lifted <= refresh(engine, passes).dual + 1e-12
        dual = lifted
    # a point and the oracle's answer, at least
    assert most == max(2, limit)
    assert dual > 0.0


@pytest.mark.parametrize(("step", "cache"), [
    ("line_search", None), ("pairwise", None), ("line_search", (0.25, 0.01)),
    ("pairwise", (0.25, 0.01)), ("away", (0.25, 0.01))])
@pytest.mark.parametrize("kind", ["chains", "permutations"])
def test_visits_with_the_answers_of_column_generation(kind, cache, step):
    """The way of an inexact oracle is its own: the reference is told the engine's answers.

    There is one block, and a pass is one visit; w is moved a little in between, or exact steps
    would leave atoms tied. The oracle may give one mixture twice, with other last digits: then
    it is left to rounding which of the two is the best, or the worst, and the comparison ends.
    """
    problem = KINDS[kind](6, **{"lengths" if kind == "chains" else "sizes": (4,)})
    engine = engine_of(problem, "max_min", cache=cache)
    passes = passes_of(problem, "max_min", step, cache=cache)
    asked, fractional = [], 0
    passes.blocks.oracle = lambda i, v: asked.pop()
    for visit in range(25):
        calls, values = engine.oracle_calls, passes.look(0, passes.scores(0))[0]
        in_use = np.sort(values[[atom.weight > 0 for atom in passes.atoms[0]]])
        if np.any(np.diff(in_use[:2]) < 1e-9) or np.any(np.diff(np.sort(values)[-2:]) < 1e-9):
            break
        engine.run_pass(Sampling.PERMUTATION, STEPS[step])
        if engine.oracle_calls > calls:
            # the atom that was used last is the answer, or better than it
            state = engine.sets.state()
            last = np.argmax(state["used"])
            held = problem.held(engine.sets)[0]
            _, height, point = held[last]
            if sum(np.allclose(point, other, atol=1e-9) for _, _, other in held) > 1:
                break
            parts, v = problem.parts(point, 0), passes.scores(0)
            current = passes.look(0, v)[1]
            asked.append((*parts, height, current + engine.state()["gaps"][0]))
            fractional += 0 < np.sum((point > 1e-9) & (point < 1 - 1e-9))
        passes.run_pass("permutation")
        assert not asked
        assert_same(problem, engine, passes)
        factor = 0.7 + 0.1 * (visit % 7)
        engine.features.scale(factor)
        passes.z = tuple(factor * part for part in passes.z)
        if visit == 4:
            refresh(engine, passes)
    assert fractional > 2 and visit >= 3


@pytest.mark.parametrize(("kind", "surrogate"), COMBINATIONS)
def test_without_atoms_line_search_is_the_plain_one(kind, surrogate):
    """Of max_margin, whose h is linear; otherwise heights lie below h, and steps differ."""
    problem = KINDS[kind](seed=1)
    engine = engine_of(problem, surrogate, seed=SEED)
    plain = problem.engine(surrogate, SEED)
    passes = ref.BlockPasses(problem.blocks(surrogate), SEED)
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        plain.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        passes.run_pass("permutation")
    assert_same_points(problem, plain, passes)
    engine.settle()
    same = np.allclose(engine.mu, plain.mu, atol=1e-9)
    assert same == (surrogate == "max_margin")


# what a fit by atoms promises


@pytest.mark.parametrize("step", STEPS)
def test_convergence(step):
    """Pairwise and away steps converge linearly, plain ones do not."""
    problem = Labels(9, n=10, d=3, k=4, alpha=0.1)
    solution, _ = problem.solve("max_margin", step=step, tol=1e-9, max_iter=400)
    assert solution.converged == (step != "line_search")
    found, best = solution.certificate, problem.optimum("max_margin")
    assert found.gap > 1e-5 if step == "line_search" else abs(found.primal - best.upper) < 1e-6


def test_no_features():
    """Then w = 0, and the answer to it is given again and again: it is one atom."""
    problem = Labels(n=7, k=3, X=np.zeros((7, 2)))
    for surrogate, cache in itertools.product(SURROGATES, (None, (0.25, 0.01))):
        engine = engine_of(problem, surrogate, cache=cache)
        for _ in range(5):
            engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
        assert_array_equal(engine.sets.counts(), [[1, cache is not None]] * 7)
        assert refresh(engine).gap == 0.0


def test_answers_that_are_given_twice_are_one_atom():
    """Two labels: no set has more atoms than there are outputs."""
    problem = Labels(seed=11, n=20, k=2, alpha=0.01)
    engine = engine_of(problem, "max_margin", cache=(0.25, 0.01))
    for _ in range(20):
        engine.run_pass(Sampling.PERMUTATION, Step.AWAY)
    counts = engine.sets.counts().sum(axis=1)
    assert counts.max() == 2 and engine.oracle_calls == 20 * 20


# the sets themselves


def sets_of(problem, surrogate="max_margin", limit=1000, keeps_unused=False):
    structure = problem.surrogate(surrogate)
    return structure, ActiveSets(
        structure.n_blocks, structure.outputs.layout.max_parts, structure.max_size, limit, keeps_unused)


def atoms_of_one_block(weights, heights, length, is_labelling, content):
    """A state of `ActiveSets` for one block."""
    n = len(weights)
    return {
        "counts": np.array([n]), "hits": np.array([0]), "weight": np.array(weights),
        "height": np.array(heights), "used": np.zeros(n, dtype=np.int64),
        "length": np.full(n, length, dtype=np.intc),
        "is_labelling": np.full(n, is_labelling, dtype=np.uint8), "content": content,
    }


@pytest.mark.parametrize("cache", [None, (0.25, 0.01)])
@pytest.mark.parametrize(("kind", "surrogate"), COMBINATIONS)
def test_state_and_restore(kind, surrogate, cache):
    problem = KINDS[kind](seed=12)
    engine = engine_of(problem, surrogate, seed=SEED, cache=cache)
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
    state = engine.sets.state()
    structure, other = sets_of(problem, surrogate, keeps_unused=cache is not None)
    other.restore(structure, state)
    again = other.state()
    assert set(again) == set(state)
    for name, values in state.items():
        assert_array_equal(again[name], values)
    assert_array_equal(other.counts(), engine.sets.counts())
    assert other.n_bytes() >= state["content"].nbytes
    # going on changes neither the copies nor the other sets
    engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
    for name, values in other.state().items():
        assert_array_equal(values, state[name])
    # and back: the sets are those of before
    engine.sets.restore(structure, state)
    for name, values in engine.sets.state().items():
        assert_array_equal(values, state[name])


def test_a_limit_that_has_come_down_prunes_nothing_when_sets_are_restored():
    problem = KINDS["chains"](seed=12)
    engine = engine_of(problem, "max_margin", seed=SEED)
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
    engine.set_cache(1, 0.25, 0.01)
    state, n_atoms = engine.sets.state(), engine.sets.counts().sum(axis=1)
    assert n_atoms.max() > 2
    structure, _ = sets_of(problem, "max_margin", keeps_unused=True)
    engine.sets.restore(structure, state)
    assert engine.sets.limit == 1
    for name, values in engine.sets.state().items():
        assert_array_equal(values, state[name])
    engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
    assert engine.sets.counts().sum() < n_atoms.sum()


def changed(values, place, value):
    values = values.copy()
    values[place] = value
    return values


@pytest.mark.parametrize("name, change, message", [
    ("counts", lambda counts: changed(counts, 0, counts[0] + 1), "as many atoms as they count"),
    ("counts", lambda counts: changed(counts, 0, 0), "as many atoms as they count"),
    ("hits", lambda hits: hits[1:], "as many atoms as they count"),
    ("weight", lambda weight: changed(weight, 0, -0.1), "not those of a convex combination"),
    ("weight", lambda weight: changed(weight, 0, np.nan), "not those of a convex combination"),
    ("weight", lambda weight: 0.0 * weight, "not those of a convex combination"),
    ("height", lambda height: changed(height, 1, np.nan), "height of an atom is not a number"),
    ("length", lambda length: changed(length, 1, length[1] + 2), "atom 1 has 8 bytes, which none"),
    ("length", lambda length: changed(length, 0, -8), "atom 0 has -8 bytes, which none"),
    ("content", lambda content: changed(content, [0, 1], 255), "atom 0 is outside of the scores"),
    ("content", lambda content: content[:-8], r"bytes, which none of its block has"),
    ("content", lambda content: np.append(content, content[:8]), "that belongs to no atom"),
])
def test_states_that_are_none(name, change, message):
    problem = KINDS["chains"](seed=12)
    engine = engine_of(problem, "max_margin", seed=SEED)
    engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
    state = engine.sets.state()
    structure, other = sets_of(problem, "max_margin")
    other.restore(structure, state)
    with pytest.raises(ValueError, match=message):
        other.restore(structure, {**state, name: change(state[name])})
    # what was there before is still there
    for key, values in other.state().items():
        assert_array_equal(values, state[key])


@pytest.mark.parametrize(("kind", "surrogate"), COMBINATIONS)
def test_shrink(kind, surrogate):
    """mu moves to phi(y) + factor (mu - phi(y)), and t to factor t: h(phi(y)) is zero."""
    problem = KINDS[kind](seed=13)
    engine = engine_of(problem, surrogate, seed=SEED)
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.PAIRWISE)
    before = problem.held(engine.sets)
    for factor in (0.6, 1.0, 0.0):
        engine.sets.shrink(engine.surrogate, factor)
        after = problem.held(engine.sets)
        for i, (old, new) in enumerate(zip(before, after)):
            truth = problem.flat(problem.blocks(surrogate).truth(i), i)
            mu, moved = (
                sum(weight * point for weight, _, point in atoms) for atoms in (old, new))
            assert_allclose(moved, truth + factor * (mu - truth), atol=1e-12)
            t, height = (sum(weight * level for weight, level, _ in atoms) for atoms in (old, new))
            assert_allclose(height, factor * t, atol=1e-12)
            assert_allclose(sum(weight for weight, _, _ in new), 1.0, atol=1e-12)
        before = after


@pytest.mark.parametrize("kind", KINDS)
def test_starts(kind):
    """At phi(y) there is one atom; another point is one more, or its labels are."""
    problem = KINDS[kind](seed=14)
    rng = np.random.default_rng(0)
    for surrogate in SURROGATES:
        structure, sets = sets_of(problem, surrogate)
        blocks = problem.blocks(surrogate)
        truth = [problem.flat(blocks.truth(i), i) for i in range(len(problem.y))]
        sets.start(structure, np.concatenate(truth), np.zeros(len(truth)))
        assert_array_equal(sets.counts(), [[1, 0]] * len(truth))
        mu, heights = [], []
        for i, labellings in enumerate(map(problem.listed, range(len(truth)))):
            chosen = rng.permutation(len(labellings))[:3]
            share = rng.dirichlet(np.ones(len(chosen)))
            parts = [problem.indicator(i, labellings[j]) for j in chosen]
            mu.append(sum(s * problem.flat(part, i) for s, part in zip(share, parts)))
            state = tuple(
                sum(s * part[k] for s, part in zip(share, parts)) for k in range(len(parts[0])))
            heights.append(blocks.point(i, state)[-1])
        sets.start(structure, np.concatenate(mu), np.array(heights))
        labelled = structure.has_labellings and kind in ("labels", "levels")
        for i, atoms in enumerate(problem.held(sets)):
            assert_allclose(sum(w * point for w, _, point in atoms), mu[i], atol=1e-14)
            assert sum(w * level for w, level, _ in atoms) <= heights[i] + 1e-12
            alone = np.array_equal(mu[i], truth[i])
            assert len(atoms) == (np.sum(mu[i] > 0) if labelled else 1 if alone else 2)


def test_atoms_of_one_hash_are_compared():
    """A set of all labellings of 6 positions by 4 labels: none is taken for another."""
    problem = Chains(seed=15, lengths=(6,), R=4)
    structure, sets = sets_of(problem, limit=5000)
    labellings = np.array(list(itertools.product(range(4), repeat=6)), dtype=np.uint16)
    n = len(labellings)
    content = np.zeros((n, 16), dtype=np.uint8)
    content[:, :12] = labellings.view(np.uint8).reshape(n, 12)
    state = atoms_of_one_block([1.0 / n] * n, [0.0] * n, 12, True, content.ravel())
    sets.restore(structure, state)
    assert_array_equal(sets.counts(), [[n, 0]])
    assert_array_equal(sets.state()["content"], state["content"])
    nodes = problem.parts(sum(w * p for w, _, p in problem.held(sets)[0]), 0)[0]
    assert_allclose(nodes, 0.25, atol=1e-12)


def test_labels_of_all_values_are_told_apart():
    """Contents that differ in any one byte, beyond whole words as well."""
    for T in (1, 3, 4, 5, 8, 9):
        problem = Chains(seed=16, lengths=(T,), R=300, d=1, fit=("emissions",))
        structure, sets = sets_of(problem, limit=5000)
        labellings = np.zeros((1 + 2 * T, T), dtype=np.uint16)
        for t in range(T):
            labellings[1 + 2 * t, t], labellings[2 + 2 * t, t] = 1, 256
        n, padded = len(labellings), -(-2 * T // 8) * 8
        content = np.zeros((n, padded), dtype=np.uint8)
        content[:, : 2 * T] = labellings.view(np.uint8).reshape(n, 2 * T)
        sets.restore(structure, atoms_of_one_block(
            [1.0 / n] * n, [0.0] * n, 2 * T, True, content.ravel()))
        assert_array_equal(sets.counts(), [[n, 0]])


def test_of_two_heights_of_a_point_the_larger_is_kept():
    problem = Labels(seed=17, n=1, k=3)
    structure, sets = sets_of(problem, "max_min")
    point = np.array([0.5, 0.25, 0.25])
    content = np.zeros(40, dtype=np.uint8)
    content[:24] = point.view(np.uint8)
    content[24:36] = np.arange(3, dtype=np.int32).view(np.uint8)
    for heights in ([0.1, 0.4], [0.4, 0.1]):
        sets.restore(structure, atoms_of_one_block(
            [1.0, 1.0], heights, 36, False, np.tile(content, 2)))
        (weight, height, found), = problem.held(sets)[0]
        assert height == 0.4
        assert_array_equal(found, point)


# the cache


@pytest.mark.parametrize("decides", ["F", "nu"])
@pytest.mark.parametrize("side", [1 - 1e-6, 1 + 1e-6])
def test_the_threshold_of_the_cache(decides, side):
    """The oracle is not called from max(F g_b, nu g / (n p_b)) on.

    Features are orthogonal: what a visit finds does not depend on those of other blocks.
    """
    n = 6
    problem = Labels(seed=6, n=n, k=5, alpha=0.05, X=np.diag(np.linspace(0.6, 1.4, n)))
    finder = passes_of(problem, "max_margin", "line_search")
    for _ in range(4):
        finder.run_pass("permutation")
    gains = []
    for b in range(n):
        values, current, best, _ = finder.look(b, finder.scores(b))
        gains.append(values[best] - current)
    gains = np.array(gains)
    assert gains.min() > 1e-3
    # gaps that no visit finds, by which a call of the oracle is told: they are then replaced
    gaps = np.random.default_rng(0).uniform(5.0, 9.0, n)
    shares_of_mean = problem.p @ gaps / (n * problem.p)
    for b in range(n):
        F, nu = gains[b] / gaps[b], gains[b] / shares_of_mean[b]
        F, nu = (side * F, 1e-3 * nu) if decides == "F" else (1e-3 * F, side * nu)
        engine = engine_of(problem, "max_margin", cache=(F, nu))
        for _ in range(4):
            engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        assert engine.cache_hits == 0
        engine.set_gaps(gaps, gaps)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        hit = engine.state()["gaps"] == gaps
        assert_array_equal(hit, gains >= np.maximum(F * gaps, nu * shares_of_mean))
        assert hit[b] == (side < 1) and engine.cache_hits == hit.sum()


def test_no_gap_no_hit():
    """Before all gaps were looked at once the cache is not used ([1]_, Algorithm 5: g = inf)."""
    problem = Labels(seed=7)
    engine = engine_of(problem, "max_margin", cache=(1e-9, 1e-9))
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert engine.cache_hits == 0
    refresh(engine)
    engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert engine.cache_hits > 0
