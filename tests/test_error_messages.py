"""What callers are told of input that no other file of tests gives: one table, by module."""

import re

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fastm4n import (
    FactorTables,
    Graphs,
    GraphTagger,
    LabelNewton,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    Sequences,
    SequenceTagger,
    Transitions,
    regularization_path,
)
from fastm4n.calibration import reliability_curve
from fastm4n.cli import main
from fastm4n.data._rankings import as_places
from fastm4n.datasets import load_conll, load_conllu
from fastm4n.inference import graph
from fastm4n.research import Boost
from fastm4n.research.boosting import fit_exponential
from fastm4n.research.theory import complexity_report, prices

X, Y = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 1, 1])
PAIRS = np.zeros((1, 2, 2, 1))
IMAGE = np.zeros((2, 3))
EMPTY = np.zeros(0, dtype=int)


def path(**options):
    return regularization_path(MulticlassClassifier(), X, Y, **options)


CASES = {
    # examples
    "no sequences": (lambda: SequenceTagger().fit([], []), "X has no sequences."),
    "no graphs": (lambda: GraphTagger("max_min").fit([], []), "X has no graphs."),
    "no pairs": (lambda: Matcher().fit([], []), "X has no examples."),
    "an array of no pairs": (lambda: Matcher().fit(np.zeros((0, 2, 2, 1)), []), "X has no examples."),
    "ragged pairs": (
        lambda: Matcher().fit([[[[1.0], [2.0]], [[3.0]]]], [[0, 1]]), "X[0] is not an array: "),
    "a ragged matching": (
        lambda: Matcher().fit(PAIRS, [[[0], [1, 0]]]), "y[0] is not a list of columns: "),
    "a ragged sequence": (
        lambda: Sequences.from_list([X, [[1.0, 2.0], [3.0]]]), "Sequence 1 is not an array: "),
    "no columns": (
        lambda: MultiLabelClassifier().fit(X, np.zeros((3, 0), dtype=int)), "y has no columns: "),
    "a ranking of no dimensions": (
        lambda: as_places(np.array(3)), "y has no dimensions. Put a single ranking into a list, [y]."),
    "complex features of nodes": (
        lambda: Graphs.from_list([(np.zeros((2, 1), dtype=complex), [(0, 1)])]),
        "are complex. Make two columns of real and imaginary parts."),
    "a cost that is a function": (
        lambda: GraphTagger(cost=lambda y, other: 1.0).fit([(X, [(0, 1)])], [[0, 1, 2]]),
        "give the matrix whose entry [i, j] is the cost of predicting the j-th of the 3 classes"),
    "features that are words": (
        lambda: Graphs.from_list([(np.array([["a"], ["b"]]), [(0, 1)])]), "must be numbers: "),
    "features of another size": (
        lambda: Graphs.from_grid([IMAGE], features=[IMAGE.T]),
        "features[0] are of 3 x 2 pixels, images[0] of 2 x 3."),
    # options
    "constraints and transition features": (
        lambda: SequenceTagger(constraints="0*", transitions=Transitions(features=[0])).fit([X], [Y]),
        "constraints='0*' needs transitions without features (got features=[0])."),
    "complex costs": (
        lambda: MulticlassClassifier(cost=np.array([[0, 1j], [1, 0]])).fit(X, Y),
        "or a cost matrix: complex costs"),
    "a solver of all but one surrogate": (
        lambda: MulticlassClassifier(Boost(), solver=LabelNewton()).fit(X, Y),
        "costs 'zero_one' or 'absolute', got surrogate=Boost()"),
    "a solver of other outputs": (
        lambda: LabelRanker("log", solver=LabelNewton()).fit(X, [[0, 1], [1, 0], [1, 0]]),
        "solver=LabelNewton() is for "),
    "exponential loss of another surrogate": (
        lambda: fit_exponential(MulticlassClassifier("log"), X, Y),
        "fit_exponential needs surrogate=Boost(), got MulticlassClassifier("),
    # paths
    "an estimator of others": (
        lambda: regularization_path(LogisticRegression(), X, Y),
        "estimator must be one of fastm4n's estimators, got LogisticRegression"),
    "eps below rounding": (lambda: path(eps=1e-300), "eps=1e-300 is below "),
    "kappa of one": (lambda: path(kappa=1.0), "kappa must lie in (0, 1), got 1.0."),
    "an end of a grid": (
        lambda: path(method="grid", alpha_min=0.1),
        "alpha_min is not for method='grid'. Pass alphas."),
    "ends the other way round": (
        lambda: path(alpha_min=2.0, alpha_max=1.0), "alpha_min=2 is above alpha_max=1."),
    "a grid of breakpoints": (lambda: path(alphas=[1.0]), "alphas is a grid, for method='grid'"),
    "breakpoints from nothing": (
        lambda: path(warm_start=False), "warm_start=False is for method='grid' (got "),
    # inference
    "a node without labels": (
        lambda: graph.maximise(np.zeros((2, 0)), [(0, 1)], np.zeros((0, 0))),
        "node_scores: node 0 has no labels."),
    "one of the nodes without labels": (
        lambda: graph.maximise([[0.0, 1.0], []], [], np.zeros((2, 2))),
        "node_scores: node 1 has no labels."),
    "a factor of no nodes": (
        lambda: FactorTables(EMPTY, [0, 0], [np.zeros(2)]), "factor 0 has no nodes."),
    # theory
    "an embedding of another surrogate": (
        lambda: prices([0.5, 0.5], "log", embedding=np.eye(2)),
        "embedding is for surrogate='max_min'."),
    "half a test set": (
        lambda: complexity_report(MulticlassClassifier(max_iter=5, tol=0.9).fit(X, Y), X, Y, X_test=X),
        "X_test and y_test must be given together."),
    "a curve of nothing": (
        lambda: reliability_curve([], np.zeros((0, 2)), classes=[0, 1]), "y has no labels."),
}


@pytest.mark.parametrize("call, message", CASES.values(), ids=CASES)
def test_messages(call, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        call()


def test_what_is_no_file():
    with pytest.raises(TypeError, match="path must be a path or a file object, not int"):
        load_conll(3)


def test_ids_of_conllu(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("1\t" + "\t".join("_" * 9) + "\nx\t" + "\t".join("_" * 9) + "\n\n")
    with pytest.raises(ValueError, match=r"a\.conllu, line 2: the ID 'x' is not of the form"):
        load_conllu(path)


@pytest.mark.parametrize("arguments, message", [
    (["fit", "a.npz", "--where", "part=7"], "--where: part is 7 nowhere in a.npz"),
    (["fit", "-", "--format", "npz"], "-: npz is read from a file"),
    (["fit", "a.csv", "--delimiter", "ab"], "'ab' is not one character, 'tab' or 'space'"),
    (["fit", "a.npz", "--surrogate", "max_min", "--temperature", "2"],
     "--temperature 2 needs --surrogate log, got max_min"),
    (["fit", "a.npz", "--surrogate", "max_margin", "--cost-augmented"],
     "--cost-augmented needs --surrogate log, got max_margin"),
])
def test_messages_of_commands(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", X=X, y=Y, part=Y)
    (tmp_path / "a.csv").write_text("a,b\n1,x\n")
    try:
        code = main(arguments)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert message in " ".join(capsys.readouterr().err.split())
