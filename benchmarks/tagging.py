"""From attributes to tags: tokens a CPU second, against python-crfsuite.

    FASTM4N_DATA=... python benchmarks/tagging.py [--repeats 5] [--sentences 2000]

The attributes are those of CRFsuite's chunking example on CoNLL-2000, 19 a token; both models have
the same weights but for how far they were fitted, which makes no difference to the time. Prints
tables of

- tagging the test set, in one call and in a call for each sentence: lists of strings that are
  there already, lists of strings that are new (whose hashes nobody has computed), and dicts;
- `SequenceVectorizer` alone, for the training set: CPU seconds, and the peak of memory beside
  the matrix that it makes;
- the model file that python-crfsuite wrote, loaded by `fastm4n.crfsuite.load_model`: seconds, peak of
  memory, and tagging with it, tags and marginals, beside python-crfsuite with the same file. The
  largest difference of a marginal is told, and that tags are the same.

One thread, contestants in turns, medians of the repeats.
"""

import argparse
import gc
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from _data import folder
from _peers import has_package, table, train_crfsuite
from sklearn.exceptions import ConvergenceWarning

from fastm4n import SequenceTagger, SequenceVectorizer, Transitions
from fastm4n.crfsuite import load_model
from fastm4n.datasets import chunking_attributes, load_conll

PASSES = 3  # of the fit: times of tagging do not depend on how good the weights are
PEER_ITERATIONS = 4


def read(part, n=None):
    """Attributes and chunk tags of the sentences of "train" or "test"."""
    data = load_conll(folder() / "conll2000" / f"{part}.txt.gz")
    attributes = [chunking_attributes(*zip(*tokens)) for tokens in data.tokens[:n]]
    return attributes, data.labels[:n]


def anew(sentences):
    """The same, of strings that were made just now."""
    return [[[(name + " ")[:-1] for name in token] for token in tokens] for tokens in sentences]


def as_dicts(sentences):
    """The same, of dicts from what is before "=" to what is behind it."""
    return [
        [dict(name.split("=", 1) if "=" in name else (name, True) for name in token)
         for token in tokens]
        for tokens in sentences
    ]


def medians(functions, make, repeats):
    """Median CPU seconds of each function of what `make` gives, making not included."""
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            given = make()
            gc.collect()
            gc.disable()
            start = time.process_time()
            function(given)
            seconds[name].append(time.process_time() - start)
            gc.enable()
    return {name: float(np.median(times)) for name, times in seconds.items()}


