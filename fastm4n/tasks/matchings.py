"""Task of matchings, whose scores come from features of pairs."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import maximum_bipartite_matching

from fastm4n.base.checks import not_finite
from fastm4n.base.label_costs import as_kept
from fastm4n.data._matchings import as_columns, as_rows
from fastm4n.data._sequences import Sequences
from fastm4n.features._pairs import PairFeatures, PairKernelFeatures
from fastm4n.inference.matching import too_large_for_sums
from fastm4n.outputs import Layout, MatchingOutputs, PermutationOutputs
from fastm4n.solvers.choice import as_solver
from fastm4n.tasks.base import MISSING, Blocks, Census, Memory, Problem, quarters
from fastm4n.tasks.kernels import (
    add_expansion,
    checked_diagonal,
    gram_matrix,
    kernel_parameters,
    named_kernel,
)
from fastm4n.tasks.merge import merge_sequences
from fastm4n.tasks.parameters import (
    as_objects,
    as_weights,
    check_norms,
    cost_factors,
    cost_matrix,
    summable,
)
from fastm4n.tasks.permutations import (
    PermutationDecoder,
    PermutationTask,
    best_labels,
    best_permutations,
    least_risky,
    matching_shares,
)

# more than any number of columns: labels have 16 bits
MANY = 1 << 16


class Pairs(NamedTuple):
    """All pairs of all examples.

    Attributes
    ----------
    values : ndarray of shape (n_pairs, n_features)
        Example after example and row after row, in float64.
    n_rows, n_columns : ndarray of shape (n_examples,)
    """

    values: np.ndarray
    n_rows: np.ndarray
    n_columns: np.ndarray

    @property
    def starts(self):
        """The first pair of each example, and the number of all."""
        return np.concatenate([[0], np.cumsum(self.n_rows * self.n_columns)])

    def tables(self, numbers):
        """Numbers of all pairs, cut into a table for each example."""
        parts = np.split(numbers, self.starts[1:-1])
        return [
            part.reshape(n, m)
            for part, n, m in zip(parts, self.n_rows, self.n_columns, strict=True)]


class MatchingDecoder(PermutationDecoder):
    """A fitted matcher at new examples.

    `scores` has those of the pairs of each example. Where matchings need not be permutations,
    `tables` has them with a further column, the score of a row that is left unmatched, and -inf for
    forbidden pairs.
    """

    def __init__(self, task, X, allowed=None):
        super().__init__(task)
        self.is_array = isinstance(X, np.ndarray) and X.dtype != object
        fitted, pairs = self.fitted, as_pairs(X, task.unmatched is not None)
        task.check_n_features(pairs.values)
        if hasattr(fitted, "coef_"):
            scores = pairs.values @ fitted.coef_
        else:
            support = np.flatnonzero(fitted.dual_coef_)
            scores = add_expansion(
                fitted, pairs.values, fitted.X_fit_[support], fitted.dual_coef_[support],
                np.zeros(pairs.values.shape[0]))
        masks = as_allowed(allowed, pairs)
        task.check_possible(pairs, masks)
        self.pairs, self.scores = pairs, pairs.tables(scores)
        if masks is not None:
            scores = np.where(masks, scores, -np.inf)
        self.tables, score = pairs.tables(scores), task.score_unmatched()
        # an example at a time: predictions do not depend on the others
        are_free = [not np.isneginf(table).any() for table in self.tables]
        self.are_permutations = (
            (task.unmatched is None) & (pairs.n_rows == pairs.n_columns) & np.array(are_free))
        for b in np.flatnonzero(~self.are_permutations):
            column = np.full((pairs.n_rows[b], 1), score)
            self.tables[b] = np.concatenate([self.tables[b], column], axis=1)

    def each(self, of_permutations, of_tables):
        """The results of the two functions for the tables of examples of one shape at a time."""
        results = [None] * len(self.tables)
        kinds = np.stack([self.are_permutations, self.pairs.n_rows, self.pairs.n_columns], axis=1)
        for kind in np.unique(kinds, axis=0):
            chosen = np.flatnonzero((kinds == kind).all(axis=1))
            batch = np.stack([self.tables[b] for b in chosen])
            found = of_permutations(batch) if kind[0] else of_tables(batch)
            for b, result in zip(chosen, found, strict=True):
                results[b] = result
        return self._shaped(results)

    def _shaped(self, parts):
        """One array if X is one, or the list."""
        return np.stack(parts) if self.is_array else parts

    def best(self):
        return self.each(best_permutations, self._best), None

    def marginals(self):
        return self.each(self._distribution, lambda tables: self._shares(tables)[:, :, :-1])

    def least_risk(self):
        return self.each(self._least_risk, self._least_risk_of_tables)

    def decision(self):
        return self._shaped(self.scores)

    def named(self, codes):
        return codes

    # --------------------------------------------------------- scores with those of unmatched rows

    def _best(self, tables):
        """The columns of rows, -1 of unmatched ones, in matchings of largest score."""
        return self._columns(tables, self._labels(tables))

    def _labels(self, tables):
        return best_labels(tables, self.task.unmatched is None)

    def _columns(self, tables, labels):
        return np.where(labels < tables.shape[2] - 1, labels, -1)

    def _shares(self, tables):
        """Marginals of the CRF, or those of the max-min game."""
        task, (_, n, row) = self.task, tables.shape
        costs = None if task.surrogate.name == "log" else self._costs_of_table(n, row - 1)
        return matching_shares(
            tables, task.surrogate, costs, task.cost_scale, task.unmatched is None)

    def _costs_of_table(self, n, m):
        """Costs of columns, and of being unmatched, (m + 1, m + 1)."""
        task = self.task
        task.check_cost(np.array([n]), np.array([m]))
        if not may_stay(task.unmatched, n, m):
            return np.pad(self._costs(m), (0, 1))
        n_costs = len(self.fitted._cost_table)
        if not isinstance(task.cost, str) and n_costs != m + 1:
            raise ValueError(
                f"X has an example of {n} rows and {m} columns, but cost is a matrix for "
                f"{n_costs - 1} columns and unmatched rows; predict with decode='map'.")
        return self._costs(m + 1)

    def _least_risk_of_tables(self, tables):
        """Matchings of least expected cost. Ties go to the highest score."""
        n, m = tables.shape[1], tables.shape[2] - 1
        if n == 0 or m == 0:
            return np.full((len(tables), n), -1)
        risks = self._shares(tables) @ self._costs_of_table(n, m) / n
        return self._columns(tables, least_risky(tables, risks, self._labels))


class MatchingTask(PermutationTask):
    """Matchings whose scores come from features of pairs.

    They are permutations if each example has as many rows as columns, and all of them must be
    matched to any other. Other matchings are `MatchingOutputs`.
    """

    auto_alpha = 10.0
    noun = "example"
    # a matching has no labels to check
    takes_more_labels = goes_on = True
    of_examples = ("sizes", "n_columns")

    @property
    def own_weights(self):
        has_unmatched = hasattr(self.estimator, "unmatched_coef_")
        return ("coef_", "unmatched_coef_") if has_unmatched else ("coef_",)

    def unchangeable(self, problem, prior):
        """As in `Task`."""
        if self.learns_unmatched != ("unmatched_coef_" in prior.weights):
            return f"unmatched={self.unmatched!r}, which those weights were not fitted with"
        return super().unchangeable(problem, prior)

    def decoder(self, X, allowed=None):
        return MatchingDecoder(self, X, allowed)

    def naming(self, problem):
        return named_kernel(self.kernel)

    def example(self, rng, sizes_differ=False, shapes=None):
        if shapes is None:
            shapes = [(size, size) for size in ((3, 2, 1, 3) if sizes_differ else (3, 3, 3))]
        X = [quarters(rng, n, m, 2) for n, m in shapes]
        y = [_matching(rng, n, m, self.unmatched is None) for n, m in shapes]
        return (np.array(X), np.array(y)) if len(set(shapes)) == 1 else (X, y)

    def piece(self, pieces):
        pairs = as_pairs(pieces.X, self.unmatched is not None)
        allowed = as_allowed(pieces.allowed, pairs)
        self.check_possible(pairs, allowed)
        places = as_matchings(pieces.y, pairs.n_rows, pairs.n_columns, self.unmatched, allowed)
        weights = as_weights(pieces.sample_weight, pairs.n_rows.size, "example")
        # without pairs there is nothing to choose, as in empty sequences
        kept = np.flatnonzero((weights > 0.0) & (pairs.n_rows * pairs.n_columns > 0))
        return SimpleNamespace(
            pairs=pairs, allowed=allowed, places=places, weights=weights[kept], kept=kept,
            row_weight=self._row_weight(pieces.part_weight, pairs.n_rows))

    def _row_weight(self, given, n_rows):
        """Factors of the costs of the rows of each example, None for ones."""
        if given is None:
            return None
        if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
            raise ValueError("row_weight must be a list with an array for each example.")
        given = as_rows(given)
        if len(given) != n_rows.size:
            raise ValueError(
                f"row_weight has {len(given)} examples, but X has {n_rows.size} examples.")
        factors = [
            cost_factors(f"row_weight[{b}]", part, self.surrogate) for b, part in enumerate(given)]
        for b, (part, n) in enumerate(zip(factors, n_rows.tolist(), strict=True)):
            if part.shape != (n,):
                raise ValueError(
                    f"row_weight[{b}] has shape {part.shape}, but X[{b}] has {n} rows: give a "
                    "number for each.")
        return None if all((part == 1.0).all() for part in factors) else factors

    def classes_of_call(self, y, classes):
        if classes is not None:
            raise ValueError(
                "classes are labels, and a matching has none: leave `classes` out.")

    def as_examples(self, X, y):
        """X and y as calls of `partial_fit` put them together: a list of arrays each."""
        piece = self.piece(Memory(X, y))  # errors name the examples of this call
        if vars(self.estimator).get("_seen") is not None:
            self.check_n_features(piece.pairs.values)
        return as_objects(X), as_objects(y)

    def census(self, piece):
        (values, n_rows, n_columns), kept = piece.pairs, piece.kept
        same = {"columns": values.shape[1]}
        stays = may_stay(self.unmatched, n_rows[kept], n_columns[kept])
        if not isinstance(self.cost, str):
            same["sizes"] = np.unique(n_columns[kept] + stays.any())
        return Census(
            kept.size, None, same, {"weight": piece.weights.sum()},
            size=int((n_columns[kept] + stays).max(initial=0)))

    def fitted(self, problem, alpha, mu, intercepts=None, is_last=False):
        learns = self.learns_unmatched
        if self.kernel == "linear":
            w, prior = problem.features.coef(), problem.prior
            if prior is not None:
                w += np.append(prior.weights["coef_"], prior.weights.get("unmatched_coef_", []))
            return {"coef_": w[:-1], "unmatched_coef_": w[-1]} if learns else {"coef_": w}
        outputs = problem.loss.outputs
        dual = np.repeat(problem.weights / alpha, outputs.layout.sizes()) * (outputs.truth() - mu)
        if type(outputs) is PermutationOutputs:
            return {"dual_coef_": dual}
        of_pairs = are_pairs(outputs.layout)
        found = {"dual_coef_": dual[of_pairs]}
        return {**found, "unmatched_coef_": np.sum(dual[~of_pairs])} if learns else found

    def put_weights(self, problem, rows, weights):
        rows["weights"][0] = np.append(weights["coef_"], weights.get("unmatched_coef_", []))

    # ------------------------------------------------------------------------- kinds of matchings

    @property
    def learns_unmatched(self):
        return isinstance(self.unmatched, str)

    def score_unmatched(self):
        """The score of a row that is left unmatched."""
        if self.learns_unmatched:
            if not hasattr(self.estimator, "unmatched_coef_"):
                raise ValueError(
                    f"unmatched={self.unmatched!r} was set after the fit, which has learnt no "
                    "score of unmatched rows: fit again.")
            return float(self.estimator.unmatched_coef_)
        return 0.0 if self.unmatched is None else float(self.unmatched)

    def has_permutations(self, n_rows, n_columns, allowed):
        """Whether all matchings of these examples are permutations."""
        return self.unmatched is None and allowed is None and np.array_equal(n_rows, n_columns)

    def check_possible(self, pairs, allowed):
        """Refuse forbidden pairs that leave no matching of as many pairs as there must be."""
        if self.unmatched is not None or allowed is None:
            return
        for b, mask in enumerate(pairs.tables(allowed)):
            # the smaller side, all of which must be matched
            side, mask = ("row", mask) if len(mask) <= mask.shape[1] else ("column", mask.T)
            matched = maximum_bipartite_matching(sparse.csr_array(mask), perm_type="column") >= 0
            if matched.all():
                continue
            has_pairs = mask.any(axis=1)
            why = f"forbids all pairs of {side} {np.argmin(has_pairs)}"
            if has_pairs.all():
                why = (
                    f"allows at most {np.count_nonzero(matched)} pairs at a time, which leave "
                    f"{side} {np.argmin(matched)} over")
            raise ValueError(
                f"allowed[{b}] {why}, and unmatched=None needs {len(mask)} pairs in X[{b}]: there "
                "is no finite matching. Allow more pairs, or set unmatched to 'learn' or a number.")

    def check_cost(self, n_rows, n_columns):
        """Refuse costs by the order of columns if a row may be unmatched."""
        stays = may_stay(self.unmatched, n_rows, n_columns)
        if not isinstance(self.cost, str) or self.cost == "zero_one" or not np.any(stays):
            return
        b = np.argmax(stays)
        raise ValueError(
            f"cost={self.cost!r} is of the distance of columns, and under "
            f"unmatched={self.unmatched!r} rows of an example of {n_rows[b]} rows and "
            f"{n_columns[b]} columns may be unmatched. Use 'zero_one', or a matrix with a further "
            "row and column for unmatched rows.")

    def _cost_matrix(self, n_rows, n_columns):
        """The costs of columns, and of unmatched rows if there may be some."""
        stays = may_stay(self.unmatched, n_rows, n_columns)
        if isinstance(self.cost, str):
            self.check_cost(n_rows, n_columns)
            return cost_matrix(self.cost, int((n_columns + stays).max()), "columns")
        m = int(n_columns.max())
        if n_columns.min() != m:
            raise ValueError(
                "cost is a matrix, which needs examples of one size, but X has examples of "
                f"{n_columns.min()} to {m} columns; use a name.")
        if stays.any():
            return cost_matrix(self.cost, m + 1, "columns, with that of unmatched rows")
        return cost_matrix(self.cost, m, "columns")

    # ------------------------------------------------------------------------------- the problem

    def in_memory(self, piece, census, one_alpha):
        (values, n_rows, n_columns), allowed, kept = piece.pairs, piece.allowed, piece.kept
        if not kept.size:
            raise ValueError(
                "X has no pairs: all examples of non-zero weight have no rows or no columns.")
        cost = self._cost_matrix(n_rows[kept], n_columns[kept])
        starts, weights = piece.pairs.starts, summable(piece.weights)
        # the pairs of an example are a sequence, labelled by the columns of their rows
        pairs = Sequences(values, starts)
        labels = np.concatenate([np.repeat(piece.places[b], n_columns[b]) for b in kept])
        if allowed is not None:
            of_kept = np.concatenate([allowed[starts[b] : starts[b + 1]] for b in kept])
            allowed = None if of_kept.all() else allowed
        are_permutations = self.has_permutations(n_rows[kept], n_columns[kept], allowed)
        if not are_permutations:
            # and by what else tells examples apart
            counts = (n_rows * n_columns)[kept]
            labels = (labels + 1) * MANY + np.repeat(n_columns[kept], counts)
            if allowed is not None:
                labels = 2 * labels + of_kept
        row_weight = piece.row_weight
        if row_weight is not None:
            factors = np.concatenate([np.repeat(row_weight[b], n_columns[b]) for b in kept])
            labels = np.unique(
                np.column_stack([labels, factors]), axis=0, return_inverse=True)[1].ravel()
        blocks = Blocks.of(
            n_rows.size, kept, weights, *merge_sequences(pairs, labels, weights, kept))
        columns = np.concatenate([piece.places[b] for b in blocks.examples])
        if row_weight is not None:
            row_weight = np.concatenate([row_weight[b] for b in blocks.examples])
        shapes = n_rows[blocks.examples], n_columns[blocks.examples]
        task = {
            "surrogate": self.surrogate.name, "cost_scale": self.cost_scale, "sizes": n_rows,
            "n_columns": n_columns}
        if are_permutations:
            loss = self._loss_of(columns, shapes[0], cost, row_weight)
        else:
            masks = None if allowed is None else [
                allowed[starts[b] : starts[b + 1]] for b in blocks.examples]
            loss = self._loss_of_matchings(columns, *shapes, cost, masks, row_weight)
            kind = self.unmatched if self.unmatched in (None, "learn") else "given"
            task.update(allowed=allowed, unmatched=kind)
        size = self.census_of_all(census, piece).size
        if size > len(cost):
            cost = cost_matrix(self.cost, size, "columns")
        alpha = self._alpha(blocks, census, cost)
        features, points, parameters = self._features(pairs, blocks, loss.outputs, alpha)
        common = {"n_features_in_": values.shape[1], "_cost_held": as_kept(cost)}
        if self.kernel != "linear":
            common.update(X_fit_=points, _kernel_parameters=parameters)
        return Problem(loss, features, blocks, common, task)

    def _loss_of_matchings(self, columns, n_rows, n_columns, cost, masks, row_weight):
        """The surrogate over matchings that need not be permutations."""
        if self.surrogate.name == "log":
            for n, m in np.unique(np.stack([n_rows, n_columns], axis=1), axis=0).tolist():
                why = too_large_for_sums(n, m)
                if why is not None:
                    raise ValueError(
                        f"surrogate='log' is too large for an example of {why}. Use 'max_min' or "
                        "'max_margin', which take polynomial time.")
        m = int(n_columns.max())
        cost = (self.cost, m + 1) if isinstance(self.cost, str) else (
            np.pad(cost, (0, m + 1 - len(cost))))
        allowed = None
        if masks is not None:
            layout = Layout.of_rectangles(n_rows, n_columns + 1)
            allowed = np.ones(layout.n_numbers, dtype=bool)
            allowed[are_pairs(layout)] = np.concatenate(masks)
        return self.loss(MatchingOutputs(
            np.where(columns < 0, np.repeat(n_columns, n_rows), columns), n_rows, n_columns, cost,
            self.cost_scale, allowed, self.unmatched is None, row_weight))

    def _features(self, pairs, blocks, outputs, alpha):
        """Feature map over the blocks; for kernels also the rows that it has, and parameters."""
        values, layout, points, parameters = pairs.values, outputs.layout, None, None
        counts = pairs.lengths[blocks.examples]
        of_pairs = None if type(outputs) is PermutationOutputs else are_pairs(layout)
        if self.kernel == "linear":
            with np.errstate(over="ignore"):
                norms = np.einsum("ij,ij->i", values, values)
            check_norms(norms, alpha, lambda large: f"row {large[0]} of all pairs")
            starts = pairs.offsets[blocks.examples]
            if of_pairs is not None:
                values = self._with_unmatched(pairs[blocks.examples].values, of_pairs)
                starts = np.cumsum(layout.sizes()) - layout.sizes()
            features = PairFeatures(values, starts, layout)
            self._penalise(features, pairs.values.shape[1])
        else:
            points = pairs[blocks.examples].values
            gram, parameters = self._gram(points, blocks, counts, layout.n_numbers)
            checked_diagonal(self.kernel, np.diagonal(gram), alpha)
            if of_pairs is not None:
                gram = self._gram_with_unmatched(gram, of_pairs)
            features = PairKernelFeatures(gram, layout)
        if of_pairs is not None and not self.learns_unmatched:
            base = np.where(of_pairs, 0.0, self.score_unmatched())
            if base.any():
                features.set_base(base, layout)
        return features, points, parameters

    def _with_unmatched(self, values, of_pairs):
        """Features of all scores: of pairs, and of unmatched rows, which are zero.

        If their weight is learnt there is a further one, which tells the latter from the former.
        """
        n_features = values.shape[1]
        rows = np.zeros((of_pairs.size, n_features + self.learns_unmatched))
        rows[of_pairs, :n_features] = values
        rows[~of_pairs, n_features:] = 1.0
        return rows

    def _gram_with_unmatched(self, gram, of_pairs):
        """The kernel of all scores: zero between pairs and unmatched rows, as `_with_unmatched`."""
        whole = np.zeros((of_pairs.size, of_pairs.size))
        whole[np.ix_(of_pairs, of_pairs)] = gram
        if self.learns_unmatched:
            whole[np.ix_(~of_pairs, ~of_pairs)] = 1.0
        return whole

    def _penalise(self, features, n_features):
        learns = self.learns_unmatched
        resolved = self.penalty_of({
            "coef": (n_features,),
            "unmatched_coef": (1,) if learns else MISSING.format("unmatched")})
        if resolved is not None:
            features.set_penalty(resolved.of_rows(
                (1, n_features + learns), 0, lambda packed: {
                    "coef": packed[0, :n_features], "unmatched_coef": packed[0, n_features:]}))

    def _gram(self, points, blocks, counts, n_numbers):
        """Kernel values between the pairs of all blocks, and the kernel's parameters."""
        needed = 8.0 * n_numbers**2 / 2.0**20
        most = as_solver(self.solver).kernel_cache_size
        if needed > most:
            raise ValueError(
                f"kernel={self.kernel!r} needs {needed:.3g} MiB for "
                f"{len(points)} pairs, and kernel_cache_size is {most:g}; raise it, or use "
                "kernel='linear' on features of sklearn.kernel_approximation.Nystroem."
            )
        parameters = kernel_parameters(
            self.kernel, points, np.repeat(blocks.weights / counts, counts), gamma=self.gamma,
            kernel_params=self.kernel_params,
        )
        return gram_matrix(self.kernel, parameters, points), parameters


