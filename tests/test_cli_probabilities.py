"""The command evaluate with --probabilities: losses, and how often probable labels are right."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_cases import DATA, SENTENCES, call, write_all
from numpy.testing import assert_allclose

from fastm4n import Graphs, load_model
from fastm4n.metrics import spans


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ran(capsys, *arguments):
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    return json.loads(out) if "--json" in arguments else out


def calibration_error(probabilities, right):
    """By its definition, in ten bins."""
    bins = {}
    for p, is_right in zip(probabilities, right, strict=True):
        bins.setdefault(min(int(10 * p), 9), []).append((p, is_right))
    return sum(abs(sum(p for p, _ in own) - sum(r for _, r in own)) for own in bins.values()) / len(
        probabilities)


def check(found, names, rows, truth):
    """Compare a result with rows of probabilities and true labels."""
    scores = found["scores"]
    top = [max(row) for row in rows]
    likeliest = [names[row.index(max(row))] for row in rows]
    own = [row[names.index(label)] if label in names else 0.0
           for row, label in zip(rows, truth, strict=True)]
    losses = [-math.log(p) for p, label in zip(own, truth, strict=True) if label in names]
    assert_allclose(scores["log_loss"], np.mean(losses))
    assert_allclose(scores["true_probability"], np.mean(own))
    right = [a == b for a, b in zip(likeliest, truth, strict=True)]
    assert_allclose(scores["calibration_error"], calibration_error(top, right))
    assert [row["label"] for row in found["reliability"]] == names
    for row in found["reliability"]:
        true = [p for p, label in zip(own, truth, strict=True) if label == row["label"]]
        best = [(p, is_right) for p, label, is_right in zip(top, likeliest, right, strict=True)
                if label == row["label"]]
        assert (row["n_true"], row["n_likeliest"]) == (len(true), len(best))
        assert (row["true_probability"] is None) == (not true)
        if true:
            assert_allclose(row["true_probability"], np.mean(true))
        if best:
            p, is_right = zip(*best, strict=True)
            assert_allclose(row["probability"], np.mean(p))
            assert_allclose(row["right"], np.mean(is_right))
            assert_allclose(row["calibration_error"], calibration_error(p, is_right))
        else:
            assert row["probability"] is row["right"] is row["calibration_error"] is None


@pytest.mark.parametrize("task", ["classes", "ordered", "sequences", "graphs"])
def test_probabilities_of_labels(task, capsys):
    write_all()
    ran(capsys, "fit", *DATA[task], "--surrogate", "log", "--alpha", "0.1", "--model", "m")
    found = ran(capsys, "evaluate", "m", DATA[task][0], "--probabilities", "--json")
    predicted = ran(capsys, "predict", "m", DATA[task][0], "--probabilities", "--json")
    names, rows = predicted["classes"], predicted["probabilities"]
    if task in ("sequences", "graphs"):
        rows = [row for own in rows for row in own]
    truth = [names[i % len(names)] for i in range(24)]
    if task == "sequences":
        truth = [token[-1] for sentence in SENTENCES * 3 for token in sentence]
    elif task == "graphs":
        truth = Graphs.load(DATA[task][0], return_y=True)[1].values.tolist()
    check(found, names, rows, truth)
    plain = ran(capsys, "evaluate", "m", DATA[task][0], "--json")
    assert "reliability" not in plain and "log_loss" not in plain["scores"]
    table = ran(capsys, "evaluate", "m", DATA[task][0], "--probabilities")
    assert "p where likeliest" in table and f"{found['scores']['log_loss']:.4f}" in table


def test_labels_that_are_on_or_off(capsys):
    write_all()
    ran(capsys, "fit", *DATA["multilabel"], "--surrogate", "log", "--alpha", "0.1", "--model", "m")
    found = ran(capsys, "evaluate", "m", "multilabel.csv", "--probabilities", "--json")
    p = np.array(ran(
        capsys, "predict", "m", "multilabel.csv", "--probabilities", "--json")["probabilities"])
    y = np.loadtxt("multilabel.csv", delimiter=",", skiprows=1)[:, 3:] > 0
    own = np.where(y, p, 1.0 - p)
    scores = found["scores"]
    assert_allclose(scores["log_loss"], -np.log(own).mean())
    assert_allclose(scores["true_probability"], own.mean())
    assert_allclose(scores["calibration_error"], calibration_error(
        np.maximum(p, 1.0 - p).ravel(), ((p > 0.5) == y).ravel()))
    assert [row["label"] for row in found["reliability"]] == ["l1", "l2"]
    for j, row in enumerate(found["reliability"]):
        on = p[:, j] > 0.5
        assert (row["n_true"], row["n_likeliest"]) == (y[:, j].sum(), on.sum())
        assert_allclose(
            [row["true_probability"], row["probability"], row["right"]],
            [p[y[:, j], j].mean(), p[on, j].mean(), y[on, j].mean()])
        assert_allclose(row["calibration_error"], calibration_error(p[on, j], y[on, j]))


@pytest.fixture
def names(capsys):
    """A model of spans, and sentences with a label that it does not know."""
    rng = np.random.default_rng(0)
    labels = ["B-x", "I-x", "B-y", "O"]
    y = [rng.choice(labels, size=5).tolist() for _ in range(40)]

    def write(name, sentences):
        Path(name).write_text("\n\n".join("\n".join(
            f"{rng.choice(labels) if rng.random() < 0.3 else label} {label}" for label in own)
            for own in sentences) + "\n")

    write("train.conll", y)
    y[0][1] = "I-z"
    write("new.conll", y[:9])
    ran(capsys, "fit", "train.conll", "--attributes", "columns", "--model", "m", "--alpha", "0.1")
    X = [[["0=" + line.split()[0]] for line in own.splitlines()]
         for own in Path("new.conll").read_text().split("\n\n")]
    return X, y[:9]


@pytest.mark.parametrize("options", [{}, {"allowed_transitions": "bio"}])
def test_probabilities_of_spans_and_sequences(names, capsys, options):
    X, y = names
    given = ["--constraint", "bio"] if options else []
    found = ran(capsys, "evaluate", "m", "new.conll", "--probabilities", "--json", *given)
    model = load_model("m")
    logs = model.log_probability(X[1:], y[1:], **options)
    if options:  # true labels that break the rules have no probability
        assert np.isinf(logs).any()
        assert found["scores"]["log_loss"] is None and found["scores"]["sequence_log_loss"] is None
        assert "inf" in ran(capsys, "evaluate", "m", "new.conll", "--probabilities", *given)
    else:
        rows = [row.tolist() for own in model.predict_marginals(X) for row in own]
        check(found, model.classes_.tolist(), rows, [label for own in y for label in own])
        assert_allclose(found["scores"]["sequence_log_loss"], -logs.mean())
    for row in found["spans"]:
        own = [(span.probability, tuple(span[:3]) in spans(labels)) for labels, of in zip(
            y, model.predict_spans(X, **options), strict=True) for span in of
            if span.label == row["label"]]
        if own:
            p, right = zip(*own, strict=True)
            assert len(own) == row["n_predicted"] and sum(right) == row["n_right"]
            assert_allclose(row["probability"], np.mean(p))
            assert_allclose(row["calibration_error"], calibration_error(p, right))
        else:
            assert row["label"] == "z" and "probability" not in row


def test_models_without_probabilities(capsys):
    write_all()
    for task, surrogate in (("classes", "max_min"), ("sequences", "max_margin"),
                            ("rankings", "max_min")):
        ran(capsys, "fit", *DATA[task], "--surrogate", surrogate, "--alpha", "0.1", "--model", "m")
        code, _, err = call(capsys, "evaluate", "m", DATA[task][0], "--probabilities")
        assert code == 2
        assert "--probabilities needs a model of classes, ordered levels, labels" in err
        assert f"with --surrogate log, got {task} with {surrogate}" in err
