"""Boosting, minimum risk and the other surrogates on one task: error and time.

    FASTM4N_DATA=... python benchmarks/boosting.py [--sentences 400]

Tamil parts of speech (UD Tamil-TTB), the first 400 sentences of the training part, features of
benchmarks/elastic_net.py, alpha of 1, 0.3, 0.1 and 0.03 over the number of sentences, that of the
fewest wrong words of the development part. Errors are those of the test part; seconds are of CPU,
of one fit to a relative gap of 1e-3.
"""

import argparse
import time
import warnings

import numpy as np
from _data import folder
from elastic_net import attributes
from sklearn.exceptions import ConvergenceWarning

from fastm4n import SequenceTagger, SequenceVectorizer
from fastm4n.datasets import load_conllu
from fastm4n.research.boosting import Boost, refine_risk
from fastm4n.surrogates import Log

ALPHAS = (1.0, 0.3, 0.1, 0.03)


def errors(tagger, X, y):
    """Shares of words and of sentences that are wrong."""
    wrong = [
        np.asarray(a) != np.asarray(b) for a, b in zip(tagger.predict(X), y, strict=True)]
    return np.concatenate(wrong).mean(), np.mean([part.any() for part in wrong])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=400)
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    parts = {
        name: load_conllu(folder() / "pos" / f"ta_ttb-ud-{name}.conllu.gz")
        for name in ("train", "dev", "test")}
    n = given.sentences
    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform([attributes(s) for s in parts["train"].tokens[:n]])
    y = parts["train"].labels[:n]
    held = {
        name: (vectorizer.transform([attributes(s) for s in parts[name].tokens]),
               parts[name].labels) for name in ("dev", "test")}
    print("| training | alpha n | words wrong | sentences wrong | seconds |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, options, refined in (
        ("log", {"surrogate": "log"}, False),
        ("log, costs added", {"surrogate": Log(cost_augmented=True)}, False),
        ("max_margin", {"surrogate": "max_margin"}, False),
        ("boost", {"surrogate": Boost()}, False),
        ("log, then minimum risk", {"surrogate": "log"}, True),
    ):
        rows = []
        for share in ALPHAS:
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                tagger = SequenceTagger(
                    alpha=share / n, tol=1e-3, random_state=0, **options).fit(X, y)
            if refined:
                tagger = refine_risk(tagger, X, y)
            seconds = time.process_time() - start
            rows.append((errors(tagger, *held["dev"])[0], share, tagger, seconds))
        _, share, tagger, seconds = min(rows, key=lambda row: row[0])
        words, sentences = errors(tagger, *held["test"])
        print(f"| {name} | {share:g} | {words:.2%} | {sentences:.1%} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
