"""The loss on held-out data over a grid of alpha, in multiples of 1 / n: what defaults rest on.

    FASTM4N_DATA=... python benchmarks/alpha_defaults.py [sequences rankings matchings]
        [--cost-scale mean]

Each set is fitted twice for each surrogate: on n examples and on a tenth of them. A number is what
is wrong in held-out data, in per cent: tokens (CoNLL-2000: 100 minus the F1 of chunks), items of
rankings, rows of matchings. The last rows have the mean, over the rows above, of the excess over the
best of the row: for alpha = c / n, and for the same alpha whatever n is, outside the grid with the
losses of its end.
"""

import argparse
import warnings

import matching
import numpy as np
from _data import RANKING, folder, load_ranking
from ocr import ocr_part
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from fastm4n import LabelRanker, Matcher, SequenceTagger, SequenceVectorizer
from fastm4n.data._rankings import as_places
from fastm4n.datasets import chunking_attributes, load_conll, load_conllu, window_attributes
from fastm4n.metrics import span_f1_score, token_accuracy

SURROGATES = ("max_min", "max_margin", "log")
MULTIPLES = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
CONLL, HELD_OUT = 1000, 500


def tokens_wrong(y, predicted):
    return 100 * (1 - token_accuracy(y, predicted))


def chunks_wrong(y, predicted):
    return 100 * (1 - span_f1_score(y, predicted))


def parts_wrong(y, predicted):
    return 100 * np.mean(y != predicted)


def vectorized(train, test, attributes):
    vectorizer = SequenceVectorizer()
    return (
        vectorizer.fit_transform([attributes(tokens) for tokens in train.tokens]), train.labels,
        vectorizer.transform([attributes(tokens) for tokens in test.tokens]), test.labels,
    )


def sequences():
    """(name, estimator, X, y, held-out X, held-out y, what is wrong)."""
    pos, small, large = folder() / "pos", ocr_part(0), ocr_part(1)
    yield "OCR", SequenceTagger, *small, *(part[:HELD_OUT] for part in large), tokens_wrong
    yield "OCR-large", SequenceTagger, *large, *small, tokens_wrong
    train, test = (
        load_conllu(pos / f"ta_ttb-ud-{part}.conllu.gz") for part in ("train", "test"))
    yield "Tamil", SequenceTagger, *vectorized(train, test, window_attributes), tokens_wrong
    train, test = (
        load_conll(pos / f"tweebank_v1-{part}.conll.gz", label_column=3, delimiter="\t")
        for part in ("train", "test"))
    yield "tweets", SequenceTagger, *vectorized(
        train, test, lambda tokens: window_attributes([columns[1] for columns in tokens])
    ), tokens_wrong
    X, y, X_test, y_test = vectorized(
        *(load_conll(folder() / "conll2000" / f"{part}.txt.gz") for part in ("train", "test")),
        lambda tokens: chunking_attributes(*zip(*tokens, strict=True)))
    yield ("CoNLL-2000", SequenceTagger, X[:CONLL], y[:CONLL], X_test[:HELD_OUT],
           y_test[:HELD_OUT], chunks_wrong)


def rankings():
    for name in RANKING:
        X, y = load_ranking(name)
        order = np.random.RandomState(0).permutation(len(y))
        train, test = np.split(order, [len(order) // 2])
        X, places = StandardScaler().fit(X[train]).transform(X), as_places(y)
        places = places if isinstance(places, np.ndarray) else places[0]
        yield name, LabelRanker, X[train], places[train], X[test], places[test], parts_wrong


def matchings():
    for name, problems in (
        ("columns", matching.column_problems), ("points", matching.point_problems)
    ):
        train, test = problems(0)
        yield name, Matcher, train["X"], train["y"], test["X"], test["y"], parts_wrong


def measured(model, multiples, X, y, X_test, y_test, wrong):
    """What is wrong at each multiple of 1 / n."""
    losses = []
    for c in multiples:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.set_params(alpha=c / len(X)).fit(X, y)
        losses.append(wrong(y_test, model.predict(X_test)))
    return np.array(losses)


def row(*cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = {"sequences": sequences, "rankings": rankings, "matchings": matchings}
    parser.add_argument("kinds", nargs="*", default=list(kinds))
    parser.add_argument("--cost-scale", default="sum")
    given = parser.parse_args()
    scale, surrogates = given.cost_scale, SURROGATES if given.cost_scale == "sum" else SURROGATES[:2]
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    for kind in given.kinds:
        found = []
        # max-min oracles of long sequences under a large alpha take very long
        multiples = MULTIPLES[1:] if kind == "sequences" and scale == "sum" else MULTIPLES
        row(kind, "n", "surrogate", *(f"{c:g} / n" for c in multiples))
        row("---", "---:", "---", *("---:" for _ in multiples))
        for name, cls, X, y, X_test, y_test, wrong in kinds[kind]():
            # a tenth of OCR-large would be a few words, each many times
            for n in (len(X),) if name == "OCR-large" else (len(X), len(X) // 10):
                for surrogate in surrogates:
                    model = cls(surrogate, cost_scale=scale, max_iter=300, random_state=0)
                    losses = measured(model, multiples, X[:n], y[:n], X_test, y_test, wrong)
                    found.append((n, losses - losses.min()))
                    row(name, str(n), surrogate, *(
                        f"**{loss:.1f}**" if loss == losses.min() else f"{loss:.1f}"
                        for loss in losses))
        excess = [losses for _, losses in found]
        row("excess", "", "c / n", *(f"{loss:.1f}" for loss in np.mean(excess, axis=0)))
        print()
        alphas = 10.0 ** -np.arange(0, 4.5, 0.5)
        row("alpha", *(f"{alpha:.2g}" for alpha in alphas))
        row("---", *("---:" for _ in alphas))
        row("excess", *(
            f"{np.mean([np.interp(-np.log(a * n), -np.log(multiples), loss) for n, loss in found]):.1f}"
            for a in alphas))
        print()


if __name__ == "__main__":
    main()
