"""Gaps relative to the objective at zero weights: those that certify nothing are refused."""

import command_cases
import numpy as np
import pytest

import fastm4n
from fastm4n import MulticlassClassifier, RegularizationPathCV, regularization_path
from fastm4n.crfsuite import CRF
from fastm4n.solvers.path import solve_path

X, Y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
ESTIMATORS = {
    "MulticlassClassifier": (X, Y), "OrdinalClassifier": (X, Y),
    "SequenceTagger": ([X], [Y]), "GraphTagger": ([(X[:2], [[0, 1]])], [Y[:2]]),
    "LabelRanker": (X, np.tile(["a>b", "b>a"], 3)),
    "Matcher": (np.zeros((2, 3, 3, 1)), np.tile(np.arange(3), (2, 1))),
    "MultiLabelClassifier": (X, np.eye(2, dtype=int)[Y % 2]),
}


@pytest.mark.parametrize("tol", [1, 1.0, 3.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_refuse_a_tol_that_any_weights_reach(name, tol):
    estimator = getattr(fastm4n, name)(tol=tol)
    with pytest.raises(ValueError, match=f"tol must be below 1, got {tol}.*1e-3 is a usual"):
        estimator.fit(*ESTIMATORS[name])
    if hasattr(estimator, "partial_fit"):
        with pytest.raises(ValueError, match="tol must be below 1"):
            estimator.partial_fit(*ESTIMATORS[name])
    estimator.set_params(tol=0.999, max_iter=20).fit(*ESTIMATORS[name])
    assert estimator.relative_gap_ < 1


@pytest.mark.parametrize("eps", [1.0, 3.0])
@pytest.mark.parametrize("method", ["certified", "heuristic", "grid"])
def test_paths_refuse_an_eps_that_zero_weights_have(method, eps):
    options = {"eps": eps, "method": method, "alphas": [1.0] if method == "grid" else None}
    for call in (
        lambda: regularization_path(MulticlassClassifier(), X, Y, **options),
        lambda: RegularizationPathCV(MulticlassClassifier(), cv=2, **options).fit(X, Y),
        lambda: next(solve_path(None, None, None, eps=eps)),
    ):
        with pytest.raises(ValueError, match=f"eps must be below 1, got {eps}"):
            call()


def test_the_epsilon_of_crfsuite():
    with pytest.raises(ValueError, match=r"epsilon must be below 1, got 1\.5"):
        CRF(epsilon=1.5).fit([[["a"]]], [["A"]])
    with pytest.raises(ValueError, match="epsilon must be a finite number >= 0"):
        CRF(epsilon=-1.0).fit([[["a"]]], [["A"]])


@pytest.mark.parametrize("value", ["1", "3", "inf", "nan"])
@pytest.mark.parametrize("arguments", [["fit", "iris", "--tol"], ["path", "iris", "--eps"]])
def test_the_command_line(arguments, value, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = command_cases.call(capsys, *arguments, value)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{arguments[-1]}: '{value}' is not a number > 0 and < 1: it is relative" in err


def test_settings_of_the_command_line(capsys):
    code, _, err = command_cases.call(capsys, "fit", "iris", "--set", "tol=3")
    assert code == 1
    assert "tol must be below 1, got 3" in err
