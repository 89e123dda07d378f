"""Inputs of reports from fitted models: factors of examples, weights, labels and scores."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.penalties._penalties import as_penalty
from fastm4n.research.theory._factors import FactorFeatures
from fastm4n.research.theory._label_sets import LabelSetFactors
from fastm4n.tasks.chain_input import as_labels, columns_of
from fastm4n.tasks.label_sets import UNKNOWN, read_indicator
from fastm4n.tasks.vectors import validated

# kinds of outputs by `_task`
KINDS = {
    "sequences": "sequences", "classes": "labels", "ordered": "labels", "multilabel": "sets"}
SUPPORTED = "SequenceTagger, MulticlassClassifier, OrdinalClassifier and MultiLabelClassifier"


class ReadModel:
    """A fitted model and the factors of its examples.

    Parameters
    ----------
    model : SequenceTagger, MulticlassClassifier, OrdinalClassifier or MultiLabelClassifier
        Fitted, or a pipeline that ends with one.
    X : examples, as `predict` takes them
    lengths : array-like of int, default=None

    Attributes
    ----------
    model : estimator
        The last step of a pipeline.
    X : Sequences, ndarray or CSR
        Its input.
    kind : {"sequences", "labels", "sets"}
    factors : FactorFeatures or LabelSetFactors
    """

    def __init__(self, model, X, lengths=None):
        if hasattr(model, "steps"):
            X, model = model[:-1].transform(X) if len(model.steps) > 1 else X, model[-1]
        self.model, self.kind = model, readable(model)
        R = model.classes_.size
        if self.kind == "sequences":
            X = model._fitted_task().sequences(X, lengths)
            columns = getattr(model, "transition_features_", None)
            self.X = X
            self.factors = FactorFeatures(
                X.values, X.offsets, R, constant=float(model.fit_intercept),
                ends=model._scored.start_end, transitions=model._scored.pairs,
                selected=None if columns is None else columns_of(X.values, columns))
        else:
            if lengths is not None:
                raise ValueError("lengths is for sequences, not for single labels.")
            self.X = X = validated(model, X, reset=False)
            constant = model._task_class(model)._constant()
            if self.kind == "sets":
                self.factors = LabelSetFactors(X, R, model.edges_, constant=constant)
            else:
                self.factors = FactorFeatures(
                    X, np.arange(X.shape[0] + 1), R, constant=constant)

    @property
    def couples(self):
        """Whether pairs of labels have weights."""
        if self.kind == "sequences":
            return bool(self.model._scored.pairs)
        return self.kind == "sets" and len(self.model.edges_) > 0

    def weights(self):
        """The weights, (n_rows, n_labels), in the order of the rows of `factors`."""
        model, factors = self.model, self.factors
        rows = [np.asarray(model.coef_).T]
        if factors.constant:
            # the intercept is the weight of the constant feature times its value
            rows.append([model.intercept_ / factors.constant])
        if self.kind == "sets" and len(factors.edges):
            rows.append(factors.of_edges(model.edge_coef_))
        if self.kind == "sequences":
            if factors.ends:
                rows.append([model.start_coef_, model.end_coef_])
            if factors.transitions:
                rows.append(model.transition_coef_)
            if factors.n_selected:
                rows.append(model.transition_feature_coef_.reshape(-1, factors.n_labels))
        return np.concatenate(rows)

    def codes(self, y, lengths=None):
        """Numbers of the true labels, -1 for unknown ones, and for sets 0 or 1 for each label.
        """
        model = self.model
        if self.kind == "sets":
            Y = read_indicator(y, model.classes_.size)[0]
            if len(Y) != self.factors.n_examples:
                raise ValueError(
                    f"y has {len(Y)} rows, but X has {self.factors.n_examples}.")
            if (Y == UNKNOWN).any():
                raise ValueError("y has labels that are not known: leave those samples out.")
            return np.asarray(Y, dtype=np.intp).ravel()
        if self.kind == "sequences":
            labels = as_labels(y, self.X, lengths)
        else:
            labels = np.asarray(y)
            if labels.shape != (self.factors.n_examples,):
                raise ValueError(
                    f"y must have a label for each of the {self.factors.n_examples} examples of X, "
                    f"got shape {labels.shape}.")
            labels = labels.tolist()
        where = {label: i for i, label in enumerate(model.classes_.tolist())}
        return np.fromiter((where.get(label, -1) for label in labels), np.intp, len(labels))

    def known_codes(self, y, lengths=None):
        """Numbers of the true labels, which must be known."""
        codes = self.codes(y, lengths)
        unknown = np.flatnonzero(codes < 0)
        if unknown.size:
            i = int(self.factors.example[unknown[0]])
            place = f"y[{i}]"
            if self.kind == "sequences":
                place += f" at position {int(unknown[0] - self.factors.offsets[i])}"
            raise ValueError(
                f"{place} has a label that is not in classes_, and so has no score: use such "
                "examples only as X_test and y_test.")
        return codes

    def distance_to_optimum(self):
        """A bound sqrt(2 gap / alpha) of ||w - w*|| by the certified gap.

        The objective is alpha-strongly convex (times 1 - l1_ratio for elastic nets), so that
        alpha / 2 ||w - w*||^2 <= P(w) - P(w*) <= gap. The bound is infinite if weights are not
        penalised.
        """
        alpha = self.strong_convexity()
        gap = max(float(self.model.duality_gap_), 0.0)
        with np.errstate(over="ignore"):
            return float(np.sqrt(2.0 * gap / alpha)) if alpha > 0 else np.inf

    def margin_uncertainty(self):
        """Upper bounds of how far the margin of each example is from that at the optimum."""
        with np.errstate(invalid="ignore"):
            return np.where(
                self.factors.lengths > 0, self.factors.reach() * self.distance_to_optimum(), 0.0)

    def strong_convexity(self):
        """a in a / 2 ||w||^2 of the objective, 0 if some weights are not penalised."""
        model = self.model
        if self.kind != "sequences" and model._task_class(model)._has_free_intercept():
            return 0.0
        return model.alpha_ * (1.0 - float(getattr(as_penalty(model.penalty), "l1_ratio", 0.0)))


def readable(model):
    """The kind of outputs of a fitted model, or an error if reports do not support it."""
    kind = KINDS.get(getattr(model, "_task", None))
    if kind is None:
        raise NotImplementedError(
            f"{type(model).__name__} is not supported by reports: use {SUPPORTED}, with "
            "kernel='linear'.")
    check_is_fitted(model)
    if not hasattr(model, "coef_"):
        raise NotImplementedError(
            f"kernel={model.kernel!r} has no weights: use kernel='linear', for example with "
            "features of sklearn.kernel_approximation.Nystroem.")
    if kind == "labels" and model.intercept_.size < model.classes_.size:
        raise NotImplementedError(
            "form='thresholds' is not supported by reports: use form='classes'.")
    if kind == "sequences" and model._scored.order > 1:
        raise NotImplementedError(
            f"order={model._scored.order} is not supported by reports: use order=1.")
    if kind == "sets" and (model.constraints is not None or model.oracle_ == "soft"):
        raise NotImplementedError(
            "Constraints and soft constraints of label sets are not supported by reports.")
    return kind
