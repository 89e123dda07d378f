"""From attributes to tags: calls, files and tokens a CPU second, against python-crfsuite.

    FASTM4N_DATA=... python benchmarks/tagging.py [--repeats 5] [--sentences 2000] [--page]

The attributes are those of CRFsuite's chunking example on CoNLL-2000, 19 a token. Models have the
same weights except for how far they were fitted, which makes no difference to the time. Prints
tables of

- a call for one short sentence of dicts, 5 to 10 tokens: `SequenceTagger.predict`,
  `crfsuite.CRF.predict_single` and `predict`, python-crfsuite's `Tagger.tag` and
  `sklearn_crfsuite.CRF.predict_single`;
- loading a model, and loading it and tagging one sentence, of few sentences and of all: our file,
  the same weights in a file of python-crfsuite by `fastm4n.crfsuite.load_model`, and by
  `Tagger.open`;
- files, pickles and weights of elastic nets, c1 = c2 = 0.1, of each package's own fit;
- tagging the test set, in one call and in a call for each sentence: lists of strings that exist
  already, lists of strings that are new (whose hashes nobody has computed), and dicts;
- `SequenceVectorizer` alone, for the training set: CPU seconds, and the peak of memory beside
  the matrix that it makes;
- the model file that python-crfsuite wrote, loaded by `fastm4n.crfsuite.load_model`: seconds, peak of
  memory, and tagging with it, tags and marginals, beside python-crfsuite with the same file, with
  the largest difference of a marginal, and whether tags are the same.

One thread, contestants in turns, medians of the repeats. ``--page`` writes what is printed to
docs/results/tagging.md.
"""

import argparse
import gc
import pickle
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
from _data import folder
from _peers import ROOT, describe, environment, has_package, table, train_crfsuite

from fastm4n import SequenceVectorizer, save_model
from fastm4n import load_model as load_ours
from fastm4n.crfsuite import CRF, load_model
from fastm4n.datasets import chunking_attributes, load_conll

PASSES = 3  # of the fit: times of tagging do not depend on how good the weights are
PEER_ITERATIONS = 4
CALLS = 30  # of each short sentence
SMALL = 200  # sentences of the small model
SPARSE = 2000  # sentences of the elastic nets
C = 0.1  # their c1 and c2
PAGE = ROOT / "docs" / "results" / "tagging.md"
INTRO = """# Tagging from attributes

Made by `python benchmarks/tagging.py{options} --page`: CPU time of one thread, medians over the
repeats, contestants in turns in one process. Other work ran on the machine: trust ratios within a
table more than times.

- {run}

The attributes are those of CRFsuite's chunking example on CoNLL-2000. Short sentences are the
first 100 of the test set with 5 to 10 tokens. Each package has its own fit and file of the same
data, and the rows of `fastm4n.crfsuite.load_model` read the file of python-crfsuite.

"""
said = []


def say(text):
    """Print, and keep for the page."""
    print(text)
    said.append(text)


def read(part, n=None):
    """Attributes and chunk tags of the sentences of "train" or "test".

    Names end with ":" and so are those of dicts of the same.
    """
    data = load_conll(folder() / "conll2000" / f"{part}.txt.gz")
    attributes = [
        [[name.replace("=", ":", 1) for name in token]
         for token in chunking_attributes(*zip(*tokens))] for tokens in data.tokens[:n]]
    return attributes, data.labels[:n]


def anew(sentences):
    """The same, of strings that were made just now."""
    return [[[(name + " ")[:-1] for name in token] for token in tokens] for tokens in sentences]


