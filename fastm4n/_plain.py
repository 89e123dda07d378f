"""State as plain data: flat dicts of named arrays."""

import numpy as np


def flat(name, state):
    """Arrays by name, of a state that is an array, None, or a tuple or dict of such."""
    if state is None:
        return {}
    if isinstance(state, dict):
        parts = state.items()
    elif isinstance(state, tuple):
        parts = enumerate(state)
    else:
        return {name: np.asarray(state)}
    return {
        key: array for part, inner in parts for key, array in flat(f"{name}/{part}", inner).items()
    }


def part(name, state):
    """The arrays whose names begin with `name` and a slash, without these."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }


def formed(form, name, state):
    """The state of the same form as `form` from the arrays of `flat`.

    Raises
    ------
    KeyError, ValueError
        If an array is missing, or has another dtype or shape.
    """
    if form is None:
        return None
    if isinstance(form, dict):
        return {key: formed(inner, f"{name}/{key}", state) for key, inner in form.items()}
    if isinstance(form, tuple):
        return tuple(formed(inner, f"{name}/{key}", state) for key, inner in enumerate(form))
    return checked(form, name, state)


def checked(form, name, state):
    """The array of that name, which must be of the dtype and shape of the array `form`."""
    array, form = state[name], np.asarray(form)
    if array.dtype != form.dtype or array.shape != form.shape:
        raise ValueError(
            f"{name} has dtype {array.dtype} and shape {array.shape}, not {form.dtype} and "
            f"{form.shape}: the state is of another problem."
        )
    return array


def replaced(form, arrays):
    """The state of the same form with these arrays, an iterator, in the order of `flat`."""
    if isinstance(form, tuple):
        return tuple(replaced(inner, arrays) for inner in form)
    if isinstance(form, dict):
        return {key: replaced(inner, arrays) for key, inner in form.items()}
    return None if form is None else next(arrays)


def form_of(state):
    """The state with True in the place of each array."""
    if isinstance(state, tuple):
        return tuple(map(form_of, state))
    if isinstance(state, dict):
        return {key: form_of(inner) for key, inner in state.items()}
    return None if state is None else True
