"""`iknow assess`: from a bundle and a file to assertions, part by part.

While one part is assessed the next is read, and the last is written: the file may be larger than
memory. Counts of the parts add up to those of the whole.

With `--ray` the actors of `iknow.integrations.ray` read row groups of Parquet files themselves, in
the same parts as without Ray, and send back what each part comes to, or the error that stopped it.
So the answers, their order and the first error are the same.
"""

from __future__ import annotations

import logging
import os
import pickle
import warnings
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
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
    inputs_for,
    paths_read,
    show_written,
    shown_table,
    takes_text,
)
from iknow.cli.errors import UNNAMED
from iknow.cli.options import option
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.text import name, percent
from iknow.core.text import names as quoted
from iknow.errors import ClusterError, InputError, MissingExtraError
from iknow.evaluation.estimate import Estimate, estimate
from iknow.evaluation.metrics import NO_ANSWER, Evaluation, evaluate
from iknow.explain.assessment import Assessment
from iknow.models import PrecomputedModel
from iknow.models.samples import one_ahead
from iknow.selection.levels import candidate_at
from iknow.tables import DataTable, Roles, format_to_write, writing
from iknow.tables.table import as_integers, decoding, existing

ROWS_SHOWN = 10
MOST_BLOCKS = 1_000  # into which the work of Ray is cut
DISTANCES = ("for", "for_row", "against", "reach")
WRITTEN = ("belief", "assertion", "reason", "level", "weakest", "probability", "justified")


@dataclass(frozen=True, eq=False)
class Totals:
    """What an assessment of any number of samples comes to.

    counts: by assertion. tally: with the truth, or estimated, if either is known. first: the first
    samples.
    """

    counts: Ints
    tally: Evaluation | Estimate | None
    first: Assessment

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())

    def plus(self, part: Totals) -> Totals:
        """That of these samples and those that follow."""
        tally = self.tally
        if tally is not None and part.tally is not None:
            tally += part.tally  # type: ignore[operator]  # all parts have labels, or none has
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
    samples: options.SampleOptions,
    output: Path | None = option("Table to write, or - for a pipe.", None, "--output", "-o"),
    level: float | None = options.LEVEL,
    output_format: str | None = options.OUTPUT_FORMAT,
    batch_size: int | None = options.BATCH_SIZE,
    device: str | None = options.DEVICE,
    ray: bool = option("Assess on all cores with Ray: a .parquet file or a folder of them."),
    ray_address: str | None = option(
        "The Ray cluster to use; this machine if not given.", metavar="ADDRESS"
    ),
) -> None:
    """Say IK, IMK or IDK for each prediction, and its level; with labels, how often it is right.

    Without labels it estimates that, if the bundle was tuned with labels.

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
        classifier, tuned = setup.load()
        spread = partial(_assess_by_ray, address=ray_address) if ray else _assess_here
        assessed = stack.enter_context(spread(setup, classifier, source))
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


@contextmanager
def _assess_by_ray(
    setup: Setup, classifier: EpistemicClassifier, source: DataFile, *, address: str | None
) -> Iterator[Iterator[Said]]:
    """The parts of a source, assessed by the actors of a cluster. address: as for `join`."""
    try:
        import ray
        import ray.data

        from iknow.search.ray import join
    except ImportError as error:
        raise MissingExtraError("assessing with --ray", "ray") from error
    is_parquet = source.path.is_dir() or source.path.suffix.lower() == ".parquet"
    if not is_parquet or source.form not in (None, "parquet"):
        raise InputError(
            f"--ray reads a Parquet file, or a folder of them; got {source.name}: leave out --ray, "
            "or convert it"
        )
    if source.labels_path is not None:
        raise InputError("--ray takes labels from a column, --label, and not from --labels")
    groups = find_groups(source.path)
    with reading_group(*groups[0], source.roles, classifier.model) as parts:
        next(parts)  # a missing column is found before Ray starts
    ours = not ray.is_initialized()
    try:
        join(address)
        with closing(_spread(setup, groups, source.roles)) as said:
            yield said
    finally:
        if ours:
            ray.shutdown()


def find_groups(source: Path) -> list[tuple[Path, int]]:
    """The row groups of a Parquet file, or of all in a folder by the order of their names."""
    import pyarrow.parquet as pq

    files = [existing(source)] if not source.is_dir() else sorted(source.glob("*.parquet"))
    if not files:
        raise InputError(f"{source} holds no file ending in .parquet")
    groups, first = list[tuple[Path, int]](), None
    for path in files:
        with decoding(path):
            meta = pq.read_metadata(existing(path))
            names = meta.schema.to_arrow_schema().names
        first = names if first is None else first
        if names != first:
            raise InputError(
                f"all files of {source} must have the same columns in the same order: {path.name} "
                f"has {quoted(names)}, and {files[0].name} has {quoted(first)}"
            )
        groups += [(path, i) for i in range(meta.num_row_groups) if meta.row_group(i).num_rows]
    if not groups:
        raise InputError(f"{source} is empty: it has columns but no rows")
    return groups


@contextmanager
def reading_group(
    path: Path, group: int, roles: Roles, model: Any
) -> Iterator[Iterator[DataTable]]:
    """The samples of a row group, part by part; text may be a feature if the model takes it."""
    from iknow.tables.columns import open_parquet, read_parts

    with path.open("rb") as file:
        opened = open_parquet(file, path, [group])
        yield read_parts(opened, path, roles, labelled=True, mixed=takes_text(model))


def _spread(setup: Setup, groups: list[tuple[Path, int]], roles: Roles) -> Generator[Said]:
    """What the actors say, in the order of the row groups."""
    import ray

    from iknow.integrations.ray import assess as assess_rows

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are ours to tell
    ray.data.DataContext.get_current().enable_progress_bars = False
    items = [{"path": str(path), "group": group} for path, group in groups]
    said = assess_rows(
        ray.data.from_items(items, override_num_blocks=min(len(items), MOST_BLOCKS)),
        partial(_load, setup, Path.cwd()),
        answer=partial(_answer, roles=roles, written=setup.written),
        batch_format="numpy",
        batch_size=None,
        num_gpus=int((setup.device or "").startswith("cuda")),
    )
    try:
        for batch in said.iter_batches(batch_size=None, batch_format="numpy"):
            for part in batch["part"]:
                found = pickle.loads(part)
                if isinstance(found, Exception):
                    raise found
                yield found
    except ray.exceptions.RayError as error:
        raise ClusterError(f"Ray lost a part of the work: {error}; run it again") from error


def _load(setup: Setup, here: Path) -> EpistemicClassifier:
    """An actor's classifier. here: the folder that relative names start from."""
    os.chdir(here)
    warnings.filterwarnings("ignore", message=UNNAMED)
    return setup.load()[0]


