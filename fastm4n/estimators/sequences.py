"""Sequence labelling: outputs that are chains of labels.

Most of this file is the documentation of parameters and methods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_number
from fastm4n.base.pickles import Versioned
from fastm4n.data._sequences import Sequences
from fastm4n.estimators._base import CertifiedEstimator, PackedWeights, needs_log
from fastm4n.estimators._partial import PartialFitOfWeights
from fastm4n.inference._contexts import check_ngrams
from fastm4n.penalties._penalties import as_penalty
from fastm4n.tasks.chain_input import (
    MOST_OF_PAIRS,
    as_labels,
    as_states,
    check_constraints,
    codes_of,
    names_of,
    opened,
)
from fastm4n.tasks.chain_predictions import READY, predicted_at_once
from fastm4n.tasks.chain_weights import (
    WEIGHTS,
    WeightsOfPairs,
    as_transitions,
    explained,
    fitted_weights,
    n_ngrams_of,
    packed_weights,
)
from fastm4n.tasks.parameters import (
    LABEL_KINDS,
    as_weights,
    check_class_weight,
    summable,
    warn_of_unknown,
)
from fastm4n.tasks.sequences import SequenceTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.automata import Automaton
    from fastm4n.base.schemes import Reading, Rules, Span
    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.data._types import Labellings, Masks, SequenceData
    from fastm4n.estimators._types import (
        Alpha,
        CostScale,
        Decoding,
        PenaltyLike,
        SolverLike,
        SurrogateLike,
        Tol,
    )
    from fastm4n.tasks.chain_weights import Explanation, Transitions

# what a fit says of its weights
OF_FIT = (
    "alpha_", "n_iter_", "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_",
    "history_")


class ChainWeights(PackedWeights):
    """Base of `SequenceTagger`: weights of observed pairs stay by the pairs until asked for."""

    def __getattr__(self, name: str) -> Any:
        if name in WEIGHTS:
            self._spread()
        elif name in OF_FIT and self.__sklearn_is_fitted__():
            raise AttributeError(
                f"There is no {name}: no fit has found these weights, they came from elsewhere "
                "(a file of CRFsuite, a network), and how far they are from an optimum is not "
                "known. `fit` certifies weights.")
        # found now, or with the error that there was
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in WEIGHTS:
            self._spread()  # or those by the pairs would still be what predictions go by
        super().__setattr__(name, value)

    def _spread(self):
        """Have weights of all labels, if they are still by the pairs."""
        held = self.__dict__.get("_of_pairs")
        if held is not None:
            self.__dict__.update(held.fitted())
            for name in ("_of_pairs", READY):
                self.__dict__.pop(name, None)

    @property
    def n_nonzero_(self) -> int:
        held = vars(self).get("_of_pairs")
        if held is None:
            return super().n_nonzero_
        return int(np.count_nonzero(held.rows.reshape(-1)[: held.pairs[1].size]))

    @property
    def _n_weights(self):
        """Number of weights of features and of transitions that are not zero."""
        held = vars(self).get("_of_pairs")
        transitions = self.transition_coef_ if held is None else held.transitions()
        return self.n_nonzero_ + int(np.count_nonzero(transitions))

    def _few_weights(self):
        """Weights by pairs, where they are held so or few are not zero, or None."""
        held = vars(self).get("_of_pairs")
        if held is not None or not self.__sklearn_is_fitted__():
            return held
        coef = self.coef_
        if "transition_features_" in vars(self) or self.classes_.size > MOST_OF_PAIRS or not (
                isinstance(coef, np.ndarray) and coef.dtype == np.float64
                and coef.shape == (self.classes_.size, self.n_features_in_)
                and 10 * np.count_nonzero(coef) < coef.nbytes):
            return None
        few = WeightsOfPairs.of_rows(
            packed_weights(self)[0], coef.shape[1], coef.shape[0], n_ngrams_of(self))
        return few if few.is_small else None

    def _weights_by_pairs(self):
        """Arrays of `_few_weights` for files, or an empty dict."""
        few = self._few_weights()
        return {} if few is None or few.edge_rows is not None else few.arrays()

    def __setstate__(self, state: dict[str, Any]) -> None:
        is_spread = state.get("_is_spread", False)
        if "_of_pairs" in state:
            Versioned.__setstate__(
                self, {name: value for name, value in state.items() if name != "_is_spread"})
            if is_spread:
                self._spread()
        else:
            super().__setstate__(state)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop(READY, None)
        few = self._few_weights()
        if few is None:
            return state
        if "_of_pairs" not in state:  # zeros are not stored
            state = {name: value for name, value in state.items() if name not in WEIGHTS}
            state["_is_spread"] = True
        # without what maps have made of them
        state["_of_pairs"] = few._replace(pairs=tuple(few.pairs))
        return state

    def _repacked(self):
        return fitted_weights(
            *packed_weights(self), *np.shape(self.coef_)[::-1], n_ngrams_of(self))


class SequenceTagger(ChainWeights, PartialFitOfWeights, CertifiedEstimator):
    """Sequence labelling by M4N, structural SVM or CRF on a chain, with a certified gap.

    Minimises mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2 by block-coordinate Frank-Wolfe on
    the dual. S is the surrogate of the costs of the positions. The score of a labelling y is the
    sum over positions of ``coef_[y_t] @ x_t + intercept_[y_t]``, plus the sum over neighbours of
    ``transition_coef_[y_t, y_{t+1}]``, plus ``start_coef_`` and ``end_coef_`` of the two ends.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"} or object of fastm4n.surrogates, default="log"
        The surrogate loss. "max_min" is the M4N of [1]_, which is consistent for every cost if all
        outputs have positive probabilities. "max_margin" is the structural SVM (M3N), for single
        labels the SVM of Crammer and Singer. "log" is the CRF, for single labels logistic
        regression. ``Log(temperature=..., cost_augmented=True)`` is the softmax-margin.
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of all weights is added to the mean loss of
        a sequence. CRFsuite's c2 is alpha n / 2 for n sequences. "auto" is 1 / n, as C = 1 in
        `LinearSVC`, n being the sum of the weights of sequences that are not empty. The margins
        divide it by the mean cost of different labels.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_labels, n_labels), \
