"""The code of sklearn-crfsuite's tutorial, line by line, with `fastm4n.crfsuite.CRF`.

Its data are Spanish names of CoNLL-2002. These are words of a small grammar, with the same columns.
"""

import warnings
from collections import Counter

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import make_scorer
from sklearn.model_selection import RandomizedSearchCV

from fastm4n.crfsuite import CRF

metrics = pytest.importorskip(
    "sklearn_crfsuite.metrics", reason="sklearn-crfsuite is not installed: its metrics are used.")

PERSONS = "Ana Juan Luisa Pedro Marta".split()
PLACES = "Lima Bilbao Cuzco Toledo".split()
COMPANIES = "Telefonica Repsol Iberdrola".split()


def sentence(rng):
    """(word, part of speech, label) of each token."""
    def name(kind, *words):
        return [(word, "NP", f"{'I' if i else 'B'}-{kind}") for i, word in enumerate(words)]

    person = name("PER", *rng.choice(PERSONS, rng.integers(1, 3), replace=False))
    place, company = name("LOC", rng.choice(PLACES)), name("ORG", rng.choice(COMPANIES), "S.A.")
    plain = {word: (word, tag, "O") for word, tag in (
        ("vive", "VMI"), ("en", "SP"), ("trabaja", "VMI"), ("de", "SP"), ("la", "DA"), (".", "Fp"),
        ("1999", "Z"), ("compra", "VMI"))}
    return [
        [*person, plain["vive"], plain["en"], *place, plain["."]],
        [*person, plain["trabaja"], plain["en"], *company, plain["de"], *place],
        [*company, plain["compra"], plain["la"], *company, plain["en"], plain["1999"]],
    ][rng.integers(3)]


def word2features(sent, i):
    word = sent[i][0]
    postag = sent[i][1]
    features = {
        "bias": 1.0,
        "word.lower()": word.lower(),
        "word[-3:]": word[-3:],
        "word[-2:]": word[-2:],
        "word.isupper()": word.isupper(),
        "word.istitle()": word.istitle(),
        "word.isdigit()": word.isdigit(),
        "postag": postag,
        "postag[:2]": postag[:2],
    }
    for step, edge in ((-1, "BOS"), (1, "EOS")):
        if not 0 <= i + step < len(sent):
            features[edge] = True
            continue
        near, tag = sent[i + step][:2]
        features.update({
            f"{step:+}:word.lower()": near.lower(),
            f"{step:+}:word.istitle()": near.istitle(),
            f"{step:+}:word.isupper()": near.isupper(),
            f"{step:+}:postag": tag,
            f"{step:+}:postag[:2]": tag[:2],
        })
    return features


def sent2features(sent):
    return [word2features(sent, i) for i in range(len(sent))]


def sent2labels(sent):
    return [label for token, postag, label in sent]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    train_sents, test_sents = ([sentence(rng) for _ in range(n)] for n in (60, 30))
    return (
        [sent2features(s) for s in train_sents], [sent2labels(s) for s in train_sents],
        [sent2features(s) for s in test_sents], [sent2labels(s) for s in test_sents])


def test_the_tutorial(data, tmp_path, capsys):
    X_train, y_train, X_test, y_test = data
    assert X_train[0][0]["BOS"] and "-1:postag" in X_train[0][1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        # Training
        crf = CRF(
            algorithm="lbfgs",
            c1=0.1,
            c2=0.1,
            max_iterations=100,
            all_possible_transitions=True,
        )
        crf.fit(X_train, y_train)

        # Evaluation
        labels = list(crf.classes_)
        labels.remove("O")
        assert sorted(labels) == ["B-LOC", "B-ORG", "B-PER", "I-ORG", "I-PER"]
        y_pred = crf.predict(X_test)
        assert metrics.flat_f1_score(y_test, y_pred, average="weighted", labels=labels) > 0.95
        sorted_labels = sorted(labels, key=lambda name: (name[1:], name[0]))
        report = metrics.flat_classification_report(
            y_test, y_pred, labels=sorted_labels, digits=3)
        assert "B-PER" in report

        # Hyperparameter Optimization
        crf = CRF(
            algorithm="lbfgs",
            max_iterations=100,
            all_possible_transitions=True,
        )
        params_space = {
            "c1": scipy.stats.expon(scale=0.5),
            "c2": scipy.stats.expon(scale=0.05),
        }
        f1_scorer = make_scorer(metrics.flat_f1_score, average="weighted", labels=labels)
        rs = RandomizedSearchCV(
            crf, params_space, cv=3, verbose=1, n_jobs=1, n_iter=5, scoring=f1_scorer,
            random_state=0)
        rs.fit(X_train, y_train)
        print("best params:", rs.best_params_)
        print("best CV score:", rs.best_score_)
        print("model size: {:0.2f}M".format(rs.best_estimator_.size_ / 1000000))
        assert rs.best_params_.keys() == {"c1", "c2"} and rs.best_score_ > 0.9
        assert "model size: 0." in capsys.readouterr().out

        # Check parameter space
        _x = list(rs.cv_results_["param_c1"])
        _y = list(rs.cv_results_["param_c2"])
        _c = list(rs.cv_results_["mean_test_score"])
        assert len(_x) == len(_y) == len(_c) == 5

        # Check best estimator on our test data
        crf = rs.best_estimator_
        y_pred = crf.predict(X_test)
        assert metrics.flat_f1_score(y_test, y_pred, average="weighted", labels=labels) > 0.95

        # What the classifier learned
        def print_transitions(trans_features):
            for (label_from, label_to), weight in trans_features:
                print("%-6s -> %-7s %0.6f" % (label_from, label_to, weight))

        def print_state_features(state_features):
            for (attr, label), weight in state_features:
                print("%0.6f %-8s %s" % (weight, label, attr))

        print_transitions(Counter(crf.transition_features_).most_common(20))
        print_transitions(Counter(crf.transition_features_).most_common()[-20:])
        print_state_features(Counter(crf.state_features_).most_common(30))
        print_state_features(Counter(crf.state_features_).most_common()[-30:])
        out = capsys.readouterr().out
    assert "B-ORG  -> I-ORG" in out and "postag:NP" in out
