"""`CRF`: the linear-chain CRF with the names, defaults and objective of sklearn-crfsuite.

Most of this file is the documentation of parameters and methods.
"""

from __future__ import annotations

import copy
import os
import tempfile
import warnings
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from fastm4n.base.array_files import MAGIC_OF_CRFSUITE
from fastm4n.base.atomic import check_no_loop
from fastm4n.base.checks import NamesParameters, check_relative_gap, is_flag, is_number
from fastm4n.base.pickles import Versioned
from fastm4n.crfsuite._models import load_model as load_crfsuite_model
from fastm4n.data._sequences import Sequences
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.models._files import load_model, save_model
from fastm4n.penalties._penalties import ElasticNet
from fastm4n.tasks.chain_input import NUMBERS, tokens_of
from fastm4n.tasks.chain_weights import Transitions
from fastm4n.tasks.prior import SEEN
from fastm4n.tasks.scale import scale_advice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.automata import Automaton
    from fastm4n.base.types import Array, StrPath
    from fastm4n.data._types import Labellings

    # a dict or a list of strings for each token of each sequence, or rows of features
    Attributes = Iterable[Sequence[Iterable[str] | Mapping[str, Any]]] | Sequences

# algorithms that minimise the objective, and values of parameters that are None
_ALGORITHMS = ("lbfgs", "l2sgd")
_C1, _C2, _MAX_ITERATIONS = 0.0, 1.0, 10_000
# share of the objective (benchmarks/crfsuite_tutorial.py), and the least objective that it is a
# share of, relative to the one at zero weights: smaller ones are rounding
_EPSILON, _LEAST = 1e-3, 1e-3
# algorithms without an objective
_UPDATES = {
    "ap": "the averaged perceptron", "pa": "passive-aggressive updates",
    "arow": "adaptive regularisation of weights"}
# their parameters
_OF_UPDATES = ("pa_type", "c", "error_sensitive", "averaging", "variance", "gamma")
# parameters of CRFsuite's search, without an effect on the optimum
_OF_SEARCHES = {
    "lbfgs": ("num_memories", "linesearch", "max_linesearch", "period", "delta"),
    "l2sgd": (
        "period", "delta", "calibration_eta", "calibration_rate", "calibration_samples",
        "calibration_candidates", "calibration_max_trials"),
}


class TrainingLog:
    """Log of a fit, with the names of python-crfsuite's parser of logs.

    Attributes
    ----------
    iterations : list of dict
        For each certificate the pass "num", the objective "loss", a lower bound "bound" of its
        minimum, and the seconds since the last certificate, "time".
    last_iteration : dict
        The last of `iterations`, with X_dev also "item_accuracy_float" and
        "instance_accuracy_float".
    featgen_num_features : int
        Number of weights.
    """

    def __init__(self, history: dict[str, Any], n_sequences: int, n_weights: int) -> None:
        seconds = np.diff(history["seconds"], prepend=0.0).tolist()
        self.iterations: list[dict[str, Any]] = [
            {"num": int(number), "loss": n_sequences * primal, "bound": n_sequences * dual,
             "time": time}
            for number, primal, dual, time in zip(
                *(history[name].tolist() for name in ("pass", "primal", "dual")), seconds,
                strict=True)]
        self.last_iteration: dict[str, Any] = self.iterations[-1]
        self.featgen_num_features = n_weights


