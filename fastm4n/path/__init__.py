"""The regularisation path of an estimator: one fit for all alpha, with a certified gap for each."""

from fastm4n.path._path import RegularizationPath, RegularizationPathCV, regularization_path
from fastm4n.path._run import PathInterrupted

__all__ = ["PathInterrupted", "RegularizationPath", "RegularizationPathCV", "regularization_path"]
