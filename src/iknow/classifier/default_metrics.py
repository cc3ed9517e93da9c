"""Default metrics: how distance is measured in a layer if the user does not say.

- **hidden**: `Cosine`. Networks tell classes apart by direction, and lengths vary with contrast and
  confidence. Dividing by the length removes one dimension of n: with fewer than 8 features that is
  too large a part of the layer, and the distance is Euclidean.
- **words**, or what a pipeline makes of a text: `Cosine`. A long text has more words than a short
  one about the same. A layer with more than 95% zeros counts as words.
- **output**: Euclidean. How large scores are is what they say.
- **leaves**: `Hamming`, whatever the rule. The numbers of leaves are names.
- **numbers**: `Gapped`, whatever the rule. Half of the activations are flags of missing values.
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

from typing import Literal

import numpy as np

from iknow.core.arrays import Floats32
from iknow.metrics import Cosine, Euclidean, Gapped, Hamming, Metric, Scaled
from iknow.metrics.hamming import LEAVES
from iknow.metrics.sklearn_parts import unwrap
from iknow.models.model import Model
from iknow.models.sklearn import SklearnModel
from iknow.models.table import NUMBERS, share_of_quieter_half

Role = Literal["input", "hidden", "output", "leaves", "numbers"]

FEWEST_DIRECTIONS = 8  # features of a layer that is measured by direction alone
LEAST_ZEROS = 0.95  # the share of zeros from which on a layer counts words
OWN_METRICS: dict[str, Metric] = {LEAVES: Hamming(), NUMBERS: Gapped()}
"""Roles whose activations mean nothing in any other metric."""
ALIKE_FROM = 0.1  # the share of the squared distance that the quieter half of the features makes up


def default_metric(
    role: Role, activations: Floats32, sample_shape: tuple[int, ...] | None = None
) -> Metric:
    """The metric, not fitted yet, for a layer with these training activations.

    role: see `role_of`. activations: of shape (n, n_features). sample_shape: of one input as the
    model takes it; None if unknown, and then only the numbers decide.
    """
    if role in OWN_METRICS:
        return OWN_METRICS[role]
    if role == "input" and (sample_shape == () or share_of_zeros(activations) >= LEAST_ZEROS):
        role = "hidden"
    if role == "hidden":
        return Cosine() if activations.shape[1] >= FEWEST_DIRECTIONS else Euclidean
    if role == "input" and (sample_shape is None or len(sample_shape) == 1):
        return Scaled() if share_of_quieter_half(activations) < ALIKE_FROM else Euclidean
    return Euclidean


def share_of_zeros(activations: Floats32) -> float:
    """How many of the numbers are 0, judged by at most a thousand samples."""
    some = activations[:: -(-len(activations) // 1000)]
    return 1.0 - np.count_nonzero(some) / max(1, some.size)


def usual_metric(
    model: Model,
    sample_shape: tuple[int, ...] | None,
    levels: bool,
    layer: str,
    activations: Floats32,
) -> Metric:
    """The metric of a layer of a model; see `default_metric`. Without levels it is the paper's."""
    role = role_of(layer, model)
    if not levels and role not in OWN_METRICS:
        return Euclidean
    return default_metric(role, activations, sample_shape)


def role_of(layer: str, model: Model) -> Role:
    """What a layer is to its model; what a pipeline's transformers return counts as input."""
    if isinstance(model, SklearnModel):
        steps, _ = unwrap(model.estimator)
        if layer == "input" or layer.partition(".")[0] in dict(steps):
            return "input"
        if layer in OWN_METRICS:
            return "leaves" if layer == LEAVES else "numbers"
        return "hidden" if layer.startswith("hidden") else "output"
    if layer in ("input", LEAVES):
        return "input" if layer == "input" else "leaves"
    return "output" if layer == "output" else "hidden"
