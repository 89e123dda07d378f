"""Readers of tables, sparse rows, labelled sequences and rankings, and attributes of tokens."""

from fastm4n.data.disk._rows import Rows, open_rows, rows_from_batches
from fastm4n.datasets._attributes import chunking_attributes, window_attributes
from fastm4n.datasets._conll import iter_conll, load_conll, load_conllu
from fastm4n.datasets._crfsuite import iter_crfsuite, load_crfsuite
from fastm4n.datasets._svm_struct import load_svm_hmm, load_svm_rank
from fastm4n.datasets._svmlight import (
    load_svmlight,
    load_svmlight_multilabel,
    load_svmlight_sequences,
)
from fastm4n.datasets._svmlight_stream import iter_svmlight, svmlight_to_folder
from fastm4n.datasets._tables import load_csv, load_label_ranking

__all__ = [
    "Rows", "chunking_attributes", "iter_conll", "iter_crfsuite", "iter_svmlight", "load_conll",
    "load_conllu", "load_crfsuite", "load_csv", "load_label_ranking", "load_svm_hmm",
    "load_svm_rank", "load_svmlight", "load_svmlight_multilabel", "load_svmlight_sequences",
    "open_rows", "rows_from_batches", "svmlight_to_folder", "window_attributes",
]
