"""Input of sequence labelling: features, attributes, labels, constraints, and observed weights.

One file: its sections are short, and the task calls one after the other.
"""

import reprlib
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastm4n.automata import Automaton
from fastm4n.base.arrays import sums_of
from fastm4n.base.checks import check_choice, is_number, not_finite
from fastm4n.data._sequences import Sequences
from fastm4n.features import row_norms
from fastm4n.features._rows import AT_ONCE
from fastm4n.inference._contexts import context_automaton
from fastm4n.outputs import row_stride
from fastm4n.tasks.parameters import (
    canonical,
    check_norms,
    class_factors,
    unknown_label,
    warn_of_unknown,
)

# features that are copied at a time to be counted: a limit of memory
COUNTED = 1 << 20
# share of non-zeros up to which dense features are trained on in CSR (benchmarks/constants.py)
MOSTLY_ZERO = 0.3


def as_features(X, lengths, n_features=None, first=0):
    """Sequences of float32 or float64 rows, dense and C-ordered or canonical CSR, all finite.

    If no sequence has a position, empty lists are read as matrices of n_features columns. Errors
    call the first of the sequences `first`.
    """
    given = X
    if lengths is not None:
        if isinstance(X, (list, tuple)) and X and np.ndim(X[0]) != 1:
            raise ValueError("lengths is for X as one matrix, and X is a list: leave it out.")
        values = X.values if isinstance(X, Sequences) else X
        X = Sequences.from_lengths(values, lengths)
    elif not isinstance(X, Sequences):
        if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
            raise ValueError(
                "X is one matrix: give a list with a matrix for each sequence, or the lengths of "
                "the sequences as `lengths`."
            )
        try:
            X = Sequences.from_list(X)
        except (TypeError, ValueError):
            check_one_kind(X)
            raise
    if len(X) == 0:
        raise ValueError("X has no sequences.")
    X._check_rows()
    values = X.values
    if n_features is not None and X.n_tokens == 0 and values.ndim == 1:
        values = np.zeros((0, n_features))
    if values.ndim != 2:
        check_one_kind(given)
        raise ValueError(
            "X must have a row of features for each position; its sequences are one-dimensional. "
            "Make features of labels or words with SequenceVectorizer."
        )
    if values.shape[1] == 0 and n_features != 0:
        raise ValueError("X has no features: its matrices have no columns.")
    if values.dtype.kind == "c":
        raise ValueError("X has complex values.")
    if values.dtype not in (np.float32, np.float64):
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            check_one_kind(given)
            raise ValueError(
                f"X must hold numbers ({error}); SequenceVectorizer makes features of dicts and "
                "of attribute strings."
            ) from error
    values = canonical(values) if sparse.issparse(values) else np.ascontiguousarray(values)
    found = not_finite(values)
    if found is not None:
        row, column, value = found
        b = int(np.searchsorted(X.offsets, row, side="right")) - 1
        raise ValueError(
            f"X[{first + b}] has {value} at position {row - X.offsets[b]}, feature {column}: "
            "features must be finite."
        )
    return X if values is X.values else Sequences(values, X.offsets)


def as_labels(y, X, lengths, first=0, partial=False):
    """The labels of all positions in one list, after checking that they fit X.

    With `partial` some may be None or sets: see `opened`. Errors call the first of the sequences
    `first`.
    """
    if lengths is not None and not isinstance(y, Sequences):
        labels = _listed(y)
        if len(labels) != X.n_tokens:
            raise ValueError(f"y has {len(labels)} labels, but X has {X.n_tokens} positions.")
    else:
        if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
            raise ValueError("y must be a list with a sequence of labels for each sequence of X.")
        if len(y) != len(X):
            raise ValueError(f"y has {len(y)} sequences, but X has {len(X)}.")
        if isinstance(y, Sequences):
            y_lengths, labels = y.lengths, _listed(y.values)
        else:
            parts = []
            for i, part in enumerate(y):
                if isinstance(part, (str, bytes)) or not hasattr(part, "__iter__"):
                    raise ValueError(f"y[{first + i}] must be a sequence of labels, got {part!r}.")
                parts.append(_listed(part))
            y_lengths = np.array([len(part) for part in parts])
            labels = [label for part in parts for label in part]
        wrong = np.flatnonzero(y_lengths != X.lengths)
        if wrong.size:
            b = int(wrong[0])
            raise ValueError(
                f"y[{first + b}] has {y_lengths[b]} labels, but X[{first + b}] has "
                f"{X.lengths[b]} positions."
            )
    for place, label in enumerate([] if are_known(labels) else labels):
        if label is None or type(label) is set or label != label:
            if partial and label is None:
                continue
            b = int(np.searchsorted(X.offsets, place, side="right")) - 1
            at = f"y[{first + b}] has {label!r} at position {place - X.offsets[b]}: "
            if not (partial and type(label) is set):
                remedy = "" if partial or label is not None and type(label) is not set else (
                    " Labels that are not all known are for SequenceTagger.fit, in memory.")
                raise ValueError(f"{at}not a label.{remedy}")
            if not label:
                raise ValueError(f"{at}it allows no label. None allows all.")
            if any(one is None or one != one for one in label):
                raise ValueError(f"{at}one of them is not a label.")
    return labels


