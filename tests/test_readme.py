"""Examples of the README and of all modules run, and commands are where they are looked for."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import fastm4n

README = Path(__file__).resolve().parents[1] / "README.md"


def python_blocks():
    return re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("block", python_blocks(), ids=lambda block: str(len(block)))
def test_python_blocks_run(block, capsys):
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_there_are_blocks_for_both_estimators():
    text = "".join(python_blocks())
    for name in ("MulticlassClassifier", "OrdinalClassifier", "duality_gap_", "history_"):
        assert name in text


@pytest.mark.parametrize("name", ["run", "test"])
def test_commands_are_marked(name):
    text = README.read_text("utf-8")
    assert len(re.findall(rf"^<!-- command: {name} -->\n```sh\n[^`]+\n```$", text, re.M)) == 1


def test_links_within_the_repository_are_of_known_places():
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text("utf-8")):
        assert target.startswith("docs/") or (README.parent / target).is_file(), target


DOCS = README.parent / "docs"
PAGES = [DOCS / "index.md", *sorted((DOCS / "guide").glob("*.md"))]


def run_page(page, stop=None):
    """The code of a page, from top to bottom in one namespace, which is returned."""
    namespace, text = {"__name__": page.stem}, page.read_text("utf-8")
    text = text if stop is None else text[: text.index(stop)]
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        exec(compile(block, str(page), "exec"), namespace)
    return namespace


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_how_to_pages_run_from_top_to_bottom(page, capsys):
    run_page(page)
    assert capsys.readouterr().out or "```python" not in page.read_text("utf-8")


def test_the_page_of_crfsuite_has_equal_models(capsys):
    # what follows reads a model file: test_crfsuite_models.py runs it
    found = run_page(DOCS / "crfsuite.md", "## Models that exist already")
    assert "transitions" in capsys.readouterr().out
    assert abs(found["crf"].tagger_.coef_ - found["tagger"].coef_).max() < 1e-12


@pytest.mark.parametrize("name", ["torch", "tutorial_network"])
def test_the_pages_of_torch_run_from_top_to_bottom(name, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed: its pages are not run.")
    run_page(DOCS / f"{name}.md")
    assert "False" not in capsys.readouterr().out


def test_the_page_of_skorch_runs(capsys):
    pytest.importorskip("skorch", reason="skorch is not installed: its page is not run.")
    run_page(DOCS / "skorch.md")
    assert capsys.readouterr().out == "True\n"


TUTORIALS = sorted((README.parent / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_the_tutorials_run(script, capsys, monkeypatch):
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(plt, "show", lambda: None)
    with plt.rc_context({"backend": "agg"}):
        exec(compile(script.read_text("utf-8"), str(script), "exec"), {"__name__": script.stem})
    plt.close("all")
    assert capsys.readouterr().out


MODULES = [
    module.name for module in pkgutil.walk_packages(fastm4n.__path__, "fastm4n.")
    if not module.name.endswith("__main__")]


# what examples of these modules import
NEEDED = {"fastm4n.torch": "torch", "fastm4n.dask": "distributed", "fastm4n.sequences": "pyarrow"}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    for start, needed in NEEDED.items():
        if name.startswith(start):
            pytest.importorskip(needed, reason=f"{needed} is not installed: no examples of {start}.")
    module = importlib.import_module(name)
    source = Path(module.__file__ or "")
    result = doctest.testmod(module)
    assert result.failed == 0
    has_none = source.suffix != ".py" or "\n    >>> " not in source.read_text("utf-8")
    assert result.attempted or has_none
