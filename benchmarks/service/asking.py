"""Asking: good requests in every format, to the models of `benchmarks.service.small`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.service.small import digits, table, texts
from benchmarks.service.wire import Asked

NPY = "application/x-npy"
LENGTH_HEADER = "Inference-Header-Content-Length"


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_npy(array: NDArray[Any], *, objects: bool = False) -> bytes:
    file = BytesIO()
    np.save(file, array, allow_pickle=objects)
    return file.getvalue()


def assess_path(model: str, query: str = "") -> str:
    return f"/v1/models/{model}/assess{query}"


def ask_json(rows: Any, model: str = "digits", query: str = "") -> Asked:
    return Asked(assess_path(model, query), as_json({"rows": rows}), what="json")


def ask_npy(rows: NDArray[Any], model: str = "digits", query: str = "") -> Asked:
    return Asked(assess_path(model, query), as_npy(rows), NPY, what="npy")


def tensor(rows: NDArray[Any], **more: Any) -> dict[str, Any]:
    """A tensor of the Open Inference Protocol, its data in the text."""
    described = {"name": "rows", "shape": list(rows.shape), "datatype": "FP64"}
    return {**described, "data": rows.ravel().tolist(), **more}


def ask_v2(rows: NDArray[Any], outputs: Sequence[str] = ()) -> Asked:
    said: dict[str, Any] = {"inputs": [tensor(rows)]}
    if outputs:
        said["outputs"] = [{"name": name} for name in outputs]
    return Asked("/v2/models/digits/infer", as_json(said), what="v2")


def ask_v2_binary(rows: NDArray[Any]) -> Asked:
    content = rows.astype("<f4").tobytes()
    described = tensor(rows, datatype="FP32", parameters={"binary_data_size": len(content)})
    del described["data"]
    text = as_json({"inputs": [described], "parameters": {"binary_data_output": True}})
    headers = ((LENGTH_HEADER, str(len(text))),)
    kind = "application/octet-stream"
    path = "/v2/models/digits/infer"
    return Asked(path, text + content, kind, headers=headers, what="v2 binary")


def good_requests() -> list[Asked]:
    """One or more of each kind, all of which are answered with 200."""
    rows, columns, some = digits()[1][:3], table()[1], texts()[1][:4]
    few = {name: values[:3] for name, values in columns.items()}
    objects = [dict(zip(few, values, strict=True)) for values in zip(*few.values(), strict=True)]
    return [
        ask_json(rows.tolist()),
        ask_json(rows[:1].tolist(), query="?evidence=true&exemplars=true&watch=false"),
        ask_json(objects, "table"),
        ask_json(some, "texts"),
        ask_npy(rows),
        ask_npy(rows.astype(np.float32), query="?exemplars=1"),
        ask_npy(np.asfortranarray(rows.astype(np.uint8))),
        Asked(assess_path("texts"), as_npy(np.array(some)), NPY, what="npy"),
        ask_v2(rows),
        ask_v2(rows, ("belief", "scores")),
        ask_v2_binary(rows),
        *(Asked(path, method="GET", kind=None, what="read") for path in READ),
    ]


READ = ("/v1/models", "/v1/models/digits", "/v1/status", "/healthz", "/readyz", "/metrics", "/",
        "/openapi.json", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/digits",
        "/v2/models/digits/versions/1", "/v2/models/digits/ready")  # fmt: skip
