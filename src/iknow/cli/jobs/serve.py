"""Serving: from options to a running service, and the demonstration as one.

The demonstration is a digit reader. Its bundle and its audit lie in a folder of their own, which
goes away with the service. As soon as it answers, two examples are sent and shown with their
answers: a digit that the network knows, and the one it has never seen.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.demo import UNSEEN, Digits, make_digits, train
from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion
from iknow.core.text import shown
from iknow.errors import IknowError, InputError, MissingExtraError
from iknow.explain.picture import Renderer, as_image
from iknow.serve.client import Client

SIZE = re.compile(r"(\d{1,4})x(\d{1,4})(?:x(\d))?", re.ASCII)
NAME, LEFT_OUT, SEED = "digits", 4, 0
DEMO_SIZE = "8x8"
PATIENCE = 120.0
"""Seconds for the first start, which compiles the search."""


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
    _check_installed()
    status = Console(stderr=True).status("Training on digits ...")
    with ExitStack() as stack:
        with status:
            demo = stack.enter_context(make_demo_service())
        settings = dict(plan.settings)
        if settings["audit"] is None:
            settings["audit"] = str(demo.audit)
        pictures = (f"{NAME}={DEMO_SIZE}",) if settings["workers"] == 1 else ()
        plan = replace(
            plan, bundles=(f"{NAME}={demo.bundle}",), pictures=pictures, settings=settings
        )
        run_service(plan, lambda url: show_when_ready(demo, url, Console()))


def run_service(plan: Plan, on_listening: Callable[[str], object] | None = None) -> None:
    """Serve until a signal ends it. on_listening: is told the URL."""
    _check_installed()
    from iknow.serve.served import Source, name_source
    from iknow.serve.service import Service
    from iknow.serve.settings import Settings
    from iknow.serve.tokens import read_tokens
    from iknow.serve.uvicorn import Address, run

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
        import_module("iknow.serve.uvicorn")
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
    log = logging.getLogger("iknow.serve")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


@dataclass(frozen=True, eq=False)
class DemoService:
    """What to serve: a bundle, and rows to ask about, each of shape (64,), with their digits."""

    bundle: Path
    audit: Path
    examples: tuple[tuple[int, Floats], ...]


@contextmanager
def make_demo_service() -> Iterator[DemoService]:
    """Train the digit reader, and save it as a portable bundle in a folder for as long as needed.

    Raises:
        MissingExtraError: What makes bundles portable is not installed.
    """
    with TemporaryDirectory(prefix="iknow-demo-", ignore_cleanup_errors=True) as folder:
        digits = make_digits(LEFT_OUT, SEED)
        classifier = EpistemicClassifier(train(digits, SEED), progress=False)
        images, truth = digits.validation
        kept = len(images) * 2 // 3  # the others show the alarm what is ordinary
        classifier.fit(*digits.train).tune(images[:kept], truth[:kept]).watch(images[kept:])
        bundle = Path(folder, f"{NAME}.iknow")
        note = f"scikit-learn's digits without the {LEFT_OUT}: make serve"
        classifier.save(bundle, onnx=True, name=NAME, version="1", note=note)
        yield DemoService(bundle, Path(folder, "answers.db"), _choose(classifier, digits))


def show_when_ready(demo: DemoService, url: str, console: Console) -> threading.Thread:
    """In the background: wait until the service answers, and show how to ask it."""
    thread = threading.Thread(target=_show, args=(demo, url, console), daemon=True)
    thread.start()
    return thread


def curl(url: str, row: Floats) -> str:
    """A command that asks about one row."""
    plain = [int(value) if value.is_integer() else value for value in row.tolist()]
    body = json.dumps({"rows": [plain]}, separators=(",", ":"))
    kind = "-H 'Content-Type: application/json'"
    return f"curl {url}/v1/models/{NAME}/assess {kind} -d {shlex.quote(body)}"


def _show(demo: DemoService, url: str, console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    try:
        with Client(url) as client:
            client.wait_until_ready(PATIENCE)
            rows = np.stack([row for _, row in demo.examples])
            answers = client.assess(NAME, rows, watch=False)
    except IknowError as error:  # such as a token that only its owner knows
        say(f"No example was asked: {error}")
        return
    for (digit, row), answer in zip(demo.examples, answers, strict=True):
        seen = "never saw" if digit == LEFT_OUT else "knows"
        say(f"\nA {digit}, which the network {seen}:\n\n  {curl(url, row)}\n")
        say(
            f"  The network says {answer.belief}. The answer is {answer.assertion}: "
            f"{answer.reason}, level {answer.level:.3f}."
        )
    say(f"\nThe page: {url}\nThe audit: {demo.audit}\nCtrl-C stops the service.")


def _choose(classifier: EpistemicClassifier, digits: Digits) -> tuple[tuple[int, Floats], ...]:
    """The first digit that is IK, and the first of the unseen one that is IDK."""
    chosen = []
    for condition, assertion in (("clean", Assertion.IK), (UNSEEN, Assertion.IDK)):
        images, truth = digits.conditions[condition]
        found = np.flatnonzero(classifier.assess(images).assertion == assertion)
        chosen.append((int(truth[found[0]]), images[found[0]]))
    return tuple(chosen)
