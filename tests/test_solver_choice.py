"""solver="auto", and the parameters of the solver's policies in every estimator."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fastm4n import (
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    Sequences,
)
from fastm4n.solvers import policy
from fastm4n.solvers.policy import AutoPolicy

ESTIMATORS = (MulticlassClassifier, OrdinalClassifier, SequenceTagger, LabelRanker, Matcher)
POLICIES = {"line_search", "pairwise", "pairwise+cache"}


def data_of(cls, n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    if cls is SequenceTagger:
        lengths = [5] * (n // 5)
        y = np.argmax(X[:, :3] + 0.5 * rng.normal(size=(n, 3)), axis=1)
        return Sequences.from_lengths(X, lengths), Sequences.from_lengths(y, lengths)
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
        ({"solver": "best"}, r"solver must be one of \('manual', 'auto'\), got 'best'"),
        ({"step": "pair"}, "step must be one of .*'pairwise', 'away'.*, got 'pair'"),
        ({"accelerate": 1}, "accelerate must be True or False, got 1"),
        ({"step": "fixed", "cache": 5}, "step='fixed' keeps no atoms to be cached"),
        ({"surrogate": "log", "cache": 5}, "cache is about atoms .* surrogate='log'"),
        ({"surrogate": "log", "step": "pairwise"}, "step='pairwise' is about atoms"),
        ({"surrogate": "log", "step": "away"}, "step='away' is about atoms"),
    ],
)
def test_bad_parameters(cls, parameters, message):
    with pytest.raises(ValueError, match=message):
        cls(**parameters).fit(*data_of(cls))


@pytest.mark.parametrize("cls", ESTIMATORS)
@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
def test_all_policies_come_to_the_same_optimum(cls, surrogate):
    X, y = data_of(cls)
    common = {"tol": 1e-4, "max_iter": 20000, "random_state": 0, "alpha": 0.05}
    fits = [
        cls(surrogate, **{**common, **options}).fit(X, y)
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
        assert fit.duality_gap_ <= fit.tol
        assert fit.primal_objective_ >= best - 1e-12
        assert fit.primal_objective_ - best <= fit.duality_gap_ + 1e-12
        assert_allclose(
            fit.primal_objective_ - fit.dual_objective_, fit.duality_gap_, atol=1e-9)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_the_cache_saves_oracle_calls(cls):
    X, y = data_of(cls, n=60, seed=1)
    options = {"alpha": 0.01, "tol": 1e-3, "step": "pairwise", "random_state": 0, "max_iter": 5000,
               "accelerate": False}
    without = cls("max_margin", **options).fit(X, y).history_
    cached = cls("max_margin", cache=20, **options).fit(X, y).history_
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
    assert fit.duality_gap_ <= 1e-3
    chosen = set(fit.history_["policy"].tolist())
    assert chosen <= (POLICIES if surrogate != "log" else {"line_search"})


class Clock:
    """Seconds that a test decides on, in the place of the thread's."""

    def __init__(self, costs):
        self.costs, self.now = costs, 0.0

    def __call__(self):
        return self.now


class Engine:
    """What a policy asks of an engine."""

    def __init__(self):
        self.n_visits, self.sets, self.calls = 0, None, []
        layout = type("Layout", (), {"max_parts": 5})
        self.surrogate = type("Surrogate", (), {
            "has_natural_step": False, "has_line_search": False,
            "outputs": type("Outputs", (), {"layout": layout})})

    def use_active_sets(self, limit):
        self.sets = limit
        self.calls.append("use")

    def drop_active_sets(self):
        self.sets = None
        self.calls.append("drop")

    def set_cache(self, limit, cache_F, cache_nu):
        self.calls.append("cache")

    def drop_cache(self, limit):
        self.calls.append("no cache")


def followed(monkeypatch, costs, rates, n_passes):
    """Policies of the passes where a pass of a policy takes costs and lowers log gap by rates."""
    clock, engine = Clock(costs), Engine()
    monkeypatch.setattr(policy.time, "thread_time", clock)
    auto = AutoPolicy(engine, 1000, 0.25, 0.01)
    names, log_gap = [], 0.0
    for n in range(1, n_passes + 1):
        name = "cached" if auto.cached_only else auto.name
        names.append(name)
        auto.begin()
        clock.now += costs[name]
        engine.n_visits += 100
        auto.end()
        log_gap -= rates[name]
        if n % 10 == 0:
            auto.told(np.exp(log_gap))
    return names


RATES = {"line_search": 0.1, "pairwise": 0.1, "pairwise+cache": 0.05, "cached": 0.05}


@pytest.mark.parametrize(
    "costs, rates, last",
    [
        # pairwise steps are no dearer: they stay from the eighth pass on
        ({"pairwise": 1.1, "cached": 0.9}, {}, "pairwise"),
        # they are dearer and no better
        ({"pairwise": 2.0, "cached": 1.5}, {}, "line_search"),
        # they are dearer, and so much better that they stay after their trial
        ({"pairwise": 2.0, "cached": 1.5}, {"pairwise": 0.3}, "pairwise"),
        # the oracle is dear, and the cache gets far without it
        ({"pairwise": 1.1, "pairwise+cache": 0.3, "cached": 0.2}, {}, "pairwise+cache"),
        # the cache does not get far
        ({"pairwise": 1.1, "pairwise+cache": 0.3, "cached": 0.2}, {"pairwise+cache": 0.01},
         "pairwise"),
    ],
)
def test_what_auto_chooses(monkeypatch, costs, rates, last):
    costs = {"line_search": 1.0, "pairwise+cache": 1.0, **costs}
    names = followed(monkeypatch, costs, {**RATES, **rates}, 110)
    assert names[:9] == ["line_search"] * 7 + ["pairwise", "cached"]
    assert set(names[80:110]) == {last}


def test_auto_leaves_short_fits_alone():
    X, y = data_of(MulticlassClassifier)
    short = {"alpha": 1.0, "tol": 1e-3, "random_state": 0}
    auto = MulticlassClassifier(solver="auto", **short).fit(X, y)
    assert auto.n_iter_ < policy.FIRST_PAIRWISE
    assert_allclose(auto.coef_, MulticlassClassifier(**short).fit(X, y).coef_, rtol=0, atol=0)
