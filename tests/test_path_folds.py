"""Cross-validated paths in threads that share the data."""

import threading
import time
import warnings

import numpy as np
import pytest
from joblib import effective_n_jobs
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    RegularizationPathCV,
    Sequences,
    SequenceTagger,
    Transitions,
    regularization_path,
)
from fastm4n.path import _folds, _path

N = 40


def vectors(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 4))
    X[1] = X[0]  # examples that are merged
    return X, np.argmax(X @ rng.normal(size=(4, 3)) + rng.normal(size=(N, 3)), axis=1)


def gram():
    X, y = vectors()
    return np.exp(-((X[:, np.newaxis] - X) ** 2).sum(axis=2)), y


def chains(kind=np.asarray):
    X, y = vectors()
    ends = np.arange(2, N, 2)
    return [kind(x) for x in np.split(X, ends)], [list(part) for part in np.split(y, ends)]


def with_empty():
    X, y = chains()
    return Sequences.from_list([X[0], X[0][:0], *X[1:], X[0][:0]]), [y[0], [], *y[1:], []]


def rare():
    """Mostly zeros, dense: worked on in CSR."""
    X, y = chains()
    return [np.where(x > 0.8, x, 0.0) for x in X], y


def graphs():
    X, y = chains()
    return [(x, np.array([[0, 1]])) for x in X], y


def several_labels():
    X, y = vectors()
    return X, np.stack([y == 0, y == 1, X[:, 0] > 0], axis=1).astype(int)


def rankings():
    X, _ = vectors()
    return X, np.argsort(X[:, :3], axis=1)


def pairs():
    X, _ = vectors()
    return X.reshape(10, 2, 2, 4), np.tile([[0, 1], [1, 0]], (5, 1))


PROBLEMS = {
    "dense": (MulticlassClassifier("max_margin"), vectors),
    "lists": (MulticlassClassifier("log"), lambda: [part.tolist() for part in vectors()]),
    "csr": (MulticlassClassifier("max_min"), lambda: (sparse.csr_array(vectors()[0]), vectors()[1])),
    "float32": (
        MulticlassClassifier("log"), lambda: (vectors()[0].astype(np.float32), vectors()[1])),
    "rbf": (MulticlassClassifier("max_margin", kernel="rbf"), vectors),
    "gram": (MulticlassClassifier("max_margin", kernel="precomputed"), gram),
    "ordinal": (OrdinalClassifier(), vectors),
    "multilabel": (MultiLabelClassifier("max_margin"), several_labels),
    "ranking": (LabelRanker("max_margin"), rankings),
    "matching": (Matcher("max_margin"), pairs),
    "chains": (SequenceTagger("max_margin"), chains),
    "csr chains": (SequenceTagger("log"), lambda: chains(sparse.csr_array)),
    "empty chains": (SequenceTagger("max_min"), with_empty),
    "rare features": (SequenceTagger("log", states="observed"), rare),
    "transition features": (
        SequenceTagger("log", transitions=Transitions(features="all"), states="observed"), chains),
    "second order": (SequenceTagger("log", transitions=Transitions(order=2)), chains),
    "graphs": (GraphTagger("max_margin"), graphs),
}


def same(one, other):
    assert_array_equal(one.scores_, other.scores_)
    assert_array_equal(one.alphas_, other.alphas_)
    for name, array in one.path_._fitted(one.alpha_).items():
        assert_array_equal(array, other.path_._fitted(one.alpha_)[name])


@pytest.fixture
def threads(monkeypatch):
    """Threads are made however small the problem is."""
    monkeypatch.setattr(_folds, "WORTH_A_THREAD", 0.0)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.filterwarnings("ignore:y has labels that are not:UserWarning")
