"""Members of a fleet on Dask, and what happens when workers, the cluster or the user go."""

import _thread
import os
import signal
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import ConvergenceWarning

pytest.importorskip("distributed")

from dask import delayed
from dask_cases import (
    SENTENCES,
    TAGS,
    THREADS,
    X,
    Y,
    at_round,
    client,
    cluster_of,
    on_dask,
    pairs,
    remove,
)
from distributed import Client, LocalCluster

from fastm4n import SequenceTagger
from fastm4n.distributed.dask import ClusterGone, DaskFleet, DaskMulticlassClassifier
from fastm4n.distributed.dask._fleet import Input
from fastm4n.distributed.fleets import Lost, NoMember

__all__ = ["client"]  # a fixture


class Sums:
    """A member: sums of its inputs."""

    stopping = None

    def __init__(self, *parts):
        self.total = float(sum(np.sum(part) for part in parts))

    def more(self, by):
        return self.total + by

    def long(self, seconds):
        start = time.perf_counter()
        while time.perf_counter() - start < seconds and not self.stopping():
            time.sleep(0.01)
        return time.perf_counter() - start

    def fail(self):
        raise LookupError(f"not {self.total:g}")

    def fail_strangely(self):
        class Strange(Exception):
            def __reduce__(self):
                raise TypeError("no")

        raise Strange("words")


def sums(client, n=2, **options):
    sources = [delayed(np.full)(3, k + 1.0) for k in range(2 * n)]
    inputs = [[Input(sources[k], "a"), Input(sources[k + n], "b")] for k in range(n)]
    return DaskFleet(client, [Sums] * n, inputs, **options)


@pytest.mark.parametrize("direct", [False, True])
def test_fleet(client, monkeypatch, direct):
    """Also where workers are reached by way of the scheduler alone."""
    if not direct:
        monkeypatch.setattr("fastm4n.distributed.dask._fleet.DIRECT_WITHIN", -1.0)
    with sums(client, 3) as fleet:
        assert fleet.is_direct == [direct] * 3
        assert fleet.call_all("more", 1.0) == [16.0, 22.0, 28.0]
        assert fleet.call_all("more", each=[(1.0,), (2.0,)], members=[2, 0]) == [28.0, 17.0]
        assert fleet.alive() == [True] * 3
        with pytest.raises(LookupError, match="not 15"):
            fleet.call_all("fail")
        with pytest.raises(RuntimeError, match="Strange: words"):
            fleet.call_all("fail_strangely")
        fleet.replace(1)
        assert fleet.call_all("more", 0.0) == [15.0, 21.0, 27.0]
        fleet.stop()
        assert max(fleet.call_all("long", 60.0)) < 30.0
        fleet.stop(False)
    with pytest.raises(ValueError, match="closed"):
        fleet.call_all("more", 1.0)


class Late:
    """An answer that comes between the end of a wait and the look at what has become of it."""

    calls = 0

    def result(self, timeout):
        self.calls += 1
        if self.calls == 1:
            raise TimeoutError
        return 5

    def done(self):
        return True

    def cancelled(self):
        return False

    def exception(self):
        return None


def test_answer_at_the_last_moment(client):
    with sums(client) as fleet:
        assert fleet._collect([0, 1], {0: Late(), 1: Late()}) == [5, 5]


def test_lost_member():
    """Of a worker that leaves the member is lost, and made anew on another one."""
    with cluster_of() as client, sums(client) as fleet:
        gone = fleet.addresses[1]
        remove(client, gone)
        while all(fleet.alive()):
            time.sleep(0.01)
        found = fleet.call_all("more", 0.0)
        assert found[0] == 12.0 and isinstance(found[1], Lost) and found[1].member == 1
        assert fleet.alive() == [True, False]
        fleet.replace(1)
        assert fleet.call_all("more", 0.0) == [12.0, 18.0]
        assert fleet.addresses[1] != gone


