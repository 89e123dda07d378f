"""Layers of sequences in PyTorch: training steps and best labellings in a loop, beside pytorch-crf.

    python benchmarks/torch_layers.py [--quick] [--repeats 15]

prints Markdown tables: milliseconds of CPU time of one thread, medians.  Calls are measured as
training makes them: one by one, between the forward and the backward pass of an LSTM over the same
batch, whose numbers fill the caches, the contestants in turn.  A step is the loss and its gradients
to emissions and parameters.  Half of the sequences are shorter than the longest.  Five calls are
measured where they take more than 20 seconds.  As in timeit, Python's garbage collector waits: its
milliseconds would fall on whoever is measured just then.

The second table has the share of the layer in an epoch of a tagger: embeddings, an LSTM, a linear
map, the layer, and Adam.

Losses and gradients are compared before the clock is started: in float64 they agree to 1e-10, and
the errors in float32 are printed.  pytorch-crf must be installed.
"""

import argparse
import copy
import gc
import itertools
import statistics
import sys
import time

import numpy as np
import torch
from _peers import describe, environment, table
from torchcrf import CRF as Peer

from fastm4n.torch import CRF

BATCHES, LENGTHS, LABELS = (1, 8, 32, 128), (20, 50, 200, 1000), (5, 9, 26, 100)
QUICK = ((2, 10, 5),)
# the shape that is in the middle of taggers, and least ratios: of it, of long sequences, of others
MIDDLE, TARGETS = (32, 50, 9), (25.0, 10.0, 5.0)
HIDDEN = 64
# bytes of the matrices that pytorch-crf keeps for its backward pass, several for each position
MEMORY = 2e9
# seconds after which five calls of each contestant suffice
ENOUGH = 20.0


