"""The estimators by name: model files and the table of cells name these and no others."""

from fastm4n import estimators

PREDICTORS = {name: getattr(estimators, name) for name in estimators.__all__}
