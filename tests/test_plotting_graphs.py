"""Displays of graphs: maps of labels, and weights of edges."""

import doctest

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from numpy.testing import assert_allclose, assert_array_equal  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402

from fastm4n import Graphs, GraphTagger, MulticlassClassifier, Sequences  # noqa: E402
from fastm4n.plotting import EdgeWeightDisplay, LabelMapDisplay  # noqa: E402
from fastm4n.tasks.graph_predictions import GraphScores  # noqa: E402

SHAPES = [(3, 4), (2, 2), (1, 5), (4, 4), (2, 3)]
TRUE = Sequences.from_list([np.arange(h * w) % 3 for h, w in SHAPES])
PREDICTED = Sequences.from_list([np.arange(h * w) % 3 * (np.arange(h * w) > 3) for h, w in SHAPES])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def drawn(display):
    """Render the figure: artists that cannot be drawn fail here."""
    display.figure_.canvas.draw()
    return display


@pytest.mark.parametrize("name", ["_label_maps", "_heat_maps"])
def test_examples(name):
    module = __import__(f"fastm4n.plotting.{name}", fromlist=[name])
    assert doctest.testmod(module).failed == 0


# --------------------------------------------------------------------------- maps of labels


def test_grids_are_shown_beside_the_truth():
    display = drawn(LabelMapDisplay.from_predictions(TRUE, PREDICTED, shapes=SHAPES))
    assert display.axes_.shape == (4, 2) and display.classes == ["0", "1", "2"]
    titles = [[ax.get_title() for ax in row] for row in display.axes_]
    assert titles == [["truth", "prediction"], *[["", ""]] * 3]
    for i, row in enumerate(display.ims_):
        for image, labels in zip(row, (TRUE[i], PREDICTED[i]), strict=True):
            assert_array_equal(image.get_array(), labels.reshape(SHAPES[i]))
        wrong = np.mean(TRUE[i] != PREDICTED[i])
        assert display.errors[i] == wrong
        assert display.axes_[i, 1].get_xlabel() == f"{100 * wrong:.1f} % wrong"
        assert display.axes_[i, 0].get_ylabel() == f"graph {i}"
    counts = [TRUE.lengths[:4].sum(), np.sum(TRUE.values[:37] != PREDICTED.values[:37])]
    assert repr(display) == (
        f"<LabelMapDisplay: 4 graphs of 3 labels, {100 * counts[1] / counts[0]:.1f} % of pixels "
        "wrong>")
    assert display.figure_._suptitle.get_text() == "Labels of nodes"


def test_colours_of_labels_are_those_of_the_legend():
    display = drawn(LabelMapDisplay.from_predictions(TRUE, PREDICTED, shapes=SHAPES, graphs=[0]))
    legend = {
        text.get_text(): patch.get_facecolor()
        for text, patch in zip(
            display.legend_.get_texts(), display.legend_.get_patches(), strict=True)
    }
    assert list(legend) == ["0", "1", "2"] and len(set(legend.values())) == 3
    image = display.ims_[0, 0]
    for place, label in np.ndenumerate(image.get_array()):
        assert_allclose(image.cmap(image.norm(image.get_array()[place])), legend[str(label)])


def test_regions_unlabelled_nodes_and_pixels_outside():
    label_map = np.array([[1, 1, 2], [0, 3, 3]], dtype=np.uint8)
    display = drawn(LabelMapDisplay.from_predictions(
        [np.array([5, -1, 7])], [np.array([5, 5, 5])], label_maps=[label_map], start_label=1,
        images=[np.zeros((2, 3, 3))], names=["one"],
    ))
    assert_array_equal(display.true[0], [[0, 0, -1], [-1, 1, 1]])
    assert_array_equal(display.predicted[0], [[0, 0, 0], [-1, 0, 0]])
    # two of the four pixels with a true label; the classes are those that occur
    assert display.errors == [0.5] and display.classes == ["5", "7"]
    assert [ax.get_title() for ax in display.axes_[0]] == ["image", "truth", "prediction"]
    assert [text.get_text() for text in display.legend_.get_texts()] == ["(none)", "5", "7"]
    assert display.axes_[0, 0].get_ylabel() == "one"


