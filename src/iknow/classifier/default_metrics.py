"""Default metrics: how distance is measured in a layer if the user does not say.

- **hidden**: `Cosine`. Networks tell classes apart by direction, and lengths vary with contrast and
  confidence. Dividing by the length removes one dimension of n: with fewer than 8 features that is
  too large a part of the layer, and the distance is Euclidean.
- **words**, or what a pipeline makes of a text: `Cosine`. A long text has more words than a short
  one about the same. A layer with more than 95% zeros counts as words.
- **output**: Euclidean. How large scores are is what they say.
- **leaves**: `Hamming`, whatever the rule. The numbers of leaves are names.
- **table**: `Gapped`, whatever the rule. Half of the activations are flags of missing values.
- **input**: `Scaled` for a table of unlike features, else Euclidean. A sample with more than one
  axis, such as an image or a series of measurements, is no table. A sample with one axis may still
  be a flattened image, whose features share one unit: scaled one by one, a pixel at the border that
  is hardly ever on would count as much as one in the middle, and noise on dead pixels more than
  either. What tells them apart is whether features spread alike: the quieter half of the features
  makes up 24 to 43% of the squared distance between samples in images (MNIST, digits, traffic
  signs) and series (ItalyPowerDemand, SyntheticControl), 18% in Iris, all in centimeters, and 2% or
  less in tables of unlike features (wine, breast cancer, Grid). Below 10% the louder half spreads
  over three times as far as the quieter, and features are scaled.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats32
from iknow.metrics import Cosine, Euclidean, Gapped, Hamming, Metric, Scaled
from iknow.models.model import Role
from iknow.models.scales import share_of_quieter_half

FEWEST_DIRECTIONS = 8  # features of a layer that is measured by direction alone
LEAST_ZEROS = 0.95  # the share of zeros from which on a layer counts words
OWN_METRICS: dict[Role, Metric] = {"leaves": Hamming(), "table": Gapped()}
"""Roles whose activations mean nothing in any other metric."""
ALIKE_FROM = 0.1  # the share of the squared distance that the quieter half of the features makes up


def default_metric(
    role: Role, activations: Floats32, sample_shape: tuple[int, ...] | None = None
) -> Metric:
    """The metric, not fitted yet, for a layer with these training activations.

    activations: of shape (n, n_features). sample_shape: of one input as the
    model takes it; None if unknown, and then only the numbers decide.
    """
    if role in OWN_METRICS:
        return OWN_METRICS[role]
    if role == "input" and (sample_shape == () or share_of_zeros(activations) >= LEAST_ZEROS):
        role = "hidden"
    if role in ("hidden", "middle"):
        return Cosine() if activations.shape[1] >= FEWEST_DIRECTIONS else Euclidean
    if role == "input" and (sample_shape is None or len(sample_shape) == 1):
        return Scaled() if share_of_quieter_half(activations) < ALIKE_FROM else Euclidean
    return Euclidean


def share_of_zeros(activations: Floats32) -> float:
    """How many of the numbers are 0, judged by at most a thousand samples."""
    some = activations[:: -(-len(activations) // 1000)]
    return 1.0 - np.count_nonzero(some) / max(1, some.size)


def usual_metric(
    role: Role, activations: Floats32, sample_shape: tuple[int, ...] | None, *, levels: bool
) -> Metric:
    """The metric of a layer; see `default_metric`. Without levels it is the paper's."""
    if not levels and role not in OWN_METRICS:
        return Euclidean
    return default_metric(role, activations, sample_shape)
