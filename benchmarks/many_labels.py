"""Sequences of hundreds and thousands of labels: a pass against python-crfsuite's iteration.

    python benchmarks/many_labels.py [--repeats 3] [--case crf margin tagging ends]

- `crf`: tags with features, as of Universal Dependencies: 300 and 800 sentences of about 20 tokens,
  355 and 573 labels whose frequencies are Zipf's, attributes of words, affixes and neighbours. CPU
  seconds of a pass of the log surrogate with observed states, and of an iteration of python-crfsuite's
  L-BFGS on the same attributes and labels, in turns.
- `margin`: 2,000 labels and 8,000 positions under the max-margin surrogate, in sequences of 1,000
  and of 20, with all transitions and with observed ones: CPU seconds of two passes. Also a pass
  over the sentences of `crf` with all transitions.
- `tagging`: predictions of models of few transitions, against those of a matrix of all.
- `ends`: seconds from Ctrl-C within a pass to the end of the fit.

A pass is half of what a fit of four passes takes more than one of two, so that reading the data
counts for nothing. One thread.
"""

import argparse
import pickle
import signal
import time
import warnings
from contextlib import suppress

import numpy as np
from _peers import cpu, has_package, peak_memory, table
from sklearn.exceptions import ConvergenceWarning

from fastm4n import BlockFrankWolfe, SequenceTagger
from fastm4n.data import Sequences
from fastm4n.tasks import chain_predictions

SIZES = (300, 355), (300, 573), (800, 573)


def tagged(n_sentences, n_labels, seed=0):
    """Attributes and labels of random sentences: words have few tags, tags follow one another."""
    rng = np.random.default_rng(seed)
    n_words = 6 * n_labels
    frequency = 1.0 / np.arange(1, n_labels + 1)
    tags = rng.choice(n_labels, size=(n_words, 3), p=frequency / frequency.sum())
    tags[:n_labels, 0] = np.arange(n_labels)
    words = 1.0 / np.arange(1, n_words + 1)
    words /= words.sum()
    stems = ["".join(chr(97 + int(c)) for c in rng.integers(26, size=7)) for _ in range(n_words)]
    X, y = [], []
    for length in np.clip(rng.poisson(20, size=n_sentences), 3, 60):
        chosen = rng.choice(n_words, size=length, p=words)
        y.append([f"T{tags[w, rng.integers(3) if rng.random() < 0.3 else 0]}" for w in chosen])
        names = ["<s>", *(stems[w] for w in chosen), "</s>"]
        X.append([
            [f"w={names[t]}", f"w-1={names[t - 1]}", f"w+1={names[t + 1]}", "bias",
             *(f"p{k}={names[t][:k]}" for k in (1, 2, 3)),
             *(f"s{k}={names[t][-k:]}" for k in (1, 2, 3, 4)), f"l={len(names[t])}"]
            for t in range(1, length + 1)])
    missing = sorted({f"T{j}" for j in range(n_labels)}.difference(*y))
    places = [(b, t) for b, labels in enumerate(y) for t in range(len(labels))]
    for label, place in zip(missing, rng.permutation(len(places)), strict=False):
        b, t = places[place]
        y[b][t] = label
    return X, y


