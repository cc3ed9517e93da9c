"""The routes of the Open Inference Protocol; see `iknow.serve.v2`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from iknow.serve.decoding import JSON
from iknow.serve.desk import Desk
from iknow.serve.fastapi.reading import admit, read_body, service_of, span
from iknow.serve.fastapi.schemas import ASKED, BINARY, READ
from iknow.serve.fastapi.v1 import find_desk, respond
from iknow.serve.refusal import Refusal
from iknow.serve.said import Wanted
from iknow.serve.v2 import LENGTH_HEADER, describe_model, read_request, write_response
from iknow.version import __version__

router = APIRouter(prefix="/v2")
BYTES = "application/octet-stream"
INFER_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "id": {"type": "string"},
                        "inputs": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                        "outputs": {"type": "array", "items": {"type": "object"}},
                        "parameters": {"type": "object"},
                    },
                }
            },
            BYTES: BINARY,
        },
    }
}
INFERRED: dict[int | str, dict[str, Any]] = {**ASKED, 200: {"content": {JSON: {}, BYTES: BINARY}}}


@router.get("", responses=READ)
async def server(request: Request) -> Response:
    """Say which server this is."""
    return respond({"name": "iknow", "version": __version__, "extensions": ["binary_tensor_data"]})


@router.get("/health/live", responses=READ)
async def live(request: Request) -> Response:
    """Say that the server runs."""
    return respond({"live": True})


@router.get("/health/ready", responses=READ)
async def ready(request: Request) -> Response:
    """Say whether all models are loaded."""
    if not service_of(request).ready:
        raise Refusal(503, "the models are being loaded", 2)
    return respond({"ready": True})


@router.get("/models/{name}", responses=READ)
async def model(request: Request, name: str) -> Response:
    """Describe the tensors of a model."""
    admit(request, "assess")
    return respond(_describe(request, find_desk(service_of(request), name)))


@router.get("/models/{name}/versions/{version}", responses=READ)
async def model_version(request: Request, name: str, version: str) -> Response:
    """Describe the tensors of a version of a model."""
    admit(request, "assess")
    return respond(_describe(request, find_desk(service_of(request), name, version)))


@router.get("/models/{name}/ready", responses=READ)
async def model_ready(request: Request, name: str) -> Response:
    """Say whether a model is loaded."""
    return respond({"name": find_desk(service_of(request), name).served.name, "ready": True})


@router.get("/models/{name}/versions/{version}/ready", responses=READ)
async def version_ready(request: Request, name: str, version: str) -> Response:
    """Say whether a version of a model is loaded."""
    desk = find_desk(service_of(request), name, version)
    return respond({"name": desk.served.name, "ready": True})


@router.post("/models/{name}/infer", responses=INFERRED, openapi_extra=INFER_BODY)
async def infer(request: Request, name: str) -> Response:
    """Assess the rows of tensors."""
    return await _infer(request, name, None)


@router.post(
    "/models/{name}/versions/{version}/infer", responses=INFERRED, openapi_extra=INFER_BODY
)
async def infer_version(request: Request, name: str, version: str) -> Response:
    """Assess the rows of tensors, by a certain version of the model."""
    return await _infer(request, name, version)


async def _infer(request: Request, name: str, version: str | None) -> Response:
    service, call = service_of(request), admit(request, "assess")
    desk = find_desk(service, name, version)
    with span("infer", request.headers, model=name):
        body = await read_body(request)
        length = request.headers.get(LENGTH_HEADER)
        asked = read_request(body, length, service.settings.most_rows)
        wanted = Wanted(
            scores="scores" in asked.outputs, exemplars=service.settings.audit is not None
        )
        said = await service.answer(desk, asked.rows, wanted, call)
    request.app.state.metrics.answered(desk.served, said)
    about = {
        "model_name": desk.served.name,
        "model_version": desk.served.version,
        "id": call.request if asked.id is None else asked.id,
    }
    content, text_length = write_response(asked, said, desk.served.labels, about)
    if text_length is None:
        return Response(content, media_type=JSON)
    headers = {LENGTH_HEADER: str(text_length)}
    return Response(content, headers=headers, media_type=BYTES)


def _describe(request: Request, desk: Desk) -> dict[str, Any]:
    served = desk.served
    same = [each for each in service_of(request).desks if each.served.name == served.name]
    versions, n_scores = [each.served.version for each in same], served.classifier.plan_.n_scored
    return describe_model(served.name, versions, served.inputs(), served.labels, n_scores)
