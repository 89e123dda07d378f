"""What the layers check of their arguments, and what they share: casts and reductions."""

import torch
from torch.autograd import forward_ad

from fastm4n.base.checks import check_choice, check_number

SURROGATES = ("max_min", "max_margin", "log")
REDUCTIONS = ("mean", "sum", "token_mean", "none")
# what has second derivatives, for errors that say what has none
TWICE = "double backward is there for surrogate='log' of chains, trees and single labels"
HALVES = (torch.float16, torch.bfloat16)
WHOLES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_options(surrogate, reduction, temperature, cost_augmented):
    """Refuse what no loss has, in words that name the argument."""
    check_choice("surrogate", surrogate, SURROGATES)
    check_choice("reduction", reduction, REDUCTIONS)
    check_number("temperature", temperature, low=0)
    if surrogate != "log" and (cost_augmented or temperature != 1.0):
        raise ValueError(
            "cost_augmented and temperature are of surrogate='log', got "
            f"surrogate={surrogate!r} with cost_augmented={cost_augmented!r} and "
            f"temperature={temperature!r}.")


def as_cost(cost, n_labels):
    """The matrix of costs in float64 on the CPU; 0-1 by default."""
    if cost is None or (isinstance(cost, str) and cost in ("zero_one", "hamming")):
        return 1.0 - torch.eye(n_labels, dtype=torch.float64)
    if isinstance(cost, str):
        raise ValueError(f"cost must be 'zero_one' or a matrix of costs, got {cost!r}.")
    cost = torch.as_tensor(cost, dtype=torch.float64).detach().cpu().contiguous()
    if cost.shape != (n_labels, n_labels):
        raise ValueError(
            f"cost must have shape ({n_labels}, {n_labels}), got {tuple(cost.shape)}.")
    if not bool(torch.isfinite(cost).all()) or bool((cost < 0).any()):
        raise ValueError("cost must hold finite numbers >= 0.")
    if bool(cost.diagonal().any()):
        label = int(cost.diagonal().nonzero()[0])
        raise ValueError(
            f"cost[{label}, {label}] is {cost[label, label].item()}: a right label costs nothing.")
    return cost


def as_scores(name, scores, n_axes):
    """A tensor of float32 or float64; half precision is cast up, and its gradient down again."""
    if not isinstance(scores, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(scores).__name__}.")
    if scores.dim() not in (n_axes if isinstance(n_axes, tuple) else (n_axes,)):
        raise ValueError(f"{name} must have {n_axes} axes, got shape {tuple(scores.shape)}.")
    if scores.dtype in HALVES:
        return scores.float()
    if scores.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be of a floating dtype, got {scores.dtype}.")
    return scores


def as_labels(name, labels, shape):
    """Integer labels of the given shape in int64."""
    if not isinstance(labels, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(labels).__name__}.")
    if tuple(labels.shape) != tuple(shape):
        raise ValueError(
            f"{name} must have shape {tuple(shape)}, got {tuple(labels.shape)}.")
    if labels.dtype not in WHOLES:
        raise TypeError(f"{name} must be of an integer dtype, got {labels.dtype}.")
    return labels.long()


def refuse_forward_mode(*tensors):
    """Refuse tensors with tangents, which operators of `torch.library` drop in silence."""
    if torch.compiler.is_compiling():
        return
    for tensor in tensors:
        try:
            if tensor is None or forward_ad.unpack_dual(tensor).tangent is None:
                continue
        except RuntimeError:  # under vmap nobody can tell, but that there is a level of duals
            pass
        raise NotImplementedError(
            "fastm4n.torch has no derivatives in forward mode here (torch.func.jvp, jacfwd, "
            "linearize, torch.autograd.forward_ad), but for surrogate='log' of single labels and "
            "sinkhorn: take backward mode, loss.backward() or torch.autograd.grad.")


def check_device(name, tensor, other, of):
    """Refuse a tensor that lies on another device than the scores."""
    if tensor is not None and tensor.device != other.device:
        raise ValueError(
            f"{name} is on {tensor.device}, but {of} on {other.device}: move one of them.")


def reduced(losses, reduction, n_parts):
    """Losses (B,) as `reduction` asks for them; n_parts is the number of parts of all outputs.

    Of an empty batch the mean is 0, not NaN: there is nothing to learn from it.
    """
    if reduction == "none":
        return losses
    total = losses.sum()
    if reduction == "mean":
        return total / max(1, losses.shape[0])
    return total / max(1, n_parts) if reduction == "token_mean" else total
