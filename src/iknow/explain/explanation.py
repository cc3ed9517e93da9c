"""Explanation: one assertion with the training samples it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iknow.core.assertion import Assertion, Reason
from iknow.core.text import name
from iknow.explain.layer import LayerExplanation, explain_layer, picture_at
from iknow.explain.picture import Picture, Renderer

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
    Reason.UNCERTIFIED: "only the believed class has enough samples within reach, but beliefs in "
    "it have no certified accuracy",
    Reason.DOUBT: "only the believed class has enough samples within reach, but the model's own "
    "confidence is below the threshold",
}


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
        changes: How many training samples may be added, removed or relabeled with the IK kept.
        level: How ordinary the prediction is, from 0 to 1; None without levels.
        weakest: What holds the level down, such as "clarity in hidden".
        picture: What the sample looks like, if you gave the samples.
    """

    index: int
    belief: Any
    assertion: Assertion
    reason: Reason
    layers: tuple[LayerExplanation, ...]
    margin: float
    stability: tuple[int, bool]
    changes: int = 0
    level: float | None = None
    weakest: str = ""
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
        """The level, and what holds it down, in words; nothing without levels."""
        if self.level is None:
            return ""
        held = f", held down by {name(self.weakest)}" if self.level < 1 else ""
        return f"level {self.level:.2g}{held}"

    def __str__(self) -> str:
        belief = "no belief" if self.belief is None else f"belief {name(self.belief)}"
        lines = [
            f"sample {self.index}: {self.assertion.name}, {belief}",
            f"  {self.reason.name}: {self.sentence}",
        ]
        lines += [f"  {self.standing}"] if self.standing else []
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
    leveled = one.levels is not None and not one.invalid[0]
    return Explanation(
        index=index,
        belief=one.belief.tolist()[0],
        assertion=one.assertion[0],
        reason=one.reason[0],
        layers=tuple(explain_layer(one, layer, training, renderer) for layer in one.evidence),
        margin=float(one.margin[0]),
        stability=(int(one.stability.at_least[0]), bool(one.stability.exact[0])),
        changes=int(one.stability.changes[0]),
        level=float(one.level[0]) if leveled else None,
        weakest=str(one.weakest[0]) if leveled else "",
        picture=picture_at(samples, index, renderer),
    )
