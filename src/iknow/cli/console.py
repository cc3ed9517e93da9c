"""What the command line shows: tables, explanations and small pictures, with rich."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.style import Style
from rich.table import Table
from rich.text import Text

from iknow.cards import COLORS
from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.demo import LEVELS, UNSEEN, Demonstration, Example
from iknow.cli.jobs.assess import Outcome
from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.assertion import Assertion
from iknow.core.text import name, percent, visible
from iknow.evaluation import evaluate
from iknow.evaluation.comparison import OURS, Comparison
from iknow.evaluation.metrics import NO_ANSWER
from iknow.explain.assessment import Assessment
from iknow.explain.explanation import SENTENCES, Explanation
from iknow.selection import Selection
from iknow.storage.files import is_stream
from iknow.storage.info import list_facts, short_line
from iknow.tables.reading import STDIN

SHADES = " ░▒▓█"


def show_demonstration(demonstration: Demonstration, console: Console) -> None:
    """Print the comparison and the explained predictions."""
    console.print(
        f"\nA network that never saw the digit {demonstration.left_out}, right on "
        f"{percent(demonstration.model_accuracy)} of the others. Every method is set to stand "
        f"behind {percent(demonstration.validation_coverage)} of the validation answers.\n"
    )
    console.print(_comparison(demonstration))
    console.print(
        "[dim]IK: answers it stands behind (coverage). right: how many of those are right. No "
        "answer can be right about an unseen digit, and few can under large noise: there, less is "
        "better.\nlevels: what iknow does by default. The four rows above it: the rules of the "
        "paper, in the last hidden layer and the output.[/dim]\n\n"
        "[bold]Three predictions explained[/bold]\n"
        "The level of a prediction is the share of ordinary digits that are no nearer to training "
        f"samples of their class, or no further from other classes. {_threshold(demonstration)}"
    )
    for example in demonstration.examples:
        console.print(_explained(example))


def _threshold(demonstration: Demonstration) -> str:
    return f"IK begins at level {demonstration.classifier.selection_.level:.3f}."


def _comparison(demonstration: Demonstration) -> Table:
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
    other = explanation.layers[0].nearest_against
    pictures = Table.grid(padding=(0, 4))
    pictures.add_row(
        _picture("asked about", example.image),
        _picture(f"nearest {explanation.belief}", example.nearest_for),
        _picture(f"nearest other: {other.label}" if other else "", example.nearest_against),
    )
    unseen = ", which it has never seen" if example.condition == UNSEEN else ""
    title = Text.assemble(
        (f" {explanation.assertion.name} ", f"bold {color} reverse"),
        f" the model says {explanation.belief}, it is a {example.y_true}{unseen}",
    )
    level = Text(f"level {example.level:.3f}, held down by {name(example.weakest)}", style="dim")
    body = Group(title, level, Text(""), pictures, Text(""), _reasons(explanation))
    return Panel(body, border_style=color, width=78)


def _reasons(explanation: Explanation) -> Group:
    """The reason in words, and each layer's distances in a small table."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("layer", "reach", "for", "against", "within reach"):
        table.add_column(heading, justify="left" if heading == "layer" else "right")
    for layer in explanation.layers:
        table.add_row(
            Text(name(layer.layer)),
            "none" if layer.reach is None else f"{layer.reach:.2f}",
            "–" if layer.nearest_for is None else f"{layer.nearest_for.distance:.2f}",
            "–" if layer.nearest_against is None else f"{layer.nearest_against.distance:.2f}",
            Text(name(", ".join(map(str, layer.support)) or "nothing")),
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


def show_fit(classifier: EpistemicClassifier, output: Path, console: Console) -> None:
    """Print what was learned and where it was written."""
    table = _table("layer", "features", "rule", right="features")
    for layer, index in classifier.indexes_.items():
        rule = classifier.neighborhoods_.get(layer)
        found = "left out" if rule is None else name(repr(rule))
        table.add_row(Text(name(layer)), str(index.n_features), Text(found))
    n_rows = next(iter(classifier.indexes_.values())).n_rows
    console.print(f"{n_rows:,} training samples of {len(classifier.classes_)} classes")
    console.print(table)
    if hasattr(classifier, "selection_"):
        show_selection(classifier.selection_, console)
    show_written(output, console)


def show_selection(selection: Selection, console: Console) -> None:
    """Print how the neighborhoods perform, and what is promised about them or that nothing is."""
    for sentence in selection.sentences():
        console.print(Text(visible(sentence)))  # it may quote names of layers and classes
    if selection.certificate is None and selection.false_alarm is None and not selection.note:
        console.print("Nothing is guaranteed: ask for that with --accuracy or --false-alarm")


def _table(*headings: str, right: str) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading == right else "left")
    return table


def show_written(output: Path, console: Console) -> None:
    """Print where the result is; what went to a pipe, its reader has."""
    if output == STDIN:
        return
    console.print(Text(f"Written to {visible(output)}"), soft_wrap=True)


