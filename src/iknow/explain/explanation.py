"""Explanation: one assertion with the training samples it rests on, layer by layer.

With a quorum (`iknow.core.quorum`) a layer names as many samples for and against the belief as it
asks for: the last of them completes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from iknow.cards import COLORS, MEANINGS, badge, card, paragraphs, table, text
from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import NO_EXEMPLAR
from iknow.core.level import CLARITY, CONFIDENCE, FAMILIARITY, NEARNESS
from iknow.core.quorum import ONE, Quorum
from iknow.core.rule import NO_REACH, reach_by_class
from iknow.core.slack import Slack, find_slack
from iknow.core.text import name, shorten
from iknow.explain.features import FeatureDifference
from iknow.explain.picture import (
    OF_TEXT,
    Features,
    Picture,
    Renderer,
    picture_at,
    picture_to_html,
    take_sample,
)
from iknow.explain.voices import Finding, find_deciding, tell_chance

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment

SENTENCES = {  # "enough" is what the quorum asks for: one sample, unless it is set
    Reason.KNOWN: "in every layer only the believed class has enough samples within reach",
    Reason.OVERLAP: "several classes have enough samples within reach in at least one layer",
    Reason.DISAGREEMENT: "each layer finds enough samples of one class within reach, but not of "
    "the same one",
    Reason.EXTRAPOLATION: "at least one layer has too few training samples within reach",
    Reason.CONTRADICTION: "other classes have enough samples within reach, the believed class has "
    "not",
    Reason.INVALID: "an activation is not finite, or the model gives no answer",
    Reason.UNCERTIFIED: "all else speaks for IK, but beliefs in this class have no certified "
    "accuracy",
    Reason.DOUBT: "all else speaks for IK, but the model's own confidence is below the threshold",
}
LEAST_TOLD, MOST_TOLD = 0.05, 3  # features in a sentence: of the distance at least, and how many
MOST_WORDS = 10
MOST_EXEMPLARS, LONGEST_SENTENCE = 4, 1000  # in JSON; and the one that decides
LONGEST_LINE = 160  # characters of a text
FAILED = {
    NEARNESS: "no training sample of the believed class is near enough",
    FAMILIARITY: "too little like it was seen in training",
    CLARITY: "another class is too near",
    CONFIDENCE: "the model itself is not sure enough",
}


@dataclass(frozen=True)
class Exemplar:
    """A training sample among the nearest of its class.

    Attributes:
        row: Its row in the training set.
        label: Its class.
        distance: Its distance from the assessed sample.
        picture: What it looks like, if you gave the training samples.
    """

    row: int
    label: Any
    distance: float
    picture: Picture | None = None

    def __str__(self) -> str:
        return f"#{self.row} ({name(self.label)}) at {self.distance:.4g}"

    @property
    def text(self) -> str:
        """The sample if it is a text, shortened."""
        if not isinstance(self.picture, Features) or self.picture.names != OF_TEXT:
            return ""
        return shorten(str(self.picture.values[0]), LONGEST_LINE)


@dataclass(frozen=True)
class LayerExplanation:
    """What one layer says about a sample.

    Attributes:
        layer: Name of the layer.
        samples_for: The nearest samples of the believed class, as many as the quorum asks for; the
            last one decides. Fewer if there are no more.
        samples_against: Likewise of another class, the first to complete its quorum.
        quorum: How many samples the belief and another class need within reach.
        reach: How far the rule reaches; None for not at all.
        support: Labels of the classes with enough samples within reach.
        margin: How far the layer is from no longer supporting the belief alone, or from doing so.
        slack: Which change of its radius would turn the assertion; None where voices speak.
        voices: What the voices find in this layer; none for a rule without levels.
        features: Those that matter most, of the sample and of the samples named; none where the
            layer's features say nothing to a person.
        unknown_words: Those of a text that training never had, if the text was given.
    """

    layer: str
    samples_for: tuple[Exemplar, ...]
    samples_against: tuple[Exemplar, ...]
    quorum: Quorum
    reach: float | None
    support: tuple[Any, ...]
    margin: float
    slack: Slack | None
    voices: tuple[Finding, ...] = ()
    features: tuple[FeatureDifference, ...] = ()
    unknown_words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(
            [
                f"{name(self.layer)}: {'; '.join(self.findings)}",
                *_lines("for", self.samples_for, self.quorum[0]),
                *_lines("against", self.samples_against, self.quorum[1]),
                *self._feature_lines(),
            ]
        )

    def to_dict(self, training: bool = True) -> dict[str, Any]:
        """Return the same as plain values for JSON, which lacks some numbers: None.

        `training`: whether to tell values of training samples.
        """

        def plain(exemplars: Sequence[Exemplar]) -> list[dict[str, Any]]:
            return [
                {"row": e.row, "label": name(e.label), "distance": finite(e.distance)}
                | ({"text": e.text} if e.text and training else {})
                for e in (*exemplars[:MOST_EXEMPLARS], *exemplars[MOST_EXEMPLARS:][-1:])
            ]

        return {
            "layer": name(self.layer),
            "findings": self.findings,
            "reach": None if self.reach is None else finite(self.reach),
            "limit": "others beyond" if self.voices else "reach",  # what the reach means
            "for": plain(self.samples_for),
            "against": plain(self.samples_against),
            "features": [each.to_dict(training) for each in self.features],
            "unknown_words": self.unknown_words,
        }

    @property
    def feature_headings(self) -> tuple[str, ...]:
        """The titles of the columns of `features`."""
        exemplars = (*self.samples_for, *self.samples_against)
        rows = (f"#{each.row} ({name(each.label)})" for each in exemplars)
        return ("feature", "here", *rows, "of the distance")

    def _feature_lines(self) -> list[str]:
        """The features as a table in text."""
        if not self.features:
            return []
        cells = [self.feature_headings, *(each.cells for each in self.features)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]

    @property
    def strange(self) -> str:
        """What of the sample is unlike training, in words; empty if that is not known."""
        if self.unknown_words:
            words = ", ".join(map(name, self.unknown_words[:MOST_WORDS]))
            return f"Never seen in training: {words}"
        most = [each for each in self.features if each.unseen or each.share >= LEAST_TOLD]
        if not most:
            return ""
        deciding = (self.samples_for or self.samples_against)[-1 if self.samples_for else 0]
        return f"Of the distance to #{deciding.row}: {', '.join(map(str, most[:MOST_TOLD]))}"

    @property
    def findings(self) -> tuple[str, ...]:
        """What its voices find, or what is within reach and what another radius would find."""
        if self.voices:
            return tuple(map(str, self.voices))
        return (self.finding, *([] if self.slack is None else [str(self.slack)]))

    @property
    def finding(self) -> str:
        """What is within reach, in words."""
        reach = "reach" if self.reach is None else f"the reach {self.reach:.4g}"
        nothing = "no training sample" if self.quorum == ONE else "too few samples of any class"
        return f"{' and '.join(map(name, self.support)) or nothing} within {reach}"

    @property
    def summary(self) -> str:
        """The same as a part of a sentence, with the nearest sample if none is within reach."""
        exemplars = (*self.samples_for, *self.samples_against)
        nearest = min(exemplars, default=None, key=lambda each: each.distance)
        missed = "" if self.support or nearest is None else f"; the nearest is {nearest}"
        return f"{name(self.layer)} finds {self.finding}{missed}"


@dataclass(frozen=True)
class Explanation:
    """Why one sample got its assertion; `Assessment.explain` makes it.

    Attributes:
        index: Position of the sample in the assessment.
        belief: The believed label; None if the model has no answer.
        assertion: IK, IMK or IDK.
        reason: Why.
        layers: What each layer says.
        voices: What all voices find, the model's confidence last; none for rules without levels.
        margin: The smallest margin of the layers.
        stability: The least number of training samples you must remove for an IK to be lost, and
            whether it is exact.
        changes: How many training samples may be added, removed or relabeled with the IK kept.
        level: How ordinary the prediction is, from 0 to 1; None without levels.
        least_level: Where IK starts; None likewise.
        confidence: That of the model, as log-odds; None likewise.
        probability: How likely the belief is right; None if no labels taught it.
        picture: What the sample looks like, if you gave the samples.
    """

    index: int
    belief: Any
    assertion: Assertion
    reason: Reason
    layers: tuple[LayerExplanation, ...]
    voices: tuple[Finding, ...]
    margin: float
    stability: tuple[int, bool]
    changes: int = 0
    level: float | None = None
    least_level: float | None = None
    confidence: float | None = None
    probability: float | None = None
    picture: Picture | None = None

    @property
    def deciding(self) -> Finding | None:
        """What the voice finds that decides; None if none does."""
        return find_deciding(self.voices, self.reason)

    @property
    def sentence(self) -> str:
        """The reason with what it rests on, as a sentence."""
        if (voice := self.deciding) is not None:
            said, part = "every voice agrees", "is closest to failing"
            if not voice.holds:
                said, part = FAILED[voice.voice], "decides"
            strange = [e.strange for e in self.layers if e.layer == voice.layer and not voice.holds]
            told = "".join(f". {each}" for each in strange if each)
            others = [v.title for v in self.voices if not v.holds and v != voice]
            more = f". Failing too: {', '.join(others)}" if others else ""
            return f"{said} ({voice.title} {part}): {voice.fact}{told}{more}"
        findings = [
            each.summary
            for each in self.layers
            if (self.reason != Reason.OVERLAP or len(each.support) > 1)
            and (self.reason != Reason.EXTRAPOLATION or not each.support)
            and not (self.reason == Reason.INVALID or self.voices)
        ]
        return SENTENCES[self.reason] + (f": {'; '.join(findings)}" if findings else "")

    @property
    def foundation(self) -> str:
        """How many training samples an IK rests on, and how many changes it stands, in words."""
        count, exact = self.stability
        rests = (
            f"rests on {'' if exact else 'at least '}{count} training "
            f"sample{'' if count == 1 else 's'}: without {'it' if count == 1 else 'them'} it "
            "would not be known"
        )
        if not self.changes:
            return rests
        are = "sample is" if self.changes == 1 else "samples are"
        return f"{rests}; it stands whatever {self.changes} {are} added, removed or relabeled"

    @property
    def standing(self) -> str:
        """The level, where IK starts, how likely the belief is right, and how likely the model says
        it is; nothing without levels.
        """
        if self.level is None or self.confidence is None:
            return ""
        p, chance = self.probability, tell_chance(self.confidence)
        start = "" if self.least_level is None else f" (IK from {self.least_level:.2g} on)"
        # Nothing is certain, so no estimate is rounded to 1.
        told = "over 0.999" if p is not None and p > 0.999 else f"{p or 0:.3g}"
        right = "" if p is None else f", right with probability {told}"
        return f"level {self.level:.2g}{start}, the model's probability {chance}{right}"

    def to_dict(self, training: bool = True) -> dict[str, Any]:
        """Return what it says as plain values for JSON; `training` as for a layer."""
        return {
            "sentence": shorten(self.sentence, LONGEST_SENTENCE),
            "decides": "" if self.deciding is None else self.deciding.title,
            "level": self.level,
            "least_level": self.least_level,
            "probability": self.probability,
            "chance": None if self.confidence is None else float(expit(self.confidence)),
            "layers": [layer.to_dict(training) for layer in self.layers],
        }

    def __str__(self) -> str:
        belief = "no belief" if self.belief is None else f"belief {name(self.belief)}"
        lines = [f"sample {self.index}: {self.assertion.name}, {belief}"]
        lines += [f"{self.reason.name}: {self.sentence}", *filter(None, [self.standing])]
        lines += [line for layer in self.layers for line in str(layer).splitlines()]
        lines += [self.foundation] if self.assertion == Assertion.IK else []
        return "\n  ".join(lines)

    def _repr_html_(self) -> str:
        belief = "none" if self.belief is None else text(self.belief)
        sample = "" if self.picture is None else picture_to_html(self.picture)
        foundation = self.foundation if self.assertion == Assertion.IK else ""
        said = [f"{capital(each)}." for each in (self.standing, foundation) if each]
        return card(
            f"<div>{badge(self.assertion)} {MEANINGS[self.assertion]}, sample {self.index}, belief "
            f"<b>{belief}</b></div>",
            f'<p style="margin:8px 0">{escape(capital(self.sentence))}.</p>',
            f'<div style="display:flex;flex-wrap:wrap;gap:8px 32px"><div>{sample}</div>',
            table(("layer", "for", "against", "finds"), map(_layer_row, self.layers)),
            "</div>",
            *(_feature_table(each) for each in self.layers if each.features),
            paragraphs(said),
            color=COLORS[self.assertion],
        )


def _lines(title: str, exemplars: Sequence[Exemplar], needed: int) -> list[str]:
    """Exemplars in a line, and how many there should be where there are fewer; texts in a line
    each.
    """
    if any(each.text for each in exemplars):
        return [f"  {title}", *(f"    {each}: {each.text}" for each in exemplars)]
    few = f" (of {needed} needed)" if 0 < len(exemplars) < needed else ""
    return [f"  {title:7}  {', '.join(map(str, exemplars)) or 'no sample'}{few}"]


def explain_layer(
    one: Assessment,
    layer: str,
    voices: tuple[Finding, ...],
    sample: Any,
    training: Any,
    renderer: Renderer | None,
) -> LayerExplanation:
    """What a layer says about the one sample of `one`.

    voices: what they find in it. sample: as it came. training: the same by row. None if not given.
    """
    evidence, weighed = one.evidence[layer], one.weighed[layer]
    rule, labels = one.neighborhoods[layer], one.classes.tolist()
    belief, ranked, rows = int(one.belief_codes[0]), evidence.distances[0], evidence.rows[0]
    # The other class that is the first to count as the reach grows; of classes with too few samples
    # ever to count, the nearest.
    codes = np.lexsort((ranked[:, 0], weighed.class_distances[0])).tolist()
    against = next((c for c in codes if c != belief and np.isfinite(ranked[c, 0])), None)

    def exemplars(code: int, most: int) -> tuple[Exemplar, ...]:
        nearest = zip(rows[code, :most].tolist(), ranked[code, :most].tolist(), strict=True)
        return tuple(
            Exemplar(row, labels[code], distance, picture_at(training, row, renderer))
            for row, distance in nearest
            if row != NO_EXEMPLAR
        )

    # A rule with a reach for each class reaches as far as that of the believed one.
    reaches = reach_by_class(rule, weighed)[0]
    reach = float(reaches.max() if belief == NO_BELIEF else reaches[belief])
    valid = bool(np.isfinite(ranked).any())
    extends = valid and reach != NO_REACH
    elsewhere = [mask for name, mask in one.supports.items() if name != layer]
    needed, contradicting = rule.quorum
    knowable = () if one.never_known[0] else None
    samples_for = () if belief == NO_BELIEF else exemplars(belief, needed)
    samples_against = () if against is None else exemplars(against, contradicting)
    features, unknown = tuple[FeatureDifference, ...](), tuple[str, ...]()
    if one.measured is not None and valid:
        shown = [each.row for each in (*samples_for, *samples_against)]
        raw = [sample, *(take_sample(training, row) for row in shown)]
        features = one.measured.compare(layer, shown, max(len(samples_for) - 1, 0), raw)
        unknown = one.measured.find_unknown(layer, sample)
    return LayerExplanation(
        layer=layer,
        samples_for=samples_for,
        samples_against=samples_against,
        quorum=rule.quorum,
        reach=reach if extends else None,
        support=tuple(labels[code] for code in np.flatnonzero(one.supports[layer][0])),
        margin=float(one.layer_margins[layer][0]),
        slack=find_slack(weighed, rule, elsewhere, belief, knowable)
        if valid and belief != NO_BELIEF and not voices
        else None,
        voices=voices,
        features=features,
        unknown_words=unknown,
    )


def _layer_row(layer: LayerExplanation) -> tuple[str, ...]:
    sides = (layer.samples_for, layer.samples_against)
    drawn = not layer.features  # else they stand side by side below
    shown = (_exemplars(e, n, drawn=drawn) for e, n in zip(sides, layer.quorum, strict=True))
    return (text(layer.layer), *shown, "<br>".join(map(escape, layer.findings)))


def _feature_table(layer: LayerExplanation) -> str:
    """The features that matter, what is marked in bold."""
    rows = []
    for each in layer.features:
        title, here, *cells, share = map(text, each.cells)
        bold = (f"<b>{c[:-1]}</b>" if m else c for c, m in zip(cells, each.marked, strict=True))
        rows.append((title, here, *bold, share))
    return f'<div style="overflow-x:auto">{table(layer.feature_headings, rows, "8px 0 0")}</div>'


def _exemplars(exemplars: Sequence[Exemplar], needed: int, *, drawn: bool) -> str:
    """Words, a text with its own, under the pictures in a row if they are drawn."""
    pictures = [e.picture for e in exemplars if drawn and e.picture is not None and not e.text]
    shown = "".join(map(picture_to_html, pictures))
    row = f'<div style="display:flex;flex-wrap:wrap;gap:4px">{shown}</div>'
    few = f"of {needed} needed" if 0 < len(exemplars) < needed else ""
    words = [escape(f"{e}: {e.text}" if e.text else str(e)) for e in exemplars] + [few]
    return (row if pictures else "") + ("<br>".join(filter(None, words)) or "no sample")


def finite(value: float) -> float | None:
    """A number that JSON can express; None for any other."""
    return float(value) if math.isfinite(value) else None


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]
