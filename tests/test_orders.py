"""`SequenceTagger` of higher order, and within constraints."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import fastm4n
import fastm4n.reference as ref
from fastm4n import Sequences, SequenceTagger, Transitions
from fastm4n.automata import Automaton
from fastm4n.models._state import estimator_from_state, estimator_state
from fastm4n.penalties import ElasticNet, Group
from fastm4n.surrogates import Log

SURROGATES = ("max_margin", "max_min", "log")
LABELS = ["a", "b", "c"]
LENGTHS = (5, 1, 6, 0, 3, 6, 4, 2)
# constraints, and labellings of every length that they accept
SORTED = "a* b* c*"


def data(constraints=None, seed=0, lengths=LENGTHS):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, 3)) for n in lengths]
    y = [rng.choice(LABELS, size=n).tolist() for n in lengths]
    return X, [sorted(part) for part in y] if constraints == SORTED else y


def fitted(surrogate="log", order=2, X=None, y=None, **options):
    if X is None:
        X, y = data(options.get("constraints"))
    options = {"alpha": 0.05, "tol": 0.02, "random_state": 0, **options}
    fit = {name: options.pop(name) for name in ("allowed", "sample_weight") if name in options}
    scored = {name: options.pop(name) for name in ("features", "pairs") if name in options}
    return SequenceTagger(surrogate, transitions=Transitions(order=order, **scored), **options).fit(X, y, **fit)


def scores_of(tagger, x):
    """Scores in the form of the reference."""
    unary = x @ tagger.coef_.T + tagger.intercept_
    unary[0] += tagger.start_coef_
    unary[-1] += tagger.end_coef_
    R = len(tagger.classes_)
    weights = {(i, j): tagger.transition_coef_[i, j] for i in range(R) for j in range(R)}
    for gram, weight in zip(
            getattr(tagger, "ngrams_", np.zeros((0, 2), int)).tolist(),
            getattr(tagger, "ngram_coef_", ()), strict=True):
        weights[tuple(label for label in gram if label >= 0)] = weight
    return unary, weights


def given(automaton):
    return None if automaton is None else (automaton.transitions, automaton.accepting)


WITHIN = [None, SORTED, Automaton.at_most_spans(2, ["a"], LABELS)]


@pytest.mark.parametrize("within", WITHIN, ids=["free", "sorted", "spans"])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_predictions_are_those_of_the_reference(order, within):
    X, _ = data()
    automaton = Automaton.from_regex(within, LABELS) if within == SORTED else within
    rng = np.random.default_rng(1)
    allowed = [rng.random((len(x), 3)) < 0.7 for x in X]
    for mask in allowed:
        mask[:, 1] |= True
    tagger = fitted(order=order)
    for masks in (None, allowed):
        options = {"constraints": within, "allowed": masks}
        labels, marginals = tagger.predict(X, **options), tagger.predict_marginals(X, **options)
        best, values = tagger.predict_kbest(X, 3, **options)
        risky = tagger.predict(X, decode="min_risk", **options)
        for i, x in enumerate(X):
            if not len(x):
                assert len(labels[i]) == 0 and best[i].shape == (1, 0)
                continue
            args = (*scores_of(tagger, x), given(automaton), None if masks is None else masks[i])
            y, value = ref.automaton_viterbi(*args)
            assert labels[i].tolist() == best[i][0].tolist() == [LABELS[code] for code in y]
            assert_allclose(values[i][0], value)
            every = sorted((
                ref.automaton_score(y, *args)
                for y in itertools.product(range(3), repeat=len(x))), reverse=True)
            n = min(3, int(np.isfinite(every).sum()))
            assert_allclose(values[i], every[:n])
            nodes = ref.automaton_marginals(*args)[0]
            assert_allclose(marginals[i], nodes, atol=1e-9)
            # the least expected number of errors, among what is accepted
            y, most = ref.automaton_viterbi(nodes, {}, *args[2:])
            codes = np.searchsorted(LABELS, risky[i])
            assert np.isfinite(ref.automaton_score(codes, *args))
            assert_allclose(nodes[np.arange(len(x)), codes].sum(), most)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("constraints", [None, SORTED])
def test_the_objective_is_that_of_the_fitted_weights(surrogate, constraints):
    """By enumeration of all labellings, of the loss and of what is accepted."""
    X, y = data(constraints)
    tagger = fitted(surrogate, 2, X, y, constraints=constraints, alpha=0.1, tol=1e-4)
    automaton = None if constraints is None else given(Automaton.from_regex(SORTED, LABELS))
    losses = []
    for x, labels in zip(X, y, strict=True):
        if not labels:
            continue
        true, args = np.searchsorted(LABELS, labels), (*scores_of(tagger, x), automaton)
        every = np.array(list(itertools.product(range(3), repeat=len(x))))
        scores = np.array([ref.automaton_score(other, *args) for other in every])
        every, scores = every[np.isfinite(scores)], scores[np.isfinite(scores)]
        costs = (every != true).sum(axis=1)
        truth = ref.automaton_score(true, *args)
        if surrogate == "log":
            losses.append(np.logaddexp.reduce(scores) - truth)
        elif surrogate == "max_margin":
            losses.append((costs + scores).max() - truth)
    if surrogate != "max_min":
        norm = sum(
            np.sum(getattr(tagger, name) ** 2) for name in (
                "coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_",
                "ngram_coef_"))
        # empty sequences cost nothing and do not count
        right = np.mean(losses) + 0.05 * norm
        assert_allclose(tagger.primal_objective_, right, rtol=1e-6)
    assert 0 <= tagger.relative_gap_ <= 1e-4
    assert tagger.dual_objective_ <= tagger.primal_objective_


def test_ngrams_are_named_by_the_data():
    X, y = data()
    for order in (2, 3, 5):
        tagger = fitted(order=order)
        found = {
            tuple(LABELS[code] for code in gram if code >= 0) for gram in tagger.ngrams_.tolist()}
        assert found == {
            tuple(part[t : t + n]) for part in y for n in range(3, order + 2)
            for t in range(len(part) - n + 1)}
        assert tagger.ngram_coef_.shape == (len(found),)
        assert tagger.ngrams_.shape == (len(found), order + 1)
    again = SequenceTagger("log", alpha=0.05, tol=0.02, random_state=0).fit(X, y)
    assert not hasattr(again, "ngrams_")
    tagger.set_params(transitions=Transitions(order=1)).fit(X, y)
    assert not hasattr(tagger, "ngrams_") and not hasattr(tagger, "ngram_coef_")
    assert_array_equal(tagger.coef_, again.coef_)


def test_order_two_learns_what_order_one_cannot():
    """Whether b or c follows depends on the label before the last."""
    y = [list("abacabac"), list("bacabac"), list("cabacaba")] * 4
    X = [np.ones((len(part), 1)) for part in y]
    # the first two labels are told
    for x, part in zip(X, y, strict=True):
        x[:2] = 0.0
        x[:2, :1] = np.array([[ord(label) - ord("b")] for label in part[:2]]) * 3.0
    assert fitted("log", 1, X, y, alpha=1e-3).score(X, y) < 0.9
    assert fitted("log", 2, X, y, alpha=1e-3).score(X, y) == 1.0


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_constraints_hold_in_predictions_and_fits(surrogate):
    X, y = data(SORTED)
    tagger = fitted(surrogate, 2, X, y, constraints=SORTED)
    other = data(seed=5, lengths=(9, 30, 1))[0]
    decodings = ("map",) if surrogate == "max_margin" else ("map", "min_risk")
    for decode in decodings:
        assert all(part.tolist() == sorted(part) for part in tagger.predict(other, decode=decode))
    free = tagger.predict(other, constraints=Automaton.anything(LABELS))
    assert any(part.tolist() != sorted(part) for part in free)
    # constraints make the loss smaller: fewer labellings compete
    assert tagger.primal_objective_ < fitted(surrogate, 2, X, y).primal_objective_


def test_masks_of_a_fit():
    X, y = data()
    codes = [np.searchsorted(LABELS, part) for part in y]
    only = [np.eye(3, dtype=bool)[part] for part in codes]
    tagger = fitted(X=X, y=y, allowed=only)
    assert np.abs(tagger.coef_).max() == tagger.primal_objective_ == 0.0
    allowed = [mask | (np.arange(3) == 2) for mask in only]
    tagger = fitted(X=X, y=y, allowed=allowed)
    assert 0.0 < tagger.primal_objective_ < fitted(X=X, y=y).primal_objective_
    one = SequenceTagger("log", transitions=Transitions(order=2), alpha=0.05, tol=0.02, random_state=0).fit(
        np.concatenate(X), sum(y, []), lengths=LENGTHS, allowed=np.concatenate(allowed))
    assert_array_equal(one.coef_, tagger.coef_)
    X2 = Sequences.from_list([x for x in X if len(x)])
    masks = Sequences.from_list([mask for mask in allowed if len(mask)])
    found = tagger.predict(X2, allowed=masks)
    for part, mask in zip(found, masks, strict=True):
        assert mask[np.arange(len(part)), np.searchsorted(LABELS, part)].all()


def test_equal_sequences_under_other_masks_are_not_merged():
    X, y = data()
    X, y = [X[5]], [list("abcacb")]
    masks = [np.ones((6, 3), dtype=bool), np.eye(3, dtype=bool)[np.searchsorted(LABELS, y[0])]]
    # the second has no loss: the first's at twice its weight
    half = fitted(X=X * 2, y=y * 2, allowed=masks, tol=1e-6)
    one = fitted(X=X, y=y, alpha=0.1, tol=1e-6)
    assert_allclose(2 * half.primal_objective_, one.primal_objective_, rtol=1e-4)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_weights_are_repetitions_and_order_does_not_matter(surrogate):
    X, y = data(SORTED)
    twice = fitted(surrogate, 3, X + [X[0]], y + [y[0]], constraints=SORTED)
    weighted = fitted(
        surrogate, 3, X, y, constraints=SORTED, sample_weight=[2] + [1] * (len(X) - 1))
    turned = fitted(surrogate, 3, X[::-1] + [X[0]], y[::-1] + [y[0]], constraints=SORTED)
    left_out = fitted(
        surrogate, 3, X + [X[0][:2]], y + [["c", "a"]], constraints=SORTED,
        sample_weight=[2] + [1] * (len(X) - 1) + [0])
    for other in (weighted, turned, left_out):
        assert_allclose(other.coef_, twice.coef_, rtol=1e-12, atol=1e-13)
        assert_allclose(other.ngram_coef_, twice.ngram_coef_, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_threads_copies_and_files(surrogate, tmp_path):
    X, y = data(SORTED)
    tagger = fitted(surrogate, 3, X, y, constraints=Automaton.from_regex(SORTED, LABELS))
    threads = fitted(surrogate, 3, X, y, constraints=SORTED, n_jobs=2)
    fastm4n.save_model(tagger, tmp_path / "m")
    for other in (
            threads, pickle.loads(pickle.dumps(tagger)), fastm4n.load_model(tmp_path / "m"),
            clone(tagger).fit(X, y)):
        assert_array_equal(other.ngram_coef_, tagger.ngram_coef_)
        assert_array_equal(other.ngrams_, tagger.ngrams_)
        for a, b in zip(other.predict(X), tagger.predict(X), strict=True):
            assert_array_equal(a, b)
    loaded = fastm4n.load_model(tmp_path / "m")
    assert loaded.constraints == tagger.constraints
    # weights that are replaced are used
    loaded.ngram_coef_ = np.zeros_like(loaded.ngram_coef_)
    loaded.coef_ = np.zeros_like(loaded.coef_)
    assert not all(
        np.array_equal(a, b) for a, b in zip(loaded.predict(X), tagger.predict(X), strict=True))


@pytest.mark.parametrize("change", [
    lambda tagger: setattr(tagger, "ngrams_", tagger.ngrams_[1:]),
    lambda tagger: setattr(tagger, "ngrams_", tagger.ngrams_ + 3),
    lambda tagger: setattr(tagger, "ngrams_", tagger.ngrams_[:, :2]),
    lambda tagger: setattr(tagger, "ngrams_", np.roll(tagger.ngrams_, 1, axis=0)[::-1] * 0),
    lambda tagger: tagger.set_params(transitions=Transitions(order=3)),
    lambda tagger: delattr(tagger, "ngrams_"),
])
def test_damaged_models_are_not_saved(change, tmp_path):
    tagger = fitted(order=2)
    change(tagger)
    with pytest.raises((ValueError, TypeError, AttributeError)):
        fastm4n.save_model(tagger, tmp_path / "m")


@pytest.mark.parametrize("change", [
    lambda content, arrays: content.pop("labels"),
    lambda content, arrays: content.update(labels={"list": []}),
    lambda content, arrays: content.update(labels={"tuple": ["a", "b", "c"]}),
    lambda content, arrays: content.update(labels={"list": ["a", "a", "c"]}),
    lambda content, arrays: content.update(accepting=True),
    lambda content, arrays: arrays.update(
        {"parameters/constraints.accepting": np.ones(9, dtype=bool)}),
    lambda content, arrays: arrays["parameters/constraints.transitions"].fill(77),
    lambda content, arrays: arrays.update(
        {"parameters/constraints.transitions": np.zeros((3, 3))}),
])
def test_forged_constraints_are_refused(change):
    X, y = data(SORTED)
    tagger = fitted(X=X, y=y, constraints=Automaton.from_regex(SORTED, LABELS))
    state, arrays = estimator_state(tagger)
    arrays = {name: np.array(array) for name, array in arrays.items()}
    assert estimator_from_state(state, dict(arrays)).constraints == tagger.constraints
    change(state["parameters"]["constraints"]["automaton"], arrays)
    with pytest.raises((ValueError, TypeError, KeyError)):
        estimator_from_state(state, arrays)


def test_warm_starts():
    """From the same labellings only."""
    X, y = data(SORTED)
    tagger = fitted(X=X, y=y, warm_start=True, constraints=SORTED)
    cold = tagger.n_iter_
    assert tagger.set_params(alpha=0.049).fit(X, y).n_iter_ < cold
    for options in ({"transitions": Transitions(order=3)}, {"constraints": None}, {"constraints": ".*"}):
        again = tagger.set_params(**options).fit(X, y).n_iter_
        fresh = fitted(
            X=X, y=y, alpha=0.049, order=tagger.transitions.order, constraints=tagger.constraints)
        assert again == fresh.n_iter_
        assert_array_equal(tagger.coef_, fresh.coef_)


def test_paths_and_searches(tmp_path):
    X, y = data(SORTED)
    tagger = SequenceTagger("log", transitions=Transitions(order=2), constraints=SORTED, random_state=0)
    path = fastm4n.regularization_path(tagger, X, y, eps=0.2, alpha_min=0.05)
    model = path.estimator(0.07)
    objective = fitted(X=X, y=y, constraints=SORTED, alpha=0.07, tol=1e-6).primal_objective_
    assert objective - 1e-9 <= model.primal_objective_ <= objective + path.gap(0.07) + 1e-9
    path.save(tmp_path / "p")
    again = fastm4n.RegularizationPath.load(tmp_path / "p").estimator(0.07)
    assert_array_equal(again.ngram_coef_, model.ngram_coef_)
    for a, b in zip(again.predict(X), path.predict(X, 0.07), strict=True):
        assert_array_equal(a, b)
    search = GridSearchCV(
        SequenceTagger("max_margin", transitions=Transitions(), tol=0.1, random_state=0), {"transitions__order": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_["transitions__order"] in (1, 2)


def test_penalties_and_observed_states():
    X, y = data()
    penalty = ElasticNet(0.5, weights={"ngram_coef": 100.0}, bounds={"ngram_coef": (-1, 1)})
    assert np.all(fitted(penalty=penalty).ngram_coef_ == 0.0)
    sparse = fitted(penalty=ElasticNet(0.5, weights={"coef": 100.0}))
    assert np.all(sparse.coef_ == 0.0) and np.any(sparse.ngram_coef_ != 0.0)
    tagger = fitted(X=X, y=y, states="observed", surrogate="max_margin")
    pairs = {(a, b) for part in y for a, b in itertools.pairwise(part)}
    for i, j in itertools.product(range(3), repeat=2):
        assert (tagger.transition_coef_[i, j] == 0.0) == ((LABELS[i], LABELS[j]) not in pairs)
    assert np.any(tagger.ngram_coef_ != 0.0)
    with pytest.raises(ValueError, match="needs transitions of order=1"):
        fitted(penalty=Group())
    with pytest.raises(ValueError, match="ngram_coef"):
        fitted(order=1, penalty=ElasticNet(0.5, weights={"ngram_coef": 1.0}))


def test_allowed_transitions_go_with_constraints():
    X, _ = data()
    pairs = np.ones((3, 3), dtype=bool)
    pairs[0, 1] = False
    for tagger in (fitted(order=1), fitted(order=2)):
        for part in tagger.predict(X, allowed_transitions=pairs, constraints="a* b* c* . ?"):
            labels = part.tolist()
            assert ("a", "b") not in set(itertools.pairwise(labels))
            assert labels[:-1] == sorted(labels[:-1])
    B = [["B-x", "I-x", "O"][LABELS.index(label)] for label in "abcabc"]
    tagger = fitted(X=[X[0], X[0] + 1, X[2]], y=[B[:5], B[:5], B], order=2)
    for part in tagger.predict(X, allowed_transitions="bio"):
        assert Automaton.bio(["B-x", "I-x", "O"]).accepts(part)


def test_explanations_name_ngrams():
    tagger = fitted(order=3)
    found = tagger.explain(n_strongest=2)
    for weight, gram in found.ngrams:
        codes = [LABELS.index(label) for label in gram]
        row = [-1] * (4 - len(codes)) + codes
        place = tagger.ngrams_.tolist().index(row)
        assert weight == tagger.ngram_coef_[place]
    assert "n-grams" in str(found) and " -> ".join(found.ngrams[0][1]) in str(found)
    assert fitted(order=1).explain().ngrams == ()


def bad(**options):
    X, y = data()
    return fitted(X=X, y=y, **options)


def predicted(X=None, **options):
    return fitted().predict(data()[0] if X is None else X, **options)


@pytest.mark.parametrize(("call", "what"), [
    (lambda: bad(constraints=SORTED), r"y\[\d\] is not among .* exclude '.' at position"),
    (lambda: bad(constraints=".* a"), r"y\[\d\] is not among .* do not accept its end, after"),
    (lambda: bad(constraints="a* d"), "constraints: expression='a\\* d': 'd' is not one"),
    (lambda: bad(constraints=Automaton.from_regex("x y", ["x", "y"])), "accept no labelling"),
    (lambda: bad(constraints=7), "constraints must be a regular expression"),
    (lambda: bad(constraints=".*", order=1, features="all"), "needs transitions without features"),
    (lambda: bad(features="all"), "order=2 needs"),
    (lambda: bad(pairs=False), "order=2 needs"),
    (lambda: bad(order=1, features="all", allowed=[np.ones((n, 3), bool) for n in
                 LENGTHS]), "allowed needs transitions without features"),
    (lambda: bad(order=0), "order must be an integer > 0"),
    (lambda: bad(order=10**9), "order must be at most 32"),
    (lambda: bad(allowed=[np.ones((n, 2), bool) for n in LENGTHS]), r"allowed\[0\] must be bool"),
    (lambda: bad(allowed=[np.ones((n, 3)) for n in LENGTHS]), r"allowed\[0\] must be boolean"),
    (lambda: bad(allowed=[np.ones((2, 3), bool)]), "allowed must be a list of 8"),
    (lambda: bad(allowed=[np.eye(3, dtype=bool)[[0] * n] for n in LENGTHS]), r"y\[.\] is not"),
    (lambda: predicted(constraints="a b"), r"leave no labelling for X\[0\]"),
    (lambda: predicted(constraints="d"), "'d' is not one of the labels"),
    (lambda: predicted(constraints=3), "constraints must be"),
    (lambda: predicted(allowed=[np.zeros((n, 3), bool) for n in LENGTHS]),
     r"allowed\[0\] allows no label at position 0"),
    (lambda: predicted(allowed=Sequences.from_list([np.ones((1, 3), bool)])), "other lengths"),
    (lambda: fitted("max_margin").predict(data()[0], decode="min_risk"), "min_risk"),
    (lambda: fitted(order=1, features="all").predict(
        data()[0], constraints=".*"), "whose transitions have no features"),
    (lambda: SequenceTagger(transitions=Transitions(order=2), solver=fastm4n.BlockFrankWolfe(oracle="mirror_prox")).fit(
        *data()), "mirror_prox"),
])
def test_bad_input(call, what):
    with pytest.raises(ValueError, match=what):
        call()


def test_not_fitted():
    with pytest.raises(NotFittedError):
        SequenceTagger(transitions=Transitions(order=2)).predict(data()[0], constraints=".*")


@pytest.mark.parametrize("surrogate", ["max_min", "log"])
def test_least_risk_of_nothing(surrogate):
    tagger = fitted(surrogate, 2)
    assert tagger.predict([np.zeros((0, 3))], decode="min_risk", constraints="a")[0].size == 0
    assert len(tagger.predict_marginals([np.zeros((0, 3))])[0]) == 0 if surrogate == "log" else True


def test_a_temperature_is_that_of_predictions():
    X, _ = data()
    tagger = fitted(order=2, surrogate=Log(0.5))
    for x, marginals in zip(X, tagger.predict_marginals(X), strict=True):
        if len(x):
            unary, weights = scores_of(tagger, x)
            cold = {gram: 2 * weight for gram, weight in weights.items()}
            assert_allclose(
                marginals, ref.automaton_marginals(2 * unary, cold)[0], atol=1e-9)
