"""Label sets with soft constraints: their factor graphs, linear weights or a kernel."""

from dataclasses import dataclass

import numpy as np

from fastm4n.base.label_costs import as_costs
from fastm4n.factors import CountFactor
from fastm4n.research._factor_graphs import FactorGraphs
from fastm4n.research._soft import SoftProblem, with_constant
from fastm4n.solvers.choice import as_solver
from fastm4n.tasks.kernels import kernel_parameters, whole_gram


@dataclass
class SoftLabelProblem(SoftProblem):
    """The problem of a `MultiLabelClassifier` with ``inference="soft"``.

    Attributes
    ----------
    constant : float
        Value of the constant feature, 0 for none.
    """

    constant: float

    def weights_of(self, node_weights, factor_weights):
        if self.kernel != "linear":
            return {
                "dual_coef_": self.blocks.spread(node_weights.T),
                "intercept_": self.constant**2 * node_weights.sum(axis=1),
                "edge_coef_": factor_weights.ravel(),
            }
        n_labels, d = node_weights.shape[0], node_weights.shape[1] - bool(self.constant)
        intercept = np.zeros(n_labels)
        if self.constant:
            intercept = self.constant * node_weights[:, d]
        return {
            "coef_": np.ascontiguousarray(node_weights[:, :d]), "intercept_": intercept,
            "edge_coef_": factor_weights.ravel(),
        }


def check_soft_constraints(inference, constraints):
    """Refuse constraints that soft fits have not."""
    if inference != "soft":
        return
    for number, factor in enumerate(constraints):
        if not isinstance(factor, CountFactor):
            raise ValueError(
                "inference='soft' has constraints that are counts, and constraints"
                f"[{number}] is a {type(factor).__name__}: use CountFactor, or inference='exact'.")


def soft_label_problem(clf, X, Y, blocks, common, constraints):
    """The `SoftLabelProblem` of these sets; constraints are a tuple of CountFactor, or None."""
    n, n_labels = Y.shape
    graphs = FactorGraphs.of_pairs(n, n_labels, common["edges_"])
    if constraints is not None:
        graphs = graphs.with_counts([constraints] * n)
    if clf.kernel == "linear":
        # refuses features that are too large
        constant = clf._features(X, blocks.examples, blocks.weights, n_labels)[2]
        of_nodes = with_constant(X[blocks.examples], constant)
    else:
        constant = clf._constant()
        of_nodes, common = _gram(clf, X, blocks, constant, common)
    heights = graphs.heights_of_costs(Y.ravel(), as_costs(common["_cost_held"]))
    return SoftLabelProblem(
        None, None, blocks, common, {}, graphs, of_nodes, None, Y.ravel(), heights,
        "linear" if clf.kernel == "linear" else "precomputed", constant)


def _gram(clf, X, blocks, constant, common):
    """Kernel values of the blocks with the constant feature's, and what predictions need."""
    samples, parameters = blocks.examples, {}
    if clf.kernel == "precomputed":
        points = X[np.ix_(samples, samples)]
    else:
        points = X[samples]
        parameters = kernel_parameters(
            clf.kernel, points, blocks.weights, gamma=clf.gamma, kernel_params=clf.kernel_params)
        common = {**common, "X_fit_": X.copy()}  # the caller may change what is theirs
    gram = whole_gram(
        clf.kernel, parameters, points, constant, clf.alpha,
        as_solver(clf.solver).kernel_cache_size)
    return gram, {**common, "_kernel_parameters": parameters}
