"""Layers of sequences in PyTorch: losses with gradients, and best labellings, beside pytorch-crf.

    python benchmarks/torch_layers.py [--quick] [--repeats 15]

prints Markdown tables: milliseconds of CPU time of one thread for one batch of sequences, medians,
the contestants taking turns.  A step is the loss and its gradients to emissions and parameters.
pytorch-crf and torch-struct take part where they are installed, the latter and max-min, which take
seconds, in the first shapes and a fifth of the repeats.  Errors are the largest
of loss and gradients, relative to their scale, beside ours in float64, which are compared with
pytorch-crf's in float64 as well; labels are compared before the clock is started.  The targets are
80 times pytorch-crf for a step and 200 times for decoding, in float32.
"""

import argparse
import copy
import warnings

import torch
from _peers import describe, environment, has_package, medians, table
from threadpoolctl import threadpool_limits

from fastm4n.torch import ChainLoss

# sequences, positions, labels
SHAPES = ((32, 50, 9), (32, 50, 26), (32, 50, 5), (8, 20, 9), (128, 100, 26))
QUICK = ((4, 10, 9),)
TARGETS = {"step": 80.0, "decode": 200.0}
TARGET_SHAPES = SHAPES[:2]
SURROGATES = ("log", "max_margin", "max_min")


