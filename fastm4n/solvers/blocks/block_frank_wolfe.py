"""The solver as an object: what of a fit is the way to the optimum, and not the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.solvers.base import Solver
from fastm4n.solvers.blocks.block_coordinate import solve_blocks
from fastm4n.solvers.blocks.driver import SAMPLINGS, STEPS
from fastm4n.solvers.free_intercept import solve_free_intercept
from fastm4n.solvers.proximal import solve_proximal
from fastm4n.surrogates import Log, MaxMinMirrorProx

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.solvers.base import Options, Solution, State
    from fastm4n.solvers.history import Monitor

ORACLES = ("exact", "mirror_prox")

# penalties whose quadratic term has this share or less are solved for by proximal points
SMALL_MODULUS = 0.05


def proximal_modulus(problem: Any, options: Options) -> float | None:
    """The quadratic share of the penalty if proximal points are to solve the problem, or None.

    Without a quadratic term there is no other way; with a small one they are the faster way to
    sparse CRFs.
    """
    if problem.modulus == 0.0:
        return 0.0
    small = problem.modulus <= SMALL_MODULUS and not problem.has_groups
    is_plain = type(problem.loss) is Log and options.auto
    return problem.modulus if small and is_plain else None


class BlockFrankWolfe(Solver):
    """Block-coordinate Frank-Wolfe, the solver of all estimators, with its options.

    Given as ``solver=BlockFrankWolfe(...)``; ``solver="auto"``, which every estimator has by
    default, is this with its default options, and changes `step` and `cache` where counts of work
    say that it pays. For few and long outputs "auto" is `QuasiNewton`, for "log" over single labels
    and for columns out of scale `LabelNewton`, for rankings under "max_min" `InteriorPoint`, and
    under "max_margin" over single labels with few weights semismooth Newton steps follow after some
    passes; where these have many weights, as of words, it makes exact steps, all examples in a new
    random order each pass. The optimum does not depend on any of them, and the certified gap holds
    for all: they decide how long a fit takes.

    Parameters
    ----------
    step : {"line_search", "pairwise", "away", "exact", "fixed"}, default="line_search"
        "line_search" is the Frank-Wolfe step with the best step size, in closed form (for
        "log" by Newton's method, on sequences and permutations in the scores whose marginals the
        dual point is).
        "pairwise" moves weight from the worst of an example's atoms to the oracle's answer, and
        "away" away from it where that gains more [2]_: both reach small gaps in fewer passes, and
        keep each example's atoms; for "max_min" and "max_margin".
        "exact" maximises the dual over the whole block, where that has a closed form (labels
        under "max_margin", and under "max_min" with the 0-1 cost), and takes fewer, dearer passes.
        "fixed" is the step 2n / (t + 2n) of [1]_ with averaging, but not for "log" on sequences
        and permutations.
    sampling : {"gap", "uniform", "permutation"}, default="gap"
        Which example is next: with probability proportional to its last known gap [2]_,
        uniformly, or all in a new random order each pass.
    accelerate : bool, default=True
        Whether passes are accelerated by momentum, where alpha is small beside the curvature:
        many times fewer passes there (see the user guide). The weights are then an average
        of the latest ones, and their gap is certified all the same. Without, examples of equal
        inputs and opposite outputs undo each other's steps: their gap takes a number of passes
        that grows as 1 / alpha.
    cache : int, default=None
        Most atoms (outputs, or mixtures of them) that are kept of an example, so that the oracle
        need not be asked where the best of them gains enough [2]_; None for no cache.
    cache_F : float, default=0.25
        An atom gains enough if it does `cache_F` of the example's gap when the oracle was last
        asked, and `cache_nu` of the mean gap. In (0, 1].
    cache_nu : float, default=0.01
        The share of the mean gap, when the gaps of all were last looked at, that an atom has to
        gain. In (0, 1].
    oracle : {"exact", "mirror_prox"}, default="exact"
        How "max_min" oracles are solved: in closed form, as a matrix game, or for sequences and
        permutations by column generation, as exactly as the gap needs; or by the saddle-point
        mirror prox of [1]_, for comparison. The certified gap does not depend on it.
    oracle_iter : int, default=None
        Iterations of mirror prox; by default 20, and for sequences 10 times their length.

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
    Its parameters are reached from the estimator, so that a grid search can choose them:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> from fastm4n import BlockFrankWolfe, MulticlassClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier(alpha=0.01, solver=BlockFrankWolfe(), random_state=0)
    >>> search = GridSearchCV(clf, {"solver__step": ["line_search", "exact"]}).fit(X, y)
    >>> search.best_params_
    {'solver__step': 'line_search'}
    """

    variants: tuple[dict[str, Any], ...] = (
        {}, {"step": "exact"}, {"step": "fixed"}, {"step": "pairwise", "cache": 5},
        {"oracle": "mirror_prox", "accelerate": False, "sampling": "permutation"})
    follows_paths = True
    solves_parts = True

    def __init__(
        self, *, step: Literal["line_search", "pairwise", "away", "exact", "fixed"] = "line_search",
        sampling: Literal["gap", "uniform", "permutation"] = "gap", accelerate: bool = True,
        cache: int | None = None, cache_F: float = 0.25, cache_nu: float = 0.01,
        oracle: Literal["exact", "mirror_prox"] = "exact", oracle_iter: int | None = None,
    ) -> None:
        self.step = step
        self.sampling = sampling
        self.accelerate = accelerate
        self.cache = cache
        self.cache_F = cache_F
        self.cache_nu = cache_nu
        self.oracle = oracle
        self.oracle_iter = oracle_iter

    def check(self) -> None:
        """Refuse options that make no sense by themselves.

        Raises
        ------
        ValueError
            Naming the option and what to write in its place.
        """
        check_choice("step", self.step, STEPS)
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_choice("oracle", self.oracle, ORACLES)
        check_flag("accelerate", self.accelerate)
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
                f"step={self.step!r} keeps no atoms to be cached; use cache=None, or "
                "step='line_search', 'pairwise' or 'away'."
            )

    def refusal(self, problem: Any) -> str | None:
        """As of `Solver`."""
        loss, surrogate = problem.loss, problem.said("surrogate")
        if self.oracle == "mirror_prox" and not isinstance(loss, MaxMinMirrorProx):
            return (
                "oracle='mirror_prox' solves the max-min oracle; it needs surrogate='max_min', "
                f"got {surrogate}.")
        if loss.is_smooth and (self.step in ("pairwise", "away") or self.cache):
            what = f"cache={self.cache!r}" if self.cache else f"step={self.step!r}"
            return (
                f"{what} is about atoms with weight, and the dual points of {surrogate} lie "
                "inside the polytope, not between atoms; use step='line_search' without a cache.")
        # visits of rounds over partitions are line searches, whatever the step
        if self.step == "exact" and not loss.has_block_step and problem.road != "partitions":
            return (
                "step='exact' needs a closed-form maximiser of the dual over a whole example, "
                f"which {problem.said('surrogate', 'cost')} of {problem.taker} does not have; use "
                "step='line_search'.")
        if self.step == "fixed" and problem.modulus == 0.0:
            return (
                f"step='fixed' needs a quadratic term, which {problem.said('penalty')} does not "
                "have; use step='line_search'.")
        if problem.modulus == 0.0 and problem.free_intercept is not None:
            return (
                f"{problem.said('fit_intercept')} with {problem.said('penalty')} has bounds that "
                "need a quadratic term of the intercept; use a large number for fit_intercept, or "
                "l1_ratio=0.99.")
        if self.step == "fixed" and loss.has_natural_step:
            return (
                "step='fixed' averages dual points, and the entropy at an average does not follow "
                f"from its marginals for {surrogate} of {problem.taker}; use step='line_search'.")
        return None

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As of `Solver`; max_iter counts passes of as many visits as there are examples.

        An intercept without penalty has a few fits in turn, and penalties with little or no
        quadratic term have proximal points around the passes.
        """
        if problem.loss is None:
            return problem.solved(self, options, monitor)  # soft constraints
        if problem.free_intercept is not None:
            return solve_free_intercept(self, problem, options, start, monitor)
        parts = problem.loss, problem.features, problem.weights, options.alpha, start, monitor
        more = dict(
            seed=options.seed, n_jobs=options.n_jobs, auto=options.auto,
            keep_dual=options.keep_dual, **self.options())
        modulus = proximal_modulus(problem, options)
        if modulus is not None:
            return solve_proximal(*parts, modulus=modulus, **more)
        return solve_blocks(*parts, keep_best=True, **more)

    def options(self) -> dict[str, Any]:
        """Arguments of `solve` and `Driver`."""
        return dict(
            step=self.step, sampling=self.sampling, accelerate=bool(self.accelerate),
            cache=self.cache, cache_F=self.cache_F, cache_nu=self.cache_nu,
        )
