"""Decoding: the body of a request, JSON or .npy, as rows. Nothing in it can execute code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json, to_json

from iknow.core.text import names, shown
from iknow.npy import decode_array
from iknow.serve.refusal import Refusal
from iknow.serve.rows import Rows, as_rows

JSON = "application/json"
NPY = "application/x-npy"
KEYS = ("rows", "inputs")


def parse_json(body: bytes) -> Any:
    """What a JSON text holds; NaN and Infinity are numbers, as Python writes them."""
    try:
        return from_json(body, allow_inf_nan=True, cache_strings="keys")
    except ValueError as error:
        raise Refusal(400, f"the body is no JSON: {error}") from error


def write_json(value: Any) -> bytes:
    """The JSON text of plain values; numbers that JSON does not have become null."""
    return to_json(value, inf_nan_mode="null")


def decode(body: bytes, content_type: str, most_rows: int) -> Rows:
    """The rows of a body.

    Raises:
        Refusal: 400, 413, 415 or 422, with what is wrong.
    """
    kind = content_type.partition(";")[0].strip().lower()
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise Refusal(
            415, f"the content type must be one of {names(DECODERS)}; got {shown(kind, 80)}"
        )
    if not body:
        raise Refusal(400, "the body is empty: send rows")
    rows = decoder(body)
    if not len(rows):
        raise Refusal(422, "there are no rows: send at least one")
    if len(rows) > most_rows:
        raise Refusal(
            413, f"a request may have {most_rows:,} rows; got {len(rows):,}: send several requests"
        )
    return rows


def _from_json(body: bytes) -> Rows:
    said = parse_json(body)
    if not isinstance(said, dict) or len(said) != 1 or next(iter(said)) not in KEYS:
        got = names(said) if isinstance(said, dict) else shown(said, 60)
        raise Refusal(
            422, f'expected an object {{"rows": [...]}} or {{"inputs": {{...}}}}; got {got}'
        )
    return as_rows(said["rows"]) if "rows" in said else _from_inputs(said["inputs"])


def _from_inputs(inputs: Any) -> Rows:
    """Arrays by the names of a model's inputs."""
    if not isinstance(inputs, Mapping) or not inputs:
        raise Refusal(422, "inputs must be an object of lists by the names of the model's inputs")
    arrays = {name: as_rows(values) for name, values in inputs.items()}
    lengths = {name: len(each) for name, each in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise Refusal(422, f"all inputs must have the same number of rows; got {lengths}")
    if any(isinstance(each.values, Mapping) for each in arrays.values()):
        raise Refusal(422, "each of the inputs must be a list of numbers, lists or texts")
    return Rows({name: np.asarray(each.values) for name, each in arrays.items()})


def _from_npy(body: bytes) -> Rows:
    try:
        array = decode_array(np.frombuffer(body, dtype=np.uint8), by_columns=True)
    except ValueError as error:
        raise Refusal(400, f"the body is no .npy array: {error}") from error
    if array.dtype.kind == "U" and array.ndim == 1:
        _check_characters(array)
        return Rows([str(text) for text in array.tolist()])
    if array.dtype.kind not in "biuf":
        raise Refusal(422, f"the array must hold numbers, or text in one axis; got {array.dtype}")
    if array.ndim < 2:
        raise Refusal(422, f"the array must have a row for each sample; got shape {array.shape}")
    return Rows(np.array(array))  # a copy: aligned, and not the body itself


def _check_characters(texts: NDArray[Any]) -> None:
    """Refuse numbers that are no characters: numpy makes texts of them that crash Python."""
    try:
        texts.tobytes().decode("utf-32-le")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the array holds text that is not Unicode: {error.reason}") from error


DECODERS: dict[str, Callable[[bytes], Rows]] = {JSON: _from_json, NPY: _from_npy}
