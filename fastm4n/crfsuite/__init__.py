"""The way in from CRFsuite: its model files."""

from fastm4n.crfsuite._models import load_model, read_crfsuite_model

__all__ = ["load_model", "read_crfsuite_model"]
