"""Files of SVM-hmm and SVM-rank, rankings of documents, and the command line on both.

Compression, encodings and line ends are tried on all readers in `test_datasets`.
"""

import io
import itertools
import json
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import LinearSVC

from fastm4n import Matcher, MulticlassClassifier, Sequences, SequenceTagger, load_model
from fastm4n.cli import main
from fastm4n.data._rankings import document_pairs, preference_pairs
from fastm4n.datasets import (
    load_svm_hmm,
    load_svm_rank,
    load_svmlight,
    load_svmlight_sequences,
)

HMM = """\
# tokens of two sentences
DT qid:1 1:1 5:0.5 # the
NN qid:1 2:1 # dog
VB qid:1 3:1 6:-1e-1 # barks

NN qid:7 2:1 # dogs
VB qid:7 3:1
"""

# the example of SVM-rank's page has this form
RANK = """\
# query 1
3 qid:1 1:1 2:1 3:0 4:0.2 5:0 # 1A
2 qid:1 1:0 2:0 3:1 4:0.1 5:1 # 1B
1 qid:1 1:0 2:1 3:0 4:0.4 5:0 # 1C
1 qid:1 1:0 2:0 3:1 4:0.3 5:0 # 1D
1 qid:2 1:0 2:0 3:1 4:0.2 5:0 # 2A
2 qid:2 1:1 2:0 3:1 4:0.4 5:0 # 2B
"""


def of(load, content, **options):
    return load(io.StringIO(content), **options)


# -------------------------------------------------------------------------------- SVM-hmm


def test_svm_hmm():
    data = of(load_svm_hmm, HMM)
    assert_array_equal(data.qid, [1, 7])
    assert [labels.tolist() for labels in data.y] == [["DT", "NN", "VB"], ["NN", "VB"]]
    assert_array_equal(data.X[0].toarray(), [
        [1, 0, 0, 0, 0.5, 0], [0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, -0.1]])
    assert data.X.values.dtype == np.float64 and data.X[1].shape == (2, 6)
    wide = of(load_svm_hmm, HMM, n_features=9, dtype=np.float32)
    assert wide.X.values.shape == (5, 9) and wide.X.values.dtype == np.float32
    tagger = SequenceTagger("max_margin", random_state=0).fit(data.X, data.y)
    assert tagger.predict(data.X)[0].tolist() == ["DT", "NN", "VB"]


def test_tags_that_are_numbers_are_those_of_svmlight():
    numbers = "2 qid:1 1:1\n3 qid:1 2:1 3:1\n\n2 qid:4 1:0.5\n"
    data, same = of(load_svm_hmm, numbers), of(load_svmlight_sequences, numbers)
    assert data.y.values.dtype == np.int64
    assert_array_equal(data.y.values, same.y.values)
    assert_array_equal(data.qid, same.qid)
    assert_array_equal(data.X.values.toarray(), same.X.values.toarray())
    assert of(load_svm_hmm, "1.5 qid:1 1:1\n2 qid:1 1:1\n").y.values.tolist() == [1.5, 2.0]
    # one word makes all of them words
    assert of(load_svm_hmm, "1 qid:1 1:1\nnan qid:1\nB-1 qid:1\n").y[0].tolist() == [
        "1", "nan", "B-1"]


def test_columns_count_from_one_even_where_svmlight_would_guess():
    assert of(load_svm_hmm, "A qid:1 2:1\n").X[0].toarray().tolist() == [[0.0, 1.0]]
    assert of(load_svm_rank, "1 qid:1 2:1\n").X[0].toarray().tolist() == [[0.0, 1.0]]


