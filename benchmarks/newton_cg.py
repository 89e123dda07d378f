"""Newton-CG beside block steps: passes and seconds of CPU to certified gaps.

    FASTM4N_DATA=... python benchmarks/newton_cg.py [--sentences 400]

The log surrogate, one thread: parts of speech of Tamil (UD Tamil-TTB, the first 400 sentences,
features of benchmarks/elastic_net.py, 13 labels), and digits (1,797 images, 64 features, 10 classes)
and breast cancer (569 examples, 30 features, 2 classes) of scikit-learn, standardised. A pass looks at all examples once: of blocks it makes a step
for each, of Newton-CG it is one evaluation or one product with the Hessian. The gap is relative to
the objective at zero weights; alpha is 1 / n, and smaller.
"""

import argparse
import itertools
import time

from _data import folder
from elastic_net import attributes
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.preprocessing import StandardScaler

from fastm4n import (
    BlockFrankWolfe,
    MulticlassClassifier,
    NewtonCG,
    SequenceTagger,
    SequenceVectorizer,
)
from fastm4n.datasets import load_conllu

TARGETS = (1e-2, 1e-4, 1e-6, 1e-8)


def measured(name, estimator, X, y):
    """A row: passes and seconds to each target."""
    seen, start = {}, time.process_time()

    def look(row):
        for target in TARGETS:
            if row["gap"] <= target * zero and target not in seen:
                seen[target] = row["pass"], time.process_time() - start
        return False

    zero = objective_at_zero(estimator, X, y)
    start = time.process_time()
    estimator.set_params(callback=look, tol=TARGETS[-1], max_iter=3000).fit(X, y)
    cells = [
        f"{seen[target][0]} ({seen[target][1]:.2f} s)" if target in seen else "-"
        for target in TARGETS]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def objective_at_zero(estimator, X, y):
    """By a fit of one pass, whose gap and relative gap are known."""
    first = estimator.set_params(callback=lambda row: True, max_iter=1, tol=1e-30)
    return first.fit(X, y).duality_gap_ / first.relative_gap_


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=400)
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    print("| task | solver | " + " | ".join(f"gap {target:g}" for target in TARGETS) + " |")
    print("| --- | --- |" + " ---: |" * len(TARGETS))
    n = given.sentences
    train = load_conllu(folder() / "pos" / "ta_ttb-ud-train.conllu.gz")
    words = SequenceVectorizer().fit_transform([attributes(s) for s in train.tokens[:n]])
    tasks = [("Tamil", SequenceTagger, words, train.labels[:n])]
    for name, load in (("digits", load_digits), ("cancer", load_breast_cancer)):
        X, y = load(return_X_y=True)
        tasks.append((name, MulticlassClassifier, StandardScaler().fit_transform(X), y))
    for (name, cls, X, y), share in itertools.product(tasks, (1.0, 0.01, 0.0001)):
        if name == "Tamil" and share == 0.0001:
            continue
        for of, solver in (("blocks", BlockFrankWolfe()), ("Newton-CG", NewtonCG())):
            estimator = cls("log", alpha=share / len(y), solver=solver, random_state=0)
            measured(f"{name}, alpha = {share:g} / n | {of}", estimator, X, y)


if __name__ == "__main__":
    main()
