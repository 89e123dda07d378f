"""What holds for every estimator: scikit-learn's contract, and that of the solver.

scikit-learn's own checks need rows of numbers and one label each; these hold as well where an
example is a sequence, a ranking or a matching. A new estimator is a new entry of
`estimator_cases.CASES`.
"""

import copy
import doctest
import gc
import inspect
import logging
import pickle
import sys
import warnings

import numpy as np
import pytest
from comparisons import assert_same_answers, assert_same_fit, state
from estimator_cases import ASYMMETRIC, CASES, SURROGATES, take
from making import made
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from fastm4n import BlockFrankWolfe, regularization_path
from fastm4n.penalties import ElasticNet
from fastm4n.solvers.base import Options
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.choice import choose
from fastm4n.solvers.monitor import Monitor


def pytest_generate_tests(metafunc):
    """`fits`: every estimator, surrogate and kernel; `turn` is true and false for each of these."""
    if "fits" in metafunc.fixturenames:
        has_turn, found = "turn" in metafunc.fixturenames, []
        for i, (name, case) in enumerate(CASES.items()):
            for j, surrogate in enumerate(SURROGATES):
                for k, kernel in enumerate(case.kernels):
                    fit = case, {"surrogate": surrogate, **(
                        {"kernel": kernel} if len(case.kernels) > 1 else {})}
                    more = [(i + j + k) % 2 == 0] if has_turn else []
                    found.append(
                        pytest.param(fit, *more, id=f"{name}-{surrogate}-{kernel}"))
        metafunc.parametrize(["fits", "turn"] if has_turn else ["fits"], found)


class Broken(Exception):
    pass


# parameters


def test_parameters(case):
    name, parameters = case.cls.__name__, inspect.signature(case.cls).parameters
    assert [key for key, p in parameters.items() if p.kind != p.KEYWORD_ONLY] == ["surrogate"]
    estimator = case.cls()
    assert vars(estimator) == estimator.get_params()
    assert estimator.get_params() == {key: p.default for key, p in parameters.items()}
    other = "max_margin" if estimator.surrogate == "log" else "log"
    assert repr(case.cls(other, alpha=0.5)) == f"{name}(alpha=0.5, surrogate='{other}')"
    estimator = case.cls("log", alpha=0.5, cost=ASYMMETRIC, callback=print)
    assert estimator.cost is ASYMMETRIC
    other = clone(estimator)
    assert other is not estimator and repr(other) == repr(estimator)
    assert estimator.set_params(alpha=2.0) is estimator and estimator.alpha == 2.0
    with pytest.raises(ValueError, match="has no parameter 'beta'"):
        estimator.set_params(beta=1)


def test_documentation(case):
    for name in case.cls().get_params():
        assert f"\n{name} : " in inspect.getdoc(case.cls)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    tests = [test for test in finder.find(case.cls, case.cls.__name__) if test.examples]
    assert tests and all(runner.run(test).failed == 0 for test in tests)


BAD = {
    "surrogate": (["hinge", None, 1], "surrogate must be one of .*got"),
    "alpha": ([0, -1.0, np.nan, np.inf, "1", True, None], "alpha must be .*a finite number > 0, got"),
    "tol": ([-1e-3, np.nan, np.inf, "0", None], "tol must be a finite number >= 0, got"),
    "max_iter": ([0, -1, 10.0, "5", True], "max_iter must be an integer > 0, got"),
    "fit_intercept": ([None, "yes"], "fit_intercept must be True.* got"),
    "kernel": (["gaussian", None, 3], "kernel must be a callable or one of .*got"),
    "gamma": (["big", -1.0, np.nan, np.inf, [1.0]],
              "gamma must be 'scale', 'auto', None or a number >= 0"),
    "kernel_cache_size": ([0, -1, np.nan, np.inf], "kernel_cache_size must be a finite number > 0, got"),
    "decode": (["mean", None], "decode must be one of .*got"),
    "warm_start": ([1, None, "yes"], "warm_start must be True or False, got"),
    "n_jobs": ([0, "2", 1.5, True], "n_jobs must be an integer other than 0, or None, got"),
    "random_state": (["a", -1, 2**32, 0.5], "random_state must be an integer from 0 .*got"),
    "cache": ([0, -1, 1.5], "cache must be an integer > 0, got"),
    "callback": ([1, "print"], "callback must be callable or None, got"),
    "transitions": ([], "transitions must be True.*got"),
    "states": ([], "states must be one of .*got"),
    "pairwise": ([], "pairwise must be one of .*got"),
    "inference": ([], "inference must be one of .*got"),
    "grid_shape": ([], "grid_shape is for pairwise='displacement'.*got"),
    "label_features": ([], "label_features must be True or False, got"),
    "form": ([], "form must be one of .*got"),
    "graph": ([], "graph must be one of .*got"),
    "kernel_params": ([], "kernel_params must be a dict or None, got"),
    "oracle": (["lp", None], "oracle must be one of .*got"),
    "oracle_iter": ([0, -2, 2.5, "5"], "oracle_iter must be an integer > 0, got"),
    "sampling": (["random", None], "sampling must be one of .*got"),
    "step": (["newton", None, 0.5], "step must be one of .*got"),
}


