"""Complexities and bounds, against enumeration of signs, labellings and repeated samples."""

from itertools import product

import numpy as np
import pytest
from scipy import sparse, stats
from theory_cases import as_matrix, chain_features, exact, listed_factors, tagger

from fastm4n import (
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    Transitions,
)
from fastm4n.research.theory import (
    clopper_pearson,
    empirical_bernstein,
    ensemble_constant,
    excess_risk_bound,
    factor_graph_complexity,
    margin_bound,
    margins,
)
from fastm4n.research.theory._models import ReadModel
from fastm4n.research.theory.bounds import norm_level, union

CASES = {
    "labels": ((1, 1, 1), 2, 3, dict(transitions=False)),
    "no transitions": ((2, 1), 2, 3, dict(transitions=Transitions(pairs=False))),
    "chain": ((2, 1), 2, 2, {}),
    "longer": ((3,), 1, 2, dict(fit_intercept=False)),
    "features of transitions": ((2, 1), 2, 2, dict(transitions=Transitions(features="all"))),
}


@pytest.mark.parametrize("decomposition", ["parts", "positions"])
@pytest.mark.parametrize("case", CASES)
def test_complexity_is_that_of_all_signs(case, decomposition):
    lengths, d, R, parameters = CASES[case]
    rng = np.random.default_rng(1)
    model, X, _ = tagger(rng, lengths, d, R, **parameters)
    found = factor_graph_complexity(model, X, n_draws=400, random_state=0)
    if not model._scored.pairs:
        assert list(found) == ["parts"]
        decomposition = "parts"
    found = found[decomposition]
    listed = listed_factors(model, X, R, decomposition)
    truth = exact(listed, len(X))
    for norm, value in truth.items():
        estimate = found.norms[norm]
        assert estimate.closed_form >= value * (1 - 1e-12), norm
        assert abs(estimate.monte_carlo - value) < 4.5 * estimate.standard_error + 1e-12, norm
        if not np.isnan(estimate.theorem):
            assert estimate.theorem >= estimate.closed_form * (1 - 1e-12), norm
    rows, _ = as_matrix(listed)
    # the closed form of the Euclidean norm is exactly the root of the second moment
    assert found.norms["l2"].closed_form == pytest.approx(np.sqrt((rows**2).sum()) / len(X))
    assert found.r_2 == pytest.approx(max(
        np.sqrt(sum(value**2 for value in psi.values())) for _, psi in listed))
    assert found.r_inf == pytest.approx(max(
        max(abs(value) for value in psi.values()) for _, psi in listed))
    s = {}
    for n_factors, psi in listed:
        for name, value in psi.items():
            s[name] = s.get(name, 0) + n_factors * (value != 0)
    assert found.sparsity == max(s.values())
    assert found.mean_factors == np.mean([
        len(x) + (len(x) - 1) * (decomposition == "parts" and model._scored.pairs) for x in X])


def test_printed_l1_bound_is_below_the_complexity_somewhere():
    # one feature, one weight: E max |Z| for many independent coordinates nears sqrt(2 log 2N)
    rng = np.random.default_rng(0)
    n = 400
    X = np.eye(n)
    y = rng.integers(0, 2, n)
    model = MulticlassClassifier("log", fit_intercept=False, alpha=1.0, tol=0.1).fit(
        np.repeat(X, 30, axis=0), np.repeat(y, 30))
    found = factor_graph_complexity(model, np.repeat(X, 30, axis=0), n_draws=20, random_state=0)
    estimate = found["parts"].norms["l1"]
    assert estimate.printed < estimate.monte_carlo < estimate.theorem


@pytest.mark.parametrize("make", [sparse.csr_array, np.asarray], ids=["csr", "dense"])
def test_labels_are_chains_of_one(make):
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(30, 4)), rng.integers(0, 3, 30)
    X[np.abs(X) < 0.4] = 0
    one = MulticlassClassifier(max_iter=5, tol=0.5).fit(make(X), y)
    chain = SequenceTagger(
        transitions=False, max_iter=5, tol=0.5).fit(
        [x[np.newaxis] for x in X], y[:, np.newaxis])
    a = factor_graph_complexity(one, make(X), random_state=3)["parts"]
    b = factor_graph_complexity(
        chain, [x[np.newaxis] for x in X], random_state=3)["parts"]
    assert a.sparsity == b.sparsity
    for norm in a.norms:
        np.testing.assert_allclose(a.norms[norm], b.norms[norm], rtol=1e-12)


