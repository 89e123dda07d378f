"""Schedule of the block solver: what each pass is, and when gaps are certified.

`Schedule` is the only place that decides steps and cache (`AutoPolicy`), momentum
(`MomentumChoice`), semismooth Newton steps (`is_time_for_newton`), sampling and certificates. It
uses counts of work and gaps, and no clock, so repeated fits are identical.
"""

from __future__ import annotations

import json
import math

import numpy as np

from fastm4n.features._linear import LinearFeatures
from fastm4n.features._rows import may_be_dense
from fastm4n.outputs._simplex import SimplexOutputs
from fastm4n.solvers._semismooth import is_plain
from fastm4n.solvers.base import packed, unpack
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks.momentum import best_kappa, cost_of_vectors, whole_kappa
from fastm4n.solvers.certificates import objective_at_zero
from fastm4n.surrogates._base import MaxMarginLoss

SAMPLINGS = {"gap": Sampling.GAP, "uniform": Sampling.UNIFORM, "permutation": Sampling.PERMUTATION}
STEPS = {
    "line_search": Step.LINE_SEARCH, "exact": Step.BLOCK, "fixed": Step.FIXED,
    "pairwise": Step.PAIRWISE, "away": Step.AWAY,
}

# most atoms of a block without a cache. More are merged
MOST_ATOMS = 1000
# passes between two refreshes of all gaps, as in Osokin et al. (2016)
GAP_EVERY = 10
# gap sampling sweeps over all blocks, in random order, when its gaps add up to less than this
# share of their sum at the last refresh (benchmarks/policies.py)
SWEEP_BELOW = 0.5
# Newton passes between two certificates: they compute the gap themselves
NEWTON_GAP_EVERY = 30

# share of its gaps that a pass leaves if a smooth problem is slow: in so many first passes, and
# after them (benchmarks/conll2000.py)
SLOW_AT_FIRST, FIRST_PASSES, SLOW = 0.87, 4, 0.8
# kernels are accelerated after so many passes, if the dual rises by less than this share of the
# gap between certificates (benchmarks/kernel_machines.py)
STALLED_PASSES, STALLED = 40, 0.05
# momentum over kernels ends if so many passes leave more than this share of the gap
# (benchmarks/kernel_machines.py)
LATE_PASSES, HELPED = 100, 0.8
# momentum waits if its vectors cost more than this share of a pass, until so many passes are
# expected without it (benchmarks/momentum.py)
LITTLE, MANY_PASSES = 0.05, 40.0
# most work of a factor of the Hessian, in passes (benchmarks/semismooth.py)
MOST_PASSES = 12
# passes of steps of blocks before the first Newton step (benchmarks/semismooth.py)
FIRST_NEWTON_PASSES = 8
# Newton steps begin if so many directions are less work than the remaining passes: a constant
# plus so many times as many as at the rate until now (benchmarks/semismooth.py)
DIRECTIONS, PASSES_LEFT, SLOWER = 12.0, 2.0, 2.0
# least share of a label in the systems of Newton steps (benchmarks/semismooth.py)
NEWTON_SHARE = 0.01
# largest square length of a row, for a finite Hessian
LONGEST = 1e100

LINE_SEARCH, EXACT = "line_search", "exact"
PAIRWISE, CACHED = "pairwise", "pairwise+cache"

# passes before the first trial of another policy, for single labels, and factor of the passes
# until the next one (benchmarks/auto.py)
FIRST_TRIAL, FIRST_SIMPLE_TRIAL, MORE_PASSES = 30, 60, 4
# least passes of a trial, and passes over which slopes are compared (benchmarks/auto.py)
TRIAL_PASSES, JUDGED_PASSES = 30, 20
# share of the slope of line searches that is enough for steps between atoms of outputs of many
# parts, which have few atoms in their trial (benchmarks/auto.py)
ENOUGH = 0.7
# atoms of a block in the cache (benchmarks/policies.py)
CACHE = 50
# multiply-adds of a visit without its scores, and of its atoms: constant, for each part of a
# labelling, for each number of a mixture of labellings, and of one of single labels
# (benchmarks/auto.py)
VISIT, ATOMS, PARTS, NUMBERS, SIMPLE = 300.0, 300.0, 8.0, 8.0, 24.0
# weights for each block above which exact steps need no momentum (benchmarks/crammer_singer.py)
ROOMY = 3.5


