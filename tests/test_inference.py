"""The compiled oracles against the reference and against brute force."""

import doctest
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from simplex_cases import absolute, assert_distribution, game_value, random_cost, zero_one

import fastm4n.inference as inference
import fastm4n.reference as ref
from fastm4n.inference import (
    max_min_absolute,
    max_min_game,
    max_min_mirror_prox,
    max_min_zero_one,
    max_oracle,
    project_simplex,
    softmax,
)

SIZES = (1, 2, 3, 4, 5, 7, 8, 33, 60)


def cyclic_cost(k):
    """Costs that only ever point to the next label: a hard game, not symmetric at all."""
    return np.roll(np.eye(k), 1, axis=1) * (k > 1)


def sparse_cost(rng, k):
    cost = rng.integers(0, 2, (k, k)).astype(float)
    np.fill_diagonal(cost, 0.0)
    return cost


def repeated_cost(rng, k):
    """Labels in pairs that are one and the same: a game with many solutions."""
    half = random_cost(rng, (k + 1) // 2)
    return np.repeat(np.repeat(half, 2, axis=0), 2, axis=1)[:k, :k]


COSTS = {
    "zero_one": lambda rng, k: zero_one(k),
    "absolute": lambda rng, k: absolute(k),
    "squared": lambda rng, k: absolute(k) ** 2,
    "random": random_cost,
    "symmetric": lambda rng, k: (lambda c: c + c.T)(random_cost(rng, k)),
    "cyclic": lambda rng, k: cyclic_cost(k),
    "sparse": sparse_cost,
    "repeated": repeated_cost,
    "zero": lambda rng, k: np.zeros((k, k)),
    "large": lambda rng, k: 1e6 * random_cost(rng, k),
    "small": lambda rng, k: 1e-6 * random_cost(rng, k),
    "mixed": lambda rng, k: random_cost(rng, k) * 10.0 ** rng.integers(-6, 7, (k, k)),
}


def random_scores(rng, k, scale=None):
    v = rng.normal(size=k) * (rng.choice([0.1, 1.0, 10.0]) if scale is None else scale)
    return np.round(v, 1) if rng.random() < 0.3 else v  # with ties


# every function as name -> f(scores); games with costs of the size of the scores
FUNCTIONS = {
    "project_simplex": project_simplex,
    "max_oracle": max_oracle,
    "softmax": softmax,
    "max_min_zero_one": max_min_zero_one,
    "max_min_absolute": max_min_absolute,
    "max_min_game": lambda v: max_min_game(v, absolute(np.shape(v)[-1]) ** 2),
    "max_min_mirror_prox": lambda v: max_min_mirror_prox(
        v, absolute(np.shape(v)[-1]) ** 2, n_iter=5),
}
# those of chains, of cuts, of permutations and tangents have tests of their own
CHAINS = (
    "chain_entropy", "max_marginals", "max_min_chain", "span_marginals", "sum_product", "viterbi",
    "viterbi_kbest")
TANGENTS = ("chain_tangent", "graph_tangent", "simplex_tangent")
CUTS = ("grid_edges", "min_cut")
PERMUTATIONS = (
    "best_linear_extension", "best_matching", "linear_assignment", "linear_extension_marginals",
    "matching_marginals", "max_min_permutation", "permanent", "permutation_marginals", "sinkhorn")


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


# the documentation


def test_exports():
    functions = [*FUNCTIONS, *CHAINS, *CUTS, *PERMUTATIONS, *TANGENTS]
    assert sorted([*functions, "Tangent"]) == inference.__all__


@pytest.mark.parametrize("name", [name for name in inference.__all__ if name != "Tangent"])
def test_examples(name):
    function = getattr(inference, name)
    test = doctest.DocTestParser().get_doctest(function.__doc__, {}, name, None, None)
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0


# shapes and kinds of input


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("k", SIZES)
def test_a_batch_is_its_vectors(name, k):
    rng = np.random.default_rng(k)
    scores = np.array([random_scores(rng, k) for _ in range(7)])
    batch = as_tuple(FUNCTIONS[name](scores))
    singles = [as_tuple(FUNCTIONS[name](v)) for v in scores]
    for position, values in enumerate(batch):
        assert len(values) == 7
        # the game of a batch shares its workspace: nothing of one vector is left to the next
        assert_array_equal(values, [single[position] for single in singles])
    for value in singles[0]:
        assert np.ndim(value) == 0 or value.shape == (k,)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_kinds_of_input(name):
    rng = np.random.default_rng(0)
    scores = rng.integers(-4, 5, (6, 5)).astype(float)
    expected = as_tuple(FUNCTIONS[name](scores))
    read_only = scores.copy()
    read_only.flags.writeable = False
    wide = np.zeros((12, 10))
    wide[::2, ::2] = scores
    for given in (
        scores.tolist(),
        tuple(map(tuple, scores)),
        scores.astype(np.float32),
        scores.astype(np.int64),
        scores.astype(np.int8),
        scores.astype(object),
        np.asfortranarray(scores),
        wide[::2, ::2],
        scores[:, ::-1].copy()[:, ::-1],
        scores.astype(">f8"),
        read_only,
    ):
        for value, right in zip(as_tuple(FUNCTIONS[name](given)), expected, strict=True):
            assert_array_equal(value, right)
    assert_array_equal(read_only, scores)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inputs_are_left_alone(name):
    scores = np.random.default_rng(1).normal(size=(4, 6))
    given = scores.copy()
    for value in as_tuple(FUNCTIONS[name](given)):
        assert not np.shares_memory(value, given)
    assert_array_equal(given, scores)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("k", [1, 3])
def test_empty_batch(name, k):
    for value in as_tuple(FUNCTIONS[name](np.zeros((0, k)))):
        assert value.shape in ((0,), (0, k))


def test_one_label():
    for v in (-3.5, 0.0, 1e300):
        assert_array_equal(project_simplex([v]), [1.0])
        assert max_oracle([v]) == (0, v)
        for name, value in [("softmax", v), ("max_min_zero_one", v), ("max_min_absolute", v)]:
            mu, found = FUNCTIONS[name]([v])
            assert_array_equal(mu, [1.0])
            assert found == value
        mu, nu, found = max_min_game([v], [[0.0]])
        assert (mu[0], nu[0], found) == (1.0, 1.0, v)
        mu, nu, lower, upper = max_min_mirror_prox([v], [[0.0]])
        assert (mu[0], nu[0], lower, upper) == (1.0, 1.0, v, v)


# the projection


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("total", [1e-8, 0.3, 1.0, 1e4])
def test_projection(k, total):
    rng = np.random.default_rng(k)
    for _ in range(30):
        v = random_scores(rng, k, scale=rng.choice([0.1, 1.0, 10.0]) * max(1.0, total))
        m = project_simplex(v, total)
        assert np.all(m >= 0)
        # v is known to its own rounding only, however small the total
        unit = 1e-15 * k * np.abs(v).max()
        assert_allclose(m.sum(), total, rtol=1e-12, atol=unit)
        assert_allclose(m, ref.project_simplex(v, total), rtol=1e-9, atol=1e-12 * total + unit)
        # variational inequality against every vertex of the scaled simplex
        assert total * np.max(v - m) <= (v - m) @ m + total * (1e-12 * total + 4 * unit)


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e15, 1e300])
def test_projection_of_large_scores(scale):
    rng = np.random.default_rng(3)
    for k in (2, 5, 33):
        v = scale * rng.normal(size=k)
        assert_array_equal(project_simplex(v), np.arange(k) == np.argmax(v))
    # a common shift that is exact does nothing
    v = np.array([0.5, 0.25, -1.0, 0.5])
    if scale <= 1e15:
        shift = 2.0 ** np.round(np.log2(scale))
        v = v if scale < 1e15 else 4 * np.round(v)
        assert_array_equal(project_simplex(v + shift), project_simplex(v))
    assert_array_equal(project_simplex([scale] * 4), [0.25] * 4)


