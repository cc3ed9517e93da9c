"""Ensemble: several networks trained alike, their probabilities averaged.

Lakshminarayanan and others, "Simple and Scalable Predictive Uncertainty Estimation using Deep
Ensembles" (NeurIPS 2017). The average is a model of its own, with its own belief; `Softmax` scores
it by the maximum of the average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import log_softmax, logsumexp

from iknow.errors import InputError
from iknow.evaluation.peers.observed import Observed


def ensemble(members: Sequence[Observed]) -> Observed:
    """Average what several models say about the same samples.

    Args:
        members: Each model's observation of the samples, in the same order.

    Returns:
        The average: log-probabilities as logits, the class of the highest as belief, no hidden
        layer; inputs and labels of the first member.

    Examples:
        >>> bool((ensemble([test, test]).belief == test.belief).all())
        True
    """
    if not members:
        raise InputError("an ensemble needs at least one member; got none")
    shapes = {member.logits.shape for member in members}
    if len(shapes) > 1:
        raise InputError(f"members must have logits of the same shape; got {sorted(shapes)}")
    logs = np.stack([log_softmax(member.logits.astype(np.float64), axis=1) for member in members])
    mean = logsumexp(logs, axis=0) - np.log(len(members))
    return Observed(members[0].inputs, None, mean, mean.argmax(axis=1), members[0].labels)
