"""Files of graphs: npz archives of arrays, dense or sparse."""

import numpy as np
import scipy.sparse as sp

from fastm4n.base.atomic import replacing
from fastm4n.base.npz import read_npz
from fastm4n.data._graph_factors import unpacked_factors

# arguments of `Graphs` that are arrays
ARRAYS = (
    "node_features", "node_types", "node_weights", "edges", "edge_features", "edge_types",
    "node_offsets", "edge_offsets")


def write_arrays(path, arrays):
    """Write arrays by name, except None. Sparse matrices are written in parts."""
    parts = {}
    for name, array in arrays.items():
        if sp.issparse(array):
            for part in ("data", "indices", "indptr"):
                parts[f"{name}.{part}"] = getattr(array, part)
            parts[f"{name}.shape"] = np.array(array.shape)
        elif array is not None:
            parts[name] = array
    with replacing(path) as file:
        np.savez(file, **parts)


def read_arrays(path):
    """The arrays of an npz file."""
    try:
        return read_npz(path)
    except ValueError as error:
        raise ValueError(f"{path} is no file of graphs: {error}") from error


def unpacked(arrays, name):
    """An array of a file, dense or sparse, or None."""
    if f"{name}.data" not in arrays:
        return arrays.get(name)
    parts = []
    for part in ("data", "indices", "indptr", "shape"):
        if f"{name}.{part}" not in arrays:
            raise ValueError(f"it has no array '{name}.{part}'")
        parts.append(arrays[f"{name}.{part}"])
    data, indices, indptr, shape = parts
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not (
            0 <= min(shape.tolist()) <= max(shape.tolist()) < 2**63):
        raise ValueError(f"{name}.shape is {shape!r:.80}, no pair of counts")
    return sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))


def graph_arrays(arrays):
    """Arguments of `Graphs` from the arrays of a file."""
    given = {name: unpacked(arrays, name) for name in ARRAYS}
    for name in ("node_features", "edges", "node_offsets", "edge_offsets"):
        if given[name] is None:
            raise ValueError(f"it has no array {name!r}")
    return {**given, "factors": unpacked_factors(arrays)}
