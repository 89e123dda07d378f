"""What does not fit in memory is refused before the work, by name, size and remedy."""

import numpy as np
import pytest
from estimator_cases import CASES, SURROGATES
from numpy.testing import assert_array_equal
from processes import run_code

from fastm4n import BlockFrankWolfe, MulticlassClassifier, SequenceTagger, regularization_path
from fastm4n.base import memory as _memory
from fastm4n.base.memory import available, refuse_beyond_memory
from fastm4n.inference import viterbi_kbest


@pytest.fixture
def no_memory(monkeypatch):
    monkeypatch.setattr(_memory, "LITTLE", 0)
    monkeypatch.setattr(_memory, "available", lambda: 8)


def machine(monkeypatch, tmp_path, **files):
    """A machine whose system says this, files by their names, "__" being a slash."""
    for name, text in files.items():
        file = tmp_path.joinpath(*name.split("__"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(_memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(_memory, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(_memory, "_of_limit", lambda: None)


MEMINFO = "MemTotal:  4000 kB\nMemFree:  1000 kB\nMemAvailable:   3000 kB\n"


def test_memory_of_the_machine(monkeypatch, tmp_path):
    machine(monkeypatch, tmp_path, proc__meminfo=MEMINFO)
    assert available() == 3000 << 10


def test_memory_of_groups(monkeypatch, tmp_path):
    """Those above count as well, and what the system can drop does not count as taken."""
    stat = "anon 9000\ninactive_file 1000\n"
    machine(monkeypatch, tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/a/b\n", **{
        "groups__a__memory.max": "900000\n", "groups__a__memory.current": "600000",
        "groups__a__memory.stat": stat, "groups__a__b__memory.max": "max\n",
        "groups__a__b__memory.current": "600000", "groups__a__b__memory.stat": stat})
    assert available() == 301_000


def test_memory_of_a_container(monkeypatch, tmp_path):
    """Its group is named as it is outside; the first version has other files."""
    machine(
        monkeypatch, tmp_path, proc__meminfo=MEMINFO,
        proc__self__cgroup="4:cpu:/docker/1\n7:memory:/docker/1\n0::/\n", **{
            "groups__memory__memory.limit_in_bytes": "900000",
            "groups__memory__memory.usage_in_bytes": "600000",
            "groups__memory__memory.stat": "total_inactive_file 1000\n"})
    assert available() == 301_000


def test_unknown_memory(monkeypatch, tmp_path):
    """Nothing is refused."""
    machine(monkeypatch, tmp_path, proc__meminfo="Mem: 1\n")
    monkeypatch.setattr(_memory.os, "sysconf", lambda name: 100)
    assert available() == 100 * 100
    monkeypatch.delattr(_memory.os, "sysconf")
    assert available() is None
    refuse_beyond_memory("Numbers", 1e30, "take fewer")


def test_message(no_memory):
    with pytest.raises(MemoryError) as refused:
        refuse_beyond_memory("the numbers", 3 << 30, "take fewer of them")
    assert str(refused.value) == (
        "the numbers take 3 GiB of memory, and 7.45e-09 GiB are available: take fewer of them.")


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_fits(case, surrogate, no_memory):
    what = r"(dual points of \d+|weights in \d+ rows) .* GiB .* available: .*fewer"
    with pytest.raises(MemoryError, match=what):
        case.fit(surrogate)
    with pytest.raises(MemoryError, match=what):
        regularization_path(case.cls(surrogate), case.X, case.y)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_refused_fit_leaves_the_last_one(case, monkeypatch):
    fit = case.fit()
    with monkeypatch.context() as patch:
        patch.setattr(_memory, "LITTLE", 0)
        patch.setattr(_memory, "available", lambda: 8)
        with pytest.raises(MemoryError):
            fit.fit(case.X, case.y)
    again = case.fit()
    assert all(map(np.array_equal, fit.predict(case.X), again.predict(case.X)))
    assert fit.duality_gap_ == again.duality_gap_


def test_weights(no_memory, monkeypatch):
    """Also where dual points fit."""
    case = CASES["SequenceTagger"]
    monkeypatch.setattr(_memory, "available", lambda: 10_000)
    X = [np.ones((2, 500))] * 2
    with pytest.raises(MemoryError, match="weights in 506 rows .*fewer features"):
        case.cls("max_margin").fit(X, [["a", "b"], ["c", "a"]])


def test_gram_matrix(no_memory, monkeypatch):
    case = CASES["MulticlassClassifier"]
    monkeypatch.setattr(_memory, "available", lambda: 24 * len(case.X))
    with pytest.raises(MemoryError, match="the values of kernel='rbf' .*cache_size"):
        case.fit(kernel="rbf")


@pytest.mark.parametrize("name", ["MulticlassClassifier", "SequenceTagger", "GraphTagger"])
def test_predictions(name, monkeypatch):
    case = CASES[name]
    fit = case.fit("log")
    monkeypatch.setattr(_memory, "LITTLE", 0)
    monkeypatch.setattr(_memory, "available", lambda: 8)
    with pytest.raises(MemoryError, match="fewer"):
        getattr(fit, case.probabilities)(case.X)


def test_k_best(no_memory):
    with pytest.raises(MemoryError, match="the 9 best labellings of 4 positions x 2 labels"):
        viterbi_kbest(np.zeros((4, 2)), np.zeros((2, 2)), 9)


@pytest.mark.parametrize(("surrogate", "parameters", "length", "remedy"), [
    ("max_margin", {}, 1, "MulticlassClassifier"), ("log", {}, 2, "states='observed'"),
    ("log", {"states": "observed"}, 2, "available: fit fewer"), ("max_min", {}, 2, "OutOfCore"),
    ("max_margin", {}, 2, "give states='observed'.* or fit fewer"),
    ("max_margin", {"warm_start": True}, 2, "give states='observed'.* or fit fewer"),
])
def test_remedies(surrogate, parameters, length, remedy, no_memory):
    X, y = [np.eye(3)[:length]] * 2, [["a", "b"][:length], ["b", "a"][:length]]
    with pytest.raises(MemoryError, match=remedy):
        SequenceTagger(surrogate, **parameters).fit(X, y)


def test_observed_states_are_a_remedy(monkeypatch):
    """Of the pairs of labels those in y are held alone."""
    monkeypatch.setattr(_memory, "LITTLE", 0)
    monkeypatch.setattr(_memory, "available", lambda: 120_000)
    n = 40
    X, y = [np.eye(n)[[i, (i + 1) % n]] for i in range(n)], [
        [str(i), str((i + 1) % n)] for i in range(n)]
    for surrogate in "log", "max_margin":
        with pytest.raises(MemoryError, match="states='observed'"):
            SequenceTagger(surrogate, max_iter=1, tol=0.99).fit(X, y)
        SequenceTagger(surrogate, states="observed", max_iter=1, tol=0.99).fit(X, y)


def test_transitions_are_listed_as_they_come(monkeypatch):
    """Dual points of few outputs each, unless a later fit goes on from them."""
    monkeypatch.setattr(_memory, "LITTLE", 0)
    monkeypatch.setattr(_memory, "available", lambda: 30_000_000)
    n = 300
    X, y = [np.eye(n)[[i, (i + 1) % n]] for i in range(n)], [
        [str(i), str((i + 1) % n)] for i in range(n)]
    tagger = SequenceTagger("max_margin", max_iter=1, tol=0.99, random_state=0).fit(X, y)
    assert tagger.dual_objective_ <= tagger.primal_objective_
    for given in {"warm_start": True}, {"solver": BlockFrankWolfe(step="fixed")}:
        with pytest.raises(MemoryError, match="states='observed'"):
            SequenceTagger("max_margin", **given).fit(X, y)
    with pytest.raises(MemoryError, match="states='observed'"):
        regularization_path(SequenceTagger("max_margin"), X, y)


MANY_LABELS = """
import resource, sys
from fastm4n import SequenceTagger
taggers = [SequenceTagger(surrogate, max_iter=2) for surrogate in sys.argv[1:]]
for tagger in taggers:
    tagger.fit([[["a"]], [["b"]]], [["a"], ["b"]])  # what a first fit imports
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
n = 3000
for tagger in taggers:
    try:
        tagger.fit([[[f"w{i}"]] for i in range(n)], [[f"l{i}"] for i in range(n)])
    except MemoryError as error:
        print(error)
"""


def test_many_labels():
    """Before 70 MiB are taken, what the weights of their transitions are."""
    pytest.importorskip("resource")
    done = run_code(MANY_LABELS, "max_min", "log")
    assert done.returncode == 0, done.stderr
    for message, size in zip(done.stdout.splitlines(), (201, 101), strict=True):
        assert "27009000000 numbers in all" in message and "MulticlassClassifier" in message
        assert f"{size} GiB" in message


def test_classifier_of_the_same_tokens():
    """The remedy works."""
    n = 50
    fit = MulticlassClassifier("max_margin", alpha=0.1).fit(np.eye(n), np.arange(n))
    assert_array_equal(fit.predict(np.eye(n)), np.arange(n))
