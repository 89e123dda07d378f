"""Pickles name the version that made them, and those of another one warn."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from estimator_cases import CASES
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    MulticlassClassifier,
    RegularizationPathCV,
    SequenceScaler,
    SequenceVectorizer,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.base import pickles
from fastm4n.calibration import CalibratedClassifier, ConformalClassifier
from fastm4n.crfsuite import CRF

X, Y = load_iris(return_X_y=True)
TOKENS, TAGS = [[{"a": 1.0}, {"b": 2.0}], [{"b": 1.0}]], [["x", "y"], ["y"]]
IRIS = MulticlassClassifier("log", alpha=0.1, random_state=0)
OTHERS = {
    "RegularizationPath": lambda: regularization_path(IRIS, X, Y, eps=0.1),
    "RegularizationPathCV": lambda: RegularizationPathCV(IRIS, eps=0.1).fit(X, Y),
    "CalibratedClassifier": lambda: CalibratedClassifier(IRIS, random_state=0).fit(X, Y),
    "ConformalClassifier": lambda: ConformalClassifier(IRIS, random_state=0).fit(X, Y),
    "CRF": lambda: CRF().fit(TOKENS, TAGS),
    "SequenceVectorizer": lambda: SequenceVectorizer().fit(TOKENS),
    "SequenceScaler": lambda: SequenceScaler(with_mean=False).fit(
        SequenceVectorizer().fit_transform(TOKENS)),
    "unfitted": lambda: clone(IRIS),
}


def state_of(made):
    return {name: value for name, value in made.__getstate__().items() if name != pickles._KEY}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", [*CASES, *OTHERS])
def test_versions(name, monkeypatch):
    made = CASES[name].fit() if name in CASES else OTHERS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickled = pickle.dumps(made)
        for other in pickle.loads(pickled), copy.copy(made), copy.deepcopy(made):
            assert state_of(other).keys() == state_of(made).keys()
            assert pickles._KEY not in vars(other)
        if hasattr(made, "get_params"):
            clone(made)
    monkeypatch.setattr(pickles, "__version__", "9.8.7")
    what = type(made).__name__
    with pytest.warns(InconsistentVersionWarning, match=(
            f"This {what} was pickled by fastm4n 0.* and is unpickled by fastm4n 9.8.7")):
        other = pickle.loads(pickled)
    assert state_of(other).keys() == state_of(made).keys() and pickles._KEY not in vars(other)
    with pytest.warns(pickles.OtherVersionWarning, match=f"{what} .* fastm4n of unknown version"):
        type(made).__new__(type(made)).__setstate__(state_of(made))


def test_others_do_not_warn(tmp_path, monkeypatch):
    """Models of paths, model files of another version, pipelines of this one."""
    path = regularization_path(IRIS, X, Y, eps=0.1)
    pipeline = make_pipeline(StandardScaler(), clone(IRIS)).fit(X, Y)
    save_model(pipeline, tmp_path / "model.fm4n")
    monkeypatch.setattr(pickles, "__version__", "9.8.7")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert path.estimator(0.5).predict(X).shape == Y.shape
        loaded = load_model(tmp_path / "model.fm4n")
        again = pickle.loads(pickle.dumps(pipeline))
    for other in loaded, again:
        assert_array_equal(np.asarray(other.predict(X)), pipeline.predict(X))
