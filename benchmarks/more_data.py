"""More data for a fitted tagger: F1 of chunks after 1,000 + 50 sentences of CoNLL-2000.

    FASTM4N_DATA=... python benchmarks/more_data.py

Roads to 1,050 sentences: a fit to 1,000 and a call of `partial_fit` with 50 (its data gone, or from
a model file, of CRFsuite as well), two calls of `partial_fit` (all data there), and a fit to all.
The new label is a type of chunk that none of the 1,000 has, and each of the 50. F1 is on 500
sentences of the test set, in means over draws of the training sentences. Writes
docs/results/more_data.md.
"""

import copy
import io
import tempfile
import time
from pathlib import Path

import numpy as np
from _data import folder
from _peers import ROOT, has_package, table, train_crfsuite

from fastm4n import SequenceTagger, load_model, save_model
from fastm4n.crfsuite import CRF
from fastm4n.datasets import chunking_attributes, load_conll
from fastm4n.metrics import span_f1_score

PAGE = ROOT / "docs" / "results" / "more_data.md"
OLD, NEW, TEST, DRAWS = 1000, 50, 500, 5
KINDS = "SBAR", "ADVP"


def load(part):
    data = load_conll(folder() / "conll2000" / f"{part}.txt.gz")
    return [list(chunking_attributes(*zip(*tokens))) for tokens in data.tokens], data.labels


def taken(data, numbers):
    return tuple([part[i] for i in numbers] for part in data)


def only(kind, y):
    return [[label if label[2:] == kind else "O" for label in labels] for labels in y]


def more(model, data):
    """CPU seconds of a call of `partial_fit`."""
    began = time.process_time()
    model.partial_fit(*data)
    return time.process_time() - began
