"""Models with layers, trained in one process or in several: the cases of test_torch_parallel.py.

    python torch_workers.py RANK WORLD FOLDER

is one of WORLD processes, which meet by a file in FOLDER. It runs every case on its share of the
batch and leaves what it found, or the error, in FOLDER/RANK.pt.
"""

import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn

from fastm4n.torch import CRF, ChainLoss

B, T, N, R = 4, 5, 4, 3
# of a process that waits for another
SECONDS = 20


class Tagger(nn.Module):
    def __init__(self, layer, network="linear"):
        super().__init__()
        self.network = nn.Linear(N, R) if network == "linear" else nn.LSTM(N, R, batch_first=True)
        self.layer = layer

    def emissions(self, x):
        found = self.network(x)
        return found[0] if isinstance(found, tuple) else found

    def forward(self, x, tags, mask):
        loss = self.layer(self.emissions(x), tags, mask)
        return -loss if isinstance(self.layer, CRF) else loss

    def decode(self, x, mask):
        return self.layer.decode(self.emissions(x), mask)


# a list, which has values on the meta device too
ALLOWED = [[True, False, True], [True, True, True], [True, True, False]]
MODELS = {
    "log": lambda: Tagger(ChainLoss(R)),
    "max_margin": lambda: Tagger(ChainLoss(R, "max_margin")),
    "max_min": lambda: Tagger(ChainLoss(R, "max_min")),
    "crf": lambda: Tagger(CRF(R, batch_first=True), "lstm"),
    "allowed": lambda: Tagger(ChainLoss(R, allowed=ALLOWED)),
}


def batch():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(B, T, N, generator=generator)
    # labels that ALLOWED allows
    tags = torch.tensor([0, 2, 1]).repeat(2)[:T].expand(B, T)
    return x, tags, torch.arange(T) < torch.tensor([[T], [2], [T], [3]])


def model_of(name):
    torch.manual_seed(0)
    return MODELS[name]()


def alone(model, rank, world):
    return model


def distributed(model, rank, world):
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)


def sharded(model, rank, world):
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    fully_shard(model.layer)
    fully_shard(model)
    # methods other than forward gather the parameters as well
    register_fsdp_forward_method(model, "decode")
    register_fsdp_forward_method(model.layer, "decode")
    return model


WRAPPERS = {"alone": alone, "distributed": distributed, "sharded": sharded}


def whole(tensor):
    """A copy of a tensor whose pieces are in several processes."""
    tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return tensor.detach().clone()


def train(wrapper, name, rank=0, world=1):
    """Gradients of two steps, parameters after them, and the labels of a share of the rows."""
    bare = model_of(name)
    model = WRAPPERS[wrapper](bare, rank, world)
    # means over rows are averaged over processes, but CRF has sums over rows
    factor = world if name == "crf" else 1
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    x, tags, mask = (part[rank::world] for part in batch())
    gradients = []
    for _ in range(2):
        optimizer.zero_grad()
        (factor * model(x, tags, mask)).backward()
        gradients.append([whole(p.grad) for p in bare.parameters()])
        optimizer.step()
    best = bare.decode(x, mask)
    return {
        "gradients": gradients, "parameters": [whole(p) for p in bare.parameters()],
        "labels": best if isinstance(best, list) else best.tolist()}


def on_meta(rank, world):
    """Labels of a layer with constraints that had no memory when it was sharded."""
    with torch.device("meta"):
        bare = MODELS["allowed"]()
    model = sharded(bare, rank, world)
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    for part in (model.network, model.layer):
        part.reset_parameters()
    x, _, mask = batch()
    labels = model.decode(10 * x, mask).tolist()
    return {"state": {key: whole(p) for key, p in bare.state_dict().items()}, "labels": labels}


CASES = {
    **{f"{wrapper} {name}": (lambda rank, world, wrapper=wrapper, name=name:
                             train(wrapper, name, rank, world))
       for wrapper in ("distributed", "sharded") for name in MODELS},
    "on meta": on_meta,
}


def main(rank, world, folder):
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=(folder / "meeting").as_uri(), rank=rank, world_size=world,
        timeout=timedelta(seconds=SECONDS))
    found = {}
    for name, case in CASES.items():
        try:
            found[name] = case(rank, world)
        except Exception:
            found[name] = traceback.format_exc()
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
