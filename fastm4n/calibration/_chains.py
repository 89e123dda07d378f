"""What is calibrated of taggers: scores, marginals and true labels of the sequences that are given.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.calibration._base import unwrapped
from fastm4n.estimators.chain import SequenceTagger
from fastm4n.inference import sum_product
from fastm4n.tasks.chain_input import as_labels, distinct
from fastm4n.tasks.chain_predictions import ChainDecoder
from fastm4n.tasks.parameters import warn_of_unknown


class FittedTagger:
    """A fitted tagger, found in whatever is around it.

    Attributes
    ----------
    tagger : SequenceTagger
    temperature : float or None
        What scores are divided by to be those of probabilities; None where they are of margins.
    classes : ndarray of shape (n_labels,)
    """

    def __init__(self, estimator):
        given, self.temperature, self._transformers = estimator, None, []
        while True:
            estimator, transformers = unwrapped(estimator)
            self._transformers += transformers
            if not hasattr(type(estimator), "calibrate"):
                break
            check_is_fitted(estimator)
            if not hasattr(estimator, "calibrated_temperature_"):
                break
            self.temperature = estimator.calibrated_temperature_
            estimator = estimator.estimator_
        if not isinstance(estimator, SequenceTagger):
            raise TypeError(
                "estimator must be a SequenceTagger, or a pipeline, a search or a CalibratedTagger "
                f"with one inside; got {type(given).__name__}.")
        check_is_fitted(estimator)
        self.tagger, self.classes = estimator, estimator.classes_
        if self.temperature is None and estimator.surrogate == "log":
            self.temperature = float(estimator.temperature)

    def sequences(self, X, nodes_suffice=False):
        """X as the tagger takes it, after the transformers and checked, and what decodes it.

        The decoder is one with `chains`, but where marginals of positions suffice.
        """
        for transformer in self._transformers:
            X = transformer.transform(X)
        X, decoder = self.tagger._prepare(X, None)
        if not nodes_suffice and type(decoder) is not ChainDecoder:
            raise ValueError(
                "temperatures, margins and spans are of taggers in whose chains a label depends on "
                "its neighbours only: give one of order 1, without constraints. A ConformalTagger "
                "of others needs surrogate='log', nonconformity='lac' or 'aps', and no spans.")
        return X, decoder

    def nodes(self, decoder):
        """Marginals of the labels at all positions, (n_tokens, n_labels), at the temperature."""
        if type(decoder) is not ChainDecoder:
            return decoder.nodes(self.tagger.allowed_transitions)
        rows = [np.zeros((0, self.classes.size))]
        rows += [
            self.marginals(unary, pairwise)[0] for _, unary, pairwise in self.chains(decoder)]
        return np.concatenate(rows)

    def chains(self, decoder):
        """Number, unary and pairwise scores of each sequence that is not empty.

        Transitions that the tagger may not make score -inf.
        """
        return decoder.chains(self.tagger.allowed_transitions)

    def marginals(self, unary, pairwise):
        """Node and edge marginals at the temperature."""
        nodes, edges, _ = sum_product(unary / self.temperature, pairwise / self.temperature)
        return nodes, edges

    def truth(self, y, X):
        """Numbers of the true labels of all positions, -1 with a warning for labels unknown."""
        labels = as_labels(y, X, None)
        return codes_of(labels, self.classes), labels


def codes_of(labels, classes):
    """Numbers of a list of labels, -1 with a warning for those that are not in classes."""
    distinct(labels)  # refuses what is not hashable
    where = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.fromiter((where.get(label, -1) for label in labels), np.intp, len(labels))
    if (codes < 0).any():
        warn_of_unknown([labels[t] for t in np.flatnonzero(codes < 0)], classes, stacklevel=6)
    return codes
