"""`iknow add`, `remove`, `relabel`, `compact` and `changes`: a bundle whose evidence changes.

Each job loads the bundle, changes it, and commits the change.
"""

from __future__ import annotations

import csv
import getpass
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.jobs.assess import inputs_of, load_classifier
from iknow.cli.jobs.forms import takes_text
from iknow.cli.jobs.source import Source, trained_names
from iknow.core.arrays import Ints, Labels
from iknow.core.text import name, shown
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.storage.bundle import compact_bundle
from iknow.storage.info import BundleInfo, describe_bundle
from iknow.tables.table import as_integers

LOG = "The log"
WhoOption = Annotated[str | None, options.option("Who changes it. Default: your login name.", LOG)]
WhyOption = Annotated[str, options.option("Why.", LOG)]
IdsFileOption = Annotated[
    Path | None, typer.Option(help="File with a sample's number in each line.")
]
NUMBER = re.compile(r"[0-9]{1,19}")
MOST_IDS = 10_000_000
IDS_SHOWN = 8


def add(
    bundle: options.BundleArgument,
    data: options.DataArgument,
    model: options.ModelOption = None,
    label: options.LabelOption = None,
    labels: options.LabelsOption = None,
    identifier: Annotated[
        str | None,
        options.option(
            "Column of whole numbers that name the samples. Default: they count on.",
            options.COLUMNS,
            "--id",
            metavar="COLUMN",
        ),
    ] = None,
    drop: options.DropOption = None,
    features: options.FeaturesOption = None,
    text: options.TextOption = None,
    input_format: options.InputFormatOption = None,
    who: WhoOption = None,
    why: WhyOption = "",
    no_check_model: options.NoCheckOption = False,
    config: options.ConfigOption = None,
) -> None:
    """Add labeled samples to a bundle's evidence.

    What was certified is stale afterwards, until it is certified again. For
    example:

    iknow add b.iknow new.csv --label y --model m.joblib --why "night shots"
    """
    roles = options.roles_of(label, identifier, drop, features, text)
    with Console(stderr=True).status("Adding ..."):
        numbers = add_job(
            bundle,
            Source(data, roles, labels, input_format),
            model=model,
            check_model=not no_check_model,
            who=login_name() if who is None else who,
            why=why,
        )
    show_numbers("Added", numbers, bundle, Console())


def remove(
    bundle: options.BundleArgument,
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--ids", help="Numbers of samples, with commas between; repeatable.", metavar="3,7,..."
        ),
    ] = None,
    ids_file: IdsFileOption = None,
    who: WhoOption = None,
    why: WhyOption = "",
    config: options.ConfigOption = None,
) -> None:
    """Remove samples from a bundle's evidence, by their numbers.

    It needs no model. Their data is in the file until `iknow compact`. For
    example:

    iknow remove b.iknow --ids 3,7 --why "consent withdrawn"
    """
    numbers = read_ids(ids, ids_file)
    remove_job(bundle, numbers, who=login_name() if who is None else who, why=why)
    show_numbers("Removed", numbers, bundle, Console())


def relabel(
    bundle: options.BundleArgument,
    pairs: Annotated[
        list[str] | None, typer.Argument(help="Numbers and labels.", metavar="ID=LABEL...")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help=".csv file with a number and a label in each line.")
    ] = None,
    who: WhoOption = None,
    why: WhyOption = "",
    config: options.ConfigOption = None,
) -> None:
    """Give samples of a bundle's evidence other labels.

    It needs no model. For example:

    iknow relabel b.iknow 3=cat 7=dog --why "second opinion"
    """
    numbers, labels = read_pairs(pairs, file)
    relabel_job(bundle, numbers, labels, who=login_name() if who is None else who, why=why)
    show_numbers("Relabeled", numbers, bundle, Console())


def compact(bundle: options.BundleArgument, config: options.ConfigOption = None) -> None:
    """Fold a bundle's changes into it: nothing of removed samples is left but the log.

    Those who have it loaded keep the old file. For example:

    iknow compact b.iknow
    """
    with Console(stderr=True).status("Compacting ..."):
        before, after = compact_job(bundle)
    show_compacted(before, after, Console())


def changes(
    bundle: options.BundleArgument,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    config: options.ConfigOption = None,
) -> None:
    """List what happened to a bundle's evidence: who changed which samples, when and why.

    For example:

    iknow changes b.iknow
    """
    found = describe_bundle(bundle)
    if json:
        from json import dumps

        typer.echo(dumps(found.to_dict()["changes"], indent=1, ensure_ascii=True, default=str))
        return
    show_changes(found, Console())


def add_job(
    bundle: Path, data: Source, *, model: str | None, check_model: bool, who: str, why: str
) -> Ints:
    """Add the samples of a file, with their labels; return their numbers, of shape (n,)."""
    classifier = load_classifier(bundle, model, None, check_model=check_model)
    classifier.progress = False
    with warnings.catch_warnings():
        # `take_inputs` compares the column names and restores their order.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        table, labels = data.read_labelled(mixed=takes_text(classifier.model))
        if table.features is not None and isinstance(classifier.model_, PrecomputedModel):
            raise InputError("the file holds inputs, but the bundle no model: name it with --model")
        inputs = inputs_of(classifier.model, table, trained_names(classifier))
        rows = None if table.ids is None else _as_numbers([str(each) for each in table.ids])
        numbers = classifier.memory.add(inputs, _in_kind(labels, classifier), rows, who, why)
    classifier.memory.commit()
    return numbers