@pytest.mark.parametrize("parameter", BAD)
def test_bad_parameters(case, parameter):
    if parameter not in case.cls(solver=BlockFrankWolfe()).get_params() and (
            f"solver__{parameter}" not in case.cls(solver=BlockFrankWolfe()).get_params()):
        with pytest.raises(TypeError, match=parameter):
            case.cls(**{parameter: None})
        return
    values, message = BAD[parameter]
    for value in [*values, *case.bad.get(parameter, [])]:
        with pytest.raises(ValueError, match=message) as caught:
            made(case.cls, **{parameter: value}).fit(case.X, case.y)
        assert repr(value) in str(caught.value)


def test_not_fitted(case, surrogate):
    estimator = case.cls(surrogate)
    methods = ["predict", "decision_function"]
    if surrogate == "log":
        methods.append(case.probabilities)
    calls = [lambda method=method: getattr(estimator, method)(case.X) for method in methods]
    calls += [
        lambda: estimator.score(case.X, case.y),
        lambda: estimator.predict(case.X, decode="min_risk"),
        *(lambda call=call: call(estimator, case.X) for call in case.more_calls),
    ]
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.parametrize("margin", ["max_min", "max_margin"])
def test_margins_are_no_probabilities(case, margin):
    estimator = case.fit(margin)
    assert not hasattr(estimator, case.probabilities)
    with pytest.raises(AttributeError, match=case.probabilities):
        getattr(estimator, case.probabilities)(case.X)
    assert hasattr(case.cls("log"), case.probabilities)
    with pytest.raises(ValueError, match="decode must be one of .*got 'mean'"):
        estimator.predict(case.X, decode="mean")
    if margin == "max_margin":
        with pytest.raises(ValueError, match="decode='min_risk' weighs.*'max_margin' has none"):
            estimator.predict(case.X, decode="min_risk")


# bits


def test_bits_repeat(fits, monkeypatch):
    """Whatever was fitted before, with whatever threads, and in whatever order."""
    case, parameters = fits
    first = case.fit(**parameters)
    assert_same_fit(first, case.fit(**parameters))
    again = clone(first)
    again.fit(case.smaller()[::3], take(case.y, range(0, case.n, 3)))
    assert_same_fit(first, again.fit(case.X, case.y))
    order = np.random.default_rng(0).permutation(case.n)
    assert_same_fit(first, case.fit(**case.rows(order), **parameters), order)
    monkeypatch.setattr("fastm4n.base.threads.PARALLEL_COST", 0)
    assert_same_fit(first, case.fit(n_jobs=3, **parameters))


def test_bits_repeat_under_other_parameters(case, monkeypatch):
    for parameters in (*case.bits, {"step": "fixed", "tol": 0.3}, {"sampling": "uniform"}):
        first = case.fit(**parameters)
        assert_same_fit(first, case.fit(**parameters))
        order = np.random.default_rng(0).permutation(case.n)
        assert_same_fit(first, case.fit(**case.rows(order), **parameters), order)
        with monkeypatch.context() as patch:
            patch.setattr("fastm4n.base.threads.PARALLEL_COST", 0)
            assert_same_fit(first, case.fit(n_jobs=3, **parameters))