def are_known(labels):
    """Whether all are labels, by the distinct ones. False as well where some cannot be hashed."""
    try:
        return not any(label is None or label != label for label in set(labels))
    except TypeError:
        return False


def opened(labels):
    """The positions whose labels are not known, with the set of those that may be.

    None may be any. A set of one label is that label, and replaced in `labels`.
    """
    found = {}
    for t, label in enumerate([] if are_known(labels) else labels):
        if label is None or type(label) is set:
            if label is not None and len(label) == 1:
                labels[t] = next(iter(label))
            else:
                found[t] = label
    return found


def token_weights(token_weight, X, lengths):
    """Factors of all positions, not negative, or None."""
    if token_weight is None:
        return None
    given, name = token_weight, "token_weight"
    if lengths is not None and not isinstance(given, Sequences):
        given = Sequences(_numbers(name, given), [0, np.size(given)])
    elif not isinstance(given, Sequences):
        if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__len__"):
            raise ValueError(f"{name} must be a list with an array for each sequence of X.")
        if len(given) != len(X):
            raise ValueError(f"{name} has {len(given)} sequences, but X has {len(X)}.")
        parts = [_numbers(f"{name}[{i}]", part) for i, part in enumerate(given)]
        given = Sequences(np.concatenate([[], *parts]), np.cumsum([0, *map(len, parts)]))
    weights = _numbers(name, given.values)
    if lengths is not None and len(given) == 1:
        if weights.size != X.n_tokens:
            raise ValueError(
                f"{name} has {weights.size} weights, but X has {X.n_tokens} positions.")
    elif len(given) != len(X):
        raise ValueError(f"{name} has {len(given)} sequences, but X has {len(X)}.")
    elif not np.array_equal(given.lengths, X.lengths):
        b = int(np.flatnonzero(given.lengths != X.lengths)[0])
        raise ValueError(
            f"{name}[{b}] has {given.lengths[b]} weights, but X[{b}] has {X.lengths[b]} "
            "positions.")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if wrong.size:
        b, t = _place_of(X, wrong[0])
        raise ValueError(
            f"{name}[{b}] is {weights[wrong[0]]:g} at position {t}: weights must be finite and "
            ">= 0.")
    return weights


