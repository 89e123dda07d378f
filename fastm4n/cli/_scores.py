"""Scores and losses of a fitted estimator on data with the truth."""

import re
from typing import NamedTuple

MEANINGS = {
    "accuracy": "share of the examples that are right",
    "macro_f1": "mean over the classes of their F1",
    "mean_loss": "mean cost under the model's costs",
    "mean_absolute_error": "mean distance, in levels",
    "token_accuracy": "share of the tokens that are right",
    "sequence_accuracy": "share of the sequences that are right altogether",
    "span_f1": "F1 of spans, as conlleval counts them",
    "node_accuracy": "share of the labelled nodes that are right, each with its weight",
    "graph_accuracy": "share of the graphs whose labelled nodes are all right",
    "hamming_loss": "mean share of the items at wrong positions, or of the labels that are wrong",
    "micro_f1": "F1 of all labels of all examples together",
    "subset_accuracy": "share of the examples whose labels are all right",
    "ordered_pairs": "mean share of the ordered pairs of a ranking that are ordered right",
    "kendall_tau": "mean rank correlation, from -1 to 1",
    "spearman_rho": "mean rank correlation, from -1 to 1",
    "row_accuracy": "share of the rows that are matched right",
    "matching_accuracy": "share of the matchings that are right altogether",
    "log_loss": "mean of -log of the probability of the true labels it knows",
    "sequence_log_loss": "the same for the labels of a sequence together",
    "true_probability": "mean probability of the true labels",
    "calibration_error": "how far the likeliest labels' probabilities are from accuracy",
}


def scores(estimator, X, y, predicted):
    """A dict of numbers, the most telling first. `MEANINGS` explains each."""
    if estimator._task not in _SCORES:
        return {"score": float(estimator.score(X, y))}
    return _SCORES[estimator._task](estimator, X, y, predicted)


def spans(y, predicted):
    """The `SpanReport` of label sequences, or None where labels mark no spans."""
    from fastm4n.metrics import span_report

    names = {label for part in (y, predicted) for labels in part for label in labels}
    return span_report(y, predicted) if _mark_spans(names) else None


def _mark_spans(names):
    """Whether labels mark spans."""
    if not all(isinstance(name, str) for name in names):
        return False
    marked = set(names) - {"O", "."}
    return bool(marked) and all(re.fullmatch(r"[BIESLU]-.+", name) for name in marked)


def confusion(task, y, predicted):
    """Labels, and a matrix of how often each has been predicted for each, rows for the truth."""
    import numpy as np
    from sklearn.metrics import confusion_matrix

    if task == "sequences":
        y, predicted = ([label for own in part for label in own] for part in (y, predicted))
    elif task == "graphs":
        labelled = y.values != -1
        y, predicted = y.values[labelled], predicted.values[labelled]
    labels, codes = np.unique(np.concatenate([y, predicted]), return_inverse=True)
    return labels.tolist(), confusion_matrix(*np.split(codes, 2)).tolist()


def probabilities_of(estimator, X, given):
    """Probabilities of all labels, as `predict_proba` or `predict_marginals` has them."""
    name = "predict_proba" if hasattr(estimator, "predict_proba") else "predict_marginals"
    return getattr(estimator, name)(X, **given)


class Reliability(NamedTuple):
    """Probabilities of one label, and how often they come true."""

    label: object
    n_true: int
    true_probability: float | None  # where the label is true
    n_likeliest: int
    probability: float | None  # where it is the likeliest label
    right: float | None
    calibration_error: float | None


def reliability(estimator, X, y, given, names):
    """Scores of probabilities, and the `Reliability` of each label."""
    import numpy as np

    p, task = probabilities_of(estimator, X, given), estimator._task
    if task == "multilabel":  # each label is on or off
        truth = np.asarray(y.toarray() if hasattr(y, "toarray") else y) > 0
        likeliest = p > 0.5
        of_truth, top = np.where(truth, p, 1.0 - p).ravel(), np.maximum(p, 1.0 - p).ravel()
        known, right = np.True_, (truth == likeliest).ravel()
    else:
        if task in ("sequences", "graphs"):
            p = np.concatenate([*p, np.zeros((0, len(names)))])
            labels = np.array([label for own in y for label in own], dtype=object)
        else:
            labels = y
        codes = _codes(estimator, labels)
        if task == "graphs":
            p, codes = p[labels != -1], codes[labels != -1]
        every = np.arange(len(names))
        truth, likeliest = codes[:, None] == every, p.argmax(axis=1)[:, None] == every
        known, of_truth, top = codes >= 0, (p * truth).sum(axis=1), p.max(axis=1)
        right = (truth & likeliest).any(axis=1)
    with np.errstate(divide="ignore"):
        found = {"log_loss": _mean(-np.log(of_truth[known]))}
    if task == "sequences":
        found["sequence_log_loss"] = _sequence_log_loss(estimator, X, y, given)
    found.update(true_probability=_mean(of_truth), calibration_error=_error(top, right))
    rows = [
        Reliability(
            name, int(is_true.sum()), _mean(own[is_true]), int(is_top.sum()), _mean(own[is_top]),
            _mean(is_true[is_top]), _error(own[is_top], is_true[is_top]))
        for name, own, is_true, is_top in zip(names, p.T, truth.T, likeliest.T, strict=True)]
    return found, rows


