"""Voices in words: what each voice finds about one sample, what IK needs, and which one decides.

A setting of `RelativeBall` and a least confidence ask as much as the voices do at the chosen level
(`iknow.core.level`), so the numbers told here are those that the assertion was made by. A voice
that is silent there, with an infinite radius or the ratio 0, is not told.

Which voice decides follows from the assertion: IDK is decided by nearness or familiarity, IMK by
clarity or, if that is enough, by the model's confidence, and IK by whichever is closest to failing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Reason, Reasons
from iknow.core.level import (
    CLARITY,
    CONFIDENCE,
    FAMILIARITY,
    NEARNESS,
    NEIGHBORS,
    Levels,
    least_ratio,
)
from iknow.core.text import name

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment

DECIDING = {
    Reason.EXTRAPOLATION: (NEARNESS, FAMILIARITY),
    Reason.OVERLAP: (CLARITY,),
    Reason.DOUBT: (CONFIDENCE,),
}
"""The voices that can be behind a reason; any voice behind the others."""
ORDINALS = ("", "", "second ", "third ", "fourth ", "fifth ")
FAILING = {NEARNESS: "too far", FAMILIARITY: "too far", CLARITY: "too near", CONFIDENCE: "too low"}
MOST_DIGITS = 8


@dataclass(frozen=True)
class Finding:
    """What a voice finds about one sample, and what IK needs.

    Attributes:
        voice: "nearness", "clarity", "familiarity" or "confidence".
        layer: Where it speaks; None for the confidence of the model.
        value: A distance; for clarity the ratio of two; for confidence a probability.
        limit: What IK needs: at most this distance, a larger ratio, at least this probability.
        holds: Whether that is so.
        fact: The same as a sentence.
        level: What the voice says, from 0 to 1; None without levels.

    Examples:
        >>> print(Finding("nearness", "input", 1.7, 1.2, False, "it is far"))
        nearness 1.7, too far (IK: 1.2 or less)
    """

    voice: str
    layer: str | None
    value: float
    limit: float
    holds: bool
    fact: str
    level: float | None = None

    @property
    def title(self) -> str:
        """The name of the voice and its layer."""
        return self.voice if self.layer is None else f"{self.voice} in {name(self.layer)}"

    def __str__(self) -> str:
        value, limit = tell_apart(self.value, self.limit)
        needed = f"above {limit}" if self.voice == CLARITY else f"{limit} or less"
        missed = "" if self.holds else f", {FAILING[self.voice]}"
        return f"{self.voice} {value}{missed} (IK: {needed})"


def find_voices(one: Assessment) -> tuple[Finding, ...]:
    """What the voices find about the one sample of `one`, in layers whose rule has levels."""
    if one.invalid[0]:
        return ()
    rules = one.neighborhoods
    found = [each for layer in one.evidence if rules[layer].by_level for each in _ask(one, layer)]
    if (least := one.least_confidence) > -np.inf:
        odds = float(one.confidence[0])
        value, limit = tell_apart(odds, least, tell_chance)
        whom = quoted(one) + ("" if one.over_views is None else ", on average over views,")
        fact = f"the model gives {whom} a probability of {value}; IK needs {limit} or more"
        chances = float(expit(odds)), float(expit(least))
        found.append(Finding(CONFIDENCE, None, *chances, odds >= least, fact))
    if one.levels is None:
        return tuple(found)
    speakers = ((each.layer, each.name) for each in one.levels.voices)
    said = dict(zip(speakers, one.said[0].tolist(), strict=True))
    return tuple(replace(each, level=said.get((each.layer, each.voice), 0.0)) for each in found)


def find_deciding(voices: tuple[Finding, ...], reason: Reason) -> Finding | None:
    """The voice that decides an assertion with a reason; None if none does."""
    able = [] if reason == Reason.UNCERTIFIED else list(voices)
    if reason in DECIDING:
        able = [v for v in able if v.voice in DECIDING[reason] and not v.holds]
    return min(able, key=lambda v: v.level or 0.0, default=None)


def find_weakest(path: Levels, said: Floats, reason: Reasons) -> Ints:
    """The voice that decides each assertion, positions on the path, of shape (n,).

    said: of shape (n, n_voices). reason: of shape (n,).
    """
    deciding = said.copy()
    for each, able in DECIDING.items():
        silent = [voice.name not in able for voice in path.voices]
        if not all(silent):  # with fixed rules that are not of the path it may be none of them
            deciding[np.ix_(np.asarray(reason) == each, silent)] = np.inf
    return np.asarray(deciding.argmin(axis=1))


def _ask(one: Assessment, layer: str) -> list[Finding]:
    """What each voice finds that speaks in a layer."""
    weighed, rule = one.weighed[layer], one.neighborhoods[layer]
    radius, ratio, seen = (getattr(rule, each) for each in ("radius", "ratio", "seen"))
    needed, against = rule.quorum
    own, belief = float(weighed.believed_distance()[0]), quoted(one)
    if own == np.inf:
        few = "no training sample" if needed == 1 else f"fewer than {needed} training samples"
        return [Finding(NEARNESS, layer, own, radius, False, f"there are {few} of {belief}")]
    found = []

    def measure(voice: str, value: float, most: float, sample: str) -> None:
        told, limit = tell_apart(value, most)
        fact = f"the {sample} is {told} away; IK needs {limit} or less"
        found.append(Finding(voice, layer, value, most, value <= most, fact))

    if radius < np.inf:
        measure(NEARNESS, own, radius, f"{nearest(needed)} training sample of {belief}")
    if ratio > 0:
        other_code = int(weighed.others_by_distance()[0, 0])
        other = float(weighed.class_distances[0, other_code])
        times = float(least_ratio(np.array([own]), np.array([other]))[0])
        value, limit = tell_apart(times, ratio)
        fact = f"the {nearest(against)} training sample of another class"
        if other == np.inf:
            fact = f"no other class has {against} training samples"
        else:
            whose = f"the {nearest(needed)}" if needed != against else "that"
            as_far = f", {value} times as far as" if 0 < times < np.inf else ", and"
            fact += f" (“{name(one.classes.tolist()[other_code])}”) is {other:.4g} away"
            fact += f"{as_far} {whose} of {belief} ({own:.4g}); IK needs more than {limit} times"
        found.append(Finding(CLARITY, layer, times, ratio, times > ratio, fact))
    if seen < np.inf:
        tenth = float(weighed.neighbor_distance(NEIGHBORS)[0])
        measure(FAMILIARITY, tenth, seen, "tenth nearest training sample, of whatever class,")
    return found


def quoted(one: Assessment) -> str:
    """The believed class of the one sample of `one`, in quotes."""
    belief = one.belief.tolist()[0]
    return "no class" if belief is None else f"“{name(belief)}”"


def nearest(rank: int) -> str:
    """A rank in words: "nearest", "third nearest"."""
    return f"{ORDINALS[rank] if rank < len(ORDINALS) else f'{rank}th '}nearest"


def tell_apart(
    value: float, limit: float, tell: Callable[[float, int], str] = "{0:.{1}g}".format
) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see which is larger, four at least."""
    for digits in range(4, MOST_DIGITS + 1):
        told = tell(value, digits), tell(limit, digits)
        if told[0] != told[1] or value == limit:
            break
    return told


def tell_chance(odds: float, digits: int = 4) -> str:
    """A probability by its log-odds; one near 1 with the digits of what is missing."""
    missing = float(expit(-odds))
    if missing < 1e-6:
        return f"1 - {missing:.{digits - 2}g}" if missing else "1"
    zeros = max(0, math.floor(-math.log10(missing)))
    return f"{1 - missing:.{zeros + digits - 2}f}"
