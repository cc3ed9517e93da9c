"""What one layer says about a sample: the training samples for and against the belief.

With a quorum (`iknow.core.quorum`) these are as many as it asks for: the last of them completes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.quorum import ONE, Quorum, Weighed
from iknow.core.rule import NO_REACH
from iknow.core.slack import Slack, find_slack
from iknow.core.text import name
from iknow.explain.picture import Picture, Renderer, picture_of, take_sample

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment


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
        reach_against: How far it extends for the class of `samples_against`.
        support: Labels of the classes with enough samples within reach.
        margin: How far the layer is from no longer supporting the belief alone, or from doing so.
        slack: Which change of its radius would turn the assertion.
    """

    layer: str
    samples_for: tuple[Exemplar, ...]
    samples_against: tuple[Exemplar, ...]
    quorum: Quorum
    reach: float | None
    reach_against: float | None
    support: tuple[Any, ...]
    margin: float
    slack: Slack | None

    @property
    def nearest_for(self) -> Exemplar | None:
        """The nearest sample of the believed class."""
        return self.samples_for[0] if self.samples_for else None

    @property
    def nearest_against(self) -> Exemplar | None:
        """The nearest sample of the other class."""
        return self.samples_against[0] if self.samples_against else None

    @property
    def extent(self) -> str:
        """The reach in words, and another class's where it differs."""
        if self.reach is None:
            return "reach none"
        other = self.reach_against
        further = "" if other in (None, self.reach) else f", {other:.4g} against"
        return f"reach {self.reach:.4g}{further}"

    def __str__(self) -> str:
        support = ", ".join(map(name, self.support)) or "nothing"
        lines = [
            f"{name(self.layer)}: {self.extent}, support {{{support}}}, margin {self.margin:.4g}",
            f"  for      {listed(self.samples_for, self.quorum[0])}",
            f"  against  {listed(self.samples_against, self.quorum[1])}",
        ]
        if self.slack is not None:
            lines.append(f"  turns    {self.slack}")
        return "\n".join(lines)

    @property
    def finding(self) -> str:
        """What the layer finds, in words."""
        reach = "reach" if self.reach is None else f"the reach {self.reach:.4g}"
        nothing = "no training sample" if self.quorum == ONE else "too few samples of any class"
        found = " and ".join(map(name, self.support)) or nothing
        finding = f"{name(self.layer)} finds {found} within {reach}"
        if self.support:
            return finding
        if self.reach is None and self.samples_for:
            # Some rules have no reach where the believed class is far, however near another is.
            return f"{finding}; nearest of the belief: {listed(self.samples_for, self.quorum[0])}"
        nearest = min((*self.samples_for, *self.samples_against), default=None, key=_distance)
        return finding if nearest is None else f"{finding}; the nearest is {nearest}"


def listed(exemplars: Sequence[Exemplar], needed: int) -> str:
    """Exemplars in words, and how many there should be where there are fewer."""
    few = f" (of {needed} needed)" if 0 < len(exemplars) < needed else ""
    return f"{', '.join(map(str, exemplars)) or 'no sample'}{few}"


def explain_layer(
    one: Assessment, layer: str, training: Any, renderer: Renderer | None
) -> LayerExplanation:
    """What a layer says about the one sample of `one`. training: samples by row, for pictures."""
    evidence, weighed = one.evidence[layer], one.weighed[layer]
    rule, labels = one.neighborhoods[layer], one.classes.tolist()
    belief, against = int(one.belief_codes[0]), _strongest_other(evidence, weighed)
    ranked, rows = evidence.distances[0], evidence.rows[0]

    def exemplars(code: int, most: int) -> tuple[Exemplar, ...]:
        nearest = zip(rows[code, :most].tolist(), ranked[code, :most].tolist(), strict=True)
        return tuple(
            Exemplar(row, labels[code], distance, picture_at(training, row, renderer))
            for row, distance in nearest
            if row != NO_EXEMPLAR
        )

    # A rule with a reach for each class reaches as far as that of the believed one.
    reaches = np.broadcast_to(rule.reach(weighed)[0], len(labels))
    reach = float(reaches.max() if belief == NO_BELIEF else reaches[belief])
    valid = bool(np.isfinite(ranked).any())
    extends = valid and reach != NO_REACH
    elsewhere = [mask for name, mask in one.supports.items() if name != layer]
    needed, contradicting = rule.quorum
    knowable = () if one.never_known[0] else None
    return LayerExplanation(
        layer=layer,
        samples_for=() if belief == NO_BELIEF else exemplars(belief, needed),
        samples_against=() if against is None else exemplars(against, contradicting),
        quorum=rule.quorum,
        reach=reach if extends else None,
        reach_against=float(reaches[against]) if extends and against is not None else None,
        support=tuple(labels[code] for code in np.flatnonzero(one.supports[layer][0])),
        margin=float(one.layer_margins[layer][0]),
        slack=find_slack(weighed, rule, elsewhere, belief, knowable)
        if valid and belief != NO_BELIEF
        else None,
    )


def _strongest_other(evidence: Evidence, weighed: Weighed) -> int | None:
    """The other class that is the first to count as the reach grows; None if there is none.

    Of classes with too few samples ever to count, the nearest.
    """
    codes = np.lexsort((evidence.class_distances[0], weighed.class_distances[0]))
    others = codes[codes != weighed.belief[0]]
    found = others[np.isfinite(evidence.class_distances[0, others])]
    return int(found[0]) if len(found) else None


def _distance(exemplar: Exemplar) -> float:
    return exemplar.distance


def picture_at(samples: Any, row: int, renderer: Renderer | None) -> Picture | None:
    """What the sample in a row looks like; None if it is not given."""
    sample = None if samples is None else take_sample(samples, row)
    return None if sample is None else picture_of(sample, renderer)