def test_silent_worker(monkeypatch):
    """A member whose worker says nothing any more is lost, and its worker is taken off."""
    with cluster_of() as client, sums(client, timeout=1.5) as fleet:
        silent, note = fleet.addresses[0], fleet._note

        def unheard(workers, now):
            if silent in workers:
                workers[silent]["last_seen"] = 0.0
            note(workers, now)

        monkeypatch.setattr(fleet, "_note", unheard)
        fleet._look()
        found = fleet.call_all("long", each=[(6.0,), (0.1,)])
        assert isinstance(found[0], Lost) and "silent for 1.5 s" in found[0].reason
        assert found[1] >= 0.1
        fleet.replace(0)
        assert fleet.call_all("more", 0.0) == [12.0, 18.0]
        assert fleet.addresses[0] != silent


def test_silent_scheduler(client, monkeypatch):
    """A scheduler that does not answer for long is an error, and no wait without end."""
    def late(*args, **options):
        raise TimeoutError

    with sums(client, timeout=0.5) as fleet:
        monkeypatch.setattr(client, "sync", late)
        assert fleet.call_all("more", 0.0) == [12.0, 18.0]
        time.sleep(0.6)
        with pytest.raises(ClusterGone, match="scheduler does not answer"):
            fleet.call_all("more", 0.0)


def test_lost_data():
    """Scattered data that are gone are named; what delayed objects give is computed anew."""
    with cluster_of() as client:
        parts = client.scatter([(X, Y["classes"])] * 2, hash=False)
        inputs = [[Input(parts[1], "partition 1")]]
        with DaskFleet(client, [Count], inputs) as fleet:
            assert fleet.call_all("size") == [48]
            for holder in client.who_has(parts[1])[parts[1].key]:
                remove(client, holder)
            with pytest.raises(NoMember, match="partition 1"):
                fleet.replace(0)


class Count:
    def __init__(self, part):
        self.part = part

    def size(self):
        return len(self.part[0])


def test_no_cluster(monkeypatch):
    def none():
        raise ValueError("No clients found")

    monkeypatch.setattr("fastm4n.distributed.dask._estimators.default_client", none)
    with pytest.raises(ValueError, match="there is no Dask client"):
        DaskMulticlassClassifier().fit(pairs(X, Y["classes"]))
    with cluster_of() as client:
        pass
    with pytest.raises(ClusterGone, match="closed"):
        DaskMulticlassClassifier(client=client).fit(pairs(X, Y["classes"]))
    with cluster_of(n_workers=0) as client:
        with pytest.raises(ClusterGone, match="no worker for 0.5 s"):
            DaskMulticlassClassifier(client=client, timeout=0.5).fit(pairs(X, Y["classes"]))


# ---------------------------------------------------------------------- ends of a fit


def test_interrupt(client):
    """Ctrl-C leaves the last certified round, and workers that can be asked again."""
    def act():
        threading.Timer(0.1, _thread.interrupt_main).start()

    tagger = on_dask(
        SequenceTagger(alpha=1e-3, random_state=0, tol=0.0), max_iter=10**6, local_passes=50.0,
        callback=at_round(2, act))
    with pytest.warns(ConvergenceWarning, match=r"Interrupted after \d+ rounds .* gap is"):
        tagger.fit(pairs(SENTENCES, TAGS))
    assert tagger.n_iter_ >= 2
    local = SequenceTagger(alpha=1e-3, random_state=0, tol=1e-4).fit(SENTENCES, TAGS)
    assert tagger.primal_objective_ - tagger.duality_gap_ <= local.primal_objective_
    assert tagger.primal_objective_ >= local.dual_objective_ - 1e-12
    on_dask(SequenceTagger("log", alpha=0.1)).fit(pairs(SENTENCES, TAGS))


