"""Small random graphs for graph taggers, and their objective by enumeration of all labellings."""

import itertools

import numpy as np
from numpy.testing import assert_allclose
from scipy.optimize import linprog
from scipy.special import logsumexp

from fastm4n import CountFactor, Graphs, GraphTagger, Sequences
from fastm4n.losses import block_losses
from fastm4n.surrogates import make_surrogate


def random_graphs(
    seed, n=12, labels=3, n_features=3, n_edge_features=0, n_types=1, n_edge_types=1, weights=False,
    most=4, density=0.6, forest=False,
):
    """Graphs of up to `most` nodes, an empty one and a single node among them, and labels.

    Nodes of type t have the labels t ... t + labels - 1.
    """
    rng = np.random.default_rng(seed)
    sizes = np.append([0, 1], rng.integers(1, most + 1, n - 2))
    edges = []
    for size in sizes:
        pairs = [
            pair for pair in itertools.combinations(range(size), 2) if rng.random() < density]
        if forest:
            pairs = [(int(rng.integers(j)), j) for j in range(1, size) if rng.random() < 0.8]
        edges.append([pair[:: rng.choice([-1, 1])] for pair in pairs])
    counts = [len(pairs) for pairs in edges]
    n_nodes, n_edges = int(sizes.sum()), sum(counts)
    types = rng.integers(0, n_types, n_nodes)
    features = np.round(4 * rng.normal(size=(n_nodes, n_features))) / 4
    X = Graphs(
        features,
        np.array([pair for pairs in edges for pair in pairs], dtype=int).reshape(-1, 2),
        np.append(0, np.cumsum(sizes)), np.append(0, np.cumsum(counts)),
        edge_features=rng.integers(0, 5, (n_edges, n_edge_features)) / 4 if n_edge_features else None,
        node_types=types if n_types > 1 else None,
        edge_types=rng.integers(0, n_edge_types, n_edges) if n_edge_types > 1 else None,
        node_weights=rng.uniform(0.0, 2.0, n_nodes) if weights else None,
    )
    truth = rng.normal(size=(n_types, n_features, labels))
    scores = np.einsum("nf,nfl->nl", features, truth[types]) + rng.gumbel(size=(n_nodes, labels))
    y = scores.argmax(axis=1) + types
    return X, Sequences(y, X.node_offsets)


def with_random_factors(X, y, seed, labels=3, share=0.7, finite=False):
    """Factors that allow the labels y of `random_graphs`; other scores than 0 if `finite`.

    Each is a table of up to three nodes, or, of two labels, a count of any number.
    """
    rng = np.random.default_rng(seed)
    lists = []
    for i, graph in enumerate(X):
        n = len(graph.node_features)
        types = np.zeros(n, dtype=int) if graph.node_types is None else graph.node_types
        truth, found = np.asarray(y[i], dtype=int) - types, []
        for _ in range(rng.integers(1, 3) if n and rng.random() < share else 0):
            nodes = rng.permutation(n)[: rng.integers(1, min(n, 3) + 1)]
            table = np.where(rng.random((labels,) * nodes.size) < 0.5, -np.inf, 0.0)
            if finite:
                table += rng.normal(size=table.shape)
            table[tuple(truth[nodes])] = rng.normal() if finite else 0.0
            found.append((nodes, table))
        if labels == 2 and n and rng.random() < share:
            negated = rng.random(n) < 0.3
            count = int(np.sum(truth != negated))
            found.append(CountFactor(
                np.arange(n), max(0, count - int(rng.integers(0, 2))),
                count + int(rng.integers(0, 2)), negated))
        lists.append(found or None)
    return X.with_factors(lists)


def factor_scores_of(tagger, X, i, all_labels):
    """What these labellings of graph i, numbers of classes, score in its factors."""
    total = np.zeros(len(all_labels))
    factors = X[i].factors
    if factors is None:
        return total
    types = np.zeros(all_labels.shape[1], dtype=int)
    if X.node_types is not None:
        types = X[i].node_types
    for row, labels in enumerate(all_labels):
        own = np.array([
            np.flatnonzero(tagger.node_classes_[t] == label)[0]
            for t, label in zip(types, labels, strict=True)])
        total[row] = sum(factor.score(own) for factor in factors)
    return total


def labellings(tagger, X, i):
    """All labellings of graph i that its factors allow, as rows of numbers of classes."""
    types = np.zeros(len(X[i].node_features), dtype=int)
    if X.node_types is not None:
        types = X[i].node_types
    options = [row[row >= 0] for row in tagger.node_classes_[types]]
    every = list(itertools.product(*options))
    every = np.array(every, dtype=int).reshape(len(every), len(types))
    return every[factor_scores_of(tagger, X, i, every) > -np.inf]