def may_stay(unmatched, n_rows, n_columns):
    """Whether a row of examples of these shapes may be unmatched."""
    return np.logical_or(unmatched is not None, np.greater(n_rows, n_columns))


def are_pairs(layout):
    """Which numbers are of pairs. The last one of each row is of its being unmatched."""
    found = np.ones(layout.n_numbers, dtype=bool)
    found[np.cumsum(np.repeat(layout.rows(), layout.counts())) - 1] = False
    return found


def _matching(rng, n, m, is_complete):
    """The columns of a random matching."""
    columns = np.append(rng.permutation(m), np.full(max(0, n - m), -1))[:n]
    if n > m:
        rng.shuffle(columns)
    return columns if is_complete else np.where(rng.random(n) < 0.7, columns, -1)


def as_pairs(X, may_be_empty=False):
    """The `Pairs` of X, in float64. `may_be_empty`: examples may have no rows or no columns."""
    if isinstance(X, np.ndarray) and X.dtype != object:
        parts = [X]
        if X.ndim != 4:
            raise ValueError(
                "X must have shape (n_examples, n, m, n_features), or be a list of arrays of "
                f"shape (n_i, m_i, n_features); got shape {X.shape}."
            )
        if X.shape[0] == 0:
            raise ValueError("X has no examples.")
        shapes = [X.shape[1:]] * X.shape[0]
    else:
        if isinstance(X, (str, bytes, dict)) or not hasattr(X, "__len__") or sparse.issparse(X):
            raise ValueError("X must be an array, or a list with an array for each example.")
        if len(X) == 0:
            raise ValueError("X has no examples.")
        parts = []
        for b, part in enumerate(X):
            try:
                parts.append(np.asarray(part))
            except ValueError as error:
                raise ValueError(f"X[{b}] is not an array: {error}") from error
        shapes = [part.shape for part in parts]
    for b, shape in enumerate(shapes):
        if len(shape) != 3:
            raise ValueError(
                f"X[{b}] has shape {shape}; it must be (n, m, n_features), for n rows and m "
                "columns."
            )
        if shape[2] == 0 or (0 in shape and not may_be_empty):
            raise ValueError(
                f"X[{b}] has shape {shape}: it has no pairs or no features. Leave it out"
                + ("." if may_be_empty else ", or let rows be unmatched, with unmatched='learn' or "
                   "a number, if it has no rows or no columns."))
        if shape[2] != shapes[0][2]:
            raise ValueError(f"X[{b}] has {shape[2]} features, but X[0] has {shapes[0][2]}.")
    for b, part in enumerate(parts):
        if part.dtype.kind not in "biuf":
            raise ValueError(f"X must hold real numbers, got {part.dtype} in X[{b}].")
    n_rows, n_columns = np.array([shape[:2] for shape in shapes], dtype=np.intp).T.copy()
    flat = [part.reshape(-1, shapes[0][2]) for part in parts]
    values = flat[0] if len(flat) == 1 else np.concatenate(flat)
    pairs = Pairs(np.ascontiguousarray(values, dtype=np.float64), n_rows, n_columns)
    found = not_finite(pairs.values)
    if found is not None:
        row, feature, value = found
        b = int(np.searchsorted(pairs.starts, row, side="right")) - 1
        i, j = divmod(int(row - pairs.starts[b]), int(n_columns[b]))
        raise ValueError(
            f"X[{b}] has {value} at pair ({i}, {j}), feature {feature}: features "
            "must be finite."
        )
    return pairs


