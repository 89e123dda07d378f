"""What is configured for distributions, against what the package says of itself."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def project():
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


@pytest.fixture(scope="module")
def workflows():
    folder = ROOT / ".github" / "workflows"
    if not folder.is_dir():
        pytest.skip("workflows are in version control, and not in source distributions")
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.yml"))}


def test_the_job_of_oldest_dependencies_installs_those_that_are_named(project, workflows):
    tested = dict(re.findall(r'"([\w-]+)==([0-9.]+)"', workflows["tests.yml"]))
    for requirement in project["project"]["dependencies"]:
        name, version = requirement.split(">=")
        assert tested[name] == f"{version}.0", requirement


def test_wheels_are_built_for_every_python_that_is_claimed(project):
    built = project["tool"]["cibuildwheel"]["build"].split()
    for text in project["project"]["classifiers"]:
        found = re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", text)
        assert found is None or f"cp3{found[1]}-*" in built, text


def test_actions_are_pinned_and_may_only_read(workflows):
    for name, text in workflows.items():
        assert "\npermissions:\n  contents: read\n" in text, name
        for action in re.findall(r"uses: (\S+)", text):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), (name, action)


def test_modules_of_kernels_exist_that_are_tested_in_parallel():
    names = ROOT / ".ci" / "parallel_tests"
    if not names.is_file():
        pytest.skip("the list is in version control, and not in source distributions")
    for line in names.read_text(encoding="utf-8").split():
        assert (ROOT / line).is_file(), line


def test_kernel_tests_need_nothing_but_dependencies_and_pytest(project):
    """They run in an environment without the extras: what is not there would end the whole run."""
    script = ROOT / ".ci" / "run"
    if not script.is_file():
        pytest.skip("the script is in version control, and not in source distributions")
    listed = re.search(r"^KERNEL_TESTS=\((.*?)^\)", script.read_text(encoding="utf-8"), re.M | re.S)
    needed = {name.split(">=")[0] for name in project["project"]["dependencies"]}
    there = needed - {"scikit-learn"} | {"sklearn", "pytest", "fastm4n", *sys.stdlib_module_names}
    left, seen = [ROOT / name for name in listed[1].split()], set()
    while left:
        path = left.pop()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = ([alias.name for alias in node.names] if isinstance(node, ast.Import)
                     else [node.module] if isinstance(node, ast.ImportFrom) else [])
            for name in names:
                helper = ROOT / "tests" / f"{name}.py"
                assert helper.is_file() or name.split(".")[0] in there, (
                    f"{path.name} imports {name}")
                if helper.is_file() and helper not in seen:
                    left.append(helper)
                    seen.add(helper)
    assert len(seen) > 3