def test_projection_with_forbidden_labels():
    assert_allclose(project_simplex([-np.inf, 0.2, -np.inf, 0.4]), [0, 0.4, 0, 0.6], atol=1e-15)
    assert_array_equal(project_simplex([-np.inf, -1e300]), [0.0, 1.0])


# argmax and softmax


@pytest.mark.parametrize("k", SIZES)
def test_max_oracle(k):
    rng = np.random.default_rng(k)
    for _ in range(30):
        v, augmentation = random_scores(rng, k), random_cost(rng, k)[rng.integers(k)]
        assert max_oracle(v) == (int(np.argmax(v)), v.max()) == ref.max_oracle(v)
        assert max_oracle(v, augmentation) == ref.max_oracle(v, augmentation)
        label, value = max_oracle(v, augmentation)
        assert value == max(a + b for a, b in zip(v, augmentation))
        assert isinstance(label, (int, np.integer))


def test_max_oracle_of_batches_and_ties():
    scores = np.array([[1.0, 3.0, 3.0], [-np.inf, -1e8, -1e9]])
    labels, values = max_oracle(scores)
    assert labels.dtype == np.intp
    assert_array_equal(labels, [1, 1])
    assert_array_equal(values, [3.0, -1e8])
    # the augmentation is broadcast, both ways
    assert_array_equal(max_oracle(scores, [2.0, 0.0, 0.0])[0], [0, 1])
    assert_array_equal(max_oracle([0.0, 0.0], zero_one(2))[0], [1, 0])


