"""Levels as plain values for JSON, and back, bit for bit.

JSON writes numbers in decimals and has no infinity, so each array of reference values is one text:
the base64 of its float64 values, little-endian, as `numpy.frombuffer` reads them. Reading trusts
nothing: a level counts reference values by bisection, which is right only if they ascend.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats
from iknow.core.level import CLARITY, CONFIDENCE, NEARNESS, Levels, Voice
from iknow.core.quorum import check_quorum
from iknow.core.text import as_flag, as_real, names, shown
from iknow.errors import InputError

RANGES = {NEARNESS: (-np.inf, 0.0), CLARITY: (0.0, np.inf), CONFIDENCE: (-np.inf, np.inf)}
"""Between what the values of a voice lie."""


def levels_to_dict(levels: Levels) -> dict[str, Any]:
    """Levels as plain values; `levels_from_dict` reads them back."""
    voices = [{**vars(voice), "reference": to_text(voice.reference)} for voice in levels.voices]
    known = {"quorum": list(levels.quorum), "from_probabilities": levels.from_probabilities}
    return {"voices": voices, **known}


def levels_from_dict(record: Any) -> Levels:
    """The levels that `levels_to_dict` wrote; an `InputError` names what is wrong."""
    found = check_entries(record, Levels, "levels")
    if not isinstance(found["voices"], list):
        raise InputError(f"the voices of levels must be a list; got {shown(found['voices'])}")
    voices = [_read_voice(each) for each in found["voices"]]
    speakers = [(voice.layer, voice.name) for voice in voices]
    mute = {layer for layer, _ in speakers if (layer, NEARNESS) not in speakers} - {None}
    if len(set(speakers)) < len(speakers) or mute:
        raise InputError(
            "in levels each voice speaks once, and nearness in every layer; got "
            f"{names(map(str, voices))}"
        )
    quorum = check_quorum(found["quorum"])
    return Levels(tuple(voices), quorum, as_flag(found["from_probabilities"], "from_probabilities"))


def _read_voice(record: Any) -> Voice:
    found = check_entries(record, Voice, "a voice")
    name, layer, kind = found["name"], found["layer"], found["kind"]
    if not isinstance(name, str) or name not in RANGES or kind not in ("what", "seen"):
        raise InputError(
            f"a voice must be {names(RANGES)}; got {shown(name)} of kind {shown(kind)}"
        )
    if not (layer is None if name == CONFIDENCE else isinstance(layer, str)):
        raise InputError(f"{name} does not speak in layer {shown(layer)}")
    where = f"the reference of {name} in layer {shown(layer)}"
    values: Floats = from_text(found["reference"], where)
    low, high = RANGES[name]
    if not ((values >= low) & (values <= high)).all() or not (values[1:] >= values[:-1]).all():
        raise InputError(f"{where} must be ascending numbers from {low:g} to {high:g}, none NaN")
    return Voice(name, layer, values, as_real(found["budget"], "a budget", "be a number"), kind)


def check_entries(record: Any, kind: type, where: str) -> Mapping[str, Any]:
    """A record with an entry for each field of a dataclass, and no other."""
    keys = [field.name for field in fields(kind) if field.init]
    if not isinstance(record, Mapping):
        raise InputError(f"{where} must have the entries {names(keys)}; got {shown(record)}")
    if wrong := sorted(set(record) ^ set(keys), key=str):
        problem = "is missing" if wrong[0] in keys else "does not belong in it"
        raise InputError(
            f"{where} must have the entries {names(keys)}: {shown(wrong[0])} {problem}"
        )
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
