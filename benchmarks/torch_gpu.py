"""Training steps of a chain CRF with scores on a GPU: where the recursions should run.

    python benchmarks/torch_gpu.py [--batches 8 32 128 512] [--labels 5 9 26 64] [--lengths 50 200]
        [--repeats 30] [--seed 0]

prints a Markdown table, for a machine with a CUDA GPU and pytorch-crf. A step is the negative
log-likelihood of a batch and its gradients to emissions and transitions, all of which lie on the
GPU. There are three contestants: pytorch-crf; ``ChainLoss(device_policy="native")``, the recursions
in tensor operations on the GPU; and ``ChainLoss(device_policy="cpu")``, which copies the scores to
pinned memory, runs the compiled kernel on the CPU, and copies the gradients back. Times are wall
milliseconds, medians, contestants in turn, the device having finished before the clock starts and
before it stops. Sequences have lengths between half of T and T. Values and gradients of all three
are compared before anything is timed. The last table has the break-even of the last two: the
smallest batch at which the GPU is the faster of the two.
"""

import argparse
import platform
import statistics
import sys
import time

import numpy as np

BATCHES, LABELS, LENGTHS = (8, 32, 128, 512), (5, 9, 26, 64), (50, 200)
CONTESTANTS = ("pytorch-crf", "native", "cpu")
# float32 sums of some thousand terms
TOLERANCE = 1e-3


def packages():
    """torch and torchcrf, or the sentence that says what is missing."""
    try:
        import torch
    except ImportError:
        sys.exit("This benchmark needs PyTorch: pip install torch.")
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs a CUDA GPU, and PyTorch finds none.")
    try:
        import torchcrf
    except ImportError:
        sys.exit("This benchmark compares with pytorch-crf: pip install pytorch-crf.")
    return torch, torchcrf


def problem(torch, B, T, R, seed):
    """emissions (B, T, R), tags (B, T) and mask (B, T) on the GPU, padded on the right."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(max(1, T // 2), T + 1, size=B)
    # pytorch-crf wants a full column of the mask at position 0, and here one sequence is full
    lengths[0] = T
    emissions = rng.normal(size=(B, T, R)).astype(np.float32)
    tags = rng.integers(R, size=(B, T))
    mask = np.arange(T) < lengths[:, np.newaxis]
    emissions, tags, mask = (torch.from_numpy(x).cuda() for x in (emissions, tags, mask))
    return emissions.requires_grad_(), tags, mask


def contestants(torch, torchcrf, R, seed):
    """A name, the module with its parameters, and its loss of (emissions, tags, mask), each."""
    from fastm4n.torch import ChainLoss

    torch.manual_seed(seed)
    peer = torchcrf.CRF(R, batch_first=True).cuda()
    found = {"pytorch-crf": (peer, lambda x, tags, mask: -peer(x, tags, mask=mask))}
    for policy in ("native", "cpu"):
        layer = ChainLoss(
            R, surrogate="log", device_policy=policy, batch_first=True, reduction="sum").cuda()
        copy_parameters(torch, peer, layer)
        found[policy] = layer, lambda x, tags, mask, layer=layer: layer(x, tags, mask=mask)
    return found


def copy_parameters(torch, source, target):
    """The parameters of one module are those of another: transitions and both ends."""
    names = dict(source.named_parameters())
    others = dict(target.named_parameters())
    if names.keys() != others.keys():
        sys.exit(
            f"The parameters of ChainLoss are {sorted(others)}, those of pytorch-crf "
            f"{sorted(names)}: the benchmark compares modules that have the same.")
    with torch.no_grad():
        for name, parameter in others.items():
            parameter.copy_(names[name])


def step(torch, module, loss_of, emissions, tags, mask):
    """One forward and backward; the gradients stay where they are."""
    emissions.grad = None
    module.zero_grad(set_to_none=True)
    loss = loss_of(emissions, tags, mask)
    loss.backward()
    return loss


def compare(torch, found, emissions, tags, mask):
    """End the run if losses or gradients differ by more than float32 explains."""
    right = None
    for name, (module, loss_of) in found.items():
        loss = step(torch, module, loss_of, emissions, tags, mask)
        here = {"loss": loss.detach(), "emissions": emissions.grad}
        here.update((key, value.grad) for key, value in module.named_parameters())
        here = {key: value.double().cpu() for key, value in here.items()}
        if right is None:
            right = here
        for key, value in here.items():
            size = max(1.0, float(right[key].abs().max()))
            error = float((value - right[key]).abs().max()) / size
            if not error < TOLERANCE:
                sys.exit(
                    f"{name} and {CONTESTANTS[0]} differ in {key} by {error:.1e} of its largest "
                    f"entry, for emissions of shape {tuple(emissions.shape)}.")


def measure(torch, found, arguments, repeats):
    """Median milliseconds of a step of each contestant."""
    times = {name: [] for name in found}
    for repeat in range(repeats + 3):
        for name, (module, loss_of) in found.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            step(torch, module, loss_of, *arguments)
            torch.cuda.synchronize()
            # the first steps allocate
            if repeat >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(of) for name, of in times.items()}


def table(head, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def break_even(times, batches):
    """The smallest batch from which on the GPU is faster, or a dash where the CPU stays ahead."""
    ahead = "-"
    for B in sorted(batches, reverse=True):
        if times[B]["native"] >= times[B]["cpu"]:
            break
        ahead = B
    return ahead


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, metavar="B")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS, metavar="R")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch, torchcrf = packages()
    print(f"{torch.cuda.get_device_name()}, {platform.processor() or platform.machine()}, PyTorch "
          f"{torch.__version__}, {torch.get_num_threads()} threads. Medians of {options.repeats} "
          "steps, ms.\n")
    rows, crossings = [], []
    for T in options.lengths:
        for R in options.labels:
            times = {}
            for B in options.batches:
                found = contestants(torch, torchcrf, R, options.seed)
                arguments = problem(torch, B, T, R, options.seed)
                compare(torch, found, *arguments)
                times[B] = measure(torch, found, arguments, options.repeats)
                rows.append((T, R, B, *(f"{times[B][name]:.2f}" for name in CONTESTANTS)))
            crossings.append((T, R, break_even(times, options.batches)))
    print(table(("T", "R", "B", *CONTESTANTS), rows))
    print("\nSmallest batch from which on `native` is faster than `cpu`:\n")
    print(table(("T", "R", "B"), crossings))


if __name__ == "__main__":
    main()
