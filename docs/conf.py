"""Configuration of the site, which ``sphinx-build -W -b html docs docs/_build/html`` makes.

Nothing is fetched: all that a build needs comes with ``pip install ".[docs]"``.
"""

import inspect
import os
import re
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import fastm4n

project = "fastm4n"
author = copyright = "The fastm4n developers"
version = release = fastm4n.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
]
nitpicky = True
# `name` in docstrings
default_role = "literal"
templates_path = ["_templates"]
# the index of the gallery is tutorials.md
exclude_patterns = [
    "_build", "gallery/index.rst", "sg_execution_times.rst", "gallery/sg_execution_times.rst"]
# other libraries, of which no inventory is at hand without a network
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|scipy|sklearn|torch|distributed)\..*"),
    # of memoryviews in the signatures of compiled methods: double[::1] mu
    ("py:class", r":1\] \w+"),
]

# ------------------------------------------------------------------------------------ Markdown

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
# links to headings are those of GitHub
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]

# ------------------------------------------------------------------------------- API reference

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True}
toc_object_entries_show_parents = "hide"
autodoc_member_order = "alphabetical"
# docstrings say what parameters are
autodoc_typehints = "none"
# what says no more than the base class is described there
autodoc_inherit_docstrings = False
# the pages of what is not installed are made without it; layers of PyTorch have no signatures then
autodoc_mock_imports = [
    name for name in ("torch", "dask", "distributed") if find_spec(name) is None]
numpydoc_show_class_members = False
CITED = re.compile(r"\[\d+\]_")


def leave_out(app, what, name, obj, skip, options):
    """Members that scikit-learn and Python document themselves."""
    owner = getattr(obj, "__module__", None) or getattr(
        getattr(obj, "__objclass__", None), "__module__", "fastm4n")
    return True if not owner.startswith("fastm4n") else None


def cite(app, what, name, obj, options, lines):
    """A docstring that cites what its module lists, ``[1]_``, is given that list."""
    module = sys.modules.get(getattr(obj, "__module__", None))
    if "References" in lines or not CITED.search("\n".join(lines)) or module is None:
        return
    _, _, listed = inspect.cleandoc(module.__doc__ or "").partition("References\n----------\n")
    if listed:
        lines += ["", "References", "----------", *listed.splitlines()]


# ----------------------------------------------------------------------------------- tutorials

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    # the others are scripts of minutes
    "filename_pattern": "/plot_",
    "ignore_pattern": r"\btorch_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 20,
    "doc_module": ("fastm4n",),
    "backreferences_dir": "gallery/backreferences",
    "inspect_global_variables": False,
}
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ---------------------------------------------------------------------------------------- HTML

html_theme = "pydata_sphinx_theme"
html_title = "fastm4n"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["fastm4n.css"]
html_copy_source = html_show_sourcelink = False
html_sidebars = {"index": [], "changelog": []}
html_theme_options = {
    "logo": {"text": "fastm4n"},
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "show_nav_level": 1,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
# where the site is published, its other versions are offered, and the source of each page
if "FASTM4N_SITE" in os.environ:
    html_theme_options["switcher"] = {
        "json_url": os.environ["FASTM4N_SITE"] + "/switcher.json",
        "version_match": os.environ.get("FASTM4N_SITE_VERSION", "dev"),
    }
    html_theme_options["check_switcher"] = False
    html_theme_options["navbar_end"] = ["version-switcher", "theme-switcher", "navbar-icon-links"]
if "GITHUB_REPOSITORY" in os.environ:
    owner, _, repository = os.environ["GITHUB_REPOSITORY"].partition("/")
    html_context = {
        "github_user": owner, "github_repo": repository, "github_version": "main",
        "doc_path": "docs"}
    html_theme_options["use_edit_page_button"] = True
    html_theme_options["github_url"] = f"https://github.com/{owner}/{repository}"

# formulas are set by the browser, with the MathJax of a package from PyPI; without it they are
# looked for on the network when a page is read
mathjax = find_spec("sphinx-mathjax-offline")
if mathjax is not None:
    mathjax_path = "mathjax/tex-chtml.js"


def copy_mathjax(app, error):
    """Of its 24 MB, what pages ask for."""
    from sphinx.util.fileutil import copy_asset

    if error is None and mathjax is not None and app.builder.format == "html":
        source = Path(mathjax.origin).parent / "static" / "mathjax"
        fonts = "output/chtml/fonts/woff-v2"
        target = Path(app.outdir) / "_static" / "mathjax"
        copy_asset(source / "tex-chtml.js", target)
        copy_asset(source / fonts, target / fonts)


def setup(app):
    app.connect("autodoc-skip-member", leave_out)
    # before numpydoc, which reads the sections
    app.connect("autodoc-process-docstring", cite, priority=400)
    app.connect("build-finished", copy_mathjax)
