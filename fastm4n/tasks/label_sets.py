"""The task of sets of labels: indicators, graphs between labels, and problems."""

import re
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import type_of_target

from fastm4n.base.checks import check_choice
from fastm4n.base.label_costs import as_kept, named_costs
from fastm4n.data._graph_factors import contents
from fastm4n.data._sequences import check_compressed
from fastm4n.factors import as_factors, constraints_of, factor_scores
from fastm4n.features._pairs import LabelSetFeatures
from fastm4n.outputs._graph import NodeOutputs
from fastm4n.outputs._simplex import LabelOutputs
from fastm4n.outputs.graph_oracles import EXACT, graph_outputs
from fastm4n.tasks._decoding import LabelDecoder
from fastm4n.tasks.base import MISSING
from fastm4n.tasks.graph_model import integrality, integrality_gaps
from fastm4n.tasks.parameters import (
    DECODINGS,
    RISK_TOL,
    check_lengths,
    cost_factors,
    cost_matrix,
    strongest,
    summable,
)
from fastm4n.tasks.vectors import VectorDecoder, VectorTask

KINDS = ("array", "csr_matrix", "csr_array")
# probabilities are clipped to these for finite log-odds
LOG_ODDS_OF = np.finfo(np.float64).tiny, 1.0 - np.finfo(np.float64).epsneg
# what y has of each example
AN_INDICATOR = "a row of zeros and ones"
# labels that are not known, next to 0 and 1
UNKNOWN = 2
# numbers of expected F-measures that are worked out at a time: a limit of memory
AT_ONCE = 1 << 22
_REMEDY = (
    "a multilabel indicator has one row for each sample and one column for each label, of zeros "
    "and ones; sklearn.preprocessing.MultiLabelBinarizer makes one of lists of labels, and "
    "MulticlassClassifier takes one label for each sample"
)


def read_indicator(y, labels=None):
    """A multilabel indicator, validated.

    Parameters
    ----------
    y : array-like, sparse matrix or table of shape (n_samples, n_labels)
    labels : int, default=None
        How many there must be.

    Returns
    -------
    Y : ndarray of uint8 of shape (n_samples, n_labels)
        Zeros, ones, and `UNKNOWN` where y is NaN or -1.
    names : ndarray of shape (n_labels,)
        Names of the columns where they are strings, their numbers otherwise.
    kind, dtype : str
        Arguments of `as_indicator` for predictions like y.
    """
    names, kind = None, "array"
    if sparse.issparse(y):
        check_compressed("y", y)
        kind = "csr_array" if isinstance(y, sparse.sparray) else "csr_matrix"
        y = y.tocsr()
        if not y.has_canonical_format:
            y = y.copy()
            y.sum_duplicates()
        has_minus = (y.data == -1).any()
        codes = _codes(y.data, lambda i: (
            int(np.searchsorted(y.indptr, i, side="right") - 1), int(y.indices[i])))
        Y, dtype = np.zeros(y.shape, dtype=np.uint8), y.dtype
        Y[np.repeat(np.arange(y.shape[0]), np.diff(y.indptr)), y.indices] = codes
    else:
        columns = getattr(y, "columns", None)
        if columns is not None and all(isinstance(name, str) for name in columns):
            names = np.array(list(columns), dtype=str)
        try:
            given = np.asarray(y)
        except ValueError as error:
            raise ValueError(f"y has rows of different lengths: {_REMEDY}.") from error
        if given.ndim != 2:
            raise ValueError(
                f"{_kind_of(given)}y has shape {given.shape}, and an indicator has two "
                f"dimensions: {_REMEDY}.")
        if given.dtype.kind in "OUS":
            if given.dtype.kind == "O":
                # pandas.NA is no number
                is_missing = np.frompyfunc(lambda value: type(value).__name__ == "NAType", 1, 1)
                given = np.where(is_missing(given).astype(bool), None, given)
            try:
                numbers = given.astype(np.float64)
                if given.dtype.kind != "O":
                    raise TypeError("strings")
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "y has entries that are no numbers, such as "
                    f"{given.ravel()[:1].tolist()[0]!r:.40}: {_REMEDY}.") from error
            # predictions are whole numbers, whatever stands for labels that are not known
            numbers[np.isnan(numbers)] = -1.0
            _codes(numbers.ravel(), lambda i: divmod(i, numbers.shape[1]))
            given = numbers.astype(np.int64)
        elif given.dtype.kind not in "biuf":
            raise ValueError(f"y is of dtype {given.dtype}: {_REMEDY}.")
        has_minus = given.dtype.kind in "if" and (given == -1).any()
        codes = _codes(given.ravel(), lambda i: divmod(i, given.shape[1]))
        Y, dtype = codes.reshape(given.shape), given.dtype
    if has_minus and not (Y == 0).any():
        raise ValueError(
            "y has -1 and no 0, and -1 stands for labels that are not known: write 0 for labels "
            "that are off.")
    if Y.shape[1] == 0:
        raise ValueError(f"y has no columns: {_REMEDY}.")
    if labels is not None and Y.shape[1] != labels:
        raise ValueError(f"y has {Y.shape[1]} labels, but the model has {labels}.")
    if names is None:
        names = np.arange(Y.shape[1])
    elif np.unique(names).size < names.size:
        raise ValueError("y has two columns of one name.")
    return Y, names, kind, dtype.newbyteorder("=").name


