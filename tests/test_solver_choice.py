"""The choice of the solver: "auto", `BlockFrankWolfe` and its parameters, and the scale of tol."""

import inspect
import pickle
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from fastm4n import (
    BlockFrankWolfe,
    GraphTagger,
    LabelNewton,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    Sequences,
    SequenceTagger,
)
from fastm4n.cli import _models
from fastm4n.solvers.blocks import schedule
from fastm4n.solvers.blocks.schedule import AutoPolicy

ESTIMATORS = (
    MulticlassClassifier, OrdinalClassifier, SequenceTagger, GraphTagger, LabelRanker, Matcher)
POLICIES = {"line_search", "pairwise", "pairwise+cache"}


def data_of(cls, n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    if cls is SequenceTagger:
        lengths = [5] * (n // 5)
        y = np.argmax(X[:, :3] + 0.5 * rng.normal(size=(n, 3)), axis=1)
        return Sequences.from_lengths(X, lengths), Sequences.from_lengths(y, lengths)
    if cls is GraphTagger:
        star = [(0, 1), (2, 0), (0, 3), (4, 0)]
        y = np.argmax(X[:, :3] + 0.5 * rng.normal(size=(n, 3)), axis=1)
        return [(x, star) for x in X.reshape(-1, 5, 4)], list(y.reshape(-1, 5))
    if cls is LabelRanker:
        return X, np.argsort(np.argsort(X[:, :3] + 0.5 * rng.normal(size=(n, 3))))
    if cls is Matcher:
        y = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)
        near = (y[:, :, None] == np.arange(3))[..., None]
        return near + rng.normal(size=(n, 3, 3, 2)), y
    return X, np.argmax(X[:, :3] + 0.5 * rng.normal(size=(n, 3)), axis=1)


# the parameters


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"cache": 0}, "cache must be an integer > 0, got 0"),
        ({"cache": 2.5}, "cache must be an integer > 0, got 2.5"),
        ({"cache": "all"}, "cache must be an integer > 0, got 'all'"),
        ({"cache_F": 0}, "cache_F must be a finite number > 0, got 0"),
        ({"cache_F": 1.5}, r"cache_F must lie in \(0, 1\], got 1.5"),
        ({"cache_F": np.nan}, "cache_F must be a finite number > 0, got nan"),
        ({"cache_nu": -0.1}, "cache_nu must be a finite number > 0, got -0.1"),
        ({"cache_nu": 2}, r"cache_nu must lie in \(0, 1\], got 2"),
        ({"solver": "best"}, r"solver must be 'auto', Block.* .*, got 'best'"),
        ({"solver": None}, r"solver must be 'auto', Block.* .*, got None"),
        ({"solver": BlockFrankWolfe}, "solver must be .*, got BlockFrankWolfe, the class"),
        ({"solver": {"step": "away"}}, "solver must be 'auto', .*, got {'step': 'away'}"),
        ({"oracle": "column_generation"}, r"oracle must be one of \('exact', 'mirror_prox'\)"),
        ({"oracle_iter": 0, "oracle": "mirror_prox"}, "oracle_iter must be an integer > 0, got 0"),
        ({"sampling": "all"}, "sampling must be one of .*'permutation'.*, got 'all'"),
        ({"surrogate": "log", "oracle": "mirror_prox"}, "needs surrogate='max_min', got surrogate='log'"),
        ({"step": "pair"}, "step must be one of .*'pairwise', 'away'.*, got 'pair'"),
        ({"accelerate": 1}, "accelerate must be True or False, got 1"),
        ({"step": "fixed", "cache": 5}, "step='fixed' has no atoms to cache"),
        ({"surrogate": "log", "cache": 5}, "cache=5 needs atoms, and surrogate='log'"),
        ({"surrogate": "log", "step": "pairwise"}, "step='pairwise' needs atoms"),
        ({"surrogate": "log", "step": "away"}, "step='away' needs atoms"),
    ],
)
def test_bad_parameters(cls, parameters, message):
    with pytest.raises(ValueError, match=message):
        made(cls, **parameters).fit(*data_of(cls))


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
def test_all_policies_come_to_the_same_optimum(cls, surrogate):
    X, y = data_of(cls)
    common = {"tol": 1e-4, "max_iter": 20000, "random_state": 0, "alpha": 0.05}
    if cls is OrdinalClassifier:
        common["fit_intercept"] = True
    fits = [
        made(cls, surrogate, **{**common, **options}).fit(X, y)
        for options in (
            {"tol": 1e-3}, {"accelerate": False, "tol": 1e-2}, {"step": "pairwise"},
            {"step": "away"},
            {"step": "pairwise", "cache": 5},
            {"cache": 3, "cache_F": 1.0, "cache_nu": 1.0, "tol": 1e-2},
            {"step": "pairwise", "cache": 1, "sampling": "uniform", "tol": 1e-2},
            {"solver": "auto", "tol": 1e-3},
        )
    ]
    best = max(fit.dual_objective_ for fit in fits)
    for fit in fits:
        assert fit.relative_gap_ <= fit.tol_
        assert fit.primal_objective_ >= best - 1e-12
        assert fit.primal_objective_ - best <= fit.duality_gap_ + 1e-12
        assert_allclose(
            fit.primal_objective_ - fit.dual_objective_, fit.duality_gap_, atol=1e-9)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_the_cache_saves_oracle_calls(cls):
    X, y = data_of(cls, n=60, seed=1)
    options = {"alpha": 0.01, "tol": 1e-3, "step": "pairwise", "random_state": 0, "max_iter": 5000,
               "accelerate": False}
    without = made(cls, "max_margin", **options).fit(X, y).history_
    cached = made(cls, "max_margin", cache=20, **options).fit(X, y).history_
    assert not without["cache_hits"].any()
    assert set(without["policy"]) == {"pairwise"} and set(cached["policy"]) == {"pairwise+cache"}
    assert cached["oracle_calls"][-1] < without["oracle_calls"][-1]
    assert cached["cache_hits"][-1] > 0


