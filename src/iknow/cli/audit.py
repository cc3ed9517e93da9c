"""`iknow audit verify`, `iknow audit export` and `iknow audit head`: the journal of a service."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.data import check_output, console_for, load_classifier, show_written
from iknow.cli.options import MODEL, OUTPUT_FORMAT, argument, option
from iknow.core.text import shown, visible
from iknow.errors import InputError, MissingExtraError
from iknow.serve.audit import NotedHead, Record, Verification, as_time, open_journal
from iknow.serve.audit import verify as verify_journal
from iknow.serve.bodies import Rows, as_columns, as_inputs, as_texts, shape_rows
from iknow.storage.info import describe_bundle
from iknow.tables import format_to_write, writing

PART = 10_000  # rows to write at a time
TEXTS = (
    "kind", "time", "request", "caller", "model", "version", "bundle", "input_hash", "belief",
    "assertion", "reason", "exemplars", "label", "what", "details",
)  # fmt: skip
JOURNAL = argument("A file, or postgresql://user@host/database.", metavar="JOURNAL")

audit = typer.Typer(
    name="audit",
    help="Check the audit trail of a service, and read it, also while the service writes to it.\n\n"
    "If the trail has a key, set IKNOW_AUDIT_KEY or IKNOW_AUDIT_KEY_FILE.",
)


@audit.command()
def verify(
    journal: str = JOURNAL,
    bundle: list[Path] | None = option(
        "Derive answers of this bundle again; repeatable.", metavar="FILE"
    ),
    model: str | None = MODEL,
    head: list[str] | None = option(
        "A head that was noted elsewhere; repeatable.", metavar="SEQ:HASH"
    ),
    level_tolerance: float = option(
        "How far a derived level may be from the recorded one.", default=0.0, min=0.0
    ),
) -> None:
    """Check that no record was changed, removed or moved, and that answers follow from inputs.

    It exits with 1 if something is wrong. Without a head that was noted elsewhere, an older copy of
    the whole trail cannot be told from a true one. For example:

    iknow audit verify audit.db --bundle signs.iknow --head 4711:5f0c...
    """
    with Console(stderr=True).status("Verifying ...") as status:
        noted = [NotedHead.from_text(each) for each in head or ()]
        paths = {describe_bundle(path).sha256: path for path in bundle or ()}
        with open_journal(journal, readonly=True) as opened:
            found = verify_journal(
                opened,
                heads=noted,
                assess=_Deriving(paths, model) if paths else None,
                level_tolerance=level_tolerance,
                told=lambda n: status.update(f"Verified {n:,} records ..."),
            )
    show_verification(found, Console(), derived=bool(bundle), noted=bool(head))
    if not found.holds:
        raise typer.Exit(1)


class _Deriving:
    """Answers derived again, by bundles that are loaded when the first of their answers comes.

    paths: of bundles, by their sha256.
    """

    def __init__(self, paths: Mapping[str, Path], model: str | None) -> None:
        self._paths, self._model = paths, model
        self._loaded: dict[str, EpistemicClassifier] = {}

    def __call__(self, bundle: str, rows: Sequence[Any]) -> Any:
        if bundle not in self._paths:
            return None
        if bundle not in self._loaded:
            self._loaded[bundle] = load_classifier(self._paths[bundle], self._model)
        classifier = self._loaded[bundle]
        if isinstance(rows[0], dict):  # inputs of one form, as the audit trail keeps them
            together = as_columns(rows)
        else:
            join = as_texts if isinstance(rows[0], str) else np.stack
            together = Rows(join(list(rows)))
        inputs = as_inputs(classifier, shape_rows(classifier, together))
        with warnings.catch_warnings():  # columns by name are in the classifier's order already
            warnings.filterwarnings("ignore", message="X has feature names")
            return classifier.assess(inputs).answers.records()


@audit.command()
def export(
    journal: str = JOURNAL,
    output: Path = option("Table to write, or - for a pipe.", None, "--output", "-o", default=...),
    since: str | None = option("From this date or time on, in UTC.", metavar="TIME"),
    until: str | None = option("Before this date or time, in UTC.", metavar="TIME"),
    model: str | None = option("Only about the model of this name.", metavar="NAME"),
    inputs: bool = option(
        "The inputs that were kept too, in base 64.", None, "--inputs", default=False
    ),
    output_format: str | None = OUTPUT_FORMAT,
) -> None:
    """Write the records as a table: .parquet, .csv, .jsonl or .arrow.

    For example:

    iknow audit export audit.db -o january.parquet --since 2026-01-01 --until 2026-02-01
    """
    start, end = _as_time(since, "--since"), _as_time(until, "--until")
    form, console = format_to_write(output, output_format), console_for(output)
    if "://" not in journal:
        check_output(output, [Path(journal)])
    n_written = 0
    with (
        Console(stderr=True).status("Exporting ...") as status,
        open_journal(journal, readonly=True) as opened,
    ):
        records = (
            _as_row(seq, record, inputs=inputs)
            for seq, record in opened.records(since=start or "")
            if (end is None or record.time < end)
            and (model is None or getattr(record, "model", None) == model)  # labels name none
        )
        with writing(output, form) as write:
            for part in iter(lambda: list(islice(records, PART)), []):
                write(_as_columns(part, inputs=inputs))
                n_written += len(part)
                status.update(f"Exported {n_written:,} records ...")
            if not n_written:
                write(_as_columns([], inputs=inputs))
    console.print(f"{n_written:,} records")
    show_written(output, console)


def _as_time(text: str | None, option: str) -> str | None:
    """A date or a time in ISO form, as records hold them."""
    try:
        return None if text is None else as_time(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InputError(
            f"{option} must be a date or a time in UTC, such as 2026-01-31 or "
            f"2026-01-31T09:30:00+01:00; got {shown(text)}"
        ) from None


def _as_row(seq: int, record: Record, *, inputs: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(record, name) for name in record.__struct_fields__}
    found["seq"], found["kind"] = seq, type(record).__name__.lower()
    for name in ("exemplars", "details"):
        if name in found:
            found[name] = json.dumps(found[name], sort_keys=True)
    content = found.pop("input", None)
    if inputs and content is not None:
        found["input"] = base64.b64encode(content).decode("ascii")
    return found


def _as_columns(part: Sequence[dict[str, Any]], *, inputs: bool) -> dict[str, Any]:
    """Columns for all kinds of records; what a kind lacks is missing."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise MissingExtraError("exporting an audit trail", "tables") from error

    kinds = {"seq": pa.int64()} | dict.fromkeys(TEXTS, pa.string())
    kinds |= {"input": pa.large_string()} if inputs else {}
    kinds |= {"row": pa.int64(), "level": pa.float64()}
    return {
        name: pa.array([_clean(each.get(name)) for each in part], kind)
        for name, kind in kinds.items()
    }


