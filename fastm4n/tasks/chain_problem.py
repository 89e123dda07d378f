"""The problem of a `SequenceTagger`, columns that an L1 term keeps at zero being left out."""

from dataclasses import dataclass

import numpy as np

from fastm4n.tasks.chain_weights import (
    WeightsOfPairs,
    edge_views,
    fitted_weights,
    penalised_places,
    weight_views,
)
from fastm4n.tasks.problem import Problem


def _same_pairs(one, other):
    if one is None or other is None:
        return one is other
    return all(map(np.array_equal, one, other))


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
        """Weights, as views of the rows that the compiled loops read, or by observed pairs."""
        features, edges = self.features, self.features.edges
        if self.is_last and features.pairs() is not None:
            rows = [None if part is None else part.live()["weights"][1]
                    for part in (features, edges)]
            return {"_of_pairs": WeightsOfPairs(
                rows[0], features.pairs(), rows[1], None if edges is None else edges.pairs(),
                features.n_labels, features.n_ngrams)}
        packed, d = features.all_weights(), features.n_features
        if self.columns is not None:
            whole = np.zeros((packed.shape[0] - d + self.n_columns, packed.shape[1]))
            whole[self.columns], whole[self.n_columns :] = packed[:d], packed[d:]
            packed, d = whole, self.n_columns
        return fitted_weights(
            packed, None if edges is None else edges.all_weights(), d, features.n_labels,
            features.n_ngrams)

    def drop_dual(self, solution):
        del solution.state["mu"]
        self.loss = None

    def warm(self, solution, alpha):
        return {
            **super().warm(solution, alpha), "columns": self.columns,
            "pairs": self.features.pairs(), "n_columns": self.n_columns,
        }

    def start(self, state, alpha):
        """As of `Problem`; rows of features that were left out, or not there, then are zero."""
        start = super().start(state, alpha)
        then, now = state.get("columns"), self.columns
        old, new = state.get("pairs"), self.features.pairs()
        d, n_then = self.n_columns, state.get("n_columns", self.n_columns)
        if start is None or start.average is None or (
                d == n_then and then is None and now is None and _same_pairs(old, new)):
            return start
        if n_then > d or n_then < d and self.features.edges is not None:
            return start.without("average")
        rows = start["average/weights"]
        n_old = rows.shape[0] - self.n_behind()
        whole = np.zeros((d + self.n_behind(), rows.shape[1]))
        if old is not None:
            features = np.repeat(np.arange(n_then), np.diff(old[0]))
            whole[features, old[1]] = rows[:n_old].reshape(-1)[: features.size]
        else:
            whole[slice(n_then) if then is None else then] = rows[:n_old]
        whole[d:] = rows[n_old:]
        if now is not None:
            whole = np.concatenate([whole[now], whole[d:]])
        whole = self.features.gathered(whole)
        start["average/weights"] = whole
        return start

    def n_behind(self):
        """Rows of weights behind those of features."""
        return self.features.live()["weights"][0].shape[0] - self.features.behind


def penalise(features, resolved):
    """Give a map of chains, and that of the transitions' features, the penalty of the weights."""
    if resolved is None:
        return
    R, edges, n_ngrams = features.n_labels, features.edges, features.n_ngrams
    names = ["coef", "intercept", "start_coef", "end_coef", "transition_coef", "ngram_coef"]
    names = names[:4] if edges is not None else names if n_ngrams else names[:5]
    parts = [(features, names[0], lambda packed, d: dict(
        zip(names, weight_views(packed, d, R, n_ngrams), strict=True)))]
    if edges is not None:
        of_edges = "transition_coef", "transition_feature_coef"
        parts.append((edges, of_edges[1], lambda packed, _: dict(
            zip(of_edges, edge_views(packed, R), strict=True))))
    for part, of_features, views_of in parts:
        part.set_penalty(resolved.of_rows(
            part.live()["weights"][0].shape, part.behind,
            *penalised_places(part, of_features, views_of)))
