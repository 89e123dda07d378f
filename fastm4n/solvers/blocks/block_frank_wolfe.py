"""`BlockFrankWolfe`, the value of `solver` for the block solver: options, refusals and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.features import LinearFeatures
from fastm4n.features._pairs import ThresholdFeatures
from fastm4n.solvers.base import Solver, block_work
from fastm4n.solvers.blocks.block_coordinate import begin, solve_engine
from fastm4n.solvers.blocks.schedule import LONGEST, SAMPLINGS, STEPS
from fastm4n.surrogates import LogLoss, MirrorProxLoss

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.solvers.base import Options, Solution, State
    from fastm4n.solvers.monitor import Monitor


ORACLES = ("exact", "mirror_prox")

# factors of these for few and long outputs (benchmarks/long_sequences.py), and for columns out of
# scale (benchmarks/scales.py); the first for passes that list transitions, which are much cheaper
# than marginals of all of them (benchmarks/many_labels.py)
COARSE, ILL_CONDITIONED, COARSE_LISTS = 2.0, 4.0, 12.0
# factor over linear programs, whose answers have no atoms in common, and most examples for it in
# units of their mean number of parts under the log surrogate (benchmarks/cycles.py)
RELAXED, FEW_RELAXED = 5.0, 20
# least mean number of parts of long outputs, and most examples in units of it, under the log
# surrogate, whose exact steps are good, and else (benchmarks/long_sequences.py)
LONG, FEW_SMOOTH, FEW = 50, 0.1, 1.0
# parts for each weight below which mean costs are almost separable, and exact steps are faster
# (benchmarks/long_sequences.py)
SEPARABLE = 1.0 / 3.0
# columns are out of scale if alpha n is less than this share of the mean sum of squares of an
# output's features, of single labels of the mean square length of rows. X of more columns is not
# examined (benchmarks/scales.py)
OUT_OF_SCALE, OUT_OF_SCALE_SIMPLE, MOST_COLUMNS = 1e-6, 1e-3, 1000


def n_weights(features):
    """Numbers of a state."""
    return sum(array.size for array in features.held().values())


def rows_in_use(features):
    """The rows of X used by blocks, in the order of X; None for maps without X."""
    X = getattr(features, "X", None)
    if X is None:
        return None
    if type(features) is LinearFeatures:
        rows = features.arguments()[1]
    else:
        starts, lengths = features.rows_of_blocks()
        before = np.repeat(starts - np.cumsum(lengths) + lengths, lengths)
        rows = before + np.arange(before.size)
    return X if rows.size == X.shape[0] else X[np.sort(rows)]


def is_out_of_scale(problem, alpha):
    """Whether features are so large compared with alpha that blocks undo each other's steps."""
    features, weights = problem.features, problem.weights
    layout, by_thresholds = problem.loss.outputs.layout, type(features) is ThresholdFeatures
    if by_thresholds or layout.max_parts == 1:
        rows = features.labels if by_thresholds else features
        if type(rows) is not LinearFeatures:
            return False
        # all scores of a block move by its features together
        norms = layout.max_parts * rows.arguments()[2]
        if by_thresholds:
            norms = norms + features.pairs.value**2
        return alpha * norms.size < OUT_OF_SCALE_SIMPLE * float(np.sum(weights * norms))
    X = rows_in_use(features)
    if X is None or not 0 < X.shape[1] <= MOST_COLUMNS or weights.size == 0:
        return False
    values = X.data if sparse.issparse(X) else X
    with np.errstate(over="ignore"):
        squares = float(np.vdot(values, values)) / weights.size
    return alpha * weights.size < OUT_OF_SCALE * squares and squares < LONGEST


def is_coarse(problem):
    """Whether steps of whole blocks are too coarse: for few and long outputs."""
    loss = problem.loss
    layout, is_smooth = loss.outputs.layout, isinstance(loss, LogLoss)
    length = layout.n_parts_of_all / max(1, layout.n_blocks)
    if length < LONG or layout.n_blocks > (FEW_SMOOTH if is_smooth else FEW) * length:
        return False
    is_separable = layout.n_parts_of_all < SEPARABLE * n_weights(problem.features)
    return is_smooth or not (loss.outputs.mean_cost and is_separable)