def _clean(value: Any) -> Any:
    """Text that every format can hold: what is no Unicode, and NUL, is escaped."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


@audit.command()
def head(journal: str = JOURNAL) -> None:
    """Print the number and the hash of the last record: note them where the trail is not.

    For example:

    iknow audit head audit.db
    """
    with open_journal(journal, readonly=True) as opened:
        seq, last = opened.head()
    typer.echo(f"{seq}:{last}")


def show_verification(found: Verification, console: Console, *, derived: bool, noted: bool) -> None:
    """Print what was found."""
    records = f"{found.n_records:,} records, {found.first:,} to {found.last:,}"
    told = records if found.n_records else "no records"
    console.print(Text(f"{found.name}: {told}"), soft_wrap=True)
    for problem in found.problems:
        console.print(Text(visible(problem), style="red"), soft_wrap=True)
    if found.n_problems > len(found.problems):
        console.print(f"... and {found.n_problems - len(found.problems):,} more problems")
    if derived:
        console.print(f"{found.n_derived:,} of {found.n_answers:,} answers were derived again")
    if found.holds:
        console.print(
            Text(f"The chain holds. Its head is {found.last}:{found.head}"), soft_wrap=True
        )
    else:
        console.print(f"{found.n_problems:,} problems", style="bold red")
    if not found.is_keyed and not noted:
        console.print(
            "There is no key, and no head to compare with: who can write to the trail could have "
            "made all of it anew",
            style="dim",
            soft_wrap=True,
        )
