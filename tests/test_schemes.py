"""Schemes of spans, against a list of all sets of spans, and what is predicted by their rules."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import Sequences, SequenceTagger, Transitions
from fastm4n.automata import Automaton
from fastm4n.base.schemes import RULES, SpanRules
from fastm4n.data import convert_scheme, labels_to_spans, spans_to_labels
from fastm4n.metrics import span_f1_score, span_precision_recall_f1, span_report, spans

TAGS = {"bio": "BI", "bioes": "BIES", "bilou": "BILU", "iob1": "BI"}
KINDS = "x", "y"


def labels_of(scheme, kinds=KINDS):
    return [*(f"{tag}-{kind}" for kind in kinds for tag in TAGS[scheme]), "O"]


def written(found, length, scheme):
    """The labels of spans in order, word by word as the schemes are described."""
    y = ["O"] * length
    for n, (kind, start, stop) in enumerate(found):
        own = ["I"] * (stop - start)
        if scheme in ("bioes", "bilou"):
            own[0], own[-1] = "B", "E" if scheme == "bioes" else "L"
            if len(own) == 1:
                own = ["S" if scheme == "bioes" else "U"]
        elif scheme == "bio" or n and found[n - 1][0] == kind and found[n - 1][2] == start:
            own[0] = "B"
        y[start:stop] = [f"{tag}-{kind}" for tag in own]
    return y


def sets_of_spans(length, start=0, kinds=KINDS):
    """All sets of spans that do not overlap, in order."""
    if start == length:
        return [[]]
    found = sets_of_spans(length, start + 1, kinds)
    for stop in range(start + 1, length + 1):
        found = found + [
            [(kind, start, stop), *more] for kind in kinds
            for more in sets_of_spans(length, stop, kinds)]
    return found


@pytest.mark.parametrize("scheme", RULES)
def test_labels_of_every_set_of_spans(scheme):
    rng = np.random.default_rng(0)
    valid = Automaton.from_scheme(scheme, labels_of(scheme))
    for length in range(5):
        every = sets_of_spans(length)
        y = [written(found, length, scheme) for found in every]
        assert len(set(map(tuple, y))) == len(y)
        shuffled = [[found[i] for i in rng.permutation(len(found))] for found in every]
        assert spans_to_labels(shuffled, [length] * len(y), scheme) == y
        assert labels_to_spans(y, scheme) == every
        assert labels_to_spans(y, "conlleval") == every
        assert [spans(own, scheme=scheme) for own in y] == every
        for target in RULES:
            assert convert_scheme(y, scheme, target) == [
                written(found, length, target) for found in every]
        if length > 3:
            continue
        # labels that break the rules are refused, and no others
        right = set(map(tuple, y))
        for own in itertools.product(labels_of(scheme), repeat=length):
            assert valid.accepts(own) == (own in right)
            if own not in right:
                with pytest.raises(ValueError, match=r"y\[0\]\[\d\] is '.*cannot"):
                    labels_to_spans([own], scheme)


@pytest.mark.parametrize("scheme", RULES)
def test_strict_reading_by_its_rules(scheme):
    # a span is in the reading if it begins as a span may there, goes on and is ended
    rng = np.random.default_rng(1)
    opens = {"bio": "B", "bioes": "BS", "bilou": "BU", "iob1": "I"}[scheme]
    closes = {"bio": "BI", "bioes": "ES", "bilou": "LU", "iob1": "BI"}[scheme]

    def joined(a, b):
        return a[1:] == b[1:] and a[0] in "BI" and b[0] in {"bioes": "IE", "bilou": "IL"}.get(
            scheme, "I")

    n_broken = 0
    for _ in range(300):
        y = rng.choice(labels_of(scheme), rng.integers(8)).tolist()
        found = []
        for start, label in enumerate(y):
            before = y[start - 1] if start else "O"
            if scheme == "iob1":
                begins = label[0] == "I" and not joined(before, label) or (
                    label[0] == "B" and before[1:] == label[1:])
            else:
                begins = label[0] in opens
            if label == "O" or not begins:
                continue
            stop = start + 1
            while stop < len(y) and joined(y[stop - 1], y[stop]):
                stop += 1
            if y[stop - 1][0] in closes:
                found.append((label[2:], start, stop))
        assert spans(y, scheme=scheme) == found
        n_broken += found != spans(y)
        # what the lenient reading finds can be written in any scheme
        mended = convert_scheme([y], "conlleval", scheme)
        assert labels_to_spans(mended, scheme) == [spans(y)]
    assert n_broken > 50


def test_scores_of_schemes():
    y_true = [["B-x", "E-x", "S-y"], ["O"]]
    y_pred = [["B-x", "I-x", "S-y"], ["O"]]  # the first is not ended
    assert span_f1_score(y_true, y_pred) == 1.0
    assert span_precision_recall_f1(y_true, y_pred, scheme="bioes") == (1.0, 0.5, 2 / 3)
    report = span_report(y_true, y_pred, scheme="bioes")
    assert [row.label for row in report.types] == ["x", "y"]
    each = span_precision_recall_f1(y_true, y_pred, scheme="bioes", average=None)
    assert_array_equal(np.transpose([row[1:4] for row in report.types]), each)
    assert report.total == ("all", 1.0, 0.5, 2 / 3, 2, 1, 1)
    assert str(report).splitlines()[1:] == [
        "x       0.0000  0.0000  0.0000       1          0",
        "y       1.0000  1.0000  1.0000       1          1",
        "all     1.0000  0.5000  0.6667       2          1"]
    assert [row.label for row in span_report(y_true, y_pred, labels=["z", "y"]).types] == ["z", "y"]
    assert span_report([["O"]], [["O"]]).total == ("all", 0.0, 0.0, 0.0, 0, 0, 0)


@pytest.mark.parametrize("call, message", [
    (lambda: labels_to_spans([["O"], ["O", "X-PER"]]), r"y\[1\]\[1\] is 'X-PER': labels must be 'O'"),
    (lambda: labels_to_spans([["B-x", "B"]]), r"y\[0\]\[1\] is 'B': it has no type, and another"),
    (lambda: labels_to_spans([["B", "B-x"]]), r"y\[0\]\[1\] is 'B-x': it has a type, and another"),
    (lambda: labels_to_spans([["O", "S-x"]]), r"y\[0\]\[1\] is 'S-x': .* B or I, a .*scheme='bio'"),
    (lambda: labels_to_spans([["O", "I-x"]]), r"y\[0\]\[1\] is 'I-x', which cannot follow 'O'"),
    (lambda: labels_to_spans([["I-x"]]), r"y\[0\]\[0\] is 'I-x', which cannot be first"),
    (lambda: labels_to_spans([["O"], ["B-x"]], "bioes"), r"y\[1\]\[0\] is 'B-x', which cannot be la"),
    (lambda: labels_to_spans([["B-x", "O"]], "bilou"), r"y\[0\]\[1\] is 'O', which cannot follow"),
    (lambda: labels_to_spans([[None]]), r"y\[0\]\[0\] is None"),
    (lambda: labels_to_spans([], "iob"), "scheme must be one of"),
    (lambda: spans_to_labels([[("x", 0, 2), ("y", 1, 3)]], [3]), r"spans\[0\] .*overlap at position 1"),
    (lambda: spans_to_labels([[("x", 1, 2), ("y", 0, 3)]], [3]), r"spans\[0\] .*overlap at position 1"),
    (lambda: spans_to_labels([[], [("x", 0, 2)]], [1, 1]), r"spans\[1\] has a span from 0 to 2"),
    (lambda: spans_to_labels([[("x", 1, 1)]], [3]), r"spans\[0\] has a span from 1 to 1"),
    (lambda: spans_to_labels([[]], [3, 4]), "spans has 1 sequences, but lengths has 2"),
    (lambda: spans_to_labels([], [], "conlleval"), "scheme must be one of"),
    (lambda: convert_scheme([], "bio", "iob"), "target must be one of"),
    (lambda: convert_scheme([], "iob", "bio"), "source must be one of"),
    (lambda: Automaton.from_scheme("bio", ["O", "E-x"]), r"labels\[1\] is 'E-x': labels must be"),
    (lambda: Automaton.from_scheme("conlleval", ["O"]), "scheme must be one of"),
])
def test_errors_name_label_sequence_and_position(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_labels_without_types_and_empty_sequences():
    y = [["B", "I", "B", "O"], []]
    assert labels_to_spans(y) == [[("", 0, 2), ("", 2, 3)], []]
    assert convert_scheme(y, "bio", "bilou") == [["B", "L", "U", "O"], []]
    assert convert_scheme(Sequences.from_list(y), "bio", "iob1") == [["I", "I", "B", "O"], []]
    assert spans_to_labels([], []) == [] and labels_to_spans([]) == []
    rules = SpanRules(["O"])
    assert rules.types == [] and rules.after.all() and rules.first.all() and rules.last.all()


# ----------------------------------------------------------------------- predictions by the rules


def noisy(scheme, seed, n=40):
    """Sequences with the labels of random spans, by noisy features."""
    rng = np.random.default_rng(seed)
    names, every = labels_of(scheme), {T: sets_of_spans(T) for T in range(5)}
    y = []
    for _ in range(n):
        T = int(rng.integers(5))
        y.append(written(every[T][rng.integers(len(every[T]))], T, scheme))
    X = [
        np.array([np.eye(len(names))[names.index(label)] for label in own]).reshape(-1, len(names))
        + rng.normal(size=(len(own), len(names))) for own in y]
    return X, y


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("scheme", RULES)
def test_predictions_keep_to_a_scheme(scheme, order):
    X, y = noisy(scheme, 0)
    tagger = SequenceTagger(
        transitions=Transitions(order=order), alpha=0.1, tol=0.01, random_state=0).fit(X, y)
    new = [9.0 * x for x in noisy(scheme, 1)[0]]
    classes = tagger.classes_.tolist()
    right = [{tuple(written(s, T, scheme)) for s in sets_of_spans(T)} for T in range(5)]
    free, kept = tagger.predict(new), tagger.predict(new, allowed_transitions=scheme)
    assert any(tuple(own) not in right[len(own)] for own in free)
    labellings, scores = tagger.predict_kbest(new, len(classes)**4)
    marginals = tagger.predict_marginals(new, allowed_transitions=scheme)
    for b, own in enumerate(kept):
        assert tuple(own) in right[len(own)]
        if len(own) == 0:
            continue
        listed = [
            (score, labels) for score, labels in zip(scores[b], labellings[b])
            if tuple(labels) in right[len(own)]]
        assert_array_equal(own, listed[0][1])
        p = np.exp([score - listed[0][0] for score, _ in listed])
        expected = np.zeros(marginals[b].shape)
        for weight, (_, labels) in zip(p / p.sum(), listed):
            expected[np.arange(len(own)), [classes.index(label) for label in labels]] += weight
        assert_allclose(marginals[b], expected, atol=1e-10)
    # the same rules as an automaton, in the fit and in predictions
    valid = Automaton.from_scheme(scheme, classes)
    assert tagger.predict(new, constraints=valid).equals(kept)
    within = SequenceTagger(constraints=valid, alpha=0.1, tol=0.01, random_state=0).fit(X, y)
    assert all(tuple(own) in right[len(own)] for own in within.predict(new))


def test_labels_outside_of_the_scheme_of_a_tagger():
    X = [np.eye(3)]
    tagger = SequenceTagger(random_state=0).fit(X, [["O", "B-x", "X-x"]])
    with pytest.raises(ValueError, match=r"classes_\[2\] is 'X-x': .*allowed_transitions='bio'"):
        tagger.predict(X, allowed_transitions="bio")
    with pytest.raises(ValueError, match="allowed_transitions must be one of .*'bilou', 'iob1'"):
        tagger.predict(X, allowed_transitions="conlleval")
