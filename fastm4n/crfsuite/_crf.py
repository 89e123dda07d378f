"""`CRF`: the linear-chain CRF with the names, defaults and objective of sklearn-crfsuite."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from fastm4n.base.array_files import MAGIC_OF_CRFSUITE
from fastm4n.base.atomic import check_no_loop
from fastm4n.base.checks import NamesParameters, check_relative_gap, is_flag, is_number
from fastm4n.base.pickles import Versioned
from fastm4n.crfsuite._models import load_model as load_crfsuite_model
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.models._files import load_model, save_model
from fastm4n.penalties._penalties import ElasticNet
from fastm4n.tasks.chain_input import NUMBERS, tokens_of
from fastm4n.tasks.chain_weights import Transitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any, Self

    from fastm4n.base.types import Array, StrPath
    from fastm4n.data._types import Labellings

    # a dict or a list of strings for each token of each sequence
    Attributes = Iterable[Sequence[Iterable[str] | Mapping[str, Any]]]

# algorithms that minimise the objective, and values of parameters that are None
_ALGORITHMS = ("lbfgs", "l2sgd")
_C1, _C2, _EPSILON, _MAX_ITERATIONS = 0.0, 1.0, 1e-6, 10_000
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
    ``sklearn_crfsuite.CRF``, X as lists of dicts or of lists of strings. CRFsuite's L-BFGS
    converges to the same weights.

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
        Maximum number of passes over the data. A fit that ends there warns.
    epsilon : float, default=None
        The fit ends when the gap is certified to be at most epsilon times the objective at zero
        weights. None means 1e-6. (In CRFsuite epsilon bounds the norm of the gradient, and its
        default is 1e-5.)
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
        Attributes with a nonzero weight.
    num_attributes_ : int
        Number of `attributes_`.
    state_features_ : dict of (str, label) to float
        Nonzero weights of attributes and labels.
    transition_features_ : dict of (label, label) to float
        Nonzero weights of transitions.
    objective_ : float
        CRFsuite's objective, its "loss", at the weights.
    relative_gap_ : float
        Certified bound of `objective_` minus its minimum, as a share of the objective at zero
        weights.
    duality_gap_ : float
        The same bound in units of the objective.
    training_log_ : TrainingLog
    tagger_ : SequenceTagger or None
        The fitted tagger, for example for ``save_model(crf.tagger_, path)``. None before `fit`.

    See Also
    --------
    fastm4n.SequenceTagger : The same model with other surrogates, solvers and predictions.

    Notes
    -----
    For n sequences the tagger is ``SequenceTagger("log")`` with alpha = (c1 + 2 c2) / n, the
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
        y_dev: Labellings | None = None,
    ) -> Self:
        """Fit until the objective is certified to be near its minimum.

        Parameters
        ----------
        X : list of lists of dicts, or of lists of strings
            The attributes of each token of each sequence.
        y : list of lists of labels
        X_dev, y_dev : default=None
            Further sequences to label after the fit, for `training_log_`.

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
        y = y if hasattr(y, "__len__") else list(y)
        n = max(1, sum(len(tokens) > 0 for tokens in X))
        total = c1 + 2.0 * c2
        tagger = SequenceTagger(
            "log", alpha=total / n, penalty="l2" if c1 == 0.0 else ElasticNet(l1_ratio=c1 / total),
            fit_intercept=False, transitions=Transitions(start_end=False), states=self._states(),
            tol=self._or("epsilon", _EPSILON), verbose=int(bool(self.verbose)), random_state=0,
            max_iter=self._or("max_iterations", _MAX_ITERATIONS))
        with warnings.catch_warnings():
            # it names parameters of SequenceTagger
            warnings.simplefilter("ignore", ConvergenceWarning)
            tagger.fit(X, y)
        if tagger.relative_gap_ > tagger.tol:
            remedy = "Increase max_iterations or epsilon, or c2." if c2 else (
                "With c2=0 the gap is a loose bound, and the objective may be at its minimum. Use "
                "c2=1e-3 for a sharp bound.")
            warnings.warn(
                f"After {tagger.n_iter_} passes the certified gap is {tagger.relative_gap_:.3g} of "
                f"the objective at zero weights, above epsilon={tagger.tol:g}. {remedy}",
                ConvergenceWarning, stacklevel=2)
        log = TrainingLog(tagger.history_, n, tagger._n_weights)
        if X_dev is not None:
            log.last_iteration.update(_accuracies(tagger.predict(X_dev), X_dev, y_dev))
        if self.model_filename is not None:
            save_model(tagger, self.model_filename)
        self._tagger, self._n_sequences, self.training_log_ = tagger, n, log
        return self

    def _states(self):
        states = {
            "features": "all" if self.all_possible_states else "observed",
            "transitions": "all" if self.all_possible_transitions else "observed"}
        return states if self.min_freq is None else {**states, "min_freq": self.min_freq}

    # ----------------------------------------------------------------------- predictions

    def predict(self, X: Attributes) -> Array:
        """Predicted labels.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        y : ndarray of shape (n_sequences,), of lists of labels
        """
        return _of_lists([labels.tolist() for labels in self._fitted().predict(X)])

    def predict_single(self, xseq: Sequence[Any]) -> list[Any]:
        """Predicted labels of one sequence.

        Parameters
        ----------
        xseq : list of dicts, or of lists of strings

        Returns
        -------
        y : list of labels
        """
        return self._fitted().predict([xseq])[0].tolist()

    def predict_marginals(self, X: Attributes) -> Array:
        """Probabilities of the labels at each position.

        Parameters
        ----------
        X : as in `fit`

        Returns
        -------
        marginals : ndarray of shape (n_sequences,), of lists of dicts
            A dict from label to probability for each token.
        """
        labels = self.classes_
        marginals = self._fitted().predict_marginals(X)
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
        return self.predict_marginals([xseq])[0]

    def score(self, X: Attributes, y: Labellings) -> float:
        """Share of correctly labelled tokens.

        Parameters
        ----------
        X, y : as in `fit`

        Returns
        -------
        accuracy : float
        """
        return self._fitted().score(X, y)

    def _fitted(self):
        tagger = self.tagger_
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
        names = tagger.vectorizer_.feature_names_
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
        names, labels, coef = tagger.vectorizer_.feature_names_, self.classes_, tagger.coef_
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
        return self._of_fit("relative_gap_")

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
    def size_(self) -> Any:
        raise AttributeError(
            "size_ does not exist, as there is no model file of CRFsuite. See num_attributes_, "
            "state_features_ and transition_features_.")

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
    """X as a list of sequences of attributes."""
    X, holds = tokens_of(X, None)
    if holds == NUMBERS:
        raise TypeError(
            f"{name} must be a list of sequences, each a list of dicts or of lists of strings. For "
            "numbers use fastm4n.SequenceTagger.")
    return X


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
    if not isinstance(model, SequenceTagger) or model.vectorizer_ is None:
        raise ValueError(f"{path} must be a model of attributes, got a {type(model).__name__}.")
    return model
