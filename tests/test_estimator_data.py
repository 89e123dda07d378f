"""What holds for every estimator: data of any form and size, settings, warm starts with others.

The other half of the contract is in `test_estimator_contract`.
"""

import copy
import dataclasses
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from comparisons import assert_same_answers, assert_same_fit, state
from estimator_cases import ASYMMETRIC, CASES, SURROGATES, take
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.utils import estimator_checks

from fastm4n import BlockFrankWolfe, MultiLabelClassifier

OF_LISTS = [name for name, case in CASES.items() if isinstance(case.X, list)]
OF_ROWS = [name for name in CASES if name not in OF_LISTS]


@pytest.fixture(params=["linear", "rbf"])
def kernel(request, case):
    """Parameters for it, where there is a choice."""
    if request.param not in case.kernels:
        pytest.skip("it has no kernels")
    return {"kernel": request.param} if len(case.kernels) > 1 else {}


def assert_one_optimum(one, other, atol=1e-9):
    """Neither certificate contradicts the other."""
    assert one.dual_objective_ <= other.primal_objective_ + atol
    assert other.dual_objective_ <= one.primal_objective_ + atol


# scikit-learn's contract


@pytest.mark.parametrize("name", OF_LISTS)
@pytest.mark.parametrize("check", [
    "check_estimator_cloneable", "check_estimator_repr", "check_valid_tag_types",
    "check_no_attributes_set_in_init", "check_get_params_invariance", "check_set_params",
    "check_parameters_default_constructible", "check_estimator_tags_renamed"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_common_checks_without_data(name, check):
    for estimator in (CASES[name].cls(), CASES[name].cls("log", alpha=0.5, cost=ASYMMETRIC)):
        getattr(estimator_checks, check)(name, estimator)


def test_model_selection(case):
    estimator, cv = made(case.cls, random_state=0, alpha=0.05, tol=case.tol), KFold(
        3, shuffle=True, random_state=0)
    scores = cross_val_score(estimator, case.X, case.y, cv=cv, error_score="raise")
    assert scores.shape == (3,) and scores.min() > case.least_score(0.6)
    for score, (train, test) in zip(scores, cv.split(np.arange(case.n)), strict=True):
        again = clone(estimator).fit(**case.rows(train))
        assert again.score(*case.rows(test).values()) == score
    if case.cls.__name__ != "Matcher":  # scikit-learn joins arrays alone
        predicted = cross_val_predict(estimator, case.X, case.y, cv=cv)
        assert len(predicted) == case.n
        # folds predict as their estimators do
        assert_same_answers(
            {"predict": take(predicted, test) if isinstance(predicted, np.ndarray) else [
                predicted[i] for i in test]},
            {"predict": again.predict(case.rows(test)["X"])})
    search = GridSearchCV(
        estimator, {"alpha": [100.0, 0.05], "surrogate": ["log", "max_margin"]}, cv=cv,
        error_score="raise").fit(case.X, case.y)
    if case.equal is None:  # matchings are those of any multiple of w
        assert search.best_params_["alpha"] == 0.05
    assert search.best_score_ == search.cv_results_["mean_test_score"].max() > (
        case.least_score(0.6))
    assert search.score(case.X, case.y) > case.least_score(0.7)
    assert_same_answers(
        {"predict": search.predict(case.X)}, {"predict": search.best_estimator_.predict(case.X)})


def test_model_selection_in_processes():
    """Forked ones, as others take seconds to begin."""
    for case in CASES.values():
        estimator = made(case.cls, random_state=0, alpha=0.05, tol=case.tol)
        with joblib.parallel_config(backend="multiprocessing"):
            one, two = (
                GridSearchCV(estimator, {"alpha": [1.0, 0.05], **(
                    {"kernel": list(case.kernels)} if len(case.kernels) > 1 else {})}, cv=2,
                    n_jobs=n_jobs, error_score="raise").fit(case.X, case.y).cv_results_
                for n_jobs in (1, 2))
        assert_array_equal(one["mean_test_score"], two["mean_test_score"])


def test_metadata_routing(case):
    weights = np.random.default_rng(0).uniform(0.5, 2, case.n)
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = case.cls("log", tol=case.tol, random_state=0).set_fit_request(
            sample_weight=True).set_score_request(sample_weight=False)
        search = GridSearchCV(estimator, {"alpha": [0.05]}, cv=3, error_score="raise")
        search.fit(case.X, case.y, sample_weight=weights)
        expected = clone(estimator).set_params(alpha=0.05).fit(
            case.X, case.y, sample_weight=weights)
    assert_same_fit(search.best_estimator_, expected)


@pytest.mark.parametrize("module", ["pandas", "polars"])
@pytest.mark.parametrize("name", OF_ROWS)
def test_data_frames(name, module):
    frames, case = pytest.importorskip(module), CASES[name]
    frame = frames.DataFrame(dict(zip("abcd", case.X.T, strict=True)))
    estimator, plain = case.fit(X=frame), case.fit()
    assert_array_equal(estimator.feature_names_in_, list("abcd"))
    assert_array_equal(estimator.coef_, plain.coef_)
    assert_array_equal(estimator.predict(frame), plain.predict(case.X))
    assert estimator.score(frame, case.y) == plain.score(case.X, case.y)
    with pytest.warns(UserWarning, match="valid feature names"):
        estimator.predict(case.X)
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.predict(frame[["b", "a", "c", "d"]])


# what a fit leaves


def test_attributes(case, surrogate, kernel):
    estimator = case.fit(surrogate, **kernel)
    history = estimator.history_
    assert tuple(history) == (
        "pass", "primal", "dual", "gap", "seconds", "oracle_calls", "oracle_error", "cache_hits",
        "policy")
    assert len({len(column) for column in history.values()}) == 1
    for name, attribute in (
            ("gap", "duality_gap_"), ("primal", "primal_objective_"), ("dual", "dual_objective_"),
            ("pass", "n_iter_")):
        assert history[name][-1] == getattr(estimator, attribute)
    assert_allclose(
        estimator.duality_gap_, estimator.primal_objective_ - estimator.dual_objective_,
        atol=1e-12)
    assert estimator.n_iter_ > 0 and 0 <= estimator.relative_gap_ <= estimator.tol_
    assert estimator.n_features_in_ == case.n_features
    for name, value in state(estimator).items():
        # no vectorizer, where X holds numbers
        assert isinstance(value, (np.ndarray, float, int, np.number, str)) or (
            name == "vectorizer_" and value is None), name
        if "coef_" in name or name in ("intercept_", "cost_matrix_"):
            assert value.dtype == np.float64 and np.any(value), name
    of_weights = kernel.get("kernel") != "rbf"
    assert hasattr(estimator, "coef_") == of_weights
    assert hasattr(estimator, "dual_coef_") == hasattr(estimator, "X_fit_") != of_weights
    assert estimator.score(case.X, case.y) > case.least_score(0.7)


# features


def disordered(x):
    x = sparse.csr_matrix(x)
    for start, stop in zip(x.indptr[:-1], x.indptr[1:], strict=True):
        for part in (x.indices, x.data):
            part[start:stop] = part[start:stop][::-1].copy()
    x.has_sorted_indices = False
    return x


def doubled(x):
    """Every entry in two parts."""
    x = sparse.csr_matrix(x)
    return sparse.csr_matrix(
        (np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr), shape=x.shape)


def of_long_indices(x):
    x = sparse.csr_matrix(x)
    x.indices, x.indptr = x.indices.astype(np.int64), x.indptr.astype(np.int64)
    return x


def of_float32(x):
    return x.astype(np.float32)


DENSE = (of_float32, np.asfortranarray, np.ndarray.tolist,
         lambda x: np.repeat(x, 2, axis=-1)[..., ::2])
SPARSE = (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_matrix,
          lambda x: sparse.csr_matrix(of_float32(x)), disordered, doubled, of_long_indices)


def buffers(x):
    names = ("data", "indices", "indptr", "row", "col")
    return [getattr(x, name) for name in names if hasattr(x, name)] if sparse.issparse(x) else [x]


def test_forms_of_features(case, surrogate, kernel):
    """The same numbers, in whatever form: one optimum, and what one fitted all predict with."""
    # quarters, which float32 holds as well; many zeros
    X = case.changed(lambda x: np.round(2 * x) / 4)
    plain = case.fit(surrogate, X=X, **kernel)
    case = dataclasses.replace(case, X=X)
    # a third of them: each form meets each estimator, each surrogate and each kernel
    forms = (*DENSE, *SPARSE) if case.dims < 3 else DENSE
    first = SURROGATES.index(surrogate) + bool(kernel)
    for form in forms[first % 3 :: 3]:
        inputs = case.changed(form)
        before = copy.deepcopy(inputs)
        estimator = case.fit(surrogate, X=inputs, **kernel)
        assert_one_optimum(estimator, plain)
        for other in (X, case.changed(of_float32)):
            answers, expected = case.answers(estimator, other), case.answers(estimator, inputs)
            for each in (answers, expected):  # which may be a matter of the last bit
                for decoded in [name for name in each if name in ("predict", "predict min_risk")]:
                    del each[decoded]
            assert_same_answers(answers, expected, 1e-5)
        # what was given is as it was
        if not isinstance(X, list):
            inputs, before = [inputs], [before]
        for one, other in zip(inputs, before, strict=True):
            one, other = case.features(one), case.features(other)
            for part, expected in zip(buffers(one), buffers(other), strict=True):
                assert_array_equal(part, expected)
                assert isinstance(part, list) or part.dtype == expected.dtype


@pytest.mark.parametrize("margin", ["max_margin", "log"])
def test_forms_of_the_same_numbers_give_the_same_path(case, margin):
    options = {"sampling": "permutation", "max_iter": 3, "tol": 0}
    forms = [of_float32, sparse.csr_matrix, SPARSE[4]]
    with pytest.warns(ConvergenceWarning):
        X = case.changed(lambda x: np.round(2 * x) / 4)
        plain = case.fit(margin, X=X, **options)
        for form in forms if case.dims < 3 else forms[:1]:
            other = case.fit(margin, X=dataclasses.replace(case, X=X).changed(form), **options)
            assert_allclose(other.coef_, plain.coef_, atol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e-4, 1e4, 1e150])
def test_features_of_extreme_sizes(case, scale):
    X, has = case.changed(lambda x: scale * x), case.cls().get_params()
    settings = [{"surrogate": surrogate} for surrogate in SURROGATES] + [
        {"step": "fixed"}, {"cost": "squared"}]
    if "fit_intercept" in has:
        settings.append({"fit_intercept": False})
    if "kernel" in has:
        settings += [{"kernel": "rbf"}, {"kernel": "poly"}]
    if case.is_single:
        settings.append({"step": "exact", "cost": "zero_one"})
    for parameters in settings:
        estimator = case.fit(X=X, max_iter=8, **parameters)
        assert 0 <= estimator.duality_gap_ < np.inf, parameters
        assert np.isfinite([estimator.primal_objective_, estimator.dual_objective_]).all()
        for scores in estimator.decision_function(X):
            assert np.isfinite(scores).all(), parameters
        predicted = estimator.predict(X)
        assert len(predicted) == case.n
        if case.cls.__name__ in ("LabelRanker", "Matcher"):
            for places in predicted:
                assert_array_equal(np.sort(places), np.arange(len(places)))


def test_features_that_are_too_large(case, surrogate):
    message = "too large.*norm of X|X has values too large.*row .*Scale the features"
    for scale in (1e155, 1e300):
        X = case.changed(lambda x: scale * (x + 1))
        for inputs in [X] if case.dims > 2 else [X, case.changed(
                lambda x: sparse.csr_matrix(scale * (x + 1)))]:
            with pytest.raises(ValueError, match=message):
                case.fit(surrogate, X=inputs)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite(case, kernel, value):
    X, name = case.changed(np.array), "NaN" if np.isnan(value) else "infinity"
    case.features(X[3])[..., 0] = value
    message = (
        rf"Input X contains {name}|X\[3\] has {value} at|node 0 of graph 3 has {value} in column 0")
    estimator = case.fit(**kernel)
    for call in (lambda: case.fit(X=X, **kernel), lambda: estimator.predict(X),
                 lambda: estimator.decision_function(X), lambda: estimator.score(X, case.y)):
        with pytest.raises(ValueError, match=message), warnings.catch_warnings():
            warnings.simplefilter("error")
            call()


def test_features_of_another_number(case, surrogate, kernel):
    estimator = case.fit(surrogate, **kernel)
    message = f"X has 2 features, but {case.cls.__name__} is expecting {case.n_features}"
    methods = ["predict", "decision_function"]
    for method in [*methods, case.probabilities] if surrogate == "log" else methods:
        with pytest.raises(ValueError, match=message):
            getattr(estimator, method)(case.smaller())
    with pytest.raises(ValueError, match=message):
        estimator.score(case.smaller(), case.y)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize(("spoil", "message"), [
    (lambda X: X[:0], "0 sample"), (lambda X: X[:, :0], "0 feature"),
    (lambda X: X[0], "Expected 2D array"), (lambda X: X[:-1], "inconsistent numbers of samples|"
                                            "y has .* rankings|needs a square X"),
    (lambda X: np.where(X == X[3, 1], np.nan, X), "Input X contains NaN"),
    (lambda X: np.where(X == X[3, 1], np.inf, X), "Input X contains infinity"),
])
@pytest.mark.parametrize("name", OF_ROWS)
def test_features_that_are_no_table(name, spoil, message, kernel):
    case = CASES[name]
    X = case.X @ case.X.T if kernel == "precomputed" else case.X
    with pytest.raises(ValueError, match=message):
        case.fit(X=spoil(X), kernel=kernel)
    if len(spoil(X)) != case.n - 1:
        with pytest.raises(ValueError, match=message):
            case.fit(X=X, kernel=kernel).predict(spoil(X))


# costs and policies


def test_costs(case):
    if case.cls is MultiLabelClassifier:
        pytest.skip("costs of two values: test_multilabel.py")
    X, y = case.equal or (case.X, case.y)
    fit, levels = case.fit, np.arange(3)
    assert_array_equal(fit(X=X, y=y, cost=ASYMMETRIC).cost_matrix_, ASYMMETRIC)
    distances = np.abs(np.subtract.outer(levels, levels))
    for cost, expected in (
            ("zero_one", distances > 0), ("absolute", distances), ("squared", distances**2)):
        for surrogate in ("max_min", "log"):
            found = fit(surrogate, X=X, y=y, cost=cost).cost_matrix_
            assert_array_equal(found, expected)
    # the CRF knows of no costs until it decodes
    assert_array_equal(fit("log", cost="squared").coef_, fit("log", **case.by_class).coef_)


@pytest.mark.parametrize(("cost", "message"), [
    ("hinge", "cost must be one of .*or a cost matrix, got 'hinge'"),
    (None, "cost must be a square matrix of costs"),
    (np.zeros((3, 2)), r"cost must be a square matrix of costs, got shape \(3, 2\)"),
    (np.zeros(3), r"cost must be a square matrix of costs, got shape \(3,\)"),
    (1 - np.eye(4), "cost is a 4 x 4 matrix, but y has 3 (classes|items|columns)"),
    ([[0, 1, 1], [1, 0, -2], [1, 1, 0]], r"cost\[1, 2\] is -2: costs must not be negative"),
    ([[0, 1, 1], [1, 0, 1], [1, 1, 3]], r"cost\[2, 2\] is 3: the diagonal must be zero"),
    ([[0, 1, np.nan], [1, 0, 1], [1, 1, 0]], r"cost\[0, 2\] is nan: costs must be finite"),
    ([[0, 1, np.inf], [1, 0, 1], [1, 1, 0]], r"cost\[0, 2\] is inf: costs must be finite"),
    ([["a", "b"], ["c", "d"]], "cost must be one of .*or a cost matrix"),
    ([[0], [1, 0]], "cost must be one of .*or a cost matrix"),
])
def test_costs_that_are_none(case, cost, message):
    if case.cls is MultiLabelClassifier:
        pytest.skip("costs of two values: test_multilabel.py")
    X, y = case.equal or (case.X, case.y)
    for surrogate in SURROGATES:
        with pytest.raises(ValueError, match=message):
            case.fit(surrogate, X=X, y=y, cost=cost)


EXACT = "step='exact' needs a closed-form.*[Uu]se step='line_search'"
NO_MIRROR_PROX = "solver__oracle='mirror_prox' is not for"


@pytest.mark.parametrize(("parameters", "message"), [
    ({"n_jobs": 0}, "n_jobs"), ({"random_state": "seed"}, "seed"),
    ({"verbose": "x"}, "verbose must be an integer >= 0, got 'x'"),
    ({"alpha": 10**400}, "alpha must be .*a finite number > 0"),
    ({"surrogate": "log", "step": "fixed"}, "step='fixed' averages dual points.*line_search"),
    *[({"surrogate": other, "oracle": "mirror_prox"},
       f"mirror_prox' needs surrogate='max_min', got surrogate='{other}'")
      for other in ("log", "max_margin")],
    ({"step": "exact", "surrogate": "log"}, EXACT), ({"step": "exact", "cost": "squared"}, EXACT),
    ({"step": "exact", "oracle": "mirror_prox"}, EXACT), ({"step": "exact"}, EXACT),
])
def test_settings_that_do_not_go_together(case, parameters, message):
    if case.cls is MultiLabelClassifier and parameters.get("step") == "exact" and (
            "oracle" in parameters):
        pytest.skip("graphs have no mirror prox")
    if case.is_single and parameters in (
            {"step": "exact"}, {"surrogate": "log", "step": "fixed"}):
        assert case.fit(cost="zero_one", **parameters).relative_gap_ <= case.tol
        return
    if "oracle" in parameters:
        parameters = {**parameters, **case.by_class}
    if not case.mirror_prox and "oracle" in parameters:
        message = f"{message}|{NO_MIRROR_PROX}"
    with pytest.raises(ValueError, match=message):
        case.fit(**parameters)


@pytest.mark.parametrize("parameters", [
    {"sampling": "uniform"}, {"sampling": "permutation"}, {"step": "fixed"},
    {"step": "fixed", "sampling": "permutation"}, {"step": "exact"},
    {"step": "exact", "sampling": "uniform"}, {"step": "exact", "sampling": "permutation"},
    {"surrogate": "max_margin", "step": "fixed", "sampling": "uniform"},
    {"surrogate": "log", "sampling": "uniform"}, {"oracle": "mirror_prox"},
    {"oracle": "mirror_prox", "oracle_iter": 7}, {"cost": "absolute", "oracle": "mirror_prox"},
    {"cost": "squared", "oracle": "mirror_prox"}, {"cost": ASYMMETRIC},
    {"cost": "squared", "surrogate": "max_margin"}], ids=str)
def test_policies_agree(case, parameters):
    """Each certifies, and no certificate contradicts another."""
    X, y = case.equal or (case.X, case.y)
    if case.cls is MultiLabelClassifier and (
            "oracle" in parameters or parameters.get("cost") is ASYMMETRIC):
        pytest.skip("graphs have no mirror prox, and costs are of two values")
    if parameters.get("step") == "exact":
        if not case.is_single:
            pytest.skip("it has no closed form")
        parameters = {**parameters, "cost": "zero_one"}
    if not case.mirror_prox and "oracle" in parameters:
        with pytest.raises(ValueError, match=NO_MIRROR_PROX):
            case.fit(X=X, y=y, **parameters)
        return
    if "oracle" in parameters:
        parameters = {**parameters, **case.by_class}
    same = {key: parameters[key] for key in ("surrogate", "cost", "form") if key in parameters}
    plain = case.fit(X=X, y=y, **{**same, "tol": case.tol / 10})
    tol = 0.3 if case.cls.__name__ == "SequenceTagger" else 0.1
    if case.is_single and (
            parameters.get("step") != "fixed" and "oracle" not in parameters):
        tol = 1e-3
    other = case.fit(X=X, y=y, **{**parameters, "tol": tol, "max_iter": 300})
    assert other.relative_gap_ <= tol
    assert_one_optimum(other, plain)
    assert other.score(X, y) > case.least_score(0.6)
    if "oracle" in parameters:
        assert other.history_["oracle_error"][0] > 0


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [1e-12, 1e12])
def test_alpha_of_extreme_sizes(case, surrogate, alpha):
    estimator = case.fit(surrogate, alpha=alpha, max_iter=30)
    assert np.isfinite(estimator.duality_gap_) and np.isfinite(estimator.coef_).all()
    if alpha > 1:
        assert estimator.relative_gap_ <= case.tol and np.abs(estimator.coef_).max() < 1e-9


