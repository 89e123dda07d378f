"""Flat dicts of named arrays, which states are, and sums over ranges of rows."""

import numpy as np


def flat(name, state):
    """Arrays by name, of a state that is an array, None, or a dict of such."""
    if state is None:
        return {}
    if not isinstance(state, dict):
        return {name: np.asarray(state)}
    return {
        key: array for part, inner in state.items()
        for key, array in flat(f"{name}/{part}", inner).items()
    }


def part(name, state):
    """The arrays whose names begin with `name` and a slash, without these."""
    prefix = f"{name}/"
    return {
        key.removeprefix(prefix): array for key, array in state.items() if key.startswith(prefix)
    }


def listed(items):
    """A state that is a list, as a dict: numbers as names."""
    return {str(i): item for i, item in enumerate(items)}


def items_of(name, state):
    """The items of `listed`, each a dict of arrays, in order."""
    items = {}
    for key, array in part(name, state).items():
        number, _, inner = key.partition("/")
        items.setdefault(int(number), {})[inner] = array
    return [items[number] for number in sorted(items)]


def formed(form, name, state):
    """The state of the same form as `form` from the arrays of `flat`.

    Raises
    ------
    KeyError, ValueError
        If an array is missing, or has another dtype or shape.
    """
    if isinstance(form, dict):
        return {key: formed(inner, f"{name}/{key}", state) for key, inner in form.items()}
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


def sums_of(values, counts):
    """Sums of the rows of values: of the first counts[0], of the next counts[1] and so on."""
    sums = np.zeros((len(counts), *values.shape[1:]), dtype=values.dtype)
    filled = counts > 0
    if filled.any():
        sums[filled] = np.add.reduceat(values, (np.cumsum(counts) - counts)[filled])
    return sums
