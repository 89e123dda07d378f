"""Certified solvers for structured prediction: M4N, structural SVMs and CRFs.

The estimators and the subpackages are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastm4n import (
        automata,
        boosting,
        calibration,
        costs,
        datasets,
        estimators,
        factors,
        inference,
        losses,
        metrics,
        model_files,
        outputs,
        path,
        penalties,
        plotting,
        rankings,
        reference,
        surrogates,
        theory,
    )
    from fastm4n._checkpoints import checkpointing
    from fastm4n.calibration import (
        CalibratedClassifier,
        CalibratedTagger,
        ConformalClassifier,
        ConformalOrdinalClassifier,
        ConformalTagger,
    )
    from fastm4n.estimators import (
        GraphTagger,
        LabelRanker,
        Matcher,
        MulticlassClassifier,
        MultiLabelClassifier,
        OrdinalClassifier,
        SequenceTagger,
    )
    from fastm4n.factors import CountFactor, FactorTables
    from fastm4n.graphs import Graphs
    from fastm4n.model_files import load_model, save_model
    from fastm4n.path import (
        PathInterrupted,
        RegularizationPath,
        RegularizationPathCV,
        regularization_path,
    )
    from fastm4n.sequences import Sequences
    from fastm4n.solvers.block_frank_wolfe import BlockFrankWolfe
    from fastm4n.solvers.interior_point import InteriorPoint
    from fastm4n.solvers.label_newton import LabelNewton
    from fastm4n.solvers.out_of_core import OutOfCore
    from fastm4n.solvers.quasi_newton import QuasiNewton
    from fastm4n.vectorizer import SequenceScaler, SequenceVectorizer

if find_spec("fastm4n.solvers._block_coordinate") is None:
    raise ImportError(
        "The compiled parts of fastm4n were not found. If Python is running in the source "
        "folder, leave it, so that the installed package is imported; or build in place with "
        "'pip install -e .'."
    )

from fastm4n._version import __version__  # noqa: E402

# where each name is
_NAMES = {
    "BlockFrankWolfe": "solvers.block_frank_wolfe", "CalibratedClassifier": "calibration",
    "CalibratedTagger": "calibration", "ConformalClassifier": "calibration",
    "ConformalOrdinalClassifier": "calibration", "ConformalTagger": "calibration",
    "CountFactor": "factors",
    "FactorTables": "factors", "GraphTagger": "estimators", "Graphs": "graphs",
    "InteriorPoint": "solvers.interior_point", "LabelNewton": "solvers.label_newton",
    "LabelRanker": "estimators", "Matcher": "estimators", "MultiLabelClassifier": "estimators",
    "MulticlassClassifier": "estimators",
    "OrdinalClassifier": "estimators", "OutOfCore": "solvers.out_of_core",
    "PathInterrupted": "path", "QuasiNewton": "solvers.quasi_newton",
    "RegularizationPath": "path",
    "RegularizationPathCV": "path", "SequenceScaler": "vectorizer", "SequenceTagger": "estimators",
    "SequenceVectorizer": "vectorizer", "Sequences": "sequences", "checkpointing": "_checkpoints",
    "load_model": "model_files", "regularization_path": "path", "save_model": "model_files",
}

# written out, as type checkers read it: the names above and two more
__all__ = [
    "BlockFrankWolfe", "CalibratedClassifier", "CalibratedTagger", "ConformalClassifier",
    "ConformalOrdinalClassifier", "ConformalTagger", "CountFactor", "FactorTables", "GraphTagger",
    "Graphs", "InteriorPoint", "LabelNewton", "LabelRanker", "Matcher", "MultiLabelClassifier",
    "MulticlassClassifier", "OrdinalClassifier", "OutOfCore", "PathInterrupted",
    "QuasiNewton", "RegularizationPath", "RegularizationPathCV", "SequenceScaler", "SequenceTagger",
    "SequenceVectorizer", "Sequences", "__version__", "checkpointing", "get_include", "load_model",
    "regularization_path", "save_model",
]

_MODULES = (
    "automata", "boosting", "calibration", "costs", "datasets", "estimators", "factors",
    "inference", "losses", "metrics", "model_files", "outputs", "path", "penalties", "plotting",
    "rankings", "reference", "surrogates", "theory",
)


def get_include() -> str:
    """The folder of the C headers, for extensions that add a kind of output.

    Examples
    --------
    >>> import fastm4n
    >>> fastm4n.get_include().endswith("_simd")
    True
    """
    from os.path import dirname, join

    return join(dirname(__file__), "_simd")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastm4n.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"fastm4n.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
