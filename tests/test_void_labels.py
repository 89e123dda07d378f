"""Nodes of graphs that carry the mark of no label, and label sets that are declared."""

import matplotlib

matplotlib.use("Agg")

import json  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from numpy.testing import assert_allclose, assert_array_equal  # noqa: E402
from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import cross_val_predict, cross_val_score  # noqa: E402

from fastm4n import (  # noqa: E402
    Graphs,
    GraphTagger,
    OutOfCore,
    Sequences,
    load_model,
    metrics,
    save_model,
)
from fastm4n.cli import main  # noqa: E402
from fastm4n.plotting import LabelMapDisplay  # noqa: E402

VOIDS = {
    "255": (255, np.int64), "-100": (-100, np.int64), "uint8": (255, np.uint8),
    "float": (255, np.float32), "-1.0": (-1.0, np.float64)}


def grids(types=False, n=4):
    """Grids of three labels, and a mask of nodes without one."""
    rng = np.random.default_rng(0)
    truth = np.zeros((4, 5), dtype=int)
    truth[1:3, 1:4], truth[0] = 1, 2
    X = Graphs.from_grid([truth + rng.normal(0, 0.4, truth.shape) for _ in range(n)])
    if types:
        X = Graphs(
            X.node_features, X.edges, X.node_offsets, X.edge_offsets,
            node_types=np.arange(X.n_nodes) % 2)
    return X, [truth.ravel()] * n, [rng.random(truth.size) < 0.2 for _ in range(n)]


def marked(y, masks, mark, dtype=np.int64):
    return [np.where(mask, mark, part).astype(dtype) for part, mask in zip(y, masks, strict=True)]


@pytest.mark.parametrize("solver", ["auto", OutOfCore()])
@pytest.mark.parametrize("mark, dtype", VOIDS.values(), ids=VOIDS)
def test_a_mark_is_as_good_as_another(mark, dtype, solver):
    X, y, masks = grids()
    known, void = marked(y, masks, -1), marked(y, masks, mark, dtype)
    options = dict(surrogate="log", inference="lp", tol=0.05, random_state=0, solver=solver)
    one, other = GraphTagger(**options), GraphTagger(ignore_label=mark, **options)
    one.fit(X, known)
    other.fit(X, void)
    assert_array_equal(other.classes_, [0, 1, 2])
    assert_array_equal(other.coef_, one.coef_)
    assert other.score(X, void) == one.score(X, known)
    assert (mark in GraphTagger(**options).fit(X, void).classes_) == (mark != -1)


def test_marks_that_are_words():
    X, y, masks = grids()
    words = [[("sky", "tree", "cow")[label] for label in part] for part in y]
    known = [np.where(mask, "void", part).tolist() for part, mask in zip(words, masks, strict=True)]
    tagger = GraphTagger(ignore_label="void", tol=0.05, random_state=0).fit(X, known)
    assert tagger.classes_.tolist() == ["cow", "sky", "tree"]
    # an array of strings and numbers has strings alone
    for mark, given in ((-1, None), (255, 255)):
        arrays = [np.array([*part[:-1], mark]) for part in words]
        with pytest.raises(ValueError, match=rf"y\[0\] has '{mark}' among other strings: NumPy"):
            GraphTagger(ignore_label=given).fit(X, arrays)
        assert len(GraphTagger(ignore_label=str(mark), tol=0.1).fit(X, arrays).classes_) == 3
        # unless it is declared
        every = GraphTagger(classes=["sky", "tree", "cow", str(mark)], tol=0.1).fit(X, arrays)
        assert str(mark) in every.classes_ and every.score(X, arrays) > 0.5
        lists = [[*part[:-1], mark] for part in words]
        assert len(GraphTagger(ignore_label=given, tol=0.1).fit(X, lists).classes_) == 3
    # True is no 1
    both = [[True if label else "no" for label in part] for part in y]
    assert True in GraphTagger(ignore_label=1, tol=0.05).fit(X, both).classes_.tolist()


@pytest.mark.parametrize("solver", ["auto", OutOfCore()])
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_declared_labels_are_those_of_the_fit(surrogate, solver):
    X, y, _ = grids()
    options = dict(inference="lp", tol=0.05, random_state=0, solver=solver)
    tagger = GraphTagger(surrogate, classes=[7, 0, 2, 1], **options).fit(X, y)
    assert_array_equal(tagger.classes_, [0, 1, 2, 7])
    assert tagger.coef_.shape == (4, 1) and tagger.relative_gap_ <= 0.05
    assert not np.isin(tagger.predict(X).values, 7).any()
    # labels that all occur change nothing
    same = GraphTagger(surrogate, classes=np.array([2, 1, 0]), **options).fit(X, y)
    assert_array_equal(same.coef_, GraphTagger(surrogate, **options).fit(X, y).coef_)


