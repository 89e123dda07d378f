"""The task of sequences of labels: problems, by chains or automata.

Sequences in memory and sequences read in chunks stand in one file, as both make the same problem.
"""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import flat, part, sums_of
from fastm4n.base.label_costs import as_kept
from fastm4n.data._ragged import cut, taken
from fastm4n.data._sequences import Sequences
from fastm4n.features._positions import ChainFeatures
from fastm4n.inference._contexts import observed_ngrams
from fastm4n.outputs import AutomatonOutputs, ChainOutputs, Layout, row_stride
from fastm4n.penalties._complexities import Sample
from fastm4n.penalties._penalties import as_penalty
from fastm4n.solvers.base import State
from fastm4n.solvers.choice import as_solver
from fastm4n.solvers.out_of_core import OutOfCore
from fastm4n.surrogates._batches import scores_of
from fastm4n.tasks.base import MISSING, Blocks, Census, Problem, Task, quarters, rows_in_common
from fastm4n.tasks.chain_input import (
    ATTRIBUTES,
    MOST_OF_PAIRS,
    as_automaton,
    as_features,
    as_labels,
    as_masks,
    as_states,
    automaton_of,
    check_constraints,
    check_size,
    columns_of,
    encode,
    held_weights,
    known_labels,
    label_weights,
    learnt,
    made,
    names_of,
    new_vectorizer,
    observed,
    opened,
    selected_columns,
    spread,
    token_weights,
    tokens_of,
    without_zeros,
)
from fastm4n.tasks.chain_predictions import AutomatonDecoder, ChainDecoder
from fastm4n.tasks.chain_weights import (
    ChainPrior,
    WeightsOfPairs,
    as_transitions,
    edge_views,
    fitted_weights,
    penalised_places,
    weight_views,
)
from fastm4n.tasks.completions import Clamp, NoOutput
from fastm4n.tasks.merge import merge_sequences
from fastm4n.tasks.parameters import (
    as_weights,
    class_factors,
    cost_matrix,
    summable,
    warn_of_order,
)
from fastm4n.tasks.pieces import (
    Chunked,
    ConcatenatedData,
    LabelFile,
    as_arrays,
    check_readable,
    entries_of,
    from_arrays,
    in_memory,
    n_bytes,
    position_bytes,
    rows_again,
)


def _same_array(one, other):
    if one is None or other is None:
        return one is other
    return np.array_equal(one, other)


def _same_pairs(one, other):
    if one is None or other is None:
        return one is other
    return all(map(np.array_equal, one, other))


@dataclass
class ChainProblem(Problem):
    """The problem of a `SequenceTagger`.

    Attributes
    ----------
    columns : ndarray, default=None
        The columns of X that `features` have, where those that an L1 term keeps at zero are left
        out.
    n_columns : int
    prior : tuple, default=None
        The weights that those of `features` are added to: rows of positions, and of transitions.
    """

    columns: np.ndarray = None
    n_columns: int = 0
    prior: tuple = None

    def warm(self, solution, alpha):
        return {
            **super().warm(solution, alpha), "columns": self.columns,
            "pairs": self.features.pairs(), "n_columns": self.n_columns,
        }

    def start(self, state, alpha):
        """As in `Problem`. Weights of columns that were left out are zero."""
        known = self.of_transitions(state)
        start = super().start(known, alpha)
        if start is not None and known is not state and self.loss.has_natural_step:
            start["mu"], start["concave"] = self.loss.points()
        then, now = state.get("columns"), self.columns
        old, new = state.get("pairs"), self.features.pairs()
        d, n_then = self.n_columns, state.get("n_columns", self.n_columns)
        if start is None or start.average is None or (
                d == n_then and then is None and now is None and _same_pairs(old, new)):
            return start
        if n_then > d or n_then < d and self.features.edges is not None:
            return start.without("average")
        rows = start["average/weights"]
        n_old = rows.shape[0] - self.n_behind()
        whole = np.zeros((d + self.n_behind(), rows.shape[1]))
        if old is not None:
            features = np.repeat(np.arange(n_then), np.diff(old[0]))
            whole[features, old[1]] = rows[:n_old].reshape(-1)[: features.size]
        else:
            whole[slice(n_then) if then is None else then] = rows[:n_old]
        whole[d:] = rows[n_old:]
        if now is not None:
            whole = np.concatenate([whole[now], whole[d:]])
        whole = self.features.gathered(whole)
        start["average/weights"] = whole
        return start

    def of_transitions(self, state):
        """`state` with dual points of the transitions that have scores now.

        Marginals of transitions that had none before are not known, unless they are zero. Blocks
        where they are not start afresh, and those with scores theta from what these say.
        """
        layout, old, kept = self.loss.outputs.layout, state["layout"], state["state"]
        n_labels, counts = old.n_labels, old.counts()
        if "mu" not in kept or layout.n_labels != n_labels or _same_array(
                layout.pairs, old.pairs) or old.n_numbers != (
                Layout.of_chains(counts, n_labels, False, old.pairs).n_numbers):
            return state
        every = np.arange(n_labels * old.stride)
        now, then = (every if pairs is None else pairs for pairs in (layout.pairs, old.pairs))
        _, to, source = np.intersect1d(now, then, return_indices=True)
        blocks = np.arange(old.n_blocks)
        new = Layout.of_chains(counts, n_labels, False, layout.pairs)
        to, source = new.numbers(blocks, to), old.numbers(blocks, source)
        moved = State(kept)
        for name in {"mu", "surrogate/theta"}.intersection(kept):
            moved[name] = np.zeros(new.n_numbers, dtype=kept[name].dtype)
            moved[name][to] = kept[name][source]
        found = {**state, "layout": new, "state": moved}
        if self.loss.has_natural_step:
            return found
        nodes = new.numbers(blocks, np.zeros(0, dtype=np.intp))
        possible = moved["mu"][nodes].reshape(-1, old.stride) > 0.0
        block_of, lost = np.repeat(blocks, counts), np.zeros(old.n_blocks, dtype=bool)
        is_inside = block_of[1:] == block_of[:-1]
        for i, j in zip(*np.divmod(np.setdiff1d(now, then), old.stride), strict=True):
            lost[block_of[1:][is_inside & possible[:-1, i] & possible[1:, j]]] = True
        owner = state["owner"]
        return {**found, "owner": np.where((owner >= 0) & lost[owner], -1, owner)}

    def n_behind(self):
        """Number of rows of weights after the features."""
        return self.features.live()["weights"][0].shape[0] - self.features.behind


