"""Distances for and against: the whole method as points in a plane.

All that a layer says about a sample lies in two distances: d_g to the nearest training sample of
the believed class, and d_¬g to the nearest of any other. A rule cuts this plane into what is known,
what may be known and what is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Codes, Floats
from iknow.core.evidence import distances_for_and_against
from iknow.core.neighborhood import Neighborhood
from iknow.evaluation.curves import check_layer
from iknow.explain.assessment import Assessment


@dataclass(frozen=True, eq=False)
class EvidenceScatter:
    """Each sample's distances in one layer, and what all layers together let be asserted about it.

    own, other: d_g and d_¬g, of shape (n,); inf where there is no such training sample, and for
    both where a sample is not finite. assertion: an `Assertion` each, of shape (n,).
    neighborhood: the layer's rule, which draws the lines.
    """

    layer: str
    neighborhood: Neighborhood
    own: Floats
    other: Floats
    assertion: Codes


def evidence_scatter(assessment: Assessment, layer: str | None = None) -> EvidenceScatter:
    """The distances for and against every belief in one layer.

    layer: may be left out if there is only one. With several layers a sample may be less known than
    its place here says, as another layer has a say as well.
    """
    layer = check_layer(assessment, layer)
    own, other = distances_for_and_against(assessment.evidence[layer], assessment.belief_codes)
    return EvidenceScatter(
        layer=layer,
        neighborhood=assessment.neighborhoods[layer],
        own=np.where(assessment.invalid, np.inf, own),
        other=np.where(assessment.invalid, np.inf, other),
        assertion=assessment.assertion,
    )
