"""Every parameter of what is public is in its docstring, in order, with the default that it has."""

import importlib
import inspect
import re

import numpy as np
import pytest

import fastm4n
from fastm4n.models._state import PREDICTORS

MODULES = [
    "fastm4n", "fastm4n.automata", "fastm4n.calibration", "fastm4n.data", "fastm4n.datasets",
    "fastm4n.distributed", "fastm4n.distributed.dask", "fastm4n.estimators", "fastm4n.factors",
    "fastm4n.inference", "fastm4n.inference.automaton", "fastm4n.inference.decomposition",
    "fastm4n.inference.graph", "fastm4n.inference.roof", "fastm4n.losses", "fastm4n.metrics",
    "fastm4n.models", "fastm4n.path", "fastm4n.penalties", "fastm4n.plotting", "fastm4n.research",
    "fastm4n.research.boosting", "fastm4n.research.costs", "fastm4n.research.theory",
    "fastm4n.solvers", "fastm4n.surrogates", "fastm4n.torch",
]


# made by the package alone
INTERNAL = {
    "fastm4n.path._path.RegularizationPath", "fastm4n.data.disk._rows.Rows",
    "fastm4n.research.theory.complexity.Complexity", "fastm4n.research.theory.margins.Margins",
    "fastm4n.research.theory.report.ComplexityReport", "fastm4n.calibration._curves.ReliabilityCurve",
}
# what estimators ask of solvers, and rounds of workers: the modules say it
WITHIN = ("fastm4n.solvers.", "fastm4n.distributed.")


def public():
    """(name, object) of the public functions, classes and methods, each once."""
    seen, found = set(), []
    for module in MODULES:
        try:
            module = importlib.import_module(module)
        except ImportError:  # an optional extra
            continue
        for name in getattr(module, "__all__", ()):
            of = getattr(module, name)
            if not callable(of) or id(of) in seen or not of.__module__.startswith("fastm4n"):
                continue
            seen.add(id(of))
            found.append((f"{of.__module__}.{name}", of))
            if not inspect.isclass(of):
                continue
            for method in vars(of):
                static = inspect.getattr_static(of, method)
                code = getattr(static, "__func__", getattr(static, "method", static))
                if not method.startswith("_") and inspect.isfunction(code):
                    found.append((f"{of.__module__}.{name}.{method}", code))
    return found


def documented(text, section="Parameters"):
    """The parameters of a docstring: (name, what follows the colon, "" if nothing) in order."""
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}$|\Z)", text, re.M | re.S)
    if not found:
        return []
    body = re.sub(r"\\\n\s*", "", found[1])
    return [
        (name.strip().lstrip("*\\"), kind)
        for names, kind in re.findall(r"^(\S[^:\n]*?)(?: : (.*))?$", body, re.M)
        for name in names.split(",") if re.fullmatch(r"[*\\]*\w+", name.strip())]


def parameters(of):
    try:
        found = list(inspect.signature(of).parameters.values())
    except (TypeError, ValueError):  # a compiled class
        return None
    return [parameter for parameter in found if parameter.name not in ("self", "cls")]


PUBLIC = public()
# what each estimator says of its own outputs
OWN = {
    "alpha", "cost", "decode", "warm_start", "coef_", "dual_coef_", "intercept_", "edge_coef_",
    "classes_", "cost_matrix_", "X_fit_", "constraints", "inference", "exact_", "integrality_gap_",
    "oracle_", "n_features_in_",
}
OF_ONE = {
    ("Matcher", "kernel"), ("SequenceTagger", "fit_intercept"), ("GraphTagger", "fit_intercept"),
    ("MultiLabelClassifier", "fit_intercept"), ("OrdinalClassifier", "form"),
    ("GraphTagger", "classes"), ("GraphTagger", "certified_for_"), ("LabelRanker", "certified_for_"), ("SequenceTagger", "class_weight"), ("SequenceTagger", "tol"), ("GraphTagger", "tol"),
    ("LabelRanker", "tol"), ("Matcher", "tol")}
FREE = "fit_intercept"


@pytest.mark.parametrize("name, of", PUBLIC, ids=[name for name, _ in PUBLIC])
def test_parameters_are_documented(name, of):
    given, text = parameters(of), inspect.getdoc(of) or ""
    if given is None or issubclass(of if inspect.isclass(of) else object, (tuple, Exception)):
        return
    told, names = documented(text), [parameter.name for parameter in given]
    if inspect.isclass(of) and not told:  # what others make: its attributes
        told = documented(text, "Attributes")
        assert set(names) <= {name for name, _ in told} or name in INTERNAL
        return
    if not told and (name.startswith(WITHIN) or all(f"`{name}`" in text for name in names)):
        return
    if name.startswith("fastm4n.distributed.dask.Dask"):  # further ones are the local estimator's
        assert {"max_iter", "client", "local_passes", "timeout"} <= {name for name, _ in told}
        return
    assert {name for name, _ in told} == set(names)
    # those that are "as in" another may stand together
    ordered = [name for name, kind in told if kind]
    assert ordered == [name for name in names if name in ordered]


@pytest.mark.parametrize("name, of", PUBLIC, ids=[name for name, _ in PUBLIC])
def test_defaults_are_those_of_the_signature(name, of):
    told = dict(documented(inspect.getdoc(of) or ""))
    for parameter in parameters(of) or ():
        stated = re.search(r"default=(.+)$", told.get(parameter.name) or "")
        if not stated:
            continue
        assert parameter.default is not parameter.empty, f"{parameter.name} has no default"
        if stated[1].startswith("torch."):
            assert stated[1] == str(parameter.default)
        else:
            assert eval(stated[1], {"numpy": np}) == parameter.default, parameter.name


def entries(text):
    """The text of each parameter and attribute of a docstring."""
    text = text.partition("\nSee Also\n")[0]
    found = re.findall(r"^(\w[\w, ]*) : (.*(?:\n(?: {4}.*)?)*)", text, re.M)
    return {name: said.strip() for name, said in found}


def test_shared_parameters_are_described_alike():
    """Word for word: an option means the same in all estimators."""
    first = {}
    for name in PREDICTORS:
        for entry, said in entries(inspect.getdoc(getattr(fastm4n, name))).items():
            if entry in OWN or (name, entry) in OF_ONE:
                continue
            # a default is what the table of defaults says of an estimator
            said = re.sub(r", default=\S+$", "", said, count=1, flags=re.M)
            if entry == FREE:  # of single labels it has one choice more
                said = said.replace('bool, "free" or float', "bool or float").partition(' "free"')[0]
            other, expected = first.setdefault(entry, (name, said))
            assert " ".join(said.split()) == " ".join(expected.split()), (entry, name, other)
    assert {"surrogate", "kernel", "penalty", "solver", "cost_scale", "history_"} < set(first)