BAD_LINES = {
    "A qid:1 1:1\nB qid:2 1:1\nA qid:1 1:1\n": "line 3: qid:1 comes back after another {one}; "
    "it began at line 1. The {many} of a {one} must be consecutive",
    "1 qid:1 1:1\n1 1:1\n": "line 2: there is no qid of the {one} after the label",
    "1 1:1\n": "line 1: there is no qid of the {one} after the label",
    "1 qid:x 1:1\n": "line 1: the {one} 'qid:x' is not qid: and an integer of 64 bits",
    "1 qid:9223372036854775808 1:1\n": "line 1: the {one} 'qid:9223372036854775808' is not",
    "1 qid:1 2:1 1:1\n": "line 1: the index 1 does not increase",
    "\n1 qid:1 2:1 2:1\n": "line 2: the index 2 does not increase",
    "1 qid:1 1:nan\n": "line 1: the value of feature 1 is nan, no finite float64",
    "1 qid:1 1:1e999\n": "line 1: the value of feature 1 is inf",
    "1 qid:1 1:1\nnan qid:1 1:1\n": "line 2: the label is nan; labels must be finite",
    "1 qid:1 1:1\n1 qid:1 0:1\n": "line 2: the feature number is 0, but SVM-{name} counts from "
    "1. Use load_svmlight_sequences",
    "1 qid:1 -1:1\n": "line 1: the index -1 is negative",
    "1 qid:1 1:1 1000000000000000000:1\n": "line 1: the feature number 1000000000000000000 is above "
    "100000000. Renumber the features",
    "1 qid:1 99999999999999999999:1\n": "line 1: '99999999999999999999:1' is not a feature",
    "1 qid:1 a:1\n": "line 1: 'a:1' is not a feature, index:value",
    "1 qid:1 1:\n": "line 1: '1:' is not a feature",
    "1 qid:1 1:1_0\n": "line 1: '1:1_0' is not a feature",
    "1 qid:1 1\n": "line 1: '1' is not a feature",
    "1 qid:1\n2 qid:1\n": "has no features; pass n_features",
    "# nothing\n \n": "has no {many}",
    "": "is empty",
}


