"""Linear assignment of tensors: `fastm4n.torch.assignment` against scipy and its wrappers.

    python benchmarks/torch_assignment.py [--quick] [--repeats 15]

prints Markdown tables: milliseconds of CPU time of one thread for one batch of float32 tensors,
medians, the contestants taking turns.  scipy's solver takes one problem after another;
torch-linear-assignment (on the CPU scipy in a loop) and the batch solvers of lapx, in float64 and
one thread, take part where they are installed.  The target is a ratio to the first two of them.
Every total is compared with scipy's before the clock is started.

The second table has the matcher of DETR: the queries of each image against the targets of all of
them, whose numbers differ.  Its loop over images with scipy's solver is compared with one call.
Each is also timed cold, call by call, each after a pass forward and backward of a network.
"""

import argparse
import itertools
import statistics

import numpy as np
import torch
from _peers import cpu, describe, environment, has_package, medians, table
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from fastm4n.torch import assignment

# problems, rows, columns; the first is the matching of 100 objects to 300 queries
SHAPES = ((64, 100, 300), (64, 300, 100), (8, 20, 300), (64, 20, 20), (16, 200, 200))
QUICK = ((8, 100, 300), (8, 20, 20))
FAMILIES = ("uniform", "boxes", "ties")
TARGET_SHAPE, TARGET = SHAPES[0], 3.0
TOLERANCE = 1e-5
# queries, mean number of targets of an image, images
QUERIES, TARGETS, IMAGES = (100, 300, 900), (3, 10, 30), (2, 8, 32)


def costs_of(family, B, M, N):
    """(B, M, N) costs in float32."""
    rng = np.random.default_rng(0)
    if family == "uniform":
        return rng.random((B, M, N), dtype=np.float32)
    if family == "ties":
        return rng.integers(0, 10, (B, M, N)).astype(np.float32)
    # l1 distances of boxes, and a score of each query, as detectors match them
    boxes, queries = rng.random((B, M, 1, 4)), rng.random((B, 1, N, 4))
    return (5 * np.abs(boxes - queries).sum(3) - rng.random((B, 1, N))).astype(np.float32)


def scipy_loop(costs):
    return [
        tuple(map(torch.from_numpy, linear_sum_assignment(cost.numpy()))) for cost in costs
    ]


def pairs(rows, columns):
    return list(zip(rows, columns, strict=True))


def contestants():
    """Name -> function of a batch; all but the first return a list of pairs, or columns."""
    found = {"fastm4n": assignment, "scipy": scipy_loop}
    if has_package("torch-linear-assignment"):
        from torch_linear_assignment import batch_linear_assignment

        found["torch-linear-assignment"] = batch_linear_assignment
    if has_package("lapx"):
        import lap

        options = {"extend_cost": True, "return_cost": False, "n_threads": 1}
        found["lapjvr_batch"] = lambda costs: pairs(
            *lap.lapjvr_batch(costs.double().numpy(), **options))
        found["lapjvh_batch"] = lambda costs: pairs(
            *lap.lapjvh_batch(costs.double().numpy(), **options))
    return found


def totals(costs, found):
    """Total cost of each problem, of whatever a contestant returns."""
    values = []
    for b, cost in enumerate(costs.double().numpy()):
        if isinstance(found, tuple):
            rows, columns = found[0][b], found[1][b]
        elif isinstance(found[b], tuple):
            rows, columns = found[b]
        else:
            columns = np.asarray(found[b])
            rows = np.flatnonzero(columns >= 0)
            columns = columns[rows]
        values.append(cost[np.asarray(rows), np.asarray(columns)].sum())
    return np.array(values)


