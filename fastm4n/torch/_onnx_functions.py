"""Operators of best labellings of chains, written in operators of ONNX by onnxscript."""

from typing import Tuple, TypeVar, Union

import torch
from onnxscript import BOOL, DOUBLE, FLOAT, INT64, graph, script
from onnxscript import opset18 as op

Real = TypeVar("Real", bound=Union[FLOAT, DOUBLE])


@script()
def _best(
        unary: Real, pairs: Real, places: INT64, start: Real, end: Real, first: INT64,
        length: INT64) -> Tuple[INT64, Real]:
    """Best labels (B, T) of chains, -1 at padding, and scores (B,).

    The scores of transitions to position t are pairs[places[t]], of shape (1 or B, R, R).
    """
    by_time = op.Transpose(unary, perm=[1, 0, 2])
    shape = op.Shape(by_time)
    labels = op.Unsqueeze(op.Range(0, op.Gather(shape, 2), 1), [0])
    times = op.Unsqueeze(op.Range(0, op.Gather(shape, 0), 1), [1])
    begins = op.Unsqueeze(times == first, [2])
    inside = op.Unsqueeze(op.And(times >= first, times < first + length), [2])
    moves = op.And(inside, op.Not(begins))
    nothing = op.Expand(op.CastLike(0.0, unary), op.Slice(shape, [1], [3]))

    @graph()
    def step(best, own, place, begins_here, inside_here, moves_here):
        scores = op.Unsqueeze(best, [2]) + op.Gather(pairs, place, axis=0)
        reached = op.Where(begins_here, start, op.ReduceMax(scores, [1], keepdims=0))
        best_here = op.Where(inside_here, reached + own, best)
        # the first of equal ones; where no edge ends, a label leads to itself
        back_here = op.Where(moves_here, op.ArgMax(scores, axis=1, keepdims=0), labels)
        return best_here, back_here

    @graph()
    def walk(label, back_here):
        label_before = op.GatherElements(back_here, label, axis=1)
        label_here = op.Identity(label)
        return label_before, label_here

    best, back = op.Scan(
        nothing, by_time, places, begins, inside, moves, body=step, num_scan_inputs=5)
    ended = best + end
    _, tags = op.Scan(
        op.ArgMax(ended, axis=1, keepdims=1), back, body=walk, num_scan_inputs=1,
        scan_input_directions=[1], scan_output_directions=[1])
    tags = op.Where(inside, tags, op.Constant(value_int=-1))
    tags = op.Transpose(op.Squeeze(tags, [2]), perm=[1, 0])
    scores = op.Where(length > 0, op.ReduceMax(ended, [1], keepdims=0), op.CastLike(0.0, unary))
    return tags, scores


def _viterbi(unary, pair, start, end, bounds, policy):
    zeros = op.Expand(op.CastLike(0.0, unary), op.Shape(unary, start=2))
    n_positions = op.Shape(unary, start=1, end=2)
    if len(pair.shape) == 2:
        pairs = op.Unsqueeze(pair, [0, 1])
        places = op.Expand(op.Constant(value_ints=[0]), n_positions)
    else:
        # no edge ends at the first position
        pairs = op.Pad(op.Transpose(pair, perm=[1, 0, 2, 3]), [1, 0, 0, 0, 0, 0, 0, 0])
        places = op.Range(0, op.Squeeze(n_positions), 1)
    first, length = op.Split(bounds, num_outputs=2, axis=0)
    return _best(
        unary, pairs, places, zeros if start is None else start, zeros if end is None else end,
        op.Squeeze(first, [0]), op.Squeeze(length, [0]))


def _bounds(mask, lengths, n_sequences, n_positions):
    each = op.Reshape(n_sequences, [1])
    if mask is not None:
        inside = op.Cast(mask, to=INT64.dtype)
        # the first of equal ones
        first = op.ArgMax(inside, axis=1, keepdims=0)
        length = op.ReduceSum(inside, [1], keepdims=0)
    else:
        first = op.Expand(op.Constant(value_ints=[0]), each)
        length = op.Expand(op.Reshape(n_positions, [1]), each) if lengths is None else lengths
    return op.Concat(op.Unsqueeze(first, [0]), op.Unsqueeze(length, [0]), axis=0)


def _sort(self, stable=None, dim=-1, descending=False):
    """Of ``argsort``, which packs rows. TopK is stable: of equal ones the first comes first."""
    keys = op.Cast(self, to=INT64.dtype) if self.dtype == BOOL.dtype else self
    values, order = op.TopK(
        keys, op.Gather(op.Shape(self), [dim]), axis=dim, largest=int(descending))
    return op.CastLike(values, self), order


TABLE = {
    torch.ops.aten.sort.stable: _sort,
    torch.ops.fastm4n.chain_viterbi.default: _viterbi,
    torch.ops.fastm4n.chain_bounds.default: _bounds,
}