@pytest.mark.parametrize("content", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("load, name, one, many", [
    (load_svm_hmm, "hmm", "sequence", "tokens"), (load_svm_rank, "rank", "query", "documents")])
def test_bad_lines(load, name, one, many, content):
    message = BAD_LINES[content].format(name=name, one=one, many=many)
    if load is load_svm_rank:
        content = content.replace("A", "1").replace("B", "2")
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        of(load, content)
    assert str(caught.value).startswith("<StringIO>")


def test_tags_and_targets():
    for content, message in (
        ("1:1 qid:1\n", "line 1: there is no tag before '1:1'"),
        ("qid:1 1:1\n", "line 1: there is no tag before 'qid:1'"),
        ("A" * 101 + " qid:1 1:1\n", "line 1: the tag '?A+.* has 101 characters; at most 100"),
    ):
        with pytest.raises(ValueError, match=message):
            of(load_svm_hmm, content)
    with pytest.raises(ValueError, match="line 2: the label 'A' is not a number"):
        of(load_svm_rank, "1 qid:1 1:1\nA qid:1 1:1\n")


@pytest.mark.parametrize("load", [load_svm_hmm, load_svm_rank])
def test_options(load):
    with pytest.raises(ValueError, match="line 2: an index needs 3 columns, but n_features=2"):
        of(load, "1 qid:1 1:1\n1 qid:1 3:1\n", n_features=2)
    with pytest.raises(ValueError, match="n_features must be an integer >= 1"):
        of(load, "1 qid:1 1:1\n", n_features=0)
    with pytest.raises(ValueError, match="dtype must be"):
        of(load, "1 qid:1 1:1\n", dtype=int)
    # who says how many there are may have more than the reader would take
    assert of(load, "1 qid:1 200000000:1\n", n_features=2 * 10**8).X.values.shape[1] == 2 * 10**8
    assert of(load, "1 qid:1\n", n_features=2).X[0].toarray().tolist() == [[0.0, 0.0]]


# ------------------------------------------------------------------------------- SVM-rank


def test_svm_rank():
    data = of(load_svm_rank, RANK)
    assert_array_equal(data.qid, [1, 2])
    assert [targets.tolist() for targets in data.y] == [[3, 2, 1, 1], [1, 2]]
    assert data.X[0].shape == (4, 5) and data.X[1].toarray()[1].tolist() == [1, 0, 1, 0.4, 0]


def pairs_one_by_one(X, y):
    return [
        (i, *np.round(a - b, 12)) for i, (x, targets) in enumerate(zip(X, y, strict=True))
        for a, s in zip(x, targets, strict=True) for b, t in zip(x, targets, strict=True) if s > t]


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_preference_pairs_are_those_of_different_targets(form):
    rng = np.random.default_rng(0)
    for _ in range(20):
        X = [rng.normal(size=(m, 2)) for m in [4, *rng.integers(1, 6, size=4)]]
        y = [np.r_[0, 1, rng.integers(0, 3, size=len(x))][: len(x)] for x in X]
        pairs, signs, queries = preference_pairs([form(x) for x in X], y)
        assert sparse.issparse(pairs) == (form is not np.asarray)
        pairs = pairs.toarray() if sparse.issparse(pairs) else pairs
        found = [
            (i, *np.round(pair * sign, 12))
            for pair, sign, i in zip(pairs, signs, queries, strict=True)]
        assert sorted(found) == sorted(pairs_one_by_one(X, y))
        assert abs(signs.sum()) <= 1


def test_the_problem_of_pairs_is_that_of_svm_rank():
    """C / n of SVM-rank weighs each pair's hinge, as the C of a binary SVM on differences does."""
    data = of(load_svm_rank, RANK)
    pairs, signs, _ = preference_pairs(data.X, data.y)
    C, n = 20.0, len(data.X)
    svm = LinearSVC(
        C=C / n, loss="hinge", fit_intercept=False, tol=1e-8, max_iter=10**6).fit(pairs, signs)
    w = svm.coef_[0]
    ours = MulticlassClassifier(
        "max_margin", alpha=2 * n / (C * len(signs)), fit_intercept=False, tol=1e-10,
        max_iter=10**5, random_state=0).fit(pairs, signs)
    assert_allclose(ours.coef_[1] - ours.coef_[0], w, atol=1e-5)
    rows = data.X.values.toarray()
    hinges = sum(
        max(0.0, 1.0 - w @ (rows[a] - rows[b])) for first, last in itertools.pairwise(data.X.offsets)
        for a in range(first, last) for b in range(first, last)
        if data.y.values[a] > data.y.values[b])
    assert_allclose(
        ours.primal_objective_ * C / n * len(signs), w @ w / 2 + C / n * hinges, rtol=1e-6)


def swapped(a, b):
    return sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in itertools.combinations(range(len(a)), 2))


def test_document_pairs_score_rankings_by_their_pairs():
    rng = np.random.default_rng(1)
    X, w = [rng.normal(size=(4, 3)), rng.normal(size=(1, 3))], rng.normal(size=3)
    pairs, ranks = document_pairs(X, [[0.5, 2, -1, 7], [3]])
    assert ranks[0].tolist() == [2, 1, 3, 0] and ranks[1].tolist() == [0]
    scores = pairs[0] @ w
    by_ranking = {}
    for ranking in itertools.permutations(range(4)):  # the rank of each document
        expected = sum(
            (X[0][i] - X[0][j]) @ w
            for i, j in itertools.permutations(range(4), 2) if ranking[i] < ranking[j])
        by_ranking[ranking] = sum(scores[i, ranking[i]] for i in range(4))
        assert_allclose(by_ranking[ranking], expected)
        footrule = sum(abs(r - i) for i, r in enumerate(ranking))
        assert swapped(ranking, range(4)) <= footrule <= 2 * swapped(ranking, range(4))
    best = np.argsort(np.argsort(-X[0] @ w))
    assert max(by_ranking, key=by_ranking.get) == tuple(best)
    assert document_pairs([sparse.csr_matrix(x) for x in X])[1] is None
    assert_array_equal(document_pairs([sparse.csr_matrix(x) for x in X])[0][0], pairs[0])


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_a_matcher_of_documents_and_ranks(surrogate):
    rng = np.random.default_rng(2)
    w = np.array([2.0, -1.0, 0.5])
    X = [rng.normal(size=(m, 3)) for m in (1, 3, 5, 2, 4, 4, 3)]
    pairs, ranks = document_pairs(X, [x @ w for x in X])
    matcher = Matcher(surrogate, alpha=1e-4, cost="absolute", random_state=0).fit(pairs, ranks)
    for x, predicted in zip(X, matcher.predict(pairs), strict=True):
        assert_array_equal(predicted, np.argsort(np.argsort(-x @ matcher.coef_)))
    assert matcher.score(pairs, ranks) > 0.9


