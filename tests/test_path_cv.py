"""RegularizationPathCV among scikit-learn's tools: pipelines, scorers, weights, routing, splitters."""

import re
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, UnsetMetadataPassedError
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import f1_score, get_scorer, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from test_path_folds import N, chains, gram, graphs, pairs, rankings, several_labels, vectors

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    RegularizationPathCV,
    SequenceScaler,
    SequenceTagger,
    regularization_path,
)
from fastm4n.penalties import ElasticNet

pytestmark = pytest.mark.filterwarnings("ignore:the best alpha:UserWarning")


def wide():
    """Columns of several scales."""
    X, y = vectors()
    return X * [1.0, 10.0, 0.1, 1e3] + [0.0, 5.0, 1.0, -1e3], y


def counts():
    X, y = vectors()
    return sparse.csr_array(np.round(np.abs(X) * 3)), y


# by name: an estimator, data, and a step before it
KINDS = {
    "labels": (MulticlassClassifier("log"), wide, StandardScaler()),
    "csr": (MulticlassClassifier("log"), counts, TfidfTransformer()),
    "max_min": (MulticlassClassifier("max_min"), wide, StandardScaler()),
    "sparse": (
        MulticlassClassifier("log", penalty=ElasticNet(l1_ratio=0.5)), vectors, StandardScaler()),
    "rbf": (MulticlassClassifier("max_margin", kernel="rbf"), vectors, StandardScaler()),
    "gram": (MulticlassClassifier("log", kernel="precomputed"), gram, KernelCenterer()),
    "ordinal": (OrdinalClassifier(), wide, StandardScaler()),
    "label sets": (MultiLabelClassifier("max_margin", fit_intercept=True), several_labels, StandardScaler()),
    "rankings": (LabelRanker("max_margin"), rankings, StandardScaler()),
    "matchings": (Matcher("max_margin"), pairs, "passthrough"),
    "chains": (SequenceTagger("max_margin"), chains, SequenceScaler()),
    "graphs": (GraphTagger("max_margin"), graphs, "passthrough"),
}
OPTIONS = dict(eps=0.3, cv=KFold(3, shuffle=True, random_state=0))


def prepared(name, in_pipeline):
    """A search, and the data."""
    estimator, make, step = KINDS[name]
    X, y = (vectors if make is wide and not in_pipeline else make)()
    estimator = clone(estimator).set_params(random_state=0, max_iter=300)
    return make_pipeline(step, estimator) if in_pipeline else estimator, X, y


def taken(values, rows):
    return [values[i] for i in rows] if isinstance(values, list) else values[rows]


def columns_too(X, model, rows):
    return X[:, rows] if getattr(model, "kernel", None) == "precomputed" else X


def scores_by_hand(search, X, y, scorer, weights=None, score_weights=None, cut=True):
    """Scores of paths of the folds, each of data cut out and transformed: nan below their ends.

    If they are not cut out, all other examples have no weight.
    """
    found = np.full(search.scores_.shape, np.nan)
    model = search.estimator
    last = model[-1] if isinstance(model, Pipeline) else model
    for k, (train, test) in enumerate(search.cv.split(X, y)):
        A, B = taken(X, train), taken(X, test)
        if cut:
            A, B = columns_too(A, last, train), columns_too(B, last, train)
        if isinstance(model, Pipeline):
            before = clone(model[:-1]).fit(A)
            A, B = before.transform(A), before.transform(B)
        if cut:
            path = regularization_path(
                last, A, taken(y, train), eps=search.eps,
                sample_weight=None if weights is None else weights[train])
        else:
            mask = np.isin(np.arange(len(X)), train)
            path = regularization_path(
                last, X, y, eps=search.eps,
                sample_weight=1.0 * mask if weights is None else mask * weights)
        options = {} if score_weights is None else {"sample_weight": score_weights[test]}
        for j, alpha in enumerate(search.alphas_):
            if alpha >= path.alphas[-1]:
                found[j, k] = scorer(path.estimator(alpha), B, taken(y, test), **options)
    return found