def _numbers(name, values):
    """A vector of numbers."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from error
    if vector.ndim != 1:
        raise ValueError(f"{name} must be a vector of weights, got shape {vector.shape}.")
    return vector


def label_weights(class_weight, labels, weights):
    """The factor of each label by `class_weight`.

    That of a set is the mean over its labels, and that of None is one. `weights` are those of the
    positions, for "balanced".
    """
    by_label = class_weight
    if not isinstance(class_weight, dict):
        mass = {}
        for label, weight in zip(labels, weights.tolist(), strict=True):
            if label is not None and type(label) is not set:
                mass[label] = mass.get(label, 0.0) + weight
        factors = class_factors(
            class_weight, np.arange(len(mass)), lambda: np.array([*mass.values()]))
        by_label = dict(zip(mass, factors.tolist(), strict=True))

    def factor(label):
        if type(label) is set:
            return sum(map(factor, label)) / len(label)
        return 1.0 if label is None else by_label.get(label, 1.0)

    return np.fromiter(map(factor, labels), np.float64, len(labels))


def names_of(labels, opened):
    """All distinct labels, also of sets."""
    if not opened:
        return distinct(labels)
    known = distinct(label for t, label in enumerate(labels) if t not in opened)
    names = known.union(*(label for label in opened.values() if label is not None))
    if not names:
        raise ValueError(
            "y has no label: all of its positions are None (in sequences of non-zero weight).")
    return names


def known_labels(codes, opened, classes):
    """Whether each label may be at each position. codes of open positions become the first."""
    known = np.zeros((codes.size, classes.size), dtype=bool)
    known[np.arange(codes.size), codes] = True
    where = {label: i for i, label in enumerate(classes.tolist())}
    for t, labels in opened.items():
        known[t] = labels is None
        if labels is not None:
            known[t, [where[label] for label in labels]] = True
        codes[t] = np.argmax(known[t])
    return known


_SCALARS = np.str_, np.bytes_, np.bool_, np.number


def encode(labels, names, examples="sequences"):
    """All labels of these names, sorted if they can be, and the number of each of `labels`."""
    # scalars of NumPy are the same labels as those of Python
    names = [name.item() if isinstance(name, _SCALARS) else name for name in names]
    try:
        names = sorted(names)
    except TypeError:  # of several types
        names = sorted(names, key=lambda label: (type(label).__name__, repr(label)))
    if len(names) < 2:
        raise ValueError(
            f"y has one label only, {names[0]!r} (among the {examples} of non-zero weight); a "
            "tagger needs at least two." + " -1 marks nodes without one." * (examples == "graphs"))
    where = {label: i for i, label in enumerate(names)}
    try:
        codes = np.fromiter(map(where.__getitem__, labels), np.intc, len(labels))
    except KeyError:
        unknown = distinct(labels).difference(names)
        raise unknown_label(min(unknown, key=repr), names) from None
    kinds = {type(label) for label in names}
    if len(kinds) == 1 and kinds <= {str, int, float, bool, bytes}:
        classes = np.array(names)
        if classes.dtype.kind in "USifb" and classes.tolist() == names:
            return classes, codes
    classes = np.empty(len(names), dtype=object)
    classes[:] = names
    return classes, codes


def _listed(labels):
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def distinct(labels):
    try:
        return set(labels)
    except TypeError as error:
        raise ValueError(f"labels must be hashable: {error}.") from error


def codes_of(labels, classes, stacklevel=6):
    """Codes of a list of labels, -1 with a warning for labels outside classes."""
    distinct(labels)  # refuses labels that are not hashable
    where = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.fromiter((where.get(label, -1) for label in labels), np.intp, len(labels))
    if (codes < 0).any():
        warn_of_unknown([labels[t] for t in np.flatnonzero(codes < 0)], classes, stacklevel)
    return codes


def selected_columns(columns, n_features):
    """The columns that `features` of transitions selects, as numbers, or None."""
    if columns is None:
        return None
    if isinstance(columns, str):
        check_choice("transitions: features", columns, ("all",))
        return np.arange(n_features)
    try:
        chosen = np.asarray(columns)
    except ValueError:  # rows of different lengths
        chosen = np.zeros((0, 0))
    if chosen.shape == (0,):
        raise ValueError("transitions: features selects no feature; None means none.")
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise ValueError(
            "transitions: features must be 'all', column numbers or a boolean mask over the "
            f"features, got {columns!r}."
        )
    if chosen.dtype == bool:
        if chosen.size != n_features:
            raise ValueError(
                "transitions: features is a mask of "
                f"{chosen.size}, but X has {n_features} features."
            )
        chosen = np.flatnonzero(chosen)
    if chosen.size == 0:
        raise ValueError("transitions: features selects no feature; None means none.")
    wrong = np.flatnonzero((chosen < 0) | (chosen >= n_features))
    if wrong.size:
        raise ValueError(
            f"transitions: features[{wrong[0]}] is {chosen[wrong[0]]}, but X has the features "
            f"0 ... {n_features - 1}."
        )
    values, first = np.unique(chosen, return_index=True)
    if values.size < chosen.size:
        twice = np.setdiff1d(np.arange(chosen.size), first)[0]
        raise ValueError(
            f"transitions: features has {chosen[twice]} more than once, again at index {twice}."
        )
    return chosen.astype(np.intp)


def columns_of(values, selected):
    """These columns of features, C-ordered or canonical CSR. X itself if these are all."""
    if np.array_equal(selected, np.arange(values.shape[1])):
        return values
    if sparse.issparse(values):
        return canonical(sparse.csr_array(values[:, selected]))
    return np.ascontiguousarray(values[:, selected])


def without_zeros(values, rows=None):
    """Dense features in CSR where most are zero: every visit then costs less.

    Most of these rows, where they are not all that count.
    """
    if sparse.issparse(values) or _share_of_non_zeros(values, rows) > MOSTLY_ZERO:
        return values
    return canonical(sparse.csr_array(values))


def _share_of_non_zeros(values, rows):
    if rows is None:
        return np.count_nonzero(values) / max(1, values.size)
    step = max(1, COUNTED // values.shape[1])
    chunks = (rows[start : start + step] for start in range(0, rows.size, step))
    return sum(np.count_nonzero(values[chunk]) for chunk in chunks) / (rows.size * values.shape[1])


def check_size(X, alpha, numbers, names=None):
    """Refuse features of the sequences of these numbers whose weights would overflow.

    Errors call them by their numbers, or by `names`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sums = sums_of(row_norms(X.values, 0.0), X.lengths)
        # what a step of a whole sequence changes w by, at most
        norms = X.lengths[numbers] * sums[numbers]
    names = numbers if names is None else names
    check_norms(norms, alpha, lambda large: f"X[{names[large[0]]}]", "SequenceScaler")


