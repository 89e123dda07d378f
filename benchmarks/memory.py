"""Memory of fits: the most that a process holds beside its data, in units of the dual point.

    FASTM4N_DATA=... python benchmarks/memory.py vectors conll page

Each fit is one process of one thread, after a fit of a few examples; ``page`` writes docs/results/memory.md.
"""

import argparse
import ctypes
import gc
import json
import time
import warnings
from pathlib import Path

import numpy as np
from _data import folder
from _peers import (
    RESULTS,
    ROOT,
    describe,
    environment,
    in_child,
    is_child,
    peak_memory,
    table,
    train_crfsuite,
)
from scipy import sparse

from fastm4n import (
    LabelRanker,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    SequenceVectorizer,
    Transitions,
)
from fastm4n.outputs import row_stride
from fastm4n.penalties import ElasticNet

FILE = RESULTS / "memory.json"
PAGE = ROOT / "docs" / "results" / "memory.md"
SURROGATES = ("max_min", "max_margin", "log")


def resident():
    """Resident memory of this process now, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 2**10
    raise RuntimeError("/proc/self/status has no VmRSS")


def measured(fit, n_numbers):
    """CPU seconds, MiB before, MiB more at the peak, and that in units of n_numbers doubles."""
    gc.collect()
    # what was freed before is given back: it would hide as much of what comes
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start = resident(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit()
    more = peak_memory() - before
    return {
        "cpu": time.process_time() - start, "before": before, "more": more,
        "unit": n_numbers * 8 / 2**20, "units": more * 2**20 / (8 * n_numbers)}


def csr(n, d, nnz, dtype, indices):
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d // nnz, (n, nnz), dtype=np.int32)
    columns += np.arange(nnz, dtype=np.int32) * (d // nnz)
    values = rng.standard_normal(n * nnz, dtype=dtype)
    ends = np.arange(0, n * nnz + 1, nnz, dtype=indices)
    X = sparse.csr_matrix((values, columns.reshape(-1), ends), shape=(n, d))
    X.indices, X.indptr = X.indices.astype(indices), ends  # which SciPy would make shorter
    return X


def run_vectors(kind, surrogate, dtype, indices, k):
    n, dtype = 100_000, np.dtype(dtype).type
    if kind == "dense":
        X = np.random.default_rng(0).standard_normal((n, 50), dtype=dtype)
    else:
        X = csr(n, 50_000, 50, dtype, np.dtype(indices).type)
    rng = np.random.default_rng(1)
    options = dict(alpha=1e-2, max_iter=12, tol=1e-9, random_state=0)
    if kind == "ranks":
        model, y = LabelRanker(surrogate, cost="zero_one", **options), np.argsort(rng.random((n, k)), axis=1)
    else:
        make = OrdinalClassifier if kind == "ordinal" else MulticlassClassifier
        model, y = make(surrogate, **options), rng.integers(0, k, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[:500], y[:500])
    d, size = X.shape[1], k * k if kind == "ranks" else k
    weights = 8 * (d + 1) * row_stride(size) / 2**20
    return {**measured(lambda: model.fit(X, y), n * size), "weights": weights}


def run_conll(contestant, penalty):
    from conll2000 import read

    before = resident()
    if contestant == "crfsuite":
        c1, c2 = (1.0, 0.01) if penalty == "elastic net" else (0.0, 0.5)
        result = train_crfsuite(
            zip(*read("train"), strict=True), str(FILE.with_suffix(".crfsuite")), c1=c1, c2=c2,
            max_iterations=8, **{"feature.possible_states": 0, "feature.possible_transitions": 0})
        FILE.with_suffix(".crfsuite").unlink()
        return {
            "imports": before, "before": result["mib_before"], "peak": result["mib"],
            "cpu": result["whole_cpu"]}
    attributes, y = read("train")
    single = contestant == "observed, float32"
    # held, as whoever predicts needs it
    vectorizer = SequenceVectorizer(dtype=np.float32 if single else np.float64)
    X = vectorizer.fit_transform(attributes)
    data = resident()
    alpha, given = 1.0 / len(X), "l2"
    if penalty == "elastic net":
        alpha, given = 1.02 / len(X), ElasticNet(1.0 / 1.02)
    model = SequenceTagger(
        "log", states="all" if contestant == "all" else "observed", alpha=alpha,
        penalty=given, fit_intercept=False, transitions=Transitions(start_end=False), tol=1e-4, max_iter=11,
        random_state=0)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return {
        "imports": before, "before": data, "peak": peak_memory(),
        "cpu": time.process_time() - start}


TASKS = {"vectors": run_vectors, "conll": run_conll}
VECTORS = (
    *(("CSR", surrogate, dtype, "int32", 20) for surrogate in SURROGATES
      for dtype in ("float32", "float64")),
    *(("CSR", surrogate, "float64", "int32", 50) for surrogate in SURROGATES),
    ("CSR", "max_margin", "float64", "int64", 20),
    ("ordinal", "max_min", "float64", "int32", 20),
    ("dense", "max_min", "float64", "int32", 20),
    ("ranks", "max_margin", "float64", "int32", 6),
)
CONTESTANTS = ("crfsuite", "observed", "observed, float32", "all")


def measure(part):
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    if part == "vectors":
        names = ("kind", "surrogate", "dtype", "indices", "k")
        results[part] = []
        for row in VECTORS:
            options = dict(zip(names, row, strict=True))
            results[part].append({**options, **in_child(__file__, part, **options)})
    else:
        results[part] = [
            {"contestant": contestant, "penalty": penalty,
             **in_child(__file__, part, contestant=contestant, penalty=penalty)}
            for penalty in ("l2", "elastic net") for contestant in CONTESTANTS]
    results["run"] = environment("python-crfsuite", "scikit-learn", "scipy")
    FILE.write_text(json.dumps(results, indent=1) + "\n")


def write_page():
    results = json.loads(FILE.read_text())
    rows = [
        (row["kind"], row["surrogate"], f"{row['dtype']}, {row['indices']}", row["k"],
         f"{row['unit']:.1f}", f"{row['weights']:.1f}", f"{row['more']:.1f}",
         f"{row['units']:.2f}", f"{(row['more'] - 2 * row['weights']) / row['unit']:.2f}")
        for row in results["vectors"]]
    head = (
        "X", "surrogate", "values, indices", "k", "n k doubles, MiB", "one array of weights, MiB",
        "MiB more at the peak", "in units of n k", "less two arrays of weights")
    names = {
        "crfsuite": "python-crfsuite, observed", "observed": "fastm4n, observed",
        "observed, float32": "fastm4n, observed, X in single precision",
        "all": "fastm4n, all weights"}
    conll = [
        (row["penalty"], names[row["contestant"]], f"{row['imports']:.0f}", f"{row['before']:.0f}",
         f"{row['peak']:.0f}", f"{row['peak'] - row['imports']:.0f}")
        for row in results["conll"]]
    conll_head = (
        "penalty", "contestant", "MiB after the imports", "with the data", "at the peak",
        "at the peak, less the imports")
    PAGE.write_text(
        "# Memory\n\nMade by `python benchmarks/memory.py vectors conll page`: "
        f"{describe(results['run'])}\n\n" + ABOUT.strip() + "\n\n"
        + table("Fits of one vector an example", head, rows) + "\n"
        + table("CoNLL-2000 from the file to the fit", conll_head, conll) + READING)


ABOUT = """
A fit holds, beside the data, which are not copied:

