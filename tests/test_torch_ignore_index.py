"""Positions that are left out of sequences: masks with holes and tags of ignore_index."""

import io

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="PyTorch is not installed: the layers of fastm4n.torch are not tested.")

from fastm4n.torch import CRF, ChainLoss, chain_loss, chain_marginals, chain_viterbi

SURROGATES = ("log", "max_margin", "max_min")
POLICIES = ("cpu", "native")
IGNORED = -100


class Words:
    """Tokens of which those with the tag -100 or outside the mask are left out, filled with NaN."""

    def __init__(self, B=7, T=9, R=3, dtype=torch.float64, seed=0, partial=False):
        g = torch.Generator().manual_seed(seed)
        self.B, self.T, self.R = B, T, R
        self.emissions = torch.randn(B, T, R, generator=g, dtype=dtype)
        self.transitions = torch.randn(R, R, generator=g, dtype=dtype)
        self.start, self.end = torch.randn(2, R, generator=g, dtype=dtype)
        self.tags = torch.randint(-1 if partial else 0, R, (B, T), generator=g)
        self.allowed = torch.rand(B, T, R, generator=g) < 0.7
        self.allowed.scatter_(2, self.tags.clamp(min=0)[:, :, None], True)
        lengths = torch.randint(3, T + 1, (B,), generator=g)
        self.mask = torch.arange(T) < lengths[:, None]
        self.mask[1, 1] = self.mask[4, :2] = False
        self.lengths = lengths
        self.tags[torch.rand(B, T, generator=g) < 0.4] = IGNORED
        self.tags[2] = IGNORED  # a row without a word
        self.tags[3] = self.tags[3].clamp(min=0)  # one without a hole
        self.kept = self.mask & (self.tags != IGNORED)
        self.emissions[~self.kept] = float("nan")

    def scores(self):
        return [part.clone().requires_grad_() for part in (
            self.emissions, self.transitions, self.start, self.end)]

    def word_by_word(self, function, emissions, *others, allowed=None, **options):
        """Results of `function` for each row, a sequence of the positions that are kept."""
        found = []
        for b, kept in enumerate(self.kept):
            if allowed is not None:
                options["allowed_labels"] = allowed[b, kept][None]
            found.append(function(emissions[b, kept][None], self.tags[b, kept][None], *others,
                                  **options))
        return found

    def all_of(self, function, emissions, *others, time_first, allowed=None, **options):
        """`function` for all rows at once."""
        given = [emissions, self.tags, self.mask, allowed]
        if time_first:
            given = [None if x is None else x.transpose(0, 1) for x in given]
        emissions, tags, mask, allowed = given
        if allowed is not None:
            options["allowed_labels"] = allowed
        return function(
            emissions, tags, *others, mask=mask, ignore_index=IGNORED, batch_first=not time_first,
            **options)


def reduced(words, losses, reduction):
    losses = torch.cat(losses)
    return {
        "none": losses, "sum": losses.sum(), "mean": losses.mean(),
        "token_mean": losses.sum() / words.kept.sum()}[reduction]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "token_mean"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_losses_are_those_of_the_loop_over_words(surrogate, reduction, time_first, policy):
    words = Words()
    one, two = words.scores(), words.scores()
    options = {"surrogate": surrogate, "device_policy": policy}
    found = words.all_of(
        chain_loss, *one, time_first=time_first, reduction=reduction, **options)
    expected = reduced(
        words, words.word_by_word(chain_loss, *two, reduction="none", **options), reduction)
    atol = 1e-11 if surrogate != "max_min" else 1e-5
    torch.testing.assert_close(found, expected, atol=atol, rtol=0)
    weights = torch.linspace(1, 2, words.B, dtype=torch.float64) if found.dim() else torch.ones(())
    slopes = [
        torch.autograd.grad((weights * loss).sum(), scores)
        for loss, scores in ((found, one), (expected, two))]
    for a, b in zip(*slopes):
        torch.testing.assert_close(a, b, atol=atol, rtol=0)
    assert not slopes[0][0][~words.kept].any()


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("with_sets", [False, True])
def test_labels_known_in_part_beside_those_that_are_left_out(with_sets, policy, time_first):
    words = Words(partial=True)
    assert (words.tags[words.kept] == -1).any()
    one, two = words.scores(), words.scores()
    options = {
        "device_policy": policy, "reduction": "none",
        "allowed": words.allowed if with_sets else None}
    found = words.all_of(chain_loss, *one, time_first=time_first, **options)
    expected = torch.cat(words.word_by_word(chain_loss, *two, **options))
    torch.testing.assert_close(found, expected, atol=1e-11, rtol=0)
    for a, b in zip(torch.autograd.grad(found.sum(), one), torch.autograd.grad(expected.sum(), two)):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=0)


