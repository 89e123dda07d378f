"""Lazy predictions of partitions by workers."""

from functools import partial

import numpy as np
from dask import delayed
from distributed import Future

from fastm4n.distributed.dask._fleet import is_source
from fastm4n.distributed.dask._inputs import NO_ROWS, Pieces, assembled, is_array, is_bag
from fastm4n.tasks.parameters import n_examples


def lazy(local, X, lengths=None, group=None, **options):
    """`local.predict(X, **options)` in the form of X.

    Parameters
    ----------
    local : fitted estimator
    X : delayed object, future, list of these, dask bag, array or data frame
    lengths, group
        As in `fit`.
    """
    task = local._task
    if is_source(X) or (isinstance(X, (list, tuple)) and X and all(map(is_source, X))):
        model = delayed(local, pure=False)
        parts = [X] if is_source(X) else X
        found = [
            part.client.submit(partial(_predicted, options), local, part, pure=False)
            if isinstance(part, Future) else delayed(_predicted, pure=False)(options, model, part)
            for part in parts]
        return found[0] if is_source(X) else found
    pieces = Pieces(task, X, None, None, lengths, group, with_labels=False)
    predict = partial(_of_partition, options, task, pieces.form, pieces.columns)
    model = delayed(local, pure=False)
    parts = [
        delayed(predict, pure=False)(model, part, own_lengths, own_group)
        for part, _, _, own_lengths, own_group in pieces.parts]
    if is_bag(X):
        import dask.bag

        return dask.bag.from_delayed(parts)
    width, dtype = _form(local)
    if is_array(X):
        import dask.array

        return dask.array.concatenate([
            dask.array.from_delayed(part, (rows, *width), dtype)
            for part, rows in zip(parts, pieces.X.chunks[0], strict=True)])
    import dask.dataframe

    meta = _like(pieces.X._meta.iloc[:0], np.zeros((0, *width), dtype))
    return dask.dataframe.from_delayed(parts, meta=meta)


def _predicted(options, model, X):
    return model.predict(X, **options) if n_examples(X) > 0 else _nothing(model)


def _nothing(model):
    """Predictions of zero examples."""
    if model._task in NO_ROWS:
        return []
    width, dtype = _form(model)
    return np.zeros((0, *width), dtype)


def _of_partition(options, task, form, columns, model, X, lengths, group):
    """Predictions of one partition, in its form."""
    if form == "examples":
        X, form = list(X), "apart"
    table = X if form == "frame" else None
    if n_examples(X) == 0:
        return [] if form == "apart" else _like(table, _nothing(model))
    X = assembled(task, form, columns, X, None, None, lengths, group)[0]
    found = model.predict(X, **options)
    if form == "apart":
        return list(found)
    found = getattr(found, "values", found)
    return _like(table, found)


def _like(table, found):
    """Predictions, with the index of a table if there is one."""
    if table is None:
        return found
    import pandas

    kind = pandas.DataFrame if found.ndim == 2 else pandas.Series
    # strings stay objects
    return kind(found, index=table.index, dtype=object if found.dtype.kind in "OUS" else None)


def _form(local):
    """Further dimensions of predictions, and their dtype."""
    if local._task == "multilabel":
        return (local.classes_.size,), np.dtype(local._dtype)
    if local._task == "rankings":
        if local.form_ == "string":
            return (), np.dtype(object)
        return (local.items_.size,), local.items_.dtype if local.form_ == "ordering" else np.intp
    return (), local.classes_.dtype
