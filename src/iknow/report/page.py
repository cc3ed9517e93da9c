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

from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.text import name, shown
from iknow.errors import InputError
from iknow.evaluation.comparison import Comparison
from iknow.evaluation.metrics import evaluate, read_truth
from iknow.explain.assessment import Assessment
from iknow.explain.picture import Renderer
from iknow.report import words
from iknow.report.album import Album
from iknow.report.assemble import assemble, fill_template, read_style, style_policy
from iknow.report.columns import Columns, choose_samples, gather_columns, shown_rows
from iknow.selection import Selection
from iknow.version import __version__

ALL_NAMED = 1_000  # up to this many classes, all are named, whether they occur or not


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
    _check(assessment, samples, max_samples)
    y_true = assessment.y_true if y_true is None else y_true
    report = None if y_true is None else evaluate(assessment, y_true)
    codes = None if report is None else read_truth(assessment, y_true)[1]
    # A belief that is absent is not wrong, and without the truth none is known to be.
    truth = assessment.belief_codes if codes is None else codes
    wrong = assessment.answered & (assessment.belief_codes != truth)
    # All evidence is found here: that of a part would be found again.
    certified = words.describe_certificate(assessment, report, selection)
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
    chosen = selection if selection and words.is_about(selection, assessment) else None
    names = [name(label) for label in true_classes[named].tolist()]
    facts = {  # what the page's script has to know besides the columns
        "classes": names[: int((named < len(assessment.classes)).sum())],
        "trueClasses": None if report is None else names,
        "layers": layers,
        "voices": list(map(name, part.answers.voices)),  # as the column `weakest` has them
        "level": chosen.level if chosen and assessment.levels else None,
        "n": len(rows),
        "certified": chosen is not None and chosen.is_certified,
        "knowsRobustness": any(np.isfinite(layer["lipschitz"]) for layer in layers),
    }
    prose = {
        "title": html.escape(name(title or "What the classifier knows")),
        "version": html.escape(__version__),
        "summary": words.paragraphs(words.summarise(assessment, report)),
        "sampling": words.paragraphs(words.describe_sample(assessment, counted, report)),
        "certified": words.paragraphs(certified),
        "notes": words.paragraphs(notes),
        "comparison": comparison_section(comparison),
    }
    bare = len(assemble(prose, facts, columns, Album(0)).encode())
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
    page = assemble(prose, facts, columns, album)
    while len(page.encode()) > max_bytes and album.parts:
        album.drop_part()
        page = assemble(prose, facts, columns, album)
    return page


def _check(assessment: Any, samples: Any, max_samples: int) -> None:
    if not isinstance(assessment, Assessment):
        raise InputError(
            f"a page needs an Assessment, as assess(X) returns it; got {shown(assessment)}"
        )
    if len(assessment) == 0:
        raise InputError("there is nothing to report: the assessment is empty")
    if max_samples < 1:
        raise InputError(f"max_samples must be >= 1; got {max_samples}")
    if samples is None or isinstance(samples, Mapping):
        return
    n_samples = samples.shape[0] if hasattr(samples, "shape") else len(samples)
    if n_samples != len(assessment):
        raise InputError(
            f"samples must be the {len(assessment)} inputs that were assessed; got {n_samples}"
        )


def make_comparison_page(comparison: Comparison, *, title: str | None = None) -> str:
    """Make a comparison into one self-contained HTML page.

    Args:
        comparison: What `compare` returned.
        title: Title of the page.

    Examples:
        >>> make_comparison_page(comparison)[:15]
        '<!doctype html>'
    """
    style = read_style()
    parts = {
        "policy": style_policy(style),
        "version": html.escape(__version__),
        "title": html.escape(name(title or "iknow and its peers")),
        "style": style,
        "section": comparison_section(comparison),
    }
    return fill_template("comparison.html", parts)


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