- the dual point, n k doubles for n examples of k labels, or of k numbers in all; under the log surrogate of
  sequences and the like the scores that it goes with as well, as much again. From 4 million numbers on these are
  in single precision, half as much, and chains that leave no dual point to a warm start hold them alone: a visit
  takes their marginals again;
- about 16 numbers for each example: weights, gaps, an order, and what a certificate is made of;
- two arrays of weights, those of the fit and the best ones; up to seven where passes are accelerated, for the
  average, the centre, the last point, and two while weights are built afresh at the end;
- under the max-margin surrogate the atoms of which dual points are made, where steps keep them. In the row of
  rankings below they come beside up to seven arrays of weights, of 15 MiB each.

Indices of 64 bits are read as they are, those of sequences and graphs excepted, which are copied to 32 bits. Rows that
are not sorted or have duplicates are put in order, in a copy. `tests/test_memory.py` holds CSR fits of 40 classes to
1.5 n k doubles and six arrays of weights. Rows of weights are padded to whole vectors: 24 numbers for 20 labels.

With `states="observed"` and sparse features the weights are those of the pairs of a feature and a label that occur, end
to end: 8 bytes for the weight, 2 for its label and a few for each feature. Features that an L1 term leaves out have
no pairs, and transitions without a weight have no scores beside the dual point. Groups of weights (`Group`), dense
features and features of more than 65,535 places have rows of all labels. The fitted `coef_` is an array of all labels
all the same, made when it, or a prediction, is first asked for.
"""

READING = """
Peaks are of the whole process, by VmHWM. CRFsuite ended after 8 iterations and fastm4n after 11 passes at most, as
more change nothing of what they hold. Imports are those of NumPy, SciPy, scikit-learn and what it finds installed, on
both sides, and data those of the sentences, with the vectorizer's dictionary. Of what the fit takes, the scores that
the dual point is made of are 24 MiB, and the entries of X in the order of features 15 MiB. In single precision are the
values of X of `SequenceVectorizer(dtype=np.float32)`, which are ones here. All weights are
56 MiB; where passes are slow, momentum holds more arrays of them.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="+", choices=("vectors", "conll", "page"))
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    for part in ("vectors", "conll"):
        if part in given.parts:
            measure(part)
    if "page" in given.parts:
        write_page()


if __name__ == "__main__" and not is_child(TASKS):
    main()
