"""Assessing: from a bundle and a file to assertions, part by part.

While one part is assessed the next is read, and the last is written: the file may be larger than
memory. Counts of the parts add up to those of the whole.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.classifier.observe import one_ahead
from iknow.cli.jobs.forms import in_form, takes_text
from iknow.cli.jobs.outputs import check_output, paths_read
from iknow.cli.jobs.source import Source, check_width, take_inputs, trained_names
from iknow.cli.model_files import load_model
from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion
from iknow.core.evidence import NO_EXEMPLAR, distances_for_and_against
from iknow.errors import InputError
from iknow.evaluation.metrics import Evaluation, evaluate
from iknow.explain.assessment import Assessment
from iknow.models import PrecomputedModel
from iknow.selection.levels import candidate_at
from iknow.tables import Table, format_to_write, writing
from iknow.tables.table import as_integers

ROWS_SHOWN = 10
WRITTEN = ("belief", "assertion", "reason", "level", "weakest", "justified")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an assessment of any number of samples comes to.

    counts: by assertion. tally: with the truth, if it is known. first: the first samples. tuned:
    the level that the bundle was tuned to, if another was asked for.
    """

    counts: Ints
    tally: Evaluation | None
    first: Assessment
    tuned: float | None = None

    @property
    def n_samples(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Setup:
    """What assesses: a bundle with the model of a file, and how.

    level: assert at this one, and not at the one that was tuned.
    """

    bundle: Path
    model: str | None = None
    level: float | None = None
    device: str | None = None
    batch_size: int | None = None
    check_model: bool = True

    def load(self) -> tuple[EpistemicClassifier, float | None]:
        """The classifier, and the tuned level if another was asked for."""
        loaded = load_classifier(self.bundle, self.model, self.device, check_model=self.check_model)
        loaded.batch_size = self.batch_size or loaded.batch_size
        loaded.progress = False  # a bar for each part would say little
        return loaded, None if self.level is None else assert_at(loaded, self.level)


Said = tuple[Outcome, dict[str, Any]]
"""What a part comes to, and its columns if they are to be written."""

Way = Callable[[Setup, EpistemicClassifier, Source, bool], AbstractContextManager[Iterator[Said]]]
"""A way to assess the samples of a source, part by part in their order: here, or elsewhere. It
takes whether columns are to be written."""


@contextmanager
def assess_here(
    setup: Setup, classifier: EpistemicClassifier, data: Source, written: bool
) -> Iterator[Iterator[Said]]:
    """Assess the parts of a file in this process."""
    with (
        data.parts(mixed=takes_text(classifier.model)) as parts,
        closing(assess_parts(classifier, parts, written=written)) as assessed,
    ):
        yield assessed


def assess_job(
    setup: Setup,
    data: Source,
    output: Path | None = None,
    *,
    output_form: str | None = None,
    way: Way = assess_here,
    told: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Assess the samples of a source; write a row each to `output`.

    told: is called with the number of samples that are done.
    """
    form = None if output is None else format_to_write(output, output_form)
    if output is not None:
        check_output(output, [setup.bundle, *paths_read(data, model=setup.model)])
    classifier, tuned = setup.load()
    total: Outcome | None = None
    with ExitStack() as stack:
        assessed = stack.enter_context(way(setup, classifier, data, form is not None))
        write = None
        for outcome, columns in stack.enter_context(closing(one_ahead(assessed))):
            if form is not None and output is not None:
                write = write or stack.enter_context(writing(output, form))
                write(columns)
            total = outcome if total is None else _add(total, outcome)
            told(total.n_samples)
    assert total is not None  # a file without samples is refused
    return replace(total, tuned=tuned)


def assess_parts(
    classifier: EpistemicClassifier, parts: Iterator[Table], *, written: bool
) -> Generator[Said]:
    """What each part comes to, and its columns if they are to be written."""
    with closing(one_ahead(parts)) as tables, warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        for table in tables:
            assessment = assess_table(classifier, table, evidence=written)
            counts = np.bincount(assessment.assertion, minlength=len(Assertion))
            outcome = Outcome(counts, _tally(assessment, table), assessment[:ROWS_SHOWN])
            yield outcome, _columns(assessment, table) if written else {}


def _tally(assessment: Assessment, table: Table) -> Evaluation | None:
    """How often a part is right, if its labels are known; cells of text may be ints too."""
    labels = table.labels
    if labels is None:
        return None
    if labels.dtype.kind == "U" and assessment.classes.dtype.kind in "iu":
        labels = as_integers(labels)
    return evaluate(assessment, labels)


def _columns(assessment: Assessment, table: Table) -> dict[str, Any]:
    """What is written about a part, after the column that identifies the samples."""
    columns = assertion_columns(assessment)
    if table.ids is None:
        return columns
    name = table.id_name or "id"
    if name in columns:
        raise InputError(f"the id is called {name!r}, as is a column of the output: rename it")
    return {name: table.ids, **columns}


def _add(total: Outcome, part: Outcome) -> Outcome:
    tally = total.tally
    if tally is not None and part.tally is not None:
        tally += part.tally
    return replace(total, counts=total.counts + part.counts, tally=tally)


def load_classifier(
    bundle: Path, model: str | None, device: str | None, *, check_model: bool
) -> EpistemicClassifier:
    """The classifier of a bundle, around the model of a file."""
    wrapped = None if model is None else load_model(model)
    return EpistemicClassifier.load(bundle, wrapped, search=device, check_model=check_model)


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


def assess_table(classifier: EpistemicClassifier, table: Table, **how: Any) -> Assessment:
    """The assessment of a table, whatever the order of its columns."""
    precomputed = isinstance(classifier.model_, PrecomputedModel)
    if table.features is not None and precomputed:
        raise InputError("the file holds inputs, but the bundle no model: name it with --model")
    if table.features is None and not precomputed:
        raise InputError("the file already holds a model's outputs: leave out --model")
    if not hasattr(classifier, "neighborhoods_"):
        raise InputError("the bundle has no neighborhoods: tune before saving, or run `iknow fit`")
    return classifier.assess(inputs_of(classifier.model, table, trained_names(classifier)), **how)


def inputs_of(
    model: Any, table: Table, names: tuple[str, ...] | None, rows: Ints | None = None
) -> Any:
    """These samples of a table, or all, as a model takes them."""
    if table.features is None:
        return take_inputs(table, None, rows)
    known = table.feature_names if names is None else names
    ordered = replace(table, features=take_inputs(table, names), feature_names=known)
    check_width(ordered, model)
    return take_inputs(in_form(ordered, model), None, rows)


def assertion_columns(assessment: Assessment) -> dict[str, Any]:
    """The columns of an assessment, and the distances that it rests on.

    With a quorum the distances are those to the samples that complete it.
    """
    rows = np.arange(len(assessment))
    answered = assessment.answered
    codes = np.where(answered, assessment.belief_codes, 0)
    answers = assessment.answers.columns()
    columns = {name: answers[name] for name in WRITTEN if name in answers}
    for layer, evidence in assessment.weighed.items():
        own, other = distances_for_and_against(evidence, codes)
        nearest = evidence.nearest_distance()  # without a belief, every class is another class
        columns[f"{layer}:for"] = np.where(answered, own, np.inf)
        exemplars = evidence.exemplars[rows, codes]
        columns[f"{layer}:for_row"] = np.where(answered, exemplars, NO_EXEMPLAR)
        columns[f"{layer}:against"] = np.where(answered, other, nearest)
        reach = assessment.neighborhoods[layer].reach(evidence)
        columns[f"{layer}:reach"] = reach[rows, codes] if reach.ndim == 2 else reach
    return columns
