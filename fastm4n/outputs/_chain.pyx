"""Outputs that are chains of labels, free or read by an automaton."""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memcpy

from fastm4n.inference.automaton cimport AutomatonScratch, LabelAutomaton
from fastm4n.inference.chain cimport (
    LOOKED_THROUGH,
    SPARSE,
    ChainMaxMin,
    ChainScratch,
    ChainTangent,
    MetTransitions,
    ScoredTransitions,
    TemperedChain,
)
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t

from fastm4n.base.label_costs import as_costs, name_of
from fastm4n.outputs._base import row_stride


# Outputs that are sequences of labels.
#
# phi(y) is the indicator of the label at each position and the number of each transition; a dual
# point is T rows of node marginals and R rows of summed edge marginals, `stride` numbers each;
# where transitions have scores of their own, R rows for each of the T - 1 edges instead, and where
# few of them have scores, the marginals of these alone.

cdef class ChainWorkspace(Workspace):
    """Scratch of one thread for the solver and the recursions."""

    cdef ChainScratch chain
    cdef ChainTangent tangent
    cdef TemperedChain tempered
    # scores, a direction and results of all transitions, for recursions that are of all
    cdef double[:, ::1] wide

    def __init__(self, Py_ssize_t size, ChainOutputs outputs, bint with_marginals=False,
                 bint tempered=False):
        cdef Layout layout = outputs.layout
        cdef ChainScratch of_all
        super().__init__(size, layout.max_parts)
        if outputs.is_listing:
            self.point = np.zeros(size)
        self.chain = of_all = ChainScratch(layout.n_labels, layout.max_parts, outputs.scored)
        if outputs.scored is not None and (with_marginals or tempered):
            of_all = ChainScratch(layout.n_labels, layout.max_parts)
            self.wide = np.zeros((4, layout.n_labels * layout.stride))
        if with_marginals:
            self.tangent = ChainTangent(of_all)
        if tempered:
            self.tempered = TemperedChain(of_all)