def show_report(output: Path, console: Console) -> None:
    """Print where the page is, as a link if the terminal supports links."""
    if output == STDIN or is_stream(output):  # a stream leaves nothing to open
        show_written(output, console)
        return
    console.print(
        Text("Open in any browser, with sliders, samples and their evidence: ").append(
            visible(output), style=Style(link=output.resolve().as_uri())
        ),
        soft_wrap=True,
    )


def show_figures(assessment: Assessment, y_true: Labels | None, console: Console) -> None:
    """Print the figures, compared with the truth if it is known."""
    if y_true is not None:
        console.print(Text(str(evaluate(assessment, y_true))))
    else:
        show_counts(np.bincount(assessment.assertion, minlength=len(Assertion)), console)


def show_counts(counts: Ints, console: Console) -> None:
    """Print how often each assertion was made."""
    for assertion in reversed(Assertion):
        count, share = int(counts[assertion]), percent(counts[assertion] / counts.sum())
        console.print(f"[{COLORS[assertion]}]{assertion.name:<4}[/] {count:>9,} {share:>7}")


def _first_rows(assessment: Assessment) -> Table:
    """One row per sample, with its level if there are levels."""
    has_levels = assessment.levels is not None
    table = _table("sample", "belief", "assertion", "reason", right="sample")
    if has_levels:
        table.add_column("level", justify="right")
    for i, answer in enumerate(assessment.answers.rows()):
        belief = NO_ANSWER if answer["belief"] is None else name(answer["belief"])
        assertion = Text(answer["assertion"], style=COLORS[Assertion[answer["assertion"]]])
        row = [str(i), Text(belief), assertion, answer["reason"].lower()]
        if has_levels:
            row.append(f"{answer['level']:.3f}")
        table.add_row(*row)
    return table


def show_outcome(outcome: Outcome, output: Path | None, console: Console) -> None:
    """Print the figures, and the first rows or where all of them were written."""
    if outcome.tally is None:
        show_counts(outcome.counts, console)
    else:
        console.print(Text(str(outcome.tally)))
    if outcome.tuned is not None:
        console.print(
            f"IK begins at another level than the tuned one, {outcome.tuned:.3f}: what was "
            "guaranteed there is not guaranteed here"
        )
    if output is not None:
        show_written(output, console)
        return
    console.print(_first_rows(outcome.first))
    if outcome.n_samples > len(outcome.first):
        rest = outcome.n_samples - len(outcome.first)
        console.print(f"... and {rest:,} more: write all of them with -o")


def show_comparison(
    comparison: Comparison, outputs: Sequence[Path | None], console: Console
) -> None:
    """Print the tables, our own rows in bold, and where the results were written."""
    for line in str(comparison).splitlines():
        own = line.startswith(f"{OURS} ") and "%" in line and ":" not in line
        console.print(Text(line, style="bold" if own else ""), soft_wrap=True)
    for output in outputs:
        if output is not None:
            show_written(output, console)


QUORUM = re.compile(r", quorum=(\([0-9, ]*\)|[0-9]+)")
NUMBER = re.compile(r"[0-9]+\.[0-9]{4,17}(e-?[0-9]+)?")


def show_info(info: Any, console: Console) -> None:
    """Print what a bundle is."""
    console.print(Text(name(info.title), style="bold"))
    for line in info.note.splitlines():
        console.print(Text(name(line, 1_000)))
    facts = Table.grid(padding=(0, 2))
    for heading, value in list_facts(info).items():
        facts.add_row(Text(heading, style="dim"), Text(value))
    if info.selection is not None and info.selection.level is not None:
        facts.add_row(Text("level", style="dim"), f"IK begins at {info.selection.level:.3f}")
    console.print(Padding(facts, (1, 0, 0, 0)))
    console.print(_layers(info))
    if info.selection is not None:
        show_selection(info.selection, console)
        return
    for sentence in info.promises:
        console.print(Text(short_line(sentence)))


def show_exported(info: Any, console: Console) -> None:
    """Print how near a bundle's own model comes to the original, and where it was written."""
    compared = info.exported
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("", "largest difference", "tolerance"):
        table.add_column(heading, justify="left" if not heading else "right")
    for what, found in {"scores": compared["scores"], **compared["layers"]}.items():
        table.add_row(Text(name(what)), f"{found['difference']:.2g}", f"{found['tolerance']:.2g}")
    console.print(f"The model in the bundle answers alike on {compared['samples']:,} samples")
    console.print(table)
    show_written(Path(info.path), console)


def _layers(info: Any) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("layer", "features", "metric", "rule", "quorum"):
        table.add_column(heading, justify="right" if heading == "features" else "left")
    for layer in info.layers:
        rule = "not tuned" if layer.rule is None else _rounded(layer.rule)
        said = "left out" if layer.left_out is not None else rule
        quorum = "" if layer.quorum is None else ", ".join(map(str, layer.quorum))
        facts = Text(name(layer.metric)), Text(said), quorum
        table.add_row(Text(name(layer.name)), f"{layer.n_features:,}", *facts)
    return table


def _rounded(rule: str) -> str:
    """A rule without its quorum, its numbers as people read them."""
    without = QUORUM.sub("", name(rule))
    return NUMBER.sub(lambda number: f"{float(number[0]):.4g}", without)