def test_weights_divide_the_dual_norm():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(20, 3)), rng.integers(0, 3, 20)
    model = MulticlassClassifier(fit_intercept=False, max_iter=5, tol=0.5).fit(X, y)
    weights = np.array([1.0, 2.0, 4.0])
    weighed = factor_graph_complexity(model, X, weights=weights, random_state=0)["parts"]
    scaled = MulticlassClassifier(fit_intercept=False, max_iter=5, tol=0.5).fit(X / weights, y)
    plain = factor_graph_complexity(scaled, X / weights, random_state=0)["parts"]
    for norm in ("l1", "linf"):
        assert weighed.norms[norm].closed_form == pytest.approx(plain.norms[norm].closed_form)
        assert weighed.norms[norm].monte_carlo == pytest.approx(plain.norms[norm].monte_carlo)


def test_families_split_the_complexity():
    rng = np.random.default_rng(4)
    model, X, _ = tagger(rng, (4, 3, 2), 5, 3)
    families = ["a", "b", "a", ("c", 1), "b"]
    found = factor_graph_complexity(model, X, families=families, random_state=0)
    for each in found.values():
        assert list(each.families) == [
            "a", "b", "c,1", "(intercept)", "(start)", "(end)", "(transitions)"]
        total = sum(row["l2"] ** 2 for row in each.families.values())
        assert np.sqrt(total) == pytest.approx(each.norms["l2"].closed_form)
        assert sum(row["n_weights"] for row in each.families.values()) == each.n_weights
        largest = max(row["l1"] for row in each.families.values())
        assert largest <= each.norms["l1"].closed_form * (1 + 1e-12)


def test_signs_in_ranges_and_the_same_again(monkeypatch):
    rng = np.random.default_rng(5)
    model, X, _ = tagger(rng, (4, 1, 3, 2), 3, 2, transitions=Transitions(features=[0, 2]))
    whole = factor_graph_complexity(model, X, n_draws=200, random_state=7)
    again = factor_graph_complexity(model, X, n_draws=200, random_state=7)
    assert repr([each.norms for each in whole.values()]) == repr(
        [each.norms for each in again.values()])
    monkeypatch.setattr("fastm4n.research.theory._factors.MOST_SIGNS", 8)  # two positions at a time
    parts = factor_graph_complexity(model, X, n_draws=200, random_state=8)
    for name in whole:
        for norm in whole[name].norms:
            a, b = whole[name].norms[norm], parts[name].norms[norm]
            assert a.closed_form == b.closed_form
            error = np.hypot(a.standard_error, b.standard_error)
            assert abs(a.monte_carlo - b.monte_carlo) < 4.5 * error


def test_empty_sequences_and_no_draws():
    rng = np.random.default_rng(6)
    model, X, _ = tagger(rng, (2, 3), 2, 2)
    found = factor_graph_complexity(model, [*X, np.zeros((0, 2))], n_draws=0)
    alone = factor_graph_complexity(model, X, n_draws=0)
    for name, each in found.items():
        assert np.isnan(each.norms["l1"].monte_carlo)
        # m is one more, and nothing else changes
        assert each.norms["l2"].closed_form == pytest.approx(
            alone[name].norms["l2"].closed_form * 2 / 3)
    nothing = factor_graph_complexity(model, [np.zeros((0, 2))], random_state=0)
    assert nothing["parts"].norms["l1"].closed_form == 0.0 == nothing["parts"].r_2


@pytest.mark.parametrize("parameters", [
    {}, {"transitions": Transitions(features="all")}, {"transitions": Transitions(pairs=False)}, {"transitions": Transitions(start_end=False)}])
