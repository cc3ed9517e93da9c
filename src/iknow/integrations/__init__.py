"""Integrations: what other tools need to keep and run a classifier of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import names
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.models.probe import Probe

SCORES = "scores"  # the input with a model's scores, if the classifier takes precomputed outputs
COLUMNS = ("belief", "assertion", "reason", "level", "probability")


def answers_of(classifier: EpistemicClassifier, inputs: Any) -> Any:
    """The `COLUMNS` for n samples as a `pandas.DataFrame`, without those that there are none of.

    inputs: a frame, an array, or arrays by name, as tools that serve models pass them. If the
    classifier takes precomputed outputs: arrays by name, `scores` and the activations by layer.
    """
    if isinstance(inputs, Mapping) and isinstance(classifier.model_, PrecomputedModel):
        if SCORES not in inputs:
            raise InputError(f"precomputed outputs need {SCORES!r}; got {names(inputs)}")
        inputs = inputs[SCORES], {name: each for name, each in inputs.items() if name != SCORES}
    elif takes_texts(classifier):  # which such tools put into a table of one column
        inputs = np.asarray(inputs).reshape(-1)
    elif hasattr(inputs, "iloc") and not hasattr(classifier, "feature_names_in_"):
        inputs = inputs.to_numpy()
    frame = classifier.assess(inputs).to_frame()
    frame = frame.astype({"assertion": object, "reason": object})  # JSON has no categories
    return frame[[name for name in COLUMNS if name in frame]]


def takes_texts(classifier: EpistemicClassifier) -> bool:
    """Whether a sample is one value, such as a text, and not a row of features."""
    probe = classifier.probe_
    return isinstance(probe, Probe) and np.ndim(probe.inputs) == 1