class CRF(NamesParameters, Versioned, BaseEstimator):
    """The linear-chain CRF under the names of sklearn-crfsuite, certified.

    Minimises CRFsuite's objective, the sum over sequences of -log p(y | x), plus c1 ||w||_1 + c2
    ||w||^2, until it is within a certified gap of its minimum. The input is the same as for
    ``sklearn_crfsuite.CRF``, X as lists of dicts or of lists of strings, or as rows of
    `SequenceVectorizer`. CRFsuite's L-BFGS converges to the same weights.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd"}, default=None
        Both names have the same optimum and the same effect, for programs that pass them. The
        other algorithms of CRFsuite, "ap", "pa" and "arow", minimise no objective and are refused.
    min_freq : float, default=None
        Pairs of an attribute and a label get a weight if their values in the training data add up
        to at least this number, and transitions if they occur at least as often. With None all
        pairs that occur get one. (CRFsuite leaves out pairs with a negative sum.)
    all_possible_states : bool, default=None
        Whether pairs of an attribute and a label get weights without occurring together.
    all_possible_transitions : bool, default=None
        Whether transitions get weights without occurring.
    c1 : float, default=None
        Coefficient of the sum of the weights' absolute values. None means 0.
    c2 : float, default=None
        Coefficient of the sum of the weights' squares. None means 1.
    max_iterations : int, default=None
        Maximum number of passes over the data. None means 10,000. If you set it and leave epsilon
        out, a fit that ends there does not warn, as in CRFsuite. See `relative_gap_`.
    epsilon : float, default=None
        The fit ends when the objective is certified to be within this share of its minimum: the
        gap is at most epsilon times the objective reached, or epsilon times a thousandth of the
        objective at zero weights. None means 1e-3. (In CRFsuite epsilon bounds the norm of the
        gradient.)
    num_memories, linesearch, max_linesearch, period, delta, calibration_eta, calibration_rate, \
            calibration_samples, calibration_candidates, calibration_max_trials : default=None
        Parameters of CRFsuite's search for the optimum. They have no effect and cause a warning.
    pa_type, c, error_sensitive, averaging, variance, gamma : default=None
        Parameters of the refused algorithms, refused as well.
    verbose : bool, default=False
        Whether to show a progress bar (with tqdm).
    model_filename : str or path, default=None
        A file for the model, which `fit` writes by `fastm4n.save_model`. Before `fit`, the model
        in the file predicts, of fastm4n or of CRFsuite.
    keep_tempfiles : bool, default=False
        Without effect, as there are no temporary files.
    trainer_cls : None
        Not supported, as python-crfsuite is not used.

    Attributes
    ----------
    classes_ : list
        The labels, sorted.
    attributes_ : list of str
        Attributes with a nonzero weight. After a fit to rows of features, numbers of columns
        instead, also in `state_features_`.
    num_attributes_ : int
        Number of `attributes_`.
    state_features_ : dict of (str, label) to float
        Nonzero weights of attributes and labels.
    transition_features_ : dict of (label, label) to float
        Nonzero weights of transitions.
    objective_ : float
        CRFsuite's objective, its "loss", at the weights.
    relative_gap_ : float
        Certified bound of `objective_` minus its minimum, as a share of `objective_`.
    duality_gap_ : float
        The same bound in units of the objective.
    size_ : int
        Bytes of the model's file, `model_filename` or the one that `save_model` would write.
    training_log_ : TrainingLog
    tagger_ : SequenceTagger or None
        The fitted tagger, for example for ``save_model(crf.tagger_, path)``. None before `fit`.

    See Also
    --------
    fastm4n.SequenceTagger : The same model with other surrogates, solvers and predictions.

    Notes
    -----
    For n sequences, or weights of sum n, the tagger is ``SequenceTagger("log")`` with
    alpha = (c1 + 2 c2) / n, the
    penalty ``ElasticNet(l1_ratio=c1 / (c1 + 2 c2))``, and no intercept or scores of ends. It has
    ``states="observed"`` unless `all_possible_states` or `all_possible_transitions` is true.

    Labels may have any type. CRFsuite's labels are strings.

    References
    ----------
    .. [1] N. Okazaki (2007). CRFsuite: a fast implementation of conditional random fields.

    Examples
    --------
    >>> from fastm4n.crfsuite import CRF
    >>> X = [[{"word": word} for word in text.split()] for text in ("the cat", "a dog barks")]
    >>> y = [["D", "N"], ["D", "N", "V"]]
    >>> crf = CRF(c1=0.01, c2=0.01).fit(X, y)
    >>> crf.predict_single([{"word": "the"}, {"word": "dog"}])
    ['D', 'N']
    >>> crf.transition_features_["D", "N"] > 0
    True
    """

    training_log_: TrainingLog

    def __init__(
        self, algorithm: str | None = None, min_freq: float | None = None,
        all_possible_states: bool | None = None, all_possible_transitions: bool | None = None,
        c1: float | None = None, c2: float | None = None, max_iterations: int | None = None,
        num_memories: int | None = None, epsilon: float | None = None, period: int | None = None,
        delta: float | None = None, linesearch: str | None = None,
        max_linesearch: int | None = None, calibration_eta: float | None = None,
        calibration_rate: float | None = None, calibration_samples: int | None = None,
        calibration_candidates: int | None = None, calibration_max_trials: int | None = None,
        pa_type: int | None = None, c: float | None = None, error_sensitive: bool | None = None,
        averaging: bool | None = None, variance: float | None = None, gamma: float | None = None,
        verbose: bool = False, model_filename: StrPath | None = None,
        keep_tempfiles: bool | None = False, trainer_cls: Any = None,
    ) -> None:
        self.algorithm = algorithm
        self.min_freq = min_freq
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.calibration_eta = calibration_eta
        self.calibration_rate = calibration_rate
        self.calibration_samples = calibration_samples
        self.calibration_candidates = calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.pa_type = pa_type
        self.c = c
        self.error_sensitive = error_sensitive
        self.averaging = averaging
        self.variance = variance
        self.gamma = gamma
        self.verbose = verbose
        self.model_filename = model_filename
        self.keep_tempfiles = keep_tempfiles
        self.trainer_cls = trainer_cls

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.dict = True
        tags.target_tags.required = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return self.tagger_ is not None

    # ------------------------------------------------------------------------ parameters

    def _checked(self):
        """Check all parameters, warn about those without effect, and return c1 and c2."""
        algorithm = "lbfgs" if self.algorithm is None else self.algorithm
        if isinstance(algorithm, str) and algorithm in _UPDATES:
            raise ValueError(
                f"algorithm={algorithm!r} is {_UPDATES[algorithm]}, without an objective to "
                "certify. Use 'lbfgs', or for large margins fastm4n.SequenceTagger('max_margin').")
        if algorithm not in _ALGORITHMS:
            raise ValueError(
                f"algorithm must be in {_ALGORITHMS} or None, got {self.algorithm!r}.")
        for name in _OF_UPDATES:
            self._refuse(name, f"is for the algorithms {', '.join(_UPDATES)}, not for {algorithm}")
        if algorithm == "l2sgd":
            self._refuse("c1", "needs algorithm='lbfgs': 'l2sgd' has only an L2 term")
        self._refuse("trainer_cls", "is a trainer of python-crfsuite, which is not used")
        found = {
            name for names in _OF_SEARCHES.values() for name in names
            if getattr(self, name) is not None}
        for name in sorted(found.difference(_OF_SEARCHES[algorithm])):
            self._refuse(name, f"is not for algorithm={algorithm!r}")
        if found:
            warnings.warn(
                f"{', '.join(sorted(found))}: parameters of CRFsuite's search have no effect. The "
                "fit ends by the certified gap, see epsilon.", UserWarning, stacklevel=3)
        if self.keep_tempfiles:
            warnings.warn(
                "keep_tempfiles has no effect: there are no temporary files. Use model_filename or "
                "save_model(crf.tagger_, path).", UserWarning, stacklevel=3)
        for name in ("all_possible_states", "all_possible_transitions"):
            value = getattr(self, name)
            if not (value is None or is_flag(value) or value in (0, 1)):
                raise ValueError(f"{name} must be True, False or None, got {value!r}.")
        for name in ("min_freq", "c1", "c2"):
            self._check(name, 0.0, strict=False)
        if self.epsilon is not None:
            check_relative_gap("epsilon", self.epsilon, strict=False)
        self._check("max_iterations", 0, integer=True)
        c1, c2 = self._or("c1", _C1), self._or("c2", _C2)
        if c1 + c2 == 0.0:
            raise ValueError(
                "c1 and c2 are both 0: without a penalty the objective may have no minimum. Use a "
                "small one, c2=1e-3.")
        return c1, c2

    def _refuse(self, name, why):
        if getattr(self, name) is not None:
            raise ValueError(f"{name}={getattr(self, name)!r:.80} {why}: leave it out.")

    def _check(self, name, low, strict=True, integer=False):
        value = getattr(self, name)
        if value is not None and not is_number(value, low=low, strict=strict, integer=integer):
            what = "an integer" if integer else "a finite number"
            raise ValueError(
                f"{name} must be {what} {'>' if strict else '>='} {low:g} or None, got {value!r}.")

    def _or(self, name, default):
        value = getattr(self, name)
        return default if value is None else value

    # ------------------------------------------------------------------------------- fit

    def fit(
        self, X: Attributes, y: Labellings, X_dev: Attributes | None = None,
        y_dev: Labellings | None = None, sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit until the objective is certified to be near its minimum.

        Parameters
        ----------
        X : list of sequences, or Sequences
            Sequences are lists of dicts, lists of lists of strings, or ``ItemSequence`` of
            python-crfsuite: the attributes of each token. Or `Sequences` of features, such as
            ``SequenceVectorizer().fit_transform(X)``, or a list of their CSR matrices.
        y : list of lists of labels
        X_dev, y_dev : default=None
            Further sequences to label after the fit, for `training_log_`.
        sample_weight : array-like of shape (n_sequences,), default=None
            Non-negative weights of the sequences in the objective. 2 counts a sequence twice.

        Returns
        -------
        self : CRF
        """
        c1, c2 = self._checked()
        if (X_dev is None) != (y_dev is None):
            raise ValueError("Pass both X_dev and y_dev, or neither.")
        self._check_file()
        X = _attributes(X, "X")
        X_dev = None if X_dev is None else _attributes(X_dev, "X_dev")
        n = _total(X, sample_weight)
        tagger = SequenceTagger("log", **self._parameters(c1, c2, n))
        return self._fitted_by(tagger.fit, X, y, sample_weight, n, X_dev, y_dev)

    def partial_fit(
        self, X: Attributes, y: Labellings, sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Continue with more sequences, which may have new attributes and labels.

        After `fit`, and for a model from a file of fastm4n or CRFsuite, the data of the model are
        not there. The objective is then that of the new sequences, plus the penalty of the change
        of the weights, see `SequenceTagger.partial_fit`. If the model has seen m sequences, c1 and
        c2 are multiplied by (m + n) / n for n new ones. A file of CRFsuite does not contain m, and
        20 n is taken; set ``crf.tagger_.n_seen_ = m`` if you know it. A model file of CRFsuite is
        not replaced.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`

        Returns
        -------
        self : CRF
        """
        c1, c2 = self._checked()
        X, known = _attributes(X, "X"), self.tagger_
        n = _total(X, sample_weight)
        if known is None:
            tagger, n_seen = SequenceTagger("log"), 0.0
        else:
            tagger = copy.copy(known)
            n_seen = SEEN * n if known.n_seen_ is None else known.n_seen_
            tagger.n_seen_ = n_seen
        tagger.set_params(**self._parameters(c1, c2, n_seen + n))
        return self._fitted_by(tagger.partial_fit, X, y, sample_weight, n_seen + n)

    def _parameters(self, c1, c2, n):
        """Parameters of the tagger, for n sequences in all."""
        total, epsilon = c1 + 2.0 * c2, self._or("epsilon", _EPSILON)
        return {
            "alpha": total / n, "penalty": "l2" if c1 == 0.0 else ElasticNet(l1_ratio=c1 / total),
            "fit_intercept": False, "transitions": Transitions(start_end=False),
            "states": self._states(), "tol": _LEAST * epsilon,
            "verbose": int(bool(self.verbose)), "random_state": 0,
            "max_iter": self._or("max_iterations", _MAX_ITERATIONS)}

    def _fitted_by(self, fit, X, y, sample_weight, n, X_dev=None, y_dev=None):
        """Call a method of a tagger, and keep what it has fitted."""
        tagger, c2, epsilon = (
            fit.__self__, self._or("c2", _C2), self._or("epsilon", _EPSILON))
        tagger._share = epsilon
        try:
            with warnings.catch_warnings():
                # it names parameters of SequenceTagger
                warnings.simplefilter("ignore", ConvergenceWarning)
                fit(X, y if hasattr(y, "__len__") else list(y), sample_weight=sample_weight)
        finally:
            del tagger._share
        prior = getattr(vars(tagger).get("_seen"), "prior", None)
        if prior is not None:
            n -= prior.n_seen
        reached = tagger.duality_gap_ / max(tagger.primal_objective_, np.finfo(float).tiny)
        if tagger.relative_gap_ > tagger.tol and reached > epsilon and (
                self.epsilon is not None or self.max_iterations is None or c2 == 0.0):
            more = "max_iterations, " if tagger.n_iter_ + 1 >= tagger.max_iter else ""
            remedy = f"Increase {more}epsilon or c2." if c2 else (
                "With c2=0 the gap is a loose bound, and the objective may be at its minimum. Use "
                "c2=1e-3 for a sharp bound.")
            vectorizer = tagger.vectorizer_
            rows = X if vectorizer is None else vectorizer.transform(X)
            warnings.warn(
                f"After {tagger.n_iter_} passes the certified gap is {reached:.3g} of the "
                f"objective, above epsilon={epsilon:g}. {remedy}"
                f"{scale_advice(tagger, rows, vectorizer)}",
                ConvergenceWarning, stacklevel=3)
        log = TrainingLog(tagger.history_, n, tagger._n_weights)
        if X_dev is not None:
            log.last_iteration.update(_accuracies(tagger.predict(X_dev), X_dev, y_dev))
        name = self.model_filename
        if name is not None and not (os.path.exists(name) and _is_of_crfsuite(name)):
            save_model(tagger, name)
        self._tagger, self._n_sequences, self.training_log_ = tagger, n, log
        return self

    def _states(self):
        states = {
            "features": "all" if self.all_possible_states else "observed",
            "transitions": "all" if self.all_possible_transitions else "observed"}
        return states if self.min_freq is None else {**states, "min_freq": self.min_freq}

    # ----------------------------------------------------------------------- predictions

    def predict(
        self, X: Attributes, *, constraints: str | Automaton | None = None,
        allowed_transitions: Literal["bio"] | ArrayLike | None = None,
    ) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : as in `fit`
        constraints, allowed_transitions : default=None
            Limits of the labellings, as in `SequenceTagger.predict`. With
            ``allowed_transitions="bio"`` entities begin with "B-".

        Returns
        -------
        y : ndarray of shape (n_sequences,), of lists of labels
        """
        return _of_lists([labels.tolist() for labels in self._fitted().predict(
            _attributes(X, "X"), constraints=constraints,
            allowed_transitions=allowed_transitions)])

    def predict_single(self, xseq: Sequence[Any]) -> list[Any]:
        """Predicted labels of one sequence.

        Parameters
        ----------
        xseq : list of dicts, or of lists of strings

        Returns
        -------
        y : list of labels
        """
        tagger = self._fitted()
        try:
            return tagger.predict(_attributes([xseq], "X"))[0].tolist()
        except (TypeError, ValueError):
            _check_one(xseq, "predict_single labels", "use predict")
            raise

    def predict_marginals(
        self, X: Attributes, *, constraints: str | Automaton | None = None,
        allowed_transitions: Literal["bio"] | ArrayLike | None = None,
    ) -> Array:
        """Probabilities of the labels at each position.

        Parameters
        ----------
        X : as in `fit`
        constraints, allowed_transitions : as in `predict`

        Returns
        -------
        marginals : ndarray of shape (n_sequences,), of lists of dicts
            A dict from label to probability for each token.
        """
        labels = self.classes_
        marginals = self._fitted().predict_marginals(
            _attributes(X, "X"), constraints=constraints, allowed_transitions=allowed_transitions)
        return _of_lists([
            [dict(zip(labels, row, strict=True)) for row in rows.tolist()] for rows in marginals])

    def predict_marginals_single(self, xseq: Sequence[Any]) -> list[dict[Any, float]]:
        """Probabilities of the labels at each position of one sequence.

        Parameters
        ----------
        xseq : list of dicts, or of lists of strings

        Returns
        -------
        marginals : list of dict
            From label to probability.
        """
        self._fitted()
        try:
            return self.predict_marginals([xseq])[0]
        except (TypeError, ValueError):
            _check_one(xseq, "predict_marginals_single labels", "use predict_marginals")
            raise

    def probability(self, xseq: Sequence[Any], yseq: Sequence[Any]) -> float:
        """Probability of a labelling of one sequence, as of python-crfsuite's tagger.

        Parameters
        ----------
        xseq : list of dicts, or of lists of strings
        yseq : list of labels
            Labels that the model does not know have the probability 0, with a warning.

        Returns
        -------
        probability : float
        """
        tagger = self._fitted()
        try:
            return float(np.exp(tagger.log_probability(_attributes([xseq], "X"), [yseq])[0]))
        except (TypeError, ValueError):
            _check_one(xseq, "probability is of", "call it for each")
            raise

    def score(self, X: Attributes, y: Labellings) -> float:
        """Share of correctly labelled tokens.

        Parameters
        ----------
        X, y : as in `fit`

        Returns
        -------
        accuracy : float
        """
        return self._fitted().score(_attributes(X, "X"), y)

    def _fitted(self):
        tagger = self.tagger_
        if tagger is None and self.model_filename is not None:
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet, and there is no file "
                f"model_filename={str(self.model_filename)!r}: call fit, or set model_filename to "
                "the file of a model.")
        if tagger is None:
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call fit, or set model_filename to "
                "the file of a model.")
        return tagger

    # ------------------------------------------------------------------------- attributes

    @property
    def tagger_(self) -> SequenceTagger | None:
        tagger = vars(self).get("_tagger")
        if tagger is None and self.model_filename is not None and os.path.exists(
                self.model_filename):
            tagger = self._tagger = _loaded(self.model_filename)
        return tagger

    @property
    def classes_(self) -> list[Any] | None:
        tagger = self.tagger_
        return None if tagger is None else tagger.classes_.tolist()

    @property
    def n_features_in_(self) -> int:
        return self._of_fit("n_features_in_")

    @property
    def attributes_(self) -> list[str] | None:
        tagger = self.tagger_
        if tagger is None:
            return None
        names = _names(tagger)
        return [names[j] for j in np.flatnonzero(tagger.coef_.any(axis=0))]

    @property
    def num_attributes_(self) -> int | None:
        tagger = self.tagger_
        return None if tagger is None else int(np.count_nonzero(tagger.coef_.any(axis=0)))

    @property
    def state_features_(self) -> dict[tuple[str, Any], float] | None:
        tagger = self.tagger_
        if tagger is None:
            return None
        names, labels, coef = _names(tagger), self.classes_, tagger.coef_
        columns, rows = coef.T.nonzero()
        weights = coef[rows, columns].tolist()
        return {
            (names[j], labels[i]): weight
            for i, j, weight in zip(rows.tolist(), columns.tolist(), weights, strict=True)}

    @property
    def transition_features_(self) -> dict[tuple[Any, Any], float] | None:
        tagger = self.tagger_
        if tagger is None:
            return None
        labels, coef = self.classes_, tagger.transition_coef_
        return {
            (labels[i], labels[j]): float(coef[i, j])
            for i, j in np.argwhere(coef != 0.0).tolist()}

    @property
    def objective_(self) -> float:
        return self._of_fit("primal_objective_") * self._of_fit("_n_sequences", self)

    @property
    def duality_gap_(self) -> float:
        return self._of_fit("duality_gap_") * self._of_fit("_n_sequences", self)

    @property
    def relative_gap_(self) -> float:
        return self.duality_gap_ / max(self.objective_, np.finfo(float).tiny)

    def _of_fit(self, name, of=None):
        found = vars(self).get("_tagger") if of is None else of
        if not hasattr(found, name):
            raise AttributeError(f"{type(self).__name__} has no {name} before fit.")
        return getattr(found, name)

    @property
    def modelfile(self) -> Any:
        raise AttributeError(
            "modelfile does not exist, as there is no temporary file. Use model_filename or "
            "fastm4n.save_model(crf.tagger_, path).")

    @property
    def size_(self) -> int | None:
        tagger = self.tagger_
        if tagger is None:
            return None
        if self.model_filename is not None and os.path.exists(self.model_filename):
            return os.path.getsize(self.model_filename)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.fm4n")
            save_model(tagger, path)
            return os.path.getsize(path)

    # ----------------------------------------------------------------------------- files

    def _check_file(self):
        """Refuse to overwrite a file that is no model of fastm4n."""
        name = self.model_filename
        if name is None:
            return
        check_no_loop(name)
        if not os.path.exists(name):
            return
        if not os.path.isfile(name):
            raise ValueError(f"model_filename={str(name)!r} is no regular file.")
        if _is_of_crfsuite(name):
            raise ValueError(
                f"model_filename={str(name)!r} is a model of CRFsuite, which fit would replace. "
                "Use another file.")
        load_model(name)


def _attributes(X, name):
    """X as a list of sequences of attributes, or as `Sequences` of features."""
    if isinstance(X, list) and X and all(map(sparse.issparse, X)):
        return Sequences.from_list(X)
    X, holds = tokens_of(X, None)
    if holds == NUMBERS and not isinstance(X, Sequences):
        raise TypeError(
            f"{name} must be a list of sequences, each a list of dicts or of lists of strings, or "
            "Sequences of a SequenceVectorizer. For numbers use fastm4n.SequenceTagger.")
    return X


def _total(X, sample_weight):
    """Number of sequences that are not empty, or the sum of their weights."""
    lengths = X.lengths if isinstance(X, Sequences) else np.array([len(tokens) for tokens in X])
    if sample_weight is None or np.shape(sample_weight) != lengths.shape:
        return max(1, np.count_nonzero(lengths))
    total = float(np.sum(np.asarray(sample_weight, dtype=np.float64)[lengths > 0]))
    # others are refused by the fit
    return total if 0.0 < total < np.inf else 1


def _names(tagger):
    """Names of the attributes, or numbers of the columns."""
    vectorizer = tagger.vectorizer_
    return range(tagger.n_features_in_) if vectorizer is None else vectorizer.feature_names_


def _check_one(xseq, what, remedy):
    """Refuse several sequences instead of one."""
    if isinstance(xseq, (list, tuple)) and any(
            isinstance(token, (list, tuple)) and token and isinstance(token[0], (dict, list, tuple))
            for token in xseq):
        raise ValueError(
            f"{what} one sequence, and got a list of {len(xseq)} sequences: {remedy}.") from None


def _of_lists(lists):
    """A vector of lists, even if they have one length."""
    found = np.empty(len(lists), dtype=object)
    found[:] = lists
    return found


def _accuracies(predicted, X, y):
    if len(y) != len(X):
        raise ValueError(f"y_dev has {len(y)} sequences, but X_dev has {len(X)}.")
    right = n = whole = 0
    for i, (found, truth) in enumerate(zip(predicted, y, strict=True)):
        found, truth = found.tolist(), list(truth)
        if len(found) != len(truth):
            raise ValueError(
                f"y_dev[{i}] has {len(truth)} labels, but X_dev[{i}] has {len(found)} tokens.")
        same = sum(a == b for a, b in zip(found, truth, strict=True))
        right, n, whole = right + same, n + len(truth), whole + (same == len(truth))
    return {
        "item_accuracy_float": right / max(1, n),
        "instance_accuracy_float": whole / max(1, len(X))}


def _is_of_crfsuite(path):
    with open(path, "rb") as file:
        return file.read(len(MAGIC_OF_CRFSUITE)) == MAGIC_OF_CRFSUITE


def _loaded(path):
    """The tagger of a model file, of fastm4n or of CRFsuite."""
    if _is_of_crfsuite(path):
        return load_crfsuite_model(path)
    model = load_model(path)
    if not isinstance(model, SequenceTagger):
        raise ValueError(f"{path} must be a model of sequences, got a {type(model).__name__}.")
    return model
