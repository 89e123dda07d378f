"""More data for a fitted tagger: F1 of chunks after 1,000 + 50 sentences of CoNLL-2000.

    FASTM4N_DATA=... python benchmarks/more_data.py

Roads to 1,050 sentences: a fit to all, two calls of `partial_fit` (all data there), and a call of
`partial_fit` with 50 for a model of 1,000 whose data are not there, also one of CRFsuite. A new
label is a kind of chunk that none of the 1,000 has and each of the 50. F1 is on 500 sentences of
the test set, in means over draws of the training sentences. Writes docs/results/more_data.md.
"""

import copy
import tempfile
import time
from pathlib import Path

import numpy as np
from _data import folder
from _peers import ROOT, describe, environment, has_package, table, train_crfsuite

from fastm4n import SequenceTagger
from fastm4n.crfsuite import CRF
from fastm4n.datasets import chunking_attributes, load_conll
from fastm4n.metrics import span_f1_score

PAGE = ROOT / "docs" / "results" / "more_data.md"
OLD, NEW, TEST, DRAWS = 1000, 50, 500, 5
KINDS = "SBAR", "ADVP"
INTRO = """\
A model of {old} sentences of CoNLL-2000 gets {new} more. The data of the {old} are there (two calls
of `partial_fit`) or not (`partial_fit` after `fit`, or for a model file). F1 of chunks in %, on
{test} sentences of the test set, is a mean over {draws} draws. The worst loss is the largest fall
below a fit to all in a draw, in points. Seconds are CPU seconds of the last call.

Without the data of the {old}, the fit is to the {new} alone, with a penalty of the change of the
weights: see [Warm starts and more data](../guide/repeat.md#more-data-for-a-tagger).
"""


def load(part):
    data = load_conll(folder() / "conll2000" / f"{part}.txt.gz")
    return [list(chunking_attributes(*zip(*tokens))) for tokens in data.tokens], data.labels


def taken(data, numbers):
    return tuple([part[i] for i in numbers] for part in data)


def roads(make, old, new):
    """(name, model, seconds of the last call) of each road."""
    begun = make().fit(*old)
    yield "the first sentences alone", begun, 0.0
    both = [a + b for a, b in zip(old, new, strict=True)]
    for name, model, method, data in (
        ("fit to all", make(), "fit", both),
        ("partial_fit, its data there", make().partial_fit(*old), "partial_fit", new),
        ("partial_fit, its data gone", begun if isinstance(begun, CRF) else copy.deepcopy(begun),
         "partial_fit", new),
    ):
        start = time.process_time()
        getattr(model, method)(*data)
        yield name, model, time.process_time() - start


def of_crfsuite(old, new):
    with tempfile.TemporaryDirectory() as where:
        file = Path(where) / "model.crfsuite"
        train_crfsuite(zip(*old, strict=True), file, c1=0.0, c2=1.0)
        crf = CRF(c2=1.0, model_filename=file)
        start = time.process_time()
        crf.partial_fit(*new)
        return "partial_fit, a file of CRFsuite", crf, time.process_time() - start


def only(kind, y):
    return [[label if label[2:] == kind else "O" for label in labels] for labels in y]


def f1(model, data, kind=None):
    X, y = data
    found = [list(labels) for labels in model.predict(X)]
    if kind is not None:
        found, y = only(kind, found), only(kind, y)
    return 100.0 * span_f1_score(y, found)


def measured(makes, draws, scores):
    """Rows of the table: means over draws of the scores and seconds of each road."""
    rows = []
    for title, make in makes:
        found = {}
        for old, new in draws:
            ended = [*roads(make, old, new)]
            if title == "CRF" and has_package("python-crfsuite"):
                ended.append(of_crfsuite(old, new))
            for name, model, seconds in ended:
                found.setdefault(name, []).append([*(score(model) for score in scores), seconds])
        whole = np.array(found["fit to all"])
        for name, values in found.items():
            values = np.array(values)
            loss = (whole - values)[:, 0].max()
            means = values.mean(axis=0)
            rows.append([
                title, name, *(f"{mean:.2f}" for mean in means[:-1]), f"{loss:.2f}",
                f"{means[-1]:.2f}"])
            print(*rows[-1], sep=" | ", flush=True)
    return rows


def main():
    train, test = load("train"), taken(load("test"), range(TEST))
    makes = [(name, lambda name=name: SequenceTagger(name, states="observed", random_state=0))
             for name in ("log", "max_margin", "max_min")]
    crf = ("CRF", lambda: CRF(c2=1.0, epsilon=1e-4))
    n = OLD + NEW
    draws = [[taken(train, range(a, b)) for a, b in (
        (d * n, d * n + OLD), (d * n + OLD, d * n + n))] for d in range(DRAWS)]
    rows = measured([*makes, crf], draws, [lambda model: f1(model, test)])
    page = [
        "# More data for a fitted tagger\n\nMade by `python benchmarks/more_data.py`: "
        f"{describe(environment('python-crfsuite'))}\n\n" + INTRO.format(old=OLD, new=NEW, test=TEST, draws=DRAWS),
        table("All labels known", ["model", "road", "F1 %", "worst loss", "seconds"], rows)]
    for kind in KINDS:
        has = [any(label[2:] == kind for label in labels) for labels in train[1]]
        old, new = (np.flatnonzero(np.equal(has, flag)) for flag in (False, True))
        draws = [[taken(train, old[d * OLD : (d + 1) * OLD]), taken(
            train, new[d * NEW : (d + 1) * NEW])] for d in range(DRAWS)]
        rows = measured(makes[:2], draws, [
            lambda model: f1(model, test), lambda model, kind=kind: f1(model, test, kind)])
        page.append(table(
            f"{kind} is new", ["model", "road", "F1 %", f"F1 % of {kind}", "worst loss", "seconds"],
            rows))
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main()
