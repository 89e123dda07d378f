"""Task of rankings of the same items."""

import math
from functools import partial

import numpy as np
from scipy.stats import rankdata

from fastm4n.base.checks import check_number
from fastm4n.base.label_costs import as_kept
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.data._matchings import as_rows
from fastm4n.data._preferences import form_of, read_preferences
from fastm4n.data._rankings import inverse, places_to_orderings, places_to_strings
from fastm4n.features._items import ItemFeatures
from fastm4n.inference.matching import too_large_for_sums
from fastm4n.outputs import MatchingOutputs
from fastm4n.tasks.completions import Clamp, Extensions
from fastm4n.tasks.items import features_of_items, new_items
from fastm4n.tasks.parameters import as_objects, cost_factors, cost_matrix, summable
from fastm4n.tasks.permutations import (
    PermutationDecoder,
    PermutationTask,
    best_labels,
    least_risky,
    matching_shares,
)
from fastm4n.tasks.vectors import VectorDecoder, VectorTask


class RankingDecoder(PermutationDecoder, VectorDecoder):
    """A fitted ranker at new data.

    Attributes
    ----------
    scores : ndarray of shape (n_samples, n_items, n_positions)
    items : ndarray of shape (n_items,)
        Names of the items: those of the fit, or new ones.
    has_below : bool
        Whether items that are not at the positions are below them, where all score zero.
    """

    def __init__(self, task, X, item_features=None):
        super().__init__(task, X)
        fitted = self.fitted
        self.items, Z = fitted.items_, vars(fitted).get("item_features_")
        n_positions = fitted.intercept_.shape[1]
        self.has_below = n_positions < self.items.size
        if item_features is not None:
            if Z is None:
                raise ValueError(
                    "item_features is for rankers that were fitted with features of the items, as "
                    "in fit(X, y, item_features=Z).")
            Z, self.items = new_items(item_features, Z.shape[1])
            self._check_size(n_positions)
        numbers = self.scores.reshape(len(self.scores), -1, n_positions)
        if Z is not None:
            n_scores = len(numbers) * self.items.size * n_positions
            refuse_beyond_memory(
                f"the scores of {len(numbers)} samples and {self.items.size} items at "
                f"{n_positions} positions", 8 * n_scores, "predict fewer samples at a time")
            numbers = Z @ numbers
        self.scores = numbers

    def _check_size(self, n_positions):
        """Refuse numbers of new items that the positions do not fit."""
        n_items = self.items.size
        if not self.has_below and n_items != n_positions:
            raise ValueError(
                f"item_features has {n_items} items, and this ranker has the {n_positions} "
                "positions of all items of its fit. Fit with a smaller n_positions to rank other "
                "numbers of items.")
        if n_items < n_positions:
            raise ValueError(
                f"item_features has {n_items} items, fewer than the n_positions={n_positions} that "
                "this ranker fills.")

    def each(self, function):
        return function(self.scores)

    def decision(self):
        return self.scores

    def named(self, codes):
        form = self.fitted.form_
        if form == "ranks":
            return codes + self.fitted._base
        return (places_to_strings if form == "string" else places_to_orderings)(codes, self.items)

    def top(self, codes, k):
        """The items of the first k positions of rankings, best first."""
        return self.items[np.argsort(codes, axis=1)[:, :k]]

    def expected(self):
        """Expected position of each item, from 0. Items below have the mean of those positions."""
        M, shares = self.items.size, self.marginals()
        positions = np.arange(shares.shape[2], dtype=np.float64)
        if self.has_below:
            n_positions = self.scores.shape[2]
            positions[n_positions] = 0.5 * (n_positions + M - 1)
        return shares @ positions

    # ----------------------------------------------------- the first positions, and all below

    def best(self):
        return (self._completed(best_labels(self.tables())), None) if self.has_below else (
            super().best())

    def marginals(self):
        return self._shares(self.tables()) if self.has_below else super().marginals()

    def least_risk(self):
        """Rankings of least expected cost. Ties go to the highest score."""
        if not self.has_below:
            return super().least_risk()
        tables = self.tables()
        risks = self._shares(tables) @ self.fitted._cost_table / max(1, self.items.size)
        return self._completed(least_risky(tables, risks, best_labels))

    def tables(self):
        """Scores with those of items below as the last column."""
        return np.pad(self.scores, ((0, 0), (0, 0), (0, 1)))

    def _shares(self, tables):
        return matching_shares(
            tables, self.task.surrogate, self.fitted._cost_table, self.task.cost_scale)

    def _completed(self, columns):
        """Whole rankings: items below by their largest score at a position, ties in order."""
        largest = np.where(
            columns < self.scores.shape[2], 0.0, -self.scores.max(axis=2, initial=-np.inf))
        return inverse(np.lexsort((largest, columns), axis=1))