@pytest.mark.parametrize("k", SIZES)
def test_softmax(k):
    rng = np.random.default_rng(k)
    for _ in range(30):
        v = random_scores(rng, k)
        mu, value = softmax(v)
        expected, expected_value = ref.softmax(v)
        assert_allclose(mu, expected, rtol=1e-13)
        assert_allclose(value, expected_value, rtol=1e-13, atol=1e-14)
        assert_allclose(value, np.log(np.exp(v).sum()), atol=1e-12)
        assert_distribution(mu)
        # it is the maximum of H + <v, .>
        assert_allclose(ref.SimplexOutputs.entropy(mu) + v @ mu, value, atol=1e-12)
        other = rng.dirichlet(np.ones(k))
        assert ref.SimplexOutputs.entropy(other) + v @ other <= value + 1e-12


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e15, 1e300])
def test_softmax_of_large_scores(scale):
    mu, value = softmax([scale, scale, -scale])
    assert_array_equal(mu, [0.5, 0.5, 0.0])
    assert_allclose(value, scale + np.log(2), rtol=1e-15)
    mu, value = softmax([-scale, -2 * scale])
    assert_array_equal(mu, [1.0, 0.0])
    assert value == -scale


def test_softmax_with_forbidden_labels():
    mu, value = softmax([-np.inf, 0.0, 0.0])
    assert_array_equal(mu, [0.0, 0.5, 0.5])
    assert_allclose(value, np.log(2))


# max-min oracles in closed form


def enumerated_zero_one(v):
    """The best of all uniform distributions, which are the vertices of the problem."""
    labels = range(len(v))
    return max(
        1 - 1 / m + np.mean([v[j] for j in subset])
        for m in range(1, len(v) + 1) for subset in itertools.combinations(labels, m))


def enumerated_absolute(v):
    return max(
        (v[i] + v[j] + j - i) / 2 for i in range(len(v)) for j in range(i, len(v)))


CLOSED = {
    "zero_one": (max_min_zero_one, ref.max_min_zero_one, zero_one, enumerated_zero_one),
    "absolute": (max_min_absolute, ref.max_min_absolute, absolute, enumerated_absolute),
}


