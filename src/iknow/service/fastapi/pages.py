"""The page, the probes and the metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse

from iknow.service.fastapi.reading import admit, service_of
from iknow.service.fastapi.schemas import READ
from iknow.service.fastapi.v1 import respond
from iknow.service.page import HEADERS, PageFile, page_files
from iknow.service.refusal import Refusal

router = APIRouter()


@router.get("/healthz", responses=READ)
async def health(request: Request) -> Response:
    """Say that the server runs."""
    return respond({"alive": True})


@router.get("/readyz", responses=READ)
async def ready(request: Request) -> Response:
    """Say whether all models are loaded and warm, and nothing is about to stop."""
    if not service_of(request).ready:
        raise Refusal(503, "the models are being loaded, or the service stops", 2)
    return respond({"ready": True})


@router.get("/metrics", responses=READ, response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Tell the metrics in Prometheus' format."""
    admit(request, "admin")
    told = request.app.state.metrics
    return Response(told.text(), media_type=told.content_type)


def _add(path: str, file: PageFile) -> None:
    told = {**HEADERS, "ETag": file.etag}

    async def send(request: Request) -> Response:
        if file.etag in request.headers.get("If-None-Match", ""):
            return Response(status_code=304, headers=told)
        return Response(file.content, headers=told, media_type=file.content_type)

    router.add_api_route(path, send, methods=["GET"], include_in_schema=False)


for _path, _file in page_files().items():
    _add(_path, _file)
