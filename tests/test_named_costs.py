"""Costs that have a name take no room: in fits, fitted estimators, pickles, files and messages."""

import pickle

import numpy as np
import pytest
from estimator_cases import ASYMMETRIC, CASES, SURROGATES
from numpy.testing import assert_array_equal
from processes import run_code

from fastm4n import MulticlassClassifier, load_model, regularization_path, save_model
from fastm4n.base.label_costs import COSTS, as_costs, as_kept, dearest_of, name_of, named_costs
from fastm4n.models._state import estimator_from_state, estimator_state
from fastm4n.outputs import ChainOutputs, SimplexOutputs
from fastm4n.surrogates import Log

DISTANCE = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
DENSE = {"zero_one": 1.0 * (DISTANCE > 0), "absolute": DISTANCE, "squared": DISTANCE**2}


@pytest.mark.parametrize("name", COSTS)
def test_views(name):
    """A matrix to the reader, found again by its name, that nobody can write to."""
    named = named_costs(name, 5)
    assert_array_equal(named, DENSE[name])
    assert name_of(named) == name_of(DENSE[name]) == name
    assert as_kept(named) == as_kept(DENSE[name]) == (name, 5)
    assert_array_equal(as_costs((name, 5)), DENSE[name])
    assert_array_equal(dearest_of(named), DENSE[name].max(axis=1))
    assert not named.flags.writeable
    assert name_of(DENSE[name][:, ::-1]) is None and name_of(2.0 * DENSE[name]) is None
    assert named_costs(name, 1).tolist() == [[0.0]]
    # two labels tell no name from another
    assert name_of(named_costs(name, 2)) == "zero_one"


@pytest.mark.parametrize("name", COSTS)
def test_outputs_are_pickled_by_name(name):
    many = named_costs(name, 3000)
    for outputs in (SimplexOutputs(np.arange(6), many), ChainOutputs(np.arange(6), [6], many)):
        pickled = pickle.dumps(outputs)
        assert len(pickled) < 2000
        again = pickle.loads(pickled)
        assert_array_equal(again.cost_matrix[7], many[7])
        assert_array_equal(again.largest_cost(), outputs.largest_cost())


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fits_are_those_of_the_matrix(case, cost, surrogate, recwarn):
    """To the bit, and only the matrix is long."""
    if cost != "zero_one" and case.cls.__name__ == "MultiLabelClassifier":
        pytest.skip("two values have no distances")
    X, y = case.equal or (case.X, case.y)
    n = case.fit(surrogate, X=X, y=y, max_iter=1).cost_matrix_.shape[0]
    fits = [
        case.fit(Log(cost_augmented=True) if surrogate == "log" else surrogate, X=X, y=y, cost=given, max_iter=3,
                 **case.by_class)
        for given in (cost, np.array(named_costs(cost, n)))]
    for fit in fits:
        assert_array_equal(fit.cost_matrix_, named_costs(cost, n))
        assert fit.cost_matrix_.flags.c_contiguous and fit.cost_matrix_.flags.writeable
        assert type(fit._cost_held) is tuple
        arrays = estimator_state(fit)[1]
        assert "cost_matrix_" not in arrays
    assert_array_equal(fits[0].intercept_ if hasattr(fits[0], "intercept_") else fits[0].coef_,
                       fits[1].intercept_ if hasattr(fits[1], "intercept_") else fits[1].coef_)
    assert fits[0].primal_objective_ == fits[1].primal_objective_
    modes = ("map",) if surrogate == "max_margin" else ("map", "min_risk")
    for decode in modes:
        found = [fit.predict(X, decode=decode) for fit in fits]
        assert all(map(np.array_equal, *found))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_files_and_pickles(case, tmp_path):
    X, y = case.equal or (case.X, case.y)
    for given in ("zero_one", ASYMMETRIC):
        if case.cls.__name__ == "MultiLabelClassifier" and given is ASYMMETRIC:
            given = np.array([[0.0, 1.0], [3.0, 0.0]])
        fit = case.fit("log", X=X, y=y, cost=given, max_iter=2)
        save_model(fit, tmp_path / "model")
        for again in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(fit))):
            assert_array_equal(again.cost_matrix_, fit.cost_matrix_)
            assert (type(again._cost_held) is tuple) == isinstance(given, str)
            found = (each.predict(X, decode="min_risk") for each in (fit, again))
            assert all(map(np.array_equal, *found))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_files_that_hold_the_matrix(case):
    """As earlier versions wrote them."""
    fit = case.fit(max_iter=2)
    state, arrays = estimator_state(fit)
    assert state["attributes"].pop("cost_matrix_") == list(fit._cost_held)
    again = estimator_from_state(state, {**arrays, "cost_matrix_": fit.cost_matrix_})
    assert again._cost_held == fit._cost_held
    assert_array_equal(again.cost_matrix_, fit.cost_matrix_)


