"""Callbacks of scikit-learn in fits: a certificate is a task."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, Self

    class CallbackSupportMixin:
        def set_callbacks(self, *callbacks: Any) -> Self: ...

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]: ...
else:
    try:
        from sklearn.callback import CallbackSupportMixin, with_callbacks
    except ImportError:  # scikit-learn before 1.9
        class CallbackSupportMixin:
            """Nothing: there are no callbacks."""

        def with_callbacks(method):
            return method


@with_callbacks
def _tear_down(estimator):
    """Nothing, after which `with_callbacks` calls the hook `teardown`."""


@contextmanager
def fit_tasks(estimator: Any, data: tuple[Any, ...]) -> Iterator[Callable[..., Any] | None]:
    """Make this block the root task of a fit. Gives the callback for rows of the history.

    A decorator would add a frame of scikit-learn to the stack, which levels of warnings count.

    Parameters
    ----------
    estimator : estimator
        With its `callback`, and callbacks of `set_callbacks` if scikit-learn has them.
    data : tuple
        X, y, sample_weight and lengths of `fit`, or less.
    """
    if not hasattr(estimator, "set_callbacks"):
        yield estimator.callback
        return
    X, y, *more = *data, *(None,) * (2 - len(data))
    named = zip(("sample_weight", "lengths"), more, strict=False)
    metadata = {name: value for name, value in named if value is not None}
    of_fit = {"estimator": estimator, "X": X, "y": y, "metadata": metadata or None}

    def on_row(row):
        task = root.subcontext(task_name="certificate")
        task.call_on_fit_task_begin(estimator=estimator)
        stop = task.call_on_fit_task_end(estimator=estimator, metadata=row)
        return estimator.callback is not None and bool(estimator.callback(row)) or stop

    try:
        root = estimator._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(**of_fit)
        yield on_row
        root.call_on_fit_task_end(reconstruction_attributes={}, **of_fit)
    finally:
        _tear_down(estimator)
