"""Lines of handwritten digits: one network, with and without a loss of whole lines.

    python examples/torch_digits.py

What is learned: scikit-learn's `load_digits` holds 1,797 images of digits, which its writers wrote
in much the same order.  Cut into lines of eleven, that order is a structure to learn.  A small
convolutional network scores each image.  It is trained four times: by the cross-entropy of single
images, and by `ChainLoss` with each of its three surrogates, which adds scores of what follows
what.  The last 43 lines are the test set; other people wrote them.

Three tasks: the images as they are; with noise on the pixels, new in every epoch, which makes
neighbours worth more; and noise with all images in random order, where there is no structure and a
chain cannot help.

What it needs: PyTorch and scikit-learn, no other data.  How long it takes: two to three minutes
for the five seeds on one thread.  --quick takes a few seconds, and its scores mean nothing.
"""

import argparse
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from fastm4n.torch import ChainLoss

LENGTH, N_TRAIN, SIDE, N_LABELS = 11, 120, 8, 10
SURROGATES = ("log", "max_margin", "max_min")


def lines(shuffled, seed):
    """Images (163, 11, 64) and labels (163, 11)."""
    images, digits = load_digits(return_X_y=True)
    n = len(digits) // LENGTH * LENGTH
    images, digits = torch.tensor(images[:n] / 16, dtype=torch.float32), torch.tensor(digits[:n])
    if shuffled:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        images, digits = images[order], digits[order]
    return images.reshape(-1, LENGTH, SIDE * SIDE), digits.reshape(-1, LENGTH)


def with_noise(images, noise):
    return images + noise * torch.randn_like(images)


class Network(nn.Module):
    """Scores of the digits for each image of each line."""

    def __init__(self, channels, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Dropout(dropout), nn.Linear(2 * channels * SIDE * SIDE // 4, N_LABELS))

    def forward(self, images):
        return self.layers(images.reshape(-1, 1, SIDE, SIDE)).reshape(*images.shape[:2], N_LABELS)


class Positions(nn.Module):
    """The cross-entropy of single positions, with the methods of `ChainLoss` that are used here."""

    def forward(self, emissions, tags):
        return nn.functional.cross_entropy(emissions.flatten(0, 1), tags.flatten())

    def decode(self, emissions):
        return emissions.argmax(dim=-1)


class Chain(ChainLoss):
    """`ChainLoss` as a mean over positions."""

    def __init__(self, surrogate):
        super().__init__(N_LABELS, surrogate, reduction="token_mean", tol=1e-3)

    def decode(self, emissions):
        return super().decode(emissions).tags


LOSSES = {"cross-entropy": Positions, **{
    f"ChainLoss, {name}": lambda name=name: Chain(name) for name in SURROGATES}}


def run(make, noise, shuffled, seed, args):
    """(Per cent of the digits that are right, of the lines, and seconds of training)."""
    X, y = lines(shuffled, seed)
    torch.manual_seed(seed)
    network, loss_of = Network(args.channels, args.dropout), make()
    # scores of transitions are few and begin near zero: they may take longer steps
    optimizer = torch.optim.Adam([{"params": network.parameters()}], lr=args.lr)
    if list(loss_of.parameters()):
        optimizer.add_param_group({"params": loss_of.parameters(), "lr": 10 * args.lr})
    start = time.perf_counter()
    for _ in range(args.epochs):
        network.train()
        for rows in torch.randperm(N_TRAIN).split(args.batch):
            optimizer.zero_grad()
            loss_of(network(with_noise(X[rows], noise)), y[rows]).backward()
            optimizer.step()
    seconds = time.perf_counter() - start
    network.eval()
    torch.manual_seed(seed)  # the same noise on the test set for all losses
    with torch.no_grad():
        right = loss_of.decode(network(with_noise(X[N_TRAIN:], noise))) == y[N_TRAIN:]
    return (
        100 * right.double().mean().item(), 100 * right.all(dim=1).double().mean().item(), seconds)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=5, help="how many: 0, 1, ...")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=10, help="lines")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--noise", type=float, default=0.5, help="on pixels of 0 ... 1")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="one seed, one epoch")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.seeds, args.epochs = 1, 1
    print(f"{N_TRAIN} lines of training, 43 of test; mean (and deviation) of {args.seeds} seed(s)")
    for title, noise, shuffled in (
        ("images as they are", 0.0, False), (f"noise of {args.noise:g}", args.noise, False),
        (f"noise of {args.noise:g}, in random order", args.noise, True),
    ):
        print(f"\n{title}")
        for name, make in LOSSES.items():
            found = np.array([
                run(make, noise, shuffled, seed, args) for seed in range(args.seeds)])
            (digits, whole, seconds), (spread, spread_whole, _) = found.mean(0), found.std(0)
            print(f"  {name:22} digits {digits:.2f} % ({spread:.2f}), whole lines {whole:.1f} % "
                  f"({spread_whole:.1f}), {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
