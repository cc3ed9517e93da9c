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
from iknow.storage.info import name_metric, name_model

UNTUNED = "Not tuned yet: call tune with validation data before assess."
GIVEN = "Nothing is guaranteed: the neighborhoods were given, not tuned."


def to_html(classifier: Any) -> str:
    """The classifier as a small card; green where an accuracy is certified."""
    parameters = str(estimator_html_repr(classifier))
    if not hasattr(classifier, "indexes_"):
        return parameters
    selection: Selection | None = getattr(classifier, "selection_", None)
    rules = getattr(classifier, "neighborhoods_", {})
    indexes, labels = classifier.indexes_, classifier.classes_
    promises = [GIVEN if hasattr(classifier, "neighborhoods_") else UNTUNED]
    coverage, color = "", LINE
    if selection is not None:
        known = {Assertion.IK: round(selection.coverage * selection.n_samples)}
        coverage = bar(known, selection.n_samples) + legend(known, selection.n_samples)
        promises = [short(said, 1_000) for said in selection.sentences()]
        color = COLORS[Assertion.IK] if selection.is_certified else LINE
    rows, missing = [], "left out" if rules else "not tuned"
    for layer, index in indexes.items():
        rule = short(repr(rules[layer])) if layer in rules else missing
        rows.append((text(layer), text(name_metric(index.metric.to_dict())), text(rule)))
    classes = [short(label, 40) for label in labels[:10].tolist()] + ["…"] * (len(labels) > 10)
    n_rows = classifier.plan_.index.n_rows
    evidence = f"{n_rows:,} training samples of {len(labels):,} classes: {', '.join(classes)}"
    return card(
        heading("EpistemicClassifier", f"around {name_model(classifier.model)}"),
        coverage,
        table(("layer", "metric", "rule"), rows, margin="12px 0 0"),
        paragraphs([f"Evidence: {evidence}", *promises]),
        f'<details style="margin:10px 0 0"><summary style="{SOFT};cursor:pointer">parameters'
        f"</summary>{parameters}</details>",
        color=color,
    )
