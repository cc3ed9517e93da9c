"""A bundle's summary in words, for a terminal, and as a card, for a notebook."""

from __future__ import annotations

from iknow.cards import COLORS, LINE, card, heading, paragraphs, table, text
from iknow.core.assertion import Assertion
from iknow.core.text import name as short
from iknow.core.text import names
from iknow.storage.about import BundleInfo, LayerInfo

CLASSES_SHOWN = 10


def to_text(info: BundleInfo) -> str:
    """The summary in lines."""
    lines = [info.title, *info.note.splitlines(), ""]
    lines += [f"{title:<10}{value}" for title, value in list_facts(info).items()]
    lines += [f"{'layer':<10}{short(each.name)}: {_in_words(each)}" for each in info.layers]
    return "\n".join([*lines, "", *map(short_line, info.promises)])


def to_html(info: BundleInfo) -> str:
    """The summary as a small card; green where an accuracy is certified."""
    certified = info.selection is not None and info.selection.is_certified
    facts = [(text(title), text(value)) for title, value in list_facts(info).items()]
    layers = [(text(each.name), text(each.metric), text(rule_of(each))) for each in info.layers]
    return card(
        heading(info.title, "a bundle of iknow"),
        paragraphs(info.note.splitlines()),
        table((), facts, margin="12px 0 0"),
        table(("layer", "metric", "rule"), layers, margin="4px 0 0"),
        paragraphs(map(short_line, info.promises)),
        color=COLORS[Assertion.IK] if certified else LINE,
    )


def list_facts(info: BundleInfo) -> dict[str, str]:
    """What a bundle is made of, as short texts by their headings."""
    samples = f"{info.n_samples:,} of training"
    if info.selection is not None:
        samples += f", {info.selection.n_samples:,} of validation"
    version = {} if info.version is None else {"version": info.version}
    found = version | {
        "made": short(f"{info.created} by iknow {info.iknow}, format {info.format}"),
        "model": f"{info.model}, {_where_model_is(info)}",
        "samples": samples,
        "classes": _list_classes(info),
    }
    if info.inputs:
        shapes = (" × ".join(map(str, shape)) or "one value" for shape in info.inputs.values())
        pairs = zip(info.inputs, shapes, strict=True)
        found["inputs"] = short(", ".join(f"{name}: {shape}" for name, shape in pairs))
    if info.feature_names:
        found["features"] = short(names(info.feature_names))
    if info.changes:
        found["changes"] = _count_changes(info)
    if info.n_torn:
        found["torn"] = f"{info.n_torn:,} bytes that an interrupted writer left: not read"
    given = [f"{option}={value!r}" for option, value in info.reading.items() if value is not None]
    given += [f"{option}=..., a function: pass it to load" for option in info.needs]
    return found | ({"read with": short(", ".join(given))} if given else {})


def _count_changes(info: BundleInfo) -> str:
    folded = len(info.changes) - info.n_segments
    parts = [f"{folded:,} folded in"] * bool(folded)
    parts += [f"{info.n_segments:,} appended"] * bool(info.n_segments)
    return f"{' and '.join(parts)}, the last at {info.changes[-1].when}"


def _where_model_is(info: BundleInfo) -> str:
    if info.exported is None:
        return "not in the bundle"
    return f"in the bundle as ONNX, compared on {info.exported['samples']:,} samples"


def short_line(sentence: str) -> str:
    """A sentence that may quote names from outside, ready to show."""
    return short(sentence, 1_000)


def _list_classes(info: BundleInfo) -> str:
    pairs = list(zip(info.classes, info.per_class, strict=True))[:CLASSES_SHOWN]
    shown = [f"{short(label, 40)} ({count:,})" for label, count in pairs]
    n = len(info.classes)
    return ", ".join(shown) + (f", … ({n:,} in all)" if n > CLASSES_SHOWN else "")


def _in_words(layer: LayerInfo) -> str:
    return f"{layer.n_features:,} features, {layer.metric}, {rule_of(layer)}"


def rule_of(layer: LayerInfo) -> str:
    if layer.left_out is not None:
        return "left out"
    return "not tuned" if layer.rule is None else short(layer.rule)