def weights_for(X):
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    return np.linspace(0.5, 2.0, n)[np.random.default_rng(0).permutation(n)]


def own_score(model, X, y, **options):
    return model.score(X, y, **options)


def check(search, X, y, scorer, weights=None, score_weights=None, cut=True):
    expected = scores_by_hand(search, X, y, scorer, weights, score_weights, cut)
    known = np.isfinite(expected)
    assert known.any(axis=0).all()
    assert_allclose(search.scores_[known], expected[known], rtol=0, atol=1e-9)
    # the winner is a fit
    model = search.best_estimator_
    fitted = model[-1] if isinstance(model, Pipeline) else model
    assert fitted.alpha_ == search.alpha_ == search.alphas_[np.argmax(search.mean_score_)]
    assert fitted.relative_gap_ <= fitted.tol_
    prefix = "" if model is fitted else f"{model.steps[-1][0]}__"
    again = clone(search.estimator).set_params(**{f"{prefix}alpha": search.alpha_})
    again.fit(X, y, **({} if weights is None else {f"{prefix}sample_weight": weights}))
    again = again[-1] if isinstance(again, Pipeline) else again
    name = "coef_" if hasattr(again, "coef_") else "dual_coef_"
    assert_array_equal(getattr(fitted, name), getattr(again, name))


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["bare", "pipeline"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore:y has labels that are not:UserWarning")
def test_scores_are_those_of_paths_of_the_parts(name, weighted, in_pipeline):
    model, X, y = prepared(name, in_pipeline)
    if name == "graphs" and in_pipeline:
        pytest.skip("no step takes graphs")
    weights = weights_for(X) if weighted else None
    search = RegularizationPathCV(model, **OPTIONS).fit(X, y, sample_weight=weights)
    # parts that are cut out may not have all columns, labels or items
    cut = in_pipeline or name not in ("gram", "label sets", "rankings")
    check(search, X, y, own_score, weights, weights, cut)
    assert search.score(X, y) == search.best_estimator_.score(X, y)


SCORERS = {
    "accuracy": "accuracy",
    "neg_log_loss": "neg_log_loss",
    "make_scorer": make_scorer(f1_score, average="macro"),
    "function": lambda model, X, y, sample_weight=None: np.average(
        model.predict(X) == y, weights=sample_weight),
}


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["bare", "pipeline"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize("scoring", SCORERS)
@pytest.mark.parametrize("name", ["labels", "csr"])
def test_scorers(name, scoring, weighted, in_pipeline):
    model, X, y = prepared(name, in_pipeline)
    weights = weights_for(X) if weighted else None
    scorer = get_scorer(SCORERS[scoring])
    search = RegularizationPathCV(model, scoring=SCORERS[scoring], **OPTIONS)
    search.fit(X, y, sample_weight=weights)
    check(search, X, y, scorer, weights, weights)
    assert search.score(X, y) == scorer(search.best_estimator_, X, y)
    if weighted:
        assert search.score(X, y, sample_weight=weights) == scorer(
            search.best_estimator_, X, y, sample_weight=weights)


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["bare", "pipeline"])
@pytest.mark.parametrize("scoring", [
    make_scorer(lambda y, z: np.mean(y == z)), lambda model, X, y: np.mean(model.predict(X) == y)])
def test_scorers_without_weights_are_told_of(scoring, in_pipeline):
    model, X, y = prepared("labels", in_pipeline)
    weights = weights_for(X)
    search = RegularizationPathCV(model, scoring=scoring, **OPTIONS)
    with pytest.warns(UserWarning, match="takes no sample_weight: the paths are") as caught:
        search.fit(X, y, sample_weight=weights)
    assert [found.filename for found in caught if "takes no" in str(found.message)] == [__file__]
    check(search, X, y, own_score, weights)


def test_functions_score_the_pipeline_on_raw_data():
    model, X, y = prepared("labels", True)
    seen = []

    def score(model, X, y):
        seen.append((type(model), X.mean()))
        return model.score(X, y)

    RegularizationPathCV(model, scoring=score, **OPTIONS).fit(X, y)
    assert {kind for kind, _ in seen} == {Pipeline}
    assert_allclose(
        sorted({mean for _, mean in seen}),
        sorted(X[test].mean() for _, test in OPTIONS["cv"].split(X)))


def test_steps_see_the_training_part_only():
    model, X, y = prepared("labels", True)
    seen = []

    class Noting(StandardScaler):
        def fit(self, X, y=None, sample_weight=None):
            seen.append(X.copy())
            return super().fit(X, y, sample_weight)

    model.steps[0] = ("noting", Noting())
    search = RegularizationPathCV(model, **OPTIONS).fit(X, y)
    parts = [slice(None), *(train for train, _ in OPTIONS["cv"].split(X)), slice(None)]
    for part, found in zip(parts, seen, strict=True):
        assert_array_equal(found, X[part])
    # as an exhaustive search of the same grid at the same tol
    alphas = [0.3, 0.03, 0.003]
    grid = GridSearchCV(
        clone(model).set_params(multiclassclassifier__tol=1e-6),
        {"multiclassclassifier__alpha": alphas}, cv=OPTIONS["cv"]).fit(X, y)
    path = RegularizationPathCV(
        model, method="grid", alphas=alphas, eps=1e-6, cv=OPTIONS["cv"]).fit(X, y)
    assert_allclose(path.mean_score_, grid.cv_results_["mean_test_score"])
    assert search.best_estimator_[0].n_features_in_ == 4


def test_in_and_around_a_pipeline():
    X, y = wide()
    inner = RegularizationPathCV(MulticlassClassifier("log", random_state=0), **OPTIONS)
    outside = make_pipeline(StandardScaler(), inner).fit(X, y)
    by_hand = clone(inner).fit(StandardScaler().fit_transform(X), y)
    assert outside[-1].alpha_ == by_hand.alpha_
    assert_array_equal(outside.predict_proba(X), by_hand.predict_proba(StandardScaler().fit_transform(X)))
    assert outside.score(X, y) == by_hand.score(StandardScaler().fit_transform(X), y)
    # one step, and parameters by name
    one = RegularizationPathCV(make_pipeline(MulticlassClassifier("log", random_state=0)), **OPTIONS)
    assert_array_equal(one.fit(X, y).scores_, clone(inner).fit(X, y).scores_)
    assert one.best_estimator_[-1].alpha_ == one.alpha_
    around = RegularizationPathCV(make_pipeline(StandardScaler(), inner.estimator))
    again = clone(around).set_params(estimator__multiclassclassifier__surrogate="max_min", eps=0.2)
    assert again.get_params()["estimator__multiclassclassifier"].surrogate == "max_min"
    assert around.estimator[-1].surrogate == "log" and hasattr(around, "predict_proba")
    assert not hasattr(again, "predict_proba") and "StandardScaler" in again._repr_html_()
    with pytest.raises(TypeError, match="one of fastm4n's estimators, got RegularizationPathCV"):
        RegularizationPathCV(outside).fit(X, y)


def test_names_of_features_of_a_pipeline():
    pd = pytest.importorskip("pandas")
    X, y = wide()
    X = pd.DataFrame(X, columns=list("abcd"))
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), KINDS["labels"][0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the best alpha")
        search = RegularizationPathCV(model, **OPTIONS).fit(X, pd.Series(y))
        search.predict(X)
    assert list(search.feature_names_in_) == list("abcd") and search.n_features_in_ == 4
    assert_array_equal(search.classes_, [0, 1, 2])


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["bare", "pipeline"])
@pytest.mark.parametrize("cv", [
    3, None, StratifiedKFold(4), GroupKFold(3), LeaveOneGroupOut(),
    ShuffleSplit(2, random_state=0), PredefinedSplit(np.arange(N) % 4 - 1), "iterable", "masks"],
    ids=lambda cv: str(cv)[:15])
