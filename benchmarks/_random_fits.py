"""Whole fits of `GraphTagger` on tiny graphs, and their optima by generic solvers.

The objective is written out over all labellings, or as a linear program over the local polytope;
Clarabel solves it for max-margin and max-min, L-BFGS-B for log.
"""

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from _random_graphs import Graph, all_labels, costs_of, game_value, local_value, scores_of
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning

from fastm4n import GraphTagger
from fastm4n.inference.decomposition import reweighted_marginals
from fastm4n.penalties import L2, ElasticNet

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from graph_cases import node_scores, pair_scores, random_graphs

FAMILIES = ("coef_", "intercept_", "edge_coef_", "edge_intercept_")
SURROGATES = {
    "forest": ("max_margin", "max_min", "log"), "min_cut": ("max_margin", "max_min"),
    "few_states": ("max_margin", "max_min", "log"), "roof": ("max_margin", "max_min"),
    "decomposition": ("max_margin", "max_min", "log"),
}
PENALTIES = ("l2", "bounds", "elastic net", "both")
# of the generic solvers, as a share of the objective
ACCURACY = 1e-6


def random_task(rng, oracle, surrogate):
    """A tagger, graphs, labels and weights of graphs."""
    pairwise = str(rng.choice(["full", "symmetric", "potts", "attractive", "displacement"]))
    if oracle == "min_cut":
        pairwise = "attractive"
    tables_alone = oracle == "decomposition" and surrogate == "log"
    if tables_alone:
        pairwise = str(rng.choice(["full", "symmetric"]))
    labels = 2 if oracle in ("min_cut", "roof") else int(rng.integers(2, 4))
    if oracle == "decomposition" and not tables_alone:
        labels = 3
    grid = None
    if pairwise == "displacement":
        grid = [(1, labels), (labels, 1)][rng.integers(2)]
        if labels == 3 and rng.random() < 0.3:
            grid, labels = (2, 2), 4
    n_types = 1 if pairwise == "displacement" else int(rng.choice([1, 1, 2]))
    X, y = random_graphs(
        int(rng.integers(2**31)), n=int(rng.integers(4, 9)), labels=labels,
        n_features=int(rng.integers(1, 4)),
        n_edge_features=int(rng.integers(1, 3)) if tables_alone else int(rng.choice([0, 0, 1, 2])),
        n_types=n_types, n_edge_types=int(rng.integers(1, 3)), weights=bool(rng.random() < 0.4),
        most=5 if labels == 2 else 4, density=float(rng.choice([0.5, 1.0])),
        forest=oracle == "forest")
    inference = {"forest": "auto", "min_cut": "min_cut", "few_states": "exact"}.get(oracle, "lp")
    bounds = (-0.3, 0.4) if rng.random() < 0.5 else (0.0, None)
    penalty = {
        "l2": "l2", "bounds": L2(bounds=bounds), "elastic net": ElasticNet(rng.uniform(0.1, 0.9)),
        "both": ElasticNet(rng.uniform(0.1, 0.9), bounds=bounds),
    }[str(rng.choice(PENALTIES))]
    cost = "zero_one"
    if n_types == 1 and rng.random() < 0.5:
        k = labels if grid else len(set(y.values.tolist()))
        cost = (1.0 - np.eye(k)) * rng.exponential(size=(k, k))
    tagger = GraphTagger(
        surrogate, alpha=float(10.0 ** rng.uniform(-2.0, 0.5)), cost=cost,
        cost_scale=str(rng.choice(["sum", "mean"])), pairwise=pairwise, grid_shape=grid,
        inference=inference, fit_intercept=bool(rng.random() < 0.7), penalty=penalty,
        tol=float(10.0 ** rng.uniform(-5.0, -2.0)), max_iter=2000,
        random_state=int(rng.integers(1000)))
    weights = rng.integers(0, 4, len(X)) + 0.5 if rng.random() < 0.3 else None
    return tagger, X, y, weights


