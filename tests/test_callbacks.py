"""Callbacks of scikit-learn: a fit is a task, and its certificates are the tasks in it."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from estimator_cases import CASES
from numpy.testing import assert_array_equal
from processes import run_code
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import MulticlassClassifier, RegularizationPathCV

WITHOUT = """
import sys
sys.modules["sklearn.callback"] = None
from sklearn.datasets import load_iris
from fastm4n import MulticlassClassifier
rows = []
model = MulticlassClassifier(callback=rows.append).fit(*load_iris(return_X_y=True))
assert rows and not hasattr(model, "set_callbacks")
"""


def test_without_them():
    """A scikit-learn of before 1.9."""
    run_code(WITHOUT)


callback = pytest.importorskip("sklearn.callback", reason="scikit-learn 1.9 has callbacks")


class Recorder:
    def __init__(self, stop_at=None, fail_at=None):
        self.calls, self.stop_at, self.fail_at = [], stop_at, fail_at

    def setup(self, estimator, context):
        self.calls.append(("setup", context.task_name, {}))

    def teardown(self, estimator, context):
        self.calls.append(("teardown", context.task_name, {}))

    def on_fit_task_begin(self, estimator, context, *, X=None, y=None, metadata=None):
        self.calls.append(("begin", context.task_name, dict(X=X, y=y, metadata=metadata)))

    def on_fit_task_end(
            self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None):
        self.calls.append(("end", context.task_name, dict(
            X=X, y=y, metadata=metadata, fitted=fitted_estimator)))
        if context.task_name == "certificate":
            if context.task_id == self.fail_at:
                raise FloatingPointError("by the callback")
            return context.task_id == self.stop_at

    def names(self):
        return [call[:2] for call in self.calls]

    def rows(self):
        return [call[2]["metadata"] for call in self.calls if call[:2] == ("end", "certificate")]


class Propagated(Recorder):
    max_propagation_depth = None


X, Y = load_iris(return_X_y=True)
ROUND = [("begin", "certificate"), ("end", "certificate")]


def of_a_fit(n):
    return [("setup", "fit"), ("begin", "fit"), *n * ROUND, ("end", "fit"), ("teardown", "fit")]


def quick(**parameters):
    return MulticlassClassifier(**{"alpha": 0.1, "random_state": 0, **parameters})


@pytest.mark.parametrize("name", CASES)
def test_tasks_of_a_fit(name):
    plain, recorder, rows = CASES[name].fit("max_margin"), Recorder(), []
    estimator = clone(plain).set_params(callback=rows.append).set_callbacks(recorder)
    data, weights = (CASES[name].X, CASES[name].y), np.ones(len(CASES[name].y))
    estimator.fit(*data, sample_weight=weights)
    assert_array_equal(estimator.coef_, plain.coef_)
    n = len(estimator.history_["gap"])
    assert recorder.names() == of_a_fit(n)
    # the root has the data, and at its end a fitted copy; certificates have their rows
    for call in recorder.calls[1], recorder.calls[-2]:
        assert call[2]["X"] is data[0] and call[2]["y"] is data[1]
        assert call[2]["metadata"]["sample_weight"] is weights
    fitted = recorder.calls[-2][2]["fitted"]
    assert fitted is not estimator
    assert fitted.score(*data) == estimator.score(*data)
    assert recorder.rows() == rows and rows[-1]["gap"] == estimator.duality_gap_
    assert vars(estimator).keys() - vars(plain).keys() == {"_skl_callbacks"}
    for other in pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator):
        assert_array_equal(other.coef_, plain.coef_)
    assert not hasattr(estimator.set_callbacks(), "_skl_callbacks")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("own", [None, lambda row: False, lambda row: row["pass"] == 0])
def test_either_callback_ends_the_fit(own):
    recorder = Recorder(stop_at=1)
    model = quick(tol=0.0, max_iter=50, solver="auto", surrogate="max_margin", callback=own)
    model.set_callbacks(recorder).fit(X, Y)
    assert recorder.names() == of_a_fit(2)
    model.set_params(callback=lambda row: True).fit(X, Y)
    assert recorder.names() == of_a_fit(2) + of_a_fit(1)


def test_fits_that_fail_are_torn_down():
    recorder = Recorder(fail_at=0)
    model = quick().set_callbacks(recorder)
    with pytest.raises(FloatingPointError, match="by the callback"):
        model.fit(X, Y)
    assert recorder.names() == [*of_a_fit(1)[:4], ("teardown", "fit")]
    assert vars(model).keys() - vars(quick()).keys() == {"_skl_callbacks"}
    with pytest.raises(ValueError, match="alpha must be"):
        model.set_params(alpha=-1.0).fit(X, Y)
    assert recorder.names()[-3:] == [("setup", "fit"), ("begin", "fit"), ("teardown", "fit")]
    with pytest.raises(TypeError, match="FitCallback protocol"):
        model.set_callbacks(print)


@pytest.mark.parametrize("fit_intercept", [True, "free"])
def test_other_fits(fit_intercept):
    """Free intercepts, `partial_fit` and the last fit of a search of paths."""
    recorder = Recorder()
    model = quick(fit_intercept=fit_intercept).set_callbacks(recorder)
    model.partial_fit(X[::2], Y[::2])
    assert recorder.names() == of_a_fit(len(model.history_["gap"]))
    assert recorder.calls[1][2] == {"X": None, "y": None, "metadata": None}
    assert recorder.calls[-2][2]["fitted"].predict(X).shape == Y.shape
    other = Recorder()
    search = RegularizationPathCV(quick(fit_intercept=fit_intercept).set_callbacks(other), eps=0.1)
    search.fit(X, Y)
    assert set(other.names()) <= set(of_a_fit(1))


def test_warnings_are_of_the_caller():
    with pytest.warns(ConvergenceWarning) as found:
        quick(max_iter=1, tol=0.0).set_callbacks(Recorder()).fit(X, Y)
    assert found[0].filename == __file__


def test_searches_and_pipelines():
    recorder, own = Propagated(), Recorder()
    pipeline = make_pipeline(StandardScaler(), quick().set_callbacks(own))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(
            pipeline, {"multiclassclassifier__alpha": [0.1, 1.0]}, cv=2, error_score="raise",
            refit=False).set_callbacks(recorder).fit(X, Y)
    assert search.cv_results_["mean_test_score"].min() > 0.5
    assert own.names().count(("setup", "fit")) == own.names().count(("teardown", "fit")) == 4
    assert own.names().count(("begin", "certificate")) >= 4
    # only the outermost fit sets a propagated callback up
    assert [name for name, _ in recorder.names()].count("setup") == 1
    assert recorder.names().count(("begin", "certificate")) == (
        own.names().count(("begin", "certificate")))


def test_callbacks_of_scikit_learn():
    monitor = callback.ScoringMonitor(scoring=["accuracy", "neg_log_loss"])
    model = quick().set_callbacks(monitor).fit(X, Y, np.ones(len(Y)))
    (row,) = monitor.get_logs().data
    assert row["accuracy"] == model.score(X, Y) and row["estimator_name"] == "MulticlassClassifier"
    pytest.importorskip("rich")
    quick().set_callbacks(callback.ProgressBar()).fit(X, Y)
