"""The page: an assessment → one HTML file that needs nothing else, not even a network.

The evidence is in the page and its algebra is small, so the page itself can answer what another
radius would do. Data never becomes markup: labels and samples travel as JSON and numbers and are
shown as text. A content security policy lets only the page's own script run, and nothing load.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from iknow.cards import MEANINGS, paragraphs
from iknow.core.arrays import Bools, Ints
from iknow.core.assertion import Assertion
from iknow.core.text import as_whole, name, percent, shown
from iknow.errors import InputError
from iknow.evaluation.comparison import Comparison
from iknow.evaluation.estimate import estimate
from iknow.evaluation.metrics import Evaluation, evaluate, read_truth
from iknow.explain.assessment import Assessment
from iknow.explain.picture import Renderer
from iknow.models.inputs import count_samples
from iknow.report.album import Album
from iknow.report.assemble import assemble
from iknow.report.columns import Columns, choose_samples, gather_columns, shown_rows
from iknow.selection import Selection
from iknow.version import __version__

ALL_NAMED = 1_000  # up to this many classes, all are named, whether they occur or not
MOST_BOUNDS = 100  # classes whose certified bounds are listed; nobody reads more
MOST_CHANGES = 5  # of the training set, likewise


def name_classes(columns: Columns, n_classes: int) -> tuple[Ints, Columns]:
    """The codes of the classes to name, and the columns with positions among these; -1 stays -1.

    A page names all of a few classes. Of very many it names and numbers only those that occur in
    it: a hundred thousand names that nothing uses would leave no room for samples.
    """
    coded = {k: v for k, v in columns.items() if k in ("belief", "truth") or k.endswith(".codes")}
    named = np.arange(n_classes)
    if n_classes > ALL_NAMED:
        found = np.unique(np.concatenate([codes.ravel() for codes in coded.values()]))
        named = found[found >= 0]
    for key, codes in coded.items():
        places = np.where(codes < 0, -1, np.searchsorted(named, codes))
        coded[key] = places.astype(np.int32)
    return named, columns | coded


USUAL_NEIGHBORS = 20  # to assess with for a report: the slider for k ends here
EVIDENCE_SHARE = 0.7  # of the room, at most; the rest is for pictures and the page itself


def make_report(
    assessment: Assessment,
    y_true: Any = None,
    *,
    samples: Any = None,
    training: Any = None,
    renderer: Renderer | None = None,
    title: str | None = None,
    notes: Sequence[str] = (),
    selection: Selection | None = None,
    comparison: Comparison | None = None,
    max_samples: int = 10_000,
    max_bytes: int = 9_500_000,
    random_state: int = 0,
) -> str:
    """Make the report as one self-contained HTML page: figures, sliders, samples, evidence.

    The sliders for k need an assessment with neighbors, `assess(X, k=20)`.

    Args:
        assessment: What `assess` returned for n samples.
        y_true: True labels of shape (n,). Default: those that came with the samples. Without any
            the page says nothing about accuracy.
        samples: The assessed inputs: an array, sequence, table or mapping.
        training: The training inputs by row, likewise.
        renderer: Makes pictures of both.
        title: Title of the page.
        notes: Sentences to add.
        selection: How the neighborhoods were chosen, to say what is certified.
        comparison: What `iknow.compare` returned, to show beside it.
        max_samples: Show at most this many samples, drawn at random.
        max_bytes: Largest size of the page; pictures give way first, then samples.
        random_state: Seed for that draw.

    Examples:
        >>> make_report(a, y_true)[:15]
        '<!doctype html>'
    """
    _check(assessment, samples)
    max_samples = as_whole(max_samples, "max_samples", "be >= 1", 1)
    y_true = assessment.y_true if y_true is None else y_true
    report = None if y_true is None else evaluate(assessment, y_true)
    codes = None if report is None else read_truth(assessment, y_true)[1]
    # A belief that is absent is not wrong, and without the truth none is known to be.
    truth = assessment.belief_codes if codes is None else codes
    wrong = assessment.answered & (assessment.belief_codes != truth)
    # All evidence is found here: that of a part would be found again.
    certified = describe_certificate(assessment, report, selection)
    one = np.zeros(1, dtype=np.int64)
    _, found = gather_columns(assessment[one], one, one == 0, one)
    # As bytes are before compression and base64.
    room = int(EVIDENCE_SHARE * max_bytes * 3 / 4 / sum(each.nbytes for each in found.values()))
    most = min(max_samples, max(room, 1))
    rows, counted = choose_samples(assessment, wrong, most, np.random.default_rng(random_state))
    part = assessment[rows]
    layers, columns = gather_columns(part, rows, counted, None if codes is None else codes[rows])
    # Those that a model can say come first.
    true_classes = assessment.classes if report is None else report.true_classes
    named, columns = name_classes(columns, len(true_classes))
    chosen = selection if selection and is_about(selection, assessment) else None
    names = [name(label) for label in true_classes[named].tolist()]
    facts = {  # what the page's script has to know besides the columns
        "classes": names[: int((named < len(assessment.classes)).sum())],
        "trueClasses": None if report is None else names,
        "layers": layers,
        "voices": list(map(name, part.answers.voices)),  # as the column `weakest` has them
        "leastConfidence": assessment.least_confidence,
        "level": chosen.level if chosen and assessment.levels else None,
        "n": len(rows),
        "certified": chosen is not None and chosen.is_certified,
        "knowsRobustness": any(np.isfinite(layer["lipschitz"]) for layer in layers),
    }
    prose = {
        "title": html.escape(name(title or "What the classifier knows")),
        "version": html.escape(__version__),
        "summary": paragraphs(summarise(assessment, report)),
        "sampling": paragraphs(describe_sample(assessment, counted, report)),
        "certified": paragraphs(certified),
        "notes": paragraphs(notes),
        "comparison": comparison_section(comparison),
    }

    def page_with(album: Album) -> str:
        pictures = album.columns(len(rows))
        n = int((pictures["samplePictures"] >= 0).sum())
        said = (
            f"{n:,} of {len(rows):,} samples have a picture, the wrong ones first; there was no "
            "room for more."
        )
        pictured = paragraphs([] if n in (0, len(rows)) else [said])
        return assemble({**prose, "pictured": pictured}, facts, {**columns, **pictures}, album)

    bare = len(page_with(Album(0)).encode())
    if bare > max_bytes:
        raise InputError(
            f"max_bytes must leave room for the page and its evidence, {bare} bytes here; got "
            f"{max_bytes}"
        )
    # Pictures of wrong IKs first, then of other wrong beliefs, then of the closest calls.
    rank = np.where(wrong[rows], np.where(part.assertion == Assertion.IK, 0, 1), 2)
    order = np.lexsort((np.abs(part.margin), rank))
    exemplars, album = shown_rows(columns, len(layers)), Album(max_bytes - bare)
    for place in order.tolist():
        album.add(("sample", place), samples, int(rows[place]), renderer)
        for row in exemplars[place].tolist():
            album.add(("training", row), training, row, renderer)
    album.close_part()
    page = page_with(album)
    while len(page.encode()) > max_bytes and album.parts:
        album.drop_part()
        page = page_with(album)
    return page


def _check(assessment: Any, samples: Any) -> None:
    if not isinstance(assessment, Assessment):
        raise InputError(
            f"a page needs an Assessment, as assess(X) returns it; got {shown(assessment)}"
        )
    if len(assessment) == 0:
        raise InputError("there is nothing to report: the assessment is empty")
    if samples is None or isinstance(samples, Mapping):
        return
    if (n_samples := count_samples(samples)) != len(assessment):
        raise InputError(
            f"samples must be the {len(assessment)} inputs that were assessed; got {n_samples}"
        )


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
        if (found := estimate(assessment)) is not None and found.tally.any():
            low, high = map(percent, found.interval)
            sentences[-1] = (
                f"The true labels were not given. The accuracy is estimated at "
                f"{percent(found.accuracy)}, between {low} and {high}, for samples that come like "
                f"the validation data; {percent(found.unseen)} are unlike anything seen before."
            )
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


def describe_certificate(
    assessment: Assessment, report: Evaluation | None, selection: Selection | None
) -> list[str]:
    """What was certified about accuracy and about changes of the input, and what was not."""
    said = _about_accuracy(assessment, report, selection)
    known = assessment.assertion == Assertion.IK
    radii = assessment.robust_radius[known]
    if (radii > 0).any():
        said.append(
            f"For {(radii > 0).sum():,} of {len(radii):,} IK predictions, no change of the input "
            "shorter (in ℓ2) than the robust radius in its row (median "
            f"{np.median(radii[radii > 0]):.3g}) can make the classifier know another class."
        )
    else:
        said.append("No robustness against changed inputs is certified.")
    changes = assessment.stability.changes[known]
    kept = [n for t in range(1, MOST_CHANGES + 1) if (n := int((changes >= t).sum()))]
    if kept:
        further = "".join(f", {n:,} if any {t} are" for t, n in enumerate(kept[1:], 2))
        said.append(
            f"With the model as it is, {kept[0]:,} of {len(changes):,} IK predictions stay IK if "
            f"any one training sample is added, removed or relabeled{further}."
        )
    return said


def is_about(selection: Selection, assessment: Assessment) -> bool:
    """Whether it chose what this assessment was made with, so that its promises hold here."""
    same = selection.least_confidence == assessment.least_confidence
    return same and dict(selection.neighborhoods) == dict(assessment.neighborhoods)


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
            "No accuracy is certified: the selection is about other neighborhoods, or another "
            "least confidence, than those of this report."
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


def comparison_section(comparison: Comparison | None) -> str:
    """The section of the report; nothing without a comparison."""
    if comparison is None:
        return ""
    return (
        '<section class="card" id="comparison" aria-labelledby="comparison-title">'
        f'<h2 id="comparison-title">Beside other methods</h2>{comparison.to_html(_table)}</section>'
    )


def _table(headings: list[str], rows: list[list[str]]) -> str:
    """A table with classes and no styles, as the page's policy lets only its style sheet apply."""
    top = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in headings)
    body = "".join(
        f'<tr><th scope="row">{method}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for method, *cells in rows
    )
    return f'<div class="compared"><table><tr>{top}</tr>{body}</table></div>'
