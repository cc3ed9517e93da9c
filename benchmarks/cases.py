"""Cases: activations with labels, queries with beliefs, and a radius for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.records import CaseFacts
from iknow.core.arrays import Bools, Codes, Floats32, Ints
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.support import justify


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer: points of shape (n_rows, d), queries of shape (n_queries, d), and a radius."""

    name: str
    points: Floats32
    queries: Floats32
    radius: float


@dataclass(frozen=True, eq=False)
class Case:
    """Layers over the same rows and queries.

    labels: class codes of shape (n_rows,). belief: class codes of shape (n_queries,).
    """

    name: str
    about: str
    layers: tuple[Layer, ...]
    labels: Ints
    belief: Ints
    n_classes: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(self.labels)

    @property
    def n_queries(self) -> int:
        return len(self.belief)

    def label_of(self, layer: Layer) -> str:
        """The case's name, with the layer's name if there are several."""
        return self.name if len(self.layers) == 1 else f"{self.name}, {layer.name}"

    def assert_about(self, part: slice, supports: list[Bools]) -> Codes:
        """The assertions about a slice of the queries, from a mask for each layer."""
        return make_assertions(self.belief[part], justify(supports))

    def describe(self, assertions: Codes) -> CaseFacts:
        """The facts of the case, and how its assertions are distributed."""
        counts = np.bincount(assertions, minlength=len(Assertion))
        shares = {each.name: float(counts[each] / len(assertions)) for each in reversed(Assertion)}
        radii = {layer.name: layer.radius for layer in self.layers}
        return CaseFacts(
            name=self.name,
            about=self.about,
            n_rows=self.n_rows,
            n_classes=self.n_classes,
            n_queries=self.n_queries,
            layers={layer.name: int(layer.points.shape[1]) for layer in self.layers},
            facts={**self.facts, "radii": radii, "assertions": shares},
        )
