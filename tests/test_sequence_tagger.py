"""SequenceTagger: scikit-learn's contract where it holds for sequences, and what is documented."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from comparisons import assert_same_fit
from estimator_cases import ASYMMETRIC, CASES, SURROGATES, take
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_predict, cross_val_score

import fastm4n.reference as ref
from fastm4n import (
    MulticlassClassifier,
    RegularizationPath,
    Sequences,
    SequenceTagger,
    Transitions,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.automata import Automaton
from fastm4n.inference import max_min_chain
from fastm4n.metrics import span_f1_score


def sequences(seed=0, n=24, d=4, R=3, lengths=None):
    """Labels that follow features and the label before."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, n) if lengths is None else lengths
    truth, follows = 2 * rng.normal(size=(d, R)), rng.normal(size=(R, R))
    X, y = [], []
    for T in lengths:
        x = np.round(4 * rng.normal(size=(T, d))) / 4  # float32 holds it as well
        unary = x @ truth + 0.5 * rng.normal(size=(T, R))
        X.append(x)
        y.append(["abcdefgh"[label] for label in ref.viterbi(unary, follows)[0]])
    return X, y


@pytest.fixture(scope="module")
def data():
    return sequences()


@pytest.fixture(scope="module")
def tiny():
    """Two labels and short sequences, whose labellings can be listed."""
    return sequences(seed=3, n=8, d=2, R=2, lengths=[1, 2, 3, 4, 3, 2, 1, 3])


def fit(X, y, *args, **parameters):
    return CASES["SequenceTagger"].fit(*args, X=X, y=y, **parameters)


@pytest.fixture(scope="module")
def fitted(data):
    return {surrogate: fit(*data, surrogate) for surrogate in SURROGATES}


def assert_same_sequences(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert_array_equal(one, other)


def scores_of(tagger, x):
    """Scores of one sequence, from the fitted attributes."""
    unary = np.asarray(x) @ tagger.coef_.T + tagger.intercept_
    unary[0] += tagger.start_coef_
    unary[-1] += tagger.end_coef_
    return unary, tagger.transition_coef_


def labelled(tagger, X):
    return [tagger.classes_[ref.viterbi(*scores_of(tagger, x))[0]] for x in X]


# what a fit is


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_attributes(data, surrogate, fitted):
    X, y = data
    tagger = fitted[surrogate]
    assert_array_equal(tagger.classes_, ["a", "b", "c"])
    shapes = {
        "coef_": (3, 4), "intercept_": (3,), "transition_coef_": (3, 3), "start_coef_": (3,),
        "end_coef_": (3,), "cost_matrix_": (3, 3)}
    for name, shape in shapes.items():
        assert getattr(tagger, name).shape == shape
    # the objective, from the weights alone
    parts = (tagger.coef_, tagger.intercept_, tagger.transition_coef_, tagger.start_coef_,
             tagger.end_coef_)
    loss = 0.0
    for x, labels in zip(X, y):
        codes, v = np.searchsorted(tagger.classes_, labels), scores_of(tagger, x)
        # the reference divides costs by the length
        upper = ref.ChainOutputs.oracle(v, surrogate, codes, len(x) * tagger.cost_matrix_, 1e-7)[3]
        loss += (upper - ref.score_labelling(codes, *v)) / len(X)
    primal = loss + tagger.alpha / 2 * sum(np.sum(part**2) for part in parts)
    # the certificate's oracles may stop a little above
    assert -1e-7 <= tagger.primal_objective_ - primal <= 0.02 * tagger.duality_gap_ + 1e-7
    assert tagger.score(X, y) > 0.8


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_predictions_from_the_attributes(data, surrogate, fitted):
    X, _ = data
    tagger = fitted[surrogate]
    predicted = tagger.predict(X)
    assert isinstance(predicted, Sequences) and predicted.values.dtype == tagger.classes_.dtype
    assert_same_sequences(predicted, labelled(tagger, X))
    scores = tagger.decision_function(X)
    for x, unary in zip(X, scores):
        assert_allclose(unary, scores_of(tagger, x)[0], atol=1e-12)


@pytest.mark.parametrize(("parameter", "names"), [
    ("fit_intercept", ["intercept_"]), ("start_end", ["start_coef_", "end_coef_"]),
    ("pairs", ["transition_coef_"]), ("transitions", [
        "start_coef_", "end_coef_", "transition_coef_"])])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_parts_that_are_not_fitted(data, surrogate, parameter, names):
    X, y = data
    given = {parameter: False}
    tagger = fit(X, y, surrogate, **(
        {"transitions": Transitions(**given)} if parameter in ("start_end", "pairs") else given))
    for name in ("intercept_", "start_coef_", "end_coef_", "transition_coef_"):
        assert np.any(getattr(tagger, name)) == (name not in names)
    assert_same_sequences(tagger.predict(X), labelled(tagger, X))
    if "transition_coef_" in names:
        greedy = [tagger.classes_[np.argmax(v, axis=1)] for v in tagger.decision_function(X)]
        assert_same_sequences(tagger.predict(X), greedy)
    if parameter == "fit_intercept":
        # a constant column is the intercept
        with_column = [np.column_stack([x, np.ones(len(x))]) for x in X]
        other = fit(with_column, y, surrogate, fit_intercept=False)
        both = fit(X, y, surrogate)
        bound = other.duality_gap_ + both.duality_gap_
        assert abs(other.primal_objective_ - both.primal_objective_) <= bound


# against other solvers


def crf(X, y, alpha, R, d):
    """The linear-chain CRF by L-BFGS, listing no labelling but summing over all of them."""
    def unpack(w):
        cuts = np.cumsum([R * d, R, R, R])
        parts = np.split(w, cuts)
        return ref.ChainWeights(parts[0].reshape(R, d), *parts[1:4], parts[4].reshape(R, R))

    def objective(flat):
        w = unpack(flat)
        value, gradient = alpha / 2 * flat @ flat, alpha * flat
        for x, labels in zip(X, y):
            v = ref.chain_scores(x, w)
            nodes, edges, log_partition = ref.sum_product(*v)
            true_nodes, true_edges = ref.chain_indicator(labels, R)
            value += (log_partition - ref.score_labelling(labels, *v)) / len(X)
            change = ref.chain_features(x, nodes - true_nodes, (edges - true_edges).sum(axis=0))
            gradient = gradient + np.concatenate([part.ravel() for part in change]) / len(X)
        return value, gradient

    found = minimize(
        objective, np.zeros(R * d + 3 * R + R * R), jac=True, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 1000})
    return unpack(found.x), found.fun


