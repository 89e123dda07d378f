"""Examples of the README and of all modules run, and commands are where they are looked for."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest
from transcripts import BY_THE_CLOCK, differences, run, transcripts

import fastm4n
from fastm4n import cli

README = Path(__file__).resolve().parents[1] / "README.md"


def python_blocks():
    return re.findall(r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)


@pytest.mark.parametrize("block", python_blocks(), ids=lambda block: str(len(block)))
def test_python_blocks_run(block, capsys):
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    assert capsys.readouterr().out


def test_what_tol_bounds_is_what_is_printed(capsys):
    """README and the first page print the figure that is at most tol, and say so."""
    block = next(block for block in python_blocks() if "# at most tol" in block)
    namespace = {"__name__": "readme"}
    exec(compile(block, str(README), "exec"), namespace)
    classifier = namespace["classifier"]
    assert f"gap, relative: {classifier.relative_gap_}\n" in capsys.readouterr().out
    assert 0 < classifier.relative_gap_ <= classifier.tol == 1e-3
    run_page(DOCS / "index.md", "A chain of labels")
    assert 0 < float(capsys.readouterr().out) <= 1e-3


def test_there_are_blocks_for_both_estimators():
    text = "".join(python_blocks())
    for name in ("MulticlassClassifier", "OrdinalClassifier", "relative_gap_", "history_"):
        assert name in text


@pytest.mark.parametrize("name", ["run", "test"])
def test_commands_are_marked(name):
    text = README.read_text("utf-8")
    assert len(re.findall(rf"^<!-- command: {name} -->\n```sh\n[^`]+\n```$", text, re.M)) == 1


def test_the_factors_of_other_packages_are_those_of_their_page():
    """coming_from.md, whose factors test_coming_from.py checks, has the same right-hand sides."""
    table = (DOCS / "coming_from.md").read_text("utf-8").partition("\n## ")[0]
    rows = [dict(re.findall(r"^\| (.*?) \| (.*?) \|", text, re.M))
            for text in (README.read_text("utf-8"), table)]
    shared = rows[0].keys() & rows[1].keys() - {"from", "---"}
    assert len(shared) > 7 and "`LogisticRegression(C=C)`" in shared
    assert {name: rows[0][name] for name in shared} == {name: rows[1][name] for name in shared}


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
    crf, tagger = found["crf"].set_params(epsilon=1e-8), found["tagger"].set_params(tol=1e-9)
    data = found["X_train"], found["y_train"]
    assert abs(crf.fit(*data).tagger_.coef_ - tagger.fit(*data).coef_).max() < 1e-4


@pytest.mark.filterwarnings("error")
def test_the_tutorial_of_names_runs_without_a_warning(capsys):
    found = run_page(DOCS / "tutorial_entities.md")
    assert found["search"].score(found["X_test"], found["y_test"]) > 0.9
    assert "B-PER -> I-PER" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["torch", "torch_distributions", "torch_export", "tutorial_network"])
def test_the_pages_of_torch_run_from_top_to_bottom(name, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed: its pages are not run.")
    run_page(DOCS / f"{name}.md")
    assert "False" not in capsys.readouterr().out


def test_the_page_of_skorch_runs(capsys):
    pytest.importorskip("skorch", reason="skorch is not installed: its page is not run.")
    run_page(DOCS / "skorch.md")
    assert capsys.readouterr().out == "True\n"


def test_the_page_of_hugging_face_runs(capsys, tmp_path):
    for name in ("torch", "transformers", "accelerate"):
        pytest.importorskip(name, reason=f"{name} is not installed: its page is not run.")
    found = run_page(DOCS / "token_classification.md")
    out = capsys.readouterr().out
    assert "False" not in out and "('york', 'I-LOC')" in out
    # a checkpoint of the encoder alone: its weights, and fresh ones of the layer
    found["tagger"].bert.save_pretrained(tmp_path)
    fresh = found["BertCrf"].from_pretrained(tmp_path, id2label=dict(enumerate(found["names"])))
    for name, weights in fresh.crf.named_parameters():
        assert 0 < weights.abs().max() <= 0.1, name
        assert not (weights == getattr(found["tagger"].crf, name)).any()
    assert (fresh.bert.embeddings.word_embeddings.weight == (
        found["tagger"].bert.embeddings.word_embeddings.weight)).all()


def optional_block(page, name):
    """The block of a page that is not run with the others, and imports this package."""
    blocks = re.findall(r"^```py\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    return next(block for block in blocks if f"import {name}" in block)


def test_the_page_of_torch_export_writes_onnx(capsys, monkeypatch, tmp_path):
    for name in ("torch", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=f"{name} is not installed: its page is not run.")
    monkeypatch.chdir(tmp_path)
    page = DOCS / "torch_export.md"
    namespace = run_page(page)
    capsys.readouterr()
    exec(compile(optional_block(page, "onnxruntime"), str(page), "exec"), namespace)
    assert capsys.readouterr().out.splitlines()[-1] == "True"


def test_the_component_of_spacy_finds_entities(capsys, monkeypatch, tmp_path):
    pytest.importorskip("spacy", reason="spaCy is not installed: its recipe is not run.")
    monkeypatch.chdir(tmp_path)
    page = DOCS / "guide" / "text.md"
    namespace = run_page(page, "## Vectors of a transformer")
    capsys.readouterr()
    exec(compile(optional_block(page, "spacy"), str(page), "exec"), namespace)
    assert capsys.readouterr().out == (
        "[('Ada', 'PER'), ('Turin', 'LOC'), ('Menabrea', 'PER'), ('London', 'LOC')]\n")
    assert not len(namespace["nlp"]("").ents)


def test_the_vectors_of_a_transformer_have_a_row_for_each_word(tmp_path):
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: its recipe is not run.")
    words = tmp_path / "vocab.txt"
    words.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "lo", "##ved", "in", "Turin"]))
    transformers.DistilBertTokenizerFast(str(words), do_lower_case=False).save_pretrained(tmp_path)
    transformers.DistilBertModel(transformers.DistilBertConfig(
        vocab_size=8, dim=8, n_heads=2, n_layers=1, hidden_dim=8)).save_pretrained(tmp_path)
    page = DOCS / "guide" / "text.md"
    namespace = run_page(page, "## Ten million")
    code = optional_block(page, "torch").replace("distilbert-base-cased", str(tmp_path))
    exec(compile(code, str(page), "exec"), namespace)
    assert namespace["vectors"](["loved", "in", "Turin"]).shape == (3, 8)
    assert namespace["mixed"]([["loved", "in", "Turin"]], fit=True).n_tokens == 3


# ------------------------------------------------------------------------------ commands


WITH_COMMANDS = [README, *sorted(DOCS.glob("*.md")), *sorted((DOCS / "guide").glob("*.md"))]
WITH_TRANSCRIPTS = [page for page in WITH_COMMANDS if transcripts(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", WITH_TRANSCRIPTS, ids=lambda page: page.stem)
def test_transcripts_are_what_the_commands_print(page, data_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command, printed, by_the_clock, _ in transcripts(page.read_text("utf-8")):
        found = run(command, printed, data_folder)
        wrong = differences(printed, found, by_the_clock)
        assert not wrong, "\n".join([f"$ {command}", *(f"{one}\n{other}" for one, other in wrong)])


def test_there_are_transcripts():
    assert DOCS / "command_line.md" in WITH_TRANSCRIPTS
    found = transcripts((DOCS / "command_line.md").read_text("utf-8"))
    assert {command.split()[1] for command, *_ in found if command.startswith("fastm4n")} == {
        *cli.COMMANDS}
    assert {command for command, _, by_the_clock, _ in found if by_the_clock} == {"fastm4n bench"}


TABLE = ["alpha  seconds  gap", "0.5     0.001  1.51e-02", "", "0.5     0.001  1.51e-02"]


@pytest.mark.parametrize("found, n_wrong", [
    (TABLE, 0), (TABLE[:-1], 1), ([*TABLE, "more"], 1),
    (["alpha  seconds  gap", "0.5      12.3  1.54e-02", "", "0.5     0.001  1.48e-02"], 0),
    (["alpha  seconds  gap", "0.56     12.3  1.51e-02", "", "0.5     0.001  1.51e-02"], 1),
    (["alpha  seconds  gap", "0.5     0.001  1.57e-02", "", "0.5     0.002  1.51e-02"], 2),
    (["alpha  seconds  Gap", "0.5     0.001  1.51e-02", "", "0.5     0.001  -"], 2),
])
def test_transcripts_are_compared_to_two_digits(found, n_wrong):
    assert len(differences(TABLE, found)) == n_wrong


def test_times_and_rounding_are_not_compared():
    assert not differences(["10 passes, 0.20 s, 3e-17", "7 times as fast"],
                           ["10 passes, 5.00 s, -4e-18", "91 times as fast"])
    assert differences(["10 passes, 0.20 s"], ["16 passes, 0.20 s"])
    assert not differences(["1  2", "a"], ["3  4", "a"], by_the_clock=True)
    assert differences(["1  2", "a"], ["3  4", "b"], by_the_clock=True)


def test_commands_of_pages_are_transcripts_with_all_they_need():
    text = f"a\n{BY_THE_CLOCK}\n```console\n$ one \\\n  two\nout\n\nmore\n$ three\n```\nb\n"
    assert [each[:3] for each in transcripts(text)] == [
        ("one two", ["out", "", "more"], True), ("three", [], True)]


COMMANDS = [
    line for page in WITH_COMMANDS
    for block in re.findall(r"^```sh\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    for line in block.replace("\\\n", "").splitlines() if line.startswith("fastm4n ")
] + [
    line.strip() for name in cli.COMMANDS
    for line in importlib.import_module(f"fastm4n.cli._{name}").__doc__.splitlines()
    if line.startswith("  fastm4n ")
]


@pytest.mark.parametrize("line", sorted({*COMMANDS}))
def test_commands_have_arguments_that_exist(line):
    name, *arguments = shlex.split(line.partition(" > ")[0])[1:]
    args = cli._parser([name]).parse_args([name, *arguments])
    assert args.command == name


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
NEEDED = {
    "fastm4n.torch": "torch", "fastm4n.torch._onnx_functions": "onnxscript",
    "fastm4n.distributed.dask": "distributed", "fastm4n.data._sequences": "pyarrow"}


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
