"""The search of sklearn-crfsuite's tutorial, by `fastm4n.crfsuite.CRF` and by sklearn-crfsuite.

    FASTM4N_DATA=... python benchmarks/crfsuite_tutorial.py [--sentences 1100]

The tutorial's features of words and parts of speech as dicts, its candidates c1 and c2 (5 of them),
3 folds, its scorer and its parameters. The data are the first sentences of CoNLL-2000, as the
tutorial's Spanish names are not in `FASTM4N_DATA`. The contestants take turns, candidate by
candidate, on one thread, and CPU seconds are added up. A second table has the best candidate at
several values of epsilon. Both go to docs/results/crfsuite_tutorial.md.
"""

import argparse
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import scipy.stats
from _data import folder
from _peers import ROOT, cpu, describe, environment, table, wrapped
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, ParameterSampler

from fastm4n import SequenceVectorizer
from fastm4n.crfsuite import CRF
from fastm4n.datasets import load_conll

PAGE = ROOT / "docs" / "results" / "crfsuite_tutorial.md"
SCRIPT = dict(algorithm="lbfgs", max_iterations=100, all_possible_transitions=True)
SPACE = {"c1": scipy.stats.expon(scale=0.5), "c2": scipy.stats.expon(scale=0.05)}
EPSILONS = 1e-2, 1e-3, 1e-4, 1e-5
# of what counts as the optimum
EXACT = 1e-8


def of_token(word, tag, where=""):
    """The tutorial's features of a word, without its ending for a neighbour."""
    features = {
        where + "word.lower()": word.lower(), where + "word.istitle()": word.istitle(),
        where + "word.isupper()": word.isupper(), where + "postag": tag,
        where + "postag[:2]": tag[:2]}
    if not where:
        features |= {
            "bias": 1.0, "word[-3:]": word[-3:], "word[-2:]": word[-2:],
            "word.isdigit()": word.isdigit()}
    return features


def of_sentence(tokens):
    out = []
    for t, token in enumerate(tokens):
        features = of_token(*token)
        features |= of_token(*tokens[t - 1], "-1:") if t else {"BOS": True}
        features |= of_token(*tokens[t + 1], "+1:") if t + 1 < len(tokens) else {"EOS": True}
        out.append(features)
    return out


def read(part, n=None):
    """Features and chunk tags of the sentences of "train" or "test"."""
    data = load_conll(folder() / "conll2000" / f"{part}.txt.gz")
    return (
        [of_sentence([token[:2] for token in tokens]) for tokens in data.tokens[:n]],
        [list(labels) for labels in data.labels[:n]])


class Contestant:
    """A search: its CPU seconds, its warnings, and the best candidate."""

    def __init__(self, crf, X, y, scorer):
        self.crf, self.X, self.y, self.scorer = crf, X, y, scorer
        self.seconds, self.n_warnings, self.best, self.model = 0.0, 0, (-np.inf, None), None

    def timed(self, function):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            seconds, result = cpu(function)
        self.seconds += seconds
        self.n_warnings += len(caught)
        return result

    def look(self, candidate):
        search = GridSearchCV(
            self.crf, {name: [value] for name, value in candidate.items()}, cv=3,
            scoring=self.scorer, refit=False)
        found = self.timed(lambda: search.fit(self.X, self.y)).cv_results_["mean_test_score"][0]
        self.best = max(self.best, (found, sorted(candidate.items())))

    def refit(self):
        self.model = self.crf.set_params(**dict(self.best[1]))
        self.timed(lambda: self.model.fit(self.X, self.y))


def by_crfsuite(X, y, path, **parameters):
    """CRFsuite's loss after 100 iterations, and a function that tags."""
    import pycrfsuite

    trainer = pycrfsuite.Trainer("lbfgs", {
        **parameters, "max_iterations": 100, "feature.possible_transitions": True}, verbose=False)
    for tokens, labels in zip(X, y, strict=True):
        trainer.append(tokens, labels)
    trainer.train(path)
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    return trainer.logparser.last_iteration["loss"], lambda X: [tagger.tag(x) for x in X]


