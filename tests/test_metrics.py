"""Scores of spans against conlleval, shares of right labels, and scores of rankings."""


import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kendalltau, spearmanr

from fastm4n.data._rankings import places_to_orderings, places_to_strings
from fastm4n.data._sequences import Sequences
from fastm4n.datasets import load_conll
from fastm4n.metrics import (
    hamming_ranking_loss,
    kendall_tau_score,
    matching_f1_score,
    matching_precision_score,
    matching_recall_score,
    sequence_accuracy,
    span_f1_score,
    span_precision_recall_f1,
    spans,
    spearman_rho_score,
    token_accuracy,
)

# conlleval decides token by token, from the tags before and here; types are looked at apart.
# "S" and the step from "E" to "B" are in its versions for BIOES only.
END = set("BB BO IB IO EE EI EO".split())
START = set("BB IB OB OI EE EI OE".split())
END_BIOES = END | set("BS IS ES EB SE SI SO SS SB".split())
START_BIOES = START | set("SB EB BS IS OS SS ES SI SE".split())


def split(label):
    tag, hyphen, kind = label.partition("-")
    return (tag, kind) if hyphen else (label, "")


def end_of_chunk(before, tag, kind_before, kind, table):
    return (
        before + tag in table
        or (before not in ("O", ".") and kind_before != kind)
        or before in ("[", "]")
    )


def start_of_chunk(before, tag, kind_before, kind, table):
    return (
        before + tag in table
        or (tag not in ("O", ".") and kind_before != kind)
        or tag in ("[", "]")
    )


def conlleval(y_true, y_pred, end=END_BIOES, start=START_BIOES):
    """Numbers of annotated, predicted and right chunks, in all and by type, as the script counts.

    It reads all sequences as one, with an O between them.
    """
    true, found, right = {"": 0}, {"": 0}, {"": 0}

    def count(counter, kind):
        counter[""] += 1
        counter[kind, ] = counter.get((kind, ), 0) + 1

    in_correct = False
    last_correct = last_guessed = ("O", "")
    for annotated, predicted in zip(y_true, y_pred):
        for label, other in [*zip(annotated, predicted), ("O", "O")]:
            correct, guessed = split(label), split(other)
            correct_ends = end_of_chunk(
                last_correct[0], correct[0], last_correct[1], correct[1], end
            )
            guessed_ends = end_of_chunk(
                last_guessed[0], guessed[0], last_guessed[1], guessed[1], end
            )
            correct_starts = start_of_chunk(
                last_correct[0], correct[0], last_correct[1], correct[1], start
            )
            guessed_starts = start_of_chunk(
                last_guessed[0], guessed[0], last_guessed[1], guessed[1], start
            )
            if in_correct:
                if correct_ends and guessed_ends and last_guessed[1] == last_correct[1]:
                    in_correct = False
                    count(right, last_correct[1])
                elif correct_ends != guessed_ends or guessed[1] != correct[1]:
                    in_correct = False
            if correct_starts and guessed_starts and guessed[1] == correct[1]:
                in_correct = True
            if correct_starts:
                count(true, correct[1])
            if guessed_starts:
                count(found, guessed[1])
            last_correct, last_guessed = correct, guessed
    if in_correct:
        count(right, last_correct[1])
    return true, found, right


def scores(true, found, right, key=""):
    true, found, right = (counter.get(key, 0) for counter in (true, found, right))
    precision = right / found if found else 0.0
    recall = right / true if true else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return precision, recall, f1


def random_labels(rng, tags, kinds, length):
    tags = rng.choice(tags, length)
    kinds = rng.choice(kinds, length)
    return [tag if tag in "O." else f"{tag}-{kind}" for tag, kind in zip(tags, kinds)]


def random_pair(rng, tags, kinds):
    """Two lists of label sequences that agree here and there."""
    lengths = rng.integers(0, 9, rng.integers(1, 5))
    y_true = [random_labels(rng, tags, kinds, length) for length in lengths]
    y_pred = [
        [b if rng.random() < 0.3 else a for a, b in zip(labels, random_labels(
            rng, tags, kinds, len(labels)))]
        for labels in y_true
    ]
    return y_true, y_pred