class Network(torch.nn.Module):
    """Scores of labels at each position, by an LSTM."""

    def __init__(self, n_labels):
        super().__init__()
        self.lstm = torch.nn.LSTM(HIDDEN, HIDDEN // 2, bidirectional=True, batch_first=True)
        self.linear = torch.nn.Linear(HIDDEN, n_labels)

    def forward(self, x):
        return self.linear(self.lstm(x)[0])


def layers(R):
    """Our layer and pytorch-crf's, of the same parameters."""
    ours, peer = CRF(R, batch_first=True), Peer(R, batch_first=True)
    peer.load_state_dict(ours.state_dict())
    return {"fastm4n": ours, "pytorch-crf": peer}


def batch(B, T, R):
    x, tags = torch.randn(B, T, HIDDEN), torch.randint(R, (B, T))
    lengths = torch.randint(max(1, T // 2), T + 1, (B,))
    lengths[0] = T
    return x, tags, torch.arange(T) < lengths[:, None]


def check(found, emissions, tags, mask):
    """Largest error of losses and gradients in float32, ours and pytorch-crf's."""
    def parts(layer, dtype):
        layer = copy.deepcopy(layer).to(dtype)
        scores = emissions.detach().to(dtype).requires_grad_()
        value = layer(scores, tags, mask=mask)
        return [value.detach(), *torch.autograd.grad(value, [scores, *layer.parameters()])]

    def error(values, truth):
        return max(
            float((one - two).abs().max() / two.abs().max().clamp(min=1.0))
            for one, two in zip(values, truth, strict=True))

    exact = parts(found["fastm4n"], torch.float64)
    apart = error(parts(found["pytorch-crf"], torch.float64), exact)
    if apart > 1e-10:
        raise AssertionError(f"pytorch-crf has another loss or gradient: {apart} apart")
    scores = {name: layer.decode(emissions, mask=mask) for name, layer in found.items()}
    if scores["fastm4n"] != scores["pytorch-crf"]:
        # labellings of the same score in float32
        values = [
            found["fastm4n"](emissions, padded(rows, tags), mask=mask, reduction="none")
            for rows in scores.values()]
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-3)
    return [error(parts(layer, torch.float32), exact) for layer in found.values()]


def padded(rows, like):
    tags = torch.zeros_like(like)
    for b, row in enumerate(rows):
        tags[b, : len(row)] = torch.tensor(row)
    return tags


def measure(B, T, R, repeats):
    """Median milliseconds of a step and of a decoding of each layer, and errors."""
    torch.manual_seed(0)
    network, found = Network(R), layers(R)
    x, tags, mask = batch(B, T, R)
    errors = check(found, network(x).detach(), tags, mask)
    steps, decodes = ({name: [] for name in found} for _ in range(2))
    began = time.process_time()
    gc.collect()
    gc.disable()
    for repeat in range(repeats + 2):
        if repeat >= 7 and time.process_time() - began > ENOUGH:
            break
        for name, layer in found.items():
            scores = network(x)
            leaf = scores.detach().requires_grad_()
            start = time.process_time()
            value = layer(leaf, tags, mask=mask)
            value.backward()
            stop = time.process_time()
            # what was recorded is freed outside of the measured calls
            del value
            scores.backward(leaf.grad)
            layer.zero_grad(set_to_none=True)
            network.zero_grad(set_to_none=True)
            with torch.no_grad():
                scores = network(x)
                begin = time.process_time()
                layer.decode(scores, mask=mask)
                end = time.process_time()
            if repeat >= 2:
                steps[name].append(1e3 * (stop - start))
                decodes[name].append(1e3 * (end - begin))
    gc.enable()
    return *({name: statistics.median(of) for name, of in times.items()}
             for times in (steps, decodes)), errors


def share(R, repeats, n_batches=30):
    """Milliseconds of a batch in an epoch, and of its layer, of each contestant."""
    rows = []
    for name in ("fastm4n", "pytorch-crf"):
        torch.manual_seed(0)
        network, layer = Network(R), layers(R)[name]
        words = torch.nn.Embedding(1000, HIDDEN)
        optimizer = torch.optim.Adam(
            [p for part in (words, network, layer) for p in part.parameters()])
        data = [batch(32, 50, R)[1:] for _ in range(n_batches)]
        inputs = [torch.randint(1000, tags.shape) for tags, _ in data]
        whole, own = [], []
        for _ in range(max(2, repeats // 3)):
            of_layer, start = 0.0, time.process_time()
            for x, (tags, mask) in zip(inputs, data, strict=True):
                optimizer.zero_grad()
                scores = network(words(x))
                leaf = scores.detach().requires_grad_()
                begin = time.process_time()
                (-layer(leaf, tags, mask=mask)).backward()
                of_layer += time.process_time() - begin
                scores.backward(leaf.grad)
                optimizer.step()
            whole.append(time.process_time() - start)
            own.append(of_layer)
        whole, own = (1e3 * statistics.median(of) / n_batches for of in (whole, own))
        rows.append((R, name, f"{whole:.2f}", f"{own:.2f}", f"{100 * own / whole:.0f} %"))
    return rows


def verdict(shape, ratio):
    """Whether a ratio is at least what we ask for."""
    middle, long, short = TARGETS
    target = middle if shape == MIDDLE else long if shape[1] >= 50 else short
    return "" if ratio >= target else f"short of {target:g}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small batch")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (3 if args.quick else 15)
    torch.set_num_threads(1)
    shapes = QUICK if args.quick else tuple(itertools.product(BATCHES, LENGTHS, LABELS))
    rows, left_out = [], []
    for shape in shapes:
        B, T, R = shape
        name = " x ".join(map(str, shape))
        if 4.0 * B * T * R * R > MEMORY:
            left_out.append(name)
            continue
        steps, decodes, errors = measure(*shape, repeats)
        cells = [name]
        for times in (steps, decodes):
            ours, peer = times["fastm4n"], times["pytorch-crf"]
            cells += [f"{ours:.3g}", f"{peer:.3g}", f"{peer / ours:.1f}",
                      verdict(shape, peer / ours)]
        rows.append((*cells, *(f"{error:.0e}" for error in errors)))
        print(*cells, file=sys.stderr)
    print(describe(environment("torch", "pytorch-crf")) + "\n")
    print(table(
        f"Steps and best labellings in a loop (milliseconds, medians of {repeats})",
        ("sequences x positions x labels", "step", "pytorch-crf", "ratio", "", "decode",
         "pytorch-crf", "ratio", "", "error of a step", "of pytorch-crf"), rows))
    if left_out:
        print(f"Left out, as pytorch-crf would keep too much: {', '.join(left_out)}.\n")
    for at, what in ((3, "step"), (7, "decode")):
        ratios = np.array([float(row[at]) for row in rows])
        print(f"Ratios of a {what}: {ratios.min():.1f} to {ratios.max():.0f}, median "
              f"{np.median(ratios):.0f}.")
    print("\n" + table(
        f"An epoch of a tagger, 32 x 50 (milliseconds of a batch, medians of "
        f"{max(2, repeats // 3)} epochs)",
        ("labels", "layer", "batch", "of the layer", "share"),
        [row for R in ((5,) if args.quick else (9, 26)) for row in share(R, repeats)]))


if __name__ == "__main__":
    main()
