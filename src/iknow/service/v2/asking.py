"""Asking: the body of a request as rows, and which outputs are wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from iknow.core.text import names, shown
from iknow.service.pydantic_core import parse_json
from iknow.service.refusal import Refusal
from iknow.service.rows import Rows
from iknow.service.v2.tensors import as_length, read_tensor

LENGTH_HEADER = "Inference-Header-Content-Length"
OUTPUTS = ("belief", "assertion", "reason", "level", "scores")


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
