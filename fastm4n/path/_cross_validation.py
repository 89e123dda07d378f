"""`RegularizationPathCV`: alpha by cross-validation."""

from __future__ import annotations

import warnings
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_flag
from fastm4n.path._folds import PathsOfParts
from fastm4n.path._path import scorer_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray
    from fastm4n.path._path import RegularizationPath

# the default end of paths, a share of an alpha of the problem's order, is lowered so often
MOST_DECADES = 3


def _of_best(name: str) -> Any:
    """The method of that name of `best_estimator_`, there where the estimator has it."""
    def has(search):
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    def method(self, X, **options):
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X, **options)

    method.__name__, method.__doc__ = name, f"`{name}` of `best_estimator_`."
    return available_if(has)(method)


class RegularizationPathCV(MetaEstimatorMixin, BaseEstimator):
    """The alpha of best cross-validated score, from one path for each fold.

    Each fold's path has weights for every alpha, so that folds are compared at the same alphas, all
    breakpoints of all paths, though each path chose its own.

    Parameters
    ----------
    estimator : estimator
        Unfitted, one of fastm4n's.
    eps, kappa, alpha_min, alpha_max, method, alphas
        As in :func:`regularization_path`. Where the paths choose their end, and the best mean score
        is found there, they go on to a tenth of the alpha, and again, three times at most. Scores
        of probabilities rise for longer than errors fall, and ask for a smaller `eps`: its weights
        are anywhere within that gap.
    cv : int, splitter or iterable, default=None
        How the data are split, as in `sklearn.model_selection.GridSearchCV`: five folds by default,
        stratified for classifiers.
    scoring : str or callable, default=None
        A scorer of scikit-learn's; the estimator's `score` by default.
    one_standard_error : bool, default=False
        Whether `best_estimator_` takes `alpha_1se_`, for the simplest model that is as good as the
        best up to the error of the comparison, or `alpha_`.
    n_jobs : int, default=None
        Paths computed at a time, in threads that share X, where passes are long enough for that.
        The estimator's own threads are not used then. The result does not depend on it.
    verbose : int, default=0
        Passed on to :func:`regularization_path` for the path of all data.

    Attributes
    ----------
    path_ : RegularizationPath
        Of all data.
    alphas_ : ndarray of shape (n_alphas,)
        All breakpoints of all paths, decreasing.
    scores_ : ndarray of shape (n_alphas, n_folds)
        Of each fold's path on the data that it was not given.
    mean_score_, std_score_ : ndarray of shape (n_alphas,)
        Over the folds.
    alpha_ : float
        The one of best mean score, the largest of several.
    alpha_1se_ : float
        The largest alpha whose mean score is no more than one standard error below the best, the
        standard error being that of the best one's mean.
    best_score_ : float
        Mean score at `alpha_`.
    best_estimator_ : estimator
        `path_` at `alpha_`, or at `alpha_1se_`.
    is_at_end_ : bool
        Whether `alpha_` lies where the paths end, so that a smaller one may be better.
    n_splits_ : int

    See Also
    --------
    regularization_path : One path.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, RegularizationPathCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = RegularizationPathCV(MulticlassClassifier(random_state=0), cv=3).fit(X, y)
    >>> bool(search.best_score_ > 0.9), bool(search.alpha_1se_ >= search.alpha_)
    (True, True)
    """

    std_score_: FloatArray
    n_splits_: int
    alpha_: float
    alpha_1se_: float
    best_score_: float
    best_estimator_: Any
    n_features_in_: int
    feature_names_in_: Array
    path_: RegularizationPath
    alphas_: FloatArray
    scores_: FloatArray
    mean_score_: FloatArray
    is_at_end_: bool

    def __init__(
        self, estimator: Any, *, eps: float = 0.1, kappa: float | None = None,
        alpha_min: float | None = None, alpha_max: float | None = None, method: str = "certified",
        alphas: ArrayLike | None = None, cv: Any = None,
        scoring: str | Callable[..., Any] | None = None, one_standard_error: bool = False,
        n_jobs: int | None = None, verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.eps = eps
        self.kappa = kappa
        self.alpha_min = alpha_min
        self.alpha_max = alpha_max
        self.method = method
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = inner.classifier_tags
        tags.input_tags = inner.input_tags
        tags.target_tags = inner.target_tags
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Compute the paths of all data and of all folds, and choose alpha.

        Parameters
        ----------
        X, y : as the estimator's `fit` takes them
            Sequences as a list or as `Sequences`.
        sample_weight : array-like of shape (n_examples,), default=None
            Weights of the examples, in paths and, without `scoring`, in scores.
        groups : array-like of shape (n_examples,), default=None
            For splitters that keep groups together.

        Returns
        -------
        self : object

        Warns
        -----
        ConvergenceWarning
            As `regularization_path` does, for all data and then fold by fold.
        UserWarning
            If the best alpha lies where the paths end, but for a grid.
        """
        check_flag("one_standard_error", self.one_standard_error)
        options = dict(
            eps=self.eps, kappa=self.kappa, alpha_min=self.alpha_min, alpha_max=self.alpha_max,
            method=self.method, alphas=self.alphas,
        )
        splitter = check_cv(
            5 if self.cv is None else self.cv, y, classifier=is_classifier(self.estimator)
        )
        splits = list(splitter.split(X, y, groups))
        weights = None if sample_weight is None else np.asarray(sample_weight)
        scoring = _Scoring(X, y, weights, self.scoring)
        chooses_end = self.alpha_min is None and self.method != "grid"
        computed = PathsOfParts(
            self.estimator, X, y, sample_weight, [None, *(train for train, _ in splits)],
            self.n_jobs, self.verbose, keeps=chooses_end, **options)
        known = [{} for _ in splits]

        def search(followed):
            """Take up paths, and score them: whether the best alpha lies at their end."""
            paths = []
            with closing(followed):
                for path, shortfall in followed:
                    if shortfall is not None:
                        warnings.warn(shortfall, ConvergenceWarning, stacklevel=3)
                    if paths:
                        # most of a path's scores are of its own breakpoints, and others are under
                        # way
                        k = len(paths) - 1
                        scoring(path, splits[k][1], path.alphas, known[k])
                    paths.append(path)
            self.path_, *folds = paths
            self.alphas_ = np.unique(np.concatenate([path.alphas for path in paths]))[::-1]
            self.scores_ = np.stack([
                scoring(path, test, self.alphas_, of_path)
                for path, (_, test), of_path in zip(folds, splits, known, strict=True)], axis=1)
            self.mean_score_ = self.scores_.mean(axis=1)
            best = self.alphas_[np.argmax(self.mean_score_)]
            self.is_at_end_ = bool(best <= max(path.alphas[-1] for path in paths))

        search(computed.followed())
        if chooses_end:
            for _ in range(MOST_DECADES):
                if not (self.is_at_end_ and computed.are_solved()):
                    break
                search(computed.go_on(0.1))
        if self.is_at_end_ and self.method != "grid":
            warnings.warn(
                f"the best alpha, {self.alphas_[np.argmax(self.mean_score_)]:.3g}, lies where "
                "the paths end, and a smaller one may do better: give a smaller alpha_min=, and a "
                f"smaller eps= than {self.eps:g} for weights that are nearer to their optimum.",
                stacklevel=2)
        alphas = self.alphas_
        self.std_score_ = self.scores_.std(axis=1)
        self.n_splits_ = len(splits)
        best = int(np.argmax(self.mean_score_))
        error = self.scores_[best].std(ddof=1) / np.sqrt(len(splits)) if len(splits) > 1 else 0.0
        enough = np.flatnonzero(self.mean_score_ >= self.mean_score_[best] - error)
        self.alpha_, self.alpha_1se_ = float(alphas[best]), float(alphas[enough[0]])
        self.best_score_ = float(self.mean_score_[best])
        self.best_estimator_ = self.path_.estimator(
            self.alpha_1se_ if self.one_standard_error else self.alpha_
        )
        if hasattr(self.best_estimator_, "n_features_in_"):
            self.n_features_in_ = self.best_estimator_.n_features_in_
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_
        return self

    @property
    def classes_(self) -> Array:
        return self.best_estimator_.classes_

    def score(self, X: Any, y: Any, **options: Any) -> float:
        """The scorer of `scoring` on `best_estimator_`.

        Parameters
        ----------
        X, y
            Examples and their labels, as the estimator's `score` takes them.
        **options
            Further arguments of the scorer.
        """
        check_is_fitted(self)
        return scorer_of(self.scoring)(self.best_estimator_, X, y, **options)

    predict: Any = _of_best("predict")
    decision_function: Any = _of_best("decision_function")
    predict_proba: Any = _of_best("predict_proba")
    predict_marginals: Any = _of_best("predict_marginals")


class _Scoring:
    """Scores of the paths of folds on the data that are not theirs."""

    def __init__(self, X, y, weights, scoring):
        self.X, self.y, self.weights, self.scoring = X, y, weights, scoring

    def __call__(self, path, test, alphas, known):
        """Scores at these alphas; `known` keeps them by their weights."""
        # of kernel values the columns of all examples: those left out have coefficients of zero
        X, y = _safe_indexing(self.X, test), _safe_indexing(self.y, test)
        options = {}
        if self.weights is not None and self.scoring is None:
            options["sample_weight"] = self.weights[test]
        return path._scores(X, y, alphas, self.scoring, known, options)