# solver="auto"


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_auto(cls, surrogate):
    X, y = data_of(cls)
    # whatever it chooses, the gap is certified
    fit = cls(surrogate, solver="auto", alpha=0.01, tol=1e-3, max_iter=20000, random_state=0)
    fit.fit(X, y)
    assert fit.relative_gap_ <= 1e-3
    chosen = set(fit.history_["policy"].tolist())
    if cls in (MulticlassClassifier, OrdinalClassifier) and surrogate == "log":
        assert chosen == {"quasi_newton"}
    else:
        newton = {"semismooth"} if surrogate == "max_margin" else set()
        assert chosen <= (POLICIES | newton if surrogate != "log" else {"line_search"})


class Engine:
    """What a policy asks of an engine: n blocks, whose visits and oracle calls cost so much."""

    def __init__(self, visit_cost, oracle_cost):
        self.n_visits, self.oracle_calls, self.sets, self.cached = 0, 0, None, False
        self.features = SimpleNamespace(visit_cost=visit_cost)
        layout = SimpleNamespace(max_parts=5, max_size=25)
        self.surrogate = SimpleNamespace(
            is_smooth=False, has_labellings=True, has_block_step=False,
            oracle_cost=oracle_cost, outputs=SimpleNamespace(layout=layout))

    def use_active_sets(self, limit):
        self.sets = limit

    def drop_active_sets(self):
        self.sets, self.cached = None, False

    def set_cache(self, limit, cache_F, cache_nu):
        self.cached = True

    def drop_cache(self, limit):
        self.cached = False


def followed(oracle_cost, rates, has_labellings, n_passes=100, max_parts=5):
    """Policies of the passes, and whether atoms were held.

    A pass of line searches lowers the logarithm of the gap like 1 / n^1.5, others by rates[policy].
    """
    engine = Engine(1000.0, oracle_cost)
    engine.surrogate.has_labellings = has_labellings
    engine.surrogate.outputs.layout.max_parts = max_parts
    auto = AutoPolicy(engine, 1000, 0.25, 0.01)
    names, held, log_gap = [], [], 0.0
    for n in range(1, n_passes + 1):
        auto.begin()
        names.append(auto.name)
        held.append(engine.sets is not None)
        assert engine.cached == auto.name.endswith("cache")
        engine.n_visits += 100
        engine.oracle_calls += 20 if engine.cached else 100
        auto.end()
        log_gap -= rates[auto.name] if auto.name in rates else 1.5 * np.log1p(1 / n)
        if n % 10 == 0:
            auto.told(np.exp(log_gap))
    return names, held


@pytest.mark.parametrize(
    "oracle_cost, rate, last",
    [
        # oracles are dear, and a cache gets further for the work
        (10000.0, 0.02, "pairwise+cache"),
        # they cost less than atoms, but gaps fall faster than those of line searches would
        (1.0, 0.05, "pairwise+cache"),
        (1.0, 0.01, "line_search"),
        # a cache that gets nowhere
        (10000.0, 0.001, "line_search"),
    ],
)
def test_auto_begins_with_line_searches_where_atoms_are_vectors(oracle_cost, rate, last):
    names, held = followed(oracle_cost, {"pairwise+cache": rate}, has_labellings=False)
    first = schedule.FIRST_TRIAL
    assert set(names[:first]) == {"line_search"} and names[first] == "pairwise+cache"
    assert names[-1] == last
    assert held == [name != "line_search" for name in names]


