"""Decoding in programs of torch.export, with batches and lengths that vary, saved and loaded."""

import pytest
from processes import run_code

torch = pytest.importorskip("torch", reason="PyTorch is not installed.")

from torch.export import Dim, export, load, save

from fastm4n.torch import (
    CRF,
    ChainLoss,
    GraphLoss,
    PermutationLoss,
    SimplexLoss,
    TreeLoss,
    assignment,
    chain_viterbi,
)

R = 3
A, B = Dim.DYNAMIC, Dim.DYNAMIC
ROWS, BATCH = {0: A}, {0: A, 1: B}
EDGES = torch.tensor([[0, 1], [2, 1], [3, 4], [1, 3], [4, 5]])


class Model(torch.nn.Module):
    def __init__(self, layer, call):
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, *given):
        return self.call(self.layer, *given)


def scores(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def lengths(B, T):
    return torch.arange(B) % T + 1


def mask(B, T):
    return torch.arange(T) < lengths(B, T)[:, None]


def allowed():
    found = torch.ones(R, R, dtype=torch.bool)
    found[0, 1] = found[2, 2] = False
    return found


# name -> what makes the layer, what is called, its arguments for two sizes, axes that vary
CASES = {
    "mask": (
        lambda: ChainLoss(R), lambda layer, x, m: layer.decode(x, m),
        lambda B, T: (scores(B, T, R), mask(B, T)), (BATCH, BATCH)),
    "no mask, allowed": (
        lambda: ChainLoss(R, allowed=allowed()), lambda layer, x: layer.decode(x),
        lambda B, T: (scores(B, T, R),), (BATCH,)),
    "lengths, no ends": (
        lambda: ChainLoss(R, start_end=False),
        lambda layer, x, n: layer.decode(x, lengths=n),
        lambda B, T: (scores(B, T, R), lengths(B, T)), (BATCH, ROWS)),
    "three best": (
        lambda: ChainLoss(R), lambda layer, x, m: layer.decode(x, m, k=3),
        lambda B, T: (scores(B, T, R), mask(B, T)), (BATCH, BATCH)),
    "time first": (
        lambda: ChainLoss(R, batch_first=False), lambda layer, x, m: layer.decode(x, m),
        lambda B, T: (scores(T, B, R), mask(B, T).T), (BATCH, BATCH)),
    "scored transitions": (
        lambda: ChainLoss(R), lambda layer, x, pair: layer.decode(x, transitions=pair),
        lambda B, T: (scores(B, T, R), scores(B, T - 1, R, R)), (BATCH, BATCH)),
    "function": (
        lambda: None, lambda layer, x, pair: chain_viterbi(x, pair),
        lambda B, T: (scores(B, T, R), scores(R, R)), (BATCH, None)),
    "marginals": (
        lambda: ChainLoss(R), lambda layer, x, m: layer.marginals(x, m),
        lambda B, T: (scores(B, T, R), mask(B, T)), (BATCH, BATCH)),
    "tree": (
        lambda: TreeLoss(R), lambda layer, x, e, pair: layer.decode(x, e, pair),
        lambda n, m: (scores(n, R), EDGES[:m], scores(R, R)), (ROWS, ROWS, None)),
    "graph, a table for each edge": (
        lambda: GraphLoss(R), lambda layer, x, e, pair: layer.decode(x, e, pair),
        lambda n, m: (scores(n, R), EDGES[:m], scores(m, R, R)), (ROWS, ROWS, ROWS)),
    "assignment": (
        lambda: None, lambda layer, x: assignment(x),
        lambda M, N: (scores(4, M, N),), ({0: A, 1: A, 2: A},)),
    "permutation": (
        lambda: PermutationLoss(), lambda layer, x: layer.decode(x),
        lambda B, M: (scores(B, M, M),), ({0: A, 1: A, 2: A},)),
    "single labels": (
        lambda: SimplexLoss(), lambda layer, x: layer.decode(x),
        lambda B, T: (scores(B, T, R),), (BATCH,)),
}
# some are of equal sizes, which ties the axes of a program where sizes are compared
EXAMPLE, OTHERS = (5, 4), ((5, 3), (6, 5))


def exported(name):
    torch.manual_seed(0)
    make, call, arguments, axes = CASES[name]
    model = Model(make(), call)
    return model, export(model, arguments(*EXAMPLE), dynamic_shapes=(axes,))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Models, and programs that were saved."""
    folder, found = tmp_path_factory.mktemp("programs"), {}
    for name in CASES:
        model, program = exported(name)
        path = folder / f"{name}.pt2"
        save(program, path)
        found[name] = model, path
    return found


def tensors(found):
    return [found] if isinstance(found, torch.Tensor) else [
        tensor for part in found if not isinstance(part, bool) for tensor in tensors(part)]


@pytest.mark.parametrize("name", CASES)
def test_programs_decode_other_sizes(name, programs):
    model, path = programs[name]
    program = load(path)
    for sizes in (EXAMPLE, *OTHERS):
        given = CASES[name][2](*sizes)
        found, right = program.module()(*given), model(*given)
        assert type(found) is type(right)
        for one, other in zip(tensors(found), tensors(right), strict=True):
            assert torch.equal(one, other)


def test_crf_decodes_to_lists_outside(tmp_path):
    model = Model(CRF(R, batch_first=True), lambda layer, x, m: layer.decode(x, m))
    arguments = CASES["mask"][2]
    program = export(model, arguments(*EXAMPLE), dynamic_shapes=((BATCH, BATCH),))
    save(program, tmp_path / "crf.pt2")
    for sizes in (EXAMPLE, *OTHERS):
        given = arguments(*sizes)
        found = load(tmp_path / "crf.pt2").module()(*given)
        assert found.tolist() == model(*given)
        assert [len(row) for row in found.tolist()] == lengths(*sizes).tolist()


CODE = """
import sys, torch
import fastm4n.torch
program = torch.export.load(sys.argv[1])
print(program.module()(*torch.load(sys.argv[2]))[0].tolist())
"""


def test_programs_run_in_a_new_process(programs, tmp_path):
    model, path = programs["mask"]
    given = CASES["mask"][2](4, 7)
    torch.save(given, tmp_path / "given.pt")
    run = run_code(CODE, path, tmp_path / "given.pt")
    assert run.stdout.splitlines()[-1:] == [str(model(*given).tags.tolist())], run.stderr
