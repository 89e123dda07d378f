"""Taggers whose transitions depend on features, or that have weights of what occurs only.

Their certificates from the fitted arrays, in plain NumPy, and the CRF by enumeration.
"""

import itertools

import numpy as np
import scipy.sparse as sp
from numpy.testing import assert_allclose

from fastm4n.reference import ChainOutputs, chain_indicator, score_labelling


def as_csr(X, dtype=np.float64):
    return [sp.csr_array(x.astype(dtype)) for x in X]


def columns_of(model):
    columns = getattr(model, "transition_features_", None)
    return [] if columns is None else columns


def arrays_of(model):
    R = model.classes_.size
    edges = getattr(model, "transition_feature_coef_", np.zeros((0, R, R)))
    return [model.coef_.T, model.intercept_, model.start_coef_, model.end_coef_,
            model.transition_coef_, edges]


def chain_of(model, x):
    """unary (T, R) and pairwise (T-1, R, R) of one sequence, from the fitted arrays."""
    unary = x @ model.coef_.T + model.intercept_
    unary[0] += model.start_coef_
    unary[-1] += model.end_coef_
    return unary, model.transition_coef_ + np.einsum(
        "tf,fij->tij", x[1:, columns_of(model)], arrays_of(model)[5])


def labellings(T, R):
    return np.array(list(itertools.product(range(R), repeat=T)))


def spread_pairs(numbers, T, layout):
    """The numbers of a block with those of all transitions, zero where they have no scores."""
    behind, pairs = T * layout.stride, layout.pairs
    assert not numbers[behind + pairs.size :].any()
    matrix = np.zeros(layout.n_labels * layout.stride)
    matrix[pairs] = numbers[behind:][: pairs.size]
    return np.concatenate([numbers[:behind], matrix])


def dual_point(model):
    """(nodes, edges or their sum) of each sequence, from what a warm start keeps."""
    state, stride, R = model._warm_state, model._packed.shape[1], model.classes_.size
    points = {}
    for example, block in enumerate(state["owner"]):
        if block >= 0:
            T = state["same"]["lengths"][example]
            rows = state["state"]["mu"][state["layout"].numbers([block])]
            if state["layout"].pairs is not None:
                rows = spread_pairs(rows, T, state["layout"])
            rows = rows.reshape(-1, stride)
            assert len(rows) == T + (T - 1 if len(columns_of(model)) else 1) * R
            assert not rows[:, R:].any()
            points[example] = rows[:T, :R], rows[T:, :R].reshape(-1, R, R)
    return points


def change_of_w(x, nodes, edges, columns):
    """Phi(x) mu, in the order of `arrays_of`."""
    return [x.T @ nodes, nodes.sum(axis=0), nodes[0], nodes[-1], edges.sum(axis=0),
            np.einsum("tf,tij->fij", x[1:, columns], edges)]


def check_certificate(model, X, y, cost, masks=None, rtol=1e-9):
    """The dual point is feasible; P, afresh from w, and D are what the model says.

    Weights may be earlier and better ones than those of the dual point, and the dual value of a
    point between it and the truth. With masks, those of the problem in the used weights.
    """
    total, primal, dual = [0.0] * 6, 0.0, 0.0
    R, columns = model.classes_.size, columns_of(model)
    per_edge = len(columns) > 0
    for b, (nodes, edges) in dual_point(model).items():
        x, labels = X[b], y[b]
        truth = chain_indicator(labels, R)
        assert nodes.min() >= 0 and edges.min(initial=0.0) >= 0
        assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
        if per_edge:
            assert_allclose(edges.sum(axis=2), nodes[:-1], atol=1e-9)
            assert_allclose(edges.sum(axis=1), nodes[1:], atol=1e-9)
            change = change_of_w(x, truth[0] - nodes, truth[1] - edges, columns)
        else:
            change = change_of_w(x, truth[0] - nodes, np.zeros((len(x) - 1, R, R)), columns)
            change[4] = truth[1].sum(axis=0) - edges[0]
        total = [a + c / (model.alpha * len(X)) for a, c in zip(total, change, strict=True)]
        unary, pairwise = chain_of(model, x)
        of_sum = len(x) * cost  # the reference divides costs by the length
        upper = ChainOutputs.oracle((unary, pairwise), model.surrogate, labels, of_sum, 1e-10)[3]
        primal += (upper - score_labelling(labels, unary, pairwise)) / len(X)
        if model.surrogate != "log" or per_edge:
            dual += ChainOutputs.concave_part(
                (nodes, edges), model.surrogate, labels, of_sum) / len(X)
    if masks is not None:
        hidden = sum(np.sum((1 - mask) * w**2) for mask, w in zip(masks, total, strict=True))
        # the masks do something, unless dual points are only of what has weights
        assert hidden > 1e-3 or model._warm_state["layout"].pairs is not None
        total = [mask * w for mask, w in zip(masks, total, strict=True)]
        for i, (given, mask) in enumerate(zip(arrays_of(model), masks, strict=True)):
            assert not given[mask == 0].any(), i
    penalty, of_mu = (
        model.alpha / 2 * sum(np.sum(w**2) for w in arrays) for arrays in (arrays_of(model), total))
    assert_allclose(model.primal_objective_, primal + penalty, rtol, rtol)
    if model.surrogate != "log" or per_edge:
        assert model.dual_objective_ >= dual - of_mu - 2 * rtol
    assert 0.0 <= model.dual_objective_ <= model.primal_objective_
    assert_allclose(
        model.duality_gap_, model.primal_objective_ - model.dual_objective_, atol=1e-9)


def log_objective(flat, X, y, alpha, columns, R, used=1.0):
    """P of the log surrogate in the used weights, and its gradient, by enumeration."""
    value, slope = 0.5 * alpha * flat @ flat, alpha * flat
    for x, labels in zip(X, y, strict=True):
        listed = labellings(len(x), R)
        rows = used * np.array([
            np.concatenate([part.ravel() for part in change_of_w(
                x, *chain_indicator(labelling, R), columns)])
            for labelling in listed])
        scores = rows @ flat
        truth = int(np.flatnonzero((listed == labels).all(axis=1))[0])
        p = np.exp(scores - scores.max())
        value += (scores.max() + np.log(p.sum()) - scores[truth]) / len(X)
        slope = slope + (p / p.sum() @ rows - rows[truth]) / len(X)
    return value, slope