def test_bits_do_not_depend_on_threads(name, threads):
    estimator, make = PROBLEMS[name]
    X, y = make()
    estimator.set_params(random_state=0)
    folds = KFold(3)
    searches = [
        RegularizationPathCV(estimator, eps=0.2, cv=folds, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 3)]
    same(*searches)
    if name in ("gram", "multilabel", "ranking"):
        return  # the columns of the others, labels and items that a part does not have
    # the scores are those of paths of the parts, cut out
    if isinstance(X, list) and name != "lists":
        cut = lambda numbers: [X[i] for i in numbers]  # noqa: E731
    else:
        cut = lambda numbers: (np.array(X) if name == "lists" else X)[numbers]  # noqa: E731
    for j, (train, test) in enumerate(folds.split(X)):
        of_y = [[y[i] for i in numbers] for numbers in (train, test)]
        path = regularization_path(estimator, cut(train), of_y[0], eps=0.2)
        # where a search goes on below the end of a path, it knows more
        both = searches[0].alphas_ >= path.alphas[-1]
        assert both.any()
        assert_array_equal(
            searches[0].scores_[both, j],
            path.score(cut(test), of_y[1], alphas=searches[0].alphas_[both]))


@pytest.mark.parametrize("name", ["dense", "chains"])
def test_parts_with_repeats_and_masks(name, threads):
    estimator, make = PROBLEMS[name]
    estimator.set_params(random_state=0)
    X, y = make()
    n = len(X)
    every = np.arange(n)
    kept, left = every % 3 != 0, every % 3 == 0
    masks = RegularizationPathCV(estimator, cv=[(kept, left)]).fit(X, y)
    numbers = RegularizationPathCV(
        estimator, cv=[(np.flatnonzero(kept)[::-1], np.flatnonzero(left))], n_jobs=2).fit(X, y)
    same(masks, numbers)
    twice = RegularizationPathCV(
        estimator, eps=0.1, cv=[(np.repeat(every, 1 + kept), every)]).fit(X, y)
    weighted = regularization_path(estimator, X, y, sample_weight=1.0 + kept)
    # the search may have gone on below
    both = twice.alphas_ >= weighted.alphas[-1]
    assert_array_equal(
        twice.scores_[both, 0], weighted.score(X, y, alphas=twice.alphas_[both]))
    whole = RegularizationPathCV(
        estimator, cv=[(kept, left)], n_jobs=2).fit(X, y, sample_weight=np.full(n, 0.5))
    assert_array_equal(whole.alphas_, masks.alphas_)


def faint(n=120):
    """Labels that a column tells which is as small as weights must be large."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] > 0).astype(int) + (X[:, 0] > 1)
    X[:, 0] *= 0.004
    return X, y


@pytest.mark.filterwarnings("ignore:the best alpha:UserWarning")
def test_paths_go_on_where_the_best_is_at_their_end(threads, monkeypatch):
    X, y = faint()
    estimator = MulticlassClassifier("log", random_state=0)
    first = regularization_path(estimator, X, y)
    given = RegularizationPathCV(
        estimator, eps=0.1, cv=3, alpha_min=first.alphas[-1]).fit(X, y)
    assert given.is_at_end_ and given.path_.alphas[-1] == first.alphas[-1]
    search = RegularizationPathCV(estimator, eps=0.1, cv=3).fit(X, y)
    assert search.path_.alphas[-1] < 0.2 * first.alphas[-1]
    assert search.alpha_ < given.alpha_ and search.best_score_ > given.best_score_
    # what was there stays, and the whole is a path
    path = search.path_
    assert set(first.alphas) <= set(path.alphas) and path.complete
    assert (path.relative_gaps <= 0.1).all()
    between = np.sqrt(path.alphas[1:] * path.alphas[:-1])
    assert all(path.relative_gap(alpha) <= 0.1 for alpha in between)
    same(search, RegularizationPathCV(estimator, eps=0.1, cv=3, n_jobs=3).fit(X, y))
    # a search that may not go on says so
    monkeypatch.setattr(_path, "MOST_DECADES", 0)
    with pytest.warns(UserWarning, match="at the end of the paths.*a smaller alpha_min=") as caught:
        short = RegularizationPathCV(estimator, eps=0.1, cv=3).fit(X, y)
    assert caught[0].filename == __file__ and short.is_at_end_
    # the order of a grid's ends is the caller's own
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grid = RegularizationPathCV(estimator, cv=3, method="grid", alphas=[1.0, 0.1]).fit(X, y)
    assert set(grid.alphas_) == {1.0, 0.1}


def test_an_end_that_is_given_is_gone_to_and_told_of():
    """Scores of probabilities rise after the loss is at most eps: the search goes on."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:400] / 16, y[:400]
    estimator = MulticlassClassifier("log", random_state=0)
    options = dict(cv=3, scoring="neg_log_loss", eps=0.1)
    # where the loss would end the path
    end = regularization_path(estimator, X, y).alphas[-1]
    with pytest.warns(UserWarning, match="at the end of the paths.*a smaller alpha_min=.*eps="):
        short = RegularizationPathCV(estimator, alpha_min=end, **options).fit(X, y)
    assert short.is_at_end_ and short.alphas_.min() == end
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = RegularizationPathCV(estimator, alpha_min=1e-2 * end, **options).fit(X, y)
        chosen = RegularizationPathCV(estimator, **options).fit(X, y)
    assert given.alphas_.min() == given.path_.alphas[-1] == 1e-2 * end
    for search in (given, chosen):
        assert not search.is_at_end_ and search.best_score_ > short.best_score_ + 0.02
        assert (search.path_.relative_gaps <= 0.1).all() and search.path_.complete