def span_reliability(estimator, X, y, given):
    """Mean probability and calibration error of the predicted spans of each type.

    Empty where the labels of the model do not all mark spans.
    """
    import numpy as np

    from fastm4n.metrics import spans

    found = {}
    if _mark_spans(estimator.classes_.tolist()):
        for labels, predicted in zip(y, estimator.predict_spans(X, **given), strict=True):
            true = set(spans(labels))
            for span in predicted:
                found.setdefault(span.label, []).append((span.probability, span[:3] in true))
    return {
        label: (_mean(p), _error(p, right))
        for label, (p, right) in ((label, np.array(own).T) for label, own in found.items())}


def _sequence_log_loss(estimator, X, y, given):
    import warnings

    known = set(estimator.classes_.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels that are not known have been noted
        logs = estimator.log_probability(X, y, **given)
    return _mean(-logs[[known.issuperset(labels) for labels in y]])


def _mean(values):
    return float(values.mean()) if values.size else None


def _error(probabilities, right):
    from fastm4n.calibration._curves import curve_of

    return curve_of(probabilities, right).expected_calibration_error if right.size else None


def _classes(estimator, X, y, predicted):
    import numpy as np
    from sklearn.metrics import accuracy_score, f1_score

    # by numbers, as labels unknown to the model may look like measurements
    _, codes = np.unique(np.concatenate([y, predicted]), return_inverse=True)
    truth, answer = np.split(codes, 2)
    return {
        "accuracy": float(accuracy_score(truth, answer)),
        "macro_f1": float(f1_score(truth, answer, average="macro", zero_division=0)),
        "mean_loss": _mean_cost(estimator, y, predicted),
    }


def _ordered(estimator, X, y, predicted):
    import numpy as np

    truth, answer = _codes(estimator, y), _codes(estimator, predicted)
    known = truth >= 0
    error = float(np.abs(truth - answer)[known].mean()) if known.any() else None
    return {
        "mean_absolute_error": error, "accuracy": float(np.mean(truth == answer)),
        "mean_loss": _mean_cost(estimator, y, predicted),
    }


def _codes(estimator, labels):
    """Positions in classes_, -1 for other labels."""
    import numpy as np

    where = {label: i for i, label in enumerate(estimator.classes_.tolist())}
    return np.array([where.get(label, -1) for label in labels.tolist()])


def _mean_cost(estimator, y, predicted, of_unknown=None):
    """Mean cost. Without a cost of labels unknown to the model, None if there are any."""
    truth, answer = _codes(estimator, y), _codes(estimator, predicted)
    cost = estimator._cost_table[truth, answer]
    if (truth < 0).any():
        if of_unknown is None:
            return None
        cost[truth < 0] = of_unknown
    return float(cost.mean())


def _sequences(estimator, X, y, predicted):
    from fastm4n.metrics import sequence_accuracy, token_accuracy

    return {
        "token_accuracy": token_accuracy(y, predicted),
        "sequence_accuracy": sequence_accuracy(y, predicted),
    }


def _graphs(estimator, X, y, predicted):
    import numpy as np

    right = (predicted.values == y.values) | (y.values == -1)
    wrong = np.add.reduceat(np.append(~right, False), X.node_offsets[:-1]) if len(X) else 0
    whole = wrong * (X.lengths > 0) == 0
    return {"node_accuracy": float(estimator.score(X, y)), "graph_accuracy": float(whole.mean())}


def _rankings(estimator, X, y, predicted):
    from fastm4n.data._preferences import read_preferences
    from fastm4n.metrics import (
        hamming_ranking_loss,
        kendall_tau_score,
        pairwise_order_score,
        spearman_rho_score,
    )

    if not read_preferences(y, estimator.form_, estimator.items_).is_complete().all():
        return {"ordered_pairs": pairwise_order_score(y, predicted, form=estimator.form_)}
    return {
        name: score(y, predicted, form=estimator.form_) for name, score in (
            ("kendall_tau", kendall_tau_score), ("spearman_rho", spearman_rho_score),
            ("hamming_loss", hamming_ranking_loss))}


def _matchings(estimator, X, y, predicted):
    import numpy as np

    # all rows of an example without rows are right, as in `Matcher.score`
    right = [
        np.mean(np.asarray(a) == np.asarray(b)) if len(b) else 1.0
        for a, b in zip(y, predicted, strict=True)]
    return {
        "row_accuracy": float(np.mean(right)),
        "matching_accuracy": float(np.mean(np.equal(right, 1.0))),
    }


def _multilabel(estimator, X, y, predicted):
    from sklearn.metrics import accuracy_score, f1_score, hamming_loss

    return {
        "hamming_loss": float(hamming_loss(y, predicted)),
        "micro_f1": float(f1_score(y, predicted, average="micro", zero_division=0)),
        "subset_accuracy": float(accuracy_score(y, predicted)),
    }


_SCORES = {
    "classes": _classes, "ordered": _ordered, "sequences": _sequences, "graphs": _graphs,
    "rankings": _rankings, "matchings": _matchings, "multilabel": _multilabel,
}


# ------------------------------------------------------------------------------ one number


def loss(estimator, X, y):
    """Mean cost of classes and levels, or share of wrong parts of other outputs.

    A label unknown to the model has the cost of the worst mistake.
    """
    if estimator._task == "multilabel":
        return scores(estimator, X, y, estimator.predict(X))["hamming_loss"]
    if estimator._task not in ("classes", "ordered"):
        return 1.0 - float(estimator.score(X, y))
    return _mean_cost(estimator, y, estimator.predict(X), estimator._cost_table.max())


def loss_name(estimator):
    if estimator._task not in ("classes", "ordered"):
        return f"share of {estimator._part}s that are wrong"
    if not isinstance(estimator.cost, str):
        return "mean cost"
    return {
        "zero_one": "error rate", "absolute": "mean absolute error",
        "squared": "mean squared error",
    }[estimator.cost]