def step_kind(step, surrogate):
    """The engine's step for the estimators' `step` under this surrogate."""
    if step == "exact" and not surrogate.has_block_step:
        raise ValueError(
            "step='exact' needs a closed-form step, which "
            f"{type(surrogate).__name__} over {type(surrogate.outputs).__name__} does not have. "
            "Use step='line_search'.")
    if step == "fixed" and surrogate.has_natural_step:
        raise ValueError(
            f"step='fixed' averages dual points, which {type(surrogate).__name__} of "
            f"{type(surrogate.outputs).__name__} does not allow. Use step='line_search'.")
    return STEPS[step]


def is_roomy(engine):
    """Whether single labels have so many weights that exact steps of whole blocks are best.

    Blocks then share few of their features, and exact steps in random order reach the dual optimum
    in few passes. If many blocks share few weights, sampling by gaps is better.
    """
    surrogate, features = engine.surrogate, engine.features
    if not surrogate.has_block_step or surrogate.outputs.layout.max_parts != 1:
        return False
    if not features.holds_weights() or features.has_penalty():
        return False
    return has_many_weights(engine)


def has_many_weights(engine):
    """Whether there are several weights for each block, so that blocks share few of them."""
    features = engine.features
    n_weights = features.n_labels * sum(len(array) for array in features.held().values())
    return n_weights >= ROOMY * engine.surrogate.n_blocks


