"""Software that the sequence benchmarks run beside fastm4n, and how the runs are measured."""

import ctypes
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np

import fastm4n

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


# Measuring


def cpu(function):
    """(CPU seconds, result) of one call."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def medians(functions, repeats, least=0.05):
    """Median CPU seconds of a call of each of `functions`, a dict; they take turns.

    A function that takes less than `least` seconds is called as often as fills them.
    """
    numbers = {}
    for name, function in functions.items():
        # the first call pays for what later ones find in place
        seconds = min(cpu(function)[0] for _ in range(2))
        numbers[name] = max(1, int(np.ceil(least / max(seconds, 1e-7))))
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.process_time()
            for _ in range(numbers[name]):
                function()
            times[name].append((time.process_time() - start) / numbers[name])
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def peak_memory():
    """Peak resident memory of this process in MiB."""
    try:
        # ru_maxrss of a new process begins with what the process that started it held
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def in_child(script, task, **options):
    """Run ``script --child task options`` in a new process of one thread; returns its answer."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    run = subprocess.run(
        [sys.executable, script, "--child", task, json.dumps(options)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **threads},
    )
    if run.returncode:
        raise RuntimeError(f"{task} {options} ended with status {run.returncode}")
    return json.loads(run.stdout.splitlines()[-1])


def is_child(tasks):
    """Whether `in_child` started this process; if so, the task is done and its answer printed."""
    if sys.argv[1:2] != ["--child"]:
        return False
    task, options = sys.argv[2:]
    print(json.dumps(tasks[task](**json.loads(options))))
    return True


def has_package(name):
    """Whether a distribution is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def environment(*packages):
    """Where a run was made: when, processor, versions."""
    model = platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    versions = {name: metadata.version(name) for name in packages if has_package(name)}
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "processor": model,
        "versions": {
            "fastm4n": fastm4n.__version__, "Python": platform.python_version(),
            "NumPy": np.__version__, **versions,
        },
    }


def describe(environment):
    """One sentence for the page."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"{environment['processor']}, {environment['date']}; {versions}."


def wrapped(sentence):
    """Lines of 100 columns at most."""
    return textwrap.fill(sentence, 100, break_long_words=False, break_on_hyphens=False)


def table(title, head, rows):
    """A section with one Markdown table."""
    return f"## {title}\n\n{rows_of(head, rows)}"


def rows_of(head, rows):
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


# python-crfsuite


def train_crfsuite(sequences, model, **parameters):
    """Train CRFsuite by L-BFGS on an iterable of (attributes, labels) and write its model file.

    Its `train` generates the features, optimises, and writes the model; `cpu` is of the first
    two. ``trace`` has (CPU seconds since the start of `train`, loss) of each iteration.
    """
    from pycrfsuite import BaseTrainer

    class Trainer(BaseTrainer):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.log = []

        def message(self, message):
            self.log.append((time.process_time(), message))

    trainer = Trainer("lbfgs", parameters)
    start = time.process_time()
    for attributes, labels in sequences:
        trainer.append(attributes, labels)
    append = time.process_time() - start
    before = peak_memory()
    start = time.process_time()
    trainer.train(str(model))
    whole = time.process_time() - start
    result = {
        "append_cpu": append, "whole_cpu": whole, "mib_before": before, "mib": peak_memory(),
        "trace": [],
    }
    for moment, line in trainer.log:
        key, _, value = line.partition(":")
        if key == "Number of features":
            result["n_weights"] = int(value)
        elif key == "Seconds required" and "features_cpu" not in result:
            result["features_cpu"] = moment - start
        elif key == "Loss":
            result["trace"].append((moment - start, float(value)))
        elif key == "Total seconds required for training":
            result["cpu"] = moment - start
        elif line.startswith(("L-BFGS resulted", "L-BFGS terminated")):
            result["end"] = line.strip()
    result["iterations"] = len(result["trace"])
    result["loss"] = result["trace"][-1][1]
    return result


def crfsuite_weights(model, columns):
    """(labels, emissions (n_labels, n_columns), transitions) of a model file.

    `columns` is a dict from attribute to column.
    """
    from pycrfsuite import Tagger

    tagger = Tagger()
    tagger.open(str(model))
    labels = sorted(tagger.labels())
    index = {label: i for i, label in enumerate(labels)}
    coef = np.zeros((len(labels), len(columns)))
    transitions = np.zeros((len(labels), len(labels)))
    info = tagger.info()
    for (attribute, label), weight in info.state_features.items():
        coef[index[label], columns[attribute]] = weight
    for (source, target), weight in info.transitions.items():
        transitions[index[source], index[target]] = weight
    return labels, coef, transitions


# hmmlearn