def contestants(train, labels, model):
    """name: (tag all, tag one by one), of what are fitted to the training data."""
    vectorizer = SequenceVectorizer(separator="=")
    X = vectorizer.fit_transform(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger = SequenceTagger(
            "log", alpha=2 / len(X), states="observed", fit_intercept=False, transitions=Transitions(start_end=False),
            max_iter=PASSES, random_state=0, n_jobs=1).fit(X, labels)

    def ours(sentences):
        return tagger.predict(vectorizer.transform(sentences))

    found = {"fastm4n": (ours, lambda sentences: [ours([tokens])[0] for tokens in sentences])}
    if has_package("python-crfsuite"):
        from pycrfsuite import Tagger

        train_crfsuite(zip(train, labels), model, c1=0.0, c2=1.0, max_iterations=PEER_ITERATIONS)
        peer = Tagger()
        peer.open(model)

        def theirs(sentences):
            return [peer.tag(tokens) for tokens in sentences]

        found["python-crfsuite"] = theirs, theirs
    return found


def tagging(found, test, repeats):
    n, rows = sum(map(len, test)), []
    dicts = as_dicts(test)
    given = {
        "strings": lambda: test, "strings, new": lambda: anew(test), "dicts": lambda: dicts}
    for i, call in enumerate(("one call", "a call for each sentence")):
        for kind, make in given.items():
            times = medians({name: of[i] for name, of in found.items()}, make, repeats)
            ours, theirs = times["fastm4n"], times.get("python-crfsuite")
            rows.append((
                call, kind, f"{n / ours:,.0f}", f"{n / theirs:,.0f}" if theirs else "-",
                f"{theirs / ours:.1f}" if theirs else "-"))
    print(table(
        f"Tagging {n:,} tokens (tokens a CPU second)",
        ("calls", "given", "fastm4n", "python-crfsuite", "ratio"), rows))


def of_one_file(model, test, repeats):
    """The same model file in both: loading, tags and marginals."""
    from pycrfsuite import Tagger

    peer = Tagger()
    peer.open(model)
    tagger = load_model(model).set_params(n_jobs=1)
    labels, n = peer.labels(), sum(map(len, test))

    def opened(path):
        Tagger().open(path)

    def their_marginals(sentences):
        found = []
        for tokens in sentences:
            peer.set(tokens)
            found.append([
                [peer.marginal(label, t) for label in labels] for t in range(len(tokens))])
        return found

    contests = {
        "load the file": (lambda: model, load_model, opened),
        "tags, one call": (
            lambda: test, tagger.predict, lambda sentences: [peer.tag(x) for x in sentences]),
        "tags, a call for each sentence": (
            lambda: test, lambda sentences: [tagger.predict([x])[0] for x in sentences],
            lambda sentences: [peer.tag(x) for x in sentences]),
        "marginals, one call": (lambda: test, tagger.predict_marginals, their_marginals),
    }
    rows = []
    for what, (make, ours, theirs) in contests.items():
        times = medians({"fastm4n": ours, "python-crfsuite": theirs}, make, repeats)
        rows.append((what, *(f"{times[name]:.4f}" for name in times)))
    size = Path(model).stat().st_size
    print(table(
        f"A model file of python-crfsuite, {size / 2**20:.1f} MiB: {len(labels)} labels, "
        f"{tagger.n_features_in_:,} attributes, {n:,} tokens to tag (CPU seconds)",
        ("", "fastm4n", "python-crfsuite"), rows))
    same = all(
        list(mine) == peer.tag(tokens) for mine, tokens in zip(tagger.predict(test), test))
    furthest = max(
        np.abs(mine - np.reshape(theirs, mine.shape)).max(initial=0.0) for mine, theirs in zip(
            tagger.predict_marginals(test), their_marginals(test)))
    tracemalloc.start()
    load_model(model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(
        f"tags are the same: {same}; marginals differ by {furthest:.1e} at most; loading takes "
        f"{peak / size:.1f} times the file at its peak\n")


def vectorizing(train, repeats):
    n, rows = sum(map(len, train)), []
    vectorizer = SequenceVectorizer().fit(train)
    for what, function in (
            ("fit_transform", lambda sentences: SequenceVectorizer().fit_transform(sentences)),
            ("transform", vectorizer.transform)):
        seconds = medians({what: function}, lambda: train, repeats)[what]
        tracemalloc.start()
        values = function(train).values
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        size = values.data.nbytes + values.indices.nbytes + values.indptr.nbytes
        rows.append((
            what, f"{seconds:.3f}", f"{n / seconds:,.0f}", f"{size / 2**20:.1f}",
            f"{(peak - size) / 2**20:.1f}"))
    print(table(
        f"SequenceVectorizer, {n:,} tokens", (
            "", "CPU s", "tokens a CPU second", "MiB of the matrix", "MiB beside it at the peak"),
        rows))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sentences", type=int, help="of training and test, by default all")
    args = parser.parse_args()
    if folder() is None or not (folder() / "conll2000").is_dir():
        parser.exit(1, "set FASTM4N_DATA to the folder that holds conll2000/train.txt.gz\n")
    train, labels = read("train", args.sentences)
    test, _ = read("test", args.sentences)
    with tempfile.TemporaryDirectory() as directory:
        found = contestants(train, labels, str(Path(directory) / "crfsuite.model"))
        tagging(found, test, args.repeats)
        if has_package("python-crfsuite"):
            of_one_file(str(Path(directory) / "crfsuite.model"), test, args.repeats)
    vectorizing(train, args.repeats)


if __name__ == "__main__":
    main()
