"""The numbers of one dataset, by their meaning: those of the paper, or of one seed.

"Strongest" is the last of the four conditions: large noise, or the attack. A sample is known and
wrong if it is IK and the answer is not right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reproduction.protocol import Outcome
from reproduction.tables import Key, load_published

NOISE = ("gaussian", "uniform")


@dataclass(frozen=True)
class DatasetNumbers:
    """The numbers of one dataset, by method, condition and layers."""

    numbers: Mapping[Key, float]
    dataset: str

    @property
    def strongest(self) -> str:
        """The strongest of the conditions."""
        large = Key(self.dataset, "two", "ball", "large", "F_IK") in load_published()
        return "large" if large else "adversarial"

    @property
    def conditions(self) -> tuple[str, ...]:
        return ("nominal", *NOISE, self.strongest)

    def known(self, method: str, condition: str, layers: str = "two") -> float:
        """F_IK."""
        return self.numbers[Key(self.dataset, layers, method, condition, "F_IK")]

    def right(self, method: str, condition: str, layers: str = "two") -> float:
        """A_IK; NaN if nothing is known."""
        return self.numbers[Key(self.dataset, layers, method, condition, "A_IK")]

    def right_outside(self, method: str, condition: str) -> float:
        """A_¬IK; NaN if all is known."""
        return self.numbers[Key(self.dataset, "two", method, condition, "A_notIK")]

    def known_wrong(self, method: str, condition: str, layers: str = "two") -> float:
        """The share of the samples that are known and wrong."""
        known = self.known(method, condition, layers)
        return known * (1 - self.right(method, condition, layers)) if known else 0.0


def list_numbers(dataset: str, outcome: Outcome) -> dict[Key, float]:
    """The numbers of one seed under the name of a dataset of the paper; NaN if undefined."""
    return {
        Key(dataset, cell.layers, cell.method, cell.perturbation, cell.metric): (
            float("nan") if cell.value is None else cell.value
        )
        for cell in outcome.cells
    }