@pytest.mark.parametrize("solver", ["auto", OutOfCore()])
def test_declared_labels_of_types(solver):
    X, y, _ = grids(types=True)
    options = dict(inference="lp", tol=0.1, random_state=0, solver=solver)
    of_types = {0: [0, 1, 2], 1: [2, 1, 0, 9]}
    tagger = GraphTagger(classes=of_types, **options).fit(X, y)
    assert tagger.node_classes_.tolist() == [[0, 1, 2, -1], [0, 1, 2, 3]]
    of_all = GraphTagger(classes=[0, 1, 2, 9], **options).fit(X, y)
    assert of_all.node_classes_.tolist() == [[0, 1, 2, 3]] * 2
    # a type that does not occur
    more = GraphTagger(classes={**of_types, 2: [0, 1]}, **options).fit(X, y)
    assert more.node_classes_.tolist()[2] == [0, 1, -1, -1]
    with pytest.raises(ValueError, match=r"y\[0\] has 2 at node 1, which is not in classes\[1\]: "):
        GraphTagger(classes={0: [0, 1, 2], 1: [0, 1]}, **options).fit(X, y)


def test_folds_that_lack_a_label_still_know_it():
    X, y, masks = grids(n=6)
    y = [np.where(part == 2, 0, part) if i < 4 else part for i, part in enumerate(y)]
    y = marked(y, masks, 255)
    tagger = GraphTagger("log", classes=[0, 1, 2], ignore_label=255, inference="lp", tol=0.05)
    scores = cross_val_score(tagger, X, y, cv=3)
    assert np.isfinite(scores).all()
    first = clone(tagger).fit(X[:4], y[:4])
    assert first.predict_marginals(X)[0].shape[1] == 3 and 255 not in first.classes_
    assert set(np.unique(np.concatenate(list(
        cross_val_predict(tagger, X, y, cv=3))))) <= {0, 1, 2}


def test_mistakes():
    X, y, _ = grids()
    for given, message in {
        (0, 1): r"y\[0\] has 2 at node 0, which is not in classes: \[0, 1\]\. Add it there",
        (0, 0, 1): "classes must be a list of distinct labels",
        (0,): "classes must be at least two labels", "ab": "classes must be a list of distinct labels",
        (0, 1, -1): "classes has -1, which is the mark of no label",
        (0, 1, 255): "classes has 255, which is the mark of no label", (): "classes must be a list",
    }.items():
        with pytest.raises(ValueError, match=message):
            GraphTagger(classes=given, ignore_label=255).fit(X, y)
    for given in ({-1: [0, 1]}, {"a": [0, 1]}):
        with pytest.raises(ValueError, match="classes has the key .*, and types of nodes are 0, 1"):
            GraphTagger(classes=given).fit(X, y)
    for given in ([255], np.nan):
        with pytest.raises(ValueError, match="ignore_label must be a label or None"):
            GraphTagger(ignore_label=given).fit(X, y)
    with pytest.raises(ValueError, match="classes must be None with pairwise='displacement'"):
        GraphTagger(pairwise="displacement", grid_shape=(1, 3), classes=[0, 1, 2]).fit(X, y)


def test_files_keep_both(tmp_path):
    X, y, masks = grids()
    void = marked(y, masks, 255)
    tagger = GraphTagger(
        classes=[0, 1, 2, 3], ignore_label=255, tol=0.05, random_state=0).fit(X, void)
    save_model(tagger, tmp_path / "model")
    found = load_model(tmp_path / "model")
    assert found.ignore_label == 255 and list(found.classes) == [0, 1, 2, 3]
    assert found.score(X, void) == tagger.score(X, void)


def test_commands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, masks = grids()
    found = []
    for mark, more in ((-1, []), (255, ["--set", "ignore_label=255"])):
        X.save("graphs.npz", Sequences.from_list(marked(y, masks, mark)))
        assert main(["fit", "graphs.npz", "--model", "m", "--set", "inference=lp", *more]) == 0
        assert "255" not in capsys.readouterr().out
        assert main(["evaluate", "m", "graphs.npz", "--confusion", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["scores"] == found[1]["scores"]
    assert found[0]["confusion"] == found[1]["confusion"]


def test_maps_show_no_class_for_a_mark():
    X, y, masks = grids()
    void = marked(y, masks, 255)
    tagger = GraphTagger(ignore_label=255, tol=0.05, random_state=0).fit(X, void)
    display = LabelMapDisplay.from_estimator(tagger, X, void, shapes=[(4, 5)] * 4)
    assert display.classes == ["0", "1", "2"]
    for true, mask in zip(display.true, masks, strict=False):
        assert_array_equal(true.ravel() < 0, mask)
    errors = [
        np.mean((a != b)[~mask])
        for a, b, mask in zip(tagger.predict(X), y, masks, strict=True)]
    assert_allclose(display.errors, errors[:4])
    plain = LabelMapDisplay.from_predictions(
        void, tagger.predict(X), shapes=[(4, 5)] * 4, ignore_label=255)
    assert plain.classes == display.classes and plain.errors == display.errors


def test_metrics_leave_out_a_mark():
    y, predicted = [[0, 1, 255], [255], [1, 1]], [[0, 0, 1], [1], [1, 1]]
    assert metrics.token_accuracy(y, predicted, ignore_label=255) == 3 / 4
    assert metrics.sequence_accuracy(y, predicted, ignore_label=255) == 2 / 3
    X, truth, masks = grids()
    void = marked(truth, masks, 255)
    tagger = GraphTagger(ignore_label=255, tol=0.05, random_state=0).fit(X, void)
    assert metrics.token_accuracy(
        void, tagger.predict(X), ignore_label=255) == pytest.approx(tagger.score(X, void))
