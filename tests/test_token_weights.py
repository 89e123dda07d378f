"""Weights of classes and of tokens of sequences."""

import itertools

import numpy as np
import pytest
from comparisons import assert_same_fit
from numpy.testing import assert_allclose
from roads import assert_same_optimum

from fastm4n import (
    BlockFrankWolfe,
    OutOfCore,
    QuasiNewton,
    RegularizationPathCV,
    Sequences,
    SequenceTagger,
    Transitions,
    load_model,
    save_model,
)
from fastm4n.surrogates import Log
from fastm4n.tasks.base import Partition
from fastm4n.tasks.sequences import SequenceTask

SURROGATES = ("log", "max_margin", "max_min")


def data(n=20, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, 4))
    X, y, weights = [], [], []
    for _ in range(n):
        codes = rng.choice(3, p=[0.6, 0.3, 0.1], size=rng.integers(1, 5))
        X.append(centres[codes] + rng.normal(size=(codes.size, 4)))
        y.append(["abc"[k] for k in codes])
        weights.append(rng.choice([0.5, 1.0, 3.0], size=codes.size))
    return X, y, weights


def tagger(surrogate="max_margin", **parameters):
    return SequenceTagger(surrogate, **{
        "alpha": 0.1, "tol": 1e-5, "max_iter": 20000, "random_state": 0, **parameters})


