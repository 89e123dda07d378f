"""Problems of every kind of output: for the engine, for its reference, and listed output by output.

A `Problem` has small data of one kind, with features and a penalty. It makes what the engine is
given (`surrogate`, `features`, `engine`, `solve`) and the reference's `blocks`, takes dual points
and weights from one form to the other (`flat`, `parts`, `weights`), and finds its optimum by
enumeration of all outputs and a generic solver (`optimum`). One file although it is long: the kinds
are read side by side.
"""

import functools
import itertools
from collections import namedtuple

import numpy as np
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.linalg import block_diag
from scipy.optimize import minimize

import fastm4n.reference as ref
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._base import Penalty
from fastm4n.features._kernel import KernelFeatures
from fastm4n.features._pairs import PairFeatures, PairKernelFeatures
from fastm4n.features._positions import ChainFeatures, GraphFeatures
from fastm4n.outputs import ChainOutputs, MatchingOutputs, PermutationOutputs, SimplexOutputs
from fastm4n.outputs._graph import ForestOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.surrogates import MirrorProxLoss, make_surrogate

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = {"permutation": Sampling.PERMUTATION, "uniform": Sampling.UNIFORM, "gap": Sampling.GAP}
# of Omega: bounds, (thresholds, modulus) of single weights and of rows
BOX, NET, ROWS = (-0.2, 0.5), (0.15, 0.6), (0.2, 0.6)
PENALTIES = ("l2", "bounds", "elastic net", "groups")
FORMATS = {
    "dense64": np.ascontiguousarray,
    "dense32": lambda X: X.astype(np.float32),
    "csr64": sparse.csr_matrix,
    "csr32": lambda X: sparse.csr_array(X.astype(np.float32)),
}

# P*, between two numbers, and the weights of the upper one
Optimum = namedtuple("Optimum", "lower upper w")


def zero_one(k):
    return 1.0 - np.eye(k)


def absolute(k):
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


def random_cost(k, seed=99):
    cost = np.random.default_rng(seed).uniform(0.2, 2.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


def run(engine, sampling, step, n_passes=1):
    """Passes of a sampling; the first of gap sampling has no gaps to go by."""
    for i in range(n_passes):
        first = sampling == "gap" and i == 0
        engine.run_pass(Sampling.PERMUTATION if first else SAMPLINGS[sampling], step)


def assert_parts(found, expected, atol=1e-9):
    """Tuples of arrays, relative to the largest number of each."""
    for part, right in zip(found, expected, strict=True):
        assert_allclose(part, right, atol=atol * (1.0 + np.abs(right).max(initial=0.0)))


def assert_certified(found, expected, rtol=1e-9):
    for name in ("primal", "dual", "gap", "block_gaps"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=rtol)


def assert_certified_above(found, exact):
    """The dual is exact, the primal may lie above by the share that oracles may err."""
    assert_allclose(found.dual, exact.dual, rtol=1e-9, atol=1e-9)
    error = found.primal - exact.primal
    assert -1e-8 <= error <= 0.021 * found.gap + 1e-8
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-8)
    assert np.all(found.block_gaps >= exact.block_gaps - 1e-8)


def assert_same_atoms(problem, engine, passes, atol=1e-9):
    """The atoms of the engine and of the reference, one by one, and how often there were calls."""
    found, expected = [[]], [[]]
    for i, (held, atoms) in enumerate(zip(
            problem.held(engine.sets), passes.atoms, strict=True)):
        assert len(held) == len(atoms)
        for (weight, height, point), atom in zip(held, atoms, strict=True):
            found += [weight, height], point
            expected += [atom.weight, atom.height], problem.flat(atom.point, i)
    assert [*map(len, found)] == [*map(len, expected)]
    # all at once, which is quicker
    assert_allclose(np.concatenate(found), np.concatenate(expected), atol=atol)
    assert (engine.n_visits, engine.oracle_calls, engine.cache_hits) == (
        passes.n_visits, passes.oracle_calls, passes.cache_hits)


def assert_same_points(problem, engine, passes, atol=1e-9):
    """mu, h and z of the engine and of the reference."""
    engine.settle()
    points = passes.points()
    assert_allclose(engine.mu, problem.pack([mu for *mu, _ in points]), atol=atol)
    assert_allclose(engine.concave, [h for *_, h in points], atol=atol)
    if problem.w(engine.features) is not None:
        assert_parts(problem.weights(engine.features.state()), passes.z, atol)