ONE = [[1.0], [2.0], [4.0]]


@pytest.mark.parametrize("X, y, message", [
    ([], [], "X has no queries"),
    ([[1.0, 2.0]], [[1, 2]], "X must have a matrix for each query"),
    ([ONE], [[1, 2]], r"y\[0\] has 2 targets, but X\[0\] has 3 documents"),
    ([ONE], [[1, 2, 3]] * 2, "y has the targets of 2 queries, but X has 1"),
    ([ONE, ONE], [[1, 2, 3], [1, 2, np.nan]], r"y\[1\] has nan for document 2"),
    ([ONE], [["a", "b", "c"]], "y must have a number for each document"),
    ([[["a"], ["b"]]], [[1, 2]], "X must have numbers"),
    ([[[np.inf], [1.0]]], [[1, 2]], "X has features that are not finite"),
])
def test_bad_queries(X, y, message):
    for make in (preference_pairs, document_pairs):
        with pytest.raises(ValueError, match=message):
            make(X, y)


def test_ties_and_memory():
    with pytest.raises(ValueError, match="There are no pairs: in each query"):
        preference_pairs([ONE, ONE], [[1, 1, 1], [2, 2, 2]])
    with pytest.raises(ValueError, match="Documents 0 and 2 of query 1 have the same target, 5. "):
        document_pairs([ONE, ONE], [[1, 2, 3], [5, 1, 5]])
    many = Sequences(sparse.csr_matrix(np.ones((200_000, 1))), [0, 200_000])
    distinct = Sequences(np.arange(200_000), [0, 200_000])
    with pytest.raises(ValueError, match="19999900000 pairs of documents need 4.58e.05 MiB"):
        preference_pairs(many, distinct)
    with pytest.raises(ValueError, match="up to 200000 documents in a query, but cache_size"):
        document_pairs(many, distinct)
    # memory is that of the pairs there are, not of all that there could be
    assert preference_pairs(many, [np.arange(200_000) == 0])[0].shape == (199_999, 1)
    with pytest.raises(ValueError, match="cache_size"):
        preference_pairs([ONE], [[1, 2, 3]], cache_size=-1)


# -------------------------------------------------------------- SVM-light and SVM-multiclass


def test_files_of_svm_multiclass():
    X, y = of(load_svmlight, "3 1:1 2:0.5\n1 2:1 # a comment\n2 3:-1\n")
    assert y.tolist() == [3, 1, 2] and y.dtype == np.int64 and X.shape == (3, 3)


# --------------------------------------------------------------------------- command line


@pytest.fixture
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(capsys, *args, code=0):
    try:
        found = main([str(arg) for arg in args])
    except SystemExit as stop:
        found = stop.code
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.err if code else captured.out


@pytest.mark.parametrize("name, options", [
    ("train.hmm", []), ("train.svmhmm", []), ("train.dat", ["--format", "svmhmm"])])