def test_seeds(case):
    seeds = 1, 1, 2, np.random.RandomState(5), np.random.RandomState(5)
    one, same, other, state, again = (
        case.fit(random_state=seed, sampling="uniform").coef_ for seed in seeds)
    assert_array_equal(one, same)
    assert_array_equal(state, again)
    assert not np.array_equal(one, other)
    before = np.random.get_state()[1].copy()
    case.fit(random_state=3).predict(case.X)
    assert_array_equal(np.random.get_state()[1], before)


def test_a_fit_lets_go_of_its_matrices(fits):
    """Without the collector of cycles: neither a fit nor a path holds on to a solver."""
    case, parameters = fits
    estimator = case.fit(**parameters)
    gc.disable()
    # what is there by now is not looked at: clusters of other tests may hold on to solvers
    gc.freeze()
    try:
        case.fit(**parameters)
        regularization_path(estimator, case.X, case.y, method="grid", alphas=[1.0])
        assert BlockCoordinateEngine not in set(map(type, gc.get_objects()))
    finally:
        gc.unfreeze()
        gc.enable()


def test_predictions_depend_on_the_example_alone(fits, monkeypatch):
    case, parameters = fits
    estimator = case.fit(**parameters)
    together = case.answers(estimator, case.X)
    order = np.random.default_rng(0).permutation(case.n)
    # products of matrices round by their shapes
    exact = isinstance(case.X, list) and parameters.get("kernel") != "rbf"
    for rows in (order, [0], [5, 11]):
        answers = case.answers(estimator, take(case.X, rows))
        expected = {method: [values[i] for i in rows] for method, values in together.items()}
        for method, values in answers.items():
            atol = 0.0 if exact or method.startswith("predict ") or method == "predict" else 1e-9
            assert_same_answers({method: values}, {method: expected[method]}, atol)
    monkeypatch.setattr("fastm4n.base.threads.PARALLEL_COST", 0.0)
    for n_jobs in (2, 100):
        assert_same_answers(case.answers(estimator.set_params(n_jobs=n_jobs), case.X), together)


def test_inputs_are_read_only(fits, tmp_path):
    """Arrays that cannot be written to, in memory and mapped, give the same bits."""
    case, parameters = fits

    def frozen(values, name):
        if isinstance(values, list):
            return [
                frozen(each if isinstance(each, tuple) else np.asarray(each), f"{name}{i}")
                for i, each in enumerate(values)]
        if isinstance(values, tuple):
            return tuple(frozen(each, f"{name} {i}") for i, each in enumerate(values))
        np.save(tmp_path / f"{name}.npy", values)
        mapped = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
        assert not mapped.flags.writeable
        return mapped

    X, y, weights = frozen(case.X, "X"), frozen(case.y, "y"), frozen(np.ones(case.n), "weights")
    estimator, expected = case.fit(X=X, y=y, sample_weight=weights, **parameters), case.fit(
        **parameters)
    assert_same_fit(estimator, expected)
    assert_same_answers(case.answers(estimator, X), case.answers(expected, case.X))


def test_inputs_are_left_alone(fits):
    case, parameters = fits
    X, y = copy.deepcopy((case.X, case.y))
    estimator = case.fit(X=X, y=y, **parameters)
    estimator.score(X, y)
    for given, before in ((X, case.X), (y, case.y)):
        for one, other in zip(given, before, strict=True):
            assert_equal(one, other)
    # nor does a model look at what its caller goes on to change
    answers = case.answers(estimator, case.X)
    for x in X:
        case.features(x)[:] = 0
    assert_same_answers(case.answers(estimator, case.X), answers)


def solved(estimator, problem):
    """The solution of a problem, and fitted attributes."""
    options = Options(
        alpha=estimator.alpha, tol=estimator.tol, scale=1.0, max_iter=estimator.max_iter, seed=0,
        n_jobs=1, verbose=0, callback=None, solver=estimator.solver, keep_dual=True)
    solver = choose(problem, options)
    solution = solver.solve(problem, options, None, Monitor.of(options))
    return solution, problem.task.fitted(
        problem, options.alpha, solution.mu, solution.intercepts)


