"""Sequence labelling: outputs that are chains of labels."""

from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fastm4n.estimators import _chain_decoding as decoding
from fastm4n.estimators._base import (
    DECODINGS,
    RISK_TOL,
    CertifiedEstimator,
    Problem,
    as_bounds,
    as_weights,
    canonical,
    check_choice,
    check_number,
    cost_matrix,
    has_marginals,
    no_bounds,
    summable,
    warn_of_unknown,
)
from fastm4n.estimators._merge import merge_sequences
from fastm4n.estimators._warm import start_from, warm_state
from fastm4n.features._chain import ChainFeatures
from fastm4n.inference import viterbi_kbest
from fastm4n.inference._chain import ChainMaxMin, ChainScratch
from fastm4n.outputs import ChainOutputs
from fastm4n.sequences import Sequences
from fastm4n.solvers.block_coordinate import in_threads
from fastm4n.surrogates import make_surrogate

STATES = ("all", "observed")

# dense features of at most this share of non-zeros are trained on in CSR
MOSTLY_ZERO = 0.3


class Explanation(NamedTuple):
    """The strongest weights of a tagger: rows of (weight, ...), strongest first.

    `emissions` has rows (weight, label, feature), `transitions` (weight, from, to),
    with "(start)" and "(end)" for the ends of a sequence, `transition_features` (weight, from,
    to, feature), none where transitions do not depend on features. Printed, it is a table.
    """

    emissions: list
    transitions: list
    transition_features: list = ()

    def __str__(self):
        lines = ["transitions"]
        lines += [f"{w:+10.4f}  {a!s} -> {b!s}" for w, a, b in self.transitions]
        lines += ["", "emissions"]
        lines += [f"{w:+10.4f}  {label!s:<12} {feature}" for w, label, feature in self.emissions]
        if self.transition_features:
            lines += ["", "features of transitions"]
            lines += [
                f"{w:+10.4f}  {a!s} -> {b!s} {feature}"
                for w, a, b, feature in self.transition_features
            ]
        return "\n".join(lines)


