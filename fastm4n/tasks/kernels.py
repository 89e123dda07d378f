"""Kernels of the tabular estimators: their parameters, values, and Gram matrices."""

from contextlib import contextmanager
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import KERNEL_PARAMS, PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from fastm4n.base.checks import check_number, is_number
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.features._base import NotPositiveSemidefinite
from fastm4n.features._kernel import KernelFeatures, gaussian

KERNELS = (*sorted(PAIRWISE_KERNEL_FUNCTIONS), "precomputed")

# rows from which on working sets pay (benchmarks/constants.py)
MANY_ROWS = 1000
# least relative gap for rows in single precision, and their largest value, by rounding
LEAST_TOL, LARGEST = 1e-5, 1e30

# features up to which Gaussian kernels are computed sooner than read from memory
# (benchmarks/constants.py)
FEW_FEATURES = 64

# rows by which the variance of a kernel's features is estimated, to 2 % (tests/test_auto_alpha.py)
ROWS_OF_VARIANCE = 500
# least share of it in the mean square, by rounding
ROUNDING = 1e-12

# kernel values computed at once: 16 MiB, a limit of memory (benchmarks/constants.py)
CHUNK = 1 << 21

# rows and columns of a square of float64 that stays in cache together with its mirror image
# (benchmarks/constants.py)
TILE = 128


def check_kernel(estimator):
    """Refuse parameters of an estimator that say nothing of a kernel."""
    kernel, gamma, kernel_params = estimator.kernel, estimator.gamma, estimator.kernel_params
    if kernel_params is not None and not isinstance(kernel_params, dict):
        raise ValueError(f"kernel_params must be a dict or None, got {kernel_params!r}.")
    for name, low in (("degree", 0), ("coef0", -np.inf)):
        if not callable(kernel) and kernel_params and name in kernel_params:
            check_number(f"kernel_params[{name!r}]", kernel_params[name], low=low, strict=False)
    if not callable(kernel) and not (isinstance(kernel, str) and kernel in KERNELS):
        raise ValueError(f"kernel must be a callable or one of {KERNELS}, got {kernel!r}.")
    named = gamma is None or (isinstance(gamma, str) and gamma in ("scale", "auto"))
    if not named and not is_number(gamma, low=0, strict=False):
        raise ValueError(f"gamma must be 'scale', 'auto', None or a number >= 0, got {gamma!r}.")


@contextmanager
def named_kernel(kernel):
    """Name the kernel where the solver finds that it is not positive semidefinite."""
    try:
        yield
    except NotPositiveSemidefinite as error:
        raise ValueError(f"kernel={kernel!r} is not positive semidefinite: {error}.") from error


def kernel_parameters(kernel, X, p, *, gamma, kernel_params):
    """Arguments for `kernel_values`, gamma="scale" and "auto" made numbers.

    "scale" is 1 / (n_features * variance of X). The variance uses the weights p of the rows.
    """
    parameters = {}
    if not callable(kernel):
        if gamma == "auto":
            gamma = 1.0 / X.shape[1]
        elif gamma == "scale":
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                gamma = float(1.0 / np.float64(X.shape[1] * _variance(X, p)))
            if not 0.0 < gamma < np.inf:  # of features that are constant, or out of range
                gamma = 1.0
        if "gamma" in KERNEL_PARAMS.get(kernel, ()):
            parameters["gamma"] = gamma
    return {**parameters, **(kernel_params or {})}


def _variance(X, p):
    """Variance of all entries of X with rows weighted by p, or 0 within rounding."""
    X, d = as_double(X), X.shape[1]

    def mean_of(entries):
        return np.sum(p * np.asarray(entries.sum(axis=1)).ravel()) / d

    mean = mean_of(X)
    # of differences: where the mean is far from zero, those of squares are rounding alone
    if sparse.issparse(X):
        squares = X.copy()
        squares.data = np.square(X.data - mean)
        variance = mean_of(squares) + np.sum(p * (d - np.diff(X.indptr))) / d * mean**2
    else:
        variance = mean_of(np.square(X - mean))
    return variance if variance > (16.0 * np.finfo(np.float64).eps * mean) ** 2 else 0.0


def kernel_values(kernel, parameters, A, B, out=None):
    """Kernel values between the rows of A and of B: finite, or an error; float64 without out.

    Distances and products are computed in float64 whatever the type of A, B and out: in float32
    the matrix would be one of another problem, and not be positive semidefinite.
    """
    A, B = as_double(A), as_double(B)
    if is_gaussian(kernel, parameters, A, B):
        K = gaussian(A, B, float(parameters["gamma"]), out)
        if max(_largest(A), _largest(B)) < 1e100:
            return K  # between zero and one
    else:
        K = _pairwise(kernel, parameters, A, B)
        if out is not None:
            with np.errstate(over="ignore"):
                out[...] = K
            K = out
    # one sum is cheaper than n^2 tests; it may overflow, so it only clears
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(K.sum()) and not np.isfinite(K).all():
            raise ValueError(
                f"kernel={kernel!r} gave values that are not finite; scale the features of X "
                "or change the kernel's parameters."
            )
    return K


def _largest(array):
    return max(array.max(initial=0.0), -array.min(initial=0.0))


def is_gaussian(kernel, parameters, *arrays):
    """Whether `gaussian` computes the kernel values between these rows."""
    return (
        kernel == "rbf" and is_number(parameters.get("gamma"), low=0, strict=False)
        and not any(sparse.issparse(array) for array in arrays))


