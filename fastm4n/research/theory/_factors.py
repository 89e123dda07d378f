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
        Value of the feature whose weight is the intercept; 0 where there is none.
    ends, transitions : bool, default=False
        Whether being first and last have weights, and pairs of neighbours.
    selected : {ndarray, CSR} of shape (n_tokens, n_selected), default=None
        Features that transitions depend on.
    """

    def __init__(self, values, offsets, n_labels, *, constant=1.0, ends=False, transitions=False,
                 selected=None):
        self.values, self.offsets, self.n_labels = values, np.asarray(offsets), n_labels
        self.constant, self.ends, self.transitions = constant, ends, transitions
        self.selected = selected
        self.lengths = np.diff(self.offsets)
        self.n_examples = self.lengths.size
        self.n_features = values.shape[1]
        self.example = np.repeat(np.arange(self.n_examples), self.lengths)
        occupied = self.lengths > 0
        n_tokens = values.shape[0]
        self.is_first = np.zeros(n_tokens, dtype=bool)
        self.is_first[self.offsets[:-1][occupied]] = True
        self.is_last = np.zeros(n_tokens, dtype=bool)
        self.is_last[self.offsets[1:][occupied] - 1] = True

    # which labels a row has weights of; all of them
    mask = None

    @property
    def decompositions(self):
        """Names of the decompositions that differ."""
        return DECOMPOSITIONS if self.transitions else DECOMPOSITIONS[:1]

    # ------------------------------------------------------------------------- rows

    def row_families(self, families=None):
        """Family of each row of weights; `families` are those of the features, None for one."""
        names = ["features"] * self.n_features if families is None else list(families)
        names += ["(intercept)"] * bool(self.constant) + ["(start)", "(end)"] * self.ends
        names += ["(transitions)"] * (self.n_labels * self.transitions)
        if self.selected is not None:
            names += ["(transition features)"] * (self.selected.shape[1] * self.n_labels)
        return names

    def stacked(self, of_features, intercept, start, end, transitions, of_selected):
        """Rows, from what each kind of them has; those of kinds that there are not are left out."""
        parts = [of_features]
        if self.constant:
            parts.append(np.asarray(intercept)[np.newaxis])
        if self.ends:
            parts += [np.asarray(start)[np.newaxis], np.asarray(end)[np.newaxis]]
        if self.transitions:
            parts.append(transitions)
        if self.selected is not None:
            parts.append(of_selected)
        return np.concatenate(parts)

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
        inner = np.where(self.is_first, 0.0, of_token)  # of the transition into a position
        of_token = of_token * self._copies(decomposition)
        unit = 1.0 if count else self.constant**2
        R = self.n_labels
        return self.stacked(
            _column_sums(self.values, of_token, count), of_token.sum() * unit,
            of_token[self.is_first].sum(), of_token[self.is_last].sum(),
            np.full(R, inner.sum()),
            None if self.selected is None
            else np.repeat(_column_sums(self.selected, inner, count), R),
        )

    def radii(self, decomposition):
        """r_2 and r_infinity: the largest norms of Psi_f(x_i, y) of any factor and value."""
        if not self.example.size:
            return 0.0, 0.0
        squares = _row_squares(self.values) + self.constant**2
        if self.ends:
            squares = squares + self.is_first + self.is_last
        largest = max(_largest(self.values), abs(self.constant), float(self.ends))
        if self.transitions and not self.is_first.all():
            pairs = 1.0 + (0.0 if self.selected is None else _row_squares(self.selected))
            pairs = np.where(self.is_first, 0.0, pairs)
            squares = np.maximum(squares, pairs) if decomposition == "parts" else squares + pairs
            largest = max(largest, 1.0)
            if self.selected is not None:
                largest = max(largest, _largest(self.selected[~self.is_first]))
        return float(np.sqrt(squares.max())), float(largest)

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
        transitions = np.zeros((R, R))
        of_selected = None
        if self.selected is not None:
            of_selected = np.zeros((self.selected.shape[1], R * R))
        step = max(1, MOST_SIGNS // (R * R if self.transitions else R))
        for start in range(0, self.example.size, step):
            chunk = slice(start, min(start + step, self.example.size))
            first = self.is_first[chunk]
            if not self.transitions or decomposition == "parts":
                emissions[chunk] = _signs(rng, (first.size, R)) * scale[chunk, np.newaxis]
            if not self.transitions:
                continue
            inner = np.flatnonzero(~first)
            pairs = _signs(rng, (inner.size, R, R))
            if decomposition == "positions":
                # the signs of all values of a factor that give the position this label
                single = np.empty((first.size, R))
                single[first] = _signs(rng, (int(first.sum()), R))
                single[inner] = pairs.sum(axis=1)
                emissions[chunk] = single * scale[chunk, np.newaxis]
            pairs = pairs.reshape(inner.size, R * R) * scale[chunk][inner, np.newaxis]
            transitions += pairs.sum(axis=0).reshape(R, R)
            if of_selected is not None:
                of_selected += self.selected[start + inner].T @ pairs
        return self.stacked(
            np.asarray(self.values.T @ emissions), self.constant * emissions.sum(axis=0),
            emissions[self.is_first].sum(axis=0), emissions[self.is_last].sum(axis=0), transitions,
            None if of_selected is None else of_selected.reshape(-1, R),
        )

    # -------------------------------------------------------------------- labellings

    def reach(self):
        """A bound of ||Psi(x_i, y) - Psi(x_i, y')|| over all pairs of labellings of each example.

        For weights of features, sum_t x_t u_t' with u_t a difference of two unit vectors has
        squared norm sum_ts <x_t, x_s> <u_t, u_s> <= 2 || sum_t |x_t| ||^2; transitions likewise.
        """
        def squares(values, kept):
            total = _group_sums(values, self.example, kept, self.n_examples)
            return 2.0 * _row_squares(total)

        every = np.ones(self.example.size, dtype=bool)
        bound = squares(self.values, every) + 2.0 * (self.constant * self.lengths) ** 2
        if self.ends:
            bound = bound + 4.0 * (self.lengths > 0)
        if self.transitions:
            bound = bound + 2.0 * np.maximum(self.lengths - 1.0, 0.0) ** 2
        if self.selected is not None:
            bound = bound + squares(self.selected, ~self.is_first)
        return np.sqrt(bound)

    def truth_sums(self, codes):
        """Psi of the true labellings, summed over all examples: (n_rows, n_labels)."""
        R = self.n_labels
        labels = np.zeros((codes.size, R))
        labels[np.arange(codes.size), codes] = 1.0
        inner = np.flatnonzero(~self.is_first)
        pairs = codes[inner - 1] * R + codes[inner]
        of_selected = None
        if self.selected is not None:
            at = sparse.csr_array(
                (np.ones(inner.size), (inner, pairs)), shape=(codes.size, R * R))
            of_selected = self.selected.T @ at
            of_selected = of_selected.toarray() if sparse.issparse(of_selected) else of_selected
            of_selected = of_selected.reshape(-1, R)
        return self.stacked(
            np.asarray(self.values.T @ labels), self.constant * labels.sum(axis=0),
            labels[self.is_first].sum(axis=0), labels[self.is_last].sum(axis=0),
            np.bincount(pairs, minlength=R * R).reshape(R, R).astype(np.float64), of_selected,
        )


def _signs(rng, shape):
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


def _column_sums(values, weights, count):
    """Sum over rows of weight times value squared, or times 1 where it is not zero."""
    if sparse.issparse(values):
        data = (values.data != 0) if count else values.data.astype(np.float64) ** 2
        each = np.repeat(weights, np.diff(values.indptr)) * data
        return np.bincount(values.indices, weights=each, minlength=values.shape[1])
    return weights @ ((values != 0) if count else np.square(values, dtype=np.float64))


def _row_squares(values):
    if sparse.issparse(values):
        return np.asarray(values.multiply(values).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", values, values, dtype=np.float64)


def _largest(values):
    data = values.data if sparse.issparse(values) else values
    return float(np.max(np.abs(data), initial=0.0))


def _group_sums(values, groups, kept, n_groups):
    """Sum of the magnitudes of the rows kept, for each group."""
    rows = np.flatnonzero(kept)
    to = sparse.csr_array(
        (np.ones(rows.size), (groups[rows], rows)), shape=(n_groups, values.shape[0]))
    return to @ abs(values)