def test_reach_and_weights(parameters):
    rng = np.random.default_rng(7)
    model, X, y = tagger(rng, (3, 2, 1), 2, 2, **parameters)
    read = ReadModel(model, X)
    reach = read.factors.reach()
    W = read.weights()
    codes = read.known_codes(y)
    total = 0.0
    for x, labels, bound in zip(X, y, reach, strict=True):
        psis = [
            chain_features(x, labelling, 2, model)
            for labelling in product(range(2), repeat=len(x))]
        names = sorted({name for psi in psis for name in psi}, key=str)
        rows = np.array([[psi.get(name, 0.0) for name in names] for psi in psis])
        distances = np.linalg.norm(rows[:, np.newaxis] - rows, axis=2)
        assert distances.max() <= bound * (1 + 1e-12)
        total += model.decision_function([x])[0][np.arange(len(x)), labels].sum()
        psi = chain_features(x, labels, 2, model, [], None)
        for name, value in psi.items():
            if name[0] == "transition":
                total += value * model.transition_coef_[name[1:]]
            else:
                total += value * model.transition_feature_coef_[name[1:]]
    assert (W * read.factors.truth_sums(codes)).sum() == pytest.approx(total)


# -------------------------------------------------------------------------- margins


COSTS = {
    "zero_one": "zero_one", "absolute": "absolute",
    "asymmetric": [[0, 1, 2], [1, 0, 3], [3, 1, 0]],
    "no multiples": [[0, 1.3, 2], [1, 0, 0.7], [3, 1, 0]],
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", ["mean", "sum", "zero_one"])
@pytest.mark.parametrize("cost", COSTS)
def test_margin_losses_of_all_labellings(cost, loss):
    rng = np.random.default_rng(8)
    selected = "all" if cost == "absolute" else None
    model, X, y = tagger(
        rng, (1, 2, 4, 3), 3, 3, cost=COSTS[cost], transitions=Transitions(features=selected), max_iter=3)
    X, y = [*X, np.zeros((0, 3))], [*y, np.zeros(0, dtype=int)]
    found = margins(model, X, y, loss=loss)
    C, weights = model.cost_matrix_, ReadModel(model, X).weights()

    def score(x, labels):
        return (weights * ReadModel(model, [x]).factors.truth_sums(np.array(labels))).sum()

    lists = []
    for x, truth in zip(X, y, strict=True):
        rows = []
        for other in product(range(3), repeat=len(x)):
            if tuple(truth) != other:
                other = np.array(other)
                L = C[truth, other].sum() / (len(x) if loss == "mean" else 1)
                rows.append((1.0 if loss == "zero_one" else L, score(x, truth) - score(x, other)))
        lists.append(np.array(rows).reshape(-1, 2))
    assert found.margin == pytest.approx([each[:, 1].min(initial=np.inf) for each in lists])
    expected = [
        each[each[:, 1] <= each[:, 1].min() + 1e-12, 0].max() if (each[:, 1] <= 0).any() else 0.0
        for each in lists]
    assert found.loss == pytest.approx(expected)
    assert found.has_multiplicative == (cost != "no multiples" or loss == "zero_one")
    assert found.max_loss == (1.0 if loss == "zero_one" else C.max() * (4 if loss == "sum" else 1))
    for rho in (0.2, 1.0, 7.0):
        add = [(each[:, 0] - each[:, 1] / rho).max(initial=0.0) for each in lists]
        mult = [(each[:, 0] * (1 - each[:, 1] / rho)).max(initial=0.0) for each in lists]
        assert np.maximum(found.additive(rho), 0) == pytest.approx(add)
        clipped = np.clip(add, 0, found.max_loss).mean()
        assert found.empirical(rho) == pytest.approx(clipped)
        assert found.loss.mean() <= clipped + 1e-12
        shift = rng.normal(size=len(X))
        if found.has_multiplicative:
            assert np.maximum(found.multiplicative(rho), 0) == pytest.approx(mult)
            shifted = [
                (each[:, 0] * (1 - (each[:, 1] + change) / rho)).max(initial=0.0)
                for each, change in zip(lists, shift, strict=True)]
            assert found.empirical(rho, "mult", shift) == pytest.approx(
                np.clip(shifted, 0, found.max_loss).mean())
        else:
            with pytest.raises(ValueError, match="whole multiples"):
                found.multiplicative(rho)
        shifted = [
            (each[:, 0] - (each[:, 1] + change) / rho).max(initial=0.0)
            for each, change in zip(lists, shift, strict=True)]
        expected = np.clip(shifted, 0, found.max_loss).mean()
        if found.has_multiplicative:
            assert found.empirical(rho, "add", shift) == pytest.approx(expected)
        else:  # the truth is among the labellings that are decoded: an upper bound
            assert found.empirical(rho, "add", shift) >= expected - 1e-12
            assert found.empirical(rho, "add", np.abs(shift)) == pytest.approx(np.clip([
                (each[:, 0] - (each[:, 1] + change) / rho).max(initial=0.0)
                for each, change in zip(lists, np.abs(shift), strict=True)],
                0, found.max_loss).mean())


@pytest.mark.parametrize("estimator", [MulticlassClassifier, OrdinalClassifier])
def test_margins_of_labels(estimator):
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 4, 40)
    form = {"form": "classes"} if estimator is OrdinalClassifier else {}
    model = estimator("max_margin", max_iter=20, tol=0.1, random_state=0, **form).fit(X, y)
    found = margins(model, X, y)
    scores = model.decision_function(X)
    for i in range(40):
        others = np.flatnonzero(np.arange(4) != y[i])
        gaps, costs = scores[i, y[i]] - scores[i, others], model.cost_matrix_[y[i], others]
        assert found.margin[i] == pytest.approx(gaps.min())
        assert found.additive(0.7)[i] == pytest.approx((costs - gaps / 0.7).max())
        assert found.multiplicative(0.7)[i] == pytest.approx((costs * (1 - gaps / 0.7)).max())
    predicted = model.predict(X)
    assert found.loss == pytest.approx(model.cost_matrix_[y, predicted])


