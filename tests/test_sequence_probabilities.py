"""Probabilities of labellings and of spans, and entropies, by listing all labellings."""

import functools
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import CalibratedTagger, Sequences, SequenceTagger, Transitions
from fastm4n.automata import Automaton
from fastm4n.base.schemes import SpanRules
from fastm4n.crfsuite import CRF
from fastm4n.inference import span_marginals, sum_product
from fastm4n.inference.automaton import maximise
from fastm4n.inference.automaton import span_marginals as path_span_marginals
from fastm4n.metrics import spans
from fastm4n.surrogates import Log

TAGS = {
    "bio": ["B-x", "I-x", "I-y", "O"], "bioes": ["B-x", "E-x", "I-x", "O", "S-x"],
    "iob1": ["B-x", "I-x", "I-y", "O"], "conlleval": ["B-x", "I-x", "L-x", "O"],
}


@functools.cache
def spans_of(labels, scheme):
    return spans(labels, scheme=scheme)


def data(names, seed, lengths=(3, 0, 1, 4, 2, 3, 4, 4, 4, 3, 4)):
    rng = np.random.default_rng(seed)
    y = [[names[j] for j in rng.integers(len(names), size=T)] for T in lengths]
    y[3] = names[:4]
    return [rng.normal(size=(T, 3)) for T in lengths], y


def model(kind, names, scheme):
    """A tagger, and what its methods are given."""
    X, y = data(names, 0)
    options = {"alpha": 0.05, "tol": 0.01, "random_state": 0}
    given = {}
    if kind == "features":
        options["transitions"] = Transitions(features=[0, 2])
    elif kind == "temperature":
        options["surrogate"] = Log(temperature=2.5)
    elif kind == "order":
        options["transitions"] = Transitions(order=2)
    elif kind == "allowed_transitions":
        given[kind] = scheme if scheme != "conlleval" else ~np.eye(len(names), dtype=bool)
    elif kind == "constraints":
        options["transitions"] = Transitions(order=2)
        given[kind] = Automaton.at_most(2, [names[0]], names)
    elif kind == "allowed":
        mask = [np.random.default_rng(1).random((len(x), len(names))) < 0.6 for x in X]
        for own in mask:
            own[:, 0] = True
        given[kind] = mask
    return SequenceTagger(**options).fit(X, y), given


def listed(tagger, X, names, **given):
    """For each sequence the labellings, as labels, and their probabilities."""
    temperature = getattr(tagger.surrogate, "temperature", 1.0)
    paths, scores = tagger.predict_kbest(X, len(names)**4, **given)
    for own, values in zip(paths, scores):
        p = np.exp((values - values.max()) / temperature)
        yield list(map(tuple, own.tolist())), p / p.sum()


@pytest.mark.parametrize("scheme", TAGS)
@pytest.mark.parametrize("kind", [
    "plain", "features", "temperature", "order", "allowed_transitions", "constraints", "allowed"])
def test_by_listing(kind, scheme):
    names = TAGS[scheme]
    tagger, given = model(kind, names, scheme)
    X = data(names, 0)[0]
    y = tagger.predict(X, **given)
    found = tagger.predict_spans(X, scheme, **given)
    entropies = tagger.entropy(X, **given)
    log_p = tagger.log_probability(X, y, **given)
    some = 0
    for b, (labellings, p) in enumerate(listed(tagger, X, names, **given)):
        assert [span[:3] for span in found[b]] == spans(y[b], scheme=scheme)
        for span in found[b]:
            with_it = [span[:3] in spans_of(labels, scheme) for labels in labellings]
            assert_allclose(span.probability, p @ with_it, rtol=1e-9)
            some += 1
        assert_allclose(entropies[b], -p @ np.log(p), atol=1e-9)
        assert_allclose(log_p[b], np.log(p[0]), atol=1e-9)
    assert some > 1
    # any labelling, allowed or not
    for b in (0, 2, 4):
        own = {key: [value[b]] if key == "allowed" else value for key, value in given.items()}
        known = dict(zip(*next(listed(tagger, [X[b]], names, **own))))
        for labels in itertools.product(names, repeat=len(X[b])):
            value = tagger.log_probability([X[b]], [list(labels)], **own)[0]
            assert_allclose(np.exp(value), known.get(labels, 0.0), atol=1e-12)
            assert labels in known or value == -np.inf


