"""What users write, for mypy --strict: tests/test_typing.py checks it, and nothing runs it.

`assert_type` is of what comes out; a line that is wrong says so with the error that it must have,
and mypy refuses an ignore that nothing needs.
"""

from typing import Any, assert_type

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import fastm4n
from fastm4n import (
    BlockFrankWolfe,
    CalibratedTagger,
    ConformalClassifier,
    ConformalTagger,
    FactorTables,
    Graphs,
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    RegularizationPath,
    RegularizationPathCV,
    Sequences,
    SequenceScaler,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.automata import Automaton
from fastm4n.data._rankings import places_to_strings
from fastm4n.inference import (
    linear_assignment,
    max_min_game,
    min_cut,
    project_simplex,
    sinkhorn,
    softmax,
    sum_product,
    viterbi,
)
from fastm4n.losses import Losses, chain_losses
from fastm4n.metrics import matching_f1_score, span_f1_score, spans, token_accuracy
from fastm4n.penalties import L2, ElasticNet, Group
from fastm4n.plotting import DualityGapDisplay, TransitionDisplay
from fastm4n.research.theory import ComplexityReport, complexity_report

Floats = NDArray[np.float64]
X = np.zeros((6, 2))
y = np.array([0, 1, 2, 0, 1, 2])


def versions() -> None:
    assert_type(fastm4n.__version__, str)
    assert_type(fastm4n.get_include(), str)


def classifiers() -> None:
    classifier = MulticlassClassifier(alpha=0.1, solver=BlockFrankWolfe(step="pairwise"))
    assert_type(classifier.fit(X, y), MulticlassClassifier)
    classifier.fit([[0.0, 1.0], [1.0, 0.0]], ["a", "b"], sample_weight=[1, 2])
    classifier.fit(sp.csr_matrix(X), y)
    assert_type(classifier.predict(X), NDArray[Any])
    assert_type(classifier.predict_proba(X), Floats)
    assert_type(classifier.decision_function(X), Floats)
    assert_type(classifier.score(X, y), float)
    assert_type(classifier.duality_gap_, float)
    assert_type(classifier.n_iter_, int)
    assert_type(classifier.history_["gap"], NDArray[Any])
    assert_type(classifier.set_params(alpha=1.0), MulticlassClassifier)
    MulticlassClassifier("log", penalty=ElasticNet(0.5), n_jobs=2, random_state=0)
    MulticlassClassifier(cost=np.ones((3, 3)), kernel="rbf", gamma=0.5, penalty=L2())
    MulticlassClassifier("hinge")  # type: ignore[arg-type]
    MulticlassClassifier(alpha="large")  # type: ignore[arg-type]
    MulticlassClassifier(C=1.0)  # type: ignore[call-arg]

    assert_type(OrdinalClassifier(levels=["low", "high"]).fit(X, y), OrdinalClassifier)
    labels = MultiLabelClassifier(graph="complete").fit(X, np.zeros((6, 3), dtype=int))
    assert_type(labels, MultiLabelClassifier)
    _, bound = labels.predict(X, return_bound=True)
    assert_type(bound, Floats)
    assert_type(labels.edges_, NDArray[np.integer[Any]])
    assert_type(ConformalClassifier(classifier).fit(X, y).predict_sets(X), NDArray[np.bool_])


def sequences() -> None:
    rows = Sequences.from_lengths(X, [2, 4])
    assert_type(rows, Sequences)
    assert_type(Sequences.from_list([X[:2], X[2:]]), Sequences)
    assert_type(rows.lengths, NDArray[np.int64])
    assert_type(len(rows), int)
    tagger = SequenceTagger("log", transitions=Transitions(features="all", order=2), penalty=Group())
    assert_type(tagger.fit(rows, [["a", "b"], ["b", "a", "a", "b"]]), SequenceTagger)
    tagger.fit([X[:2], X[2:]], [np.array([0, 1]), np.array([1, 0, 0, 1])])
    tagger.fit([sp.csr_matrix(X[:2]), sp.csr_matrix(X[2:])], [[0, 1], [1, 0, 0, 1]])
    tagger.fit(X, y, lengths=[2, 4])
    assert_type(tagger.predict(rows, decode="min_risk", allowed_transitions="bio"), Sequences)
    assert_type(tagger.predict_marginals(rows), Sequences)
    best, scores = tagger.predict_kbest(rows, 3)
    assert_type(best, list[NDArray[Any]])
    assert_type(scores, list[NDArray[Any]])
    assert_type(tagger.transition_coef_, Floats)
    tagger.predict(rows, decode="viterbi")  # type: ignore[arg-type]
    tagger.predict(rows, constraints=Automaton.from_regex("a*b", ["a", "b"]))
    tagger.set_params(transitions=Transitions(order=1)).partial_fit(rows, [[0, 1], [1, 0, 0, 1]], classes=[0, 1])

    vectorizer = SequenceVectorizer(min_count=2)
    assert_type(vectorizer.fit_transform([[{"word": "the"}, {"word": "dog"}], [["a", "b"]]]),
                Sequences)
    assert_type(SequenceScaler().fit(rows).transform(rows), Sequences)
    assert_type(CalibratedTagger(tagger).fit(rows, [[0, 1], [1, 0, 0, 1]]), CalibratedTagger)
    assert_type(ConformalTagger(tagger, confidence=0.9).predict_sets(rows), Sequences)
    assert_type(spans(["B-NP", "O"]), list[tuple[str, int, int]])
    assert_type(token_accuracy([["a"]], [["b"]]), float)
    span_f1_score([["B-NP"]], [["O"]], average="macro")


def graphs() -> None:
    nodes = Graphs.from_list([(X, [[0, 1]]), (X, [[0, 1], [1, 2]])])
    assert_type(nodes, Graphs)
    assert_type(Graphs.from_grid([np.zeros((3, 3))], connectivity=8), Graphs)
    tagger = GraphTagger("max_min", pairwise="potts", inference="min_cut").fit(nodes, [y, y])
    assert_type(tagger, GraphTagger)
    assert_type(tagger.predict(nodes), Sequences)
    assert_type(tagger.predict(nodes, return_bound=True), tuple[Sequences, Floats])
    assert_type(tagger.edge_coef_, Floats)
    assert_type(FactorTables.from_list([([0, 1], np.eye(2))]), FactorTables)
    GraphTagger("max_min", pairwise="full", grid_shape="wide")  # type: ignore[arg-type]


def permutations() -> None:
    ranker = LabelRanker(form="string").fit(X[:2], ["b>a", "a>b"])
    assert_type(ranker, LabelRanker)
    assert_type(ranker.predict(X), NDArray[Any])
    assert_type(ranker.items_, NDArray[Any])
    places_to_strings(np.array([[0, 1]]), ["a", "b"])
    pairs = np.zeros((3, 2, 2, 4))
    matcher = Matcher().fit(pairs, [[0, 1], [1, 0], [0, 1]])
    assert_type(matcher.predict(pairs), NDArray[np.integer[Any]])
    assert_type(matcher.predict([pairs[0], pairs[1]]), list[NDArray[np.integer[Any]]])
    masks = [np.ones((2, 2), dtype=bool)] * 3
    partial = Matcher(unmatched="learn").fit(pairs, [[0, -1], [1, 0], [0, 1]], allowed=masks)
    assert_type(partial.unmatched_coef_, float)
    assert_type(partial.predict(pairs, allowed=masks), NDArray[np.integer[Any]])
    assert_type(matching_f1_score([[0, 1]], matcher.predict(pairs[:1])), float)


def paths(folder: str) -> None:
    path = regularization_path(MulticlassClassifier(), X, y, eps=0.01)
    assert_type(path, RegularizationPath)
    assert_type(path.gap(0.1), float)
    assert_type(path.alphas, Floats)
    search = RegularizationPathCV(MulticlassClassifier(), cv=3).fit(X, y)
    assert_type(search, RegularizationPathCV)
    assert_type(search.alpha_, float)
    save_model(search.best_estimator_, folder + "/model.fm4n", metadata={"by": "me"})
    load_model(folder + "/model.fm4n").predict(X)


def oracles() -> None:
    pairwise = np.zeros((3, 3))
    labels, score = viterbi(X, pairwise)
    assert_type(labels, NDArray[np.integer[Any]])
    assert_type(score, float)
    assert_type(viterbi(X, pairwise, lengths=[2, 4])[1], Floats)
    assert_type(sum_product(X, pairwise)[2], float)
    assert_type(project_simplex([0.5, 2.0]), Floats)
    assert_type(softmax(X)[0], Floats)
    assert_type(max_min_game(X, [[0, 1], [1, 0]])[1], Floats)
    rows, columns = linear_assignment(X)
    rows, columns, u, v = linear_assignment(X, return_potentials=True)
    assert_type(u, Floats)
    side, value, bound = min_cut([1.0, 0.0], [0.0, 1.0], [[0, 1]], 0.5)
    assert_type(side, NDArray[np.bool_])
    assert_type(value, float)
    plan, _, (f, g) = sinkhorn(np.eye(3), return_potentials=True)
    assert_type(f, Floats)
    viterbi(X)  # type: ignore[call-overload]
    assert_type(chain_losses(X, pairwise, y, [2, 4], surrogate="max_min"), Losses)


def looks(tagger: SequenceTagger) -> None:
    assert_type(DualityGapDisplay.from_estimator(tagger, against="seconds"), DualityGapDisplay)
    assert_type(TransitionDisplay.from_estimator(tagger), TransitionDisplay)
    assert_type(complexity_report(tagger, [X], [y]), ComplexityReport)