@pytest.mark.parametrize("kinds", [["X"], ["X", "Y"], ["A-B", "A", "B"]], ids="/".join)
@pytest.mark.parametrize(
    ("tags", "script"),
    [
        ("BIO", (END, START)),
        ("IO", (END, START)),
        ("IEO", (END, START)),
        ("IEO", (END_BIOES, START_BIOES)),
        ("BIESO", (END_BIOES, START_BIOES)),
        ("[]O", (END, START)),
        ("[.", (END, START)),
        ("].O", (END_BIOES, START_BIOES)),
    ],
)
def test_spans_are_those_of_conlleval(tags, kinds, script):
    rng = np.random.default_rng(len(tags) + len(kinds))
    some_right = 0
    for _ in range(50):
        y_true, y_pred = random_pair(rng, list(tags), kinds)
        counts = conlleval(y_true, y_pred, *script)
        assert_allclose(span_precision_recall_f1(y_true, y_pred), scores(*counts))
        types = sorted({key[0] for counter in counts for key in counter if key != ""})
        by_type = np.array([scores(*counts, (kind,)) for kind in types]).reshape(-1, 3)
        assert_allclose(
            np.transpose(span_precision_recall_f1(y_true, y_pred, average=None)), by_type
        )
        some_right += 0 < scores(*counts)[2] < 1
    assert some_right > 16


def test_brackets_among_other_tags_are_found_as_conlleval_finds_them():
    rng = np.random.default_rng(0)
    for _ in range(300):
        y_true, y_pred = random_pair(rng, list("BIESO[]"), ["X", "Y"])
        true, found, _ = conlleval(y_true, y_pred)
        assert sum(len(spans(labels)) for labels in y_true) == true[""]
        assert sum(len(spans(labels)) for labels in y_pred) == found[""]
        assert span_f1_score(y_true, y_true) == (1.0 if true[""] else 0.0)


def test_conll2000(data_folder):
    data = load_conll(data_folder / "conll2000" / "test.txt.gz")
    y_true = data.labels
    counts = conlleval(y_true, y_true, END, START)
    assert counts[0][""] == 23_852  # the number of chunks that the shared task reports
    assert span_f1_score(y_true, y_true) == 1.0
    # the label that a part of speech has most often: errors of all kinds
    tags = [[token[1] for token in sentence] for sentence in data.tokens]
    often = {}
    for labels, sentence in zip(y_true, tags):
        for label, tag in zip(labels, sentence):
            often.setdefault(tag, []).append(label)
    often = {tag: max(sorted(set(seen)), key=seen.count) for tag, seen in often.items()}
    y_pred = [[often[tag] for tag in sentence] for sentence in tags]
    counts = conlleval(y_true, y_pred, END, START)
    expected = scores(*counts)
    assert 0.7 < expected[2] < 0.9
    assert_allclose(span_precision_recall_f1(y_true, y_pred), expected, rtol=1e-15)
    arrays = Sequences.from_list(y_true), Sequences.from_list(y_pred)
    assert span_precision_recall_f1(*arrays) == span_precision_recall_f1(y_true, y_pred)
    right = sum(a == b for s, p in zip(y_true, y_pred) for a, b in zip(s, p))
    assert token_accuracy(*arrays) == right / 47_377


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([], []),
        (["O", "O"], []),
        (["B-X"], [("X", 0, 1)]),
        (["B-X", "I-X", "O", "B-X"], [("X", 0, 2), ("X", 3, 4)]),
        (["B-X", "B-X"], [("X", 0, 1), ("X", 1, 2)]),
        # IOB1, and what models predict
        (["I-X", "I-X", "B-X"], [("X", 0, 2), ("X", 2, 3)]),
        (["B-X", "I-Y", "I-Y"], [("X", 0, 1), ("Y", 1, 3)]),
        (["O", "I-X", "O", "I-X"], [("X", 1, 2), ("X", 3, 4)]),
        # BIOES
        (["S-X", "S-X", "B-X", "E-X", "S-X"], [("X", 0, 1), ("X", 1, 2), ("X", 2, 4), ("X", 4, 5)]),
        (["B-X", "I-X", "E-X", "B-X", "E-X"], [("X", 0, 3), ("X", 3, 5)]),
        (["E-X", "I-X", "B-X", "S-X", "I-X"],
         [("X", 0, 1), ("X", 1, 2), ("X", 2, 3), ("X", 3, 4), ("X", 4, 5)]),
        (["I-X", "E-X", "I-X", "E-X", "E-X"], [("X", 0, 2), ("X", 2, 4), ("X", 4, 5)]),
        # BILOU
        (["U-X", "U-X", "B-X", "L-X", "U-X"], [("X", 0, 1), ("X", 1, 2), ("X", 2, 4), ("X", 4, 5)]),
        (["L-X", "I-X", "L-X", "U-Y"], [("X", 0, 1), ("X", 1, 3), ("Y", 3, 4)]),
        (["[-X", "]-X", ".", "]-X", "[-Y"], [("X", 0, 1), ("X", 1, 2), ("X", 3, 4), ("Y", 4, 5)]),
        (["B-X", "[-X", "O"], [("X", 0, 1), ("X", 1, 2)]),
        (["]-X", "I-X", "O"], [("X", 0, 1)]),
        # types with a hyphen, and without a name
        (["B-X-a", "I-X-a", "I-X-b"], [("X-a", 0, 2), ("X-b", 2, 3)]),
        (["B", "I", "O", "I", "B"], [("", 0, 2), ("", 3, 4), ("", 4, 5)]),
    ],
)
def test_spans(labels, expected):
    assert spans(labels) == expected
    assert spans(tuple(labels)) == expected
    assert spans(np.array(labels, dtype=str)) == expected
    assert spans(np.array(labels, dtype=object)) == expected


