"""The task of sets of labels: indicators, graphs between labels, and problems."""

import re
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import type_of_target

from fastm4n.base.checks import check_choice
from fastm4n.base.label_costs import as_kept
from fastm4n.data._graph_factors import contents
from fastm4n.data._sequences import check_compressed
from fastm4n.factors import as_factors, constraints_of, factor_scores
from fastm4n.features._pairs import LabelSetFeatures
from fastm4n.outputs._simplex import LabelOutputs
from fastm4n.outputs.graph_oracles import EXACT, graph_outputs
from fastm4n.tasks._decoding import LabelDecoder
from fastm4n.tasks.base import MISSING
from fastm4n.tasks.graph_model import integrality, integrality_gaps
from fastm4n.tasks.parameters import RISK_TOL, check_lengths, cost_matrix, summable
from fastm4n.tasks.vectors import VectorDecoder, VectorTask

KINDS = ("array", "csr_matrix", "csr_array")
# probabilities are clipped to these for finite log-odds
LOG_ODDS_OF = np.finfo(np.float64).tiny, 1.0 - np.finfo(np.float64).epsneg
# what y has of each example
AN_INDICATOR = "a row of zeros and ones"
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
        _check_values(y.data, lambda i: (
            int(np.searchsorted(y.indptr, i, side="right") - 1), int(y.indices[i])))
        dense = np.zeros(y.shape, dtype=np.uint8)
        dense[np.repeat(np.arange(y.shape[0]), np.diff(y.indptr)), y.indices] = y.data != 0
        Y, dtype = dense, y.dtype
    else:
        columns = getattr(y, "columns", None)
        if columns is not None and all(isinstance(name, str) for name in columns):
            names = np.array(list(columns), dtype=str)
        try:
            given = np.asarray(y)
        except ValueError as error:
            raise ValueError(f"y has rows of different lengths ({error}): {_REMEDY}.") from error
        if given.ndim != 2:
            raise ValueError(
                f"{_kind_of(given)}y has shape {given.shape}, and an indicator has two "
                f"dimensions: {_REMEDY}.")
        if given.dtype.kind in "OUS":
            try:
                numbers = given.astype(np.float64)
                if given.dtype.kind != "O":
                    raise TypeError("strings")
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "y has entries that are no numbers, such as "
                    f"{given.ravel()[:1].tolist()[0]!r:.40}: {_REMEDY}.") from error
            _check_values(numbers.ravel(), lambda i: divmod(i, numbers.shape[1]))
            given = numbers.astype(np.int64)
        elif given.dtype.kind not in "biuf":
            raise ValueError(f"y is of dtype {given.dtype}: {_REMEDY}.")
        _check_values(given.ravel(), lambda i: divmod(i, given.shape[1]))
        Y, dtype = (given != 0).astype(np.uint8), given.dtype
    if Y.shape[1] == 0:
        raise ValueError(f"y has no columns: {_REMEDY}.")
    if labels is not None and Y.shape[1] != labels:
        raise ValueError(f"y has {Y.shape[1]} labels, but the model has {labels}.")
    if names is None:
        names = np.arange(Y.shape[1])
    elif np.unique(names).size < names.size:
        raise ValueError("y has two columns of one name.")
    return Y, names, kind, dtype.newbyteorder("=").name


def _check_values(values, place):
    """Refuse entries other than 0 and 1. `place` gives the row and column of an entry."""
    if values.dtype.kind == "b":
        return
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        i, j = place(int(np.flatnonzero(~np.isfinite(values))[0]))
        what = "NaN" if np.isnan(values).any() else (
            "infinity or a value too large for dtype('float64')")
        raise ValueError(f"Input y contains {what}. It is at y[{i}, {j}].")
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if wrong.size:
        i, j = place(int(wrong[0]))
        raise ValueError(
            f"{_kind_of(values)}y[{i}, {j}] is {values[wrong[0]].item()!r}: {_REMEDY}.")


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
    """The weight of the samples that have both of two labels. The last label is one that all have.

    Parameters
    ----------
    Y : ndarray of shape (n_samples, n_labels)
    weights : ndarray of shape (n_samples,)

    Returns
    -------
    counts : ndarray of shape (n_labels + 1, n_labels + 1)
    """
    Y = np.column_stack([Y, np.ones(len(Y))])
    return (Y * weights[:, np.newaxis]).T @ Y


