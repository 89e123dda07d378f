"""A short run of `fuzz.py` over all that reads files; the long ones are by hand."""

import os
import random
import signal

import mutations
import pytest

fuzz = pytest.importorskip("fuzz", reason="there is no fork, or no limit of resources.")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork.")
def test_damaged_files_are_refused_or_harmless(tmp_path, capsys):
    code = fuzz.main([
        "--target", "all", "--seed", "7", "--cases", "100", "--keep", str(tmp_path / "kept")])
    out = capsys.readouterr().out
    assert code == 0, out
    for target in fuzz.TARGETS:
        assert f"{target}: 100 cases" in out or f"{target}: left out" in out


def test_counts_are_claimed_in_all_places_or_some_and_lists_lie_in_lists():
    rng, found, texts = random.Random(0), [], []
    for _ in range(2000):
        document = {"shape": [7, 2], "columns": 7, "size": 7}
        mutations.claim(rng, document)
        found.append(document)
        texts.append(mutations.dumped(rng, {"shape": [7, 2]}))
    assert {"shape": [10**9, 2], "columns": 10**9, "size": 7} in found
    assert {"shape": [float("inf"), 2], "columns": 7, "size": 7} in found
    assert any(text.count(b"[") > 10_000 for text in texts)
    assert max(texts, key=len) != min(texts, key=len) == b'{"shape": [7, 2]}'


class Bad(fuzz.TARGETS["conll"].__class__):
    """A reader that does what `error` says."""

    error = None

    def run(self, case, path):
        if self.error is None:
            os.kill(os.getpid(), signal.SIGKILL)
        raise self.error


@pytest.mark.parametrize("error, kind", [
    (KeyError("x"), "KeyError at test_fuzz.py"),
    (ValueError(), "ValueError without a message"),
    (ValueError("Unable to allocate 3 PiB"), "a refusal for want of memory"),
    (MemoryError(), "MemoryError at"), (ValueError("line 3: no number"), None),
    (FileNotFoundError("a.txt"), None),
])
def test_what_is_a_finding(error, kind):
    target = Bad(["a\n"], (), None)
    target.error = error
    found = fuzz.outcome(target, b"", None, fuzz.Shared())
    assert found is None if kind is None else found[0].startswith(kind)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork.")
def test_crashes_are_told_with_their_files(tmp_path, monkeypatch):
    monkeypatch.setitem(fuzz.TARGETS, "bad", Bad(["a\n"], (), None))
    fuzzing = fuzz.Fuzzing("bad", 0, tmp_path / "kept")
    assert fuzzing.run(5, 1, None) == 1
    assert list(fuzzing.findings) == ["crash by signal 9"]
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name == "bad-0-5"
    assert kept.read_bytes() == fuzz.case_of(fuzzing.target, "bad", 0, 5)