def test_second_derivatives():
    words = Words(B=5, T=5)
    words.emissions.nan_to_num_()
    g = torch.Generator().manual_seed(1)
    along = [torch.randn(part.shape, generator=g, dtype=torch.float64) for part in words.scores()]
    products = []
    for function in (
        lambda scores: words.all_of(chain_loss, *scores, time_first=False, reduction="sum"),
        lambda scores: torch.cat(words.word_by_word(chain_loss, *scores, reduction="none")).sum(),
    ):
        scores = words.scores()
        slopes = torch.autograd.grad(function(scores), scores, create_graph=True)
        inner = sum((a * b).sum() for a, b in zip(slopes, along))
        products.append(torch.autograd.grad(inner, scores))
    for a, b in zip(*products):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)
        assert b.abs().max() > 1e-3


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("k", [1, 3])
def test_labellings_of_masks_with_holes(k, policy, time_first):
    words = Words()
    emissions, mask = words.emissions, words.kept
    others = words.transitions, words.start, words.end
    if time_first:
        emissions, mask = emissions.transpose(0, 1), mask.T
    found = chain_viterbi(
        emissions, *others, k=k, mask=mask, batch_first=not time_first, device_policy=policy)
    tags = found.tags.transpose(0, 1) if time_first else found.tags
    assert tags.shape[:2] == words.tags.shape and (tags[~words.kept] == -1).all()
    assert found.lengths.tolist() == words.kept.sum(1).tolist()
    for b, kept in enumerate(words.kept):
        own = chain_viterbi(words.emissions[b, kept][None], *others, k=k)
        assert torch.equal(tags[b, kept], own.tags[0])
        torch.testing.assert_close(found.scores[b], own.scores[0])
        assert found.tolist()[b] == own.tolist()[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("time_first", [False, True])
def test_marginals_of_masks_with_holes(time_first, policy):
    words = Words()
    one, two = words.scores(), words.scores()
    emissions, mask = one[0], words.kept
    if time_first:
        emissions, mask = emissions.transpose(0, 1), mask.T
    nodes, edges, log_z = chain_marginals(
        emissions, *one[1:], mask=mask, batch_first=not time_first, device_policy=policy)
    nodes = nodes.transpose(0, 1) if time_first else nodes
    assert not nodes[~words.kept].any()
    expected = 0.0
    for b, kept in enumerate(words.kept):
        own = chain_marginals(two[0][b, kept][None], *two[1:])
        for a, b in zip((nodes[b, kept], edges[b], log_z[b]), own):
            torch.testing.assert_close(a, b[0], atol=1e-11, rtol=0)
        expected = expected + (own[0] ** 2).sum() + (own[1] ** 2).sum() + own[2].sum()
    total = (nodes**2).sum() + (edges**2).sum() + log_z.sum()
    for a, b in zip(torch.autograd.grad(total, one), torch.autograd.grad(expected, two)):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_layers_leave_out_what_the_function_leaves_out(surrogate):
    words = Words(dtype=torch.float32)
    layer = ChainLoss(3, surrogate, ignore_index=IGNORED, reduction="none")
    scores = layer.transitions, layer.start_transitions, layer.end_transitions
    expected = words.all_of(
        chain_loss, words.emissions, *scores, time_first=False, surrogate=surrogate,
        reduction="none")
    assert torch.equal(layer(words.emissions, words.tags, words.mask), expected)
    # lengths instead of the mask, which has two holes of its own
    by_lengths = layer(words.emissions.nan_to_num(), words.tags, lengths=words.lengths)
    by_mask = layer(
        words.emissions.nan_to_num(), words.tags, torch.arange(9) < words.lengths[:, None])
    assert torch.equal(by_lengths, by_mask)
    lower, upper = layer.certificate(words.emissions, words.tags, words.mask)
    assert torch.equal(lower, expected) and (upper >= lower).all()
    if surrogate == "log":
        assert torch.equal(layer.log_prob(words.emissions, words.tags, words.mask), -expected)
        crf = CRF(3, batch_first=True, ignore_index=IGNORED)
        crf.load_state_dict(layer.state_dict())
        assert torch.equal(
            crf(words.emissions, words.tags, words.mask, "none"), -expected)
        assert torch.equal(
            crf(words.emissions.nan_to_num(), words.tags, reduction="none",
                lengths=words.lengths), -by_lengths)
        decoded = crf.decode(words.emissions, words.kept)
        assert [len(row) for row in decoded] == words.kept.sum(1).tolist()
        marginals = layer.marginals(words.emissions, words.kept).sum(-1)
        torch.testing.assert_close(marginals, words.kept.float())


def test_minus_one_may_be_left_out_and_a_label_too():
    emissions, transitions = torch.randn(1, 4, 3), torch.randn(3, 3)
    tags = torch.tensor([[0, -1, 2, 1]])
    for ignored, kept in ((-1, [0, 2, 3]), (2, [0, 1, 3])):
        found = chain_loss(emissions, tags, transitions, ignore_index=ignored)
        expected = chain_loss(emissions[:, kept], tags[:, kept], transitions)
        torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="ignore_index must be an integer, got 0.5"):
        ChainLoss(3, ignore_index=0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    words = Words(dtype=torch.float32)
    emissions = words.emissions.to(dtype).requires_grad_()
    loss = ChainLoss(3, ignore_index=IGNORED)(emissions, words.tags, words.mask)
    loss.backward()
    assert loss.dtype == torch.float32 and emissions.grad.dtype == dtype
    assert not emissions.grad[~words.kept].any() and torch.isfinite(emissions.grad).all()


def test_one_piece_anywhere_is_no_hole():
    """Special tokens at both ends of a row."""
    mask = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]).bool()
    tags = torch.randint(3, (2, 6))
    emissions = torch.randn(2, 6, 3, dtype=torch.float64)
    pair = torch.randn(2, 5, 3, 3, dtype=torch.float64)
    found = chain_loss(emissions, tags, pair, mask=mask, reduction="none")
    for b, first in enumerate((1, 2)):
        own = chain_loss(
            emissions[b : b + 1, first : first + 3], tags[b : b + 1, first : first + 3],
            pair[b : b + 1, first : first + 2])
        torch.testing.assert_close(found[b], own)
    nodes, edges, _ = chain_marginals(emissions, pair, mask=mask)
    torch.testing.assert_close(nodes.sum(-1), mask.double())
    torch.testing.assert_close(edges.sum((-2, -1)), (mask[:, 1:] & mask[:, :-1]).double())


