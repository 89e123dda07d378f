"""Linear assignment: against scipy and lapx, and from potentials of nearly the same costs.

    python benchmarks/assignment.py [--quick] [--repeats 5]

prints each section as a Markdown table and writes them to docs/results/assignment.md, and the figures to
benchmarks/results/assignment.json; with --quick (fewer and smaller problems, one repeat) it
prints alone. fastm4n takes a batch of dense float64 problems in one call; scipy's solver and
lapx's take one after another, or lapx its batch in one thread where it has such a function.
Every total is compared with scipy's before the clock is started. Times are CPU seconds of one
thread, medians, the contestants taking turns.
"""

import argparse
import json

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, has_package, medians, table, wrapped
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from fastm4n.inference import linear_assignment

# size: problems in a batch
BATCHES = {
    3: 10000, 5: 10000, 7: 10000, 10: 10000, 20: 4000, 50: 400, 100: 100, 200: 30, 300: 12, 500: 4,
    1000: 1,
}
SMALL = 20
SINGLES = 1000
# with --quick: this part of the problems, and no larger ones
QUICK_SHARE, QUICK_LARGEST = 8, 200
# least ratio to scipy of small problems; larger ones are held to the best peer
TARGETS = {3: 3.0, 5: 3.0, 7: 3.0, 10: 3.0, 20: 1.5}
LARGE_TARGET, WARM_TARGET = 1.0, 3.0
PERTURBATIONS = (1e-3, 1e-2)
TOLERANCE = 1e-9

FAMILIES = {
    "uniform": "Uniform costs",
    "ties": "Integer costs 0 ... 9: many ties",
    "products": "Costs i j of Machol and Wien",
}

INTRODUCTION = """# Linear assignment

Made by `python benchmarks/assignment.py`: CPU time of one thread, medians of {repeats},
contestants in turn in one run.
{run}

`fastm4n.inference.linear_assignment` takes a batch in one call.
`scipy.optimize.linear_sum_assignment` and `lap.lapjv` are called for one problem after another.
Other solvers of lapx take a batch, too, and run in one thread and in float64 here:
{others}. "Best of lapx" is the fastest of them and
`lapjv` in each row. Costs are dense, square and float64; of the last of the three families all
problems of a batch are the same. Totals agree with scipy's: the largest relative difference of any
contestant was {difference:.1g}. A ratio above one says that fastm4n is faster. Targets, the same
for all families, are ratios to scipy up to M = {small}, and to the fastest peer above.
"""


def costs_of(family, M, n_problems, seed=0):
    """(n_problems, M, M) costs; of ``"products"`` all problems are the same one."""
    rng = np.random.RandomState(seed)
    if family == "uniform":
        return rng.rand(n_problems, M, M)
    if family == "ties":
        return rng.randint(0, 10, (n_problems, M, M)).astype(np.float64)
    numbers = np.arange(1.0, M + 1)
    return np.tile(np.outer(numbers, numbers), (n_problems, 1, 1))


def lapx_solvers():
    """Name -> function of a batch, which returns the columns of each problem."""
    import lap

    one_thread = {"return_cost": False, "n_threads": 1}
    # it is float32 unless told
    double = {"prefer_float32": False}
    return {
        "lapjv": lambda costs: [lap.lapjv(cost, return_cost=False)[0] for cost in costs],
        "lapjvr_batch": lambda costs: lap.lapjvr_batch(costs, **one_thread)[1],
        "lapjvh_batch": lambda costs: lap.lapjvh_batch(costs, **one_thread)[1],
        "lapjvs_batch": lambda costs: lap.lapjvs_batch(costs, **double, **one_thread)[1],
    }


def solvers():
    found = {
        "fastm4n": lambda costs: linear_assignment(costs)[1],
        "scipy": lambda costs: [linear_sum_assignment(cost)[1] for cost in costs],
    }
    return found | (lapx_solvers() if has_package("lapx") else {})


def totals(costs, columns):
    return np.take_along_axis(costs, np.asarray(columns)[:, :, None], 2).sum(axis=(1, 2))