def test_max_iter_has_no_upper_end(case):
    assert case.fit(max_iter=2**70).relative_gap_ <= case.tol


# weights of examples


@pytest.mark.parametrize(("change", "message"), [
    (lambda w: 0 * w, "[Ss]ample.weight.*(non-zero|zero for every)"),
    (lambda w: np.where(np.arange(len(w)) == 7, -2.0, w),
     r"sample_weight\[7\] is -2: weights must be >= 0"),
    (lambda w: np.where(np.arange(len(w)) == 7, np.nan, w),
     r"sample_weight contains NaN|sample_weight\[7\] is nan: weights must be.*finite"),
    (lambda w: np.where(np.arange(len(w)) == 7, np.inf, w),
     r"sample_weight contains infinity|sample_weight\[7\] is inf: weights must be.*finite"),
    (lambda w: w[1:], r"sample_weight.shape|sample_weight must have shape .*one weight for each"),
    (lambda w: np.column_stack([w, w]),
     r"[Ss]ample weights must be 1D|sample_weight must have shape .*one weight for each"),
])
def test_bad_weights(case, change, message):
    weights = change(np.ones(case.n))
    with pytest.raises(ValueError, match=message):
        case.fit(sample_weight=weights)
    if isinstance(case.X, list):  # else scikit-learn's scores look at them
        with pytest.raises(ValueError, match=message):
            case.fit().score(case.X, case.y, weights)


