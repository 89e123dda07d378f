"""Surrogates as parameters: what `surrogate=` of the estimators takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Union

from sklearn.base import BaseEstimator

from fastm4n.base.checks import NamesParameters, check_flag, check_number, one_of
from fastm4n.surrogates._base import LogLoss, MaxMarginLoss, MaxMinLoss, MirrorProxLoss

if TYPE_CHECKING:
    from fastm4n.outputs._base import Outputs
    from fastm4n.surrogates._base import Surrogate

SurrogateLike: TypeAlias = Union[Literal["max_min", "max_margin", "log"], "_Surrogate"]

ORACLES = ("exact", "mirror_prox")


class _Surrogate(NamesParameters, BaseEstimator):
    """Base of the surrogates.

    Attributes
    ----------
    name : str
        What models and reports call it.
    needs : str or None
        The flag of `Outputs` without which it cannot be computed.
    has_distribution : bool
        Whether its oracle gives a distribution over the outputs, as ``decode="min_risk"`` needs.
    known : dict of str to type
        The classes imported so far, by the names that model files have for them.
    """

    name: str
    needs: str | None = None
    has_distribution = False
    known: dict[str, Any] = {}
    # options by which the table of cells knows it, see `fastm4n.estimators._cells`
    _variants: tuple[dict[str, Any], ...] = ({},)

    def __init__(self) -> None:
        pass

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _Surrogate.known[cls.__name__] = cls

    def check(self) -> None:
        """Raise a ValueError for invalid parameters."""

    def for_predictions(self) -> _Surrogate:
        """Return the surrogate whose oracle predictions use: without costs in the scores."""
        return self

    def over(
        self, outputs: Outputs, oracle: Literal["exact", "mirror_prox"] = "exact",
        oracle_iter: int | None = None, oracle_warm_start: bool = False,
    ) -> Surrogate:
        """Make the compiled surrogate over `outputs`.

        `oracle`, `oracle_iter` and `oracle_warm_start` are those of `make_surrogate`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `over`.")


class MaxMin(_Surrogate):
    """The max-min surrogate of M4Ns, ``surrogate="max_min"``.

    It is consistent for every cost for which all outputs have a positive probability.

    Examples
    --------
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.surrogates import MaxMin
    >>> MulticlassClassifier(MaxMin())
    MulticlassClassifier(surrogate=MaxMin())
    """

    name = "max_min"
    has_distribution = True

    def over(
        self, outputs: Outputs, oracle: Literal["exact", "mirror_prox"] = "exact",
        oracle_iter: int | None = None, oracle_warm_start: bool = False,
    ) -> MaxMinLoss:
        """Make the compiled surrogate over `outputs`.

        `oracle`, `oracle_iter` and `oracle_warm_start` are those of `make_surrogate`.
        """
        if oracle == "mirror_prox":
            return MirrorProxLoss(outputs, oracle_iter, oracle_warm_start)
        if oracle != "exact":
            raise ValueError(f"oracle must be one of {ORACLES}, got {oracle!r}.")
        return MaxMinLoss(outputs)


class MaxMargin(_Surrogate):
    """The max-margin surrogate of structural SVMs, ``surrogate="max_margin"``.

    Examples
    --------
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.surrogates import MaxMargin
    >>> MulticlassClassifier(MaxMargin())
    MulticlassClassifier(surrogate=MaxMargin())
    """

    name = "max_margin"

    def over(self, outputs: Outputs, *oracle: Any) -> MaxMarginLoss:
        """Make the compiled surrogate over `outputs`, whatever the `oracle` of max-min games."""
        return MaxMarginLoss(outputs)


class Log(_Surrogate):
    """The log surrogate of CRFs and logistic regression, ``surrogate="log"``.

    Parameters
    ----------
    temperature : float, default=1.0
        Factor of the entropy. Probabilities are those of the scores divided by it. With
        `cost_augmented` the loss tends to the max-margin loss as the temperature tends to 0.
    cost_augmented : bool, default=False
        Whether to add the costs to the scores, so that expensive mistakes need larger margins.
        The loss is then the softmax-margin, which is also called VCRF.

    Examples
    --------
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.surrogates import Log
    >>> clf = MulticlassClassifier(Log(cost_augmented=True), cost="absolute")
    >>> clf.set_params(surrogate__temperature=0.5)
    MulticlassClassifier(cost='absolute',
                         surrogate=Log(cost_augmented=True, temperature=0.5))
    """

    name = "log"
    needs: str | None = "has_marginals"
    has_distribution = True
    _variants = {}, {"temperature": 0.5, "cost_augmented": True}

    def __init__(self, temperature: float = 1.0, cost_augmented: bool = False) -> None:
        self.temperature = temperature
        self.cost_augmented = cost_augmented

    def check(self) -> None:
        """Raise a ValueError for invalid parameters."""
        check_number("temperature", self.temperature, low=0)
        check_flag("cost_augmented", self.cost_augmented)

    def for_predictions(self) -> Log:
        """Return the surrogate without costs in the scores."""
        return Log(self.temperature)

    def over(self, outputs: Outputs, *oracle: Any) -> LogLoss:
        """Make the compiled surrogate over `outputs`, whatever the `oracle` of max-min games."""
        return LogLoss(outputs, bool(self.cost_augmented), float(self.temperature))


NAMES = {cls.name: cls for cls in (MaxMin, MaxMargin, Log)}
SURROGATES = tuple(NAMES)


def as_surrogate(surrogate: SurrogateLike) -> Any:
    """The object of `surrogate`, a name or an object, with its parameters checked.

    One and the same for a name.
    """
    if isinstance(surrogate, str) and surrogate in NAMES:
        return one_of(NAMES[surrogate])
    if not isinstance(surrogate, _Surrogate):
        raise ValueError(
            f"surrogate must be one of {SURROGATES} or an object of fastm4n.surrogates, got "
            f"{surrogate!r}.")
    surrogate.check()
    return surrogate


def surrogate_name(surrogate: SurrogateLike) -> str:
    """The name of `surrogate`, a name or an object."""
    return surrogate if isinstance(surrogate, str) else surrogate.name


def with_options(surrogate: SurrogateLike, cost_augmented: bool, temperature: float) -> Any:
    """The object of `surrogate`; for "log" with `cost_augmented` and `temperature`."""
    if surrogate == "log":
        surrogate = Log(temperature, cost_augmented)
    elif cost_augmented or temperature != 1.0:
        raise ValueError(
            f"cost_augmented and temperature need surrogate='log' (got {surrogate!r}).")
    return as_surrogate(surrogate)


def make_surrogate(
    surrogate: SurrogateLike, outputs: Outputs,
    oracle: Literal["exact", "mirror_prox"] = "exact", oracle_iter: int | None = None,
    oracle_warm_start: bool = False,
) -> Any:
    """Make the compiled surrogate over the true outputs of all blocks.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates
    outputs : Outputs
    oracle : {"exact", "mirror_prox"}
        How max-min oracles are solved.
    oracle_iter : int, default=None
        Iterations of mirror prox. None is the number that the outputs declare.
    oracle_warm_start : bool
        Whether mirror prox starts from its last point of the same block.

    Returns
    -------
    surrogate : Surrogate
    """
    return as_surrogate(surrogate).over(outputs, oracle, oracle_iter, oracle_warm_start)
