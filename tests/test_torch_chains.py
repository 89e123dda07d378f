"""Layers of sequences: values and derivatives of all surrogates, operators, refusals."""

import copy
import itertools
import pickle

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: the layers of fastm4n.torch are not tested.")

from fastm4n import reference
from fastm4n.losses import chain_losses
from fastm4n.torch import (
    CRF,
    ChainLoss,
    chain_loss,
    chain_marginals,
    chain_viterbi,
)
from fastm4n.torch import _chain_ops as ops

SURROGATES = ("log", "max_margin", "max_min")
POLICIES = ("cpu", "native")
INF = float("inf")


class Batch:
    """Sequences of several lengths, padding filled with NaN."""

    def __init__(self, B=5, T=6, R=3, dtype=torch.float64, left=False, seed=0, form="shared",
                 longest=None):
        g = torch.Generator().manual_seed(seed)
        self.emissions = torch.randn(B, T, R, generator=g, dtype=dtype)
        shape = (R, R) if form == "shared" else (B, T - 1, R, R)
        self.transitions = torch.randn(shape, generator=g, dtype=dtype)
        self.start, self.end = torch.randn(2, R, generator=g, dtype=dtype)
        self.tags = torch.randint(R, (B, T), generator=g)
        self.lengths = torch.randint(1, T + 1, (B,), generator=g)
        self.lengths[0] = longest or T
        if B > 2:
            self.lengths[2] = 0
        t = torch.arange(T)
        self.first = T - self.lengths if left else torch.zeros(B, dtype=torch.long)
        self.mask = (t >= self.first[:, None]) & (t < (self.first + self.lengths)[:, None])
        self.emissions[~self.mask] = float("nan")
        self.R = R

    def scores(self, requires_grad=False):
        parts = self.emissions, self.transitions, self.start, self.end
        return [part.clone().requires_grad_(requires_grad) for part in parts]

    def loss(self, emissions, transitions, start, end, **options):
        return chain_loss(
            emissions, self.tags, transitions, start, end, mask=self.mask, **options)

    def expected(self, surrogate, **options):
        """Losses and gradients from `chain_losses`, sequence by sequence."""
        values, slopes = np.zeros(len(self.tags)), np.zeros(self.emissions.shape)
        per_edge = self.transitions.dim() == 4
        edges = np.zeros(
            self.transitions.shape if per_edge else (len(self.tags), self.R, self.R))
        for b, (first, T) in enumerate(zip(self.first.tolist(), self.lengths.tolist())):
            if not T:
                continue
            rows = self.emissions[b, first : first + T].double().numpy().copy()
            rows[0] += self.start.numpy()
            rows[-1] += self.end.numpy()
            pair = self.transitions.double().numpy()
            if per_edge:
                pair = pair[b, first : first + T - 1]
            found = chain_losses(
                rows, pair, self.tags[b, first : first + T].numpy(), [T], surrogate=surrogate,
                **options)
            values[b] = found.value[0]
            slopes[b, first : first + T] = found.gradient[0]
            if per_edge:
                edges[b, first : first + T - 1] = found.gradient[1]
            else:
                edges[b] = found.gradient[1][0]
        return values, slopes, edges