class States(NamedTuple):
    """Which weights a tagger has, as `states` says it.

    Attributes
    ----------
    features, transitions : bool
        Whether only features or transitions that occur have weights.
    least : float or None
        The least sum of values of a pair, or number of a transition.
    """

    features: bool
    transitions: bool
    least: float

    @property
    def is_all(self):
        return not self.features and not self.transitions and self.least is None


KINDS_OF_STATES = ("all", "observed")


def as_states(states):
    """The `States` of the parameter of a `SequenceTagger`."""
    if not isinstance(states, dict):
        check_choice("states", states, KINDS_OF_STATES)
        return States(states == "observed", states == "observed", None)
    known = ("features", "transitions", "min_freq")
    for name in states:
        if name not in known:
            raise ValueError(f"states must have keys among {known}, got {name!r}.")
    for name in known[:2]:
        if name in states:
            check_choice(f"states[{name!r}]", states[name], KINDS_OF_STATES)
    least = states.get("min_freq")
    if least is not None and not is_number(least, low=0.0, strict=False):
        raise ValueError(
            f"states['min_freq'] must be a finite number >= 0 or None, got {least!r}.")
    return States(
        *(states.get(name, "all") == "observed" for name in known[:2]),
        None if least is None else float(least))


# places of pairs, positions and numbers of values in a row are uint16 there
MOST_OF_PAIRS = 65535


def held_weights(
        states, values, edge_values, codes, offsets, n_labels, resolved, share, alpha, known=None):
    """The weights of a fit, by the penalty and by observed pairs.

    Parameters
    ----------
    states : States
    values, edge_values, codes, offsets, n_labels, known
        As in `observed`.
    resolved : ResolvedPenalty or None
    share : ndarray of shape (n_positions,) or None
        p_b of each position's block, to leave out columns whose weights the penalty sets to zero.
    alpha : float

    Returns
    -------
    values : features of positions
        Without the columns that are left out, unless weights are stored by pairs.
    columns : ndarray or None
        The columns that remain, if some are left out.
    arguments : dict
        Of `ChainFeatures`.
    """
    by_pairs = states.features and sparse.issparse(values) and not (
        resolved is not None and resolved.by_rows)
    columns = None
    if share is not None:
        values, columns = screen(values, share, resolved, alpha, only_look=by_pairs)
    if states.is_all:
        return values, columns, {}
    left = columns if by_pairs else None
    held = observed(
        values, edge_values, codes, offsets, n_labels, by_pairs, left, states, known)
    return values, None if by_pairs else columns, held


