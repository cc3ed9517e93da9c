"""Telling: answers as tensors, in the text of a response or behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.assertion import Assertion, Reason
from iknow.core.codes import NO_BELIEF
from iknow.service.pydantic_core import write_json
from iknow.service.said import Said
from iknow.service.v2.asking import Asked
from iknow.service.v2.tensors import datatype, to_bytes


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
