"""Types: what is shipped, what users write, stubs beside the compiled modules, nothing unknown.

The last three need what the extra `lint` has, and are skipped where it is not installed.
"""

import importlib.util
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import fastm4n

TESTS = Path(__file__).resolve().parent
CONFIGURATION = TESTS.parent / "pyproject.toml"
PACKAGE = Path(str(files("fastm4n")))
# rooms that are not public: their public names are checked where they are offered
INTERNAL = (
    "fastm4n.base.", "fastm4n.tasks.", "fastm4n.distributed.partitions.",
    *(f"fastm4n.solvers.{name}." for name in (
        "blocks", "certificates", "choice", "chunks", "dual_store",
        "free_intercept", "free_path", "interior_point", "limited_memory", "monitor", "newton",
        "path", "proximal", "quasi_newton", "semismooth")),
    # what the public estimators of that module are made of
    *(f"fastm4n.research._soft_estimators.{name}" for name in (
        "SoftProblem", "SoftGraphTask", "SoftLabelSetTask")),
)


def run(*command):
    # pyright looks at the environment of the first Python that it finds
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path}
    if PACKAGE.parent == TESTS.parent:
        # installed by pip install -e, which only Python itself sees through
        environment.update(MYPYPATH=str(PACKAGE.parent), PYTHONPATH=str(PACKAGE.parent))
    # not in the source folder, which would be taken for the package
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=TESTS, text=True, capture_output=True, timeout=600,
        env=environment)


def needs(tool):
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")


def stubbed():
    """The modules that have a stub."""
    return sorted(
        ".".join(("fastm4n", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in PACKAGE.rglob("*.pyi"))


def test_types_are_shipped():
    assert (PACKAGE / "py.typed").is_file()
    # all that is public and compiled, and what comes from compiled modules
    assert {
        "fastm4n.inference.assignment", "fastm4n.inference.automaton", "fastm4n.inference.chain",
        "fastm4n.inference.cut", "fastm4n.inference.permutation", "fastm4n.inference.roof",
        "fastm4n.surrogates._base", "fastm4n.outputs._base", "fastm4n.features._base",
    } <= set(stubbed())


def test_public_names_are_those_that_can_be_imported():
    assert len(set(fastm4n.__all__)) == len(fastm4n.__all__)
    # what the module itself is made of, and the subpackages
    made = {"TYPE_CHECKING", "annotations", "attach", "find_spec"}
    made.update(path.stem for path in PACKAGE.iterdir())
    public = {name for name in dir(fastm4n) if not name.startswith("_")} - made
    assert set(fastm4n.__all__) == {*public, "__version__"}
    assert all(hasattr(fastm4n, name) for name in fastm4n.__all__)


def test_aliases_are_not_imported():
    code = "import sys, fastm4n.estimators, fastm4n.plotting; print('fastm4n.base.types' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=TESTS, text=True, capture_output=True)
    assert done.stdout.strip() == "False", done.stderr


def test_what_users_write(tmp_path):
    needs("mypy")
    done = run(
        "mypy", "--strict", "--config-file", str(CONFIGURATION), "--cache-dir", str(tmp_path),
        str(TESTS / "typing_cases.py"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_of_the_modules():
    needs("mypy")
    done = run(
        "mypy.stubtest", *stubbed(), "--concise", "--ignore-disjoint-bases",
        "--mypy-config-file", str(CONFIGURATION),
        "--allowlist", str(TESTS / "stubtest_allowlist.txt"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_public_type_is_known():
    needs("basedpyright")
    done = run("basedpyright", "--verifytypes", "fastm4n", "--ignoreexternal", "--outputjson")
    found = json.loads(done.stdout)["typeCompleteness"]
    assert found["exportedSymbolCounts"]["withKnownType"] > 2000
    left_out = tuple(
        f"fastm4n.{part}" for part, library in (
            ("torch", "torch"), ("distributed.dask", "distributed"))
        if importlib.util.find_spec(library) is None)
    unknown = [
        symbol["name"] for symbol in found["symbols"]
        if symbol["isExported"] and not (symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"])
        and not symbol["name"].startswith((*left_out, *INTERNAL))]
    assert not unknown
