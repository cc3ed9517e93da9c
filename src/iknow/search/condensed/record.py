"""Condensed: what condensing kept, what it saved, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iknow.core.text import names, percent


@dataclass(frozen=True)
class Condensed:
    """How a classifier was condensed.

    Attributes:
        rows_before: Training rows of the full classifier.
        rows: Rows kept in full; each of the others is a code.
        directions: By layer, how many numbers a code has, besides one more for what they leave out.
        features: By layer, how many numbers a row in full has.
        bytes_before: Bytes of evidence of the full classifier: points, labels and row numbers.
        bytes: Bytes of evidence that are left: the same of the rows kept, and all of the codes.
        coverage_before: Share of IK among the samples that condensing was measured on.
        coverage: Share of IK that is left.
        n_samples: Number of those samples.

    The coverages were measured with the neighborhoods of that time: `tune` does not change them.
    """

    rows_before: int
    rows: int
    directions: Mapping[str, int]
    features: Mapping[str, int]
    bytes_before: int
    bytes: int
    coverage_before: float
    coverage: float
    n_samples: int

    def __str__(self) -> str:
        layers = [f"{layer} {d} of {self.features[layer]}" for layer, d in self.directions.items()]
        return (
            f"{self.rows:,} of {self.rows_before:,} rows in full, the others as codes (numbers "
            f"each: {names(layers)}); {self.bytes_before / self.bytes:.1f} times fewer bytes; "
            f"coverage {percent(self.coverage)} instead of {percent(self.coverage_before)} on "
            f"{self.n_samples:,} samples"
        )
