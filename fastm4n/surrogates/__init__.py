"""The losses, each written once over outputs of any kind, and one smoothed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.surrogates._base import Log, MaxMargin, MaxMin, MaxMinMirrorProx, Surrogate

if TYPE_CHECKING:
    from typing import Literal

    from fastm4n.outputs._base import Outputs

SURROGATES = ("max_min", "max_margin", "log", "boost")
ORACLES = ("exact", "mirror_prox")


def make_surrogate(
    surrogate: Literal["max_min", "max_margin", "log", "boost"], outputs: Outputs,
    oracle: Literal["exact", "mirror_prox"] = "exact", oracle_iter: int | None = None,
    oracle_warm_start: bool = False, cost_augmented: bool = False, temperature: float = 1.0,
) -> Log | MaxMargin | MaxMin:
    """The surrogate of that name over the outputs.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log", "boost"}
    outputs : Outputs
    oracle : {"exact", "mirror_prox"}
        How max-min oracles are solved.
    oracle_iter : int, default=None
        Iterations of mirror prox; what the outputs say by default.
    oracle_warm_start : bool
        Whether mirror prox starts from where it ended at the last visit.
    cost_augmented : bool, default=False
        Of "log": whether the costs are added to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        Of "log": what the entropy is multiplied by.
    """
    if surrogate == "log":
        return Log(outputs, cost_augmented, temperature)
    if surrogate == "boost":
        from fastm4n.research._boost import Boost, BoostLabels

        return (BoostLabels if outputs.has_entropy and outputs.has_tangent else Boost)(outputs)
    if surrogate == "max_margin":
        return MaxMargin(outputs)
    if surrogate != "max_min":
        raise ValueError(f"surrogate must be one of {SURROGATES}, got {surrogate!r}.")
    if oracle == "mirror_prox":
        return MaxMinMirrorProx(outputs, oracle_iter, oracle_warm_start)
    if oracle != "exact":
        raise ValueError(f"oracle must be one of {ORACLES}, got {oracle!r}.")
    return MaxMin(outputs)


__all__ = [
    "Log", "MaxMargin", "MaxMin", "MaxMinMirrorProx",
    "Surrogate", "make_surrogate",
]
