"""The choice among the solver's policies, by what they cost and gain on the problem at hand."""

import math
import time

from fastm4n.solvers._block_coordinate import Step

LINE_SEARCH, PAIRWISE, CACHED = "line_search", "pairwise", "pairwise+cache"

# The pass that tries pairwise steps first, after which one steps to atoms at hand alone
FIRST_PAIRWISE = 8
# pairwise steps between outputs of several parts are taken up then where a pass costs no more than
# this, its sets being made in it; where outputs are single labels they seldom need fewer passes
NO_DEARER = 1.3
# a cache is worth a trial where a visit that asks no oracle costs up to this share of one that does
CHEAP_VISIT = 0.5
# a trial of another policy begins after so many passes, where outputs are single labels after so
# many, and the next one after so many times as many
FIRST_TRIAL, FIRST_SIMPLE_TRIAL, MORE_PASSES = 30, 60, 4
# passes of a trial, after which it is judged by the later of them, at least; and those that it is
# judged by and compared with
TRIAL_PASSES, JUDGED_PASSES = 30, 20
# the share of the earlier policy's slope that is enough: slopes fall anyway as gaps get small
ENOUGH = 0.7
# atoms of a block that the cache keeps
CACHE = 50


class AutoPolicy:
    """Chooses step and cache by seconds, and by what they do for the gap in them.

    The first passes make Frank-Wolfe steps, the eighth pairwise steps, and the ninth steps to the
    atoms at hand alone. Where pairwise steps are no dearer they stay. From the thirtieth pass on
    other policies are tried: the one whose certified gaps fall by the larger factor in a second
    stays. Where outputs are single labels there are no such passes and no cache, and the first
    trial is after sixty. All of these are passes of the fit. The log surrogate leaves nothing to
    choose.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    most_atoms : int
        Of a block without a cache.
    cache_F, cache_nu : float
        As in `solve`.

    Attributes
    ----------
    kind : Step
        Of the next pass.
    cached_only : bool
        Whether the next pass is to leave the oracle alone.
    name : str
        Policy of the next pass.
    """

    def __init__(self, engine, most_atoms, cache_F, cache_nu):
        self.engine = engine
        self.most_atoms = most_atoms
        self.options = cache_F, cache_nu
        surrogate = engine.surrogate
        self.has_choice = not (surrogate.has_natural_step or surrogate.has_line_search)
        self.is_simple = surrogate.outputs.layout.max_parts == 1
        self.kind, self.cached_only, self.name = Step.LINE_SEARCH, False, LINE_SEARCH
        self.n_passes, self.seconds = 0, 0.0
        self.visit = {}  # seconds of a visit, by policy
        self.checks = []  # (passes, seconds, logarithm of the gap)
        self.next_trial = FIRST_SIMPLE_TRIAL if self.is_simple else FIRST_TRIAL
        self.changed = 0  # the check at which the policy was changed
        self.trial = None  # the policy before it
        self.rejected = None  # the one that was tried last and given up, and its slope
        self._began = 0.0

    def begin(self):
        """A pass begins."""
        self._began, self._visits = time.thread_time(), self.engine.n_visits

    def end(self):
        """The pass has ended: choose the next one's policy."""
        seconds, n = time.thread_time() - self._began, self.engine.n_visits - self._visits
        self.n_passes += 1
        self.seconds += seconds
        if n:
            self.visit["cached" if self.cached_only else self.name] = seconds / n
        if not self.has_choice or self.is_simple or self.n_passes > FIRST_PAIRWISE + 1:
            return
        if self.n_passes == FIRST_PAIRWISE - 1:
            self._use(PAIRWISE)
        elif self.n_passes == FIRST_PAIRWISE:
            self.cached_only = True
        elif self.n_passes > FIRST_PAIRWISE:
            self.cached_only = False
            if self._cost(PAIRWISE) > NO_DEARER * self._cost(LINE_SEARCH):
                self._use(LINE_SEARCH)

    def told(self, gap):
        """Take notice of a certified gap: begin or end a trial, or go back on its outcome."""
        if not self.has_choice or gap <= 0.0:
            return
        self.checks.append((self.n_passes, self.seconds, math.log(gap)))
        last = len(self.checks) - 1
        since = self.n_passes - self.checks[self.changed][0]
        if self.trial is not None:
            if since >= TRIAL_PASSES:
                slope = self._slope(max(self.changed, self._earlier(last)), last)
                if slope < ENOUGH * self._slope(self._earlier(self.changed), self.changed):
                    self.rejected = self.name, slope
                    self._change(self.trial)
                self.trial = None
                self.next_trial = MORE_PASSES * self.n_passes
        elif self.rejected is not None and since >= JUDGED_PASSES:
            # gaps fall ever more slowly: what was tried may be better than what is left
            name, slope = self.rejected
            self.rejected = None
            if self._slope(self.changed, last) < ENOUGH * slope:
                self._change(name)
        elif self.n_passes >= self.next_trial and self._other() is not None:
            self.trial = self.name
            self._change(self._other())

    def _change(self, name):
        self.changed = len(self.checks) - 1
        self._use(name)

    def _cost(self, name):
        return self.visit.get(name, math.inf)

    def _other(self):
        """The policy to try next, or None."""
        is_cheap = self._cost("cached") <= CHEAP_VISIT * self._cost(PAIRWISE)
        is_cheap = is_cheap and not self.is_simple  # whose oracles are
        if self.name == LINE_SEARCH:
            return CACHED if is_cheap else PAIRWISE
        if self.name == PAIRWISE:
            return CACHED if is_cheap else LINE_SEARCH if self.is_simple else None
        return PAIRWISE

    def _earlier(self, check):
        """The last check that is enough passes before this one, or the first."""
        passes = self.checks[check][0] - JUDGED_PASSES
        return max((i for i in range(check) if self.checks[i][0] <= passes), default=0)

    def _slope(self, first, last):
        """By how much the logarithm of the gap fell in a second."""
        (_, began, high), (_, ended, low) = self.checks[first], self.checks[last]
        return (high - low) / max(ended - began, 1e-9)

    def _use(self, name):
        self.name = name
        if name == LINE_SEARCH:
            self.kind = Step.LINE_SEARCH
            return self.engine.drop_active_sets()
        self.kind = Step.PAIRWISE
        if self.engine.sets is None:
            self.engine.use_active_sets(self.most_atoms)
        if name == CACHED:
            self.engine.set_cache(CACHE, *self.options)
        else:
            self.engine.drop_cache(self.most_atoms)