def _codes(values, place):
    """Entries as 0, 1 and `UNKNOWN`. `place` gives the row and column of an entry, for errors."""
    unknown = np.zeros(values.shape, dtype=bool)
    if values.dtype.kind in "if":
        unknown = np.isnan(values) | (values == -1)
    infinite = np.isinf(values) if values.dtype.kind == "f" else unknown & False
    if infinite.any():
        i, j = place(int(np.flatnonzero(infinite)[0]))
        raise ValueError(
            "Input y contains infinity or a value too large for dtype('float64'). It is at "
            f"y[{i}, {j}].")
    wrong = np.flatnonzero((values != 0) & (values != 1) & ~unknown)
    if wrong.size:
        i, j = place(int(wrong[0]))
        raise ValueError(
            f"{_kind_of(values)}y[{i}, {j}] is {values[wrong[0]].item()!r}: {_REMEDY}.")
    return np.where(unknown, UNKNOWN, values != 0).astype(np.uint8)


def _kind_of(values):
    """scikit-learn's message for targets that are not indicators."""
    try:
        kind = type_of_target(values)
    except ValueError:
        return ""
    if kind.startswith("multiclass"):
        return f"Only binary classification is supported. The type of the target is {kind}. "
    return f"Unknown label type: {kind}. " if kind.startswith("continuous") else ""


def as_indicator(labels, kind, dtype):
    """Labels of zeros and ones, (n_samples, n_labels), as an indicator of this kind."""
    labels = labels.astype(dtype)
    if kind == "array":
        return labels
    return getattr(sparse, kind)(labels)


# ---------------------------------------------------------- graphs between labels

GRAPHS = ("tree", "complete", "none")
# mutual information, in nats, that rounding may leave where there is none
_NONE = 1e-12


def check_graph(graph):
    """Check that graph is a name or an array of pairs."""
    if isinstance(graph, str):
        check_choice("graph", graph, GRAPHS)
        return
    try:
        edges = np.asarray(graph)
    except ValueError:
        edges = np.zeros(0, dtype=object)
    empty = edges.size == 0 and edges.dtype.kind != "O"
    if not empty and (
        edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iuf"
        or edges.dtype.kind == "f" and np.any(edges != np.floor(edges))
    ):
        raise ValueError(
            f"graph must be one of {GRAPHS} or pairs of columns of y, of shape (n_edges, 2), got "
            f"{graph!r:.100}."
        )


def label_edges(graph, Y, weights, counts=None):
    """Edges between labels, the lower label first.

    Parameters
    ----------
    graph : {"tree", "complete", "none"} or array-like of shape (n_edges, 2)
        As `check_graph` lets pass.
    Y : ndarray of shape (n_samples, n_labels)
        Indicators, of which "tree" is learnt.
    weights : ndarray of shape (n_samples,)
        Positive.
    counts : ndarray, default=None
        The sum of `pair_counts` over all pieces of the data.

    Returns
    -------
    edges : ndarray of int of shape (n_edges, 2)
        In lexicographic order, or in the order of `graph`.
    """
    n_labels = Y.shape[1]
    if not isinstance(graph, str):
        return _checked_edges(np.asarray(graph), n_labels)
    if graph == "none":
        return np.zeros((0, 2), dtype=np.intp)
    if graph == "complete":
        return np.stack(np.triu_indices(n_labels, 1), axis=1)
    return chow_liu(Y, weights, counts)


