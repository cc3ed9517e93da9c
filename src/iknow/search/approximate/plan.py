"""Plan: the kind of an approximate index and its parameters, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from iknow.core.scalars import as_whole
from iknow.core.text import names, shown
from iknow.errors import InputError

Kind = Literal["hnsw", "ivf", "ivfpq"]

OF_KIND: Mapping[str, tuple[str, ...]] = {
    "hnsw": ("links", "ef"),
    "ivf": ("lists", "probes"),
    "ivfpq": ("lists", "probes", "codes", "bits"),
}
USUAL = {"links": 32, "ef": 64, "probes": 16, "bits": 8}
RANGES = {
    "links": (2, 1024),
    "ef": (1, 1 << 20),
    "lists": (1, 1 << 24),
    "probes": (1, 1 << 24),
    "codes": (1, 1 << 16),
    "bits": (4, 12),
}
ROWS_PER_CENTER = 39  # FAISS wants as many to find a center


@dataclass(frozen=True)
class Plan:
    """What to build for each class; None where a kind has no such parameter, or by default."""

    kind: Kind
    links: int | None = None
    ef: int | None = None
    lists: int | None = None
    probes: int | None = None
    codes: int | None = None
    bits: int | None = None

    def check_features(self, n_features: int) -> None:
        if self.codes is not None and n_features % self.codes:
            raise InputError(
                f"codes must divide the number of features, {n_features}; got {self.codes}"
            )

    def count_codes(self, n_features: int) -> int:
        """Into how many parts to cut a row: the most that leave 4 features to each, or one."""
        if self.codes is not None:
            return self.codes
        most = max(1, n_features // 4)
        return next(count for count in range(most, 0, -1) if n_features % count == 0)

    def count_lists(self, n_rows: int) -> int:
        wanted = int(4 * n_rows**0.5) if self.lists is None else self.lists
        return max(1, min(wanted, n_rows // ROWS_PER_CENTER))

    def searches_whole(self, n_rows: int) -> bool:
        """Whether a class has too few rows for the kind."""
        fewest = {"hnsw": 256, "ivf": 1024, "ivfpq": ROWS_PER_CENTER << (self.bits or 8)}
        return n_rows < fewest[self.kind]


def make_plan(kind: Kind, given: Mapping[str, int | None]) -> Plan:
    """The plan of a kind with the parameters given, None for the usual ones."""
    if kind not in get_args(Kind):
        raise InputError(f"kind must be one of {get_args(Kind)}; got {shown(kind)}")
    own = OF_KIND[kind]
    values: dict[str, int | None] = {}
    for name, value in given.items():
        if value is None:
            values[name] = USUAL.get(name) if name in own else None
            continue
        if name not in own:
            raise InputError(f"kind={kind!r} takes {names(own)}; got {name}={shown(value)}")
        least, most = RANGES[name]
        wanted = f"be a whole number from {least} to {most}"
        values[name] = number = as_whole(value, name, wanted)
        if not least <= number <= most:
            raise InputError(f"{name} must {wanted}; got {shown(value)}")
    return Plan(kind, **values)
