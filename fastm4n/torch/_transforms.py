"""Losses and marginals under the transforms of PyTorch: torch.func, vmap, forward mode, tracing.

Kernels see numbers only. Which road a call takes is decided by `road`:

- "kernel": plain tensors with values, and no transform at work.
- "operator": tracing (``torch.compile``, ``torch.export``, make_fx, fake tensors). Operators of
  ``torch.library`` stand for the kernels in the graph.
- "transform": derivatives by torch.func or forward mode, and vmap. `scored` has rules for them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

TWICE = "double backward needs surrogate='log' of chains, trees or single labels"
THRICE = (
    "fastm4n.torch has no third derivatives of losses, nor second ones of marginals and entropies")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_levels = torch._C._functorch.get_interpreter_stack
_is_legacy = torch._C._functorch.is_legacy_batchedtensor
_VMAP = torch._C._functorch.TransformType.Vmap


def is_traced():
    """Whether calls are recorded to a graph, by torch.compile, torch.export, make_fx or jit."""
    return (
        torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None)


def road(*tensors):
    """The road for these tensors: "kernel", "operator" or "transform"."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return "transform"
    if is_traced():
        if torch._C._get_tracing_state() is not None and torch.onnx.is_in_onnx_export():
            raise NotImplementedError(
                "torch.onnx.export(dynamo=False) has no form for the layers of fastm4n.torch. "
                "Export best labellings of chains by torch.onnx.export(..., dynamo=True, "
                "custom_translation_table=fastm4n.torch.onnx_translations()), and for other "
                "layers the scores of the network.")
        return "operator"
    for tensor in tensors:
        if tensor is None or type(tensor) in _PLAIN and not (
                tensor.is_meta or _is_legacy(tensor)):
            continue
        if hasattr(tensor, "full_tensor"):
            raise TypeError(
                "a tensor of scores is sharded (DTensor). Call the layer within the forward of the "
                "module that fully_shard wraps, or register its method by torch.distributed.fsdp."
                "register_fsdp_forward_method(model, 'decode').")
        return "operator"
    return "kernel"


class Family:
    """What `scored` needs of a kind of loss or marginals. All but two are plain operations.

    A family has scores, tensors that derivatives are for, and further arguments. It computes a
    value of each example, and slopes: derivatives of the values, of each example where examples
    share scores.
    """

    # whether slopes have derivatives, by `tangent`
    is_smooth = True

    def evaluate(self, scores, rest):
        """The values and the slopes: (value, *slopes). Calls a kernel, or its operator."""
        raise NotImplementedError

    def tangent(self, scores, rest, directions):
        """Derivatives of the slopes along directions, which have the shapes of scores or slopes.

        Symmetric: also the transposed derivative of what has the shapes of slopes. Calls a kernel.
        """
        raise NotImplementedError

    def weighted(self, g, slopes, rest):
        """Slopes times the weights g of examples, summed: of the shapes of scores."""
        raise NotImplementedError

    def gradients(self, g, slopes, change, rest, shape):
        """Gradients of the scores, for gradients g of values, of this shape, and those of slopes.

        `change` is the transposed derivative of the slopes times their gradients. g or `change` may
        be None. Returns None if both are.
        """
        found = None if g is None else self.weighted(g, slopes, rest)
        if change is None:
            return found
        of_slopes = self.weighted(slopes[0].new_ones(shape), change, rest)
        if found is None:
            return of_slopes
        return [None if a is None else a + b for a, b in zip(found, of_slopes, strict=True)]

    def along(self, directions, slopes, rest):
        """Derivatives of the values along directions of the scores, which may be None."""
        raise NotImplementedError


def scored(family, scores, rest):
    """Values and slopes of a family, (value, *slopes), with derivatives of all modes.

    First derivatives, and second ones if the family is smooth. Under vmap, examples of the batch
    are computed one after another.
    """
    if not family.is_smooth:
        if sum(level.key() != _VMAP for level in _levels() or ()) > 1:
            raise RuntimeError(f"{TWICE}.")
    return _Scored.apply(family, len(scores), *scores, *rest)


