"""Displays: what is drawn is what was computed.

One file although it is long: the displays share fits, and how a drawing is looked at.
"""

import copy
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from numpy.testing import assert_allclose, assert_array_equal  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from fastm4n import (  # noqa: E402
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    RegularizationPathCV,
    SequenceTagger,
    Transitions,
    regularization_path,
)
from fastm4n.plotting import (  # noqa: E402
    DualityGapDisplay,
    RegularizationPathDisplay,
    TransitionDisplay,
)

IRIS = load_iris(return_X_y=True)
COLUMNS = {"passes": "pass", "seconds": "seconds", "oracle_calls": "oracle_calls"}


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def fits():
    return [
        MulticlassClassifier(surrogate, alpha=0.01, tol=1e-4, random_state=0).fit(X, IRIS[1])
        for surrogate in ("max_min", "log")
    ]


def drawn(display):
    """Render the figure: artists that cannot be drawn fail here."""
    display.figure_.canvas.draw()
    return display


def legend_texts(ax):
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


# --------------------------------------------------------------------------- duality gap


@pytest.mark.parametrize("against", COLUMNS)
def test_gap_curves_are_the_histories(fits, against):
    display = drawn(DualityGapDisplay.from_estimator(fits, against=against))
    assert len(display.lines_) == 2
    for line, model in zip(display.lines_, fits):
        assert_array_equal(line.get_xdata(), model.history_[COLUMNS[against]])
        scale = model.duality_gap_ / model.relative_gap_
        assert_allclose(line.get_ydata(), model.history_["gap"] / scale)
        assert line.get_ydata()[-1] == pytest.approx(model.relative_gap_)
    assert display.ax_.get_yscale() == "log"
    assert display.ax_.get_xscale() == "log"
    assert display.ax_.get_xlabel() == against.replace("_", " ")
    assert display.ax_.get_ylabel() == "relative duality gap"
    # the objectives at zero weights differ, but not what tol bounds
    assert_array_equal(display.tol_line_.get_ydata(), 1e-4)
    assert legend_texts(display.ax_) == ["surrogate=max_min", "surrogate=log", "tol = 0.0001"]


def test_gap_of_one_estimator_has_no_name(fits):
    display = drawn(DualityGapDisplay.from_estimator(fits[0]))
    assert display.names is None
    assert_array_equal(display.tol_line_.get_ydata(), 1e-4)
    assert legend_texts(display.ax_) == ["tol = 0.0001"]


def test_gap_of_a_pipeline_is_that_of_its_last_step():
    model = make_pipeline(StandardScaler(), MulticlassClassifier(random_state=0)).fit(*IRIS)
    display = DualityGapDisplay.from_estimator({"scaled": model})
    scale = model[-1].duality_gap_ / model[-1].relative_gap_
    assert_allclose(display.lines_[0].get_ydata(), model[-1].history_["gap"] / scale)
    assert display.lines_[0].get_label() == "scaled"


def test_gap_names_tell_the_classes_apart(fits):
    tagger = SequenceTagger(tol=1e-4, random_state=0).fit([[[0.0], [1.0]]], [["a", "b"]])
    display = DualityGapDisplay.from_estimator([fits[0], tagger])
    assert display.names[0].startswith("MulticlassClassifier")
    assert display.names[1].startswith("SequenceTagger")
    assert DualityGapDisplay.from_estimator([fits[0], fits[0]]).names == ["fit 0", "fit 1"]
    assert DualityGapDisplay.from_estimator(fits, names=["M4N", "CRF"]).names == ["M4N", "CRF"]


def test_gap_line_only_where_the_tolerance_is_one(fits):
    other = MulticlassClassifier(tol=1e-2, random_state=0).fit(*IRIS)
    assert DualityGapDisplay.from_estimator([fits[0], other]).tol_line_ is None


def test_gaps_are_absolute_where_one_is_zero(fits):
    solved = copy.copy(fits[1])
    solved.relative_gap_ = solved.duality_gap_ = 0.0
    display = drawn(DualityGapDisplay.from_estimator([fits[0], solved]))
    assert display.ax_.get_ylabel() == "certified duality gap" and display.tol_line_ is None
    assert_array_equal(display.lines_[0].get_ydata(), fits[0].history_["gap"])


