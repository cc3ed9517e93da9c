"""`iknow add`, `remove`, `relabel`, `compact` and `changes`: a bundle whose evidence changes."""

from __future__ import annotations

import csv
import getpass
import re
from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli import options
from iknow.cli.data import inputs_for, shown_table
from iknow.cli.options import argument, option
from iknow.core.arrays import Ints, Labels
from iknow.core.text import name, shown
from iknow.errors import InputError
from iknow.models import PrecomputedModel
from iknow.storage.bundle import compact_bundle
from iknow.storage.info import describe_bundle
from iknow.tables.table import as_integers

NUMBER = re.compile(r"[0-9]{1,19}")
MOST_IDS = 10_000_000
IDS_SHOWN = 8


@dataclass(frozen=True)
class Log:
    """What the log says about a change."""

    who: str | None = option("Who changes it. Default: your login name.", options.LOG)
    why: str = option("Why.", options.LOG, default="")

    @property
    def entry(self) -> tuple[str, str]:
        if self.who is not None:
            return self.who, self.why
        try:
            return getpass.getuser(), self.why
        except (OSError, KeyError, ImportError):  # no name for this number, as in a container
            return "", self.why


@options.command
def add(
    *,
    bundle: Path = options.BUNDLE,
    data: Path = options.SAMPLES,
    model: options.BundledModel,
    samples: options.SampleOptions,
    log: Log,
) -> None:
    """Add labeled samples to a bundle's evidence.

    What was certified is stale afterwards, until it is certified again. For
    example:

    iknow add b.iknow new.csv --label y --model m.joblib --why "night shots"
    """
    source = samples.source(data)
    with Console(stderr=True).status("Adding ..."):
        classifier = model.load(bundle)
        table, labels = source.read_labeled(classifier.model)
        inputs = inputs_for(classifier, table)
        rows = None if table.ids is None else _as_numbers([str(each) for each in table.ids])
        labels = _in_kind(labels, classifier)
        numbers = classifier.memory.add(inputs, labels, rows, *log.entry)
        classifier.memory.commit()
    _show("Added", numbers, bundle)


@options.command
def remove(
    *,
    bundle: Path = options.BUNDLE,
    ids: list[str] | None = option(
        "Numbers of samples, with commas between; repeatable.", None, "--ids", metavar="3,7,..."
    ),
    ids_file: Path | None = option("File with a sample's number in each line."),
    log: Log,
) -> None:
    """Remove samples from a bundle's evidence, by their numbers.

    It needs no model. Their data is in the file until `iknow compact`. For
    example:

    iknow remove b.iknow --ids 3,7 --why "consent withdrawn"
    """
    words = [word.strip() for text in ids or () for word in text.split(",")]
    if ids_file is not None:
        words += [line.strip() for line in _read_lines(ids_file) if line.strip()]
    numbers = _as_numbers(words)
    _load_without_model(bundle).memory.remove(numbers, *log.entry).commit()
    _show("Removed", numbers, bundle)


@options.command
def relabel(
    *,
    bundle: Path = options.BUNDLE,
    pairs: list[str] | None = argument("Numbers and labels.", default=None, metavar="ID=LABEL..."),
    file: Path | None = option(".csv file with a number and a label in each line."),
    log: Log,
) -> None:
    """Give samples of a bundle's evidence other labels.

    It needs no model. For example:

    iknow relabel b.iknow 3=cat 7=dog --why "second opinion"
    """
    numbers, labels = _read_pairs(pairs or (), file)
    classifier = _load_without_model(bundle)
    classifier.memory.relabel(numbers, _in_kind(labels, classifier), *log.entry).commit()
    _show("Relabeled", numbers, bundle)


@options.command
def compact(bundle: Path = options.BUNDLE) -> None:
    """Fold a bundle's changes into it: nothing of removed samples is left but the log.

    Those who have it loaded keep the old file. For example:

    iknow compact b.iknow
    """
    with Console(stderr=True).status("Compacting ..."):
        before = describe_bundle(bundle)
        compact_bundle(bundle)
        after = describe_bundle(bundle)
    folded = f"Folded {before.n_segments:,} changes into {after.path}"
    Console().print(Text(f"{folded}: {before.n_bytes:,} bytes became {after.n_bytes:,}"))


@options.command
def changes(bundle: Path = options.BUNDLE, json: bool = options.AS_JSON) -> None:
    """List what happened to a bundle's evidence: who changed which samples, when and why.

    For example:

    iknow changes b.iknow
    """
    found, console = describe_bundle(bundle), Console()
    if json:
        log = found.to_dict()["changes"]
        typer.echo(dumps(log, indent=1, ensure_ascii=True, default=str))
        return
    if not found.changes:
        console.print("Nothing has changed since its evidence was collected")
        return
    table = shown_table("when", "who", "what", "samples", "why")
    for each in found.changes:
        what = f"{each.what} {len(each.ids):,}"
        words = each.when, name(each.who), what, _list_ids(each.ids), name(each.why, 400)
        table.add_row(*map(Text, words))
    console.print(table)
    if found.n_segments:
        console.print(
            f"{found.n_segments:,} of these are appended to the file: removed samples are in it "
            "until `iknow compact`",
            soft_wrap=True,
        )
    if found.selection is not None and found.selection.stale:
        console.print(Text(name(f"Stale since {found.selection.stale}", 400)), soft_wrap=True)


def _read_pairs(texts: Sequence[str], path: Path | None) -> tuple[Ints, Labels]:
    """Numbers and labels: from texts such as "3=cat", and from a .csv file of such pairs."""
    pairs = [text.partition("=")[::2] for text in texts]
    if path is not None:
        rows = [row for row in csv.reader(_read_lines(path)) if row]
        if wrong := [row for row in rows if len(row) != 2]:
            raise InputError(f"{path} must have a number and a label in each line; got {wrong[0]}")
        pairs += [(row[0], row[1]) for row in rows]
        if pairs and not texts and not NUMBER.fullmatch(pairs[0][0].strip()):
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


def _in_kind(labels: Labels, classifier: EpistemicClassifier) -> Labels:
    """Labels as the classifier knows them: cells of text may be ints too."""
    if labels.dtype.kind == "U" and classifier.classes_.dtype.kind in "iu":
        return as_integers(labels)
    return labels


def _load_without_model(bundle: Path) -> EpistemicClassifier:
    return EpistemicClassifier.load(bundle, PrecomputedModel(), check_model=False)


def _show(verb: str, numbers: Ints, bundle: Path) -> None:
    """Print which samples a change was about."""
    n = f"{len(numbers):,} sample{'' if len(numbers) == 1 else 's'}"
    Console().print(Text(f"{verb} {n} ({_list_ids(numbers)}) in {bundle}"), soft_wrap=True)


def _list_ids(numbers: Ints) -> str:
    """Numbers of samples, the first of many, and runs of them as such."""
    found = [int(each) for each in numbers]
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return f"{found[0]} to {found[-1]}"
    listed = ", ".join(map(str, found[:IDS_SHOWN]))
    return listed + (f", … ({len(found):,} in all)" if len(found) > IDS_SHOWN else "")