class RankingTask(PermutationTask, VectorTask):
    """Rankings of the same items, of which all positions are scored, or the first ones."""

    goes_on, own_weights, own_fixed = True, ("coef_", "intercept_"), ("items_",)

    def decoder(self, X, item_features=None):
        return RankingDecoder(self, X, item_features)

    def n_scored(self, n_items):
        """The number of positions that are scored, of so many items."""
        return n_items if self.n_positions is None else min(n_items, self.n_positions)

    def decoded_top(self, X, k, decode, item_features):
        """The items of the first k positions, best first."""
        check_number("k", k, low=0, integer=True)
        decoder, codes, _ = self.decoded(X, decode, item_features=item_features)
        most = decoder.scores.shape[2]
        if k > most:
            raise ValueError(f"k={k} is more than the {most} positions of this ranker.")
        return decoder.top(codes, k)

    def expected_ranks(self, X, item_features):
        """Expected ranks, from that of the best item in y on, or from 1."""
        if not self.surrogate.has_distribution:
            raise ValueError(
                "expected_ranks needs a distribution over rankings, and "
                f"surrogate={self.estimator.surrogate!r} has none; use 'log' or 'max_min'.")
        base = self.estimator._base
        return self.decoder(X, item_features).expected() + (1 if base is None else base)

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
        return dict(
            rankings=rankings, items=rankings.items, form=rankings.form, base=rankings.base)

    @staticmethod
    def check_length(rankings, X):
        """Refuse another number of rankings than samples."""
        if len(rankings) != X.shape[0]:
            raise ValueError(f"y has {len(rankings)} rankings, but X has {X.shape[0]} samples.")

    def classes_of_call(self, y, classes):
        """The items of y, which all calls must have in common."""
        found = read_preferences(y, self.form)
        ranker, items, form = self.estimator, found.items, (found.form, found.base)
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

    def as_examples(self, X, y):
        """As in `VectorTask`. Lists of pairs, or of first items, may be of any length."""
        is_ragged = form_of(as_rows(y), self.form) in ("pairs", "top")
        return super().as_examples(X, as_objects(y) if is_ragged else y)

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

    def unchangeable(self, problem, prior):
        """As in `Task`."""
        n_positions = prior.weights["intercept_"].shape[1]
        if self.n_scored(len(prior.fixed["items_"])) != n_positions:
            return (
                f"n_positions={self.n_positions}, as those weights are of {n_positions} positions")
        return super().unchangeable(problem, prior)

    def piece(self, pieces):
        """The piece, with the labels of items, or what is known of those of partial rankings.

        Labels are positions, and n_positions for all items below. `places` has them if they are all
        known. Otherwise `bounds` has the least and the largest one of each item, if only the first
        positions are scored, and `orders` the items that are above others, if all are.
        """
        found, given = super().piece(pieces), pieces.item_features
        if pieces.prior is not None:
            # those of the weights that the fit goes on from
            given = vars(self.estimator).get("item_features_")
        found.item_features = None if given is None else features_of_items(given, found.items)
        rankings, M = found.rankings, found.items.size
        found.item_weight = self._item_weight(pieces.part_weight, (len(rankings), M))
        found.places = found.bounds = found.orders = None
        if self.n_scored(M) < M:
            self._read_first(found, rankings, pieces)
        else:
            self._read_all(found, rankings, pieces)
        return found

    @staticmethod
    def _are_known(found, is_known, pieces):
        """Whether all rankings that count are known. Refuses others where they cannot be fitted."""
        is_open = ~is_known[found.kept]
        if not is_open.any():
            return True
        if not pieces.may_be_partial:
            raise ValueError(
                f"y[{found.kept[np.argmax(is_open)]}] is a partial ranking, which needs rounds of "
                "fits that `fit` makes in memory. Paths over alpha, partial_fit and partitions are "
                "of one fit: complete the rankings.")
        return False

    def _read_all(self, found, rankings, pieces):
        """Set places, or orders if some rankings are partial."""
        is_known = rankings.is_complete()
        if not self._are_known(found, is_known, pieces):
            if rankings.levels is not None:
                nowhere = np.flatnonzero(np.isnan(rankings.levels).all(axis=0))
                if nowhere.size:
                    raise ValueError(
                        f"y ranks item {nowhere[0]} nowhere: column {nowhere[0]} is NaN in all "
                        "rankings. Leave the column out.")
            found.orders = rankings.orders()
            self._leave_out(found, found.orders.any(axis=(1, 2)))
        if is_known[found.kept].all():
            found.places, found.orders = rankings.places(), None

    def _read_first(self, found, rankings, pieces):
        """Set places, or bounds if some rankings do not tell all labels."""
        n_positions = self.n_scored(found.items.size)
        if rankings.levels is None or np.isnan(rankings.levels[found.kept]).any():
            b = 0 if rankings.levels is None else found.kept[np.argmax(
                np.isnan(rankings.levels[found.kept]).any(axis=1))]
            raise ValueError(
                f"n_positions={n_positions} is fewer than the {found.items.size} items, and then "
                f"each item must be ranked, with ties or below others: y[{b}] has items that may "
                "be anywhere. Write them last, as in 'a>b>*' or with form='top', or leave "
                "n_positions out.")
        levels = np.nan_to_num(rankings.levels)  # some of samples without weight
        bounds = np.stack([rankdata(levels, method, axis=1) for method in ("min", "max")])
        low, high = bounds = np.minimum(bounds.astype(np.intp) - 1, n_positions)
        is_known = (low == high).all(axis=1)
        if not self._are_known(found, is_known, pieces):
            self._leave_out(found, (levels != levels[:, :1]).any(axis=1))
        if is_known[found.kept].all():
            found.places = low
        else:
            found.bounds = bounds

    def _leave_out(self, found, is_told):
        """Leave out samples of which no two items are ordered."""
        super()._leave_out(found, is_told)
        if not found.kept.size:
            raise ValueError("y has no item above another one in samples of non-zero weight.")

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
        n_positions = self.n_scored(problem.common["items_"].size)
        return {
            name: rows.reshape(
                (len(rows), -1, n_positions) if name == "dual_coef_" else
                (-1, n_positions, *rows.shape[1:]))
            for name, rows in super().fitted(problem, *args, **options).items()
        }

    def _scored(self, problem, numbers):
        rows, common = super()._scored(problem, numbers), problem.common
        M = common["items_"].size
        numbers = rows.reshape(len(rows), M, -1)[:, :, : self.n_scored(M)]
        Z = common.get("item_features_")
        return (numbers if Z is None else Z.T @ numbers).reshape(len(rows), -1)

    def _n_scores(self, layout, common):
        M, Z = layout.max_parts, common.get("item_features_")
        return self.n_scored(M) * (M if Z is None else Z.shape[1])

    def _arranged(self, features, layout, common, constant):
        M, Z = layout.max_parts, common.get("item_features_")
        n_positions = self.n_scored(M)
        if Z is None and n_positions == M:
            return features
        return ItemFeatures(features, layout, n_positions, Z)

    def _penalise(self, features):
        inner, n_positions = features, math.isqrt(features.n_labels)
        if isinstance(features, ItemFeatures):
            inner, _, n_positions, _ = features.arguments()
        R, d = inner.n_labels, inner.n_features
        self._penalise_rows(inner, self.penalty_of({
            "coef": (R // n_positions, n_positions, d), "intercept": self._intercept_shape(R)}))

    def in_memory(self, piece, census, one_alpha):
        kept, M, Z = piece.kept, piece.items.size, piece.item_features
        if M < 2:
            raise ValueError("y ranks one item only; a ranker needs at least two.")
        n_positions = self.n_scored(M)
        has_below = n_positions < M
        noun = f"positions, with one for all below the first {n_positions}" if has_below else (
            "items")
        cost = cost_matrix(self.cost, n_positions + has_below, noun)
        if piece.places is not None:
            keys = piece.places
        elif has_below:
            keys = np.concatenate(piece.bounds, axis=1)
        else:
            keys = np.packbits(piece.orders.reshape(len(piece.orders), -1), axis=1)
        keys, weights = keys[kept], piece.item_weight
        if weights is not None:
            keys = np.column_stack([keys, weights[kept]])
        outputs = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        blocks = self._blocks(piece.X, kept, outputs, summable(piece.weights))
        places, known = self._places_of(piece, blocks.examples, n_positions)
        if weights is not None:
            weights = weights[blocks.examples].ravel()
        if has_below:
            loss = self._loss_of_first(places, n_positions, cost, weights)
        else:
            loss = self._loss_of(places.ravel(), np.full(len(places), M), cost, weights)
        common = {
            "items_": piece.items, "form_": piece.form, "_base": piece.base,
            "_cost_held": as_kept(cost)}
        if Z is not None:
            common["item_features_"] = Z
        problem = self._made(
            piece.X, blocks, loss, common,
            {"items": piece.items, "cost_scale": self.cost_scale, "positions": n_positions,
             "features of items": Z},
            census,
        )
        problem.known = known
        if Z is not None:
            self._check_products(problem.features, Z, problem.alpha)
        return problem

    def _places_of(self, piece, examples, n_positions):
        """Labels of the items of examples, and what makes the `Clamp` of those that are possible.

        Where several are possible, the labels are those of one ranking. None where all are known.
        """
        if piece.places is not None:
            return piece.places[examples], None
        if piece.bounds is None:
            orders = piece.orders[examples]
            # by the number of items above
            places = _by_place(orders.sum(axis=1))
            return places, partial(Extensions, before=orders)
        low, high = piece.bounds[:, examples]
        labels = np.arange(n_positions + 1)
        allowed = (low[:, :, np.newaxis] <= labels) & (labels <= high[:, :, np.newaxis])
        places = np.minimum(_by_place(low), n_positions)
        return places, partial(Clamp, allowed=allowed.reshape(-1, labels.size))

    def _check_products(self, features, Z, alpha):
        """Refuse products of features of x and of items that overflow over alpha."""
        inner = features.arguments()[0].arguments()
        norms = inner[2 if self.kernel == "linear" else 0]
        with np.errstate(over="ignore"):
            largest = np.max(norms) * np.max(np.einsum("if,if->i", Z, Z)) / alpha
        if not np.isfinite(largest):
            raise ValueError(
                "X and item_features have values too large for float64: the product of their "
                f"largest squared norms divided by alpha={alpha:g} overflows. Scale both, for "
                "example with StandardScaler.")

    def _loss_of_first(self, places, n_positions, cost, item_weight):
        """The surrogate over rankings of which the first positions count."""
        n, M = places.shape
        why = too_large_for_sums(M, n_positions) if self.surrogate.name == "log" else None
        if why is not None:
            raise ValueError(
                f"surrogate='log' at n_positions={n_positions} is of {why}; use 'max_min' or "
                "'max_margin', or a smaller n_positions.")
        return self.loss(MatchingOutputs(
            places.ravel(), np.full(n, M), np.full(n, n_positions), cost, self.cost_scale,
            is_complete=True, part_weights=item_weight))


def _by_place(numbers):
    """Positions of items in the order of their numbers, (n, M), ties in order of the items."""
    return inverse(np.argsort(numbers, axis=1, kind="stable"))