def test_gap_from_histories():
    history = {"pass": [1, 2, 3], "gap": [1.0, 0.1, 0.01]}
    display = drawn(DualityGapDisplay.from_history(history, tol=0.05))
    assert_array_equal(display.lines_[0].get_xdata(), [1, 2, 3])
    assert_array_equal(display.lines_[0].get_ydata(), [1.0, 0.1, 0.01])
    # also where a curve has the name of a column
    display = drawn(DualityGapDisplay.from_history({"gap": history, "uniform": history}))
    assert display.names == ["gap", "uniform"]
    display = drawn(DualityGapDisplay.from_history([history, history], names=["a", "b"]))
    assert [line.get_label() for line in display.lines_] == ["a", "b"]


@pytest.mark.parametrize("gaps", [[0.5, 0.1, 0.0], [0.0, 0.0, 0.0], [1e-30, 1e30, 1.0]])
def test_gaps_of_zero_and_the_start_of_a_warm_start_are_drawn(gaps):
    display = drawn(DualityGapDisplay.from_history({"pass": [0, 10, 20], "gap": gaps}))
    assert_array_equal(display.lines_[0].get_ydata(), gaps)
    assert display.ax_.get_xscale() == "symlog"


def test_gap_without_certificates_is_an_empty_curve():
    display = drawn(DualityGapDisplay.from_history({"pass": [], "gap": []}))
    assert display.lines_[0].get_xdata().size == 0


def test_gap_curves_do_not_run_backwards_in_time():
    history = {"seconds": [0.1, 0.3, 0.2, 0.4], "gap": [1.0, 0.5, 0.3, 0.1]}
    match = r"histories\[0\]: 'seconds' must not decrease, got 0.3 before 0.2"
    with pytest.raises(ValueError, match=match):
        DualityGapDisplay.from_history(history, against="seconds")
    assert not plt.get_fignums()
    again = {"seconds": [0.1, 0.1, 0.2], "gap": [1.0, 0.9, 0.3]}  # a clock may stand still
    drawn(DualityGapDisplay.from_history(again, against="seconds"))


@pytest.mark.parametrize("gaps", [[1e-3, 0.9, 1e-3, 0.9], [0.02, 0.9, 0.9, 0.9], [1e-6, 1, 0.1, 1]])
def test_the_legend_of_gaps_hides_no_curve(gaps):
    history = {"pass": [1, 10, 30, 100], "gap": gaps}
    # curves in every corner
    curves = {f"a long name, {i}": {**history, "gap": np.roll(gaps, i)} for i in range(4)}
    display = drawn(DualityGapDisplay.from_history(curves, tol=0.03))
    box = display.ax_.get_legend().get_window_extent()
    for line in (*display.lines_, display.tol_line_):
        assert not line.get_transform().transform_path(line.get_path()).intersects_bbox(
            box, filled=False)
    assert display.figure_.bbox.containsx(box.x1) and display.figure_.bbox.containsy(box.y1)


@pytest.mark.parametrize("low, high", [
    (1e-8, 1e-2), (0.013, 0.9), (0.0105, 0.104), (0.011, 0.101), (0.2, 0.9), (0.021, 0.049),
    (0.3, 0.31), (9.99e-5, 1.2e-3), (1.0, 1.001),
])
def test_every_axis_has_two_labels_at_least(low, high):
    history = {"seconds": [low, high], "gap": [high, low]}
    for size in ((6.4, 4.8), (3, 3)):
        ax = Figure(figsize=size, layout="constrained").subplots()
        display = drawn(DualityGapDisplay.from_history(history, against="seconds", ax=ax))
        for axis in (display.ax_.xaxis, display.ax_.yaxis):
            first, last = axis.get_view_interval()
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
            shown = {label.get_text() for x, label in ticks if first <= x <= last}
            assert len(shown - {""}) >= 2, (axis.axis_name, shown)


@pytest.mark.parametrize("low, high", [
    (6.2e-4, 1.1e-3), (4.1e-4, 7.9e-4), (0.013, 0.09), (2.1e-5, 9.5e-5), (11, 95), (0.011, 0.029)])
def test_labels_of_an_axis_do_not_overlap(low, high):
    for width in (9, 6.4):
        axes = Figure(figsize=(width, 3.6), layout="constrained").subplots(1, 2)
        history = {"seconds": [low, high], "gap": [1.0, 0.5]}
        display = drawn(DualityGapDisplay.from_history(history, against="seconds", ax=axes[0]))
        first, last = display.ax_.xaxis.get_view_interval()
        ticks = zip(
            display.ax_.xaxis.get_majorticklocs(), display.ax_.xaxis.get_majorticklabels(),
            strict=True)
        boxes = [label.get_window_extent() for x, label in ticks if first <= x <= last]
        assert len(boxes) >= 2
        assert all(a.x1 < b.x0 for a, b in zip(boxes[:-1], boxes[1:], strict=True)), boxes