def test_a_span_must_be_right_in_all():
    y_true = [["B-X", "I-X", "O", "B-Y", "O"]]
    for y_pred, expected in [
        (y_true, 1.0),
        ([["I-X", "I-X", "O", "I-Y", "O"]], 1.0),  # the same spans in IOB1
        ([["B-X", "O", "O", "B-Y", "O"]], 0.5),  # ends too early
        ([["B-X", "I-X", "I-X", "B-Y", "O"]], 0.5),  # too late
        ([["O", "B-X", "O", "B-Y", "O"]], 0.5),  # starts too late
        ([["B-Z", "I-Z", "O", "B-Y", "O"]], 0.5),  # of another type
        ([["O", "O", "O", "B-Y", "O"]], 2 / 3),  # is missed
        ([["B-X", "I-X", "O", "B-Y", "B-Y"]], 0.8),  # one too many
        ([["O"] * 5], 0.0),
    ]:
        assert span_f1_score(y_true, y_pred) == pytest.approx(expected)


def test_a_span_does_not_go_on_in_the_next_sequence():
    assert span_f1_score([["B-X"], ["I-X"]], [["B-X"], ["B-X"]]) == 1.0
    assert span_f1_score([["B-X", "I-X"]], [["B-X", "B-X"]]) == 0.0


def test_averages():
    # X: 2 annotated, 3 predicted, 1 right; Y: 1, 1, 1; Z: 1, 0, 0
    y_true = [["B-X", "O", "B-X", "O", "B-Y", "B-Z"], []]
    y_pred = [["B-X", "B-X", "B-X", "I-X", "B-Y", "O"], []]
    each = [[1 / 3, 1, 0], [1 / 2, 1, 0], [2 / 5, 1, 0]]
    assert_allclose(span_precision_recall_f1(y_true, y_pred, average=None), each)
    for average, expected in [
        ("micro", [2 / 4, 2 / 4, 4 / 8]),
        ("macro", np.mean(each, axis=1)),
        ("weighted", np.average(each, axis=1, weights=[2, 1, 1])),
    ]:
        result = span_precision_recall_f1(y_true, y_pred, average=average)
        assert_allclose(result, expected)
        assert all(type(score) is float for score in result)
        assert span_f1_score(y_true, y_pred, average=average) == result[2]
    assert_allclose(span_f1_score(y_true, y_pred, average=None, labels=["Y", "X"]), [1, 2 / 5])
    assert span_f1_score(y_true, y_pred, labels=["Z", "Y"]) == pytest.approx(2 / 3)
    assert span_f1_score(y_true, y_pred, average="macro", labels=["Y", "W"]) == 0.5


def test_zero_division():
    nothing, something = [["O", "O"]], [["B-X", "O"]]
    for average in ("micro", "macro", "weighted"):
        for value in (0.0, 1.0):
            arguments = {"average": average, "zero_division": value}
            assert span_precision_recall_f1(nothing, nothing, **arguments) == (value,) * 3
            arguments["labels"] = ["X"]
            assert span_f1_score(nothing, nothing, **arguments) == value
            if average != "weighted":  # it weights by what is annotated, which is nothing
                result = span_precision_recall_f1(nothing, something, **arguments)
                assert result == (0.0, value, 0.0)
            assert span_precision_recall_f1(something, nothing, **arguments) == (value, 0.0, 0.0)
    arguments = {"labels": ["X", "Y"], "zero_division": np.nan}
    assert_array_equal(
        span_f1_score(something, something, average=None, **arguments), [1.0, np.nan]
    )
    assert span_f1_score(something, something, average="macro", **arguments) == 1.0
    assert np.isnan(span_f1_score(nothing, nothing, average="macro", **arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"average": "samples"}, "average must be one of"),
        ({"scheme": "iobes"}, "scheme must be one of"),
        ({"zero_division": 2}, "zero_division must be in"),
    ],
)
def test_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        span_f1_score([["O"]], [["O"]], **arguments)


