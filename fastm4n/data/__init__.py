"""Containers of sequences and graphs, rankings and matchings, and features from attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.lazy import attach

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.data._graphs import Graph, Graphs
    from fastm4n.data._preferences import as_preferences
    from fastm4n.data._rankings import (
        as_places,
        document_pairs,
        places_to_orderings,
        places_to_strings,
        preference_pairs,
    )
    from fastm4n.data._schemes import convert_scheme, labels_to_spans, spans_to_labels
    from fastm4n.data._sequences import Sequences
    from fastm4n.data._vectorizer import SequenceScaler, SequenceVectorizer

__all__ = [
    "Graph", "Graphs", "SequenceScaler", "SequenceVectorizer", "Sequences", "as_places",
    "as_preferences", "convert_scheme", "document_pairs", "labels_to_spans", "places_to_orderings",
    "places_to_strings", "preference_pairs", "spans_to_labels",
]

__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = attach(__name__, {
    "Graph": "_graphs", "Graphs": "_graphs", "SequenceScaler": "_vectorizer",
    "SequenceVectorizer": "_vectorizer", "Sequences": "_sequences", "as_places": "_rankings",
    "as_preferences": "_preferences", "convert_scheme": "_schemes",
    "document_pairs": "_rankings", "labels_to_spans": "_schemes",
    "places_to_orderings": "_rankings", "places_to_strings": "_rankings",
    "preference_pairs": "_rankings", "spans_to_labels": "_schemes",
})
