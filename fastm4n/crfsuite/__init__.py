"""The way in from CRFsuite: `CRF`, with the names of sklearn-crfsuite, and its model files."""

from fastm4n.crfsuite._crf import CRF
from fastm4n.crfsuite._models import CRFsuiteModel, load_model, read_crfsuite_model

__all__ = ["CRF", "CRFsuiteModel", "load_model", "read_crfsuite_model"]
