"""The choice among the solver's policies, by the work that passes take and what they gain."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.solvers.blocks._engine import Step

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import FloatArray

LINE_SEARCH, EXACT = "line_search", "exact"
PAIRWISE, CACHED = "pairwise", "pairwise+cache"

# a trial of another policy begins after so many passes, where outputs are single labels after so
# many, and the next one after so many times as many
FIRST_TRIAL, FIRST_SIMPLE_TRIAL, MORE_PASSES = 30, 60, 4
# passes of a trial, after which it is judged by the later of them, at least; and those that it is
# judged by and compared with
TRIAL_PASSES, JUDGED_PASSES = 30, 20
# the share of the slope of line searches that is enough for steps between the atoms of outputs of
# many parts: they have few atoms when their trial begins, and more later
ENOUGH = 0.7
# atoms of a block that the cache keeps
CACHE = 50
# what a visit costs beside its scores, in multiply-adds, and what it costs more where it has to do
# with atoms: so much, and so much for each part of a labelling, each number of a mixture of
# labellings of several parts, or each of one of single labels
VISIT, ATOMS, PARTS, NUMBERS, SIMPLE = 300.0, 300.0, 8.0, 8.0, 24.0
# weights for each block from which on blocks are little in each other's way; with fewer, and a
# small alpha, momentum has to go further than steps of whole blocks take it
ROOMY = 3.5


def is_roomy(engine: Any) -> bool:
    """Whether single labels have so many weights that steps of whole blocks get on best.

    Blocks then share few of their features, and few passes of such steps, in random order, come
    to the dual optimum; where many blocks are to agree on few weights, the gap says better than an
    order which of them to visit.
    """
    surrogate, features = engine.surrogate, engine.features
    if not surrogate.has_block_step or surrogate.outputs.layout.max_parts != 1:
        return False
    if features.weight_norm() is None or features.has_penalty():
        return False
    n_weights = features.n_labels * sum(len(array) for array in features.held().values())
    return n_weights >= ROOMY * surrogate.n_blocks


class AutoPolicy:
    """Chooses step and cache by counts: by the work of passes, and by what it does for the gap.

    Single labels with many weights (`is_roomy`) have steps of whole blocks, in random order, and
    kernels whose blocks have such steps in closed form make them, too; nothing else is tried. Where
    atoms are labellings of many parts the first passes make pairwise steps with a cache, elsewhere
    Frank-Wolfe steps, which max-min over single labels goes on with. Other fits that last longer
    try another policy: the one that does more for the certified gap stays. The work of a pass is
    the number of its visits times the feature map's `visit_cost`, and of its oracle calls times the
    surrogate's `oracle_cost`, with allowances for what else a visit does, and for the atoms that
    steps between them look at. No clock is read, so that a fit is the same each time. All trials
    are passes of the fit. The log surrogate leaves nothing to choose.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    most_atoms : int
        Of a block without a cache.
    cache_F, cache_nu : float
        As in `solve`.

    Attributes
    ----------
    name : str
        Policy of the next pass.
    work : float
        Multiply-adds of all passes, about.
    """

    options: tuple[float, float]
    is_simple: bool
    has_choice: bool
    visit_cost: float
    oracle_cost: float
    atoms_cost: float
    name: str
    n_passes: int
    work: float
    checks: list[Any]
    changed: int
    trial: str | None
    rejected: Any

    def __init__(self, engine: Any, most_atoms: int, cache_F: float, cache_nu: float) -> None:
        self.engine = engine
        self.most_atoms = most_atoms
        self.options = cache_F, cache_nu
        surrogate = engine.surrogate
        layout = surrogate.outputs.layout
        # where blocks have a Gram matrix a visit costs as much as all labels of a few of them, and
        # a step that is best for its block wastes none
        is_kernel = surrogate.has_block_step and engine.features.weight_norm() is None
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
    def kind(self) -> Step:
        """The `Step` of the next pass."""
        steps = {LINE_SEARCH: Step.LINE_SEARCH, EXACT: Step.BLOCK}
        return steps.get(self.name, Step.PAIRWISE)

    def state(self) -> dict[str, Any]:
        """All that later choices depend on, for `restore`: JSON in an array of bytes."""
        values = {name: value for name, value in vars(self).items() if name != "engine"}
        return {"json": np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)}

    def restore(self, state: dict[str, Any]) -> None:
        """Bring back what `state` gave; the engine holds the active sets already."""
        values = json.loads(state["json"].tobytes())
        if values.keys() != vars(self).keys() - {"engine"}:
            raise ValueError("the policy's state is of another version.")
        if values["name"] not in (LINE_SEARCH, EXACT, PAIRWISE, CACHED):
            raise ValueError(f"there is no policy {values['name']!r:.40}.")
        vars(self).update(values)

    def begin(self) -> None:
        """A pass begins."""
        self._before = self.engine.n_visits, self.engine.oracle_calls
        if self.keeps_atoms and self.engine.sets is None:
            self._use(self.name)

    def end(self) -> None:
        """The pass has ended: count its work."""
        n_visits = self.engine.n_visits - self._before[0]
        n_calls = self.engine.oracle_calls - self._before[1]
        atoms = self.atoms_cost if self.name in (PAIRWISE, CACHED) else 0.0
        self.n_passes += 1
        self.work += n_visits * (self.visit_cost + atoms) + n_calls * self.oracle_cost

    def told(self, gap: FloatArray) -> None:
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
            # gaps fall ever more slowly: what was tried may be better than what is left
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
        """By how much the logarithm of the gap fell between two checks, to compare two policies.

        For a multiply-add; or for a unit of the logarithm of all work, where line searches are
        one of the two: as their gaps fall like 1 / work^r, that is r early and late.
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
