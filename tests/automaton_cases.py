"""Problems whose outputs are labellings of order 2, free or within constraints; see `engine_cases`.
"""

import itertools

import engine_cases
import numpy as np
from engine_cases import FORMATS, ROWS, Chains
from scipy.optimize import linprog

import fastm4n.reference as ref
from fastm4n.features._positions import ChainFeatures
from fastm4n.inference._contexts import context_automaton, observed_ngrams
from fastm4n.outputs import AutomatonOutputs, row_stride


class NgramBlocks(ref.Blocks):
    """w is (emissions, intercept, start, end, bigrams, trigrams); a point (nodes, their counts)."""

    def __init__(self, problem, name):
        super().__init__(
            problem.n, name, problem.alpha, problem.p, problem.reference_penalty())
        self.problem, self.cost = problem, problem.cost

    def scores(self, i, w):
        unary, bigrams = ref.chain_scores(self.problem.X[i], ref.ChainWeights(*w[:5]))
        return unary, bigrams, w[5]

    def features(self, i, parts):
        nodes, bigrams, trigrams = parts
        return *ref.chain_features(self.problem.X[i], nodes, bigrams), trigrams

    def truth(self, i):
        return self.problem.indicator(i, self.problem.y[i])

    def point(self, i, state):
        if self.surrogate == "log":
            return self.gibbs(i, state)[:-1]
        return *state, ref.ChainOutputs.concave_part(
            state, self.surrogate, self.problem.y[i], self.cost)

    def given(self, i, v):
        R = self.problem.R
        weights = {pair: v[1][pair] for pair in itertools.product(range(R), repeat=2)}
        weights.update(zip(map(tuple, self.problem.ngrams.tolist()), v[2], strict=True))
        return v[0], weights, self.problem.constraint, self.problem.allowed_of(i)

    def gibbs(self, i, v):
        nodes, counts, log_partition = ref.automaton_marginals(*self.given(i, v))
        counts = np.array(list(counts.values()))
        parts = nodes, counts[: v[1].size].reshape(v[1].shape), counts[v[1].size :]
        entropy = log_partition - sum(np.sum(a * b) for a, b in zip(v, parts, strict=True))
        return *parts, entropy, log_partition

    def oracle(self, i, v):
        if self.surrogate == "log":
            return self.gibbs(i, v)
        if self.surrogate == "max_min":
            return self.game(i, v)
        y = self.problem.y[i]
        costs = self.cost[y] / len(y)
        path, upper = ref.automaton_viterbi(*self.given(i, (v[0] + costs, *v[1:])))
        return *self.problem.indicator(i, path), costs[np.arange(len(path)), path].sum(), upper

    def game(self, i, v):
        """By a linear programme over all outputs; an answer's positions choose by themselves."""
        listed = self.problem.listed(i)
        T, R = v[0].shape
        points = [self.problem.indicator(i, y) for y in listed]
        gains = [sum(np.sum(a * b) for a, b in zip(v, point, strict=True)) for point in points]
        # m_t <= sum_y q_y cost[y_t, j]
        above = np.zeros((T, R, len(listed) + T))
        above[:, :, : len(listed)] = -np.einsum("ytj->tjy", self.cost[listed]) / T
        above[np.arange(T), :, len(listed) + np.arange(T)] = 1.0
        found = linprog(
            -np.append(gains, np.ones(T)), above.reshape(T * R, -1), np.zeros(T * R),
            np.append(np.ones(len(listed)), np.zeros(T))[np.newaxis], [1.0],
            [(0, None)] * len(listed) + [(None, None)] * T)
        # feasible to the bit, so that both ends are bounds
        q = np.maximum(found.x[: len(listed)], 0.0)
        parts = [sum(s * part for s, part in zip(q / q.sum(), of, strict=True))
                 for of in zip(*points, strict=True)]
        nu = np.maximum(-found.ineqlin.marginals.reshape(T, R), 0.0)
        nu /= nu.sum(axis=1, keepdims=True)
        costs = (nu @ self.cost.T)[np.arange(T), listed].mean(axis=1)
        return *parts, ref.ChainOutputs.concave_part(parts, "max_min", cost=self.cost), np.max(
            gains + costs)


