"""A small file of each task, for tests of the command line, and how commands are called."""

import csv
from pathlib import Path

import numpy as np

from fastm4n import Graphs, Sequences, cli

SENTENCES = [["a/D", "dog/N"], ["the/D", "cat/N", "runs/V"], ["dogs/N", "run/V"], ["a/D", "cat/N"]]

# what follows the name of a command, for each task
DATA = {
    "classes": ["classes.csv"],
    "ordered": ["ordered.csv", "--task", "ordered"],
    "sequences": ["sequences.txt"],
    "graphs": ["graphs.npz"],
    "rankings": ["rankings.csv"],
    "matchings": ["matchings.npz"],
    "multilabel": ["multilabel.csv", "--labels", "l1,l2"],
}


def write_all():
    """Write the files of `DATA` to the current folder."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    X = rng.normal(size=(24, 3)) + 2 * np.eye(3)[y]
    for name, labels in (
        ("classes", ["x", "y", "z"]), ("ordered", ["1", "2", "3"]),
        ("rankings", ["u>v>w", "v>u>w", "w>v>u"]),
    ):
        write_table(f"{name}.csv", [
            ["a", "b", "c", "target"],
            *([*row, labels[k]] for row, k in zip(X.round(3).tolist(), y, strict=True))])
    write_table("multilabel.csv", [
        ["a", "b", "c", "l1", "l2"],
        *([*row, int(row[0] > 0), int(row[1] > 0)] for row in X.round(3).tolist())])
    tokens = [[token.replace("/", " ") for token in sentence] for sentence in SENTENCES * 3]
    Path("sequences.txt").write_text("\n\n".join(map("\n".join, tokens)) + "\n")
    labels = rng.integers(2, size=(8, 3, 3))
    X = Graphs.from_grid(list(labels + rng.normal(scale=0.5, size=labels.shape)))
    X.save("graphs.npz", Sequences(labels.ravel(), X.node_offsets))
    y = rng.permuted(np.tile(np.arange(3), (12, 1)), axis=1)
    np.savez("matchings.npz", X=rng.normal(size=(12, 3, 3, 2)), y=y)


def write_table(name, rows):
    with open(name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def without_layout(monkeypatch):
    """Draw figures once: to find where things have room takes longer than most commands."""
    monkeypatch.setattr(
        "matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda self, figure: None)
    monkeypatch.setattr("matplotlib.figure.Figure.draw_without_rendering", lambda self: None)


def call(capsys, *arguments):
    """The exit code, and what is on stdout and stderr."""
    try:
        code = cli.main([str(argument) for argument in arguments])
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err
