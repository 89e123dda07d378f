"""Problems as plain data: what a fit minimises, whose examples it is made of, and what it leaves.

They pickle, and another process can solve them.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import flat
from fastm4n.solvers.base import State
from fastm4n.solvers.certificates import objective_at_zero


def _same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) for name, value in one.items())


@dataclass
class Blocks:
    """Which examples make up the blocks of a problem.

    Attributes
    ----------
    n_examples : int
    kept : ndarray of shape (n_kept,)
        Examples of non-zero weight.
    block_of, shares : ndarray of shape (n_kept,)
        The block of each of those, and what part of the block's weight is theirs.
    first : ndarray of shape (n_blocks,)
        An example of each block, as its place in `kept`.
    weights : ndarray of shape (n_blocks,)
        p_b > 0, summing to one.
    total : float
        The sum of the weights before they were divided by it.
    """

    n_examples: int
    kept: np.ndarray
    block_of: np.ndarray
    shares: np.ndarray
    first: np.ndarray
    weights: np.ndarray
    total: float

    @classmethod
    def of(cls, n_examples, kept, weights, first, block_weights, block_of):
        """Blocks of examples with these weights, the last three being what merging gives."""
        total = block_weights.sum()
        if first.size == kept.size:
            shares = np.broadcast_to(1.0, kept.shape)  # nothing is merged
        else:
            shares = weights / block_weights[block_of]
        if n_examples < 2**31:
            kept, block_of, first = (
                array.astype(np.int32) for array in (kept, block_of, first))
        return cls(
            n_examples, kept, block_of, shares, first, block_weights / total, float(total))

    @property
    def examples(self):
        """An example of each block."""
        return self.kept[self.first]

    def spread(self, rows):
        """A row for each example: the row of its block times its share of the weight."""
        of_examples = np.zeros((self.n_examples, rows.shape[1]))
        of_examples[self.kept] = self.shares[:, np.newaxis] * rows[self.block_of]
        return of_examples


@dataclass
class Problem:
    """The objective of a fit, and fitted attributes from a solution.

    A subclass has `fitted`.

    Attributes
    ----------
    loss, features
        As `solve` takes them, and ``blocks.weights``.
    blocks : Blocks
    common : dict
        Fitted attributes that do not depend on alpha.
    task : dict
        Data that an earlier fit must share for a warm start.
    """

    # the `Chunks` of data that are not in memory
    chunks: ClassVar[Any] = None
    # where the data come from: "memory", "folder", "calls" of `partial_fit` or "partitions"
    road: ClassVar[str] = "memory"
    # the value of the constant feature where the intercept is not penalised
    free_intercept = None
    # the share of the quadratic term in the penalty, and whether there are norms of groups
    modulus: ClassVar[float] = 1.0
    has_groups: ClassVar[bool] = False
    # the estimator, by whose parameters refusals say what is wrong
    owner: ClassVar[Any] = None

    loss: Any
    features: Any
    blocks: Blocks
    common: dict[str, Any]
    task: dict[str, Any]
    # whether no other fit starts from this one
    is_last = False

    @property
    def weights(self):
        return self.blocks.weights

    @property
    def solver(self) -> Any:
        """The only solver of this problem, None if there are several."""
        return None if self.chunks is None else self.chunks.solver

    @property
    def taker(self):
        """The class of the estimator, for errors."""
        return "these outputs" if self.owner is None else type(self.owner).__name__

    def said(self, *names):
        """These parameters as in the constructor, "surrogate='log', cost='zero_one'"."""
        given = {} if self.owner is None else self.owner.get_params()
        return ", ".join(
            f"{name}={reprlib.repr(given[name])}" for name in names if name in given)

    def outputs_in_words(self):
        """The outputs, with the oracle where there are several."""
        oracle = self.common.get("oracle_")
        return f"outputs of {self.taker}" + ("" if oracle is None else f" by oracle_={oracle!r}")

    def features_in_words(self):
        """The form of X."""
        kernel = getattr(self.owner, "kernel", "linear")
        X = getattr(self.features, "X", None)
        return (
            f"kernel={reprlib.repr(kernel)}" if kernel != "linear" else
            "a sparse X" if sparse.issparse(X) else f"the features of {self.taker}")

    def scale(self):
        """An upper bound of the objective at zero weights, to which tolerances are relative."""
        return objective_at_zero(self.loss, self.features, self.weights)

    def fitted(self, mu, alpha):
        """Fitted attributes that depend on alpha, `features` holding w.

        w is w(mu) where they do not hold weights. They are arrays, some of which may be views of
        what the features hold.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method `fitted`.")

    def fitted_by(self, solution, alpha):
        """`fitted` of what a solver has left."""
        return self.fitted(solution.mu, alpha)

    def drop_dual(self, solution):
        """Drop the dual point, unless fitted attributes depend on it."""

    def values(self):
        """Fitted attributes that are no arrays and depend on w, which `features` hold."""
        return {}

    def warm(self, solution, alpha):
        """Plain data from which a later fit with `warm_start` starts."""
        owner = np.full(self.blocks.n_examples, -1)
        owner[self.blocks.kept] = self.blocks.block_of
        return dict(
            task=self.task, owner=owner, layout=self.loss.outputs.layout,
            state=State(solution.state, **flat(
                "surrogate", self.loss.state() if self.loss.has_natural_step else None)),
            kept_under=self.loss.kept_under(),
        )

    def start(self, state, alpha):
        """The `State` to start from, by what `warm` gave, or None where it does not fit.

        For a smaller alpha the dual point moves towards phi(y), and w stays equal. For a larger
        alpha it stays, and w shrinks. Examples without a weight start from phi(y).
        """
        loss, found = self.loss, state["state"]
        fits = (
            state["owner"].size == self.blocks.n_examples
            and _same(state["task"], self.task)
            and not (loss.has_natural_step and (
                "surrogate/theta" not in found
                or not _same(state["kept_under"], loss.kept_under())))
        )
        if not fits:
            return None
        owners = state["owner"][self.blocks.examples]
        known = owners >= 0
        to = loss.outputs.layout.numbers(known)
        source = state["layout"].numbers(owners[known])
        mu = loss.outputs.truth()
        mu[to] = found["mu"][source]
        start = State(found.without("surrogate").without("concave"), mu=mu)
        if loss.has_natural_step:
            # the dual point goes with scores that are kept block by block
            natural = loss.state()
            natural["theta"][to] = found["surrogate/theta"][source]
            natural["is_first"][known] = found["surrogate/is_first"][owners[known]]
            loss.restore(natural)
            start["concave"] = np.where(known, found["concave"][owners], 0.0)
        return start
