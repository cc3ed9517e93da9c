"""A fitted classifier as HTML, for notebooks: what it wraps, where it looks, what is promised.

An unfitted one has nothing to tell but its parameters: scikit-learn draws those, and here they fold
away below the card.
"""

from __future__ import annotations

from typing import Any

from sklearn.utils import estimator_html_repr

from iknow.cards import COLORS, LINE, SOFT, bar, card, heading, legend, paragraphs, table, text
from iknow.core.assertion import Assertion
from iknow.core.text import name as short
from iknow.selection import Selection
from iknow.storage.about import name_metric
from iknow.storage.about_record import name_model

UNTUNED = "Not tuned yet: call tune with validation data before assess."
GIVEN = "Nothing is guaranteed: the neighborhoods were given, not tuned."


def to_html(classifier: Any) -> str:
    """The classifier as a small card; green where an accuracy is certified."""
    if not hasattr(classifier, "indexes_"):
        return str(estimator_html_repr(classifier))
    selection: Selection | None = getattr(classifier, "selection_", None)
    certified = selection is not None and selection.is_certified
    return card(
        heading("EpistemicClassifier", f"around {name_model(classifier.model)}"),
        _coverage(selection) if selection is not None else "",
        table(("layer", "metric", "rule"), _rows(classifier), margin="12px 0 0"),
        paragraphs([_describe_data(classifier), *_promises(classifier)]),
        _parameters(classifier),
        color=COLORS[Assertion.IK] if certified else LINE,
    )


def _coverage(selection: Selection) -> str:
    known = {Assertion.IK: round(selection.coverage * selection.n_samples)}
    return bar(known, selection.n_samples) + legend(known, selection.n_samples)


def _rows(classifier: Any) -> list[tuple[str, str, str]]:
    rules = getattr(classifier, "neighborhoods_", {})
    rows = []
    for layer, index in classifier.indexes_.items():
        missing = "left out" if rules else "not tuned"
        rule = short(repr(rules[layer])) if layer in rules else missing
        rows.append((text(layer), text(name_metric(index.metric.to_dict())), text(rule)))
    return rows


def _describe_data(classifier: Any) -> str:
    n_rows = classifier.indexes_[classifier.layers_[0]].n_rows
    classes = [short(label, 40) for label in classifier.classes_.tolist()[:10]]
    more = ", …" if len(classifier.classes_) > 10 else ""
    n = len(classifier.classes_)
    return f"Evidence: {n_rows:,} training samples of {n:,} classes: {', '.join(classes)}{more}"


def _promises(classifier: Any) -> list[str]:
    if (selection := getattr(classifier, "selection_", None)) is not None:
        return [short(said, 1_000) for said in selection.sentences()]
    return [GIVEN if hasattr(classifier, "neighborhoods_") else UNTUNED]


def _parameters(classifier: Any) -> str:
    return (
        f'<details style="margin:10px 0 0"><summary style="{SOFT};cursor:pointer">parameters'
        f"</summary>{estimator_html_repr(classifier)}</details>"
    )
