"""Sparse taggers: passes of the elastic net to a certified gap, and how many weights are left.

    FASTM4N_DATA=... python benchmarks/elastic_net.py [--sentences 400] [--max-iter 60]

Tamil parts of speech (UD Tamil-TTB), the first 400 sentences of the training part, the log
surrogate: words, prefixes and suffixes of one to five letters of the word, and its neighbours.
The objective is

    mean_i -log p(y_i | x_i) + 1e-3 / 2 ||w||^2 + 1e-3 ||w||_1,

the intercept without the L1 term: alpha = 2e-3 with l1_ratio = 0.5. The relative gap is the
certified gap over the objective, which is larger than over the objective at w = 0; the last column
has the passes of the default solver until `relative_gap_`, over the objective at w = 0, is 1e-4.
"""

import argparse
import warnings

import numpy as np
from _data import folder
from sklearn.exceptions import ConvergenceWarning

from fastm4n import BlockFrankWolfe, SequenceTagger, SequenceVectorizer
from fastm4n.datasets import load_conllu
from fastm4n.penalties import ElasticNet, Group

TARGET = 1e-4


def attributes(words):
    """Names of the features of each word."""
    out = []
    for t, word in enumerate(words):
        names = {"w=" + word}
        for k in range(1, 6):
            if len(word) > k:
                names |= {f"p{k}=" + word[:k], f"s{k}=" + word[-k:]}
        names.add("w-1=" + (words[t - 1] if t else "<s>"))
        names.add("w+1=" + (words[t + 1] if t + 1 < len(words) else "</s>"))
        out.append({name: 1.0 for name in names})
    return out


def measured(name, penalty, X, y, X_test, y_test, max_iter):
    """Fit, and print a row: passes to the target, the gap then, non-zero weights, test error."""
    seen = []

    def look(row):
        seen.append((row["pass"], row["primal"], row["gap"]))
        return row["gap"] <= TARGET * row["primal"]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SequenceTagger(
            "log", alpha=2e-3, penalty=penalty, tol=1e-12, max_iter=max_iter, random_state=0,
            solver=BlockFrankWolfe(accelerate=False), callback=look,
        ).fit(X, y)
        default = SequenceTagger(
            "log", alpha=2e-3, penalty=penalty, tol=TARGET, max_iter=200, random_state=0,
        ).fit(X, y)
    passes, primal, gap = seen[-1]
    wrong = np.concatenate([
        np.asarray(a) != np.asarray(b)
        for a, b in zip(model.predict(X_test), y_test, strict=True)])
    features = int(np.any(model.coef_ != 0.0, axis=0).sum())
    print(
        f"| {name} | {passes} | {gap / primal:.1e} | {primal:.4f} | "
        f"{int(np.count_nonzero(model.coef_)):,} of {model.coef_.size:,} | {features:,} | "
        f"{100.0 * wrong.mean():.2f} % | {default.n_iter_} |", flush=True)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=400)
    parser.add_argument("--max-iter", type=int, default=60)
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    base = folder() / "pos"
    train, test = (load_conllu(base / f"ta_ttb-ud-{part}.conllu.gz") for part in ("train", "test"))
    n = given.sentences
    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform([attributes(sentence) for sentence in train.tokens[:n]])
    X_test = vectorizer.transform([attributes(sentence) for sentence in test.tokens])
    y, y_test = train.labels[:n], test.labels
    print("| penalty | passes | relative gap | objective | non-zero weights | features | "
          "test error | default, passes |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, penalty in (
        ("L2 alone", "l2"),
        ("elastic net", ElasticNet(l1_ratio=0.5)),
        ("elastic net, 0.9", ElasticNet(l1_ratio=0.9)),
        ("groups of a feature", Group(l1_ratio=0.5)),
    ):
        measured(name, penalty, X, y, X_test, y_test, given.max_iter)


if __name__ == "__main__":
    main()