class BlockFrankWolfe(Solver):
    """Block-coordinate Frank-Wolfe, the solver of all estimators, with its options.

    The default ``solver="auto"`` of every estimator is this solver with default options. It changes
    `step` and `cache` if counts of work show an advantage. "auto" takes another solver for some
    fits: `QuasiNewton` for few and long outputs, `LabelNewton` for "log" over single labels and for
    columns out of scale, and `InteriorPoint` for rankings under "max_min". Under "max_margin" over
    single labels with few weights, semismooth Newton steps follow after some passes. With many
    weights, as for words, all examples have exact steps in a new random order each pass. Neither
    the optimum nor the certified gap depends on these choices, only the time of a fit.

    Parameters
    ----------
    step : {"line_search", "pairwise", "away", "exact", "fixed"}, default="line_search"
        "line_search" is the Frank-Wolfe step with the best step size, in closed form. For "log" the
        size is found by Newton's method, on sequences and permutations in the natural parameters.
        "pairwise" moves weight from the worst of an example's atoms to the oracle's answer, and
        "away" away from it if that gains more [2]_. Both reach small gaps in fewer passes, and
        store each example's atoms. They are for "max_min" and "max_margin".
        "exact" maximises the dual over the whole block, if that has a closed form (labels
        under "max_margin", and under "max_min" with the 0-1 cost). Its passes are fewer and more
        expensive.
        "fixed" is the step 2n / (t + 2n) of [1]_ with averaging, but not for "log" on sequences
        and permutations.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Order of examples: with probability proportional to the last known gap [2]_,
        uniform, or all in a new random order each pass.
    accelerate : bool, default=True
        Whether passes are accelerated by momentum if alpha is small compared with the curvature.
        They are then many times fewer (see the user guide). The weights are an average
        of the latest ones, and their gap is certified too. Without momentum, examples of equal
        inputs and opposite outputs undo each other's steps, and the number of passes grows
        as 1 / alpha.
    cache : int, default=None
        Most atoms (outputs, or mixtures of them) stored for an example. The oracle is not called if
        the best of them gains enough [2]_. None for no cache.
    cache_F : float, default=0.25
        An atom gains enough if it gains `cache_F` of the example's gap at the last oracle call,
        and `cache_nu` of the mean gap. In (0, 1].
    cache_nu : float, default=0.01
        The share of the mean gap, at the last refresh of all gaps, that an atom has to
        gain. In (0, 1].
    oracle : {"exact", "mirror_prox"}, default="exact"
        Method of "max_min" oracles. "exact" is a closed form, a matrix game, or for sequences and
        permutations column generation, as exact as the gap needs. "mirror_prox" is the saddle-point
        method of [1]_, for comparison. The certified gap does not depend on it.
    oracle_iter : int, default=None
        Iterations of mirror prox. By default 20, and for sequences 10 times their length.
    kernel_cache_size : float, default=2048
        Memory for kernel values in MiB. The Gram matrix of fewer than 1,000 examples, or with
        ``tol`` below 1e-5, is kept if it fits (8 n^2 bytes). Otherwise rows are computed as needed,
        and this much of them is cached, for larger data in single precision. Certificates use
        kernel values in double precision. `Matcher` always keeps the whole matrix.

    See Also
    --------
    fastm4n.MulticlassClassifier : One of the estimators that take it.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    .. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML.

    Examples
    --------
    A grid search can choose its parameters:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from fastm4n import BlockFrankWolfe, MulticlassClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier(
    ...     "max_margin", alpha=0.01, solver=BlockFrankWolfe(), random_state=0)
    >>> search = GridSearchCV(clf, {"solver__step": ["line_search", "exact"]}).fit(X, y)
    >>> search.best_params_
    {'solver__step': 'line_search'}
    """

    variants: tuple[dict[str, Any], ...] = (
        {}, {"step": "exact"}, {"step": "fixed"}, {"step": "pairwise", "cache": 5},
        {"oracle": "mirror_prox", "accelerate": False, "sampling": "permutation"})
    follows_paths = True
    solves_parts = True

    @property
    def has_atoms(self) -> bool:
        """Whether dual points can be combinations of outputs."""
        return self.step in ("line_search", "pairwise", "away")

    def __init__(
        self, *, step: Literal["line_search", "pairwise", "away", "exact", "fixed"] = "line_search",
        sampling: Literal["gap", "uniform", "permutation"] = "gap", accelerate: bool = True,
        cache: int | None = None, cache_F: float = 0.25, cache_nu: float = 0.01,
        oracle: Literal["exact", "mirror_prox"] = "exact", oracle_iter: int | None = None,
        kernel_cache_size: float = 2048,
    ) -> None:
        self.step = step
        self.sampling = sampling
        self.accelerate = accelerate
        self.cache = cache
        self.cache_F = cache_F
        self.cache_nu = cache_nu
        self.oracle = oracle
        self.oracle_iter = oracle_iter
        self.kernel_cache_size = kernel_cache_size

    def check(self) -> None:
        """Refuse invalid options.

        Raises
        ------
        ValueError
            Naming the option and its valid values.
        """
        check_choice("step", self.step, STEPS)
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_choice("oracle", self.oracle, ORACLES)
        check_flag("accelerate", self.accelerate)
        check_number("kernel_cache_size", self.kernel_cache_size, low=0)
        if self.cache is not None:
            check_number("cache", self.cache, low=0, integer=True)
        for name in ("cache_F", "cache_nu"):
            check_number(name, getattr(self, name), low=0)
            if getattr(self, name) > 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)!r}.")
        if self.oracle_iter is not None:
            check_number("oracle_iter", self.oracle_iter, low=0, integer=True)
        if self.cache is not None and self.step in ("exact", "fixed"):
            raise ValueError(
                f"step={self.step!r} has no atoms to cache. Use cache=None, or "
                "step='line_search', 'pairwise' or 'away'.")

    def reason(self, problem: Any) -> str | None:
        """As in `Solver`."""
        loss, surrogate = problem.loss, problem.said("surrogate")
        if self.oracle == "mirror_prox" and not isinstance(loss, MirrorProxLoss):
            return f"oracle='mirror_prox' needs surrogate='max_min', got {surrogate}."
        if loss.is_smooth and (self.step in ("pairwise", "away") or self.cache):
            what = f"cache={self.cache!r}" if self.cache else f"step={self.step!r}"
            return (
                f"{what} needs atoms, and {surrogate} has none. Use step='line_search' without a "
                "cache.")
        # visits of rounds over partitions are always line searches
        if self.step == "exact" and not loss.has_block_step and problem.pieces.road != "partitions":
            return (
                "step='exact' needs a closed-form step, which "
                f"{problem.said('surrogate', 'cost')} of {problem.taker} does not have. Use "
                "step='line_search'.")
        if self.step == "fixed" and loss.has_natural_step:
            return (
                f"step='fixed' averages dual points, which {surrogate} of {problem.taker} does not "
                "allow. Use step='line_search'.")
        return None

    def cost(self, problem: Any, options: Options) -> float:
        """As in `Solver`: the number of passes times `pass_work`.

        They are `PASSES`, times `COARSE` if outputs are few and long, or times `ILL_CONDITIONED`
        if columns are out of scale, or times `RELAXED` over linear programs.
        """
        factor, outputs = 1.0, problem.loss.outputs
        is_few = outputs.layout.n_blocks**2 <= FEW_RELAXED * outputs.layout.n_parts_of_all
        if outputs.has_relaxation and (is_few or not isinstance(problem.loss, LogLoss)):
            factor = RELAXED
        elif is_out_of_scale(problem, options.alpha):
            factor = ILL_CONDITIONED
        elif is_coarse(problem):
            factor = COARSE_LISTS if outputs.layout.may_list else COARSE
        return factor * block_work(problem)

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As in `Solver`. max_iter counts passes of as many visits as there are examples."""
        of_blocks, outputs = self.options(), problem.loss.outputs
        if outputs.layout.may_list:
            outputs.begin_lists()
        try:
            engine = begin(
                problem.loss, problem.features, problem.weights, options.alpha, start,
                options.seed, step=self.step, cache=self.cache, keep_dual=options.keep_dual)
            return solve_engine(
                engine, monitor, is_warm=start is not None, n_jobs=options.n_jobs,
                auto=options.auto, keep_best=True, keep_dual=options.keep_dual, **of_blocks)
        finally:
            if outputs.layout.may_list:
                outputs.end_lists()

    def options(self) -> dict[str, Any]:
        """Arguments of `solve` and `Driver`."""
        names = "step", "sampling", "accelerate", "cache", "cache_F", "cache_nu"
        return {name: getattr(self, name) for name in names}