def test_types_are_a_list():
    with pytest.raises(TypeError, match="not the string 'NP'"):
        span_f1_score([["O"]], [["O"]], labels="NP")


@pytest.mark.parametrize("label", ["NP", "A-X", "BI-X", "b-X", "", "-X", "O-X", ".-X", 3, None])
def test_labels_that_mark_no_spans(label):
    with pytest.raises(ValueError, match=r"y_pred\[1\]\[2\] is .*: labels must be 'O', or B"):
        span_f1_score([["O"], ["O"] * 3], [["O"], ["B-X", "O", label]])
    with pytest.raises(ValueError, match=r"labels\[0\]"):
        spans([label])


# ------------------------------------------------------------------------------ all scores

ALL = [span_f1_score, span_precision_recall_f1, token_accuracy, sequence_accuracy]


def test_accuracies():
    y_true = [["a", "b"], [1, 2, 3], [], [("x", 1)]]
    y_pred = [["a", "c"], [1, 2, 3], [], [("x", 1)]]
    assert token_accuracy(y_true, y_pred) == 5 / 6
    assert sequence_accuracy(y_true, y_pred) == 3 / 4
    ints, other = np.array([0, 1, 2, 3]), np.array([0, 1, 2, 0])
    offsets = [0, 1, 1, 3, 4]
    pair = Sequences(ints, offsets), Sequences(other, offsets)
    assert token_accuracy(*pair) == 3 / 4
    assert sequence_accuracy(*pair) == 3 / 4
    assert sequence_accuracy(pair[0], list(pair[0])) == 1.0
    for score, what in ((token_accuracy, "labels"), (sequence_accuracy, "sequences")):
        with pytest.raises(ValueError, match=f"hold no {what}"):
            score([], [])


@pytest.mark.parametrize("score", ALL)
@pytest.mark.parametrize("convert", [list, Sequences.from_list], ids=["list", "Sequences"])
def test_different_lengths(score, convert):
    y = convert([["O"], ["O", "O", "O"], ["O"]])
    with pytest.raises(ValueError, match="Sequence 1 has 3 labels in y_true, 2 in y_pred"):
        score(y, convert([["O"], ["O", "O"], ["O"]]))
    with pytest.raises(ValueError, match="y_true has 3 sequences, y_pred has 2"):
        score(y, convert([["O"], ["O", "O", "O"]]))


@pytest.mark.parametrize("score", ALL)
@pytest.mark.parametrize(
    ("y_pred", "error", "message"),
    [
        (["B-X", "O"], TypeError, r"y_pred\[0\] must be a sequence of labels, not 'B-X'"),
        ([1, 2], TypeError, r"y_pred\[0\] must be a sequence of labels, not 1"),
        ("BO", TypeError, "y_pred must be a list of label sequences or Sequences, not str"),
        (None, TypeError, "not NoneType"),
        (Sequences(np.zeros((2, 2)), [0, 1, 2]), ValueError, "y_pred must be labels"),
    ],
)
def test_what_is_no_list_of_label_sequences(score, y_pred, error, message):
    with pytest.raises(error, match=message):
        score([["O"], ["O"]], y_pred)


def test_a_string_is_no_label_sequence():
    with pytest.raises(TypeError, match="not the string 'BIO'"):
        spans("BIO")


# ------------------------------------------------------------------------------- rankings

RANKING = [hamming_ranking_loss, kendall_tau_score, spearman_rho_score]
BY_ROW = {
    hamming_ranking_loss: lambda true, found: np.mean(true != found),
    kendall_tau_score: lambda true, found: kendalltau(true, found).statistic,
    spearman_rho_score: lambda true, found: spearmanr(true, found).statistic,
}


def rankings(n, n_items, seed=0):
    rng = np.random.default_rng(seed)
    return rng.permuted(np.tile(np.arange(n_items), (n, 1)), axis=1)


