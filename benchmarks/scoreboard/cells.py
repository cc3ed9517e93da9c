"""Cells: what a trained model meets. A variant is a way of training, with the cells it is asked.

| variant | training data | cells |
|---|---|---|
| plain | as it is | clean, every shift, every attack, foreign data |
| wrong labels | a tenth of the labels moved to another class | clean test data |
| unseen | without one class | that class |

No answer is right about foreign data and about an unseen class; other cells keep their labels.
Three models are trained each time: the first is the one that all methods score, and all three make
the ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from benchmarks.scoreboard.data import Data, Samples, numbers_of, shift_table
from benchmarks.scoreboard.problems import TORCH, UNSEEN, Kind, Problem
from iknow.core.arrays import Ints

MEMBERS = 3
SHARE_OF_WRONG_LABELS = 0.1
CLEAN, WRONG_LABELS, UNSEEN_CLASS = "clean", "wrong labels", "unseen class"

Cell = tuple[Samples, Ints | None]
Train = Callable[[Samples, Ints, int], Any]


@dataclass(frozen=True, eq=False)
class Variant:
    """Trained models, what they were trained on, and the cells to ask them; clean: of test data."""

    name: str
    members: list[Any]
    training: tuple[Samples, Ints]
    validation: tuple[Samples, Ints]
    clean: tuple[Samples, Ints]
    cells: dict[str, Cell]


def make_variants(
    problem: Problem, data: Data, seed: int, device: str | None, quick: bool
) -> Iterator[Variant]:
    """Train, and disturb the test data, one variant after the other."""
    train = _trainer(problem, data.n_classes, device, quick)
    validation, test = (data.x_val, data.y_val), (data.x_test, data.y_test)

    def members(x: Samples, y: Ints, offset: int) -> list[Any]:
        return [train(x, y, 1000 * seed + offset + member) for member in range(MEMBERS)]

    models = members(data.x, data.y, 0)
    cells = _cells(problem, data, models[0], seed)
    yield Variant("plain", models, (data.x, data.y), validation, test, cells)

    rng = np.random.default_rng(seed)
    wrong = rng.random(len(data.y)) < SHARE_OF_WRONG_LABELS
    moved = (data.y + rng.integers(1, data.n_classes, len(data.y))) % data.n_classes
    noisy = np.where(wrong, moved, data.y)
    models = members(data.x, noisy, 100)
    yield Variant("noisy", models, (data.x, noisy), validation, test, {WRONG_LABELS: test})

    if data.n_classes in UNSEEN:
        gone = UNSEEN[data.n_classes][seed % 5]
        known, seen, asked = data.y != gone, data.y_val != gone, data.y_test != gone
        models = members(data.x[known], data.y[known], 200)
        yield Variant(
            "unseen",
            models,
            (data.x[known], data.y[known]),
            (data.x_val[seen], data.y_val[seen]),
            (data.x_test[asked], data.y_test[asked]),
            {UNSEEN_CLASS: (data.x_test[~asked], None)},
        )


def _trainer(problem: Problem, n_classes: int, device: str | None, quick: bool) -> Train:
    if problem.kind not in TORCH:
        return lambda x, y, seed: train_sklearn(problem.kind, x, y, seed)
    from benchmarks.scoreboard.torch.training import train  # the others need no torch

    return lambda x, y, seed: train(problem.kind, x, y, n_classes, seed, device or "cpu", quick)


def _cells(problem: Problem, data: Data, model: Any, seed: int) -> dict[str, Cell]:
    x, y = data.x_test, data.y_test
    if problem.shape is None:
        shifted = shift_table(x, data.x, seed)
    else:
        from benchmarks.scoreboard.torch.shifts import shift_images

        shifted = shift_images(x, problem.shape, seed)
    cells: dict[str, Cell] = {CLEAN: (x, y)}
    cells |= {name: (each, y) for name, each in shifted.items()}
    if problem.epsilons:
        from benchmarks.scoreboard.torch.training import attack

        for epsilon in problem.epsilons:
            attacked = attack(model, x, y, epsilon, image=problem.shape is not None)
            cells[f"attack, {epsilon}"] = (attacked, y)
    return cells | {f"foreign, {name}": (each, None) for name, each in data.foreign.items()}


def train_sklearn(kind: Kind, x: Samples, y: Ints, seed: int) -> Any:
    """A trained classifier of scikit-learn; around it a pipeline if there are categories."""
    model: Any = {
        "forest": RandomForestClassifier(random_state=seed),
        "boosting": HistGradientBoostingClassifier(random_state=seed),
        "perceptron": MLPClassifier((64, 32), early_stopping=True, random_state=seed),
    }[kind]
    if x.dtype != object:
        return model.fit(x, y)
    numbers = numbers_of(x)
    names = [place for place in range(x.shape[1]) if place not in numbers]
    if kind == "perceptron":
        scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
        known = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        steps = make_column_transformer((known, names), (scaled, numbers))
    else:
        coded = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
        steps = make_column_transformer((coded, names), ("passthrough", numbers))
        model.set_params(categorical_features=range(len(names)))
    return make_pipeline(steps, model).fit(x, y)