def remove_job(bundle: Path, ids: Ints, *, who: str, why: str) -> None:
    """Remove samples from a bundle, by their numbers; it needs no model."""
    _load_without_model(bundle).memory.remove(ids, who, why).commit()


def relabel_job(bundle: Path, ids: Ints, labels: Labels, *, who: str, why: str) -> None:
    """Give samples other labels, of shape (n,); it needs no model."""
    classifier = _load_without_model(bundle)
    classifier.memory.relabel(ids, _in_kind(labels, classifier), who, why).commit()


def compact_job(bundle: Path) -> tuple[BundleInfo, BundleInfo]:
    """Fold a bundle's changes into it; return what it was before, and what it is."""
    before = describe_bundle(bundle)
    compact_bundle(bundle)
    return before, describe_bundle(bundle)


def login_name() -> str:
    """The name of the user who runs this, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no name for this number, as in a container
        return ""


def read_ids(texts: Sequence[str] | None, path: Path | None) -> Ints:
    """Numbers of samples: from texts such as "3,7", and from a file with one in each line."""
    words = [word.strip() for text in texts or () for word in text.split(",")]
    if path is not None:
        words += [line.strip() for line in _read_lines(path) if line.strip()]
    return _as_numbers(words)


def read_pairs(texts: Sequence[str] | None, path: Path | None) -> tuple[Ints, Labels]:
    """Numbers and labels: from texts such as "3=cat", and from a .csv file of such pairs."""
    pairs = [text.partition("=")[::2] for text in texts or ()]
    if path is not None:
        rows = [row for row in csv.reader(_read_lines(path)) if row]
        if wrong := [row for row in rows if len(row) != 2]:
            raise InputError(f"{path} must have a number and a label in each line; got {wrong[0]}")
        pairs += [(row[0], row[1]) for row in rows]
    if pairs and not NUMBER.fullmatch(pairs[0][0].strip()) and path is not None and not texts:
        pairs = pairs[1:]  # the names of the columns
    labels = [label.strip() for _, label in pairs]
    if "" in labels:
        raise InputError("every number needs a label, such as 3=cat")
    return _as_numbers([number.strip() for number, _ in pairs]), np.array(labels, dtype=str)


def _as_numbers(words: Sequence[str]) -> Ints:
    if wrong := [word for word in words if not NUMBER.fullmatch(word)]:
        raise InputError(
            f"samples are named by their numbers, such as `iknow changes` shows them; got "
            f"{shown(wrong[0])}"
        )
    if not words or len(words) > MOST_IDS:
        raise InputError(f"name at least one sample, and {MOST_IDS:,} at most; got {len(words):,}")
    if (largest := max(map(int, words))) > np.iinfo(np.int64).max:
        raise InputError(f"numbers of samples have 64 bits; got {largest}")
    return np.array([int(word) for word in words], dtype=np.int64)


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text: {error}") from error


def _in_kind(labels: Any, classifier: EpistemicClassifier) -> Any:
    """Labels as the classifier knows them: cells of text may be ints too."""
    if labels.dtype.kind == "U" and classifier.classes_.dtype.kind in "iu":
        return as_integers(labels)
    return labels


def _load_without_model(bundle: Path) -> EpistemicClassifier:
    return EpistemicClassifier.load(bundle, PrecomputedModel(), check_model=False)


def show_numbers(verb: str, numbers: Ints, bundle: Path, console: Console) -> None:
    """Print which samples a change was about."""
    n = len(numbers)
    console.print(
        Text(f"{verb} {n:,} sample{'' if n == 1 else 's'} ({list_ids(numbers)}) in {bundle}"),
        soft_wrap=True,
    )


def show_compacted(before: Any, after: Any, console: Console) -> None:
    """Print what a compaction did."""
    folded = f"Folded {before.n_segments:,} changes into {after.path}"
    console.print(Text(f"{folded}: {before.n_bytes:,} bytes became {after.n_bytes:,}"))


def show_changes(info: Any, console: Console) -> None:
    """Print the log of a bundle, and what it means for its promise."""
    if not info.changes:
        console.print("Nothing has changed since its evidence was collected")
        return
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for heading in ("when", "who", "what", "samples", "why"):
        table.add_column(heading)
    for each in info.changes:
        what = f"{each.what} {len(each.ids):,}"
        words = each.when, name(each.who), what, list_ids(each.ids), name(each.why, 400)
        table.add_row(*map(Text, words))
    console.print(table)
    if info.n_segments:
        console.print(
            f"{info.n_segments:,} of these are appended to the file: removed samples are in it "
            "until `iknow compact`",
            soft_wrap=True,
        )
    if info.selection is not None and info.selection.stale:
        console.print(Text(name(f"Stale since {info.selection.stale}", 400)), soft_wrap=True)


def list_ids(numbers: Ints) -> str:
    """Numbers of samples, the first of many, and runs of them as such."""
    found = [int(each) for each in numbers]
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    shown = ", ".join(map(str, found[:IDS_SHOWN]))
    return shown + (f", … ({len(found):,} in all)" if len(found) > IDS_SHOWN else "")