@pytest.mark.parametrize("score", RANKING)
@pytest.mark.parametrize("n_items", [2, 3, 7, 40])
def test_rankings_row_by_row(score, n_items):
    y_true, y_pred = rankings(30, n_items), rankings(30, n_items, seed=1)
    y_pred[:5] = y_true[:5]
    y_pred[5:10] = n_items - 1 - y_true[5:10]
    expected = np.array([BY_ROW[score](true, found) for true, found in zip(y_true, y_pred)])
    for b in range(30):
        assert_allclose(score(y_true[b : b + 1], y_pred[b : b + 1]), expected[b], atol=1e-14)
    result = score(y_true, y_pred)
    assert type(result) is float
    assert_allclose(result, expected.mean(), atol=1e-14)
    weights = np.random.default_rng(2).random(30)
    weights[3] = 0
    weighted = score(y_true, y_pred, sample_weight=weights)
    assert_allclose(weighted, np.average(expected, weights=weights), atol=1e-14)
    for scale in (1e-300, 1e300, 1e308):
        assert_allclose(score(y_true, y_pred, sample_weight=weights * scale), weighted, atol=1e-12)
    repeated = np.arange(30) % 4
    assert_allclose(
        score(y_true, y_pred, sample_weight=repeated.tolist()),
        score(np.repeat(y_true, repeated, axis=0), np.repeat(y_pred, repeated, axis=0)),
        atol=1e-14,
    )


@pytest.mark.parametrize("score", RANKING)
def test_rankings_in_all_forms(score):
    y_true, y_pred = rankings(20, 5), rankings(20, 5, seed=1)
    expected = score(y_true, y_pred)
    items = np.array(["e", "b", "a", "d", "c"])
    for write in (places_to_orderings, places_to_strings):
        pair = write(y_true, items), write(y_pred, items)
        assert_allclose(score(*pair), expected, atol=1e-14)
        assert_allclose(score(pair[0].tolist(), pair[1].tolist()), expected, atol=1e-14)
    assert_allclose(score(y_true + 1, y_pred), expected, atol=1e-14)
    pair = [places_to_orderings(y, range(5)) for y in (y_true, y_pred)]
    assert_allclose(score(*pair, form="ordering"), expected, atol=1e-14)


def test_right_and_reversed_rankings():
    for n_items in (1, 2, 5, 300):
        y = rankings(4, n_items)
        assert hamming_ranking_loss(y, y) == 0.0
        assert kendall_tau_score(y, y) == spearman_rho_score(y, y) == 1.0
        assert kendall_tau_score(y, y, sample_weight=[0.1, 0.7, 0.3, 0]) == 1.0
        if n_items > 1:
            backwards = n_items - 1 - y
            assert kendall_tau_score(y, backwards) == spearman_rho_score(y, backwards) == -1.0


@pytest.mark.parametrize("score", RANKING)
@pytest.mark.parametrize(
    ("y_true", "y_pred", "arguments", "message"),
    [
        (["a>b", "b>a"], ["a>b"], {}, "y_true has 2 rankings, y_pred has 1"),
        (["a>b"], ["a>c"], {}, "y_true ranks the items 'a', 'b', y_pred ranks 'a', 'c'. Items"),
        (["a>b"], ["a>b>c"], {}, "y_true ranks the items 'a', 'b', y_pred ranks 'a', 'b', 'c'"),
        (["a>b"], [[1, 2]], {}, "y_pred ranks 0, 1. Items and form"),
        (rankings(1, 20), [[1, 2]], {}, r"8, 9 \.\.\. \(20 in all\), y_pred ranks 0, 1"),
        (["a>b", "a=b"], ["a>b", "a>b"], {}, r"y_true\[1\] is 'a=b'\. Ties"),
        (["a>b", "a>b"], ["a>b", "a>a"], {}, r"y_pred\[1\] has 'a' 2 times"),
        ([], [], {}, "y_true has no rankings"),
        (["a>b"], ["a>b"], {"form": "rank"}, "form must be one of"),
        (["a>b"], ["a>b"], {"sample_weight": [1, 1]}, r"sample_weight must have shape \(1,\)"),
        (["a>b"], ["a>b"], {"sample_weight": 1}, r"sample_weight must have shape \(1,\).*\(\)"),
        (["a>b"], ["a>b"], {"sample_weight": [-1]}, r"sample_weight\[0\] is -1: weights must be >= 0"),
        (["a>b"] * 2, ["a>b"] * 2, {"sample_weight": [1, np.nan]}, r"sample_weight\[1\] is nan"),
        (["a>b"] * 2, ["a>b"] * 2, {"sample_weight": [np.inf, 1]}, r"sample_weight\[0\] is inf"),
        (["a>b"], ["a>b"], {"sample_weight": [0]}, "sample_weight is zero for every sample"),
    ],
)
def test_rankings_that_cannot_be_scored(score, y_true, y_pred, arguments, message):
    with pytest.raises(ValueError, match=message):
        score(y_true, y_pred, **arguments)


