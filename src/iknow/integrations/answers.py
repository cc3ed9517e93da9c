"""Answers: a classifier as tools that serve models call it, `predict(inputs)` to a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.core.text import names
from iknow.errors import InputError
from iknow.models.precomputed import PrecomputedModel
from iknow.models.probe import Probe

SCORES = "scores"
"""The input that holds a model's scores, if the classifier takes precomputed outputs."""
COLUMNS = ("belief", "assertion", "reason", "level")


class Answers:
    """A fitted classifier that answers in frames.

    Args:
        classifier: A fitted classifier that can assess.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> list(Answers(ec.tune(X_val, y_val)).predict(X_val[:3]))
        ['belief', 'assertion', 'reason', 'level']
    """

    def __init__(self, classifier: EpistemicClassifier) -> None:
        self.classifier = classifier

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return a `pandas.DataFrame` with a row for each of n samples.

        Its columns: `belief`, `assertion`, `reason`, and `level` if there are levels.

        Args:
            model_input: n samples: a frame, an array, or arrays by name. If the classifier takes
                precomputed outputs, arrays by name: `scores`, and the activations of each layer.
            params: Not used.
        """
        frame = self.classifier.assess(self._as_inputs(model_input)).to_frame()
        frame = frame.astype({"assertion": object, "reason": object})  # JSON has no categories
        return frame[[name for name in COLUMNS if name in frame]]

    def _as_inputs(self, model_input: Any) -> Any:
        by_name = isinstance(model_input, Mapping)
        if by_name and isinstance(self.classifier.model_, PrecomputedModel):
            if SCORES not in model_input:
                raise InputError(f"precomputed outputs need {SCORES!r}; got {names(model_input)}")
            layers = {name: each for name, each in model_input.items() if name != SCORES}
            return model_input[SCORES], layers
        named = hasattr(self.classifier, "feature_names_in_")
        is_frame = hasattr(model_input, "iloc") and hasattr(model_input, "to_numpy")
        if is_frame and not named:
            model_input = model_input.to_numpy()
        # Tools that serve models put texts into a table of one column.
        return np.asarray(model_input).reshape(-1) if takes_texts(self.classifier) else model_input


def takes_texts(classifier: EpistemicClassifier) -> bool:
    """Whether a sample is one value, such as a text, and not a row of features."""
    probe = classifier.probe_
    return isinstance(probe, Probe) and np.ndim(probe.inputs) == 1
