"""Model files of CRFsuite: what is read of them, and that bad ones are refused."""

import copy
import json
import pickle
import random
import re
import struct
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
from crfsuite_files import model_file, mutated, patched
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import SequenceTagger, save_model
from fastm4n import load_model as load_ours
from fastm4n.base.array_files import ModelFileError
from fastm4n.cli import main
from fastm4n.crfsuite import _models as models
from fastm4n.crfsuite import load_model, read_crfsuite_model
from fastm4n.crfsuite._records import weights_of_records

FOLDER = Path(__file__).parent / "crfsuite_model"
SMALL = (FOLDER / "model.crfsuite").read_bytes()
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
GIVEN = [each["tokens"] for each in EXPECTED["sentences"]]
# of what is read, and of a tagger, beside the length of a file; small files take more for objects
TIMES = 14

LABELS = ["b", "a", "c"]
ATTRIBUTES = ["x", "ü", "y:z", "w"]
STATE = [(0, 0, 0.5), (0, 2, -1.5), (1, 1, 2.0), (2, 0, 1e-3), (3, 2, 0.25)]
TRANSITIONS = [(0, 1, 0.75), (1, 1, -0.5), (2, 0, 3.0)]


def a_file(**options):
    return model_file(LABELS, ATTRIBUTES, STATE, TRANSITIONS, **options)


def check_small(tagger):
    assert tagger.classes_.tolist() == EXPECTED["labels"]
    predicted, marginals = tagger.predict(GIVEN), tagger.predict_marginals(GIVEN)
    for i, expected in enumerate(EXPECTED["sentences"]):
        assert predicted[i].tolist() == expected["tags"]
        if expected["tags"]:
            assert_allclose(marginals[i], expected["marginals"], rtol=0, atol=1e-9)


def test_what_python_crfsuite_found():
    assert {tag for each in EXPECTED["sentences"] for tag in each["tags"]} == {"B", "I", "O"}
    check_small(load_model(FOLDER / "model.crfsuite"))
    check_small(load_model(str(FOLDER / "model.crfsuite")))
    for content in (SMALL, bytearray(SMALL), memoryview(SMALL)):
        check_small(load_model(content))


@pytest.mark.parametrize("options", [
    {}, {"order": ">"}, {"shuffled": random.Random(0)}, {"shuffled": random.Random(1)},
    {"encoding": "latin-1"},
])
def test_arrays_are_those_of_the_file(options):
    content, _ = a_file(**options)
    model = read_crfsuite_model(content, encoding=options.get("encoding", "utf-8"))
    assert model.labels == LABELS and model.attributes == ATTRIBUTES
    assert_array_equal(model.starts, [0, 2, 3, 4, 5])
    assert_array_equal(model.state_labels, [label for _, label, _ in STATE])
    assert_array_equal(model.state_weights, [weight for *_, weight in STATE])
    found = list(zip(model.sources.tolist(), model.targets.tolist(), model.transition_weights))
    assert found == TRANSITIONS


def test_fitted_weights():
    tagger = load_model(a_file()[0])
    coef = np.zeros((3, 4))
    for attribute, label, weight in STATE:
        coef[label, attribute] = weight
    transitions = np.zeros((3, 3))
    for source, target, weight in TRANSITIONS:
        transitions[source, target] = weight
    assert_array_equal(tagger.coef_, coef)
    assert_array_equal(tagger.transition_coef_, transitions)
    for ends in (tagger.intercept_, tagger.start_coef_, tagger.end_coef_):
        assert_array_equal(ends, np.zeros(3))
    assert tagger.n_features_in_ == 4 and tagger.n_nonzero_ == 5
    assert tagger.vectorizer_.feature_names_ == ATTRIBUTES