def test_the_truth_may_be_a_map_of_pixels():
    display = LabelMapDisplay.from_predictions(
        [np.array([["a", "b"], ["b", "b"]])], [np.array(["a", "b"])],
        label_maps=[np.array([[0, 0], [1, 1]])],
    )
    assert display.errors == [0.25] and display.classes == ["a", "b"]


def test_without_a_truth_nothing_is_wrong():
    display = drawn(LabelMapDisplay.from_predictions(None, PREDICTED, shapes=SHAPES, graphs=[2]))
    assert display.errors is None and display.axes_.shape == (1, 1)
    assert repr(display) == "<LabelMapDisplay: 1 graph of 2 labels>"
    assert display.axes_[0, 0].get_xlabel() == ""


def test_maps_take_the_axes_and_arguments_that_are_given():
    axes = Figure().subplots(2, 2)
    display = LabelMapDisplay.from_predictions(
        TRUE, PREDICTED, shapes=SHAPES, graphs=[1, 3], classes=[2, 1, 0], ax=axes, cmap="viridis",
        legend=False, im_kw={"alpha": 0.5},
    )
    assert display.ax_ is axes[0, 0] and display.legend_ is None
    assert display.ims_[0, 0].get_alpha() == 0.5
    assert_array_equal(display.predicted[0], 2 - PREDICTED[1].reshape(2, 2))
    assert_allclose(display.ims_[0, 0].cmap(1), matplotlib.colormaps["viridis"](0.0))
    with pytest.raises(ValueError, match="ax must have 2 x 1 axes, for graphs and panels, got 4"):
        LabelMapDisplay(display.predicted, display.classes).plot(axes)
    assert drawn(display.plot(axes)).legend_.axes is axes[1, 1]


@pytest.mark.parametrize("n", [1, 7, 8, 20, 21, 60])
def test_as_many_colours_as_labels(n):
    display = drawn(LabelMapDisplay([np.arange(n).reshape(1, n)], list(map(str, range(n)))).plot())
    colors = display.ims_[0, 0].cmap(np.arange(n + 1))
    assert len(np.unique(colors, axis=0)) == n + 1
    assert len(display.legend_.get_texts()) == n


@pytest.mark.parametrize("changed, message", [
    ({"shapes": None}, "Give shapes for grids, or label_maps"),
    ({"label_maps": [np.zeros((1, 1), int)] * 5}, "Give shapes for grids, or label_maps"),
    ({"shapes": SHAPES[:2]}, "shapes must have an entry for each of 5 graphs, got 2"),
    ({"y_true": TRUE[:3]}, "y_true must have an entry for each of 5 graphs, got 3"),
    ({"shapes": [(5, 5), *SHAPES[1:]]}, r"y_pred\[0\] has 12 labels, but the map has 25 nodes"),
    ({"shapes": [(0, 3), *SHAPES[1:]]}, "there is nothing to plot"),
    ({"shapes": None, "label_maps": [np.zeros(3)] * 5}, r"label_maps\[0\] must be integers"),
    ({"graphs": [7]}, "graphs must be from 0 to 4, got 7"),
    ({"classes": [0, 1]}, "y_pred has the label 2, which is not in classes"),
    ({"names": ["a"]}, "names must be a list of 4, one for each graph"),
    ({"y_true": [np.zeros((2, 2), int)] * 5}, r"y_true\[0\] must have shape .*, got \(2, 2\)"),
    ({"graphs": []}, "no graph to plot"),
])
def test_maps_that_do_not_fit(changed, message):
    given = {"y_true": TRUE, "y_pred": PREDICTED, "shapes": SHAPES, **changed}
    with pytest.raises(ValueError, match=message):
        LabelMapDisplay.from_predictions(**given)


# ------------------------------------------------------------------------------- estimators


