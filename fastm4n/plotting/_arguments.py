"""What displays are given: estimators, names, and whether matplotlib is there."""

from sklearn.pipeline import Pipeline


def check_matplotlib(caller):
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(f'{caller} needs matplotlib: pip install "fastm4n[plot]"') from error


def last_step(estimator):
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def as_curves(given, names, noun):
    """A list of what `given`, one, a list or a dict by name, holds, and names for it."""
    if isinstance(given, dict):
        given, names = list(given.values()), list(given) if names is None else names
    elif not isinstance(given, (list, tuple)):
        given = [given]
    if not given:
        raise ValueError(f"{noun} is empty: there is nothing to plot.")
    return list(given), of_length(names, len(given), "names")


def of_length(values, n, name, each="curve"):
    if values is not None and (isinstance(values, str) or len(values) != n):
        got = repr(values) if isinstance(values, str) else f"{len(values)}"
        raise ValueError(f"{name} must be a list of {n}, one for each {each}; got {got}.")
    return values
