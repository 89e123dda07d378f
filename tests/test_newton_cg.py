"""Newton-CG: certified like any fit, and at the same optimum as blocks are."""

import numpy as np
import pytest
from estimator_cases import CASES
from fastm4n.solvers._batch import Batch
from numpy.testing import assert_allclose
from test_tempering import iris, words

from fastm4n import (
    MulticlassClassifier,
    NewtonCG,
    SequenceTagger,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.outputs import SimplexOutputs
from fastm4n.surrogates import make_surrogate

NAMES = ["MulticlassClassifier", "OrdinalClassifier", "SequenceTagger", "MultiLabelClassifier",
         "GraphTagger"]


@pytest.mark.parametrize("options", [{}, {"cost_augmented": True, "temperature": 0.5}])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_optimum(name, options):
    case = CASES[name]
    blocks = case.fit(surrogate="log", tol=1e-7, max_iter=5000, **options)
    newton = case.fit(surrogate="log", tol=1e-10, solver=NewtonCG(), **options)
    assert newton.relative_gap_ <= 1e-10
    assert blocks.dual_objective_ <= newton.primal_objective_ + 1e-12
    assert newton.dual_objective_ <= blocks.primal_objective_ + 1e-12
    assert_allclose(newton.primal_objective_, blocks.primal_objective_, rtol=1e-6)
    history = newton.history_
    assert np.all(np.diff(history["primal"]) < 0)
    assert np.all(history["gap"] >= history["primal"] - newton.primal_objective_ - 1e-12)
    assert history["pass"][-1] == newton.n_iter_


def test_products_are_differences_of_gradients():
    X, y = iris()
    features = LinearFeatures(X, np.arange(len(X)), row_norms(X, 1.0), 3, 1.0)
    loss = make_surrogate(
        "log", SimplexOutputs(y, 1.0 - np.eye(3)), cost_augmented=True, temperature=0.7)
    batch = Batch(loss, features, np.full(len(X), 1 / len(X)))
    rng = np.random.default_rng(0)
    w, d = rng.normal(size=(2, *features.state()["weights"].shape))
    w[:, 3:] = d[:, 3:] = 0.0

    def gradient(at):
        features.restore({"weights": at})
        batch.evaluate()
        return batch.gradient(np.ones(len(X)))["weights"]

    step = 1e-5
    right = (gradient(w + step * d) - gradient(w - step * d)) / (2 * step)
    gradient(w)
    features.restore({"weights": d})
    assert_allclose(batch.product()["weights"], right, atol=1e-8)


def test_stopping():
    X, y = words()
    rows = []
    tagger = SequenceTagger(
        "log", alpha=0.01, solver=NewtonCG(), callback=lambda row: rows.append(row) or True)
    with pytest.warns(Warning, match="relative_gap_"):
        tagger.fit(X, y)
    assert len(rows) == 1 and tagger.n_iter_ == 1
    with pytest.warns(Warning, match="relative_gap_"):
        tagger.set_params(callback=None, max_iter=7, tol=1e-9).fit(X, y)
    assert 7 <= tagger.n_iter_ <= 8 and tagger.duality_gap_ > 0


def test_warm_starts():
    X, y = words()
    tagger = SequenceTagger("log", alpha=0.02, solver=NewtonCG(), tol=1e-8, warm_start=True)
    cold = tagger.fit(X, y).n_iter_
    assert tagger.fit(X, y).n_iter_ < cold
    tagger.set_params(alpha=0.01).fit(X, y)
    other = SequenceTagger("log", alpha=0.01, tol=1e-6, random_state=0).fit(X, y)
    assert_allclose(tagger.primal_objective_, other.primal_objective_, rtol=1e-5)
    # and blocks go on from there
    tagger.set_params(solver="auto", random_state=0).fit(X, y)
    assert_allclose(tagger.primal_objective_, other.primal_objective_, rtol=1e-5)


def test_transition_features():
    X, y = words()
    options = dict(alpha=0.05, transition_features="all", random_state=0)
    newton = SequenceTagger("log", solver=NewtonCG(), tol=1e-9, **options).fit(X, y)
    blocks = SequenceTagger("log", tol=1e-6, max_iter=3000, **options).fit(X, y)
    assert_allclose(newton.primal_objective_, blocks.primal_objective_, rtol=1e-5)


def test_bad_input():
    X, y = iris()
    with pytest.raises(ValueError, match=r"surrogate='max_min' does not have"):
        MulticlassClassifier(solver=NewtonCG()).fit(X, y)
    with pytest.raises(ValueError, match="plain L2 penalty"):
        MulticlassClassifier("log", penalty="elasticnet", solver=NewtonCG()).fit(X, y)
    with pytest.raises(ValueError, match="plain L2 penalty"):
        MulticlassClassifier("log", kernel="rbf", solver=NewtonCG()).fit(X, y)
    with pytest.raises(ValueError, match="has none: single labels, sequences"):
        CASES["Matcher"].fit(surrogate="log", solver=NewtonCG())
    with pytest.raises(ValueError, match="fits one alpha"):
        regularization_path(MulticlassClassifier("log", solver=NewtonCG()), X, y)
    with pytest.raises(ValueError, match="intercepts without penalty"):
        MulticlassClassifier("log", fit_intercept="free", solver=NewtonCG()).fit(X, y)
    with pytest.raises(ValueError, match="cg_tol must lie in"):
        MulticlassClassifier("log", solver=NewtonCG(cg_tol=1.0)).fit(X, y)
    with pytest.raises(ValueError, match="a NewtonCG"):
        MulticlassClassifier("log", solver="newton").fit(X, y)


def test_model_files(tmp_path):
    X, y = iris()
    clf = MulticlassClassifier("log", alpha=0.1, solver=NewtonCG(cg_tol=0.3)).fit(X, y)
    save_model(clf, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.solver.get_params() == clf.solver.get_params()
    assert_allclose(again.predict_proba(X), clf.predict_proba(X))
