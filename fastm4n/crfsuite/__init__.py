"""The way in from CRFsuite: `CRF`, with the names of sklearn-crfsuite."""

from fastm4n.crfsuite._crf import CRF

__all__ = ["CRF"]