def lifted_dual(problem, engine, norm=None):
    """D with t_b, of the heights of atoms, in place of h_b(mu_b): what steps along them raise.

    norm is ||w||^2 where the features do not hold w.
    """
    heights = [
        sum(weight * height for weight, height, _ in atoms)
        for atoms in problem.held(engine.sets)]
    held = engine.features.weight_norm() is not None
    conjugate = engine.features.conjugate_value() if held else 0.5 * norm
    return problem.p @ heights - problem.alpha * conjugate


class Problem:
    """Outputs of one kind.

    A derived class has `outputs`, `features`, `blocks`, and for each block: `listed`, all outputs,
    and `drawn`, one of them; `indicator`, phi of one; `flat` and `parts`, between the engine's
    numbers and the reference's arrays; and `weights`, from a state of the feature map to the
    reference's arrays.
    """

    group_axis = None  # of the features' weights in the reference; None where there are no groups
    n_more_parts = 0  # parts of w that are no features'

    def __init__(self, seed, n, alpha, penalty, weighted=True):
        self.rng = np.random.default_rng(seed)
        self.n, self.alpha, self.penalty = n, alpha, penalty
        p = self.rng.uniform(0.3, 2.0, n) if weighted else np.ones(n)
        self.p = p / p.sum()

    # for the engine

    def surrogate(self, name, oracle=None):
        """oracle: iterations of mirror prox, and whether it has warm starts."""
        if name == "mirror_prox" or oracle is not None:
            return MirrorProxLoss(self.outputs(), *(oracle or (8, False)))
        return make_surrogate(name, self.outputs())

    def penalty_of(self, shape, n_shared):
        """The compiled penalty of weights of that shape; groups are of the first rows."""
        if self.penalty == "bounds":
            return Penalty(shape, n_shared, *BOX)
        if self.penalty == "elastic net":
            return Penalty(shape, n_shared, thresholds=NET[0], modulus=NET[1])
        thresholds = np.where(np.arange(shape[0]) < n_shared, ROWS[0], 0.0)[:, np.newaxis]
        return Penalty(shape, n_shared, thresholds=thresholds, modulus=ROWS[1], by_rows=True)

    def reference_penalty(self):
        if self.penalty == "l2":
            return None
        if self.penalty == "bounds":
            return ref.Penalty(BOX)
        if self.penalty == "elastic net":
            return ref.Penalty(thresholds=NET[0], modulus=NET[1])
        return ref.Penalty(
            thresholds=self.group_thresholds(), modulus=ROWS[1], axis=self.group_axis)

    def group_thresholds(self):
        return (ROWS[0],)

    @property
    def modulus(self):
        penalty = self.reference_penalty()
        return 1.0 if penalty is None else penalty.modulus

    def engine(self, name, seed=0, *, averaging=False, oracle=None, limit=None, cache=None, mu=None,
               features=None, **options):
        """With active sets where there is a limit; cache is None or (cache_F, cache_nu)."""
        features = self.features(**options) if features is None else features
        engine = BlockCoordinateEngine(
            self.surrogate(name, oracle), features, self.p, self.alpha, seed, averaging, mu)
        if limit is not None:
            engine.use_active_sets(limit, cache is not None, *(cache or (0.25, 0.01)))
        return engine

    def solve(self, name, oracle=None, **options):
        """The solution, and the weights that it leaves."""
        features = self.features()
        solution = solve(self.surrogate(name, oracle), features, self.p, self.alpha, **options)
        return solution, self.w(features)

    def w(self, features):
        """w in the reference's form; None where it is not held."""
        if features.weight_norm() is None:
            return None
        return tuple(np.array(part) for part in self.weights(features.present()))

    # dual points

    def pack(self, states):
        return np.concatenate([self.flat(state, i) for i, state in enumerate(states)])

    def unpack(self, mu):
        """The blocks' states of the engine's flat mu."""
        sizes = [self.flat(self.truth(i), i).size for i in range(self.n)]
        assert len(mu) == sum(sizes)
        cuts = np.cumsum(sizes)[:-1]
        return [self.parts(part, i) for i, part in enumerate(np.split(np.array(mu), cuts))]

    def truth(self, i):
        return self.indicator(i, np.atleast_1d(self.y[i]))

    def random_states(self, seed):
        """Mixtures of three outputs each."""
        rng, states = np.random.default_rng(seed), []
        for i in range(self.n):
            parts = [self.indicator(i, self.drawn(i, rng)) for _ in range(3)]
            share = rng.dirichlet(np.ones(3))
            states.append(tuple(
                sum(s * part for s, part in zip(share, of, strict=True))
                for of in zip(*parts, strict=True)))
        return states

    def answers(self, i):
        """What an adversary may answer: all outputs, or more."""
        return self.listed(i)

    def assert_feasible(self, mu):
        for i, state in enumerate(self.unpack(mu)):
            assert all(np.all(part >= -1e-12) for part in state)
            self.assert_consistent(i, *state)

    # atoms

    def held(self, sets):
        """(weight, height, flat point) of the atoms of each block."""
        state = sets.state()
        names = ("weight", "height", "length", "is_labelling")
        rows = zip(*(state[name].tolist() for name in names), strict=True)
        place, blocks = 0, []
        for i, count in enumerate(state["counts"]):
            blocks.append([])
            for weight, height, length, is_labelling in itertools.islice(rows, count):
                content = state["content"][place : place + length].tobytes()
                blocks[-1].append((weight, height, self.dense(content, is_labelling, i)))
                place += -(-length // 8) * 8
        assert place == len(state["content"])
        return blocks

    def dense(self, content, is_labelling, i):
        """A point of block i, flat as the engine's, of the bytes that an atom is kept in."""
        if is_labelling:
            return self.flat(self.indicator(i, np.frombuffer(content, np.uint16).astype(int)), i)
        n = len(content) // 12
        point = np.zeros(self.flat(self.truth(i), i).size)
        point[np.frombuffer(content[8 * n :], np.int32)] = np.frombuffer(content[: 8 * n])
        return point

    # by enumeration

    def optimum(self, name):
        """P*, by a generic solver over the probabilities of all outputs; both ends are bounds."""
        blocks, alpha, p = self.blocks(name), self.alpha, self.p
        truths = [blocks.truth(i) for i in range(self.n)]
        listed = [self.listed(i) for i in range(self.n)]
        moves = [
            blocks.features(i, tuple(
                a - b for a, b in zip(truths[i], self.indicator(i, y), strict=True)))
            for i in range(self.n) for y in listed[i]]
        block = np.repeat(np.arange(self.n), [len(of) for of in listed])
        # z = q' lift
        lift = np.array([np.concatenate([np.ravel(part) for part in move]) for move in moves])
        lift *= p[block, np.newaxis] / alpha
        losses = [
            np.array([[np.mean(self.cost[a, b]) for b in self.answers(i)] for a in of])
            for i, of in enumerate(listed)]
        cuts = np.cumsum([len(of) for of in listed])[:-1]
        of_truth = np.concatenate([
            [np.mean(self.cost[np.atleast_1d(true), b]) for b in of]
            for of, true in zip(listed, self.y, strict=True)])

        def weights(q):
            z, cut = [], 0
            for part in moves[0]:
                z.append((q @ lift[:, cut : cut + part.size]).reshape(part.shape))
                cut += part.size
            return tuple(z), blocks.prox(tuple(z))

        def penalty(q):
            """alpha Omega*(z), and its gradient in q."""
            z, w = weights(q)
            flat = np.concatenate([np.ravel(part) for part in w])
            return alpha * blocks.conjugate(z), alpha * (lift @ flat)

        def entropies(q):
            return -p[block] @ (q * np.log(np.maximum(q, 1e-300)))

        if name == "log":
            q = self._softmax_solver(block, lift, entropies, penalty)
            height = entropies(q)
        else:
            q = self._vertices_solver(name, block, losses, p[block] * of_truth, penalty)
            height = (p[block] * of_truth) @ q if name == "max_margin" else p @ [
                np.min(part @ loss)
                for part, loss in zip(np.split(q, cuts), losses, strict=True)]
        w = weights(q)[1]
        return Optimum(height - penalty(q)[0], blocks.examine(w)[2], w)

    def _softmax_solver(self, block, lift, entropies, penalty):
        """Probabilities q of all outputs, for entropies: over their logarithms, or over w."""
        def normed(theta):
            e = np.exp(theta - np.maximum.reduceat(theta, starts)[block])
            return e / np.bincount(block, weights=e)[block]

        p, starts = self.p[block], np.flatnonzero(np.diff(block, prepend=-1))

        def of_theta(theta):
            q = normed(theta)
            value, slope = penalty(q)
            slope = slope + p * (np.log(np.maximum(q, 1e-300)) + 1.0)
            mean = np.bincount(block, weights=q * slope)
            return value - entropies(q), q * (slope - mean[block])

        def of_w(w):
            # lift holds p / alpha (phi(y_b) - phi), so that losses are of minus its scores
            scores = -(self.alpha / p) * (lift @ w)
            value = self.p @ np.logaddexp.reduceat(scores, starts) + self.alpha / 2 * (w @ w)
            return value, self.alpha * (w - lift.T @ normed(scores))

        options = {"ftol": 1e-16, "gtol": 1e-9, "maxiter": 5000}
        if self.penalty in ("l2", "bounds"):
            bounds = None if self.penalty == "l2" else [BOX] * lift.shape[1]
            w = minimize(
                of_w, np.zeros(lift.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds,
                options=options).x
            return normed(-(self.alpha / p) * (lift @ w))
        return normed(minimize(
            of_theta, np.zeros(block.size), jac=True, method="L-BFGS-B",
            options={**options, "gtol": 1e-7}).x)

    def _vertices_solver(self, name, block, losses, slope, penalty):
        """Probabilities q of all outputs, for h that are piecewise linear in q."""
        n, m = block.size, self.n if name == "max_min" else 0
        member = np.zeros((self.n, n + m))
        member[block, np.arange(n)] = 1.0
        constraints = [{"type": "eq", "fun": lambda z: member @ z - 1.0, "jac": lambda z: member}]
        if m:
            # the least expected cost of an answer, one more variable a block
            slope = np.append(np.zeros(n), self.p)
            of_answers = np.repeat(np.eye(m), [loss.shape[1] for loss in losses], axis=0)
            over = np.hstack([block_diag(*[loss.T for loss in losses]), -of_answers])
            constraints.append({"type": "ineq", "fun": lambda z: over @ z, "jac": lambda z: over})

        def objective(z):
            value, gradient = penalty(z[:n])
            return value - slope @ z, np.append(gradient, np.zeros(m)) - slope

        start = np.append(1.0 / np.bincount(block)[block], np.zeros(m))
        found = minimize(
            objective, start, jac=True, method="SLSQP", constraints=constraints,
            bounds=[(0, None)] * n + [(None, None)] * m,
            options={"ftol": 1e-14, "maxiter": 1000}).x
        # feasible to the bit, so that the value is a bound wherever it ended
        q = np.maximum(found[:n], 0.0)
        return q / np.bincount(block, weights=q)[block]


class Labels(Problem):
    """One of k labels."""

    group_axis = 1

    def __init__(self, seed=0, n=6, d=3, k=3, *, alpha=0.05, penalty="l2", noise=1.0, cost=zero_one,
                 kernel=False, weighted=True, X=None):
        super().__init__(seed, n, alpha, penalty, weighted)
        self.X = self.rng.normal(size=(n, d)) if X is None else X
        self.d, self.k, self.kernel, self.cost = self.X.shape[1], k, kernel, cost(k)
        scores = self.X @ self.rng.normal(size=(self.d, k)) + noise * self.rng.normal(size=(n, k))
        self.y = np.argmax(scores, axis=1)

    def outputs(self):
        return SimplexOutputs(self.y, self.cost)

    def features(self):
        return vector_features(self, self.X, self.k)

    def blocks(self, name):
        return ref.SimplexBlocks(
            self.X, self.y, self.k, name, self.alpha, self.p, self.cost, self.reference_penalty())

    def listed(self, i):
        return np.arange(self.k)[:, np.newaxis]

    def drawn(self, i, rng):
        return rng.integers(self.k, size=1)

    def indicator(self, i, labels):
        return (np.eye(self.k)[labels[0]],)

    def flat(self, parts, i):
        return parts[0]

    def parts(self, point, i):
        return (point,)

    def assert_consistent(self, i, mu):
        assert_allclose(mu.sum(), 1.0, atol=1e-9)

    def weights(self, state):
        return (state["weights"][: self.d, : self.k],)


def vector_features(problem, X, k):
    """Of one vector an example: a linear map, or the linear kernel."""
    if problem.kernel:
        K = X @ X.T
        return KernelFeatures(np.diagonal(K).copy(), k, 0.0, gram=K)
    features = LinearFeatures(X, np.arange(len(X)), row_norms(X, 0.0), k, 0.0)
    if problem.penalty != "l2":
        features.set_penalty(
            problem.penalty_of(features.state()["weights"].shape, X.shape[1]))
    return features


class MirrorProxChains(ref.ChainBlocks):
    """Chains whose max-min oracle is mirror prox, from uniform starts."""

    n_iter = 8

    def oracle(self, i, v):
        nodes, edges, _, lower, upper = ref.max_min_mirror_prox_chain(*v, self.cost, self.n_iter)
        s = nodes, edges.sum(axis=0)
        return *s, lower - sum(np.sum(a * b) for a, b in zip(v, s, strict=True)), upper


class Chains(Problem):
    """Sequences of labels."""

    group_axis = 0

    def __init__(self, seed=0, lengths=(3, 1, 2, 3), d=3, R=2, *, alpha=0.1, penalty="l2",
                 noise=1.5, fit=ref.ChainWeights._fields, cost=random_cost, weighted=True):
        super().__init__(seed, len(lengths), alpha, penalty, weighted)
        self.lengths, self.d, self.R, self.fit = np.array(lengths), d, R, fit
        # quarters, which float32 holds as well, and some zeros
        values = np.round(4 * self.rng.normal(size=(sum(lengths), d))) / 4
        values[self.rng.random(values.shape) < 0.2] = 0.0
        self.X = np.split(values, np.cumsum(lengths)[:-1])
        truth = self.rng.normal(size=(d, R))
        self.y = [
            np.argmax(x @ truth + noise * self.rng.normal(size=(len(x), R)), axis=1)
            for x in self.X]
        self.cost = cost(R)
        self.stride = self.outputs().layout.stride

    def outputs(self):
        return ChainOutputs(np.concatenate(self.y), self.lengths, self.cost, cost_scale="mean")

    def features(self, form="dense64"):
        return self.penalised(ChainFeatures(
            FORMATS[form](np.concatenate(self.X)), *self.blocks_of_rows(),
            float("intercept" in self.fit), "start" in self.fit, "transitions" in self.fit))

    def blocks_of_rows(self):
        return np.cumsum(self.lengths) - self.lengths, self.outputs().layout

    def penalised(self, features):
        if self.penalty != "l2":
            state = features.state()
            features.set_penalty(self.penalty_of(state["weights"].shape, self.d))
            if features.edges is not None:
                features.edges.set_penalty(self.penalty_of(state["edges"].shape, self.d))
        return features

    def group_thresholds(self):
        return (ROWS[0], 0.0, 0.0, 0.0, 0.0)

    def blocks(self, name):
        cls = MirrorProxChains if name == "mirror_prox" else ref.ChainBlocks
        return cls(
            self.X, self.y, self.R, "max_min" if name == "mirror_prox" else name, self.alpha,
            self.p, self.cost, self.fit, penalty=self.reference_penalty())

    def listed(self, i):
        return np.array(list(itertools.product(range(self.R), repeat=self.lengths[i])))

    def drawn(self, i, rng):
        return rng.integers(self.R, size=self.lengths[i])

    def indicator(self, i, labels):
        nodes, edges = ref.chain_indicator(labels, self.R)
        return nodes, edges.sum(axis=0)

    def flat(self, parts, i):
        rows = np.concatenate([part.reshape(-1, self.R) for part in parts])
        padded = np.zeros((len(rows), self.stride), rows.dtype)
        padded[:, : self.R] = rows
        return padded.ravel()

    def parts(self, point, i):
        rows = point.reshape(-1, self.stride)
        assert not rows[:, self.R :].any()
        return rows[: self.lengths[i], : self.R], rows[self.lengths[i] :, : self.R]

    def assert_consistent(self, i, nodes, transitions):
        assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
        assert_allclose(transitions.sum(axis=1), nodes[:-1].sum(axis=0), atol=1e-9)
        assert_allclose(transitions.sum(axis=0), nodes[1:].sum(axis=0), atol=1e-9)

    def weights(self, state):
        rows, d = state["weights"][:, : self.R], self.d
        return ref.ChainWeights(rows[:d].T, rows[d], rows[d + 1], rows[d + 2], rows[d + 3 :])


class EdgeBlocks(ref.Blocks):
    """Chains whose transitions depend on the features of the position that they go to.

    w is (emissions, intercept, start, end, constant of transitions (R, R), theirs (R^2, d)); a
    point is (nodes, edges).
    """

    def __init__(self, X, y, n_labels, name, alpha, weights, cost, penalty):
        self.is_mirror_prox = name == "mirror_prox"
        super().__init__(
            len(y), "max_min" if self.is_mirror_prox else name, alpha, weights, penalty)
        self.X, self.y, self.R, self.cost = X, y, n_labels, cost

    def scores(self, i, w):
        unary, constant = ref.chain_scores(self.X[i], ref.ChainWeights(*w[:5]))
        return unary, constant + (self.X[i][1:] @ w[5].T).reshape(-1, self.R, self.R)

    def features(self, i, parts):
        nodes, edges = parts
        return *ref.chain_features(self.X[i], nodes, edges.sum(axis=0)), (
            edges.reshape(-1, self.R**2).T @ self.X[i][1:])

    def truth(self, i):
        return ref.chain_indicator(self.y[i], self.R)

    def point(self, i, state):
        if self.surrogate == "log":
            nodes, edges, _ = ref.sum_product(*state)
            return nodes, edges, ref.chain_entropy(nodes, edges)
        return *state, ref.ChainOutputs.concave_part(state, self.surrogate, self.y[i], self.cost)

    def oracle(self, i, v):
        if self.is_mirror_prox:
            nodes, edges, _, lower, upper = ref.max_min_mirror_prox_chain(*v, self.cost, 8)
            return nodes, edges, lower - np.sum(v[0] * nodes) - np.sum(v[1] * edges), upper
        if self.surrogate == "max_min":  # its edges are not told
            return ref.ChainOutputs.oracle(v, self.surrogate, self.y[i], self.cost)
        if self.surrogate == "log":
            nodes, edges, upper = ref.sum_product(*v)
            return nodes, edges, ref.chain_entropy(nodes, edges), upper
        costs = self.cost[self.y[i]] / len(self.y[i])
        path, upper = ref.viterbi(v[0] + costs, v[1])
        return *ref.chain_indicator(path, self.R), costs[np.arange(len(path)), path].sum(), upper


class Edges(Chains):
    """Sequences whose transitions have features."""

    def outputs(self):
        return ChainOutputs(np.concatenate(self.y), self.lengths, self.cost, True, "mean")

    def features(self, form="dense64"):
        X = FORMATS[form](np.concatenate(self.X))
        return self.penalised(ChainFeatures(
            X, *self.blocks_of_rows(), 1.0, True, True, edge_X=X))

    def group_thresholds(self):
        return (ROWS[0], 0.0, 0.0, 0.0, 0.0, ROWS[0])

    def blocks(self, name):
        return EdgeBlocks(
            self.X, self.y, self.R, name, self.alpha, self.p, self.cost, self.reference_penalty())

    def indicator(self, i, labels):
        return ref.chain_indicator(labels, self.R)

    def parts(self, point, i):
        nodes, edges = super().parts(point, i)
        return nodes, edges.reshape(-1, self.R, self.R)

    def assert_consistent(self, i, nodes, edges):
        assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
        assert_allclose(edges.sum(axis=2), nodes[:-1], atol=1e-9)
        assert_allclose(edges.sum(axis=1), nodes[1:], atol=1e-9)

    def weights(self, state):
        rows, d, R = state["weights"][:, : self.R], self.d, self.R
        of_edges = state["edges"].reshape(d + 1, R, -1)[:, :, :R].reshape(d + 1, R * R)
        return (rows[:d].T, rows[d], rows[d + 1], rows[d + 2], of_edges[d].reshape(R, R),
                of_edges[:d].T)


class ForestBlocks(ref.Blocks):
    """Forests whose nodes and edges have features.

    w is (scores of nodes (R, d), constant (R,), constant of edges (R, R), theirs (R^2, d)); a point
    is (nodes, pairs).
    """

    def __init__(self, problem, name):
        super().__init__(
            problem.n, name, problem.alpha, problem.p, problem.reference_penalty())
        self.X, self.edge_X, self.y = problem.X, problem.edge_X, problem.y
        self.R, self.cost = problem.R, problem.cost
        self.of_graph = [ref.ForestOutputs.of_edges(edges) for edges in problem.edges]

    def scores(self, i, w):
        tables = w[2] + (self.edge_X[i] @ w[3].T).reshape(-1, self.R, self.R)
        return self.X[i] @ w[0].T + w[1], tables

    def features(self, i, parts):
        nodes, pairs = parts
        return (
            nodes.T @ self.X[i], nodes.sum(axis=0), pairs.sum(axis=0),
            pairs.reshape(-1, self.R**2).T @ self.edge_X[i])

    def truth(self, i):
        return ref.forest_indicator(self.y[i], self.of_graph[i].edges, self.R)

    def point(self, i, state):
        if self.surrogate == "log":
            return self.of_graph[i].gibbs(state)[:-1]
        return *state, self.of_graph[i].concave_part(state, self.surrogate, self.y[i], self.cost)

    def oracle(self, i, v):
        return self.of_graph[i].oracle(v, self.surrogate, self.y[i], self.cost)


class Forests(Chains):
    """Graphs without cycles, edges in both directions, some nodes without edges."""

    trees = ([[1, 0], [1, 2], [3, 1]], [], [[0, 2]], [[2, 1], [2, 0]])

    def __init__(self, seed=0, d=3, R=2, **options):
        super().__init__(seed, (4, 1, 3, 3), d, R, **options)
        self.edges = [np.reshape(edges, (-1, 2)).astype(int) for edges in self.trees]
        self.edge_X = [np.round(4 * self.rng.normal(size=(len(e), d))) / 4 for e in self.edges]

    def outputs(self):
        edges = [np.reshape(edges, (-1, 2)).astype(int) for edges in self.trees]
        return ForestOutputs(
            np.concatenate(self.y), self.lengths, np.concatenate(edges),
            [len(e) for e in edges], self.cost, cost_scale="mean")

    def features(self, form="dense64"):
        counts = np.array([len(edges) for edges in self.edges])
        return self.penalised(GraphFeatures(
            FORMATS[form](np.concatenate(self.X)), *self.blocks_of_rows(), 1.0,
            FORMATS[form](np.concatenate(self.edge_X)), np.cumsum(counts) - counts, counts, 1.0))

    def group_thresholds(self):
        return (ROWS[0], 0.0, 0.0, ROWS[0])

    def blocks(self, name):
        return ForestBlocks(self, name)

    def indicator(self, i, labels):
        return ref.forest_indicator(labels, self.edges[i], self.R)

    def parts(self, point, i):
        nodes, pairs = super().parts(point, i)
        return nodes, pairs.reshape(-1, self.R, self.R)

    def assert_consistent(self, i, nodes, pairs):
        assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
        assert_allclose(pairs.sum(axis=2), nodes[self.edges[i][:, 0]], atol=1e-9)
        assert_allclose(pairs.sum(axis=1), nodes[self.edges[i][:, 1]], atol=1e-9)

    def weights(self, state):
        rows, d, R = state["weights"][:, : self.R], self.d, self.R
        of_edges = state["edges"].reshape(d + 1, R, -1)[:, :, :R].reshape(d + 1, R * R)
        return rows[:d].T, rows[d], of_edges[d].reshape(R, R), of_edges[:d].T


class Permutations(Problem):
    """Positions of items, with features of each pair."""

    def __init__(self, seed=0, sizes=(3, 1, 2, 3), d=3, *, alpha=0.1, penalty="l2", noise=2.0,
                 cost=random_cost, kernel=False, weighted=True):
        super().__init__(seed, len(sizes), alpha, penalty, weighted)
        self.sizes, self.kernel, self.cost = np.array(sizes), kernel, cost(max(sizes))
        self.make(d, noise)

    def make(self, d, noise):
        self.X = [self.rng.normal(size=(M, M, d)) for M in self.sizes]
        truth = self.rng.normal(size=d)
        self.y = self.best_of([x @ truth for x in self.X], noise)

    def best_of(self, scores, noise):
        return [
            ref.best_permutation(v + noise * self.rng.normal(size=v.shape))[0] for v in scores]

    def outputs(self):
        return PermutationOutputs(np.concatenate(self.y), self.sizes, self.cost, "mean")

    def features(self):
        rows = np.concatenate([x.reshape(-1, x.shape[-1]) for x in self.X])
        layout = self.outputs().layout
        if self.kernel:
            return PairKernelFeatures(rows @ rows.T, layout)
        features = PairFeatures(rows, np.cumsum(layout.sizes()) - layout.sizes(), layout)
        if self.penalty != "l2":
            features.set_penalty(self.penalty_of((1, rows.shape[1]), 0))
        return features

    def blocks(self, name):
        return ref.PermutationBlocks(
            self.X, self.y, name, self.alpha, self.p, self.cost, self.reference_penalty())

    def listed(self, i):
        return np.array(list(itertools.permutations(range(self.sizes[i]))))

    def drawn(self, i, rng):
        return rng.permutation(self.sizes[i])

    def indicator(self, i, labels):
        return (ref.permutation_indicator(labels),)

    def flat(self, parts, i):
        return parts[0].ravel()

    def parts(self, point, i):
        return (point.reshape(self.sizes[i], -1),)

    def assert_consistent(self, i, mu):
        assert_allclose(mu.sum(axis=0), 1.0, atol=1e-9)
        assert_allclose(mu.sum(axis=1), 1.0, atol=1e-9)

    def weights(self, state):
        return (state["weights"][0],)


class Matchings(Permutations):
    """Columns of rows that may stay unmatched, with features of each pair and of each row."""

    def __init__(self, seed=0, shapes=((2, 3), (1, 1), (3, 2), (2, 2)), d=3, *, complete=False,
                 scale="mean", **options):
        self.shapes, self.complete, self.scale = np.array(shapes), complete, scale
        options.setdefault("cost", zero_one)
        super().__init__(seed, self.shapes[:, 1] + 1, d, **options)

    def make(self, d, noise):
        self.X = [self.rng.normal(size=(n, m + 1, d)) for n, m in self.shapes]
        truth = self.rng.normal(size=d)
        self.y = self.best_of([x @ truth for x in self.X], noise)

    def best_of(self, scores, noise):
        return [
            ref.best_matching(v + noise * self.rng.normal(size=v.shape), self.complete)[0]
            for v in scores]

    def outputs(self):
        return MatchingOutputs(
            np.concatenate(self.y), *self.shapes.T, self.cost, self.scale,
            is_complete=self.complete)

    def blocks(self, name):
        return ref.MatchingBlocks(
            self.X, self.y, self.complete, surrogate=name, alpha=self.alpha, weights=self.p,
            cost=self.cost, penalty=self.reference_penalty())

    def listed(self, i):
        return ref.list_matchings(*self.shapes[i], self.complete)

    def drawn(self, i, rng):
        return rng.permutation(self.listed(i))[0]

    def indicator(self, i, labels):
        return (ref.matching_indicator(labels, self.shapes[i, 1]),)

    def parts(self, point, i):
        return (point.reshape(self.shapes[i, 0], -1),)

    def assert_consistent(self, i, mu):
        assert_allclose(mu.sum(axis=1), 1.0, atol=1e-9)
        assert mu[:, :-1].sum(axis=0).max(initial=0.0) <= 1.0 + 1e-9


class VectorBlocks(ref.PermutationBlocks):
    """Permutations of the scores x w, w being (d, M M)."""

    def scores(self, i, w):
        return ((self.X[i] @ w[0]).reshape(self.truth(i)[0].shape),)

    def features(self, i, parts):
        return (np.outer(self.X[i], parts[0]),)


class Rankings(Permutations):
    """Positions of M items, from one vector an example."""

    group_axis = 1

    def __init__(self, seed=0, n=5, M=3, *, alpha=0.03, **options):
        super().__init__(seed, (M,) * n, alpha=alpha, **options)

    def make(self, d, noise):
        M = self.sizes[0]
        self.X = self.rng.normal(size=(self.n, d))
        truth = self.rng.normal(size=(d, M * M))
        self.y = self.best_of((self.X @ truth).reshape(-1, M, M), noise)

    def features(self):
        return vector_features(self, self.X, self.sizes[0] ** 2)

    def blocks(self, name):
        return VectorBlocks(
            self.X, self.y, name, self.alpha, self.p, self.cost, self.reference_penalty())

    def weights(self, state):
        return (state["weights"][: self.X.shape[1], : self.sizes[0] ** 2],)


KINDS = {
    "labels": Labels,
    "levels": functools.partial(Labels, cost=absolute),
    "costs": functools.partial(Labels, cost=random_cost),
    "chains": Chains,
    "edges": Edges,
    "forests": Forests,
    "pairs": Permutations,
    "matchings": functools.partial(Matchings, shapes=((2, 2), (3, 2), (1, 2)), cost=random_cost),
    "rankings": Rankings,
    "labels, kernel": functools.partial(Labels, kernel=True),
    "pairs, kernel": functools.partial(Permutations, kernel=True),
    "rankings, kernel": functools.partial(Rankings, kernel=True),
}
