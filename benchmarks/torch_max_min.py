"""Max-min losses of sequences in PyTorch: tolerance against time, beside the log loss.

    python benchmarks/torch_max_min.py [--quick] [--repeats 15]

prints Markdown tables: milliseconds of CPU time of one thread for the losses of 32 sequences of 50
positions in float32 with their gradients, medians, the contestants taking turns. Figures in
parentheses are times of the log loss on the same batch. Scores are those of untrained networks,
N(0, 0.1) or N(0, 1), with transitions in -0.1 ... 0.1, and such as those of trained ones: the true
labels' are larger by 6, and all others N(0, 1.5). The limit is the oracle without a relative
tolerance, which takes a tenth of the repeats: it stops at a difference of 1e-6 of the bounds, or at
its limit of calls. Its error is half of the relative difference of its bounds. The targets are 20
times the log loss at 1 % and 50 times at 0.1 %.
"""

import argparse

import torch
from _peers import describe, environment, medians, table
from threadpoolctl import threadpool_limits

from fastm4n.torch import ChainLoss

B, T = 32, 50
LABELS = (5, 9, 26)
SCORES = ("N(0, 0.1)", "N(0, 1)", "trained")
COSTS = ("0-1", "random")
TOLERANCES = {1e-2: 20.0, 1e-3: 50.0, 1e-4: None}


def batch(R, kind):
    """Emissions, tags and transitions."""
    generator = torch.Generator().manual_seed(0)
    tags = torch.randint(R, (B, T), generator=generator)
    emissions = torch.randn(B, T, R, generator=generator)
    transitions = torch.rand(R, R, generator=generator) * 0.2 - 0.1
    if kind == "N(0, 0.1)":
        emissions *= 0.1
    elif kind == "trained":
        emissions = 1.5 * emissions + 6.0 * torch.nn.functional.one_hot(tags, R)
        transitions = 1.5 * torch.randn(R, R, generator=generator)
    return emissions.requires_grad_(), tags, transitions


def cost_of(R, kind):
    if kind == "0-1":
        return "zero_one"
    cost = 0.2 + 0.8 * torch.rand(R, R, generator=torch.Generator().manual_seed(1))
    return cost.fill_diagonal_(0.0)


def layers(R, transitions, cost, cost_scale):
    """Layers by tolerance: None for log, 0 for the oracle without a relative one."""
    options = {"reduction": "sum", "start_end": False}
    found = {None: ChainLoss(R, "log", **options)}
    for rtol in (*TOLERANCES, 0.0):
        found[rtol] = ChainLoss(
            R, "max_min", cost=cost, cost_scale=cost_scale, rtol=rtol, **options)
    for layer in found.values():
        with torch.no_grad():
            layer.transitions.copy_(transitions)
    return found


def run(R, kind, cost, cost_scale, repeats):
    emissions, tags, transitions = batch(R, kind)
    by_tolerance = layers(R, transitions, cost_of(R, cost), cost_scale)
    steps = {
        rtol: (lambda layer=layer: layer(emissions, tags).backward())
        for rtol, layer in by_tolerance.items()}
    limit = steps.pop(0.0)
    times = {**medians(steps, repeats), **medians({0.0: limit}, max(1, repeats // 10))}
    row = [R, kind, cost, cost_scale, f"{1e3 * times[None]:.2f}"]
    for rtol in (*TOLERANCES, 0.0):
        lower, upper = by_tolerance[rtol].certificate(emissions, tags)
        gap = float((upper - lower).sum() / lower.sum().clamp(min=1e-12))
        ratio, target = times[rtol] / times[None], TOLERANCES.get(rtol)
        met = "" if target is None else ", met" if ratio <= target else ", short"
        row.append(f"{1e3 * times[rtol]:.3g} ({ratio:.0f}{met})")
        if rtol == 0.0:
            row.append(f"{gap:.0e}")
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 labels, one kind of scores")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (3 if args.quick else 15)
    torch.set_num_threads(1)
    rows = []
    with threadpool_limits(1):
        for R in LABELS[:1] if args.quick else LABELS:
            for kind in SCORES[:1] if args.quick else SCORES:
                rows.append(run(R, kind, "0-1", "sum", repeats))
                if not args.quick:
                    rows.append(run(R, kind, "random", "sum", repeats))
        if not args.quick:
            rows.append(run(9, "N(0, 1)", "0-1", "mean", repeats))
    print(describe(environment("torch")) + "\n")
    print(table(
        f"Loss and gradients (milliseconds, medians of {repeats})",
        ("labels", "scores", "cost", "cost_scale", "log", "1 %", "0.1 %", "0.01 %", "limit",
         "bounds of the limit apart"), rows))


if __name__ == "__main__":
    main()
