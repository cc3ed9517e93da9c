"""Decoding: the body of a request, in one of several formats, as rows.

Nothing in a body can execute code, and what it unpacks to is bounded before it is unpacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.npy import decode_array
from iknow.core.text import names, shown
from iknow.errors import InputError, MissingExtraError
from iknow.service.pydantic_core import parse_json
from iknow.service.refusal import Refusal
from iknow.service.rows import Rows, as_numbers, as_rows
from iknow.tables.roles import Roles
from iknow.tables.table import decoding, join_tables

JSON = "application/json"
NPY = "application/x-npy"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"
PARQUET = "application/vnd.apache.parquet"
Decoder = Callable[[bytes, int, int], Rows]
KEYS = ("rows", "inputs")
MOST_UNPACKED = 32
"""Times that a compressed table may unpack to, compared with the largest body."""


def decode(body: bytes, content_type: str, most_rows: int, most_body: int) -> Rows:
    """The rows of a body.

    Raises:
        Refusal: 400, 413, 415 or 422, with what is wrong.
    """
    kind = _kind(content_type)
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise Refusal(
            415, f"the content type must be one of {names(DECODERS)}; got {shown(kind, 80)}"
        )
    if not body:
        raise Refusal(400, "the body is empty: send rows")
    try:
        rows = decoder(body, most_rows, most_body)
    except Refusal:
        raise
    except MissingExtraError as error:
        raise Refusal(415, f"{kind} cannot be read here: {error}") from error
    except InputError as error:
        raise Refusal(422, str(error)) from error
    if not len(rows):
        raise Refusal(422, "there are no rows: send at least one")
    _check_rows(len(rows), most_rows)
    return rows


def is_table(content_type: str) -> bool:
    """Whether a body of this type is a compressed table, which takes long to unpack."""
    return _kind(content_type) in (ARROW_STREAM, ARROW_FILE, PARQUET)


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _check_rows(n_rows: int, most_rows: int) -> None:
    if n_rows > most_rows:
        raise Refusal(
            413, f"a request may have {most_rows:,} rows; got {n_rows:,}: send several requests"
        )


def _from_json(body: bytes, most_rows: int, most_body: int) -> Rows:
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


def _from_npy(body: bytes, most_rows: int, most_body: int) -> Rows:
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


def _from_table(form: str) -> Decoder:
    def read(body: bytes, most_rows: int, most_body: int) -> Rows:
        try:
            from iknow.tables.pyarrow import batches, columns, messages, sizes
        except ImportError as error:
            raise MissingExtraError("reading tables", "tables") from error
        source = Path("the body")
        for size in getattr(sizes, f"{form}_sizes")(body, source):
            _check_rows(size.rows, most_rows)
            if size.n_bytes > MOST_UNPACKED * most_body:
                raise Refusal(413, f"the table unpacks to {size.n_bytes:,} bytes: send fewer rows")
        content = messages.as_stream(body) if form == "arrow" else body
        with getattr(batches, f"open_{form}")(BytesIO(content), source) as opened:
            parts = list(columns.read_parts(opened, source, Roles(), mixed=True, labelled=False))
        if not parts:
            raise Refusal(422, "the table has no rows: send at least one")
        table = join_tables(parts)
        found = table.features
        if hasattr(found, "iloc"):
            with decoding(source):  # only now is every text of a column decoded
                return Rows({str(name): found[name].to_numpy() for name in found.columns})
        if table.feature_names is None:
            return Rows(as_numbers(found))
        return Rows({name: found[:, i] for i, name in enumerate(table.feature_names)})

    return read


DECODERS: dict[str, Decoder] = {
    JSON: _from_json,
    NPY: _from_npy,
    ARROW_STREAM: _from_table("arrow"),
    ARROW_FILE: _from_table("arrow"),
    PARQUET: _from_table("parquet"),
}
