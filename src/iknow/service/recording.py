"""Recording: answers as records of the audit trail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iknow.audit import Answer, encode_inputs, hash_encoded, now
from iknow.core.codes import NO_BELIEF
from iknow.service.rows import Rows
from iknow.service.said import ASSERTIONS, REASONS, Said
from iknow.service.served import Served


@dataclass(frozen=True)
class Call:
    """Who asks: the name of the caller's token, and the id of the request.

    watch: whether the rows are ordinary ones, which the alarm looks at; not those of a test.
    """

    caller: str
    request: str
    watch: bool = True


def make_records(
    served: Served, call: Call, rows: Rows, said: Said, *, keep_inputs: bool
) -> list[Answer]:
    """A record for each row."""
    time, labels = now(), [json.dumps(label) for label in served.labels]
    levels = [None] * len(said) if said.level is None else said.level.tolist()
    nearest = {layer: column.tolist() for layer, column in said.exemplars.items()}
    inputs = _encode(rows)
    hashes = hash_encoded(inputs)
    columns = said.belief.tolist(), said.assertion.tolist(), said.reason.tolist(), levels
    return [
        Answer(
            time=time,
            request=call.request,
            row=i,
            caller=call.caller,
            model=served.name,
            version=served.version,
            bundle=served.sha256,
            input_hash=hashes[i],
            input=inputs[i] if keep_inputs else None,
            belief="null" if code == NO_BELIEF else labels[code],
            assertion=ASSERTIONS[assertion],
            reason=REASONS[reason],
            level=level,
            exemplars=_at(nearest, i),
        )
        for i, (code, assertion, reason, level) in enumerate(zip(*columns, strict=True))
    ]


def _encode(rows: Rows) -> list[bytes]:
    """Each row as the audit keeps it."""
    if isinstance(rows.values, Mapping):
        return encode_inputs([rows[i] for i in range(len(rows))])
    return encode_inputs(rows.values)


def _at(columns: Mapping[str, list[Any]], row: int) -> dict[str, int]:
    return {layer: int(column[row]) for layer, column in columns.items()}
