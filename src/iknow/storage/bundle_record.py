"""A bundle as plain values and arrays, and back; any wrong value raises `BundleError`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import numpy as np

from iknow.core.arrays import Floats32, Ints, Labels
from iknow.core.quorum import Quorum
from iknow.core.rule import Rule
from iknow.errors import BundleError, InputError
from iknow.metrics import Metric, metric_from_dict, metric_to_dict
from iknow.rules import rule_from_dict, rule_to_dict
from iknow.search.index import check_activations
from iknow.storage.archive import LONGEST_NAME
from iknow.storage.change import Change, Logged
from iknow.storage.label_record import classes_from_dict, classes_to_dict
from iknow.storage.log_record import IDS, log_from_record, log_to_record
from iknow.storage.schema import check_list, check_mapping, check_record, check_text, misfit

SMALL_QUORUM = 100
"""A quorum that costs little, even if a small training set cannot meet it."""
LAYER_KEYS = ("metric", "metric_arrays", "neighborhood")
FORMAT = 8
MODEL = "model.onnx"
PART = re.compile(r"[A-Za-z0-9_]{1,100}")


@dataclass(frozen=True, eq=False)
class Bundle:
    """The content of a bundle.

    classes: of shape (n_classes,). labels, rows: of shape (n_rows,). activations: for each layer,
    of shape (n_rows, n_features). settings: plain values of the classifier. probe: small arrays of
    any shape, read at once. check: call it before each use of the other arrays of a bundle that was
    read; it refuses damaged ones. model: gives the bytes of the model's ONNX file, if the bundle
    holds it, and exported says how near it comes to the original (`exported_record`). log: changes
    that the arrays hold already; changes: those that follow, in segments.
    format, version, n_bytes, sha256, n_torn: of the file it was read from, the version of iknow
    that wrote it, its size, the digest that seals all of it (of its manifest or, if there are
    changes, of the last segment), and the bytes at its end that an interrupted writer left.
    """

    classes: Labels
    labels: Ints
    rows: Ints
    activations: Mapping[str, Floats32]
    metrics: Mapping[str, Metric]
    neighborhoods: Mapping[str, Rule]
    settings: Mapping[str, Any]
    probe: Mapping[str, Any] = field(default_factory=dict)
    check: Callable[[], None] | None = None
    model: Callable[[], bytes] | None = None
    exported: Mapping[str, Any] | None = None
    log: tuple[Logged, ...] = ()
    changes: tuple[Change, ...] = ()
    format: int = FORMAT
    version: str = ""
    n_bytes: int = 0
    sha256: str = ""
    n_torn: int = 0

    @property
    def model_classes(self) -> Labels:
        """The classes that the model scores: the others came with changes."""
        later = sum(len(each.classes) for each in self.log)
        return self.classes[: len(self.classes) - later]


def to_record(bundle: Bundle) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest's record of a bundle, and its arrays by their names in the archive."""
    arrays: dict[str, Any] = {
        "labels.npy": np.asarray(bundle.labels, dtype="<i8"),
        "rows.npy": np.asarray(bundle.rows, dtype="<i8"),
    }
    layers = {}
    for layer, values in bundle.activations.items():
        metric, rule = bundle.metrics[layer], bundle.neighborhoods.get(layer)
        layers[layer] = {
            "metric": metric_to_dict(metric),
            "metric_arrays": list(metric.arrays()),
            "neighborhood": None if rule is None else rule_to_dict(rule),
        }
        arrays[name_array(layer, "activations")] = np.asarray(values, dtype="<f4")
        for part, array in metric.arrays().items():
            arrays[name_array(layer, f"metric-{part}")] = np.asarray(array, dtype="<f8")
    for name, array in bundle.probe.items():
        arrays[f"probe/{_escape(name)}.npy"] = np.asarray(array)
    log, numbers = log_to_record(bundle.log)
    arrays |= numbers
    record = {
        "classes": classes_to_dict(bundle.classes),
        "layers": layers,
        "probe": list(bundle.probe),
        "settings": dict(bundle.settings),
        "changes": log,
    }
    return record, arrays


def name_arrays(manifest: Mapping[str, Any]) -> list[str]:
    """The names in the archive of all arrays that belong to a manifest."""
    names = ["labels.npy", "rows.npy"]
    for layer, value in check_mapping(manifest["layers"], "layers").items():
        record = check_record(value, f"layer {layer[:80]!r}", LAYER_KEYS)
        parts = check_list(record["metric_arrays"], "metric_arrays")
        for part in parts:
            if not PART.fullmatch(check_text(part, "the name of a metric's array")):
                raise misfit("the name of a metric's array", "letters and digits", part)
        names += [
            name_array(layer, part) for part in ("activations", *(f"metric-{p}" for p in parts))
        ]
    for name in check_list(manifest["probe"], "probe"):
        names.append(f"probe/{_escape(check_text(name, 'the name of a probe'))}.npy")
    names += [IDS] if check_list(manifest["changes"], "changes") else []
    if len(set(names)) != len(names):
        raise BundleError("two arrays have the same name")
    return names


