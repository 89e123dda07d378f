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
        An estimator of fastm4n, or a `sklearn.pipeline.Pipeline` with such an estimator as the
        last step. Other steps may be `SequenceVectorizer`, `SequenceScaler` and scikit-learn's
        `StandardScaler`. Of a `crfsuite.CRF` the file has its `tagger_`.
    path : str or path
        It is replaced after the new file is on disk. A failure leaves it unchanged.
    metadata : dict, default=None
        Anything that can be written as JSON, stored with the model.

    Raises
    ------
    NotFittedError
        If it is not fitted.
    TypeError
        If the type of the estimator or of a parameter cannot be saved, such as a callable kernel
        or a `random_state` object.
    ValueError
        If its attributes do not fit together.
    OSError
        If the file cannot be written.

    See Also
    --------
    load_model : Read such a file.

    Notes
    -----
    The loaded model gives bitwise the same predictions. `callback` becomes None. The dual point of
    ``warm_start=True`` is not saved: the next fit starts from zero.

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

    if hasattr(type(estimator), "tagger_"):  # `fastm4n.crfsuite.CRF`
        estimator = estimator._fitted()
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
        An estimator of the saved class, with bitwise the same predictions.

    Raises
    ------
    ModelFileError
        If the file is damaged, cut off, of a newer format or no model. Nothing in a file is
        executed. Memory is limited to about the length of the file, plus 64 MiB for claimed columns
        without weights.
    OSError
        If the file cannot be read.
    """
    return read_model(path)[0]


def read_model(path: StrPath) -> Any:
    """The estimator and the metadata of a file."""
    from fastm4n.models._state import model_from_state

    header, arrays = read_arrays(path, "model", finite=False)
    with understood(path, "model"):
        metadata = header["metadata"]
        if type(metadata) is not dict:
            raise TypeError("metadata")
        return model_from_state(header, arrays), metadata