class AutoPolicy:
    """Choice of step and cache by the counted work of passes and the decrease of the gap.

    Single labels with many weights (`is_roomy`) have exact steps in random order, and so have
    kernels whose blocks have exact steps in closed form. They try nothing else. If atoms are
    labellings of many parts, the first passes make pairwise steps with a cache. All others begin
    with Frank-Wolfe steps, and max-min over single labels stays with them. Longer fits try another
    policy, and the one that reduces the certified gap more for its work stays. The work of a pass
    is its visits times the feature map's `visit_cost` plus its oracle calls times the surrogate's
    `oracle_cost`, with allowances for the overhead of a visit and for atoms. All trials are passes
    of the fit. There is no choice for the log surrogate.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    most_atoms : int
        Limit for a block without a cache.
    cache_F, cache_nu : float
        As in `solve`.

    Attributes
    ----------
    name : str
        Policy of the next pass.
    work : float
        Approximate multiply-adds of all passes.
    """

    def __init__(self, engine, most_atoms, cache_F, cache_nu):
        self.engine = engine
        self.most_atoms = most_atoms
        self.options = cache_F, cache_nu
        surrogate = engine.surrogate
        layout = surrogate.outputs.layout
        # where blocks have a Gram matrix a visit costs as much as all labels of a few of them, and
        # a step that is best for its block wastes none
        is_kernel = surrogate.has_block_step and not engine.features.holds_weights()
        is_exact = is_kernel or is_roomy(engine)
        self.is_simple = layout.max_parts == 1
        # mixtures of single labels: what steps between atoms gain, a change to them loses, as
        # momentum begins anew
        has_mixtures = self.is_simple and not surrogate.has_labellings
        self.has_choice = not (surrogate.is_smooth or is_exact or has_mixtures)
        self.visit_cost = VISIT + engine.features.visit_cost
        self.oracle_cost = surrogate.oracle_cost
        numbers = SIMPLE if self.is_simple else NUMBERS
        self.atoms_cost = ATOMS + (
            PARTS * layout.max_parts if surrogate.has_labellings else numbers * layout.max_size)
        # from the first pass on, where they are small: steps that find one mixture take away from
        # all of its atoms alike
        self.keeps_atoms = self.has_choice and not self.is_simple and surrogate.has_labellings
        self.name = EXACT if is_exact else CACHED if self.keeps_atoms else LINE_SEARCH
        self.n_passes, self.work = 0, 0.0
        self.checks = []  # (passes, work, logarithm of the gap)
        self.next_trial = FIRST_SIMPLE_TRIAL if self.is_simple else FIRST_TRIAL
        self.changed = 0  # the check at which the policy was changed
        self.trial = None  # the policy before it
        self.rejected = None  # the one that was tried last and given up, and its slope
        self._before = 0, 0

    @property
    def kind(self):
        """The `Step` of the next pass."""
        steps = {LINE_SEARCH: Step.LINE_SEARCH, EXACT: Step.BLOCK}
        return steps.get(self.name, Step.PAIRWISE)

    def state(self):
        """All that later choices depend on, for `restore`: JSON in an array of bytes."""
        values = {name: value for name, value in vars(self).items() if name != "engine"}
        return np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)

    def restore(self, state):
        """Restore `state`, the engine having its active sets already."""
        values = json.loads(state.tobytes())
        if values.keys() != vars(self).keys() - {"engine"}:
            raise ValueError("the policy's state is of another version.")
        if values["name"] not in (LINE_SEARCH, EXACT, PAIRWISE, CACHED):
            raise ValueError(f"there is no policy {values['name']!r:.40}.")
        vars(self).update(values)

    def begin(self):
        """A pass begins."""
        self._before = self.engine.n_visits, self.engine.oracle_calls
        if self.keeps_atoms and self.engine.sets is None:
            self._use(self.name)

    def end(self):
        """The pass has ended: count its work."""
        n_visits = self.engine.n_visits - self._before[0]
        n_calls = self.engine.oracle_calls - self._before[1]
        atoms = self.atoms_cost if self.name in (PAIRWISE, CACHED) else 0.0
        self.n_passes += 1
        self.work += n_visits * (self.visit_cost + atoms) + n_calls * self.oracle_cost

    def told(self, gap):
        """Take notice of a certified gap: begin or end a trial, or go back on its outcome."""
        if not self.has_choice or gap <= 0.0:
            return
        self.checks.append((self.n_passes, self.work, math.log(gap)))
        last = len(self.checks) - 1
        since = self.n_passes - self.checks[self.changed][0]
        if self.trial is not None:
            if since >= TRIAL_PASSES:
                both = self.name, self.trial
                slope = self._slope(max(self.changed, self._earlier(last)), last, both)
                earlier = self._slope(self._earlier(self.changed), self.changed, both)
                is_new = self.trial == LINE_SEARCH and not self.is_simple
                if slope < (ENOUGH if is_new else 1.0) * earlier:
                    self.rejected = self.name, slope
                    self._change(self.trial)
                self.trial = None
                self.next_trial = MORE_PASSES * self.n_passes
        elif self.rejected is not None and since >= JUDGED_PASSES:
            # gaps fall ever more slowly: the policy that was tried may be better after all
            name, slope = self.rejected
            self.rejected = None
            if self._slope(self.changed, last, (self.name, name)) < slope:
                self._change(name)
        elif self.n_passes >= self.next_trial and self._other() != self.name:
            self.trial = self.name
            self._change(self._other())

    def _change(self, name):
        self.changed = len(self.checks) - 1
        self._use(name)

    def _other(self):
        """The policy to try next: of single labels there is none after pairwise steps."""
        return PAIRWISE if self.is_simple or self.name == CACHED else CACHED

    def _earlier(self, check):
        """The last check that is enough passes before this one, or the first."""
        passes = self.checks[check][0] - JUDGED_PASSES
        return max((i for i in range(check) if self.checks[i][0] <= passes), default=0)

    def _slope(self, first, last, policies):
        """Decrease of the logarithm of the gap between two checks, to compare two policies.

        It is per multiply-add, or per unit of the logarithm of all work if one of the two is line
        searches: their gaps fall like 1 / work^r, and r is the same early and late.
        """
        (_, began, high), (_, ended, low) = self.checks[first], self.checks[last]
        work = math.log(ended / began) if LINE_SEARCH in policies else ended - began
        return (high - low) / work

    def _use(self, name):
        self.name = name
        if name == LINE_SEARCH:
            return self.engine.drop_active_sets()
        if self.engine.sets is None:
            self.engine.use_active_sets(self.most_atoms)
        if name == CACHED:
            self.engine.set_cache(CACHE, *self.options)
        else:
            self.engine.drop_cache(self.most_atoms)


