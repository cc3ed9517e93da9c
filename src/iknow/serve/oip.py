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
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF
from iknow.core.text import names, shown
from iknow.serve.answers import RequestAnswers
from iknow.serve.bodies import ByteBudget, Rows, as_numbers, as_texts, check_count, read_json
from iknow.serve.schema import Number, Refusal
from iknow.serve.served import ServedModel

DTYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
TEXT = "BYTES"
LENGTH_HEADER = "Inference-Header-Content-Length"
OUTPUTS = ("belief", "assertion", "reason", "level", "scores")
Parameters = dict[str, Any] | None


class NamedTensor(Struct, frozen=True):
    """A tensor: its data, unless they follow the text, in the order of its shape."""

    name: str
    shape: Annotated[list[Number], Meta(min_length=1, max_length=8)]
    datatype: str
    parameters: Parameters = None
    data: list[Any] | None = None


class RequestedOutput(Struct, frozen=True):
    """An output that is wanted, by its name."""

    name: str
    parameters: Parameters = None


class InferRequest(Struct, frozen=True):
    """Tensors of rows, and which outputs are wanted."""

    inputs: Annotated[list[NamedTensor], Meta(min_length=1)]
    outputs: list[RequestedOutput] | None = None
    id: str | None = None
    parameters: Parameters = None


@dataclass(frozen=True, eq=False)
class Inference:
    """A request that was read: rows, wanted outputs, which of them as bytes, and its id."""

    rows: Rows
    outputs: tuple[str, ...]
    as_bytes: frozenset[str]
    id: str | None


