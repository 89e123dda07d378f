"""Files of fitted models and of arrays."""

from __future__ import annotations

from fastm4n.base.array_files import ModelFileError, read_arrays, write_arrays
from fastm4n.models._files import load_model, save_model

__all__ = ["ModelFileError", "load_model", "read_arrays", "save_model", "write_arrays"]
