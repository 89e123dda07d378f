"""What displays of a regularisation path show of it."""

import numpy as np

# points of the gap's curve for each decade of alpha, beside the ends of its pieces
POINTS_PER_DECADE = 40


def path_data(path, alpha_min, alpha_max, n_coefs, feature_names):
    """What all displays of `path` show."""
    alphas = path.alphas
    if alpha_min is None:
        # a little of what there is below, as far as it is certified
        alpha_min = max(alphas[-1] / 2, min(alphas[-1], path.certified_down_to))
    low, high = float(alpha_min), float(2 * alphas[0] if alpha_max is None else alpha_max)
    if not 0 < low < high:
        raise ValueError(
            f"The curve must go from an alpha above 0 to a larger one, not from {low:g} to "
            f"{high:g}."
        )
    switches = _switches(path)
    # the gap may jump at a breakpoint, where the weights of its neighbour are better already
    sides = np.nextafter(alphas, np.inf), np.nextafter(alphas, 0)
    curve = _curve_points(np.concatenate([alphas, *sides, switches]), low, high)
    data = {
        "alphas": alphas, "gaps": path.relative_gaps, "eps": path.eps, "curve_alphas": curve,
        "curve_gaps": np.array([path.relative_gap(alpha) for alpha in curve.tolist()]),
        "switches": switches,
    }
    if path.is_sparse:
        data["n_nonzero"] = path.n_nonzero
    if n_coefs:
        data["coefs"], data["coef_names"] = _strongest_coefs(path, n_coefs, feature_names)
    return data


def _switches(path):
    """Where, between two breakpoints, the objectives of their weights are the same."""
    above, below = path.alphas[:-1], path.alphas[1:]
    less_loss, more_norm = path.losses[:-1] - path.losses[1:], np.diff(path.norms)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = 2 * less_loss / more_norm
    # weights that are not larger are better everywhere, or nowhere
    crossings = np.where(more_norm > 0, crossings, np.where(less_loss > 0, above, below))
    return np.clip(crossings, below, above)


def _curve_points(corners, low, high):
    """Decreasing alphas: the corners of the gap between low and high, and points between them."""
    inside = corners[(corners > low) & (corners < high)]
    n = 2 + int(POINTS_PER_DECADE * np.log10(high / low))
    between = np.geomspace(high, low, n)[1:-1]
    return np.unique(np.concatenate([[low, high], inside, between]))[::-1]


def _strongest_coefs(path, n_coefs, feature_names):
    """Weights at the breakpoints, (n_breakpoints, n_coefs), and their names."""
    estimator = path.estimator(path.alphas[-1])
    if not hasattr(estimator, "coef_"):
        raise ValueError("n_coefs needs the weights of features, which kernels do not have.")
    largest = 0.0
    for alpha in path.alphas:
        largest = np.maximum(largest, np.abs(path.coef(alpha)))
    chosen = np.sort(np.argsort(-largest.ravel(), kind="stable")[:n_coefs])
    places = np.transpose(np.unravel_index(chosen, largest.shape))
    coefs = np.array([np.ravel(path.coef(alpha))[chosen] for alpha in path.alphas])
    n_features = largest.shape[-1]
    if feature_names is None:
        feature_names = getattr(
            estimator, "feature_names_in_", [f"x{j}" for j in range(n_features)]
        )
    elif len(feature_names) != n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but there are {n_features} features."
        )
    labels = estimator._labels_attribute()
    outputs = None if labels is None else getattr(estimator, labels)
    names = []
    for *output, feature in places:
        parts = [str(part) for part in output]
        if parts and outputs is not None:
            parts[0] = str(outputs[output[0]])
        name = str(feature_names[feature])
        names.append(f"{', '.join(parts)}: {name}" if parts else name)
    return coefs, names
