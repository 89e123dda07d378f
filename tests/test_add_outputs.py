"""The tutorial on new kinds of output, compiled and run; and outputs that lack a piece."""

import importlib
import itertools
import os
import pickle
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp

import fastm4n
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.losses import block_losses
from fastm4n.solvers import solve, solve_path
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.path import largest_gap
from fastm4n.surrogates import make_surrogate

PAGE = Path(__file__).resolve().parent.parent / "docs" / "add_outputs.md"

# further classes for the same module: to compile another takes seconds. They are the tutorial's
# without one of its methods, or with one that is wrong
INCOMPLETE = '''
cdef class NoBest(Outputs):
    def __init__(self):
        super().__init__(Layout(np.full(3, 2), 2, row_stride(2)), np.zeros(6, int), 1 - np.eye(2))

cdef class NoMarginals(NoBest):
    def __init__(self):
        super().__init__()
        self.has_marginals = True

cdef class NoProjection(NoBest):
    def __init__(self):
        super().__init__()
        self.has_projection = True
    cdef int best(self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
                  label_t* labels, double* value) except -1 nogil:
        labels[0] = 0
        labels[1] = 0
        value[0] = unary[0] + unary[self.layout.row(b)]
        return 0

cdef class WrongValue(NoBest):
    cdef int best(self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
                  label_t* labels, double* value) except -1 nogil:
        labels[0] = 0
        labels[1] = 0
        value[0] = 7e-310
        return 0
'''


def blocks_of(page):
    """The fenced blocks of a page by the name in their first line."""
    found = re.findall(r"```(?:cython|python)\n# (\S+)\n(.*?)```", page.read_text(), re.S)
    return {name: f"# {name}\n{text}" for name, text in found}


