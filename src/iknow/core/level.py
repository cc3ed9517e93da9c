"""Levels: one number per prediction, one path through all settings.

Reference samples, held out of training, show what is ordinary. In a layer let

    u = the share of reference samples whose d_g is at least as large         is it near?
    v = the share of reference samples whose ratio d_¬g / d_g is at most as large   is it clear?

The level of a prediction is the smallest u or v over its layers. Those at level >= α are exactly
the ones that are IK under `RelativeBall` with, in every layer,

    radius = the largest d_g that at least α of the reference samples reach or exceed
    ratio  = just below the smallest ratio that at least α of them do not exceed

so the settings of all layers move together along one path, and IK only shrinks as α grows. No label
is needed. u and v are conformal p-values but for the +1 of counting the prediction itself: an
ordinary one has k of n reference samples at least as strange with probability 1 / (n + 1) each.

Variations of the path: nearness may count for less, min(1, u / g) with 0 < g <= 1; clarity may be
left out; and the model's own confidence may be one more voice, by its rank.

Never IK, and at level 0: a believed class without enough samples (d_g = inf), and a contradiction
at distance 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.quorum import ONE, Contrast, Quorum
from iknow.errors import InputError


@dataclass(frozen=True, eq=False)
class Reference:
    """What is ordinary in one layer: d_g and ratios of n reference samples, each ascending."""

    own: Floats
    ratio: Floats


@dataclass(frozen=True, eq=False)
class Levels:
    """A path through all settings, fixed by reference samples."""

    layers: Mapping[str, Reference]
    quorum: Quorum = ONE  # that counted
    nearness: float = 1.0  # by how much nearness counts, g; 1 is as much as clarity
    clarity: bool = True  # whether the ratio of distances is a voice
    confidence: Floats | None = None  # of the reference samples, ascending, if that is a voice
    from_probabilities: bool = False  # whether the model's scores are probabilities, for `log_odds`

    def __post_init__(self) -> None:
        sizes = {len(array) for each in self.layers.values() for array in vars(each).values()}
        sizes |= set() if self.confidence is None else {len(self.confidence)}
        if len(sizes) != 1 or 0 in sizes:
            raise InputError(
                "levels need at least one reference sample, the same ones in every layer; got "
                f"{sorted(sizes)}"
            )
        if not 0 < self.nearness <= 1:
            raise InputError(f"nearness must lie in (0, 1]; got {self.nearness}")

    @property
    def n_samples(self) -> int:
        """The number of reference samples."""
        return len(next(iter(self.layers.values())).own)

    def only(self, layers: Iterable[str]) -> Levels | None:
        """The path through some of the layers; None if it goes through none of them."""
        kept = {layer: self.layers[layer] for layer in layers if layer in self.layers}
        return replace(self, layers=kept) if kept else None

    def voices(self) -> list[str]:
        """The names of all voices, in the order of `ranks`."""
        sides = ("nearness", "clarity") if self.clarity else ("nearness",)
        found = [f"{side} in {layer}" for layer in self.layers for side in sides]
        return found if self.confidence is None else [*found, "confidence"]

    def ranks(self, evidence: Mapping[str, Contrast], confidence: Floats | None) -> Floats:
        """What each voice says about n samples, of shape (n, n_voices); the level is the smallest.

        confidence: `log_odds` of shape (n,), needed if it is a voice.
        """
        columns: list[Floats] = []
        for layer, reference in self.layers.items():
            own, other = evidence[layer].own, evidence[layer].other
            never = np.isinf(own) | (other == 0)
            beyond = self.n_samples - reference.own.searchsorted(own, side="left")
            columns.append(np.where(never, 0.0, self._share(beyond, self.nearness)))
            if self.clarity:
                below = reference.ratio.searchsorted(least_ratio(own, other), side="right")
                columns.append(np.where(never, 0.0, self._share(below)))
        if self.confidence is not None:
            if confidence is None:
                raise InputError("the model's confidence is a voice on this path: give it too")
            columns.append(self._share(np.searchsorted(self.confidence, confidence, side="right")))
        return np.column_stack(columns)

    def by_layer(self, voices: Floats) -> Floats:
        """The level in each layer alone, of shape (n, n_layers), from what `ranks` returned."""
        n_sides = 2 if self.clarity else 1
        heard = voices[:, : n_sides * len(self.layers)]  # without the model's confidence
        found: Floats = heard.reshape(len(voices), len(self.layers), n_sides).min(axis=2)
        return found

    def at(self, level: float) -> tuple[dict[str, tuple[float, float]], float]:
        """The radius and ratio by layer at which exactly the samples of at least this level are IK,
        and the least confidence, -inf if that is no voice.
        """
        if not 0 < level <= 1:
            raise InputError(f"a level must lie in (0, 1]; got {level}")
        near, clear = self._count(level, self.nearness), self._count(level)
        settings = {}
        for layer, reference in self.layers.items():
            ratio = float(reference.ratio[clear - 1]) if self.clarity else 0.0
            # IK needs d_¬g > ratio · d_g, and the sample at the quantile itself is IK.
            below = float(np.nextafter(ratio, 0.0))
            settings[layer] = float(reference.own[self.n_samples - near]), below
        least = -np.inf if self.confidence is None else float(self.confidence[clear - 1])
        return settings, least

    def _share(self, count: Ints, weight: float = 1.0) -> Floats:
        return np.minimum(count / self.n_samples / weight, 1.0)

    def _count(self, level: float, weight: float = 1.0) -> int:
        """The least count whose share is at least the level, as `_share` rounds it."""
        shares = self._share(np.arange(self.n_samples + 1), weight)
        return max(1, int(np.searchsorted(shares, level, side="left")))


def refer(contrast: Contrast) -> Reference:
    """What is ordinary in a layer, given reference samples."""
    return Reference(np.sort(contrast.own), np.sort(least_ratio(contrast.own, contrast.other)))


def least_ratio(own: Floats, other: Floats) -> Floats:
    """The least number whose product with `own` reaches `other`, as float64 rounds it.

    0 where the other distance is 0, which any ratio reaches; inf where none does.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = other / own
        below = np.nextafter(quotient, 0)
        least = np.where(quotient * own >= other, quotient, np.nextafter(quotient, np.inf))
        least = np.where(below * own >= other, below, least)
    least = np.where(other == 0, 0.0, least)
    return np.where(np.isinf(other), np.inf, least)  # a class without samples is never reached


def are_probabilities(scores: Floats) -> bool:
    """Whether scores of shape (n, n_classes) are probabilities: no log-odds sum to 1 every time."""
    valid = scores[np.isfinite(scores).all(axis=1)]
    normalized = np.allclose(valid.sum(axis=1), 1.0, atol=1e-3)
    return bool(len(valid) and (valid >= 0).all() and normalized)


def log_odds(scores: Floats, belief: Ints, from_probabilities: bool) -> Floats:
    """How sure a model is of its belief, log(p / (1 - p)), of shape (n,); -inf without a belief.

    scores: of shape (n, n_classes), probabilities or their logarithms up to a constant, as a
    softmax takes them. Unlike the probability itself, the result does not saturate at 1.
    """
    rows = np.arange(len(belief))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(np.maximum(scores, 0)) if from_probabilities else np.array(scores, np.float64)
        own = logs[rows, belief].copy()
        logs[rows, belief] = -np.inf
        highest = logs.max(axis=1)
        shifted = np.where(np.isfinite(highest), highest, 0.0)
        odds = own - (shifted + np.log(np.exp(logs - shifted[:, None]).sum(axis=1)))
    return np.where((belief < 0) | np.isnan(odds), -np.inf, odds)