class Objective:
    """mean loss + alpha Omega over the weights of a fit, as one vector.

    Each graph is written as a table of features for each node and each edge, labels numbered
    within their type of node.
    """

    def __init__(self, tagger, X, y, weights):
        self.surrogate, self.alpha = tagger.surrogate, tagger.alpha_
        sizes = [getattr(tagger, name).size for name in FAMILIES]
        self.n_weights = sum(sizes)
        self.w = np.concatenate([getattr(tagger, name).ravel() for name in FAMILIES])
        self.penalise(tagger, sizes)
        kept = [i for i in range(len(X)) if X.lengths[i]]
        share = np.ones(len(X)) if weights is None else weights
        self.share = share[kept] / share[kept].sum()
        self.graphs, self.features = [], []
        for i in kept:
            self.add(tagger, X, y, i)

    def penalise(self, tagger, sizes):
        """Bounds, thresholds and the modulus of Omega."""
        ratio = getattr(tagger.penalty, "l1_ratio", 0.0)
        self.modulus = 1.0 - ratio
        edge = (None, None)
        if tagger.pairwise == "attractive":
            edge = 0.0, None
        lower, upper, thresholds = [], [], []
        given = getattr(tagger.penalty, "bounds", None)
        constant = (None, None) if tagger.fit_intercept else (0.0, 0.0)
        pairs = {"coef_": given or (None, None), "intercept_": constant}
        for name, size in zip(FAMILIES, sizes, strict=True):
            low, high = pairs.get(name, edge)
            lower.append(np.full(size, -np.inf if low is None else low))
            upper.append(np.full(size, np.inf if high is None else high))
            if tagger.pairwise == "displacement" and name.startswith("edge"):
                upper[-1] = np.tile([np.inf, 0.0, np.inf, 0.0], size // 4)
            thresholds.append(np.full(size, 0.0 if name == "intercept_" else ratio))
        self.lower, self.upper, self.thresholds = map(np.concatenate, (lower, upper, thresholds))

    def add(self, tagger, X, y, i):
        graph, P = X[i], self.n_weights
        classes, R = tagger.node_classes_, tagger.node_classes_.shape[1]
        n, m = len(graph.node_features), len(graph.edges)
        types = np.zeros(n, dtype=int) if X.node_types is None else graph.node_types
        nodes, tables = np.zeros((n, R, P)), np.zeros((m, R, R, P))
        names = ("classes_", "node_classes_", "pairwise", "label_features", "grid_shape", "shifts_")
        unit = SimpleNamespace(**{name: getattr(tagger, name, None) for name in names})
        place = 0
        for family in FAMILIES:
            shape = getattr(tagger, family).shape
            for name in FAMILIES:
                setattr(unit, name, np.zeros(getattr(tagger, name).shape))
            for index in np.ndindex(*shape):
                weights = np.zeros(shape)
                weights[index] = 1.0
                if family.startswith("edge"):
                    if tagger.pairwise == "symmetric":
                        weights = 0.5 * (weights + weights.swapaxes(1, 2))
                    setattr(unit, family, weights)
                    for e, (first, second) in enumerate(graph.edges):
                        found = pair_scores(unit, graph, e)
                        rows, columns = classes[types[first]], classes[types[second]]
                        there = np.ix_(rows[rows >= 0], columns[columns >= 0])
                        part = found[there]
                        tables[e, : part.shape[0], : part.shape[1], place] = part
                else:
                    setattr(unit, family, weights)
                    found = node_scores(unit, X, i)
                    for t in range(n):
                        row = classes[types[t]]
                        row = row[row >= 0]
                        nodes[t, : row.size, place] = found[t, row]
                place += 1
        choices = tuple(int((classes[t] >= 0).sum()) for t in types)
        truth = np.searchsorted(tagger.classes_, y[i])
        local = np.array([
            np.flatnonzero(classes[t] == c)[0] for t, c in zip(types, truth, strict=True)])
        same = np.array_equal(classes, np.broadcast_to(np.arange(len(tagger.classes_)), (
            len(classes), len(tagger.classes_))))
        om = np.ones(n) if X.node_weights is None else graph.node_weights
        self.graphs.append(Graph(
            "tables", choices, np.asarray(graph.edges), local,
            tagger.cost_matrix_ if same else 1.0 - np.eye(R),
            om / n if tagger.cost_scale == "mean" else om, None, None, None, None, R,
            np.zeros(0)))
        self.features.append((nodes, tables))

    def at(self, w):
        """The graphs with their scores."""
        return [
            graph._replace(nodes=nodes @ w, tables=tables @ w)
            for graph, (nodes, tables) in zip(self.graphs, self.features, strict=True)]

    def phis(self, i):
        """Features of all labellings less those of the true one, and the labellings."""
        graph, (nodes, tables) = self.graphs[i], self.features[i]
        labels = all_labels(graph.choices)

        def of(labels):
            total = sum(nodes[t][labels[:, t]] for t in range(len(nodes)))
            for e, (first, second) in enumerate(graph.edges):
                total = total + tables[e][labels[:, first], labels[:, second]]
            return total

        return of(labels) - of(graph.y[np.newaxis]), labels

    def omega(self, w):
        return self.alpha * (
            0.5 * self.modulus * w @ w + self.thresholds @ np.abs(w))

    def value(self, w, local=False):
        """(low, high): bounds of the objective at w, over labellings or the local polytope."""
        bounds = np.array([self.loss(graph, local) for graph in self.at(w)])
        return tuple(self.share @ bounds + self.omega(w))

    def loss(self, graph, local):
        truth = scores_of(graph, graph.y[np.newaxis])[0]
        if local and self.surrogate == "log":
            tables = [
                table[: graph.choices[i], : graph.choices[j]]
                for (i, j), table in zip(graph.edges, graph.tables, strict=True)]
            found = reweighted_marginals(
                [row[:c] for row, c in zip(graph.nodes, graph.choices, strict=True)], graph.edges,
                tables or graph.tables, tol=1e-9)
            return found.upper - truth, found.upper - truth
        if local:
            low, high = local_value(graph, self.surrogate == "max_min")
            return low - truth, high - truth
        labels = all_labels(graph.choices)
        scores = scores_of(graph, labels)
        if self.surrogate == "max_min":
            low, high = game_value(graph)
            return low - truth, high - truth
        found = logsumexp(scores) if self.surrogate == "log" else (
            scores + costs_of(graph, labels)).max()
        return found - truth, found - truth

    # ---------------------------------------------------------------- generic solvers

    def solve(self, local=False):
        """Weights that are optimal to a generic solver."""
        if self.surrogate == "log":
            return self.by_lbfgs()
        w = self.by_clarabel(local)
        return np.clip(w, self.lower, self.upper)

    def by_lbfgs(self):
        phis = [self.phis(i)[0] for i in range(len(self.graphs))]
        P = self.n_weights

        def objective(z):
            w = z[:P] - z[P:]
            value = self.alpha * (0.5 * self.modulus * w @ w + self.thresholds @ (z[:P] + z[P:]))
            slope = self.alpha * self.modulus * w
            for share, phi in zip(self.share, phis, strict=True):
                scores = phi @ w
                value += share * logsumexp(scores)
                slope += share * (phi.T @ softmax(scores))
            extra = self.alpha * self.thresholds
            return value, np.concatenate([slope + extra, -slope + extra])

        # bounds of a sign each: w = positive - negative part, one of which is held
        low, high = self.lower, self.upper
        start = np.concatenate([np.maximum(low, 0.0), np.maximum(-high, 0.0)])
        bounds = [(max(a, 0.0), max(b, 0.0)) for a, b in zip(low, high, strict=True)] + [
            (max(-b, 0.0), max(-a, 0.0)) for a, b in zip(low, high, strict=True)]
        found = minimize(
            objective, start, jac=True, bounds=bounds, method="L-BFGS-B",
            options=dict(maxiter=20000, maxfun=50000, ftol=1e-15, gtol=1e-10, maxcor=30))
        return found.x[:P] - found.x[P:]

    def by_clarabel(self, local):
        import clarabel

        P, problem = self.n_weights, Program()
        w = problem.variables(P, quadratic=self.alpha * self.modulus)
        size = problem.variables(P, linear=self.alpha * self.thresholds)
        for j in np.flatnonzero(self.thresholds):
            problem.at_most({w[j]: 1.0, size[j]: -1.0}, 0.0)
            problem.at_most({w[j]: -1.0, size[j]: -1.0}, 0.0)
        for j in np.flatnonzero(self.thresholds == 0.0):
            problem.equal({size[j]: 1.0}, 0.0)
        for j in np.flatnonzero(np.isfinite(self.lower)):
            problem.at_most({w[j]: -1.0}, -self.lower[j])
        for j in np.flatnonzero(np.isfinite(self.upper)):
            problem.at_most({w[j]: 1.0}, self.upper[j])
        for i, share in enumerate(self.share):
            answers = self.answers(problem, i)
            if local:
                self.local_rows(problem, i, share, w, answers)
            else:
                self.labelling_rows(problem, i, share, w, answers)
        return problem.solve(clarabel)[:P]

    def answers(self, problem, i):
        """Variables of the adversary's distribution at each node; None for max-margin."""
        if self.surrogate == "max_margin":
            return None
        out = []
        for c in self.graphs[i].choices:
            q = problem.variables(c)
            problem.equal({j: 1.0 for j in q}, 1.0)
            for j in q:
                problem.at_most({j: -1.0}, 0.0)
            out.append(q)
        return out

    def cost_terms(self, i, t, a, answers):
        """Cost of label a at node t: a dict of variables, and a number."""
        graph = self.graphs[i]
        if answers is None:
            return {}, graph.om[t] * graph.cost[graph.y[t], a]
        return {q: graph.om[t] * graph.cost[a, j] for j, q in enumerate(answers[t])}, 0.0

    def labelling_rows(self, problem, i, share, w, answers):
        phi, labels = self.phis(i)
        (xi,) = problem.variables(1, linear=share)
        for row, label in zip(phi, labels, strict=True):
            terms, number = {xi: -1.0}, 0.0
            terms.update(zip(w, row, strict=True))
            for t, a in enumerate(label):
                more, cost = self.cost_terms(i, t, a, answers)
                number += cost
                terms.update(more)
            problem.at_most(terms, -number)

    def local_rows(self, problem, i, share, w, answers):
        graph, (nodes, tables) = self.graphs[i], self.features[i]
        n, m, k = len(nodes), len(tables), nodes.shape[1]
        tops = problem.variables(n, linear=share)
        pair_tops = problem.variables(m, linear=share)
        messages = np.array(problem.variables(2 * m * k)).reshape(m, 2, k)
        truth = sum(nodes[t, a] for t, a in enumerate(graph.y))
        for e, (first, second) in enumerate(graph.edges):
            truth = truth + tables[e, graph.y[first], graph.y[second]]
        problem.add_linear(w, -share * truth)
        for t in range(n):
            for a in range(graph.choices[t]):
                terms, number = self.cost_terms(i, t, a, answers)
                terms = {**terms, tops[t]: -1.0, **dict(zip(w, nodes[t, a], strict=True))}
                for e, ends in enumerate(graph.edges):
                    for side in range(2):
                        if ends[side] == t:
                            terms[messages[e, side, a]] = 1.0
                problem.at_most(terms, -number)
        for e, (first, second) in enumerate(graph.edges):
            for a in range(graph.choices[first]):
                for b in range(graph.choices[second]):
                    problem.at_most({
                        pair_tops[e]: -1.0, messages[e, 0, a]: -1.0, messages[e, 1, b]: -1.0,
                        **dict(zip(w, tables[e, a, b], strict=True))}, 0.0)


class Program:
    """A quadratic program: rows of <= and =, variables one after another."""

    def __init__(self):
        self.quadratic, self.linear = [], []
        self.rows = {"=": [], "<": []}

    def variables(self, count, linear=0.0, quadratic=0.0):
        first = len(self.linear)
        self.linear += np.broadcast_to(linear, count).tolist()
        self.quadratic += [quadratic] * count
        return list(range(first, first + count))

    def add_linear(self, variables, numbers):
        for j, number in zip(variables, numbers, strict=True):
            self.linear[j] += number

    def equal(self, terms, number):
        self.rows["="].append((terms, number))

    def at_most(self, terms, number):
        self.rows["<"].append((terms, number))

    def solve(self, clarabel):
        rows = self.rows["="] + self.rows["<"]
        where = np.array([
            (r, j, value) for r, (terms, _) in enumerate(rows) for j, value in terms.items()
            if value])
        n = len(self.linear)
        A = sparse.csc_matrix(
            (where[:, 2], (where[:, 0].astype(int), where[:, 1].astype(int))), (len(rows), n))
        cones = [clarabel.ZeroConeT(len(self.rows["="])),
                 clarabel.NonnegativeConeT(len(self.rows["<"]))]
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
        settings.max_threads = 1
        found = clarabel.DefaultSolver(
            sparse.diags(self.quadratic, format="csc"), np.array(self.linear), A,
            np.array([number for _, number in rows]), cones, settings).solve()
        return np.array(found.x)


def run_fit(tally, oracle, surrogate, rng):
    """Fit one random task, and check its certificate against the generic solver's optimum."""
    tagger, X, y, weights = random_task(rng, oracle, surrogate)
    tally.at += (
        f", {tagger.pairwise}, alpha {tagger.alpha:.2g}, {tagger.penalty}, {tagger.cost_scale}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(X, y, sample_weight=weights)
    if tagger.oracle_ != oracle:
        return False
    tally.graphs += 1
    objective = Objective(tagger, X, y, weights)
    # column generation is over labellings, and so is the exact objective
    local = oracle in ("roof", "decomposition") and (oracle, surrogate) != (
        "decomposition", "max_min")
    w, primal, dual = objective.w, tagger.primal_objective_, tagger.dual_objective_
    size = 1.0 + abs(primal)
    tally.gap = max(tally.gap, tagger.duality_gap_)
    exact = objective.value(w)
    reached = objective.value(w, local) if local else exact
    tally.at_most("exact objective and its bound", exact[0], primal, size, 1e-9)
    tally.at_most("objective and its bound", reached[0], primal, size, 1e-8)
    if surrogate != "max_min" and not (surrogate == "log" and local):
        accuracy = tagger.duality_gap_ / size if local else 0.0
        tally.close("objective", primal, reached[1], size, 1e-8 + accuracy)
    if surrogate == "max_margin" and local and tagger.integrality_gap_ is not None:
        tally.at_most(
            "integrality gap", reached[0] - exact[1], tagger.integrality_gap_, size, 1e-8)
    found = objective.solve(local)
    best = objective.value(found, local)
    tally.at_most("dual objective and that of generic weights", dual, best[1], size, 1e-9)
    tally.at_most("dual objective and that of the weights", dual, reached[1], size, 1e-9)
    if surrogate == "log" and local:
        return True
    tally.at_most("generic optimum and the primal objective", best[0], primal, size, ACCURACY)
    tally.at_most(
        "suboptimality and the gap", reached[0] - best[1], tagger.duality_gap_, size, 1e-8)
    tally.error = max(tally.error, (best[0] - primal) / size, (dual - best[1]) / size)
    return True
