"""The protocol of peers, learn from data and then score, and what they see of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Ints
from iknow.errors import InputError

Layer = Literal["input", "hidden"]


@dataclass(frozen=True, eq=False)
class Observed:
    """Inputs, last hidden layer, logits and belief of n samples.

    Attributes:
        inputs: Of shape (n, d).
        hidden: Activations of the last hidden layer, of shape (n, h); None if there is none.
        logits: Of shape (n, n_classes); log-probabilities where a model has no logits.
        belief: The model's answers as class codes, of shape (n,).
        labels: The truth as class codes, of shape (n,), if it is known.

    Examples:
        >>> len(Observed(np.zeros((2, 3)), None, np.eye(2), np.array([0, 1])))
        2
    """

    inputs: NDArray[Any]
    hidden: NDArray[Any] | None
    logits: NDArray[Any]
    belief: Ints
    labels: Ints | None = None

    def __post_init__(self) -> None:
        shapes = {name: np.shape(value) for name, value in vars(self).items() if value is not None}
        flat = {name: 1 if name in ("belief", "labels") else 2 for name in shapes}
        wrong = any(len(shape) != flat[name] for name, shape in shapes.items())
        if wrong or len({shape[0] for shape in shapes.values()}) > 1:
            raise InputError(
                "inputs, hidden and logits must have shape (n, ...), belief and labels (n,), with "
                f"the same n; got {shapes}"
            )

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, rows: Any) -> Observed:
        return Observed(*(None if v is None else v[rows] for v in vars(self).values()))  # type: ignore[arg-type]

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that are there."""
        return ("input",) if self.hidden is None else ("input", "hidden")

    def layer(self, name: Layer) -> NDArray[Any]:
        """Return the activations of the layer `name`, of shape (n, n_features)."""
        if name == "input":
            return self.inputs
        if self.hidden is None:
            raise InputError("this model has no hidden layer: use layer='input'")
        return self.hidden

    def truth(self) -> Ints:
        """Return the labels, of shape (n,); an error if they are not known."""
        if self.labels is None:
            raise InputError("labels are needed to fit a peer; got None")
        return self.labels


@runtime_checkable
class Peer(Protocol):
    """A method that scores a model's answers: the higher, the more to be trusted."""

    @property
    def name(self) -> str:
        """What tables call it."""

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Learn from `training` and `validation` samples, both labeled; by default, nothing."""
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
