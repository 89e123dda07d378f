"""The problem of a `SequenceTagger`, columns that an L1 term keeps at zero being left out."""

from dataclasses import dataclass

import numpy as np

from fastm4n.estimators._chain_weights import edge_views, fitted_weights, weight_views
from fastm4n.estimators._problem import Problem


@dataclass
class ChainProblem(Problem):
    """The problem of a `SequenceTagger`.

    Attributes
    ----------
    columns : ndarray, default=None
        The columns of X that `features` have, where those that an L1 term keeps at zero are left
        out.
    n_columns : int
    """

    columns: np.ndarray = None
    n_columns: int = 0

    def fitted(self, mu, alpha):
        """Weights, as views of the rows that the compiled loops read."""
        features, edges = self.features, self.features.edges
        packed, d = features.all_weights(), features.n_features
        if self.columns is not None:
            whole = np.zeros((packed.shape[0] - d + self.n_columns, packed.shape[1]))
            whole[self.columns], whole[self.n_columns :] = packed[:d], packed[d:]
            packed, d = whole, self.n_columns
        return fitted_weights(
            packed, None if edges is None else edges.all_weights(), d, features.n_labels,
            features.n_ngrams)

    def warm(self, solution, alpha):
        return {**super().warm(solution, alpha), "columns": self.columns}

    def start(self, state, alpha):
        """As of `Problem`; rows of features that were left out then are zero."""
        start = super().start(state, alpha)
        then, now = state.get("columns"), self.columns
        if not start or start["average"] is None or (then is None and now is None):
            return start
        (weights, *others), d = start["average"], self.n_columns
        old = weights["weights"]
        n_old = d if then is None else then.size
        whole = np.zeros((old.shape[0] - n_old + d, old.shape[1]))
        whole[slice(d) if then is None else then] = old[:n_old]
        whole[d:] = old[n_old:]
        if now is not None:
            whole = np.concatenate([whole[now], whole[d:]])
        start["average"] = ({**weights, "weights": whole}, *others)
        return start


def penalise(features, resolved):
    """Give a map of chains, and that of the transitions' features, the penalty of the weights."""
    if resolved is None:
        return
    R, d, edges = features.n_labels, features.n_features, features.edges
    n_ngrams = features.n_ngrams
    names = ["coef", "intercept", "start_coef", "end_coef", "transition_coef", "ngram_coef"]
    names = names[:4] if edges is not None else names if n_ngrams else names[:5]
    parts = [(features, lambda packed: dict(
        zip(names, weight_views(packed, d, R, n_ngrams), strict=True)))]
    if edges is not None:
        of_edges = "transition_coef", "transition_feature_coef"
        parts.append(
            (edges, lambda packed: dict(zip(of_edges, edge_views(packed, R), strict=True))))
    for part, views_of in parts:
        shape = part.all_weights().shape
        part.set_penalty(resolved.of_rows(shape, part.n_features, views_of))
