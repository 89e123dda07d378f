"""From fitted taggers to layers, and back."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from fastm4n.estimators.chain import SequenceTagger
from fastm4n.surrogates import SURROGATES, as_surrogate, surrogate_name
from fastm4n.torch._chains import ChainLoss

if TYPE_CHECKING:
    from typing import Any, Literal

__all__ = ["from_tagger", "to_tagger"]

# what a fit says of its optimum, and does not hold of other weights
OF_FIT = (
    "n_iter_", "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_", "history_",
    "_warm_state", "_seen")


def from_tagger(
    tagger: SequenceTagger, *, dtype: Any = torch.float32,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", **options: Any,
) -> Any:
    """A layer and a linear map with the weights of a fitted tagger.

    The loss of ``linear(X)`` under the layer is then the mean loss that the fit minimised, beside
    its penalty, for "max_min" up to the accuracy of its oracle, and ``layer.decode`` predicts what
    the tagger does: a network can begin at a certified optimum.

    Parameters
    ----------
    tagger : SequenceTagger
        Fitted, of order 1 and without transition features or constraints, of surrogate "log",
        "max_margin" or "max_min".
    dtype : torch.dtype, default=torch.float32
        Of the weights. The tagger's own are torch.float64.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Of the layer.
    **options
        Further parameters of `ChainLoss`, such as `batch_first`. The layer has the surrogate, the
        costs and the temperature of the tagger, but not its `allowed_transitions`, which are of
        predictions alone: give them to ``layer.decode``.

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
            raise TypeError(f"{name} is the tagger's: the layer takes it from there.")
    surrogate = as_surrogate(tagger.surrogate)
    tempering = {
        "cost_augmented": bool(surrogate.cost_augmented),
        "temperature": float(surrogate.temperature)} if surrogate.name == "log" else {}
    layer = ChainLoss(
        tagger.classes_.size, surrogate.name, cost=tagger.cost_matrix_,
        cost_scale=tagger.cost_scale, **tempering, reduction=reduction,
        labels=options.pop("labels", _names(tagger)), **options)
    linear = nn.Linear(tagger.n_features_in_, tagger.classes_.size)
    coef = tagger.coef_
    if not isinstance(coef, np.ndarray):
        coef = coef.toarray()
    for parameter, weights in _pairs(layer, linear, {
            "coef_": coef, **{name: getattr(tagger, name) for name in _NAMES[1:]}}):
        parameter.data = torch.tensor(np.asarray(weights), dtype=dtype)
    return layer, linear


def to_tagger(layer: ChainLoss, linear: Any, tagger: SequenceTagger) -> SequenceTagger:
    """A tagger with the weights of a layer and a linear map.

    Parameters
    ----------
    layer : ChainLoss
        With transitions, and start and end.
    linear : torch.nn.Linear
        As `from_tagger` makes it.
    tagger : SequenceTagger
        The one that it was made of: it says what the labels are, and is left as it is.

    Returns
    -------
    tagger : SequenceTagger
        A copy that predicts what the layer does and can be saved with `fastm4n.save_model`. It has
        no certificate: `duality_gap_` and its kin are not there.

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
            f"layer must be a ChainLoss of {shape[0]} labels, the tagger's, with start_end=True.")
    if not isinstance(linear, nn.Linear) or tuple(linear.weight.shape) != shape:
        raise ValueError(
            f"linear must be a torch.nn.Linear from {shape[1]} features to {shape[0]} labels.")
    # weights that are still held by pairs are asked for, so that they do not come back later
    tagger.coef_  # noqa: B018
    found = copy.deepcopy(tagger)
    weights = dict(zip(_NAMES, (
        parameter if parameter is None else parameter.detach().cpu().double().numpy().copy()
        for parameter, _ in _pairs(layer, linear)), strict=True))
    if weights["intercept_"] is None:
        weights["intercept_"] = np.zeros(shape[0])
    for name in ("_packed", "_packed_edges", *OF_FIT):
        vars(found).pop(name, None)
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise ValueError(f"the weights for {name} hold NaN or infinite numbers.")
        setattr(found, name, value)
    return found


_NAMES = ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_")


def _pairs(layer, linear, weights=None):
    parameters = (
        linear.weight, linear.bias, layer.transitions, layer.start_transitions,
        layer.end_transitions)
    return [
        (parameter, None if weights is None else weights[name])
        for parameter, name in zip(parameters, _NAMES, strict=True)]


def _names(tagger):
    names = [str(label) for label in tagger.classes_.tolist()]
    return names if len(set(names)) == len(names) else None


def _check_tagger(tagger):
    if not isinstance(tagger, SequenceTagger):
        raise TypeError(f"tagger must be a SequenceTagger, got {type(tagger).__name__}.")
    check_is_fitted(tagger)
    scored = tagger._scored
    if scored.order > 1 or scored.features is not None or tagger.constraints is not None:
        raise ValueError(
            f"a layer has no weights for constraints={tagger.constraints!r:.80} and {scored!r}; "
            "fit a tagger without constraints and with transitions of order=1 and features=None.")
    if surrogate_name(tagger.surrogate) not in SURROGATES:
        raise ValueError(
            f"surrogate={tagger.surrogate!r} has no layer: fit 'log', 'max_margin' or 'max_min'.")