def penalise(features, resolved):
    """Set the penalty of a map of chains, and of the map of transition features."""
    if resolved is None:
        return
    R, edges, n_ngrams = features.n_labels, features.edges, features.n_ngrams
    names = ["coef", "intercept", "start_coef", "end_coef", "transition_coef", "ngram_coef"]
    names = names[:4] if edges is not None else names if n_ngrams else names[:5]
    maps = [(features, names[0], lambda packed, d: dict(
        zip(names, weight_views(packed, d, R, n_ngrams), strict=True)))]
    if edges is not None:
        of_edges = "transition_coef", "transition_feature_coef"
        maps.append((edges, of_edges[1], lambda packed, _: dict(
            zip(of_edges, edge_views(packed, R), strict=True))))
    for rows, of_features, views_of in maps:
        rows.set_penalty(resolved.of_rows(
            rows.live()["weights"][0].shape, rows.behind,
            *penalised_places(rows, of_features, views_of)))


class SequenceConstraints:
    """Constraints and n-grams of a fit. Without any, outputs are plain chains.

    Parameters
    ----------
    tagger : SequenceTagger
    X : Sequences
    kept : ndarray
        The sequences of X that count; all else is of them.
    codes : ndarray of shape (n_positions,)
        Their labels.
    classes : ndarray of shape (n_labels,)
    allowed, lengths
        As in `SequenceTagger.fit`.
    opened : dict
        The positions without a label, see `opened` of `chain_input`.
    of_tokens : ndarray of shape (n_positions,), default=None
        Factors of the costs of the positions.

    Attributes
    ----------
    ngrams : ndarray or None
    n_ngrams : int
    known : bool array of shape (n_positions, n_labels) or None
        The labels that may be at each position, None if all are known.
    """

    def __init__(self, tagger, X, kept, codes, classes, allowed, lengths, opened=(),
                 of_tokens=None):
        self.of_tokens = of_tokens
        self.tagger, self.classes, self.n_ngrams = tagger, classes, 0
        self.automaton = self.ngrams = self.constraints = None
        self.offsets = np.concatenate([[0], np.cumsum(X.lengths[kept])])
        masks = as_masks(allowed, X, classes.size, lengths)
        self.masks = None if masks is None else Sequences(masks, X.offsets)[kept].values
        scored, self.known = tagger._scored, None
        if opened:
            self.open(codes, opened, kept)
        if scored.order == 1 and tagger.constraints is None and masks is None:
            return
        if scored.features is not None:
            raise ValueError("allowed needs transitions without features.")
        self.ngrams = observed_ngrams(codes, self.offsets, scored.order)
        self.n_ngrams = len(self.ngrams)
        self.constraints = as_automaton(tagger.constraints, classes.tolist())
        self.automaton = automaton_of(classes, self.ngrams, self.constraints)

    def open(self, codes, opened, kept):
        """Set `known`, and codes of open positions to the first label that may be."""
        if self.tagger._scored.order > 1:
            raise ValueError(
                "labels that are not all known need transitions of order 1 (got order="
                f"{self.tagger._scored.order}): n-grams are those of known labels.")
        self.known = known_labels(codes, opened, self.classes)
        if self.masks is not None:
            self.known &= self.masks.astype(bool)
            none = np.flatnonzero(~self.known.any(axis=1))
            if none.size:
                b = int(np.searchsorted(self.offsets, none[0], side="right")) - 1
                raise ValueError(
                    f"allowed[{kept[b]}] and y[{kept[b]}] together allow no label at position "
                    f"{none[0] - self.offsets[b]}.")
            codes[:] = self.known.argmax(axis=1)

    def contents(self, codes):
        """A number for each position, the same for equal labels under equal masks."""
        weights = None if self.of_tokens is None else self.of_tokens[:, np.newaxis]
        more = [part for part in (self.masks, self.known, weights) if part is not None]
        if not more:
            return codes
        return codes + self.classes.size * np.unique(
            np.hstack(more), axis=0, return_inverse=True)[1].reshape(-1)

    def used(self, used):
        """The mask of observed weights, extended by n-grams."""
        more = np.ones((-(-self.n_ngrams // used.shape[1]), used.shape[1]), dtype=np.uint8)
        return np.vstack([used, more]) if self.n_ngrams else used

    def outputs(self, y, cost, blocks, used=None):
        """The outputs of blocks with labels y. Errors name labels that are not accepted.

        `used` is the mask of weights that `observed` gives, if any.
        """
        per_edge, scale = self.tagger._scored.features is not None, self.tagger.cost_scale
        weights = self.of_tokens
        if weights is not None:
            weights = Sequences(weights, self.offsets)[blocks.first].values
        if self.automaton is None:
            pairs = None
            if used is not None and not per_edge:
                pairs = np.flatnonzero(used[-len(cost) :])
                pairs = pairs if pairs.size < len(cost) ** 2 else None
            return ChainOutputs(y.values, y.lengths, cost, per_edge, scale, pairs, weights)
        masks = self.masks
        if masks is not None:
            masks = Sequences(masks, self.offsets)[blocks.first].values
        outputs = AutomatonOutputs(
            y.values, y.lengths, cost, self.automaton, scale, masks, weights)
        if self.known is not None:
            self.check_possible(outputs, y, blocks)
            return outputs
        found = outputs.rejected()
        if found is None:
            return outputs
        b, place = found
        labels = self.classes[y[b]].tolist()
        if place == len(labels):
            what = f"constraints do not accept its end, after {labels[-1]!r}"
        else:
            what = f"constraints or allowed exclude {labels[place]!r} at position {place}"
        raise ValueError(
            f"y[{blocks.examples[b]}] is not among the labellings that may be: {what}. Correct "
            "it, or leave the sequence out.")

    def check_possible(self, outputs, y, blocks):
        """Refuse labels of which no completion is accepted."""
        known = Sequences(self.known, self.offsets)[blocks.first]
        scores = np.zeros(outputs.layout.n_numbers)
        try:
            Clamp(outputs, known.values).best(scores)
        except NoOutput as error:
            b = int(error.block)
        else:
            return
        # the first position up to which none is accepted, whatever the labels behind it
        for place in range(known.lengths[b]):
            some = np.array(known[b])
            some[place + 1 :] = True
            masks = None if outputs.allowed is None else known[b] | True
            one = AutomatonOutputs(
                y[b], [y.lengths[b]], outputs.kept_cost(), self.automaton, allowed=masks)
            try:
                Clamp(one, some).best(np.zeros(one.layout.n_numbers))
            except NoOutput:
                break
        i = blocks.examples[b]
        raise ValueError(
            f"y[{i}] has no completion: up to position {place}, none of its labels is among the "
            "labellings that constraints and allowed let be. Correct it, or leave the sequence "
            "out.")

    def content(self):
        """Plain data on which dual points depend."""
        content = None
        if self.constraints is not None:
            rows = self.constraints._rows(self.classes.tolist())
            content = rows.tobytes() + self.constraints.accepting.tobytes()
        weights = {} if self.of_tokens is None else {"token weights": self.of_tokens}
        return {
            "ngrams": self.ngrams, "constraints": content, "allowed": self.masks, **weights}


class SequenceTask(Task):
    """Labels of the positions of sequences."""

    noun = "sequence"
    needs_dual = False
    takes_more_labels = goes_on = True
    of_examples = ("lengths",)
    class_weight = None
    vectorizer = None

    @property
    def _scored(self):
        return as_transitions(self.transitions)

    def features_of(self, X, lengths=None):
        """X of predictions with features instead of attributes."""
        return made(
            *tokens_of(X, lengths), vars(self.estimator).get("vectorizer_"), f"this {self.taker}")

    def sequences(self, X, lengths=None):
        """X of predictions, validated."""
        X = as_features(self.features_of(X, lengths), lengths, self.estimator.n_features_in_)
        self.check_n_features(X.values)
        return X

    def takes_best(self, **given):
        limits = "constraints", "allowed", "allowed_transitions"
        # least risks are of positions one by one, which keep to no limits
        return super().takes_best() or any(
            value is not None for name in limits
            for value in (given.get(name), getattr(self, name, None)))

    def decoder(self, X, lengths=None, constraints=None, allowed=None, allowed_transitions=None):
        X = self.sequences(X, lengths)
        constraints = self.constraints if constraints is None else constraints
        check_constraints(constraints, None)
        transitions = (
            self.allowed_transitions if allowed_transitions is None else allowed_transitions)
        if constraints is None and allowed is None and not hasattr(self.estimator, "ngrams_"):
            return ChainDecoder(self, X, transitions)
        labels = self.estimator.classes_.tolist()
        return AutomatonDecoder(
            self, X, transitions, as_automaton(constraints, labels),
            as_masks(allowed, X, len(labels), lengths))

    def read(self, X, lengths, census=None):
        """X with features instead of attributes."""
        if census is not None:
            self.vectorizer = census.vectorizer
        else:
            X, self.vectorizer = learnt(X, lengths)
        return X

    def unsupported(self):
        order = self._scored.order
        if self.class_weight is not None:
            return f"class_weight={self.class_weight!r:.80}"
        return f"order={order} of transitions" if order != 1 else super().unsupported()

    def fitted(self, problem, alpha, mu, intercepts=None, is_last=False):
        """Weights, as views of the rows that the compiled loops read, or by observed pairs."""
        features, edges = problem.features, problem.features.edges
        if is_last and features.pairs() is not None:
            rows = [None if part is None else part.live()["weights"][1]
                    for part in (features, edges)]
            held = WeightsOfPairs(
                rows[0], features.pairs(), rows[1], None if edges is None else edges.pairs(),
                features.n_labels, features.n_ngrams)
            if edges is not None or problem.modulus == 1.0:
                return {"_of_pairs": held}
            return self._sparse(held.without_zeros())
        packed, d = features.all_weights(), features.n_features
        columns, n_columns = problem.columns, problem.n_columns
        if columns is not None:
            whole = np.zeros((packed.shape[0] - d + n_columns, packed.shape[1]))
            whole[columns], whole[n_columns:] = packed[:d], packed[d:]
            packed, d = whole, n_columns
        edges = None if edges is None else edges.all_weights()
        if problem.prior is not None:
            rows, edge_rows = problem.prior
            packed = packed + rows
            edges = None if edges is None else edges + edge_rows
        if is_last and edges is None and problem.modulus < 1.0 and sparse.issparse(features.X):
            held = WeightsOfPairs.of_rows(packed, d, features.n_labels, features.n_ngrams)
            if held.is_small and features.n_labels <= MOST_OF_PAIRS:
                return self._sparse(held)
        return fitted_weights(packed, edges, d, features.n_labels, features.n_ngrams)

    def _sparse(self, held):
        """Weights by pairs that are not zero. Attributes without any are dropped."""
        if self.vectorizer is None:
            return {"_of_pairs": held}
        kept, held = held.used()
        return {
            "_of_pairs": held, "n_features_in_": kept.size,
            "vectorizer_": self.vectorizer._with_columns(kept)}

    def prior(self):
        tagger, scored = self.estimator, self._scored
        if scored.order > 1 or hasattr(tagger, "ngrams_"):
            raise ValueError(
                "partial_fit goes on from a model without its data for transitions of order 1 "
                f"(got order={scored.order}): fit to all data together.")
        if hasattr(tagger, "transition_features_") != (scored.features is not None):
            raise ValueError(
                "transitions have other features than at the last fit: partial_fit goes on under "
                "the same ones.")
        return ChainPrior(tagger)

    def read_more(self, X, before, prior=None):
        last = prior if before is None else before
        if last is None:
            X, vectorizer = learnt(X, None)
            return X, None, vectorizer
        (X, holds), known = tokens_of(X, None), last.vectorizer
        if known is None or holds != ATTRIBUTES:
            return made(X, holds, known, "earlier calls of partial_fit"), before, known
        vectorizer = known._with_names(new_vectorizer().fit(X).feature_names_)
        if vectorizer is not known:
            if isinstance(self.solver, OutOfCore):
                raise ValueError(
                    "X has attributes that earlier calls of partial_fit do not have, and calls out "
                    "of core keep to the columns of the first: fit a SequenceVectorizer to all "
                    "attributes that there will be, and give what its transform makes of X.")
            before = None if before is None else before.widened(vectorizer)
        return vectorizer.transform(X), before, vectorizer

    def example(self, rng, csr=False, attributes=False):
        lengths = (3, 1, 2, 3)
        X = [quarters(rng, length, 2) for length in lengths]
        y = [rng.integers(2, size=length) for length in lengths]
        y[0][:2] = 0, 1
        if self.constraints is not None:
            y = [np.sort(labels) for labels in y]
        if csr:
            X = [sparse.csr_array(x) for x in X]
        if attributes:
            X = [[{f"x{j}": float(v) for j, v in enumerate(row)} for row in x] for x in X]
        return X, y

    @staticmethod
    def stored(X, y, folder):
        Sequences.from_list(X).save(folder)
        return Sequences.open(folder), y

    def container(self, X):
        return Sequences.from_list(X)

    def columns(self, X):
        return X.matrices() if isinstance(X, ConcatenatedData) else X

    def as_examples(self, X, y):
        """X and y as calls of `partial_fit` put them together."""
        if not isinstance(X, Sequences):
            X = as_features(X, None)
        if not isinstance(y, Sequences):
            y = Sequences.from_lengths(np.asarray(as_labels(y, X, None)), X.lengths)
        return X, y

    def shared(self, X):
        """X, validated for several fits at a time, and fitted attributes."""
        X, vectorizer = learnt(X, None)
        X = as_features(X, None)
        values = without_zeros(X.values)
        return X if values is X.values else Sequences(values, X.offsets), {
            "vectorizer_": vectorizer}

    def piece(self, pieces):
        lengths = pieces.lengths
        X = as_features(pieces.X, lengths)
        labels = as_labels(pieces.y, X, lengths, partial=pieces.may_be_partial)
        weights = as_weights(pieces.sample_weight, len(X), "sequence")
        of_tokens, weights = self.of_tokens(pieces, X, labels, weights)
        kept = np.flatnonzero((weights > 0) & (X.lengths > 0))  # an empty sequence costs nothing
        # what is left out is skipped, not copied without: X may be that of several fits at a time
        positions, offsets = None, X.offsets
        if kept.size < len(X):
            positions, offsets = taken(X.offsets, kept)
            labels = [labels[t] for t in positions.tolist()]
            of_tokens = None if of_tokens is None else of_tokens[positions]
        return SimpleNamespace(
            of_tokens=of_tokens,
            opened=opened(labels) if pieces.may_be_partial else {},
            X=X, labels=labels, weights=weights[kept], kept=kept, positions=positions,
            offsets=offsets, lengths=lengths, allowed=pieces.allowed, prior=pieces.prior,
            is_alone=pieces.road == "memory" and not self.warm_start)

    def of_tokens(self, pieces, X, labels, weights):
        """Factors of the costs of all positions or None, and weights of all sequences.

        Under "log" costs count only if it is cost-augmented. The weight of a sequence is then
        multiplied by the mean of the factors of its positions.
        """
        factors = token_weights(pieces.part_weight, X, pieces.lengths)
        if self.class_weight is not None:
            if self.class_weight == "balanced" and pieces.road == "partitions":
                raise ValueError(
                    "class_weight='balanced' needs all labels in one place: give a dict.")
            masses = np.repeat(weights, X.lengths) * (1.0 if factors is None else factors)
            of_labels = label_weights(self.class_weight, labels, masses)
            factors = of_labels if factors is None else factors * of_labels
        if factors is None or (factors == 1.0).all():
            return None, weights
        if self.surrogate.name == "log":
            means = sums_of(factors, X.lengths) / np.maximum(X.lengths, 1)
            weights = weights * means
            if not weights.any():
                raise ValueError("token_weight and class_weight leave no sequence a weight.")
            if not self.surrogate.cost_augmented:
                factors = None
        return factors, weights

    def census(self, piece):
        return Census(
            piece.kept.size, names_of(piece.labels, piece.opened), rows_in_common(piece.X.values),
            {"weight": piece.weights.sum()})

    def resolved_penalty(self, R, d, selected, lengths, ngrams):
        """The penalty of the weights, None for alpha / 2 ||w||^2 alone."""
        scored = self._scored
        if scored.order > 1 and as_penalty(self.penalty)._by_rows:
            raise ValueError(
                f"penalty={self.penalty!r} needs transitions of order=1 (got {scored.order}): "
                "n-grams of labels are in no group.")
        ends = (R,) if scored.start_end else MISSING.format("start_end of transitions")
        families = {
            "coef": (R, d),
            "intercept": (R,) if self.fit_intercept else MISSING.format("fit_intercept"),
            "start_coef": ends, "end_coef": ends,
            "transition_coef": (R, R) if scored.pairs else MISSING.format("pairs of transitions"),
            "transition_feature_coef": MISSING.format("features of transitions")
            if selected is None else (selected.size, R, R),
            "ngram_coef": (len(ngrams),) if scored.order > 1 else MISSING.format(
                "order of transitions")}
        sample = Sample(lengths.size, R, lengths, selected, ngrams)
        return self.penalty_of(families, sample=sample)

    def in_memory(self, piece, census, one_alpha):
        X, kept, positions = piece.X, piece.kept, piece.positions
        selected = selected_columns(self._scored.features, X.values.shape[1])
        if kept.size == 0:
            raise ValueError("X has no positions in sequences of non-zero weight.")
        weights, known = summable(piece.weights), self.census_of_all(census, piece)
        labels, prior = known.labels, piece.prior
        if prior is not None:
            labels = {*labels, *prior.classes.tolist()}
        given = piece.labels
        if piece.opened:
            some = next(iter(labels))
            given = [some if t in piece.opened else label for t, label in enumerate(given)]
        classes, codes = encode(given, labels)
        if isinstance(self.class_weight, dict):
            class_factors(self.class_weight, classes, None)
        cost = cost_matrix(self.cost, classes.size)
        warn_of_order(self.cost, classes)
        within = SequenceConstraints(
            self, X, kept, codes, classes, piece.allowed, piece.lengths, piece.opened,
            piece.of_tokens)
        blocks = Blocks.of(len(X), kept, weights, *merge_sequences(
            X, within.contents(codes), weights, None if positions is None else kept))
        alpha = self._alpha(blocks, census, cost)
        if prior is not None:
            alpha = prior.strengthened(
                alpha, blocks.total, isinstance(self.alpha, str), self.surrogate.name == "log")
        check_size(X, alpha, kept)
        values = without_zeros(X.values, positions)
        edge_values = None if selected is None else without_zeros(columns_of(values, selected))
        resolved = self.resolved_penalty(
            classes.size, values.shape[1], selected, X.lengths[kept], within.ngrams)
        n_columns, share, every = values.shape[1], None, values
        if one_alpha:
            share = np.repeat(weights, X.lengths[kept]) / weights.sum()
            share = spread(share, positions, X.n_tokens, 0.0)
        known = within.known
        if known is not None and positions is not None:
            known = np.zeros((X.n_tokens, classes.size), dtype=bool)
            known[positions] = within.known
        values, columns, held = held_weights(
            as_states(self.states), values, edge_values,
            spread(codes, positions, X.n_tokens, -1), X.offsets, classes.size, resolved, share,
            alpha, known)
        if "used" in held:
            held["used"] = within.used(held["used"])
        codes = Sequences(codes, piece.offsets)[blocks.first]
        # the weights that a fit goes on from may be of any transitions
        outputs = within.outputs(
            codes, cost, blocks, held.get("used") if prior is None else None)
        if one_alpha and piece.is_alone and resolved is None and known is None and (
                type(outputs) is ChainOutputs and self.surrogate.name == "max_margin"
                and as_solver(self.solver).has_atoms):
            outputs.allow_lists()
        loss = self.loss(outputs)
        features = ChainFeatures(
            values, X.offsets[blocks.examples], outputs.layout, float(self.fit_intercept),
            self._scored.start_end, self._scored.pairs, edge_values, n_ngrams=within.n_ngrams,
            **held,
        )
        penalise(features, resolved)
        rows = None
        if prior is not None:
            if self.vectorizer is None:
                self.check_n_features(every)
            rows, base = prior.rows(classes, n_columns), np.zeros(outputs.layout.n_numbers)
            scores_of(outputs.layout, ChainFeatures(
                every, X.offsets[blocks.examples], outputs.layout, 1.0, True, True, edge_values,
                *rows), base)
            features.set_base(base, outputs.layout)
        common = {
            "n_features_in_": X.values.shape[1], "classes_": classes,
            "_cost_held": as_kept(cost), "vectorizer_": self.vectorizer}
        if selected is not None:
            common["transition_features_"] = selected
        if self._scored.order > 1:
            common["ngrams_"] = within.ngrams
        task = {
            "surrogate": self.surrogate.name, "cost_scale": self.cost_scale, "lengths": X.lengths,
            "per_edge": selected is not None, "classes": classes, **within.content(),
        }
        problem = ChainProblem(
            loss, features, blocks, common, task, columns=columns, n_columns=n_columns,
            prior=rows)
        problem.alpha = alpha
        if known is not None:
            problem.known = Sequences(known, X.offsets)
        return problem

    def _remedy(self, outputs):
        layout = outputs.layout
        if layout.max_parts == 1:
            return (
                "sequences of one position have no transitions; fit their tokens by "
                "MulticlassClassifier")
        remedy = super()._remedy(outputs)
        if type(outputs) is ChainOutputs and layout.pairs is None and layout.pair_step == 0:
            remedy = f"give states='observed', which holds pairs of labels in y alone, or {remedy}"
        return remedy


class SequenceChunks(Chunked):
    """The chunks of sequences.

    Parameters
    ----------
    task : SequenceTask
    pieces : Memory or Call
    census : Census or None
    solver : OutOfCore
    """

    _for_next = (
        *Chunked._for_next, "labels", "n_columns", "selected", "used", "edge_used")

    def __init__(self, task, pieces, census, solver):
        X, y, sample_weight, lengths = pieces.X, pieces.y, pieces.sample_weight, pieces.lengths
        if as_states(task.states).least is not None:
            raise ValueError(
                "states['min_freq'] is not supported by fits that read the data in chunks: leave "
                "it out, or use solver=BlockFrankWolfe(), in memory.")
        if lengths is not None:
            X, y = (Sequences.from_lengths(part, lengths) for part in (X, y))
        elif not isinstance(X, (Sequences, ConcatenatedData)):
            X = as_features(X, None)
        if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
            raise ValueError("y must be a list with a sequence of labels for each sequence of X.")
        if len(y) != len(X):
            raise ValueError(f"y has {len(y)} sequences, but X has {len(X)}.")
        if len(X) == 0:
            raise ValueError("X has no sequences.")
        weights = as_weights(sample_weight, len(X), "sequence")
        parts = X.parts if isinstance(X, ConcatenatedData) else [X]
        self.offsets = parts[0].offsets
        if len(parts) > 1:
            self.offsets = cut(np.concatenate([part.lengths for part in parts]))
        lengths = np.diff(self.offsets)
        kept = (weights > 0) & (lengths > 0)
        if not kept.any():
            raise ValueError("X has no positions in sequences of non-zero weight.")
        super().__init__(task, pieces, solver, X)
        self.y, self.census = y, census
        self.begin(kept, summable(weights[kept]), weights)
        self.lengths = lengths[self.kept]
        # where the labels of each block are
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        # without the costs, before all labels are known: for checks
        self.alpha = task.alpha_of(self.total)

    def _piece(self, start, stop):
        """The sequences start ... stop - 1 that count, in memory, and their numbers."""
        piece = self.X[start:stop]
        numbers = start + np.flatnonzero(self.kept[start:stop])
        values = in_memory(piece.values)
        self.is_sparse = sparse.issparse(values)
        self.is_canonical &= not self.is_sparse or values.has_canonical_format
        X = as_features(
            Sequences(values, piece.offsets), None, None, self.X.own_number(start))
        if numbers.size < stop - start:
            X = X[numbers - start]
        return X, numbers

    # ------------------------------------------------------------------ the first passes

    def problem(self):
        task, last = self.task, self.last
        self.n_columns, self.selected, data_bytes = None, None, []
        if last is not None:
            self.n_columns, self.selected = last.n_columns, last.selected
            self.labels, data_bytes = last.labels.continued(), [last.sizes]
        with self.store.explained():
            if last is None:
                self.labels = LabelFile(self.store)
            self.stream(self.offsets, lambda a, b: self._look(a, b, data_bytes))
        sizes = np.concatenate(data_bytes)
        labels, known = self.labels.labels, None if self.census is None else self.census.labels
        classes, self.rank = encode(labels, labels if known is None else known)
        self.n_labels = R = classes.size
        self.cost = cost_matrix(task.cost, R)
        resolved = task.resolved_penalty(
            R, self.n_columns, self.selected, self.lengths, None)
        self.used = self.edge_used = None
        self.states = as_states(task.states)
        if not self.states.is_all:
            if last is not None:
                self.used, self.edge_used = (
                    None if mask is None else mask.copy()
                    for mask in (last.used, last.edge_used))
            self.stream(self.offsets, self._look_for_pairs)
        stride = row_stride(R)
        per_edge = self.selected is not None
        numbers = (self.lengths + R * (self.lengths - 1 if per_edge else 1)) * stride
        first = int(np.argmax(self.kept))
        some = self._values(self._piece(first, first + 1)[0].values)
        blocks = np.zeros(1, dtype=np.intp)
        features = self._features(*some, blocks, self._outputs(blocks).layout)
        penalise(features, resolved)
        self.finish(features, int(numbers.max()), sizes, numbers)

        common = {
            "n_features_in_": self.n_columns, "classes_": classes,
            "_cost_held": as_kept(self.cost), "vectorizer_": task.vectorizer}
        if per_edge:
            common["transition_features_"] = self.selected
        return ChainProblem(self.kind, features, self.kept_blocks(), common, {})

    def _look(self, start, stop, data_bytes):
        """Validate sequences, store their labels, and record sizes."""
        check_readable(self.X[start:stop])
        X, numbers = self._piece(start, stop)
        if self.n_columns is None:
            self.n_columns = X.values.shape[1]
            self.selected = selected_columns(self.task._scored.features, self.n_columns)
        whole = self.X[start:stop]
        first = self.X.own_number(start)
        labels = np.empty(whole.n_tokens, dtype=object)
        labels[:] = as_labels(self.y[start:stop], whole, None, first)
        if numbers.size < stop - start:
            labels = Sequences(labels, whole.offsets)[numbers - start].values
        codes = self.labels.numbers(labels)
        self.labels.write(self.starts[self.before[start]], codes)
        check_size(X, self.alpha, np.arange(numbers.size), numbers - start + first)
        self.looked(stop, X.values, X.lengths, codes)
        data_bytes.append(
            position_bytes(X.lengths, entries_of(X.values, X.offsets), X.values))
        return n_bytes(X.values)

    def labels_met(self):
        return self.labels.labels

    def _codes(self, first, last):
        """The labels of the blocks first ... last - 1, as numbers."""
        return self.rank[self.labels.read(*self.starts[[first, last]])]

    def _look_for_pairs(self, start, stop):
        """Add to the masks of observed weights."""
        X, numbers = self._piece(start, stop)
        if numbers.size:
            codes = self._codes(*self.before[[start, stop]])
            values, edge_values = self._values(X.values)
            # as masks of rows, which those of the next chunks are joined to
            found = observed(
                values, edge_values, codes, X.offsets, self.n_labels, False, None, self.states)
            for name in ("used", "edge_used"):
                known, mask = getattr(self, name), found.get(name)
                if mask is None:
                    continue
                if known is None:
                    setattr(self, name, mask)
                else:
                    np.maximum(known, mask, out=known)
        return n_bytes(X.values)

    def _values(self, values):
        """Features of positions, and of transitions if there are any."""
        values = without_zeros(values)
        if self.selected is None:
            return values, None
        return values, without_zeros(columns_of(values, self.selected))

    # -------------------------------------------------------------------------- chunks

    def _outputs(self, blocks):
        first, last = blocks[0], blocks[-1] + 1
        task = self.task
        return ChainOutputs(
            self._codes(first, last), self.lengths[first:last], self.cost,
            self.selected is not None, task.cost_scale)

    def surrogate_of(self, blocks):
        return self.task.loss(self._outputs(blocks))

    def _features(self, values, edge_values, blocks, layout, **shared):
        task, starts = self.task, self.starts[blocks]
        return ChainFeatures(
            values, starts - starts[0], layout, float(task.fit_intercept),
            task._scored.start_end, task._scored.pairs, edge_values, used=self.used,
            edge_used=self.edge_used, **shared)

    def open(self, c):
        blocks = self.blocks(c)
        surrogate, kept = self.surrogate_of(blocks), self.store.kept(c)
        layout = surrogate.outputs.layout
        values, edge_values, norms = self._made(c) if kept is None else self._kept(c, kept)
        features = self._features(
            values, edge_values, blocks, layout, like=self.features, norms=norms)
        if kept is None:
            arrays = flat("norms", features.norms())
            examples = self.examples[[c, c + 1]]
            start, stop = self.offsets[examples]
            is_plain = self.is_canonical and values.shape[0] == stop - start and (
                sparse.issparse(values) == self.is_sparse) and self.X.place(*examples) is not None
            if not is_plain:
                arrays.update(as_arrays("values", values))
            if edge_values is not None and edge_values is not values:
                arrays.update(as_arrays("edge_values", edge_values))
            self.store.keep(c, arrays)
        return surrogate, features, n_bytes(values)

    def _made(self, c):
        """Features of chunk c, and of its transitions, as they are first made."""
        X, _ = self._piece(*self.examples[[c, c + 1]])
        return *self._values(X.values), None

    def _kept(self, c, kept):
        """As `_made`, from stored arrays, with norms."""
        values = from_arrays("values", kept)
        if values is None:
            X, start, stop = self.X.place(*self.examples[[c, c + 1]])
            values = rows_again(X, "values", start, stop, X.offsets)
        edge_values = from_arrays("edge_values", kept)
        if edge_values is None and self.selected is not None:
            edge_values = values
        return values, edge_values, part("norms", kept)


SequenceTask.chunks = SequenceChunks