@pytest.mark.parametrize("kind", CLOSED)
@pytest.mark.parametrize("k", SIZES)
def test_closed_forms(kind, k):
    compiled, reference, cost, enumerated = CLOSED[kind]
    cost = cost(k)
    rng = np.random.default_rng(k)
    for trial in range(40):
        v = random_scores(rng, k)
        mu, value = compiled(v)
        assert_distribution(mu)
        expected_mu, expected = reference(v)
        assert_allclose(value, expected, rtol=1e-13, atol=1e-13)
        # ties may be broken by rounding, but both must be maximisers
        for point in (mu, expected_mu):
            assert_allclose(np.min(cost.T @ point) + v @ point, expected, rtol=1e-12, atol=1e-12)
        if kind == "absolute" or k <= 8:
            assert_allclose(value, enumerated(v), rtol=1e-12, atol=1e-12)
        if trial < 3:
            assert_allclose(value, game_value(v, cost), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", CLOSED)
@pytest.mark.parametrize("scale", [1e4, 1e8, 1e15, 1e300])
def test_closed_forms_of_large_scores(kind, scale):
    compiled, reference, cost, _ = CLOSED[kind]
    rng = np.random.default_rng(4)
    for k in (2, 5, 33):
        v = scale * rng.normal(size=k)
        mu, value = compiled(v)
        assert_array_equal(mu, reference(v)[0])
        assert_allclose(value, v.max(), rtol=k / scale + 1e-15)
    mu, value = compiled([scale] * 3)
    assert_distribution(mu)
    assert np.isfinite(value)
    if scale <= 1e8:
        # an exact shift moves the value and nothing else
        shift, v = 2.0 ** np.round(np.log2(scale)), np.array([0.5, 0.25, -1.0, 0.5])
        assert_array_equal(compiled(v + shift)[0], compiled(v)[0])
        assert_allclose(compiled(v + shift)[1] - shift, compiled(v)[1], atol=1e-7)


@pytest.mark.parametrize("kind", CLOSED)
def test_closed_forms_with_forbidden_labels(kind):
    compiled, reference, cost, _ = CLOSED[kind]
    rng = np.random.default_rng(5)
    for _ in range(30):
        v = random_scores(rng, 6)
        v[rng.choice(6, size=rng.integers(1, 6), replace=False)] = -np.inf
        mu, value = compiled(v)
        assert_distribution(mu)
        assert np.all(mu[np.isneginf(v)] == 0)
        # a very low score is as good as -inf
        low = np.where(np.isneginf(v), -1e6, v)
        assert_allclose(value, compiled(low)[1], atol=1e-9)
        assert_allclose(value, reference(v)[1], atol=1e-12)


# the game


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("k", SIZES)
def test_game(kind, k):
    rng = np.random.default_rng(100 * k + len(kind))
    for trial in range(4 if k < 20 else 3):
        cost = COSTS[kind](rng, k)
        size = max(cost.max(), 1e-9)
        v = size * random_scores(rng, k, scale=[0.0, 0.1, 1.0, 10.0][trial % 4])
        mu, nu, value = max_min_game(v, cost)
        assert_distribution(mu)
        assert_distribution(nu)
        lower, upper = ref.max_min_objective(v, cost, mu, nu)
        # the two bounds meet: optimal, whatever the solver did
        assert_allclose(value, upper, rtol=1e-13, atol=1e-13 * size)
        assert_allclose(lower, upper, rtol=1e-10, atol=1e-10 * size)
        if k <= 8:
            expected = size * game_value(v / size, cost / size)
            assert_allclose(value, expected, rtol=1e-7, atol=1e-7 * size)


@pytest.mark.parametrize("kind", ["zero_one", "absolute", "squared", "random", "cyclic"])
def test_game_against_the_reference(kind):
    rng = np.random.default_rng(6)
    for k in (1, 2, 3, 8):
        for _ in range(5):
            cost, v = COSTS[kind](rng, k), random_scores(rng, k)
            assert_allclose(max_min_game(v, cost)[2], ref.max_min_game(v, cost)[2], atol=1e-8)
            if kind in CLOSED:
                assert_allclose(
                    max_min_game(v, cost)[2], CLOSED[kind][0](v)[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e15, 1e300])
def test_game_of_large_scores(scale):
    rng = np.random.default_rng(7)
    for k in (2, 5, 33):
        cost = random_cost(rng, k)
        v = scale * rng.normal(size=k)
        mu, nu, value = max_min_game(v, cost)
        assert_array_equal(mu, np.arange(k) == np.argmax(v))
        assert_distribution(nu)
        assert_allclose(value, v.max(), rtol=1e-15)
        if scale > 1e15:
            continue  # the costs themselves are below the resolution of the scores
        # all scores large and equal: the game without scores
        mu, nu, value = max_min_game([scale] * k, cost)
        plain = max_min_game(np.zeros(k), cost)
        assert_array_equal(mu, plain[0])
        assert_array_equal(nu, plain[1])


def test_game_of_two_labels():
    """Against the closed form of two labels, costs a and b."""
    mu, nu, value = max_min_game([0.0, 0.0], [[0.0, 1.0], [3.0, 0.0]])
    assert_allclose(mu, [0.75, 0.25], atol=1e-14)
    assert_allclose(nu, [0.25, 0.75], atol=1e-14)
    assert_allclose(value, 0.75, atol=1e-14)


def test_game_without_costs():
    mu, nu, value = max_min_game([0.5, 2.0, 1.0], np.zeros((3, 3)))
    assert_array_equal(mu, [0.0, 1.0, 0.0])
    assert_distribution(nu)
    assert value == 2.0


# mirror prox


@pytest.mark.parametrize("kind", ["zero_one", "squared", "random", "cyclic", "zero", "large"])
@pytest.mark.parametrize("n_iter", [1, 7, 40])
def test_mirror_prox(kind, n_iter):
    rng = np.random.default_rng(8)
    for k in (1, 2, 3, 8):
        cost = COSTS[kind](rng, k)
        v = random_scores(rng, k, scale=max(cost.max(), 1e-9))
        mu, nu, lower, upper = max_min_mirror_prox(v, cost, n_iter)
        expected = ref.max_min_mirror_prox(v, cost, n_iter)
        size = 1 + cost.max()
        for found, right in zip((mu, nu), expected[:2]):
            assert_distribution(found)
            assert_allclose(found, right, atol=1e-12)
        assert_allclose((lower, upper), expected[2:], atol=1e-11 * size)
        value = max_min_game(v, cost)[2]
        assert lower <= value + 1e-12 * size and value <= upper + 1e-12 * size
        # Theorem G.1, from the uniform start; without costs its step is of any size
        if kind == "zero":
            continue
        assert upper - lower <= 4 * cost.max() * np.log(k) / n_iter + 1e-12 * size


def test_mirror_prox_from_a_start():
    rng = np.random.default_rng(9)
    cost, scores = random_cost(rng, 5), rng.normal(size=(4, 5))
    mu, nu, value = max_min_game(scores, cost)
    given = mu.copy(), nu.copy()
    started = max_min_mirror_prox(scores, cost, 3, mu=mu, nu=nu)
    cold = max_min_mirror_prox(scores, cost, 3)
    for b in range(4):
        expected = ref.max_min_mirror_prox(scores[b], cost, 3, mu[b], nu[b])
        for found, right in zip(started, expected, strict=True):
            assert_allclose(found[b], right, atol=1e-12)
    # from the solution it stays there
    assert_allclose(started[2], value, atol=1e-9)
    assert np.all(started[3] - started[2] < cold[3] - cold[2])
    assert_array_equal(mu, given[0])
    assert_array_equal(nu, given[1])
    # one of them alone, for one vector
    single = max_min_mirror_prox(scores[0], cost, 3, nu=nu[0])
    assert_allclose(
        single[0], ref.max_min_mirror_prox(scores[0], cost, 3, None, nu[0])[0], atol=1e-12)


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e15, 1e300])
def test_mirror_prox_of_large_scores(scale):
    rng = np.random.default_rng(10)
    cost, v = random_cost(rng, 4), scale * rng.normal(size=4)
    mu, nu, lower, upper = max_min_mirror_prox(v, cost, 10)
    assert_distribution(mu)
    assert_distribution(nu)
    value = max_min_game(v, cost)[2]
    assert lower <= value <= upper
    assert_allclose(lower, value, rtol=0.5 if scale < 1e5 else 1e-6)


