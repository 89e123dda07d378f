"""A CRF of ten million tokens, from a generator over a folder to a certified gap.

    python benchmarks/text_from_disk.py [--tokens 10_000_000] [--memory 256]

Sentences are drawn at random: words by Zipf's law, tags that depend on the word and on the tag
before. A token has the eight attributes of a small tagger (word, affixes, shape, neighbours).
Prints CPU seconds and the peak of the process's own memory in each step: the names of attributes,
the folder, and the fit by `OutOfCore`. Pages of mapped files do not count: the system drops them
when it needs room.
"""

import argparse
import os
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from fastm4n import OutOfCore, Sequences, SequenceTagger, SequenceVectorizer

WORDS, TAGS, LENGTH, AT_ONCE = 60_000, 12, 20, 1_000


def attributes(words):
    tokens = [
        {"word": word, "end": word[-2:], "start": word[:2], "long": len(word) > 4, "bias": 1}
        for word in words]
    for token, before in zip(tokens[1:], words):
        token["before"] = before
    for token, after in zip(tokens, words[1:]):
        token["after"] = after
    return tokens


def batches(n_tokens):
    rng = np.random.default_rng(0)
    names = [format(i, "x").translate(str.maketrans("0123456789", "ghijklmnop")) for i in range(WORDS)]
    first, bonus = rng.integers(0, TAGS, WORDS), rng.integers(0, TAGS, TAGS)
    for _ in range(n_tokens // (LENGTH * AT_ONCE)):
        words = np.minimum(rng.zipf(1.3, (AT_ONCE, LENGTH)) - 1, WORDS - 1)
        tags = first[words]
        follows = rng.random((AT_ONCE, LENGTH)) < 0.3
        for t in range(1, LENGTH):
            tags[:, t] = np.where(follows[:, t], bonus[tags[:, t - 1]], tags[:, t])
        yield [[names[w] for w in row] for row in words.tolist()], [*tags]


def own_memory():
    """MiB of this process that are no pages of files, on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**10


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--memory", type=int, default=256, help="MiB of OutOfCore")
    args = parser.parse_args()
    start, peak = time.process_time(), 0.0

    def watch():
        nonlocal peak
        while True:
            peak = max(peak, own_memory())
            time.sleep(0.02)

    def say(what):
        nonlocal start, peak
        print(f"| {what} | {time.process_time() - start:.0f} | {peak:.0f} |", flush=True)
        start, peak = time.process_time(), 0.0

    threading.Thread(target=watch, daemon=True).start()
    print("| step | CPU s | peak MiB of the process |\n| --- | --- | --- |")
    for _ in batches(args.tokens):
        pass
    say("the generator alone")
    vectorizer = SequenceVectorizer(min_count=3, dtype=np.float32)
    vectorizer.fit(attributes(words) for batch, _ in batches(args.tokens) for words in batch)
    say(f"names of {len(vectorizer.feature_names_):,} attributes, with the generator")
    with tempfile.TemporaryDirectory() as home:
        X, y = Sequences.from_batches((
            (vectorizer.transform(map(attributes, batch)), tags)
            for batch, tags in batches(args.tokens)), os.path.join(home, "train"))
        size = sum(entry.stat().st_size for entry in os.scandir(os.path.join(home, "train")))
        say(f"folder of {size / 2**20:,.0f} MiB, with the generator")
        tagger = SequenceTagger(
            "log", states="observed", solver=OutOfCore(memory=args.memory), random_state=0)
        tagger.fit(X, y)
        say(f"fit to a gap of {tagger.relative_gap_:.1e}, {tagger.n_iter_} passes")
        print(f"\n{X.n_tokens:,} tokens, {len(X):,} sentences, {tagger.n_nonzero_:,} weights, "
              f"accuracy {tagger.score(X[:5000], y[:5000]):.4f} of the first sentences")


if __name__ == "__main__":
    main()