def test_the_tagger_does_what_fitted_ones_do(tmp_path):
    tagger = load_model(SMALL)
    truth = [each["tags"] for each in EXPECTED["sentences"]]
    assert tagger.score(GIVEN, truth) == 1.0
    labellings, scores = tagger.predict_kbest(GIVEN, 3)
    assert [best[0].tolist() for best in labellings] == truth
    assert all((np.diff(of) <= 0).all() for of in scores)
    explained = tagger.explain(n_strongest=5)
    names = set(tagger.vectorizer_.feature_names_)
    assert explained.emissions and all(name in names for *_, name in explained.emissions)
    for copied in (copy.deepcopy(tagger), pickle.loads(pickle.dumps(tagger))):
        check_small(copied)
    fresh = load_model(SMALL)
    save_model(fresh, tmp_path / "m.fm4n")
    loaded = load_ours(tmp_path / "m.fm4n")
    check_small(loaded)
    # neither predicting nor saving makes weights of all pairs
    assert "_of_pairs" in vars(fresh) and "_of_pairs" in vars(loaded)
    assert_array_equal(loaded.coef_, tagger.coef_)
    # nothing is known of a fit, and one can be made
    with pytest.raises(AttributeError, match="no fit has found these weights"):
        tagger.duality_gap_  # noqa: B018
    for name in ("duality_gap_", "alpha_", "history_", "n_iter_", "primal_objective_"):
        assert not hasattr(tagger, name) and not hasattr(loaded, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger.set_params(max_iter=1).fit(GIVEN[:-1], truth[:-1])
    assert tagger.duality_gap_ >= 0 and tagger.history_
    with pytest.raises(AttributeError, match="has no attribute 'duality_gap_'"):
        SequenceTagger().duality_gap_  # noqa: B018


def test_ties_go_as_in_crfsuite():
    # nothing speaks for a label: the first of the file, which is not the first of the alphabet
    tagger = load_model(model_file(["b", "a"], ["x"], [(0, 0, 1.0)], [])[0])
    assert tagger.predict([[["unknown"], ["x"], []]])[0].tolist() == ["b", "b", "b"]


# ---------------------------------------------------------------------------- beside the original


def random_data(n, seed, labels, lengths=(0, 1, 2, 5, 60)):
    """Sentences of dicts with values, booleans, lists and dicts, in several scripts."""
    rng = random.Random(seed)
    words = ["a", "β", "語", "😀", "x y", "a:b", "tab\t", "long" * 40, "é", ""]
    sentences, tags = [], []
    for _ in range(n):
        length = rng.choice(lengths)
        sentences.append([
            {"w": rng.choice(words), "n": rng.gauss(0, 1), "on": rng.random() < 0.5,
             "s": rng.sample(words, rng.randrange(3)), "d": {"k": rng.choice(words), "v": 0.5},
             rng.choice(words): 1.0}
            if rng.random() < 0.9 else {} for _ in range(length)])
        tags.append([rng.choice(labels) for _ in range(length)])
    return sentences, tags


def compared(path, sentences):
    """The largest difference of marginals; tags have to be the same."""
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    tagger, original = load_model(path), pycrfsuite.Tagger()
    original.open(str(path))
    labels = tagger.classes_.tolist()
    assert labels == original.labels()
    predicted, marginals = tagger.predict(sentences), tagger.predict_marginals(sentences)
    largest = 0.0
    for i, sentence in enumerate(sentences):
        assert predicted[i].tolist() == original.tag(sentence)
        for t in range(len(sentence)):
            theirs = [original.marginal(label, t) for label in labels]
            largest = max(largest, np.abs(marginals[i][t] - theirs).max())
    return largest


@pytest.mark.parametrize("labels", [["N"], ["N", "Ü"], list("OBIabcdefghij"), None],
                         ids=["1", "2", "13", "80"])
@pytest.mark.parametrize("algorithm", ["lbfgs", "l2sgd", "ap", "pa", "arow"])
def test_as_python_crfsuite(tmp_path, algorithm, labels):
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    labels = labels or [f"label {i}" for i in range(80)]
    sentences, tags = random_data(40, 0, labels)
    trainer = pycrfsuite.Trainer(algorithm, verbose=False)
    for given, truth in zip(sentences, tags):
        trainer.append(given, truth)
    trainer.set("max_iterations", 5)
    trainer.train(str(tmp_path / "model"))
    new, _ = random_data(20, 1, labels)
    assert compared(tmp_path / "model", sentences[:10] + new) <= 1e-9


@pytest.mark.parametrize("parameters", [
    {"feature.minfreq": 3}, {"feature.possible_states": 1, "feature.possible_transitions": 1},
    {"c1": 1.0, "c2": 0.0},
], ids=str)
def test_as_python_crfsuite_with_parameters(tmp_path, parameters):
    pycrfsuite = pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    sentences, tags = random_data(40, 2, ["N", "V", "D"])
    trainer = pycrfsuite.Trainer("lbfgs", {**parameters, "max_iterations": 20}, verbose=False)
    for given, truth in zip(sentences, tags):
        trainer.append(given, truth)
    trainer.train(str(tmp_path / "model"))
    assert compared(tmp_path / "model", sentences) <= 1e-9


# ------------------------------------------------------------------------------------ refused


def places(content):
    """Where FEAT, labels, attributes, LFRF and AFRF begin."""
    return struct.unpack_from("<12I", content)[7:]


def refused(content, *words):
    with pytest.raises(ModelFileError) as caught:
        read_crfsuite_model(content)
    for word in words:
        assert word in str(caught.value)


def test_files_that_are_no_models(tmp_path):
    refused(b"", "is empty")
    refused(b"lC", "cut off")
    refused(b"<html>" + bytes(100), "not a model of CRFsuite", "b'<htm'")
    refused(b"\x1f\x8b" + bytes(100), "gzip")
    refused(b"\x93FASTM4N" + bytes(100), "fastm4n.load_model")
    refused(patched(SMALL, 8, b"SOMC", "4s"), "b'SOMC'", "byte 8")
    refused(patched(SMALL, 12, 110), "version 110", "byte 12")
    refused(SMALL[:-1], "cut off", f"{len(SMALL) - 1} bytes of {len(SMALL)}")
    refused(SMALL + b"\0", "1 more follow")
    path = tmp_path / "a folder"
    path.mkdir()
    with pytest.raises(ModelFileError, match="a folder is not a regular file"):
        load_model(path)
    path = tmp_path / "cut.model"
    path.write_bytes(SMALL[:100])
    with pytest.raises(ModelFileError, match=r"cut\.model is cut off: it has 100 bytes"):
        load_model(path)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none")
    with pytest.raises(ModelFileError, match="fastm4n.crfsuite.load_model"):
        load_ours(FOLDER / "model.crfsuite")


def test_what_is_wrong_is_named():
    content, at = a_file()
    feat, labels, attributes = at["FEAT"], at["labels"], at["attributes"]
    n = len(STATE) + len(TRANSITIONS)
    first = feat + 12 + 20 * len(TRANSITIONS)  # of attributes

    def bad(offset, value, *words, format="<I", told=None):
        at = offset if told is None else told
        refused(patched(content, offset, value, format), f"byte {at}:", "copy", *words)

    bad(4, len(content) - 1, "the header", "1 more follow")
    bad(20, 0, "there are no labels")
    refused(patched(content, 28, 2**31), "header", "byte 28", "FEAT")
    bad(feat, b"FEAR", "FEAT", "b'FEAR'", format="4s")
    bad(feat + 4, 2**31, "FEAT")
    bad(feat + 4, 12 + 20 * n + 20, "FEAT", f"{n} weights")
    refused(patched(content, feat + 8, n + 1), "FEAT", f"{n + 1} weights")
    refused(patched(content, 16, n + 1), "FEAT", f"{n + 1} by the header")
    bad(first, 2, "weight 3 is of type 2")
    bad(first + 4, 4, "weight 3", "attribute or label 4")
    bad(first + 8, 3, "weight 3 is of label 3")
    bad(first + 12, np.nan, "weight 3 must be finite", "nan", format="<d")
    bad(first + 12, -np.inf, "weight 3 must be finite, got -inf", format="<d")
    twice = patched(content, first + 20 + 8, STATE[0][1])
    refused(twice, f"byte {first + 20}", "weight 4 repeats weight 3")

    bad(labels, b"CQDC", "CQDB of labels", "b'CQDC'", format="4s")
    bad(labels + 4, 2**31, "CQDB of labels")
    bad(labels + 12, 0, "byte order")
    bad(attributes + 16, 3, "array of 3 records")
    refused(patched(content, attributes + 20, 2**31), "CQDB of attributes", "records at byte")
    records = attributes + 2072
    bad(records, 9, "CQDB of attributes", "record of number 0 has number 9")
    bad(records + 4, 0, "name 0 does not end", told=records)
    bad(records + 4, 2**31, "name 0, of 2147483648 bytes", told=records)
    refused(patched(content, records + 8, 0, "B"), "NUL")
    refused(patched(content, records + 9, 65, "B"), "NUL")
    array = attributes + struct.unpack_from("<I", content, attributes + 20)[0]
    bad(array + 4, 0, "number 1 has its record at byte")
    bad(array + 4, 2**31, "number 1 has its record at byte")
    refused(
        patched(content, array + 4, struct.unpack_from("<I", content, array)[0]),
        "CQDB of attributes", f"byte {records}")

    for tag, n_items, what in (("LFRF", 5, "label"), ("AFRF", 4, "attribute")):
        at_tag = at[tag]
        bad(at_tag, b"XFRF", tag, format="4s")
        bad(at_tag + 8, n_items + 1, tag, f"{n_items + 1} items")
        bad(at_tag + 4, 12, tag, "a chunk of 12 bytes")
        bad(at_tag + 12, 2**31, tag, f"{what} 0", "byte 2147483648")
        bad(at_tag + 12, at_tag + 13, tag, f"{what} 0")
        first_list, = struct.unpack_from("<I", content, at_tag + 12)
        bad(first_list, 2**31, tag, f"{what} 0", "2147483648 weights")
        refused(patched(content, first_list, 0), tag, "weights in all")
        bad(first_list + 4, n, tag, f"weight {n} is repeated")
        bad(first_list + 4, 7 if tag == "AFRF" else 1, tag, f"one of {what} 0")


def test_names_that_are_wrong():
    content, _ = model_file(["a", "b"], [b"caf\xe9", "x"], [(0, 0, 1.0), (1, 1, 1.0)], [])
    refused(content, "CQDB of attributes", r"b'caf\xe9'", "not utf-8", "encoding='latin-1'")
    assert load_model(content, encoding="latin-1").vectorizer_.feature_names_ == ["café", "x"]
    for encoding in ("no such", 3, "utf-16", "rot13"):
        with pytest.raises(ValueError, match="encoding="):
            load_model(content, encoding=encoding)
    content, _ = model_file(["a", "a"], ["x"], [(0, 0, 1.0)], [])
    refused(content, "CQDB of labels", "'a' occurs twice")
    content, _ = model_file(["a", "b"], ["x", "x"], [(0, 0, 1.0), (1, 0, 1.0)], [])
    refused(content, "CQDB of attributes", "'x' occurs twice")


def test_sizes_that_memory_is_not_taken_for():
    many = patched(SMALL, 20, 60_000)
    huge = patched(patched(SMALL, 24, 2**32 - 1), places(SMALL)[0] + 8, 2**32 - 1)
    refused(many, "60000 labels")
    tracemalloc.start()
    try:
        for content in (many, huge, patched(SMALL, places(SMALL)[4] + 8, 2**32 - 1)):
            with pytest.raises(ModelFileError):
                read_crfsuite_model(content)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_memory_of_a_large_file():
    n, R = 30_000, 40
    rng = np.random.default_rng(0)
    content, _ = model_file(
        [f"label {i}" for i in range(R)], [f"attribute number {i}" for i in range(n)],
        [(i, int(label), 1.0) for i, label in enumerate(rng.integers(0, R, n))],
        [(i, i, 1.0) for i in range(R)])
    tracemalloc.start()
    try:
        tagger = load_model(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < TIMES * len(content)
    assert tagger.predict([[["attribute number 29999"]]])[0].size == 1


def test_every_truncation():
    for length in range(len(SMALL)):
        with pytest.raises(ModelFileError):
            read_crfsuite_model(SMALL[:length])
        # and with a header that knows of it
        if length >= 48:
            with pytest.raises(ModelFileError):
                read_crfsuite_model(patched(SMALL, 4, length)[:length])


@pytest.mark.parametrize("start", range(0, 600, 300))
def test_mutations(start):
    """A ModelFileError, or a tagger that tags, in memory that goes by the file's length."""
    contents = SMALL, a_file()[0], a_file(shuffled=random.Random(2), order=">")[0]
    n_loaded = 0
    load_model(SMALL)  # what is made once
    tracemalloc.start()
    try:
        for seed in range(start, start + 300):
            content = mutated(contents[seed % 3], seed)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                with np.errstate(all="raise"):
                    tagger = load_model(content)
            except ModelFileError as error:
                assert "byte" in str(error) or "not a model of CRFsuite" in str(error)
                continue
            finally:
                peak = tracemalloc.get_traced_memory()[1] - before
                assert peak < TIMES * max(len(content), 4096)
            n_loaded += 1
            with np.errstate(all="ignore"):
                tagger.predict_marginals(GIVEN[:2])
    finally:
        tracemalloc.stop()
    assert 15 < n_loaded < 285


@pytest.mark.parametrize("seed", range(3))
def test_files_as_crfsuite_writes_them_are_read_as_others_are(seed, monkeypatch):
    """The short way is taken, and what it reads or refuses is what the long one does."""
    contents = [SMALL, *(mutated((SMALL, a_file()[0])[i % 2], 1000 * seed + i) for i in range(200))]

    def read(content):
        try:
            return read_crfsuite_model(content)
        except ModelFileError as error:
            return str(error)

    taken = []

    def counted(*given):
        taken.append(weights_of_records(*given))
        return taken[-1]

    monkeypatch.setattr(models, "weights_of_records", counted)
    found = list(map(read, contents))
    assert taken[0] is not None and sum(of is None for of in taken) > 10
    monkeypatch.setattr(models, "weights_of_records", lambda *given: None)
    monkeypatch.setattr(models, "names_of_records", lambda *given: None)
    n_same = 0
    for one, other in zip(found, map(read, contents), strict=True):
        assert type(one) is type(other)
        if isinstance(one, str):
            assert one == other
            continue
        n_same += 1
        for part, (here, there) in zip(one._fields, zip(one, other, strict=True), strict=True):
            assert_array_equal(here, there, err_msg=part)
    assert n_same > 10


# ------------------------------------------------------------------------------- the command line


def call(capsys, *args):
    try:
        code = main([str(arg) for arg in args])
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def test_convert(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.crfsuite").write_bytes(SMALL)
    code, out, err = call(capsys, "convert", "m.crfsuite", "--model", "m.fm4n")
    assert code == 0 and not err
    tagger = load_model(SMALL)
    assert f"3 labels, {tagger.n_features_in_} attributes" in out and "alpha" not in out
    check_small(load_ours("m.fm4n"))
    code, out, _ = call(capsys, "convert", "m.crfsuite", "--model", "m.fm4n", "--json")
    document = json.loads(out)
    assert document["labels"] == EXPECTED["labels"] and document["n_nonzero"] == tagger.n_nonzero_
    assert "gap" not in document and "alpha" not in document
    # what it is told of, and what it tags
    for name in ("m.crfsuite", "m.fm4n"):
        code, out, _ = call(capsys, "info", name)
        assert code == 0 and "B, O, I" in out and "gap" not in out
    Path("new.crfsuite").write_text("O\tword\\:ada\tcapital\n\nO\tword\\:the\n", encoding="utf-8")
    code, out, _ = call(capsys, "predict", "m.fm4n", "new.crfsuite")
    assert code == 0 and out.split() == [
        label for tags in tagger.predict([[["word:ada", "capital"]], [["word:the"]]]) for label in tags]


def test_convert_refuses(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.crfsuite").write_bytes(SMALL)
    Path("old.fm4n").write_bytes(b"what was there")
    code, _, err = call(capsys, "convert", "m.crfsuite", "--model", "./m.crfsuite")
    assert code == 2 and "would overwrite" in err and Path("m.crfsuite").read_bytes() == SMALL
    Path("cut").write_bytes(SMALL[:200])
    code, _, err = call(capsys, "convert", "cut", "--model", "old.fm4n")
    assert code == 1 and err.startswith("fastm4n convert: error: cut is cut off")
    assert len(err.splitlines()) == 1 and Path("old.fm4n").read_bytes() == b"what was there"
    code, _, err = call(capsys, "convert", "m.crfsuite")
    assert code == 2 and "--model" in err
    code, _, err = call(capsys, "convert", "m.crfsuite", "--model", "x", "--encoding", "none")
    assert code == 1 and "encoding='none'" in err
    code, _, err = call(capsys, "predict", "m.crfsuite", "new")
    assert code == 1 and "fastm4n convert" in err


def test_the_section_of_the_page_runs(tmp_path, capsys, monkeypatch):
    page = Path(__file__).resolve().parents[1] / "docs" / "crfsuite.md"
    section = page.read_text("utf-8").split("## Models that exist already")[1].split("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    Path("model.crfsuite").write_bytes(SMALL)
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S):
        exec(compile(block, str(page), "exec"), {"__name__": "page"})
    assert "transitions" in capsys.readouterr().out and Path("model.fm4n").is_file()