class SequenceTagger(CertifiedEstimator):
    """Sequence labelling by M4N, structural SVM or CRF on a chain, with a certified gap.

    Minimises mean_i S(scores of x_i, y_i) + alpha / 2 ||w||^2, S being the surrogate of the mean
    cost per position, by block-coordinate Frank-Wolfe on the dual. A labelling y of a sequence
    scores the sum over positions of ``coef_[y_t] @ x_t + intercept_[y_t]``, of
    ``transition_coef_[y_t, y_{t+1}]``, and ``start_coef_`` and ``end_coef_`` of its ends.

    Parameters
    ----------
    surrogate : {"max_min", "max_margin", "log"}, default="max_min"
        The loss that is minimised: "max_min" is the M4N of [1]_, consistent for every
        cost; "max_margin" the structural SVM (M3N); "log" the linear-chain CRF.
    alpha : float, default=0.01
        Regularisation: alpha / 2 times the squared norm of all weights is added to the
        mean loss of a sequence. CRFsuite's c2 is alpha n / 2.
    cost : {"zero_one", "absolute", "squared"} or array of shape (n_labels, n_labels), \
            default="zero_one"
        What a mistake at one position costs: cost[i, j] for predicting ``classes_[j]`` where
        the truth is ``classes_[i]``. The loss of a sequence is the mean over its
        positions, the Hamming loss divided by the length by default. The "log" surrogate
        uses it for ``decode="min_risk"`` only.
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
    states : {"all", "observed"}, default="all"
        Which weights there are: those of all pairs of a feature and a label and of all
        transitions, or only those of the pairs that occur in the training data, with a value that
        is not zero, and of the transitions that occur; the others are exactly zero. CRFsuite's
        default is "observed". Intercept and ends always have all their weights.
    coef_bounds : pair (lower, upper) or dict, default=None
        Bounds that `coef_` keeps to: numbers, or arrays that broadcast to (n_labels, n_features),
        None or infinities where there is no bound. A dict has a pair for each of "coef",
        "transition_coef", "start_coef", "end_coef" and "transition_feature_coef" that has bounds,
        of the shape of the attribute of that name. The gap is certified for the problem with
        these constraints [2]_. Intercepts have no bounds, and weights that ``states="observed"``
        leaves out stay zero.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Which sequence is next: with probability proportional to its last known gap [2]_,
        uniformly, or all in a new random order each pass.
    step : {"line_search", "pairwise", "away", "fixed"}, default="line_search"
        "line_search" is the Frank-Wolfe step with the best step size, in closed form; "fixed" is
        the step 2n / (t + 2n) of [1]_ with averaging. "log" takes steps of its own, in the
        scores whose marginals the dual point is, and knows "line_search" only.
        "pairwise" moves weight from the worst of an example's atoms to the oracle's answer, and
        "away" away from it where that gains more [2]_: both reach small gaps in fewer passes, and
        keep each example's atoms. For "max_min" and "max_margin".
    accelerate : bool, default=True
        Whether passes are accelerated by momentum, where alpha is small beside the curvature:
        many times fewer passes there (see the user guide). The weights are then an average
        of the latest ones, and their gap is certified all the same.
    cache : int, default=None
        Most atoms (outputs, or mixtures of them) that are kept of an example, so that the oracle
        need not be asked where the best of them gains enough [2]_; None for no cache.
    cache_F : float, default=0.25
        An atom gains enough if it does `cache_F` of the example's gap when the oracle was last
        asked, and `cache_nu` of the mean gap. In (0, 1].
    cache_nu : float, default=0.01
        The share of the mean gap, when the gaps of all were last looked at, that an atom has to
        gain. In (0, 1].
    solver : {"manual", "auto"}, default="manual"
        "auto" chooses `step` and `cache` by the seconds that they take in the first passes, and
        says in `history_` what it chose. It goes by the clock: fits may differ in their last
        digits from run to run.
    oracle : {"column_generation", "mirror_prox"}, default="column_generation"
        How "max_min" oracles are solved: by Viterbi and small matrix games, as exactly as the
        gap needs, or by the saddle-point mirror prox of [1]_ with sum-product, for
        comparison. The certified gap does not depend on it.
    oracle_iter : int, default=None
        Iterations of mirror prox; 10 times the length of the sequence by default.
    oracle_warm_start : bool, default=False
        Whether mirror prox starts from where it ended at the last visit. Its scores add up
        over the visits, and on chains it then does worse than from the start.
    tol : float, default=1e-3
        Absolute duality gap at which the fit ends.
    max_iter : int, default=1000
        Most passes over the sequences.
    decode : {"map", "min_risk"}, default="map"
        Prediction of the highest score (Viterbi), or at each position of the least expected cost
        under the marginals ("log") or the oracle's distribution ("max_min").
    allowed_transitions : {"bio"} or bool array of shape (n_labels, n_labels), default=None
        Transitions that predictions may make, rows and columns as in `classes_`. "bio" lets
        "I-x" follow "B-x" and "I-x" only, and not come first. Fits do not use it.
    warm_start : bool, default=False
        Whether to start from the dual point of the last fit, if that had as many sequences of
        the same lengths, the same labels and the same surrogate; alpha may change.
    n_jobs : int, default=None
        Threads of the certificate and of predictions. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order of visits: an int gives the same bits on the same machine.
    verbose : int, default=0
        A progress bar (with tqdm) and lines in the log "fastm4n".
    callback : callable, default=None
        Called after each certificate with a dict of its row of `history_`; a true result
        ends the fit.

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
    classes_ : ndarray of shape (n_labels,)
        The labels.
    cost_matrix_ : ndarray of shape (n_labels, n_labels)
        The costs of `cost`.
    duality_gap_ : float
        Certified gap: the objective is at most this much above its minimum.
    primal_objective_, dual_objective_ : float
        The two values that differ by the gap.
    n_iter_ : int
        Passes made.
    history_ : dict of ndarray
        At each certificate "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
        "oracle_error" (mean of the oracle's own bounds' difference during the pass),
        "cache_hits" (visits that asked no oracle) and "policy" (the step, and whether there is
        a cache).
    n_features_in_ : int
        Number of features.

    See Also
    --------
    Sequences : The container of sequences.
    SequenceVectorizer : Makes features of dicts and attribute strings.
    MulticlassClassifier : Labels that do not depend on one another.

    Notes
    -----
    The duality gap is a bound: it is computed from feasible dual points and upper bounds of the
    oracles at the end of the fit, with the weights recomputed from the dual point.
    Sequences that occur more than once are merged into one of larger weight, and the blocks
    are ordered by content, so that a fit depends neither on the order of the sequences nor on
    whether a weight is written as a repetition.

    A pass costs O(n_tokens (n_nonzeros_per_token n_labels + n_labels^2)). Memory is that of
    the features, O(n_features n_labels) for the weights, and O((n_tokens + n_sequences n_labels)
    n_labels) for the dual point, twice for "log".
    With `transition_features` a pass costs O(n_tokens n_selected_nonzeros_per_token n_labels^2)
    more, the weights are O(n_selected n_labels^2) more, and the dual point is O(n_tokens
    n_labels^2): select few features.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

    Examples
    --------
    >>> from fastm4n import SequenceTagger, SequenceVectorizer
    >>> words = [["the", "old", "man"], ["a", "man", "sings"]]
    >>> tags = [["D", "A", "N"], ["D", "N", "V"]]
    >>> vectorizer = SequenceVectorizer()
    >>> X = vectorizer.fit_transform([[[word] for word in sentence] for sentence in words])
    >>> tagger = SequenceTagger("log", random_state=0).fit(X, tags)
    >>> [labels.tolist() for labels in tagger.predict(X)]
    [['D', 'A', 'N'], ['D', 'N', 'V']]
    """

    _oracles = ("column_generation", "mirror_prox")
    _replaced = ("_packed_edges", "transition_feature_coef_", "transition_features_")

    def __init__(
        self,
        surrogate="max_min",
        *,
        alpha=0.01,
        cost="zero_one",
        fit_intercept=True,
        fit_start_end=True,
        fit_transitions=True,
        transition_features=None,
        states="all",
        coef_bounds=None,
        sampling="gap",
        step="line_search",
        accelerate=True,
        cache=None,
        cache_F=0.25,
        cache_nu=0.01,
        solver="manual",
        oracle="column_generation",
        oracle_iter=None,
        oracle_warm_start=False,
        tol=1e-3,
        max_iter=1000,
        decode="map",
        allowed_transitions=None,
        warm_start=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
        callback=None,
    ):
        self.surrogate = surrogate
        self.alpha = alpha
        self.cost = cost
        self.fit_intercept = fit_intercept
        self.fit_start_end = fit_start_end
        self.fit_transitions = fit_transitions
        self.transition_features = transition_features
        self.states = states
        self.coef_bounds = coef_bounds
        self.sampling = sampling
        self.step = step
        self.accelerate = accelerate
        self.cache = cache
        self.cache_F = cache_F
        self.cache_nu = cache_nu
        self.solver = solver
        self.oracle = oracle
        self.oracle_iter = oracle_iter
        self.oracle_warm_start = oracle_warm_start
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.allowed_transitions = allowed_transitions
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    # ------------------------------------------------------------------- validation

    def _check_parameters(self):
        self._check_solver_parameters()
        self._check_flags(
            "fit_intercept", "fit_start_end", "fit_transitions", "oracle_warm_start", "warm_start"
        )
        check_choice("states", self.states, STATES)
        if self.transition_features is not None and not self.fit_transitions:
            raise ValueError(
                "transition_features needs fit_transitions=True: without it transitions have no "
                "scores."
            )
        if self.oracle_iter is not None:
            check_number("oracle_iter", self.oracle_iter, low=0, integer=True)
        self._named_bounds()
        if self.step == "exact":
            raise ValueError(
                "step='exact' needs a closed-form maximiser of the dual over a block, which "
                "chains do not have; use step='line_search'."
            )
        if self.step == "fixed" and self.surrogate == "log":
            raise ValueError(
                "step='fixed' averages dual points, and the entropy of an average of chains is not "
                "known; use step='line_search' with surrogate='log'."
            )

    def _named_bounds(self):
        """The bounds, by the weights that they are of."""
        if not isinstance(self.coef_bounds, dict):
            return {} if self.coef_bounds is None else {"coef": self.coef_bounds}
        fitted = {
            "coef": True,
            "transition_coef": self.fit_transitions,
            "start_coef": self.fit_start_end,
            "end_coef": self.fit_start_end,
            "transition_feature_coef": self.transition_features is not None,
        }
        for name in self.coef_bounds:
            check_choice("a key of coef_bounds", name, fitted)
            if not fitted[name]:
                raise ValueError(
                    f"coef_bounds has bounds of {name!r}, weights that this model has not: see "
                    "fit_transitions, fit_start_end and transition_features."
                )
        return self.coef_bounds

    def _bound(self, features):
        """Give the map the bounds of coef_bounds."""
        given, R = self._named_bounds(), features.n_labels
        names = "coef", "intercept", "start_coef", "end_coef", "transition_coef"
        parts = [(features, lambda packed: _views(packed, features.n_features, R), names)]
        if features.edges is not None:
            names = "transition_coef", "transition_feature_coef"
            parts.append((features.edges, lambda packed: _edge_views(packed, R), names))
        for part, views_of, names in parts:
            bounds = no_bounds(part.all_weights().shape)
            views = dict(zip(names, zip(*map(views_of, bounds))))
            bounded = [name for name in views if name in given]
            for name in bounded:
                lower, upper = views[name]
                of = f"coef_bounds[{name!r}]" if given is self.coef_bounds else "coef_bounds"
                lower[...], upper[...] = as_bounds(of, given[name], lower.shape, name + "_")
            if bounded:
                part.set_bounds(*bounds)

    def _structure(self, y, lengths, cost):
        per_edge = self.transition_features is not None
        return make_surrogate(
            self.surrogate, ChainOutputs(y, lengths, cost, per_edge, "mean"),
            "mirror_prox" if self.oracle == "mirror_prox" else "exact", self.oracle_iter,
            self.oracle_warm_start,
        )

    # -------------------------------------------------------------------------- fit

    def fit(self, X, y, sample_weight=None, *, lengths=None):
        """Fit the model until its duality gap is certified to be at most `tol`.

        Parameters
        ----------
        X : Sequences, or list of {array-like, CSR matrix} of shape (n_positions, n_features)
            Features of each sequence, position by position. With `lengths`, one matrix.
            In `Sequences`, C-ordered float32 or float64 buffers and CSR matrices are not copied,
            except dense features that are mostly zero, which are worked on in CSR.
        y : Sequences, or list of sequences of labels
            Labels of any hashable type. With `lengths`, one sequence.
        sample_weight : array-like of shape (n_sequences,), default=None
            Non-negative weights; 2 is the sequence given twice, 0 the sequence left out.
        lengths : array-like of int of shape (n_sequences,), default=None
            Lengths of the sequences, where X and y are not cut into them.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            For invalid parameters or data, naming the argument and what is wrong with it.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` passes did not reach `tol`; the message states the gap.
        """
        return self._fit_or_restore(X, y, sample_weight, lengths)

    def _problem(self, X, y, sample_weight, lengths=None):
        self._check_parameters()
        X = _as_features(X, lengths)
        selected = _selected(self.transition_features, X.values.shape[1])
        labels = _as_labels(y, X, lengths)
        weights = as_weights(sample_weight, len(X), "sequence")
        kept = np.flatnonzero(weights)
        if kept.size < len(X):
            chosen = Sequences(np.arange(len(labels)), X.offsets)[kept].values
            inner, labels = X[kept], [labels[t] for t in chosen]
        else:
            inner = X
        weights = summable(weights[kept])
        classes, codes = _encode(labels)
        cost = cost_matrix(self.cost, classes.size)

        rows, block_weights, block_of = merge_sequences(inner, codes, weights)
        p = block_weights / block_weights.sum()
        block_lengths = inner.lengths[rows]
        values = _without_zeros(inner.values)
        edge_values = None if selected is None else _without_zeros(_columns(values, selected))
        used = edge_used = None
        if self.states == "observed":
            used, edge_used = _observed(values, edge_values, codes, inner.offsets, classes.size)
        features = ChainFeatures(
            values, inner.offsets[rows], block_lengths, classes.size,
            float(self.fit_intercept), self.fit_start_end, self.fit_transitions, edge_values,
            used=used, edge_used=edge_used,
        )
        if self.coef_bounds is not None:
            self._bound(features)
        codes = Sequences(codes, inner.offsets)[rows].values
        structure = self._structure(codes, block_lengths, cost)
        common = {
            "n_features_in_": X.values.shape[1], "classes_": classes, "cost_matrix_": cost,
        }
        if selected is not None:
            common["transition_features_"] = selected

        def fitted(mu, alpha):
            """Weights, as views of the rows that the compiled loops read."""
            packed = features.all_weights()
            edges = None if selected is None else features.edges.all_weights()
            return _attributes(packed, edges, X.values.shape[1], classes.size)

        return Problem(
            structure, features, p, common, fitted,
            start=lambda: self._warm_start_point(structure, kept[rows], codes, X, classes),
            warm=lambda solution: warm_state(
                solution, structure, kept[rows], kept, block_of, len(X), lengths=X.lengths,
                alpha=float(self.alpha), surrogate=self.surrogate, per_edge=selected is not None,
            ),
        )

    def _warm_start_point(self, structure, blocks, codes, X, classes):
        """Arguments of `solve` that start from the last dual point, where that fits."""
        state = getattr(self, "_warm_state", None)
        per_edge = self.transition_features is not None
        if (
            state is None or state["surrogate"] != self.surrogate
            or state["per_edge"] != per_edge
            or not np.array_equal(state["lengths"], X.lengths)
            or not np.array_equal(classes, self.classes_)
        ):
            return {}
        R, stride, lengths = classes.size, _stride(classes.size), X.lengths[blocks]
        starts = np.cumsum(lengths) - lengths

        def truth(b):
            T = lengths[b]
            labels = codes[starts[b] : starts[b] + T]
            rows = np.zeros((T + (T - 1 if per_edge else 1) * R, stride))
            rows[np.arange(T), labels] = 1.0
            first = T + (R * np.arange(T - 1) if per_edge else 0)
            np.add.at(rows, (first + labels[:-1], labels[1:]), 1.0)
            return rows.ravel()

        sizes = (X.lengths + (X.lengths - 1 if per_edge else 1) * R) * stride
        return start_from(state, structure, blocks, sizes, self.alpha, truth)

    # ---------------------------------------------------------------------- predict

    def __getstate__(self):
        state = super().__getstate__()
        for name in ("_packed", "_packed_edges"):  # coef_ and its like hold the same numbers
            state.pop(name, None)
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        if hasattr(self, "coef_"):
            self.__dict__.update(_attributes(*self._weights(), *np.shape(self.coef_)[::-1]))

    def _weights(self):
        """The rows that the compiled loops read, made anew where fitted arrays were replaced.

        Those of positions, and those of transitions where they depend on features, or None.
        """
        R, d = np.shape(self.coef_)
        stride = _stride(R)
        per_edge = hasattr(self, "transition_features_")
        arrays = [self.coef_, self.intercept_, self.start_coef_, self.end_coef_]
        pairs = [self.transition_coef_]
        if per_edge:
            pairs.append(self.transition_feature_coef_)
        else:
            arrays += pairs
        packed = getattr(self, "_packed", None)
        if packed is None or not all(map(_same_memory, arrays, _views(packed, d, R))):
            packed = np.zeros((d + 3 if per_edge else d + 3 + R, stride))
            packed[:d, :R] = self.coef_.T
            packed[d : d + 3, :R] = self.intercept_, self.start_coef_, self.end_coef_
            if not per_edge:
                packed[d + 3 :, :R] = self.transition_coef_
        if not per_edge:
            return packed, None
        packed_edges = getattr(self, "_packed_edges", None)
        if packed_edges is None or not all(
            map(_same_memory, pairs, _edge_views(packed_edges, R))
        ):
            packed_edges = np.zeros((self.transition_features_.size + 1, R * stride))
            edges = packed_edges.reshape(-1, R, stride)
            edges[:-1, :, :R] = self.transition_feature_coef_
            edges[-1, :, :R] = self.transition_coef_
        return packed, packed_edges

    def _prepare(self, X, lengths):
        """Validated sequences, and the features that score them."""
        check_is_fitted(self)
        X = _as_features(X, lengths)
        if X.values.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.values.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        weights, edge_weights = self._weights()
        selected = getattr(self, "transition_features_", None)
        features = ChainFeatures(
            X.values, X.offsets[:-1], X.lengths, self.classes_.size, 1.0, True, True,
            None if selected is None else _columns(X.values, selected), weights, edge_weights,
        )
        return X, features

    def _forbidden(self, allowed):
        """0 for what may be and -inf for what may not: transitions, and in a last row, first labels.

        Without rows where everything is allowed.
        """
        allowed = self.allowed_transitions if allowed is None else allowed
        if allowed is None:
            return np.zeros((0, 0))
        first = np.ones(self.classes_.size, dtype=bool)
        if isinstance(allowed, str):
            check_choice("allowed_transitions", allowed, ("bio",))
            allowed, first = _bio(self.classes_)
        allowed = np.asarray(allowed)
        shape = (self.classes_.size,) * 2
        if allowed.dtype != bool or allowed.shape != shape:
            raise ValueError(
                f"allowed_transitions must be 'bio' or a boolean array of shape {shape}, rows and "
                "columns as in classes_."
            )
        return np.where(np.vstack([allowed, first]), 0.0, -np.inf)

    def _in_threads(self, features, n_sequences, function):
        """Call function(start, stop) on ranges that make up all sequences."""
        cost = n_sequences * features.visit_cost
        in_threads(function, n_sequences, cost, effective_n_jobs(self.n_jobs))

    def predict(self, X, decode=None, *, allowed_transitions=None, lengths=None):
        """Predicted labels.

        Parameters
        ----------
        X : Sequences, or list of {array-like, CSR matrix} of shape (n_positions, n_features)
            Features, as in `fit`.
        decode : {"map", "min_risk"}, default=None
            Overrides the parameter `decode`.
        allowed_transitions : {"bio"} or bool array of shape (n_labels, n_labels), default=None
            Overrides the parameter `allowed_transitions`.
        lengths : array-like of int of shape (n_sequences,), default=None
            As in `fit`.

        Returns
        -------
        y : Sequences
            Labels of each sequence; it is indexed and iterated over like a list.
        """
        decode = self.decode if decode is None else decode
        check_choice("decode", decode, DECODINGS)
        X, features = self._prepare(X, lengths)
        return Sequences(self._predicted(X, features, decode, allowed_transitions), X.offsets)

    def _predicted(self, X, features, decode, allowed_transitions=None):
        """Labels of all positions of what `_prepare` gives."""
        if decode == "min_risk":
            labels = self._least_risk(X, features, allowed_transitions)
        else:
            labels = self._best_labels(X, features, allowed_transitions)
        return self.classes_[labels]

    def _best_labels(self, X, features, allowed_transitions=None):
        """Numbers of the labels of highest score, of all positions."""
        forbidden = self._forbidden(allowed_transitions)
        labels = np.zeros(X.n_tokens, dtype=np.intc)
        values = np.zeros(len(X))
        offsets = X.offsets.astype(np.intp)

        def run(start, stop):
            decoding.decode_map(
                features, ChainScratch(self.classes_.size, int(X.lengths.max(initial=1))),
                forbidden, np.zeros(features.size), start, stop, offsets, labels, values,
            )

        self._in_threads(features, len(X), run)
        _check_paths(values)
        return labels

    def _least_risk(self, X, features, allowed_transitions):
        """Numbers of the labels of least expected cost, of all positions."""
        if self.surrogate == "max_margin":
            raise ValueError(
                "decode='min_risk' weighs the costs by a distribution over the labels, and "
                "surrogate='max_margin' has none; use 'log' or 'max_min'."
            )
        if allowed_transitions is not None or self.allowed_transitions is not None:
            raise ValueError(
                "decode='min_risk' labels positions one by one and cannot keep to "
                "allowed_transitions; use decode='map'."
            )
        risks = self._nodes(X, features) @ self.cost_matrix_
        labels = np.argmin(risks, axis=1)
        if self.surrogate == "max_min":
            # the adversary makes labels equally risky, up to the oracle's tolerance, which is one
            # of the mean over positions: among those, the label of the highest score
            first = self._best_labels(X, features)
            every = np.arange(labels.size)
            slack = RISK_TOL * np.repeat(X.lengths, X.lengths)
            tied = risks[every, first] <= risks[every, labels] + slack
            labels = np.where(tied, first, labels)
        return labels

    def _nodes(self, X, features, allowed_transitions=None):
        """Node marginals of the surrogate's oracle, (n_tokens, n_labels)."""
        longest = int(X.lengths.max(initial=1))
        nodes = np.zeros((X.n_tokens, self.classes_.size))
        values = np.zeros(len(X))
        offsets = X.offsets.astype(np.intp)
        if self.surrogate == "log":
            forbidden = self._forbidden(allowed_transitions)

        def run(start, stop):
            scores, point = np.zeros(features.size), np.zeros(features.size)
            if self.surrogate == "log":
                decoding.marginals(
                    features, ChainScratch(self.classes_.size, longest), forbidden, scores, point,
                    start, stop, offsets, nodes, values,
                )
            else:
                decoding.max_min_nodes(
                    features,
                    ChainMaxMin(self.cost_matrix_, longest, False, features.pair_step != 0),
                    scores, point, RISK_TOL, start, stop, offsets, nodes,
                )

        self._in_threads(features, len(X), run)
        _check_paths(values)
        return nodes

    @available_if(has_marginals)
    def predict_marginals(self, X, *, allowed_transitions=None, lengths=None):
        """Probabilities of the labels at each position, for ``surrogate="log"`` only.

        Parameters
        ----------
        X, allowed_transitions, lengths
            As in `predict`.

        Returns
        -------
        marginals : Sequences
            An array of shape (n_positions, n_labels) for each sequence, columns as in
            `classes_`.
        """
        X, features = self._prepare(X, lengths)
        return Sequences(self._nodes(X, features, allowed_transitions), X.offsets)

    def predict_kbest(self, X, k, *, allowed_transitions=None, lengths=None):
        """The k labellings of highest score of each sequence.

        Parameters
        ----------
        X, allowed_transitions, lengths
            As in `predict`.
        k : int
            How many.

        Returns
        -------
        labellings : list of ndarray of shape (k', n_positions)
            Best first; k' is k, or the number of labellings where that is less.
        scores : list of ndarray of shape (k',)
        """
        check_number("k", k, low=0, integer=True)
        X, features = self._prepare(X, lengths)
        forbidden = self._forbidden(allowed_transitions)
        work = np.zeros(features.size)
        labellings, scores = [], []
        for b in range(len(X)):
            unary, pairwise = decoding.all_scores(features, forbidden, work, b)
            try:
                paths, values = viterbi_kbest(unary, pairwise, k)
            except ValueError:
                raise _no_path(b) from None
            labellings.append(self.classes_[paths])
            scores.append(values)
        return labellings, scores

    def decision_function(self, X, *, lengths=None):
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
        X, features = self._prepare(X, lengths)
        work = np.zeros(features.size)
        rows = [decoding.all_scores(features, np.zeros((0, 0)), work, b)[0] for b in range(len(X))]
        values = np.concatenate(rows) if rows else np.zeros((0, self.classes_.size))
        return Sequences(values, X.offsets)

    def score(self, X, y, sample_weight=None, *, lengths=None):
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
        X, features = self._prepare(X, lengths)
        truth = _as_labels(y, X, lengths)
        warn_of_unknown(_distinct(truth), self.classes_)
        predicted = self._predicted(X, features, self.decode).tolist()
        right = np.fromiter((a == b for a, b in zip(truth, predicted)), bool, len(truth))
        weights = None
        if sample_weight is not None:
            weights = np.repeat(summable(as_weights(sample_weight, len(X), "sequence")), X.lengths)
        return float(np.average(right, weights=weights))

    def explain(self, feature_names=None, n_strongest=20):
        """The strongest weights: which features speak for which label, and which transitions.

        Parameters
        ----------
        feature_names : array-like of str of shape (n_features,), default=None
            Names of the features, as `SequenceVectorizer.get_feature_names_out` gives them;
            their numbers by default.
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
        labels = self.classes_.tolist()
        if feature_names is None:
            feature_names = range(self.n_features_in_)
        elif len(feature_names) != self.n_features_in_:
            raise ValueError(
                f"feature_names has {len(feature_names)} names, but there are "
                f"{self.n_features_in_} features."
            )
        emissions = [
            (float(self.coef_[i, j]), labels[i], feature_names[j])
            for i, j in _strongest(self.coef_, n_strongest)
        ]
        # the ends are one more label, before the first and after the last position
        R = len(labels)
        table = np.zeros((R + 1, R + 1))
        table[:R, :R] = self.transition_coef_
        table[R, :R], table[:R, R] = self.start_coef_, self.end_coef_
        sources, targets = [*labels, "(start)"], [*labels, "(end)"]
        transitions = [
            (float(table[i, j]), sources[i], targets[j]) for i, j in _strongest(table, n_strongest)
        ]
        if not hasattr(self, "transition_features_"):
            return Explanation(emissions, transitions)
        coef, columns = self.transition_feature_coef_, self.transition_features_
        return Explanation(emissions, transitions, [
            (float(coef[k, i, j]), labels[i], labels[j], feature_names[int(columns[k])])
            for k, i, j in _strongest(coef, n_strongest)
        ])


def _strongest(weights, n):
    """Indices of the n largest positive and the n smallest negative weights, largest first."""
    flat = np.ascontiguousarray(weights).ravel()
    n = min(n, flat.size)
    largest, smallest = np.argpartition(-flat, n - 1)[:n], np.argpartition(flat, n - 1)[:n]
    ends = np.sort(np.concatenate([largest[flat[largest] > 0], smallest[flat[smallest] < 0]]))
    ends = ends[np.argsort(-flat[ends], kind="stable")]
    return [tuple(map(int, np.unravel_index(k, weights.shape))) for k in ends]


def _attributes(packed, packed_edges, d, R):
    """Fitted weights, as views of the packed rows, and those rows."""
    views = _views(packed, d, R)
    names = ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_")
    fitted = {**dict(zip(names, views)), "_packed": packed}
    if packed_edges is not None:
        fitted["_packed_edges"] = packed_edges
        fitted["transition_coef_"], fitted["transition_feature_coef_"] = _edge_views(
            packed_edges, R
        )
    return fitted


def _views(packed, d, R):
    """coef_, intercept_, start_coef_, end_coef_ and, where shared, transition_coef_ in `packed`."""
    views = packed[:d, :R].T, *packed[d : d + 3, :R]
    return (*views, packed[d + 3 :, :R]) if packed.shape[0] > d + 3 else views


def _edge_views(packed, R):
    """transition_coef_ and transition_feature_coef_ in `packed`."""
    edges = packed.reshape(packed.shape[0], R, -1)[:, :, :R]
    return edges[-1], edges[:-1]


def _same_memory(a, b):
    return (
        isinstance(a, np.ndarray) and a.dtype == b.dtype
        and a.__array_interface__["data"] == b.__array_interface__["data"]
        and a.shape == b.shape and a.strides == b.strides
    )


def _stride(n_labels):
    """Length of the rows that the compiled loops read for so many labels."""
    return ChainScratch(n_labels, 1).stride


def _selected(columns, n_features):
    """The columns that transition_features names, as numbers; None where it is None."""
    if columns is None:
        return None
    if isinstance(columns, str):
        check_choice("transition_features", columns, ("all",))
        return np.arange(n_features)
    try:
        chosen = np.asarray(columns)
    except ValueError:  # rows of different lengths
        chosen = np.zeros((0, 0))
    if chosen.shape == (0,):
        raise ValueError("transition_features selects no feature; None means none.")
    if chosen.ndim != 1 or chosen.dtype.kind not in "biu":
        raise ValueError(
            "transition_features must be 'all', column numbers or a boolean mask over the "
            f"features, got {columns!r}."
        )
    if chosen.dtype == bool:
        if chosen.size != n_features:
            raise ValueError(
                f"transition_features is a mask of {chosen.size} features, but X has {n_features}."
            )
        chosen = np.flatnonzero(chosen)
    if chosen.size == 0:
        raise ValueError("transition_features selects no feature; None means none.")
    wrong = np.flatnonzero((chosen < 0) | (chosen >= n_features))
    if wrong.size:
        raise ValueError(
            f"transition_features[{wrong[0]}] is {chosen[wrong[0]]}, but X has the features 0 ... "
            f"{n_features - 1}."
        )
    values, first = np.unique(chosen, return_index=True)
    if values.size < chosen.size:
        twice = np.setdiff1d(np.arange(chosen.size), first)[0]
        raise ValueError(
            f"transition_features has {chosen[twice]} more than once, again at index {twice}."
        )
    return chosen.astype(np.intp)


def _columns(values, selected):
    """These columns of dense or CSR features, as the compiled loops read them; X itself if all."""
    if np.array_equal(selected, np.arange(values.shape[1])):
        return values
    if sparse.issparse(values):
        return canonical(sparse.csr_array(values[:, selected]))
    return np.ascontiguousarray(values[:, selected])


def _observed(values, edge_values, codes, offsets, n_labels):
    """Masks of the weights of what occurs in the data: those of positions, and of transitions.

    The latter are the last rows of the first mask where transitions depend on no features.
    """
    stride = _stride(n_labels)
    # the transition into each position; the first of a sequence has none
    pairs = np.full(codes.size, -1, dtype=np.intp)
    pairs[1:] = codes[:-1].astype(np.intp) * stride + codes[1:]
    pairs[offsets[:-1]] = -1
    # of intercept, start and end
    constant = np.ones((3, stride), dtype=np.uint8)
    emissions = np.vstack([_together(values, codes.astype(np.intp), stride), constant])
    transitions = np.zeros((1, n_labels * stride), dtype=np.uint8)
    transitions[0, pairs[pairs >= 0]] = 1
    if edge_values is None:
        return np.vstack([emissions, transitions.reshape(n_labels, stride)]), None
    edges = _together(edge_values, pairs, n_labels * stride)
    return emissions, np.vstack([edges, transitions])


def _together(values, columns, n_columns):
    """One for each feature and column that a row has in common, the column being >= 0."""
    table = np.zeros((values.shape[1], n_columns), dtype=np.uint8)
    if sparse.issparse(values):
        columns = np.repeat(columns, np.diff(values.indptr))
        kept = (values.data != 0) & (columns >= 0)
        table[values.indices[kept], columns[kept]] = 1
        return table
    for column in np.unique(columns[columns >= 0]):
        table[:, column] = (values[columns == column] != 0).any(axis=0)
    return table


def _no_path(b):
    return ValueError(
        f"allowed_transitions leaves no labelling for X[{b}]: allow more transitions."
    )


def _check_paths(values):
    impossible = np.flatnonzero(np.isneginf(values))
    if impossible.size:
        raise _no_path(int(impossible[0]))


def _bio(classes):
    """Transitions of BIO tags that may be made, and tags that may come first."""
    names = [str(label) for label in classes.tolist()]
    allowed = np.ones((len(names),) * 2, dtype=bool)
    first = np.ones(len(names), dtype=bool)
    for j, name in enumerate(names):
        if name == "I" or name.startswith("I-"):
            first[j] = False
            for i, before in enumerate(names):
                allowed[i, j] = before in (name, "B" + name[1:])
    return allowed, first


def _as_features(X, lengths):
    """Sequences of float32 or float64 rows, dense and C-ordered or canonical CSR, all finite."""
    if lengths is not None:
        values = X.values if isinstance(X, Sequences) else X
        X = Sequences.from_lengths(values, lengths)
    elif not isinstance(X, Sequences):
        if sparse.issparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2):
            raise ValueError(
                "X is one matrix: give a list with a matrix for each sequence, or the lengths of "
                "the sequences as `lengths`."
            )
        X = Sequences.from_list(X)
    if len(X) == 0:
        raise ValueError("X has no sequences.")
    empty = np.flatnonzero(X.lengths == 0)
    if empty.size:
        raise ValueError(
            f"X[{empty[0]}] has no positions; leave sequences of length 0 out (there are "
            f"{empty.size})."
        )
    values = X.values
    if values.ndim != 2:
        raise ValueError(
            "X must have a row of features for each position; its sequences are one-dimensional. "
            "Make features of labels or words with SequenceVectorizer."
        )
    if values.shape[1] == 0:
        raise ValueError("X has no features: its matrices have no columns.")
    if values.dtype.kind == "c":
        raise ValueError("X has complex values.")
    if values.dtype not in (np.float32, np.float64):
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"X must hold numbers ({error}); SequenceVectorizer makes features of dicts and "
                "of attribute strings."
            ) from error
    values = canonical(values) if sparse.issparse(values) else np.ascontiguousarray(values)
    data = values.data if sparse.issparse(values) else values
    if not np.isfinite(np.sum(data, dtype=np.float64)) and not np.isfinite(data).all():
        bad = np.argwhere(~np.isfinite(data))[0]
        if sparse.issparse(values):
            row = int(np.searchsorted(values.indptr, bad[0], side="right")) - 1
            column, value = int(values.indices[bad[0]]), data[bad[0]]
        else:
            row, column, value = int(bad[0]), int(bad[1]), data[tuple(bad)]
        b = int(np.searchsorted(X.offsets, row, side="right")) - 1
        raise ValueError(
            f"X[{b}] has {value} at position {row - X.offsets[b]}, feature {column}: features must "
            "be finite."
        )
    return X if values is X.values else Sequences(values, X.offsets)


def _without_zeros(values):
    """Dense features in CSR where most are zero: every visit then costs less."""
    if sparse.issparse(values) or np.count_nonzero(values) > MOSTLY_ZERO * values.size:
        return values
    return canonical(sparse.csr_array(values))


def _as_labels(y, X, lengths):
    """The labels of all positions in one list, after checking that they fit X."""
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
                    raise ValueError(f"y[{i}] must be a sequence of labels, got {part!r}.")
                parts.append(_listed(part))
            y_lengths = np.array([len(part) for part in parts])
            labels = [label for part in parts for label in part]
        wrong = np.flatnonzero(y_lengths != X.lengths)
        if wrong.size:
            b = int(wrong[0])
            raise ValueError(
                f"y[{b}] has {y_lengths[b]} labels, but X[{b}] has {X.lengths[b]} positions."
            )
    for place, label in enumerate(labels):
        if label is None or label != label:
            b = int(np.searchsorted(X.offsets, place, side="right")) - 1
            raise ValueError(
                f"y[{b}] has {label!r} at position {place - X.offsets[b]}: not a label."
            )
    return labels


def _listed(labels):
    return labels.tolist() if isinstance(labels, np.ndarray) else list(labels)


def _distinct(labels):
    try:
        return set(labels)
    except TypeError as error:
        raise ValueError(f"labels must be hashable: {error}.") from error


def _encode(labels):
    """The labels that occur, sorted where they can be, and the number of each label."""
    names = _distinct(labels)
    try:
        names = sorted(names)
    except TypeError:  # of several types
        names = sorted(names, key=lambda label: (type(label).__name__, repr(label)))
    if len(names) < 2:
        raise ValueError(
            f"y has one label only, {names[0]!r} (among the sequences of non-zero weight); a "
            "tagger needs at least two."
        )
    where = {label: i for i, label in enumerate(names)}
    codes = np.fromiter((where[label] for label in labels), np.intc, len(labels))
    kinds = {type(label) for label in names}
    if len(kinds) == 1 and kinds <= {str, int, float, bool, bytes}:
        classes = np.array(names)
        if classes.dtype.kind in "USifb" and classes.tolist() == names:
            return classes, codes
    classes = np.empty(len(names), dtype=object)
    classes[:] = names
    return classes, codes
