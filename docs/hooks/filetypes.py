"""Makers of the blocks on the page about magika, from its results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.magika import table
from benchmarks.magika.table import COVERAGES

MAGIKA: dict[str, Callable[[], str]] = {
    "magika_data": table.data,
    "magika_projects": table.projects,
    "magika_foreign_types": table.foreign_types,
    "magika_wrong_outside": partial(table.outside, "wrong"),
    "magika_asserted_outside": partial(table.outside, "asserted"),
    "magika_as_they_come": table.as_they_come,
    "magika_promises": table.promises,
    **{f"magika_at_{100 * c:.0f}": partial(table.at, c) for c in COVERAGES},
}
