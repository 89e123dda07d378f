"""Layers from fitted taggers, and taggers from layers."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import nn

from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.surrogates import SURROGATES, as_surrogate, surrogate_name
from fastm4n.torch._chains import ChainLoss

__all__ = ["from_tagger", "to_tagger"]

# state of a fit that does not apply to other weights
OF_FIT = (
    "n_iter_", "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_", "history_",
    "_warm_state", "_seen", "_packed", "_packed_edges")
_NAMES = ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_")


def from_tagger(
    tagger: SequenceTagger, *, dtype: Any = torch.float32,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", **options: Any,
) -> Any:
    """Make a layer and a linear map with the weights of a fitted tagger.

    The loss of ``linear(X)`` under the layer is the objective of the fit without its penalty, for
    "max_min" up to the accuracy of the oracle. ``layer.decode`` and the tagger predict the same
    labels. A network can therefore begin at a certified optimum.

    Parameters
    ----------
    tagger : SequenceTagger
        Fitted with surrogate "log", "max_margin" or "max_min", of order 1, without transition
        features or constraints.
    dtype : torch.dtype, default=torch.float32
        Type of the weights. The tagger's own type is torch.float64.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Reduction of the layer.
    **options
        Further parameters of `ChainLoss`, such as `batch_first`. The layer has the surrogate, the
        costs and the temperature of the tagger. Pass its `allowed_transitions`, which only affect
        predictions, to ``layer.decode``.

    Returns
    -------
    layer : ChainLoss
    linear : torch.nn.Linear
        From the features of a position to the scores of its labels, in the order of
        ``tagger.classes_``.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.torch import from_tagger
    >>> X = [np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])]
    >>> y = [["a", "b", "b"], ["b", "a"]]
    >>> tagger = SequenceTagger("log", random_state=0).fit(X, y)
    >>> layer, linear = from_tagger(tagger, dtype=torch.float64)
    >>> tags = layer.decode(linear(torch.tensor(X[0])[None])).tags[0]
    >>> tagger.classes_[tags].tolist()
    ['a', 'b', 'b']
    """
    _check_tagger(tagger)
    for name in ("surrogate", "cost", "cost_scale", "cost_augmented", "temperature", "start_end"):
        if name in options:
            raise TypeError(f"{name} comes from the tagger: leave it out.")
    surrogate = as_surrogate(tagger.surrogate)
    tempering = {
        "cost_augmented": bool(surrogate.cost_augmented),
        "temperature": float(surrogate.temperature)} if surrogate.name == "log" else {}
    names = [str(label) for label in tagger.classes_.tolist()]
    layer = ChainLoss(
        tagger.classes_.size, surrogate.name, cost=tagger.cost_matrix_,
        cost_scale=tagger.cost_scale, **tempering, reduction=reduction,
        labels=options.pop("labels", names if len(set(names)) == len(names) else None), **options)
    linear = nn.Linear(
        tagger.n_features_in_, tagger.classes_.size, device=options.get("device"))
    for name, parameter in _parameters(layer, linear).items():
        weights = getattr(tagger, name)
        weights = weights.toarray() if sparse.issparse(weights) else np.asarray(weights)
        parameter.data = torch.tensor(weights, dtype=dtype, device=parameter.device)
    return layer, linear


def to_tagger(layer: ChainLoss, linear: Any, tagger: SequenceTagger) -> SequenceTagger:
    """Make a tagger with the weights of a layer and a linear map.

    Parameters
    ----------
    layer : ChainLoss
        With transitions, and with scores of first and last labels.
    linear : torch.nn.Linear
        As from `from_tagger`.
    tagger : SequenceTagger
        The original tagger, with the labels. It does not change.

    Returns
    -------
    tagger : SequenceTagger
        A copy with the predictions of the layer, for `fastm4n.save_model`. It has no certificate,
        and so no `duality_gap_` or related attributes.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.torch import from_tagger, to_tagger
    >>> X, y = [np.array([[1.0, 0.0], [0.0, 1.0]])], [["a", "b"]]
    >>> tagger = SequenceTagger("log", random_state=0).fit(X, y)
    >>> same = to_tagger(*from_tagger(tagger), tagger)
    >>> same.predict(X)[0].tolist(), hasattr(same, "duality_gap_")
    (['a', 'b'], False)
    """
    _check_tagger(tagger)
    shape = (tagger.classes_.size, tagger.n_features_in_)
    if not isinstance(layer, ChainLoss) or layer.n_labels != shape[0] or not layer.start_end:
        raise ValueError(
            f"layer must be a ChainLoss of {shape[0]} labels, with start_end=True.")
    if not isinstance(linear, nn.Linear) or tuple(linear.weight.shape) != shape:
        raise ValueError(
            f"linear must be a torch.nn.Linear from {shape[1]} features to {shape[0]} labels.")
    tagger.coef_  # noqa: B018 unpacks weights, which must not reappear later
    found = copy.deepcopy(tagger)
    for name in OF_FIT:
        vars(found).pop(name, None)
    for name, parameter in _parameters(layer, linear).items():
        value = np.zeros(shape[0])
        if parameter is not None:
            value = parameter.detach().cpu().double().numpy().copy()
        if not np.isfinite(value).all():
            raise ValueError(f"the weights for {name} contain NaN or infinite numbers.")
        setattr(found, name, value)
    return found


def _parameters(layer, linear):
    """Parameters by the names of the tagger's attributes."""
    return dict(zip(_NAMES, (
        linear.weight, linear.bias, layer.transitions, layer.start_transitions,
        layer.end_transitions), strict=True))


def _check_tagger(tagger):
    if not isinstance(tagger, SequenceTagger):
        raise TypeError(f"tagger must be a SequenceTagger, got {type(tagger).__name__}.")
    check_is_fitted(tagger)
    scored = tagger._scored
    if scored.order > 1 or scored.features is not None or tagger.constraints is not None:
        raise ValueError(
            f"a layer has no weights for constraints={tagger.constraints!r:.80} and {scored!r}. "
            "Fit a tagger without constraints and with transitions of order=1 and features=None.")
    if surrogate_name(tagger.surrogate) not in SURROGATES:
        raise ValueError(
            f"surrogate={tagger.surrogate!r} has no layer. Fit 'log', 'max_margin' or 'max_min'.")
