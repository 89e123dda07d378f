"""Compare the compiled solvers with plain NumPy.

Both run the same algorithm, the NumPy solvers from fastm4n.reference, in one thread, on small
problems of classes, sequences and rankings. The NumPy solver runs for its share of --seconds, and
the compiled solver makes the same passes with the same steps. The compiled solver then starts
again and runs to a certified gap of at most 1e-4. Gaps are shares of the objective at zero weights.

examples:
  fastm4n bench
      M4N, within some ten seconds
  fastm4n bench --surrogate log --seconds 3 --json > bench.json
      CRFs, for other programs
"""

import time
import warnings

from fastm4n.cli import _arguments
from fastm4n.cli._output import Report

# the problems that are compared: regularisation, relative gap, and passes at most
ALPHA = 0.1
FINAL_TOL = 1e-4
MOST_PASSES = 5000


def add(parser):
    _arguments.add_surrogate(parser, "max_min")
    parser.add_argument(
        "--seconds", type=_arguments.positive, default=6.0, metavar="S",
        help="approximate total seconds of the NumPy solvers, default %(default)g. Each makes at "
        "least two passes")
    _arguments.add_seed(parser)
    _arguments.add_output(parser, progress=False)


def run(args):
    from threadpoolctl import threadpool_limits

    report = Report(args)
    head = ["problem", "solver", "passes", "seconds", "ms a pass", "relative gap"]
    problems, rows = _problems(args), []
    with threadpool_limits(1):
        for name, reference, compiled in problems:
            rows += _compared(name, reference, compiled, args.seconds / len(problems))
    report.table(head, [
        [
            row["problem"], row["solver"], str(row["passes"]), f"{row['seconds']:.4f}",
            f"{1e3 * row['seconds'] / row['passes']:.3f}", f"{row['relative_gap']:.2e}",
        ]
        for row in rows])
    report.result()
    ratios = {
        slow["problem"]: slow["seconds"] / fast["seconds"]
        for slow, fast in zip(rows[::3], rows[1::3], strict=True)}
    report.result("the compiled solver, for the same passes, whole fits:")
    for name, ratio in ratios.items():
        report.result(f"  {name}: {ratio:.0f} times as fast")
    report.finish({"surrogate": args.surrogate, "alpha": ALPHA, "rows": rows, "ratios": ratios})
    return 0


def _problems(args):
    """Names, and functions that make n passes and return their number, the gap and its scale.

    The scale is the objective at zero weights. The NumPy solver does not have it.
    """
    import numpy as np
    from sklearn.datasets import load_digits

    from fastm4n import reference
    from fastm4n.data import Sequences
    from fastm4n.estimators import LabelRanker, MulticlassClassifier, SequenceTagger
    from fastm4n.solvers.blocks.block_frank_wolfe import BlockFrankWolfe

    images, digits = load_digits(return_X_y=True)
    images = images / 16
    options = {"surrogate": args.surrogate, "alpha": ALPHA, "random_state": args.seed}
    rng = np.random.default_rng(args.seed)
    labels = Sequences.from_lengths(rng.integers(3, size=120), [6] * 20)
    tokens = Sequences(
        rng.normal(size=(3, 5))[labels.values] + rng.normal(size=(120, 5)), labels.offsets)
    vectors = rng.normal(size=(60, 5))
    utilities = vectors @ rng.normal(size=(5, 4)) + rng.gumbel(size=(60, 4))
    places = np.argsort(np.argsort(-utilities, axis=1), axis=1)
    pairs = reference.vector_pairs(vectors, 4)

    def fit(estimator, X, y):
        def passes(n, tol=0.0):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # the NumPy solver has no momentum
                solver = BlockFrankWolfe(accelerate=tol > 0)
                model = estimator(max_iter=n, tol=tol, solver=solver, **options).fit(X, y)
            return model.n_iter_, model.duality_gap_, model.duality_gap_ / model.relative_gap_

        return passes

    def run_reference(blocks, *data):
        def passes(n):
            result = reference.block_coordinate_frank_wolfe(
                blocks(*data, args.surrogate, ALPHA), n_passes=n, gap_every=n,
                random_state=args.seed)
            return n, float(result.history[-1, 3]), None

        return passes

    plain, mean = {"fit_intercept": False}, {"cost_scale": "mean"}
    return [
        (
            "classes (300 digits)",
            run_reference(reference.SimplexBlocks, images[:300], digits[:300], 10),
            fit(lambda **kw: MulticlassClassifier(**plain, **kw), images[:300], digits[:300]),
        ),
        (
            "sequences (20 of 6 tokens)",
            run_reference(reference.ChainBlocks, list(tokens), list(labels), 3),
            fit(lambda **kw: SequenceTagger(**mean, **kw), tokens, labels),
        ),
        (
            "rankings (60 of 4 items)",
            run_reference(reference.PermutationBlocks, pairs, list(places)),
            fit(lambda **kw: LabelRanker(**plain, **mean, **kw), vectors, places),
        ),
    ]


def _compared(name, reference, compiled, seconds):
    """Three rows: NumPy, the compiled solver for the same passes, and to the end."""
    *_, scale = compiled(1)  # imports, once
    _, first = _timed(reference, 1)
    n = int(min(MOST_PASSES, max(2, seconds / first)))
    return [
        {
            "problem": name, "solver": solver, "passes": passes, "seconds": spent,
            "relative_gap": gap / scale, "gap": gap,
        }
        for solver, ((passes, gap, _), spent) in (
            ("NumPy", _timed(reference, n)),
            ("compiled", _timed(compiled, n)),
            ("compiled, to 1e-4", _timed(compiled, MOST_PASSES, FINAL_TOL)),
        )
    ]


def _timed(function, *args):
    start = time.perf_counter()
    result = function(*args)
    return result, time.perf_counter() - start