def difference(columns, costs, optimum, name):
    """Largest relative difference of the totals from `optimum`; stops if it is not rounding."""
    values = totals(costs, columns)
    np.testing.assert_allclose(values, optimum, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
    return float((np.abs(values - optimum) / np.maximum(1, np.abs(optimum))).max())


def run_cold(family, M, n_problems, repeats):
    """Microseconds a problem of each contestant."""
    costs = costs_of(family, M, n_problems)
    contestants = solvers()
    optimum = totals(costs, contestants["scipy"](costs))
    worst = max(
        difference(solve(costs), costs, optimum, f"{name}, {family}, M = {M}")
        for name, solve in contestants.items()
    )
    functions = {
        name: (lambda solve=solve: solve(costs)) for name, solve in contestants.items()
    }
    return {
        "family": family, "M": M, "problems": n_problems, "difference": worst,
        "microseconds": {
            name: 1e6 * value / n_problems for name, value in medians(functions, repeats).items()
        },
    }


def run_single(M, n_problems, repeats):
    """Microseconds of a call with one problem, the next one in each call."""
    costs = costs_of("uniform", M, n_problems)
    contestants = solvers()
    contestants["fastm4n"] = lambda costs: [linear_assignment(cost)[1] for cost in costs]
    functions = {
        name: (lambda solve=solve: solve(costs))
        for name, solve in contestants.items() if name in ("fastm4n", "scipy", "lapjv")
    }
    return {"M": M, "microseconds": {
        name: 1e6 * value / n_problems for name, value in medians(functions, repeats).items()
    }}


def run_warm(M, n_problems, repeats):
    """Microseconds a problem from the potentials of other costs, and without, for each distance."""
    rng = np.random.RandomState(1)
    costs = costs_of("uniform", M, n_problems)
    start = linear_assignment(costs, return_potentials=True)[3]
    entry = {"M": M, "problems": n_problems, "difference": 0.0, "microseconds": {}}
    for distance in PERTURBATIONS:
        near = costs * (1 + distance * rng.uniform(-1, 1, costs.shape))
        optimum = totals(near, [linear_sum_assignment(cost)[1] for cost in near])
        functions = {
            "cold": lambda: linear_assignment(near),
            "warm": lambda: linear_assignment(near, potentials=start),
            "warm, potentials": lambda: linear_assignment(
                near, potentials=start, return_potentials=True
            ),
        }
        for name, function in functions.items():
            found = difference(function()[1], near, optimum, f"{name}, {distance}, M = {M}")
            entry["difference"] = max(entry["difference"], found)
        entry["microseconds"][f"{distance:g}"] = {
            name: 1e6 * value / n_problems for name, value in medians(functions, repeats).items()
        }
    return entry


def micro(value):
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def verdict(ratio, target):
    return f"≥ {target:g}: {'met' if ratio >= target else '**missed**'}"


def cold_section(family, entries):
    rows = []
    for entry in entries:
        M, times = entry["M"], entry["microseconds"]
        ours, scipy = times["fastm4n"], times["scipy"]
        lapx = {name: value for name, value in times.items() if name not in ("fastm4n", "scipy")}
        best = min(lapx, key=lapx.get, default=None)
        fastest = min(scipy, lapx.get(best, np.inf))
        ratio, target = (
            (scipy / ours, TARGETS[M]) if M in TARGETS else (fastest / ours, LARGE_TARGET)
        )
        rows.append((
            f"{M:,}", f"{entry['problems']:,}", micro(ours), micro(scipy),
            micro(lapx["lapjv"]) if lapx else "-",
            f"{micro(lapx[best])} ({best})" if lapx else "-", f"{scipy / ours:.3g}",
            f"{lapx['lapjv'] / ours:.3g}" if lapx else "-", f"{fastest / ours:.3g}",
            verdict(ratio, target),
        ))
    head = ("M", "problems a call", "fastm4n", "scipy", "lapjv", "best of lapx",
            "scipy / fastm4n", "lapjv / fastm4n", "fastest peer / fastm4n", "target")
    return table(f"{FAMILIES[family]} (microseconds a problem)", head, rows)


def single_section(entries):
    head = ("M", *entries[0]["microseconds"])
    rows = [
        (f"{entry['M']:,}", *map(micro, entry["microseconds"].values()))
        for entry in entries
    ]
    return table("One problem a call, uniform costs (microseconds)", head, rows)


def warm_section(entries):
    rows = []
    for entry in entries:
        row = [f"{entry['M']:,}", f"{entry['problems']:,}"]
        for times in entry["microseconds"].values():
            ratio = times["cold"] / times["warm"]
            row += [*map(micro, times.values()), f"{ratio:.3g}", verdict(ratio, WARM_TARGET)]
        rows.append(row)
    head = ["M", "problems a call"]
    for distance in entries[0]["microseconds"]:
        head += [f"{distance}: cold", "warm", "with potentials", "cold / warm", "target"]
    title = "From the potentials of nearly the same costs (microseconds a problem)"
    return table(title, head, rows) + (
        "\nUniform costs, each multiplied by a number drawn between 1 - r and 1 + r, with r = "
        + " and ".join(entries[0]["microseconds"])
        + ".\nWarm starts from the column potentials that were returned for the costs before, cold "
        "from none;\n\"with potentials\" is warm and returns those to start from the next time.\n"
    )


def page(results):
    entries = results["cold"] + results["warm"]
    others = [name for name in results["cold"][0]["microseconds"] if name.startswith("lapjv")]
    intro = INTRODUCTION.format(
        repeats=results["repeats"], run=wrapped(describe(results["run"])), small=SMALL,
        others=", ".join(f"`{name}`" for name in others if name != "lapjv"),
        difference=max(entry["difference"] for entry in entries),
    )
    return [
        intro,
        *(
            cold_section(family, [e for e in results["cold"] if e["family"] == family])
            for family in FAMILIES
        ),
        single_section(results["single"]),
        warm_section(results["warm"]),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and smaller problems; print alone"
    )
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    repeats = args.repeats or (1 if args.quick else 5)
    batches = BATCHES if not args.quick else {
        M: n // QUICK_SHARE for M, n in BATCHES.items() if M <= QUICK_LARGEST
    }
    results = {"run": environment("scipy", "lapx"), "repeats": repeats}
    with threadpool_limits(1):
        results["cold"] = [
            run_cold(family, M, n, repeats) for family in FAMILIES for M, n in batches.items()
        ]
        results["single"] = [run_single(M, min(n, SINGLES), repeats) for M, n in batches.items()]
        results["warm"] = [run_warm(M, n, repeats) for M, n in batches.items()]
    parts = page(results)
    print("\n".join(parts))
    if not args.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "assignment.json").write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "results" / "assignment.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
