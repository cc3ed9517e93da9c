"""Answers: a classifier as tools that serve models call it, `predict(inputs)` to a frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iknow.classifier.epistemic import EpistemicClassifier

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
        if isinstance(model_input, Mapping) and SCORES in model_input:
            layers = {name: each for name, each in model_input.items() if name != SCORES}
            return model_input[SCORES], layers
        named = hasattr(self.classifier, "feature_names_in_")
        is_frame = hasattr(model_input, "iloc") and hasattr(model_input, "to_numpy")
        return model_input.to_numpy() if is_frame and not named else model_input
