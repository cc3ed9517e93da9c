"""The Open Inference Protocol, version 2: tensors in, tensors out, as KServe and Triton speak it.

A tensor's data is in the JSON text, or follows it as bytes (Triton's binary extension): the header
`Inference-Header-Content-Length` says where the text ends, `binary_data_size` how many bytes each
tensor takes. Text is BYTES: each preceded by its length in four bytes.

    inputs     one tensor of the rows, or one for each of the model's inputs
    outputs    belief, assertion, reason, level, and scores if they are asked for
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF
from iknow.core.text import names, shown
from iknow.serve.decoding import parse_json, write_json
from iknow.serve.refusal import Refusal
from iknow.serve.rows import Rows
from iknow.serve.said import Said

DTYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
MOST_AXES = 8
LENGTH_HEADER = "Inference-Header-Content-Length"
OUTPUTS = ("belief", "assertion", "reason", "level", "scores")


def read_tensor(tensor: Any, rest: memoryview, tensors: dict[str, NDArray[Any]]) -> int:
    """Add a tensor to those read; the number of bytes it took behind the text."""
    keys = ("name", "shape", "datatype")
    if not isinstance(tensor, Mapping) or any(key not in tensor for key in keys):
        raise Refusal(422, f"a tensor needs {names(keys)} and data; got {shown(tensor, 80)}")
    name, shape, kind = (tensor[key] for key in keys)
    if not isinstance(name, str) or name in tensors:
        raise Refusal(422, f"each tensor needs a name of its own; got {shown(name, 60)}")
    if not isinstance(kind, str) or (kind not in DTYPES and kind != "BYTES"):
        raise Refusal(
            422, f"the datatype must be one of {names([*DTYPES, 'BYTES'])}; got {shown(kind, 60)}"
        )
    size = _check_shape(shape, name)
    parameters = tensor.get("parameters") or {}
    taken = parameters.get("binary_data_size") if isinstance(parameters, Mapping) else None
    if taken is not None:
        taken = as_length(taken, len(rest))
        values = _from_bytes(bytes(rest[:taken]), kind, size, name)
    else:
        taken, values = 0, _from_list(tensor.get("data"), kind, size, name)
    tensors[name] = values.reshape(shape)
    return taken


def datatype(array: NDArray[Any]) -> str:
    if array.dtype.kind == "O":
        return "BYTES"
    return next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)


def to_bytes(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [text.encode() for text in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def as_length(value: Any, most: int) -> int:
    """A number of bytes, from a header or a parameter."""
    digits = str(value)
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        raise Refusal(400, f"a number of bytes was expected; got {shown(value, 60)}")
    if int(digits) > most:
        raise Refusal(400, f"{int(digits)} bytes are announced, and {most} are there")
    return int(digits)


def _check_shape(shape: Any, name: str) -> int:
    is_shape = isinstance(shape, list) and 1 <= len(shape) <= MOST_AXES
    if not is_shape or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in shape):
        raise Refusal(
            422, f"the shape of {shown(name, 60)} must be up to {MOST_AXES} whole numbers"
        )
    return prod(shape)


def _from_bytes(content: bytes, kind: str, size: int, name: str) -> NDArray[Any]:
    if kind == "BYTES":
        return np.array(_split_texts(content, size, name), dtype=object)
    dtype = np.dtype(DTYPES[kind]).newbyteorder("<")
    if len(content) != size * dtype.itemsize:
        raise Refusal(
            422, f"{shown(name, 60)} takes {size * dtype.itemsize} bytes; got {len(content)}"
        )
    return np.frombuffer(content, dtype).astype(DTYPES[kind])


def _split_texts(content: bytes, size: int, name: str) -> list[str]:
    texts: list[str] = []
    at = 0
    while at + 4 <= len(content) and len(texts) < size:
        (length,) = struct.unpack_from("<I", content, at)
        texts.append(_text(content[at + 4 : at + 4 + length], name))
        at += 4 + length
    if at != len(content) or len(texts) != size:
        raise Refusal(422, f"{shown(name, 60)} must hold {size} texts, each after its length")
    return texts


def _from_list(data: Any, kind: str, size: int, name: str) -> NDArray[Any]:
    if not isinstance(data, list):
        raise Refusal(422, f"{shown(name, 60)} needs data, a list; got {shown(data, 60)}")
    try:
        if kind == "BYTES":
            values = np.array(data, dtype=object)
            strange = [each for each in values.ravel().tolist() if not isinstance(each, str)]
            if strange:
                raise Refusal(
                    422, f"{shown(name, 60)} must hold texts; got {shown(strange[0], 60)}"
                )
        else:
            values = np.array(data, dtype=np.float64 if kind.startswith("FP") else None)
            if values.size and values.dtype.kind not in "biuf":
                raise ValueError
            values = _cast(values, DTYPES[kind])
    except (ValueError, TypeError, OverflowError) as error:
        raise Refusal(422, f"the data of {shown(name, 60)} is no list of {kind}") from error
    if values.size != size:
        raise Refusal(422, f"the shape of {shown(name, 60)} takes {size} values; got {values.size}")
    return values.ravel()


def _cast(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    if np.dtype(dtype).kind != "f" and not np.array_equal(cast, values):
        raise ValueError("a number does not fit")
    return cast


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Refusal(422, f"{shown(name, 60)} holds text that is not UTF-8") from error


@dataclass(frozen=True, eq=False)
class Asked:
    """A request: rows, which outputs are wanted, and which of them as bytes."""

    rows: Rows
    outputs: tuple[str, ...]
    as_bytes: frozenset[str]
    id: str | None


def read_request(body: bytes, text_length: str | None, most_rows: int) -> Asked:
    """A request from its body. text_length: the header that says where the JSON text ends."""
    end = len(body) if text_length is None else as_length(text_length, len(body))
    said = parse_json(body[:end])
    if not isinstance(said, Mapping) or not isinstance(said.get("inputs"), list):
        raise Refusal(422, 'expected an object with "inputs", a list of tensors')
    tensors: dict[str, NDArray[Any]] = {}
    for each in said["inputs"]:
        end += read_tensor(each, memoryview(body)[end:], tensors)
    if end != len(body):
        raise Refusal(400, f"{len(body) - end} bytes follow the last tensor")
    if not tensors:
        raise Refusal(422, "inputs are empty: send a tensor of rows")
    lengths = {name: len(each) for name, each in tensors.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise Refusal(422, f"all tensors need the same number of rows, at least one; got {lengths}")
    n_rows = next(iter(lengths.values()))
    if n_rows > most_rows:
        raise Refusal(413, f"a request may have {most_rows:,} rows; got {n_rows:,}")
    outputs, as_bytes = _read_outputs(said)
    given = said.get("id")
    if given is not None and not isinstance(given, str):
        raise Refusal(422, f"id must be text; got {shown(given, 60)}")
    return Asked(_as_rows(tensors), outputs, as_bytes, given)


def _as_rows(tensors: Mapping[str, NDArray[Any]]) -> Rows:
    """The tensors as rows: one is the rows themselves, several are inputs by name."""
    if len(tensors) > 1:
        return Rows(dict(tensors))
    values = next(iter(tensors.values()))
    if values.dtype.kind != "O":
        return Rows(values)
    if values.size != len(values):
        return Rows(dict(tensors))
    return Rows(values.ravel().tolist())


def _read_outputs(said: Mapping[str, Any]) -> tuple[tuple[str, ...], frozenset[str]]:
    asked = said.get("outputs") or []
    parameters = said.get("parameters") or {}
    if not isinstance(asked, list) or not isinstance(parameters, Mapping):
        raise Refusal(422, "outputs must be a list, and parameters an object")
    everything = parameters.get("binary_data_output") is True
    if not asked:
        usual = OUTPUTS[:-1]
        return usual, frozenset(usual if everything else ())
    wanted, as_bytes = [], set()
    for each in asked:
        name = each.get("name") if isinstance(each, Mapping) else None
        if name not in OUTPUTS:
            raise Refusal(422, f"the outputs are {names(OUTPUTS)}; got {shown(name, 60)}")
        how = each.get("parameters") or {}
        if isinstance(how, Mapping) and how.get("binary_data", everything) is True:
            as_bytes.add(name)
        wanted.append(name)
    return tuple(dict.fromkeys(wanted)), frozenset(as_bytes)


def write_response(
    asked: Asked, said: Said, labels: list[Any], about: Mapping[str, str]
) -> tuple[bytes, int | None]:
    """The body of the response and, if bytes follow its text, the length of the text."""
    tensors, tail = [], b""
    for name, array in _make_outputs(said, labels, asked.outputs).items():
        described: dict[str, Any] = {
            "name": name, "datatype": datatype(array), "shape": list(array.shape),
        }  # fmt: skip
        if name in asked.as_bytes:
            content = to_bytes(array)
            described["parameters"] = {"binary_data_size": len(content)}
            tail += content
        else:
            described["data"] = array.ravel().tolist()
        tensors.append(described)
    text = write_json({**about, "outputs": tensors})
    return text + tail, len(text) if tail else None


def describe_model(
    name: str,
    versions: Sequence[str],
    inputs: Sequence[Mapping[str, Any]],
    labels: list[Any],
    n_scores: int,
) -> dict[str, Any]:
    """What `GET /v2/models/NAME` tells. n_scores: of each row; a class may have come later."""
    kind = "BYTES" if any(isinstance(label, str) for label in labels) else "INT64"
    types = {"belief": kind, "assertion": "BYTES", "reason": "BYTES", "level": "FP64"}
    outputs = [{"name": each, "datatype": types[each], "shape": [-1]} for each in types]
    scores = {"name": "scores", "datatype": "FP64", "shape": [-1, n_scores]}
    return {
        "name": name, "versions": list(versions), "platform": "iknow",
        "inputs": [dict(each) for each in inputs], "outputs": [*outputs, scores],
    }  # fmt: skip


def _make_outputs(said: Said, labels: list[Any], wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
    made: dict[str, NDArray[Any]] = {}
    for name in wanted:
        if name == "belief":
            made[name] = _beliefs(said, labels)
        elif name == "level":
            made[name] = np.full(len(said), np.nan) if said.level is None else said.level
        elif name == "scores":
            made[name] = np.empty((len(said), 0)) if said.scores is None else said.scores
        else:
            codes = said.assertion if name == "assertion" else said.reason
            words = Assertion if name == "assertion" else Reason
            made[name] = np.array([words(code).name for code in codes.tolist()], dtype=object)
    return made


def _beliefs(said: Said, labels: list[Any]) -> NDArray[Any]:
    """Labels, as whole numbers if all are; text "" or -1 where the model gave no answer."""
    numbers = all(isinstance(label, int) and not isinstance(label, bool) for label in labels)
    nothing = -1 if numbers else ""
    found = [nothing if code == NO_BELIEF else labels[code] for code in said.belief.tolist()]
    if numbers:
        return np.array(found, dtype=np.int64)
    return np.array([str(each) for each in found], dtype=object)
