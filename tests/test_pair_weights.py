"""Weights held by pairs of a feature and a label, against the same weights in rows with a mask."""

import pickle
import warnings

import numpy as np
import pytest
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import SequenceTagger
from fastm4n.features._base import Penalty
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, row_stride
from fastm4n.penalties import ElasticNet, Group
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import make_surrogate

LENGTHS = np.array([3, 1, 70, 4, 9])
D = 13


def pairs_of(table):
    starts = np.concatenate([[0], np.cumsum(table.sum(axis=1))]).astype(np.int32)
    return starts, (np.flatnonzero(table) % table.shape[1]).astype(np.uint16)


def both_maps(R, dtype=np.float64, per_edge=False, share=0.3, intercept=1.0, norms=None):
    """Outputs, the map with a mask, and the one of pairs."""
    rng = np.random.default_rng(R)
    n, stride = LENGTHS.sum(), row_stride(R)
    X = sparse.csr_matrix((rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.5)).astype(dtype))
    costs = rng.random((R, R))
    np.fill_diagonal(costs, 0.0)
    outputs = ChainOutputs(rng.integers(R, size=n), LENGTHS, costs, per_edge)
    labels = np.arange(stride) < R
    mask = (rng.random((D + 3 + (0 if per_edge else R), stride)) < share) & labels
    mask[2] = False  # a feature without weights
    mask[3], mask[D : D + 3] = labels, labels
    mask = mask.astype(np.uint8)
    rows = {"used": mask}
    pairs = {"used": mask[D:], "pairs": pairs_of(mask[:D]), "norms": norms}
    if per_edge:
        edges = (rng.random((D + 1, R * stride)) < share).astype(np.uint8)
        edges *= np.tile(labels, R)
        rows["edge_used"] = edges
        pairs.update(edge_used=edges[D:], edge_pairs=pairs_of(edges[:D]))
    arguments = (
        X, np.cumsum(LENGTHS) - LENGTHS, outputs.layout, intercept, True, True,
        X if per_edge else None)
    return outputs, ChainFeatures(*arguments, **rows), ChainFeatures(*arguments, **pairs)


def penalise(features, kind, by_pairs):
    """The same penalty of both maps."""
    for part in (features, features.edges):
        if part is None:
            continue
        shape = part.all_weights().shape
        rng = np.random.default_rng(7)
        options = {
            "even": {"thresholds": 0.05, "modulus": 0.5},
            "single": {"thresholds": rng.random(shape) * 0.1, "modulus": 0.5},
            "labels": {"thresholds": np.broadcast_to(0.1 * rng.random(shape[1]), shape)},
            "bounds": {
                "lower": -rng.random(shape), "upper": 0.3 * (rng.random(shape) < 0.8),
                "thresholds": 0.01},
        }[kind]
        if by_pairs:
            # padding is not looked at
            options = {
                name: part.gathered(value) if np.ndim(value) else value
                for name, value in options.items()}
            shape = part.live()["weights"][0].shape
        part.set_penalty(Penalty(shape, part.behind, **options))


@pytest.mark.parametrize("penalty", [None, "even", "single", "labels", "bounds"])
@pytest.mark.parametrize("R, dtype, per_edge", [
    (2, np.float64, False), (3, np.float32, False), (7, np.float64, False),
    (22, np.float32, False), (40, np.float64, False),
    (2, np.float64, True), (3, np.float32, True), (7, np.float64, True), (12, np.float32, True)])
def test_passes(R, dtype, per_edge, penalty):
    outputs, rows, pairs = both_maps(R, dtype, per_edge)
    p = np.full(LENGTHS.size, 1.0 / LENGTHS.size)
    for surrogate in ("log", "max_margin"):
        found = []
        for features in (rows, pairs):
            features.clear()
            if penalty:
                penalise(features, penalty, features is pairs)
            engine = BlockCoordinateEngine(
                make_surrogate(surrogate, outputs), features, p, 0.05, 0)
            for _ in range(4):
                engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
            certificate = certify(engine, engine.mu)
            found.append([
                engine.mu, features.all_weights(), certificate.primal, certificate.dual,
                features.weight_norm(), features.penalty_value(), features.conjugate_value(),
                features.along(0.7)])
            if features.edges is not None:
                found[-1].append(features.edges.all_weights())
        for a, b in zip(*found, strict=True):
            assert_allclose(b, a, rtol=1e-9, atol=1e-11)
    assert pairs.live()["weights"][0].size < rows.live()["weights"][0].size


def test_more_labels_than_bits():
    outputs, rows, pairs = both_maps(70, share=0.1)
    p = np.full(LENGTHS.size, 1.0 / LENGTHS.size)
    for features in (rows, pairs):
        penalise(features, "even", features is pairs)
        engine = BlockCoordinateEngine(make_surrogate("max_margin", outputs), features, p, 0.05, 0)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert_allclose(pairs.all_weights(), rows.all_weights(), rtol=1e-9, atol=1e-12)
    assert np.any(pairs.all_weights())


