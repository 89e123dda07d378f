"""Matching problems of points in photographs and in distorted copies of them.

The photographs are scikit-learn's two: a temple for training, a flower for testing. A problem is a
window of one of them. Its points are the strongest corners that lie apart. The copy is turned,
scaled and sheared at random, brightened or darkened, and noisy; where a point is found in it is off
by a pixel or so, and the points of the copy are shuffled.
"""

import numpy as np
from scipy import ndimage
from sklearn.datasets import load_sample_images

N_POINTS = 12
REACH = 68  # half of the window's width, in pixels
RADIUS = 44  # of the disc that has the points: no distortion takes them out of the copy
APART = 7
TURN, SCALE, SHEAR = np.deg2rad(60), 0.3, 0.2
NOISE, JITTER = 0.08, 1.5
# patches of 7 x 7 samples, two pixels apart
STEPS = 2.0 * np.stack(np.meshgrid(*[np.arange(-3, 4)] * 2, indexing="ij"))
RINGS = np.minimum(np.hypot(*STEPS) // 2, 3).astype(int)


def photographs():
    """The two photographs in grey, in [0, 1]."""
    return [image.mean(axis=2) / 255 for image in load_sample_images().images]


def corners(image, rng):
    """(N_POINTS, 2) positions in `image` of its strongest corners, in random order; or None."""
    across, along = (ndimage.gaussian_filter(image, 1.0, order=order) for order in ((1, 0), (0, 1)))
    aa, bb, ab = (
        ndimage.gaussian_filter(product, 2.0)
        for product in (across**2, along**2, across * along)
    )
    # the smaller eigenvalue of the structure tensor
    strength = (aa + bb - np.hypot(aa - bb, 2 * ab)) / 2
    peaks = strength == ndimage.maximum_filter(strength, 2 * APART + 1)
    peaks &= strength > 1e-5
    points = np.argwhere(peaks)
    points = points[np.hypot(*(points.T - REACH)) <= RADIUS]
    points = points[np.argsort(-strength[tuple(points.T)])][:N_POINTS]
    return rng.permutation(points).astype(float) if len(points) == N_POINTS else None


def distort(image, points, rng):
    """A copy of `image` and where the points are in it."""
    turn, shear = rng.uniform(-TURN, TURN), rng.uniform(-SHEAR, SHEAR)
    scale = np.exp(rng.uniform(-SCALE, SCALE))
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = scale * rotation @ np.array([[1, shear], [0, 1]])
    centre = (np.array(image.shape) - 1) / 2
    back = np.linalg.inv(matrix)
    copy = ndimage.affine_transform(
        image, back, offset=centre - back @ centre, order=1, mode="reflect"
    )
    copy = rng.uniform(0.7, 1.3) * copy + rng.uniform(-0.1, 0.1)
    copy += NOISE * rng.randn(*copy.shape)
    return copy, (points - centre) @ matrix.T + centre + JITTER * rng.randn(*points.shape)


def patches(image, points):
    """(n_points, 49) samples around each point, of mean zero and unit length."""
    smooth = ndimage.gaussian_filter(image, 1.0)
    at = points.T[:, :, None, None] + STEPS[:, None]
    values = ndimage.map_coordinates(smooth, at, order=1, mode="reflect").reshape(len(points), -1)
    values -= values.mean(axis=1, keepdims=True)
    # a flat patch is left as good as zero
    return values / (np.linalg.norm(values, axis=1, keepdims=True) + 1e-3)


def rings(values):
    """(n_points, 8) means and standard deviations in rings: they stay when a patch is turned."""
    parts = [values[:, RINGS.ravel() == r] for r in range(RINGS.max() + 1)]
    return np.concatenate([[part.mean(axis=1), part.std(axis=1)] for part in parts]).T


def features(p, q):
    """(N_POINTS, N_POINTS, d) of patches p, q of the points in the window and in the copy.

    Positions are not among them: with few distortions as these, they would give all away.
    """
    rows, columns = p[:, None], q[None]
    near = np.abs(rings(p)[:, None] - rings(q)[None])
    return np.concatenate([
        rows * columns, np.abs(rows - columns), near, near**2,
        (rows * columns).sum(axis=2, keepdims=True),
    ], axis=2)


def problems(image, n_problems, rng):
    """dict with a, b (patches), X, y, and the window, copy and points of each problem."""
    parts = {name: [] for name in ("a", "b", "X", "y", "window", "copy", "points", "found")}
    while len(parts["y"]) < n_problems:
        row, column = (rng.randint(REACH, size - REACH + 1) for size in image.shape)
        window = image[row - REACH : row + REACH, column - REACH : column + REACH]
        points = corners(window, rng)
        if points is None:
            continue
        copy, found = distort(window, points, rng)
        order = rng.permutation(N_POINTS)
        found = found[order]
        p, q = patches(window, points), patches(copy, found)
        values = p, q, features(p, q), np.argsort(order), window, copy, points, found
        for name, value in zip(parts, values):
            parts[name].append(value)
    return {name: np.array(values) for name, values in parts.items()}
