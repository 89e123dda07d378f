"""Task of matchings, whose scores come from features of pairs."""

from types import SimpleNamespace

import numpy as np
from scipy import sparse

from fastm4n.base.checks import not_finite
from fastm4n.base.label_costs import as_kept
from fastm4n.data._sequences import Sequences
from fastm4n.features._pairs import PairFeatures, PairKernelFeatures
from fastm4n.solvers.choice import as_solver
from fastm4n.tasks.base import Blocks, Census, Memory, Problem, quarters
from fastm4n.tasks.kernels import (
    add_expansion,
    checked_diagonal,
    gram_matrix,
    kernel_parameters,
    named_kernel,
)
from fastm4n.tasks.merge import merge_sequences
from fastm4n.tasks.parameters import (
    as_weights,
    check_norms,
    cost_factors,
    cost_matrix,
    summable,
)
from fastm4n.tasks.permutations import PermutationDecoder, PermutationTask


class MatchingDecoder(PermutationDecoder):
    """A fitted matcher at new examples."""

    def __init__(self, task, X):
        super().__init__(task)
        self.is_array = isinstance(X, np.ndarray) and X.dtype != object
        fitted, (values, sizes) = self.fitted, as_pairs(X)
        task.check_n_features(values)
        if hasattr(fitted, "coef_"):
            scores = values @ fitted.coef_
        else:
            support = np.flatnonzero(fitted.dual_coef_)
            scores = add_expansion(
                fitted, values, fitted.X_fit_[support], fitted.dual_coef_[support],
                np.zeros(values.shape[0]))
        self.sizes, parts = sizes, np.split(scores, np.cumsum(sizes**2)[:-1])
        self.scores = [
            part.reshape(size, size) for part, size in zip(parts, sizes, strict=True)]

    def each(self, function):
        results = [None] * len(self.scores)
        for size in np.unique(self.sizes):
            chosen = np.flatnonzero(self.sizes == size)
            batch = np.stack([self.scores[b] for b in chosen])
            for b, result in zip(chosen, function(batch), strict=True):
                results[b] = result
        return self._shaped(results)

    def _shaped(self, parts):
        """One array if X is one, or the list."""
        return np.stack(parts) if self.is_array else parts

    def decision(self):
        return self._shaped(self.scores)

    def named(self, codes):
        return codes


