"""Labels that come late: was what we knew true?

A label names the request and the row that it belongs to. The recorded answer says whether that was
IK, and what was believed; only IKs count against their certificate. A label that came before for
the same row is not counted twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import AuditError
from iknow.serve.audit import Answer, AuditWriter, Call, Journal, Label, now
from iknow.serve.desks import Desks
from iknow.serve.refusal import Refusal

KEYS = {"request", "row", "label"}


@dataclass
class Sorted:
    """Labels by what becomes of them.

    told: counts. records: those to write. right: by model and bundle, whether IKs were right.
    """

    told: dict[str, int]
    records: list[Label]
    right: dict[tuple[str, str], list[bool]]


async def learn_labels(
    trail: AuditWriter, desks: Desks, call: Call, labels: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Record labels and let the monitors of their models learn from them.

    Returns:
        Counts of labels: `counted` were of IKs of a bundle that is served, `others` of other
        answers, `repeated` came before, and `unknown` name no answer that is recorded.
    """
    wanted = [_check(label, i) for i, label in enumerate(labels)]
    served = {(desk.served.name, sha256): desk for desk in desks for sha256 in desk.states}
    try:
        found = await asyncio.to_thread(_sort, trail.journal, wanted, call, served)
        if found.records:
            await trail.write(found.records)
    except AuditError as error:
        raise Refusal(503, "the labels could not be recorded: send them again", 5) from error
    for key, outcomes in found.right.items():
        await asyncio.to_thread(served[key].learn, np.array(outcomes, dtype=bool))
    return found.told


def _sort(
    journal: Journal,
    wanted: Sequence[tuple[str, int, str]],
    call: Call,
    served: Collection[tuple[str, str]],
) -> Sorted:
    """Compare labels with recorded answers. served: names of models, and their bundles."""
    found = Sorted(dict.fromkeys(("counted", "others", "repeated", "unknown"), 0), [], {})
    seen: set[tuple[str, int]] = set()
    for request, row, label in wanted:
        answer = journal.find(request, row)
        if answer is None:
            found.told["unknown"] += 1
            continue
        if (request, row) in seen or journal.labelled(request, row):
            found.told["repeated"] += 1
            continue
        seen.add((request, row))
        found.records.append(Label(now(), request, row, call.caller, label))
        key = answer.model, answer.bundle
        counts = answer.assertion == "IK" and key in served
        found.told["counted" if counts else "others"] += 1
        if counts:
            found.right.setdefault(key, []).append(_same(answer, label))
    return found


def _same(answer: Answer, label: str) -> bool:
    """Whether a label is what was believed; 1 and 1.0 are the same, 1 and true are not."""
    believed, true = json.loads(answer.belief), json.loads(label)
    return bool(believed == true) and isinstance(believed, bool) == isinstance(true, bool)


def _check(label: Any, place: int) -> tuple[str, int, str]:
    if not isinstance(label, Mapping) or set(label) != KEYS:
        raise Refusal(
            422,
            f"label {place} must be an object with request, row and label; got {shown(label, 80)}",
        )
    request, row, value = label["request"], label["row"], label["label"]
    is_row = isinstance(row, int) and not isinstance(row, bool) and 0 <= row < 2**63
    if not isinstance(request, str) or not is_row:
        raise Refusal(422, f"label {place}: request must be an id and row a number from 0")
    if not isinstance(value, (str, int, float)) or value in (inf, -inf) or value != value:
        raise Refusal(
            422,
            f"label {place}: a label is text, a finite number, true or false; got "
            f"{shown(value, 60)}",
        )
    return request, row, json.dumps(value)
