"""`iknow serve --demo`: a digit reader as a service, and how to ask it.

Its bundle and its audit lie in a folder of their own, which goes away with the service. As soon as
it answers, two examples are sent and shown with their answers: a digit that the network knows, and
the one it has never seen.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.demo import UNSEEN, make_digits, train
from iknow.core.arrays import Floats
from iknow.core.assertion import Assertion
from iknow.errors import IknowError
from iknow.serve.client import Client

NAME, LEFT_OUT, SEED = "digits", 4, 0
SIZE_SHOWN = "8x8"
PATIENCE = 120.0
"""Seconds for the first start, which compiles the search."""


@dataclass(frozen=True, eq=False)
class DemoService:
    """What to serve: a bundle, and rows to ask about, each of shape (64,), with their digits."""

    bundle: Path
    audit: Path
    examples: tuple[tuple[int, Floats], ...]
    name: str = NAME


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
        examples = []  # the first digit that is IK, and the first of the unseen one that is IDK
        for condition, assertion in (("clean", Assertion.IK), (UNSEEN, Assertion.IDK)):
            images, truth = digits.conditions[condition]
            first = np.flatnonzero(classifier.assess(images).assertion == assertion)[0]
            examples.append((int(truth[first]), images[first]))
        yield DemoService(bundle, Path(folder, "answers.db"), tuple(examples))


def show_when_ready(demo: DemoService, url: str, console: Console) -> threading.Thread:
    """In the background: wait until the service answers, and show how to ask it."""
    thread = threading.Thread(target=_show, args=(demo, url, console), daemon=True)
    thread.start()
    return thread


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


def curl(url: str, row: Floats) -> str:
    """A command that asks about one row."""
    plain = [int(value) if value.is_integer() else value for value in row.tolist()]
    body = json.dumps({"rows": [plain]}, separators=(",", ":"))
    kind = "-H 'Content-Type: application/json'"
    return f"curl {url}/v1/models/{NAME}/assess {kind} -d {shlex.quote(body)}"