def _checked_edges(given, n_labels):
    edges = given.reshape(-1, 2).astype(np.intp)
    outside = np.flatnonzero(((edges < 0) | (edges >= n_labels)).any(axis=1))
    loops = np.flatnonzero(edges[:, 0] == edges[:, 1])
    for wrong, what in (
        (outside, f"labels are numbered 0 ... {n_labels - 1}, the columns of y"),
        (loops, "an edge joins two labels, and this one joins a label to itself"),
    ):
        if wrong.size:
            e = int(wrong[0])
            raise ValueError(f"graph: edge {e} is {tuple(edges[e].tolist())}; {what}.")
    edges = np.sort(edges, axis=1)
    _, first, place = np.unique(edges, axis=0, return_index=True, return_inverse=True)
    repeated = np.flatnonzero(first[place.ravel()] != np.arange(len(edges)))
    if repeated.size:
        e = int(repeated[0])
        raise ValueError(
            f"graph: edge {e} is {tuple(given.reshape(-1, 2)[e].tolist())}, which edge "
            f"{int(first[place.ravel()[e]])} is already; give each pair once."
        )
    return edges


def pair_counts(Y, weights):
    """The weight of the samples in which two labels are known, and each of them on or off.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_labels)
    weights : ndarray of shape (n_samples,)

    Returns
    -------
    counts : ndarray of shape (2 n_labels, 2 n_labels)
        Labels that are on, then labels that are off.
    """
    sides = np.column_stack([Y == 1, Y == 0]).astype(np.float64)
    return (sides * weights[:, np.newaxis]).T @ sides


def mutual_information(Y, weights, counts=None):
    """Mutual information of all pairs of labels, in nats, (n_labels, n_labels).

    From Y and weights, or from the `pair_counts` of all pieces.
    """
    if counts is None:
        # by a power of two: sums of whole numbers stay exact, and a weight is a repetition
        counts = pair_counts(Y, np.ldexp(weights, -np.frexp(weights.max())[1]))
    n = len(counts) // 2
    # first label on or off, second label on or off
    tables = counts.reshape(2, n, 2, n).transpose(0, 2, 1, 3)
    total = tables.sum(axis=(0, 1))
    # pairs that are never known together tell nothing
    shares = tables / np.where(total > 0.0, total, 1.0)
    alone = shares.sum(axis=1)[:, np.newaxis] * shares.sum(axis=0)[np.newaxis]
    some = (shares > 0.0) & (alone > 0.0)
    information = np.zeros_like(shares)
    information[some] = shares[some] * np.log(shares[some] / alone[some])
    return np.maximum(information.sum(axis=(0, 1)), 0.0)


def chow_liu(Y, weights, counts=None):
    """The tree of largest mutual information between labels: edges in lexicographic order.

    Ties go to the lowest labels. Labels that are independent of the others have no edge.

    References
    ----------
    .. [1] C. Chow, C. Liu (1968). Approximating discrete probability distributions with
       dependence trees. IEEE Transactions on Information Theory 14.
    """
    # rounded: of equal pairs neither is better by the order of additions
    information = np.round(mutual_information(Y, weights, counts), 12)
    n_labels = Y.shape[1]
    edges, outside = [], np.ones(n_labels, dtype=bool)
    best, source = np.full(n_labels, -1.0), np.full(n_labels, -1)
    for _ in range(n_labels):
        node = int(np.argmax(np.where(outside, best, -2.0)))
        if best[node] > _NONE:
            edges.append(sorted((int(source[node]), node)))
        outside[node] = False
        nearer = information[node] > best
        best[nearer], source[nearer] = information[node][nearer], node
    return np.array(sorted(edges), dtype=np.intp).reshape(-1, 2)


@contextmanager
def named_labels():
    """Errors name the graph of the labels, not one of its copies."""
    try:
        yield
    except ValueError as error:
        words = re.sub(r"\bgraph \d+\b", "the graph of the labels", str(error))
        raise ValueError(words) from error