def from_record(manifest: Mapping[str, Any], arrays: Mapping[str, Any]) -> Bundle:
    """The bundle of a manifest and its arrays; `check_values` checks the large arrays."""
    classes = classes_from_dict(manifest["classes"])
    layers = manifest["layers"]
    if not layers:
        raise BundleError("layers must name at least one layer; it is empty")
    bundle = Bundle(
        classes=classes,
        labels=arrays["labels.npy"],
        rows=arrays["rows.npy"],
        activations={layer: arrays[name_array(layer, "activations")] for layer in layers},
        metrics={layer: _make_metric(layer, layers[layer], arrays) for layer in layers},
        neighborhoods={
            layer: _make_rule(layer, record["neighborhood"])
            for layer, record in layers.items()
            if record["neighborhood"] is not None
        },
        settings=check_mapping(manifest["settings"], "settings"),
        probe={name: arrays[f"probe/{_escape(name)}.npy"] for name in manifest["probe"]},
        log=log_from_record(manifest["changes"], arrays),
        format=manifest["format"],
        version=check_text(manifest["iknow"], "iknow"),
    )
    _check_shapes(bundle)
    return bundle


def check_values(bundle: Bundle) -> None:
    """Check the values of the large arrays, which reads them."""
    labels, rows, n_classes = bundle.labels, bundle.rows, len(bundle.classes)
    if len(labels) and not 0 <= labels[0] <= labels[-1] < n_classes:
        raise BundleError(f"labels.npy must hold class codes from 0 to {n_classes - 1}")
    if not (labels[1:] >= labels[:-1]).all():
        raise BundleError("labels.npy must be ascending")
    numbers = np.sort(rows)
    if len(rows) and numbers[0] < 0:
        raise BundleError("rows.npy must hold whole numbers >= 0")
    if not (numbers[1:] > numbers[:-1]).all():
        raise BundleError("rows.npy must not contain a number twice")
    for layer, points in bundle.activations.items():
        try:
            check_activations(points, f"the activations of layer {layer[:80]!r}")
        except InputError as error:
            raise BundleError(str(error)) from error


def check_quorum_fits(quorum: Quorum, n_rows: int, where: str) -> None:
    """Refuse a quorum that would take unbounded memory to ask about."""
    if max(quorum) > max(n_rows, SMALL_QUORUM):
        raise BundleError(f"{where} has a quorum of {max(quorum)}, more than its {n_rows} rows")


def _check_shapes(bundle: Bundle) -> None:
    """Check that the arrays fit each other, without reading them."""
    n_rows = len(bundle.labels) if bundle.labels.ndim else 1
    for name, values in (("labels.npy", bundle.labels), ("rows.npy", bundle.rows)):
        if values.dtype != np.dtype("<i8") or values.shape != (n_rows,):
            raise BundleError(
                f"{name} must hold {n_rows} 64-bit integers; it has shape {values.shape} and dtype "
                f"{values.dtype}"
            )
    if n_rows == 0:
        raise BundleError("labels.npy must hold at least one label; it is empty")
    for layer, points in bundle.activations.items():
        where, metric = f"layer {layer[:80]!r}", bundle.metrics[layer]
        if points.dtype != np.dtype("<f4") or points.ndim != 2:
            raise BundleError(
                f"{where} must hold a 2-D array of 32-bit floats; it has shape {points.shape} and "
                f"dtype {points.dtype}"
            )
        if points.shape[1] == 0:
            raise BundleError(f"{where} must have at least one feature; it has none")
        if len(points) != n_rows:
            raise BundleError(f"{where} has {len(points)} rows, not {n_rows}")
        if metric.width not in (None, points.shape[1]):
            raise BundleError(
                f"{where} has {points.shape[1]} features; its metric has {metric.width}"
            )
    for layer, rule in bundle.neighborhoods.items():
        if rule.n_neighbors > n_rows:
            raise BundleError(f"layer {layer[:80]!r} asks for more neighbors than there are rows")
        check_quorum_fits(rule.quorum, n_rows, f"layer {layer[:80]!r}")


def _make_metric(layer: str, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Metric:
    where = f"the metric of layer {layer[:80]!r}"
    parts = {part: arrays[name_array(layer, f"metric-{part}")] for part in record["metric_arrays"]}
    for part, array in parts.items():
        if array.dtype != np.dtype("<f8"):
            raise BundleError(f"{where} must have 64-bit floats; {part} has {array.dtype}")
    try:
        metric = metric_from_dict(check_mapping(record["metric"], where), parts)
    except ValueError as error:
        raise BundleError(f"{where} cannot be made: {str(error)[:200]}") from error
    if metric.to_dict() != record["metric"] or set(metric.arrays()) != set(parts):
        raise BundleError(f"{where} has more entries or arrays than it needs")
    return metric


def _make_rule(layer: str, record: object) -> Rule:
    where = f"the rule of layer {layer[:80]!r}"
    try:
        return rule_from_dict(check_mapping(record, where))
    except ValueError as error:
        raise BundleError(f"{where} cannot be made: {str(error)[:200]}") from error


def name_array(layer: str, array: str) -> str:
    """The name of a layer's array in an archive."""
    return f"layers/{_escape(layer)}/{array}.npy"


def _escape(name: str) -> str:
    """A name as part of a path: separators and a leading dot are escaped."""
    if not isinstance(name, str):
        raise InputError(f"layer names must be strings to be saved; got {name!r}")
    escaped = quote(name, safe="", errors="surrogatepass")
    if len(escaped) > LONGEST_NAME - 200:
        raise InputError(f"the name {name[:80]!r}... is too long to be saved")
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped or "%"
