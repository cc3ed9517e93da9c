"""Words: what the figures say, what is certified, and what is not, in sentences."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from iknow.cards import MEANINGS
from iknow.core.arrays import Bools
from iknow.core.assertion import Assertion
from iknow.core.text import name, percent, visible
from iknow.evaluation.metrics import Evaluation
from iknow.explain.assessment import Assessment
from iknow.selection import Selection


def paragraphs(sentences: Sequence[str]) -> str:
    """Sentences as markup, whatever is in them."""
    return "\n".join(f"<p>{html.escape(visible(sentence))}</p>" for sentence in sentences)


def summarise(assessment: Assessment, report: Evaluation | None) -> list[str]:
    """How many samples are known, and how often that is right."""
    n = len(assessment)
    counts = assessment.counts
    know, may_know, do_not_know = (
        f"“{MEANINGS[a]}” for {count:,} ({percent(count / n)})" for a, count in counts.items()
    )
    said = f"{know}, {may_know} and {do_not_know}"
    sentences = [f"Of {n:,} predictions, the classifier says {said}."]
    if silent := int((~assessment.answered).sum()):
        sentences.append(
            f"The model gave no answer for {silent:,} of them; these are neither right nor wrong."
        )
    if report is None:
        sentences.append("The true labels were not given, so nothing is said about accuracy.")
    elif counts[Assertion.IK]:
        sentences.append(
            f"Where it knows, it is right in {percent(report.a_ik)} of cases "
            f"({report.wrong(Assertion.IK):,} wrong); elsewhere in {percent(report.a_not_ik)}; "
            f"overall in {percent(report.overall_accuracy)}."
        )
    else:
        sentences.append(f"The model is right in {percent(report.overall_accuracy)} of cases.")
    return sentences


def describe_sample(assessment: Assessment, counted: Bools, report: Evaluation | None) -> list[str]:
    """Says so if the page does not hold all samples. counted: as `choose_samples` returns it."""
    n, n_counted = len(assessment), int(counted.sum())
    if n_counted == n:
        return []
    said = (
        f"This page holds {n_counted:,} of {n:,} samples, drawn at random: the sliders, figures, "
        "plots and table cover these. The sentences above count all samples."
    )
    if report is not None and n_counted < len(counted):
        said += (
            f" Of the {report.wrong(Assertion.IK):,} wrong IKs, {len(counted) - n_counted:,} that "
            "were not drawn are in the table as well; no figure counts them."
        )
    return [said]


def describe_pictures(n_pictured: int, n_shown: int) -> list[str]:
    """Says so if only some samples have a picture."""
    if n_pictured in (0, n_shown):
        return []
    return [
        f"{n_pictured:,} of {n_shown:,} samples have a picture, the wrong ones first; there was no "
        "room for more."
    ]


MOST_BOUNDS = 100  # classes whose certified bounds are listed; nobody reads more
MOST_CHANGES = 5  # of the training set, likewise


def describe_certificate(
    assessment: Assessment, report: Evaluation | None, selection: Selection | None
) -> list[str]:
    """What was certified about accuracy and about changes of the input, and what was not."""
    promises = _about_accuracy(assessment, report, selection)
    return [*promises, _about_inputs(assessment), *_about_training(assessment)]


def is_about(selection: Selection, assessment: Assessment) -> bool:
    """Whether it chose the neighborhoods of this assessment, so that its promises hold for them."""
    return dict(selection.neighborhoods) == dict(assessment.neighborhoods)


def _about_accuracy(
    assessment: Assessment, report: Evaluation | None, selection: Selection | None
) -> list[str]:
    if selection is None:
        return [
            "Whether an accuracy was certified is not known here: the report was made without the "
            "classifier's selection."
        ]
    if not is_about(selection, assessment):
        return [
            "No accuracy is certified: the selection is about other neighborhoods than those of "
            "this report."
        ]
    said = [f"{sentence}." for sentence in selection.sentences()]
    certificate = selection.certificate
    if certificate is None or selection.stale:
        measured = "No accuracy is certified: coverage and accuracy are measurements, not promises."
        return [measured, *said]
    if certificate.by_class is not None:
        by_class = list(certificate.by_class.items())
        bounds = ", ".join(f"{name(label)} {percent(b)}" for label, b in by_class[:MOST_BOUNDS])
        more = len(by_class) - MOST_BOUNDS
        said.append(f"Lower bounds by class: {bounds}{f', and {more:,} more' if more > 0 else ''}.")
    said.append(
        f"The lower bound is {percent(certificate.bound)} ({certificate.procedure}). It holds for "
        "samples drawn as those were, and for the given neighborhoods: not for others set with the "
        "sliders."
    )
    if report is not None and not np.isnan(report.a_ik):
        less = (
            ", less than certified: these may not be samples like those it was certified on, or it "
            "is chance"
        )
        here = f"On the samples of this report the accuracy on IK is {percent(report.a_ik)}"
        said.append(f"{here}{less if report.a_ik < certificate.accuracy else ''}.")
    return said


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
