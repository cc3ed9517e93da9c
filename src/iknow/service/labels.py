"""Labels that come late: was what we knew true?

A label names the request and the row that it belongs to. The recorded answer says whether that was
IK, and what was believed; only IKs count against their certificate. A label that came before for
the same row is not counted twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from iknow.audit import Answer, Label, now
from iknow.core.text import shown
from iknow.errors import AuditError
from iknow.service.desks import Desks
from iknow.service.recording import Call
from iknow.service.refusal import Refusal
from iknow.service.trail import Trail

KEYS = {"request", "row", "label"}


async def learn_labels(
    trail: Trail, desks: Desks, call: Call, labels: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Record labels and let the monitors of their models learn from them.

    Returns:
        Counts of labels: `counted` were of IKs, `others` of other answers, `repeated` came before,
        and `unknown` name no answer that is recorded.
    """
    journal = trail.journal
    wanted = [_check(label, i) for i, label in enumerate(labels)]
    try:
        found = await asyncio.to_thread(lambda: [journal.find(*each[:2]) for each in wanted])
        known = await asyncio.to_thread(lambda: [journal.labelled(*each[:2]) for each in wanted])
        told = {"counted": 0, "others": 0, "repeated": 0, "unknown": 0}
        records, right = [], dict[tuple[str, str], list[bool]]()
        seen: set[tuple[str, int]] = set()
        for (request, row, label), answer, before in zip(wanted, found, known, strict=True):
            if answer is None:
                told["unknown"] += 1
                continue
            if before or (request, row) in seen:
                told["repeated"] += 1
                continue
            seen.add((request, row))
            records.append(Label(now(), request, row, call.caller, label))
            is_known = answer.assertion == "IK"
            told["counted" if is_known else "others"] += 1
            if is_known:
                right.setdefault((answer.model, answer.bundle), []).append(_same(answer, label))
        if records:
            await trail.write(records)
    except AuditError as error:
        raise Refusal(503, "the labels could not be recorded: send them again", 5) from error
    for desk in desks:
        if outcomes := right.get((desk.served.name, desk.served.sha256)):
            await asyncio.to_thread(desk.learn, np.array(outcomes, dtype=bool))
    return told


def _same(answer: Answer, label: str) -> bool:
    return bool(json.loads(answer.belief) == json.loads(label))


def _check(label: Any, place: int) -> tuple[str, int, str]:
    if not isinstance(label, Mapping) or set(label) != KEYS:
        raise Refusal(
            422,
            f"label {place} must be an object with request, row and label; got {shown(label, 80)}",
        )
    request, row, value = label["request"], label["row"], label["label"]
    if not isinstance(request, str) or isinstance(row, bool) or not isinstance(row, int) or row < 0:
        raise Refusal(422, f"label {place}: request must be an id and row a number from 0")
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Refusal(422, f"label {place}: a label is text or a number; got {shown(value, 60)}")
    return request, row, json.dumps(value)
