"""Said: what a network says about files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from iknow.core.arrays import Floats32, Ints, Labels


@dataclass(frozen=True, eq=False)
class Said:
    """Logits and last hidden layer of n files: (n, n_types) and (n, n_features)."""

    logits: Floats32
    hidden: Floats32

    def __getitem__(self, rows: Any) -> Said:
        return Said(self.logits[rows], self.hidden[rows])

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def belief(self) -> Ints:
        """The code of the believed type, of shape (n,)."""
        found: Ints = self.logits.argmax(axis=1)
        return found


class Network(Protocol):
    """A network that tells the types of files."""

    config: dict[str, Any]  # in the words of magika's own
    labels: Labels  # of its types, of shape (n_types,)

    def ask(self, contents: list[bytes]) -> Said: ...
