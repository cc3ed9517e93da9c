"""Schemas: what requests and responses hold, for the OpenAPI description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from iknow.serve.decoding import JSON, NPY

Value = str | int | float | bool | None


class Failure(BaseModel):
    """Why a request was not answered."""

    error: str


class Answer(BaseModel):
    """What is said about one row."""

    belief: Value = Field(description="What the model answers.")
    assertion: Literal["IK", "IMK", "IDK"]
    reason: str = Field(description="Why, such as KNOWN, OVERLAP or EXTRAPOLATION.")
    level: float | None = Field(description="How ordinary it is, from 0 to 1.")
    exemplars: dict[str, int] | None = None
    evidence: dict[str, Any] | None = None


class Answers(BaseModel):
    """What is said about the rows of a request, in their order."""

    model: str
    version: str
    bundle: str
    request: str
    answers: list[Answer]


class Label(BaseModel):
    """The truth about one row, known later."""

    request: str
    row: int = Field(ge=0)
    label: str | int | float | bool


class Labels(BaseModel):
    labels: list[Label] = Field(min_length=1, max_length=10_000)


class Learned(BaseModel):
    """What became of labels."""

    counted: int
    others: int
    repeated: int
    unknown: int


class Model(BaseModel):
    """A served model."""

    name: str
    version: str
    bundle: str
    created: str | None
    note: str
    classes: list[Value]
    features: list[str] | None
    n_features: int | None
    layers: list[str]
    promises: list[str]
    stale: str = Field(description="Since when nothing is promised; empty if all holds.")
    changes: int


class Models(BaseModel):
    models: list[Model]


class Entry(BaseModel):
    """One change of the evidence."""

    what: Literal["add", "remove", "relabel"]
    when: str
    who: str
    why: str
    ids: list[int]
    classes: list[Value]


class Log(BaseModel):
    changes: list[Entry]


class Changed(Log):
    """What became of a change."""

    model: str
    version: str
    bundle: str
    before: str


class Added(BaseModel):
    """Samples to add, with their labels, and perhaps numbers to name them by."""

    rows: list[Any] = Field(min_length=1)
    labels: list[Value]
    ids: list[int] | None = None


class Relabeled(BaseModel):
    id: int = Field(ge=0)
    label: str | int | float | bool


class Change(BaseModel):
    """Samples to remove, to relabel and to add. after: the sha256 of the bundle that you saw."""

    remove: list[int] = []
    relabel: list[Relabeled] = []
    add: Added | None = None
    why: str = ""
    after: str | None = None


BINARY = {"schema": {"type": "string", "format": "binary"}}
ROWS_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                    "properties": {
                        "rows": {"type": "array", "minItems": 1, "items": {}},
                        "inputs": {"type": "object", "additionalProperties": {"type": "array"}},
                    },
                }
            },
            NPY: BINARY,
        },
    }
}
LABELS_BODY = {
    "requestBody": {"required": True, "content": {JSON: {"schema": Labels.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )}}}
}  # fmt: skip
CHANGE_BODY = {
    "requestBody": {"required": True, "content": {JSON: {"schema": Change.model_json_schema()}}}
}


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The responses of a route that refuse."""
    return {status: {"model": Failure} for status in statuses}


ASKED = failures(400, 401, 403, 404, 408, 413, 415, 422, 429, 500, 503, 504)
CHANGED = failures(400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 500, 503, 507)
READ = failures(401, 403, 404, 500, 503)
