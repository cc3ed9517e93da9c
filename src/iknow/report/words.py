"""Words: what the figures say, in sentences."""

from __future__ import annotations

import html
from collections.abc import Sequence

from iknow.cards import MEANINGS
from iknow.core.assertion import Assertion
from iknow.core.text import percent, visible
from iknow.evaluation.metrics import Evaluation
from iknow.explain.assessment import Assessment
from iknow.report.choosing import Chosen


def paragraphs(sentences: Sequence[str]) -> str:
    """Sentences as markup, whatever is in them."""
    return "\n".join(f"<p>{html.escape(visible(sentence))}</p>" for sentence in sentences)


def summarise(assessment: Assessment, report: Evaluation | None) -> list[str]:
    """How many samples are known, and how often that is right."""
    n = len(assessment)
    counts = {a: int((assessment.assertion == a).sum()) for a in Assertion}
    know, may_know, do_not_know = (
        f"“{phrase}” for {counts[a]:,} ({percent(counts[a] / n)})" for a, phrase in MEANINGS.items()
    )
    said = f"{know}, {may_know} and {do_not_know}"
    sentences = [f"Of {n:,} predictions, the classifier says {said}."]
    silent = int((assessment.belief_codes < 0).sum())
    if silent:
        sentences.append(
            f"The model gave no answer for {silent:,} of them; these are neither right nor wrong."
        )
    if report is None:
        sentences.append("The true labels were not given, so nothing is said about accuracy.")
        return sentences
    wrong = report.wrong(Assertion.IK)
    if counts[Assertion.IK]:
        sentences.append(
            f"Where it knows, it is right in {percent(report.a_ik)} of cases ({wrong:,} wrong); "
            f"elsewhere in {percent(report.a_not_ik)}; overall in "
            f"{percent(report.overall_accuracy)}."
        )
    else:
        sentences.append(f"The model is right in {percent(report.overall_accuracy)} of cases.")
    return sentences


def describe_sample(chosen: Chosen, n_wrong_known: int) -> list[str]:
    """Says so if the page does not hold all samples."""
    if chosen.n_counted == chosen.n_samples:
        return []
    words = (
        f"This page holds {chosen.n_counted:,} of {chosen.n_samples:,} samples, drawn at random: "
        "the sliders, figures, plots and table cover these. The sentences above count all samples."
    )
    if chosen.n_extra:
        words += (
            f" Of the {n_wrong_known:,} wrong IKs, {chosen.n_extra:,} that were not drawn are in "
            "the table as well; no figure counts them."
        )
    return [words]


def describe_pictures(n_pictured: int, n_shown: int) -> list[str]:
    """Says so if only some samples have a picture."""
    if n_pictured in (0, n_shown):
        return []
    return [
        f"{n_pictured:,} of {n_shown:,} samples have a picture, the wrong ones first; there was no "
        "room for more."
    ]