def as_dicts(sentences):
    """The same, of dicts from what is before ":" to what is behind it."""
    return [
        [dict(name.split(":", 1) if ":" in name else (name, True) for name in token)
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


def fitted(train, labels, **parameters):
    """A CRF of few passes: its times do not depend on how good the weights are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CRF(**{"c2": 1.0, "max_iterations": PASSES, **parameters}).fit(train, labels)


def contestants(train, labels, model):
    """name: (tag all, tag one by one), of what are fitted to the training data."""
    tagger = fitted(train, labels).tagger_.set_params(n_jobs=1)
    found = {"fastm4n": (
        tagger.predict, lambda sentences: [tagger.predict([tokens])[0] for tokens in sentences])}
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
    say(table(
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
    say(table(
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
    say(
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
    say(table(
        f"SequenceVectorizer, {n:,} tokens", (
            "", "CPU s", "tokens a CPU second", "MiB of the matrix", "MiB besides at the peak"),
        rows))


def service(train, labels, test, model, repeats):
    """Calls for one short sentence of dicts."""
    train, short = as_dicts(train), [x for x in as_dicts(test) if 5 <= len(x) <= 10][:100]
    ours = fitted(train, labels)
    tagger = ours.tagger_.set_params(n_jobs=1)
    functions = {
        "`SequenceTagger.predict([x])[0]`": lambda x: tagger.predict([x])[0],
        "`crfsuite.CRF.predict_single(x)`": ours.predict_single,
        "`crfsuite.CRF.predict([x])`": lambda x: ours.predict([x]),
    }
    if has_package("python-crfsuite"):
        from pycrfsuite import Tagger

        train_crfsuite(zip(train, labels), model, c2=1.0, max_iterations=PEER_ITERATIONS)
        peer = Tagger()
        peer.open(model)
        functions["python-crfsuite `Tagger.tag(x)`"] = peer.tag
    if has_package("sklearn-crfsuite"):
        import sklearn_crfsuite

        wrapper = sklearn_crfsuite.CRF(c2=1.0, max_iterations=PEER_ITERATIONS).fit(train, labels)
        functions["sklearn_crfsuite `CRF.predict_single(x)`"] = wrapper.predict_single

    def all_of(function):
        def calls(sentences):
            for x in sentences:
                for _ in range(CALLS):
                    function(x)
        return calls

    times = medians(
        {name: all_of(function) for name, function in functions.items()}, lambda: short, repeats)
    n = CALLS * len(short)
    size = np.mean([len(x) for x in short]), np.mean([len(token) for x in short for token in x])
    say(table(
        f"A call for one short sentence of dicts: {size[0]:.1f} tokens of {size[1]:.1f} attributes, "
        f"{len(ours.classes_)} labels",
        ("call", "microseconds of CPU"),
        [(name, f"{1e6 * seconds / n:.1f}") for name, seconds in times.items()]))


def loading(train, labels, test, directory, repeats):
    """Milliseconds to load models, and to load them and tag a sentence."""
    from pycrfsuite import Tagger

    ours, theirs, rows = str(directory / "ours"), str(directory / "theirs"), []

    def opened(path):
        peer = Tagger()
        peer.open(path)
        return peer

    for n in (SMALL, len(train)):
        crf = fitted(train[:n], labels[:n])
        save_model(crf.tagger_, ours)
        train_crfsuite(
            zip(train[:n], labels[:n]), theirs, c2=1.0, max_iterations=PEER_ITERATIONS)
        contestants = {
            "`fastm4n.load_model`": (load_ours, ours),
            "`fastm4n.crfsuite.load_model`": (load_model, theirs),
            "`pycrfsuite.Tagger.open`": (opened, theirs),
        }
        sentence = test[0]

        def tag(of):
            return of.tag(sentence) if isinstance(of, Tagger) else of.predict([sentence])

        loads = medians(
            {name: lambda _, load=load, file=file: load(file)
             for name, (load, file) in contestants.items()}, lambda: None, 3 * repeats)
        tags = medians(
            {name: lambda _, load=load, file=file: tag(load(file))
             for name, (load, file) in contestants.items()}, lambda: None, 3 * repeats)
        rows += [
            (f"{n:,}", f"{crf.n_features_in_:,}", name, f"{Path(file).stat().st_size / 2**20:.2f}",
             f"{1e3 * loads[name]:.2f}", f"{1e3 * tags[name]:.2f}")
            for name, (_, file) in contestants.items()]
    say(table(
        "Loading a model (milliseconds of CPU)",
        ("sentences", "attributes", "loaded by", "MiB", "load", "load and tag one sentence"), rows))


def elastic_nets(train, labels, directory):
    """Sizes of elastic nets."""
    train, labels, rows = train[:SPARSE], labels[:SPARSE], []
    theirs, ours = directory / "theirs", directory / "ours"
    crf = CRF(c1=C, c2=C, epsilon=1e-4).fit(train, labels)
    tagger = crf.tagger_
    save_model(tagger, ours)
    held = tagger._of_pairs
    n_bytes = sum(array.nbytes for array in (held.rows, *held.pairs)) + (
        tagger.vectorizer_._names.__sizeof__())
    rows.append((
        "fastm4n", f"{tagger.n_features_in_:,}", f"{tagger.n_nonzero_:,}", ours.stat().st_size,
        len(pickle.dumps(crf)), n_bytes))
    if has_package("python-crfsuite"):
        from pycrfsuite import Tagger

        train_crfsuite(zip(train, labels), theirs, c1=C, c2=C)
        peer = Tagger()
        peer.open(str(theirs))
        state = peer.info().state_features
        rows.append((
            "python-crfsuite", f"{len({name for name, _ in state}):,}", f"{len(state):,}",
            theirs.stat().st_size, None, None))
    say(table(
        f"Elastic nets of {len(train):,} sentences, c1 = c2 = {C:g}",
        ("", "attributes", "weights of attributes", "file, MiB", "pickle, MiB", "memory, MiB"),
        [(*row[:3], *("-" if size is None else f"{size / 2**20:.2f}" for size in row[3:]))
         for row in rows]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sentences", type=int, help="of training and test, by default all")
    parser.add_argument("--page", action="store_true", help="write docs/results/tagging.md")
    args = parser.parse_args()
    if folder() is None or not (folder() / "conll2000").is_dir():
        parser.exit(1, "set FASTM4N_DATA to the folder that holds conll2000/train.txt.gz\n")
    train, labels = read("train", args.sentences)
    test, _ = read("test", args.sentences)
    with tempfile.TemporaryDirectory() as directory:
        service(train, labels, test, str(Path(directory) / "service.model"), args.repeats)
        if has_package("python-crfsuite"):
            loading(train, labels, test, Path(directory), args.repeats)
        elastic_nets(train, labels, Path(directory))
        found = contestants(train, labels, str(Path(directory) / "crfsuite.model"))
        tagging(found, test, args.repeats)
        if has_package("python-crfsuite"):
            of_one_file(str(Path(directory) / "crfsuite.model"), test, args.repeats)
    vectorizing(train, args.repeats)
    if args.page:
        run = environment("SciPy", "scikit-learn", "python-crfsuite", "sklearn-crfsuite")
        options = f" --sentences {args.sentences}" if args.sentences else ""
        PAGE.write_text(INTRO.format(options=options, run=describe(run)) + "\n".join(said))


if __name__ == "__main__":
    main()
