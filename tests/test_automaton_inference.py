"""Recursions over automata: enumeration holds the plain ones, and these the compiled ones."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.reference as ref
from fastm4n.automata import Automaton
from fastm4n.inference import sum_product, viterbi
from fastm4n.inference._contexts import (
    check_ngrams,
    context_automaton,
    context_rows,
    observed_ngrams,
)
from fastm4n.inference.automaton import LabelAutomaton, k_best, marginals, maximise
from fastm4n.outputs import row_stride

LABELS = ["a", "b", "c"]
CONSTRAINTS = {
    "free": None,
    "once": Automaton.at_most(1, ["b"], LABELS),
    "span": Automaton.at_most_spans(1, ["a", "b"], LABELS, begins=["a"]),
    "expression": Automaton.from_regex("(a c* | b (a|c)+ c?)* b?", LABELS),
}


class Case:
    """Random scores of the n-grams of order q that two random sequences have."""

    def __init__(self, order=2, T=5, R=3, constraint="free", masked=False, seed=0, size=1.0):
        rng = np.random.default_rng(seed)
        self.T, self.R, self.stride = T, R, row_stride(R)
        codes = rng.integers(R, size=14)
        self.ngrams = observed_ngrams(codes, np.array([0, 9, 14]), order)
        self.unary = size * rng.normal(size=(T, R))
        bigrams = size * rng.normal(size=(R, R))
        longer = size * rng.normal(size=len(self.ngrams))
        self.weights = {pair: bigrams[pair] for pair in itertools.product(range(R), repeat=2)}
        for gram, weight in zip(self.ngrams.tolist(), longer, strict=True):
            self.weights[tuple(label for label in gram if label >= 0)] = weight
        dfa = CONSTRAINTS[constraint]
        self.dfa = None if dfa is None else (dfa.transitions, dfa.accepting)
        self.automaton = context_automaton(R, self.stride, self.ngrams, self.dfa)
        self.scores = np.zeros(self.automaton.n_more)
        self.scores[: R * self.stride].reshape(R, -1)[:, :R] = bigrams
        self.scores[R * self.stride :][: longer.size] = longer
        self.allowed = None
        if masked:
            self.allowed = rng.random((T, R)) < 0.7
            one = ref.automaton_viterbi(rng.normal(size=(T, R)), {}, self.dfa)[0]
            self.allowed[np.arange(T), one] = True

    @property
    def given(self):
        return (self.unary, self.weights, self.dfa, self.allowed)

    def compiled(self, function, *args):
        return function(self.unary, self.automaton, *args, self.scores, allowed=self.allowed)

    def counts(self, numbers):
        """Of the n-grams, as a dict."""
        bigrams = numbers[: self.R * self.stride].reshape(self.R, -1)
        found = {pair: bigrams[pair] for pair in itertools.product(range(self.R), repeat=2)}
        behind = numbers[self.R * self.stride :]
        for gram, count in zip(self.ngrams.tolist(), behind, strict=False):
            found[tuple(label for label in gram if label >= 0)] = count
        return found

    def listed(self):
        """All labellings, and their scores by definition."""
        every = np.array(list(itertools.product(range(self.R), repeat=self.T)))
        scores = []
        for y in every.tolist():
            total = sum(self.unary[t, label] for t, label in enumerate(y))
            total += sum(w * ref.ngram_counts(y, [gram])[0] for gram, w in self.weights.items())
            dfa = None if self.dfa is None else Automaton(range(self.R), *self.dfa)
            refused = dfa is not None and not dfa.accepts(y)
            if self.allowed is not None:
                refused |= not all(self.allowed[t, label] for t, label in enumerate(y))
            scores.append(-np.inf if refused else total)
        return every, np.array(scores)


CASES = [
    dict(order=order, constraint=constraint, masked=masked, T=T)
    for order in (1, 2, 3) for constraint in CONSTRAINTS for masked in (False, True)
    for T in ((5,) if masked else (1, 2, 6))]


@pytest.mark.parametrize("options", CASES)
def test_the_reference_agrees_with_enumeration(options):
    case = Case(**options)
    every, scores = case.listed()
    p = np.exp(scores - np.logaddexp.reduce(scores))
    path, value = ref.automaton_viterbi(*case.given)
    assert_allclose(value, scores.max())
    assert_allclose(ref.automaton_score(path, *case.given), value)
    assert_allclose(
        [ref.automaton_score(y, *case.given) for y in every[:40]], scores[:40], rtol=1e-9)
    nodes, counts, log_partition = ref.automaton_marginals(*case.given)
    assert_allclose(log_partition, np.logaddexp.reduce(scores))
    assert_allclose(nodes, np.einsum("y,ytr->tr", p, np.eye(case.R)[every]), atol=1e-12)
    grams = list(case.weights)
    assert_allclose(
        [counts[gram] for gram in grams],
        p @ np.array([ref.ngram_counts(y, grams) for y in every]), atol=1e-12)


@pytest.mark.parametrize("size", [1.0, 50.0, 1e4])
@pytest.mark.parametrize("options", CASES)
def test_compiled_agrees_with_the_reference(options, size):
    """The largest of the scores lie so far apart that sums are in log space."""
    case = Case(**options, size=size)
    path, value = case.compiled(maximise)
    expected, best = ref.automaton_viterbi(*case.given)
    assert path.tolist() == expected
    assert_allclose(value, best)
    nodes, counts, log_partition = case.compiled(marginals)
    of_nodes, of_counts, right = ref.automaton_marginals(*case.given)
    assert_allclose(log_partition, right, rtol=1e-10)
    assert_allclose(nodes, of_nodes, atol=1e-8)
    assert_allclose(nodes.sum(axis=1), 1.0, rtol=1e-12)
    found = case.counts(counts)
    assert found.keys() == of_counts.keys()
    assert_allclose([found[gram] for gram in found], [of_counts[gram] for gram in found], atol=1e-8)


@pytest.mark.parametrize("options", CASES)
def test_k_best_are_the_largest(options):
    case = Case(**options)
    every, scores = case.listed()
    n = int(np.isfinite(scores).sum())
    for k in (1, 7, 2 * len(every)):
        labellings, values = case.compiled(k_best, k)
        order = np.argsort(-scores)[: min(k, n)]
        assert_allclose(values, scores[order])
        assert_array_equal(labellings, every[order])


@pytest.mark.parametrize("T", [1, 2, 9])
@pytest.mark.parametrize("size", [1.0, 300.0])
def test_order_one_is_the_chain(size, T):
    rng = np.random.default_rng(3)
    unary, pairwise = size * rng.normal(size=(T, 4)), size * rng.normal(size=(4, 4))
    stride = row_stride(4)
    automaton = context_automaton(4, stride)
    assert (automaton.n_states, automaton.n_arcs) == (5, 20)
    scores = np.pad(pairwise, [(0, 0), (0, stride - 4)]).ravel()
    path, value = maximise(unary, automaton, scores)
    expected, best = viterbi(unary, pairwise)
    assert_array_equal(path, expected)
    assert value == best
    nodes, counts, log_partition = marginals(unary, automaton, scores)
    of_nodes, of_edges, right = sum_product(unary, pairwise, edges="sum")
    assert_allclose(log_partition, right, rtol=1e-12)
    assert_allclose(nodes, of_nodes, atol=1e-12)
    assert_allclose(counts.reshape(4, -1)[:, :4], of_edges, atol=1e-11)


def test_ties_go_to_the_lower_label():
    for T in (1, 4):
        path, value = maximise(np.zeros((T, 3)), context_automaton(3, row_stride(3)))
        assert path.tolist() == [0] * T
        assert value == 0.0


@pytest.mark.parametrize("scale", [1e150, 1e300])
def test_extreme_scores(scale):
    case = Case(order=3, constraint="expression", size=scale)
    path, value = case.compiled(maximise)
    expected, best = ref.automaton_viterbi(*case.given)
    assert path.tolist() == expected
    assert_allclose(value, best)
    nodes, counts, log_partition = case.compiled(marginals)
    assert_allclose(log_partition, best)
    assert_array_equal(nodes, np.eye(3)[path])
    found = case.counts(counts)
    assert list(found.values()) == ref.ngram_counts(path.tolist(), list(found))


def test_mass_that_cannot_be_accepted_is_not_counted():
    """Paths that are e^900 times as heavy end in no accepting state; a scale must not see them."""
    automaton = Automaton.from_regex("a a a a b | a (a|b|c) a a a", LABELS).over(LABELS)
    unary = np.zeros((5, 3))
    unary[1, 2] = 900.0
    unary[2:, 1] = 900.0
    nodes, _, log_partition = marginals(unary, automaton)
    assert_allclose(nodes[4], [0.5, 0.5, 0.0], atol=1e-12)
    assert_allclose(log_partition, 900.0 + np.log(2.0))


def test_rare_paths_keep_their_digits():
    """A position at a time never is far from the next; the whole is."""
    dfa = Automaton.from_regex("a* | b*", LABELS)
    unary = np.zeros((60, 3))
    unary[:30, 0], unary[30:, 1] = 20.0, 20.5
    nodes, _, log_partition = marginals(unary, dfa.over(LABELS))
    assert_allclose(log_partition, 30 * 20.5)
    assert_allclose(nodes[7, 0], 1 / (1 + np.exp(15.0)), rtol=1e-9)


def test_no_labelling_is_an_error():
    automaton = Automaton.from_regex("a b", LABELS).over(LABELS)
    for function in (maximise, marginals, lambda *args, **more: k_best(*args, 2, **more)):
        with pytest.raises(ValueError, match="no labelling has a finite score"):
            function(np.zeros((3, 3)), automaton)
        with pytest.raises(ValueError, match="no labelling has a finite score"):
            function(np.zeros((2, 3)), automaton, allowed=np.eye(3, dtype=bool)[[1, 1]])
        with pytest.raises(ValueError, match="no labelling has a finite score"):
            function(np.zeros((0, 3)), automaton)
    with pytest.raises(ValueError, match="accept no labelling"):
        Automaton.from_regex("a b", LABELS).over(["c", "a"])


@pytest.mark.parametrize("given, what", [
    (dict(unary=np.zeros((2, 2))), "unary must have shape"),
    (dict(unary=np.full((2, 3), np.nan)), "unary"),
    (dict(scores=np.zeros(2)), "scores must have shape"),
    (dict(allowed=np.ones((2, 3))), "allowed must be a boolean array"),
])
def test_bad_input(given, what):
    automaton = context_automaton(3, row_stride(3))
    given = {"unary": np.zeros((2, 3)), **given}
    with pytest.raises(ValueError, match=what):
        marginals(given.pop("unary"), automaton, **given)


def test_empty_sequence():
    automaton = context_automaton(3, row_stride(3))
    path, value = maximise(np.zeros((0, 3)), automaton)
    assert (path.size, value) == (0, 0.0)
    nodes, counts, log_partition = marginals(np.zeros((0, 3)), automaton)
    assert nodes.shape == (0, 3)
    assert (counts.sum(), log_partition) == (0.0, 0.0)
    assert k_best(np.zeros((0, 3)), automaton, 3)[0].shape == (1, 0)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_states_are_the_observed_contexts(order):
    codes, offsets = np.random.default_rng(0).integers(4, size=40), np.array([0, 3, 21, 40])
    ngrams = observed_ngrams(codes, offsets, order)
    expected = sorted({
        tuple(codes[t : t + n]) for start, stop in itertools.pairwise(offsets)
        for n in range(3, order + 2) for t in range(start, stop - n + 1)
    }, key=lambda gram: (len(gram), gram))
    found = [tuple(label for label in gram if label >= 0) for gram in ngrams.tolist()]
    assert found == expected
    target, feature, parent = context_rows(4, ngrams)
    contexts = {gram[:n] for gram in found for n in range(2, len(gram))}
    assert len(target) == 1 + 4 + len(contexts)
    # each arc by definition
    ordered = sorted([*contexts, *((j,) for j in range(4))], key=lambda c: (c[-1], len(c), c))
    names = [(), *ordered]
    grams = [*itertools.product(range(4), repeat=2), *found]
    for s, context in enumerate(names):
        for label in range(4):
            suffixes = [(*context, label)[i:] for i in range(len(context) + 1)]
            assert names[target[s, label]] == next(c for c in suffixes if c in names)
            right = next((g for g in suffixes if g in grams), None)
            assert feature[s, label] == (-1 if right is None else grams.index(right))
    for gram, suffix in zip(grams, parent, strict=True):
        assert suffix == (-1 if len(gram) == 2 else grams.index(gram[1:]))


def test_arcs_that_back_off_share_a_class():
    """The cost of a position is in the n-grams that are observed."""
    ngrams = observed_ngrams(np.array([0, 1, 2, 0, 1, 2]), np.array([0, 6]), 2)
    automaton = context_automaton(3, row_stride(3), ngrams)
    assert (automaton.n_states, automaton.n_arcs) == (7, 21)
    # 3 arcs out of the start, 9 bigrams and 3 trigrams
    assert automaton.n_classes == 15


@pytest.mark.parametrize("ngrams", [
    [[-1, 0, 1]], [[0, -1, 1]], [[0, 1, 3]], [[0, 1, 2], [0, 1, 2]], [[0, 1, 0, 1]],
])
def test_ngrams_of_a_damaged_file(ngrams):
    with pytest.raises(ValueError, match="n-gram"):
        check_ngrams(np.array(ngrams), 3)


@pytest.mark.parametrize("changed, what", [
    (dict(source=[0, 0]), "one length"), (dict(source=[2]), "arcs join states"),
    (dict(label=[3]), "labels are from 0"), (dict(feature=[1]), "features are from"),
    (dict(parent=[0]), "before its suffix"), (dict(place=[5]), "places of features"),
    (dict(accepting=[True]), "accepting"), (dict(n_states=0), "a state and a label"),
    (dict(source=[0, 0], label=[1, 1], target=[0, 1], feature=[-1, -1]), "two arcs"),
    (dict(source=[0, 0], label=[0, 1], target=[1, 1], feature=[-1, -1]), "one label"),
])
def test_wrong_automata(changed, what):
    given = dict(
        n_labels=2, n_states=2, source=[0], label=[1], target=[1], feature=[0],
        accepting=[True, False], parent=[-1], place=[0], n_more=1)
    assert LabelAutomaton(**given).n_arcs == 1
    with pytest.raises(ValueError, match=what):
        LabelAutomaton(**{**given, **changed})


def test_automata_are_made_once():
    automaton = context_automaton(2, 8)
    with pytest.raises(TypeError, match="made once"):
        automaton.__init__(*automaton.__reduce__()[1])
    with pytest.raises(ValueError, match="not been initialised"):
        maximise(np.zeros((1, 0)), LabelAutomaton.__new__(LabelAutomaton))


def test_small_automata_are_kept():
    ngrams = observed_ngrams(np.array([0, 1, 2, 0]), np.array([0, 4]), 2)
    dfa = Automaton.from_regex("a b", LABELS)
    found = [context_automaton(3, 8, ngrams.copy(), (dfa.transitions.copy(), dfa.accepting))
             for _ in range(2)]
    assert found[0] is found[1]
    assert found[0] is not context_automaton(3, 8, ngrams[:1], (dfa.transitions, dfa.accepting))
    assert found[0] is not context_automaton(3, 8, ngrams, (dfa.transitions, ~dfa.accepting))
    assert found[0] is not context_automaton(3, 8, ngrams)


def test_pickles():
    case = Case(order=3, constraint="expression")
    copy = pickle.loads(pickle.dumps(case.automaton))
    for function in (maximise, marginals):
        for a, b in zip(
                function(case.unary, copy, case.scores), case.compiled(function), strict=True):
            assert_array_equal(a, b)
