"""What ops of losses share: places of bad values, copies from a GPU, gradients of first order.

Such an op takes scores first and returns

    value (of each example), slope (of the form of scores), bounds (2, of each example) in float64

with bounds[0] <= loss <= bounds[1], value = bounds[0] in the dtype of the scores, and the slope
mu - phi(y) of the value.  Its backward is one product.
"""

import torch

from fastm4n.torch._checks import TWICE, as_cost

ONCE = (
    f"{TWICE}; the other surrogates are piecewise linear or have no second derivatives here, and "
    "permutations have first derivatives alone.")


def holds(flag):
    """Whether a flag on the device is true; False where values are not known, only shapes.

    They are not while a graph is traced, on the meta device, and under ``torch.func.vmap``.
    """
    if torch.compiler.is_compiling() or flag.is_meta:
        return False
    try:
        return bool(flag)
    except RuntimeError as error:
        if "vmap" in str(error):
            return False
        raise


def refuse_where(bad, name, values, why):
    """Raise a ValueError at the first place where `bad` is true."""
    place = bad.nonzero()[0].tolist()
    raise ValueError(f"{name}{place or ''} is {values[tuple(place)].item()}: {why}")


def check_finite(name, values, why):
    bad = ~torch.isfinite(values)
    if holds(bad.any()):
        refuse_where(bad, name, values, why)


def check_labels(name, labels, n_labels, why="", low=0):
    """Refuse labels that are not low ... n_labels - 1."""
    bad = (labels < low) | (labels >= n_labels)
    if holds(bad.any()):
        refuse_where(bad, name, labels, f"labels are 0 ... {n_labels - 1}{why}.")


def fixed_cost(cost):
    """The costs that a layer keeps: checked once, with as many labels as they have; or None."""
    if cost is None or isinstance(cost, str):
        as_cost(cost, 1)
        return None
    return as_cost(cost, len(torch.as_tensor(cost)))


def given_cost(cost, n_labels):
    """Costs for an op, None being 0-1; their shape is checked, the op checks their values."""
    if cost is None or isinstance(cost, str):
        if isinstance(cost, str):
            as_cost(cost, 1)
        return None
    cost = torch.as_tensor(cost, dtype=torch.float64).detach()
    if tuple(cost.shape) != (n_labels, n_labels):
        raise ValueError(
            f"cost must have shape ({n_labels}, {n_labels}), got {tuple(cost.shape)}.")
    return cost


def on_host(tensors):
    """Tensors on the CPU: all copies are under way at once, in pinned memory, before one wait."""
    copies, device = [], None
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.device.type != "cpu":
            device = tensor.device
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            tensor = copy.copy_(tensor.detach(), non_blocking=True)
        copies.append(tensor)
    if device is not None:
        torch.cuda.current_stream(device).synchronize()
    return copies


def by_way_of_host(kernel):
    """The kernel of a CPU for tensors of a GPU: one copy there, one call, one copy back."""
    def run(first, *rest):
        found = kernel(*on_host((first, *rest)))
        return tuple(part.to(first.device) for part in found)

    return run


@torch.library.custom_op("fastm4n::scaled_slope", mutates_args=())
def scaled_slope(
        weights: torch.Tensor, slope: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Slopes of all examples times their weights: what is passed back to the scores.

    The scores are there so that who differentiates again is told, and gets no silent zero.
    """
    return slope * weights.reshape(weights.shape + (1,) * (slope.dim() - weights.dim()))


@scaled_slope.register_fake
def _(weights, slope, scores):
    return torch.empty_like(slope, memory_format=torch.contiguous_format)


def _refuse_second(ctx, grad):
    raise RuntimeError(ONCE)


scaled_slope.register_autograd(_refuse_second)


def register_loss(op, kernel, n_axes):
    """Shapes, gradient, autocast and GPU of a loss op; n_axes are those of one example's scores."""
    op.register_kernel("cuda", by_way_of_host(kernel))

    @op.register_fake
    def _(scores, *rest):
        shape = scores.shape[:scores.dim() - n_axes]
        return (
            scores.new_empty(shape),
            scores.new_empty(scores.shape),
            scores.new_empty((2, *shape), dtype=torch.float64))

    def setup_context(ctx, inputs, output):
        value, slope, bounds = output
        ctx.mark_non_differentiable(slope, bounds)
        ctx.save_for_backward(slope, inputs[0])
        ctx.n_rest = len(inputs) - 1

    def backward(ctx, of_value, of_slope, of_bounds):
        slope, scores = ctx.saved_tensors
        return (scaled_slope(of_value, slope, scores), *[None] * ctx.n_rest)

    op.register_autograd(backward, setup_context=setup_context)
    for device in ("cpu", "cuda"):
        op.register_autocast(device, torch.float32)


def as_output(losses, scores, shape):
    """What an op returns, of `fastm4n.losses.Losses` of scores whose examples have that shape.

    losses may be None where there are no examples.
    """
    if losses is None:
        return (
            scores.new_empty(shape), scores.new_empty(scores.shape),
            scores.new_empty((2, *shape), dtype=torch.float64))
    value, upper, slope = (torch.from_numpy(part) for part in losses)
    return (
        value.to(scores.dtype).reshape(shape),
        slope.to(scores.dtype).reshape(scores.shape),
        torch.stack([value, upper]).reshape(2, *shape))
