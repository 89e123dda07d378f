"""What is imported when, counted in processes of their own: times depend on the machine."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from processes import run_code
from sklearn import datasets

import fastm4n
from fastm4n import data, distributed, estimators, research, solvers
from fastm4n.cli import _embedded, _models
from fastm4n.estimators._table import PREDICTORS

SLOW = ("numpy", "scipy", "sklearn", "joblib", "pandas", "matplotlib", "argparse")

LOADED = """
import contextlib, io, sys
out, before = io.StringIO(), set(sys.modules)
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
    try:
        {code}
    except SystemExit:
        pass
names = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(names & set({slow!r})))
"""


def loaded(code, *args):
    done = run_code(LOADED.format(code=code, slow=SLOW), *args)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def commands(*lists):
    """What commands import, one after the other in one process."""
    return loaded(RUN.format(lists=[[*map(str, args)] for args in lists]))


RUN = """
        from fastm4n.cli import main
        for args in {lists}:
            try:
                main(args)
            except SystemExit:
                pass
"""


def test_the_package_imports_nothing_slow():
    assert loaded("import fastm4n") == set()


def test_names_are_not_imported_before_they_are_used():
    assert loaded(
        "import fastm4n.solvers, fastm4n.estimators; dir(fastm4n); fastm4n.get_include()") == set()


def test_what_needs_no_numbers_imports_no_numpy():
    assert commands(
        ["--version"], ["--help"], [], ["no-such-command"], ["fit", "--help"], ["path", "--help"],
        ["fit", "--no-such-option"], ["predict"], ["datasets"]) == {"argparse"}


def test_a_command_is_imported_alone():
    done = run_code(
        "import sys; from fastm4n.cli import COMMANDS, main\n"
        "try: main(['predict', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*[name for name in COMMANDS if f'fastm4n.cli._{name}' in sys.modules])")
    assert done.stdout.splitlines()[-1] == "predict"


def test_data_are_read_and_told_before_scikit_learn_is_imported(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("u,v,kind\n1,2,a\n3,4,b\n1,3,a\n4,4,b\n")
    damaged = tmp_path / "damaged.csv"
    damaged.write_text("u,v,kind\n1,2,a\n3,4\n")
    assert commands(
        ["info", table], ["info", "iris"], ["info", "digits"], ["fit", damaged]
    ) <= {"argparse", "numpy", "scipy"}
    done = run_code(
        "import sys; from fastm4n.cli import main\n"
        "sys.modules['sklearn'] = None\n"
        "main(['fit', 'simulated_rankings'])")
    assert done.stdout.startswith("simulated_rankings: 300 rankings"), done


def test_the_readers_import_no_scikit_learn():
    assert loaded("import fastm4n.datasets, fastm4n.data._sequences") <= {"numpy", "scipy", "argparse"}


@pytest.mark.parametrize("name", sorted(_embedded._TABLES))
def test_data_sets_are_read_from_files_as_scikit_learn_reads_them(name, monkeypatch):
    expected = getattr(datasets, f"load_{name}")(return_X_y=True)
    monkeypatch.setattr(datasets, f"load_{name}", None)  # the file it is
    for array, wanted in zip(_embedded._of_scikit_learn(name), expected):
        assert array.dtype == wanted.dtype
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("found", [None, "elsewhere"])
def test_data_sets_are_those_of_scikit_learn_where_its_files_are_elsewhere(
    found, monkeypatch, tmp_path
):
    spec = None if found is None else type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(_embedded, "find_spec", lambda name: spec)
    X, y = _embedded._of_scikit_learn("iris")
    np.testing.assert_array_equal(X, datasets.load_iris().data)
    np.testing.assert_array_equal(y, datasets.load_iris().target)


def test_the_command_line_knows_the_estimator_of_each_task():
    assert _models.ESTIMATORS == {cls._task: name for name, cls in PREDICTORS.items()}


def for_type_checkers(module):
    """Names of the package that are imported where TYPE_CHECKING is true."""
    tree = ast.parse(Path(inspect.getsourcefile(module)).read_text(encoding="utf-8"))
    block = next(
        node for node in tree.body
        if isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING")
    return {
        alias.asname or alias.name for node in block.body if node.module.startswith("fastm4n")
        for alias in node.names}


@pytest.mark.parametrize(
    "module", [fastm4n, estimators, data, distributed, research, solvers],
    ids=lambda module: module.__name__)
def test_type_checkers_see_the_names_that_are_imported_late(module):
    late = for_type_checkers(module)
    assert late <= set(dir(module)) and set(module.__all__) <= set(dir(module))
    for name in late:
        if name == "torch":
            pytest.importorskip("torch")
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing


def test_every_public_subpackage_is_imported_when_it_is_first_used():
    folder = Path(fastm4n.__file__).parent
    public = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")}
    public = {name for name in public if not name.startswith("_")} - {"base", "tasks"}
    assert public <= for_type_checkers(fastm4n) <= set(dir(fastm4n))