def test_margin_losses_may_fall_where_rho_grows():
    # why bounds are for the rho of a finite grid, and not for all at once
    X, y = [np.eye(2)], [[0, 1]]
    model = SequenceTagger(
        fit_intercept=False, transitions=False, max_iter=1, tol=0.999)
    model.fit(X, y)
    # (0, 0) scores 0.5 more than the truth (0, 1), and all others far less
    model.coef_ = np.array([[10.0, 0.5], [0.0, 0.0]])
    found = margins(model, X, y, loss="mean")
    assert found.margin.tolist() == [-0.5]
    assert found.empirical(2.0) == pytest.approx(0.75) and found.empirical(10.0) == pytest.approx(0.55)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_certified_gap_holds_the_optimum(surrogate):
    rng = np.random.default_rng(10)
    X = [rng.normal(size=(n, 3)) for n in (3, 4, 2, 5, 3, 4)]
    y = [(x[:, 0] + 0.5 * rng.normal(size=len(x)) > 0).astype(int) for x in X]
    options = dict(alpha=0.1, random_state=0, max_iter=5000)
    rough = SequenceTagger(surrogate, tol=3e-2, **options).fit(X, y)
    fine = SequenceTagger(surrogate, tol=1e-8, **options).fit(X, y)
    a, b = ReadModel(rough, X), ReadModel(fine, X)
    moved = np.linalg.norm(a.weights() - b.weights())
    assert 0 < moved <= a.distance_to_optimum() + b.distance_to_optimum()
    bound = a.factors.reach() * (a.distance_to_optimum() + b.distance_to_optimum())
    at, best = margins(rough, X, y), margins(fine, X, y)
    assert (np.abs(at.margin - best.margin) <= bound).all()
    for kind in ("add", "mult"):
        low, high = (at.empirical(1.0, kind, sign * bound) for sign in (1, -1))
        assert low <= best.empirical(1.0, kind) <= high


# --------------------------------------------------------------------------- bounds


