"""From a certified linear model to a network that begins at its optimum.

    python examples/torch_from_convex.py

What is learned: lines of eleven handwritten digits, in the order of scikit-learn's `load_digits`.
Half of the images, drawn at random, are negatives: a linear model cannot read both kinds, and a
small network can.

1. `SequenceTagger` fits a linear model, convex, to a certified gap: no linear model can have an
   objective below its dual bound.
2. `from_tagger` makes a `ChainLoss` and a linear map of it.  Predictions are the same, and so is
   the objective, to rounding; the script checks both.
3. A small convolutional network whose last layer is zero is put beside the linear map.  The sum
   begins at the certified optimum, all of it is trained, and the best state is kept: the objective
   is never above that optimum.  What is gained below the dual bound no linear model has.
4. The linear map alone is trained on with noise on the pixels, and `to_tagger` makes it a tagger
   again, which is saved and read back.

What it needs: PyTorch.  How long it takes: about a minute on one thread.  --quick takes a few
seconds.
"""

import argparse
import copy
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from torch import nn

from fastm4n import Sequences, SequenceTagger, load_model, save_model
from fastm4n.torch import from_tagger, to_tagger

SURROGATES = ("log", "max_margin", "max_min")
LENGTH, N_TRAIN, SIDE = 11, 120, 8
# most passes of the linear fit: one of "max_min" takes longest
PASSES = {"log": 1000, "max_margin": 1000, "max_min": 40}


def lines(negatives, seed):
    """Lines of digits, a share of them negatives: tensors of shape (163, 11, 64), (163, 11)."""
    images, digits = load_digits(return_X_y=True)
    n = len(digits) // LENGTH * LENGTH
    images = torch.tensor(images[:n] / 16)
    negative = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed)) < negatives
    images = torch.where(negative, 1 - images, images)
    return images.reshape(-1, LENGTH, SIDE * SIDE), torch.tensor(digits[:n]).reshape(-1, LENGTH)


def as_sequences(batch):
    """A tensor of lines as what `SequenceTagger` takes."""
    flat = batch.flatten(0, 1).numpy()
    return Sequences.from_lengths(flat, [LENGTH] * len(batch))


def penalty(layer, linear):
    """The squared norm of all weights of the linear model."""
    return sum(part.square().sum() for part in (*layer.parameters(), *linear.parameters()))