def run(family, shape, repeats):
    """Milliseconds a batch of each contestant."""
    costs = torch.from_numpy(costs_of(family, *shape))
    solvers = contestants()
    optimum = totals(costs, solvers["scipy"](costs))
    for name, solve in solvers.items():
        np.testing.assert_allclose(
            totals(costs, solve(costs)), optimum, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
    functions = {name: (lambda solve=solve: solve(costs)) for name, solve in solvers.items()}
    return {name: 1e3 * value for name, value in medians(functions, repeats).items()}


def detections(n_queries, n_targets, n_images):
    """Costs (images, queries, targets of all images) in float32, and numbers of targets."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 2 * n_targets, n_images).tolist()
    boxes, queries = rng.random((sum(sizes), 4)), rng.random((n_images, n_queries, 1, 4))
    costs = 5 * np.abs(boxes - queries).sum(3) - rng.random((n_images, n_queries, 1))
    return torch.from_numpy(costs.astype(np.float32)), sizes


def matcher_of_detr(costs, sizes):
    indices = [linear_sum_assignment(c[i]) for i, c in enumerate(costs.split(sizes, -1))]
    return [
        (torch.as_tensor(i, dtype=torch.int64), torch.as_tensor(j, dtype=torch.int64))
        for i, j in indices]


def matched_totals(costs, sizes, found):
    return [
        c[i][rows, columns].double().sum().item()
        for i, (c, (rows, columns)) in enumerate(
            zip(costs.split(sizes, -1), found, strict=True))]


def cold_medians(functions, repeats):
    """Median CPU seconds of single calls in turn, each between passes of a network."""
    network = torch.nn.Sequential(
        torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256))
    x, times = torch.randn(512, 256), {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            network(x).square().sum().backward()
            times[name].append(cpu(function)[0])
    return {name: statistics.median(values) for name, values in times.items()}


def run_matcher(shape, repeats):
    """Microseconds of a batch, hot and cold, of each contestant."""
    costs, sizes = detections(*shape)
    functions = {
        "fastm4n": lambda: assignment(costs, sizes=sizes),
        "scipy": lambda: matcher_of_detr(costs, sizes)}
    one, other = (matched_totals(costs, sizes, solve()) for solve in functions.values())
    np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE)
    return [
        {name: 1e6 * value for name, value in found.items()}
        for found in (medians(functions, repeats, least=0.002), cold_medians(functions, repeats))]


def matcher_rows(repeats, shapes):
    """Rows of the second table."""
    for shape in shapes:
        times = run_matcher(shape, repeats)
        yield (
            " x ".join(map(str, shape)),
            *(f"{t:.0f}" for found in times for t in found.values()),
            *(f"{found['scipy'] / found['fastm4n']:.2f}" for found in times))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller problems")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (3 if args.quick else 15)
    torch.set_num_threads(1)
    rows, peers = [], [name for name in contestants() if name != "fastm4n"]
    with threadpool_limits(1):
        for shape in QUICK if args.quick else SHAPES:
            for family in FAMILIES:
                times = run(family, shape, repeats)
                ours, fastest = times["fastm4n"], min(times[name] for name in peers)
                # the target is what users of tensors call today
                today = min(times[name] for name in peers if not name.startswith("lapjv"))
                target = "" if shape != TARGET_SHAPE else (
                    f"≥ {TARGET:g}: {'met' if today / ours >= TARGET else '**missed**'}")
                rows.append((
                    " x ".join(map(str, shape)), family, *(f"{t:.3g}" for t in times.values()),
                    f"{times['scipy'] / ours:.2f}", f"{fastest / ours:.2f}", target))
    print(describe(environment("scipy", "torch", "torch-linear-assignment", "lapx")) + "\n")
    print(table(
        f"Batches of assignments in float32 (milliseconds, medians of {repeats})",
        ("problems x rows x columns", "costs", *contestants(), "scipy / fastm4n",
         "fastest peer / fastm4n", "target"), rows))
    with threadpool_limits(1):
        shapes = list(itertools.product(QUERIES, TARGETS, IMAGES))
        rows = list(matcher_rows(repeats, shapes[::9] if args.quick else shapes))
    print(table(
        f"The matcher of DETR (microseconds, medians of {repeats})",
        ("queries x targets x images", "fastm4n", "scipy", "fastm4n, cold", "scipy, cold",
         "scipy / fastm4n", "the same, cold"), rows))


if __name__ == "__main__":
    main()
