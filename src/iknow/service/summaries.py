"""Summaries: what alarms say, as the page and `GET /v1/status` show it.

Evidence is given by its logarithm to base 10, beside that of the threshold at which it rings.
"""

from __future__ import annotations

from math import log10
from typing import Any

from iknow.core.text import names
from iknow.monitor import AccuracyReport, Detector, DriftReport

MOST_NAMED = 5


def summarize_drift(report: DriftReport) -> dict[str, Any]:
    """The state of a drift alarm in plain values."""
    overall = next(each for each in report.detectors if each.kind == "overall")
    return {
        "alarmed": report.alarmed,
        "since": report.alarms[0].sample if report.alarms else None,
        "n_samples": report.samples,
        "reference": report.reference,
        "rate": report.rate,
        "resets": report.resets,
        **_evidence(overall),
        "by_class": _by_name(report, "class"),
        "by_layer": _by_name(report, "layer"),
        "text": _tell_drift(report),
    }


def _tell_drift(report: DriftReport) -> str:
    """The state in a sentence or two, as the page has no room for all sentences of a report."""
    if not report.alarmed:
        return ". ".join(report.sentences())
    moved = {
        what: names([each.name for each in report.suspects(kind)], MOST_NAMED)
        for kind, what in (("class", "beliefs"), ("layer", "layers"))
        if report.suspects(kind)
    }
    where = "; ".join(f"{what} that moved: {named}" for what, named in moved.items())
    compared = "the reference samples" if report.reference else "the beginning of the stream"
    return (
        f"since answer {report.alarms[0].sample:,} the inputs are unlike {compared}"
        f"{f'; {where}' if where else ''}"
    )


def summarize_accuracy(report: AccuracyReport) -> dict[str, Any]:
    """The state of a monitor of labels in plain values."""
    return {
        "n": report.samples,
        "estimate": report.accuracy,
        "low": report.low,
        "high": report.high,
        "certified": report.certified,
        "alarmed": report.alarmed,
        "text": _tell_accuracy(report),
    }


def _tell_accuracy(report: AccuracyReport) -> str:
    if not report.samples:
        return "no label of an IK has come yet"
    between = f"the accuracy on IK lies between {report.low:.4f} and {report.high:.4f}"
    promised = "" if report.certified is None else f"; {report.certified:.4f} is certified"
    verdict = ", and that does not hold any longer" if report.alarmed else ""
    return f"{report.right:,} of {report.samples:,} labels agree: {between}{promised}{verdict}"


def _by_name(report: DriftReport, kind: str) -> dict[str, dict[str, float]]:
    return {each.name: _evidence(each) for each in report.detectors if each.kind == kind}


def _evidence(detector: Detector) -> dict[str, float]:
    evidence = detector.log2_evidence * log10(2)
    return {"evidence": round(evidence, 4), "threshold": round(log10(detector.threshold), 4)}
