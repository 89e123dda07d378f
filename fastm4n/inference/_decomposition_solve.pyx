"""Linear programs over the local polytope, and the reweighted sum-product, of a `GraphProblem`."""

import numpy as np

from libc.math cimport INFINITY

from fastm4n.inference._decomposition cimport Decomposition
from fastm4n.inference._graph cimport EQUAL, TABLES, graph_t
from fastm4n.inference._problem cimport GraphProblem
from fastm4n.inference._reweighted cimport Reweighted, forests_t

from fastm4n.inference._reweighted import spanning_forests

# errors below this share of what proves a labelling best are left, and primal-dual iterations are
# no more than these
LP_SHARE = 0.4
LP_ITERATIONS = 2000
TRW_TOL = 1e-9
TRW_SWEEPS = 500


def relax(GraphProblem problem, double tol, Py_ssize_t max_sweeps, Py_ssize_t max_iterations,
          messages=None):
    """What `decomposition.maximise_relaxation` returns, in rows of stride numbers."""
    cdef double[:, ::1] kept = np.zeros((2 * problem.n_edges + 1, problem.stride))
    cdef Decomposition scratch
    cdef double lower, upper, value
    cdef Py_ssize_t n = problem.n_nodes, m = problem.n_edges
    if n == 0:
        return (np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0, np.zeros((0, problem.stride)),
                np.zeros((0, problem.stride, problem.stride)), 0, 0, np.asarray(kept)[:-1])
    if messages is not None:
        np.asarray(kept)[:-1, :messages.shape[1]] = messages
    scratch = Decomposition(n, m, problem.n_labels, problem.stride)
    with nogil:
        scratch.maximise(
            &problem.g, problem.node_scores(), problem.edge_scores(), &kept[0, 0], -1e300, 0.0,
            tol, max_sweeps, max_iterations, &lower, &upper)
        value = scratch.score(&scratch.labels[0])
    labels = np.array(scratch.labels[:n], dtype=np.intp)
    if scratch.is_labelling:
        nodes = np.zeros((n, problem.stride))
        tables = np.zeros((m, problem.stride, problem.stride))
        nodes[np.arange(n), labels] = 1.0
        ends = labels[problem.edges]
        tables[np.arange(m), ends[:, 0], ends[:, 1]] = 1.0
    else:
        nodes = np.array(scratch.p).reshape(n, -1)
        tables = np.array(scratch.q).reshape(m, problem.stride, -1)
    return (labels, value, lower, upper, nodes, tables, scratch.n_sweeps, scratch.n_iterations,
            np.asarray(kept)[:-1])


def refuses_size(GraphProblem problem):
    """Messages are at most four times the sum of all scores: where that overflows, say so."""
    cdef double total = 0.0
    for sizes in (np.abs(problem.unary), np.abs(problem.more)):
        with np.errstate(over="ignore"):
            total += 4.0 * np.sum(sizes, where=sizes < np.inf)
    return None if total < INFINITY else "the sum of its scores overflows"


def refuses_lp(GraphProblem problem):
    return refuses_size(problem) if problem.factors is None else "there are factors"


def solve_lp(GraphProblem problem):
    """labels, value, bound: by sweeps, and where those leave a gap to the linear program's end."""
    labels, value, _, bound, *_, messages = relax(problem, 0.0, 100, 0)
    tol = LP_SHARE * problem.slack(value) if value > -np.inf else 0.0
    if bound - value > tol and bound > -np.inf:
        other, better, _, upper, *_ = relax(problem, tol, 10, LP_ITERATIONS, messages)
        bound = min(bound, upper)
        if better > value:
            labels, value = other, better
    return labels, value, bound


def reweight(GraphProblem problem, double tol, Py_ssize_t max_sweeps):
    """nodes, tables, lower, upper, shares of the edges, and the number of sweeps.

    A number for two equal labels is made a table.
    """
    cdef graph_t g = problem.g
    cdef Py_ssize_t n = problem.n_nodes, m = problem.n_edges, k = problem.n_labels
    cdef double[::1] more = problem.more
    cdef const Py_ssize_t[::1] places = problem.places
    cdef double lower = 0.0, upper = 0.0
    if g.kind == EQUAL:
        tables = np.zeros((m, k, problem.stride))
        tables[:, np.arange(k), np.arange(k)] = np.asarray(problem.more)[problem.places][:, None]
        more = tables.ravel()
        places = np.arange(m, dtype=np.intp) * (k * problem.stride)
        g.kind = TABLES
        if m:
            g.places = &places[0]
    forests, of_edges = spanning_forests(n, problem.edges)
    cdef double[::1] shares = np.append(of_edges, 1.0)
    cdef Py_ssize_t[::1] starts = np.cumsum([0, *map(len, forests)])
    cdef int[::1] ends = np.array([*sum(forests, []), 0], dtype=np.intc)
    cdef forests_t held
    held.n_forests, held.starts, held.ends = len(forests), &starts[0], &ends[0]
    held.shares = &shares[0]
    cdef double[:, ::1] kept = np.zeros((2 * m + 1, problem.stride))
    cdef double[:, ::1] nodes = np.zeros((n + 1, problem.stride))
    cdef double[::1] found = np.zeros(m * k * problem.stride + 1)
    cdef Reweighted scratch = Reweighted(n, m, k, problem.stride)
    if n:
        with nogil:
            scratch.sum_product(
                &g, &held, problem.node_scores(), &more[0] if m else NULL, &kept[0, 0], -1e300,
                0.0, tol, max_sweeps, &nodes[0, 0], &found[0], &lower, &upper)
    return (np.array(nodes)[:n], np.array(found)[:-1].reshape(m, k, problem.stride), lower, upper,
            of_edges, scratch.n_sweeps)


def refuses_trw(GraphProblem problem):
    if problem.factors is not None:
        return "there are factors"
    rows = np.asarray(problem.unary)
    if problem.n_choices is not None:
        rows = rows[np.arange(problem.stride) < problem.n_choices[:, None]]
    if np.isfinite(rows).all() and np.isfinite(problem.more).all():
        return refuses_size(problem)
    return "there are scores of -inf"


def trw_marginals(GraphProblem problem):
    """nodes, edges and the bound of the log-partition, as `marginals` takes them."""
    nodes, tables, _, upper, _, _ = reweight(problem, TRW_TOL, TRW_SWEEPS)
    if problem.pairs == "equal":
        return nodes, np.trace(tables, axis1=1, axis2=2), upper
    return nodes, tables.ravel(), upper
