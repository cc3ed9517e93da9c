"""Working on journals: verifying them, deriving their answers again, writing them as tables."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from iknow.classifier.estimator import EpistemicClassifier
from iknow.cli.jobs.assess import load_classifier
from iknow.cli.jobs.outputs import check_output
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.explain.answers import Coded
from iknow.serve.audit import (
    Columns,
    NotedHead,
    Record,
    Verification,
    as_time,
    open_journal,
    verify,
)
from iknow.serve.rows import Rows, as_columns, as_inputs, shape_rows
from iknow.storage.info import describe_bundle
from iknow.tables import format_to_write, writing

PART, LETTERS = 10_000, 1 << 24
"""Rows to write at a time, and letters of one column."""
TEXTS = (
    "kind", "time", "request", "caller", "model", "version", "bundle", "input_hash", "belief",
    "assertion", "reason", "exemplars", "label", "what", "details",
)  # fmt: skip
Told = Callable[[int], None]


def verify_job(
    where: str,
    *,
    bundles: Sequence[Path] = (),
    model: str | None = None,
    heads: Sequence[str] = (),
    level_tolerance: float = 0.0,
    told: Told = lambda _: None,
) -> Verification:
    """Check a journal; with bundles, derive answers from the inputs that were kept."""
    anchors = [NotedHead.from_text(head) for head in heads]
    assess = _Deriving.from_files(bundles, model) if bundles else None
    with open_journal(where, readonly=True) as journal:
        return verify(
            journal, heads=anchors, assess=assess, level_tolerance=level_tolerance, told=told
        )


@dataclass
class _Deriving:
    """Bundles by their sha256, loaded when the first of their answers comes."""

    bundles: dict[str, Path]
    model: str | None
    loaded: dict[str, EpistemicClassifier]

    @classmethod
    def from_files(cls, bundles: Sequence[Path], model: str | None) -> _Deriving:
        return cls({describe_bundle(path).sha256: path for path in bundles}, model, {})

    def __call__(self, bundle: str, rows: Sequence[Any]) -> Columns | None:
        if bundle not in self.bundles:
            return None
        if bundle not in self.loaded:
            path = self.bundles[bundle]
            self.loaded[bundle] = load_classifier(path, self.model, None, check_model=True)
        classifier = self.loaded[bundle]
        inputs = as_inputs(classifier, shape_rows(classifier, _as_rows(rows)))
        with warnings.catch_warnings():  # columns by name are in the classifier's order already
            warnings.filterwarnings("ignore", message="X (has|does not have valid) feature names")
            return classifier.assess(inputs).answers.records()


def _as_rows(rows: Sequence[Any]) -> Rows:
    """Inputs of one form, as the audit trail keeps them, together."""
    if isinstance(rows[0], dict):
        return as_columns(rows)
    return Rows(list(rows) if isinstance(rows[0], str) else np.stack(list(rows)))


def export_job(
    where: str,
    output: Path,
    *,
    form: str | None = None,
    since: str | None = None,
    until: str | None = None,
    model: str | None = None,
    inputs: bool = False,
    told: Told = lambda _: None,
) -> int:
    """Write the records of a time and a model as a table, part by part; returns how many.

    since, until: as records hold times; `until` itself is left out. model: labels, which name no
    model, are left out with it. inputs: write them too, as text in base 64.
    """
    found = format_to_write(output, form)
    if "://" not in where:
        check_output(output, [Path(where)])
    n_written = 0
    with open_journal(where, readonly=True) as journal:
        after = 0 if since is None else journal.before(since)
        records = (
            _fields_of(seq, record, inputs=inputs)
            for seq, record in journal.records(after)
            if (since is None or record.time >= since)
            and (until is None or record.time < until)
            and (model is None or getattr(record, "model", None) == model)
        )
        with writing(output, found) as write, closing(_parts(records)) as parts:
            for part in parts:
                write(_as_table(part, inputs=inputs))
                n_written += len(part)
                told(n_written)
            if not n_written:
                write(_as_table([], inputs=inputs))
    return n_written


def _parts(records: Iterator[dict[str, Any]]) -> Generator[list[dict[str, Any]]]:
    """Rows that fit well into memory, where each text of a column takes as much as the longest."""
    part: list[dict[str, Any]] = []
    longest = 0
    for fields in records:
        longest = max(longest, *(len(value) for value in fields.values() if isinstance(value, str)))
        if part and (len(part) == PART or len(part) * longest > LETTERS):
            yield part
            part, longest = [], 0
        part.append(fields)
    if part:
        yield part


def _as_table(part: Sequence[dict[str, Any]], *, inputs: bool) -> dict[str, Any]:
    """Columns for all kinds of records; what a kind lacks is missing."""
    columns: dict[str, Any] = {"seq": np.array([each["seq"] for each in part], dtype=np.int64)}
    for name in (*TEXTS, *(("input",) if inputs else ())):
        columns[name] = _coded([each.get(name) for each in part], np.str_)
    columns["row"] = _coded([each.get("row") for each in part], np.int64)
    columns["level"] = _coded([each.get("level") for each in part], np.float64)
    return columns


def _fields_of(seq: int, record: Record, *, inputs: bool) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(record, name) for name in record.__struct_fields__}
    found["seq"], found["kind"] = seq, type(record).__name__.lower()
    for name in ("exemplars", "details"):
        if name in found:
            found[name] = json.dumps(found[name], sort_keys=True)
    content = found.pop("input", None)
    if inputs and content is not None:
        found["input"] = base64.b64encode(content).decode("ascii")
    return found


def _coded(values: Sequence[Any], kind: Any) -> Coded:
    """A column in which values may be missing; each is kept once."""
    places: dict[Any, int] = {}
    codes = [-1 if v is None else places.setdefault(_clean(v), len(places)) for v in values]
    return Coded(np.array(list(places), dtype=kind), np.array(codes, dtype=np.int64))


def _clean(value: Any) -> Any:
    """Text that every format can hold: what is no Unicode, and NUL, is escaped."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def head_job(where: str) -> str:
    """The head of a journal as text, to be noted elsewhere."""
    with open_journal(where, readonly=True) as journal:
        seq, last = journal.head()
    return f"{seq}:{last}"


def check_times(**times: str | None) -> dict[str, str | None]:
    """Dates or times in ISO form, as records hold them."""
    found: dict[str, str | None] = {}
    for name, text in times.items():
        try:
            found[name] = None if text is None else as_time(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            raise InputError(
                f"--{name} must be a date or a time in UTC, such as 2026-01-31 or "
                f"2026-01-31T09:30:00+01:00; got {shown(text)}"
            ) from None
    return found