def _answer(
    classifier: EpistemicClassifier, batch: dict[str, Any], *, roles: Roles, written: bool
) -> Generator[dict[str, Any]]:
    """What each part of some row groups comes to, or an error, pickled in a row each."""
    try:
        for path, group in zip(batch["path"], batch["group"], strict=True):
            with (
                reading_group(Path(path), int(group), roles, classifier.model) as parts,
                closing(assess_parts(classifier, parts, written=written)) as assessed,
            ):
                for said in assessed:
                    yield _row(said)
    except Exception as error:
        yield _row(error)


def _row(found: Said | Exception) -> dict[str, Any]:
    row = np.empty(1, dtype=object)
    try:
        row[0] = pickle.dumps(found)
    except Exception:  # of the user's code
        row[0] = pickle.dumps(InputError(f"{type(found).__name__}: {found}"))
    return {"part": row}


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
    if table.features is None and not isinstance(classifier.model_, PrecomputedModel):
        raise InputError("the file already holds a model's outputs: leave out --model")
    inputs = inputs_for(classifier, table)
    if not hasattr(classifier, "neighborhoods_"):
        raise InputError("the bundle has no neighborhoods: tune before saving, or run `iknow fit`")
    return classifier.assess(inputs, **how)


def _tally(assessment: Assessment, table: DataTable) -> Evaluation | Estimate | None:
    """How often a part is right, or probably is; cells of text may be ints too."""
    labels = table.labels
    if labels is None:
        return estimate(assessment)
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
    numbers = ("sample", "level", "probability")
    levels = numbers[1 : 1 + (total.first.levels is not None)]
    levels += numbers[2 : 2 + (total.first.calibration is not None)]
    table = shown_table("sample", "belief", "assertion", "reason", *levels, right=numbers)
    for i, answer in enumerate(total.first.answers.rows()):
        belief = NO_ANSWER if answer["belief"] is None else name(answer["belief"])
        assertion = Text(answer["assertion"], style=COLORS[Assertion[answer["assertion"]]])
        row = [str(i), Text(belief), assertion, answer["reason"].lower()]
        told = ("-" if answer[each] is None else f"{answer[each]:.3f}" for each in levels)
        table.add_row(*row, *told)
    console.print(table)
    if total.n_samples > len(total.first):
        rest = total.n_samples - len(total.first)
        console.print(f"... and {rest:,} more: write all of them with -o")


def show_counts(counts: Ints, console: Console) -> None:
    """Print how often each assertion was made."""
    for assertion in reversed(Assertion):
        count, share = int(counts[assertion]), percent(counts[assertion] / counts.sum())
        console.print(f"[{COLORS[assertion]}]{assertion.name:<4}[/] {count:>9,} {share:>7}")
