"""Training steps of a chain CRF with scores on a GPU: where the recursions should run.

    python benchmarks/torch_gpu.py [--batches 8 32 128 512] [--labels 9 26 100] [--lengths 50 200]
        [--repeats 20] [--seconds 1] [--seed 0] [--device cuda]

prints Markdown tables, for a machine with a CUDA GPU and pytorch-crf. A step is the negative
log-likelihood of a batch and its gradients to emissions and parameters, all of which lie on the
GPU. The contestants are pytorch-crf; torch-struct, where it is installed;
``ChainLoss(device_policy="native")``, the recursions in tensor operations on the GPU; and
``ChainLoss(device_policy="cpu")``, which copies the scores to pinned memory, runs the compiled
kernel on the CPU, and copies the gradients back. Sequences have lengths between half of T and T.

Times are wall milliseconds, medians of --repeats steps, or of fewer that fill --seconds, all but
torch-struct in turn, the device having finished before the clock starts and before it stops. A
contestant that runs out of memory has a dash. Losses and gradients are compared first with those
in float64 on the CPU; the largest errors are in the table, relative to the largest entry. The last
tables have the break-even of the two policies and the bound of "auto" that loses least.

``--device cpu`` checks the benchmark itself, on a machine without a GPU: its times say nothing.
"""

import argparse
import statistics
import sys
import time

import numpy as np
import torch
from _peers import describe, environment, has_package, rows_of

from fastm4n.torch import ChainLoss
from fastm4n.torch._chain_numerics import NATIVE_WORK

BATCHES, LABELS, LENGTHS = (8, 32, 128, 512), (9, 26, 100), (50, 200)
NAMES = ("pytorch-crf", "torch-struct", "native", "cpu")
# of float32 sums of some thousand terms, relative
TOLERANCE = 1e-3
WARMUP = 3