def mutual_information(Y, weights, counts=None):
    """Mutual information of all pairs of labels, in nats, (n_labels, n_labels).

    From Y and weights, or from the `pair_counts` of all pieces.
    """
    if counts is None:
        # by a power of two: sums of whole numbers stay exact, and a weight is a repetition
        counts = pair_counts(Y, np.ldexp(weights, -np.frexp(weights.max())[1]))
    both, total = counts[:-1, :-1], counts[-1, -1]
    ones = np.diagonal(both)
    information = np.zeros_like(both)
    for a, b, table in (
        (ones, ones, both),
        (ones, total - ones, ones[:, np.newaxis] - both),
        (total - ones, ones, ones[np.newaxis] - both),
        (total - ones, total - ones, total - ones[:, np.newaxis] - ones[np.newaxis] + both),
    ):
        share = np.maximum(table, 0.0) / total
        alone = np.outer(a, b) / total**2
        some = (share > 0.0) & (alone > 0.0)
        information[some] += share[some] * np.log(share[some] / alone[some])
    return np.maximum(information, 0.0)


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
        wrong = numbers[factor_scores([factor], Y[numbers]) == -np.inf]
        if wrong.size:
            raise ValueError(
                f"the labels of sample {wrong[0]} are forbidden by constraints[{i}], {factor!r}. "
                "Correct one of the two.")


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
            labels, edges, self.fitted.cost_matrix_, attractive, factors)
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
        labels, cost = self.best()[0], self.fitted.cost_matrix_
        share = self.marginals()[0]
        off, on = cost[1, 0] * share, cost[0, 1] * (1.0 - share)
        # the adversary makes labels equally risky, up to the oracle's tolerance
        slack = RISK_TOL * labels.shape[1]
        if self.factors is None:
            return np.where(np.abs(off - on) <= slack, labels, on < off)
        found = self._over(
            np.zeros((0, 2), dtype=np.intp), np.zeros(0), False, constraints_of(self.factors)
        )[1].best_sets(off - on)[0]
        risks = [np.where(chosen, on, off).sum(axis=1) for chosen in (labels, found)]
        return np.where((risks[0] <= risks[1] + slack)[:, np.newaxis], labels, found)

    def named(self, codes):
        return as_indicator(codes, self.fitted._kind, self.fitted._dtype)

    def decision(self):
        scores, fitted = self.scores, self.fitted
        if self.factors is None and not len(fitted.edges_):
            return scores
        if self.task.surrogate.name == "log" and self.task.decoding() == "min_risk":
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

    def decoder(self, X, factors=None):
        return LabelSetDecoder(self, X, factors)

    def takes_best(self, **given):
        fitted = self.estimator
        return not len(fitted.edges_) and fitted.cost_matrix_[0, 1] == fitted.cost_matrix_[1, 0]

    def example(self, rng, labels=3, csr=False):
        X, y = self._example_rows(rng, 5, csr), rng.integers(2, size=(5, labels))
        y[0], y[1] = 0, 1
        if self.constraints is not None:
            y = np.eye(labels, dtype=int)[rng.integers(labels, size=5)]
        return X, y

    def _outputs_of(self, y, X):
        """What a piece has of the outputs, by name."""
        Y, names, kind, dtype = read_indicator(y)
        check_lengths(X, Y, AN_INDICATOR)
        return dict(Y=Y, names=names, kind=kind, dtype=dtype)

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
        return {**found, "edge_coef_": problem.features.pair_coef()}

    def values(self, problem, tol):
        """Attributes that say how exact the fit is, at the weights of the features."""
        if problem.common["exact_"]:
            return {}
        return integrality(integrality_gaps(problem.loss, problem.features, tol), problem.weights)

    def in_memory(self, piece, census, one_alpha):
        X, Y, kept, weights = piece.X, piece.Y, piece.kept, summable(piece.weights)
        cost = cost_matrix(self.cost, 2, "values, 0 and 1")
        constraints = self.constraint_factors(Y.shape[1])
        if constraints is not None and self._has_free_intercept():
            raise ValueError(
                "fit_intercept='free' does not support constraints: use a number, such as "
                "fit_intercept=10.")
        check_sets(Y, kept, constraints)
        counts = None if census is None else census.sums["pairs"]
        edges = label_edges(self.graph, Y[kept], weights, counts)
        sets, which = np.unique(Y[kept], axis=0, return_inverse=True)
        blocks = self._blocks(X, kept, which.ravel(), weights)
        Y = sets[which.ravel()[blocks.first]]
        common = {
            **self.noted(), "classes_": piece.names, "edges_": edges, "_cost_held": as_kept(cost),
            "_kind": piece.kind, "_dtype": piece.dtype,
        }
        return self.problem_of_blocks(X, Y, blocks, cost, constraints, common, census)

    def problem_of_blocks(self, X, Y, blocks, cost, constraints, common, census):
        """The problem of one set for each block."""
        names, edges = common["classes_"], common["edges_"]
        oracle, outputs = self.outputs(
            Y, edges, cost, self._holds_attractive(X, names.size, len(edges)), constraints)
        exact = self.finds_best(oracle)
        common.update(oracle_=oracle, exact_=exact, integrality_gap_=0.0 if exact else None)
        return self._made(
            X, blocks, self.loss(outputs), common,
            {"classes": names, "edges": edges, "oracle": oracle,
             "constraints": contents(constraints)},
            census,
        )

    def finds_best(self, oracle):
        """Whether best sets of this oracle are best whatever the scores."""
        return oracle in ("labels", *EXACT) or self.inference == "exact"

    def constraint_factors(self, n_labels):
        """The constraints in a tuple, or None."""
        if self.constraints is None:
            return None
        return as_factors(self.constraints, n_labels, "constraints") or None

    def outputs(self, Y, edges, cost, attractive, factors=None):
        """The name of an oracle, and outputs over these sets with it."""
        n, n_labels = Y.shape
        if factors is None and not len(edges):
            return "labels", LabelOutputs(Y, cost)
        if factors is None and len(edges) and self.inference == "min_cut" and not attractive:
            raise ValueError(
                "inference='min_cut' needs weights of pairs that are not negative: use "
                "penalty=L2(bounds={'edge_coef': (0, None)}) and kernel='linear'."
            )
        graphs = dict(
            y=Y.ravel(), n_nodes=np.full(n, n_labels), edges=edges,
            n_edges=np.full(n, len(edges)), cost=cost, pairs="both")
        if factors is not None:
            with named_labels():
                return graph_outputs(
                    "exact", self.surrogate, False, factors=(factors,) * n, **graphs)
        return graph_outputs(self.inference, self.surrogate, attractive, **graphs)

    def _n_scores(self, layout):
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
