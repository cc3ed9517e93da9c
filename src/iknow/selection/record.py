"""Levels as plain values for JSON, and back, bit for bit.

JSON writes numbers in decimals and has no infinity, so each array of reference values is one text:
the base64 of its float64 values, little-endian, as `numpy.frombuffer` reads them. Reading trusts
nothing: a level counts reference values by bisection, which is right only if they ascend.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.level import Levels, Reference
from iknow.core.quorum import check_quorum
from iknow.core.text import as_flag, as_real, names, shown
from iknow.errors import InputError

KEYS = ("layers", "quorum", "nearness", "clarity", "confidence", "from_probabilities")
LAYER_KEYS = ("own", "ratio")


def levels_to_dict(levels: Levels) -> dict[str, Any]:
    """Levels as plain values; `levels_from_dict` reads them back."""
    return {
        "layers": {
            layer: {name: to_text(getattr(reference, name)) for name in LAYER_KEYS}
            for layer, reference in levels.layers.items()
        },
        "quorum": list(levels.quorum),
        "nearness": levels.nearness,
        "clarity": levels.clarity,
        "confidence": None if levels.confidence is None else to_text(levels.confidence),
        "from_probabilities": levels.from_probabilities,
    }


def levels_from_dict(record: Any) -> Levels:
    """The levels that `levels_to_dict` wrote; an `InputError` names what is wrong."""
    found = check_entries(record, KEYS, "levels")
    if not isinstance(found["layers"], Mapping):
        raise InputError(f"the layers of levels must be an object; got {shown(found['layers'])}")
    layers = {}
    for layer, value in found["layers"].items():
        where = f"the reference in layer {shown(layer)}"
        texts = check_entries(value, LAYER_KEYS, where)
        own, ratio = (_ascending(texts[name], f"{where}: {name}", 0.0) for name in LAYER_KEYS)
        layers[layer] = Reference(own, ratio)
    confidence = found["confidence"]
    if confidence is not None:
        confidence = _ascending(confidence, "the confidence of reference samples", -np.inf)
    return Levels(
        layers,
        quorum=check_quorum(found["quorum"]),
        nearness=as_real(found["nearness"], "nearness", "be a number"),
        clarity=as_flag(found["clarity"], "clarity"),
        confidence=confidence,
        from_probabilities=as_flag(found["from_probabilities"], "from_probabilities"),
    )


def check_entries(record: Any, keys: tuple[str, ...], where: str) -> Mapping[str, Any]:
    if not isinstance(record, Mapping) or set(record) != set(keys):
        came = names(list(record)) if isinstance(record, Mapping) else shown(record)
        raise InputError(f"{where} must have the entries {names(keys)}; got {came}")
    return record


def to_text(values: NDArray[Any], kind: str = "<f8") -> str:
    """The base64 of an array's values, little-endian."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def from_text(text: Any, where: str, kind: str = "<f8") -> NDArray[Any]:
    """The values that `to_text` wrote; an `InputError` for anything else."""
    try:
        values = np.frombuffer(base64.b64decode(text.encode("ascii"), validate=True), dtype=kind)
        values = values.astype(np.dtype(kind).newbyteorder("="))
    except (AttributeError, ValueError):
        values = np.empty(0)
    if not len(values) or to_text(values, kind) != text:  # base64 may be written in several ways
        raise InputError(f"{where} must be {kind} values as base64; got {shown(text)}")
    return values


def _ascending(text: Any, where: str, least: float) -> Floats:
    """The values of a text: ascending, none below `least`, none NaN."""
    values: Floats = from_text(text, where)
    if not (values >= least).all() or not (values[1:] >= values[:-1]).all():
        raise InputError(f"{where} must be ascending numbers, none below {least:g} and none NaN")
    return values
