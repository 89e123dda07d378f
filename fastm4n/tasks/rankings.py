"""Task of rankings of the same items."""

import math

import numpy as np

from fastm4n.base.label_costs import as_kept
from fastm4n.data._rankings import places_to_orderings, places_to_strings, read_rankings
from fastm4n.tasks.parameters import cost_factors, cost_matrix, summable
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
        return (places_to_orderings if form == "ordering" else places_to_strings)(codes, items)


class RankingTask(PermutationTask, VectorTask):
    """Rankings of the same items."""

    goes_on, own_weights, own_fixed = True, ("coef_", "intercept_"), ("items_",)

    def decoder(self, X):
        return RankingDecoder(self, X)

    def _coef_shape(self, n_scores, n_features):
        M = math.isqrt(n_scores)
        return M, M, n_features

    def example(self, rng, csr=False):
        X = self._example_rows(rng, 5, csr)
        return X, np.array([rng.permutation(3) for _ in range(5)])

    def _outputs_of(self, y, X):
        """What a piece has of the outputs, by name."""
        places, items, form, base = read_rankings(y, self.form)
        if places.shape[0] != X.shape[0]:
            raise ValueError(f"y has {places.shape[0]} rankings, but X has {X.shape[0]} samples.")
        return dict(places=places, items=items, form=form, base=base)

    def classes_of_call(self, y, classes):
        """The items of y, which all calls must have in common."""
        found = read_rankings(y, self.form)
        ranker, items, form = self.estimator, found[1], found[2:]
        if classes is not None:
            self.check_classes(items, np.sort(classes))
        if vars(ranker).get("_seen") is not None and form != (ranker.form_, ranker._base):
            now, then = (
                f"the form {name!r}" + ("" if base is None else f" from {base}")
                for name, base in (form, (ranker.form_, ranker._base)))
            raise ValueError(
                f"y has {now}, and earlier calls of partial_fit had {then}: write all rankings "
                "alike.")
        return items

    def check_classes(self, classes, known):
        """As in `Task`: the items."""
        if np.array_equal(classes, known):
            return
        new, missing = np.setdiff1d(classes, known), np.setdiff1d(known, classes)
        if new.size:
            what = f"ranks the item {new[0].item()!r}, which earlier calls or `classes` do not have"
        else:
            what = f"does not rank the item {missing[0].item()!r}"
        raise ValueError(
            f"y {what}: partial_fit goes on with the same items, {known.tolist()!s:.200}. Fit to "
            "all rankings together, or leave these out.")

    def piece(self, pieces):
        found = super().piece(pieces)
        found.item_weight = self._item_weight(pieces.part_weight, found.places.shape)
        return found

    def _item_weight(self, given, shape):
        """Factors of the costs of all items of all samples, None for ones."""
        if given is None:
            return None
        factors = cost_factors("item_weight", given, self.surrogate)
        if factors.shape not in (shape, shape[1:]):
            raise ValueError(
                f"item_weight must have a number for each item, of shape {shape[1:]}, or for each "
                f"item of each sample, of shape {shape}, got {factors.shape}.")
        return None if (factors == 1.0).all() else np.broadcast_to(factors, shape)

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
        keys, weights = piece.places[kept], piece.item_weight
        if weights is not None:
            keys = np.column_stack([keys, weights[kept]])
        outputs = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        blocks = self._blocks(piece.X, kept, outputs, summable(piece.weights))
        rankings = piece.places[blocks.examples]
        if weights is not None:
            weights = weights[blocks.examples].ravel()
        loss = self._loss_of(rankings.ravel(), np.full(len(rankings), M), cost, weights)
        return self._made(
            piece.X, blocks, loss,
            {"items_": piece.items, "form_": piece.form, "_base": piece.base,
             "_cost_held": as_kept(cost)},
            {"items": piece.items, "cost_scale": self.cost_scale},
            census,
        )
