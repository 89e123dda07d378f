"""What Osokin et al. (2016, section 5.1) find of sampling, steps and the cache, on 40 words.

M3N on the first 40 words of OCR-small at alpha = 1 / n and 10 / n, without acceleration; medians
over seeds of passes and of oracle calls, never of seconds.  Calls are those of visits, and one a
word for each refresh of all gaps but the last, where the method goes by them: under gap sampling
and with a cache.
"""

import warnings
from functools import lru_cache

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from fastm4n import BlockFrankWolfe, Sequences, SequenceTagger

N = 40
SEEDS = range(3)
TIMES = (1, 10)  # alpha n
STEPS = ("line_search", "pairwise")
SAMPLINGS = ("uniform", "gap")
CACHES = (None, 50)


@pytest.fixture(scope="module")
def fits(data_folder):
    """fits(times, tol, step, sampling, cache, max_iter) -> one row a seed: passes, calls, gap."""
    with np.load(data_folder / "ocr.npz") as data:
        rows = np.flatnonzero(data["split"] == 0)[:N]
        X = Sequences(data["X"].astype(float), data["offsets"])[rows]
        y = Sequences(data["y"], data["offsets"])[rows]

    def fit(times, tol, step, sampling, cache, max_iter, seed):
        tagger = SequenceTagger(
            "max_margin", alpha=times / N, cost_scale="mean", tol=tol, max_iter=max_iter,
            random_state=seed,
            solver=BlockFrankWolfe(step=step, sampling=sampling, cache=cache, accelerate=False))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tagger.fit(X, y)
        n_calls = tagger.history_["oracle_calls"][-1]
        if sampling == "gap" or cache:
            n_calls += N * (len(tagger.history_["gap"]) - 1)
        return tagger.n_iter_, n_calls, tagger.duality_gap_

    @lru_cache(maxsize=None)
    def all_fits(times, tol, step, sampling="gap", cache=None, max_iter=5000):
        return np.array([
            fit(times, tol, step, sampling, cache, max_iter, seed) for seed in SEEDS])

    return all_fits


def medians(rows, tol):
    """Median passes and calls to a gap that all runs got to."""
    assert np.all(rows[:, 2] <= tol)
    return np.median(rows[:, :2], axis=0)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("tol", [0.01, 0.001])
def test_gap_sampling_takes_fewer_passes_to_small_gaps(fits, tol, cache, times):
    uniform, by_gap = (
        medians(fits(times, tol, "pairwise", sampling, cache), tol) for sampling in SAMPLINGS)
    assert by_gap[0] < uniform[0]
    if tol == 0.001:
        # its refreshes are paid for
        assert by_gap[1] < uniform[1]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("step", STEPS)
def test_gap_sampling_takes_fewer_passes_to_a_large_gap(fits, step, times):
    uniform, by_gap = (medians(fits(times, 0.1, step, sampling), 0.1) for sampling in SAMPLINGS)
    assert by_gap[0] < uniform[0]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("step", STEPS)
def test_a_cache_saves_oracle_calls(fits, step, sampling, times):
    without, cached = (medians(fits(times, 0.01, step, sampling, cache), 0.01) for cache in CACHES)
    assert cached[1] < without[1]
    if step == "pairwise":
        # a visit that asks for less gains less
        assert cached[0] > without[0]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_pairwise_steps_with_a_cache_save_most_calls_at_small_gaps(fits, sampling, times):
    without, cached = (
        medians(fits(times, 0.001, "pairwise", sampling, cache), 0.001) for cache in CACHES)
    assert 2 * cached[1] < without[1]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_pairwise_steps_are_first_at_small_gaps(fits, sampling, cache, times):
    pairwise = fits(times, 0.001, "pairwise", sampling, cache)
    _, calls = medians(pairwise, 0.001)
    frank_wolfe = fits(
        times, 0.001, "line_search", sampling, cache, max_iter=int(pairwise[:, 0].max()))
    # after no fewer passes and calls
    assert np.median(frank_wolfe[:, 1]) >= calls
    assert np.all(frank_wolfe[:, 2] > 0.0015)
