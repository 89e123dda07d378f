"""Scores, marginals and true labels of sequences under a fitted tagger, and the spans in them."""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.calibration._base import unwrapped
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.inference import sum_product
from fastm4n.surrogates import as_surrogate
from fastm4n.tasks.chain_input import as_labels, codes_of
from fastm4n.tasks.chain_predictions import ChainDecoder


class FittedTagger:
    """The fitted tagger inside pipelines, searches and calibrated taggers.

    Attributes
    ----------
    tagger : SequenceTagger
    temperature : float or None
        Divisor that turns scores into log-probabilities. None if the model has no probabilities.
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
                f"with one inside, got {type(given).__name__}.")
        check_is_fitted(estimator)
        self.tagger, self.classes = estimator, estimator.classes_
        surrogate = as_surrogate(estimator.surrogate)
        if self.temperature is None and surrogate.name == "log":
            self.temperature = float(surrogate.temperature)

    def sequences(self, X, nodes_suffice=False):
        """X after the transformers and checks, and its decoder.

        The decoder has `chains`, unless the marginals of positions suffice.
        """
        for transformer in self._transformers:
            X = transformer.transform(X)
        decoder = self.tagger._decoder(X)
        if not nodes_suffice and type(decoder) is not ChainDecoder:
            raise ValueError(
                "temperatures, margins and spans need a tagger of order 1 without constraints. "
                "For other taggers a ConformalTagger needs surrogate='log', nonconformity='lac' or "
                "'aps', and a target other than 'spans'.")
        return decoder.X, decoder

    def nodes(self, decoder):
        """Marginals of the labels at all positions, (n_tokens, n_labels), at the temperature."""
        if type(decoder) is not ChainDecoder:
            return decoder.nodes()
        return self.rows(decoder, lambda *chain: self.marginals(*chain)[0])

    def rows(self, decoder, function):
        """function(unary, pairwise), an array (n_positions, n_labels), of all sequences."""
        none = np.zeros((0, self.classes.size))
        return np.concatenate([none, *(function(*chain) for _, *chain in decoder.chains())])

    def marginals(self, unary, pairwise):
        """Node and edge marginals at the temperature."""
        return sum_product(unary / self.temperature, pairwise / self.temperature)[:2]

    def truth(self, y, X):
        """Codes of the true labels at all positions, -1 with a warning if unknown, and labels."""
        labels = as_labels(y, X, None)
        return codes_of(labels, self.classes), labels