def pair_scores(tagger, graph, e):
    """Scores of edge e for all pairs of classes of its nodes' types."""
    k = tagger.classes_.size
    edge_type = 0 if graph.edge_types is None else graph.edge_types[e]
    weights = np.array(tagger.edge_intercept_[edge_type])
    if graph.edge_features is not None:
        q = graph.edge_features.shape[1]
        coef = tagger.edge_coef_[edge_type * q : (edge_type + 1) * q]
        weights = weights + np.tensordot(graph.edge_features[e], coef, axes=1)
    if tagger.pairwise in ("potts", "attractive"):
        return weights * np.eye(k)
    if tagger.pairwise == "displacement":
        place, width = np.arange(k), tagger.grid_shape[1]
        moves = [np.subtract.outer(place % width, place % width),
                 np.subtract.outer(place // width, place // width)]
        dx, dy = ((move - shift) / width
                  for move, shift in zip(moves, tagger.shifts_[edge_type], strict=True))
        return np.einsum("p,pab->ab", weights, np.array([dx, dx**2, dy, dy**2]))
    first, second = graph.edges[e]
    table = np.full((k, k), np.nan)
    types = np.zeros(2, dtype=int)
    if graph.node_types is not None:
        types = graph.node_types[[first, second]]
    rows, columns = (tagger.node_classes_[t] for t in types)
    for a, row in enumerate(rows):
        for b, column in enumerate(columns):
            if row >= 0 and column >= 0:
                table[row, column] = weights[a, b]
    return table


def node_scores(tagger, X, i):
    """Scores of the classes of each node of graph i, nan for those that it has not."""
    graph = X[i]
    n, d = graph.node_features.shape
    scores = np.full((n, tagger.classes_.size), np.nan)
    for t in range(n):
        node_type = 0 if graph.node_types is None else graph.node_types[t]
        classes = tagger.node_classes_[node_type]
        if tagger.label_features:
            channels = tagger.coef_.shape[1]
            found = graph.node_features[t].reshape(-1, channels) @ tagger.coef_[node_type]
        else:
            found = tagger.coef_[:, node_type * d : (node_type + 1) * d] @ graph.node_features[t]
            found = found + tagger.intercept_[node_type]
        scores[t, classes[classes >= 0]] = found[classes >= 0]
    return scores


def scores_of(tagger, X, i, all_labels):
    """The score of each of these labellings of graph i, that of its factors too."""
    graph, nodes = X[i], node_scores(tagger, X, i)
    total = nodes[np.arange(all_labels.shape[1]), all_labels].sum(axis=1)
    total = total + factor_scores_of(tagger, X, i, all_labels)
    for e, (first, second) in enumerate(graph.edges):
        total = total + pair_scores(tagger, graph, e)[all_labels[:, first], all_labels[:, second]]
    return total


def loss_of(tagger, X, y, i):
    """The surrogate loss of graph i by enumeration."""
    all_labels = labellings(tagger, X, i)
    scores = scores_of(tagger, X, i, all_labels)
    truth = np.searchsorted(tagger.classes_, y[i])
    true_score = scores_of(tagger, X, i, truth[np.newaxis])[0]
    if tagger.surrogate == "log":
        return logsumexp(scores) - true_score
    cost = tagger.cost_matrix_
    n = all_labels.shape[1]
    om = np.ones(n) if X.node_weights is None else X[i].node_weights
    if tagger.cost_scale == "mean":
        om = om / n
    if tagger.surrogate == "max_margin":
        return (scores + cost[truth, all_labels] @ om).max() - true_score
    # max over distributions p of labellings, and z_t no more than what each answer at t costs
    k, m = cost.shape[0], len(all_labels)
    rows = []
    for t in range(n):
        z = np.zeros(n)
        z[t] = 1.0
        rows += [np.concatenate([-cost[all_labels[:, t], j], z]) for j in range(k)]
    found = linprog(
        -np.concatenate([scores, om]), A_ub=np.array(rows), b_ub=np.zeros(n * k),
        A_eq=np.concatenate([np.ones(m), np.zeros(n)])[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * m + [(None, None)] * n, method="highs")
    return -found.fun - true_score


def objective(tagger, X, y):
    """mean loss + alpha / 2 ||w||^2 of a fitted tagger, graphs without nodes not counted."""
    kept = np.flatnonzero(X.lengths)
    norm = sum(np.sum(np.square(w)) for w in (
        tagger.coef_, tagger.intercept_, tagger.edge_coef_, tagger.edge_intercept_))
    losses = [loss_of(tagger, X, y, i) for i in kept]
    return np.mean(losses) + 0.5 * tagger.alpha_ * norm


def answer_at(surrogate, outputs, v):
    """What the oracle of the last block finds at the scores v: mu, its value, and the bound."""
    size = len(v)
    scores = np.zeros(outputs.layout.n_numbers)
    scores[-size:] = v
    found = block_losses(make_surrogate(surrogate, outputs), scores)
    truth = outputs.truth()[-size:]
    of_truth = v @ truth
    return found.gradient[-size:] + truth, found.value[-1] + of_truth, found.upper[-1] + of_truth


def fitted(X, y, surrogate="max_margin", **parameters):
    parameters = {"alpha": 0.1, "tol": 1e-3, "random_state": 0, **parameters}
    return GraphTagger(surrogate, **parameters).fit(X, y)


def check_objectives(tagger, close, objective):
    """Hold a fit and a closer one to the objective by enumeration, and to each other."""
    assert tagger.exact_ and tagger.integrality_gap_ == 0.0
    for model in (tagger, close):
        # inexact oracles of max-min err by a share of the gap
        slack = model.duality_gap_ if model.surrogate == "max_min" else 0.0
        assert_allclose(objective(model), model.primal_objective_, atol=slack + 1e-8)
    assert tagger.primal_objective_ - tagger.duality_gap_ <= close.primal_objective_
    assert close.dual_objective_ <= tagger.primal_objective_
