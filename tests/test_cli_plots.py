"""Plots of the command line: every task and penalty has one by default."""

from pathlib import Path

import command_cases
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fastm4n.cli._path import DEFAULT_PLOT

call = command_cases.call


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command_cases.without_layout(monkeypatch)
    command_cases.write_all()


@pytest.fixture
def drawn(monkeypatch):
    """The figures that commands save, which are drawn, but not written."""
    figures = []

    def kept(self, file, **options):
        figures.append(self)
        self.set_dpi(30)
        FigureCanvasAgg(self).draw()
        file.write(b"drawn")

    monkeypatch.setattr(Figure, "savefig", kept)
    return figures


def labels(figure):
    return [ax.get_ylabel() for ax in figure.axes]


SPARSE = (["--penalty", "elasticnet"], ["--set", "penalty=elasticnet"])
METHODS = (
    [], ["--method", "heuristic"], ["--cv", "2"],
    ["--method", "grid", "--alphas", "3", "--alpha-max", "1", "--alpha-min", "0.01"])


@pytest.mark.parametrize(("task", "penalty"), [
    *((task, []) for task in command_cases.DATA),
    ("classes", SPARSE[0]), ("sequences", SPARSE[1]), ("graphs", SPARSE[0])], ids=str)
def test_every_path_has_its_default_plot(task, penalty, drawn, capsys):
    arguments = [*command_cases.DATA[task], "--eps", "0.3", "--max-iter", "300", *penalty]
    code, out, err = call(capsys, "path", *arguments)
    assert code == 0, err
    assert f"plot: {DEFAULT_PLOT}" in out
    assert Path(DEFAULT_PLOT).stat().st_size
    assert ("weights not zero" in labels(drawn[0])) == bool(penalty)


@pytest.mark.parametrize("method", METHODS[1:], ids=str)
@pytest.mark.parametrize("penalty", [[], SPARSE[0]], ids=str)
def test_every_method_has_its_default_plot(method, penalty, drawn, capsys):
    code, out, err = call(capsys, "path", "classes.csv", "--eps", "0.3", *method, *penalty)
    assert (code, f"plot: {DEFAULT_PLOT}" in out) == (0, True), err
    assert len(drawn[0].axes) == 2 + bool(penalty)


@pytest.mark.parametrize(("task", "penalty"), [
    ("classes", []), *((task, SPARSE[0]) for task in command_cases.DATA)],
    ids=str)
def test_every_fit_has_a_plot(task, penalty, drawn, capsys):
    arguments = [*command_cases.DATA[task], *penalty, "--plot", "fit.png"]
    if task == "sequences":
        arguments += ["--plot-transitions", "transitions.png"]
    code, out, err = call(capsys, "fit", *arguments)
    assert (code, "plot: fit.png" in out) == (0, True), err
    assert len(drawn) == 1 + (task == "sequences")