class Residual(nn.Module):
    """Scores of the linear map, plus those of a network that says nothing at first."""

    def __init__(self, linear, channels):
        super().__init__()
        self.linear = linear
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten())
        self.scores = nn.Linear(2 * channels * SIDE * SIDE // 4, linear.out_features)
        self.to(linear.weight.dtype)
        nn.init.zeros_(self.scores.weight)
        nn.init.zeros_(self.scores.bias)

    def forward(self, images):
        found = self.scores(self.features(images.reshape(-1, 1, SIDE, SIDE)))
        return self.linear(images) + found.reshape(*images.shape[:2], -1)


def descend(objective, modules, steps, lr):
    """Steps of Adam, ever shorter; modules end at their best. Objectives before each step."""
    optimizer = torch.optim.Adam([p for module in modules for p in module.parameters()], lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
    values, best = [], None
    for step in range(steps + 1):
        optimizer.zero_grad()
        value = objective()
        if not values or value.item() < min(values):
            best = [copy.deepcopy(module.state_dict()) for module in modules]
        values.append(value.item())
        if step < steps:
            value.backward()
            optimizer.step()
            schedule.step()
    for module, state in zip(modules, best, strict=True):
        module.load_state_dict(state)
    return values


def accuracy(layer, emissions, y):
    return 100 * (layer.decode(emissions).tags == y).double().mean().item()


def run(surrogate, args):
    torch.manual_seed(args.seed)
    X, y = lines(args.negatives, args.seed)
    X_train, y_train, X_test, y_test = X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:]

    print(f"\n{surrogate}")
    start = time.perf_counter()
    tagger = SequenceTagger(
        surrogate, alpha=args.alpha, tol=args.tol, random_state=args.seed,
        max_iter=3 if args.quick else PASSES[surrogate])
    with warnings.catch_warnings():
        # the bound is one wherever the fit ends
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(as_sequences(X_train), as_sequences(y_train))
    print(f"  linear model: objective {tagger.primal_objective_:.6f}, dual bound "
          f"{tagger.dual_objective_:.6f}, {time.perf_counter() - start:.1f} s")

    layer, linear = from_tagger(tagger, dtype=torch.float64, tol=args.oracle_tol)
    with torch.no_grad():
        predicted = layer.decode(linear(X)).tags.numpy()
        assert all((tagger.classes_[line] == tags).all() for line, tags in zip(
            predicted, tagger.predict(as_sequences(X)), strict=True))
        loss = layer(linear(X_train), y_train).item()
        again = loss + args.alpha / 2 * penalty(layer, linear).item()
        lower, upper = layer.certificate(linear(X_train), y_train)
    off = tagger.primal_objective_ - again
    print(f"  as a layer: the same predictions, objective {again:.6f}, off by {off:.1e}")
    # losses of "max_min" are known between bounds, here and in the fit
    assert abs(off) <= 1e-9 + (upper - lower).mean().item() + (
        tagger.duality_gap_ if surrogate == "max_min" else 0.0)
    print(f"  test accuracy {accuracy(layer, linear(X_test), y_test):.2f} %, mean loss of training "
          f"{loss:.4f}, of test {layer(linear(X_test), y_test).item():.4f}")

    start = time.perf_counter()
    network = Residual(linear, args.channels)

    def objective():
        more = sum(part.square().sum() for part in network.scores.parameters())
        return layer(network(X_train), y_train) + args.alpha / 2 * (penalty(layer, linear) + more)

    values = descend(objective, [network, layer], args.steps, args.lr)
    final = objective().item()
    assert abs(values[0] - again) <= 1e-9 and final <= values[0]
    below = next((i for i, v in enumerate(values) if v < tagger.dual_objective_), None)
    print(f"  with a network: objective {values[0]:.6f} -> {final:.6f} in {args.steps} steps, "
          f"at most {max(values):.4f} on the way, {time.perf_counter() - start:.1f} s; below the "
          f"dual bound {'from step ' + str(below) if below is not None else 'never'}")
    emissions = network(X_test)
    print(f"  test accuracy {accuracy(layer, emissions, y_test):.2f} %, mean loss of training "
          f"{layer(network(X_train), y_train).item():.4f}, of test "
          f"{layer(emissions, y_test).item():.4f}")

    # the linear model once more, and back to a tagger
    layer, linear = from_tagger(tagger, dtype=torch.float64, tol=args.oracle_tol)
    optimizer = torch.optim.Adam([*layer.parameters(), *linear.parameters()], lr=args.lr / 10)
    for _ in range(args.steps // 5):
        noisy = X_train + args.noise * torch.randn_like(X_train)
        optimizer.zero_grad()
        (layer(linear(noisy), y_train) + args.alpha / 2 * penalty(layer, linear)).backward()
        optimizer.step()
    tuned = to_tagger(layer, linear, tagger)
    with tempfile.TemporaryDirectory() as folder:
        save_model(tuned, Path(folder) / "tuned.npz")
        read = load_model(Path(folder) / "tuned.npz")
    tags = layer.decode(linear(X_test)).tags.numpy()
    for model in (tuned, read):
        assert np.array_equal(model.classes_[tags], np.stack(
            list(model.predict(as_sequences(X_test)))))
    print(f"  linear, trained on with noise: test accuracy "
          f"{accuracy(layer, linear(X_test), y_test):.2f} %; the tagger made of it, and the one "
          "read back, predict the same")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--surrogates", nargs="*", default=SURROGATES, choices=SURROGATES)
    parser.add_argument("--negatives", type=float, default=0.5, help="share of the images")
    parser.add_argument("--alpha", type=float, default=1 / N_TRAIN)
    parser.add_argument("--tol", type=float, default=1e-3, help="relative gap of the linear fit")
    parser.add_argument("--oracle-tol", type=float, default=1e-2, help="of the layer's max_min")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--noise", type=float, default=0.1, help="on pixels of 0 ... 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few steps, a larger gap")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.steps, args.oracle_tol = 2, 0.1
    for surrogate in args.surrogates:
        run(surrogate, args)


if __name__ == "__main__":
    main()
