"""Rounds of a fit over K simulated workers, and the cost model of docs/scale.md.

    FASTM4N_DATA=... python benchmarks/rounds.py [Tamil CoNLL-2000] [--workers 1 2 4 8 16 32 64]
    python benchmarks/rounds.py page

Workers are simulated in one process, one after another, one thread: rounds, bytes and certificates
are those of a cluster, and a round takes as long as its slowest worker, in CPU seconds. The log
surrogate, weights alpha = 0.1 and 0.01, to an absolute gap of 1e-3, three local passes a round,
sentences shuffled. Tamil is the training part of UD Tamil-TTB with the attributes of
`window_attributes`, CoNLL-2000 that with those of CRFsuite's tutorial. Figures go to
benchmarks/results/rounds.json, each in the place of that with the same data, alpha and workers;
``page`` (done after every part) writes the tables of docs/scale.md from them.
"""

import argparse
import itertools
import json
import time
from functools import partial

import numpy as np
from _data import folder
from _peers import RESULTS, ROOT, describe, environment, table
from scipy.optimize import nnls

from fastm4n import SequenceVectorizer
from fastm4n.datasets import chunking_attributes, load_conll, load_conllu, window_attributes
from fastm4n.distributed._rounds import solve_rounds
from fastm4n.distributed._worker import Worker
from fastm4n.distributed.fleets import InProcessFleet
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs
from fastm4n.surrogates import make_surrogate

FILE, PAGE = RESULTS / "rounds.json", ROOT / "docs" / "scale.md"
ALPHAS, WORKERS, TOL = (0.1, 0.01), (1, 2, 4, 8, 16, 32, 64), 1e-3
BEGIN, END = "<!-- tables of benchmarks/rounds.py -->", "<!-- end of the tables -->"
# of the prediction: tokens, machines, weights in float64, bytes and seconds of the network
TOKENS, MACHINES, NUMBERS, BANDWIDTH, LATENCY = 1e9, 64, 2e7, 1.25e9, 5e-3


class TimedFleet(InProcessFleet):
    """Counts what a cluster would wait for: the slowest member of each call, in CPU seconds."""

    def __init__(self, factories):
        super().__init__(factories)
        self.seconds, self.whole = {}, 0.0

    def _call(self, method, members, args, each):
        answers, slowest = [], 0.0
        for k, more in zip(members, each, strict=True):
            start = time.process_time()
            answers += super()._call(method, [k], args, [more])
            taken = time.process_time() - start
            slowest, self.whole = max(slowest, taken), self.whole + taken
        self.seconds[method] = self.seconds.get(method, 0.0) + slowest
        return answers


def read(name):
    """X in CSR, offsets of the sentences, label codes, and the number of labels."""
    if name == "Tamil":
        data = load_conllu(folder() / "pos" / "ta_ttb-ud-train.conllu.gz")
        rows = [window_attributes(tokens) for tokens in data.tokens]
    else:
        data = load_conll(folder() / "conll2000" / "train.txt.gz")
        rows = (chunking_attributes(*zip(*tokens, strict=True)) for tokens in data.tokens)
    X = SequenceVectorizer().fit_transform(rows)
    classes, codes = np.unique(np.concatenate(data.labels), return_inverse=True)
    return X.values, np.asarray(X.offsets), codes, len(classes)


def make_worker(data, sentences):
    X, offsets, codes, R = data
    lengths = np.diff(offsets)[sentences]
    labels = np.concatenate([codes[offsets[i] : offsets[i + 1]] for i in sentences])
    outputs = ChainOutputs(labels, lengths, 1.0 - np.eye(R))
    features = ChainFeatures(X, offsets[sentences], outputs.layout, 0.0, False, True)
    return Worker(make_surrogate("log", outputs), features, np.ones(len(sentences)))


def measured(data, alpha, K, accelerate=True):
    """One fit over K workers."""
    n = len(data[1]) - 1
    parts = np.array_split(np.random.default_rng(0).permutation(n), K)
    with TimedFleet([partial(make_worker, data, np.sort(part)) for part in parts]) as fleet:
        start, before = time.process_time(), dict(fleet.seconds)
        found = solve_rounds(fleet, alpha, tol=TOL, max_rounds=100, accelerate=accelerate)
        driver = time.process_time() - start - fleet.whole
        seconds = {key: value - before.get(key, 0.0) for key, value in fleet.seconds.items()}
        numbers = fleet.members[0].vectors.size
    history = found.history
    by_member = history["member_seconds"]
    return {
        "alpha": alpha, "K": K, "rounds": int(found.n_rounds), "gap": found.certificate.gap,
        "primal": found.certificate.primal, "bytes": int(history["bytes"][-1]),
        "numbers": int(numbers), "tokens": int(data[1][-1]), "driver": driver,
        "local": seconds["local"], "certify": seconds["certify"],
        "begin": seconds["start"] + seconds["describe"],
        "straggler": float(np.sum(by_member.max(axis=1)) / np.sum(by_member.mean(axis=1))),
        "sigma": float(history["sigma"][-1]), "kappa": float(history["kappa"][-1]),
        "converged": bool(found.converged),
    }


# The model