@pytest.mark.parametrize("name", [
    "MulticlassClassifier", "OrdinalClassifier", "SequenceTagger", "GraphTagger"])
def test_unknown_labels_at_scoring(name):
    case = CASES[name]
    estimator, is_list = case.fit(), isinstance(case.y, list)
    unseen = [["new" if label == "c" else label for label in part] for part in case.y] if (
        is_list) else np.where(case.y == 2, 17, case.y)
    with pytest.warns(UserWarning, match=r"labels that are not in classes_ \('new'|17\)") as caught:
        found = estimator.score(case.X, unseen)
    assert caught[0].filename == __file__
    predicted, truth = map(
        np.concatenate if is_list else np.asarray, (estimator.predict(case.X), unseen))
    if case.by_class:  # the worst mistake
        assert_allclose(found, -np.mean(np.where(truth == 17, 2, np.abs(predicted - truth))))
    else:
        assert_allclose(found, np.mean(predicted == truth))
    assert found < estimator.score(case.X, case.y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator.score(case.X, case.y)


# warm starts


def test_warm_start_with_other_data(case, surrogate):
    """Any dual point is feasible for any features, weights, outputs and settings."""
    rng, has = np.random.default_rng(0), case.cls().get_params()
    # the tree of other labels would be another
    graph = {"graph": "complete"} if "graph" in has else case.by_class
    case = dataclasses.replace(case, tol=3 * case.tol)
    estimator = case.fit(surrogate, warm_start=True, sample_weight=np.arange(case.n) % 2, **graph)
    settings = [{}] * 4 + [
        {"cost": "squared"}, {"alpha": 0.02, "cost": "absolute"},
        {"solver": BlockFrankWolfe(sampling="uniform")},
        *({name: False} for name in ("fit_intercept", "transitions") if name in has)]
    given = [(case.X, case.y, None)] + [
        (case.changed(lambda x: x + rng.normal(size=x.shape)), case.other(case.y, rng),
         rng.integers(0, 3, case.n).astype(float)) for _ in range(3)]
    for options in settings:
        X, y, weights = given.pop(0) if given else (case.X, case.y, rng.uniform(0.5, 2, case.n))
        estimator.set_params(**options).fit(X, y, weights)
        cold = clone(estimator).fit(X, y, weights)
        assert estimator.history_["pass"][0] == 0 and estimator.relative_gap_ <= case.tol
        assert_one_optimum(estimator, cold)


@pytest.mark.parametrize("second", SURROGATES)
def test_warm_start_with_another_surrogate(case, surrogate, second):
    estimator = case.fit(surrogate, warm_start=True).set_params(surrogate=second)
    estimator.fit(case.X, case.y)
    assert estimator.relative_gap_ <= case.tol
    cold, is_warm = case.fit(second), estimator.history_["pass"][0] == 0
    assert_one_optimum(estimator, cold)
    if not is_warm:
        assert_same_fit(estimator, cold)
    # marginals do not tell the scores that steps of "log" are made in
    if case.cls.__name__ == "LabelRanker" or surrogate == second:
        assert is_warm == (second != "log" or surrogate == "log")


def test_a_warm_start_that_does_not_fit_is_cold(case):
    for change in (lambda X, y: (X[1:], y[1:]), *case.cold):
        estimator, (X, y) = case.fit(warm_start=True), change(case.X, case.y)
        estimator.fit(X, y)
        assert estimator.history_["pass"][0] > 0
        assert_same_fit(estimator, case.fit(X=X, y=y))


# kernels


WITH_KERNELS = [name for name, case in CASES.items() if len(case.kernels) > 1]


def scores_of(estimator, X):
    return np.concatenate([np.ravel(part) for part in estimator.decision_function(X)])


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
@pytest.mark.parametrize("name", WITH_KERNELS)
def test_kernel_attributes(name, kernel, surrogate):
    case = CASES[name]
    rng = np.random.default_rng(0)
    X = case.changed(lambda x: x + 1e-6 * rng.normal(size=x.shape))  # no two the same
    rows = X if name in OF_ROWS else np.concatenate([x.reshape(-1, 3) for x in X])
    given = {"kernel_params": {"degree": 2, "coef0": 0.5} if kernel == "poly" else {}}
    given.update(case.by_class)
    if "fit_intercept" in case.cls().get_params():
        given["fit_intercept"] = 2.0
    if "graph" in case.cls().get_params():
        given["graph"] = "none"
    estimator = case.fit(surrogate, X=X, kernel=kernel, gamma=0.2, **given)
    assert estimator.X_fit_.shape == rows.shape and len(estimator.dual_coef_) == len(rows)
    K = pairwise_kernels(
        rows, estimator.X_fit_, metric=kernel, filter_params=True, gamma=0.2,
        **given["kernel_params"])
    scores = np.tensordot(K, estimator.dual_coef_, 1)
    if "fit_intercept" in given:
        assert_array_equal(estimator.X_fit_, X)
        assert_allclose(
            estimator.intercept_, 4 * estimator.dual_coef_.sum(axis=0), atol=1e-9)
        scores = scores + estimator.intercept_
    assert_allclose(scores_of(estimator, X), scores.ravel(), atol=1e-9)
    assert estimator.score(X, case.y) > case.least_score(0.7)


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_one_kernel_by_many_names(name, surrogate):
    """The linear kernel as weights, as a Gram matrix, as a polynomial, as a function."""
    case = CASES[name]
    options = {"tol": 1e-5 if case.is_single else case.tol / 2,
               "max_iter": 20_000}
    weights = case.fit(surrogate, **options)
    forms = [
        ({"kernel": "poly", "gamma": 1.0, "kernel_params": {"degree": 1, "coef0": 0.0}}, case.X),
        ({"kernel": lambda a, b: float(a @ b)}, case.X),
        ({"kernel": lambda a, b, scale: scale * float(a @ b), "kernel_params": {"scale": 1.0}},
         case.X)]
    if name in OF_ROWS:
        forms.append(({"kernel": "precomputed"}, case.X @ case.X.T))
        forms.append(({"kernel": lambda a, b: float(a @ b), "solver": BlockFrankWolfe(kernel_cache_size=1e-3)}, case.X))
    longest = np.sqrt(1 + max(np.square(x).sum(axis=-1).max() for x in case.X))
    # half of them: each meets one surrogate at least
    for parameters, X in forms[SURROGATES.index(surrogate) % 2 :: 2]:
        estimator = case.fit(surrogate, X=X, **options, **parameters)
        assert_one_optimum(estimator, weights)
        # weights lie within sqrt(2 gap / alpha) of the best ones
        radius = sum(np.sqrt(2 * model.duality_gap_ / 0.05) for model in (estimator, weights))
        assert_allclose(
            scores_of(estimator, X), scores_of(weights, case.X), rtol=0, atol=radius * longest)
        assert estimator.score(X, case.y) > case.least_score(0.7)


@pytest.mark.parametrize("name", OF_ROWS)
def test_gram_matrices(name, surrogate):
    case = CASES[name]
    X, y = case.X, case.y
    graph = {"graph": "none"} if "graph" in case.cls().get_params() else case.by_class
    estimator = case.fit(
        surrogate, X=X[::2] @ X[::2].T, y=y[::2], kernel="precomputed", **graph)
    assert not hasattr(estimator, "X_fit_")
    K = X[1::2] @ X[::2].T
    scores = np.tensordot(K, estimator.dual_coef_, 1) + estimator.intercept_
    assert_allclose(estimator.decision_function(K), scores, atol=1e-10)
    assert estimator.score(K, y[1::2]) > case.least_score(0.6)
    with pytest.raises(ValueError, match=f"X has {case.n} features"):
        estimator.predict(X @ X.T)
    options = {"X": X @ X.T, "kernel": "precomputed", "tol": 1e-3}
    estimator = case.fit(surrogate, alpha=0.1, warm_start=True, **options)
    # the certificate may have had its dual value from another point than its weights
    primal = estimator.primal_objective_
    estimator.set_params(tol=2e-3).fit(X @ X.T, y)
    assert estimator.n_iter_ == 0
    assert_array_equal(estimator.history_["pass"], [0])
    atol = 1e-4 if surrogate == "max_min" else 1e-9
    assert_allclose(estimator.primal_objective_, primal, atol=atol)
    estimator.set_params(tol=1e-3)
    for alpha in (0.05, 0.02, 0.5):
        estimator.set_params(alpha=alpha).fit(X @ X.T, y)
        cold = case.fit(surrogate, alpha=alpha, **options)
        assert estimator.history_["pass"][0] == 0 and estimator.relative_gap_ <= 1e-3
        assert_one_optimum(estimator, cold)


@pytest.mark.parametrize("name", OF_ROWS)
def test_gram_matrices_that_are_none(name):
    case = CASES[name]
    K, n = case.X @ case.X.T, case.n

    def changed(i, j, value):
        broken = K.copy()
        broken[i, j] += value
        return broken

    for broken, message in (
        (K[:, :9], rf"kernel='precomputed' needs a square X.*\({n}, 9\)"),
        (changed(4, 4, -1 - K[4, 4]), r"is not positive semidefinite: K\[4, 4\] = -1"),
        (changed(2, 5, 7.0), r"precomputed': X is not symmetric, X\[2, 5\] = "),
        # a diagonal that may be, and a matrix that may not
        (-K + np.diag(np.diag(K)), "'precomputed' is not positive semidefinite: .*negative"),
    ):
        with pytest.raises(ValueError, match=message):
            case.fit(X=broken, kernel="precomputed", fit_intercept=False)
    with pytest.raises(TypeError, match="[Ss]parse"):
        case.fit(X=sparse.csr_matrix(K), kernel="precomputed")


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_kernels_that_are_none(name):
    for parameters, message in (
        ({"kernel": "sigmoid", "kernel_params": {"coef0": -1.0}},
         "kernel='sigmoid' is not positive semidefinite"),
        ({"kernel": lambda a, b: -float(a @ b)}, "kernel=.*is not positive semidefinite"),
        ({"kernel": lambda a, b: np.nan}, "kernel=.*gave values that are not finite"),
        ({"kernel": lambda a, b: np.inf}, "kernel=.*gave values that are not finite"),
    ):
        for cache in [{}, {"solver": BlockFrankWolfe(kernel_cache_size=1e-3)}] if name in OF_ROWS else [{}]:
            with pytest.raises(ValueError, match=message):
                CASES[name].fit(**parameters, **cache)