def test_splitters(cv, in_pipeline):
    model, X, y = prepared("labels", in_pipeline)
    groups = np.arange(N) % 4
    if cv == "iterable":
        cv = iter(list(KFold(3).split(X)))
    elif cv == "masks":
        cv = [(groups != k, groups == k) for k in range(4)]
    by_group = isinstance(cv, (GroupKFold, LeaveOneGroupOut))
    search = RegularizationPathCV(model, eps=0.3, cv=cv)
    search.fit(X, y, groups=groups if by_group else None)
    n_splits = {GroupKFold: 3, LeaveOneGroupOut: 4, StratifiedKFold: 4, ShuffleSplit: 2}
    assert search.scores_.shape == (search.alphas_.size, search.n_splits_)
    assert search.n_splits_ == n_splits.get(type(cv), search.n_splits_)
    if not hasattr(cv, "__next__") and not by_group:
        again = GridSearchCV(
            clone(model), {"multiclassclassifier__alpha" if in_pipeline else "alpha": [0.1]}, cv=cv)
        assert again.fit(X, y).n_splits_ == search.n_splits_


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["bare", "pipeline"])
def test_jobs_and_pickles(in_pipeline, monkeypatch):
    import pickle

    from fastm4n.path import _folds

    monkeypatch.setattr(_folds, "WORTH_A_THREAD", 0.0)
    model, X, y = prepared("labels", in_pipeline)
    one, three = (
        RegularizationPathCV(model, n_jobs=n_jobs, **OPTIONS).fit(X, y) for n_jobs in (1, 3))
    assert_array_equal(one.scores_, three.scores_)
    assert_array_equal(one.predict_proba(X), three.predict_proba(X))
    assert_array_equal(pickle.loads(pickle.dumps(one)).predict(X), one.predict(X))