def images():
    rng = np.random.default_rng(0)
    truth = np.zeros((5, 4), dtype=int)
    truth[1:4, 1:3] = 1
    X = Graphs.from_grid([truth + rng.normal(0, 0.5, truth.shape) for _ in range(6)])
    return X, Sequences(np.array(["out", "in"])[np.tile(truth.ravel(), 6)], X.node_offsets)


@pytest.fixture(scope="module")
def fitted():
    X, y = images()
    return X, y, GraphTagger("max_margin", pairwise="attractive", random_state=0).fit(X, y)


def test_predictions_of_an_estimator(fitted):
    X, y, tagger = fitted
    shapes = [(5, 4)] * 6
    display = drawn(LabelMapDisplay.from_estimator(
        make_pipeline(tagger), X, y, shapes=shapes, graphs=[4, 1]))
    assert display.classes == ["in", "out"] and display.names == ["graph 4", "graph 1"]
    for i, predicted, true in zip((4, 1), display.predicted, display.true, strict=True):
        assert_array_equal(predicted.ravel(), tagger.predict(X)[i] == "out")
        assert_array_equal(true.ravel(), y[i] == "out")
    assert len(LabelMapDisplay.from_estimator(tagger, X, shapes=shapes).predicted) == 4
    with pytest.raises(NotFittedError):
        LabelMapDisplay.from_estimator(GraphTagger("max_min"), X, shapes=shapes)
    with pytest.raises(ValueError, match="y_true must have an entry for each of 6 graphs, got 2"):
        LabelMapDisplay.from_estimator(tagger, X, y[:2], shapes=shapes)


def test_loss_augmented_labels_are_beside_the_prediction(fitted):
    X, y, tagger = fitted
    display = drawn(LabelMapDisplay.from_estimator(
        make_pipeline(tagger), X, y, shapes=[(5, 4)] * 6, graphs=[2], loss_augmented=True))
    worst = tagger.loss_augmented(X[2:3], y[2:3])[0]
    assert_array_equal(display.augmented[0].ravel(), worst == "out")
    panel = display.axes_[0, 2]
    assert panel.get_title() == "loss-augmented"
    assert panel.get_xlabel() == f"{100 * np.mean(worst != y[2]):.1f} % wrong"
    with pytest.raises(ValueError, match="loss_augmented=True needs y"):
        LabelMapDisplay.from_estimator(tagger, X, shapes=[(5, 4)] * 6, loss_augmented=True)


