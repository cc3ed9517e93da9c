"""`iknow demo`: an honest reader of handwritten digits, in under a minute; or as a service.

A small network learns all digits but one. Then it classifies clean digits, noisy digits, digits
under large noise, and the digit it has never seen. A softmax threshold, the paper's neighborhoods,
and levels, all set to the same coverage on validation data, say how many of their answers they
stand behind. The coverage is the largest that the paper's balls reach.

`iknow serve --demo` serves the same digit reader. Its bundle and its audit lie in a folder of their
own, which goes away with the service. As soon as it answers, two examples are sent and shown with
their answers: a digit that the network knows, and the one it has never seen.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from iknow.cards import COLORS
from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.data import check_page, console_for, show_page, write_page
from iknow.cli.options import option
from iknow.core.arrays import Floats, Ints
from iknow.core.text import percent
from iknow.errors import IknowError, InputError
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import Explanation, capital
from iknow.explain.picture import as_image
from iknow.report import USUAL_NEIGHBORS, make_report
from iknow.rules import BallElseNearest, BallWithNearest, Nearest
from iknow.search.threads import single_threaded_blas
from iknow.selection import match_k, match_threshold

GAUSSIAN_NOISE = 0.15
LARGE_NOISE = 2.0
LARGEST_K = 100
UNSEEN = "unseen digit"
LEVELS = "levels"
NAME, LEFT_OUT, SEED = "digits", 4, 0  # of the service
PATIENCE = 120.0  # seconds for the service's first start, which compiles the search
BRIGHTEST = 16  # scikit-learn's digits have pixels from 0 to 16
SHADES = " ░▒▓█"


@options.command
def demo(
    left_out: int = option("The digit the network never sees.", default=LEFT_OUT),
    random_state: int = options.SEED,
    output: Path = option(
        "The report to write.", None, "--output", "-o", default=Path("iknow-demo.html")
    ),
) -> None:
    """Train on scikit-learn's digits and see what the network knows. Needs no data.

    For example, with a network that has never seen a 7:

    iknow demo --left-out 7 -o seven.html
    """
    check_page(output)
    with Console(stderr=True).status("Training on digits ..."):
        demonstration = demonstrate(left_out, random_state)
        page = make_page(demonstration)
    show_demonstration(demonstration, console_for(output))
    write_page(output, page)
    show_page(output, console_for(output))


@dataclass(frozen=True, eq=False)
class Digits:
    """The data: images of shape (n, 64) with pixels in [0, 1], and digits of shape (n,)."""

    train: tuple[Floats, Ints]
    validation: tuple[Floats, Ints]
    conditions: Mapping[str, tuple[Floats, Ints]]


class Outcome(NamedTuple):
    """Coverage and accuracy (NaN if nothing is covered) under one condition."""

    coverage: float
    accuracy: float


@dataclass(frozen=True)
class Example:
    """One explained prediction. images: of the sample and of the nearest for and against it."""

    condition: str
    y_true: int
    explanation: Explanation
    images: dict[str, Floats]


@dataclass(frozen=True, eq=False)
class Demonstration:
    """Everything the demonstration shows. outcomes: by method, then by condition."""

    left_out: int
    model_accuracy: float
    outcomes: Mapping[str, Mapping[str, Outcome]]
    examples: tuple[Example, ...]
    classifier: EpistemicClassifier
    digits: Digits


def demonstrate(left_out: int = LEFT_OUT, random_state: int = SEED) -> Demonstration:
    """Train, fit, tune and compare."""
    digits = make_digits(left_out, random_state)
    network = train(digits, random_state)
    paper = EpistemicClassifier.paper(network, progress=False)
    paper.fit(*digits.train).tune(*digits.validation)
    coverage = paper.selection_.coverage
    classifier = EpistemicClassifier(network, progress=False)
    classifier.fit(*digits.train).tune(*digits.validation, coverage=coverage)
    validation = paper.assess(digits.validation[0], k=LARGEST_K)
    k = match_k(validation.evidence, validation.belief_codes, coverage)
    threshold = match_threshold(validation.scores.max(axis=1), coverage)
    balls: Mapping[str, Any] = paper.neighborhoods_
    rules: dict[str, Mapping[str, Any]] = {
        "Nearest": {layer: Nearest(k) for layer in balls},
        "Ball": balls,
        "BallElseNearest": {layer: BallElseNearest(b.radius, k) for layer, b in balls.items()},
        "BallWithNearest": {layer: BallWithNearest(b.radius, k) for layer, b in balls.items()},
    }
    assessments: dict[str, Assessment] = {}
    outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in ("softmax", *rules, LEVELS)}
    for condition, (images, y_true) in digits.conditions.items():
        assessment = assessments[condition] = classifier.assess(images)
        published = paper.assess(images, k=LARGEST_K)
        covered = {"softmax": assessment.scores.max(axis=1) >= threshold}
        covered |= {name: published.under(rule).assertion == "IK" for name, rule in rules.items()}
        right = assessment.belief == y_true
        for method, stands in (covered | {LEVELS: assessment.assertion == "IK"}).items():
            accuracy = float(right[stands].mean()) if stands.any() else np.nan
            outcomes[method][condition] = Outcome(float(stands.mean()), accuracy)
    accuracy = float((assessments["clean"].belief == digits.conditions["clean"][1]).mean())
    # The first IK and IMK among the clean digits, and the first IDK of the unseen one.
    wanted = {"IK": "clean", "IMK": "clean", "IDK": UNSEEN}
    examples = tuple(
        _example(assessments[condition], int(i), condition, digits)
        for assertion, condition in wanted.items()
        for i in np.flatnonzero(assessments[condition].assertion == assertion)[:1]
    )
    return Demonstration(left_out, accuracy, outcomes, examples, classifier, digits)


def _example(assessment: Assessment, i: int, condition: str, digits: Digits) -> Example:
    images, y_true = digits.conditions[condition]
    explanation, pictures = assessment.explain(i), {"asked about": images[i]}
    layer = explanation.layers[0]
    for word, side in (("nearest", layer.samples_for), ("nearest other:", layer.samples_against)):
        if side:
            pictures[f"{word} {side[0].label}"] = digits.train[0][side[0].row]
    return Example(condition, int(y_true[i]), explanation, pictures)


def train(digits: Digits, random_state: int) -> Any:
    """The network."""
    network = MLPClassifier((64, 32), max_iter=400, random_state=random_state)
    with single_threaded_blas():  # threads only slow down such small products
        return network.fit(*digits.train)


def make_page(demonstration: Demonstration) -> str:
    """A page of the clean digits and the unseen one, with all their evidence."""
    digits, classifier = demonstration.digits, demonstration.classifier
    parts = [digits.conditions[name] for name in ("clean", UNSEEN)]
    images, y_true = (np.concatenate(part) for part in zip(*parts, strict=True))
    return make_report(
        classifier.assess(images, k=USUAL_NEIGHBORS),
        y_true,
        samples=images,
        training=digits.train[0],
        renderer=as_image(8, 8, limits=(0, 1)),
        title=f"A digit reader that has never seen a {demonstration.left_out}",
        notes=[
            f"{len(parts[0][1])} clean digits that were held out, and {len(parts[1][1])} images of "
            f"the digit {demonstration.left_out}, which the network never saw: no answer to these "
            "can be right, and IDK is the honest one."
        ],
        selection=classifier.selection_,
    )


def make_digits(left_out: int, random_state: int) -> Digits:
    """scikit-learn's digits without one of them, and four test conditions."""
    if not 0 <= left_out <= 9:
        raise InputError(f"the digit to leave out must be from 0 to 9; got {left_out}")
    bunch = load_digits()
    images, targets = bunch.data / BRIGHTEST, bunch.target
    known = targets != left_out

    def halves(x: Floats, y: Ints) -> Any:
        return train_test_split(x, y, test_size=0.5, stratify=y, random_state=random_state)

    train_x, rest_x, train_y, rest_y = halves(images[known], targets[known])
    validation_x, test_x, validation_y, test_y = halves(rest_x, rest_y)
    rng = np.random.default_rng(random_state)
    return Digits(
        train=(train_x, train_y),
        validation=(validation_x, validation_y),
        conditions={
            "clean": (test_x, test_y),
            "Gaussian noise": (test_x + rng.normal(0, GAUSSIAN_NOISE, test_x.shape), test_y),
            "large noise": (test_x + rng.uniform(-LARGE_NOISE, LARGE_NOISE, test_x.shape), test_y),
            UNSEEN: (images[~known], targets[~known]),
        },
    )