cdef class ChainOutputs(Outputs):
    """Sequences of labels.

    Parameters
    ----------
    y : ndarray of int of shape (n_positions,)
        True labels of all blocks, one block after another.
    lengths : ndarray of shape (n_blocks,)
        Positive.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j at a position where the truth is i.
    per_edge : bool
        Whether each transition has scores of its own, or all of a block share theirs.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the positions are added up, or averaged.
    pairs : ndarray of int, default=None
        If transitions share their scores: those that have scores, as in `Layout`. By default all.
    part_weights : ndarray of shape (n_positions,), default=None
        Factors of the costs of the positions.
    """

    cdef Py_ssize_t stride, pair_step
    cdef ScoredTransitions scored
    # transitions of the true labels, where others may be listed
    cdef object first_places

    def __init__(self, y, lengths, cost, per_edge=False, cost_scale="sum", pairs=None,
                 part_weights=None):
        cost = as_costs(cost)
        if pairs is not None and per_edge:
            raise ValueError("pairs are for transitions that share their scores.")
        super().__init__(
            Layout.of_chains(lengths, len(cost), per_edge, pairs), y, cost, cost_scale,
            part_weights)
        self.stride = self.layout.stride
        self.pair_step = self.layout.pair_step
        if pairs is not None:
            self.scored = ScoredTransitions(pairs, len(cost))
        self.has_marginals = self.has_steady_marginals = self.has_tangent = True
        self.is_free = True
        # games of chains have equal costs at all positions
        self.has_mirror_prox = part_weights is None
        zero_one = name_of(self.cost_matrix) == "zero_one"
        self.has_tempered_game = zero_one and not per_edge and part_weights is None

    def arguments(self):
        return (
            np.asarray(self.y), self.layout.counts(), self.kept_cost(), self.pair_step > 0,
            "mean" if self.mean_cost else "sum", self.layout.pairs,
            self.part_weights)

    @property
    def oracle_cost(self):
        mean_length = self.layout.n_parts_of_all / max(1, self.layout.n_blocks)
        of_all = float(self.layout.n_labels * self.stride)
        if self.layout.may_list:
            return mean_length * SPARSE * self.first_places.size
        return mean_length * (of_all if self.scored is None else min(of_all, self.scored.cost()))

    @property
    def marginals_cost(self):
        if self.layout.may_list:
            return self.layout.n_labels * self.stride * (
                self.layout.n_parts_of_all / max(1, self.layout.n_blocks))
        return self.oracle_cost

    def allow_lists(self):
        """Let a fit list transitions, where few of many can have weights in its first passes."""
        matrix = self.layout.n_labels * self.stride
        if (self.scored is not None or self.pair_step or matrix < LOOKED_THROUGH
                or self.layout.max_parts == 1):
            return
        y, inside = np.asarray(self.y, dtype=np.intp), np.ones(len(self.y), dtype=bool)
        inside[np.asarray(self.layout.starts)[:-1]] = False
        self.first_places = np.unique((y[:-1] * self.stride + y[1:])[inside[1:]])
        self.layout.may_list = 2.0 * SPARSE * self.first_places.size <= matrix

    def begin_lists(self):
        """Have scores of the transitions of true labels alone, until others come by `admit`."""
        self.list_places(self.first_places)

    def list_places(self, places):
        """Have scores of these transitions, numbered in this order."""
        self.scored = MetTransitions(places, self.layout.n_labels)
        self.is_listing, self.layout.pair_places = True, self.scored.places
        self.count_places()

    def end_lists(self):
        """Have scores of all transitions again."""
        self.scored, self.is_listing = None, False
        self.layout.n_pairs = self.layout.n_listed = -1

    cdef void count_places(self) noexcept nogil:
        self.layout.n_pairs, self.layout.n_listed = self.scored.n, self.scored.size

    cdef void admit(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        if self.is_listing:
            (<MetTransitions> self.scored).admit(labels, self.layout.n_parts(b))
            self.count_places()

    def state(self):
        if not self.is_listing:
            return {}
        places = np.full(self.layout.n_labels * self.stride, -1, dtype=np.intc)
        places[: self.scored.n] = self.scored.pairs()
        return {"places": places}

    def restore(self, state):
        if self.is_listing:
            places = state["places"]
            self.list_places(places[places >= 0])

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ChainWorkspace(size, self, with_marginals)

    def tempered_workspace(self, Py_ssize_t size):
        return ChainWorkspace(size, self, False, self.pair_step == 0)

    def game(self, bint mirror_prox=False):
        if self.part_weights is not None:
            return Outputs.game(self, mirror_prox)
        return ChainMaxMin(
            self.cost_matrix, self.layout.max_parts, mirror_prox, self.pair_step > 0, self.scored)

    def mirror_prox_iterations(self):
        return 0

    cdef double more_score(
        self, Py_ssize_t b, const label_t* labels, const double* more) noexcept nogil:
        cdef Py_ssize_t t, at
        cdef double total = 0.0
        for t in range(1, self.layout.n_parts(b)):
            at = self.place(labels + t - 1)
            if at >= 0:
                total += more[at]
            more += self.pair_step
        return total

    cdef void add_more(
        self, Py_ssize_t b, const label_t* labels, double weight, double* more) noexcept nogil:
        cdef Py_ssize_t t, at
        for t in range(1, self.layout.n_parts(b)):
            at = self.place(labels + t - 1)
            if at >= 0:
                more[at] += weight
            more += self.pair_step

    cdef inline Py_ssize_t place(self, const label_t* labels) noexcept nogil:
        """Place of the transition between two labels, -1 where it has no score."""
        if self.scored is None:
            return labels[0] * self.stride + labels[1]
        return self.scored.find(labels[0], labels[1])

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """Viterbi."""
        cdef Py_ssize_t t, T = self.layout.n_parts(b)
        (<ChainWorkspace> work).chain.viterbi(unary, T, more, self.pair_step, value)
        for t in range(T):
            labels[t] = <label_t> (<ChainWorkspace> work).chain.path[t]
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        return (<ChainWorkspace> work).chain.sum_product(
            v, T, v + nodes, self.pair_step, marginals, marginals + nodes, log_partition)

    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        cdef double* wide = NULL
        cdef Py_ssize_t matrix = self.layout.n_labels * self.stride
        cdef int status
        if self.scored is None:
            return (<ChainWorkspace> work).tangent.tangent(
                v, T, v + nodes, self.pair_step, d_unary, d_more, marginals, marginals + nodes,
                change, change + nodes, log_partition, mean)
        wide = &(<ChainWorkspace> work).wide[0, 0]
        self.scored.spread(v + nodes, wide)
        if d_more != NULL:
            self.scored.spread(d_more, wide + matrix)
        status = (<ChainWorkspace> work).tangent.tangent(
            v, T, wide, 0, d_unary, NULL if d_more == NULL else wide + matrix,
            marginals, wide + 2 * matrix, change, wide + 3 * matrix, log_partition, mean)
        self.scored.gather(wide + 2 * matrix, marginals + nodes)
        self.scored.gather(wide + 3 * matrix, change + nodes)
        return status

    cdef int tempered(
        self, Py_ssize_t b, const double* v, double tau, Workspace work, double* marginals,
        double* soft, double* hard) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        cdef double* wide = NULL
        cdef Py_ssize_t matrix = self.layout.n_labels * self.stride
        cdef int status
        if self.pair_step or (self.scored is not None and self.scored.is_sparse):
            return Outputs.tempered(self, b, v, tau, work, marginals, soft, hard)
        if self.scored is None:
            return (<ChainWorkspace> work).tempered.sum_product(
                v, T, v + nodes, tau, marginals, marginals + nodes, soft, hard)
        wide = &(<ChainWorkspace> work).wide[0, 0]
        self.scored.spread(v + nodes, wide)
        status = (<ChainWorkspace> work).tempered.sum_product(
            v, T, wide, tau, marginals, wide + 2 * matrix, soft, hard)
        self.scored.gather(wide + 2 * matrix, marginals + nodes)
        return status

    cdef int tempered_game(
        self, Py_ssize_t b, const double* v, double tau, Py_ssize_t n_sweeps, Workspace work,
        double* nu, double* marginals, double* soft, double* hard) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        cdef double* wide = NULL
        cdef Py_ssize_t matrix = self.layout.n_labels * self.stride
        cdef int status
        if self.scored is None:
            return (<ChainWorkspace> work).tempered.game(
                v, T, v + nodes, tau, self.share(b), n_sweeps, nu, marginals, marginals + nodes,
                soft, hard)
        wide = &(<ChainWorkspace> work).wide[0, 0]
        self.scored.spread(v + nodes, wide)
        status = (<ChainWorkspace> work).tempered.game(
            v, T, wide, tau, self.share(b), n_sweeps, nu, marginals,
            wide + 2 * matrix, soft, hard)
        self.scored.gather(wide + 2 * matrix, marginals + nodes)
        return status


# Outputs that are the labellings of sequences that a finite automaton accepts.
#
# phi(y) is the indicator of the label at each position, and the number of times that each feature
# of the automaton, an n-gram of labels, occurs; these are behind the rows of the positions.

cdef class AutomatonWorkspace(Workspace):
    """Scratch of one thread for the solver and the recursions."""

    def __init__(self, Py_ssize_t size, Layout layout, automaton, bint has_masks):
        super().__init__(size, layout.max_parts)
        self.scratch = AutomatonScratch(automaton, layout.max_parts)
        self.rows = np.zeros(layout.max_parts * layout.stride if has_masks else 1)


cdef class AutomatonOutputs(Outputs):
    """Sequences of labels that an automaton accepts.

    Parameters
    ----------
    y : ndarray of int of shape (n_positions,)
        True labels of all blocks, one block after another, all accepted.
    lengths : ndarray of shape (n_blocks,)
        Positive.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j at a position where the truth is i.
    automaton : LabelAutomaton
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the positions are added up, or averaged.
    allowed : uint8 array of shape (n_positions, n_labels), default=None
        One for the allowed labels of each position, by default all.
    part_weights : ndarray of shape (n_positions,), default=None
        Factors of the costs of the positions.

    Attributes
    ----------
    automaton, allowed
        As given.
    is_free : bool
        Whether every labelling is accepted.
    """

    def __init__(self, y, lengths, cost, LabelAutomaton automaton not None, cost_scale="sum",
                 allowed=None, part_weights=None):
        cdef const unsigned char[::1] masks
        lengths = np.asarray(lengths, dtype=np.intp)
        R = automaton.n_labels
        layout = Layout(
            lengths, R, row_stride(R), np.full(lengths.shape, automaton.n_more, dtype=np.intp))
        super().__init__(layout, y, cost, cost_scale, part_weights)
        self.automaton = automaton
        self.stride = layout.stride
        self.has_marginals = True
        if allowed is not None:
            if np.shape(allowed) != (layout.n_parts_of_all, R):
                raise ValueError(f"allowed must have shape ({layout.n_parts_of_all}, {R}).")
            self.allowed = np.ascontiguousarray(allowed, dtype=np.uint8)
            masks = self.allowed.reshape(-1)
            self.mask = &masks[0] if masks.shape[0] else NULL
        self.is_free = allowed is None and automaton.accepts_all()

    def arguments(self):
        return (
            np.asarray(self.y), self.layout.counts(), self.kept_cost(), self.automaton,
            "mean" if self.mean_cost else "sum", self.allowed, self.part_weights)

    def rejected(self):
        """The first block with true labels that are no output, and where. None if there is none.

        The place is the number of the position whose label cannot follow, or the length where the
        labels cannot end.
        """
        starts = np.asarray(self.layout.starts)
        nothing = np.zeros((0, self.automaton.n_labels), dtype=np.uint8)
        y, masks = np.asarray(self.y), self.allowed
        for b in range(self.layout.n_blocks):
            own = slice(starts[b], starts[b + 1])
            place = self.automaton.first_rejected(y[own], nothing if masks is None else masks[own])
            if place >= 0:
                return b, place
        return None

    @property
    def oracle_cost(self):
        """An arc is an addition from a place that is looked up, a class some operations."""
        mean_length = self.layout.n_parts_of_all / max(1, self.layout.n_blocks)
        return mean_length * 2.0 * (self.automaton.n_arcs + 2.0 * self.automaton.n_classes)

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return AutomatonWorkspace(size, self.layout, self.automaton, self.mask != NULL)

    cdef double more_score(
        self, Py_ssize_t b, const label_t* labels, const double* more) noexcept nogil:
        return self.automaton.score(more, labels, self.layout.n_parts(b))

    cdef void add_more(
        self, Py_ssize_t b, const label_t* labels, double weight, double* more) noexcept nogil:
        self.automaton.add(labels, self.layout.n_parts(b), weight, more)

    cdef const double* masked(
        self, Py_ssize_t b, const double* unary, AutomatonWorkspace work) noexcept nogil:
        """The rows `unary`, with -inf for the labels that are not allowed."""
        cdef Py_ssize_t t, j, R = self.layout.n_labels, T = self.layout.n_parts(b)
        cdef const unsigned char* mask
        cdef double* row
        if self.mask == NULL:
            return unary
        row = &work.rows[0]
        mask = self.mask + self.layout.first_part(b) * R
        memcpy(row, unary, T * self.stride * sizeof(double))
        for t in range(T):
            for j in range(R):
                if not mask[t * R + j]:
                    row[t * self.stride + j] = -INFINITY
        return &work.rows[0]

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """Viterbi."""
        (<AutomatonWorkspace> work).scratch.viterbi(
            self.masked(b, unary, <AutomatonWorkspace> work), self.layout.n_parts(b), more, labels,
            value)
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        cdef Py_ssize_t nodes = self.layout.behind(b)
        (<AutomatonWorkspace> work).scratch.sum_product(
            self.masked(b, v, <AutomatonWorkspace> work), self.layout.n_parts(b), v + nodes,
            marginals, marginals + nodes, log_partition)
        return 0
