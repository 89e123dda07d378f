"""Tasks of one vector x an example: linear weights or a kernel."""

from functools import cached_property, partial
from types import SimpleNamespace

import numpy as np
from scipy import sparse
from sklearn.utils.validation import _check_sample_weight, validate_data

from fastm4n.base.label_costs import as_costs
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.data._sequences import check_compressed
from fastm4n.data.disk._rows import Rows
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._rows import Moments
from fastm4n.solvers.choice import as_solver
from fastm4n.tasks.base import (
    MISSING,
    Blocks,
    Census,
    Decoder,
    Problem,
    Task,
    parameters_of,
    quarters,
    rows_in_common,
)
from fastm4n.tasks.kernels import (
    add_expansion,
    kernel_features,
    kernel_parameters,
    kernel_variance,
    named_kernel,
)
from fastm4n.tasks.merge import merge_examples
from fastm4n.tasks.parameters import (
    canonical,
    check_listed,
    check_norms,
    check_weights,
    frozen_copy,
    is_frozen,
    placed,
)

# examples for each that has coefficients, from which on columns of a kernel are worth copying
MANY_ZEROS = 8


def validated(estimator, X, *y, reset=True):
    """X, canonical, and y if given, as `validate_data` makes them for the kernel.

    With `reset` the number of features and their names become attributes of the estimator.
    """
    X = X.values if isinstance(X, Rows) else X
    check_compressed("X", X)
    if y:
        check_listed(*y)
    kernel = estimator.kernel
    try:
        found = validate_data(
            estimator, X, *y, accept_sparse="csr" if kernel != "precomputed" else False,
            dtype=[np.float64, np.float32], order="C", reset=reset,
        )
    except ValueError as error:
        raise placed(error, estimator, X, *y) from None
    # kernels of scikit-learn take entries in parts for entries of their own
    rows = canonical(found[0] if y else found, long_indices=kernel == "linear")
    return (rows, *found[1:]) if y else rows


class VectorDecoder(Decoder):
    """A fitted estimator at vectors.

    Attributes
    ----------
    scores : ndarray of shape (n_samples, n_scores)
    """

    def __init__(self, task, X):
        super().__init__(task)
        self.scores = self._scores(X)

    def _scores(self, X):
        fitted, kernel = self.fitted, self.task.kernel
        X = validated(fitted, X, reset=False)
        intercept = np.ravel(fitted.intercept_)
        refuse_beyond_memory(
            f"the scores of {X.shape[0]} samples, {intercept.size} each,",
            8 * X.shape[0] * intercept.size, "predict fewer samples at a time")
        if hasattr(fitted, "coef_"):
            scores = X @ fitted.coef_.reshape(-1, X.shape[1]).T
            return np.asarray(scores, dtype=np.float64) + intercept
        beta = fitted.dual_coef_.reshape(len(fitted.dual_coef_), -1)
        support = np.flatnonzero(beta.any(axis=1))
        if kernel == "precomputed":
            # a copy of columns takes longer than products with zeros, unless nearly all are zero
            is_sparse = MANY_ZEROS * support.size < beta.shape[0]
            return (X[:, support] @ beta[support] if is_sparse else X @ beta) + intercept
        beta = beta[support]
        scores = np.tile(intercept, (X.shape[0], 1))
        return add_expansion(fitted, X, fitted.X_fit_[support], beta, scores)

    def decision(self):
        return self.scores