class Ngrams(Chains):
    """Sequences whose labels depend on two before them."""

    constraint = None

    def __init__(self, seed=0, lengths=(3, 1, 4, 3), *args, **options):
        super().__init__(seed, lengths, *args, **options)

    def outputs(self):
        # the first call is that of the base, once there are labels
        if not hasattr(self, "ngrams"):
            self.y = [self.accepted(i, y) for i, y in enumerate(self.y)]
            offsets = np.concatenate([[0], np.cumsum(self.lengths)])
            self.ngrams = observed_ngrams(np.concatenate(self.y), offsets, 2)
        masks = [self.allowed_of(i) for i in range(self.n)]
        return AutomatonOutputs(
            np.concatenate(self.y), self.lengths, self.cost,
            context_automaton(self.R, row_stride(self.R), self.ngrams, self.constraint), "mean",
            None if masks[0] is None else np.concatenate(masks))

    def allowed_of(self, i):
        return None

    def accepted(self, i, y):
        return y

    def features(self, form="dense64"):
        return self.penalised(ChainFeatures(
            FORMATS[form](np.concatenate(self.X)), *self.blocks_of_rows(), 1.0, True, True,
            n_ngrams=len(self.ngrams)))

    def group_thresholds(self):
        return (ROWS[0], 0.0, 0.0, 0.0, 0.0, 0.0)

    def blocks(self, name):
        return NgramBlocks(self, name)

    def indicator(self, i, labels):
        nodes, bigrams = ref.chain_indicator(labels, self.R)
        counts = ref.ngram_counts(labels, self.ngrams.tolist())
        return nodes, bigrams.sum(axis=0), np.array(counts, dtype=float)

    def flat(self, parts, i):
        behind = np.zeros(-parts[2].size % self.stride)
        return np.concatenate([super().flat(parts[:2], i), parts[2], behind])

    def parts(self, point, i):
        cut = (self.lengths[i] + self.R) * self.stride
        assert not point[cut + len(self.ngrams) :].any()
        return *super().parts(point[:cut], i), point[cut : cut + len(self.ngrams)]

    def assert_consistent(self, i, nodes, bigrams, trigrams):
        super().assert_consistent(i, nodes, bigrams)
        for (a, b, c), count in zip(self.ngrams, trigrams, strict=True):
            assert count <= min(bigrams[a, b], bigrams[b, c]) + 1e-9

    def weights(self, state):
        rows, d, R = state["weights"], self.d, self.R
        behind = rows[d + 3 + R :].ravel()[: len(self.ngrams)]
        return (
            rows[:d, :R].T, rows[d, :R], rows[d + 1, :R], rows[d + 2, :R],
            rows[d + 3 : d + 3 + R, :R], behind)


class Accepted(Ngrams):
    """Two positions at most have label 1, and the last has label 0 in long sequences."""

    # states count label 1
    constraint = np.array([[0, 1], [1, 2], [2, -1]]), np.array([True, True, True])

    def __init__(self, *args, only=False, **options):
        self.only = False
        super().__init__(*args, **options)
        self.only = only  # the true labels are the only ones that are allowed

    def allowed_of(self, i):
        if self.only:
            return np.eye(2, dtype=bool)[self.y[i]]
        allowed = np.ones((self.lengths[i], 2), dtype=bool)
        if self.lengths[i] > 2:
            allowed[-1, 1] = False
        return allowed

    def accepted(self, i, y):
        y = np.where(np.cumsum(y) > 2, 0, y)
        return np.where(self.allowed_of(i)[np.arange(len(y)), y], y, 0)

    def listed(self, i):
        allowed = self.allowed_of(i)
        return np.array([
            y for y in super().listed(i)
            if y.sum() <= 2 and allowed[np.arange(len(y)), y].all()])

    def answers(self, i):
        return super().listed(i)

    def drawn(self, i, rng):
        return rng.choice(self.listed(i))


KINDS = {**engine_cases.KINDS, "ngrams": Ngrams, "accepted": Accepted}