def fitted(rows):
    """Seconds of a round a token and a number, of the driver a number and member, and rounds.

    By least squares over all rows, relative to what was measured; rounds are a + b log2 K from two
    workers on, for each alpha.
    """
    def of(work, found):
        work, found = np.array(work) / np.array(found)[:, np.newaxis], np.ones(len(found))
        return nnls(work, found)[0].tolist()

    worker = of(
        [[row["tokens"] / row["K"], row["numbers"]] for row in rows],
        [(row["local"] + row["certify"]) / row["rounds"] for row in rows])
    driver = of(
        [[row["numbers"], row["K"] * row["numbers"]] for row in rows],
        [row["driver"] / row["rounds"] for row in rows])
    rounds = {}
    for alpha in ALPHAS:
        many = [row for row in rows if row["alpha"] == alpha and row["K"] > 1]
        logs, counts = np.log2([row["K"] for row in many]), [row["rounds"] for row in many]
        slope, first = np.polyfit(logs, counts, 1)
        rounds[alpha] = float(first), float(slope)
    return {"worker": worker, "driver": driver, "rounds": rounds}


def seconds(model, alpha, K, tokens, numbers, network=False):
    """What the model says: (rounds, seconds of a round, of them on the network)."""
    first, slope = model["rounds"][alpha]
    rounds = first + slope * np.log2(K)
    work = tokens / K * model["worker"][0] + numbers * model["worker"][1]
    work += numbers * (model["driver"][0] + K * model["driver"][1])
    wire = 0.0
    if network:  # two vectors to each worker and one back, through the driver, and two answers
        wire = 3 * 8 * numbers * K / BANDWIDTH + 2 * LATENCY
    return rounds, work + wire, wire


# The page


def page(results):
    """The tables of docs/scale.md."""
    parts = []
    for name, rows in results["data"].items():
        model = fitted(rows)
        lines = []
        for row in rows:
            known = row["local"] + row["certify"] + row["driver"]
            said = ""
            if row["K"] > 1:
                rounds, each, _ = seconds(
                    model, row["alpha"], row["K"], row["tokens"], row["numbers"])
                said = f"{rounds:.1f} / {rounds * each:.2f}"
            lines.append([
                row["alpha"], row["K"], row["rounds"] if row["converged"] else "> 100",
                f"{row['bytes'] / row['rounds'] / 2**20:.1f}", f"{row['local']:.2f}",
                f"{row['certify']:.2f}", f"{row['driver']:.2f}", f"{known:.2f}", said])
        head = [
            "alpha", "workers", "rounds", "MiB a round", "local passes, s", "certificates, s",
            "driver, s", "together, s", "model: rounds / s"]
        tokens, numbers = rows[0]["tokens"], rows[0]["numbers"]
        title = f"{name}: {tokens:,} tokens, {numbers:,} numbers in w"
        parts.append("#" + table(title, head, lines))
        driver = " + K ".join(f"{1e9 * value:.2f}" for value in model["driver"])
        rounds = ", ".join(
            f"{first:.1f} + {slope:.2f} log2 K at alpha = {alpha:g}"
            for alpha, (first, slope) in model["rounds"].items())
        parts.append(
            f"Fitted, of a round: a worker {1e6 * model['worker'][0]:.2f} us for each of its tokens and "
            f"{1e9 * model['worker'][1]:.1f} ns a number of w; the driver {driver} ns a number of w; "
            f"rounds {rounds}.\n")
    model = fitted(list(results["data"].values())[-1])
    lines = []
    for alpha in ALPHAS:
        for K in (8, MACHINES):
            rounds, each, wire = seconds(model, alpha, K, TOKENS, NUMBERS, network=True)
            lines.append([
                alpha, K, f"{rounds:.0f}", f"{each:.0f}", f"{wire:.0f}",
                f"{rounds * each / 3600:.2f}"])
    parts.append("#" + table(
        f"Predicted: {TOKENS:,.0f} tokens, {NUMBERS:,.0f} numbers in w",
        ["alpha", "machines", "rounds", "seconds a round", "of them network", "hours"], lines))
    parts.append(f"Measured on {describe(results['environment'])}\n")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(parts) + f"\n{END}{after}", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="*", default=["Tamil", "CoNLL-2000"])
    parser.add_argument("--workers", type=int, nargs="*", default=WORKERS)
    given = parser.parse_args()
    results = json.loads(FILE.read_text()) if FILE.exists() else {"data": {}}
    tasks = [task for task in given.tasks if task != "page"]
    if tasks and folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    for name in tasks:
        data, rows = read(name), results["data"].get(name, [])
        for K, alpha in itertools.product(given.workers, ALPHAS):
            rows = [row for row in rows if (row["K"], row["alpha"]) != (K, alpha)]
            rows.append(measured(data, alpha, K))
            print(name, {key: rows[-1][key] for key in ("alpha", "K", "rounds")}, flush=True)
            results["data"][name] = sorted(rows, key=lambda row: (-row["alpha"], row["K"]))
            results["environment"] = environment()
            FILE.write_text(json.dumps(results, indent=1) + "\n")
    page(results)


if __name__ == "__main__":
    main()
