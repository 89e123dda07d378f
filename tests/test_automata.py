"""Automata over labels: expressions against `re`, operations against their definition."""

import copy
import itertools
import re

import numpy as np
import pytest

from fastm4n.automata import Automaton

LABELS = ["a", "b", "c"]
EXPRESSIONS = [
    "a* b (c|a b){2,3}", ".* a .", "[^a]*", "(a|b c)*", "", "a{0}", "(a?b+|c{,2})*a", "((a|b)*c)?",
    "[a c]+ (b{2} | c{1,}) .?", "()* | a", "[^a b c] a | b", "(a b c){2}", "(a{2,3}){1,2}",
]


def listed(labels, longest=5):
    return [y for n in range(longest + 1) for y in itertools.product(labels, repeat=n)]


def same(automaton, accepts, labels=LABELS):
    return all(automaton.accepts(y) == bool(accepts(y)) for y in listed(labels))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression):
    pattern = expression.replace(" ", "")
    # re has no sets without an element
    pattern = re.compile(pattern.replace("[^abc]", "(?!)"))
    found = Automaton.from_regex(expression, LABELS)
    assert same(found, lambda y: pattern.fullmatch("".join(y)))
    assert len(found.accepting) == found.n_states == len(found.transitions)


@pytest.mark.parametrize(("expression", "n_states"), [
    ("(a|b)(a|b)", 3), ("a a|a b|b a|b b", 3), (".*", 1), ("(a|b)* a (a|b){3}", 16),
    ("[^a b c]", 1), ("a b | c b", 3),
])
def test_automata_are_the_smallest(expression, n_states):
    assert Automaton.from_regex(expression, LABELS).n_states == n_states


def test_labels_that_need_quotes():
    labels = ["NN$", ".", "B-x", "two words", 3, "it's", ("a", 1)]
    found = Automaton.from_regex("NN$ '.' B-x \"two words\" 3 \"it's\"", labels)
    assert found.accepts(labels[:-1]) and not found.accepts(labels)
    assert Automaton.from_regex('"(\'a\', 1)" *', labels[-1:]).accepts([("a", 1)] * 3)


@pytest.mark.parametrize(("expression", "what"), [
    ("a(", r"'\(' is not closed, at position 1"), ("a )", r"'\)' closes nothing, at position 2"),
    ("*a", r"'\*' has nothing before it, or must be quoted as a label, at position 0"),
    ("a | + b", r"'\+' has nothing before it.* at position 4"),
    ("{2}", r"'\{2\}' has nothing before it"), ("a{3,2}", "more at least than at most, at position 1"),
    ("a{x}", "is no {m}.* at position 1"), ("a{2", "is no {m}"), ("a{99999}", "more than"),
    ("b [a", r"'\[' is not closed, at position 2"), ("[a *]", "'\\*' is no label, in a set"),
    ("a d", "'d' is not one of the labels .* at position 2"), ("'a", "\"'\" is not closed"),
    ("(" * 200 + ")" * 200, "brackets within brackets"), ("a" + " a" * 30_000, "more than 20000 places"),
    ("((a{100}){100}){100}", "more than 20000 places"),
    ("(){20000}{20000}", "more than 20000 places"),
    ("(a|b)* a (a|b){20}", "more than 10000 states"),
])
def test_wrong_expressions(expression, what):
    with pytest.raises(ValueError, match=what) as error:
        Automaton.from_regex(expression, LABELS)
    assert str(error.value).startswith("expression=")


@pytest.mark.parametrize(("one", "other"), [
    *itertools.product(EXPRESSIONS[:6], EXPRESSIONS[6:10])])
def test_operations(one, other):
    a, b = Automaton.from_regex(one, LABELS), Automaton.from_regex(other, LABELS)
    assert same(a & b, lambda y: a.accepts(y) and b.accepts(y))
    assert same(a | b, lambda y: a.accepts(y) or b.accepts(y))
    assert same(~a, lambda y: not a.accepts(y))
    assert ~~a == Automaton.from_regex(f"{one} | [^a b c]", LABELS)


def test_operations_over_other_labels():
    a, b = Automaton.from_regex("a* b", ["a", "b"]), Automaton.from_regex(". .", ["b", "c"])
    assert (a | b).labels == ["a", "b", "c"]
    assert same(a | b, lambda y: a.accepts(y) or b.accepts(y))
    assert same(a & b, lambda y: False)
    with pytest.raises(TypeError):
        a & "a"


def test_counts_and_spans():
    labels = ["B-x", "I-x", "O"]
    tags = listed(labels)
    for n in range(3):
        found = Automaton.at_most(n, ["B-x", "I-x"], labels)
        assert all(found.accepts(y) == (sum(label != "O" for label in y) <= n) for y in tags)
        for begins in ((), ["B-x"]):
            found = Automaton.at_most_spans(n, ["B-x", "I-x"], labels, begins)
            for y in tags:
                spans = sum(
                    label != "O" and (t == 0 or y[t - 1] == "O" or label in begins)
                    for t, label in enumerate(y))
                assert found.accepts(y) == (spans <= n)
    assert Automaton.at_most(0, ["O"], labels).n_states == 1
    assert Automaton.at_most(3, [], labels) == Automaton.anything(labels)


def test_bio():
    labels = ["O", "B-x", "I-x", "B-y", "I-y", "I-z"]
    found = Automaton.bio(labels)
    for y in listed(labels, 3):
        right = all(
            label[0] != "I" or (t > 0 and y[t - 1] in (label, "B" + label[1:]))
            for t, label in enumerate(y))
        assert found.accepts(y) == right


@pytest.mark.parametrize(("make", "what"), [
    (lambda: Automaton([], [[0]], [True]), "labels must have a label"),
    (lambda: Automaton(["a", "a"], [[0, 0]], [True]), "labels has 'a' twice"),
    (lambda: Automaton([["a"]], [[0]], [True]), "labels must be hashable"),
    (lambda: Automaton(["a"], [[1]], [True]), r"transitions\[0, 0\] is 1: they are -1, or a state 0 ... 0"),
    (lambda: Automaton(["a"], [[0, 0]], [True]), r"integers of shape \(1, 1\)"),
    (lambda: Automaton(["a"], [[0.0]], [True]), "integers of shape"),
    (lambda: Automaton(["a"], [[0]], [1]), "accepting must be a vector"),
    (lambda: Automaton(["a"], np.zeros((0, 1), int), np.zeros(0, bool)), "accepting must be a vector"),
    (lambda: Automaton.from_regex(3, LABELS), "expression must be a string"),
    (lambda: Automaton.from_regex("1", [1, "1"]), "needs labels with distinct"),
    (lambda: Automaton.at_most(-1, ["a"], LABELS), "n must be an integer"),
    (lambda: Automaton.at_most(10**6, ["a"], LABELS), "n must be less than"),
    (lambda: Automaton.at_most(1, ["d"], LABELS), "chosen has 'd', which is not in labels"),
    (lambda: Automaton.at_most(1, "ab", LABELS), "chosen must be a list"),
    (lambda: Automaton.at_most_spans(1, ["a"], LABELS, ["b"]), "begins has 'b', which is not in chosen"),
])
def test_bad_input(make, what):
    with pytest.raises(ValueError, match=what):
        make()


def test_copies_are_equal():
    found = Automaton.from_regex(EXPRESSIONS[0], LABELS)
    assert copy.deepcopy(found) == found != Automaton.anything(LABELS)
    assert repr(found) == "<Automaton of 8 states over 3 labels>"
    assert not found.accepts(["d"])
