"""Estimators on Dask: partitions of all forms, one certificate, bad input."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

pytest.importorskip("distributed")

import dask.array as da
import dask.bag as db
from dask import delayed
from dask_cases import CASES, GRAPHS, NODES, SENTENCES, TAGS, X, Y, at_round, client, on_dask, pairs

from fastm4n import (
    BlockFrankWolfe,
    GraphTagger,
    MulticlassClassifier,
    OutOfCore,
    SequenceTagger,
    Transitions,
    checkpointing,
    load_model,
    save_model,
)
from fastm4n.distributed.dask import (
    DaskGraphTagger,
    DaskLabelRanker,
    DaskMulticlassClassifier,
    DaskOrdinalClassifier,
    DaskSequenceTagger,
)
from fastm4n.distributed.dask._inputs import cut_between

__all__ = ["client"]  # a fixture

# ------------------------------------------------------------------------------- forms


def test_chains_of_rows_bags_and_frames(client):
    """All forms of the same partitions give the same bits, and predictions of their own form."""
    X, y = SENTENCES, TAGS
    lengths = [len(x) for x in X]
    parts = [[0, 7], [7, 13], [13, 20]]
    rows = [np.concatenate(X[a:b]) for a, b in parts]
    labels = [np.concatenate(y[a:b]) for a, b in parts]
    fit = lambda *data, **more: on_dask(
        SequenceTagger("log", alpha=0.1, random_state=0)).fit(*data, **more)
    first = fit([delayed((X[a:b], y[a:b])) for a, b in parts])
    truth = np.concatenate(list(first.to_local().predict(X)))

    futures = client.scatter([X[a:b] for a, b in parts], hash=False)
    found = fit(futures, [delayed(y[a:b]) for a, b in parts])
    assert_array_equal(found.coef_, first.coef_)
    predicted = found.predict(futures)
    assert_array_equal(np.concatenate([np.concatenate(list(f.result())) for f in predicted]), truth)

    both = db.from_delayed([delayed(list(zip(X[a:b], y[a:b]))) for a, b in parts])
    found = fit(both)
    assert_array_equal(found.coef_, first.coef_)
    predicted = found.predict(both.map(lambda pair: pair[0]))
    assert_array_equal(np.concatenate(predicted.compute()), truth)

    edges = tuple(len(part) for part in rows)
    dX = da.from_array(np.concatenate(rows), chunks=(edges, 2))
    dy = da.from_array(np.concatenate(labels), chunks=7)
    for cut in (np.array(lengths), [lengths[a:b] for a, b in parts]):
        found = fit(dX, dy, lengths=cut)
        assert_array_equal(found.coef_, first.coef_)
        predicted = found.predict(dX, lengths=cut)
        assert predicted.shape == dy.shape and predicted.dtype == dy.dtype
        assert_array_equal(predicted.compute(), truth)
    sparse_X = dX.rechunk({1: -1}).map_blocks(sparse.csr_matrix)
    assert_allclose(fit(sparse_X, dy, lengths=np.array(lengths)).coef_, first.coef_, atol=1e-2)

    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    number = np.repeat(np.arange(len(X)), lengths)
    frame = pd.DataFrame(np.concatenate(rows), columns=list("abcd"))
    frame["tag"], frame["sentence"] = np.concatenate(labels), number
    frames = dd.concat([
        dd.from_pandas(frame[(number >= a) & (number < b)], npartitions=1) for a, b in parts])
    found = fit(frames, "tag", group="sentence")
    assert_array_equal(found.coef_, first.coef_)
    predicted = found.predict(frames[["a", "b", "c", "d", "sentence"]], group="sentence").compute()
    assert_array_equal(predicted.to_numpy(), truth)
    cut = dd.from_pandas(frame, npartitions=4)
    with pytest.raises(ValueError, match=r"group \d+ is in the partitions \d and \d"):
        fit(cut, "tag", group="sentence")


def test_matchings_in_bags(client):
    local, X, y = CASES["matchings"]
    found = on_dask(local, random_state=0).fit(pairs(X, y))
    assert found.cost_matrix_.shape == (4, 4)
    both = db.from_sequence(list(zip(X, y, strict=True)), npartitions=3)
    again = on_dask(local, random_state=0).fit(both)
    assert_array_equal(again.coef_, found.coef_)
    predicted = again.predict(both.map(lambda pair: pair[0])).compute()
    for one, two in zip(predicted, found.to_local().predict(X), strict=True):
        assert_array_equal(one, two)
    cost = on_dask(local, cost=(1.0 - np.eye(2)))
    with pytest.raises(ValueError, match="partition 1 has sizes"):
        cost.fit([delayed((X[:6], y[:6])), delayed((X[6:12], y[6:12]))])
    with pytest.raises(ValueError, match="matchings are no rows"):
        found.fit(da.zeros((12, 1)), y[:3])


def test_rows_of_vectors(client):
    X, y = CASES["multiclass"][1:]
    local = MulticlassClassifier("log", alpha=0.1, random_state=0)
    dX, dy = da.from_array(X, chunks=(20, 3)), da.from_array(y, chunks=11)
    first = on_dask(local).fit(pairs_at(X, y, [0, 20, 40, 48]))
    for data in ((dX, dy), (dX, y), (db.from_sequence(list(zip(X, y)), partition_size=20),)):
        assert_array_equal(on_dask(local).fit(*data).coef_, first.coef_)
    predicted = first.predict(dX)
    assert predicted.chunks == ((20, 20, 8),)
    assert_array_equal(predicted.compute(), first.to_local().predict(X))
    assert_array_equal(first.predict(X), predicted.compute())
    assert_array_equal(first.predict(delayed(X)).compute(), predicted.compute())
    weights = np.arange(48) % 3
    found = on_dask(local, tol=1e-6).fit(dX, dy, da.from_array(weights, chunks=48))
    other = clone(local).set_params(tol=1e-6).fit(X, y, weights)
    assert found.primal_objective_ == pytest.approx(other.primal_objective_, rel=1e-5)

    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(y=y), npartitions=3)
    found = on_dask(local).fit(frame, "y")
    assert found.feature_names_in_.tolist() == list("abcd")
    assert_array_equal(found.predict(frame[list("abcd")]).compute(), found.to_local().predict(
        frame[list("abcd")].compute()))


def pairs_at(X, y, edges):
    return [delayed((X[a:b], y[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]


@pytest.mark.parametrize("lengths, sizes", [
    ([3, 3, 3, 3], (6, 6)), ([5, 5, 2], (5, 5, 2)), ([12], (12,)), ([0, 12, 0], (12,)),
    ([1] * 12, (4, 4, 4)), ([7, 0, 0, 5], (7, 5)),
])
def test_sequences_are_not_cut(lengths, sizes):
    rows = da.from_array(np.arange(12.0)[:, np.newaxis], chunks=(4, 1))
    X, found = cut_between(rows, np.array(lengths))
    assert sum(X.chunks[0]) == 12
    assert [int(np.sum(part)) for part in found] == list(X.chunks[0])
    assert np.concatenate(found).tolist() == lengths
    assert 0 not in X.chunks[0]
    assert_array_equal(X.compute(), rows.compute())
    if sizes != (6, 6):
        assert X.chunks[0] == sizes


# -------------------------------------------------------------------------- estimators


def test_parameters_and_files(client, tmp_path):
    X, y = SENTENCES, TAGS
    tagger = DaskSequenceTagger("log", alpha=0.1, client=client, random_state=0)
    assert tagger.get_params()["client"] is client and tagger.get_params()["max_iter"] == 200
    assert clone(tagger).client is client
    tagger.set_params(local_passes=2.0, tol=1e-4)
    assert tagger.fit(pairs(X, y)) is tagger
    assert tagger.client_ is client
    kept = pickle.loads(pickle.dumps(tagger))
    assert kept.client is None and same(kept.predict(X), tagger.predict(X))
    local = tagger.to_local()
    assert local.get_params()["alpha"] == 0.1
    save_model(local, tmp_path / "tagger")
    assert same(load_model(tmp_path / "tagger").predict(X), tagger.predict(X))
    with pytest.raises(TypeError, match="alhpa"):
        DaskSequenceTagger(alhpa=1)
    # callbacks of scikit-learn would be ignored
    assert not hasattr(tagger, "set_callbacks")
    assert repr(DaskOrdinalClassifier(levels=[1, 2])) == "DaskOrdinalClassifier(levels=[1, 2])"


def same(one, other):
    return [list(a) for a in one] == [list(b) for b in other]


def test_ordered_categories_keep_their_order(client):
    import pandas as pd

    X, levels = np.random.default_rng(0).normal(size=(60, 3)), ["none", "some", "low", "high"]
    codes = np.array([0, 1, 3])[np.digitize(X[:, 0], [-0.6, 0.5])]
    y = pd.Series(pd.Categorical.from_codes(codes, levels, ordered=True))
    model = DaskOrdinalClassifier(random_state=0).fit(
        [delayed((X[i : i + 20], y[i : i + 20])) for i in range(0, 60, 20)])
    assert model.classes_.tolist() == levels and model.score(X, y) > -0.2
    with pytest.raises(ValueError, match="partition 1 has levels .*: all must have the same"):
        model.fit([delayed((X, y)), delayed((X, y.cat.reorder_categories(levels[::-1])))])



def test_same_bits(client):
    """Two fits are the same, whichever worker answers first."""
    fits = [on_dask(SequenceTagger("log", alpha=0.05, random_state=3)).fit(pairs(SENTENCES, TAGS))
            for _ in range(2)]
    for name in ("coef_", "transition_coef_", "duality_gap_", "primal_objective_"):
        assert_array_equal(getattr(fits[0], name), getattr(fits[1], name))


def test_callback_and_rounds(client):
    rows = []
    local = SequenceTagger("log", alpha=0.01, random_state=0, tol=1e-9)
    found = on_dask(local, callback=lambda row: rows.append(row) or len(rows) == 3, verbose=1)
    with pytest.warns(ConvergenceWarning, match="3 rounds"):
        found.fit(pairs(SENTENCES, TAGS))
    assert len(rows) == len(found.history_["round"]) == 3
    with pytest.warns(ConvergenceWarning, match="2 rounds"):
        found = on_dask(local, max_iter=2).fit(pairs(SENTENCES, TAGS))
    assert found.n_iter_ == 2


def test_levels_that_are_no_numbers(client):
    y = np.array(["low", "mid", "high"])[Y["levels"]]
    with pytest.warns(UserWarning, match="taken in the order of sorting, high < low < mid"):
        DaskOrdinalClassifier(alpha=0.1, tol=0.1).fit(pairs(X, y))


def test_linear_programs(client):
    """What is not exact is told of the graphs of all partitions; oracles are of all."""
    random = np.random.default_rng(0)
    ring = [[i, (i + 1) % 9] for i in range(9)] + [[0, 4], [2, 7], [3, 8]]
    graphs = [(random.normal(size=(9, 3)), ring) for _ in range(6)]
    labels = [random.integers(0, 3, 9).tolist() for _ in range(6)]
    local = GraphTagger("max_margin", alpha=0.02, random_state=0, inference="lp", tol=1e-2)
    found = on_dask(local, tol=0.05).fit(pairs(graphs, labels))
    local.fit(graphs, labels)
    assert found.oracle_ == local.oracle_ == "decomposition"
    assert found.primal_objective_ - local.dual_objective_ <= (
        found.duality_gap_ + local.duality_gap_)
    assert (found.integrality_gap_ is None) == (local.integrality_gap_ is None)
    every = [[i, j] for i in range(16) for j in range(i)]
    dense = [(random.normal(size=(16, 3)), every)], [random.integers(0, 3, 16).tolist()]
    with pytest.raises(ValueError, match="'few_states' for the graphs of partition 0 and 'decomp"):
        on_dask(local, inference="auto").fit([delayed((graphs, labels)), delayed(dense)])


def test_no_import(tmp_path):
    """`import fastm4n` knows nothing of Dask."""
    code = """