def newton_pays(engine):
    """Whether Newton steps are there for the blocks of this engine, and are not much work."""
    features, surrogate = engine.features, engine.surrogate
    if not (
        type(engine) is BlockCoordinateEngine and type(surrogate) is MaxMarginLoss
        and type(surrogate.outputs) is SimplexOutputs and type(features) is LinearFeatures
        and is_plain(features) and may_be_dense(features)
    ):
        return False
    if features.arguments()[2].max(initial=0.0) > LONGEST:
        return False
    return passes_of_system(engine, surrogate.n_blocks * (surrogate.max_size - 1)) <= MOST_PASSES


def passes_of_system(engine, n_columns):
    """How many passes are as much work as the equations of one direction.

    With labels `n_columns` beyond the first in the mixtures of all blocks.
    """
    features, surrogate = engine.features, engine.surrogate
    depth, k = features.n_features + 1, surrogate.max_size
    by_columns = 0.5 * n_columns**2 * (depth + k) + n_columns**3 / 6.0
    by_weights = (depth * k)**3 / 6.0
    return min(by_columns, by_weights) / (surrogate.n_blocks * features.visit_cost)


def is_time_for_newton(engine, n_passes, gap, tol):
    """Whether the systems of Newton steps are less work than the remaining steps of blocks.

    Newton steps take at most as many passes, each in half the time.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        With `newton_pays`, after `n_passes` from phi(y).
    gap : float
        Approximate sum of all gaps.
    tol : float
    """
    if n_passes < FIRST_NEWTON_PASSES or gap <= tol:
        return False
    if tol <= 0.0:
        return True
    begun = objective_at_zero(engine.surrogate, engine.features, engine.weights)
    fallen = np.log(begun / gap)
    left = PASSES_LEFT + SLOWER * n_passes * np.log(gap / tol) / fallen if fallen > 0.0 else np.inf
    n_columns = max(0, np.count_nonzero(engine.mu > NEWTON_SHARE) - engine.surrogate.n_blocks)
    return left > DIRECTIONS * passes_of_system(engine, n_columns)


class MomentumChoice:
    """Start and end of momentum.

    Steps that are not smooth have momentum from the first pass on. Smooth surrogates get it when
    gaps fall slowly. If vectors of momentum are expensive, it starts when many passes remain.
    Kernels get it when the dual stalls, and lose it if that does not help.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    accelerate : bool
    keep_best : bool
        Required for momentum over kernels.
    is_whole : bool
        Whether steps are of whole blocks that share few features.

    Attributes
    ----------
    is_quick : bool
        Whether one pass solves an inner problem well enough.
    """

    def __init__(self, engine, accelerate, keep_best, is_whole):
        self.engine, self.is_whole, self.overhead = engine, is_whole, 0.0
        self.regime = None
        is_smooth = engine.surrogate.is_smooth
        if not accelerate or engine.averaging:
            pass
        elif not engine.features.holds_weights():
            self.regime = "kernel" if keep_best else None
        else:
            self.overhead = cost_of_vectors(engine)
            self.regime = (
                "smooth" if is_smooth else "expensive" if self.overhead > LITTLE else "eager")
        self.is_quick = is_whole or self.regime == "smooth" and has_many_weights(engine)
        self.has_accelerated = False
        self.last_dual, self.changed_at, self.gap_then = -np.inf, 0, np.inf
        self.begin()

    def leave_kernels(self):
        """Passes are over working sets: momentum takes more of them over kernels there."""
        self.regime = None if self.regime == "kernel" else self.regime

    def begin(self):
        """A run begins."""
        # the gaps met in the last two passes
        self.before, self.stale, self.is_settled = np.inf, np.inf, False
        if self.regime == "expensive":
            self.changed_at, self.gap_then = 0, np.inf

    @property
    def has_average(self):
        """Whether accelerated passes return an average of weights."""
        return self.regime not in (None, "kernel")

    def is_due_at_start(self):
        """Whether passes are accelerated from the first on: alpha may have become small."""
        return self.has_average and self.engine.curvature > 0.0 and (
            self.regime == "eager" or self.has_accelerated)

    def is_due_after_pass(self, n_passes):
        """Whether they are from here on, by the gaps met in the pass."""
        if not self.has_average or self.is_settled:
            return False
        # in the first pass: later steps are shorter
        self.engine.measure_curvature()
        return self.engine.curvature > 0.0 and (
            self.regime == "eager" or self.regime == "smooth" and self._is_slow(n_passes))

    def changes(self, n_passes, raw, gap, tol, is_accelerated):
        """Whether passes change between plain and accelerated ones, by a certificate."""
        if self.regime == "kernel":
            since = n_passes - self.changed_at
            rise, self.last_dual = raw.dual - self.last_dual, raw.dual
            if is_accelerated:
                if since < LATE_PASSES:
                    return False
                changes = gap > HELPED * self.gap_then
            elif since < STALLED_PASSES or rise >= STALLED * raw.gap:
                return False
            else:
                changes = True
            self.changed_at, self.gap_then = n_passes, gap
            return changes
        if self.regime != "expensive" or is_accelerated or self.is_settled:
            return False
        # whether many more passes are to come without, as gaps have fallen lately
        since = n_passes - self.changed_at
        if self.changed_at > 0 and since < 2 * GAP_EVERY:  # one certificate says little
            return False
        rate = np.log(self.gap_then / gap) / since
        self.changed_at, self.gap_then = n_passes, gap
        still = np.log(gap / tol) if tol > 0.0 else np.inf
        return still > MANY_PASSES * (1.0 + self.overhead) * rate

    def kappa(self):
        """Strength of the centre for the next passes; 0 if momentum does not pay."""
        engine = self.engine
        engine.measure_curvature()
        self.is_settled = True
        kappa = best_kappa(engine.alpha, engine.curvature, engine.surrogate.is_smooth)
        if kappa > 0.0:
            self.has_accelerated = True
            kappa = whole_kappa(engine.alpha) if self.is_whole else kappa
        return kappa

    def _is_slow(self, n_passes):
        """Whether a smooth problem needs momentum: most are solved before it helps.

        Gaps are compared with those of two passes ago. Passes that remove a third of them finish
        before momentum builds up.
        """
        before, self.before, self.stale = self.before, self.stale, self.engine.stale_gap()
        share = SLOW if n_passes > FIRST_PASSES else SLOW_AT_FIRST
        return self.stale > share**2 * before


