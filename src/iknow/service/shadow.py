"""Shadow: a second bundle answers silently beside the first, and the differences are counted.

It never delays an answer: it works on what was answered already, and skips a batch if it is still
busy with another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

import numpy as np

from iknow.core.assertion import Assertion
from iknow.service.computing import Computing
from iknow.service.rows import Rows
from iknow.service.said import Said, Wanted
from iknow.service.served import Served
from iknow.service.shaping import shape_rows

log = logging.getLogger("iknow.service")


class Shadow:
    """Compares what a second bundle says with what was answered."""

    def __init__(self, served: Served, computing: Computing) -> None:
        self.served, self._computing = served, computing
        self._task: asyncio.Task[None] | None = None
        self.n_rows = self.n_skipped = self.n_failed = self.other_belief = 0
        self.changes: Counter[tuple[str, str]] = Counter()

    def follow(self, rows: Rows, said: Said, labels: list[Any]) -> None:
        """Have the second bundle answer, if it is not busy. labels: the classes that answered."""
        if self._task is not None and not self._task.done():
            self.n_skipped += len(rows)
            return
        self._task = asyncio.create_task(self._compare(rows, said, labels))

    async def drain(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _compare(self, rows: Rows, said: Said, labels: list[Any]) -> None:
        try:
            shaped = shape_rows(self.served.classifier, rows)
            other = await self._computing.say(self.served, shaped, Wanted())
        except Exception as error:  # the shadow must never harm what it follows
            self.n_failed += len(rows)
            log.warning("the shadow %s failed: %s", self.served.title, error)
            return
        self.n_rows += len(rows)
        ours = [labels[code] if code >= 0 else None for code in said.belief.tolist()]
        theirs = [self.served.labels[c] if c >= 0 else None for c in other.belief.tolist()]
        self.other_belief += sum(a != b for a, b in zip(ours, theirs, strict=True))
        pairs = np.stack([said.assertion, other.assertion], axis=1).tolist()
        self.changes.update((Assertion(a).name, Assertion(b).name) for a, b in pairs)

    def to_dict(self) -> dict[str, Any]:
        """Counts of rows by what was answered and what the shadow said."""
        return {
            "name": self.served.name,
            "version": self.served.version,
            "bundle": self.served.sha256,
            "rows": self.n_rows,
            "skipped": self.n_skipped,
            "failed": self.n_failed,
            "other_belief": self.other_belief,
            "changes": [
                {"answered": a, "shadow": b, "rows": n}
                for (a, b), n in sorted(self.changes.items())
            ],
        }