@pytest.mark.parametrize("method", ["certified", "heuristic"])
def test_every_path_goes_to_the_end_that_is_given(method):
    X, y = vectors()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    path = regularization_path(estimator, X, y, eps=0.3, alpha_min=1e-5, method=method)
    assert path.alphas[-1] == 1e-5 and path.complete
    assert (path.alphas[1:] / path.alphas[:-1] > 0.19).all()
    assert path.relative_gaps.max() <= 0.3 or method == "heuristic"


def test_paths_that_are_not_solved_do_not_go_on(monkeypatch):
    X, y = faint()
    monkeypatch.setattr(_folds.PathsOfParts, "are_solved", lambda self: False)
    with pytest.warns(UserWarning, match="at the end of the paths"):
        search = RegularizationPathCV(MulticlassClassifier("log", random_state=0), cv=3).fit(X, y)
    assert search.alphas_.min() > 1e-2 * regularization_path(search.estimator, X, y).alphas[-1]
    monkeypatch.undo()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RegularizationPathCV(
            MulticlassClassifier("log", max_iter=2, random_state=0), cv=3, eps=1e-3).fit(X, y)
    texts = [str(found.message) for found in caught]
    assert sum("did not solve" in text for text in texts) == 4


def test_names_of_features_reach_the_folds():
    pd = pytest.importorskip("pandas")
    X, y = vectors()
    X = pd.DataFrame(X, columns=list("abcd"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = RegularizationPathCV(
            MulticlassClassifier(random_state=0), cv=3, n_jobs=2).fit(X, y)
        search.predict(X)
    assert list(search.feature_names_in_) == list("abcd")


def test_one_matrix_for_all_folds(monkeypatch, threads):
    """No fold has a copy: what the passes read is one array."""
    X, y = vectors()
    seen = []
    prepare = _folds.Run.prepare

    def noting(run, *args):
        prepare(run, *args)
        seen.append(run.problem.features)

    monkeypatch.setattr(_folds.Run, "prepare", noting)
    RegularizationPathCV(MulticlassClassifier(random_state=0), cv=4, n_jobs=2).fit(X, y)
    assert len(seen) == 5 and all(features.arguments()[0] is X for features in seen)
    del seen[:]
    X, y = chains()
    RegularizationPathCV(SequenceTagger(random_state=0), cv=4, n_jobs=2).fit(X, y)
    assert len(seen) == 5
    assert len({id(features.arguments()[0]) for features in seen}) == 1
    # and the estimators of a kernel's path have one, which is not the caller's
    X, y = vectors()
    search = RegularizationPathCV(
        MulticlassClassifier(kernel="rbf", random_state=0), cv=3, n_jobs=2).fit(X, y)
    of_path = search.path_.estimator(search.alpha_)
    assert not np.shares_memory(of_path.X_fit_, X) and not of_path.X_fit_.flags.writeable
    assert not np.shares_memory(search.best_estimator_.X_fit_, X)


def test_small_folds_stay_in_one_thread(monkeypatch):
    monkeypatch.setattr(_folds, "ThreadPoolExecutor", None)
    RegularizationPathCV(MulticlassClassifier(random_state=0), cv=3, n_jobs=2).fit(*vectors())


def test_threads_in_threads(threads, monkeypatch):
    """What the paths call has one thread, and so has a search within a thread of another."""
    X, y = vectors()
    found, step = [], _folds.Run.follow

    def follow(run):
        found.append((effective_n_jobs(4), run.follower.driver.certifier.n_jobs))
        return step(run)

    monkeypatch.setattr(_folds.Run, "follow", follow)
    RegularizationPathCV(
        MulticlassClassifier(n_jobs=3, random_state=0), cv=3, alpha_min=1e-3, n_jobs=2).fit(X, y)
    assert found == 4 * [(1, 1)]
    del found[:]
    RegularizationPathCV(
        MulticlassClassifier(n_jobs=3, random_state=0), cv=3, alpha_min=1e-3).fit(X, y)
    assert [threads for _, threads in found] == 4 * [3]


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_errors_and_warnings_come_in_order(n_jobs, threads, monkeypatch):
    X, y = vectors()
    before = threading.active_count()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search = RegularizationPathCV(
            MulticlassClassifier("max_min", max_iter=1, random_state=0), cv=3, n_jobs=n_jobs,
            eps=1e-4)
        search.fit(X, y)
    texts = [str(found.message) for found in caught if found.category is ConvergenceWarning]
    expected = []
    for part in (slice(None), *(train for train, _ in KFoldOf(search, X, y))):
        with pytest.warns(ConvergenceWarning) as alone:
            regularization_path(search.estimator, X[part], y[part], eps=1e-4)
        expected.append(str(alone[0].message))
    assert texts == expected and len(set(texts)) > 1
    assert all(found.filename == __file__ for found in caught)

    # the first fold that fails is named, whichever was the first to fail
    late = threading.Event()
    follow = _folds.Run.follow

    def failing(run):
        n = run.problem.blocks.kept.size
        if n == 20:  # of the first fold: it waits until the other has failed
            late.wait(5.0 if n_jobs > 1 else 0.0)
            raise RuntimeError("first")
        if n == 30:
            late.set()
            raise RuntimeError("second")
        return follow(run)

    monkeypatch.setattr(_folds.Run, "follow", failing)
    every = np.arange(N)
    with pytest.raises(RuntimeError, match="first"):
        RegularizationPathCV(
            MulticlassClassifier(random_state=0), cv=[(every[:20], every), (every[:30], every)],
            n_jobs=n_jobs).fit(X, y)
    # a fold that cannot be set up comes after one that fails later on
    with pytest.raises(RuntimeError, match="first"):
        RegularizationPathCV(
            MulticlassClassifier(random_state=0), cv=[(every[:20], every), (every[:1], every)],
            n_jobs=n_jobs).fit(X, y)
    monkeypatch.setattr(_folds.Run, "follow", follow)
    with pytest.raises(ValueError, match="Training part of fold 0: y has one class only"):
        RegularizationPathCV(
            MulticlassClassifier(random_state=0), cv=[(every[:1], every)], n_jobs=n_jobs).fit(X, y)
    assert threading.active_count() == before


def KFoldOf(search, X, y):  # noqa: N802
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(search.n_splits_).split(X, y)


@pytest.mark.parametrize("endless", ["passes", "breakpoints"])
def test_interrupts_end_all_folds(endless, threads, monkeypatch):
    """In the midst of a breakpoint, and where each is done in a pass."""
    X, y = vectors()
    before = threading.active_count()
    prepared, begun = [], threading.Event()
    prepare, advance = _folds.Run.prepare, _folds.Run._advance

    def interrupted(run, *args):
        if prepared:  # by the thread that waits for the others
            assert begun.wait(10.0)
            raise KeyboardInterrupt
        prepare(run, *args)
        prepared.append(run)
        if endless == "passes":
            run.follower.relative_eps, run.follower.max_iter = 1e-300, 10**9

    def more(run):
        begun.set()
        if endless == "passes":
            return advance(run)
        if not run.points:
            return advance(run)
        time.sleep(1e-3)
        return True

    monkeypatch.setattr(_folds.Run, "prepare", interrupted)
    monkeypatch.setattr(_folds.Run, "_advance", more)
    with pytest.raises(KeyboardInterrupt):
        RegularizationPathCV(
            MulticlassClassifier("log", random_state=0), cv=3, n_jobs=2).fit(X, y)
    assert threading.active_count() == before


@pytest.mark.parametrize("n_jobs", [0, "two", 1.5])
def test_bad_n_jobs(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be an integer other than 0"):
        RegularizationPathCV(MulticlassClassifier(), n_jobs=n_jobs).fit(*vectors())
