"""What an alarm says: alarms that rang, and the evidence of each detector."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SUSPICIOUS = 10.0
"""Evidence at which a class or a layer is named as one that may have moved."""

LARGEST = 1e300
"""Evidence as JSON and a reader can take it; `log2_evidence` is exact beyond."""


def as_evidence(logarithm: float) -> float:
    """Evidence from its logarithm to base 2."""
    return min(float(2.0 ** min(float(logarithm), 1000.0)), LARGEST)


@dataclass(frozen=True)
class Alarm:
    """A detector rang.

    Attributes:
        kind: "overall", "class" or "layer".
        name: The label of the class, or the layer; "" for overall.
        sample: The number of the sample at which it rang, from 1, since the last reset.
        evidence: The capital at that sample.
        threshold: What it takes to ring.
    """

    kind: str
    name: str
    sample: int
    evidence: float
    threshold: float

    def __str__(self) -> str:
        where = f" in {self.kind} {self.name}" if self.name else ""
        return (
            f"drift{where}: at sample {self.sample:,} the evidence is {self.evidence:.3g}, and "
            f"{self.threshold:.3g} was enough"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Detector:
    """What one detector has seen.

    Attributes:
        kind: "overall", "class" or "layer".
        name: The label of the class, or the layer; "" for overall.
        reference: Number of reference samples.
        samples: Number of samples of the stream, of this class for a class.
        evidence: The capital now: 1 for none, 100 is seen once in a hundred streams without drift.
        log2_evidence: Its logarithm to base 2.
        highest: The highest evidence so far.
        threshold: The evidence at which it rings.
        alarmed_at: The number of the sample at which it rang; None if it did not.
    """

    kind: str
    name: str
    reference: int
    samples: int
    evidence: float
    log2_evidence: float
    highest: float
    threshold: float
    alarmed_at: int | None


@dataclass(frozen=True)
class DriftReport:
    """The state of an alarm.

    Attributes:
        alarmed: Whether any detector rang since the last reset.
        since: The number of samples since the first alarm; None without one.
        samples: Number of samples seen since the last reset.
        reference: Number of reference samples; 0 if the stream is compared with its own beginning.
        rate: The promised bound on the probability that any detector ever rings without drift.
        resets: How often the alarm was reset; each reset spends the rate once more.
        alarms: Those that rang, in order.
        detectors: All of them: overall, then layers, then classes.
    """

    alarmed: bool
    since: int | None
    samples: int
    reference: int
    rate: float
    resets: int
    alarms: tuple[Alarm, ...]
    detectors: tuple[Detector, ...]

    @property
    def note(self) -> str:
        """What limits the alarm, in words; "" for nothing."""
        if self.reference:
            return ""
        return (
            "there are no reference samples, so the stream is compared with its own beginning, and "
            "a change before its first sample cannot be seen"
        )

    def suspects(self, kind: str) -> tuple[Detector, ...]:
        """The detectors of a `kind`, "class" or "layer", that may have moved, the surest first.

        Those that rang, and those whose evidence once reached 10. Only the former are covered by
        the promised rate.
        """
        found = [
            each
            for each in self.detectors
            if each.kind == kind and (each.alarmed_at is not None or each.highest >= SUSPICIOUS)
        ]
        return tuple(sorted(found, key=lambda each: -each.highest))

    def sentences(self) -> list[str]:
        """What there is to say, in words."""
        said = [f"{alarm}" for alarm in self.alarms]
        if not said:
            highest = max(each.highest / each.threshold for each in self.detectors)
            said = [
                f"no drift in {self.samples:,} samples: at most {highest:.1%} of what an alarm "
                "takes"
            ]
        for kind, what in (("class", "classes"), ("layer", "layers")):
            if self.alarmed and (named := self.suspects(kind)):
                listed = ", ".join(f"{each.name} ({each.highest:.3g})" for each in named[:10])
                said.append(f"{what} that may have moved, with their evidence: {listed}")
        return [*said, self.note] if self.note else said

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        suspects = {
            kind: [each.name for each in self.suspects(kind)] for kind in ("class", "layer")
        }
        return {
            **asdict(self),
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "detectors": [asdict(each) for each in self.detectors],
            "suspects": suspects,
            "note": self.note,
        }