@pytest.mark.parametrize("wrong", [
    ["zero_one", 4], ["zero_one", 2**40], ["zero_one", 0], ["zero_one", 3.0], ["cheap", 3],
    "zero_one", ["zero_one"], [["zero_one"], 3], None, {"zero_one": 3}, ["zero_one", True]])
def test_files_of_wrong_names(wrong):
    state, arrays = estimator_state(CASES["MulticlassClassifier"].fit(max_iter=1))
    state["attributes"]["cost_matrix_"] = wrong
    with pytest.raises(ValueError, match="cost_matrix_"):
        estimator_from_state(state, arrays)


def test_paths(tmp_path):
    X, y = CASES["OrdinalClassifier"].X, CASES["OrdinalClassifier"].y
    path = regularization_path(CASES["OrdinalClassifier"].cls("log"), X, y, eps=0.1, alpha_min=0.5)
    path.save(tmp_path / "path")
    again = type(path).load(tmp_path / "path")
    for found in (path, again, pickle.loads(pickle.dumps(path))):
        model = found.estimator(found.alphas[0])
        assert model._cost_held == ("absolute", 3)
        assert_array_equal(model.cost_matrix_, DISTANCE[:3, :3])


def test_unfitted():
    assert not hasattr(MulticlassClassifier(), "cost_matrix_")


MANY_CLASSES = """
import os, resource, sys, tempfile, warnings
import numpy as np
from scipy import sparse
from sklearn.base import clone
from fastm4n import MulticlassClassifier, load_model, save_model
warnings.simplefilter("ignore")  # two passes are enough to see what takes memory
k, X = 8000, sparse.random(24, 10, density=0.5, format="csr", random_state=0)
y = np.arange(24) * 300
given = (("max_margin", "squared"), ("log", "absolute"), ("max_min", "zero_one"))
classifiers = [
    MulticlassClassifier(
        surrogate, alpha=0.01, cost=cost, max_iter=2, tol=0.5, random_state=0).fit(X, y)
    for surrogate, cost in given]  # what a first fit imports
pages = int(open("/proc/self/statm").read().split()[0])
# 488 MiB are a matrix of costs
most = pages * resource.getpagesize() + (300 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
for classifier in classifiers:
    classifier = clone(classifier).partial_fit(X, y, classes=np.arange(k))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        save_model(classifier, path)
        assert os.path.getsize(path) < 2 << 20, os.path.getsize(path)
        assert (load_model(path).predict(X) == classifier.predict(X)).all()
"""


def test_many_classes():
    """The matrix is never there, whole."""
    pytest.importorskip("resource")
    done = run_code(MANY_CLASSES)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cost", ["zero_one", "absolute", "squared"])
@pytest.mark.parametrize("surrogate", ["log", "max_min"])
def test_least_risks_are_those_of_the_matrix(cost, surrogate):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 4)), rng.integers(7, size=80)
    model = MulticlassClassifier(surrogate, cost=cost, random_state=0).fit(X, y)
    marginals = model._decoder(X).marginals()
    risks = marginals @ model.cost_matrix_
    found = model.predict(X, decode="min_risk")
    assert (risks[np.arange(80), found] <= risks.min(axis=1) + 1e-9).all()
    assert surrogate == "max_min" or len(set(found)) > 2