# ---------------------------------------------------------------------- values and gradients


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("form", ["shared", "per edge"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_losses_and_gradients_are_those_of_the_seam(surrogate, form, left, policy):
    batch = Batch(left=left, form=form)
    values, slopes, edges = batch.expected(surrogate, tol=1e-6)
    scores = batch.scores(requires_grad=True)
    options = {"surrogate": surrogate, "device_policy": policy, "rtol": 0.0}
    losses = batch.loss(*scores, reduction="none", **options)
    np.testing.assert_allclose(losses.detach(), values, atol=2e-6)
    weights = torch.tensor([1.0, -2.0, 3.0, 0.5, 2.0], dtype=torch.float64)
    found = torch.autograd.grad(losses, scores, weights)
    atol = 1e-11 if surrogate != "max_min" else 1e-5
    w = weights.numpy()
    np.testing.assert_allclose(found[0], w[:, None, None] * slopes, atol=atol)
    expected = np.einsum("b,b...->b...", w, edges)
    np.testing.assert_allclose(
        found[1], expected if form == "per edge" else expected.sum(axis=0), atol=atol)
    some = np.flatnonzero(batch.lengths)
    first, last = batch.first.numpy()[some], (batch.first + batch.lengths - 1).numpy()[some]
    np.testing.assert_allclose(found[2], w[some] @ slopes[some, first], atol=atol)
    np.testing.assert_allclose(found[3], w[some] @ slopes[some, last], atol=atol)
    # the same with one number for all, which goes another way
    total = batch.loss(*scores, reduction="sum", **options)
    again = torch.autograd.grad(total, scores)
    ones = torch.autograd.grad(
        batch.loss(*scores, reduction="none", **options).sum(), scores)
    assert total.item() == pytest.approx(losses.sum().item(), abs=1e-9)
    for one, two in zip(again, ones):
        np.testing.assert_allclose(one, two, atol=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_losses_and_labels_are_those_of_the_reference(surrogate, policy):
    batch = Batch(B=6, T=5, R=4, seed=3)
    scores = batch.scores()
    losses = batch.loss(
        *scores, surrogate=surrogate, cost_scale="mean", reduction="none", device_policy=policy,
        rtol=0.0)
    decoded = chain_viterbi(*scores, mask=batch.mask, device_policy=policy)
    pair, cost = batch.transitions.numpy(), 1.0 - np.eye(4)
    for b, T in enumerate(batch.lengths.tolist()):
        if not T:
            continue
        unary, y = batch.emissions[b, :T].numpy().copy(), batch.tags[b, :T].numpy()
        unary[0] += batch.start.numpy()
        unary[-1] += batch.end.numpy()
        true = reference.score_labelling(y, unary, pair)
        if surrogate == "log":
            best = reference.sum_product(unary, pair)[2]
        elif surrogate == "max_margin":
            best = reference.viterbi(unary + cost[y] / T, pair)[1]
        else:
            best = reference.max_min_column_generation(unary, pair, cost)[3]
        assert losses[b].item() == pytest.approx(best - true, abs=2e-6)
        assert decoded.tags[b, :T].tolist() == reference.viterbi(unary, pair)[0].tolist()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_reductions(surrogate, policy):
    batch = Batch()
    losses = batch.loss(*batch.scores(), surrogate=surrogate, reduction="none")
    n, n_tokens = len(losses), batch.lengths.sum()
    for reduction, expected in (
        ("sum", losses.sum()), ("mean", losses.sum() / n), ("token_mean", losses.sum() / n_tokens),
    ):
        found = batch.loss(
            *batch.scores(), surrogate=surrogate, reduction=reduction, device_policy=policy)
        assert found.shape == () and found.item() == pytest.approx(expected.item(), abs=2e-6)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_forms_of_padding_say_the_same(surrogate):
    right = Batch()
    by_mask = right.loss(*right.scores(), surrogate=surrogate, reduction="none")
    emissions, *others = right.scores()
    by_lengths = chain_loss(
        emissions, right.tags, *others, lengths=right.lengths, surrogate=surrogate,
        reduction="none")
    as_bytes = chain_loss(
        emissions, right.tags, *others, mask=right.mask.to(torch.uint8), surrogate=surrogate,
        reduction="none")
    time_first = chain_loss(
        emissions.transpose(0, 1), right.tags.T, *others, mask=right.mask.T, batch_first=False,
        surrogate=surrogate, reduction="none")
    # the same sequences at the other end of their rows
    shift = emissions.shape[1] - right.lengths

    def moved(x):
        return torch.stack([x[b].roll(int(s), 0) for b, s in enumerate(shift)])

    left = chain_loss(
        moved(emissions), moved(right.tags), *others, mask=moved(right.mask), surrogate=surrogate,
        reduction="none")
    for other in (by_lengths, as_bytes, time_first, left):
        torch.testing.assert_close(other, by_mask, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("form", ["shared", "per edge"])
def test_batches_that_are_not_contiguous(surrogate, form):
    batch = Batch(form=form)
    emissions, transitions, start, end = batch.scores()
    wide = torch.zeros(*emissions.shape[:2], 2 * batch.R, dtype=emissions.dtype)
    wide[..., ::2] = emissions
    scattered = wide[..., ::2].requires_grad_()
    turned = transitions.transpose(-1, -2).contiguous().transpose(-1, -2).requires_grad_()
    plain = [emissions.requires_grad_(), transitions.requires_grad_()]
    one = torch.autograd.grad(batch.loss(*plain, start, end, surrogate=surrogate), plain)
    two = torch.autograd.grad(
        batch.loss(scattered, turned, start, end, surrogate=surrogate), [scattered, turned])
    for a, b in zip(one, two):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_costs_and_their_scale(surrogate, cost_scale, policy):
    batch = Batch()
    cost = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    augmented = {"cost_augmented": True, "temperature": 0.7} if surrogate == "log" else {}
    values, _, _ = batch.expected(
        surrogate, cost=cost, cost_scale=cost_scale, tol=1e-6, **augmented)
    found = batch.loss(
        *batch.scores(), surrogate=surrogate, cost=torch.from_numpy(cost), cost_scale=cost_scale,
        reduction="none", device_policy=policy, rtol=0.0, **augmented)
    np.testing.assert_allclose(found, values, atol=2e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_small_temperature_is_the_margin(policy):
    batch = Batch()
    margin = batch.loss(*batch.scores(), surrogate="max_margin", reduction="none")
    soft = batch.loss(
        *batch.scores(), cost_augmented=True, temperature=1e-4, reduction="none",
        device_policy=policy)
    torch.testing.assert_close(soft, margin, atol=1e-2, rtol=0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", ["shared", "per edge"])
@pytest.mark.parametrize("with_sets", [False, True])
def test_labels_known_in_part(form, with_sets, policy):
    batch = Batch(form=form, T=4)
    batch.tags[0, 1] = batch.tags[1, 0] = -1
    allowed = None
    if with_sets:
        allowed = torch.rand(batch.emissions.shape) < 0.6
        allowed.scatter_(2, batch.tags.clamp(min=0)[:, :, None], True)
    scores = batch.scores(requires_grad=True)
    losses = batch.loss(
        *scores, allowed_labels=allowed, reduction="none", device_policy=policy)
    expected = []
    for b, T in enumerate(batch.lengths.tolist()):
        totals = {True: [], False: []}
        for y in itertools.product(range(batch.R), repeat=T):
            score = torch.zeros((), dtype=torch.float64)
            for t, label in enumerate(y):
                score = score + scores[0][b, t, label]
                score = score + (scores[2][label] if t == 0 else 0)
                score = score + (scores[3][label] if t == T - 1 else 0)
                if t:
                    pair = scores[1] if form == "shared" else scores[1][b, t - 1]
                    score = score + pair[y[t - 1], label]
            right = all(
                known in (-1, label) and (allowed is None or bool(allowed[b, t, label]))
                for t, (label, known) in enumerate(zip(y, batch.tags[b].tolist())))
            totals[True].append(score)
            totals[False].extend([score] if right else [])
        expected.append(
            torch.stack(totals[True]).logsumexp(0) - torch.stack(totals[False]).logsumexp(0))
    torch.testing.assert_close(losses, torch.stack(expected), atol=1e-11, rtol=0)
    one = torch.autograd.grad(losses.sum(), scores)
    two = torch.autograd.grad(torch.stack(expected).sum(), scores)
    for a, b in zip(one, two):
        torch.testing.assert_close(a, b.nan_to_num(), atol=1e-11, rtol=0)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("dtype, tol", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_scores_may_be_extreme(dtype, tol, policy):
    for scale in (1e4, 1e30 if dtype == torch.float64 else 1e20):
        batch = Batch(dtype=dtype)
        scores = [scale * part for part in batch.scores()]
        best = chain_viterbi(*scores, mask=batch.mask)
        # so far apart, the loss is what the true labels score less than the best ones
        expected = []
        for b, T in enumerate(batch.lengths.tolist()):
            rows = [(best.tags[b, :T], 1.0), (batch.tags[b, :T], -1.0)] if T else []
            expected.append(sum(
                sign * (scores[0].double()[b, range(T), y].sum() + scores[2].double()[y[0]]
                        + scores[1].double()[y[:-1], y[1:]].sum() + scores[3].double()[y[-1]])
                for y, sign in rows))
        for surrogate in ("log", "max_margin"):
            losses = batch.loss(
                *scores, surrogate=surrogate, reduction="none", device_policy=policy)
            np.testing.assert_allclose(
                losses.double(), expected, rtol=10 * tol, atol=scale * tol + 6)
            own = scores[0].clone().requires_grad_()
            grad, = torch.autograd.grad(batch.loss(own, *scores[1:], surrogate=surrogate), own)
            assert torch.isfinite(grad).all() and not grad[~batch.mask].any()


def test_sequences_of_one_position_and_empty_batches():
    for surrogate in SURROGATES:
        layer = ChainLoss(3, surrogate)
        emissions = torch.randn(4, 1, 3, requires_grad=True)
        layer(emissions, torch.zeros(4, 1, dtype=torch.long)).backward()
        assert emissions.grad.abs().sum() > 0
        for shape in ((0, 5, 3), (4, 0, 3), (0, 0, 3)):
            emissions = torch.randn(shape, requires_grad=True)
            tags = torch.zeros(shape[:2], dtype=torch.long)
            for reduction in ("mean", "sum", "token_mean"):
                layer.reduction = reduction
                loss = layer(emissions, tags)
                loss.backward()
                assert loss.item() == 0.0
            assert layer.decode(emissions).tags.shape == shape[:2]
        # all rows are padding
        emissions = torch.full((2, 3, 3), float("nan"), requires_grad=True)
        loss = layer(emissions, torch.full((2, 3), 99), torch.zeros(2, 3, dtype=torch.bool))
        loss.backward()
        assert loss.item() == 0.0 and not emissions.grad.any()


def test_one_label_has_no_loss():
    for surrogate in SURROGATES:
        loss = ChainLoss(1, surrogate)(torch.randn(2, 3, 1), torch.zeros(2, 3, dtype=torch.long))
        assert loss.item() == pytest.approx(0.0, abs=1e-6)


# --------------------------------------------------------------------------------- derivatives


def packed(batch, surrogate, **options):
    """The loss as a function of scores of the positions that are no padding."""
    def loss(rows, *others):
        emissions = torch.zeros_like(batch.emissions)
        emissions = emissions.masked_scatter(batch.mask[:, :, None], rows)
        return batch.loss(emissions, *others, surrogate=surrogate, **options)

    _, *others = batch.scores(requires_grad=True)
    return loss, (batch.emissions[batch.mask].clone().requires_grad_(), *others)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("form", ["shared", "per edge"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gradients_by_finite_differences(surrogate, form, reduction):
    batch = Batch(B=3, T=4, form=form)
    loss, inputs = packed(batch, surrogate, reduction=reduction, tol=1e-10, rtol=0.0)
    assert torch.autograd.gradcheck(loss, inputs, atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("form", ["shared", "per edge"])
@pytest.mark.parametrize("kind", ["plain", "tempered", "costs", "partial"])
def test_second_derivatives_of_log_by_finite_differences(form, reduction, kind):
    batch = Batch(B=3, T=4, form=form)
    options = {
        "plain": {}, "tempered": {"temperature": 0.5},
        "costs": {"cost_augmented": True, "cost_scale": "mean"}, "partial": {},
    }[kind]
    if kind == "partial":
        batch.tags[0, 1:3] = -1
    loss, inputs = packed(batch, "log", reduction=reduction, **options)
    assert torch.autograd.gradgradcheck(loss, inputs)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_second_derivatives_of_the_others_are_refused(surrogate):
    batch = Batch()
    scores = batch.scores(requires_grad=True)
    grad, = torch.autograd.grad(
        batch.loss(*scores, surrogate=surrogate), scores[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="double backward needs surrogate='log'"):
        grad.nan_to_num().pow(2).sum().backward()


@pytest.mark.parametrize("form", ["shared", "per edge"])
def test_marginals_are_differentiable(form):
    batch = Batch(B=2, T=4, form=form)

    def marginals(rows, *others):
        emissions = torch.zeros_like(batch.emissions).masked_scatter(batch.mask[:, :, None], rows)
        return chain_marginals(emissions, *others, mask=batch.mask, temperature=0.8)

    _, inputs = packed(batch, "log")
    assert torch.autograd.gradcheck(marginals, inputs)


@pytest.mark.parametrize("policy", POLICIES)
def test_marginals_are_the_gradient_of_the_log_partition(policy):
    batch = Batch(left=True)
    scores = batch.scores(requires_grad=True)
    nodes, edges, log_z = chain_marginals(*scores, mask=batch.mask, device_policy=policy)
    by_nodes, by_edges = torch.autograd.grad(log_z.sum(), scores[:2])
    torch.testing.assert_close(nodes, by_nodes)
    torch.testing.assert_close(edges.sum(0), by_edges)
    torch.testing.assert_close(nodes.sum(2), batch.mask.double())
    layer = ChainLoss(3, device_policy=policy).double()
    probabilities = layer.log_prob(
        batch.emissions.repeat(81, 1, 1)[:, :4].nan_to_num(),
        torch.tensor(list(itertools.product(range(3), repeat=4))).repeat_interleave(5, 0),
    ).reshape(81, 5).exp().sum(0)
    torch.testing.assert_close(probabilities, torch.ones(5, dtype=torch.float64))
    # the layer's own transitions, at a temperature
    layer = ChainLoss(3, temperature=0.5, device_policy=policy).double()
    own = layer.marginals(scores[0], batch.mask)
    expected = chain_marginals(
        scores[0], layer.transitions, layer.start_transitions, layer.end_transitions,
        mask=batch.mask, temperature=0.5)[0]
    torch.testing.assert_close(own, expected)


# -------------------------------------------------------------------------------------- decoding


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", ["shared", "per edge"])
def test_decoding_by_enumeration(form, policy):
    batch = Batch(T=4, form=form, left=True)
    scores = batch.scores()
    best = chain_viterbi(*scores, mask=batch.mask, device_policy=policy)
    many = chain_viterbi(*scores, mask=batch.mask, k=5)
    for b, (first, T) in enumerate(zip(batch.first.tolist(), batch.lengths.tolist())):
        totals = []
        for y in itertools.product(range(batch.R), repeat=T):
            score = 0.0
            for t, label in enumerate(y):
                score += scores[0][b, first + t, label].item()
                score += scores[2][label].item() if t == 0 else 0
                score += scores[3][label].item() if t == T - 1 else 0
                if t:
                    pair = scores[1] if form == "shared" else scores[1][b, first + t - 1]
                    score += pair[y[t - 1], label].item()
            totals.append((score, y))
        totals.sort(reverse=True)
        assert tuple(best.tags[b, batch.mask[b]].tolist()) == totals[0][1]
        assert best.scores[b].item() == pytest.approx(totals[0][0])
        for rank, (score, y) in enumerate(totals[:5]):
            assert tuple(many.tags[b, batch.mask[b], rank].tolist()) == y
            assert many.scores[b, rank].item() == pytest.approx(score)
        assert (many.scores[b, len(totals):] == -INF).all()
    assert (best.tags[~batch.mask] == -1).all() and (many.tags[~batch.mask] == -1).all()
    assert best.lengths.tolist() == batch.lengths.tolist()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bio_transitions(surrogate, policy):
    labels = ["B-x", "I-x", "O"]
    layer = ChainLoss(
        3, surrogate, allowed="bio", labels=labels, device_policy=policy).double()
    emissions = torch.zeros(2, 4, 3, dtype=torch.float64)
    emissions[..., 1] = 10.0
    decoded = layer.decode(emissions).tags.tolist()
    assert decoded == [[0, 1, 1, 1]] * 2
    loss = layer(emissions.requires_grad_(), torch.tensor([[0, 1, 1, 1], [2, 2, 0, 1]]))
    loss.backward()
    # what cannot be has no gradient: I-x first, or after O
    assert not emissions.grad[:, 0, 1].any()
    assert layer.transitions.grad[2, 1] == 0.0
    wrong = torch.tensor([[0, 1, 1, 1], [2, 1, 0, 1]])
    if surrogate != "max_min" and policy == "cpu":
        with pytest.raises(ValueError, match=r"tags\[1, 1\] is 1 after 2: that transition is forb"):
            layer(emissions, wrong)
    else:
        with pytest.raises(ValueError, match="forbidden"):
            layer(emissions, wrong)
    free = ChainLoss(3, surrogate, start_end=False, allowed="bio", labels=labels)
    assert free.decode(emissions.float()).tags.tolist() == [[0, 1, 1, 1]] * 2


def test_allowed_transitions_as_a_matrix():
    allowed = torch.tensor([[True, False], [True, True]])
    layer = ChainLoss(2, allowed=allowed)
    tags = layer.decode(torch.randn(3, 8, 2)).tags
    assert not ((tags[:, :-1] == 0) & (tags[:, 1:] == 1)).any()
    assert layer.state_dict().keys() == ChainLoss(2).state_dict().keys()


# pairs of neighbours that the schemes allow, then first and last labels, for labels of one type
SCHEMES = {
    "bio": ("BIO", "BB BI BO IB II IO OB OO", "BO", "BIO"),
    "bioes": ("BIESO", "BI BE II IE EB ES EO SB SS SO OB OS OO", "BSO", "ESO"),
    "bilou": ("BILUO", "BI BL II IL LB LU LO UB UU UO OB OU OO", "BUO", "LUO"),
}


@pytest.mark.parametrize("how", ["layer", "decode", "flags"])
@pytest.mark.parametrize("start_end", [True, False])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_forbid_pairs_and_ends(scheme, start_end, how):
    tags, pairs, first, last = SCHEMES[scheme]
    R = len(tags)
    labels = [tag if tag == "O" else f"{tag}-x" for tag in tags]
    options = {"allowed": scheme}
    if how == "flags":
        options = {
            "allowed": np.array([[a + b in pairs.split() for b in tags] for a in tags]),
            "allowed_start": [tag in first for tag in tags],
            "allowed_end": torch.tensor([tag in last for tag in tags])}
    layer = ChainLoss(
        R, labels=labels, start_end=start_end, **({} if how == "decode" else options)).double()
    emissions = torch.randn(30, 4, R, dtype=torch.float64)
    lengths = torch.tensor([4, 3, 1] * 10)
    own = [layer.transitions, layer.start_transitions, layer.end_transitions]
    scores = [torch.zeros(R).double() if part is None else part.detach().clone() for part in own]
    for i, j in itertools.product(range(R), repeat=2):
        if tags[i] + tags[j] not in pairs.split():
            scores[0][i, j] = -INF
    scores[1][[tag not in first for tag in tags]] = -INF
    scores[2][[tag not in last for tag in tags]] = -INF
    expected = chain_viterbi(emissions, *scores, lengths=lengths)
    found = layer.decode(emissions, lengths=lengths, **(options if how == "decode" else {}))
    assert torch.equal(found.tags, expected.tags)
    if how != "decode":
        true = chain_viterbi(torch.randn_like(emissions), *scores, lengths=lengths).tags
        loss = layer(emissions, true, lengths=lengths)
        torch.testing.assert_close(loss, chain_loss(emissions, true, *scores, lengths=lengths))
        loss.backward()
        for part, score in zip(own, scores):
            assert part is None or not part.grad[score == -INF].any()


@pytest.mark.parametrize("kind", [ChainLoss, CRF])
def test_constraints_survive_weight_decay(kind):
    torch.manual_seed(0)
    layer = kind(
        3, batch_first=True, allowed_start=[True, False, True], allowed_end=[True, True, False])
    sign = 1 if kind is ChainLoss else -1
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, weight_decay=0.1)
    emissions = torch.randn(4, 5, 3)
    tags = torch.randint(2, (4, 5))
    tags[:, 0] = 2
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = sign * layer(emissions, tags)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(torch.isfinite(part).all() for part in layer.parameters())
    decoded = ChainLoss.decode(layer, torch.randn(50, 5, 3)).tags
    assert (decoded[:, 0] != 1).all() and (decoded[:, -1] != 2).all()
    # the same constraint as a parameter does not survive
    layer = kind(3, batch_first=True)
    optimizer = torch.optim.Adam(layer.parameters(), weight_decay=0.1)
    with torch.no_grad():
        layer.end_transitions[2] = -INF
    layer(emissions, tags).backward()
    optimizer.step()
    with pytest.raises(ValueError, match=r"^end_transitions\[2\] is nan.*weight decay.*allowed_end"):
        layer(emissions, tags)
    with pytest.raises(ValueError, match=r"^end_transitions\[2\] is nan.*weight decay.*allowed_end"):
        layer.decode(emissions)
    # scores that the caller gives are no parameters
    layer.end_transitions = None
    with pytest.raises(ValueError, match=r"^transitions\[0, 0\] is nan: scores are[^.]*\.$"):
        layer(emissions, tags, transitions=torch.full((3, 3), float("nan")))


def test_constraints_of_predictions_alone():
    layer = ChainLoss(3, labels=["B-x", "I-x", "O"])
    emissions = torch.zeros(2, 4, 3)
    emissions[..., 1] = 10.0
    assert layer.decode(emissions).tolist() == [[1] * 4] * 2
    assert layer.decode(emissions, allowed="bio").tolist() == [[0, 1, 1, 1]] * 2
    never = torch.ones(3, 3, dtype=torch.bool)
    never[:, 1] = False
    assert 1 not in sum((row[1:] for row in layer.decode(emissions, allowed=never).tolist()), [])
    with pytest.raises(ValueError, match="allowed='bio' needs labels="):
        ChainLoss(3).decode(emissions, allowed="bio")


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("k", [1, 2])
def test_decoded_lists_have_no_padding(batch_first, k):
    batch = Batch(left=True)
    layer = ChainLoss(3, batch_first=batch_first).double()
    given = [batch.emissions, batch.mask]
    if not batch_first:
        given = [given[0].transpose(0, 1), given[1].T]
    decoded = layer.decode(*given, k=k)
    rows = decoded.tolist() if k == 1 else [row[0] for row in decoded.tolist()]
    assert [len(row) for row in rows] == batch.lengths.tolist()
    assert rows == layer.decode(*given).tolist()
    if k > 1:
        tags = decoded.tags if batch_first else decoded.tags.transpose(0, 1)
        for b, own in enumerate(decoded.tolist()):
            expected = tags[b, batch.mask[b]].T.tolist()
            assert own == expected[: len(own)]
            assert len(own) == (decoded.scores[b] > -INF).sum() == min(k, 3 ** len(own[0]))
    assert layer.decode(torch.zeros(0, 4, 3, dtype=torch.float64)).tolist() == (
        [] if batch_first else [[]] * 4)


def test_certificates_hold():
    batch = Batch(T=8, R=4)
    layer = ChainLoss(4, "max_min", tol=1e-1, reduction="none").double()
    exact = ChainLoss(4, "max_min", tol=1e-10, rtol=0.0, reduction="none").double()
    exact.load_state_dict(layer.state_dict())
    lower, upper = layer.certificate(batch.emissions, batch.tags, batch.mask)
    value = exact(batch.emissions, batch.tags, batch.mask)
    assert (lower <= value + 1e-9).all() and (value <= upper + 1e-9).all()
    assert (upper - lower <= 0.1 + 1e-9).all()
    for rtol in (1e-1, 1e-2):
        rough = ChainLoss(4, "max_min", tol=1e-9, rtol=rtol, reduction="none").double()
        rough.load_state_dict(layer.state_dict())
        lower, upper = rough.certificate(batch.emissions, batch.tags, batch.mask)
        assert torch.equal(lower, rough(batch.emissions, batch.tags, batch.mask))
        assert (lower <= value + 1e-9).all() and (value <= upper + 1e-9).all()
        assert (upper - lower <= rtol * lower + 1e-9).all()
    for surrogate in ("log", "max_margin"):
        layer = ChainLoss(4, surrogate, reduction="none").double()
        lower, upper = layer.certificate(batch.emissions, batch.tags, batch.mask)
        assert torch.equal(lower, upper)
        torch.testing.assert_close(lower, layer(batch.emissions, batch.tags, batch.mask))


# ---------------------------------------------------------------------------------- a network


def test_a_layer_trains():
    torch.manual_seed(0)
    x = torch.randn(20, 6, 5)
    y = x[..., :3].argmax(-1)
    for surrogate in SURROGATES:
        layer, linear = ChainLoss(3, surrogate), torch.nn.Linear(5, 3)
        optimizer = torch.optim.Adam([*layer.parameters(), *linear.parameters()], lr=0.1)
        before = layer(linear(x), y).item()
        for _ in range(40):
            optimizer.zero_grad()
            loss = layer(linear(x), y)
            loss.backward()
            optimizer.step()
        assert loss.item() < 0.5 * before
        assert (layer.decode(linear(x)).tags == y).float().mean() > 0.9


def test_copies_and_state():
    layer = ChainLoss(3, "max_margin", allowed="bio", labels=["B-x", "I-x", "O"])
    emissions = torch.randn(2, 4, 3)
    tags = torch.tensor([[0, 1, 2, 0], [2, 2, 0, 1]])
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(emissions, tags), layer(emissions, tags))
    assert sorted(layer.state_dict()) == ["end_transitions", "start_transitions", "transitions"]
    assert repr(layer) == "ChainLoss(3, 'max_margin', reduction='mean')"
    half = copy.deepcopy(layer).to(torch.bfloat16)
    loss = half(emissions.to(torch.bfloat16), tags)
    assert loss.dtype == torch.float32
    loss.backward()
    assert half.transitions.grad.dtype == torch.bfloat16


def test_half_precision_is_computed_in_single():
    batch = Batch(dtype=torch.float32)
    for dtype in (torch.float16, torch.bfloat16):
        emissions = batch.emissions.to(dtype).requires_grad_()
        _, *others = batch.scores()
        loss = batch.loss(emissions, *others)
        assert loss.dtype == torch.float32
        loss.backward()
        assert emissions.grad.dtype == dtype
        expected = batch.loss(emissions.detach().float(), *others)
        assert torch.equal(loss.detach(), expected)


def test_autocast():
    layer, linear = ChainLoss(3), torch.nn.Linear(4, 3)
    x, tags = torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.long)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        emissions = linear(x)
        loss = layer(emissions, tags)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(emissions, tags)
    assert emissions.dtype == torch.bfloat16 and loss.dtype == torch.float32
    assert torch.equal(loss, layer(emissions.float(), tags))
    torch.testing.assert_close(compiled, loss)
    loss.backward()
    assert linear.weight.grad.dtype == torch.float32


def test_threads_change_nothing():
    layer = ChainLoss(20)
    emissions = torch.randn(200, 40, 20, requires_grad=True)
    tags = torch.randint(20, (200, 40))
    n, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(torch.autograd.grad(
                layer(emissions, tags), [emissions, *layer.parameters()]))
    finally:
        torch.set_num_threads(n)
    assert all(torch.equal(a, b) for a, b in zip(*found))


# ------------------------------------------------------------------------- pytorch-crf's names


def test_crf_against_pytorch_crf():
    torchcrf = pytest.importorskip("torchcrf", reason="pytorch-crf is not installed.")
    for batch_first in (False, True):
        ours = CRF(5, batch_first=batch_first).double()
        theirs = torchcrf.CRF(5, batch_first=batch_first).double()
        ours.load_state_dict(theirs.state_dict())
        theirs.load_state_dict(ours.state_dict())
        shape = (4, 7) if batch_first else (7, 4)
        emissions = torch.randn(*shape, 5, dtype=torch.float64, requires_grad=True)
        tags = torch.randint(5, shape)
        mask = torch.arange(7) < torch.tensor([7, 3, 1, 5])[:, None]
        mask = mask if batch_first else mask.T
        for reduction in ("sum", "mean", "token_mean", "none"):
            one = ours(emissions, tags, mask, reduction=reduction)
            two = theirs(emissions, tags, mask, reduction=reduction)
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
        grads = [
            torch.autograd.grad(
                model(emissions, tags, mask),
                [emissions, model.transitions, model.start_transitions, model.end_transitions])
            for model in (ours, theirs)]
        for one, two in zip(*grads):
            torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
        assert ours.decode(emissions, mask) == theirs.decode(emissions, mask)
        assert ours.decode(emissions) == theirs.decode(emissions)
        assert ours.num_tags == 5 and repr(ours) == repr(theirs)
    drawn = []
    for crf in (CRF, torchcrf.CRF):
        torch.manual_seed(0)
        drawn.append(crf(4).state_dict())
    assert all(torch.equal(drawn[0][name], drawn[1][name]) for name in drawn[1])


def test_crf_has_the_options_of_the_layer():
    batch = Batch(dtype=torch.float32)
    labels = ["B-x", "I-x", "O"]
    crf, layer = CRF(3, labels=labels, batch_first=True), ChainLoss(3, labels=labels)
    layer.load_state_dict(crf.state_dict())
    emissions, tags, lengths = batch.emissions, batch.tags.clone(), batch.lengths
    pair = torch.randn(3, 3)
    for options in ({"k": 2}, {"allowed": "bio"}, {"allowed_end": [True, False, False]},
                    {"transitions": pair, "allowed_start": [False, True, True], "k": 3}):
        assert crf.decode(emissions, lengths=lengths, **options) == (
            layer.decode(emissions, lengths=lengths, **options).tolist())
    # a label for each sequence, in the order of the scores
    assert [len(own) for own in crf.decode(emissions, batch.mask, k=2)] == [
        2 if n else 1 for n in lengths.tolist()]
    layer.reduction = "none"
    allowed = torch.ones(emissions.shape, dtype=torch.bool)
    for options in ({}, {"transitions": pair}, {"allowed_labels": allowed}):
        torch.testing.assert_close(
            crf(emissions, tags, reduction="none", lengths=lengths, **options),
            -layer(emissions, tags, lengths=lengths, **options))


def test_crf_takes_no_parameter_of_another_meaning():
    with pytest.raises(TypeError, match="CRF has no parameter 'reduction'"):
        CRF(3, reduction="mean")


# ------------------------------------------------------------------------------------ operators


@pytest.mark.parametrize("form", ["shared", "per edge"])
def test_operators(form):
    batch = Batch(B=3, T=4, form=form)
    scores = batch.scores(requires_grad=True)
    scores[0] = scores[0].detach().nan_to_num().requires_grad_()
    bounds = torch.stack([batch.first, batch.lengths])
    tests = ("test_schema", "test_autograd_registration", "test_faketensor",
             "test_aot_dispatch_dynamic")
    cost = 1 - torch.eye(3, dtype=torch.float64)
    for surrogate in SURROGATES:
        torch.library.opcheck(
            torch.ops.fastm4n.chain_loss.default,
            (*scores, batch.tags, bounds, None, cost if surrogate != "log" else None, surrogate,
             1.0, "sum", 1e-6, "auto", True, 1e-3), test_utils=tests)
    detached = [part.detach() for part in scores]
    torch.library.opcheck(
        torch.ops.fastm4n.chain_marginals.default, (*scores, bounds, 1.0, "auto"),
        test_utils=tests)
    _, nodes, edges = ops._marginals_op(*detached, bounds, 1.0, "auto")
    for directions in ((nodes, edges, None, None), detached):
        torch.library.opcheck(
            torch.ops.fastm4n.chain_tangent.default,
            (*detached, batch.tags, bounds, None, None, "sum", 1.0, *directions),
            test_utils=tests)
    torch.library.opcheck(
        torch.ops.fastm4n.chain_viterbi.default, (*detached, bounds, "auto"), test_utils=tests)
    torch.library.opcheck(
        torch.ops.fastm4n.chain_kbest.default, (*detached, bounds, 2), test_utils=tests)
    torch.library.opcheck(
        torch.ops.fastm4n.chain_bounds.default, (batch.mask, None, 3, 4), test_utils=tests)
    torch.library.opcheck(
        torch.ops.fastm4n.chain_bounds.default, (None, batch.lengths, 3, 4), test_utils=tests)


@pytest.mark.parametrize("reduction", ["mean", "token_mean", "none"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_compiled_layers_say_the_same(surrogate, reduction):
    torch._dynamo.reset()
    batch = Batch(dtype=torch.float32)
    layer = ChainLoss(3, surrogate, reduction=reduction)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    emissions = batch.emissions.nan_to_num()
    found = []
    for module in (layer, compiled):
        own = emissions.clone().requires_grad_()
        loss = module(own, batch.tags, batch.mask)
        found.append([loss, *torch.autograd.grad(loss.sum(), [own, *layer.parameters()])])
    for one, two in zip(*found):
        torch.testing.assert_close(one, two)


def test_exported_decoding_says_the_same():
    torch.manual_seed(0)

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.crf = torch.nn.Linear(4, 3), ChainLoss(3)

        def forward(self, x, mask):
            return self.crf.decode(self.linear(x), mask).tags

    tagger, x = Tagger(), torch.randn(2, 5, 4)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    program = torch.export.export(tagger, (x, mask))
    assert torch.equal(program.module()(x, mask), tagger(x, mask))
    targets = [
        str(node.target) for module in program.graph_module.modules()
        for node in getattr(module, "graph", torch.fx.Graph()).nodes]
    assert any("chain_viterbi" in target for target in targets)


# ------------------------------------------------------------------------------------- bad input


def refuses(error, message, change=None, layer=None, **more):
    given = {
        "emissions": torch.zeros(3, 4, 2), "tags": torch.zeros(3, 4, dtype=torch.long), **more}
    if change is not None:
        change(given)
    layer = ChainLoss(2) if layer is None else layer
    with pytest.raises(error, match=message):
        layer(given.pop("emissions"), given.pop("tags"), **given)


def put(name, place, value):
    return lambda given: given[name].__setitem__(place, value)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bad_values_are_told_by_place(surrogate, policy):
    layer = ChainLoss(2, surrogate, device_policy=policy)
    for name, place, value, message in (
        ("emissions", (1, 2, 0), float("nan"), r"emissions\[1, 2, 0\] is nan"),
        ("emissions", (2, 0, 1), INF, r"emissions\[2, 0, 1\] is inf"),
        ("tags", (1, 3), 2, r"tags\[1, 3\] is 2: labels are 0 \.\.\. 1"),
        ("tags", (1, 3), -100, r"tags\[1, 3\] is -100.*Leave positions out by mask or lengths, or by the ignore"),
    ):
        refuses(ValueError, message, put(name, place, value), layer)
    if surrogate != "log":
        refuses(ValueError, r"tags\[0, 0\] is -1.*surrogate='log'", put("tags", (0, 0), -1), layer)
    pair = torch.zeros(3, 3, 2, 2)
    pair[1, 2, 0, 1] = float("nan")
    refuses(ValueError, r"transitions\[1, 2, 0, 1\] is nan", layer=layer, transitions=pair)
    with torch.no_grad():
        layer.transitions[1, 0] = float("nan")
    refuses(ValueError, r"transitions\[1, 0\] is nan", layer=layer)


def test_masks_and_lengths_that_are_wrong():
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1, 2] = False
    refuses(ValueError, r"mask\[1\] has a hole at position 2", mask=mask,
            transitions=torch.zeros(3, 3, 2, 2))
    refuses(ValueError, r"mask must have shape \(3, 4\), got \(3, 5\)",
            mask=torch.ones(3, 5, dtype=torch.bool))
    refuses(TypeError, "mask must be of dtype torch.bool, got torch.float32", mask=torch.ones(3, 4))
    refuses(ValueError, r"lengths\[2\] is 5, but emissions have 4 positions",
            lengths=torch.tensor([4, 1, 5]))
    refuses(ValueError, r"lengths\[0\] is -1", lengths=torch.tensor([-1, 1, 5]))
    refuses(ValueError, "lengths must be 3 integers", lengths=torch.tensor([1, 2]))
    refuses(ValueError, "lengths must be 3 integers", lengths=torch.ones(3))
    refuses(ValueError, "pass either mask or lengths", lengths=torch.tensor([4, 1, 2]),
            mask=torch.ones(3, 4, dtype=torch.bool))


def test_axes_that_are_wrong():
    for layer, axis in ((ChainLoss(2), "sequences"), (ChainLoss(2, batch_first=False), "positions")):
        flag = layer.batch_first
        swapped = (
            rf"must have shape \(3, 4\), got \(4, 3\): axes 0 and 1 are the other way around in "
            rf"emissions. With batch_first={flag} axis 0 is that of {axis}")
        refuses(ValueError, "tags " + swapped, layer=layer, tags=torch.zeros(4, 3).long())
        refuses(ValueError, "mask " + swapped, layer=layer, mask=torch.ones(4, 3).bool())
        refuses(ValueError, "tags " + swapped, tags=torch.zeros(4, 3).long(),
                layer=type(layer)(2, batch_first=flag, ignore_index=-100))
    refuses(ValueError, r"allowed_labels must have shape \(3, 4, 2\), got \(4, 3, 2\): axes 0 and 1",
            allowed_labels=torch.ones(4, 3, 2).bool())
    refuses(ValueError, r"tags must have .* got \(3, 5\): axis 1, of positions, is of length 4",
            tags=torch.zeros(3, 5).long())
    refuses(ValueError, r"mask must have .* got \(2, 4\): axis 0, of sequences, is of length 3",
            mask=torch.ones(2, 4).bool())
    refuses(ValueError, r"lengths must be 3 integers.*one for each position: with batch_first=True "
            "axis 0 of emissions", lengths=torch.ones(4).long())
    refuses(ValueError, r"lengths must be 4 integers.*with batch_first=False axis 1 of emissions",
            layer=ChainLoss(2, batch_first=False), lengths=torch.ones(3).long())
    refuses(ValueError, r"emissions have 4 labels in their last axis, the layer has 2. Axis 1 has 2"
            r".*\.movedim\(1, 2\)", emissions=torch.zeros(3, 2, 4))
    layer = ChainLoss(2, batch_first=False)
    refuses(ValueError, r"tags\[3, 1\] is 2", put("tags", (3, 1), 2), layer,
            emissions=torch.zeros(5, 4, 2), tags=torch.zeros(5, 4).long())


def test_shapes_and_types_that_are_wrong():
    refuses(ValueError, r"emissions must have 3 axes, got shape \(3, 4\)",
            emissions=torch.zeros(3, 4))
    refuses(ValueError, "transitions must have shape.*emissions have 5 labels|the layer has 2",
            emissions=torch.zeros(3, 4, 5))
    refuses(TypeError, "emissions must be of a floating dtype, got torch.int64",
            emissions=torch.zeros(3, 4, 2, dtype=torch.long))
    refuses(TypeError, "emissions must be a torch.Tensor, got ndarray", emissions=np.zeros((3, 4, 2)))
    refuses(ValueError, r"tags must have shape \(3, 4\), got \(4, 3\)",
            tags=torch.zeros(4, 3, dtype=torch.long))
    refuses(TypeError, "tags must be of an integer dtype, got torch.float32", tags=torch.zeros(3, 4))
    refuses(ValueError, r"transitions must have shape \(2, 2\) or \(3, 3, 2, 2\)",
            transitions=torch.zeros(3, 4, 2, 2))
    refuses(ValueError, "tags is on meta, but the scores are on cpu",
            tags=torch.zeros(3, 4, dtype=torch.long, device="meta"))
    refuses(ValueError, "allowed_labels needs surrogate='log'",
            layer=ChainLoss(2, "max_margin"), allowed_labels=torch.ones(3, 4, 2, dtype=torch.bool))
    refuses(ValueError, r"allowed_labels must have shape \(3, 4, 2\)",
            allowed_labels=torch.ones(3, 4, dtype=torch.bool))
    none = torch.ones(3, 4, 2, dtype=torch.bool)
    none[1, 1] = False
    refuses(ValueError, r"tags\[1\] allow no labelling", allowed_labels=none)


@pytest.mark.parametrize("parameters, message", [
    ({"n_labels": 0}, "n_labels must be an integer > 0"),
    ({"surrogate": "hinge"}, "surrogate must be one of"),
    ({"reduction": "avg"}, "reduction must be one of"),
    ({"temperature": 0}, "temperature must be a finite number > 0"),
    ({"surrogate": "max_min", "temperature": 2.0}, "temperature need surrogate='log'"),
    ({"cost_scale": "max"}, "cost_scale must be one of"),
    ({"cost": torch.zeros(2, 2)}, r"cost must have shape \(3, 3\)"),
    ({"cost": torch.ones(3, 3)}, r"cost\[0, 0\] is 1.0: correct labels cost nothing"),
    ({"allowed": "biou"}, "allowed must be one of"),
    ({"allowed": "bio"}, "allowed='bio' needs labels="),
    ({"allowed": "bilou", "labels": ["B-x", "I-x", "E-x"]}, r"labels\[2\] is 'E-x': .*allowed='bilou'"),
    ({"allowed_start": [True, True]}, r"allowed_start must be a boolean array of shape \(3,\), got"),
    ({"allowed_end": [1, 0, 1]}, r"allowed_end must be a boolean array of shape \(3,\), got.* of int"),
    ({"allowed_end": [False] * 3}, "allowed_end leaves no label"),
    ({"allowed": "bio", "labels": ["B-x", "O"]}, "labels must be 3 different names"),
    ({"allowed": torch.ones(2, 2, dtype=torch.bool)}, "allowed must be one of 'bio', .* or a boolean array"),
    ({"allowed": torch.ones(3, 3, dtype=torch.bool, device="meta")}, "allowed is on the meta device"),
    ({"batch_first": 1}, "batch_first must be True or False"),
    ({"device_policy": "gpu"}, "device_policy must be one of"),
    ({"tol": 0.0}, "tol must be a finite number > 0"),
])
def test_parameters_that_are_wrong(parameters, message):
    with pytest.raises(ValueError, match=message):
        ChainLoss(**{"n_labels": 3, **parameters})


def test_what_needs_a_distribution():
    layer = ChainLoss(2, "max_margin")
    with pytest.raises(ValueError, match="marginals needs surrogate='log'"):
        layer.marginals(torch.zeros(1, 2, 2))
    with pytest.raises(ValueError, match="log_prob needs surrogate='log'"):
        layer.log_prob(torch.zeros(1, 2, 2), torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="k must be an integer > 0"):
        layer.decode(torch.zeros(1, 2, 2), k=0)