def of_epsilons(X, y, X_test, y_test, f1, candidate):
    """Rows: fits of a candidate, beside its optimum."""
    settings = {**SCRIPT, "max_iterations": 1000, **candidate}
    exact = CRF(epsilon=EXACT, **settings).fit(X, y)
    least, tags = exact.objective_, list(exact.predict(X_test))

    def row(name, seconds, passes, gap, objective, predicted):
        pairs = [a == b for own, other in zip(predicted, tags, strict=True)
                 for a, b in zip(own, other, strict=True)]
        return (
            name, passes, f"{seconds:.2f}", gap, f"{objective / least - 1:.1e}",
            f"{100 * np.mean(pairs):.2f} %", f"{100 * f1(y_test, predicted):.2f}")

    rows = []
    for epsilon in EPSILONS:
        crf = CRF(epsilon=epsilon, **settings)
        seconds, _ = cpu(partial(crf.fit, X, y))
        rows.append(row(
            f"epsilon={epsilon:g}", seconds, crf.tagger_.n_iter_, f"{crf.relative_gap_:.1e}",
            crf.objective_, crf.predict(X_test)))
    with tempfile.TemporaryDirectory() as where:
        path = str(Path(where) / "model.crfsuite")
        seconds, (loss, tag) = cpu(lambda: by_crfsuite(X, y, path, **candidate))
        rows.append(row("CRFsuite, 100 iterations", seconds, 100, "-", loss, tag(X_test)))
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=1100)
    args = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    import sklearn_crfsuite
    from sklearn_crfsuite import metrics

    X, y = read("train", args.sentences)
    X_test, y_test = read("test")
    labels = sorted({label for own in y for label in own} - {"O"})
    f1 = partial(
        metrics.flat_f1_score, average="weighted", labels=labels, zero_division=0.0)
    scorer = make_scorer(f1)
    start = time.process_time()
    vectorizer = SequenceVectorizer()
    rows = vectorizer.fit_transform(X)
    vectorising = time.process_time() - start
    contestants = {
        "fastm4n, dicts": Contestant(CRF(**SCRIPT), X, y, scorer),
        "fastm4n, rows": Contestant(CRF(**SCRIPT), rows, y, scorer),
        "sklearn-crfsuite": Contestant(sklearn_crfsuite.CRF(**SCRIPT), X, y, scorer)}
    contestants["fastm4n, rows"].seconds = vectorising
    for candidate in ParameterSampler(SPACE, 5, random_state=0):
        for each in contestants.values():
            each.look({name: float(value) for name, value in candidate.items()})
    table_rows = []
    for name, each in contestants.items():
        each.refit()
        new = vectorizer.transform(X_test) if each.X is rows else X_test
        found = f1(y_test, each.model.predict(new))
        table_rows.append((
            name, f"{each.seconds:.1f}", each.n_warnings,
            ", ".join(f"{key}={value:.3f}" for key, value in each.best[1]),
            f"{100 * each.best[0]:.2f}", f"{100 * found:.2f}"))
    n_tokens = sum(map(len, X))
    search = table(
        "The search", ("", "CPU seconds", "warnings", "best candidate", "F1 of the folds",
                       "F1 of the test set"), table_rows)
    best = dict(contestants["sklearn-crfsuite"].best[1])
    epsilons = table(
        "Epsilon", ("", "passes", "CPU seconds", "certified gap", "objective above the minimum",
                    "tags of the optimum", "F1 of the test set"),
        of_epsilons(X, y, X_test, y_test, f1, best))
    text = "\n".join([
        "# The tutorial of sklearn-crfsuite", "",
        wrapped(
            "`python benchmarks/crfsuite_tutorial.py` searches c1 and c2 as sklearn-crfsuite's "
            "tutorial does: five candidates, three folds, and a fit of the best one. The features, "
            f"the scorer and the parameters are the tutorial's. The data are {len(X):,} sentences "
            f"of CoNLL-2000 ({n_tokens:,} tokens). All ran on one thread and took turns."), "",
        search,
        wrapped(
            "\"Rows\" are `SequenceVectorizer().fit_transform(X)`, made once for the search. F1 is "
            "weighted over the labels without O, in percent."), "",
        epsilons,
        wrapped(
            f"These are fits of CRFsuite's best candidate. The minimum is certified to {EXACT:g} "
            "of itself. \"Certified gap\" is `relative_gap_`, which bounds the next column from "
            "above. \"Tags of the optimum\" is the share of the test set's tokens with the tag of "
            "the optimum. The default is `epsilon=1e-3`."), "",
        wrapped("Run: " + describe(environment(
            "scikit-learn", "sklearn-crfsuite", "python-crfsuite"))), ""])
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
