"""Factors of several graphs: checked, compared, and written to files."""

import math
from hashlib import blake2b

import numpy as np

from fastm4n.data._ragged import as_offsets, cut
from fastm4n.factors import CountFactor, FactorTables, as_factors

# arrays of a file, with an entry for each factor; `nodes` and `sizes`: for each node of a factor
IN_FILES = ("offsets", "node_offsets", "nodes", "sizes", "least", "most", "values")


def as_factor_lists(given, lengths, name="factors"):
    """A tuple of factors, or None, for each graph. None if no graph has factors.

    Parameters
    ----------
    given : None, or sequence with an entry for each graph
    lengths : ndarray of int
        Nodes of each graph.
    name : str
        The name of the argument, for errors.
    """
    if given is None:
        return None
    if isinstance(given, (FactorTables, CountFactor, str)) or not hasattr(given, "__len__"):
        raise TypeError(
            f"{name} must be a list with the factors of each graph, or None, got {given!r:.80}.")
    if len(given) != len(lengths):
        raise ValueError(
            f"{name} has {len(given)} entries for {len(lengths)} graphs. Give None for graphs "
            "without factors.")
    return merged([
        None if part is None else as_factors(part, int(n_nodes), f"{name}[{i}]")
        for i, (part, n_nodes) in enumerate(zip(given, lengths, strict=True))])


def merged(*lists):
    """The factors of each graph in all these lists, or None."""
    found = [
        sum((part for part in parts if part), ()) or None for parts in zip(*lists, strict=True)]
    return tuple(found) if any(part is not None for part in found) else None


def functions(factors):
    """Each (nodes, table) and each `CountFactor` of the factors of one graph."""
    for factor in factors or ():
        if isinstance(factor, CountFactor):
            yield factor
        else:
            for f in range(len(factor)):
                yield factor.scope(f), factor.table(f)


def contents(factors):
    """A hash of the factors of one graph, or 0 without factors."""
    if factors is None:
        return 0
    state = blake2b(digest_size=7)
    for function in functions(factors):
        if isinstance(function, CountFactor):
            parts = (
                np.array([function.least, function.most, function.label]), function.nodes,
                function.negated.astype(np.intp))
        else:
            # 0.0 for -0.0
            parts = function[0], np.array(function[1].shape), function[1] + 0.0
        for part in parts:
            state.update(np.int64(part.size).tobytes() + part.tobytes())
    return int.from_bytes(state.digest(), "little") + 1


def all_contents(factors, n_graphs):
    """`contents` of each graph."""
    if factors is None:
        return np.zeros(n_graphs, dtype=np.uint64)
    known = {id(part): part for part in factors}
    known = {key: contents(part) for key, part in known.items()}
    return np.array([known[id(part)] for part in factors], dtype=np.uint64)


def left_of(factors, numbers):
    """Factors of the remaining nodes of a graph, maximised over the labels of the others.

    Parameters
    ----------
    factors : tuple of factors, or None
    numbers : ndarray of int of shape (n_nodes,)
        The new number of each node, or -1 for the nodes to remove.
    """
    found = []
    for function in functions(factors):
        if isinstance(function, CountFactor):
            nodes = numbers[function.nodes]
            there = nodes >= 0
            n_out = int(np.sum(~there))
            found.append(CountFactor(
                nodes[there], max(0, function.least - n_out), function.most,
                function.negated[there].astype(bool), function.label))
            continue
        nodes, table = numbers[function[0]], function[1]
        out = tuple(np.flatnonzero(nodes < 0).tolist())
        if len(out) < nodes.size:
            found.append(FactorTables.from_list([(nodes[nodes >= 0], table.max(axis=out))]))
    return tuple(found) or None


def packed_factors(factors, n_graphs):
    """Arrays of a file by name, or none."""
    if factors is None:
        return {}
    listed = [list(functions(part)) for part in factors]
    rows = [
        (f.nodes, f.negated, f.least, f.most, f.label, ()) if isinstance(f, CountFactor)
        else (f[0], f[1].shape, -1, -1, -1, f[1].ravel()) for part in listed for f in part]
    nodes, sizes, least, most, label, values = zip(*rows, strict=True) if rows else [()] * 6
    arrays = {
        "offsets": cut([len(part) for part in listed]),
        "node_offsets": cut([part.size for part in nodes]),
        "nodes": np.concatenate([*nodes, np.zeros(0)]).astype(np.int64),
        "sizes": np.concatenate([*sizes, np.zeros(0)]).astype(np.int64),
        "least": np.array(least), "most": np.array(most), "label": np.array(label),
        "values": np.concatenate([*values, np.zeros(0)]),
    }
    return {f"factors.{name}": array for name, array in arrays.items()}


def unpacked_factors(arrays):
    """The factors of each graph from the arrays of a file, or None."""
    given = {name: arrays.get(f"factors.{name}") for name in IN_FILES}
    # files of older releases count label 1
    labels = arrays.get("factors.label")
    missing = [name for name, array in given.items() if array is None]
    if missing:
        if len(missing) < len(given):
            raise ValueError(f"it has no array 'factors.{missing[0]}'")
        return None
    found, at = [], 0
    if labels is None:
        labels = np.ones(len(given["least"]), dtype=np.intp)
    for name, array in (*((name, given[name]) for name in ("sizes", "least", "most")), (
            "label", labels)):
        if array.ndim != 1 or array.dtype.kind not in "iu" and array.size:
            raise ValueError(f"factors.{name} must be a vector of integers")
    try:
        offsets = as_offsets(
            given["offsets"], len(given["least"]), name="offsets", item="graph", row="factor",
            rows="factors")
        node_offsets = as_offsets(
            given["node_offsets"], len(given["nodes"]), name="node_offsets", item="factor",
            row="node", rows="nodes")
        if {len(given["most"]), len(labels), len(node_offsets) - 1} != {offsets[-1]} or len(
                given["sizes"]) != node_offsets[-1]:
            raise ValueError("its arrays differ in numbers of factors or nodes")
        for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
            found.append([])
            for f in range(start, stop):
                part = slice(*node_offsets[f : f + 2])
                nodes, sizes = given["nodes"][part], given["sizes"][part]
                least, most = int(given["least"][f]), int(given["most"][f])
                if least >= 0:
                    found[-1].append(CountFactor(
                        nodes, least, most, sizes.astype(bool), int(labels[f])))
                    continue
                size = math.prod(sizes.tolist())
                table = given["values"][at : at + size].reshape(sizes)
                found[-1].append((nodes, table))
                at += size
        if at != len(given["values"]):
            raise ValueError("there are more values than entries of tables")
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(f"its factors are invalid: {error}") from error
    return [part or None for part in found]