default="zero_one"
        Costs of mistakes at one position: cost[i, j] if ``classes_[j]`` is predicted and
        ``classes_[i]`` is true. "log" uses costs for ``decode="min_risk"``, and in the fit if it
        is cost-augmented.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the M parts of an example are added or averaged. With "mean", as in the
        papers, mistakes in large examples need small margins only. If all examples have M parts,
        "sum" with alpha is "mean" with M alpha, and the weights are M times as large. "log" uses
        costs only if it is cost-augmented. ``decode="min_risk"`` under "max_min" has the same
        scale.
    fit_intercept : bool, default=True
        Whether each label has a constant score.
    transitions : bool or Transitions, default=True
        Which scores pairs of neighbouring labels and the ends of a sequence have, on which features
        they depend, and on how many previous labels a label depends. True is `Transitions()`. With
        False there are no such scores, and positions are labelled one by one.
    constraints : str or Automaton, default=None
        Labellings that are allowed in the fit and in predictions: an object of `fastm4n.automata`,
        or a regular expression over labels for ``Automaton.from_regex``. True labels must be
        accepted. Transitions must not depend on features.
    states : {"all", "observed"} or dict, default="all"
        Weights that are fitted. "all" has those of all pairs of a feature and a label, and of all
        transitions. "observed" has only pairs and transitions that occur in the training data, as
        in CRFsuite, and all other weights stay zero. An attribute or a stored entry of CSR occurs
        even if its value is zero. An entry of a dense matrix occurs if it is not zero. A dict has
        one choice for each, ``{"features": "observed", "transitions": "all", "min_freq": 2}``, and
        "all" is the default. "min_freq" leaves out pairs whose values have a smaller sum, and
        transitions that occur less often. Intercepts and ends always have all weights.
    penalty : {"l2", "elasticnet", "l1"} or object of fastm4n.penalties, default="l2"
        The penalty that alpha multiplies. "l2" is ||w||^2 / 2. "l1" is the sum of absolute values,
        which makes weights exactly zero, and "elasticnet" is the mean of both. The objects of
        `fastm4n.penalties` have options, such as bounds and groups of weights. The gap is certified
        for the problem with this penalty.
    solver : "auto", BlockFrankWolfe, LabelNewton, QuasiNewton, CuttingPlanes, InteriorPoint or \
