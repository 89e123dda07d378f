"""Readers of labelled sequences and label rankings, and the attributes of a well-known chunker."""

from fastm4n.datasets._readers import (
    chunking_attributes,
    load_conll,
    load_conllu,
    load_crfsuite,
    load_label_ranking,
    load_svmlight_sequences,
)

__all__ = [
    "chunking_attributes",
    "load_conll",
    "load_conllu",
    "load_crfsuite",
    "load_label_ranking",
    "load_svmlight_sequences",
]
