"""Features of attributes by plain Python: what the compiled tables are held to."""

from numbers import Real

import numpy as np


def attributes(token, separator=":", prefix=""):
    """(name, weight) of each attribute of a token, one by one."""
    if not isinstance(token, dict):
        return [(str(name), 1.0) for name in token]
    found = []
    for key, value in token.items():
        if isinstance(value, str):
            found.append((f"{prefix}{key}{separator}{value}", 1.0))
        elif isinstance(value, (bool, np.bool_, Real)):
            found.append((f"{prefix}{key}", float(value)))
        elif isinstance(value, dict):
            found += attributes(value, separator, f"{prefix}{key}{separator}")
        else:
            found += [(f"{prefix}{key}{separator}{name}", 1.0) for name in value]
    return found


def features(X, names=None, min_count=1, separator=":", dtype=np.float64):
    """Names of the columns, and of each token a dict from columns to weights.

    The weights of one name are added in their order, in this dtype.
    """
    tokens = [attributes(token, separator) for sequence in X for token in sequence]
    if names is None:
        counts = {}
        for token in tokens:
            for name in {name for name, weight in token if weight or min_count == 1}:
                counts[name] = counts.get(name, 0) + 1
        names = sorted(name for name, count in counts.items() if count >= min_count)
    columns = {name: column for column, name in enumerate(names)}
    rows = []
    for token in tokens:
        row = {}
        for name, weight in token:
            if name in columns:
                column, weight = columns[name], dtype(weight)
                row[column] = row[column] + weight if column in row else weight
        rows.append(row)
    return names, rows