def test_displays_say_what_they_show(fits, tagger, path):
    assert repr(DualityGapDisplay.from_estimator(fits)) == (
        "<DualityGapDisplay: 2 curves (surrogate=max_min, surrogate=log), tol=0.0001>")
    one = DualityGapDisplay.from_estimator(fits[0])
    assert repr(one) == f"<DualityGapDisplay: 1 curve, tol={one.tol:g}>"
    assert repr(DualityGapDisplay([{}])) == "<DualityGapDisplay: 1 curve>"
    assert repr(TransitionDisplay.from_estimator(tagger)) == (
        "<TransitionDisplay: from 4 to 4 labels>")
    display = RegularizationPathDisplay.from_path(path)
    assert repr(display) == (
        f"<RegularizationPathDisplay: {len(path)} breakpoints, alpha from {path.alphas[0]:.3g} "
        f"to {path.alphas[-1]:.3g}, eps=0.03>")


def test_figures_of_displays_have_titles(fits, tagger, path):
    for display in (
        DualityGapDisplay.from_estimator(fits), TransitionDisplay.from_estimator(tagger),
        RegularizationPathDisplay.from_path(path),
    ):
        title = display.figure_._suptitle
        assert title.get_text()
        box = drawn(display).figure_.axes[0].get_tightbbox()
        assert title.get_window_extent().y0 >= box.y1


def test_gap_curves_take_the_axes_and_arguments_that_are_given(fits):
    ax = Figure().subplots()
    display = DualityGapDisplay.from_estimator(fits, ax=ax, curve_kwargs={"linewidth": 3.0})
    assert display.ax_ is ax and display.figure_ is ax.figure
    assert [line.get_linewidth() for line in display.lines_] == [3.0, 3.0]
    display.plot(ax, curve_kwargs=[{"color": "k"}, {"color": "r"}])
    assert [line.get_color() for line in display.lines_] == ["k", "r"]


def test_gap_curves_on_the_axes_of_another_display_look_different(fits):
    first = DualityGapDisplay.from_estimator(fits[0])
    second = DualityGapDisplay.from_estimator(fits[1], ax=first.ax_)
    assert second.ax_ is first.ax_
    assert second.lines_[0].get_color() != first.lines_[0].get_color()
    looks = DualityGapDisplay.from_history([{"pass": [1], "gap": [1.0]}] * 28).lines_
    assert len({(line.get_color(), line.get_linestyle()) for line in looks}) == 28


def test_gap_labels_are_left_on_short_and_on_narrow_axes():
    history = {"seconds": [0.001, 0.1], "gap": [0.03, 0.02]}
    ax = Figure(figsize=(3, 4)).subplots()
    display = drawn(DualityGapDisplay.from_history(history, against="seconds", ax=ax))
    low, high = display.ax_.get_ylim()
    assert any(low <= tick <= high for tick in display.ax_.get_yticks())
    texts = [label for label in display.ax_.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in texts]
    assert all(a.x1 <= b.x0 for a, b in zip(boxes, boxes[1:]))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: DualityGapDisplay.from_estimator([]), ValueError, "estimator is empty"),
        (lambda: DualityGapDisplay.from_history({}), ValueError, "history is empty"),
        (
            lambda: DualityGapDisplay.from_estimator(MulticlassClassifier()),
            NotFittedError, "not fitted",
        ),
        (
            lambda: DualityGapDisplay.from_estimator(GaussianNB().fit(*IRIS)),
            TypeError, "estimator must be a fitted estimator .*got a GaussianNB",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1, 2], "gap": [1.0]}),
            ValueError, r"histories\[0\]: 'pass' and 'gap' .*got shapes \(2,\) and \(1,\)",
        ),
        (
            lambda: DualityGapDisplay.from_history(
                [{"pass": [1], "gap": [1.0]}] * 2, against="seconds"
            ),
            ValueError, r"histories\[0\] has no 'seconds', only \['gap', 'pass'\]",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1], "gap": [1.0]}, against="time"),
            ValueError, r"against must be one of \('passes', .*got 'time'",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1], "gap": [1.0]}, names=["a", "b"]),
            ValueError, "names must be a list of 1, one for each curve, got 2",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1], "gap": [1.0]}, names="a"),
            ValueError, "names must be a list of 1, one for each curve, got 'a'",
        ),
        (
            lambda: DualityGapDisplay.from_history(
                {"pass": [1], "gap": [1.0]}, curve_kwargs=[{}, {}]
            ),
            ValueError, "curve_kwargs must be a list of 1",
        ),
    ],
)
def test_gap_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert not plt.get_fignums()


