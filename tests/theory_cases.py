"""Features of factors from their definition, and complexities by all signs."""

from itertools import product

import numpy as np

from fastm4n import SequenceTagger


def tagger(rng, lengths, n_features, R, **parameters):
    X = [rng.normal(size=(n, n_features)).round(2) for n in lengths]
    y = [rng.integers(0, R, n) for n in lengths]
    flat = np.concatenate(y)
    flat[:R] = np.arange(R)  # all labels occur
    y = np.split(flat, np.cumsum(lengths)[:-1])
    parameters = {"cost_scale": "sum", "max_iter": 20, "tol": 0.1, **parameters}
    return SequenceTagger(random_state=0, **parameters).fit(X, y), X, y


def chain_features(x, labels, R, model, positions=None, pairs=None):
    """Psi of positions and pairs of a labelling, as a dict from (family, ...) to values."""
    T, out = len(x), {}

    def add(key, value):
        out[key] = out.get(key, 0.0) + value

    for t in range(T) if positions is None else positions:
        y = labels[t]
        for j, value in enumerate(x[t]):
            add(("coef", j, y), value)
        if model.fit_intercept:
            add(("intercept", 0, y), 1.0)
        if model._scored.start_end and t == 0:
            add(("start", 0, y), 1.0)
        if model._scored.start_end and t == T - 1:
            add(("end", 0, y), 1.0)
    if model._scored.pairs:
        for t in range(1, T) if pairs is None else pairs:
            add(("transition", labels[t - 1], labels[t]), 1.0)
            if model._scored.features is not None:
                for j, value in enumerate(x[t]):
                    add(("selected", j, labels[t - 1], labels[t]), value)
    return out


def listed_factors(model, X, R, decomposition):
    """[(|F_i|, Psi)] of all examples, factors and values, from the definition."""
    out = []
    for x in X:
        T = len(x)
        found = []
        with_pairs = model._scored.pairs
        for t in range(T):
            if decomposition == "positions" and with_pairs and t > 0:
                values = [
                    chain_features(x, {t - 1: a, t: b}, R, model, [t], [t])
                    for a, b in product(range(R), repeat=2)]
            else:
                values = [chain_features(x, {t: a}, R, model, [t], []) for a in range(R)]
            found.append(values)
        if decomposition == "parts" and with_pairs:
            found += [
                [chain_features(x, {t - 1: a, t: b}, R, model, [], [t])
                 for a, b in product(range(R), repeat=2)] for t in range(1, T)]
        out += [(len(found), psi) for values in found for psi in values]
    return out


def as_matrix(listed):
    """sqrt|F| Psi of each sign, and the features' names."""
    names = sorted({name for _, psi in listed for name in psi}, key=str)
    where = {name: j for j, name in enumerate(names)}
    rows = np.zeros((len(listed), len(names)))
    for i, (n_factors, psi) in enumerate(listed):
        for name, value in psi.items():
            rows[i, where[name]] = np.sqrt(n_factors) * value
    return rows, names


def exact(listed, m):
    """Complexities per unit of norm, all signs being enumerated."""
    rows, names = as_matrix(listed)
    signs = np.array(list(product((-1.0, 1.0), repeat=len(rows))))
    Z = signs @ rows
    features, labels = [str(name[:-1]) for name in names], [name[-1] for name in names]
    by_feature = [[i for i, name in enumerate(features) if name == each] for each in set(features)]
    by_label = [[i for i, name in enumerate(labels) if name == each] for each in set(labels)]
    groups = {"l21_features": by_feature, "l21_labels": by_label}
    found = {
        "l2": np.linalg.norm(Z, axis=1), "l1": np.abs(Z).max(axis=1), "linf": np.abs(Z).sum(axis=1)}
    for norm, each in groups.items():
        found[norm] = np.max([np.linalg.norm(Z[:, group], axis=1) for group in each], axis=0)
    return {norm: values.mean() / m for norm, values in found.items()}