def rows(n_positions, n_labels, length, seed=0):
    """Dense features of sequences of random labels, each of which has a mean of its own."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n_labels, 20))
    labels = rng.permutation(np.arange(n_positions) % n_labels)
    values = means[labels] + rng.normal(size=(n_positions, 20))
    offsets = np.arange(0, n_positions + 1, length)
    return Sequences(values, offsets), Sequences(labels, offsets)


def passes(X, y, many, surrogate="log", **given):
    given = {"states": "observed", "alpha": 1.0 / len(X), "tol": 0.0, **given}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SequenceTagger(surrogate, max_iter=many, random_state=0, **given).fit(X, y)


def iterations(X, y, many, file="/dev/null"):
    import pycrfsuite

    trainer = pycrfsuite.Trainer("lbfgs", {"max_iterations": many, "c2": 1.0}, verbose=False)
    for tokens, labels in zip(X, y, strict=True):
        trainer.append(tokens, labels)
    trainer.train(file)


def of_one(function):
    """CPU seconds of a pass: function(n) makes n passes."""
    return (cpu(lambda: function(4))[0] - cpu(lambda: function(2))[0]) / 2.0


def crf(repeats):
    found = []
    for n, n_labels in SIZES:
        X, y = tagged(n, n_labels)
        n_pairs = len({pair for labels in y for pair in zip(labels, labels[1:], strict=False)})
        ours, theirs = [], []
        for _ in range(repeats):
            ours.append(of_one(lambda many, X=X, y=y: passes(X, y, many)))
            if has_package("python-crfsuite"):
                theirs.append(of_one(lambda many, X=X, y=y: iterations(X, y, many)))
        times = [f"{np.median(of):.2f}" if of else "-" for of in (ours, theirs)]
        found.append((n, sum(map(len, y)), n_labels, n_pairs, *times))
    print(table(
        "A pass of the log surrogate, an iteration of python-crfsuite",
        ("sentences", "tokens", "labels", "observed transitions", "pass, s", "iteration, s"), found))


def margin(repeats):
    found = []
    observed = {"transitions": "observed"}
    for states in "all", observed:
        for length in 20, 1000:
            X, y = rows(8000, 2000, length)
            times = [
                cpu(lambda X=X, y=y, states=states: passes(
                    X, y, 2, "max_margin", states=states))[0]
                for _ in range(repeats)]
            found.append((
                8000 // length, length, states if isinstance(states, str) else "observed",
                f"{np.median(times):.1f}", f"{peak_memory():.0f}"))
    print(table(
        "2,000 labels, 8,000 positions, max-margin",
        ("sequences", "positions of each", "transitions", "two passes, s", "peak, MiB"), found))
    found = []
    for n, n_labels in SIZES:
        X, y = tagged(n, n_labels)
        own = of_one(lambda many, X=X, y=y: passes(
            X, y, many, "max_margin", states={"features": "observed"}))
        found.append((n, n_labels, f"{own:.2f}"))
    print(table("Max-margin, all transitions", ("sentences", "labels", "pass, s"), found))


def tagging(repeats):
    found = []
    X, y = tagged(300, 573)
    for name, surrogate in ("Viterbi", "max_margin"), ("marginals", "log"):
        tagger = passes(X, y, 2, surrogate)
        call = tagger.predict if surrogate == "max_margin" else tagger.predict_marginals
        by_lists = np.median([cpu(lambda call=call: call(X))[0] for _ in range(repeats)])
        kept, chain_predictions.MANY_TRANSITIONS = chain_predictions.MANY_TRANSITIONS, 10**12
        by_matrix = np.median([
            cpu(lambda call=getattr(clone_of(tagger), call.__name__): call(X))[0]
            for _ in range(repeats)])
        chain_predictions.MANY_TRANSITIONS = kept
        found.append((name, f"{by_lists:.2f}", f"{by_matrix:.2f}"))
    print(table(
        "Predictions of 300 sentences, 573 labels",
        ("", "few transitions, s", "as if all had weights, s"), found))


def clone_of(tagger):
    """A copy that has not looked for the transitions with weights yet."""
    return pickle.loads(pickle.dumps(tagger))


def ends(repeats):
    """Seconds from a signal to the end of a fit that is in a pass."""
    found = []
    cases = (
        ("573 labels, 800 sentences, log", "log", "observed", tagged(800, 573)),
        ("500 labels, one sequence of 4,000, log", "log", "all", rows(4000, 500, 4000)),
        ("2,000 labels, one sequence of 8,000, max-margin", "max_margin", "all",
         rows(8000, 2000, 8000)))
    for name, surrogate, states, (X, y) in cases:
        sent = []

        def send(signum, frame, sent=sent):
            sent.append(time.perf_counter())
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, send)
        signal.setitimer(signal.ITIMER_REAL, 4.0)
        with suppress(KeyboardInterrupt):
            passes(X, y, 10**6, surrogate, states=states, solver=BlockFrankWolfe())
        found.append((name, f"{time.perf_counter() - sent[0]:.2f}"))
    print(table("Ctrl-C after 4 s", ("fit", "s until it has ended"), found))


CASES = {"crf": crf, "margin": margin, "tagging": tagging, "ends": ends}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    args = parser.parse_args()
    for name in args.case:
        CASES[name](args.repeats)


if __name__ == "__main__":
    main()
