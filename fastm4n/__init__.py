"""Certified solvers for structured prediction: M4N, structural SVMs and CRFs."""

from importlib.metadata import PackageNotFoundError, version

try:
    from fastm4n.solvers import _block_coordinate  # noqa: F401
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("fastm4n"):
        raise
    raise ImportError(
        "The compiled parts of fastm4n were not found. If Python is running in the source "
        "folder, leave it, so that the installed package is imported; or build in place with "
        "'pip install -e .'."
    ) from error

from fastm4n.estimators import MulticlassClassifier, OrdinalClassifier

try:
    __version__ = version("fastm4n")
except PackageNotFoundError:  # running from an in-place build that was never installed
    __version__ = "0+unknown"

__all__ = ["MulticlassClassifier", "OrdinalClassifier", "__version__"]
