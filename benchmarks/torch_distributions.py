"""Entropies, divergences and samples of chains in PyTorch, next to torch-struct.

    python benchmarks/torch_distributions.py [--quick] [--repeats 3]

prints a Markdown table: milliseconds of CPU time of one thread for one batch in float32, medians,
the contestants in turn. Each call starts from emissions and transitions. Entropies and divergences
have gradients to both. torch-struct takes part where it is installed, and its values are compared
before the clock is started: entropies, divergences, and frequencies of sampled labels.
"""

import argparse
import warnings

import torch
from _peers import describe, environment, has_package, medians, table
from threadpoolctl import threadpool_limits
from torch.distributions import kl_divergence

from fastm4n.torch import ChainDistribution

# sequences, positions, labels
SHAPES = ((32, 50, 9), (32, 50, 26))
QUICK = ((4, 10, 5),)


class Case:
    """Two distributions, with transitions of their own."""

    def __init__(self, shape):
        generator = torch.Generator().manual_seed(0)
        R = shape[2]
        self.scores = [
            torch.randn(size, generator=generator).requires_grad_()
            for size in (shape, (R, R), shape, (R, R))]
        self.makers = {"fastm4n": ChainDistribution}
        if has_package("torch-struct"):
            from torch_struct import LinearChainCRF

            def theirs(emissions, transitions):
                # potentials of edges, next label first; those of the first position at its edge
                edges = emissions[:, 1:, :, None] + transitions.T[None, None]
                first = emissions[:, :1, None, :]
                return LinearChainCRF(torch.cat([edges[:, :1] + first, edges[:, 1:]], 1))

            self.makers["torch-struct"] = theirs

    def pair(self, name):
        make = self.makers[name]
        return make(*self.scores[:2]), make(*self.scores[2:])

    def values(self, name, what):
        p, q = self.pair(name)
        if name == "fastm4n":
            return p.entropy() if what == "entropy" else kl_divergence(p, q)
        return p.entropy if what == "entropy" else p.kl(q)

    def tasks(self):
        """Name of the task -> contestant -> function."""
        def step(name, what):
            torch.autograd.grad(
                self.values(name, what).sum(), self.scores[: 2 if what == "entropy" else 4])

        tasks = {
            what: {name: (lambda name=name, what=what: step(name, what)) for name in self.makers}
            for what in ("entropy", "divergence")}
        # as many labellings of each sequence as torch-struct draws in one pass
        tasks["10 samples of each"] = {
            name: (lambda make=make: make(*self.scores[:2]).sample((10,)))
            for name, make in self.makers.items()}
        return tasks

    def check(self, n=10):
        if len(self.makers) == 1:
            return
        for what in ("entropy", "divergence"):
            one, two = (self.values(name, what) for name in self.makers)
            if not torch.allclose(one, two, rtol=1e-3, atol=1e-3):
                raise AssertionError(f"torch-struct has another {what}: {one} and {two}")
        p, q = (make(*self.scores[:2]) for make in self.makers.values())
        ours = torch.nn.functional.one_hot(p.sample((n,))[..., 1:], p.n_labels).float().mean(0)
        # parts of edges, next label first
        theirs = q.sample((n,)).sum(-1).mean(0)
        for name, found in (("ours", ours), ("torch-struct's", theirs)):
            # a mean of squares whose expectation is the variance of a frequency
            marginals = p.marginals[:, 1:]
            share = ((found - marginals) ** 2).sum() / (marginals * (1 - marginals) / n).sum()
            if not 0.8 < share < 1.2:
                raise AssertionError(f"{name} samples have other frequencies: {share}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small batch")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=UserWarning, module="torch_struct")
    torch.manual_seed(0)
    rows = []
    with threadpool_limits(1):
        for shape in QUICK if args.quick else SHAPES:
            case = Case(shape)
            case.check()
            for task, functions in case.tasks().items():
                times = medians(functions, args.repeats)
                ratio = ""
                if "torch-struct" in times:
                    ratio = f"{times['torch-struct'] / times['fastm4n']:.0f}"
                rows.append((" x ".join(map(str, shape)), task, *(
                    f"{1e3 * times[name]:.3g}" if name in times else ""
                    for name in ("fastm4n", "torch-struct")), ratio))
    print(describe(environment("torch", "torch-struct")) + "\n")
    print(table(
        f"Entropies, divergences and samples (milliseconds, medians of {args.repeats})",
        ("sequences x positions x labels", "task", "fastm4n", "torch-struct",
         "torch-struct / fastm4n"), rows))


if __name__ == "__main__":
    main()