# the choice


def given_scores(table):
    """A search whose scores at four alphas of a grid are given, by fold and alpha."""
    X, y = vectors()
    alphas = np.array([1.0, 0.1, 0.01, 0.001])
    rows = {first: k for k, first in enumerate(KFold(len(table)).split(X))
            for first in [tuple(X[first[1]][0])]}

    def score(model, X, y):
        return table[rows[tuple(X[0])]][int(np.argmin(abs(np.log(alphas / model.alpha_))))]

    return RegularizationPathCV(
        MulticlassClassifier(random_state=0), method="grid", alphas=alphas, eps=0.3,
        cv=KFold(len(table)), scoring=score), X, y


def test_the_one_standard_error_rule():
    # means 0.6, 0.79, 0.8, 0.7; the error is that of the third, 0.1 / sqrt(4) = 0.05 or so
    table = [[0.6, 0.75, 0.7, 0.9], [0.6, 0.8, 0.8, 0.9], [0.6, 0.8, 0.8, 0.5], [0.6, 0.81, 0.9, 0.5]]
    search, X, y = given_scores(table)
    search.fit(X, y)
    error = np.std([0.7, 0.8, 0.8, 0.9], ddof=1) / 2
    assert search.alpha_ == 0.01 and 0.79 > 0.8 - error > 0.7
    assert search.alpha_1se_ == 0.1
    assert_allclose(search.best_score_, 0.8)
    # without an error the largest of equals, whatever the order of a sum
    search, X, y = given_scores([[0.5, 0.7, 0.9, 0.9], [0.5, 0.9, 0.7, 0.9], [0.5, 0.8, 0.8, 0.0]])
    search.fit(X, y)
    assert search.alpha_ == 0.1
    search, X, y = given_scores([[0.7, 0.8, 0.8, 0.8]] * 3)
    search.set_params(one_standard_error=True).fit(X, y)
    assert search.alpha_ == search.alpha_1se_ == search.best_estimator_.alpha_ == 0.1


def test_scores_that_are_not_numbers_do_not_win():
    nan = np.nan
    search, X, y = given_scores([[nan, 0.7, 0.9, 0.8], [0.5, 0.9, 0.7, 0.9], [0.5, 0.8, 0.8, 0.0]])
    assert search.fit(X, y).alpha_ == 0.1
    search, X, y = given_scores([[0.5, 0.7, 0.9, 0.8], [nan] * 4, [0.5, 0.8, 0.8, 0.0]])
    with pytest.raises(ValueError, match="No alpha has a finite mean score: those of fold 1 are nan"):
        search.fit(X, y)


