"""Momentum where weights are millions: fits of sparse sequences with it, without it, and by auto.

    FASTM4N_DATA=... python benchmarks/momentum.py [--every 3] [--repeats 3]

CoNLL-2000 with the attributes of CRFsuite's tutorial: chunks, and a task like that of named
entities, of rare chunks alone, all other tokens being outside. CPU seconds and passes of
`SequenceTagger` to a certified relative gap of 1e-3, one thread, medians, in turn; "without" makes
the steps that auto begins with. Prints a table.
"""

import argparse
import warnings

import numpy as np
from _peers import cpu
from conll2000 import read
from threadpoolctl import threadpool_limits

from fastm4n import BlockFrankWolfe, SequenceTagger, SequenceVectorizer

RARE = ("ADJP", "ADVP", "SBAR", "PRT")
STEPS = {
    "max_margin": {"step": "pairwise", "cache": 50}, "max_min": {"step": "line_search"},
    "log": {"step": "line_search"}}
HEAD = (
    "| task | surrogate | alpha n | auto: passes | CPU s | without: passes | CPU s "
    "| without / auto |\n|---|---|---|---|---|---|---|---|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--every", type=int, default=3, help="take every so many sentences")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    attributes, chunks = read("train")
    part = slice(0, None, given.every)
    X, chunks = SequenceVectorizer().fit_transform(list(attributes)[part]), chunks[part]
    rare = [[tag if tag[2:] in RARE else "O" for tag in tags] for tags in chunks]
    print(f"{len(X)} sentences\n\n{HEAD}")
    # the first fit of a process pays for its memory
    SequenceTagger(
        "max_margin", alpha=100.0 / len(X), tol=1e-3, random_state=0).fit(X, chunks)
    for task, y in (("chunks", chunks), ("rare chunks", rare)):
        for surrogate, steps in STEPS.items():
            for share in (100.0, 1.0, 0.01):
                solvers = "auto", BlockFrankWolfe(accelerate=False, **steps)
                found = [[], []]
                for _ in range(given.repeats):
                    for solver, of_solver in zip(solvers, found, strict=True):
                        model = SequenceTagger(
                            surrogate, alpha=share / len(X), solver=solver, tol=1e-3,
                            random_state=0)
                        seconds, model = cpu(lambda model=model, y=y: model.fit(X, y))
                        of_solver.append((seconds, model.n_iter_))
                (ours, passes), (plain, more) = np.median(found, axis=1)
                print(
                    f"| {task} | {surrogate} | {share:g} | {passes:.0f} | {ours:.2f} | {more:.0f} "
                    f"| {plain:.2f} | {plain / ours:.2f} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