def check_sets(Y, numbers, constraints):
    """Refuse sets that constraints forbid.

    Parameters
    ----------
    Y : ndarray of uint8 of shape (n_samples, n_labels)
    numbers : ndarray of int
        Rows that count.
    constraints : tuple of factors, or None
    """
    for i, factor in enumerate(constraints or ()):
        unknown = numbers[(Y[numbers] == UNKNOWN).any(axis=1)]
        if unknown.size:
            raise ValueError(
                f"the labels of sample {unknown[0]} are not all known, and constraints are of sets "
                "that are: leave the sample out, or constraints.")
        wrong = numbers[factor_scores([factor], Y[numbers]) == -np.inf]
        if wrong.size:
            raise ValueError(
                f"the labels of sample {wrong[0]} are forbidden by constraints[{i}], {factor!r}. "
                "Correct one of the two.")


# ------------------------------------------------------------------- costs and measures


def costs_of_labels(cost, n_labels):
    """The cost matrix of `cost`, or those of all labels, (n_labels, 2, 2)."""
    noun = "values, 0 and 1"
    dims = 2 if isinstance(cost, str) else np.ndim(cost)
    if dims not in (1, 3):
        return cost_matrix(cost, 2, noun)
    given = np.asarray(cost, dtype=np.float64)
    if dims == 1:
        given = given[:, np.newaxis, np.newaxis] * np.array([[0.0, 1.0], [1.0, 0.0]])
    if given.shape != (n_labels, 2, 2):
        raise ValueError(
            f"cost has shape {np.shape(cost)}, but y has {n_labels} labels: give (n_labels,), "
            "(2, 2) or (n_labels, 2, 2) costs.")
    for label, matrix in enumerate(given):
        try:
            cost_matrix(matrix, 2, noun)
        except ValueError as error:
            raise ValueError(f"{error} It is that of label {label}.") from error
    return given


def costs_of_parts(cost, Y, surrogate):
    """A cost matrix, and factors of the costs of all labels in Y or None.

    Costs of labels are multiples of one matrix, or those of the true labels, which are all that
    the margins go by.
    """
    if cost.ndim == 2:
        return cost, None
    if surrogate.name == "log" and not surrogate.cost_augmented:
        return named_costs("zero_one", 2), None
    scales = cost.max(axis=(1, 2))
    matrix = cost[np.argmax(scales)] / scales.max() if scales.any() else cost[0]
    if np.allclose(cost, scales[:, np.newaxis, np.newaxis] * matrix, rtol=1e-12, atol=0.0):
        if (scales == scales[0]).all():
            return cost[0], None
        return matrix, np.tile(scales, len(Y))
    if surrogate.name not in ("log", "max_margin"):
        raise ValueError(
            f"surrogate={surrogate.name!r} needs costs of labels that are multiples of one 2 x 2 "
            "matrix: use 'max_margin', or a cost for each label, of shape (n_labels,).")
    return named_costs("zero_one", 2), cost[np.arange(Y.shape[1]), Y, 1 - Y].ravel()