# matchings


def random_matchings(rng, n):
    found = []
    for size in rng.integers(0, 5, n):
        columns = rng.permutation(7)[:size]
        columns[rng.random(size) < 0.4] = -1
        found.append(columns)
    return found


def pairs_of(matchings):
    return [{(i, c) for i, c in enumerate(columns) if c >= 0} for columns in matchings]


@pytest.mark.parametrize("zero_division", [0.0, 1.0, np.nan])
def test_matchings_by_sets_of_pairs(zero_division):
    rng = np.random.default_rng(0)
    for n in (0, 1, 2, 6):
        for _ in range(20):
            true = random_matchings(rng, n)
            # about half of the rows as they are
            predicted = [np.where(rng.random(len(y)) < 0.5, y, -1) for y in true]
            for y in predicted:
                for i in np.flatnonzero(y < 0):
                    y[i] = rng.choice(np.setdiff1d(np.arange(9), y)) if rng.random() < 0.5 else -1
            sets = list(zip(pairs_of(true), pairs_of(predicted), strict=True))
            every = [
                {(b, *pair) for b, both in enumerate(sets) for pair in both[k]} for k in range(2)]
            for score, part in (
                (matching_precision_score, lambda t, p: (len(t & p), len(p))),
                (matching_recall_score, lambda t, p: (len(t & p), len(t))),
                (matching_f1_score, lambda t, p: (2 * len(t & p), len(t) + len(p))),
            ):
                def share(t, p, part=part):
                    right, whole = part(t, p)
                    return right / whole if whole else zero_division

                assert_allclose(
                    score(true, predicted, zero_division=zero_division), share(*every))
                known = [value for value in (share(*both) for both in sets) if value == value]
                expected = np.mean(known) if known else zero_division
                assert_allclose(
                    score(true, predicted, average="macro", zero_division=zero_division), expected)


def test_forms_of_matchings():
    true = [[1, None, 0], [2, 0, -1]]
    for y in (true, np.array([[1, np.nan, 0], [2, 0, -1]]), [np.array([1.0, -1, 0]), (2, 0, None)]):
        assert matching_f1_score(true, y) == matching_f1_score(y, true) == 1.0


@pytest.mark.parametrize("score", [
    matching_precision_score, matching_recall_score, matching_f1_score])
@pytest.mark.parametrize(("y_true", "y_pred", "arguments", "message"), [
    ([[0]], [[0], [1]], {}, "y_true has 1 matchings, y_pred has 2"),
    ([[0, 1]], [[0]], {}, r"y_pred\[0\] has shape \(1,\), but y_true\[0\] has 2 rows"),
    ([[0, 1]], [[1, 1]], {}, r"y_pred\[0\] matches column 1 with row 0 and with row 1"),
    ([[0, 0.5]], [[0, 1]], {}, r"y_true\[0\]\[1\] is 0\.5, which is no column \(0, 1, \.\.\.\)"),
    ([[0, -2]], [[0, 1]], {}, r"y_true\[0\]\[1\] is -2, which is no column"),
    ([[[0]]], [[[0]]], {}, r"y_true\[0\] has shape \(1, 1\): give the column of each row"),
    ([0, 1], [0, 1], {}, r"y_true\[0\] has shape \(\): give the column"),
    ([[0]], [[0]], {"average": "weighted"}, "average must be one of"),
    ([[0]], [[0]], {"average": None}, "average must be one of"),
    ([[0]], [[0]], {"zero_division": 2.0}, "zero_division must be in"),
])
def test_matchings_that_cannot_be_scored(score, y_true, y_pred, arguments, message):
    with pytest.raises(ValueError, match=message):
        score(y_true, y_pred, **arguments)


def test_matchings_that_are_none():
    for given in ("01", None, {}, 3):
        with pytest.raises(TypeError, match="y_pred must be a list of matchings, not"):
            matching_f1_score([[0]], given)