def observed(values, edge_values, codes, offsets, n_labels, pairs=True, kept=None,
             states=States(True, True, None), known=None):
    """Weights of observed pairs, as arguments of `ChainFeatures`.

    Parameters
    ----------
    values, edge_values : features of positions, and of transitions or None
    codes : ndarray of shape (n_positions,)
        Labels, -1 in sequences that do not count.
    offsets : ndarray of shape (n_sequences + 1,)
    n_labels : int
    pairs : bool
        Whether weights of CSR features may be stored by pairs instead of in rows with a mask.
    kept : ndarray, default=None
        The columns of `values` that may have weights, if stored by pairs. All by default.
    states : States
    known : bool array of shape (n_positions, n_labels), default=None
        Labels that may be at each position, if they are not all known. A pair then occurs where
        its labels may be.

    Returns
    -------
    arguments : dict
        `used` and `pairs`, and the same of edges.
    """
    stride = row_stride(n_labels)
    rows, columns = values, codes.astype(np.intp)
    if known is not None:
        of_rows, columns = known.nonzero()
        rows = values[of_rows]
    # the transition into each position; the first of a sequence has none
    into = np.full(codes.size, -1, dtype=np.intp)
    into[1:] = codes[:-1].astype(np.intp) * stride + codes[1:]
    into[offsets[:-1][np.diff(offsets) > 0]] = -1
    # of intercept, start and end
    constant = np.ones((3, stride), dtype=np.uint8)
    transitions = np.zeros((1, n_labels * stride), dtype=np.uint8)
    if states.transitions or states.least is not None:
        counts = np.bincount(into[into >= 0], minlength=transitions.size)
        if known is not None:
            inside = np.flatnonzero(into >= 0)
            counts = np.zeros((n_labels, stride))
            counts[:, :n_labels] = known[inside - 1].T.astype(float) @ known[inside]
            counts = counts.ravel()
        least = states.least or 0.0
        transitions[0] = counts >= max(least, 1.0) if states.transitions else counts >= least
    else:
        transitions.reshape(n_labels, stride)[:, :n_labels] = 1
    if edge_values is None:
        constant = np.vstack([constant, transitions.reshape(n_labels, stride)])
    table = _together(rows, columns, stride, states)
    table[:, n_labels:] = 0
    if kept is not None:
        left_out = np.ones(table.shape[0], dtype=bool)
        left_out[kept] = False
        table[left_out] = 0
    pairs = pairs and offsets.size > 1 and np.diff(offsets).max() <= MOST_OF_PAIRS
    used, found = _held(table, constant, pairs and _has_short_rows(values))
    if edge_values is None:
        return {"used": used, "pairs": found}
    if known is not None:
        inside = np.flatnonzero(into >= 0)
        at, one, other = (
            known[inside - 1][:, :, np.newaxis] & known[inside][:, np.newaxis]).nonzero()
        edge_values, into = edge_values[inside[at]], one * stride + other
    table = _together(edge_values, into, n_labels * stride, states)
    table.reshape(-1, n_labels, stride)[..., n_labels:] = 0
    edge_used, edge_pairs = _held(table, transitions, pairs and _has_short_rows(edge_values))
    return {"used": used, "pairs": found, "edge_used": edge_used, "edge_pairs": edge_pairs}


