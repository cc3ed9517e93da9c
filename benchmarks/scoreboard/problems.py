"""Problems: a dataset with a kind of model, and whether choices were made by looking at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["mlp", "cnn", "signs", "forest", "boosting"]


@dataclass(frozen=True)
class Problem:
    """What to learn, with which model, and how strongly to disturb it.

    Attributes:
        name: In tables.
        dataset: Its name in `iknow`'s packed data, see `data`.
        kind: Of model. Trees have no gradient, so nobody attacks them here.
        epsilons: Of the gradient attack: the largest change of a feature.
        shape: Of an image, (channels, height, width), for shifts of images; None for a table.
        held_out: Whether no choice was made by looking at it.
    """

    name: str
    dataset: str
    kind: Kind
    epsilons: tuple[float, ...] = ()
    shape: tuple[int, int, int] | None = None
    held_out: bool = False

    @property
    def is_network(self) -> bool:
        return self.kind in ("mlp", "cnn", "signs")


DESIGN = (
    Problem("MNIST MLP", "mnist", "mlp", (0.05, 0.1, 0.2), (1, 28, 28)),
    Problem("MNIST CNN", "mnist", "cnn", (0.05, 0.1, 0.2), (1, 28, 28)),
    Problem("Grid MLP", "grid", "mlp", (0.1, 0.3, 1.0)),
    Problem("Traffic signs CNN", "signs", "signs", (0.01, 0.03, 0.06), (3, 32, 32)),
    Problem("Grid forest", "grid", "forest"),
    Problem("Grid boosting", "grid", "boosting"),
)
HELD_OUT = (
    Problem("Digits MLP", "digits", "mlp", (0.05, 0.1, 0.2), (1, 8, 8), held_out=True),
    Problem("Control charts MLP", "control", "mlp", (0.1, 0.3, 1.0), held_out=True),
    Problem("Italy power MLP", "italy", "mlp", (0.1, 0.3, 1.0), held_out=True),
    Problem("Breast cancer forest", "cancer", "forest", held_out=True),
    Problem("Breast cancer boosting", "cancer", "boosting", held_out=True),
)
PROBLEMS = {problem.name: problem for problem in (*DESIGN, *HELD_OUT)}

UNSEEN = {10: (3, 7, 4, 8, 1), 43: (12, 4, 25, 38, 13), 6: (0, 1, 2, 3, 4)}
"""The class that is kept from training, by the number of classes and the seed."""