@pytest.mark.parametrize("scoring", [["accuracy"], {"a": "accuracy"}])
def test_one_scorer(scoring):
    X, y = vectors()
    with pytest.raises(ValueError, match="scoring must be one scorer or None"):
        RegularizationPathCV(MulticlassClassifier(), scoring=scoring).fit(X, y)


def test_both_ends_are_told_of():
    X, y = wide()
    X = StandardScaler().fit_transform(X)
    model = MulticlassClassifier("log", random_state=0)
    options = dict(cv=3, eps=0.1, scoring="neg_log_loss")
    with pytest.warns(UserWarning, match="at the end of the paths. A smaller one may"):
        low = RegularizationPathCV(model, alpha_min=10.0, **options).fit(X, y)
    assert low.is_at_end_
    with pytest.warns(UserWarning, match="largest of the paths. A larger one may.*larger alpha_max"):
        high = RegularizationPathCV(
            model, alpha_max=1e-3, alpha_min=1e-4, **{**options, "eps": 1e-3}).fit(X, y)
    assert high.alpha_ == high.alphas_[0] and not high.is_at_end_
    noise = np.random.default_rng(0).normal(size=(60, 30))
    labels = np.arange(60) % 2
    with pytest.warns(UserWarning, match="Under it hardly anything is learned: X may not predict"):
        RegularizationPathCV(model, **options).fit(noise, labels)
    # equal scores at all alphas do not rise
    easy = np.repeat(np.eye(3), 10, axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RegularizationPathCV(model, cv=3).fit(easy, np.repeat([0, 1, 2], 10))


def test_the_default_precision_depends_on_the_surrogate():
    X, y = vectors()
    for surrogate, eps in (("log", 0.05), ("max_min", 0.03), ("max_margin", 0.03)):
        search = RegularizationPathCV(MulticlassClassifier(surrogate, random_state=0), cv=2)
        path = search.fit(X, y).path_
        assert path.eps == eps and path.complete
        assert path.relative_gaps.max() <= (0.01 if surrogate == "log" else eps)
    grid = RegularizationPathCV(
        MulticlassClassifier("log", random_state=0), cv=2, method="grid", alphas=[0.1, 0.01])
    assert grid.fit(X, y).path_.relative_gaps.max() <= 0.01


def test_a_winner_that_is_not_solved_is_told_of():
    X, y = wide()
    model = MulticlassClassifier("max_margin", max_iter=2, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match="After 2 passes the certified"):
        RegularizationPathCV(model, eps=0.5, cv=2).fit(X, y)


# metadata routing


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def requesting(model, fit=True, score=True):
    return clone(model).set_fit_request(sample_weight=fit).set_score_request(sample_weight=score)


def test_weights_are_requested(routing):
    model, X, y = prepared("labels", False)
    weights = weights_for(X)
    with pytest.raises(UnsetMetadataPassedError, match=re.escape("MulticlassClassifier.fit")):
        RegularizationPathCV(model, **OPTIONS).fit(X, y, sample_weight=weights)
    for fit, score in ((True, True), (True, False), (False, True)):
        search = RegularizationPathCV(requesting(model, fit, score), **OPTIONS)
        search.fit(X, y, sample_weight=weights)
        check(search, X, y, own_score, weights if fit else None, weights if score else None)
    search = RegularizationPathCV(
        clone(model).set_fit_request(sample_weight="mass"),
        scoring=get_scorer("accuracy").set_score_request(sample_weight="importance"), **OPTIONS)
    search.fit(X, y, mass=weights, importance=weights[::-1])
    check(search, X, y, own_score, weights, weights[::-1])
    assert search.score(X, y, importance=weights) == search.best_estimator_.score(
        X, y, sample_weight=weights)
    with pytest.raises(TypeError, match="unexpected"):
        search.fit(X, y, colour=weights)


@pytest.mark.parametrize("in_pipeline", [False, True], ids=["bare", "pipeline"])
def test_routing_without_metadata(in_pipeline, routing):
    model, X, y = prepared("labels", in_pipeline)
    search = RegularizationPathCV(model, **OPTIONS).fit(X, y)
    check(search, X, y, own_score)
    assert search.score(X, y) == search.best_estimator_.score(X, y)


def test_functions_request_nothing(routing):
    model, X, y = prepared("labels", False)
    search = RegularizationPathCV(requesting(model), scoring=SCORERS["function"], **OPTIONS)
    weights = weights_for(X)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        search.fit(X, y, sample_weight=weights)
    check(search, X, y, own_score, weights)


def test_groups_go_to_the_splitter(routing):
    model, X, y = prepared("labels", False)
    groups = np.arange(N) % 4
    search = RegularizationPathCV(model, eps=0.3, cv=LeaveOneGroupOut())
    assert search.fit(X, y, groups=groups).n_splits_ == 4
    named = RegularizationPathCV(
        model, eps=0.3, cv=LeaveOneGroupOut().set_split_request(groups="subject"))
    assert_array_equal(named.fit(X, y, subject=groups).scores_, search.scores_)
    # within another router
    outer = RegularizationPathCV(requesting(model), eps=0.3, cv=LeaveOneGroupOut())
    outer.set_fit_request(sample_weight=True, groups=True)
    found = cross_validate(
        outer, X, y, cv=KFold(2), return_estimator=True,
        params={"sample_weight": weights_for(X), "groups": groups})
    half = np.arange(N // 2, N)
    alone = clone(outer).fit(X[half], y[half], sample_weight=weights_for(X)[half], groups=groups[half])
    assert_array_equal(found["estimator"][0].scores_, alone.scores_)
    through = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), clone(outer))
    through.fit(X, y, sample_weight=weights_for(X), groups=groups)
    assert through[-1].n_splits_ == 4