# --------------------------------------------------------------------------- transitions


@pytest.fixture(scope="module")
def tagger():
    rng = np.random.default_rng(0)
    labels = [["O", "B-NP", "I-NP", "O"], ["B-NP", "I-NP", "I-NP"], ["O", "O", "B-NP", "B-NP"]]
    X = [rng.normal(size=(len(y), 3)) for y in labels]
    return SequenceTagger("log", random_state=0).fit(X, labels)


def test_transitions_are_the_taggers(tagger):
    display = drawn(TransitionDisplay.from_estimator(tagger))
    shown = display.im_.get_array()
    R = tagger.classes_.size
    assert_array_equal(shown[1:, :R], tagger.transition_coef_)
    assert_array_equal(shown[0, :R], tagger.start_coef_)
    assert_array_equal(shown[1:, R], tagger.end_coef_)
    assert np.ma.getmaskarray(shown).sum() == 1 and np.ma.getmaskarray(shown)[0, R]
    names = tagger.classes_.tolist()
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == ["(start)", *names]
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == [*names, "(end)"]
    low, high = display.im_.get_clim()
    assert low == -high
    assert high == np.nanmax(np.abs(display.weights))


def test_transitions_are_written_in_readable_colours(tagger):
    display = drawn(TransitionDisplay.from_estimator(tagger, values_format=".4f"))
    assert display.text_[0, -1] is None
    for (i, j), text in np.ndenumerate(display.text_):
        if text is not None:
            assert text.get_text() == f"{display.weights[i, j]:.4f}"
            assert text.get_position() == (j, i)
            red, green, blue, _ = display.im_.cmap(display.im_.norm(display.weights[i, j]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            assert text.get_color() == ("white" if dark else "black")


def test_transitions_by_default_have_two_digits_of_the_largest_and_no_negative_zero():
    display = TransitionDisplay(np.array([[0.234, -0.0001]]), ["a"], ["a", "b"]).plot()
    assert [text.get_text() for text in display.text_[0]] == ["0.23", "0.00"]
    display = TransitionDisplay(np.array([[234.0, -1.4]]), ["a"], ["a", "b"]).plot()
    assert [text.get_text() for text in display.text_[0]] == ["234", "-1"]


def test_transitions_of_chosen_labels_without_ends(tagger):
    display = TransitionDisplay.from_estimator(tagger, labels=["O", "B-NP"], ends=False)
    order = [tagger.classes_.tolist().index(label) for label in ("O", "B-NP")]
    assert_array_equal(display.weights, tagger.transition_coef_[np.ix_(order, order)])
    assert display.row_labels == display.column_labels == ["O", "B-NP"]
    with pytest.raises(ValueError, match="labels has 'B-VP', which is not a label of the tagger"):
        TransitionDisplay.from_estimator(tagger, labels=["B-VP"])


def test_transitions_of_a_pipeline_whose_tagger_has_no_ends():
    X, y = [[[0.0], [1.0]], [[1.0], [0.0]]], [[1, 2], [2, 1]]
    model = make_pipeline(SequenceTagger(transitions=Transitions(start_end=False), random_state=0)).fit(X, y)
    display = TransitionDisplay.from_estimator(model)
    assert display.row_labels == display.column_labels == ["1", "2"]
    assert_array_equal(display.weights, model[-1].transition_coef_)


def test_many_labels_have_no_numbers_and_names_that_do_not_overlap():
    n = 40
    rng = np.random.default_rng(0)
    names = [f"label {i}" for i in range(n)]
    display = drawn(TransitionDisplay(rng.normal(size=(n, n)), names, names).plot())
    assert display.text_ is None
    for labels, ends in (
        (display.ax_.get_xticklabels(), ("x0", "x1")),
        (display.ax_.get_yticklabels(), ("y0", "y1")),
    ):
        boxes = sorted((label.get_window_extent() for label in labels), key=lambda b: b.x0 + b.y0)
        low, high = ends
        assert all(getattr(a, high) <= getattr(b, low) for a, b in zip(boxes, boxes[1:]))
    assert TransitionDisplay(np.eye(n), names, names).plot(values=True).text_.size == n * n


def test_transitions_that_are_all_zero_are_drawn():
    display = drawn(TransitionDisplay(np.zeros((2, 2)), ["a", "b"], ["a", "b"]).plot())
    assert display.im_.get_clim() == (-1.0, 1.0)
    assert display.text_[0, 0].get_text() == "0.0"


def test_transitions_take_the_axes_and_arguments_that_are_given(tagger):
    ax = Figure().subplots()
    display = TransitionDisplay.from_estimator(
        tagger, ax=ax, colorbar=False, cmap="PuOr", im_kw={"alpha": 0.5}, text_kw={"color": "k"}
    )
    assert display.ax_ is ax and display.colorbar_ is None
    assert display.im_.get_cmap().name == "PuOr" and display.im_.get_alpha() == 0.5
    assert display.text_[0, 0].get_color() == "k"


def test_transitions_need_a_fitted_tagger_that_has_them(fits):
    with pytest.raises(TypeError, match="such as SequenceTagger, got a MulticlassClassifier"):
        TransitionDisplay.from_estimator(fits[0])
    with pytest.raises(NotFittedError):
        TransitionDisplay.from_estimator(SequenceTagger())
    X, y = [[[0.0], [1.0]]], [["a", "b"]]
    without = SequenceTagger(transitions=Transitions(pairs=False), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="fitted with pairs=False"):
        TransitionDisplay.from_estimator(without)


# ------------------------------------------------------------------ regularisation paths

X, Y = StandardScaler().fit_transform(IRIS[0]), np.array(["x", "y", "z"])[IRIS[1]]
TRAIN, VALID = slice(0, None, 2), slice(1, None, 2)


@pytest.fixture(scope="module")
def path():
    return regularization_path(
        MulticlassClassifier("max_margin", random_state=0), X[TRAIN], Y[TRAIN], eps=0.03
    )


@pytest.fixture(scope="module")
def search():
    model = MulticlassClassifier(random_state=0)
    return RegularizationPathCV(model, eps=0.02, cv=4, scoring="balanced_accuracy").fit(X, Y)


def some_alphas(path):
    return np.geomspace(path.alphas[0] * 1.9, path.alphas[-1] / 1.9, 217)


def step_values(line, alphas):
    """Values at alphas of a line that is drawn in steps, from the largest alpha down."""
    assert line.get_drawstyle() == "steps-post"
    x, y = line.get_data()
    assert (np.diff(x) <= 0).all()
    return y[np.searchsorted(-x, -alphas, side="right") - 1]


@pytest.mark.parametrize("options", [
    {}, {"eps": 0.002}, {"method": "heuristic"}, {"alpha_min": 0.01, "alpha_max": 3.0},
    {"method": "grid", "alphas": [4.0, 0.2, 0.01]}, {"method": "grid", "alphas": [1.0]},
])
def test_path_gap_is_that_of_the_path_at_every_alpha(options):
    model = MulticlassClassifier("log", random_state=0)
    path = regularization_path(model, X, Y, **{"eps": 0.05, **options})
    display = drawn(RegularizationPathDisplay.from_path(path))
    assert display.panels_ == ("gap",) and display.axes_.shape == (1,)
    alphas, gaps = display.gap_line_.get_data()
    assert alphas[0] == 2 * path.alphas[0] and path.alphas[-1] / 2 <= alphas[-1]
    assert alphas[-1] <= path.alphas[-1] and (np.diff(alphas) < 0).all()
    assert_array_equal(gaps, [path.relative_gap(alpha) for alpha in alphas])
    # no corner is cut: on the curve's own lines the gap is what it is anywhere
    inside = some_alphas(path)
    inside = inside[(inside < path.alphas[0]) & (inside > path.alphas[-1])]
    exact = [path.relative_gap(alpha) for alpha in inside]
    assert_allclose(np.interp(-inside, -alphas, gaps), exact, atol=1e-9)
    assert_array_equal(display.breakpoints_.get_xdata(), path.alphas)
    assert_array_equal(display.breakpoints_.get_ydata(), path.relative_gaps)
    assert_array_equal(display.eps_line_.get_ydata(), path.eps)
    low, high = display.ax_.get_ylim()
    assert low <= gaps.min() and max(gaps.max(), path.eps) < high
    n = len(path)
    assert legend_texts(display.ax_) == [
        "certified gap", f"{n} breakpoint{'s' if n > 1 else ''}", f"eps = {path.eps:g}"
    ]


def test_path_gap_between_two_alphas(path):
    display = RegularizationPathDisplay.from_path(path, alpha_min=0.2, alpha_max=0.6)
    assert display.curve_alphas[0] == 0.6 and display.curve_alphas[-1] == 0.2
    with pytest.raises(ValueError, match="below alpha_max, got 6 and 2"):
        RegularizationPathDisplay.from_path(path, alpha_min=6.0, alpha_max=2.0)
    with pytest.raises(ValueError, match="alpha_min must be above 0 .*, got 0 and"):
        RegularizationPathDisplay.from_path(path, alpha_min=0.0)


def test_path_gap_far_above_eps_is_on_a_logarithmic_axis():
    path = regularization_path(
        MulticlassClassifier(random_state=0), X, Y, eps=1e-4, method="grid", alphas=[1.0, 1e-3]
    )
    display = drawn(RegularizationPathDisplay.from_path(path))
    assert display.gap_line_.get_ydata().max() > 3e-4
    assert display.ax_.get_yscale() == "log"


def test_path_scores_are_those_of_the_path_at_every_alpha(path):
    display = drawn(
        RegularizationPathDisplay.from_path(
            path, X[TRAIN], Y[TRAIN], X_valid=X[VALID], y_valid=Y[VALID],
            scoring="balanced_accuracy",
        )
    )
    assert display.panels_ == ("gap", "score")
    alphas = some_alphas(path)
    for name, part in (("training", TRAIN), ("validation", VALID)):
        line = display.score_lines_[name]
        assert line.get_xdata()[0] == display.curve_alphas[0] > path.alphas[0]
        assert line.get_xdata()[-1] == display.curve_alphas[-1]
        expected = path.score(X[part], Y[part], alphas=alphas, scoring="balanced_accuracy")
        assert len(set(expected)) > 2
        assert_array_equal(step_values(line, alphas), expected)
    best = path.best_alpha(X=X[VALID], y=Y[VALID], scoring="balanced_accuracy")
    assert display.best_alpha == best and display.one_se_alpha is None
    assert [line.get_xdata()[0] for line in display.best_alpha_lines_] == [best, best]
    assert display.one_se_alpha_lines_ == []
    assert display.axes_[1].get_ylabel() == "balanced accuracy"
    assert legend_texts(display.axes_[1]) == [
        "training", "validation", f"best: alpha = {best:.3g}"
    ]
    assert len(legend_texts(display.axes_[0])) == 3


def test_path_scores_of_one_set_mark_no_alpha(path):
    display = drawn(RegularizationPathDisplay.from_path(path, X, Y, score_name="accuracy"))
    assert list(display.score_lines_) == ["score"]
    assert_array_equal(display.score_lines_["score"].get_ydata()[:-1], path.score(X, Y))
    assert display.axes_[1].get_ylabel() == "accuracy"
    assert display.best_alpha is None and display.best_alpha_lines_ == []


def test_path_takes_scores_that_are_known(path):
    losses = 1 - path.score(X, Y)
    display = drawn(
        RegularizationPathDisplay.from_path(
            path, X, Y, scores={"loss": losses}, best_alpha=float(path.alphas[1])
        )
    )
    assert list(display.score_lines_) == ["loss", "score"]
    assert len({line.get_color() for line in display.score_lines_.values()}) == 2
    assert_array_equal(display.score_lines_["loss"].get_ydata()[:-1], losses)
    assert display.best_alpha_lines_[0].get_xdata()[0] == path.alphas[1]
    match = rf"scores\['loss'\] must be a list of {len(path)}, one for each breakpoint, got 1"
    with pytest.raises(ValueError, match=match):
        RegularizationPathDisplay.from_path(path, scores={"loss": [0.5]})


def test_path_weights_are_the_strongest_ones_at_every_alpha(path):
    display = drawn(RegularizationPathDisplay.from_path(path, n_coefs=3))
    assert display.panels_ == ("gap", "coef")
    largest = np.max([np.abs(path.coef(alpha)) for alpha in path.alphas], axis=0)
    alphas = some_alphas(path)
    alphas = alphas[alphas <= path.alphas[0]]
    weights = np.array([path.coef(alpha) for alpha in alphas])
    shown = []
    for line, name in zip(display.coef_lines_, legend_texts(display.axes_[1])):
        label, feature = name.split(": x")
        place = path.estimator(1.0).classes_.tolist().index(label), int(feature)
        assert_array_equal(step_values(line, alphas), weights[(slice(None), *place)])
        shown.append(largest[place])
    assert sorted(shown) == sorted(largest.ravel())[-3:]
    # the legend has the order of the lines at their weakly regularised end
    ends = [line.get_ydata()[-1] for line in display.coef_lines_]
    assert ends == sorted(ends, reverse=True)
    assert len(RegularizationPathDisplay.from_path(path, n_coefs=99).coef_lines_) == 12


def test_path_weights_have_the_names_of_their_features(path):
    names = ["a", "b", "c", "d"]
    display = RegularizationPathDisplay.from_path(path, n_coefs=1, feature_names=names)
    assert display.coef_names[0].split(": ")[1] in names
    with pytest.raises(ValueError, match="feature_names must have 4 names, got 1"):
        RegularizationPathDisplay.from_path(path, n_coefs=1, feature_names=["a"])
    frame = pytest.importorskip("pandas").DataFrame(X, columns=names)
    of_frame = regularization_path(MulticlassClassifier(random_state=0), frame, Y, eps=0.3)
    display = RegularizationPathDisplay.from_path(of_frame, n_coefs=12)
    assert sorted(display.coef_names) == sorted(f"{c}: {name}" for c in "xyz" for name in names)


def test_path_weights_of_other_outputs():
    rankings = np.where(X[:, :1] > 0, "b>a>c", "a>c>b").ravel()
    path = regularization_path(LabelRanker(random_state=0), X, rankings, eps=0.3)
    display = drawn(RegularizationPathDisplay.from_path(path, n_coefs=36))
    assert {"a, 0: x0", "c, 2: x3"} <= set(display.coef_names)
    pairs = np.random.default_rng(0).normal(size=(6, 3, 3, 2))
    path = regularization_path(Matcher(random_state=0), pairs, [[0, 1, 2]] * 6, eps=0.3)
    display = drawn(RegularizationPathDisplay.from_path(path, n_coefs=5))
    assert sorted(display.coef_names) == ["x0", "x1"]
    path = regularization_path(
        MulticlassClassifier(kernel="rbf", random_state=0), X[TRAIN], Y[TRAIN], eps=0.3
    )
    drawn(RegularizationPathDisplay.from_path(path, X, Y))
    with pytest.raises(ValueError, match="n_coefs needs kernel='linear'"):
        RegularizationPathDisplay.from_path(path, n_coefs=1)


def test_path_without_certificates_has_no_gap_to_show():
    path = regularization_path(
        MulticlassClassifier(random_state=0), X, Y, method="heuristic", certify=False
    )
    display = drawn(RegularizationPathDisplay.from_path(path, X, Y, n_coefs=1))
    assert display.panels_ == ("score", "coef")
    with pytest.raises(ValueError, match="nothing to show: the gaps of the path were not certif"):
        RegularizationPathDisplay.from_path(path)
    with pytest.raises(ValueError, match="for the panel 'gap': the gaps of the path were not"):
        RegularizationPathDisplay.from_path(path, X, Y, panels="gap")


def test_path_weights_that_do_not_change_are_drawn():
    path = regularization_path(
        MulticlassClassifier(random_state=0), np.zeros((6, 1)), [0, 1] * 3, method="grid",
        alphas=[4.0, 2.0, 1.0],
    )
    display = drawn(RegularizationPathDisplay.from_path(path, np.zeros((2, 1)), [0, 1], n_coefs=2))
    assert np.isfinite(display.switches).all()
    assert_array_equal(display.coef_lines_[0].get_ydata(), 0.0)


def test_path_panels_go_where_they_are_told_to(path):
    figure = Figure()
    axes = figure.subplots(1, 2)
    display = RegularizationPathDisplay.from_path(path, X, Y, ax=axes)
    assert display.axes_.tolist() == axes.tolist() and display.figure_ is figure
    display.plot(axes[0], panels="score")
    assert display.ax_ is axes[0] and display.panels_ == ("score",)
    axes = figure.subplots(1, 2)
    display.plot(axes, panels=["score", "gap"])
    assert display.panels_ == ("score", "gap")
    assert axes[0].get_ylabel() == "score" and axes[1].get_ylabel() == "relative duality gap"
    with pytest.raises(ValueError, match="ax must have 1 axes, for the panels gap, got 2"):
        display.plot(axes, panels=["gap"])
    with pytest.raises(ValueError, match=r"panels must be some of .* got \('gap', 'gain'\)"):
        display.plot(panels=["gap", "gain"])
    with pytest.raises(ValueError, match="panels must be some of"):
        display.plot(panels=[])
    with pytest.raises(ValueError, match="no numbers for the panel 'coef': give n_coefs"):
        display.plot(panels=["coef"])
    with pytest.raises(ValueError, match="no numbers for the panel 'score': give X and y"):
        RegularizationPathDisplay.from_path(path, panels="score")


def test_cross_validation_is_drawn_with_its_errors_and_its_choices(search):
    display = drawn(RegularizationPathDisplay.from_estimator(search, n_coefs=1))
    assert display.panels_ == ("gap", "score", "coef")
    alphas, mean = display.mean_score_line_.get_data()
    assert_array_equal(alphas, search.alphas_)
    assert_allclose(mean, search.mean_score_)
    error = search.std_score_ * np.sqrt(4 / 3) / 2
    vertices = display.score_band_.get_paths()[0].vertices
    for i in (0, alphas.size // 2, alphas.size - 1):
        heights = vertices[vertices[:, 0] == alphas[i], 1]
        assert heights.min() == pytest.approx(mean[i] - error[i])
        assert heights.max() == pytest.approx(mean[i] + error[i])
    assert search.alpha_1se_ > search.alpha_
    for lines, alpha in (
        (display.best_alpha_lines_, search.alpha_),
        (display.one_se_alpha_lines_, search.alpha_1se_),
    ):
        assert [line.get_xdata()[0] for line in lines] == [alpha] * 3
    assert legend_texts(display.axes_[1]) == [
        "mean of 4 folds", "± 1 standard error", f"best: alpha = {search.alpha_:.3g}",
        f"one standard error: alpha = {search.alpha_1se_:.3g}",
    ]
    for ax in display.axes_:  # no legend hides a line or the band
        box = ax.get_legend().get_window_extent()
        assert not box.overlaps(ax.get_window_extent())
        assert display.figure_.bbox.containsx(box.x1) and display.figure_.bbox.containsy(box.y1)
    assert display.axes_[1].get_ylabel() == "balanced accuracy"
    assert_array_equal(display.breakpoints_.get_xdata(), search.path_.alphas)


def test_cross_validation_with_more_data_and_one_alpha_that_is_both(search):
    display = drawn(RegularizationPathDisplay.from_estimator(search, X, Y, panels="score"))
    expected = search.path_.score(X, Y, scoring="balanced_accuracy")
    assert_array_equal(display.score_lines_["given data"].get_ydata()[:-1], expected)
    display.one_se_alpha = display.best_alpha
    drawn(display.plot())
    assert len(display.best_alpha_lines_) == 2 and display.one_se_alpha_lines_ == []


def test_cross_validation_can_show_losses():
    model = MulticlassClassifier("log", random_state=0)
    search = RegularizationPathCV(model, cv=3, scoring="neg_log_loss").fit(X, Y)
    display = drawn(RegularizationPathDisplay.from_estimator(search, X, Y, negate_score=True))
    mean = display.mean_score_line_.get_ydata()
    assert (mean > 0).all()
    assert_allclose(mean, -search.mean_score_)
    expected = -search.path_.score(X, Y, scoring="neg_log_loss")
    assert_allclose(display.score_lines_["given data"].get_ydata()[:-1], expected)
    assert display.best_alpha == search.alpha_
    assert display.axes_[1].get_ylabel() == "log loss"
    # weights that are scaled have another log loss: nothing is said of it
    assert display.scores_above["given data"] != display.scores["given data"][0]
    line = display.score_lines_["given data"]
    assert line.get_xdata()[0] == search.path_.alphas[0]


def test_cross_validation_of_one_split_has_no_error():
    splits = [(np.arange(0, 150, 2), np.arange(1, 150, 2))]
    search = RegularizationPathCV(MulticlassClassifier(random_state=0), cv=splits).fit(X, Y)
    display = drawn(RegularizationPathDisplay.from_estimator(search))
    vertices = display.score_band_.get_paths()[0].vertices
    assert set(vertices[:, 1]) == set(search.mean_score_)


@pytest.mark.parametrize("around", [False, True])
def test_cross_validation_with_a_pipeline(around):
    model, options = MulticlassClassifier("log", random_state=0), {"cv": 3, "eps": 0.1}
    steps = StandardScaler(), PCA(3)
    if around:
        search = RegularizationPathCV(make_pipeline(*steps, model), **options).fit(X, Y)
        path, before = search.path_, search.best_estimator_[:-1]
    else:
        search = make_pipeline(*steps, RegularizationPathCV(model, **options)).fit(X, Y)
        path, before = search[-1].path_, search[:-1]
    display = drawn(RegularizationPathDisplay.from_estimator(search, X, Y))
    assert_array_equal(
        display.score_lines_["given data"].get_ydata()[:-1], path.score(before.transform(X), Y))


def test_cross_validation_must_be_one_that_is_fitted(fits):
    with pytest.raises(NotFittedError):
        RegularizationPathDisplay.from_estimator(RegularizationPathCV(MulticlassClassifier()))
    with pytest.raises(TypeError, match="must be a RegularizationPathCV, got a MulticlassClass"):
        RegularizationPathDisplay.from_estimator(fits[0])

def test_the_page_of_displays_runs_from_top_to_bottom():
    page = Path(__file__).resolve().parents[1] / "docs" / "plotting.md"
    namespace = {"__name__": "plotting"}
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
        drawn(namespace["display"])
    assert len(blocks) > 2