def test_holes_need_one_matrix_of_transitions():
    words = Words()
    pair = torch.zeros(words.B, words.T - 1, 3, 3, dtype=torch.float64)
    for call in (
        lambda: chain_loss(words.emissions, words.tags, pair, ignore_index=IGNORED),
        lambda: chain_viterbi(words.emissions, pair, mask=words.kept),
        lambda: chain_marginals(words.emissions, pair, mask=words.kept),
    ):
        with pytest.raises(ValueError, match=r"mask\[\d\] has a hole at position \d, and trans"):
            call()


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
def test_errors_have_places_before_packing(policy, time_first):
    words = Words()
    b, t = words.kept.nonzero()[-1].tolist()
    assert t != words.kept[b].sum() - 1
    place = f"{t}, {b}" if time_first else f"{b}, {t}"
    options = {"time_first": time_first, "device_policy": policy}
    scores = [part.detach() for part in words.scores()]
    scores[0][b, t, 2] = float("inf")
    with pytest.raises(ValueError, match=rf"^emissions\[{place}, 2\] is inf"):
        words.all_of(chain_loss, *scores, **options)
    mask, emissions = words.kept, scores[0]
    if time_first:
        mask, emissions = mask.T, emissions.transpose(0, 1)
    for function in (chain_viterbi, chain_marginals):
        with pytest.raises(ValueError, match=rf"^emissions\[{place}, 2\] is inf"):
            function(emissions, *scores[1:], mask=mask, batch_first=not time_first,
                     device_policy=policy)
    scores[0][b, t] = -float("inf")
    row = f":, {b}" if time_first else str(b)
    with pytest.raises(ValueError, match=rf"^emissions\[{row}\] and the transitions leave no"):
        words.all_of(chain_loss, *scores, **options)
    scores[0][b, t] = 0.0
    words.tags[b, t] = 3
    with pytest.raises(ValueError, match=rf"^tags\[{place}\] is 3: labels are 0 \.\.\. 2"):
        words.all_of(chain_loss, *scores, **options)


