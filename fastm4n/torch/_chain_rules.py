"""Constraints of chains: forbidden transitions, first labels and last labels."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fastm4n.base.checks import check_choice
from fastm4n.base.schemes import RULES, SpanRules, Tags
from fastm4n.torch._base import check_has_values


def as_names(labels, n_labels):
    """Names of the labels: list of different str, or None."""
    if labels is None:
        return None
    labels = [str(label) for label in labels]
    if len(labels) != n_labels or len(set(labels)) != n_labels:
        raise ValueError(
            f"labels must be {n_labels} different names, got {len(set(labels))} in {len(labels)}.")
    return labels


def forbidden_by(allowed, allowed_start, allowed_end, labels, n_labels):
    """Forbidden transitions and labels: ndarray of bool of shape (n_labels + 2, n_labels).

    A row for each label before a transition, then a row of first and a row of last labels.
    """
    free = np.ones((n_labels + 2, n_labels), dtype=bool)
    if isinstance(allowed, str):
        check_choice("allowed", allowed, RULES)
        if labels is None:
            raise ValueError(f"allowed={allowed!r} needs labels=, the names of the labels.")
        free[:] = _allowed_by(allowed, tuple(labels))
    elif allowed is not None:
        free[:-2] = _as_flags(
            "allowed", allowed, (n_labels, n_labels), f"one of {', '.join(map(repr, RULES))} or ")
    for row, name, flags in (
            (-2, "allowed_start", allowed_start), (-1, "allowed_end", allowed_end)):
        if flags is not None:
            free[row] &= _as_flags(name, flags, (n_labels,))
            if not free[row].any():
                raise ValueError(f"{name} leaves no label.")
    return ~free


@lru_cache(maxsize=8)
def _allowed_by(scheme, labels):
    """What a scheme allows. Predictions of few sequences look it up each time."""
    rules = SpanRules(labels, Tags(scheme, RULES, "allowed"), "labels")
    return np.vstack([rules.after, rules.first, rules.last])


def _as_flags(name, flags, shape, forms=""):
    check_has_values(name, flags)
    if isinstance(flags, Tensor):
        flags = flags.cpu()
    flags = np.asarray(flags)
    if flags.dtype != bool or flags.shape != shape:
        raise ValueError(
            f"{name} must be {forms}a boolean array of shape {shape}, got shape {flags.shape} of "
            f"{flags.dtype}.")
    return flags


class Constraints(NamedTuple):
    """Forbidden pairs and labels: boolean tensors on the CPU, None if all are allowed."""

    pairs: Tensor | None = None  # (n_labels, n_labels)
    first: Tensor | None = None  # (n_labels,)
    last: Tensor | None = None

    def applied(self, transitions, start, end):
        """The scores with -inf where something is forbidden."""
        scores = []
        for own, barred in zip((transitions, start, end), self, strict=True):
            if barred is not None:
                if own is None:
                    own = transitions.new_zeros(barred.shape)
                own = own.masked_fill(barred.to(own.device), -float("inf"))
            scores.append(own)
        return scores


@torch.compiler.assume_constant_result
def constraints_of(allowed, allowed_start, allowed_end, labels, n_labels):
    """The `Constraints` of the arguments of a layer, or None. Tracing takes them as they are."""
    if allowed is None and allowed_start is None and allowed_end is None:
        return None
    forbidden = forbidden_by(allowed, allowed_start, allowed_end, labels, n_labels)
    parts = forbidden[:-2], forbidden[-2], forbidden[-1]
    return Constraints(*(torch.from_numpy(part) if part.any() else None for part in parts))