import sys, fastm4n, fastm4n.estimators
assert "dask" not in sys.modules
sys.modules["distributed"] = None
try:
    import fastm4n.distributed.dask
except ImportError as error:
    assert 'pip install "fastm4n[dask]"' in str(error)
else:
    raise AssertionError
"""
    # not in the source folder, whose package may not be compiled
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


# ---------------------------------------------------------------------- empty partitions


def test_empty_partitions_are_left_out(client):
    """Whichever they are, and if a worker has no others: the fit is that of the rest."""
    y, rest = Y["levels"], {"surrogate": "log", "tol": 0.02, "random_state": 0}
    whole = DaskMulticlassClassifier(**rest).fit([delayed((X[:24], y[:24])), delayed((X[24:], y[24:]))])
    nothing = delayed((X[:0], y[:0]))
    full = [delayed((X[:24], y[:24])), delayed((X[24:], y[24:]))]
    cuts = ((0, 0, 24, 24), (24, 0, 24, 0), (0, 24, 24, 0))
    forms = [([nothing, *full, nothing],), ([*full, nothing, nothing],)]
    forms += [(da.from_array(X, (chunks, 4)), da.from_array(y, (chunks,))) for chunks in cuts]
    examples = db.from_sequence(list(zip(X, y, strict=True)), npartitions=4)
    forms.append((db.concat([examples.filter(lambda example: False), examples]),))
    for data in forms:
        found = DaskMulticlassClassifier(**rest).fit(*data)
        gap = found.duality_gap_ + whole.duality_gap_
        assert abs(found.primal_objective_ - whole.primal_objective_) <= gap
        assert found.n_features_in_ == 4 and found.to_local().n_features_in_ == 4
    expected = found.to_local().predict(X)
    chunks = da.from_array(X, (cuts[0], 4))
    assert_array_equal(found.predict(chunks).compute(), expected)
    one, none = found.predict([delayed(X), delayed(X[:0])])
    assert_array_equal(one.compute(), expected)
    assert none.compute().shape == (0,) and none.compute().dtype == expected.dtype
    with pytest.raises(ValueError, match="all of its partitions are empty"):
        found.fit(da.from_array(X[:0], (0, 4)), da.from_array(y[:0], (0,)))


def test_empty_partitions_of_frames_and_chains(client):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=Y["levels"])
    frame = dd.from_pandas(table, npartitions=4)
    frame = dd.concat([frame[frame.a > 100], frame])
    found = DaskMulticlassClassifier("log", random_state=0).fit(frame, "y")
    assert list(found.feature_names_in_) == list("abcd") and found.n_features_in_ == 4
    assert found.predict(frame[list("abcd")]).compute().shape == (48,)
    parts = [([], []), (SENTENCES[:10], TAGS[:10]), (SENTENCES[10:], TAGS[10:]), ([], [])]
    tagger = DaskSequenceTagger("log", random_state=0).fit([delayed(part) for part in parts])
    assert tagger.relative_gap_ <= tagger.tol_
    assert tagger.predict([delayed([])])[0].compute() == []
    rows = np.concatenate(SENTENCES)
    lengths = [[], [len(x) for x in SENTENCES]]
    tagger.fit(da.from_array(rows, ((0, len(rows)), 4)),
               da.from_array(np.concatenate(TAGS), ((0, len(rows)),)), lengths=lengths)


@pytest.mark.parametrize("name", CASES)
def test_the_local_estimator_has_what_a_local_fit_has(client, name):
    local, X, y = CASES[name]
    found = on_dask(local, max_iter=1, tol=0.9).fit(pairs(X, y))
    assert type(found.to_local()) is type(local)
    assert found.to_local().score(X, y) == pytest.approx(found.score(X, y))
    assert found.history_["member_seconds"].shape[1] == 2
    assert (found.history_["bytes"] >= 0).all()
    mine = vars(found.to_local())
    own = vars(clone(local).set_params(tol=0.9).fit(X, y))
    public = {attribute for attribute in own if attribute.endswith("_") and attribute[0] != "_"}
    assert public <= set(mine)
    for attribute in ("n_features_in_", "classes_"):
        assert_array_equal(mine.get(attribute, 0), own.get(attribute, 0))


# --------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("parts, words", [
    ([(X, Y["levels"]), (X[:, :3], Y["levels"])], "partition 1 has columns 3, but partition 0"),
    ([(X, Y["levels"]), (X, Y["classes"])], "partition 1 has labels that are strings"),
    ([(X, Y["levels"]), (X[:0], Y["levels"])], "partition 1 cannot be computed: X is empty, but y"),
    ([(X[:0], Y["levels"][:0]), (X, Y["levels"]), (X[:, :3], Y["levels"])],
     "partition 2 has columns 3, but partition 1"),
    ([(X[:0], Y["levels"][:0])] * 3, "all of its partitions are empty"),
    ([(X, Y["levels"]), (X, None)], "partition 1 cannot be computed: y is missing"),
    ([(X, Y["levels"]), X], "partition 1 cannot be computed: it must be a pair"),
    ([(X, Y["levels"]), (X, Y["levels"][1:])], "partition 1: .*inconsistent"),
    ([(X, Y["levels"]), (np.where(X > 1, np.nan, X), Y["levels"])], "partition 1: .*NaN"),
    ([(X, Y["levels"]), (sparse.csr_array(X), Y["levels"])], "partition 1 has rows that are sparse"),
    ([(X, Y["levels"] * 0)] * 2, "one label only"),
    ([(X, Y["levels"], np.zeros(48))] * 2, "partition 0: Sample weights must contain"),
    ([], "X has no partitions"),
])
def test_bad_partitions(client, parts, words):
    with pytest.raises(ValueError, match=words):
        DaskMulticlassClassifier().fit([delayed(part) for part in parts])


@pytest.mark.parametrize("solver", [OutOfCore(memory=0.01), BlockFrankWolfe(step="exact")], ids=str)
def test_solvers_of_one_machine(client, solver):
    """Their steps and chunks change nothing; a folder that would stay empty is refused."""
    model = DaskMulticlassClassifier("log", random_state=0)
    found = clone(model).set_params(solver=solver).fit(pairs(X, Y["classes"]))
    assert_array_equal(found.coef_, model.fit(pairs(X, Y["classes"])).coef_)
    if isinstance(solver, OutOfCore):
        with pytest.raises(ValueError, match=r"work_folder=\.\.\.\) is not supported for data in part"):
            found.set_params(solver__work_folder="folder").fit(pairs(X, Y["classes"]))


def test_bad_labels_of_taggers(client):
    with pytest.raises(ValueError, match="partition 1 has labels of type int, but partition 0 of"):
        DaskSequenceTagger().fit(
            [delayed((SENTENCES, TAGS)), delayed((SENTENCES, [[1] * len(x) for x in SENTENCES]))])
    wide = [(np.ones((2, 4)), [[0, 1]])]
    with pytest.raises(ValueError, match="partition 1 has columns 4, but partition 0 has 3"):
        DaskGraphTagger().fit([delayed((GRAPHS, NODES)), delayed((wide, [[0, 1]]))])
    ranks = [[1, 2, 3, 4]] * 48
    with pytest.raises(ValueError, match="partition 1 has items"):
        DaskLabelRanker().fit([delayed((X, Y["rankings"])), delayed((X, ranks))])


@pytest.mark.parametrize("parameters, words", [
    ({"kernel": "rbf"}, "kernel='rbf' is not supported for data in partitions"),
    ({"fit_intercept": "free"}, "fit_intercept='free'"),
    ({"warm_start": True}, "warm_start=True"), ({"penalty": "l1"}, "penalty='l1'"),
    ({"solver__step": "fixed", "solver": None}, "step='fixed'"),
    ({"local_passes": 0}, "local_passes must be"), ({"timeout": -1}, "timeout"),
    ({"client": 3}, "client must be a distributed.Client"), ({"alpha": -1}, "alpha"),
])
def test_bad_parameters(client, parameters, words):
    if "solver__step" in parameters:
        from fastm4n import BlockFrankWolfe

        parameters = {"solver": BlockFrankWolfe(step="fixed"), "surrogate": "max_margin"}
    with pytest.raises((ValueError, TypeError), match=words):
        DaskMulticlassClassifier(**parameters).fit(pairs(X, Y["classes"]))


@pytest.mark.parametrize("estimator, words", [
    (DaskSequenceTagger(states="observed"), "states='observed'"),
    (DaskSequenceTagger(transitions=Transitions(order=2)), "order=2 of transitions"),
    (DaskGraphTagger(pairwise="displacement", grid_shape=(2, 2)), "pairwise='displacement'"),
    (DaskGraphTagger(unlabelled="hidden"), "unlabelled='hidden'"),
    (DaskGraphTagger(hidden_states={1: 2}), "hidden_states={1: 2}"),
])
def test_not_divisible(client, estimator, words):
    with pytest.raises(ValueError, match=f"{words} is not supported for data in partitions"):
        estimator.fit(pairs(SENTENCES, TAGS))


def test_bad_data(client):
    tagger = DaskSequenceTagger()
    rows = da.ones((12, 2), chunks=(4, 2))
    for data, words in (
        (dict(X=SENTENCES, y=TAGS), r"X\[0\] is of type ndarray"),
        (dict(X=X, y=X), "got ndarray"),
        (dict(X=rows, y=rows[:, 0]), "give lengths or group"),
        (dict(X=rows), "y is missing"),
        (dict(X=rows, y=rows[:, 0], lengths=[6, 5]), "add up to the 12 rows of X"),
        (dict(X=rows, y=rows[:, 0], lengths=[[4], [8]]), "lengths has 2 partitions, but X has 3"),
        (dict(X=rows, y=[1, 2], lengths=[12]), "y has 2 partitions, but X has"),
        (dict(X=pairs(SENTENCES, TAGS), lengths=[3]), "leave them out"),
    ):
        with pytest.raises(ValueError, match=words):
            tagger.fit(**data)


def test_error_of_a_partition(client):
    def fails():
        raise OSError("no such file")

    with pytest.raises(ValueError, match="partition 1 cannot be computed: no such file"):
        DaskMulticlassClassifier().fit([delayed((X, Y["classes"])), delayed(fails)()])


def test_checkpoint(client, tmp_path, monkeypatch):
    """In `checkpointing` a fit that ended goes on, to the same bits."""
    monkeypatch.setattr("fastm4n.solvers.monitor.Pace.is_due", lambda pace: True)
    file = tmp_path / "fit"
    local = SequenceTagger("log", alpha=0.05, random_state=0)

    def dies():
        raise LookupError

    with pytest.raises(LookupError):
        with checkpointing(file):
            on_dask(local, callback=at_round(4, dies)).fit(pairs(SENTENCES, TAGS))
    assert file.exists()
    with checkpointing(file):
        found = on_dask(local).fit(pairs(SENTENCES, TAGS))
    assert not file.exists()
    whole = on_dask(local).fit(pairs(SENTENCES, TAGS))
    assert found.n_iter_ == whole.n_iter_ > 5
    assert_array_equal(found.coef_, whole.coef_)