class Case:
    """Emissions, tags and a mask, half of the sequences being shorter than the longest."""

    def __init__(self, shape, dtype, masked):
        B, T, R = shape
        generator = torch.Generator().manual_seed(0)
        self.emissions = torch.randn(
            shape, generator=generator, dtype=dtype).requires_grad_()
        self.tags = torch.randint(R, (B, T), generator=generator)
        lengths = torch.randint(T // 2, T + 1, (B,), generator=generator)
        lengths[0] = T
        self.mask = torch.arange(T) < lengths[:, None] if masked else None
        self.ours = {
            surrogate: ChainLoss(R, surrogate, reduction="sum").to(dtype)
            for surrogate in SURROGATES}
        state = self.ours["log"].state_dict()
        for layer in self.ours.values():
            layer.load_state_dict(state)
        self.crf = None
        if has_package("pytorch-crf"):
            from torchcrf import CRF

            self.crf = CRF(R, batch_first=True).to(dtype)
            self.crf.load_state_dict(state)

    def steps(self):
        """Name -> a loss and its gradients, those of all surrogates, and of the peers."""
        found = {
            name: (lambda layer=layer: layer(self.emissions, self.tags, self.mask).backward())
            for name, layer in self.ours.items() if name != "max_min"}
        if self.crf is not None:
            found["pytorch-crf"] = lambda: (
                -self.crf(self.emissions, self.tags, mask=self.mask)).backward()
        return found

    def slow_steps(self):
        layer = self.ours["max_min"]
        found = {"max_min": lambda: layer(self.emissions, self.tags, self.mask).backward()}
        if has_package("torch-struct") and self.mask is None:
            found["torch-struct"] = self._torch_struct()
        return found

    def _torch_struct(self):
        from torch_struct import LinearChainCRF

        transitions = self.ours["log"].transitions

        def step():
            # potentials of edges, next label first; those of the first position at its edge
            scores = (
                self.emissions[:, 1:, :, None] + transitions.T[None, None])
            first = self.emissions[:, :1, None, :]
            scores = torch.cat([scores[:, :1] + first, scores[:, 1:]], 1)
            LinearChainCRF(scores).partition.sum().backward()

        return step

    def decoders(self):
        found = {"log": lambda: self.ours["log"].decode(self.emissions, self.mask)}
        if self.crf is not None:
            found["pytorch-crf"] = lambda: self.crf.decode(self.emissions, mask=self.mask)
        return found

    def check(self):
        """Largest errors of losses and gradients, ours and pytorch-crf's, and of labels."""
        if self.crf is None:
            return None
        names = ("transitions", "start_transitions", "end_transitions")

        def parts(model, sign, dtype):
            model = copy.deepcopy(model).to(dtype)
            emissions = self.emissions.detach().to(dtype).requires_grad_()
            value = sign * model(emissions, self.tags, self.mask)
            return [value.detach(), *torch.autograd.grad(
                value, [emissions, *(getattr(model, name) for name in names)])]

        def error(found, truth):
            return max(
                float((one - two).abs().max() / two.abs().max().clamp(min=1.0))
                for one, two in zip(found, truth))

        exact = parts(self.ours["log"], 1.0, torch.float64)
        apart = error(parts(self.crf, -1.0, torch.float64), exact)
        if apart > 1e-12:
            raise AssertionError(f"pytorch-crf has another loss or gradient: {apart} apart")
        worst = [
            error(parts(model, sign, self.emissions.dtype), exact)
            for model, sign in ((self.ours["log"], 1.0), (self.crf, -1.0))]
        rows = self.crf.decode(self.emissions, mask=self.mask)
        best = self.ours["log"].decode(self.emissions, self.mask)
        same = all(
            best.tags[b, : len(row)].tolist() == row for b, row in enumerate(rows))
        return *worst, same


def run(shape, dtype, masked, repeats):
    case = Case(shape, dtype, masked)
    checked = case.check()
    times = {
        "step": medians(case.steps(), repeats), "decode": medians(case.decoders(), repeats)}
    if shape in TARGET_SHAPES and dtype == torch.float32:
        times["step"].update(medians(case.slow_steps(), max(1, repeats // 5)))
    return checked, times


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small batch")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (3 if args.quick else 15)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "where received a uint8 condition tensor")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch_struct")
    columns = (*SURROGATES, "pytorch-crf", "torch-struct")
    steps, decodes = [], []
    with threadpool_limits(1):
        for shape in QUICK if args.quick else SHAPES:
            for dtype in (torch.float32, torch.float64):
                for masked in (False, True):
                    if masked and shape not in TARGET_SHAPES:
                        continue
                    checked, times = run(shape, dtype, masked, repeats)
                    name = (" x ".join(map(str, shape)), str(dtype).removeprefix("torch."),
                            "half to whole" if masked else "whole")
                    steps.append((*name, *(
                        f"{1e3 * times['step'][key]:.3g}" if key in times["step"] else ""
                        for key in columns), *compared(shape, dtype, "step", times["step"]),
                        *(("", "") if checked is None or dtype == torch.float64
                          else (f"{checked[0]:.0e}", f"{checked[1]:.0e}"))))
                    decodes.append((*name, *(
                        f"{1e3 * times['decode'][key]:.3g}" if key in times["decode"] else ""
                        for key in ("log", "pytorch-crf")),
                        *compared(shape, dtype, "decode", times["decode"]),
                        "" if checked is None else "same" if checked[2] else "ties apart"))
    print(describe(environment("torch", "pytorch-crf", "torch-struct")) + "\n")
    head = ("sequences x positions x labels", "dtype", "lengths")
    print(table(
        f"Loss and gradients (milliseconds, medians of {repeats})",
        (*head, *columns, "pytorch-crf / log", "target", "error of log", "of pytorch-crf"), steps))
    print(table(
        f"Best labellings (milliseconds, medians of {repeats})",
        (*head, "decode", "pytorch-crf", "ratio", "target", "labels"), decodes))


def compared(shape, dtype, what, times):
    """Ratio to pytorch-crf, and whether it is what is asked for."""
    if "pytorch-crf" not in times:
        return "", ""
    ratio = times["pytorch-crf"] / times["log"]
    target = TARGETS[what]
    if shape not in TARGET_SHAPES or dtype != torch.float32:
        return f"{ratio:.0f}", ""
    return f"{ratio:.0f}", f"≥ {target:g}: {'met' if ratio >= target else 'short'}"


if __name__ == "__main__":
    main()
