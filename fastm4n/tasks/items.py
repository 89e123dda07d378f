"""Features of items: reading them, and names of new items."""

import numpy as np
from scipy import sparse

from fastm4n.base.checks import not_finite


def item_rows(item_features, n_features=None):
    """Features of items as a new array (n_items, n_item_features), and their names or None.

    Parameters
    ----------
    item_features : array-like or data frame
        The index of a data frame has the names.
    n_features : int, default=None
        The number of columns that there must be.
    """
    if sparse.issparse(item_features):
        raise ValueError("item_features must be a dense array; use item_features.toarray().")
    names = None
    if hasattr(item_features, "index") and hasattr(item_features, "iloc"):
        names = np.asarray(item_features.index)
        # pandas has strings as objects
        names = names.astype(str) if all(isinstance(name, str) for name in names) else names
        if np.unique(names).size < names.size:
            raise ValueError("the index of item_features has an item twice.")
    given = np.asarray(item_features)
    if given.dtype.kind not in "biuf":
        try:
            given = given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"item_features must be numbers: {error}") from error
    rows = np.array(given, dtype=np.float64, order="C")
    if rows.ndim != 2 or not rows.size:
        raise ValueError(
            f"item_features must have shape (n_items, n_item_features), got {rows.shape}.")
    if n_features is not None and rows.shape[1] != n_features:
        raise ValueError(
            f"item_features has {rows.shape[1]} columns, but those of fit had {n_features}.")
    return rows, names


def check_rows(rows, items):
    """Refuse features of items that are not finite. Errors have the item's name."""
    found, names = not_finite(rows), items.tolist()
    if found is not None:
        item, feature, value = found
        raise ValueError(
            f"item_features has {value} for the item {names[item]!r}, feature {feature}: "
            "features must be finite.")
    with np.errstate(over="ignore"):
        norms = np.einsum("ij,ij->i", rows, rows)
    if not np.isfinite(norms).all():
        raise ValueError(
            "item_features has values too large for float64: the squared norm of those of the item "
            f"{names[np.argmax(~np.isfinite(norms))]!r} overflows. Scale the features, for "
            "example with StandardScaler.")


def features_of_items(item_features, items):
    """Features of the items of y, in their order.

    Parameters
    ----------
    item_features : array-like of shape (n_items, n_item_features) or data frame
        A data frame whose index has names of the kind of `items` is put in their order.
    items : ndarray of shape (n_items,)
        Names.
    """
    rows, names = item_rows(item_features)
    if names is not None and (names.dtype.kind == "U") == (items.dtype.kind == "U"):
        row_of = {name: row for row, name in enumerate(names.tolist())}
        for item in items.tolist():
            if item not in row_of:
                raise ValueError(
                    f"y ranks the item {item!r}, which the index of item_features does not have.")
        if len(row_of) > items.size:
            known = set(items.tolist())
            other = next(name for name in row_of if name not in known)
            raise ValueError(
                f"item_features has a row for {other!r}, but y does not rank it: leave it out.")
        rows = rows[[row_of[item] for item in items.tolist()]]
    if rows.shape[0] != items.size:
        raise ValueError(
            f"item_features has {rows.shape[0]} rows, but y ranks {items.size} items: give a row "
            f"for each, in the order {items.tolist()!s:.200}.")
    check_rows(rows, items)
    return rows


def new_items(item_features, n_features):
    """Features of items to predict, and their names: those of the index, or 0, 1, ..."""
    rows, names = item_rows(item_features, n_features)
    names = np.arange(rows.shape[0]) if names is None else names
    check_rows(rows, names)
    return rows, names