def test_states_and_pickles():
    _, rows, pairs = both_maps(5)
    rng = np.random.default_rng(0)
    whole = rng.normal(size=rows.all_weights().shape) * rows.which_used()
    pairs.restore({"weights": pairs.gathered(whole)})
    assert_array_equal(pairs.all_weights(), whole)
    penalise(pairs, "single", True)
    again = pickle.loads(pickle.dumps(pairs))
    assert_array_equal(again.all_weights(), pairs.all_weights())
    assert_array_equal(again.state()["weights"], pairs.state()["weights"])
    with pytest.raises(ValueError, match="of other features"):
        pairs.restore({"weights": whole})


@pytest.mark.parametrize("per_edge", [False, True])
def test_norms_that_were_kept(per_edge):
    """Steps by Gram matrices and sorted entries of another map are the same to the bit."""
    outputs, _, pairs = both_maps(4, per_edge=per_edge)
    norms = {name: array.copy() for name, array in pairs.norms().items()}
    _, _, again = both_maps(4, per_edge=per_edge, norms=norms)
    points = []
    for features in (pairs, again):
        engine = BlockCoordinateEngine(
            make_surrogate("max_margin", outputs), features, np.full(LENGTHS.size, 0.2), 0.05, 0)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        points.append(engine.mu)
    assert_array_equal(*points)
    assert np.any((points[0] != 0.0) & (points[0] != 1.0))


def test_what_pairs_cannot_be():
    _, rows, pairs = both_maps(5)
    X, starts, layout, *rest = pairs.arguments()[:7]
    first, places = pairs.pairs()
    for wrong, error in (
            ((first[:-1], places), "do not fit the features"),
            ((first, places[:-1]), "do not fit the features"),
            ((first, places + np.uint16(64)), "outside of a row")):
        with pytest.raises((ValueError, IndexError), match=error):
            ChainFeatures(X, starts, layout, *rest, pairs=wrong)
    with pytest.raises(ValueError, match="sparse"):
        ChainFeatures(X.toarray(), starts, layout, *rest, pairs=(first, places))
    shape = pairs.live()["weights"][0].shape
    with pytest.raises(ValueError, match="groups"):
        pairs.set_penalty(Penalty(shape, pairs.behind, thresholds=0.1, by_rows=True))


def observed_data():
    rng = np.random.default_rng(3)
    X, y = [], []
    for T in (6, 3, 9, 1, 5, 7, 4):
        X.append(sparse.csr_matrix(
            (rng.random((T, 30)) < 0.15) * rng.integers(1, 3, size=(T, 30)).astype(float)))
        y.append(rng.integers(4, size=T))
    return X, y


@pytest.mark.parametrize("penalty", [ElasticNet(0.6), ElasticNet(0.9), Group(0.3), "l2"])
def test_estimator_holds_pairs(penalty):
    """The same optimum as of dense features, which are held in rows; Group is held in rows."""
    X, y = observed_data()
    options = dict(states="observed", alpha=0.05, penalty=penalty, tol=1e-8, random_state=0)
    by_pairs = made(SequenceTagger, "log", **options).fit(X, y)
    problem = by_pairs._problem(X, y, None, one_alpha=True)
    assert (problem.features.pairs() is None) == isinstance(penalty, Group)
    # scaled columns of dense rows that are not mostly zero
    full = [x.toarray() + 1e-300 for x in X]
    by_rows = made(SequenceTagger, "log", **options)
    assert by_rows._problem(full, y, None, one_alpha=True).features.pairs() is None
    weights = by_pairs.coef_
    assert weights.shape == (4, 30)
    codes = np.concatenate(y)
    together = np.stack([
        np.abs(sparse.vstack(X).toarray()[codes == j]).sum(axis=0) for j in range(4)])
    assert not np.any(weights[together == 0])


@pytest.mark.parametrize("l1_ratio", [0.5, 0.95, 1.0])
def test_warm_start_where_other_columns_are_left_out(l1_ratio):
    X, y = observed_data()
    options = dict(
        states="observed", penalty=ElasticNet(l1_ratio), tol=1e-6, random_state=0, max_iter=5000)
    warm = made(SequenceTagger, "log", warm_start=True, **options)
    for alpha in (0.3, 0.05, 0.02, 0.2):
        warm.set_params(alpha=alpha)
        cold = made(SequenceTagger, "log", alpha=alpha, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warm.fit(X, y)
            cold.fit(X, y)
        assert_allclose(warm.primal_objective_, cold.primal_objective_, rtol=1e-3)
        assert warm.dual_objective_ <= cold.primal_objective_ + 1e-9