FORMS = {
    "plain": {}, "edges": {"transitions": Transitions(features=[0])},
    "constraints": {"constraints": ".*"}, "observed": {"states": "observed"},
    "mean": {"cost_scale": "mean"}, "order": {"transitions": Transitions(order=2)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_ones_change_nothing(surrogate, form):
    X, y, _ = data()
    plain = tagger(surrogate, tol=1e-2, **FORMS[form]).fit(X, y)
    ones = [np.ones(len(x)) for x in X]
    for again in (
        tagger(surrogate, tol=1e-2, class_weight={"a": 1, "c": 1.0}, **FORMS[form]).fit(X, y),
        tagger(surrogate, tol=1e-2, **FORMS[form]).fit(X, y, token_weight=ones),
    ):
        assert_same_fit(plain, again)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_twos_are_costs(surrogate, form):
    """Under the margins, mistakes cost twice as much."""
    X, y, _ = data()
    costs = tagger(surrogate, cost=2.0 * (1.0 - np.eye(3)), **FORMS[form]).fit(X, y)
    twos = [np.full(len(x), 2.0) for x in X]
    assert_same_optimum(tagger(surrogate, **FORMS[form]).fit(X, y, token_weight=twos), costs)
    classes = dict.fromkeys("abc", 2.0)
    assert_same_optimum(tagger(surrogate, class_weight=classes, **FORMS[form]).fit(X, y), costs)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_costs_of_positions(surrogate):
    """The certified objective is that of the costs of the positions, by chains and automata."""
    X, y, weights = data()
    factors = {"b": 2.0, "c": 4.0}
    model = tagger(surrogate, class_weight=factors).fit(X, y, token_weight=weights)
    assert model.relative_gap_ <= 1e-5
    automaton = tagger(surrogate, class_weight=factors, constraints=".*").fit(
        X, y, token_weight=weights)
    assert_same_optimum(model, automaton)
    own = [
        part * [factors.get(label, 1.0) for label in labels]
        for part, labels in zip(weights, y, strict=True)]
    by_tokens = tagger(surrogate).fit(X, y, token_weight=own)
    assert_same_fit(model, by_tokens)
    if surrogate == "max_min":
        return
    total = 0.0
    for x, labels, costs in zip(X, y, own, strict=True):
        outs = np.array(list(itertools.product(range(3), repeat=len(x))))
        unary = x @ model.coef_.T + model.intercept_
        unary[0] += model.start_coef_
        unary[-1] += model.end_coef_
        scores = unary[np.arange(len(x)), outs].sum(axis=1)
        scores += model.transition_coef_[outs[:, :-1], outs[:, 1:]].sum(axis=1)
        wrong = outs != ["abc".index(label) for label in labels]
        total += np.max(scores + wrong @ costs) - scores[~wrong.any(axis=1)][0]
    names = "coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_"
    norm = sum(np.sum(getattr(model, name) ** 2) for name in names)
    assert_allclose(model.primal_objective_, total / len(X) + 0.05 * norm, rtol=1e-9)
    again = tagger(surrogate, solver=QuasiNewton()).fit(X, y, token_weight=own)
    assert_same_optimum(model, again)


def test_means_under_log():
    """The weight of a sequence is multiplied by the mean of the weights of its positions."""
    X, y, weights = data()
    means = [np.mean(part) for part in weights]
    assert_same_fit(
        tagger("log").fit(X, y, token_weight=weights), tagger("log").fit(X, y, means))
    given = np.arange(len(X)) % 4
    assert_same_fit(
        tagger("log").fit(X, y, given, token_weight=weights),
        tagger("log").fit(X, y, given * means))
    twos = [np.full(len(x), 2.0) for x in X]
    assert_same_optimum(tagger("log").fit(X, y, token_weight=twos), tagger("log").fit(X, y))
    # softmax-margin has costs as well
    augmented = Log(cost_augmented=True)
    model = tagger(augmented).fit(X, y, token_weight=twos)
    costs = tagger(augmented, cost=2.0 * (1.0 - np.eye(3))).fit(X, y)
    assert_same_optimum(model, costs)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_balanced(surrogate):
    X, y, weights = data()
    flat = np.concatenate([np.array(labels) for labels in y])
    of_tokens = np.concatenate(weights)
    mass = {label: of_tokens[flat == label].sum() for label in "abc"}
    factors = {label: of_tokens.sum() / (3 * mass[label]) for label in "abc"}
    assert_same_optimum(
        tagger(surrogate, class_weight="balanced").fit(X, y, token_weight=weights),
        tagger(surrogate, class_weight=factors).fit(X, y, token_weight=weights))


def test_rare_labels_are_found_more_often():
    X, y, _ = data(200)
    counts = {}
    for weight in (None, {"c": 10.0}):
        found = tagger(class_weight=weight, tol=1e-2).fit(X, y).predict(X)
        counts[weight is None] = sum((labels == "c").sum() for labels in found)
    assert counts[False] > counts[True]


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_forms(surrogate):
    X, y, weights = data()
    first = tagger(surrogate, tol=1e-2).fit(X, y, token_weight=weights)
    flat, lengths = [label for labels in y for label in labels], [len(x) for x in X]
    for more in (
        {"token_weight": Sequences.from_list(weights)},
        {"token_weight": [part.tolist() for part in weights]},
        {"token_weight": weights, "n": 1},
    ):
        more.pop("n", None)
        assert_same_fit(first, tagger(surrogate, tol=1e-2).fit(X, y, **more))
    again = tagger(surrogate, tol=1e-2, n_jobs=2).fit(
        np.concatenate(X), flat, token_weight=np.concatenate(weights), lengths=lengths)
    assert_same_fit(first, again)
    order = np.random.default_rng(0).permutation(len(X))
    again = tagger(surrogate, tol=1e-2).fit(
        [X[i] for i in order], [y[i] for i in order], token_weight=[weights[i] for i in order])
    assert_same_fit(first, again)
    # equal sequences of other weights are not merged
    twice = tagger(surrogate).fit(X + X, y + y, token_weight=weights + [3.0 * w for w in weights])
    assert twice.relative_gap_ <= 1e-5
    # unknown labels have the weights of their positions
    y = [list(labels) for labels in y]
    y[0][0], y[1][0] = None, {"a", "b"}
    model = tagger(surrogate, tol=1e-2, class_weight={"a": 2.0}).fit(X, y, token_weight=weights)
    assert model.certified_for_ == "completions"


def test_other_roads(tmp_path):
    X, y, _ = data()
    factors = {"c": 4.0}
    whole = tagger(class_weight=factors).fit(X, y)
    parts = tagger(class_weight=factors).partial_fit(X[:10], y[:10], list("abc"))
    assert_same_optimum(parts.partial_fit(X[10:], y[10:]), whole)
    save_model(whole, tmp_path / "model")
    assert load_model(tmp_path / "model").class_weight == factors
    for alpha in (1.0, 0.1):
        warm = tagger(class_weight=factors, warm_start=True, alpha=alpha).fit(X, y)
    assert_same_optimum(warm, whole)
    path = RegularizationPathCV(tagger(class_weight=factors, tol=1e-2), eps=0.1, cv=2).fit(X, y)
    assert path.best_estimator_.relative_gap_ <= 0.1
    with pytest.raises(ValueError, match="class_weight=.* is not supported by fits that read"):
        tagger(class_weight=factors, solver=OutOfCore()).fit(X, y)
    with pytest.raises(ValueError, match="token_weight is not supported by fits that read"):
        tagger(solver=OutOfCore()).fit(X, y, token_weight=[np.ones(len(x)) for x in X])
    with pytest.raises(ValueError, match="class_weight='balanced' needs all labels in one place"):
        SequenceTask(tagger(class_weight="balanced")).piece(Partition(X, y))
    assert SequenceTask(tagger(class_weight=factors)).piece(Partition(X, y)).of_tokens.max() == 4.0
    with pytest.raises(ValueError, match="mirror_prox"):
        tagger("max_min", solver=BlockFrankWolfe(oracle="mirror_prox"), class_weight=factors).fit(
            X, y)


def test_refusals():
    X, y, weights = data()
    last = len(X[3])
    for wrong, message in (
        (weights[:-1], "token_weight has 19 sequences, but X has 20"),
        (5, "token_weight must be a list with an array for each sequence"),
        ([*weights[:3], np.ones(last + 1), *weights[4:]],
         rf"token_weight\[3\] has {last + 1} weights, but X\[3\] has {last} positions"),
        ([*weights[:3], np.full(last, -1.0), *weights[4:]],
         r"token_weight\[3\] is -1 at position 0: weights must be finite and >= 0"),
        ([*weights[:3], np.full(last, np.nan), *weights[4:]], r"token_weight\[3\] is nan"),
        ([*weights[:3], ["x"] * last, *weights[4:]], r"token_weight\[3\] must be an array of"),
        ([*weights[:3], np.ones((last, 2)), *weights[4:]], r"token_weight\[3\] must be a vector"),
        (Sequences.from_list(weights[1:]), "token_weight has 19 sequences, but X has 20"),
        ([np.full(len(x), 1e308) for x in X], "weights of up to .* make costs overflow"),
    ):
        with pytest.raises(ValueError, match=message):
            tagger().fit(X, y, token_weight=wrong)
    with pytest.raises(ValueError, match="leave no sequence a weight"):
        tagger("log").fit(X, y, token_weight=[np.zeros(len(x)) for x in X])
    with pytest.raises(ValueError, match="token_weight has 3 weights, but X has"):
        tagger("log").fit(
            np.concatenate(X), sum(y, []), token_weight=np.ones(3), lengths=[len(x) for x in X])
    for wrong, message in (
        ("even", "class_weight must be a dict, 'balanced' or None, got 'even'"),
        ({"z": 2.0}, "class_weight names the class 'z', which is not in y"),
        ({"a": -1.0}, r"class_weight\['a'\] must be a finite number > 0, got -1"),
    ):
        with pytest.raises(ValueError, match=message):
            tagger(class_weight=wrong).fit(X, y)