def _pairwise(kernel, parameters, A, B):
    """Kernel values by scikit-learn, float64 and C-ordered."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            K = pairwise_kernels(A, B, metric=kernel, **parameters)
    except (TypeError, ValueError) as error:
        if sparse.issparse(A):
            raise TypeError(
                f"kernel={kernel!r} failed on sparse X, it may need dense input: "
                f"use X.toarray(). ({error})"
            ) from error
        raise
    return np.ascontiguousarray(K, dtype=np.float64)


def kernel_variance(kernel, parameters, X, p):
    """The total variance, in the feature space of the kernel, of rows with weights p.

    At most `ROWS_OF_VARIANCE` rows stand for all, at equal distances in their order. X is the Gram
    matrix for kernel="precomputed".
    """
    n = X.shape[0]
    rows = np.arange(0, n, -(-n // ROWS_OF_VARIANCE))
    q = p[rows] / p[rows].sum()
    if kernel == "precomputed":
        K = as_double(X[np.ix_(rows, rows)])
    else:
        K = kernel_values(kernel, parameters, X[rows], X[rows])
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(q @ np.diagonal(K))
        variance = size - float(q @ K @ q)
    # of differences that are rounding there is none
    return variance if variance > ROUNDING * size else 0.0


def add_expansion(estimator, X, points, beta, scores):
    """scores += K(X, points) @ beta under a fitted estimator's kernel, a chunk of X at a time."""
    step = max(1, CHUNK // max(1, len(beta)))
    for start in range(0, X.shape[0] if len(beta) else 0, step):
        chunk = slice(start, start + step)
        scores[chunk] += kernel_values(
            estimator.kernel, estimator._kernel_parameters, X[chunk], points) @ beta
    return scores


def as_double(X):
    """X in float64, itself where it is already."""
    return X if X.dtype == np.float64 else X.astype(np.float64)


def gram_matrix(kernel, parameters, X):
    """Kernel values between all rows of X, symmetric to the bit."""
    n = X.shape[0]
    refuse_beyond_memory(
        f"the values of kernel={kernel!r} between {n} examples", 8 * n * n,
        "set kernel_cache_size of the solver, in MiB, below that, or fit fewer examples")
    gram = np.empty((n, n))
    step = max(1, CHUNK // n)
    for start in range(0, n, step):
        block = kernel_values(kernel, parameters, X[start : start + step], X[start:])
        gram[start : start + step, start:] = block
        gram[start:, start : start + step] = block.T
    return gram


def kernel_features(kernel, parameters, X, n_labels, intercept, alpha, cache_size, tol):
    """Kernel map over the rows of X, or over the Gram matrix X of kernel="precomputed".

    The Gram matrix of few rows is in memory if cache_size, in MiB, allows it. Otherwise rows are
    computed when needed, and a cache holds as many as fit, in single precision unless `tol` is
    small.
    """
    n = X.shape[0]
    X = as_double(X)
    if kernel == "precomputed":
        gram = checked_gram(X)
        diagonal = checked_diagonal(kernel, np.diagonal(gram), alpha)
        return KernelFeatures(diagonal, n_labels, intercept, gram=gram)
    in_float = n >= MANY_ROWS and tol >= LEAST_TOL
    budget = cache_size * 2.0**20
    if not in_float and 8.0 * n * n <= budget:
        gram = gram_matrix(kernel, parameters, X)
        diagonal = checked_diagonal(kernel, np.diagonal(gram), alpha)
        return KernelFeatures(diagonal, n_labels, intercept, gram=gram)
    diagonal = np.empty(n)
    for start in range(0, n, 64):
        chunk = X[start : start + 64]
        diagonal[start : start + 64] = np.diagonal(kernel_values(kernel, parameters, chunk, chunk))
    diagonal = checked_diagonal(kernel, diagonal, alpha)
    in_float = in_float and diagonal.max() < LARGEST
    return KernelFeatures(
        diagonal, n_labels, intercept, compute_rows=partial(_rows, kernel, parameters, X),
        n_cached=int(budget / ((4.0 if in_float else 8.0) * n)), in_float=in_float,
        is_cheap=is_gaussian(kernel, parameters, X) and X.shape[1] <= FEW_FEATURES)


def _rows(kernel, parameters, X, rows, out, columns=slice(None)):
    return kernel_values(kernel, parameters, X[rows], X[columns], out)


def checked_diagonal(kernel, diagonal, alpha):
    """A copy of the squared norms K[b, b]: not negative, and finite over alpha."""
    with np.errstate(over="ignore"):
        wrong = np.flatnonzero((diagonal < 0) | ~np.isfinite(diagonal / alpha))
    if wrong.size:
        row = int(wrong[0])
        value = f"K[{row}, {row}] = {diagonal[row]:g}"
        if diagonal[row] < 0:
            what = f"is not positive semidefinite: {value} is a negative squared norm"
        else:
            what = f"is too large: {value} divided by alpha={alpha:g} overflows; scale X"
        raise ValueError(f"kernel={kernel!r} {what}.")
    return np.array(diagonal)


def checked_gram(K):
    """K as C-ordered float64, square and symmetric."""
    K = np.ascontiguousarray(K, dtype=np.float64)
    largest = 1e-6 * max(K.max(), -K.min())
    # tiles: columns of a whole matrix would be read from memory, one cache line for each number
    starts = range(0, K.shape[0], TILE)
    for rows in (slice(start, start + TILE) for start in starts):
        for columns in (slice(start, start + TILE) for start in starts[rows.start // TILE :]):
            skew = K[rows, columns] - K[columns, rows].T
            if max(skew.max(), -skew.min()) > largest:
                i, j = np.argwhere(np.abs(skew) > largest)[0] + (rows.start, columns.start)
                raise ValueError(
                    f"kernel='precomputed': X is not symmetric, X[{i}, {j}] = {K[i, j]:g} but "
                    f"X[{j}, {i}] = {K[j, i]:g}."
                )
    return K