def show_demonstration(demonstration: Demonstration, console: Console) -> None:
    """Print the comparison and the explained predictions."""
    selection = demonstration.classifier.selection_
    console.print(
        f"\nA network that never saw the digit {demonstration.left_out}, right on "
        f"{percent(demonstration.model_accuracy)} of the others. Every method is set to stand "
        f"behind {percent(selection.coverage)} of the validation answers.\n"
    )
    console.print(_table(demonstration))
    console.print(
        "[dim]IK: answers it stands behind (coverage). right: how many of those are right. No "
        "answer can be right about an unseen digit, and few can under large noise: there, less is "
        "better.\nlevels: what iknow does by default. The four "
        "rows above it: the rules of the paper, in the last hidden layer and the output.[/dim]\n\n"
        "[bold]Three predictions explained[/bold]\n"
        "The level of a prediction is the least that any voice says: the model's confidence, and "
        "in each layer how near its class is, how much further others, how familiar it is, each "
        "ranked among ordinary digits. IK begins at level "
        f"{selection.level:.3f}."
    )
    for example in demonstration.examples:
        console.print(_explained(example))


def _table(demonstration: Demonstration) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("\nmethod", no_wrap=True)
    for condition in next(iter(demonstration.outcomes.values())):
        heading = "IK" if condition == UNSEEN else f"{'IK':>6} {'right':>6}"
        table.add_column(f"{condition}\n{heading}", justify="right", no_wrap=True)
    for method, outcomes in demonstration.outcomes.items():
        cells = []
        for condition, outcome in outcomes.items():
            right = "" if condition == UNSEEN else f" [dim]{percent(outcome.accuracy):>6}[/dim]"
            cells.append(f"{percent(outcome.coverage):>6}{right}")
        table.add_row(method, *cells, style="bold" if method == LEVELS else None)
    return table