def run(command, folder):
    """Without optimisation: compiling takes longer than all that is run."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "CFLAGS": "-O0"})


def has_compiler():
    """Whether there is what extensions are compiled by, which users of wheels need not have."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "")
    if not command:  # Windows, where setuptools looks for it
        return True
    return bool(shutil.which(command[0])) and not subprocess.run(
        [*command, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The tutorial's files, compiled as it says, with the classes of INCOMPLETE."""
    if not has_compiler():
        pytest.skip("There is no C compiler.")
    folder = tmp_path_factory.mktemp("tutorial")
    for name, text in blocks_of(PAGE).items():
        more = INCOMPLETE if name == "binary_outputs.pyx" else ""
        (folder / name).write_text(text + more)
    done = run(["setup.py", "build_ext", "--inplace"], folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def compiled(folder):
    """The module, which scripts of the folder import then as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return importlib.import_module("binary_outputs")


@pytest.fixture(scope="module")
def best(compiled):
    """The certificate of an accurate fit of each surrogate."""
    return {
        surrogate: solve(
            *problem(compiled.BinaryOutputs, surrogate, 0.1), tol=1e-7, max_iter=3000,
            accelerate=True).certificate
        for surrogate in ("max_margin", "max_min", "log")}


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    return X, (X @ rng.normal(size=(5, 3)) + 0.5 * rng.normal(size=(30, 3)) > 0).astype(int)


def problem(BinaryOutputs, surrogate, alpha):
    X, Y = data()
    rows = np.arange(len(X))
    features = LinearFeatures(X, rows, row_norms(X, 1.0), 6, 1.0)
    return make_surrogate(surrogate, BinaryOutputs(Y)), features, np.full(len(X), 1 / len(X)), alpha


def test_the_tutorial_is_short_and_runs(folder, compiled, capsys):
    code = blocks_of(PAGE)
    assert sum(text.count("\n") for text in code.values()) < 100
    runpy.run_path(str(folder / "fit.py"))
    out = capsys.readouterr().out
    points = [line.split() for line in out.split("\n") if line.startswith("  alpha")]
    assert len(points) > 6 and float(points[-1][1][:-1]) <= 0.01
    lines = [line for line in out.split("\n") if line[:1].strip()]
    assert [line.split()[:2] for line in lines] == [
        [name, "True"] for name in ("max_min", "max_margin", "log")]
    assert all(float(line.split()[2]) < 0.3 for line in lines)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_losses_against_enumeration(compiled, surrogate):
    """Hamming costs of independent labels: every surrogate is a sum over labels."""
    BinaryOutputs = compiled.BinaryOutputs
    rng = np.random.default_rng(2)
    Y = rng.integers(2, size=(8, 3))
    for size in (0.0, 0.5, 5.0):
        v = size * rng.normal(size=(8, 3, 2))
        found = block_losses(make_surrogate(surrogate, BinaryOutputs(Y)), v.ravel())
        true = np.take_along_axis(v, Y[:, :, np.newaxis], 2)[:, :, 0]
        other = np.take_along_axis(v, 1 - Y[:, :, np.newaxis], 2)[:, :, 0]
        parts = {
            "max_margin": np.maximum(true, other + 1.0) - true,
            "log": logsumexp(v, axis=2) - true,
            "max_min": np.maximum(
                np.maximum(true, other), 0.5 * (true + other + 1.0)) - true}[surrogate]
        assert_allclose(found.upper, parts.sum(axis=1), atol=1e-8)
        assert_allclose(found.value, parts.sum(axis=1), atol=1e-8)


STEPS = [
    (surrogate, step, cache)
    for surrogate, step, cache in itertools.product(
        ("max_margin", "max_min", "log"), ("line_search", "pairwise", "away", "fixed"), (None, 10))
    if not (cache and step == "fixed")
    and not (surrogate == "log" and (cache or step in ("pairwise", "away", "fixed")))]


@pytest.mark.parametrize("surrogate, step, cache", STEPS)
def test_every_step(compiled, best, surrogate, step, cache):
    found = solve(
        *problem(compiled.BinaryOutputs, surrogate, 0.1), step=step, cache=cache, max_iter=60, tol=1e-4)
    certificate = found.certificate
    assert certificate.gap >= certificate.primal - best[surrogate].primal - 1e-9
    assert certificate.gap < 0.1


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_the_path(compiled, surrogate):
    """Certified at its breakpoints and between them: against fits of single alphas."""
    BinaryOutputs = compiled.BinaryOutputs
    loss, features, weights, _ = problem(BinaryOutputs, surrogate, None)
    at_zero = float(weights @ loss.largest(features.size))
    last, n_points = None, 0
    for point in solve_path(loss, features, weights, eps=0.1, alpha_min=0.01):
        w = np.append(features.coef(), features.constant_scores())
        assert_allclose(point.norm, w @ w, rtol=1e-9)
        assert point.gap <= 0.1 * at_zero
        if last is not None:
            assert last.alpha > point.alpha and largest_gap(last, point)[0] <= 0.1 * at_zero
            between = np.sqrt(last.alpha * point.alpha)
            best = solve(
                *problem(BinaryOutputs, surrogate, between), tol=1e-4, accelerate=True).certificate
            found = min(last.primal(between), point.primal(between))
            assert best.dual - 1e-9 <= found <= best.primal + 0.1 * at_zero
        last, n_points = point, n_points + 1
    assert n_points > 3 and last.alpha == 0.01
    with pytest.raises(ValueError, match="step='fixed' averages the iterates of one alpha"):
        next(solve_path(loss, features, weights, step="fixed"))


@pytest.mark.parametrize("name, surrogate, message", [
    ("NoBest", "max_margin", "NoBest has no method `best`"),
    ("NoBest", "max_min", "NoBest has no method `best`"),
    ("NoBest", "log", "NoBest has none: implement `sum_product`"),
    ("NoMarginals", "log", "NoMarginals has no method `sum_product`"),
    ("WrongValue", "max_margin", "WrongValue under MaxMarginLoss: the value that `best`"),
    ("WrongValue", "max_min", "WrongValue under MaxMarginLoss: the value that `best`"),
])
def test_a_missing_piece(compiled, name, surrogate, message):
    outputs = getattr(compiled, name)()
    X = np.eye(3)
    features = LinearFeatures(X, np.arange(3), row_norms(X, 0.0), 4, 0.0)
    with pytest.raises((NotImplementedError, ValueError), match=message):
        BlockCoordinateEngine(make_surrogate(surrogate, outputs), features, np.full(3, 1 / 3), 1.0, 0)
    with pytest.raises(TypeError, match=f"{name} cannot be pickled: it has no method `arguments`"):
        pickle.dumps(outputs)


def test_features_that_do_not_fit(compiled):
    BinaryOutputs = compiled.BinaryOutputs
    X, Y = data()
    features = LinearFeatures(X, np.arange(len(X)), row_norms(X, 0.0), 2, 0.0)
    loss = make_surrogate("max_margin", BinaryOutputs(Y))
    with pytest.raises(ValueError, match="LinearFeatures has 30 blocks of at most .* scores"):
        BlockCoordinateEngine(loss, features, np.full(30, 1 / 30), 1.0, 0)


def test_headers():
    assert (Path(fastm4n.get_include()) / "loops.h").is_file()
