"""Defaults: the metric of a layer if the user does not say, and where distances mean little.

Which metric it is follows from the role of the layer:

- **hidden** and **middle**: `Cosine`. Networks tell classes apart by direction, and lengths vary
  with contrast and confidence. With fewer than 8 features the length is too large a part of the
  layer, and the distance is Euclidean.
- **input** of words, or what a pipeline makes of a text: `Cosine`. A long text has more words than
  a short one about the same. A layer with more than 95% zeros counts as words.
- **output**: Euclidean. The size of a score is its meaning.
- **leaves** and **table**, whatever the rule: `Hamming` and `Table`. The number of a leaf and the
  flag of a gap are names, not quantities.
- **input** otherwise: `Scaled` for a table of unlike features, else Euclidean. A sample with more
  than one axis is no table, but one with one axis may be a flattened image, whose features share
  one unit. What tells them apart is the share of the squared distance between samples that the
  quieter half of the features makes up: a quarter or more in images, a fiftieth in such tables.

The paper's rules measure Euclidean distances. Where the quieter half makes up less than 1% of them,
a ball is blind to half of what the model may use. And activations are float32, with about 7 digits:
distances between timestamps may be mostly rounding. `warn_of_layers` warns of both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32
from iknow.errors import warn
from iknow.metrics.metric import Cosine, Euclidean, Hamming, Metric
from iknow.metrics.table import Scaled, Table, Whitened

Shape = tuple[int, ...]
SHORT_NAMES: dict[str, Metric] = {
    "cosine": Cosine(),
    "euclidean": Euclidean,
    "hamming": Hamming(),
    "scaled": Scaled(),
    "whitened": Whitened(),
}
OWN_METRICS: dict[str, Metric] = {"leaves": Hamming(), "table": Table()}  # no other makes sense
FEWEST_DIRECTIONS = 8  # features of a layer that is measured by direction alone
LEAST_ZEROS = 0.95  # the share of zeros from which on a layer counts words
ALIKE_FROM = 0.1  # of the squared distance, for the quieter half of the features
LEAST_SHARE = 0.01  # likewise: below it support is blind to them
TAILS = (5, 95)  # the percentiles that a spread lies between, without outliers and rare values
LARGEST_EXACT = 2.0**24  # float32 holds all integers up to here, but few timestamps, money and ids
STEPS_IN_SPREAD = 100  # how many float32 numbers the spread of a larger feature should contain
MOST_ROWS = 10_000  # enough samples to estimate a spread
MOST_NUMBERS = 1 << 24  # of wide layers, such as counts of words, fewer rows are taken


def default_metric(
    role: str, activations: Floats32, sample_shape: Shape | None = None, levels: bool = True
) -> Metric:
    """The metric, not fitted yet, for a layer with training activations of shape (n, n_features).

    sample_shape: of one input; None if unknown. levels: whether they choose the neighborhoods.
    """
    if role in OWN_METRICS:
        return OWN_METRICS[role]
    if not levels:
        return Euclidean
    some = activations[:: -(-len(activations) // 1000)]  # enough to see whether most are 0
    zeros = 1.0 - np.count_nonzero(some) / max(1, some.size)
    is_words = role == "input" and (sample_shape == () or zeros >= LEAST_ZEROS)
    if role in ("hidden", "middle") or is_words:
        return Cosine() if activations.shape[1] >= FEWEST_DIRECTIONS else Euclidean
    if role == "input" and (sample_shape is None or len(sample_shape) == 1):
        return Scaled() if share_of_quieter_half(activations) < ALIKE_FROM else Euclidean
    return Euclidean


def warn_of_layers(activations: Mapping[str, Floats32], *, raw: bool) -> None:
    """Warn of layers where distances mean little; raw: the user did not choose "input"."""
    share = share_of_quieter_half(activations["input"]) if raw and "input" in activations else 1.0
    if share < LEAST_SHARE:
        warn(
            f"the features have very different scales: half of them make up {100 * share:.2g}% of "
            "the squared distance between samples in the layer 'input', so support is blind to "
            "them. Put a scaler before it, make_pipeline(StandardScaler(), classifier), whose "
            "output then becomes the default layer; or pass metric=..., or layers=... to confirm "
            "'input'"
        )
    for layer, values in activations.items():
        if len(coarse := np.flatnonzero(are_coarse(values))):
            size = np.abs(values[:, coarse[0]]).max()
            warn(
                f"feature {coarse[0]} of layer {layer!r} has values near {size:.6g}, where float32 "
                f"has steps of {np.spacing(size):.2g}, too coarse for how little they vary "
                f"(features affected: {len(coarse)}); subtract an offset, for example with a "
                "StandardScaler before the model"
            )


def are_coarse(activations: Floats32) -> Bools:
    """Which features spread over too few numbers of float32, of shape (n_features,)."""
    low, high = _percentiles(activations)
    size = np.maximum(np.abs(low), np.abs(high))
    steps = np.spacing(size.astype(np.float32)).astype(np.float64)
    coarse: Bools = (size >= LARGEST_EXACT) & (high - low < STEPS_IN_SPREAD * steps)
    return coarse


def share_of_quieter_half(inputs: Floats32) -> float:
    """The share of the quieter half in the squared spreads of features that vary; 1 for one."""
    low, high = _percentiles(inputs)
    spreads = high - low
    squares = np.sort(spreads[spreads > 0]) ** 2
    return float(squares[: len(squares) // 2].sum() / squares.sum()) if len(squares) > 1 else 1.0


def _percentiles(inputs: Floats32) -> tuple[Floats, Floats]:
    step = max(-(-len(inputs) // MOST_ROWS), -(-inputs.size // MOST_NUMBERS))
    low, high = np.percentile(inputs[::step].astype(np.float64), TAILS, axis=0)
    return low, high
