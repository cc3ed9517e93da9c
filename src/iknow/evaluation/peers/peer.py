"""The protocol of every peer: learn from training and validation data, then score."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from iknow.core.arrays import Floats
from iknow.evaluation.peers.observed import Observed


@runtime_checkable
class Peer(Protocol):
    """A method that scores a model's answers: the higher, the more to be trusted."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Learn from `training` and `validation` samples, both labeled."""

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