def test_fit_and_predict_sequences(name, options, in_a_folder, capsys):
    (in_a_folder / name).write_text(HMM)
    assert json.loads(ran(capsys, "info", name, *options, "--json"))["labels"] == {
        "DT": 1, "NN": 2, "VB": 2}
    ran(capsys, "fit", name, *options, "--model", "m", "--surrogate", "max_margin")
    assert ran(capsys, "predict", "m", name, *options) == "DT\nNN\nVB\n\nNN\nVB\n\n"
    assert "token_accuracy     1.0000" in ran(capsys, "evaluate", "m", name, *options)
    # fewer columns occur in new files, and unknown ones are an error
    (in_a_folder / "new.hmm").write_text("NN qid:1 2:1\n")
    assert ran(capsys, "predict", "m", "new.hmm") == "NN\n\n"
    (in_a_folder / "new.hmm").write_text("NN qid:1 7:1\n")
    assert "new.hmm, line 1: an index needs 7 columns" in ran(
        capsys, "predict", "m", "new.hmm", code=1)
    assert "svmhmm holds sequences, not classes" in ran(
        capsys, "fit", name, *options, "--task", "classes", code=2)


def test_fit_and_predict_rankings_of_documents(in_a_folder, capsys):
    rng = np.random.default_rng(3)
    w, lines, truth = np.array([2.0, -1.0]), [], []
    for q, m in enumerate((1, 3, 4, 2, 5)):
        X = rng.normal(size=(m, 2)).round(3)
        lines += [f"{x @ w:.4f} qid:{q} 1:{x[0]} 2:{x[1]}\n" for x in X]
        truth.append(np.argsort(np.argsort(-X @ w)).tolist())
    (in_a_folder / "train.rank").write_text("".join(lines))
    found = json.loads(ran(capsys, "info", "train.rank", "--json"))
    assert (found["task"], found["n_examples"], found["n_features"], found["size"]) == (
        "matchings", 5, 2, 5)
    ran(capsys, "fit", "train.rank", "--cost", "absolute", "--alpha", "1e-4", "--model", "m")
    expected = "".join(" ".join(map(str, ranks)) + "\n" for ranks in truth)
    assert ran(capsys, "predict", "m", "train.rank") == expected
    assert "row_accuracy       1.0000" in ran(capsys, "evaluate", "m", "train.rank")
    # new documents have targets that mean nothing
    (in_a_folder / "new.svmrank").write_text(re.sub("^[^ ]+", "0", "".join(lines), flags=re.M))
    assert ran(capsys, "predict", "m", "new.svmrank") == expected
    assert load_model("m").coef_.shape == (2,)
    assert "certified for every alpha" in ran(capsys, "path", "train.rank", "--no-plot")


def test_documents_of_one_target_are_levels(in_a_folder, capsys):
    (in_a_folder / "train.rank").write_text(RANK)
    found = json.loads(ran(capsys, "fit", "train.rank", "--model", "m", "--json"))
    assert (found["task"], found["n_examples"], found["estimator"]) == (
        "ordered", 6, "OrdinalClassifier")
    assert len(ran(capsys, "predict", "m", "train.rank").split()) == 6
    assert main(["info", "train.rank"]) == 0
    assert "documents of qid:1 have the same target, and therefore no one ranking: each line" in (
        capsys.readouterr().err)
    said = ran(capsys, "fit", "train.rank", "--task", "matchings", code=1)
    assert "train.rank: documents of qid:1 have the same target, and therefore" in said
    assert "--task ordered takes documents one by one" in said
    # one query of so many documents that all of them at all ranks would not fit
    (in_a_folder / "large.rank").write_text("".join(f"{i} qid:1 1:1\n" for i in range(20_000)))
    assert "large.rank: Documents at ranks need" in ran(capsys, "fit", "large.rank", code=1)
    assert "not rankings" in ran(capsys, "fit", "train.rank", "--task", "rankings", code=2)
