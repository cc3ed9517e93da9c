"""Promises: what is certified about the predictions in a report, and what is not."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iknow.core.assertion import Assertion
from iknow.core.rule import Rule
from iknow.core.text import name, percent
from iknow.evaluation.metrics import Evaluation
from iknow.explain.assessment import Assessment
from iknow.selection import Selection
from iknow.selection.selection import Certificate

MOST_BOUNDS = 100  # classes whose certified bounds are listed; nobody reads more
MOST_CHANGES = 5  # of the training set, likewise


def describe_certificate(
    assessment: Assessment, report: Evaluation | None, selection: Selection | None
) -> list[str]:
    """What was certified about accuracy and about changes of the input, and what was not."""
    accuracy = _about_accuracy(assessment.neighborhoods, report, selection)
    path = [] if selection is None else _about_path(assessment, selection)
    return [*accuracy, *path, _about_inputs(assessment), *_about_training(assessment)]


def chosen_level(assessment: Assessment, selection: Selection | None) -> float | None:
    """The level from which on samples are IK, if these neighborhoods were chosen by it."""
    same = selection is not None and dict(selection.neighborhoods) == dict(assessment.neighborhoods)
    return selection.level if selection is not None and same and assessment.levels else None


def holds_here(neighborhoods: Mapping[str, Rule], selection: Selection | None) -> bool:
    """Whether there is a certificate for these neighborhoods."""
    return (
        selection is not None
        and selection.is_certified
        and dict(selection.neighborhoods) == dict(neighborhoods)
    )


def _about_accuracy(
    neighborhoods: Mapping[str, Rule], report: Evaluation | None, selection: Selection | None
) -> list[str]:
    if selection is None:
        return [
            "Whether an accuracy was certified is not known here: the report was made without the "
            "classifier's selection."
        ]
    certificate = selection.certificate
    if certificate is None:
        accuracy = selection.accuracy
        right = "" if np.isnan(accuracy) else f", {percent(accuracy)} of these right"
        return [
            "No accuracy is certified. The neighborhoods were chosen on "
            f"{selection.n_samples:,} validation samples; {percent(selection.coverage)} of them "
            f"were IK{right}: a measurement, not a promise."
        ]
    if selection.stale:
        return [
            f"No accuracy is certified any longer: the evidence has changed, {selection.stale}. "
            "Recertify the classifier."
        ]
    if not holds_here(neighborhoods, selection):
        return [
            "No accuracy is certified: a certificate was given, but for other neighborhoods than "
            "those of this report."
        ]
    return [*_promise(certificate), *_compare(certificate, report)]


def _about_path(assessment: Assessment, selection: Selection) -> list[str]:
    """What levels promise, what could not be promised, and which layers have no say."""
    sentences = [
        f"Layer {name(each)} is left out: {why}." for each, why in selection.left_out.items()
    ]
    if selection.note:
        sentences.append(f"What was asked for could not be certified: {selection.note}.")
    on_path = chosen_level(assessment, selection) is not None
    if selection.false_alarm is not None and not selection.stale and on_path:
        sentences.append(
            "Certified, whatever the labels: an ordinary sample, drawn as the reference samples "
            f"were, is not IK with a probability of at most {percent(selection.false_alarm)}."
        )
    return sentences


def _promise(certificate: Certificate) -> list[str]:
    of_class = "" if certificate.by_class is None else " of each class"
    sentences = [
        f"Certified: at least {percent(certificate.accuracy)} of the IK predictions{of_class} are "
        f"right, with {percent(certificate.confidence)} confidence.",
        f"It rests on {certificate.n_samples:,} validation samples set aside for it: "
        f"{certificate.known:,} were IK, {certificate.errors:,} of them wrong (lower bound "
        f"{percent(certificate.bound)}; {certificate.procedure}). It holds for samples drawn as "
        "those were, and for the given neighborhoods: not for others set with the sliders.",
    ]
    if not certificate.proven:
        sentences.append(
            "The search for settings to certify ran out of time: the promise stands, but there may "
            "be a setting with more coverage."
        )
    if certificate.by_class is not None:
        by_class = list(certificate.by_class.items())
        bounds = ", ".join(f"{name(label)} {percent(b)}" for label, b in by_class[:MOST_BOUNDS])
        more = len(by_class) - MOST_BOUNDS
        sentences.append(
            f"Lower bounds by class: {bounds}{f', and {more:,} more' if more > 0 else ''}. "
            "Beliefs in any other class are never IK."
        )
    return sentences


def _compare(certificate: Certificate, report: Evaluation | None) -> list[str]:
    if report is None or np.isnan(report.a_ik):
        return []
    less = (
        ", less than certified: these may not be samples like those it was certified on, or it is "
        "chance"
    )
    here = f"On the samples of this report it is {percent(report.a_ik)}"
    return [f"{here}{less if report.a_ik < certificate.accuracy else ''}."]


def _about_inputs(assessment: Assessment) -> str:
    known = assessment.assertion == Assertion.IK
    radii = assessment.robust_radius[known]
    certified = radii[radii > 0]
    if not len(certified):
        return "No robustness against changed inputs is certified."
    return (
        f"For {len(certified):,} of {int(known.sum()):,} IK predictions, no change of the input "
        f"shorter (in ℓ2) than the robust radius in its row (median {np.median(certified):.3g}) "
        "can make the classifier know another class."
    )


def _about_training(assessment: Assessment) -> list[str]:
    """How many IK survive how many changes of the training set; nothing if none survives any."""
    known = assessment.assertion == Assertion.IK
    changes = assessment.stability.changes[known]
    kept = [int((changes >= t).sum()) for t in range(1, int(changes.max(initial=0)) + 1)]
    if not kept:
        return []
    further = "".join(
        f", {n:,} if any {t} are" for t, n in enumerate(kept, 1) if 1 < t <= MOST_CHANGES
    )
    return [
        f"With the model as it is, {kept[0]:,} of {len(changes):,} IK predictions stay IK if any "
        f"one training sample is added, removed or relabeled{further}."
    ]