def test_margin_bound_constants():
    bound = margin_bound(
        0.1, 0.02, rho=0.5, n_examples=100, delta=0.1, max_loss=2.0, kind="mult",
        printed_complexity=0.01)
    complexity = 4 * np.sqrt(2) / 0.5 * 2 * 0.02
    concentration = 3 * 2 * np.sqrt(np.log(20) / 200)
    assert bound.terms == pytest.approx(
        {"empirical": 0.1, "complexity": complexity, "concentration": concentration})
    assert bound.value == pytest.approx(0.1 + complexity + concentration) and not bound.vacuous
    assert bound.printed == pytest.approx(
        0.1 + complexity / 2 + 6 * np.sqrt(np.log(10) / 200))
    assert margin_bound(0.1, 9.0, rho=1, n_examples=100).vacuous
    assert margin_bound(0.1, np.inf, rho=1, n_examples=100).vacuous


def test_margin_bound_is_above_the_risk():
    # labels of a fixed law: the bound, not vacuous, beside the risk and the complexity itself
    rng = np.random.default_rng(11)
    n, hold = 20000, 0
    model = MulticlassClassifier("max_margin", alpha=1.0, max_iter=30, tol=0.1, random_state=0)
    for _ in range(5):
        y = rng.integers(0, 2, n)
        X = np.clip(rng.normal(2.0 * y - 1, 0.6), -3, 3)[:, np.newaxis] / 3
        model.fit(X[:2000], y[:2000])
        found = margins(model, X, y)
        complexity = factor_graph_complexity(model, X, n_draws=0)["parts"].norms["l2"]
        radius, level = norm_level(np.linalg.norm(ReadModel(model, X).weights()))
        bound = margin_bound(
            found.empirical(0.2), radius * complexity.closed_form, rho=0.2, n_examples=n,
            delta=union(0.05, 1, level))
        threshold = -(model.intercept_[1] - model.intercept_[0]) / np.diff(model.coef_.ravel())[0]
        law = stats.norm(0, 0.6)
        risk = 0.5 * law.sf(3 * threshold + 1) + 0.5 * law.cdf(3 * threshold - 1)
        hold += risk <= bound.value
        assert not bound.vacuous
    assert hold == 5


@pytest.mark.parametrize("kind", ["add", "mult"])
def test_contraction_to_the_factors(kind):
    # R_S of the margin losses of weights in a disk <= (2 sqrt 2 / rho) M R^G_S, all signs listed
    rng = np.random.default_rng(12)
    X, y, k, rho = rng.normal(size=(4, 1)), np.array([0, 1, 1, 0]), 2, 0.7
    angles = np.linspace(0, 2 * np.pi, 400)
    weights = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gaps = X[:, 0] * (weights[:, y] - weights[:, 1 - y])
    losses = 1 - gaps / rho  # one other label, of cost 1
    losses = np.clip(losses, 0, 1)
    signs = np.array(list(product((-1.0, 1.0), repeat=4)))
    standard = (signs @ losses.T).max(axis=1).mean() / 4
    model = MulticlassClassifier(fit_intercept=False, max_iter=1, tol=0.999).fit(X, y)
    assert margins(model, X, y).additive(rho).shape == (4,)
    rows = np.zeros((8, 2))
    for i, label in product(range(4), range(k)):
        rows[2 * i + label, label] = X[i, 0]
    every = np.array(list(product((-1.0, 1.0), repeat=8)))
    factors = np.linalg.norm(every @ rows, axis=1).mean() / 4
    closed = factor_graph_complexity(model, X, n_draws=0)["parts"].norms["l2"].closed_form
    assert 0 < standard <= 2 * np.sqrt(2) / rho * factors <= 2 * np.sqrt(2) / rho * closed


@pytest.mark.parametrize("n, errors", [(1, 0), (1, 1), (20, 0), (50, 7), (30, 30)])
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_clopper_pearson_is_scipys(n, errors, delta):
    test = stats.binomtest(errors, n)
    both = test.proportion_ci(1 - delta, "exact")
    assert clopper_pearson(errors, n, delta, "both") == pytest.approx((both.low, both.high))
    upper = stats.binomtest(errors, n, alternative="less").proportion_ci(1 - delta, "exact")
    assert clopper_pearson(errors, n, delta) == pytest.approx((0.0, upper.high))


