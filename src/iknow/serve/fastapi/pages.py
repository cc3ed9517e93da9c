"""The page at `/`, the probes and the metrics.

The page is three files, the same for everybody, and holds no data: it asks for `/v1/status`, with
the token that the reader gives it. Its modules travel as one script, together with what they share
with the report (`iknow.report.assemble`). The policy lets it load its own script and style, show
pictures that came with the status, and ask nobody but this server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.responses import PlainTextResponse

from iknow.report.assemble import bundle, read_style
from iknow.serve.fastapi.reading import admit, service_of
from iknow.serve.fastapi.schemas import READ
from iknow.serve.fastapi.v1 import respond
from iknow.serve.refusal import Refusal

PACKAGE = Path(__file__).parents[2]
STATIC = PACKAGE / "serve" / "static"
ENTRY = "serve/static/main.js"

HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",  # keep it, but ask whether it changed
    }
)
"""To send with each of the files."""
router = APIRouter()


class PageFile(NamedTuple):
    """A file of the page: its bytes and their type."""

    content: bytes
    content_type: str

    @property
    def etag(self) -> str:
        """A strong entity tag, which changes with the content and with nothing else."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'


@cache
def page_files() -> Mapping[str, PageFile]:
    """Return the files of the page by path.

    Examples:
        >>> sorted(page_files())
        ['/', '/page.css', '/page.js']
    """
    files = {
        "/": ((STATIC / "page.html").read_text("utf-8"), "text/html"),
        "/page.css": (read_style() + (STATIC / "page.css").read_text("utf-8"), "text/css"),
        "/page.js": (bundle(_modules(), ENTRY), "text/javascript"),
    }
    return MappingProxyType(
        {
            path: PageFile(text.encode(), f"{kind}; charset=utf-8")
            for path, (text, kind) in files.items()
        }
    )


def _modules() -> dict[str, str]:
    """The sources of all modules, by their paths in the package, which is how they import."""
    folders = (STATIC, PACKAGE / "report" / "static")
    found = (path for folder in folders for path in folder.rglob("*.js"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in found}


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
