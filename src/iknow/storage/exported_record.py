"""How near a bundle's ONNX model comes to the model that it was made of.

samples    the number of samples that were compared
scores     tolerance and difference: how far apart the scores of a sample may be, and how far
the farthest are, as Euclidean distances
layers     the same for the activations, by layer
sha256     of model.onnx, in the manifest alone
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from iknow.errors import BundleError
from iknow.storage.schema import check_mapping, check_record, check_text, check_whole, misfit

KEYS = ("samples", "scores", "layers", "sha256")
WHERE = "model"


def check_exported(record: object, layers: Collection[str]) -> dict[str, Any] | None:
    """The manifest's record of a model, for a bundle of these layers; None without a model."""
    if record is None:
        return None
    found = check_record(record, WHERE, KEYS)
    check_whole(found["samples"], f"{WHERE}.samples", 1)
    _check_distance(found["scores"], f"{WHERE}.scores")
    compared = check_mapping(found["layers"], f"{WHERE}.layers")
    for distance in compared.values():
        _check_distance(distance, f"an entry of {WHERE}.layers")
    if missing := [layer for layer in layers if layer not in compared]:
        raise BundleError(f"{WHERE}.layers must have layer {missing[0][:80]!r}; it is missing")
    check_text(found["sha256"], f"{WHERE}.sha256")
    return found


def without_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says about the comparison."""
    return {name: value for name, value in record.items() if name != "sha256"}


def _check_distance(value: object, where: str) -> None:
    for name, number in check_record(value, where, ("tolerance", "difference")).items():
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 <= number < math.inf:
            raise misfit(f"{where}.{name}", "a number >= 0", number)