@pytest.mark.parametrize("pairwise", ["attractive", "full"])
def test_scores_of_nodes_and_edges_of_a_grid(fitted, pairwise):
    X, y, tagger = fitted
    tagger = tagger if pairwise == "attractive" else GraphTagger(random_state=0).fit(X, y)
    display = drawn(LabelMapDisplay.from_estimator(
        tagger, X, shapes=[(5, 4)] * 6, graphs=[3], scores=True))
    assert [ax.get_title() for ax in display.axes_[0]] == [
        "prediction", "score of in", "score of out", "score of equal neighbours"]
    nodes, edges, tables = tagger.scores(X[3:4])[0]
    for k in range(2):
        assert_array_equal(display.ims_[0, 1 + k].get_array().ravel(), nodes[:, k])
    lines = display.ims_[0, 3]
    if pairwise == "full":
        tables = (tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]) / 2
    assert_allclose(lines.get_array(), tables)
    places = np.array([(i % 4, i // 4) for i in range(20)])
    assert_array_equal(np.array(lines.get_segments()), places[edges])
    largest = max(np.abs(nodes).max(), np.abs(tables).max())
    assert display.colorbar_.vmin == -largest and display.colorbar_.vmax == largest


def test_scores_of_regions():
    label_map = np.array([[1, 1, 0], [2, 2, 4]])  # number 3 has no pixels
    nodes, edges = np.arange(8.0).reshape(4, 2), np.array([[0, 1], [0, 2], [1, 3]])
    given = {"label_maps": [label_map], "start_label": 1, "classes": [0, 1]}
    display = drawn(LabelMapDisplay.from_predictions(
        None, [np.array([0, 1, 1, 0])], scores=[GraphScores(nodes, edges, np.arange(3.0))], **given))
    assert_array_equal(display.scores[0][1], [[1, 1, np.nan], [3, 3, 7]])
    lines, attractions = display.edges[0]
    assert_array_equal(lines, [[[0.5, 0], [0.5, 1]], [[0.5, 1], [2, 1]]])
    assert_array_equal(attractions, [0, 2])
    for wrong in (list(nodes), nodes[:, :1]):
        with pytest.raises(ValueError, match=r"scores\[0\] must have the scores of 2 classes"):
            LabelMapDisplay.from_predictions(
                None, [np.zeros(4, int)], scores=[GraphScores(wrong, edges, np.zeros(3))], **given)


def test_numbers_of_equal_labels_are_on_the_diagonal(fitted):
    tagger = fitted[2]
    display = drawn(EdgeWeightDisplay.from_estimator(tagger))
    assert_array_equal(display.weights, np.diag([float(tagger.edge_intercept_[0])] * 2))
    assert display.row_labels == display.column_labels == ["in", "out"]
    assert display.ax_.get_ylabel() == "label of the first node"
    assert display.figure_._suptitle.get_text() == "Weights of edges"
    display = EdgeWeightDisplay.from_estimator(tagger, 0)
    assert_array_equal(display.weights, np.diag([float(tagger.edge_coef_[0])] * 2))


def trees(n_types=1):
    """Paths of three nodes with two types of edges, and two types of nodes if asked."""
    rng = np.random.default_rng(1)
    n = 12
    X = Graphs(
        rng.normal(size=(3 * n, 2)), np.tile([[0, 1], [2, 1]], (n, 1)), 3 * np.arange(n + 1),
        2 * np.arange(n + 1), edge_features=rng.normal(size=(2 * n, 3)),
        edge_types=np.tile([0, 1], n), node_types=np.tile([0, n_types - 1, 0], n),
    )
    labels = rng.integers(0, 3, 3 * n) + 10 * X.node_types
    return X, Sequences(labels, X.node_offsets)


def test_tables_of_types_and_features():
    X, y = trees()
    tagger = GraphTagger("max_margin", random_state=0).fit(X, y)
    display = EdgeWeightDisplay.from_estimator(tagger, edge_type=1)
    assert_array_equal(display.weights, tagger.edge_intercept_[1])
    display = EdgeWeightDisplay.from_estimator(tagger, 2, edge_type=1, labels=[2, 0])
    assert_array_equal(display.weights, tagger.edge_coef_[5][np.ix_([2, 0], [2, 0])])
    assert display.row_labels == ["2", "0"]


def test_tables_of_types_of_nodes():
    X, y = trees(2)
    tagger = GraphTagger("max_margin", random_state=0).fit(X, y)
    display = drawn(EdgeWeightDisplay.from_estimator(tagger, node_types=(0, 1)))
    assert display.row_labels == ["0", "1", "2"] and display.column_labels == ["10", "11", "12"]
    assert repr(display) == "<EdgeWeightDisplay: 3 x 3 labels>"
    assert_array_equal(display.weights, tagger.edge_intercept_[0])


@pytest.mark.parametrize("arguments, message", [
    ({"feature": 1}, r"feature is 1, but the model has 1 feature\(s\) of edges"),
    ({"edge_type": -1}, "edge_type is -1"),
    ({"node_types": (0, 3)}, r"node_types is 3, but the model has 1 type\(s\) of nodes"),
    ({"labels": ["no"]}, "labels has 'no', which is not a label of the tagger"),
])
def test_there_are_no_such_weights(fitted, arguments, message):
    with pytest.raises(ValueError, match=message):
        EdgeWeightDisplay.from_estimator(fitted[2], **arguments)


def test_other_estimators_have_no_edges():
    with pytest.raises(TypeError, match="must be a GraphTagger, got a MulticlassClassifier"):
        EdgeWeightDisplay.from_estimator(MulticlassClassifier())
    with pytest.raises(NotFittedError):
        EdgeWeightDisplay.from_estimator(GraphTagger("max_min"))