def read_request(
    body: bytes, text_length: str | None, most_rows: int, budget: ByteBudget
) -> Inference:
    """A request from its body. text_length: the header that says where the JSON text ends."""
    end = len(body) if text_length is None else _as_length(text_length, len(body))
    asked = read_json(body[:end], InferRequest, budget)
    tensors: dict[str, NDArray[Any]] = {}
    for each in asked.inputs:
        if each.name in tensors:
            raise Refusal(422, f"each tensor needs a name of its own; got {shown(each.name, 60)}")
        size = (each.parameters or {}).get("binary_data_size")
        start, end = end, end + (0 if size is None else _as_length(size, len(body) - end))
        content = None if size is None else body[start:end]
        tensors[each.name] = _read_tensor(each, content).reshape(each.shape)
    if end != len(body):
        raise Refusal(400, f"{len(body) - end} bytes follow the last tensor")
    lengths = {name: len(each) for name, each in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise Refusal(422, f"all tensors need the same number of rows; got {lengths}")
    check_count(next(iter(lengths.values())), most_rows)
    return Inference(_as_rows(tensors), *_wanted(asked), asked.id)


def _as_length(value: Any, most: int) -> int:
    """A number of bytes, from a header or a parameter."""
    digits = str(value)
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        raise Refusal(400, f"a number of bytes was expected; got {shown(value, 60)}")
    if int(digits) > most:
        raise Refusal(400, f"{int(digits)} bytes are announced, and {most} are there")
    return int(digits)


def _read_tensor(tensor: NamedTensor, content: bytes | None) -> NDArray[Any]:
    """The values of a tensor, of shape (n,). content: its bytes, if they follow the text."""
    name, size = shown(tensor.name, 60), prod(tensor.shape)
    dtype = DTYPES.get(tensor.datatype)
    if dtype is None and tensor.datatype != TEXT:
        raise Refusal(
            422,
            f"the datatype of {name} must be one of {names([*DTYPES, TEXT], 20)}; got "
            f"{shown(tensor.datatype, 60)}",
        )
    if not size:
        raise Refusal(422, f"{name} has no values: send at least one row")
    if content is not None:
        if dtype is None:
            return as_texts(_split_texts(content, size, name))
        stored = np.dtype(dtype).newbyteorder("<")
        if len(content) != size * stored.itemsize:
            raise Refusal(422, f"{name} takes {size * stored.itemsize} bytes; got {len(content)}")
        return np.frombuffer(content, stored).astype(dtype)
    if tensor.data is None:
        raise Refusal(422, f"{name} needs data, a list, or binary_data_size")
    values = _texts_of(tensor.data, name) if dtype is None else _numbers_of(tensor, dtype, name)
    if values.size != size:
        raise Refusal(422, f"the shape of {name} takes {size} values; got {values.size}")
    return values


def _texts_of(data: list[Any], name: str) -> NDArray[Any]:
    values = as_texts(data).ravel()
    if strange := [each for each in values.tolist() if not isinstance(each, str)]:
        raise Refusal(422, f"{name} must hold texts; got {shown(strange[0], 60)}")
    return values


def _numbers_of(tensor: NamedTensor, dtype: Any, name: str) -> NDArray[Any]:
    values = as_numbers(tensor.data or [], name).ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        cast: NDArray[Any] = values.astype(dtype)
    if cast.dtype.kind != "f" and not np.array_equal(cast, values):
        raise Refusal(422, f"the data of {name} are not all of {tensor.datatype}")
    return cast


def _split_texts(content: bytes, size: int, name: str) -> list[str]:
    texts: list[str] = []
    at = 0
    while at + 4 <= len(content) and len(texts) < size:
        (length,) = struct.unpack_from("<I", content, at)
        try:
            texts.append(content[at + 4 : at + 4 + length].decode())
        except UnicodeDecodeError as error:
            raise Refusal(422, f"{name} holds text that is not UTF-8") from error
        at += 4 + length
    if at != len(content) or len(texts) != size:
        raise Refusal(422, f"{name} must hold {size} texts, each after its length")
    return texts


def _as_rows(tensors: Mapping[str, NDArray[Any]]) -> Rows:
    """The tensors as rows: one is the rows themselves, several are inputs by name."""
    if len(tensors) > 1:
        return Rows(dict(tensors))
    values = next(iter(tensors.values()))
    if values.dtype.kind != "O":
        return Rows(values)
    return Rows(values.ravel().tolist() if values.size == len(values) else dict(tensors))


def _wanted(asked: InferRequest) -> tuple[tuple[str, ...], frozenset[str]]:
    """The outputs that a request wants, each once, and those of them that it wants as bytes."""
    everything = (asked.parameters or {}).get("binary_data_output") is True
    if not asked.outputs:
        usual = OUTPUTS[:-1]
        return usual, frozenset(usual if everything else ())
    as_bytes = set()
    for each in asked.outputs:
        if each.name not in OUTPUTS:
            raise Refusal(422, f"the outputs are {names(OUTPUTS)}; got {shown(each.name, 60)}")
        if (each.parameters or {}).get("binary_data", everything) is True:
            as_bytes.add(each.name)
    return tuple(dict.fromkeys(each.name for each in asked.outputs)), frozenset(as_bytes)


def write_reply(
    asked: Inference, answers: RequestAnswers, model: ServedModel, request: str
) -> tuple[bytes, int | None]:
    """The body of the reply and, if bytes follow its text, the length of the text."""
    about = {
        "model_name": model.name,
        "model_version": model.version,
        "id": request if asked.id is None else asked.id,
    }
    tensors, tail = [], b""
    for name in asked.outputs:
        array = _make_output(name, answers, model.labels)
        told: dict[str, Any] = {
            "name": name, "datatype": _datatype(array), "shape": list(array.shape),
        }  # fmt: skip
        if name in asked.as_bytes:
            content = _to_bytes(array)
            told["parameters"] = {"binary_data_size": len(content)}
            tail += content
        else:
            told["data"] = array.ravel().tolist()
        tensors.append(told)
    text = msgspec.json.encode({**about, "outputs": tensors})
    return text + tail, len(text) if tail else None


def describe_model(model: ServedModel, versions: Sequence[str]) -> dict[str, Any]:
    """What `GET /v2/models/NAME` tells."""
    kind = "INT64" if are_whole(model.labels) else TEXT
    types = {"belief": kind, "assertion": TEXT, "reason": TEXT, "level": "FP64"}
    outputs = [{"name": each, "datatype": types[each], "shape": [-1]} for each in types]
    n_scores = model.classifier.plan_.n_scored  # a class may have come later, and has no score
    scores = {"name": "scores", "datatype": "FP64", "shape": [-1, n_scores]}
    return {
        "name": model.name, "versions": list(versions), "platform": "iknow",
        "inputs": model.inputs(), "outputs": [*outputs, scores],
    }  # fmt: skip


def _make_output(name: str, answers: RequestAnswers, labels: list[Any]) -> NDArray[Any]:
    if name == "belief":
        return _beliefs(answers, labels)
    if name == "level":
        return np.full(len(answers), np.nan) if answers.level is None else answers.level
    if name == "scores":
        return np.empty((len(answers), 0)) if answers.scores is None else answers.scores
    codes, words = (
        (answers.assertion, Assertion) if name == "assertion" else (answers.reason, Reason)
    )
    return as_texts([words(code).name for code in codes.tolist()])


def _beliefs(answers: RequestAnswers, labels: list[Any]) -> NDArray[Any]:
    """Labels, as whole numbers if all are; text "" or -1 where the model gave no answer."""
    numbers = are_whole(labels)
    nothing = -1 if numbers else ""
    found = [nothing if code == NO_BELIEF else labels[code] for code in answers.belief.tolist()]
    return np.array(found, dtype=np.int64) if numbers else as_texts([str(each) for each in found])


def are_whole(labels: list[Any]) -> bool:
    """Whether all labels are whole numbers, and no flags."""
    return all(isinstance(label, int) and not isinstance(label, bool) for label in labels)


def _datatype(array: NDArray[Any]) -> str:
    if array.dtype.kind == "O":
        return TEXT
    return next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)


def _to_bytes(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [text.encode() for text in array.tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