def test_problems_pickle(fits):
    """What another process unpickles is the same problem, before its fit and after."""
    case, parameters = fits
    X, is_max_min = case.X, parameters["surrogate"] == "max_min"
    variants = [(X, more) for more in ({}, *case.bits) if is_max_min or "oracle" not in more]
    if getattr(case.cls, "_free_intercepts", False):
        variants.append((X, {"fit_intercept": "free"}))
    if parameters.get("kernel", "linear") == "linear":
        variants.append((X, {"penalty": ElasticNet(0.3)}))
        if case.dims < 3:
            variants.append((case.changed(csr_matrix), {}))
    for X, more in variants:
        estimator = made(
            case.cls, **{"alpha": 0.05, "tol": 1e-3, "max_iter": 12, "random_state": 0,
                         **parameters, **more})
        problem = estimator._problem(X, case.y, None)
        copied = pickle.loads(pickle.dumps(problem))
        (one, fitted), (two, again) = (solved(estimator, part) for part in (problem, copied))
        assert one.n_iter > 0 and np.any(fitted["coef_" if "coef_" in fitted else "dual_coef_"])
        assert_equal(vars(one.certificate), vars(two.certificate))
        assert_equal(one.mu, two.mu)
        assert_equal(fitted, again)
        assert_equal(copied.common, problem.common)
        late = pickle.loads(pickle.dumps(problem))
        assert_equal(*(each.task.fitted(each, 0.05, one.mu) for each in (late, problem)))


def test_pickles_and_copies(fits, turn):
    (case, parameters), warm_start = fits, turn
    estimator = case.fit(warm_start=warm_start, **parameters)
    answers = case.answers(estimator, case.X)
    before = dict(vars(estimator))
    copies = pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator), copy.copy(estimator)
    assert vars(estimator) == before  # the same objects, and no less of them
    for copied in copies:
        assert_same_fit(estimator, copied)
        assert_same_answers(case.answers(copied, case.X), answers)
        assert copied.get_params() == estimator.get_params()
        if warm_start:
            assert copied.fit(case.X, case.y).n_iter_ == 0
    if hasattr(estimator, "coef_"):  # a copy has weights of its own
        copies[1].coef_[:] = 0.0
        assert np.any(estimator.coef_)
    fresh = clone(estimator)
    assert fresh.get_params() == estimator.get_params() == {**vars(fresh)}


# weights of examples


def test_weights_are_repetitions(fits):
    """To the bit, whether they leave examples out or repeat them."""
    case, parameters = fits
    times = np.random.default_rng(0).integers(0, 4, case.n)
    times[:3] = 0, 2, 1
    everywhere = np.full(case.n, 2)
    for weights in (times, everywhere):
        rows = np.repeat(np.arange(case.n), weights)
        weighted = case.fit(sample_weight=weights.astype(float), **parameters)
        repeated = case.fit(**case.rows(rows), **parameters)
        a, b = state(weighted), state(repeated)
        assert a.keys() == b.keys()
        for name in a:
            if name == "dual_coef_" and len(a[name]) == case.n:
                assert np.all(a[name][weights == 0] == 0)
                sums = np.zeros_like(a[name])
                np.add.at(sums, rows, b[name])
                assert_allclose(sums, a[name], atol=1e-12)
            elif name != "X_fit_" or len(a[name]) != case.n:
                assert_array_equal(a[name], b[name], err_msg=name)


def test_a_weight_of_zero_is_no_example(fits):
    """Whatever it holds."""
    case, parameters = fits
    kept = np.arange(case.n) % 4 != 1
    X = copy.deepcopy(case.X)
    for i in np.flatnonzero(~kept):
        case.features(X[i])[:] = 1e3
    weighted = case.fit(X=X, sample_weight=kept.astype(float), **parameters)
    without = case.fit(**case.rows(np.flatnonzero(kept)), **parameters)
    for name in ("primal_objective_", "dual_objective_", "duality_gap_", "n_iter_"):
        assert getattr(weighted, name) == getattr(without, name)
    assert_same_answers(case.answers(weighted, case.X), case.answers(without, case.X))


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 3.0, 8.0, 1e200, 1e308])
def test_the_scale_of_weights_is_nothing(case, scale):
    weights = np.random.default_rng(1).uniform(0.5, 1.0, case.n)
    one, other = (case.fit(sample_weight=s * weights) for s in (1.0, scale))
    assert max(one.relative_gap_, other.relative_gap_) <= case.tol
    assert one.dual_objective_ <= other.primal_objective_ + 1e-9
    assert other.dual_objective_ <= one.primal_objective_ + 1e-9


