"""Displays: what is drawn is what was computed."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from numpy.testing import assert_allclose, assert_array_equal  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

import fastm4n  # noqa: E402
from fastm4n import MulticlassClassifier, SequenceTagger, plotting  # noqa: E402
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
        MulticlassClassifier(surrogate, alpha=0.01, tol=1e-4, random_state=0).fit(*IRIS)
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
        assert_array_equal(line.get_ydata(), model.history_["gap"])
        assert line.get_ydata()[-1] == model.duality_gap_
    assert display.ax_.get_yscale() == "log"
    assert display.ax_.get_xscale() == "log"
    assert display.ax_.get_xlabel() == against.replace("_", " ")
    assert_array_equal(display.tol_line_.get_ydata(), 1e-4)
    assert legend_texts(display.ax_) == ["surrogate=max_min", "surrogate=log", "tol = 0.0001"]


def test_gap_of_one_estimator_has_no_name(fits):
    display = drawn(DualityGapDisplay.from_estimator(fits[0]))
    assert display.names is None
    assert legend_texts(display.ax_) == ["tol = 0.0001"]


def test_gap_of_a_pipeline_is_that_of_its_last_step():
    model = make_pipeline(StandardScaler(), MulticlassClassifier(random_state=0)).fit(*IRIS)
    display = DualityGapDisplay.from_estimator({"scaled": model})
    assert_array_equal(display.lines_[0].get_ydata(), model[-1].history_["gap"])
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
            TypeError, "estimator is a GaussianNB, which has no history_",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1, 2], "gap": [1.0]}),
            ValueError, r"histories\[0\]: 'pass' has shape \(2,\) and 'gap' \(1,\)",
        ),
        (
            lambda: DualityGapDisplay.from_history(
                [{"pass": [1], "gap": [1.0]}] * 2, against="seconds"
            ),
            ValueError, r"histories\[0\] has no 'seconds'; it has \['gap', 'pass'\]",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1], "gap": [1.0]}, against="time"),
            ValueError, r"against must be one of \('passes', .*got 'time'",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1], "gap": [1.0]}, names=["a", "b"]),
            ValueError, "names must be a list of 1, one for each curve; got 2",
        ),
        (
            lambda: DualityGapDisplay.from_history({"pass": [1], "gap": [1.0]}, names="a"),
            ValueError, "names must be a list of 1, one for each curve; got 'a'",
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
    with pytest.raises(ValueError, match="labels has 'B-VP', which the tagger does not know"):
        TransitionDisplay.from_estimator(tagger, labels=["B-VP"])


def test_transitions_of_a_pipeline_whose_tagger_has_no_ends():
    X, y = [[[0.0], [1.0]], [[1.0], [0.0]]], [[1, 2], [2, 1]]
    model = make_pipeline(SequenceTagger(fit_start_end=False, random_state=0)).fit(X, y)
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
    with pytest.raises(TypeError, match="must be a SequenceTagger, got a MulticlassClassifier"):
        TransitionDisplay.from_estimator(fits[0])
    with pytest.raises(NotFittedError):
        TransitionDisplay.from_estimator(SequenceTagger())
    X, y = [[[0.0], [1.0]]], [["a", "b"]]
    without = SequenceTagger(fit_transitions=False, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="fitted with fit_transitions=False"):
        TransitionDisplay.from_estimator(without)


# ------------------------------------------------------------------ regularisation paths


class PathOfThree:
    """A path of known numbers: three breakpoints, weights of two classes and two features."""

    alphas, gaps, slopes = np.array([8.0, 4.0, 1.0]), np.array([0.02, 0.04, 0.09]), (0.1, 0.05, 0)
    eps = 0.1
    weights = np.array([[[1, -2], [3, 0]], [[2, -4], [6, 0]], [[4, -8], [5, 1]]], dtype=float)

    def piece(self, alpha):
        return max(0, np.count_nonzero(self.alphas >= alpha) - 1)

    def gap(self, alpha):
        k = self.piece(alpha)
        return self.gaps[k] + max(0, 1 - alpha / self.alphas[k]) * self.slopes[k]

    def coef(self, alpha):
        return self.weights[self.piece(alpha)]

    def estimator(self, alpha):
        model = MulticlassClassifier(alpha=alpha)
        model.classes_ = np.array(["no", "yes"])
        return model

    def score(self, X, y):
        return np.array([0.5, 0.75, 0.75]) - X


@pytest.fixture
def path():
    return PathOfThree()


def test_path_gap_is_that_of_the_path_at_every_alpha(path):
    display = drawn(RegularizationPathDisplay.from_path(path))
    assert display.panels_ == ("gap",) and display.axes_.shape == (1,)
    alphas, gaps = display.gap_line_.get_data()
    assert alphas[0] == 16.0 and alphas[-1] == 0.5
    assert (np.diff(alphas) < 0).all()
    assert_array_equal(gaps, [path.gap(alpha) for alpha in alphas])
    # the curve goes straight up and down where the weights change
    for alpha, gap in zip(path.alphas[1:], path.gaps[1:]):
        at = int(np.flatnonzero(alphas == alpha)[0])
        assert gaps[at] == gap
        assert alphas[at - 1] == np.nextafter(alpha, 16.0)
        assert gaps[at - 1] == pytest.approx(path.gap(alpha * (1 + 1e-12)))
    assert_array_equal(display.breakpoints_.get_xdata(), path.alphas)
    assert_array_equal(display.breakpoints_.get_ydata(), path.gaps)
    assert_array_equal(display.eps_line_.get_ydata(), 0.1)
    assert display.ax_.get_xscale() == "log"
    assert display.ax_.get_ylim()[0] == 0.0 and display.ax_.get_ylim()[1] > 0.1
    assert legend_texts(display.ax_) == ["certified gap", "3 breakpoints", "eps = 0.1"]


def test_path_gap_between_two_alphas(path):
    display = RegularizationPathDisplay.from_path(path, alpha_min=2.0, alpha_max=6.0)
    alphas = display.gap_line_.get_xdata()
    assert alphas[0] == 6.0 and alphas[-1] == 2.0 and 4.0 in alphas
    with pytest.raises(ValueError, match="not from 6 to 2"):
        RegularizationPathDisplay.from_path(path, alpha_min=6.0, alpha_max=2.0)
    with pytest.raises(ValueError, match="above 0 to a larger one, not from 0 to"):
        RegularizationPathDisplay.from_path(path, alpha_min=0.0)


def test_path_gap_far_above_eps_is_on_a_logarithmic_axis(path):
    path.eps = 1e-3
    display = drawn(RegularizationPathDisplay.from_path(path))
    assert display.ax_.get_yscale() == "log"


def test_path_scores_are_step_functions(path):
    display = drawn(
        RegularizationPathDisplay.from_path(
            path, 0.0, None, X_valid=0.1, y_valid=None, score_name="accuracy"
        )
    )
    assert display.panels_ == ("gap", "score")
    for name, shift in (("training", 0.0), ("validation", 0.1)):
        line = display.score_lines_[name]
        # from each breakpoint down to the next one, and from the last one on
        assert line.get_drawstyle() == "steps-post"
        assert_array_equal(line.get_xdata(), [8.0, 4.0, 1.0, 0.5])
        assert_array_equal(line.get_ydata(), np.array([0.5, 0.75, 0.75, 0.75]) - shift)
    # the first of equals
    assert display.best_alpha == 4.0 and display.one_se_alpha is None
    assert [line.get_xdata()[0] for line in display.best_alpha_lines_] == [4.0, 4.0]
    assert display.axes_[1].get_ylabel() == "accuracy"
    assert legend_texts(display.axes_[1]) == ["training", "validation", "best: alpha = 4"]
    assert legend_texts(display.axes_[0]) == ["certified gap", "3 breakpoints", "eps = 0.1"]


def test_path_scores_of_one_set_mark_no_alpha(path):
    display = drawn(RegularizationPathDisplay.from_path(path, 0.0, None))
    assert list(display.score_lines_) == ["score"]
    assert display.best_alpha is None and display.best_alpha_lines_ == []


def test_path_weights_are_the_strongest_ones(path):
    display = drawn(RegularizationPathDisplay.from_path(path, n_coefs=2))
    assert display.panels_ == ("gap", "coef")
    # by the largest absolute value anywhere, and in the order of the last values
    assert legend_texts(display.axes_[1]) == ["yes: x0", "no: x1"]
    assert_array_equal(display.coef_lines_[0].get_ydata(), [3, 6, 5, 5])
    assert_array_equal(display.coef_lines_[1].get_ydata(), [-2, -4, -8, -8])
    display = RegularizationPathDisplay.from_path(path, n_coefs=1, feature_names=["a", "b"])
    assert display.coef_names == ["no: b"]
    display = RegularizationPathDisplay.from_path(path, n_coefs=99)
    assert len(display.coef_lines_) == 4
    with pytest.raises(ValueError, match="feature_names has 1 names, but there are 2 features"):
        RegularizationPathDisplay.from_path(path, n_coefs=1, feature_names=["a"])


def test_path_panels_go_where_they_are_told_to(path):
    figure = Figure()
    axes = figure.subplots(1, 2)
    display = RegularizationPathDisplay.from_path(path, 0.0, None, ax=axes)
    assert display.axes_.tolist() == axes.tolist() and display.figure_ is figure
    display.plot(axes[0], panels="score")
    assert display.ax_ is axes[0] and display.panels_ == ("score",)
    display.plot(axes, panels=["score", "gap"])
    assert display.panels_ == ("score", "gap")
    assert axes[0].get_ylabel() == "score" and axes[1].get_ylabel() == "duality gap"
    with pytest.raises(ValueError, match="ax has 2 axes, but there are 1 panels: gap"):
        display.plot(axes, panels=["gap"])
    with pytest.raises(ValueError, match=r"panels must be some of .* got \('gap', 'gain'\)"):
        display.plot(panels=["gap", "gain"])
    with pytest.raises(ValueError, match="panels must be some of"):
        display.plot(panels=[])
    with pytest.raises(ValueError, match="no numbers for the panel 'coef'; give n_coefs"):
        display.plot(panels=["coef"])
    with pytest.raises(ValueError, match="no numbers for the panel 'score'; give X and y"):
        RegularizationPathDisplay.from_path(path).plot(panels="score")

# --------------------------------------------------------------------------- matplotlib

WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from fastm4n import MulticlassClassifier, plotting
for display, method in (
    ("DualityGapDisplay", "from_estimator"), ("DualityGapDisplay", "from_history"),
    ("TransitionDisplay", "from_estimator"), ("RegularizationPathDisplay", "from_path"),
    ("RegularizationPathDisplay", "from_estimator"),
):
    try:
        getattr(getattr(plotting, display), method)(None)
    except ImportError as error:
        assert str(error) == (
            f'{display}.{method} needs matplotlib: pip install "fastm4n[plot]"'), error
    else:
        raise AssertionError(f"{display}.{method} needs no matplotlib")
for display in (plotting.DualityGapDisplay([]), plotting.TransitionDisplay([], [], [])):
    try:
        display.plot()
    except ImportError as error:
        assert 'pip install "fastm4n[plot]"' in str(error), error
    else:
        raise AssertionError(f"{display} needs no matplotlib")
"""
LAZY = """
import sys
import fastm4n
assert "fastm4n.plotting" not in sys.modules
fastm4n.plotting.DualityGapDisplay
assert not any(name.split(".")[0] == "matplotlib" for name in sys.modules)
assert "plotting" in dir(fastm4n)
"""


def test_the_examples_run():
    result = doctest.testmod(plotting)
    assert result.attempted > 0 and result.failed == 0


def test_the_page_of_displays_runs_from_top_to_bottom():
    page = Path(__file__).resolve().parents[1] / "docs" / "plotting.md"
    namespace = {"__name__": "plotting"}
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)
        drawn(namespace["display"])
    assert len(blocks) > 2


@pytest.mark.parametrize("code", [WITHOUT, LAZY], ids=["without matplotlib", "lazy"])
def test_matplotlib_is_needed_by_plots_only(code):
    root = Path(fastm4n.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