# bad input


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[0.0, 1.0, 2.0], [0.0, np.nan, 1.0]], r"scores\[1, 1\] is nan: scores are finite"),
        ([0.0, np.inf, 1.0], r"scores\[1\] is inf: scores are finite"),
        (np.zeros((2, 3, 3)), r"scores must have shape .*got \(2, 3, 3\)"),
    ],
)
def test_bad_scores(name, bad, message):
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name](bad)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (3.0, r"scores must have shape .*got \(\)"),
        (np.zeros((4, 0)), "scores has no labels"),
        ([], "scores has no labels"),
        (["a", "b"], "scores must be an array of real numbers"),
        ([[1.0], [1.0, 2.0]], "scores must be an array of real numbers"),
        ([[0.0, 0.0], [-np.inf, -np.inf]], r"scores forbids every label \(-inf\) of vector 1"),
    ],
)
def test_bad_shapes(name, bad, message):
    function = {
        "max_min_game": lambda v: max_min_game(v, zero_one(2)),
        "max_min_mirror_prox": lambda v: max_min_mirror_prox(v, zero_one(2)),
    }.get(name, FUNCTIONS[name])
    with pytest.raises(ValueError, match=message):
        function(bad)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_complex_scores_are_refused(name):
    with pytest.raises(ValueError, match="scores must be an array of real numbers"):
        FUNCTIONS[name](np.array([1.0 + 2.0j, 0.0, 1.0]))


