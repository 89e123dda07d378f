"""The site: what its pages link to, what the API reference holds, and that Sphinx builds it."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastm4n

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
MARKDOWN = [
    *(path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts),
    ROOT / "README.md", ROOT / "CHANGELOG.md"]


def without_code(text):
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S)


def anchors(path):
    """Those of headings, as GitHub and MyST make them."""
    found = set()
    for title in re.findall(r"^#+ (.+)$", without_code(path.read_text("utf-8")), re.M):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), target


def test_every_page_is_in_one_table_of_contents():
    """Its own, so that a page that is added is found in the site."""
    listed = []
    for page in [*MARKDOWN, *(DOCS / "api").glob("*.rst")]:
        text = page.read_text("utf-8")
        trees = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.M | re.S)
        trees += re.findall(r"^\.\. toctree::\n((?:   .*\n|\n)*)", text, re.M)
        for line in "\n".join(trees).splitlines():
            path = page.parent / line.strip()
            for suffix in (".md", ".rst"):
                if path.with_suffix(suffix).is_file() and path.parent.name != "gallery":
                    listed.append(path.with_suffix(suffix).resolve())
    pages = [path for path in MARKDOWN if DOCS in path.parents]
    pages += (DOCS / "api").glob("*.rst")
    assert sorted(listed) == sorted({*pages} - {DOCS / "index.md"})


def test_every_tutorial_is_in_the_table_of_contents():
    listed = re.findall(r"^gallery/(\w+)$", (DOCS / "tutorials.md").read_text("utf-8"), re.M)
    assert listed == sorted(path.stem for path in (ROOT / "examples").glob("plot_*.py"))


def reference():
    """The names that the API reference lists: (module, name)."""
    for page in sorted((DOCS / "api").glob("*.rst")):
        module = None
        for line in page.read_text("utf-8").splitlines():
            if line.startswith(".. currentmodule:: "):
                module = line.split()[-1]
            elif found := re.fullmatch(r"   (\w+)", line):
                if module is not None:
                    yield module, found[1]


def public_modules():
    """Those with ``__all__`` and no underscore in their names, of rooms that users import from."""
    names = ["fastm4n"]
    names += [module.name for module in pkgutil.walk_packages(fastm4n.__path__, "fastm4n.")]
    for name in names:
        if any(part.startswith("_") or part in ("base", "tasks") for part in name.split(".")):
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:  # PyTorch or Dask is not installed
            assert name in ("fastm4n.torch", "fastm4n.distributed.dask")
            continue
        if hasattr(module, "__all__"):
            yield name, module


def test_every_public_name_is_in_the_api_reference():
    listed = list(reference())
    assert len(set(listed)) == len(listed)
    places, modules = {}, dict(public_modules())
    for module, name in listed:
        if module in modules or module not in ("fastm4n.torch", "fastm4n.distributed.dask"):
            value = getattr(importlib.import_module(module), name)  # no name of what is not there
            places.setdefault(id(value), (module, name))
    for name, module in modules.items():
        for public in module.__all__:
            if not public.startswith("__"):
                # by its own place, or by that from which it comes
                assert id(getattr(module, public)) in places, f"{name}.{public}"


def test_sphinx_builds_the_site_without_a_warning(tmp_path):
    for needed in ("sphinx", "numpydoc", "myst_parser", "sphinx_gallery", "sphinx_copybutton",
                   "sphinx_design", "pydata_sphinx_theme"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the site is not built.")
    result = subprocess.run(
        [sys.executable, "-P", "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2",
         "-D", "plot_gallery=0", "-b", "html", "-d", tmp_path / "doctrees", DOCS, tmp_path / "html"],
        capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-5000:]
