"""Checks of arguments, the base of the layers, and the registration of operators."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fastm4n.base.checks import ScoreError, check_choice, check_flag, check_number
from fastm4n.outputs._base import COST_SCALES
from fastm4n.torch._transforms import TWICE, Family, by_loop, is_traced, road, scored

SURROGATES = ("max_min", "max_margin", "log")
REDUCTIONS = ("mean", "sum", "token_mean", "none")
HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, torch.float64)
WHOLES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


# ---------------------------------------------------------------------------- checks


def check_options(surrogate, reduction, temperature, cost_augmented, cost_scale="sum", tol=1.0,
                  zero_tol=False):
    """Refuse options that no loss has."""
    check_choice("surrogate", surrogate, SURROGATES)
    check_choice("reduction", reduction, REDUCTIONS)
    check_number("temperature", temperature, low=0)
    check_choice("cost_scale", cost_scale, COST_SCALES)
    check_number("tol", tol, low=0, strict=not zero_tol)
    check_flag("cost_augmented", cost_augmented)
    if surrogate != "log" and (cost_augmented or temperature != 1.0):
        raise ValueError(
            f"cost_augmented and temperature need surrogate='log' (got {surrogate!r}).")


def is_default(cost):
    """Whether costs are the 0-1 costs."""
    if isinstance(cost, str) and cost not in ("zero_one", "hamming"):
        raise ValueError(f"cost must be 'zero_one' or a matrix of costs, got {cost!r}.")
    return cost is None or isinstance(cost, str)


def on_cpu(values, dtype=None):
    """An array-like as a tensor on the CPU, and a tensor on its device.

    A layer is often made under another default device, such as ``torch.device("meta")``, which
    has no values.
    """
    if isinstance(values, Tensor):
        return values.detach().to(dtype)
    return torch.as_tensor(values, dtype=dtype, device="cpu")


def check_has_values(name, option):
    """Refuse an option of a layer that is on the meta device."""
    if isinstance(option, Tensor) and option.is_meta:
        raise ValueError(
            f"{name} is on the meta device, without values: pass an array, or make the tensor "
            "with device='cpu'.")


def given_cost(cost, n_labels=None):
    """A square matrix of costs in float64 on its device, or None for 0-1 costs."""
    if is_default(cost):
        return None
    cost = on_cpu(cost, torch.float64)
    n = cost.shape[:1].numel() if n_labels is None else n_labels
    if cost.shape != (n, n):
        raise ValueError(
            f"cost must have shape ({n}, {n}), got {tuple(cost.shape)}: a row and a column for "
            f"each of {n} labels.")
    return cost


def as_cost(cost, n_labels):
    """The checked matrix of costs in float64 on the CPU."""
    cost = given_cost(cost, n_labels)
    if cost is None:
        return 1.0 - torch.eye(n_labels, dtype=torch.float64, device="cpu")
    if cost.is_meta:
        return cost
    cost = cost.cpu().contiguous()
    if not bool(torch.isfinite(cost).all()) or bool((cost < 0).any()):
        raise ValueError("cost must contain finite numbers >= 0.")
    if bool(cost.diagonal().any()):
        label = int(cost.diagonal().nonzero()[0])
        raise ValueError(
            f"cost[{label}, {label}] is {cost[label, label].item()}: correct labels cost nothing.")
    return cost


def _check_tensor(name, tensor):
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}.")


def _check_shape(name, tensor, shape):
    _check_tensor(name, tensor)
    if tensor.shape != shape:
        raise ValueError(
            f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}: "
            f"{_wrong_axes(tensor.shape, shape)}.")


def _wrong_axes(given, shape):
    if len(given) != len(shape):
        return f"it has {len(given)} axes instead of {len(shape)}"
    return ", ".join(
        f"axis {i} has length {n} instead of {m}"
        for i, (n, m) in enumerate(zip(given, shape, strict=True)) if n != m)


def as_scores(name, scores, n_axes=None):
    """A tensor of float32 or float64. Half precision is cast to float32."""
    _check_tensor(name, scores)
    if n_axes is not None and scores.dim() not in n_axes:
        raise ValueError(
            f"{name} must have {' or '.join(map(str, n_axes))} axes, got shape "
            f"{tuple(scores.shape)}.")
    if scores.dtype in HALVES:
        return scores.float()
    if scores.dtype not in FLOATS:
        raise TypeError(f"{name} must be of a floating dtype, got {scores.dtype}.")
    return scores


def check_operand(name, tensor, shape, *dtypes):
    """Refuse an argument of an operator, which others may call too, of another form."""
    _check_shape(name, tensor, shape)
    if tensor.dtype not in dtypes:
        raise TypeError(
            f"{name} must be of dtype {' or '.join(map(str, dtypes))}, got {tensor.dtype}.")


def as_labels(name, labels, shape, scores):
    """Integer labels of the given shape in int64, on the device of the scores."""
    _check_shape(name, labels, shape)
    if labels.dtype not in WHOLES:
        raise TypeError(f"{name} must be of an integer dtype, got {labels.dtype}.")
    check_device(name, labels, scores)
    return labels.long()


def as_mask(name, mask, shape, scores):
    """A boolean tensor of the given shape, on the device of the scores."""
    _check_shape(name, mask, shape)
    if mask.dtype not in (torch.bool, torch.uint8):
        raise TypeError(
            f"{name} must be of dtype torch.bool, got {mask.dtype}: pass {name}.bool() to use the "
            "entries that are not zero.")
    check_device(name, mask, scores)
    return mask.bool()


def check_device(name, tensor, scores):
    if tensor.device != scores.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but the scores are on {scores.device}: move one of "
            "them.")


def holds(flag):
    """Whether a flag on the device is true; False if values are unknown.

    Values are unknown while a graph is traced, on the meta device, and under ``torch.func.vmap``.
    """
    if is_traced() or flag.is_meta:
        return False
    try:
        return bool(flag)
    except RuntimeError as error:
        if "vmap" in str(error):
            return False
        raise


def refuse_where(bad, name, values, why, error=ValueError):
    """Raise an error at the first place where `bad` is true."""
    place = bad.nonzero()[0].tolist()
    raise error(f"{name}{place or ''} is {values[tuple(place)].item()}: {why}")


def refuse_infinite(name, values, why):
    bad = ~torch.isfinite(values)
    if holds(bad.any()):
        refuse_where(bad, name, values, why, ScoreError)


def check_labels(name, labels, n_labels, why="", low=0, what="labels"):
    """Refuse labels outside low ... n_labels - 1."""
    bad = (labels < low) | (labels >= n_labels)
    if holds(bad.any()):
        refuse_where(bad, name, labels, f"{what} are 0 ... {n_labels - 1}{why}.")


# ---------------------------------------------------------------------------- layers


def reduced(losses, reduction, n_parts):
    """The reduction of losses of any shape, whose outputs have n_parts parts in all.

    The mean of an empty batch is 0, not NaN.
    """
    if reduction == "none":
        return losses
    total = losses.reshape(-1).sum()
    if reduction == "mean":
        return total / max(1, losses.numel())
    return total / max(1, n_parts) if reduction == "token_mean" else total


class StructuredLoss(nn.Module):
    """Base of the layers. Costs stay on the CPU, in float64, wherever the module moves.

    Options are attributes, not buffers: ``to_empty`` would fill those with arbitrary numbers.
    """

    _shown = ("cost_augmented", "temperature", "reduction")

    def __init__(self, surrogate, cost, reduction, temperature, cost_augmented, cost_scale="sum",
                 tol=1.0, n_labels=None, zero_tol=False, check_finite=True):
        super().__init__()
        check_options(
            surrogate, reduction, temperature, cost_augmented, cost_scale, tol, zero_tol)
        check_flag("check_finite", check_finite)
        self.check_finite = bool(check_finite)
        self.surrogate, self.reduction = surrogate, reduction
        self.temperature, self.cost_augmented = float(temperature), bool(cost_augmented)
        self.cost_scale, self.tol = cost_scale, float(tol)
        # without n_labels the costs have as many labels as their matrix, or are None
        check_has_values("cost", cost)
        cost = given_cost(cost, n_labels)
        if cost is not None or n_labels is not None:
            cost = as_cost(cost, len(cost) if n_labels is None else n_labels)
        self.cost = cost

    def extra_repr(self) -> str:
        cost = "" if self.cost is None else f", cost of {len(self.cost)} labels"
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{self.surrogate!r}{cost}, {shown}"

    def _check_has(self, method, *surrogates):
        if self.surrogate not in surrogates:
            raise ValueError(
                f"{method} needs surrogate={' or '.join(map(repr, surrogates))} (got "
                f"{self.surrogate!r}).")


# ------------------------------------------------------------------------- operators


def operator(name, shapes, *, cpu_only=False, autocast=False, like=None):
    """Decorator that registers a function as the operator ``fastm4n::name``.

    `shapes` makes results of the right shapes while values are unknown. The annotations of the
    function, or of `like`, define the types.
    """
    def register(function):
        op = torch.library.custom_op(
            f"fastm4n::{name}", function, mutates_args=(),
            device_types="cpu" if cpu_only else None,
            schema=torch.library.infer_schema(like or function, mutates_args=()))
        op.register_fake(shapes)
        op.register_vmap(lambda info, in_dims, *args: by_loop(info, in_dims, op, args))
        if autocast:
            for device in ("cpu", "cuda"):
                op.register_autocast(device, torch.float32)
        return op

    return register


def nan_like(results):
    """Results of training steps at scores that are not finite, which scalers of losses skip."""
    return tuple(part.fill_(torch.nan) for part in results)


def on_host(tensors):
    """Tensors on the CPU: all copies run at once, in pinned memory, before one wait."""
    copies, device = [], None
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.device.type != "cpu":
            device = tensor.device
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
            tensor = copy.copy_(tensor.detach(), non_blocking=True)
        copies.append(tensor)
    if device is not None:
        torch.cuda.current_stream(device).synchronize()
    return copies


def by_way_of_host(kernel):
    """The kernel of a CPU for tensors of a GPU: one copy there, one call, one copy back."""
    def run(first, *rest):
        return tuple(part.to(first.device) for part in kernel(*on_host((first, *rest))))

    return run


def _refuse_second(ctx, grad):
    raise RuntimeError(f"{TWICE}. Permutations have first derivatives only.")


@operator("scaled_slope", lambda weights, slope, scores: torch.empty_like(
    slope, memory_format=torch.contiguous_format))
def scaled_slope(weights: Tensor, slope: Tensor, scores: Tensor) -> Tensor:
    """Slopes of all examples times their weights, the gradient of the scores.

    The argument `scores` raises an error at a second derivative, instead of a silent zero.
    """
    _check_shape("slope", slope, scores.shape)
    _check_shape("weights", weights, slope.shape[:weights.dim()])
    return slope * weights.reshape(weights.shape + (1,) * (slope.dim() - weights.dim()))


scaled_slope.register_autograd(_refuse_second)


def loss_operator(name, n_axes):
    """Decorator that registers a loss with first derivatives, for scores first.

    The scores of an example have n_axes axes. The function runs on the CPU and returns
    `Losses` of all examples, or None if there are none. Its last argument is `check_finite`: if
    that is false, all results are NaN where it raises a `ScoreError`. The operator returns

        value (of each example), slope (of the form of scores), bounds (2, of each example).

    The bounds are in float64: bounds[0] <= loss <= bounds[1]. The value is bounds[0] in the dtype
    of the scores, and the slope is its gradient mu - phi(y). Backward is one product.
    """
    def shapes(scores, *rest):
        shape = scores.shape[:scores.dim() - n_axes]
        return (
            scores.new_empty(shape), scores.new_empty(scores.shape),
            scores.new_empty((2, *shape), dtype=torch.float64))

    def setup_context(ctx, inputs, output):
        value, slope, bounds = output
        ctx.mark_non_differentiable(slope, bounds)
        ctx.save_for_backward(slope, inputs[0])
        ctx.n_rest = len(inputs) - 1

    def backward(ctx, of_value, of_slope, of_bounds):
        return (scaled_slope(of_value, *ctx.saved_tensors), *[None] * ctx.n_rest)

    def register(function):
        def kernel(scores, *rest):
            try:
                losses = function(scores, *rest)
            except ScoreError:
                if rest[-1]:
                    raise
                return nan_like(shapes(scores))
            if losses is None:
                return shapes(scores)
            value, upper, slope = (torch.from_numpy(part) for part in losses)
            shape = scores.shape[:scores.dim() - n_axes]
            return (
                value.to(scores.dtype).reshape(shape),
                slope.to(scores.dtype).reshape(scores.shape),
                torch.stack([value, upper]).reshape(2, *shape))

        op = operator(name, shapes, cpu_only=True, autocast=True, like=function)(kernel)
        op.register_kernel("cuda", by_way_of_host(kernel))
        op.register_autograd(backward, setup_context=setup_context)
        family = Slopes(op, n_axes)

        def values(scores, *rest):
            """The values, with derivatives of all modes."""
            if road(scores) == "transform":
                return scored(family, (scores,), rest)[0]
            return op(scores, *rest)[0]

        op.values = values
        return op

    return register


class Slopes(Family):
    """A loss of one tensor of scores, whose examples have n_axes axes, under transforms."""

    is_smooth = False

    def __init__(self, op, n_axes):
        self.op, self.axes = op, tuple(range(-n_axes, 0))

    def evaluate(self, scores, rest):
        return self.op(*scores, *rest)[:2]

    def weighted(self, g, slopes, rest):
        return (slopes[0] * g[(..., *[None] * len(self.axes))],)

    def along(self, directions, slopes, rest):
        return (directions[0] * slopes[0]).sum(self.axes)
