"""The Open Inference Protocol, version 2: tensors in, tensors out, as KServe and Triton speak it.

A tensor's data is in the JSON text, or follows it as bytes (Triton's binary extension): the header
`Inference-Header-Content-Length` says where the text ends, `binary_data_size` how many bytes each
tensor takes. Text is BYTES: each preceded by its length in four bytes.

    inputs     one tensor of the rows, or one for each of the model's inputs
    outputs    belief, assertion, reason, level, probability, and scores if they are asked for
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF
from iknow.core.text import names, shown
from iknow.serve.answers import RequestAnswers
from iknow.serve.bodies import ByteBudget, Rows, as_numbers, as_texts, by_name, read_json
from iknow.serve.schema import Number, Refusal
from iknow.serve.served import ServedModel

DTYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
TEXT = "BYTES"
LENGTH_HEADER = "Inference-Header-Content-Length"
OUTPUTS = ("belief", "assertion", "reason", "level", "probability", "scores")


class Named(Struct, frozen=True):
    """What has a name and parameters: an output that is wanted, by itself."""

    name: str
    parameters: dict[str, Any] | None = None

    def get(self, parameter: str, default: Any = None) -> Any:
        return (self.parameters or {}).get(parameter, default)


class NamedTensor(Named, frozen=True, kw_only=True):
    """A tensor: its data, unless they follow the text, in the order of its shape."""

    shape: Annotated[list[Number], Meta(min_length=1, max_length=8)]
    datatype: str
    data: list[Any] | None = None


class InferRequest(Struct, frozen=True):
    """Tensors of rows, and which outputs are wanted."""

    inputs: Annotated[list[NamedTensor], Meta(min_length=1)]
    outputs: list[Named] | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


class Inference(NamedTuple):
    """A request that was read: rows, wanted outputs and whether as bytes, and its id."""

    rows: Rows
    outputs: dict[str, bool]
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
        size = each.get("binary_data_size")
        start, end = end, end + (0 if size is None else _as_length(size, len(body) - end))
        tensors[each.name] = _read_tensor(each, None if size is None else body[start:end])
    if end != len(body):
        raise Refusal(400, f"{len(body) - end} bytes follow the last tensor")
    return Inference(_as_rows(tensors, most_rows), _wanted(asked), asked.id)


def _as_length(value: Any, most: int) -> int:
    """A number of bytes, from a header or a parameter."""
    digits = str(value)
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        raise Refusal(400, f"a number of bytes was expected; got {shown(value, 60)}")
    if int(digits) > most:
        raise Refusal(400, f"{int(digits)} bytes are announced, and {most} are there")
    return int(digits)


def _read_tensor(tensor: NamedTensor, content: bytes | None) -> NDArray[Any]:
    """The values of a tensor, in its shape. content: its bytes, if they follow the text."""
    name, size, dtype = shown(tensor.name, 60), prod(tensor.shape), DTYPES.get(tensor.datatype)
    if dtype is None and tensor.datatype != TEXT:
        kinds, came = names([*DTYPES, TEXT], 20), shown(tensor.datatype, 60)
        raise Refusal(422, f"the datatype of {name} must be one of {kinds}; got {came}")
    if not size:
        raise Refusal(422, f"{name} has no values: send at least one row")
    if content is None and tensor.data is None:
        raise Refusal(422, f"{name} needs data, a list, or binary_data_size")
    if dtype is None:
        values = as_texts(tensor.data or [] if content is None else _split(content, name)).ravel()
        if strange := [each for each in values.tolist() if not isinstance(each, str)]:
            raise Refusal(422, f"{name} must hold texts; got {shown(strange[0], 60)}")
    elif content is None:
        values = as_numbers(tensor.data or [], name).ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            given, values = values, values.astype(dtype)
        if values.dtype.kind != "f" and not np.array_equal(values, given):
            raise Refusal(422, f"the data of {name} are not all of {tensor.datatype}")
    else:
        stored = np.dtype(dtype).newbyteorder("<")
        if len(content) != size * stored.itemsize:
            raise Refusal(422, f"{name} takes {size * stored.itemsize} bytes; got {len(content)}")
        values = np.frombuffer(content, stored).astype(dtype)
    if values.size != size:
        raise Refusal(422, f"the shape of {name} takes {size} values; got {values.size}")
    return values.reshape(tensor.shape)


def _split(content: bytes, name: str) -> list[str]:
    """Texts, each after its length."""
    texts: list[str] = []
    at = 0
    try:
        while at < len(content):
            (length,) = struct.unpack_from("<I", content, at)
            texts.append(str(struct.unpack_from(f"{length}s", content, at + 4)[0], "utf-8"))
            at += 4 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise Refusal(422, f"{name} must hold texts in UTF-8, each after its length") from error
    return texts


def _as_rows(tensors: dict[str, NDArray[Any]], most_rows: int) -> Rows:
    """The tensors as rows: one is the rows themselves, several are inputs by name."""
    rows, values = by_name(tensors, most_rows), next(iter(tensors.values()))
    if len(tensors) > 1:
        return rows
    if values.dtype.kind != "O":
        return Rows(values)
    return Rows(values.ravel()) if values.size == len(values) else rows


def _wanted(asked: InferRequest) -> dict[str, bool]:
    """The outputs that a request wants, each once, and whether as bytes."""
    everything = (asked.parameters or {}).get("binary_data_output") is True
    if not asked.outputs:
        return dict.fromkeys(OUTPUTS[:-1], everything)
    for each in asked.outputs:
        if each.name not in OUTPUTS:
            raise Refusal(422, f"the outputs are {names(OUTPUTS)}; got {shown(each.name, 60)}")
    return {each.name: each.get("binary_data", everything) is True for each in asked.outputs}


def write_reply(
    asked: Inference, answers: RequestAnswers, model: ServedModel, request: str
) -> tuple[bytes, int | None]:
    """The body of the reply and, if bytes follow its text, the length of the text."""
    tensors, tail = [], b""
    for name, as_bytes in asked.outputs.items():
        array = _make_output(name, answers, model.labels)
        kind = next((kind for kind, dtype in DTYPES.items() if array.dtype == dtype), TEXT)
        told: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(array.shape)}
        if as_bytes:
            content = _to_bytes(array)
            told["parameters"] = {"binary_data_size": len(content)}
            tail += content
        else:
            told["data"] = array.ravel().tolist()
        tensors.append(told)
    about = {
        "model_name": model.name,
        "model_version": model.version,
        "id": request if asked.id is None else asked.id,
        "outputs": tensors,
    }
    text = msgspec.json.encode(about)
    return text + tail, len(text) if tail else None


def describe_model(model: ServedModel, versions: Sequence[str]) -> dict[str, Any]:
    """What `GET /v2/models/NAME` tells."""
    kind = "INT64" if _are_whole(model.labels) else TEXT
    types = dict.fromkeys(OUTPUTS, "FP64") | {"belief": kind, "assertion": TEXT, "reason": TEXT}
    outputs = [{"name": each, "datatype": types[each], "shape": [-1]} for each in OUTPUTS]
    # Of a class that came later there is no score.
    outputs[-1]["shape"] = [-1, model.classifier.plan_.n_scored]
    return {
        "name": model.name, "versions": list(versions), "platform": "iknow",
        "inputs": model.inputs(), "outputs": outputs,
    }  # fmt: skip


def _make_output(name: str, answers: RequestAnswers, labels: list[Any]) -> NDArray[Any]:
    """A column of the answers; as belief where there is none -1 if all labels are whole, or ""."""
    if name == "belief":
        found = [None if code == NO_BELIEF else labels[code] for code in answers.belief.tolist()]
        if _are_whole(labels):
            return np.array([-1 if each is None else each for each in found], np.int64)
        return as_texts(["" if each is None else str(each) for each in found])
    if name in ("level", "probability"):
        found = getattr(answers, name)
        return np.full(len(answers), np.nan) if found is None else np.asarray(found)
    if name == "scores":
        return np.empty((len(answers), 0)) if answers.scores is None else answers.scores
    words: Any = Assertion if name == "assertion" else Reason
    return as_texts([words(code).name for code in getattr(answers, name).tolist()])


def _are_whole(labels: list[Any]) -> bool:
    """Whether all labels are whole numbers, and no flags."""
    return all(isinstance(label, int) and not isinstance(label, bool) for label in labels)


def _to_bytes(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [text.encode() for text in array.tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
