"""Serving: from options to a running service."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.explain.picture import Renderer, as_image

SIZE = re.compile(r"(\d{1,4})x(\d{1,4})(?:x(\d))?", re.ASCII)


@dataclass(frozen=True)
class Plan:
    """What to serve and how, as the options say it."""

    bundles: tuple[str, ...]
    pictures: tuple[str, ...]
    host: str
    port: int
    tokens: Path | None
    certificate: Path | None
    key: Path | None
    settings: Mapping[str, Any]


def run_demo(plan: Plan) -> None:
    """Serve the demonstration until a signal ends it, and show how to ask."""
    from iknow.cli.jobs.serve_demo import NAME, SIZE, make_demo_service, show_when_ready

    _check_installed()
    status = Console(stderr=True).status("Training on digits ...")
    with ExitStack() as stack:
        with status:
            demo = stack.enter_context(make_demo_service())
        settings = dict(plan.settings)
        if settings["audit"] is None:
            settings["audit"] = str(demo.audit)
        pictures = (f"{NAME}={SIZE}",) if settings["workers"] == 1 else ()
        plan = replace(
            plan, bundles=(f"{NAME}={demo.bundle}",), pictures=pictures, settings=settings
        )
        run_service(plan, lambda url: show_when_ready(demo, url, Console()))


def run_service(plan: Plan, on_listening: Callable[[str], object] | None = None) -> None:
    """Serve until a signal ends it. on_listening: is told the URL."""
    _check_installed()
    from iknow.service.served import Source, name_source
    from iknow.service.service import Service
    from iknow.service.settings import Settings
    from iknow.service.tokens import read_tokens
    from iknow.service.uvicorn import Address, run

    _log_to_stderr()
    settings = Settings(**plan.settings, tokens=read_tokens(plan.tokens))
    pictures = dict(_parse_picture(text) for text in plan.pictures)
    if pictures and settings.workers > 1:
        raise InputError("--picture draws in the process that listens: use --workers 1")
    sources = [Source.parse(text) for text in plan.bundles]
    if pictures:
        named = {name_source(source): source for source in sources}
        if unknown := set(pictures) - set(named):
            raise InputError(f"--picture names {shown(min(unknown))}, which is not served")
        sources = [replace(each, picture=pictures.get(name)) for name, each in named.items()]
    address = Address(
        plan.host,
        plan.port,
        None if plan.certificate is None else str(plan.certificate),
        None if plan.key is None else str(plan.key),
    )

    def read_again(service: Service) -> None:
        service.settings = replace(service.settings, tokens=read_tokens(plan.tokens))

    def announce(url: str) -> None:
        Console(stderr=True).print(f"iknow serves {url}  (the page is there too)", highlight=False)
        if on_listening is not None:
            on_listening(url)

    run(Service(sources, settings), address, on_reload=read_again, on_listening=announce)


def _check_installed() -> None:
    try:
        import_module("iknow.service.uvicorn")
    except ImportError as error:
        raise MissingExtraError("serving", "serve") from error


def _parse_picture(text: str) -> tuple[str, Renderer]:
    name, _, size = text.partition("=")
    found = SIZE.fullmatch(size)
    if not name or found is None:
        raise InputError(f"--picture takes NAME=28x28 or NAME=32x32x3; got {shown(text)}")
    return name, as_image(*(int(part) for part in found.groups() if part is not None))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("iknow.service")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
