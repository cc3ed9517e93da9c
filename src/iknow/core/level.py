"""Levels: one number per prediction, one path through all settings.

Reference samples, held out of training, show what is ordinary. A voice gives each sample a value,
the higher the better, and ranks it: u = the share of reference samples whose value is at most as
high. In a layer three voices may speak,

    nearness:     -d_g          is the believed class near?
    clarity:      d_¬g / d_g    is every other class clearly farther away?
    familiarity:  -r_10         is anything near, of whatever class?

and for the model as a whole its own confidence. The first two and the confidence say what a sample
is; familiarity says whether anything like it was seen. A voice has a budget τ, how much of ordinary
data it may hold back: it says min(1, u / τ), and the level of a prediction is the least that any
voice says. Those at level >= α are exactly the ones whose confidence reaches the quantile at α τ of
the reference samples and that are IK under `RelativeBall` with, in every layer,

    radius = the largest d_g that at least α τ of the reference samples reach or exceed
    ratio  = just below the smallest ratio that at least α τ of them do not exceed
    seen   = the largest r_10 that at least α τ of them reach or exceed

so the settings of all layers move together along one path, and IK only shrinks as α grows. Where a
voice has no budget it is silent: the radius is inf, the ratio 0, seen inf. No label is needed. The
ranks are conformal p-values, but for the +1 that counts the prediction itself: how many of n
reference samples are at least as strange as an ordinary one is 0, 1, ... or n, each with
probability 1 / (n + 1).

Never IK, and at level 0: a believed class without enough samples (d_g = inf).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.quorum import ONE, Contrast, Quorum, check_quorum
from iknow.core.text import names
from iknow.errors import InputError

NEARNESS, CLARITY, FAMILIARITY = "nearness", "clarity", "familiarity"
CONFIDENCE = "confidence"
LARGEST = float(np.finfo(np.float64).max)
IN_LAYERS = (NEARNESS, CLARITY, FAMILIARITY)
RANGES = {NEARNESS: (-np.inf, 0.0), CLARITY: (0.0, np.inf), FAMILIARITY: (-np.inf, 0.0)}
RANGES[CONFIDENCE] = (-np.inf, np.inf)
"""The lowest and the highest value that each voice can have."""
NEIGHBORS = 10
"""Familiar is what has so many training samples near, so that a few strange ones do not count."""


@dataclass(frozen=True, eq=False)
class Voice:
    """One measure of a sample, ranked among reference samples."""

    name: str  # what it measures: "nearness", "clarity", "familiarity" or "confidence"
    layer: str | None  # where; None for the model as a whole
    reference: Floats  # its values of n reference samples, ascending, of shape (n,)
    budget: float = 1.0  # the share of ordinary data that it may hold back at most, in (0, 1]

    def __post_init__(self) -> None:
        if not 0 < self.budget <= 1:
            raise InputError(f"the budget of a voice must lie in (0, 1]; got {self.budget}")
        if self.name not in RANGES or (self.name == CONFIDENCE) != (self.layer is None):
            raise InputError(f"a voice must be one of {names(RANGES)} in its place; got {self}")
        (low, high), values = RANGES[self.name], self.reference
        ascends = values.ndim == 1 and (values[1:] >= values[:-1]).all()  # ranks are counted so
        if not (ascends and ((values >= low) & (values <= high)).all()):
            raise InputError(
                f"the reference of {self} must be ascending numbers from {low:g} to {high:g}, none "
                "NaN"
            )

    def __str__(self) -> str:
        return self.name if self.layer is None else f"{self.name} in {self.layer}"

    def at(self, level: float) -> float:
        """The smallest value with which a sample reaches a level."""
        # The smallest count for which `says`, with its rounding, reaches the level.
        shares = self.says(np.arange(len(self.reference) + 1))
        count = max(1, int(np.searchsorted(shares, level, side="left")))
        return float(self.reference[count - 1])

    def says(self, count: Ints) -> Floats:
        """min(1, u / τ), where `count` reference samples have at most the value: in [0, 1]."""
        return np.minimum(count / len(self.reference) / self.budget, 1.0)


@dataclass(frozen=True, eq=False)
class Levels:
    """A path through all settings, fixed by what voices say about the same reference samples."""

    voices: tuple[Voice, ...]  # layer by layer, in the order of `RANGES`, confidence last
    quorum: Quorum = ONE  # of the evidence that was ranked
    from_probabilities: bool = False  # whether the model's scores are, for `log_odds`
    views: tuple[str, ...] = ()  # of the samples, over which the confidence is averaged, by kind

    def __post_init__(self) -> None:
        check_quorum(self.quorum)
        speakers = [(voice.layer, voice.name) for voice in self.voices]
        if len(set(speakers)) < len(speakers) or not self.layers:
            raise InputError(
                "levels need each voice at most once, and at least one in a layer; got "
                f"{names(map(str, self.voices))}"
            )
        sizes = {len(voice.reference) for voice in self.voices}
        if len(sizes) != 1 or 0 in sizes:
            raise InputError(
                "levels need at least one reference sample, the same ones for every voice; got "
                f"{sorted(sizes)}"
            )

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layers in which voices speak, in order."""
        return tuple(dict.fromkeys(v.layer for v in self.voices if v.layer is not None))

    @cached_property
    def hears_model(self) -> bool:
        """Whether the model's confidence is a voice."""
        return any(voice.layer is None for voice in self.voices)

    def __str__(self) -> str:
        """What each voice may hold back, such as "confidence 1; in table: nearness 0.07"."""
        places = dict.fromkeys(voice.layer for voice in reversed(self.voices))
        said = []
        for place in places:
            budgets = [f"{v.name} {v.budget:.2g}" for v in self.voices if v.layer == place]
            said.append(("" if place is None else f"in {place}: ") + ", ".join(budgets))
        return "; ".join(said)

    @property
    def n_samples(self) -> int:
        """The number of reference samples."""
        return len(self.voices[0].reference)

    def only(self, layers: Collection[str]) -> Levels | None:
        """The path through some of the layers; None if it goes through none of them."""
        kept = tuple(v for v in self.voices if v.layer is None or v.layer in layers)
        return replace(self, voices=kept) if any(v.layer is not None for v in kept) else None

    def ranks(self, evidence: Mapping[str, Contrast], confidence: Floats | None) -> Floats:
        """What each voice says about n samples, of shape (n, n_voices); the level is the smallest.

        confidence: `log_odds` of shape (n,), needed if it is a voice.
        """
        if confidence is None and self.hears_model:
            raise InputError("the model's confidence is a voice on this path: give it too")
        columns: list[Floats] = []
        for voice in self.voices:
            if voice.layer is not None:
                values = value_of(voice.name, evidence[voice.layer])
                never = np.isposinf(evidence[voice.layer].own)
            elif confidence is not None:
                values, never = confidence, np.zeros(len(confidence), dtype=bool)
            said = voice.says(np.searchsorted(voice.reference, values, side="right"))
            columns.append(np.where(never, 0.0, said))
        return np.column_stack(columns)

    def by_layer(self, said: Floats) -> Floats:
        """The level in each layer alone, of shape (n, n_layers), from what `ranks` returned."""
        places = [[v.layer == layer for v in self.voices] for layer in self.layers]
        return np.column_stack([said[:, place].min(axis=1) for place in places])

    def without_model(self, said: Floats) -> Floats:
        """The level as the layers alone have it, of shape (n,), from what `ranks` returned; 0 where
        any voice says 0.
        """
        return np.where(said.min(axis=1) > 0, self.by_layer(said).min(axis=1), 0.0)

    def at(self, level: float) -> tuple[dict[str, dict[str, float]], float]:
        """The parameters of `RelativeBall` by layer at which exactly the samples of at least this
        level are IK, and the least confidence, -inf if that is no voice.
        """
        if not 0 < level <= 1:
            raise InputError(f"a level must lie in (0, 1]; got {level}")
        least = {(voice.layer, voice.name): voice.at(level) for voice in self.voices}
        # IK needs d_¬g > ratio · d_g, and the sample at the quantile itself is IK.
        settings = {
            layer: {
                "radius": abs(least.get((layer, NEARNESS), -np.inf)),
                "ratio": float(np.nextafter(least.get((layer, CLARITY), 0.0), 0.0)),
                "seen": abs(least.get((layer, FAMILIARITY), -np.inf)),
            }
            for layer in self.layers
        }
        # Below inf, which JSON lacks, no confidence is as large.
        return settings, min(least.get((None, CONFIDENCE), -np.inf), LARGEST)


