"""Graphs of images: grids of pixels, and the adjacency of regions."""

import numpy as np

from fastm4n.base.checks import check_flag, is_number
from fastm4n.data._graph_arrays import as_features, check_finite
from fastm4n.data._ragged import cut

# from a pixel to the neighbours that come after it in row-major order, as (rows, columns)
_STEPS = {4: ((0, 1), (1, 0)), 8: ((0, 1), (1, 0), (1, 1), (1, -1))}


def grids(images, connectivity, contrast, directed, features):
    """The arrays of `Graphs.from_grid`."""
    steps = _checked(connectivity)
    check_flag("contrast", contrast)
    check_flag("directed", directed)
    images = [_as_image(image, f"images[{i}]") for i, image in enumerate(_listed(images, "images"))]
    shown = images
    if features is not None:
        shown = [
            _as_image(part, f"features[{i}]")
            for i, part in enumerate(_listed(features, "features"))
        ]
        if len(shown) != len(images):
            raise ValueError(f"There are {len(shown)} features for {len(images)} images.")
        for i, (part, image) in enumerate(zip(shown, images, strict=True)):
            if part.shape[:2] != image.shape[:2]:
                raise ValueError(
                    f"features[{i}] are of {part.shape[0]} x {part.shape[1]} pixels, images[{i}] "
                    f"of {image.shape[0]} x {image.shape[1]}.")
    edges, types, contrasts, known = [], [], [], {}
    for image in images:
        size = image.shape[:2]
        if size not in known:
            known[size] = _grid(size, steps)
        edges.append(known[size][0])
        types.append(known[size][1])
        if contrast:
            contrasts.append(_contrast(_pixels(image), edges[-1])[:, np.newaxis])
    arrays = {
        "node_features": _values([_pixels(part) for part in shown]),
        "edges": _stacked(edges, 2, np.int32),
        "node_offsets": cut([image.shape[0] * image.shape[1] for image in images]),
        "edge_offsets": cut([len(part) for part in edges]),
    }
    name = "images" if features is None else "features"
    check_finite(arrays["node_features"], name, arrays["node_offsets"], "pixel")
    if contrast:
        arrays["edge_features"] = _stacked(contrasts, 1, np.float32)
        if features is not None:
            check_finite(arrays["edge_features"], "contrasts of images", arrays["edge_offsets"],
                         "edge")
    if directed:
        arrays["edge_types"] = np.concatenate([np.empty(0, np.int32), *types])
    return arrays


def regions(label_maps, X, connectivity, contrast, start_label):
    """The arrays of `Graphs.from_regions`."""
    steps = _checked(connectivity)
    check_flag("contrast", contrast)
    if not is_number(start_label, low=0, strict=False, integer=True):
        raise ValueError(f"start_label must be an integer >= 0, got {start_label!r}.")
    label_maps, X = _listed(label_maps, "label_maps"), _listed(X, "X")
    if len(label_maps) != len(X):
        raise ValueError(f"There are {len(label_maps)} label_maps, but X is of {len(X)}.")
    values, edges, columns, areas = [], [], [], []
    for i, (numbers, part) in enumerate(zip(label_maps, X, strict=True)):
        numbers, part = _as_map(numbers, i, start_label), np.asarray(part)
        n_regions = int(numbers.max(initial=-1)) + 1
        if part.ndim == 3:
            part = _means(_as_image(part, f"X[{i}]"), numbers, n_regions, i)
        elif part.ndim != 2:
            raise ValueError(
                f"X[{i}] must be the features of the regions, (n_regions, d), or an image "
                f"(h, w, d), got {part.ndim} dimension(s).")
        if len(part) < n_regions:
            raise ValueError(
                f"label_maps[{i}] has the region {n_regions - 1 + start_label}, but X[{i}] has "
                f"{len(part)} rows, for the regions {start_label} ... "
                f"{start_label + len(part) - 1}. If maps count from 1, pass start_label=1.")
        values.append(part)
        areas.append(np.bincount(numbers[numbers >= 0], minlength=len(part)))
        pairs, lengths = _boundaries(numbers, steps, len(part))
        edges.append(pairs)
        columns.append([lengths / lengths.mean() if len(lengths) else lengths])
        if contrast:
            columns[-1].append(_contrast(part, pairs))
    node_offsets = cut([len(part) for part in values])
    features = _values(values)
    check_finite(features, "X", node_offsets, "region")
    areas = np.concatenate([np.empty(0), *areas])
    if areas.any():
        areas /= areas.mean()
    return {
        "node_features": features, "edges": _stacked(edges, 2, np.int32),
        "node_offsets": node_offsets, "edge_offsets": cut([len(part) for part in edges]),
        "edge_features": _stacked(
            [np.column_stack(parts) for parts in columns], 1 + contrast, np.float32),
        "node_weights": areas,
    }


def _checked(connectivity):
    if isinstance(connectivity, bool) or connectivity not in (4, 8):
        raise ValueError(f"connectivity must be 4 or 8, got {connectivity!r}.")
    return _STEPS[connectivity]