def _explained(example: Example) -> Panel:
    explanation = example.explanation
    color = COLORS[explanation.assertion]
    pictures = Table.grid(padding=(0, 4))
    pictures.add_row(
        *(
            Group(Text(title, style="dim"), *map(Text, _as_text(image)))
            for title, image in example.images.items()
        )
    )
    unseen = ", which it has never seen" if example.condition == UNSEEN else ""
    title = Text.assemble(
        (f" {explanation.assertion.name} ", f"bold {color} reverse"),
        f" the model says {explanation.belief}, it is a {example.y_true}{unseen}",
    )
    reason = explanation.reason.name.capitalize()
    said = Text(f"{reason}: {explanation.sentence}.\n{capital(explanation.standing)}.")
    body = Group(title, Text(""), pictures, Text(""), said)
    return Panel(body, border_style=color, width=78)


def _as_text(image: Floats) -> list[str]:
    """An image with values in [0, 1] as lines; two characters per pixel make it square."""
    levels = np.clip(np.rint(image.reshape(8, 8) * (len(SHADES) - 1)), 0, len(SHADES) - 1)
    return ["".join(SHADES[level] * 2 for level in row) for row in levels.astype(int)]


# As a service


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
        examples = []  # the first digit that is IK, and the first of the unseen one that is IDK
        for condition, assertion in (("clean", "IK"), (UNSEEN, "IDK")):
            images, truth = digits.conditions[condition]
            first = np.flatnonzero(classifier.assess(images).assertion == assertion)[0]
            examples.append((int(truth[first]), images[first]))
        yield DemoService(bundle, Path(folder, "answers.db"), tuple(examples))


def show_when_ready(demo: DemoService, url: str, console: Console) -> None:
    """Wait until the service answers, and show how to ask it."""
    from iknow.serve.client import Client

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
        plain = [int(value) if value.is_integer() else value for value in row.tolist()]
        body = shlex.quote(json.dumps({"rows": [plain]}, separators=(",", ":")))
        kind = "-H 'Content-Type: application/json'"
        say(
            f"\nA {digit}, which the network {seen}:\n\n"
            f"  curl {url}/v1/models/{NAME}/assess {kind} -d {body}\n\n"
            f"  The network says {answer.belief}. The answer is {answer.assertion}: "
            f"{answer.reason}, level {answer.level:.3f}."
        )
    say(f"\nThe page: {url}\nThe audit: {demo.audit}\nCtrl-C stops the service.")