@pytest.mark.parametrize("p", [0.02, 0.3])
def test_coverage_of_held_out_bounds(p):
    rng = np.random.default_rng(13)
    n, repeats, delta = 80, 1000, 0.1
    errors = rng.binomial(n, p, repeats)
    of = {e: clopper_pearson(int(e), n, delta) for e in np.unique(errors)}
    covered = np.mean([of[e][1] >= p for e in errors])
    assert 1 - delta - 3 * np.sqrt(delta * (1 - delta) / repeats) <= covered
    losses = 2.0 * rng.beta(1, 9, size=(repeats, n))
    bounds = [empirical_bernstein(row, delta, 2.0).value for row in losses[:300]]
    assert np.mean(np.array(bounds) >= 0.2) >= 1 - delta


def test_empirical_bernstein_formula():
    losses = np.array([0.0, 0.5, 1.0, 0.25])
    bound = empirical_bernstein(losses, 0.1)
    log = np.log(20)
    assert bound.value == pytest.approx(
        losses.mean() + np.sqrt(2 * losses.var(ddof=1) * log / 4) + 7 * log / 9)
    assert bound.vacuous


def test_shares_of_delta_and_balls():
    levels = np.arange(-3000, 3001)
    assert 0.99 < sum(union(1.0, 1, int(j)) for j in levels) <= 1
    assert union(0.1, 4) == pytest.approx(0.025)
    for norm in (1e-300, 0.3, 1.0, 2.0, 5.7, 1e300):
        radius, j = norm_level(norm)
        assert norm <= radius <= norm * 2**0.25 * (1 + 1e-12) and radius == 2 ** (j / 4)
    assert norm_level(0.0) == (0.0, 0) and norm_level(np.inf)[0] == np.inf


def test_ensemble_and_excess_risk_constants():
    corrected, printed = ensemble_constant(0.5, n_examples=1000, n_families=4, log_outputs=8.0)
    n = np.ceil(16 * (16 + np.log(0.25 * 1000 / (4 * np.log(4)))))
    root = np.sqrt(n * np.log(4) / 1000 + np.log(40) / 2000)
    first = 4 * np.sqrt(np.log(4) / 1000)
    assert corrected == pytest.approx(first + 3 * root)
    assert printed == pytest.approx(first + 9 * root)
    expected, _ = ensemble_constant(
        0.5, n_examples=1000, n_families=4, log_outputs=8.0, empirical=False)
    assert expected == pytest.approx(first + root)
    bound = excess_risk_bound(
        1e-3, alpha=0.1, n_examples=1000, constant=3.0, lipschitz=1.5, radius=2.0, optimum_norm=2)
    assert bound.terms == pytest.approx({
        "optimisation": 6e-3, "estimation": 3 * 16 * 9 * (32 + np.log(20)) / 100,
        "regularisation": 0.6})
    assert bound.vacuous


@pytest.mark.parametrize("call, message", [
    (lambda: margin_bound(0, 0, rho=0, n_examples=5), "rho"),
    (lambda: margin_bound(0, 0, rho=1, n_examples=5, delta=1.5), "delta must be between"),
    (lambda: margin_bound(0, 0, rho=1, n_examples=5, kind="sum"), "kind"),
    (lambda: clopper_pearson(6, 5), "n_errors is 6"),
    (lambda: clopper_pearson(1, 5, side="lower"), "side"),
    (lambda: empirical_bernstein([0.1]), "two examples"),
    (lambda: empirical_bernstein([0.1, 1.2]), r"losses\[1\] is 1.2"),
    (lambda: empirical_bernstein([0.1, np.nan]), r"losses\[1\] is nan"),
    (lambda: ensemble_constant(1, n_examples=5, n_families=1, log_outputs=1), "n_families"),
])
def test_bounds_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()
