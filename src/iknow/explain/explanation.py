"""Explanation: one assertion with the training samples it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import NO_EXEMPLAR
from iknow.core.neighborhood import NO_REACH
from iknow.core.slack import Slack, find_slack
from iknow.core.text import name
from iknow.explain.picture import Picture, Renderer, picture_of, take_sample

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment

SENTENCES = {
    Reason.KNOWN: "in every layer all training samples within reach have the believed class",
    Reason.OVERLAP: "samples of several classes lie within reach in at least one layer",
    Reason.DISAGREEMENT: "each layer finds a single class within reach, but not the same one",
    Reason.EXTRAPOLATION: "at least one layer has no training sample within reach",
    Reason.CONTRADICTION: "samples lie within reach, but none of the believed class",
    Reason.INVALID: "an activation is not finite, or the model gives no answer",
    Reason.UNCERTIFIED: "all training samples within reach have the believed class, but beliefs in "
    "it have no certified accuracy",
    Reason.DOUBT: "all training samples within reach have the believed class, but the model's own "
    "confidence is below the threshold",
}


@dataclass(frozen=True)
class Exemplar:
    """The nearest training sample of one class.

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


@dataclass(frozen=True)
class LayerExplanation:
    """What one layer says about a sample.

    Attributes:
        layer: Name of the layer.
        nearest_for: The nearest sample of the believed class.
        nearest_against: The nearest sample of any other class.
        reach: How far the neighborhood extends; None for not at all.
        support: Labels of the classes within reach.
        margin: How far the layer is from no longer supporting the belief alone, or from doing so.
        slack: Which change of its radius would turn the assertion.
    """

    layer: str
    nearest_for: Exemplar | None
    nearest_against: Exemplar | None
    reach: float | None
    support: tuple[Any, ...]
    margin: float
    slack: Slack | None

    def __str__(self) -> str:
        reach = "none" if self.reach is None else f"{self.reach:.4g}"
        support = ", ".join(map(name, self.support)) or "nothing"
        lines = [
            f"{name(self.layer)}: reach {reach}, support {{{support}}}, margin {self.margin:.4g}",
            f"  for      {self.nearest_for or 'no sample'}",
            f"  against  {self.nearest_against or 'no sample'}",
        ]
        if self.slack is not None:
            lines.append(f"  turns    {self.slack}")
        return "\n".join(lines)

    @property
    def finding(self) -> str:
        """What the layer finds, in words."""
        reach = "reach" if self.reach is None else f"the reach {self.reach:.4g}"
        found = " and ".join(map(name, self.support)) or "no training sample"
        finding = f"{name(self.layer)} finds {found} within {reach}"
        exemplars = [e for e in (self.nearest_for, self.nearest_against) if e is not None]
        if self.support or not exemplars:
            return finding
        return f"{finding}; the nearest is {min(exemplars, key=lambda e: e.distance)}"


@dataclass(frozen=True)
class Explanation:
    """Why one sample got its assertion; `Assessment.explain` makes it.

    Attributes:
        index: Position of the sample in the assessment.
        belief: The believed label; None if the model has no answer.
        assertion: IK, IMK or IDK.
        reason: Why.
        layers: What each layer says.
        margin: The smallest margin of the layers.
        stability: The least number of training samples you must remove for an IK to be lost, and
            whether it is exact.
        picture: What the sample looks like, if you gave the samples.
    """

    index: int
    belief: Any
    assertion: Assertion
    reason: Reason
    layers: tuple[LayerExplanation, ...]
    margin: float
    stability: tuple[int, bool]
    picture: Picture | None = None

    @property
    def sentence(self) -> str:
        """The reason with what the layers found, as a sentence."""
        layers = self.layers
        if self.reason == Reason.OVERLAP:
            layers = tuple(layer for layer in layers if len(layer.support) > 1)
        elif self.reason == Reason.EXTRAPOLATION:
            layers = tuple(layer for layer in layers if not layer.support)
        elif self.reason == Reason.INVALID:
            layers = ()
        findings = "; ".join(layer.finding for layer in layers)
        return f"{SENTENCES[self.reason]}{': ' if findings else ''}{findings}"

    @property
    def foundation(self) -> str:
        """How many training samples an IK rests on, in words."""
        count, exact = self.stability
        return (
            f"rests on {'' if exact else 'at least '}{count} training "
            f"sample{'' if count == 1 else 's'}: without {'it' if count == 1 else 'them'} it "
            "would not be known"
        )

    def __str__(self) -> str:
        belief = "no belief" if self.belief is None else f"belief {name(self.belief)}"
        lines = [
            f"sample {self.index}: {self.assertion.name}, {belief}",
            f"  {self.reason.name}: {self.sentence}",
        ]
        lines += [f"  {line}" for layer in self.layers for line in str(layer).splitlines()]
        if self.assertion == Assertion.IK:
            lines.append(f"  {self.foundation}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from iknow.explain.html import to_html  # markup is for notebooks alone

        return to_html(self)


def explain_sample(
    one: Assessment, index: int, *, samples: Any, training: Any, renderer: Renderer | None
) -> Explanation:
    """Explain the one sample that `one` is about, at `index` among those that were assessed."""
    return Explanation(
        index=index,
        belief=one.belief.tolist()[0],
        assertion=one.assertion[0],
        reason=one.reason[0],
        layers=tuple(explain_layer(one, layer, training, renderer) for layer in one.evidence),
        margin=float(one.margin[0]),
        stability=(int(one.stability.at_least[0]), bool(one.stability.exact[0])),
        picture=_picture(samples, index, renderer),
    )


def explain_layer(
    one: Assessment, layer: str, training: Any, renderer: Renderer | None
) -> LayerExplanation:
    """What a layer says about the one sample of `one`. training: samples by row, for pictures."""
    evidence, neighborhood = one.evidence[layer], one.neighborhoods[layer]
    labels, belief = one.classes.tolist(), int(one.belief_codes[0])
    distances = evidence.class_distances[0]
    others = np.where(np.arange(len(labels)) == belief, np.inf, distances)
    # A rule with a radius for each class reaches as far as that of the believed one.
    reaches = np.broadcast_to(neighborhood.reach(evidence)[0], len(labels))
    reach = float(reaches.max() if belief == NO_BELIEF else reaches[belief])

    def exemplar(code: int) -> Exemplar | None:
        row = int(evidence.exemplars[0, code])
        if row == NO_EXEMPLAR:
            return None
        picture = _picture(training, row, renderer)
        return Exemplar(row, labels[code], float(distances[code]), picture)

    valid = bool(np.isfinite(distances).any())
    elsewhere = [mask for name, mask in one.supports.items() if name != layer]
    return LayerExplanation(
        layer=layer,
        nearest_for=None if belief == NO_BELIEF else exemplar(belief),
        nearest_against=exemplar(int(others.argmin())) if np.isfinite(others).any() else None,
        reach=reach if valid and reach != NO_REACH else None,
        support=tuple(labels[code] for code in np.flatnonzero(one.supports[layer][0])),
        margin=float(one.layer_margins[layer][0]),
        slack=find_slack(evidence, neighborhood, elsewhere, belief, one.knowable)
        if valid and belief != NO_BELIEF
        else None,
    )


def _picture(samples: Any, row: int, renderer: Renderer | None) -> Picture | None:
    sample = None if samples is None else take_sample(samples, row)
    return None if sample is None else picture_of(sample, renderer)