class Problem:
    """Emissions (B, T, R), tags and mask (B, T) on a device, padded on the right."""

    def __init__(self, B, T, R, seed, device):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(max(2, T // 2), T + 1, size=B)
        # one sequence is whole: torch-struct asks for it
        lengths[0] = T
        emissions = torch.from_numpy(rng.normal(size=(B, T, R)).astype(np.float32))
        self.emissions = emissions.to(device).requires_grad_()
        self.tags = torch.from_numpy(rng.integers(R, size=(B, T))).to(device)
        self.lengths = torch.from_numpy(lengths)
        self.mask = (torch.arange(T) < self.lengths[:, None]).to(device)

    def contestants(self, seed):
        """Name -> (its module, its loss)."""
        from torchcrf import CRF

        torch.manual_seed(seed)
        device, R = self.emissions.device, self.emissions.shape[2]
        peer = CRF(R, batch_first=True).to(device)
        found = {
            "pytorch-crf": (peer, lambda: -peer(self.emissions, self.tags, mask=self.mask))}
        for policy in ("native", "cpu"):
            layer = ChainLoss(R, device_policy=policy, reduction="sum").to(device)
            layer.load_state_dict(peer.state_dict())
            found[policy] = (
                layer, lambda layer=layer: layer(self.emissions, self.tags, self.mask))
        if has_package("torch-struct"):
            found["torch-struct"] = peer, lambda: self._torch_struct(peer)
        return {name: found[name] for name in NAMES if name in found}

    def _torch_struct(self, module):
        from torch_struct import LinearChainCRF

        # scores of edges, next label first; those of first and last labels are at their edges
        edges = self.emissions[:, 1:, :, None] + module.transitions.T
        first = (self.emissions[:, 0] + module.start_transitions)[:, None, None]
        last = torch.zeros(edges.shape[:2], device=edges.device)
        last[torch.arange(len(last)), self.lengths - 2] = 1.0
        edges = torch.cat([edges[:, :1] + first, edges[:, 1:]], 1)
        edges = edges + last[:, :, None, None] * module.end_transitions[:, None]
        pairs = self.tags[:, 1:] * edges.shape[3] + self.tags[:, :-1]
        truth = edges.flatten(2).gather(2, pairs[:, :, None])[:, :, 0][self.mask[:, 1:]].sum()
        return LinearChainCRF(edges, lengths=self.lengths).partition.sum() - truth

    def step(self, module, loss_of):
        """One forward and backward; the gradients stay where they are."""
        self.emissions.grad = None
        module.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        return loss

    def exact(self, module):
        """Loss and gradients in float64, by the compiled kernel."""
        layer = ChainLoss(self.emissions.shape[2], reduction="sum").double()
        layer.load_state_dict(module.state_dict())
        emissions = self.emissions.detach().double().cpu().requires_grad_()
        loss = layer(emissions, self.tags.cpu(), self.mask.cpu())
        loss.backward()
        return parts(loss, emissions, layer)

    def errors(self, contestants):
        """Largest error of loss and gradients of each contestant, None if out of memory."""
        found, right = {}, None
        for name, (module, loss_of) in contestants.items():
            right = self.exact(module) if right is None else right
            try:
                loss = self.step(module, loss_of)
            except torch.OutOfMemoryError:
                found[name] = None
                continue
            found[name] = max(
                float((one - exact).abs().max() / exact.abs().max().clamp(min=1.0))
                for one, exact in zip(parts(loss, self.emissions, module), right, strict=True))
            if not found[name] < TOLERANCE:
                sys.exit(
                    f"{name} is {found[name]:.1e} from the loss or gradients in float64, for "
                    f"emissions of shape {tuple(self.emissions.shape)}.")
        return found

    def times(self, contestants, repeats, seconds):
        """Median milliseconds of a step of each contestant."""
        finish = torch.cuda.synchronize if self.emissions.is_cuda else lambda: None
        times = {name: [] for name in contestants}
        for _ in range(WARMUP + repeats):
            for name, (module, loss_of) in contestants.items():
                # the first steps allocate
                if len(times[name]) > WARMUP and sum(times[name]) > 1e3 * seconds:
                    continue
                finish()
                start = time.perf_counter()
                self.step(module, loss_of)
                finish()
                times[name].append(1e3 * (time.perf_counter() - start))
        return {name: statistics.median(of[WARMUP:]) for name, of in times.items()}


def parts(loss, emissions, module):
    """Loss and gradients in float64 on the CPU."""
    found = [loss.detach(), emissions.grad, *(p.grad for p in module.parameters())]
    return [part.double().cpu() for part in found]


def run(B, T, R, options):
    """Errors and times of a cell, by name."""
    problem = Problem(B, T, R, options.seed, options.device)
    contestants = problem.contestants(options.seed)
    errors = problem.errors(contestants)
    times = {}
    # torch-struct, which may fill the memory, takes no turns with the others
    for group in (("torch-struct",), ("pytorch-crf", "native", "cpu")):
        if options.device == "cuda":
            torch.cuda.empty_cache()
        turns = {name: contestants[name] for name in group if errors.get(name) is not None}
        times.update(problem.times(turns, options.repeats, options.seconds))
    return errors, times


def break_even(times, T, R):
    """The smallest batch from which on "native" is faster than "cpu", or a dash."""
    ahead = "-"
    for B in sorted((cell[0] for cell in times if cell[1:] == (T, R)), reverse=True):
        if times[B, T, R]["native"] >= times[B, T, R]["cpu"]:
            break
        ahead = B
    return ahead


def best_bound(times):
    """The power of two whose use as the bound of B R^2 loses least, and what bounds lose.

    A loss is the mean over cells of log(time of the policy that is taken / least time).
    """
    def loss(bound):
        return statistics.mean(
            np.log(found["native" if B * R**2 >= bound else "cpu"]
                   / min(found["native"], found["cpu"])) for (B, _, R), found in times.items())

    losses = {bound: float(loss(bound)) for bound in (1 << k for k in range(6, 31))}
    return min(losses, key=losses.get), losses


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, metavar="B")
    parser.add_argument("--labels", type=int, nargs="+", default=LABELS, metavar="R")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, metavar="T")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("This benchmark needs a CUDA GPU, and PyTorch finds none.")
    if not has_package("pytorch-crf"):
        sys.exit("This benchmark compares with pytorch-crf: pip install pytorch-crf.")
    if min(options.lengths) < 2:
        sys.exit("torch-struct needs sequences of 2 positions: --lengths must be 2 or more.")
    device = torch.cuda.get_device_name() if options.device == "cuda" else "No GPU: times are void"
    print(f"{device}, {torch.get_num_threads()} threads. "
          f"{describe(environment('torch', 'pytorch-crf', 'torch-struct'))}\n", flush=True)
    rows, times = [], {}
    for T in options.lengths:
        for R in options.labels:
            for B in options.batches:
                errors, found = run(B, T, R, options)
                times[B, T, R] = found
                print(B, T, R, found, file=sys.stderr, flush=True)
                rows.append((
                    f"{B} x {T} x {R}", *(f"{found[name]:.3g}" if name in found else "-"
                                          for name in NAMES),
                    *(f"{errors[name]:.0e}" if errors.get(name) is not None else "-"
                      for name in NAMES)))
    print(rows_of(
        ("sequences x positions x labels", *NAMES, *(f"error of {name}" for name in NAMES)), rows))
    print('Smallest batch from which on "native" is faster than "cpu":\n')
    print(rows_of(("positions", "labels", "sequences", 'sequences by the bound of "auto"'), [
        (T, R, break_even(times, T, R), -(-NATIVE_WORK // R**2))
        for T in options.lengths for R in options.labels]))
    best, losses = best_bound(times)
    print(f"The bound of B R^2 that loses least is {best} (a factor of {np.exp(losses[best]):.3f} "
          f'beside the faster policy of each batch); that of "auto" is {NATIVE_WORK} '
          f"({np.exp(losses[NATIVE_WORK]):.3f}).")


if __name__ == "__main__":
    main()