class MatchingTask(PermutationTask):
    """Permutations whose scores come from features of pairs."""

    auto_alpha = 10.0
    noun = "example"
    # a matching has no labels to check
    takes_more_labels = goes_on = True
    own_weights = ("coef_",)
    of_examples = ("sizes",)

    def decoder(self, X):
        return MatchingDecoder(self, X)

    def naming(self, problem):
        return named_kernel(self.kernel)

    def example(self, rng, sizes_differ=False):
        sizes = (3, 2, 1, 3) if sizes_differ else (3, 3, 3)
        X = [quarters(rng, size, size, 2) for size in sizes]
        y = [rng.permutation(size) for size in sizes]
        return (X, y) if sizes_differ else (np.array(X), np.array(y))

    def piece(self, pieces):
        values, sizes = as_pairs(pieces.X)
        places = as_matchings(pieces.y, sizes)
        weights = as_weights(pieces.sample_weight, sizes.size, "example")
        kept = np.flatnonzero(weights)
        return SimpleNamespace(
            values=values, sizes=sizes, places=places, weights=weights[kept], kept=kept,
            row_weight=self._row_weight(pieces.part_weight, sizes))

    def _row_weight(self, given, sizes):
        """Factors of the costs of the rows of each example, None for ones."""
        if given is None:
            return None
        if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
            raise ValueError("row_weight must be a list with an array for each example.")
        if hasattr(given, "__array__"):
            given = np.asarray(given)  # data frames are iterated over by their columns
        if len(given) != sizes.size:
            raise ValueError(
                f"row_weight has {len(given)} examples, but X has {sizes.size} examples.")
        factors = [
            cost_factors(f"row_weight[{b}]", part, self.surrogate) for b, part in enumerate(given)]
        for b, (part, size) in enumerate(zip(factors, sizes.tolist(), strict=True)):
            if part.shape != (size,):
                raise ValueError(
                    f"row_weight[{b}] has shape {part.shape}, but X[{b}] has {size} rows: give a "
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
            self.check_n_features(piece.values)
        return as_objects(X), as_objects(y)

    def census(self, piece):
        sizes, same = piece.sizes, {"columns": piece.values.shape[1]}
        if not isinstance(self.cost, str):
            same["sizes"] = np.unique(sizes)
        return Census(
            piece.kept.size, None, same, {"weight": piece.weights.sum()},
            size=int(sizes[piece.kept].max(initial=0)))

    def fitted(self, problem, alpha, mu, intercepts=None, is_last=False):
        if self.kernel == "linear":
            coef, prior = problem.features.coef(), problem.prior
            return {"coef_": coef if prior is None else coef + prior.weights["coef_"]}
        outputs = problem.loss.outputs
        p = np.repeat(problem.weights / alpha, outputs.layout.sizes())
        return {"dual_coef_": p * (outputs.truth() - mu)}

    def put_weights(self, problem, rows, weights):
        rows["weights"][0] = weights["coef_"]

    def in_memory(self, piece, census, one_alpha):
        values, sizes, places, kept = piece.values, piece.sizes, piece.places, piece.kept
        starts = np.concatenate([[0], np.cumsum(sizes**2)])
        # the pairs of an example are a sequence, labelled by the columns of their rows
        pairs = Sequences(values, starts)
        columns = np.concatenate([np.repeat(places[b], sizes[b]) for b in kept])
        row_weight = piece.row_weight
        if row_weight is not None:
            factors = np.concatenate([np.repeat(row_weight[b], sizes[b]) for b in kept])
            columns = np.unique(
                np.column_stack([columns, factors]), axis=0, return_inverse=True)[1].ravel()
        weights = summable(piece.weights)
        blocks = Blocks.of(
            sizes.size, kept, weights, *merge_sequences(pairs, columns, weights, kept))
        if not isinstance(self.cost, str) and (sizes != sizes[0]).any():
            raise ValueError(
                "cost is a matrix, which needs examples of one size, but X has examples of "
                f"{sizes.min()} to {sizes.max()} rows; use a name."
            )
        block_sizes = sizes[blocks.examples]
        cost = cost_matrix(self.cost, int(block_sizes.max()), "columns")
        loss = self._loss_of(
            np.concatenate([places[b] for b in blocks.examples]), block_sizes, cost,
            row_weight and np.concatenate([row_weight[b] for b in blocks.examples]))
        size = self.census_of_all(census, piece).size
        if size > len(cost):
            cost = cost_matrix(self.cost, size, "columns")
        alpha = self._alpha(blocks, census, cost)
        features, points, parameters = self._features(pairs, blocks, loss.outputs.layout, alpha)
        common = {"n_features_in_": values.shape[1], "_cost_held": as_kept(cost)}
        if self.kernel != "linear":
            common.update(X_fit_=points, _kernel_parameters=parameters)

        task = {"surrogate": self.surrogate.name, "cost_scale": self.cost_scale, "sizes": sizes}
        return Problem(loss, features, blocks, common, task)

    def _features(self, pairs, blocks, layout, alpha):
        """Feature map over the blocks; for kernels also the rows that it has, and parameters."""
        values = pairs.values
        if self.kernel == "linear":
            with np.errstate(over="ignore"):
                norms = np.einsum("ij,ij->i", values, values)
            check_norms(norms, alpha, lambda large: f"row {large[0]} of all pairs")
            features = PairFeatures(values, pairs.offsets[blocks.examples], layout)
            resolved = self.penalty_of({"coef": (values.shape[1],)})
            if resolved is not None:
                features.set_penalty(
                    resolved.of_rows((1, values.shape[1]), 0, lambda packed: {"coef": packed[0]}))
            return features, None, None
        points, counts = pairs[blocks.examples].values, layout.sizes()
        needed = 8.0 * len(points)**2 / 2.0**20
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
        gram = gram_matrix(self.kernel, parameters, points)
        checked_diagonal(self.kernel, np.diagonal(gram), alpha)
        return PairKernelFeatures(gram, layout), points, parameters


def as_objects(parts):
    """Arrays of examples in one array, which can be concatenated whatever their sizes."""
    if hasattr(parts, "__array__"):
        parts = np.asarray(parts)  # data frames are iterated over by their columns
    objects = np.empty(len(parts), dtype=object)
    for b, part in enumerate(parts):
        objects[b] = np.asarray(part)
    return objects


def as_pairs(X):
    """Features of all pairs, (n_pairs, n_features) in float64, and the examples' sizes."""
    if isinstance(X, np.ndarray) and X.dtype != object:
        parts = [X]
        if X.ndim != 4:
            raise ValueError(
                "X must have shape (n_examples, M, M, n_features), or be a list of arrays of "
                f"shape (M_i, M_i, n_features); got shape {X.shape}."
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
        if len(shape) != 3 or shape[0] != shape[1]:
            raise ValueError(
                f"X[{b}] has shape {shape}; it must be (M, M, n_features): as many rows as columns."
            )
        if shape[0] == 0 or shape[2] == 0:
            raise ValueError(f"X[{b}] has shape {shape}: it has no pairs or no features.")
        if shape[2] != shapes[0][2]:
            raise ValueError(f"X[{b}] has {shape[2]} features, but X[0] has {shapes[0][2]}.")
    for b, part in enumerate(parts):
        if part.dtype.kind not in "biuf":
            raise ValueError(f"X must hold real numbers, got {part.dtype} in X[{b}].")
    sizes = np.array([shape[0] for shape in shapes], dtype=np.intp)
    flat = [part.reshape(-1, shapes[0][2]) for part in parts]
    values = flat[0] if len(flat) == 1 else np.concatenate(flat)
    values = np.ascontiguousarray(values, dtype=np.float64)
    found = not_finite(values)
    if found is not None:
        row, feature, value = found
        ends = np.cumsum(sizes**2)
        b = int(np.searchsorted(ends, row, side="right"))
        i, j = divmod(int(row - (ends[b] - sizes[b] ** 2)), int(sizes[b]))
        raise ValueError(
            f"X[{b}] has {value} at pair ({i}, {j}), feature {feature}: features "
            "must be finite."
        )
    return values, sizes


def as_matchings(y, sizes):
    """A list of the examples' permutations, as intp arrays."""
    if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
        raise ValueError("y must be a list with a permutation for each example.")
    if hasattr(y, "__array__"):
        y = np.asarray(y)  # data frames are iterated over by their columns
    if len(y) != sizes.size:
        raise ValueError(f"y has {len(y)} matchings, but X has {sizes.size} examples.")
    places = []
    for b, given in enumerate(y):
        try:
            part = np.asarray(given)
        except ValueError as error:
            raise ValueError(f"y[{b}] is not a permutation: {error}") from error
        size = int(sizes[b])
        if part.shape != (size,):
            raise ValueError(
                f"y[{b}] has shape {part.shape}, but X[{b}] has {size} rows: give the column "
                "of each."
            )
        whole = part.dtype.kind in "iu" or (
            part.dtype.kind == "f" and np.isfinite(part).all() and (part == part.round()).all()
        )
        if not whole or part.min() < 0 or part.max() >= size or np.unique(part).size != size:
            raise ValueError(
                f"y[{b}] is {part.tolist()}, which is not a permutation of 0 ... {size - 1}: every "
                "row needs a column of its own."
            )
        places.append(part.astype(np.intp))
    return places
