"""`iknow demo`: an honest reader of handwritten digits, in under a minute.

A small network learns all digits but one. Then it classifies clean digits, noisy digits, digits
under large noise, and the digit it has never seen. A softmax threshold, the paper's neighborhoods,
and levels, all set to the same coverage on validation data, say how many of their answers they
stand behind. The coverage is the largest that the paper's balls reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.core.text import name as shown
from iknow.core.text import percent
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import SENTENCES, Explanation
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
BRIGHTEST = 16  # scikit-learn's digits have pixels from 0 to 16
SHADES = " ░▒▓█"


@options.command
def demo(
    left_out: int = option("The digit the network never sees.", default=4),
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


@dataclass(frozen=True)
class Outcome:
    """Coverage and accuracy (NaN if nothing is covered) under one condition."""

    coverage: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Example:
    """One explained prediction with its images, each of shape (8, 8)."""

    condition: str
    y_true: int
    explanation: Explanation
    image: Floats
    nearest_for: Floats | None
    nearest_against: Floats | None


@dataclass(frozen=True, eq=False)
class Demonstration:
    """Everything the demonstration shows. outcomes: by method, then by condition."""

    left_out: int
    model_accuracy: float
    validation_coverage: float
    outcomes: Mapping[str, Mapping[str, Outcome]]
    examples: tuple[Example, ...]
    classifier: EpistemicClassifier
    digits: Digits


def demonstrate(left_out: int = 4, random_state: int = 0) -> Demonstration:
    """Train, fit, tune and compare."""
    digits = make_digits(left_out, random_state)
    network = train(digits, random_state)
    paper = EpistemicClassifier.paper(network, progress=False)
    paper.fit(*digits.train).tune(*digits.validation)
    coverage = paper.selection_.coverage
    classifier = EpistemicClassifier(network, progress=False)
    classifier.fit(*digits.train).tune(digits.validation[0], coverage=coverage)
    validation = paper.assess(digits.validation[0], k=LARGEST_K)
    k = match_k(validation.evidence, validation.belief_codes, coverage)
    threshold = match_threshold(validation.scores.max(axis=1), coverage)
    rules = _equal_coverage_rules(paper.neighborhoods_, k)
    assessments: dict[str, Assessment] = {}
    outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in ("softmax", *rules, LEVELS)}
    for condition, (images, y_true) in digits.conditions.items():
        assessment = assessments[condition] = classifier.assess(images)
        published = paper.assess(images, k=LARGEST_K)
        right = assessment.belief == y_true
        confident = assessment.scores.max(axis=1) >= threshold
        outcomes["softmax"][condition] = _outcome(confident, right)
        outcomes[LEVELS][condition] = _outcome(assessment.assertion == Assertion.IK, right)
        for name, neighborhoods in rules.items():
            knows = published.under(neighborhoods).assertion == Assertion.IK
            outcomes[name][condition] = _outcome(knows, right)
    accuracy = float((assessments["clean"].belief == digits.conditions["clean"][1]).mean())
    examples = _examples(assessments, digits)
    return Demonstration(left_out, accuracy, coverage, outcomes, examples, classifier, digits)


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


def _equal_coverage_rules(balls: Mapping[str, Any], k: int) -> dict[str, Mapping[str, Any]]:
    """The tuned balls, a k that matches their coverage, and the two hybrids of both."""
    return {
        "Nearest": {layer: Nearest(k) for layer in balls},
        "Ball": balls,
        "BallElseNearest": {layer: BallElseNearest(b.radius, k) for layer, b in balls.items()},
        "BallWithNearest": {layer: BallWithNearest(b.radius, k) for layer, b in balls.items()},
    }


def _outcome(covered: Bools, right: Any) -> Outcome:
    accuracy = float(right[covered].mean()) if covered.any() else np.nan
    return Outcome(float(covered.mean()), accuracy)


def _examples(assessments: Mapping[str, Assessment], digits: Digits) -> tuple[Example, ...]:
    """The first IK and IMK among the clean digits, and the first IDK of the unseen one."""
    wanted = [(Assertion.IK, "clean"), (Assertion.IMK, "clean"), (Assertion.IDK, UNSEEN)]
    return tuple(
        _example(assessments[condition], int(i), condition, digits)
        for assertion, condition in wanted
        for i in np.flatnonzero(assessments[condition].assertion == assertion)[:1]
    )


def _example(assessment: Assessment, i: int, condition: str, digits: Digits) -> Example:
    images, y_true = digits.conditions[condition]
    explanation = assessment.explain(i)
    layer = explanation.layers[0]
    nearest = [
        digits.train[0][exemplars[0].row].reshape(8, 8) if exemplars else None
        for exemplars in (layer.samples_for, layer.samples_against)
    ]
    image = images[i].reshape(8, 8)
    return Example(condition, int(y_true[i]), explanation, image, *nearest)


def show_demonstration(demonstration: Demonstration, console: Console) -> None:
    """Print the comparison and the explained predictions."""
    console.print(
        f"\nA network that never saw the digit {demonstration.left_out}, right on "
        f"{percent(demonstration.model_accuracy)} of the others. Every method is set to stand "
        f"behind {percent(demonstration.validation_coverage)} of the validation answers.\n"
    )
    console.print(_table(demonstration))
    level = demonstration.classifier.selection_.level
    console.print(
        "[dim]IK: answers it stands behind (coverage). right: how many of those are right. No "
        "answer can be right about an unseen digit, and few can under large noise: there, less is "
        "better.\nlevels: what iknow does by default. The four rows above it: the rules of the "
        "paper, in the last hidden layer and the output.[/dim]\n\n"
        "[bold]Three predictions explained[/bold]\n"
        "The level of a prediction is the share of ordinary digits that are no nearer to training "
        f"samples of their class, or no further from other classes. IK begins at level {level:.3f}."
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
    others = explanation.layers[0].samples_against
    pictures = Table.grid(padding=(0, 4))
    pictures.add_row(
        _picture("asked about", example.image),
        _picture(f"nearest {explanation.belief}", example.nearest_for),
        _picture(f"nearest other: {others[0].label}" if others else "", example.nearest_against),
    )
    unseen = ", which it has never seen" if example.condition == UNSEEN else ""
    title = Text.assemble(
        (f" {explanation.assertion.name} ", f"bold {color} reverse"),
        f" the model says {explanation.belief}, it is a {example.y_true}{unseen}",
    )
    held = f"level {explanation.level:.3f}, held down by {shown(explanation.weakest)}"
    level = Text(held, style="dim")
    body = Group(title, level, Text(""), pictures, Text(""), _reasons(explanation))
    return Panel(body, border_style=color, width=78)


def _reasons(explanation: Explanation) -> Group:
    """The reason in words, and each layer's distances in a small table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("layer", "reach", "for", "against", "within reach"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for layer in explanation.layers:
        table.add_row(
            Text(shown(layer.layer)),
            "none" if layer.reach is None else f"{layer.reach:.2f}",
            f"{layer.samples_for[0].distance:.2f}" if layer.samples_for else "–",
            f"{layer.samples_against[0].distance:.2f}" if layer.samples_against else "–",
            Text(shown(", ".join(map(str, layer.support)) or "nothing")),
        )
    sentence = SENTENCES[explanation.reason]
    return Group(Text(f"{explanation.reason.name.capitalize()}: {sentence}."), Text(""), table)


def _picture(title: str, image: Floats | None) -> Group:
    """An image with values in [0, 1] as text; two characters per pixel make it square."""
    if image is None:
        return Group()
    levels = np.clip(np.rint(image * (len(SHADES) - 1)), 0, len(SHADES) - 1).astype(int)
    lines = ["".join(SHADES[level] * 2 for level in row) for row in levels]
    return Group(Text(title, style="dim"), *(Text(line) for line in lines))
