"""Features of the factors of examples, and the weights of models, in rows that go together.

A labelling y of an example scores sum_f <w, Psi_f(x, y_f)> over the factors f of its graph. Weights
are a matrix of one column for each label: rows of features, of the constants, and of transitions
from each label. Psi_f(x, y_f) is zero but in the columns of the labels that the factor sees.
"""

import numpy as np
from scipy import sparse

# random signs that are drawn at a time, at most
MOST_SIGNS = 2**22

DECOMPOSITIONS = ("parts", "positions")


class FactorFeatures:
    """The factors of labelled chains, single labels being chains of one position.

    Decomposition "parts" has a factor for each position, over its label, and one for each
    transition, over a pair of labels. "positions" has one for each position, over its label and
    the one before. Without transitions both are the same.

    Parameters
    ----------
    values : {ndarray, CSR} of shape (n_tokens, n_features)
    offsets : ndarray of int of shape (n_examples + 1,)
    n_labels : int
    constant : float, default=1.0
        Value of the feature whose weight is the intercept, 0 where there is none.
    ends, transitions : bool, default=False
        Whether being first and last have weights, and pairs of neighbours.
    selected : {ndarray, CSR} of shape (n_tokens, n_selected), default=None
        Features that transitions depend on.
    """

    def __init__(self, values, offsets, n_labels, *, constant=1.0, ends=False, transitions=False,
                 selected=None):
        self.offsets, self.n_labels = np.asarray(offsets), n_labels
        self.constant, self.ends, self.transitions = constant, ends, transitions
        self.n_selected = 0 if selected is None else selected.shape[1]
        self.lengths = np.diff(self.offsets)
        self.n_examples = self.lengths.size
        n_tokens, self.n_features = values.shape
        self.example = np.repeat(np.arange(self.n_examples), self.lengths)
        occupied = self.lengths > 0
        self.is_first, is_last = np.zeros((2, n_tokens), dtype=bool)
        self.is_first[self.offsets[:-1][occupied]] = True
        is_last[self.offsets[1:][occupied] - 1] = True
        self.inner = np.flatnonzero(~self.is_first)  # positions with a transition into them
        # features of labels and of pairs of labels, in the order of the rows of weights
        constants = [np.full(n_tokens, constant)] * bool(constant)
        self.of_labels = with_columns(values, constants + [self.is_first, is_last] * ends)
        if transitions:
            ones = np.ones((n_tokens, 1))
            self.of_pairs = ones if selected is None else (
                sparse.hstack([ones, selected], format="csr") if sparse.issparse(selected)
                else np.hstack([ones, selected]))

    # which labels a row has weights of; all of them
    mask = None

    @property
    def decompositions(self):
        """Names of the decompositions that differ."""
        return DECOMPOSITIONS if self.transitions else DECOMPOSITIONS[:1]

    # ------------------------------------------------------------------------- rows

    def row_families(self, families=None):
        """Family of each row of weights. `families` are those of the features, None for one."""
        names = ["features"] * self.n_features if families is None else list(families)
        names += ["(intercept)"] * bool(self.constant) + ["(start)", "(end)"] * self.ends
        names += ["(transitions)"] * (self.n_labels * self.transitions)
        return names + ["(transition features)"] * (self.n_selected * self.n_labels)

    # ---------------------------------------------------------------------- factors

    def n_factors(self, decomposition):
        """|F_i| of each example."""
        pairs = np.maximum(self.lengths - 1, 0) if self.transitions else 0
        return self.lengths + (pairs if decomposition == "parts" else 0)

    def n_values(self, decomposition):
        """Sum over the factors of an example of |Y_f|, and the largest |Y_f|."""
        R = self.n_labels
        pairs = np.maximum(self.lengths - 1, 0) if self.transitions else 0 * self.lengths
        if decomposition == "parts":
            total = self.lengths * R + pairs * R * R
        else:
            total = (self.lengths - pairs) * R + pairs * R * R
        return total, R * R if np.any(pairs > 0) else R

    def _copies(self, decomposition):
        """How many values of its factor give a position a label."""
        if decomposition == "parts" or not self.transitions:
            return np.ones(self.example.size)
        return np.where(self.is_first, 1.0, float(self.n_labels))

    def row_sums(self, decomposition, count=False):
        """Sum over examples, factors and values of |F_i| Psi^2 for each weight of a row.

        Parameters
        ----------
        decomposition : {"parts", "positions"}
        count : bool, default=False
            Whether features that are not zero count as 1.

        Returns
        -------
        sums : ndarray of shape (n_rows,)
            The weights of a row have the same sum, whatever their label.
        """
        of_token = self.n_factors(decomposition)[self.example].astype(np.float64)
        sums = column_sums(self.of_labels, of_token * self._copies(decomposition), count)
        if not self.transitions:
            return sums
        inner = np.where(self.is_first, 0.0, of_token)
        return np.append(
            sums, np.repeat(column_sums(self.of_pairs, inner, count), self.n_labels))

    def radii(self, decomposition):
        """r_2 and r_infinity: the largest norms of Psi_f(x_i, y) of any factor and value."""
        if not self.example.size:
            return 0.0, 0.0
        squares, top = row_squares(self.of_labels), largest(self.of_labels)
        if self.inner.size and self.transitions:
            pairs = np.where(self.is_first, 0.0, row_squares(self.of_pairs))
            squares = np.maximum(squares, pairs) if decomposition == "parts" else squares + pairs
            top = max(top, largest(self.of_pairs[self.inner]))
        return float(np.sqrt(squares.max())), top

    # ------------------------------------------------------------------------ signs

    def signed_sum(self, decomposition, rng):
        """Z = sum over i, f, y of sqrt|F_i| eps Psi_f(x_i, y), for one draw of the signs eps.

        O(n_tokens n_labels^2) signs, drawn in ranges of sequences, and one product of the features.

        Returns
        -------
        Z : ndarray of shape (n_rows, n_labels)
        """
        R = self.n_labels
        scale = np.sqrt(self.n_factors(decomposition))[self.example]
        emissions = np.empty((self.example.size, R))
        of_pairs = np.zeros((1 + self.n_selected, R * R))
        step = max(1, MOST_SIGNS // (R * R if self.transitions else R))
        for start in range(0, self.example.size, step):
            chunk = slice(start, min(start + step, self.example.size))
            first = self.is_first[chunk]
            if not self.transitions or decomposition == "parts":
                emissions[chunk] = signs(rng, (first.size, R)) * scale[chunk, np.newaxis]
            if not self.transitions:
                continue
            inner = np.flatnonzero(~first)
            pairs = signs(rng, (inner.size, R, R))
            if decomposition == "positions":
                # the signs of all values of a factor that give the position this label
                single = np.empty((first.size, R))
                single[first] = signs(rng, (int(first.sum()), R))
                single[inner] = pairs.sum(axis=1)
                emissions[chunk] = single * scale[chunk, np.newaxis]
            pairs = pairs.reshape(inner.size, R * R) * scale[chunk][inner, np.newaxis]
            of_pairs += self.of_pairs[start + inner].T @ pairs
        return self._rows(self.of_labels.T @ emissions, of_pairs)

    def _rows(self, of_labels, of_pairs):
        """Rows of labels, and of pairs of labels if transitions have weights."""
        if not self.transitions:
            return np.asarray(of_labels)
        return np.concatenate([of_labels, of_pairs.reshape(-1, self.n_labels)])

    # -------------------------------------------------------------------- labellings

    def reach(self):
        """A bound of ||Psi(x_i, y) - Psi(x_i, y')|| over all pairs of labellings of each example.

        For weights of features, sum_t x_t u_t' with u_t a difference of two unit vectors has
        squared norm sum_ts <x_t, x_s> <u_t, u_s> <= 2 || sum_t |x_t| ||^2. Transitions likewise.
        """
        bound = self._reach(self.of_labels, np.arange(self.example.size))
        if self.transitions:
            bound = bound + self._reach(self.of_pairs, self.inner)
        return np.sqrt(bound)

    def _reach(self, values, kept):
        """2 || sum_t |x_t| ||^2 of each example, over the rows kept."""
        to = sparse.csr_array(
            (np.ones(kept.size), (self.example[kept], kept)),
            shape=(self.n_examples, values.shape[0]))
        return 2.0 * row_squares(to @ abs(values))

    def truth_sums(self, codes):
        """Psi of the true labellings, summed over all examples: (n_rows, n_labels)."""
        R, inner = self.n_labels, self.inner
        of_labels = self.of_labels.T @ np.eye(R)[codes]
        if not self.transitions:
            return of_labels
        at = sparse.csr_array(
            (np.ones(inner.size), (inner, codes[inner - 1] * R + codes[inner])),
            shape=(codes.size, R * R))
        of_pairs = self.of_pairs.T @ at
        return self._rows(
            of_labels, of_pairs.toarray() if sparse.issparse(of_pairs) else of_pairs)


def with_columns(values, columns):
    """The matrix with further columns, in float64."""
    if not columns:
        return values
    columns = np.column_stack(columns).astype(np.float64)
    if sparse.issparse(values):
        return sparse.hstack([values, columns], format="csr")
    return np.hstack([values, columns])


def signs(rng, shape):
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


def column_sums(values, weights, count):
    """Sum over rows of weight times value squared, or times 1 where it is not zero."""
    if sparse.issparse(values):
        data = (values.data != 0) if count else values.data.astype(np.float64) ** 2
        each = np.repeat(weights, np.diff(values.indptr)) * data
        return np.bincount(values.indices, weights=each, minlength=values.shape[1])
    return weights @ ((values != 0) if count else np.square(values, dtype=np.float64))


def row_squares(values):
    if sparse.issparse(values):
        return np.asarray(values.multiply(values).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", values, values, dtype=np.float64)


def largest(values):
    data = values.data if sparse.issparse(values) else values
    return float(np.max(np.abs(data), initial=0.0))
