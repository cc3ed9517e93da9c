"""Problems: a dataset with a kind of model, and whether choices were made by looking at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["mlp", "cnn", "signs", "resnet", "perceptron", "forest", "boosting"]
Mark = Literal["design", "held out", "held out for budgets"]
TORCH = ("mlp", "cnn", "signs", "resnet")


@dataclass(frozen=True)
class Problem:
    """What to learn, with which model, and how strongly to disturb it.

    Attributes:
        name: In tables.
        dataset: Its name in `iknow`'s packed data, see `data`.
        kind: Of model: networks of torch, and scikit-learn's perceptron, forest and boosting. The
            latter have no gradient here, so nobody attacks them.
        epsilons: Of the gradient attack: the largest change of a feature.
        shape: Of an image, (channels, height, width), for shifts of images; None for a table.
        mark: Whether choices were made by looking at it. "held out for budgets": when quorum and
            metrics were chosen, but not for voices and budgets.
    """

    name: str
    dataset: str
    kind: Kind
    epsilons: tuple[float, ...] = ()
    shape: tuple[int, int, int] | None = None
    mark: Mark = "held out"

    @property
    def is_network(self) -> bool:
        return self.kind in TORCH or self.kind == "perceptron"

    @property
    def held_out(self) -> bool:
        return self.mark != "design"


WEAK, STRONG = (0.05, 0.1, 0.2), (0.1, 0.3, 1.0)
_ALL = (
    Problem("MNIST MLP", "mnist", "mlp", WEAK, (1, 28, 28), "design"),
    Problem("MNIST CNN", "mnist", "cnn", WEAK, (1, 28, 28), "design"),
    Problem("CIFAR-10 ResNet", "cifar", "resnet", (0.004, 0.016), (3, 32, 32), "design"),
    Problem("Grid MLP", "grid", "mlp", STRONG, mark="design"),
    Problem("Adult perceptron", "adult", "perceptron", mark="design"),
    Problem("Grid forest", "grid", "forest", mark="design"),
    Problem("Grid boosting", "grid", "boosting", mark="design"),
    Problem("Adult boosting", "adult", "boosting", mark="design"),
    Problem(
        "Traffic signs CNN", "signs", "signs", (0.01, 0.03, 0.06), (3, 32, 32),
        "held out for budgets",
    ),
    Problem("Digits MLP", "digits", "mlp", WEAK, (1, 8, 8)),
    Problem("Control charts MLP", "control", "mlp", STRONG),
    Problem("Italy power MLP", "italy", "mlp", STRONG),
    Problem("Breast cancer forest", "cancer", "forest"),
    Problem("Breast cancer boosting", "cancer", "boosting"),
)  # fmt: skip
PROBLEMS = {problem.name: problem for problem in _ALL}

UNSEEN = {10: (3, 7, 4, 8, 1), 43: (12, 4, 25, 38, 13), 6: (0, 1, 2, 3, 4)}
"""The class that is kept from training, by the number of classes and the seed."""
