"""Commands on graphs."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import CountFactor, Graphs, Sequences, load_model
from fastm4n.cli import main


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trees():
    """Twelve paths of two to five nodes in trees.npz, two of three of them in split 0."""
    rng = np.random.default_rng(0)
    graphs = []
    for n in rng.integers(2, 6, size=12):
        edges = np.column_stack([np.arange(n - 1), np.arange(1, n)])
        graphs.append((rng.normal(size=(n, 3)), edges, rng.normal(size=(n - 1, 2))))
    X = Graphs.from_list(graphs)
    y = Sequences((X.node_features[:, 0] > 0).astype(int), X.node_offsets)
    X.save("trees.npz", y, split=np.arange(12) % 3 // 2)
    return X, y


def ran(capsys, *args):
    """Output of a command that must succeed; a JSON document where --json is given."""
    code = main([str(arg) for arg in args])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out) if "--json" in args else captured.out


def failed(capsys, *args, code):
    """The one line that a command fails with."""
    try:
        found = main([str(arg) for arg in args])
    except SystemExit as stop:
        found = stop.code
    captured = capsys.readouterr()
    assert found == code and captured.err.count("error: ") == 1, captured
    return captured.err


def test_fit_predict_evaluate(trees, capsys):
    X, y = trees
    fitted = ran(
        capsys, "fit", "trees.npz", "--where", "split=0", "--model", "m", "--json", "--surrogate",
        "log")
    assert (fitted["task"], fitted["n_examples"], fitted["oracle"]) == ("graphs", 8, "forest")
    assert fitted["exact"] is True and fitted["integrality_gap"] == 0
    tagger = load_model("m")
    predicted = tagger.predict(X)
    lines = ran(capsys, "predict", "m", "trees.npz").split("\n\n")
    assert lines.pop() == ""
    assert [list(map(int, part.split())) for part in lines] == [
        labels.tolist() for labels in predicted]
    ran(capsys, "predict", "m", "trees.npz", "--output", "out.npz", "--probabilities")
    with np.load("out.npz") as arrays:
        assert_array_equal(arrays["y"], predicted.values)
        assert_array_equal(arrays["offsets"], X.node_offsets)
        assert_allclose(arrays["probabilities"], tagger.predict_marginals(X).values)
    test = np.arange(12) % 3 == 2
    scores = ran(capsys, "evaluate", "m", "trees.npz", "--where", "split=1", "--json")["scores"]
    assert scores["node_accuracy"] == tagger.score(X[test], y[test])
    assert scores["graph_accuracy"] == np.mean([
        np.array_equal(a, b) for a, b in zip(predicted[test], y[test], strict=True)])


def test_what_is_told(trees, capsys):
    X, _ = trees
    told = ran(capsys, "fit", "trees.npz", "--model", "m")
    assert told.startswith(
        f"trees.npz: 12 graphs of {X.n_nodes} nodes and {X.n_edges} edges, 3 features, 2 labels\n")
    assert "pairwise full" in told
    assert "oracle forest: the gap is that of the exact objective" in told
    info = ran(capsys, "info", "trees.npz", "--json")
    assert (info["n_nodes"], info["n_edges"], info["n_edge_features"]) == (X.n_nodes, X.n_edges, 2)
    assert sum(info["labels"].values()) == X.n_nodes
    assert "features of edges  2" in ran(capsys, "info", "trees.npz")
    info = ran(capsys, "info", "m", "--json")
    assert (info["task"], info["oracle"], info["classes"]) == ("graphs", "forest", [0, 1])


def test_unlabelled_nodes_and_no_truth(trees, capsys):
    X, y = trees
    labels = np.where(np.arange(X.n_nodes) % 4 == 1, -1, y.values)
    X.save("some.npz", labels)
    assert set(ran(capsys, "info", "some.npz", "--json")["labels"]) == {"0", "1"}
    ran(capsys, "fit", "some.npz", "--model", "m")
    scores = ran(capsys, "evaluate", "m", "some.npz", "--json")["scores"]
    tagger = load_model("m")
    right = (tagger.predict(X).values == labels)[labels >= 0]
    assert_allclose(scores["node_accuracy"], right.mean())
    X.save("none.npz")
    text = ran(capsys, "predict", "m", "none.npz")
    assert text.split() == list(map(str, tagger.predict(X).values.tolist()))
    assert "there is no array y" in failed(capsys, "evaluate", "m", "none.npz", code=1)


def test_graphs_without_nodes_are_scored(trees, capsys):
    X, y = trees
    empty = Graphs.from_list([(np.zeros((0, 3)), [], np.zeros((0, 2)))])
    np.concatenate([empty, X, empty]).save("empty.npz", y.values)
    ran(capsys, "fit", "empty.npz", "--model", "m")
    scores = ran(capsys, "evaluate", "m", "empty.npz", "--json")["scores"]
    assert scores["node_accuracy"] == load_model("m").score(X, y)


def test_sparse_features_and_words(trees, capsys):
    from scipy import sparse

    X, y = trees
    X = Graphs(
        sparse.csr_array(X.node_features), X.edges, X.node_offsets, X.edge_offsets,
        edge_features=sparse.csr_array(X.edge_features), node_weights=np.arange(X.n_nodes) % 3,
    )
    names = np.array(["off", "on"])[y.values]
    X.save("sparse.npz", names)
    ran(capsys, "fit", "sparse.npz", "--surrogate", "max_margin", "--model", "m")
    scores = ran(capsys, "evaluate", "m", "sparse.npz", "--json")["scores"]
    tagger = load_model("m")
    assert scores["node_accuracy"] == tagger.score(X, Sequences(names, X.node_offsets))
    assert ran(capsys, "predict", "m", "sparse.npz").split() == tagger.predict(X).values.tolist()


def test_path(trees, capsys):
    found = ran(capsys, "path", "trees.npz", "--eps", 0.2, "--no-plot", "--json", "--model", "m",
                "--surrogate", "max_margin")
    assert found["loss"] == "share of nodes that are wrong" and found["n_train"] == 9
    assert len(found["path"]) > 1 and all(0 <= p["validation_loss"] <= 1 for p in found["path"])
    assert load_model("m").alpha_ == found["best"]["alpha"]
    folds = ran(capsys, "path", "trees.npz", "--eps", 0.5, "--cv", 2, "--no-plot", "--json")
    assert folds["cv"] == 2


@pytest.mark.parametrize("arguments, message", [
    (["--scale", "standard"], "features of graphs are taken as they are"),
    (["--kernel", "rbf"], "graphs take linear only"),
    (["--task", "sequences"], "trees.npz holds graphs, but --task is sequences"),
    (["--set", "pairwise=no"], "pairwise must be one of"),
    (["--set", "pairwise=attractive"], "edge"),
    (["--where", "split=7"], "split is 7 nowhere"),
    (["--where", "edges=0"], "no array 'edges' with a number for each of 12"),
    (["--target", "split"], "array split has the shape (12,), but there are"),
])
def test_bad_arguments(trees, capsys, arguments, message):
    code = 1 if arguments[1] in ("pairwise=no", "pairwise=attractive", "sequences", "split") else 2
    assert message in failed(capsys, "fit", "trees.npz", *arguments, code=code)


def test_bad_files(trees, capsys):
    with np.load("trees.npz") as archive:
        arrays = dict(archive)
    for name, array, message in (
        ("edges", arrays["edges"] + 90, "Edge 0 of graph 0 is (90, 91)"),
        ("node_offsets", np.arange(3), "The last of the node_offsets must be"),
        ("node_features", np.full_like(arrays["node_features"], np.nan), "must be finite"),
    ):
        np.savez("bad.npz", **{**arrays, name: array})
        assert f"bad.npz: {message}" in failed(capsys, "fit", "bad.npz", code=1).replace(
            "node_features must", "must")
    del arrays["node_offsets"]
    np.savez("bad.npz", **arrays)
    assert "it has no array 'node_offsets'" in failed(capsys, "info", "bad.npz", code=1)


def test_factors_of_a_file(trees, capsys):
    X, y = trees
    X = X.with_factors([
        CountFactor(np.arange(n), int(np.sum(part)), int(np.sum(part)))
        for n, part in zip(X.lengths, y, strict=True)])
    X.save("counted.npz", y, split=np.arange(12) % 3 // 2)
    fitted = ran(capsys, "fit", "counted.npz", "--where", "split=0", "--model", "m", "--json")
    assert fitted["oracle"] == "few_states"
    ran(capsys, "predict", "m", "counted.npz", "--output", "predicted.txt")
    labels = Sequences(np.loadtxt("predicted.txt", dtype=int), X.node_offsets)
    assert [int(sum(part)) for part in labels] == [int(sum(part)) for part in y]
