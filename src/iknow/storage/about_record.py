"""What a bundle is, in the words of its maker and in numbers.

It answers what somebody who finds a bundle asks first: what is it, when was it made, with which
model and how much data? Texts are bounded and hold no control characters, so that they can be
printed as they are.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np

from iknow.core.text import name as short
from iknow.core.text import shown, visible
from iknow.errors import BundleError, InputError
from iknow.models.inputs import Fields
from iknow.models.probe import Probe
from iknow.storage.schema import (
    check_list,
    check_mapping,
    check_record,
    check_text,
    check_whole,
    misfit,
)

LONGEST_NAME = 200
LONGEST_NOTE = 20_000
MOST_INPUTS = 1_000
MOST_AXES = 32
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
KEYS = ("name", "version", "note", "created", "model", "per_class", "inputs")
NOT_THE_ORIGINAL = ("PrecomputedModel", "PortableModel")
"""Adapters of a loaded classifier that say nothing about the model it was made with."""
SINGLE = "X"
"""The name of a model's inputs if they have no names of their own."""


def make_about(
    classifier: Any, name: str | None, note: str | None, version: str | None
) -> dict[str, Any]:
    """The record about a fitted classifier; None keeps what it was loaded with.

    A version is not kept: what is saved again is another bundle.
    """
    before = classifier.plan_.bundled.get("about", {})
    labels = classifier.indexes_[classifier.layers_[0]].labels
    counts = np.bincount(labels, minlength=len(classifier.classes_))
    inputs = _shapes_of_inputs(classifier)
    ran_elsewhere = bool(before) and type(classifier.model_).__name__ in NOT_THE_ORIGINAL
    if ran_elsewhere and inputs is None:
        inputs = before["inputs"]
    return {
        "name": check_name(before.get("name") if name is None else name),
        "version": check_version(version),
        "note": check_note(before.get("note", "") if note is None else note),
        "created": now(),
        "model": before["model"] if ran_elsewhere else name_model(classifier.model),
        "per_class": counts.tolist(),
        "inputs": inputs,
    }


def check_about(record: object, n_rows: int, n_classes: int) -> dict[str, Any]:
    """A record of `make_about`, for a bundle of this size."""
    where = "settings.about"
    about = check_record(record, where, KEYS)
    try:
        check_name(about["name"])
        check_version(about["version"])
        check_note(about["note"])
    except InputError as error:
        raise BundleError(f"{where}: {error}") from error
    model = check_text(about["model"], f"{where}.model")
    if model != short(model):
        raise misfit(f"{where}.model", f"visible text of at most {LONGEST_NAME} characters", model)
    _check_created(about["created"])
    counts = check_list(about["per_class"], f"{where}.per_class")
    for count in counts:
        check_whole(count, f"a number in {where}.per_class", 0)
    if len(counts) != n_classes or sum(counts) != n_rows:
        expected = f"{n_classes} numbers that add up to {n_rows}"
        raise misfit(f"{where}.per_class", expected, f"{len(counts)} of {sum(counts)}")
    if about["inputs"] is not None:
        _check_inputs(about["inputs"], f"{where}.inputs")
    return about


def name_model(model: Any) -> str:
    """What kind of model it is, in a few words."""
    if (source := getattr(model, "source", None)) is not None:  # of an adapter
        return name_model(source)
    if isinstance(model, (str, os.PathLike)):
        return short(f"ONNX file {os.path.basename(os.fspath(model))}")
    kind = type(model).__name__
    if kind == "FrozenEstimator":
        return name_model(model.estimator)
    steps = getattr(model, "steps", None)
    if isinstance(steps, list) and all(
        isinstance(each, tuple) and len(each) == 2 for each in steps
    ):
        return short(f"{kind}({', '.join(type(step).__name__ for _, step in steps)})")
    is_function = not hasattr(model, "predict") and hasattr(model, "__qualname__")
    return short(f"function {model.__qualname__}" if is_function else kind)


def now() -> str:
    """The time in UTC to the second; SOURCE_DATE_EPOCH, seconds since 1970, takes its place."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.now(UTC).replace(microsecond=0)
    if given is not None:
        try:
            moment = datetime.fromtimestamp(int(given), UTC)
        except (ValueError, OverflowError, OSError) as error:
            raise InputError(
                f"SOURCE_DATE_EPOCH must be seconds since 1970; it is {shown(given)}"
            ) from error
    return moment.isoformat().replace("+00:00", "Z")


def check_name(name: Any) -> str | None:
    """The name of a bundle: one line of visible text, None for an empty one."""
    if name is None or (isinstance(name, str) and not name):
        return None
    if not isinstance(name, str) or visible(name) != name or len(name) > LONGEST_NAME:
        raise InputError(
            f"name must be one line of text, up to {LONGEST_NAME} characters; got {shown(name)}"
        )
    return name


def check_version(version: Any) -> str | None:
    """The version of a bundle, which can be a part of an address; None for an empty one."""
    if version is None or (isinstance(version, str) and not version):
        return None
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise InputError(
            "version must be up to 64 letters, digits, dots, hyphens and underscores, a letter or "
            f"digit first, such as '1.3' or '2026-11-01'; got {shown(version, 80)}"
        )
    return version


def check_note(note: Any) -> str:
    """The note of a bundle: lines of visible text."""
    expected = f"note must be text of up to {LONGEST_NOTE:,} characters"
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        raise InputError(f"{expected}; got {shown(note, 80)}")
    lines = note.replace("\r\n", "\n").split("\n")
    if any(visible(line) != line for line in (line.replace("\t", " ") for line in lines)):
        raise InputError(f"{expected} without control characters; got {shown(note, 80)}")
    return "\n".join(lines)


def _check_created(created: object) -> None:
    where = "settings.about.created"
    text = check_text(created, where)
    try:
        fits = bool(CREATED.fullmatch(text)) and datetime.fromisoformat(text)
    except ValueError:
        fits = False
    if not fits:
        raise misfit(where, "a time such as 2026-01-31T12:00:00Z", text)


def _shapes_of_inputs(classifier: Any) -> dict[str, list[int]] | None:
    """The shape of one sample, by the names of the model's inputs; None if unknown."""
    probe, n_features = classifier.probe_, getattr(classifier, "n_features_in_", None)
    if isinstance(probe, Probe):
        inputs = probe.inputs
        arrays = inputs.arrays if isinstance(inputs, Fields) else {SINGLE: inputs}
        if len(arrays) <= MOST_INPUTS and all(hasattr(each, "shape") for each in arrays.values()):
            return {short(name): [int(n) for n in each.shape[1:]] for name, each in arrays.items()}
    return None if n_features is None else {SINGLE: [int(n_features)]}


def _check_inputs(inputs: object, where: str) -> None:
    shapes = check_mapping(inputs, where)
    if len(shapes) > MOST_INPUTS:
        raise misfit(where, f"the shapes of at most {MOST_INPUTS} inputs", len(shapes))
    for name, shape in shapes.items():
        if len(check_list(shape, f"a shape in {where}")) > MOST_AXES or name != short(name):
            raise misfit(where, f"shapes of at most {MOST_AXES} axes, by name", name)
        for size in shape:
            check_whole(size, f"a size in {where}", 0)