def test_steps_of_a_pipeline_have_requests_of_their_own(routing):
    model, X, y = prepared("labels", True)
    weights = weights_for(X)
    model = make_pipeline(
        StandardScaler().set_fit_request(sample_weight="scaling"), requesting(model[-1]))
    search = RegularizationPathCV(model, **OPTIONS)
    search.fit(X, y, sample_weight=weights, scaling=weights[::-1])
    assert_allclose(search.best_estimator_[0].mean_, np.average(X, axis=0, weights=weights[::-1]))
    for k, (train, test) in enumerate(OPTIONS["cv"].split(X)):
        scaler = StandardScaler().fit(X[train], sample_weight=weights[::-1][train])
        path = regularization_path(
            model[-1], scaler.transform(X[train]), y[train], eps=0.3, sample_weight=weights[train])
        known = search.alphas_ >= path.alphas[-1]
        assert_allclose(search.scores_[known, k], path.score(
            scaler.transform(X[test]), y[test], alphas=search.alphas_[known],
            sample_weight=weights[test]))


def test_without_routing_there_is_no_other_metadata():
    X, y = vectors()
    with pytest.raises(TypeError, match="fit has no parameter 'colour' without sklearn.set_config"):
        RegularizationPathCV(MulticlassClassifier()).fit(X, y, colour=y)


# scikit-learn's checks


@pytest.mark.filterwarnings("ignore")
def test_common_checks():
    pytest.importorskip("pandas", reason="some of scikit-learn's checks are of pandas")
    # without a seed two fits differ
    search = RegularizationPathCV(MulticlassClassifier("log", random_state=0))
    results = check_estimator(search, on_fail=None)
    assert len(results) > 50
    assert [result["check_name"] for result in results if result["status"] == "failed"] == []


@pytest.mark.filterwarnings("ignore")
def test_common_checks_of_a_pipeline():
    pytest.importorskip("pandas", reason="some of scikit-learn's checks are of pandas")
    search = RegularizationPathCV(
        make_pipeline(StandardScaler(), MulticlassClassifier("log", random_state=0)))
    results = check_estimator(search, on_fail=None)
    # a scaler without weights is not one of repeated examples
    assert [result["check_name"] for result in results if result["status"] == "failed"] == [
        "check_sample_weight_equivalence_on_dense_data"]
