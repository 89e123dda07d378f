"""Task of rankings of the same items."""

import math
from functools import partial

import numpy as np

from fastm4n.base.label_costs import as_kept
from fastm4n.data._preferences import read_preferences
from fastm4n.data._rankings import places_to_orderings, places_to_strings
from fastm4n.tasks.completions import Extensions
from fastm4n.tasks.parameters import cost_matrix, summable
from fastm4n.tasks.permutations import PermutationDecoder, PermutationTask
from fastm4n.tasks.vectors import VectorDecoder, VectorTask


class RankingDecoder(PermutationDecoder, VectorDecoder):
    """A fitted ranker at new data."""

    def each(self, function):
        return function(self.decision())

    def decision(self):
        M = self.fitted.items_.size
        return self.scores.reshape(-1, M, M)

    def named(self, codes):
        form, items = self.fitted.form_, self.fitted.items_
        if form == "ranks":
            return codes + self.fitted._base
        return (places_to_strings if form == "string" else places_to_orderings)(codes, items)


class RankingTask(PermutationTask, VectorTask):
    """Rankings of the same items."""

    def decoder(self, X):
        return RankingDecoder(self, X)

    def _coef_shape(self, n_scores, n_features):
        M = math.isqrt(n_scores)
        return M, M, n_features

    def example(self, rng, csr=False, is_partial=False):
        X = self._example_rows(rng, 5, csr)
        y = np.array([rng.permutation(3) for _ in range(5)])
        if is_partial:
            y = np.where(y[:, :1] == 0, np.minimum(y, 1), y).astype(np.float64)
            y[0, 0], y[1] = np.nan, [2.0, 1.0, np.nan]
        return X, y

    def _outputs_of(self, y, X):
        """What a piece has of the outputs, by name."""
        rankings = read_preferences(y, self.form)
        self.check_length(rankings, X)
        if rankings.levels is not None:
            nowhere = np.flatnonzero(np.isnan(rankings.levels).all(axis=0))
            if nowhere.size:
                raise ValueError(
                    f"y ranks item {nowhere[0]} nowhere: column {nowhere[0]} is NaN in all "
                    "rankings. Leave the column out.")
        return dict(
            rankings=rankings, items=rankings.items, form=rankings.form, base=rankings.base)

    @staticmethod
    def check_length(rankings, X):
        """Refuse another number of rankings than samples."""
        if len(rankings) != X.shape[0]:
            raise ValueError(f"y has {len(rankings)} rankings, but X has {X.shape[0]} samples.")

    def piece(self, pieces):
        """The piece, with the places of complete rankings, or the orders of partial ones."""
        found = super().piece(pieces)
        rankings, found.places, found.orders = found.rankings, None, None
        is_complete = rankings.is_complete()
        if not is_complete[found.kept].all():
            found.orders = rankings.orders()
            # a ranking without a pair says nothing
            told = found.orders.any(axis=(1, 2))
            found.weights_of_all = np.where(told, found.weights_of_all, 0.0)
            found.kept = np.flatnonzero(found.weights_of_all)
            found.weights = found.weights_of_all[found.kept]
            if not found.kept.size:
                raise ValueError("y has no item above another one in samples of non-zero weight.")
        partial_ones = found.kept[~is_complete[found.kept]]
        if not partial_ones.size:
            found.places, found.orders = rankings.places(), None
        elif not pieces.may_be_partial:
            raise ValueError(
                f"y[{partial_ones[0]}] is a partial ranking, which needs rounds of fits that `fit` "
                "makes in memory. Paths over alpha, partial_fit and partitions are of one fit: "
                "complete the rankings.")
        return found

    def census(self, piece):
        found = super().census(piece)
        found.same.update({
            "items": piece.items, "rankings in the form": piece.form, "ranks from": piece.base})
        return found

    def fitted(self, problem, *args, **options):
        """As in `Task`: scores are matrices, row after row."""
        M = problem.common["items_"].size
        return {
            name: rows.reshape((-1, M, M) if name == "dual_coef_" else (M, M, *rows.shape[1:]))
            for name, rows in super().fitted(problem, *args, **options).items()
        }

    def in_memory(self, piece, census, one_alpha):
        kept, M = piece.kept, piece.items.size
        if M < 2:
            raise ValueError("y ranks one item only; a ranker needs at least two.")
        cost = cost_matrix(self.cost, M, "items")
        of_examples = piece.places
        if of_examples is None:
            of_examples = np.packbits(piece.orders.reshape(len(piece.orders), -1), axis=1)
        outputs = np.unique(of_examples[kept], axis=0, return_inverse=True)[1].ravel()
        blocks = self._blocks(piece.X, kept, outputs, summable(piece.weights))
        if piece.places is None:
            orders = piece.orders[blocks.examples]
            # by the number of items above: one of the rankings that keep the order
            places = np.argsort(np.argsort(orders.sum(axis=1), axis=1, kind="stable"), axis=1)
        else:
            places = piece.places[blocks.examples]
        loss = self._loss_of(places.ravel(), np.full(len(places), M), cost)
        problem = self._made(
            piece.X, blocks, loss,
            {"items_": piece.items, "form_": piece.form, "_base": piece.base,
             "_cost_held": as_kept(cost)},
            {"items": piece.items, "cost_scale": self.cost_scale},
            census,
        )
        if piece.places is None:
            problem.known = partial(Extensions, before=orders)
        return problem