@pytest.mark.parametrize("kind", ["plain", "far", "none"])
@pytest.mark.parametrize("seed", range(4))
def test_spans_of_automata(seed, kind):
    rng = np.random.default_rng(seed)
    names, T = TAGS["bioes"], 4
    R = len(names)
    within = [
        Automaton.anything(names), Automaton.from_regex(".* S-x? .", names),
        Automaton.from_scheme("bioes", names), Automaton.at_most(1, ["O"], names),
    ][seed].over(names)
    unary, more = rng.normal(size=(T, R)), rng.normal(size=within.n_more)
    if kind == "far":
        unary, more = 500.0 * unary, 300.0 * more
    elif kind == "none":
        unary[rng.random((T, R)) < 0.2] = -np.inf
        unary[:, 3:] = 0.0
    every, scores = list(itertools.product(range(R), repeat=T)), []
    for y in every:
        try:
            scores.append(maximise(unary, within, more, allowed=np.eye(R, dtype=bool)[list(y)])[1])
        except ValueError:
            scores.append(-np.inf)
    p = np.exp(np.array(scores) - max(scores))
    p /= p.sum()
    for scheme in ("conlleval", "bioes"):
        rules = SpanRules(names, scheme)
        wanted = {}
        for weight, y in zip(p, every):
            for _, *ends in rules.tags.spans([names[j] for j in y], "y"):
                wanted[0, *ends] = wanted.get((0, *ends), 0.0) + weight
        asked = [(0, a, b) for a in range(T) for b in range(a + 1, T + 1)]
        given = rules.kinds, rules.starts, rules.continues, rules.closes
        found = path_span_marginals(unary, within, asked, *given, more)
        assert_allclose(found, [wanted.get(span, 0.0) for span in asked], rtol=1e-9, atol=1e-14)
        if seed == 0:  # a chain
            stride = within.n_more // R
            pairs = more.reshape(R, stride)[:, :R]
            nodes, edges, _ = sum_product(unary, pairs)
            again, q = span_marginals(nodes, edges, *given, spans=asked)
            assert_array_equal(again, asked)
            assert_allclose(q, found, rtol=1e-7, atol=1e-13)
    assert path_span_marginals(unary, within, [], *given, more).shape == (0,)
    with pytest.raises(ValueError, match="no labelling has a finite score"):
        path_span_marginals(
            unary, within, asked, *given, more, allowed=np.zeros((T, R), dtype=bool))
    with pytest.raises(ValueError, match=r"spans\[0\] is \[0, 2, 5\]"):
        path_span_marginals(unary, within, [[0, 2, 5]], *given, more)
    with pytest.raises(ValueError, match=r"closes must have shape \(5,\), got \(4,\)"):
        path_span_marginals(unary, within, asked, *given[:3], [True] * 4, more)


def test_surely_and_never():
    # certain predictions: no entropy, and probabilities that are one and not above
    X, y = [np.eye(2)[[0, 1, 1]]], [["B-x", "O", "O"]]
    tagger = SequenceTagger(alpha=0.1, random_state=0).fit(X, y)
    far = [1e4 * X[0]]
    for given in ({}, {"constraints": Automaton.anything(tagger.classes_)}):
        assert tagger.entropy(far, **given)[0] == 0.0
        assert tagger.log_probability(far, y, **given)[0] == 0.0
        assert tagger.predict_spans(far, **given) == [[("x", 0, 1, 1.0)]]
        with pytest.warns(UserWarning, match=r"not in classes_ \('I-x'\)"):
            assert tagger.log_probability(far, [["B-x", "I-x", "O"]], **given)[0] == -np.inf
        with pytest.raises(ValueError, match=r"y\[0\] has 2 labels"):
            tagger.log_probability(far, [["O", "O"]], **given)
    nothing = np.zeros((2, 2), dtype=bool)
    for method in (tagger.entropy, tagger.predict_spans, lambda X, **given: (
            tagger.log_probability(X, y, **given))):
        with pytest.raises(ValueError, match=r"leaves no labelling for X\[0\]"):
            method(X, allowed_transitions=nothing)
    empty = [np.zeros((0, 2))]
    assert tagger.predict_spans(empty) == [[]] and tagger.log_probability(empty, [[]])[0] == 0.0


def test_labels_that_are_no_tags_and_margins():
    X = [np.eye(2)]
    tagger = SequenceTagger(random_state=0).fit(X, [["NOUN", "O"]])
    with pytest.raises(ValueError, match=r"classes_\[0\] is 'NOUN': labels must be"):
        tagger.predict_spans(X)
    margin = SequenceTagger("max_margin", random_state=0).fit(X, [["B-x", "O"]])
    for name in ("predict_spans", "log_probability", "entropy"):
        with pytest.raises(AttributeError, match=f"{name} needs surrogate='log'"):
            getattr(margin, name)


def test_calibrated():
    names = TAGS["bio"]
    rng = np.random.default_rng(0)
    y = [[names[j] for j in rng.integers(4, size=4)] for _ in range(40)]
    X = Sequences.from_list([
        np.eye(4)[[names.index(label) for label in own]] + rng.normal(size=(4, 4)) for own in y])
    for surrogate in ("max_margin", "log"):
        decode = "min_risk" if surrogate == "log" else "auto"
        inner = SequenceTagger(surrogate, decode=decode, random_state=0).fit(X[:20], y[:20])
        tagger = CalibratedTagger(inner).calibrate(X[20:], y[20:])
        tau = tagger.calibrated_temperature_
        few, labels = X[:3], inner.predict(X[:3])
        found, entropies = tagger.predict_spans(few, "bio"), tagger.entropy(few)
        paths, scores = inner.predict_kbest(few, 4**4)
        for b in range(3):
            p = np.exp((scores[b] - scores[b][0]) / tau)
            p /= p.sum()
            assert [span[:3] for span in found[b]] == spans(labels[b], scheme="bio")
            for span in found[b]:
                assert_allclose(span.probability, p @ [
                    span[:3] in spans(path, scheme="bio") for path in paths[b]], rtol=1e-9)
            assert_allclose(entropies[b], -p @ np.log(p), atol=1e-9)
            place = paths[b].tolist().index(labels[b].tolist())
            assert_allclose(tagger.log_probability(few, labels)[b], np.log(p[place]), atol=1e-9)
        assert_allclose(-tagger.log_probability(X[20:], y[20:]).mean(), tagger.log_loss(
            X[20:], y[20:]))


def test_probability_of_a_crf():
    xseqs = [[{"w": "a"}, {"w": "b"}], [{"w": "b"}, {"w": "b"}]]
    crf = CRF(c2=0.1).fit(xseqs, [["x", "y"], ["y", "y"]])
    every = [crf.probability(xseqs[0], y) for y in itertools.product("xy", repeat=2)]
    assert_allclose(sum(every), 1.0)
    assert np.argmax(every) == 1
    with pytest.warns(UserWarning, match="not in classes_"):
        assert crf.probability(xseqs[0], ["x", "z"]) == 0.0