@pytest.mark.parametrize(
    "oracle_cost, rates, last",
    [
        # a pass does as much with or without a cache, and oracles are dear, or cheap
        (10000.0, (0.05, 0.05), "pairwise+cache"),
        (1.0, (0.05, 0.06), "pairwise"),
        # a cache that gets nowhere
        (10000.0, (0.001, 0.05), "pairwise"),
    ],
)
def test_auto_begins_with_a_cache_where_atoms_are_labellings(oracle_cost, rates, last):
    names, held = followed(
        oracle_cost, dict(zip(("pairwise+cache", "pairwise"), rates, strict=True)), True)
    first = schedule.FIRST_TRIAL
    assert set(names[:first]) == {"pairwise+cache"} and names[first] == "pairwise"
    assert names[-1] == last and all(held)


@pytest.mark.parametrize("rate", [0.1, 0.001])
def test_auto_has_one_alternative_for_single_labels(rate):
    names, held = followed(1.0, {"pairwise": rate}, True, n_passes=800, max_parts=1)
    first = schedule.FIRST_SIMPLE_TRIAL
    assert set(names[:first]) == {"line_search"} and names[first] == "pairwise"
    assert set(names[-300:]) == {"pairwise" if rate == 0.1 else "line_search"}
    assert held == [name != "line_search" for name in names]


@pytest.mark.parametrize(("surrogate", "cost", "names"), [
    ("log", np.inf, {"line_search"}), ("log", 0.0, {"quasi_newton"}),
    ("max_margin", 0.0, {"newton"})])
