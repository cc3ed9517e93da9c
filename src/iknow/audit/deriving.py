"""Deriving: what was answered, compared with what the input that was kept gives now.

A difference means that the record is not true, or that the bundle no longer answers as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from iknow.audit.chain import decode
from iknow.audit.inputs import decode_input
from iknow.audit.ledger import Row
from iknow.audit.record import Answer
from iknow.audit.walk import Walk
from iknow.core.text import shown
from iknow.errors import AuditError, IknowError

Columns = tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[float | None]]
Assess = Callable[[str, Sequence[Any]], Columns | None]
"""From the sha256 of a bundle and its inputs to beliefs (JSON), assertions, reasons and levels,
one for each input; None if it does not know the bundle.
"""


def derive(rows: Sequence[Row], assess: Assess, tolerance: float, walk: Walk) -> int:
    """Compare the answers among rows with those that their inputs give; returns how many."""
    by_bundle: dict[tuple[str, Any], list[tuple[int, Answer, Any]]] = {}
    for row in rows:
        try:
            record = decode(row.body, row.input)
            if not isinstance(record, Answer) or record.input is None:
                continue
            content = decode_input(record.input)
        except AuditError as error:
            walk.report(row.seq, str(error))
            continue
        form = getattr(content, "dtype", None), getattr(content, "shape", type(content))
        by_bundle.setdefault((record.bundle, str(form)), []).append((row.seq, record, content))
    n_derived = 0
    for (bundle, _), found in by_bundle.items():
        try:
            columns = assess(bundle, [content for _, _, content in found])
        except IknowError as error:
            walk.report(found[0][0], f"it and {len(found) - 1} more cannot be derived: {error}")
            continue
        if columns is not None:
            n_derived += len(found)
            for (seq, record, _), now in zip(found, zip(*columns, strict=True), strict=True):
                for difference in _differences(record, now, tolerance):
                    walk.report(seq, difference)
    return n_derived


def _differences(record: Answer, now: tuple[Any, ...], tolerance: float) -> Iterator[str]:
    """What differs between a recorded answer and one derived from its input."""
    names: Mapping[str, Any] = {
        "belief": record.belief, "assertion": record.assertion, "reason": record.reason
    }  # fmt: skip
    for (name, then), value in zip(names.items(), now[:3], strict=True):
        if then != value:
            yield f"its {name} was recorded as {shown(then)}; its input gives {shown(value)}"
    level = now[3]
    both = record.level is not None and level is not None
    if (record.level is None) != (level is None) or (
        both and abs(float(level) - float(record.level)) > tolerance  # type: ignore[arg-type]
    ):
        yield f"its level was recorded as {record.level}; its input gives {level}"
