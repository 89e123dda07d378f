"""Operators called directly with arguments of other shapes, dtypes and values: they are refused."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

import fastm4n.torch  # noqa: F401

OPS = torch.ops.fastm4n
SHARED, EACH = (3, 3), (3, 3, 3)


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def graphs(form=SHARED):
    return {
        "unary": numbers(5, 3), "edges": torch.tensor([[0, 1], [1, 2], [3, 4]]),
        "pairwise": numbers(*form, seed=1), "sizes": torch.tensor([3, 2])}


def truth():
    return {"tags": torch.tensor([0, 1, 2, 0, 1]), "sizes": torch.tensor([3, 2]),
            "allowed": torch.ones(5, 3, dtype=torch.bool), "cost": 1.0 - torch.eye(3).double()}


def options(**changes):
    return {"surrogate": "log", "cost_scale": "sum", "cost_augmented": False, "temperature": 1.0,
            "inference": "auto", "attractive": False, "tol": 1e-6, "check_finite": True, **changes}


def slopes(form):
    n = (2,) if form == SHARED else ()
    return {"d_unary": numbers(5, 3, seed=2), "d_pairwise": numbers(*n, *form, seed=3)}


def chains(shape):
    """Arguments of the operators of chains: scores, tags, bounds, and what labels are allowed."""
    return {
        "unary": numbers(2, 4, 3), "pair": numbers(*shape, seed=1), "start": numbers(3, seed=2),
        "end": numbers(3, seed=3)}


def operators_of_chains():
    bounds = {"bounds": torch.tensor([[0, 0], [4, 4]])}
    truth = {
        "tags": torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0]]), **bounds,
        "allowed": torch.ones(2, 4, 3, dtype=torch.bool), "cost": 1.0 - torch.eye(3).double()}
    yield "chain_bounds", OPS.chain_bounds, {
        "mask": torch.ones(2, 4, dtype=torch.bool), "lengths": None, "n_sequences": 2,
        "n_positions": 4}
    yield "chain_bounds of lengths", OPS.chain_bounds, {
        "mask": None, "lengths": torch.tensor([4, 2]), "n_sequences": 2, "n_positions": 4}
    for shape in ((3, 3), (2, 3, 3, 3)):
        scores = chains(shape)
        for surrogate in ("log", "max_margin", "max_min"):
            own = truth if surrogate == "log" else {**truth, "allowed": None}
            yield f"chain_loss {surrogate} {shape}", OPS.chain_loss, {
                **scores, **own, "surrogate": surrogate, "temperature": 1.0, "cost_scale": "sum",
                "tol": 1e-6, "policy": "auto", "check_finite": True, "rtol": 0.0}
        yield f"chain_tangent {shape}", OPS.chain_tangent, {
            **scores, **truth, "cost_scale": "sum", "temperature": 1.0,
            "along_unary": numbers(2, 4, 3, seed=4), "along_pair": numbers(*shape, seed=5),
            "along_start": numbers(3, seed=6), "along_end": numbers(3, seed=7)}
        yield f"chain_marginals {shape}", OPS.chain_marginals, {
            **scores, **bounds, "temperature": 1.0, "policy": "auto"}
        yield f"chain_viterbi {shape}", OPS.chain_viterbi, {**scores, **bounds, "policy": "auto"}
        yield f"chain_kbest {shape}", OPS.chain_kbest, {**scores, **bounds, "k": 2}


def operators():
    """Name, operator, and its arguments by name, in their order."""
    yield from operators_of_chains()
    for form in (SHARED, EACH):
        scores = graphs(form)
        first = {name: scores[name] for name in ("unary", "edges", "pairwise")}
        directions = {"h_unary": numbers(5, 3, seed=4), "h_pairwise": numbers(*form, seed=5)}
        yield f"graph_loss {form}", OPS.graph_loss, {**first, **truth(), **options()}
        yield f"graph_loss_backward {form}", OPS.graph_loss_backward, {
            "of_loss": numbers(2), **slopes(form), **first, **truth(), **options()}
        yield f"graph_loss_tangent {form}", OPS.graph_loss_tangent, {
            **directions, "of_loss": numbers(2), **slopes(form), **first, **truth(),
            "cost_scale": "sum", "cost_augmented": True, "temperature": 1.0}
        yield f"graph_marginals {form}", OPS.graph_marginals, {
            **scores, "temperature": 1.0, "inference": "auto", "tol": 1e-6}
        yield f"graph_marginals_tangent {form}", OPS.graph_marginals_tangent, {
            "h_unary": directions["h_unary"], "h_pairwise": numbers(3, 3, 3, seed=6), **scores,
            "temperature": 1.0}
        yield f"graph_decode {form}", OPS.graph_decode, {
            **scores, "inference": "auto", "attractive": False}
    for surrogate in ("log", "max_min", "max_margin"):
        yield f"permutation_loss {surrogate}", OPS.permutation_loss, {
            "scores": numbers(2, 3, 3), "places": torch.tensor([[0, 1, 2], [2, 1, 0]]),
            "cost": 1.0 - torch.eye(3).double(), "surrogate": surrogate, "cost_scale": "sum",
            "cost_augmented": False, "temperature": 1.0, "tol": 1e-6, "check_finite": True}
    for surrogate in ("max_min", "max_margin"):
        yield f"simplex_loss {surrogate}", OPS.simplex_loss, {
            "scores": numbers(2, 4, 3), "target": torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0]]),
            "cost": 1.0 - torch.eye(3).double(), "surrogate": surrogate, "check_finite": True}
    yield "assignment", OPS.assignment, {
        "cost": numbers(2, 3, 4), "sizes": None, "maximize": False, "name": "cost"}
    yield "assignment of sizes", OPS.assignment, {
        "cost": numbers(2, 3, 4), "sizes": [1, 3], "maximize": False, "name": "cost"}
    yield "permutation_marginals", OPS.permutation_marginals, {
        "scores": numbers(2, 3, 3), "temperature": 1.0}
    yield "permutation_marginals_tangent", OPS.permutation_marginals_tangent, {
        "direction": numbers(2, 3, 3), "scores": numbers(2, 3, 3), "temperature": 1.0}
    yield "scaled_slope", OPS.scaled_slope, {
        "weights": numbers(2), "slope": numbers(2, 3, 3), "scores": numbers(2, 3, 3)}


OPERATORS = {name: rest for name, *rest in operators()}
# changes that an operator has a result for: unused arguments, other numbers of things
LEGAL = re.compile("|".join((
    r"chain_(marginals|viterbi|kbest) \(3, 3\): unary long 1",
    r"chain_tangent .*: along_\w+ of (integers|booleans)",
    r"graph_loss_backward .*: (tags|allowed|cost) ",
    r"graph_loss_backward \(3, 3\): edges (short 0|long 0|of -?\d+)",
    r"(graph|permutation|simplex).*: cost of (integers|booleans)",
    r"graph_(loss|loss_tangent|marginals|decode) \(3, 3\): edges short 0",
    r"graph_(loss|marginals|decode) .*: pairwise of fewer axes",
    r"assignment: cost (short|long)",
    r"assignment of sizes: cost (short|long) 1",
    r"assignment of sizes: cost short 2",
    r"permutation_marginals: scores (short|long) 0",
    r"scaled_slope: (weights of fewer|\w+ of (integers|booleans))",
)))


def changed(name):
    """Label, name of the argument, and a bad value, for each tensor of an operator."""
    _, given = OPERATORS[name]
    for argument, value in given.items():
        if not isinstance(value, torch.Tensor):
            continue
        for axis in range(value.dim()):
            yield f"{argument} short {axis}", argument, value.narrow(axis, 0, value.shape[axis] - 1)
            yield f"{argument} long {axis}", argument, torch.cat([value, value], axis)
        yield f"{argument} of more axes", argument, value[None, None]
        yield f"{argument} of fewer axes", argument, value.reshape(-1)[0]
        if value.is_floating_point():
            yield f"{argument} of integers", argument, value.long()
            yield f"{argument} of booleans", argument, value > 0
        else:
            yield f"{argument} of numbers", argument, value.double()
            yield f"{argument} of int32", argument, value.int()


def labels(name):
    """Labels, indices and sizes outside of their range."""
    _, given = OPERATORS[name]
    for argument in ("edges", "tags", "sizes", "target", "places", "bounds", "lengths"):
        if not isinstance(given.get(argument), torch.Tensor):
            continue
        for number in (-(1 << 62), -2, 5, 1 << 40, (1 << 63) - 1):
            value = given[argument].clone()
            value.view(-1)[-1 if argument != "edges" else 0] = number
            yield f"{argument} of {number}", argument, value
    if isinstance(given.get("sizes"), torch.Tensor):
        yield "sizes that overflow", "sizes", torch.tensor([(1 << 63) - 1, (1 << 63) - 1, 7])
        yield "no sizes", "sizes", torch.zeros(0, dtype=torch.int64)


@pytest.mark.parametrize("name", OPERATORS)
def test_bad_arguments_are_refused(name):
    op, given = OPERATORS[name]
    op(*given.values())
    tensors = "|".join(n for n, value in given.items() if isinstance(value, torch.Tensor))
    for label, argument, value in (*changed(name), *labels(name)):
        bad = {**given, argument: value}
        if LEGAL.match(f"{name}: {label}"):
            op(*bad.values())
            continue
        # it names the argument, or one that does not fit to it
        with pytest.raises((ValueError, TypeError), match=rf"\b({tensors})\b"):
            op(*bad.values())
            pytest.fail(f"{name} takes {label}")


@pytest.mark.parametrize("name", OPERATORS)
def test_strides_do_not_matter(name):
    """Every second entry of a larger tensor, axes in another order, and expanded tensors."""
    op, given = OPERATORS[name]
    expected = op(*given.values())

    def strided(value, how):
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        if how == "sparse":
            return torch.stack([value, torch.ones_like(value)], -1)[..., 0]
        axes = tuple(range(value.dim()))[::-1]
        return value.permute(axes).contiguous().permute(axes)

    for how in ("sparse", "reversed"):
        found = op(*[strided(value, how) for value in given.values()])
        pairs = zip(expected, found) if isinstance(expected, tuple) else [(expected, found)]
        for one, other in pairs:
            assert_allclose(one.double(), other.double(), atol=1e-12)