def test_cluster_goes():
    """Of a cluster that goes during the fit the last certified round is kept."""
    with LocalCluster(**THREADS) as cluster, Client(cluster) as client:
        tagger = on_dask(
            SequenceTagger("log", alpha=0.1, random_state=0, tol=0.0), client=client,
            callback=at_round(3, cluster.close), timeout=5.0)
        with pytest.raises(NoMember, match="model of the last certified round is kept"):
            tagger.fit(pairs(SENTENCES, TAGS))
        assert tagger.n_iter_ == 3 and np.isfinite(tagger.duality_gap_)
        assert len(tagger.to_local().predict(SENTENCES)) == len(SENTENCES)


@pytest.mark.parametrize("method", ["census", "begin", "describe", "template", "start"])
def test_lost_before_the_rounds(monkeypatch, method):
    """A worker that goes before there are rounds changes nothing of the result."""
    local = SequenceTagger("log", alpha=0.1, random_state=0)
    call, gone = DaskFleet._call, []

    def removing(fleet, name, *args):
        if name == method and not gone:
            gone.append(fleet.addresses[1])
            remove(fleet.client, gone[0])
            while all(fleet.alive()):
                time.sleep(0.01)
        return call(fleet, name, *args)

    with cluster_of() as client:
        whole = on_dask(local, client=client).fit(pairs(SENTENCES, TAGS))
        monkeypatch.setattr(DaskFleet, "_call", removing)
        found = on_dask(local, client=client).fit(pairs(SENTENCES, TAGS))
    assert gone
    assert_array_equal(found.coef_, whole.coef_)


def test_lost_for_good():
    """Scattered data that are gone end the fit: no certificate is claimed without them."""
    with cluster_of() as client:
        parts = client.scatter([(SENTENCES[:10], TAGS[:10]), (SENTENCES[10:], TAGS[10:])], hash=False)

        def act():
            for holder in client.who_has(parts[1])[parts[1].key]:
                remove(client, holder)

        tagger = on_dask(
            SequenceTagger("log", alpha=0.1, random_state=0, tol=0.0), client=client,
            callback=at_round(3, act), timeout=2.0)
        # both workers may have held it
        with pytest.warns(RuntimeWarning, match="was lost"):
            with pytest.raises(NoMember, match=r"partition \d is lost|no worker for 2 s"):
                tagger.fit(parts)
        assert tagger.n_iter_ == 3


def test_killed_worker():
    """A worker is killed: the certificate is of the whole problem, at the same optimum."""
    import psutil

    before = set(psutil.Process().children(recursive=True))
    X, y = SENTENCES * 4, TAGS * 4
    local = SequenceTagger("log", alpha=0.02, random_state=0, tol=1e-8).fit(X, y)
    with cluster_of(processes=True, host="127.0.0.1") as client:
        pids = client.run(os.getpid)
        tagger = on_dask(
            SequenceTagger("log", alpha=0.02, random_state=0, tol=1e-7), client=client,
            callback=at_round(4, lambda: os.kill(min(pids.values()), signal.SIGKILL)))
        with pytest.warns(RuntimeWarning, match="worker . was lost"):
            tagger.fit(pairs(X, y, 4))
    assert tagger.history_["lost"][-1] == 1 and tagger.relative_gap_ <= 1e-7
    assert tagger.primal_objective_ == pytest.approx(local.primal_objective_, rel=1e-6)
    assert tagger.primal_objective_ - local.dual_objective_ <= (
        tagger.duality_gap_ + local.duality_gap_)
    left = [child for child in set(psutil.Process().children(recursive=True)) - before
            if child.is_running() and "resource_tracker" not in " ".join(child.cmdline())]
    assert not left


def test_workers_that_go_while_members_are_made(monkeypatch):
    """As where a cluster was scaled down just before: who is there makes them again."""
    find, gone = DaskFleet._find_ways, []

    def find_ways(self, members):
        if not gone:
            gone.append(self.addresses[members[0]])
            remove(self.client, gone[0])
        return find(self, members)

    monkeypatch.setattr(DaskFleet, "_find_ways", find_ways)
    with cluster_of(n_workers=3):
        model = DaskMulticlassClassifier("log", random_state=0).fit(pairs(X, Y["classes"]))
    assert gone and model.relative_gap_ <= model.tol_
