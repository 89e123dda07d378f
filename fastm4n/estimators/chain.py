"""Sequence labelling: outputs that are chains of labels."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice, check_number
from fastm4n.data._sequences import Sequences
from fastm4n.estimators._base import CertifiedEstimator, needs_log
from fastm4n.estimators._docs import BOOSTING, documented
from fastm4n.estimators._partial import PartialFit
from fastm4n.inference._contexts import check_ngrams
from fastm4n.outputs._base import COST_SCALES
from fastm4n.penalties._penalties import as_penalty
from fastm4n.tasks.attributes import made, tokens_of
from fastm4n.tasks.chain_automaton import (
    AutomatonDecoder,
    as_automaton,
    as_masks,
    check_constraints,
)
from fastm4n.tasks.chain_input import as_features, as_labels, as_states, distinct
from fastm4n.tasks.chain_predictions import ChainDecoder
from fastm4n.tasks.chain_weights import WEIGHTS, ChainWeights, explained
from fastm4n.tasks.parameters import (
    BOOSTED,
    LABEL_KINDS,
    as_weights,
    summable,
    warn_of_unknown,
)
from fastm4n.tasks.sequences import SequenceTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.automata import Automaton
    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, RandomState
    from fastm4n.data._types import Labellings, Masks, SequenceData
    from fastm4n.estimators._types import Solvers
    from fastm4n.penalties._penalties import Penalties
    from fastm4n.tasks.chain_weights import Explanation

# n-grams are kept in rows of so many labels and one more
MOST_ORDER = 32


@documented(
    **BOOSTING,
    surrogates='"max_margin" the structural SVM (M3N); "log" the linear-chain CRF.',
    penalties='\n    Weights that ``states="observed"`` leaves out stay zero.',
    examples="sequences",
    Examples="Sequences",
    threads=" and of predictions",
    whole="sequence",
    elements="positions",
)
class SequenceTagger(ChainWeights, PartialFit, CertifiedEstimator):
    """Sequence labelling by M4N, structural SVM or CRF on a chain, with a certified gap.

    Minimises mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2, S being the surrogate of the
    costs of the positions, by block-coordinate Frank-Wolfe on the dual. A labelling y of a sequence
    scores the sum over positions of ``coef_[y_t] @ x_t + intercept_[y_t]``, of
    ``transition_coef_[y_t, y_{t+1}]``, and ``start_coef_`` and ``end_coef_`` of its ends.

    Parameters
    ----------
    [surrogate]
    alpha : float or "auto", default="auto"
        Regularisation: alpha / 2 times the squared norm of all weights is added to the
        mean loss of a sequence. CRFsuite's c2 is alpha n / 2. "auto" is 1 / n for n
        sequences, those of weight zero and empty ones not counted: it is the C = 1 of `LinearSVC`.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_labels, n_labels), \
            default="zero_one"
        What a mistake at one position costs: cost[i, j] for predicting ``classes_[j]`` where
        the truth is ``classes_[i]``. The "log" surrogate uses it for ``decode="min_risk"``,
        and with `cost_augmented`.
    [cost_scale]
    [tempering]
    fit_intercept : bool, default=True
        Whether each label has a constant score.
    fit_start_end : bool, default=True
        Whether labels have scores for being first and for being last.
    fit_transitions : bool, default=True
        Whether transitions have scores; without them positions are labelled one by one.
    transition_features : "all", array-like of int or bool mask of shape (n_features,), default=None
        Columns of X on which the scores of transitions depend: that of the transition into a
        position with features x is ``transition_coef_[i, j] + x[transition_features_] @
        transition_feature_coef_[:, i, j]``. By default it is the same at all positions.
    order : int, default=1
        How many labels before it a label depends on. With 2 or more, n-grams of 3 to order + 1
        labels that occur in the training data have weights, `ngram_coef_`, beside the transitions.
    constraints : str or Automaton, default=None
        The labellings that may be, in the fit and in predictions: an object of
        `fastm4n.automata`, or a regular expression over labels as ``Automaton.from_regex`` takes
        it. True labels must be accepted. `transition_features` must be None.
    states : {"all", "observed"} or dict, default="all"
        Which weights there are: those of all pairs of a feature and a label and of all
        transitions, or only those of the pairs that occur in the training data and of the
        transitions that occur; the others are exactly zero. An attribute, or a stored entry of
        CSR, occurs whatever its value, zero as well; an entry of a dense matrix if it is not zero.
        CRFsuite's default is "observed". Intercept and ends always have all their weights, and
        `ngram_coef_` is of n-grams that occur in any case. A dict says it of each, ``{"features":
        "observed", "transitions": "all", "min_freq": 2}``: "all" is what it does not name, and with
        "min_freq" pairs whose values, and transitions whose number, add up to less are left out.
    [penalty]
    [solver]
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score (Viterbi), or at each position of the least expected cost
        under the marginals ("log") or the oracle's distribution ("max_min").
    allowed_transitions : {"bio"} or bool array of shape (n_labels, n_labels), default=None
        Transitions that predictions may make, rows and columns as in `classes_`. "bio" lets
        "I-x" follow "B-x" and "I-x" only, and not come first. Fits do not use it; they use
        `constraints`.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many sequences of
        the same lengths, the same labels, surrogate and cost_scale; alpha may change.
    [running]

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
        index's to the third's label. Only where `transition_features` is given.
    transition_features_ : ndarray of shape (n_selected,)
        Columns of X on which transitions depend. Only where `transition_features` is given.
    ngrams_ : ndarray of int of shape (n_ngrams, order + 1)
        N-grams of three labels or more that occur in the training data: places of their labels in
        `classes_`, -1 before those that are shorter. Only where `order` is 2 or more.
    ngram_coef_ : ndarray of shape (n_ngrams,)
        Their weights. Only where `order` is 2 or more.
    classes_ : ndarray of shape (n_labels,)
        The labels.
    cost_matrix_ : ndarray of shape (n_labels, n_labels)
        The costs of `cost`.
    vectorizer_ : SequenceVectorizer or None
        What has made features of attributes; None where X held numbers. Its `feature_names_` are
        the attributes of the columns.
    [certificate]

    See Also
    --------
    Sequences : The container of sequences.
    fastm4n.automata.Automaton : Constraints.
    SequenceVectorizer : Makes features of dicts and attribute strings.
    MulticlassClassifier : Labels that do not depend on one another.

    Notes
    -----
    [bound]

    A pass costs O(n_tokens (n_nonzeros_per_token n_labels + n_labels^2)). Memory is that of
    the features, O(n_features n_labels) for the weights, and O((n_tokens + n_sequences n_labels)
    n_labels) for the dual point, twice for "log".
    With `transition_features` a pass costs O(n_tokens n_selected_nonzeros_per_token n_labels^2)
    more, the weights are O(n_selected n_labels^2) more, and the dual point is O(n_tokens
    n_labels^2): select few features.
    With `order` or `constraints` a position costs an addition for each arc of an automaton, whose
    states are the observed contexts of at most `order` labels, times those of the constraints, and
    which has n_labels arcs a state at most. The dual point has a number more for each sequence and
    n-gram. The surrogate "max_min" lets its adversary answer position by position, within no
    constraints.

    References
    ----------
    [references]

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
    _part = "token"
    _fitted_arrays = {
        "classes_": (("k",), LABEL_KINDS), "cost_matrix_": (("k", "k"), "f"),
        "intercept_": (("k",), "f"), "transition_coef_": (("k", "k"), "f"),
        "start_coef_": (("k",), "f"), "end_coef_": (("k",), "f"),
    }
    _optional_arrays = {"transition_features": {
        "transition_features_": (("s",), "i"), "transition_feature_coef_": (("s", "k", "k"), "f"),
    }}
    _surrogates = BOOSTED
    _replaced = (*WEIGHTS, "_of_pairs", "transition_features_", "ngrams_")
    _task_class = SequenceTask

    def __init__(
        self, surrogate: Literal["max_min", "max_margin", "log", "boost"] = "max_min", *,
        alpha: float | Literal["auto"] = "auto", cost: Cost = "zero_one",
        cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
        temperature: float = 1.0, fit_intercept: bool | float = True, fit_start_end: bool = True,
        fit_transitions: bool = True, transition_features: Literal["all"] | ArrayLike | None = None,
        order: int = 1, constraints: str | Automaton | None = None,
        states: Literal["all", "observed"] = "all",
        penalty: Literal["l2", "elasticnet", "l1"] | Penalties = "l2",
        solver: Literal["auto"] | Solvers = "auto", tol: float = 1e-3, max_iter: int = 1000,
        decode: Literal["map", "min_risk"] = "map",
        allowed_transitions: Literal["bio"] | ArrayLike | None = None, warm_start: bool = False,
        n_jobs: int | None = None, random_state: RandomState = None, verbose: int = 0,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.cost_scale = cost_scale
        self.cost_augmented = cost_augmented
        self.temperature = temperature
        self.fit_intercept = fit_intercept
        self.fit_start_end = fit_start_end
        self.fit_transitions = fit_transitions
        self.transition_features = transition_features
        self.order = order
        self.constraints = constraints
        self.states = states
        self.penalty = penalty
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.allowed_transitions = allowed_transitions
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        tags.input_tags.dict = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------------- validation

    def _check_parameters(self):
        self._check_solver_parameters()
        check_choice("cost_scale", self.cost_scale, COST_SCALES)
        self._check_flags("fit_intercept", "fit_start_end", "fit_transitions")
        check_number("order", self.order, low=0, integer=True)
        if self.order > MOST_ORDER:
            raise ValueError(f"order must be at most {MOST_ORDER}, got {self.order}.")
        check_constraints(self.constraints, self.transition_features)
        if self.order > 1 and (self.transition_features is not None or not self.fit_transitions):
            raise ValueError(
                f"order={self.order} needs fit_transitions=True and transition_features=None, got "
                f"fit_transitions={self.fit_transitions} and "
                f"transition_features={reprlib.repr(self.transition_features)}.")
        if self.surrogate == "boost" and (self.order > 1 or self.constraints is not None):
            raise ValueError(
                f"surrogate='boost' needs order=1 and constraints=None, got order={self.order} and "
                f"constraints={self.constraints!r:.80}.")
        as_states(self.states)
        if self.transition_features is not None and not self.fit_transitions:
            raise ValueError(
                f"transition_features={reprlib.repr(self.transition_features)} needs "
                f"fit_transitions=True, got {self.fit_transitions}: without it transitions have no "
                "scores."
            )
        as_penalty(self.penalty)

    def _arrays_of_fit(self):
        arrays = super()._arrays_of_fit()
        if self.order > 1:
            arrays.update(ngrams_=(("g", "o"), "i"), ngram_coef_=(("g",), "f"))
        return arrays

    # -------------------------------------------------------------------------- fit

    def fit(
        self, X: SequenceData, y: Labellings, sample_weight: ArrayLike | None = None, *,
        lengths: ArrayLike | None = None, allowed: Masks | None = None,
    ) -> Self:
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : Sequences, or list of {array-like, CSR matrix} of shape (n_positions, n_features)
            Features of each sequence, position by position. With `lengths`, one matrix.
            In `Sequences`, C-ordered float32 or float64 buffers and CSR matrices are not copied,
            except dense features that are mostly zero, which are worked on in CSR.
            Or a list of sequences of attributes, a dict or a list of strings for each position, as
            `SequenceVectorizer` takes them; `vectorizer_` has learnt their columns then.
        y : Sequences, or list of sequences of labels
            Labels of any hashable type. With `lengths`, one sequence.
        sample_weight : array-like of shape (n_sequences,), default=None
            Non-negative weights; 2 is the sequence given twice, 0 the sequence left out.
        lengths : array-like of int of shape (n_sequences,), default=None
            Lengths of the sequences, where X and y are not cut into them.
        allowed : Sequences, or list of bool arrays of shape (n_positions, n_labels), default=None
            Labels that each position may have, columns in sorted order of the labels in y; true
            labels are to be among them. With `lengths`, one array.

        [fit_outcome]
        """
        return self._fit(X, y, sample_weight, lengths, allowed)

    # ---------------------------------------------------------------------- predict

    def _check_fitted(self, attributes):
        columns, d = attributes.get("transition_features_"), attributes["n_features_in_"]
        if columns is not None and not ((columns >= 0) & (columns < d)).all():
            raise ValueError("transition_features_ has columns that there are not")
        ngrams = attributes.get("ngrams_")
        if ngrams is not None:
            if ngrams.shape[1] != self.order + 1:
                raise ValueError("ngrams_ are not of this order")
            check_ngrams(ngrams, attributes["classes_"].size)

    def _features(self, X, lengths=None):
        """X of predictions as features."""
        return made(
            *tokens_of(X, lengths), vars(self).get("vectorizer_"), f"this {type(self).__name__}")

    def _prepare(self, X, lengths, constraints=None, allowed=None):
        """Validated sequences, and what decodes those of them that are not empty."""
        if "n_features_in_" not in vars(self):
            check_is_fitted(self)
        X = as_features(self._features(X, lengths), lengths, self.n_features_in_)
        self._check_n_features(X.values)
        given = self.constraints if constraints is None else constraints
        check_constraints(given, None)
        if given is None and allowed is None and not hasattr(self, "ngrams_"):
            return X, ChainDecoder(self, X)
        labels = self.classes_.tolist()
        return X, AutomatonDecoder(
            self, X, as_automaton(given, labels), as_masks(allowed, X, len(labels), lengths))

    def predict(
        self, X: SequenceData, decode: Literal["map", "min_risk"] | None = None, *,
        allowed_transitions: Literal["bio"] | ArrayLike | None = None,
        constraints: str | Automaton | None = None, allowed: Masks | None = None,
        lengths: ArrayLike | None = None,
    ) -> Sequences:
        """Predicted labels.

        Parameters
        ----------
        X : Sequences, or list of {array-like, CSR matrix} of shape (n_positions, n_features)
            Features, as in `fit`; of a tagger that was fitted to attributes, a list of sequences of
            those, or what its `vectorizer_` makes of them.
        [decode]
        allowed_transitions : {"bio"} or bool array of shape (n_labels, n_labels), default=None
            Overrides the parameter `allowed_transitions`.
        constraints : str or Automaton, default=None
            Overrides the parameter `constraints`.
        allowed : Sequences, or list of bool arrays of shape (n_positions, n_labels), default=None
            Labels that each position may have, columns as in `classes_`. With `lengths`, one
            array.
        lengths : array-like of int of shape (n_sequences,), default=None
            As in `fit`.

        Returns
        -------
        y : Sequences
            Labels of each sequence; it is indexed and iterated over like a list.
        """
        decode = self._decoding(decode)
        X, decoder = self._prepare(X, lengths, constraints, allowed)
        labels = self._predicted(decoder, decode, allowed_transitions)
        return Sequences._of_checked(labels, X.offsets)

    def _predicted(self, decoder, decode, allowed_transitions=None):
        """Labels of all positions of what `_prepare` gives."""
        given = self.allowed_transitions if allowed_transitions is None else allowed_transitions
        labels = decoder.least_risk(given) if decode == "min_risk" else decoder.best_labels(given)
        return self.classes_[labels]

    @needs_log
    def predict_marginals(
        self, X: SequenceData, *, allowed_transitions: Literal["bio"] | ArrayLike | None = None,
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
        X, decoder = self._prepare(X, lengths, constraints, allowed)
        given = self.allowed_transitions if allowed_transitions is None else allowed_transitions
        return Sequences(decoder.nodes(given), X.offsets)

    def predict_kbest(
        self, X: SequenceData, k: int, *,
        allowed_transitions: Literal["bio"] | ArrayLike | None = None,
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
            Best first; k' is k, or the number of labellings where that is less: an empty sequence
            has one.
        scores : list of ndarray of shape (k',)
        """
        check_number("k", k, low=0, integer=True)
        _, decoder = self._prepare(X, lengths, constraints, allowed)
        given = self.allowed_transitions if allowed_transitions is None else allowed_transitions
        return decoder.kbest(k, given)

    def decision_function(self, X: SequenceData, *, lengths: ArrayLike | None = None) -> Sequences:
        """Scores of the labels at each position: emissions, and those of the ends.

        Parameters
        ----------
        X, lengths
            As in `predict`.

        Returns
        -------
        scores : Sequences
            An array of shape (n_positions, n_labels) for each sequence. Transitions are not in
            them: they are `transition_coef_`, for all sequences, to which those that depend on
            features add.
        """
        X, decoder = self._prepare(X, lengths)
        return Sequences(decoder.emissions(), X.offsets)

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
            True labels. One that is not in `classes_` counts as an error, with a warning.
        sample_weight : array-like of shape (n_sequences,), default=None
            Weights of the sequences, for each of their positions.

        Returns
        -------
        accuracy : float
        """
        X, decoder = self._prepare(X, lengths)
        truth = as_labels(y, X, lengths)
        warn_of_unknown(distinct(truth), self.classes_)
        predicted = self._predicted(decoder, self.decode).tolist()
        pairs = zip(truth, predicted, strict=True)
        right = np.fromiter((a == b for a, b in pairs), bool, len(truth))
        weights = None
        if sample_weight is not None:
            weights = np.repeat(summable(as_weights(sample_weight, len(X), "sequence")), X.lengths)
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
