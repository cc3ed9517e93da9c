"""`iknow assess`: from a bundle and a file to assertions, part by part.

While one part is assessed the next is read, and the last is written: the file may be larger than
memory. Counts of the parts add up to those of the whole.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from iknow.cards import COLORS
from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.data import (
    DataFile,
    check_output,
    console_for,
    inputs_of,
    paths_read,
    show_written,
    shown_table,
    trained_names,
)
from iknow.cli.options import option
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.text import name, percent
from iknow.errors import InputError
from iknow.evaluation.metrics import NO_ANSWER, Evaluation, evaluate
from iknow.explain.assessment import Assessment
from iknow.models import PrecomputedModel
from iknow.models.samples import one_ahead
from iknow.selection.levels import candidate_at
from iknow.tables import DataTable, format_to_write, writing
from iknow.tables.table import as_integers

ROWS_SHOWN = 10
DISTANCES = ("for", "for_row", "against", "reach")
WRITTEN = ("belief", "assertion", "reason", "level", "weakest", "justified")


@dataclass(frozen=True)
class PassedSamples(options.SampleOptions):
    """Samples whose names are passed on."""

    identifier: str | None = option(
        "Column that names the samples: no feature, and the first column of the output.",
        options.COLUMNS,
        "--id",
        metavar="COLUMN",
    )


@dataclass(frozen=True, eq=False)
class Totals:
    """What an assessment of any number of samples comes to.

    counts: by assertion. tally: with the truth, if it is known. first: the first samples.
    """

    counts: Ints
    tally: Evaluation | None
    first: Assessment

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())

    def plus(self, part: Totals) -> Totals:
        """That of these samples and those that follow."""
        tally = self.tally
        if tally is not None and part.tally is not None:
            tally += part.tally
        return Totals(self.counts + part.counts, tally, self.first)


@dataclass(frozen=True)
class Setup:
    """What assesses, how, and whether columns of its answers are to be written."""

    bundle: Path
    model: options.BundledModel
    level: float | None
    device: str | None
    batch_size: int | None
    written: bool

    def load(self) -> tuple[EpistemicClassifier, float | None]:
        """The classifier, and the tuned level if another was asked for."""
        loaded = self.model.load(self.bundle, self.device)
        loaded.batch_size = self.batch_size or loaded.batch_size
        return loaded, None if self.level is None else assert_at(loaded, self.level)


Said = tuple[Totals, dict[str, Any]]
"""What a part comes to, and its columns if they are to be written."""


@options.command
def assess(
    *,
    bundle: Path = options.BUNDLE,
    data: Path = options.SAMPLES,
    model: options.BundledModel,
    samples: PassedSamples,
    output: Path | None = option("Table to write, or - for a pipe.", None, "--output", "-o"),
    level: float | None = options.LEVEL,
    output_format: str | None = options.OUTPUT_FORMAT,
    batch_size: int | None = options.BATCH_SIZE,
    device: str | None = options.DEVICE,
    ray: bool = option(
        "Assess on all cores with Ray: a .parquet file or a folder of them.",
        None,
        "--ray",
        default=False,
    ),
    ray_address: str | None = option(
        "The Ray cluster to use; this machine if not given.", metavar="ADDRESS"
    ),
) -> None:
    """Say IK, IMK or IDK for each prediction, and its level; with labels, how often it is right.

    The data may be larger than memory. For example:

    iknow assess b.iknow new.csv --model m.joblib --id number -o answers.csv

    And between other commands, from one pipe to another:

    zcat new.csv.gz | iknow assess b.iknow - --model m.onnx -o - | grep IDK
    """
    if ray_address is not None and not ray:
        raise typer.BadParameter("it goes with --ray", param_hint="--ray-address")
    source = samples.source(data)
    setup = Setup(bundle, model, level, device, batch_size, output is not None)
    form = None if output is None else format_to_write(output, output_format)
    if output is not None:
        check_output(output, [bundle, *paths_read(source, model=model.model)])
    total: Totals | None = None
    with Console(stderr=True).status("Assessing ...") as status, ExitStack() as stack:
        if ray:
            from iknow.cli.assess_ray import assess_by_ray

        classifier, tuned = setup.load()
        assessed = stack.enter_context(
            assess_by_ray(setup, classifier, source, ray_address)
            if ray
            else _assess_here(setup, classifier, source)
        )
        write = None
        for outcome, columns in stack.enter_context(closing(one_ahead(assessed))):
            if output is not None and form is not None:
                write = write or stack.enter_context(writing(output, form))
                write(columns)
            total = outcome if total is None else total.plus(outcome)
            status.update(f"Assessed {total.n_samples:,} samples ...")
    assert total is not None  # a file without samples is refused
    _show(total, tuned, output, console_for(output))


@contextmanager
def _assess_here(
    setup: Setup, classifier: EpistemicClassifier, source: DataFile
) -> Iterator[Iterator[Said]]:
    with (
        source.parts(classifier.model) as parts,
        closing(assess_parts(classifier, parts, written=setup.written)) as assessed,
    ):
        yield assessed


def assess_parts(
    classifier: EpistemicClassifier, parts: Iterator[DataTable], *, written: bool
) -> Generator[Said]:
    """What each part comes to, and its columns if they are to be written."""
    with closing(one_ahead(parts)) as tables:
        for table in tables:
            found = assess_table(classifier, table, evidence=written)
            counts = np.bincount(found.assertion, minlength=len(Assertion))
            outcome = Totals(counts, _tally(found, table), found[:ROWS_SHOWN])
            yield outcome, _columns(found, table) if written else {}


def assess_table(classifier: EpistemicClassifier, table: DataTable, **how: Any) -> Assessment:
    """The assessment of a table, whatever the order of its columns."""
    precomputed = isinstance(classifier.model_, PrecomputedModel)
    if table.features is not None and precomputed:
        raise InputError("the file holds inputs, but the bundle no model: name it with --model")
    if table.features is None and not precomputed:
        raise InputError("the file already holds a model's outputs: leave out --model")
    if not hasattr(classifier, "neighborhoods_"):
        raise InputError("the bundle has no neighborhoods: tune before saving, or run `iknow fit`")
    return classifier.assess(inputs_of(classifier.model, table, trained_names(classifier)), **how)


def _tally(assessment: Assessment, table: DataTable) -> Evaluation | None:
    """How often a part is right, if its labels are known; cells of text may be ints too."""
    labels = table.labels
    if labels is None:
        return None
    if labels.dtype.kind == "U" and assessment.classes.dtype.kind in "iu":
        labels = as_integers(labels)
    return evaluate(assessment, labels)


def _columns(assessment: Assessment, table: DataTable) -> dict[str, Any]:
    """What is written about a part, after the column that identifies the samples."""
    columns = assertion_columns(assessment)
    if table.ids is None:
        return columns
    name = table.id_name or "id"
    if name in columns:
        raise InputError(f"the id is called {name!r}, as is a column of the output: rename it")
    return {name: table.ids, **columns}


def assertion_columns(assessment: Assessment) -> dict[str, Any]:
    """The columns of an assessment, and the distances that it rests on.

    With a quorum the distances are those to the samples that complete it.
    """
    answers = assessment.answers.columns()
    columns = {name: answers[name] for name in WRITTEN if name in answers}
    for layer in assessment.evidence:
        found = assessment.for_and_against(layer)
        columns |= {f"{layer}:{name}": found[name] for name in DISTANCES}
    return columns


def assert_at(classifier: EpistemicClassifier, level: float) -> float | None:
    """Let a classifier assert at another level; return the tuned one, None if it is the same.

    What was promised was promised of the tuned level alone.
    """
    plan = classifier.plan_
    selection = plan.selection or plan.given
    if selection is None or selection.levels is None or selection.level is None:
        raise InputError(
            "--level needs a bundle with levels: fit it with the rule relative-ball, the default"
        )
    if level == selection.level:
        return None
    chosen = candidate_at(selection.levels, level)
    anew = replace(
        selection,
        neighborhoods=chosen.neighborhoods,
        level=level,
        least_confidence=chosen.least_confidence,
        certificate=None,
        false_alarm=None,
        note=f"the level is {level:g}, and not the tuned one, {selection.level:g}",
    )
    classifier.plan_ = plan.chosen(anew, len(plan.log))
    return selection.level


def _show(total: Totals, tuned: float | None, output: Path | None, console: Console) -> None:
    """Print the figures, and the first rows or where all of them were written."""
    if total.tally is None:
        show_counts(total.counts, console)
    else:
        console.print(Text(str(total.tally)))
    if tuned is not None:
        console.print(
            f"IK begins at another level than the tuned one, {tuned:.3f}: what was guaranteed "
            "there is not guaranteed here"
        )
    if output is not None:
        show_written(output, console)
        return
    levels = ("level",) if total.first.levels is not None else ()
    numbers = ("sample", "level")
    table = shown_table("sample", "belief", "assertion", "reason", *levels, right=numbers)
    for i, answer in enumerate(total.first.answers.rows()):
        belief = NO_ANSWER if answer["belief"] is None else name(answer["belief"])
        assertion = Text(answer["assertion"], style=COLORS[Assertion[answer["assertion"]]])
        row = [str(i), Text(belief), assertion, answer["reason"].lower()]
        table.add_row(*row, *(f"{answer[level]:.3f}" for level in levels))
    console.print(table)
    if total.n_samples > len(total.first):
        rest = total.n_samples - len(total.first)
        console.print(f"... and {rest:,} more: write all of them with -o")


def show_counts(counts: Ints, console: Console) -> None:
    """Print how often each assertion was made."""
    for assertion in reversed(Assertion):
        count, share = int(counts[assertion]), percent(counts[assertion] / counts.sum())
        console.print(f"[{COLORS[assertion]}]{assertion.name:<4}[/] {count:>9,} {share:>7}")
