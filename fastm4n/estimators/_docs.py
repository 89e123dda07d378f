"""The parts of docstrings that estimators share, written once.

See `fastm4n.base.docstrings`.
"""

from fastm4n.base import docstrings as _docstrings

# Words in braces are given by each class.
_PARTS = {
    "surrogate": """
surrogate : {{"max_min", "max_margin", "log"{boosted}}}, default="max_min"
    The surrogate loss that is minimised: "max_min" is the M4N of [1]_, consistent for every
    cost where all outputs have a positive probability; {surrogates}{boosting}
""",
    "kernel": """
kernel : str or callable, default="linear"
    "linear" keeps weights; every other kernel of
    `sklearn.metrics.pairwise.pairwise_kernels`{kernels} keeps dual coefficients.
gamma : {{"scale", "auto"}}, float or None, default="scale"
    Kernel coefficient, as in `sklearn.svm.SVC`; None is the kernel's own default.
kernel_params : dict, default=None
    Further arguments of the kernel, for example ``{{"degree": 3, "coef0": 1.0}}``, the defaults
    of the polynomial one.
""",
    "cost_scale": """
cost_scale : {{"sum", "mean"}}, default="sum"
    Whether the costs of a {whole}'s {elements} are added or averaged. A mistake at one of M
    {elements} asks for a margin of its cost, or of its cost / M, as in the papers: little where M
    is large. Where all have M {elements}, "sum" with alpha is "mean" with M alpha, and weights M
    times as large. ``decode="min_risk"`` of "max_min" is on the same scale; "log" does not depend
    on it, unless `cost_augmented`.
""",
    "tempering": """
cost_augmented : bool, default=False
    Whether the costs are added to the scores of ``surrogate="log"``, so that dear mistakes ask for
    larger margins: the softmax-margin, or VCRF.
temperature : float, default=1.0
    What the entropy is multiplied by in ``surrogate="log"``: probabilities are those of scores over
    it. Towards 0 the loss of `cost_augmented` is "max_margin".
""",
    "fit_intercept": """
fit_intercept : bool{free} or float, default=True
    Whether to add a constant feature, whose weight is the intercept. It is penalised like the
    other weights; a number is the value of the constant feature, 1 by default: the larger, the
    weaker the penalty, which is alpha / 2 times the intercept's square over that of the number
    (``LinearSVC``'s `intercept_scaling`).{unpenalised}
""",
    "penalty": """
penalty : {{"l2", "elasticnet", "l1"}} or object of fastm4n.penalties, default="l2"
    What alpha multiplies: "l2" is ||w||^2 / 2, "elasticnet" has an L1 term that makes weights
    exactly zero, and "l1" is that alone. An object says more: `L2` and `ElasticNet` bounds, `Group`
    whole features; see `fastm4n.penalties`. The gap is certified for the problem with this
    penalty.{penalties}
""",
    "solver": """
solver : "auto", BlockFrankWolfe, LabelNewton, QuasiNewton, InteriorPoint or OutOfCore, \
default="auto"
    How the problem is solved: steps, sampling, acceleration, cache and oracles. "auto" makes
    accelerated steps, line searches or pairwise ones with a cache or without, whichever counts of
    the work done say that pay; it says in `history_` what it chose. See
    `BlockFrankWolfe` for the options, which are nested parameters such as ``solver__step``.
    `LabelNewton`, for single labels and dense features, is what "auto" takes under "log" and for
    features out of scale, `QuasiNewton` for few and long outputs, and `InteriorPoint` for rankings
    of more than a few items under "max_min". `OutOfCore` is for data that do not fit in memory.
tol : float, default=1e-3
    Relative gap (`relative_gap_`) at which the fit ends: the certified duality gap as a share
    of the objective at zero weights, at least 0 and below 1.
max_iter : int, default=1000
    Most passes over the {examples}.
""",
    "cache_size": """
cache_size : float, default=2048
    Memory for kernel values in MiB. The Gram matrix of fewer than 1,000 samples, or with
    ``tol`` below 1e-5, is held whole where it fits (8 n^2 bytes). Otherwise its rows are
    computed as needed and this much of them kept: of larger data in single precision, which
    steps go by. The certificate that is returned is of kernel values in double precision.
""",
    "running": """
n_jobs : int, default=None
    Threads of the fit{threads}. The result does not depend on it.
random_state : int, RandomState instance or None, default=None
    Seed of the order of visits: an int gives the same bits on the same machine.
verbose : int, default=0
    A progress bar (with tqdm) and lines in the log "fastm4n".
callback : callable, default=None
    Called after each certificate with a dict of its row of `history_`; a true result
    ends the fit.
""",
    "certificate": """
alpha_ : float
    The alpha of the fit.
relative_gap_ : float
    Certified gap, as a share of the objective at zero weights; at most `tol`, unless the fit
    ran out of passes.
duality_gap_ : float
    The same gap in units of the objective, which is at most this much above its minimum.
primal_objective_, dual_objective_ : float
    The two values that differ by the gap.
interrupted_ : bool
    Whether Ctrl-C ended the fit, which then holds the best that was certified.
n_iter_ : int
    Passes made.
history_ : dict of ndarray
    At each certificate "pass", "primal", "dual", "gap", "seconds", "oracle_calls",
    "oracle_error" (mean of the oracle's own bounds' difference during the pass),
    "cache_hits" (visits that asked no oracle) and "policy" (the step, and whether there is
    a cache).
n_features_in_ : int
    Number of features{of_what}.
""",
    "vector_weights": """
X_fit_ : {{ndarray, sparse matrix}} of shape (n_samples, n_features)
    The training examples, for other kernels than "linear" and "precomputed".
""",
    "feature_names": """
feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Names of the features, where X had string names.
""",
    "bound": """
The duality gap is a bound: it is computed from feasible dual points and {oracles} at
the end of the fit, for the very weights that are kept. {Examples} that occur more
than once are merged into one of larger weight, and the blocks are ordered by content, so that a
fit depends neither on the order of the {examples} nor on whether a weight is written as a
repetition.
""",
    "references": """
.. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
   max-min margin Markov networks. ICML.{more}
.. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
   Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.
""",
    "X": """
X : {{array-like, sparse matrix}} of shape (n_samples, n_features)
    Examples.
""",
    "fit_X": """
X : {{array-like, sparse matrix}} of shape (n_samples, n_features)
    Training examples, or their Gram matrix (n_samples, n_samples) for
    ``kernel="precomputed"``. C-ordered float32 or float64 arrays and CSR matrices
    are not copied by linear models.
""",
    "decode": """
decode : {{"map", "min_risk"}}, default=None
    Overrides the parameter `decode`.
""",
    "fit_outcome": """
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
""",
}

_WORDS = {
    "kernels": ', a callable or "precomputed"', "free": "", "unpenalised": "", "threads": "",
    "of_what": "", "more": "", "examples": "samples", "Examples": "Samples", "oracles":
    "upper bounds of the oracles", "penalties":
    '\n    Kernels have "l2" only.', "surrogates": "", "boosted": "", "boosting": "",
}
# of estimators whose outputs have tangents
BOOSTING = {
    "boosted": ', "boost"', "boosting":
    ' "boost" weighs\n    the scores of mistakes by their costs (VStructBoost): log(1 + expected '
    'cost / probability of the\n    truth).',
}


def documented(parts=None, **words):
    """`_docstrings.documented` with the parts of all estimators, and `parts` of a few."""
    return _docstrings.documented({**_PARTS, **(parts or {})}, **{**_WORDS, **words})
