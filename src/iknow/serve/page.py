"""The page at `/`: three files, the same for everybody, which hold no data.

It asks for `/v1/status`, with the token that the reader gives it. Its modules travel as one script,
together with what they share with the report (`iknow.report.assemble`). The policy lets it load its
own script and style, show pictures that came with the status, and ask nobody but this server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from iknow.report.assemble import bundle, read_style

PACKAGE = Path(__file__).parents[1]
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
    """The files of the page by path."""
    folders = (STATIC, PACKAGE / "report" / "static")
    found = (path for folder in folders for path in folder.rglob("*.js"))
    modules = {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in found}
    html, style = ((STATIC / f"page.{kind}").read_text("utf-8") for kind in ("html", "css"))
    files = {
        "/": (html, "text/html"),
        "/page.css": (read_style() + style, "text/css"),
        "/page.js": (bundle(modules, ENTRY), "text/javascript"),
    }
    return MappingProxyType(
        {
            path: PageFile(text.encode(), f"{kind}; charset=utf-8")
            for path, (text, kind) in files.items()
        }
    )