def best_f1(shares):
    """The sets of largest expected F-measure of labels that are on independently of each other.

    The F-measure of a set y and a prediction h is 2 |y & h| / (|y| + |h|), and 1 if both are
    empty. Among sets of k labels the k most probable ones are best, and the expectation is a sum
    over the size of the others [1]_. It takes O(n_labels^2) time for each row.

    Parameters
    ----------
    shares : ndarray of shape (n_samples, n_labels)
        The probability of each label.

    Returns
    -------
    labels : ndarray of int of shape (n_samples, n_labels)

    References
    ----------
    .. [1] N. Ye, K. Chai, W. Lee, H. Chieu (2012). Optimizing F-measures: a tale of two
       approaches. ICML.
    """
    n, L = shares.shape
    labels = np.zeros((n, L), dtype=np.intp)
    step = max(1, AT_ONCE // (L * L))
    # 2 / (|y| + k) for |y| = s + 1
    gain = 2.0 / np.add.outer(np.arange(1, L + 1), np.arange(1, L + 1))
    for start in range(0, n, step):
        p = shares[start : start + step]
        order = np.argsort(-p, axis=1, kind="stable")
        p = np.clip(np.take_along_axis(p, order, axis=1), 0.0, 1.0)
        sizes = np.zeros((len(p), L + 1))
        sizes[:, 0] = 1.0
        for i in range(L):
            on = p[:, i, np.newaxis]
            sizes[:, 1 : i + 2] = sizes[:, 1 : i + 2] * (1.0 - on) + sizes[:, : i + 1] * on
            sizes[:, 0] *= 1.0 - on[:, 0]
        # sizes of the sets of the others: divided by a label's own, from its likelier side
        others = np.zeros((len(p), L, L))
        rare, often = p <= 0.5, p > 0.5
        low, high = np.where(rare, 1.0 - p, 1.0), np.where(often, p, 1.0)
        before, after = np.zeros(p.shape), np.zeros(p.shape)
        for s in range(L):
            before = (sizes[:, s, np.newaxis] - p * before) / low * rare
            others[:, :, s] += before
            after = (sizes[:, L - s, np.newaxis] - (1.0 - p) * after) / high * often
            others[:, :, L - 1 - s] += after
        # expected F-measures of the k most probable labels, k = 0, 1, ...
        found = np.cumsum(p[:, :, np.newaxis] * others, axis=1)
        values = np.column_stack([sizes[:, 0], np.einsum("iks,sk->ik", found, gain)])
        most = np.argmax(np.round(values, 12), axis=1)
        rows = np.arange(L) < most[:, np.newaxis]
        np.put_along_axis(labels[start : start + step], order, rows.astype(np.intp), axis=1)
    return labels


class LabelSetExplanation(NamedTuple):
    """The strongest weights of label sets, strongest first. Printed, it is a table.

    `labels` has rows (weight, label, feature), `pairs` (weight, label, label).
    """

    labels: list[Any]
    pairs: list[Any]

    def __str__(self) -> str:
        lines = ["pairs"]
        lines += [f"{w:+10.4f}  {f'{a!s} - {b!s}'}" for w, a, b in self.pairs]
        lines += ["", "labels"]
        lines += [f"{w:+10.4f}  {label!s:<16} {feature}" for w, label, feature in self.labels]
        return "\n".join(lines)


def explained(classifier, feature_names, n_strongest):
    """The `LabelSetExplanation` of `MultiLabelClassifier.explain`."""
    d, classes = classifier.n_features_in_, classifier.classes_.tolist()
    if feature_names is None:
        feature_names = getattr(classifier, "feature_names_in_", range(d))
    names = list(feature_names)
    if len(names) != d:
        raise ValueError(f"feature_names has {len(names)} names, but there are {d} features.")
    coef, pairs = classifier.coef_, classifier.edge_coef_
    return LabelSetExplanation(
        [(float(coef[l, f]), classes[l], names[f]) for l, f in strongest(coef, n_strongest)],
        [(float(pairs[e]), *(classes[l] for l in classifier.edges_[e]))
         for e, in strongest(pairs, n_strongest)])


# ---------------------------------------------------------------------- the task


class LabelSetDecoder(VectorDecoder):
    """A fitted classifier of label sets at new data.

    Attributes
    ----------
    factors : tuple of factors, or None
        The constraints of the estimator, and the factors of the call.
    """

    def __init__(self, task, X, factors=None):
        super().__init__(task, X)
        n_labels = self.fitted.classes_.size
        given = () if factors is None else as_factors(factors, n_labels)
        self.factors = ((task.constraint_factors(n_labels) or ()) + given) or None

    def _over(self, edges, edge_coef, attractive, factors):
        """Outputs of one example, and their compiled decoder."""
        labels = np.zeros((1, self.fitted.classes_.size), dtype=np.uint8)
        _, outputs = self.task.outputs(
            labels, edges, self.fitted._cost_table, attractive, factors)
        has_factors = factors is not None and outputs.has_factors
        return outputs, LabelDecoder(outputs, edge_coef, has_factors)

    @cached_property
    def model(self):
        """`_over` of the fitted graph."""
        fitted = self.fitted
        return self._over(
            fitted.edges_, fitted.edge_coef_, fitted.oracle_ == "min_cut", self.factors)

    def best(self):
        labels, excess = self.model[1].best_sets(self.scores)
        if self.factors is not None:
            excess -= factor_scores(self.factors, labels)
        return labels, np.maximum(excess, 0.0)

    def marginals(self):
        """Shares of labels and of edges under the oracle's distribution."""
        outputs, decoder = self.model
        return decoder.points(
            self.task.surrogate.for_predictions().over(outputs), self.scores,
            RISK_TOL * self.fitted.classes_.size)

    def least_risk(self):
        labels, cost = self.best()[0], self.fitted._cost_table
        share = self.marginals()[0]
        off, on = cost[..., 1, 0] * share, cost[..., 0, 1] * (1.0 - share)
        # the adversary makes labels equally risky, up to the oracle's tolerance
        slack = RISK_TOL * labels.shape[1]
        if self.factors is None:
            return np.where(np.abs(off - on) <= slack, labels, on < off)
        found = self._over(
            np.zeros((0, 2), dtype=np.intp), np.zeros(0), False, constraints_of(self.factors)
        )[1].best_sets(off - on)[0]
        risks = [np.where(chosen, on, off).sum(axis=1) for chosen in (labels, found)]
        return np.where((risks[0] <= risks[1] + slack)[:, np.newaxis], labels, found)

    def best_f1(self):
        if self.factors is not None:
            raise ValueError(
                "decode='f1' is of sets without constraints and factors: use 'map' or 'min_risk'.")
        return best_f1(self.marginals()[0])

    def named(self, codes):
        return as_indicator(codes, self.fitted._kind, self.fitted._dtype)

    def decision(self):
        scores, fitted = self.scores, self.fitted
        if self.factors is None and not len(fitted.edges_):
            return scores
        if self.task.surrogate.name == "log" and self.task.decoding() != "map":
            on = np.clip(self.marginals()[0], *LOG_ODDS_OF)
            return np.log(on) - np.log1p(-on)
        if self.factors is not None or self.task.finds_best(fitted.oracle_):
            return self.model[1].margins(scores)
        pairs = np.zeros((fitted.classes_.size,) * 2)
        pairs[tuple(fitted.edges_.T)] = fitted.edge_coef_
        return scores + self.best()[0].astype(np.float64) @ (pairs + pairs.T)


class LabelSetTask(VectorTask):
    """Sets of labels, and weights of pairs of labels."""

    of_what = "label sets"
    auto_alpha = 2.0
    decodings = (*DECODINGS, "f1")
    of_examples = ("unknown",)
    goes_on, own_weights = True, ("coef_", "intercept_", "edge_coef_")
    own_fixed = "classes_", "edges_"

    def decoder(self, X, factors=None):
        return LabelSetDecoder(self, X, factors)

    def takes_best(self, **given):
        edges, cost = self.estimator.edges_, self.estimator._cost_table
        return not len(edges) and np.array_equal(cost[..., 0, 1], cost[..., 1, 0])

    def example(self, rng, labels=3, csr=False, unknown=False):
        # the first third of them has pairs, and labels that are not known
        X, y = self._example_rows(rng, 9, csr), rng.integers(2, size=(9, labels))
        y[0], y[1] = 0, 1
        if self.constraints is not None:
            y = np.eye(labels, dtype=int)[rng.integers(labels, size=9)]
        if unknown:
            y[2, 0] = y[3, :2] = y[4, 2] = -1
        return X, y

    def _outputs_of(self, y, X):
        """What a piece has of the outputs, by name."""
        Y, names, kind, dtype = read_indicator(y)
        check_lengths(X, Y, AN_INDICATOR)
        return dict(Y=Y, names=names, kind=kind, dtype=dtype)

    def piece(self, pieces):
        if getattr(pieces.sample_weight, "ndim", 1) == 2:
            raise ValueError(
                "sample_weight must have shape (n_samples,), one weight for each sample, got "
                f"{pieces.sample_weight.shape}: label_weight has a factor for each label.")
        found = super().piece(pieces)
        found.label_weight = self._label_weight(pieces.part_weight, found.Y)
        # a sample without a known label says nothing
        told = (found.Y != UNKNOWN).any(axis=1)
        if not told.all():
            self._leave_out(found, told)
            if not found.kept.size and pieces.is_whole:
                raise ValueError("y has no known label in samples of non-zero weight.")
        return found

    def _label_weight(self, given, Y):
        """Factors of the costs of all labels in Y, or None."""
        if given is None:
            return None
        factors = cost_factors(
            "label_weight", given, self.surrogate, " To weigh the loss of a label, give the "
            "sample again with its other labels unknown (-1).")
        if factors.shape != Y.shape:
            raise ValueError(
                f"label_weight must have a number for each label of each sample, of shape "
                f"{Y.shape}, got {factors.shape}.")
        return np.where(Y == UNKNOWN, 0.0, factors)

    def classes_of_call(self, y, classes):
        columns = getattr(y, "columns", None)
        if classes is None and columns is not None and all(
                isinstance(name, str) for name in columns):
            classes = columns
        return None if classes is None else np.array(list(classes))

    def census(self, piece):
        found = super().census(piece)
        found.same.update({
            "labels": piece.names, "indicators that are": piece.kind,
            "indicators of dtype": piece.dtype})
        found.sums["pairs"] = pair_counts(piece.Y[piece.kept], piece.weights)
        return found

    def _scored(self, problem, numbers):
        n_labels, row = problem.common["classes_"].size, problem.loss.outputs.layout.stride
        rows = super()._scored(problem, numbers)[:, : n_labels * row]
        return rows.reshape(-1, n_labels, row)[:, :, 1]

    def fitted(self, problem, *args, **options):
        found = super().fitted(problem, *args, **options)
        pairs, prior = problem.features.pair_coef(), problem.prior
        return {
            **found,
            "edge_coef_": pairs if prior is None else pairs + prior.weights["edge_coef_"]}

    def put_weights(self, problem, rows, weights):
        super().put_weights(problem, rows, weights)
        rows["pairs"][0] = weights["edge_coef_"]

    def values(self, problem, tol, scale):
        """Attributes that say how exact the fit is, at the weights of the features."""
        if problem.common["exact_"]:
            return {}
        gaps = integrality_gaps(problem.loss, problem.features, tol)
        return integrality(gaps, problem.weights, scale)

    def in_memory(self, piece, census, one_alpha):
        X, Y, kept, weights = piece.X, piece.Y, piece.kept, summable(piece.weights)
        cost = costs_of_labels(self.cost, Y.shape[1])
        constraints = self.constraint_factors(Y.shape[1])
        if self._has_free_intercept() and (constraints is not None or (Y[kept] == UNKNOWN).any()):
            what = "labels that are not known" if constraints is None else "constraints"
            raise ValueError(
                f"fit_intercept='free' does not support {what}: use a number, such as "
                "fit_intercept=10.")
        check_sets(Y, kept, constraints)
        names, is_call = piece.names, census is not None and census.n_examples is None
        if is_call and census.labels is not None:
            names = census.labels
            if names.size != Y.shape[1]:
                raise ValueError(f"y has {Y.shape[1]} labels, but classes has {names.size}.")
        counts = None if census is None or is_call else census.sums["pairs"]
        if piece.prior is not None and isinstance(self.graph, str) and self.graph == "tree":
            edges = piece.prior.fixed["edges_"]  # those that have weights
        else:
            edges = label_edges(self.graph, Y[kept], weights, counts)
        factors = piece.label_weight
        keys = Y[kept] if factors is None else np.column_stack([Y[kept], factors[kept]])
        blocks = self._blocks(
            X, kept, np.unique(keys, axis=0, return_inverse=True)[1].ravel(), weights)
        Y = Y[blocks.examples]
        if factors is not None:
            factors = factors[blocks.examples]
        common = {
            **self.noted(), "classes_": names, "edges_": edges, "_cost_held": as_kept(cost),
            "_kind": piece.kind, "_dtype": piece.dtype,
        }
        return self.problem_of_blocks(X, Y, blocks, cost, constraints, common, census, factors)

    def problem_of_blocks(self, X, Y, blocks, cost, constraints, common, census, factors=None):
        """The problem of one set for each block. `factors` multiply the costs of its labels."""
        names, edges = common["classes_"], common["edges_"]
        # a tree may get edges from the data of a later call
        n_edges = 1 if isinstance(self.graph, str) and self.graph == "tree" else len(edges)
        attractive = self._holds_attractive(X, names.size, max(n_edges, len(edges)))
        if n_edges and constraints is None:
            self._check_cuts(attractive)
        oracle, outputs = self.outputs(Y, edges, cost, attractive, constraints, factors)
        exact = self.finds_best(oracle)
        common.update(oracle_=oracle, exact_=exact, integrality_gap_=0.0 if exact else None)
        # dual points are of labels that are known
        unknown = np.zeros((blocks.n_examples, names.size), dtype=bool)
        unknown[blocks.kept] = (Y == UNKNOWN)[blocks.block_of]
        return self._made(
            X, blocks, self.loss(outputs), common,
            {"classes": names, "edges": edges, "oracle": oracle, "unknown": unknown,
             "constraints": contents(constraints)},
            census,
        )

    def _check_cuts(self, attractive):
        """Refuse minimum cuts of pairs that may repel each other."""
        if self.inference == "min_cut" and not attractive:
            raise ValueError(
                "inference='min_cut' needs weights of pairs that are not negative: use "
                "penalty=L2(bounds={'edge_coef': (0, None)}) and kernel='linear'."
            )

    def finds_best(self, oracle):
        """Whether best sets of this oracle are best whatever the scores."""
        return oracle in ("labels", *EXACT) or self.inference == "exact"

    def constraint_factors(self, n_labels):
        """The constraints in a tuple, or None."""
        if self.constraints is None:
            return None
        return as_factors(self.constraints, n_labels, "constraints") or None

    def outputs(self, Y, edges, cost, attractive, factors=None, cost_factors=None):
        """The name of an oracle, and outputs over these sets with it."""
        n, n_labels = Y.shape
        unknown, n_choices = Y == UNKNOWN, None
        if unknown.any():
            # off is all that is left: no score, no cost
            Y, n_choices = np.where(unknown, 0, Y), np.where(unknown, 1, 2).ravel()
        cost, weights = costs_of_parts(cost, Y, self.surrogate)
        if cost_factors is not None:
            weights = cost_factors.ravel() * (1.0 if weights is None else weights)
        graphs = dict(
            y=Y.ravel(), n_nodes=np.full(n, n_labels), edges=edges,
            n_edges=np.full(n, len(edges)), cost=cost, pairs="both", n_choices=n_choices,
            part_weights=weights)
        if factors is None and not len(edges):
            if n_choices is None and weights is None:
                return "labels", LabelOutputs(Y, cost)
            return "labels", NodeOutputs(**graphs)
        if factors is not None:
            with named_labels():
                return graph_outputs(
                    "exact", self.surrogate, False, factors=(factors,) * n, **graphs)
        return graph_outputs(self.inference, self.surrogate, attractive, **graphs)

    def _n_scores(self, layout, common):
        return layout.max_parts

    def _arranged(self, features, layout, common, constant):
        return LabelSetFeatures(features, layout, len(common["edges_"]))

    def _resolved_penalty(self, n_labels, n_features, n_edges):
        """The penalty of the weights, None for alpha / 2 ||w||^2 alone."""
        edges = (n_edges,) if n_edges else MISSING.format("graph, which has no edges")
        return self.penalty_of({
            "coef": (n_labels, n_features), "intercept": self._intercept_shape(n_labels),
            "edge_coef": edges})

    def _penalise(self, features):
        labels, m = features.labels, features.pairs.n_pairs
        R, d = labels.n_labels, labels.n_features
        resolved = self._resolved_penalty(R, d, m)
        if resolved is None:
            return
        self._penalise_rows(labels, resolved)
        # a pair is a group of its own
        features.pairs.set_penalty(replace(resolved, by_rows=False).of_rows(
            (1, m), 0, lambda packed: {"edge_coef": packed[0]}))

    def _holds_attractive(self, X, n_labels, n_edges):
        """Whether bounds hold the weights of pairs at zero or more."""
        if self.kernel != "linear" or not n_edges:
            return False
        resolved = self._resolved_penalty(n_labels, X.shape[1], n_edges)
        return resolved is not None and bool((resolved.families["edge_coef"][0] >= 0.0).all())