# how fits end


def test_a_gap_is_a_bound(fits):
    """At any number of passes: the optimum lies between what is certified."""
    case, parameters = fits
    long = case.fit(**{**parameters, "tol": case.tol / 10, "max_iter": 10_000})
    assert long.relative_gap_ <= case.tol / 10
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for passes in (1, 2, 5, 20):
            short = case.fit(**{**parameters, "tol": 0, "max_iter": passes})
            assert short.primal_objective_ >= long.dual_objective_ - 1e-12
            assert short.dual_objective_ <= long.primal_objective_ + 1e-12
            gap = short.primal_objective_ - short.dual_objective_
            assert_allclose(short.duality_gap_, gap, rtol=0, atol=1e-12)
            assert short.duality_gap_ >= short.primal_objective_ - long.primal_objective_ - 1e-12


def test_convergence_warning(fits):
    case, parameters = fits
    with pytest.warns(ConvergenceWarning) as caught:
        estimator = case.fit(**{**parameters, "max_iter": 2, "tol": 1e-9})
    # it points to the line that calls fit
    assert len(caught) == 1 and caught[0].filename == inspect.getfile(type(case))
    message = str(caught[0].message)
    assert f"gap is {estimator.relative_gap_:.3g} of" in message and "above tol=1e-09" in message
    # a Newton step of thresholds has two passes, and does not begin where one is left
    assert (1 if case.by_class else 2) <= estimator.n_iter_ <= 2
    assert estimator.duality_gap_ > 1e-9


def test_silence(fits, capfd):
    case, parameters = fits
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.fit(**parameters).predict(case.X)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_verbose(case, with_tqdm, monkeypatch, capfd, caplog):
    if with_tqdm:
        pytest.importorskip("tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    for verbose in (1, 2):
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="fastm4n"):
            estimator = case.fit(verbose=verbose)
        messages = [record.getMessage() for record in caplog.records if record.name == "fastm4n"]
        assert messages[-1].startswith(f"pass {estimator.n_iter_}: primal ")
        assert messages[-1].endswith(f"gap {estimator.duality_gap_:.3e}")
        assert_same_fit(estimator, case.fit())
    captured = capfd.readouterr()
    assert captured.out == "" and ("gap " in captured.err) == with_tqdm
    assert ("install tqdm to see a progress bar" in messages) != with_tqdm


def test_the_callback_ends_the_fit(fits):
    case, parameters = fits
    rows = []

    def callback(row):
        rows.append(dict(row))
        return len(rows) == 3

    with pytest.warns(ConvergenceWarning, match="above tol=0. The callback has ended the fit"):
        estimator = case.fit(**{**parameters, "tol": 0, "callback": callback})
    assert len(rows) == 3 == len(estimator.history_["pass"])
    assert estimator.n_iter_ == rows[-1]["pass"] and estimator.duality_gap_ == rows[-1]["gap"]
    for key, column in estimator.history_.items():
        assert_array_equal(column, [row[key] for row in rows])


def test_a_fit_that_fails_leaves_the_last(fits):
    case, parameters = fits

    def fail(row):
        raise Broken

    estimator = case.fit(**parameters)
    before, answers = dict(vars(estimator)), case.answers(estimator, case.X)
    estimator.set_params(callback=fail)
    with pytest.raises(Broken):
        estimator.fit(case.smaller(), case.y)
    estimator.set_params(callback=None)
    calls = [
        (case.X, take(case.y, range(case.n - 1))), (case.smaller(), take(case.y, range(3))),
        (case.X, case.y, np.zeros(case.n)), (take(case.X, []), take(case.y, [])),
    ]
    if case.bad_outputs is not None:
        calls.append((case.X, case.bad_outputs))
    for call in calls:
        with pytest.raises(ValueError):
            estimator.fit(*call)
    with pytest.raises(ValueError):
        estimator.set_params(alpha=-1).fit(case.X, case.y)
    estimator.set_params(alpha=before["alpha"])
    assert vars(estimator).keys() == before.keys()
    for name, value in before.items():
        assert vars(estimator)[name] is value or name == "n_features_in_", name
    assert estimator.n_features_in_ == before["n_features_in_"]
    assert_same_answers(case.answers(estimator, case.X), answers)
    # and a first one leaves no trace
    estimator = case.cls(callback=fail, **parameters)
    with pytest.raises(Broken):
        estimator.fit(case.X, case.y)
    assert vars(estimator) == estimator.get_params()
    with pytest.raises(NotFittedError):
        estimator.predict(case.X)


