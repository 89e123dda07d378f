"""Distributions over labellings of chains, in the manner of ``torch.distributions``."""

from __future__ import annotations

import math
from typing import Any, Literal, Optional

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from fastm4n.base.checks import check_choice, check_number
from fastm4n.inference._chain_batches import Fault
from fastm4n.inference._chain_samples import sample
from fastm4n.torch import _base as base
from fastm4n.torch import _chain_numerics as numerics
from fastm4n.torch import _chain_ops as ops
from fastm4n.torch._chain_inputs import packed_batch
from fastm4n.torch._chain_scores import INF, scores_of

__all__ = ["ChainDistribution"]


class ChainDistribution(Distribution):
    """Distribution over labellings of sequences: a linear-chain CRF.

    The probability of a labelling y of a sequence is proportional to ``exp(score(y) /
    temperature)``, with the scores of `chain_loss`. Sequences are the batch, and the labels of
    their positions are one event, -1 where positions are left out. `ChainLoss.distribution` makes
    it from a layer's transitions.

    Parameters
    ----------
    emissions, transitions, start, end, mask, lengths, temperature, device_policy
        As in `chain_loss`, with the axis of sequences first.
    validate_args : bool, default=None
        As in `torch.distributions.Distribution`. Scores and labels are always checked.

    Attributes
    ----------
    batch_shape, event_shape : torch.Size
        (B,) and (T,), for emissions of shape (B, T, n_labels).

    See Also
    --------
    chain_loss : Losses, also of labels that are known in part or given by probabilities.
    chain_viterbi : Also the k best labellings.

    Notes
    -----
    ``torch.distributions.kl_divergence`` takes two distributions of the same shape and lengths. It
    is infinite if the first one has labels or transitions that the second one forbids.

    Entropies, cross-entropies and divergences are sums over marginals, by one forward-backward pass
    in float64: O(B T n_labels^2). Their gradients are exact. They have no second derivatives,
    except of the cross-entropy in the scores of the second distribution. `log_prob` and
    `log_partition` have second derivatives.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import ChainDistribution
    >>> emissions = torch.tensor([[[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]]])
    >>> p = ChainDistribution(emissions, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> p.mode.tolist(), round(p.entropy().item(), 4)
    ([[0, 0, 0]], 1.5929)
    >>> round(p.log_prob(torch.tensor([[1, 0, 0]])).exp().item(), 4)
    0.2738
    >>> p.sample((4,), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([4, 1, 3])
    >>> uniform = ChainDistribution(torch.zeros(1, 3, 2), torch.zeros(2, 2))
    >>> round(torch.distributions.kl_divergence(p, uniform).item(), 4)
    0.4865
    """

    arg_constraints = {}  # noqa: RUF012

    def __init__(
        self, emissions: Tensor, transitions: Tensor, start: Tensor | None = None,
        end: Tensor | None = None, *, mask: Tensor | None = None, lengths: Tensor | None = None,
        temperature: float = 1.0, device_policy: Literal["auto", "cpu", "native"] = "auto",
        validate_args: bool | None = None,
    ) -> None:
        check_number("temperature", temperature, low=0)
        check_choice("device_policy", device_policy, numerics.POLICIES)
        self._set(
            *packed_batch(emissions, transitions, start, end, mask, lengths, True), temperature,
            device_policy, validate_args)

    @classmethod
    def _of(cls, batch, rows, temperature, policy):
        """The distribution of a batch of checked shapes."""
        self = cls.__new__(cls)
        self._set(batch, rows, temperature, policy, None)
        return self

    def _set(self, batch, rows, temperature, policy, validate_args):
        self._batch, self.temperature, self._policy = batch, float(temperature), policy
        B, T, self.n_labels = batch.unary.shape
        super().__init__(torch.Size((B,)), torch.Size((T,)), validate_args=validate_args)
        # which also checks all scores, before others add constants to them
        try:
            with torch.no_grad():
                self._mode = ops.chain_viterbi(batch, 1, policy)[0]
        except Fault as fault:
            raise rows.explained(fault) from None
        self._rows = rows._replace(batch_first=True)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(batch_shape={tuple(self.batch_shape)}, "
            f"event_shape={tuple(self.event_shape)}, n_labels={self.n_labels})")

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Labels, with -1 where positions are left out."""
        return constraints.independent(constraints.integer_interval(-1, self.n_labels - 1), 1)

    @property
    def mode(self) -> Tensor:
        """The most likely labellings (B, T). Ties go to the lower label, from the end back."""
        return self._rows.restored(self._mode)

    @property
    def marginals(self) -> Tensor:
        """Probabilities of the labels (B, T, n_labels), differentiable once.

        Zero where positions are left out.
        """
        nodes = ops.chain_marginals(self._batch, self.temperature, self._policy)[1]
        return self._rows.restored(nodes)

    @property
    def edge_marginals(self) -> Tensor:
        """Probabilities of transitions (B, T - 1, n_labels, n_labels), differentiable once.

        Element (b, t, i, j) is the probability of label i at position t and label j at the next
        position that is not left out.
        """
        batch = self._batch._replace(pair=_at_edges(self._batch.pair, self._batch.unary))
        edges = ops.chain_marginals(batch, self.temperature, self._policy)[2]
        if self._rows.order is not None and edges.shape[1]:
            # no edge begins at the last position, whose place they are given for the moment
            last = torch.zeros_like(edges[:, :1])
            edges = self._rows.restored(torch.cat([edges, last], 1))[:, :-1]
        return edges

    @property
    def log_partition(self) -> Tensor:
        """Log of the sum of ``exp(score(y) / temperature)`` over all y (B,), differentiable."""
        log_z = self._log_z(scores_of(self._batch)) / self.temperature
        return log_z.to(self._batch.unary.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probabilities of labellings, differentiable in the scores.

        Parameters
        ----------
        value : integer Tensor of shape (..., B, T)
            Labels. Those of positions that are left out are ignored.

        Returns
        -------
        log_prob : Tensor of shape (..., B)
            -inf for labellings that scores of -inf forbid.
        """
        shape = self.batch_shape + self.event_shape
        if not isinstance(value, Tensor) or value.shape[-2:] != shape:
            raise ValueError(
                f"value must be a Tensor of shape (..., {shape[0]}, {shape[1]}), got "
                f"{tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__}.")
        value = base.as_labels("value", value, value.shape, self._batch.unary)
        scores = scores_of(self._batch).centred()
        labels = torch.where(self._rows.restored(scores.inside), value, 0)
        base.check_labels("value", labels, self.n_labels)
        labels = self._moved(labels, self._rows.packed)
        found = (scores.of_labels(labels) - self._log_z(scores)) / self.temperature
        return found.to(self._batch.unary.dtype)

    def sample(
        self, sample_shape: Any = (), generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw labellings, exactly and without gradients.

        One uniform number of float64 for each position is drawn on the CPU, or on the device of the
        generator. The label of a position is the first whose probability, given the label before,
        brings the sum over labels above this number.

        Parameters
        ----------
        sample_shape : torch.Size or tuple of int, default=()
            Numbers of labellings of each sequence.
        generator : torch.Generator, default=None

        Returns
        -------
        tags : LongTensor of shape (\\*sample_shape, B, T)
            -1 where positions are left out.
        """
        shape = self._extended_shape(torch.Size(sample_shape))
        uniforms = torch.rand(
            (math.prod(sample_shape), *shape[-2:]), dtype=torch.float64, generator=generator,
            device="cpu" if generator is None else generator.device)
        uniforms = self._moved(uniforms, self._rows.packed)
        *scores, bounds = self._batch
        if isinstance(bounds, Tensor):
            with torch.no_grad():
                tags = _sample_op(*scores, bounds, uniforms, self.temperature)
        else:
            tags = _sampled(numerics.Chains(*scores, *bounds), uniforms, self.temperature)
        return self._moved(tags, self._rows.restored).reshape(shape)

    def entropy(self) -> Tensor:
        """Shannon entropies in nats (B,), differentiable once."""
        return self._moments(False)[2].to(self._batch.unary.dtype)

    def cross_entropy(self, other: ChainDistribution) -> Tensor:
        """Cross-entropies: expectations of minus `other.log_prob` under this distribution.

        The loss for distillation: `other` is the student. Differentiable in the scores of both.

        Parameters
        ----------
        other : ChainDistribution
            Of the same shape and lengths.

        Returns
        -------
        cross_entropy : Tensor of shape (B,)
            Infinite where `other` forbids what has a positive probability here.
        """
        nodes, edges, _ = self._moments(self._check_alike(other))
        return other._cross(nodes, edges).to(self._batch.unary.dtype)

    def _moved(self, values, move):
        """Values (..., B, T) moved as `Rows` moves (B, T, ...)."""
        if self._rows.order is None:
            return values
        shape = values.shape
        values = move(values.reshape(-1, *shape[-2:]).permute(1, 2, 0))
        return values.permute(2, 0, 1).reshape(shape)

    def _scores(self):
        """Centred scores, and a batch of them for the operators."""
        scores = scores_of(self._batch).centred()
        return scores, self._batch._replace(
            unary=scores.unary, pair=scores.pair, start=None, end=None)

    def _log_z(self, scores):
        """The temperature times log-partitions of scores, twice differentiable."""
        batch = self._batch._replace(unary=scores.unary, pair=scores.pair, start=None, end=None)
        labels = self._mode.clamp(min=0)
        options = numerics.Options(temperature=self.temperature, policy=self._policy)
        return ops.chain_loss(batch, labels, None, None, options) + scores.of_labels(labels)

    def _moments(self, at_edges):
        """Marginals of positions and of edges, differentiable, and entropies, in float64.

        Without at_edges, marginals of edges with a shared matrix are summed over positions.
        """
        scores, batch = self._scores()
        if at_edges:
            batch = batch._replace(pair=_at_edges(batch.pair, batch.unary))
        log_z, nodes, edges = ops.chain_marginals(batch, self.temperature, self._policy)
        # the slope of log Z and that of expected scores with marginals fixed cancel
        expected, _ = scores.detach().expected(nodes, edges)
        return nodes, edges, ((log_z.detach() - expected) / self.temperature).clamp(min=0.0)

    def _cross(self, nodes, edges):
        """Expectations of minus log-probabilities under marginals, in float64."""
        scores = scores_of(self._batch).centred()
        expected, lost = scores.expected(nodes, edges)
        return torch.where(lost, INF, (self._log_z(scores) - expected) / self.temperature)

    def _check_alike(self, other):
        """Refuse another shape. Return whether `other` has a matrix for each edge."""
        if not isinstance(other, ChainDistribution):
            raise TypeError(f"other must be a ChainDistribution, got {type(other).__name__}.")
        mine, its = self._batch, other._batch
        if mine.unary.shape != its.unary.shape:
            raise ValueError(
                "distributions must have the same sequences, positions and labels, got "
                f"{tuple(mine.unary.shape)} and {tuple(its.unary.shape)}.")
        base.check_device("other", its.unary, mine.unary)
        if (self._rows.order is None) != (other._rows.order is None):
            raise ValueError(
                "distributions are compared by position: give both the same mask, and during "
                "tracing transitions of the same form.")
        here, there = (p._rows.restored(scores_of(p._batch).inside) for p in (self, other))
        bad = here != there
        if base.holds(bad.any()):
            b, t = bad.nonzero()[0].tolist()
            raise ValueError(
                f"distributions must have the same positions, but position {t} of sequence {b} is "
                f"left out in the {'second' if here[b, t] else 'first'} one only.")
        return its.pair.dim() == 4


@register_kl(ChainDistribution, ChainDistribution)
def _kl_of_chains(p, q):
    nodes, edges, entropy = p._moments(p._check_alike(q))
    return (q._cross(nodes, edges) - entropy).clamp(min=0.0).to(p._batch.unary.dtype)


def _at_edges(pair, unary):
    """A matrix for each edge."""
    B, T, R = unary.shape
    return pair if pair.dim() == 4 else pair.expand(B, max(0, T - 1), R, R)


def _sampled(chains, uniforms, temperature):
    """Labellings (n_samples, B, T) of chains whose scores are checked."""
    (host, uniforms) = chains.on_host(uniforms)
    tags = sample(
        *host.arrays(), host.first, host.length, temperature, uniforms.contiguous().numpy(),
        numerics._spread)
    return torch.from_numpy(tags).to(chains.unary.device)


def _sample_shapes(unary, pair, start, end, bounds, uniforms, temperature):
    return torch.empty(uniforms.shape, dtype=torch.int64, device=unary.device)


@base.operator("chain_sample", _sample_shapes, autocast=True)
def _sample_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, uniforms: Tensor, temperature: float) -> Tensor:
    chains = ops._chains(unary, pair, start, end, bounds)
    if uniforms.dim() != 3 or uniforms.shape[1:] != unary.shape[:2] or (
            uniforms.dtype != torch.float64):
        raise ValueError(
            f"uniforms must have shape (n_samples, {unary.shape[0]}, {unary.shape[1]}) and dtype "
            f"torch.float64, got {tuple(uniforms.shape)} of {uniforms.dtype}.")
    numerics._check_scores(chains.on_host()[0])
    return _sampled(chains, uniforms, temperature)
