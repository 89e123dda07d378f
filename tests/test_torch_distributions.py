"""Distributions over labellings of chains, and soft labels, against enumeration."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: the layers of fastm4n.torch are not tested.")

from torch.distributions import kl_divergence
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import one_hot

from fastm4n.torch import CRF, ChainDistribution, ChainLoss, chain_loss, chain_marginals

POLICIES = ("cpu", "native")
FORMS = ("shared", "per edge")
INF = float("inf")
F64 = torch.float64


def labellings(R, T):
    return torch.tensor(list(itertools.product(range(R), repeat=T))).reshape(R**T, T)


class Case:
    """Scores of sequences of several lengths, also 0 and 1, with padding of NaN."""

    def __init__(self, form="shared", R=3, T=4, left=False, dtype=F64, seed=0, scale=1.0,
                 temperature=1.0):
        g = torch.Generator().manual_seed(seed)
        self.lengths = torch.tensor([T, 0, 2, 1, T - 1])
        B = len(self.lengths)
        self.first = T - self.lengths if left else torch.zeros(B, dtype=torch.long)
        t = torch.arange(T)
        self.mask = (t >= self.first[:, None]) & (t < (self.first + self.lengths)[:, None])
        shape = (R, R) if form == "shared" else (B, T - 1, R, R)
        self.emissions = scale * torch.randn(B, T, R, generator=g, dtype=F64)
        self.transitions = scale * torch.randn(shape, generator=g, dtype=F64)
        self.start, self.end = scale * torch.randn(2, R, generator=g, dtype=F64)
        self.emissions[~self.mask] = float("nan")
        if form != "shared":
            self.transitions[~(self.mask[:, 1:] & self.mask[:, :-1])] = float("nan")
        self.temperature, self.R, self.T, self.B = temperature, R, T, B
        self.emissions, self.transitions, self.start, self.end = (
            part.to(dtype) for part in self.scores())

    def scores(self, requires_grad=False):
        parts = self.emissions, self.transitions, self.start, self.end
        return [part.clone().requires_grad_(requires_grad) for part in parts]

    def distribution(self, *scores, **options):
        return ChainDistribution(
            *(scores or self.scores()), mask=self.mask, temperature=self.temperature, **options)

    def enumerated(self, b):
        """All labellings of a sequence and their probabilities, in float64."""
        f, T = int(self.first[b]), int(self.lengths[b])
        y = labellings(self.R, T)
        total = torch.zeros(len(y), dtype=F64)
        for t in range(T):
            total += self.emissions[b, f + t].double()[y[:, t]]
            if t:
                pair = self.transitions if self.transitions.dim() == 2 else (
                    self.transitions[b, f + t - 1])
                total += pair.double()[y[:, t - 1], y[:, t]]
        if T:
            total += self.start.double()[y[:, 0]] + self.end.double()[y[:, -1]]
        return y, total / self.temperature

    def log_probs(self, b):
        y, scores = self.enumerated(b)
        return y, scores.log_softmax(0)

    def padded(self, b, y):
        """Labellings (..., length) of sequence b in batches, with junk elsewhere."""
        found = torch.full((len(y), self.B, self.T), 99)
        f = int(self.first[b])
        found[:, b, f : f + y.shape[1]] = y
        found[:, torch.arange(self.B) != b] = 0
        return found


def entropy_of(log_p):
    return -(log_p.exp() * torch.where(log_p > -INF, log_p, 0.0)).sum()


# ------------------------------------------------------------------------------- values


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_values_are_those_of_enumeration(form, left, policy, temperature):
    case = Case(form, left=left, temperature=temperature)
    p = case.distribution(device_policy=policy)
    nodes, edges, entropy = p.marginals, p.edge_marginals, p.entropy()
    assert edges.shape == (case.B, case.T - 1, case.R, case.R)
    assert not nodes[~case.mask].any()
    for b, T in enumerate(case.lengths.tolist()):
        y, scores = case.enumerated(b)
        _, log_p = case.log_probs(b)
        found = p.log_prob(case.padded(b, y))[:, b]
        torch.testing.assert_close(found, log_p)
        assert found.exp().sum().item() == pytest.approx(1.0, abs=1e-12)
        assert p.log_partition[b].item() == pytest.approx(scores.logsumexp(0).item(), abs=1e-12)
        assert entropy[b].item() == pytest.approx(entropy_of(log_p).item(), abs=1e-12)
        f = int(case.first[b])
        assert p.mode[b, f : f + T].tolist() == y[log_p.argmax()].tolist()
        assert (p.mode[b][~case.mask[b]] == -1).all()
        for t in range(T):
            expected = (one_hot(y[:, t], case.R) * log_p.exp()[:, None]).sum(0)
            torch.testing.assert_close(nodes[b, f + t], expected)
            if t:
                code = one_hot(y[:, t - 1] * case.R + y[:, t], case.R**2)
                expected = (code * log_p.exp()[:, None]).sum(0).reshape(case.R, case.R)
                torch.testing.assert_close(edges[b, f + t - 1], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_half_and_single_precision(dtype):
    case, other = Case(dtype=dtype), Case(dtype=dtype, seed=1)
    p, q = case.distribution(), other.distribution()
    for found in (p.entropy(), p.log_partition, kl_divergence(p, q), p.cross_entropy(q),
                  p.log_prob(p.mode)):
        assert found.dtype == torch.float32
    for b in range(case.B):
        (_, own), (_, its) = case.log_probs(b), other.log_probs(b)
        assert p.entropy()[b].item() == pytest.approx(entropy_of(own).item(), abs=1e-6)
        assert kl_divergence(p, q)[b].item() == pytest.approx(
            (own.exp() * (own - its)).sum().item(), abs=1e-6)
        assert p.log_prob(p.mode)[b].item() == pytest.approx(own.max().item(), abs=1e-6)
    scores = case.scores(requires_grad=True)
    case.distribution(*scores).entropy().sum().backward()
    assert all(part.grad.dtype == dtype for part in scores)


def test_a_divergence_of_single_precision_has_no_error_of_its_entropies():
    case = Case(dtype=torch.float32, T=6)
    scores = case.scores()
    p, q = case.distribution(*scores), case.distribution(scores[0] * (1 + 1e-3), *scores[1:])
    exact = [
        ChainDistribution(*(part.double() for part in parts), mask=case.mask)
        for parts in (scores, (scores[0] * (1 + 1e-3), *scores[1:]))]
    expected = kl_divergence(*exact)
    assert 0 < expected[0] < 1e-5
    torch.testing.assert_close(kl_divergence(p, q).double(), expected, rtol=1e-6, atol=1e-14)
    assert kl_divergence(p, p).tolist() == [0.0] * case.B


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("its_form", FORMS)
def test_divergences_are_those_of_enumeration(form, its_form, policy):
    case, other = Case(form), Case(its_form, seed=1, temperature=2.0)
    p = case.distribution(device_policy=policy)
    q = other.distribution(device_policy=policy)
    for b in range(case.B):
        (_, own), (_, its) = case.log_probs(b), other.log_probs(b)
        divergence = (own.exp() * (own - its)).sum().item()
        assert kl_divergence(p, q)[b].item() == pytest.approx(divergence, abs=1e-12)
        assert p.cross_entropy(q)[b].item() == pytest.approx(
            divergence + entropy_of(own).item(), abs=1e-12)


def test_what_the_second_forbids_makes_divergences_infinite():
    base = torch.zeros(3, 2, 2, dtype=F64), torch.zeros(2, 2, dtype=F64)
    p = ChainDistribution(*base)
    for part, index in ((0, (1, 1, 0)), (1, (0, 1))):
        scores = [one.clone() for one in base]
        scores[part][index] = -INF
        q = ChainDistribution(*scores)
        expected = [index[0] == b or part == 1 for b in range(3)]
        for found in (kl_divergence(p, q), p.cross_entropy(q)):
            assert found.isinf().tolist() == expected
            assert not found.isnan().any()
        # what is forbidden in both has no part in it
        assert kl_divergence(q, q).abs().max() < 1e-15
        assert kl_divergence(q, p).isfinite().all()
    end = torch.tensor([0.0, -INF], dtype=F64)
    assert kl_divergence(p, ChainDistribution(*base, end=end)).isinf().all()


@pytest.mark.parametrize("form", FORMS)
def test_forbidden_labels_and_their_gradients(form):
    case = Case(form, T=4)
    case.emissions[0, 1, 0] = case.start[1] = -INF
    case.transitions[(..., 2, 2)] = -INF
    scores = case.scores(requires_grad=True)
    p = case.distribution(*scores)
    entropy = p.entropy()
    for b in range(case.B):
        y, log_p = case.log_probs(b)
        assert entropy[b].item() == pytest.approx(entropy_of(log_p).item(), abs=1e-12)
        torch.testing.assert_close(p.log_prob(case.padded(b, y))[:, b], log_p)
    found = torch.autograd.grad(entropy.sum(), scores)
    # what is forbidden stays so: a finite difference of the others
    inside = torch.where(case.mask[..., None], case.emissions, 0.0)
    direction = torch.where(inside > -INF, torch.ones_like(inside).cumsum(1), 0.0)
    step = 1e-6
    moved = [
        case.distribution(case.emissions + sign * step * direction, *scores[1:]).entropy().sum()
        for sign in (1, -1)]
    slope = (moved[0] - moved[1]).item() / (2 * step)
    assert (found[0] * direction).sum().item() == pytest.approx(slope, abs=1e-7)
    for part in found:
        assert part.isfinite().all()
    assert found[0][0, 1, 0] == 0 and found[2][1] == 0
    loss = kl_divergence(p, case.distribution(*scores)).sum() + p.cross_entropy(p).sum()
    for part in torch.autograd.grad(loss, scores):
        assert part.isfinite().all()


def test_large_scores_lose_no_digits():
    case = Case()
    plain = case.distribution()
    far = [case.emissions.nan_to_num() + 2.0**40, case.transitions - 2.0**40]
    p = case.distribution(*far, case.start, case.end)
    torch.testing.assert_close(p.entropy(), plain.entropy(), rtol=0, atol=1e-3)
    same = torch.full((2, 50, 3), 1e30, dtype=F64)
    p = ChainDistribution(same, torch.full((3, 3), -1e30, dtype=F64))
    torch.testing.assert_close(p.entropy(), torch.full((2,), 50 * np.log(3), dtype=F64))
    torch.testing.assert_close(
        p.log_prob(torch.zeros(2, 50, dtype=torch.long)),
        torch.full((2,), -50 * np.log(3), dtype=F64))
    assert kl_divergence(p, ChainDistribution(same * 0, torch.zeros(3, 3, dtype=F64))).max() < 1e-12
    masked = case.emissions.clone()
    masked[0, :, 2] = -1e30
    barred = masked.masked_fill(masked == -1e30, -INF)
    torch.testing.assert_close(
        case.distribution(masked, *case.scores()[1:]).entropy(),
        case.distribution(barred, *case.scores()[1:]).entropy())


# -------------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("form", FORMS)
def test_derivatives(form):
    case, other = Case(form, T=3, temperature=0.7), Case(form, T=3, seed=1)
    mine, its = case.scores(), other.scores()
    inputs = [
        part.nan_to_num().requires_grad_() for part in (mine[0], mine[1], mine[2], its[0], its[1])]

    def both(emissions, transitions, start, its_emissions, its_transitions):
        return (
            case.distribution(emissions, transitions, start, case.end),
            other.distribution(its_emissions, its_transitions, other.start, other.end))

    tags = case.padded(0, labellings(3, 3)[:5])
    checks = {
        "entropy": lambda *x: both(*x)[0].entropy(),
        "kl": lambda *x: kl_divergence(*both(*x)),
        "cross": lambda *x: (lambda p, q: p.cross_entropy(q))(*both(*x)),
        "edges": lambda *x: both(*x)[0].edge_marginals,
        "log_prob": lambda *x: both(*x)[0].log_prob(tags)[:, 0],
        "log_partition": lambda *x: both(*x)[0].log_partition,
    }
    for function in checks.values():
        assert torch.autograd.gradcheck(function, inputs)
    for name in ("log_prob", "log_partition"):
        assert torch.autograd.gradgradcheck(checks[name], inputs)
    assert torch.autograd.gradgradcheck(
        lambda *x: case.distribution().cross_entropy(both(*inputs[:3], *x)[1]), inputs[3:])
    for name in ("entropy", "kl", "edges"):
        slope, = torch.autograd.grad(
            checks[name](*inputs).sum(), inputs[0], create_graph=True)
        with pytest.raises(RuntimeError, match="nor second ones of marginals and entropies"):
            torch.autograd.grad(slope.sum(), inputs[0])


def test_the_first_derivative_of_log_prob_is_that_of_the_loss():
    case = Case()
    layer = ChainLoss(case.R, temperature=0.7, reduction="none").double()
    tags = torch.randint(case.R, (case.B, case.T), generator=torch.Generator().manual_seed(1))
    emissions = case.emissions.requires_grad_()
    p = layer.distribution(emissions, case.mask)
    ours = p.log_prob(tags)
    torch.testing.assert_close(ours, layer.log_prob(emissions, tags, case.mask))
    torch.testing.assert_close(ours, -layer(emissions, tags, case.mask) / 0.7)
    inputs = emissions, *layer.parameters()
    for one, two in zip(
            torch.autograd.grad(ours.sum(), inputs),
            torch.autograd.grad(layer.log_prob(emissions, tags, case.mask).sum(), inputs)):
        torch.testing.assert_close(one, two)


# ------------------------------------------------------------------------------ samples


def drawn(scores, uniforms, **options):
    """Samples at given uniforms (n, B, T), by the operator."""
    p = ChainDistribution(*scores, **options)
    *parts, bounds = p._batch
    return torch.ops.fastm4n.chain_sample(*parts, torch.as_tensor(bounds), uniforms, p.temperature)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("scale", [1.0, 400.0])
@pytest.mark.parametrize("form", FORMS)
def test_samples_invert_distribution_functions(form, scale, left):
    # scores of 400 take the recursions in log space
    case = Case(form, left=left, scale=scale, temperature=0.8 * scale)
    n = 200
    uniforms = torch.rand(n, case.B, case.T, generator=torch.Generator().manual_seed(2), dtype=F64)
    tags = drawn(case.scores(), uniforms, mask=case.mask, temperature=case.temperature)
    if scale > 1:
        sharp = drawn(case.scores(), uniforms, mask=case.mask)
        assert (sharp[0] == case.distribution(*case.scores()).mode)[case.lengths == 1].all()
    assert (tags[:, ~case.mask] == -1).all()
    for b, T in enumerate(case.lengths.tolist()):
        y, log_p = case.log_probs(b)
        weights, f = log_p.exp(), int(case.first[b])
        for s in range(n):
            chosen = torch.ones(len(y), dtype=torch.bool)
            for t in range(T):
                at = torch.stack([weights[chosen & (y[:, t] == j)].sum() for j in range(case.R)])
                cumulative = (at / at.sum()).cumsum(0)
                u = uniforms[s, b, f + t]
                if (cumulative - u).abs().min() < 1e-12:
                    break
                label = int((cumulative > u).nonzero()[0])
                assert tags[s, b, f + t] == label
                chosen &= y[:, t] == label


@pytest.mark.parametrize("spread", [1.0, 500.0])
def test_sharp_samples_in_log_space(spread):
    """Scores far apart at one temperature: two labels of equal scores and others out of reach."""
    emissions = torch.full((1, 60, 4), -spread, dtype=torch.float32)
    emissions[..., 1] = emissions[..., 3] = 2 * spread
    transitions = -spread * (1.0 - torch.eye(4))
    p = ChainDistribution(emissions, transitions)
    tags = p.sample((4000,), generator=torch.Generator().manual_seed(3))[:, 0]
    if spread > 1:
        # 60 positions of one label
        assert (tags == tags[:, :1]).all()
        assert set(tags[:, 0].tolist()) == {1, 3}
    share = (tags[:, -1] == 1).double().mean().item()
    assert abs(share - p.marginals[0, -1, 1].item()) < 4 * 0.5 / 4000**0.5


def test_frequencies_are_probabilities():
    case, n = Case(T=3, seed=5), 20000
    p = case.distribution()
    tags = p.sample((n,), generator=torch.Generator().manual_seed(0))
    assert tags.shape == (n, case.B, case.T)
    for b, T in enumerate(case.lengths.tolist()):
        y, log_p = case.log_probs(b)
        code = (tags[:, b, :T] * case.R ** torch.arange(T - 1, -1, -1)).sum(1)
        counts = torch.bincount(code, minlength=len(y))
        expected = n * log_p.exp()
        # chi-square: mean of its degrees of freedom, variance of twice as many
        free = len(y) - 1
        statistic = ((counts - expected) ** 2 / expected).sum().item()
        assert statistic <= free + 4 * (2 * free) ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_forbidden_labels_are_never_drawn(dtype):
    g = torch.Generator().manual_seed(0)
    emissions = torch.randn(4, 1000, 5, generator=g, dtype=dtype)
    emissions[:, ::3, 1] = -INF
    transitions = torch.randn(5, 5, generator=g, dtype=dtype)
    transitions[torch.rand(5, 5, generator=g) < 0.4] = -INF
    transitions.fill_diagonal_(0.0)
    start = torch.tensor([0.0, 0.0, -INF, 0.0, 0.0], dtype=dtype)
    p = ChainDistribution(emissions, transitions, start)
    tags = p.sample((20,), generator=g)
    assert p.log_prob(tags).isfinite().all()
    assert not (tags[..., ::3] == 1).any() and not (tags[..., 0] == 2).any()
    # at the ends of what uniforms may be, too
    for value in (0.0, 1.0 - 2.0**-53, 1.0):
        tags = drawn((emissions, transitions, start), torch.full((1, 4, 1000), value, dtype=F64))
        assert p.log_prob(tags).isfinite().all()


def test_labels_of_tiny_probabilities_are_not_drawn_at_zero():
    emissions = torch.zeros(1, 3, 2, dtype=F64)
    emissions[..., 0] = -200.0
    tags = drawn((emissions, torch.zeros(2, 2, dtype=F64)), torch.zeros(1, 1, 3, dtype=F64))
    assert tags.tolist() == [[[1, 1, 1]]]


def test_samples_follow_their_generator():
    case = Case()
    p = case.distribution()
    one, two, other = (
        p.sample((3, 2), generator=torch.Generator().manual_seed(seed)) for seed in (7, 7, 8))
    assert one.shape == (3, 2, case.B, case.T) and one.dtype == torch.int64
    assert torch.equal(one, two) and not torch.equal(one, other)
    torch.manual_seed(7)
    assert torch.equal(p.sample((3, 2)), one)
    assert p.sample().shape == (case.B, case.T)
    assert p.sample((0,)).shape == (0, case.B, case.T)


def test_samples_do_not_depend_on_threads():
    g = torch.Generator().manual_seed(0)
    p = ChainDistribution(torch.randn(40, 200, 30, generator=g), torch.randn(30, 30, generator=g))
    threads, found = torch.get_num_threads(), []
    try:
        for n in (1, 3):
            torch.set_num_threads(n)
            found.append(p.sample((2,), generator=torch.Generator().manual_seed(1)))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_empty_batches_and_sequences():
    for shape in ((0, 4, 3), (2, 0, 3)):
        p = ChainDistribution(torch.zeros(shape), torch.zeros(3, 3))
        assert p.sample((2,)).shape == (2, *shape[:2])
        assert p.entropy().tolist() == [0.0] * shape[0]
        assert p.log_prob(p.mode).tolist() == [0.0] * shape[0]
        assert kl_divergence(p, p).tolist() == [0.0] * shape[0]
        assert p.edge_marginals.shape == (shape[0], max(0, shape[1] - 1), 3, 3)


# ---------------------------------------------------------- torch.distributions, compiled


def test_it_is_a_distribution_of_torch():
    case = Case()
    p = case.distribution()
    assert isinstance(p, torch.distributions.Distribution)
    assert p.batch_shape == (case.B,) and p.event_shape == (case.T,)
    assert not p.has_rsample and not p.has_enumerate_support
    assert p.support.check(p.sample((2,))).shape == (2, case.B)
    assert p.support.check(p.sample((2,))).all()
    assert not p.support.check(torch.full((case.B, case.T), case.R)).any()
    assert repr(p) == "ChainDistribution(batch_shape=(5,), event_shape=(4,), n_labels=3)"
    with pytest.raises(NotImplementedError):
        p.rsample()


def test_layers_have_distributions():
    case = Case(T=5)
    layer = ChainLoss(3, temperature=0.5, allowed=~torch.eye(3, dtype=torch.bool)).double()
    p = layer.distribution(case.emissions, case.mask)
    torch.testing.assert_close(p.marginals, layer.marginals(case.emissions, case.mask))
    assert torch.equal(p.mode, layer.decode(case.emissions, case.mask).tags)
    tags = p.sample((50,), generator=torch.Generator().manual_seed(0))
    assert not ((tags[..., 1:] == tags[..., :-1]) & (tags[..., 1:] >= 0)).any()
    crf = CRF(3).double()
    crf.load_state_dict(layer.state_dict())
    q = crf.distribution(case.emissions.transpose(0, 1), case.mask.T)
    assert q.batch_shape == (case.B,)
    first = CRF(3, batch_first=True).double()
    first.load_state_dict(layer.state_dict())
    torch.testing.assert_close(
        q.entropy(), first.distribution(case.emissions, case.mask).entropy())
    with pytest.raises(ValueError, match="distribution needs surrogate='log'"):
        ChainLoss(3, "max_margin").distribution(torch.zeros(1, 2, 3))


def test_positions_that_are_left_out():
    """Masks with holes: the same as without these positions."""
    case = Case(T=5)
    scores = case.scores()
    scores[0] = scores[0].nan_to_num()
    mask = torch.tensor([
        [1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]]).bool()
    holes = ChainDistribution(*scores, mask=mask)
    tags = holes.sample((7, 2), torch.Generator().manual_seed(0))
    assert ((tags >= 0) == mask).all()
    uniforms = torch.rand((14, 5, 5), dtype=F64, generator=torch.Generator().manual_seed(0))
    for b, kept in enumerate(mask):
        n = int(kept.sum())
        own = ChainDistribution(scores[0][b : b + 1, kept], *scores[1:])
        for name in ("log_partition", "mode", "marginals"):
            found = getattr(holes, name)[b]
            found = found[kept] if name != "log_partition" else found
            torch.testing.assert_close(found, getattr(own, name)[0])
        edges = holes.edge_marginals[b]
        begins = kept.nonzero()[:-1, 0]
        torch.testing.assert_close(edges[begins], own.edge_marginals[0])
        assert edges.sum().item() == pytest.approx(max(0, n - 1))
        torch.testing.assert_close(holes.entropy()[b], own.entropy()[0])
        torch.testing.assert_close(
            holes.log_prob(tags)[..., b], own.log_prob(tags[..., b : b + 1, kept])[..., 0])
        expected = drawn((scores[0][b : b + 1, kept], *scores[1:]), uniforms[:, b : b + 1, kept])
        assert torch.equal(tags.reshape(14, 5, 5)[:, b, kept], expected[:, 0])
    assert kl_divergence(holes, ChainDistribution(*scores, mask=mask)).abs().max() < 1e-14
    other = mask.clone()
    other[0] = torch.tensor([1, 1, 1, 0, 0])
    with pytest.raises(ValueError, match="position 1 of sequence 0 is left out in the first one"):
        kl_divergence(holes, ChainDistribution(*scores, mask=other))
    with pytest.raises(ValueError, match="give both the same mask"):
        kl_divergence(holes, ChainDistribution(*scores))
    q = torch.rand(5, 5, 3, generator=torch.Generator().manual_seed(1), dtype=F64).softmax(-1)
    losses = chain_loss(scores[0], q, *scores[1:], mask=mask, reduction="none")
    for b, kept in enumerate(mask):
        torch.testing.assert_close(losses[b], chain_loss(
            scores[0][b : b + 1, kept], q[b : b + 1, kept], *scores[1:]))
    q[2, 3] = 1.0
    with pytest.raises(ValueError, match=r"tags\[2, 3\] are"):
        chain_loss(scores[0], q, *scores[1:], mask=mask)
    tags[1, 1, 2, 3] = 3
    with pytest.raises(ValueError, match=r"value\[1, 1, 2, 3\] is 3: labels are 0 ... 2"):
        holes.log_prob(tags)


@pytest.mark.parametrize("what", ["entropy", "divergence", "log_prob", "soft"])
def test_transforms(what):
    g = torch.Generator().manual_seed(0)
    emissions, direction, q = torch.randn(3, 2, 4, 3, generator=g, dtype=F64)
    transitions = torch.randn(3, 3, generator=g, dtype=F64)
    q, tags = q.softmax(-1), torch.zeros(2, 4, dtype=torch.long)

    def function(emissions):
        if what == "soft":
            return chain_loss(emissions, q, transitions)
        p = ChainDistribution(emissions, transitions)
        return {
            "entropy": lambda: p.entropy(), "log_prob": lambda: p.log_prob(tags),
            "divergence": lambda: kl_divergence(
                p, ChainDistribution(emissions.flip(-1), transitions))}[what]().sum()

    slope = torch.func.grad(function)(emissions)
    expected, = torch.autograd.grad(
        function(emissions.requires_grad_()), emissions)
    emissions.requires_grad_(False)
    torch.testing.assert_close(slope, expected)
    _, change = torch.func.jvp(function, (emissions,), (direction,))
    torch.testing.assert_close(change, (slope * direction).sum())
    both = torch.stack([emissions, 2 * emissions])
    torch.testing.assert_close(
        torch.func.vmap(function)(both), torch.stack([function(one) for one in both]))
    traced = make_fx(function)(emissions)
    torch.testing.assert_close(traced(2 * emissions), function(2 * emissions))


def test_the_operator_has_shapes_and_checks_its_arguments():
    p = ChainDistribution(torch.zeros(2, 3, 4), torch.zeros(4, 4))
    *parts, bounds = p._batch
    bounds, uniforms = torch.as_tensor(bounds), torch.rand(5, 2, 3, dtype=F64)
    torch.library.opcheck(
        torch.ops.fastm4n.chain_sample.default, (*parts, bounds, uniforms, 1.0))
    for wrong in (uniforms[:, :1], uniforms[0], uniforms.float()):
        with pytest.raises(ValueError, match="uniforms must have shape"):
            torch.ops.fastm4n.chain_sample(*parts, bounds, wrong, 1.0)
    parts[0][1, 2, 3] = float("nan")
    with pytest.raises(ValueError, match=r"emissions\[1, 2, 3\] is nan"):
        torch.ops.fastm4n.chain_sample(*parts, bounds, uniforms, 1.0)


def test_compiled():
    layer = ChainLoss(3).double()
    emissions = torch.randn(2, 4, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    tags = torch.zeros(2, 4, dtype=torch.long)

    def values(emissions):
        p = layer.distribution(emissions, mask)
        q = layer.distribution(2 * emissions, mask)
        return p.entropy() + p.cross_entropy(q), kl_divergence(p, q), p.log_prob(tags), p.mode

    def samples(emissions):
        return layer.distribution(emissions, mask).sample((6,))

    for one, two in zip(
            torch.compile(values, fullgraph=True, backend="aot_eager")(emissions),
            values(emissions)):
        torch.testing.assert_close(one, two)
    torch.manual_seed(0)
    found = torch.compile(samples, fullgraph=True, backend="aot_eager")(emissions)
    assert found.shape == (6, 2, 4) and (found[:, 1, 2:] == -1).all()
    assert layer.distribution(emissions, mask).log_prob(found).isfinite().all()

    def soft(emissions, q):
        return layer(emissions, q, mask)

    q = torch.rand(2, 4, 3, dtype=F64).softmax(-1)
    emissions.requires_grad_()
    ours = torch.compile(soft, fullgraph=True, backend="aot_eager")(emissions, q)
    torch.testing.assert_close(ours, soft(emissions, q))
    for one, two in zip(
            torch.autograd.grad(ours, emissions), torch.autograd.grad(soft(emissions, q), emissions)):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("policy", POLICIES)
def test_against_torch_struct(policy):
    torch_struct = pytest.importorskip("torch_struct", reason="torch-struct is not installed.")
    g = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 3, 6, 4, generator=g), torch.randn(2, 4, 4, generator=g)
    ours, theirs = [], []
    for emissions, transitions in zip(*scores):
        ours.append(ChainDistribution(emissions, transitions, device_policy=policy))
        # potentials of edges, next label first; those of the first position at its edge
        edges = emissions[:, 1:, :, None] + transitions.T
        edges[:, 0] += emissions[:, 0, None, :]
        theirs.append(torch_struct.LinearChainCRF(edges))
    p, q = theirs
    torch.testing.assert_close(ours[0].entropy(), p.entropy, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(kl_divergence(*ours), p.kl(q), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(ours[0].log_partition, p.partition, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(
        ours[0].edge_marginals.transpose(-1, -2), p.marginals, atol=1e-4, rtol=1e-4)


# -------------------------------------------------------------------------- bad input


def test_bad_input_is_told_by_argument_and_place():
    emissions = torch.zeros(2, 3, 4)
    emissions[1, 2, 3] = float("nan")
    with pytest.raises(ValueError, match=r"emissions\[2, 1, 3\] is nan"):
        ChainLoss(4, batch_first=False).distribution(emissions.transpose(0, 1))
    emissions, transitions = torch.zeros(2, 3, 4), torch.zeros(4, 4)
    p = ChainDistribution(emissions, transitions)
    with pytest.raises(ValueError, match=r"start\[2\] is nan"):
        ChainDistribution(emissions, transitions, torch.tensor([0, 0, float("nan"), 0]))
    with pytest.raises(ValueError, match=r"emissions\[1\] and the transitions leave no labelling"):
        ChainDistribution(emissions.index_fill(0, torch.tensor(1), -INF), transitions)
    with pytest.raises(ValueError, match=r"value\[1, 0, 2\] is 4: labels are 0 ... 3"):
        p.log_prob(torch.tensor([[[0] * 3] * 2, [[0, 0, 4], [0] * 3]]))
    with pytest.raises(ValueError, match=r"value must be a Tensor of shape \(..., 2, 3\), got"):
        p.log_prob(torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="value must be a Tensor .*, got list"):
        p.log_prob([[0, 0, 0]] * 2)
    with pytest.raises(ValueError, match="the same sequences, positions and labels"):
        kl_divergence(p, ChainDistribution(torch.zeros(2, 3, 3), torch.zeros(3, 3)))
    shorter = ChainDistribution(emissions, transitions, lengths=torch.tensor([3, 2]))
    with pytest.raises(ValueError, match=r"position 2 of sequence 1 is left out in the second one"):
        p.cross_entropy(shorter)
    with pytest.raises(TypeError, match="other must be a ChainDistribution, got int"):
        p.cross_entropy(3)
    with pytest.raises(ValueError, match="temperature"):
        ChainDistribution(emissions, transitions, temperature=0.0)


# ------------------------------------------------------------------------- soft labels


def soft_case(form="shared", seed=0, **options):
    case = Case(form, **options)
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(case.B, case.T, case.R, generator=g, dtype=F64).softmax(-1)
    q[~case.mask] = float("nan")
    return case, q


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_soft_losses_are_expected_ones(form, left, policy):
    case, q = soft_case(form, left=left, temperature=0.6)
    losses = chain_loss(
        case.emissions, q, *case.scores()[1:], mask=case.mask, temperature=0.6, reduction="none",
        device_policy=policy)
    for b, T in enumerate(case.lengths.tolist()):
        y, log_p = case.log_probs(b)
        f = int(case.first[b])
        weights = torch.ones(len(y), dtype=F64)
        for t in range(T):
            weights = weights * q[b, f + t, y[:, t]]
        assert losses[b].item() == pytest.approx(-0.6 * (weights * log_p).sum().item(), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
def test_soft_losses_of_certain_labels_are_the_hard_ones(dtype):
    case = Case(dtype=dtype)
    tags = torch.randint(case.R, (case.B, case.T), generator=torch.Generator().manual_seed(1))
    q = one_hot(tags, case.R).to(dtype)
    for reduction in ("mean", "sum", "token_mean", "none"):
        found = []
        for given in (q, tags):
            scores = case.scores(requires_grad=True)
            loss = chain_loss(
                scores[0], given, *scores[1:], mask=case.mask, reduction=reduction)
            found.append((loss, torch.autograd.grad(loss.sum(), scores)))
        (soft, slopes), (hard, expected) = found
        if reduction == "none":
            assert torch.equal(soft, hard)
        torch.testing.assert_close(soft, hard)
        for one, two in zip(slopes, expected):
            torch.testing.assert_close(one, two)


def test_label_smoothing_is_a_mixture_of_losses():
    case = Case(T=2)
    # of one position the loss is linear in its probabilities
    case.mask[:, 1] = False
    tags = torch.tensor([[0, 0], [1, 0], [2, 0], [1, 0], [2, 0]])
    smooth = 0.9 * one_hot(tags, 3).double() + 0.1 / 3

    def loss(tags):
        return chain_loss(
            case.emissions.nan_to_num(), tags, *case.scores()[1:], mask=case.mask, reduction="none")

    expected = 0.9 * loss(tags) + 0.1 / 3 * sum(loss(torch.full_like(tags, j)) for j in range(3))
    torch.testing.assert_close(loss(smooth), expected)


@pytest.mark.parametrize("form", FORMS)
def test_derivatives_of_soft_losses(form):
    case, q = soft_case(form, T=3)
    inputs = [
        part.nan_to_num().requires_grad_()
        for part in (case.emissions, q.log(), case.transitions, case.start)]

    def loss(emissions, logits, transitions, start):
        return chain_loss(
            emissions, logits.softmax(-1), transitions, start, case.end, mask=case.mask,
            reduction="none")

    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs)


def test_layers_take_soft_labels():
    case, q = soft_case()
    layer = ChainLoss(3).double()
    expected = layer(case.emissions, q, case.mask)
    second = ChainLoss(3, batch_first=False).double()
    crf = CRF(3, batch_first=True).double()
    for other in (second, crf):
        other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(
        second(case.emissions.transpose(0, 1), q.transpose(0, 1), case.mask.T), expected)
    torch.testing.assert_close(-crf(case.emissions, q, case.mask, reduction="mean"), expected)


def test_soft_labels_of_a_teacher_without_transitions_are_its_cross_entropy():
    case = Case()
    zeros = torch.zeros(case.R, case.R, dtype=F64)
    teacher = ChainDistribution(2 * case.emissions.flip(-1), zeros, mask=case.mask)
    torch.testing.assert_close(
        chain_loss(*(case.emissions, teacher.marginals, *case.scores()[1:]), mask=case.mask,
                   reduction="none"),
        teacher.cross_entropy(case.distribution()))


def test_soft_labels_that_are_wrong():
    emissions, transitions = torch.zeros(2, 3, 3), torch.zeros(3, 3)
    q = torch.full((2, 3, 3), 1 / 3)

    def refuses(match, q=q, emissions=emissions, transitions=transitions, error=ValueError, **more):
        with pytest.raises(error, match=match):
            chain_loss(emissions, q, transitions, **more)

    q2 = q.clone()
    q2[1, 2, 0] = 0.5
    refuses(r"tags\[1, 2\] are \[0.5, .*\], of sum 1.16667", q2)
    chain_loss(emissions, q2, transitions, lengths=torch.tensor([3, 2]))
    refuses(r"tags\[0, 0\] are \[-0.5, 1.0, 0.5\]", torch.tensor([-0.5, 1.0, 0.5]).expand(2, 3, 3))
    refuses(r"tags\[0, 0\] are \[nan", q * float("nan"))
    barred = emissions.clone()
    barred[1, 1, 2] = -INF
    refuses(r"tags\[1, 1\] give label 2 probability 0.333333, which scores of -inf", emissions=barred)
    barred = transitions.clone()
    barred[1, 2] = -INF
    refuses(r"tags\[0, 1\] give label 2 probability 0.333333, after", transitions=barred)
    assert chain_loss(
        emissions, one_hot(torch.tensor([[1, 1, 0]] * 2), 3).float(), barred).isfinite()
    refuses(r"tags must have shape \(2, 3, 3\), got \(2, 3, 4\)",
            torch.full((2, 3, 4), 0.25))
    refuses("tags that are probabilities need surrogate='log'", surrogate="max_margin")
    refuses("tags that are probabilities need surrogate='log'", cost_augmented=True)
    refuses("without cost_augmented and allowed_labels", allowed_labels=torch.ones(2, 3, 3).bool())
    refuses("tags must be of an integer dtype", q[..., 0], error=TypeError)
    with pytest.raises(ValueError, match="tags must have shape"):
        ChainLoss(3).certificate(emissions, q)


def test_marginals_of_the_object_are_those_of_the_function():
    case = Case("per edge")
    nodes, edges, log_z = chain_marginals(*case.scores(), mask=case.mask, temperature=0.5)
    case.temperature = 0.5
    p = case.distribution()
    assert torch.equal(p.marginals, nodes) and torch.equal(p.edge_marginals, edges)
    torch.testing.assert_close(0.5 * p.log_partition, log_z)
