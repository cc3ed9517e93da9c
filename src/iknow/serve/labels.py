"""Labels that come late: was what we knew true?

A label names the request and the row that it belongs to. The recorded answer says whether that was
IK, and what was believed; only IKs count against their certificate. A label that came before for
the same row is not counted twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from iknow.errors import AuditError
from iknow.serve.audit import Answer, AuditWriter, Call, Journal, Label, now
from iknow.serve.schema import LabelCounts, Refusal, TrueLabel
from iknow.serve.served import Models


@dataclass
class Sorted:
    """Labels by what becomes of them.

    told: counts. records: those to write. right: by model and bundle, whether IKs were right.
    """

    told: dict[str, int]
    records: list[Label]
    right: dict[tuple[str, str], list[bool]]


async def learn_labels(
    audit: AuditWriter, models: Models, call: Call, labels: Sequence[TrueLabel]
) -> LabelCounts:
    """Record labels and let the monitors of their models learn from them.

    Raises:
        Refusal: 422 or 503; then nothing is recorded.
    """
    for i, each in enumerate(labels):
        if isinstance(each.label, float) and not isfinite(each.label):
            raise Refusal(422, f"labels[{i}]: a number must be finite; got {each.label}")
    served = {
        (each.name, sha256): each.watcher for each in models for sha256 in each.watcher.bundles
    }
    try:
        found = await asyncio.to_thread(_sort, audit.journal, labels, call, served)
        if found.records:
            await audit.write(found.records)
    except AuditError as error:
        raise Refusal(503, "the labels could not be recorded: send them again", 5) from error
    for key, outcomes in found.right.items():
        await asyncio.to_thread(served[key].learn, np.array(outcomes, dtype=bool))
    return LabelCounts(**found.told)


def _sort(
    journal: Journal,
    labels: Sequence[TrueLabel],
    call: Call,
    served: Collection[tuple[str, str]],
) -> Sorted:
    """Compare labels with recorded answers. served: names of models, and their bundles."""
    found = Sorted(dict.fromkeys(("counted", "others", "repeated", "unknown"), 0), [], {})
    seen: set[tuple[str, int]] = set()
    for each in labels:
        request, row, label = each.request, each.row, json.dumps(each.label)
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