class VectorTask(Task):
    """Base of the tasks whose outputs have a fixed number of scores, linear in Phi(x).

    Attributes
    ----------
    constant_apart : bool
        Whether the intercepts are the weights of another map than those of x.
    """

    constant_apart = False

    @cached_property
    def bare(self):
        """An estimator that is not fitted, for what validation notes."""
        bare = type(self.estimator).__new__(type(self.estimator))
        vars(bare).update(parameters_of(self.estimator))
        return bare

    def noted(self):
        """Fitted attributes from the validation of X."""
        names = "n_features_in_", "feature_names_in_"
        return {name: vars(self.bare)[name] for name in names if name in vars(self.bare)}

    def shared(self, X):
        """X, validated for several fits at a time, and fitted attributes."""
        X = validated(self.bare, X)
        if self.kernel not in ("linear", "precomputed"):
            X = frozen_copy(X)  # the one that the fitted estimators keep
        return X, self.noted()

    def naming(self, problem):
        return named_kernel(self.kernel)

    def piece(self, pieces):
        X, outputs = self._read(pieces.X, pieces.y)
        if self.kernel == "precomputed" and X.shape[0] != X.shape[1]:
            raise ValueError(
                f"kernel='precomputed' needs a square X, one row and column per sample, got "
                f"shape {X.shape}."
            )
        weights = np.ones(X.shape[0])
        if pieces.sample_weight is not None:
            weights = check_weights(
                _check_sample_weight(pieces.sample_weight, X, dtype=np.float64))
        kept = np.flatnonzero(weights)
        return SimpleNamespace(
            X=X, kept=kept, weights=weights[kept], weights_of_all=weights, **outputs)

    @staticmethod
    def _leave_out(found, is_told):
        """Leave out samples of a piece that say nothing."""
        found.weights_of_all = np.where(is_told, found.weights_of_all, 0.0)
        found.kept = np.flatnonzero(found.weights_of_all)
        found.weights = found.weights_of_all[found.kept]

    def _read(self, X, y):
        """X, canonical, and what `_outputs_of` has of y."""
        if y is None:
            raise ValueError(
                f"{self.taker} requires y to be passed, but the target y is None.")
        X = validated(self.bare, X)
        return X, self._outputs_of(y, X)

    def as_examples(self, X, y):
        """X and y as calls of `partial_fit` put them together."""
        X, y = (
            given.tocsr() if sparse.issparse(given) else np.asarray(given) for given in (X, y))
        return X, y

    def census(self, piece):
        same = rows_in_common(piece.X)
        same["feature names"] = getattr(self.bare, "feature_names_in_", None)
        return Census(piece.kept.size, None, same, {"weight": piece.weights.sum()})

    def _example_rows(self, rng, n, csr):
        """Two features of n examples, or their Gram matrix."""
        X = quarters(rng, n, 2)
        if csr:
            return sparse.csr_array(X)
        return X @ X.T + np.eye(n) if self.kernel == "precomputed" else X

    def fitted(self, problem, alpha, mu, intercepts=None, is_last=False):
        if intercepts is None:
            intercepts = problem.features.constant_scores()
        if self.kernel == "linear":
            coef = problem.features.coef()
            if problem.centre is not None:
                intercepts = intercepts - coef @ problem.centre
            if problem.prior is not None:
                before = problem.prior.weights
                coef = coef + before["coef_"].reshape(coef.shape)
                intercepts = intercepts + before["intercept_"].ravel()
            return {"intercept_": intercepts, "coef_": coef}
        blocks = problem.blocks
        beta = self._scored(problem, problem.loss.outputs.truth() - mu)
        beta = beta * (blocks.weights / alpha)[:, np.newaxis]
        return {"intercept_": intercepts, "dual_coef_": blocks.spread(beta)}

    def put_weights(self, problem, rows, weights):
        packed, d = rows["weights"], problem.common["n_features_in_"]
        coef = weights["coef_"].reshape(-1, d)
        packed[:d, : len(coef)] = coef.T
        if self.fit_intercept:
            packed[d, : len(coef)] = weights["intercept_"].ravel() / self._constant()

    def _scored(self, problem, numbers):
        """The numbers whose scores depend on x, a row for each block."""
        return numbers.reshape(problem.weights.size, -1)

    def _has_free_intercept(self):
        """Whether the intercept is not penalised."""
        return isinstance(self.fit_intercept, str)

    def _constant(self):
        """Value of the constant feature, whose weight is the intercept. 0 without one."""
        return 1.0 if self._has_free_intercept() else float(self.fit_intercept)

    def _penalise(self, features):
        """Give a linear map the penalty of its weights."""
        R, d = features.n_labels, features.n_features
        self._penalise_rows(features, self.penalty_of({
            "coef": (R, d), "intercept": self._intercept_shape(R)}))

    def _intercept_shape(self, R):
        """Shape of intercept_, or why the penalty leaves it out."""
        if self._has_free_intercept():
            return "which fit_intercept='free' leaves out of the penalty"
        return (R,) if self.fit_intercept else MISSING.format("fit_intercept")

    def _penalise_rows(self, rows, resolved):
        """Give the rows of weights of a linear map their penalty."""
        R, d = rows.n_labels, rows.n_features
        if resolved is not None:
            rows.set_penalty(resolved.of_rows(
                (d + 1, rows.stride), d,
                lambda packed: {"coef": packed[:d, :R].T, "intercept": packed[d, :R]}))

    def _n_scores(self, layout, common):
        """Scores of a block that depend on x. `common` as in `Problem`."""
        return layout.max_size

    def _arranged(self, features, layout, common, constant):
        """The map of all scores of the layout, made of a map of the scores that depend on x."""
        return features

    def _features(self, X, samples, p, n_labels, alpha_of):
        """Feature map over X[samples], the kernel's arguments, the constant feature's value, alpha.

        alpha_of(variance) is alpha, by a function that computes the variance of the features.
        """
        intercept = self._constant()
        if self.kernel == "linear":
            norms = row_norms(X, 0.0)[samples]
        elif self.kernel == "precomputed":
            norms = np.diagonal(X)[samples]
        else:
            norms = np.ones(samples.size)  # most kernels are normed
        if self._has_free_intercept():
            # proximal steps as long as the features are, and not short beside alpha
            least = 0.0 if isinstance(self.alpha, str) else self.alpha
            with np.errstate(over="ignore", invalid="ignore"):
                intercept *= np.sqrt(np.maximum(least, np.sum(p * norms))) or 1.0
        of_map = 0.0 if self.constant_apart else intercept
        if self.kernel == "linear":
            alpha = alpha_of(lambda: Moments.of(X, samples, p).variance)
            self._check_intercept(alpha)
            norms = norms + of_map**2
            check_norms(norms, alpha, lambda large: f"row {samples[large].min()}")
            return LinearFeatures(X, samples, norms, n_labels, of_map), {}, intercept, alpha
        if self.kernel == "precomputed":
            whole = np.array_equal(samples, np.arange(X.shape[0]))
            points, parameters = X if whole else X[np.ix_(samples, samples)], {}
        else:
            points = X[samples]
            parameters = kernel_parameters(
                self.kernel, points, p, gamma=self.gamma,
                kernel_params=self.kernel_params,
            )
        alpha = alpha_of(lambda: kernel_variance(self.kernel, parameters, points, p))
        self._check_intercept(alpha)
        features = kernel_features(
            self.kernel, parameters, points, n_labels, of_map, alpha,
            as_solver(self.solver).kernel_cache_size,
            self.estimator.tol_)
        return features, parameters, intercept, alpha

    def _check_intercept(self, alpha):
        """Refuse a constant feature whose weight would overflow."""
        value = self._constant()
        # in float arithmetic, which overflows to inf where ** raises
        if value * value / alpha == np.inf:
            raise ValueError(
                f"fit_intercept={value:g} is too large: its square divided by alpha={alpha:g} "
                "overflows.")

    def _blocks(self, X, kept, keys, weights):
        """Blocks of the samples kept. Samples of equal X and key are merged.

        With a Gram matrix none are merged.
        """
        if self.kernel == "precomputed":
            every = np.arange(kept.size)
            merged = every, weights, every
        else:
            merged = merge_examples(X, keys, weights, None if kept.size == X.shape[0] else kept)
        return Blocks.of(X.shape[0], kept, weights, *merged)

    def _made(self, X, blocks, loss, common, task, census):
        """The problem of examples in memory.

        Parameters
        ----------
        X : canonical features of all samples, or their Gram matrix
        blocks : Blocks
        loss : Surrogate
            Over the outputs of the blocks.
        common, task : dict
            As in `Problem`, of the outputs.
        census : Census or None
            Of all data.
        """
        common = {**self.noted(), **common}
        samples, p = blocks.examples, blocks.weights
        centre = None
        if self._has_free_intercept() and self.kernel == "linear" and not sparse.issparse(X):
            # a free intercept takes up any shift of the features, and the solver has an
            # easier time without one
            centre = np.sum(p[:, np.newaxis] * X[samples], axis=0)
        features, parameters, intercept, alpha = self._features(
            X if centre is None else X - centre, samples, p,
            self._n_scores(loss.outputs.layout, common),
            partial(self._alpha, blocks, census, as_costs(common["_cost_held"])))
        features = self._arranged(features, loss.outputs.layout, common, intercept)
        if self.kernel == "linear":
            self._penalise(features)
        else:
            common = {**common, "_kernel_parameters": parameters}
            if self.kernel != "precomputed":
                # the caller may go on to change what is theirs
                common["X_fit_"] = X if is_frozen(X) else X.copy()
        free = intercept if self._has_free_intercept() else None
        problem = Problem(loss, features, blocks, common, task, free, centre)
        problem.alpha = alpha
        return problem