@pytest.mark.parametrize("alpha", [1.0, 0.02])
def test_log_against_a_crf(tiny, alpha):
    X, y = tiny
    tagger = fit(X, y, "log", alpha=alpha, tol=1e-10)
    codes = [np.searchsorted(tagger.classes_, labels) for labels in y]
    w, value = crf(X, codes, alpha, 2, 2)
    assert_allclose(tagger.primal_objective_, value, atol=1e-8)
    for name, part in zip(
            ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"), w):
        assert_allclose(getattr(tagger, name), part, atol=1e-4)
    for x, found in zip(X, tagger.predict_marginals(X)):
        assert_allclose(found, ref.sum_product(*ref.chain_scores(x, w))[0], atol=1e-4)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("ends", [False, True])
def test_single_positions_are_a_classifier(surrogate, ends):
    """Two labels; start, end and intercept together are a constant of sqrt(3)."""
    X, y = sequences(seed=1, lengths=[1] * 40, R=2)
    options = {"alpha": 0.3, "tol": 1e-3, "max_iter": 5000}
    tagger = fit(X, y, surrogate, transitions=Transitions(start_end=ends, pairs=ends), **options)
    classifier = MulticlassClassifier(
        surrogate, random_state=0, fit_intercept=np.sqrt(3) if ends else True, **options)
    classifier.fit(np.concatenate(X), np.concatenate(y))
    assert not np.any(tagger.transition_coef_)
    assert tagger.dual_objective_ <= classifier.primal_objective_ + 1e-12
    assert classifier.dual_objective_ <= tagger.primal_objective_ + 1e-12
    # weights lie within sqrt(2 gap / alpha) of the best ones
    radius = np.sqrt(2 * tagger.duality_gap_ / 0.3) + np.sqrt(2 * classifier.duality_gap_ / 0.3)
    assert np.linalg.norm(tagger.coef_ - classifier.coef_) <= radius
    shift = tagger.intercept_ + tagger.start_coef_ + tagger.end_coef_
    assert np.linalg.norm(shift - classifier.intercept_) <= radius * (np.sqrt(3) if ends else 1)


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
def test_margins_against_the_reference(tiny, surrogate):
    X, y = tiny
    tagger = fit(X, y, surrogate, alpha=0.5, cost_scale="mean", tol=0.01, max_iter=3000)
    codes = [np.searchsorted(tagger.classes_, labels) for labels in y]
    result = ref.block_coordinate_frank_wolfe(
        ref.ChainBlocks(X, codes, 2, surrogate, 0.5), gap_every=50,
        n_passes=10 if surrogate == "max_min" else 100)
    _, primal, dual, gap = result.history[-1]
    assert gap < 0.1
    assert tagger.dual_objective_ <= primal + 1e-9 and dual <= tagger.primal_objective_ + 1e-9


# ways in


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_kinds_of_features(surrogate):
    X, y = sequences(lengths=[4] * 12)
    values = np.concatenate(X)
    expected = fit(X, y, surrogate)
    lengths = [4] * 12
    read_only = values.copy()
    read_only.flags.writeable = False
    for given in (
        tuple(X), np.array(X), Sequences.from_list(X), [x.tolist() for x in X],
        [np.asfortranarray(x) for x in X], Sequences.from_lengths(read_only, lengths),
        (x for x in X), np.array(X)[:, ::-1].copy()[:, ::-1],
    ):
        assert_same_fit(fit(given, y, surrogate), expected)
    flat = list(itertools.chain.from_iterable(y))
    for labels in (flat, np.array(flat), Sequences.from_list(y)):
        tagger = SequenceTagger(surrogate, random_state=0, alpha=0.05, tol=0.05)
        assert_same_fit(tagger.fit(values, labels, lengths=lengths), expected)
        assert_same_sequences(tagger.predict(values, lengths=lengths), expected.predict(X))
        assert tagger.score(values, labels, lengths=lengths) == expected.score(X, y)
    # rounding makes other draws: the same problem, certified
    given = Sequences.from_lengths(sparse.csc_matrix(values), lengths)
    tagger = fit(given, y, surrogate)
    assert tagger.dual_objective_ <= expected.primal_objective_ + 1e-9
    assert expected.dual_objective_ <= tagger.primal_objective_ + 1e-9
    for other in (X, given):
        assert_same_sequences(tagger.predict(other), labelled(tagger, X))
    whole = [(4 * x).astype(int) for x in X]
    assert_same_fit(fit(whole, y, surrogate), fit([4 * x for x in X], y, surrogate))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_features_that_are_mostly_zero(surrogate):
    rng = np.random.default_rng(0)
    X, y = sequences(d=12)
    X = [x * (rng.random(x.shape) < 0.2) for x in X]
    dense, csr = fit(X, y, surrogate), fit([sparse.csr_matrix(x) for x in X], y, surrogate)
    assert_array_equal(dense.coef_, csr.coef_)
    # entries in any order, and in two parts
    messy = []
    for x in X:
        coo = sparse.coo_matrix(x)
        order = rng.permutation(2 * coo.nnz)
        rows, columns, entries = (
            np.tile(part, 2)[order] for part in (coo.row, coo.col, coo.data / 2))
        by_row = np.argsort(rows, kind="stable")
        indptr = np.append(0, np.cumsum(np.bincount(rows, minlength=len(x))))
        messy.append(sparse.csr_matrix(
            (entries[by_row], columns[by_row], indptr), shape=x.shape))
    before = [(part.indices.copy(), part.data.copy()) for part in messy]
    given = fit(messy, y, surrogate)
    assert_array_equal(given.coef_, csr.coef_)
    for part, (indices, entries) in zip(messy, before):
        assert_array_equal(part.indices, indices)
        assert_array_equal(part.data, entries)
    long = [sparse.csr_matrix(x) for x in X]
    for part in long:
        part.indices, part.indptr = part.indices.astype(np.int64), part.indptr.astype(np.int64)
    assert_array_equal(fit(long, y, surrogate).coef_, csr.coef_)
    assert_same_sequences(csr.predict(long), labelled(csr, X))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_memory_maps(data, dtype, tmp_path):
    X, y = Sequences.from_list(data[0]), data[1]
    values = X.values.astype(dtype)
    np.save(tmp_path / "X.npy", values)
    mapped = Sequences(np.load(tmp_path / "X.npy", mmap_mode="r"), X.offsets)
    expected = fit(Sequences(values, X.offsets), y)
    tagger = fit(mapped, y)
    assert_same_fit(tagger, expected)
    for method in ("predict", "decision_function"):
        assert_same_sequences(
            getattr(tagger, method)(mapped), getattr(expected, method)(X))


LABELS = {
    "str": ["DT", "JJ", "NN"], "int": [-3, 0, 7], "large": [2**70, 2**71, 2**72],
    "float": [0.5, 1.0, 2.5], "bytes": [b"x", b"y", b"z"],
    "tuple": [("B", 1), ("I", 1), ("I", 2)], "mixed": ["1", 1, (1,)],
    "none of a kind": [frozenset("a"), "a", 2.5], "trailing zeros": ["a", "a\0", "a\0\0"]}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(data, kind, fitted):
    X, y = data
    names = dict(zip("abc", LABELS[kind]))
    labels = [[names[label] for label in part] for part in y]
    tagger = fit(X, labels)
    classes = tagger.classes_.tolist()
    assert set(classes) == set(LABELS[kind]) and list(map(type, classes)) == [
        type(label) for label in classes]
    assert {type(label) for label in classes} == {type(label) for label in LABELS[kind]}
    predicted = tagger.predict(X)
    right = 0
    for part, found in zip(labels, predicted):
        found = found.tolist()
        assert set(found) <= set(LABELS[kind])
        right += sum(a == b for a, b in zip(part, found))
    assert tagger.score(X, labels) == right / sum(map(len, y))
    if classes == LABELS[kind]:  # in the order of "a", "b", "c" it is the same fit
        assert_array_equal(tagger.coef_, fitted["max_min"].coef_)
    paths, _ = tagger.predict_kbest(X[:3], 2)
    assert_same_sequences([path[0] for path in paths], predicted[:3])
    copied = pickle.loads(pickle.dumps(tagger))
    assert copied.predict(X).equals(predicted)
    assert str(tagger.explain())


def test_booleans():
    X, y = sequences(R=2)
    y = [[label == "a" for label in part] for part in y]
    tagger = fit(X, y)
    assert_array_equal(tagger.classes_, [False, True])
    assert tagger.classes_.dtype == bool and tagger.predict(X).dtype == bool
    assert tagger.score(X, y) > 0.8


@pytest.mark.parametrize("kind", ["list", "tuple", "array", "object", "Sequences", "scalars"])
def test_containers_of_labels(data, kind, fitted):
    X, y = data
    given = {
        "list": lambda: y,
        "tuple": lambda: tuple(map(tuple, y)),
        "array": lambda: [np.array(part) for part in y],
        "object": lambda: np.array([np.array(part, dtype=object) for part in y], dtype=object),
        "Sequences": lambda: Sequences.from_list(y),
        "scalars": lambda: [list(np.array(part)) for part in y],
    }[kind]()
    tagger = fit(X, given)
    assert_array_equal(tagger.coef_, fitted["max_min"].coef_)
    assert_array_equal(tagger.classes_, ["a", "b", "c"])
    assert tagger.score(X, given) == fitted["max_min"].score(X, y)


# the contract


def test_pickles_hold_the_weights_once(data):
    X, y = data
    X = [np.pad(x, [(0, 0), (0, 5000)], constant_values=0.01) for x in X]
    tagger = fit(X, y)
    assert tagger.coef_.nbytes < len(pickle.dumps(tagger)) < 1.3 * tagger.coef_.nbytes
    # also the second time, and of a copy
    tagger.predict(X)
    again = pickle.loads(pickle.dumps(tagger))
    assert len(pickle.dumps(again)) < 1.3 * tagger.coef_.nbytes


def test_a_weight_of_zero_is_no_sequence(data):
    X, y = data
    rare = y[:-1] + [["z"] * len(y[-1])]
    weights = np.append(np.ones(len(X) - 1), 0.0)
    tagger = fit(X, rare, sample_weight=weights)
    assert_same_fit(tagger, fit(X[:-1], rare[:-1]))
    assert "z" not in tagger.classes_
    assert "z" in fit(X, rare).classes_


def test_equal_features_with_other_labels_are_not_merged(data):
    X, y = data
    other = [part[:-1] + ["c" if part[-1] != "c" else "a"] for part in y]
    weights = np.repeat([2.0, 1.0], len(X))
    assert_same_fit(fit(X + X + X, y + other + y), fit(X + X, y + other, sample_weight=weights))
    both = fit(X + X, y + other, "log", tol=1e-6)
    single, flipped = fit(X, y, "log", tol=1e-6), fit(X, other, "log", tol=1e-6)
    # the mean of two convex objectives, at a minimum of its own
    assert both.primal_objective_ >= (single.dual_objective_ + flipped.dual_objective_) / 2
    assert both.primal_objective_ > single.primal_objective_ + 0.1


# replaced weights


def test_replaced_weights_are_used(data):
    X, y = data
    tagger = fit(X, y, "log")

    def check():
        assert_same_sequences(tagger.predict(X), labelled(tagger, X))
        for x, marginals in zip(X, tagger.predict_marginals(X)):
            assert_allclose(marginals, ref.sum_product(*scores_of(tagger, x))[0], atol=1e-9)

    rng = np.random.default_rng(0)
    for name in ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"):
        before = tagger.predict_marginals(X).values
        setattr(tagger, name, 3 * rng.normal(size=getattr(tagger, name).shape))
        assert not np.allclose(tagger.predict_marginals(X).values, before)
        check()
    tagger.coef_ = tagger.coef_.tolist()
    tagger.coef_ = np.asarray(tagger.coef_, dtype=np.float32)
    check()
    # in place
    tagger.fit(X, y)
    for name in ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"):
        getattr(tagger, name)[...] = 3 * rng.normal(size=getattr(tagger, name).shape)
        check()


@pytest.mark.parametrize("change", [
    lambda t: setattr(t, "coef_", t.coef_[::-1]),
    lambda t: setattr(t, "coef_", t.coef_[:, ::-1]),
    lambda t: setattr(t, "transition_coef_", t.transition_coef_.T),
    lambda t: setattr(t, "intercept_", t.intercept_[::-1]),
    lambda t: (setattr(t, "start_coef_", t.end_coef_)),
])
def test_views_of_the_weights_that_are_not_in_place(data, change):
    X, y = data
    tagger = fit(X, y, "log")
    change(tagger)
    for x, scores, marginals in zip(X, tagger.decision_function(X), tagger.predict_marginals(X)):
        unary, pairwise = scores_of(tagger, x)
        assert_allclose(scores, unary, atol=1e-12)
        assert_allclose(marginals, ref.sum_product(unary, pairwise)[0], atol=1e-9)


# ways out


def enumerated(tagger, x):
    """All labellings of one sequence, and their probabilities."""
    unary, pairwise = scores_of(tagger, x)
    T, R = unary.shape
    Y = np.array(list(itertools.product(range(R), repeat=T)))
    scores = np.array([ref.score_labelling(labels, unary, pairwise) for labels in Y])
    q = np.exp(scores - scores.max())
    return Y, scores, q / q.sum()


def test_marginals_by_enumeration(tiny):
    X, y = tiny
    tagger = fit(X, y, "log")
    marginals = tagger.predict_marginals(X)
    assert isinstance(marginals, Sequences)
    for x, found in zip(X, marginals):
        Y, _, q = enumerated(tagger, x)
        expected = [[q[Y[:, t] == label].sum() for label in (0, 1)] for t in range(len(x))]
        assert found.shape == (len(x), 2)
        assert_allclose(found, expected, atol=1e-12)
    assert_allclose(marginals.values.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_kbest_by_enumeration(tiny, surrogate):
    X, y = tiny
    tagger = fit(X, y, surrogate)
    predicted = tagger.predict(X)
    for k in (1, 3, 100):
        labellings, scores = tagger.predict_kbest(X, k)
        assert len(labellings) == len(scores) == len(X)
        for x, paths, values, best in zip(X, labellings, scores, predicted):
            Y, all_scores, _ = enumerated(tagger, x)
            n = min(k, len(Y))
            assert paths.shape == (n, len(x)) and values.shape == (n,)
            assert np.all(np.diff(values) <= 0)
            assert_array_equal(paths[0], best)
            assert_allclose(values, np.sort(all_scores)[::-1][:n], atol=1e-12)
            for path, value in zip(paths, values):
                own = ref.score_labelling(
                    np.searchsorted(tagger.classes_, path), *scores_of(tagger, x))
                assert_allclose(own, value, atol=1e-12)


@pytest.mark.parametrize("k", [0, -1, 1.5, "2", None, True])
def test_bad_k(data, fitted, k):
    with pytest.raises(ValueError, match="k must be an integer > 0, got"):
        fitted["max_min"].predict_kbest(data[0], k)


def test_careful_decoding_of_probabilities(data):
    X, y = data
    tagger = fit(X, y, "log", cost=ASYMMETRIC, alpha=0.5)
    careful = tagger.predict(X, decode="min_risk")
    risks = [marginals @ ASYMMETRIC for marginals in tagger.predict_marginals(X)]
    assert_same_sequences(careful, [tagger.classes_[np.argmin(r, axis=1)] for r in risks])
    plain = tagger.predict(X, decode="map")
    assert_same_sequences(plain, labelled(tagger, X))
    assert not careful.equals(plain)
    # by the costs, unless they are 0-1 or labels depend on one another
    assert tagger.predict(X).equals(careful)
    every = np.ones((3, 3), dtype=bool)
    assert tagger.predict(X, allowed_transitions=every).equals(plain)
    assert tagger.predict(X, constraints=Automaton.anything(tagger.classes_.tolist())).equals(plain)
    assert fit(X, y, "log", alpha=0.5)._fitted_task().decoding() == "map"
    assert tagger.set_params(decode="min_risk").predict(X).equals(careful)
    right = np.mean(careful.values == np.concatenate(y))
    assert_allclose(tagger.score(X, y), right)


@pytest.mark.parametrize("cost", ["zero_one", ASYMMETRIC])
def test_careful_decoding_of_the_max_min_oracle(data, cost):
    X, y = data
    tagger = fit(X, y, cost=cost, alpha=0.5)
    for unary, labels in zip(tagger.decision_function(X), tagger.predict(X, decode="min_risk")):
        nodes = max_min_chain(unary, tagger.transition_coef_, tagger.cost_matrix_, tol=1e-6)[0]
        codes = np.searchsorted(tagger.classes_, labels)
        risks = nodes @ tagger.cost_matrix_
        assert np.all(risks[np.arange(len(unary)), codes] <= risks.min(axis=1) + 1e-9)


def test_careful_decoding_that_cannot_be(data, fitted):
    X, _ = data
    with pytest.raises(ValueError, match="decode='min_risk' labels positions one by one"):
        fitted["log"].predict(
            X, decode="min_risk", allowed_transitions=np.ones((3, 3), dtype=bool))


def test_score(data, fitted):
    X, y = data
    tagger = fitted["max_min"]
    predicted = tagger.predict(X)
    right = [np.mean(a == np.array(b)) for a, b in zip(predicted, y)]
    lengths = np.array(list(map(len, y)))
    assert_allclose(tagger.score(X, y), np.average(right, weights=lengths))
    weights = np.random.default_rng(0).uniform(0, 2, len(X))
    assert_allclose(tagger.score(X, y, weights), np.average(right, weights=weights * lengths))
    assert isinstance(tagger.score(X, y), float)


def test_explain(data, fitted):
    X, y = data
    tagger = fitted["log"]
    names = ["one", "two", "three", "four"]
    table = tagger.explain(names, n_strongest=3)
    flat = sorted(
        ((tagger.coef_[i, j], label, name) for i, label in enumerate("abc")
         for j, name in enumerate(names)), reverse=True)
    assert table.emissions == flat[:3] + flat[-3:]
    moves = [(tagger.transition_coef_[i, j], a, b)
             for i, a in enumerate("abc") for j, b in enumerate("abc")]
    moves += [(weight, "(start)", label) for weight, label in zip(tagger.start_coef_, "abc")]
    moves += [(weight, label, "(end)") for weight, label in zip(tagger.end_coef_, "abc")]
    moves.sort(reverse=True)
    assert table.transitions == moves[:3] + moves[-3:]
    text = str(table)
    for row in table.emissions:
        assert any(row[1] in line and row[2] in line for line in text.splitlines())
    assert "(start)" in str(tagger.explain()) and "(end)" in str(tagger.explain())
    whole = tagger.explain(n_strongest=1000)
    assert len(whole.emissions) == 12 and len(whole.transitions) == 15
    assert {row[2] for row in whole.emissions} == {0, 1, 2, 3}
    assert all(isinstance(row[0], float) for row in whole.emissions + whole.transitions)
    assert tagger.explain(np.array(names)).emissions[0][2] == flat[0][2]


def test_explain_counts_each_sign(data, fitted):
    tagger = copy.deepcopy(fitted["log"])
    tagger.coef_ = np.abs(tagger.coef_)
    tagger.transition_coef_ = -np.abs(tagger.transition_coef_)
    tagger.start_coef_ = tagger.end_coef_ = np.zeros(3)
    table = tagger.explain(n_strongest=2)
    assert_allclose([row[0] for row in table.emissions], np.sort(tagger.coef_.ravel())[:-3:-1])
    assert_allclose(
        [row[0] for row in table.transitions], np.sort(tagger.transition_coef_.ravel())[1::-1])


def test_explain_leaves_out_what_is_not_there(data):
    X, y = data
    tagger = fit([np.column_stack([x, np.zeros(len(x))]) for x in X], y, transitions=False)
    table = tagger.explain(n_strongest=1000)
    assert table.transitions == []
    assert {row[2] for row in table.emissions} == {0, 1, 2, 3}


def test_bad_explanations(fitted):
    with pytest.raises(ValueError, match="feature_names has 2 names, but there are 4 features"):
        fitted["log"].explain(["a", "b"])
    for n in (0, -1, 2.5, None):
        with pytest.raises(ValueError, match="n_strongest must be an integer > 0, got"):
            fitted["log"].explain(n_strongest=n)


# constraints


def chunks(seed=0, n=30):
    """Noisy features of BIO tags."""
    rng = np.random.default_rng(seed)
    tags = ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
    X, y = [], []
    for T in rng.integers(1, 9, n):
        labels = []
        for _ in range(T):
            last = labels[-1] if labels else "O"
            choices = ["O", "B-NP", "B-VP"] + ([f"I-{last[2:]}"] * 3 if last != "O" else [])
            labels.append(str(rng.choice(choices)))
        X.append(np.eye(5)[[tags.index(label) for label in labels]] + rng.normal(size=(T, 5)))
        y.append(labels)
    return X, y


def legal(labels):
    before = "O"
    for label in labels:
        if label.startswith("I-") and before not in (label, f"B-{label[2:]}"):
            return False
        before = label
    return True


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bio(surrogate):
    X, y = chunks()
    tagger = fit(X, y, surrogate, transitions=False, alpha=0.5)
    noisy = [x for x in chunks(1, 100)[0]]
    assert not all(map(legal, tagger.predict(noisy)))
    constrained = tagger.predict(noisy, allowed_transitions="bio")
    assert all(map(legal, constrained))
    # the best of the legal ones
    for x, found in zip(noisy, constrained):
        if len(x) > 4:
            continue
        Y, scores, _ = enumerated(tagger, x)
        open_ = np.array([legal(tagger.classes_[labels]) for labels in Y])
        assert_array_equal(found, tagger.classes_[Y[open_][np.argmax(scores[open_])]])
    paths, values = tagger.predict_kbest(noisy, 4, allowed_transitions="bio")
    assert all(legal(path) for part in paths for path in part)
    assert_same_sequences([part[0] for part in paths], constrained)
    if surrogate == "log":
        marginals = tagger.predict_marginals(noisy, allowed_transitions="bio")
        assert_allclose(marginals.values.sum(axis=1), 1.0, atol=1e-9)
        for x, found in zip(noisy, marginals):
            if len(x) > 3:
                continue
            Y, _, q = enumerated(tagger, x)
            q = q * [legal(tagger.classes_[labels]) for labels in Y]
            q /= q.sum()
            expected = [[q[Y[:, t] == k].sum() for k in range(5)] for t in range(len(x))]
            assert_allclose(found, expected, atol=1e-12)
    # as a parameter, which fits do not look at
    other = fit(X, y, surrogate, transitions=False, alpha=0.5,
                allowed_transitions="bio")
    assert_array_equal(other.coef_, tagger.coef_)
    assert other.predict(noisy).equals(constrained)
    assert other.score(X, y) == np.mean(
        tagger.predict(X, allowed_transitions="bio").values == np.concatenate(y))
    labels = chunks(1, 100)[1]
    assert span_f1_score(labels, constrained) > span_f1_score(labels, tagger.predict(noisy))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_allowed_transitions(data, surrogate, fitted):
    X, _ = data
    tagger = fitted[surrogate]
    mask = np.array([[True, True, False], [False, True, True], [True, False, True]])
    for given in (mask, mask.tolist()):
        found = tagger.predict(X, allowed_transitions=given)
        for x, labels in zip(X, found):
            codes = np.searchsorted(tagger.classes_, labels)
            assert mask[codes[:-1], codes[1:]].all()
            unary, pairwise = scores_of(tagger, x)
            assert_array_equal(codes, ref.viterbi(unary, np.where(mask, pairwise, -np.inf))[0])
    assert not found.equals(tagger.predict(X))
    everything = np.ones((3, 3), dtype=bool)
    assert tagger.predict(X, allowed_transitions=everything).equals(tagger.predict(X))
    # none is made in a sequence of length one
    single = [x[:1] for x in X]
    nothing = np.zeros((3, 3), dtype=bool)
    assert tagger.predict(single, allowed_transitions=nothing).equals(tagger.predict(single))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_constraints_that_leave_no_way(data, fitted, n_jobs, monkeypatch):
    monkeypatch.setattr("fastm4n.base.threads.PARALLEL_COST", 0.0)
    X = [data[0][0][:1], data[0][1][:1], *(x for x in data[0] if len(x) > 2)]
    nothing = np.zeros((3, 3), dtype=bool)
    for surrogate in SURROGATES:
        tagger = copy.copy(fitted[surrogate]).set_params(n_jobs=n_jobs)
        calls = [
            lambda: tagger.predict(X, allowed_transitions=nothing),
            lambda: tagger.predict_kbest(X, 2, allowed_transitions=nothing)]
        if surrogate == "log":
            calls.append(lambda: tagger.predict_marginals(X, allowed_transitions=nothing))
        for call in calls:
            with pytest.raises(
                    ValueError, match=r"allowed_transitions leaves no labelling for X\[2\]: allow"):
                call()
        # nothing is spoilt
        assert tagger.predict(X).equals(fitted[surrogate].predict(X))


@pytest.mark.parametrize("allowed", [
    "iob", np.ones((3, 3)), np.ones((2, 2), dtype=bool), [[True]], 1])
def test_bad_constraints(data, fitted, allowed):
    for tagger in (fitted["log"], clone(fitted["log"]).fit(*data)):
        with pytest.raises(ValueError, match="allowed_transitions must be"):
            tagger.predict(data[0], allowed_transitions=allowed)


# model selection


@pytest.mark.parametrize("kind", ["Sequences", "csr"])
def test_model_selection(data, kind):
    """As with lists, which are in the contract."""
    X, y = data
    tagger = SequenceTagger("log", alpha=0.05, tol=0.05, random_state=0)
    options = {"cv": KFold(3, shuffle=True, random_state=0)}
    plain = cross_val_score(tagger, X, y, **options, error_score="raise")
    assert plain.min() > 0.6
    predicted = cross_val_predict(tagger, X, y, **options)
    right = [np.mean(np.asarray(a) == np.asarray(b)) for a, b in zip(predicted, y, strict=True)]
    assert_allclose(np.average(right, weights=[len(part) for part in y]), np.average(
        plain, weights=[
            sum(len(y[i]) for i in test) for _, test in options["cv"].split(np.arange(len(X)))]))
    if kind == "Sequences":
        X, y = Sequences.from_list(X), Sequences.from_list(y)
        assert_array_equal(cross_val_score(tagger, X, y, **options, error_score="raise"), plain)
        assert_same_sequences(cross_val_predict(tagger, X, y, **options), predicted)
    else:
        X = [sparse.csr_matrix(x) for x in X]
        scores = cross_val_score(tagger, X, y, **options, error_score="raise")
        assert scores.min() > 0.6
        splits = options["cv"].split(np.arange(len(X)))
        for score, (train, test) in zip(scores, splits, strict=True):
            again = clone(tagger).fit(take(X, train), take(y, train))
            assert again.score(take(X, test), take(y, test)) == score


# warm starts, callbacks, interrupts


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_warm_start_with_other_data(data, surrogate):
    """Dual points go with their sequences, whatever order the blocks have."""
    X, y = data
    weights = np.ones(len(X))
    weights[[0, 5]] = 0.0
    parameters = {"tol": 0.02, "transitions": Transitions(features=[0, 2])}
    tagger = fit(X, y, surrogate, sample_weight=weights, warm_start=True, **parameters)
    rng = np.random.default_rng(0)
    moved = [x + 0.01 * rng.normal(size=x.shape) for x in X]
    other = [labels if b % 5 else labels[::-1] for b, labels in enumerate(y)]
    for X_new, y_new in ((X, y), (moved, y), (moved, other)):
        tagger.fit(X_new, y_new)
        cold = fit(X_new, y_new, surrogate, **parameters)
        # of a fit whose weights were zero before, and then of one of other features
        assert tagger.history_["pass"][0] == 0
        assert tagger.relative_gap_ <= 0.02
        assert tagger.dual_objective_ <= cold.primal_objective_
        assert cold.dual_objective_ <= tagger.primal_objective_
        if y_new is y:
            assert tagger.history_["gap"][0] < 0.2 * cold.history_["gap"].max() or (
                tagger.n_iter_ < cold.n_iter_)


# bad data


def changed(sequence, i, value):
    return [value if j == i else part for j, part in enumerate(sequence)]


def spoilt(x, t, f, value):
    x = x.copy()
    x[t, f] = value
    return x


LONG = 2  # a sequence of several positions

BAD = {
    "no sequences": (lambda X, y: ([], []), "X has no sequences"),
    "no positions": (
        lambda X, y: ([x[:0] for x in X], [[] for _ in y]),
        "X has no positions in sequences of non-zero weight"),
    "fewer labels": (
        lambda X, y: (X, changed(y, LONG, y[LONG][1:])),
        r"y\[2\] has {less} labels, but X\[2\] has {n} positions"),
    "fewer sequences": (lambda X, y: (X, y[:-1]), "y has 23 sequences, but X has 24"),
    "columns": (
        lambda X, y: (changed(X, 5, X[5][:, :2]), y),
        r"equence 5 has 2 columns, sequence 0 has 4"),
    "no columns": (lambda X, y: ([x[:, :0] for x in X], y), "X has no features"),
    "nan": (
        lambda X, y: (changed(X, LONG, spoilt(X[LONG], 1, 3, np.nan)), y),
        r"X\[2\] has nan at position 1, feature 3: features must be finite"),
    "inf": (
        lambda X, y: (changed(X, LONG, spoilt(X[LONG], 1, 0, -np.inf)), y),
        r"X\[2\] has -inf at position 1, feature 0: features must be finite"),
    "csr nan": (
        lambda X, y: (
            [sparse.csr_matrix(x) for x in changed(X, LONG, spoilt(X[LONG], 1, 3, np.nan))], y),
        r"X\[2\] has nan at position 1, feature 3: features must be finite"),
    "strings": (lambda X, y: (Sequences.from_list([np.full(x.shape, "up") for x in X]), y), "X must hold numbers"),
    "complex": (lambda X, y: ([x + 1j for x in X], y), "X has complex values"),
    "one matrix": (
        lambda X, y: (np.concatenate(X), y), "X is one matrix: give a list .*or the lengths"),
    "one sparse matrix": (
        lambda X, y: (sparse.csr_matrix(np.concatenate(X)), y), "X is one matrix: give a list"),
    "labels as features": (
        lambda X, y: ([np.arange(len(x)) for x in X], y), "X must have a row of features"),
    "flat labels": (
        lambda X, y: (X, [part[0] for part in y]), r"y\[0\] must be a sequence of labels, got '"),
    "flat numbers": (lambda X, y: (X, [1] * len(X)), r"y\[0\] must be a sequence of labels, got 1"),
    "a string": (lambda X, y: (X, "abc"), "y must be a list with a sequence of labels"),
    "no y": (lambda X, y: (X, None), "y must be a list with a sequence of labels"),
    "one label": (lambda X, y: (X, [["a"] * len(x) for x in X]), "y has one label only, 'a'"),
    "nothing known": (
        lambda X, y: (X, [[None] * len(x) for x in X]),
        "y has no label: all of its positions are None"),
    "empty set": (
        lambda X, y: (X, changed(y, LONG, [*y[LONG][:-1], set()])),
        r"y\[2\] has set\(\) at position {last}: it allows no label"),
    "None in a set": (
        lambda X, y: (X, changed(y, LONG, [*y[LONG][:-1], {"a", None}])),
        r"y\[2\] has .* at position {last}: one of them is not a label"),
    "nan label": (
        lambda X, y: (X, [[0.5] * (len(x) - 1) + [np.nan] for x in X]),
        r"y\[0\] has nan at position \d: not a label"),
    "unhashable": (lambda X, y: (X, [[[label] for label in part] for part in y]),
                   "labels must be hashable"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_data(data, kind):
    X, y = data
    n = len(X[LONG])
    assert n > 2
    spoil, message = BAD[kind]
    for place, value in (("{n}", n), ("{less}", n - 1), ("{last}", n - 1)):
        message = message.replace(place, str(value))
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        fit(*spoil(X, y))
    assert caught.type is ValueError


@pytest.mark.parametrize(("lengths", "message"), [
    ([3, 4], "lengths must add up to the number of rows of values, 8, got 7"),
    ([9, -1], "lengths must not be negative; sequence 1 has -1"),
])
def test_bad_lengths(lengths, message):
    with pytest.raises(ValueError, match=message):
        SequenceTagger().fit(np.ones((8, 2)), list("abababab"), lengths=lengths)


def test_lengths_of_a_list_of_matrices_are_refused():
    with pytest.raises(ValueError, match="X as one matrix, and X is a list: leave it out"):
        SequenceTagger().fit(2 * [np.ones((2, 2))], ["ab", "ba"], lengths=[2, 2])


def test_labels_that_do_not_fill_the_lengths():
    with pytest.raises(ValueError, match="y has 7 labels, but X has 8 positions"):
        SequenceTagger().fit(np.ones((8, 2)), list("abababa"), lengths=[4, 4])


def test_weights_that_leave_one_label(data):
    X, y = data
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(24,\).*got \(\)"):
        fit(X, y, sample_weight=2.0)
    y = changed(y, 0, ["z"] * len(y[0]))
    with pytest.raises(ValueError, match="y has one label only, 'z' .among the sequences of non-z"):
        fit(X, y, sample_weight=np.append(1.0, np.zeros(len(X) - 1)))


def test_bad_data_at_prediction(data, fitted):
    X, y = data
    for surrogate, tagger in fitted.items():
        calls = [tagger.predict, tagger.decision_function, lambda X: tagger.predict_kbest(X, 2),
                 lambda X: tagger.score(X, y)]
        if surrogate == "log":
            calls.append(tagger.predict_marginals)
        for call in calls:
            for spoil, message in (
                (lambda: [x[:, :3] for x in X], "X has 3 features, .* is expecting 4"),
                (lambda: changed(X, LONG, spoilt(X[LONG], 0, 1, np.nan)),
                 r"X\[2\] has nan at position 0, feature 1"),
                (lambda: np.concatenate(X), "X is one matrix"),
            ):
                with pytest.raises(ValueError, match=message):
                    call(spoil())
        with pytest.raises(ValueError, match=r"y\[2\] has \d labels, but X\[2\] has \d positions"):
            tagger.score(X, changed(y, LONG, y[LONG][1:]))
        with pytest.raises(ValueError, match="y has 23 sequences, but X has 24"):
            tagger.score(X, y[:-1])
        with pytest.raises(ValueError, match="labels must be hashable"):
            tagger.score(X, [[[label] for label in part] for part in y])


# sizes of numbers


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_strong_regularisation(surrogate):
    """Scores that are small beside the cost of a position: many labels of each are in play.

    Max-min oracles then end at their limit of calls, and the certificate is honest about it.
    """
    X, y = sequences(seed=2, lengths=[20] * 10, R=6)
    tagger = fit(X, y, surrogate, alpha=300.0, tol=1e-3, max_iter=30)
    assert tagger.relative_gap_ <= (0.01 if surrogate == "max_min" else 1e-3)


def test_alpha_that_follows_from_the_data(data, tmp_path):
    X, y = data
    weights = np.arange(len(X)) % 3
    n = weights.sum()
    options = {"surrogate": "max_min", "random_state": 0, "tol": 0.05}
    tagger = SequenceTagger(**options).fit([*X, np.empty((0, 4))], [*y, []], [*weights, 5.0])
    assert (tagger.alpha, tagger.alpha_) == ("auto", 1 / n)
    given = fit(X, y, alpha=1 / n, sample_weight=weights, tol=0.05)
    assert given.alpha_ == tagger.alpha_
    assert_array_equal(given.coef_, tagger.coef_)
    repeated = np.repeat(np.arange(len(X)), weights)
    again = SequenceTagger(**options).fit([X[i] for i in repeated], [y[i] for i in repeated])
    assert again.alpha_ == tagger.alpha_
    # weights that sum to one are those of one sequence
    assert_allclose(SequenceTagger(**options).fit(X, y, weights / n).alpha_, 1.0)
    save_model(tagger, tmp_path / "model.fm4n")
    assert load_model(tmp_path / "model.fm4n").alpha_ == tagger.alpha_
    path = regularization_path(SequenceTagger(random_state=0), X, y, eps=0.2)
    path.save(tmp_path / "path.fm4n")
    for each in (path, RegularizationPath.load(tmp_path / "path.fm4n")):
        assert each.estimator(0.5).alpha_ == each.estimator(0.5).alpha == 0.5
    with pytest.raises(ValueError, match="alpha must be 'auto' or a finite number > 0, got 'scale'"):
        SequenceTagger(alpha="scale").fit(X, y)


def test_many_columns():
    """A million, of which few are used."""
    X, y = sequences()
    columns = np.array([3, 77, 500_000, 999_999])
    wide = []
    for x in X:
        rows = sparse.coo_array(x)
        wide.append(sparse.csr_array(
            (rows.data, (rows.row, columns[rows.col])), shape=(len(x), 1_000_000)))
    narrow = fit(X, y, "log", tol=1e-9)
    tagger = fit(wide, y, "log", tol=1e-9)
    assert tagger.coef_.shape == (3, 1_000_000)
    assert np.count_nonzero(tagger.coef_.any(axis=0)) == 4
    assert_allclose(tagger.coef_[:, columns], narrow.coef_, atol=1e-3)
    assert_same_sequences(tagger.predict(wide), narrow.predict(X))
    assert {row[2] for row in tagger.explain().emissions} == set(columns.tolist())


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_empty_sequences(data, surrogate):
    """They get an empty answer, and are nothing to a fit."""
    X, y = data
    tagger = fit(X, y, surrogate)
    nothing = X[0][:0]
    mixed = [nothing, X[0], nothing, nothing, X[1], []]
    places = [1, 4]
    calls = [tagger.predict, tagger.decision_function]
    if surrogate != "max_margin":
        calls.append(lambda X: tagger.predict(X, decode="min_risk"))
    if surrogate == "log":
        calls.append(tagger.predict_marginals)
    for call in calls:
        for given in mixed, [sparse.csr_matrix(x) for x in mixed[:5]]:
            found, alone = call(given), call([given[place] for place in places])
            assert [len(part) for part in found] == [0, len(X[0]), 0, 0, len(X[1]), 0][: len(given)]
            for place, expected in zip(places, alone, strict=True):
                assert_array_equal(found[place], expected)
        for only in ([nothing], [[]], [nothing, nothing]):
            assert [len(part) for part in call(only)] == [0] * len(only)
    labellings, scores = tagger.predict_kbest(mixed, 3)
    assert labellings[0].shape == (1, 0) and scores[0].tolist() == [0.0]
    expected = tagger.predict_kbest(X[:2], 3)
    for place, b in zip(places, (0, 1), strict=True):
        assert_array_equal(labellings[place], expected[0][b])
        assert_array_equal(scores[place], expected[1][b])
    assert tagger.predict_kbest([nothing], 2)[0][0].shape == (1, 0)
    # with the rules of BIO, an error names the sequence by its place
    with pytest.raises(ValueError, match=r"leaves no labelling for X\[1\]"):
        tagger.predict(mixed, allowed_transitions=np.zeros((3, 3), dtype=bool))
    truth = [[], y[0], [], [], y[1], []]
    assert tagger.score(mixed, truth) == tagger.score(X[:2], y[:2])
    again = fit([nothing, *X, nothing], [[], *y, []], surrogate)
    assert_array_equal(again.coef_, tagger.coef_)
    assert again.duality_gap_ == tagger.duality_gap_


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_there_is_no_predict_proba(data, surrogate):
    tagger = fit(*data, surrogate)
    assert not hasattr(tagger, "predict_proba")
    with pytest.raises(AttributeError, match="SequenceTagger has no predict_proba.*predict_marg"):
        tagger.predict_proba(data[0])
    if surrogate != "log":
        assert not hasattr(tagger, "predict_marginals")
        with pytest.raises(AttributeError, match="predict_marginals needs surrogate='log', and"):
            tagger.predict_marginals(data[0])


def test_long_sequences(fitted):
    """Thousands of positions, beyond the length of Gram matrices."""
    X, y = sequences(seed=5, lengths=[3000, 1, 200, 65, 64])
    for surrogate in SURROGATES:
        tagger = fit(X, y, surrogate, alpha=1.0, tol=0.3)
        assert tagger.relative_gap_ <= 0.3
        assert_same_sequences(tagger.predict(X), labelled(tagger, X))
        assert tagger.score(X, y) > 0.7


@pytest.mark.parametrize("scale", [1e154, 1e300])
def test_features_that_are_too_large(scale):
    X, y = [np.ones((1, 2)), np.full((3, 2), scale), np.zeros((0, 2))], [[0], [0, 1, 1], []]
    for inputs in (X, [sparse.csr_array(x) for x in X]):
        with pytest.raises(ValueError, match=r"too large.*norm of X\[1\].*SequenceScaler"):
            SequenceTagger().fit(inputs, y)