def by_loop(info, in_dims, apply, args):
    """Results of apply(*args) for each example of a vmap, stacked, and their batch axes."""
    found = []
    for i in range(info.batch_size):
        parts = apply(*[
            a if d is None or not isinstance(a, Tensor) else a.select(d, i)
            for a, d in zip(args, in_dims, strict=True)])
        found.append(parts if isinstance(parts, tuple) else (parts,))
    if not found:
        raise ValueError("torch.func.vmap over an axis of length 0: there is nothing to compute.")
    stacked = tuple(torch.stack(part) for part in zip(*found, strict=True))
    return (stacked, (0,) * len(stacked)) if isinstance(parts, tuple) else (stacked[0], 0)


class _Scored(torch.autograd.Function):

    @staticmethod
    def forward(family, n, *args):
        return family.evaluate(args[:n], args[n:])

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.family, ctx.n, *args = inputs
        ctx.shape = output[0].shape
        _save(ctx, args, output[1:])

    @staticmethod
    def backward(ctx, g, *of_slopes):
        family, n = ctx.family, ctx.n
        args, slopes = _saved(ctx)
        rest, change = args[n:], None
        if any(part is not None for part in of_slopes):
            directions = [
                torch.zeros_like(slope) if part is None else part
                for part, slope in zip(of_slopes, slopes, strict=True)]
            change = _Tangent.apply(family, n, len(directions), *args, *directions)
        found = family.gradients(g, slopes, change, rest, ctx.shape)
        return None, None, *(found or [None] * n), *[None] * len(rest)

    @staticmethod
    def jvp(ctx, of_family, of_n, *tangents):
        family, n = ctx.family, ctx.n
        args, slopes = _saved(ctx)
        directions = tangents[:n]
        value = family.along(directions, slopes, args[n:])
        if family.is_smooth:
            directions = [
                torch.zeros_like(a) if part is None and a is not None else part
                for part, a in zip(directions, args, strict=False)]
            change = _Tangent.apply(family, n, n, *args, *directions)
        else:
            # a second derivative that `scored` cannot foresee
            change = tuple(torch.full_like(slope, torch.nan) for slope in slopes)
        return value, *change

    @staticmethod
    def vmap(info, in_dims, family, n, *args):
        return by_loop(
            info, in_dims[2:], lambda *args: _Scored.apply(family, n, *args), args)


class _Tangent(torch.autograd.Function):
    """Derivatives of slopes along directions, linear in these."""

    @staticmethod
    def forward(family, n, n_directions, *args):
        if not family.is_smooth:
            raise RuntimeError(f"{TWICE}.")
        split = len(args) - n_directions
        return family.tangent(args[:n], args[n:split], args[split:])

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *g):
        raise RuntimeError(f"{THRICE}.")

    @staticmethod
    def jvp(ctx, *tangents):
        raise RuntimeError(f"{THRICE}.")

    @staticmethod
    def vmap(info, in_dims, family, n, n_directions, *args):
        return by_loop(
            info, in_dims[3:], lambda *args: _Tangent.apply(family, n, n_directions, *args), args)


def _save(ctx, args, slopes):
    tensors = [a if isinstance(a, Tensor) else None for a in args]
    ctx.save_for_backward(*tensors, *slopes)
    ctx.save_for_forward(*tensors, *slopes)
    ctx.args = [None if isinstance(a, Tensor) else a for a in args]
    ctx.set_materialize_grads(False)


def _saved(ctx):
    """Arguments and slopes."""
    found, k = ctx.saved_tensors, len(ctx.args)
    return [
        other if part is None else part
        for part, other in zip(found[:k], ctx.args, strict=True)], found[k:]
