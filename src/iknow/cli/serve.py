"""`iknow serve`, from options to a running service, and `iknow warm-up` before it."""

from __future__ import annotations

import logging
import re
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.demo import NAME, make_demo_service, show_when_ready
from iknow.cli.options import argument, option
from iknow.core.text import name as short
from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.explain.picture import Renderer, as_image
from iknow.models import PrecomputedModel
from iknow.models.probe import Probe
from iknow.search.layer import warm_up as compile_search

LIMITS, AUDIT, ALARM, SAFETY = "Limits", "Audit", "Alarm", "Safety"
SIZE = re.compile(r"(\d{1,4})x(\d{1,4})(?:x(\d))?", re.ASCII)


@options.command
def serve(
    bundles: list[str] | None = argument(
        "Portable bundles, each as FILE or NAME=FILE.", default=None, metavar="BUNDLE..."
    ),
    demo: bool = option("Serve a digit reader, and show how to ask it."),
    host: str = option("Address to listen on.", default="127.0.0.1"),
    port: int = option("Port; 0 takes a free one.", default=8000, min=0, max=65535),
    workers: int = option("Processes that compute, which share the evidence.", default=1, min=1),
    picture: list[str] | None = option(
        "NAME=28x28: draw unknown samples on the page.", metavar="SIZE"
    ),
    tokens: Path | None = option(
        "File of tokens: lines of a name, scopes and a token. Or IKNOW_TOKENS in the "
        "environment. Needed unless only this machine is served.",
        SAFETY,
    ),
    show_training: bool = option(
        "Let ?explain=true tell values of training samples, and not only numbers.", SAFETY
    ),
    ssl_certfile: Path | None = option("Certificate for TLS.", SAFETY),
    ssl_keyfile: Path | None = option("Its key.", SAFETY),
    audit: str | None = option(
        "Record every answer in this file, or in a PostgreSQL database by its URL.",
        AUDIT,
        metavar="FILE|URL",
    ),
    keep_inputs: bool = option("Record inputs too, for audit verify.", AUDIT),
    audit_optional: bool = option(
        "Answer even if that cannot be recorded, instead of with 503.", AUDIT
    ),
    retain_days: float | None = option("Keep records this long.", AUDIT),
    retain_mib: int | None = option("Keep this much of them, in MiB.", AUDIT),
    alarm_rate: float = option(
        "Probability with which an alarm may ever be false.", ALARM, default=0.01
    ),
    state: Path | None = option(
        "Folder that keeps alarms across restarts; else beside the audit or bundle.", ALARM
    ),
    max_body: int = option("Largest body, in MiB.", LIMITS, default=32, min=1),
    max_rows: int = option("Most rows of a request.", LIMITS, default=10_000, min=1),
    queue: int = option("Most rows that wait; then 429.", LIMITS, default=20_000, min=1),
    timeout: float = option("Seconds for an answer; then 504.", LIMITS, default=30.0),
    drain: float = option("Seconds to finish requests after SIGTERM.", LIMITS, default=20.0),
) -> None:
    """Serve bundles over HTTP, with a page of what they know, an audit and an alarm.

    It takes portable bundles, which carry their model: see iknow export. For example:

    iknow serve signs.iknow --audit answers.db

    curl localhost:8000/v1/models/signs/assess -H 'Content-Type: application/json' -d '{"rows":
    [[0.1, 0.2]]}'
    """
    if demo is bool(bundles):
        raise typer.BadParameter("give bundles, or --demo alone", param_hint="BUNDLE...")
    try:
        import_module("iknow.serve.server")
    except ImportError as error:
        raise MissingExtraError("serving", "serve") from error
    from iknow.serve.served import BundleSource, name_source
    from iknow.serve.server import Address, run
    from iknow.serve.service import Service
    from iknow.serve.settings import Settings
    from iknow.serve.tokens import read_tokens

    served, sizes, show = bundles or [], picture or [], None
    with ExitStack() as stack:
        if demo:
            with Console(stderr=True).status("Training on digits ..."):
                made = stack.enter_context(make_demo_service())
            served, audit = [f"{NAME}={made.bundle}"], audit or str(made.audit)
            sizes = [f"{NAME}=8x8"] if workers == 1 else []
            show = partial(show_when_ready, made, console=Console())
        _log_to_stderr()
        settings = Settings(
            workers=workers,
            audit=audit,
            keep_inputs=keep_inputs,
            show_training=show_training,
            audit_required=not audit_optional,
            retain_days=retain_days,
            retain_bytes=None if retain_mib is None else retain_mib << 20,
            alarm_rate=alarm_rate,
            state=state,
            most_body=max_body << 20,
            most_rows=min(max_rows, queue),
            most_waiting=queue,
            timeout=timeout,
            drain=drain,
            tokens=read_tokens(tokens),
        )
        pictures = dict(map(_picture, sizes))
        if pictures and workers > 1:
            raise InputError("--picture draws in the process that listens: use --workers 1")
        sources = [BundleSource.parse(text) for text in served]
        if pictures:
            named = {name_source(source): source for source in sources}
            if unknown := set(pictures) - set(named):
                raise InputError(f"--picture names {shown(min(unknown))}, which is not served")
            sources = [replace(each, picture=pictures.get(name)) for name, each in named.items()]
        certificate, key = (None if p is None else str(p) for p in (ssl_certfile, ssl_keyfile))

        def read_again(service: Any) -> None:
            service.settings = replace(service.settings, tokens=read_tokens(tokens))

        def announce(url: str) -> None:
            Console(stderr=True).print(
                f"iknow serves {url}  (the page is there too)", highlight=False
            )
            if show is not None:
                Thread(target=show, args=(url,), daemon=True).start()

        address = Address(host, port, certificate, key)
        run(Service(sources, settings), address, on_reload=read_again, on_listening=announce)


def _picture(text: str) -> tuple[str, Renderer]:
    name, _, size = text.partition("=")
    found = SIZE.fullmatch(size)
    if not name or found is None:
        raise InputError(f"--picture takes NAME=28x28 or NAME=32x32x3; got {shown(text)}")
    return name, as_image(*(int(part) for part in found.groups() if part is not None))


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("iknow.serve")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


@options.command
def warm_up(
    bundles: list[Path] | None = argument("Bundles to check, prepare and ask once.", default=None),
) -> None:
    """Compile the search, so that nobody waits for it later.

    Run it once where iknow is installed, such as in a Dockerfile: processes
    started later find the compiled code. For example:

    iknow warm-up signs.iknow
    """
    console = Console()
    compile_search()
    console.print("The search is compiled")
    for bundle in bundles or ():
        classifier = EpistemicClassifier.load(bundle, verify="now")
        classifier.progress = False
        classifier.warm_up()
        probe, said = classifier.probe_, "is whole; its model is not in it"
        if isinstance(probe, Probe) and not isinstance(classifier.model_, PrecomputedModel):
            said = "answers"
            if hasattr(classifier, "neighborhoods_"):
                classifier.assess(probe.inputs)
        console.print(Text(f"{short(bundle)} {said}"))