# of the state of a schedule
OF_SCHEDULE = "fresh_share", "last_check", "last_gap", "rate", "at_refresh", "is_sweep"
OF_MOMENTUM = (
    "changed_at", "gap_then", "last_dual", "before", "stale", "is_settled", "has_accelerated")


class Schedule:
    """Kind of each pass: sampling, step, cache, momentum or Newton steps.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    sampling, step, accelerate, cache, cache_F, cache_nu, auto, keep_best
        As in `solve`.

    Attributes
    ----------
    name : str
        Step of the last pass, as in histories.
    kind : Step
        Step of the next pass.
    momentum : MomentumChoice
    fresh_share : float
        Certified gap over the sum of the gaps met in the pass before, at the last certificate.
    """

    def __init__(
        self, engine, sampling, step, accelerate, cache, cache_F, cache_nu, auto, keep_best,
    ):
        self.engine, self.sampling = engine, sampling
        self.policy = AutoPolicy(engine, MOST_ATOMS, cache_F, cache_nu) if auto else None
        if auto:
            step, cache = "exact" if self.policy.kind == Step.BLOCK else "line_search", None
        self.fixed = step_kind(step, engine.surrogate)
        self.is_whole = self.fixed == Step.BLOCK and is_roomy(engine)
        self.name = step if cache is None else f"{step}+cache"
        needs_atoms = self.fixed in (Step.PAIRWISE, Step.AWAY) or (
            engine.surrogate.outputs.is_listing and not auto)
        if cache is not None or needs_atoms:
            most = min(cache or MOST_ATOMS, np.iinfo(np.intc).max)
            engine.use_active_sets(most, cache is not None, cache_F, cache_nu)
        self.momentum = MomentumChoice(engine, accelerate, keep_best, self.is_whole)
        self.has_newton = (
            auto and keep_best and accelerate and not self.is_whole and newton_pays(engine))
        self.is_newton, self.fresh_share = False, 1.0
        # passes at the last certificate, its gap, and the decrease of the gap's logarithm a pass
        # before it
        self.last_check, self.last_gap, self.rate = 0, np.inf, 0.0
        # the stale gap when all gaps were last looked at, and whether the next pass is a sweep
        self.at_refresh, self.is_sweep = 0.0, False

    @property
    def kind(self):
        return self.fixed if self.policy is None else self.policy.kind

    def begin(self):
        """A run begins."""
        self.last_check, self.last_gap, self.rate = 0, np.inf, 0.0
        self.momentum.begin()

    def begin_passes(self, sweep_first):
        """The passes of a run begin, with a sweep if no block was visited."""
        self.is_sweep = self.sampling == "gap" and sweep_first
        self.at_refresh = self.engine.stale_gap()

    def next_pass(self):
        """Sampling and step of the next pass. Active sets and cache of the engine are set up."""
        sampling = Sampling.PERMUTATION if self.is_sweep else SAMPLINGS[self.sampling]
        if self.policy is not None and not self.is_newton:
            self.policy.begin()
            self.name = self.policy.name
            sampling = Sampling.PERMUTATION if self.is_whole else sampling
        return sampling, self.kind

    def end_pass(self):
        """The pass has ended: count its work."""
        if self.policy is not None and not self.is_newton:
            self.policy.end()

    def is_time_for_newton(self, n_passes, stale, tol):
        """Whether Newton steps begin, the gaps met in the last pass adding up to `stale`."""
        if not self.has_newton or self.is_newton:
            return False
        # a pass by gaps has used up some of those that it went by
        is_fair = self.is_sweep or self.sampling != "gap" or stale > SWEEP_BELOW * self.at_refresh
        if is_fair and is_time_for_newton(self.engine, n_passes, stale, tol):
            self.is_newton, self.name = True, "semismooth"
            return True
        return False

    def met(self, stale):
        """The gaps met in the last pass add up to this: decide whether the next one is a sweep."""
        if self.is_sweep:
            self.at_refresh, self.is_sweep = stale, False
        elif self.sampling == "gap":
            # once the gaps it goes by are mostly used up, draws go to blocks that have
            # nothing left to gain: a sweep looks at all of them again, and steps
            self.is_sweep = stale <= SWEEP_BELOW * self.at_refresh

    def is_check_due(self, n_passes, stale, tol):
        """Whether a certificate is made after this pass, be it not the last."""
        if self.is_newton:
            return n_passes % NEWTON_GAP_EVERY == 0 or stale <= tol
        # after a certificate that fell short the next early one waits, or slow fits
        # would make one every pass
        since = n_passes - self.last_check
        early = since > n_passes // 20 and (
            stale * self.fresh_share <= tol or self._is_foreseen(since, tol))
        return since >= GAP_EVERY or early and not self.engine.averaging

    def _is_foreseen(self, since, tol):
        """Whether the certified gap is at most tol by now, if it falls as it did.

        The gaps met under momentum are those of other problems and say less.
        """
        return since > 1 and self.rate > 0.0 and (
            self.last_gap * math.exp(-self.rate * since) <= tol)

    def told(self, gap):
        """Note a certified gap; returns whether the step changes."""
        if self.policy is None or self.is_newton:
            return False
        before = self.policy.name
        self.policy.told(gap)
        return self.policy.name != before and not self.policy.keeps_atoms

    def checked(self, n_passes, gap):
        """A certificate has refreshed all gaps, and they add up to this."""
        since, before = n_passes - self.last_check, self.last_gap
        self.rate = math.log(before / gap) / since if 0.0 < gap < before < np.inf else 0.0
        self.last_check, self.last_gap = n_passes, gap
        self.at_refresh, self.is_sweep = self.engine.stale_gap(), False

    def state(self):
        """All that later passes depend on."""
        state = {
            "numbers": packed(self, OF_SCHEDULE), "momentum": packed(self.momentum, OF_MOMENTUM)}
        if self.policy is not None:
            state["policy"] = self.policy.state()
        return state

    def restore(self, state):
        """Restore what `state` gave."""
        unpack(self, OF_SCHEDULE, state["numbers"])
        unpack(self.momentum, OF_MOMENTUM, state["momentum"])
        if self.policy is not None:
            self.policy.restore(state["policy"])