def _listed(arrays, name):
    if isinstance(arrays, (str, bytes, dict)) or not hasattr(arrays, "__iter__"):
        raise TypeError(f"{name} must be a list of arrays, not {type(arrays).__name__}.")
    for i, array in enumerate(arrays) if isinstance(arrays, (list, tuple)) else ():
        if isinstance(array, (str, bytes, list)) and not _is_rows(array):
            what = "a list of images" if isinstance(array, list) else f"{array!r:.60}"
            raise TypeError(
                f"{name}[{i}] must be an array, not {what}. Read files, for example by "
                "matplotlib.image.imread, into one list.")
    if isinstance(arrays, np.ndarray) and arrays.ndim == 3 and arrays.shape[2] in (3, 4):
        n, h, w = arrays.shape
        raise ValueError(
            f"{name} is one array of shape {arrays.shape}. Pass [{name}] for one image of {w} "
            f"channels, or list({name}) for {n} images of {h} x {w} pixels.")
    return list(arrays)


def _is_rows(array):
    """Whether a list contains the rows of one array."""
    try:
        np.asarray(array)
    except ValueError:
        return False
    return isinstance(array, list)


def _as_image(image, name):
    """An array (h, w, d)."""
    image = np.asarray(image)
    if image.ndim not in (2, 3):
        raise ValueError(
            f"{name} must have the shape (h, w) or (h, w, d), got {image.ndim} dimension(s). Put a "
            "single image into a list.")
    if image.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be real numbers, got {image.dtype}.")
    return image if image.ndim == 3 else image[:, :, np.newaxis]


def _pixels(image):
    height, width, d = image.shape
    return image.reshape(height * width, d)


def _as_map(numbers, i, start_label):
    numbers = np.asarray(numbers)
    if numbers.ndim != 2 or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"label_maps[{i}] must be integers of shape (h, w), got {numbers.ndim} dimension(s) of "
            f"{numbers.dtype}.")
    return numbers.astype(np.int64) - start_label


def _values(parts):
    """Features of all nodes in one array."""
    for i, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            raise ValueError(
                f"Image {i} has {part.shape[1]} feature(s) for each node, image 0 has "
                f"{parts[0].shape[1]}.")
    return as_features(np.concatenate(parts) if parts else np.empty((0, 0)), "node_features")


def _stacked(parts, n_columns, dtype):
    return np.concatenate([np.empty((0, n_columns), dtype), *parts]).astype(dtype, copy=False)


def _grid(size, steps):
    """Edges of a grid, sorted by first nodes, and the number of the step of each."""
    height, width = size
    rows, columns = np.indices(size, dtype=np.int32, sparse=True)
    numbers = np.arange(height * width, dtype=np.int32).reshape(size)
    inside = np.empty((*size, len(steps)), dtype=bool)
    for step, (down, right) in enumerate(steps):
        inside[:, :, step] = (
            (rows + down < height) & (columns + right < width) & (columns + right >= 0))
    row, column, types = np.nonzero(inside)
    first = numbers[row, column]
    shifts = np.array([down * width + right for down, right in steps], dtype=np.int32)
    return np.column_stack([first, first + shifts[types]]), types.astype(np.int32)


def _contrast(values, edges):
    """exp(-|x - x'|^2 / (2 mean |x - x'|^2)) of the two ends of each edge."""
    squares = np.zeros(len(edges))
    first, second = edges[:, 0], edges[:, 1]
    # in units of the largest value, as squares of large ones would overflow
    unit = max(abs(float(values.max(initial=0))), abs(float(values.min(initial=0)))) or 1.0
    with np.errstate(invalid="ignore"):  # values that are not finite are refused later
        for column in values.T:
            column = column / unit
            squares += (column[first] - column[second]) ** 2
        mean = squares.mean() if len(squares) else 0.0
        return np.ones(len(edges)) if mean == 0 else np.exp(-squares / (2 * mean))


def _boundaries(numbers, steps, n_regions):
    """Pairs of regions that touch, the smaller first, and the neighbouring pixels of each."""
    keys = []
    height, width = numbers.shape
    for down, right in steps:
        left = max(0, -right)
        one = numbers[: height - down, left : width - max(0, right)].ravel()
        other = numbers[down:, left + right : width + min(0, right)].ravel()
        beside = (one != other) & (one >= 0) & (other >= 0)
        one, other = one[beside], other[beside]
        keys.append(np.minimum(one, other) * n_regions + np.maximum(one, other))
    keys, lengths = np.unique(np.concatenate(keys), return_counts=True)
    return np.column_stack(np.divmod(keys, max(1, n_regions))), lengths


def _means(image, numbers, n_regions, i):
    """The mean over each region."""
    if image.shape[:2] != numbers.shape:
        raise ValueError(
            f"X[{i}] is an image of {image.shape[0]} x {image.shape[1]} pixels, label_maps[{i}] is "
            f"of {numbers.shape[0]} x {numbers.shape[1]}.")
    inside = numbers >= 0
    areas = np.bincount(numbers[inside], minlength=n_regions)
    sums = [
        np.bincount(numbers[inside], weights=column[inside], minlength=n_regions)
        for column in np.moveaxis(image, 2, 0)]
    return np.stack(sums, axis=1) / np.maximum(1, areas)[:, np.newaxis]
