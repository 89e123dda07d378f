"""Files of fitted models: what `save_model` writes and `load_model` reads, without pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.array_files import read_arrays, understood, write_arrays

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import StrPath

__all__ = ["load_model", "save_model"]


def save_model(estimator: Any, path: StrPath, *, metadata: dict[str, Any] | None = None) -> None:
    """Save a fitted estimator, without pickle.

    Parameters
    ----------
    estimator : estimator
        One of fastm4n's, or a `sklearn.pipeline.Pipeline` whose last step is one and whose
        other steps are `SequenceVectorizer`, `SequenceScaler` or scikit-learn's
        `StandardScaler`.
    path : str or path
        It is replaced at the end, when the new file is on disk; a failure leaves it as it was.
    metadata : dict, default=None
        Anything that JSON can say, to be kept with the model.

    Raises
    ------
    NotFittedError
        If it is not fitted.
    TypeError
        If it, or one of its parameters, is of a type that cannot be saved: a kernel that is a
        callable, a `random_state` that is an object.
    ValueError
        If its attributes do not fit together.
    OSError
        If the file cannot be written.

    See Also
    --------
    load_model : The way back.

    Notes
    -----
    The loaded model predicts to the bit what this one does. Not kept: `callback`, which becomes
    None, and the dual point behind ``warm_start=True``, so that the next fit starts anew.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, load_model, save_model
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = MulticlassClassifier(alpha=0.01, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "iris.fm4n")
    ...     save_model(classifier, path)
    ...     loaded = load_model(path)
    >>> bool((loaded.decision_function(X) == classifier.decision_function(X)).all())
    True
    """
    from fastm4n.models._state import model_state

    header, arrays = model_state(estimator)
    header["metadata"] = {} if metadata is None else metadata
    # histories may hold infinities; the rest was checked
    write_arrays(path, "model", header, arrays, finite=False)


def load_model(path: StrPath) -> Any:
    """Load a fitted estimator that `save_model` has saved.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    estimator : estimator
        Of the class that was saved. It predicts to the bit what that did.

    Raises
    ------
    ModelFileError
        If the file is damaged, cut off, of a newer format or no model at all. Nothing in a file is
        executed, and no more memory is taken than the file is long, about; a number of columns that
        it claims, and has no weights for, may take 64 MiB.
    OSError
        If the file cannot be read.
    """
    return read_model(path)[0]


def read_model(path: StrPath) -> Any:
    """The estimator of a file, and the metadata that were saved with it."""
    from fastm4n.models._state import model_from_state

    header, arrays = read_arrays(path, "model", finite=False)
    with understood(path, "model"):
        metadata = header["metadata"]
        if type(metadata) is not dict:
            raise TypeError("metadata")
        return model_from_state(header, arrays), metadata