# warm starts


def test_warm_start(fits, turn):
    (case, parameters), accelerate = fits, turn
    parameters = {**parameters, "accelerate": accelerate}
    estimator = case.fit(**{**parameters, "alpha": 0.2, "warm_start": True})
    assert estimator.n_iter_ > 0
    dual, gap = estimator.dual_objective_, estimator.duality_gap_
    estimator.fit(case.X, case.y)
    assert estimator.n_iter_ == 0
    assert_array_equal(estimator.history_["pass"], [0])
    assert_allclose(estimator.dual_objective_, dual, atol=1e-9)
    # bounds of max-min oracles are as exact as the gap needs, and start from the last ones
    rtol = 0.02 if parameters["surrogate"] == "max_min" else 1e-9
    assert_allclose(estimator.duality_gap_, gap, rtol=rtol, atol=1e-9)
    for alpha in (0.1, 0.05, 0.5):
        estimator.set_params(alpha=alpha).fit(case.X, case.y)
        cold = case.fit(**{**parameters, "alpha": alpha})
        assert estimator.history_["pass"][0] == 0 and estimator.relative_gap_ <= case.tol
        assert estimator.dual_objective_ <= cold.primal_objective_ + 1e-12
        assert cold.dual_objective_ <= estimator.primal_objective_ + 1e-12
        assert accelerate or np.all(np.diff(estimator.history_["dual"]) >= -1e-9)
    # to a smaller tolerance
    estimator.set_params(tol=case.tol / 2).fit(case.X, case.y)
    assert estimator.history_["pass"][0] == 0 and estimator.relative_gap_ <= case.tol / 2


def test_a_smaller_alpha_starts_where_the_last_ended(case, surrogate):
    estimator = case.fit(surrogate, alpha=0.1, warm_start=True)
    coef, gaps = estimator.coef_, []
    estimator.set_params(
        alpha=0.09, tol=1e-9, callback=lambda row: gaps.append(row["gap"]) or True)
    zero = {"alpha": 1e12, "max_iter": 1, "tol": 0}
    if "fit_intercept" in estimator.get_params():
        zero["fit_intercept"] = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(case.X, case.y)
        loss = case.fit(surrogate, **zero).primal_objective_
    assert_allclose(estimator.coef_, coef, atol=1e-9)
    # no more than the tolerance of the first and a tenth of the loss at w = 0
    assert gaps[0] <= case.tol + 0.1 * loss + 1e-6


def test_without_warm_start_nothing_is_kept(fits):
    case, parameters = fits
    cold, warm = case.fit(**parameters), case.fit(warm_start=True, **parameters)
    assert_same_fit(warm, cold)
    assert len(pickle.dumps(cold)) < len(pickle.dumps(warm))
    warm.set_params(warm_start=False).fit(case.X, case.y)
    assert_same_fit(warm, cold)
    assert len(pickle.dumps(warm)) == pytest.approx(len(pickle.dumps(cold)), abs=200)


def test_interrupts_keep_what_was_certified(fits, turn):
    (case, parameters), warm_start = fits, turn
    rows = []

    def interrupt(row):
        rows.append(row)
        if len(rows) == 2:
            raise KeyboardInterrupt

    estimator = case.cls(
        **parameters, warm_start=warm_start, tol=0, alpha=0.05, random_state=0,
        callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(case.X, case.y)
    assert estimator.interrupted_
    assert estimator.duality_gap_ == rows[-1]["gap"] and estimator.n_iter_ == rows[-1]["pass"]
    assert estimator.score(case.X, case.y) > case.least_score(0.5)
    estimator.set_params(callback=None, tol=case.tol).fit(case.X, case.y)
    assert not estimator.interrupted_ and estimator.relative_gap_ <= case.tol
    if not warm_start:
        return
    assert estimator.history_["pass"][0] == 0
    assert estimator.history_["dual"][-1] >= rows[-1]["dual"] - 1e-9