def value_of(voice: str, contrast: Contrast) -> Floats:
    """The values of a voice in a layer about n samples, of shape (n,)."""
    if voice == NEARNESS:
        return -contrast.own
    if voice == CLARITY:
        return least_ratio(contrast.own, contrast.other)
    return -contrast.neighbor_distance(NEIGHBORS)


def least_ratio(own: Floats, other: Floats) -> Floats:
    """The least number whose product with `own` reaches `other`, as float64 rounds it.

    0 where any ratio does, as the other distance is 0 or the own one inf; inf where none does.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        quotient = other / own
        below = np.nextafter(quotient, 0)
        least = np.where(quotient * own >= other, quotient, np.nextafter(quotient, np.inf))
        least = np.where(below * own >= other, below, least)
    least = np.where((other == 0) | np.isinf(own), 0.0, least)
    return np.where(np.isinf(other), np.inf, least)  # a class without samples is never reached


def are_probabilities(scores: Floats) -> bool:
    """Whether scores of shape (n, n_classes) are probabilities: no log-odds sum to 1 every time."""
    valid = scores[np.isfinite(scores).all(axis=1)]
    normalized = np.allclose(valid.sum(axis=1), 1.0, atol=1e-3)
    return bool(len(valid) and (valid >= 0).all() and normalized)


def log_odds(scores: Floats, belief: Ints, from_probabilities: bool) -> Floats:
    """How sure a model is of its belief, log(p / (1 - p)), of shape (n,); -inf without a belief.

    scores: of shape (n, n_classes), probabilities or their logarithms up to a constant, as a
    softmax takes them. Unlike the probability itself, the result does not saturate at 1. It is
    rounded to single precision, as activations are, so that what ties also does in another copy of
    the model, such as an exported one, whose last bits differ: trees give many samples the same.
    """
    rows = np.arange(len(belief))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        logs = np.log(np.maximum(scores, 0)) if from_probabilities else np.array(scores, np.float64)
        own = logs[rows, belief].copy()
        logs[rows, belief] = -np.inf
        highest = logs.max(axis=1)
        shifted = np.where(np.isfinite(highest), highest, 0.0)
        odds = own - (shifted + np.log(np.exp(logs - shifted[:, None]).sum(axis=1)))
        odds = odds.astype(np.float32).astype(np.float64)
    return np.where((belief < 0) | np.isnan(odds), -np.inf, odds)


def softmax(scores: Floats) -> Floats:
    """Probabilities of shape (n, n_classes) from log-odds up to a constant; an infinite one wins.

    Examples:
        >>> softmax(np.array([[0.0, np.log(3)], [np.inf, 0.0]]))
        array([[0.25, 0.75],
               [1.  , 0.  ]])
    """
    highest = scores.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - highest)
    weights = np.where(np.isinf(highest), scores == highest, weights)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
