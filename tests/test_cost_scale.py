"""cost_scale: costs of an output's parts, added or averaged."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.base import clone

from fastm4n import (
    LabelRanker,
    Matcher,
    SequenceTagger,
    Transitions,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.cli import main

T, M, K, D = 4, 3, 3, 2
ALPHA = 0.05
COST = np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 1.0], [3.0, 1.0, 0.0]])


def sequences(n=8):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, D)) for _ in range(n)]
    coef = rng.normal(size=(D, K))
    y = [np.argmax(x @ coef + 0.3 * rng.normal(size=(T, K)), axis=1) for x in X]
    return X, y


def rankings(n=10):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, D))
    scores = X @ rng.normal(size=(D, M)) + 0.3 * rng.normal(size=(n, M))
    return X, np.argsort(np.argsort(scores, axis=1), axis=1)


def matchings(n=10):
    rng = np.random.default_rng(2)
    y = np.argsort(rng.normal(size=(n, M)), axis=1)
    return np.eye(M)[y][..., np.newaxis] + 0.5 * rng.normal(size=(n, M, M, D)), y


KINDS = {
    "sequences": (SequenceTagger, sequences, T, (
        "coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_")),
    "rankings": (LabelRanker, rankings, M, ("coef_", "intercept_")),
    "matchings": (Matcher, matchings, M, ("coef_",)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def fitted(kind, surrogate, alpha=ALPHA, **parameters):
    cls, data, _, _ = KINDS[kind]
    options = dict(cost=COST, tol=1e-9, max_iter=5000, random_state=0)
    return cls(surrogate, alpha=alpha, **{**options, **parameters}).fit(*data())


def weights(estimator, kind):
    return np.concatenate([getattr(estimator, name).ravel() for name in KINDS[kind][3]])


@every_kind
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_sums_are_means_of_other_weights(kind, surrogate):
    # P_sum(w; alpha) = parts P_mean(w / parts; parts alpha), where all have as many parts
    parts = KINDS[kind][2]
    total = fitted(kind, surrogate, cost_scale="sum", tol=1e-4)
    mean = fitted(kind, surrogate, parts * ALPHA, cost_scale="mean", tol=1e-4)
    slack = total.duality_gap_ + parts * mean.duality_gap_
    assert abs(total.primal_objective_ - parts * mean.primal_objective_) <= slack + 1e-12
    assert total.primal_objective_ > 1.5 * mean.primal_objective_
    near = np.sqrt(2 * total.duality_gap_ / ALPHA)
    near += parts * np.sqrt(2 * mean.duality_gap_ / (parts * ALPHA))
    expected = parts * weights(mean, kind)
    assert np.linalg.norm(weights(total, kind) - expected) <= near + 1e-12
    assert near < 0.1 * np.linalg.norm(expected)


@every_kind
def test_log_does_not_depend_on_it(kind):
    fits = [fitted(kind, "log", cost_scale=scale, tol=1e-6) for scale in ("sum", "mean")]
    np.testing.assert_array_equal(*(weights(fit, kind) for fit in fits))
    X = KINDS[kind][1]()[0]
    predicted = [fit.predict(X, "min_risk") for fit in fits]
    for one, other in zip(*predicted, strict=True):
        np.testing.assert_array_equal(one, other)


def game_value(outputs, scores, loss):
    """max over distributions p on outputs of p @ scores + min over outputs of the expected loss."""
    n = len(outputs)
    losses = np.array([[loss(y, z) for z in outputs] for y in outputs])
    solution = linprog(
        -np.append([scores(y) for y in outputs], 1.0),
        A_ub=np.hstack([-losses.T, np.ones((n, 1))]), b_ub=np.zeros(n),
        A_eq=np.append(np.ones(n), 0.0)[None], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
    )
    return -solution.fun


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_the_distribution_over_sequences_is_optimal_for_the_scale(scale):
    tagger = fitted("sequences", "max_min", cost_scale=scale, transitions=Transitions(pairs=False), tol=1e-3)
    share = 1.0 if scale == "sum" else 1.0 / T
    X = sequences()[0][:3]
    decoder = tagger._decoder(X)
    nodes = decoder.nodes().reshape(3, T, K)
    for v, point in zip(tagger.decision_function(X), nodes, strict=True):
        best = game_value(
            list(itertools.product(range(K), repeat=T)),
            lambda y, v=v: v[np.arange(T), y].sum(),
            lambda y, z: share * COST[list(y), list(z)].sum(),
        )
        value = share * (point @ COST).min(axis=1).sum() + np.sum(point * v)
        assert best - T * share * 1e-6 - 1e-9 <= value <= best + 1e-9


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_the_distribution_over_permutations_is_optimal_for_the_scale(scale):
    ranker = fitted("rankings", "max_min", cost_scale=scale, tol=1e-3)
    share = 1.0 if scale == "sum" else 1.0 / M
    scores = ranker.decision_function(rankings()[0][:3])
    outputs = list(itertools.permutations(range(M)))
    points = ranker._decoder(rankings()[0][:3]).marginals()
    for v, point in zip(scores, points, strict=True):
        best = game_value(
            outputs,
            lambda y, v=v: v[np.arange(M), y].sum(),
            lambda y, z: share * COST[list(y), list(z)].sum(),
        )
        risks = point @ COST
        least = min(risks[np.arange(M), z].sum() for z in outputs)
        value = share * least + np.sum(point * v)
        assert best - M * share * 1e-6 - 1e-9 <= value <= best + 1e-9


@every_kind
def test_least_risk_of_the_other_scale_with_scaled_weights(kind):
    _, data, parts, names = KINDS[kind]
    X = data()[0]
    total = fitted(kind, "max_min", cost_scale="sum", tol=1e-3)
    mean = pickle.loads(pickle.dumps(total)).set_params(cost_scale="mean")
    for name in names:
        setattr(mean, name, getattr(total, name) / parts)
    mean = pickle.loads(pickle.dumps(mean))  # packed weights are made anew
    for one, other in zip(
            total.predict(X, "min_risk"), mean.predict(X, "min_risk"), strict=True):
        np.testing.assert_array_equal(one, other)


@every_kind
@pytest.mark.parametrize("value", ["max", None, 1.0])
def test_refused(kind, value):
    with pytest.raises(ValueError, match=r"cost_scale must be one of .*sum.*mean"):
        fitted(kind, "max_min", cost_scale=value)


@every_kind
@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_it_is_kept(kind, scale, tmp_path):
    estimator = fitted(kind, "max_min", cost_scale=scale, tol=1e-2)
    X = KINDS[kind][1]()[0]
    assert clone(estimator).cost_scale == scale
    save_model(estimator, tmp_path / "model.fm4n")
    for copy in (pickle.loads(pickle.dumps(estimator)), load_model(tmp_path / "model.fm4n")):
        assert copy.cost_scale == scale
        for one, other in zip(
                copy.predict(X, "min_risk"), estimator.predict(X, "min_risk"), strict=True):
            np.testing.assert_array_equal(one, other)


@every_kind
@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_a_warm_start_of_another_scale_is_cold(kind, surrogate):
    cls, data, _, _ = KINDS[kind]
    warm = fitted(kind, surrogate, cost_scale="mean", tol=1e-4, warm_start=True)
    warm.set_params(cost_scale="sum").fit(*data())
    cold = fitted(kind, surrogate, cost_scale="sum", tol=1e-4)
    np.testing.assert_array_equal(weights(warm, kind), weights(cold, kind))
    again = warm.fit(*data())
    assert again.n_iter_ <= 1


@every_kind
def test_paths(kind):
    cls, data, parts, _ = KINDS[kind]
    total, mean = (
        regularization_path(
            cls("max_min", cost=COST, cost_scale=scale, random_state=0), *data(), eps=0.01,
            alpha_max=alpha, alpha_min=alpha / 3)
        for scale, alpha in (("sum", 3 * ALPHA), ("mean", 3 * parts * ALPHA))
    )
    for alpha in (ALPHA, 2 * ALPHA):
        one, other = total.estimator(alpha), mean.estimator(parts * alpha)
        assert (one.cost_scale, other.cost_scale) == ("sum", "mean")
        near = np.sqrt(2 * total.gap(alpha) / alpha)
        near += parts * np.sqrt(2 * mean.gap(parts * alpha) / (parts * alpha))
        expected = parts * weights(other, kind)
        assert np.linalg.norm(weights(one, kind) - expected) <= near + 1e-12
    np.testing.assert_allclose(total.objective_at_zero, parts * mean.objective_at_zero)


def test_of_the_command_line(tmp_path):
    lines = "".join(f"{label}\tw={label}{t}\n" for t, label in enumerate("ABBA"))
    (tmp_path / "train.crfsuite").write_text((lines + "\n") * 2)
    model = tmp_path / "model.fm4n"
    for scale in ("sum", "mean"):
        assert main([
            "fit", str(tmp_path / "train.crfsuite"), "--model", str(model), "--set",
            f"cost_scale={scale}"]) == 0
        tagger = load_model(model)
        assert (tagger.cost_scale, tagger.alpha, tagger.alpha_) == (scale, "auto", 0.5)