# -------------------------------------------------------------------------------------- tracing


@pytest.mark.parametrize("reduction", ["mean", "token_mean", "none"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_compiled_layers_say_the_same(surrogate, reduction):
    torch._dynamo.reset()
    words = Words(dtype=torch.float32)
    layer = ChainLoss(3, surrogate, reduction=reduction, ignore_index=IGNORED)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    emissions = words.emissions.nan_to_num()
    for given in ({"mask": words.mask}, {"lengths": words.lengths}, {}):
        found = []
        for module in (layer, compiled):
            own = emissions.clone().requires_grad_()
            loss = module(own, words.tags, **given)
            found.append([loss, *torch.autograd.grad(loss.sum(), [own, *layer.parameters()])])
        for one, two in zip(*found):
            torch.testing.assert_close(one, two)


def test_compiled_transitions_of_each_edge():
    torch._dynamo.reset()
    words = Words(dtype=torch.float32)
    pair = torch.randn(words.B, words.T - 1, 3, 3)
    layer = ChainLoss(3)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    emissions, tags = words.emissions.nan_to_num(), words.tags.clamp(min=0)
    mask = torch.arange(words.T) < words.lengths[:, None]
    torch.testing.assert_close(
        compiled(emissions, tags, mask, transitions=pair),
        layer(emissions, tags, mask, transitions=pair))
    with pytest.raises(Exception, match="has a hole at position"):
        compiled(emissions, tags, words.kept, transitions=pair)


@pytest.mark.parametrize("time_first", [False, True])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("kind", [ChainLoss, CRF])
def test_decoding_is_compiled_exported_and_saved(kind, k, time_first):
    torch._dynamo.reset()
    torch.manual_seed(0)

    class Tagger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 3)
            self.crf = kind(3, batch_first=not time_first, allowed_start=[True, False, True])

        def forward(self, x, mask):
            return self.crf.decode(
                self.linear(x), mask, k=k, allowed_end=np.array([True, True, False]))

        def expected(self, x, mask):
            return ChainLoss.decode(
                self.crf, self.linear(x), mask, k=k, allowed_end=[True, True, False])

    def given(B, T):
        x, mask = torch.randn(B, T, 4), torch.rand(B, T) < 0.6
        return (x.transpose(0, 1), mask.T) if time_first else (x, mask)

    tagger = Tagger()
    compiled = torch.compile(tagger, fullgraph=True, backend="aot_eager")
    axes = {at: torch.export.Dim(name) for at, name in enumerate("TB" if time_first else "BT")}
    program = torch.export.export(tagger, given(3, 5), dynamic_shapes=(axes, axes))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for B, T in ((3, 5), (4, 7), (2, 1)):
        x, mask = given(B, T)
        expected = tagger.expected(x, mask)
        for decode in (compiled, loaded):
            found = decode(x, mask)
            assert torch.equal(found.tags, expected.tags)
            torch.testing.assert_close(found.scores, expected.scores)
            assert found.tolist() == expected.tolist()
    eager = tagger(x, mask)
    assert (eager if kind is CRF else eager.tolist()) == expected.tolist()