def test_auto_takes_the_cheapest_that_does_not_refuse(surrogate, cost, names, monkeypatch):
    X, y = data_of(MulticlassClassifier)
    monkeypatch.setattr(LabelNewton, "cost", lambda self, problem, options: cost)
    fit = MulticlassClassifier(surrogate, alpha=0.1, random_state=0).fit(X, y)
    assert set(fit.history_["policy"]) == names
    # its refusal is asked first
    monkeypatch.setattr(LabelNewton, "refusal", lambda self, problem: "no")
    fit = MulticlassClassifier(surrogate, alpha=0.1, random_state=0).fit(X, y)
    assert "line_search" in fit.history_["policy"]


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_auto_is_the_same_each_time(cls):
    X, y = data_of(cls, n=40, seed=3)
    options = {"alpha": 1e-3, "tol": 1e-7, "max_iter": 150, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (cls("max_min", **options).fit(X, y) for _ in range(2))
    for key in ("pass", "primal", "dual", "oracle_calls", "policy"):
        assert_array_equal(one.history_[key], other.history_[key])
    # classes make steps of one kind
    has_choice = cls not in (MulticlassClassifier, OrdinalClassifier)
    assert (len(set(one.history_["policy"])) > 1) == has_choice


def test_no_clock_is_read():
    assert "time" not in vars(schedule)


def test_auto_leaves_short_fits_alone():
    X, y = data_of(MulticlassClassifier)
    short = {"alpha": 1.0, "tol": 1e-3, "random_state": 0}
    auto = MulticlassClassifier("max_min", **short).fit(X, y)
    assert auto.solver == "auto" and auto.n_iter_ < schedule.FIRST_TRIAL
    plain = MulticlassClassifier("max_min", solver=BlockFrankWolfe(), **short).fit(X, y)
    assert_allclose(auto.coef_, plain.coef_, rtol=0, atol=0)


# the solver as an object


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_nested_parameters(cls):
    model = cls("max_min", solver=BlockFrankWolfe(step="pairwise"), alpha=0.3)
    assert model.get_params()["solver__step"] == "pairwise"
    twin = clone(model)
    assert twin.solver is not model.solver and twin.solver.get_params() == model.solver.get_params()
    assert repr(twin) == repr(model) and "BlockFrankWolfe(step='pairwise')" in repr(model)
    model.set_params(solver__cache=7, solver__sampling="uniform")
    assert (model.solver.cache, model.solver.sampling) == (7, "uniform")
    assert twin.solver.cache is None
    again = pickle.loads(pickle.dumps(model))
    assert again.get_params()["solver__cache"] == 7
    X, y = data_of(cls)
    fitted = model.set_params(tol=0.05, max_iter=2000).fit(X, y)
    assert set(fitted.history_["policy"]) == {"pairwise+cache"}
    model.set_params(solver="auto")
    assert "solver__cache" not in model.get_params()
    model.set_params(solver=BlockFrankWolfe(), solver__step="away")  # both at once
    assert model.solver.step == "away"


def test_a_grid_search_over_the_solver():
    X, y = data_of(MulticlassClassifier, n=60)
    model = MulticlassClassifier("max_min", solver=BlockFrankWolfe(), random_state=0)
    grid = {"solver__step": ["line_search", "pairwise", "exact"], "alpha": [0.1, 0.01]}
    search = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert len(search.cv_results_["params"]) == 6
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert isinstance(search.best_estimator_.solver, BlockFrankWolfe)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_parameters_that_do_not_exist(cls):
    name = cls.__name__
    for parameter, message in [
        ("C", rf"{name} has no parameter 'C': regularisation is alpha = 1 / \(C n\)"),
        ("loss", f"{name} has no parameter 'loss': what a mistake costs is `cost`"),
        ("alhpa", f"{name} has no parameter 'alhpa'; did you mean 'alpha'?"),
        ("step", rf"{name} has no parameter 'step': .* solver=BlockFrankWolfe\(step="),
        ("qqq", f"{name} has no parameter 'qqq'; it has surrogate, alpha, cost"),
    ]:
        with pytest.raises(TypeError, match=message):
            cls(**{parameter: 1})
        with pytest.raises(ValueError, match=message):
            cls().set_params(**{parameter: 1})
    with pytest.raises(ValueError, match="no parameter 'solver__step': solver is 'auto'"):
        cls().set_params(solver__step="away")
    with pytest.raises(ValueError, match=f"no parameter 'alpha__step': alpha is {cls().alpha!r}"):
        cls().set_params(alpha__step="away")
    with pytest.raises(ValueError, match="BlockFrankWolfe has no parameter 'stepp'; did you mean"):
        cls(solver=BlockFrankWolfe()).set_params(solver__stepp="away")
    with pytest.raises(TypeError, match="BlockFrankWolfe has no parameter 'alpha'; it has step"):
        BlockFrankWolfe(alpha=1)


@pytest.mark.parametrize("cls", [*ESTIMATORS, BlockFrankWolfe])
def test_few_parameters_and_whole_docstrings(cls):
    names = cls._get_param_names()
    assert len(names) <= 26
    assert list(inspect.signature(cls).parameters) == list(
        inspect.signature(cls.__init__).parameters)[1:]
    # every parameter has its line, and no part is left to be filled in
    for name in names:
        assert re.search(rf"^{name} : ", inspect.getdoc(cls), re.MULTILINE), name
    for method in (cls, cls.fit) if hasattr(cls, "fit") else (cls,):
        assert not re.search(r"^ *\[\w+\]$|{{|}}", method.__doc__, re.MULTILINE)
    if cls is not BlockFrankWolfe:
        assert cls._task in _models.ESTIMATORS
        fitted = cls(tol=0.1).fit(*data_of(cls))
        for name in cls._fitted_arrays:
            assert isinstance(getattr(fitted, name), np.ndarray), name
        assert not hasattr(cls(), cls._fitted_marker)
        assert hasattr(fitted, cls._fitted_marker)


# the scale of tol


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_tol_is_relative_to_the_objective_at_zero(cls, surrogate):
    X, y = data_of(cls)
    fit = cls(surrogate, tol=0.05, random_state=0, alpha=0.05).fit(X, y)
    assert fit.relative_gap_ <= 0.05
    # under an enormous alpha w is zero, and the objective is the one there
    still = cls(surrogate, tol=0.05, random_state=0, alpha=1e9).fit(X, y)
    scale = fit.duality_gap_ / fit.relative_gap_
    assert_allclose(still.primal_objective_, scale, rtol=1e-3)
    if surrogate == "max_margin" and cls not in (OrdinalClassifier, LabelRanker):
        assert_allclose(scale, np.mean([np.size(labels) for labels in y]), rtol=1e-12)
    # costs in other units change nothing
    if surrogate == "max_margin" and cls is not Matcher:
        size = fit.cost_matrix_.shape[0]
        base = 1.0 - np.eye(size)
        one, other = (
            cls(surrogate, cost=unit * base, tol=0.05, random_state=0, alpha=0.05 / unit,
                solver=BlockFrankWolfe(accelerate=False)).fit(X, y)
            for unit in (1.0, 1024.0))
        assert one.n_iter_ == other.n_iter_
        assert_allclose(one.relative_gap_, other.relative_gap_, rtol=1e-6)


def test_no_costs_at_all():
    X, y = data_of(MulticlassClassifier)
    fit = MulticlassClassifier("max_margin", cost=np.zeros((3, 3))).fit(X, y)
    assert fit.duality_gap_ == fit.relative_gap_ == 0.0 and not fit.coef_.any()


def test_the_warning_speaks_of_the_relative_gap():
    X, y = data_of(SequenceTagger)
    with pytest.warns(ConvergenceWarning, match="of the objective at zero weights") as caught:
        fit = SequenceTagger("log", max_iter=1, tol=1e-8, random_state=0).fit(X, y)
    assert f"{fit.relative_gap_:.3g} of the objective" in str(caught[0].message)
    assert fit.relative_gap_ < 0.9 * fit.duality_gap_