OutOfCore, default="auto"
        The solver, with nested options such as ``solver__step``. "auto" is `BlockFrankWolfe`, with
        steps and a cache chosen by counts of the work, or a solver that is faster: `LabelNewton`
        for single labels, `QuasiNewton` for few and long outputs, `CuttingPlanes` for graphs of few
        weights, `InteriorPoint` for rankings under "max_min". `history_` records the choice.
        `OutOfCore` is for data that do not fit in memory.
    tol : float or "auto", default="auto"
        Relative gap (`relative_gap_`) at which the fit ends: the certified duality gap, divided by
        the objective at zero weights. At least 0 and below 1. "auto" is 1e-3 for "log" and 1e-2 for
        the margins, whose predictions a smaller gap hardly changes.
    max_iter : int, default=1000
        Maximum number of passes over the examples.
    decode : {"auto", "map", "min_risk"}, default="auto"
        Prediction of the highest score ("map", by Viterbi), or at each position of the least
        expected cost under the marginals ("log") or the oracle's distribution ("max_min"). "auto"
        is "min_risk" for "log" if costs are not 0-1 and nothing restricts the labels, and "map"
        otherwise.
    allowed_transitions : {"bio", "bioes", "bilou", "iob1"} or bool array of shape \
(n_labels, n_labels), default=None
        Transitions that are allowed in predictions, rows and columns as in `classes_`. The name of
        a scheme allows what its rules do, also as first and last labels: with "bio", "I-x" follows
        "B-x" and "I-x" only, and does not come first. Fits use `constraints` instead.
    class_weight : dict or "balanced", default=None
        Factors of the costs of mistakes at positions, by their true label. A dict has 1 for other
        labels. "balanced" gives all labels the same sum of weights. "log" has no costs in the fit
        unless it is cost-augmented: there the weight of a sequence is multiplied by the mean of
        the factors of its positions, and a rare label weighs as much as the labels next to it.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if it had as many sequences of the
        same lengths, and the same labels, surrogate and cost_scale. alpha may change. Other data,
        with other labels and attributes, are fitted from the beginning: see `partial_fit`.
    n_jobs : int, default=None
        Number of threads. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits. An int gives the same bits on the same machine.
    verbose : int, default=0
        Whether to show a progress bar (with tqdm) and to write to the log "fastm4n".
    callback : callable, default=None
        Function that is called after each certificate with its row of `history_`, a dict. If it
        returns something true, the fit ends.
    classes : array-like, default=None
        All labels, of which y may lack some, as in folds of a cross-validation. Others are an
        error. By default the labels of y.

    Attributes
    ----------
    coef_ : ndarray of shape (n_labels, n_features)
        Weights of the features.
    intercept_ : ndarray of shape (n_labels,)
    transition_coef_ : ndarray of shape (n_labels, n_labels)
        Weight of the transition from the row's to the column's label.
    start_coef_, end_coef_ : ndarray of shape (n_labels,)
        Weights of being the first and the last label of a sequence.
    transition_feature_coef_ : ndarray of shape (n_selected, n_labels, n_labels)
        Weight of each feature of `transition_features_` for the transition from the second
        index's to the third's label. Only with ``Transitions(features=...)``.
    transition_features_ : ndarray of shape (n_selected,)
        Columns of X on which transitions depend. Only with ``Transitions(features=...)``.
    ngrams_ : ndarray of int of shape (n_ngrams, order + 1)
        N-grams of three labels or more that occur in the training data, as positions in `classes_`,
        with -1 in front of shorter ones. Only for orders of 2 or more.
    ngram_coef_ : ndarray of shape (n_ngrams,)
        Their weights. Only for orders of 2 or more.
    classes_ : ndarray of shape (n_labels,)
        The labels.
    cost_matrix_ : ndarray of shape (n_labels, n_labels)
        Matrix of the costs.
    vectorizer_ : SequenceVectorizer or None
        Vectorizer of attributes, or None if X had numbers. Its `feature_names_` are the attributes
        of the columns. After a fit with an L1 term these are the attributes with weights, except
        with ``warm_start=True`` and after `partial_fit`.
    alpha_ : float
        The alpha of the fit.
    tol_ : float
        The tol of the fit.
    relative_gap_ : float
        Certified duality gap, divided by the objective at zero weights. At most `tol`, unless the
        fit ran out of passes.
    duality_gap_ : float
        The same gap in units of the objective, which is at most this much above its minimum.
    primal_objective_, dual_objective_ : float
        Certified objective values. Their difference is the gap.
    interrupted_ : bool
        Whether Ctrl-C ended the fit. The weights are then the best certified ones.
    n_iter_ : int
        Number of passes.
    history_ : dict of ndarray
        Values at each certificate: "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
        "oracle_error" (mean difference of the oracle's bounds during the pass), "cache_hits"
        (visits without an oracle call) and "policy" (the step, and whether there is a cache).
    certified_for_ : {"data", "completions", "change"}
        The objective that the gap is for. "data" is that of all data. "completions" is the convex
        objective of the labels that the best round filled in, if not all are known: see Notes.
        "change" is that of `partial_fit` for weights whose data are not there.
    n_features_in_ : int
        Number of features.
    n_seen_ : float or None
        Sum of the weights of the sequences that the weights were fitted to, None if it is not
        known, for a file of CRFsuite. `partial_fit` goes by it, and it may be set.

    See Also
    --------
    Sequences : The container of sequences.
    fastm4n.automata.Automaton : Constraints.
    SequenceVectorizer : Makes features of dicts and attribute strings.
    MulticlassClassifier : Labels that do not depend on one another.

    Notes
    -----
    The duality gap is a certified bound. It is computed at the end of the fit, for the weights that
    are returned, from feasible dual points and upper bounds of the oracles. Equal examples are
    merged into one of larger weight, and blocks are ordered by content. A fit therefore depends
    neither on the order of the examples nor on whether a weight is written as a repetition.

    With labels that are not all known, the objective is not convex: under "log" it is minus the
    marginal log-likelihood plus the penalty. Rounds lower it. Each completes the labels, by the
    marginals under "log" and by the best labelling under the margins, and solves the convex problem
    of the completed labels with a certificate. The last optimum is a local one. `history_` then has
    a row for each round: "objective", "primal", "dual", "gap" and "n_iter" of its fit, and "pass"
    and "seconds" since the first.

    A pass takes O(n_tokens (n_nonzeros_per_token n_labels + n_labels^2)) time. Memory is that of
    the features, O(n_features n_labels) for the weights, and O((n_tokens + n_sequences n_labels)
    n_labels) for the dual point, twice for "log".
    If transitions depend on features, a pass costs O(n_tokens n_selected_nonzeros_per_token
    n_labels^2) more, the weights take O(n_selected n_labels^2) more, and the dual point takes
    O(n_tokens n_labels^2): select few features.
    With an order of 2 or more, or with constraints, a position costs an addition for each arc of an
    automaton. Its states are the observed contexts, of at most `order` labels, times the states of
    the constraints, and each has at most n_labels arcs. The dual point has one number more for each
    sequence and n-gram. Under "max_min" the adversary answers position by position, without
    constraints.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

    Examples
    --------
    >>> from fastm4n import SequenceTagger
    >>> words = [["the", "old", "man"], ["a", "man", "sings"]]
    >>> tags = [["D", "A", "N"], ["D", "N", "V"]]
    >>> X = [[{"word": word, "first": i == 0} for i, word in enumerate(sentence)]
    ...      for sentence in words]
    >>> tagger = SequenceTagger("log", random_state=0).fit(X, tags)
    >>> [labels.tolist() for labels in tagger.predict(X)]
    [['D', 'A', 'N'], ['D', 'N', 'V']]
    """

    coef_: FloatArray
    intercept_: FloatArray
    transition_coef_: FloatArray
    start_coef_: FloatArray
    end_coef_: FloatArray
    transition_feature_coef_: FloatArray
    transition_features_: IntArray | None
    ngrams_: IntArray
    ngram_coef_: FloatArray
    classes_: Array

    _task = "sequences"
    _has_auto_tol = True
    _part = "token"
    _fitted_arrays = {
        "classes_": (("k",), LABEL_KINDS), "cost_matrix_": (("k", "k"), "f"),
        "intercept_": (("k",), "f"), "transition_coef_": (("k", "k"), "f"),
        "start_coef_": (("k",), "f"), "end_coef_": (("k",), "f"),
    }
    _replaced = (*WEIGHTS, "_of_pairs", READY, "transition_features_", "ngrams_")
    _task_class = SequenceTask

    def __init__(
        self, surrogate: SurrogateLike = "log", *, alpha: Alpha = "auto",
        cost: Cost = "zero_one", cost_scale: CostScale = "sum", fit_intercept: bool | float = True,
        transitions: bool | Transitions = True, constraints: str | Automaton | None = None,
        states: Literal["all", "observed"] = "all", penalty: PenaltyLike = "l2",
        solver: SolverLike = "auto", tol: Tol = "auto", max_iter: int = 1000,
        decode: Decoding = "auto", allowed_transitions: Rules | ArrayLike | None = None,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        warm_start: bool = False, n_jobs: int | None = None, random_state: RandomState = None,
        verbose: int = 0, callback: Callable[..., Any] | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.fit_intercept = fit_intercept
        self.transitions = transitions
        self.constraints = constraints
        self.states = states
        self.penalty = penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.allowed_transitions = allowed_transitions
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        tags.input_tags.dict = True
        return tags

    # ------------------------------------------------------------------- validation

    def _check_parameters(self):
        self._check_solver_parameters()
        self._check_flags("fit_intercept")
        check_class_weight(self.class_weight)
        self._scored.check()
        check_constraints(self.constraints, self._scored.features)
        as_states(self.states)
        as_penalty(self.penalty)

    @property
    def _scored(self):
        """The object of `transitions`."""
        return as_transitions(self.transitions)

    def _arrays_of_fit(self):
        arrays = super()._arrays_of_fit()
        if self._scored.features is not None:
            arrays.update(
                transition_features_=(("s",), "i"),
                transition_feature_coef_=(("s", "k", "k"), "f"))
        if self._scored.order > 1:
            arrays.update(ngrams_=(("g", "o"), "i"), ngram_coef_=(("g",), "f"))
        return arrays

    # -------------------------------------------------------------------------- fit

    def fit(
        self, X: SequenceData, y: Labellings, sample_weight: ArrayLike | None = None, *,
        lengths: ArrayLike | None = None, allowed: Masks | None = None,
        token_weight: Masks | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : Sequences, or list of {array-like, CSR matrix} of shape (n_positions, n_features)
            Features of each sequence, position by position. With `lengths`, one matrix.
            C-ordered float32 or float64 buffers and CSR matrices in `Sequences` are not copied.
            Dense features that are mostly zero are converted to CSR.
            Or a list of sequences of attributes for `SequenceVectorizer`: a dict or a list of
            strings for each position. `vectorizer_` then has their columns.
        y : Sequences, or list of sequences of labels
            Labels of any hashable type. With `lengths`, one sequence. In memory, labels may be
            unknown: None allows all labels at a position, and a set the labels that are in it.
            Rounds then complete the labels and fit the weights to them, until the objective falls
            no more: see `history_`. The gap is that of the best round, see `certified_for_`.
        sample_weight : array-like of shape (n_sequences,), default=None
            Non-negative weights. 2 counts the sequence twice, 0 leaves it out.
        lengths : array-like of int of shape (n_sequences,), default=None
            Lengths of the sequences, if X and y are one matrix and one sequence.
        allowed : Sequences, or list of bool arrays of shape (n_positions, n_labels), default=None
            Labels that are allowed at each position, with columns in sorted order of the labels in
            y. True labels must be allowed. With `lengths`, one array.
        token_weight : Sequences, or list of arrays of shape (n_positions,), default=None
            Factors of the costs of mistakes at each position, on top of `class_weight`. With
            `lengths`, one array. "log" takes means over sequences, see `class_weight`.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data. The message names the argument and what is wrong with
            it.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` passes did not reach `tol`. The message states the gap.
        """
        return self._fit(X, y, sample_weight, lengths, allowed, token_weight)

    # ---------------------------------------------------------------------- predict

    def _check_fitted(self, attributes):
        columns, d = attributes.get("transition_features_"), attributes["n_features_in_"]
        if columns is not None and not ((columns >= 0) & (columns < d)).all():
            raise ValueError("transition_features_ has columns that there are not")
        ngrams = attributes.get("ngrams_")
        if ngrams is not None:
            if ngrams.shape[1] != self._scored.order + 1:
                raise ValueError("ngrams_ are not of this order")
            check_ngrams(ngrams, attributes["classes_"].size)

    def predict(
        self, X: SequenceData, decode: Decoding | None = None, *,
        allowed_transitions: Rules | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> Sequences:
        """Predict the labels of sequences.

        Parameters
        ----------
        X : Sequences, or list of {array-like, CSR matrix} of shape (n_positions, n_features)
            Features, as in `fit`. For taggers that were fitted to attributes, a list of sequences
            of attributes, or the output of `vectorizer_`.
        decode : {"auto", "map", "min_risk"}, default=None
            Overrides the parameter `decode`.
        allowed_transitions : {"bio", "bioes", "bilou", "iob1"} or bool array of shape \
(n_labels, n_labels), default=None
            Overrides the parameter `allowed_transitions`.
        constraints : str or Automaton, default=None
            Overrides the parameter `constraints`.
        allowed : Sequences, or list of bool arrays of shape (n_positions, n_labels), default=None
            Labels that are allowed at each position, columns as in `classes_`. With `lengths`, one
            array.
        lengths : array-like of int of shape (n_sequences,), default=None
            As in `fit`.

        Returns
        -------
        y : Sequences
            Labels of each sequence, indexed like a list.
        """
        if decode is allowed_transitions is constraints is allowed is lengths is None:
            found = predicted_at_once(self, X)
            if found is not None:
                return found
        return self._fitted_task().predict(
            X, decode, allowed_transitions=allowed_transitions, constraints=constraints,
            allowed=allowed, lengths=lengths)

    @needs_log
    def predict_marginals(
        self, X: SequenceData, *, allowed_transitions: Rules | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> Sequences:
        """Probabilities of the labels at each position, for ``surrogate="log"`` only.

        Parameters
        ----------
        X, allowed_transitions, constraints, allowed, lengths
            As in `predict`.

        Returns
        -------
        marginals : Sequences
            An array of shape (n_positions, n_labels) for each sequence, columns as in
            `classes_`.
        """
        return self._decoder(
            X, allowed_transitions=allowed_transitions, constraints=constraints, allowed=allowed,
            lengths=lengths).marginals()

    @needs_log
    def predict_spans(
        self, X: SequenceData, scheme: Reading = "conlleval", *,
        allowed_transitions: Rules | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> list[list[Span]]:
        """Spans of the predicted labelling with their probabilities, for ``surrogate="log"`` only.

        Parameters
        ----------
        X, allowed_transitions, constraints, allowed, lengths
            As in `predict`.
        scheme : {"conlleval", "bio", "bioes", "bilou", "iob1"}, default="conlleval"
            How labels mark spans, see :func:`fastm4n.metrics.spans`.

        Returns
        -------
        spans : list of list of Span
            For each sequence, in order: NamedTuples (label, start, stop, probability). The tokens
            are start ... stop - 1. The probability is that of all labellings that have exactly this
            span.

        See Also
        --------
        fastm4n.CalibratedTagger : Also for the other surrogates, with calibrated probabilities.
        fastm4n.ConformalTagger : Sets of spans that contain the true ones with a guarantee.

        Examples
        --------
        >>> import numpy as np
        >>> from fastm4n import SequenceTagger
        >>> X, y = [np.eye(3), np.eye(3)[:2]], [["B-PER", "I-PER", "O"], ["B-PER", "I-PER"]]
        >>> tagger = SequenceTagger(alpha=0.01, random_state=0).fit(X, y)
        >>> span = tagger.predict_spans(X)[0][0]
        >>> span.label, span.start, span.stop, round(span.probability, 2)
        ('PER', 0, 2, 0.94)
        """
        decoder, codes, _ = self._fitted_task().decoded(
            X, allowed_transitions=allowed_transitions, constraints=constraints, allowed=allowed,
            lengths=lengths)
        return decoder.spans(codes, scheme, decoder.task.surrogate.temperature)

    @needs_log
    def log_probability(
        self, X: SequenceData, y: Labellings, *,
        allowed_transitions: Rules | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> FloatArray:
        """Log-probability of a labelling of each sequence, for ``surrogate="log"`` only.

        Parameters
        ----------
        X, allowed_transitions, constraints, allowed, lengths
            As in `predict`.
        y : Sequences, or list of sequences of labels
            Labels that are not in `classes_` have the probability 0, with a warning.

        Returns
        -------
        log_probability : ndarray of shape (n_sequences,)
            -inf for labellings that are not allowed, 0 for empty sequences.
        """
        decoder = self._decoder(
            X, allowed_transitions=allowed_transitions, constraints=constraints, allowed=allowed,
            lengths=lengths)
        codes = codes_of(as_labels(y, decoder.X, lengths), self.classes_, stacklevel=4)
        return decoder.log_probabilities(codes, decoder.task.surrogate.temperature)

    @needs_log
    def entropy(
        self, X: SequenceData, *, allowed_transitions: Rules | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> FloatArray:
        """Entropy of the distribution over labellings, in nats, for ``surrogate="log"`` only.

        Parameters
        ----------
        X, allowed_transitions, constraints, allowed, lengths
            As in `predict`.

        Returns
        -------
        entropy : ndarray of shape (n_sequences,)
            0 if one labelling has all the probability. At most the logarithm of the number of
            labellings.
        """
        decoder = self._decoder(
            X, allowed_transitions=allowed_transitions, constraints=constraints, allowed=allowed,
            lengths=lengths)
        return decoder.entropies(decoder.task.surrogate.temperature)

    def predict_kbest(
        self, X: SequenceData, k: int, *,
        allowed_transitions: Rules | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> tuple[list[Array], list[Array]]:
        """The k labellings of highest score of each sequence.

        Parameters
        ----------
        X, allowed_transitions, constraints, allowed, lengths
            As in `predict`.
        k : int
            How many.

        Returns
        -------
        labellings : list of ndarray of shape (k', n_positions)
            Best first. k' is k, or the number of labellings if there are fewer. An empty sequence
            has one labelling.
        scores : list of ndarray of shape (k',)
        """
        check_number("k", k, low=0, integer=True)
        return self._decoder(
            X, allowed_transitions=allowed_transitions, constraints=constraints, allowed=allowed,
            lengths=lengths).kbest(k)

    def decision_function(self, X: SequenceData, *, lengths: ArrayLike | None = None) -> Sequences:
        """Scores of the labels at each position: emissions, and those of the ends.

        Parameters
        ----------
        X, lengths
            As in `predict`.

        Returns
        -------
        scores : Sequences
            An array of shape (n_positions, n_labels) for each sequence, without the scores of
            transitions.
        """
        return self._decoder(X, lengths=lengths).decision()

    def score(
        self, X: SequenceData, y: Labellings, sample_weight: ArrayLike | None = None, *,
        lengths: ArrayLike | None = None,
    ) -> float:
        """Share of the positions that `predict` labels correctly.

        Parameters
        ----------
        X, lengths
            As in `predict`.
        y : Sequences, or list of sequences of labels
            True labels. One that is not in `classes_` counts as an error, with a warning. A
            position with None does not count. With a set, each of its labels is right.
        sample_weight : array-like of shape (n_sequences,), default=None
            Weights of the sequences, for each of their positions.

        Returns
        -------
        accuracy : float
        """
        decoder, codes, _ = self._fitted_task().decoded(X, lengths=lengths)
        X, predicted = decoder.X, self.classes_[codes].tolist()
        truth = as_labels(y, X, lengths, partial=True)
        of_sets = opened(truth)
        warn_of_unknown(names_of(truth, of_sets), self.classes_)
        pairs = zip(truth, predicted, strict=True)
        right = np.fromiter((a == b for a, b in pairs), bool, len(truth))
        weights = None
        if sample_weight is not None:
            weights = np.repeat(summable(as_weights(sample_weight, len(X), "sequence")), X.lengths)
        if of_sets:
            weights = np.ones(right.size) if weights is None else weights
            for t, labels in of_sets.items():
                right[t] = labels is not None and predicted[t] in labels
                weights[t] *= labels is not None
        return float(np.average(right, weights=weights))

    def explain(self, feature_names: ArrayLike | None = None, n_strongest: int = 20) -> Explanation:
        """The strongest weights: which features speak for which label, and which transitions.

        Parameters
        ----------
        feature_names : array-like of str of shape (n_features,), default=None
            Names of the features, as `SequenceVectorizer.get_feature_names_out` gives them. By
            default those of `vectorizer_`, or numbers where there is none.
        n_strongest : int, default=20
            How many of each sign, of emissions and of transitions.

        Returns
        -------
        explanation : Explanation
            With `emissions`, `transitions` and `transition_features`, strongest first; a table
            when printed.

        Examples
        --------
        >>> import numpy as np
        >>> from fastm4n import SequenceTagger
        >>> X, y = [np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])], [["a", "b", "b"]]
        >>> tagger = SequenceTagger("log", random_state=0).fit(X, y)
        >>> for weight, label, feature in tagger.explain(["one", "two"], 1).emissions:
        ...     print(label, feature, weight > 0)
        b two True
        a two False
        """
        check_is_fitted(self)
        check_number("n_strongest", n_strongest, low=0, integer=True)
        return explained(self, feature_names, n_strongest)