def _held(table, behind, by_pairs):
    """`used` and `pairs` of a map with these rows behind the weights of features."""
    if not by_pairs or table.shape[1] > MOST_OF_PAIRS:
        return np.vstack([table, behind]), None
    if np.count_nonzero(table) >= 2**31:
        return np.vstack([table, behind]), None
    starts, places = np.zeros(table.shape[0] + 1, dtype=np.int32), []
    # some features at a time: places of all in 64 bits are more than the pairs take
    step = max(1, AT_ONCE // table.shape[1])
    for start in range(0, table.shape[0], step):
        features, found = np.nonzero(table[start : start + step])
        places.append(found.astype(np.uint16))
        counts = np.bincount(features, minlength=min(step, table.shape[0] - start))
        starts[start + 1 : start + step + 1] = counts
    return behind, (np.cumsum(starts, dtype=np.int32), np.concatenate(places))


def _has_short_rows(values):
    return sparse.issparse(values) and np.diff(values.indptr).max(initial=0) <= MOST_OF_PAIRS


def _together(values, columns, n_columns, states):
    """One for each feature and column that have a weight.

    They occur together in a row, the column being >= 0, or need not; and values add up to enough.
    What a CSR row stores occurs, be it zero, as attributes of value zero do for CRFsuite.
    """
    if not states.features and states.least is None:
        return np.ones((values.shape[1], n_columns), dtype=np.uint8)
    if states.least is not None:
        return _often(values, columns, n_columns, states)
    table = np.zeros((values.shape[1], n_columns), dtype=np.uint8)
    if sparse.issparse(values):
        step = max(1, int(AT_ONCE * values.shape[0] / max(1, values.nnz)))
        for start in range(0, values.shape[0], step):
            ends = values.indptr[start : start + step + 1]
            of_rows = np.repeat(columns[start : start + step], np.diff(ends))
            kept = of_rows >= 0
            table[values.indices[ends[0] : ends[-1]][kept], of_rows[kept]] = 1
        return table
    for column in np.unique(columns[columns >= 0]):
        table[:, column] = (values[columns == column] != 0).any(axis=0)
    return table


def _often(values, columns, n_columns, states):
    """As `_together`, by the sums of the values."""
    rows = np.flatnonzero(columns >= 0)
    ones = np.ones(rows.size)
    of_rows = sparse.csr_array(
        (ones, (columns[rows], rows)), shape=(n_columns, values.shape[0]))
    # what adds up to zero is not among these
    sums = sparse.coo_array((of_rows @ values).T)
    if states.least == 0.0:
        table = _together(values, columns, n_columns, states._replace(least=None))
    else:
        table = np.zeros(sums.shape, dtype=np.uint8)
    table[sums.row, sums.col] = sums.data >= states.least
    return table


def spread(numbers, positions, n, elsewhere):
    """Numbers of these positions among n, None being all of them."""
    if positions is None:
        return numbers
    spread = np.full(n, elsewhere, dtype=numbers.dtype)
    spread[positions] = numbers
    return spread


# --------------------------------------------------- features whose weights stay zero

# what a bound is above its threshold by rounding, as a share: where the two are equal, as for
# features that occur once and c1 = 1, the weight is zero.  The dual changes by its square
ROUNDING = 1e-12
# least share of columns that is left out: a copy of X has to pay (benchmarks/constants.py)
SHARE = 0.1


def reachable_columns(values, weights, thresholds, lower, upper, alpha):
    r"""Columns that may have non-zero weights, or None if these are all.

    z_j = (1 / alpha) sum_b p_b sum_t x_tj (phi(y) - mu)_t is at most
    (1 / alpha) sum_b p_b sum_t |x_tj|, for each label, and weights are zero where |z_j| <= t_j.

    Parameters
    ----------
    values : CSR matrix of shape (n_positions, n_features)
    weights : ndarray of shape (n_positions,)
        p_b of each position's block.
    thresholds, lower, upper : ndarray of shape (n_labels, n_features)
        Arrays of the penalty.
    alpha : float
    """
    if not sparse.issparse(values) or not np.any(thresholds):
        return None
    reach = np.zeros(values.shape[1])
    # some rows at a time: the entries are as many as X has
    step = max(1, int(max(AT_ONCE, reach.size) * values.shape[0] / max(1, values.nnz)))
    for start in range(0, values.shape[0], step):
        ends = values.indptr[start : start + step + 1]
        entries = np.abs(values.data[ends[0] : ends[-1]]) * np.repeat(
            weights[start : start + step], np.diff(ends))
        reach += np.bincount(
            values.indices[ends[0] : ends[-1]], weights=entries, minlength=reach.size)
    reach /= alpha
    held = ((lower > 0.0) | (upper < 0.0)).any(axis=0)
    kept = np.flatnonzero((reach > thresholds.min(axis=0) * (1.0 + ROUNDING)) | held)
    return kept if kept.size <= (1.0 - SHARE) * values.shape[1] else None


def without_columns(values, kept):
    """The kept columns of a canonical CSR matrix with int32 indices, in the same form."""
    new = np.full(values.shape[1], -1, dtype=np.int32)
    new[kept] = np.arange(kept.size, dtype=np.int32)
    indices = new[values.indices]
    stays = indices >= 0
    ends = np.concatenate([[0], np.cumsum(stays)])[values.indptr]
    return sparse.csr_matrix(
        (values.data[stays], indices[stays], ends.astype(values.indptr.dtype)),
        shape=(values.shape[0], kept.size))


def screen(values, weights, resolved, alpha, only_look=False):
    """The matrix without the columns that the penalty keeps at zero, and which columns it has left.

    The family "coef" of `resolved`, a `ResolvedPenalty` or None, loses them as well. With only_look
    nothing changes. The columns are None if none is left out. Other arguments are as in
    `reachable_columns`.
    """
    if resolved is None or resolved.by_rows:
        return values, None
    lower, upper, thresholds = resolved.families["coef"]
    kept = reachable_columns(values, weights, thresholds, lower, upper, alpha)
    if kept is None or only_look:
        return values, kept
    resolved.families["coef"] = tuple(array[:, kept] for array in resolved.families["coef"])
    return without_columns(values, kept), kept


# ------------------------------------------------------- constraints and masks


def check_constraints(constraints, transition_features):
    """Refuse constraints of other types, and constraints that this model does not support."""
    if constraints is None:
        return
    if not isinstance(constraints, (str, Automaton)):
        raise ValueError(
            "constraints must be a regular expression over labels, as a string, an object of "
            f"fastm4n.automata or None, got {constraints!r:.80}.")
    if transition_features is not None:
        raise ValueError(
            f"constraints={constraints!r:.80} needs transitions without features (got "
            f"features={reprlib.repr(transition_features)}).")


def as_automaton(constraints, labels):
    """The automaton of `constraints`, or None."""
    if constraints is None or isinstance(constraints, Automaton):
        return constraints
    try:
        return Automaton.from_regex(constraints, labels)
    except ValueError as error:
        raise ValueError(f"constraints: {error}") from None


def automaton_of(classes, ngrams, automaton):
    """The `LabelAutomaton` of n-grams, within what an automaton accepts unless that is None."""
    within = None
    if automaton is not None:
        within = automaton._rows(classes.tolist()), automaton.accepting
    return context_automaton(classes.size, row_stride(classes.size), ngrams, within)


def as_masks(allowed, X, n_labels, lengths):
    """Masks of the labels of all positions, one byte each. None if all are allowed."""
    if allowed is None:
        return None
    if lengths is None and not isinstance(allowed, Sequences):
        if not isinstance(allowed, (list, tuple)) or len(allowed) != len(X):
            raise ValueError(
                f"allowed must be a list of {len(X)} boolean arrays, one for each sequence of X.")
        for b, (mask, n) in enumerate(zip(allowed, X.lengths, strict=True)):
            _check_mask(f"allowed[{b}]", mask, (int(n), n_labels))
        allowed = np.concatenate([np.reshape(mask, (-1, n_labels)) for mask in allowed])
    elif isinstance(allowed, Sequences):
        if not np.array_equal(allowed.offsets, X.offsets):
            raise ValueError("allowed has sequences of other lengths than X.")
        allowed = allowed.values
    _check_mask("allowed", allowed, (X.n_tokens, n_labels))
    masks = np.asarray(allowed).astype(np.uint8)
    none = np.flatnonzero(~masks.any(axis=1))
    if none.size:
        b, t = _place_of(X, none[0])
        raise ValueError(f"allowed[{b}] allows no label at position {t}.")
    return masks


def _check_mask(name, mask, shape):
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(
            f"{name} must be boolean and of shape {shape}, columns as in classes_; got shape "
            f"{mask.shape} and dtype {mask.dtype}.")


def _place_of(X, position):
    b = int(np.searchsorted(X.offsets, position, side="right")) - 1
    return b, int(position - X.offsets[b])


# ------------------------------------------------------- attributes instead of features

# A token that is a dict or a list of strings has attributes, any other has numbers. The first token
# that is not empty tells what all have to have.
NUMBERS, ATTRIBUTES, NOTHING = "numbers", "attributes", "nothing"

_PLAIN = {list, tuple, np.ndarray}
_GIVE = "a dict or a list of strings for each position"


def new_vectorizer():
    # it needs scikit-learn's preprocessing, which takes long to import and others do without
    from fastm4n.data._vectorizer import SequenceVectorizer

    return SequenceVectorizer()


def learnt(X, lengths):
    """Features of a fit, and the `SequenceVectorizer` that made them, or None of numbers."""
    X, holds = tokens_of(X, lengths)
    if holds == NUMBERS:
        return X, None
    if holds == NOTHING:
        raise ValueError(
            "X has nothing to learn from: all of its sequences, or of their positions, are empty."
            if len(X) else "X has no sequences.")
    vectorizer = new_vectorizer()
    return vectorizer.fit_transform(X), vectorizer


def made(X, holds, vectorizer, who):
    """Features of data after a fit: X itself if the fit took numbers."""
    if vectorizer is None:
        if holds == ATTRIBUTES:
            raise ValueError(
                f"{_place(X, True)}, but {who} took numbers: give the same columns, as `transform` "
                "of the SequenceVectorizer that made them does, or fit on attributes.")
        return X
    if holds != NUMBERS:
        return vectorizer.transform(X)
    if not isinstance(X, Sequences) or X._kind()[0] != (vectorizer._n_features_out,):
        raise ValueError(
            f"{_place(X, False)}, but {who} took attributes: give {_GIVE}, or the Sequences that "
            "vectorizer_.transform makes of them.")
    return X


def check_one_kind(X):
    """Refuse a mixture of attributes and numbers."""
    if isinstance(X, (list, tuple)) and _token(X, lambda found: found) is not None:
        raise ValueError(
            f"{_place(X, True)}, and the first token is numbers: give {_GIVE}, or numbers for "
            "each.")


def tokens_of(X, lengths):
    """The kind of tokens of X, and X as a list of sequences unless it holds numbers."""
    if isinstance(X, Sequences):
        # rows on disk are not to be mapped for this
        if hasattr(X, "n_bytes_on_disk") or X.values.ndim == 2 or X.values.dtype.kind in "biufc":
            return X, NUMBERS
        X = list(X)
    if sparse.issparse(X) or isinstance(X, (str, bytes, dict)) or not hasattr(X, "__iter__"):
        return X, NUMBERS
    if getattr(X, "ndim", 1) != 1 and not isinstance(X, np.ndarray):
        return X, NUMBERS  # a data frame, or a tensor
    if isinstance(X, np.ndarray):
        if X.dtype.kind in "biufc":
            return X, NUMBERS
    elif not isinstance(X, (list, tuple)):
        X = list(X)
    sequences = X if lengths is None else [X]
    if not _PLAIN.issuperset(map(type, sequences)):
        # generators can be gone through once
        sequences = [
            each.items() if type(each).__name__ == "ItemSequence"  # of python-crfsuite
            else list(each) if _is_once(each) else each for each in sequences]
        X = sequences if lengths is None else sequences[0]
    token = _token(sequences, lambda found: found is not None)
    if token is None:
        return sequences, NOTHING
    if lengths is not None and isinstance(token[2], (list, tuple, np.ndarray)) and (
            _has_attributes(token[2][0])):
        raise ValueError(
            "lengths is for X as one sequence of tokens, and X is a list of sequences: leave it "
            "out.")
    return (sequences, ATTRIBUTES) if _has_attributes(token[2]) else (X, NUMBERS)


def _is_once(sequence):
    return hasattr(sequence, "__iter__") and not hasattr(sequence, "__len__")


def _token(sequences, tells):
    """Sequence, position and value of the first token of which tells(_has_attributes(token))."""
    for i, sequence in enumerate(sequences):
        whole = _has_only_numbers(sequence)
        if whole is not None:
            if tells(not whole):
                return i, None, sequence
            continue
        for t, token in enumerate(sequence):
            if tells(_has_attributes(token)):
                return i, t, token
    return None


def _has_only_numbers(sequence):
    """Whether a sequence holds numbers only. None if that depends on its tokens."""
    if isinstance(sequence, (dict, str, bytes)):
        return False  # a token, or an attribute, in the place of a sequence
    if isinstance(sequence, np.ndarray):
        return True if sequence.dtype.kind in "biufc" or not sequence.ndim else None
    is_matrix = sparse.issparse(sequence) or getattr(sequence, "ndim", 1) != 1
    return True if is_matrix or not hasattr(sequence, "__iter__") else None


def _has_attributes(token):
    """Whether a token is a dict or has strings. None for an empty token."""
    if isinstance(token, (dict, str, bytes)) or _is_once(token):
        return True
    if isinstance(token, (list, tuple, set, frozenset)) or (
            isinstance(token, np.ndarray) and token.ndim == 1):
        for attribute in token:
            return isinstance(attribute, (str, bytes))
        return None
    return False


def _place(X, attributes):
    """The place of the first token with attributes, or with numbers."""
    if isinstance(X, Sequences):
        columns, _ = X._kind()
        return "X holds numbers" + (f" in {columns[0]} columns" if columns else "")
    found = None
    if isinstance(X, (list, tuple)) or isinstance(X, np.ndarray) and X.dtype.kind == "O":
        found = _token(X, lambda found: found is attributes)
    if found is None:
        return f"X is of type {type(X).__name__}"
    i, t, token = found
    what = "a dict" if isinstance(token, dict) else "strings" if attributes else "numbers"
    return f"X[{i}] has {what} at position {0 if t is None else t}"
