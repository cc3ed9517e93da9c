"""Exporting: the model of a classifier as ONNX, compared with the original, and back.

A graph that is nearly right is worse than none: its answers would be believed. So we ask the
classifier, and a second one around the graph, about the same real samples: the inputs that the
probe keeps, and those that the user gives. Belief, assertion, reason and level must be the same;
scores and activations may be apart as far as the probe allows of the same model (`iknow.models.
probe`: 1/10,000 of a layer's spread, and some units in the last place). The first sample is also
asked about alone, as a graph may be fixed to a number of samples.

A sample right at a boundary may fall on the other side by the last bit of an activation. That is
refused too, and named.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from iknow.core.text import name as shown_name
from iknow.core.text import shown
from iknow.errors import BundleError, ExportError, IknowError, InputError, MissingExtraError
from iknow.locking import unforked
from iknow.metrics.table import Table
from iknow.models.export import find_exporter
from iknow.models.inputs import take_rows
from iknow.models.model import observe_inputs
from iknow.models.probe import Probe, find_tolerance, row_distances, tables_of
from iknow.models.sklearn import SklearnModel
from iknow.models.views import with_views
from iknow.storage.bundle import MODEL, Bundle
from iknow.storage.manifest import Distance, Exported, OnnxReading

Distances = dict[str, float]
"""By the name of a table in errors."""


@dataclass(frozen=True)
class Portable:
    """A model as ONNX, and how near it came to the original."""

    content: bytes
    compared: Exported


def find_exported(classifier: Any, *, wanted: bool, samples: Any) -> Portable | None:
    """The model of a classifier as ONNX: the one it was loaded with, or if wanted a new one."""
    own = type(classifier.model_).__name__ == "PortableModel"
    if samples is not None and not wanted:
        raise InputError("samples= are to compare an exported model on: say onnx=True too")
    if not wanted and not own:
        return None
    compared = classifier.plan_.bundled.get("exported") if own else None
    if compared is not None and set(classifier.layers_) <= set(compared.layers):
        return Portable(classifier.model_.content, compared)
    return export_model(classifier, samples)


def export_model(classifier: Any, samples: Any = None) -> Portable:
    """The model of a fitted classifier as ONNX; `ExportError` unless it answers alike."""
    model, probe, layers = classifier.model_, classifier.probe_, classifier.layers_
    export = find_exporter(model)
    given = _real_inputs(probe, samples)
    some, *others = map(model.prepare, given.values())
    told: dict[str, Any] = {}
    if isinstance(model, SklearnModel):
        tables = (each.metric for each in classifier.indexes_.values())
        wanted = {code for each in tables if isinstance(each, Table) for code in each.codes}
        told = {"samples": others, "wanted": wanted}
    content, reading = export(layers, some, **told)
    other = copy.copy(classifier)
    try:
        columns = getattr(classifier, "feature_names_in_", None)
        plan = classifier.plan_
        made = _make(content, plan.classes[: plan.n_scored], columns, reading)
        other.model = with_views(made, model.views)
        other.plan_ = replace(plan, model=other.model, unchanged=None)
    except InputError as error:
        raise ExportError(f"the exported model cannot be read: {error}") from error
    allowed = dict(probe.tolerances) if isinstance(probe, Probe) else {}
    farthest: Distances = {}
    n = sum(_compare(classifier, other, given[word], word, allowed, farthest) for word in given)
    pairs = [Distance(allowed[name], farthest[name]) for name in farthest]
    by_layer = dict(zip(layers, pairs[1:], strict=True))
    source = None if reading is None else OnnxReading(**reading)
    return Portable(content, Exported(n, pairs[0], by_layer, source, ""))


def _real_inputs(probe: Probe | str, samples: Any) -> dict[str, Any]:
    """What to compare on, by the word for one of them."""
    found = {"training input": probe.inputs} if isinstance(probe, Probe) else {}
    if samples is not None:
        found["sample"] = samples
    if not found:
        raise ExportError(
            f"there is nothing to compare the exported model on: {probe}. Pass some real inputs, "
            "samples=..., or --samples to a command"
        )
    return found


def load_exported(path: str | os.PathLike[str], bundle: Bundle, device: str | None) -> Any:
    """The model that a bundle holds; None without one."""
    if bundle.model is None or bundle.exported is None:
        return None
    source, columns = bundle.exported.reading, bundle.settings.feature_names_in
    reading = None if source is None else msgspec.structs.asdict(source)
    content = bundle.model()
    try:
        model = _make(content, bundle.model_classes, columns, reading, device)
    except InputError as error:
        raise BundleError(f"{path} cannot be loaded: {error}") from error
    if missing := [layer for layer in bundle.activations if layer not in model.layer_names]:
        raise BundleError(f"{path} is damaged: {MODEL} does not give layer {shown(missing[0])}")
    return model


def _make(
    content: bytes, classes: Any, columns: Any, reading: Any, device: str | None = None
) -> Any:
    try:
        with unforked():
            from iknow.models.onnx.model import PortableModel
    except ImportError as error:
        raise MissingExtraError("a bundle that holds its model", "onnx") from error
    listed = None if columns is None else [str(name) for name in columns]
    return PortableModel(content, classes, listed, device, MODEL, reading)


def _compare(
    one: Any, other: Any, inputs: Any, word: str, allowed: Distances, farthest: Distances
) -> int:
    """Compare two classifiers on some inputs; update the distances, return the number of samples.

    allowed: the tolerances; those that are missing are set by what the first classifier says.
    """
    layers, size = one.layers_, one.batch_size
    before = observe_inputs(one.model_, one.model_.prepare(inputs), layers, size)
    try:
        prepared = other.model_.prepare(inputs)
        after = observe_inputs(other.model_, prepared, layers, size)
        alone = observe_inputs(other.model_, take_rows(prepared, np.arange(1)), layers)
    except IknowError as error:
        raise ExportError(f"the exported model fails on the {word}s: {error}") from error
    for name, table in tables_of(before).items():
        tolerance = allowed.setdefault(name, find_tolerance(table))
        for again in (tables_of(after)[name], tables_of(alone)[name]):
            if again.shape[1] != table.shape[1]:
                raise ExportError(
                    f"the exported model gives {again.shape[1]} numbers for {name}, not "
                    f"{table.shape[1]}"
                )
            distances = row_distances(table[: len(again)], again)
            row, distance = int(distances.argmax()), float(distances.max())
            farthest[name] = max(distance, farthest.get(name, 0.0))
            if distance > tolerance:
                raise ExportError(
                    f"the exported model differs on {word} {row}: {name} are {distance:.3g} away "
                    f"from the original's, where {tolerance:.3g} is allowed"
                )
    labels = np.array([*one.classes_.tolist(), "nothing"], dtype=object)  # -1 is no belief
    _check_same(labels[before.belief], labels[after.belief], "believes", word)
    if hasattr(one, "neighborhoods_"):
        mine, theirs = one.assess(inputs), other.assess(inputs)
        _check_same(mine.assertion, theirs.assertion, "asserts", word)
        if mine.levels is not None:
            _check_same(mine.level, theirs.level, "has the level", word)
        _check_same(mine.reason, theirs.reason, "gives the reason", word)
    return len(before)


def _check_same(before: Any, after: Any, verb: str, word: str) -> None:
    """Refuse answers of which one differs; before, after: of shape (n,)."""
    same = np.asarray(before == after)
    if np.asarray(before).dtype.kind == "f":
        same |= np.isnan(before) & np.isnan(after)
    different = np.flatnonzero(~same)
    if not len(different):
        return
    row = int(different[0])
    pair = [shown_name(getattr(each[row], "name", each[row])) for each in (before, after)]
    raise ExportError(
        f"the exported model differs on {word} {row}: it {verb} {pair[1]}, the original {pair[0]} "
        f"({word}s that differ: {len(different)} of {len(before)}). A sample on the very boundary, "
        "or a copy of a training sample, may change by rounding: fit and tune around the exported "
        "model itself, iknow.models.export.as_portable(ec.model_, ec.layers_, X)"
    )