def as_allowed(allowed, pairs):
    """Which of all pairs may be matched, flat. None if none is forbidden."""
    if allowed is None:
        return None
    n = pairs.n_rows.size
    if isinstance(allowed, (str, bytes, dict)) or not hasattr(allowed, "__len__") or (
            len(allowed) != n):
        raise ValueError(
            f"allowed must be a list of {n} boolean arrays, one for each example of X.")
    masks = []
    for b, given in enumerate(allowed):
        shape = int(pairs.n_rows[b]), int(pairs.n_columns[b])
        try:
            mask = np.asarray(given, dtype=None if np.size(given) else bool)
        except ValueError as error:
            raise ValueError(f"allowed[{b}] is not an array: {error}") from error
        if mask.dtype != bool or mask.shape != shape:
            raise ValueError(
                f"allowed[{b}] must be boolean and of shape {shape}, as X[{b}] has {shape[0]} rows "
                f"and {shape[1]} columns; got shape {mask.shape} and dtype {mask.dtype}.")
        masks.append(mask.ravel())
    flat = np.concatenate(masks)
    return None if flat.all() else flat


def as_matchings(y, n_rows, n_columns, unmatched=None, allowed=None):
    """The column of each row, -1 of unmatched rows, as an intp array for each example.

    Parameters
    ----------
    y : list of array-like
        Unmatched rows are -1, None or NaN.
    n_rows, n_columns : ndarray of int of shape (n_examples,)
    unmatched : None, "learn" or float, default=None
        None refuses an unmatched row if there is a free column.
    allowed : ndarray of bool of shape (n_pairs,), default=None
        False of forbidden pairs, in which no row may be matched.
    """
    if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
        raise ValueError("y must be a list with the columns of the rows of each example.")
    y = as_rows(y)
    if len(y) != n_rows.size:
        raise ValueError(f"y has {len(y)} matchings, but X has {n_rows.size} examples.")
    starts, places = np.cumsum(n_rows * n_columns) - n_rows * n_columns, []
    for b, given in enumerate(y):
        n, m = int(n_rows[b]), int(n_columns[b])
        columns = as_columns(given, f"y[{b}]", n, m, f"X[{b}]")
        rows = np.flatnonzero(columns >= 0)
        if unmatched is None and rows.size < min(n, m):
            raise ValueError(
                f"y[{b}] leaves row {np.argmin(columns >= 0)} unmatched while column "
                f"{np.setdiff1d(np.arange(m), columns)[0]} is free. Match them, or set unmatched "
                "to 'learn' or a number.")
        if allowed is not None:
            wrong = rows[~allowed[starts[b] + rows * m + columns[rows]]]
            if wrong.size:
                raise ValueError(
                    f"y[{b}] matches row {wrong[0]} with column {columns[wrong[0]]}, which "
                    f"allowed[{b}] forbids. Allow the pair, or correct y[{b}].")
        places.append(columns)
    return places
