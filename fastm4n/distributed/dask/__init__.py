"""Fits on a Dask cluster: the estimators, their data being partitions on the workers.

``pip install "fastm4n[dask]"``. `fastm4n` itself imports none of this.
"""

try:
    import dask  # noqa: F401
    import distributed  # noqa: F401
except ImportError as _error:
    raise ImportError(
        'fastm4n.distributed.dask needs dask and distributed: pip install "fastm4n[dask]"'
    ) from _error

from fastm4n.distributed.dask._estimators import (
    DaskGraphTagger,
    DaskLabelRanker,
    DaskMatcher,
    DaskMulticlassClassifier,
    DaskMultiLabelClassifier,
    DaskOrdinalClassifier,
    DaskSequenceTagger,
)
from fastm4n.distributed.dask._fleet import ClusterGone, DaskFleet

__all__ = [
    "ClusterGone", "DaskFleet", "DaskGraphTagger", "DaskLabelRanker", "DaskMatcher",
    "DaskMultiLabelClassifier", "DaskMulticlassClassifier", "DaskOrdinalClassifier",
    "DaskSequenceTagger",
]
