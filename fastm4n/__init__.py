"""Certified solvers for structured prediction: M4N, structural SVMs and CRFs.

The estimators and the subpackages are imported when they are first used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastm4n.base._version import __version__
from fastm4n.base.lazy import attach

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n import (
        automata,
        calibration,
        cli,
        crfsuite,
        data,
        datasets,
        distributed,
        estimators,
        factors,
        features,
        inference,
        losses,
        metrics,
        models,
        outputs,
        path,
        penalties,
        plotting,
        reference,
        research,
        solvers,
        surrogates,
        torch,
    )
    from fastm4n.calibration import (
        CalibratedClassifier,
        CalibratedTagger,
        ConformalClassifier,
        ConformalOrdinalClassifier,
        ConformalTagger,
    )
    from fastm4n.data import Graphs, Sequences, SequenceScaler, SequenceVectorizer
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
    from fastm4n.models import load_model, save_model
    from fastm4n.path import (
        PathInterrupted,
        RegularizationPath,
        RegularizationPathCV,
        regularization_path,
    )
    from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe
    from fastm4n.solvers.cutting_planes import CuttingPlanes
    from fastm4n.solvers.interior_point import InteriorPoint
    from fastm4n.solvers.monitor import checkpointing
    from fastm4n.solvers.newton import LabelNewton
    from fastm4n.solvers.out_of_core import OutOfCore
    from fastm4n.solvers.quasi_newton import QuasiNewton
    from fastm4n.tasks.chain_weights import Transitions

if find_spec("fastm4n.solvers.blocks._engine") is None:
    raise ImportError(
        "The compiled parts of fastm4n were not found. If Python is running in the source "
        "folder, leave it, so that the installed package is imported; or build in place with "
        "'pip install -e .'."
    )

# written out, as type checkers read it: the names below and two more
__all__ = [
    "BlockFrankWolfe", "CalibratedClassifier", "CalibratedTagger", "ConformalClassifier",
    "ConformalOrdinalClassifier", "ConformalTagger", "CountFactor", "CuttingPlanes", "FactorTables",
    "GraphTagger", "Graphs", "InteriorPoint", "LabelNewton", "LabelRanker", "Matcher",
    "MultiLabelClassifier", "MulticlassClassifier", "OrdinalClassifier", "OutOfCore",
    "PathInterrupted",
    "QuasiNewton", "RegularizationPath", "RegularizationPathCV", "SequenceScaler", "SequenceTagger",
    "SequenceVectorizer", "Sequences", "Transitions", "__version__", "checkpointing",
    "get_include", "load_model", "regularization_path", "save_model",
]

__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = attach(
    __name__,
    {
        "BlockFrankWolfe": "solvers.blocks.block_frank_wolfe",
        "CalibratedClassifier": "calibration", "CalibratedTagger": "calibration",
        "ConformalClassifier": "calibration", "ConformalOrdinalClassifier": "calibration",
        "ConformalTagger": "calibration", "CountFactor": "factors",
        "CuttingPlanes": "solvers.cutting_planes", "FactorTables": "factors",
        "GraphTagger": "estimators", "Graphs": "data", "InteriorPoint": "solvers.interior_point",
        "LabelNewton": "solvers.newton", "LabelRanker": "estimators",
        "Matcher": "estimators", "MultiLabelClassifier": "estimators",
        "MulticlassClassifier": "estimators", "OrdinalClassifier": "estimators",
        "OutOfCore": "solvers.out_of_core", "PathInterrupted": "path",
        "QuasiNewton": "solvers.quasi_newton", "RegularizationPath": "path",
        "RegularizationPathCV": "path", "SequenceScaler": "data", "SequenceTagger": "estimators",
        "SequenceVectorizer": "data", "Sequences": "data", "checkpointing": "solvers.monitor",
        "Transitions": "tasks.chain_weights", "load_model": "models", "regularization_path": "path",
        "save_model": "models",
    },
    (
        "automata", "calibration", "cli", "crfsuite", "data", "datasets", "distributed",
        "estimators", "factors", "features", "inference", "losses", "metrics", "models",
        "outputs", "path", "penalties", "plotting", "reference", "research", "solvers",
        "surrogates", "torch",
    ),
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
