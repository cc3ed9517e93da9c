"""Scores: what an alarm watches of an assessment, in one place for reference and stream.

With levels (`iknow.core.level`) these are the scores. Rules without levels leave the assertion: IDK
scores 0, IMK 1/2 and IK 1, and in a layer the assertion that it alone would make. An INVALID sample
scores 0. Validation data holds none, so a stream with INVALID samples is unlike it, and a few of
them are evidence of a change.
"""

from __future__ import annotations

from iknow.core.arrays import Floats, Ints
from iknow.explain.assessment import Assessment


def watch_scores(assessment: Assessment) -> tuple[Floats, Ints, Floats]:
    """What `DriftAlarm.update` takes of an `assessment`: levels, beliefs and levels by layer.

    Returns:
        Arrays of shape (n,), (n,) and (n, n_layers), the layers as `watched_layers` orders them.

    Examples:
        >>> levels, beliefs, by_layer = watch_scores(ec.assess(X))
        >>> by_layer.shape == (len(X), len(ec.layers_))
        True
    """
    answers = assessment.answers
    return answers.watched, answers.belief, answers.watched_by_layer


def watched_layers(assessment: Assessment) -> tuple[str, ...]:
    """The layers that `watch_scores` is about, in the order of its columns."""
    return assessment.answers.watched_layers
