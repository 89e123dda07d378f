"""Weights that a fit to other data goes on from, without the data that they were fitted to."""

import numpy as np

from fastm4n.surrogates._batches import scores_of

# examples for each new one that a model of unknown data has seen, and how much stronger the
# penalty of a change is under the margins, which go on until new examples are right
# (benchmarks/more_data.py)
SEEN, OF_MARGINS = 20.0, 3.0


class Prior:
    """Fitted weights from which a fit to other data goes on.

    The fit is one of their change: `features` score by the change, next to fixed scores of these
    weights.

    Parameters
    ----------
    estimator : estimator
        With `n_seen_`, fitted.
    names : tuple of str
        Its weights.
    fixed : tuple of str
        Fitted arrays that stay as they are.

    Attributes
    ----------
    weights, fixed : dict of str to ndarray
    n_features : int
    n_seen : float or None
        The sum of the weights of the examples that they were fitted to.
    """

    def __init__(self, estimator, names=(), fixed=()):
        self.weights, self.fixed = (
            {name: np.array(getattr(estimator, name)) for name in those}
            for those in (names, fixed))
        self.n_features, self.n_seen = estimator.n_features_in_, estimator.n_seen_

    def strengthened(self, alpha, total, is_auto, is_log):
        """alpha of the change of the weights, by the weights of old and new examples."""
        if self.n_seen is None:
            self.n_seen = SEEN * total
        # of all examples, to weigh against new ones as often as there are old ones
        ratio = (self.n_seen + total) / total
        return alpha * (ratio if is_auto else ratio**2) * (1.0 if is_log else OF_MARGINS)

    def check(self, task, common):
        """Refuse a fit that cannot change these weights."""
        taker, given = task.taker, common["n_features_in_"]
        if given != self.n_features:
            raise ValueError(
                f"X has {given} features, but {taker} is expecting {self.n_features} features as "
                "input.")
        what = task.unchangeable(self)
        if what is not None:
            raise ValueError(
                f"partial_fit goes on from the weights of a {taker} whose data are not there, and "
                f"does not support {what}: change the parameter, or fit to all data together.")
        for name, value in self.fixed.items():
            if not np.array_equal(value, common[name]):
                now, then = (
                    str(np.asarray(array).tolist())[:200] for array in (common[name], value))
                raise ValueError(
                    f"partial_fit goes on from the weights of a {taker} whose data are not there: "
                    f"{name} must stay {then}, got {now}. Fit to all data together.")

    def give(self, task, problem):
        """Make a problem one of the change of these weights."""
        features, layout = problem.features, problem.loss.outputs.layout
        problem.alpha = self.strengthened(
            problem.alpha, problem.blocks.total, isinstance(task.alpha, str),
            task.surrogate.name == "log")
        base = np.zeros(layout.n_numbers)
        task.put_weights(problem, {
            name: present for name, (_, present) in features.live().items()}, self.weights)
        scores_of(layout, features, base)
        features.clear()
        features.set_base(base, layout)
        problem.prior = self