def test_bad_augmentation():
    with pytest.raises(ValueError, match="nan"):
        max_oracle([0.0, 1.0], [0.0, np.nan])
    with pytest.raises(ValueError, match="broadcast"):
        max_oracle([0.0, 1.0], [0.0, 1.0, 2.0])


@pytest.mark.parametrize("function", [max_min_game, max_min_mirror_prox])
def test_games_refuse_forbidden_labels(function):
    with pytest.raises(ValueError, match=r"scores\[1, 0\] is -inf: a game needs"):
        function([[0.0, 0.0], [-np.inf, 0.0]], zero_one(2))


@pytest.mark.parametrize("function", [max_min_game, max_min_mirror_prox])
@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (np.zeros((2, 3)), r"cost must have shape \(3, 3\).*got \(2, 3\)"),
        (np.zeros((4, 4)), r"cost must have shape \(3, 3\).*got \(4, 4\)"),
        (np.zeros(9), r"cost must have shape \(3, 3\).*got \(9,\)"),
        (1.0, r"cost must have shape \(3, 3\).*got \(\)"),
        ([[0, 1, 1], [1, 0, -2], [1, 1, 0]], r"cost\[1, 2\] is -2.*must not be negative"),
        ([[0, 1, 1], [1, 0, 1], [1, 1, 0.5]], r"cost\[2, 2\] is 0.5.*diagonal"),
        ([[0, 1, np.nan], [1, 0, 1], [1, 1, 0]], r"cost\[0, 2\] is nan.*finite"),
        ([[0, 1, 1], [np.inf, 0, 1], [1, 1, 0]], r"cost\[1, 0\] is inf.*finite"),
    ],
)
def test_bad_cost(function, cost, message):
    with pytest.raises(ValueError, match=message):
        function([0.0, 1.0, 2.0], cost)


@pytest.mark.parametrize("total", [
    0.0, -1.0, np.nan, np.inf, None, [1.0, 2.0],
    "one",
])
def test_bad_total(total):
    with pytest.raises(ValueError, match="total must be a positive number"):
        project_simplex([0.0, 1.0], total)


@pytest.mark.parametrize("n_iter", [0, -3, 2.5, "many", None])
def test_bad_n_iter(n_iter):
    with pytest.raises(ValueError, match="n_iter must be a positive integer"):
        max_min_mirror_prox([0.0, 1.0], zero_one(2), n_iter)


@pytest.mark.parametrize("name", ["mu", "nu"])
@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([0.5, 0.25, 0.25], r"must have the shape of scores, got \(3,\)"),
        ([[0.5, 0.5], [0.5, 0.5]], r"must have the shape of scores, got \(2, 2\)"),
        ([1.5, -0.5], "must lie in the simplex"),
        ([0.5, 0.4], "must lie in the simplex"),
        ([np.nan, 0.5], "must lie in the simplex"),
        ([np.inf, 0.0], "must lie in the simplex"),
    ],
)
def test_bad_starts(name, start, message):
    with pytest.raises(ValueError, match=f"{name} {message}"):
        max_min_mirror_prox([0.0, 1.0], zero_one(2), **{name: start})