class HMMLearn:
    """hmmlearn's compiled loops on sequences that lie end to end.

    They take one sequence at a time, and a start distribution: it is uniform here. Its
    transitions are probabilities, as are the emissions of the scaled loops.
    """

    def __init__(self, pairwise, lengths):
        from hmmlearn import _hmmc

        self.loops = _hmmc
        self.start = np.full(len(pairwise), 1.0 / len(pairwise))
        self.transitions = np.exp(pairwise)
        ends = np.cumsum(lengths)
        self.bounds = list(zip((ends - lengths).tolist(), ends.tolist()))

    def viterbi(self, log_emissions):
        """(score, path) of each sequence."""
        return [
            self.loops.viterbi(self.start, self.transitions, log_emissions[a:b])
            for a, b in self.bounds
        ]

    def forward(self, emissions):
        """Log-partitions alone."""
        return [
            self.loops.forward_scaling(self.start, self.transitions, emissions[a:b])[0]
            for a, b in self.bounds
        ]

    def forward_backward(self, emissions):
        """(log-partition, node marginals, summed edge marginals) of each sequence."""
        results = []
        for a, b in self.bounds:
            x = emissions[a:b]
            logz, forward, scaling = self.loops.forward_scaling(self.start, self.transitions, x)
            backward = self.loops.backward_scaling(self.start, self.transitions, x, scaling)
            nodes = forward * backward
            nodes /= nodes.sum(axis=1, keepdims=True)
            edges = self.loops.compute_scaling_xi_sum(forward, self.transitions, backward, x)
            results.append((logz, nodes, edges))
        return results

    def forward_backward_log(self, log_emissions):
        """Log-partition and both lattices of each sequence, by the loops in logarithms."""
        results = []
        for a, b in self.bounds:
            x = log_emissions[a:b]
            logz, forward = self.loops.forward_log(self.start, self.transitions, x)
            backward = self.loops.backward_log(self.start, self.transitions, x)
            results.append((logz, forward, backward))
        return results


# The processor's own limit

# independent chains, enough of them to hide the latency, few enough to stay in registers, each
# a variable of its own: compilers keep an array of vectors in memory
_PEAK = r"""
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11)
#define CHAINS 12
#if defined(__AVX512F__)
#include <immintrin.h>
#define OP(name) _mm512_##name
typedef __m512d doubles; typedef __m512 floats;
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define OP(name) _mm256_##name
typedef __m256d doubles; typedef __m256 floats;
#endif

#ifdef OP
#define FMA64(k) a##k = OP(fmadd_pd)(a##k, x, y);
#define FMA32(k) a##k = OP(fmadd_ps)(a##k, x, y);
#define MAX64(k) a##k = OP(max_pd)(OP(add_pd)(a##k, x), y);
#define MAX32(k) a##k = OP(max_ps)(OP(add_ps)(a##k, x), y);
#define START64(k) doubles a##k = OP(set1_pd)(k);
#define START32(k) floats a##k = OP(set1_ps)(k);
#define ADD64(k) y = OP(add_pd)(y, a##k);
#define ADD32(k) y = OP(add_ps)(y, a##k);
#define LOOP(NAME, SCALAR, VECTOR, SUFFIX, START, STEP, ADD)                          \
SCALAR NAME(long n) {                                                                 \
    VECTOR x = OP(set1_##SUFFIX)(0.9), y = OP(set1_##SUFFIX)(0.1);                     \
    SCALAR out[sizeof(VECTOR) / sizeof(SCALAR)];                                      \
    EACH(START)                                                                       \
    for (long i = 0; i < n; i++) { EACH(STEP) }                                       \
    EACH(ADD)                                                                         \
    OP(storeu_##SUFFIX)(out, y);                                                      \
    return out[0];                                                                    \
}
LOOP(multiply_add_64, double, doubles, pd, START64, FMA64, ADD64)
LOOP(multiply_add_32, float, floats, ps, START32, FMA32, ADD32)
LOOP(add_max_64, double, doubles, pd, START64, MAX64, ADD64)
LOOP(add_max_32, float, floats, ps, START32, MAX32, ADD32)
int width(int bits) { return CHAINS * sizeof(doubles) * 8 / bits; }
#else
#define WIDTH 64
#define LOOP(NAME, SCALAR, STEP)                                                      \
SCALAR NAME(long n) {                                                                 \
    SCALAR a[WIDTH], x = 0.9, y = 0.1, total = 0;                                     \
    for (int k = 0; k < WIDTH; k++) a[k] = k;                                         \
    for (long i = 0; i < n; i++)                                                      \
        for (int k = 0; k < WIDTH; k++) a[k] = STEP;                                  \
    for (int k = 0; k < WIDTH; k++) total += a[k];                                    \
    return total;                                                                     \
}
LOOP(multiply_add_64, double, a[k] * x + y)
LOOP(multiply_add_32, float, a[k] * x + y)
LOOP(add_max_64, double, a[k] + x > y ? a[k] + x : y)
LOOP(add_max_32, float, a[k] + x > y ? a[k] + x : y)
int width(int bits) { return WIDTH; }
#endif
"""


def processor_peak():
    """Multiply-adds and add-maxima a second of one core, by a C loop compiled here, or None.

    Keys are ``"multiply_add_64"``, ``"multiply_add_32"``, ``"add_max_64"``, ``"add_max_32"``.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "peak.c"), Path(folder, "peak.so")
        source.write_text(_PEAK)
        flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
        run = subprocess.run(
            [compiler, *flags, "-o", str(library), str(source)], capture_output=True, text=True
        )
        if run.returncode:
            return None
        loops = ctypes.CDLL(str(library))
        peaks, steps = {}, 5_000_000
        for bits, kind in ((64, ctypes.c_double), (32, ctypes.c_float)):
            for name in (f"multiply_add_{bits}", f"add_max_{bits}"):
                loop = getattr(loops, name)
                loop.argtypes, loop.restype = [ctypes.c_long], kind
                best = min(cpu(partial(loop, steps))[0] for _ in range(7))
                peaks[name] = loops.width(bits) * steps / best
    return peaks
