"""Graphs of the benchmarks, read from the folder that FASTM4N_DATA names.

Every reader gives `Graphs`, `Sequences` of labels, and a mask of the test graphs, and then what
is said of each; None where the file is not there.
"""

import numpy as np
from _data import folder

from fastm4n import Graphs, Sequences

# colours of the snakes' cells: background, and the next cell above, below, right and left
_COLOURS = np.array([(0, 0, 255), (255, 0, 0), (0, 255, 0), (255, 255, 0), (0, 255, 255)])


def _arrays(*names):
    root = folder()
    file = root.joinpath(*names) if root else None
    if file is None or not file.exists():
        return None
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def load_horses():
    """Superpixels of photographs, labels 1 (horse) and 0, and the share of horse in each node.

    The weights of nodes are areas over the mean area, so that weighted accuracies are those of
    pixels.
    """
    data = _arrays("graphs", "horses.npz")
    if data is None:
        return None
    areas = data["area"].astype(float)
    X = Graphs(
        data["X"] / np.float32(255), data["edges"], data["node_offsets"], data["edge_offsets"],
        edge_features=data["edge_X"] / np.float32(255), node_weights=areas / areas.mean(),
    )
    y = Sequences(data["y"].astype(int), X.node_offsets)
    return X, y, data["split"] == 1, Sequences(data["foreground"] / areas, X.node_offsets)


def load_horse_maps():
    """For each photograph the map of its superpixels and the true mask, or None."""
    data = _arrays("graphs", "horses_maps.npz")
    if data is None:
        return None
    ends = np.cumsum(data["shapes"].astype(int).prod(axis=1))
    mask = np.unpackbits(data["mask"])[: ends[-1]]
    return [
        (data["segments"][end - h * w : end].reshape(h, w), mask[end - h * w : end].reshape(h, w))
        for end, (h, w) in zip(ends, data["shapes"].astype(int), strict=True)
    ]


def load_msrc(levels=1):
    """Superpixels of photographs with 21 labels, -1 where a node has none, and counts of pixels.

    With two levels, nodes of type 1 are coarse superpixels, and edges join each of the others to
    the one that it is in: stars. Otherwise edges join neighbours, and have features.

    The last item has rows (node, label, number of pixels), nodes counted over all graphs, the
    label 21 being none: the accuracy of pixels counts those of labels below 21.
    """
    data = _arrays("graphs", "msrc.npz")
    if data is None:
        return None
    fine_X, fine_y = data["X"] / np.float32(255), _unlabelled(data["y"])
    fine, pixels = data["node_offsets"], data["pixels"].astype(int)
    if levels == 1:
        X = Graphs(
            fine_X, data["edges"], fine, data["edge_offsets"],
            edge_features=data["edge_X"] / np.float32(255),
        )
        return X, Sequences(fine_y, fine), data["split"] == 1, pixels
    coarse = data["coarse_offsets"]
    of_fine = np.repeat(np.arange(len(fine) - 1), np.diff(fine))
    of_coarse = np.repeat(np.arange(len(fine) - 1), np.diff(coarse))
    # the fine nodes of a graph come before the coarse ones
    fine_places = np.arange(fine[-1]) + coarse[of_fine]
    coarse_places = np.arange(coarse[-1]) + fine[of_coarse + 1]
    features = np.zeros((fine[-1] + coarse[-1], fine_X.shape[1]), dtype=np.float32)
    features[fine_places] = fine_X
    features[coarse_places, : data["coarse_X"].shape[1]] = data["coarse_X"] / np.float32(255)
    labels, types = np.empty(len(features), dtype=int), np.zeros(len(features), dtype=int)
    labels[fine_places], labels[coarse_places] = fine_y, _unlabelled(data["coarse_y"])
    types[coarse_places] = 1
    inside = np.arange(fine[-1]) - fine[of_fine]
    edges = np.column_stack([inside, np.diff(fine)[of_fine] + data["parent"]])
    X = Graphs(features, edges, fine + coarse, fine, node_types=types)
    pixels[:, 0] = fine_places[pixels[:, 0]]
    return X, Sequences(labels, X.node_offsets), data["split"] == 1, pixels


def _unlabelled(labels):
    return np.where(labels == 255, -1, labels.astype(int))


def load_snakes():
    """Grids of coloured cells, labels 0 ... 10, and the (rows, columns) of each.

    Features of a cell are the colours of the 3 x 3 cells around it, each one of five or outside;
    those of an edge are the colours of its two cells, and its direction is its type.
    """
    data = _arrays("snakes.npz")
    if data is None:
        return None
    shapes, offsets = data["shape"], data["offsets"]
    colours = (data["X"][:, np.newaxis] == _COLOURS).all(axis=2).argmax(axis=1)
    images, features = [], []
    for start, (h, w) in zip(offsets, shapes, strict=False):
        image = colours[start : start + h * w].reshape(h, w)
        padded = np.pad(image, 1, constant_values=len(_COLOURS))
        around = [padded[i : i + h, j : j + w] for i in range(3) for j in range(3)]
        images.append(image)
        features.append(np.eye(6, dtype=np.float32)[np.stack(around, axis=2)].reshape(h, w, -1))
    grid = Graphs.from_grid(images, contrast=False, directed=True, features=features)
    ends = grid.edges + np.repeat(grid.node_offsets[:-1], grid.edge_lengths)[:, np.newaxis]
    X = Graphs(
        grid.node_features, grid.edges, grid.node_offsets, grid.edge_offsets,
        edge_features=np.eye(5, dtype=np.float32)[colours[ends]].reshape(-1, 10),
        edge_types=grid.edge_types,
    )
    return X, Sequences(data["y"], offsets), data["split"] == 1, shapes


def load_pose():
    """Trees of 14 joints, labels 0 ... 255 the places of a 16 x 16 grid, and positions (x, y).

    Features of a joint are the scores of each place by two detectors, place after place; joints
    are types of nodes, and pairs of them types of edges.
    """
    data = _arrays("graphs", "pose.npz")
    if data is None:
        return None
    n, n_joints = data["y"].shape
    edges = data["edges"].astype(int)
    heat = np.swapaxes(data["heat"], 2, 3).reshape(n * n_joints, -1)
    X = Graphs(
        (heat.astype(np.float32) - 64) / 24,
        np.tile(edges, (n, 1)), n_joints * np.arange(n + 1), len(edges) * np.arange(n + 1),
        node_types=np.tile(np.arange(n_joints), n), edge_types=np.tile(np.arange(len(edges)), n),
    )
    y = Sequences(data["y"].astype(int).ravel(), X.node_offsets)
    return X, y, data["split"] == 1, data["xy"]
