"""Distances for and against: the whole method as points in a plane.

Two distances hold all that a layer says about a sample: d_g to the nearest training sample of the
believed class, and d_¬g to the nearest of any other; with a quorum (`iknow.core.quorum`), to the
samples that complete it. A rule divides this plane into IK, IMK, IDK.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Codes, Floats
from iknow.core.evidence import distances_for_and_against
from iknow.core.rule import Rule
from iknow.evaluation.curves import check_layer
from iknow.explain.assessment import Assessment


@dataclass(frozen=True, eq=False)
class EvidenceScatter:
    """Each sample's distances in one layer, and its assertion by all layers together.

    Both distances are inf where a sample is not finite.

    Attributes:
        layer: The layer that the distances are measured in.
        rule: The layer's rule, which draws the lines.
        own: d_g, of shape (n,); inf where the class has no training sample.
        other: d_¬g, of shape (n,); inf where no other class has a training sample.
        assertion: One `Assertion` per sample, of shape (n,).
    """

    layer: str
    rule: Rule
    own: Floats
    other: Floats
    assertion: Codes


def evidence_scatter(assessment: Assessment, layer: str | None = None) -> EvidenceScatter:
    """Collect the distances for and against every belief in one layer.

    With several layers a sample may be less known than its position here suggests, because every
    layer has a say.

    Args:
        assessment: What `assess` returned for n samples.
        layer: Name of the layer; optional if there is only one.

    Examples:
        >>> points = evidence_scatter(a, "input")
        >>> print(f"{(points.own < points.other).mean():.2f}")
        0.97
    """
    layer = check_layer(assessment, layer)
    own, other = distances_for_and_against(assessment.weighed[layer], assessment.belief_codes)
    return EvidenceScatter(
        layer=layer,
        rule=assessment.neighborhoods[layer],
        own=np.where(assessment.invalid, np.inf, own),
        other=np.where(assessment.invalid, np.inf, other),
        assertion=assessment.assertion,
    )
